//! The words of a site that a word of a query may stand for: those that begin with it, and those that differ from it by
//! a typing error.

use std::cell::RefCell;
use std::io;

use tantivy::InvertedIndexReader;
use tantivy_fst::Automaton;
use tantivy_fst::automaton::AlwaysMatch;

use crate::index::has_sign;

use super::clock::QueryClock;
use super::edit_distance::{DistanceAutomaton, TimedAutomaton};

/// The maximum number of words that one word is expanded to.
const MAX_EXPANSIONS: usize = 64;
/// The maximum number of sections that the expansions of one word may be in, added up. It bounds the time of a query
/// for a short beginning of many frequent words.
const MAX_EXPANDED_SECTIONS: u64 = 200_000;
/// The minimum length of a word in characters that may have one typing error.
const MIN_ONE_ERROR_CHARS: usize = 4;
/// The minimum length of a word in characters that may have two typing errors.
const MIN_TWO_ERRORS_CHARS: usize = 8;

/// A word of the index that a word of a query may stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Expansion {
    pub(super) text: String,
    /// The number of sections with the word.
    pub(super) doc_freq: u32,
    /// The number of typing errors, or of characters that were not typed.
    pub(super) distance: usize,
}

/// Returns words of `field` that begin with `prefix` and are longer, the most likely first.
pub(super) fn expand_prefix(
    field: &InvertedIndexReader,
    prefix: &str,
    clock: &mut QueryClock,
) -> io::Result<Vec<Expansion>> {
    let prefix_chars = prefix.chars().count();
    let is_symbol = has_sign(prefix);
    let mut expansions = BestExpansions::default();
    scan_words(field, AlwaysMatch, prefix.as_bytes(), &RefCell::new(clock), |text, doc_freq| {
        let distance = text.chars().count() - prefix_chars;
        // A word that is nearly complete is likelier than a much longer one that is as frequent.
        let rank = u64::from(doc_freq) * 1024 / (distance as u64 + 1);
        // The words of a symbol are words themselves.
        if distance > 0 && expansions.may_add(rank) && (is_symbol || !has_sign(text)) {
            expansions.add(rank, Expansion { text: text.to_owned(), doc_freq, distance });
        }
    })?;
    Ok(expansions.finish())
}

/// Returns words of `field` that differ from `word` by typing errors: one in words of 4 to 7 characters, up to two in
/// longer ones. The first character is the same. The words with the fewest errors come first.
pub(super) fn expand_errors(
    field: &InvertedIndexReader,
    word: &str,
    clock: &mut QueryClock,
) -> io::Result<Vec<Expansion>> {
    let max = match word.chars().count() {
        MIN_TWO_ERRORS_CHARS.. => 2,
        MIN_ONE_ERROR_CHARS.. => 1,
        _ => return Ok(Vec::new()),
    };
    let Some(first) = word.chars().next() else { return Ok(Vec::new()) };
    let (automaton, clock) = (DistanceAutomaton::new(word, max), RefCell::new(clock));
    let near = TimedAutomaton::new(&automaton, &clock);
    let mut expansions = BestExpansions::default();
    scan_words(field, near, &word.as_bytes()[..first.len_utf8()], &clock, |text, doc_freq| {
        let Some(distance) = automaton.distance(text).filter(|distance| *distance > 0) else { return };
        let nearness = u64::from(max.saturating_sub(distance));
        let rank = (nearness << 32) | u64::from(doc_freq);
        // Another number is not a typing error: `python3` is not `python2`.
        if expansions.may_add(rank) && !has_sign(text) && digits(text).eq(digits(word)) {
            expansions.add(rank, Expansion { text: text.to_owned(), doc_freq, distance: usize::from(distance) });
        }
    })?;
    Ok(expansions.finish())
}

fn digits(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().filter(char::is_ascii_digit)
}

/// Calls `each` for the words of a field that begin with `prefix` and that `automaton` matches, in order, until the
/// time is over.
fn scan_words<A: Automaton>(
    field: &InvertedIndexReader,
    automaton: A,
    prefix: &[u8],
    clock: &RefCell<&mut QueryClock>,
    mut each: impl FnMut(&str, u32),
) -> io::Result<()>
where
    A::State: Clone,
{
    // No byte of UTF-8 is larger.
    let end = [prefix, &[0xff]].concat();
    let mut words = field.terms().search(automaton).ge(prefix).lt(end).into_stream()?;
    while words.advance() {
        if clock.borrow_mut().advance(1) {
            break;
        }
        if let Ok(text) = std::str::from_utf8(words.key()) {
            each(text, words.value().doc_freq);
        }
    }
    Ok(())
}

/// The best expansions so far. They are added in the order of their texts.
#[derive(Default)]
struct BestExpansions {
    /// Each with its rank; the larger, the better.
    ranked: Vec<(u64, Expansion)>,
    /// The rank that must be exceeded; `None` as long as there are few expansions.
    least_rank: Option<u64>,
}

impl BestExpansions {
    /// Whether an expansion with this rank can be among the best. Of several with the same rank, the first ones are.
    fn may_add(&self, rank: u64) -> bool {
        self.least_rank.is_none_or(|least| rank > least)
    }

    fn add(&mut self, rank: u64, expansion: Expansion) {
        self.ranked.push((rank, expansion));
        // The list is cut now and then, so that adding takes constant time on average.
        if self.ranked.len() >= 4 * MAX_EXPANSIONS {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.ranked.sort_by(|(a_rank, a), (b_rank, b)| b_rank.cmp(a_rank).then_with(|| a.text.cmp(&b.text)));
        self.ranked.truncate(MAX_EXPANSIONS);
        self.least_rank = self.ranked.get(MAX_EXPANSIONS - 1).map(|(rank, _)| *rank);
    }

    fn finish(mut self) -> Vec<Expansion> {
        self.cut();
        let mut sections = 0;
        let within_limit = |(_, expansion): &(u64, Expansion)| {
            let is_first = sections == 0;
            sections += u64::from(expansion.doc_freq);
            is_first || sections <= MAX_EXPANDED_SECTIONS
        };
        self.ranked.into_iter().take_while(within_limit).map(|(_, expansion)| expansion).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_indexes::index_of_words;
    use super::*;

    fn texts(expansions: &[Expansion]) -> Vec<&str> {
        expansions.iter().map(|expansion| expansion.text.as_str()).collect()
    }

    #[test]
    fn a_prefix_stands_for_longer_words_and_frequent_and_near_ones_come_first() {
        let test = index_of_words(&["string strings stringify", "string strings", "stray", "string.format st st-x"]);
        let field = &test.segment().body.words;
        let mut clock = QueryClock::new(None);
        let mut expand = |prefix: &str| expand_prefix(field, prefix, &mut clock).unwrap();
        assert_eq!(texts(&expand("strin")), ["string", "strings", "stringify"]);
        assert_eq!(texts(&expand("string")), ["strings", "stringify"]);
        assert_eq!(expand("string")[0], Expansion { text: "strings".to_owned(), doc_freq: 2, distance: 1 });
        assert_eq!(texts(&expand("string.")), ["string.format"]);
        assert_eq!(texts(&expand("s")), ["st", "string", "strings", "stray", "stringify"]);
        assert!(expand("zzz").is_empty());
    }

    #[test]
    fn errors_are_allowed_by_the_length_of_the_word() {
        let test = index_of_words(&["cache caches cat connection executor python3 cache.clear xache"]);
        let field = &test.segment().body.words;
        let mut clock = QueryClock::new(None);
        let mut expand = |word: &str| {
            let expansions = expand_errors(field, word, &mut clock).unwrap();
            texts(&expansions).join(" ")
        };
        for (word, expected) in [
            ("cahce", "cache"),
            ("cachr", "cache"),
            ("cache", "caches"),
            ("cta", ""),
            ("conection", "connection"),
            ("conectoin", "connection"),
            ("connecxxxn", ""),
            ("excutro", ""),
            ("excutror", "executor"),
            ("python2", ""),
            ("pyhton3", "python3"),
            ("ache", ""),
        ] {
            assert_eq!(expand(word), expected, "{word}");
        }
    }

    #[test]
    fn expansions_are_bounded_by_their_number_and_by_the_time() {
        let words: Vec<String> =
            (0..200u32).map(|number| format!("word{}", char::from_u32(0x3b1 + number).unwrap())).collect();
        let test = index_of_words(&[&words.join(" ")]);
        let field = &test.segment().body.words;
        let expanded = expand_prefix(field, "word", &mut QueryClock::new(None)).unwrap();
        assert!(expanded.len() <= MAX_EXPANSIONS && expanded.len() > 20, "{}", expanded.len());
        let mut over = QueryClock::new(Some(std::time::Instant::now()));
        assert!(expand_prefix(field, "word", &mut over).unwrap().is_empty() && over.is_over());
        let mut expansions = BestExpansions::default();
        for number in 0..10 {
            expansions.add(1, Expansion { text: number.to_string(), doc_freq: 90_000, distance: 1 });
        }
        assert_eq!(expansions.finish().len(), 2);
    }

    #[test]
    fn words_that_differ_too_much_take_time_as_well() {
        let words: Vec<String> = (0..50).map(|number| format!("connect{number}{}", "x".repeat(20))).collect();
        let test = index_of_words(&[&words.join(" ")]);
        let field = &test.segment().body.words;
        let mut clock = QueryClock::new(Some(std::time::Instant::now()));
        assert!(expand_errors(field, "connection", &mut clock).unwrap().is_empty());
        assert!(clock.is_over());
    }

    #[test]
    fn the_best_expansions_remain_whatever_their_order() {
        let (mut expansions, mut expected) = (BestExpansions::default(), Vec::new());
        for number in 0..2000u64 {
            let rank = number * 7919 % 97;
            let expansion = Expansion { text: format!("{number:04}"), doc_freq: 1, distance: 1 };
            expected.push((std::cmp::Reverse(rank), expansion.text.clone()));
            if expansions.may_add(rank) {
                expansions.add(rank, expansion);
            }
            assert!(expansions.ranked.len() < 4 * MAX_EXPANSIONS);
        }
        expected.sort_unstable();
        expected.truncate(MAX_EXPANSIONS);
        let expected: Vec<&str> = expected.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts(&expansions.finish()), expected);
    }
}
