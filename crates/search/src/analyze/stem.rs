//! Stems of words, by the Snowball algorithms.

use std::borrow::Cow;

use frostem::Algorithm;
use unicode_normalization::UnicodeNormalization;

use super::fold::fold;

/// The maximum length of a word in bytes that has a stem of its own. No inflected word is longer.
const MAX_STEMMED_BYTES: usize = 128;

/// A language whose words have stems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StemLanguage(Algorithm);

impl StemLanguage {
    /// English, for texts that do not declare their language.
    pub const ENGLISH: StemLanguage = StemLanguage(Algorithm::English);

    /// Returns the language of a tag (BCP 47: `en`, `pt-BR`, `nb`), or `None` if there is no algorithm for it. Only the
    /// primary subtag counts.
    pub fn from_tag(lang: &str) -> Option<StemLanguage> {
        let primary = lang.trim().split(['-', '_']).next().unwrap_or_default().to_ascii_lowercase();
        match primary.as_str() {
            // The two written forms of Norwegian.
            "nb" | "nn" | "nob" | "nno" => Some(StemLanguage(Algorithm::Norwegian)),
            // The names of algorithms (`porter`, `lovins`) are longer than the code of a language.
            code if matches!(code.len(), 2 | 3) => Algorithm::from_name(code).ok().map(StemLanguage),
            _ => None,
        }
    }

    /// Returns the English name of the language in lower case.
    pub fn name(self) -> &'static str {
        self.0.name()
    }
}

/// Makes the stems of the words of one language.
pub struct Stemmer {
    algorithm: frostem::Stemmer,
}

impl Stemmer {
    /// Creates a stemmer for `language`.
    pub fn new(language: StemLanguage) -> Stemmer {
        Stemmer { algorithm: frostem::Stemmer::new(language.0) }
    }

    /// Returns the stem of a folded word; the word itself if it has digits or `_`, because it is an identifier, and if
    /// it is very long.
    pub fn stem<'a>(&self, word: &'a str) -> Cow<'a, str> {
        if word.len() > MAX_STEMMED_BYTES || word.bytes().any(|byte| byte.is_ascii() && !byte.is_ascii_alphabetic()) {
            return Cow::Borrowed(word);
        }
        let stem = self.algorithm.stem(word);
        if stem.is_empty() { Cow::Borrowed(word) } else { stem }
    }

    /// Returns the folded stem of a word as it is written in the text, if that differs from the stem of the folded
    /// word.
    ///
    /// Some endings are known by their diacritics only: `configuração` and `configurações` have the stem `configur`,
    /// but without diacritics they have two different ones. If both stems of a word are in the index and in the query,
    /// a word is found by its inflected forms with and without diacritics.
    pub fn stem_as_written(&self, word: &str) -> Option<String> {
        if word.is_ascii() {
            return None;
        }
        let lower: String = word.nfkc().flat_map(char::to_lowercase).collect();
        let stem = fold(&self.stem(&lower));
        (stem != self.stem(&fold(word))).then_some(stem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stemmer(tag: &str) -> Stemmer {
        Stemmer::new(StemLanguage::from_tag(tag).unwrap())
    }

    #[test]
    fn languages_are_found_by_the_primary_subtag_of_their_tag() {
        let cases = [
            ("en", "english"),
            ("EN-us", "english"),
            ("de_AT", "german"),
            ("fr-CA", "french"),
            ("es-419", "spanish"),
            ("pt-BR", "portuguese"),
            ("nb", "norwegian"),
            ("nn-NO", "norwegian"),
            ("no", "norwegian"),
            ("nl", "dutch"),
            ("ru", "russian"),
            ("tr", "turkish"),
            ("el", "greek"),
            ("deu", "german"),
        ];
        for (tag, name) in cases {
            assert_eq!(StemLanguage::from_tag(tag).map(StemLanguage::name), Some(name), "{tag}");
        }
        for tag in ["", "zh", "ja", "ko-KR", "porter", "lovins", "english", "x", "-en", "x-klingon"] {
            assert_eq!(StemLanguage::from_tag(tag), None, "{tag}");
        }
    }

    #[test]
    fn inflected_forms_have_one_stem() {
        let cases: [(&str, &[&str]); 5] = [
            ("en", &["connection", "connections", "connected", "connecting"]),
            ("de", &["automat", "automaten"]),
            ("fr", &["continuer", "continuation"]),
            ("es", &["cheque", "cheques"]),
            ("ru", &["файл", "файла", "файлом"]),
        ];
        for (tag, words) in cases {
            let stemmer = stemmer(tag);
            let first = stemmer.stem(words[0]);
            for word in words {
                assert_eq!(stemmer.stem(word), first, "{tag}: {word}");
            }
        }
    }

    #[test]
    fn identifiers_have_no_stem_of_their_own() {
        let english = stemmer("en");
        let long = "connections".repeat(20);
        for word in ["", "utf8", "lru_caches", "__init__", long.as_str()] {
            assert_eq!(english.stem(word), word);
        }
    }

    #[test]
    fn a_word_with_diacritics_has_the_stem_of_its_written_form_as_well() {
        let portuguese = stemmer("pt");
        let stem = portuguese.stem_as_written("Configuração");
        assert!(stem.is_some());
        assert_eq!(portuguese.stem_as_written("configurações"), stem);
        assert_eq!(portuguese.stem_as_written("arquivos"), None);
    }

    #[test]
    fn no_algorithm_panics_on_words_of_other_scripts() {
        let words = "a ss aaaaaaaaaaaa ation yyyy ij ıi naïve état größe ñandú ção șț żółw đ файлами ё ий αβγδ μενα \
                     שלום محمد ال हिन्दी தமிழ் ไทย 漢字 한글";
        for algorithm in Algorithm::all() {
            let stemmer = Stemmer::new(StemLanguage(*algorithm));
            for first in words.split(' ') {
                for second in words.split(' ') {
                    let word = format!("{first}{second}");
                    assert!(!stemmer.stem(&word).is_empty(), "{}: {word}", algorithm.name());
                    let _ = stemmer.stem_as_written(&word);
                }
            }
        }
    }
}
