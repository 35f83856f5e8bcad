//! Sends one request and reads its response: retried after temporary failures, limited in size, silence and slowness.

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use flate2::read::{MultiGzDecoder, ZlibDecoder};
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, LOCATION};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use url::Url;

use docwharf_base::backoff;
use docwharf_base::net::NetworkSettings;
use docwharf_base::net::client::{ClientError, build_client};
use docwharf_base::net::request_error::{RequestError, RequestErrorCause, retry_after};
use docwharf_base::net::retry::{CallAttempts, CallKind};
use docwharf_base::secret::SafeUrl;

/// Maximum size of a body in bytes; a larger one is refused.
pub(super) const MAX_BODY_BYTES: usize = 64 << 20;

/// Maximum size of a small body in bytes; any number of small bodies is held at a time.
const SMALL: usize = 1 << 20;
/// Maximum number of larger bodies held at a time; each takes up to twice [`LARGEST`] while it is decoded.
const MAX_LARGE_BODIES: usize = 2;
/// Minimum average rate of a body in bytes per second; one idle timeout is added to the time that this allows.
const MIN_BYTES_PER_SECOND: u64 = 1024;

/// Response of the crawled server.
#[derive(Debug)]
pub(super) struct CrawlResponse {
    /// Status code; 408, 429 and those from 500 are errors and never appear here.
    pub(super) status: u16,
    /// Media type in lower case, without parameters; empty if the response has none.
    pub(super) media_type: String,
    /// Charset of the `Content-Type` in lower case.
    pub(super) charset: Option<String>,
    /// `Location` of a redirect.
    pub(super) location: Option<String>,
    /// Body without content coding.
    pub(super) body: Vec<u8>,
    /// Permit to hold this body, if it is large.
    _large: Option<OwnedSemaphorePermit>,
}

/// HTTP client of a crawl.
#[derive(Debug)]
pub(super) struct Fetcher {
    client: reqwest::Client,
    patience: NetworkSettings,
    large: Arc<Semaphore>,
}

impl Fetcher {
    pub(super) fn new() -> Result<Fetcher, ClientError> {
        let patience = NetworkSettings::default();
        Ok(Fetcher { client: build_client(&patience)?, patience, large: Arc::new(Semaphore::new(MAX_LARGE_BODIES)) })
    }

    /// Sends a GET, with retries, and returns the response. `is_payload` adds the header field that a Next.js client
    /// sends when it navigates to a page. Failed attempts are appended to `said`.
    pub(super) async fn get(
        &self,
        url: &Url,
        is_payload: bool,
        said: &mut Vec<String>,
    ) -> Result<CrawlResponse, RequestError> {
        let mut attempts = CallAttempts::default();
        loop {
            let trouble = match self.once(url, is_payload).await {
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            let Some(pause) = attempts.next_pause(CallKind::Read, &trouble, backoff::random_fraction()) else {
                return Err(trouble);
            };
            said.push(format!("{url}: {trouble}; asked again in {} ms", pause.as_millis()));
            sleep(pause).await;
        }
    }

    async fn once(&self, url: &Url, is_payload: bool) -> Result<CrawlResponse, RequestError> {
        let shown =
            SafeUrl::parse(url.as_str()).map_err(|why| RequestError::new(RequestErrorCause::RefusedRedirect, why))?;
        let late = |_| RequestError::new(RequestErrorCause::NoResponse, "no answer in time");
        let mut request = self.client.get(url.clone()).header(ACCEPT, "*/*").header(ACCEPT_ENCODING, "identity");
        if is_payload {
            request = request.header("RSC", "1");
        }
        let answer = timeout(self.patience.call_timeout, request.send()).await.map_err(late)?;
        let mut answer = answer.map_err(|error| RequestError::from_client(error, &shown))?;
        let status = answer.status().as_u16();
        let headers = answer.headers().clone();
        if matches!(status, 408 | 429 | 500..) {
            let mut trouble =
                RequestError::new(RequestErrorCause::Status(status), format!("it answers {}", answer.status()));
            trouble.retry_after = retry_after(&headers, SystemTime::now());
            return Err(trouble);
        }
        let (body, mut large) = self.body(&mut answer, &shown).await?;
        if large.is_none() && headers.contains_key(CONTENT_ENCODING) {
            // A small encoded body may decode to a large one.
            large = self.large().await;
        }
        let value = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
        let (media_type, charset) = value(CONTENT_TYPE).map(content_type).unwrap_or_default();
        let is_redirect = (300..400).contains(&status);
        let location = value(LOCATION).filter(|_| is_redirect).map(str::to_owned);
        Ok(CrawlResponse { status, media_type, charset, location, body: decoded(&headers, body)?, _large: large })
    }

    /// Reads the body as it was sent, with the permit to hold it if it is large.
    async fn body(
        &self,
        answer: &mut reqwest::Response,
        shown: &SafeUrl,
    ) -> Result<(Vec<u8>, Option<OwnedSemaphorePermit>), RequestError> {
        let (mut body, mut large) = (Vec::new(), None);
        // Time spent waiting for the server; waiting for a permit does not count.
        let mut waited = Duration::ZERO;
        loop {
            let began = Instant::now();
            let Some(piece) = read(self.left(waited, body.len()), answer, shown).await? else { break };
            waited += began.elapsed();
            if body.len() + piece.len() > MAX_BODY_BYTES {
                return Err(too_large());
            }
            if large.is_none() && body.len() + piece.len() > SMALL {
                large = self.large().await;
            }
            body.extend_from_slice(&piece);
        }
        Ok((body, large))
    }

    /// Waits for a permit to hold one more large body. The semaphore is never closed, so a permit always comes.
    async fn large(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.large).acquire_owned().await.ok()
    }

    /// Returns the timeout for the next piece, after waiting `waited` for `bytes` of the body so far.
    fn left(&self, waited: Duration, bytes: usize) -> Duration {
        let whole = self.patience.idle_timeout + Duration::from_secs(bytes as u64 / MIN_BYTES_PER_SECOND);
        whole.saturating_sub(waited).min(self.patience.idle_timeout)
    }
}

async fn read(
    idle: Duration,
    answer: &mut reqwest::Response,
    shown: &SafeUrl,
) -> Result<Option<bytes::Bytes>, RequestError> {
    let piece = timeout(idle, answer.chunk()).await;
    let piece = piece.map_err(|_| {
        RequestError::new(RequestErrorCause::NoResponse, "the answer stopped in the middle, or came too slowly")
    })?;
    piece.map_err(|error| RequestError::from_client(error, shown))
}

fn too_large() -> RequestError {
    RequestError::new(RequestErrorCause::TooLarge, format!("it is larger than {} MiB", MAX_BODY_BYTES >> 20))
}

/// Returns the media type and the charset of a `Content-Type`, in lower case.
fn content_type(text: &str) -> (String, Option<String>) {
    let mut parts = text.split(';');
    let media_type = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
    let charset = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"').to_ascii_lowercase())
    });
    (media_type, charset)
}

/// Removes content codings, which some servers apply although the request does not accept them.
fn decoded(headers: &HeaderMap, body: Vec<u8>) -> Result<Vec<u8>, RequestError> {
    let values = headers.get_all(CONTENT_ENCODING).into_iter().filter_map(|value| value.to_str().ok());
    let codings: Vec<String> =
        values.flat_map(|value| value.split(',')).map(|c| c.trim().to_ascii_lowercase()).collect();
    codings.iter().rev().try_fold(body, |body, coding| {
        let mut out = Vec::new();
        let most = MAX_BODY_BYTES as u64 + 1;
        let done = match coding.as_str() {
            "" | "identity" => return Ok(body),
            "gzip" | "x-gzip" => MultiGzDecoder::new(&body[..]).take(most).read_to_end(&mut out),
            "deflate" => ZlibDecoder::new(&body[..]).take(most).read_to_end(&mut out),
            other => {
                let what = format!("it is encoded as {other:?}, which was not asked for");
                return Err(RequestError::new(RequestErrorCause::TooLarge, what));
            }
        };
        done.map_err(|error| {
            RequestError::new(RequestErrorCause::NoResponse, format!("its {coding} coding is damaged: {error}"))
        })?;
        if out.len() > MAX_BODY_BYTES { Err(too_large()) } else { Ok(out) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_taken_apart() {
        for (text, media_type, charset) in [
            ("Text/HTML; Charset=\"ISO-8859-1\"", "text/html", Some("iso-8859-1")),
            ("text/css;a=b ; charset=UTF-8", "text/css", Some("utf-8")),
            ("image/png", "image/png", None),
            ("", "", None),
        ] {
            assert_eq!(content_type(text), (media_type.to_owned(), charset.map(str::to_owned)), "{text}");
        }
    }

    #[test]
    fn a_body_that_drips_is_given_up_and_one_that_is_merely_slow_is_not() {
        let fetcher = Fetcher::new().unwrap();
        let ends_at = |rate: usize| {
            let (mut waited, step) = (0u16, 10u16);
            while waited < 10_000 {
                let bytes = rate * usize::from(waited);
                if fetcher.left(Duration::from_secs(waited.into()), bytes) < Duration::from_secs(step.into()) {
                    return Some(waited);
                }
                waited += step;
            }
            None
        };
        assert!(ends_at(0).is_some_and(|seconds| seconds < 60));
        assert!(ends_at(500).is_some_and(|seconds| seconds < 120));
        assert_eq!(ends_at(2048), None);
    }

    #[test]
    fn codings_that_nobody_asked_for_are_taken_off_or_refused() {
        use std::io::Write;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(b"text").unwrap();
        let coded = encoder.finish().unwrap();
        let with = |coding: &str, body: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_ENCODING, coding.parse().unwrap());
            decoded(&headers, body.to_vec()).map_err(|trouble| trouble.to_string())
        };
        assert_eq!(with("gzip", &coded).unwrap(), b"text");
        assert_eq!(with("identity", b"text").unwrap(), b"text");
        assert!(with("br", b"x").unwrap_err().contains("\"br\""));
        assert!(with("gzip", b"text").unwrap_err().contains("damaged"));
    }
}
