//! Sections of which the query is a name.

use std::collections::HashMap;
use std::io;

use tantivy::InvertedIndexReader;
use tantivy::schema::IndexRecordOption;

use crate::analyze::{ParsedQuery, QueryWord, Stemmer, TokenKind};
use crate::index::{IndexSegment, MAX_STRENGTH, exact_key, pieces_key, split_into_pieces};

use super::clock::QueryClock;

/// The maximum strength of a name that is equal to the pieces of the query only.
const MAX_PIECES_STRENGTH: u32 = 2;
/// The maximum strength of a name that is equal to the stems of the query only.
const MAX_STEMS_STRENGTH: u32 = 1;
/// The maximum strength of a name that is equal to the query without its question words.
const MAX_QUESTION_STRENGTH: u32 = 5;
/// The minimum length in characters of the beginning of a name.
const MIN_PREFIX_CHARS: usize = 3;
/// The maximum number of names that begin with the query, and of the sections that they name.
const MAX_PREFIX_NAMES: usize = 64;
const MAX_PREFIX_SECTIONS: usize = 2000;
/// The score of the beginning of a name, for each unit of the strength of the name.
const PREFIX_WEIGHT: f32 = 3.0;

/// The sections that have the query as a name.
#[derive(Debug, Default)]
pub(super) struct NameMatches {
    /// For each section the strength of the name that is equal to the query, from 1 to [`MAX_STRENGTH`]; 0 without such
    /// a name. Empty if no section has one.
    strengths: Vec<u8>,
    /// The sections with a name that begins with the query, and the scores of that, in the order of the sections.
    prefix_scores: Vec<(u32, f32)>,
}

impl NameMatches {
    /// Finds the names. `text` is the query as it was typed.
    ///
    /// A query with a phrase in quotes is compared with whole names and their pieces only: stems are other words, and
    /// what is left of it without its question words lacks the phrase.
    pub(super) fn find(
        segment: &IndexSegment,
        text: &str,
        query: &ParsedQuery,
        stemmers: &[Stemmer],
        clock: &mut QueryClock,
    ) -> io::Result<NameMatches> {
        let mut finder = NameFinder { segment, exact: Vec::new(), prefix_scores: HashMap::new() };
        let typed = exact_key(text);
        finder.add_exact(typed.as_deref(), MAX_STRENGTH, clock)?;
        let pieces = split_into_pieces(text);
        finder.add_exact(pieces_key(&pieces).as_deref(), MAX_PIECES_STRENGTH, clock)?;
        if query.phrases.is_empty() {
            for stemmer in stemmers {
                let stems: Vec<String> = pieces.iter().map(|piece| stemmer.stem(piece).into_owned()).collect();
                finder.add_exact(pieces_key(&stems).as_deref(), MAX_STEMS_STRENGTH, clock)?;
            }
            if query.words.iter().any(|word| word.is_question_word) {
                let rest = query.words.iter().filter(|word| !word.is_question_word);
                let rest: Vec<&str> = rest.map(|word| word.text.as_str()).collect();
                finder.add_exact(exact_key(&rest.join(" ")).as_deref(), MAX_QUESTION_STRENGTH, clock)?;
            }
            // The last word of a script without spaces is never known to be complete.
            let is_open = |word: &QueryWord| word.kind != TokenKind::Word && word.end as usize == text.len();
            let is_prefix = query.words.last().is_some_and(|word| word.is_prefix || is_open(word));
            if let Some(key) = typed.filter(|key| is_prefix && key.chars().count() >= MIN_PREFIX_CHARS) {
                finder.add_prefix_names(&key, clock)?;
            }
        }
        Ok(finder.finish())
    }

    /// Returns the sections that have a name which is equal to the query or begins with it, in order, once each.
    pub(super) fn sections(&self) -> Vec<u32> {
        let equal = (0u32..).zip(&self.strengths).filter(|(_, strength)| **strength > 0).map(|(section, _)| section);
        let mut sections: Vec<u32> = equal.chain(self.prefix_scores.iter().map(|(section, _)| *section)).collect();
        sections.sort_unstable();
        sections.dedup();
        sections
    }

    /// Returns the strength of the name of a section that is equal to the query; 0 without one.
    pub(super) fn strength(&self, section: u32) -> u32 {
        self.strengths.get(section as usize).copied().map_or(0, u32::from)
    }

    /// Returns the sections with a name that begins with the query, in order, and the scores of that.
    pub(super) fn prefix_scores(&self) -> impl Iterator<Item = (u32, f32)> + '_ {
        self.prefix_scores.iter().copied()
    }

    /// Turns the strengths into prefix scores: `score` for each unit of strength. In this way, a name that is equal to
    /// a corrected query counts like one that begins with the query.
    pub(super) fn into_prefix_scores(self, score: f32) -> NameMatches {
        let named = (0u32..).zip(&self.strengths).filter(|(_, strength)| **strength > 0);
        let mut prefix_scores: Vec<(u32, f32)> =
            named.map(|(section, strength)| (section, f32::from(*strength) * score)).collect();
        let is_new = |section: u32| self.strength(section) == 0;
        prefix_scores.extend(self.prefix_scores.iter().filter(|(section, _)| is_new(*section)));
        prefix_scores.sort_unstable_by_key(|(section, _)| *section);
        NameMatches { strengths: Vec::new(), prefix_scores }
    }
}

/// Collects the names.
struct NameFinder<'a> {
    segment: &'a IndexSegment,
    exact: Vec<u8>,
    prefix_scores: HashMap<u32, f32>,
}

impl NameFinder<'_> {
    fn finish(self) -> NameMatches {
        let mut prefix_scores: Vec<(u32, f32)> = self.prefix_scores.into_iter().collect();
        prefix_scores.sort_unstable_by_key(|(section, _)| *section);
        NameMatches { strengths: self.exact, prefix_scores }
    }

    fn add_exact(&mut self, key: Option<&str>, max_strength: u32, clock: &mut QueryClock) -> io::Result<()> {
        let Some(key) = key else { return Ok(()) };
        let (exact, sections) = (&mut self.exact, self.segment.page_of_section.len());
        read_strengths(&self.segment.names, key, clock, |section, strength| {
            // A query that is no name needs no memory.
            exact.resize(sections, 0);
            if let Some(known) = exact.get_mut(section as usize) {
                *known = (strength.min(max_strength) as u8).max(*known);
            }
        })
    }

    fn add_prefix_names(&mut self, key: &str, clock: &mut QueryClock) -> io::Result<()> {
        let names = &self.segment.names;
        let mut longer: Vec<String> = Vec::new();
        let end = [key.as_bytes(), &[0xff]].concat();
        let mut stream = names.terms().range().gt(key.as_bytes()).lt(end).into_stream()?;
        while stream.advance() && !clock.advance(1) {
            if let Ok(name) = std::str::from_utf8(stream.key()) {
                longer.push(name.to_owned());
            }
            // Short names are the likely ones. They come first among those with the same beginning only.
            if longer.len() >= 4 * MAX_PREFIX_NAMES {
                keep_shortest(&mut longer);
            }
        }
        keep_shortest(&mut longer);
        for name in longer {
            let share = key.len() as f32 / name.len() as f32;
            let prefix_scores = &mut self.prefix_scores;
            read_strengths(names, &name, clock, |section, strength| {
                let (score, is_full) =
                    (PREFIX_WEIGHT * strength as f32 * share, prefix_scores.len() >= MAX_PREFIX_SECTIONS);
                match prefix_scores.get_mut(&section) {
                    Some(known) => *known = score.max(*known),
                    None if is_full => {}
                    None => {
                        prefix_scores.insert(section, score);
                    }
                }
            })?;
        }
        Ok(())
    }
}

fn keep_shortest(names: &mut Vec<String>) {
    names.sort_by_key(String::len);
    names.truncate(MAX_PREFIX_NAMES);
}

/// Calls `each` for each section that has a name, with the strength of the name.
fn read_strengths(
    names: &InvertedIndexReader,
    key: &str,
    clock: &mut QueryClock,
    mut each: impl FnMut(u32, u32),
) -> io::Result<()> {
    let Some(info) = names.terms().get(key)? else { return Ok(()) };
    let mut block = names.read_block_postings_from_terminfo(&info, IndexRecordOption::WithFreqs)?;
    while !block.docs().is_empty() {
        for (&section, &strength) in block.docs().iter().zip(block.freqs()) {
            each(section, strength);
        }
        if clock.advance(block.block_len()) {
            break;
        }
        block.advance();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_query_that_was_not_typed_are_counted_like_prefixes() {
        let names = NameMatches { strengths: vec![0, 2, 0, 6], prefix_scores: vec![(0, 5.0), (3, 1.0)] };
        assert_eq!((names.strength(1), names.strength(2), names.strength(9)), (2, 0, 0));
        let names = names.into_prefix_scores(10.0);
        assert_eq!((names.strength(1), names.strength(3)), (0, 0));
        assert_eq!(names.prefix_scores().collect::<Vec<_>>(), [(0, 5.0), (1, 20.0), (3, 60.0)]);
    }
}
