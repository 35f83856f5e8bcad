//! Maps sealed images, indexes and files derived from them into memory, and returns freed memory to the system.
//!
//! Three kinds of calls need `unsafe` here: memory mappings, the SIGBUS handler, and glibc's `mallopt` and
//! `malloc_trim`; and [`MappedFile`] has an unsafe marker trait. Elsewhere in the workspace there are two blocks: in
//! `memfd_arena.rs`, whose memfd is written while it is mapped, and for socket options in
//! `crates/base/src/tcp_options.rs`.
//!
//! These rules make a mapping sound. The file is mapped read-only, its length is known, and it is never truncated or
//! written again: its permissions allow no writing, and docwharf removes a file only by unlink, because a mapping
//! outlives the name of its file. An index follows the same rules and is replaced by rename only. [`SealedFile`] is the
//! type of files that follow these rules; no other file is mapped. Where the rules cannot be guaranteed (network and
//! user-space file systems, removable media), the file is copied into a memfd (`memfd_create(2)`), which no other
//! process can open.
//!
//! If the disk loses a page of a mapped file, the kernel sends SIGBUS. The handler writes the version's id to a file
//! that was opened before, writes one line to stderr and exits with 8; the next start verifies that version in full.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::{Deref, Range};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd};
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use memmap2::{Mmap, MmapOptions};
use rustix::fs::{FlockOperation, MemfdFlags, flock, fstatfs, memfd_create};
use rustix::io::Errno;
use stable_deref_trait::StableDeref;

use docwharf_base::directory::Directory;
use docwharf_base::locks::Mutex;
use docwharf_base::mapped_files::MappingGuard;
use docwharf_base::model::version::VersionId;

/// The number of mappings that the SIGBUS handler can attribute to a version. Mappings of replaced versions live as
/// long as a response is still being sent from them, so there may be several. A mapping beyond this number works, but a
/// SIGBUS in it takes the default action.
const MAX_REGISTERED_MAPPINGS: usize = 64;

/// The maximum freed memory that each arena of the C library retains at its end, in bytes.
#[cfg(target_env = "gnu")]
const MAX_FREED_BYTES: libc::c_int = 1 << 20;
/// The size above which a block has a separate mapping, which is unmapped when the block is freed, in bytes. Such a
/// block costs a page fault for each page.
#[cfg(target_env = "gnu")]
const MMAP_THRESHOLD_BYTES: libc::c_int = 4 << 20;
/// The number of arenas in addition to one for each processor, for the threads that do not serve.
#[cfg(target_env = "gnu")]
const EXTRA_ARENAS: libc::c_int = 2;

/// The registration of one mapping: its address range and the id of its version. The SIGBUS handler reads it, so every
/// field is an atomic.
struct MappingSlot {
    /// The address of the first byte; 0 in an unused slot.
    start: AtomicUsize,
    /// The address after the last byte.
    end: AtomicUsize,
    /// The version id in big-endian words.
    id: [AtomicU64; 4],
}

#[allow(clippy::declare_interior_mutable_const)] // the usual way to fill an array of atomics
const UNUSED_SLOT: MappingSlot =
    MappingSlot { start: AtomicUsize::new(0), end: AtomicUsize::new(0), id: [const { AtomicU64::new(0) }; 4] };
static REGISTERED_MAPPINGS: [MappingSlot; MAX_REGISTERED_MAPPINGS] = [UNUSED_SLOT; MAX_REGISTERED_MAPPINGS];
/// The id that is registered for a mapping of a derived file. No content has this digest.
const DERIVED_FILE_ID: [u8; 32] = [0; 32];
static REGISTRATION_LOCK: Mutex<()> = Mutex::new(());
/// The descriptor to which the handler writes the version's id; -1 without a store.
static SUSPECT_FILE: AtomicI32 = AtomicI32::new(-1);

/// An open file that follows the rules of this module: it is not written or truncated any more. Only sealing and a
/// store create one ([`SealedFile::open`], [`SealedFile::open_derived`]).
///
/// It dereferences to the file, so that the file can be read and locked, and its permissions can be set.
#[derive(Debug)]
pub struct SealedFile {
    file: File,
    /// The version that is marked as damaged if the disk loses a page of the file; `None` for a derived file.
    id: Option<VersionId>,
}

impl SealedFile {
    /// Opens an image or an index of the version `id`, which is at `path` below `directory`.
    ///
    /// Only a store may call this, for one of its own files. The store keeps this contract: it writes an image or an
    /// index completely, then renames it to its final name, replaces it by rename, and removes it by unlink. Otherwise
    /// the content of a mapping could change while it is read, which is undefined behaviour.
    pub fn open(directory: &Directory, path: impl AsRef<Path>, id: VersionId) -> io::Result<SealedFile> {
        Ok(SealedFile { file: directory.open_for_reading(path)?, id: Some(id) })
    }

    /// Opens a file that was computed from a version, under the contract of [`SealedFile::open`].
    pub fn open_derived(directory: &Directory, path: impl AsRef<Path>) -> io::Result<SealedFile> {
        Ok(SealedFile { file: directory.open_for_reading(path)?, id: None })
    }

    /// Wraps the image of the version `id` that the process that started this one has opened and passed on. That
    /// process got it from a [`SealedFile`], which keeps the contract of [`SealedFile::open`].
    pub fn from_parent_process(image: File, id: VersionId) -> SealedFile {
        SealedFile { file: image, id: Some(id) }
    }

    /// Wraps a complete image. Sealing keeps the contract of [`SealedFile::open`]: it writes nothing more, and
    /// no other code has the file open for writing.
    pub(crate) fn from_sealing(image: File, id: VersionId) -> SealedFile {
        SealedFile { file: image, id: Some(id) }
    }

    /// Returns the file for reading. The caller must keep the contract of [`SealedFile::open`].
    pub fn into_file(self) -> File {
        self.file
    }
}

impl Deref for SealedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl AsFd for SealedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A mapping and its registrations, which end when it is dropped.
struct RegisteredMapping {
    map: Mmap,
    slot: Option<usize>,
    _guard: MappingGuard,
}

/// An image in memory, and a lease on its file: a shared `flock`, because of which pruning skips the version. The bytes
/// are valid without the lease. A holder of a `MappedImage` keeps the version in the store. A response in progress
/// holds the bytes only, so a version that is used by such responses alone is removed like any other.
#[derive(Debug)]
pub struct MappedImage {
    bytes: Bytes,
    /// `None` for an image that has no file.
    lease: Option<File>,
}

impl Drop for MappedImage {
    fn drop(&mut self) {
        if let Some(lease) = &self.lease {
            // The mapping keeps the open file description, and with it the lock: closing the descriptor would not
            // release it.
            let _ = flock(lease, FlockOperation::Unlock);
        }
    }
}

impl From<Vec<u8>> for MappedImage {
    /// Creates an image in memory. It has no file to lease.
    fn from(bytes: Vec<u8>) -> MappedImage {
        MappedImage { bytes: bytes.into(), lease: None }
    }
}

impl Deref for MappedImage {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.bytes
    }
}

impl AsRef<[u8]> for RegisteredMapping {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

impl Drop for RegisteredMapping {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            REGISTERED_MAPPINGS[slot].end.store(0, Ordering::Release);
            REGISTERED_MAPPINGS[slot].start.store(0, Ordering::Release);
        }
    }
}

/// Maps an image for as long as its bytes are held. If another process has locked the file, the image is mapped without
/// a lease.
pub fn map_image(image: SealedFile) -> io::Result<MappedImage> {
    match flock(&image, FlockOperation::NonBlockingLockShared) {
        Err(errno) if errno != Errno::WOULDBLOCK => return Err(errno.into()),
        _ => {}
    }
    let bytes = map_whole_file(&image)?;
    Ok(MappedImage { bytes, lease: Some(image.file) })
}

/// Maps a file that was computed from a version. If the disk loses a page of it, no version is marked as damaged; the
/// file is read in full before it is mapped at the next start.
pub fn map_derived(derived: &SealedFile) -> io::Result<Bytes> {
    map_whole_file(derived)
}

/// The content of a derived file in memory, for libraries that keep references into it. Its address stays the same for
/// as long as it is held.
#[derive(Debug, Clone)]
pub struct MappedFile(Bytes);

impl MappedFile {
    /// Maps a file like [`map_derived`].
    pub fn new(derived: &SealedFile) -> io::Result<MappedFile> {
        map_derived(derived).map(MappedFile)
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

// SAFETY: the bytes are in a mapping, which moving this handle does not move. No method replaces or changes them, and
// a clone holds the same mapping.
unsafe impl StableDeref for MappedFile {}

fn map_whole_file(sealed: &SealedFile) -> io::Result<Bytes> {
    if sealed.metadata()?.len() == 0 {
        return Ok(Bytes::new());
    }
    map_file(sealed, &MmapOptions::new())
}

/// Maps an index and loads all its pages, because it is read from start to end next. If it is not a regular file, or
/// empty, it is read instead.
pub fn map_index(index: &SealedFile) -> io::Result<Bytes> {
    let metadata = index.metadata()?;
    if !metadata.is_file() || metadata.len() == 0 {
        let mut bytes = Vec::new();
        (&index.file).read_to_end(&mut bytes)?;
        return Ok(bytes.into());
    }
    map_file(index, MmapOptions::new().populate())
}

fn map_file(sealed: &SealedFile, options: &MmapOptions) -> io::Result<Bytes> {
    let copy = if may_change_remotely(sealed)? { Some(copy_to_memory_file(sealed)?) } else { None };
    let file = copy.as_ref().unwrap_or(sealed);
    let guard = MappingGuard::register(&file.metadata()?);
    // SAFETY: the rules at the top of this module. A `SealedFile` keeps them, and no other process knows the copy.
    let map = unsafe { options.map(file)? };
    let slot = register_mapping(map.as_ptr_range(), sealed.id);
    Ok(Bytes::from_owner(RegisteredMapping { map, slot, _guard: guard }))
}

/// Whether the content of the file may change although no process on this machine writes to it: it is on a network or
/// user-space file system, or on removable media.
fn may_change_remotely(file: &File) -> io::Result<bool> {
    const NFS: i64 = 0x6969;
    const SMB: i64 = 0x517b;
    const SMB2: i64 = 0xfe53_4d42;
    const CIFS: i64 = 0xff53_4d42;
    const FUSE: i64 = 0x6573_5546;
    const P9: i64 = 0x0102_1997;
    const CEPH: i64 = 0x00c3_6400;
    // The file systems of USB sticks and memory cards.
    const FAT: i64 = 0x4d44;
    const EXFAT: i64 = 0x2011_bab0;
    // The field's type differs between architectures.
    #[allow(clippy::unnecessary_cast, clippy::cast_lossless)]
    let kind = fstatfs(file)?.f_type as i64 & 0xffff_ffff;
    Ok([NFS, SMB, SMB2, CIFS, FUSE, P9, CEPH, FAT, EXFAT].contains(&kind) || on_removable_media(file)?)
}

/// Whether the kernel reports the disk of the file's file system as removable. Virtual file systems have no disk and
/// count as not removable.
fn on_removable_media(file: &File) -> io::Result<bool> {
    let device = std::os::unix::fs::MetadataExt::dev(&file.metadata()?);
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let disk = format!("/sys/dev/block/{major}:{minor}");
    // The directory of a partition is inside that of its disk.
    let is_set =
        |attribute: &str| std::fs::read_to_string(format!("{disk}/{attribute}")).is_ok_and(|text| text.trim() == "1");
    Ok(is_set("removable") || is_set("../removable"))
}

fn copy_to_memory_file(file: &File) -> io::Result<File> {
    let mut copy = File::from(memfd_create("docwharf-image", MemfdFlags::CLOEXEC)?);
    let mut from = file.try_clone()?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = from.read(&mut buffer)?;
        if n == 0 {
            return Ok(copy);
        }
        copy.write_all(&buffer[..n])?;
    }
}

fn register_mapping(range: Range<*const u8>, id: Option<VersionId>) -> Option<usize> {
    install_bus_error_handler();
    let _guard = REGISTRATION_LOCK.lock();
    let free = REGISTERED_MAPPINGS.iter().position(|slot| slot.start.load(Ordering::Acquire) == 0)?;
    let slot = &REGISTERED_MAPPINGS[free];
    for (word, bytes) in slot.id.iter().zip(id.map_or(DERIVED_FILE_ID, |id| id.0.0).chunks_exact(8)) {
        let mut value = [0; 8];
        value.copy_from_slice(bytes);
        word.store(u64::from_be_bytes(value), Ordering::Relaxed);
    }
    slot.start.store(range.start as usize, Ordering::Release);
    slot.end.store(range.end as usize, Ordering::Release);
    Some(free)
}

/// Sets the file to which the handler writes the id of a damaged version. A signal handler must not open files, so the
/// file is opened now; `file` stays open until the process ends.
pub fn set_suspect_file(file: File) {
    let previous = SUSPECT_FILE.swap(file.into_raw_fd(), Ordering::AcqRel);
    debug_assert_eq!(previous, -1, "a process has only one store");
}

/// Limits the freed memory that glibc retains at the end of each of its arenas, and the number of arenas. By default
/// glibc raises the first limit with the size of the largest block that was freed, up to 64 MiB for each arena, and
/// creates up to 8 arenas for each processor; [`return_freed_memory`] trims the end of the first arena only. With
/// another C library this function does nothing. Call it before the first thread is started.
pub fn limit_freed_memory() {
    #[cfg(target_env = "gnu")]
    {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let arenas = libc::c_int::try_from(processors).unwrap_or(libc::c_int::MAX).saturating_add(EXTRA_ARENAS);
        // SAFETY: `mallopt` takes no pointer, and may be called by any thread at any time.
        unsafe {
            // Blocks up to that size are allocated in an arena, whose pages are reused.
            libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES);
            libc::mallopt(libc::M_TRIM_THRESHOLD, MAX_FREED_BYTES);
            libc::mallopt(libc::M_ARENA_MAX, arenas);
        }
    }
}

/// Returns freed memory to the system (`malloc_trim(3)`). It takes milliseconds, during which threads that allocate
/// wait. With another C library than glibc it does nothing.
pub fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` takes no pointer, and may be called by any thread at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

fn install_bus_error_handler() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: `on_bus_error` only reads atomics and calls write, signal and _exit, which are async-signal-safe
        // (POSIX.1-2017, 2.4.3); the struct is zeroed, which is a valid empty mask.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_bus_error as extern "C" fn(_, _, _) as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
        }
    });
}

extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo_t for a handler installed with SA_SIGINFO.
    let address = unsafe { (*info).si_addr() } as usize;
    let registered = REGISTERED_MAPPINGS
        .iter()
        .find(|slot| slot.start.load(Ordering::Acquire) <= address && address < slot.end.load(Ordering::Acquire));
    let Some(slot) = registered else {
        // The address is in no registered mapping: restore the default action, which ends the process when the access
        // is repeated.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    };
    if slot.id.iter().all(|word| word.load(Ordering::Relaxed) == 0) {
        write_raw(
            std::io::stderr().as_raw_fd(),
            b"docwharf: cannot read a file that was computed from a version: the disk lost part of it; it is written again at the next start\n",
        );
        // SAFETY: _exit is async-signal-safe.
        unsafe { libc::_exit(8) };
    }
    let mut id = [0u8; 65];
    for (word, digits) in slot.id.iter().zip(id.chunks_exact_mut(16)) {
        let value = word.load(Ordering::Relaxed);
        for (i, digit) in digits.iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(value >> (60 - 4 * i) & 15) as usize];
        }
    }
    id[64] = b'\n';
    let suspect = SUSPECT_FILE.load(Ordering::Acquire);
    if suspect >= 0 {
        write_raw(suspect, &id);
    }
    write_raw(
        std::io::stderr().as_raw_fd(),
        b"docwharf: cannot read the sealed version: the disk lost part of its file; it is verified at the next start\n",
    );
    // SAFETY: _exit is async-signal-safe.
    unsafe { libc::_exit(8) };
}

fn write_raw(descriptor: i32, bytes: &[u8]) {
    // SAFETY: the pointer and length are those of a live slice; write is async-signal-safe.
    unsafe { libc::write(descriptor, bytes.as_ptr().cast(), bytes.len()) };
}

#[cfg(test)]
mod tests {
    use std::io::Seek;

    use super::*;
    use docwharf_base::model::digest::Digest;

    fn id() -> VersionId {
        VersionId(Digest::compute(b"version"))
    }

    fn temporary_file(content: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        file
    }

    fn sealed(file: &tempfile::NamedTempFile) -> SealedFile {
        SealedFile::from_sealing(file.reopen().unwrap(), id())
    }

    #[test]
    fn mapped_image_holds_its_lock_until_dropped_and_its_slices_hold_none() {
        let file = temporary_file(b"content");
        let exclusive = file.reopen().unwrap();
        let lock_exclusively = || flock(&exclusive, FlockOperation::NonBlockingLockExclusive);
        let image = map_image(sealed(&file)).unwrap();
        assert_eq!((lock_exclusively(), &image[..]), (Err(Errno::WOULDBLOCK), &b"content"[..]));
        let bytes = image.slice(3..);
        drop(image);
        assert_eq!((lock_exclusively(), &bytes[..]), (Ok(()), &b"tent"[..]));
        // A lock does not prevent reading.
        assert_eq!(&map_image(sealed(&file)).unwrap()[..], b"content");
    }

    /// Returns the id that the SIGBUS handler would report for this address.
    fn registered_id(address: *const u8) -> Option<Vec<u8>> {
        let address = address as usize;
        let slot = REGISTERED_MAPPINGS
            .iter()
            .find(|slot| (slot.start.load(Ordering::Acquire)..slot.end.load(Ordering::Acquire)).contains(&address))?;
        Some(slot.id.iter().flat_map(|word| word.load(Ordering::Relaxed).to_be_bytes()).collect())
    }

    #[test]
    fn a_mapping_is_registered_under_its_version_as_long_as_its_bytes_are_held() {
        let file = temporary_file(b"content");
        // More mappings than there are slots, one after another, as versions are replaced.
        for n in 0..2 * MAX_REGISTERED_MAPPINGS {
            let image = map_image(sealed(&file)).unwrap();
            let (first, last) = (image.as_ptr(), &raw const image[image.len() - 1]);
            for address in [first, last] {
                assert_eq!(registered_id(address), Some(id().0.0.to_vec()), "{n}");
            }
            let index = map_index(&sealed(&file)).unwrap();
            assert_eq!(registered_id(index.as_ptr()), Some(id().0.0.to_vec()), "{n}");
            let derived = map_derived(&SealedFile { id: None, ..sealed(&file) }).unwrap();
            assert_eq!(registered_id(derived.as_ptr()), Some(DERIVED_FILE_ID.to_vec()), "{n}");
            let bytes = image.slice(3..);
            drop(image);
            assert_eq!(registered_id(bytes.as_ptr()), Some(id().0.0.to_vec()), "{n}: a response still holds the bytes");
        }
        let free_slots = REGISTERED_MAPPINGS.iter().filter(|slot| slot.start.load(Ordering::Acquire) == 0).count();
        assert!(free_slots > MAX_REGISTERED_MAPPINGS / 2, "other tests hold a few mappings: {free_slots} are free");
    }

    #[test]
    fn mapped_file_has_exactly_the_content_of_the_file_even_if_empty() {
        let large: Vec<u8> = (0..(1 << 20) + 7).map(|n: u32| (n % 251) as u8).collect();
        for content in [&b""[..], b"x", &large] {
            let file = temporary_file(content);
            assert!(map_image(sealed(&file)).unwrap()[..] == *content);
            assert!(map_derived(&SealedFile { id: None, ..sealed(&file) }).unwrap() == content);
            assert!(map_index(&sealed(&file)).unwrap() == content);
            let mut copy = copy_to_memory_file(&file.reopen().unwrap()).unwrap();
            copy.rewind().unwrap();
            let mut read = Vec::new();
            copy.read_to_end(&mut read).unwrap();
            assert!(read == content && MappedImage::from(content.to_vec())[..] == *content);
        }
        let store = tempfile::tempdir().unwrap();
        let dir = Directory::open(store.path()).unwrap();
        assert!(SealedFile::open(&dir, ".", id()).is_err() && SealedFile::open(&dir, "none", id()).is_err());
        assert!(SealedFile::open_derived(&dir, ".").is_err());
    }
}
