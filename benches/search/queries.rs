//! The queries: made from the entries of the index of a documentation, by rules and a seed, so that each run and each
//! engine gets the same ones; and the questions of `questions.tsv`.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::corpus::{Corpus, OpenCorpus, Target};
use crate::doc_index::{DocIndex, EntryMap, IndexEntry, has_few_pages};
use crate::sections::SectionMaps;
use crate::typo;
use crate::vocabulary::Vocabulary;

/// The questions, written by hand: corpus, question, and the places that answer it, separated by tabs and spaces.
const QUESTIONS: &str = include_str!("questions.tsv");
/// The number of letters and digits that a name has at least.
const MIN_NAME_CHARS: usize = 4;
/// The number of letters of a name that is searched by its parts, and of each part.
const MIN_SPLIT_CHARS: usize = 8;
const MIN_PART_CHARS: usize = 2;
/// The words of a term and of a phrase.
const MAX_TERM_WORDS: usize = 3;
const MIN_PHRASE_WORDS: usize = 3;
const MAX_PHRASE_WORDS: usize = 8;
/// The characters of terms and phrases in scripts without spaces.
const MIN_CJK_TERM_CHARS: usize = 2;
const MIN_CJK_PREFIX_CHARS: usize = 5;
const MIN_CJK_PHRASE_CHARS: usize = 6;
const MAX_CJK_PHRASE_CHARS: usize = 30;
/// The characters of a word that is cut, and those that are left at least.
const MIN_CUT_CHARS: usize = 8;
const MIN_CUT_LEFT: usize = 5;
/// Words that a reader who types a phrase may leave out.
const FUNCTION_WORDS: &[&str] =
    &["a", "an", "and", "as", "at", "by", "for", "from", "in", "into", "is", "of", "on", "or", "the", "to", "with"];

/// The kinds of queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum QueryKind {
    /// A name as the index has it, or its last part: `functools.lru_cache`, `lru_cache`.
    Identifier,
    /// The parts of a name as words: `thread pool executor`.
    Split,
    /// A term of the glossary or the index.
    Concept,
    /// The words of a title, half of them without articles and prepositions.
    Phrase,
    /// A name or a term whose last word is cut.
    Prefix,
    /// A name or a term with one error in one word.
    Typo,
    /// A question in whole words.
    Question,
}

impl QueryKind {
    pub(crate) const ALL: &[Self] =
        &[Self::Identifier, Self::Split, Self::Concept, Self::Phrase, Self::Prefix, Self::Typo, Self::Question];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Identifier => "identifier",
            Self::Split => "split",
            Self::Concept => "concept",
            Self::Phrase => "phrase",
            Self::Prefix => "prefix",
            Self::Typo => "typo",
            Self::Question => "question",
        }
    }

    /// The greatest number of queries of this kind in one corpus.
    fn max_queries(self) -> usize {
        match self {
            Self::Identifier => 40,
            Self::Concept | Self::Phrase => 35,
            Self::Split | Self::Prefix | Self::Typo => 25,
            Self::Question => usize::MAX,
        }
    }
}

/// A query and the places that answer it.
#[derive(Debug)]
pub(crate) struct Query {
    pub kind: QueryKind,
    pub text: String,
    pub targets: Vec<Target>,
}

/// Makes the queries of the given kinds.
pub(crate) fn make_queries(
    corpus: &OpenCorpus,
    kinds: &[QueryKind],
    sections: &mut SectionMaps,
) -> Result<Vec<Query>, String> {
    let index = DocIndex::read(corpus)?;
    let needs_vocabulary = kinds.contains(&QueryKind::Prefix) || kinds.contains(&QueryKind::Typo);
    let vocabulary = if needs_vocabulary { Vocabulary::read(corpus)? } else { Vocabulary::default() };
    let maker = QueryMaker { corpus: corpus.corpus, index: &index, vocabulary: &vocabulary };
    let mut queries = Vec::new();
    for &kind in kinds {
        if kind == QueryKind::Question {
            queries.extend(read_questions(corpus)?);
        } else {
            queries.extend(maker.make(kind, sections));
        }
    }
    Ok(queries)
}

/// A candidate: the entry that it comes from, and the text and places of the query.
struct Candidate<'a> {
    entry: &'a IndexEntry,
    text: String,
    targets: Vec<Target>,
}

struct QueryMaker<'a> {
    corpus: &'static Corpus,
    index: &'a DocIndex,
    vocabulary: &'a Vocabulary,
}

impl QueryMaker<'_> {
    /// Selects the queries of a kind: the first ones in the order of a hash of their entries.
    fn make(&self, kind: QueryKind, sections: &mut SectionMaps) -> Vec<Query> {
        let mut candidates = self.candidates(kind);
        candidates.retain(|candidate| has_few_pages(&candidate.targets));
        candidates.sort_by_cached_key(|candidate| compute_seed(self.corpus, kind, &candidate.entry.text));
        let (mut queries, mut texts) = (Vec::new(), HashSet::new());
        for candidate in candidates {
            if queries.len() == kind.max_queries() {
                break;
            }
            if texts.insert(candidate.text.clone()) {
                let mut targets = candidate.targets;
                self.index.add_targets_of(&candidate.entry.text, &mut targets);
                sections.add_definitions(&candidate.entry.text, &mut targets);
                queries.push(Query { kind, text: candidate.text, targets });
            }
        }
        queries
    }

    fn candidates(&self, kind: QueryKind) -> Vec<Candidate<'_>> {
        let DocIndex { names, terms, titles } = self.index;
        let has_names = !self.corpus.is_cjk();
        match kind {
            QueryKind::Identifier if has_names => {
                candidates_from(names, |entry| is_searched_name(&entry.text).then(|| entry.text.clone()))
            }
            QueryKind::Split if has_names => self.split_names(),
            QueryKind::Concept => candidates_from(terms, |entry| self.is_term(&entry.text).then(|| entry.text.clone())),
            QueryKind::Phrase => candidates_from(titles, |entry| self.phrase(entry)),
            QueryKind::Prefix => self.prefixes(),
            QueryKind::Typo if has_names => self.words().filter_map(|entry| self.with_typo(entry)).collect(),
            QueryKind::Identifier | QueryKind::Split | QueryKind::Typo | QueryKind::Question => Vec::new(),
        }
    }

    /// The names without dots and the terms.
    fn words(&self) -> impl Iterator<Item = &IndexEntry> {
        let names = self.index.names.entries().filter(move |entry| !self.corpus.is_cjk() && is_bare_name(&entry.text));
        names.chain(self.index.terms.entries().filter(move |entry| self.is_term(&entry.text)))
    }

    fn is_term(&self, text: &str) -> bool {
        if self.corpus.is_cjk() {
            return text.chars().all(|c| is_cjk(c) || c.is_alphanumeric())
                && text.chars().filter(|c| is_cjk(*c)).count() >= MIN_CJK_TERM_CHARS;
        }
        let is_word = |word: &str| word.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '/');
        text.split(' ').all(is_word) && text.split(' ').count() <= MAX_TERM_WORDS && text.len() >= MIN_NAME_CHARS - 1
    }

    fn phrase(&self, entry: &IndexEntry) -> Option<String> {
        let text = entry.text.to_lowercase().replace('"', "");
        let text = text.trim_end_matches(['.', '…', '?', '!']);
        if self.corpus.is_cjk() {
            let chars = text.chars().filter(|c| is_cjk(*c)).count();
            return (MIN_CJK_PHRASE_CHARS..=MAX_CJK_PHRASE_CHARS).contains(&chars).then(|| text.to_owned());
        }
        let words: Vec<&str> = text.split(' ').collect();
        if !(MIN_PHRASE_WORDS..=MAX_PHRASE_WORDS).contains(&words.len()) || entry.text == entry.text.to_uppercase() {
            return None;
        }
        let is_short = compute_seed(self.corpus, QueryKind::Phrase, text).is_multiple_of(2);
        let kept: Vec<&str> = words.iter().copied().filter(|word| !FUNCTION_WORDS.contains(word)).collect();
        Some(if is_short && kept.len() >= 2 { kept } else { words }.join(" "))
    }

    /// The parts of names. Names with the same parts are one query.
    fn split_names(&self) -> Vec<Candidate<'_>> {
        let mut candidates: Vec<Candidate> = Vec::new();
        let mut positions = std::collections::HashMap::new();
        for entry in self.index.names.entries().filter(|entry| is_bare_name(&entry.text)) {
            let parts = parts_of_name(&entry.text);
            let letters: usize = parts.iter().map(String::len).sum();
            let is_split = parts.len() > 1 && parts.iter().all(|part| part.len() >= MIN_PART_CHARS);
            // Names in capitals are constants, which nobody knows by their words.
            if !is_split || letters < MIN_SPLIT_CHARS || !entry.text.chars().any(|c| c.is_ascii_lowercase()) {
                continue;
            }
            let text = parts.join(" ");
            let position = *positions.entry(text.clone()).or_insert(candidates.len());
            match candidates.get_mut(position) {
                Some(candidate) => candidate.targets.extend(entry.targets.iter().cloned()),
                None => candidates.push(Candidate { entry, text, targets: entry.targets.clone() }),
            }
        }
        candidates
    }

    /// Cuts the last words of names and terms. All entries that begin so are right.
    fn prefixes(&self) -> Vec<Candidate<'_>> {
        let cut = |entry: &IndexEntry| {
            let (before, last) = entry.text.rsplit_once(' ').unwrap_or(("", entry.text.as_str()));
            let last = if self.corpus.is_cjk() { cut_cjk(last)? } else { cut_word(last)? };
            let is_unknown = self.corpus.is_cjk() || !self.vocabulary.has(&last);
            is_unknown.then(|| format!("{before} {last}").trim_start().to_owned())
        };
        let targets = |text: &str| {
            let start = text.to_lowercase();
            let mut targets = self.index.terms.targets_of_prefix(&start);
            if !self.corpus.is_cjk() {
                targets.extend(self.index.names.targets_of_prefix(&start));
            }
            targets
        };
        let texts = self.words().filter_map(|entry| Some((entry, cut(entry)?)));
        texts.map(|(entry, text)| Candidate { entry, targets: targets(&text), text }).collect()
    }

    fn with_typo<'a>(&self, entry: &'a IndexEntry) -> Option<Candidate<'a>> {
        let seed = compute_seed(self.corpus, QueryKind::Typo, &entry.text);
        let text = typo::add_typo(&entry.text, seed, self.vocabulary)?;
        Some(Candidate { entry, text, targets: entry.targets.clone() })
    }
}

/// The entries from which `make` makes the text of a query.
fn candidates_from(map: &EntryMap, make: impl Fn(&IndexEntry) -> Option<String>) -> Vec<Candidate<'_>> {
    let texts = map.entries().filter_map(|entry| Some((entry, make(entry)?)));
    texts.map(|(entry, text)| Candidate { entry, text, targets: entry.targets.clone() }).collect()
}

/// A number that depends on nothing but these values (FNV-1a, with the final steps of `SplitMix64`), so that a change
/// of one entry changes the selection of no other.
fn compute_seed(corpus: &Corpus, kind: QueryKind, text: &str) -> u64 {
    let bytes = [corpus.name, kind.name(), text].join("\0");
    let hash = bytes
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    typo::mix(hash)
}

/// Whether a name is one that readers search: long enough, and without signs other than those of names.
fn is_searched_name(text: &str) -> bool {
    text.chars().filter(char::is_ascii_alphanumeric).count() >= MIN_NAME_CHARS && !text.contains(['"', '(', '…'])
}

/// Whether a name is one word without signs.
fn is_bare_name(text: &str) -> bool {
    is_searched_name(text) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !text.starts_with('_')
}

pub(crate) fn is_cjk(c: char) -> bool {
    matches!(c, '\u{3041}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}')
}

/// The parts of a name in lower case: between underscores, at capitals, at the end of an acronym, between letters and
/// digits.
pub(crate) fn parts_of_name(name: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for piece in name.split('_').filter(|piece| !piece.is_empty()) {
        let chars: Vec<char> = piece.chars().collect();
        let mut start = 0;
        for at in 1..chars.len() {
            let (before, c) = (chars[at - 1], chars[at]);
            let is_capital = c.is_uppercase() && !before.is_uppercase();
            let ends_acronym =
                before.is_uppercase() && c.is_uppercase() && chars.get(at + 1).is_some_and(|c| c.is_lowercase());
            let is_number_edge = before.is_ascii_digit() != c.is_ascii_digit();
            if is_capital || ends_acronym || is_number_edge {
                parts.push(chars[start..at].iter().collect::<String>().to_lowercase());
                start = at;
            }
        }
        parts.push(chars[start..].iter().collect::<String>().to_lowercase());
    }
    parts
}

/// The first three fifths of a word.
fn cut_word(word: &str) -> Option<String> {
    let chars = word.chars().count();
    let is_word = word.chars().all(|c| c.is_alphanumeric() || c == '_');
    let kept = (chars * 3 / 5).max(MIN_CUT_LEFT);
    (is_word && chars >= MIN_CUT_CHARS).then(|| word.chars().take(kept).collect())
}

/// The first two thirds of a word in a script without spaces.
fn cut_cjk(word: &str) -> Option<String> {
    let chars = word.chars().count();
    (chars >= MIN_CJK_PREFIX_CHARS).then(|| word.chars().take(chars - chars / 3).collect())
}

fn read_questions(corpus: &OpenCorpus) -> Result<Vec<Query>, String> {
    let mut queries = Vec::new();
    for line in QUESTIONS.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let &[name, question, places] = fields.as_slice() else {
            return Err(format!("questions.tsv: not three fields: {line}"));
        };
        if name == corpus.corpus.name {
            queries.push(read_query(corpus, QueryKind::Question, question, places)?);
        }
    }
    Ok(queries)
}

/// Reads the queries of the given kinds for a corpus from a file as `--list` prints it: corpus, kind, query, and the
/// places that answer it, separated by tabs and spaces.
pub(crate) fn read_queries(file: &Path, corpus: &OpenCorpus, kinds: &[QueryKind]) -> Result<Vec<Query>, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let mut queries = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let &[name, kind, text, places] = fields.as_slice() else {
            return Err(format!("{}: not four fields: {line}", file.display()));
        };
        let kind = QueryKind::ALL.iter().copied().find(|known| known.name() == kind);
        let kind = kind.ok_or_else(|| format!("{}: no kind of query: {line}", file.display()))?;
        if name == corpus.corpus.name && kinds.contains(&kind) {
            queries.push(read_query(corpus, kind, text, places)?);
        }
    }
    Ok(queries)
}

fn read_query(corpus: &OpenCorpus, kind: QueryKind, text: &str, places: &str) -> Result<Query, String> {
    let targets: Vec<Target> = places.split(' ').filter_map(|place| Target::from_href(place, "")).collect();
    match targets.iter().find(|target| !corpus.pages.has(&target.page)) {
        Some(missing) => Err(format!("{text:?}: {} has no page {}", corpus.corpus.name, missing.page)),
        None => Ok(Query { kind, text: text.to_owned(), targets }),
    }
}
