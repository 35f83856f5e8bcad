//! `docwharf analytics searches|report`: reads from the management API what readers search for.

mod period_args;
mod report;
mod screen;
mod search_reading;
mod searches;

use clap::Subcommand;

use super::context::CommandContext;
use super::failure::CommandFailure;

#[derive(Debug, Subcommand)]
pub(super) enum AnalyticsCommand {
    /// List what readers searched for, most frequent first
    Searches(searches::SearchesCommand),
    /// Report on what readers search for and do not find, also compared with the previous period
    Report(report::ReportCommand),
}

impl AnalyticsCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        match self {
            AnalyticsCommand::Searches(searches) => searches.run(context),
            AnalyticsCommand::Report(report) => report.run(context),
        }
    }
}
