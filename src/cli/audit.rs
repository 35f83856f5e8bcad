//! `docwharf bundle audit`: lists what a site needs from external origins, and what does not work without it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use docwharf_agent::store::VersionStore;
use docwharf_agent::sync::open;
use docwharf_base::error_chain::QuotedName;
use docwharf_base::model::units::count_noun;
use docwharf_site::external::ResourceKind;
use docwharf_site::external::audit::{ExternalAudit, ExternalNeed, audit};
use docwharf_site::seal::SealOptions;
use docwharf_site::sealed_version::SealedVersion;

use super::context::CommandContext;
use super::failure::CommandFailure;
use super::output::print;
use super::progress;
use super::serve::seal_unlinked;

/// Number of files shown without `--all`.
const MAX_SHOWN_FILES: usize = 20;

#[derive(Debug, Args)]
pub(super) struct AuditCommand {
    /// A zip, tar, tar.gz or tar.zst, or a folder; default: the active version of the store
    path: Option<PathBuf>,
    /// Show every file, not only the first 20, and the origins that are only named in scripts
    #[arg(long)]
    all: bool,
    /// Print tables for a comment on a pull request
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

impl AuditCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let effort = SealOptions::new(context.limits()?);
        let site = match &self.path {
            Some(path) => {
                let (site, warnings) =
                    progress::with_meter(context, "verifying", |meter| seal_unlinked(path, &effort, meter))?;
                if !context.global.json {
                    context.print_warnings(&path.display().to_string(), &warnings);
                }
                site
            }
            None => open_active(context)?,
        };
        let found = audit(&site, effort.threads, &|| false).unwrap_or_default();
        let most = if self.all { usize::MAX } else { MAX_SHOWN_FILES };
        if context.global.json {
            context.print_result(&as_json(&site, &found), "")?;
        } else if self.markdown {
            print(&as_markdown(&site, &found, most))?;
        } else {
            print(&as_text(&site, &found, most))?;
        }
        if found.is_clean() { Ok(()) } else { Err(CommandFailure::CheckFailed) }
    }
}

fn open_active(context: &CommandContext) -> Result<SealedVersion, CommandFailure> {
    let store = VersionStore::at(&context.store()?);
    let Some(id) = store.record()?.active else {
        let what = "there is no active version; name an archive or a folder".to_owned();
        return Err(CommandFailure::Usage(what));
    };
    open::read(&store, id).map_err(CommandFailure::local(format!("cannot read version {}", id.short())))
}

/// Groups the needs by origin; those of one origin stay in their order, the most important kind first.
fn by_origin(found: &ExternalAudit) -> BTreeMap<&str, Vec<&ExternalNeed>> {
    let mut all: BTreeMap<&str, Vec<&ExternalNeed>> = BTreeMap::new();
    for need in found.losses() {
        all.entry(need.origin.as_str()).or_default().push(need);
    }
    all
}

/// Returns the files that need something external, each with its needs. Hints do not count.
fn by_file(found: &ExternalAudit) -> impl Iterator<Item = (usize, Vec<&ExternalNeed>)> {
    found.files.iter().filter_map(|(file, numbers)| {
        let needs = numbers.iter().map(|&n| &found.needs[n as usize]);
        let losses: Vec<&ExternalNeed> = needs.filter(|need| need.kind != ResourceKind::Hint).collect();
        (!losses.is_empty()).then_some((*file, losses))
    })
}

fn path(site: &SealedVersion, file: usize) -> String {
    let quoted = QuotedName(site.index().path(file)).to_string();
    quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(&quoted).to_owned()
}

/// Formats an address on one line: a page may contain any character in it.
fn one_line_address(text: &str) -> String {
    let quoted = QuotedName(text.as_bytes()).to_string();
    quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(&quoted).to_owned()
}

/// Summarizes the audit on one line.
fn summary_line(found: &ExternalAudit) -> String {
    let pages = count_noun(found.pages, "page");
    if found.is_clean() {
        return format!("ok: everything is inside ({pages}, {} read)", count_noun(found.read, "file"));
    }
    let (origins, files) = (by_origin(found).len() as u64, by_file(found).count() as u64);
    let origins = if origins == 1 { "1 outside origin".to_owned() } else { format!("{origins} outside origins") };
    format!("{origins} in {} ({pages} in all)", count_noun(files, "file"))
}

fn as_text(site: &SealedVersion, found: &ExternalAudit, most: usize) -> String {
    let mut text = summary_line(found) + "\n";
    for (origin, needs) in by_origin(found) {
        let _ = writeln!(text, "\n{}", one_line_address(origin));
        for need in needs {
            let (kind, files) = (need.kind, count_noun(need.files, "file"));
            let _ = writeln!(text, "  {:9} {files}: {}", kind.name(), kind.describe_loss());
            let (file, address) = &need.example;
            let _ = writeln!(text, "            {} has {}", path(site, *file), one_line_address(address));
        }
    }
    let total = by_file(found).count();
    if total > 0 {
        let _ = writeln!(text, "\nby file");
    }
    for (file, needs) in by_file(found).take(most) {
        let of = |need: &&ExternalNeed| format!("{} {}", need.kind.name(), one_line_address(need.origin.as_str()));
        let _ = writeln!(text, "  {}: {}", path(site, file), needs.iter().map(of).collect::<Vec<_>>().join(", "));
    }
    if total > most {
        let _ = writeln!(text, "  … and {} more: --all shows them", total - most);
    }
    append_notes(site, found, most == usize::MAX, &mut text);
    text
}

/// Appends what does not count as a need, and what the audit cannot find.
fn append_notes(site: &SealedVersion, found: &ExternalAudit, all: bool, text: &mut String) {
    let hints: Vec<String> = found.hints().map(|need| one_line_address(need.origin.as_str())).collect();
    if !hints.is_empty() {
        let _ = writeln!(text, "\nharmless when refused (preconnect, dns-prefetch, prefetch): {}", hints.join(", "));
    }
    if !found.mentions.is_empty() && (all || !found.is_clean()) {
        let n = found.mentions.len() as u64;
        let _ = writeln!(
            text,
            "\nnot counted: {} named in scripts; it is not certain that they request anything there{}",
            if n == 1 { "1 origin".to_owned() } else { format!("{n} origins") },
            if all { "" } else { " (--all lists them)" }
        );
        for (origin, files) in found.mentions.iter().filter(|_| all) {
            let _ = writeln!(text, "  {}  {}", one_line_address(origin.as_str()), count_noun(*files, "file"));
        }
    }
    if let Some(&first) = found.service_workers.first() {
        let n = count_noun(found.service_workers.len() as u64, "file");
        let _ = writeln!(
            text,
            "\na service worker is installed by {n}, {} first: its requests are found only as far as \
            its script names them",
            path(site, first)
        );
    }
    if !found.is_clean() {
        text.push_str(
            "\naddresses that scripts build from parts or take from a response cannot be told by reading them\n",
        );
    }
    if found.more {
        text.push_str("there is more than is recorded and shown here\n");
    }
}

fn as_json(site: &SealedVersion, found: &ExternalAudit) -> Value {
    let of = |need: &ExternalNeed| {
        json!({
            "origin": need.origin.as_str(), "kind": need.kind.name(), "without": need.kind.describe_loss(), "files": need.files,
            "example": { "path": path(site, need.example.0), "address": need.example.1 },
        })
    };
    let files = by_file(found).map(|(file, needs)| {
        let of = |need: &&ExternalNeed| json!({ "origin": need.origin.as_str(), "kind": need.kind.name() });
        json!({ "path": path(site, file), "needs": needs.iter().map(of).collect::<Vec<_>>() })
    });
    let mentions = found.mentions.iter().map(|(origin, files)| json!({ "origin": origin.as_str(), "files": files }));
    json!({
        "schemaVersion": 1,
        "version": site.id,
        "result": if found.is_clean() { "inside" } else { "outside" },
        "pages": found.pages,
        "read": found.read,
        "needs": found.losses().map(of).collect::<Vec<_>>(),
        "hints": found.hints().map(of).collect::<Vec<_>>(),
        "files": files.collect::<Vec<_>>(),
        "mentions": mentions.collect::<Vec<_>>(),
        "serviceWorkers": found.service_workers.iter().map(|&file| path(site, file)).collect::<Vec<_>>(),
        "complete": !found.more,
    })
}

fn as_markdown(site: &SealedVersion, found: &ExternalAudit, most: usize) -> String {
    let code = super::diff::code_span;
    // A vertical bar would end the table cell.
    let cell = |text: &str| code(&text.replace('|', "%7C"));
    let mut text = format!("### {}\n\n", summary_line(found));
    if found.is_clean() {
        return text;
    }
    text.push_str("| origin | what | files | without it | for example |\n|---|---|---:|---|---|\n");
    for need in found.losses() {
        let (origin, kind) = (cell(&one_line_address(need.origin.as_str())), need.kind);
        let example = cell(&path(site, need.example.0));
        let _ =
            writeln!(text, "| {origin} | {} | {} | {} | {example} |", kind.name(), need.files, kind.describe_loss());
    }
    let total = by_file(found).count();
    let _ = writeln!(text, "\n<details><summary>by file ({total})</summary>\n");
    for (file, needs) in by_file(found).take(most) {
        let of =
            |need: &&ExternalNeed| format!("{} {}", need.kind.name(), code(&one_line_address(need.origin.as_str())));
        let _ =
            writeln!(text, "- {}: {}", code(&path(site, file)), needs.iter().map(of).collect::<Vec<_>>().join(", "));
    }
    if total > most {
        let _ = writeln!(text, "- … and {} more", total - most);
    }
    text.push_str("\n</details>\n");
    text
}
