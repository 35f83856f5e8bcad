//! The variants of one group of a plan.

use std::io;
use std::sync::Arc;

use tantivy::InvertedIndexReader;

use crate::analyze::{JoinedWords, Stemmer, Synonym, SynonymMatch};
use crate::index::IndexSegment;

use super::expand::Expansion;
use super::plan::{FieldTerm, GroupVariant, Highlights, MAX_PHRASE_TERMS, TermField, VariantMatcher};

/// The weight of a match by a stem.
const STEM_WEIGHT: f32 = 0.75;
/// The weight of a match by adjacent words written together.
const JOINED_WEIGHT: f32 = 0.9;
/// The weight of a match by a synonym.
const SYNONYM_WEIGHT: f32 = 0.5;

/// A word, a piece of a word, or a symbol for which there is a group.
pub(super) struct QueryTerm<'q> {
    pub(super) text: &'q str,
    /// The index of the word in the query; `None` for what belongs to no word outside phrases.
    pub(super) word: Option<usize>,
    /// The text as it was typed, for stems; empty for pieces.
    pub(super) written: &'q str,
    pub(super) is_prefix: bool,
    pub(super) is_required: bool,
    /// Whether excerpts show the matches. Those of question words (`a`, `the`, `how`) say nothing about a page.
    pub(super) is_marked: bool,
    pub(super) weight: f32,
}

/// The sources from which the variants of all groups of a query are made.
pub(super) struct GroupSources<'a> {
    pub(super) segment: &'a IndexSegment,
    pub(super) synonyms: Vec<SynonymMatch<'a>>,
    pub(super) joined: Vec<JoinedWords>,
    pub(super) stemmers: Vec<Stemmer>,
}

impl GroupSources<'_> {
    /// Returns the number of sections with a word.
    pub(super) fn doc_freq(&self, text: &str) -> io::Result<u32> {
        Ok(self.segment.body.words.terms().get(text)?.map_or(0, |info| info.doc_freq))
    }

    /// Returns a word as terms of all fields with words.
    pub(super) fn find_terms(&self, text: &str) -> io::Result<Vec<FieldTerm>> {
        let segment = self.segment;
        let fields = [
            (TermField::Body, &segment.body.words),
            (TermField::Heading, &segment.heading.words),
            (TermField::Title, &segment.title.words),
        ];
        find_in_fields(&fields, text)
    }

    /// Returns a stem as terms of all fields with stems.
    fn find_stem_terms(&self, stem: &str) -> io::Result<Vec<FieldTerm>> {
        let segment = self.segment;
        let fields = [
            (TermField::BodyStem, &segment.body.stems),
            (TermField::HeadingStem, &segment.heading.stems),
            (TermField::TitleStem, &segment.title.stems),
        ];
        find_in_fields(&fields, stem)
    }
}

fn find_in_fields(fields: &[(TermField, &Arc<InvertedIndexReader>)], text: &str) -> io::Result<Vec<FieldTerm>> {
    let mut terms = Vec::new();
    for (field, reader) in fields {
        if let Some(info) = reader.terms().get(text)? {
            terms.push(FieldTerm { field: *field, info });
        }
    }
    Ok(terms)
}

/// Collects the variants of a group.
pub(super) struct GroupBuilder<'s, 'a> {
    sources: &'s GroupSources<'a>,
    number: usize,
    pub(super) variants: Vec<GroupVariant>,
    /// The number of sections with the most frequent variant. It counts for all variants, because a rare word that the
    /// reader did not type must not count more than a frequent one.
    pub(super) doc_freq: u32,
}

impl<'s, 'a> GroupBuilder<'s, 'a> {
    /// Creates a group with this number in the plan.
    pub(super) fn new(sources: &'s GroupSources<'a>, number: usize) -> GroupBuilder<'s, 'a> {
        GroupBuilder { sources, number, variants: Vec::new(), doc_freq: 0 }
    }

    fn add_terms(&mut self, terms: Vec<FieldTerm>, weight: f32) -> bool {
        let is_found = !terms.is_empty();
        if is_found {
            let most = terms.iter().map(|term| term.info.doc_freq).max().unwrap_or_default();
            self.doc_freq = self.doc_freq.max(most);
            self.variants.push(GroupVariant { weight, matcher: VariantMatcher::Terms(terms) });
        }
        is_found
    }

    /// Adds a word. Returns whether it is in the index.
    pub(super) fn add_text(&mut self, text: &str, weight: f32, highlights: &mut Highlights) -> io::Result<bool> {
        let terms = self.sources.find_terms(text)?;
        if !terms.is_empty() {
            highlights.words.entry(text.to_owned()).or_insert(self.number);
        }
        Ok(self.add_terms(terms, weight))
    }

    pub(super) fn add_stems(&mut self, term: &QueryTerm<'_>, highlights: &mut Highlights) -> io::Result<()> {
        let mut known: Vec<String> = Vec::new();
        for stemmer in &self.sources.stemmers {
            let stems = [Some(stemmer.stem(term.text).into_owned()), stemmer.stem_as_written(term.written)];
            for stem in stems.into_iter().flatten() {
                if known.contains(&stem) {
                    continue;
                }
                let mut terms = self.sources.find_stem_terms(&stem)?;
                if stem != term.text {
                    terms.extend(self.sources.find_terms(&stem)?);
                }
                if self.add_terms(terms, STEM_WEIGHT) {
                    highlights.stems.entry(stem.clone()).or_insert(self.number);
                }
                known.push(stem);
            }
        }
        Ok(())
    }

    /// Adds the words that the word with this index is part of when written together.
    pub(super) fn add_joined(&mut self, word: usize, highlights: &mut Highlights) -> io::Result<()> {
        for joined in &self.sources.joined {
            if (joined.first..joined.first + joined.count).contains(&word) {
                for text in [&joined.text, &joined.snake_case] {
                    self.add_text(text, JOINED_WEIGHT, highlights)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn add_synonyms(&mut self, word: usize, highlights: &mut Highlights) -> io::Result<()> {
        for found in &self.sources.synonyms {
            if !(found.first..found.first + found.count).contains(&word) {
                continue;
            }
            for synonym in &found.alternatives {
                match synonym {
                    Synonym::Symbol(text) => {
                        self.add_text(text, SYNONYM_WEIGHT, highlights)?;
                    }
                    Synonym::Words(words) => self.add_synonym_words(words, highlights)?,
                }
            }
        }
        Ok(())
    }

    fn add_synonym_words(&mut self, words: &[String], highlights: &mut Highlights) -> io::Result<()> {
        if let [only] = words {
            let term = QueryTerm {
                text: only,
                word: None,
                written: "",
                is_prefix: false,
                is_required: false,
                is_marked: true,
                weight: SYNONYM_WEIGHT,
            };
            let first = self.variants.len();
            self.add_text(only, SYNONYM_WEIGHT, highlights)?;
            self.add_stems(&term, highlights)?;
            for variant in &mut self.variants[first..] {
                variant.weight = variant.weight.min(SYNONYM_WEIGHT);
            }
            return Ok(());
        }
        let mut least = u32::MAX;
        for word in words {
            least = least.min(self.sources.doc_freq(word)?);
        }
        // A phrase of words that are not all in the index is found nowhere.
        if least > 0 {
            for word in words {
                highlights.words.entry(word.clone()).or_insert(self.number);
            }
            let phrase = (0..).zip(words.iter().cloned()).take(MAX_PHRASE_TERMS).collect();
            self.doc_freq = self.doc_freq.max(least);
            self.variants.push(GroupVariant { weight: SYNONYM_WEIGHT, matcher: VariantMatcher::Phrase(phrase) });
        }
        Ok(())
    }

    pub(super) fn add_expansions(
        &mut self,
        expansions: &[Expansion],
        weight: impl Fn(&Expansion) -> f32,
        highlights: &mut Highlights,
    ) -> io::Result<()> {
        for expansion in expansions {
            self.add_text(&expansion.text, weight(expansion), highlights)?;
        }
        Ok(())
    }
}
