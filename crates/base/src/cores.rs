//! How many processors there are for this process.

use std::sync::OnceLock;
use std::thread::available_parallelism;

/// Processors that this process may use, as its affinity and its cgroup had it when that was first asked: each question reads
/// some files, and threads that step back may use fewer.
pub fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| available_parallelism().map_or(1, usize::from))
}
