//! The settings of serving: `[server]`, and the host names of the admin listener.

use docwharf_base::codec::content_coding::ContentCoding;
use docwharf_base::model::deployment::DeploymentType;
use docwharf_serve::SiteSettings;

use super::access::check_access_control;
use super::checker::ValueChecker;
use super::security_headers::check_security_headers;
use super::tls::check_hsts;
use super::value_parsers::{parse_base_path, parse_domain, parse_http2, parse_slashes};
use super::written_value::ConfigValue;

/// Checks `admin.hosts`: host names without a port.
pub(super) fn check_hosts(checker: &mut ValueChecker<'_>) -> Vec<String> {
    let names = checker.texts("admin.hosts").unwrap_or_default();
    let parsed: Result<Vec<String>, String> = names.iter().map(|name| parse_domain(name)).collect();
    parsed.unwrap_or_else(|why| {
        checker.value::<()>("admin.hosts", |_| Err(why));
        Vec::new()
    })
}

/// Checks the settings of serving.
pub(super) fn check_settings(checker: &mut ValueChecker<'_>, deployment_type: DeploymentType) -> SiteSettings {
    let defaults = SiteSettings::default();
    let base_path = checker.value("server.basePath", |value| match value {
        ConfigValue::Text(text) => parse_base_path(text),
        _ => Err("a text in quotes is needed".to_owned()),
    });
    let slashes = checker.value("server.slashes", |value| match value {
        ConfigValue::Text(text) => parse_slashes(text),
        _ => Err("\"auto\", \"serve\" or \"redirect\" is needed".to_owned()),
    });
    let http2 = checker.value("server.http2", |value| match value {
        ConfigValue::Text(text) => parse_http2(text),
        _ => Err("\"own\", \"hyper\" or \"off\" is needed".to_owned()),
    });
    SiteSettings {
        base_path: base_path.unwrap_or(defaults.base_path),
        slashes: slashes.unwrap_or(defaults.slashes),
        identity_cache: checker.size("server.identityCache").unwrap_or(defaults.identity_cache),
        held_bytes: checker.size("server.heldBytes").unwrap_or(defaults.held_bytes),
        asset_grace: checker.duration("server.assetGrace").unwrap_or(defaults.asset_grace),
        security_headers: check_security_headers(checker, deployment_type),
        access_control: check_access_control(checker),
        hsts: check_hsts(checker),
        http2: http2.unwrap_or(defaults.http2),
        is_unpublished: defaults.is_unpublished,
    }
}

/// Checks `server.codings`: all codings if the key is not set, none for an empty list.
pub(super) fn check_codings(checker: &mut ValueChecker<'_>) -> Vec<ContentCoding> {
    let Some(names) = checker.texts("server.codings") else { return ContentCoding::ALL.to_vec() };
    let mut codings = Vec::new();
    for name in names.iter().filter(|name| !name.is_empty()) {
        match ContentCoding::from_token(name) {
            Some(coding) if !codings.contains(&coding) => codings.push(coding),
            _ => {
                checker.value::<()>("server.codings", |_| {
                    Err("only \"br\" and \"zstd\" are allowed, each once".to_owned())
                });
                return Vec::new();
            }
        }
    }
    codings
}
