//! Locks that ignore poisoning: a lock whose holder has panicked can be acquired like any other.
//!
//! A panic ends one request or one job, and the process continues to serve. If the locks of the standard library were
//! unwrapped, the panic of one thread would end every other thread that needs the same lock. Ignoring poisoning is safe
//! under one rule: the state that a lock protects is valid between any two statements of its holder, so no other thread
//! can see half a change. Such state is a counter, a queue, or a table in which each entry is inserted by one call.

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
    /// Waits until no other thread has the lock, and acquires it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acquires the lock; `None` if a thread has it.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// A [`std::sync::Condvar`] that ignores poisoning. Each wait acquires the lock again and returns it.
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

    /// Waits for a notification, at most `timeout`.
    pub fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, timeout: Duration) -> MutexGuard<'a, T> {
        self.0.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits as long as `condition` is true, at most `timeout`.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        self.0.wait_timeout_while(guard, timeout, condition).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A [`std::sync::RwLock`] that ignores poisoning.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(sync::RwLock<T>);

impl<T: ?Sized> RwLock<T> {
    /// Waits until no other thread writes, and acquires the lock for reading.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other thread has the lock, and acquires it for writing.
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
        let (mutex, rw_lock) = (Mutex::new(1), RwLock::<u8>::default());
        let holder = || {
            let (mut value, _guard) = (mutex.lock(), rw_lock.write());
            *value += 1;
            panic!("expected");
        };
        assert!(catch_unwind(AssertUnwindSafe(holder)).is_err());
        assert!(mutex.0.is_poisoned() && rw_lock.0.is_poisoned());
        assert_eq!((*mutex.lock(), *rw_lock.read()), (2, 0));
        assert_eq!(mutex.try_lock().map(|value| *value), Some(2));
        let changed = Condvar::new();
        let timeout = Duration::from_millis(1);
        let guard = changed.wait_timeout(mutex.lock(), timeout);
        let guard = changed.wait_timeout_while(guard, timeout, |_| true);
        assert_eq!(*changed.wait_while(guard, |_| false), 2);
        let guard = mutex.lock();
        assert!(mutex.try_lock().is_none(), "this thread has the lock");
        drop(guard);
        assert_eq!(mutex.into_inner(), 2);
    }
}
