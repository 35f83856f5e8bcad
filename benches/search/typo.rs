//! Typing errors: one edit of one word, chosen by a seed, that makes no other word of the documentation.

use crate::vocabulary::Vocabulary;

/// The letters of a word that gets an error. In shorter words an error often makes another word.
const MIN_WORD_CHARS: usize = 6;
/// Attempts to find an edit that makes an unknown word.
const MAX_ATTEMPTS: usize = 20;

/// Returns the text with one error in its longest word; `None` if no word is long enough.
pub(crate) fn add_typo(text: &str, seed: u64, vocabulary: &Vocabulary) -> Option<String> {
    let is_suitable =
        |word: &&str| word.len() >= MIN_WORD_CHARS && word.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
    let word = text.split(' ').filter(is_suitable).max_by_key(|word| word.len())?;
    let mut numbers = RandomNumbers { state: seed };
    for _ in 0..MAX_ATTEMPTS {
        let changed = edit(word, &mut numbers);
        if changed != word && !vocabulary.has(&changed) {
            return Some(text.replacen(word, &changed, 1));
        }
    }
    None
}

/// Exchanges two letters, removes, adds or replaces one; never the first.
fn edit(word: &str, numbers: &mut RandomNumbers) -> String {
    let mut letters: Vec<char> = word.chars().collect();
    let at = 1 + numbers.below(letters.len() - 1);
    let letter = char::from(b'a' + numbers.below(26) as u8);
    match numbers.below(4) {
        0 => {
            let other = if at + 1 < letters.len() { at + 1 } else { at - 1 };
            // The first letter stays: `at - 1` is never 0 in a word of this length.
            letters.swap(at, other);
        }
        1 => {
            letters.remove(at);
        }
        2 => letters.insert(at, letter),
        _ => letters[at] = letter,
    }
    letters.into_iter().collect()
}

/// Pseudo-random numbers (`SplitMix64`).
struct RandomNumbers {
    state: u64,
}

impl RandomNumbers {
    /// A number from 0 to `bound` - 1.
    fn below(&mut self, bound: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (mix(self.state) % bound as u64) as usize
    }
}

/// The final steps of `SplitMix64`.
pub(crate) fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
