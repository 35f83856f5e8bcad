//! The configuration: every mistake, and what is allowed but probably not meant.

use crate::config::access::{addresses, exposed};
use crate::config::checked::{Config, Sources};
use crate::store::Store;
use crate::sync::Bundle;

use super::Check;

const NAME: &str = "configuration";

/// The configuration, if there are no mistakes in it.
pub(super) fn check(sources: &Sources) -> (Option<Config>, Vec<Check>) {
    let config = match sources.load() {
        Ok(config) => config,
        Err(problems) => {
            let of = |problem: &crate::config::Problem| {
                Check::error(NAME, problem.to_string(), "correct it; docwharf config init shows every key")
            };
            return (None, problems.iter().map(of).collect());
        }
    };
    let (file, named) = sources.file();
    let is_there = named || file.exists();
    let mut checks = Vec::new();
    let has_source = config.intent.has_source() || config.inbox.is_some();
    let is_empty = Store::at(&config.store).versions().is_ok_and(|versions| versions.is_empty());
    let doubts = if has_source || !is_empty { doubts(&config) } else { Vec::new() };
    for warning in config.warnings.iter().map(ToString::to_string).chain(doubts) {
        checks.push(Check::warning(NAME, warning, "change it if that is not what is meant"));
    }
    if !has_source && is_empty {
        let advice = if is_there {
            "set staticExport.bundleUrl, [api] or sync.inbox, or import a bundle".to_owned()
        } else {
            format!("docwharf config init {} begins one", file.display())
        };
        checks.push(Check::error(NAME, "there is nothing to serve, and nothing to bring it from", advice));
    }
    if !is_there {
        checks.push(Check::ok(NAME, format!("there is no {}: environment and defaults are in force", file.display())));
    } else if checks.is_empty() {
        checks.push(Check::ok(NAME, file.display().to_string()));
    }
    (Some(config), checks)
}

/// What in a configuration is allowed but probably not meant, beyond what reading it tells.
pub fn doubts(config: &Config) -> Vec<String> {
    let mut doubts = Vec::new();
    let intent = &config.intent;
    if let Some(Bundle::File(path)) = &intent.bundle
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
    doubts.extend(exposed(&config.settings.door.access, addresses(config)));
    if intent.api.is_some() && intent.each_look && !intent.probes_said {
        doubts.push(
            "each look exports: set sync.probe, or leave out interval and schedule, to export after changes".to_owned(),
        );
    }
    if !intent.has_source() && config.inbox.is_none() {
        doubts
            .push("there is no source: set staticExport.bundleUrl, [api] or sync.inbox, or import bundles".to_owned());
    }
    doubts
}
