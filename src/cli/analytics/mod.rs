//! `docwharf analytics searches|report|pages|export|import|forget`: reads what readers search for and view, from the
//! management API or from the database in which this host records it, writes that database to a file, and changes it.

mod export;
mod forget;
mod import;
#[cfg(feature = "analytics")]
mod local_store;
mod output_format;
mod pages;
mod period_args;
mod replacement_file;
mod report;
mod row_reading;
mod screen;
mod search_reading;
mod searches;
mod source;

use clap::Subcommand;

use super::context::CommandContext;
use super::failure::CommandFailure;

#[derive(Debug, Subcommand)]
pub(super) enum AnalyticsCommand {
    /// List what readers searched for, most frequent first
    Searches(searches::SearchesCommand),
    /// Report on what readers search for and do not find, also compared with the previous period
    Report(report::ReportCommand),
    /// List the pages that readers viewed, or count by day, referrer, entry page, path that does not exist, or program
    Pages(pages::PagesCommand),
    /// Write what this host has recorded to an exchange file, for a host or an origin that no network reaches
    Export(export::AnalyticsExportCommand),
    /// Add what another host has recorded, from an exchange file
    Import(import::AnalyticsImportCommand),
    /// Delete what this host has recorded of its readers
    Forget(forget::ForgetCommand),
}

impl AnalyticsCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        match self {
            AnalyticsCommand::Searches(searches) => searches.run(context),
            AnalyticsCommand::Report(report) => report.run(context),
            AnalyticsCommand::Pages(pages) => pages.run(context),
            AnalyticsCommand::Export(export) => export.run(context),
            AnalyticsCommand::Import(import) => import.run(context),
            AnalyticsCommand::Forget(forget) => forget.run(context),
        }
    }
}
