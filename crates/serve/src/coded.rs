//! Brotli and Zstandard forms of what is served. They come after their version, like its policies: until they are there,
//! and where a page has none, gzip goes out.

use bytes::Bytes;

use docwharf_base::codec::dense::Dense;
use docwharf_base::model::version::VersionId;
use docwharf_site::codings::{Record, Yield, record};

/// One coding of a version, mapped.
#[derive(Debug, Clone)]
pub struct Coded {
    bytes: Bytes,
    /// How it came out.
    pub yields: Yield,
}

impl Coded {
    /// `bytes` have been checked (`site::codings::check`), every body of theirs, too.
    pub fn new(bytes: Bytes, yields: Yield) -> Coded {
        Coded { bytes, yields }
    }
}

/// The codings of one version; either may not be there yet, or not wanted.
#[derive(Debug, Clone)]
pub struct Codings {
    /// Whose they are.
    pub id: VersionId,
    /// `br`
    pub brotli: Option<Coded>,
    /// `zstd`
    pub zstd: Option<Coded>,
}

impl Codings {
    /// None yet.
    pub fn none(id: VersionId) -> Codings {
        Codings { id, brotli: None, zstd: None }
    }

    /// Where one of them belongs.
    pub fn place(&mut self, coding: Dense) -> &mut Option<Coded> {
        match coding {
            Dense::Brotli => &mut self.brotli,
            Dense::Zstd => &mut self.zstd,
        }
    }

    /// Bytes that a file of the version has in a coding; none if it has it not.
    pub(super) fn len(&self, coding: Dense, file: usize) -> Option<u64> {
        self.record(coding, file).map(|(_, record)| record.len)
    }

    /// A file in a coding: its body, without a copy, and the CRC-32 of that.
    pub(super) fn body(&self, coding: Dense, file: usize) -> Option<(Bytes, u32)> {
        let (bytes, record) = self.record(coding, file)?;
        Some((bytes.slice(record.range()?), record.crc))
    }

    fn record(&self, coding: Dense, file: usize) -> Option<(&Bytes, Record)> {
        let coded = match coding {
            Dense::Brotli => self.brotli.as_ref(),
            Dense::Zstd => self.zstd.as_ref(),
        };
        let bytes = &coded?.bytes;
        Some((bytes, record(bytes, file))).filter(|(_, record)| record.len > 0)
    }
}
