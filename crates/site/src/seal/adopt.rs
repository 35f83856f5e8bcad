//! Proving a ZIP where it lies, all its members in parallel, and deciding whether it can be the image as it is.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use docwharf_base::growth::Growth;
use crate::bundle::ReadError;
use crate::bundle::zip::{Member, Method, Zip};
use crate::bundle::zip_member::{MemberReader, Proof};
use docwharf_base::model::digest::{Digest, Hasher};
use crate::index::{Coding, Entry};
use crate::types::is_text;

use super::{Effort, Gathered, Meter, copying};

/// Text below this size may lie uncompressed.
const SMALL_TEXT: u64 = 1024;

/// Whether a ZIP can be kept as it is, and is worth it: stored text over 1 KiB is under 5 % of it.
pub(super) fn fits(zip: &Zip) -> bool {
    // As an image it would be read by this field, which means nothing in what was received: its names would be others.
    if zip.members.iter().any(|m| m.is_marked) {
        return false;
    }
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

/// A received archive whose members are still to be copied into the file that is proved.
pub(super) struct Received<'a> {
    pub(super) from: &'a File,
    pub(super) to: &'a File,
    /// Where the members end.
    pub(super) end: u64,
}

/// Reads every member to its end. With `received`, its bytes are copied meanwhile and made durable.
pub(super) fn prove(
    zip: &Zip,
    effort: &Effort,
    meter: &Meter,
    received: Option<&Received<'_>>,
) -> Result<Proved, ReadError> {
    let next = AtomicUsize::new(0);
    // The first fault by position, so that the verdict does not depend on which thread is faster.
    let fault: Mutex<Option<(usize, ReadError)>> = Mutex::new(None);
    let growth = if received.is_some() { Growth::begun(0) } else { Growth::done() };
    let (proofs, archive, copied) = std::thread::scope(|scope| {
        let copy = received.map(|received| {
            let growth = &growth;
            scope.spawn(move || {
                copying::all(received.from, received.to, received.end, growth)?;
                if effort.durable { received.to.sync_all() } else { Ok(()) }
            })
        });
        let archive = scope.spawn(|| digest(zip.file(), &growth));
        let workers: Vec<_> =
            (0..effort.threads.max(1)).map(|_| scope.spawn(|| work(zip, &growth, &next, &fault, meter))).collect();
        let mut proofs: Vec<(usize, Proof)> = Vec::with_capacity(zip.members.len());
        for worker in workers {
            proofs.extend(join(worker));
        }
        (proofs, join(archive), copy.map(join))
    });
    copied.transpose().map_err(ReadError::Sink)?;
    if let Some((_, error)) = fault.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        return Err(error);
    }
    let archive = archive.map_err(|source| ReadError::Io { path: zip.path().to_owned(), source })?;

    let mut proofs = proofs;
    proofs.sort_unstable_by_key(|(at, _)| *at);
    let proofs: Vec<Proof> = proofs.into_iter().map(|(_, proof)| proof).collect();
    let exact = proofs.iter().all(|proof| proof.exact);
    Ok(Proved { gathered: gather(zip, &proofs)?, archive, exact })
}

/// Reads every member to its end, one after another; `pace` is told of the bytes of content that were read, and takes its
/// time.
pub(super) fn prove_slowly(zip: &Zip, pace: &mut dyn FnMut(u64)) -> Result<Gathered, ReadError> {
    let mut reader = MemberReader::new();
    let mut proofs = Vec::with_capacity(zip.members.len());
    for member in &zip.members {
        let mut sink = |piece: &[u8]| {
            pace(piece.len() as u64);
            Ok(())
        };
        proofs.push(reader.prove(zip, member, &mut sink)?);
    }
    gather(zip, &proofs)
}

/// What the members are, given a proof of each.
fn gather(zip: &Zip, proofs: &[Proof]) -> Result<Gathered, ReadError> {
    zip.check_ends(proofs.iter().map(|proof| proof.end))?;
    let mut gathered = Gathered { files: Vec::new(), folders: Vec::new() };
    for (member, proof) in zip.members.iter().zip(proofs) {
        let Some(path) = &member.path else { continue };
        if member.folder {
            gathered.folders.push(path.clone());
        } else {
            gathered.files.push((path.clone(), entry(member, proof)));
        }
    }
    Ok(gathered)
}

/// A worker that panicked takes the whole with it: its members would be missing otherwise.
fn join<T>(handle: std::thread::ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn work(
    zip: &Zip,
    growth: &Growth,
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
        if growth.wait_for(zip.room_of(at)).is_none() {
            return proofs; // the copy failed, and that is the error
        }
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
        coded_crc: proof.coded_crc,
        last_header_bit: proof.last_header_bit,
        spare_bits: proof.spare_bits,
        modified: 0,
    }
}

/// SHA-256 and length of a whole file.
pub(super) fn digest(file: &File, growth: &Growth) -> io::Result<(Digest, u64)> {
    let mut hasher = Hasher::new();
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
