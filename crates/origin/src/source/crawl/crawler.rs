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
    CrawlOutcome, CrawlRequest, CrawlResults, FetchedBody, ForbiddenLinks, NOT_FOUND_PATH, RequestPurpose,
};
use super::robots::Robots;
use super::spool::BodySpool;
use super::{Crawl, CrawlError, SharedResource, script, sitemap};

/// Maximum size of all bodies together, in bytes.
const MAX_SITE_BYTES: u64 = 8 << 30;
/// Maximum length of all addresses together, in bytes: they are kept in memory, some of them three times.
const ADDRESS_BYTES: u64 = 32 << 20;
/// Interval at which the crawl checks whether it was cancelled or its time is over.
const TICK: Duration = Duration::from_millis(100);
/// Files that sites have without linking to them.
const WELL_KNOWN: [&str; 4] = ["/sitemap.xml", "/llms.txt", "/llms-full.txt", "/favicon.ico"];
const ROBOTS: &str = "/robots.txt";

/// Crawls the site; with `paths`, only these pages and what they need.
pub(super) async fn crawl_site(
    crawl: &Crawl,
    paths: Option<&[String]>,
    into: &Path,
    deadline: CrawlDeadline<'_>,
) -> Result<CrawlResults, CrawlError> {
    let spool = BodySpool::new(into).map_err(|source| CrawlError::Write { path: into.to_owned(), source })?;
    let found = CrawlResults {
        met: BTreeMap::new(),
        wanted: BTreeMap::new(),
        spool,
        foreign: (0, None),
        forbidden: ForbiddenLinks::default(),
    };
    let mut walk = Crawler {
        crawl,
        into,
        deadline,
        found,
        fetcher: Arc::new(Fetcher::new()?),
        robots: Robots::default(),
        only: paths.is_some(),
        queue: VecDeque::new(),
        queued_pages: 0,
        needed: Vec::new(),
        tasks: JoinSet::new(),
        pages: HashSet::new(),
        asked: 0,
        guessed: 0,
        address_bytes: 0,
    };
    walk.queue_request(SiteAddress::of_path(ROBOTS), false, AddressPurpose::Guess, None)?;
    walk.run().await?;
    let sitemaps = std::mem::take(&mut walk.robots.sitemaps);
    let start = LinkTarget::of(crawl, crawl.start.as_str());
    let given: Vec<LinkTarget> = match paths {
        None => vec![start],
        Some(paths) => {
            paths.iter().map(|path| LinkTarget::of(crawl, &format!("/{}", path.trim_start_matches('/')))).collect()
        }
    };
    for leads in given {
        if let LinkTarget::Here { address, .. } = leads {
            walk.queue_request(address, false, AddressPurpose::Link, None)?;
        }
    }
    for path in WELL_KNOWN.into_iter().chain([NOT_FOUND_PATH]) {
        walk.queue_request(SiteAddress::of_path(path), false, AddressPurpose::Guess, None)?;
    }
    for text in sitemaps {
        walk.queue_target(&LinkTarget::of(crawl, &text), AddressPurpose::Guess, None)?;
    }
    walk.run().await?;
    Ok(walk.found)
}

impl LinkTarget {
    /// Resolves a link relative to the start page.
    fn of(crawl: &Crawl, text: &str) -> LinkTarget {
        resolve_link(&crawl.start, &crawl.start, text)
    }
}

struct Crawler<'a> {
    crawl: &'a Crawl,
    into: &'a Path,
    deadline: CrawlDeadline<'a>,
    found: CrawlResults,
    fetcher: Arc<Fetcher>,
    robots: Robots,
    /// Whether only the requested pages are crawled, and not the pages that they link to.
    only: bool,
    queue: VecDeque<CrawlRequest>,
    /// Number of requests in `queue` that are not for payloads.
    queued_pages: usize,
    /// Requests that were guesses and have now been named for this purpose. They are handled one after the other in a
    /// loop and not where the purpose is found, because handling one may add another, any number of times.
    needed: Vec<(CrawlRequest, AddressPurpose)>,
    tasks: JoinSet<(CrawlRequest, Vec<String>, Result<CrawlResponse, RequestError>)>,
    /// Pages by name and content; each of them will be one file.
    pages: HashSet<(Vec<u8>, Digest)>,
    asked: u64,
    guessed: u64,
    address_bytes: u64,
}

impl Crawler<'_> {
    /// Sends requests until none is left.
    async fn run(&mut self) -> Result<(), CrawlError> {
        let mut tick = tokio::time::interval(TICK);
        loop {
            while let Some((ask, how)) = self.needed.pop() {
                self.deadline.check()?;
                self.need(&ask, how)?;
            }
            while self.tasks.len() < self.crawl.parallel.max(1)
                && let Some(ask) = self.queue.pop_front()
            {
                self.queued_pages -= usize::from(!ask.is_payload);
                self.ask(ask);
            }
            self.deadline.hold()?;
            if self.tasks.is_empty() {
                return Ok(());
            }
            tokio::select! {
                Some(done) = self.tasks.join_next() => {
                    let (ask, said, answer) = done.map_err(|error| CrawlError::Runtime(std::io::Error::other(error)))?;
                    for line in said {
                        self.deadline.watch.log_line(line);
                    }
                    self.take(ask, answer)?;
                }
                _ = tick.tick() => {}
            }
        }
    }

    fn ask(&mut self, ask: CrawlRequest) {
        let (fetcher, url) = (Arc::clone(&self.fetcher), self.url(&ask.address));
        self.tasks.spawn(async move {
            let mut said = Vec::new();
            let answer = fetcher.get(&url, ask.is_payload, &mut said).await;
            (ask, said, answer)
        });
    }

    fn url(&self, address: &SiteAddress) -> Url {
        let mut url = self.crawl.start.clone();
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
        how: AddressPurpose,
        by: Option<&Arc<SiteAddress>>,
    ) -> Result<(), CrawlError> {
        let ask = CrawlRequest { address, is_payload };
        if let Some(known) = self.found.wanted.get_mut(&ask) {
            let before = known.how;
            if how > AddressPurpose::Guess || before == AddressPurpose::Guess {
                let is_first = before == AddressPurpose::Guess && how > AddressPurpose::Guess;
                known.by = if is_first { by.cloned() } else { known.by.take().min(by.cloned()) };
            }
            known.how = before.max(how);
            if before == AddressPurpose::Guess && how > AddressPurpose::Guess {
                self.needed.push((ask, how));
            }
            return Ok(());
        }
        let is_allowed =
            !self.crawl.robots || ask.address.path == ROBOTS || self.robots.allows(&ask.address.to_string());
        if !is_allowed {
            if how > AddressPurpose::Guess {
                self.found.forbidden.note(ask.address, by);
            }
            return Ok(());
        }
        self.count(&ask, how)?;
        self.address_bytes += ask.address.len() as u64;
        if self.address_bytes > ADDRESS_BYTES {
            return Err(CrawlError::AddressBytes { limit: ADDRESS_BYTES });
        }
        let known = self.found.wanted.len() as u64 + 1;
        let held = self.deadline.watch.hold_share(SharedResource::CrawlAddresses, known);
        held.map_err(CrawlError::share(SharedResource::CrawlAddresses))?;
        self.found.wanted.insert(ask.clone(), RequestPurpose { how, by: by.cloned() });
        self.queued_pages += usize::from(!is_payload);
        self.queue.push_back(ask);
        Ok(())
    }

    fn count(&mut self, ask: &CrawlRequest, how: AddressPurpose) -> Result<(), CrawlError> {
        let count = if how == AddressPurpose::Guess { &mut self.guessed } else { &mut self.asked };
        *count += 1;
        // Each page may also have a payload.
        let most = if how == AddressPurpose::Guess {
            self.crawl.most.saturating_mul(2).saturating_add(16)
        } else {
            self.crawl.most
        };
        if *count > most {
            return Err(CrawlError::TooMany { most: self.crawl.most, address: ask.address.to_string() });
        }
        Ok(())
    }

    /// Handles an address that was a guess and is now needed.
    fn need(&mut self, ask: &CrawlRequest, how: AddressPurpose) -> Result<(), CrawlError> {
        self.count(ask, how)?;
        match self.found.met.get(ask) {
            Some(CrawlOutcome::Failed(trouble)) => {
                Err(CrawlError::Fetch { url: self.url(&ask.address), source: trouble.clone() })
            }
            Some(CrawlOutcome::Moved(_, LinkTarget::Here { address, .. })) => {
                let to = address.clone();
                self.queue_request(to, false, how, Some(&Arc::new(ask.address.clone())))
            }
            Some(CrawlOutcome::FetchedBody(body)) if !body.is_read => {
                let place = body.place;
                let text = self.found.spool.get(place).map_err(|source| self.write(source))?;
                self.read(ask, &text)
            }
            _ => Ok(()),
        }
    }

    fn write(&self, source: std::io::Error) -> CrawlError {
        CrawlError::Write { path: self.into.to_owned(), source }
    }

    /// Records a response.
    fn take(&mut self, ask: CrawlRequest, answer: Result<CrawlResponse, RequestError>) -> Result<(), CrawlError> {
        let how = self.found.wanted.get(&ask).map_or(AddressPurpose::Guess, |wanted| wanted.how);
        let answer = match answer {
            Ok(answer) => answer,
            Err(source)
                if how > AddressPurpose::Guess
                    || ask.address.path == ROBOTS
                    || source.cause == RequestErrorCause::NotConnected =>
            {
                return Err(CrawlError::Fetch { url: self.url(&ask.address), source });
            }
            Err(trouble) => {
                self.found.met.insert(ask, CrawlOutcome::Failed(trouble));
                return Ok(());
            }
        };
        let is_nowhere = ask.address.path == NOT_FOUND_PATH && answer.status == 404;
        match (answer.status, &answer.location) {
            (200..=299, _) => self.keep(&ask, answer, how),
            _ if is_nowhere => self.keep(&ask, answer, AddressPurpose::Asset),
            (301 | 302 | 303 | 307 | 308, Some(location)) => {
                let to = resolve_link(&self.crawl.start, &self.url(&ask.address), location);
                self.found.met.insert(ask.clone(), CrawlOutcome::Moved(answer.status, to.clone()));
                // Follow the redirect for the same purpose.
                match to {
                    LinkTarget::Here { address, .. } if !ask.is_payload => {
                        self.queue_request(address, false, how, Some(&Arc::new(ask.address)))
                    }
                    _ => Ok(()),
                }
            }
            (status, _) => {
                self.found.met.insert(ask, CrawlOutcome::Missing(status));
                Ok(())
            }
        }
    }

    fn keep(&mut self, ask: &CrawlRequest, answer: CrawlResponse, how: AddressPurpose) -> Result<(), CrawlError> {
        let CrawlResponse { status, media_type, charset, body, .. } = answer;
        if self.found.spool.len + body.len() as u64 > MAX_SITE_BYTES {
            return Err(CrawlError::TooLarge { limit: MAX_SITE_BYTES });
        }
        if ask.address.path == ROBOTS && self.crawl.robots {
            self.robots = Robots::parse(&body);
        }
        let sort = BodyFormat::of(&media_type, &ask.address.path, &body);
        let place = self.found.spool.put(&body).map_err(|source| self.write(source))?;
        let varies = matches!(sort, BodyFormat::Style | BodyFormat::Manifest);
        // Servers look for the 404 page under this name.
        let named =
            if ask.address.path == NOT_FOUND_PATH { SiteAddress::of_path("/404.html") } else { ask.address.clone() };
        let item = NamingCandidate::new(named, sort == BodyFormat::Page, &media_type, Digest::of(&body), varies);
        let charset =
            charset.filter(|name| !matches!(name.as_str(), "utf-8" | "utf8" | "us-ascii") && !body.is_ascii());
        let is_text = charset.is_none() && std::str::from_utf8(&body).is_ok();
        let is_guess = how == AddressPurpose::Guess && sort == BodyFormat::Page;
        let kept = FetchedBody { sort, place, item, is_text, charset, is_missing: status == 404, is_read: false };
        self.found.met.insert(ask.clone(), CrawlOutcome::FetchedBody(kept));
        // Some servers answer a request for a missing file with a page.
        if is_guess { Ok(()) } else { self.read(ask, &body) }
    }

    /// Queues the addresses that a body names.
    fn read(&mut self, ask: &CrawlRequest, body: &[u8]) -> Result<(), CrawlError> {
        let Some(CrawlOutcome::FetchedBody(kept)) = self.found.met.get_mut(ask) else { return Ok(()) };
        kept.is_read = true;
        let sort = kept.sort;
        if sort == BodyFormat::Page
            && !ask.is_payload
            && self.pages.insert((kept.item.preferred.clone(), kept.item.digest))
        {
            self.deadline.watch.count_page();
        }
        let base = if ask.address.path == NOT_FOUND_PATH { SiteAddress::of_path("/") } else { ask.address.clone() };
        let by = Arc::new(ask.address.clone());
        let (crawl, deadline) = (self.crawl, self.deadline);
        let mut resolver = Resolver::new(&crawl.start, self.url(&base));
        // Each address is handled as it is found: all addresses of a body may take much more memory than the body.
        let mut taken = Ok(());
        let text = String::from_utf8_lossy(body);
        visit_addresses(sort, &ask.address.path, &text, body, &|| deadline.is_over(), &mut |how, text| {
            if taken.is_ok()
                && let Some(leads) = resolver.leads(how, text)
            {
                taken = self.queue_target(&leads, how, Some(&by));
            }
        });
        taken?;
        if sort == BodyFormat::Xml {
            self.queue_sitemap(body, &by)?;
        }
        if sort == BodyFormat::Page && !ask.is_payload {
            self.queue_next_data(&by, &text)?;
        }
        let to_come = self.queued_pages + self.tasks.len();
        self.deadline.watch.set_known_pages((self.pages.len() + to_come) as u64);
        Ok(())
    }

    /// Queues the addresses that a sitemap lists.
    fn queue_sitemap(&mut self, body: &[u8], by: &Arc<SiteAddress>) -> Result<(), CrawlError> {
        let mut taken = Ok(());
        sitemap::addresses(body, &mut |address| {
            if taken.is_err() {
                return;
            }
            let leads = LinkTarget::of(self.crawl, address);
            if let LinkTarget::Elsewhere(url) = &leads {
                self.found.foreign.0 += 1;
                let least = self.found.foreign.1.take().map_or(url.clone(), |other| other.min(url.clone()));
                self.found.foreign.1 = Some(least);
            }
            taken = self.queue_target(&leads, AddressPurpose::Link, Some(by));
        });
        taken
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
        match script::data_of(&address.path, text) {
            Some(data) => self.queue_request(SiteAddress::of_path(&data), false, AddressPurpose::Guess, Some(address)),
            None => Ok(()),
        }
    }

    /// Queues the target of a link, if it is on this site.
    fn queue_target(
        &mut self,
        leads: &LinkTarget,
        how: AddressPurpose,
        by: Option<&Arc<SiteAddress>>,
    ) -> Result<(), CrawlError> {
        self.deadline.check()?;
        let LinkTarget::Here { address, .. } = leads else { return Ok(()) };
        if how < AddressPurpose::Guess {
            return Ok(());
        }
        // With `paths`, downloads that a page links to belong to it; other pages do not.
        let is_download = media_type(address.path.as_bytes()).is_some() && !is_page(address.path.as_bytes());
        if self.only && how == AddressPurpose::Link && by.is_some() && !is_download {
            return Ok(());
        }
        self.queue_request(address.clone(), false, how, by)?;
        // Also fetch the original of an image that the Next.js optimizer resizes.
        if address.path.ends_with("/_next/image") {
            let query = address.query.as_deref().unwrap_or_default();
            let pairs = url::form_urlencoded::parse(query.as_bytes());
            for (_, picture) in pairs.filter(|(name, _)| name == "url") {
                if let LinkTarget::Here { address, .. } = LinkTarget::of(self.crawl, &picture) {
                    self.queue_request(address, false, AddressPurpose::Guess, by)?;
                }
            }
        }
        Ok(())
    }
}
