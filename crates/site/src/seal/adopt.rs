//! Verifies a ZIP in place, all its entries in parallel, and decides whether it can become the image as it is.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::bundle::bundle_reader::BundleReadError;
use crate::bundle::zip::{CompressionMethod, ZipArchive, ZipEntry};
use crate::bundle::zip_entry::{VerifiedZipEntry, ZipEntryReader};
use crate::index::{EntryCompression, IndexEntry};
use crate::media_types::is_text;
use docwharf_base::growing_file::WriteProgress;
use docwharf_base::locks::Mutex;
use docwharf_base::model::digest::{Digest, Sha256Hasher};

use super::growing_copy;
use super::seal_options::{SealOptions, SealProgress};
use super::verified_bundle::GatheredEntries;

/// The size up to which a stored text does not count against adoption, in bytes.
const MAX_STORED_TEXT_BYTES: u64 = 1024;

/// Whether the directory of a ZIP permits it to become the image: no entry has the extra field of docwharf's own
/// images, and stored text over 1 KiB makes up less than 5 % of the entries' bytes. After verification, every DEFLATE
/// stream must also end at its declared length ([`VerifiedZip::all_end_at_declared_len`]).
pub(super) fn may_adopt(zip: &ZipArchive) -> bool {
    // The reader of images obeys this extra field, which the reader of received ZIPs ignores. As an image, this ZIP
    // would have other names.
    if zip.entries.iter().any(|m| m.has_raw_name) {
        return false;
    }
    let stored: u64 = zip
        .entries
        .iter()
        .filter(|m| m.method == CompressionMethod::Stored && m.size > MAX_STORED_TEXT_BYTES)
        .filter(|m| m.path.as_ref().is_some_and(|path| is_text(path.as_bytes())))
        .map(|m| m.compressed_len)
        .sum();
    stored.saturating_mul(20) < zip.directory_offset()
}

/// The result of verifying all entries.
pub(super) struct VerifiedZip {
    pub(super) gathered: GatheredEntries,
    /// The SHA-256 and the length of the archive.
    pub(super) archive: (Digest, u64),
    /// Whether every DEFLATE stream ends exactly at its compressed size.
    pub(super) all_end_at_declared_len: bool,
}

/// A received archive whose entries are copied into the image while the image is verified.
pub(super) struct ReceivedZip<'a> {
    pub(super) from: &'a File,
    pub(super) to: &'a File,
    /// The offset at which the entries end.
    pub(super) end: u64,
}

/// Verifies every entry. The bytes of `received` are copied meanwhile and, if `options` is durable, synced to disk.
pub(super) fn verify_entries(
    zip: &ZipArchive,
    options: &SealOptions,
    progress: &SealProgress,
    received: Option<&ReceivedZip<'_>>,
) -> Result<VerifiedZip, BundleReadError> {
    let next = AtomicUsize::new(0);
    // The fault of the first faulty entry by position, so that the result does not depend on which thread is faster.
    let first_fault: Mutex<Option<(usize, BundleReadError)>> = Mutex::new(None);
    let growth = if received.is_some() { WriteProgress::growing(0) } else { WriteProgress::complete() };
    let (verified_entries, archive, copied) = std::thread::scope(|scope| {
        let copy = received.map(|received| {
            let growth = &growth;
            scope.spawn(move || {
                growing_copy::copy_growing(received.from, received.to, received.end, growth)?;
                if options.durable { received.to.sync_all() } else { Ok(()) }
            })
        });
        let archive = scope.spawn(|| digest_file(zip.file(), &growth));
        let workers: Vec<_> = (0..options.threads.max(1))
            .map(|_| scope.spawn(|| run_worker(zip, &growth, &next, &first_fault, progress)))
            .collect();
        let mut verified_entries: Vec<(usize, VerifiedZipEntry)> = Vec::with_capacity(zip.entries.len());
        for worker in workers {
            verified_entries.extend(join_worker(worker));
        }
        (verified_entries, join_worker(archive), copy.map(join_worker))
    });
    copied.transpose().map_err(BundleReadError::Sink)?;
    if let Some((_, error)) = first_fault.into_inner() {
        return Err(error);
    }
    let archive = archive.map_err(|source| BundleReadError::Io { path: zip.path().to_owned(), source })?;

    let mut verified_entries = verified_entries;
    verified_entries.sort_unstable_by_key(|(index, _)| *index);
    let verified_entries: Vec<VerifiedZipEntry> = verified_entries.into_iter().map(|(_, verified)| verified).collect();
    let all_end_at_declared_len = verified_entries.iter().all(|verified| verified.ends_at_declared_len);
    Ok(VerifiedZip { gathered: gather_entries(zip, &verified_entries)?, archive, all_end_at_declared_len })
}

/// Verifies every entry, one after another. `pace` is called with the number of bytes of content that were read; it
/// may block to limit the speed.
pub(super) fn verify_entries_slowly(
    zip: &ZipArchive,
    pace: &mut dyn FnMut(u64),
) -> Result<GatheredEntries, BundleReadError> {
    let mut reader = ZipEntryReader::new();
    let mut verified_entries = Vec::with_capacity(zip.entries.len());
    for entry in &zip.entries {
        let mut sink = |piece: &[u8]| {
            pace(piece.len() as u64);
            Ok(())
        };
        verified_entries.push(reader.verify(zip, entry, &mut sink)?);
    }
    gather_entries(zip, &verified_entries)
}

/// Collects the files and folders of a ZIP from the verified entries.
fn gather_entries(zip: &ZipArchive, verified_entries: &[VerifiedZipEntry]) -> Result<GatheredEntries, BundleReadError> {
    zip.check_gaps(verified_entries.iter().map(|verified| verified.end))?;
    let mut gathered = GatheredEntries { files: Vec::new(), folders: Vec::new() };
    for (entry, verified) in zip.entries.iter().zip(verified_entries) {
        let Some(path) = &entry.path else { continue };
        if entry.is_folder {
            gathered.folders.push(path.clone());
        } else {
            gathered.files.push((path.clone(), index_entry(entry, verified)));
        }
    }
    Ok(gathered)
}

/// Joins a worker and continues its panic: without the entries of that worker the result would be incomplete.
fn join_worker<T>(handle: std::thread::ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn run_worker(
    zip: &ZipArchive,
    growth: &WriteProgress,
    next: &AtomicUsize,
    first_fault: &Mutex<Option<(usize, BundleReadError)>>,
    progress: &SealProgress,
) -> Vec<(usize, VerifiedZipEntry)> {
    let mut reader = ZipEntryReader::new();
    let mut verified_entries = Vec::new();
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let Some(entry) = zip.entries.get(index) else {
            return verified_entries;
        };
        if growth.wait_for_len(zip.space_end(index)).is_none() {
            return verified_entries; // the copy failed, and its error is returned
        }
        match reader.verify(zip, entry, &mut |_| Ok(())) {
            Ok(verified) => {
                if !entry.is_folder {
                    progress.add(entry.size);
                }
                verified_entries.push((index, verified));
            }
            Err(error) => {
                let mut first = first_fault.lock();
                if first.as_ref().is_none_or(|(earliest, _)| index < *earliest) {
                    *first = Some((index, error));
                }
                next.store(zip.entries.len(), Ordering::Relaxed);
                return verified_entries;
            }
        }
    }
}

fn index_entry(entry: &ZipEntry, verified: &VerifiedZipEntry) -> IndexEntry {
    IndexEntry {
        compression: match entry.method {
            CompressionMethod::Stored => EntryCompression::Stored,
            CompressionMethod::Deflate => EntryCompression::Deflate,
        },
        offset: verified.offset,
        compressed_len: entry.compressed_len,
        len: entry.size,
        crc: entry.crc,
        content: verified.content,
        compressed_crc: verified.compressed_crc,
        last_block_bit: verified.last_block_bit,
        spare_bits: verified.spare_bits,
        modified: 0,
    }
}

/// Computes the SHA-256 and the length of a file while it may still grow.
pub(super) fn digest_file(file: &File, growth: &WriteProgress) -> io::Result<(Digest, u64)> {
    let mut hasher = Sha256Hasher::new();
    let mut buffer = vec![0; 256 * 1024];
    let mut offset = 0;
    loop {
        if growth.wait_for_len(offset + buffer.len() as u64).is_none() {
            return Err(io::Error::other("the archive could not be copied"));
        }
        let n = file.read_at(&mut buffer, offset)?;
        if n == 0 {
            return Ok((hasher.finalize_reset(), offset));
        }
        hasher.update(&buffer[..n]);
        offset += n as u64;
    }
}
