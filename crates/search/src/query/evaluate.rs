//! Evaluates a plan: which sections match which groups, and how well.
//!
//! The terms are read one after the other, and their contributions are added up in arrays with one number for each
//! section. That takes a few nanoseconds for each occurrence, whatever the words are, and all tiers of the ranking come
//! from one pass: a section that matches every group, and one that matches some.
//!
//! The contribution of a term is that of BM25: the more often it occurs, the larger, with a limit, and the longer the
//! field, the smaller. The fields of one variant add up, and of the variants of a group the best one counts.

use std::io;

use tantivy::schema::IndexRecordOption;

use crate::index::IndexSegment;

use super::clock::QueryClock;
use super::phrase::find_phrase;
use super::plan::{FieldTerm, GroupVariant, QueryPlan, TermField, VariantMatcher, field_of};

/// The parameter `k1` of BM25: the larger it is, the more do further occurrences of a term count.
const BM25_K1: f32 = 1.2;
/// The parameter `b` of BM25: from 0, if the length of a field does not count, to 1.
const BM25_B: f32 = 0.75;
/// The factors of the fields.
const BODY_WEIGHT: f32 = 1.0;
const HEADING_WEIGHT: f32 = 4.0;
const TITLE_WEIGHT: f32 = 2.0;

/// The scores of all sections for a plan.
#[derive(Debug, Default)]
pub(super) struct SectionScores {
    /// The sum of the scores of the groups that match.
    pub(super) totals: Vec<f32>,
    /// The groups that match of those that must, as bits.
    pub(super) masks: Vec<u32>,
    /// The groups that have been looked for of those that must match, as bits: all, unless the time was over before.
    pub(super) evaluated: u32,
}

/// The part of BM25 that depends on the length of a field, for each length that the index can store:
/// `k1 * (1 - b + b * length / average length)`.
pub(super) struct LengthFactors([f32; 256]);

impl LengthFactors {
    fn new(average_length: f32) -> LengthFactors {
        let factor = |id: u8| {
            let length = tantivy::fieldnorm::FieldNormReader::id_to_fieldnorm(id) as f32;
            BM25_K1 * (1.0 - BM25_B + BM25_B * length / average_length)
        };
        let mut factors = [0.0; 256];
        for (id, value) in (0..=u8::MAX).zip(&mut factors) {
            *value = factor(id);
        }
        LengthFactors(factors)
    }

    /// Returns the value of a frequency in a field with this length, from 0 to 1.
    fn rate(&self, frequency: f32, length_id: u8) -> f32 {
        frequency / (frequency + self.0[usize::from(length_id)])
    }
}

/// Returns the factor of a field.
fn field_weight(field: TermField) -> f32 {
    match field {
        TermField::Body | TermField::BodyStem => BODY_WEIGHT,
        TermField::Heading | TermField::HeadingStem => HEADING_WEIGHT,
        TermField::Title | TermField::TitleStem => TITLE_WEIGHT,
    }
}

/// Evaluates plans on one index.
pub(super) struct Evaluator<'a> {
    segment: &'a IndexSegment,
    body: LengthFactors,
    heading: LengthFactors,
    title: LengthFactors,
}

/// An array of scores, and the sections whose score is not 0.
struct SparseScores {
    scores: Vec<f32>,
    sections: Vec<u32>,
}

impl SparseScores {
    fn new(len: usize) -> SparseScores {
        SparseScores { scores: vec![0.0; len], sections: Vec::new() }
    }

    fn slot(&mut self, section: u32) -> Option<&mut f32> {
        let score = self.scores.get_mut(section as usize)?;
        if *score <= 0.0 {
            self.sections.push(section);
        }
        Some(score)
    }

    fn add(&mut self, section: u32, value: f32) {
        if let Some(score) = self.slot(section) {
            *score += value;
        }
    }

    fn raise(&mut self, section: u32, value: f32) {
        if let Some(score) = self.slot(section) {
            *score = score.max(value);
        }
    }

    /// Passes all scores to `each` and sets them to 0.
    fn drain(&mut self, mut each: impl FnMut(u32, f32)) {
        for section in self.sections.drain(..) {
            if let Some(score) = self.scores.get_mut(section as usize) {
                each(section, std::mem::take(score));
            }
        }
    }
}

impl<'a> Evaluator<'a> {
    pub(super) fn new(segment: &'a IndexSegment) -> Evaluator<'a> {
        let factors = |field: TermField| LengthFactors::new(field_of(segment, field).average_length);
        Evaluator {
            segment,
            body: factors(TermField::Body),
            heading: factors(TermField::Heading),
            title: factors(TermField::Title),
        }
    }

    /// Computes the scores of all sections. After the time is over, the rest of the plan is left out, and of the last
    /// group that was looked for some sections are missing.
    pub(super) fn evaluate(&self, plan: &QueryPlan, clock: &mut QueryClock) -> io::Result<SectionScores> {
        let sections = self.segment.page_of_section.len();
        let mut scores = SectionScores { totals: vec![0.0; sections], masks: vec![0; sections], evaluated: 0 };
        let (mut of_group, mut of_variant) = (SparseScores::new(sections), SparseScores::new(sections));
        for group in &plan.groups {
            for variant in &group.variants {
                self.evaluate_variant(variant, &mut of_variant, clock)?;
                of_variant.drain(|section, score| of_group.raise(section, score));
                if clock.is_over() {
                    break;
                }
            }
            let (factor, bit) = (group.idf * group.weight, group.required.map_or(0, |number| 1 << number));
            of_group.drain(|section, score| {
                scores.totals[section as usize] += score * factor;
                scores.masks[section as usize] |= bit;
            });
            scores.evaluated |= bit;
            if clock.is_over() {
                break;
            }
        }
        Ok(scores)
    }

    fn evaluate_variant(
        &self,
        variant: &GroupVariant,
        scores: &mut SparseScores,
        clock: &mut QueryClock,
    ) -> io::Result<()> {
        match &variant.matcher {
            VariantMatcher::Terms(terms) => {
                for term in terms {
                    self.add_term(term, variant.weight, scores, clock)?;
                    if clock.is_over() {
                        break;
                    }
                }
            }
            VariantMatcher::Phrase(words) => {
                for field in [TermField::Body, TermField::Heading, TermField::Title] {
                    let weight = variant.weight * field_weight(field);
                    let (factors, lengths) = (self.factors(field), &field_of(self.segment, field).lengths);
                    find_phrase(&field_of(self.segment, field).words, words, clock, |section, count| {
                        scores.add(section, weight * factors.rate(count as f32, lengths.fieldnorm_id(section)));
                    })?;
                }
            }
        }
        Ok(())
    }

    fn add_term(
        &self,
        term: &FieldTerm,
        weight: f32,
        scores: &mut SparseScores,
        clock: &mut QueryClock,
    ) -> io::Result<()> {
        let field = field_of(self.segment, term.field);
        let reader = match term.field {
            TermField::Body | TermField::Heading | TermField::Title => &field.words,
            TermField::BodyStem | TermField::HeadingStem | TermField::TitleStem => &field.stems,
        };
        let (factors, weight) = (self.factors(term.field), weight * field_weight(term.field));
        let mut block = reader.read_block_postings_from_terminfo(&term.info, IndexRecordOption::WithFreqs)?;
        while !block.docs().is_empty() {
            for (&section, &frequency) in block.docs().iter().zip(block.freqs()) {
                let length = field.lengths.fieldnorm_id(section);
                scores.add(section, weight * factors.rate(frequency as f32, length));
            }
            if clock.advance(block.block_len()) {
                break;
            }
            block.advance();
        }
        Ok(())
    }

    fn factors(&self, field: TermField) -> &LengthFactors {
        match field {
            TermField::Body | TermField::BodyStem => &self.body,
            TermField::Heading | TermField::HeadingStem => &self.heading,
            TermField::Title | TermField::TitleStem => &self.title,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_occurrences_in_shorter_fields_are_worth_more_up_to_a_limit() {
        let factors = LengthFactors::new(10.0);
        assert!(factors.rate(2.0, 10) > factors.rate(1.0, 10));
        assert!(factors.rate(1.0, 5) > factors.rate(1.0, 10));
        assert!(factors.rate(1000.0, 255) < 1.0 && factors.rate(1e9, 0) <= 1.0);
        assert!((factors.rate(1.0, 10) - 1.0 / (1.0 + BM25_K1)).abs() < 1e-6);
    }

    #[test]
    fn sparse_scores_add_up_or_keep_the_best_and_are_empty_after_draining() {
        let mut scores = SparseScores::new(3);
        scores.add(1, 1.0);
        scores.add(1, 2.0);
        scores.raise(2, 5.0);
        scores.raise(2, 4.0);
        scores.add(9, 1.0);
        let mut drained = Vec::new();
        scores.drain(|section, score| drained.push((section, score.to_string())));
        assert_eq!(drained, [(1, "3".to_owned()), (2, "5".to_owned())]);
        scores.drain(|_, _| panic!("nothing is left"));
        assert!(scores.scores.iter().all(|score| *score <= 0.0));
    }
}
