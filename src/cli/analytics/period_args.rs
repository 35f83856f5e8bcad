//! The period of an analytics command, as arguments.

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;

use docwharf_agent::analytics::period::Period;
use docwharf_base::model::units::parse_duration;

use super::super::failure::CommandFailure;

/// The period of an analytics command.
#[derive(Debug, Clone, Args)]
pub(super) struct PeriodArgs {
    /// The start of the period (inclusive): YYYY-MM-DD or ISO 8601
    #[arg(long, value_name = "DATE", conflicts_with = "since")]
    pub(super) from: Option<String>,
    /// The end of the period (exclusive): YYYY-MM-DD or ISO 8601
    #[arg(long, value_name = "DATE")]
    pub(super) to: Option<String>,
    /// The length of the period before --to, or before now: 30d, 36h. Days are calendar days in UTC
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(super) since: Option<Duration>,
}

impl PeriodArgs {
    /// Returns the period, relative to the time `now`. `default` replaces --since if neither --since nor --from is
    /// given.
    pub(super) fn period(&self, default: Option<Duration>, now: Timestamp) -> Result<Period, CommandFailure> {
        let since = self.since.or_else(|| default.filter(|_| self.from.is_none()));
        let period = match since {
            Some(span) => Period::since(span, self.to.as_deref(), now),
            None => Period::between(self.from.as_deref(), self.to.as_deref()),
        };
        period.map_err(CommandFailure::Usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_period_applies_if_neither_from_nor_since_is_set() {
        let now: Timestamp = "2026-11-21T15:30:10Z".parse().unwrap();
        let day = Duration::from_hours(24);
        // --from, --to, --since, the default; the dates in the request.
        for (from, to, since, default, expected) in [
            (None, None, None, None, Some((None, None))),
            (None, None, None, Some(day), Some((Some("2026-11-20"), None))),
            (None, Some("2026-11-01"), None, Some(day), Some((Some("2026-10-31"), Some("2026-11-01")))),
            (Some("2026-11-01"), None, None, Some(day), Some((Some("2026-11-01"), None))),
            (None, None, Some(day * 3), Some(day), Some((Some("2026-11-18"), None))),
            (None, Some("2026-11-01"), Some(day * 3), None, Some((Some("2026-10-29"), Some("2026-11-01")))),
            (Some("2026-11-02"), Some("2026-11-01"), None, None, None),
            (Some("soon"), None, None, Some(day), None),
        ] {
            let arguments = PeriodArgs { from: from.map(str::to_owned), to: to.map(str::to_owned), since };
            let period = arguments.period(default, now);
            let sent = period.as_ref().ok().map(|period| (period.from.as_deref(), period.to.as_deref()));
            assert_eq!(sent, expected, "{arguments:?}");
            assert!(sent.is_some() || matches!(period, Err(CommandFailure::Usage(_))), "{arguments:?}");
        }
    }
}
