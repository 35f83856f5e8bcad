//! No key, signature or token in any output at any log level, nor in any file: not even when everything goes wrong.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;
use support::host::{Host, at_once, bundle, finish, front, text};
use support::upstream::{
    Call, KEY, Reply, SIGNATURE, Upstream, answer, close, expired, honest, raw, redirect, storage_error,
};
use support::{Daemon, Ended, until};

/// What nobody may see: the key, the values in the query of a link, a password in one.
const SECRETS: [&str; 4] = ["5ecretAdminKey", "51gna7ure0f", "AKIDEXAMPLE", "pa55word"];

#[track_caller]
fn assert_silent(where_: &str, bytes: &[u8]) {
    for secret in SECRETS {
        if let Some(at) = bytes.windows(secret.len()).position(|window| window.eq_ignore_ascii_case(secret.as_bytes()))
        {
            let near = &bytes[at.saturating_sub(200)..bytes.len().min(at + 200)];
            panic!("{where_} tells {secret}: …{}…", String::from_utf8_lossy(near));
        }
    }
}

/// Every file below a folder, but those that a test put there because they are secret.
#[track_caller]
fn assert_silent_below(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        assert_silent("a name", path.file_name().unwrap().as_encoded_bytes());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            assert_silent_below(&path);
        } else if kind.is_file() {
            assert_silent(&path.display().to_string(), &std::fs::read(&path).unwrap());
        }
    }
}

/// What the control socket tells, whatever it is asked.
#[track_caller]
fn assert_silent_admin(host: &Host) {
    let order = r#"{"verb":"sync","refresh":"x"}"#;
    let post = format!(
        "POST /orders HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{order}",
        order.len()
    );
    let gets = ["/status", "/metrics", "/readyz", "/livez", "/"];
    let gets = gets.map(|path| format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
    for request in gets.into_iter().chain([post]) {
        let mut stream = UnixStream::connect(host.path("store/control.sock")).expect("the daemon listens");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 "), "{request}");
        assert_silent(&request, &answer);
    }
}

fn tracing(command: &mut Command) -> &mut Command {
    command.env("DOCWHARF_LOG", "trace").env("RUST_BACKTRACE", "full")
}

/// Runs a command with everything logged, and looks through all it says and leaves.
#[track_caller]
fn quiet(host: &Host, arguments: &[&str]) -> Ended {
    let ended = finish(tracing(&mut host.command(arguments)).current_dir(host.dir.path()));
    let what = format!("{arguments:?}, {:?}", ended.code);
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    if !arguments.starts_with(&["export", "link"]) {
        assert_silent(&format!("{what} on stdout"), ended.stdout.as_bytes());
    }
    assert_silent(&format!("{what} on stderr"), ended.stderr.as_bytes());
    if host.path("store").exists() {
        assert_silent_below(&host.path("store"));
    }
    ended
}

#[test]
fn a_sync_that_goes_well_tells_nothing_though_it_tells_everything_else() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream);
    let ended = quiet(&host, &["sync"]);
    assert_eq!(ended.code, Some(0));
    assert!(ended.stderr.lines().count() > 5, "is anything logged at all? {}", ended.stderr);
    quiet(&host, &["sync", "--json"]);
    for arguments in [
        &["status", "--json"][..],
        &["status"],
        &["history", "--json"],
        &["versions", "--json"],
        &["export", "start"],
        &["export", "status", "se_0000000000000003", "--wait", "--json"],
        &["export", "download", "se_0000000000000003", "--output", "taken", "--json"],
        &["export", "link", "se_0000000000000003"],
        &["export", "link", "se_unknown"],
    ] {
        quiet(&host, arguments);
    }
    // The key from the environment, too.
    let host = host.without("api.keyFile");
    let ended = finish(tracing(&mut host.command(&["sync"])).env("DOCWHARF_API_KEY", KEY));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_silent("the environment", ended.stderr.as_bytes());
}

#[test]
fn libraries_say_nothing_whatever_the_environment_asks_for() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream);
    let said = |directives: &str| {
        let ended = finish(host.command(&["export", "start"]).env("RUST_LOG", directives));
        assert_eq!(ended.code, Some(0), "{directives}: {}", ended.stderr);
        ended.stderr.lines().count()
    };
    let ours = said("docwharf=trace");
    for directives in ["trace", "hyper=trace,docwharf=trace", "reqwest=trace,hyper_util=trace,docwharf=trace"] {
        assert_eq!(said(directives), ours, "{directives}");
    }
}

#[test]
fn no_failure_of_a_sync_tells_a_secret() {
    let secret = format!("?X-Amz-Signature={SIGNATURE}0000");
    let nowhere = format!("http://127.0.0.1:9/exports/x{secret}");
    let echo = format!("bad key {KEY} in Authorization: Bearer {KEY}");
    let mut cases: Vec<(Call, Reply)> = vec![
        (Call::Start, answer(401)),
        (Call::Start, answer(401).json(&json!({"error": echo, "details": [{"message": echo}]}))),
        (Call::Start, answer(400).body("text/html", format!("<pre>Authorization: Bearer {KEY}</pre>"))),
        (Call::Poll, answer(403)),
        (Call::Bundle, answer(400)),
        (Call::Bundle, answer(401).body("text/plain", &echo)),
        (Call::Download, redirect(302, &nowhere)),
        (Call::Download, redirect(302, &format!("ftp://bucket/x{secret}"))),
        (Call::Download, redirect(302, &format!("http://[::1/x{secret}"))),
        (Call::Download, redirect(302, &format!("http://user:pa55word@127.0.0.1:9/x{secret}"))),
        (Call::Download, storage_error(404, "NoSuchKey", "The specified key does not exist.")),
        (Call::Download, raw("text/html", format!("<html>{nowhere}</html>"))),
        (Call::Download, expired()),
        (Call::Download, answer(503).header("Retry-After", "3600")),
    ];
    for link in [
        format!("file:///etc/passwd{secret}"),
        format!("ftp://bucket/x{secret}"),
        format!("http://[::1/x{secret}"),
        format!("http://docs.invalid/x{secret}"),
        nowhere.clone(),
        format!("http://user:pa55word@127.0.0.1:9/x{secret}"),
        format!("not a link{secret}"),
    ] {
        cases.push((Call::Bundle, raw("application/json", json!({"bundleUrl": link}).to_string())));
        // An answer that cannot be understood is quoted, but not when what it holds may be a link.
        cases.push((Call::Bundle, raw("application/json", json!({"bundle_url": link}).to_string())));
        cases.push((Call::Bundle, raw("application/json", format!("{{\"bundleUrl\": \"{link}"))));
    }
    at_once(&cases, |(call, reply)| {
        let upstream = Upstream::new(bundle("one"));
        upstream.on(*call).gives(reply.clone());
        let host = Host::new(&upstream).set("sync.jobTimeout", text("20s"));
        let ended = quiet(&host, &["sync"]);
        assert_ne!(ended.code, Some(0), "{call:?} {reply:?}");
        quiet(&host, &["status", "--json"]);
        quiet(&host, &["history", "--json"]);
    });
}

#[test]
fn a_configured_link_is_a_secret_whatever_is_wrong_with_it() {
    let secret = format!("?X-Amz-Signature={SIGNATURE}0000");
    let links = [
        format!("http://127.0.0.1:9/x{secret}"),
        format!("http://docs.invalid/x{secret}"),
        format!("http://[::1/x{secret}"),
        format!("ftp://bucket.example/x{secret}"),
        format!("htp://bucket.example/x{secret}"),
        format!("http://user:pa55word@127.0.0.1:9/x{secret}"),
        format!("no-such-file.zip{secret}"),
        format!("file:///no/such/file{secret}"),
        format!("http:///x{secret}"),
        format!("http://127.0.0.1:99999/x{secret}"),
    ];
    at_once(&links, |link| {
        let host = Host::linked(link);
        let ended = quiet(&host, &["sync"]);
        assert_ne!(ended.code, Some(0), "{link}");
        quiet(&host, &["status"]);
        quiet(&host, &["status", "--json"]);
    });
    // A mistake beside it quotes the line it is on, not the one of the link.
    let host = Host::linked(&format!("http://127.0.0.1:9/x{secret}")).set("staticExport.sha265", text("x"));
    assert_eq!(quiet(&host, &["sync"]).code, Some(2));
    let all = std::fs::read_to_string(host.path("docwharf.toml")).unwrap();
    host.put("docwharf.toml", all.replace("0000\"", "0000"));
    assert_eq!(quiet(&host, &["sync"]).code, Some(2));
}

#[test]
fn a_bucket_that_quotes_the_link_it_was_asked_for_is_not_quoted_with_it() {
    let upstream = Upstream::new(bundle("one"));
    let link = upstream.link();
    let signature = link.rsplit('=').next().unwrap();
    let replies = [
        storage_error(404, "NoSuchKey", &link),
        storage_error(403, "SignatureDoesNotMatch", &format!("the signature {signature} is not ours")),
        answer(410).body("text/html", format!("<html>There is nothing at <a href=\"{link}\">{signature}</a>")),
        answer(404).json(&json!({"error": format!("no {link}"), "details": [{"message": signature}]})),
        raw("text/html", format!("<html>{link}")),
        redirect(302, &format!("{link}&again=1")).without("Location"),
    ];
    for reply in replies {
        upstream.heal();
        upstream.on(Call::Download).gives(reply);
        let host = Host::linked(&link);
        assert_ne!(quiet(&host, &["sync"]).code, Some(0));
    }
}

#[test]
fn a_resumed_download_keeps_no_link_on_the_disk() {
    let upstream = Upstream::new(support::host::large_bundle("large", 3 << 20));
    upstream.plan().link_uses = 1;
    upstream.on(Call::Download).gives(honest().cut(100_000));
    let host = Host::new(&upstream);
    assert_eq!(quiet(&host, &["sync"]).code, Some(4));
    upstream.heal();
    upstream.plan().link_uses = 9;
    assert_eq!(quiet(&host, &["sync"]).code, Some(0));
}

#[test]
fn a_daemon_with_a_link_tells_no_more_of_it_than_its_address() {
    let upstream = Upstream::new(bundle("one"));
    let link = upstream.link();
    let host = Host::linked(&link).set("sync.interval", text("300ms"));
    let log = std::fs::File::create(host.path("log")).unwrap();
    let daemon = Daemon::start(tracing(&mut host.command(&["run"])).stderr(Stdio::from(log)));
    until("the first version", || front(&daemon) == "one");
    assert_silent_admin(&host);
    upstream.on(Call::Download).gives(storage_error(404, "NoSuchKey", &link));
    until("a failure", || host.last() == "failed");
    assert_ne!(quiet(&host, &["sync"]).code, Some(0));
    assert_silent_admin(&host);
    drop(daemon);
    assert_silent("the log", &std::fs::read(host.path("log")).unwrap());
    assert_silent_below(&host.path("store"));
}

#[test]
fn a_daemon_tells_no_secret_through_failures_reloads_and_commands() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream).set("sync.interval", text("300ms"));
    let log = std::fs::File::create(host.path("log")).unwrap();
    let mut command = host.command(&["run"]);
    let daemon = Daemon::start(tracing(&mut command).stderr(Stdio::from(log)));
    until("the first version", || front(&daemon) == "one");
    for fault in [close(), answer(503), raw("text/html", "<html>")] {
        upstream.on(Call::Poll).times(1).gives(fault);
    }
    upstream.on(Call::Download).times(1).gives(expired());
    let secret = format!("http://127.0.0.1:9/x?X-Amz-Signature={SIGNATURE}0000");
    upstream.on(Call::Download).times(1).gives(redirect(302, &secret));
    upstream.publish(bundle("two"));
    daemon.signal("HUP");
    until("the second version", || front(&daemon) == "two");
    upstream.on(Call::Start).gives(answer(401).json(&json!({"error": format!("unknown key {KEY}")})));
    daemon.signal("HUP");
    until("the refusal", || host.last() == "failed");
    quiet(&host, &["status", "--json"]);
    quiet(&host, &["history", "--json"]);
    // Asked through the control socket, with a failure as the answer.
    assert_eq!(quiet(&host, &["sync"]).code, Some(3));
    assert_silent_admin(&host);
    std::fs::write(host.path("key"), "dwk_5ecretAdminKey\nof two lines").unwrap();
    daemon.signal("HUP");
    until("the refused key", || host.last_error().contains("control"));
    assert_silent_admin(&host);
    drop(daemon);
    let log = std::fs::read(host.path("log")).unwrap();
    assert!(log.len() > 1000, "is anything logged at all?");
    assert_silent("the log", &log);
    assert_silent_below(&host.path("store"));
}
