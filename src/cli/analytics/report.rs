//! `docwharf analytics report`: reports what readers search for and do not find, as a table, as JSON, or as a page.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::Timestamp;

use docwharf_agent::analytics::html;
use docwharf_agent::analytics::period::Period;
use docwharf_agent::analytics::report::{MIN_RATED_HITS, PeriodTerms, ReportParameters, SearchReport};
use docwharf_agent::api::analytics::{MAX_PAGE_TERMS, SearchPageReader};

use super::super::context::CommandContext;
use super::super::failure::CommandFailure;
use super::super::interruptible::run_interruptible;
use super::super::output::wants_colour;
use super::super::text_columns::terminal_width;
use super::period_args::PeriodArgs;
use super::replacement_file::ReplacementFile;
use super::screen;
use super::search_reading::{SearchesReader, SpooledSearches};
use super::source::{REQUESTS_PER_HOUR, SourceArgs};

const DAY: Duration = Duration::from_hours(24);
/// The default period of a report.
const DEFAULT_REPORT_PERIOD: Duration = Duration::from_hours(30 * 24);

#[derive(Debug, Args)]
#[command(
    after_help = "A report covers whole days in UTC. Without --to it ends with yesterday (by default, it covers the last 30 days), unless it begins today or \
--since is not a whole number of days. A request reads 100 terms, and the API answers 100 requests an hour: the default of 1,000 terms takes 10 \
requests, or 20 with --compare."
)]
pub(in crate::cli) struct ReportCommand {
    #[command(flatten)]
    period: PeriodArgs,
    /// Compare with the previous period of the same length
    #[arg(long, value_enum, value_name = "PERIOD")]
    compare: Option<ComparedPeriod>,
    /// The maximum number of terms in each list
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    top: u64,
    /// A click-through rate below this percentage is low
    #[arg(long, value_name = "PERCENT", default_value = "20", value_parser = parse_percent)]
    low: f64,
    /// The number of terms to read of each period
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    terms: u64,
    /// Read all terms, with as many requests as needed. After an interruption the same command resumes (not with
    /// --local)
    #[arg(long, conflicts_with = "terms")]
    all: bool,
    /// Also write the report as a page to this file, which is replaced
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    source: SourceArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ComparedPeriod {
    /// The period that ends where the reported period begins
    Previous,
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end().parse::<f64>();
    let number = number.ok().filter(|number| *number > 0.0 && *number <= 100.0);
    number.ok_or_else(|| "write a percentage above 0 and at most 100".to_owned())
}

impl ReportCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let now = Timestamp::now();
        let period = self.whole_days(now)?;
        let config = context.config()?;
        context.warn_about_config(&config);
        // Created before the first request: a path that cannot be written to must not use up an hour's budget.
        let html_file = self.html.as_deref().map(|path| ReplacementFile::new(path, 0o666, "report")).transpose()?;
        let parameters = ReportParameters {
            top: usize::try_from(self.top).unwrap_or(usize::MAX),
            low_percent: self.low,
            fewest_hits: MIN_RATED_HITS,
        };
        let (project, periods) = run_interruptible(context, move |task_context| {
            let source = self.source.open(&config, task_context)?;
            let project = source.project_id()?.to_owned();
            let reader = SearchesReader { source: &*source, task_context, no_results: false };
            Ok::<_, CommandFailure>((project, self.read(&reader, period, now)?))
        })??;
        let created_at = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
        let report = SearchReport::new(&project, &created_at, &periods.current, periods.previous.as_ref(), parameters);
        if let Some(html_file) = html_file {
            context
                .print_note(&format!("the report is in {}", html_file.write(&html::render_page(&report))?.display()));
        }
        let colour = wants_colour(io::stdout().is_terminal());
        context.print_result(&report, &screen::draw_report(&report, terminal_width(), colour))?;
        periods.spooled.into_iter().for_each(SpooledSearches::remove_spool);
        Ok(())
    }

    /// Returns the period. By default it ends with yesterday: today, which is incomplete, would look like a decline.
    fn whole_days(&self, now: Timestamp) -> Result<Period, CommandFailure> {
        let period = self.period.period(Some(DEFAULT_REPORT_PERIOD), now)?;
        Ok(if self.is_whole_days() { period.until_today(now) } else { period })
    }

    fn is_whole_days(&self) -> bool {
        self.period.since.is_none_or(|since| since.as_secs().is_multiple_of(DAY.as_secs()))
    }

    /// Reads the period and, with --compare, the previous one. Their spools are removed once the report has been shown.
    fn read(
        &self,
        reader: &SearchesReader<'_>,
        period: Period,
        now: Timestamp,
    ) -> Result<ReportPeriods, CommandFailure> {
        let periods = if self.compare.is_some() { 2 } else { 1 };
        let requests = self.terms.div_ceil(MAX_PAGE_TERMS).saturating_mul(periods);
        if !self.all && reader.source.exceeds_hourly_requests(requests) {
            tracing::warn!(
                "up to {requests} requests are needed, and the API answers {REQUESTS_PER_HOUR} an hour: this may take hours"
            );
        }
        if self.compare.is_some() && period.previous(now).is_none() {
            return Err(CommandFailure::Usage(
                "--compare previous needs a period that has begun: see --from".to_owned(),
            ));
        }
        let mut spooled = Vec::new();
        let has_whole_days = self.is_whole_days();
        let mut read_period = |period: Period, arguments: Option<&PeriodArgs>| -> Result<PeriodTerms, CommandFailure> {
            if !self.all {
                let page = reader.read_pages(&period, SearchPageReader::first(self.terms), |_| ())?;
                return Ok(PeriodTerms { period, page });
            }
            // The days identify the spool: a reading of other days must not be resumed.
            let fixed_arguments = PeriodArgs { from: period.from.clone(), to: period.to.clone(), since: None };
            let mut searches = reader.read_all(arguments.unwrap_or(&fixed_arguments), period, MAX_PAGE_TERMS)?;
            let terms = PeriodTerms { period: searches.period.clone(), page: std::mem::take(&mut searches.page) };
            spooled.push(searches);
            Ok(terms)
        };
        let current = read_period(period, Some(&self.period).filter(|_| !has_whole_days))?;
        let previous = match self.compare {
            None => None,
            Some(ComparedPeriod::Previous) => {
                let not_begun =
                    || CommandFailure::Usage("--compare previous needs a period that has begun: see --from".to_owned());
                Some(read_period(current.period.previous(now).ok_or_else(not_begun)?, None)?)
            }
        };
        Ok(ReportPeriods { current, previous, spooled })
    }
}

/// The periods that were read.
struct ReportPeriods {
    current: PeriodTerms,
    previous: Option<PeriodTerms>,
    /// The readings whose spools are removed once the report has been shown.
    spooled: Vec<SpooledSearches>,
}

#[cfg(test)]
mod tests {
    use super::parse_percent;

    #[test]
    fn percentage_argument_is_greater_than_0_and_at_most_100() {
        assert_eq!(parse_percent("12.5%").map(f64::to_bits), Ok(12.5f64.to_bits()));
        assert_eq!(parse_percent("100").map(f64::to_bits), Ok(100f64.to_bits()));
        assert_eq!(parse_percent(" 0.001 % ").map(f64::to_bits), Ok(0.001f64.to_bits()));
        for wrong in ["", "%", "0", "-1", "100.001", "101", "NaN", "inf", "many"] {
            assert!(parse_percent(wrong).is_err(), "{wrong}");
        }
    }
}
