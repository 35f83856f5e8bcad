//! Connections that are accepted only when there is something to read: whoever asks at once costs one wake-up instead of two.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Has the kernel hold back connections on which nothing has come, for about so long; then they are accepted as well
/// (`TCP_DEFER_ACCEPT`, tcp(7)). Linux only; no library that is here already has it.
pub fn accept(listener: &impl AsFd, most: Duration) -> io::Result<()> {
    let seconds = libc::c_int::try_from(most.as_secs()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the descriptor is open for as long as it is borrowed; the option takes an int, of which the kernel reads as
    // many bytes as the last argument says, and keeps no pointer.
    let done = unsafe {
        libc::setsockopt(
            listener.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
