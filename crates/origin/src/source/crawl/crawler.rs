//! Crawls a site: queues addresses with their purpose, requests them and records the results.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use url::Url;

use docwharf_base::model::digest::Digest;
use docwharf_base::model::site_path::is_page;
use docwharf_base::net::request_error::{RequestError, RequestErrorCause};
use docwharf_site::media_types::media_type;

use super::address::{LinkTarget, SiteAddress, resolve_link};
use super::body_addresses::{Resolver, visit_addresses};
use super::body_format::{AddressPurpose, BodyFormat};
use super::deadline::CrawlDeadline;
use super::fetch::{CrawlResponse, Fetcher};
use super::file_names::NamingCandidate;
use super::results::{
    CrawlOutcome, CrawlRequest, CrawlResults, DisallowedLinks, FetchedBody, NOT_FOUND_PATH, RequestPurpose,
};
use super::robots::Robots;
use super::spool::BodySpool;
use super::{CrawlError, CrawlSource, SharedResource, script, sitemap};

/// Maximum size of all bodies together, in bytes.
const MAX_SITE_BYTES: u64 = 8 << 30;
/// Maximum length of all addresses together, in bytes: they are in memory, some of them three times.
const MAX_ADDRESS_BYTES: u64 = 32 << 20;
/// Interval at which the crawl checks whether it was cancelled or its time is over.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Files that sites have without linking to them.
const WELL_KNOWN_PATHS: [&str; 4] = ["/sitemap.xml", "/llms.txt", "/llms-full.txt", "/favicon.ico"];
const ROBOTS_PATH: &str = "/robots.txt";

/// Crawls the site; with `paths`, only these pages and what they need.
pub(super) async fn crawl_site(
    source: &CrawlSource,
    paths: Option<&[String]>,
    target: &Path,
    deadline: CrawlDeadline<'_>,
) -> Result<CrawlResults, CrawlError> {
    let spool = BodySpool::new(target).map_err(|source| CrawlError::Write { path: target.to_owned(), source })?;
    let results = CrawlResults {
        outcomes: BTreeMap::new(),
        purposes: BTreeMap::new(),
        spool,
        foreign_sitemap_links: (0, None),
        disallowed: DisallowedLinks::default(),
    };
    let mut crawler = Crawler {
        source,
        target,
        deadline,
        results,
        fetcher: Arc::new(Fetcher::new(source.outbound_policy.clone())?),
        robots: Robots::default(),
        robots_address: SiteAddress::from_path(ROBOTS_PATH),
        only_requested: paths.is_some(),
        queue: VecDeque::new(),
        queued_non_payloads: 0,
        newly_required: Vec::new(),
        tasks: JoinSet::new(),
        pages: HashSet::new(),
        required_count: 0,
        guess_count: 0,
        address_bytes: 0,
    };
    crawler.queue_request(SiteAddress::from_path(ROBOTS_PATH), false, AddressPurpose::Guess, None)?;
    crawler.run().await?;
    let sitemaps = std::mem::take(&mut crawler.robots.sitemaps);
    let start = LinkTarget::from_start_page(source, source.start.as_str());
    let start_targets: Vec<LinkTarget> = match paths {
        None => vec![start],
        Some(paths) => paths
            .iter()
            .map(|path| LinkTarget::from_start_page(source, &format!("/{}", path.trim_start_matches('/'))))
            .collect(),
    };
    for target in start_targets {
        if let LinkTarget::SameSite { address, .. } = target {
            crawler.queue_request(address, false, AddressPurpose::Link, None)?;
        }
    }
    for path in WELL_KNOWN_PATHS.into_iter().chain([NOT_FOUND_PATH]) {
        crawler.queue_request(SiteAddress::from_path(path), false, AddressPurpose::Guess, None)?;
    }
    for text in sitemaps {
        crawler.queue_target(&LinkTarget::from_start_page(source, &text), AddressPurpose::Guess, None)?;
    }
    crawler.run().await?;
    Ok(crawler.results)
}

impl LinkTarget {
    /// Resolves a link relative to the start page.
    fn from_start_page(source: &CrawlSource, text: &str) -> LinkTarget {
        resolve_link(&source.start, &source.start, text)
    }
}

struct Crawler<'a> {
    source: &'a CrawlSource,
    target: &'a Path,
    deadline: CrawlDeadline<'a>,
    results: CrawlResults,
    fetcher: Arc<Fetcher>,
    robots: Robots,
    /// The address of robots.txt; after a redirect, that of its target (RFC 9309, 2.3.1.2).
    robots_address: SiteAddress,
    /// Whether only the requested pages are crawled, and not the pages that they link to.
    only_requested: bool,
    queue: VecDeque<CrawlRequest>,
    /// Number of requests in `queue` that are not for payloads.
    queued_non_payloads: usize,
    /// Requests for guessed addresses that are now required for this purpose. A loop handles them one after the other.
    /// Handling one may add another, any number of times, so a recursive call would use too much of the stack.
    newly_required: Vec<(CrawlRequest, AddressPurpose)>,
    tasks: JoinSet<(CrawlRequest, Vec<String>, Result<CrawlResponse, RequestError>)>,
    /// Pages by name and content; each of them will be one file.
    pages: HashSet<(Vec<u8>, Digest)>,
    /// Number of addresses that pages need or link to.
    required_count: u64,
    /// Number of addresses that are only guesses.
    guess_count: u64,
    address_bytes: u64,
}

impl Crawler<'_> {
    /// Sends requests until none is left.
    async fn run(&mut self) -> Result<(), CrawlError> {
        let mut tick = tokio::time::interval(CANCEL_CHECK_INTERVAL);
        loop {
            while let Some((request, purpose)) = self.newly_required.pop() {
                self.deadline.check()?;
                self.handle_newly_required(&request, purpose)?;
            }
            while self.tasks.len() < self.source.max_concurrent_requests.max(1)
                && let Some(request) = self.queue.pop_front()
            {
                self.queued_non_payloads -= usize::from(!request.is_payload);
                self.send_request(request);
            }
            self.deadline.check_and_count()?;
            if self.tasks.is_empty() {
                return Ok(());
            }
            tokio::select! {
                Some(task_result) = self.tasks.join_next() => {
                    let (request, log_lines, response) = task_result.map_err(|error| CrawlError::Runtime(std::io::Error::other(error)))?;
                    for line in log_lines {
                        self.deadline.context.log_line(line);
                    }
                    self.record_response(request, response)?;
                }
                _ = tick.tick() => {}
            }
        }
    }

    fn send_request(&mut self, request: CrawlRequest) {
        let (fetcher, url) = (Arc::clone(&self.fetcher), self.url(&request.address));
        self.tasks.spawn(async move {
            let mut log_lines = Vec::new();
            let response = fetcher.get(&url, request.is_payload, &mut log_lines).await;
            (request, log_lines, response)
        });
    }

    fn url(&self, address: &SiteAddress) -> Url {
        let mut url = self.source.start.clone();
        url.set_fragment(None);
        url.set_path(&address.path);
        url.set_query(address.query.as_deref());
        url
    }

    /// Records the purpose of an address, and queues a request for it unless there already is one.
    fn queue_request(
        &mut self,
        address: SiteAddress,
        is_payload: bool,
        purpose: AddressPurpose,
        found_on: Option<&Arc<SiteAddress>>,
    ) -> Result<(), CrawlError> {
        let request = CrawlRequest { address, is_payload };
        if let Some(request_purpose) = self.results.purposes.get_mut(&request) {
            let before = request_purpose.purpose;
            if purpose > AddressPurpose::Guess || before == AddressPurpose::Guess {
                let is_first = before == AddressPurpose::Guess && purpose > AddressPurpose::Guess;
                request_purpose.found_on =
                    if is_first { found_on.cloned() } else { request_purpose.found_on.take().min(found_on.cloned()) };
            }
            request_purpose.purpose = before.max(purpose);
            if before == AddressPurpose::Guess && purpose > AddressPurpose::Guess {
                self.newly_required.push((request, purpose));
            }
            return Ok(());
        }
        let is_allowed = !self.source.obeys_robots
            || request.address.path == ROBOTS_PATH
            || self.robots.allows(&request.address.to_string());
        if !is_allowed {
            if purpose > AddressPurpose::Guess {
                self.results.disallowed.record(request.address, found_on);
            }
            return Ok(());
        }
        self.count_address(&request, purpose)?;
        self.address_bytes += request.address.len() as u64;
        if self.address_bytes > MAX_ADDRESS_BYTES {
            return Err(CrawlError::AddressBytes { limit: MAX_ADDRESS_BYTES });
        }
        let address_count = self.results.purposes.len() as u64 + 1;
        let held = self.deadline.context.hold_share(SharedResource::CrawlAddresses, address_count);
        held.map_err(CrawlError::share_error(SharedResource::CrawlAddresses))?;
        self.results.purposes.insert(request.clone(), RequestPurpose { purpose, found_on: found_on.cloned() });
        self.queued_non_payloads += usize::from(!is_payload);
        self.queue.push_back(request);
        Ok(())
    }

    /// Counts an address; fails if the limit is exceeded.
    fn count_address(&mut self, request: &CrawlRequest, purpose: AddressPurpose) -> Result<(), CrawlError> {
        let count = if purpose == AddressPurpose::Guess { &mut self.guess_count } else { &mut self.required_count };
        *count += 1;
        // Each page may also have a payload.
        let max_count = if purpose == AddressPurpose::Guess {
            self.source.max_files.saturating_mul(2).saturating_add(16)
        } else {
            self.source.max_files
        };
        if *count > max_count {
            return Err(CrawlError::TooMany { max_files: self.source.max_files, address: request.address.to_string() });
        }
        Ok(())
    }

    /// Handles an address that was a guess and is now needed.
    fn handle_newly_required(&mut self, request: &CrawlRequest, purpose: AddressPurpose) -> Result<(), CrawlError> {
        self.count_address(request, purpose)?;
        match self.results.outcomes.get(request) {
            Some(CrawlOutcome::Failed(error)) => {
                Err(CrawlError::Fetch { url: self.url(&request.address), source: error.clone() })
            }
            Some(CrawlOutcome::Redirected(_, LinkTarget::SameSite { address, .. })) => {
                let to = address.clone();
                self.queue_request(to, false, purpose, Some(&Arc::new(request.address.clone())))
            }
            Some(CrawlOutcome::FetchedBody(body)) if !body.has_queued_addresses => {
                let range = body.range;
                let text = self.results.spool.read(range).map_err(|source| self.write_error(source))?;
                self.queue_addresses_in(request, &text)
            }
            _ => Ok(()),
        }
    }

    fn write_error(&self, source: std::io::Error) -> CrawlError {
        CrawlError::Write { path: self.target.to_owned(), source }
    }

    /// Whether a request is for robots.txt, and the crawl obeys its rules.
    fn is_robots_file(&self, request: &CrawlRequest) -> bool {
        self.source.obeys_robots && !request.is_payload && request.address == self.robots_address
    }

    /// Records a response.
    fn record_response(
        &mut self,
        request: CrawlRequest,
        response: Result<CrawlResponse, RequestError>,
    ) -> Result<(), CrawlError> {
        let purpose = self.results.purposes.get(&request).map_or(AddressPurpose::Guess, |known| known.purpose);
        let response = match response {
            Ok(response) => response,
            Err(source)
                if purpose > AddressPurpose::Guess
                    || self.is_robots_file(&request)
                    || source.cause == RequestErrorCause::NotConnected =>
            {
                return Err(CrawlError::Fetch { url: self.url(&request.address), source });
            }
            Err(error) => {
                self.results.outcomes.insert(request, CrawlOutcome::Failed(error));
                return Ok(());
            }
        };
        let is_not_found_page = request.address.path == NOT_FOUND_PATH && response.status == 404;
        match (response.status, &response.location) {
            (200..=299, _) => self.record_body(&request, response, purpose),
            _ if is_not_found_page => self.record_body(&request, response, AddressPurpose::Asset),
            (301 | 302 | 303 | 307 | 308, Some(location)) => {
                let to = resolve_link(&self.source.start, &self.url(&request.address), location);
                self.results.outcomes.insert(request.clone(), CrawlOutcome::Redirected(response.status, to.clone()));
                // Follow the redirect for the same purpose.
                match to {
                    LinkTarget::SameSite { address, .. } if !request.is_payload => {
                        if request.address == self.robots_address {
                            self.robots_address = address.clone();
                        }
                        self.queue_request(address, false, purpose, Some(&Arc::new(request.address)))
                    }
                    _ => Ok(()),
                }
            }
            (status, _) => {
                self.results.outcomes.insert(request, CrawlOutcome::Missing(status));
                Ok(())
            }
        }
    }

    /// Stores the body of a response and queues the addresses in it.
    fn record_body(
        &mut self,
        request: &CrawlRequest,
        response: CrawlResponse,
        purpose: AddressPurpose,
    ) -> Result<(), CrawlError> {
        let CrawlResponse { status, media_type, charset, body, .. } = response;
        if self.results.spool.len + body.len() as u64 > MAX_SITE_BYTES {
            return Err(CrawlError::TooLarge { limit: MAX_SITE_BYTES });
        }
        if self.is_robots_file(request) {
            self.robots = Robots::parse(&body);
        }
        let format = BodyFormat::detect(&media_type, &request.address.path, &body);
        let range = self.results.spool.append(&body).map_err(|source| self.write_error(source))?;
        let varies = matches!(format, BodyFormat::Style | BodyFormat::Manifest);
        // Servers look for the 404 page under this name.
        let address = if request.address.path == NOT_FOUND_PATH {
            SiteAddress::from_path("/404.html")
        } else {
            request.address.clone()
        };
        let naming =
            NamingCandidate::new(address, format == BodyFormat::Page, &media_type, Digest::compute(&body), varies);
        let charset =
            charset.filter(|name| !matches!(name.as_str(), "utf-8" | "utf8" | "us-ascii") && !body.is_ascii());
        let is_text = charset.is_none() && std::str::from_utf8(&body).is_ok();
        let is_guessed_page = purpose == AddressPurpose::Guess && format == BodyFormat::Page;
        let fetched =
            FetchedBody { format, range, naming, is_text, charset, is_404: status == 404, has_queued_addresses: false };
        self.results.outcomes.insert(request.clone(), CrawlOutcome::FetchedBody(fetched));
        // Some servers respond to a request for a missing file with a page.
        if is_guessed_page { Ok(()) } else { self.queue_addresses_in(request, &body) }
    }

    /// Queues the addresses in a body.
    fn queue_addresses_in(&mut self, request: &CrawlRequest, body: &[u8]) -> Result<(), CrawlError> {
        let Some(CrawlOutcome::FetchedBody(fetched)) = self.results.outcomes.get_mut(request) else { return Ok(()) };
        fetched.has_queued_addresses = true;
        let format = fetched.format;
        if format == BodyFormat::Page
            && !request.is_payload
            && self.pages.insert((fetched.naming.preferred_name.clone(), fetched.naming.digest))
        {
            self.deadline.context.count_page();
        }
        let base =
            if request.address.path == NOT_FOUND_PATH { SiteAddress::from_path("/") } else { request.address.clone() };
        let found_on = Arc::new(request.address.clone());
        let (source, deadline) = (self.source, self.deadline);
        let mut resolver = Resolver::new(&source.start, self.url(&base));
        // Each address is handled as it is found: all addresses of a body may take much more memory than the body.
        let mut result = Ok(());
        let text = String::from_utf8_lossy(body);
        visit_addresses(format, &request.address.path, &text, body, &|| deadline.must_end(), &mut |purpose, text| {
            if result.is_ok()
                && let Some(target) = resolver.resolve(purpose, text)
            {
                result = self.queue_target(&target, purpose, Some(&found_on));
            }
        });
        result?;
        if format == BodyFormat::Xml {
            self.queue_sitemap(body, &found_on)?;
        }
        if format == BodyFormat::Page && !request.is_payload {
            self.queue_next_data(&found_on, &text)?;
        }
        let pending = self.queued_non_payloads + self.tasks.len();
        self.deadline.context.set_known_pages((self.pages.len() + pending) as u64);
        Ok(())
    }

    /// Queues the addresses that a sitemap lists.
    fn queue_sitemap(&mut self, body: &[u8], found_on: &Arc<SiteAddress>) -> Result<(), CrawlError> {
        let mut result = Ok(());
        sitemap::visit_sitemap_addresses(body, &mut |address| {
            if result.is_err() {
                return;
            }
            let target = LinkTarget::from_start_page(self.source, address);
            if let LinkTarget::OtherOrigin(url) = &target {
                self.results.foreign_sitemap_links.0 += 1;
                let smallest =
                    self.results.foreign_sitemap_links.1.take().map_or(url.clone(), |other| other.min(url.clone()));
                self.results.foreign_sitemap_links.1 = Some(smallest);
            }
            result = self.queue_target(&target, AddressPurpose::Link, Some(found_on));
        });
        result
    }

    /// Queues the data that Next.js clients request when they navigate to a page without loading it.
    fn queue_next_data(&mut self, address: &Arc<SiteAddress>, text: &str) -> Result<(), CrawlError> {
        if address.path == NOT_FOUND_PATH || address.query.is_some() {
            return Ok(());
        }
        if text.contains("self.__next_f") {
            let payload = SiteAddress { query: Some("_rsc".to_owned()), path: address.path.clone() };
            self.queue_request(payload, true, AddressPurpose::Guess, Some(address))?;
        }
        match script::next_data_address(&address.path, text) {
            Some(data) => {
                self.queue_request(SiteAddress::from_path(&data), false, AddressPurpose::Guess, Some(address))
            }
            None => Ok(()),
        }
    }

    /// Queues the target of a link, if it is on this site.
    fn queue_target(
        &mut self,
        target: &LinkTarget,
        purpose: AddressPurpose,
        found_on: Option<&Arc<SiteAddress>>,
    ) -> Result<(), CrawlError> {
        self.deadline.check()?;
        let LinkTarget::SameSite { address, .. } = target else { return Ok(()) };
        if purpose < AddressPurpose::Guess {
            return Ok(());
        }
        // With `paths`, downloads that a page links to belong to it; other pages do not.
        let is_download = media_type(address.path.as_bytes()).is_some() && !is_page(address.path.as_bytes());
        if self.only_requested && purpose == AddressPurpose::Link && found_on.is_some() && !is_download {
            return Ok(());
        }
        self.queue_request(address.clone(), false, purpose, found_on)?;
        // Also fetch the original of an image that the Next.js optimizer resizes.
        if address.path.ends_with("/_next/image") {
            let query = address.query.as_deref().unwrap_or_default();
            let pairs = url::form_urlencoded::parse(query.as_bytes());
            for (_, image) in pairs.filter(|(name, _)| name == "url") {
                if let LinkTarget::SameSite { address, .. } = LinkTarget::from_start_page(self.source, &image) {
                    self.queue_request(address, false, AddressPurpose::Guess, found_on)?;
                }
            }
        }
        Ok(())
    }
}
