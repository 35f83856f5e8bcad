//! `docwharf origin import-searches`: imports searches that another system has recorded.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::cli::context::CommandContext;
use crate::cli::failure::CommandFailure;
use docwharf_base::model::digest::{Digest, Sha256Hasher};
use docwharf_base::model::units::format_count;
use docwharf_base::regular_file;
use docwharf_origin::analytics::import::{ImportError, import_csv};

use super::configured::{analytics_limits, open_database, read_origin_config};

/// Bytes read at a time.
const READ_CHUNK_BYTES: usize = 1 << 16;

#[derive(Debug, Args)]
pub(super) struct ImportSearchesCommand {
    /// The project's id
    project: String,
    /// A CSV file with a header: query, time and clickedPage, or what `analytics searches --format csv` writes
    file: PathBuf,
}

impl ImportSearchesCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let config = read_origin_config(context)?;
        let limits = analytics_limits(&config, &self.project)?;
        let organization = limits.organization().to_owned();
        let doing = || format!("cannot read {}", self.file.display());
        let mut file = regular_file::open(&self.file).map_err(CommandFailure::local(doing()))?;
        // The digest identifies the file, so that importing it again adds nothing.
        let id = format!("csv-{}", digest(&mut file).map_err(CommandFailure::local(doing()))?.to_hex());
        let imported = import_csv(&open_database(&config)?, &self.project, BufReader::new(file), &id, Some(limits));
        let imported = imported.map_err(|error| match error {
            ImportError::Database(error) => docwharf_origin::OriginError::from(error).into(),
            ImportError::Refused(refusal) => CommandFailure::Usage(format!(
                "{}: cannot import the searches (none was imported): {}",
                self.file.display(),
                refusal.describe_for_operator(&organization)
            )),
            other => CommandFailure::Usage(format!(
                "{}: {}",
                self.file.display(),
                docwharf_base::error_chain::ErrorChain(&other)
            )),
        })?;
        let json = json!({
            "schemaVersion": 1, "project": self.project, "rows": imported.rows, "searches": imported.searches,
            "duplicate": imported.duplicate,
        });
        let summary = format!(
            "{} with {}",
            format_count(imported.rows, "row"),
            match imported.searches {
                1 => "1 search".to_owned(),
                n => format!("{n} searches"),
            }
        );
        let text = if imported.duplicate {
            format!("{summary}; this file was imported before and adds nothing\n")
        } else {
            format!("{summary}\n")
        };
        context.print_result(&json, &text)
    }
}

/// Returns the digest of a file, and rewinds it.
fn digest(file: &mut File) -> std::io::Result<Digest> {
    let (mut hasher, mut piece) = (Sha256Hasher::new(), vec![0; READ_CHUNK_BYTES]);
    loop {
        let n = file.read(&mut piece)?;
        if n == 0 {
            file.rewind()?;
            return Ok(hasher.finalize_reset());
        }
        hasher.update(&piece[..n]);
    }
}
