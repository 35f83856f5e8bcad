//! The header fields of a request by which views are counted. They are collected while a request is parsed, because a
//! request that is answered from the response cache has no header map. Pure.

use http::uri::Authority;
use http::{HeaderMap, Uri};
use memchr::memchr;

/// The destination of a request (`Sec-Fetch-Dest`, Fetch Metadata Request Headers).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FetchDestination {
    /// The client does not name it.
    #[default]
    Unknown,
    /// A document that a browser shows in a tab or a window.
    Document,
    /// Anything else, such as an image, a frame or data for a script.
    Other,
}

/// The site whose page led to a request (`Sec-Fetch-Site`, Fetch Metadata Request Headers).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FetchSite {
    /// The client does not name it.
    #[default]
    Unknown,
    /// The site of the request itself.
    SameOrigin,
    /// Another site, or none.
    Other,
}

/// The fields of one request. Values are those of the first field of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RecordedFields<'a> {
    /// `User-Agent`; empty if absent.
    pub(crate) user_agent: &'a [u8],
    /// `Referer`; empty if absent.
    pub(crate) referrer: &'a [u8],
    /// `Host` or `:authority`; empty if absent.
    pub(crate) host: &'a [u8],
    pub(crate) destination: FetchDestination,
    pub(crate) site: FetchSite,
    /// Whether the client fetches in advance what a reader may never see.
    pub(crate) is_prefetch: bool,
    /// Whether the reader objects to being counted (`Sec-GPC`, Global Privacy Control, or `DNT`).
    pub(crate) is_opted_out: bool,
}

impl<'a> RecordedFields<'a> {
    /// Collects the fields of a parsed request. In HTTP/2, the target has the host (`:authority`).
    pub(crate) fn from_request(target: &'a Uri, headers: &'a HeaderMap) -> RecordedFields<'a> {
        let authority = target.authority().map_or("", Authority::as_str);
        let mut fields = RecordedFields { host: authority.as_bytes(), ..RecordedFields::default() };
        for (name, value) in headers {
            fields.add(name.as_str().as_bytes(), value.as_bytes());
        }
        fields
    }

    /// Adds one field. The case of its name does not matter.
    #[inline]
    pub(crate) fn add(&mut self, name: &[u8], value: &'a [u8]) {
        let is = |expected: &[u8]| name.eq_ignore_ascii_case(expected);
        match name.len() {
            10 if is(b"user-agent") => set_first(&mut self.user_agent, value),
            7 if is(b"referer") => set_first(&mut self.referrer, value),
            7 if is(b"sec-gpc") => self.is_opted_out |= value == b"1",
            3 if is(b"dnt") => self.is_opted_out |= value == b"1",
            4 if is(b"host") => set_first(&mut self.host, value),
            14 if is(b"sec-fetch-dest") => {
                self.destination =
                    if value == b"document" { FetchDestination::Document } else { FetchDestination::Other };
            }
            14 if is(b"sec-fetch-site") => {
                self.site = if value == b"same-origin" { FetchSite::SameOrigin } else { FetchSite::Other };
            }
            7 if is(b"purpose") => self.is_prefetch |= is_prefetch_value(value),
            11 if is(b"sec-purpose") => self.is_prefetch |= is_prefetch_value(value),
            5 if is(b"x-moz") => self.is_prefetch |= is_prefetch_value(value),
            _ => {}
        }
    }

    /// Returns whether the request may be one of a reader who looks at a page now.
    pub(crate) fn may_be_view(&self) -> bool {
        !self.is_prefetch && self.destination != FetchDestination::Other
    }

    /// Returns the host of the page that led here, in lower case and without its port; `None` if it is not known or is
    /// the host of the request itself.
    pub(crate) fn referring_host(&self) -> Option<String> {
        if self.site == FetchSite::SameOrigin {
            return None;
        }
        let authority = authority_of(self.referrer)?;
        let (host, own) = (host_of(authority), host_of(self.host));
        if host.is_empty() || host.eq_ignore_ascii_case(own) {
            return None;
        }
        let text = std::str::from_utf8(host).ok()?;
        Some(text.to_ascii_lowercase())
    }

    /// Returns whether a reader begins a visit with this request: another site led here, or none.
    pub(crate) fn is_entry(&self) -> bool {
        match self.site {
            FetchSite::SameOrigin => false,
            FetchSite::Other => true,
            FetchSite::Unknown => authority_of(self.referrer)
                .is_none_or(|authority| !host_of(authority).eq_ignore_ascii_case(host_of(self.host))),
        }
    }

    /// Returns the path and query of the page that led here, if it has a query and is of the host of the request.
    pub(crate) fn own_referrer_target(&self) -> Option<&'a str> {
        // Most referrers have no query, and only one with a query is of interest.
        memchr(b'?', self.referrer)?;
        let authority = authority_of(self.referrer)?;
        if !authority.eq_ignore_ascii_case(self.host) {
            return None;
        }
        let rest = self.referrer.splitn(4, |&byte| byte == b'/').nth(3)?;
        std::str::from_utf8(rest).ok()
    }
}

fn set_first<'a>(slot: &mut &'a [u8], value: &'a [u8]) {
    if slot.is_empty() {
        *slot = value;
    }
}

/// Returns whether the value of `Sec-Purpose`, `Purpose` or `X-Moz` names a prefetch, also `prefetch;prerender`.
fn is_prefetch_value(value: &[u8]) -> bool {
    let word = value.split(|&byte| matches!(byte, b';' | b',' | b' ')).next().unwrap_or_default();
    [&b"prefetch"[..], b"prerender", b"preview"].iter().any(|expected| word.eq_ignore_ascii_case(expected))
}

/// Returns the authority of an http or https URL, without userinfo.
fn authority_of(url: &[u8]) -> Option<&[u8]> {
    let scheme_end = url.iter().position(|&byte| byte == b':')?;
    let (scheme, rest) = url.split_at(scheme_end);
    if !(scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https")) {
        return None;
    }
    let rest = rest.strip_prefix(b"://")?;
    let authority = rest.split(|&byte| matches!(byte, b'/' | b'?' | b'#')).next()?;
    let start = authority.iter().rposition(|&byte| byte == b'@').map_or(0, |at| at + 1);
    authority.get(start..).filter(|authority| !authority.is_empty())
}

/// Returns the host of an authority, without its port.
fn host_of(authority: &[u8]) -> &[u8] {
    match authority.iter().rposition(|&byte| byte == b':') {
        // An IPv6 address has colons between brackets.
        Some(colon) if !authority[colon..].contains(&b']') => &authority[..colon],
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields<'a>(list: &[(&'a str, &'a str)]) -> RecordedFields<'a> {
        let mut fields = RecordedFields::default();
        for (name, value) in list {
            fields.add(name.as_bytes(), value.as_bytes());
        }
        fields
    }

    #[test]
    fn prefetches_and_requests_of_other_things_than_documents_are_no_views() {
        for (name, value, expected) in [
            ("Accept", "text/html", true),
            ("Sec-Fetch-Dest", "document", true),
            ("Sec-Fetch-Dest", "iframe", false),
            ("Sec-Fetch-Dest", "empty", false),
            ("Sec-Fetch-Dest", "image", false),
            ("Sec-Purpose", "prefetch", false),
            ("sec-purpose", "prefetch;prerender", false),
            ("Purpose", "prefetch", false),
            ("Purpose", "preview", false),
            ("X-Moz", "prefetch", false),
            ("Purpose", "other", true),
        ] {
            assert_eq!(fields(&[(name, value)]).may_be_view(), expected, "{name}: {value}");
        }
    }

    #[test]
    fn a_reader_opts_out_with_global_privacy_control_or_do_not_track() {
        for (name, value, expected) in
            [("Sec-GPC", "1", true), ("DNT", "1", true), ("DNT", "0", false), ("Sec-GPC", "?1", false)]
        {
            assert_eq!(fields(&[(name, value)]).is_opted_out, expected, "{name}: {value}");
        }
    }

    #[test]
    fn only_the_host_of_another_site_is_taken_from_a_referrer() {
        for (referrer, expected) in [
            ("https://Search.Example/x?q=secret", Some("search.example")),
            ("http://user:password@other.example:8080/", Some("other.example")),
            ("https://[2001:db8::1]:443/a", Some("[2001:db8::1]")),
            ("https://docs.example/a", None),
            ("https://docs.example:8443/a", None),
            ("android-app://com.example/", None),
            ("about:blank", None),
            ("https://", None),
            ("", None),
            ("/a", None),
        ] {
            let list = [("Host", "docs.example"), ("Referer", referrer)];
            assert_eq!(fields(&list).referring_host().as_deref(), expected, "{referrer}");
            // Behind a proxy that changes Host, the browser knows better.
            let from_browser = [&list[..], &[("Sec-Fetch-Site", "same-origin")]].concat();
            assert_eq!(fields(&from_browser).referring_host(), None, "{referrer}");
        }
    }

    #[test]
    fn an_entry_comes_from_another_site_or_from_none() {
        let host = ("Host", "docs.example:8080");
        for (list, expected) in [
            (&[host, ("Sec-Fetch-Site", "same-origin")][..], false),
            (&[host, ("Sec-Fetch-Site", "none")], true),
            (&[host, ("Sec-Fetch-Site", "cross-site"), ("Referer", "http://docs.example:8080/")], true),
            (&[host], true),
            (&[host, ("Referer", "http://docs.example:8080/a")], false),
            (&[host, ("Referer", "https://other.example/")], true),
            (&[host, ("Referer", "mailto:a@docs.example")], true),
        ] {
            assert_eq!(fields(list).is_entry(), expected, "{list:?}");
        }
    }

    #[test]
    fn the_target_of_a_referrer_is_known_only_for_a_page_of_this_host() {
        let target = |referrer| fields(&[("Host", "x:80"), ("Referer", referrer)]).own_referrer_target();
        assert_eq!(target("http://x:80/docs/_docwharf/search?q=a"), Some("docs/_docwharf/search?q=a"));
        assert_eq!(target("http://X:80/?q"), Some("?q"));
        for referrer in ["http://x/a?q", "http://y:80/a?q", "http://x:80?q", "http://x:80/a", ""] {
            assert_eq!(target(referrer), None, "{referrer}");
        }
    }

    #[test]
    fn fields_of_a_header_map_are_those_of_a_parsed_head() {
        let list = [
            ("host", "docs.example"),
            ("user-agent", "Mozilla/5.0"),
            ("referer", "https://a.example/"),
            ("sec-fetch-dest", "document"),
            ("sec-fetch-site", "cross-site"),
            ("sec-gpc", "1"),
        ];
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.insert(name, http::HeaderValue::from_static(value));
        }
        assert_eq!(RecordedFields::from_request(&Uri::from_static("/"), &headers), fields(&list));
        headers.remove("host");
        let target = Uri::from_static("http://docs.example/a");
        assert_eq!(RecordedFields::from_request(&target, &headers), fields(&list), "as in HTTP/2");
    }
}
