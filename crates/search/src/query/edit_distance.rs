//! The number of typing errors between a word and others.

/// The maximum number of characters of a word that are compared. Distances up to it fit a byte.
const MAX_COMPARED_CHARS: usize = 200;

/// The distances of a word to sorted words: the number of characters that must be inserted, removed, replaced, or
/// swapped with their neighbour (optimal string alignment).
///
/// Sorted words share beginnings, and the table of distances is computed by rows, one for each character. The rows of a
/// shared beginning are kept, and words whose beginning is too far away already are not looked at.
#[derive(Debug)]
pub(super) struct DistanceTable {
    query: Vec<char>,
    max: u8,
    /// The beginning of the last word for which there are rows.
    word: Vec<char>,
    /// One row more than `word` has characters, each with one number more than `query` has characters.
    rows: Vec<Vec<u8>>,
    /// The length of the beginning of `word` from which on no word is near enough.
    too_far_length: Option<usize>,
}

impl DistanceTable {
    /// Creates a table for distances up to `max`. Only the first [`MAX_COMPARED_CHARS`] characters of `query` count.
    pub(super) fn new(query: &str, max: u8) -> DistanceTable {
        let query: Vec<char> = query.chars().take(MAX_COMPARED_CHARS).collect();
        let first_row = (0..=query.len() as u8).collect();
        DistanceTable { query, max, word: Vec::new(), rows: vec![first_row], too_far_length: None }
    }

    /// Returns the distance to a word; `None` if it is above the maximum.
    pub(super) fn distance(&mut self, word: &str) -> Option<u8> {
        let shared = self.word.iter().zip(word.chars()).take_while(|(a, b)| **a == *b).count();
        self.word.truncate(shared);
        self.rows.truncate(shared + 1);
        if self.too_far_length.is_some_and(|length| shared >= length) {
            return None;
        }
        self.too_far_length = None;
        for c in word.chars().skip(shared) {
            if self.word.len() >= self.query.len() + usize::from(self.max) {
                return None;
            }
            self.push_row(c);
            if self.is_too_far() {
                self.too_far_length = Some(self.word.len());
                return None;
            }
        }
        let distance = self.rows.last().and_then(|row| row.last()).copied();
        distance.filter(|distance| *distance <= self.max)
    }

    fn push_row(&mut self, c: char) {
        let length = self.word.len();
        let above = &self.rows[length];
        let mut row = Vec::with_capacity(above.len());
        row.push(above[0].saturating_add(1));
        for (index, &expected) in self.query.iter().enumerate() {
            let replaced = above[index].saturating_add(u8::from(c != expected));
            let mut distance = replaced.min(above[index + 1].saturating_add(1)).min(row[index].saturating_add(1));
            let is_swapped = index > 0 && length > 0 && c == self.query[index - 1] && self.word[length - 1] == expected;
            if is_swapped {
                distance = distance.min(self.rows[length - 1][index - 1].saturating_add(1));
            }
            row.push(distance);
        }
        self.rows.push(row);
        self.word.push(c);
    }

    /// Whether no word with this beginning is near enough. A swap reaches back two rows.
    fn is_too_far(&self) -> bool {
        let least = |row: Option<&Vec<u8>>| row.and_then(|row| row.iter().min()).copied().unwrap_or_default();
        let last = self.rows.len() - 1;
        least(self.rows.get(last)) > self.max && last > 0 && least(self.rows.get(last - 1)) >= self.max
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

    #[test]
    fn one_error_of_each_kind_is_a_distance_of_one() {
        assert_eq!(DistanceTable::new("cache", 0).distance("cache"), Some(0));
        for word in ["caches", "cach", "cashe", "ccahe", "cahce", "acche", "xcache"] {
            assert_eq!(DistanceTable::new("cache", 1).distance(word), Some(1), "{word}");
            assert_eq!(DistanceTable::new("cache", 0).distance(word), None, "{word}");
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
                let mut table = DistanceTable::new(query, max);
                for word in &words {
                    let expected = Some(reference_distance(query, word)).filter(|distance| *distance <= max);
                    assert_eq!(table.distance(word), expected, "{query} {word} {max}");
                }
            }
        }
    }

    #[test]
    fn long_words_are_too_far_away_and_cost_nothing() {
        let mut table = DistanceTable::new(&"a".repeat(1000), 2);
        assert_eq!(table.distance(&"b".repeat(100_000)), None);
        assert!(table.rows.len() < 10);
        assert_eq!(table.distance(&"a".repeat(MAX_COMPARED_CHARS)), Some(0));
    }
}
