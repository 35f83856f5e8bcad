//! Checks the configuration: every mistake, and what is allowed but probably not intended.

use crate::config::access::exposure_warning;
use crate::config::analytics_delivery::DeliverySettings;
use crate::config::assistant;
use crate::config::checked::{Config, SET_SOURCE_ADVICE, create_config_advice, nothing_to_serve_message};
use crate::config::inputs::ConfigInputs;
use crate::config::link_file;
use docwharf_agent::sync::BundleLocation;
use docwharf_agent::sync::api_key::read_key_file;
use docwharf_base::error_chain::ErrorChain;

use super::check::DoctorCheck;

const CHECK_NAME: &str = "configuration";

/// Returns the configuration, if it has no mistakes, and the checks.
pub(super) fn check(config_inputs: &ConfigInputs) -> (Option<Config>, Vec<DoctorCheck>) {
    let config = match config_inputs.load() {
        Ok(config) => config,
        Err(problems) => {
            let to_check = |problem: &crate::config::problem::ConfigProblem| {
                let advice = problem.advice_to_read().unwrap_or("correct it; docwharf config init shows every key");
                DoctorCheck::error(CHECK_NAME, problem.to_string(), advice)
            };
            return (None, problems.iter().map(to_check).collect());
        }
    };
    let (file, named) = config_inputs.file();
    let has_file = named || file.exists();
    let mut checks = Vec::new();
    let has_nothing = config.has_nothing_to_serve();
    let warnings = if has_nothing { Vec::new() } else { unintended_settings(&config) };
    for warning in config.warnings.iter().map(ToString::to_string).chain(warnings) {
        checks.push(DoctorCheck::warning(CHECK_NAME, warning, "change it if that is not intended"));
    }
    if has_nothing {
        let create_advice = if has_file { String::new() } else { create_config_advice(&file) };
        checks.push(DoctorCheck::error(
            CHECK_NAME,
            nothing_to_serve_message(&config.store),
            format!("{create_advice}{SET_SOURCE_ADVICE}"),
        ));
    }
    if !has_file {
        checks.push(DoctorCheck::ok(
            CHECK_NAME,
            format!("there is no {}: environment and defaults are in force", file.display()),
        ));
    } else if checks.is_empty() {
        checks.push(DoctorCheck::ok(CHECK_NAME, file.display().to_string()));
    }
    (Some(config), checks)
}

/// Returns what a configuration allows but probably does not intend, besides the warnings of its reader.
pub fn unintended_settings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    let sync_settings = &config.sync_settings;
    match &sync_settings.bundle {
        Some(BundleLocation::File(path)) => {
            let error = std::fs::metadata(path).err();
            warnings.extend(
                error.map(|error| format!("{}: cannot read {}: {error}", sync_settings.bundle_key(), path.display())),
            );
        }
        Some(BundleLocation::Unreadable { error, .. }) => warnings.push(error.clone()),
        Some(BundleLocation::Link(_)) | None => {}
    }
    warnings.extend(sync_settings.bundle_url_file.as_deref().and_then(link_file::mode_warning));
    if let Some(path) = &sync_settings.network.ca_file
        && let Err(error) = std::fs::metadata(path)
    {
        warnings.push(format!("api.caFile: cannot read {}: {error}", path.display()));
    }
    if let Some(file) = &config.analytics.key_file {
        warnings.extend(file.read().err().map(|error| ErrorChain(&error).to_string()));
        warnings.extend(file.mode_warning());
    }
    warnings.extend(config.analytics.deliver.as_ref().and_then(DeliverySettings::mode_warning));
    warnings.extend(unintended_assistant_settings(config));
    if config.tls.as_ref().is_some_and(|tls| tls.listen.is_empty()) {
        warnings.push(
            "tls.listen is not set: nothing is served encrypted, unless systemd passes a socket named https".to_owned(),
        );
    }
    warnings.extend(exposure_warning(&config.settings.access_control.rules, config.site_addresses()));
    if sync_settings.api.is_some() && sync_settings.exports_at_each_check && !sync_settings.has_configured_probes {
        // Without interval and schedule, the probes of the domain would be used, but an air-gapped host may have none.
        let way = if sync_settings.network.outbound.is_air_gapped() {
            "set sync.probe to addresses that this host may connect to"
        } else {
            "set sync.probe, or remove interval and schedule"
        };
        warnings.push(format!("each check starts an export: {way}, to export only after changes"));
    }
    if !config.receives_versions() {
        warnings.push(format!("there is no source: {SET_SOURCE_ADVICE}"));
    }
    warnings
}

/// Returns what `[assistant]` and `[playground]` allow but probably do not intend.
fn unintended_assistant_settings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    let ask = config.assistant.ask.as_ref();
    if let Some(path) = ask.and_then(|ask| ask.key_file.as_deref()) {
        let name = format!("{} (assistant.keyFile)", path.display());
        warnings.extend(read_key_file(path, &name).err());
        warnings.extend(assistant::key_mode_warning(&config.assistant));
    }
    if ask.is_some() && !config.search.enabled {
        let reason = "search.enabled is false, and the model gets what the search finds";
        warnings.push(format!("assistant.baseUrl: questions are not answered: {reason}"));
    }
    let features = [("questions of readers", ask.is_some()), ("requests to the playground", config.playground.enabled)];
    let features: Vec<&str> = features.into_iter().filter(|(_, is_on)| *is_on).map(|(name, _)| name).collect();
    if config.assistant.hosts.is_empty() && !features.is_empty() {
        warnings.push(format!(
            "assistant.hosts is empty: {} are answered only if a page was reached by an IP address or loopback: list \
             the hosts of the site",
            features.join(" and ")
        ));
    }
    warnings
}
