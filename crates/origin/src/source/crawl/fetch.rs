//! Sends one request and reads its response. Temporary failures are retried. Size, idle time and total time are
//! limited.

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use flate2::read::{MultiGzDecoder, ZlibDecoder};
use http::Method;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, LOCATION};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use url::Url;

use docwharf_base::backoff;
use docwharf_base::model::deployment::OutboundPolicy;
use docwharf_base::net::NetworkSettings;
use docwharf_base::net::client::{ClientError, HttpClient, build_client};
use docwharf_base::net::request_error::{RequestError, RequestErrorCause, parse_retry_after};
use docwharf_base::net::retry::{CallAttempts, CallKind};
use docwharf_base::secret::SafeUrl;

/// Maximum size of a body in bytes; a larger one is refused.
pub(super) const MAX_BODY_BYTES: usize = 64 << 20;

/// Maximum size of a small body in bytes; the number of small bodies in memory is not limited.
const MAX_SMALL_BODY_BYTES: usize = 1 << 20;
/// Maximum number of larger bodies in memory at a time; each takes up to twice [`MAX_BODY_BYTES`] while it is decoded.
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
    /// Permit to have this body in memory, if it is large.
    _large_permit: Option<OwnedSemaphorePermit>,
}

/// HTTP client of a crawl.
#[derive(Debug)]
pub(super) struct Fetcher {
    client: HttpClient,
    network: NetworkSettings,
    large_permits: Arc<Semaphore>,
}

impl Fetcher {
    pub(super) fn new(outbound: OutboundPolicy) -> Result<Fetcher, ClientError> {
        let network = NetworkSettings { outbound, ..NetworkSettings::default() };
        Ok(Fetcher {
            client: build_client(&network)?,
            network,
            large_permits: Arc::new(Semaphore::new(MAX_LARGE_BODIES)),
        })
    }

    /// Sends a GET, with retries, and returns the response. `is_payload` adds the header field that a Next.js client
    /// sends when it navigates to a page. Failed attempts are appended to `log_lines`.
    pub(super) async fn get(
        &self,
        url: &Url,
        is_payload: bool,
        log_lines: &mut Vec<String>,
    ) -> Result<CrawlResponse, RequestError> {
        let mut attempts = CallAttempts::default();
        loop {
            let error = match self.send_once(url, is_payload).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            let Some(pause) = attempts.next_pause(CallKind::Read, &error, backoff::random_fraction()) else {
                return Err(error);
            };
            log_lines.push(format!("{url}: {error}; next attempt in {} ms", pause.as_millis()));
            sleep(pause).await;
        }
    }

    async fn send_once(&self, url: &Url, is_payload: bool) -> Result<CrawlResponse, RequestError> {
        let safe_url = SafeUrl::parse(url.as_str())
            .map_err(|reason| RequestError::new(RequestErrorCause::RefusedRedirect, reason))?;
        let timeout_error = |_| RequestError::new(RequestErrorCause::NoUsableResponse, "no response in time");
        let request = self.client.request(Method::GET, &safe_url)?;
        let mut request = request.header(ACCEPT, "*/*").header(ACCEPT_ENCODING, "identity");
        if is_payload {
            request = request.header("RSC", "1");
        }
        let response = timeout(self.network.call_timeout, request.send()).await.map_err(timeout_error)?;
        let mut response = response.map_err(|error| RequestError::from_client(error, &safe_url))?;
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        if matches!(status, 408 | 429 | 500..) {
            let mut error = RequestError::new(
                RequestErrorCause::Status(status),
                format!("the response has status {}", response.status()),
            );
            error.retry_after = parse_retry_after(&headers, SystemTime::now());
            return Err(error);
        }
        let (body, mut permit) = self.read_body(&mut response, &safe_url).await?;
        if permit.is_none() && headers.contains_key(CONTENT_ENCODING) {
            // A small encoded body may decode to a large one.
            permit = self.acquire_large_permit().await;
        }
        let value = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
        let (media_type, charset) = value(CONTENT_TYPE).map(parse_content_type).unwrap_or_default();
        let is_redirect = (300..400).contains(&status);
        let location = value(LOCATION).filter(|_| is_redirect).map(str::to_owned);
        Ok(CrawlResponse {
            status,
            media_type,
            charset,
            location,
            body: decode_body(&headers, body)?,
            _large_permit: permit,
        })
    }

    /// Reads the body as it was sent, with the permit for it if it is large.
    async fn read_body(
        &self,
        response: &mut reqwest::Response,
        safe_url: &SafeUrl,
    ) -> Result<(Vec<u8>, Option<OwnedSemaphorePermit>), RequestError> {
        let (mut body, mut permit) = (Vec::new(), None);
        // Time spent waiting for the server; waiting for a permit does not count.
        let mut waited = Duration::ZERO;
        loop {
            let started = Instant::now();
            let Some(chunk) = read_chunk(self.remaining_time(waited, body.len()), response, safe_url).await? else {
                break;
            };
            waited += started.elapsed();
            if body.len() + chunk.len() > MAX_BODY_BYTES {
                return Err(too_large());
            }
            if permit.is_none() && body.len() + chunk.len() > MAX_SMALL_BODY_BYTES {
                permit = self.acquire_large_permit().await;
            }
            body.extend_from_slice(&chunk);
        }
        Ok((body, permit))
    }

    /// Waits for a permit for one more large body in memory. The semaphore is never closed, so this always returns one.
    async fn acquire_large_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.large_permits).acquire_owned().await.ok()
    }

    /// Returns the timeout for the next piece, after waiting `waited` for `bytes` of the body so far.
    fn remaining_time(&self, waited: Duration, bytes: usize) -> Duration {
        let total = self.network.idle_timeout + Duration::from_secs(bytes as u64 / MIN_BYTES_PER_SECOND);
        total.saturating_sub(waited).min(self.network.idle_timeout)
    }
}

async fn read_chunk(
    idle: Duration,
    response: &mut reqwest::Response,
    safe_url: &SafeUrl,
) -> Result<Option<bytes::Bytes>, RequestError> {
    let chunk = timeout(idle, response.chunk()).await;
    let chunk = chunk.map_err(|_| {
        RequestError::new(
            RequestErrorCause::NoUsableResponse,
            "the response stopped before its end, or was sent too slowly",
        )
    })?;
    chunk.map_err(|error| RequestError::from_client(error, safe_url))
}

fn too_large() -> RequestError {
    RequestError::new(RequestErrorCause::TooLarge, format!("it is larger than {} MiB", MAX_BODY_BYTES >> 20))
}

/// Returns the media type and the charset of a `Content-Type`, in lower case.
fn parse_content_type(text: &str) -> (String, Option<String>) {
    let mut parts = text.split(';');
    let media_type = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
    let charset = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"').to_ascii_lowercase())
    });
    (media_type, charset)
}

/// Removes content codings, which some servers apply although the request does not accept them.
fn decode_body(headers: &HeaderMap, body: Vec<u8>) -> Result<Vec<u8>, RequestError> {
    let values = headers.get_all(CONTENT_ENCODING).into_iter().filter_map(|value| value.to_str().ok());
    let codings: Vec<String> =
        values.flat_map(|value| value.split(',')).map(|c| c.trim().to_ascii_lowercase()).collect();
    codings.iter().rev().try_fold(body, |body, coding| {
        let mut out = Vec::new();
        let max_bytes = MAX_BODY_BYTES as u64 + 1;
        let result = match coding.as_str() {
            "" | "identity" => return Ok(body),
            "gzip" | "x-gzip" => MultiGzDecoder::new(&body[..]).take(max_bytes).read_to_end(&mut out),
            "deflate" => ZlibDecoder::new(&body[..]).take(max_bytes).read_to_end(&mut out),
            other => {
                // No cause describes this. `TooLarge` is used because it is not retried, unlike `Unreadable`: the
                // server would apply the same coding again.
                let message = format!("it is encoded as {other:?}, which was not requested");
                return Err(RequestError::new(RequestErrorCause::TooLarge, message));
            }
        };
        result.map_err(|error| {
            RequestError::new(RequestErrorCause::Unreadable, format!("its {coding} coding is damaged: {error}"))
        })?;
        if out.len() > MAX_BODY_BYTES { Err(too_large()) } else { Ok(out) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_type_is_parsed_into_media_type_and_charset() {
        for (text, media_type, charset) in [
            ("Text/HTML; Charset=\"ISO-8859-1\"", "text/html", Some("iso-8859-1")),
            ("text/css;a=b ; charset=UTF-8", "text/css", Some("utf-8")),
            ("image/png", "image/png", None),
            ("", "", None),
        ] {
            assert_eq!(parse_content_type(text), (media_type.to_owned(), charset.map(str::to_owned)), "{text}");
        }
    }

    // Regression: a body that arrived one byte at a time was read without end.
    #[test]
    fn a_crawled_body_below_the_minimum_transfer_rate_times_out() {
        let fetcher = Fetcher::new(OutboundPolicy::Any).unwrap();
        let ends_at = |rate: usize| {
            let (mut waited, step) = (0u16, 10u16);
            while waited < 10_000 {
                let bytes = rate * usize::from(waited);
                if fetcher.remaining_time(Duration::from_secs(waited.into()), bytes) < Duration::from_secs(step.into())
                {
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
    fn unrequested_content_codings_are_decoded_or_refused() {
        use std::io::Write;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(b"text").unwrap();
        let coded = encoder.finish().unwrap();
        let decode = |coding: &str, body: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_ENCODING, coding.parse().unwrap());
            decode_body(&headers, body.to_vec()).map_err(|error| error.to_string())
        };
        assert_eq!(decode("gzip", &coded).unwrap(), b"text");
        assert_eq!(decode("identity", b"text").unwrap(), b"text");
        assert!(decode("br", b"x").unwrap_err().contains("\"br\""));
        assert!(decode("gzip", b"text").unwrap_err().contains("damaged"));
        // The codings are listed in the order in which they were applied (RFC 9110, 8.4).
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&coded).unwrap();
        assert_eq!(decode("x-gzip, deflate", &encoder.finish().unwrap()).unwrap(), b"text");
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&vec![0; MAX_BODY_BYTES + 1]).unwrap();
        assert!(decode("gzip", &encoder.finish().unwrap()).unwrap_err().contains("larger than 64 MiB"));
    }
}
