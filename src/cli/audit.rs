//! `docwharf bundle audit`: lists what a site needs from external origins, and what does not work without it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use docwharf_agent::store::VersionStore;
use docwharf_agent::sync::open;
use docwharf_base::error_chain::QuotedName;
use docwharf_base::model::units::format_count;
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
        let seal_options = SealOptions::new(context.limits()?);
        let version = match &self.path {
            Some(path) => {
                let (version, warnings) = progress::run_with_progress(context, "verifying", |progress| {
                    seal_unlinked(path, &seal_options, progress)
                })?;
                if !context.global.json {
                    context.print_warnings(&path.display().to_string(), &warnings);
                }
                version
            }
            None => open_active(context)?,
        };
        let report = audit(&version, seal_options.threads, &|| false).unwrap_or_default();
        let max_files = if self.all { usize::MAX } else { MAX_SHOWN_FILES };
        if context.global.json {
            context.print_result(&as_json(&version, &report), "")?;
        } else if self.markdown {
            print(&as_markdown(&version, &report, max_files))?;
        } else {
            print(&as_text(&version, &report, max_files))?;
        }
        if report.is_clean() { Ok(()) } else { Err(CommandFailure::CheckFailed) }
    }
}

fn open_active(context: &CommandContext) -> Result<SealedVersion, CommandFailure> {
    let store = VersionStore::at(&context.store()?);
    let Some(id) = store.record()?.active else {
        let what = "there is no active version: name an archive or a folder".to_owned();
        return Err(CommandFailure::Usage(what));
    };
    open::open_read_only(&store, id).map_err(CommandFailure::local(format!("cannot read version {}", id.short())))
}

/// Groups the needs by origin. Those of an origin keep their order: the most important kind first.
fn by_origin(report: &ExternalAudit) -> BTreeMap<&str, Vec<&ExternalNeed>> {
    let mut all: BTreeMap<&str, Vec<&ExternalNeed>> = BTreeMap::new();
    for need in report.required_needs() {
        all.entry(need.origin.as_str()).or_default().push(need);
    }
    all
}

/// Returns the files that need something external, each with its needs. Hints do not count.
fn by_file(report: &ExternalAudit) -> impl Iterator<Item = (usize, Vec<&ExternalNeed>)> {
    report.files.iter().filter_map(|(file, numbers)| {
        let needs = numbers.iter().map(|&n| &report.needs[n as usize]);
        let losses: Vec<&ExternalNeed> = needs.filter(|need| need.kind != ResourceKind::Hint).collect();
        (!losses.is_empty()).then_some((*file, losses))
    })
}

fn file_path(version: &SealedVersion, file: usize) -> String {
    let quoted = QuotedName(version.index().path(file)).to_string();
    quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(&quoted).to_owned()
}

/// Formats an address on one line: a page may contain any character in it.
fn one_line_address(text: &str) -> String {
    let quoted = QuotedName(text.as_bytes()).to_string();
    quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(&quoted).to_owned()
}

/// Summarizes the audit on one line.
fn summary_line(report: &ExternalAudit) -> String {
    let pages = format_count(report.pages, "page");
    if report.is_clean() {
        return format!(
            "ok: nothing is needed from other origins ({pages}, {} read)",
            format_count(report.files_read, "file")
        );
    }
    let (origins, files) = (by_origin(report).len() as u64, by_file(report).count() as u64);
    let origins = if origins == 1 { "1 external origin".to_owned() } else { format!("{origins} external origins") };
    format!("{origins} in {} ({pages} in all)", format_count(files, "file"))
}

fn as_text(version: &SealedVersion, report: &ExternalAudit, max_files: usize) -> String {
    let mut text = summary_line(report) + "\n";
    for (origin, needs) in by_origin(report) {
        let _ = writeln!(text, "\n{}", one_line_address(origin));
        for need in needs {
            let (kind, files) = (need.kind, format_count(need.files, "file"));
            let _ = writeln!(text, "  {:9} {files}: {}", kind.name(), kind.describe_loss());
            let (file, address) = &need.example;
            let _ = writeln!(text, "            {} has {}", file_path(version, *file), one_line_address(address));
        }
    }
    let total = by_file(report).count();
    if total > 0 {
        let _ = writeln!(text, "\nby file");
    }
    for (file, needs) in by_file(report).take(max_files) {
        let need_text =
            |need: &&ExternalNeed| format!("{} {}", need.kind.name(), one_line_address(need.origin.as_str()));
        let _ = writeln!(
            text,
            "  {}: {}",
            file_path(version, file),
            needs.iter().map(need_text).collect::<Vec<_>>().join(", ")
        );
    }
    if total > max_files {
        let _ = writeln!(text, "  … and {} more: --all shows them", total - max_files);
    }
    append_notes(version, report, max_files == usize::MAX, &mut text);
    text
}

/// Appends notes about resources that do not count as needs, and about those that the audit cannot find.
fn append_notes(version: &SealedVersion, report: &ExternalAudit, all: bool, text: &mut String) {
    let hints: Vec<String> = report.hints().map(|need| one_line_address(need.origin.as_str())).collect();
    if !hints.is_empty() {
        let _ = writeln!(text, "\nharmless when refused (preconnect, dns-prefetch, prefetch): {}", hints.join(", "));
    }
    if !report.mentions.is_empty() && (all || !report.is_clean()) {
        let n = report.mentions.len() as u64;
        let _ = writeln!(
            text,
            "\nnot counted: {} named in scripts, which may request nothing there{}",
            if n == 1 { "1 origin".to_owned() } else { format!("{n} origins") },
            if all { "" } else { " (--all lists them)" }
        );
        for (origin, files) in report.mentions.iter().filter(|_| all) {
            let _ = writeln!(text, "  {}  {}", one_line_address(origin.as_str()), format_count(*files, "file"));
        }
    }
    if let Some(&first) = report.service_workers.first() {
        let n = format_count(report.service_workers.len() as u64, "file");
        let _ = writeln!(
            text,
            "\na service worker is installed by {n}, such as {}: its requests are found only if \
            its script names them",
            file_path(version, first)
        );
    }
    if !report.is_clean() {
        text.push_str(
            "\naddresses that scripts build from parts or take from a response cannot be found by reading the scripts\n",
        );
    }
    if report.is_incomplete {
        text.push_str("not everything is recorded and shown here: there is more\n");
    }
}

fn as_json(version: &SealedVersion, report: &ExternalAudit) -> Value {
    let need_json = |need: &ExternalNeed| {
        json!({
            "origin": need.origin.as_str(), "kind": need.kind.name(), "without": need.kind.describe_loss(), "files": need.files,
            "example": { "path": file_path(version, need.example.0), "address": need.example.1 },
        })
    };
    let files = by_file(report).map(|(file, needs)| {
        let need_json = |need: &&ExternalNeed| json!({ "origin": need.origin.as_str(), "kind": need.kind.name() });
        json!({ "path": file_path(version, file), "needs": needs.iter().map(need_json).collect::<Vec<_>>() })
    });
    let mentions = report.mentions.iter().map(|(origin, files)| json!({ "origin": origin.as_str(), "files": files }));
    json!({
        "schemaVersion": 1,
        "version": version.id,
        "result": if report.is_clean() { "inside" } else { "outside" },
        "pages": report.pages,
        "read": report.files_read,
        "needs": report.required_needs().map(need_json).collect::<Vec<_>>(),
        "hints": report.hints().map(need_json).collect::<Vec<_>>(),
        "files": files.collect::<Vec<_>>(),
        "mentions": mentions.collect::<Vec<_>>(),
        "serviceWorkers": report.service_workers.iter().map(|&file| file_path(version, file)).collect::<Vec<_>>(),
        "complete": !report.is_incomplete,
    })
}

fn as_markdown(version: &SealedVersion, report: &ExternalAudit, max_files: usize) -> String {
    let code = super::diff::code_span;
    // A vertical bar would end the table cell.
    let cell = |text: &str| code(&text.replace('|', "%7C"));
    let mut text = format!("### {}\n\n", summary_line(report));
    if report.is_clean() {
        return text;
    }
    text.push_str("| origin | what | files | without it | for example |\n|---|---|---:|---|---|\n");
    for need in report.required_needs() {
        let (origin, kind) = (cell(&one_line_address(need.origin.as_str())), need.kind);
        let example = cell(&file_path(version, need.example.0));
        let _ =
            writeln!(text, "| {origin} | {} | {} | {} | {example} |", kind.name(), need.files, kind.describe_loss());
    }
    let total = by_file(report).count();
    let _ = writeln!(text, "\n<details><summary>by file ({total})</summary>\n");
    for (file, needs) in by_file(report).take(max_files) {
        let need_text =
            |need: &&ExternalNeed| format!("{} {}", need.kind.name(), code(&one_line_address(need.origin.as_str())));
        let _ = writeln!(
            text,
            "- {}: {}",
            code(&file_path(version, file)),
            needs.iter().map(need_text).collect::<Vec<_>>().join(", ")
        );
    }
    if total > max_files {
        let _ = writeln!(text, "- … and {} more", total - max_files);
    }
    text.push_str("\n</details>\n");
    text
}
