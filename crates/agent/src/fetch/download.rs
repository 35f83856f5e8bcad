//! The attempts of a download: request, redirects, checks of the response, and receiving the body.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, ETAG, IF_NONE_MATCH, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use docwharf_base::directory::Directory;
use docwharf_base::error_chain::{OneLine, error_message};
use docwharf_base::net::client::HttpClient;
use docwharf_base::net::redirects::{RedirectHop, RedirectPolicy, RedirectScope, follow_redirects};
use docwharf_base::net::request_error::{RequestError, RequestErrorCause};
use docwharf_base::net::{NetworkSettings, format_seconds};
use docwharf_base::secret::{SafeUrl, SecretRedactor};

use super::bundle::{BeforeReceiving, BundleValidator, DownloadResult, ExpectedBundle};
use super::content_range::ContentRange;
use super::partial_bundle::PartialBundle;
use super::response_headers::{content_length, strong_validator, text, validator};

/// After this many new bytes, the number of attempts is reset.
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

/// The download of one bundle.
#[derive(Debug)]
pub struct Download {
    http: HttpClient,
    network: NetworkSettings,
    progress: Arc<DownloadProgress>,
    received_part: PartialBundle,
    source: String,
    /// Upper bound of the size in bytes.
    limit: u64,
    known: Vec<BundleValidator>,
    /// Whether a 304 did not identify the known bundle. Requests are unconditional from then on.
    is_304_ambiguous: bool,
    /// The largest length that any attempt has reached: bytes that are received again are no progress.
    max_len: u64,
    /// The value of `max_len` when the number of attempts was last reset.
    len_at_reset: u64,
}

/// The content of a successful response.
enum DownloadResponse {
    Unchanged(BundleValidator),
    Body(reqwest::Response),
}

impl Download {
    /// Prepares the download of the bundle of `source` into `dir`. A bundle in `known` is not downloaded.
    pub fn new(
        http: HttpClient,
        network: NetworkSettings,
        progress: Arc<DownloadProgress>,
        dir: &Directory,
        source: &str,
        limit: u64,
        known: Vec<BundleValidator>,
    ) -> Download {
        let received_part = PartialBundle::open(dir, source);
        let (max_len, len_at_reset) = (received_part.len(), received_part.len());
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
            max_len,
            len_at_reset,
        }
    }

    /// Returns whether 1 MiB of new bytes has arrived since the last call that returned true. The caller then resets
    /// the number of attempts.
    pub fn has_received_another_mebibyte(&mut self) -> bool {
        let has_progressed = self.max_len >= self.len_at_reset + PROGRESS_BYTES;
        if has_progressed {
            self.len_at_reset = self.max_len;
        }
        has_progressed
    }

    /// Discards the received bytes: the next attempt begins at the first byte.
    pub fn restart(&mut self) {
        self.received_part.discard();
    }

    /// Number of bytes received so far.
    pub fn received(&self) -> u64 {
        self.received_part.len()
    }

    /// Requests `url` and receives the body, as far as `before_receiving` allows it.
    pub async fn attempt(
        &mut self,
        url: &SafeUrl,
        before_receiving: BeforeReceiving<'_>,
    ) -> Result<DownloadResult, RequestError> {
        let mut redactor = SecretRedactor::default();
        redactor.hide_url(url);
        let start = std::time::Instant::now();
        let result = match self.send_request(url, &mut redactor).await {
            Ok(DownloadResponse::Unchanged(known)) => Ok(DownloadResult::Unchanged(known)),
            Ok(DownloadResponse::Body(response)) => self.receive_body(response, url, before_receiving).await,
            Err(request_error) => Err(request_error),
        };
        let duration_ms = start.elapsed().as_millis();
        match &result {
            Ok(DownloadResult::Unchanged(_)) => tracing::debug!("GET {url}: unchanged, in {duration_ms} ms"),
            Ok(DownloadResult::Received(_)) => tracing::debug!("GET {url}: complete, in {duration_ms} ms"),
            Err(request_error) => {
                let request_error = request_error.to_string();
                let request_error = OneLine(&request_error);
                tracing::debug!(
                    "GET {url}: {request_error}, {} bytes so far, in {duration_ms} ms",
                    self.received_part.len()
                );
            }
        }
        result
    }

    /// Sends the request, follows redirects, and checks the status and header fields of the response.
    async fn send_request(
        &mut self,
        link: &SafeUrl,
        redactor: &mut SecretRedactor,
    ) -> Result<DownloadResponse, RequestError> {
        let http = self.http.clone();
        let policy = RedirectPolicy { scope: RedirectScope::AnyOrigin, max_redirects: self.network.max_redirects };
        let followed = follow_redirects(&http, &Method::GET, link, &policy, async |hop| {
            redactor.hide_url(hop.url);
            self.send_hop(&hop).await
        });
        let (response, _) = followed.await?;
        if response.status() == StatusCode::NOT_MODIFIED
            && self.condition().is_some()
            && let Some(known) = self.find_unmodified(response.headers())
        {
            return Ok(DownloadResponse::Unchanged(known.clone()));
        }
        self.check_response(response, redactor).await
    }

    /// Sends one request: for the rest of the bundle, conditional, or for all of it. After an ambiguous 304 it sends a
    /// second one without a condition.
    async fn send_hop(&mut self, hop: &RedirectHop<'_>) -> Result<reqwest::Response, RequestError> {
        loop {
            let mut request = hop.request()?.header(ACCEPT_ENCODING, "identity");
            let condition = self.condition();
            if let Some(etags) = &condition {
                request = request.header(IF_NONE_MATCH, header_value(etags)?);
            } else if let Some(validator) = self.received_part.resume_validator() {
                request = request
                    .header(RANGE, format!("bytes={}-", self.received_part.len()))
                    .header(IF_RANGE, header_value(validator)?);
            }
            let idle_timeout = self.network.idle_timeout;
            let response = tokio::time::timeout(idle_timeout, request.send())
                .await
                .map_err(|_| {
                    RequestError::new(
                        RequestErrorCause::NoUsableResponse,
                        format!("no response within {}", format_seconds(idle_timeout)),
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

    /// Returns the If-None-Match of the next request; `None` if that requests the rest of a bundle.
    fn condition(&self) -> Option<String> {
        if self.received_part.resume_validator().is_some() { None } else { self.if_none_match() }
    }

    /// Known bundles that a conditional request can name: those with a strong entity tag.
    fn known_with_etag(&self) -> impl Iterator<Item = &BundleValidator> {
        self.known.iter().filter(|known| known.validator.starts_with('"'))
    }

    fn if_none_match(&self) -> Option<String> {
        let etags: Vec<&str> = self.known_with_etag().map(|known| known.validator.as_str()).collect();
        (!etags.is_empty() && !self.is_304_ambiguous).then(|| etags.join(", "))
    }

    /// Finds the known bundle to which a 304 refers. A server must repeat the entity tag (RFC 9110, 15.4.5), possibly
    /// as a weak one. Without the tag, the response is unambiguous only if the request named one bundle.
    fn find_unmodified(&self, headers: &HeaderMap) -> Option<&BundleValidator> {
        let Some(etag) = text(headers, ETAG) else {
            let mut known = self.known_with_etag();
            return known.next().filter(|_| known.next().is_none());
        };
        let strong = etag.strip_prefix("W/").unwrap_or(&etag);
        self.known_with_etag().find(|known| known.validator == strong)
    }

    async fn check_response(
        &mut self,
        response: reqwest::Response,
        redactor: &SecretRedactor,
    ) -> Result<DownloadResponse, RequestError> {
        let status = response.status().as_u16();
        let headers = response.headers();
        match status {
            304 => Err(RequestError::new(
                RequestErrorCause::Unreadable,
                "the server responded with 304 (Not Modified) to a request without a condition",
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
                        RequestErrorCause::NoUsableResponse,
                        "the server's 206 response does not continue the received part",
                    ))
                }
            },
            416 if self.received_part.len() > 0 => {
                self.received_part.discard();
                Err(RequestError::new(
                    RequestErrorCause::NoUsableResponse,
                    "the server no longer has the requested range",
                ))
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
            _ => Err(read_error_response(response, redactor).await),
        }
    }

    /// Whether a 206 belongs to the same file as the part received so far.
    fn is_same_file(&self, headers: &HeaderMap) -> bool {
        match (validator(headers), self.received_part.validator()) {
            (Some(response), Some(part)) => response == part,
            // Without a validator in the response, `If-Range` has ensured it.
            _ => true,
        }
    }

    fn expected_bundle(&self, size: u64, remaining: u64) -> ExpectedBundle<'_> {
        ExpectedBundle {
            size,
            remaining,
            path: self.received_part.path(),
            directory_entry: self.received_part.directory_entry(),
            write_progress: self.received_part.write_progress(),
        }
    }

    fn too_large(&self, length: u64) -> RequestError {
        let message = format!("the bundle has {length} bytes, over the limit of {} (limits.archive)", self.limit);
        RequestError::new(RequestErrorCause::TooLarge, message)
    }

    async fn receive_body(
        &mut self,
        mut response: reqwest::Response,
        url: &SafeUrl,
        before_receiving: BeforeReceiving<'_>,
    ) -> Result<DownloadResult, RequestError> {
        if let Some(total) = self.received_part.total()
            && let Err(request_error) =
                before_receiving(&self.expected_bundle(total, total.saturating_sub(self.received_part.len())))
        {
            if self.received_part.resume_validator().is_none() {
                self.received_part.discard();
            }
            return Err(request_error);
        }
        let mut checked_len = self.received_part.len();
        self.progress.total.store(self.received_part.total().unwrap_or(0), Ordering::Relaxed);
        let mut file = self.received_part.append().map_err(|error| disk_error(&error))?;
        let idle_timeout = self.network.idle_timeout;
        loop {
            self.progress.received.store(self.received_part.len(), Ordering::Relaxed);
            let chunk = tokio::time::timeout(idle_timeout, response.chunk()).await.map_err(|_| {
                RequestError::new(
                    RequestErrorCause::NoUsableResponse,
                    format!("no data received for {}", format_seconds(idle_timeout)),
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
            if self.received_part.total().is_none() && self.received_part.len() - checked_len >= SPACE_CHECK_BYTES {
                checked_len = self.received_part.len();
                before_receiving(&self.expected_bundle(checked_len, 0))?;
            }
            self.max_len = self.max_len.max(self.received_part.len());
        }
        if let Some(total) = self.received_part.total()
            && total != self.received_part.len()
        {
            let len = self.received_part.len();
            let reason = if len > total {
                self.received_part.discard();
                format!("the response has more than the {total} bytes that it announced")
            } else {
                format!("the response was cut off at {len} of {total} bytes")
            };
            return Err(RequestError::new(RequestErrorCause::NoUsableResponse, reason));
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

async fn read_error_response(mut response: reqwest::Response, redactor: &SecretRedactor) -> RequestError {
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let mut body = Vec::new();
    let read_body = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_ERROR_BODY_BYTES {
                break;
            }
        }
    };
    // An error response that does not end is cut off; its status decides.
    let _ = tokio::time::timeout(std::time::Duration::from_secs(5), read_body).await;
    RequestError::from_response(status, &headers, &body, redactor)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // directories of these tests alone
mod tests;
