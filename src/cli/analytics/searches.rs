//! `docwharf analytics searches`: lists the terms, for people and for scripts.

use std::fmt::Write;

use clap::{Args, ValueEnum};
use jiff::Timestamp;

use docwharf_agent::api::analytics::{MAX_PAGE_TERMS, SearchPage, SearchPageReader, SearchTerm};
use docwharf_base::error_chain::OneLine;
use docwharf_base::model::units::format_count;

use super::super::api_caller::{API_ANALYTICS_LIMIT, ApiCaller};
use super::super::context::CommandContext;
use super::super::failure::CommandFailure;
use super::super::interruptible::run_interruptible;
use super::super::output::print;
use super::super::text_columns::{cut_or_pad, display_width, terminal_width};
use super::period_args::PeriodArgs;
use super::search_reading::{read_all, read_pages};

/// The number of requests that the API answers in an hour.
const REQUESTS_PER_HOUR: u64 = API_ANALYTICS_LIMIT.requests as u64;

/// The default of `--limit`.
const DEFAULT_TERMS: u64 = 50;

#[derive(Debug, Args)]
pub(in crate::cli) struct SearchesCommand {
    #[command(flatten)]
    period: PeriodArgs,
    /// The number of terms; with --all, of terms per request, 1 to 100
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Read all terms. After an interruption the same command resumes
    #[arg(long)]
    all: bool,
    /// Continue an earlier result: its nextCursor
    #[arg(long, value_name = "CURSOR", conflicts_with = "all")]
    cursor: Option<String>,
    /// The output format; default: table
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<SearchesFormat>,
    /// Fail if the budget of 100 requests an hour is used up, instead of waiting
    #[arg(long)]
    no_wait_for_budget: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SearchesFormat {
    /// Columns for people
    Table,
    /// One object: searches, totalSearches, nextCursor
    Json,
    /// A header and one line per term, quoted as in RFC 4180
    Csv,
    /// One object per line
    Ndjson,
}

impl SearchesCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let format = match (self.format, context.global.json) {
            (Some(format), true) if format != SearchesFormat::Json => {
                return Err(CommandFailure::Usage(
                    "--json and --format contradict each other: leave one out".to_owned(),
                ));
            }
            (Some(format), _) => format,
            (None, true) => SearchesFormat::Json,
            (None, false) => SearchesFormat::Table,
        };
        if let Some(limit) = self.limit.filter(|limit| self.all && *limit > MAX_PAGE_TERMS) {
            return Err(CommandFailure::Usage(format!(
                "--limit {limit}: with --all, a request asks for 1 to 100 terms"
            )));
        }
        let period = self.period.period(None, Timestamp::now())?;
        let config = context.config()?;
        context.warn_about_config(&config);
        let is_all = self.all;
        let (page, spooled) = run_interruptible(context, move |task_context| {
            let caller = ApiCaller::with_budgets(&config, task_context, "analytics", !self.no_wait_for_budget)?;
            if self.all {
                let mut spooled = read_all(&caller, &self.period, period, self.limit.unwrap_or(MAX_PAGE_TERMS))?;
                return Ok::<_, CommandFailure>((std::mem::take(&mut spooled.page), Some(spooled)));
            }
            let requests = self.limit.unwrap_or(DEFAULT_TERMS).div_ceil(MAX_PAGE_TERMS);
            if requests > REQUESTS_PER_HOUR {
                let advice = "an hour: this may take hours, and only --all resumes after an interruption";
                tracing::warn!("{requests} requests are needed, and the API answers {REQUESTS_PER_HOUR} {advice}");
            }
            let reading = SearchPageReader::first(self.limit.unwrap_or(DEFAULT_TERMS)).starting_at(self.cursor);
            Ok((read_pages(&caller, &period, reading, |_| ())?, None))
        })??;
        print(&match format {
            SearchesFormat::Table => table(&page, is_all),
            SearchesFormat::Json => json_line(serde_json::to_string_pretty(&page))?,
            SearchesFormat::Csv => csv(&page)?,
            SearchesFormat::Ndjson => {
                let lines = page.searches.iter().map(|search| json_line(serde_json::to_string(search)));
                lines.collect::<Result<String, _>>()?
            }
        })?;
        if let Some(spooled) = spooled {
            spooled.remove_spool();
        }
        Ok(())
    }
}

fn json_line(json: Result<String, serde_json::Error>) -> Result<String, CommandFailure> {
    json.map(|json| json + "\n").map_err(|error| CommandFailure::Output(error.into()))
}

fn csv(page: &SearchPage) -> Result<String, CommandFailure> {
    let mut out = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    let failed = |error: csv::Error| CommandFailure::Output(error.into());
    out.write_record(["searchQuery", "hits", "ctr", "topClickedPage", "lastSearchedAt"]).map_err(failed)?;
    for search in &page.searches {
        out.serialize(search).map_err(failed)?;
    }
    let bytes = out.into_inner().map_err(|error| CommandFailure::Output(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Formats a cell on one line, with control characters escaped.
fn one_line_cell(text: &str) -> String {
    OneLine(text).to_string()
}

fn row(search: &SearchTerm) -> [String; 5] {
    let number = |number: &Option<serde_json::Number>| number.as_ref().map_or_else(String::new, ToString::to_string);
    let text = |text: &Option<String>| text.as_deref().map(one_line_cell).unwrap_or_default();
    // Minutes are precise enough for a table.
    let last = text(&search.last_searched_at);
    let is_utc = last.len() > 16 && last.as_bytes()[10] == b'T' && last.ends_with('Z') && last.is_ascii();
    let last = if is_utc { last[..16].replace('T', " ") } else { last };
    let page = search.top_clicked_page.as_deref().map_or_else(|| "–".to_owned(), one_line_cell);
    [one_line_cell(&search.search_query), number(&search.hits), number(&search.ctr), page, last]
}

fn table(page: &SearchPage, is_all: bool) -> String {
    let headings = ["TERM", "HITS", "CTR", "TOP PAGE", "LAST SEARCHED"].map(str::to_owned);
    let rows: Vec<[String; 5]> = std::iter::once(headings).chain(page.searches.iter().map(row)).collect();
    let mut widths = [0; 5];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(display_width(cell));
        }
    }
    if let Some(screen) = terminal_width() {
        // Numbers are never cut; terms and pages share the width that is left.
        let remaining = screen.saturating_sub(widths[1] + widths[2] + widths[4] + 8).max(24);
        let page = widths[3].min((remaining / 2).max(remaining.saturating_sub(widths[0])));
        (widths[0], widths[3]) = (widths[0].min(remaining - page), page);
    }
    let mut out = String::new();
    for [term, hits, ctr, page, last] in &rows {
        let line = format!(
            "{}  {hits:>h$}  {ctr:>c$}  {}  {last}",
            cut_or_pad(term, widths[0]),
            cut_or_pad(page, widths[3]),
            h = widths[1],
            c = widths[2]
        );
        out.push_str(line.trim_end());
        out.push('\n');
    }
    let terms = format_count(page.searches.len() as u64, "term");
    let total = page.total_searches.map_or_else(|| "unknown".to_owned(), |total| total.to_string());
    let more = if page.next_cursor.is_some() && !is_all { ", and there are more: --limit N or --all" } else { "" };
    let _ = writeln!(out, "{terms}{more}; totalSearches {total} (events in the period, not terms)");
    out
}
