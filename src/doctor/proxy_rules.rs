//! The rules by which the HTTP client uses proxies, from the environment.

use hyper_util::client::proxy::matcher::Matcher;

use docwharf_base::model::deployment::OutboundPolicy;
use docwharf_base::net::client::uses_proxies;
use docwharf_base::secret::SafeUrl;

/// Returns the proxy rules of the HTTP client; `None` if `NO_PROXY=*` or the deployment turns proxies off.
pub(super) fn matcher(outbound: &OutboundPolicy) -> Option<Matcher> {
    uses_proxies(outbound).then(Matcher::from_env)
}

/// Returns the proxy for an address, without user name and password.
pub(super) fn proxy_for(matcher: &Matcher, url: &SafeUrl) -> Option<String> {
    let uri: http::Uri = url.without_secrets().parse().ok()?;
    let proxy = matcher.intercept(&uri)?;
    let proxy = proxy.uri();
    let port = proxy.port_u16().map_or_else(String::new, |port| format!(":{port}"));
    Some(format!("{}://{}{port}", proxy.scheme_str().unwrap_or("http"), proxy.host().unwrap_or_default()))
}
