//! The events that a connection waits for, and the time limits that all versions of HTTP share. HTTP/2 has further
//! ones in `http2::deadlines`, among them another idle time.

use std::time::{Duration, Instant};

/// The time within which a request head, or a frame of HTTP/2, must be complete. A kept-alive HTTP/1.1 connection that
/// is idle for as long is closed; an HTTP/2 connection without input for as long gets a PING.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The time within which a connection must send its first request, whatever version of HTTP it uses; otherwise it is
/// closed.
pub(super) const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(35);
/// The time that a connection without a request gets after a stop was requested: its request may already be on the
/// network.
pub(super) const LAST_REQUEST_TIMEOUT: Duration = Duration::from_millis(500);

/// The event that a connection waits for while it cannot proceed. Each state that waits for bytes of the peer has a
/// deadline: without one the peer could occupy a file descriptor for an unlimited time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitReason {
    /// Bytes from the peer, until this deadline.
    Peer(Instant),
    /// The peer has to read what was sent. The stream below ends a connection whose peer stopped reading (see
    /// [`super::stall_timeout`]), whichever protocol writes to it.
    PeerReads,
    /// A response or another turn of this connection, or a hyper connection without a timer.
    Internal,
}
