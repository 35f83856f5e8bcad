//! The number of processors for this process.

use std::sync::OnceLock;
use std::thread::available_parallelism;

/// Returns how many processors this process may use, by its affinity and its cgroup at the first call. The number is
/// cached: each query reads files, and a background thread may restrict its own affinity later.
pub fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| available_parallelism().map_or(1, usize::from))
}
