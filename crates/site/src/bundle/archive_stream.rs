//! Streams of decoded bytes from an archive file: uncompressed, gzip (RFC 1952) and zstd (RFC 8878). The file is hashed
//! as it is read.
//!
//! Every decoder counts its input and output bytes, so that a decompression bomb is refused while it expands. Every
//! decoder reads its input to the end.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::sync::Arc;

use docwharf_base::codec::gzip::{self, GzipHeaderFault};
use docwharf_base::codec::inflate::{InflateStatus, Inflater};
use docwharf_base::growing_file::WriteProgress;
use docwharf_base::model::digest::{Digest, Sha256Hasher};
use docwharf_base::model::limits::BundleLimits;

use super::bundle_reader::BundleReadError;
use super::refusal::{BundleFault, check_bomb};

/// A stream of decoded bytes, used like [`BufRead`].
pub trait ArchiveStream {
    /// Returns the next bytes, or none at the end. Bytes that are not consumed are returned again.
    fn fill(&mut self) -> Result<&[u8], BundleReadError>;

    /// Marks the first `n` of the returned bytes as consumed.
    fn consume(&mut self, n: usize);

    /// Returns the digest and the length of the archive file itself. It is called once, after the end.
    fn digest_and_len(&mut self) -> (Digest, u64);
}

/// An archive file that is read once from its start, with a digest of its bytes and a limit on their number.
#[derive(Debug)]
pub struct ArchiveFile {
    file: File,
    path: PathBuf,
    hasher: Sha256Hasher,
    bytes_read: u64,
    max_bytes: u64,
    growth: Arc<WriteProgress>,
}

impl ArchiveFile {
    /// Reads `file`, whose position is its start and which may still be growing. `path` is for messages.
    pub fn new(file: File, path: PathBuf, limits: &BundleLimits, growth: Arc<WriteProgress>) -> ArchiveFile {
        ArchiveFile { file, path, hasher: Sha256Hasher::new(), bytes_read: 0, max_bytes: limits.archive, growth }
    }

    fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize, BundleReadError> {
        let Some(available) = self.growth.wait_for_len(self.bytes_read + 1) else {
            let source = io::Error::other("the file could not be written to its end");
            return Err(BundleReadError::Io { path: self.path.clone(), source });
        };
        if available <= self.bytes_read {
            return Ok(0);
        }
        let n = loop {
            match self.file.read(buffer) {
                Ok(n) => break n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(BundleReadError::Io { path: self.path.clone(), source });
                }
            }
        };
        self.hasher.update(&buffer[..n]);
        self.bytes_read += n as u64;
        if self.bytes_read > self.max_bytes {
            return Err(BundleFault::ArchiveTooLarge(self.max_bytes).in_bundle().into());
        }
        Ok(n)
    }

    fn digest_and_len(&mut self) -> (Digest, u64) {
        (self.hasher.finalize_reset(), self.bytes_read)
    }
}

const READ_BUFFER_BYTES: usize = 256 * 1024;

/// A buffer of input bytes. Unused bytes move to its front when more are read.
#[derive(Debug)]
struct InputBuffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    ended: bool,
}

impl InputBuffer {
    fn new() -> InputBuffer {
        InputBuffer { bytes: vec![0; READ_BUFFER_BYTES].into(), start: 0, end: 0, ended: false }
    }

    fn unused(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Reads until the buffer has at least `min_len` unused bytes, or the file ends.
    fn fill_to(&mut self, file: &mut ArchiveFile, min_len: usize) -> Result<(), BundleReadError> {
        while !self.ended && self.end - self.start < min_len {
            if self.start > 0 {
                self.bytes.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            let n = file.read_some(&mut self.bytes[self.end..])?;
            self.end += n;
            self.ended = n == 0;
        }
        Ok(())
    }
}

/// The bytes of an uncompressed archive.
#[derive(Debug)]
pub struct UncompressedStream {
    file: ArchiveFile,
    buffer: InputBuffer,
}

impl UncompressedStream {
    /// Reads `file` without decoding it.
    pub fn new(file: ArchiveFile) -> UncompressedStream {
        UncompressedStream { file, buffer: InputBuffer::new() }
    }
}

impl ArchiveStream for UncompressedStream {
    fn fill(&mut self) -> Result<&[u8], BundleReadError> {
        self.buffer.fill_to(&mut self.file, 1)?;
        Ok(self.buffer.unused())
    }

    fn consume(&mut self, n: usize) {
        self.buffer.start += n;
    }

    fn digest_and_len(&mut self) -> (Digest, u64) {
        self.file.digest_and_len()
    }
}

/// A decoder of one or more gzip members (RFC 1952). Zero padding after the last member is legal, as in gzip(1).
#[derive(Debug)]
pub struct GzipStream {
    file: ArchiveFile,
    buffer: InputBuffer,
    inflate: Inflater,
    /// The CRC-32 and the length (modulo 2^32) of the current member's content.
    crc: crc32fast::Hasher,
    len: u32,
    /// The number of bytes of all members that were decoded.
    total_output: u64,
    /// Whether the input position is inside the DEFLATE data of a member.
    in_member: bool,
    members: u64,
    /// The number of bytes of the decoder's output that the caller has consumed.
    consumed: usize,
    finished: bool,
}

/// The longest gzip header in bytes. A header may contain a name and a comment of any length; a longer one is refused.
const MAX_GZIP_HEADER_BYTES: usize = 128 * 1024;

impl GzipStream {
    /// Decodes `file`.
    pub fn new(file: ArchiveFile) -> GzipStream {
        GzipStream {
            file,
            buffer: InputBuffer::new(),
            inflate: Inflater::new(),
            crc: crc32fast::Hasher::new(),
            len: 0,
            total_output: 0,
            in_member: false,
            members: 0,
            consumed: 0,
            finished: false,
        }
    }

    /// Reads the header of the next member, or finds the end of the file.
    fn read_member_header(&mut self) -> Result<(), BundleReadError> {
        let mut min_len = 1024;
        loop {
            self.buffer.fill_to(&mut self.file, min_len)?;
            let bytes = self.buffer.unused();
            if self.members > 0 && bytes.iter().all(|&b| b == 0) {
                // The end of the file, or padding.
                self.buffer.start = self.buffer.end;
                if self.buffer.ended {
                    self.finished = true;
                    return Ok(());
                }
                continue;
            }
            match gzip::parse_header_len(bytes) {
                Ok(len) => {
                    self.buffer.start += len;
                    self.members += 1;
                    self.in_member = true;
                    return Ok(());
                }
                Err(GzipHeaderFault::Short) if !self.buffer.ended && min_len < MAX_GZIP_HEADER_BYTES => min_len *= 2,
                Err(GzipHeaderFault::Short) => {
                    return Err(BundleFault::Truncated("a gzip header").in_bundle().into());
                }
                Err(GzipHeaderFault::Damaged) if self.members > 0 => {
                    return Err(BundleFault::Damaged("bytes after the compressed data").in_bundle().into());
                }
                Err(GzipHeaderFault::Damaged) => {
                    return Err(BundleFault::Damaged("the gzip header").in_bundle().into());
                }
            }
        }
    }

    fn check_member_trailer(&mut self) -> Result<(), BundleReadError> {
        self.buffer.fill_to(&mut self.file, 8)?;
        let expected = gzip::encode_trailer(std::mem::take(&mut self.crc).finalize(), u64::from(self.len));
        match self.buffer.unused().get(..8) {
            None => return Err(BundleFault::Truncated("the gzip trailer").in_bundle().into()),
            Some(trailer) if trailer[..4] != expected[..4] => {
                return Err(BundleFault::WrongCrc.in_bundle().into());
            }
            Some(trailer) if trailer[4..] != expected[4..] => {
                return Err(BundleFault::WrongSize.in_bundle().into());
            }
            Some(_) => self.buffer.start += 8,
        }
        self.inflate.reset();
        (self.len, self.in_member) = (0, false);
        Ok(())
    }
}

impl ArchiveStream for GzipStream {
    fn fill(&mut self) -> Result<&[u8], BundleReadError> {
        let mut member_ended = false;
        while self.consumed == self.inflate.output().len() && !self.finished {
            if member_ended {
                self.check_member_trailer()?;
                member_ended = false;
                self.consumed = 0;
                continue;
            }
            if !self.in_member {
                self.read_member_header()?;
                continue;
            }
            self.buffer.fill_to(&mut self.file, 1024)?;
            let step = self.inflate.run(self.buffer.unused(), self.buffer.ended);
            let step = step.map_err(|fault| BundleFault::from(fault).in_bundle())?;
            self.buffer.start += step.consumed;
            self.consumed = 0;
            let output = self.inflate.output();
            self.crc.update(output);
            self.len = self.len.wrapping_add(output.len() as u32);
            self.total_output += output.len() as u64;
            check_bomb(self.total_output, self.file.bytes_read - self.buffer.unused().len() as u64, None)?;
            if step.status == InflateStatus::Done {
                if output.is_empty() {
                    member_ended = true;
                } else {
                    // This output is returned first. The next call gets `Done` again, without output, and checks the
                    // trailer.
                    break;
                }
            }
        }
        Ok(&self.inflate.output()[self.consumed..])
    }

    fn consume(&mut self, n: usize) {
        self.consumed += n;
    }

    fn digest_and_len(&mut self) -> (Digest, u64) {
        self.file.digest_and_len()
    }
}

/// The base-2 logarithm of the largest zstd window: 128 MiB. A frame with a larger window is refused, because memory
/// must stay bounded whatever the frame header declares.
const ZSTD_WINDOW_LOG: u32 = 27;

/// A decoder of one or more zstd frames (RFC 8878).
pub struct ZstdStream {
    decoder: BufReader<zstd::stream::read::Decoder<'static, BufReader<ZstdInput>>>,
    total_output: u64,
}

/// The input of the zstd decoder. It stores the error of a failed read, because `io::Error` cannot distinguish a
/// refusal from an I/O error.
struct ZstdInput {
    file: ArchiveFile,
    error: Option<BundleReadError>,
}

impl Read for ZstdInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_some(buffer).map_err(|error| {
            self.error = Some(error);
            io::Error::other("the archive cannot be read")
        })
    }
}

impl ZstdStream {
    /// Decodes `file`.
    pub fn new(file: ArchiveFile) -> Result<ZstdStream, BundleReadError> {
        let path = file.path.clone();
        let input = BufReader::with_capacity(READ_BUFFER_BYTES, ZstdInput { file, error: None });
        let mut decoder = zstd::stream::read::Decoder::with_buffer(input).map_err(BundleReadError::io(&path))?;
        decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(BundleReadError::io(&path))?;
        Ok(ZstdStream { decoder: BufReader::with_capacity(READ_BUFFER_BYTES, decoder), total_output: 0 })
    }
}

impl ArchiveStream for ZstdStream {
    fn fill(&mut self) -> Result<&[u8], BundleReadError> {
        if self.decoder.buffer().is_empty() {
            if let Err(error) = self.decoder.fill_buf() {
                let input = self.decoder.get_mut().get_mut().get_mut();
                return Err(match input.error.take() {
                    Some(error) => error,
                    None if error.kind() == io::ErrorKind::UnexpectedEof => {
                        BundleFault::Truncated("the zstd data").in_bundle().into()
                    }
                    None if error.to_string().contains("memory") => {
                        BundleFault::Damaged("its zstd window is over 128 MiB").in_bundle().into()
                    }
                    None => BundleFault::Damaged("the zstd data").in_bundle().into(),
                });
            }
            self.total_output += self.decoder.buffer().len() as u64;
            let buffered = self.decoder.get_ref().get_ref().buffer().len() as u64;
            let read = self.decoder.get_ref().get_ref().get_ref().file.bytes_read - buffered;
            check_bomb(self.total_output, read, None)?;
        }
        Ok(self.decoder.buffer())
    }

    fn consume(&mut self, n: usize) {
        self.decoder.consume(n);
    }

    fn digest_and_len(&mut self) -> (Digest, u64) {
        self.decoder.get_mut().get_mut().get_mut().file.digest_and_len()
    }
}

/// A stream whose first bytes have been read ahead.
pub struct PeekedStream {
    head: Vec<u8>,
    /// The number of bytes of `head` that the caller has consumed.
    consumed: usize,
    rest: Box<dyn ArchiveStream>,
}

impl PeekedStream {
    /// Reads the first `n` bytes of `source` ahead, or all of a shorter one.
    pub fn new(mut source: Box<dyn ArchiveStream>, n: usize) -> Result<PeekedStream, BundleReadError> {
        let mut head = Vec::with_capacity(n);
        while head.len() < n {
            let bytes = source.fill()?;
            if bytes.is_empty() {
                break;
            }
            let copied = bytes.len().min(n - head.len());
            head.extend_from_slice(&bytes[..copied]);
            source.consume(copied);
        }
        Ok(PeekedStream { head, consumed: 0, rest: source })
    }

    /// The bytes that were read ahead.
    pub fn head(&self) -> &[u8] {
        &self.head
    }
}

impl ArchiveStream for PeekedStream {
    fn fill(&mut self) -> Result<&[u8], BundleReadError> {
        if self.consumed < self.head.len() { Ok(&self.head[self.consumed..]) } else { self.rest.fill() }
    }

    fn consume(&mut self, n: usize) {
        if self.consumed < self.head.len() {
            self.consumed += n;
        } else {
            self.rest.consume(n);
        }
    }

    fn digest_and_len(&mut self) -> (Digest, u64) {
        self.rest.digest_and_len()
    }
}
