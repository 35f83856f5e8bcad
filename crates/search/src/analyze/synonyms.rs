//! Words that mean the same: which other words a query also searches for.

use std::borrow::Cow;
use std::collections::HashMap;

use docwharf_base::model::digest::Digest;

use super::built_in_synonyms::BUILT_IN_SYNONYMS;
use super::query::{ParsedQuery, QueryWord, is_next};
use super::query_parser::read_words;
use super::synonym_file::{SynonymError, parse_sets};

/// The minimum length of an English plural in bytes, so that `is` and `os` are not plurals.
const MIN_PLURAL_BYTES: usize = 4;

/// Sets of words that mean the same.
#[derive(Debug, Clone, Default)]
pub struct SynonymTable {
    sets: Vec<Vec<Synonym>>,
    /// The synonyms that start with a word.
    by_first_word: HashMap<String, Vec<SynonymPlace>>,
    /// The synonyms that are this symbol.
    by_symbol: HashMap<String, Vec<SynonymPlace>>,
}

/// A word or name of a set, folded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Synonym {
    /// Adjacent words, at least one: `sign in`. Text without spaces is its pairs of characters.
    Words(Vec<String>),
    /// A name with dots or signs: `c++`, `node.js`.
    Symbol(String),
}

/// The index of a set, and that of a synonym in it.
#[derive(Debug, Clone, Copy)]
struct SynonymPlace {
    set: usize,
    synonym: usize,
}

/// Words of a query for which there are synonyms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SynonymMatch<'t> {
    /// The index of the first word in [`ParsedQuery::words`].
    pub first: usize,
    /// The number of words.
    pub count: usize,
    /// The other synonyms of the set.
    pub alternatives: Vec<&'t Synonym>,
}

impl SynonymTable {
    /// Creates the table of the built-in English words.
    pub fn built_in() -> SynonymTable {
        let mut table = SynonymTable::default();
        for &set in BUILT_IN_SYNONYMS {
            table.add_set(set);
        }
        table
    }

    /// Creates the table of the built-in words and of those in a file of synonyms, in TOML. The errors are the mistakes
    /// in the file, at least one.
    pub fn with_file(text: &str) -> Result<SynonymTable, Vec<SynonymError>> {
        let mut table = SynonymTable::built_in();
        for set in parse_sets(text)? {
            table.add_set(set.as_slice());
        }
        Ok(table)
    }

    /// Returns a digest of all sets, in their order.
    pub fn digest(&self) -> Digest {
        Digest::compute(format!("{:?}", self.sets).as_bytes())
    }

    fn add_set(&mut self, words: &[impl AsRef<str>]) {
        let mut synonyms: Vec<Synonym> = Vec::new();
        for synonym in words.iter().filter_map(|word| read_synonym(word.as_ref())) {
            if !synonyms.contains(&synonym) {
                synonyms.push(synonym);
            }
        }
        let set = self.sets.len();
        for (index, synonym) in synonyms.iter().enumerate() {
            let place = SynonymPlace { set, synonym: index };
            match synonym {
                Synonym::Words(words) => self.by_first_word.entry(words[0].clone()).or_default().push(place),
                Synonym::Symbol(symbol) => self.by_symbol.entry(symbol.clone()).or_default().push(place),
            }
        }
        self.sets.push(synonyms);
    }

    /// Returns the words of a query outside phrases that have synonyms, with the synonyms. A word in the English plural
    /// has those of its singular. Matches can overlap, and a word that is in several sets has one match for each.
    pub fn find(&self, query: &ParsedQuery) -> Vec<SynonymMatch<'_>> {
        let mut matches = Vec::new();
        for first in 0..query.words.len() {
            let words = &query.words[first..];
            if has_sign(query, &words[0]) {
                continue;
            }
            for form in singular_forms(&words[0].text) {
                for place in self.by_first_word.get(&*form).into_iter().flatten() {
                    if let Synonym::Words(synonym) = &self.sets[place.set][place.synonym]
                        && starts_with(words, synonym)
                    {
                        matches.push(self.new_match(*place, first, synonym.len()));
                    }
                }
            }
        }
        for symbol in query.symbols.iter().filter(|symbol| !symbol.is_suffix) {
            let is_covered = |word: &QueryWord| symbol.start <= word.start && word.end <= symbol.end;
            let Some(first) = query.words.iter().position(is_covered) else { continue };
            let count = query.words[first..].iter().take_while(|word| is_covered(word)).count();
            for place in self.by_symbol.get(&symbol.text).into_iter().flatten() {
                matches.push(self.new_match(*place, first, count));
            }
        }
        matches
    }

    fn new_match(&self, place: SynonymPlace, first: usize, count: usize) -> SynonymMatch<'_> {
        let set = self.sets[place.set].iter().enumerate();
        let alternatives = set.filter(|(index, _)| *index != place.synonym).map(|(_, synonym)| synonym).collect();
        SynonymMatch { first, count, alternatives }
    }
}

/// Returns the words of a synonym, or the symbol if it is one. `None` if it has neither.
fn read_synonym(text: &str) -> Option<Synonym> {
    let text = text.trim();
    let (words, symbols) = read_words(text, 0, 0);
    let whole = symbols.into_iter().find(|symbol| symbol.start == 0 && symbol.end as usize == text.len());
    if let Some(symbol) = whole {
        return Some(Synonym::Symbol(symbol.text));
    }
    let words: Vec<String> = words.into_iter().map(|word| word.text).collect();
    (!words.is_empty()).then_some(Synonym::Words(words))
}

/// Whether a word has a sign that makes another word of it, as `c` in `c++`.
fn has_sign(query: &ParsedQuery, word: &QueryWord) -> bool {
    let mut symbols = query.symbols.iter().filter(|symbol| !symbol.is_suffix);
    symbols.any(|symbol| symbol.start <= word.start && word.end <= symbol.end && symbol.text != word.text)
}

/// Whether adjacent words start with those of a synonym. The last one may be a plural.
fn starts_with(words: &[QueryWord], synonym: &[String]) -> bool {
    let Some((last, before)) = synonym.split_last() else { return false };
    let Some(words) = words.get(..synonym.len()) else { return false };
    words.windows(2).all(|pair| is_next(&pair[0], &pair[1]))
        && words.iter().zip(before).all(|(word, expected)| word.text == *expected)
        && singular_forms(&words[before.len()].text).iter().any(|form| form == last)
}

/// Returns a word, and what it is the plural of if it is an English plural.
fn singular_forms(word: &str) -> Vec<Cow<'_, str>> {
    let mut forms = vec![Cow::Borrowed(word)];
    if word.len() < MIN_PLURAL_BYTES {
        return forms;
    }
    forms.extend(word.strip_suffix('s').map(Cow::Borrowed));
    forms.extend(word.strip_suffix("es").map(Cow::Borrowed));
    forms.extend(word.strip_suffix("ies").map(|stem| Cow::Owned(format!("{stem}y"))));
    forms
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::{fold, parse_query};
    use super::*;

    /// The matches of a query: the first word, the number of words, and the alternatives.
    fn find(table: &SynonymTable, text: &str) -> Vec<(usize, usize, String)> {
        let query = parse_query(text, None);
        let show = |synonym: &&Synonym| match synonym {
            Synonym::Words(words) => words.join(" "),
            Synonym::Symbol(symbol) => format!("<{symbol}>"),
        };
        let matches = table.find(&query);
        matches
            .iter()
            .map(|found| (found.first, found.count, found.alternatives.iter().map(show).collect::<Vec<_>>().join(", ")))
            .collect()
    }

    type Expected<'a> = (usize, usize, &'a str);

    fn expect(table: &SynonymTable, cases: &[(&str, &[Expected])]) {
        for (text, expected) in cases {
            let expected: Vec<_> =
                expected.iter().map(|(first, count, words)| (*first, *count, (*words).to_owned())).collect();
            assert_eq!(find(table, text), expected, "{text}");
        }
    }

    #[test]
    fn tables_with_the_same_sets_have_the_same_digest() {
        let digest = |text: &str| SynonymTable::with_file(text).unwrap().digest();
        let first = digest("sets = [[\"quay\", \"wharf\"], [\"tide\", \"flood\"]]");
        assert_eq!(first, digest("sets = [[\"Quay\", \"wharf\"], [\"tide\", \"flood\"]]"));
        assert_ne!(first, digest("sets = [[\"quay\", \"pier\"], [\"tide\", \"flood\"]]"));
        assert_eq!(SynonymTable::built_in().digest(), SynonymTable::built_in().digest());
        assert_ne!(SynonymTable::built_in().digest(), SynonymTable::default().digest());
    }

    #[test]
    fn words_of_a_query_have_the_other_words_of_their_set() {
        expect(
            &SynonymTable::built_in(),
            &[
                ("kill process", &[(0, 1, "terminate, stop")]),
                ("How to Terminate it", &[(2, 1, "kill, stop")]),
                ("sign in page", &[(0, 2, "login, log in, logon")]),
                ("log in", &[(0, 2, "login, logon, sign in")]),
                ("log file in", &[]),
                ("regular expressions", &[(0, 2, "regex, regexp")]),
                ("directories", &[(0, 1, "folder, dir")]),
                ("errors", &[(0, 1, "exception, failure")]),
                ("settings", &[(0, 1, "config, configuration")]),
                ("plugin", &[(0, 1, "plug in")]),
                ("k8s", &[(0, 1, "kubernetes")]),
                ("kill()", &[(0, 1, "terminate, stop")]),
                ("os.kill", &[]),
                ("\"kill process\"", &[]),
                ("unrelated", &[]),
                ("", &[]),
            ],
        );
    }

    #[test]
    fn a_file_adds_sets_to_the_built_in_ones() {
        let file =
            "sets = [['C++', 'cpp'], ['Node.js', 'node'], ['删除文件', 'delete file'], ['Kill', 'KILL', 'sigkill']]";
        expect(
            &SynonymTable::with_file(file).unwrap(),
            &[
                ("cpp templates", &[(0, 1, "<c++>")]),
                ("C++ templates", &[(0, 1, "cpp")]),
                ("c programming", &[]),
                ("use node.js", &[(1, 2, "node")]),
                ("删除文件", &[(0, 3, "delete file")]),
                ("删除目录", &[]),
                ("delete file", &[(0, 1, "remove, drop"), (0, 2, "删除 除文 文件")]),
                ("kill", &[(0, 1, "terminate, stop"), (0, 1, "sigkill")]),
            ],
        );
    }

    #[test]
    fn mistakes_in_a_file_are_returned() {
        assert_eq!(SynonymTable::with_file("sets = [['one']]").unwrap_err().len(), 1);
    }

    #[test]
    fn built_in_sets_are_few_and_folded_and_have_each_word_once() {
        assert!(BUILT_IN_SYNONYMS.len() <= 60);
        let mut seen = HashSet::new();
        for word in BUILT_IN_SYNONYMS.iter().copied().flatten() {
            assert_eq!(fold(word), *word);
            assert!(seen.insert(word), "{word}");
        }
        assert!(BUILT_IN_SYNONYMS.iter().all(|set| set.len() > 1));
    }

    #[test]
    fn every_built_in_synonym_finds_its_set() {
        let table = SynonymTable::built_in();
        for set in BUILT_IN_SYNONYMS {
            for word in *set {
                let found = table.find(&parse_query(word, None));
                assert!(found.iter().any(|found| found.alternatives.len() == set.len() - 1), "{word}");
            }
        }
    }
}
