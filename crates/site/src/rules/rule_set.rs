//! The rules of a site or of its operator, with tables for matching.

use std::collections::HashMap;
use std::fmt::{self, Write};

use docwharf_base::model::digest::Digest;

use super::header_fields::HeaderFieldRules;
use super::pattern::{Captures, Pattern, without_trailing_slash};
use super::rule::RedirectRule;
use super::rule_draft::{RuleDraft, RuleFault};

/// Rules, with tables for matching.
#[derive(Default, Clone)]
pub struct RuleSet {
    list: Vec<RedirectRule>,
    forced: RuleTable,
    all: RuleTable,
    /// The header fields.
    pub fields: HeaderFieldRules,
    /// The faults of the rules that were left out.
    pub faults: Vec<RuleFault>,
    /// A digest of all valid rules; `None` without rules.
    digest: Option<Digest>,
}

/// The rules by address, as numbers in the list. The first rule about an address counts.
#[derive(Debug, Default, Clone)]
struct RuleTable {
    exact: HashMap<Box<[u8]>, u32>,
    patterns: Vec<u32>,
}

impl RuleTable {
    fn add(&mut self, number: u32, pattern: &Pattern) {
        match pattern.exact() {
            Some(address) => {
                self.exact.entry(address.into()).or_insert(number);
            }
            None => self.patterns.push(number),
        }
    }
}

impl RuleSet {
    /// Builds the tables.
    pub fn new(draft: RuleDraft) -> RuleSet {
        let RuleDraft { rules, fields, faults, .. } = draft;
        let (mut forced, mut all) = (RuleTable::default(), RuleTable::default());
        for (number, rule) in (0u32..).zip(&rules) {
            all.add(number, &rule.pattern);
            if rule.force {
                forced.add(number, &rule.pattern);
            }
        }
        let is_empty = rules.is_empty() && fields.is_empty();
        let digest = (!is_empty).then(|| digest_rules(&rules, &fields));
        RuleSet { list: rules, forced, all, fields, faults, digest }
    }

    /// Returns the redirects and rewrites, in order of precedence.
    pub fn list(&self) -> &[RedirectRule] {
        &self.list
    }

    /// Returns how many of the rules that apply are about more than one address; `has_file` as in
    /// [`RuleSet::find_first`].
    pub fn pattern_count(&self, has_file: bool) -> usize {
        if has_file { self.forced.patterns.len() } else { self.all.patterns.len() }
    }

    /// Whether no rule can apply; `has_file` as in [`RuleSet::find_first`].
    pub fn is_empty_for(&self, has_file: bool) -> bool {
        let table = if has_file { &self.forced } else { &self.all };
        table.exact.is_empty() && table.patterns.is_empty()
    }

    /// Returns the first result of `try_rule` among the rules that match a decoded address with its leading slash. If
    /// `has_file` is set, the site has a file or page at the address, and only forced rules are tried.
    pub fn find_first<'a, T>(
        &self,
        address: &'a [u8],
        has_file: bool,
        mut try_rule: impl FnMut(&RedirectRule, Captures<'a>) -> Option<T>,
    ) -> Option<T> {
        if self.is_empty_for(has_file) {
            return None;
        }
        let table = if has_file { &self.forced } else { &self.all };
        let exact = table.exact.get(without_trailing_slash(address)).copied();
        let mut patterns = table.patterns.iter().copied().peekable();
        let mut try_number = |number: u32| {
            let rule = &self.list[number as usize];
            rule.pattern.matches(address).and_then(|captures| try_rule(rule, captures))
        };
        if let Some(exact) = exact {
            while let Some(number) = patterns.next_if(|&number| number < exact) {
                if let Some(result) = try_number(number) {
                    return Some(result);
                }
            }
            if let Some(result) = try_number(exact) {
                return Some(result);
            }
        }
        patterns.find_map(try_number)
    }
}

/// Returns a digest of the meaning of the rules, independent of the file that they are from.
fn digest_rules(rules: &[RedirectRule], fields: &HeaderFieldRules) -> Digest {
    let mut text = format!("{fields:?}");
    for rule in rules {
        // The same source may be a different pattern in another dialect, so the pattern is included. A source that is
        // one address means the same in every dialect.
        let _ = write!(text, "\n{:?} {:?} {:?} {}", rule.source, rule.destination, rule.action, rule.force);
        if rule.pattern.exact().is_none() {
            let _ = write!(text, " {:?}", rule.pattern);
        }
    }
    Digest::compute(text.as_bytes())
}

/// Rules are equal if they have the same meaning.
impl PartialEq for RuleSet {
    fn eq(&self, other: &RuleSet) -> bool {
        self.digest == other.digest
    }
}

impl Eq for RuleSet {}

/// Shows the digest only: the order of the tables is not deterministic, and the results of checks are stored under this
/// text.
impl fmt::Debug for RuleSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = self.digest.as_ref().map(Digest::to_hex);
        f.debug_struct("RuleSet").field("digest", &digest).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{docs_json, netlify_files};
    use super::*;

    fn draft(text: &str) -> RuleDraft {
        let mut draft = RuleDraft::default();
        netlify_files::read_redirects(text, netlify_files::REDIRECTS_FILE, &mut draft);
        draft
    }

    fn rules(text: &str) -> RuleSet {
        RuleSet::new(draft(text))
    }

    #[test]
    fn rules_are_tried_in_order_until_one_has_a_target() {
        let rule_set = rules("/x/* /1\n/x/a /2\n/x/a /3\n/x/:y /4!\n/y /5 301!\n/:z /6\n/x/* /7 301!\n");
        let tried_rules = |address: &str, has_file: bool, accepted: &str| {
            let mut tried = Vec::new();
            let result = rule_set.find_first(address.as_bytes(), has_file, |rule, _| {
                tried.push(rule.destination.to_string());
                (*rule.destination == *accepted).then(|| rule.destination.to_string())
            });
            assert_eq!(result.as_deref(), tried.last().map(String::as_str).filter(|last| *last == accepted));
            tried.concat()
        };
        for (address, has_file, accepted, expected) in [
            ("/x/a", false, "", "/1/2/4!/7"),
            ("/x/a/", false, "", "/1/2/4!/7"),
            ("/x/a", false, "/1", "/1"),
            ("/x/a", false, "/2", "/1/2"),
            ("/x/a", false, "/4!", "/1/2/4!"),
            ("/x/b/c", false, "", "/1/7"),
            ("/y", false, "", "/5/6"),
            ("/y/", true, "", "/5"),
            ("/x/a", true, "", "/7"),
            ("/z", true, "", ""),
            ("/a/b", false, "", ""),
        ] {
            assert_eq!(tried_rules(address, has_file, accepted), expected, "{address} {has_file} {accepted}");
        }
        assert_eq!((rule_set.list().len(), rule_set.pattern_count(false), rule_set.pattern_count(true)), (7, 4, 1));
        assert!(!rule_set.is_empty_for(false) && !rule_set.is_empty_for(true));
        for (text, expected) in [
            ("", (true, true)),
            ("/a /b\n", (false, true)),
            ("/a/* /b\n", (false, true)),
            ("/a /b 301!\n", (false, false)),
            ("/a/* /b 301!\n", (false, false)),
        ] {
            assert_eq!((rules(text).is_empty_for(false), rules(text).is_empty_for(true)), expected, "{text}");
        }
    }

    #[test]
    fn rules_are_the_same_if_they_mean_the_same() {
        let rule_set = rules("/a /b\n/c/* /d/:splat 302\n");
        assert!(rule_set == rules("# moved\n\n/a   /b 301\n/c/* /d/:splat 302\n/wrong\n"));
        assert_eq!(RuleSet::default(), rules("/wrong\n"));
        let docs = |text: &str| {
            let mut draft = RuleDraft::default();
            docs_json::read_redirects(text, docs_json::FILE_NAME, true, &mut draft);
            RuleSet::new(draft)
        };
        // The same source has another meaning in another dialect.
        assert!(docs(r#"[{"source": "/c-*", "destination": "/d"}]"#) != rules("/c-* /d 308\n"));
        assert!(docs(r#"[{"source": "/c", "destination": "/d"}]"#) == rules("/c /d 308\n"));
        let mut with_fields = draft("/a /b\n/c/* /d/:splat 302\n");
        netlify_files::read_headers("/a\n X-A: 1\n", netlify_files::HEADERS_FILE, &mut with_fields);
        let mut fields = RuleDraft::default();
        netlify_files::read_headers("/a\n X-A: 1\n", netlify_files::HEADERS_FILE, &mut fields);
        let others = [
            RuleSet::default(),
            RuleSet::new(with_fields),
            RuleSet::new(fields),
            rules("/c/* /d/:splat 302\n/a /b\n"),
            rules("/a /b\n"),
            rules("/a /b 302\n/c/* /d/:splat 302\n"),
            rules("/a /b 301!\n/c/* /d/:splat 302\n"),
            rules("/a /e\n/c/* /d/:splat 302\n"),
            rules("/e /b\n/c/* /d/:splat 302\n"),
        ];
        for (number, other) in others.iter().enumerate() {
            assert!(rule_set != *other && format!("{rule_set:?}") != format!("{other:?}"), "{number}");
        }
    }
}
