//! The nearness of the words of a query to each other. It is computed for the best sections only, because positions are
//! the slowest part of an index to read.

use std::io;

use tantivy::InvertedIndexReader;
use tantivy::postings::{Postings, SegmentPostings};
use tantivy::schema::IndexRecordOption;

use crate::index::IndexSegment;

use super::clock::QueryClock;
use super::phrase::seek;
use super::plan::{QueryPlan, TermField, field_of};

/// The maximum number of groups of a query whose nearness counts.
const MAX_NEAR_GROUPS: usize = 8;
/// The maximum number of positions of a word in a section that are compared.
const MAX_POSITIONS: usize = 1000;
/// The weight of words next to each other in each field, for each unit of their inverse document frequencies.
const FIELD_WEIGHTS: [(TermField, f32); 3] =
    [(TermField::Heading, 2.0), (TermField::Title, 0.5), (TermField::Body, 0.6)];
/// The factor of words in the order of the query.
const ORDER_FACTOR: f32 = 1.25;

/// Returns what the nearness of the words is worth in each of `sections`, which are in ascending order.
pub(super) fn rate_nearness(
    segment: &IndexSegment,
    plan: &QueryPlan,
    sections: &[u32],
    clock: &mut QueryClock,
) -> io::Result<Vec<f32>> {
    let mut scores = vec![0.0; sections.len()];
    let groups: Vec<_> =
        plan.groups.iter().filter(|group| group.required.is_some() && !group.words.is_empty()).collect();
    if groups.len() < 2 {
        return Ok(scores);
    }
    let groups = &groups[..groups.len().min(MAX_NEAR_GROUPS)];
    let idf: f32 = groups.iter().map(|group| group.idf).sum();
    for (field, weight) in FIELD_WEIGHTS {
        let reader = &field_of(segment, field).words;
        let mut cursors = Vec::new();
        for group in groups {
            cursors.push(open_cursors(reader, &group.words)?);
        }
        for (&section, score) in sections.iter().zip(&mut scores) {
            if clock.is_over() {
                return Ok(scores);
            }
            let positions: Vec<Vec<u32>> =
                cursors.iter_mut().map(|cursors| read_positions(cursors, section, clock)).collect();
            *score += weight * idf * rate_positions(&positions);
        }
    }
    Ok(scores)
}

fn open_cursors(reader: &InvertedIndexReader, words: &[String]) -> io::Result<Vec<SegmentPostings>> {
    let mut cursors = Vec::new();
    for word in words {
        if let Some(info) = reader.terms().get(word)? {
            cursors.push(reader.read_postings_from_terminfo(&info, IndexRecordOption::WithFreqsAndPositions)?);
        }
    }
    Ok(cursors)
}

/// Returns the positions of the words of a group in a section, in order.
fn read_positions(cursors: &mut [SegmentPostings], section: u32, clock: &mut QueryClock) -> Vec<u32> {
    let mut positions = Vec::new();
    for cursor in cursors {
        if !clock.is_over() && seek(cursor, section) == section {
            let before = positions.len();
            cursor.append_positions_with_offset(0, &mut positions);
            // All positions of the section are read, also those beyond the maximum.
            clock.advance(1 + positions.len() - before);
        }
    }
    positions.sort_unstable();
    positions.truncate(MAX_POSITIONS);
    positions
}

/// Rates the positions of groups from 0, if a group has none, to [`ORDER_FACTOR`], if they stand next to each other in
/// the order of the query.
fn rate_positions(positions: &[Vec<u32>]) -> f32 {
    let count = positions.len() as u32;
    if positions.iter().any(Vec::is_empty) {
        return 0.0;
    }
    let is_in_order = positions[0].iter().any(|start| {
        (0u32..).zip(positions).all(|(distance, positions)| positions.binary_search(&(start + distance)).is_ok())
    });
    if is_in_order {
        return ORDER_FACTOR;
    }
    let width = find_least_width(positions);
    (count as f32 / width.max(count) as f32).min(1.0)
}

/// Returns the width of the smallest window that has a position of each group.
fn find_least_width(positions: &[Vec<u32>]) -> u32 {
    let mut next = vec![0; positions.len()];
    let mut least = u32::MAX;
    loop {
        let current = positions.iter().zip(&next).map(|(positions, next): (&Vec<u32>, &usize)| positions.get(*next));
        let Some(current) = current.collect::<Option<Vec<&u32>>>() else { return least };
        let (Some(first), Some(last)) = (current.iter().min(), current.iter().max()) else { return least };
        least = least.min((**last - **first).saturating_add(1));
        // Only a later first position can make the window smaller.
        let index = current.iter().position(|position| position == first).unwrap_or_default();
        next[index] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_indexes::index_of_words;
    use super::*;

    #[test]
    fn the_end_of_the_time_is_noticed_after_a_section_with_many_positions() {
        let test = index_of_words(&[&"pool ".repeat(5000), "pool"]);
        let mut cursors = open_cursors(&test.segment().body.words, &["pool".to_owned()]).unwrap();
        let mut clock = QueryClock::new(None);
        clock.advance(1);
        clock.end_time();
        assert_eq!(read_positions(&mut cursors, 0, &mut clock).len(), MAX_POSITIONS);
        assert!(clock.is_over() && read_positions(&mut cursors, 1, &mut clock).is_empty());
    }

    #[test]
    fn the_nearer_the_words_the_higher_the_rate() {
        for (positions, expected) in [
            (&[&[5][..], &[6]][..], "1.25"),
            (&[&[6], &[5]], "1.00"),
            (&[&[1, 50], &[48, 99]], "0.67"),
            (&[&[1], &[20]], "0.10"),
            (&[&[1], &[]], "0.00"),
            (&[&[1, 10, 30], &[11, 40], &[12]], "1.25"),
            (&[&[3], &[3]], "1.00"),
            (&[&[0], &[u32::MAX - 1]], "0.00"),
        ] {
            let positions: Vec<Vec<u32>> = positions.iter().map(|positions| positions.to_vec()).collect();
            assert_eq!(format!("{:.2}", rate_positions(&positions)), expected, "{positions:?}");
        }
    }
}
