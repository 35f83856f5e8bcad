//! What TLS towards readers is promised: who is agreed with, which pairs are refused, how one is exchanged, and bad company.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use rustls::{ClientConfig, ProtocolVersion};
use support::h2::{self, Answer};
use support::host::{Host, bundle, finish, judged, text};
use support::http::{self, connect, get, parse, raw};
use support::tls::{Authority, Issued, Secure, certificate_of, secure_get, shake};
use support::{Daemon, docwharf, folder, run, until, write_site};

const NAME: &str = "docs.example";
const SMALL: [(&str, &str); 2] = [("index.html", "<p>home"), ("a.txt", "content of a")];

/// Puts a pair beside each other.
fn lay(dir: &Path, pair: &Issued) {
    std::fs::write(dir.join("cert.pem"), &pair.certificate).expect("files can be written");
    std::fs::write(dir.join("key.pem"), &pair.key).expect("files can be written");
}

/// A site under a certificate of this authority.
fn secured(authority: &Authority, listen: &[&str]) -> (tempfile::TempDir, Daemon) {
    let dir = folder();
    write_site(&dir.path().join("site"), &SMALL);
    lay(dir.path(), &authority.issue(&[NAME]));
    let daemon = Daemon::start_at(
        docwharf()
            .current_dir(dir.path())
            .args(["serve", "site", "--tls-cert", "cert.pem", "--tls-key", "key.pem"])
            .args(listen.iter().flat_map(|address| ["--listen", address])),
        listen.len(),
    );
    (dir, daemon)
}

/// `run` on a bundle, encrypted.
fn host(pair: &Issued) -> Host {
    let host = Host::bare();
    host.put("bundle.zip", bundle("one"));
    host.put("cert.pem", &pair.certificate);
    host.put("key.pem", &pair.key);
    host.set("staticExport.bundleUrl", text("bundle.zip"))
        .set("sync.interval", text("1h"))
        .set("server.listen", "[]")
        .set("tls.listen", text("127.0.0.1:0"))
        .set("tls.certFile", text("cert.pem"))
        .set("tls.keyFile", text("key.pem"))
}

fn ready(host: &Host, client: &Arc<ClientConfig>) -> Daemon {
    let daemon = host.run();
    until("the site is served", || secure_get(&daemon.address, client, NAME, "/", &[]).status == 200);
    daemon
}

fn descriptors(daemon: &Daemon) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).expect("the process lives").count()
}

#[test]
fn a_reader_is_answered_over_tls_with_the_protocol_that_was_agreed_on() {
    let authority = Authority::new();
    let (_dir, daemon) = secured(&authority, &["127.0.0.1:0"]);
    assert!(daemon.urls[0].starts_with("https://127.0.0.1:"), "{:?}", daemon.urls);
    for (offered, agreed) in [
        (&["h2", "http/1.1"][..], Some(&b"h2"[..])),
        (&["http/1.1", "h2"], Some(b"h2")),
        (&["http/1.1"], Some(b"http/1.1")),
        (&[], None),
    ] {
        let stream = shake(&daemon.address, &authority.client(offered), NAME).expect("a handshake");
        assert_eq!(stream.conn.alpn_protocol(), agreed, "{offered:?}");
        assert_eq!(stream.conn.protocol_version(), Some(ProtocolVersion::TLSv1_3));
        if agreed == Some(b"h2") {
            let socket = stream.sock.try_clone().expect("a descriptor");
            let mut client = h2::Client::over(Box::new(stream), socket, 1 << 20);
            let body = b"content of a".to_vec();
            assert_eq!(client.get("/a.txt", &[]), Answer::Response { status: 200, body });
        } else {
            let answer = secure_get(&daemon.address, &authority.client(offered), NAME, "/a.txt", &[]);
            assert_eq!((answer.status, answer.text()), (200, "content of a".to_owned()));
            assert_eq!(answer.header("strict-transport-security"), None, "it was not asked for");
        }
    }
    // Who has agreed on HTTP/1.1 speaks no HTTP/2: its first frame would be SETTINGS.
    let mut stream = shake(&daemon.address, &authority.client(&["http/1.1"]), NAME).expect("a handshake");
    let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &h2::frame(h2::SETTINGS, 0, 0, &[])[..]].concat();
    stream.write_all(&preface).expect("the server reads");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 "), "{:?}", String::from_utf8_lossy(&answer));
    // Neither protocol: no agreement, and no guess.
    assert!(shake(&daemon.address, &authority.client(&["spdy/3"]), NAME).is_err());
    // Who trusts somebody else is not answered.
    assert!(shake(&daemon.address, &Authority::new().client(&[]), NAME).is_err());
}

#[test]
fn several_listeners_and_ipv6_are_announced_as_they_answer() {
    let authority = Authority::new();
    // A machine without IPv6 has nothing to bind to.
    let listen =
        if TcpListener::bind("[::1]:0").is_ok() { vec!["127.0.0.1:0", "[::1]:0"] } else { vec!["127.0.0.1:0"] };
    let (_dir, daemon) = secured(&authority, &listen);
    let client = authority.client(&["http/1.1"]);
    for n in 0..listen.len() {
        assert!(daemon.urls[n].starts_with("https://"), "{:?}", daemon.urls);
        assert_eq!(secure_get(daemon.at(n), &client, NAME, "/a.txt", &[]).text(), "content of a");
    }
    let host = host(&authority.issue(&[NAME])).set("server.listen", text("127.0.0.1:0"));
    let daemon = Daemon::start_at(&mut host.command(&["run"]), 2);
    let schemes: Vec<&str> = daemon.urls.iter().filter_map(|url| url.split("://").next()).collect();
    assert_eq!(schemes, ["http", "https"]);
    until("both answer", || {
        get(daemon.at(0), "/").status == 200 && secure_get(daemon.at(1), &client, NAME, "/", &[]).status == 200
    });
}

#[test]
fn hsts_goes_to_those_who_use_https_and_to_nobody_else() {
    let authority = Authority::new();
    let host = host(&authority.issue(&[NAME]))
        .set("server.listen", text("127.0.0.1:0"))
        .set("server.trustedProxies", text("127.0.0.1"))
        .set("tls.hsts", text("365d"));
    let daemon = Daemon::start_at(&mut host.command(&["run"]), 2);
    let client = authority.client(&["http/1.1"]);
    until("it is served", || get(daemon.at(0), "/").status == 200);
    let age = Some("max-age=31536000");
    for target in ["/", "/missing", "/missing.js"] {
        assert_eq!(secure_get(daemon.at(1), &client, NAME, target, &[]).header("strict-transport-security"), age);
        assert_eq!(get(daemon.at(0), target).header("strict-transport-security"), None);
        let by_proxy = http::request(daemon.at(0), "GET", target, &["X-Forwarded-Proto: https"]);
        assert_eq!(by_proxy.header("strict-transport-security"), age, "{target}");
        let unsafe_there = http::request(daemon.at(0), "GET", target, &["X-Forwarded-Proto: http"]);
        assert_eq!(unsafe_there.header("strict-transport-security"), None);
    }
}

/// A wrong pair: what it is called, how it is laid, what the line must name, what it must advise.
type Wrong = (&'static str, Box<dyn Fn(&Path) + Sync>, &'static str, &'static str);

/// A pipe that nobody writes to: whoever opens it waits for ever.
fn make_pipe(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().expect("mkfifo runs").success());
}

fn wrong_pairs() -> Vec<Wrong> {
    let root = Authority::new();
    let middle = root.below("between");
    let good = root.issue(&[NAME]);
    let other = root.issue(&[NAME]);
    let chained = middle.issue(&[NAME]);
    let third = middle.below("lower");
    let long = third.issue(&[NAME]);
    let put = |certificate: String, key: String| -> Box<dyn Fn(&Path) + Sync> {
        Box::new(move |dir: &Path| lay(dir, &Issued { certificate: certificate.clone(), key: key.clone() }))
    };
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIGbMFcG\n-----END ENCRYPTED PRIVATE KEY-----\n".to_owned();
    let older = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nMIGbMFcG\n-----END RSA PRIVATE KEY-----\n".to_owned();
    let cut = good.certificate[..good.certificate.len() / 2].to_owned();
    let no_der = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned();
    vec![
        ("no certificate's file", Box::new(|_: &Path| {}), "cert.pem", "No such file"),
        (
            "no key's file",
            {
                let certificate = good.certificate.clone();
                Box::new(move |dir: &Path| std::fs::write(dir.join("cert.pem"), &certificate).expect("written"))
            },
            "key.pem",
            "No such file",
        ),
        (
            "a pipe for a certificate",
            Box::new(|dir: &Path| make_pipe(&dir.join("cert.pem"))),
            "cert.pem",
            "a named pipe",
        ),
        (
            "a pipe for a key",
            {
                let certificate = good.certificate.clone();
                Box::new(move |dir: &Path| {
                    std::fs::write(dir.join("cert.pem"), &certificate).expect("written");
                    make_pipe(&dir.join("key.pem"));
                })
            },
            "key.pem",
            "a named pipe",
        ),
        (
            "a folder",
            Box::new(|dir: &Path| std::fs::create_dir(dir.join("cert.pem")).expect("made")),
            "cert.pem",
            "a folder",
        ),
        ("another's key", put(good.certificate.clone(), other.key.clone()), "key.pem", "does not belong"),
        ("the two exchanged", put(good.key.clone(), good.certificate.clone()), "cert.pem", "exchanged"),
        ("an empty file", put(String::new(), good.key.clone()), "cert.pem", "empty"),
        ("no PEM", put("hello".to_owned(), good.key.clone()), "cert.pem", "-----BEGIN CERTIFICATE-----"),
        ("a cut certificate", put(cut, good.key.clone()), "cert.pem", "copy it again"),
        ("no DER within", put(no_der, good.key.clone()), "cert.pem", "cannot be read"),
        ("no key within", put(good.certificate.clone(), "hello".to_owned()), "key.pem", "-----BEGIN PRIVATE KEY-----"),
        ("an encrypted key", put(good.certificate.clone(), encrypted), "key.pem", "decrypt it"),
        ("a key encrypted as of old", put(good.certificate.clone(), older), "key.pem", "decrypt it"),
        ("the issuer first", put(middle.pem() + &chained.certificate, chained.key.clone()), "cert.pem", "wrong order"),
        (
            "issuers out of order",
            put(long.certificate.clone() + &middle.pem() + &third.pem(), long.key.clone()),
            "cert.pem",
            "wrong order",
        ),
    ]
}

#[test]
fn each_wrong_pair_is_one_line_that_says_what_to_do_and_nothing_listens() {
    for (what, lay, names, advises) in wrong_pairs() {
        let dir = folder();
        write_site(&dir.path().join("site"), &SMALL);
        lay(dir.path());
        let ended = finish(docwharf().current_dir(dir.path()).args([
            "serve",
            "site",
            "--listen",
            "127.0.0.1:0",
            "--tls-cert",
            "cert.pem",
            "--tls-key",
            "key.pem",
        ]));
        let ended = judged(2, ended);
        assert!(ended.stderr.contains(names) && ended.stderr.contains(advises), "{what}: {}", ended.stderr);
        assert_eq!(ended.stdout, "", "{what}");
        // `run` says the same, before it makes a store.
        let host = Host::bare()
            .set("staticExport.bundleUrl", text("bundle.zip"))
            .set("tls.listen", text("127.0.0.1:0"))
            .set("tls.certFile", text("cert.pem"))
            .set("tls.keyFile", text("key.pem"));
        host.put("bundle.zip", bundle("one"));
        lay(host.dir.path());
        let ended = host.ends(2, &["run"]);
        assert!(ended.stderr.contains(names) && ended.stderr.contains(advises), "{what}: {}", ended.stderr);
        assert_eq!(ended.stdout, "", "{what}");
        assert!(!host.path("store").exists(), "{what}");
        // `config check` and `doctor` tell before anybody starts it.
        let checked = host.ok(&["config", "check"]);
        assert!(checked.stderr.contains(advises), "{what}: {}", checked.stderr);
        let looked = host.command(&["doctor", "--offline"]).output().expect("it runs");
        let looked = String::from_utf8_lossy(&looked.stdout).into_owned();
        assert!(looked.lines().any(|line| line.contains("certificate") && line.contains(advises)), "{what}: {looked}");
    }
}

#[test]
fn no_file_that_the_configuration_names_is_waited_for() {
    for (key, code, command) in [
        ("server.redirectsFile", 2, &["config", "check"][..]),
        ("server.redirectsFile", 2, &["run"]),
        ("api.keyFile", 2, &["sync"]),
        ("api.caFile", 2, &["sync"]),
    ] {
        let host = Host::bare()
            .set("api.baseUrl", text("https://127.0.0.1:9/v1"))
            .set("api.domain", text(NAME))
            .set("api.keyFile", text("key"))
            .set(key, text("pipe"));
        host.put("key", "dwk_0123456789");
        make_pipe(&host.path("pipe"));
        let ended = finish(&mut host.command(command));
        assert!(ended.stderr.contains("/pipe") && ended.stderr.contains("a named pipe"), "{key}: {ended:?}");
        judged(code, ended);
    }
}

#[test]
fn half_a_pair_and_a_listener_without_one_are_mistakes_that_name_the_key() {
    for (key, value, missing) in [
        ("tls.certFile", text("cert.pem"), "tls.keyFile is missing"),
        ("tls.keyFile", text("key.pem"), "tls.certFile is missing"),
        ("tls.listen", text("127.0.0.1:0"), "tls.certFile is missing"),
        ("server.listen", "[]".to_owned(), "server.listen"),
        ("tls.hsts", text("always"), "tls.hsts"),
    ] {
        let host = Host::bare().set(key, value);
        let ended = host.ends(2, &["config", "check"]);
        assert!(ended.stderr.contains(missing), "{key}: {}", ended.stderr);
    }
    let half = run(["serve", "x", "--tls-cert", "cert.pem"]).expect(2);
    assert!(half.stderr.contains("--tls-key"), "{}", half.stderr);
    // A certificate alone serves nobody.
    let authority = Authority::new();
    let host = host(&authority.issue(&[NAME])).without("tls.listen");
    let ended = host.ends(2, &["run"]);
    assert!(ended.stderr.contains("nowhere to serve"), "{}", ended.stderr);
}

#[test]
fn the_pair_may_come_from_credentials() {
    let authority = Authority::new();
    let pair = authority.issue(&[NAME]);
    let host = host(&pair).without("tls.certFile").without("tls.keyFile");
    host.put("tls-cert", &pair.certificate);
    host.put("tls-key", &pair.key);
    let daemon = Daemon::start(host.command(&["run"]).env("CREDENTIALS_DIRECTORY", host.dir.path()));
    assert!(daemon.urls[0].starts_with("https://"));
    let stream = shake(&daemon.address, &authority.client(&[]), NAME);
    stream.expect("it is agreed with");
}

#[test]
fn a_certificate_whose_dates_are_wrong_is_served_with_a_warning_and_is_an_error_to_doctor() {
    let authority = Authority::new();
    for (from, to, says) in [(2001, 2002, "ended"), (2090, 2095, "does not count before")] {
        let host = host(&authority.issue_between(&[NAME], from, to));
        let mut child = host.command(&["run"]);
        let log = std::fs::File::create(host.path("log")).expect("a file");
        let daemon = Daemon::start(child.stderr(log));
        let refused = shake(&daemon.address, &authority.client(&[]), NAME).expect_err("a client that checks");
        assert!(refused.to_string().to_lowercase().contains("certificate"), "{refused}");
        let log = std::fs::read_to_string(host.path("log")).expect("the log");
        assert!(log.contains(says), "{log}");
        let looked = host.command(&["doctor", "--offline", "--json"]).output().expect("it runs");
        assert_eq!(looked.status.code(), Some(1));
        let looked = String::from_utf8_lossy(&looked.stdout).into_owned();
        assert!(looked.contains(says), "{looked}");
        let checked = host.ok(&["config", "check"]);
        assert!(checked.stderr.contains(says), "{}", checked.stderr);
        until("status tells", || host.status()["daemon"]["tls"]["error"].as_str().is_some_and(|e| e.contains(says)));
    }
}

#[test]
fn doctor_warns_of_a_certificate_in_its_last_two_weeks_and_of_a_key_that_everybody_can_read() {
    const DAY: Duration = Duration::from_hours(24);
    let authority = Authority::new();
    for (left, mode, warnings) in [
        ((14 * 24 + 1) * (DAY / 24), 0o640, &[][..]),
        ((14 * 24 - 1) * (DAY / 24), 0o640, &["cert.pem ends soon"]),
        (15 * DAY, 0o644, &["key.pem can be read by everybody"]),
        (15 * DAY, 0o642, &["key.pem can be read by everybody"]),
        (DAY, 0o604, &["cert.pem ends soon", "key.pem can be read by everybody"]),
    ] {
        let host = host(&authority.issue_ending_in(&[NAME], left));
        std::fs::set_permissions(host.path("key.pem"), std::os::unix::fs::PermissionsExt::from_mode(mode))
            .expect("modes can be set");
        let report = host.ok(&["doctor", "--offline", "--json"]).json();
        let checks = report["checks"].as_array().expect("checks");
        let found: Vec<&str> = checks
            .iter()
            .filter(|check| check["name"] == "certificate" && check["status"] == "warning")
            .map(|check| check["found"].as_str().expect("a text"))
            .collect();
        assert_eq!(found.len(), warnings.len(), "{found:?}");
        assert!(warnings.iter().zip(&found).all(|(warning, found)| found.contains(warning)), "{found:?}");
    }
}

#[test]
fn a_new_pair_is_taken_over_under_ten_thousand_requests_without_a_failed_one() {
    const THREADS: usize = 8;
    let authority = Authority::new();
    let pairs: Vec<Issued> = (0..6).map(|_| authority.issue(&[NAME])).collect();
    let host = host(&pairs[0]);
    let client = authority.client(&["http/1.1"]);
    let daemon = ready(&host, &client);
    let (answered, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    let seen = std::sync::Mutex::new(std::collections::HashSet::new());
    std::thread::scope(|scope| {
        let mut clients = Vec::new();
        for _ in 0..THREADS {
            clients.push(scope.spawn(|| {
                while answered.load(Ordering::Relaxed) < 10_000 || !done.load(Ordering::Relaxed) {
                    // Sessions are not resumed, so that each connection shows its certificate.
                    let client = authority.client(&["http/1.1"]);
                    let mut stream = shake(&daemon.address, &client, NAME).expect("a handshake");
                    seen.lock().expect("no panic").insert(certificate_of(&stream));
                    for _ in 0..20 {
                        assert_eq!(ask(&mut stream), 200);
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }));
        }
        for (n, pair) in pairs.iter().enumerate().skip(1) {
            // The certificate first, so that it is beside another's key for a moment.
            host.put("cert.pem", &pair.certificate);
            host.put("key.pem", &pair.key);
            if n % 2 == 0 {
                daemon.signal("HUP");
            }
            let is_seen = || seen.lock().expect("no panic").len() == n + 1;
            until("the new one is seen", || is_seen() || clients.iter().any(ScopedJoinHandle::is_finished));
        }
        done.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().expect("no request failed");
        }
    });
    assert!(answered.load(Ordering::Relaxed) >= 10_000);
    assert_eq!(seen.lock().expect("no panic").len(), pairs.len());
}

/// One request on a kept connection.
fn ask(stream: &mut Secure) -> u16 {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: docs.example\r\n\r\n").expect("the server reads");
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let read = stream.read(&mut chunk).expect("an answer");
        assert!(read > 0, "the connection ended");
        bytes.extend_from_slice(&chunk[..read]);
        let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else { continue };
        let head = parse(&bytes[..end + 4], true);
        let length: usize = head.header("content-length").expect("a length").parse().expect("a number");
        if bytes.len() == end + 4 + length {
            return head.status;
        }
    }
}

#[test]
fn a_wrong_new_pair_leaves_the_old_one_in_force_and_is_told() {
    let authority = Authority::new();
    let good = authority.issue(&[NAME]);
    let host = host(&good).set("admin.listen", text("127.0.0.1:0"));
    let log = std::fs::File::create(host.path("log")).expect("a file");
    let client = authority.client(&["http/1.1"]);
    let daemon = Daemon::start(host.command(&["run"]).stderr(log));
    until("it is served", || secure_get(&daemon.address, &client, NAME, "/", &[]).status == 200);
    let mine = || certificate_of(&shake(&daemon.address, &client, NAME).expect("a handshake"));
    let before = mine();
    let error = || host.status()["daemon"]["tls"]["error"].as_str().unwrap_or_default().to_owned();
    let other = authority.issue(&[NAME]);
    let expired = authority.issue_between(&[NAME], 2001, 2002);
    for (certificate, key, says) in [
        (&good.certificate, &other.key, "does not belong"),
        (&String::new(), &other.key, "there is no certificate"),
        (&expired.certificate, &expired.key, "has ended"),
    ] {
        host.put("cert.pem", certificate);
        host.put("key.pem", key);
        until(says, || error().contains(says));
        assert_eq!(mine(), before, "{says}");
        let log = std::fs::read_to_string(host.path("log")).expect("the log");
        assert!(log.contains(says) && log.contains("stays in force"), "{log}");
    }
    // A removed file is told as well; a signal changes nothing about it.
    std::fs::remove_file(host.path("key.pem")).expect("a file");
    until("it is missed", || error().contains("key.pem"));
    daemon.signal("HUP");
    assert_eq!(mine(), before);
    let human = host.ok(&["status"]).stdout;
    assert!(human.lines().any(|line| line.starts_with("tls") && line.contains("key.pem")), "{human}");
    // The pair that is in force is good again when it is put back.
    host.put("cert.pem", &good.certificate);
    host.put("key.pem", &good.key);
    until("nothing is wrong", || error().is_empty());
    assert_eq!(mine(), before);
    // A good one that is new is taken over without a word more.
    host.put("cert.pem", &other.certificate);
    host.put("key.pem", &other.key);
    until("it is good", || error().is_empty() && mine() != before);
    let admin = host.status()["daemon"]["admin"][0].as_str().expect("an address").to_owned();
    let admin = admin.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let metrics = get(&admin, "/metrics").text();
    // The first second of the year 2100.
    assert!(metrics.contains("docwharf_tls_certificate_not_after_timestamp_seconds 4102444800"), "{metrics}");
}

#[test]
fn without_tls_there_is_no_certificate_to_watch() {
    let host = Host::bare().set("staticExport.bundleUrl", text("bundle.zip")).set("admin.listen", text("127.0.0.1:0"));
    host.put("bundle.zip", bundle("one"));
    let daemon = host.run();
    until("it is served", || get(&daemon.address, "/").status == 200);
    let admin = host.status()["daemon"]["admin"][0].as_str().expect("an address").to_owned();
    let metrics = get(admin.trim_start_matches("http://").trim_end_matches('/'), "/metrics").text();
    assert!(!metrics.contains("not_after_timestamp_seconds "), "{metrics}");
    assert!(metrics.contains("docwharf_access_log_dropped_lines_total 0"), "{metrics}");
}

#[test]
fn who_speaks_plain_http_to_the_tls_port_is_told_so_at_once() {
    let authority = Authority::new();
    let (_dir, daemon) = secured(&authority, &["127.0.0.1:0"]);
    let begun = Instant::now();
    let more = "x".repeat(10_000);
    for head in ["GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), format!("POST / HTTP/1.0\r\nX: {more}\r\n\r\n{more}")]
    {
        let answer = parse(&raw(&daemon.address, head.as_bytes()), false);
        assert_eq!(answer.status, 400);
        assert!(answer.text().contains("https://"), "{}", answer.text());
    }
    // What is neither is closed.
    for noise in [&b"\0\0\0\0"[..], b"SSH-2.0-x\r\n", &[0x80, 0x2e, 1, 0, 2], &[22, 9, 9, 0, 4, 99, 0, 0, 0]] {
        raw(&daemon.address, noise);
    }
    assert!(begun.elapsed() < Duration::from_secs(8), "closed after {:?}", begun.elapsed());
    assert_eq!(secure_get(&daemon.address, &authority.client(&[]), NAME, "/a.txt", &[]).status, 200);
}

#[test]
fn who_speaks_tls_to_the_plain_port_is_turned_away_at_once() {
    let (_dir, daemon) = support::site(&SMALL, &[]);
    let begun = Instant::now();
    let refused = shake(&daemon.address, &Authority::new().client(&["h2"]), NAME);
    assert!(refused.is_err());
    assert!(begun.elapsed() < Duration::from_secs(5), "turned away after {:?}", begun.elapsed());
    assert_eq!(get(&daemon.address, "/a.txt").text(), "content of a");
}

#[test]
fn five_hundred_half_handshakes_keep_nobody_and_their_descriptors_come_back() {
    let authority = Authority::new();
    let (_dir, daemon) = secured(&authority, &["127.0.0.1:0"]);
    let client = authority.client(&["http/1.1"]);
    let hello = {
        let name = rustls::pki_types::ServerName::try_from(NAME).expect("a name");
        let mut connection = rustls::ClientConnection::new(Arc::clone(&client), name).expect("a client");
        let mut bytes = Vec::new();
        connection.write_tls(&mut bytes).expect("a hello");
        bytes
    };
    assert_eq!(secure_get(&daemon.address, &client, NAME, "/a.txt", &[]).status, 200);
    let before = descriptors(&daemon);
    let company: Vec<TcpStream> = (0..500)
        .map(|i| {
            let mut stream = connect(&daemon.address);
            let part = match i % 4 {
                0 => &[][..],
                1 => &hello[..1],
                2 => &hello[..hello.len() / 2],
                // The server has answered, and waits for the rest.
                _ => &hello[..],
            };
            stream.write_all(part).expect("the server reads");
            stream
        })
        .collect();
    for _ in 0..50 {
        let begun = Instant::now();
        assert_eq!(secure_get(&daemon.address, &client, NAME, "/a.txt", &[]).text(), "content of a");
        assert!(begun.elapsed() < Duration::from_secs(5), "served after {:?}", begun.elapsed());
    }
    // Those who say nothing are let in a while later.
    until("they are there", || descriptors(&daemon) > before + 400);
    // They are given up by the server; nobody here closes one.
    until("descriptors come back", || descriptors(&daemon) <= before + 2);
    drop(company);
    assert_eq!(secure_get(&daemon.address, &client, NAME, "/a.txt", &[]).status, 200);
}

#[test]
fn a_stop_finishes_what_is_under_way_and_does_not_wait_for_half_a_handshake() {
    let authority = Authority::new();
    let (_dir, mut daemon) = secured(&authority, &["127.0.0.1:0"]);
    let client = authority.client(&["http/1.1"]);
    let _half = connect(&daemon.address);
    let mut kept = shake(&daemon.address, &client, NAME).expect("a handshake");
    let mut begun = shake(&daemon.address, &client, NAME).expect("a handshake");
    begun.write_all(b"GET /a.txt HTTP/1.1\r\nHost: x\r\n").expect("the server reads");
    kept.write_all(b"GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n").expect("the server reads");
    let mut chunk = [0; 64];
    assert!(kept.read(&mut chunk).expect("an answer") > 0);
    daemon.signal("TERM");
    begun.write_all(b"\r\n").expect("the server reads");
    let mut answer = Vec::new();
    begun.read_to_end(&mut answer).expect("it is closed as TLS does");
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(daemon.wait(Duration::from_secs(5)), Some(0));
}

#[test]
fn a_session_is_resumed_and_its_keys_are_not_the_next_process() {
    let authority = Authority::new();
    let (_dir, daemon) = secured(&authority, &["127.0.0.1:0"]);
    let client = authority.client(&["http/1.1"]);
    assert_eq!(secure_get(&daemon.address, &client, NAME, "/a.txt", &[]).status, 200);
    let again = shake(&daemon.address, &client, NAME).expect("a handshake");
    assert_eq!(again.conn.handshake_kind(), Some(rustls::HandshakeKind::Resumed));
    let (_other, daemon) = secured(&authority, &["127.0.0.1:0"]);
    let fresh = shake(&daemon.address, &client, NAME).expect("a handshake");
    assert_eq!(fresh.conn.handshake_kind(), Some(rustls::HandshakeKind::Full));
}

#[test]
fn a_large_answer_comes_whole_over_tls_and_the_connection_goes_on() {
    let authority = Authority::new();
    let dir = folder();
    let root = write_site(&dir.path().join("site"), &SMALL);
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let content: Vec<u8> = (0..20_000_000).map(|_| next()).collect();
    std::fs::write(root.join("large.png"), &content).expect("it is written");
    lay(dir.path(), &authority.issue(&[NAME]));
    let daemon = Daemon::start_at(
        docwharf().current_dir(dir.path()).args([
            "serve",
            "site",
            "--tls-cert",
            "cert.pem",
            "--tls-key",
            "key.pem",
            "--listen",
            "127.0.0.1:0",
        ]),
        1,
    );
    // What the encryption holds back must not wait for a next request: nobody sends one before all has come.
    let mut stream = shake(&daemon.address, &authority.client(&["http/1.1"]), NAME).expect("a handshake");
    for _ in 0..3 {
        stream.write_all(b"GET /large.png HTTP/1.1\r\nHost: x\r\n\r\n").expect("the server reads");
        let mut came = Vec::new();
        let mut chunk = vec![0; 20_000];
        let head = loop {
            if let Some(at) = came.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            let n = stream.read(&mut chunk).expect("an answer");
            came.extend_from_slice(&chunk[..n]);
        };
        while came.len() < head + content.len() {
            let n = stream.read(&mut chunk).expect("the rest of it");
            assert!(n > 0, "{} bytes have come", came.len());
            came.extend_from_slice(&chunk[..n]);
        }
        assert!(came[head..] == content);
    }
    let stream = shake(&daemon.address, &authority.client(&["h2"]), NAME).expect("a handshake");
    let socket = stream.sock.try_clone().expect("a descriptor");
    let mut client = h2::Client::over(Box::new(stream), socket, 0x7fff_ffff);
    client.send(h2::WINDOW_UPDATE, 0, 0, &0x3fff_ffff_u32.to_be_bytes()).expect("the server reads");
    for _ in 0..3 {
        assert!(client.get("/large.png", &[]) == Answer::Response { status: 200, body: content.clone() });
    }
}

#[test]
fn many_streams_of_one_connection_are_answered_beside_each_other() {
    let authority = Authority::new();
    let (_dir, daemon) = secured(&authority, &["127.0.0.1:0"]);
    let barrier = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                barrier.wait();
                let stream = shake(&daemon.address, &authority.client(&["h2"]), NAME).expect("a handshake");
                let socket = stream.sock.try_clone().expect("a descriptor");
                let mut client = h2::Client::over(Box::new(stream), socket, 1 << 20);
                let asked: Vec<u32> = (0..50).map(|_| client.request("GET", "/a.txt", &[])).collect();
                for stream in asked {
                    let body = b"content of a".to_vec();
                    assert_eq!(client.answer(stream), Answer::Response { status: 200, body });
                }
            });
        }
    });
}
