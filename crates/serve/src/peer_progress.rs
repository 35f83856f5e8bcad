//! Decides whether the peer of a connection still reads. HTTP/1.1, hyper, HTTP/2 and TLS all write through
//! [`super::stall_timeout`], so this definition applies to all of them.
//!
//! A peer makes progress when it acknowledges bytes. Writability of the socket shows less: with `TCP_NOTSENT_LOWAT` at
//! 256 KiB the kernel reports a full socket as writable only when 128 KiB have been sent, which takes two minutes for
//! a client that reads 1 KB/s.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use docwharf_base::tcp_options;

/// The time that a write has to be pending before the peer's progress is first checked. Nearly all writes complete
/// earlier and cost no check.
const FIRST_CHECK_DELAY: Duration = Duration::from_secs(3);
/// The time between two checks. A peer that acknowledged no byte between them has stopped. It is more than a minute:
/// over loopback, where packets have 64 KiB, the kernel of a client that reads 1 KB/s acknowledges only every 64
/// seconds.
pub(super) const STALL_TIMEOUT: Duration = Duration::from_secs(67);

/// The progress of a peer since a write began to be pending.
#[derive(Debug)]
pub(super) struct PeerProgress {
    stall_timeout: Duration,
    /// The number of bytes that the peer had acknowledged at the last check; `None` if the kernel does not report it.
    acknowledged: Option<u64>,
    /// The time of the next check.
    next_check: Instant,
    was_checked: bool,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProgressCheck {
    /// The peer may still be reading; the next check is due at this time.
    CheckAt(Instant),
    /// The peer has stopped reading.
    Stopped,
}

impl PeerProgress {
    /// Starts when a write begins to be pending. A peer that acknowledges nothing between two checks, which are
    /// `stall_timeout` apart, has stopped.
    pub(super) fn start(now: Instant, stall_timeout: Duration) -> PeerProgress {
        let next_check = now + FIRST_CHECK_DELAY.min(stall_timeout);
        PeerProgress { stall_timeout, acknowledged: None, next_check, was_checked: false }
    }

    /// Returns the time of the next check.
    pub(super) fn next_check(&self) -> Instant {
        self.next_check
    }

    /// Checks the peer at the time `now`, when it has acknowledged this number of bytes (`None` if the kernel does not
    /// report it).
    pub(super) fn check(&mut self, now: Instant, acknowledged: Option<u64>) -> ProgressCheck {
        if now < self.next_check {
            return ProgressCheck::CheckAt(self.next_check);
        }
        let has_progress = acknowledged.is_some() && self.acknowledged != acknowledged;
        if self.was_checked && !has_progress {
            return ProgressCheck::Stopped;
        }
        (self.acknowledged, self.was_checked, self.next_check) = (acknowledged, true, now + self.stall_timeout);
        ProgressCheck::CheckAt(self.next_check)
    }
}

/// Returns the number of bytes that the peer has acknowledged; `None` if the kernel does not report it.
pub(super) fn acknowledged_bytes(socket: io::Result<BorrowedFd<'_>>) -> Option<u64> {
    tcp_options::acknowledged_bytes(&socket.ok()?).ok()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // tests connect to their own sockets
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use socket2::{Domain, SockRef, Socket, Type};

    use super::*;

    #[test]
    fn a_peer_that_acknowledges_no_byte_within_the_stall_timeout_is_disconnected() {
        for (acknowledged, expected) in [
            (&[Some(5), Some(5)][..], 2),
            (&[Some(5), Some(6), Some(7), Some(7)][..], 4),
            (&[Some(0), Some(1), Some(1 << 40), Some(1 << 40)][..], 4),
            (&[None, None][..], 2),
            (&[None, Some(7), Some(7)][..], 3),
            (&[Some(7), None][..], 2),
        ] {
            let mut now = Instant::now();
            let mut progress = PeerProgress::start(now, STALL_TIMEOUT);
            let mut checks = 0;
            for &bytes in acknowledged {
                assert_eq!(progress.check(now, bytes), ProgressCheck::CheckAt(progress.next_check()), "too early");
                now = progress.next_check();
                checks += 1;
                if progress.check(now, bytes) == ProgressCheck::Stopped {
                    break;
                }
            }
            assert_eq!(checks, expected, "{acknowledged:?}");
            assert_eq!(progress.check(now, *acknowledged.last().unwrap()), ProgressCheck::Stopped, "{acknowledged:?}");
        }
    }

    /// Returns a connection to whose first end was written until it accepted no more bytes.
    fn full_connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        SockRef::from(&listener).set_tcp_notsent_lowat(256 * 1024).unwrap();
        let reader = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        reader.set_recv_buffer_size(4096).unwrap();
        reader.connect(&listener.local_addr().unwrap().into()).unwrap();
        let (mut writer, _) = listener.accept().unwrap();
        writer.set_nonblocking(true).unwrap();
        while writer.write(&[b'x'; 16_384]).is_ok() {}
        (writer, reader.into())
    }

    // Regression: a client that read 2 KB/s was disconnected although it made progress.
    #[test]
    fn small_acknowledgements_of_a_slow_reader_are_measured() {
        let (writer, mut reader) = full_connection();
        let wait_until = |is_reached: &dyn Fn(u64) -> bool| {
            let deadline = Instant::now() + Duration::from_secs(20);
            loop {
                let acknowledged = acknowledged_bytes(Ok(writer.as_fd())).expect("the kernel reports it");
                if is_reached(acknowledged) || Instant::now() > deadline {
                    return acknowledged;
                }
            }
        };
        let before = wait_until(&|bytes| bytes > 0);
        let mut buffer = vec![0; 30_000];
        reader.read_exact(&mut buffer).unwrap();
        let after = wait_until(&|bytes| bytes > before);
        assert!(after > before && after - before < 128 * 1024, "{before} and then {after}");
    }
}
