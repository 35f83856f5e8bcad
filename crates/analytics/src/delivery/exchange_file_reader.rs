//! Reads exchange files. A file is verified to its end before the first batch of it is returned.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::batch_problems::{TOO_FAR_AHEAD, remove_position};
use super::exchange_file::{
    EXCHANGE_FORMAT, EXCHANGE_VERSION, ExchangeBatch, ExchangeFileEnd, ExchangeFileHeader, MAX_FILE_BYTES,
    MAX_LINE_BYTES,
};
use super::view_batch::parse_installation;
use super::{CheckedSearchBatch, CheckedViewBatch};
use docwharf_base::model::digest::encode_hex;
use docwharf_base::regular_file;

/// The size of the buffer for reading and copying, in bytes.
const BUFFER_BYTES: usize = 64 << 10;
/// The size of the batches that are returned together, in bytes. Each transaction is synced to the disk, so it should
/// have several batches.
const CHUNK_BYTES: usize = 1 << 20;
/// The largest number of problems of a batch in an error.
const MAX_SHOWN_PROBLEMS: usize = 3;

/// The reason why an exchange file is not read.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeFileError {
    /// The file is damaged or incomplete, or one of its batches is invalid.
    #[error("line {line}: {problem}; {}", remedy::DAMAGED)]
    Damaged {
        /// The line; the first one is 1.
        line: u64,
        /// The mistake.
        problem: String,
    },
    /// A time in a batch is more than a day ahead.
    #[error("line {line}: {problem}; {}", remedy::TOO_FAR_AHEAD)]
    TooFarAhead {
        /// The line; the first one is 1.
        line: u64,
        /// Which times.
        problem: String,
    },
    /// A later version of docwharf has written the file.
    #[error(
        "it has version {found} of the format, and this docwharf version supports {EXCHANGE_VERSION} only; {}",
        remedy::LATER_VERSION
    )]
    LaterVersion {
        /// The version of the format.
        found: u64,
    },
    /// The file is too large.
    #[error("it is larger than 4 GiB; {}", remedy::TOO_LARGE)]
    TooLarge,
    /// The file cannot be read.
    #[error("it cannot be read")]
    Read(#[source] io::Error),
    /// The file cannot be copied to a temporary file.
    #[error("it cannot be copied to a temporary file; is the disk full?")]
    TemporaryFile(#[source] io::Error),
    /// Another process changed the file after it was verified.
    #[error("it was changed while it was read; {}", remedy::CHANGED)]
    Changed,
}

/// The remedies for errors, at the end of their messages.
mod remedy {
    pub(super) const DAMAGED: &str = "export the analytics again, or copy the file again";
    pub(super) const TOO_FAR_AHEAD: &str = "check the clocks of this host and of the one that exported the file";
    pub(super) const LATER_VERSION: &str = "use the later version";
    pub(super) const TOO_LARGE: &str = "docwharf exports no such file, so check that it is the right one";
    pub(super) const CHANGED: &str = "import it again";
}

impl ExchangeFileError {
    /// Returns the remedy in the message of the error; `None` if it depends on the cause.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            ExchangeFileError::Damaged { .. } => Some(remedy::DAMAGED),
            ExchangeFileError::TooFarAhead { .. } => Some(remedy::TOO_FAR_AHEAD),
            ExchangeFileError::LaterVersion { .. } => Some(remedy::LATER_VERSION),
            ExchangeFileError::TooLarge => Some(remedy::TOO_LARGE),
            ExchangeFileError::Changed => Some(remedy::CHANGED),
            ExchangeFileError::Read(_) | ExchangeFileError::TemporaryFile(_) => None,
        }
    }
}

/// A validated batch of an exchange file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckedBatch {
    /// Searches.
    Searches(CheckedSearchBatch),
    /// Daily counts.
    Views(CheckedViewBatch),
}

/// Returns the batches of an exchange file that was verified.
#[derive(Debug)]
pub struct ExchangeFileReader {
    lines: ExchangeLines,
    header: ExchangeFileHeader,
    now: i64,
    end: ExchangeFileEnd,
    /// Whether the last line was read again.
    is_at_end: bool,
}

impl ExchangeFileReader {
    /// Verifies the regular file `path`. `now` is the time in milliseconds since 1970.
    pub fn open(path: &Path, now: i64) -> Result<ExchangeFileReader, ExchangeFileError> {
        let file = regular_file::open(path).map_err(ExchangeFileError::Read)?;
        if file.metadata().map_err(ExchangeFileError::Read)?.len() > MAX_FILE_BYTES {
            return Err(ExchangeFileError::TooLarge);
        }
        ExchangeFileReader::verify(file, now)
    }

    /// Copies `input` to an unnamed temporary file in `folder`, and verifies it. `now` is the time in milliseconds
    /// since 1970.
    pub fn copy(mut input: impl Read, folder: &Path, now: i64) -> Result<ExchangeFileReader, ExchangeFileError> {
        let mut file = tempfile::tempfile_in(folder).map_err(ExchangeFileError::TemporaryFile)?;
        let (mut buffer, mut len) = (vec![0; BUFFER_BYTES], 0);
        loop {
            let n = match input.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(ExchangeFileError::Read(error)),
            };
            len += n as u64;
            if len > MAX_FILE_BYTES {
                return Err(ExchangeFileError::TooLarge);
            }
            file.write_all(&buffer[..n]).map_err(ExchangeFileError::TemporaryFile)?;
        }
        file.seek(SeekFrom::Start(0)).map_err(ExchangeFileError::TemporaryFile)?;
        ExchangeFileReader::verify(file, now)
    }

    /// Reads the whole file once, and returns to its first batch.
    fn verify(file: File, now: i64) -> Result<ExchangeFileReader, ExchangeFileError> {
        let mut lines = ExchangeLines::new(file);
        let header = lines.read_header()?;
        let end = loop {
            if let ExchangeLine::End(end) = lines.read_line(now)? {
                break end;
            }
        };
        if lines.has_more()? {
            return Err(lines.damaged("there is more after the last line"));
        }
        let mut file = lines.input.into_inner().into_inner();
        file.seek(SeekFrom::Start(0)).map_err(ExchangeFileError::Read)?;
        let mut lines = ExchangeLines::new(file);
        if lines.read_header()? != header {
            return Err(ExchangeFileError::Changed);
        }
        Ok(ExchangeFileReader { lines, header, now, end, is_at_end: false })
    }

    /// Returns the header.
    pub fn header(&self) -> &ExchangeFileHeader {
        &self.header
    }

    /// Returns the next batch, or `None` after the last one. Fails if the file was changed since it was verified.
    pub fn next_batch(&mut self) -> Result<Option<CheckedBatch>, ExchangeFileError> {
        if self.is_at_end {
            return Ok(None);
        }
        match self.lines.read_line(self.now) {
            Ok(ExchangeLine::Batch(batch)) => Ok(Some(*batch)),
            Ok(ExchangeLine::End(end)) if end == self.end => {
                self.is_at_end = true;
                Ok(None)
            }
            Ok(ExchangeLine::End(_))
            | Err(ExchangeFileError::Damaged { .. } | ExchangeFileError::TooFarAhead { .. }) => {
                Err(ExchangeFileError::Changed)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the next batches, about 1 MiB of them; none after the last one. Fails if the file was changed since it
    /// was verified.
    pub fn next_batches(&mut self) -> Result<Vec<CheckedBatch>, ExchangeFileError> {
        let (mut batches, mut bytes) = (Vec::new(), 0);
        while bytes < CHUNK_BYTES
            && let Some(batch) = self.next_batch()?
        {
            bytes += self.lines.buffer.len();
            batches.push(batch);
        }
        Ok(batches)
    }
}

/// A line after the header.
#[derive(Debug)]
enum ExchangeLine {
    Batch(Box<CheckedBatch>),
    /// The last line, whose number and digest are correct.
    End(ExchangeFileEnd),
}

/// Reads an exchange file line by line.
#[derive(Debug)]
struct ExchangeLines {
    input: io::Take<BufReader<File>>,
    /// The hash of the lines before the current one.
    hasher: Sha256,
    line: u64,
    batches: u64,
    buffer: Vec<u8>,
}

impl ExchangeLines {
    fn new(file: File) -> ExchangeLines {
        ExchangeLines {
            input: BufReader::with_capacity(BUFFER_BYTES, file).take(0),
            hasher: Sha256::new(),
            line: 0,
            batches: 0,
            buffer: Vec::new(),
        }
    }

    fn damaged(&self, problem: impl Into<String>) -> ExchangeFileError {
        ExchangeFileError::Damaged { line: self.line, problem: problem.into() }
    }

    /// Reads the next line into the buffer.
    fn fill_buffer(&mut self) -> Result<(), ExchangeFileError> {
        self.hasher.update(&self.buffer);
        self.buffer.clear();
        self.line += 1;
        self.input.set_limit(MAX_LINE_BYTES as u64);
        self.input.read_until(b'\n', &mut self.buffer).map_err(ExchangeFileError::Read)?;
        if self.buffer.is_empty() {
            return Err(self.damaged("the file ends before its last line, which has the checksum"));
        }
        if self.buffer.last() != Some(&b'\n') {
            let is_too_long = self.buffer.len() == MAX_LINE_BYTES;
            return Err(self.damaged(if is_too_long { "it is too long" } else { "the file ends within it" }));
        }
        Ok(())
    }

    fn has_more(&mut self) -> Result<bool, ExchangeFileError> {
        self.line += 1;
        self.input.set_limit(1);
        Ok(!self.input.fill_buf().map_err(ExchangeFileError::Read)?.is_empty())
    }

    fn read_header(&mut self) -> Result<ExchangeFileHeader, ExchangeFileError> {
        #[derive(Deserialize)]
        struct FormatAndVersion {
            format: String,
            version: u64,
        }
        self.fill_buffer()?;
        let not_a_header = |_| self.damaged("it is not the header of an exchange file");
        let FormatAndVersion { format, version } = serde_json::from_slice(&self.buffer).map_err(not_a_header)?;
        if format != EXCHANGE_FORMAT {
            return Err(self.damaged(format!("its format is not {EXCHANGE_FORMAT}")));
        }
        if version != EXCHANGE_VERSION {
            return Err(ExchangeFileError::LaterVersion { found: version });
        }
        let header: ExchangeFileHeader = serde_json::from_slice(&self.buffer).map_err(not_a_header)?;
        if parse_installation(&header.installation).is_none() {
            return Err(self.damaged("the installation is not 16 lower-case hexadecimal digits"));
        }
        Ok(header)
    }

    /// Reads and checks the next line after the header.
    fn read_line(&mut self, now: i64) -> Result<ExchangeLine, ExchangeFileError> {
        self.fill_buffer()?;
        if let Ok(end) = serde_json::from_slice::<ExchangeFileEnd>(&self.buffer) {
            return self.check_end(end).map(ExchangeLine::End);
        }
        let batch = parse_batch(&self.buffer, now).map_err(|problems| {
            let (line, problem) = (self.line, problems.join("; "));
            // Neither a copy nor another export corrects a clock.
            let is_too_far_ahead = problems.iter().all(|problem| problem.ends_with(TOO_FAR_AHEAD));
            if is_too_far_ahead {
                ExchangeFileError::TooFarAhead { line, problem }
            } else {
                ExchangeFileError::Damaged { line, problem }
            }
        })?;
        self.batches += 1;
        Ok(ExchangeLine::Batch(Box::new(batch)))
    }

    fn check_end(&self, end: ExchangeFileEnd) -> Result<ExchangeFileEnd, ExchangeFileError> {
        if end.sha256 != encode_hex(&self.hasher.clone().finalize()) {
            return Err(self.damaged("the checksum does not match the content"));
        }
        if end.batches != self.batches {
            return Err(self.damaged(format!("the file has {} batches, not {}", self.batches, end.batches)));
        }
        Ok(end)
    }
}

/// Parses and validates the batch of a line. The error has the first problems.
fn parse_batch(line: &[u8], now: i64) -> Result<CheckedBatch, Vec<String>> {
    let not_a_batch = |error| vec![format!("it is not a batch: {}", remove_position(&error))];
    let batch = serde_json::from_slice(line).map_err(not_a_batch)?;
    let batch = match batch {
        ExchangeBatch::Searches(batch) => batch.check(now).map(CheckedBatch::Searches),
        ExchangeBatch::Views(batch) => batch.check(now).map(CheckedBatch::Views),
    };
    batch.map_err(|mut problems| {
        problems.truncate(MAX_SHOWN_PROBLEMS);
        problems
    })
}
