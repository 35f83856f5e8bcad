//! Decoded bytes from a file, hashed on the way in: plain, gzip, zstd.
//!
//! Every source counts what it reads and what it makes of it, so that a bomb is stopped while it goes off, and reads its
//! input to the end.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::sync::Arc;

use docwharf_base::growth::Growth;
use docwharf_base::codec::gzip::{self, HeaderFault};
use docwharf_base::codec::inflate::{Inflate, Status};
use docwharf_base::model::digest::{Digest, Hasher};
use docwharf_base::model::limits::Limits;

use super::ReadError;
use super::policy::{Fault, check_bomb};

/// Bytes that have been decoded.
pub trait Source {
    /// More bytes, or none at the end. What is not consumed is shown again.
    fn fill(&mut self) -> Result<&[u8], ReadError>;

    /// Marks bytes as used.
    fn consume(&mut self, n: usize);

    /// After the end: digest and length of the archive itself.
    fn receipt(&mut self) -> (Digest, u64);
}

/// An archive file that is read once from its start, hashed and bounded.
#[derive(Debug)]
pub struct ArchiveFile {
    file: File,
    path: PathBuf,
    hasher: Hasher,
    read: u64,
    limit: u64,
    growth: Arc<Growth>,
}

impl ArchiveFile {
    /// `file` stands at its start, and may still grow; `path` is for messages.
    pub fn new(file: File, path: PathBuf, limits: &Limits, growth: Arc<Growth>) -> ArchiveFile {
        ArchiveFile { file, path, hasher: Hasher::new(), read: 0, limit: limits.archive, growth }
    }

    fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize, ReadError> {
        let Some(there) = self.growth.wait_for(self.read + 1) else {
            let source = io::Error::other("the rest of it does not come");
            return Err(ReadError::Io { path: self.path.clone(), source });
        };
        if there <= self.read {
            return Ok(0);
        }
        let n = loop {
            match self.file.read(buffer) {
                Ok(n) => break n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(ReadError::Io { path: self.path.clone(), source });
                }
            }
        };
        self.hasher.update(&buffer[..n]);
        self.read += n as u64;
        if self.read > self.limit {
            return Err(Fault::ArchiveTooLarge(self.limit).of_archive().into());
        }
        Ok(n)
    }

    fn receipt(&mut self) -> (Digest, u64) {
        (self.hasher.take(), self.read)
    }
}

const CHUNK: usize = 256 * 1024;

/// A buffer that keeps unused bytes at its front.
#[derive(Debug)]
struct Buffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    ended: bool,
}

impl Buffer {
    fn new() -> Buffer {
        Buffer { bytes: vec![0; CHUNK].into(), start: 0, end: 0, ended: false }
    }

    fn unused(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Reads on until at least `wanted` unused bytes are there, or the file ends.
    fn top_up(&mut self, file: &mut ArchiveFile, wanted: usize) -> Result<(), ReadError> {
        while !self.ended && self.end - self.start < wanted {
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

/// The file's own bytes.
#[derive(Debug)]
pub struct Plain {
    file: ArchiveFile,
    buffer: Buffer,
}

impl Plain {
    /// Reads `file` as it is.
    pub fn new(file: ArchiveFile) -> Plain {
        Plain { file, buffer: Buffer::new() }
    }
}

impl Source for Plain {
    fn fill(&mut self) -> Result<&[u8], ReadError> {
        self.buffer.top_up(&mut self.file, 1)?;
        Ok(self.buffer.unused())
    }

    fn consume(&mut self, n: usize) {
        self.buffer.start += n;
    }

    fn receipt(&mut self) -> (Digest, u64) {
        self.file.receipt()
    }
}

/// One or more gzip members; zero padding behind the last is legal, as for gzip(1).
#[derive(Debug)]
pub struct Gunzip {
    file: ArchiveFile,
    buffer: Buffer,
    inflate: Inflate,
    crc: crc32fast::Hasher,
    len: u32,
    total: u64,
    /// Within a member's DEFLATE data.
    inside: bool,
    members: u64,
    shown: usize,
    finished: bool,
}

/// A header may carry a name and a comment of any length; more than this is no header.
const LONGEST_HEADER: usize = 128 * 1024;

impl Gunzip {
    /// Decodes `file`.
    pub fn new(file: ArchiveFile) -> Gunzip {
        Gunzip {
            file,
            buffer: Buffer::new(),
            inflate: Inflate::new(),
            crc: crc32fast::Hasher::new(),
            len: 0,
            total: 0,
            inside: false,
            members: 0,
            shown: 0,
            finished: false,
        }
    }

    /// Reads a member's header, or finds the end.
    fn open_member(&mut self) -> Result<(), ReadError> {
        let mut wanted = 1024;
        loop {
            self.buffer.top_up(&mut self.file, wanted)?;
            let bytes = self.buffer.unused();
            if self.members > 0 && bytes.iter().all(|&b| b == 0) {
                // Nothing, or padding.
                self.buffer.start = self.buffer.end;
                if self.buffer.ended {
                    self.finished = true;
                    return Ok(());
                }
                continue;
            }
            match gzip::header_len(bytes) {
                Ok(len) => {
                    self.buffer.start += len;
                    self.members += 1;
                    self.inside = true;
                    return Ok(());
                }
                Err(HeaderFault::Short) if !self.buffer.ended && wanted < LONGEST_HEADER => wanted *= 2,
                Err(HeaderFault::Short) => {
                    return Err(Fault::Cut("a gzip header").of_archive().into());
                }
                Err(HeaderFault::Damaged) if self.members > 0 => {
                    return Err(Fault::Damaged("bytes behind the compressed data").of_archive().into());
                }
                Err(HeaderFault::Damaged) => {
                    return Err(Fault::Damaged("the gzip header").of_archive().into());
                }
            }
        }
    }

    fn close_member(&mut self) -> Result<(), ReadError> {
        self.buffer.top_up(&mut self.file, 8)?;
        let expected = gzip::trailer(std::mem::take(&mut self.crc).finalize(), u64::from(self.len));
        match self.buffer.unused().get(..8) {
            None => return Err(Fault::Cut("the gzip trailer").of_archive().into()),
            Some(trailer) if trailer[..4] != expected[..4] => {
                return Err(Fault::WrongCrc.of_archive().into());
            }
            Some(trailer) if trailer[4..] != expected[4..] => {
                return Err(Fault::WrongSize.of_archive().into());
            }
            Some(_) => self.buffer.start += 8,
        }
        self.inflate.reset();
        (self.len, self.inside) = (0, false);
        Ok(())
    }
}

impl Source for Gunzip {
    fn fill(&mut self) -> Result<&[u8], ReadError> {
        let mut member_ended = false;
        while self.shown == self.inflate.output().len() && !self.finished {
            if member_ended {
                self.close_member()?;
                member_ended = false;
                self.shown = 0;
                continue;
            }
            if !self.inside {
                self.open_member()?;
                continue;
            }
            self.buffer.top_up(&mut self.file, 1024)?;
            let step = self.inflate.run(self.buffer.unused(), self.buffer.ended);
            let step = step.map_err(|fault| Fault::from(fault).of_archive())?;
            self.buffer.start += step.consumed;
            self.shown = 0;
            let output = self.inflate.output();
            self.crc.update(output);
            self.len = self.len.wrapping_add(output.len() as u32);
            self.total += output.len() as u64;
            check_bomb(self.total, self.file.read - self.buffer.unused().len() as u64, None)?;
            if step.status == Status::Done {
                if output.is_empty() {
                    member_ended = true;
                } else {
                    // Shown first; the next call finds the stream done and nothing new.
                    break;
                }
            }
        }
        Ok(&self.inflate.output()[self.shown..])
    }

    fn consume(&mut self, n: usize) {
        self.shown += n;
    }

    fn receipt(&mut self) -> (Digest, u64) {
        self.file.receipt()
    }
}

/// A window of 128 MiB: a larger one is refused, as memory must stay bounded whatever the frame claims.
const ZSTD_WINDOW_LOG: u32 = 27;

/// One or more zstd frames.
pub struct Unzstd {
    decoder: BufReader<zstd::stream::read::Decoder<'static, BufReader<Counted>>>,
    total: u64,
}

/// The file as zstd reads it. A refusal or an I/O error is kept aside, as `io::Error` cannot tell them apart.
struct Counted {
    file: ArchiveFile,
    failed: Option<ReadError>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_some(buffer).map_err(|error| {
            self.failed = Some(error);
            io::Error::other("the archive cannot be read")
        })
    }
}

impl Unzstd {
    /// Decodes `file`.
    pub fn new(file: ArchiveFile) -> Result<Unzstd, ReadError> {
        let path = file.path.clone();
        let input = BufReader::with_capacity(CHUNK, Counted { file, failed: None });
        let mut decoder = zstd::stream::read::Decoder::with_buffer(input).map_err(ReadError::io(&path))?;
        decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(ReadError::io(&path))?;
        Ok(Unzstd { decoder: BufReader::with_capacity(CHUNK, decoder), total: 0 })
    }
}

impl Source for Unzstd {
    fn fill(&mut self) -> Result<&[u8], ReadError> {
        if self.decoder.buffer().is_empty() {
            if let Err(error) = self.decoder.fill_buf() {
                let input = self.decoder.get_mut().get_mut().get_mut();
                return Err(match input.failed.take() {
                    Some(error) => error,
                    None if error.kind() == io::ErrorKind::UnexpectedEof => {
                        Fault::Cut("the zstd data").of_archive().into()
                    }
                    None if error.to_string().contains("memory") => {
                        Fault::Damaged("its zstd window is over 128 MiB").of_archive().into()
                    }
                    None => Fault::Damaged("the zstd data").of_archive().into(),
                });
            }
            self.total += self.decoder.buffer().len() as u64;
            let waiting = self.decoder.get_ref().get_ref().buffer().len() as u64;
            let read = self.decoder.get_ref().get_ref().get_ref().file.read - waiting;
            check_bomb(self.total, read, None)?;
        }
        Ok(self.decoder.buffer())
    }

    fn consume(&mut self, n: usize) {
        self.decoder.consume(n);
    }

    fn receipt(&mut self) -> (Digest, u64) {
        self.decoder.get_mut().get_mut().get_mut().file.receipt()
    }
}

/// A source whose first bytes have been looked at.
pub struct Peeked {
    head: Vec<u8>,
    shown: usize,
    rest: Box<dyn Source>,
}

impl Peeked {
    /// Takes up to `n` bytes from the start of `source` to look at; fewer only where it ends.
    pub fn new(mut source: Box<dyn Source>, n: usize) -> Result<Peeked, ReadError> {
        let mut head = Vec::with_capacity(n);
        while head.len() < n {
            let bytes = source.fill()?;
            if bytes.is_empty() {
                break;
            }
            let taken = bytes.len().min(n - head.len());
            head.extend_from_slice(&bytes[..taken]);
            source.consume(taken);
        }
        Ok(Peeked { head, shown: 0, rest: source })
    }

    /// The first bytes.
    pub fn head(&self) -> &[u8] {
        &self.head
    }
}

impl Source for Peeked {
    fn fill(&mut self) -> Result<&[u8], ReadError> {
        if self.shown < self.head.len() { Ok(&self.head[self.shown..]) } else { self.rest.fill() }
    }

    fn consume(&mut self, n: usize) {
        if self.shown < self.head.len() {
            self.shown += n;
        } else {
            self.rest.consume(n);
        }
    }

    fn receipt(&mut self) -> (Digest, u64) {
        self.rest.receipt()
    }
}
