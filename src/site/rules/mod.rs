//! What a site's addresses do besides naming files: redirects, rewrites, and fields that go along with answers.
//!
//! Rules come from the bundle (`_redirects`, `_headers`, the `redirects` of a `docs.json`) and from the operator's
//! configuration. They are read once, when a version is opened or the configuration is; what is wrong in a bundle is left
//! out and told. A rule about one address is found in a table, the others are gone through in their order: so many, so
//! long, that a bundle made to be slow is not.

pub mod check;
pub mod docs_json;
pub mod fields;
pub mod ground;
pub mod hosting;
pub mod pattern;
pub mod route;
pub mod target;

use std::collections::HashMap;
use std::fmt::{self, Write};

use crate::model::digest::Digest;

use fields::Fields;
use pattern::{Captures, Dialect, Pattern, bare};
use target::Target;

/// The most rules about one address of one source of rules.
pub const MOST_RULES: usize = 10_000;
/// The most that are about more than one address.
pub const MOST_PATTERNS: usize = 1_000;
/// The most faults that are kept, and the most after which a file is read any further.
const MOST_FAULTS: usize = 1_000;

/// What is done where a rule applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The reader is sent on, with this status: 301, 302, 303, 307 or 308.
    Redirect(u16),
    /// Another file of the site is the answer, with this status: 200 or 404.
    Rewrite(u16),
}

impl Action {
    /// What a status asks for.
    pub fn of(status: u16) -> Result<Action, String> {
        match status {
            301 | 302 | 303 | 307 | 308 => Ok(Action::Redirect(status)),
            200 | 404 => Ok(Action::Rewrite(status)),
            _ => Err(format!("the status {status} is none of 301, 302, 303, 307, 308, 200 and 404")),
        }
    }

    /// The status of the answer.
    pub fn status(self) -> u16 {
        match self {
            Action::Redirect(status) | Action::Rewrite(status) => status,
        }
    }
}

/// One redirect or rewrite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Where it was written, for people.
    pub place: Box<str>,
    /// As written.
    pub source: Box<str>,
    /// As written.
    pub destination: Box<str>,
    /// Which addresses it is about.
    pub pattern: Pattern,
    /// Where it leads.
    pub target: Target,
    /// What is done.
    pub action: Action,
    /// Whether it applies where the site has a file, too.
    pub force: bool,
}

impl Rule {
    /// Proves a rule.
    pub fn new(
        place: String,
        source: &str,
        destination: &str,
        dialect: Dialect,
        action: Action,
        force: bool,
    ) -> Result<Rule, String> {
        let pattern = Pattern::parse(source, dialect)?;
        let target = Target::parse(destination, pattern.names())?;
        if matches!(action, Action::Rewrite(_)) && target.is_elsewhere() {
            return Err(
                "another host's answers are not passed on: redirect to it instead (301, 302, 307, 308)".to_owned()
            );
        }
        let (source, destination) = (source.into(), destination.into());
        Ok(Rule { place: place.into(), source, destination, pattern, target, action, force })
    }
}

/// What is wrong with a rule, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where, for people.
    pub place: String,
    /// What.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// Rules as they are read, one after the other; what is wrong is noted and left out.
#[derive(Debug, Default)]
pub struct Draft {
    /// Redirects and rewrites, in the order in which they are asked.
    pub rules: Vec<Rule>,
    /// Fields that go along.
    pub fields: Fields,
    /// What was left out.
    pub faults: Vec<Fault>,
    patterns: usize,
    exact: usize,
    /// Faults that were found, kept or not.
    found: usize,
}

impl Draft {
    /// Takes a rule, or what is wrong with it, unless there are too many: that is noted once.
    pub fn add(&mut self, place: String, rule: Result<Rule, String>) {
        let rule = match rule {
            Ok(rule) => rule,
            Err(what) => return self.fault(place, what),
        };
        let is_pattern = rule.pattern.exact().is_none();
        let (count, most, of) = if is_pattern {
            (&mut self.patterns, MOST_PATTERNS, "rules with * or :name")
        } else {
            (&mut self.exact, MOST_RULES, "rules about one address")
        };
        *count += 1;
        if *count <= most {
            self.rules.push(rule);
        } else if *count == most + 1 {
            self.fault(place, format!("there are more than {most} {of}: this one and those behind it do not count"));
        }
    }

    /// Notes what is wrong.
    pub fn fault(&mut self, place: String, what: String) {
        self.found += 1;
        if self.faults.len() < MOST_FAULTS {
            self.faults.push(Fault { place, what });
        }
    }

    /// Whether a file which began when `before` faults had been found has so many that it is none of ours: what stands
    /// behind them is not worth the time. That is noted, whatever else was.
    fn gives_up(&mut self, before: usize, place: &str) -> bool {
        let is_over = self.found - before >= MOST_FAULTS;
        if is_over {
            let what =
                format!("there are more than {MOST_FAULTS} mistakes before this: it and what follows do not count");
            self.faults.push(Fault { place: place.to_owned(), what });
        }
        is_over
    }
}

/// Rules ready to be asked.
#[derive(Default, Clone)]
pub struct Rules {
    list: Vec<Rule>,
    forced: Table,
    all: Table,
    /// Fields that go along with answers.
    pub fields: Fields,
    /// What was wrong with those that were left out.
    pub faults: Vec<Fault>,
    /// Of all that was understood.
    digest: Option<Digest>,
}

/// Rules by what they are about, as numbers in the list. Of those about one address the first counts.
#[derive(Debug, Default, Clone)]
struct Table {
    exact: HashMap<Box<[u8]>, u32>,
    patterns: Vec<u32>,
}

impl Table {
    fn add(&mut self, number: u32, pattern: &Pattern) {
        match pattern.exact() {
            Some(address) => {
                self.exact.entry(address.into()).or_insert(number);
            }
            None => self.patterns.push(number),
        }
    }
}

impl Rules {
    /// Makes the tables.
    pub fn new(draft: Draft) -> Rules {
        let Draft { rules, fields, faults, .. } = draft;
        let (mut forced, mut all) = (Table::default(), Table::default());
        for (number, rule) in (0u32..).zip(&rules) {
            all.add(number, &rule.pattern);
            if rule.force {
                forced.add(number, &rule.pattern);
            }
        }
        let is_empty = rules.is_empty() && fields.is_empty();
        let digest = (!is_empty).then(|| digest(&rules, &fields));
        Rules { list: rules, forced, all, fields, faults, digest }
    }

    /// Redirects and rewrites, in the order in which they are asked.
    pub fn list(&self) -> &[Rule] {
        &self.list
    }

    /// How many of those that are asked are about more than one address (see [`Rules::first`]).
    pub fn patterns(&self, has: bool) -> usize {
        if has { self.forced.patterns.len() } else { self.all.patterns.len() }
    }

    /// Whether no rule is asked, where the site `has` something at an address or has not.
    pub fn asks_nothing(&self, has: bool) -> bool {
        let table = if has { &self.forced } else { &self.all };
        table.exact.is_empty() && table.patterns.is_empty()
    }

    /// The first rule about a decoded address, with its leading slash, of which `take` makes something. Where the site
    /// `has` something at the address, only those that are forced are asked.
    pub fn first<'a, T>(
        &self,
        address: &'a [u8],
        has: bool,
        mut take: impl FnMut(&Rule, Captures<'a>) -> Option<T>,
    ) -> Option<T> {
        if self.asks_nothing(has) {
            return None;
        }
        let table = if has { &self.forced } else { &self.all };
        let exact = table.exact.get(bare(address)).copied();
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

/// Names what the rules mean, whoever wrote them where.
fn digest(rules: &[Rule], fields: &Fields) -> Digest {
    let mut text = format!("{fields:?}");
    for rule in rules {
        // A pattern is what its source means to whoever reads it; one address is the same to all.
        let _ = write!(text, "\n{:?} {:?} {:?} {}", rule.source, rule.destination, rule.action, rule.force);
        if rule.pattern.exact().is_none() {
            let _ = write!(text, " {:?}", rule.pattern);
        }
    }
    Digest::of(text.as_bytes())
}

/// Two are the same if they mean the same.
impl PartialEq for Rules {
    fn eq(&self, other: &Rules) -> bool {
        self.digest == other.digest
    }
}

impl Eq for Rules {}

/// A digest is all that is shown: the tables have no order, and verdicts are kept under what this says.
impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = self.digest.as_ref().map(Digest::hex);
        f.debug_struct("Rules").field("digest", &digest).finish_non_exhaustive()
    }
}
