//! The index of a version: how it is built, kept and opened.
//!
//! [`build`] reads the pages of a sealed version and writes the index into an empty folder; [`SearchIndex::open`] maps
//! it. The folder has a header (`search.json`), the table of pages (`pages`), and the files of one tantivy segment,
//! which has a document for each section. The header names the version, the numbers of format and analyzer, and the
//! length and checksum of every other file. It is written last. An index that is incomplete, damaged, or of another
//! format or analyzer is not opened and must be built again. Nothing is synced to disk: the checksums find what a
//! power failure has destroyed.
//!
//! # Fields
//!
//! | field | content | frequencies | positions, lengths |
//! |---|---|---|---|
//! | `body` | words, pieces and symbols of heading and text; of the title at the first section of a page | yes | yes |
//! | `heading` | the same of the section's own heading | yes | yes |
//! | `title` | the same of the page's title and of the headings above the section | yes | yes |
//! | `body_stem`, `heading_stem`, `title_stem` | stems that differ from their words | yes | no |
//! | `names` | the section's names, whole; the frequency of a name is its strength | yes | no |
//! | `page` | the number of the page (a column) | | |
//! | `anchor`, `headings`, `text` | stored, for results | | |
//!
//! Language, path, address, title and the factor of the score are facts of a page. They are in the table of pages and
//! not at each section: a filter by language or path is a comparison of page numbers.
//!
//! # Size
//!
//! Positions are the largest part of an index after the stored text. Only the fields in which phrases are looked for
//! have them. A stem that is equal to its word is not stored again (a query for a stem looks for it among the words,
//! too), which leaves about two of five tokens for the stem fields. Symbols are stored if they have a sign, and their
//! ends are not stored, because their words are neighbours. The text for excerpts ends after 16 KiB of a section.
//! The index of Python's documentation, 67 MB of HTML, has about 14 MB.

mod build;
mod build_error;
mod build_report;
mod candidates;
mod definition_names;
mod demotion;
mod duplicates;
mod header;
mod index_directory;
mod names;
mod packed_tokens;
mod page_table;
mod part_writer;
mod repetitions;
mod schema;
mod search_index;
mod section_tokens;
mod site_links;
#[cfg(test)]
pub(crate) mod test_sites;
#[cfg(test)]
mod tests;
mod titles;

pub use build::{BuildSettings, build};
pub use build_error::BuildError;
pub use build_report::{BuildProgress, BuildReport, CutContent, LeftOutPages};
pub use candidates::{find_listed_address, is_withheld};
pub use header::FORMAT_NUMBER;
pub use search_index::{IndexedPage, OpenError, SearchIndex};

pub(crate) use build::MAX_PAGE_BYTES;
pub(crate) use candidates::{CandidatePage, find_candidates};
pub(crate) use demotion::MAX_SECONDARY_PERCENT;
pub(crate) use names::{MAX_STRENGTH, exact_key, pieces_key, split_into_pieces};
pub(crate) use page_table::PageTable;
pub(crate) use part_writer::MAX_STORED_TEXT_BYTES;
pub(crate) use search_index::{IndexField, IndexSegment};
pub(crate) use section_tokens::{has_sign, stem_language};
pub(crate) use site_links::{SitemapEntry, read_sitemaps};
