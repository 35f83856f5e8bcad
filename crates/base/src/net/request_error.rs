//! The failure of a request: its cause, which decides about a retry, and its description in one line.

use std::error::Error;
use std::fmt;
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::{DATE, RETRY_AFTER};

use crate::secret::{SafeUrl, SecretRedactor};

/// The smallest difference between this machine's clock and the server's that is reported.
const MIN_REPORTED_SKEW: Duration = Duration::from_mins(1);
/// Upper bound of the wait that an upstream can ask for.
pub const MAX_RETRY_AFTER: Duration = Duration::from_hours(24);
/// Upper bound of the quotation from a response that is not JSON, in characters.
const MAX_QUOTED_CHARS: usize = 200;

/// The cause of a failure, as far as a retry depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestErrorCause {
    /// There was no connection: the request was never sent.
    NotConnected,
    /// The TLS handshake failed; a retry does not help.
    Tls,
    /// There was no usable response: none was received, it was cut off, or it does not fit the request (another range).
    NoUsableResponse,
    /// The response is complete, but its content cannot be parsed.
    Unreadable,
    /// A complete response with this status.
    Status(u16),
    /// A redirect that must not be followed.
    RefusedRedirect,
    /// The deployment does not permit a connection to this address. The request was never sent.
    NotPermitted,
    /// The body is larger than the limit.
    TooLarge,
    /// This machine could not store the received data.
    Disk,
}

/// The failure of a request.
#[derive(Debug, Clone)]
pub struct RequestError {
    /// The cause, which decides about a retry.
    pub cause: RequestErrorCause,
    /// The wait that the upstream demands with `Retry-After`.
    pub retry_after: Option<Duration>,
    /// Boxed, so that a `Result` with this error stays small.
    text: Box<RequestErrorText>,
}

#[derive(Debug, Clone)]
struct RequestErrorText {
    message: String,
    /// The `<Code>` of an object store's response.
    code: Option<String>,
    /// A note that this machine's clock is wrong, which may be the cause.
    skew_note: Option<String>,
}

impl RequestError {
    /// Creates a failure with this message.
    pub fn new(cause: RequestErrorCause, message: impl Into<String>) -> RequestError {
        RequestError {
            cause,
            retry_after: None,
            text: Box::new(RequestErrorText { message: message.into(), code: None, skew_note: None }),
        }
    }

    /// The `<Code>` of an object store's response.
    pub fn code(&self) -> Option<&str> {
        self.text.code.as_deref()
    }

    /// Converts an error of the client library for a request to `url`. The library's message would contain the whole
    /// URL, so it is removed.
    pub fn from_client(error: reqwest::Error, url: &SafeUrl) -> RequestError {
        let is_connect = error.is_connect();
        let is_timeout = error.is_timeout();
        let error = error.without_url();
        // Each layer of the client repeats the message of the one below; the last message describes the cause.
        let mut reason = error.to_string();
        let mut is_tls_error = false;
        let mut source = error.source();
        while let Some(cause) = source {
            reason = cause.to_string();
            is_tls_error |= is_tls(cause);
            source = cause.source();
        }
        let reason = match reason.as_str() {
            _ if is_tls_error && reason.contains("UnknownIssuer") => {
                format!(
                    "{reason}; the server's certificate comes from an unknown authority: name its root certificate in api.caFile or SSL_CERT_FILE"
                )
            }
            _ if is_tls_error && reason.contains("InvalidContentType") => {
                "the server does not speak TLS; is it plain http?".to_owned()
            }
            _ => reason,
        };
        let host = url.host();
        match (is_tls_error, is_connect, is_timeout) {
            (true, ..) => {
                RequestError::new(RequestErrorCause::Tls, format!("the TLS handshake with {host} failed: {reason}"))
            }
            (_, true, true) => {
                RequestError::new(RequestErrorCause::NotConnected, format!("the connection to {host} timed out"))
            }
            (_, true, false) => {
                RequestError::new(RequestErrorCause::NotConnected, format!("cannot connect to {host}: {reason}"))
            }
            (_, false, true) => RequestError::new(RequestErrorCause::NoUsableResponse, "no response in time"),
            _ => RequestError::new(RequestErrorCause::NoUsableResponse, format!("the response was cut off: {reason}")),
        }
    }

    /// Creates a failure from a complete response with an error status.
    pub fn from_response(status: u16, headers: &HeaderMap, body: &[u8], redactor: &SecretRedactor) -> RequestError {
        let quotation = quote_body(body, redactor);
        let reason = http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
        let mut message = format!("{status}{}", reason.map_or_else(String::new, |reason| format!(" {reason}")));
        if !quotation.is_empty() {
            message.push_str(": ");
            message.push_str(&quotation);
        }
        let mut error = RequestError::new(RequestErrorCause::Status(status), message);
        error.retry_after = parse_retry_after(headers, SystemTime::now());
        error.text.skew_note =
            describe_clock_skew(headers, SystemTime::now()).filter(|_| matches!(status, 400 | 401 | 403));
        error.text.code = xml_element_text(&redactor.redact(&String::from_utf8_lossy(body)), "Code");
        error
    }

    /// Converts the failure of an error response into that of an incomplete one. `Retry-After` stays in force.
    #[must_use]
    pub fn into_no_usable_response(mut self, reason: &str) -> RequestError {
        self.cause = RequestErrorCause::NoUsableResponse;
        self.text.message = format!("{}, and {reason}", self.text.message);
        self
    }

    /// Creates a failure from a response with a success status and an unusable body.
    pub fn unreadable(status: u16, reason: &str, body: &[u8], redactor: &SecretRedactor) -> RequestError {
        let quotation = quote_body(body, redactor);
        let quotation = if quotation.is_empty() { "the body is empty".to_owned() } else { quotation };
        RequestError::new(RequestErrorCause::Unreadable, format!("{status}, but {reason}: {quotation}"))
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text.message)?;
        if let Some(skew) = &self.text.skew_note {
            write!(f, "; {skew}")?;
        }
        if let Some(wait) = self.retry_after {
            write!(f, "; the server asks to wait {} s before the next request", wait.as_secs())?;
        }
        Ok(())
    }
}

impl Error for RequestError {}

/// Whether a TLS error is among the causes. An I/O error that wraps another error hides it from `source`.
fn is_tls(error: &(dyn Error + 'static)) -> bool {
    if error.is::<rustls::Error>() {
        return true;
    }
    let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    inner.is_some_and(|inner| is_tls(inner))
}

/// Quotes the body of an error: the API's `error` and `details`, an object store's code and message, else its
/// beginning.
fn quote_body(body: &[u8], redactor: &SecretRedactor) -> String {
    let redacted = |text: &str| redactor.redact(text.trim());
    if let Ok(value) = serde_json::from_slice::<serde_json::Value>(body)
        && let Some(error) = value.get("error").and_then(|error| error.as_str())
    {
        let details = value.get("details").and_then(|details| details.as_array());
        let messages: Vec<&str> =
            details.into_iter().flatten().filter_map(|detail| detail.get("message")?.as_str()).collect();
        let details = if messages.is_empty() { String::new() } else { format!(" ({})", messages.join("; ")) };
        // The message is not truncated here: the code that prints it bounds the line.
        return redacted(&format!("{error}{details}"));
    }
    // Secrets are hidden before the text is cut: half a secret is a secret, too.
    let text = redacted(&String::from_utf8_lossy(body));
    if let Some(code) = xml_element_text(&text, "Code") {
        let message = xml_element_text(&text, "Message").map_or_else(String::new, |message| format!(" ({message})"));
        return truncate_chars(&format!("{code}{message}"), MAX_QUOTED_CHARS);
    }
    truncate_chars(&text, MAX_QUOTED_CHARS)
}

fn truncate_chars(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the text of the first XML element with this name: enough for the flat responses of object stores.
fn xml_element_text(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (content, _) = rest.split_once(&format!("</{name}>"))?;
    Some(truncate_chars(content.trim(), MAX_QUOTED_CHARS))
}

/// Reads `Retry-After`: seconds or a date (RFC 9110 section 10.2.3). The result is at most [`MAX_RETRY_AFTER`].
pub fn parse_retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        // A number with too many digits to parse is a long time, too.
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        // The date is by the server's clock, so it is compared with the server's `Date` if the response has one.
        let date = headers.get(DATE).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
        httpdate::parse_http_date(text).ok()?.duration_since(date.unwrap_or(now)).unwrap_or_default()
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

/// Describes how far this machine's clock is from the server's `Date`; `None` up to one minute.
pub fn describe_clock_skew(headers: &HeaderMap, now: SystemTime) -> Option<String> {
    let date = httpdate::parse_http_date(headers.get(DATE)?.to_str().ok()?).ok()?;
    let (difference, direction) = match now.duration_since(date) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(error) => (error.duration(), "behind"),
    };
    let minutes = difference.as_secs().div_ceil(60);
    (difference > MIN_REPORTED_SKEW).then(|| format!("this machine's clock is {minutes} min {direction} the server's"))
}

#[cfg(test)]
mod tests {
    use crate::secret::Secret;

    use super::*;

    fn message(status: u16, body: &str) -> String {
        RequestError::from_response(status, &HeaderMap::new(), body.as_bytes(), &SecretRedactor::default()).to_string()
    }

    #[test]
    fn message_of_an_error_body_is_quoted() {
        assert_eq!(message(401, r#"{"error":"no such key"}"#), "401 Unauthorized: no such key");
        let details = r#"{"error":"bad","details":[{"message":"a"},{"message":"b"}]}"#;
        assert_eq!(message(400, details), "400 Bad Request: bad (a; b)");
        let xml = "<?xml?><Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>";
        assert_eq!(message(403, xml), "403 Forbidden: AccessDenied (Request has expired)");
        assert_eq!(message(502, "<html>bad gateway</html>"), "502 Bad Gateway: <html>bad gateway</html>");
        assert_eq!(message(503, ""), "503 Service Unavailable");
        assert_eq!(
            message(500, &"x".repeat(999)).chars().count(),
            "500 Internal Server Error: ".len() + MAX_QUOTED_CHARS + 1
        );
    }

    #[test]
    fn truncated_error_body_quotes_no_part_of_a_secret() {
        let secret = "dwk_0123456789abcdef";
        let mut redactor = SecretRedactor::default();
        redactor.hide(&Secret::new(secret.to_owned()));
        for before in 0..=MAX_QUOTED_CHARS + 5 {
            let body = format!("{}{secret} and more of it{}", "x".repeat(before), "y".repeat(MAX_QUOTED_CHARS));
            let message = RequestError::from_response(502, &HeaderMap::new(), body.as_bytes(), &redactor).to_string();
            assert!(!message.contains("dwk"), "{before}: {message}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let parse = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            parse_retry_after(&headers, now)
        };
        assert_eq!(parse("7"), Some(Duration::from_secs(7)));
        let date = httpdate::fmt_http_date(now + Duration::from_secs(90));
        assert_eq!(parse(&date), Some(Duration::from_secs(90)));
        assert_eq!(parse(&httpdate::fmt_http_date(now - Duration::from_secs(9))), Some(Duration::ZERO));
        assert_eq!(parse("soon"), None);
        for endless in ["18446744073709551615", "99999999999999999999999"] {
            assert_eq!(parse(endless), Some(MAX_RETRY_AFTER), "{endless}");
        }
    }

    // Regression: a server that stalled in the body of a 503 was asked again before the time of its Retry-After.
    #[test]
    fn an_incomplete_error_response_keeps_its_retry_after_and_its_text() {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, http::HeaderValue::from_static("90"))]);
        let complete = RequestError::from_response(503, &headers, b"busy", &SecretRedactor::default());
        let error = complete.into_no_usable_response("the response was cut off");
        assert_eq!(
            (error.cause, error.retry_after),
            (RequestErrorCause::NoUsableResponse, Some(Duration::from_secs(90)))
        );
        let text = error.to_string();
        assert!(
            text.starts_with(
                "503 Service Unavailable: busy, and the response was cut off; the server asks to wait 90 s"
            ),
            "{text}"
        );
    }

    // Regression: a date in `Retry-After` was compared with the local clock instead of the server's.
    #[test]
    fn retry_after_date_is_relative_to_the_date_of_the_server() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let server_time = now + Duration::from_hours(2);
        let mut headers = HeaderMap::new();
        headers.insert(DATE, httpdate::fmt_http_date(server_time).parse().unwrap());
        headers.insert(RETRY_AFTER, httpdate::fmt_http_date(server_time + Duration::from_secs(3)).parse().unwrap());
        assert_eq!(parse_retry_after(&headers, now), Some(Duration::from_secs(3)));
    }

    #[test]
    fn clock_skew_of_more_than_a_minute_is_reported() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let skew = |date| {
            let mut headers = HeaderMap::new();
            headers.insert(DATE, httpdate::fmt_http_date(date).parse().unwrap());
            describe_clock_skew(&headers, now)
        };
        assert_eq!(skew(now + Duration::from_secs(59)), None);
        assert_eq!(skew(now + Duration::from_mins(17)).unwrap(), "this machine's clock is 17 min behind the server's");
        assert!(skew(now - Duration::from_mins(17)).unwrap().contains("ahead of"));
    }

    #[test]
    fn clock_skew_is_reported_only_for_400_401_and_403() {
        let mut headers = HeaderMap::new();
        headers.insert(DATE, httpdate::fmt_http_date(SystemTime::UNIX_EPOCH).parse().unwrap());
        headers.insert(RETRY_AFTER, "9".parse().unwrap());
        for (status, is_shown) in
            [(400, true), (401, true), (403, true), (402, false), (404, false), (429, false), (503, false)]
        {
            let error = RequestError::from_response(status, &headers, b"", &SecretRedactor::default());
            assert_eq!(
                (error.cause, error.retry_after),
                (RequestErrorCause::Status(status), Some(Duration::from_secs(9)))
            );
            let message = error.to_string();
            assert_eq!(message.contains("this machine's clock is"), is_shown, "{message}");
            assert!(message.ends_with("; the server asks to wait 9 s before the next request"), "{message}");
        }
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let skew = |date| {
            let headers = HeaderMap::from_iter([(DATE, httpdate::fmt_http_date(date).parse().unwrap())]);
            describe_clock_skew(&headers, now).map(|text| text["this machine's clock is ".len()..].to_owned())
        };
        for (seconds, minutes) in [(0, None), (60, None), (61, Some(2)), (120, Some(2)), (121, Some(3))] {
            let skews = [now - Duration::from_secs(seconds), now + Duration::from_secs(seconds)].map(skew);
            let expected =
                ["ahead of", "behind"].map(|direction| minutes.map(|n| format!("{n} min {direction} the server's")));
            assert_eq!(skews, expected, "{seconds}");
        }
        assert_eq!(
            (describe_clock_skew(&HeaderMap::new(), now), parse_retry_after(&HeaderMap::new(), now)),
            (None, None)
        );
    }

    #[test]
    fn retry_after_is_limited_to_one_day_and_invalid_values_are_ignored() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let late_date = httpdate::fmt_http_date(now + Duration::from_secs(86_401));
        for (text, wait) in [
            ("0", Some(0)),
            (" 7 ", Some(7)),
            ("86400", Some(86_400)),
            ("86401", Some(86_400)),
            (&late_date, Some(86_400)),
            ("", None),
            ("-5", None),
            ("7.5", None),
            ("7s", None),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, http::HeaderValue::from_str(text).unwrap())]);
            assert_eq!(parse_retry_after(&headers, now), wait.map(Duration::from_secs), "{text}");
        }
    }

    #[test]
    fn error_body_is_quoted_up_to_its_limit_and_an_xml_error_code_is_parsed() {
        let x = |n| "x".repeat(n);
        for (body, quotation) in [
            (x(MAX_QUOTED_CHARS), x(MAX_QUOTED_CHARS)),
            (x(MAX_QUOTED_CHARS + 1), x(MAX_QUOTED_CHARS) + "…"),
            (format!("  {}\n", x(MAX_QUOTED_CHARS)), x(MAX_QUOTED_CHARS)),
            ("<Code>A</Code>".to_owned(), "A".to_owned()),
            ("<Code> A </Code><Message> b </Message>".to_owned(), "A (b)".to_owned()),
            ("<Code>A<Message>b</Message>".to_owned(), "<Code>A<Message>b</Message>".to_owned()),
            (format!(r#"{{"error":" {} "}}"#, x(999)), x(999)),
            (r#"{"error":"a","details":[]}"#.to_owned(), "a".to_owned()),
            (r#"{"error":7}"#.to_owned(), r#"{"error":7}"#.to_owned()),
        ] {
            assert_eq!(message(404, &body), format!("404 Not Found: {quotation}"));
            let unreadable = RequestError::unreadable(200, "it is odd", body.as_bytes(), &SecretRedactor::default());
            assert_eq!(
                (unreadable.cause, unreadable.to_string()),
                (RequestErrorCause::Unreadable, format!("200, but it is odd: {quotation}"))
            );
        }
        let empty = RequestError::unreadable(200, "it is odd", b" ", &SecretRedactor::default());
        assert_eq!(empty.to_string(), "200, but it is odd: the body is empty");
        assert_eq!(message(799, "x"), "799: x");
        let mut redactor = SecretRedactor::default();
        redactor.hide(&Secret::new("dwk_0123456789".to_owned()));
        for (body, code) in
            [("<Code> A </Code>", Some("A")), ("<Code>dwk_0123456789</Code>", Some("***")), (r#"{"error":"A"}"#, None)]
        {
            let error = RequestError::from_response(403, &HeaderMap::new(), body.as_bytes(), &redactor);
            assert_eq!(error.code(), code, "{body}");
        }
        let json = br#"{"error":"no dwk_0123456789","details":[{"message":"a dwk_0123456789"}]}"#;
        assert_eq!(quote_body(json, &redactor), "no *** (a ***)");
    }

    #[test]
    fn tls_error_is_found_inside_nested_io_errors() {
        let io = |error: Box<dyn Error + Send + Sync>| std::io::Error::other(error);
        let tls = || rustls::Error::General("x".to_owned());
        assert!(is_tls(&tls()) && is_tls(&io(tls().into())) && is_tls(&io(io(tls().into()).into())));
        assert!(!is_tls(&io("x".into())) && !is_tls(&std::io::Error::from(std::io::ErrorKind::TimedOut)));
    }
}
