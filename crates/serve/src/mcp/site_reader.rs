//! Reads the pages of one version of a site for the tools and the resources. All of it runs on a thread of queries,
//! because a page may have to be inflated and converted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use percent_encoding::percent_decode_str;
use rmcp::model::{CacheScope, CallToolResult, ContentBlock, ErrorData, Resource, ResourceContents};
use serde_json::{Value, json};

use docwharf_search::extract::{PageExclusion, is_invisible};
use docwharf_search::index::{SearchIndex, find_listed_address, is_withheld};
use docwharf_search::markdown::PageMarkdown;
use docwharf_search::page::SearchResponse;
use docwharf_site::lookup::AddressSettings;
use docwharf_site::rules::pattern::Pattern;
use docwharf_site::sealed_version::SealedVersion;

use super::arguments::{ListPagesArguments, ReadPageArguments};
use super::cursor::ListIdentity;
use super::page_address::{AddressedPage, PageAddressFault, find_page, page_url, resource_uri};
use super::page_part::{MAX_PART_CHARS, PagePart, cut_part};
use super::tools::{MARKDOWN_TYPE, RESOURCE_PREFIX};
use crate::mcp_statistics::McpOutcome;
use crate::named_host::{HostAndPort, HostList};
use crate::page_markdown;
use crate::search::section_in_site;
use crate::site::Site;

/// The number of resources in an answer.
const LISTED_RESOURCES: usize = 100;
/// The maximum length of the text of a resource, in characters. `read_page` reads longer pages in parts.
const MAX_RESOURCE_CHARS: usize = 1 << 20;
/// The time after which a list ends before its limit. Without a search index, each page is read for its title.
const MAX_LIST_TIME: Duration = Duration::from_millis(500);

/// The answer of a tool.
#[derive(Debug)]
pub(super) struct ToolAnswer {
    pub(super) result: CallToolResult,
    pub(super) outcome: McpOutcome,
}

impl ToolAnswer {
    /// Returns an answer with a value, as structured content and as text.
    pub(super) fn value(value: Value, outcome: McpOutcome) -> ToolAnswer {
        ToolAnswer { result: CallToolResult::structured(value), outcome }
    }

    /// Returns an answer that tells the model how to call the tool instead.
    pub(super) fn advice(text: impl Into<String>, outcome: McpOutcome) -> ToolAnswer {
        ToolAnswer { result: CallToolResult::error(vec![ContentBlock::text(text.into())]), outcome }
    }
}

/// A version of a site, with everything that its answers depend on.
#[derive(Debug)]
pub(super) struct SiteReader {
    pub(super) site: Arc<Site>,
    pub(super) version: Arc<SealedVersion>,
    pub(super) addresses: AddressSettings,
    exclude: Arc<[Pattern]>,
    /// The host that the request names.
    host: Option<HostAndPort>,
    /// The hosts of the site (`assistant.hosts`).
    hosts: HostList,
    /// The time after which a list ends before its limit: [`MAX_LIST_TIME`], less in tests.
    pub(super) max_list_time: Duration,
}

/// A page of a list.
struct PageListEntry {
    /// The address below the base path.
    address: String,
    title: String,
}

/// A part of a list, and the file with which the next one begins.
struct PageListPart {
    pages: Vec<PageListEntry>,
    next: Option<usize>,
}

impl SiteReader {
    /// Creates a reader of a version that the site serves. `host` is the one that the request names.
    pub(super) fn new(site: Arc<Site>, version: Arc<SealedVersion>, host: Option<HostAndPort>) -> SiteReader {
        let addresses = site.address_settings();
        let exclude = site.search.excluded_addresses();
        let hosts = site.assistant_settings().map(|settings| settings.hosts.clone()).unwrap_or_default();
        SiteReader { site, version, addresses, exclude, host, hosts, max_list_time: MAX_LIST_TIME }
    }

    /// Returns who may store an answer: everyone, unless only some clients may read the site, or its version is not
    /// published.
    pub(super) fn cache_scope(&self) -> CacheScope {
        let is_public = !self.site.settings.is_unpublished && self.site.access_control().rules.is_open();
        if is_public { CacheScope::Public } else { CacheScope::Private }
    }

    /// Removes the base path from a section, which models copy from addresses.
    pub(super) fn section_in_site<'a>(&self, section: &'a str) -> &'a str {
        section_in_site(&self.addresses.base_path, section)
    }

    /// Answers `search_docs`.
    pub(super) fn format_results(response: SearchResponse) -> ToolAnswer {
        let (is_partial, indexing) = (response.partial, response.indexing);
        let results: Vec<Value> = response
            .results
            .into_iter()
            .map(|result| {
                let section = result.section.join(" > ");
                json!({ "url": result.url, "title": result.title, "section": section, "excerpt": result.excerpt })
            })
            .collect();
        if is_partial && results.is_empty() {
            return ToolAnswer::advice(
                "the search was ended before it was complete, because it took too long; search for fewer words",
                McpOutcome::Busy,
            );
        }
        let outcome = if indexing { McpOutcome::Indexing } else { McpOutcome::Ok };
        ToolAnswer::value(json!({ "results": results, "indexing": indexing }), outcome)
    }

    /// Answers `read_page`.
    pub(super) fn read_page(&self, arguments: &ReadPageArguments) -> ToolAnswer {
        let (file, page) = match self.find_readable_page(&arguments.url) {
            Ok((file, Some(page))) => (file, page),
            Ok((_, None)) => {
                let advice = "this page cannot be read as Markdown; read another page";
                return ToolAnswer::advice(advice, McpOutcome::Failed);
            }
            Err(fault) => return ToolAnswer::advice(self.advise(fault), McpOutcome::Advice),
        };
        let range = match &arguments.section {
            None => 0..page.text.len(),
            Some(section) => match find_section(&page, section) {
                Some(range) => range,
                None => {
                    return ToolAnswer::advice(
                        "the page has no section with this anchor; call read_page without section to read all of it",
                        McpOutcome::Advice,
                    );
                }
            },
        };
        let Some(part) = cut_part(&page.text, &page.block_starts, range, arguments.offset, MAX_PART_CHARS) else {
            return ToolAnswer::advice(
                "offset is greater than the total length; pass 0 or the nextOffset of the answer before",
                McpOutcome::Advice,
            );
        };
        let PagePart { text, next_offset, total } = part;
        let value = json!({
            "url": page_url(&self.addresses.base_path, &self.address_of(file)),
            "title": self.title_or_path(file, &page.title),
            "markdown": text,
            "offset": arguments.offset,
            "nextOffset": next_offset,
            "total": total,
        });
        ToolAnswer::value(value, McpOutcome::Ok)
    }

    /// Answers `list_pages`.
    pub(super) fn list_pages(&self, arguments: &ListPagesArguments) -> ToolAnswer {
        let section = self.section_in_site(arguments.section.as_deref().unwrap_or_default());
        let list = ListIdentity { operation: "list_pages", version: self.version.id, section };
        let first = match arguments.cursor.as_deref().map(|cursor| list.decode_cursor(cursor)) {
            None => 0,
            Some(Some(file)) => file as usize,
            Some(None) => {
                return ToolAnswer::advice(
                    "cursor is not one of this list, or the site has changed; call list_pages again without cursor",
                    McpOutcome::Advice,
                );
            }
        };
        let listed = self.list_from(first, section, arguments.limit as usize);
        if listed.pages.is_empty() && listed.next.is_none() && first == 0 && !section.is_empty() {
            return ToolAnswer::advice(
                "there are no pages below this section; call list_pages without section",
                McpOutcome::Advice,
            );
        }
        let base_path = &self.addresses.base_path;
        let pages: Vec<Value> = listed
            .pages
            .into_iter()
            .map(|page| json!({ "url": page_url(base_path, &page.address), "title": page.title }))
            .collect();
        let next_cursor = listed.next.map(|file| list.encode_cursor(file as u32));
        ToolAnswer::value(json!({ "pages": pages, "nextCursor": next_cursor }), McpOutcome::Ok)
    }

    /// Returns a part of the list of resources, and the cursor of the next one.
    pub(super) fn list_resources(&self, cursor: Option<&str>) -> Result<(Vec<Resource>, Option<String>), ErrorData> {
        let list = ListIdentity { operation: "resources/list", version: self.version.id, section: "" };
        let first = match cursor.map(|cursor| list.decode_cursor(cursor)) {
            None => 0,
            Some(Some(file)) => file as usize,
            Some(None) => {
                let message = "the cursor is not one of this list, or the site has changed; list again without it";
                return Err(ErrorData::invalid_params(message, None));
            }
        };
        let listed = self.list_from(first, "", LISTED_RESOURCES);
        let resources = listed.pages.into_iter().map(|page| {
            let name = if page.address.is_empty() { "/" } else { page.address.as_str() };
            Resource::new(resource_uri(&page.address), without_invisible(name))
                .with_title(page.title)
                .with_mime_type(MARKDOWN_TYPE)
        });
        Ok((resources.collect(), listed.next.map(|file| list.encode_cursor(file as u32))))
    }

    /// Returns the Markdown of the page with this URI.
    pub(super) fn read_resource(&self, uri: &str) -> Result<ResourceContents, ErrorData> {
        let not_found = |message: String| {
            ErrorData::resource_not_found(message, Some(json!({ "uri": uri.chars().take(200).collect::<String>() })))
        };
        if !uri.starts_with(RESOURCE_PREFIX) {
            return Err(not_found(format!("the URIs of this server begin with {RESOURCE_PREFIX}")));
        }
        let (_, page) = self.find_readable_page(uri).map_err(|fault| not_found(fault.to_string()))?;
        let page = page.ok_or_else(|| ErrorData::internal_error("the page cannot be read as Markdown", None))?;
        let whole = 0..page.text.len();
        let part = cut_part(&page.text, &page.block_starts, whole, 0, MAX_RESOURCE_CHARS);
        let Some(PagePart { text, next_offset, .. }) = part else {
            return Err(ErrorData::internal_error("the page cannot be read as Markdown", None));
        };
        let text = match next_offset {
            None => text.to_owned(),
            Some(next) => {
                format!("{text}\n(The page is longer: read the rest with the tool read_page, offset {next}.)\n")
            }
        };
        Ok(ResourceContents::text(text, uri).with_mime_type(MARKDOWN_TYPE))
    }

    /// Finds the page at an address: its file, and its Markdown unless it cannot be read. A page that asks not to be
    /// indexed, or that the operator leaves out, is as if it were not there.
    fn find_readable_page(&self, url: &str) -> Result<(usize, Option<Arc<PageMarkdown>>), PageAddressFault> {
        let AddressedPage { file, address } = find_page(&self.version, &self.addresses, url, |host| {
            self.host.as_ref().is_some_and(|own| own.may_be_same(host)) || host.is_listed(&self.hosts)
        })?;
        if is_withheld(&self.version, &self.addresses, &self.exclude, file, Some(&address)) {
            return Err(PageAddressFault::NotFound);
        }
        let page = page_markdown::find(&self.site, &self.version, file);
        if page.as_ref().is_some_and(|page| page.exclusion == Some(PageExclusion::NoIndex)) {
            return Err(PageAddressFault::NotFound);
        }
        Ok((file, page))
    }

    /// Returns the text for a model that has passed an address without a page.
    fn advise(&self, fault: PageAddressFault) -> String {
        let tools = if self.site.search.is_enabled() { "search_docs or list_pages" } else { "list_pages" };
        format!("{fault}; call {tools} to find the url of a page")
    }

    /// Lists pages from this file on, at most `limit`, in byte order of their paths. Each part reads at least one file,
    /// so that a client which follows the cursors reaches the end, however slow the machine is.
    fn list_from(&self, first: usize, section: &str, limit: usize) -> PageListPart {
        let deadline = Instant::now() + self.max_list_time;
        let index = self.site.search.index().filter(|index| index.version() == self.version.id);
        let mut pages = Vec::new();
        for file in first..self.version.index().len() {
            if pages.len() >= limit || (file > first && Instant::now() >= deadline) {
                return PageListPart { pages, next: Some(file) };
            }
            if is_below(self.version.index().path(file), section.as_bytes()) {
                pages.extend(self.list_page(index.as_deref(), file));
            }
        }
        PageListPart { pages, next: None }
    }

    /// Returns the address and the title of a file; `None` if it is not a page that readers find.
    fn list_page(&self, index: Option<&SearchIndex>, file: usize) -> Option<PageListEntry> {
        let address = find_listed_address(&self.version, &self.addresses, &self.exclude, file)?;
        if is_withheld(&self.version, &self.addresses, &self.exclude, file, None) {
            return None;
        }
        let path = std::str::from_utf8(self.version.index().path(file)).ok()?;
        if let Some(index) = index {
            let page = index.find_page(path)?;
            return Some(PageListEntry {
                address: page.address.to_owned(),
                title: self.title_or_path(file, page.title),
            });
        }
        let page = page_markdown::find(&self.site, &self.version, file)?;
        if page.exclusion.is_some() {
            return None;
        }
        Some(PageListEntry { address, title: self.title_or_path(file, &page.title) })
    }

    /// Returns the address of a page below the base path.
    fn address_of(&self, file: usize) -> String {
        let path = String::from_utf8_lossy(self.version.index().path(file));
        let index = self.site.search.index().filter(|index| index.version() == self.version.id);
        let indexed = index.as_ref().and_then(|index| index.find_page(&path)).map(|page| page.address.to_owned());
        indexed
            .or_else(|| find_listed_address(&self.version, &self.addresses, &[], file))
            .unwrap_or_else(|| path.into_owned())
    }

    fn title_or_path(&self, file: usize, title: &str) -> String {
        if title.is_empty() {
            without_invisible(&String::from_utf8_lossy(self.version.index().path(file)))
        } else {
            title.to_owned()
        }
    }
}

/// Removes the characters that a reader does not see, which may be in the name of a file, too.
fn without_invisible(text: &str) -> String {
    text.chars().filter(|&character| !is_invisible(character)).collect()
}

/// Returns the bytes of the section with this anchor.
fn find_section(page: &PageMarkdown, section: &str) -> Option<std::ops::Range<usize>> {
    let section = section.trim();
    let anchor = section.rsplit_once('#').map_or(section, |(_, anchor)| anchor);
    let decoded = percent_decode_str(anchor).decode_utf8().ok()?;
    let found = page.find_section(&decoded).or_else(|| page.find_section(anchor))?;
    Some(found.start as usize..found.end as usize)
}

/// Returns whether a page is below a path, or the page of that name; every page is below an empty path.
fn is_below(path: &[u8], section: &[u8]) -> bool {
    let Some(rest) = path.strip_prefix(section) else { return false };
    section.is_empty() || section.ends_with(b"/") || matches!(rest, b"" | b".html" | b".htm") || rest.starts_with(b"/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_of_a_list_is_a_folder_or_a_page() {
        for (path, section, expected) in [
            ("guide/a.html", "", true),
            ("guide/a.html", "guide", true),
            ("guide/a.html", "guide/", true),
            ("guide.html", "guide", true),
            ("guide/a.html", "guide/a", true),
            ("guides/a.html", "guide", false),
            ("a.html", "guide", false),
        ] {
            assert_eq!(is_below(path.as_bytes(), section.as_bytes()), expected, "{path} {section}");
        }
    }
}
