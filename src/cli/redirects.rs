//! `docwharf redirects check`: checks the redirects of a site and of the configuration.

use std::fmt::Write;
use std::path::Path;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use docwharf_agent::store::VersionStore;
use docwharf_agent::sync::open;
use docwharf_base::error_chain::OneLine;
use docwharf_base::model::units::format_count;
use docwharf_site::lookup::{AddressSettings, SiteFiles};
use docwharf_site::rules::route::RouteSettings;
use docwharf_site::rules::rule_check::{RuleCheckReport, RuleProblem, RuleProblemKind, check_rules};
use docwharf_site::seal::SealOptions;
use docwharf_site::sealed_version::SealedVersion;

use super::context::CommandContext;
use super::diff::find_version;
use super::failure::CommandFailure;
use super::progress;
use super::serve::seal_unlinked;

#[derive(Debug, Subcommand)]
pub(super) enum RedirectsCommand {
    /// Find loops, missing targets and rules that never apply; exit code 1 if there are any
    Check(RedirectsCheckCommand),
}

#[derive(Debug, Args)]
pub(super) struct RedirectsCheckCommand {
    /// An archive or a folder, or a version as for `diff`; default: the active version
    #[arg(value_name = "SITE")]
    site: Option<String>,
}

impl RedirectsCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let RedirectsCommand::Check(check) = self;
        check.run(context)
    }
}

impl RedirectsCheckCommand {
    fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let path = self.site.as_deref().map(Path::new).filter(|path| path.exists());
        let (version, addresses) = if let Some(path) = path {
            let seal_options = SealOptions::new(context.limits()?);
            let (version, warnings) = progress::run_with_progress(context, "verifying", |progress| {
                seal_unlinked(path, &seal_options, progress)
            })?;
            context.print_warnings(&path.display().to_string(), &warnings);
            (version, context.addresses()?)
        } else {
            let store = VersionStore::at(&context.store()?);
            let id = find_version(&store, &store.record()?, self.site.as_deref().unwrap_or("active"))?;
            let message = format!("cannot open version {}", id.short());
            (
                open::open_read_only(&store, id).map_err(CommandFailure::local(message))?,
                context.config()?.sync_settings.gate.address_settings,
            )
        };
        let checked = check_site(&version, &addresses);
        let rules = addresses.rules.list().len() + version.rules().list().len();
        context.print_result(&as_json(&version, rules, &checked), &as_text(rules, &checked))?;
        // Rules that were not checked count as a problem.
        if checked.problems.is_empty() && checked.unchecked == 0 { Ok(()) } else { Err(CommandFailure::CheckFailed) }
    }
}

fn check_site(version: &SealedVersion, addresses: &AddressSettings) -> RuleCheckReport {
    let slashes = addresses.slashes.unwrap_or(version.auto_slashes);
    let route_settings = RouteSettings { base_path: &addresses.base_path, slashes, rules: &addresses.rules };
    let index = version.index();
    let is_folder =
        |address: &[u8]| index.first_path_from(&address[1..]).is_some_and(|path| path.starts_with(&address[1..]));
    check_rules(version, &route_settings, &is_folder)
}

fn as_text(rules: usize, report: &RuleCheckReport) -> String {
    let RuleCheckReport { problems, unchecked } = report;
    let mut text = String::new();
    for problem in problems {
        let RuleProblem { place, kind, source, destination, message } = problem;
        let rule =
            if *kind == RuleProblemKind::Invalid { String::new() } else { format!(" {source} → {destination}:") };
        let _ = writeln!(text, "{}", OneLine(&format!("{place}: {}:{rule} {message}", kind.name())));
    }
    if *unchecked > 0 {
        let rules = format_count(*unchecked as u64, "rule");
        let _ = writeln!(text, "the last {rules} were not checked: comparing so many long rules takes too long");
    }
    let _ =
        writeln!(text, "{}, {}", format_count(rules as u64, "rule"), format_count(problems.len() as u64, "finding"));
    text
}

fn as_json(version: &SealedVersion, rules: usize, report: &RuleCheckReport) -> Value {
    let to_json = |problem: &RuleProblem| {
        let RuleProblem { place, kind, source, destination, message } = problem;
        let non_empty = |text: &String| (!text.is_empty()).then(|| text.clone());
        json!({
            "place": place, "kind": kind.name(), "source": non_empty(source), "destination": non_empty(destination),
            "what": message,
        })
    };
    json!({
        "schemaVersion": 1, "version": version.id, "rules": rules,
        "findings": report.problems.iter().map(to_json).collect::<Vec<Value>>(), "unchecked": report.unchecked,
    })
}
