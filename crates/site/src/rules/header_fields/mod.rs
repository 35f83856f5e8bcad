//! Header fields for responses, by address.
//!
//! Several rules about one address add up: the values that they give one field are joined by commas, as hosting
//! services for static sites do. The operator's values for a field replace the bundle's, and both replace docwharf's
//! own. No rule changes fields that frame a response, name its bytes or give its date. A bundle is untrusted data: it
//! may not set fields that affect more than its own pages, that send clients or reports elsewhere, or that would undo
//! the operator's settings ([`ProtectedHeaders`]).

mod field_names;
mod merge_field;

use http::header::{
    CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY_REPORT_ONLY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::pattern::Pattern;
use super::protected_headers::{ProtectedHeaders, remove_report_directives};
use field_names::{FILE_FIELDS, OPERATOR_FIELDS, REQUIRED_FIELDS, parse_field_name};
use merge_field::merge_field;

pub use field_names::RuleOwner;

/// The maximum number of patterns in one source of rules.
const MAX_PATTERNS: usize = 200;
/// The maximum number of fields in one source of rules.
const MAX_FIELDS: usize = 1_000;
/// The maximum size of all fields of one source of rules, in bytes: one response may get them all.
const MAX_FIELD_BYTES: usize = 16 << 10;

/// The effect of one rule on one field.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FieldChange {
    Set(HeaderName, HeaderValue),
    Remove(HeaderName),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Block {
    pattern: Pattern,
    deeds: Vec<FieldChange>,
}

/// The header fields of one source of rules, by address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields {
    blocks: Vec<Block>,
    deeds: usize,
    bytes: usize,
}

/// Splits a line `Name: value`.
pub fn split_field(line: &str) -> Result<(&str, &str), String> {
    let (name, value) = line.split_once(':').ok_or("a line below a pattern is written Name: value")?;
    Ok((name.trim(), value.trim()))
}

impl Fields {
    /// Whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Adds a block for the addresses that match a pattern. Returns its number.
    pub fn add_block(&mut self, pattern: Pattern) -> Result<usize, String> {
        if self.blocks.len() >= MAX_PATTERNS {
            return Err(format!("there are more than {MAX_PATTERNS} patterns"));
        }
        self.blocks.push(Block { pattern, deeds: Vec::new() });
        Ok(self.blocks.len() - 1)
    }

    /// Adds a field to the block with this number.
    pub fn add_field(&mut self, block: usize, name: &str, value: &str, owner: RuleOwner) -> Result<(), String> {
        let name = parse_field_name(name)?;
        let value = Some(value).filter(|value| value.is_ascii()).and_then(|value| HeaderValue::from_str(value).ok());
        let value =
            value.ok_or_else(|| format!("{name} has a value that no field can have: visible ASCII is needed"))?;
        if name == X_CONTENT_TYPE_OPTIONS {
            return if value == "nosniff" { Ok(()) } else { Err(format!("{name} is nosniff everywhere")) };
        }
        if owner == RuleOwner::Bundle {
            return self.set_by_bundle(block, name, value);
        }
        self.add(block, name.as_str().len() + value.len(), FieldChange::Set(name, value))
    }

    /// Adds the permitted part of a bundle's field. The error describes the part that is not permitted.
    fn set_by_bundle(&mut self, block: usize, name: HeaderName, value: HeaderValue) -> Result<(), String> {
        if OPERATOR_FIELDS.contains(&name) {
            return Err(format!("{name} concerns more than the pages of this site: only the configuration sets it"));
        }
        let text = value.to_str().unwrap_or_default();
        // Browsers treat an unknown value as permission.
        if name == X_FRAME_OPTIONS && !["DENY", "SAMEORIGIN"].iter().any(|known| text.eq_ignore_ascii_case(known)) {
            return Err(format!("{name} is DENY or SAMEORIGIN"));
        }
        let is_policy = [CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY_REPORT_ONLY].contains(&name);
        let Some(rest) = remove_report_directives(text).filter(|_| is_policy) else {
            return self.add(block, name.as_str().len() + value.len(), FieldChange::Set(name, value));
        };
        let told =
            format!("only the configuration says where reports of {name} go: report-uri and report-to do not count");
        if let (Ok(rest), false) = (HeaderValue::from_str(&rest), rest.is_empty()) {
            self.add(block, name.as_str().len() + rest.len(), FieldChange::Set(name, rest))?;
        }
        Err(told)
    }

    /// Adds the removal of a field that earlier rules set. A removal by the operator also removes docwharf's own field.
    pub fn add_removal(&mut self, block: usize, name: &str) -> Result<(), String> {
        let name = parse_field_name(name)?;
        if REQUIRED_FIELDS.contains(&name) {
            return Err(format!("{name} has to be there: set another value"));
        }
        self.add(block, name.as_str().len(), FieldChange::Remove(name))
    }

    fn add(&mut self, block: usize, bytes: usize, deed: FieldChange) -> Result<(), String> {
        if self.deeds >= MAX_FIELDS || self.bytes + bytes > MAX_FIELD_BYTES {
            return Err(format!("there are more than {MAX_FIELDS} fields, or {MAX_FIELD_BYTES} bytes of them"));
        }
        self.deeds += 1;
        self.bytes += bytes;
        if let Some(block) = self.blocks.get_mut(block) {
            block.deeds.push(deed);
        }
        Ok(())
    }

    /// Returns the media types that the rules set for a decoded address with its leading slash.
    pub fn media_types<'a>(&'a self, address: &[u8]) -> impl Iterator<Item = &'a str> {
        let named = |block: &'a Block| block.deeds.iter().filter_map(media_type);
        let about = move |block: &&'a Block| named(block).next().is_some() && block.pattern.matches(address).is_some();
        self.blocks.iter().filter(about).flat_map(named)
    }

    /// Adds the fields for a decoded address, with its leading slash, to a response. `ground` has the restrictions for
    /// a bundle's rules; `None` applies the rules as the operator's.
    pub fn apply(&self, address: &[u8], ground: Option<ProtectedHeaders>, status: StatusCode, headers: &mut HeaderMap) {
        let owner = if ground.is_some() { RuleOwner::Bundle } else { RuleOwner::Operator };
        // The fields to add, in their order: (name, values).
        let mut said: Vec<(&HeaderName, Vec<&HeaderValue>)> = Vec::new();
        for block in self.blocks.iter().filter(|block| block.pattern.matches(address).is_some()) {
            for deed in &block.deeds {
                match deed {
                    FieldChange::Set(name, value) if ground.is_some_and(|ground| !ground.allows(name, value)) => {}
                    FieldChange::Set(name, value) => match said.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, values)) => values.push(value),
                        None => said.push((name, vec![value])),
                    },
                    FieldChange::Remove(name) => {
                        said.retain(|(known, _)| *known != name);
                        if owner == RuleOwner::Operator {
                            headers.remove(name);
                        }
                    }
                }
            }
        }
        let is_file = matches!(status.as_u16(), 200 | 206 | 304);
        for (name, values) in said {
            let describes = headers.contains_key(CONTENT_TYPE);
            if FILE_FIELDS.contains(name) && (!is_file || (*name == CONTENT_TYPE && !describes)) {
                continue;
            }
            merge_field(headers, name, &values, owner);
        }
    }
}

/// Returns the media type, if a rule sets it.
fn media_type(deed: &FieldChange) -> Option<&str> {
    match deed {
        FieldChange::Set(name, value) if *name == CONTENT_TYPE => value.to_str().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
