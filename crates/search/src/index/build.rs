//! Builds the index of a version.
//!
//! 1. The HTML files that are served are found (`candidates`), and the addresses in sitemaps are read.
//! 2. Threads read the pages, extract their sections and write parts of the index. Of each page they keep a few facts.
//! 3. When all pages are known, duplicates among them are found, and the parts are merged without them.
//! 4. The table of pages and the header are written. The header is last: without it, there is no index.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use docwharf_base::directory::Directory;
use docwharf_base::model::digest::Digest;
use docwharf_base::processors;
use docwharf_site::lookup::AddressSettings;
use docwharf_site::mapping::return_freed_memory;
use docwharf_site::rules::pattern::Pattern;
use docwharf_site::sealed_version::SealedVersion;

use crate::analyze::ANALYZER_NUMBER;
use crate::extract::{ExtractLimits, ExtractedPage, PageExclusion, Section, extract_page};

use super::build_error::BuildError;
use super::build_report::{BuildProgress, BuildReport, CutContent, LeftOutPages};
use super::candidates::{CandidatePage, find_candidates};
use super::demotion::{rate_in_site, rate_page};
use super::duplicates::{PageIdentity, digest_text, find_duplicates};
use super::header::{FORMAT_NUMBER, HEADER_FILE, IndexFile, IndexHeader, PAGES_FILE};
use super::index_directory::{FILE_MODE, compute_checksum};
use super::names::collect_names;
use super::packed_tokens::PackedTokens;
use super::page_table::{PageRecord, encode_page_table};
use super::part_writer::{FinishedPart, PartWriter, create_folder, merge_parts};
use super::repetitions::{PageText, find_repetitions};
use super::schema::SearchSchema;
use super::section_tokens::{SectionTokens, StemCaches, stem_language};
use super::site_links::{SitemapEntry, find_target, read_sitemaps};
use super::titles::{find_common_end, without_end};

/// The maximum size of an HTML file in bytes. A larger one is left out.
pub(crate) const MAX_PAGE_BYTES: u64 = 32 << 20;
/// The maximum number of sections of an index. A query needs a few bytes of memory for each.
const MAX_INDEX_SECTIONS: u64 = 1 << 21;
/// The minimum size of a part of the index in bytes.
const MIN_PART_BYTES: usize = 8 << 20;
/// The default limit of the memory for the parts of the index.
const DEFAULT_MEMORY_BYTES: usize = 96 << 20;
/// The folder in which the parts are while the index is built.
const PARTS_FOLDER: &str = "parts";
/// The maximum length of a title that is kept until all pages are read, in characters.
const MAX_TITLE_CHARS: usize = 300;

/// The settings of an index.
#[derive(Debug, Clone)]
pub struct BuildSettings {
    /// The settings that decide which pages are served and where.
    pub addresses: AddressSettings,
    /// The addresses of pages that are left out, below the base path.
    pub exclude: Vec<Pattern>,
    /// Whether `llms.txt` links to the Markdown of pages, else to the pages.
    pub links_to_markdown: bool,
    /// A digest of everything that decides what the index contains. The index keeps it
    /// ([`SearchIndex::settings`](super::SearchIndex::settings)), so that the caller knows when it must be built again.
    pub digest: Digest,
    /// The limits of one page.
    pub limits: ExtractLimits,
    /// The number of threads.
    pub threads: usize,
    /// The memory that the parts of the index may take in all threads together, in bytes. The pages that are being read
    /// come in addition: at most about 40 MiB for each thread.
    pub memory_bytes: usize,
}

impl Default for BuildSettings {
    fn default() -> BuildSettings {
        BuildSettings {
            addresses: AddressSettings::default(),
            exclude: Vec::new(),
            links_to_markdown: true,
            digest: Digest::compute(b""),
            limits: ExtractLimits::default(),
            threads: processors::count(),
            memory_bytes: DEFAULT_MEMORY_BYTES,
        }
    }
}

/// Builds the index of a version in `target`, an empty folder. After an error, files may be left in it.
pub fn build(
    version: &SealedVersion,
    settings: &BuildSettings,
    target: &Directory,
    progress: &BuildProgress,
) -> Result<BuildReport, BuildError> {
    let start = Instant::now();
    check_empty(target)?;
    let mut left_out = LeftOutPages::default();
    let candidates = find_candidates(version, &settings.addresses, &settings.exclude, &mut left_out);
    progress.start(candidates.len());
    let parts_folder = create_folder(target, PARTS_FOLDER)?;
    let builder = IndexBuilder {
        version,
        settings,
        progress,
        schema: SearchSchema::new(),
        sitemap: read_sitemaps(version),
        candidates,
        parts_folder,
        next: AtomicUsize::new(0),
        sections: AtomicU64::new(0),
        has_failed: AtomicBool::new(false),
    };
    let mut site = builder.read_pages()?;
    left_out.add(&site.left_out);
    site.pages.sort_unstable_by_key(|facts| facts.identity.page);
    let identities: Vec<PageIdentity> = site.pages.iter().map(|facts| facts.identity).collect();
    let duplicates = find_duplicates(&identities);
    left_out.repeated = duplicates.len() as u64;
    site.pages.retain(|facts| !duplicates.contains(&facts.identity.page));
    // Merging maps all parts at once. The memory in which they were made must not count in addition.
    return_freed_memory();
    let sections = merge_parts(&std::mem::take(&mut site.parts), &duplicates, target)?;
    target.remove_all(PARTS_FOLDER).map_err(write_error(target, PARTS_FOLDER))?;
    write_file(target, PAGES_FILE, &encode_pages(&builder.candidates, &site.pages))?;
    let header = IndexHeader {
        format: FORMAT_NUMBER,
        analyzer: ANALYZER_NUMBER,
        version: version.id,
        settings: settings.digest.to_hex(),
        pages: site.pages.len() as u64,
        sections,
        stem_languages: collect_languages(&site.pages),
        files: list_files(target)?,
    };
    let encoded = header.encode().map_err(BuildError::Header)?;
    write_file(target, HEADER_FILE, &encoded)?;
    Ok(BuildReport {
        pages: header.pages,
        sections,
        left_out,
        cut: site.cut,
        bytes: header.files.iter().map(|file| file.len).sum::<u64>() + encoded.len() as u64,
        seconds: start.elapsed().as_secs_f64(),
    })
}

fn check_empty(target: &Directory) -> Result<(), BuildError> {
    match target.entries().map_err(read_error(target, ""))?.next() {
        None => Ok(()),
        Some(_) => Err(BuildError::NotEmpty { path: target.path().to_owned() }),
    }
}

fn write_file(folder: &Directory, name: &str, bytes: &[u8]) -> Result<(), BuildError> {
    let written = folder.create_file(name, FILE_MODE).and_then(|mut file| file.write_all(bytes));
    written.map_err(write_error(folder, name))
}

fn write_error(folder: &Directory, name: &str) -> impl FnOnce(io::Error) -> BuildError {
    let path = folder.path().join(name);
    move |source| BuildError::Write { path, source }
}

fn read_error(folder: &Directory, name: &str) -> impl FnOnce(io::Error) -> BuildError {
    let path = folder.path().join(name);
    move |source| BuildError::Read { path, source }
}

/// Returns the files in the folder of the index with their checksums, in the order of their names.
fn list_files(target: &Directory) -> Result<Vec<IndexFile>, BuildError> {
    let mut files = Vec::new();
    for entry in target.entries().map_err(read_error(target, ""))? {
        let entry = entry.map_err(read_error(target, ""))?;
        let name = entry.name.to_string_lossy().into_owned();
        let opened = target.open_for_reading(&entry.name);
        let (len, crc) = opened.and_then(compute_checksum).map_err(read_error(target, &name))?;
        files.push(IndexFile { name, len, crc });
    }
    files.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

/// Encodes the table of pages. It has a record for each candidate, because sections name pages by the numbers of the
/// candidates.
fn encode_pages(candidates: &[CandidatePage], pages: &[PageFacts]) -> Vec<u8> {
    let common_end = find_common_end(pages.iter().map(|facts| facts.title.as_str()));
    let site_words: u64 = pages.iter().map(|facts| u64::from(facts.words)).sum();
    let repetitions = find_repetitions(&pages.iter().map(|facts| &facts.text).collect::<Vec<_>>());
    let facts_of: HashMap<u32, _> =
        pages.iter().zip(repetitions).map(|(facts, repetition)| (facts.identity.page, (facts, repetition))).collect();
    encode_page_table((0u32..).zip(candidates).map(|(page, candidate)| match facts_of.get(&page) {
        None => PageRecord { path: &candidate.path, ..PageRecord::default() },
        Some((facts, repetition)) => PageRecord {
            path: &candidate.path,
            address: candidate.choose_address(facts.address.as_deref()),
            title: without_end(&facts.title, common_end),
            lang: facts.lang.as_deref().unwrap_or_default(),
            score_percent: rate_in_site(facts.score_percent, *repetition, facts.words, site_words, pages.len() as u64),
        },
    }))
}

/// Returns a tag for each language with stems, that of the most pages first.
fn collect_languages(pages: &[PageFacts]) -> Vec<String> {
    let mut languages = HashMap::new();
    for facts in pages {
        if let Some(language) = stem_language(facts.lang.as_deref()) {
            let tag = facts.lang.as_deref().unwrap_or("en");
            languages.entry(language).or_insert((0u64, tag)).0 += 1;
        }
    }
    let mut languages: Vec<(u64, &str)> = languages.into_values().collect();
    languages.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    languages.into_iter().map(|(_, tag)| tag.to_owned()).collect()
}

/// The facts about a page that are needed when all pages are known.
struct PageFacts {
    identity: PageIdentity,
    title: String,
    lang: Option<String>,
    /// The address in the canonical link or in the sitemap.
    address: Option<String>,
    words: u32,
    /// The factor of the score by the page's own structure, in percent.
    score_percent: u8,
    text: PageText,
}

/// The pages that threads have read, and the parts of the index that they have written.
#[derive(Default)]
struct SitePages {
    pages: Vec<PageFacts>,
    parts: Vec<FinishedPart>,
    left_out: LeftOutPages,
    cut: CutContent,
}

/// The inputs of building, shared by all threads.
struct IndexBuilder<'a> {
    version: &'a SealedVersion,
    settings: &'a BuildSettings,
    progress: &'a BuildProgress,
    schema: SearchSchema,
    /// The addresses of files that are in a sitemap.
    sitemap: HashMap<usize, SitemapEntry>,
    candidates: Vec<CandidatePage>,
    parts_folder: Directory,
    /// The next candidate to read.
    next: AtomicUsize,
    /// The number of sections so far.
    sections: AtomicU64,
    /// Whether a thread has failed, so that the others stop.
    has_failed: AtomicBool,
}

impl IndexBuilder<'_> {
    fn read_pages(&self) -> Result<SitePages, BuildError> {
        let threads = self.settings.threads.clamp(1, self.candidates.len().max(1));
        let memory_bytes = (self.settings.memory_bytes / threads).max(MIN_PART_BYTES);
        let run_worker = |thread: usize| {
            let result = PageIndexer::new(self, thread, memory_bytes).run();
            if result.is_err() {
                self.has_failed.store(true, Ordering::Relaxed);
            }
            result
        };
        let results: Vec<Result<SitePages, BuildError>> = std::thread::scope(|scope| {
            let start = |thread: usize| {
                let builder = std::thread::Builder::new().name("docwharf-search".to_owned());
                builder.spawn_scoped(scope, move || run_worker(thread))
            };
            // If a thread cannot be started, the others do its share.
            let others: Vec<_> = (1..threads).filter_map(|thread| start(thread).ok()).collect();
            let mut results = vec![run_worker(0)];
            for other in others {
                results.push(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            results
        });
        let mut site = SitePages::default();
        for result in results {
            let SitePages { pages, parts, left_out, cut } = result?;
            site.pages.extend(pages);
            site.parts.extend(parts);
            site.left_out.add(&left_out);
            site.cut.add(&cut);
        }
        Ok(site)
    }
}

/// The state of one thread that reads pages and writes parts of the index.
struct PageIndexer<'a> {
    builder: &'a IndexBuilder<'a>,
    writer: PartWriter<'a>,
    stems: StemCaches,
    tokens: SectionTokens,
    names: PackedTokens,
    site: SitePages,
}

impl<'a> PageIndexer<'a> {
    fn new(builder: &'a IndexBuilder<'a>, thread: usize, memory_bytes: usize) -> PageIndexer<'a> {
        PageIndexer {
            builder,
            writer: PartWriter::new(&builder.schema, &builder.parts_folder, thread, memory_bytes),
            stems: StemCaches::default(),
            tokens: SectionTokens::default(),
            names: PackedTokens::default(),
            site: SitePages::default(),
        }
    }

    fn run(mut self) -> Result<SitePages, BuildError> {
        let builder = self.builder;
        while !builder.has_failed.load(Ordering::Relaxed) {
            let page = builder.next.fetch_add(1, Ordering::Relaxed);
            let Some(candidate) = builder.candidates.get(page) else { break };
            self.read_page(page as u32, candidate)?;
            builder.progress.finish_page();
        }
        self.site.parts = self.writer.finish()?;
        Ok(self.site)
    }

    fn read_page(&mut self, page: u32, candidate: &CandidatePage) -> Result<(), BuildError> {
        let Some(extracted) = self.extract(candidate) else {
            self.site.left_out.unreadable += 1;
            return Ok(());
        };
        match extracted.exclusion {
            Some(PageExclusion::NoIndex) => self.site.left_out.no_index += 1,
            Some(PageExclusion::Refresh) => self.site.left_out.refresh += 1,
            None => self.add_page(page, candidate, extracted)?,
        }
        Ok(())
    }

    fn extract(&self, candidate: &CandidatePage) -> Option<ExtractedPage> {
        let version = self.builder.version;
        let entry = version.entry(candidate.file);
        if entry.len > MAX_PAGE_BYTES {
            return None;
        }
        extract_page(&version.content(&entry).ok()?, &self.builder.settings.limits).ok()
    }

    fn add_page(
        &mut self,
        page: u32,
        candidate: &CandidatePage,
        mut extracted: ExtractedPage,
    ) -> Result<(), BuildError> {
        let facts = self.collect_facts(page, candidate, &extracted);
        self.site.cut.add_page(&extracted.left_out);
        if extracted.sections.is_empty() {
            // A page without text is found by its title.
            let (anchor, headings, text, code_spans) = (None, Vec::new(), String::new(), Vec::new());
            extracted.sections.push(Section { anchor, headings, level: 1, is_definition: false, text, code_spans });
        }
        let count = extracted.sections.len() as u64;
        let before = self.builder.sections.fetch_add(count, Ordering::Relaxed);
        let kept = MAX_INDEX_SECTIONS.saturating_sub(before).min(count);
        self.site.cut.sections += count - kept;
        for (index, section) in extracted.sections.iter().take(kept as usize).enumerate() {
            self.add_section(page, section, index == 0, &extracted)?;
        }
        self.site.pages.push(facts);
        self.writer.finish_page()
    }

    fn collect_facts(&self, page: u32, candidate: &CandidatePage, extracted: &ExtractedPage) -> PageFacts {
        let in_sitemap = self.builder.sitemap.get(&candidate.file);
        let link = extracted.canonical.as_deref();
        let canonical = link.and_then(|href| find_target(self.builder.version, &candidate.path, href));
        let own_address = canonical.as_ref().filter(|target| target.file == candidate.file);
        PageFacts {
            identity: PageIdentity {
                page,
                file: candidate.file,
                text: digest_text(extracted),
                canonical: canonical.as_ref().map(|target| target.file),
                is_in_sitemap: in_sitemap.is_some(),
            },
            title: extracted.title.chars().take(MAX_TITLE_CHARS).collect(),
            lang: extracted.lang.clone(),
            address: own_address.map(|target| &target.address).or(in_sitemap.map(|entry| &entry.address)).cloned(),
            words: extracted.words,
            score_percent: rate_page(extracted),
            text: PageText::new(extracted),
        }
    }

    fn add_section(
        &mut self,
        page: u32,
        section: &Section,
        is_first: bool,
        extracted: &ExtractedPage,
    ) -> Result<(), BuildError> {
        let lang = extracted.lang.as_deref();
        self.tokens.read(section, &extracted.title, self.stems.find(lang));
        self.names.clear();
        for (key, strength) in collect_names(section, is_first, &extracted.title, self.stems.find(lang)) {
            // The frequency of a name is its strength.
            for _ in 0..strength {
                self.names.push(&key, 0);
            }
        }
        self.writer.add_section(page, section, is_first, &self.tokens, &self.names)
    }
}
