//! Construction of Tokio runtimes that fails with an error instead of a panic.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use tokio::runtime::{Builder, Runtime};

/// Upper bound of the number of descriptors that a new runtime needs.
const NEEDED_DESCRIPTORS: usize = 8;

/// Builds a runtime with I/O, timers and signals. Tokio panics if it gets no descriptors for signals, so this function
/// first checks that enough descriptors are free.
pub fn build_runtime(builder: &mut Builder) -> io::Result<Runtime> {
    let probes: io::Result<Vec<OwnedFd>> =
        (0..NEEDED_DESCRIPTORS).map(|_| io::stderr().as_fd().try_clone_to_owned()).collect();
    drop(probes?);
    builder.enable_all().build()
}
