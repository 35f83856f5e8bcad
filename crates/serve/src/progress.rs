//! Whether the peer of a connection takes what is sent to it: the one definition for HTTP/1.1, hyper, HTTP/2 and TLS, which all
//! write through [`super::guard`].
//!
//! A peer makes progress when it acknowledges bytes. That the socket can be written to again says less: with
//! `TCP_NOTSENT_LOWAT` at 256 KiB the kernel says so when half of that has gone, for which a reader of 1 KB/s needs two minutes.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use docwharf_base::defer::acknowledged;

/// A write that has waited for so long may have a reader that has stopped: from then on it is looked at what that takes.
/// Nearly all writes end before, and cost nothing.
const BEFORE_FIRST_LOOK: Duration = Duration::from_secs(3);
/// A reader that acknowledges no byte for so long has stopped. More than a minute: over loopback, where packets have 64 KiB,
/// the kernel of a reader of 1 KB/s has something to say every 64 seconds.
pub(super) const PATIENCE: Duration = Duration::from_secs(67);

/// What was seen of a peer since a write began to wait.
#[derive(Debug)]
pub(super) struct Progress {
    patience: Duration,
    /// What the peer had acknowledged when it was last looked at; nothing where that cannot be told.
    known: Option<u64>,
    /// When it is to be looked at.
    look_at: Instant,
    is_looked_at: bool,
}

/// What a look has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// The next is due then.
    Again(Instant),
    /// The peer has stopped reading.
    Stopped,
}

impl Progress {
    /// A write begins to wait. A peer that acknowledges nothing within `patience` has stopped.
    pub(super) fn begin(now: Instant, patience: Duration) -> Progress {
        let look_at = now + BEFORE_FIRST_LOOK.min(patience);
        Progress { patience, known: None, look_at, is_looked_at: false }
    }

    /// When it is to be looked at next.
    pub(super) fn look_at(&self) -> Instant {
        self.look_at
    }

    /// It is `now`, and that has been acknowledged, if it can be told.
    pub(super) fn look(&mut self, now: Instant, acknowledged: Option<u64>) -> Look {
        if now < self.look_at {
            return Look::Again(self.look_at);
        }
        let has_taken = acknowledged.is_some() && self.known != acknowledged;
        if self.is_looked_at && !has_taken {
            return Look::Stopped;
        }
        (self.known, self.is_looked_at, self.look_at) = (acknowledged, true, now + self.patience);
        Look::Again(self.look_at)
    }
}

/// Bytes that the peer has acknowledged; nothing where that cannot be told.
pub(super) fn taken(socket: io::Result<BorrowedFd<'_>>) -> Option<u64> {
    acknowledged(&socket.ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use socket2::{Domain, SockRef, Socket, Type};

    use super::*;

    #[test]
    fn a_peer_that_acknowledges_a_byte_within_the_patience_lives_and_another_does_not() {
        for (seen, expected) in [
            (&[Some(5), Some(5)][..], 2),
            (&[Some(5), Some(6), Some(7), Some(7)][..], 4),
            (&[Some(0), Some(1), Some(1 << 40), Some(1 << 40)][..], 4),
            (&[None, None][..], 2),
            (&[None, Some(7), Some(7)][..], 3),
            (&[Some(7), None][..], 2),
        ] {
            let mut now = Instant::now();
            let mut progress = Progress::begin(now, PATIENCE);
            let mut looks = 0;
            for &taken in seen {
                assert_eq!(progress.look(now, taken), Look::Again(progress.look_at()), "too early");
                now = progress.look_at();
                looks += 1;
                if progress.look(now, taken) == Look::Stopped {
                    break;
                }
            }
            assert_eq!(looks, expected, "{seen:?}");
            assert_eq!(progress.look(now, *seen.last().unwrap()), Look::Stopped, "{seen:?}");
        }
    }

    /// A connection of whose two ends the first was written to until it took no more.
    fn full() -> (TcpStream, TcpStream) {
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

    #[test]
    fn what_a_slow_reader_acknowledges_is_seen_though_it_is_little() {
        let (writer, mut reader) = full();
        let settled = |is_good: &dyn Fn(u64) -> bool| {
            let deadline = Instant::now() + Duration::from_secs(20);
            loop {
                let now = taken(Ok(writer.as_fd())).expect("it can be told");
                if is_good(now) || Instant::now() > deadline {
                    return now;
                }
            }
        };
        let before = settled(&|taken| taken > 0);
        let mut some = vec![0; 30_000];
        reader.read_exact(&mut some).unwrap();
        let after = settled(&|taken| taken > before);
        assert!(after > before && after - before < 128 * 1024, "{before} and then {after}");
    }
}
