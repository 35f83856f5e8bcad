//! An arena in a memfd (`memfd_create(2)`, a file in memory): stored bytes can be read like any memory, and the kernel
//! can send them without a copy (sendfile(2)).
//!
//! When an allocation is freed, its memory is released by punching a hole in the memfd, and the next allocation at that
//! offset gets new memory: the kernel may still be sending the old bytes (sendfile(2), NOTES), and what it sends must
//! not change.
//!
//! The memfd is mapped while it is written to. That is sound because of three rules, which this module alone
//! must keep: a range is written completely before it is read for the first time, it is not written again while it is
//! read, and the memfd is never truncated. It is anonymous, and its descriptor leaves the module only for the
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

/// The granularity of allocations in bytes: only whole memory pages can be released.
const GRAIN_BYTES: u64 = 4096;

/// An arena in a memfd, with a list of its free ranges.
#[derive(Debug)]
pub struct MemfdArena {
    memfd: File,
    /// All of `memfd`, for reading.
    map: MmapRaw,
    /// The free ranges: length by offset. No two are adjacent.
    free: Mutex<BTreeMap<u64, u64>>,
}

/// The location of an allocation in the memfd of its arena.
#[derive(Debug, Clone)]
pub struct MemfdRange {
    arena: Arc<MemfdArena>,
    /// The offset of the first byte in the memfd.
    pub offset: u64,
}

impl MemfdRange {
    /// Returns the memfd of the arena.
    pub fn memfd(&self) -> BorrowedFd<'_> {
        self.arena.memfd.as_fd()
    }
}

/// An allocated range. It is freed when the last reader drops it.
struct MemfdAllocation {
    arena: Arc<MemfdArena>,
    offset: u64,
    len: usize,
}

impl AsRef<[u8]> for MemfdAllocation {
    fn as_ref(&self) -> &[u8] {
        let offset = self.offset as usize;
        assert!(
            offset.checked_add(self.len).is_some_and(|end| end <= self.arena.map.len()),
            "the range must be within the mapping"
        );
        // SAFETY: the range is within the mapping (the assertion above), which `arena` holds. It is not written while
        // it is read: `MemfdArena::store` returns an allocation after it has written the range, and the range is
        // allocated again only after the allocation, and with it all its readers, was dropped.
        unsafe { std::slice::from_raw_parts(self.arena.map.as_ptr().add(offset), self.len) }
    }
}

impl Drop for MemfdAllocation {
    fn drop(&mut self) {
        self.arena.release(self.offset, round_to_grains(self.len));
    }
}

impl MemfdArena {
    /// Creates an arena of `bytes` bytes. It uses memory only for what is stored in it.
    ///
    /// # Errors
    ///
    /// Fails if the system has no `memfd_create(2)`, or no contiguous address range of that size.
    pub fn new(bytes: u64) -> io::Result<Arc<MemfdArena>> {
        let bytes = bytes.next_multiple_of(GRAIN_BYTES);
        let memfd = File::from(memfd_create("docwharf-pages", MemfdFlags::CLOEXEC)?);
        ftruncate(&memfd, bytes)?;
        let map = MmapOptions::new().map_raw_read_only(&memfd)?;
        Ok(Arc::new(MemfdArena { memfd, map, free: Mutex::new(BTreeMap::from([(0, bytes)])) }))
    }

    /// Stores a copy of `content`, which is retained until the returned bytes are dropped. Returns `None` if no free
    /// range is long enough, or if there is no memory.
    pub fn store(self: &Arc<MemfdArena>, content: &[u8]) -> Option<(Bytes, MemfdRange)> {
        let len = content.len();
        let offset = self.allocate(round_to_grains(len))?;
        let allocation = MemfdAllocation { arena: Arc::clone(self), offset, len };
        // `allocation` is returned only after the content is written in full; if the write fails, dropping `allocation`
        // frees the range.
        self.memfd.write_all_at(content, offset).ok()?;
        Some((Bytes::from_owner(allocation), MemfdRange { arena: Arc::clone(self), offset }))
    }

    fn free(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.free.lock()
    }

    /// Allocates the first free range of at least `len` bytes.
    fn allocate(&self, len: u64) -> Option<u64> {
        let mut free = self.free();
        let (offset, free_len) = free.iter().map(|(offset, free_len)| (*offset, *free_len)).find(|(_, n)| *n >= len)?;
        free.remove(&offset);
        if free_len > len {
            free.insert(offset + len, free_len - len);
        }
        Some(offset)
    }

    fn release(&self, offset: u64, len: u64) {
        let hole = fallocate(&self.memfd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len);
        if hole.is_err() {
            // The old memory is still in the memfd and may still be sent, so the range must not be written again: it
            // remains allocated.
            return;
        }
        let mut free = self.free();
        let (mut start, mut end) = (offset, offset + len);
        if let Some((&previous, &previous_len)) = free.range(..offset).next_back()
            && previous + previous_len == offset
        {
            start = previous;
            free.remove(&previous);
        }
        if let Some(next_len) = free.remove(&end) {
            end += next_len;
        }
        free.insert(start, end - start);
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

    fn read(range: &MemfdRange, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        range.arena.memfd.read_exact_at(&mut bytes, range.offset).unwrap();
        bytes
    }

    #[test]
    fn arena_range_is_released_when_its_last_reader_drops_it_and_is_then_reused() {
        let arena = MemfdArena::new(4 * GRAIN_BYTES).unwrap();
        let (first, range) = arena.store(&[1; 5000]).unwrap();
        let (second, second_range) = arena.store(&[2; 4096]).unwrap();
        assert_eq!((first.len(), range.offset, second.len(), second_range.offset), (5000, 0, 4096, 2 * GRAIN_BYTES));
        assert!(arena.store(&[3; 5000]).is_none(), "only one grain is free");
        assert_eq!(first, read(&range, 5000));
        let part = first.slice(10..20);
        drop(first);
        assert!(arena.store(&[3; 5000]).is_none(), "a part of it is still in use");
        drop(part);
        assert_eq!(read(&range, 5000), [0; 5000], "its memory is released");
        let (third, third_range) = arena.store(&[3; 8192]).unwrap();
        assert_eq!((third_range.offset, third[8191], second[0]), (0, 3, 2));
    }

    #[test]
    fn memfd_arena_refuses_reads_beyond_the_end_of_its_mapping() {
        let arena = MemfdArena::new(GRAIN_BYTES).unwrap();
        let read = |offset, len| {
            // It is not dropped, because its range was never allocated.
            let range = ManuallyDrop::new(MemfdAllocation { arena: Arc::clone(&arena), offset, len });
            catch_unwind(AssertUnwindSafe(|| range.as_ref().len()))
        };
        assert_eq!((read(0, 4096).ok(), read(1, 2).ok(), read(4096, 0).ok()), (Some(4096), Some(2), Some(0)));
        for (offset, len) in [(0, 4097), (4096, 1), (4097, 0), (u64::MAX, 1), (1, usize::MAX)] {
            assert!(read(offset, len).is_err(), "{offset} {len}");
        }
    }

    #[test]
    fn adjacent_free_ranges_of_the_arena_are_merged() {
        let arena = MemfdArena::new(3 * GRAIN_BYTES).unwrap();
        let stored: Vec<_> = (1..=3).map(|n| arena.store(&[n; 10]).unwrap().0).collect();
        assert!(arena.store(b"x").is_none());
        let [first, second, third] = stored.try_into().unwrap();
        drop(first);
        drop(third);
        drop(second);
        assert_eq!(*arena.free(), BTreeMap::from([(0, 3 * GRAIN_BYTES)]));
        assert!(arena.store(&[7; 3 * 4096]).is_some());
    }
}
