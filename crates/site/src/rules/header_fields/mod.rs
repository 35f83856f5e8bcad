//! Header fields for responses, by address.
//!
//! Several rules about one address are combined: the values that they set for one field are joined by commas, as
//! hosting services for static sites do; cookies and content security policies are sent as separate fields. The
//! operator's values for a field replace the bundle's, and both replace docwharf's own, except that values of `Vary`
//! and `Link`, and a bundle's policies, are added. No rule changes fields that frame a response, identify its bytes or
//! state its date. A bundle is untrusted data: it may not set fields that affect more than its own pages, that send
//! clients or reports to other hosts, or that would override the operator's settings ([`OperatorRestrictions`]).

mod field_names;
mod merge_field;

use http::header::{
    CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY_REPORT_ONLY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};

use super::operator_restrictions::{OperatorRestrictions, remove_report_directives};
use super::pattern::Pattern;
use field_names::{FILE_FIELDS, OPERATOR_FIELDS, REQUIRED_FIELDS, parse_field_name};
use merge_field::merge_field;

pub use field_names::RuleOwner;

/// The maximum number of patterns in one source of rules.
const MAX_PATTERNS: usize = 200;
/// The maximum number of fields in one source of rules.
const MAX_FIELDS: usize = 1_000;
/// The maximum size of all fields of one source of rules, in bytes: one response may contain all of them.
const MAX_FIELD_BYTES: usize = 16 << 10;

/// The effect of one rule on one field.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FieldChange {
    Set(HeaderName, HeaderValue),
    Remove(HeaderName),
}

/// The changes of one rule, and the addresses to which it applies.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HeaderRule {
    pattern: Pattern,
    changes: Vec<FieldChange>,
}

/// The header fields of one source of rules, by address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderFieldRules {
    rules: Vec<HeaderRule>,
    change_count: usize,
    bytes: usize,
}

/// The effect of one rule on one field, as it is passed to another process of this program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldRule {
    /// The addresses to which the rule applies.
    pub pattern: Pattern,
    /// The values that it sets, in their order; `None` removes the field.
    pub values: Vec<Option<String>>,
}

/// Splits a line `Name: value`.
pub fn split_field(line: &str) -> Result<(&str, &str), String> {
    let (name, value) = line.split_once(':').ok_or("a line below a pattern must be Name: value")?;
    Ok((name.trim(), value.trim()))
}

impl HeaderFieldRules {
    /// Whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Adds a rule for the addresses that match a pattern. Returns its number.
    pub fn add_rule(&mut self, pattern: Pattern) -> Result<usize, String> {
        if self.rules.len() >= MAX_PATTERNS {
            return Err(format!("there are more than {MAX_PATTERNS} patterns"));
        }
        self.rules.push(HeaderRule { pattern, changes: Vec::new() });
        Ok(self.rules.len() - 1)
    }

    /// Adds a field to the rule with this number.
    pub fn add_field(&mut self, rule: usize, name: &str, value: &str, owner: RuleOwner) -> Result<(), String> {
        let name = parse_field_name(name)?;
        let value = Some(value).filter(|value| value.is_ascii()).and_then(|value| HeaderValue::from_str(value).ok());
        let value = value.ok_or_else(|| format!("the value of {name} is not visible ASCII"))?;
        if name == X_CONTENT_TYPE_OPTIONS {
            return if value == "nosniff" { Ok(()) } else { Err(format!("{name} is always nosniff")) };
        }
        if owner == RuleOwner::Bundle {
            return self.add_bundle_field(rule, name, value);
        }
        self.add(rule, name.as_str().len() + value.len(), FieldChange::Set(name, value))
    }

    /// Adds the permitted part of a bundle's field. The error describes the part that is not permitted.
    fn add_bundle_field(&mut self, rule: usize, name: HeaderName, value: HeaderValue) -> Result<(), String> {
        if OPERATOR_FIELDS.contains(&name) {
            return Err(format!("{name} affects more than the pages of this site: only the configuration can set it"));
        }
        let text = value.to_str().unwrap_or_default();
        // Browsers treat an unknown value as permission.
        if name == X_FRAME_OPTIONS && !["DENY", "SAMEORIGIN"].iter().any(|valid| text.eq_ignore_ascii_case(valid)) {
            return Err(format!("{name} must be DENY or SAMEORIGIN"));
        }
        let is_policy = [CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY_REPORT_ONLY].contains(&name);
        let Some(rest) = remove_report_directives(text).filter(|_| is_policy) else {
            return self.add(rule, name.as_str().len() + value.len(), FieldChange::Set(name, value));
        };
        let message = format!(
            "only the configuration can decide where reports of {name} are sent: report-uri and report-to are ignored"
        );
        if let (Ok(rest), false) = (HeaderValue::from_str(&rest), rest.is_empty()) {
            self.add(rule, name.as_str().len() + rest.len(), FieldChange::Set(name, rest))?;
        }
        Err(message)
    }

    /// Adds the removal of a field that earlier rules set. A removal by the operator also removes docwharf's own field.
    pub fn add_removal(&mut self, rule: usize, name: &str) -> Result<(), String> {
        let name = parse_field_name(name)?;
        if REQUIRED_FIELDS.contains(&name) {
            return Err(format!("{name} cannot be removed: set another value"));
        }
        self.add(rule, name.as_str().len(), FieldChange::Remove(name))
    }

    fn add(&mut self, rule: usize, bytes: usize, change: FieldChange) -> Result<(), String> {
        if self.change_count >= MAX_FIELDS || self.bytes + bytes > MAX_FIELD_BYTES {
            return Err(format!("there are more than {MAX_FIELDS} fields, or {MAX_FIELD_BYTES} bytes of them"));
        }
        self.change_count += 1;
        self.bytes += bytes;
        if let Some(rule) = self.rules.get_mut(rule) {
            rule.changes.push(change);
        }
        Ok(())
    }

    /// Returns the effects of the rules on one field, in their order.
    pub fn rules_about(&self, field: &HeaderName) -> impl Iterator<Item = FieldRule> {
        self.rules.iter().filter_map(move |rule| {
            let values = rule.changes.iter().filter(|change| change.field() == field);
            let values: Vec<Option<String>> = values.map(|change| change.value().map(str::to_owned)).collect();
            (!values.is_empty()).then(|| FieldRule { pattern: rule.pattern.clone(), values })
        })
    }

    /// Returns the values of a field that the rules set for a decoded address with its leading slash: none if they
    /// remove it. Returns `None` if no rule is about the field there. Only changes for which `counts` returns true are
    /// considered; it gets the pattern of the rule and the value, or `None` for a removal.
    pub fn values_at(
        &self,
        address: &[u8],
        field: &HeaderName,
        counts: impl Fn(&Pattern, Option<&str>) -> bool,
    ) -> Option<Vec<&str>> {
        let is_counted =
            |rule: &HeaderRule, change: &&FieldChange| change.field() == field && counts(&rule.pattern, change.value());
        let is_about = |rule: &&HeaderRule| rule.changes.iter().any(|change| is_counted(rule, &change));
        let mut values: Option<Vec<&str>> = None;
        for rule in self.rules.iter().filter(is_about).filter(|rule| rule.pattern.matches(address).is_some()) {
            let values = values.get_or_insert_default();
            for change in rule.changes.iter().filter(|change| is_counted(rule, change)) {
                match change.value() {
                    Some(value) => values.push(value),
                    None => values.clear(),
                }
            }
        }
        values
    }

    /// Returns the media types that the rules set for a decoded address with its leading slash.
    pub fn media_types<'a>(&'a self, address: &[u8]) -> impl Iterator<Item = &'a str> {
        let media_types = |rule: &'a HeaderRule| rule.changes.iter().filter_map(media_type);
        let applies =
            move |rule: &&'a HeaderRule| media_types(rule).next().is_some() && rule.pattern.matches(address).is_some();
        self.rules.iter().filter(applies).flat_map(media_types)
    }

    /// Adds the fields for a decoded address, with its leading slash, to a response. `restrictions` are those for a
    /// bundle's rules; `None` applies the rules as those of the operator.
    pub fn apply(
        &self,
        address: &[u8],
        restrictions: Option<OperatorRestrictions>,
        status: StatusCode,
        headers: &mut HeaderMap,
    ) {
        let owner = if restrictions.is_some() { RuleOwner::Bundle } else { RuleOwner::Operator };
        // The fields to add, in their order: (name, values).
        let mut values_by_name: Vec<(&HeaderName, Vec<&HeaderValue>)> = Vec::new();
        for rule in self.rules.iter().filter(|rule| rule.pattern.matches(address).is_some()) {
            for change in &rule.changes {
                match change {
                    FieldChange::Set(name, value)
                        if restrictions.is_some_and(|restrictions| !restrictions.allows(name, value)) => {}
                    FieldChange::Set(name, value) => {
                        match values_by_name.iter_mut().find(|(known, _)| *known == name) {
                            Some((_, values)) => values.push(value),
                            None => values_by_name.push((name, vec![value])),
                        }
                    }
                    FieldChange::Remove(name) => {
                        values_by_name.retain(|(known, _)| *known != name);
                        if owner == RuleOwner::Operator {
                            headers.remove(name);
                        }
                    }
                }
            }
        }
        let is_file = matches!(status.as_u16(), 200 | 206 | 304);
        for (name, values) in values_by_name {
            // The type of a response with several ranges separates its parts (RFC 9110, 15.3.7.2).
            let is_multipart = |value: &HeaderValue| value.as_bytes().starts_with(b"multipart/byteranges");
            let has_type_of_file = headers.get(CONTENT_TYPE).is_some_and(|value| !is_multipart(value));
            if FILE_FIELDS.contains(name) && (!is_file || (*name == CONTENT_TYPE && !has_type_of_file)) {
                continue;
            }
            merge_field(headers, name, &values, owner);
        }
    }
}

impl FieldChange {
    fn field(&self) -> &HeaderName {
        match self {
            FieldChange::Set(name, _) | FieldChange::Remove(name) => name,
        }
    }

    /// Returns the value that is set; `None` if the field is removed.
    fn value(&self) -> Option<&str> {
        match self {
            FieldChange::Set(_, value) => Some(value.to_str().unwrap_or_default()),
            FieldChange::Remove(_) => None,
        }
    }
}

/// Returns the media type, if a rule sets it.
fn media_type(change: &FieldChange) -> Option<&str> {
    match change {
        FieldChange::Set(name, value) if *name == CONTENT_TYPE => value.to_str().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
