//! The scheduling priority of a thread.

use rustix::process::setpriority_process;
use rustix::thread::gettid;

/// The lowest priority (`setpriority(2)`).
const LOWEST_PRIORITY: i32 = 19;

/// Lowers this thread to the lowest priority; threads and processes that it starts later inherit it. A failure is
/// ignored: the thread then only competes with other threads for processor time.
pub fn lower_to_minimum() {
    let _ = setpriority_process(Some(gettid()), LOWEST_PRIORITY);
}

#[cfg(test)]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;

    #[test]
    fn lowered_thread_priority_is_inherited_and_other_threads_are_unchanged() {
        let priority = || getpriority_process(Some(gettid())).unwrap();
        let before = priority();
        let lowered = std::thread::spawn(move || {
            lower_to_minimum();
            [priority(), std::thread::spawn(priority).join().unwrap()]
        });
        assert_eq!((lowered.join().unwrap(), priority()), ([LOWEST_PRIORITY; 2], before));
    }
}
