//! The length of a file that is read while it is still being written, such as a copy or a download.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The number of bytes of a growing file that can be read. The writer updates it; readers wait for it.
#[derive(Debug)]
pub struct Growth {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// This many bytes from the beginning can be read.
    Growing(u64),
    /// The file is complete, with this many bytes.
    Whole(u64),
    /// The file will not be completed, or the bytes already written are no longer valid.
    GivenUp,
}

impl Growth {
    /// Creates the state of a file of which the first `there` bytes are written and more follow.
    pub fn begun(there: u64) -> Growth {
        Growth { state: Mutex::new(State::Growing(there)), news: Condvar::new() }
    }

    /// Creates the state of a complete file of any length.
    pub fn done() -> Growth {
        Growth { state: Mutex::new(State::Whole(u64::MAX)), news: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, now: impl FnOnce(State) -> State) {
        let mut state = self.state();
        *state = now(*state);
        drop(state);
        self.news.notify_all();
    }

    /// Reports that the first `there` bytes can be read now.
    pub fn reach(&self, there: u64) {
        self.say(|state| if let State::Growing(_) = state { State::Growing(there) } else { state });
    }

    /// Reports that the file is complete at its current length.
    pub fn end(&self) {
        self.say(|state| if let State::Growing(there) = state { State::Whole(there) } else { state });
    }

    /// Wakes all readers with a failure: the file will not be completed.
    pub fn give_up(&self) {
        self.say(|_| State::GivenUp);
    }

    /// Whether the file is complete.
    pub fn is_whole(&self) -> bool {
        matches!(*self.state(), State::Whole(_))
    }

    /// Waits until the first `to` bytes can be read or the file is complete, and returns how many bytes can be read.
    /// Returns `None` if the writer gave up.
    pub fn wait_for(&self, to: u64) -> Option<u64> {
        let is_early = |state: &mut State| matches!(state, State::Growing(there) if *there < to);
        let state = self.news.wait_while(self.state(), is_early).unwrap_or_else(PoisonError::into_inner);
        match *state {
            State::Growing(there) | State::Whole(there) => Some(there),
            State::GivenUp => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_learns_of_enough_of_the_end_and_of_none() {
        let growth = Growth::begun(3);
        assert_eq!(growth.wait_for(3), Some(3));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| growth.wait_for(5));
            growth.reach(4);
            growth.reach(7);
            assert_eq!(waiting.join().unwrap(), Some(7));
            let waiting = scope.spawn(|| growth.wait_for(100));
            growth.end();
            assert_eq!(waiting.join().unwrap(), Some(7), "that was all");
        });
        growth.reach(200);
        assert_eq!((growth.wait_for(100), growth.is_whole()), (Some(7), true), "an end is an end");
        let growth = Growth::begun(0);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| growth.wait_for(1));
            growth.give_up();
            assert_eq!(waiting.join().unwrap(), None);
        });
        growth.reach(1);
        growth.end();
        assert_eq!((growth.wait_for(1), growth.is_whole()), (None, false));
        assert_eq!(Growth::done().wait_for(u64::MAX), Some(u64::MAX));
    }
}
