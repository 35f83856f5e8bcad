//! Checks proxies: which variables are set, and which hosts are reached through them. Passwords are never shown.

use hyper_util::client::proxy::matcher::Matcher;

use crate::config::checked::Config;
use docwharf_base::secret::SafeUrl;

use super::{DoctorCheck, network};

const CHECK_NAME: &str = "proxy";
/// The variables that name proxies, in the order in which they are shown.
const PROXY_VARIABLES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"];

pub(super) fn check(config: &Config) -> DoctorCheck {
    let set: Vec<String> = PROXY_VARIABLES
        .iter()
        .flat_map(|name| [(*name).to_owned(), name.to_ascii_lowercase()])
        .filter(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
        .collect();
    if set.is_empty() {
        return DoctorCheck::ok(CHECK_NAME, "none is set");
    }
    let unusable = set.iter().find(|name| !name.eq_ignore_ascii_case("NO_PROXY") && !is_usable(name));
    if let Some(name) = unusable {
        return DoctorCheck::warning(
            CHECK_NAME,
            format!("${name} is set to something that is no address of a proxy, and is ignored"),
            "write it like http://proxy.example:3128",
        );
    }
    let matcher = matcher();
    let mut ways: Vec<String> = Vec::new();
    for target in network::targets(config) {
        let host = target.url.host();
        let way = match matcher.as_ref().and_then(|matcher| proxy_for(matcher, &target.url)) {
            Some(proxy) => format!("{host} through {proxy}"),
            None => format!("{host} without"),
        };
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    let ways = if ways.is_empty() { "nothing is asked over the network".to_owned() } else { ways.join(", ") };
    DoctorCheck::ok(CHECK_NAME, format!("{} set; {ways}", set.join(", ")))
}

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

fn is_usable(name: &str) -> bool {
    let Ok(value) = std::env::var(name) else { return false };
    let matcher = Matcher::builder().all(value).build();
    matcher.intercept(&http::Uri::from_static("http://docwharf.invalid/")).is_some()
}
