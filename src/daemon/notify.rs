//! What `run` tells the manager that started it (`sd_notify`): ready, reloading, stopping, how it stands, still alive.
//!
//! Nobody has to listen: without `NOTIFY_SOCKET` nothing is said, and a message that cannot be sent changes nothing.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ffi::OsStr;
use std::fmt;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use sd_notify::NotifyState;

use tokio::time::Instant;

use docwharf_base::chain::OneLine;
use docwharf_base::model::units::show_time;

use super::agent::Agent;

/// What a start that waits for the store asks for, each time.
const MORE_TIME: Duration = Duration::from_secs(30);
/// Messages kept for a manager that does not take them at the moment.
const UNSAID: usize = 16;

/// Speaks to the manager, if there is one. Clones speak to the same.
#[derive(Debug, Clone)]
pub(super) struct Notifier(Option<Arc<Manager>>);

#[derive(Debug)]
struct Manager {
    /// Never blocks: the loop that serves speaks, too.
    socket: UnixDatagram,
    to: SocketAddr,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What is still to be said, oldest first.
    unsaid: VecDeque<String>,
    /// The last status line.
    status: String,
}

impl Notifier {
    /// Speaks to nobody.
    pub(super) fn none() -> Notifier {
        Notifier(None)
    }

    /// Speaks to whom `NOTIFY_SOCKET` names.
    pub(super) fn from_env() -> Notifier {
        let manager = std::env::var_os("NOTIFY_SOCKET").and_then(|name| {
            let to = address(&name)?;
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?;
            Some(Arc::new(Manager { socket, to, state: Mutex::default() }))
        });
        Notifier(manager)
    }

    /// The sockets answer.
    pub(super) fn ready(&self) {
        self.say(&[NotifyState::Ready]);
    }

    /// What was configured is read again; [`Notifier::ready`] ends it. The time lets the manager tell this reload from
    /// one before it.
    pub(super) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(time) => self.say(&[NotifyState::Reloading, time]),
            Err(_) => self.say(&[NotifyState::Reloading]),
        }
    }

    /// It is about to end.
    pub(super) fn stopping(&self) {
        self.say(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
    }

    /// How it stands, on one line; said only if it has changed.
    pub(super) fn status(&self, line: &str) {
        let Some(manager) = &self.0 else { return };
        let line = OneLine(line).to_string();
        let mut state = manager.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.status != line {
            manager.queue(&mut state, &[NotifyState::Status(&line)]);
            state.status = line;
        }
    }

    /// It is alive. Whatever could not be said before is said first.
    pub(super) fn beat(&self) {
        self.say(&[NotifyState::Watchdog]);
    }

    /// Says again and again that a start takes longer, until it is dropped.
    pub(super) async fn ask_for_time(&self) -> Infallible {
        let micros = u32::try_from(MORE_TIME.as_micros()).unwrap_or(u32::MAX);
        loop {
            self.say(&[NotifyState::ExtendTimeoutUsec(micros)]);
            tokio::time::sleep(MORE_TIME / 3).await;
        }
    }

    fn say(&self, states: &[NotifyState<'_>]) {
        if let Some(manager) = &self.0 {
            manager.queue(&mut manager.state.lock().unwrap_or_else(PoisonError::into_inner), states);
        }
    }
}

impl Manager {
    /// Sends what is still unsaid, and then `states` as one message. What a manager that is busy does not take waits for
    /// the next time; where there is none (any more), it is forgotten.
    fn queue(&self, state: &mut State, states: &[NotifyState<'_>]) {
        let lines: Vec<String> = states.iter().map(ToString::to_string).collect();
        let message = lines.join("\n");
        // Beats do not push out what came before them.
        if state.unsaid.back() != Some(&message) {
            state.unsaid.push_back(message);
        }
        if state.unsaid.len() > UNSAID {
            state.unsaid.pop_front();
        }
        while let Some(message) = state.unsaid.front() {
            match self.socket.send_to_addr(message.as_bytes(), &self.to) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                _ => state.unsaid.pop_front(),
            };
        }
    }
}

/// A path, or `@` and a name without a file.
fn address(name: &OsStr) -> Option<SocketAddr> {
    match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest).ok(),
        [b'/', ..] => SocketAddr::from_pathname(name).ok(),
        _ => None,
    }
}

/// How long the manager waits for a sign of life, if it does.
pub(super) fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled().filter(|period| !period.is_zero())
}

/// How the daemon stands, for people.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing<'a> {
    /// What is served: the version's short id, and since when, if that is known.
    pub(super) shown: Option<(&'a str, Option<&'a str>)>,
    /// Why nothing newer is there.
    pub(super) error: Option<&'a str>,
    /// What it is doing, or will do.
    pub(super) next: Next,
}

/// What comes next.
#[derive(Debug, Clone, Copy)]
pub(super) enum Next {
    /// It looks for something new at this moment.
    Looking,
    /// It imports a file at this moment.
    Importing,
    /// It will look at this time.
    At(SystemTime),
    /// It takes what is put into the inbox.
    Inbox,
    /// It looks for nothing.
    Nothing,
}

impl fmt::Display for Standing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shown {
            Some((version, Some(since))) => write!(f, "serving {version} since {since}")?,
            Some((version, None)) => write!(f, "serving {version}")?,
            None => f.write_str("no version yet")?,
        }
        match self.next {
            Next::Looking => f.write_str("; looking for a new one")?,
            Next::Importing => f.write_str("; importing")?,
            Next::At(time) => write!(f, "; next look at {}", show_time(time))?,
            Next::Inbox => f.write_str("; waiting for the inbox")?,
            Next::Nothing => f.write_str("; looking for nothing")?,
        }
        match self.error {
            Some(error) => write!(f, "; last error: {error}"),
            None => Ok(()),
        }
    }
}

impl Agent {
    /// Tells the manager how it stands.
    pub(super) fn tell_standing(&mut self) {
        if self.since.as_ref().map(|(id, _)| *id) != self.shown {
            let record = self.writer.store().record().ok();
            let since = |id| record.and_then(|record| record.active_since.filter(|_| record.active == Some(id)));
            self.since = self.shown.map(|id| (id, since(id)));
        }
        let intent = &self.config.intent;
        let next = match self.running.as_ref().map(|running| running.is_import) {
            Some(true) => Next::Importing,
            _ if !intent.enabled => Next::Nothing,
            _ if !intent.has_source() && self.inbox.is_none() => Next::Nothing,
            _ if !intent.has_source() => Next::Inbox,
            Some(false) => Next::Looking,
            None => match self.agenda.next.0.saturating_duration_since(Instant::now()) {
                Duration::ZERO => Next::Looking,
                wait => Next::At(self.agenda.scheduled.unwrap_or_else(|| SystemTime::now() + wait)),
            },
        };
        let short = self.since.as_ref().map(|(id, since)| (id.short(), since.as_deref()));
        let tls = self.tls_trouble();
        let standing = Standing {
            shown: short.as_ref().map(|(short, since)| (short.as_ref(), *since)),
            error: (self.config_error.as_deref())
                .or(tls.as_deref())
                .or(self.inbox_error.as_deref())
                .or(self.last_error.as_deref()),
            next,
        };
        self.notifier.status(&standing.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(path: &std::path::Path) -> Notifier {
        let socket = UnixDatagram::unbound().unwrap();
        socket.set_nonblocking(true).unwrap();
        let to = address(path.as_os_str()).unwrap();
        Notifier(Some(Arc::new(Manager { socket, to, state: Mutex::default() })))
    }

    #[test]
    fn what_a_busy_manager_does_not_take_is_said_later_and_blocks_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let manager = UnixDatagram::bind(dir.path().join("s")).unwrap();
        let notifier = to(&dir.path().join("s"));
        // More than any queue holds.
        for n in 0..10_000 {
            notifier.status(&n.to_string());
        }
        notifier.ready();
        manager.set_nonblocking(true).unwrap();
        let mut heard = Vec::new();
        let mut buffer = [0; 2000];
        for _ in 0..2 {
            while let Ok(n) = manager.recv(&mut buffer) {
                heard.push(String::from_utf8_lossy(&buffer[..n]).into_owned());
            }
            notifier.beat();
        }
        while let Ok(n) = manager.recv(&mut buffer) {
            heard.push(String::from_utf8_lossy(&buffer[..n]).into_owned());
        }
        let ready = heard.iter().position(|message| message == "READY=1").expect("it was kept");
        assert!(heard[..ready].contains(&"STATUS=9999".to_owned()));
        assert_eq!(heard.last().unwrap(), "WATCHDOG=1");
    }

    #[test]
    fn a_manager_that_is_not_there_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let notifier = to(&dir.path().join("nobody"));
        notifier.ready();
        notifier.stopping();
        assert!(address(OsStr::new("")).is_none());
        assert!(address(OsStr::new("vsock:2:1")).is_none());
        assert!(address(OsStr::new("@abstract")).is_some());
        assert!(address(OsStr::new(&format!("/{}", "x".repeat(200)))).is_none());
    }

    #[test]
    fn a_standing_is_one_line_for_people() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        let shown = Some(("0123456789ab", Some("2026-09-21T14:00:00Z")));
        let of = |shown, next, error| Standing { shown, error, next }.to_string();
        assert_eq!(
            of(shown, Next::At(at), None),
            "serving 0123456789ab since 2026-09-21T14:00:00Z; next look at 2026-09-21T14:13:20Z"
        );
        assert_eq!(of(None, Next::Looking, None), "no version yet; looking for a new one");
        assert_eq!(
            of(shown, Next::Inbox, Some("it broke")),
            "serving 0123456789ab since 2026-09-21T14:00:00Z; waiting for the inbox; last error: it broke"
        );
    }
}
