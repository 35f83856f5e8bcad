//! Decides whether a page of the site itself has sent a request (RFC 6454, section 7), and whether the host that the
//! request names is one of the site's.
//!
//! A page of another site may send requests to this one, and a browser then names that other site in `Origin`. Host
//! and port of `Origin` are therefore compared with those of `Host`. That does not suffice where a request has effects
//! beyond the site: a page whose name was rebound to the address of this server (DNS rebinding) has the same host in
//! both. Such resources also require a host that cannot be rebound, or that the operator has listed.

use std::sync::atomic::{AtomicI64, Ordering};

use http::HeaderValue;
use http::header::{HOST, ORIGIN};
use http::uri::Authority;

use docwharf_base::clock::now_unix_seconds;

use super::named_host::{HTTP_PORT, HTTPS_PORT, HostAndPort, HostList};
use super::request_context::RequestContext;

/// The smallest interval between two messages about untrusted hosts, in seconds.
const LOG_INTERVAL_SECONDS: i64 = 60;

/// The origin of a page: scheme, host and port (RFC 6454, section 4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PageOrigin {
    is_https: bool,
    host: HostAndPort,
}

impl PageOrigin {
    /// Parses the value of an Origin field; `None` if it is `null`, has another scheme than http or https, or is
    /// malformed.
    fn parse(value: &HeaderValue) -> Option<PageOrigin> {
        let text = value.to_str().ok()?;
        let (scheme, host) = text.split_once("://")?;
        let is_https = scheme.eq_ignore_ascii_case("https");
        if !is_https && !scheme.eq_ignore_ascii_case("http") {
            return None;
        }
        let host = HostAndPort::parse(&HeaderValue::from_str(host).ok()?)?;
        Some(PageOrigin { is_https, host })
    }

    /// Returns the host and the port.
    pub(super) fn host(&self) -> &HostAndPort {
        &self.host
    }

    /// Returns whether `Host` names the host and the port of this origin.
    fn has_host(&self, host: &HostAndPort) -> bool {
        let default_port = if self.is_https { HTTPS_PORT } else { HTTP_PORT };
        let port = |host: &HostAndPort| host.port.unwrap_or(default_port);
        let own = self.host();
        own.host == host.host && port(own) == port(host)
    }
}

/// The Origin fields of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RequestOrigin {
    /// There is none: the client is not a browser, or a browser that sends a GET request to the site's own host.
    Absent,
    /// There is one.
    Page(PageOrigin),
    /// The field is `null`, malformed, or not the only one.
    Unusable,
}

impl RequestOrigin {
    /// Reads the Origin fields of a request.
    pub(super) fn read(context: &RequestContext<'_>) -> RequestOrigin {
        let mut values = context.headers().get_all(ORIGIN).iter();
        match (values.next(), values.next()) {
            (None, _) => RequestOrigin::Absent,
            (Some(value), None) => PageOrigin::parse(value).map_or(RequestOrigin::Unusable, RequestOrigin::Page),
            (Some(_), Some(_)) => RequestOrigin::Unusable,
        }
    }
}

/// Returns the authority that a request names: that of its target, else of `Host` (RFC 9112, section 3.2.2; RFC 9113,
/// section 8.3.1). It may have user information.
pub(super) fn requested_authority(context: &RequestContext<'_>) -> Option<Authority> {
    match context.target().authority() {
        Some(authority) => Some(authority.clone()),
        None => context.headers().get(HOST)?.to_str().ok()?.parse().ok(),
    }
}

/// Returns the host and port that a request names.
pub(super) fn requested_host(context: &RequestContext<'_>) -> Option<HostAndPort> {
    HostAndPort::parse(&HeaderValue::from_str(requested_authority(context)?.as_str()).ok()?)
}

/// Returns whether a page of the site itself has sent the request: it has one Origin, with the requested host and port,
/// and with the scheme that a trusted proxy states, else that of the connection. Without such a proxy, https is
/// accepted on a connection that is not encrypted, because an unknown proxy may decrypt it.
pub(super) fn is_own_origin(context: &RequestContext<'_>) -> bool {
    let RequestOrigin::Page(origin) = RequestOrigin::read(context) else { return false };
    let client = context.client();
    let is_own_scheme =
        origin.is_https == client.is_https || (origin.is_https && !client.is_scheme_stated && !client.is_https);
    is_own_scheme && requested_host(context).is_some_and(|host| origin.has_host(&host))
}

/// Returns whether the requested host cannot be that of another site whose name was rebound to this server: it is this
/// machine, an IP address, or listed in `assistant.hosts`.
pub(super) fn has_trusted_host(context: &RequestContext<'_>, hosts: &HostList) -> bool {
    requested_host(context).is_some_and(|host| host.is_address() || host.is_loopback() || host.is_listed(hosts))
}

/// The log of requests for one resource that are refused because [`has_trusted_host`] does not trust their host. It has
/// at most one line a minute, because any client can cause it.
#[derive(Debug)]
pub(super) struct UntrustedHostLog {
    resource: &'static str,
    /// The Unix time from which the next line may be written.
    next: AtomicI64,
}

impl UntrustedHostLog {
    /// Creates the log of a resource, whose path within the site its lines name.
    pub(super) const fn new(resource: &'static str) -> UntrustedHostLog {
        UntrustedHostLog { resource, next: AtomicI64::new(0) }
    }

    /// Logs that a request is refused, unless that was logged less than a minute ago.
    pub(super) fn warn(&self, context: &RequestContext<'_>) {
        if !self.is_due(now_unix_seconds()) {
            return;
        }
        let host = requested_host(context).map_or_else(|| "no host".to_owned(), |host| host.host.describe());
        let resource = self.resource;
        tracing::warn!("{resource} refused a request for {host}; if readers use this host, add it to assistant.hosts");
    }

    /// Returns whether a line may be written at this Unix time, and defers the next one if so.
    fn is_due(&self, now: i64) -> bool {
        let is_due =
            |next: i64| (now >= next || next > now + LOG_INTERVAL_SECONDS).then_some(now + LOG_INTERVAL_SECONDS);
        self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_due).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use docwharf_base::model::cidr::IpRanges;
    use http::Request;

    use super::*;
    use crate::access::{AccessControl, AccessRules};
    use crate::peer::Peer;
    use crate::{Site, SiteSettings};

    const PROXY: [u8; 4] = [10, 0, 0, 1];

    /// Passes a request with these fields, from this peer, to `check`. `:authority` becomes that of the target.
    fn check_request(
        fields: &[(&str, &str)],
        peer: [u8; 4],
        is_encrypted: bool,
        check: impl Fn(&RequestContext<'_>) -> bool,
    ) -> bool {
        let access_control =
            AccessControl { rules: AccessRules::default(), proxies: IpRanges::parse(&["10.0.0.0/8"]).unwrap() };
        let site = Site::new(SiteSettings { access_control, ..SiteSettings::default() });
        let mut request = Request::post("/").body(()).unwrap();
        for &(name, value) in fields {
            if name == ":authority" {
                *request.uri_mut() = format!("https://{value}/").parse().unwrap();
            } else {
                let name: http::HeaderName = name.parse().unwrap();
                request.headers_mut().append(name, value.parse().unwrap());
            }
        }
        check(&RequestContext::new(
            &site,
            &request,
            Some(Peer { address: (peer, 4711).into(), is_encrypted, is_loopback_listener: false }),
        ))
    }

    fn is_own(fields: &[(&str, &str)], peer: [u8; 4], is_encrypted: bool) -> bool {
        check_request(fields, peer, is_encrypted, is_own_origin)
    }

    const CLIENT: [u8; 4] = [203, 0, 113, 7];

    #[test]
    fn an_origin_is_the_sites_own_if_its_host_and_port_are_those_of_the_request() {
        for (host, origin, expected) in [
            ("docs.example", "https://docs.example", true),
            ("docs.example", "http://docs.example", true),
            ("DOCS.example", "HTTP://docs.EXAMPLE", true),
            ("docs.example:443", "https://docs.example", true),
            ("docs.example", "https://docs.example:443", true),
            ("docs.example:80", "http://docs.example", true),
            ("docs.example:", "http://docs.example", true),
            ("docs.example:8080", "http://docs.example:8080", true),
            ("127.0.0.1:8080", "http://127.0.0.1:8080", true),
            ("[::1]:8080", "http://[::1]:8080", true),
            ("[0:0::1]", "http://[::1]", true),
            ("docs.example:80", "https://docs.example", false),
            ("docs.example:443", "http://docs.example", false),
            ("docs.example:8080", "http://docs.example", false),
            ("docs.example", "http://docs.example:8080", false),
            ("docs.example:8080", "http://docs.example:8081", false),
            ("docs.example", "http://example", false),
            ("docs.example", "http://docs.example.evil.example", false),
            ("docs.example", "http://evil.example", false),
            ("[::1]", "http://[::2]", false),
            ("[::1]", "http://::1", false),
            ("docs.example", "null", false),
            ("docs.example", "", false),
            ("docs.example", "docs.example", false),
            ("docs.example", "ftp://docs.example", false),
            ("docs.example", "http://docs.example/", false),
            ("docs.example", "http://docs.example/x", false),
            ("docs.example", "http://evil.example@docs.example", false),
            ("docs.example", "http://docs.example http://docs.example", false),
            ("docs.example", "http://docs.example:65537", false),
            ("docs.example", "http://docs.example:x", false),
        ] {
            assert_eq!(is_own(&[("host", host), ("origin", origin)], CLIENT, false), expected, "{host} {origin}");
        }
    }

    #[test]
    fn a_request_without_an_origin_or_with_several_is_not_from_the_site_itself() {
        let (host, own) = (("host", "x"), ("origin", "http://x"));
        assert!(is_own(&[host, own], CLIENT, false));
        assert!(!is_own(&[host], CLIENT, false));
        assert!(!is_own(&[host, own, own], CLIENT, false));
        assert!(!is_own(&[host, own, ("origin", "http://evil.example")], CLIENT, false));
        assert!(!is_own(&[own], CLIENT, false));
    }

    #[test]
    fn the_authority_of_the_target_is_the_requested_host() {
        let authority = (":authority", "docs.example:8443");
        assert!(is_own(&[authority, ("origin", "https://docs.example:8443")], CLIENT, true));
        assert!(!is_own(&[authority, ("origin", "https://docs.example")], CLIENT, true));
        let host = ("host", "evil.example");
        assert!(!is_own(&[authority, host, ("origin", "https://evil.example")], CLIENT, true));
    }

    #[test]
    fn the_scheme_is_that_of_the_connection_or_of_a_trusted_proxy() {
        let x_http = ("x-forwarded-proto", "http");
        let x_https = ("x-forwarded-proto", "https");
        for (peer, is_encrypted, field, allows_http, allows_https) in [
            (CLIENT, false, None, true, true),
            (CLIENT, true, None, false, true),
            (CLIENT, false, Some(x_https), true, true),
            (CLIENT, true, Some(x_http), false, true),
            (PROXY, false, None, true, true),
            (PROXY, true, None, false, true),
            (PROXY, false, Some(x_https), false, true),
            (PROXY, false, Some(x_http), true, false),
            (PROXY, true, Some(x_http), true, false),
            (PROXY, false, Some(("forwarded", "for=192.0.2.1;proto=https")), false, true),
            (PROXY, false, Some(("forwarded", "for=192.0.2.1;proto=http")), true, false),
            (PROXY, false, Some(("forwarded", "for=192.0.2.1")), true, true),
            // What cannot be read does not count as https.
            (PROXY, false, Some(("x-forwarded-for", "unknown")), true, false),
        ] {
            for (origin, expected) in [("http://x", allows_http), ("https://x", allows_https)] {
                let fields: Vec<_> = [("host", "x"), ("origin", origin)].into_iter().chain(field).collect();
                assert_eq!(is_own(&fields, peer, is_encrypted), expected, "{peer:?} {is_encrypted} {fields:?}");
            }
        }
    }

    #[test]
    fn a_host_is_trusted_if_it_is_an_address_or_this_machine_or_listed() {
        let hosts = HostList::parse(&["docs.example", "intern.example:8080", "tls.example:443"]);
        let is_trusted = |host| check_request(&[("host", host)], CLIENT, false, |c| has_trusted_host(c, &hosts));
        for host in [
            "localhost",
            "LocalHost:8080",
            "localhost.",
            "docs.localhost:1",
            "127.0.0.1",
            "127.9.9.9:80",
            "[::1]:80",
            "192.0.2.7:8080",
            "[2001:db8::1]",
            "docs.example",
            "DOCS.example.",
            "docs.example:8443",
            "intern.example:8080",
            "tls.example",
            "tls.example:443",
        ] {
            assert!(is_trusted(host), "{host}");
        }
        for host in [
            "evil.example",
            "xlocalhost",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.1",
            "2130706433",
            "xdocs.example",
            "a.docs.example",
            "docs.example.evil.example",
            "intern.example",
            "intern.example:8081",
            "tls.example:8443",
        ] {
            assert!(!is_trusted(host), "{host}");
        }
        assert!(!check_request(&[], CLIENT, false, |context| has_trusted_host(context, &hosts)));
        let fields = [(":authority", "evil.example"), ("host", "docs.example")];
        assert!(!check_request(&fields, CLIENT, true, |context| has_trusted_host(context, &hosts)));
    }

    #[test]
    fn each_resource_logs_an_untrusted_host_once_a_minute() {
        let (ask, playground) = (UntrustedHostLog::new("ask"), UntrustedHostLog::new("playground"));
        assert!(ask.is_due(1000) && !ask.is_due(1000) && !ask.is_due(1059) && ask.is_due(1060));
        assert!(playground.is_due(1060), "the lines of one resource do not defer those of another");
        // The clock was set back.
        assert!(playground.is_due(100));
    }

    #[test]
    fn hosts_may_be_the_same_with_and_without_a_default_port() {
        let host = |text: &str| HostAndPort::parse(&HeaderValue::from_str(text).unwrap()).unwrap();
        for (one, other, expected) in [
            ("localhost", "localhost:80", true),
            ("localhost:443", "LOCALHOST.", true),
            ("localhost:8080", "localhost:8080", true),
            ("localhost:8080", "localhost", false),
            ("localhost", "docs.example", false),
        ] {
            assert_eq!(host(one).may_be_same(&host(other)), expected, "{one} {other}");
        }
    }
}
