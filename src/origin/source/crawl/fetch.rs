//! One request and its answer: asked again when the server stumbles, bounded in size and in silence.

use std::io::Read;
use std::time::{Duration, SystemTime};

use flate2::read::{MultiGzDecoder, ZlibDecoder};
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, LOCATION};
use tokio::time::{sleep, timeout};
use url::Url;

use crate::base::backoff;
use crate::base::secret::SafeUrl;
use crate::net::Network;
use crate::net::client::{ClientError, client};
use crate::net::retry::{Attempts, Call};
use crate::net::trouble::{Cause, Trouble, retry_after};

/// A larger body, in bytes, is refused.
pub(super) const LARGEST: usize = 64 << 20;

/// What a server has answered.
#[derive(Debug)]
pub(super) struct Answer {
    /// Below 500.
    pub(super) status: u16,
    /// In lower case, without parameters; empty without one.
    pub(super) media_type: String,
    /// In lower case, as the header has it.
    pub(super) charset: Option<String>,
    /// Where it sends its reader.
    pub(super) location: Option<String>,
    /// Without content coding.
    pub(super) body: Vec<u8>,
}

/// Asks one server.
#[derive(Debug)]
pub(super) struct Fetcher {
    client: reqwest::Client,
    patience: Network,
}

impl Fetcher {
    pub(super) fn new() -> Result<Fetcher, ClientError> {
        let patience = Network::default();
        Ok(Fetcher { client: client(&patience)?, patience })
    }

    /// The answer to a GET. `is_payload` asks for what a client of Next.js asks for when it goes on to a page. `said` is told of what went wrong meanwhile.
    pub(super) async fn get(&self, url: &Url, is_payload: bool, said: &mut Vec<String>) -> Result<Answer, Trouble> {
        let mut attempts = Attempts::default();
        loop {
            let trouble = match self.once(url, is_payload).await {
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            let Some(pause) = attempts.next(Call::Read, &trouble, backoff::random()) else { return Err(trouble) };
            said.push(format!("{url}: {trouble}; asked again in {} ms", pause.as_millis()));
            sleep(pause).await;
        }
    }

    async fn once(&self, url: &Url, is_payload: bool) -> Result<Answer, Trouble> {
        let shown = SafeUrl::parse(url.as_str()).map_err(|why| Trouble::new(Cause::Redirected, why))?;
        let late = |_| Trouble::new(Cause::Lost, "no answer in time");
        let mut request = self.client.get(url.clone()).header(ACCEPT, "*/*").header(ACCEPT_ENCODING, "identity");
        if is_payload {
            request = request.header("RSC", "1");
        }
        let answer = timeout(self.patience.call, request.send()).await.map_err(late)?;
        let mut answer = answer.map_err(|error| Trouble::from_client(error, &shown))?;
        let status = answer.status().as_u16();
        let headers = answer.headers().clone();
        if matches!(status, 408 | 429 | 500..) {
            let mut trouble = Trouble::new(Cause::Status(status), format!("it answers {}", answer.status()));
            trouble.retry_after = retry_after(&headers, SystemTime::now());
            return Err(trouble);
        }
        let mut body = Vec::new();
        while let Some(piece) = read(self.patience.idle, &mut answer, &shown).await? {
            if body.len() + piece.len() > LARGEST {
                return Err(too_large());
            }
            body.extend_from_slice(&piece);
        }
        let value = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
        let (media_type, charset) = value(CONTENT_TYPE).map(content_type).unwrap_or_default();
        let is_redirect = (300..400).contains(&status);
        let location = value(LOCATION).filter(|_| is_redirect).map(str::to_owned);
        Ok(Answer { status, media_type, charset, location, body: decoded(&headers, body)? })
    }
}

async fn read(
    idle: Duration,
    answer: &mut reqwest::Response,
    shown: &SafeUrl,
) -> Result<Option<bytes::Bytes>, Trouble> {
    let piece = timeout(idle, answer.chunk()).await;
    let piece = piece.map_err(|_| Trouble::new(Cause::Lost, "the answer stopped in the middle"))?;
    piece.map_err(|error| Trouble::from_client(error, shown))
}

fn too_large() -> Trouble {
    Trouble::new(Cause::TooLarge, format!("it is larger than {} MiB", LARGEST >> 20))
}

/// The media type and the charset of a `Content-Type`.
fn content_type(text: &str) -> (String, Option<String>) {
    let mut parts = text.split(';');
    let media_type = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
    let charset = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"').to_ascii_lowercase())
    });
    (media_type, charset)
}

/// The body without the codings that some servers use although nobody has asked for one.
fn decoded(headers: &HeaderMap, body: Vec<u8>) -> Result<Vec<u8>, Trouble> {
    let values = headers.get_all(CONTENT_ENCODING).into_iter().filter_map(|value| value.to_str().ok());
    let codings: Vec<String> =
        values.flat_map(|value| value.split(',')).map(|c| c.trim().to_ascii_lowercase()).collect();
    codings.iter().rev().try_fold(body, |body, coding| {
        let mut out = Vec::new();
        let most = LARGEST as u64 + 1;
        let done = match coding.as_str() {
            "" | "identity" => return Ok(body),
            "gzip" | "x-gzip" => MultiGzDecoder::new(&body[..]).take(most).read_to_end(&mut out),
            "deflate" => ZlibDecoder::new(&body[..]).take(most).read_to_end(&mut out),
            other => {
                let what = format!("it is encoded as {other:?}, which was not asked for");
                return Err(Trouble::new(Cause::TooLarge, what));
            }
        };
        done.map_err(|error| Trouble::new(Cause::Lost, format!("its {coding} coding is damaged: {error}")))?;
        if out.len() > LARGEST { Err(too_large()) } else { Ok(out) }
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
