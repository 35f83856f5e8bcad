//! Download of one bundle: whole, resumed, or skipped because the server's file is known. It never has the API key.
//!
//! A [`Download`] lives as long as one bundle is wanted. Each [`Download::attempt`] continues where the one before was
//! cut off, also through another link to the same file and after a restart. The received bytes are in the store's
//! `downloads/`, together with the validator of the response that they came with, so that all parts of a resumed file
//! belong to one representation (RFC 9110 section 13.1.5).

// Other users may write here, so a path may lead elsewhere by the time it is used. See `docwharf_base::directory`.
#![deny(clippy::disallowed_methods)]

mod content_range;
mod partial_bundle;
mod second_gzip_layer;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, DATE, ETAG, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, RANGE,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use docwharf_base::directory::Directory;
use docwharf_base::error_chain::error_message;
use docwharf_base::growing_file::WriteProgress;
use docwharf_base::net::redirects::{Hop, RedirectPolicy, RedirectScope, follow_redirects};
use docwharf_base::net::request_error::{RequestError, RequestErrorCause};
use docwharf_base::net::{NetworkSettings, format_seconds};
use docwharf_base::secret::{SafeUrl, Scrubber};

use content_range::ContentRange;
use partial_bundle::PartialBundle;
pub use second_gzip_layer::unwrap_second_layer;

/// Number of new bytes after which the attempts are counted from zero again.
const PROGRESS_BYTES: u64 = 1024 * 1024;
/// Number of bytes after which free space is checked again, for a bundle of unknown length.
const SPACE_CHECK_BYTES: u64 = 4 * 1024 * 1024;
/// Upper bound of the bytes that are read of an error response.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;

/// The progress of a download, for display.
#[derive(Debug, Default)]
pub struct DownloadProgress {
    received: AtomicU64,
    total: AtomicU64,
}

impl DownloadProgress {
    /// Number of bytes received.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Size of the bundle in bytes; 0 if the server does not send it.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }
}

/// A bundle that is already in the store, and need not be downloaded again if the server still has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleValidator {
    /// The validator: a strong `ETag`, or Last-Modified if there is none.
    pub validator: String,
    /// Size of the received file in bytes.
    pub size: u64,
}

/// The result of a successful download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DownloadResult {
    /// The server still has this known bundle.
    Unchanged(BundleValidator),
    /// The bundle has been received.
    Received(ReceivedBundle),
}

/// A received bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedBundle {
    /// Path of the file; the receiver must remove it.
    pub path: PathBuf,
    /// Validator and size of the file, if the server sent a validator.
    pub known: Option<BundleValidator>,
    /// Whether an earlier process received a part of the file, which a power cut may have damaged.
    pub resumed: bool,
    /// Whether the server named a content coding although none was requested.
    pub encoded: bool,
}

/// A bundle that is about to be received.
#[derive(Debug)]
pub struct ExpectedBundle<'a> {
    /// Size of the bundle in bytes; the number received so far if the size is unknown.
    pub size: u64,
    /// Number of bytes still to be received; 0 if the size is unknown.
    pub remaining: u64,
    /// Path of the file, which exists once the first byte has been received.
    pub path: PathBuf,
    /// Directory of the file, and its name there.
    pub place: (&'a Directory, &'static str),
    /// How many bytes of the file can be read.
    pub growth: &'a Arc<WriteProgress>,
}

/// Provides free space for a bundle that is about to be received, or fails.
pub type SpaceCallback<'a> = &'a dyn Fn(&ExpectedBundle<'_>) -> Result<(), RequestError>;

/// The download of one wanted bundle.
#[derive(Debug)]
pub struct Download {
    http: reqwest::Client,
    network: NetworkSettings,
    progress: Arc<DownloadProgress>,
    received_part: PartialBundle,
    source: String,
    /// Upper bound of the size in bytes.
    limit: u64,
    known: Vec<BundleValidator>,
    /// Whether a 304 did not tell which known bundle the server has. Requests are unconditional from then on.
    is_304_ambiguous: bool,
    /// The largest length of any attempt, and the length at which attempts were last counted from zero: bytes that are
    /// received again are no progress.
    furthest: u64,
    counted_from: u64,
}

/// The content of a successful response.
enum DownloadResponse {
    Unchanged(BundleValidator),
    Body(reqwest::Response),
}

impl Download {
    /// Prepares the download of the bundle of `source` into `dir`. A bundle in `known` is not downloaded.
    pub fn new(
        http: reqwest::Client,
        network: NetworkSettings,
        progress: Arc<DownloadProgress>,
        dir: &Directory,
        source: &str,
        limit: u64,
        known: Vec<BundleValidator>,
    ) -> Download {
        let received_part = PartialBundle::open(dir, source);
        let (furthest, counted_from) = (received_part.len(), received_part.len());
        let (source, is_304_ambiguous) = (source.to_owned(), false);
        Download {
            http,
            network,
            progress,
            received_part,
            source,
            limit,
            known,
            is_304_ambiguous,
            furthest,
            counted_from,
        }
    }

    /// Whether enough bytes have arrived since the last call that returned true to count attempts from zero.
    pub fn has_progressed(&mut self) -> bool {
        let moved = self.furthest >= self.counted_from + PROGRESS_BYTES;
        if moved {
            self.counted_from = self.furthest;
        }
        moved
    }

    /// Discards the received bytes: the next attempt begins at the start.
    pub fn restart(&mut self) {
        self.received_part.discard();
    }

    /// Number of bytes received so far.
    pub fn received(&self) -> u64 {
        self.received_part.len()
    }

    /// Requests `url` once and receives the body, as far as `room` provides free space for it.
    pub async fn attempt(&mut self, url: &SafeUrl, room: SpaceCallback<'_>) -> Result<DownloadResult, RequestError> {
        let mut scrubber = Scrubber::default();
        scrubber.hide_url(url);
        let began = std::time::Instant::now();
        let result = match self.send_request(url, &mut scrubber).await {
            Ok(DownloadResponse::Unchanged(known)) => Ok(DownloadResult::Unchanged(known)),
            Ok(DownloadResponse::Body(response)) => self.receive_body(response, url, room).await,
            Err(trouble) => Err(trouble),
        };
        let took = began.elapsed().as_millis();
        match &result {
            Ok(DownloadResult::Unchanged(_)) => tracing::debug!("GET {url}: unchanged, in {took} ms"),
            Ok(DownloadResult::Received(_)) => tracing::debug!("GET {url}: whole, in {took} ms"),
            Err(trouble) => {
                let trouble = trouble.to_string();
                let trouble = docwharf_base::error_chain::OneLine(&trouble);
                tracing::debug!("GET {url}: {trouble}, {} bytes so far, in {took} ms", self.received_part.len());
            }
        }
        result
    }

    /// Sends the request, follows redirects, and checks the status and header fields of the response.
    async fn send_request(
        &mut self,
        link: &SafeUrl,
        scrubber: &mut Scrubber,
    ) -> Result<DownloadResponse, RequestError> {
        let http = self.http.clone();
        let policy = RedirectPolicy { scope: RedirectScope::AnyOrigin, max_redirects: self.network.max_redirects };
        let followed = follow_redirects(&http, &Method::GET, link, &policy, async |hop| {
            scrubber.hide_url(hop.url);
            self.send_hop(&hop).await
        });
        let (response, _) = followed.await?;
        if response.status() == StatusCode::NOT_MODIFIED
            && self.condition().is_some()
            && let Some(known) = self.find_unmodified(response.headers())
        {
            return Ok(DownloadResponse::Unchanged(known.clone()));
        }
        self.check_response(response, scrubber).await
    }

    /// Sends one request: for the rest of the bundle, conditional, or for all of it.
    async fn send_hop(&mut self, hop: &Hop<'_>) -> Result<reqwest::Response, RequestError> {
        loop {
            let mut request = hop.request().header(ACCEPT_ENCODING, "identity");
            let condition = self.condition();
            if let Some(etags) = &condition {
                request = request.header(IF_NONE_MATCH, header_value(etags)?);
            } else if let Some(validator) = self.received_part.resume_validator() {
                request = request
                    .header(RANGE, format!("bytes={}-", self.received_part.len()))
                    .header(IF_RANGE, header_value(validator)?);
            }
            let idle = self.network.idle_timeout;
            let response = tokio::time::timeout(idle, request.send())
                .await
                .map_err(|_| {
                    RequestError::new(
                        RequestErrorCause::NoResponse,
                        format!("no answer within {}", format_seconds(idle)),
                    )
                })?
                .map_err(|error| RequestError::from_client(error, hop.url))?;
            let is_ambiguous = response.status() == StatusCode::NOT_MODIFIED
                && condition.is_some()
                && self.find_unmodified(response.headers()).is_none();
            if !is_ambiguous {
                return Ok(response);
            }
            self.is_304_ambiguous = true;
        }
    }

    /// Returns the If-None-Match of the next request; `None` if it asks for the rest of a bundle.
    fn condition(&self) -> Option<String> {
        if self.received_part.resume_validator().is_some() { None } else { self.if_none_match() }
    }

    /// Known bundles that a conditional request can name: those with a strong entity tag.
    fn tagged(&self) -> impl Iterator<Item = &BundleValidator> {
        self.known.iter().filter(|known| known.validator.starts_with('"'))
    }

    fn if_none_match(&self) -> Option<String> {
        let etags: Vec<&str> = self.tagged().map(|known| known.validator.as_str()).collect();
        (!etags.is_empty() && !self.is_304_ambiguous).then(|| etags.join(", "))
    }

    /// The known bundle that a 304 means. A server must repeat the entity tag (RFC 9110, 15.4.5), possibly as a weak
    /// one. Without the tag, the response is clear only if the request named one bundle.
    fn find_unmodified(&self, headers: &HeaderMap) -> Option<&BundleValidator> {
        let Some(etag) = text(headers, ETAG) else {
            let mut tagged = self.tagged();
            return tagged.next().filter(|_| tagged.next().is_none());
        };
        let strong = etag.strip_prefix("W/").unwrap_or(&etag);
        self.tagged().find(|known| known.validator == strong)
    }

    async fn check_response(
        &mut self,
        response: reqwest::Response,
        scrubber: &Scrubber,
    ) -> Result<DownloadResponse, RequestError> {
        let status = response.status().as_u16();
        let headers = response.headers();
        match status {
            304 => Err(RequestError::new(
                RequestErrorCause::Unreadable,
                "the server answered 304 (Not Modified) to a request without a condition",
            )),
            206 => match ContentRange::from_headers(headers) {
                Some(range)
                    if self.received_part.resume_validator().is_some()
                        && range.continues(self.received_part.len(), self.received_part.total())
                        && self.is_same_file(headers) =>
                {
                    Ok(DownloadResponse::Body(response))
                }
                _ => {
                    self.received_part.discard();
                    Err(RequestError::new(
                        RequestErrorCause::NoResponse,
                        "the server sent another range than requested",
                    ))
                }
            },
            416 if self.received_part.len() > 0 => {
                self.received_part.discard();
                Err(RequestError::new(RequestErrorCause::NoResponse, "the server no longer has the requested range"))
            }
            200..300 => {
                let length = content_length(headers);
                let validator = strong_validator(headers);
                let known = self.known.iter().find(|known| {
                    Some(&known.validator) == validator.as_ref() && length.is_none_or(|len| len == known.size)
                });
                if let Some(known) = known {
                    return Ok(DownloadResponse::Unchanged(known.clone()));
                }
                if length.is_some_and(|len| len > self.limit) {
                    return Err(self.too_large(length.unwrap_or(0)));
                }
                let encoded = headers.get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity");
                self.received_part
                    .begin(&self.source, validator, length, encoded)
                    .map_err(|error| disk_error(&error))?;
                Ok(DownloadResponse::Body(response))
            }
            _ => Err(read_error_response(response, scrubber).await),
        }
    }

    /// Whether a 206 belongs to the same file as the part received so far.
    fn is_same_file(&self, headers: &HeaderMap) -> bool {
        match (validator(headers), self.received_part.validator()) {
            (Some(theirs), Some(ours)) => theirs == ours,
            // Without a validator in the response, `If-Range` has ensured it.
            _ => true,
        }
    }

    fn expected_bundle(&self, whole: u64, more: u64) -> ExpectedBundle<'_> {
        ExpectedBundle {
            size: whole,
            remaining: more,
            path: self.received_part.path(),
            place: self.received_part.place(),
            growth: self.received_part.growth(),
        }
    }

    fn too_large(&self, length: u64) -> RequestError {
        let what = format!("the bundle has {length} bytes, over the limit of {} (limits.archive)", self.limit);
        RequestError::new(RequestErrorCause::TooLarge, what)
    }

    async fn receive_body(
        &mut self,
        mut response: reqwest::Response,
        url: &SafeUrl,
        room: SpaceCallback<'_>,
    ) -> Result<DownloadResult, RequestError> {
        if let Some(total) = self.received_part.total()
            && let Err(trouble) = room(&self.expected_bundle(total, total.saturating_sub(self.received_part.len())))
        {
            if self.received_part.resume_validator().is_none() {
                self.received_part.discard();
            }
            return Err(trouble);
        }
        let mut asked = self.received_part.len();
        self.progress.total.store(self.received_part.total().unwrap_or(0), Ordering::Relaxed);
        let mut file = self.received_part.append().map_err(|error| disk_error(&error))?;
        let idle = self.network.idle_timeout;
        loop {
            self.progress.received.store(self.received_part.len(), Ordering::Relaxed);
            let chunk = tokio::time::timeout(idle, response.chunk()).await.map_err(|_| {
                RequestError::new(
                    RequestErrorCause::NoResponse,
                    format!("no data received for {}", format_seconds(idle)),
                )
            })?;
            let Some(chunk) = chunk.map_err(|error| RequestError::from_client(error, url))? else { break };
            if self.received_part.len() + chunk.len() as u64 > self.limit {
                let length = self.received_part.len() + chunk.len() as u64;
                drop(file);
                self.received_part.discard();
                return Err(self.too_large(length));
            }
            file.write_all(&chunk).map_err(|error| disk_error(&error))?;
            self.received_part.add_received(chunk.len() as u64);
            if self.received_part.total().is_none() && self.received_part.len() - asked >= SPACE_CHECK_BYTES {
                asked = self.received_part.len();
                room(&self.expected_bundle(asked, 0))?;
            }
            self.furthest = self.furthest.max(self.received_part.len());
        }
        if let Some(total) = self.received_part.total()
            && total != self.received_part.len()
        {
            if self.received_part.len() > total {
                self.received_part.discard();
            }
            return Err(RequestError::new(
                RequestErrorCause::NoResponse,
                format!("the answer was cut at {} of {total} bytes", self.received_part.len()),
            ));
        }
        Ok(DownloadResult::Received(self.received_part.finish()))
    }
}

/// Reports a failure of the disk, not of the upstream.
fn disk_error(error: &std::io::Error) -> RequestError {
    RequestError::new(RequestErrorCause::Disk, format!("cannot store the received data: {}", error_message(error)))
}

fn header_value(text: &str) -> Result<HeaderValue, RequestError> {
    HeaderValue::from_str(text)
        .map_err(|_| RequestError::new(RequestErrorCause::Unreadable, "the server's validator cannot be sent back"))
}

async fn read_error_response(mut response: reqwest::Response, scrubber: &Scrubber) -> RequestError {
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_ERROR_BODY_BYTES {
                break;
            }
        }
    };
    // An error response that does not end is cut off; its status decides.
    let _ = tokio::time::timeout(std::time::Duration::from_secs(5), read).await;
    RequestError::from_answer(status, &headers, &body, scrubber)
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

fn text(headers: &HeaderMap, name: http::HeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.trim().to_owned())
}

/// Returns the validator of the content: a strong `ETag`, else Last-Modified.
fn validator(headers: &HeaderMap) -> Option<String> {
    match text(headers, ETAG) {
        Some(etag) if etag.starts_with('"') => Some(etag),
        _ => text(headers, LAST_MODIFIED),
    }
}

/// Returns the validator under which a part may be resumed: a strong `ETag`, or a Last-Modified that is strong because
/// it is older than the response (RFC 9110 section 8.8.2.2).
fn strong_validator(headers: &HeaderMap) -> Option<String> {
    let validator = validator(headers)?;
    if validator.starts_with('"') {
        return Some(validator);
    }
    let date = |name| httpdate::parse_http_date(&text(headers, name)?).ok();
    let old = date(DATE)?.duration_since(date(LAST_MODIFIED)?).is_ok_and(|age| age.as_secs() >= 1);
    old.then_some(validator)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // directories of these tests alone
mod tests {
    use std::cell::RefCell;
    use std::sync::LazyLock;

    use http::HeaderName;
    use http::header::CONTENT_RANGE;
    use tempfile::TempDir;

    use super::*;

    const NOON: &str = "Tue, 01 Jan 2030 12:00:00 GMT";
    const A_SECOND_LATER: &str = "Tue, 01 Jan 2030 12:00:01 GMT";

    /// Sends no request.
    static HTTP: LazyLock<reqwest::Client> =
        LazyLock::new(|| docwharf_base::net::client::build_client(&NetworkSettings::default()).unwrap());

    type Fields<'a> = &'a [(HeaderName, &'a str)];
    /// Known bundles, the If-None-Match of the request, the `ETag` of the 304, and the bundle that it means.
    type Asked<'a> = (&'a [&'a BundleValidator], Option<&'a str>, Option<&'a str>, Option<&'a BundleValidator>);
    /// Name of the case, header fields and body length of a response, the limit, the result, the bytes left, and the
    /// calls for free space.
    type Taken<'a> = (&'a str, Fields<'a>, usize, u64, Result<u64, RequestErrorCause>, u64, &'a [(u64, u64)]);

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

    fn known(validator: &str, size: u64) -> BundleValidator {
        BundleValidator { validator: validator.to_owned(), size }
    }

    /// Creates a download with `have` of ten bytes received, under the tag "v".
    fn download(limit: u64, have: usize, known: Vec<BundleValidator>) -> (TempDir, Download) {
        let dir = tempfile::tempdir().unwrap();
        let (http, network) = (HTTP.clone(), NetworkSettings::default());
        let progress = Arc::new(DownloadProgress::default());
        let directory = Directory::open(dir.path()).unwrap();
        let mut download = Download::new(http, network, progress, &directory, "source", limit, known);
        if have > 0 {
            download.received_part.begin("source", Some("\"v\"".to_owned()), Some(10), false).unwrap();
            download.received_part.append().unwrap().write_all(&vec![b'x'; have]).unwrap();
            download.received_part.add_received(have as u64);
        }
        (dir, download)
    }

    fn checked(
        download: &mut Download,
        answer: reqwest::Response,
    ) -> Result<Option<BundleValidator>, RequestErrorCause> {
        match wait(download.check_response(answer, &Scrubber::default())) {
            Ok(DownloadResponse::Unchanged(known)) => Ok(Some(known)),
            Ok(DownloadResponse::Body(_)) => Ok(None),
            Err(trouble) => Err(trouble.cause),
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
            assert_eq!(strong_validator(&headers).as_deref(), continues, "{fields:?}");
        }
        for (text, bytes) in [("10", Some(10)), (" 10 ", Some(10)), ("-1", None), ("x", None), ("", None)] {
            assert_eq!(content_length(&headers(&[(CONTENT_LENGTH, text)])), bytes, "{text}");
        }
        assert_eq!(content_length(&HeaderMap::new()), None);
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
            assert_eq!(download.find_unmodified(&headers(&fields)), same, "{tag:?} of {all:?}");
            download.is_304_ambiguous = true;
            assert_eq!(download.if_none_match(), None);
        }
    }

    #[test]
    fn the_head_of_an_answer_says_whether_the_part_goes_on_begins_anew_or_stays() {
        let rest = (CONTENT_RANGE, "bytes 5-9/10");
        let lost = Err(RequestErrorCause::NoResponse);
        // With five of ten bytes received: the result, and how many bytes are left.
        let cases: [(u16, Fields<'_>, Result<(), RequestErrorCause>, u64); 19] = [
            (206, &[rest.clone(), (ETAG, "\"v\"")], Ok(()), 5),
            (206, std::slice::from_ref(&rest), Ok(()), 5),
            (206, &[rest.clone(), (ETAG, "\"w\"")], lost, 0),
            (206, &[rest.clone(), (LAST_MODIFIED, NOON)], lost, 0),
            (206, &[(CONTENT_RANGE, "bytes 4-9/10")], lost, 0),
            (206, &[(CONTENT_RANGE, "bytes 5-10/11")], lost, 0),
            (206, &[], lost, 0),
            (416, &[], lost, 0),
            (304, &[], Err(RequestErrorCause::Unreadable), 5),
            (200, &[(ETAG, "\"v\""), (CONTENT_LENGTH, "10")], Ok(()), 0),
            (200, &[], Ok(()), 0),
            (203, &[], Ok(()), 0),
            (299, &[], Ok(()), 0),
            (200, &[(CONTENT_LENGTH, "20")], Ok(()), 0),
            (200, &[(CONTENT_LENGTH, "21")], Err(RequestErrorCause::TooLarge), 5),
            (300, &[], Err(RequestErrorCause::Status(300)), 5),
            (403, &[], Err(RequestErrorCause::Status(403)), 5),
            (404, &[(CONTENT_LENGTH, "21")], Err(RequestErrorCause::Status(404)), 5),
            (503, &[], Err(RequestErrorCause::Status(503)), 5),
        ];
        for (status, fields, result, left) in cases {
            let (_dir, mut download) = download(20, 5, Vec::new());
            let found = checked(&mut download, response(status, fields, b""));
            assert_eq!((found, download.received()), (result.map(|()| None), left), "{status} {fields:?}");
        }
        // With nothing received.
        for (status, fields) in [(206, &[(CONTENT_RANGE, "bytes 0-9/10")][..]), (416, &[])] {
            let (_dir, mut download) = download(20, 0, Vec::new());
            let expected = if status == 206 { RequestErrorCause::NoResponse } else { RequestErrorCause::Status(416) };
            assert_eq!(checked(&mut download, response(status, fields, b"")), Err(expected));
        }
    }

    #[test]
    fn a_bundle_is_known_by_its_validator_and_its_length() {
        let (tagged, dated) = (known("\"a\"", 7), known(NOON, 8));
        let cases: [(Fields<'_>, Option<&BundleValidator>); 8] = [
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
            assert_eq!(checked(&mut download, response(200, fields, b"")), Ok(same.cloned()), "{fields:?}");
        }
        let (_dir, mut download) = download(6, 0, vec![tagged.clone()]);
        let answer = response(200, &[(ETAG, "\"a\""), (CONTENT_LENGTH, "7")], b"");
        assert_eq!(checked(&mut download, answer), Ok(Some(tagged)), "what is known is not taken, however large");
        for (coding, encoded) in [("gzip", true), ("identity", false)] {
            let (_dir, mut download) = self::download(20, 0, Vec::new());
            checked(&mut download, response(200, &[(CONTENT_ENCODING, coding)], b"")).unwrap();
            assert_eq!(download.received_part.finish().encoded, encoded, "{coding}");
        }
    }

    /// The result, the bytes received, and the calls for free space: whole size and bytes to come.
    type Took = (Result<u64, RequestErrorCause>, u64, Vec<(u64, u64)>);

    fn took(download: &mut Download, answer: reqwest::Response, has_room: bool) -> Took {
        let asked = RefCell::new(Vec::new());
        let room = |coming: &ExpectedBundle<'_>| {
            asked.borrow_mut().push((coming.size, coming.remaining));
            if has_room { Ok(()) } else { Err(RequestError::new(RequestErrorCause::Disk, "full")) }
        };
        let url = SafeUrl::parse("https://bucket.example/").unwrap();
        let result = wait(async {
            match download.check_response(answer, &Scrubber::default()).await? {
                DownloadResponse::Body(response) => download.receive_body(response, &url, &room).await,
                DownloadResponse::Unchanged(known) => Ok(DownloadResult::Unchanged(known)),
            }
        });
        let result = match result {
            Ok(DownloadResult::Received(arrived)) => Ok(std::fs::metadata(arrived.path).unwrap().len()),
            Ok(DownloadResult::Unchanged(known)) => panic!("{known:?}"),
            Err(trouble) => Err(trouble.cause),
        };
        (result, download.received(), asked.into_inner())
    }

    #[test]
    fn a_body_is_taken_to_its_announced_end_and_not_beyond_the_limit() {
        let (ten, tag) = ((CONTENT_LENGTH, "10"), (ETAG, "\"w\""));
        let cases: [Taken<'_>; 9] = [
            ("whole", &[ten.clone(), tag.clone()], 10, 10, Ok(10), 10, &[(10, 10)]),
            ("over the limit", std::slice::from_ref(&ten), 10, 9, Err(RequestErrorCause::TooLarge), 0, &[]),
            ("cut", &[ten.clone(), tag], 6, 20, Err(RequestErrorCause::NoResponse), 6, &[(10, 10)]),
            (
                "cut before the begin",
                std::slice::from_ref(&ten),
                0,
                20,
                Err(RequestErrorCause::NoResponse),
                0,
                &[(10, 10)],
            ),
            (
                "longer than it says",
                std::slice::from_ref(&ten),
                11,
                20,
                Err(RequestErrorCause::NoResponse),
                0,
                &[(10, 10)],
            ),
            ("of no length", &[], 10, 11, Ok(10), 10, &[]),
            ("of no length, at the limit", &[], 10, 10, Ok(10), 10, &[]),
            ("of no length, over the limit", &[], 10, 9, Err(RequestErrorCause::TooLarge), 0, &[]),
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
        assert_eq!(std::fs::read(download.received_part.path()).unwrap(), b"xxxxxyyyyy");
        download.restart();
        assert_eq!((download.received(), download.received_part.path().exists()), (0, false));
    }

    #[test]
    fn without_room_nothing_is_taken_and_a_part_that_can_be_continued_stays() {
        let disk = Err(RequestErrorCause::Disk);
        let (_dir, mut download) = download(20, 5, Vec::new());
        let rest = || response(206, &[(CONTENT_RANGE, "bytes 5-9/10")], b"yyyyy");
        assert_eq!(took(&mut download, rest(), false), (disk, 5, vec![(10, 5)]));
        assert_eq!(took(&mut download, rest(), true), (Ok(10), 10, vec![(10, 5)]));
        let (dir, mut download) = self::download(20, 0, Vec::new());
        let whole = response(200, &[(CONTENT_LENGTH, "5"), (ETAG, "\"w\"")], b"yyyyy");
        assert_eq!(took(&mut download, whole, false), (disk, 0, vec![(5, 5)]));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        // Free space for a bundle of unknown length is checked as it grows.
        let bytes = vec![b'x'; SPACE_CHECK_BYTES as usize];
        for (body, has_room, result, asked) in [
            (&bytes[1..], false, Ok(SPACE_CHECK_BYTES - 1), vec![]),
            (&bytes[..], true, Ok(SPACE_CHECK_BYTES), vec![(SPACE_CHECK_BYTES, 0)]),
            (&bytes[..], false, disk, vec![(SPACE_CHECK_BYTES, 0)]),
        ] {
            let (_dir, mut download) = self::download(u64::MAX, 0, Vec::new());
            assert_eq!(took(&mut download, response(200, &[], body), has_room), (result, body.len() as u64, asked));
        }
    }

    #[test]
    fn attempts_count_anew_with_each_mebibyte_that_was_not_here_before() {
        let (_dir, mut download) = download(u64::MAX, 0, Vec::new());
        let bytes = vec![b'x'; PROGRESS_BYTES as usize];
        for (body, has_moved) in [(&bytes[1..], false), (&bytes[..], true), (&bytes[..], false)] {
            took(&mut download, response(200, &[], body), true).0.unwrap();
            assert_eq!((download.has_progressed(), download.has_progressed()), (has_moved, false), "{}", body.len());
        }
        // Bytes that an earlier process has received are no progress.
        let (dir, mut earlier) = self::download(u64::MAX, 5, Vec::new());
        let directory = Directory::open(dir.path()).unwrap();
        earlier.known.push(known("\"a\"", 1));
        let Download { http, network, progress, known, .. } = earlier;
        let resumed = Download::new(http, network, progress, &directory, "source", 10, known);
        assert_eq!((resumed.received(), resumed.furthest, resumed.counted_from, resumed.known.len()), (5, 5, 5, 1));
        let other = resumed.http.clone();
        let other =
            Download::new(other, NetworkSettings::default(), Arc::default(), &directory, "other", 10, Vec::new());
        assert_eq!(other.received(), 0);
    }
}
