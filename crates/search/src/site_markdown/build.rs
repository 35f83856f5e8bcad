//! Writes the file.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use docwharf_base::codec::deflate::Deflater;
use docwharf_base::codec::gzip::{GZIP_HEADER, encode_trailer};
use docwharf_base::directory::Directory;
use docwharf_base::locks::Mutex;
use docwharf_base::model::site_path::is_page;
use docwharf_site::lookup::SiteFiles;
use docwharf_site::sealed_version::SealedVersion;
use serde::{Deserialize, Serialize};

use crate::index::{BuildProgress, BuildSettings, CandidatePage, LeftOutPages, SitemapEntry};
use crate::index::{find_candidates, is_withheld, read_sitemaps};
use crate::markdown::PageMarkdown;

use super::file_format::{FileEnd, MarkdownRecord};
use super::llms::{ListedPage, MAX_LLMS_BYTES, write_llms, write_llms_full};
use super::open_file::{MAX_PAGE_JSON_BYTES, decode_page};
use super::{FILE_NAME, markdown_path, render_file};

/// The permissions of the file.
const FILE_MODE: u32 = 0o644;
/// The level of compression: the fastest one that shortens text to about a third.
const DEFLATE_LEVEL: u32 = 1;
/// The size of the pieces of a text that are compressed at a time, in bytes.
const GZIP_PIECE_BYTES: usize = 256 << 10;
/// The maximum length of a title or description in the list, in bytes. It bounds the memory for a site with many pages.
const MAX_LISTED_TEXT_BYTES: usize = 500;

/// The result of building the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MarkdownReport {
    /// The number of pages.
    pub pages: u64,
    /// The number of pages that `llms.txt` can list.
    pub listed: u64,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// The duration in seconds.
    pub seconds: f64,
}

/// Decides, by the size of the file in bytes, whether a build goes on.
pub type MayContinue<'a> = &'a (dyn Fn(u64) -> io::Result<()> + Sync);

/// Writes the Markdown of all pages of a version into `target`, a folder without such a file. After an error, a part of
/// the file may be left in it.
pub fn build_site_markdown(
    version: &SealedVersion,
    settings: &BuildSettings,
    target: &Directory,
    progress: &BuildProgress,
) -> io::Result<MarkdownReport> {
    build_site_markdown_within(version, settings, target, progress, &|_| Ok(()))
}

/// Writes the file as [`build_site_markdown`] does. `may_continue` is called before each page, and before each write
/// with the size that the file then has in bytes. An error of it ends the build and is returned.
pub fn build_site_markdown_within(
    version: &SealedVersion,
    settings: &BuildSettings,
    target: &Directory,
    progress: &BuildProgress,
    may_continue: MayContinue<'_>,
) -> io::Result<MarkdownReport> {
    let start = Instant::now();
    let pages: Vec<usize> = (0..version.index().len()).filter(|&file| is_page(version.index().path(file))).collect();
    progress.start(pages.len());
    let candidates = find_candidates(version, &settings.addresses, &settings.exclude, &mut LeftOutPages::default());
    let builder = FileBuilder {
        version,
        settings,
        progress,
        candidates: candidates.into_iter().map(|candidate| (candidate.file, candidate)).collect(),
        sitemap: read_sitemaps(version),
        pages,
        next: AtomicUsize::new(0),
        may_continue,
        output: Mutex::new(FileOutput::new(target.create_file(FILE_NAME, FILE_MODE)?, may_continue)),
    };
    builder.write_pages()?;
    builder.finish(start)
}

/// The file that is being written.
struct FileOutput<'a> {
    file: File,
    may_continue: MayContinue<'a>,
    hasher: crc32fast::Hasher,
    len: u64,
    records: Vec<MarkdownRecord>,
    listed: Vec<ListedPage>,
}

impl<'a> FileOutput<'a> {
    fn new(file: File, may_continue: MayContinue<'a>) -> Self {
        let (records, listed) = (Vec::new(), Vec::new());
        FileOutput { file, may_continue, hasher: crc32fast::Hasher::new(), len: 0, records, listed }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        (self.may_continue)(self.len + bytes.len() as u64)?;
        self.file.write_all(bytes)?;
        self.hasher.update(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Writes the gzip form of everything that was written since `start`. It is read again, so that not all of it is in
    /// memory.
    fn write_gzip(&mut self, start: u64) -> io::Result<()> {
        let end = self.len;
        let (mut deflater, mut hasher) = (Deflater::new(DEFLATE_LEVEL), crc32fast::Hasher::new());
        let mut coded = GZIP_HEADER.to_vec();
        let mut piece = vec![0; GZIP_PIECE_BYTES];
        let mut offset = start;
        while offset < end {
            let len = piece.len().min(usize::try_from(end - offset).unwrap_or(usize::MAX));
            self.file.read_exact_at(&mut piece[..len], offset)?;
            hasher.update(&piece[..len]);
            deflater.write(&piece[..len], &mut coded);
            self.write(&std::mem::take(&mut coded))?;
            offset += len as u64;
        }
        deflater.finish(&mut coded);
        coded.extend_from_slice(&encode_trailer(hasher.finalize(), end - start));
        self.write(&coded)
    }

    /// Reads a page that has been written. The records are in order.
    fn read_page(&self, file: usize) -> Option<PageMarkdown> {
        let place = self.records.binary_search_by_key(&(file as u32), |record| record.file).ok()?;
        let record = self.records[place];
        let mut coded = vec![0; record.coded_len as usize];
        self.file.read_exact_at(&mut coded, record.offset).ok()?;
        decode_page(&coded, record.len as usize)
    }
}

/// The inputs and the output, shared by all threads.
struct FileBuilder<'a> {
    version: &'a SealedVersion,
    settings: &'a BuildSettings,
    progress: &'a BuildProgress,
    may_continue: MayContinue<'a>,
    /// The pages that can be listed, by file.
    candidates: HashMap<usize, CandidatePage>,
    sitemap: HashMap<usize, SitemapEntry>,
    /// The files that are pages.
    pages: Vec<usize>,
    /// The next page to read.
    next: AtomicUsize,
    output: Mutex<FileOutput<'a>>,
}

impl FileBuilder<'_> {
    fn write_pages(&self) -> io::Result<()> {
        let threads = self.settings.threads.clamp(1, self.pages.len().max(1));
        std::thread::scope(|scope| {
            let start = |_| {
                let builder = std::thread::Builder::new().name("docwharf-md".to_owned());
                builder.spawn_scoped(scope, || self.run_worker())
            };
            // If a thread cannot be started, the others do its share.
            let others: Vec<_> = (1..threads).filter_map(|thread| start(thread).ok()).collect();
            let mut result = self.run_worker();
            for other in others {
                let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                result = result.and(other);
            }
            result
        })
    }

    fn run_worker(&self) -> io::Result<()> {
        let mut deflater = Deflater::new(DEFLATE_LEVEL);
        let mut coded = Vec::new();
        while let Some(&file) = self.pages.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let written = self.write_page(file, &mut deflater, &mut coded);
            if written.is_err() {
                // The others stop, too.
                self.next.store(self.pages.len(), Ordering::Relaxed);
            }
            written?;
            self.progress.finish_page();
        }
        Ok(())
    }

    fn write_page(&self, file: usize, deflater: &mut Deflater, coded: &mut Vec<u8>) -> io::Result<()> {
        // A page may take seconds and have no Markdown.
        let written = self.output.lock().len;
        (self.may_continue)(written)?;
        let base_path = &self.settings.addresses.base_path;
        let Some(markdown) = render_file(self.version, file, base_path) else { return Ok(()) };
        let json = serde_json::to_vec(&markdown)?;
        if json.len() > MAX_PAGE_JSON_BYTES {
            return Ok(());
        }
        coded.clear();
        deflater.encode_all(&json, coded);
        let listed = self.list_page(file, &markdown);
        let mut output = self.output.lock();
        let record = MarkdownRecord {
            file: file as u32,
            offset: output.len,
            coded_len: coded.len() as u32,
            len: json.len() as u32,
        };
        output.write(coded)?;
        output.records.push(record);
        output.listed.extend(listed);
        Ok(())
    }

    /// Returns the entry of a page in the list; `None` if the page is not listed.
    fn list_page(&self, file: usize, markdown: &PageMarkdown) -> Option<ListedPage> {
        let candidate = self.candidates.get(&file).filter(|_| markdown.exclusion.is_none())?;
        let BuildSettings { addresses, exclude, .. } = self.settings;
        if is_withheld(self.version, addresses, exclude, file, None) {
            return None;
        }
        let in_sitemap = self.sitemap.get(&file).map(|entry| entry.address.as_str());
        let address = candidate.choose_address(in_sitemap).to_owned();
        let cut = |text: &str| text[..text.floor_char_boundary(MAX_LISTED_TEXT_BYTES)].to_owned();
        let link_path = match self.version.markdown_of(file) {
            _ if !self.settings.links_to_markdown => address.clone(),
            Some(own) => String::from_utf8(self.version.index().path(own).to_vec()).ok()?,
            None => String::from_utf8(markdown_path(candidate.path.as_bytes())).ok()?,
        };
        Some(ListedPage {
            file,
            address,
            link_path,
            title: cut(&markdown.title),
            description: markdown.description.as_deref().map(cut),
        })
    }

    /// Writes the rest of the file, when all pages are written.
    fn finish(self, start: Instant) -> io::Result<MarkdownReport> {
        let mut output = self.output.into_inner();
        output.records.sort_unstable_by_key(|record| record.file);
        let mut listed = std::mem::take(&mut output.listed);
        let sitemap = &self.sitemap;
        // Pages that are in no sitemap come after those that are, in the order of their paths.
        listed.sort_unstable_by_key(|page| {
            let position = sitemap.get(&page.file).map_or(usize::MAX, |entry| entry.position);
            (position, page.file)
        });
        let base_path = &self.settings.addresses.base_path;
        let llms = output.len;
        output.write(write_llms(&listed, base_path, MAX_LLMS_BYTES).as_bytes())?;
        let llms_gzip = output.len;
        output.write_gzip(llms)?;
        let llms_full = output.len;
        let mut written = FileOutput::new(output.file.try_clone()?, self.may_continue);
        written.records = std::mem::take(&mut output.records);
        let read = |file: usize| written.read_page(file);
        write_llms_full(&listed, base_path, MAX_LLMS_BYTES, read, |piece| output.write(piece.as_bytes()))?;
        let llms_full_gzip = output.len;
        output.write_gzip(llms_full)?;
        let table = output.len;
        for record in &written.records {
            output.write(&record.encode())?;
        }
        let end = FileEnd {
            version: self.version.id,
            settings: self.settings.digest,
            pages: written.records.len() as u32,
            llms,
            llms_gzip,
            llms_full,
            llms_full_gzip,
            table,
            crc: output.hasher.clone().finalize(),
        };
        output.write(&end.encode())?;
        Ok(MarkdownReport {
            pages: u64::from(end.pages),
            listed: listed.len() as u64,
            bytes: output.len,
            seconds: start.elapsed().as_secs_f64(),
        })
    }
}
