//! The rules of one or several files while they are read, with the faults that were found.

use std::fmt;

use super::header_fields::HeaderFieldRules;
use super::rule::RedirectRule;

/// The maximum number of rules about exactly one address in one source of rules.
const MAX_EXACT_RULES: usize = 10_000;
/// The maximum number of rules about more than one address in one source of rules.
const MAX_PATTERN_RULES: usize = 1_000;
/// The maximum number of faults that are stored, and the number of faults after which the rest of a file is not read.
const MAX_FAULTS: usize = 1_000;

/// A fault in a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleFault {
    /// The file and line of the rule.
    pub place: String,
    /// The description of the fault.
    pub message: String,
}

impl fmt::Display for RuleFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// Collects rules and their faults while they are read.
#[derive(Debug, Default)]
pub struct RuleDraft {
    /// The redirects and rewrites, in order of precedence.
    pub rules: Vec<RedirectRule>,
    /// The header fields.
    pub fields: HeaderFieldRules,
    /// The faults of the rules that were left out.
    pub faults: Vec<RuleFault>,
    pattern_count: usize,
    exact_count: usize,
    /// The number of faults that were found, including those that are not stored.
    pub(super) fault_count: usize,
}

impl RuleDraft {
    /// Adds a rule or its fault. A rule above the limit is ignored; the first such rule is reported as a fault.
    pub fn add(&mut self, place: String, rule: Result<RedirectRule, String>) {
        let rule = match rule {
            Ok(rule) => rule,
            Err(message) => return self.add_fault(place, message),
        };
        let is_pattern = rule.pattern.exact().is_none();
        let (count, max_count, kind) = if is_pattern {
            (&mut self.pattern_count, MAX_PATTERN_RULES, "rules with * or :name")
        } else {
            (&mut self.exact_count, MAX_EXACT_RULES, "rules about one address")
        };
        *count += 1;
        if *count <= max_count {
            self.rules.push(rule);
        } else if *count == max_count + 1 {
            self.add_fault(
                place,
                format!("there are more than {max_count} {kind}: this rule and those after it are ignored"),
            );
        }
    }

    /// Adds a fault.
    pub fn add_fault(&mut self, place: String, message: String) {
        self.fault_count += 1;
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(RuleFault { place, message });
        }
    }

    /// Whether the rest of a file is not read, because it has too many faults. `before` is the number of faults found
    /// before the file. This decision is added to the faults even if their list is full.
    pub(super) fn has_too_many_faults(&mut self, before: usize, place: &str) -> bool {
        let has_too_many = self.fault_count - before >= MAX_FAULTS;
        if has_too_many {
            let message = format!("there are more than {MAX_FAULTS} mistakes before this line: the rest is ignored");
            self.faults.push(RuleFault { place: place.to_owned(), message });
        }
        has_too_many
    }
}

#[cfg(test)]
mod tests {
    use super::super::netlify_files;
    use super::*;

    fn read_draft(text: &str) -> RuleDraft {
        let mut draft = RuleDraft::default();
        netlify_files::read_redirects(text, netlify_files::REDIRECTS_FILE, &mut draft);
        draft
    }

    #[test]
    fn rules_beyond_the_limit_are_ignored_and_reported_once() {
        for (line, max_count, expected) in
            [("/a{} /b\n", MAX_EXACT_RULES, "one address"), ("/a{}/* /b\n", MAX_PATTERN_RULES, "* or :name")]
        {
            let text =
                |number: usize| (0..number).map(|n| line.replace("{}", &n.to_string())).collect::<Vec<_>>().concat();
            let filled = read_draft(&text(max_count));
            assert_eq!((filled.rules.len(), filled.faults.len()), (max_count, 0));
            let over = read_draft(&(text(max_count + 3) + "/one/more/:x /b\n/one /b\n"));
            assert_eq!(
                (over.rules.len(), over.faults.len()),
                (max_count + 1, 1),
                "rules of the other kind still count"
            );
            assert_eq!(over.faults[0].place, format!("_redirects:{}", max_count + 1));
            assert!(over.faults[0].message.contains(expected), "{}", over.faults[0]);
        }
    }

    #[test]
    fn a_file_is_read_up_to_its_thousandth_mistake() {
        let wrong = |number: usize| "/a\n".repeat(number) + "/a /b\n";
        let nearly = read_draft(&wrong(MAX_FAULTS - 1));
        assert_eq!((nearly.rules.len(), nearly.faults.len()), (1, MAX_FAULTS - 1));
        let filled = read_draft(&wrong(MAX_FAULTS));
        assert_eq!((filled.rules.len(), filled.faults.len()), (0, MAX_FAULTS + 1));
        assert_eq!(filled.faults[MAX_FAULTS].place, format!("_redirects:{}", MAX_FAULTS + 1));
        // Each file has its own limit.
        let mut draft = filled;
        netlify_files::read_headers("/a\n X-A: 1\n x\n", netlify_files::HEADERS_FILE, &mut draft);
        assert!(!draft.fields.is_empty() && draft.faults.len() == MAX_FAULTS + 1);
    }
}
