//! Decides the response to an address from rules and files. It does no I/O. The server calls it, and the checks of a
//! site before it is served.
//!
//! **Order of precedence.** The operator's rules, in their order, then the bundle's: `_redirects`, then `docs.json`.
//! Where the site has a file or page at the address, in any form, only forced rules (`force = true`, or `!`) are tried.
//! The first rule that leads to another address than the requested one applies; a rewrite to a missing file has no
//! effect. Then the files of the site.

use std::sync::atomic::{AtomicU64, Ordering};

use percent_encoding::{percent_decode_str, percent_encode};

use docwharf_base::encode_sets;

use crate::lookup::resolve::{LookupResult, Slashes, resolve_address};
use crate::lookup::site_files::SiteFiles;
use crate::lookup::unserved_paths::RESERVED_FOLDER;

use super::destination::encode_query;
use super::pattern::Captures;
use super::rule::{RedirectRule, RuleAction};
use super::rule_set::RuleSet;

/// The maximum length of an address for which rules are tried, in bytes: a thousand patterns that capture a longer one
/// would occupy a thread for a third of a second.
const MAX_ADDRESS_BYTES: usize = 4096;
/// The number of redirects that are followed to find the end of a chain; browsers stop at 20.
const MAX_REDIRECTS: usize = 20;

/// The response to an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteResult {
    /// This file.
    File(usize),
    /// A rule serves this file with this status, 200 or 404.
    Rewritten(usize, u16),
    /// A rule redirects: the status and the value of `Location`.
    RuleRedirect(u16, String),
    /// A redirect to the canonical address of the same page: the value of `Location`.
    CanonicalRedirect(String),
    /// No file and no rule: 404.
    NotFound,
}

/// The settings that decide where an address of one version leads: those of
/// [`AddressSettings`](crate::lookup::AddressSettings), borrowed, with `slashes` decided for that version.
#[derive(Debug, Clone, Copy)]
pub struct RouteSettings<'a> {
    /// The path below which the site is served: `/` or `/docs/`.
    pub base_path: &'a str,
    /// The response at an address of a page that is not its canonical one.
    pub slashes: Slashes,
    /// The operator's rules.
    pub rules: &'a RuleSet,
}

/// A budget for comparisons when many rules are tried one after the other. The unit is about one compared byte, which
/// takes less than a nanosecond. Threads share it.
#[derive(Debug)]
pub struct ComparisonBudget {
    limit: u64,
    spent: AtomicU64,
}

impl ComparisonBudget {
    /// The cost of following a rule, in compared bytes.
    const FOLLOW_COST_BYTES: usize = 16 << 10;

    /// Creates a budget of `bytes` compared bytes.
    pub fn new(bytes: u64) -> ComparisonBudget {
        ComparisonBudget { limit: bytes, spent: AtomicU64::new(0) }
    }

    /// Whether the budget is spent. Later results are not valid.
    pub fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Relaxed) >= self.limit
    }

    /// Spends the cost of matching `patterns` patterns against an address.
    pub fn spend_matches(&self, patterns: usize, address: &[u8]) {
        self.spend(patterns.saturating_mul(address.len() + 32));
    }

    /// Spends the cost of following one rule.
    pub(super) fn spend_follow(&self) {
        self.spend(ComparisonBudget::FOLLOW_COST_BYTES);
    }

    fn spend(&self, bytes: usize) {
        // Callers check `is_spent` after each step, so the sum never reaches the maximum of a u64.
        self.spent.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Returns the response to a decoded address of the site with its leading slash.
pub fn route_address(
    site: &impl SiteFiles,
    settings: &RouteSettings<'_>,
    address: &[u8],
    query: Option<&str>,
) -> RouteResult {
    route_with_budget(site, settings, address, query, None)
}

/// Does what [`route_address`] does, with a budget for the comparisons.
pub(super) fn route_with_budget(
    site: &impl SiteFiles,
    settings: &RouteSettings<'_>,
    address: &[u8],
    query: Option<&str>,
    budget: Option<&ComparisonBudget>,
) -> RouteResult {
    let resolved = resolve_address(site, &address[1..], settings.slashes);
    // The query is encoded as in a `Location`, with which it is compared.
    let query = query.map(encode_query);
    let query = query.as_deref();
    let has_file = resolved != LookupResult::NotFound;
    // The reserved folder has no rules. An address with a `.` or `..` has none either: captured dots could leave
    // the folder to which a rule leads.
    let may_apply = !settings.rules.is_empty_for(has_file) || !site.rules().is_empty_for(has_file);
    if may_apply && may_match_rules(address) {
        for rules in [settings.rules, site.rules()] {
            if let Some(budget) = budget {
                budget.spend_matches(rules.pattern_count(has_file), address);
            }
            let result = rules.find_first(address, has_file, |rule, captures| {
                if let Some(budget) = budget {
                    budget.spend_follow();
                }
                follow_rule(site, settings, address, query, rule, &captures)
            });
            if let Some(result) = result {
                return result;
            }
        }
    }
    match resolved {
        LookupResult::File(file) => RouteResult::File(file),
        LookupResult::Redirect(path) => RouteResult::CanonicalRedirect(append_query(
            format!("{}{}", settings.base_path, percent_encode(&path, encode_sets::LOCATION_PATH)),
            query,
        )),
        LookupResult::NotFound => RouteResult::NotFound,
    }
}

fn may_match_rules(address: &[u8]) -> bool {
    if address.len() > MAX_ADDRESS_BYTES {
        return false;
    }
    let mut components = address.split(|&b| b == b'/').skip(1);
    components.clone().next() != Some(RESERVED_FOLDER) && !components.any(|component| matches!(component, b"." | b".."))
}

/// Follows one rule that matches the address; `None` if it has no effect.
pub(super) fn follow_rule(
    site: &impl SiteFiles,
    settings: &RouteSettings<'_>,
    address: &[u8],
    query: Option<&str>,
    rule: &RedirectRule,
    captures: &Captures<'_>,
) -> Option<RouteResult> {
    match rule.action {
        RuleAction::Rewrite(status) => {
            let target = rule.parsed_destination.address(captures);
            let target = target.strip_prefix(b"/").unwrap_or(&target);
            match resolve_address(site, target, Slashes::Serve) {
                LookupResult::File(file) => Some(RouteResult::Rewritten(file, status)),
                _ => None,
            }
        }
        RuleAction::Redirect(status) => {
            let location = rule.parsed_destination.location(captures, settings.base_path, query)?;
            let is_itself = !rule.parsed_destination.is_on_other_host()
                && redirects_to_itself(&location, settings.base_path, address, query);
            (!is_itself).then_some(RouteResult::RuleRedirect(status, location))
        }
    }
}

/// Whether a redirect within the site leads to the requested address and query.
fn redirects_to_itself(location: &str, base_path: &str, address: &[u8], query: Option<&str>) -> bool {
    let location = location.split('#').next().unwrap_or_default();
    let (path, to_query) = location.split_once('?').map_or((location, None), |(path, query)| (path, Some(query)));
    let path = &path[base_path.len() - 1..];
    to_query.unwrap_or_default() == query.unwrap_or_default() && percent_decode_str(path).eq(address.iter().copied())
}

/// Appends the query of the request to a path, percent-encoded where necessary.
pub fn append_query(path: String, query: Option<&str>) -> String {
    match query {
        Some(query) => format!("{path}?{}", encode_query(query)),
        None => path,
    }
}

/// The end of a chain of redirects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedirectEnd {
    /// A file, answered with 200.
    File,
    /// Another host.
    OtherHost,
    /// A 404 at this decoded address.
    NotFound(Vec<u8>),
    /// A loop: the addresses of the chain.
    Loop(Vec<Vec<u8>>),
}

/// Follows a decoded address of the site, with its leading slash, through all redirects. The result is not valid
/// after the budget is spent.
pub fn follow_to_end(
    site: &impl SiteFiles,
    settings: &RouteSettings<'_>,
    address: &[u8],
    query: Option<&str>,
    budget: Option<&ComparisonBudget>,
) -> RedirectEnd {
    let mut chain: Vec<(Vec<u8>, Option<String>)> = Vec::new();
    let mut current = (address.to_vec(), query.map(str::to_owned));
    loop {
        let location = match route_with_budget(site, settings, &current.0, current.1.as_deref(), budget) {
            _ if budget.is_some_and(ComparisonBudget::is_spent) => return RedirectEnd::File,
            RouteResult::File(_) | RouteResult::Rewritten(_, 200) => return RedirectEnd::File,
            RouteResult::NotFound | RouteResult::Rewritten(..) => return RedirectEnd::NotFound(current.0),
            RouteResult::RuleRedirect(_, location) | RouteResult::CanonicalRedirect(location) => location,
        };
        let Some(relative) = location.strip_prefix(settings.base_path) else { return RedirectEnd::OtherHost };
        let relative = relative.split('#').next().unwrap_or_default();
        let (path, query) = relative.split_once('?').map_or((relative, None), |(path, query)| (path, Some(query)));
        let next = std::iter::once(b'/').chain(percent_decode_str(path)).collect();
        chain.push(std::mem::replace(&mut current, (next, query.map(str::to_owned))));
        if chain.contains(&current) || chain.len() >= MAX_REDIRECTS {
            chain.push(current);
            return RedirectEnd::Loop(chain.into_iter().map(|(address, _)| address).collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RuleDraft, netlify_files};
    use super::*;
    use crate::sealed_version::SealedVersion;
    use crate::sealed_version::test_versions::version_with_files;

    fn rules(text: &str) -> RuleSet {
        let mut draft = RuleDraft::default();
        netlify_files::read_redirects(text, netlify_files::REDIRECTS_FILE, &mut draft);
        assert_eq!(draft.faults, []);
        RuleSet::new(draft)
    }

    fn describe_route(site: &SealedVersion, route: RouteResult) -> String {
        let name = |file: usize| String::from_utf8(site.index().path(file).to_vec()).unwrap();
        match route {
            RouteResult::File(file) => name(file),
            RouteResult::Rewritten(file, status) => format!("{status} {}", name(file)),
            RouteResult::RuleRedirect(status, location) => format!("{status} to {location}"),
            RouteResult::CanonicalRedirect(location) => format!("canonical {location}"),
            RouteResult::NotFound => "nothing".to_owned(),
        }
    }

    #[test]
    fn files_precede_unforced_rules_and_operator_rules_precede_site_rules() {
        let site = version_with_files(&[
            ("index.html", "home"),
            ("a/index.html", "a"),
            ("b.html", "b"),
            ("c d.html", "c"),
            (
                "_redirects",
                "/n /site\n/f /site\n/a /site\n/b /site 301!\n/w /b 200\n/w4 /b.html 404\n/w/* /none 200\n/w/x /later\n\
                            /to/* /a/:splat 302\n/self /self\n/self/2 /self/2?x\n/next /self/2 302\n/out https://x.example/y\n\
                            /red /a 200\n/hid /.env 200\n/_docwharf /own\n",
            ),
            (".env", ""),
        ]);
        let operator_rules = rules("/n /own\n/b /own\n/b.html /own 307!\n/q /own?x=1 302\n/self /self\n");
        let settings = RouteSettings { base_path: "/docs/", slashes: Slashes::Redirect, rules: &operator_rules };
        for (address, query, expected) in [
            ("/", None, "index.html"),
            ("/n", None, "301 to /docs/own"),
            ("/n/", Some("y"), "301 to /docs/own?y"),
            ("/f", None, "301 to /docs/site"),
            ("/b", None, "301 to /docs/site"),
            ("/b.html", None, "307 to /docs/own"),
            ("/b/", None, "301 to /docs/site"),
            ("/b/index.html", Some("x=|"), "canonical /docs/b?x=%7C"),
            ("/a", None, "canonical /docs/a/"),
            ("/a", Some("x"), "canonical /docs/a/?x"),
            ("/a/", None, "a/index.html"),
            ("/c d/", None, "canonical /docs/c%20d"),
            ("/w", Some("x"), "200 b.html"),
            ("/w4", None, "404 b.html"),
            // A rewrite to a missing file has no effect; the next rule is tried.
            ("/w/x", None, "301 to /docs/later"),
            ("/w/y", None, "nothing"),
            ("/red", None, "200 a/index.html"),
            ("/hid", None, "nothing"),
            ("/to/x", None, "302 to /docs/a/x"),
            ("/to/x/..", None, "nothing"),
            ("/to/./x", None, "nothing"),
            ("/to/..x", None, "302 to /docs/a/..x"),
            ("/_docwharf/x", None, "nothing"),
            ("/q", Some("x=2&y=%zz"), "302 to /docs/own?x=1&y=%25zz"),
            ("/self", None, "nothing"),
            ("/self", Some("x"), "nothing"),
            ("/self/", None, "301 to /docs/self"),
            ("/self/2", None, "301 to /docs/self/2?x"),
            ("/self/2", Some("x"), "nothing"),
            ("/out", None, "301 to https://x.example/y"),
            ("/none", None, "nothing"),
        ] {
            assert_eq!(
                describe_route(&site, route_address(&site, &settings, address.as_bytes(), query)),
                expected,
                "{address} {query:?}"
            );
        }
        let serve = RouteSettings { slashes: Slashes::Serve, ..settings };
        assert_eq!(describe_route(&site, route_address(&site, &serve, b"/a", None)), "a/index.html");
    }

    #[test]
    fn rules_are_matched_only_against_addresses_up_to_a_maximum_length() {
        let operator_rules = rules("/x/* /b 302\n");
        let settings = RouteSettings { base_path: "/", slashes: Slashes::Serve, rules: &operator_rules };
        let site = version_with_files(&[("index.html", "")]);
        let long = |len: usize| format!("/x/{}", "y".repeat(len - 3));
        let describe_len =
            |len: usize| describe_route(&site, route_address(&site, &settings, long(len).as_bytes(), None));
        assert_eq!(
            (describe_len(MAX_ADDRESS_BYTES).as_str(), describe_len(MAX_ADDRESS_BYTES + 1).as_str()),
            ("302 to /b", "nothing")
        );
    }

    #[test]
    fn redirect_chain_is_followed_to_a_file_a_missing_page_a_loop_or_another_host() {
        let site = version_with_files(&[
            ("index.html", ""),
            ("a/index.html", ""),
            ("404.html", ""),
            (
                "_redirects",
                "/one /two\n/two /a\n/bad /none?x#y\n/l1 /l2\n/l2 /l3\n/l3 /l1\n/grow/* /grow/x/:splat\n/out https://x.example/\n\
                            /app/* /index.html 200\n/en/* /404.html 404\n/q /q?x=1\n/enc /n%20o\n",
            ),
        ]);
        let no_rules = RuleSet::default();
        for base_path in ["/", "/docs/"] {
            let settings = RouteSettings { base_path, slashes: Slashes::Redirect, rules: &no_rules };
            let end = |address: &str| follow_to_end(&site, &settings, address.as_bytes(), None, None);
            for address in ["/", "/a", "/a/", "/one", "/two", "/app/x", "/a/index.html"] {
                assert_eq!(end(address), RedirectEnd::File, "{address}");
            }
            for (address, last) in [
                ("/none", "/none"),
                ("/bad", "/none"),
                ("/en/x", "/en/x"),
                ("/q", "/q"),
                ("/enc", "/n o"),
                ("/.env", "/.env"),
            ] {
                assert_eq!(end(address), RedirectEnd::NotFound(last.as_bytes().to_vec()), "{address}");
            }
            assert_eq!(end("/out"), RedirectEnd::OtherHost);
            let chain = ["/l2", "/l3", "/l1", "/l2"].map(|step| step.as_bytes().to_vec()).to_vec();
            assert_eq!(end("/l2"), RedirectEnd::Loop(chain));
            assert!(matches!(end("/grow/a"), RedirectEnd::Loop(chain) if chain.len() == MAX_REDIRECTS + 1));
            assert_eq!(
                follow_to_end(&site, &settings, b"/none", None, Some(&ComparisonBudget::new(0))),
                RedirectEnd::File
            );
            assert!(matches!(
                follow_to_end(&site, &settings, b"/none", None, Some(&ComparisonBudget::new(1 << 30))),
                RedirectEnd::NotFound(_)
            ));
        }
    }

    #[test]
    fn redirect_chain_is_followed_up_to_the_limit_of_browsers() {
        for (hops, is_followed) in [(MAX_REDIRECTS - 1, true), (MAX_REDIRECTS, false)] {
            let lines: Vec<String> = (0..hops).map(|n| format!("/{n} /{}\n", n + 1)).collect();
            let (operator_rules, last) = (rules(&lines.concat()), format!("{hops}.html"));
            let site = version_with_files(&[(last.as_str(), "")]);
            let settings = RouteSettings { base_path: "/", slashes: Slashes::Serve, rules: &operator_rules };
            assert_eq!(follow_to_end(&site, &settings, b"/0", None, None) == RedirectEnd::File, is_followed, "{hops}");
        }
    }

    #[test]
    fn comparison_budget_is_spent_by_matching_and_following_rules() {
        let budget = ComparisonBudget::new(100);
        budget.spend_matches(1, b"/xxxxxxx");
        assert!(!budget.is_spent());
        budget.spend_matches(1, &[b'/'; 27]);
        assert!(!budget.is_spent(), "40 and 59 bytes");
        budget.spend(1);
        assert!(budget.is_spent());
        let budget = ComparisonBudget::new(ComparisonBudget::FOLLOW_COST_BYTES as u64 + 1);
        budget.spend_follow();
        budget.spend_matches(0, b"/x");
        assert!(!budget.is_spent() && ComparisonBudget::new(0).is_spent());
        // Each rule that is matched against an address has a cost, and each that is followed.
        let (site, operator_rules) = (version_with_files(&[("index.html", "")]), rules("/x/* /b\n/y/* /b\n"));
        let settings = RouteSettings { base_path: "/", slashes: Slashes::Serve, rules: &operator_rules };
        for (address, cost) in [("/x", 2 * 34 + ComparisonBudget::FOLLOW_COST_BYTES), ("/z", 2 * 34), ("/", 0)] {
            let budget = ComparisonBudget::new(u64::MAX);
            route_with_budget(&site, &settings, address.as_bytes(), None, Some(&budget));
            assert_eq!(budget.spent.load(Ordering::Relaxed), cost as u64, "{address}");
        }
    }
}
