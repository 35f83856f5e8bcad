//! `docwharf make-search-index`: the process that docwharf starts to build the search index of a version.

use clap::Args;

use crate::daemon;
use docwharf_base::error_chain::ErrorChain;

use super::failure::CommandFailure;

#[derive(Debug, Args)]
pub(super) struct MakeSearchIndexCommand {
    /// The id of the process that started it
    #[arg(long)]
    parent: u32,
}

impl MakeSearchIndexCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        daemon::run_index_builder(self.parent)
            .map_err(|error| CommandFailure::InternalProcess(ErrorChain(&error).to_string()))
    }
}
