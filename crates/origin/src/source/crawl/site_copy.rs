//! Writes the copy of a crawled site: file names, rewritten links, redirects.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::OnceLock;

use percent_encoding::percent_encode;

use docwharf_base::encode_sets;
use docwharf_base::model::site_path::{SitePath, is_page};
use docwharf_site::extract::FileTree;
use docwharf_site::lookup::{self, SiteFiles, Slashes};
use docwharf_site::rules::netlify_files::{self, REDIRECTS_FILE};
use docwharf_site::rules::{RuleDraft, RuleSet};

use super::address::{LinkTarget, SiteAddress};
use super::body_addresses::Resolver;
use super::body_format::{AddressPurpose, BodyFormat, manifest, style};
use super::deadline::CrawlDeadline;
use super::file_names::assign;
use super::results::{CrawlOutcome, CrawlRequest, CrawlResults, FetchedBody, NOT_FOUND_PATH};
use super::{Crawl, CrawlError, Crawled, html, script};

/// Maximum number of consecutive redirects that a link is resolved through.
const HOPS: usize = 20;
/// Maximum bytes of new links in one body. A short link can be replaced by a long one, so a body full of them could
/// grow a hundred times.
const MAX_NEW_LINK_BYTES: usize = 64 << 20;
/// Maximum number of warnings of one crawl.
const WARNINGS: usize = 200;

/// Writes the copy into an empty folder.
pub(super) fn write_copy(
    crawl: &Crawl,
    found: &CrawlResults,
    into: &Path,
    deadline: CrawlDeadline<'_>,
) -> Result<Crawled, CrawlError> {
    let failed = |source| CrawlError::Write { path: into.to_owned(), source };
    let copy = Copy::new(crawl, found);
    let mut crawled = Crawled::default();
    let mut warnings = copy.warnings();
    let mut tree = FileTree::new(File::open(into).map_err(failed)?, None);
    let mut put = |name: &[u8], content: &[u8]| -> io::Result<()> {
        let path = SitePath::parse(name, false).map_err(io::Error::other)?;
        let path = path.ok_or_else(|| io::Error::other("a file without a name"))?;
        tree.create(&path)?.write_all(content)?;
        crawled.bytes += content.len() as u64;
        *(if is_page(name) { &mut crawled.pages } else { &mut crawled.assets }) += 1;
        Ok(())
    };
    for (name, (ask, body)) in &copy.files {
        deadline.hold()?;
        let content = found.spool.get(body.place).map_err(failed)?;
        put(name, &copy.rewritten(ask, body, content, &mut warnings)).map_err(failed)?;
    }
    if !copy.files.keys().any(|name| is_page(name) && name != b"404.html") {
        return Err(copy.no_page());
    }
    let redirects = copy.redirects(&mut warnings);
    if !redirects.is_empty() {
        put(REDIRECTS_FILE.as_bytes(), redirects.as_bytes()).map_err(failed)?;
    }
    crawled.warnings = warnings.into_lines();
    for line in &crawled.warnings {
        deadline.watch.log_line(line.clone());
    }
    Ok(crawled)
}

/// Warnings for the operator: the first [`WARNINGS`] lines, and the number of further ones.
#[derive(Default)]
struct Warnings {
    lines: Vec<String>,
    more: u64,
}

impl Warnings {
    fn push(&mut self, line: String) {
        if self.lines.len() < WARNINGS {
            self.lines.push(line);
        } else {
            self.more += 1;
        }
    }

    fn into_lines(mut self) -> Vec<String> {
        if self.more > 0 {
            self.lines.push(format!("and {} more", self.more));
        }
        self.lines
    }
}

struct Copy<'a> {
    crawl: &'a Crawl,
    found: &'a CrawlResults,
    /// File name of each address that has a file.
    names: BTreeMap<&'a SiteAddress, Vec<u8>>,
    files: BTreeMap<Vec<u8>, (&'a CrawlRequest, &'a FetchedBody)>,
    site: Names,
}

/// File names of the copy, as the server looks them up.
struct Names(Vec<Vec<u8>>);

impl SiteFiles for Names {
    fn find(&self, path: &[u8]) -> Option<usize> {
        self.0.binary_search_by(|name| name[..].cmp(path)).ok()
    }

    fn rules(&self) -> &RuleSet {
        static NONE: OnceLock<RuleSet> = OnceLock::new();
        NONE.get_or_init(RuleSet::default)
    }

    fn markdown(&self, _page: usize) -> Option<usize> {
        None
    }
}

impl<'a> Copy<'a> {
    fn new(crawl: &'a Crawl, found: &'a CrawlResults) -> Copy<'a> {
        let is_kept = |ask: &CrawlRequest, body: &FetchedBody| {
            let is_guess = found.wanted.get(ask).is_none_or(|wanted| wanted.how == AddressPurpose::Guess);
            // A page in response to a guessed address means that the file does not exist. The 404 page must come with
            // status 404.
            let is_page = body.sort == BodyFormat::Page;
            if ask.address.path == NOT_FOUND_PATH { is_page && body.is_missing } else { !(is_guess && is_page) }
        };
        let bodies = found.met.iter().filter_map(|(ask, met)| match met {
            CrawlOutcome::FetchedBody(body) if is_kept(ask, body) => Some((ask, body)),
            _ => None,
        });
        let (payloads, bodies): (Vec<_>, Vec<_>) = bodies.partition(|(ask, _)| ask.is_payload);
        let items: Vec<_> = bodies.iter().map(|(_, body)| body.item.clone()).collect();
        let (mut names, mut files) = (BTreeMap::new(), BTreeMap::new());
        for ((ask, body), name) in bodies.into_iter().zip(assign(&items)) {
            names.insert(&ask.address, name.clone());
            files.entry(name).or_insert((ask, body));
        }
        let folders: BTreeSet<Vec<u8>> = files.keys().flat_map(|name| above(name)).map(<[u8]>::to_vec).collect();
        for (ask, body) in payloads.into_iter().filter(|(_, body)| body.sort == BodyFormat::Payload) {
            let page = SiteAddress { query: None, path: ask.address.path.clone() };
            let stem = names.get(&page).and_then(|name| name.strip_suffix(b".html"));
            let name = stem.map(|stem| [stem, b".txt"].concat()).filter(|name| !folders.contains(name));
            if let Some(name) = name {
                files.entry(name).or_insert((ask, body));
            }
        }
        let site = Names(files.keys().cloned().collect());
        Copy { crawl, found, names, files, site }
    }

    fn met(&self, address: &SiteAddress) -> Option<&'a CrawlOutcome> {
        self.found.met.get(&CrawlRequest { address: address.clone(), is_payload: false })
    }

    /// Returns the file that the server finds at this decoded path.
    fn served(&self, decoded: &[u8]) -> Option<&[u8]> {
        match lookup::resolve_address(&self.site, &decoded[1..], Slashes::Serve) {
            lookup::LookupResult::File(file) => self.site.0.get(file).map(|name| &name[..]),
            _ => None,
        }
    }

    /// Returns the address that a link to `address` must have in the copy; `None` if the link stays as it is.
    fn link(&self, address: &SiteAddress) -> Option<String> {
        let mut at = address.clone();
        for _ in 0..HOPS {
            match self.met(&at) {
                // A redirect rule cannot match a query, so the link points to the target of the redirect.
                Some(CrawlOutcome::Moved(_, LinkTarget::Here { address, .. })) if at.query.is_some() => {
                    at = address.clone();
                }
                Some(CrawlOutcome::Moved(_, LinkTarget::Elsewhere(url))) if at.query.is_some() => {
                    return Some(url.to_string());
                }
                _ => {
                    let renamed = self.renamed(&at);
                    let moved = (at != *address).then(|| at.to_string());
                    return renamed.or(moved);
                }
            }
        }
        None
    }

    /// Returns the address of the file of `address`, if the server finds another file or none at `address`.
    fn renamed(&self, address: &SiteAddress) -> Option<String> {
        let name = self.names.get(address)?;
        if self.served(&address.decoded()) == Some(name) {
            return None;
        }
        Some(format!("/{}", percent_encode(name, encode_sets::COPIED_LINK)))
    }

    /// Returns the replacement for a link in a body; `None` keeps the link. `is_anywhere` tells that the body is served
    /// at any address, where relative links do not work.
    fn instead(&self, leads: Option<LinkTarget>, is_anywhere: bool) -> Option<String> {
        let Some(LinkTarget::Here { address, fragment, is_absolute }) = leads else { return None };
        let link = self.link(&address).or_else(|| (is_absolute || is_anywhere).then(|| escaped(&address)))?;
        Some(fragment.map_or(link.clone(), |fragment| format!("{link}#{fragment}")))
    }

    /// Returns a body with its links rewritten, as it is written to its file.
    fn rewritten(&self, ask: &CrawlRequest, body: &FetchedBody, content: Vec<u8>, warnings: &mut Warnings) -> Vec<u8> {
        let is_page = body.sort == BodyFormat::Page;
        if !body.is_text {
            if is_page {
                let charset = body.charset.as_deref().map_or("not in UTF-8".to_owned(), |name| format!("in {name}"));
                warnings.push(format!("{} is {charset}: it is kept byte for byte, links and all", ask.address));
            }
            return content;
        }
        let is_anywhere = ask.address.path == NOT_FOUND_PATH;
        let base = if is_anywhere { "/" } else { &ask.address.path };
        let Ok(base) = self.crawl.start.join(base) else { return content };
        let mut resolver = Resolver::new(&self.crawl.start, base);
        let (mut room, mut is_full) = (MAX_NEW_LINK_BYTES, false);
        let mut meet = |how: AddressPurpose, text: &str| {
            let new = self.instead(resolver.leads(how, text), is_anywhere)?;
            let left = room.checked_sub(new.len());
            is_full |= left.is_none();
            room = left?;
            Some(new)
        };
        let text = String::from_utf8_lossy(&content);
        let new = match body.sort {
            BodyFormat::Page => html::rewrite_page(&content, &mut meet),
            BodyFormat::Style => style(&text, &mut meet).map(String::into_bytes),
            BodyFormat::Manifest => manifest(&text, &mut meet).map(String::into_bytes),
            BodyFormat::Script => script::without_optimizer(&text).map(String::into_bytes),
            BodyFormat::Payload | BodyFormat::Xml | BodyFormat::Other => None,
        };
        if is_full {
            warnings.push(format!("{} has more links than can be rewritten: some are as they were", ask.address));
        }
        if is_page && new.is_none() {
            warnings
                .push(format!("{} is nested too deep to be read to its end: its links are as they were", ask.address));
        }
        new.unwrap_or(content)
    }

    /// Returns the lines of `_redirects`, in the order of their addresses.
    fn redirects(&self, warnings: &mut Warnings) -> String {
        let mut lines = BTreeMap::new();
        for (ask, met) in self.found.met.iter().filter(|(ask, _)| !ask.is_payload && ask.address.query.is_none()) {
            let address = &ask.address;
            if address.path == NOT_FOUND_PATH || self.served(&address.decoded()).is_some() {
                continue;
            }
            let line = match met {
                CrawlOutcome::Moved(status, to) => {
                    self.target(address, to, warnings).map(|to| format!("{to} {status}"))
                }
                // Scripts may request it at its original address.
                CrawlOutcome::FetchedBody(_) => self.renamed(address).map(|name| format!("{name} 200")),
                _ => None,
            };
            if let Some(line) = line {
                // Rules ignore a trailing slash.
                lines.entry(bare(address).to_owned()).or_insert(line);
            }
        }
        if let LinkTarget::Here { address, .. } =
            super::address::resolve_link(&self.crawl.start, &self.crawl.start, self.crawl.start.as_str())
            && address.path != "/"
            && self.names.contains_key(&address)
            && self.served(b"/").is_none()
        {
            let to = self.link(&address).unwrap_or_else(|| escaped(&address));
            lines.entry("/".to_owned()).or_insert(format!("{to} 302"));
        }
        let lines: Vec<String> = lines.iter().map(|(from, line)| format!("{} {line}\n", escaped_path(from))).collect();
        let text = lines.concat();
        // The server's own parser checks the lines, so that each line that it rejects becomes a warning.
        let mut draft = RuleDraft::default();
        netlify_files::read_redirects(&text, REDIRECTS_FILE, &mut draft);
        for fault in &draft.faults {
            warnings.push(format!("a redirect cannot be kept: {fault}"));
        }
        text
    }

    /// Returns the target of a redirect in the copy; `None` if it has none, leads back to itself, or is part of a
    /// circle.
    fn target(&self, address: &SiteAddress, to: &LinkTarget, warnings: &mut Warnings) -> Option<String> {
        let LinkTarget::Here { address: next, fragment, .. } = to else {
            let LinkTarget::Elsewhere(url) = to else { return None };
            return Some(url.to_string());
        };
        if bare(next) == bare(address) && next.query.is_none() {
            return None;
        }
        let mut at = next;
        let mut seen = BTreeSet::from([address]);
        while let Some(CrawlOutcome::Moved(_, LinkTarget::Here { address, .. })) = self.met(at) {
            if !seen.insert(at) {
                warnings.push(format!("{} redirects in a circle: the redirect is left out", seen.first()?));
                return None;
            }
            at = address;
        }
        let link = self.link(next).unwrap_or_else(|| escaped(next));
        Some(fragment.as_ref().map_or(link.clone(), |fragment| format!("{link}#{fragment}")))
    }

    /// Returns the warnings about requested addresses.
    fn warnings(&self) -> Warnings {
        let mut warnings = Warnings::default();
        for (ask, met) in &self.found.met {
            let Some(wanted) = self.found.wanted.get(ask).filter(|wanted| wanted.how > AddressPurpose::Guess) else {
                continue;
            };
            let CrawlOutcome::Missing(status) = met else { continue };
            warnings.push(format!("{} answers {status}{}", ask.address, leads_there(wanted.by.as_deref())));
        }
        let forbidden = &self.found.forbidden;
        for (address, by) in &forbidden.first {
            let by = leads_there(by.as_deref());
            warnings.push(format!("robots.txt disallows {address}{by}"));
        }
        if forbidden.count > forbidden.first.len() as u64 {
            warnings.push(format!("robots.txt disallows the targets of {} links", forbidden.count));
        }
        if let (count @ 1.., Some(one)) = &self.found.foreign {
            warnings
                .push(format!("{count} addresses in sitemaps are of other origins and were skipped, {one} among them"));
        }
        if !self.files.contains_key(&b"404.html"[..]) {
            warnings.push(
                "the site has no page for what is missing: an unknown address does not answer 404 with one".to_owned(),
            );
        }
        warnings
    }

    fn no_page(&self) -> CrawlError {
        let (url, why) = (self.crawl.start.clone(), self.warnings());
        let why = why.lines.first().cloned().unwrap_or_else(|| "it is not HTML".to_owned());
        CrawlError::NoPage { url, why }
    }
}

/// Returns the path without trailing slashes.
fn bare(address: &SiteAddress) -> &str {
    Some(address.path.trim_end_matches('/')).filter(|path| !path.is_empty()).unwrap_or("/")
}

/// Returns an address escaped for pages, style sheets and rules.
fn escaped(address: &SiteAddress) -> String {
    let query = address.query.as_ref().map_or(String::new(), |query| format!("?{query}"));
    format!("{}{query}", escaped_path(&address.path))
}

/// Returns a path in which no character has a meaning for a rule or style sheet; existing percent-encoding stays.
fn escaped_path(path: &str) -> String {
    percent_encode(path.as_bytes(), encode_sets::ENCODED_COPIED_LINK).to_string()
}

fn leads_there(by: Option<&SiteAddress>) -> String {
    by.map_or_else(String::new, |by| format!("; {by} leads there"))
}

fn above(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    name.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| &name[..at])
}
