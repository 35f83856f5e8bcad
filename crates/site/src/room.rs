//! A memory file with room for pages: what lies in it can be read like any memory, and the kernel can send it without
//! copying it (sendfile(2)).
//!
//! What goes gives its memory back at once by a hole in the file, and what comes into its place gets memory of its own: the
//! kernel may still be sending what went (sendfile(2), notes), and what it sends does not change.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};

use super::mapping::Shared;

/// What is given out is a multiple of this, in bytes: memory that holds a page goes as a whole or not at all.
const GRAIN: u64 = 4096;

/// The file, and what of it is free.
#[derive(Debug)]
pub struct Room {
    file: File,
    map: Shared,
    /// Where free stretches begin, and how long they are. No two touch.
    free: Mutex<BTreeMap<u64, u64>>,
}

/// Where bytes lie in a room.
#[derive(Debug, Clone)]
pub struct Lies {
    room: Arc<Room>,
    /// Of the first byte, from the file's begin.
    pub at: u64,
}

impl Lies {
    /// The room's file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.room.file.as_fd()
    }
}

/// A stretch that is taken, until the last who reads it lets go.
struct Taken {
    room: Arc<Room>,
    at: u64,
    len: usize,
}

impl AsRef<[u8]> for Taken {
    fn as_ref(&self) -> &[u8] {
        self.room.map.bytes(self.at as usize, self.len)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.give_back(self.at, grains(self.len));
    }
}

impl Room {
    /// Room for so many bytes. It takes memory only for what is put in.
    ///
    /// # Errors
    ///
    /// When the system has no memory files, or no such stretch of addresses.
    pub fn new(bytes: u64) -> io::Result<Arc<Room>> {
        let bytes = bytes.next_multiple_of(GRAIN);
        let file = File::from(memfd_create("docwharf-pages", MemfdFlags::CLOEXEC)?);
        ftruncate(&file, bytes)?;
        let map = Shared::new(&file)?;
        Ok(Arc::new(Room { file, map, free: Mutex::new(BTreeMap::from([(0, bytes)])) }))
    }

    /// Puts a copy of `content` in, for as long as somebody reads it. None if there is no such stretch, or no memory.
    pub fn put(self: &Arc<Room>, content: &[u8]) -> Option<(Bytes, Lies)> {
        let len = content.len();
        let at = self.take(grains(len))?;
        let taken = Taken { room: Arc::clone(self), at, len };
        // Whoever gets `taken` sees only what is whole; if it fails, dropping it gives back what was written.
        self.file.write_all_at(content, at).ok()?;
        Some((Bytes::from_owner(taken), Lies { room: Arc::clone(self), at }))
    }

    fn free(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first stretch that is long enough.
    fn take(&self, len: u64) -> Option<u64> {
        let mut free = self.free();
        let (at, had) = free.iter().map(|(at, had)| (*at, *had)).find(|(_, had)| *had >= len)?;
        free.remove(&at);
        if had > len {
            free.insert(at + len, had - len);
        }
        Some(at)
    }

    fn give_back(&self, at: u64, len: u64) {
        let hole = fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len);
        if hole.is_err() {
            // Its memory may still be on its way to somebody, so nothing may be written there.
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

/// What so many bytes take.
fn grains(len: usize) -> u64 {
    (len as u64).next_multiple_of(GRAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lies: &Lies, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        lies.room.file.read_exact_at(&mut bytes, lies.at).unwrap();
        bytes
    }

    #[test]
    fn what_is_put_in_is_there_twice_until_nobody_reads_it_and_its_place_is_given_again() {
        let room = Room::new(4 * GRAIN).unwrap();
        let (one, lies) = room.put(&[1; 5000]).unwrap();
        let (two, behind) = room.put(&[2; 4096]).unwrap();
        assert_eq!((one.len(), lies.at, two.len(), behind.at), (5000, 0, 4096, 2 * GRAIN));
        assert!(room.put(&[3; 5000]).is_none(), "one grain is left");
        assert_eq!(one, read(&lies, 5000));
        let part = one.slice(10..20);
        drop(one);
        assert!(room.put(&[3; 5000]).is_none(), "a part of it is still read");
        drop(part);
        assert_eq!(read(&lies, 5000), [0; 5000], "its memory is gone");
        let (three, again) = room.put(&[3; 8192]).unwrap();
        assert_eq!((again.at, three[8191], two[0]), (0, 3, 2));
    }

    #[test]
    fn stretches_that_touch_become_one() {
        let room = Room::new(3 * GRAIN).unwrap();
        let pages: Vec<_> = (1..=3).map(|n| room.put(&[n; 10]).unwrap().0).collect();
        assert!(room.put(b"x").is_none());
        let [one, two, three] = pages.try_into().unwrap();
        drop(one);
        drop(three);
        drop(two);
        assert_eq!(*room.free(), BTreeMap::from([(0, 3 * GRAIN)]));
        assert!(room.put(&[7; 3 * 4096]).is_some());
    }
}
