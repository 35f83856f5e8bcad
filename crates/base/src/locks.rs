//! Locks that ignore poisoning: a lock whose holder has panicked is taken like any other.
//!
//! A panic ends one request or one job, and the process serves on. If the locks of the standard library were unwrapped,
//! the panic of one thread would end every other thread that needs the same lock. The rule that makes this safe: what a
//! lock protects is valid between any two statements of its holder, so no half-made change can be seen. Such state is a
//! counter, a queue or a table whose entries are each put in by one call.

use std::sync::{self, PoisonError, TryLockError};
use std::time::Duration;

pub use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// A [`std::sync::Mutex`] that ignores poisoning.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(sync::Mutex::new(value))
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until no other thread has the lock, and takes it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock; `None` if a thread has it.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// A [`std::sync::Condvar`] that ignores poisoning. Each wait returns the lock, whatever has ended it.
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// Creates a condition variable.
    pub const fn new() -> Condvar {
        Condvar(sync::Condvar::new())
    }

    /// Wakes one thread that waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Waits for a notification.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits as long as `condition` is true.
    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        self.0.wait_while(guard, condition).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a notification, at most `time`.
    pub fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, time: Duration) -> MutexGuard<'a, T> {
        self.0.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits as long as `condition` is true, at most `time`.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        time: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        self.0.wait_timeout_while(guard, time, condition).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A [`std::sync::RwLock`] that ignores poisoning.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(sync::RwLock<T>);

impl<T: ?Sized> RwLock<T> {
    /// Waits until no other thread writes, and takes the lock for reading.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other thread has the lock, and takes it for writing.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_lock_is_taken_after_its_holder_has_panicked() {
        let (mutex, both) = (Mutex::new(1), RwLock::<u8>::default());
        let holder = || {
            let (mut value, _guard) = (mutex.lock(), both.write());
            *value += 1;
            panic!("expected");
        };
        assert!(catch_unwind(AssertUnwindSafe(holder)).is_err());
        assert!(mutex.0.is_poisoned() && both.0.is_poisoned());
        assert_eq!((*mutex.lock(), *both.read()), (2, 0));
        assert_eq!(mutex.try_lock().map(|value| *value), Some(2));
        let changed = Condvar::new();
        let time = Duration::from_millis(1);
        let guard = changed.wait_timeout(mutex.lock(), time);
        let guard = changed.wait_timeout_while(guard, time, |_| true);
        assert_eq!(*changed.wait_while(guard, |_| false), 2);
        let guard = mutex.lock();
        assert!(mutex.try_lock().is_none(), "it is held");
        drop(guard);
        assert_eq!(mutex.into_inner(), 2);
    }
}
