//! The file of synonyms that an operator writes:
//!
//! ```toml
//! sets = [
//!     ["kill", "terminate"],
//!     ["k8s", "kubernetes", "container platform"],
//! ]
//! ```

use toml::{Table, Value};

/// The maximum size of a file of synonyms in bytes.
pub const MAX_SYNONYM_FILE_BYTES: usize = 8 << 20;
/// The maximum number of sets in a file of synonyms.
pub const MAX_SYNONYM_SETS: usize = 1000;
/// The maximum number of words in a set. `sign in` counts as one.
pub const MAX_SYNONYM_WORDS: usize = 20;
/// The maximum length of a word of a set, in characters.
pub const MAX_SYNONYM_CHARS: usize = 100;

/// The maximum number of errors that are reported for one file.
const MAX_REPORTED_ERRORS: usize = 20;
/// The maximum number of characters of a word that an error quotes.
const MAX_QUOTED_CHARS: usize = 30;

/// A mistake in a file of synonyms, displayed on one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SynonymError {
    /// The file is larger than [`MAX_SYNONYM_FILE_BYTES`].
    #[error("{bytes} bytes; at most {max} are allowed", max = MAX_SYNONYM_FILE_BYTES)]
    FileTooLarge {
        /// The size of the file.
        bytes: usize,
    },
    /// The file is not TOML.
    #[error("line {line}: {message}")]
    NotToml {
        /// The line, counted from 1.
        line: usize,
        /// The mistake on that line.
        message: String,
    },
    /// The file has a key that has no meaning.
    #[error("unknown key {key:?}; the only key is \"sets\"")]
    UnknownKey {
        /// The first characters of the key.
        key: String,
    },
    /// The file has no list of sets.
    #[error("\"sets\" must be a list of lists of words")]
    NoSets,
    /// There are more sets than [`MAX_SYNONYM_SETS`].
    #[error("{count} sets; at most {max} are allowed", max = MAX_SYNONYM_SETS)]
    TooManySets {
        /// The number of sets.
        count: usize,
    },
    /// A set cannot be used.
    #[error("{set}: {problem}")]
    InvalidSet {
        /// The number of the set, counted from 1, and its first word: `set 3 ("kill")`.
        set: String,
        /// The reason.
        problem: SynonymSetProblem,
    },
}

/// The reason why a set of synonyms cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SynonymSetProblem {
    /// It is not a list.
    #[error("not a list of words")]
    NotAList,
    /// It has fewer than two words.
    #[error("a set needs at least two words")]
    TooFewWords,
    /// It has more words than [`MAX_SYNONYM_WORDS`].
    #[error("{count} words; at most {max} are allowed", max = MAX_SYNONYM_WORDS)]
    TooManyWords {
        /// The number of words.
        count: usize,
    },
    /// A word is not a string.
    #[error("word {number} is not a string")]
    NotAString {
        /// The number of the word in the set, counted from 1.
        number: usize,
    },
    /// A word is longer than [`MAX_SYNONYM_CHARS`].
    #[error("word {number} has {chars} characters; at most {max} are allowed", max = MAX_SYNONYM_CHARS)]
    WordTooLong {
        /// The number of the word in the set, counted from 1.
        number: usize,
        /// Its length.
        chars: usize,
    },
    /// A word has nothing that can be searched for.
    #[error("word {number} has no letter and no digit")]
    NoLetters {
        /// The number of the word in the set, counted from 1.
        number: usize,
    },
}

/// Reads the sets of a file of synonyms. All its mistakes are returned, up to `MAX_REPORTED_ERRORS`.
pub(super) fn parse_sets(text: &str) -> Result<Vec<Vec<String>>, Vec<SynonymError>> {
    if text.len() > MAX_SYNONYM_FILE_BYTES {
        return Err(vec![SynonymError::FileTooLarge { bytes: text.len() }]);
    }
    let table: Table = toml::from_str(text).map_err(|error| vec![toml_error(text, &error)])?;
    let mut errors = Vec::new();
    for key in table.keys().filter(|key| *key != "sets") {
        errors.push(SynonymError::UnknownKey { key: key.chars().take(MAX_QUOTED_CHARS).collect() });
    }
    let mut sets = Vec::new();
    match table.get("sets").and_then(Value::as_array) {
        None => errors.push(SynonymError::NoSets),
        Some(list) if list.len() > MAX_SYNONYM_SETS => errors.push(SynonymError::TooManySets { count: list.len() }),
        Some(list) => {
            for (index, set) in list.iter().enumerate() {
                match parse_set(set) {
                    Ok(words) => sets.push(words),
                    Err(problem) => errors.push(SynonymError::InvalidSet { set: set_name(index, set), problem }),
                }
            }
        }
    }
    errors.truncate(MAX_REPORTED_ERRORS);
    if errors.is_empty() { Ok(sets) } else { Err(errors) }
}

fn toml_error(text: &str, error: &toml::de::Error) -> SynonymError {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    SynonymError::NotToml { line: before.split('\n').count(), message: error.message().replace(char::is_control, " ") }
}

fn parse_set(set: &Value) -> Result<Vec<String>, SynonymSetProblem> {
    let list = set.as_array().ok_or(SynonymSetProblem::NotAList)?;
    if list.len() > MAX_SYNONYM_WORDS {
        return Err(SynonymSetProblem::TooManyWords { count: list.len() });
    }
    let mut words = Vec::new();
    for (index, word) in list.iter().enumerate() {
        let number = index + 1;
        let word = word.as_str().ok_or(SynonymSetProblem::NotAString { number })?;
        let chars = word.chars().count();
        if chars > MAX_SYNONYM_CHARS {
            return Err(SynonymSetProblem::WordTooLong { number, chars });
        }
        if !word.contains(char::is_alphanumeric) {
            return Err(SynonymSetProblem::NoLetters { number });
        }
        words.push(word.to_owned());
    }
    if words.len() < 2 {
        return Err(SynonymSetProblem::TooFewWords);
    }
    Ok(words)
}

fn set_name(index: usize, set: &Value) -> String {
    let number = index + 1;
    let first = set.as_array().and_then(|list| list.first()).and_then(Value::as_str);
    first.map_or_else(
        || format!("set {number}"),
        |word| format!("set {number} ({:?})", word.chars().take(MAX_QUOTED_CHARS).collect::<String>()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(text: &str) -> Vec<String> {
        parse_sets(text).unwrap_err().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn sets_of_words_are_read_in_order() {
        let sets = parse_sets("# ours\nsets = [[\"kill\", \"terminate\"],\n['C++', \"cpp\", \"删除\"]]").unwrap();
        assert_eq!(sets, [vec!["kill", "terminate"], vec!["C++", "cpp", "删除"]]);
        assert_eq!(parse_sets("sets = []").unwrap(), Vec::<Vec<String>>::new());
    }

    #[test]
    fn every_mistake_is_reported_on_one_line_that_names_the_set() {
        let twenty_one = format!("sets = [['a', 'b'], [{}]]", "'x',".repeat(21));
        let long = format!("sets = [['a', '{}']]", "x".repeat(101));
        let many = format!("sets = [{}]", "['a', 'b'],".repeat(1001));
        let quoted = format!("sets = [['{}']]", "y".repeat(100));
        let cases: &[(&str, &[&str])] = &[
            ("", &["\"sets\" must be a list of lists of words"]),
            ("sets = 'a'", &["\"sets\" must be a list of lists of words"]),
            (
                "set = []",
                &["unknown key \"set\"; the only key is \"sets\"", "\"sets\" must be a list of lists of words"],
            ),
            ("sets = [['a', 'b'], 'c']", &["set 2: not a list of words"]),
            (
                "sets = [['a'], ['b', 1], [[], 'c']]",
                &[
                    "set 1 (\"a\"): a set needs at least two words",
                    "set 2 (\"b\"): word 2 is not a string",
                    "set 3: word 1 is not a string",
                ],
            ),
            ("sets = [['a', '--']]", &["set 1 (\"a\"): word 2 has no letter and no digit"]),
            ("sets = [[\"a\\nb\"]]", &["set 1 (\"a\\nb\"): a set needs at least two words"]),
            (twenty_one.as_str(), &["set 2 (\"x\"): 21 words; at most 20 are allowed"]),
            (long.as_str(), &["set 1 (\"a\"): word 2 has 101 characters; at most 100 are allowed"]),
            (many.as_str(), &["1001 sets; at most 1000 are allowed"]),
            (quoted.as_str(), &["set 1 (\"yyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\"): a set needs at least two words"]),
        ];
        for &(text, expected) in cases {
            assert_eq!(errors(text), expected, "{text}");
        }
    }

    #[test]
    fn text_that_is_no_toml_is_reported_with_its_line() {
        let errors = errors("sets = [\n['a', 'b'],\n['c' 'd']]");
        assert_eq!(errors.len(), 1);
        assert!(errors[0].starts_with("line 3: "), "{errors:?}");
        assert!(!errors[0].contains('\n'), "{errors:?}");
    }

    #[test]
    fn a_file_without_end_and_mistakes_without_end_are_bounded() {
        let large = format!("# {}", "x".repeat(MAX_SYNONYM_FILE_BYTES));
        assert_eq!(errors(&large), [format!("{} bytes; at most 8388608 are allowed", large.len())]);
        let wrong = format!("sets = [{}]", "['a'],".repeat(500));
        assert_eq!(errors(&wrong).len(), MAX_REPORTED_ERRORS);
    }
}
