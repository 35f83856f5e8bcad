//! Reads the `redirects` of a `docs.json`, the vendor's configuration file of a site.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::pattern::PatternDialect;
use super::rule::{RedirectRule, RuleAction};
use super::rule_draft::RuleDraft;

/// The name of the file in a site.
pub const FILE_NAME: &str = "docs.json";

/// The part of the file that is read.
#[derive(Deserialize)]
struct DocsJson<'a> {
    #[serde(borrow)]
    redirects: Option<&'a RawValue>,
}

/// One redirect. It is permanent unless `permanent` is false, as on the vendor's hosting service.
#[derive(Deserialize)]
struct Redirect {
    source: String,
    destination: String,
    permanent: Option<bool>,
}

/// Reads the redirects of a file with this name. A file without `redirects` is accepted, because other programs also
/// have a `docs.json`; with `is_required` it is a fault.
pub fn read_redirects(text: &str, name: &str, is_required: bool, draft: &mut RuleDraft) {
    let text = text.trim_start_matches('\u{feff}').trim();
    let list = if text.starts_with('[') {
        if !is_required {
            return;
        }
        serde_json::from_str::<Vec<&RawValue>>(text)
    } else {
        match serde_json::from_str::<DocsJson<'_>>(text) {
            Ok(DocsJson { redirects: Some(list) }) => serde_json::from_str::<Vec<&RawValue>>(list.get()),
            Ok(DocsJson { redirects: None }) if is_required => {
                return draft.add_fault(name.to_owned(), "it has no redirects".to_owned());
            }
            Ok(DocsJson { redirects: None }) => return,
            Err(error) => Err(error),
        }
    };
    match list {
        Err(error) => draft.add_fault(name.to_owned(), format!("its redirects cannot be parsed: {error}")),
        Ok(list) => {
            let before = draft.fault_count;
            for (number, item) in list.iter().enumerate() {
                let place = format!("{name}: redirects[{number}]");
                if draft.has_too_many_faults(before, &place) {
                    break;
                }
                draft.add(place.clone(), parse_redirect(item, place));
            }
        }
    }
}

fn parse_redirect(item: &RawValue, place: String) -> Result<RedirectRule, String> {
    let redirect: Redirect = serde_json::from_str(item.get()).map_err(|error| error.to_string())?;
    let action = RuleAction::Redirect(if redirect.permanent.unwrap_or(true) { 308 } else { 307 });
    RedirectRule::new(place, &redirect.source, &redirect.destination, PatternDialect::DocsJson, action, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, is_required: bool) -> (Vec<(String, u16)>, Vec<String>) {
        let mut draft = RuleDraft::default();
        read_redirects(text, FILE_NAME, is_required, &mut draft);
        let rules = draft.rules.iter().map(|rule| (rule.source.to_string(), rule.action.status()));
        (rules.collect(), draft.faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn docs_json_redirects_are_permanent_by_default() {
        let text = r#"{"name": "x", "redirects": [
            {"source": "/a/:slug*", "destination": "/b/:slug*"},
            {"source": "/c", "destination": "/d", "permanent": false, "more": 1},
            {"source": "/e-*", "destination": "/f-*", "permanent": true}
        ]}"#;
        let (rules, faults) = read(text, false);
        assert_eq!(rules, [("/a/:slug*".to_owned(), 308), ("/c".to_owned(), 307), ("/e-*".to_owned(), 308)]);
        assert_eq!(faults, [""; 0]);
    }

    #[test]
    fn invalid_docs_json_redirect_is_skipped_and_the_others_apply() {
        let text = r#"{"redirects": [{"source": "/a"}, 7, {"source": "/b", "destination": "/c"}, {"source": "b", "destination": "/c"}]}"#;
        let (rules, faults) = read(text, false);
        assert_eq!(rules, [("/b".to_owned(), 308)]);
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert!(faults[0].starts_with("docs.json: redirects[0]: missing field `destination`"), "{faults:?}");
    }

    // Regression: millions of invalid entries of a `docs.json` were read one by one.
    #[test]
    fn reading_docs_json_stops_after_a_thousand_invalid_redirects() {
        let wrong = "7,".repeat(3_000);
        let text = format!("{{\"redirects\": [{wrong} {{\"source\": \"/a\", \"destination\": \"/b\"}}]}}");
        let (rules, faults) = read(&text, false);
        assert_eq!((rules.len(), faults.len()), (0, 1_001));
        assert!(faults[1_000].starts_with("docs.json: redirects[1000]: there are more than 1000"), "{}", faults[1_000]);
    }

    #[test]
    fn docs_json_without_redirects_is_ignored_unless_redirects_are_required() {
        assert_eq!(read("{\"redirects\": null}", false), (vec![], vec![]));
        assert_eq!(read("[1, 2]", false), (vec![], vec![]));
        assert_eq!(read("{\"pages\": []}", false), (vec![], vec![]));
        assert_eq!(read("{\"redirects\": 7}", false).1.len(), 1);
        assert_eq!(read("{\"pages\": []}", true).1.len(), 1);
        assert_eq!(read("[{\"source\": \"/a\", \"destination\": \"/b\"}]", true).0.len(), 1);
    }

    #[test]
    fn missing_required_redirects_and_malformed_json_are_reported() {
        for (text, is_required, rules, faults) in [
            ("\u{feff} {\"redirects\": [{\"source\": \"/a\", \"destination\": \"/b\"}]}", false, 1, 0),
            ("\u{feff}\n[{\"source\": \"/a\", \"destination\": \"/b\"}]", true, 1, 0),
            ("[{\"source\": \"/a\", \"destination\": \"/b\"}]", false, 0, 0),
            ("{\"redirects\": null}", true, 0, 1),
            ("{\"redirects\": []}", true, 0, 0),
            ("{\"redirects\": [", false, 0, 1),
            ("[{]", true, 0, 1),
            ("", false, 0, 1),
            ("7", true, 0, 1),
        ] {
            let (read, wrong) = read(text, is_required);
            assert_eq!((read.len(), wrong.len()), (rules, faults), "{text}");
        }
    }
}
