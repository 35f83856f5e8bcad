//! TLS for readers: handshakes, key pairs that are refused, replacement of a key pair, and bad clients.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use rustls::{ClientConfig, ProtocolVersion};
use support::h2::{self, StreamOutcome};
use support::host::{Host, bundle, expect_plain_exit, run_with_timeout, toml_string};
use support::http::{self, connect, get, parse, send_bytes};
use support::service_manager::TestServiceManager;
use support::tls::{
    CertificateAuthority, IssuedCertificate, TlsClientStream, https_get, peer_certificate, tls_handshake,
};
use support::{
    Daemon, HTTP2_SERVERS, docwharf, open_descriptors, response_after_stop, run_docwharf, temporary_folder, until,
    write_site,
};

const NAME: &str = "docs.example";
const SMALL: [(&str, &str); 2] = [("index.html", "<p>home"), ("a.txt", "content of a")];

/// Writes certificate and key into `dir`.
fn write_pair(dir: &Path, pair: &IssuedCertificate) {
    std::fs::write(dir.join("cert.pem"), &pair.certificate).expect("files can be written");
    std::fs::write(dir.join("key.pem"), &pair.key).expect("files can be written");
}

/// Serves a site with a certificate of this authority.
fn serve_with_tls(authority: &CertificateAuthority, listen: &[&str]) -> (tempfile::TempDir, Daemon) {
    serve_with_tls_and_http2("own", authority, listen)
}

/// Does the same with this value of `server.http2`.
fn serve_with_tls_and_http2(
    http2: &str,
    authority: &CertificateAuthority,
    listen: &[&str],
) -> (tempfile::TempDir, Daemon) {
    let dir = temporary_folder();
    write_site(&dir.path().join("site"), &SMALL);
    write_site(dir.path(), &[("http2.toml", &format!("[server]\nhttp2 = \"{http2}\"\n"))]);
    write_pair(dir.path(), &authority.issue(&[NAME]));
    let daemon = Daemon::start_with_addresses(
        docwharf()
            .current_dir(dir.path())
            .args(["serve", "site", "--config", "http2.toml", "--tls-cert", "cert.pem", "--tls-key", "key.pem"])
            .args(["--search-box", "never"])
            .args(listen.iter().flat_map(|address| ["--listen", address])),
        listen.len(),
    );
    (dir, daemon)
}

/// A host whose `run` serves a bundle over TLS with this key pair.
fn host(pair: &IssuedCertificate) -> Host {
    let host = Host::bare();
    host.put("bundle.zip", bundle("one"));
    host.put("cert.pem", &pair.certificate);
    host.put("key.pem", &pair.key);
    host.set("staticExport.bundleUrl", toml_string("bundle.zip"))
        .set("sync.interval", toml_string("1h"))
        .set("server.listen", "[]")
        .set("tls.listen", toml_string("127.0.0.1:0"))
        .set("tls.certFile", toml_string("cert.pem"))
        .set("tls.keyFile", toml_string("key.pem"))
}

fn start_and_wait(host: &Host, client: &Arc<ClientConfig>) -> Daemon {
    let daemon = host.run();
    until("the site is served", || https_get(&daemon.address, client, NAME, "/", &[]).status == 200);
    daemon
}

#[test]
fn tls_connections_use_the_protocol_negotiated_by_alpn() {
    for http2 in HTTP2_SERVERS {
        let authority = CertificateAuthority::new();
        let (_dir, daemon) = serve_with_tls_and_http2(http2, &authority, &["127.0.0.1:0"]);
        assert!(daemon.urls[0].starts_with("https://127.0.0.1:"), "{:?}", daemon.urls);
        for (offered, agreed) in [
            (&["h2", "http/1.1"][..], Some(&b"h2"[..])),
            (&["http/1.1", "h2"], Some(b"h2")),
            (&["http/1.1"], Some(b"http/1.1")),
            (&[], None),
        ] {
            let stream = tls_handshake(&daemon.address, &authority.client(offered), NAME).expect("a handshake");
            assert_eq!(stream.conn.alpn_protocol(), agreed, "{offered:?}");
            assert_eq!(stream.conn.protocol_version(), Some(ProtocolVersion::TLSv1_3));
            if agreed == Some(b"h2") {
                let socket = stream.sock.try_clone().expect("a descriptor");
                let mut client = h2::Http2Client::over(Box::new(stream), socket, 1 << 20);
                let body = b"content of a".to_vec();
                assert_eq!(client.get("/a.txt", &[]), StreamOutcome::Response { status: 200, body });
            } else {
                let response = https_get(&daemon.address, &authority.client(offered), NAME, "/a.txt", &[]);
                assert_eq!((response.status, response.text()), (200, "content of a".to_owned()));
                assert_eq!(response.header("strict-transport-security"), None, "HSTS is off by default");
            }
        }
        // A connection whose ALPN protocol is HTTP/1.1 cannot use HTTP/2. Its first frame would be SETTINGS.
        let mut stream = tls_handshake(&daemon.address, &authority.client(&["http/1.1"]), NAME).expect("a handshake");
        let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &h2::frame(h2::SETTINGS, 0, 0, &[])[..]].concat();
        stream.write_all(&preface).expect("the server reads");
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        assert!(response.is_empty() || response.starts_with(b"HTTP/1.1 "), "{:?}", String::from_utf8_lossy(&response));
        // Without a common protocol the handshake fails.
        assert!(tls_handshake(&daemon.address, &authority.client(&["spdy/3"]), NAME).is_err());
        // A client that trusts another authority ends the handshake.
        assert!(tls_handshake(&daemon.address, &CertificateAuthority::new().client(&[]), NAME).is_err());
    }
}

#[test]
fn a_client_of_tls_1_2_is_answered() {
    use rustls::pki_types::pem::PemObject;

    let authority = CertificateAuthority::new();
    let (_dir, daemon) = serve_with_tls(&authority, &["127.0.0.1:0"]);
    let root = rustls::pki_types::CertificateDer::from_pem_slice(authority.pem().as_bytes()).expect("a certificate");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(root).expect("a root");
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS12])
        .expect("ring supports TLS 1.2")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client = Arc::new(config);
    let stream = tls_handshake(&daemon.address, &client, NAME).expect("a handshake");
    assert_eq!(stream.conn.protocol_version(), Some(ProtocolVersion::TLSv1_2));
    assert_eq!(https_get(&daemon.address, &client, NAME, "/a.txt", &[]).text(), "content of a");
}

#[test]
fn a_certificate_chain_may_include_or_omit_its_root() {
    let root = CertificateAuthority::new();
    let intermediate = root.intermediate("between");
    let pair = intermediate.issue(&[NAME]);
    for (issuers, client) in [
        (intermediate.pem() + &root.pem(), root.client(&[])),
        (intermediate.pem(), root.client(&[])),
        (String::new(), intermediate.client(&[])),
    ] {
        let host = host(&IssuedCertificate { certificate: pair.certificate.clone() + &issuers, key: pair.key.clone() });
        let daemon = host.run();
        tls_handshake(&daemon.address, &client, NAME).expect("a handshake");
    }
}

#[test]
fn each_http_and_https_listener_is_printed_with_its_scheme() {
    let authority = CertificateAuthority::new();
    // A machine without IPv6 has nothing to bind to.
    let listen =
        if TcpListener::bind("[::1]:0").is_ok() { vec!["127.0.0.1:0", "[::1]:0"] } else { vec!["127.0.0.1:0"] };
    let (_dir, daemon) = serve_with_tls(&authority, &listen);
    let client = authority.client(&["http/1.1"]);
    for n in 0..listen.len() {
        assert!(daemon.urls[n].starts_with("https://"), "{:?}", daemon.urls);
        assert_eq!(https_get(daemon.address_of(n), &client, NAME, "/a.txt", &[]).text(), "content of a");
    }
    let host = host(&authority.issue(&[NAME])).set("server.listen", toml_string("127.0.0.1:0"));
    let daemon = Daemon::start_with_addresses(&mut host.command(&["run"]), 2);
    let schemes: Vec<&str> = daemon.urls.iter().filter_map(|url| url.split("://").next()).collect();
    assert_eq!(schemes, ["http", "https"]);
    until("both answer", || {
        get(daemon.address_of(0), "/").status == 200
            && https_get(daemon.address_of(1), &client, NAME, "/", &[]).status == 200
    });
}

#[test]
fn hsts_is_sent_only_over_https_or_behind_an_https_proxy() {
    let authority = CertificateAuthority::new();
    let host = host(&authority.issue(&[NAME]))
        .set("server.listen", toml_string("127.0.0.1:0"))
        .set("server.trustedProxies", toml_string("127.0.0.1"))
        .set("tls.hsts", toml_string("365d"));
    let daemon = Daemon::start_with_addresses(&mut host.command(&["run"]), 2);
    let client = authority.client(&["http/1.1"]);
    until("it is served", || get(daemon.address_of(0), "/").status == 200);
    let age = Some("max-age=31536000");
    for target in ["/", "/missing", "/missing.js"] {
        assert_eq!(
            https_get(daemon.address_of(1), &client, NAME, target, &[]).header("strict-transport-security"),
            age
        );
        assert_eq!(get(daemon.address_of(0), target).header("strict-transport-security"), None);
        let via_https_proxy = http::request(daemon.address_of(0), "GET", target, &["X-Forwarded-Proto: https"]);
        assert_eq!(via_https_proxy.header("strict-transport-security"), age, "{target}");
        let via_http_proxy = http::request(daemon.address_of(0), "GET", target, &["X-Forwarded-Proto: http"]);
        assert_eq!(via_http_proxy.header("strict-transport-security"), None);
    }
}

/// An invalid key pair: its description, how its files are written, the file that the error must name, and its advice.
type InvalidPair = (&'static str, Box<dyn Fn(&Path) + Sync>, &'static str, &'static str);

/// Makes a named pipe that has no writer. Opening it for reading blocks for ever.
fn make_fifo(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().expect("mkfifo runs").success());
}

fn invalid_pairs() -> Vec<InvalidPair> {
    let root = CertificateAuthority::new();
    let intermediate = root.intermediate("between");
    let good = root.issue(&[NAME]);
    let other_pair = root.issue(&[NAME]);
    let chained = intermediate.issue(&[NAME]);
    let lower = intermediate.intermediate("lower");
    let long_chain = lower.issue(&[NAME]);
    let pair_of = |certificate: String, key: String| -> Box<dyn Fn(&Path) + Sync> {
        Box::new(move |dir: &Path| {
            write_pair(dir, &IssuedCertificate { certificate: certificate.clone(), key: key.clone() });
        })
    };
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIGbMFcG\n-----END ENCRYPTED PRIVATE KEY-----\n".to_owned();
    let legacy_encrypted = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nMIGbMFcG\n-----END RSA PRIVATE KEY-----\n".to_owned();
    let truncated = good.certificate[..good.certificate.len() / 2].to_owned();
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
            Box::new(|dir: &Path| make_fifo(&dir.join("cert.pem"))),
            "cert.pem",
            "a named pipe",
        ),
        (
            "a pipe for a key",
            {
                let certificate = good.certificate.clone();
                Box::new(move |dir: &Path| {
                    std::fs::write(dir.join("cert.pem"), &certificate).expect("written");
                    make_fifo(&dir.join("key.pem"));
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
        (
            "the key of another certificate",
            pair_of(good.certificate.clone(), other_pair.key.clone()),
            "key.pem",
            "does not belong",
        ),
        ("the two exchanged", pair_of(good.key.clone(), good.certificate.clone()), "cert.pem", "exchanged"),
        ("an empty file", pair_of(String::new(), good.key.clone()), "cert.pem", "empty"),
        ("no PEM", pair_of("hello".to_owned(), good.key.clone()), "cert.pem", "-----BEGIN CERTIFICATE-----"),
        ("a cut certificate", pair_of(truncated, good.key.clone()), "cert.pem", "copy it again"),
        ("no DER inside", pair_of(no_der, good.key.clone()), "cert.pem", "cannot be read"),
        (
            "no key inside",
            pair_of(good.certificate.clone(), "hello".to_owned()),
            "key.pem",
            "-----BEGIN PRIVATE KEY-----",
        ),
        ("an encrypted key", pair_of(good.certificate.clone(), encrypted), "key.pem", "decrypt it"),
        (
            "a key with legacy PEM encryption",
            pair_of(good.certificate.clone(), legacy_encrypted),
            "key.pem",
            "decrypt it",
        ),
        (
            "the issuer first",
            pair_of(intermediate.pem() + &chained.certificate, chained.key.clone()),
            "cert.pem",
            "wrong order",
        ),
        (
            "issuers out of order",
            pair_of(long_chain.certificate.clone() + &intermediate.pem() + &lower.pem(), long_chain.key.clone()),
            "cert.pem",
            "wrong order",
        ),
    ]
}

// Regression: a named pipe in the place of a certificate or a key delayed the start for ever.
#[test]
fn an_invalid_key_pair_prints_one_line_with_advice_and_opens_no_listener() {
    for (case, write_files, named_file, advice) in invalid_pairs() {
        let dir = temporary_folder();
        write_site(&dir.path().join("site"), &SMALL);
        write_files(dir.path());
        let ended = run_with_timeout(docwharf().current_dir(dir.path()).args([
            "serve",
            "site",
            "--listen",
            "127.0.0.1:0",
            "--tls-cert",
            "cert.pem",
            "--tls-key",
            "key.pem",
        ]));
        let ended = expect_plain_exit(2, ended);
        assert!(ended.stderr.contains(named_file) && ended.stderr.contains(advice), "{case}: {}", ended.stderr);
        assert_eq!(ended.stdout, "", "{case}");
        // `run` prints the same error, before it makes a store.
        let host = Host::bare()
            .set("staticExport.bundleUrl", toml_string("bundle.zip"))
            .set("tls.listen", toml_string("127.0.0.1:0"))
            .set("tls.certFile", toml_string("cert.pem"))
            .set("tls.keyFile", toml_string("key.pem"));
        host.put("bundle.zip", bundle("one"));
        write_files(host.dir.path());
        let ended = host.expect_exit(2, &["run"]);
        assert!(ended.stderr.contains(named_file) && ended.stderr.contains(advice), "{case}: {}", ended.stderr);
        assert_eq!(ended.stdout, "", "{case}");
        assert!(!host.path("store").exists(), "{case}");
        // `config check` and `doctor` report it before a start.
        let check_output = host.ok(&["config", "check"]);
        assert!(check_output.stderr.contains(advice), "{case}: {}", check_output.stderr);
        let doctor_output = host.command(&["doctor", "--offline"]).output().expect("it runs");
        let doctor_output = String::from_utf8_lossy(&doctor_output.stdout).into_owned();
        assert!(
            doctor_output.lines().any(|line| line.contains("certificate") && line.contains(advice)),
            "{case}: {doctor_output}"
        );
    }
}

// Regression: a named pipe in the place of a certificate, a key, `caFile` or `redirectsFile` delayed the start for
// ever.
#[test]
fn a_named_pipe_as_a_configured_file_is_an_error_and_does_not_block() {
    for (key, code, command) in [
        ("server.redirectsFile", 2, &["config", "check"][..]),
        ("server.redirectsFile", 2, &["run"]),
        ("api.keyFile", 2, &["sync"]),
        ("api.caFile", 2, &["sync"]),
    ] {
        let host = Host::bare()
            .set("api.baseUrl", toml_string("https://127.0.0.1:9/v1"))
            .set("api.domain", toml_string(NAME))
            .set("api.keyFile", toml_string("key"))
            .set(key, toml_string("pipe"));
        host.put("key", "dwk_0123456789");
        make_fifo(&host.path("pipe"));
        let ended = run_with_timeout(&mut host.command(command));
        assert!(ended.stderr.contains("/pipe") && ended.stderr.contains("a named pipe"), "{key}: {ended:?}");
        expect_plain_exit(code, ended);
    }
}

#[test]
fn incomplete_tls_settings_are_errors_that_name_the_key() {
    for (key, value, missing) in [
        ("tls.certFile", toml_string("cert.pem"), "tls.keyFile is missing"),
        ("tls.keyFile", toml_string("key.pem"), "tls.certFile is missing"),
        ("tls.listen", toml_string("127.0.0.1:0"), "tls.certFile is missing"),
        ("server.listen", "[]".to_owned(), "server.listen"),
        ("tls.hsts", toml_string("always"), "tls.hsts"),
    ] {
        let host = Host::bare().set(key, value);
        let ended = host.expect_exit(2, &["config", "check"]);
        assert!(ended.stderr.contains(missing), "{key}: {}", ended.stderr);
    }
    let half = run_docwharf(["serve", "x", "--tls-cert", "cert.pem"]).expect(2);
    assert!(half.stderr.contains("--tls-key"), "{}", half.stderr);
    // A certificate without `tls.listen` opens no listener.
    let authority = CertificateAuthority::new();
    let host = host(&authority.issue(&[NAME])).without("tls.listen");
    let ended = host.expect_exit(2, &["run"]);
    assert!(ended.stderr.contains("no address to serve on"), "{}", ended.stderr);
}

#[test]
fn the_tls_key_pair_is_read_from_systemd_credentials() {
    let authority = CertificateAuthority::new();
    let pair = authority.issue(&[NAME]);
    let host = host(&pair).without("tls.certFile").without("tls.keyFile");
    host.put("tls-cert", &pair.certificate);
    host.put("tls-key", &pair.key);
    let daemon = Daemon::start(host.command(&["run"]).env("CREDENTIALS_DIRECTORY", host.dir.path()));
    assert!(daemon.urls[0].starts_with("https://"));
    let stream = tls_handshake(&daemon.address, &authority.client(&[]), NAME);
    stream.expect("a handshake");
}

#[test]
fn an_expired_or_future_certificate_is_served_with_a_warning_and_fails_doctor() {
    let authority = CertificateAuthority::new();
    for (from, to, warning) in [(2001, 2002, "expired"), (2090, 2095, "is not valid before")] {
        let host = host(&authority.issue_between(&[NAME], from, to));
        let mut child = host.command(&["run"]);
        let log = std::fs::File::create(host.path("log")).expect("a file");
        let daemon = Daemon::start(child.stderr(log));
        let refused = tls_handshake(&daemon.address, &authority.client(&[]), NAME).expect_err("a client that checks");
        assert!(refused.to_string().to_lowercase().contains("certificate"), "{refused}");
        let log = std::fs::read_to_string(host.path("log")).expect("the log");
        assert!(log.contains(warning), "{log}");
        let doctor_output = host.command(&["doctor", "--offline", "--json"]).output().expect("it runs");
        assert_eq!(doctor_output.status.code(), Some(1));
        let doctor_output = String::from_utf8_lossy(&doctor_output.stdout).into_owned();
        assert!(doctor_output.contains(warning), "{doctor_output}");
        let check_output = host.ok(&["config", "check"]);
        assert!(check_output.stderr.contains(warning), "{}", check_output.stderr);
        until("the status reports it", || {
            host.status()["daemon"]["tls"]["error"].as_str().is_some_and(|e| e.contains(warning))
        });
    }
}

#[test]
fn doctor_warns_of_a_certificate_near_expiry_and_of_a_world_readable_key() {
    const DAY: Duration = Duration::from_hours(24);
    let authority = CertificateAuthority::new();
    for (remaining, mode, warnings) in [
        ((14 * 24 + 1) * (DAY / 24), 0o640, &[][..]),
        ((14 * 24 - 1) * (DAY / 24), 0o640, &["cert.pem expires soon"]),
        (15 * DAY, 0o644, &["key.pem can be read by all users"]),
        (15 * DAY, 0o642, &["key.pem can be read by all users"]),
        (DAY, 0o604, &["cert.pem expires soon", "key.pem can be read by all users"]),
    ] {
        let host = host(&authority.issue_expiring_in(&[NAME], remaining));
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
fn replacing_the_key_pair_under_load_fails_no_request() {
    const THREADS: usize = 8;
    let authority = CertificateAuthority::new();
    let pairs: Vec<IssuedCertificate> = (0..6).map(|_| authority.issue(&[NAME])).collect();
    let host = host(&pairs[0]);
    let client = authority.client(&["http/1.1"]);
    let daemon = start_and_wait(&host, &client);
    let (answered, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    let seen_certificates = std::sync::Mutex::new(std::collections::HashSet::new());
    std::thread::scope(|scope| {
        let mut clients = Vec::new();
        for _ in 0..THREADS {
            clients.push(scope.spawn(|| {
                while answered.load(Ordering::Relaxed) < 10_000 || !done.load(Ordering::Relaxed) {
                    // Sessions are not resumed, so that each connection shows its certificate.
                    let client = authority.client(&["http/1.1"]);
                    let mut stream = tls_handshake(&daemon.address, &client, NAME).expect("a handshake");
                    seen_certificates.lock().expect("no panic").insert(peer_certificate(&stream));
                    for _ in 0..20 {
                        assert_eq!(get_on(&mut stream), 200);
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }));
        }
        for (n, pair) in pairs.iter().enumerate().skip(1) {
            // The certificate first, so that it does not match the key for a moment.
            host.put("cert.pem", &pair.certificate);
            host.put("key.pem", &pair.key);
            if n % 2 == 0 {
                daemon.signal("HUP");
            }
            let is_seen = || seen_certificates.lock().expect("no panic").len() == n + 1;
            until("a client sees the new certificate", || {
                is_seen() || clients.iter().any(ScopedJoinHandle::is_finished)
            });
        }
        done.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().expect("no request failed");
        }
    });
    assert!(answered.load(Ordering::Relaxed) >= 10_000);
    assert_eq!(seen_certificates.lock().expect("no panic").len(), pairs.len());
}

/// Sends one request on an open connection, and returns the status.
fn get_on(stream: &mut TlsClientStream) -> u16 {
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
fn an_invalid_new_key_pair_is_reported_and_the_old_one_stays_in_use() {
    let authority = CertificateAuthority::new();
    let good = authority.issue(&[NAME]);
    let host = host(&good).set("admin.listen", toml_string("127.0.0.1:0"));
    let log = std::fs::File::create(host.path("log")).expect("a file");
    let client = authority.client(&["http/1.1"]);
    let manager = TestServiceManager::new(&host);
    let daemon = Daemon::start(manager.connect(&host, host.command(&["run"]), None).stderr(log));
    until("it is served", || https_get(&daemon.address, &client, NAME, "/", &[]).status == 200);
    let served_certificate = || peer_certificate(&tls_handshake(&daemon.address, &client, NAME).expect("a handshake"));
    let before = served_certificate();
    let error = || host.status()["daemon"]["tls"]["error"].as_str().unwrap_or_default().to_owned();
    let other = authority.issue(&[NAME]);
    let expired = authority.issue_between(&[NAME], 2001, 2002);
    for (certificate, key, message) in [
        (&good.certificate, &other.key, "does not belong"),
        (&String::new(), &other.key, "there is no certificate"),
        (&expired.certificate, &expired.key, "the TLS certificate expired on"),
    ] {
        host.put("cert.pem", certificate);
        host.put("key.pem", key);
        until(message, || error().contains(message));
        assert_eq!(served_certificate(), before, "{message}");
        let log = std::fs::read_to_string(host.path("log")).expect("the log");
        assert!(log.contains(message) && log.contains("stays in force"), "{log}");
    }
    // A removed file is reported as well. A signal changes nothing.
    std::fs::remove_file(host.path("key.pem")).expect("a file");
    until("the missing key is reported", || error().contains("key.pem"));
    manager.discard_arrived();
    daemon.signal("HUP");
    manager.until("the reload begins", |message| message.starts_with("RELOADING=1"));
    manager.until("the reload ends", |message| message == "READY=1");
    assert_eq!(served_certificate(), before);
    let human = host.ok(&["status"]).stdout;
    assert!(human.lines().any(|line| line.starts_with("tls") && line.contains("key.pem")), "{human}");
    // When the files of the pair in force are written again, the error is gone.
    host.put("cert.pem", &good.certificate);
    host.put("key.pem", &good.key);
    until("the error is gone", || error().is_empty());
    assert_eq!(served_certificate(), before);
    // A new valid pair is accepted without a message.
    host.put("cert.pem", &other.certificate);
    host.put("key.pem", &other.key);
    until("the new pair is in force", || error().is_empty() && served_certificate() != before);
    let admin = host.reported_address("admin");
    let metrics = get(&admin, "/metrics").text();
    // The first second of the year 2100.
    assert!(metrics.contains("docwharf_tls_certificate_not_after_timestamp_seconds 4102444800"), "{metrics}");
}

#[test]
fn an_expired_key_pair_may_replace_another_expired_one() {
    let authority = CertificateAuthority::new();
    let host = host(&authority.issue_between(&[NAME], 2001, 2002)).set("admin.listen", toml_string("127.0.0.1:0"));
    let _daemon = host.run();
    let admin = host.reported_address("admin");
    let expires_at = |seconds: u64| {
        let sample = format!("docwharf_tls_certificate_not_after_timestamp_seconds {seconds}");
        get(&admin, "/metrics").text().contains(&sample)
    };
    // The first second of 2002.
    until("the first pair is in use", || expires_at(1_009_843_200));
    let next = authority.issue_between(&[NAME], 2001, 2003);
    host.put("cert.pem", &next.certificate);
    host.put("key.pem", &next.key);
    until("the next pair is in use", || expires_at(1_041_379_200));
}

#[test]
fn without_tls_there_is_no_certificate_expiry_metric() {
    let host = Host::bare()
        .set("staticExport.bundleUrl", toml_string("bundle.zip"))
        .set("admin.listen", toml_string("127.0.0.1:0"));
    host.put("bundle.zip", bundle("one"));
    let daemon = host.run();
    until("it is served", || get(&daemon.address, "/").status == 200);
    let metrics = get(&host.reported_address("admin"), "/metrics").text();
    assert!(!metrics.contains("not_after_timestamp_seconds "), "{metrics}");
    assert!(metrics.contains("docwharf_access_log_dropped_lines_total 0"), "{metrics}");
}

#[test]
fn plain_http_on_the_tls_port_gets_400_with_advice_at_once() {
    let authority = CertificateAuthority::new();
    let (_dir, daemon) = serve_with_tls(&authority, &["127.0.0.1:0"]);
    // A connection without a handshake is closed after ten seconds.
    let assert_at_once =
        |started: Instant| assert!(started.elapsed() < Duration::from_secs(9), "closed after {:?}", started.elapsed());
    let filler = "x".repeat(10_000);
    for head in
        ["GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), format!("POST / HTTP/1.0\r\nX: {filler}\r\n\r\n{filler}")]
    {
        let started = Instant::now();
        let mut stream = TcpStream::connect(&daemon.address).expect("the server listens");
        stream.write_all(head.as_bytes()).expect("the server reads");
        let mut response = Vec::new();
        stream.read_to_end(&mut response).expect("bytes that the server has not read do not reset the connection");
        assert_at_once(started);
        let response = parse(&response, false);
        assert_eq!(response.status, 400);
        assert!(response.text().contains("https://"), "{}", response.text());
    }
    // A connection that sends neither TLS nor HTTP is closed.
    for noise in [&b"\0\0\0\0"[..], b"SSH-2.0-x\r\n", &[0x80, 0x2e, 1, 0, 2], &[22, 9, 9, 0, 4, 99, 0, 0, 0]] {
        let started = Instant::now();
        send_bytes(&daemon.address, noise);
        assert_at_once(started);
    }
    assert_eq!(https_get(&daemon.address, &authority.client(&[]), NAME, "/a.txt", &[]).status, 200);
}

#[test]
fn a_tls_handshake_on_the_plain_http_port_fails_at_once() {
    let (_dir, daemon) = support::serve_site(&SMALL, &[]);
    let started = Instant::now();
    let refused = tls_handshake(&daemon.address, &CertificateAuthority::new().client(&["h2"]), NAME);
    assert!(refused.is_err());
    assert!(started.elapsed() < Duration::from_secs(15), "refused after {:?}", started.elapsed());
    assert_eq!(get(&daemon.address, "/a.txt").text(), "content of a");
}

#[test]
fn five_hundred_incomplete_tls_handshakes_delay_no_client_and_are_closed() {
    let authority = CertificateAuthority::new();
    let (_dir, daemon) = serve_with_tls(&authority, &["127.0.0.1:0"]);
    let client = authority.client(&["http/1.1"]);
    let hello = {
        let name = rustls::pki_types::ServerName::try_from(NAME).expect("a name");
        let mut connection = rustls::ClientConnection::new(Arc::clone(&client), name).expect("a client");
        let mut bytes = Vec::new();
        connection.write_tls(&mut bytes).expect("a hello");
        bytes
    };
    assert_eq!(https_get(&daemon.address, &client, NAME, "/a.txt", &[]).status, 200);
    let before = open_descriptors(daemon.pid());
    let connections: Vec<TcpStream> = (0..500)
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
    // Connections that send nothing are accepted after a while.
    until("the connections are accepted", || open_descriptors(daemon.pid()) > before + 400);
    for _ in 0..50 {
        let started = Instant::now();
        assert_eq!(https_get(&daemon.address, &client, NAME, "/a.txt", &[]).text(), "content of a");
        assert!(started.elapsed() < Duration::from_secs(9), "served after {:?}", started.elapsed());
    }
    // The server closes them after its timeout. The test closes none.
    until("the descriptors are closed", || open_descriptors(daemon.pid()) <= before + 2);
    drop(connections);
    assert_eq!(https_get(&daemon.address, &client, NAME, "/a.txt", &[]).status, 200);
}

#[test]
fn a_shutdown_answers_pending_tls_requests_and_drops_incomplete_handshakes() {
    let authority = CertificateAuthority::new();
    let client = authority.client(&["http/1.1"]);
    let attempt = || {
        let (_dir, mut daemon) = serve_with_tls(&authority, &["127.0.0.1:0"]);
        let _no_handshake = connect(&daemon.address);
        // The kernel holds back a connection that has sent nothing. This one is accepted.
        let mut half_handshake = connect(&daemon.address);
        half_handshake.write_all(&[22]).expect("the server reads");
        let mut idle = tls_handshake(&daemon.address, &client, NAME).expect("a handshake");
        let mut half_sent = tls_handshake(&daemon.address, &client, NAME).expect("a handshake");
        half_sent.write_all(b"GET /a.txt HTTP/1.1\r\nHost: x\r\n").expect("the server reads");
        idle.write_all(b"GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n").expect("the server reads");
        let mut chunk = [0; 64];
        assert!(idle.read(&mut chunk).expect("an answer") > 0);
        let signalled = Instant::now();
        daemon.signal("TERM");
        let _ = half_sent.write_all(b"\r\n");
        let delay = signalled.elapsed();
        let mut response = Vec::new();
        // The server ends the response with a close_notify.
        let result = half_sent.read_to_end(&mut response);
        // Connections that wait for nothing do not use up the eight seconds that others have.
        assert_eq!(daemon.wait(Duration::from_secs(7)), Some(0));
        (delay, result.map(|_| response))
    };
    let is_answered = |result: &std::io::Result<Vec<u8>>| {
        result.as_ref().is_ok_and(|response| response.starts_with(b"HTTP/1.1 200 "))
    };
    let result = response_after_stop(attempt, is_answered);
    assert!(is_answered(&result), "{result:?}");
}

#[test]
fn tls_sessions_resume_but_not_after_a_restart() {
    let authority = CertificateAuthority::new();
    let (_dir, daemon) = serve_with_tls(&authority, &["127.0.0.1:0"]);
    let client = authority.client(&["http/1.1"]);
    assert_eq!(https_get(&daemon.address, &client, NAME, "/a.txt", &[]).status, 200);
    let resumed = tls_handshake(&daemon.address, &client, NAME).expect("a handshake");
    assert_eq!(resumed.conn.handshake_kind(), Some(rustls::HandshakeKind::Resumed));
    let (_other_dir, daemon) = serve_with_tls(&authority, &["127.0.0.1:0"]);
    let fresh = tls_handshake(&daemon.address, &client, NAME).expect("a handshake");
    assert_eq!(fresh.conn.handshake_kind(), Some(rustls::HandshakeKind::Full));
}

// Regression: HTTP/1.1: the end of a large response over TLS stayed in the buffer of the encryption until the next
// request.
#[test]
fn a_large_response_over_tls_is_complete_and_the_connection_stays_open() {
    let authority = CertificateAuthority::new();
    let dir = temporary_folder();
    let root = write_site(&dir.path().join("site"), &SMALL);
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let content: Vec<u8> = (0..20_000_000).map(|_| next()).collect();
    std::fs::write(root.join("large.png"), &content).expect("it is written");
    write_pair(dir.path(), &authority.issue(&[NAME]));
    let daemon = Daemon::start_with_addresses(
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
    // Bytes in the buffer of the TLS layer must not wait for the next request, which follows the complete response.
    let mut stream = tls_handshake(&daemon.address, &authority.client(&["http/1.1"]), NAME).expect("a handshake");
    for _ in 0..3 {
        stream.write_all(b"GET /large.png HTTP/1.1\r\nHost: x\r\n\r\n").expect("the server reads");
        let mut received = Vec::new();
        let mut chunk = vec![0; 20_000];
        let head_len = loop {
            if let Some(index) = received.windows(4).position(|four| four == b"\r\n\r\n") {
                break index + 4;
            }
            let n = stream.read(&mut chunk).expect("an answer");
            received.extend_from_slice(&chunk[..n]);
        };
        while received.len() < head_len + content.len() {
            let n = stream.read(&mut chunk).expect("the rest of the response");
            assert!(n > 0, "{} bytes received", received.len());
            received.extend_from_slice(&chunk[..n]);
        }
        assert!(received[head_len..] == content);
    }
    let stream = tls_handshake(&daemon.address, &authority.client(&["h2"]), NAME).expect("a handshake");
    let socket = stream.sock.try_clone().expect("a descriptor");
    let mut client = h2::Http2Client::over(Box::new(stream), socket, 0x7fff_ffff);
    client.send(h2::WINDOW_UPDATE, 0, 0, &0x3fff_ffff_u32.to_be_bytes()).expect("the server reads");
    for _ in 0..3 {
        assert!(client.get("/large.png", &[]) == StreamOutcome::Response { status: 200, body: content.clone() });
    }
}

#[test]
fn many_http2_streams_over_tls_are_answered_concurrently() {
    for http2 in HTTP2_SERVERS {
        let authority = CertificateAuthority::new();
        let (_dir, daemon) = serve_with_tls_and_http2(http2, &authority, &["127.0.0.1:0"]);
        let barrier = Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    barrier.wait();
                    let stream = tls_handshake(&daemon.address, &authority.client(&["h2"]), NAME).expect("a handshake");
                    let socket = stream.sock.try_clone().expect("a descriptor");
                    let mut client = h2::Http2Client::over(Box::new(stream), socket, 1 << 20);
                    let streams: Vec<u32> = (0..50).map(|_| client.request("GET", "/a.txt", &[])).collect();
                    for stream in streams {
                        let body = b"content of a".to_vec();
                        assert_eq!(client.wait_for_stream(stream), StreamOutcome::Response { status: 200, body });
                    }
                });
            }
        });
    }
}
