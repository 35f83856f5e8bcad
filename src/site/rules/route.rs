//! Which answer an address gets, with rules beside files. Pure; the server and those who judge a site before it is served
//! ask here.
//!
//! **Who comes first.** The operator's rules, in their order, then the bundle's: `_redirects`, then `docs.json`. Where the
//! site has something at the address, in whatever form, only rules that are forced (`force = true`, or `!`) are asked.
//! The first rule counts that leads anywhere but to the address itself; a rewrite to a file that is not there leads
//! nowhere. Then the site's files.

use std::sync::atomic::{AtomicU64, Ordering};

use percent_encoding::{percent_decode_str, percent_encode};

use crate::site::lookup::{Files, Found, RESERVED, Slashes, resolve};

use super::pattern::Captures;
use super::target::{IN_PATH, encoded};
use super::{Action, Rule, Rules};

/// Rules are not asked for longer addresses, in bytes: a thousand patterns that take over a long one would keep a thread
/// busy for a third of a second.
const LONGEST_ADDRESS: usize = 4096;
/// So many redirects are followed to see whether an address ends in a file; browsers give up at 20.
const HOPS: usize = 20;

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// This file.
    File(usize),
    /// This file, by a rule: with this status, 200 or 404.
    Instead(usize, u16),
    /// Another address, by a rule: the status and the value of `Location`.
    Moved(u16, String),
    /// Another address of the same page: the value of `Location`.
    Home(String),
    /// Nothing.
    Nothing,
}

/// What a site is asked with.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Where the site begins: `/` or `/docs/`.
    pub base_path: &'a str,
    /// What is done about several addresses of one page.
    pub slashes: Slashes,
    /// The operator's rules.
    pub rules: &'a Rules,
}

/// How much may be compared where many rules are looked at one after the other. About bytes, each of which takes less than
/// a nanosecond. Threads share it.
#[derive(Debug)]
pub struct Budget {
    most: u64,
    spent: AtomicU64,
}

impl Budget {
    /// What following a rule costs, in bytes compared.
    const FOLLOWED: usize = 16 << 10;

    /// So many bytes.
    pub fn new(bytes: u64) -> Budget {
        Budget { most: bytes, spent: AtomicU64::new(0) }
    }

    /// Whether nothing is left: what is found from now on is not to be believed.
    pub fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Relaxed) >= self.most
    }

    /// So many patterns are held against an address.
    pub fn compare(&self, patterns: usize, address: &[u8]) {
        self.spend(patterns.saturating_mul(address.len() + 32));
    }

    /// One of them is followed.
    pub(super) fn follow(&self) {
        self.spend(Budget::FOLLOWED);
    }

    fn spend(&self, bytes: usize) {
        // Whoever spends looks whether anything is left: it never comes near to what a u64 holds.
        self.spent.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Follows a decoded address of the site, with its leading slash, one step.
pub fn route(site: &impl Files, ask: &Ask<'_>, address: &[u8], query: Option<&str>) -> Route {
    route_within(site, ask, address, query, None)
}

/// The same, where somebody counts what it costs.
pub(super) fn route_within(
    site: &impl Files,
    ask: &Ask<'_>,
    address: &[u8],
    query: Option<&str>,
    budget: Option<&Budget>,
) -> Route {
    let found = resolve(site, &address[1..], ask.slashes);
    // As it goes into an address of ours, or is compared with one.
    let query = query.map(encoded);
    let query = query.as_deref();
    let has = found != Found::Nothing;
    // Addresses of our own have no rules, and a `.` or `..` that is taken over could climb out of where a rule leads.
    let may_ask = !ask.rules.asks_nothing(has) || !site.rules().asks_nothing(has);
    if may_ask && may_move(address) {
        for rules in [ask.rules, site.rules()] {
            if let Some(budget) = budget {
                budget.compare(rules.patterns(has), address);
            }
            let moved = rules.first(address, has, |rule, captures| {
                if let Some(budget) = budget {
                    budget.follow();
                }
                follow(site, ask, address, query, rule, &captures)
            });
            if let Some(moved) = moved {
                return moved;
            }
        }
    }
    match found {
        Found::File(file) => Route::File(file),
        Found::Redirect(path) => {
            Route::Home(with_query(format!("{}{}", ask.base_path, percent_encode(&path, IN_PATH)), query))
        }
        Found::Nothing => Route::Nothing,
    }
}

fn may_move(address: &[u8]) -> bool {
    if address.len() > LONGEST_ADDRESS {
        return false;
    }
    let mut components = address.split(|&b| b == b'/').skip(1);
    components.clone().next() != Some(RESERVED) && !components.any(|component| matches!(component, b"." | b".."))
}

/// Where one rule leads, if that is anywhere.
pub(super) fn follow(
    site: &impl Files,
    ask: &Ask<'_>,
    address: &[u8],
    query: Option<&str>,
    rule: &Rule,
    captures: &Captures<'_>,
) -> Option<Route> {
    match rule.action {
        Action::Rewrite(status) => {
            let to = rule.target.address(captures);
            let to = to.strip_prefix(b"/").unwrap_or(&to);
            match resolve(site, to, Slashes::Serve) {
                Found::File(file) => Some(Route::Instead(file, status)),
                _ => None,
            }
        }
        Action::Redirect(status) => {
            let location = rule.target.location(captures, ask.base_path, query)?;
            let is_itself = !rule.target.is_elsewhere() && leads_back(&location, ask.base_path, address, query);
            (!is_itself).then_some(Route::Moved(status, location))
        }
    }
}

/// Whether a redirect within the site asks for the very same thing again.
fn leads_back(location: &str, base_path: &str, address: &[u8], query: Option<&str>) -> bool {
    let location = location.split('#').next().unwrap_or_default();
    let (path, to_query) = location.split_once('?').map_or((location, None), |(path, query)| (path, Some(query)));
    let path = &path[base_path.len() - 1..];
    to_query.unwrap_or_default() == query.unwrap_or_default() && percent_decode_str(path).eq(address.iter().copied())
}

/// An address with the query of the request, encoded as far as it has to be.
pub fn with_query(path: String, query: Option<&str>) -> String {
    match query {
        Some(query) => format!("{path}?{}", encoded(query)),
        None => path,
    }
}

/// Where an address ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// In a file, answered with 200.
    File,
    /// At another host.
    Elsewhere,
    /// In a 404 at this decoded address.
    Dead(Vec<u8>),
    /// Never: these are the addresses on the way.
    Loop(Vec<Vec<u8>>),
}

/// Follows a decoded address of the site, with its leading slash, to its end, which is not to be believed once the budget
/// is spent.
pub fn end_within(
    site: &impl Files,
    ask: &Ask<'_>,
    address: &[u8],
    query: Option<&str>,
    budget: Option<&Budget>,
) -> End {
    let mut way: Vec<(Vec<u8>, Option<String>)> = Vec::new();
    let mut at = (address.to_vec(), query.map(str::to_owned));
    loop {
        let location = match route_within(site, ask, &at.0, at.1.as_deref(), budget) {
            _ if budget.is_some_and(Budget::is_spent) => return End::File,
            Route::File(_) | Route::Instead(_, 200) => return End::File,
            Route::Nothing | Route::Instead(..) => return End::Dead(at.0),
            Route::Moved(_, location) | Route::Home(location) => location,
        };
        let Some(inside) = location.strip_prefix(ask.base_path) else { return End::Elsewhere };
        let inside = inside.split('#').next().unwrap_or_default();
        let (path, query) = inside.split_once('?').map_or((inside, None), |(path, query)| (path, Some(query)));
        let next = std::iter::once(b'/').chain(percent_decode_str(path)).collect();
        way.push(std::mem::replace(&mut at, (next, query.map(str::to_owned))));
        if way.contains(&at) || way.len() >= HOPS {
            way.push(at);
            return End::Loop(way.into_iter().map(|(address, _)| address).collect());
        }
    }
}
