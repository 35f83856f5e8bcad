//! `docwharf analytics pages`: lists views of pages and counts by a key, for people and for scripts.

use std::fmt::Write;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use serde_json::Number;

use docwharf_agent::analytics::period::Period;
use docwharf_agent::api::views::{
    CountKey, CountList, KeyCount, MAX_OFFSET, MAX_RESPONSE_ROWS, PageViews, RowReader, RowsRequest, ViewList,
};
use docwharf_agent::sync::system::TaskContext;
use docwharf_base::error_chain::OneLine;
use docwharf_base::model::units::format_count;

use super::super::context::CommandContext;
use super::super::failure::CommandFailure;
use super::super::interruptible::run_interruptible;
use super::super::output::print;
use super::super::text_columns::{cut_or_pad, display_width, terminal_width};
use super::output_format::{OutputFormat, csv, json_lines, pretty_json};
use super::period_args::PeriodArgs;
use super::row_reading::read_rows;
use super::source::{AnalyticsSource, REQUESTS_PER_HOUR, SourceArgs};

/// The default of `--limit`.
const DEFAULT_ROWS: u64 = 50;
/// The minimum width of paths, hosts and names in columns.
const MIN_KEY_COLUMNS: usize = 24;
/// The width of the gap between two columns.
const GAP_COLUMNS: usize = 2;

#[derive(Debug, Args)]
#[command(
    after_help = "Views are counted by day in UTC: a day counts if it begins within the period. human: people; ai: agents and crawlers of AI services; total: \
the sum of both; bot: all other programs. With --by, only people count, except for agent."
)]
pub(in crate::cli) struct PagesCommand {
    /// Count by this key, instead of listing the views of each page
    #[arg(long, value_enum, value_name = "KEY")]
    by: Option<PagesKey>,
    #[command(flatten)]
    period: PeriodArgs,
    /// The number of rows; with --all, of rows per request, 1 to 250
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Read all rows
    #[arg(long)]
    all: bool,
    /// Leave out this many rows at the beginning
    #[arg(long, value_name = "N", conflicts_with = "all", value_parser = clap::value_parser!(u64).range(..=MAX_OFFSET))]
    offset: Option<u64>,
    /// The output format; default: table
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<OutputFormat>,
    #[command(flatten)]
    source: SourceArgs,
}

/// The key of the counts, as an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PagesKey {
    /// Days (UTC)
    Day,
    /// Hosts whose pages led people here
    Referrer,
    /// Pages with which visits of people began
    Entry,
    /// Paths that people requested and that do not exist
    #[value(name = "notFound")]
    NotFound,
    /// Programs that requested pages
    Agent,
}

impl PagesKey {
    fn count_key(self) -> CountKey {
        match self {
            PagesKey::Day => CountKey::Day,
            PagesKey::Referrer => CountKey::Referrer,
            PagesKey::Entry => CountKey::Entry,
            PagesKey::NotFound => CountKey::NotFound,
            PagesKey::Agent => CountKey::Agent,
        }
    }
}

/// A list that was read.
#[derive(Debug)]
enum PagesResult {
    Views(ViewList),
    Counts(CountList),
}

impl PagesCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let format = OutputFormat::choose(self.format, context.global.json)?;
        if let Some(limit) = self.limit.filter(|limit| self.all && *limit > MAX_RESPONSE_ROWS) {
            return Err(CommandFailure::Usage(format!(
                "--limit {limit}: with --all, a request asks for 1 to {MAX_RESPONSE_ROWS} rows"
            )));
        }
        let period = self.period.period(None, Timestamp::now())?;
        let config = context.config()?;
        context.warn_about_config(&config);
        let is_all = self.all;
        let result = run_interruptible(context, move |task_context| {
            let source = self.source.open(&config, task_context)?;
            self.read(&*source, task_context, &period)
        })??;
        print(&match result {
            PagesResult::Views(list) => format_views(&list, format, is_all)?,
            PagesResult::Counts(list) => format_counts(&list, format, is_all)?,
        })
    }

    fn read(
        &self,
        source: &dyn AnalyticsSource,
        task_context: &TaskContext,
        period: &Period,
    ) -> Result<PagesResult, CommandFailure> {
        let (from, to) = (period.from.as_deref(), period.to.as_deref());
        let request = |limit, offset| RowsRequest { from, to, limit, offset };
        let reader = self.reader(source);
        Ok(match self.by.map(PagesKey::count_key) {
            None => PagesResult::Views(read_rows(task_context, reader, |limit, offset| {
                source.views(&request(limit, offset))
            })?),
            Some(by) => PagesResult::Counts(read_rows(task_context, reader, |limit, offset| {
                source.page_counts(by, &request(limit, offset))
            })?),
        })
    }

    fn reader(&self, source: &dyn AnalyticsSource) -> RowReader {
        if self.all {
            return RowReader::all(self.limit.unwrap_or(MAX_RESPONSE_ROWS));
        }
        let rows = self.limit.unwrap_or(DEFAULT_ROWS);
        let requests = rows.div_ceil(MAX_RESPONSE_ROWS);
        if source.exceeds_hourly_requests(requests) {
            let limit = format!("the API answers {REQUESTS_PER_HOUR} an hour: this may take hours");
            tracing::warn!("up to {requests} requests are needed, and {limit}");
        }
        RowReader::first(rows, self.offset.unwrap_or(0))
    }
}

fn format_views(list: &ViewList, format: OutputFormat, is_all: bool) -> Result<String, CommandFailure> {
    match format {
        OutputFormat::Table => Ok(views_table(list, is_all, terminal_width())),
        OutputFormat::Json => pretty_json(list),
        OutputFormat::Csv => csv(&["path", "human", "ai", "total", "bot"], &list.views),
        OutputFormat::Ndjson => json_lines(&list.views),
    }
}

fn format_counts(list: &CountList, format: OutputFormat, is_all: bool) -> Result<String, CommandFailure> {
    match format {
        OutputFormat::Table => Ok(counts_table(list, is_all, terminal_width())),
        OutputFormat::Json => pretty_json(list),
        OutputFormat::Csv => csv(&["key", "count"], &list.rows),
        OutputFormat::Ndjson => json_lines(&list.rows),
    }
}

fn number_cell(number: Option<&Number>) -> String {
    number.map_or_else(String::new, ToString::to_string)
}

fn views_table(list: &ViewList, is_all: bool, columns: Option<usize>) -> String {
    let row = |page: &PageViews| {
        let [human, ai, total, bot] =
            [&page.human, &page.ai, &page.total, &page.bot].map(|number| number_cell(number.as_ref()));
        [OneLine(&page.path).to_string(), human, ai, total, bot]
    };
    let mut out = draw_table(["PATH", "HUMAN", "AI", "TOTAL", "BOT"], list.views.iter().map(row), columns);
    let pages = format_count(list.views.len() as u64, "page");
    let totals = &list.totals;
    let [human, ai, total, bot] = [&totals.human, &totals.ai, &totals.total, &totals.bot]
        .map(|number| number.as_ref().map_or_else(|| "unknown".to_owned(), ToString::to_string));
    let more = more_note(list.has_more, is_all);
    let _ = writeln!(out, "{pages}{more}; all pages of the period: human {human}, ai {ai}, total {total}, bot {bot}");
    out
}

fn counts_table(list: &CountList, is_all: bool, columns: Option<usize>) -> String {
    let (heading, noun) = match list.by {
        CountKey::Day => ("DAY", "day"),
        CountKey::Referrer => ("HOST", "host"),
        CountKey::Entry => ("PATH", "page"),
        CountKey::NotFound => ("PATH", "path"),
        CountKey::Agent => ("AGENT", "agent"),
    };
    let row = |row: &KeyCount| [OneLine(&row.key).to_string(), number_cell(row.count.as_ref())];
    let mut out = draw_table([heading, "COUNT"], list.rows.iter().map(row), columns);
    let _ = writeln!(out, "{}{}", format_count(list.rows.len() as u64, noun), more_note(list.has_more, is_all));
    out
}

fn more_note(has_more: bool, is_all: bool) -> &'static str {
    if has_more && !is_all { ", and there are more: --limit N or --all" } else { "" }
}

/// Draws rows under headings. The first column is text, which is cut if the table is wider than `columns`. The others
/// are numbers, which are never cut.
fn draw_table<const N: usize>(
    headings: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
    columns: Option<usize>,
) -> String {
    let rows: Vec<[String; N]> = std::iter::once(headings.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| display_width(&row[column])).max().unwrap_or(0);
    let mut widths: [usize; N] = std::array::from_fn(width);
    if let Some(columns) = columns {
        let numbers: usize = widths[1..].iter().map(|width| width + GAP_COLUMNS).sum();
        widths[0] = widths[0].min(columns.saturating_sub(numbers).max(MIN_KEY_COLUMNS));
    }
    let mut out = String::new();
    for row in &rows {
        let mut line = cut_or_pad(&row[0], widths[0]);
        for (cell, width) in row[1..].iter().zip(&widths[1..]) {
            let _ = write!(line, "{cell:>columns$}", columns = width + GAP_COLUMNS);
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_cut_to_the_width_of_the_terminal_and_numbers_are_not() {
        let page = |path: &str, human: u64| PageViews {
            path: path.to_owned(),
            human: Some(human.into()),
            ai: Some(2_u64.into()),
            total: Some((human + 2).into()),
            bot: None,
        };
        let list = ViewList {
            views: vec![page("/guides/a-page-with-a-long-name", 1_000), page("/a\nb", 1)],
            has_more: true,
            ..ViewList::default()
        };
        let table = views_table(&list, false, None);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "PATH                             HUMAN  AI  TOTAL  BOT");
        assert_eq!(lines[1], "/guides/a-page-with-a-long-name   1000   2   1002");
        assert_eq!(lines[2], "/a\\nb                                1   2      3");
        let unknown = "human unknown, ai unknown, total unknown, bot unknown";
        let note = format!("2 pages, and there are more: --limit N or --all; all pages of the period: {unknown}");
        assert_eq!(lines[3..], [note.as_str()]);
        let narrow = views_table(&list, true, Some(50));
        assert_eq!(narrow.lines().nth(1), Some("/guides/a-page-with-a-long…   1000   2   1002"));
        assert!(narrow.contains("\n2 pages; all pages"), "{narrow}");
    }

    #[test]
    fn counts_have_the_heading_and_the_noun_of_their_key() {
        let list = |by, keys: &[&str], has_more| {
            let rows = keys.iter().map(|&key| KeyCount { key: key.to_owned(), count: Some(7_u64.into()) }).collect();
            CountList { by, rows, has_more }
        };
        assert_eq!(
            counts_table(&list(CountKey::Day, &["2026-01-01"], true), false, None),
            "DAY         COUNT\n2026-01-01      7\n1 day, and there are more: --limit N or --all\n"
        );
        assert_eq!(
            counts_table(&list(CountKey::Referrer, &["a.example", "(other)"], false), false, None),
            "HOST       COUNT\na.example      7\n(other)        7\n2 hosts\n"
        );
        for (by, noun) in [(CountKey::Entry, "pages"), (CountKey::NotFound, "paths"), (CountKey::Agent, "agents")] {
            let table = counts_table(&list(by, &[], false), false, None);
            assert!(table.ends_with(&format!("COUNT\n0 {noun}\n")), "{table}");
        }
    }
}
