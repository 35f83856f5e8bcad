//! Imports an exchange file, for the commands of a host and of an origin.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use docwharf_analytics::delivery::{ExchangeFileError, ExchangeFileReader, ImportReport};
use docwharf_base::clock::now_unix_millis;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::units::format_count;

use super::failure::CommandFailure;

/// The name of standard input.
const STANDARD_INPUT: &str = "-";

/// The file to import, as an argument.
#[derive(Debug, Args)]
pub(super) struct ExchangeFileArg {
    /// An exchange file, which `docwharf analytics export` wrote on another host; "-" is standard input
    file: PathBuf,
}

impl ExchangeFileArg {
    /// Verifies the whole file. Standard input is copied to a temporary file in the folder that `temporary_folder`
    /// returns.
    pub(super) fn open(
        &self,
        temporary_folder: impl FnOnce() -> Result<PathBuf, CommandFailure>,
    ) -> Result<ExchangeFileReader, CommandFailure> {
        let now = now_unix_millis();
        let opened = if self.file == Path::new(STANDARD_INPUT) {
            ExchangeFileReader::copy(io::stdin().lock(), &temporary_folder()?, now)
        } else {
            ExchangeFileReader::open(&self.file, now)
        };
        opened.map_err(|error| self.failure(error))
    }

    /// Returns the failure of a command whose file is not read.
    pub(super) fn failure(&self, error: ExchangeFileError) -> CommandFailure {
        let message = self.message(&ErrorChain(&error).to_string());
        let advice = error.remedy().unwrap_or_default();
        match error {
            ExchangeFileError::Read(source) if source.kind() == io::ErrorKind::NotFound => {
                CommandFailure::Usage(message)
            }
            ExchangeFileError::Read(source) => {
                CommandFailure::Local { doing: self.message("it cannot be read"), source }
            }
            ExchangeFileError::TemporaryFile(source) => {
                CommandFailure::Local { doing: self.message("it cannot be copied to a temporary file"), source }
            }
            ExchangeFileError::Changed => CommandFailure::InputChanged(message),
            ExchangeFileError::Damaged { .. }
            | ExchangeFileError::TooFarAhead { .. }
            | ExchangeFileError::LaterVersion { .. }
            | ExchangeFileError::TooLarge => CommandFailure::RefusedFile { message, advice },
        }
    }

    /// Returns a message about the file.
    pub(super) fn message(&self, problem: &str) -> String {
        let name = if self.file == Path::new(STANDARD_INPUT) {
            "standard input".to_owned()
        } else {
            self.file.display().to_string()
        };
        format!("cannot import {name}: {problem}")
    }
}

/// Describes an import for programs and for people.
pub(super) fn describe_import(file: &ExchangeFileReader, report: &ImportReport) -> (Value, String) {
    let ImportReport { batches, duplicate_batches, searches, clicks, views } = *report;
    let json = json!({
        "schemaVersion": 1, "installation": file.header().installation, "batches": batches,
        "duplicateBatches": duplicate_batches, "searches": searches, "clicks": clicks, "views": views,
    });
    let count_batches = |count| if count == 1 { "1 batch".to_owned() } else { format!("{count} batches") };
    let verb = if duplicate_batches == 1 { "was" } else { "were" };
    let duplicates = format!("{} {verb} imported or delivered before", count_batches(duplicate_batches));
    let text = if batches == 0 {
        "nothing was added: the file has no batches\n".to_owned()
    } else if batches == duplicate_batches {
        format!("nothing was added: {duplicates}\n")
    } else {
        let searches = if searches == 1 { "1 search".to_owned() } else { format!("{searches} searches") };
        let (clicks, views) = (format_count(clicks, "click"), format_count(views, "view"));
        let note = if duplicate_batches == 0 { String::new() } else { format!("; {duplicates}") };
        format!("added {searches}, {clicks} and {views} from {}{note}\n", count_batches(batches))
    };
    (json, text)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind::{NotFound, PermissionDenied, StorageFull};

    use docwharf_analytics::delivery::ExchangeFileWriter;

    use super::*;

    #[test]
    fn the_text_says_what_was_added_and_how_many_batches_were_duplicates() {
        let folder = tempfile::tempdir().unwrap();
        let written = ExchangeFileWriter::new(Vec::new(), "00112233445566ff", "").unwrap().finish().unwrap();
        let file = ExchangeFileReader::copy(&*written, folder.path(), 0).unwrap();
        let report = |batches, duplicate_batches, searches, clicks, views| ImportReport {
            batches,
            duplicate_batches,
            searches,
            clicks,
            views,
        };
        for (report, text) in [
            (
                report(3, 1, 1, 0, 1),
                "added 1 search, 0 clicks and 1 view from 3 batches; 1 batch was imported or delivered before\n",
            ),
            (report(1, 0, 2, 1, 0), "added 2 searches, 1 click and 0 views from 1 batch\n"),
            (report(1, 1, 0, 0, 0), "nothing was added: 1 batch was imported or delivered before\n"),
            (report(2, 2, 0, 0, 0), "nothing was added: 2 batches were imported or delivered before\n"),
            (report(0, 0, 0, 0, 0), "nothing was added: the file has no batches\n"),
        ] {
            assert_eq!(describe_import(&file, &report).1, text);
        }
    }

    #[test]
    fn a_refused_file_a_wrong_name_and_a_failing_disk_have_different_exit_codes() {
        let argument = ExchangeFileArg { file: "a.jsonl".into() };
        let io = io::Error::from;
        for (error, code, message) in [
            (
                ExchangeFileError::Damaged { line: 3, problem: "x".to_owned() },
                5,
                "docwharf: cannot import a.jsonl: line 3: x; export the analytics again, or copy the file again",
            ),
            (
                ExchangeFileError::TooFarAhead { line: 3, problem: "x".to_owned() },
                5,
                "docwharf: cannot import a.jsonl: line 3: x; check the clocks",
            ),
            (ExchangeFileError::LaterVersion { found: 2 }, 5, "docwharf: cannot import a.jsonl: it has version 2"),
            (ExchangeFileError::TooLarge, 5, "docwharf: cannot import a.jsonl: it is larger than 4 GiB"),
            (ExchangeFileError::Read(io(NotFound)), 2, "docwharf: cannot import a.jsonl: it cannot be read: "),
            (ExchangeFileError::Read(io(PermissionDenied)), 8, "docwharf: cannot import a.jsonl: it cannot be read: "),
            (
                ExchangeFileError::TemporaryFile(io(StorageFull)),
                8,
                "docwharf: cannot import a.jsonl: it cannot be copied",
            ),
            (ExchangeFileError::Changed, 1, "docwharf: cannot import a.jsonl: it was changed while it was read"),
        ] {
            let remedy = error.remedy();
            let failure = argument.failure(error);
            assert!(failure.exit_number() == code && failure.to_string().starts_with(message), "{failure}");
            if code == 5 {
                // The advice for programs is that of the message.
                let advice = failure.json()["error"]["nextStep"].as_str().map(str::to_owned);
                assert!(advice.as_deref() == remedy && failure.to_string().ends_with(remedy.unwrap()), "{advice:?}");
            }
        }
    }
}
