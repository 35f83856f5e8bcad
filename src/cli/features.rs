//! `docwharf features`: shows which features the site has on this host, beside the cells of the vendor's table.

use std::fmt::Write;
use std::path::Path;

use clap::Args;

use crate::config::key_table::ValueType;
use crate::config::keys::keys;
use crate::features::{Availability, FeatureReport, HostState, ReportedFeature};
use docwharf_agent::store::VersionStore;
use docwharf_base::error_chain::OneLine;

use super::context::CommandContext;
use super::failure::CommandFailure;
use super::text_columns::{cut_or_pad, display_width};
use super::write_command::{daemon_status, explain_silent_daemon};

#[derive(Debug, Args)]
pub(super) struct FeaturesCommand {}

impl FeaturesCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let config = context.config()?;
        context.warn_about_config(&config);
        let host = host_state(context, &config.store);
        let report = FeatureReport::new(&config.feature_settings(), &host);
        context.print_result(&report, &table(&report))
    }
}

/// Returns the state of the host, from the daemon if one answers. A store that cannot be read is no failure: the
/// configuration decides, and only whether there is a version stays unknown.
fn host_state(context: &CommandContext, store: &Path) -> HostState {
    if let Some(status) = daemon_status(store) {
        return status.feature_host_state();
    }
    if let Some(why) = explain_silent_daemon(store) {
        context.print_note(&format!(
            "docwharf: warning: a daemon runs on {}, but {why}: the features are those of the configuration alone",
            store.display()
        ));
    }
    let has_version = VersionStore::at(store).record().is_ok_and(|record| record.active.is_some());
    HostState { has_version, daemon: None }
}

/// Formats the deployment, and one line for each feature.
fn table(report: &FeatureReport) -> String {
    let deployment = &report.deployment;
    let mut text = format!("deployment: {}", deployment.deployment_type);
    if !deployment.allow.is_empty() {
        let _ = write!(text, "; allowed: {}", deployment.allow.join(", "));
    }
    text.push_str("\n\n");
    let heading = ["FEATURE", "VENDOR", "HERE", "BY, OR WHAT IT NEEDS"].map(str::to_owned);
    let rows: Vec<[String; 4]> = std::iter::once(heading).chain(report.features.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| display_width(&row[column])).max().unwrap_or(0);
    let widths: [usize; 3] = std::array::from_fn(width);
    for row in &rows {
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(text, "{}  ", cut_or_pad(cell, width));
        }
        let _ = writeln!(text, "{}", row[3]);
    }
    text
}

fn row(feature: &ReportedFeature) -> [String; 4] {
    let main = match feature.state {
        Availability::Available => feature.by.clone(),
        Availability::Configurable => {
            let settings: Vec<String> = feature.set.iter().map(|key| setting(key)).collect();
            Some(format!("set {}", settings.join(" and ")))
        }
        Availability::Unavailable => None,
    };
    // The reason for such a key is that it is false, which the line already shows.
    let why = feature.why.clone().filter(|_| !feature.set.iter().any(|key| is_flag(key)));
    let note = main.into_iter().chain(why).collect::<Vec<_>>().join("; ");
    let [vendor, state] = [feature.vendor, feature.state].map(|availability| availability.name().to_owned());
    [feature.feature.clone(), vendor, state, OneLine(&note).to_string()]
}

/// Returns the key to set, with its value if that is `true`.
fn setting(key: &str) -> String {
    if is_flag(key) { format!("{key} = true") } else { key.to_owned() }
}

fn is_flag(name: &str) -> bool {
    keys().any(|key| key.name == name && matches!(key.value_type, ValueType::Flag))
}
