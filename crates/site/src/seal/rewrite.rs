//! Writes an image from a stream of entries: one thread decodes, others hash and compress, and the image grows in the
//! order of the entries.
//!
//! Small files are collected in batches, and each batch has a sequence number. A worker that has finished a batch
//! stores it with the other finished ones and appends those whose number is next, so no worker waits for a slower one,
//! and the image is the same however the threads are scheduled. A large file is written in pieces by the reading thread
//! when its number is next. Memory is bounded by the batches in flight, whose buffers are reused.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::bundle::bundle_reader::{BundleEntry, BundleEntryKind, BundleReadError, BundleReader};
use crate::bundle::refusal::BundleFault;
use crate::image::{ImageMember, ImageWriter};
use crate::index::{EntryCompression, IndexEntry};
use crate::media_types::is_compressible;
use docwharf_base::codec::deflate::Deflater;
use docwharf_base::locks::{Condvar, Mutex, MutexGuard};
use docwharf_base::model::digest::Sha256Hasher;
use docwharf_base::model::site_path::SitePath;

use super::seal_options::{SealOptions, SealProgress};
use super::verified_bundle::GatheredEntries;

/// The maximum content of a batch, in bytes.
const BATCH_BYTES: usize = 512 * 1024;
/// The size above which a file is written in pieces, in bytes.
const LARGE_FILE_BYTES: u64 = 2 * 1024 * 1024;
/// The maximum number of batches that wait for a free worker.
const MAX_WAITING_BATCHES: usize = 4;
/// The maximum number of finished batches that wait for an earlier one.
const MAX_EARLY_BATCHES: usize = 6;
/// The number of written bytes after which a background sync starts, so that the last sync has little left to write.
const SYNC_INTERVAL_BYTES: u64 = 16 * 1024 * 1024;

struct BatchFile {
    path: SitePath,
    start: usize,
    len: usize,
    modified: i64,
}

#[derive(Default)]
struct FileBatch {
    turn: u64,
    content: Vec<u8>,
    files: Vec<BatchFile>,
}

/// A compressed batch that waits to be appended to the image.
struct FinishedBatch {
    block: Vec<u8>,
    members: Vec<ImageMember>,
    records: Vec<(SitePath, IndexEntry)>,
}

/// The state that the threads share.
struct RewriteShared {
    state: Mutex<RewriteState>,
    turned: Condvar,
}

struct RewriteState {
    /// The sequence number that is appended next.
    turn: u64,
    /// The batches that were finished early, by sequence number.
    early: BTreeMap<u64, FinishedBatch>,
    /// Buffers of appended batches, for reuse.
    spare: Vec<Vec<u8>>,
    writer: Option<ImageWriter>,
    files: Vec<(SitePath, IndexEntry)>,
    failed: Option<io::Error>,
    synced: u64,
}

impl RewriteShared {
    fn lock(&self) -> MutexGuard<'_, RewriteState> {
        self.state.lock()
    }

    /// Waits until everything before `turn` has been appended.
    fn await_turn(&self, turn: u64) -> MutexGuard<'_, RewriteState> {
        self.turned.wait_while(self.lock(), |state| state.turn != turn)
    }

    fn end_turn(&self, mut state: MutexGuard<'_, RewriteState>) {
        state.turn += 1;
        drop(state);
        self.turned.notify_all();
    }
}

/// Reads every entry and, with a `writer`, writes its image; without one, only verifies.
pub(super) fn rewrite_image(
    entries: &mut dyn BundleReader,
    writer: Option<ImageWriter>,
    effort: &SealOptions,
    meter: &SealProgress,
) -> Result<(GatheredEntries, Option<ImageWriter>), BundleReadError> {
    let syncing = match &writer {
        Some(writer) if effort.durable => Some(writer.file().try_clone().map_err(BundleReadError::Sink)?),
        _ => None,
    };
    let state = RewriteState {
        turn: 0,
        early: BTreeMap::new(),
        spare: Vec::new(),
        writer,
        files: Vec::new(),
        failed: None,
        synced: 0,
    };
    let shared = RewriteShared { state: Mutex::new(state), turned: Condvar::new() };
    let level = effort.level;
    let folders = std::thread::scope(|scope| {
        let (send, receive) = sync_channel::<FileBatch>(MAX_WAITING_BATCHES);
        let receive = Arc::new(Mutex::new(receive));
        let (nudge, nudged) = sync_channel::<()>(1);
        if let Some(file) = syncing {
            // An error is reported again by the sync at the end.
            scope.spawn(move || nudged.iter().for_each(|()| drop(file.sync_data())));
        }
        let workers: Vec<_> = (0..effort.threads.max(1))
            .map(|_| {
                let nudge = nudge.clone();
                let (shared, receive) = (&shared, Arc::clone(&receive));
                scope.spawn(move || run_worker(&receive, shared, &nudge, level, meter))
            })
            .collect();
        drop(nudge);
        let mut reader = BatchReader {
            shared: &shared,
            send,
            batch: FileBatch::default(),
            turn: 0,
            folders: Vec::new(),
            known: HashMap::new(),
            level,
            meter,
        };
        let result = reader.read_entries(entries);
        let folders = std::mem::take(&mut reader.folders);
        drop(reader); // closes the channel, which ends the workers
        for worker in workers {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        result.map(|()| folders)
    })?;
    let state = shared.state.into_inner();
    match state.failed {
        Some(error) => Err(BundleReadError::Sink(error)),
        None => Ok((GatheredEntries { files: state.files, folders }, state.writer)),
    }
}

/// The state of the reading thread.
struct BatchReader<'a> {
    shared: &'a RewriteShared,
    send: SyncSender<FileBatch>,
    batch: FileBatch,
    turn: u64,
    folders: Vec<SitePath>,
    /// Earlier files by path. It is filled only when a hard link needs it.
    known: HashMap<SitePath, usize>,
    level: u32,
    meter: &'a SealProgress,
}

impl BatchReader<'_> {
    fn read_entries(&mut self, entries: &mut dyn BundleReader) -> Result<(), BundleReadError> {
        while let Some(head) = entries.next_entry()? {
            let Some(path) = head.path.clone() else {
                continue;
            };
            match &head.kind {
                BundleEntryKind::Folder => self.folders.push(path),
                BundleEntryKind::HardLink(target) => self.copy_hard_link(path, target)?,
                BundleEntryKind::File if head.size > LARGE_FILE_BYTES => self.write_large_file(entries, path, &head)?,
                BundleEntryKind::File => self.add_small_file(entries, path, &head)?,
            }
        }
        self.flush()?;
        // The workers may still be appending the last batches, whose files belong to the result.
        drop(self.shared.await_turn(self.turn));
        Ok(())
    }

    fn add_small_file(
        &mut self,
        entries: &mut dyn BundleReader,
        path: SitePath,
        head: &BundleEntry,
    ) -> Result<(), BundleReadError> {
        if self.batch.content.len() + head.size as usize > BATCH_BYTES && !self.batch.files.is_empty() {
            self.flush()?;
        }
        let start = self.batch.content.len();
        let content = &mut self.batch.content;
        entries.read_content(&mut |bytes| {
            content.extend_from_slice(bytes);
            Ok(())
        })?;
        let len = self.batch.content.len() - start;
        self.batch.files.push(BatchFile { path, start, len, modified: head.modified });
        Ok(())
    }

    fn flush(&mut self) -> Result<(), BundleReadError> {
        if self.batch.files.is_empty() {
            return Ok(());
        }
        let spare = self.shared.lock().spare.pop().unwrap_or_default();
        let mut batch = std::mem::replace(&mut self.batch, FileBatch { content: spare, ..FileBatch::default() });
        batch.turn = self.take_turn();
        if self.send.send(batch).is_err() {
            // Workers end only after the channel is closed, or by a panic, which is passed on by `run`.
            return Err(BundleReadError::Sink(io::Error::other("a worker thread died")));
        }
        self.stop_on_failure()
    }

    fn take_turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn - 1
    }

    fn stop_on_failure(&self) -> Result<(), BundleReadError> {
        self.shared.lock().failed.take().map_or(Ok(()), |error| Err(BundleReadError::Sink(error)))
    }

    fn write_large_file(
        &mut self,
        entries: &mut dyn BundleReader,
        path: SitePath,
        head: &BundleEntry,
    ) -> Result<(), BundleReadError> {
        self.flush()?;
        let turn = self.take_turn();
        let mut state = self.shared.await_turn(turn);
        let coding =
            if is_compressible(path.as_bytes()) { EntryCompression::Deflate } else { EntryCompression::Stored };
        let result = write_large(entries, &mut state, path, head, coding, self.level);
        self.meter.add(head.size);
        self.shared.end_turn(state);
        result
    }

    /// Writes a hard link as a copy of the earlier file, because ZIP members may not share bytes.
    fn copy_hard_link(&mut self, path: SitePath, target: &SitePath) -> Result<(), BundleReadError> {
        self.flush()?;
        let turn = self.take_turn();
        let mut state = self.shared.await_turn(turn);
        for (at, (path, _)) in state.files.iter().enumerate().skip(self.known.len()) {
            self.known.insert(path.clone(), at);
        }
        let result = match self.known.get(target).map(|&at| state.files[at].1) {
            Some(entry) => copy_member(&mut state, path, entry).map_err(BundleReadError::Sink),
            None => Err(BundleFault::BadHardLink(target.as_bytes().to_vec()).in_entry(path.as_bytes()).into()),
        };
        self.shared.end_turn(state);
        result
    }
}

fn write_large(
    entries: &mut dyn BundleReader,
    state: &mut RewriteState,
    path: SitePath,
    head: &BundleEntry,
    coding: EntryCompression,
    level: u32,
) -> Result<(), BundleReadError> {
    let mut content = Sha256Hasher::new();
    let (mut crc, mut coded) = (crc32fast::Hasher::new(), crc32fast::Hasher::new());
    let mut deflater = Deflater::new(level);
    let mut out = Vec::new();
    let RewriteState { writer, files, .. } = state;
    let mut large = match writer {
        Some(writer) => Some(writer.begin_large(path.as_bytes(), coding, head.size).map_err(BundleReadError::Sink)?),
        None => None,
    };
    entries.read_content(&mut |bytes| {
        content.update(bytes);
        crc.update(bytes);
        let Some(writer) = writer.as_mut() else {
            return Ok(());
        };
        let bytes = if coding == EntryCompression::Deflate {
            out.clear();
            deflater.write(bytes, &mut out);
            coded.update(&out);
            &out
        } else {
            bytes
        };
        writer.write_large(bytes).map_err(BundleReadError::Sink)
    })?;
    let mut entry = IndexEntry {
        coding,
        offset: 0,
        coded_len: head.size,
        len: head.size,
        crc: crc.finalize(),
        content: content.take(),
        coded_crc: 0,
        last_header_bit: 0,
        spare_bits: 0,
        modified: head.modified,
    };
    if let (Some(writer), Some(large)) = (writer.as_mut(), large.take()) {
        if coding == EntryCompression::Deflate {
            out.clear();
            let ending = deflater.finish(&mut out);
            coded.update(&out);
            entry.coded_crc = coded.finalize();
            (entry.last_header_bit, entry.spare_bits) = (ending.last_header_bit, ending.spare_bits);
            writer.write_large(&out).map_err(BundleReadError::Sink)?;
        }
        (entry.offset, entry.coded_len) = writer.end_large(large, entry.crc).map_err(BundleReadError::Sink)?;
    }
    files.push((path, entry));
    Ok(())
}

fn copy_member(state: &mut RewriteState, path: SitePath, mut entry: IndexEntry) -> io::Result<()> {
    if let Some(writer) = &mut state.writer {
        let large = writer.begin_large(path.as_bytes(), entry.coding, entry.len)?;
        let mut buffer = vec![0; 256 * 1024];
        let (mut at, mut left) = (entry.offset, entry.coded_len);
        while left > 0 {
            let n = left.min(buffer.len() as u64) as usize;
            writer.file().read_exact_at(&mut buffer[..n], at)?;
            writer.write_large(&buffer[..n])?;
            at += n as u64;
            left -= n as u64;
        }
        (entry.offset, entry.coded_len) = writer.end_large(large, entry.crc)?;
    }
    state.files.push((path, entry));
    Ok(())
}

/// Runs a worker, which hashes, compresses and appends.
fn run_worker(
    receive: &Mutex<Receiver<FileBatch>>,
    shared: &RewriteShared,
    nudge: &SyncSender<()>,
    level: u32,
    meter: &SealProgress,
) {
    let mut deflater = Deflater::new(level);
    let mut hasher = Sha256Hasher::new();
    let writing = shared.lock().writer.is_some();
    let mut block = Vec::new();
    loop {
        let batch = receive.lock().recv();
        let Ok(FileBatch { turn, mut content, files }) = batch else { return };
        let mut members = Vec::with_capacity(files.len());
        let mut records = Vec::with_capacity(files.len());
        for file in files {
            let bytes = &content[file.start..file.start + file.len];
            meter.add(file.len as u64);
            let (member, entry) = encode_file(&file, bytes, &mut block, writing.then_some(&mut deflater), &mut hasher);
            members.extend(member);
            records.push((file.path, entry));
        }
        content.clear();
        // Waits while too many finished batches are stored; otherwise one slow batch would let the others fill the
        // memory. The worker whose batch is next never waits here.
        let full = |state: &mut RewriteState| state.turn != turn && state.early.len() >= MAX_EARLY_BATCHES;
        let mut state = shared.turned.wait_while(shared.lock(), full);
        state.spare.push(content);
        state.early.insert(turn, FinishedBatch { block: std::mem::take(&mut block), members, records });
        loop {
            let turn = state.turn;
            let Some(finished) = state.early.remove(&turn) else { break };
            block = append_batch(&mut state, finished, nudge);
            state.turn += 1;
        }
        drop(state);
        shared.turned.notify_all();
    }
}

/// Appends a batch to the image. Returns its buffer, empty.
fn append_batch(state: &mut RewriteState, finished: FinishedBatch, nudge: &SyncSender<()>) -> Vec<u8> {
    let FinishedBatch { mut block, members, mut records } = finished;
    if state.failed.is_none()
        && let Some(writer) = &mut state.writer
    {
        let base = writer.position();
        match writer.append(&block, members.into_iter()) {
            Ok(()) => {}
            Err(error) => state.failed = Some(error),
        }
        for (_, entry) in &mut records {
            entry.offset += base;
        }
        if writer.position() - state.synced > SYNC_INTERVAL_BYTES {
            state.synced = writer.position();
            let _ = nudge.try_send(()); // ignored if the last sync is still running
        }
    }
    state.files.append(&mut records);
    block.clear();
    block
}

/// Encodes one small file into a block; without a `deflater` the file is only hashed.
fn encode_file(
    file: &BatchFile,
    content: &[u8],
    block: &mut Vec<u8>,
    deflater: Option<&mut Deflater>,
    hasher: &mut Sha256Hasher,
) -> (Option<ImageMember>, IndexEntry) {
    hasher.update(content);
    let mut entry = IndexEntry {
        coding: EntryCompression::Stored,
        offset: 0,
        coded_len: content.len() as u64,
        len: content.len() as u64,
        crc: crc32fast::hash(content),
        content: hasher.take(),
        coded_crc: 0,
        last_header_bit: 0,
        spare_bits: 0,
        modified: file.modified,
    };
    let Some(deflater) = deflater else {
        return (None, entry);
    };
    let mut coded = Vec::new();
    if is_compressible(file.path.as_bytes()) && !content.is_empty() {
        let ending = deflater.encode_all(content, &mut coded);
        if coded.len() < content.len() {
            entry.coding = EntryCompression::Deflate;
            entry.coded_len = coded.len() as u64;
            (entry.last_header_bit, entry.spare_bits) = (ending.last_header_bit, ending.spare_bits);
            entry.coded_crc = crc32fast::hash(&coded);
        }
    }
    let bytes = if entry.coding == EntryCompression::Deflate { &coded[..] } else { content };
    let member = ImageMember {
        name: file.path.as_bytes().into(),
        coding: entry.coding,
        crc: entry.crc,
        coded_len: entry.coded_len,
        len: entry.len,
        header: block.len() as u64,
    };
    member.write_local_header(block);
    entry.offset = block.len() as u64;
    block.extend_from_slice(bytes);
    (Some(member), entry)
}
