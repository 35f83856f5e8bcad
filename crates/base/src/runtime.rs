//! What sockets, timers and signals live on.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use tokio::runtime::{Builder, Runtime};

/// Descriptors that a runtime has at most before anything is done with it.
const NEEDED: usize = 8;

/// Builds a runtime for sockets, timers and signals. Tokio panics where it gets no descriptors for signals, so whether
/// there are enough is asked first.
pub fn build(builder: &mut Builder) -> io::Result<Runtime> {
    let enough: io::Result<Vec<OwnedFd>> = (0..NEEDED).map(|_| io::stderr().as_fd().try_clone_to_owned()).collect();
    drop(enough?);
    builder.enable_all().build()
}
