//! Checks proxies: which variables are set, and which hosts are reached through them. Passwords are never shown.

use hyper_util::client::proxy::matcher::Matcher;

use crate::config::checked::Config;

use super::check::DoctorCheck;
use super::network;
use super::proxy_rules::matcher;

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
    let outbound = &config.sync_settings.network.outbound;
    if outbound.is_air_gapped() {
        let found = format!("{} set, and ignored: deployment.type is \"air-gapped\"", set.join(", "));
        return DoctorCheck::ok(CHECK_NAME, found);
    }
    let unusable = set.iter().find(|name| !name.eq_ignore_ascii_case("NO_PROXY") && !is_usable(name));
    if let Some(name) = unusable {
        return DoctorCheck::warning(
            CHECK_NAME,
            format!("${name} is not the address of a proxy, and is ignored"),
            "write it like http://proxy.example:3128",
        );
    }
    let matcher = matcher(outbound);
    let mut routes: Vec<String> = Vec::new();
    for target in network::targets(config) {
        let host = target.url.host();
        let route = match target.proxy(matcher.as_ref()) {
            Some(proxy) => format!("{host} through {proxy}"),
            None => format!("{host} directly"),
        };
        if !routes.contains(&route) {
            routes.push(route);
        }
    }
    let routes = if routes.is_empty() {
        "not needed: no requests are sent over the network".to_owned()
    } else {
        routes.join(", ")
    };
    DoctorCheck::ok(CHECK_NAME, format!("{} set; {routes}", set.join(", ")))
}

fn is_usable(name: &str) -> bool {
    let Ok(value) = std::env::var(name) else { return false };
    let matcher = Matcher::builder().all(value).build();
    matcher.intercept(&http::Uri::from_static("http://docwharf.invalid/")).is_some()
}
