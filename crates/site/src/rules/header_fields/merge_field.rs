//! Merges the values that rules set for a field into a response.

use http::header::{
    CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY_REPORT_ONLY, LINK, SET_COOKIE, VARY, X_DNS_PREFETCH_CONTROL,
    X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::field_names::RuleOwner;

/// Merges `values`, which rules of one owner set for the field `name`, into the fields of a response.
pub(super) fn merge_field(headers: &mut HeaderMap, name: &HeaderName, values: &[&HeaderValue], owner: RuleOwner) {
    // A bundle must not loosen a restriction of the operator.
    let is_restriction = [X_FRAME_OPTIONS, X_DNS_PREFETCH_CONTROL].contains(name);
    let is_restricted = headers.get(name).is_some_and(|value| value == "DENY" || value == "off");
    if owner == RuleOwner::Bundle && is_restriction && is_restricted {
        return;
    }
    let is_policy = [CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY_REPORT_ONLY].contains(name);
    if *name == SET_COOKIE || is_policy {
        // Cookies cannot be joined. A browser enforces every policy (CSP3), so a bundle can only add restrictions.
        if owner == RuleOwner::Operator {
            headers.remove(name);
        }
        for &value in values {
            headers.append(name, value.clone());
        }
    } else if *name == VARY {
        // The response always depends on the fields that docwharf lists, so values are only added.
        let mut names: Vec<&str> = Vec::new();
        let existing: Vec<HeaderValue> = headers.get_all(VARY).iter().cloned().collect();
        let items = existing.iter().chain(values.iter().copied()).filter_map(|value| value.to_str().ok());
        for item in items.flat_map(|text| text.split(',')).map(str::trim).filter(|item| !item.is_empty()) {
            if !names.iter().any(|name| name.eq_ignore_ascii_case(item)) {
                names.push(item);
            }
        }
        insert_joined(headers, name, &names.join(", "));
    } else if *name == LINK {
        // docwharf's link to the Markdown of a page is sent in addition to the links of a rule.
        let existing: Vec<HeaderValue> = headers.get_all(LINK).iter().cloned().collect();
        let texts: Vec<&str> =
            existing.iter().chain(values.iter().copied()).filter_map(|value| value.to_str().ok()).collect();
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
