//! `docwharf analytics import`: adds what another host has recorded to the store of this host.

use clap::Args;

use super::super::context::CommandContext;
use super::super::failure::CommandFailure;

#[derive(Debug, Args)]
#[command(
    after_help = "Works beside a running daemon. What was imported before is not counted again. A damaged file is refused whole, with exit code 5."
)]
pub(in crate::cli) struct AnalyticsImportCommand {
    #[cfg(feature = "analytics")]
    #[command(flatten)]
    file: super::super::exchange_file::ExchangeFileArg,
    /// An exchange file, which `docwharf analytics export` wrote on another host; "-" is standard input
    #[cfg(not(feature = "analytics"))]
    #[allow(dead_code, reason = "the command fails before it reads the file")]
    file: std::path::PathBuf,
}

impl AnalyticsImportCommand {
    #[cfg(feature = "analytics")]
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        use super::super::exchange_file::describe_import;
        use super::super::interruptible::run_interruptible;
        use super::local_store;

        let folder = context.store()?;
        let (json, text) = run_interruptible(context, move |_| {
            let mut reader = self.file.open(|| {
                local_store::create_folder(&folder)?;
                Ok(folder.clone())
            })?;
            let report = local_store::import(&folder, &mut reader, &self.file)?;
            Ok::<_, CommandFailure>(describe_import(&reader, &report))
        })??;
        context.print_outcome(&json, &text)
    }

    #[cfg(not(feature = "analytics"))]
    pub(super) fn run(self, _: &CommandContext) -> Result<(), CommandFailure> {
        Err(super::source::missing_feature("analytics import"))
    }
}
