//! `[access]` and `server.trustedProxies`: the clients that may read, the proxies that are trusted, and the access log.

use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use http::HeaderName;

use docwharf_base::model::cidr::IpRanges;
use docwharf_serve::access::{AccessControl, AccessRules};
use docwharf_serve::access_log::AccessLogSettings;
use docwharf_serve::access_log_line::{AccessLogFormat, LoggedAddress};

use super::checker::ValueChecker;

/// Header fields that cannot name the user who has signed in: clients send them on their own, or they describe the
/// request or the connection. `Authorization` is one of them: any client can send it, so it does not come from a proxy.
const NON_USER_FIELDS: &[&str] = &[
    "authorization",
    "connection",
    "cookie",
    "date",
    "dnt",
    "expect",
    "forwarded",
    "host",
    "keep-alive",
    "max-forwards",
    "origin",
    "pragma",
    "priority",
    "range",
    "referer",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "upgrade-insecure-requests",
    "user-agent",
    "via",
    "www-authenticate",
    "x-real-ip",
    "x-requested-with",
];
/// Prefixes of other header fields that cannot name the user.
const NON_USER_FIELD_PREFIXES: &[&str] =
    &["accept", "cache-control", "content-", "if-", "proxy-", "sec-", "set-cookie"];
/// The prefix of header fields of which only those in `FORWARDED_USER_SUFFIXES` can name the user.
const FORWARDED_PREFIX: &str = "x-forwarded-";
const FORWARDED_USER_SUFFIXES: &[&str] = &["user", "email", "preferred-username", "login", "name", "groups"];

/// Returns whether a proxy may use this header field to name the user who has signed in.
fn can_name_user(name: &HeaderName) -> bool {
    let name = name.as_str();
    let is_known =
        NON_USER_FIELDS.contains(&name) || NON_USER_FIELD_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    !is_known && name.strip_prefix(FORWARDED_PREFIX).is_none_or(|rest| FORWARDED_USER_SUFFIXES.contains(&rest))
}

/// Checks the trusted proxies and access control.
pub(super) fn check_access_control(checker: &mut ValueChecker<'_>) -> AccessControl {
    let proxies = networks(checker, "server.trustedProxies").unwrap_or_default();
    let allow = networks(checker, "access.allow");
    if allow.as_ref().is_some_and(IpRanges::is_empty) {
        let message = "an empty list refuses every client: name ranges of addresses, or remove the key";
        checker.value::<()>("access.allow", |_| Err(message.to_owned()));
    }
    let header = checker.parsed("access.header", |text| {
        let name = text.parse::<HeaderName>().ok().filter(can_name_user);
        name.ok_or_else(|| {
            format!("{text:?} cannot be a field in which a proxy names the user who has signed in: write it like X-Forwarded-User")
        })
    });
    if header.is_some() && proxies.is_empty() {
        let message = "no proxy is trusted to set it: name the proxies that sign users in, in server.trustedProxies";
        checker.value::<()>("access.header", |_| Err(message.to_owned()));
    }
    AccessControl { rules: AccessRules { allow, user_header: header }, proxies }
}

fn networks(checker: &mut ValueChecker<'_>, key: &str) -> Option<IpRanges> {
    let texts: Vec<String> = checker.texts(key)?.into_iter().filter(|text| !text.is_empty()).collect();
    match IpRanges::parse(&texts) {
        Ok(networks) => Some(networks),
        Err(why) => {
            checker.value::<()>(key, |_| Err(why));
            None
        }
    }
}

/// Checks the settings of the access log; `None` if it is off.
pub(super) fn check_log(
    checker: &mut ValueChecker<'_>,
    base_of: &dyn Fn(&str) -> PathBuf,
) -> Option<AccessLogSettings> {
    let formats = [("off", None), ("json", Some(AccessLogFormat::Json)), ("combined", Some(AccessLogFormat::Combined))];
    let format = checker.word("access.log", &formats);
    let addresses =
        [("truncated", LoggedAddress::Truncated), ("full", LoggedAddress::Full), ("none", LoggedAddress::None)];
    let address = checker.word("access.logAddress", &addresses);
    let file = checker.text("access.logFile").map(|path| base_of("access.logFile").join(path));
    if let Some(path) = file.as_ref().filter(|path| path.is_dir() || path.as_os_str().as_bytes().ends_with(b"/")) {
        let message = format!("{} is a folder: name a file in it", path.display());
        checker.value::<()>("access.logFile", |_| Err(message));
        return None;
    }
    Some(AccessLogSettings { format: format??, address: address.unwrap_or_default(), file })
}

/// Returns a warning if a site without access control is served on one of these addresses and that address is not a
/// loopback one: documentation may be meant for some readers only.
pub fn exposure_warning(rules: &AccessRules, addresses: impl IntoIterator<Item = SocketAddr>) -> Option<String> {
    if !rules.is_open() {
        return None;
    }
    let reachable = addresses.into_iter().find(|address| !address.ip().to_canonical().is_loopback())?;
    Some(format!(
        "every client that can reach {reachable} may read the site: if it is not public, set access.allow or access.header"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_clients_send_on_their_own_names_no_user() {
        let prefixed = ["Accept-Language", "Cache-Control", "Content-Length", "If-None-Match", "Proxy-User", "Sec-GPC"];
        let forwarded = ["X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Userinfo", "X-Forwarded-Port"];
        let own = NON_USER_FIELDS.iter().chain(&prefixed).chain(&forwarded).chain(&["Set-Cookie"]);
        for name in own {
            assert!(!can_name_user(&name.parse().expect("a name")), "{name}");
        }
        for name in ["Remote-User", "X-Forwarded-User", "X-Forwarded-Preferred-Username", "X-Auth-Request-Email"] {
            assert!(can_name_user(&name.parse().expect("a name")), "{name}");
        }
        let known = "authorization connection cookie date dnt expect forwarded host keep-alive max-forwards origin \
                     pragma priority range referer te trailer transfer-encoding upgrade upgrade-insecure-requests \
                     user-agent via www-authenticate x-real-ip x-requested-with";
        assert_eq!(NON_USER_FIELDS, known.split_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn a_site_is_exposed_if_any_of_its_addresses_is_reachable_and_nothing_restricts_it() {
        let open = AccessRules::default();
        let warning = |rules: &AccessRules, addresses: &[&str]| {
            exposure_warning(rules, addresses.iter().map(|address| address.parse().expect("an address")))
        };
        for own in ["127.0.0.1:80", "127.9.9.9:80", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
            assert_eq!(warning(&open, &[own]), None, "{own}");
        }
        assert_eq!(warning(&open, &[]), None);
        for reachable in ["0.0.0.0:80", "[::]:80", "192.0.2.1:80", "[::ffff:192.0.2.1]:80"] {
            let message = format!("every client that can reach {reachable} may read the site: ");
            let found = warning(&open, &["127.0.0.1:80", reachable]).unwrap_or_default();
            assert!(found.starts_with(&message), "{reachable}: {found}");
        }
        let allow = IpRanges::parse(&["192.0.2.0/24"]).ok();
        let by_address = AccessRules { allow, ..AccessRules::default() };
        let by_user = AccessRules { user_header: "X-User".parse().ok(), ..AccessRules::default() };
        for restricted in [by_address, by_user] {
            assert_eq!(warning(&restricted, &["0.0.0.0:80"]), None, "{restricted:?}");
        }
    }
}
