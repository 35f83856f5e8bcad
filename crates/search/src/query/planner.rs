//! Makes the plan of a query.

use std::io;

use crate::analyze::{ParsedQuery, QuerySymbol, QueryWord, Stemmer, SynonymTable, phrase_terms};
use crate::index::{IndexSegment, has_sign};

use super::clock::QueryClock;
use super::expand::{Expansion, expand_errors, expand_prefix};
use super::group_builder::{GroupBuilder, GroupSources, QueryTerm};
use super::plan::{GroupVariant, Highlights, MAX_PHRASE_TERMS, QueryPlan, TermGroup, VariantMatcher, WordCorrection};

/// The maximum number of groups of a query. Further words are ignored.
const MAX_GROUPS: usize = 48;

/// The weight of a match by the only piece of a word: `init` for `__init__`.
const PIECE_WEIGHT: f32 = 0.5;
/// The weight of a match by the beginning of a word, if the beginning is a word itself.
const PREFIX_WEIGHT: f32 = 0.4;
/// The weight of a match by the beginning of a word, if the beginning is no word.
const UNKNOWN_PREFIX_WEIGHT: f32 = 0.8;
/// The weights of matches with no typing error, with one and with two.
const ERROR_WEIGHTS: [f32; 3] = [1.0, 0.7, 0.45];
/// The weight of the group of a question word, which need not match.
const QUESTION_WORD_WEIGHT: f32 = 0.2;
/// The number of question words, and of groups that must match, from which on a question need not match whole.
const MIN_QUESTION_WORDS: usize = 2;
const MIN_QUESTION_GROUPS: u32 = 3;
/// The share of such a question that a section must match.
const QUESTION_COVERAGE: f32 = 0.6;
/// The weight of a word with pieces in addition to them, and of a symbol in addition to its words.
const WHOLE_WEIGHT: f32 = 1.0;

/// Makes plans for one query.
pub(super) struct Planner<'a> {
    text: &'a str,
    query: &'a ParsedQuery,
    pub(super) sources: GroupSources<'a>,
    /// Whether unknown words are also replaced by those that differ by typing errors.
    pub(super) allows_errors: bool,
}

impl<'a> Planner<'a> {
    pub(super) fn new(
        segment: &'a IndexSegment,
        text: &'a str,
        query: &'a ParsedQuery,
        synonyms: &'a SynonymTable,
        stemmers: Vec<Stemmer>,
    ) -> Planner<'a> {
        let (synonyms, joined) = (synonyms.find(query), query.joined_words());
        let sources = GroupSources { segment, synonyms, joined, stemmers };
        Planner { text, query, sources, allows_errors: false }
    }

    /// Makes the plan. After the time is over, expansions may be missing.
    pub(super) fn plan(&self, clock: &mut QueryClock) -> io::Result<QueryPlan> {
        let mut plan = QueryPlan::default();
        for phrase in self.query.phrases.iter().take(MAX_GROUPS) {
            self.add_phrase(&mut plan, phrase)?;
        }
        for (index, word) in self.query.words.iter().enumerate() {
            if plan.groups.len() >= MAX_GROUPS {
                break;
            }
            self.add_word(&mut plan, index, word, clock)?;
        }
        for symbol in self.query.symbols.iter().filter(|symbol| !symbol.is_suffix && has_sign(&symbol.text)) {
            self.add_symbol(&mut plan, symbol, clock)?;
        }
        plan.number_required_groups();
        plan.min_coverage = self.min_coverage(&plan);
        Ok(plan)
    }

    /// The words of a question are the reader's and not those of the page: a long one need not match whole.
    fn min_coverage(&self, plan: &QueryPlan) -> f32 {
        let groups = plan.required_mask().count_ones();
        let is_question = self.query.words.iter().filter(|word| word.is_question_word).count() >= MIN_QUESTION_WORDS;
        if is_question && groups >= MIN_QUESTION_GROUPS { QUESTION_COVERAGE } else { 1.0 }
    }

    fn add_word(&self, plan: &mut QueryPlan, index: usize, word: &QueryWord, clock: &mut QueryClock) -> io::Result<()> {
        let written = self.text.get(word.start as usize..word.end as usize).unwrap_or_default();
        let is_required = !word.is_question_word;
        let weight = if is_required { 1.0 } else { QUESTION_WORD_WEIGHT };
        let is_prefix = word.is_prefix;
        let is_marked = is_required;
        let whole =
            QueryTerm { text: &word.text, word: Some(index), written, is_prefix, is_required, is_marked, weight };
        if word.pieces.len() < 2 {
            let piece = word.pieces.first().map(String::as_str);
            return self.add_term(plan, &whole, piece, clock);
        }
        // The pieces must match, and the whole word counts in addition: a section that has it has the pieces too.
        let last = word.pieces.len() - 1;
        let corrections = plan.corrections.len();
        for (number, piece) in word.pieces.iter().enumerate() {
            let term = QueryTerm { text: piece, written: "", is_prefix: is_prefix && number == last, ..whole };
            self.add_term(plan, &term, None, clock)?;
        }
        let of_pieces = plan.corrections.split_off(corrections);
        self.add_term(plan, &QueryTerm { is_required: false, weight: WHOLE_WEIGHT, ..whole }, None, clock)?;
        // What the whole word was replaced by says more than what a piece was replaced by.
        if plan.corrections.len() == corrections {
            plan.corrections.extend(of_pieces.into_iter().next().map(|correction| {
                let pieces = word.pieces.iter().map(String::as_str);
                let text = replace_piece(&word.text, pieces, &correction.text);
                WordCorrection { text, ..correction }
            }));
        }
        Ok(())
    }

    fn add_symbol(&self, plan: &mut QueryPlan, symbol: &QuerySymbol, clock: &mut QueryClock) -> io::Result<()> {
        // A name with dots is found by its words, too; `c++` and `--flag` are not.
        let is_dotted = symbol.text.chars().skip(1).any(|c| matches!(c, '.' | ':'));
        let is_known = self.sources.segment.body.words.terms().get(&symbol.text)?.is_some();
        let term = QueryTerm {
            text: &symbol.text,
            word: None,
            written: "",
            is_prefix: symbol.is_prefix,
            is_required: is_known && !is_dotted,
            is_marked: true,
            weight: WHOLE_WEIGHT,
        };
        self.add_term(plan, &term, None, clock)
    }

    fn add_phrase(&self, plan: &mut QueryPlan, phrase: &[QueryWord]) -> io::Result<()> {
        let terms = phrase_terms(phrase);
        let terms: Vec<(u32, String)> = terms
            .into_iter()
            .take(MAX_PHRASE_TERMS)
            .map(|(distance, text)| (distance as u32, text.to_owned()))
            .collect();
        let group = plan.groups.len();
        let mut idf = 0.0;
        for (_, text) in &terms {
            idf += self.compute_idf(self.sources.doc_freq(text)?);
            plan.highlights.words.insert(text.clone(), group);
        }
        let matcher = match terms.as_slice() {
            [(_, only)] => VariantMatcher::Terms(self.sources.find_terms(only)?),
            _ => VariantMatcher::Phrase(terms),
        };
        let variants = vec![GroupVariant { weight: 1.0, matcher }];
        let (required, words) = (Some(0), Vec::new());
        plan.groups.push(TermGroup { required, is_phrase: true, weight: 1.0, idf, variants, words });
        Ok(())
    }

    /// Adds the group of a term. `piece` is the only piece of the word.
    fn add_term(
        &self,
        plan: &mut QueryPlan,
        term: &QueryTerm<'_>,
        piece: Option<&str>,
        clock: &mut QueryClock,
    ) -> io::Result<()> {
        let mut group = GroupBuilder::new(&self.sources, plan.groups.len());
        let mut unmarked = Highlights::default();
        let highlights = if term.is_marked { &mut plan.highlights } else { &mut unmarked };
        let mut words = Vec::new();
        let is_exact = group.add_text(term.text, 1.0, highlights)?;
        if is_exact {
            words.push(term.text.to_owned());
        }
        group.add_stems(term, highlights)?;
        let is_known = !group.variants.is_empty();
        let known_freq = group.doc_freq;
        if let Some(piece) = piece {
            group.add_text(piece, PIECE_WEIGHT, highlights)?;
        }
        if let Some(word) = term.word {
            group.add_joined(word, highlights)?;
            group.add_synonyms(word, highlights)?;
        }
        if term.is_prefix || (!is_known && self.allows_errors) {
            let weight = if is_known { PREFIX_WEIGHT } else { UNKNOWN_PREFIX_WEIGHT };
            let expansions = expand_prefix(&self.sources.segment.body.words, term.text, clock)?;
            group.add_expansions(&expansions, |_| weight, highlights)?;
        }
        if !is_known && self.allows_errors {
            let expansions = expand_errors(&self.sources.segment.body.words, term.text, clock)?;
            let weight = |expansion: &Expansion| ERROR_WEIGHTS[expansion.distance.min(ERROR_WEIGHTS.len() - 1)];
            let has_other = !group.variants.is_empty();
            group.add_expansions(&expansions, weight, highlights)?;
            words.extend(expansions.iter().take(2).map(|expansion| expansion.text.clone()));
            let place = term.word.and_then(|word| self.query.words.get(word));
            if let (Some(best), Some(word), false) = (expansions.first(), place, has_other) {
                let (start, end) = (word.start as usize, word.end as usize);
                plan.corrections.push(WordCorrection { start, end, text: best.text.clone() });
            }
        }
        let GroupBuilder { variants, doc_freq, .. } = group;
        if term.is_required {
            plan.has_unknown_words |= !is_known;
        } else if variants.is_empty() {
            return Ok(());
        }
        // How rare the word itself is counts, and not how rare the words are that it may stand for.
        let idf = self.compute_idf(if is_known { known_freq } else { doc_freq });
        let required = term.is_required.then_some(0);
        plan.groups.push(TermGroup { required, is_phrase: false, weight: term.weight, idf, variants, words });
        Ok(())
    }

    fn compute_idf(&self, doc_freq: u32) -> f32 {
        let (sections, doc_freq) = (self.sources.segment.page_of_section.len() as f32, doc_freq as f32);
        (1.0 + ((sections - doc_freq).max(0.0) + 0.5) / (doc_freq + 0.5)).ln()
    }
}

/// Replaces the piece of a word that is nearest to `replacement` in length and beginning.
fn replace_piece<'p>(word: &str, pieces: impl Iterator<Item = &'p str>, replacement: &str) -> String {
    let first = replacement.chars().next();
    let piece = pieces.filter(|piece| piece.chars().next() == first && *piece != replacement);
    let nearest = piece.min_by_key(|piece| piece.len().abs_diff(replacement.len()));
    nearest.map_or_else(|| word.to_owned(), |piece| word.replacen(piece, replacement, 1))
}
