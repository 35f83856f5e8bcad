//! `[access]` and `server.trustedProxies`: who may read, whose word counts, what is written down.

use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use http::HeaderName;

use docwharf_serve::access::{Access, Door};
use docwharf_serve::cidr::Networks;
use docwharf_serve::line::{Address, Format};
use docwharf_serve::log::LogSettings;

use super::checked::Config;
use super::checker::Checker;

/// Fields that clients send by themselves, that say what the request is, or that are the connection's: they name nobody.
/// A client's own `Authorization` is no word of a proxy's, either: anybody can send one.
const NO_NAMES: &[&str] = &[
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
/// The same of whole families.
const NO_NAMES_LIKE: &[&str] = &["accept", "cache-control", "content-", "if-", "proxy-", "sec-", "set-cookie"];
/// Of this family, those that name somebody.
const FORWARDED: &str = "x-forwarded-";
const FORWARDED_NAMES: &[&str] = &["user", "email", "preferred-username", "login", "name", "groups"];

/// Whether a field can be the one in which a proxy names who has signed in.
fn names_somebody(name: &HeaderName) -> bool {
    let name = name.as_str();
    let is_known = NO_NAMES.contains(&name) || NO_NAMES_LIKE.iter().any(|family| name.starts_with(family));
    !is_known && name.strip_prefix(FORWARDED).is_none_or(|rest| FORWARDED_NAMES.contains(&rest))
}

/// Proxies and access, as a part of how sites are served.
pub(super) fn check_access(checker: &mut Checker<'_>) -> Door {
    let proxies = networks(checker, "server.trustedProxies").unwrap_or_default();
    let allow = networks(checker, "access.allow");
    if allow.as_ref().is_some_and(Networks::is_empty) {
        let what = "an empty list lets nobody in: name ranges of addresses, or leave the key out";
        checker.value::<()>("access.allow", |_| Err(what.to_owned()));
    }
    let header = checker.parsed("access.header", |text| {
        let name = text.parse::<HeaderName>().ok().filter(names_somebody);
        name.ok_or_else(|| {
            format!("{text:?} is no field in which a proxy names who has signed in: write it like X-Forwarded-User")
        })
    });
    if header.is_some() && proxies.is_empty() {
        let what = "nobody may set it: name the proxies that sign readers in, in server.trustedProxies";
        checker.value::<()>("access.header", |_| Err(what.to_owned()));
    }
    Door { access: Access { allow, header }, proxies }
}

fn networks(checker: &mut Checker<'_>, key: &str) -> Option<Networks> {
    let texts: Vec<String> = checker.texts(key)?.into_iter().filter(|text| !text.is_empty()).collect();
    match Networks::parse(&texts) {
        Ok(networks) => Some(networks),
        Err(why) => {
            checker.value::<()>(key, |_| Err(why));
            None
        }
    }
}

/// The access log; none if it is off.
pub(super) fn check_log(checker: &mut Checker<'_>, base_of: &dyn Fn(&str) -> PathBuf) -> Option<LogSettings> {
    let format = checker.parsed("access.log", |text| match text {
        "off" => Ok(None),
        "json" => Ok(Some(Format::Json)),
        "combined" => Ok(Some(Format::Combined)),
        _ => Err("\"off\", \"json\" or \"combined\" is needed".to_owned()),
    });
    let address = checker.parsed("access.logAddress", |text| match text {
        "truncated" => Ok(Address::Truncated),
        "full" => Ok(Address::Full),
        "none" => Ok(Address::None),
        _ => Err("\"truncated\", \"full\" or \"none\" is needed".to_owned()),
    });
    let file = checker.text("access.logFile").map(|path| base_of("access.logFile").join(path));
    if let Some(path) = file.as_ref().filter(|path| path.is_dir() || path.as_os_str().as_bytes().ends_with(b"/")) {
        let what = format!("{} is a folder: name a file in it", path.display());
        checker.value::<()>("access.logFile", |_| Err(what));
        return None;
    }
    Some(LogSettings { format: format??, address: address.unwrap_or_default(), file })
}

/// Who may read a site that is served at these addresses though nobody was asked for: a doubt worth telling, because
/// documentation may be meant for some only.
pub fn exposed(access: &Access, addresses: impl IntoIterator<Item = SocketAddr>) -> Option<String> {
    if !access.is_open() {
        return None;
    }
    let reached = addresses.into_iter().find(|address| !address.ip().to_canonical().is_loopback())?;
    Some(format!(
        "the site is for everybody who can reach {reached}: if it is not public, set access.allow or access.header"
    ))
}

/// Where a configuration has the site served.
pub fn addresses(config: &Config) -> impl Iterator<Item = SocketAddr> {
    config.listen.iter().chain(config.tls.iter().flat_map(|tls| &tls.listen)).copied()
}
