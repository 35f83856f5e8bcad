//! Messages from `run` to the service manager that started it (`sd_notify(3)`): ready, reloading, stopping, a status
//! line, and watchdog signals.
//!
//! A manager is optional: without `NOTIFY_SOCKET` no message is sent, and a message that cannot be sent changes
//! nothing.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use sd_notify::NotifyState;

use docwharf_base::clock::format_system_time;
use docwharf_base::error_chain::OneLine;
use docwharf_base::locks::Mutex;
use docwharf_serve::watchdog::{HEARTBEAT_INTERVAL, Watchdog};

use super::passed_sockets::STORED_SOCKET;

/// The extension of the start timeout that is requested each time while the store is opened.
const START_TIMEOUT_EXTENSION: Duration = Duration::from_secs(30);
/// The maximum number of messages that are queued while the manager does not accept them.
const MAX_QUEUED_MESSAGES: usize = 16;
/// The maximum number of sockets that are stored in the manager: `FileDescriptorStoreMax=` of the units.
const MAX_STORED_SOCKETS: usize = 16;

/// The connection to the service manager, if there is one. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Notifier(Option<Arc<ServiceManager>>);

#[derive(Debug)]
struct ServiceManager {
    /// A socket that never blocks, because the accept loops send messages as well.
    socket: UnixDatagram,
    address: SocketAddr,
    state: Mutex<NotifierState>,
}

#[derive(Debug, Default)]
struct NotifierState {
    /// Messages that have not been sent, oldest first.
    queue: VecDeque<String>,
    /// The last status line.
    status: String,
}

impl Notifier {
    /// Creates a notifier without a manager.
    pub(super) fn none() -> Notifier {
        Notifier(None)
    }

    /// Creates a notifier for the socket that `NOTIFY_SOCKET` names.
    pub(super) fn from_env() -> Notifier {
        let manager = std::env::var_os("NOTIFY_SOCKET").and_then(|name| {
            let address = parse_address(&name)?;
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?;
            Some(Arc::new(ServiceManager { socket, address, state: Mutex::default() }))
        });
        Notifier(manager)
    }

    /// Reports that the sockets accept connections.
    pub(super) fn ready(&self) {
        self.send(&[NotifyState::Ready]);
    }

    /// Stores these listening sockets in the manager, in place of those that were stored before. The manager passes
    /// them to the next process, so that no connection is refused meanwhile. A manager that stores nothing closes them;
    /// those over [`MAX_STORED_SOCKETS`] are not stored.
    pub(super) fn store_sockets(&self, sockets: &[TcpListener]) {
        let Some(manager) = self.0.as_deref() else { return };
        let mut state = manager.state.lock();
        manager.send_text_after_queued(&mut state, format!("FDSTOREREMOVE=1\nFDNAME={STORED_SOCKET}"));
        if sockets.is_empty() {
            return;
        }
        // A removal that is still queued would reach the manager after the sockets, and remove them.
        let stored = if state.queue.is_empty() {
            manager.send_descriptors(&format!("FDSTORE=1\nFDNAME={STORED_SOCKET}"), sockets)
        } else {
            Err(ErrorKind::WouldBlock.into())
        };
        if let Err(error) = stored {
            tracing::warn!(
                "cannot store the listening sockets in the service manager: {error}; the next restart refuses \
                 connections for a moment"
            );
        }
    }

    /// Reports that the configuration is read again; [`Notifier::ready`] ends the reload. The time lets the manager
    /// distinguish this reload from an earlier one.
    pub(super) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(time) => self.send(&[NotifyState::Reloading, time]),
            Err(_) => self.send(&[NotifyState::Reloading]),
        }
    }

    /// Reports that the process is about to end.
    pub(super) fn stopping(&self) {
        self.send(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
    }

    /// Sends the status line, if it has changed.
    pub(super) fn status(&self, line: &str) {
        let Some(manager) = &self.0 else { return };
        let line = OneLine(line).to_string();
        let mut state = manager.state.lock();
        if state.status != line {
            manager.send_after_queued(&mut state, &[NotifyState::Status(&line)]);
            state.status = line;
        }
    }

    /// Reports that the process is alive (`WATCHDOG=1`). Queued messages are sent first.
    pub(super) fn report_alive(&self) {
        self.send(&[NotifyState::Watchdog]);
    }

    /// Requests more time for the start at intervals, until the future is dropped.
    pub(super) async fn extend_start_timeout(&self) -> Infallible {
        let micros = u32::try_from(START_TIMEOUT_EXTENSION.as_micros()).unwrap_or(u32::MAX);
        loop {
            self.send(&[NotifyState::ExtendTimeoutUsec(micros)]);
            tokio::time::sleep(START_TIMEOUT_EXTENSION / 3).await;
        }
    }

    fn send(&self, states: &[NotifyState<'_>]) {
        if let Some(manager) = &self.0 {
            manager.send_after_queued(&mut manager.state.lock(), states);
        }
    }
}

impl ServiceManager {
    /// Sends the queued messages, and then `states` as one message. Messages that a busy manager does not accept stay
    /// queued for the next call; if there is no manager (any more), they are dropped.
    fn send_after_queued(&self, state: &mut NotifierState, states: &[NotifyState<'_>]) {
        let lines: Vec<String> = states.iter().map(ToString::to_string).collect();
        self.send_text_after_queued(state, lines.join("\n"));
    }

    fn send_text_after_queued(&self, state: &mut NotifierState, message: String) {
        // Repeated watchdog messages must not displace earlier messages.
        if state.queue.back() != Some(&message) {
            state.queue.push_back(message);
        }
        if state.queue.len() > MAX_QUEUED_MESSAGES {
            state.queue.pop_front();
        }
        while let Some(message) = state.queue.front() {
            match self.socket.send_to_addr(message.as_bytes(), &self.address) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                _ => state.queue.pop_front(),
            };
        }
    }
}

impl ServiceManager {
    /// Sends a message with copies of these descriptors.
    fn send_descriptors(&self, message: &str, sockets: &[TcpListener]) -> io::Result<()> {
        // A separate socket, which is connected: `rustix::net::sendmsg` has no parameter for an address.
        let manager = UnixDatagram::unbound()?;
        manager.connect_addr(&self.address)?;
        manager.set_nonblocking(true)?;
        let descriptors: Vec<BorrowedFd<'_>> = sockets.iter().take(MAX_STORED_SOCKETS).map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_STORED_SOCKETS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(ErrorKind::OutOfMemory.into());
        }
        sendmsg(&manager, &[IoSlice::new(message.as_bytes())], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

/// Parses the address of the manager: a path, or `@` and the name of an abstract socket.
fn parse_address(name: &OsStr) -> Option<SocketAddr> {
    match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest).ok(),
        [b'/', ..] => SocketAddr::from_pathname(name).ok(),
        _ => None,
    }
}

/// Creates the watchdog of the accept loops. It notifies the service manager at least three times within the manager's
/// watchdog timeout.
pub(super) fn start_watchdog(notifier: &Notifier) -> Arc<Watchdog> {
    let timeout = watchdog_timeout();
    let interval = timeout.map_or(HEARTBEAT_INTERVAL, |period| HEARTBEAT_INTERVAL.min(period / 3));
    let notifier = notifier.clone();
    Watchdog::new(interval, move || {
        if timeout.is_some() {
            notifier.report_alive();
        }
    })
}

/// Returns the watchdog timeout of the service manager (`WATCHDOG_USEC`), if it has set one.
fn watchdog_timeout() -> Option<Duration> {
    sd_notify::watchdog_enabled().filter(|period| !period.is_zero())
}

/// The state of the daemon, shown as a status line for people.
#[derive(Debug, Clone, Copy)]
pub(super) struct StatusLine<'a> {
    /// The short id of the served version, and since when it is active, if that is known.
    pub(super) served: Option<(&'a str, Option<&'a str>)>,
    /// The error that keeps a newer version or configuration from being used.
    pub(super) error: Option<&'a str>,
    /// The current or next activity.
    pub(super) next: DaemonActivity,
}

/// The current or next activity of the daemon besides serving.
#[derive(Debug, Clone, Copy)]
pub(super) enum DaemonActivity {
    /// The source is being checked.
    CheckingSource,
    /// A bundle is being imported.
    Importing,
    /// After a release, the version that becomes active is being decided.
    DecidingActiveVersion,
    /// The source will be checked at this time.
    At(SystemTime),
    /// There is no source; files in the inbox are imported.
    Inbox,
    /// Checks are disabled (`staticExport.enabled`).
    Disabled,
    /// There is neither a source nor an inbox that could be opened.
    NoSource,
}

impl fmt::Display for StatusLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.served {
            Some((version, Some(since))) => write!(f, "serving {version} since {since}")?,
            Some((version, None)) => write!(f, "serving {version}")?,
            None => f.write_str("no version yet")?,
        }
        match self.next {
            DaemonActivity::CheckingSource => f.write_str("; checking the source")?,
            DaemonActivity::Importing => f.write_str("; importing")?,
            DaemonActivity::DecidingActiveVersion => f.write_str("; deciding which version is active")?,
            DaemonActivity::At(time) => write!(f, "; next check at {}", format_system_time(time))?,
            DaemonActivity::Inbox => f.write_str("; waiting for the inbox")?,
            DaemonActivity::Disabled => f.write_str("; checks are disabled (staticExport.enabled)")?,
            DaemonActivity::NoSource => f.write_str("; no source and no usable inbox")?,
        }
        match self.error {
            Some(error) => write!(f, "; last error: {error}"),
            None => Ok(()),
        }
    }
}

/// Creates a notifier for the manager whose socket has this path.
#[cfg(test)]
pub(super) fn notifier_to(path: &std::path::Path) -> Notifier {
    let socket = UnixDatagram::unbound().expect("a socket");
    socket.set_nonblocking(true).expect("an option of all sockets");
    let address = parse_address(path.as_os_str()).expect("a short absolute path");
    Notifier(Some(Arc::new(ServiceManager { socket, address, state: Mutex::default() })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_to_a_busy_service_manager_are_queued_without_blocking() {
        let dir = tempfile::tempdir().unwrap();
        let manager = UnixDatagram::bind(dir.path().join("s")).unwrap();
        let notifier = notifier_to(&dir.path().join("s"));
        // More than any queue holds.
        for n in 0..10_000 {
            notifier.status(&n.to_string());
        }
        notifier.ready();
        // Watchdog messages do not displace it.
        for _ in 0..2 * MAX_QUEUED_MESSAGES {
            notifier.report_alive();
        }
        manager.set_nonblocking(true).unwrap();
        let mut received = Vec::new();
        let mut buffer = [0; 2000];
        for _ in 0..2 {
            while let Ok(n) = manager.recv(&mut buffer) {
                received.push(String::from_utf8_lossy(&buffer[..n]).into_owned());
            }
            notifier.report_alive();
        }
        while let Ok(n) = manager.recv(&mut buffer) {
            received.push(String::from_utf8_lossy(&buffer[..n]).into_owned());
        }
        let ready = received.iter().position(|message| message == "READY=1").expect("it was queued");
        assert!(received[..ready].contains(&"STATUS=9999".to_owned()));
        assert_eq!(received.last().unwrap(), "WATCHDOG=1");
    }

    #[test]
    fn status_line_is_sent_only_on_change_and_cannot_inject_another_notification() {
        let dir = tempfile::tempdir().unwrap();
        let manager = UnixDatagram::bind(dir.path().join("s")).unwrap();
        let notifier = notifier_to(&dir.path().join("s"));
        for line in ["one", "one", "two\nREADY=1", "one"] {
            notifier.status(line);
        }
        notifier.stopping();
        manager.set_nonblocking(true).unwrap();
        let mut received = Vec::new();
        let mut buffer = [0; 2000];
        while let Ok(n) = manager.recv(&mut buffer) {
            received.push(String::from_utf8_lossy(&buffer[..n]).into_owned());
        }
        assert_eq!(received, ["STATUS=one", "STATUS=two\\nREADY=1", "STATUS=one", "STOPPING=1\nSTATUS=stopping"]);
    }

    #[test]
    fn notifications_without_a_service_manager_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let notifier = notifier_to(&dir.path().join("missing"));
        notifier.ready();
        notifier.stopping();
        assert!(parse_address(OsStr::new("")).is_none());
        assert!(parse_address(OsStr::new("vsock:2:1")).is_none());
        assert!(parse_address(OsStr::new("@abstract")).is_some());
        assert!(parse_address(OsStr::new(&format!("/{}", "x".repeat(200)))).is_none());
    }

    #[test]
    fn status_line_contains_version_next_activity_and_last_error() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        let served = Some(("0123456789ab", Some("2026-09-21T14:00:00Z")));
        let line = |served, next, error| StatusLine { served, error, next }.to_string();
        assert_eq!(
            line(served, DaemonActivity::At(time), None),
            "serving 0123456789ab since 2026-09-21T14:00:00Z; next check at 2026-09-21T14:13:20Z"
        );
        assert_eq!(line(None, DaemonActivity::CheckingSource, None), "no version yet; checking the source");
        assert_eq!(
            line(served, DaemonActivity::Inbox, Some("it broke")),
            "serving 0123456789ab since 2026-09-21T14:00:00Z; waiting for the inbox; last error: it broke"
        );
    }
}
