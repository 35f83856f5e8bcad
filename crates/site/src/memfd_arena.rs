//! An arena in a memory file (`memfd_create(2)`): stored bytes can be read like any memory, and the kernel can send
//! them without a copy (sendfile(2)).
//!
//! When an allocation is freed, its memory is released by punching a hole in the file, and the next allocation at that
//! place gets new memory: the kernel may still be sending the old bytes (sendfile(2), NOTES), and what it sends must
//! not change.
//!
//! The memory file is mapped while it is written to. That is sound because of three rules, which only this module has
//! to keep: a range is written completely before it is read for the first time, it is not written again while it is
//! read, and the file is never truncated. The file is anonymous, and its descriptor leaves the module only for the
//! kernel to read from it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};

use docwharf_base::locks::{Mutex, MutexGuard};

/// The granularity of allocations in bytes: a memory page can only be released as a whole.
const GRAIN_BYTES: u64 = 4096;

/// An arena in a memory file, with a list of its free ranges.
#[derive(Debug)]
pub struct MemfdArena {
    file: File,
    /// All of `file`, for reading.
    map: MmapRaw,
    /// The free ranges: length by offset. No two are adjacent.
    free: Mutex<BTreeMap<u64, u64>>,
}

/// The place of an allocation in the file of its arena.
#[derive(Debug, Clone)]
pub struct ArenaRange {
    room: Arc<MemfdArena>,
    /// The offset of the first byte in the file.
    pub offset: u64,
}

impl ArenaRange {
    /// Returns the memory file of the arena.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.room.file.as_fd()
    }
}

/// An allocated range. It is freed when the last reader drops it.
struct ArenaAllocation {
    room: Arc<MemfdArena>,
    at: u64,
    len: usize,
}

impl AsRef<[u8]> for ArenaAllocation {
    fn as_ref(&self) -> &[u8] {
        let at = self.at as usize;
        assert!(
            at.checked_add(self.len).is_some_and(|end| end <= self.room.map.len()),
            "beyond the end of the mapping"
        );
        // SAFETY: the range is within the mapping (the assertion above), which `room` keeps. It is not written while it
        // is read: `MemfdArena::store` hands out an allocation after it has written the range, and its range is
        // allocated again only after it was dropped, and all readers with it.
        unsafe { std::slice::from_raw_parts(self.room.map.as_ptr().add(at), self.len) }
    }
}

impl Drop for ArenaAllocation {
    fn drop(&mut self) {
        self.room.release(self.at, round_to_grains(self.len));
    }
}

impl MemfdArena {
    /// Creates an arena of `bytes` bytes. It uses memory only for what is stored in it.
    ///
    /// # Errors
    ///
    /// Fails if the system has no memory files, or no contiguous address range of that size.
    pub fn new(bytes: u64) -> io::Result<Arc<MemfdArena>> {
        let bytes = bytes.next_multiple_of(GRAIN_BYTES);
        let file = File::from(memfd_create("docwharf-pages", MemfdFlags::CLOEXEC)?);
        ftruncate(&file, bytes)?;
        let map = MmapOptions::new().map_raw_read_only(&file)?;
        Ok(Arc::new(MemfdArena { file, map, free: Mutex::new(BTreeMap::from([(0, bytes)])) }))
    }

    /// Stores a copy of `content`, which stays until the returned bytes are dropped. `None` if no free range is long
    /// enough, or there is no memory.
    pub fn store(self: &Arc<MemfdArena>, content: &[u8]) -> Option<(Bytes, ArenaRange)> {
        let len = content.len();
        let at = self.allocate(round_to_grains(len))?;
        let taken = ArenaAllocation { room: Arc::clone(self), at, len };
        // `taken` is handed out only after the content is written in full; if the write fails, dropping `taken` frees
        // the range.
        self.file.write_all_at(content, at).ok()?;
        Some((Bytes::from_owner(taken), ArenaRange { room: Arc::clone(self), offset: at }))
    }

    fn free(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.free.lock()
    }

    /// Allocates the first free range of at least `len` bytes.
    fn allocate(&self, len: u64) -> Option<u64> {
        let mut free = self.free();
        let (at, had) = free.iter().map(|(at, had)| (*at, *had)).find(|(_, had)| *had >= len)?;
        free.remove(&at);
        if had > len {
            free.insert(at + len, had - len);
        }
        Some(at)
    }

    fn release(&self, at: u64, len: u64) {
        let hole = fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len);
        if hole.is_err() {
            // The old memory is still in the file and may still be sent, so the range must not be written again: it
            // stays allocated.
            return;
        }
        let mut free = self.free();
        let (mut begin, mut end) = (at, at + len);
        if let Some((&before, &had)) = free.range(..at).next_back()
            && before + had == at
        {
            begin = before;
            free.remove(&before);
        }
        if let Some(behind) = free.remove(&end) {
            end += behind;
        }
        free.insert(begin, end - begin);
    }
}

/// Rounds a length up to whole grains.
fn round_to_grains(len: usize) -> u64 {
    (len as u64).next_multiple_of(GRAIN_BYTES)
}

#[cfg(test)]
mod tests {
    use std::mem::ManuallyDrop;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn read(lies: &ArenaRange, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        lies.room.file.read_exact_at(&mut bytes, lies.offset).unwrap();
        bytes
    }

    #[test]
    fn what_is_put_in_is_there_twice_until_nobody_reads_it_and_its_place_is_given_again() {
        let room = MemfdArena::new(4 * GRAIN_BYTES).unwrap();
        let (one, lies) = room.store(&[1; 5000]).unwrap();
        let (two, behind) = room.store(&[2; 4096]).unwrap();
        assert_eq!((one.len(), lies.offset, two.len(), behind.offset), (5000, 0, 4096, 2 * GRAIN_BYTES));
        assert!(room.store(&[3; 5000]).is_none(), "one grain is left");
        assert_eq!(one, read(&lies, 5000));
        let part = one.slice(10..20);
        drop(one);
        assert!(room.store(&[3; 5000]).is_none(), "a part of it is still read");
        drop(part);
        assert_eq!(read(&lies, 5000), [0; 5000], "its memory is gone");
        let (three, again) = room.store(&[3; 8192]).unwrap();
        assert_eq!((again.offset, three[8191], two[0]), (0, 3, 2));
    }

    #[test]
    fn nothing_is_read_beyond_the_end_of_what_is_mapped() {
        let room = MemfdArena::new(GRAIN_BYTES).unwrap();
        let read = |at, len| {
            // It is not dropped: its range is not one that was allocated.
            let range = ManuallyDrop::new(ArenaAllocation { room: Arc::clone(&room), at, len });
            catch_unwind(AssertUnwindSafe(|| range.as_ref().len()))
        };
        assert_eq!((read(0, 4096).ok(), read(1, 2).ok(), read(4096, 0).ok()), (Some(4096), Some(2), Some(0)));
        for (at, len) in [(0, 4097), (4096, 1), (4097, 0), (u64::MAX, 1), (1, usize::MAX)] {
            assert!(read(at, len).is_err(), "{at} {len}");
        }
    }

    #[test]
    fn stretches_that_touch_become_one() {
        let room = MemfdArena::new(3 * GRAIN_BYTES).unwrap();
        let pages: Vec<_> = (1..=3).map(|n| room.store(&[n; 10]).unwrap().0).collect();
        assert!(room.store(b"x").is_none());
        let [one, two, three] = pages.try_into().unwrap();
        drop(one);
        drop(three);
        drop(two);
        assert_eq!(*room.free(), BTreeMap::from([(0, 3 * GRAIN_BYTES)]));
        assert!(room.store(&[7; 3 * 4096]).is_some());
    }
}
