//! Header fields for responses, by address.
//!
//! Several rules about one address add up: the values that they give one field are joined by commas, as hosting
//! services for static sites do. The operator's values for a field replace the bundle's, and both replace docwharf's
//! own. No rule changes fields that frame a response, name its bytes or give its date. A bundle is untrusted data: it
//! may not set fields that affect more than its own pages, that send clients or reports elsewhere, or that would undo
//! the operator's settings ([`ProtectedHeaders`]).

use http::header::{
    ACCEPT_RANGES, AGE, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE,
    CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_RANGE, CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY_REPORT_ONLY,
    CONTENT_TYPE, DATE, ETAG, EXPIRES, HOST, LAST_MODIFIED, LINK, LOCATION, PROXY_AUTHENTICATE, REFRESH, RETRY_AFTER,
    SET_COOKIE, STRICT_TRANSPORT_SECURITY, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VARY, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS, X_DNS_PREFETCH_CONTROL, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::pattern::Pattern;
use super::protected_headers::{ProtectedHeaders, remove_report_directives};

/// The maximum number of patterns in one source of rules.
const MAX_PATTERNS: usize = 200;
/// The maximum number of fields in one source of rules.
const MAX_FIELDS: usize = 1_000;
/// The maximum size of all fields of one source of rules, in bytes: one response may get them all.
const MAX_FIELD_BYTES: usize = 16 << 10;

/// The fields that no rule sets or removes: framing, validators, and fields that the server computes.
const SERVER_FIELDS: [HeaderName; 22] = [
    ACCEPT_RANGES,
    AGE,
    ALLOW,
    CONNECTION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_LOCATION,
    CONTENT_RANGE,
    DATE,
    ETAG,
    HOST,
    HeaderName::from_static("keep-alive"),
    LAST_MODIFIED,
    LOCATION,
    PROXY_AUTHENTICATE,
    HeaderName::from_static("proxy-connection"),
    RETRY_AFTER,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    WWW_AUTHENTICATE,
];
/// The fields that only the operator sets, because they affect the whole host or all clients of a shared cache, or send
/// clients or reports elsewhere.
const OPERATOR_FIELDS: [HeaderName; 9] = [
    HeaderName::from_static("alt-svc"),
    HeaderName::from_static("clear-site-data"),
    HeaderName::from_static("nel"),
    REFRESH,
    HeaderName::from_static("report-to"),
    HeaderName::from_static("reporting-endpoints"),
    HeaderName::from_static("service-worker-allowed"),
    SET_COOKIE,
    STRICT_TRANSPORT_SECURITY,
];
/// The fields that a rule may set but not remove.
const REQUIRED_FIELDS: [HeaderName; 4] = [CACHE_CONTROL, CONTENT_TYPE, VARY, X_CONTENT_TYPE_OPTIONS];
/// The fields that describe a file. They are not added to redirects and error responses.
const FILE_FIELDS: [HeaderName; 6] =
    [CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LANGUAGE, CONTENT_TYPE, EXPIRES, LINK];

/// The author of a set of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleOwner {
    /// The author of the bundle.
    Bundle,
    /// The operator of the server.
    Operator,
}

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

fn parse_field_name(name: &str) -> Result<HeaderName, String> {
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is not a valid field name"))?;
    if SERVER_FIELDS.contains(&name) {
        return Err(format!("{name} is the server's: no rule changes it"));
    }
    Ok(name)
}

fn merge_field(headers: &mut HeaderMap, name: &HeaderName, values: &[&HeaderValue], owner: RuleOwner) {
    // A bundle must not loosen a restriction of the operator.
    let is_lock = [X_FRAME_OPTIONS, X_DNS_PREFETCH_CONTROL].contains(name);
    let is_shut = headers.get(name).is_some_and(|value| value == "DENY" || value == "off");
    if owner == RuleOwner::Bundle && is_lock && is_shut {
        return;
    }
    let is_policy = [CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY_REPORT_ONLY].contains(name);
    if *name == SET_COOKIE || is_policy {
        // Cookies cannot be joined. A browser enforces every policy (CSP3), so a bundle can forbid more and never less.
        if owner == RuleOwner::Operator {
            headers.remove(name);
        }
        for &value in values {
            headers.append(name, value.clone());
        }
    } else if *name == VARY {
        // The response depends on the fields that docwharf lists, whatever a rule says, so values are only added.
        let mut all: Vec<&str> = Vec::new();
        let known: Vec<HeaderValue> = headers.get_all(VARY).iter().cloned().collect();
        let items = known.iter().chain(values.iter().copied()).filter_map(|value| value.to_str().ok());
        for item in items.flat_map(|text| text.split(',')).map(str::trim).filter(|item| !item.is_empty()) {
            if !all.iter().any(|known| known.eq_ignore_ascii_case(item)) {
                all.push(item);
            }
        }
        insert_joined(headers, name, &all.join(", "));
    } else if *name == LINK {
        // docwharf's own link to the Markdown of a page stays beside the links of a rule.
        let known: Vec<HeaderValue> = headers.get_all(LINK).iter().cloned().collect();
        let texts: Vec<&str> =
            known.iter().chain(values.iter().copied()).filter_map(|value| value.to_str().ok()).collect();
        insert_joined(headers, name, &texts.join(", "));
    } else if let [value] = values {
        headers.insert(name, (*value).clone());
    } else {
        let texts: Vec<&str> = values.iter().filter_map(|value| value.to_str().ok()).collect();
        insert_joined(headers, name, &texts.join(", "));
    }
}

/// Sets a field to a joined value, whose parts were checked one by one.
fn insert_joined(headers: &mut HeaderMap, name: &HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests;
