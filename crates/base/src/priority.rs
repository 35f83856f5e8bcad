//! How important a thread is.

use rustix::process::setpriority_process;
use rustix::thread::gettid;

/// The least important there is (`setpriority(2)`).
const LOWEST: i32 = 19;

/// Makes this thread, and whatever threads and processes it starts from now on, the least important there are. That it
/// cannot be done is no failure: it only costs politeness.
pub fn lower() {
    let _ = setpriority_process(Some(gettid()), LOWEST);
}
