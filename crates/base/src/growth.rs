//! How far something has come that is read while it is still being written: a copy, a download.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// See the module. Whoever writes tells, whoever reads waits.
#[derive(Debug)]
pub struct Growth {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// So many bytes from the begin are there.
    Growing(u64),
    /// These are all.
    Whole(u64),
    /// The rest will never come, or what is there is no longer what it was.
    GivenUp,
}

impl Growth {
    /// So many bytes are there, and more are to come.
    pub fn begun(there: u64) -> Growth {
        Growth { state: Mutex::new(State::Growing(there)), news: Condvar::new() }
    }

    /// Everything is there, however much that is.
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

    /// So many bytes from the begin are there now.
    pub fn reach(&self, there: u64) {
        self.say(|state| if let State::Growing(_) = state { State::Growing(there) } else { state });
    }

    /// What is there is all.
    pub fn end(&self) {
        self.say(|state| if let State::Growing(there) = state { State::Whole(there) } else { state });
    }

    /// Whoever waits need not wait any longer: there will be no good end.
    pub fn give_up(&self) {
        self.say(|_| State::GivenUp);
    }

    /// Whether all of it is there.
    pub fn is_whole(&self) -> bool {
        matches!(*self.state(), State::Whole(_))
    }

    /// Waits until the first `to` bytes are there, or all that there will be: how many are. None if it was given up.
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
