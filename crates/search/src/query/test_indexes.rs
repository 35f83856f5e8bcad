//! Indexes for the tests of queries.

use crate::analyze::SynonymTable;
use crate::index::test_sites::{TestIndex, build_index, page, seal_site};
use crate::index::{BuildSettings, IndexSegment};

use super::{SearchOutcome, SearchRequest};

impl TestIndex {
    pub(super) fn segment(&self) -> &IndexSegment {
        self.index.segment.as_ref().unwrap()
    }

    /// Answers a request; all pages are served.
    pub(super) fn ask(&self, request: &SearchRequest<'_>) -> SearchOutcome {
        self.index.search(request, &|_| true).unwrap()
    }

    /// Returns the addresses of the best sections for a text, best first.
    pub(super) fn find(&self, text: &str) -> Vec<String> {
        addresses(&self.ask(&SearchRequest::new(text, &SynonymTable::default())))
    }
}

/// Returns the addresses of the best sections.
pub(super) fn addresses(outcome: &SearchOutcome) -> Vec<String> {
    let address = |page: &super::PageMatch| match &page.best.anchor {
        Some(anchor) => format!("{}#{anchor}", page.address),
        None => page.address.clone(),
    };
    outcome.results.iter().map(address).collect()
}

/// Builds the index of pages without titles and headings, in this order, with these texts.
pub(super) fn index_of_words(texts: &[&str]) -> TestIndex {
    let paragraphs = texts.iter().enumerate();
    let files: Vec<(String, String)> =
        paragraphs.map(|(number, text)| (format!("{number:03}.html"), page("-", &format!("<p>{text}</p>")))).collect();
    index_of_pages(&files.iter().map(|(path, html)| (path.as_str(), html.as_str())).collect::<Vec<_>>())
}

/// Builds the index of these files.
pub(super) fn index_of_pages(files: &[(&str, &str)]) -> TestIndex {
    build_index(&seal_site(files), &BuildSettings { threads: 1, ..BuildSettings::default() })
}
