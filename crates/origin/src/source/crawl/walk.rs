//! Crawls a site: queues addresses with their purpose, requests them and records the results.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use url::Url;

use docwharf_base::model::digest::Digest;
use docwharf_base::model::site_path::is_page;
use docwharf_base::net::trouble::{Cause, Trouble};
use docwharf_site::types::media_type;

use super::address::{Address, Leads, leads};
use super::deadline::CrawlDeadline;
use super::documents::{Sort, Use};
use super::fetch::{Answer, Fetcher};
use super::found::{Ask, Body, ForbiddenLinks, Found, Met, NOWHERE, Wanted};
use super::names::Item;
use super::read::{Resolver, names};
use super::robots::Robots;
use super::spool::Spool;
use super::{Crawl, CrawlError, Resource, script, sitemap};

/// Maximum size of all bodies together, in bytes.
const LARGEST: u64 = 8 << 30;
/// Maximum length of all addresses together, in bytes: they are kept in memory, some of them three times.
const ADDRESS_BYTES: u64 = 32 << 20;
/// Interval at which the crawl checks whether it was cancelled or its time is over.
const TICK: Duration = Duration::from_millis(100);
/// Files that sites have without linking to them.
const WELL_KNOWN: [&str; 4] = ["/sitemap.xml", "/llms.txt", "/llms-full.txt", "/favicon.ico"];
const ROBOTS: &str = "/robots.txt";

/// Crawls the site; with `paths`, only these pages and what they need.
pub(super) async fn walk(
    crawl: &Crawl,
    paths: Option<&[String]>,
    into: &Path,
    deadline: CrawlDeadline<'_>,
) -> Result<Found, CrawlError> {
    let spool = Spool::new(into).map_err(|source| CrawlError::Write { path: into.to_owned(), source })?;
    let found = Found {
        met: BTreeMap::new(),
        wanted: BTreeMap::new(),
        spool,
        foreign: (0, None),
        forbidden: ForbiddenLinks::default(),
    };
    let mut walk = Walk {
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
    walk.want(Address::of_path(ROBOTS), false, Use::Guess, None)?;
    walk.run().await?;
    let sitemaps = std::mem::take(&mut walk.robots.sitemaps);
    let start = Leads::of(crawl, crawl.start.as_str());
    let given: Vec<Leads> = match paths {
        None => vec![start],
        Some(paths) => {
            paths.iter().map(|path| Leads::of(crawl, &format!("/{}", path.trim_start_matches('/')))).collect()
        }
    };
    for leads in given {
        if let Leads::Here { address, .. } = leads {
            walk.want(address, false, Use::Link, None)?;
        }
    }
    for path in WELL_KNOWN.into_iter().chain([NOWHERE]) {
        walk.want(Address::of_path(path), false, Use::Guess, None)?;
    }
    for text in sitemaps {
        walk.told(&Leads::of(crawl, &text), Use::Guess, None)?;
    }
    walk.run().await?;
    Ok(walk.found)
}

impl Leads {
    /// Resolves a link relative to the start page.
    fn of(crawl: &Crawl, text: &str) -> Leads {
        leads(&crawl.start, &crawl.start, text)
    }
}

struct Walk<'a> {
    crawl: &'a Crawl,
    into: &'a Path,
    deadline: CrawlDeadline<'a>,
    found: Found,
    fetcher: Arc<Fetcher>,
    robots: Robots,
    /// Whether only the requested pages are crawled, and not the pages that they link to.
    only: bool,
    queue: VecDeque<Ask>,
    /// Number of requests in `queue` that are not for payloads.
    queued_pages: usize,
    /// Requests that were guesses and have now been named for this purpose. They are handled one after the other in a
    /// loop and not where the purpose is found, because handling one may add another, any number of times.
    needed: Vec<(Ask, Use)>,
    tasks: JoinSet<(Ask, Vec<String>, Result<Answer, Trouble>)>,
    /// Pages by name and content; each of them will be one file.
    pages: HashSet<(Vec<u8>, Digest)>,
    asked: u64,
    guessed: u64,
    address_bytes: u64,
}

impl Walk<'_> {
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
                        self.deadline.watch.say(line);
                    }
                    self.take(ask, answer)?;
                }
                _ = tick.tick() => {}
            }
        }
    }

    fn ask(&mut self, ask: Ask) {
        let (fetcher, url) = (Arc::clone(&self.fetcher), self.url(&ask.address));
        self.tasks.spawn(async move {
            let mut said = Vec::new();
            let answer = fetcher.get(&url, ask.is_payload, &mut said).await;
            (ask, said, answer)
        });
    }

    fn url(&self, address: &Address) -> Url {
        let mut url = self.crawl.start.clone();
        url.set_fragment(None);
        url.set_path(&address.path);
        url.set_query(address.query.as_deref());
        url
    }

    /// Records the purpose of an address, and queues a request for it unless there already is one.
    fn want(
        &mut self,
        address: Address,
        is_payload: bool,
        how: Use,
        by: Option<&Arc<Address>>,
    ) -> Result<(), CrawlError> {
        let ask = Ask { address, is_payload };
        if let Some(known) = self.found.wanted.get_mut(&ask) {
            let before = known.how;
            if how > Use::Guess || before == Use::Guess {
                let is_first = before == Use::Guess && how > Use::Guess;
                known.by = if is_first { by.cloned() } else { known.by.take().min(by.cloned()) };
            }
            known.how = before.max(how);
            if before == Use::Guess && how > Use::Guess {
                self.needed.push((ask, how));
            }
            return Ok(());
        }
        let is_allowed =
            !self.crawl.robots || ask.address.path == ROBOTS || self.robots.allows(&ask.address.to_string());
        if !is_allowed {
            if how > Use::Guess {
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
        let held = self.deadline.watch.hold(Resource::CrawlAddresses, known);
        held.map_err(CrawlError::share(Resource::CrawlAddresses))?;
        self.found.wanted.insert(ask.clone(), Wanted { how, by: by.cloned() });
        self.queued_pages += usize::from(!is_payload);
        self.queue.push_back(ask);
        Ok(())
    }

    fn count(&mut self, ask: &Ask, how: Use) -> Result<(), CrawlError> {
        let count = if how == Use::Guess { &mut self.guessed } else { &mut self.asked };
        *count += 1;
        // Each page may also have a payload.
        let most =
            if how == Use::Guess { self.crawl.most.saturating_mul(2).saturating_add(16) } else { self.crawl.most };
        if *count > most {
            return Err(CrawlError::TooMany { most: self.crawl.most, address: ask.address.to_string() });
        }
        Ok(())
    }

    /// Handles an address that was a guess and is now needed.
    fn need(&mut self, ask: &Ask, how: Use) -> Result<(), CrawlError> {
        self.count(ask, how)?;
        match self.found.met.get(ask) {
            Some(Met::Failed(trouble)) => {
                Err(CrawlError::Fetch { url: self.url(&ask.address), source: trouble.clone() })
            }
            Some(Met::Moved(_, Leads::Here { address, .. })) => {
                let to = address.clone();
                self.want(to, false, how, Some(&Arc::new(ask.address.clone())))
            }
            Some(Met::Body(body)) if !body.is_read => {
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
    fn take(&mut self, ask: Ask, answer: Result<Answer, Trouble>) -> Result<(), CrawlError> {
        let how = self.found.wanted.get(&ask).map_or(Use::Guess, |wanted| wanted.how);
        let answer = match answer {
            Ok(answer) => answer,
            Err(source) if how > Use::Guess || ask.address.path == ROBOTS || source.cause == Cause::NotSent => {
                return Err(CrawlError::Fetch { url: self.url(&ask.address), source });
            }
            Err(trouble) => {
                self.found.met.insert(ask, Met::Failed(trouble));
                return Ok(());
            }
        };
        let is_nowhere = ask.address.path == NOWHERE && answer.status == 404;
        match (answer.status, &answer.location) {
            (200..=299, _) => self.keep(&ask, answer, how),
            _ if is_nowhere => self.keep(&ask, answer, Use::Asset),
            (301 | 302 | 303 | 307 | 308, Some(location)) => {
                let to = leads(&self.crawl.start, &self.url(&ask.address), location);
                self.found.met.insert(ask.clone(), Met::Moved(answer.status, to.clone()));
                // Follow the redirect for the same purpose.
                match to {
                    Leads::Here { address, .. } if !ask.is_payload => {
                        self.want(address, false, how, Some(&Arc::new(ask.address)))
                    }
                    _ => Ok(()),
                }
            }
            (status, _) => {
                self.found.met.insert(ask, Met::Missing(status));
                Ok(())
            }
        }
    }

    fn keep(&mut self, ask: &Ask, answer: Answer, how: Use) -> Result<(), CrawlError> {
        let Answer { status, media_type, charset, body, .. } = answer;
        if self.found.spool.len + body.len() as u64 > LARGEST {
            return Err(CrawlError::TooLarge { limit: LARGEST });
        }
        if ask.address.path == ROBOTS && self.crawl.robots {
            self.robots = Robots::parse(&body);
        }
        let sort = Sort::of(&media_type, &ask.address.path, &body);
        let place = self.found.spool.put(&body).map_err(|source| self.write(source))?;
        let varies = matches!(sort, Sort::Style | Sort::Manifest);
        // Servers look for the 404 page under this name.
        let named = if ask.address.path == NOWHERE { Address::of_path("/404.html") } else { ask.address.clone() };
        let item = Item::new(named, sort == Sort::Page, &media_type, Digest::of(&body), varies);
        let charset =
            charset.filter(|name| !matches!(name.as_str(), "utf-8" | "utf8" | "us-ascii") && !body.is_ascii());
        let is_text = charset.is_none() && std::str::from_utf8(&body).is_ok();
        let is_guess = how == Use::Guess && sort == Sort::Page;
        let kept = Body { sort, place, item, is_text, charset, is_missing: status == 404, is_read: false };
        self.found.met.insert(ask.clone(), Met::Body(kept));
        // Some servers answer a request for a missing file with a page.
        if is_guess { Ok(()) } else { self.read(ask, &body) }
    }

    /// Queues the addresses that a body names.
    fn read(&mut self, ask: &Ask, body: &[u8]) -> Result<(), CrawlError> {
        let Some(Met::Body(kept)) = self.found.met.get_mut(ask) else { return Ok(()) };
        kept.is_read = true;
        let sort = kept.sort;
        if sort == Sort::Page && !ask.is_payload && self.pages.insert((kept.item.preferred.clone(), kept.item.digest)) {
            self.deadline.watch.page();
        }
        let base = if ask.address.path == NOWHERE { Address::of_path("/") } else { ask.address.clone() };
        let by = Arc::new(ask.address.clone());
        let (crawl, deadline) = (self.crawl, self.deadline);
        let mut resolver = Resolver::new(&crawl.start, self.url(&base));
        // Each address is handled as it is found: all addresses of a body may take much more memory than the body.
        let mut taken = Ok(());
        let text = String::from_utf8_lossy(body);
        names(sort, &ask.address.path, &text, body, &|| deadline.is_over(), &mut |how, text| {
            if taken.is_ok()
                && let Some(leads) = resolver.leads(how, text)
            {
                taken = self.told(&leads, how, Some(&by));
            }
        });
        taken?;
        if sort == Sort::Xml {
            self.listed(body, &by)?;
        }
        if sort == Sort::Page && !ask.is_payload {
            self.beside(&by, &text)?;
        }
        let to_come = self.queued_pages + self.tasks.len();
        self.deadline.watch.expect((self.pages.len() + to_come) as u64);
        Ok(())
    }

    /// Queues the addresses that a sitemap lists.
    fn listed(&mut self, body: &[u8], by: &Arc<Address>) -> Result<(), CrawlError> {
        let mut taken = Ok(());
        sitemap::addresses(body, &mut |address| {
            if taken.is_err() {
                return;
            }
            let leads = Leads::of(self.crawl, address);
            if let Leads::Elsewhere(url) = &leads {
                self.found.foreign.0 += 1;
                let least = self.found.foreign.1.take().map_or(url.clone(), |other| other.min(url.clone()));
                self.found.foreign.1 = Some(least);
            }
            taken = self.told(&leads, Use::Link, Some(by));
        });
        taken
    }

    /// Queues the data that Next.js clients request when they navigate to a page without loading it.
    fn beside(&mut self, address: &Arc<Address>, text: &str) -> Result<(), CrawlError> {
        if address.path == NOWHERE || address.query.is_some() {
            return Ok(());
        }
        if text.contains("self.__next_f") {
            let payload = Address { query: Some("_rsc".to_owned()), path: address.path.clone() };
            self.want(payload, true, Use::Guess, Some(address))?;
        }
        match script::data_of(&address.path, text) {
            Some(data) => self.want(Address::of_path(&data), false, Use::Guess, Some(address)),
            None => Ok(()),
        }
    }

    /// Queues the target of a link, if it is on this site.
    fn told(&mut self, leads: &Leads, how: Use, by: Option<&Arc<Address>>) -> Result<(), CrawlError> {
        self.deadline.check()?;
        let Leads::Here { address, .. } = leads else { return Ok(()) };
        if how < Use::Guess {
            return Ok(());
        }
        // With `paths`, downloads that a page links to belong to it; other pages do not.
        let is_download = media_type(address.path.as_bytes()).is_some() && !is_page(address.path.as_bytes());
        if self.only && how == Use::Link && by.is_some() && !is_download {
            return Ok(());
        }
        self.want(address.clone(), false, how, by)?;
        // Also fetch the original of an image that the Next.js optimizer resizes.
        if address.path.ends_with("/_next/image") {
            let query = address.query.as_deref().unwrap_or_default();
            let pairs = url::form_urlencoded::parse(query.as_bytes());
            for (_, picture) in pairs.filter(|(name, _)| name == "url") {
                if let Leads::Here { address, .. } = Leads::of(self.crawl, &picture) {
                    self.want(address, false, Use::Guess, by)?;
                }
            }
        }
        Ok(())
    }
}
