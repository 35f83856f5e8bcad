//! The tokens of one section, distributed to the fields of the index.

use std::collections::HashMap;

use crate::analyze::{StemLanguage, Stemmer, Token, TokenKind, tokenize};
use crate::extract::Section;

use super::packed_tokens::PackedTokens;

/// The maximum number of words whose stems are remembered for one language.
const MAX_CACHED_STEMS: usize = 1 << 16;

/// The stems of one language. Most words of a text have occurred before, and looking one up takes a fraction of the
/// time of the algorithm.
pub(super) struct StemCache {
    stemmer: Stemmer,
    /// The index of each word in `stems`. With the stems in the map itself, each word would be looked up twice.
    words: HashMap<Box<str>, usize>,
    /// The stems; `None` for a word that is its own stem.
    stems: Vec<Option<Box<str>>>,
}

impl StemCache {
    fn new(language: StemLanguage) -> StemCache {
        StemCache { stemmer: Stemmer::new(language), words: HashMap::new(), stems: Vec::new() }
    }

    /// Returns the stem of a folded word; `None` if it is the word itself.
    pub(super) fn find_stem(&mut self, word: &str) -> Option<&str> {
        let index = match self.words.get(word) {
            Some(index) => *index,
            None => self.add_word(word),
        };
        self.stems.get(index).and_then(|stem| stem.as_deref())
    }

    fn add_word(&mut self, word: &str) -> usize {
        if self.stems.len() >= MAX_CACHED_STEMS {
            self.words.clear();
            self.stems.clear();
        }
        let stem = self.stemmer.stem(word);
        self.words.insert(Box::from(word), self.stems.len());
        self.stems.push((*stem != *word).then(|| Box::from(&*stem)));
        self.stems.len() - 1
    }
}

/// The stems of all languages of a site.
#[derive(Default)]
pub(super) struct StemCaches(HashMap<StemLanguage, StemCache>);

impl StemCaches {
    /// Returns the stems of a page. A page that does not declare its language is taken for English; a language
    /// without stems has none.
    pub(super) fn find(&mut self, lang: Option<&str>) -> Option<&mut StemCache> {
        let language = stem_language(lang)?;
        Some(self.0.entry(language).or_insert_with(|| StemCache::new(language)))
    }
}

/// Returns the language of the stems of a page whose `lang` is given.
pub(crate) fn stem_language(lang: Option<&str>) -> Option<StemLanguage> {
    lang.map_or(Some(StemLanguage::ENGLISH), StemLanguage::from_tag)
}

/// The tokens of one text: as they are, and the stems that differ from them.
#[derive(Debug, Default)]
pub(super) struct TextTokens {
    pub(super) exact: PackedTokens,
    pub(super) stems: PackedTokens,
}

impl TextTokens {
    fn clear(&mut self) {
        self.exact.clear();
        self.stems.clear();
    }

    /// Appends the tokens of `text`.
    ///
    /// Left out are symbols without a sign (`open` of `open()`), which are words already, and the ends of symbols:
    /// their words are next to each other. A stem that is equal to its word is left out too: a query for a stem looks
    /// for it among the words as well.
    fn append(&mut self, text: &str, mut stems: Option<&mut StemCache>) {
        tokenize(text, &mut |token: Token<'_>| match token.kind {
            TokenKind::Word | TokenKind::Piece => {
                self.exact.push(token.text, token.position);
                if let Some(stems) = stems.as_deref_mut() {
                    let written = text.get(token.start as usize..token.end as usize).unwrap_or_default();
                    self.append_stems(token.text, written, stems);
                }
            }
            TokenKind::Symbol if has_sign(token.text) => self.exact.push(token.text, token.position),
            TokenKind::Bigram | TokenKind::Unigram => self.exact.push(token.text, token.position),
            TokenKind::Symbol | TokenKind::SymbolSuffix => {}
        });
    }

    fn append_stems(&mut self, word: &str, written: &str, stems: &mut StemCache) {
        if let Some(stem) = stems.find_stem(word) {
            self.stems.push(stem, 0);
        }
        if let Some(stem) = stems.stemmer.stem_as_written(written) {
            self.stems.push(&stem, 0);
        }
    }
}

/// Whether a folded symbol has a character that no word has.
pub(crate) fn has_sign(symbol: &str) -> bool {
    symbol.chars().any(|c| !c.is_alphanumeric() && c != '_')
}

/// The tokens of one section. The buffers are used again for each section.
#[derive(Debug, Default)]
pub(super) struct SectionTokens {
    pub(super) body: TextTokens,
    pub(super) heading: TextTokens,
    pub(super) title: TextTokens,
}

impl SectionTokens {
    /// Replaces the tokens by those of `section`. `title` is the title of the page.
    pub(super) fn read(&mut self, section: &Section, title: &str, mut stems: Option<&mut StemCache>) {
        let SectionTokens { body, heading, title: titles } = self;
        for tokens in [&mut *body, &mut *heading, &mut *titles] {
            tokens.clear();
        }
        body.append(&section.text, stems.as_deref_mut());
        let (own, above) = match section.headings.split_last() {
            Some((own, above)) => (own.as_str(), above),
            None => ("", [].as_slice()),
        };
        heading.append(own, stems.as_deref_mut());
        // One text, so that the words have ascending positions.
        let mut text = title.to_owned();
        for outer in above.iter().filter(|outer| !title.contains(outer.as_str())) {
            text.push('\n');
            text.push_str(outer);
        }
        titles.append(&text, stems);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(packed: &PackedTokens) -> Vec<String> {
        let texts = packed.as_str().split_terminator('\u{0}');
        texts.map(|text| text.trim_start_matches('\u{1}').to_owned()).collect()
    }

    fn section(headings: &[&str], text: &str) -> Section {
        Section {
            anchor: None,
            headings: headings.iter().map(|&heading| heading.to_owned()).collect(),
            level: 2,
            is_definition: false,
            text: text.to_owned(),
            code_spans: Vec::new(),
        }
    }

    #[test]
    fn each_text_of_a_section_has_its_own_tokens() {
        let mut tokens = SectionTokens::default();
        let section = section(&["Guide", "Caches", "lru_cache"], "keeps values");
        tokens.read(&section, "The Guide", None);
        assert_eq!(words(&tokens.body.exact), ["keeps", "values"]);
        assert_eq!(words(&tokens.heading.exact), ["lru_cache", "lru", "cache"]);
        // A heading that is part of the title is not counted twice.
        assert_eq!(words(&tokens.title.exact), ["the", "guide", "caches"]);
        assert!(tokens.body.stems.is_empty());
        tokens.read(&self::section(&[], ""), "", None);
        assert!(tokens.body.exact.is_empty() && tokens.heading.exact.is_empty() && tokens.title.exact.is_empty());
    }

    #[test]
    fn symbols_are_tokens_if_no_word_is_equal() {
        let mut tokens = TextTokens::default();
        tokens.append("open() os.path.join --flag", None);
        assert_eq!(words(&tokens.exact), ["open", "os.path.join", "os", "path", "join", "--flag", "flag"]);
    }

    #[test]
    fn stems_are_those_of_the_language_and_differ_from_the_words() {
        let mut caches = StemCaches::default();
        for (lang, text, expected) in [
            (None, "connections connect", &["connect"][..]),
            (Some("en"), "caching and running", &["cach", "run"]),
            (Some("ja"), "connections", &[]),
        ] {
            let mut tokens = TextTokens::default();
            tokens.append(text, caches.find(lang));
            assert_eq!(words(&tokens.stems), expected, "{lang:?}");
        }
    }

    #[test]
    fn the_stem_cache_is_bounded() {
        let mut cache = StemCache::new(StemLanguage::ENGLISH);
        let letter = |number: usize| char::from(b'a' + (number % 26) as u8);
        for number in 0..MAX_CACHED_STEMS + 10 {
            let word: String = [number / 17_576, number / 676, number / 26, number].map(letter).iter().collect();
            cache.find_stem(&word);
        }
        assert!(cache.stems.len() <= MAX_CACHED_STEMS && cache.words.len() == cache.stems.len());
        assert_eq!(cache.find_stem("connections"), Some("connect"));
    }
}
