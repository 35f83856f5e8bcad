//! The entries of the index that a documentation brings: names, terms and titles of sections, each with the places
//! that its authors have chosen. Queries are made from them, so nobody selects queries that suit an engine.

use std::collections::BTreeMap;

use crate::corpus::{IndexFormat, OpenCorpus, PageSet, Target};
use crate::{docbook, mdbook, sphinx};

/// An entry that leads to more pages than this is no good question: no order of its results would be wrong.
const MAX_TARGET_PAGES: usize = 3;

/// A text and the places where it is explained.
#[derive(Debug, Clone)]
pub(crate) struct IndexEntry {
    pub text: String,
    pub targets: Vec<Target>,
}

/// Whether the places are on one page at least, and on few enough pages for a query.
pub(crate) fn has_few_pages(targets: &[Target]) -> bool {
    let mut pages: Vec<&str> = targets.iter().map(|target| target.page.as_str()).collect();
    pages.sort_unstable();
    pages.dedup();
    (1..=MAX_TARGET_PAGES).contains(&pages.len())
}

/// Entries by their text in lower case. Entries with the same text are one entry with all places.
#[derive(Debug, Default)]
pub(crate) struct EntryMap(BTreeMap<String, IndexEntry>);

impl EntryMap {
    /// Adds a place. Places on pages that the site does not have are left out.
    pub(crate) fn add(&mut self, text: &str, target: Option<Target>, pages: &PageSet) {
        let text = text.trim();
        let Some(target) = target.filter(|target| !text.is_empty() && pages.has(&target.page)) else { return };
        let new_entry = || IndexEntry { text: text.to_owned(), targets: Vec::new() };
        let entry = self.0.entry(text.to_lowercase()).or_insert_with(new_entry);
        if !entry.targets.contains(&target) {
            entry.targets.push(target);
        }
    }

    /// Whether there is an entry with this text.
    pub(crate) fn has(&self, text: &str) -> bool {
        self.0.contains_key(&text.to_lowercase())
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &IndexEntry> {
        self.0.values()
    }

    /// The places of the entry with this text; none without one.
    pub(crate) fn targets_of(&self, text: &str) -> &[Target] {
        self.0.get(&text.to_lowercase()).map_or(&[], |entry| entry.targets.as_slice())
    }

    /// The places of all entries that begin with `start`, in lower case.
    pub(crate) fn targets_of_prefix(&self, start: &str) -> Vec<Target> {
        let entries = self.0.range(start.to_owned()..).take_while(|(text, _)| text.starts_with(start));
        entries.flat_map(|(_, entry)| entry.targets.iter().cloned()).collect()
    }
}

/// The index of a documentation.
#[derive(Debug, Default)]
pub(crate) struct DocIndex {
    /// Names of functions, types, settings and commands.
    pub names: EntryMap,
    /// Words and short phrases for concepts.
    pub terms: EntryMap,
    /// Titles of sections.
    pub titles: EntryMap,
}

impl DocIndex {
    /// Adds the places of all names, terms and titles with this text. Engines do not know from which of them a query was
    /// made: `lock` is a term with one place and a command with another, and a section with the title `Lock` is an
    /// answer whether the index names it or not.
    pub(crate) fn add_targets_of(&self, text: &str, targets: &mut Vec<Target>) {
        for entries in [&self.names, &self.terms, &self.titles] {
            for target in entries.targets_of(text) {
                if !targets.contains(target) {
                    targets.push(target.clone());
                }
            }
        }
    }

    pub(crate) fn read(corpus: &OpenCorpus) -> Result<Self, String> {
        match corpus.corpus.index {
            IndexFormat::Sphinx => sphinx::read_index(corpus),
            IndexFormat::DocBook { file, has_nested_terms } => docbook::read_index(corpus, file, has_nested_terms),
            IndexFormat::MdBook => mdbook::read_headings(corpus),
            IndexFormat::Rustdoc => mdbook::read_items(corpus),
        }
    }
}
