//! What is wrong with rules beside a site: loops, targets that are not there, rules that never apply.
//!
//! A rule about one address is followed to its end. One about many is followed for an example, with a word in the place
//! of what varies that no site has; whether its targets are there is judged by what the site has below the part of the
//! destination that is fixed. Nothing is reported of which that leaves a doubt.

use crate::base::chain::Name;
use crate::site::lookup::{Files, Found, Slashes, resolve};

use super::pattern::Captures;
use super::route::{Ask, End, Route, end, follow, route};
use super::{Action, Rule};

/// Stands for whatever a part may be; U+10FFFF is no character, and in no address of a site.
const ANYTHING: &str = "\u{10ffff}";
/// The same, when one differs from the other.
const ANYTHING_ELSE: &str = "\u{10ffff}/\u{10ffff}\u{10ffff}";

/// So many addresses of a loop are told.
const STEPS: usize = 6;

/// A kind of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It was left out.
    Invalid,
    /// It leads back to where it began, or further and further.
    Loop,
    /// It leads to a 404.
    Dead,
    /// Rules before it, or a file of the site, answer in its stead.
    Shadowed,
    /// It leads where it is: it never applies.
    Never,
}

impl Kind {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Invalid => "invalid",
            Kind::Loop => "loop",
            Kind::Dead => "dead",
            Kind::Shadowed => "shadowed",
            Kind::Never => "never",
        }
    }
}

/// Something found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where the rule was written.
    pub place: String,
    /// What kind of trouble.
    pub kind: Kind,
    /// As written; empty where that was not understood.
    pub source: String,
    /// As written; empty where that was not understood.
    pub destination: String,
    /// What, in words.
    pub what: String,
}

/// Looks through the operator's rules and the site's. `below` says whether the site has a file below a decoded address,
/// which has its leading slash and ends with one.
pub fn check(site: &impl Files, ask: &Ask<'_>, below: &dyn Fn(&[u8]) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rules in [ask.rules, site.rules()] {
        findings.extend(rules.faults.iter().map(|fault| Finding {
            place: fault.place.clone(),
            kind: Kind::Invalid,
            source: String::new(),
            destination: String::new(),
            what: fault.what.clone(),
        }));
    }
    let all: Vec<&Rule> = ask.rules.list().iter().chain(site.rules().list()).collect();
    for (number, rule) in all.iter().enumerate() {
        let found = shadowed(site, ask, &all[..number], rule).or_else(|| led(site, ask, rule, below));
        findings.extend(found.map(|(kind, what)| Finding {
            place: rule.place.to_string(),
            kind,
            source: rule.source.to_string(),
            destination: rule.destination.to_string(),
            what,
        }));
    }
    findings
}

/// Whether something always answers before this rule is asked.
fn shadowed(site: &impl Files, ask: &Ask<'_>, before: &[&Rule], rule: &Rule) -> Option<(Kind, String)> {
    if let (Some(address), false) = (rule.pattern.exact(), rule.force)
        && resolve(site, &address[1..], ask.slashes) != Found::Nothing
    {
        let how = "force = true in the configuration, or a ! behind the status in _redirects, would put the rule first";
        return Some((Kind::Shadowed, format!("the site has a page or file there, which is served; {how}")));
    }
    let examples = [ANYTHING, ANYTHING_ELSE, ""].map(|word| rule.pattern.example(word));
    let covers = |earlier: &&&Rule| {
        (earlier.force || !rule.force)
            && examples.iter().filter(|example| rule.pattern.matches(example).is_some()).all(|example| {
                earlier.pattern.matches(example).is_some_and(|captures| applies(site, ask, earlier, &captures, example))
            })
    };
    let earlier = before.iter().find(covers)?;
    Some((Kind::Shadowed, format!("{} ({}) comes first", earlier.place, earlier.source)))
}

/// Whether a rule leads anywhere for an address that it is about.
fn applies(site: &impl Files, ask: &Ask<'_>, rule: &Rule, captures: &Captures<'_>, address: &[u8]) -> bool {
    follow(site, ask, address, None, rule, captures).is_some()
}

/// Where a rule leads, if that is a trouble.
fn led(site: &impl Files, ask: &Ask<'_>, rule: &Rule, below: &dyn Fn(&[u8]) -> bool) -> Option<(Kind, String)> {
    let example = rule.pattern.example(ANYTHING);
    let captures = rule.pattern.matches(&example)?;
    let to = rule.target.address(&captures);
    if let Action::Rewrite(_) = rule.action {
        let is_missing = match rule.target.fixed() {
            None => !matches!(resolve(site, &to[1..], Slashes::Serve), Found::File(_)),
            Some(fixed) => !below(&fixed),
        };
        return is_missing.then(|| dead(rule, &to));
    }
    if rule.target.is_elsewhere() {
        return None;
    }
    if !applies(site, ask, rule, &captures, &example) {
        return Some((Kind::Never, "it leads to the address that it is about".to_owned()));
    }
    // What rules make of the address it leads to, beginning with this one.
    let query = None;
    match end(site, ask, &to, query) {
        End::File | End::Elsewhere => None,
        End::Loop(way) => Some((Kind::Loop, told(&example, &way))),
        End::Dead(_) => {
            let is_dead = match rule.target.fixed() {
                None => true,
                // Another rule may know addresses there.
                Some(fixed) => !below(&fixed) && route(site, ask, &to, query) == Route::Nothing,
            };
            is_dead.then(|| dead(rule, &to))
        }
    }
}

fn dead(rule: &Rule, to: &[u8]) -> (Kind, String) {
    match rule.target.fixed() {
        None => (Kind::Dead, format!("{} is a 404", shown(to))),
        Some(fixed) => (Kind::Dead, format!("the site has nothing below {}", shown(&fixed))),
    }
}

/// A way in a few words, up to where it has been before.
fn told(first: &[u8], way: &[Vec<u8>]) -> String {
    let mut steps: Vec<&[u8]> = vec![first];
    for step in way {
        let is_known = steps.contains(&step.as_slice());
        steps.push(step);
        if is_known {
            break;
        }
    }
    let more = if steps.len() > STEPS { " → …" } else { "" };
    let steps: Vec<String> = steps.into_iter().take(STEPS).map(shown).collect();
    steps.join(" → ") + more
}

/// An address for people; what varies is a star.
fn shown(address: &[u8]) -> String {
    let text = Name(address).to_string().replace(ANYTHING, "*");
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(&text).to_owned()
}
