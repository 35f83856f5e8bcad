//! The messages of `run` to the service manager, and the sockets that the manager passes. A datagram socket and a shell
//! stand in for the manager here; `.ci/extra systemd` tests with a real systemd.

#![allow(clippy::disallowed_methods)] // it connects to servers of its own
#![allow(missing_docs)]

mod assistant_reloads;
mod reloads;
mod stored_sockets;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use support::host::{Host, bundle, front_page_title, run_with_timeout, toml_string};
use support::service_manager::TestServiceManager;
use support::tls::{CertificateAuthority, https_get, peer_certificate, tls_handshake};
use support::{Daemon, ReservedPort, http, open_descriptors, response_after_stop, until};

/// Creates a host that imports bundles from its inbox.
fn host_with_inbox() -> Host {
    Host::bare().set("sync.inbox", toml_string("inbox"))
}

fn stop(daemon: &mut Daemon) {
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
}

#[test]
fn run_notifies_ready_with_an_empty_store_once_its_sockets_are_open() {
    let host = host_with_inbox();
    let manager = TestServiceManager::new(&host);
    let mut daemon = Daemon::start(&mut manager.connect(&host, host.command(&["run"]), None));
    manager.until("ready", |message| message == "READY=1");
    assert_eq!(http::get(&daemon.address, "/").status, 503);
    assert_eq!(manager.status("no version"), "STATUS=no version yet; waiting for the inbox");
    std::fs::write(host.path("inbox/bundle.zip"), bundle("one")).unwrap();
    let line = manager.status("serving");
    let id = host.active().unwrap();
    let since = host.status()["activeSince"].as_str().unwrap().to_owned();
    assert!(line.starts_with(&format!("STATUS=serving {} since {since}; ", &id[..12])), "{line}");
    stop(&mut daemon);
    let messages = manager.until("stopping", |message| message.lines().any(|line| line == "STOPPING=1"));
    assert!(!messages.iter().any(|message| message.contains("WATCHDOG")), "no watchdog was requested: {messages:?}");
}

#[test]
fn a_start_that_waits_for_the_store_lock_extends_the_systemd_timeout() {
    let host = host_with_inbox();
    host.put("bundle.zip", bundle("one"));
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
    let lock = std::fs::File::open(host.path("store/lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let manager = TestServiceManager::new(&host);
    let mut command = manager.connect(&host, host.command(&["run"]), None);
    let starting = std::thread::spawn(move || Daemon::start(&mut command));
    let messages = manager.until("more time", |message| message == "EXTEND_TIMEOUT_USEC=30000000");
    assert!(!messages.contains(&"READY=1".to_owned()), "{messages:?}");
    assert!(messages.contains(&"STATUS=opening the store".to_owned()), "{messages:?}");
    drop(lock);
    manager.until("ready", |message| message == "READY=1");
    assert_eq!(front_page_title(&starting.join().unwrap()), "one");
}

#[test]
fn a_reload_notifies_reloading_with_its_time_and_then_ready() {
    let host = host_with_inbox();
    let manager = TestServiceManager::new(&host);
    let daemon = Daemon::start(&mut manager.connect(&host, host.command(&["run"]), None));
    manager.until("ready", |message| message == "READY=1");
    let before = uptime();
    daemon.signal("HUP");
    let messages = manager.until("reloading", |message| message.starts_with("RELOADING=1"));
    let message = messages.last().unwrap();
    let time: i128 = message.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect(message).trim().parse().unwrap();
    assert!(time >= before && time <= uptime(), "{before} ≤ {time} ≤ {}", uptime());
    manager.until("ready again", |message| message == "READY=1");
    // An invalid configuration is reported, and the reload ends all the same.
    host.put("docwharf.toml", "[server]\nlisten = \"nowhere\"\n");
    daemon.signal("HUP");
    manager.until("ready after a mistake", |message| message == "READY=1");
    let line = manager.status("last error");
    assert!(line.contains("server.listen"), "{line}");
    host.write();
    daemon.signal("HUP");
    manager.until("the mistake is gone", |message| message == "STATUS=no version yet; waiting for the inbox");
}

/// Returns the time of the clock of `MONOTONIC_USEC` in microseconds.
fn uptime() -> i128 {
    match sd_notify::NotifyState::monotonic_usec_now() {
        Ok(sd_notify::NotifyState::MonotonicUsec(time)) => time,
        state => panic!("no clock: {state:?}"),
    }
}

#[test]
fn the_systemd_status_line_has_the_last_error_and_the_next_check() {
    let host =
        Host::bare().set("staticExport.bundleUrl", toml_string("bundle.zip")).set("sync.interval", toml_string("1h"));
    host.put("bundle.zip", bundle("one"));
    let manager = TestServiceManager::new(&host);
    let _daemon = Daemon::start(&mut manager.connect(&host, host.command(&["run"]), None));
    let line = manager.status("; next check at 20");
    assert!(line.starts_with("STATUS=serving ") && !line.contains("error"), "{line}");
    host.put("bundle.zip", "no archive at all");
    let line = manager.status("; last error: ");
    assert!(line.starts_with("STATUS=serving ") && line.contains("; next check at 20"), "{line}");
    assert_eq!(line.lines().count(), 1);
    host.put("bundle.zip", bundle("two"));
    manager.until("the error is gone", |message| message.contains("next check") && !message.contains("error"));
}

// Regression: each core's loop notified the watchdog, instead of one notification a period, so more cores sent more of
// them.
#[test]
fn the_watchdog_is_notified_while_the_server_runs_and_not_while_stopped() {
    let host = host_with_inbox();
    let manager = TestServiceManager::new(&host);
    // A busy machine may be late; with 300 ms, a message is sent every 100 ms.
    let daemon = Daemon::start(&mut manager.connect(&host, host.command(&["run"]), Some(300_000)));
    // Messages of the time before do not count.
    manager.discard_arrived();
    let started = Instant::now();
    let mut beats = Vec::new();
    manager.until("ten beats", |message| {
        beats.extend((message == "WATCHDOG=1").then(Instant::now));
        beats.len() == 10
    });
    // The loops of the site and of the control socket send messages: ten messages take four periods.
    assert!(started.elapsed() > Duration::from_millis(200), "ten beats in {:?}", started.elapsed());
    // One that is late is not followed by a longer pause: at least two follow each other within the period.
    let shortest = beats.windows(2).map(|pair| pair[1] - pair[0]).min();
    assert!(shortest < Some(Duration::from_millis(200)), "a third of the period, not {shortest:?}");
    daemon.signal("STOP");
    until("it is stopped", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).unwrap();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    });
    manager.discard_arrived();
    assert_eq!(manager.next(Duration::from_secs(1)), None, "a stopped process sends nothing");
    daemon.signal("CONT");
    manager.until("a beat", |message| message == "WATCHDOG=1");
}

#[test]
fn the_watchdog_is_notified_at_the_connection_limit() {
    let host = host_with_inbox();
    let manager = TestServiceManager::new(&host);
    let plain = host.command(&["run"]);
    let mut command = Command::new("sh");
    // docwharf reserves 64 descriptors, so 16 are left for connections.
    command.args(["-c", "ulimit -n 80; exec \"$@\"", "sh"]).arg(plain.get_program()).args(plain.get_args());
    let daemon = Daemon::start(&mut manager.connect(&host, command, Some(90_000)));
    let mut clients: Vec<_> = (0..16).map(|_| TcpStream::connect(&daemon.address).unwrap()).collect();
    // A connection without data would not be accepted.
    for client in &mut clients {
        client.write_all(b"GET / HTTP").unwrap();
    }
    clients[15].write_all(b"/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert_eq!(clients[15].read(&mut [0; 100]).unwrap(), 100, "the last connection is accepted");
    let mut waiting = TcpStream::connect(&daemon.address).unwrap();
    waiting.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    waiting.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(waiting.read(&mut [0; 100]).is_err(), "no further connection is accepted");
    manager.discard_arrived();
    let mut beats = 0;
    manager.until("beats", |message| {
        beats += usize::from(message == "WATCHDOG=1");
        beats == 5
    });
    drop(clients);
    waiting.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert!(waiting.read(&mut [0; 100]).unwrap() > 0, "it is accepted once others have ended");
}

// Regression: a server at its limit of connections did not notice a stop before one of them had ended.
#[test]
fn sigterm_is_handled_at_the_connection_limit() {
    let host = host_with_inbox();
    let plain = host.command(&["run"]);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 80; exec \"$@\"", "sh"]).arg(plain.get_program()).args(plain.get_args());
    let mut daemon = Daemon::start(&mut command);
    // Each sends half a request, so its connection stays open for 30 seconds.
    let clients: Vec<_> = (0..17)
        .map(|_| {
            let mut client = TcpStream::connect(&daemon.address).unwrap();
            client.write_all(b"GET / HTTP").unwrap();
            client
        })
        .collect();
    let mut before = 0;
    until("no further connection is accepted", || {
        let now = open_descriptors(daemon.pid());
        std::mem::replace(&mut before, now) == now && now > 16
    });
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
    drop(clients);
}

#[test]
fn a_watchdog_of_another_process_and_an_absent_manager_are_ignored() {
    let host = host_with_inbox();
    let manager = TestServiceManager::new(&host);
    let mut command = manager.connect(&host, host.command(&["run"]), Some(30_000));
    let mut daemon = Daemon::start(command.env("WATCHDOG_PID", "1"));
    manager.until("ready", |message| message == "READY=1");
    stop(&mut daemon);
    let messages = manager.until("stopping", |message| message.starts_with("STOPPING=1"));
    assert!(!messages.contains(&"WATCHDOG=1".to_owned()), "{messages:?}");
    drop(manager);
    for name in [host.path("notify").into_os_string(), "@docwharf-nobody".into(), "vsock:2:1".into(), "".into()] {
        let mut command = host.command(&["run"]);
        let mut daemon = Daemon::start(command.env("NOTIFY_SOCKET", &name).env("WATCHDOG_USEC", "30000"));
        assert_eq!(http::get(&daemon.address, "/").status, 503, "{name:?}");
        stop(&mut daemon);
    }
}

#[test]
fn only_run_sends_messages_to_the_service_manager() {
    let host = host_with_inbox();
    host.put("bundle.zip", bundle("one"));
    let manager = TestServiceManager::new(&host);
    for verb in [&["import", host.path("bundle.zip").to_str().unwrap()][..], &["status"], &["sync"]] {
        run_with_timeout(&mut manager.connect(&host, host.command(verb), Some(30_000)));
    }
    assert_eq!(manager.next_arrived(), None);
}

/// Makes a command that starts `run` with a socket as descriptor 3; each further name passes the same socket again.
fn run_on(host: &Host, socket: impl Into<OwnedFd>, names: &[&str]) -> Command {
    run_with_listen_pid("$$", host, socket, names)
}

/// Makes a command like [`run_on`], with sockets for the process `pid`; `$$` is the started process.
fn run_with_listen_pid(pid: &str, host: &Host, socket: impl Into<OwnedFd>, names: &[&str]) -> Command {
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
    // The configured address is in use, so a daemon that needs it would fail.
    let (_taken, configured) = listener();
    let host = host_with_inbox().set("server.listen", toml_string(&configured));
    for name in ["http", "", "docwharf.socket"] {
        let (socket, address) = listener();
        let mut daemon = Daemon::start(&mut run_on(&host, socket, &[name]));
        assert_eq!(daemon.address, address, "the address that is announced, for {name:?}");
        assert_eq!(http::get(&address, "/").status, 503, "{name:?}");
        stop(&mut daemon);
    }
}

#[test]
fn a_passed_socket_named_admin_is_the_admin_listener() {
    let host = host_with_inbox();
    let (public, _) = listener();
    let (admin, admin_address) = listener();
    // Two different sockets: the second one is passed as standard error, which the shell moves to descriptor 4.
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
    assert_eq!(http::get(&daemon.address, "/livez").status, 503, "the site answers this path");
    until("the admin side answers", || TcpStream::connect(&admin_address).is_ok());
    assert_eq!(http::get(&admin_address, "/livez").text(), "ok\n");
}

#[test]
fn a_passed_socket_named_staged_serves_the_staged_version() {
    let (_taken, configured) = listener();
    let host =
        Host::bare().set("activate.mode", toml_string("manual")).set("activate.listen", toml_string(&configured));
    host.put("bundle.zip", bundle("one"));
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
    let (socket, address) = listener();
    let daemon = Daemon::start(&mut run_on(&host, socket, &["staged"]));
    assert_ne!(daemon.address, address, "only public addresses are announced");
    until("the version that waits is shown", || http::get(&address, "/").status == 200);
    assert_eq!(http::get(&address, "/").text(), "<title>one</title>");
    assert_eq!(http::get(&daemon.address, "/").status, 503);
}

#[test]
fn the_store_records_whether_the_last_daemon_ended_cleanly() {
    let host = host_with_inbox();
    host.put("bundle.zip", bundle("one"));
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
    let is_marked = || {
        let scrub_log = std::fs::read_to_string(host.path("store/scrub.json")).unwrap_or_default();
        scrub_log.contains("\"running\": \"")
    };
    let reports = || host.log().matches("did not end cleanly").count();
    for signal in ["TERM", "INT"] {
        let mut daemon = host.run_logged();
        until("the start is recorded", is_marked);
        daemon.signal(signal);
        assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0), "{signal}");
        assert!(!is_marked(), "{signal}");
    }
    let daemon = host.run_logged();
    until("the start is recorded", is_marked);
    assert_eq!(reports(), 0, "{}", host.log());
    drop(daemon); // by SIGKILL
    assert!(is_marked());
    let _daemon = host.run_logged();
    until("the kill is reported", || reports() == 1);
}

#[test]
fn sighup_loads_a_changed_certificate_even_if_the_configuration_is_invalid() {
    let authority = CertificateAuthority::new();
    let host = host_with_inbox().set("tls.listen", toml_string("127.0.0.1:0"));
    let put_pair = |host: &Host| {
        let pair = authority.issue(&["docs.example"]);
        host.put("cert.pem", &pair.certificate);
        host.put("key.pem", &pair.key);
    };
    put_pair(&host);
    let mut host = host.set("tls.certFile", toml_string("cert.pem")).set("tls.keyFile", toml_string("key.pem"));
    let daemon = Daemon::start_with_addresses(&mut host.command(&["run"]), 2);
    let client = authority.client(&["http/1.1"]);
    let certificate = || {
        let stream = tls_handshake(daemon.address_of(1), &client, "docs.example").expect("a handshake");
        peer_certificate(&stream)
    };
    let before = certificate();
    host.change("sync.keep", "-1");
    put_pair(&host);
    // The signal arrives before the changed files have been noticed without it.
    daemon.signal("HUP");
    until("the new certificate is in force", || certificate() != before);
}

#[test]
fn a_passed_socket_named_https_uses_tls_and_needs_a_certificate() {
    let host = host_with_inbox().set("server.listen", "[]");
    let ended = run_with_timeout(&mut run_on(&host_with_inbox(), listener().0, &["https"])).expect(2);
    assert!(ended.stderr.contains("tls.certFile") && ended.stdout.is_empty(), "{}", ended.stderr);
    let authority = CertificateAuthority::new();
    let pair = authority.issue(&["docs.example"]);
    host.put("cert.pem", &pair.certificate);
    host.put("key.pem", &pair.key);
    let host = host.set("tls.certFile", toml_string("cert.pem")).set("tls.keyFile", toml_string("key.pem"));
    let (socket, address) = listener();
    let daemon = Daemon::start(&mut run_on(&host, socket, &["https"]));
    assert_eq!(daemon.urls, [format!("https://{address}/")], "nothing is served in the clear");
    let response = https_get(&address, &authority.client(&["http/1.1"]), "docs.example", "/", &[]);
    assert_eq!(response.status, 503, "there is no version yet");
}

#[test]
fn sockets_for_another_process_are_not_taken() {
    let host = host_with_inbox();
    let (socket, address) = listener();
    let daemon = Daemon::start(&mut run_with_listen_pid("1", &host, socket, &["http"]));
    assert_ne!(daemon.address, address);
}

#[test]
fn an_unsuitable_passed_socket_prints_one_line_and_exits_with_8() {
    let host = host_with_inbox();
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
    for (mut command, reason) in cases {
        let ended = run_with_timeout(&mut command).expect(8);
        assert_eq!(ended.stdout, "");
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert!(ended.stderr.contains(reason) && ended.stderr.contains("descriptor "), "{reason}: {}", ended.stderr);
    }
}

#[test]
fn restarts_on_a_passed_socket_refuse_no_connection_and_lose_no_request() {
    let host = host_with_inbox();
    host.put("bundle.zip", bundle("one"));
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
    let (socket, address) = listener();
    let start = || Daemon::start(&mut run_on(&host, socket.try_clone().unwrap(), &["http"]));
    let (is_ended, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut daemon = start();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_ended.load(Ordering::Relaxed) {
                    let response = http::get(&address, "/");
                    assert_eq!((response.status, response.text().as_str()), (200, "<title>one</title>"));
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..5 {
            let before = answered.load(Ordering::Relaxed);
            until("more requests are answered", || answered.load(Ordering::Relaxed) > before + 50);
            stop(&mut daemon);
            daemon = start();
        }
        let before = answered.load(Ordering::Relaxed);
        until("the last daemon answers", || answered.load(Ordering::Relaxed) > before + 50);
        is_ended.store(true, Ordering::Relaxed);
    });
}

// Regression: a request that arrived while the server stopped was lost, also where the socket outlived the server.
#[test]
fn a_request_that_arrives_during_the_shutdown_is_answered() {
    // No other process gets the port when the daemon closes its socket.
    let port = ReservedPort::new();
    let host = host_with_inbox().set("server.listen", toml_string(&port.address));
    let manager = TestServiceManager::new(&host);
    let attempt = || {
        let mut daemon = Daemon::start(&mut manager.connect(&host, host.command(&["run"]), None));
        let mut connection = TcpStream::connect(&daemon.address).unwrap();
        assert_eq!(http::get(&daemon.address, "/").status, 503);
        let signalled = Instant::now();
        daemon.signal("TERM");
        manager.until("it stops", |message| message.starts_with("STOPPING=1"));
        // The request arrives late, as over a slow network.
        std::thread::sleep(Duration::from_millis(100));
        let _ = connection.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let delay = signalled.elapsed();
        let mut response = String::new();
        let _ = connection.read_to_string(&mut response);
        until("it has stopped accepting", || TcpStream::connect(&daemon.address).is_err());
        assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
        // The next daemon has the same manager.
        manager.discard_arrived();
        (delay, response)
    };
    let is_answered = |response: &String| response.starts_with("HTTP/1.1 503 ");
    let response = response_after_stop(attempt, is_answered);
    assert!(is_answered(&response), "{response:?}");
}

#[test]
fn a_blank_api_key_credential_counts_as_missing_and_does_not_prevent_the_start() {
    for blank in ["", "\n"] {
        let mut host = host_with_inbox();
        host.put("api-key", blank);
        let with_credential = |host: &Host, verb: &str| {
            let mut command = host.command(&[verb]);
            command.env("CREDENTIALS_DIRECTORY", host.dir.path());
            command
        };
        // Without [api] no key is needed.
        stop(&mut Daemon::start(&mut with_credential(&host, "run")));
        // With [api], commands report that the key is missing, and the daemon continues with the inbox.
        host.change("api.baseUrl", toml_string("http://127.0.0.1:9/v1"));
        host.change("api.domain", toml_string("docs.example.com"));
        host.change("sync.probe", "[]");
        let ended = run_with_timeout(&mut with_credential(&host, "sync")).expect(2);
        assert!(ended.stderr.contains("no API key: set api.keyFile"), "{blank:?}: {}", ended.stderr);
        let manager = TestServiceManager::new(&host);
        let _daemon = Daemon::start(&mut manager.connect(&host, with_credential(&host, "run"), None));
        manager.until("ready", |message| message == "READY=1");
        assert!(manager.status("last error").contains("no API key"));
    }
}

/// Returns the settings of a unit, without comments.
fn settings(unit: &str) -> Vec<&str> {
    unit.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

#[test]
fn the_template_unit_differs_from_the_service_unit_only_in_names() {
    let service = include_str!("../../systemd/docwharf.service");
    let template = include_str!("../../systemd/docwharf@.service");
    let names = [
        ("documentation site %i,", "a documentation site,"),
        ("run --config /etc/docwharf/%i.toml", "run"),
        ("/etc/docwharf/%i.", "/etc/docwharf/"),
        ("User=docwharf-%i\n", ""),
        ("docwharf-%i", "docwharf"),
    ];
    let renamed = names.iter().fold(
        template.replace(" the documentation", " documentation"),
        |text, (template_name, service_name)| {
            assert!(text.contains(template_name), "{template_name}");
            text.replace(template_name, service_name)
        },
    );
    assert!(!settings(&renamed).iter().any(|line| line.contains('%')), "{renamed}");
    assert_eq!(settings(&renamed), settings(service));
}
