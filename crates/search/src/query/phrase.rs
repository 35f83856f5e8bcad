//! Words that stand next to each other.

use std::io;

use tantivy::postings::{Postings, SegmentPostings};
use tantivy::schema::IndexRecordOption;
use tantivy::{DocSet, InvertedIndexReader, TERMINATED};

use super::clock::QueryClock;

/// Calls `each` for each section in which the words stand at their distances from the first one, with the number of
/// times. Ends when the time is over.
pub(super) fn find_phrase(
    field: &InvertedIndexReader,
    words: &[(u32, String)],
    clock: &mut QueryClock,
    mut each: impl FnMut(u32, u32),
) -> io::Result<()> {
    let mut cursors = Vec::new();
    for (distance, word) in words {
        let Some(info) = field.terms().get(word)? else { return Ok(()) };
        let postings = field.read_postings_from_terminfo(&info, IndexRecordOption::WithFreqsAndPositions)?;
        cursors.push((*distance, postings));
    }
    // The rarest word leads, because it skips most.
    cursors.sort_by_key(|(_, postings)| postings.doc_freq());
    let Some(((first_distance, leader), others)) = cursors.split_first_mut() else { return Ok(()) };
    let mut section = leader.doc();
    let (mut starts, mut positions) = (Vec::new(), Vec::new());
    // The positions of a word in one section can be a million, and count like as many sections.
    let mut read_positions = 0;
    while section != TERMINATED && !clock.advance(1 + std::mem::take(&mut read_positions)) {
        let next = others.iter_mut().map(|(_, postings)| seek(postings, section)).max().unwrap_or(section);
        if next > section {
            section = seek(leader, next);
            continue;
        }
        leader.positions(&mut starts);
        read_positions += starts.len();
        starts.retain_mut(|start| {
            let is_within = *start >= *first_distance;
            *start = start.saturating_sub(*first_distance);
            is_within
        });
        for (distance, postings) in others.iter_mut() {
            postings.positions(&mut positions);
            read_positions += positions.len();
            starts.retain(|start| positions.binary_search(&(start + *distance)).is_ok());
            if starts.is_empty() {
                break;
            }
        }
        if !starts.is_empty() {
            each(section, starts.len() as u32);
        }
        section = leader.advance();
    }
    Ok(())
}

/// Moves to the first section that is not before `section`.
pub(super) fn seek(postings: &mut SegmentPostings, section: u32) -> u32 {
    if postings.doc() < section { postings.seek(section) } else { postings.doc() }
}

#[cfg(test)]
mod tests {
    use super::super::test_indexes::index_of_words;
    use super::*;

    #[test]
    fn a_phrase_is_found_where_its_words_stand_at_their_distances() {
        let test = index_of_words(&[
            "the thread pool executor and a thread pool",
            "pool of a thread",
            "a ThreadPool is a pool",
            "thread thread pool",
            "nothing",
        ]);
        let find = |words: &[(u32, &str)]| {
            let words: Vec<(u32, String)> =
                words.iter().map(|(distance, word)| (*distance, (*word).to_owned())).collect();
            let mut found = Vec::new();
            let field = &test.segment().body.words;
            find_phrase(field, &words, &mut QueryClock::new(None), |section, count| found.push((section, count)))
                .unwrap();
            found.sort_unstable_by_key(|(section, _)| test.segment().page_of_section[*section as usize]);
            found
                .into_iter()
                .map(|(section, count)| (test.segment().page_of_section[section as usize], count))
                .collect::<Vec<_>>()
        };
        assert_eq!(find(&[(0, "thread"), (1, "pool")]), [(0, 2), (2, 1), (3, 1)]);
        assert_eq!(find(&[(0, "thread"), (1, "pool"), (2, "executor")]), [(0, 1)]);
        assert_eq!(find(&[(0, "pool"), (3, "thread")]), [(1, 1)]);
        assert_eq!(find(&[(0, "a"), (1, "a")]), []);
        assert_eq!(find(&[(0, "thread"), (1, "missing")]), []);
        assert_eq!(find(&[]), []);
    }

    #[test]
    fn the_search_for_a_phrase_ends_with_the_time() {
        let test = index_of_words(&["thread pool"]);
        let words = [(0, "thread".to_owned()), (1, "pool".to_owned())];
        let mut clock = QueryClock::new(Some(std::time::Instant::now()));
        find_phrase(&test.segment().body.words, &words, &mut clock, |_, _| panic!("the time is over")).unwrap();
        assert!(clock.is_over());
    }

    #[test]
    fn the_end_of_the_time_is_noticed_after_a_section_with_many_positions() {
        let test = index_of_words(&[&"thread pool ".repeat(5000), "thread pool"]);
        let words = [(0, "thread".to_owned()), (1, "pool".to_owned())];
        let mut clock = QueryClock::new(None);
        clock.advance(1);
        clock.end_time();
        let mut found = Vec::new();
        find_phrase(&test.segment().body.words, &words, &mut clock, |section, count| found.push((section, count)))
            .unwrap();
        assert_eq!(found, [(0, 5000)]);
    }
}
