//! Follows redirects. The HTTP client itself follows none, because only the caller knows which origins its request may
//! be sent to.
//!
//! `RedirectChain` decides about each redirect, without a socket. [`follow_redirects`] sends the requests. Every
//! request of docwharf that follows redirects goes through it, so a credential has one place where it could leave its
//! origin (`docs/design/agent.md`, rule 6).

use http::header::{AUTHORIZATION, LOCATION};
use http::{HeaderMap, HeaderValue, Method};
use reqwest::{RequestBuilder, Response};

use crate::secret::SafeUrl;

use super::client::HttpClient;
use super::request_error::{RequestError, RequestErrorCause};

/// The origins that redirects of a request may lead to, and how many of them are followed.
#[derive(Debug, Clone)]
pub struct RedirectPolicy {
    /// The origins that may be requested.
    pub scope: RedirectScope,
    /// Upper bound of the number of redirects.
    pub max_redirects: usize,
}

/// The origins that redirects may lead to. Whether there is an Authorization header depends on it: the two are one
/// value, so that no caller can send a key to any origin.
#[derive(Debug, Clone)]
pub enum RedirectScope {
    /// Any http or https origin, but never from https to http. No request has an Authorization header, except for the
    /// user name and password of its own URL.
    AnyOrigin,
    /// The scheme, host and port of the first request only. Every request has this Authorization header.
    OwnOrigin(HeaderValue),
}

/// The reason why a redirect is not followed. Targets are without secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RedirectRefusal {
    /// The response has no `Location`, or one that is not text.
    #[error("a redirect without a usable Location")]
    NoLocation,
    /// The target is not an http or https URL, for this reason.
    #[error("a redirect with an unusable target: {0}")]
    UnusableTarget(String),
    /// The target has another scheme, host or port than the first request.
    #[error("a redirect to {0}, another origin")]
    OtherOrigin(String),
    /// The target is http, and the request before was https.
    #[error("a redirect from https to plain {0}")]
    LeavesHttps(String),
    /// The target has a user name or a password, which would be sent next to the Authorization header, in a second
    /// field (RFC 9110 sections 4.2.4 and 11.6.2).
    #[error("a redirect to {0} with a user name or a password")]
    Credentials(String),
    /// The status allows a client to replace a POST by a GET (RFC 9110 section 15.4), so it cannot be relied on.
    #[error("a redirect of a POST to {0}")]
    ChangesMethod(String),
    /// There are more redirects than this limit.
    #[error("more than {0} redirects")]
    TooMany(usize),
}

/// The reason why following redirects gave no final response.
#[derive(Debug)]
pub enum FollowRedirectsError {
    /// A request failed.
    Request(RequestError),
    /// A redirect with this status was refused.
    Refused {
        /// The status code of the redirect.
        status: u16,
        /// The reason.
        why: RedirectRefusal,
    },
}

impl From<RequestError> for FollowRedirectsError {
    fn from(error: RequestError) -> FollowRedirectsError {
        FollowRedirectsError::Request(error)
    }
}

impl From<FollowRedirectsError> for RequestError {
    fn from(error: FollowRedirectsError) -> RequestError {
        match error {
            FollowRedirectsError::Request(error) => error,
            FollowRedirectsError::Refused { why, .. } => {
                RequestError::new(RequestErrorCause::RefusedRedirect, why.to_string())
            }
        }
    }
}

/// Whether a response with this status is a redirect that has a `Location` to follow.
fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// The redirects of one request so far. It decides about the next one.
#[derive(Debug)]
struct RedirectChain<'a> {
    policy: &'a RedirectPolicy,
    method: &'a Method,
    first: &'a SafeUrl,
    /// The URL of the current request.
    url: SafeUrl,
    followed: usize,
}

impl<'a> RedirectChain<'a> {
    fn new(policy: &'a RedirectPolicy, method: &'a Method, first: &'a SafeUrl) -> RedirectChain<'a> {
        RedirectChain { policy, method, first, url: first.clone(), followed: 0 }
    }

    /// Moves on to the target of a redirect, if the policy allows it.
    fn follow(&mut self, status: u16, headers: &HeaderMap) -> Result<(), RedirectRefusal> {
        let target = self.check_target(status, headers)?;
        if self.followed == self.policy.max_redirects {
            return Err(RedirectRefusal::TooMany(self.policy.max_redirects));
        }
        self.url = target;
        self.followed += 1;
        Ok(())
    }

    /// Returns the target of a redirect, if the policy allows it.
    fn check_target(&self, status: u16, headers: &HeaderMap) -> Result<SafeUrl, RedirectRefusal> {
        let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
        let target = self.url.join(location.ok_or(RedirectRefusal::NoLocation)?);
        let target = target.map_err(RedirectRefusal::UnusableTarget)?;
        if let RedirectScope::OwnOrigin(_) = self.policy.scope {
            if !target.same_origin(self.first) {
                return Err(RedirectRefusal::OtherOrigin(target.without_secrets()));
            }
            if !target.expose().username().is_empty() || target.expose().password().is_some() {
                return Err(RedirectRefusal::Credentials(target.without_secrets()));
            }
        }
        if self.url.is_encrypted() && !target.is_encrypted() {
            return Err(RedirectRefusal::LeavesHttps(target.without_secrets()));
        }
        if *self.method == Method::POST && matches!(status, 301..=303) {
            return Err(RedirectRefusal::ChangesMethod(target.without_secrets()));
        }
        Ok(target)
    }
}

/// One request of a chain of redirects, which the caller completes and sends.
#[derive(Debug)]
pub struct RedirectHop<'a> {
    http: &'a HttpClient,
    method: &'a Method,
    scope: &'a RedirectScope,
    /// Whether a redirect leads to this request.
    is_redirected: bool,
    /// The URL of the request.
    pub url: &'a SafeUrl,
}

impl RedirectHop<'_> {
    /// Creates the request, with the Authorization header of the policy if there is one. It is an error if the
    /// deployment does not permit a connection to the host of the URL.
    pub fn request(&self) -> Result<RequestBuilder, RequestError> {
        let request = self.http.request(self.method.clone(), self.url).map_err(|error| {
            if !self.is_redirected {
                return error;
            }
            RequestError::new(error.cause, format!("a redirect leads to {}: {error}", self.url.without_secrets()))
        })?;
        Ok(match self.scope {
            RedirectScope::AnyOrigin => request,
            RedirectScope::OwnOrigin(authorization) => request.header(AUTHORIZATION, authorization.clone()),
        })
    }
}

/// Requests `url` and follows redirects as far as `policy` allows. `send` completes and sends each request. Returns the
/// first response that is no redirect, and the URL that it came from.
pub async fn follow_redirects(
    http: &HttpClient,
    method: &Method,
    url: &SafeUrl,
    policy: &RedirectPolicy,
    mut send: impl AsyncFnMut(RedirectHop<'_>) -> Result<Response, RequestError>,
) -> Result<(Response, SafeUrl), FollowRedirectsError> {
    let mut chain = RedirectChain::new(policy, method, url);
    loop {
        let is_redirected = chain.followed > 0;
        let hop = RedirectHop { http, method, scope: &policy.scope, is_redirected, url: &chain.url };
        let response = send(hop).await?;
        let status = response.status().as_u16();
        if !is_redirect(status) {
            return Ok((response, chain.url));
        }
        chain.follow(status, response.headers()).map_err(|why| FollowRedirectsError::Refused { status, why })?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::deployment::OutboundPolicy;
    use crate::net::NetworkSettings;
    use crate::net::client::build_client;

    fn any_origin(max_redirects: usize) -> RedirectPolicy {
        RedirectPolicy { scope: RedirectScope::AnyOrigin, max_redirects }
    }

    fn own_origin(max_redirects: usize) -> RedirectPolicy {
        let scope = RedirectScope::OwnOrigin(HeaderValue::from_static("Bearer dwk_0123456789"));
        RedirectPolicy { scope, max_redirects }
    }

    fn url(text: &str) -> SafeUrl {
        SafeUrl::parse(text).unwrap()
    }

    fn headers(location: Option<&str>) -> HeaderMap {
        location.map(|location| (LOCATION, HeaderValue::from_str(location).unwrap())).into_iter().collect()
    }

    /// Returns where one redirect leads.
    fn target(
        policy: &RedirectPolicy,
        method: &Method,
        status: u16,
        from: &str,
        location: Option<&str>,
    ) -> Result<String, RedirectRefusal> {
        let from = url(from);
        let mut chain = RedirectChain::new(policy, method, &from);
        chain.follow(status, &headers(location)).map(|()| chain.url.expose().to_string())
    }

    #[test]
    fn api_key_follows_redirects_only_within_its_own_origin() {
        let (policy, from) = (own_origin(10), "https://api.example/v1/static-export/jobs");
        let (get, post) = (Method::GET, Method::POST);
        for (location, to) in [
            ("/v2/jobs?x=1", "https://api.example/v2/jobs?x=1"),
            ("queue", "https://api.example/v1/static-export/queue"),
            ("//api.example/x", "https://api.example/x"),
            ("HTTPS://API.example:443/x", "https://api.example/x"),
        ] {
            for status in [301, 302, 303, 307, 308] {
                let result = |method| target(&policy, method, status, from, Some(location));
                assert_eq!(result(&get), Ok(to.to_owned()), "{status} {location}");
                let changes_method = RedirectRefusal::ChangesMethod(url(to).without_secrets());
                let expected = if status < 307 { Err(changes_method) } else { Ok(to.to_owned()) };
                assert_eq!(result(&post), expected, "POST {status} {location}");
            }
        }
        let other_origin = |to: &str| RedirectRefusal::OtherOrigin(to.to_owned());
        let credentials = || RedirectRefusal::Credentials("https://api.example/x".to_owned());
        for (location, refusal) in [
            ("http://api.example/x", other_origin("http://api.example/x")),
            ("https://api.example:444/x", other_origin("https://api.example:444/x")),
            ("https://example/x?token=1", other_origin("https://example/x")),
            ("https://api.example.com/x", other_origin("https://api.example.com/x")),
            ("https://api.example@other/x", other_origin("https://other/x")),
            ("https://someone@api.example/x", credentials()),
            ("https://:word@api.example/x", credentials()),
            ("https://someone:word@api.example/x", credentials()),
            ("ftp://api.example/x", RedirectRefusal::UnusableTarget("it is not http or https but \"ftp\"".to_owned())),
            ("https://[", RedirectRefusal::UnusableTarget("it is not a URL (invalid IPv6 address)".to_owned())),
        ] {
            for method in [&get, &post] {
                let result = target(&policy, method, 307, from, Some(location));
                assert_eq!(result, Err(refusal.clone()), "{method} {location}");
            }
        }
        assert_eq!(target(&policy, &get, 302, from, None), Err(RedirectRefusal::NoLocation));
    }

    #[test]
    fn a_redirect_leads_to_http_and_never_out_of_https() {
        for (from, location, to) in [
            ("https://a/x/y", Some("https://b/z?s=1"), Some("https://b/z?s=1")),
            ("https://a/x/y", Some("/z"), Some("https://a/z")),
            ("https://a/x/y", Some("z"), Some("https://a/x/z")),
            ("https://a/x", Some("http://a/x"), None),
            ("https://a/x", Some("//b/x"), Some("https://b/x")),
            ("http://a/x", Some("https://b/"), Some("https://b/")),
            ("http://a/x", Some("http://b/"), Some("http://b/")),
            ("http://a/x", Some("ftp://b/"), None),
            ("http://a/x", Some("http://["), None),
            ("http://a/x", Some("http://ü/"), None),
            ("http://a/x", None, None),
        ] {
            let location = location.map(str::as_bytes).map(|bytes| HeaderValue::from_bytes(bytes).unwrap());
            let headers: HeaderMap = location.into_iter().map(|location| (LOCATION, location)).collect();
            let (policy, from) = (any_origin(10), url(from));
            let mut chain = RedirectChain::new(&policy, &Method::GET, &from);
            let result = chain.follow(302, &headers).map(|()| chain.url.expose().to_string());
            assert_eq!(result.ok().as_deref(), to, "{from} to {headers:?}");
        }
    }

    /// Every combination of scheme, host, port and user name.
    fn targets() -> Vec<[&'static str; 4]> {
        let mut all = Vec::new();
        for scheme in ["https", "http"] {
            for host in ["a.example", "b.example"] {
                for port in ["8443", "9443"] {
                    all.extend(["", "someone:word@"].map(|user| [scheme, host, port, user]));
                }
            }
        }
        all
    }

    #[test]
    fn each_hop_is_checked_against_its_scheme_host_port_and_user() {
        for start in ["https", "http"] {
            let first = url(&format!("{start}://a.example:8443/0"));
            for [scheme, host, port, user] in targets() {
                // The number of redirects to other paths before this one.
                for before in 0..3 {
                    let location = format!("{scheme}://{user}{host}:{port}/x?secret=1");
                    let case = format!("{first}, {before}, {location}");
                    let (own, any) = (own_origin(10), any_origin(10));
                    let last_redirect = |policy| {
                        let mut chain = RedirectChain::new(policy, &Method::GET, &first);
                        for path in 0..before {
                            chain.follow(302, &headers(Some(&format!("/{path}")))).unwrap();
                        }
                        chain.follow(307, &headers(Some(&location))).map(|()| chain.url.expose().to_string())
                    };
                    let shown = format!("{scheme}://{host}:{port}/x");
                    let is_own = [scheme, host, port] == [start, "a.example", "8443"];
                    let expected = match (is_own, user) {
                        (false, _) => Err(RedirectRefusal::OtherOrigin(shown.clone())),
                        (true, "") => Ok(location.clone()),
                        (true, _) => Err(RedirectRefusal::Credentials(shown.clone())),
                    };
                    assert_eq!(last_redirect(&own), expected, "{case}");
                    let leaves_https = (start, scheme) == ("https", "http");
                    let expected =
                        if leaves_https { Err(RedirectRefusal::LeavesHttps(shown)) } else { Ok(location.clone()) };
                    assert_eq!(last_redirect(&any), expected, "{case}");
                }
            }
        }
    }

    #[test]
    fn redirect_chain_stops_at_its_maximum_and_checks_https_against_the_previous_hop() {
        let first = url("http://a.example/");
        for max in [0, 1, 3] {
            for policy in [own_origin(max), any_origin(max)] {
                let mut chain = RedirectChain::new(&policy, &Method::GET, &first);
                for hop in 0..max {
                    assert_eq!(chain.follow(302, &headers(Some("/"))), Ok(()), "{hop} of {max}");
                }
                assert_eq!(chain.follow(302, &headers(Some("/"))), Err(RedirectRefusal::TooMany(max)));
                // If the target is refused as well, that reason is reported, because it is more useful.
                assert_eq!(chain.follow(302, &headers(None)), Err(RedirectRefusal::NoLocation));
            }
        }
        // From http to https and back: the scheme of the hop before counts, not that of the first one.
        let policy = any_origin(10);
        let mut chain = RedirectChain::new(&policy, &Method::GET, &first);
        chain.follow(302, &headers(Some("https://b.example/"))).unwrap();
        let back = chain.follow(302, &headers(Some("http://a.example/")));
        assert_eq!(back, Err(RedirectRefusal::LeavesHttps("http://a.example/".to_owned())));
    }

    // The HTTP library asks no resolver for addresses in URLs, so the request itself is checked at each hop.
    #[test]
    fn a_redirect_to_an_address_that_is_not_allowed_is_not_requested() {
        let outbound = OutboundPolicy::AirGapped { allow: [].into() };
        let http = build_client(&NetworkSettings { outbound, ..NetworkSettings::default() }).unwrap();
        let (first, policy) = (url("http://127.0.0.1:9/0"), any_origin(9));
        for (location, reason) in [
            ("http://192.0.2.1/x?token=t", "192.0.2.1:80 is neither loopback nor in deployment.allow"),
            ("https://docwharf.invalid/x", "docwharf.invalid is not there"),
        ] {
            let mut sent = 0;
            let followed = follow_redirects(&http, &Method::GET, &first, &policy, async |hop| {
                let _unsent = hop.request()?;
                sent += 1;
                let response = http::Response::builder().status(302).header(LOCATION, location);
                Ok(response.body(String::new()).unwrap().into())
            });
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let error = RequestError::from(runtime.block_on(followed).unwrap_err());
            assert_eq!((error.cause, sent), (RequestErrorCause::NotPermitted, 1));
            let target = location.split('?').next().unwrap();
            let text = error.to_string();
            assert!(text.starts_with(&format!("a redirect leads to {target}: ")) && text.contains(reason), "{text}");
        }
    }

    /// URL and Authorization header of each request.
    type SentRequests = Vec<(String, Option<String>)>;
    /// Status and URL of the last response.
    type FinalResponse = Result<(u16, String), FollowRedirectsError>;

    /// Requests `https://a.example/0` of a server that returns these responses. Returns the URL and the Authorization
    /// header of each request, and the status and URL of the last response.
    fn requests(policy: &RedirectPolicy, responses: &[(u16, &str)]) -> (SentRequests, FinalResponse) {
        let http = build_client(&NetworkSettings::default()).unwrap();
        let (mut sent, mut responses) = (Vec::new(), responses.iter());
        let first = url("https://a.example/0");
        let followed = follow_redirects(&http, &Method::POST, &first, policy, async |hop| {
            let request = hop.request()?.build().unwrap();
            assert_eq!((request.method(), request.url()), (&Method::POST, hop.url.expose()));
            let authorization = request.headers().get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
            sent.push((request.url().to_string(), authorization));
            let Some((status, location)) = responses.next() else {
                return Err(RequestError::new(RequestErrorCause::NoUsableResponse, "no more responses"));
            };
            let response = http::Response::builder().status(*status).header(LOCATION, *location);
            Ok(response.body(String::new()).unwrap().into())
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let last = runtime.block_on(followed);
        (sent, last.map(|(response, url)| (response.status().as_u16(), url.expose().to_string())))
    }

    #[test]
    fn every_request_of_a_chain_has_the_authorization_of_its_policy() {
        let responses = [(307, "/1"), (308, "/2"), (200, "/3")];
        for (policy, bearer) in [(own_origin(2), Some("Bearer dwk_0123456789".to_owned())), (any_origin(2), None)] {
            let (sent, last) = requests(&policy, &responses);
            assert_eq!(sent, ["0", "1", "2"].map(|path| (format!("https://a.example/{path}"), bearer.clone())));
            assert_eq!(last.unwrap(), (200, "https://a.example/2".to_owned()));
        }
        // Other statuses are responses, whatever their Location is.
        for status in [200, 201, 300, 304, 305, 306, 309, 404] {
            assert_eq!(requests(&any_origin(1), &[(status, "/1")]).1.unwrap().0, status);
        }
    }

    #[test]
    fn refused_redirect_or_failed_request_ends_the_redirect_chain() {
        let (sent, last) = requests(&own_origin(9), &[(307, "https://b.example/")]);
        assert_eq!(sent.len(), 1, "{sent:?}");
        let Err(FollowRedirectsError::Refused { status: 307, why }) = last else { panic!("{last:?}") };
        assert_eq!(why, RedirectRefusal::OtherOrigin("https://b.example/".to_owned()));
        let error = RequestError::from(FollowRedirectsError::Refused { status: 307, why });
        assert_eq!(error.cause, RequestErrorCause::RefusedRedirect);
        assert_eq!(error.to_string(), "a redirect to https://b.example/, another origin");

        let (sent, last) = requests(&any_origin(9), &[(307, "/1")]);
        assert_eq!(sent.len(), 2, "{sent:?}");
        let error = RequestError::from(last.unwrap_err());
        assert_eq!(
            (error.cause, error.to_string().as_str()),
            (RequestErrorCause::NoUsableResponse, "no more responses")
        );
    }
}
