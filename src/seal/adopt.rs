//! Proving a ZIP where it lies, all its members in parallel, and deciding whether it can be the image as it is.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::bundle::ReadError;
use crate::bundle::zip::{Member, Method, Zip};
use crate::bundle::zip_member::{MemberReader, Proof};
use crate::model::digest::{Digest, Hasher};
use crate::site::index::{Coding, Entry};
use crate::site::types::is_text;

use super::{Effort, Gathered, Meter};

/// Text below this size may lie uncompressed.
const SMALL_TEXT: u64 = 1024;

/// Whether a ZIP is worth keeping as it is: stored text over 1 KiB is under 5 % of it.
pub(super) fn fits(zip: &Zip) -> bool {
    let stored: u64 = zip
        .members
        .iter()
        .filter(|m| m.method == Method::Stored && m.size > SMALL_TEXT)
        .filter(|m| m.path.as_ref().is_some_and(|path| is_text(path.as_bytes())))
        .map(|m| m.coded)
        .sum();
    stored.saturating_mul(20) < zip.directory_start()
}

/// What proving all members gave.
pub(super) struct Proved {
    pub(super) gathered: Gathered,
    /// SHA-256 and length of the archive.
    pub(super) archive: (Digest, u64),
    /// Whether every DEFLATE stream ends exactly at its compressed size.
    pub(super) exact: bool,
}

/// Reads every member to its end. `durable` is synced to disk meanwhile.
pub(super) fn prove(zip: &Zip, effort: &Effort, meter: &Meter, durable: Option<&File>) -> Result<Proved, ReadError> {
    let next = AtomicUsize::new(0);
    // The first fault by position, so that the verdict does not depend on which thread is faster.
    let fault: Mutex<Option<(usize, ReadError)>> = Mutex::new(None);
    let (proofs, archive, synced) = std::thread::scope(|scope| {
        let sync = durable.filter(|_| effort.durable).map(|file| scope.spawn(|| file.sync_all()));
        let archive = scope.spawn(|| digest(zip.file()));
        let workers: Vec<_> =
            (0..effort.threads.max(1)).map(|_| scope.spawn(|| work(zip, &next, &fault, meter))).collect();
        let mut proofs: Vec<(usize, Proof)> = Vec::with_capacity(zip.members.len());
        for worker in workers {
            proofs.extend(join(worker));
        }
        (proofs, join(archive), sync.map(join))
    });
    if let Some((_, error)) = fault.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        return Err(error);
    }
    synced.transpose().map_err(ReadError::Sink)?;
    let archive = archive.map_err(|source| ReadError::Io { path: zip.path().to_owned(), source })?;

    let mut proofs = proofs;
    proofs.sort_unstable_by_key(|(at, _)| *at);
    zip.check_ends(proofs.iter().map(|(_, proof)| proof.end))?;
    let exact = proofs.iter().all(|(_, proof)| proof.exact);
    let mut gathered = Gathered { files: Vec::new(), folders: Vec::new() };
    for (member, (_, proof)) in zip.members.iter().zip(&proofs) {
        let Some(path) = &member.path else { continue };
        if member.folder {
            gathered.folders.push(path.clone());
        } else {
            gathered.files.push((path.clone(), entry(member, proof)));
        }
    }
    Ok(Proved { gathered, archive, exact })
}

/// A worker that panicked takes the whole with it: its members would be missing otherwise.
fn join<T>(handle: std::thread::ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn work(
    zip: &Zip,
    next: &AtomicUsize,
    fault: &Mutex<Option<(usize, ReadError)>>,
    meter: &Meter,
) -> Vec<(usize, Proof)> {
    let mut reader = MemberReader::new();
    let mut proofs = Vec::new();
    loop {
        let at = next.fetch_add(1, Ordering::Relaxed);
        let Some(member) = zip.members.get(at) else {
            return proofs;
        };
        match reader.prove(zip, member, &mut |_| Ok(())) {
            Ok(proof) => {
                meter.add(member.size);
                proofs.push((at, proof));
            }
            Err(error) => {
                let mut first = fault.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if first.as_ref().is_none_or(|(known, _)| at < *known) {
                    *first = Some((at, error));
                }
                next.store(zip.members.len(), Ordering::Relaxed);
                return proofs;
            }
        }
    }
}

fn entry(member: &Member, proof: &Proof) -> Entry {
    let mut coded = [0; 8];
    coded.copy_from_slice(&proof.coded.0[..8]);
    Entry {
        coding: match member.method {
            Method::Stored => Coding::Stored,
            Method::Deflate => Coding::Deflate,
        },
        offset: proof.offset,
        coded_len: member.coded,
        len: member.size,
        crc: member.crc,
        content: proof.content,
        coded,
        last_header_bit: proof.last_header_bit,
        spare_bits: proof.spare_bits,
        modified: 0,
    }
}

/// SHA-256 and length of a whole file.
pub(super) fn digest(file: &File) -> io::Result<(Digest, u64)> {
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; 256 * 1024];
    let mut at = 0;
    loop {
        let n = file.read_at(&mut buffer, at)?;
        if n == 0 {
            return Ok((hasher.take(), at));
        }
        hasher.update(&buffer[..n]);
        at += n as u64;
    }
}

/// Copies `from`, whole, to the empty file `to`: shared extents or in the kernel where the file system can, else by hand.
pub(super) fn copy(from: &File, to: &File) -> io::Result<()> {
    use std::io::{Read, Seek, Write};
    let (mut from, mut to) = (from, to);
    from.rewind()?;
    let mut left = from.metadata()?.len();
    while left > 0 {
        match rustix::fs::copy_file_range(from, None, to, None, usize::try_from(left.min(1 << 30)).unwrap_or(1 << 30)) {
            // Other file systems, old kernels, a file cut meanwhile: go on by hand from where both stand.
            Ok(0) | Err(_) => break,
            Ok(n) => left = left.saturating_sub(n as u64),
        }
    }
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let n = from.read(&mut buffer)?;
        if n == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..n])?;
    }
}
