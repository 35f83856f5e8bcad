//! The part of the configuration that a sync needs: `[staticExport]`, `[api]`, `[sync]`, `[network]`, `[limits]`,
//! `[gate]`, `activate.mode`, and the space limits of `[store]`. `sync.schedule`, `sync.inbox` and `sync.threads` are
//! read elsewhere ([`checked`](super::checked)).

use std::path::PathBuf;
use std::time::Duration;

use docwharf_agent::api::preview::StatusPath;
use docwharf_agent::sync::api_key::ApiKeyLocation;
use docwharf_agent::sync::{ApiSource, SyncSettings};
use docwharf_base::model::deployment::OutboundPolicy;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::limits::BundleLimits;
use docwharf_base::model::version::VersionLabel;
use docwharf_base::net::NetworkSettings;
use docwharf_base::secret::{SafeUrl, Secret};
use docwharf_site::lookup::AddressSettings;
use docwharf_site::seal::SealOptions;

use super::checker::ValueChecker;
use super::deployment::check_outbound_url;
use super::gate::{check_activation, check_gate};
use super::link_file::check_bundle;
use super::problem::ConfigProblem;
use super::store_space;
use super::systemd_credentials::{SystemdCredential, SystemdCredentials};
use super::value_parsers::{parse_base_url, parse_domain, parse_project};

/// The default interval between checks of the source.
pub(super) const DEFAULT_INTERVAL: Duration = Duration::from_mins(15);
/// The default interval between checks of the source if each check starts an export job.
pub(super) const DEFAULT_JOB_INTERVAL: Duration = Duration::from_hours(24);

/// Checks the keys that a sync needs. With `address_settings`, the gate resolves addresses.
pub(super) fn check_sync_settings(
    checker: &mut ValueChecker<'_>,
    base_of: &dyn Fn(&str) -> PathBuf,
    warnings: &mut Vec<ConfigProblem>,
    address_settings: AddressSettings,
    outbound: &OutboundPolicy,
) -> SyncSettings {
    let enabled = checker.flag("staticExport.enabled");
    let (bundle, bundle_url_file) = check_bundle(checker, base_of, outbound);
    let pin = checker.parsed("staticExport.version", |text| VersionLabel::new(text).map_err(str::to_owned));
    let sha256 = checker.parsed("staticExport.sha256", |text| {
        Digest::parse(text.trim()).ok_or_else(|| "64 hex digits are needed".to_owned())
    });
    let network = check_network(checker, base_of, outbound);
    let api = check_api(checker, base_of, warnings, outbound);
    let probes = check_probes(checker, api.as_ref(), outbound);
    let is_set = |key: &str| checker.raw.get(key).is_some();
    let default_probes = api.as_ref().map_or_else(Vec::new, |api| default_probes(&api.domain, outbound));
    // Without probes, each check has to start an export job.
    let exports_at_each_check = match &probes {
        Some(probes) => probes.is_empty(),
        None => is_set("sync.interval") || is_set("sync.schedule") || (default_probes.is_empty() && api.is_some()),
    };
    let probes = match (probes, &api) {
        (Some(probes), _) => probes,
        (None, Some(_)) if !exports_at_each_check => default_probes,
        _ => Vec::new(),
    };
    let default_interval = if exports_at_each_check && api.is_some() { DEFAULT_JOB_INTERVAL } else { DEFAULT_INTERVAL };
    SyncSettings {
        enabled: enabled.unwrap_or(true),
        bundle,
        bundle_url_file,
        api,
        pin,
        sha256,
        exports_at_each_check,
        probes,
        has_configured_probes: checker.raw.get("sync.probe").is_some(),
        interval: checker.duration("sync.interval").unwrap_or(default_interval),
        max_age: checker.duration("sync.maxAge").unwrap_or(Duration::from_hours(24)),
        job_timeout: checker.duration("sync.jobTimeout").unwrap_or(Duration::from_mins(30)),
        network,
        seal_options: SealOptions::new(check_limits(checker)),
        space_limits: store_space::check_space(checker),
        gate: check_gate(checker, address_settings),
        activation: check_activation(checker),
    }
}

fn check_limits(checker: &mut ValueChecker<'_>) -> BundleLimits {
    let limits = BundleLimits::default();
    BundleLimits {
        entries: checker.number("limits.entries").unwrap_or(limits.entries),
        unpacked: checker.size("limits.unpacked").unwrap_or(limits.unpacked),
        archive: checker.size("limits.archive").unwrap_or(limits.archive),
        entry: checker.size("limits.entry").unwrap_or(limits.entry),
    }
}

fn check_network(
    checker: &mut ValueChecker<'_>,
    base_of: &dyn Fn(&str) -> PathBuf,
    outbound: &OutboundPolicy,
) -> NetworkSettings {
    let network = NetworkSettings::default();
    NetworkSettings {
        connect_timeout: checker.duration("network.connectTimeout").unwrap_or(network.connect_timeout),
        call_timeout: checker.duration("network.callTimeout").unwrap_or(network.call_timeout),
        idle_timeout: checker.duration("network.idleTimeout").unwrap_or(network.idle_timeout),
        first_poll_pause: checker.duration("network.pollFirst").unwrap_or(network.first_poll_pause),
        max_poll_pause: checker.duration("network.pollMost").unwrap_or(network.max_poll_pause),
        max_redirects: checker.number("network.redirects").map_or(network.max_redirects, |n| n as usize),
        ignore_proxies: network.ignore_proxies,
        ca_file: checker.text("api.caFile").map(|path| base_of("api.caFile").join(path)),
        outbound: outbound.clone(),
    }
}

fn check_api(
    checker: &mut ValueChecker<'_>,
    base_of: &dyn Fn(&str) -> PathBuf,
    warnings: &mut Vec<ConfigProblem>,
    outbound: &OutboundPolicy,
) -> Option<ApiSource> {
    let problems_before = checker.problems.len();
    let base = checker.parsed("api.baseUrl", |text| check_outbound_url(parse_base_url(text)?, outbound));
    let domain = checker.parsed("api.domain", parse_domain);
    let project = checker.parsed("api.projectId", parse_project);
    let status_path = checker.parsed("api.statusPath", StatusPath::parse).unwrap_or_default();
    let key_file = checker.text("api.keyFile").map(|path| base_of("api.keyFile").join(path));
    let raw = checker.raw;
    // An empty section has no effect, and api.caFile is used for links as well.
    let section = ["api.baseUrl", "api.domain", "api.projectId", "api.keyFile"];
    let place = section.iter().find_map(|key| raw.get(key)).map(|written| written.place.clone())?;
    for (key, missing) in [("api.baseUrl", base.is_none()), ("api.domain", domain.is_none())] {
        if missing && raw.get(key).is_none() {
            let message = format!("{key} is missing: [api] needs baseUrl and domain");
            checker.problems.push(ConfigProblem { place: place.clone(), message });
        }
    }
    if checker.problems.len() > problems_before {
        return None;
    }
    let (base, domain) = (base?, domain?);
    let place = raw.get("api.baseUrl").map_or(place, |written| written.place.clone());
    let mut warn = |message: &str| {
        warnings.push(ConfigProblem { place: place.clone(), message: format!("api.baseUrl: {message}") });
    };
    if !base.expose().path().trim_end_matches('/').ends_with("/v1") {
        warn("the URL does not end in /v1, as URLs of the API do");
    }
    if !base.is_encrypted() && !base.is_loopback() {
        warn("plain http: the key can be read in transit");
    }
    Some(ApiSource { base, domain, project, status_path, api_key: api_key_location(key_file, &raw.credentials) })
}

/// Returns the location of the API key: the first that is set of `keyFile`, `$DOCWHARF_API_KEY` and the credential
/// `api-key`.
fn api_key_location(file: Option<PathBuf>, credentials: &SystemdCredentials) -> ApiKeyLocation {
    if let Some(path) = file {
        return ApiKeyLocation::File(path);
    }
    let from_environment = std::env::var("DOCWHARF_API_KEY").ok().filter(|key| !key.trim().is_empty());
    if let Some(key) = from_environment.or_else(|| credentials.variable("DOCWHARF_API_KEY")) {
        return ApiKeyLocation::Environment(Secret::new(key));
    }
    match credentials.find("api-key") {
        Some(SystemdCredential { path, unit: Some(unit) }) => ApiKeyLocation::UnitCredential { path, unit },
        Some(SystemdCredential { path, unit: None }) => ApiKeyLocation::Credential(path),
        None => ApiKeyLocation::Unset,
    }
}

fn check_probes(
    checker: &mut ValueChecker<'_>,
    api: Option<&ApiSource>,
    outbound: &OutboundPolicy,
) -> Option<Vec<SafeUrl>> {
    let texts = checker.texts("sync.probe")?;
    let texts: Vec<String> = texts.into_iter().filter(|text| !text.is_empty()).collect();
    let parsed = texts.iter().map(|text| check_outbound_url(SafeUrl::parse(text)?, outbound));
    // A mistake in [api] is reported once.
    let has_api = api.is_some() || checker.raw.get("api.baseUrl").is_some();
    match parsed.collect::<Result<Vec<_>, _>>() {
        Ok(probes) if probes.is_empty() || has_api => Some(probes),
        Ok(_) => {
            checker.value::<()>("sync.probe", |_| {
                Err("probes need [api]: they decide when to start an export".to_owned())
            });
            None
        }
        Err(why) => {
            checker.value::<()>("sync.probe", |_| Err(why));
            None
        }
    }
}

/// Returns the probes of a domain. An air-gapped docwharf that must not connect to it has none, because no key names
/// them.
fn default_probes(domain: &str, outbound: &OutboundPolicy) -> Vec<SafeUrl> {
    let url_of = |file: &str| {
        let url = SafeUrl::parse(&format!("https://{domain}/{file}"));
        url.and_then(|url| check_outbound_url(url, outbound)).ok()
    };
    ["sitemap.xml", "llms.txt"].into_iter().filter_map(url_of).collect()
}
