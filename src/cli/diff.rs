//! `docwharf diff A B`: compares two versions. It takes no lock and reads only their indexes.

use std::fmt::Write;

use clap::Args;
use serde_json::{Value, json};

use docwharf_agent::store::VersionStore;
use docwharf_agent::store::record::StoreRecord;
use docwharf_agent::sync::SyncSettings;
use docwharf_agent::sync::stored_index;
use docwharf_agent::sync::waiting::find_waiting_version;
use docwharf_base::error_chain::{OneLine, QuotedName};
use docwharf_base::model::units::format_size;
use docwharf_base::model::version::VersionId;
use docwharf_site::diff::{ClassChanges, FileChange, VersionDiff, compare_versions};
use docwharf_site::index::ImageIndex;

use super::context::CommandContext;
use super::failure::CommandFailure;
use super::output::print;

/// Number of paths of each kind shown without `--all`.
const MAX_SHOWN_PATHS: usize = 20;

#[derive(Debug, Args)]
pub(super) struct DiffCommand {
    /// A label, 8 or more digits of an id, or `active`, `previous`, `newest`; default: the active version
    #[arg(value_name = "A")]
    from: Option<String>,
    /// As A; default: the version that waits for activation, else the newest
    #[arg(value_name = "B")]
    to: Option<String>,
    /// Print every path, not only the first 20 of each kind
    #[arg(long)]
    all: bool,
    /// Print a table and lists for a comment on a pull request
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

impl DiffCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let store = VersionStore::at(&context.store()?);
        let config = context.config().ok();
        let record = store.record()?;
        let sync_settings = config.as_ref().map(|config| &config.sync_settings);
        let from = find_version(&store, &record, self.from.as_deref().unwrap_or("active"))?;
        let to = match &self.to {
            Some(name) => find_version(&store, &record, name)?,
            None => waiting_or_newest(&store, &record, sync_settings)?,
        };
        let diff = compare_stored_versions(&store, from, to)?;
        let max_paths = if self.all { usize::MAX } else { MAX_SHOWN_PATHS };
        if context.global.json {
            context.print_result(&as_json(from, to, &diff), "")?;
        } else if self.markdown {
            print(&as_markdown(from, to, &diff, max_paths))?;
        } else {
            print(&as_text(from, to, &diff, max_paths))?;
        }
        if diff.is_empty() { Ok(()) } else { Err(CommandFailure::CheckFailed) }
    }
}

/// Finds the version of this name. A label takes precedence over `active`, `previous` and `newest`, and over the digits
/// of an id.
pub(super) fn find_version(
    store: &VersionStore,
    record: &StoreRecord,
    name: &str,
) -> Result<VersionId, CommandFailure> {
    let recorded = match name {
        _ if record.labels.contains_key(name) => None,
        "active" => Some(record.active),
        "previous" => Some(record.previous),
        "newest" => Some(record.newest),
        _ => None,
    };
    match recorded {
        Some(Some(id)) => Ok(id),
        Some(None) => {
            Err(CommandFailure::Usage(format!("there is no {name} version; `docwharf versions` lists the versions")))
        }
        None => Ok(store.find_version(name)?),
    }
}

fn waiting_or_newest(
    store: &VersionStore,
    record: &StoreRecord,
    sync_settings: Option<&SyncSettings>,
) -> Result<VersionId, CommandFailure> {
    match find_waiting_version(record, sync_settings) {
        Some(waiting) => Ok(waiting.version),
        None => find_version(store, record, "newest"),
    }
}

/// Compares two versions of the store.
pub(super) fn compare_stored_versions(
    store: &VersionStore,
    from: VersionId,
    to: VersionId,
) -> Result<VersionDiff, CommandFailure> {
    Ok(compare_versions(&open_index(store, from)?, &open_index(store, to)?))
}

/// Opens the index of a version, which a comparison needs.
pub(super) fn open_index(store: &VersionStore, id: VersionId) -> Result<ImageIndex, CommandFailure> {
    let short = id.short();
    stored_index::read_index(store, id).map_err(CommandFailure::local(format!(
        "cannot read the index of version {short} (`docwharf import` of its bundle creates it again)"
    )))
}

/// Summarizes the changes in three lines. Each begins with a word of at most six letters, padded to `width` columns.
pub(super) fn summary(diff: &VersionDiff, width: usize) -> String {
    let line = |name: &str, changes: &ClassChanges| {
        let what = if changes.is_empty() {
            "no change".to_owned()
        } else {
            let (added, removed, changed) = (changes.added.len(), changes.removed.len(), changes.changed.len());
            format!("{added} added, {removed} removed, {changed} changed")
        };
        format!("{name:width$}{} → {}: {what}\n", changes.count_before, changes.count_after)
    };
    let (before, after) = diff.bytes;
    let sign = if after < before { "-" } else { "+" };
    let difference =
        if after == before { String::new() } else { format!(" ({sign}{})", format_size(after.abs_diff(before))) };
    format!(
        "{}{}{:width$}{} → {}{difference}\n",
        line("pages", &diff.pages),
        line("others", &diff.other_files),
        "size",
        format_size(before),
        format_size(after)
    )
}

/// Returns the changes by kind, with the names that text and Markdown show.
fn changes_by_kind(diff: &VersionDiff) -> [(&'static str, &'static str, &Vec<FileChange>); 6] {
    [
        ("pages", "added", &diff.pages.added),
        ("pages", "removed", &diff.pages.removed),
        ("pages", "changed", &diff.pages.changed),
        ("other files", "added", &diff.other_files.added),
        ("other files", "removed", &diff.other_files.removed),
        ("other files", "changed", &diff.other_files.changed),
    ]
}

fn sizes(change: &FileChange) -> String {
    match (change.size_before, change.size_after) {
        (Some(before), Some(after)) if format_size(before) != format_size(after) => {
            format!("{} → {}", format_size(before), format_size(after))
        }
        (before, after) => format_size(after.or(before).unwrap_or(0)),
    }
}

fn as_text(from: VersionId, to: VersionId, diff: &VersionDiff, max_paths: usize) -> String {
    let mut text = format!("from    {}\nto      {}\n{}", from.short(), to.short(), summary(diff, 8));
    for (file_kind, kind, changes) in changes_by_kind(diff) {
        if changes.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n{file_kind} {kind} ({})", changes.len());
        for change in changes.iter().take(max_paths) {
            let _ = writeln!(text, "  {}  {}", QuotedName(&change.path), sizes(change));
        }
        if changes.len() > max_paths {
            let _ = writeln!(text, "  … and {} more: --all shows them", changes.len() - max_paths);
        }
    }
    text
}

/// Returns the numbers of changes as JSON. `files`: files that are not pages. `before` and `after` of a class count
/// files.
pub(super) fn counts(diff: &VersionDiff) -> Value {
    let to_json = |changes: &ClassChanges| {
        json!({
            "before": changes.count_before, "after": changes.count_after,
            "added": changes.added.len(), "removed": changes.removed.len(), "changed": changes.changed.len(),
        })
    };
    json!({
        "equal": diff.is_empty(),
        "pages": to_json(&diff.pages),
        "files": to_json(&diff.other_files),
        "bytes": { "before": diff.bytes.0, "after": diff.bytes.1 },
    })
}

/// Returns the changes as JSON. `files`: files that are not pages. `before` and `after` of a class count files, those
/// of a list entry are bytes.
fn as_json(from: VersionId, to: VersionId, diff: &VersionDiff) -> Value {
    let list = |changes: &Vec<FileChange>| -> Vec<Value> {
        let to_json = |change: &FileChange| json!({ "path": path(change), "before": change.size_before, "after": change.size_after });
        changes.iter().map(to_json).collect()
    };
    let to_json = |changes: &ClassChanges| {
        json!({
            "before": changes.count_before, "after": changes.count_after,
            "added": list(&changes.added), "removed": list(&changes.removed), "changed": list(&changes.changed),
        })
    };
    json!({
        "schemaVersion": 1,
        "from": from,
        "to": to,
        "equal": diff.is_empty(),
        "pages": to_json(&diff.pages),
        "files": to_json(&diff.other_files),
        "bytes": { "before": diff.bytes.0, "after": diff.bytes.1 },
    })
}

/// Returns a path for JSON; the bytes of one that is not UTF-8 are escaped.
fn path(change: &FileChange) -> String {
    String::from_utf8(change.path.clone()).unwrap_or_else(|_| unquoted_path(&change.path))
}

/// Formats a path on one line, without quotes around it.
fn unquoted_path(path: &[u8]) -> String {
    let quoted = QuotedName(path).to_string();
    quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(&quoted).to_owned()
}

/// Formats text as a code span in Markdown (`CommonMark`, section 6.1): nothing in it is markup, not even backticks.
pub(super) fn code_span(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{space}{text}{space}{fence}")
}

fn as_markdown(from: VersionId, to: VersionId, diff: &VersionDiff, max_paths: usize) -> String {
    let (before, after) = diff.bytes;
    let mut text = format!("### {} → {}\n\n", code_span(&from.short()), code_span(&to.short()));
    text.push_str("| | before | after | added | removed | changed |\n|---|---:|---:|---:|---:|---:|\n");
    for (name, changes) in [("pages", &diff.pages), ("other files", &diff.other_files)] {
        let (added, removed, changed) = (changes.added.len(), changes.removed.len(), changes.changed.len());
        let (before, after) = (changes.count_before, changes.count_after);
        let _ = writeln!(text, "| {name} | {before} | {after} | {added} | {removed} | {changed} |");
    }
    let _ = writeln!(text, "| size | {} | {} | | | |", format_size(before), format_size(after));
    for (file_kind, kind, changes) in changes_by_kind(diff) {
        if changes.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n<details><summary>{file_kind} {kind} ({})</summary>\n", changes.len());
        for change in changes.iter().take(max_paths) {
            let _ = writeln!(text, "- {} {}", code_span(&unquoted_path(&change.path)), sizes(change));
        }
        if changes.len() > max_paths {
            let _ = writeln!(text, "- … and {} more", changes.len() - max_paths);
        }
        text.push_str("\n</details>\n");
    }
    text
}

/// Formats a label or source on one line.
pub(super) fn one_line(text: &str) -> String {
    OneLine(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_in_markdown_output_have_no_markup_effect() {
        assert_eq!(code_span("a_b*c|<d>@e"), "`a_b*c|<d>@e`");
        assert_eq!(code_span("a`b``c"), "```a`b``c```");
        assert_eq!(code_span("`a"), "`` `a ``");
        assert_eq!(unquoted_path(b"a\n`\x1b\xff\""), "a\\n`\\u{1b}\\xff\\\"");
    }
}
