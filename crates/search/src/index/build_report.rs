//! The progress and the results of building an index.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::extract::LeftOutContent;

/// The progress of building an index, for display by another thread.
#[derive(Debug, Default)]
pub struct BuildProgress {
    pages: AtomicU64,
    done: AtomicU64,
}

impl BuildProgress {
    /// Returns the number of pages that are read in total; 0 before it is known.
    pub fn pages(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
    }

    /// Returns the number of pages that have been read.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    pub(crate) fn start(&self, pages: usize) {
        self.pages.store(pages as u64, Ordering::Relaxed);
    }

    pub(crate) fn finish_page(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// The result of building an index.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildReport {
    /// The number of pages in the index.
    pub pages: u64,
    /// The number of sections in the index.
    pub sections: u64,
    /// The pages that are not in the index, by reason.
    pub left_out: LeftOutPages,
    /// The content of indexed pages that is not in the index.
    pub cut: CutContent,
    /// The size of the index in bytes.
    pub bytes: u64,
    /// The duration in seconds.
    pub seconds: f64,
}

/// The numbers of pages that are not in an index, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftOutPages {
    /// Pages that ask not to be indexed.
    pub no_index: u64,
    /// Pages that only lead to another address.
    pub refresh: u64,
    /// Pages for addresses that do not exist.
    pub not_found_page: u64,
    /// Pages that are never served, or that a rule redirects or hides.
    pub not_served: u64,
    /// Pages that the configuration excludes.
    pub excluded: u64,
    /// Pages with the same text as another one.
    pub repeated: u64,
    /// Pages that are too large, damaged, or have a path that is not UTF-8.
    pub unreadable: u64,
}

impl LeftOutPages {
    /// Returns the number of all these pages.
    pub fn total(&self) -> u64 {
        self.no_index
            + self.refresh
            + self.not_found_page
            + self.not_served
            + self.excluded
            + self.repeated
            + self.unreadable
    }

    pub(super) fn add(&mut self, other: &LeftOutPages) {
        self.no_index += other.no_index;
        self.refresh += other.refresh;
        self.not_found_page += other.not_found_page;
        self.not_served += other.not_served;
        self.excluded += other.excluded;
        self.repeated += other.repeated;
        self.unreadable += other.unreadable;
    }
}

/// The content that exceeded the limits and is not in an index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CutContent {
    /// The length of text in bytes.
    pub text_bytes: u64,
    /// The number of sections, of single pages and of the whole index.
    pub sections: u64,
    /// The number of headings and titles that were cut.
    pub headings: u64,
    /// The number of pages whose extraction took too long; their rest is missing.
    pub slow_pages: u64,
}

impl CutContent {
    pub(super) fn add_page(&mut self, left_out: &LeftOutContent) {
        self.text_bytes += left_out.text_bytes as u64;
        self.sections += left_out.sections as u64;
        self.headings += left_out.headings as u64;
        self.slow_pages += u64::from(left_out.time_exceeded);
    }

    pub(super) fn add(&mut self, other: &CutContent) {
        self.text_bytes += other.text_bytes;
        self.sections += other.sections;
        self.headings += other.headings;
        self.slow_pages += other.slow_pages;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_has_the_documented_names_in_json() {
        let report = BuildReport {
            pages: 2,
            left_out: LeftOutPages { no_index: 1, ..LeftOutPages::default() },
            ..BuildReport::default()
        };
        let json = serde_json::to_value(&report).unwrap();
        for name in ["pages", "sections", "leftOut", "cut", "bytes", "seconds"] {
            assert!(json.get(name).is_some(), "{name}");
        }
        assert_eq!(json["leftOut"]["noIndex"], 1);
        assert_eq!(serde_json::from_value::<BuildReport>(json).unwrap(), report);
    }

    #[test]
    fn counts_of_threads_are_added() {
        let one = LeftOutPages {
            no_index: 1,
            refresh: 2,
            not_found_page: 3,
            not_served: 4,
            excluded: 5,
            repeated: 6,
            unreadable: 7,
        };
        let mut sum = one;
        sum.add(&one);
        assert_eq!((one.total(), sum.total()), (28, 56));
        let page = LeftOutContent { text_bytes: 1, sections: 2, headings: 3, time_exceeded: true };
        let mut cut = CutContent::default();
        cut.add_page(&page);
        let page_cut = cut;
        cut.add(&page_cut);
        assert_eq!(cut, CutContent { text_bytes: 2, sections: 4, headings: 6, slow_pages: 2 });
    }
}
