//! `docwharf make-coding`: the process that the daemon starts to compress the files that it serves.

use std::path::PathBuf;

use clap::Args;

use crate::daemon;
use docwharf_base::codec::content_coding::ContentCoding;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::version::VersionId;

use super::failure::CommandFailure;

#[derive(Debug, Args)]
pub(super) struct MakeCodingCommand {
    /// The content coding to make
    #[arg(long, value_parser = |text: &str| ContentCoding::from_token(text).ok_or("br or zstd is needed"))]
    coding: ContentCoding,
    /// The version
    #[arg(long)]
    id: VersionId,
    /// Its index
    #[arg(long)]
    index: PathBuf,
    /// The id of the process that started it
    #[arg(long)]
    parent: u32,
}

impl MakeCodingCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let MakeCodingCommand { coding, id, index, parent } = self;
        daemon::run_encoder(&daemon::EncoderTask { coding, id, index }, parent).map_err(|error| {
            let message =
                format!("cannot make the {} form of version {}: {}", coding.token(), id.short(), ErrorChain(&error));
            CommandFailure::InternalProcess(message)
        })
    }
}
