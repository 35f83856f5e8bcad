//! Formats one line of the access log. Nothing that a client sends can end the line, begin another one, or reach a
//! terminal as a control sequence.
//!
//! Targets and referrers are written without their query, which may contain the search terms of a reader.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime};

use http::{HeaderValue, Method, Uri, Version};
use jiff::Timestamp;

use docwharf_base::model::version::VersionId;

/// The largest length of a value as it is written, in bytes. A longer value is cut and ends in `...`.
const MAX_VALUE_BYTES: usize = 1024;
/// The largest length of a value as it is stored until the line is written, in bytes. It is so far above
/// [`MAX_VALUE_BYTES`] that a value cut to it at a character boundary is still recognized as too long.
const MAX_STORED_VALUE_BYTES: usize = MAX_VALUE_BYTES + 4;

/// The format of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// One JSON object per line.
    Json,
    /// The combined format of Apache and nginx, followed by the duration in seconds and the version.
    Combined,
}

/// The part of a client's address that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoggedAddress {
    /// The first 24 bits of an IPv4 address, the first 48 bits of an IPv6 address.
    #[default]
    Truncated,
    /// The whole address.
    Full,
    /// No address.
    None,
}

impl LoggedAddress {
    /// Returns the part of this address that is written; `None` for no part.
    pub fn apply(self, address: IpAddr) -> Option<IpAddr> {
        match (self, address.to_canonical()) {
            (LoggedAddress::None, _) => None,
            (LoggedAddress::Full, address) => Some(address),
            (LoggedAddress::Truncated, IpAddr::V4(v4)) => Some(Ipv4Addr::from_bits(v4.to_bits() & !0xff).into()),
            (LoggedAddress::Truncated, IpAddr::V6(v6)) => {
                Some(Ipv6Addr::from_bits(v6.to_bits() & !(u128::MAX >> 48)).into())
            }
        }
    }
}

/// The fields of a line that are known when the response begins.
#[derive(Debug)]
pub(super) struct AccessLogLine {
    pub(super) time: SystemTime,
    pub(super) client: Option<IpAddr>,
    /// The user that a trusted proxy has authenticated.
    pub(super) user: Option<HeaderValue>,
    pub(super) method: Method,
    pub(super) target: Uri,
    pub(super) protocol: Version,
    pub(super) status: u16,
    pub(super) referrer: Option<HeaderValue>,
    pub(super) user_agent: Option<HeaderValue>,
    /// The version that was served when the request arrived.
    pub(super) version: Option<VersionId>,
}

/// Copies a field value, cut to [`MAX_STORED_VALUE_BYTES`] bytes: a response to a slow client must not hold the whole
/// request head in memory.
pub(super) fn truncate_value(value: &HeaderValue) -> HeaderValue {
    // A prefix of a valid value is valid.
    let part = value.as_bytes().get(..MAX_STORED_VALUE_BYTES).and_then(|part| HeaderValue::from_bytes(part).ok());
    part.unwrap_or_else(|| value.clone())
}

/// Copies a request target, cut to [`MAX_STORED_VALUE_BYTES`] bytes for the same reason as [`truncate_value`].
pub(super) fn truncate_target(target: &Uri) -> Uri {
    let path = target.path();
    if target.path_and_query().is_none_or(|all| all.as_str().len() <= MAX_STORED_VALUE_BYTES) {
        return target.clone();
    }
    path[..path.floor_char_boundary(MAX_STORED_VALUE_BYTES)].parse().unwrap_or_else(|_| target.clone())
}

impl AccessLogLine {
    /// Returns the line with its line feed; `bytes` of the body were sent within `duration`.
    pub(super) fn format(&self, format: AccessLogFormat, bytes: u64, duration: Duration) -> String {
        let mut out = String::with_capacity(320);
        match format {
            AccessLogFormat::Json => self.append_json(&mut out, bytes, duration),
            AccessLogFormat::Combined => self.append_combined(&mut out, bytes, duration),
        }
        out.push('\n');
        out
    }

    fn append_json(&self, out: &mut String, bytes: u64, duration: Duration) {
        // Writing to a String does not fail.
        let _ = write!(out, "{{\"time\":\"{:.3}\"", timestamp(self.time));
        if let Some(client) = self.client {
            let _ = write!(out, ",\"client\":\"{client}\"");
        }
        for (name, value) in [
            ("user", self.user.as_ref().map(|user| user.as_bytes().trim_ascii())),
            ("method", Some(self.method.as_str().as_bytes())),
            ("target", Some(self.logged_target())),
            ("referrer", self.referrer.as_ref().map(|referrer| without_query(referrer.as_bytes()))),
            ("userAgent", self.user_agent.as_ref().map(HeaderValue::as_bytes)),
        ] {
            if let Some(value) = value {
                let _ = write!(out, ",\"{name}\":\"");
                escape_json(out, value);
                out.push('"');
            }
        }
        let _ = write!(
            out,
            ",\"protocol\":\"{:?}\",\"status\":{},\"bytes\":{bytes},\"seconds\":{:.6}",
            self.protocol,
            self.status,
            duration.as_secs_f64()
        );
        if let Some(version) = self.version {
            let _ = write!(out, ",\"version\":\"{}\"", version.short());
        }
        out.push('}');
    }

    fn append_combined(&self, out: &mut String, bytes: u64, duration: Duration) {
        match self.client {
            Some(client) => {
                let _ = write!(out, "{client} - ");
            }
            None => out.push_str("- - "),
        }
        // Fields are separated by spaces: a space in a user name would shift all fields after it.
        match &self.user {
            Some(user) => escape_combined(out, user.as_bytes().trim_ascii(), b" "),
            None => out.push('-'),
        }
        let _ = write!(out, " [{}] \"", timestamp(self.time).strftime("%d/%b/%Y:%H:%M:%S +0000"));
        escape_combined(out, self.method.as_str().as_bytes(), b"");
        out.push(' ');
        escape_combined(out, self.logged_target(), b"");
        let _ = write!(out, " {:?}\" {} {bytes}", self.protocol, self.status);
        for value in [
            self.referrer.as_ref().map(|r| without_query(r.as_bytes())),
            self.user_agent.as_ref().map(HeaderValue::as_bytes),
        ] {
            out.push_str(" \"");
            match value {
                Some(value) => escape_combined(out, value, b""),
                None => out.push('-'),
            }
            out.push('"');
        }
        let _ = write!(out, " {:.6} ", duration.as_secs_f64());
        match self.version {
            Some(version) => out.push_str(&version.short()),
            None => out.push('-'),
        }
    }

    /// Returns the path of the target (`*` for `OPTIONS *`), or the authority of one that has no path.
    fn logged_target(&self) -> &[u8] {
        // A target in authority form has no path.
        match self.target.path() {
            "" => self.target.authority().map_or(&b"-"[..], |authority| authority.as_str().as_bytes()),
            path => path.as_bytes(),
        }
    }
}

fn timestamp(time: SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn without_query(link: &[u8]) -> &[u8] {
    let end = link.iter().position(|&b| b == b'?' || b == b'#').unwrap_or(link.len());
    &link[..end]
}

/// Ends the value that begins at `begin` if it has become too long, and returns whether it has.
fn end_if_full(out: &mut String, begin: usize, end: usize) -> bool {
    if out.len() - begin <= MAX_VALUE_BYTES {
        return false;
    }
    // `end` is the last length that fitted, so no escape sequence is cut.
    out.truncate(end);
    out.push_str("...");
    true
}

/// Appends a value as the inside of a JSON string. Invalid UTF-8 becomes U+FFFD. Invisible characters, and those that
/// some programs treat as line ends, are escaped by number.
fn escape_json(out: &mut String, value: &[u8]) {
    let begin = out.len();
    for c in String::from_utf8_lossy(&value[..value.len().min(MAX_STORED_VALUE_BYTES)]).chars() {
        let end = out.len();
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            // Control characters, line separators, and characters that change the direction of text.
            c if c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}') => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
        if end_if_full(out, begin, end) {
            return;
        }
    }
}

/// Appends a value with every byte that is not printable ASCII as `\xHH`, as nginx does; and so are the bytes in
/// `extra`.
fn escape_combined(out: &mut String, value: &[u8], extra: &[u8]) {
    let begin = out.len();
    if value.is_empty() {
        out.push('-');
    }
    for &byte in &value[..value.len().min(MAX_STORED_VALUE_BYTES)] {
        let end = out.len();
        match byte {
            b' '..=b'~' if !matches!(byte, b'"' | b'\\') && !extra.contains(&byte) => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "\\x{byte:02X}");
            }
        }
        if end_if_full(out, begin, end) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(user_agent: &[u8]) -> AccessLogLine {
        AccessLogLine {
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_250),
            client: Some("192.0.2.0".parse().unwrap()),
            user: None,
            method: Method::GET,
            target: "/guide?q=secret".parse().unwrap(),
            protocol: Version::HTTP_11,
            status: 200,
            referrer: Some(HeaderValue::from_static("https://search.example/?q=secret")),
            user_agent: HeaderValue::from_bytes(user_agent).ok(),
            version: None,
        }
    }

    #[test]
    fn logged_ipv4_addresses_are_truncated_to_24_bits_and_ipv6_addresses_to_48() {
        for (mode, address, expected) in [
            (LoggedAddress::Truncated, "192.0.2.77", Some("192.0.2.0")),
            (LoggedAddress::Truncated, "::ffff:192.0.2.77", Some("192.0.2.0")),
            (LoggedAddress::Truncated, "2001:db8:1:2:3:4:5:6", Some("2001:db8:1::")),
            (LoggedAddress::Full, "::ffff:192.0.2.77", Some("192.0.2.77")),
            (LoggedAddress::None, "192.0.2.77", None),
        ] {
            let logged = mode.apply(address.parse().unwrap()).map(|address| address.to_string());
            assert_eq!(logged.as_deref(), expected, "{mode:?} {address}");
        }
    }

    #[test]
    fn an_access_log_line_contains_the_request_fields_without_the_query() {
        let combined = line(b"curl/8").format(AccessLogFormat::Combined, 5, Duration::from_micros(1500));
        assert_eq!(
            combined,
            "192.0.2.0 - - [14/Nov/2023:22:13:20 +0000] \"GET /guide HTTP/1.1\" 200 5 \"https://search.example/\" \
             \"curl/8\" 0.001500 -\n"
        );
        let json = line(b"curl/8").format(AccessLogFormat::Json, 5, Duration::from_micros(1500));
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["time"], "2023-11-14T22:13:20.250Z");
        assert_eq!((&json["bytes"], &json["seconds"]), (&5.into(), &0.0015.into()));
        assert!(!json.to_string().contains("secret") && json.get("user").is_none());
    }

    #[test]
    fn access_log_values_cannot_inject_lines_or_terminal_control_sequences() {
        // Every byte that a field value may have, alone and between others.
        let bytes: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![b'a', byte, b'"', byte, 0xc2, byte]).collect();
        let more =
            ["x\u{2028}y\u{202e}z\u{9b}31m", "\" 200 1 \"-\" \"-\"", "\\\"", "\u{85}"].map(|s| s.as_bytes().to_vec());
        for user_agent in bytes.into_iter().chain(more).filter(|bytes| HeaderValue::from_bytes(bytes).is_ok()) {
            let json = line(&user_agent).format(AccessLogFormat::Json, 5, Duration::ZERO);
            let text = json.strip_suffix('\n').unwrap();
            assert!(!text.chars().any(|c| c.is_control() || ('\u{2028}'..='\u{202e}').contains(&c)), "{text:?}");
            let read: serde_json::Value = serde_json::from_str(text).unwrap();
            assert_eq!(read["userAgent"], String::from_utf8_lossy(&user_agent).as_ref());
            assert_eq!(read["status"], 200);
            let combined = line(&user_agent).format(AccessLogFormat::Combined, 5, Duration::ZERO);
            let text = combined.strip_suffix('\n').unwrap();
            assert!(text.bytes().all(|b| (b' '..=b'~').contains(&b)), "{text:?}");
            assert_eq!(text.matches('"').count(), 6, "{text:?}");
        }
    }

    // Regression: long addresses and user agents were not truncated in the access log, so its queue took 279 MB.
    #[test]
    fn long_access_log_values_are_truncated_including_their_escape_sequences() {
        let values =
            [vec![b'x'; 60_000], vec![b'\t'; 60_000], vec![0xff; 60_000], "\u{202e}".repeat(9_000).into_bytes()];
        for format in [AccessLogFormat::Combined, AccessLogFormat::Json] {
            for value in &values {
                let mut line = line(value);
                line.user = line.user_agent.clone();
                line.referrer = line.user_agent.clone();
                line.target = format!("/{}", "%09".repeat(20_000)).parse().unwrap();
                let text = line.format(format, 5, Duration::ZERO);
                assert!(text.len() < 5 * MAX_VALUE_BYTES && text.matches("...").count() >= 3, "{} bytes", text.len());
                assert!(
                    format == AccessLogFormat::Combined || serde_json::from_str::<serde_json::Value>(&text).is_ok()
                );
            }
        }
    }

    #[test]
    fn stored_field_values_and_targets_are_truncated_to_the_loggable_length() {
        let long = HeaderValue::from_bytes(&vec![b'x'; 60_000]).unwrap();
        assert_eq!(truncate_value(&long).len(), MAX_STORED_VALUE_BYTES);
        assert_eq!(truncate_value(&HeaderValue::from_static("curl/8")), "curl/8");
        let target: Uri = format!("/{}?{}", "é".repeat(3_000), "q".repeat(9_000)).parse().unwrap();
        let path = truncate_target(&target).path().to_owned();
        assert!(
            path.len() > MAX_VALUE_BYTES && path.len() <= MAX_STORED_VALUE_BYTES && target.path().starts_with(&path),
            "{}",
            path.len()
        );
    }

    #[test]
    fn access_log_values_are_in_their_columns_and_absent_values_are_marked() {
        let seconds = Duration::from_millis(1500);
        let version = VersionId(docwharf_base::model::digest::Digest::compute(b"x"));
        let full = AccessLogLine {
            user: Some(HeaderValue::from_static(" anna \\ b ")),
            version: Some(version),
            status: 404,
            method: Method::HEAD,
            ..line(b"x")
        };
        let short = version.short();
        assert_eq!(
            full.format(AccessLogFormat::Combined, 7, seconds),
            format!(
                "192.0.2.0 - anna\\x20\\x5C\\x20b [14/Nov/2023:22:13:20 +0000] \"HEAD /guide HTTP/1.1\" 404 7 \
                 \"https://search.example/\" \"x\" 1.500000 {short}\n"
            )
        );
        let json: serde_json::Value = serde_json::from_str(&full.format(AccessLogFormat::Json, 7, seconds)).unwrap();
        let expected = serde_json::json!({
            "time": "2023-11-14T22:13:20.250Z", "client": "192.0.2.0", "user": "anna \\ b", "method": "HEAD",
            "target": "/guide", "referrer": "https://search.example/", "userAgent": "x", "protocol": "HTTP/1.1",
            "status": 404, "bytes": 7, "seconds": 1.5, "version": short,
        });
        assert_eq!(json, expected);
        let empty = AccessLogLine { client: None, referrer: None, user_agent: None, ..line(b"x") };
        let text = empty.format(AccessLogFormat::Combined, 0, seconds);
        assert!(text.starts_with("- - - [") && text.ends_with("\" 200 0 \"-\" \"-\" 1.500000 -\n"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&empty.format(AccessLogFormat::Json, 0, seconds)).unwrap();
        for name in ["client", "user", "referrer", "userAgent", "version"] {
            assert!(json.get(name).is_none(), "{name}");
        }
    }

    #[test]
    fn queries_and_fragments_are_removed_from_logged_referrers_and_targets() {
        for (referrer, expected) in [
            ("https://x.example/a?q=secret", "https://x.example/a"),
            ("https://x.example/a#secret", "https://x.example/a"),
            ("https://x.example/a#secret?b", "https://x.example/a"),
            ("?secret", ""),
            ("/a", "/a"),
        ] {
            let line = AccessLogLine { referrer: Some(HeaderValue::from_static(referrer)), ..line(b"x") };
            let json: serde_json::Value =
                serde_json::from_str(&line.format(AccessLogFormat::Json, 0, Duration::ZERO)).unwrap();
            assert_eq!(json["referrer"], expected, "{referrer}");
            let combined = line.format(AccessLogFormat::Combined, 0, Duration::ZERO);
            let expected = if expected.is_empty() { "-" } else { expected };
            assert!(combined.contains(&format!(" \"{expected}\" \"x\" ")), "{combined}");
        }
        for (target, expected) in [("*", "*"), ("x.example:80", "x.example:80"), ("/a?secret", "/a")] {
            let line = AccessLogLine { target: target.parse().unwrap(), ..line(b"x") };
            let combined = line.format(AccessLogFormat::Combined, 0, Duration::ZERO);
            assert!(combined.contains(&format!("\"GET {expected} HTTP/1.1\"")), "{combined}");
        }
    }

    #[test]
    fn an_access_log_value_is_truncated_only_above_its_maximum_length() {
        for (len, expected) in [
            (MAX_VALUE_BYTES - 1, false),
            (MAX_VALUE_BYTES, false),
            (MAX_VALUE_BYTES + 1, true),
            (MAX_STORED_VALUE_BYTES + 1, true),
        ] {
            for format in [AccessLogFormat::Combined, AccessLogFormat::Json] {
                let text = line(&vec![b'x'; len]).format(format, 5, Duration::ZERO);
                let shown = if expected {
                    format!("\"{}...\"", "x".repeat(MAX_VALUE_BYTES))
                } else {
                    format!("\"{}\"", "x".repeat(len))
                };
                assert!(text.contains(&shown), "{len} in {format:?}");
            }
        }
        for (len, expected) in [
            (MAX_STORED_VALUE_BYTES - 1, MAX_STORED_VALUE_BYTES - 1),
            (MAX_STORED_VALUE_BYTES, MAX_STORED_VALUE_BYTES),
            (MAX_STORED_VALUE_BYTES + 1, MAX_STORED_VALUE_BYTES),
        ] {
            assert_eq!(truncate_value(&HeaderValue::from_bytes(&vec![b'x'; len]).unwrap()).len(), expected);
            let target: Uri = format!("/{}?q", "x".repeat(len - 3)).parse().unwrap();
            let is_whole = truncate_target(&target) == target;
            assert_eq!(is_whole, len <= MAX_STORED_VALUE_BYTES, "the target with its query has {len} bytes");
            assert_eq!(truncate_target(&target).path(), target.path());
        }
    }
}
