//! Downloading a bundle: whole, resumed, or not at all because it is known. Never holds the key.
//!
//! One [`Download`] lives as long as one bundle is wanted; each [`Download::attempt`] continues where the one before was
//! cut, also through another link to the same file, also after a restart. What has been received lies in the store's
//! `downloads/` with the validator it was received under, so that a resumed file is one file (RFC 9110 section 13.1.5).

// Other users may write here: what is reached by path may lead elsewhere by then. See `base/directory`.
#![deny(clippy::disallowed_methods)]

mod coding;
mod partial;
mod range;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, DATE, ETAG, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, LOCATION,
    RANGE,
};
use http::{HeaderMap, HeaderValue, StatusCode};

use docwharf_base::chain::words;
use docwharf_base::directory::Directory;
use docwharf_base::growth::Growth;
use docwharf_base::secret::{SafeUrl, Scrubber};
use docwharf_base::net::trouble::{Cause, Trouble};
use docwharf_base::net::{Network, seconds};

pub use coding::unwrap_second_layer;
use partial::Partial;
use range::ContentRange;

/// Progress worth so much makes attempts count anew.
const PROGRESS: u64 = 1024 * 1024;
/// After so many bytes of a bundle that does not say how many they will be, its room is looked at again.
const UNANNOUNCED: u64 = 4 * 1024 * 1024;
/// An error page is read this far.
const ERROR_PAGE: usize = 64 * 1024;

/// How far a download has come, for whoever shows it.
#[derive(Debug, Default)]
pub struct Progress {
    received: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// Bytes received.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Bytes to come in all; 0 if the server does not say.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }
}

/// A bundle that need not be downloaded again if the server still has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Its strong `ETag`, or its Last-Modified where there is none.
    pub validator: String,
    /// Its size in bytes as it was sent.
    pub size: u64,
}

/// How a download ended well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetched {
    /// The server has what is known already; this one.
    Unchanged(Known),
    /// The bundle is here.
    Whole(Arrived),
}

/// A bundle that has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrived {
    /// Where it lies; ours to remove.
    pub path: PathBuf,
    /// What it was received under, if the server names it.
    pub known: Option<Known>,
    /// Whether part of it was received by an earlier process, so that a power cut may have damaged it.
    pub resumed: bool,
    /// Whether the server named a content coding though none was asked for.
    pub encoded: bool,
}

/// A bundle that is about to arrive.
#[derive(Debug)]
pub struct Coming<'a> {
    /// How many bytes it has; how many have come, where nobody says.
    pub whole: u64,
    /// How many of them are still to come; 0 where nobody says.
    pub more: u64,
    /// Where it lies, as soon as there is anything.
    pub path: PathBuf,
    /// The directory in which it lies, and its name there.
    pub place: (&'a Directory, &'static str),
    /// How far it has come there.
    pub growth: &'a Arc<Growth>,
}

/// Sees to it that there is room for what comes.
pub type Room<'a> = &'a dyn Fn(&Coming<'_>) -> Result<(), Trouble>;

/// One bundle that is wanted.
#[derive(Debug)]
pub struct Download {
    http: reqwest::Client,
    network: Network,
    progress: Arc<Progress>,
    partial: Partial,
    source: String,
    /// The most bytes that are taken.
    limit: u64,
    known: Vec<Known>,
    /// Whether a 304 has left open which of them the server has: it is asked without a condition from then on.
    is_unclear: bool,
    /// The furthest that any attempt has come, and where attempts last counted anew: what is received again counts for
    /// nothing.
    furthest: u64,
    counted: u64,
}

/// What a good answer brings.
enum Answer {
    Unchanged(Known),
    Body(reqwest::Response),
}

impl Download {
    /// Wants the bundle of `source` in `dir`. What is `known` is not downloaded.
    pub fn new(
        http: reqwest::Client,
        network: Network,
        progress: Arc<Progress>,
        dir: &Directory,
        source: &str,
        limit: u64,
        known: Vec<Known>,
    ) -> Download {
        let partial = Partial::open(dir, source);
        let (furthest, counted) = (partial.len(), partial.len());
        let (source, is_unclear) = (source.to_owned(), false);
        Download { http, network, progress, partial, source, limit, known, is_unclear, furthest, counted }
    }

    /// Whether enough has arrived since the last time it was asked for attempts to count anew.
    pub fn has_moved(&mut self) -> bool {
        let moved = self.furthest >= self.counted + PROGRESS;
        if moved {
            self.counted = self.furthest;
        }
        moved
    }

    /// Forgets what has been received: the next attempt begins at the start.
    pub fn restart(&mut self) {
        self.partial.discard();
    }

    /// Bytes received so far.
    pub fn received(&self) -> u64 {
        self.partial.len()
    }

    /// Asks `url` once and takes what it gives, as far as there is `room` for it.
    pub async fn attempt(&mut self, url: &SafeUrl, room: Room<'_>) -> Result<Fetched, Trouble> {
        let mut scrubber = Scrubber::default();
        scrubber.hide_url(url);
        let began = std::time::Instant::now();
        let result = match self.ask(url, &mut scrubber).await {
            Ok(Answer::Unchanged(known)) => Ok(Fetched::Unchanged(known)),
            Ok(Answer::Body(response)) => self.take(response, url, room).await,
            Err(trouble) => Err(trouble),
        };
        let took = began.elapsed().as_millis();
        match &result {
            Ok(Fetched::Unchanged(_)) => tracing::debug!("GET {url}: unchanged, in {took} ms"),
            Ok(Fetched::Whole(_)) => tracing::debug!("GET {url}: whole, in {took} ms"),
            Err(trouble) => {
                let trouble = trouble.to_string();
                let trouble = docwharf_base::chain::OneLine(&trouble);
                tracing::debug!("GET {url}: {trouble}, {} bytes so far, in {took} ms", self.partial.len());
            }
        }
        result
    }

    /// Sends the request, follows redirects, and judges the head of the answer.
    async fn ask(&mut self, link: &SafeUrl, scrubber: &mut Scrubber) -> Result<Answer, Trouble> {
        let mut url = link.clone();
        let mut redirects = 0;
        while redirects <= self.network.redirects {
            let mut is_conditional = false;
            let mut request = self.http.get(url.expose().clone()).header(ACCEPT_ENCODING, "identity");
            if let Some(validator) = self.partial.resumable() {
                request = request
                    .header(RANGE, format!("bytes={}-", self.partial.len()))
                    .header(IF_RANGE, header(validator)?);
            } else if let Some(etags) = self.if_none_match() {
                is_conditional = true;
                request = request.header(IF_NONE_MATCH, header(&etags)?);
            }
            let idle = self.network.idle;
            let response = tokio::time::timeout(idle, request.send())
                .await
                .map_err(|_| Trouble::new(Cause::Lost, format!("no answer within {}", seconds(idle))))?
                .map_err(|error| Trouble::from_client(error, &url))?;
            if matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                url = follow(&url, response.headers())?;
                scrubber.hide_url(&url);
                redirects += 1;
                continue;
            }
            if response.status() == StatusCode::NOT_MODIFIED && is_conditional {
                if let Some(known) = self.same_as(response.headers()) {
                    return Ok(Answer::Unchanged(known.clone()));
                }
                self.is_unclear = true;
                continue;
            }
            return self.judge(response, scrubber).await;
        }
        Err(Trouble::new(Cause::Redirected, format!("more than {} redirects", self.network.redirects)))
    }

    /// Bundles that the server can be asked about: those with a strong entity tag.
    fn tagged(&self) -> impl Iterator<Item = &Known> {
        self.known.iter().filter(|known| known.validator.starts_with('"'))
    }

    fn if_none_match(&self) -> Option<String> {
        let etags: Vec<&str> = self.tagged().map(|known| known.validator.as_str()).collect();
        (!etags.is_empty() && !self.is_unclear).then(|| etags.join(", "))
    }

    /// The bundle that a 304 speaks of. A server has to repeat the entity tag (RFC 9110, 15.4.5), perhaps as a weak one;
    /// without it, the answer is clear only if there was one bundle to ask about.
    fn same_as(&self, headers: &HeaderMap) -> Option<&Known> {
        let Some(etag) = text(headers, ETAG) else {
            let mut tagged = self.tagged();
            return tagged.next().filter(|_| tagged.next().is_none());
        };
        let strong = etag.strip_prefix("W/").unwrap_or(&etag);
        self.tagged().find(|known| known.validator == strong)
    }

    async fn judge(&mut self, response: reqwest::Response, scrubber: &Scrubber) -> Result<Answer, Trouble> {
        let status = response.status().as_u16();
        let headers = response.headers();
        match status {
            304 => Err(Trouble::new(
                Cause::Unreadable,
                "the server answered 304 (Not Modified) to a request without a condition",
            )),
            206 => match ContentRange::of(headers) {
                Some(range)
                    if self.partial.resumable().is_some()
                        && range.continues(self.partial.len(), self.partial.total())
                        && self.same_file(headers) =>
                {
                    Ok(Answer::Body(response))
                }
                _ => {
                    self.partial.discard();
                    Err(Trouble::new(Cause::Lost, "the server sent another part than was asked for"))
                }
            },
            416 if self.partial.len() > 0 => {
                self.partial.discard();
                Err(Trouble::new(Cause::Lost, "the server has no such part any more"))
            }
            200..300 => {
                let length = length(headers);
                let validator = resumable(headers);
                let known = self.known.iter().find(|known| {
                    Some(&known.validator) == validator.as_ref() && length.is_none_or(|len| len == known.size)
                });
                if let Some(known) = known {
                    return Ok(Answer::Unchanged(known.clone()));
                }
                if length.is_some_and(|len| len > self.limit) {
                    return Err(self.too_large(length.unwrap_or(0)));
                }
                let encoded = headers.get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity");
                self.partial.begin(&self.source, validator, length, encoded).map_err(|error| broken(&error))?;
                Ok(Answer::Body(response))
            }
            _ => Err(error_page(response, scrubber).await),
        }
    }

    /// Whether a 206 speaks of the file that the part here is from.
    fn same_file(&self, headers: &HeaderMap) -> bool {
        match (validator(headers), self.partial.validator()) {
            (Some(theirs), Some(ours)) => theirs == ours,
            // If-Range has seen to it.
            _ => true,
        }
    }

    fn coming(&self, whole: u64, more: u64) -> Coming<'_> {
        Coming { whole, more, path: self.partial.path(), place: self.partial.place(), growth: self.partial.growth() }
    }

    fn too_large(&self, length: u64) -> Trouble {
        let what = format!("the bundle has {length} bytes, over the limit of {} (limits.archive)", self.limit);
        Trouble::new(Cause::TooLarge, what)
    }

    async fn take(
        &mut self,
        mut response: reqwest::Response,
        url: &SafeUrl,
        room: Room<'_>,
    ) -> Result<Fetched, Trouble> {
        if let Some(total) = self.partial.total()
            && let Err(trouble) = room(&self.coming(total, total.saturating_sub(self.partial.len())))
        {
            if self.partial.resumable().is_none() {
                self.partial.discard();
            }
            return Err(trouble);
        }
        let mut asked = self.partial.len();
        self.progress.total.store(self.partial.total().unwrap_or(0), Ordering::Relaxed);
        let mut file = self.partial.append().map_err(|error| broken(&error))?;
        let idle = self.network.idle;
        loop {
            self.progress.received.store(self.partial.len(), Ordering::Relaxed);
            let chunk = tokio::time::timeout(idle, response.chunk())
                .await
                .map_err(|_| Trouble::new(Cause::Lost, format!("nothing came for {}", seconds(idle))))?;
            let Some(chunk) = chunk.map_err(|error| Trouble::from_client(error, url))? else { break };
            if self.partial.len() + chunk.len() as u64 > self.limit {
                let length = self.partial.len() + chunk.len() as u64;
                drop(file);
                self.partial.discard();
                return Err(self.too_large(length));
            }
            file.write_all(&chunk).map_err(|error| broken(&error))?;
            self.partial.grow(chunk.len() as u64);
            if self.partial.total().is_none() && self.partial.len() - asked >= UNANNOUNCED {
                asked = self.partial.len();
                room(&self.coming(asked, 0))?;
            }
            self.furthest = self.furthest.max(self.partial.len());
        }
        if let Some(total) = self.partial.total()
            && total != self.partial.len()
        {
            if self.partial.len() > total {
                self.partial.discard();
            }
            return Err(Trouble::new(
                Cause::Lost,
                format!("the answer was cut at {} of {total} bytes", self.partial.len()),
            ));
        }
        Ok(Fetched::Whole(self.partial.finish()))
    }
}

/// The disk failed, not the upstream.
fn broken(error: &std::io::Error) -> Trouble {
    Trouble::new(Cause::Disk, format!("cannot keep what was received: {}", words(error)))
}

fn header(text: &str) -> Result<HeaderValue, Trouble> {
    HeaderValue::from_str(text)
        .map_err(|_| Trouble::new(Cause::Unreadable, "the server's validator cannot be sent back"))
}

/// Where a redirect leads: http or https, never from https to http. No key is ever sent along.
pub fn follow(from: &SafeUrl, headers: &HeaderMap) -> Result<SafeUrl, Trouble> {
    let refused = |what: String| Trouble::new(Cause::Redirected, what);
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    let location = location.ok_or_else(|| refused("a redirect that leads nowhere".to_owned()))?;
    let to = from.join(location).map_err(|why| refused(format!("a redirect whose target is unusable: {why}")))?;
    if from.is_encrypted() && !to.is_encrypted() {
        return Err(refused(format!("a redirect from https to plain {}", to.name())));
    }
    Ok(to)
}

async fn error_page(mut response: reqwest::Response, scrubber: &Scrubber) -> Trouble {
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            body.extend_from_slice(&chunk);
            if body.len() > ERROR_PAGE {
                break;
            }
        }
    };
    // An error page that does not end is cut; its status is what counts.
    let _ = tokio::time::timeout(std::time::Duration::from_secs(5), read).await;
    Trouble::from_answer(status, &headers, &body, scrubber)
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

fn text(headers: &HeaderMap, name: http::HeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.trim().to_owned())
}

/// What names the content: a strong `ETag`, else Last-Modified.
fn validator(headers: &HeaderMap) -> Option<String> {
    match text(headers, ETAG) {
        Some(etag) if etag.starts_with('"') => Some(etag),
        _ => text(headers, LAST_MODIFIED),
    }
}

/// What a part may be continued under: a strong `ETag`, or a Last-Modified that is strong because it is older than the
/// answer (RFC 9110 section 8.8.2.2).
fn resumable(headers: &HeaderMap) -> Option<String> {
    let validator = validator(headers)?;
    if validator.starts_with('"') {
        return Some(validator);
    }
    let date = |name| httpdate::parse_http_date(&text(headers, name)?).ok();
    let old = date(DATE)?.duration_since(date(LAST_MODIFIED)?).is_ok_and(|age| age.as_secs() >= 1);
    old.then_some(validator)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // folders that nobody else knows
mod tests {
    use std::cell::RefCell;
    use std::sync::LazyLock;

    use http::HeaderName;
    use http::header::CONTENT_RANGE;
    use tempfile::TempDir;

    use super::*;

    const NOON: &str = "Tue, 01 Jan 2030 12:00:00 GMT";
    const A_SECOND_LATER: &str = "Tue, 01 Jan 2030 12:00:01 GMT";

    /// Never asked.
    static HTTP: LazyLock<reqwest::Client> = LazyLock::new(|| docwharf_base::net::client::client(&Network::default()).unwrap());

    type Fields<'a> = &'a [(HeaderName, &'a str)];
    /// What is known, what is asked with, the answer's tag, and what it speaks of.
    type Asked<'a> = (&'a [&'a Known], Option<&'a str>, Option<&'a str>, Option<&'a Known>);
    /// What it is, an answer's fields and how many bytes come, the limit, the result, what is left, and for which room was
    /// asked.
    type Taken<'a> = (&'a str, Fields<'a>, usize, u64, Result<u64, Cause>, u64, &'a [(u64, u64)]);

    fn headers(fields: Fields<'_>) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_bytes(value.as_bytes()).unwrap())).collect()
    }

    fn response(status: u16, fields: Fields<'_>, body: &[u8]) -> reqwest::Response {
        let mut response = http::Response::new(body.to_vec());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        *response.headers_mut() = headers(fields);
        response.into()
    }

    fn wait<T>(what: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(what)
    }

    fn known(validator: &str, size: u64) -> Known {
        Known { validator: validator.to_owned(), size }
    }

    /// A download of which `have` of ten bytes are here, under the tag "v".
    fn download(limit: u64, have: usize, known: Vec<Known>) -> (TempDir, Download) {
        let dir = tempfile::tempdir().unwrap();
        let (http, network) = (HTTP.clone(), Network::default());
        let progress = Arc::new(Progress::default());
        let directory = Directory::open(dir.path()).unwrap();
        let mut download = Download::new(http, network, progress, &directory, "source", limit, known);
        if have > 0 {
            download.partial.begin("source", Some("\"v\"".to_owned()), Some(10), false).unwrap();
            download.partial.append().unwrap().write_all(&vec![b'x'; have]).unwrap();
            download.partial.grow(have as u64);
        }
        (dir, download)
    }

    fn judged(download: &mut Download, answer: reqwest::Response) -> Result<Option<Known>, Cause> {
        match wait(download.judge(answer, &Scrubber::default())) {
            Ok(Answer::Unchanged(known)) => Ok(Some(known)),
            Ok(Answer::Body(_)) => Ok(None),
            Err(trouble) => Err(trouble.cause),
        }
    }

    #[test]
    fn a_redirect_leads_to_http_and_never_out_of_https() {
        for (from, location, to) in [
            ("https://a/x/y", Some("https://b/z?s=1"), Some("https://b/z?s=1")),
            ("https://a/x/y", Some("/z"), Some("https://a/z")),
            ("https://a/x/y", Some("z"), Some("https://a/x/z")),
            ("https://a/x", Some("http://a/x"), None),
            ("https://a/x", Some("//b/x"), Some("https://b/x")),
            ("http://a/x", Some("https://b/"), Some("https://b/")),
            ("http://a/x", Some("http://b/"), Some("http://b/")),
            ("http://a/x", Some("ftp://b/"), None),
            ("http://a/x", Some("http://["), None),
            ("http://a/x", Some("http://ü/"), None),
            ("http://a/x", None, None),
        ] {
            let fields: Vec<_> = location.map(|location| (LOCATION, location)).into_iter().collect();
            let found = follow(&SafeUrl::parse(from).unwrap(), &headers(&fields));
            let found = found.map(|url| url.expose().to_string()).map_err(|trouble| trouble.cause);
            assert_eq!(found.as_deref(), to.ok_or(&Cause::Redirected), "{from} to {location:?}");
        }
    }

    #[test]
    fn a_part_is_continued_under_what_names_its_content_strongly() {
        let tag = Some("\"t\"");
        let cases: [(Fields<'_>, Option<&str>, Option<&str>); 11] = [
            (&[(ETAG, "\"t\"")], tag, tag),
            (&[(ETAG, " \"t\" "), (LAST_MODIFIED, NOON)], tag, tag),
            (&[(ETAG, "W/\"t\"")], None, None),
            (&[(ETAG, "t")], None, None),
            (&[(ETAG, "W/\"t\""), (LAST_MODIFIED, NOON), (DATE, A_SECOND_LATER)], Some(NOON), Some(NOON)),
            (&[(LAST_MODIFIED, NOON), (DATE, A_SECOND_LATER)], Some(NOON), Some(NOON)),
            (&[(LAST_MODIFIED, NOON), (DATE, NOON)], Some(NOON), None),
            (&[(LAST_MODIFIED, A_SECOND_LATER), (DATE, NOON)], Some(A_SECOND_LATER), None),
            (&[(LAST_MODIFIED, NOON)], Some(NOON), None),
            (&[(LAST_MODIFIED, "noon"), (DATE, NOON)], Some("noon"), None),
            (&[], None, None),
        ];
        for (fields, names, continues) in cases {
            let headers = headers(fields);
            assert_eq!(validator(&headers).as_deref(), names, "{fields:?}");
            assert_eq!(resumable(&headers).as_deref(), continues, "{fields:?}");
        }
        for (text, bytes) in [("10", Some(10)), (" 10 ", Some(10)), ("-1", None), ("x", None), ("", None)] {
            assert_eq!(length(&headers(&[(CONTENT_LENGTH, text)])), bytes, "{text}");
        }
        assert_eq!(length(&HeaderMap::new()), None);
    }

    #[test]
    fn a_server_is_asked_about_tagged_bundles_and_its_304_speaks_of_one_of_them() {
        let (a, b, dated) = (known("\"a\"", 1), known("\"b\"", 2), known(NOON, 3));
        let cases: [Asked<'_>; 9] = [
            (&[&a, &dated, &b], Some("\"a\", \"b\""), Some("\"b\""), Some(&b)),
            (&[&a, &dated, &b], Some("\"a\", \"b\""), Some("W/\"a\""), Some(&a)),
            (&[&a, &dated, &b], Some("\"a\", \"b\""), Some("\"c\""), None),
            (&[&a, &dated, &b], Some("\"a\", \"b\""), None, None),
            (&[&a, &dated], Some("\"a\""), None, Some(&a)),
            (&[&a, &dated], Some("\"a\""), Some("\"b\""), None),
            (&[&a, &dated], Some("\"a\""), Some(NOON), None),
            (&[&dated], None, None, None),
            (&[], None, None, None),
        ];
        for (all, asked, tag, same) in cases {
            let (_dir, mut download) = download(9, 0, all.iter().map(|known| (*known).clone()).collect());
            assert_eq!(download.if_none_match().as_deref(), asked);
            let fields: Vec<_> = tag.map(|tag| (ETAG, tag)).into_iter().collect();
            assert_eq!(download.same_as(&headers(&fields)), same, "{tag:?} of {all:?}");
            download.is_unclear = true;
            assert_eq!(download.if_none_match(), None);
        }
    }

    #[test]
    fn the_head_of_an_answer_says_whether_the_part_goes_on_begins_anew_or_stays() {
        let rest = (CONTENT_RANGE, "bytes 5-9/10");
        let lost = Err(Cause::Lost);
        // With five of ten bytes here: what comes of it, and how many are left.
        let cases: [(u16, Fields<'_>, Result<(), Cause>, u64); 19] = [
            (206, &[rest.clone(), (ETAG, "\"v\"")], Ok(()), 5),
            (206, std::slice::from_ref(&rest), Ok(()), 5),
            (206, &[rest.clone(), (ETAG, "\"w\"")], lost, 0),
            (206, &[rest.clone(), (LAST_MODIFIED, NOON)], lost, 0),
            (206, &[(CONTENT_RANGE, "bytes 4-9/10")], lost, 0),
            (206, &[(CONTENT_RANGE, "bytes 5-10/11")], lost, 0),
            (206, &[], lost, 0),
            (416, &[], lost, 0),
            (304, &[], Err(Cause::Unreadable), 5),
            (200, &[(ETAG, "\"v\""), (CONTENT_LENGTH, "10")], Ok(()), 0),
            (200, &[], Ok(()), 0),
            (203, &[], Ok(()), 0),
            (299, &[], Ok(()), 0),
            (200, &[(CONTENT_LENGTH, "20")], Ok(()), 0),
            (200, &[(CONTENT_LENGTH, "21")], Err(Cause::TooLarge), 5),
            (300, &[], Err(Cause::Status(300)), 5),
            (403, &[], Err(Cause::Status(403)), 5),
            (404, &[(CONTENT_LENGTH, "21")], Err(Cause::Status(404)), 5),
            (503, &[], Err(Cause::Status(503)), 5),
        ];
        for (status, fields, result, left) in cases {
            let (_dir, mut download) = download(20, 5, Vec::new());
            let found = judged(&mut download, response(status, fields, b""));
            assert_eq!((found, download.received()), (result.map(|()| None), left), "{status} {fields:?}");
        }
        // With nothing here.
        for (status, fields) in [(206, &[(CONTENT_RANGE, "bytes 0-9/10")][..]), (416, &[])] {
            let (_dir, mut download) = download(20, 0, Vec::new());
            let expected = if status == 206 { Cause::Lost } else { Cause::Status(416) };
            assert_eq!(judged(&mut download, response(status, fields, b"")), Err(expected));
        }
    }

    #[test]
    fn a_bundle_is_known_by_its_validator_and_its_length() {
        let (tagged, dated) = (known("\"a\"", 7), known(NOON, 8));
        let cases: [(Fields<'_>, Option<&Known>); 8] = [
            (&[(ETAG, "\"a\""), (CONTENT_LENGTH, "7")], Some(&tagged)),
            (&[(ETAG, "\"a\"")], Some(&tagged)),
            (&[(ETAG, "\"a\""), (CONTENT_LENGTH, "8")], None),
            (&[(ETAG, "W/\"a\""), (CONTENT_LENGTH, "7")], None),
            (&[(LAST_MODIFIED, NOON), (DATE, A_SECOND_LATER), (CONTENT_LENGTH, "8")], Some(&dated)),
            (&[(LAST_MODIFIED, NOON), (DATE, NOON), (CONTENT_LENGTH, "8")], None),
            (&[(ETAG, "\"b\""), (CONTENT_LENGTH, "7")], None),
            (&[(CONTENT_LENGTH, "7")], None),
        ];
        for (fields, same) in cases {
            let (_dir, mut download) = download(20, 0, vec![dated.clone(), tagged.clone()]);
            assert_eq!(judged(&mut download, response(200, fields, b"")), Ok(same.cloned()), "{fields:?}");
        }
        let (_dir, mut download) = download(6, 0, vec![tagged.clone()]);
        let answer = response(200, &[(ETAG, "\"a\""), (CONTENT_LENGTH, "7")], b"");
        assert_eq!(judged(&mut download, answer), Ok(Some(tagged)), "what is known is not taken, however large");
        for (coding, encoded) in [("gzip", true), ("identity", false)] {
            let (_dir, mut download) = self::download(20, 0, Vec::new());
            judged(&mut download, response(200, &[(CONTENT_ENCODING, coding)], b"")).unwrap();
            assert_eq!(download.partial.finish().encoded, encoded, "{coding}");
        }
    }

    /// What comes of a body, how many bytes are here then, and what room was asked for: the whole, and what is to come.
    type Took = (Result<u64, Cause>, u64, Vec<(u64, u64)>);

    fn took(download: &mut Download, answer: reqwest::Response, has_room: bool) -> Took {
        let asked = RefCell::new(Vec::new());
        let room = |coming: &Coming<'_>| {
            asked.borrow_mut().push((coming.whole, coming.more));
            if has_room { Ok(()) } else { Err(Trouble::new(Cause::Disk, "full")) }
        };
        let url = SafeUrl::parse("https://bucket.example/").unwrap();
        let result = wait(async {
            match download.judge(answer, &Scrubber::default()).await? {
                Answer::Body(response) => download.take(response, &url, &room).await,
                Answer::Unchanged(known) => Ok(Fetched::Unchanged(known)),
            }
        });
        let result = match result {
            Ok(Fetched::Whole(arrived)) => Ok(std::fs::metadata(arrived.path).unwrap().len()),
            Ok(Fetched::Unchanged(known)) => panic!("{known:?}"),
            Err(trouble) => Err(trouble.cause),
        };
        (result, download.received(), asked.into_inner())
    }

    #[test]
    fn a_body_is_taken_to_its_announced_end_and_not_beyond_the_limit() {
        let (ten, tag) = ((CONTENT_LENGTH, "10"), (ETAG, "\"w\""));
        let cases: [Taken<'_>; 9] = [
            ("whole", &[ten.clone(), tag.clone()], 10, 10, Ok(10), 10, &[(10, 10)]),
            ("over the limit", std::slice::from_ref(&ten), 10, 9, Err(Cause::TooLarge), 0, &[]),
            ("cut", &[ten.clone(), tag], 6, 20, Err(Cause::Lost), 6, &[(10, 10)]),
            ("cut before the begin", std::slice::from_ref(&ten), 0, 20, Err(Cause::Lost), 0, &[(10, 10)]),
            ("longer than it says", std::slice::from_ref(&ten), 11, 20, Err(Cause::Lost), 0, &[(10, 10)]),
            ("of no length", &[], 10, 11, Ok(10), 10, &[]),
            ("of no length, at the limit", &[], 10, 10, Ok(10), 10, &[]),
            ("of no length, over the limit", &[], 10, 9, Err(Cause::TooLarge), 0, &[]),
            ("of no length, empty", &[], 0, 9, Ok(0), 0, &[]),
        ];
        for (what, fields, bytes, limit, result, left, asked) in cases {
            let (_dir, mut download) = download(limit, 0, Vec::new());
            let found = took(&mut download, response(200, fields, &vec![b'x'; bytes]), true);
            assert_eq!(found, (result, left, asked.to_vec()), "{what}");
        }
        let (_dir, mut download) = download(10, 5, Vec::new());
        let rest = response(206, &[(CONTENT_RANGE, "bytes 5-9/10")], b"yyyyy");
        assert_eq!(took(&mut download, rest, true), (Ok(10), 10, vec![(10, 5)]));
        assert_eq!((download.progress.received(), download.progress.total()), (10, 10));
        assert_eq!(std::fs::read(download.partial.path()).unwrap(), b"xxxxxyyyyy");
        download.restart();
        assert_eq!((download.received(), download.partial.path().exists()), (0, false));
    }

    #[test]
    fn without_room_nothing_is_taken_and_a_part_that_can_be_continued_stays() {
        let disk = Err(Cause::Disk);
        let (_dir, mut download) = download(20, 5, Vec::new());
        let rest = || response(206, &[(CONTENT_RANGE, "bytes 5-9/10")], b"yyyyy");
        assert_eq!(took(&mut download, rest(), false), (disk, 5, vec![(10, 5)]));
        assert_eq!(took(&mut download, rest(), true), (Ok(10), 10, vec![(10, 5)]));
        let (dir, mut download) = self::download(20, 0, Vec::new());
        let whole = response(200, &[(CONTENT_LENGTH, "5"), (ETAG, "\"w\"")], b"yyyyy");
        assert_eq!(took(&mut download, whole, false), (disk, 0, vec![(5, 5)]));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        // Where nobody says how long it is, its room is looked at as it grows.
        let bytes = vec![b'x'; UNANNOUNCED as usize];
        for (body, has_room, result, asked) in [
            (&bytes[1..], false, Ok(UNANNOUNCED - 1), vec![]),
            (&bytes[..], true, Ok(UNANNOUNCED), vec![(UNANNOUNCED, 0)]),
            (&bytes[..], false, disk, vec![(UNANNOUNCED, 0)]),
        ] {
            let (_dir, mut download) = self::download(u64::MAX, 0, Vec::new());
            assert_eq!(took(&mut download, response(200, &[], body), has_room), (result, body.len() as u64, asked));
        }
    }

    #[test]
    fn attempts_count_anew_with_each_mebibyte_that_was_not_here_before() {
        let (_dir, mut download) = download(u64::MAX, 0, Vec::new());
        let bytes = vec![b'x'; PROGRESS as usize];
        for (body, has_moved) in [(&bytes[1..], false), (&bytes[..], true), (&bytes[..], false)] {
            took(&mut download, response(200, &[], body), true).0.unwrap();
            assert_eq!((download.has_moved(), download.has_moved()), (has_moved, false), "{}", body.len());
        }
        // What an earlier process has received is no progress.
        let (dir, mut earlier) = self::download(u64::MAX, 5, Vec::new());
        let directory = Directory::open(dir.path()).unwrap();
        earlier.known.push(known("\"a\"", 1));
        let Download { http, network, progress, known, .. } = earlier;
        let resumed = Download::new(http, network, progress, &directory, "source", 10, known);
        assert_eq!((resumed.received(), resumed.furthest, resumed.counted, resumed.known.len()), (5, 5, 5, 1));
        let other = resumed.http.clone();
        let other = Download::new(other, Network::default(), Arc::default(), &directory, "other", 10, Vec::new());
        assert_eq!(other.received(), 0);
    }
}
