//! All words of a site and the parts of its names: a typing error must make none of them.

use std::collections::HashSet;

use crate::corpus::OpenCorpus;
use crate::html::{HtmlScanner, HtmlToken};
use crate::queries::parts_of_name;

/// The words of a site in lower case.
#[derive(Debug, Default)]
pub(crate) struct Vocabulary(HashSet<String>);

impl Vocabulary {
    /// Reads all pages. Character references are not decoded: their names count as words, which does no harm.
    pub(crate) fn read(corpus: &OpenCorpus) -> Result<Self, String> {
        let mut words: HashSet<String> = HashSet::new();
        let pages = corpus.pages.paths().filter(|page| page.starts_with(corpus.corpus.vocabulary_folder));
        for page in pages {
            let html = corpus.read_text(page)?;
            for (_, token) in HtmlScanner::new(&html) {
                let HtmlToken::Text(text) = token else { continue };
                for word in text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()) {
                    if !words.contains(word) {
                        words.insert(word.to_owned());
                    }
                }
            }
        }
        let parts = words.iter().flat_map(|word| parts_of_name(word));
        let known: HashSet<String> = parts.chain(words.iter().map(|word| word.to_lowercase())).collect();
        Ok(Self(known))
    }

    pub(crate) fn has(&self, word: &str) -> bool {
        self.0.contains(&word.to_lowercase())
    }
}
