//! The plan of a query: what is looked for, and what each match is worth. `planner` makes it.
//!
//! A query becomes groups. A group is one word of the query, or one piece of a word that has several (`thread`,
//! `pool`), a symbol, or a phrase. It has variants: the word itself, its stems, the words that it is part of when
//! written together, synonyms, and what [`expand`](super::expand) finds. A section matches a group if it has one of the
//! variants, and the best one counts.

use std::collections::HashMap;

use tantivy::postings::TermInfo;

use crate::index::{IndexField, IndexSegment};

/// The maximum number of groups that a section must match. Further ones only change its score.
const MAX_REQUIRED_GROUPS: u32 = 32;
/// The maximum number of words of a phrase that are compared.
pub(super) const MAX_PHRASE_TERMS: usize = 32;

/// The groups that are looked for, and the words that results show because of them.
#[derive(Default)]
pub(super) struct QueryPlan {
    pub(super) groups: Vec<TermGroup>,
    /// The share of the query that a section must match to be among those that match all of it.
    pub(super) min_coverage: f32,
    /// Whether a word that must match is not in the index as it was typed.
    pub(super) has_unknown_words: bool,
    /// The words with typing errors and what they were replaced by, in the order of the query.
    pub(super) corrections: Vec<WordCorrection>,
    pub(super) highlights: Highlights,
}

/// A word, a piece of a word, a symbol or a phrase that is looked for.
pub(super) struct TermGroup {
    /// The number of the group among those that must match; `None` if it only changes the score.
    pub(super) required: Option<u32>,
    /// Whether the group is a phrase in quotes, which every result has.
    pub(super) is_phrase: bool,
    /// The factor of the score.
    pub(super) weight: f32,
    /// The inverse document frequency.
    pub(super) idf: f32,
    pub(super) variants: Vec<GroupVariant>,
    /// The words whose nearness to those of other groups counts.
    pub(super) words: Vec<String>,
}

/// One way to match a group.
pub(super) struct GroupVariant {
    pub(super) weight: f32,
    pub(super) matcher: VariantMatcher,
}

/// The condition under which a section matches a variant.
pub(super) enum VariantMatcher {
    /// One of these terms; more of them count more.
    Terms(Vec<FieldTerm>),
    /// These words in one field, each with its distance from the first one.
    Phrase(Vec<(u32, String)>),
}

/// A term of one field.
pub(super) struct FieldTerm {
    pub(super) field: TermField,
    pub(super) info: TermInfo,
}

/// The field of a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TermField {
    Body,
    Heading,
    Title,
    BodyStem,
    HeadingStem,
    TitleStem,
}

/// A word of the query that was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WordCorrection {
    /// The offsets of the word in bytes in the query.
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) text: String,
}

/// The words that are marked in excerpts, each with the number of its group.
#[derive(Debug, Default)]
pub(super) struct Highlights {
    pub(super) words: HashMap<String, usize>,
    pub(super) stems: HashMap<String, usize>,
}

impl QueryPlan {
    /// Returns the set of groups that must match, as bits.
    pub(super) fn required_mask(&self) -> u32 {
        mask_of(self.groups.iter())
    }

    /// Returns the set of phrases, as bits. No section without them is a result.
    pub(super) fn phrase_mask(&self) -> u32 {
        mask_of(self.groups.iter().filter(|group| group.is_phrase))
    }

    /// Gives the groups that must match their numbers. If there is none, all must match.
    pub(super) fn number_required_groups(&mut self) {
        let has_required = self.groups.iter().any(|group| group.required.is_some());
        let mut next = 0;
        for group in &mut self.groups {
            let is_required = group.required.is_some() || !has_required;
            group.required = (is_required && next < MAX_REQUIRED_GROUPS).then_some(next);
            next += u32::from(group.required.is_some());
        }
    }

    /// Returns the query with its unknown words replaced; `None` if there is no replacement.
    pub(super) fn correct(&self, text: &str) -> Option<String> {
        if self.corrections.is_empty() {
            return None;
        }
        let mut corrected = text.to_owned();
        // From the end, so that the offsets before stay right.
        for WordCorrection { start, end, text } in self.corrections.iter().rev() {
            if corrected.get(*start..*end).is_some() {
                corrected.replace_range(*start..*end, text);
            }
        }
        Some(corrected)
    }
}

fn mask_of<'g>(groups: impl Iterator<Item = &'g TermGroup>) -> u32 {
    groups.filter_map(|group| group.required).fold(0, |mask, number| mask | (1 << number))
}

/// Returns the field with the words and lengths of a term's field.
pub(super) fn field_of(segment: &IndexSegment, field: TermField) -> &IndexField {
    match field {
        TermField::Body | TermField::BodyStem => &segment.body,
        TermField::Heading | TermField::HeadingStem => &segment.heading,
        TermField::Title | TermField::TitleStem => &segment.title,
    }
}
