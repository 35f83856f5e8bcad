//! Lists of addresses to listen on.

use std::net::SocketAddr;

use super::checker::ValueChecker;
use super::value_parsers::{parse_listen, parse_listen_list};

/// Checks the addresses of a key; `default` if it is not set. An empty list is a mistake unless `may_be_none`.
pub(super) fn check_listen(
    checker: &mut ValueChecker<'_>,
    key: &str,
    default: &[&str],
    may_be_none: bool,
) -> Vec<SocketAddr> {
    let Some(texts) = checker.texts(key) else {
        return default.iter().filter_map(|text| parse_listen(text).ok()).collect();
    };
    match parse_listen_list(&texts) {
        Ok(list) if may_be_none || !list.is_empty() => list,
        Ok(_) => {
            checker.value::<()>(key, |_| Err("at least one address is needed".to_owned()));
            Vec::new()
        }
        Err(why) => {
            checker.value::<()>(key, |_| Err(why));
            Vec::new()
        }
    }
}
