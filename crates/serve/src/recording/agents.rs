//! The classes of visitors by their User-Agent: people, agents and crawlers of AI services, and other programs. Pure.
//!
//! The patterns are those of `agents.tsv`, whose first lines describe its rows, and those of the operator
//! ([`parse_patterns`]). A pattern of the operator has precedence over all others, then one of an AI service, then one
//! of another program. Of patterns of equal precedence, the longest that matches counts, because it is the most
//! specific one: the first in the User-Agent if there are several, and then the first of the file. If no pattern
//! matches, the words of programs are looked for, such as `bot`, and without any of them the visitor is a person.

mod class_cache;
mod operator_patterns;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aho_corasick::{AhoCorasick, MatchKind};

use docwharf_base::model::reader_activity::VisitorClass;

pub(crate) use class_cache::ClassCache;
pub use operator_patterns::{AgentPattern, PatternFault, PatternFaultReason, parse_patterns};

/// The built-in patterns.
const BUILT_IN_ROWS: &str = include_str!("agents.tsv");
/// The maximum number of bytes of a User-Agent that are looked at. Those of browsers have fewer than 300.
const MAX_EXAMINED_BYTES: usize = 1_024;
/// The name of a visitor without a User-Agent.
const NO_USER_AGENT: &str = "(none)";

/// The match of a person, who has no name.
const PERSON: AgentMatch = AgentMatch { class: VisitorClass::Human, name: None };

/// The generation of the next classifier.
static NEXT_GENERATION: AtomicU64 = AtomicU64::new(0);

/// The name of a program, as an index into the names of one classifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AgentName(u32);

/// The class of a visitor, and the name of the program if it is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentMatch {
    /// The class.
    pub class: VisitorClass,
    /// The name; `None` for a person. Only the classifier that has found the match knows it.
    pub name: Option<AgentName>,
}

/// Classifies visitors by their User-Agent.
pub struct AgentClassifier {
    /// Distinguishes this classifier from all others of the process.
    generation: u64,
    names: Vec<Arc<str>>,
    no_user_agent: AgentName,
    /// Finds the patterns of `rules`, which have the same indexes.
    rule_automaton: AhoCorasick,
    rules: Vec<Rule>,
    /// Finds the patterns of `words`, which have the same indexes.
    word_automaton: AhoCorasick,
    /// The name under which each word counts; `None` for an exception: a device name that contains a word.
    words: Vec<Option<AgentName>>,
}

/// The meaning of a pattern.
#[derive(Debug, Clone, Copy)]
struct Rule {
    precedence: Precedence,
    found: AgentMatch,
    /// Whether the pattern counts only where no letter stands before it. `RED/` would otherwise match `WIRED/`.
    needs_word_start: bool,
}

/// The precedence of patterns, in descending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Precedence {
    Operator,
    Ai,
    Bot,
}

impl AgentClassifier {
    /// Creates a classifier with the built-in patterns.
    pub fn built_in() -> AgentClassifier {
        AgentClassifier::with_patterns(&[])
    }

    /// Creates a classifier with the built-in patterns and these of the operator.
    pub fn with_patterns(extra: &[AgentPattern]) -> AgentClassifier {
        let mut names = NameTable::default();
        let no_user_agent = names.insert(NO_USER_AGENT);
        let (mut rule_texts, mut rules) = (Vec::new(), Vec::new());
        for AgentPattern { class, text } in extra {
            let name = (*class != VisitorClass::Human).then(|| names.insert(text));
            let found = AgentMatch { class: *class, name };
            rules.push(Rule { precedence: Precedence::Operator, found, needs_word_start: false });
            rule_texts.push(text.as_str());
        }
        let (mut word_texts, mut words) = (Vec::new(), Vec::new());
        for BuiltInRow { kind, name, pattern } in built_in_rows() {
            let (precedence, class) = match kind {
                RowKind::Ai => (Precedence::Ai, VisitorClass::Ai),
                RowKind::Bot => (Precedence::Bot, VisitorClass::Bot),
                RowKind::Word | RowKind::Exception => {
                    words.push((kind == RowKind::Word).then(|| names.insert(name)));
                    word_texts.push(pattern);
                    continue;
                }
            };
            let found = AgentMatch { class, name: Some(names.insert(name)) };
            let needs_word_start = pattern.starts_with(|c: char| c.is_ascii_alphabetic());
            rules.push(Rule { precedence, found, needs_word_start });
            rule_texts.push(pattern);
        }
        AgentClassifier {
            generation: NEXT_GENERATION.fetch_add(1, Ordering::Relaxed),
            names: names.names,
            no_user_agent,
            // All matches are needed, also those that overlap.
            rule_automaton: build_automaton(&rule_texts, MatchKind::Standard),
            rules,
            // The name of a device begins before the word in it, so that the word is passed over.
            word_automaton: build_automaton(&word_texts, MatchKind::LeftmostLongest),
            words,
        }
    }

    /// Returns the class and the name of the visitor with this User-Agent; an empty one is that of a program.
    pub fn classify(&self, user_agent: &[u8]) -> AgentMatch {
        let text = user_agent.get(..MAX_EXAMINED_BYTES).unwrap_or(user_agent).trim_ascii();
        if text.is_empty() {
            return AgentMatch { class: VisitorClass::Bot, name: Some(self.no_user_agent) };
        }
        self.find_rule(text).or_else(|| self.find_word(text)).unwrap_or(PERSON)
    }

    /// Returns the text of a name that this classifier has returned.
    pub fn name(&self, name: AgentName) -> &Arc<str> {
        &self.names[name.0 as usize]
    }

    fn find_rule(&self, text: &[u8]) -> Option<AgentMatch> {
        let is_after_letter = |start: usize| text[..start].last().is_some_and(u8::is_ascii_alphabetic);
        self.rule_automaton
            .find_overlapping_iter(text)
            .map(|found| (found, self.rules[found.pattern().as_usize()]))
            .filter(|(found, rule)| !(rule.needs_word_start && is_after_letter(found.start())))
            .min_by_key(|(found, rule)| {
                (rule.precedence, Reverse(found.len()), found.start(), found.pattern().as_usize())
            })
            .map(|(_, rule)| rule.found)
    }

    fn find_word(&self, text: &[u8]) -> Option<AgentMatch> {
        let is_before_letter = |end: usize| text.get(end).is_some_and(u8::is_ascii_alphabetic);
        self.word_automaton
            .find_iter(text)
            .filter(|found| !is_before_letter(found.end()))
            .find_map(|found| self.words[found.pattern().as_usize()])
            .map(|name| AgentMatch { class: VisitorClass::Bot, name: Some(name) })
    }
}

impl fmt::Debug for AgentClassifier {
    /// Writes the number of patterns, and not each of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentClassifier")
            .field("generation", &self.generation)
            .field("rules", &self.rules.len())
            .finish_non_exhaustive()
    }
}

/// The distinct names of a classifier.
#[derive(Debug, Default)]
struct NameTable {
    names: Vec<Arc<str>>,
    indexes: HashMap<Arc<str>, AgentName>,
}

impl NameTable {
    fn insert(&mut self, name: &str) -> AgentName {
        if let Some(index) = self.indexes.get(name) {
            return *index;
        }
        let index = AgentName(self.names.len() as u32);
        let name = Arc::<str>::from(name);
        self.names.push(Arc::clone(&name));
        self.indexes.insert(name, index);
        index
    }
}

fn build_automaton(patterns: &[&str], match_kind: MatchKind) -> AhoCorasick {
    AhoCorasick::builder()
        .match_kind(match_kind)
        .ascii_case_insensitive(true)
        .build(patterns)
        .expect("the length of all patterns is bounded far below the number of states that an automaton may have")
}

/// A row of `agents.tsv`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BuiltInRow {
    kind: RowKind,
    name: &'static str,
    pattern: &'static str,
}

/// The first column of `agents.tsv`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowKind {
    Ai,
    Bot,
    Word,
    Exception,
}

/// Returns the rows of `agents.tsv`. A test makes sure that none of them is malformed.
fn built_in_rows() -> impl Iterator<Item = BuiltInRow> {
    row_lines().filter_map(parse_row)
}

/// Returns the lines of `agents.tsv` that are rows.
fn row_lines() -> impl Iterator<Item = &'static str> {
    BUILT_IN_ROWS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn parse_row(line: &'static str) -> Option<BuiltInRow> {
    let mut columns = line.split('\t');
    let (kind, name, pattern) = (columns.next()?, columns.next()?, columns.next()?);
    let kind = match kind {
        "ai" => RowKind::Ai,
        "bot" => RowKind::Bot,
        "word" => RowKind::Word,
        "except" => RowKind::Exception,
        _ => return None,
    };
    let is_complete = !name.is_empty() && !pattern.is_empty() && columns.next().is_none();
    is_complete.then_some(BuiltInRow { kind, name, pattern })
}
