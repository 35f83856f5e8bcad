//! The number of typing errors between a word and others.

use std::cell::RefCell;

use tantivy_fst::Automaton;

use super::clock::QueryClock;

/// The maximum number of characters of a word that are compared. Distances up to it fit a byte.
const MAX_COMPARED_CHARS: usize = 200;
/// The maximum length of a character in UTF-8, in bytes.
const MAX_CHAR_BYTES: usize = 4;

/// Matches the words that are within a distance of one word: the number of characters that must be inserted, removed,
/// replaced, or swapped with their neighbour (optimal string alignment).
///
/// The table of distances is computed by rows, one for each character. As an automaton, it reads a beginning that the
/// words of an index share once, and passes over all words whose beginning is too far away already.
#[derive(Debug)]
pub(super) struct DistanceAutomaton {
    word: Vec<char>,
    max: u8,
}

/// The state of a [`DistanceAutomaton`] after the beginning of a word.
#[derive(Debug, Clone)]
pub(super) struct DistanceState {
    /// The distance of that beginning to each beginning of the automaton's word; empty if no distance can be within the
    /// maximum.
    row: Vec<u8>,
    /// The row before the last character; empty if there is none.
    above: Vec<u8>,
    last: char,
    /// The first bytes of a character that has not been read whole.
    partial: [u8; MAX_CHAR_BYTES],
    partial_len: usize,
}

impl DistanceAutomaton {
    /// Creates an automaton for distances up to `max`. Of `word`, the first [`MAX_COMPARED_CHARS`] characters count.
    pub(super) fn new(word: &str, max: u8) -> DistanceAutomaton {
        DistanceAutomaton { word: word.chars().take(MAX_COMPARED_CHARS).collect(), max }
    }

    /// Returns the distance to another word; `None` if it is above the maximum.
    pub(super) fn distance(&self, other: &str) -> Option<u8> {
        let mut state = self.start();
        for c in other.chars() {
            state = self.read(&state, c);
            if !self.can_match(&state) {
                return None;
            }
        }
        state.row.last().copied().filter(|distance| *distance <= self.max)
    }

    /// Returns the state after one more character.
    fn read(&self, state: &DistanceState, c: char) -> DistanceState {
        let above = &state.row;
        let mut row = Vec::with_capacity(above.len());
        row.extend(above.first().map(|distance| distance.saturating_add(1)));
        for (index, (&expected, pair)) in self.word.iter().zip(above.windows(2)).enumerate() {
            let replaced = pair[0].saturating_add(u8::from(c != expected));
            let mut distance = replaced.min(pair[1].saturating_add(1)).min(row[index].saturating_add(1));
            if let Some(before) =
                index.checked_sub(1).filter(|before| c == self.word[*before] && state.last == expected)
            {
                let swapped = state.above.get(before).map_or(u8::MAX, |distance| distance.saturating_add(1));
                distance = distance.min(swapped);
            }
            row.push(distance);
        }
        let state = DistanceState { row, above: above.clone(), last: c, ..DistanceState::empty() };
        if self.is_too_far(&state) { DistanceState::empty() } else { state }
    }

    /// Whether no word with this beginning is near enough. A swap reaches back two rows.
    fn is_too_far(&self, state: &DistanceState) -> bool {
        let least = |row: &[u8]| row.iter().min().copied().unwrap_or(u8::MAX);
        least(&state.row) > self.max && least(&state.above) >= self.max
    }
}

impl DistanceState {
    /// The state of a word that is too far away.
    fn empty() -> DistanceState {
        let (row, above) = (Vec::new(), Vec::new());
        DistanceState { row, above, last: '\0', partial: [0; MAX_CHAR_BYTES], partial_len: 0 }
    }
}

impl Automaton for DistanceAutomaton {
    type State = DistanceState;

    fn start(&self) -> DistanceState {
        DistanceState { row: (0..=self.word.len() as u8).collect(), ..DistanceState::empty() }
    }

    fn is_match(&self, state: &DistanceState) -> bool {
        state.partial_len == 0 && state.row.last().is_some_and(|distance| *distance <= self.max)
    }

    fn can_match(&self, state: &DistanceState) -> bool {
        !state.row.is_empty()
    }

    fn accept(&self, state: &DistanceState, byte: u8) -> DistanceState {
        if state.partial_len == MAX_CHAR_BYTES {
            return DistanceState::empty();
        }
        let mut partial = state.partial;
        partial[state.partial_len] = byte;
        let partial_len = state.partial_len + 1;
        match std::str::from_utf8(&partial[..partial_len]).map(|text| text.chars().next()) {
            Ok(Some(c)) => self.read(state, c),
            Err(error) if error.error_len().is_none() => DistanceState { partial, partial_len, ..state.clone() },
            _ => DistanceState::empty(),
        }
    }
}

/// An automaton that matches nothing more after the time of a query is over. A dictionary reports only the words that
/// match, and reading the others takes time, too.
pub(super) struct TimedAutomaton<'a, 'c> {
    automaton: &'a DistanceAutomaton,
    clock: &'a RefCell<&'c mut QueryClock>,
}

impl<'a, 'c> TimedAutomaton<'a, 'c> {
    pub(super) fn new(automaton: &'a DistanceAutomaton, clock: &'a RefCell<&'c mut QueryClock>) -> Self {
        TimedAutomaton { automaton, clock }
    }
}

impl Automaton for TimedAutomaton<'_, '_> {
    type State = DistanceState;

    fn start(&self) -> DistanceState {
        self.automaton.start()
    }

    fn is_match(&self, state: &DistanceState) -> bool {
        self.automaton.is_match(state)
    }

    fn can_match(&self, state: &DistanceState) -> bool {
        self.automaton.can_match(state)
    }

    fn accept(&self, state: &DistanceState, byte: u8) -> DistanceState {
        if self.clock.borrow_mut().advance(1) { DistanceState::empty() } else { self.automaton.accept(state, byte) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the distance by its definition, without keeping rows for the next word.
    fn reference_distance(a: &str, b: &str) -> u8 {
        let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
        let mut rows: Vec<Vec<u8>> = vec![(0..=b.len() as u8).collect()];
        for (i, first) in a.iter().enumerate() {
            let mut row = vec![i as u8 + 1];
            for (j, second) in b.iter().enumerate() {
                let replaced = rows[i][j] + u8::from(first != second);
                let mut least = replaced.min(rows[i][j + 1] + 1).min(row[j] + 1);
                if i > 0 && j > 0 && *first == b[j - 1] && a[i - 1] == *second {
                    least = least.min(rows[i - 1][j - 1] + 1);
                }
                row.push(least);
            }
            rows.push(row);
        }
        rows[a.len()][b.len()]
    }

    fn read_bytes(automaton: &DistanceAutomaton, bytes: &[u8]) -> DistanceState {
        bytes.iter().fold(automaton.start(), |state, byte| automaton.accept(&state, *byte))
    }

    #[test]
    fn one_error_of_each_kind_is_a_distance_of_one() {
        assert_eq!(DistanceAutomaton::new("cache", 0).distance("cache"), Some(0));
        for word in ["caches", "cach", "cashe", "ccahe", "cahce", "acche", "xcache"] {
            assert_eq!(DistanceAutomaton::new("cache", 1).distance(word), Some(1), "{word}");
            assert_eq!(DistanceAutomaton::new("cache", 0).distance(word), None, "{word}");
        }
    }

    #[test]
    fn distances_of_sorted_words_are_those_of_the_definition() {
        let letters = ["", "a", "b", "c", "ä"];
        let mut words = Vec::new();
        for first in letters {
            for second in letters {
                for third in letters {
                    for fourth in letters {
                        words.push([first, second, third, fourth].concat());
                    }
                }
            }
        }
        words.sort_unstable();
        words.dedup();
        for query in ["abc", "abca", "bca", "äb", "aabb", "caab"] {
            for max in 0..3 {
                let automaton = DistanceAutomaton::new(query, max);
                for word in &words {
                    let expected = Some(reference_distance(query, word)).filter(|distance| *distance <= max);
                    assert_eq!(automaton.distance(word), expected, "{query} {word} {max}");
                    let state = read_bytes(&automaton, word.as_bytes());
                    assert_eq!(automaton.is_match(&state), expected.is_some(), "{query} {word} {max}");
                    assert!(expected.is_none() || automaton.can_match(&state), "{query} {word} {max}");
                }
            }
        }
    }

    #[test]
    fn bytes_that_are_no_text_match_nothing() {
        let automaton = DistanceAutomaton::new("äb", 2);
        for bytes in [&b"\xff"[..], b"\xc3", b"\xc3b", b"\xc3\xa4\xa4", b"\xf0\x9f\x98\x80\x80", b"\xf0\x9f\x98"] {
            assert!(!automaton.is_match(&read_bytes(&automaton, bytes)), "{bytes:?}");
        }
        assert!(automaton.is_match(&read_bytes(&automaton, "äb😀".as_bytes())));
    }

    #[test]
    fn long_words_are_too_far_away_and_cost_nothing() {
        let automaton = DistanceAutomaton::new(&"a".repeat(1000), 2);
        assert_eq!(automaton.distance(&"b".repeat(100_000)), None);
        assert!(!automaton.can_match(&read_bytes(&automaton, b"bbbb")));
        assert_eq!(automaton.distance(&"a".repeat(MAX_COMPARED_CHARS)), Some(0));
    }
}
