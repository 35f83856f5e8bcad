//! `docwharf redirects check`: checks the redirects of a site and of the configuration.

use std::fmt::Write;
use std::path::Path;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use docwharf_agent::store::VersionStore;
use docwharf_agent::sync::open;
use docwharf_base::error_chain::OneLine;
use docwharf_base::model::units::count_noun;
use docwharf_site::lookup::{Addresses, SiteFiles};
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
    /// Find loops, dead targets and rules that never apply; exit code 1 if there are any
    Check(RedirectsCheckCommand),
}

#[derive(Debug, Args)]
pub(super) struct RedirectsCheckCommand {
    /// An archive or a folder, or a version as `diff` takes it; default: the active version
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
        let (site, addresses) = if let Some(path) = path {
            let effort = SealOptions::new(context.limits()?);
            let (site, warnings) =
                progress::with_meter(context, "verifying", |meter| seal_unlinked(path, &effort, meter))?;
            context.print_warnings(&path.display().to_string(), &warnings);
            (site, context.addresses()?)
        } else {
            let store = VersionStore::at(&context.store()?);
            let id = find_version(&store, &store.record()?, self.site.as_deref().unwrap_or("active"))?;
            let doing = format!("cannot open version {}", id.short());
            (open::read(&store, id).map_err(CommandFailure::local(doing))?, context.config()?.intent.gate.addresses)
        };
        let checked = check_site(&site, &addresses);
        let rules = addresses.rules.list().len() + site.rules().list().len();
        context.print_result(&as_json(&site, rules, &checked), &as_text(rules, &checked))?;
        // Rules that were not checked count as a finding.
        if checked.findings.is_empty() && checked.unchecked == 0 { Ok(()) } else { Err(CommandFailure::CheckFailed) }
    }
}

fn check_site(site: &SealedVersion, addresses: &Addresses) -> RuleCheckReport {
    let slashes = addresses.slashes.unwrap_or(site.auto_slashes);
    let ask = RouteSettings { base_path: &addresses.base_path, slashes, rules: &addresses.rules };
    let index = site.index();
    let below = |address: &[u8]| index.first_from(&address[1..]).is_some_and(|path| path.starts_with(&address[1..]));
    check_rules(site, &ask, &below)
}

fn as_text(rules: usize, checked: &RuleCheckReport) -> String {
    let RuleCheckReport { findings, unchecked } = checked;
    let mut text = String::new();
    for finding in findings {
        let RuleProblem { place, kind, source, destination, what } = finding;
        let rule =
            if *kind == RuleProblemKind::Invalid { String::new() } else { format!(" {source} → {destination}:") };
        let _ = writeln!(text, "{}", OneLine(&format!("{place}: {}:{rule} {what}", kind.name())));
    }
    if *unchecked > 0 {
        let rules = count_noun(*unchecked as u64, "rule");
        let _ = writeln!(text, "the last {rules} not checked: comparing so many long rules takes too long");
    }
    let _ = writeln!(text, "{}, {}", count_noun(rules as u64, "rule"), count_noun(findings.len() as u64, "finding"));
    text
}

fn as_json(site: &SealedVersion, rules: usize, checked: &RuleCheckReport) -> Value {
    let of = |finding: &RuleProblem| {
        let RuleProblem { place, kind, source, destination, what } = finding;
        let written = |text: &String| (!text.is_empty()).then(|| text.clone());
        json!({
            "place": place, "kind": kind.name(), "source": written(source), "destination": written(destination),
            "what": what,
        })
    };
    json!({
        "schemaVersion": 1, "version": site.id, "rules": rules,
        "findings": checked.findings.iter().map(of).collect::<Vec<Value>>(), "unchecked": checked.unchecked,
    })
}
