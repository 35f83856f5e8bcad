//! The socket of a service manager, which receives the messages of `run` (`sd_notify(3)`).

use std::io::{ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::host::Host;

/// The shortest wait for a message.
const SHORT: Duration = Duration::from_millis(1);

/// A service manager that only receives messages.
pub struct TestServiceManager {
    socket: UnixDatagram,
}

impl TestServiceManager {
    /// Creates the socket in the folder of the host.
    pub fn new(host: &Host) -> TestServiceManager {
        let socket = UnixDatagram::bind(host.path("notify")).expect("a socket can be made");
        TestServiceManager { socket }
    }

    /// Makes a command send its messages to this manager. `watchdog` is the watchdog period in microseconds.
    pub fn connect(&self, host: &Host, mut command: Command, watchdog: Option<u32>) -> Command {
        command.env("NOTIFY_SOCKET", host.path("notify"));
        if let Some(period) = watchdog {
            command.env("WATCHDOG_USEC", period.to_string());
        }
        command
    }

    /// Receives the next message; `None` after `timeout`.
    pub fn next(&self, timeout: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(timeout)).expect("a timeout can be set");
        let mut buffer = [0; 4096];
        match self.socket.recv(&mut buffer) {
            Ok(n) => Some(String::from_utf8_lossy(&buffer[..n]).into_owned()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
            Err(error) => panic!("the manager cannot receive: {error}"),
        }
    }

    /// Receives messages until one stores descriptors in the manager, and returns these. Panics after 30 seconds
    /// without a message.
    #[track_caller]
    pub fn receive_stored_descriptors(&self) -> Vec<OwnedFd> {
        self.socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout can be set");
        loop {
            let mut buffer = [0; 4096];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let received =
                recvmsg(&self.socket, &mut [IoSliceMut::new(&mut buffer)], &mut ancillary, RecvFlags::empty());
            let length = received.expect("a message that stores descriptors").bytes;
            if buffer[..length].starts_with(b"FDSTORE=1\n") {
                let rights = ancillary.drain().filter_map(|message| match message {
                    RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                    _ => None,
                });
                return rights.flatten().collect();
            }
        }
    }

    /// Receives a message that has already arrived.
    pub fn next_arrived(&self) -> Option<String> {
        self.next(SHORT)
    }

    /// Discards the messages that have already arrived.
    pub fn discard_arrived(&self) {
        while self.next_arrived().is_some() {}
    }

    /// Receives messages until one matches, and returns all of them. Panics with `what` after 30 seconds.
    #[track_caller]
    pub fn until(&self, what: &str, mut is_match: impl FnMut(&str) -> bool) -> Vec<String> {
        let mut received = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(30);
        while let Some(message) = self.next(deadline.saturating_duration_since(Instant::now()).max(SHORT)) {
            let is_last = is_match(&message);
            received.push(message);
            if is_last {
                return received;
            }
        }
        panic!("timed out: {what}; received {received:#?}");
    }

    /// Receives messages until a status line contains `part`, and returns that line.
    #[track_caller]
    pub fn status(&self, part: &str) -> String {
        let received = self.until(part, |message| message.starts_with("STATUS=") && message.contains(part));
        received.last().cloned().unwrap_or_default()
    }
}
