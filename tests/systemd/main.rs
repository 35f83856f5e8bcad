//! What the manager that starts `run` is told, and the sockets that it passes: the other side is played by a datagram
//! socket and a shell here; `.ci/extra systemd` does it with a real systemd.

#![allow(missing_docs)]

mod reloads;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use support::host::{Host, bundle, finish, front, text};
use support::tls::{Authority, secure_get};
use support::{Daemon, ReservedPort, http, until};

/// The manager's end of the line.
struct Manager {
    socket: UnixDatagram,
}

impl Manager {
    /// Listens beside the host's files.
    fn beside(host: &Host) -> Manager {
        let socket = UnixDatagram::bind(host.path("notify")).expect("a socket can be made");
        Manager { socket }
    }

    /// Makes a command speak to it; with a watchdog if a period in microseconds is given.
    fn hears(&self, host: &Host, mut command: Command, watchdog: Option<u32>) -> Command {
        command.env("NOTIFY_SOCKET", host.path("notify"));
        if let Some(period) = watchdog {
            command.env("WATCHDOG_USEC", period.to_string());
        }
        command
    }

    /// The next message; none if there is none in time.
    fn next(&self, patience: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(patience)).expect("a time-out can be set");
        let mut buffer = [0; 4096];
        match self.socket.recv(&mut buffer) {
            Ok(n) => Some(String::from_utf8_lossy(&buffer[..n]).into_owned()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
            Err(error) => panic!("the manager cannot listen: {error}"),
        }
    }

    /// Listens until something like this is said; everything up to it.
    #[track_caller]
    fn until(&self, what: &str, mut is: impl FnMut(&str) -> bool) -> Vec<String> {
        let mut heard = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(30);
        while let Some(message) = self.next(deadline.saturating_duration_since(Instant::now()).max(SHORT)) {
            let is_it = is(&message);
            heard.push(message);
            if is_it {
                return heard;
            }
        }
        panic!("waited in vain: {what}; heard {heard:#?}");
    }

    /// The same, for a status line that holds this.
    #[track_caller]
    fn status(&self, part: &str) -> String {
        let heard = self.until(part, |message| message.starts_with("STATUS=") && message.contains(part));
        heard.last().cloned().unwrap_or_default()
    }
}

const SHORT: Duration = Duration::from_millis(1);

/// A host that takes what is put into its inbox.
fn with_inbox() -> Host {
    Host::bare().set("sync.inbox", text("inbox"))
}

fn wait_for_end(daemon: &mut Daemon) {
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
}

#[test]
fn ready_is_said_with_an_empty_store_once_the_sockets_answer() {
    let host = with_inbox();
    let manager = Manager::beside(&host);
    let mut daemon = Daemon::start(&mut manager.hears(&host, host.command(&["run"]), None));
    manager.until("ready", |message| message == "READY=1");
    assert_eq!(http::get(&daemon.address, "/").status, 503);
    assert_eq!(manager.status("no version"), "STATUS=no version yet; waiting for the inbox");
    std::fs::write(host.path("inbox/bundle.zip"), bundle("one")).unwrap();
    let line = manager.status("serving");
    let id = host.active().unwrap();
    let since = host.status()["activeSince"].as_str().unwrap().to_owned();
    assert!(line.starts_with(&format!("STATUS=serving {} since {since}; ", &id[..12])), "{line}");
    wait_for_end(&mut daemon);
    let heard = manager.until("stopping", |message| message.lines().any(|line| line == "STOPPING=1"));
    assert!(!heard.iter().any(|message| message.contains("WATCHDOG")), "nobody asked for it: {heard:?}");
}

#[test]
fn a_start_that_waits_for_the_store_asks_for_time() {
    let host = with_inbox();
    host.put("bundle.zip", bundle("one"));
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
    let lock = std::fs::File::open(host.path("store/lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let manager = Manager::beside(&host);
    let mut command = manager.hears(&host, host.command(&["run"]), None);
    let waiting = std::thread::spawn(move || Daemon::start(&mut command));
    let heard = manager.until("more time", |message| message == "EXTEND_TIMEOUT_USEC=30000000");
    assert!(!heard.contains(&"READY=1".to_owned()), "{heard:?}");
    drop(lock);
    manager.until("ready", |message| message == "READY=1");
    assert_eq!(front(&waiting.join().unwrap()), "one");
}

#[test]
fn a_reload_is_told_with_its_time_and_ends_with_ready() {
    let host = with_inbox();
    let manager = Manager::beside(&host);
    let daemon = Daemon::start(&mut manager.hears(&host, host.command(&["run"]), None));
    manager.until("ready", |message| message == "READY=1");
    let before = uptime();
    daemon.signal("HUP");
    let heard = manager.until("reloading", |message| message.starts_with("RELOADING=1"));
    let message = heard.last().unwrap();
    let time: i128 = message.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect(message).trim().parse().unwrap();
    assert!(time >= before && time <= uptime(), "{before} ≤ {time} ≤ {}", uptime());
    manager.until("ready again", |message| message == "READY=1");
    // A configuration with a mistake is told, and the reload ends all the same.
    host.put("docwharf.toml", "[server]\nlisten = \"nowhere\"\n");
    daemon.signal("HUP");
    manager.until("ready after a mistake", |message| message == "READY=1");
    let line = manager.status("last error");
    assert!(line.contains("server.listen"), "{line}");
    host.write();
    daemon.signal("HUP");
    manager.until("the mistake is gone", |message| message == "STATUS=no version yet; waiting for the inbox");
}

/// Microseconds of the clock that `MONOTONIC_USEC` means.
fn uptime() -> i128 {
    match sd_notify::NotifyState::monotonic_usec_now() {
        Ok(sd_notify::NotifyState::MonotonicUsec(time)) => time,
        other => panic!("no clock: {other:?}"),
    }
}

#[test]
fn a_failed_look_and_the_next_one_are_in_the_status_line() {
    let host = Host::bare().set("staticExport.bundleUrl", text("bundle.zip")).set("sync.interval", text("1h"));
    host.put("bundle.zip", bundle("one"));
    let manager = Manager::beside(&host);
    let _daemon = Daemon::start(&mut manager.hears(&host, host.command(&["run"]), None));
    let line = manager.status("; next look at 20");
    assert!(line.starts_with("STATUS=serving ") && !line.contains("error"), "{line}");
    host.put("bundle.zip", "no archive at all");
    let line = manager.status("; last error: ");
    assert!(line.starts_with("STATUS=serving ") && line.contains("; next look at 20"), "{line}");
    assert_eq!(line.lines().count(), 1);
    host.put("bundle.zip", bundle("two"));
    manager.until("the error is gone", |message| message.contains("next look") && !message.contains("error"));
}

#[test]
fn the_watchdog_is_fed_while_the_server_turns_and_not_when_it_is_stopped() {
    let host = with_inbox();
    let manager = Manager::beside(&host);
    // A busy machine may be late; 300 ms would be a beat each 100 ms.
    let daemon = Daemon::start(&mut manager.hears(&host, host.command(&["run"]), Some(300_000)));
    let begun = Instant::now();
    let mut beats = 0;
    manager.until("ten beats", |message| {
        beats += usize::from(message == "WATCHDOG=1");
        beats == 10
    });
    // The loop of the site and that of the control socket: ten are four periods.
    assert!(begun.elapsed() > Duration::from_millis(200), "ten beats in {:?}", begun.elapsed());
    daemon.signal("STOP");
    until("it stands still", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).unwrap();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    });
    while manager.next(SHORT).is_some() {}
    assert_eq!(manager.next(Duration::from_secs(1)), None, "a process that stands still says nothing");
    daemon.signal("CONT");
    manager.until("a beat", |message| message == "WATCHDOG=1");
}

#[test]
fn a_full_house_is_no_hang() {
    let host = with_inbox();
    let manager = Manager::beside(&host);
    let plain = host.command(&["run"]);
    let mut command = Command::new("sh");
    // 64 are kept back, so that it has room for 16 connections.
    command.args(["-c", "ulimit -n 80; exec \"$@\"", "sh"]).arg(plain.get_program()).args(plain.get_args());
    let daemon = Daemon::start(&mut manager.hears(&host, command, Some(90_000)));
    let mut guests: Vec<_> = (0..16).map(|_| TcpStream::connect(&daemon.address).unwrap()).collect();
    // Who says nothing waits outside.
    for guest in &mut guests {
        guest.write_all(b"GET / HTTP").unwrap();
    }
    guests[15].write_all(b"/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert_eq!(guests[15].read(&mut [0; 100]).unwrap(), 100, "the last one is inside");
    let mut outside = TcpStream::connect(&daemon.address).unwrap();
    outside.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    outside.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(outside.read(&mut [0; 100]).is_err(), "there is no room for another");
    while manager.next(SHORT).is_some() {}
    let mut beats = 0;
    manager.until("beats", |message| {
        beats += usize::from(message == "WATCHDOG=1");
        beats == 5
    });
    drop(guests);
    outside.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert!(outside.read(&mut [0; 100]).unwrap() > 0, "there is room again");
}

#[test]
fn a_stop_is_heard_in_a_full_house() {
    let host = with_inbox();
    let plain = host.command(&["run"]);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 80; exec \"$@\"", "sh"]).arg(plain.get_program()).args(plain.get_args());
    let mut daemon = Daemon::start(&mut command);
    // Half a request each: they stay for half a minute.
    let guests: Vec<_> = (0..17)
        .map(|_| {
            let mut guest = TcpStream::connect(&daemon.address).unwrap();
            guest.write_all(b"GET / HTTP").unwrap();
            guest
        })
        .collect();
    let inside = || std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
    let mut before = 0;
    until("nobody else comes in", || {
        let now = inside();
        std::mem::replace(&mut before, now) == now && now > 16
    });
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(15)), Some(0));
    drop(guests);
}

#[test]
fn another_process_s_watchdog_and_a_manager_that_is_gone_are_left_alone() {
    let host = with_inbox();
    let manager = Manager::beside(&host);
    let mut command = manager.hears(&host, host.command(&["run"]), Some(30_000));
    let mut daemon = Daemon::start(command.env("WATCHDOG_PID", "1"));
    manager.until("ready", |message| message == "READY=1");
    wait_for_end(&mut daemon);
    let heard = manager.until("stopping", |message| message.starts_with("STOPPING=1"));
    assert!(!heard.contains(&"WATCHDOG=1".to_owned()), "{heard:?}");
    drop(manager);
    for name in [host.path("notify").into_os_string(), "@docwharf-nobody".into(), "vsock:2:1".into(), "".into()] {
        let mut command = host.command(&["run"]);
        let mut daemon = Daemon::start(command.env("NOTIFY_SOCKET", &name).env("WATCHDOG_USEC", "30000"));
        assert_eq!(http::get(&daemon.address, "/").status, 503, "{name:?}");
        wait_for_end(&mut daemon);
    }
}

#[test]
fn only_run_speaks_to_the_manager() {
    let host = with_inbox();
    host.put("bundle.zip", bundle("one"));
    let manager = Manager::beside(&host);
    for verb in [&["import", host.path("bundle.zip").to_str().unwrap()][..], &["status"], &["sync"]] {
        finish(&mut manager.hears(&host, host.command(verb), Some(30_000)));
    }
    assert_eq!(manager.next(SHORT), None);
}

/// `run` on descriptor 3 and, as often as there are further names, on the same socket again.
fn run_on(host: &Host, socket: impl Into<OwnedFd>, names: &[&str]) -> Command {
    run_as("$$", host, socket, names)
}

/// The same with sockets that are for the process `pid`; `$$` is the one that is started.
fn run_as(pid: &str, host: &Host, socket: impl Into<OwnedFd>, names: &[&str]) -> Command {
    let plain = host.command(&["run"]);
    let copies: Vec<String> = (0..names.len()).map(|n| format!(" {}<&0", n + 3)).collect();
    let copies = copies.concat();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec{copies} </dev/null; exec env LISTEN_PID={pid} \"$@\""), "sh"]);
    command.arg(format!("LISTEN_FDS={}", names.len()));
    command.arg(format!("LISTEN_FDNAMES={}", names.join(":")));
    command.arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(Stdio::from(socket.into()));
    command
}

fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

#[test]
fn a_socket_that_is_passed_replaces_the_configured_one() {
    // Two daemons could not have the configured one.
    let (_taken, configured) = listener();
    let host = with_inbox().set("server.listen", text(&configured));
    for name in ["http", "", "docwharf.socket"] {
        let (socket, address) = listener();
        let mut daemon = Daemon::start(&mut run_on(&host, socket, &[name]));
        assert_eq!(daemon.address, address, "the address that is announced, for {name:?}");
        assert_eq!(http::get(&address, "/").status, 503, "{name:?}");
        wait_for_end(&mut daemon);
    }
}

#[test]
fn a_socket_named_admin_is_for_the_admin_side() {
    let host = with_inbox();
    let (public, _) = listener();
    let (admin, admin_address) = listener();
    // Both by one descriptor each: the second comes in where standard error was.
    let plain = run_on(&host, public, &["http", "admin"]);
    let arguments = plain.get_args().map(|argument| match argument.to_str() {
        Some(text) if text.starts_with("exec ") => text.replace("4<&0", "4<&2 2>/dev/null").into(),
        _ => argument.to_owned(),
    });
    let mut command = Command::new("sh");
    command.args(arguments.collect::<Vec<std::ffi::OsString>>());
    command.stdin(Stdio::from(OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap())));
    command.stderr(Stdio::from(OwnedFd::from(admin)));
    let daemon = Daemon::start(&mut command);
    assert_ne!(daemon.address, admin_address, "only public addresses are announced");
    assert_eq!(http::get(&daemon.address, "/livez").status, 503, "that is a page of the site");
    until("the admin side answers", || TcpStream::connect(&admin_address).is_ok());
    assert_eq!(http::get(&admin_address, "/livez").text(), "ok\n");
}

#[test]
fn a_socket_named_https_is_encrypted_and_needs_a_certificate() {
    let host = with_inbox().set("server.listen", "[]");
    let ended = finish(&mut run_on(&with_inbox(), listener().0, &["https"])).expect(2);
    assert!(ended.stderr.contains("tls.certFile") && ended.stdout.is_empty(), "{}", ended.stderr);
    let authority = Authority::new();
    let pair = authority.issue(&["docs.example"]);
    host.put("cert.pem", &pair.certificate);
    host.put("key.pem", &pair.key);
    let host = host.set("tls.certFile", text("cert.pem")).set("tls.keyFile", text("key.pem"));
    let (socket, address) = listener();
    let daemon = Daemon::start(&mut run_on(&host, socket, &["https"]));
    assert_eq!(daemon.urls, [format!("https://{address}/")], "nothing is served in the clear");
    let answer = secure_get(&address, &authority.client(&["http/1.1"]), "docs.example", "/", &[]);
    assert_eq!(answer.status, 503, "there is no version yet");
}

#[test]
fn sockets_for_another_process_are_not_taken() {
    let host = with_inbox();
    let (socket, address) = listener();
    let daemon = Daemon::start(&mut run_as("1", &host, socket, &["http"]));
    assert_ne!(daemon.address, address);
}

#[test]
fn a_socket_that_is_none_of_ours_is_one_line_and_8() {
    let host = with_inbox();
    let connected = || {
        let (listener, address) = listener();
        let stream = TcpStream::connect(address).unwrap();
        drop(listener);
        stream
    };
    let cases: [(Command, &str); 4] = [
        (run_on(&host, UdpSocket::bind("127.0.0.1:0").unwrap(), &["http"]), "tcp"),
        (run_on(&host, connected(), &["http"]), "Accept=no"),
        (run_on(&host, std::fs::File::open("/dev/null").unwrap(), &[""]), "not a socket"),
        (run_on(&host, listener().0, &["http", "metrics"]), "FileDescriptorName"),
    ];
    for (mut command, why) in cases {
        let ended = finish(&mut command).expect(8);
        assert_eq!(ended.stdout, "");
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert!(ended.stderr.contains(why) && ended.stderr.contains("descriptor "), "{why}: {}", ended.stderr);
    }
}

#[test]
fn no_connection_is_refused_and_no_request_lost_across_restarts_on_a_socket_that_stays_open() {
    let host = with_inbox();
    host.put("bundle.zip", bundle("one"));
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
    let (socket, address) = listener();
    let again = || Daemon::start(&mut run_on(&host, socket.try_clone().unwrap(), &["http"]));
    let (stop, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut daemon = again();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let response = http::get(&address, "/");
                    assert_eq!((response.status, response.text().as_str()), (200, "<title>one</title>"));
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..5 {
            let before = answered.load(Ordering::Relaxed);
            until("more is answered", || answered.load(Ordering::Relaxed) > before + 50);
            wait_for_end(&mut daemon);
            daemon = again();
        }
        let before = answered.load(Ordering::Relaxed);
        until("the last one answers", || answered.load(Ordering::Relaxed) > before + 50);
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_request_on_its_way_when_the_stop_comes_is_answered() {
    // Nobody else is given the port when the daemon lets it go.
    let port = ReservedPort::new();
    let host = with_inbox().set("server.listen", text(&port.address));
    let manager = Manager::beside(&host);
    let mut daemon = Daemon::start(&mut manager.hears(&host, host.command(&["run"]), None));
    let mut early = TcpStream::connect(&daemon.address).unwrap();
    assert_eq!(http::get(&daemon.address, "/").status, 503);
    daemon.signal("TERM");
    manager.until("it stops", |message| message.starts_with("STOPPING=1"));
    // The line is slow.
    std::thread::sleep(Duration::from_millis(100));
    let _ = early.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    let _ = early.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer:?}");
    until("it has stopped accepting", || TcpStream::connect(&daemon.address).is_err());
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
}

#[test]
fn a_blank_credential_is_no_key_and_keeps_no_host_from_starting() {
    for blank in ["", "\n"] {
        let mut host = with_inbox();
        host.put("api-key", blank);
        let with_credential = |host: &Host, verb: &str| {
            let mut command = host.command(&[verb]);
            command.env("CREDENTIALS_DIRECTORY", host.dir.path());
            command
        };
        // Without [api] nobody asks for one.
        wait_for_end(&mut Daemon::start(&mut with_credential(&host, "run")));
        // With it a person is told what is missing, and the daemon goes on with the inbox.
        host.change("api.baseUrl", text("http://127.0.0.1:9/v1"));
        host.change("api.domain", text("docs.example.com"));
        host.change("sync.probe", "[]");
        let ended = finish(&mut with_credential(&host, "sync")).expect(2);
        assert!(ended.stderr.contains("no API key: set api.keyFile"), "{blank:?}: {}", ended.stderr);
        let manager = Manager::beside(&host);
        let _daemon = Daemon::start(&mut manager.hears(&host, with_credential(&host, "run"), None));
        manager.until("ready", |message| message == "READY=1");
        assert!(manager.status("last error").contains("no API key"));
    }
}

/// What a unit says, without comments.
fn said(unit: &str) -> Vec<&str> {
    unit.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

#[test]
fn the_template_is_the_service_but_for_names() {
    let service = include_str!("../../systemd/docwharf.service");
    let template = include_str!("../../systemd/docwharf@.service");
    let names = [
        ("documentation site %i,", "a documentation site,"),
        ("run --config /etc/docwharf/%i.toml", "run"),
        ("/etc/docwharf/%i.", "/etc/docwharf/"),
        ("User=docwharf-%i\n", ""),
        ("docwharf-%i", "docwharf"),
    ];
    let renamed = names.iter().fold(template.replace(" the documentation", " documentation"), |text, (of, to)| {
        assert!(text.contains(of), "{of}");
        text.replace(of, to)
    });
    assert!(!said(&renamed).iter().any(|line| line.contains('%')), "{renamed}");
    assert_eq!(said(&renamed), said(service));
}
