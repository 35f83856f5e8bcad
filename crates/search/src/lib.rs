//! Full-text search of a sealed documentation site.
//!
//! [`extract`] reads the text of HTML pages, one section for each heading. [`analyze`] splits text into words, for the
//! index and for queries alike. [`index`] builds the index of a version and opens it, [`query`] finds what a reader has
//! typed, and [`page`] has the answers as JSON and HTML, and the files of the search box. [`markdown`] writes the
//! content of a page as Markdown, and [`site_markdown`] that of all pages into one file.
//!
//! Everything here is a library without processes, sockets or configuration. Pages and queries may be hostile: time,
//! memory and recursion are bounded by constants, and nothing in them is an error of the program.
//!
//! ```
//! use docwharf_base::directory::Directory;
//! use docwharf_base::model::limits::BundleLimits;
//! use docwharf_search::analyze::SynonymTable;
//! use docwharf_search::index::{BuildProgress, BuildSettings, SearchIndex, build};
//! use docwharf_search::query::SearchRequest;
//! use docwharf_site::index::ImageIndex;
//! use docwharf_site::mapping;
//! use docwharf_site::seal::{ImageTarget, SealOptions, SealProgress, seal};
//! use docwharf_site::sealed_version::SealedVersion;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! std::fs::write(folder.path().join("index.html"), "<h1 id=start>Start</h1><p>Connections are closed.</p>")?;
//!
//! // Seal the bundle and open the version.
//! let target = ImageTarget::Unlinked(std::env::temp_dir());
//! let sealed = seal(folder.path(), &target, &SealOptions::new(BundleLimits::default()), &SealProgress::default())?;
//! let id = sealed.verified.id;
//! let image_index = ImageIndex::decode(sealed.verified.encode_index(sealed.image_len), sealed.image_len, id)?;
//! let version = SealedVersion::new(id, mapping::map_image(sealed.image)?, image_index);
//!
//! // Build its index in an empty folder, and open it.
//! let folder = tempfile::tempdir()?;
//! let target = Directory::open(folder.path())?;
//! let report = build(&version, &BuildSettings::default(), &target, &BuildProgress::default())?;
//! assert_eq!((report.pages, report.sections), (1, 1));
//! let index = SearchIndex::open(&target, id)?;
//!
//! // A stem, and a word with a typing error.
//! let synonyms = SynonymTable::built_in();
//! for text in ["connection", "conections"] {
//!     let outcome = index.search(&SearchRequest::new(text, &synonyms), &|_| true)?;
//!     let response = outcome.into_response(text, "/docs/", id, false, 0.5);
//!     assert_eq!(response.results[0].url, "/docs/#start");
//!     assert_eq!(response.results[0].excerpt, "Connections are closed.");
//! }
//! # Ok(())
//! # }
//! ```

pub mod analyze;
pub mod extract;
pub mod index;
pub mod markdown;
pub mod page;
pub mod query;
pub mod site_markdown;
