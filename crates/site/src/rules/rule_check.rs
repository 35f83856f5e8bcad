//! Checks rules against a site: finds loops, missing targets and rules that never apply.
//!
//! A rule about one address is followed to its end. A rule about many addresses is followed for an example in which the
//! variable parts are a text that no site contains; its target counts as missing if the site has nothing below the
//! fixed part of the destination. Doubtful cases are not reported.
//!
//! Each rule is compared with those before it, which a bundle can make arbitrarily slow. The number of comparisons is
//! therefore bounded, and the report has the number of rules that were not checked.

use std::collections::HashMap;

use crate::lookup::resolve::{LookupResult, Slashes, resolve_address};
use crate::lookup::site_files::SiteFiles;
use docwharf_base::error_chain::QuotedName;

use super::pattern::Captures;
use super::route::{
    ComparisonBudget, RedirectEnd, RouteResult, RouteSettings, follow_rule, follow_to_end, route_with_budget,
};
use super::rule::{RedirectRule, RuleAction};

/// A placeholder for a variable part: U+10FFFF is a noncharacter, so that no address of a site contains it.
const PLACEHOLDER: &str = "\u{10ffff}";
/// A second placeholder, which differs from the first and contains a slash.
const OTHER_PLACEHOLDER: &str = "\u{10ffff}/\u{10ffff}\u{10ffff}";

/// The budget for comparisons in bytes: seconds at worst, and enough for the maximum number of ordinary rules.
const MAX_COMPARED_BYTES: u64 = 1 << 32;

/// The maximum number of addresses of a loop in a message.
const MAX_LOOP_STEPS: usize = 6;

/// The kind of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleProblemKind {
    /// The rule is invalid and is ignored.
    Invalid,
    /// A chain of redirects returns to an address that it has passed, or grows without end.
    Loop,
    /// The rule leads to a 404. Reports name it `dead`.
    LeadsTo404,
    /// An earlier rule or a file of the site always applies first.
    Shadowed,
    /// The rule redirects an address to itself, so it is skipped. Reports name it `never`.
    LeadsToItself,
}

impl RuleProblemKind {
    /// Returns the name of the kind in reports.
    pub fn name(self) -> &'static str {
        match self {
            RuleProblemKind::Invalid => "invalid",
            RuleProblemKind::Loop => "loop",
            RuleProblemKind::LeadsTo404 => "dead",
            RuleProblemKind::Shadowed => "shadowed",
            RuleProblemKind::LeadsToItself => "never",
        }
    }
}

/// A problem of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleProblem {
    /// The file and line of the rule.
    pub place: String,
    /// The kind of problem.
    pub kind: RuleProblemKind,
    /// The source as written; empty for an invalid rule.
    pub source: String,
    /// The destination as written; empty for an invalid rule.
    pub destination: String,
    /// The description of the problem.
    pub message: String,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleCheckReport {
    /// The problems, in the order of the rules.
    pub problems: Vec<RuleProblem>,
    /// The number of rules at the end that were not checked, because the budget was spent.
    pub unchecked: usize,
}

/// The rules that precede the current one, as numbers in the list of all rules.
#[derive(Default)]
struct EarlierRules<'a> {
    exact: HashMap<&'a [u8], Vec<usize>>,
    patterns: Vec<usize>,
}

impl<'a> EarlierRules<'a> {
    fn add(&mut self, number: usize, rule: &'a RedirectRule) {
        match rule.pattern.exact() {
            Some(address) => self.exact.entry(address).or_default().push(number),
            None => self.patterns.push(number),
        }
    }

    /// Returns the earlier rules that may apply instead of `rule`, in their order. A rule about one address never
    /// shadows a rule about many.
    fn candidates(&self, rule: &RedirectRule) -> impl Iterator<Item = usize> {
        let exact = rule.pattern.exact().and_then(|address| self.exact.get(address));
        let mut exact = exact.into_iter().flatten().copied().peekable();
        let mut patterns = self.patterns.iter().copied().peekable();
        std::iter::from_fn(move || match (exact.peek(), patterns.peek()) {
            (Some(exact), Some(pattern)) if exact > pattern => patterns.next(),
            (Some(_), _) => exact.next(),
            (None, _) => patterns.next(),
        })
    }
}

/// Checks the operator's rules and the site's. `has_files_below` returns whether the site has a file below a decoded
/// address, which begins and ends with a slash.
pub fn check_rules(
    site: &impl SiteFiles,
    settings: &RouteSettings<'_>,
    has_files_below: &dyn Fn(&[u8]) -> bool,
) -> RuleCheckReport {
    let mut problems = Vec::new();
    for rules in [settings.rules, site.rules()] {
        problems.extend(rules.faults.iter().map(|fault| RuleProblem {
            place: fault.place.clone(),
            kind: RuleProblemKind::Invalid,
            source: String::new(),
            destination: String::new(),
            message: fault.message.clone(),
        }));
    }
    let rules_in_order: Vec<&RedirectRule> = settings.rules.list().iter().chain(site.rules().list()).collect();
    let (mut earlier, budget) = (EarlierRules::default(), ComparisonBudget::new(MAX_COMPARED_BYTES));
    for (number, &rule) in rules_in_order.iter().enumerate() {
        let checker = RuleChecker { site, settings, budget: &budget };
        let problem = checker
            .find_shadowing(&rules_in_order, &earlier, rule)
            .or_else(|| checker.check_target(rule, has_files_below));
        if budget.is_spent() {
            return RuleCheckReport { problems, unchecked: rules_in_order.len() - number };
        }
        earlier.add(number, rule);
        problems.extend(problem.map(|(kind, message)| RuleProblem {
            place: rule.place.to_string(),
            kind,
            source: rule.source.to_string(),
            destination: rule.destination.to_string(),
            message,
        }));
    }
    RuleCheckReport { problems, unchecked: 0 }
}

/// The inputs of the check of one rule.
struct RuleChecker<'a, F> {
    site: &'a F,
    settings: &'a RouteSettings<'a>,
    budget: &'a ComparisonBudget,
}

impl<F: SiteFiles> RuleChecker<'_, F> {
    /// Returns the problem if a file or an earlier rule always applies first.
    fn find_shadowing(
        &self,
        all: &[&RedirectRule],
        before: &EarlierRules<'_>,
        rule: &RedirectRule,
    ) -> Option<(RuleProblemKind, String)> {
        if let (Some(address), false) = (rule.pattern.exact(), rule.force)
            && resolve_address(self.site, &address[1..], self.settings.slashes) != LookupResult::NotFound
        {
            let remedy = "to apply the rule first, set force = true in the configuration, or write ! after the status in \
                          _redirects";
            return Some((
                RuleProblemKind::Shadowed,
                format!("the site has a page or file at this address, which is served; {remedy}"),
            ));
        }
        let mut examples = [PLACEHOLDER, OTHER_PLACEHOLDER, ""].map(|filler| rule.pattern.example(filler)).to_vec();
        examples.retain(|example| rule.pattern.matches(example).is_some());
        examples.dedup();
        let covers = |earlier: &RedirectRule| {
            (earlier.force || !rule.force)
                && examples.iter().all(|example| {
                    self.budget.spend_matches(1, example);
                    earlier.pattern.matches(example).is_some_and(|captures| self.applies(earlier, &captures, example))
                })
        };
        let candidates = before.candidates(rule).take_while(|_| !self.budget.is_spent());
        let earlier = candidates.map(|number| all[number]).find(|earlier| covers(earlier))?;
        Some((RuleProblemKind::Shadowed, format!("{} ({}) comes first", earlier.place, earlier.source)))
    }

    /// Whether a rule that matches an address has an effect there.
    fn applies(&self, rule: &RedirectRule, captures: &Captures<'_>, address: &[u8]) -> bool {
        self.budget.spend_follow();
        follow_rule(self.site, self.settings, address, None, rule, captures).is_some()
    }

    /// Follows a rule and returns the problem with its target, if any.
    fn check_target(
        &self,
        rule: &RedirectRule,
        has_files_below: &dyn Fn(&[u8]) -> bool,
    ) -> Option<(RuleProblemKind, String)> {
        let RuleChecker { site, settings, budget } = *self;
        let example = rule.pattern.example(PLACEHOLDER);
        let captures = rule.pattern.matches(&example)?;
        let target = rule.parsed_destination.address(&captures);
        if let RuleAction::Rewrite(_) = rule.action {
            let is_missing = match rule.parsed_destination.fixed_folder() {
                None => !matches!(resolve_address(site, &target[1..], Slashes::Serve), LookupResult::File(_)),
                Some(fixed) => !has_files_below(&fixed),
            };
            return is_missing.then(|| missing_target_problem(rule, &target));
        }
        if rule.parsed_destination.is_on_other_host() {
            return None;
        }
        if !self.applies(rule, &captures, &example) {
            return Some((RuleProblemKind::LeadsToItself, "it leads to its own address".to_owned()));
        }
        // Follows the target through all rules, including this one.
        let query = None;
        match follow_to_end(site, settings, &target, query, Some(budget)) {
            RedirectEnd::File | RedirectEnd::OtherHost => None,
            RedirectEnd::Loop(chain) => Some((RuleProblemKind::Loop, describe_loop(&example, &chain))),
            RedirectEnd::NotFound(_) => {
                let leads_to_404 = match rule.parsed_destination.fixed_folder() {
                    None => true,
                    // Another rule may match addresses below the fixed part.
                    Some(fixed) => {
                        !has_files_below(&fixed)
                            && route_with_budget(site, settings, &target, query, Some(budget)) == RouteResult::NotFound
                    }
                };
                leads_to_404.then(|| missing_target_problem(rule, &target))
            }
        }
    }
}

fn missing_target_problem(rule: &RedirectRule, target: &[u8]) -> (RuleProblemKind, String) {
    match rule.parsed_destination.fixed_folder() {
        None => (RuleProblemKind::LeadsTo404, format!("{} is a 404", format_address(target))),
        Some(fixed) => (RuleProblemKind::LeadsTo404, format!("the site has nothing below {}", format_address(&fixed))),
    }
}

/// Describes the addresses of a loop, up to the first repetition.
fn describe_loop(start: &[u8], chain: &[Vec<u8>]) -> String {
    let mut steps: Vec<&[u8]> = vec![start];
    for step in chain {
        let is_repeated = steps.contains(&step.as_slice());
        steps.push(step);
        if is_repeated {
            break;
        }
    }
    let ellipsis = if steps.len() > MAX_LOOP_STEPS { " → …" } else { "" };
    let steps: Vec<String> = steps.into_iter().take(MAX_LOOP_STEPS).map(format_address).collect();
    steps.join(" → ") + ellipsis
}

/// Formats an address for messages, with `*` for the variable parts.
fn format_address(address: &[u8]) -> String {
    let text = QuotedName(address).to_string().replace(PLACEHOLDER, "*");
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::{RuleDraft, RuleSet, netlify_files};
    use super::*;
    use crate::sealed_version::test_versions::version_with_files;

    /// Checks the operator's rules and the site's. Returns the problems as lines `place kind`, and the problems
    /// themselves.
    fn check(operator_rules: &str, lines: &str) -> (Vec<String>, Vec<RuleProblem>) {
        let pages = ["index.html", "guides/start.html", "a.css", "dir/index.html"];
        let mut files = pages.map(|name| (name, "x")).to_vec();
        files.push(("_redirects", lines));
        let site = version_with_files(&files);
        let mut draft = RuleDraft::default();
        netlify_files::read_redirects(operator_rules, "own", &mut draft);
        let rules = RuleSet::new(draft);
        let settings = RouteSettings { base_path: "/docs/", slashes: Slashes::Redirect, rules: &rules };
        let has_files_below = |folder: &[u8]| {
            site.index().first_path_from(&folder[1..]).is_some_and(|path| path.starts_with(&folder[1..]))
        };
        let report = check_rules(&site, &settings, &has_files_below);
        assert_eq!(report.unchecked, 0);
        let short = |problem: &RuleProblem| format!("{} {}", problem.place, problem.kind.name());
        (report.problems.iter().map(short).collect(), report.problems)
    }

    #[test]
    fn rule_check_reports_each_problem_for_the_affected_rule() {
        let cases: [(&str, &str, &[&str]); 36] = [
            ("", "/old /guides/start\n", &[]),
            ("", "/old /guides/start/\n/older /guides/start.html\n", &[]),
            ("", "/old /none\n", &["_redirects:1 dead"]),
            ("", "/x/* /none/:splat\n", &["_redirects:1 dead"]),
            ("", "/x/* /guides/:splat\n", &[]),
            ("", "/x/* /guides/none-:splat\n", &[]),
            ("", "/x/* /none/:splat\n/none/* /a.css\n", &[]),
            ("", "/x/* https://x.example/:splat\n", &[]),
            ("", "/same /same\n", &["_redirects:1 never"]),
            ("", "/same/* /same/:splat\n", &["_redirects:1 never"]),
            ("", "/old /one\n/one /old\n", &["_redirects:1 loop", "_redirects:2 loop"]),
            ("", "/x/* /x/x/:splat\n", &["_redirects:1 loop"]),
            ("", "/app/* /index.html 200\n", &[]),
            ("", "/app/* /guides/:splat 200\n", &[]),
            ("", "/app/* /none/:splat 200\n", &["_redirects:1 dead"]),
            ("", "/app /none.html 200\n", &["_redirects:1 dead"]),
            ("", "/app /dir 404\n", &[]),
            ("", "/guides/start /a.css\n", &["_redirects:1 shadowed"]),
            ("", "/guides/start.html /a.css\n", &["_redirects:1 shadowed"]),
            ("", "/dir /a.css\n", &["_redirects:1 shadowed"]),
            ("", "/guides/start /a.css 301!\n", &[]),
            ("", "/guides/* /a.css\n", &[]),
            ("", "/old /a.css\n/old /guides/start\n", &["_redirects:2 shadowed"]),
            ("", "/old /a.css\n/old /guides/start 301!\n", &[]),
            ("", "/old /a.css 301!\n/old /guides/start 302\n", &["_redirects:2 shadowed"]),
            ("", "/old /a.css 301!\n/old /guides/start 302!\n", &["_redirects:2 shadowed"]),
            ("", "/x/* /a.css\n/x/y /guides/start 301!\n", &[]),
            (
                "",
                "/x/* /a.css 301!\n/x/y /guides/start\n/x/:z /\n",
                &["_redirects:2 shadowed", "_redirects:3 shadowed"],
            ),
            ("", "/x/y /a.css\n/x/* /guides/start\n", &[]),
            ("", "/x/:y /a.css\n/x/* /guides/start\n", &[]),
            ("", "/x/* /a.css\n/x/*/y /guides/start\n", &["_redirects:2 shadowed"]),
            // A rewrite to a missing page shadows no other rule.
            ("", "/old /none.html 200\n/old /guides/start\n", &["_redirects:1 dead"]),
            ("/old /a.css\n", "/old /guides/start\n", &["_redirects:1 shadowed"]),
            ("/old /two\n", "/two /old\n", &["own:1 loop", "_redirects:1 loop"]),
            ("/bad\n/old /a.css\n", "bad /a.css\n", &["own:1 invalid", "_redirects:1 invalid"]),
            ("/a.css /a.css 301!\n", "", &["own:1 never"]),
        ];
        for (operator_rules, lines, expected) in cases {
            assert_eq!(check(operator_rules, lines).0, expected, "{operator_rules} {lines}");
        }
    }

    #[test]
    fn rule_problem_names_the_earlier_rule_or_the_redirect_loop() {
        for (lines, expected) in [
            ("/x/* /a.css\n/x/y /\n/x/y /dir\n", "_redirects:1 (/x/*) comes first"),
            ("/x/y /\n/x/:z /a.css\n/x/y /dir\n", "_redirects:1 (/x/y) comes first"),
            ("/dir /a.css\n", "the site has a page or file at this address"),
            ("/old /none\n", "/none is a 404"),
            ("/old/* /none/of/:splat\n", "the site has nothing below /none/of/"),
            ("/app/* /none-:splat 200\n/a /b\n", "/b is a 404"),
            ("/1 /2\n/2 /3\n/3 /1\n", "/3 → /1 → /2 → /3"),
            ("/1 /2\n/2 /3\n/3 /4\n/4 /5\n/5 /1\n", "/5 → /1 → /2 → /3 → /4 → /5"),
            ("/1 /2\n/2 /3\n/3 /4\n/4 /5\n/5 /6\n/6 /1\n", "/6 → /1 → /2 → /3 → /4 → /5 → …"),
            ("/x/* /x/x/:splat\n", "/x/* → /x/x/* → /x/x/x/* → /x/x/x/x/* → /x/x/x/x/x/* → /x/x/x/x/x/x/* → …"),
        ] {
            let problems = check("", lines).1;
            let last = problems.last().unwrap();
            let is_shortened = last.message.contains('…') == expected.contains('…');
            assert!(last.message.starts_with(expected) && is_shortened, "{lines}: {}", last.message);
        }
        let problem = &check("", "/old /none?x\n").1[0];
        assert_eq!((&*problem.source, &*problem.destination), ("/old", "/none?x"));
        let problem = &check("", "/old\n").1[0];
        assert_eq!((&*problem.source, &*problem.destination), ("", ""));
    }
}
