//! The rules by which the HTTP client uses proxies, from the environment.

use hyper_util::client::proxy::matcher::Matcher;

use docwharf_base::secret::SafeUrl;

/// Returns the proxy rules of the HTTP client; `None` if `NO_PROXY=*` turns proxies off.
pub(super) fn matcher() -> Option<Matcher> {
    let off = ["NO_PROXY", "no_proxy"].iter().any(|name| std::env::var(name).is_ok_and(|list| list.trim() == "*"));
    (!off).then(Matcher::from_env)
}

/// Returns the proxy for an address, without user name and password.
pub(super) fn proxy_for(matcher: &Matcher, url: &SafeUrl) -> Option<String> {
    let uri: http::Uri = url.without_secrets().parse().ok()?;
    let proxy = matcher.intercept(&uri)?;
    let proxy = proxy.uri();
    let port = proxy.port_u16().map_or_else(String::new, |port| format!(":{port}"));
    Some(format!("{}://{}{port}", proxy.scheme_str().unwrap_or("http"), proxy.host().unwrap_or_default()))
}
