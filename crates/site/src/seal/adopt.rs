//! Verifies a ZIP in place, all its members in parallel, and decides whether it can become the image as it is.

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

/// Whether a ZIP can become the image as it is: no name has the mark of our own images, and stored text over 1 KiB
/// makes up less than 5 % of the members.
pub(super) fn can_adopt(zip: &ZipArchive) -> bool {
    // The reader of images obeys this extra field, which the reader of received ZIPs ignores. As an image this ZIP
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
    stored.saturating_mul(20) < zip.directory_start()
}

/// The result of verifying all members.
pub(super) struct VerifiedZip {
    pub(super) gathered: GatheredEntries,
    /// The SHA-256 and the length of the archive.
    pub(super) archive: (Digest, u64),
    /// Whether every DEFLATE stream ends exactly at its compressed size.
    pub(super) exact: bool,
}

/// A received archive whose members are copied into the image while that is verified.
pub(super) struct ReceivedZip<'a> {
    pub(super) from: &'a File,
    pub(super) to: &'a File,
    /// The offset at which the members end.
    pub(super) end: u64,
}

/// Verifies every member. With `received`, its bytes are copied meanwhile and, if `effort` is durable, synced to disk.
pub(super) fn verify_members(
    zip: &ZipArchive,
    effort: &SealOptions,
    meter: &SealProgress,
    received: Option<&ReceivedZip<'_>>,
) -> Result<VerifiedZip, BundleReadError> {
    let next = AtomicUsize::new(0);
    // The fault of the first faulty member by position, so that the result does not depend on which thread is faster.
    let fault: Mutex<Option<(usize, BundleReadError)>> = Mutex::new(None);
    let growth = if received.is_some() { WriteProgress::growing(0) } else { WriteProgress::complete() };
    let (proofs, archive, copied) = std::thread::scope(|scope| {
        let copy = received.map(|received| {
            let growth = &growth;
            scope.spawn(move || {
                growing_copy::copy_growing(received.from, received.to, received.end, growth)?;
                if effort.durable { received.to.sync_all() } else { Ok(()) }
            })
        });
        let archive = scope.spawn(|| digest_file(zip.file(), &growth));
        let workers: Vec<_> = (0..effort.threads.max(1))
            .map(|_| scope.spawn(|| run_worker(zip, &growth, &next, &fault, meter)))
            .collect();
        let mut proofs: Vec<(usize, VerifiedZipEntry)> = Vec::with_capacity(zip.entries.len());
        for worker in workers {
            proofs.extend(join_worker(worker));
        }
        (proofs, join_worker(archive), copy.map(join_worker))
    });
    copied.transpose().map_err(BundleReadError::Sink)?;
    if let Some((_, error)) = fault.into_inner() {
        return Err(error);
    }
    let archive = archive.map_err(|source| BundleReadError::Io { path: zip.path().to_owned(), source })?;

    let mut proofs = proofs;
    proofs.sort_unstable_by_key(|(at, _)| *at);
    let proofs: Vec<VerifiedZipEntry> = proofs.into_iter().map(|(_, proof)| proof).collect();
    let exact = proofs.iter().all(|proof| proof.ends_at_declared_len);
    Ok(VerifiedZip { gathered: gather_entries(zip, &proofs)?, archive, exact })
}

/// Verifies every member, one after another. `pace` is called with the number of bytes of content that were read; it
/// may block to limit the speed.
pub(super) fn verify_members_slowly(
    zip: &ZipArchive,
    pace: &mut dyn FnMut(u64),
) -> Result<GatheredEntries, BundleReadError> {
    let mut reader = ZipEntryReader::new();
    let mut proofs = Vec::with_capacity(zip.entries.len());
    for member in &zip.entries {
        let mut sink = |piece: &[u8]| {
            pace(piece.len() as u64);
            Ok(())
        };
        proofs.push(reader.verify(zip, member, &mut sink)?);
    }
    gather_entries(zip, &proofs)
}

/// Collects the files and folders of a ZIP from the verified members.
fn gather_entries(zip: &ZipArchive, proofs: &[VerifiedZipEntry]) -> Result<GatheredEntries, BundleReadError> {
    zip.check_gaps(proofs.iter().map(|proof| proof.end))?;
    let mut gathered = GatheredEntries { files: Vec::new(), folders: Vec::new() };
    for (member, proof) in zip.entries.iter().zip(proofs) {
        let Some(path) = &member.path else { continue };
        if member.is_folder {
            gathered.folders.push(path.clone());
        } else {
            gathered.files.push((path.clone(), entry(member, proof)));
        }
    }
    Ok(gathered)
}

/// Joins a worker and passes its panic on: without its members the result would be incomplete.
fn join_worker<T>(handle: std::thread::ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn run_worker(
    zip: &ZipArchive,
    growth: &WriteProgress,
    next: &AtomicUsize,
    fault: &Mutex<Option<(usize, BundleReadError)>>,
    meter: &SealProgress,
) -> Vec<(usize, VerifiedZipEntry)> {
    let mut reader = ZipEntryReader::new();
    let mut proofs = Vec::new();
    loop {
        let at = next.fetch_add(1, Ordering::Relaxed);
        let Some(member) = zip.entries.get(at) else {
            return proofs;
        };
        if growth.wait_for(zip.space_end(at)).is_none() {
            return proofs; // the copy failed, and that is the error
        }
        match reader.verify(zip, member, &mut |_| Ok(())) {
            Ok(proof) => {
                meter.add(member.size);
                proofs.push((at, proof));
            }
            Err(error) => {
                let mut first = fault.lock();
                if first.as_ref().is_none_or(|(known, _)| at < *known) {
                    *first = Some((at, error));
                }
                next.store(zip.entries.len(), Ordering::Relaxed);
                return proofs;
            }
        }
    }
}

fn entry(member: &ZipEntry, proof: &VerifiedZipEntry) -> IndexEntry {
    IndexEntry {
        coding: match member.method {
            CompressionMethod::Stored => EntryCompression::Stored,
            CompressionMethod::Deflate => EntryCompression::Deflate,
        },
        offset: proof.offset,
        coded_len: member.compressed_len,
        len: member.size,
        crc: member.crc,
        content: proof.content,
        coded_crc: proof.compressed_crc,
        last_header_bit: proof.last_header_bit,
        spare_bits: proof.spare_bits,
        modified: 0,
    }
}

/// Computes the SHA-256 and the length of a file while it may still grow.
pub(super) fn digest_file(file: &File, growth: &WriteProgress) -> io::Result<(Digest, u64)> {
    let mut hasher = Sha256Hasher::new();
    let mut buffer = vec![0; 256 * 1024];
    let mut at = 0;
    loop {
        if growth.wait_for(at + buffer.len() as u64).is_none() {
            return Err(io::Error::other("it could not be copied"));
        }
        let n = file.read_at(&mut buffer, at)?;
        if n == 0 {
            return Ok((hasher.take(), at));
        }
        hasher.update(&buffer[..n]);
        at += n as u64;
    }
}
