//! The parts of an index: each thread writes its own, and all are merged at the end.
//!
//! A part is held in memory until it has reached its size. The text for excerpts is not: it is written to disk in
//! compressed blocks as it comes.

use docwharf_base::directory::Directory;
use std::collections::HashSet;
use tantivy::directory::OwnedBytes;
use tantivy::fastfield::{AliveBitSet, write_alive_bitset};
use tantivy::indexer::merge_filtered_segments;
use tantivy::{BitSet, Index, SingleSegmentIndexWriter, TantivyDocument};

use crate::extract::Section;

use super::build_error::BuildError;
use super::index_directory::{FOLDER_MODE, IndexDirectory};
use super::packed_tokens::PackedTokens;
use super::schema::{SearchSchema, create_tokenizers, index_settings};
use super::section_tokens::SectionTokens;

/// The maximum length of the text of a section that is stored for excerpts, in bytes. Words after it are found, but the
/// excerpt cannot show them. The largest answers read hundreds of such texts.
pub(crate) const MAX_STORED_TEXT_BYTES: usize = 16 << 10;

/// A complete part.
pub(super) struct FinishedPart {
    index: Index,
    /// The pages in the order of their sections, each with the number of its sections.
    pages: Vec<(u32, u32)>,
}

/// Writes the parts of one thread.
pub(super) struct PartWriter<'a> {
    schema: &'a SearchSchema,
    /// The folder in which each part has a folder.
    folder: &'a Directory,
    /// The number of the thread, with which the names of these folders begin.
    thread: usize,
    memory_bytes: usize,
    current: Option<OpenPart>,
    finished: Vec<FinishedPart>,
}

struct OpenPart {
    writer: SingleSegmentIndexWriter,
    pages: Vec<(u32, u32)>,
}

impl<'a> PartWriter<'a> {
    /// Creates a writer whose parts take up to about `memory_bytes` bytes of memory.
    pub(super) fn new(
        schema: &'a SearchSchema,
        folder: &'a Directory,
        thread: usize,
        memory_bytes: usize,
    ) -> PartWriter<'a> {
        PartWriter { schema, folder, thread, memory_bytes, current: None, finished: Vec::new() }
    }

    /// Adds a section of a page. All sections of a page follow each other.
    pub(super) fn add_section(
        &mut self,
        page: u32,
        section: &Section,
        is_first: bool,
        tokens: &SectionTokens,
        names: &PackedTokens,
    ) -> Result<(), BuildError> {
        if self.current.is_none() {
            self.current = Some(OpenPart { writer: self.start_part()?, pages: Vec::new() });
        }
        let document = self.create_document(page, section, is_first, tokens, names);
        let Some(part) = &mut self.current else { return Ok(()) };
        part.writer.add_document(document)?;
        match part.pages.last_mut().filter(|(last, _)| *last == page) {
            Some((_, sections)) => *sections += 1,
            None => part.pages.push((page, 1)),
        }
        Ok(())
    }

    fn create_document(
        &self,
        page: u32,
        section: &Section,
        is_first: bool,
        tokens: &SectionTokens,
        names: &PackedTokens,
    ) -> TantivyDocument {
        let schema = self.schema;
        let mut document = TantivyDocument::new();
        let mut add = |field, packed: &PackedTokens| {
            if !packed.is_empty() {
                document.add_text(field, packed.as_str());
            }
        };
        let SectionTokens { body, heading, title } = tokens;
        // The words of the heading, and of the title once for each page, are words of the text too, so that this field
        // has every word of the site. The order of the values is that of the page.
        for text in [is_first.then_some(title), Some(heading), Some(body)].into_iter().flatten() {
            add(schema.body, &text.exact);
            add(schema.body_stem, &text.stems);
        }
        add(schema.heading, &heading.exact);
        add(schema.heading_stem, &heading.stems);
        add(schema.title, &title.exact);
        add(schema.title_stem, &title.stems);
        add(schema.names, names);
        document.add_u64(schema.page, u64::from(page));
        if let Some(anchor) = &section.anchor {
            document.add_text(schema.anchor, anchor);
        }
        for heading in &section.headings {
            document.add_text(schema.headings, heading);
        }
        document.add_text(schema.text, &section.text[..section.text.floor_char_boundary(MAX_STORED_TEXT_BYTES)]);
        document
    }

    fn start_part(&self) -> Result<SingleSegmentIndexWriter, BuildError> {
        let folder = create_folder(self.folder, &format!("{}-{}", self.thread, self.finished.len()))?;
        let builder = Index::builder()
            .schema(self.schema.schema.clone())
            .settings(index_settings())
            .tokenizers(create_tokenizers());
        Ok(builder.single_segment_index_writer(IndexDirectory::new(&folder), self.memory_bytes)?)
    }

    /// Ends the current part if it has reached its size. Called after each page.
    pub(super) fn finish_page(&mut self) -> Result<(), BuildError> {
        if self.current.as_ref().is_some_and(|part| part.writer.mem_usage() >= self.memory_bytes) {
            self.finish_part()?;
        }
        Ok(())
    }

    fn finish_part(&mut self) -> Result<(), BuildError> {
        if let Some(OpenPart { writer, pages }) = self.current.take() {
            self.finished.push(FinishedPart { index: writer.finalize()?, pages });
        }
        Ok(())
    }

    /// Ends the last part and returns all.
    pub(super) fn finish(mut self) -> Result<Vec<FinishedPart>, BuildError> {
        self.finish_part()?;
        Ok(self.finished)
    }
}

/// Creates a folder that does not exist.
pub(super) fn create_folder(parent: &Directory, name: &str) -> Result<Directory, BuildError> {
    parent
        .create_directory(name, FOLDER_MODE)
        .map_err(|source| BuildError::Write { path: parent.path().join(name), source })
}

/// Merges parts into one index of one segment in the folder `target`, without the sections of the pages in `left_out`.
/// Returns the number of sections; 0, and no index, if none remains.
pub(super) fn merge_parts(
    parts: &[FinishedPart],
    left_out: &HashSet<u32>,
    target: &Directory,
) -> Result<u64, BuildError> {
    let (mut segments, mut filters, mut sections) = (Vec::new(), Vec::new(), 0);
    for part in parts {
        let kept = part.pages.iter().filter(|(page, _)| !left_out.contains(page));
        let kept: u64 = kept.map(|(_, sections)| u64::from(*sections)).sum();
        if kept == 0 {
            continue;
        }
        sections += kept;
        for segment in part.index.searchable_segments()? {
            let is_whole = kept == u64::from(segment.meta().max_doc());
            filters.push(if is_whole { None } else { Some(create_filter(part, left_out)?) });
            segments.push(segment);
        }
    }
    if sections > 0 {
        merge_filtered_segments(&segments, index_settings(), filters, IndexDirectory::new(target))?;
    }
    Ok(sections)
}

/// Returns the set of sections of a part that remain.
fn create_filter(part: &FinishedPart, left_out: &HashSet<u32>) -> tantivy::Result<AliveBitSet> {
    let total: u32 = part.pages.iter().map(|(_, sections)| *sections).sum();
    let mut kept = BitSet::with_max_value(total);
    let mut first = 0;
    for &(page, sections) in &part.pages {
        if !left_out.contains(&page) {
            for section in first..first + sections {
                kept.insert(section);
            }
        }
        first += sections;
    }
    let mut bytes: Vec<u8> = Vec::new();
    write_alive_bitset(&kept, &mut bytes)?;
    Ok(AliveBitSet::open(OwnedBytes::new(bytes)))
}
