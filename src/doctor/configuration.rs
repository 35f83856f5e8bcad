//! Checks the configuration: every mistake, and what is allowed but probably not intended.

use crate::config::access::exposure_warning;
use crate::config::checked::{Config, SET_SOURCE_HINT, nothing_to_serve_message};
use crate::config::sources::ConfigSources;
use docwharf_agent::sync::BundleLocation;

use super::check::DoctorCheck;

const CHECK_NAME: &str = "configuration";

/// Returns the configuration, if it has no mistakes, and the checks.
pub(super) fn check(sources: &ConfigSources) -> (Option<Config>, Vec<DoctorCheck>) {
    let config = match sources.load() {
        Ok(config) => config,
        Err(problems) => {
            let of = |problem: &crate::config::problem::ConfigProblem| {
                DoctorCheck::error(CHECK_NAME, problem.to_string(), "correct it; docwharf config init shows every key")
            };
            return (None, problems.iter().map(of).collect());
        }
    };
    let (file, named) = sources.file();
    let is_there = named || file.exists();
    let mut checks = Vec::new();
    let has_nothing = config.has_nothing_to_serve();
    let doubts = if has_nothing { Vec::new() } else { unintended_settings(&config) };
    for warning in config.warnings.iter().map(ToString::to_string).chain(doubts) {
        checks.push(DoctorCheck::warning(CHECK_NAME, warning, "change it if that is not intended"));
    }
    if has_nothing {
        let begin = format!("docwharf config init {} begins a configuration; in it, ", file.display());
        let begin = if is_there { "" } else { &begin };
        checks.push(DoctorCheck::error(
            CHECK_NAME,
            nothing_to_serve_message(&config.store),
            format!("{begin}{SET_SOURCE_HINT}"),
        ));
    }
    if !is_there {
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
    let mut doubts = Vec::new();
    let intent = &config.intent;
    if let Some(BundleLocation::File(path)) = &intent.bundle
        && let Err(error) = std::fs::metadata(path)
    {
        doubts.push(format!("staticExport.bundleUrl: cannot read {}: {error}", path.display()));
    }
    if let Some(path) = &intent.network.ca_file
        && let Err(error) = std::fs::metadata(path)
    {
        doubts.push(format!("api.caFile: cannot read {}: {error}", path.display()));
    }
    if config.tls.as_ref().is_some_and(|tls| tls.listen.is_empty()) {
        doubts.push(
            "tls.listen is not set: nothing is served encrypted, unless systemd passes a socket named https".to_owned(),
        );
    }
    doubts.extend(exposure_warning(&config.settings.access_control.access, config.site_addresses()));
    if intent.api.is_some() && intent.each_look && !intent.probes_said {
        doubts.push(
            "each look exports: set sync.probe, or leave out interval and schedule, to export after changes".to_owned(),
        );
    }
    if !config.receives_versions() {
        doubts.push(format!("there is no source: {SET_SOURCE_HINT}"));
    }
    doubts
}
