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
use super::body_format::{AddressPurpose, BodyFormat, rewrite_manifest, rewrite_style};
use super::deadline::CrawlDeadline;
use super::file_names::assign_names;
use super::results::{CrawlOutcome, CrawlRequest, CrawlResults, FetchedBody, NOT_FOUND_PATH, RequestPurpose};
use super::{CrawlError, CrawlSource, CrawlSummary, html, script};

/// Maximum number of consecutive redirects that a link is resolved through.
const MAX_REDIRECTS: usize = 20;
/// Maximum bytes of new links in one body. A short link can be replaced by a long one, so a body full of them could
/// grow a hundred times.
const MAX_NEW_LINK_BYTES: usize = 64 << 20;
/// Maximum number of warnings of one crawl.
const MAX_WARNINGS: usize = 200;

/// Writes the copy into an empty folder.
pub(super) fn write_copy(
    source: &CrawlSource,
    results: &CrawlResults,
    target_folder: &Path,
    deadline: CrawlDeadline<'_>,
) -> Result<CrawlSummary, CrawlError> {
    let write_error = |source| CrawlError::Write { path: target_folder.to_owned(), source };
    let copy = SiteCopy::new(source, results);
    let mut crawled = CrawlSummary::default();
    let mut warnings = copy.warnings();
    let mut tree = FileTree::new(File::open(target_folder).map_err(write_error)?, None);
    let mut write_file = |name: &[u8], content: &[u8]| -> io::Result<()> {
        let path = SitePath::parse(name, false).map_err(io::Error::other)?;
        let path = path.ok_or_else(|| io::Error::other("a file without a name"))?;
        tree.create(&path)?.write_all(content)?;
        crawled.bytes += content.len() as u64;
        *(if is_page(name) { &mut crawled.pages } else { &mut crawled.assets }) += 1;
        Ok(())
    };
    for (name, (request, body)) in &copy.files {
        deadline.check_and_count()?;
        let content = results.spool.read(body.range).map_err(write_error)?;
        write_file(name, &copy.rewrite_body(request, body, content, &mut warnings)).map_err(write_error)?;
    }
    if !copy.files.keys().any(|name| is_page(name) && name != b"404.html") {
        return Err(copy.no_page_error());
    }
    let redirect_lines = copy.redirect_lines(&mut warnings);
    if !redirect_lines.is_empty() {
        write_file(REDIRECTS_FILE.as_bytes(), redirect_lines.as_bytes()).map_err(write_error)?;
    }
    crawled.warnings = warnings.into_lines();
    for line in &crawled.warnings {
        deadline.context.log_line(line.clone());
    }
    Ok(crawled)
}

/// Warnings for the operator: the first [`MAX_WARNINGS`] lines, and the number of further ones.
#[derive(Default)]
struct Warnings {
    lines: Vec<String>,
    more: u64,
}

impl Warnings {
    fn push(&mut self, line: String) {
        if self.lines.len() < MAX_WARNINGS {
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

struct SiteCopy<'a> {
    source: &'a CrawlSource,
    results: &'a CrawlResults,
    /// File name of each address that has a file.
    names: BTreeMap<&'a SiteAddress, Vec<u8>>,
    files: BTreeMap<Vec<u8>, (&'a CrawlRequest, &'a FetchedBody)>,
    site: FileNames,
}

/// File names of the copy, as the server looks them up.
struct FileNames(Vec<Vec<u8>>);

impl SiteFiles for FileNames {
    fn find(&self, path: &[u8]) -> Option<usize> {
        self.0.binary_search_by(|name| name[..].cmp(path)).ok()
    }

    fn rules(&self) -> &RuleSet {
        static NONE: OnceLock<RuleSet> = OnceLock::new();
        NONE.get_or_init(RuleSet::default)
    }

    fn markdown_of(&self, _page: usize) -> Option<usize> {
        None
    }
}

impl<'a> SiteCopy<'a> {
    fn new(source: &'a CrawlSource, results: &'a CrawlResults) -> SiteCopy<'a> {
        let is_written = |request: &CrawlRequest, body: &FetchedBody| {
            let is_guess = results
                .purposes
                .get(request)
                .is_none_or(|request_purpose| request_purpose.purpose == AddressPurpose::Guess);
            // A page in response to a guessed address means that the file does not exist. The 404 page must have status
            // 404.
            let is_page = body.format == BodyFormat::Page;
            if request.address.path == NOT_FOUND_PATH { is_page && body.is_404 } else { !(is_guess && is_page) }
        };
        let bodies = results.outcomes.iter().filter_map(|(request, outcome)| match outcome {
            CrawlOutcome::FetchedBody(body) if is_written(request, body) => Some((request, body)),
            _ => None,
        });
        let (payloads, bodies): (Vec<_>, Vec<_>) = bodies.partition(|(request, _)| request.is_payload);
        let candidates: Vec<_> = bodies.iter().map(|(_, body)| body.naming.clone()).collect();
        let (mut names, mut files) = (BTreeMap::new(), BTreeMap::new());
        for ((request, body), name) in bodies.into_iter().zip(assign_names(&candidates)) {
            names.insert(&request.address, name.clone());
            files.entry(name).or_insert((request, body));
        }
        let folders: BTreeSet<Vec<u8>> =
            files.keys().flat_map(|name| parent_folders(name)).map(<[u8]>::to_vec).collect();
        for (request, body) in payloads.into_iter().filter(|(_, body)| body.format == BodyFormat::Payload) {
            let page = SiteAddress { query: None, path: request.address.path.clone() };
            let stem = names.get(&page).and_then(|name| name.strip_suffix(b".html"));
            let name = stem.map(|stem| [stem, b".txt"].concat()).filter(|name| !folders.contains(name));
            if let Some(name) = name {
                files.entry(name).or_insert((request, body));
            }
        }
        let site = FileNames(files.keys().cloned().collect());
        SiteCopy { source, results, names, files, site }
    }

    /// Returns the outcome of the request for an address.
    fn outcome(&self, address: &SiteAddress) -> Option<&'a CrawlOutcome> {
        self.results.outcomes.get(&CrawlRequest { address: address.clone(), is_payload: false })
    }

    /// Returns the file that the server finds at this decoded path.
    fn find_served_file(&self, decoded_path: &[u8]) -> Option<&[u8]> {
        match lookup::resolve_address(&self.site, &decoded_path[1..], Slashes::Serve) {
            lookup::LookupResult::File(file) => self.site.0.get(file).map(|name| &name[..]),
            _ => None,
        }
    }

    /// Returns the address that a link to `address` must have in the copy; `None` if the link stays as it is.
    fn copied_link(&self, address: &SiteAddress) -> Option<String> {
        let mut current = address.clone();
        for _ in 0..MAX_REDIRECTS {
            match self.outcome(&current) {
                // A redirect rule cannot match a query, so the link points to the target of the redirect.
                Some(CrawlOutcome::Redirected(_, LinkTarget::SameSite { address, .. })) if current.query.is_some() => {
                    current = address.clone();
                }
                Some(CrawlOutcome::Redirected(_, LinkTarget::OtherOrigin(url))) if current.query.is_some() => {
                    return Some(url.to_string());
                }
                _ => {
                    let renamed = self.renamed_address(&current);
                    let redirected = (current != *address).then(|| current.to_string());
                    return renamed.or(redirected);
                }
            }
        }
        None
    }

    /// Returns the address of the file of `address`, if the server finds another file or none at `address`.
    fn renamed_address(&self, address: &SiteAddress) -> Option<String> {
        let name = self.names.get(address)?;
        if self.find_served_file(&address.decoded_path()) == Some(name) {
            return None;
        }
        Some(format!("/{}", percent_encode(name, encode_sets::COPIED_LINK)))
    }

    /// Returns the replacement for a link in a body; `None` keeps the link. With `is_served_anywhere` the body is
    /// served at any address, where relative links do not work.
    fn replacement(&self, link_target: Option<LinkTarget>, is_served_anywhere: bool) -> Option<String> {
        let Some(LinkTarget::SameSite { address, fragment, is_absolute }) = link_target else { return None };
        let copied_link = self
            .copied_link(&address)
            .or_else(|| (is_absolute || is_served_anywhere).then(|| escape_address(&address)))?;
        Some(fragment.map_or(copied_link.clone(), |fragment| format!("{copied_link}#{fragment}")))
    }

    /// Returns a body with its links rewritten, as it is written to its file.
    fn rewrite_body(
        &self,
        request: &CrawlRequest,
        body: &FetchedBody,
        content: Vec<u8>,
        warnings: &mut Warnings,
    ) -> Vec<u8> {
        let is_page = body.format == BodyFormat::Page;
        if !body.is_text {
            if is_page {
                let charset = body.charset.as_deref().map_or("not in UTF-8".to_owned(), |name| format!("in {name}"));
                warnings.push(format!(
                    "{} is {charset}: it is copied byte for byte, and its links are not rewritten",
                    request.address
                ));
            }
            return content;
        }
        let is_served_anywhere = request.address.path == NOT_FOUND_PATH;
        let base = if is_served_anywhere { "/" } else { &request.address.path };
        let Ok(base) = self.source.start.join(base) else { return content };
        let mut resolver = Resolver::new(&self.source.start, base);
        let (mut remaining_bytes, mut is_full) = (MAX_NEW_LINK_BYTES, false);
        let mut visit = |purpose: AddressPurpose, text: &str| {
            let new = self.replacement(resolver.resolve(purpose, text), is_served_anywhere)?;
            let remaining_after = remaining_bytes.checked_sub(new.len());
            is_full |= remaining_after.is_none();
            remaining_bytes = remaining_after?;
            Some(new)
        };
        let text = String::from_utf8_lossy(&content);
        let new = match body.format {
            BodyFormat::Page => html::rewrite_page(&content, &mut visit),
            BodyFormat::Style => rewrite_style(&text, &mut visit).map(String::into_bytes),
            BodyFormat::Manifest => rewrite_manifest(&text, &mut visit).map(String::into_bytes),
            BodyFormat::Script => script::disable_image_optimizer(&text).map(String::into_bytes),
            BodyFormat::Payload | BodyFormat::Xml | BodyFormat::Other => None,
        };
        if is_full {
            warnings.push(format!("{} has more links than can be rewritten: some stay unchanged", request.address));
        }
        if is_page && new.is_none() {
            warnings.push(format!(
                "{} is nested too deep to be parsed to its end: its links stay unchanged",
                request.address
            ));
        }
        new.unwrap_or(content)
    }

    /// Returns the lines of `_redirects`, in the order of their addresses.
    fn redirect_lines(&self, warnings: &mut Warnings) -> String {
        let mut lines = BTreeMap::new();
        for (request, outcome) in
            self.results.outcomes.iter().filter(|(request, _)| !request.is_payload && request.address.query.is_none())
        {
            let address = &request.address;
            if address.path == NOT_FOUND_PATH || self.find_served_file(&address.decoded_path()).is_some() {
                continue;
            }
            let line = match outcome {
                CrawlOutcome::Redirected(status, to) => {
                    self.redirect_target(address, to, warnings).map(|to| format!("{to} {status}"))
                }
                // Scripts may request it at its original address.
                CrawlOutcome::FetchedBody(_) => self.renamed_address(address).map(|name| format!("{name} 200")),
                _ => None,
            };
            if let Some(line) = line {
                // Rules ignore a trailing slash.
                lines.entry(without_trailing_slash(address).to_owned()).or_insert(line);
            }
        }
        if let LinkTarget::SameSite { address, .. } =
            super::address::resolve_link(&self.source.start, &self.source.start, self.source.start.as_str())
            && address.path != "/"
            && self.names.contains_key(&address)
            && self.find_served_file(b"/").is_none()
        {
            let to = self.copied_link(&address).unwrap_or_else(|| escape_address(&address));
            lines.entry("/".to_owned()).or_insert(format!("{to} 302"));
        }
        let lines: Vec<String> = lines.iter().map(|(from, line)| format!("{} {line}\n", escape_path(from))).collect();
        let text = lines.concat();
        // The server's own parser checks the lines, so that each line that it rejects becomes a warning.
        let mut draft = RuleDraft::default();
        netlify_files::read_redirects(&text, REDIRECTS_FILE, &mut draft);
        for fault in &draft.faults {
            warnings.push(format!("a redirect cannot be copied: {fault}"));
        }
        text
    }

    /// Returns the target of a redirect in the copy; `None` if it has none, is the same address, or is part of a loop.
    fn redirect_target(&self, address: &SiteAddress, to: &LinkTarget, warnings: &mut Warnings) -> Option<String> {
        let LinkTarget::SameSite { address: next, fragment, .. } = to else {
            let LinkTarget::OtherOrigin(url) = to else { return None };
            return Some(url.to_string());
        };
        if without_trailing_slash(next) == without_trailing_slash(address) && next.query.is_none() {
            return None;
        }
        let mut current = next;
        let mut seen = BTreeSet::from([address]);
        while let Some(CrawlOutcome::Redirected(_, LinkTarget::SameSite { address, .. })) = self.outcome(current) {
            if !seen.insert(current) {
                warnings.push(format!("{} is part of a redirect loop: the redirect is left out", seen.first()?));
                return None;
            }
            current = address;
        }
        let copied_link = self.copied_link(next).unwrap_or_else(|| escape_address(next));
        Some(fragment.as_ref().map_or(copied_link.clone(), |fragment| format!("{copied_link}#{fragment}")))
    }

    /// Returns the warnings about requested addresses.
    fn warnings(&self) -> Warnings {
        let mut warnings = Warnings::default();
        for (request, outcome) in &self.results.outcomes {
            let required = |purpose: &&RequestPurpose| purpose.purpose > AddressPurpose::Guess;
            let Some(request_purpose) = self.results.purposes.get(request).filter(required) else {
                continue;
            };
            let CrawlOutcome::Missing(status) = outcome else { continue };
            warnings.push(format!(
                "{} returns status {status}{}",
                request.address,
                describe_linking_page(request_purpose.found_on.as_deref())
            ));
        }
        let disallowed = &self.results.disallowed;
        for (address, found_on) in &disallowed.first {
            let linking_page = describe_linking_page(found_on.as_deref());
            warnings.push(format!("robots.txt disallows {address}{linking_page}"));
        }
        if disallowed.count > disallowed.first.len() as u64 {
            warnings.push(format!("robots.txt disallows the targets of {} links", disallowed.count));
        }
        if let (count @ 1.., Some(first_url)) = &self.results.foreign_sitemap_links {
            warnings.push(format!(
                "{count} addresses in sitemaps are of other origins and were skipped, such as {first_url}"
            ));
        }
        if !self.files.contains_key(&b"404.html"[..]) {
            warnings.push(
                "the site has no 404 page: a request for an unknown address does not return a page with status 404"
                    .to_owned(),
            );
        }
        warnings
    }

    fn no_page_error(&self) -> CrawlError {
        let (url, warnings) = (self.source.start.clone(), self.warnings());
        let reason = warnings.lines.first().cloned().unwrap_or_else(|| "it is not HTML".to_owned());
        CrawlError::NoPage { url, reason }
    }
}

/// Returns the path without trailing slashes.
fn without_trailing_slash(address: &SiteAddress) -> &str {
    Some(address.path.trim_end_matches('/')).filter(|path| !path.is_empty()).unwrap_or("/")
}

/// Returns an address escaped for pages, style sheets and rules.
fn escape_address(address: &SiteAddress) -> String {
    let query = address.query.as_ref().map_or(String::new(), |query| format!("?{query}"));
    format!("{}{query}", escape_path(&address.path))
}

/// Returns a path in which no character has a meaning for a rule or style sheet; existing percent-encoding stays.
fn escape_path(path: &str) -> String {
    percent_encode(path.as_bytes(), encode_sets::ENCODED_COPIED_LINK).to_string()
}

fn describe_linking_page(found_on: Option<&SiteAddress>) -> String {
    found_on.map_or_else(String::new, |found_on| format!("; {found_on} links to it"))
}

fn parent_folders(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    name.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(position, _)| &name[..position])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_beyond_the_limit_are_counted() {
        let lines = |count: usize| {
            let mut warnings = Warnings::default();
            (0..count).for_each(|n| warnings.push(n.to_string()));
            warnings.into_lines()
        };
        assert_eq!(lines(MAX_WARNINGS).last().map(String::as_str), Some("199"));
        let more = lines(MAX_WARNINGS + 3);
        assert_eq!((more.len(), more[MAX_WARNINGS].as_str()), (MAX_WARNINGS + 1, "and 3 more"));
    }
}
