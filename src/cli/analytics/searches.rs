//! `docwharf analytics searches`: lists the terms, for people and for scripts.

use std::fmt::Write;

use clap::Args;
use jiff::Timestamp;

use docwharf_agent::api::analytics::{MAX_PAGE_TERMS, SearchPage, SearchPageReader, SearchTerm};
use docwharf_base::error_chain::OneLine;
use docwharf_base::model::units::format_count;

use super::super::context::CommandContext;
use super::super::failure::CommandFailure;
use super::super::interruptible::run_interruptible;
use super::super::output::print;
use super::super::text_columns::{cut_or_pad, display_width, terminal_width};
use super::output_format::{OutputFormat, csv, json_lines, pretty_json};
use super::period_args::PeriodArgs;
use super::search_reading::SearchesReader;
use super::source::{AnalyticsSource, REQUESTS_PER_HOUR, SourceArgs};

/// The default of `--limit`.
const DEFAULT_TERMS: u64 = 50;

#[derive(Debug, Args)]
pub(in crate::cli) struct SearchesCommand {
    #[command(flatten)]
    period: PeriodArgs,
    /// The number of terms; with --all, of terms per request, 1 to 100
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Read all terms. After an interruption the same command resumes (not with --local)
    #[arg(long)]
    all: bool,
    /// Continue an earlier result: its nextCursor
    #[arg(long, value_name = "CURSOR", conflicts_with = "all")]
    cursor: Option<String>,
    /// Only terms whose searches found nothing. A host that records its readers knows them; other APIs may ignore this
    #[arg(long)]
    no_results: bool,
    /// The output format; default: table
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<OutputFormat>,
    #[command(flatten)]
    source: SourceArgs,
}

/// The fields of a term, as they are named in CSV.
const FIELD_NAMES: [&str; 5] = ["searchQuery", "hits", "ctr", "topClickedPage", "lastSearchedAt"];

impl SearchesCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let format = OutputFormat::choose(self.format, context.global.json)?;
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
            let source = self.source.open(&config, task_context)?;
            let reader = SearchesReader { source: &*source, task_context, no_results: self.no_results };
            if self.all {
                let mut spooled = reader.read_all(&self.period, period, self.limit.unwrap_or(MAX_PAGE_TERMS))?;
                return Ok::<_, CommandFailure>((std::mem::take(&mut spooled.page), Some(spooled)));
            }
            let terms = self.limit.unwrap_or(DEFAULT_TERMS);
            warn_about_requests(&*source, terms);
            let reading = SearchPageReader::first(terms).starting_at(self.cursor);
            Ok((reader.read_pages(&period, reading, |_| ())?, None))
        })??;
        print(&match format {
            OutputFormat::Table => table(&page, is_all),
            OutputFormat::Json => pretty_json(&page)?,
            OutputFormat::Csv => csv(&FIELD_NAMES, &page.searches)?,
            OutputFormat::Ndjson => json_lines(&page.searches)?,
        })?;
        if let Some(spooled) = spooled {
            spooled.remove_spool();
        }
        Ok(())
    }
}

/// Warns of a reading that takes hours, because the API answers few requests in an hour.
fn warn_about_requests(source: &dyn AnalyticsSource, terms: u64) {
    let requests = terms.div_ceil(MAX_PAGE_TERMS);
    if source.exceeds_hourly_requests(requests) {
        let advice = "an hour: this may take hours, and only --all resumes after an interruption";
        tracing::warn!("{requests} requests are needed, and the API answers {REQUESTS_PER_HOUR} {advice}");
    }
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
