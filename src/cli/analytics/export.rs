//! `docwharf analytics export`: writes what this host has recorded to a file, for a host or an origin that no network
//! reaches.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use docwharf_base::model::units::format_count;

use super::super::context::CommandContext;
use super::super::failure::CommandFailure;

#[derive(Debug, Args)]
#[command(
    after_help = "`docwharf analytics import FILE` on another host, or `docwharf origin import-analytics PROJECT FILE`, adds the file to what is stored there. Each search and view counts once, however often it is imported."
)]
pub(in crate::cli) struct AnalyticsExportCommand {
    /// The file to write; "-" is standard output
    file: PathBuf,
    /// Only what has changed since the last export; everything if there was none
    #[arg(long)]
    since_last: bool,
}

/// The numbers of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ExportNumbers {
    pub(super) searches: u64,
    pub(super) later_clicks: u64,
    pub(super) counts: u64,
}

impl AnalyticsExportCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let folder = context.store()?;
        if self.file == Path::new("-") {
            // Standard output has the file.
            let numbers = export_to_output(context, folder, self.since_last)?;
            context.print_note(&describe(numbers, None, self.since_last));
            return Ok(());
        }
        let (path, numbers) = export_to_file(context, folder, &self.file, self.since_last)?;
        let ExportNumbers { searches, later_clicks, counts } = numbers;
        let json = json!({
            "schemaVersion": 1, "file": path, "searches": searches, "laterClicks": later_clicks, "counts": counts,
        });
        context.print_outcome(&json, &format!("{}\n", describe(numbers, Some(&path), self.since_last)))
    }
}

#[cfg(feature = "analytics")]
fn export_to_output(
    context: &CommandContext,
    folder: PathBuf,
    since_last: bool,
) -> Result<ExportNumbers, CommandFailure> {
    use super::super::interruptible::run_interruptible;
    let exported = run_interruptible(context, move |_| {
        super::local_store::export(&folder, (std::io::stdout(), "standard output"), since_last)
    })??;
    exported.finish()
}

#[cfg(feature = "analytics")]
fn export_to_file(
    context: &CommandContext,
    folder: PathBuf,
    path: &Path,
    since_last: bool,
) -> Result<(PathBuf, ExportNumbers), CommandFailure> {
    use super::super::interruptible::run_interruptible;
    use super::replacement_file::ReplacementFile;
    let file = ReplacementFile::new(path, 0o600, "analytics")?;
    let failed = CommandFailure::local(format!("cannot write the analytics to {}", path.display()));
    let writer = file.writer().map_err(failed)?;
    let name = path.display().to_string();
    let exported =
        run_interruptible(context, move |_| super::local_store::export(&folder, (writer, &*name), since_last))??;
    let path = file.commit()?;
    Ok((path, exported.finish()?))
}

#[cfg(not(feature = "analytics"))]
fn export_to_output(_: &CommandContext, _: PathBuf, _: bool) -> Result<ExportNumbers, CommandFailure> {
    Err(super::source::missing_feature("analytics export"))
}

#[cfg(not(feature = "analytics"))]
fn export_to_file(
    _: &CommandContext,
    _: PathBuf,
    _: &Path,
    _: bool,
) -> Result<(PathBuf, ExportNumbers), CommandFailure> {
    Err(super::source::missing_feature("analytics export"))
}

/// Describes the result for people. `path` is `None` for standard output.
fn describe(numbers: ExportNumbers, path: Option<&Path>, since_last: bool) -> String {
    let ExportNumbers { searches, later_clicks, counts } = numbers;
    let searches = if searches == 1 { "1 search".to_owned() } else { format!("{searches} searches") };
    let counts = format_count(counts, "daily count");
    let clicks = if later_clicks == 0 {
        String::new()
    } else {
        format!(", {} on earlier searches", format_count(later_clicks, "click"))
    };
    let place = path.map_or_else(String::new, |path| format!(" to {}", path.display()));
    let part = if since_last { " (what has changed since the last export)" } else { "" };
    format!("exported {searches}{clicks} and {counts}{place}{part}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_names_what_was_exported_and_where_it_is() {
        let numbers = ExportNumbers { searches: 1, later_clicks: 2, counts: 3 };
        assert_eq!(
            describe(numbers, Some(Path::new("/usb/a")), false),
            "exported 1 search, 2 clicks on earlier searches and 3 daily counts to /usb/a"
        );
        let numbers = ExportNumbers { searches: 2, later_clicks: 0, counts: 1 };
        assert_eq!(
            describe(numbers, None, true),
            "exported 2 searches and 1 daily count (what has changed since the last export)"
        );
    }
}
