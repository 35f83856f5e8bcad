//! The scheduling priority of a thread.

use rustix::process::setpriority_process;
use rustix::thread::gettid;

/// The lowest priority (`setpriority(2)`).
const LOWEST_PRIORITY: i32 = 19;

/// Lowers this thread to the lowest priority; threads and processes that it starts later inherit it. A failure is
/// ignored: the thread then only competes with other threads for processor time.
pub fn lower() {
    let _ = setpriority_process(Some(gettid()), LOWEST_PRIORITY);
}
