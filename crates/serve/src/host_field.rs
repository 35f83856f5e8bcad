//! Checks hosts: the value of a Host field, or of `:authority` in HTTP/2. Pure.

use http::HeaderValue;
use http::uri::Authority;

/// Returns whether a Host field is a host and an optional port, and nothing else (RFC 9112, 3.2).
pub fn is_host(value: &HeaderValue) -> bool {
    is_plain_host(value.as_bytes()) || is_authority_host(value)
}

fn is_authority_host(value: &HeaderValue) -> bool {
    let Some(authority) = value.to_str().ok().and_then(|text| text.parse::<Authority>().ok()) else { return false };
    let text = authority.as_str();
    let host = authority.host();
    let port = &text[text.find(host).map_or(0, |at| at + host.len())..];
    let is_valid_port =
        port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()));
    let is_valid_host = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']').is_some_and(|v6| v6.parse::<std::net::Ipv6Addr>().is_ok()),
        None => !host.is_empty(),
    };
    !text.contains('@') && is_valid_host && is_valid_port
}

/// Returns whether `host` is a name or an IPv4 address, with or without a port, as nearly every request has it. Other
/// values may be valid as well.
pub(super) fn is_plain_host(host: &[u8]) -> bool {
    let end = host.iter().position(|&b| b == b':').unwrap_or(host.len());
    let (name, port) = (&host[..end], host.get(end + 1..).unwrap_or_default());
    !name.is_empty()
        && name.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'))
        && port.iter().all(u8::is_ascii_digit)
}

/// Returns whether `Host` names the same host as `:authority`, if that is present (RFC 9113, section 8.3.1). The
/// default port of the scheme may be omitted.
pub(super) fn is_same_host(scheme: &[u8], authority: &[u8], host: &[u8]) -> bool {
    let port: &[u8] = if scheme == b"https" { b":443" } else { b":80" };
    let without_port = |text| <[u8]>::strip_suffix(text, port).or_else(|| text.strip_suffix(b":")).unwrap_or(text);
    authority.is_empty() || without_port(authority).eq_ignore_ascii_case(without_port(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_and_perhaps_a_port() {
        for good in [
            "x",
            "x:80",
            "x:",
            "docs.example.com",
            "docs.example.com.",
            "a_b:8080",
            "127.0.0.1:8080",
            "[::1]",
            "[::1]:80",
            "[::1]:",
            "[2001:db8::7]:65535",
        ] {
            assert!(is_host(&HeaderValue::from_static(good)), "{good}");
        }
        for wrong in [
            "",
            ":80",
            "x:y",
            "x:80:90",
            "x y",
            "x/y",
            "x?y",
            "x#y",
            "user@x",
            "user:secret@x",
            "@x",
            "[::1",
            "::1",
            "[]",
            "[zz]",
            "[::1]x",
            "[::1]:x",
            "[::1]80",
            "[127.0.0.1]",
            "x@[::1]",
        ] {
            assert!(!is_host(&HeaderValue::from_static(wrong)), "{wrong}");
        }
        assert!(!is_host(&HeaderValue::from_bytes("bücher".as_bytes()).unwrap()));
    }

    #[test]
    fn plain_hosts_contain_only_letters_digits_dots_hyphens_and_a_port() {
        for (host, expected) in [
            ("x", true),
            ("x:80", true),
            ("x:", true),
            ("docs-1.example.com:8080", true),
            ("127.0.0.1", true),
            ("", false),
            (":80", false),
            ("x:8a", false),
            ("x:80:", false),
            ("x:-1", false),
            ("a_b", false),
            ("[::1]", false),
            ("x/", false),
            ("user@x", false),
            ("b\u{fc}cher", false),
        ] {
            assert_eq!(is_plain_host(host.as_bytes()), expected, "{host}");
        }
    }
}
