//! `docwharf origin import-analytics`: imports what a host has recorded, from an exchange file.

use clap::Args;

use crate::cli::context::CommandContext;
use crate::cli::exchange_file::{ExchangeFileArg, describe_import};
use crate::cli::failure::CommandFailure;
use crate::cli::interruptible::run_interruptible;
use docwharf_base::clock::now_unix_millis;
use docwharf_origin::OriginError;
use docwharf_origin::analytics::{ExchangeImportError, import_exchange_file};

use super::configured::{analytics_limits, open_database, read_origin_config};

#[derive(Debug, Args)]
#[command(
    after_help = "What was imported or delivered before is not counted again. A damaged file is refused whole, with exit code 5."
)]
pub(super) struct OriginImportAnalyticsCommand {
    /// The project's id
    project: String,
    #[command(flatten)]
    file: ExchangeFileArg,
}

impl OriginImportAnalyticsCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let config = read_origin_config(context)?;
        let limits = analytics_limits(&config, &self.project)?;
        let (json, text) = run_interruptible(context, move |_| {
            let db = open_database(&config)?;
            let mut reader = self.file.open(|| Ok(db.folder().to_owned()))?;
            let imported = import_exchange_file(&db, &self.project, &mut reader, &limits, now_unix_millis());
            let report = imported.map_err(|error| match error {
                ExchangeImportError::File(error) => self.file.failure(error),
                ExchangeImportError::Database(error) => OriginError::from(error).into(),
                ExchangeImportError::Refused(refusal) => {
                    let reason = refusal.describe_for_operator(limits.organization());
                    let rest = "The earlier batches of the file are imported; import it again to add the rest";
                    CommandFailure::Usage(self.file.message(&format!("{reason}. {rest}")))
                }
            })?;
            Ok::<_, CommandFailure>(describe_import(&reader, &report))
        })??;
        context.print_result(&json, &text)
    }
}
