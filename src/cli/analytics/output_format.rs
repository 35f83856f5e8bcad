//! The formats in which lists of analytics are printed. No I/O.

use clap::ValueEnum;
use serde::Serialize;

use super::super::failure::CommandFailure;

/// The format of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    /// Columns for people
    Table,
    /// One object, as the API has it
    Json,
    /// A header and one line per row, quoted as in RFC 4180
    Csv,
    /// One object per line
    Ndjson,
}

impl OutputFormat {
    /// Returns the format that `--format` and `--json` choose.
    pub(super) fn choose(format: Option<OutputFormat>, is_json: bool) -> Result<OutputFormat, CommandFailure> {
        match (format, is_json) {
            (Some(format), true) if format != OutputFormat::Json => {
                Err(CommandFailure::Usage("--json and --format contradict each other: leave one out".to_owned()))
            }
            (Some(format), _) => Ok(format),
            (None, true) => Ok(OutputFormat::Json),
            (None, false) => Ok(OutputFormat::Table),
        }
    }
}

/// Formats an object for people who read JSON, with a line end.
pub(super) fn pretty_json(object: &impl Serialize) -> Result<String, CommandFailure> {
    with_line_end(serde_json::to_string_pretty(object))
}

/// Formats each row as an object on a line.
pub(super) fn json_lines<T: Serialize>(rows: &[T]) -> Result<String, CommandFailure> {
    rows.iter().map(|row| with_line_end(serde_json::to_string(row))).collect()
}

fn with_line_end(json: Result<String, serde_json::Error>) -> Result<String, CommandFailure> {
    json.map(|json| json + "\n").map_err(|error| CommandFailure::Output(error.into()))
}

/// Formats rows as CSV, with the names of their fields as the header.
pub(super) fn csv<T: Serialize>(names: &[&str], rows: &[T]) -> Result<String, CommandFailure> {
    let mut out = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    let failed = |error: csv::Error| CommandFailure::Output(error.into());
    out.write_record(names).map_err(failed)?;
    for row in rows {
        out.serialize(row).map_err(failed)?;
    }
    let bytes = out.into_inner().map_err(|error| CommandFailure::Output(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
