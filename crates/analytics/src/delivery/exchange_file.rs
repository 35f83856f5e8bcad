//! The exchange file: batches for a receiver that cannot be reached over a network. JSON lines: a header, a batch per
//! line, and a last line with the number of batches and the SHA-256 digest of all bytes before it.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{MAX_BATCH_BYTES, SearchBatch, ViewBatch};
use docwharf_base::model::digest::encode_hex;

/// The name of the format, in the header.
pub const EXCHANGE_FORMAT: &str = "docwharf-analytics";
/// The version of the format, in the header.
pub const EXCHANGE_VERSION: u64 = 1;
/// The largest size of an exchange file, in bytes.
pub(super) const MAX_FILE_BYTES: u64 = 4 << 30;
/// The number of bytes that a line has beside its batch.
const LINE_OVERHEAD_BYTES: usize = 64;
/// The largest length of a line, in bytes, with its line end.
pub(super) const MAX_LINE_BYTES: usize = MAX_BATCH_BYTES + LINE_OVERHEAD_BYTES;

/// The first line of an exchange file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExchangeFileHeader {
    /// [`EXCHANGE_FORMAT`].
    pub format: String,
    /// [`EXCHANGE_VERSION`].
    pub version: u64,
    /// The random id of the installation that wrote the file: 16 lower-case hexadecimal digits.
    pub installation: String,
    /// The time at which the file was written (RFC 3339).
    pub created: String,
}

/// A batch in an exchange file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ExchangeBatch {
    /// Searches.
    Searches(SearchBatch),
    /// Daily counts.
    Views(ViewBatch),
}

/// The last line of an exchange file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ExchangeFileEnd {
    /// The number of batches.
    pub(super) batches: u64,
    /// The SHA-256 digest of all bytes before this line, as hexadecimal digits.
    pub(super) sha256: String,
}

/// Writes an exchange file. A file without the last line, which [`ExchangeFileWriter::finish`] writes, is refused.
#[derive(Debug)]
pub struct ExchangeFileWriter<W> {
    out: W,
    hasher: Sha256,
    batches: u64,
    bytes: u64,
    /// The largest size of the file: [`MAX_FILE_BYTES`].
    max_bytes: u64,
}

impl<W: Write> ExchangeFileWriter<W> {
    /// Writes the header. `installation` is the id of this installation as 16 lower-case hexadecimal digits, `created`
    /// the time in RFC 3339. Each line is one write, so `out` should be buffered.
    pub fn new(out: W, installation: &str, created: &str) -> io::Result<ExchangeFileWriter<W>> {
        ExchangeFileWriter::with_limit(out, installation, created, MAX_FILE_BYTES)
    }

    /// Writes the header of a file of at most `max_bytes`, for tests.
    pub(super) fn with_limit(
        out: W,
        installation: &str,
        created: &str,
        max_bytes: u64,
    ) -> io::Result<ExchangeFileWriter<W>> {
        let mut writer = ExchangeFileWriter { out, hasher: Sha256::new(), batches: 0, bytes: 0, max_bytes };
        writer.write_line(&ExchangeFileHeader {
            format: EXCHANGE_FORMAT.to_owned(),
            version: EXCHANGE_VERSION,
            installation: installation.to_owned(),
            created: created.to_owned(),
        })?;
        Ok(writer)
    }

    /// Writes a batch of searches. Fails if it is larger than [`MAX_BATCH_BYTES`].
    pub fn write_searches(&mut self, batch: &SearchBatch) -> io::Result<()> {
        #[derive(Serialize)]
        struct Line<'a> {
            searches: &'a SearchBatch,
        }
        self.batches += 1;
        self.write_line(&Line { searches: batch })
    }

    /// Writes a batch of daily counts. Fails if it is larger than [`MAX_BATCH_BYTES`].
    pub fn write_views(&mut self, batch: &ViewBatch) -> io::Result<()> {
        #[derive(Serialize)]
        struct Line<'a> {
            views: &'a ViewBatch,
        }
        self.batches += 1;
        self.write_line(&Line { views: batch })
    }

    /// Writes the last line, and returns the output. The caller flushes or syncs it.
    pub fn finish(mut self) -> io::Result<W> {
        let digest = self.hasher.clone().finalize();
        self.write_line(&ExchangeFileEnd { batches: self.batches, sha256: encode_hex(&digest) })?;
        Ok(self.out)
    }

    fn write_line(&mut self, line: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(line)?;
        line.push(b'\n');
        if line.len() > MAX_LINE_BYTES {
            let problem = format!("a batch is larger than {MAX_BATCH_BYTES} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        // Such a file could not be imported.
        self.bytes += line.len() as u64;
        if self.bytes > self.max_bytes {
            let problem = "the file would be larger than 4 GiB; set a shorter analytics.keep, or deliver to an origin";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
        }
        self.hasher.update(&line);
        self.out.write_all(&line)
    }
}
