//! The length of a file that is read while it is still being written, such as a copy or a download.

use crate::locks::{Condvar, Mutex, MutexGuard};

/// The number of bytes of a growing file that can be read. The writer updates it; readers wait for it.
#[derive(Debug)]
pub struct WriteProgress {
    state: Mutex<WriteState>,
    changed: Condvar,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteState {
    /// This many bytes from the beginning can be read.
    Growing(u64),
    /// The file is complete, with this many bytes.
    Complete(u64),
    /// The file will not be completed, or the bytes already written are no longer valid.
    Failed,
}

impl WriteProgress {
    /// Creates the state of a file of which the first `len` bytes are written and more follow.
    pub fn growing(len: u64) -> WriteProgress {
        WriteProgress { state: Mutex::new(WriteState::Growing(len)), changed: Condvar::new() }
    }

    /// Creates the state of a complete file of any length.
    pub fn complete() -> WriteProgress {
        WriteProgress { state: Mutex::new(WriteState::Complete(u64::MAX)), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, WriteState> {
        self.state.lock()
    }

    fn update(&self, change: impl FnOnce(WriteState) -> WriteState) {
        let mut state = self.state();
        *state = change(*state);
        drop(state);
        self.changed.notify_all();
    }

    /// Reports that the first `len` bytes can be read now.
    pub fn set_len(&self, len: u64) {
        self.update(|state| if let WriteState::Growing(_) = state { WriteState::Growing(len) } else { state });
    }

    /// Reports that the file is complete at its current length.
    pub fn mark_complete(&self) {
        self.update(|state| if let WriteState::Growing(len) = state { WriteState::Complete(len) } else { state });
    }

    /// Wakes all readers with a failure: the file will not be completed.
    pub fn mark_failed(&self) {
        self.update(|_| WriteState::Failed);
    }

    /// Whether the file is complete.
    pub fn is_complete(&self) -> bool {
        matches!(*self.state(), WriteState::Complete(_))
    }

    /// Waits until the first `required_len` bytes can be read or the file is complete, and returns how many bytes can
    /// be read. Returns `None` if the writer failed.
    pub fn wait_for_len(&self, required_len: u64) -> Option<u64> {
        let is_too_short = |state: &mut WriteState| matches!(state, WriteState::Growing(len) if *len < required_len);
        let state = self.changed.wait_while(self.state(), is_too_short);
        match *state {
            WriteState::Growing(len) | WriteState::Complete(len) => Some(len),
            WriteState::Failed => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_for_len_returns_at_the_length_at_completion_or_at_failure() {
        let growth = WriteProgress::growing(3);
        assert_eq!(growth.wait_for_len(3), Some(3));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| growth.wait_for_len(5));
            growth.set_len(4);
            growth.set_len(7);
            assert_eq!(waiting.join().unwrap(), Some(7));
            let waiting = scope.spawn(|| growth.wait_for_len(100));
            growth.mark_complete();
            assert_eq!(waiting.join().unwrap(), Some(7), "the file ended at 7 bytes");
        });
        growth.set_len(200);
        assert_eq!((growth.wait_for_len(100), growth.is_complete()), (Some(7), true), "a complete file does not grow");
        let growth = WriteProgress::growing(0);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| growth.wait_for_len(1));
            growth.mark_failed();
            assert_eq!(waiting.join().unwrap(), None);
        });
        growth.set_len(1);
        growth.mark_complete();
        assert_eq!((growth.wait_for_len(1), growth.is_complete()), (None, false));
        // A complete file whose bytes are no longer valid, such as a download with another digest than expected.
        let growth = WriteProgress::growing(7);
        growth.mark_complete();
        growth.mark_failed();
        assert_eq!((growth.wait_for_len(1), growth.is_complete()), (None, false), "the bytes are no longer valid");
        assert_eq!(WriteProgress::complete().wait_for_len(u64::MAX), Some(u64::MAX));
    }
}
