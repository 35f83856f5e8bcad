//! `origin.toml`: the configuration of an origin. Mistakes of syntax and unknown keys are reported first, then all
//! mistakes of meaning at once.

mod keys;
mod limits;
mod projects;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use toml::de::DeTable;

use docwharf_base::model::deployment::OutboundPolicy;
use docwharf_base::model::limits::BundleLimits;
use docwharf_base::model::units::parse_duration;
use docwharf_base::regular_file;
use docwharf_origin::{
    Domain, MAX_LINK_LIFETIME, MIN_LINK_LIFETIME, OriginSettings, OriginStorage, PreviewSettings, PublicUrl,
};
use docwharf_serve::key_pair::KeyPairFiles;
use docwharf_site::seal::SealOptions;

use super::checker::ValueChecker;
use super::deployment::check_deployment;
use super::listen::check_listen;
use super::problem::{ConfigPlace, ConfigProblem};
use super::written::WrittenConfig;
use keys::ORIGIN_KEYS;
use limits::check_limits;
use projects::check_organizations;

/// The maximum size of the file in bytes.
const MAX_ORIGIN_FILE_BYTES: u64 = 4 << 20;
/// The name of the list of organizations, which no configuration of an agent has.
const ORGANIZATION_LIST: &str = "organization";
/// The default address of the API.
const DEFAULT_LISTEN: &str = "127.0.0.1:8090";

/// The checked configuration of an origin.
#[derive(Debug)]
pub struct OriginConfig {
    /// The settings of the management API.
    pub settings: OriginSettings,
    /// The addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// The addresses to listen on with TLS, and the files of certificate and key.
    pub tls: Option<(Vec<SocketAddr>, KeyPairFiles)>,
    /// The addresses on which health and metrics are served.
    pub admin: Vec<SocketAddr>,
    /// Whether readers can search previews.
    pub searches_previews: bool,
    /// The outbound connections that are permitted.
    pub outbound_policy: OutboundPolicy,
    /// Settings that have no effect.
    pub warnings: Vec<ConfigProblem>,
}

/// Reads and checks the configuration file of an origin.
pub fn read(path: &Path, limits: BundleLimits) -> Result<OriginConfig, Vec<ConfigProblem>> {
    let file_problem =
        |message: String| vec![ConfigProblem { place: ConfigPlace::File(path.to_owned(), 1, 1), message }];
    let bytes = regular_file::read(path, MAX_ORIGIN_FILE_BYTES)
        .map_err(|why| file_problem(format!("it cannot be read: {why}")))?;
    let text = String::from_utf8(bytes).map_err(|_| file_problem("it is not UTF-8".to_owned()))?;
    check_text(&text, path, limits)
}

/// Returns whether this file is the configuration of an origin and not of an agent: it has an organization.
pub fn is_origin_file(path: &Path) -> bool {
    let text = regular_file::read_text(path, MAX_ORIGIN_FILE_BYTES).unwrap_or_default();
    let (table, _) = DeTable::parse_recoverable(&text);
    table.get_ref().keys().any(|key| key.get_ref() == ORGANIZATION_LIST)
}

fn check_text(text: &str, path: &Path, limits: BundleLimits) -> Result<OriginConfig, Vec<ConfigProblem>> {
    let mut raw = WrittenConfig::new(&ORIGIN_KEYS);
    raw.read_toml(text, path);
    // Consequences of a mistake of syntax or of a misspelt key, such as a missing key, would only hide it.
    if !raw.problems.is_empty() {
        ConfigProblem::sort(&mut raw.problems);
        return Err(raw.problems);
    }
    let mut checker = ValueChecker { raw: &raw, problems: Vec::new() };
    let config = check(&mut checker, path.parent().unwrap_or(Path::new("")), limits);
    ConfigProblem::sort(&mut checker.problems);
    if checker.problems.is_empty() { Ok(config) } else { Err(checker.problems) }
}

/// Checks the values. Relative paths refer to `base`.
fn check(checker: &mut ValueChecker<'_>, base: &Path, limits: BundleLimits) -> OriginConfig {
    let mut warnings = Vec::new();
    let outbound_policy = check_deployment(checker, &mut warnings).outbound_policy();
    let listen = check_listen(checker, "server.listen", &[DEFAULT_LISTEN], true);
    let admin = check_listen(checker, "admin.listen", &[], true);
    let tls = check_tls(checker, base);
    if listen.is_empty() && tls.as_ref().is_none_or(|(listen, _)| listen.is_empty()) && checker.problems.is_empty() {
        let message = "there is no address to serve on: set server.listen or tls.listen".to_owned();
        checker.problems.push(ConfigProblem { place: ConfigPlace::Missing, message });
    }
    let mut settings = OriginSettings::new(SealOptions::new(limits));
    if checker.raw.get("store.path").is_none() {
        let place = checker.raw.section("store").cloned().unwrap_or(ConfigPlace::Missing);
        let message = "store.path is missing: keys, jobs, bundles and searches need a folder".to_owned();
        checker.problems.push(ConfigProblem { place, message });
    }
    if let Some(path) = checker.text("store.path") {
        settings.storage = OriginStorage::Folder(base.join(path));
    }
    settings.min_free = checker.size("store.minFree");
    settings.limits = check_limits(checker);
    settings.max_jobs_per_project =
        checker.number("exports.keep").map_or(settings.max_jobs_per_project, |number| number as usize);
    settings.link_lifetime =
        checker.parsed("exports.linkLifetime", parse_link_lifetime).unwrap_or(settings.link_lifetime);
    settings.public_url = checker.parsed("server.publicUrl", |text| PublicUrl::parse(text).map_err(str::to_owned));
    settings.preview_settings = check_previews(checker);
    let searches_previews = checker.flag("previews.search").unwrap_or(true);
    settings.analytics_retention = checker.duration("analytics.keep").unwrap_or(settings.analytics_retention);
    let shared = settings.limits;
    settings.organizations = check_organizations(checker, base, &shared, &outbound_policy);
    OriginConfig { settings, listen, tls, admin, searches_previews, outbound_policy, warnings }
}

fn check_tls(checker: &mut ValueChecker<'_>, base: &Path) -> Option<(Vec<SocketAddr>, KeyPairFiles)> {
    let place = checker.raw.section("tls")?;
    for key in ["tls.certFile", "tls.keyFile", "tls.listen"] {
        if checker.raw.get(key).is_none() {
            let message = format!("{key} is missing: [tls] needs certFile, keyFile and listen");
            checker.problems.push(ConfigProblem { place: place.clone(), message });
        }
    }
    let listen = check_listen(checker, "tls.listen", &[], true);
    let mut file = |key: &str| checker.text(key).map(|path| base.join(path));
    let (certificate, key) = (file("tls.certFile"), file("tls.keyFile"));
    Some((listen, KeyPairFiles { certificate: certificate?, key: key? }))
}

fn check_previews(checker: &mut ValueChecker<'_>) -> PreviewSettings {
    let defaults = PreviewSettings::default();
    PreviewSettings {
        host: checker.parsed("previews.host", |text| Domain::parse(text).map_err(str::to_owned)),
        check_interval: checker.duration("previews.sweep").unwrap_or(defaults.check_interval),
        // The search needs a process, which the command starts.
        search: None,
        assistant: checker.flag("previews.assistant").unwrap_or(defaults.assistant),
    }
}

fn parse_link_lifetime(text: &str) -> Result<Duration, String> {
    let lifetime = parse_duration(text)?;
    let fits = (MIN_LINK_LIFETIME..=MAX_LINK_LIFETIME).contains(&lifetime);
    if fits { Ok(lifetime) } else { Err(format!("{text:?} is not from 1s to 7d")) }
}

#[cfg(test)]
mod tests;
