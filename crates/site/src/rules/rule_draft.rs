//! The rules of one or several files while they are read, with the faults that were found.

use std::fmt;

use super::header_fields::Fields;
use super::rule::RedirectRule;

/// The maximum number of rules about exactly one address in one source of rules.
const MAX_EXACT_RULES: usize = 10_000;
/// The maximum number of rules about more than one address in one source of rules.
const MAX_PATTERN_RULES: usize = 1_000;
/// The maximum number of faults that are kept, and the number of faults after which the rest of a file is not read.
const MAX_FAULTS: usize = 1_000;

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

#[cfg(test)]
mod tests {
    use super::super::netlify_files;
    use super::*;

    fn draft(text: &str) -> RuleDraft {
        let mut draft = RuleDraft::default();
        netlify_files::read_redirects(text, netlify_files::REDIRECTS_FILE, &mut draft);
        draft
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
}
