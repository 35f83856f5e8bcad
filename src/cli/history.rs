//! `docwharf history`: shows the record of what was done, read without a lock.

use std::fmt::Write;

use clap::Args;
use serde_json::json;

use docwharf_agent::store::VersionStore;
use docwharf_agent::store::history::HistoryEvent;
use docwharf_base::accounts::resolve_uid_name;
use docwharf_base::clock::now_unix_seconds;
use docwharf_base::error_chain::OneLine;
use docwharf_base::model::units::{format_age, parse_time};

use super::context::CommandContext;
use super::failure::CommandFailure;
use super::output::print;
use super::text_columns::{cut_or_pad, display_width};

#[derive(Debug, Args)]
pub(super) struct HistoryCommand {
    /// Show the last N events
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    last: usize,
}

impl HistoryCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let store = VersionStore::at(&context.store()?);
        let events = store.history()?;
        let events = &events[events.len().saturating_sub(self.last)..];
        if context.global.json {
            return context.print_result(&json!({ "schemaVersion": 1, "events": events }), "");
        }
        print(&history_table(events, now_unix_seconds()))
    }
}

/// Formats events in columns as wide as their widest cell; `now` is in seconds since 1970.
fn history_table(events: &[HistoryEvent], now: i64) -> String {
    let rows: Vec<[String; 5]> = events
        .iter()
        .map(|event| {
            let age = parse_time(&event.time).map_or_else(String::new, |time| format_age(now - time));
            let version = event.version.map_or_else(String::new, |id| id.short());
            let line = |text: &str| OneLine(text).to_string();
            [line(&event.time), age, line(&event.what), version, line(&resolve_uid_name(&event.author))]
        })
        .collect();
    let widths: [usize; 5] =
        std::array::from_fn(|column| rows.iter().map(|row| display_width(&row[column])).max().unwrap_or(0));
    let mut text = String::new();
    for (row, event) in rows.iter().zip(events) {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, columns)| cut_or_pad(cell, columns)).collect();
        let line = format!("{}  {}", cells.join("  "), OneLine(event.note.as_deref().unwrap_or_default()));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    // Regression: the columns of `history` were not aligned when a value was too long.
    #[test]
    fn history_columns_are_aligned_and_times_are_also_relative() {
        let event = |time: &str, what: &str, author: &str, note: Option<&str>| HistoryEvent {
            time: time.to_owned(),
            author: author.to_owned(),
            what: what.to_owned(),
            version: None,
            note: note.map(str::to_owned),
        };
        let events = [
            event("2026-11-23T10:00:00Z", "held", "uid 0", Some("release week")),
            event("2026-11-23T11:58:59Z", "export started", "docwharf run", None),
            event("2026-11-23T12:00:00Z", "released", "alice", None),
        ];
        let text = history_table(&events, parse_time("2026-11-23T12:00:00Z").unwrap());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "2026-11-23T10:00:00Z  2 h ago    held              root          release week");
        assert_eq!(lines[1], "2026-11-23T11:58:59Z  1 min ago  export started    docwharf run");
        assert_eq!(lines[2], "2026-11-23T12:00:00Z  now        released          alice");
    }
}
