//! The rules of a site or of its operator, with tables for matching.

use std::collections::HashMap;
use std::fmt::{self, Write};

use docwharf_base::model::digest::Digest;

use super::destination::RuleDestination;
use super::header_fields::Fields;
use super::pattern::{Captures, Pattern, PatternDialect, without_trailing_slash};

/// The maximum number of rules about exactly one address in one source of rules.
pub const MAX_EXACT_RULES: usize = 10_000;
/// The maximum number of rules about more than one address in one source of rules.
pub const MAX_PATTERN_RULES: usize = 1_000;
/// The maximum number of faults that are kept, and the number of faults after which the rest of a file is not read.
const MAX_FAULTS: usize = 1_000;

/// The action of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleAction {
    /// Redirects the client, with this status: 301, 302, 303, 307 or 308.
    Redirect(u16),
    /// Serves another file of the site, with this status: 200 or 404.
    Rewrite(u16),
}

impl RuleAction {
    /// Returns the action for a status.
    pub fn from_status(status: u16) -> Result<RuleAction, String> {
        match status {
            301 | 302 | 303 | 307 | 308 => Ok(RuleAction::Redirect(status)),
            200 | 404 => Ok(RuleAction::Rewrite(status)),
            _ => Err(format!("the status {status} is none of 301, 302, 303, 307, 308, 200 and 404")),
        }
    }

    /// Returns the status of the response.
    pub fn status(self) -> u16 {
        match self {
            RuleAction::Redirect(status) | RuleAction::Rewrite(status) => status,
        }
    }
}

/// A redirect or rewrite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedirectRule {
    /// The place where the rule is written, for messages.
    pub place: Box<str>,
    /// The source, as written.
    pub source: Box<str>,
    /// The destination, as written.
    pub destination: Box<str>,
    /// The pattern that the address must match.
    pub pattern: Pattern,
    /// The parsed destination.
    pub target: RuleDestination,
    /// The action.
    pub action: RuleAction,
    /// Whether the rule also applies where the site has a file.
    pub force: bool,
}

impl RedirectRule {
    /// Parses and checks a rule.
    pub fn new(
        place: String,
        source: &str,
        destination: &str,
        dialect: PatternDialect,
        action: RuleAction,
        force: bool,
    ) -> Result<RedirectRule, String> {
        let pattern = Pattern::parse(source, dialect)?;
        let target = RuleDestination::parse(destination, pattern.names())?;
        if matches!(action, RuleAction::Rewrite(_)) && target.is_elsewhere() {
            return Err(
                "another host's answers are not passed on: redirect to it instead (301, 302, 307, 308)".to_owned()
            );
        }
        let (source, destination) = (source.into(), destination.into());
        Ok(RedirectRule { place: place.into(), source, destination, pattern, target, action, force })
    }
}

/// A fault in a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleFault {
    /// The place of the rule, for messages.
    pub place: String,
    /// The fault.
    pub what: String,
}

impl fmt::Display for RuleFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// Collects rules while they are read; faults are collected beside them.
#[derive(Debug, Default)]
pub struct RuleDraft {
    /// The redirects and rewrites, in order of precedence.
    pub rules: Vec<RedirectRule>,
    /// The header fields.
    pub fields: Fields,
    /// The faults of the rules that were left out.
    pub faults: Vec<RuleFault>,
    patterns: usize,
    exact: usize,
    /// The number of faults that were found, including those that are not kept.
    pub(super) fault_count: usize,
}

impl RuleDraft {
    /// Adds a rule or its fault. A rule above the limit is left out; the first of them is reported.
    pub fn add(&mut self, place: String, rule: Result<RedirectRule, String>) {
        let rule = match rule {
            Ok(rule) => rule,
            Err(what) => return self.add_fault(place, what),
        };
        let is_pattern = rule.pattern.exact().is_none();
        let (count, most, of) = if is_pattern {
            (&mut self.patterns, MAX_PATTERN_RULES, "rules with * or :name")
        } else {
            (&mut self.exact, MAX_EXACT_RULES, "rules about one address")
        };
        *count += 1;
        if *count <= most {
            self.rules.push(rule);
        } else if *count == most + 1 {
            self.add_fault(
                place,
                format!("there are more than {most} {of}: this one and those behind it do not count"),
            );
        }
    }

    /// Adds a fault.
    pub fn add_fault(&mut self, place: String, what: String) {
        self.fault_count += 1;
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(RuleFault { place, what });
        }
    }

    /// Whether the rest of a file is not read, because it has too many faults to be a file of rules. `before` is the
    /// number of faults found before the file. This decision is added to the faults even if their list is full.
    pub(super) fn has_too_many_faults(&mut self, before: usize, place: &str) -> bool {
        let is_over = self.fault_count - before >= MAX_FAULTS;
        if is_over {
            let what =
                format!("there are more than {MAX_FAULTS} mistakes before this: it and what follows do not count");
            self.faults.push(RuleFault { place: place.to_owned(), what });
        }
        is_over
    }
}

/// Rules, with tables for matching.
#[derive(Default, Clone)]
pub struct RuleSet {
    list: Vec<RedirectRule>,
    forced: RuleTable,
    all: RuleTable,
    /// The header fields.
    pub fields: Fields,
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

    /// Returns how many of the rules that apply are about more than one address; `has` as in [`RuleSet::find_first`].
    pub fn pattern_count(&self, has: bool) -> usize {
        if has { self.forced.patterns.len() } else { self.all.patterns.len() }
    }

    /// Whether no rule can apply; `has` as in [`RuleSet::find_first`].
    pub fn is_empty_where(&self, has: bool) -> bool {
        let table = if has { &self.forced } else { &self.all };
        table.exact.is_empty() && table.patterns.is_empty()
    }

    /// Returns the first result of `take` among the rules that match a decoded address with its leading slash. If `has`
    /// is set, the site has something at the address, and only forced rules are tried.
    pub fn find_first<'a, T>(
        &self,
        address: &'a [u8],
        has: bool,
        mut take: impl FnMut(&RedirectRule, Captures<'a>) -> Option<T>,
    ) -> Option<T> {
        if self.is_empty_where(has) {
            return None;
        }
        let table = if has { &self.forced } else { &self.all };
        let exact = table.exact.get(without_trailing_slash(address)).copied();
        let mut patterns = table.patterns.iter().copied().peekable();
        let mut ask = |number: u32| {
            let rule = &self.list[number as usize];
            rule.pattern.matches(address).and_then(|captures| take(rule, captures))
        };
        if let Some(exact) = exact {
            while let Some(number) = patterns.next_if(|&number| number < exact) {
                if let Some(taken) = ask(number) {
                    return Some(taken);
                }
            }
            if let Some(taken) = ask(exact) {
                return Some(taken);
            }
        }
        patterns.find_map(ask)
    }
}

/// Returns a digest of the meaning of the rules, independent of their place.
fn digest_rules(rules: &[RedirectRule], fields: &Fields) -> Digest {
    let mut text = format!("{fields:?}");
    for rule in rules {
        // The same source may be a different pattern in another dialect, so the pattern is included. A source that is
        // one address means the same in every dialect.
        let _ = write!(text, "\n{:?} {:?} {:?} {}", rule.source, rule.destination, rule.action, rule.force);
        if rule.pattern.exact().is_none() {
            let _ = write!(text, " {:?}", rule.pattern);
        }
    }
    Digest::of(text.as_bytes())
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
        let digest = self.digest.as_ref().map(Digest::hex);
        f.debug_struct("Rules").field("digest", &digest).finish_non_exhaustive()
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
    fn these_statuses_ask_for_something_and_no_other() {
        for status in 0..1000 {
            let action = RuleAction::from_status(status);
            let expected = match status {
                301 | 302 | 303 | 307 | 308 => Some(RuleAction::Redirect(status)),
                200 | 404 => Some(RuleAction::Rewrite(status)),
                _ => None,
            };
            assert_eq!(action.as_ref().ok(), expected.as_ref(), "{status}");
            assert_eq!(action.map_or(status, RuleAction::status), status);
        }
    }

    #[test]
    fn as_many_rules_count_as_may_and_what_is_beyond_is_told_once() {
        for (line, most, word) in
            [("/a{} /b\n", MAX_EXACT_RULES, "one address"), ("/a{}/* /b\n", MAX_PATTERN_RULES, "* or :name")]
        {
            let text =
                |number: usize| (0..number).map(|n| line.replace("{}", &n.to_string())).collect::<Vec<_>>().concat();
            let full = draft(&text(most));
            assert_eq!((full.rules.len(), full.faults.len()), (most, 0));
            let over = draft(&(text(most + 3) + "/one/more/:x /b\n/one /b\n"));
            assert_eq!((over.rules.len(), over.faults.len()), (most + 1, 1), "rules of the other kind still count");
            assert_eq!(over.faults[0].place, format!("_redirects:{}", most + 1));
            assert!(over.faults[0].what.contains(word), "{}", over.faults[0]);
        }
    }

    #[test]
    fn a_file_is_read_up_to_its_thousandth_mistake() {
        let wrong = |number: usize| "/a\n".repeat(number) + "/a /b\n";
        let nearly = draft(&wrong(MAX_FAULTS - 1));
        assert_eq!((nearly.rules.len(), nearly.faults.len()), (1, MAX_FAULTS - 1));
        let full = draft(&wrong(MAX_FAULTS));
        assert_eq!((full.rules.len(), full.faults.len()), (0, MAX_FAULTS + 1));
        assert_eq!(full.faults[MAX_FAULTS].place, format!("_redirects:{}", MAX_FAULTS + 1));
        // Each file has its own limit.
        let mut draft = full;
        netlify_files::read_headers("/a\n X-A: 1\n x\n", netlify_files::HEADERS_FILE, &mut draft);
        assert!(!draft.fields.is_empty() && draft.faults.len() == MAX_FAULTS + 1);
    }

    #[test]
    fn rules_are_asked_in_their_order_until_one_leads_somewhere() {
        let some = rules("/x/* /1\n/x/a /2\n/x/a /3\n/x/:y /4!\n/y /5 301!\n/:z /6\n/x/* /7 301!\n");
        let asked = |address: &str, has: bool, wanted: &str| {
            let mut all = Vec::new();
            let taken = some.find_first(address.as_bytes(), has, |rule, _| {
                all.push(rule.destination.to_string());
                (*rule.destination == *wanted).then(|| rule.destination.to_string())
            });
            assert_eq!(taken.as_deref(), all.last().map(String::as_str).filter(|last| *last == wanted));
            all.concat()
        };
        for (address, has, wanted, expected) in [
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
            assert_eq!(asked(address, has, wanted), expected, "{address} {has} {wanted}");
        }
        assert_eq!((some.list().len(), some.pattern_count(false), some.pattern_count(true)), (7, 4, 1));
        assert!(!some.is_empty_where(false) && !some.is_empty_where(true));
        for (text, expected) in [
            ("", (true, true)),
            ("/a /b\n", (false, true)),
            ("/a/* /b\n", (false, true)),
            ("/a /b 301!\n", (false, false)),
            ("/a/* /b 301!\n", (false, false)),
        ] {
            assert_eq!((rules(text).is_empty_where(false), rules(text).is_empty_where(true)), expected, "{text}");
        }
    }

    #[test]
    fn rules_are_the_same_if_they_mean_the_same() {
        let one = rules("/a /b\n/c/* /d/:splat 302\n");
        assert!(one == rules("# moved\n\n/a   /b 301\n/c/* /d/:splat 302\n/wrong\n"));
        assert_eq!(RuleSet::default(), rules("/wrong\n"));
        let docs = |text: &str| {
            let mut draft = RuleDraft::default();
            docs_json::read_redirects(text, docs_json::FILE_NAME, true, &mut draft);
            RuleSet::new(draft)
        };
        // The same source has another meaning in another dialect.
        assert!(docs(r#"[{"source": "/c-*", "destination": "/d"}]"#) != rules("/c-* /d 308\n"));
        assert!(docs(r#"[{"source": "/c", "destination": "/d"}]"#) == rules("/c /d 308\n"));
        let mut ruled = draft("/a /b\n/c/* /d/:splat 302\n");
        netlify_files::read_headers("/a\n X-A: 1\n", netlify_files::HEADERS_FILE, &mut ruled);
        let mut fields = RuleDraft::default();
        netlify_files::read_headers("/a\n X-A: 1\n", netlify_files::HEADERS_FILE, &mut fields);
        let others = [
            RuleSet::default(),
            RuleSet::new(ruled),
            RuleSet::new(fields),
            rules("/c/* /d/:splat 302\n/a /b\n"),
            rules("/a /b\n"),
            rules("/a /b 302\n/c/* /d/:splat 302\n"),
            rules("/a /b 301!\n/c/* /d/:splat 302\n"),
            rules("/a /e\n/c/* /d/:splat 302\n"),
            rules("/e /b\n/c/* /d/:splat 302\n"),
        ];
        for (number, other) in others.iter().enumerate() {
            assert!(one != *other && format!("{one:?}") != format!("{other:?}"), "{number}");
        }
    }

    #[test]
    fn answers_of_other_hosts_are_not_passed_on_and_redirects_to_them_are_made() {
        for (line, is_rule) in [
            ("/a https://x.example/ 200", false),
            ("/a https://x.example/ 404", false),
            ("/a https://x.example/ 301", true),
            ("/a https://x.example/ 308!", true),
            ("/a /b 200", true),
        ] {
            assert_eq!(draft(line).rules.len() == 1, is_rule, "{line}");
        }
    }
}
