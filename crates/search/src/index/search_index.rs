//! An opened index.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tantivy::directory::OwnedBytes;
use tantivy::fieldnorm::FieldNormReader;
use tantivy::schema::Field;
use tantivy::store::StoreReader;
use tantivy::{Index, InvertedIndexReader, SegmentReader, TantivyError};

use docwharf_base::directory::Directory;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionId;

use crate::analyze::StemLanguage;

use super::header::{HEADER_FILE, HeaderFault, IndexHeader, PAGES_FILE};
use super::index_directory::{IndexDirectory, compute_checksum, map_file, read_file};
use super::page_table::PageTable;
use super::schema::{PAGE_COLUMN, SearchSchema};
use super::section_tokens::stem_language;

/// The number of decompressed blocks of stored text that are kept.
const CACHED_STORE_BLOCKS: usize = 64;
/// The maximum number of languages of which stems are looked for. There are fewer algorithms.
const MAX_STEM_LANGUAGES: usize = 64;

/// The index of a version. Its files are mapped into memory, and may be deleted while it is open.
pub struct SearchIndex {
    version: VersionId,
    settings: Digest,
    pages: u64,
    sections: u64,
    bytes: u64,
    pub(crate) page_table: PageTable,
    /// The languages whose stems are in the index, that of the most pages first.
    pub(crate) stem_languages: Vec<StemLanguage>,
    /// The tag of the first of them.
    pub(crate) main_language: Option<String>,
    /// `None` for a site without text.
    pub(crate) segment: Option<IndexSegment>,
}

/// A page of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexedPage<'a> {
    /// The address below the base path, without a leading slash.
    pub address: &'a str,
    /// The title; empty if the page has none.
    pub title: &'a str,
}

impl std::fmt::Debug for SearchIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SearchIndex")
            .field("version", &self.version)
            .field("pages", &self.pages)
            .finish_non_exhaustive()
    }
}

/// The sections of an index.
pub(crate) struct IndexSegment {
    pub(crate) schema: SearchSchema,
    /// The words of headings and texts, and of the title at the first section of each page: every word of the site.
    pub(crate) body: IndexField,
    pub(crate) heading: IndexField,
    pub(crate) title: IndexField,
    pub(crate) names: Arc<InvertedIndexReader>,
    pub(crate) store: StoreReader,
    /// The number of the page of each section.
    pub(crate) page_of_section: Vec<u32>,
}

/// A field with words and their stems.
pub(crate) struct IndexField {
    pub(crate) words: Arc<InvertedIndexReader>,
    pub(crate) stems: Arc<InvertedIndexReader>,
    /// The number of words of each section.
    pub(crate) lengths: FieldNormReader,
    /// The average number of words.
    pub(crate) average_length: f32,
}

/// The reason why an index cannot be opened. The remedy is always to build it again.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no index.
    #[error("there is no search index in {}", path.display())]
    Absent {
        /// The folder.
        path: PathBuf,
    },
    /// The index was built by another version of the program.
    #[error("the search index has format {format} and analyzer {analyzer}, which this program does not read")]
    OtherFormat {
        /// The number of the format of the index.
        format: u32,
        /// The number of the analyzer that it was built with.
        analyzer: u32,
    },
    /// The index is of another version of the site.
    #[error("the search index is of version {}", version.short())]
    OtherVersion {
        /// The version that it is of.
        version: VersionId,
    },
    /// A file is missing or is not what was written.
    #[error("the file {file} of the search index is damaged")]
    Damaged {
        /// The name of the file.
        file: String,
    },
    /// A file cannot be read.
    #[error("cannot read {file} of the search index")]
    Read {
        /// The name of the file.
        file: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The files are what was written, but cannot be used.
    #[error("cannot open the search index")]
    Index(#[source] TantivyError),
}

impl SearchIndex {
    /// Opens the index of `version` in a folder. All files are read once to check their checksums, then they are
    /// mapped.
    pub fn open(folder: &Directory, version: VersionId) -> Result<SearchIndex, OpenError> {
        let bytes = read_file(folder, Path::new(HEADER_FILE)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => OpenError::Absent { path: folder.path().to_owned() },
            _ => read_error(HEADER_FILE, error),
        })?;
        let header = IndexHeader::decode(&bytes).map_err(|fault| match fault {
            HeaderFault::OtherFormat { format, analyzer } => OpenError::OtherFormat { format, analyzer },
            HeaderFault::Damaged => damaged(HEADER_FILE),
        })?;
        if header.version != version {
            return Err(OpenError::OtherVersion { version: header.version });
        }
        let mappings = map_files(folder, &header)?;
        let pages = mappings.iter().find(|(name, _)| *name == PAGES_FILE).map(|(_, bytes)| bytes.clone());
        let page_table = pages.and_then(PageTable::open).ok_or_else(|| damaged(PAGES_FILE))?;
        let segment = if header.sections == 0 {
            None
        } else {
            let files = mappings.iter().map(|(name, bytes)| (PathBuf::from(name), bytes.clone()));
            let directory = IndexDirectory::with_mapped(folder, files);
            Some(open_segment(directory, header.sections).map_err(OpenError::Index)?)
        };
        let tags = header.stem_languages.iter().take(MAX_STEM_LANGUAGES);
        Ok(SearchIndex {
            version,
            settings: Digest::parse(&header.settings).ok_or_else(|| damaged(HEADER_FILE))?,
            pages: header.pages,
            sections: header.sections,
            bytes: header.files.iter().map(|file| file.len).sum::<u64>() + bytes.len() as u64,
            page_table,
            stem_languages: tags.filter_map(|tag| stem_language(Some(tag))).collect(),
            main_language: header.stem_languages.first().cloned(),
            segment,
        })
    }

    /// Returns the version that the index is of.
    pub fn version(&self) -> VersionId {
        self.version
    }

    /// Returns the digest of the settings that the index was built with.
    pub fn settings(&self) -> Digest {
        self.settings
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Returns the number of sections.
    pub fn sections(&self) -> u64 {
        self.sections
    }

    /// Returns the size of the files in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the page with this path; `None` if the index has no such page, or left it out.
    pub fn find_page(&self, path: &str) -> Option<IndexedPage<'_>> {
        let record = self.page_table.record(self.page_table.first_from(path));
        // Pages that were left out have a record, whose other fields are empty.
        let is_found = record.path == path && record.score_percent > 0;
        is_found.then_some(IndexedPage { address: record.address, title: record.title })
    }
}

fn damaged(file: &str) -> OpenError {
    OpenError::Damaged { file: file.to_owned() }
}

fn read_error(file: &str, error: io::Error) -> OpenError {
    let file = file.to_owned();
    match error.kind() {
        io::ErrorKind::NotFound => OpenError::Damaged { file },
        _ => OpenError::Read { file, source: error },
    }
}

/// Maps all files of an index and checks their checksums.
fn map_files<'h>(folder: &Directory, header: &'h IndexHeader) -> Result<Vec<(&'h str, OwnedBytes)>, OpenError> {
    let mut mappings = Vec::new();
    for file in &header.files {
        // Read, not through the mapping: so it takes no memory, and data that the disk has lost is an error here
        // instead of a SIGBUS.
        let name = Path::new(&file.name);
        let checked = folder.open_for_reading(name).and_then(compute_checksum);
        let checked = checked.map_err(|error| read_error(&file.name, error))?;
        let bytes = map_file(folder, name).map_err(|error| read_error(&file.name, error))?;
        if checked != (file.len, file.crc) || bytes.len() as u64 != file.len {
            return Err(damaged(&file.name));
        }
        mappings.push((file.name.as_str(), bytes));
    }
    Ok(mappings)
}

fn open_segment(directory: IndexDirectory, sections: u64) -> tantivy::Result<IndexSegment> {
    let schema = SearchSchema::new();
    let index = Index::open(directory)?;
    let segments = index.searchable_segments()?;
    let unexpected = |what: &str| TantivyError::InternalError(format!("unexpected {what}"));
    let [segment] = segments.as_slice() else { return Err(unexpected("number of segments")) };
    let reader = SegmentReader::open(segment)?;
    if index.schema() != schema.schema || u64::from(reader.max_doc()) != sections {
        return Err(unexpected("fields or number of sections"));
    }
    let column = reader.fast_fields().u64(PAGE_COLUMN)?;
    let page_of_section = (0..reader.max_doc()).map(|section| column.first(section).unwrap_or(u64::MAX) as u32);
    let page_of_section = page_of_section.collect();
    Ok(IndexSegment {
        body: open_field(&reader, schema.body, schema.body_stem)?,
        heading: open_field(&reader, schema.heading, schema.heading_stem)?,
        title: open_field(&reader, schema.title, schema.title_stem)?,
        names: reader.inverted_index(schema.names)?,
        store: reader.get_store_reader(CACHED_STORE_BLOCKS)?,
        page_of_section,
        schema,
    })
}

fn open_field(reader: &SegmentReader, words: Field, stems: Field) -> tantivy::Result<IndexField> {
    let lengths = reader.get_fieldnorms_reader(words)?;
    let words = reader.inverted_index(words)?;
    let average_length = (words.total_num_tokens() as f32 / reader.max_doc().max(1) as f32).max(1.0);
    Ok(IndexField { words, stems: reader.inverted_index(stems)?, lengths, average_length })
}
