//! The header field `X-Robots-Tag`, by which rules say that a page must not be indexed. It counts like a `meta` element
//! for robots in the page itself.

use http::HeaderName;

use super::header_fields::HeaderFieldRules;
use super::pattern::Pattern;

/// The name of the field.
pub const X_ROBOTS_TAG: HeaderName = HeaderName::from_static("x-robots-tag");
/// The rules for robots that have a value after a colon. Any other name before a colon is that of a robot.
const RULES_WITH_VALUE: [&str; 4] = ["max-image-preview", "max-snippet", "max-video-preview", "unavailable_after"];

/// The names of robots whose rules count, as in a `meta` element.
const COUNTED_ROBOTS: [&str; 3] = ["*", "robots", "googlebot"];

/// Returns whether the rules of a bundle and of its operator ask all robots not to index a decoded address with its
/// leading slash. The operator's rules replace those of the bundle, as in a response. A `noindex` for every address
/// does not count: it keeps the site out of public search engines, and says nothing about a page.
pub fn forbids_indexing(bundle: &HeaderFieldRules, operator: &HeaderFieldRules, address: &[u8]) -> bool {
    let counts =
        |pattern: &Pattern, value: Option<&str>| !(pattern.matches_every_address() && value.is_some_and(has_noindex));
    let values = operator.values_at(address, &X_ROBOTS_TAG, counts);
    let values = values.or_else(|| bundle.values_at(address, &X_ROBOTS_TAG, counts));
    values.is_some_and(|values| values.into_iter().any(has_noindex))
}

/// Returns whether a value has the rule `noindex`, or `none`, for all robots or for one that counts in a `meta`
/// element, too. What follows the name of a robot and a colon is for that robot only.
fn has_noindex(value: &str) -> bool {
    let is_one_of = |text: &str, names: &[&str]| names.iter().any(|name| text.trim().eq_ignore_ascii_case(name));
    let mut counts = true;
    value.split(',').any(|rule| {
        let rule = match rule.split_once(':') {
            // The part of a date behind its weekday has colons, too.
            Some((name, rest)) if !is_one_of(name, &RULES_WITH_VALUE) && !name.trim().contains(' ') => {
                counts = is_one_of(name, &COUNTED_ROBOTS);
                rest
            }
            _ => rule,
        };
        counts && is_one_of(rule, &["noindex", "none"])
    })
}

#[cfg(test)]
mod tests {
    use super::super::header_fields::RuleOwner;
    use super::super::pattern::PatternDialect;
    use super::*;

    #[test]
    fn noindex_and_none_for_all_robots_forbid_indexing() {
        for (value, expected) in [
            ("noindex", true),
            ("nofollow, NoIndex", true),
            ("none", true),
            ("*: noindex", true),
            ("max-snippet: 5, noindex", true),
            ("unavailable_after: 25 Jun 2030 15:00:00 PST, noindex", true),
            ("unavailable_after: Wed, 03 Dec 2025 15:00:00 GMT, noindex", true),
            ("otherbot: unavailable_after: Wed, 03 Dec 2025 15:00:00 GMT, noindex", false),
            ("googlebot: noindex", true),
            ("otherbot: noindex", false),
            ("otherbot: noindex, GoogleBot: nofollow, noindex", true),
            ("otherbot: nofollow, noindex", false),
            ("nofollow, otherbot: noindex", false),
            ("noindexing", false),
            ("all", false),
            ("", false),
        ] {
            assert_eq!(has_noindex(value), expected, "{value}");
        }
    }

    fn rules(list: &[(&str, Option<&str>)], owner: RuleOwner) -> HeaderFieldRules {
        let mut rules = HeaderFieldRules::default();
        for (source, value) in list {
            let rule = rules.add_rule(Pattern::parse(source, PatternDialect::Netlify).unwrap()).unwrap();
            match value {
                Some(value) => rules.add_field(rule, "X-Robots-Tag", value, owner).unwrap(),
                None => rules.add_removal(rule, "x-robots-tag").unwrap(),
            }
            rules.add_field(rule, "X-Other", "noindex", owner).unwrap();
        }
        rules
    }

    #[test]
    fn the_rules_of_the_operator_replace_those_of_the_bundle() {
        let bundle = |list| rules(list, RuleOwner::Bundle);
        let operator = |list| rules(list, RuleOwner::Operator);
        for (site, own, expected) in [
            (&[][..], &[][..], false),
            (&[("/a/*", Some("noindex"))], &[], true),
            (&[("/b/*", Some("noindex"))], &[], false),
            (&[("/a/*", Some("noindex")), ("/a/x", None)], &[], false),
            (&[("/a/*", Some("noindex")), ("/a/x", Some("nofollow"))], &[], true),
            (&[], &[("/a/*", Some("none"))], true),
            (&[("/a/*", Some("noindex"))], &[("/a/x", Some("all"))], false),
            (&[("/a/*", Some("noindex"))], &[("/a/x", None)], false),
            (&[("/a/*", Some("noindex"))], &[("/b/x", None)], true),
            (&[("/*", Some("noindex"))], &[], false),
            (&[], &[("/*", Some("noindex"))], false),
            (&[("/a/*", Some("noindex"))], &[("/*", Some("noindex"))], true),
            (&[("/a/*", Some("noindex"))], &[("/*", Some("all"))], false),
            (&[("/a/*", Some("noindex"))], &[("/*", None)], false),
        ] {
            assert_eq!(forbids_indexing(&bundle(site), &operator(own), b"/a/x"), expected, "{site:?} {own:?}");
        }
        let copied: Vec<_> = operator(&[("/a/*", Some("none")), ("/a/x", None)]).rules_about(&X_ROBOTS_TAG).collect();
        let values: Vec<Option<&str>> = copied.iter().flat_map(|rule| &rule.values).map(Option::as_deref).collect();
        assert_eq!(values, [Some("none"), None]);
    }
}
