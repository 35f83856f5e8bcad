//! Finds the passages for a question: the sections that the search of the site finds, as Markdown. It runs on a thread
//! of the search, because it inflates and converts pages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use docwharf_base::secret::Secret;
use docwharf_search::index::SearchIndex;
use docwharf_search::markdown::PageMarkdown;
use docwharf_search::page::{SearchResponse, SearchResult};
use docwharf_site::lookup::{AddressSettings, Slashes};
use docwharf_site::rules::route::{RouteResult, RouteSettings, route_address};
use docwharf_site::sealed_version::SealedVersion;
use percent_encoding::percent_decode_str;

use crate::ask::{AskInForce, ChatFailure, FoundSection, Passage, PassageSelector, ReaderQuestion};
use crate::converted_pages::MarkdownState;
use crate::page_markdown::find_in;
use crate::search::{PendingAnswer, SearchParameters, SearchQuery, SearchSettings};
use crate::site::Site;

/// The largest number of pages whose sections become passages.
const MAX_PAGES: u32 = 8;
/// The time after which no further page is converted. It keeps the time until the first text of an answer short.
const MAX_CONVERSION_TIME: Duration = Duration::from_millis(60);

/// The passages that were found for a question, and the key of the endpoint.
#[derive(Debug)]
pub(super) struct Retrieval {
    /// The passages, best first.
    pub(super) passages: Vec<Passage>,
    /// The number of pages that match.
    pub(super) total: u64,
    pub(super) key: Result<Option<Secret>, ChatFailure>,
}

/// Returns the query for a question.
pub(super) fn build_query(
    site: &Site,
    question: &ReaderQuestion,
    index: Arc<SearchIndex>,
    version: Arc<SealedVersion>,
    settings: &SearchSettings,
) -> SearchQuery {
    let parameters = SearchParameters {
        text: question.text.clone(),
        limit: MAX_PAGES,
        section: question.section.clone(),
        lang: question.lang.clone(),
        ..SearchParameters::default()
    };
    SearchQuery::for_assistants(parameters, index, version, site.address_settings(), settings)
}

/// Starts a query, and the conversion of what it finds.
pub(super) fn start(
    site: &Site,
    query: SearchQuery,
    parallel: usize,
    in_force: &Arc<AskInForce>,
) -> PendingAnswer<Retrieval> {
    let (version, addresses) = (Arc::clone(&query.version), query.addresses.clone());
    let source = PassageSource { version, addresses, markdown: Arc::clone(&site.markdown) };
    let in_force = Arc::clone(in_force);
    site.search.submit_with(parallel, query, move |response| {
        let max_chars = in_force.settings.max_context.get();
        let passages = source.select_passages(&response, max_chars, MAX_CONVERSION_TIME);
        // A question without passages is not sent.
        let key = if passages.is_empty() { Ok(None) } else { in_force.read_key() };
        Retrieval { passages, total: response.total, key }
    })
}

/// The pages from which passages are taken.
#[derive(Debug)]
struct PassageSource {
    version: Arc<SealedVersion>,
    addresses: AddressSettings,
    markdown: Arc<MarkdownState>,
}

/// A result of the search, with its page.
struct FoundPage<'r> {
    result: &'r SearchResult,
    markdown: Arc<PageMarkdown>,
    /// The parts of the page that are passages already, as byte offsets.
    taken: Vec<(usize, usize)>,
}

impl PassageSource {
    /// Returns the passages for the results of a search, with at most this number of characters: first the best section
    /// of each page, then the further ones. After `max_time`, no further page is converted; the first one always is.
    fn select_passages(&self, response: &SearchResponse, max_chars: usize, max_time: Duration) -> Vec<Passage> {
        let (deadline, mut selector) = (Instant::now() + max_time, PassageSelector::new(max_chars));
        let mut pages = Vec::new();
        for result in &response.results {
            if selector.is_full() || (!pages.is_empty() && Instant::now() >= deadline) {
                break;
            }
            let Some(markdown) = self.read_markdown(&result.url) else { continue };
            let mut page = FoundPage { result, markdown, taken: Vec::new() };
            let heading = result.section.last().cloned();
            selector.add(&result.title, &page.markdown, &found_section(&result.url, heading), &mut page.taken);
            pages.push(page);
        }
        for page in &mut pages {
            for section in &page.result.sections {
                let found = found_section(&section.url, Some(section.title.clone()));
                selector.add(&page.result.title, &page.markdown, &found, &mut page.taken);
            }
        }
        selector.finish()
    }

    /// Reads the page at the address of a result as Markdown; `None` if it is not served, cannot be read, or asks not
    /// to be indexed.
    fn read_markdown(&self, url: &str) -> Option<Arc<PageMarkdown>> {
        let path = url.split(['#', '?']).next().unwrap_or_default();
        let file = self.find_file(path)?;
        let page = find_in(&self.markdown, &self.addresses.base_path, &self.version, file)?;
        page.exclusion.is_none().then_some(page)
    }

    /// Returns the file that is served at a percent-encoded path of the host.
    fn find_file(&self, path: &str) -> Option<usize> {
        let decoded: Vec<u8> = percent_decode_str(path).collect();
        let in_site = decoded.get(self.addresses.base_path.len() - 1..)?;
        let settings = RouteSettings {
            base_path: &self.addresses.base_path,
            // A page is found at each of its addresses.
            slashes: Slashes::Serve,
            rules: &self.addresses.rules,
        };
        match route_address(&*self.version, &settings, in_site, None) {
            RouteResult::File(file) | RouteResult::Rewritten(file, 200) => Some(file),
            _ => None,
        }
    }
}

/// Returns the section at the address of a result.
fn found_section(url: &str, heading: Option<String>) -> FoundSection {
    let anchor = url.split_once('#').map(|(_, anchor)| percent_decode_str(anchor).decode_utf8_lossy().into_owned());
    let heading = heading.filter(|_| anchor.is_some());
    FoundSection { url: url.to_owned(), anchor, heading }
}

#[cfg(test)]
mod tests;
