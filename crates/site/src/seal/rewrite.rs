//! Writes an image from a stream of entries: one thread decodes, others hash and compress, and the image grows in the
//! order of the entries.
//!
//! Small files are collected in batches, and each batch has a sequence number. A worker that has finished a batch
//! stores it with the other finished ones and appends those whose number is next, so a worker waits for a slower one
//! only while too many finished batches are stored, and the image is the same however the threads are scheduled. A
//! large file is written in pieces by the reading thread when its number is next. Memory is bounded by the numbers of
//! waiting, current and finished batches, whose buffers are reused.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::bundle::bundle_reader::{BundleEntry, BundleEntryKind, BundleReadError, BundleReader};
use crate::bundle::refusal::BundleFault;
use crate::image::{ImageEntry, ImageWriter};
use crate::index::{EntryCompression, IndexEntry};
use crate::media_types::is_compressible;
use docwharf_base::codec::deflate::Deflater;
use docwharf_base::locks::{Condvar, Mutex, MutexGuard};
use docwharf_base::model::digest::Sha256Hasher;
use docwharf_base::model::site_path::SitePath;

use super::seal_options::{SealOptions, SealProgress};
use super::verified_bundle::GatheredEntries;

/// The maximum content of a batch of several files, in bytes. A batch of a single file has up to
/// [`LARGE_FILE_BYTES`].
const BATCH_BYTES: usize = 512 * 1024;
/// The size above which a file is written in pieces, in bytes.
const LARGE_FILE_BYTES: u64 = 2 * 1024 * 1024;
/// The maximum number of batches that wait for a free worker.
const MAX_WAITING_BATCHES: usize = 4;
/// The maximum number of finished batches that wait for an earlier one.
const MAX_EARLY_BATCHES: usize = 6;
/// The number of written bytes after which a background sync starts, so that the last sync has little left to write.
const SYNC_INTERVAL_BYTES: u64 = 16 * 1024 * 1024;

/// A file of a batch: its path, and the range of its content in [`FileBatch::content`].
struct BatchFile {
    path: SitePath,
    start: usize,
    len: usize,
    modified: i64,
}

/// Small files that one worker compresses together.
#[derive(Default)]
struct FileBatch {
    number: u64,
    content: Vec<u8>,
    files: Vec<BatchFile>,
}

/// A compressed batch that waits to be appended to the image.
struct FinishedBatch {
    block: Vec<u8>,
    image_entries: Vec<ImageEntry>,
    index_entries: Vec<(SitePath, IndexEntry)>,
}

/// The state that the threads share.
struct RewriteShared {
    state: Mutex<RewriteState>,
    /// It is notified when [`RewriteState::next_number`] changes.
    advanced: Condvar,
}

struct RewriteState {
    /// The sequence number that is appended next.
    next_number: u64,
    /// The batches that were finished early, by sequence number.
    early: BTreeMap<u64, FinishedBatch>,
    /// Buffers of appended batches, for reuse.
    spare: Vec<Vec<u8>>,
    writer: Option<ImageWriter>,
    files: Vec<(SitePath, IndexEntry)>,
    error: Option<io::Error>,
    /// The length of the image at the last background sync.
    synced_len: u64,
}

impl RewriteShared {
    fn lock(&self) -> MutexGuard<'_, RewriteState> {
        self.state.lock()
    }

    /// Waits until everything before `number` has been appended.
    fn wait_for_turn(&self, number: u64) -> MutexGuard<'_, RewriteState> {
        self.advanced.wait_while(self.lock(), |state| state.next_number != number)
    }

    fn end_turn(&self, mut state: MutexGuard<'_, RewriteState>) {
        state.next_number += 1;
        drop(state);
        self.advanced.notify_all();
    }
}

/// Reads and verifies every entry. With a `writer`, each is also written to the new image.
pub(super) fn read_entries(
    entries: &mut dyn BundleReader,
    writer: Option<ImageWriter>,
    options: &SealOptions,
    progress: &SealProgress,
) -> Result<(GatheredEntries, Option<ImageWriter>), BundleReadError> {
    let sync_file = match &writer {
        Some(writer) if options.durable => Some(writer.file().try_clone().map_err(BundleReadError::Sink)?),
        _ => None,
    };
    let state = RewriteState {
        next_number: 0,
        early: BTreeMap::new(),
        spare: Vec::new(),
        writer,
        files: Vec::new(),
        error: None,
        synced_len: 0,
    };
    let shared = RewriteShared { state: Mutex::new(state), advanced: Condvar::new() };
    let level = options.level;
    let folders = std::thread::scope(|scope| {
        let (batch_sender, batch_receiver) = sync_channel::<FileBatch>(MAX_WAITING_BATCHES);
        let batch_receiver = Arc::new(Mutex::new(batch_receiver));
        let (sync_sender, sync_receiver) = sync_channel::<()>(1);
        if let Some(file) = sync_file {
            // An error is reported again by the sync at the end.
            scope.spawn(move || sync_receiver.iter().for_each(|()| drop(file.sync_data())));
        }
        let workers: Vec<_> = (0..options.threads.max(1))
            .map(|_| {
                let sync_sender = sync_sender.clone();
                let (shared, batch_receiver) = (&shared, Arc::clone(&batch_receiver));
                scope.spawn(move || run_worker(&batch_receiver, shared, &sync_sender, level, progress))
            })
            .collect();
        drop(sync_sender);
        let mut reader = BatchReader {
            shared: &shared,
            batch_sender,
            batch: FileBatch::default(),
            next_number: 0,
            folders: Vec::new(),
            files_by_path: HashMap::new(),
            level,
            progress,
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
    match state.error {
        Some(error) => Err(BundleReadError::Sink(error)),
        None => Ok((GatheredEntries { files: state.files, folders }, state.writer)),
    }
}

/// The state of the reading thread.
struct BatchReader<'a> {
    shared: &'a RewriteShared,
    batch_sender: SyncSender<FileBatch>,
    batch: FileBatch,
    /// The sequence number of the next batch or large file.
    next_number: u64,
    folders: Vec<SitePath>,
    /// Earlier files by path. It is filled only when a hard link needs it.
    files_by_path: HashMap<SitePath, usize>,
    level: u32,
    progress: &'a SealProgress,
}

impl BatchReader<'_> {
    fn read_entries(&mut self, entries: &mut dyn BundleReader) -> Result<(), BundleReadError> {
        while let Some(bundle_entry) = entries.next_entry()? {
            let Some(path) = bundle_entry.path.clone() else {
                continue;
            };
            match &bundle_entry.kind {
                BundleEntryKind::Folder => self.folders.push(path),
                BundleEntryKind::HardLink(target) => self.copy_hard_link(path, target)?,
                BundleEntryKind::File if bundle_entry.size > LARGE_FILE_BYTES => {
                    self.write_large_file(entries, path, &bundle_entry)?;
                }
                BundleEntryKind::File => self.add_small_file(entries, path, &bundle_entry)?,
            }
        }
        self.flush()?;
        // The workers may still be appending the last batches, whose files belong to the result.
        drop(self.shared.wait_for_turn(self.next_number));
        Ok(())
    }

    fn add_small_file(
        &mut self,
        entries: &mut dyn BundleReader,
        path: SitePath,
        bundle_entry: &BundleEntry,
    ) -> Result<(), BundleReadError> {
        if self.batch.content.len() + bundle_entry.size as usize > BATCH_BYTES && !self.batch.files.is_empty() {
            self.flush()?;
        }
        let start = self.batch.content.len();
        let content = &mut self.batch.content;
        entries.read_content(&mut |bytes| {
            content.extend_from_slice(bytes);
            Ok(())
        })?;
        let len = self.batch.content.len() - start;
        self.batch.files.push(BatchFile { path, start, len, modified: bundle_entry.modified });
        Ok(())
    }

    fn flush(&mut self) -> Result<(), BundleReadError> {
        if self.batch.files.is_empty() {
            return Ok(());
        }
        let spare = self.shared.lock().spare.pop().unwrap_or_default();
        let mut batch = std::mem::replace(&mut self.batch, FileBatch { content: spare, ..FileBatch::default() });
        batch.number = self.assign_number();
        if self.batch_sender.send(batch).is_err() {
            // Workers end only after the channel is closed, or by a panic, which [`read_entries`] continues.
            return Err(BundleReadError::Sink(io::Error::other("a worker thread has stopped")));
        }
        self.stop_on_failure()
    }

    fn assign_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    fn stop_on_failure(&self) -> Result<(), BundleReadError> {
        self.shared.lock().error.take().map_or(Ok(()), |error| Err(BundleReadError::Sink(error)))
    }

    fn write_large_file(
        &mut self,
        entries: &mut dyn BundleReader,
        path: SitePath,
        bundle_entry: &BundleEntry,
    ) -> Result<(), BundleReadError> {
        self.flush()?;
        let number = self.assign_number();
        let mut state = self.shared.wait_for_turn(number);
        let compression =
            if is_compressible(path.as_bytes()) { EntryCompression::Deflate } else { EntryCompression::Stored };
        let result = rewrite_large_file(entries, &mut state, path, bundle_entry, compression, self.level);
        self.progress.add(bundle_entry.size);
        self.shared.end_turn(state);
        result
    }

    /// Writes a hard link as a copy of the earlier file, because ZIP entries may not share bytes.
    fn copy_hard_link(&mut self, path: SitePath, target: &SitePath) -> Result<(), BundleReadError> {
        self.flush()?;
        let number = self.assign_number();
        let mut state = self.shared.wait_for_turn(number);
        for (index, (path, _)) in state.files.iter().enumerate().skip(self.files_by_path.len()) {
            self.files_by_path.insert(path.clone(), index);
        }
        let result = match self.files_by_path.get(target).map(|&index| state.files[index].1) {
            Some(entry) => copy_earlier_file(&mut state, path, entry).map_err(BundleReadError::Sink),
            None => Err(BundleFault::BadHardLink(target.as_bytes().to_vec()).in_entry(path.as_bytes()).into()),
        };
        self.shared.end_turn(state);
        result
    }
}

fn rewrite_large_file(
    entries: &mut dyn BundleReader,
    state: &mut RewriteState,
    path: SitePath,
    bundle_entry: &BundleEntry,
    compression: EntryCompression,
    level: u32,
) -> Result<(), BundleReadError> {
    let mut content = Sha256Hasher::new();
    let (mut crc, mut compressed_crc) = (crc32fast::Hasher::new(), crc32fast::Hasher::new());
    let mut deflater = Deflater::new(level);
    let mut compressed = Vec::new();
    let RewriteState { writer, files, .. } = state;
    let mut large_entry = match writer {
        Some(writer) => Some(
            writer.start_large_entry(path.as_bytes(), compression, bundle_entry.size).map_err(BundleReadError::Sink)?,
        ),
        None => None,
    };
    entries.read_content(&mut |bytes| {
        content.update(bytes);
        crc.update(bytes);
        let Some(writer) = writer.as_mut() else {
            return Ok(());
        };
        let bytes = if compression == EntryCompression::Deflate {
            compressed.clear();
            deflater.write(bytes, &mut compressed);
            compressed_crc.update(&compressed);
            &compressed
        } else {
            bytes
        };
        writer.append_large_content(bytes).map_err(BundleReadError::Sink)
    })?;
    let mut index_entry = IndexEntry {
        compression,
        offset: 0,
        compressed_len: bundle_entry.size,
        len: bundle_entry.size,
        crc: crc.finalize(),
        content: content.finalize_reset(),
        compressed_crc: 0,
        last_block_bit: 0,
        spare_bits: 0,
        modified: bundle_entry.modified,
    };
    if let (Some(writer), Some(large_entry)) = (writer.as_mut(), large_entry.take()) {
        if compression == EntryCompression::Deflate {
            compressed.clear();
            let ending = deflater.finish(&mut compressed);
            compressed_crc.update(&compressed);
            index_entry.compressed_crc = compressed_crc.finalize();
            (index_entry.last_block_bit, index_entry.spare_bits) = (ending.last_block_bit, ending.spare_bits);
            writer.append_large_content(&compressed).map_err(BundleReadError::Sink)?;
        }
        (index_entry.offset, index_entry.compressed_len) =
            writer.finish_large_entry(large_entry, index_entry.crc).map_err(BundleReadError::Sink)?;
    }
    files.push((path, index_entry));
    Ok(())
}

fn copy_earlier_file(state: &mut RewriteState, path: SitePath, mut entry: IndexEntry) -> io::Result<()> {
    if let Some(writer) = &mut state.writer {
        let large_entry = writer.start_large_entry(path.as_bytes(), entry.compression, entry.len)?;
        let mut buffer = vec![0; 256 * 1024];
        let (mut offset, mut remaining) = (entry.offset, entry.compressed_len);
        while remaining > 0 {
            let n = remaining.min(buffer.len() as u64) as usize;
            writer.file().read_exact_at(&mut buffer[..n], offset)?;
            writer.append_large_content(&buffer[..n])?;
            offset += n as u64;
            remaining -= n as u64;
        }
        (entry.offset, entry.compressed_len) = writer.finish_large_entry(large_entry, entry.crc)?;
    }
    state.files.push((path, entry));
    Ok(())
}

/// Runs a worker: it hashes and compresses batches, and appends them to the image.
fn run_worker(
    batch_receiver: &Mutex<Receiver<FileBatch>>,
    shared: &RewriteShared,
    sync_sender: &SyncSender<()>,
    level: u32,
    progress: &SealProgress,
) {
    let mut deflater = Deflater::new(level);
    let mut hasher = Sha256Hasher::new();
    let is_writing = shared.lock().writer.is_some();
    let mut block = Vec::new();
    loop {
        let batch = batch_receiver.lock().recv();
        let Ok(FileBatch { number, mut content, files }) = batch else { return };
        let mut image_entries = Vec::with_capacity(files.len());
        let mut index_entries = Vec::with_capacity(files.len());
        for file in files {
            let bytes = &content[file.start..file.start + file.len];
            progress.add(file.len as u64);
            let (image_entry, entry) =
                encode_file(&file, bytes, &mut block, is_writing.then_some(&mut deflater), &mut hasher);
            image_entries.extend(image_entry);
            index_entries.push((file.path, entry));
        }
        content.clear();
        // Waits while too many finished batches are stored; otherwise one slow batch would let the others fill the
        // memory. The worker whose batch is next never waits here.
        let full = |state: &mut RewriteState| state.next_number != number && state.early.len() >= MAX_EARLY_BATCHES;
        let mut state = shared.advanced.wait_while(shared.lock(), full);
        state.spare.push(content);
        state.early.insert(number, FinishedBatch { block: std::mem::take(&mut block), image_entries, index_entries });
        loop {
            let number = state.next_number;
            let Some(finished) = state.early.remove(&number) else { break };
            block = append_batch(&mut state, finished, sync_sender);
            state.next_number += 1;
        }
        drop(state);
        shared.advanced.notify_all();
    }
}

/// Appends a batch to the image. Returns its buffer, empty.
fn append_batch(state: &mut RewriteState, finished: FinishedBatch, sync_sender: &SyncSender<()>) -> Vec<u8> {
    let FinishedBatch { mut block, image_entries, mut index_entries } = finished;
    if state.error.is_none()
        && let Some(writer) = &mut state.writer
    {
        let base = writer.position();
        match writer.append(&block, image_entries.into_iter()) {
            Ok(()) => {}
            Err(error) => state.error = Some(error),
        }
        for (_, entry) in &mut index_entries {
            entry.offset += base;
        }
        if writer.position() - state.synced_len > SYNC_INTERVAL_BYTES {
            state.synced_len = writer.position();
            let _ = sync_sender.try_send(()); // ignored if the last sync is still running
        }
    }
    state.files.append(&mut index_entries);
    block.clear();
    block
}

/// Encodes one small file into a block. Without a `deflater`, it only hashes the file.
fn encode_file(
    file: &BatchFile,
    content: &[u8],
    block: &mut Vec<u8>,
    deflater: Option<&mut Deflater>,
    hasher: &mut Sha256Hasher,
) -> (Option<ImageEntry>, IndexEntry) {
    hasher.update(content);
    let mut index_entry = IndexEntry {
        compression: EntryCompression::Stored,
        offset: 0,
        compressed_len: content.len() as u64,
        len: content.len() as u64,
        crc: crc32fast::hash(content),
        content: hasher.finalize_reset(),
        compressed_crc: 0,
        last_block_bit: 0,
        spare_bits: 0,
        modified: file.modified,
    };
    let Some(deflater) = deflater else {
        return (None, index_entry);
    };
    let mut compressed = Vec::new();
    if is_compressible(file.path.as_bytes()) && !content.is_empty() {
        let ending = deflater.encode_all(content, &mut compressed);
        if compressed.len() < content.len() {
            index_entry.compression = EntryCompression::Deflate;
            index_entry.compressed_len = compressed.len() as u64;
            (index_entry.last_block_bit, index_entry.spare_bits) = (ending.last_block_bit, ending.spare_bits);
            index_entry.compressed_crc = crc32fast::hash(&compressed);
        }
    }
    let bytes = if index_entry.compression == EntryCompression::Deflate { &compressed[..] } else { content };
    let image_entry = ImageEntry {
        name: file.path.as_bytes().into(),
        compression: index_entry.compression,
        crc: index_entry.crc,
        compressed_len: index_entry.compressed_len,
        len: index_entry.len,
        header_offset: block.len() as u64,
    };
    image_entry.write_local_header(block);
    index_entry.offset = block.len() as u64;
    block.extend_from_slice(bytes);
    (Some(image_entry), index_entry)
}
