//! The rules of `playground.allow`: which requests to which targets are permitted. Pure.

use http::Method;

use crate::playground_settings::AllowedTarget;

use super::target_url::TargetUrl;

/// The rule by which a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlaygroundRule {
    /// Scheme, host and port are not listed.
    Origin,
    /// The method is not listed for the origin.
    Method,
    /// The path is not listed for the origin, or climbs.
    Path,
    /// The target has an address that is neither public nor listed.
    Address,
}

impl PlaygroundRule {
    /// Returns the name of the rule in responses.
    pub(crate) fn name(self) -> &'static str {
        match self {
            PlaygroundRule::Origin => "origin",
            PlaygroundRule::Method => "method",
            PlaygroundRule::Path => "path",
            PlaygroundRule::Address => "address",
        }
    }

    /// Describes to a reader what the rule does not permit.
    pub(crate) fn message(self) -> &'static str {
        match self {
            PlaygroundRule::Origin => {
                "this site does not send requests to the origin of this URL; ask the operator to list it in \
                 playground.allow"
            }
            PlaygroundRule::Method => {
                "this site does not send requests with this method to this origin; ask the operator to list it in \
                 playground.allow"
            }
            PlaygroundRule::Path => {
                "this site does not send requests to this path of this origin; ask the operator to list it in \
                 playground.allow"
            }
            PlaygroundRule::Address => {
                "the address of this origin is not public, and this site does not allow it; ask the operator to list \
                 it in playground.allow"
            }
        }
    }
}

/// Finds the element of the list that permits a request; else the rule that does not.
pub(crate) fn find_target<'a>(
    allow: &'a [AllowedTarget],
    method: &Method,
    url: &TargetUrl,
) -> Result<&'a AllowedTarget, PlaygroundRule> {
    let has_origin = |target: &&AllowedTarget| {
        target.is_https == url.is_https() && target.host == url.host() && target.port == url.port()
    };
    let has_method = |target: &&AllowedTarget| target.methods.contains(method);
    let has_path = |target: &&AllowedTarget| {
        target.paths.is_empty() || target.paths.iter().any(|path| path.matches(url.decoded_path()).is_some())
    };
    let of_origin: Vec<&AllowedTarget> = allow.iter().filter(has_origin).collect();
    if of_origin.is_empty() {
        return Err(PlaygroundRule::Origin);
    }
    let of_method: Vec<&AllowedTarget> = of_origin.into_iter().filter(has_method).collect();
    // CONNECT opens a tunnel, and TRACE shows fields that pages must not see.
    if of_method.is_empty() || matches!(*method, Method::CONNECT | Method::TRACE) {
        return Err(PlaygroundRule::Method);
    }
    of_method.into_iter().find(has_path).ok_or(PlaygroundRule::Path)
}

#[cfg(test)]
mod tests {
    use docwharf_site::rules::pattern::{Pattern, PatternDialect};

    use super::*;

    fn target(is_https: bool, host: &str, port: u16, methods: &[Method], paths: &[&str]) -> AllowedTarget {
        let paths = paths.iter().map(|path| Pattern::parse(path, PatternDialect::Netlify).unwrap()).collect();
        let (host, methods) = (host.to_owned(), methods.to_vec());
        AllowedTarget { is_https, host, port, methods, paths, addresses: Vec::new() }
    }

    #[test]
    fn a_request_is_permitted_by_origin_method_and_path_and_the_first_rule_that_does_not_permit_it_is_named() {
        let allow = [
            target(true, "api.example", 443, &[Method::GET], &["/v1/*", "/v2/:id"]),
            target(true, "api.example", 443, &[Method::POST], &["/v1/orders"]),
            target(false, "[::1]", 8080, &[Method::GET, Method::CONNECT, Method::TRACE], &[]),
        ];
        for (method, url, expected) in [
            ("GET", "https://api.example/v1/a", Ok(0)),
            ("GET", "https://API.example:443/v1/a/b?q", Ok(0)),
            ("GET", "https://api.example/v1", Ok(0)),
            ("GET", "https://api.example/%76%31/a", Ok(0)),
            ("GET", "https://api.example/v1%2Fa", Ok(0)),
            ("GET", "https://api.example/v2/7", Ok(0)),
            ("POST", "https://api.example/v1/orders", Ok(1)),
            ("GET", "http://[0::1]:8080/any/path", Ok(2)),
            ("GET", "http://api.example/v1/a", Err(PlaygroundRule::Origin)),
            ("GET", "https://api.example:8443/v1/a", Err(PlaygroundRule::Origin)),
            ("GET", "https://api.example./v1/a", Err(PlaygroundRule::Origin)),
            ("GET", "https://x.api.example/v1/a", Err(PlaygroundRule::Origin)),
            ("GET", "https://api.example.evil.example/v1/a", Err(PlaygroundRule::Origin)),
            ("BREW", "https://other.example/", Err(PlaygroundRule::Origin)),
            ("PUT", "https://api.example/v1/a", Err(PlaygroundRule::Method)),
            ("get", "https://api.example/v1/a", Err(PlaygroundRule::Method)),
            ("CONNECT", "http://[::1]:8080/", Err(PlaygroundRule::Method)),
            ("TRACE", "http://[::1]:8080/", Err(PlaygroundRule::Method)),
            ("GET", "https://api.example/", Err(PlaygroundRule::Path)),
            ("GET", "https://api.example/v1x", Err(PlaygroundRule::Path)),
            ("GET", "https://api.example/V1/a", Err(PlaygroundRule::Path)),
            ("GET", "https://api.example/v2/7/8", Err(PlaygroundRule::Path)),
            ("GET", "https://api.example/v2/7%2f8", Err(PlaygroundRule::Path)),
            ("POST", "https://api.example/v1/a", Err(PlaygroundRule::Path)),
        ] {
            let parsed = TargetUrl::parse(url).unwrap_or_else(|fault| panic!("{url}: {fault:?}"));
            let found = find_target(&allow, &method.parse().unwrap(), &parsed);
            let index = found.map(|target| allow.iter().position(|one| std::ptr::eq(one, target)).unwrap());
            assert_eq!(index, expected, "{method} {url}");
        }
        let url = TargetUrl::parse("https://api.example/v1/a").unwrap();
        assert_eq!(find_target(&[], &Method::GET, &url).map(|_| ()), Err(PlaygroundRule::Origin));
    }
}
