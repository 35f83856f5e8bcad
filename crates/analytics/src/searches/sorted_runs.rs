//! External sorting: sorted runs of entries in a temporary file, which are merged when they are read.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use docwharf_base::little_endian::{read_u32_le, read_u64_le};

/// The largest and the smallest number of bytes of a run that are read at a time.
const MAX_READ_BYTES: usize = 64 << 10;
const MIN_READ_BYTES: usize = 4 << 10;
/// The bytes of an entry before its key: the length of the key, three numbers, and whether it has a page.
const ENTRY_HEADER_BYTES: usize = 4 + 3 * 8 + 1;

/// The message of the error if an entry in the temporary file is not what was written.
pub(super) const FILE_CHANGED_MESSAGE: &str = "the temporary file of search terms was changed while it was read";

/// The totals of a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TermCounts {
    pub(super) hits: u64,
    pub(super) clicks: u64,
    /// The time of the last search, in milliseconds since 1970.
    pub(super) last_searched: i64,
    pub(super) has_page: bool,
}

impl TermCounts {
    /// Adds the totals of the same key.
    pub(super) fn add(&mut self, other: TermCounts) {
        self.hits = self.hits.saturating_add(other.hits);
        self.clicks = self.clicks.saturating_add(other.clicks);
        self.last_searched = self.last_searched.max(other.last_searched);
        self.has_page |= other.has_page;
    }
}

/// A key with its totals.
pub(super) type TermEntry = (Vec<u8>, TermCounts);

/// Sorted runs of entries in a file.
#[derive(Debug)]
pub(super) struct SortedRuns {
    file: BufWriter<File>,
    len: u64,
    /// The start and the end of each run in the file.
    runs: Vec<(u64, u64)>,
}

impl SortedRuns {
    /// Creates an unnamed temporary file in `folder`.
    pub(super) fn new(folder: &Path) -> io::Result<SortedRuns> {
        let file = BufWriter::with_capacity(MAX_READ_BYTES, tempfile::tempfile_in(folder)?);
        Ok(SortedRuns { file, len: 0, runs: Vec::new() })
    }

    /// Sorts the entries by their keys and appends them as a run.
    pub(super) fn push(&mut self, mut entries: Vec<TermEntry>) -> io::Result<()> {
        entries.sort_unstable();
        let begin = self.len;
        for (key, counts) in &entries {
            let length = u32::try_from(key.len()).map_err(io::Error::other)?;
            self.file.write_all(&length.to_le_bytes())?;
            for number in [counts.hits, counts.clicks, counts.last_searched.cast_unsigned()] {
                self.file.write_all(&number.to_le_bytes())?;
            }
            self.file.write_all(&[u8::from(counts.has_page)])?;
            self.file.write_all(key)?;
            self.len += (ENTRY_HEADER_BYTES + key.len()) as u64;
        }
        self.runs.push((begin, self.len));
        Ok(())
    }

    /// Calls `visit` with the entries of all runs, sorted by key, until it returns false. Uses about `memory` bytes,
    /// but at least 4 KiB for each run.
    pub(super) fn merge(self, memory: usize, mut visit: impl FnMut(TermEntry) -> io::Result<bool>) -> io::Result<()> {
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        let chunk_bytes = (memory / self.runs.len().max(1)).clamp(MIN_READ_BYTES, MAX_READ_BYTES);
        let reader = |&(position, end): &(u64, u64)| RunReader {
            file: &file,
            position,
            end,
            chunk_bytes,
            buffer: Vec::new(),
            consumed: 0,
        };
        let mut readers: Vec<RunReader<'_>> = self.runs.iter().map(reader).collect();
        let mut heads = BinaryHeap::with_capacity(readers.len());
        for (run, reader) in readers.iter_mut().enumerate() {
            heads.extend(reader.next()?.map(|(key, counts)| Reverse((key, run, counts))));
        }
        while let Some(Reverse((key, run, counts))) = heads.pop() {
            heads.extend(readers[run].next()?.map(|(key, counts)| Reverse((key, run, counts))));
            if !visit((key, counts))? {
                break;
            }
        }
        Ok(())
    }
}

/// A buffered reader of one run.
struct RunReader<'a> {
    file: &'a File,
    position: u64,
    end: u64,
    chunk_bytes: usize,
    buffer: Vec<u8>,
    /// The number of bytes of the buffer that are consumed.
    consumed: usize,
}

impl RunReader<'_> {
    fn next(&mut self) -> io::Result<Option<TermEntry>> {
        if self.consumed == self.buffer.len() && self.position == self.end {
            return Ok(None);
        }
        let header = self.bytes(ENTRY_HEADER_BYTES)?;
        let length = read_u32_le(header, 0) as usize;
        let counts = TermCounts {
            hits: read_u64_le(header, 4),
            clicks: read_u64_le(header, 12),
            last_searched: read_u64_le(header, 20).cast_signed(),
            has_page: header[ENTRY_HEADER_BYTES - 1] != 0,
        };
        Ok(Some((self.bytes(length)?.to_vec(), counts)))
    }

    /// Returns the next bytes, from the buffer.
    fn bytes(&mut self, len: usize) -> io::Result<&[u8]> {
        let buffered = self.buffer.len() - self.consumed;
        if buffered < len {
            self.buffer.drain(..self.consumed);
            self.consumed = 0;
            let remaining = usize::try_from(self.end - self.position).unwrap_or(usize::MAX);
            let chunk_len = self.chunk_bytes.max(len - buffered).min(remaining);
            self.buffer.resize(buffered + chunk_len, 0);
            self.file.read_exact_at(&mut self.buffer[buffered..], self.position)?;
            self.position += chunk_len as u64;
        }
        let bytes = self.buffer.get(self.consumed..self.consumed + len);
        self.consumed += len;
        bytes.ok_or_else(|| io::Error::other(FILE_CHANGED_MESSAGE))
    }
}
