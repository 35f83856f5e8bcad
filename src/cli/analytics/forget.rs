//! `docwharf analytics forget`: deletes what this host has recorded of its readers.

use std::path::Path;

use clap::Args;
use jiff::civil::Date;
use serde_json::json;

use docwharf_base::error_chain::OneLine;

use super::super::context::CommandContext;
use super::super::failure::CommandFailure;
use super::super::interruptible::run_interruptible;

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
#[command(
    after_help = "The file in the store is rewritten without what was deleted, also while the daemon runs. Backups of the store are not changed."
)]
pub(in crate::cli) struct ForgetCommand {
    /// Delete the searches and the views before this day: YYYY-MM-DD, in UTC
    #[arg(long, value_name = "DATE", value_parser = parse_day)]
    before: Option<Date>,
    /// Delete all searches for this text, whatever their case and white space
    #[arg(long, value_name = "TEXT", value_parser = parse_text)]
    query: Option<String>,
}

/// The part of what was recorded that is to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ForgottenPart {
    /// The searches and views before this day.
    Before(Date),
    /// The searches for this text.
    Query(String),
}

/// The numbers of rows that were deleted: of searches, of those of them that were delivered to an origin before, and of
/// views and other counts by day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct DeletedRows {
    searches: u64,
    delivered_searches: u64,
    count_rows: u64,
}

impl ForgetCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let part = match (self.before, self.query) {
            (Some(day), None) => ForgottenPart::Before(day),
            (None, Some(text)) => ForgottenPart::Query(text),
            _ => return Err(CommandFailure::Usage("give either --before or --query".to_owned())),
        };
        let folder = context.store()?;
        let (part, deleted) = run_interruptible(context, move |_| {
            let deleted = delete(&folder, &part)?;
            Ok::<_, CommandFailure>((part, deleted))
        })??;
        let json = json!({ "schemaVersion": 1, "searches": deleted.searches,
            "deliveredSearches": deleted.delivered_searches, "countRows": deleted.count_rows });
        context.print_outcome(&json, &describe(&part, deleted))
    }
}

#[cfg(feature = "analytics")]
fn delete(folder: &Path, part: &ForgottenPart) -> Result<DeletedRows, CommandFailure> {
    let deleted = super::local_store::forget(folder, part)?;
    let docwharf_analytics::recording::DeletedRows { searches, delivered_searches, count_rows } = deleted;
    Ok(DeletedRows { searches, delivered_searches, count_rows })
}

#[cfg(not(feature = "analytics"))]
fn delete(_: &Path, _: &ForgottenPart) -> Result<DeletedRows, CommandFailure> {
    Err(super::source::missing_feature("analytics forget"))
}

fn parse_day(text: &str) -> Result<Date, String> {
    let day = text.parse::<Date>().ok().filter(|day| day.to_string() == text);
    day.ok_or_else(|| "write a day as 2026-11-01".to_owned())
}

fn parse_text(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("it is empty".to_owned()) } else { Ok(text.to_owned()) }
}

/// Describes the result for people.
fn describe(part: &ForgottenPart, deleted: DeletedRows) -> String {
    let searches = if deleted.searches == 1 { "1 search".to_owned() } else { format!("{} searches", deleted.searches) };
    let delivered = match deleted.delivered_searches {
        0 => String::new(),
        1 => "; 1 of the searches was delivered to an origin before, and stays there".to_owned(),
        n => format!("; {n} of the searches were delivered to an origin before, and stay there"),
    };
    match part {
        ForgottenPart::Before(day) if deleted == DeletedRows::default() => {
            format!("nothing was deleted, because nothing was recorded before {day}\n")
        }
        ForgottenPart::Before(day) => {
            let rows = if deleted.count_rows == 1 { "row" } else { "rows" };
            format!(
                "deleted what was recorded before {day}: {searches} and {} {rows} of counts{delivered}\n",
                deleted.count_rows
            )
        }
        ForgottenPart::Query(text) if deleted.searches == 0 => {
            format!("nothing was deleted, because there is no search for \"{}\"\n", OneLine(text))
        }
        ForgottenPart::Query(text) => format!("deleted {searches} for \"{}\"{delivered}\n", OneLine(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_written_with_hyphens_only() {
        for (text, is_day) in [
            ("2026-11-01", true),
            ("1969-12-31", true),
            ("2026-1-1", false),
            ("20261101", false),
            ("2026-11-01T00:00", false),
            ("2026-02-30", false),
            (" 2026-11-01", false),
            ("", false),
        ] {
            assert_eq!(parse_day(text).is_ok(), is_day, "{text:?}");
        }
        assert!(parse_text(" \t").is_err());
    }

    #[test]
    fn the_message_says_how_much_was_deleted_or_that_nothing_was() {
        let before = ForgottenPart::Before(parse_day("2026-01-01").unwrap());
        let query = ForgottenPart::Query("a\nb".to_owned());
        for (part, searches, count_rows, message) in [
            (&before, 1, 0, "deleted what was recorded before 2026-01-01: 1 search and 0 rows of counts\n"),
            (&before, 0, 1, "deleted what was recorded before 2026-01-01: 0 searches and 1 row of counts\n"),
            (&before, 0, 0, "nothing was deleted, because nothing was recorded before 2026-01-01\n"),
            (&query, 2, 0, "deleted 2 searches for \"a\\nb\"\n"),
            (&query, 0, 0, "nothing was deleted, because there is no search for \"a\\nb\"\n"),
        ] {
            let deleted = DeletedRows { searches, delivered_searches: 0, count_rows };
            assert_eq!(describe(part, deleted), message);
        }
        let deleted = DeletedRows { searches: 3, delivered_searches: 2, count_rows: 0 };
        let message =
            "deleted 3 searches for \"a\\nb\"; 2 of the searches were delivered to an origin before, and stay there\n";
        assert_eq!(describe(&query, deleted), message);
    }
}
