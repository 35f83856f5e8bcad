//! Precompressed files: the Brotli and Zstandard forms ([`ResponseForm`]) of the files
//! of a version. They are computed after the version was activated. Until then, and for files without such a form, gzip
//! is served.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::Bytes;

use docwharf_base::codec::content_coding::ContentCoding;
use docwharf_base::model::version::VersionId;
use docwharf_site::coding_file::{CodingRecord, CodingStatistics, read_record};
use docwharf_site::sealed_version::SealedVersion;

use super::negotiate::{AcceptedCodings, ResponseForm};

/// The files of one version in one coding, memory-mapped.
#[derive(Debug, Clone)]
pub struct PrecompressedFiles {
    bytes: Bytes,
    /// The size of the result, and the processor time that it took.
    pub statistics: CodingStatistics,
}

impl PrecompressedFiles {
    /// Wraps the bytes of a coding file. The caller has checked its head ([`docwharf_site::coding_file::check_file`])
    /// and the CRC-32 of every body (`daemon::precompression`, `verify_and_map`).
    pub fn new(bytes: Bytes, statistics: CodingStatistics) -> PrecompressedFiles {
        PrecompressedFiles { bytes, statistics }
    }
}

/// The codings of one version. Each may be missing: not computed yet, or not configured.
#[derive(Debug, Clone)]
pub struct PrecompressedCodings {
    /// The version whose files these are.
    pub id: VersionId,
    /// The files in Brotli (`br`).
    pub brotli: Option<PrecompressedFiles>,
    /// The files in Zstandard (`zstd`).
    pub zstd: Option<PrecompressedFiles>,
}

impl PrecompressedCodings {
    /// Creates the codings of a version for which none is computed yet.
    pub fn empty(id: VersionId) -> PrecompressedCodings {
        PrecompressedCodings { id, brotli: None, zstd: None }
    }

    /// Returns the slot of a coding.
    pub fn slot_mut(&mut self, coding: ContentCoding) -> &mut Option<PrecompressedFiles> {
        match coding {
            ContentCoding::Brotli => &mut self.brotli,
            ContentCoding::Zstd => &mut self.zstd,
        }
    }

    /// Returns the length of a file in a coding, in bytes; `None` if the file has no such form.
    pub(super) fn len(&self, coding: ContentCoding, file: usize) -> Option<u64> {
        self.record(coding, file).map(|(_, record)| record.len)
    }

    /// Returns the body of a file in a coding, without copying it, and the CRC-32 of the body.
    pub(super) fn body(&self, coding: ContentCoding, file: usize) -> Option<(Bytes, u32)> {
        let (bytes, record) = self.record(coding, file)?;
        Some((bytes.slice(record.body_range()?), record.crc))
    }

    fn record(&self, coding: ContentCoding, file: usize) -> Option<(&Bytes, CodingRecord)> {
        let coded = match coding {
            ContentCoding::Brotli => self.brotli.as_ref(),
            ContentCoding::Zstd => self.zstd.as_ref(),
        };
        let bytes = &coded?.bytes;
        Some((bytes, read_record(bytes, file))).filter(|(_, record)| record.len > 0)
    }
}

/// The codings that a site serves, of one version at most.
#[derive(Debug, Default)]
pub(super) struct CodingsInForce(ArcSwapOption<PrecompressedCodings>);

impl CodingsInForce {
    /// Replaces the codings.
    pub(super) fn set(&self, codings: Option<PrecompressedCodings>) {
        self.0.store(codings.map(Arc::new));
    }

    /// Discards the codings if they are of another version than this one.
    pub(super) fn retain_version(&self, id: VersionId) {
        if self.0.load().as_ref().is_some_and(|codings| codings.id != id) {
            self.0.store(None);
        }
    }

    /// Returns whether there are codings.
    #[cfg(test)]
    pub(super) fn has_any(&self) -> bool {
        self.0.load().is_some()
    }

    /// Returns the body of a file of `version` in a coding, if that coding still has the bytes with this CRC-32.
    pub(super) fn body(&self, version: &SealedVersion, file: usize, coding: ContentCoding, crc: u32) -> Option<Bytes> {
        let codings = self.0.load();
        let codings = codings.as_ref().filter(|codings| codings.id == version.id)?;
        codings.body(coding, file).filter(|(_, body_crc)| *body_crc == crc).map(|(body, _)| body)
    }

    /// Chooses the form in which a compressed file of `version` is sent; `gzip_len` is the length of its gzip form in
    /// bytes. For a precompressed form, also returns the body and its CRC-32.
    pub(super) fn choose_form(
        &self,
        version: &SealedVersion,
        file: usize,
        gzip_len: u64,
        accepted: AcceptedCodings,
    ) -> (ResponseForm, Bytes, u32) {
        if accepted.accepts_precompressed() {
            let codings = self.0.load();
            if let Some(codings) = codings.as_ref().filter(|codings| codings.id == version.id)
                && let ResponseForm::Precompressed(coding) =
                    accepted.choose(gzip_len, |coding| codings.len(coding, file))
                && let Some((body, crc)) = codings.body(coding, file)
            {
                return (ResponseForm::Precompressed(coding), body, crc);
            }
        }
        (accepted.choose(gzip_len, |_| None), Bytes::new(), 0)
    }
}
