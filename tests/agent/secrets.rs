//! No key, signature or token is in any output at any log level, or in any file, also after failures.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;
use support::host::{Host, bundle, front_page_title, run_concurrently, run_with_timeout, toml_string};
use support::upstream::{
    KEY, Reply, SIGNATURE, Upstream, UpstreamCall, close_without_reply, error_reply, expired_link_reply, normal_reply,
    raw_reply, redirect_reply, storage_error,
};
use support::{CommandOutput, Daemon, until};

/// Parts of the secrets: the key, values in the query of a link, the password in a link.
const SECRETS: [&str; 4] = ["5ecretAdminKey", "51gna7ure0f", "AKIDEXAMPLE", "pa55word"];

#[track_caller]
fn assert_no_secret(place: &str, bytes: &[u8]) {
    for secret in SECRETS {
        if let Some(index) =
            bytes.windows(secret.len()).position(|window| window.eq_ignore_ascii_case(secret.as_bytes()))
        {
            let context = &bytes[index.saturating_sub(200)..bytes.len().min(index + 200)];
            panic!("{place} contains {secret}: …{}…", String::from_utf8_lossy(context));
        }
    }
}

/// Checks the name and content of each file below `folder`.
#[track_caller]
fn assert_no_secret_below(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        assert_no_secret("a name", path.file_name().unwrap().as_encoded_bytes());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            assert_no_secret_below(&path);
        } else if kind.is_file() {
            assert_no_secret(&path.display().to_string(), &std::fs::read(&path).unwrap());
        }
    }
}

/// Checks all responses of the control socket.
#[track_caller]
fn assert_no_secret_on_socket(host: &Host) {
    let command = r#"{"verb":"sync","refresh":"x"}"#;
    let post = format!(
        "POST /orders HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{command}",
        command.len()
    );
    let gets = ["/status", "/metrics", "/readyz", "/livez", "/"];
    let gets = gets.map(|path| format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
    for request in gets.into_iter().chain([post]) {
        let mut stream = UnixStream::connect(host.path("store/control.sock")).expect("the daemon listens");
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).unwrap();
        assert!(response.starts_with(b"HTTP/1.1 "), "{request}");
        assert_no_secret(&request, &response);
    }
}

fn with_trace_log(command: &mut Command) -> &mut Command {
    command.env("DOCWHARF_LOG", "trace").env("RUST_BACKTRACE", "full")
}

/// Runs a command with the log level `trace`, and checks its output and the store for secrets.
#[track_caller]
fn run_and_check(host: &Host, arguments: &[&str]) -> CommandOutput {
    let ended = run_with_timeout(with_trace_log(&mut host.command(arguments)).current_dir(host.dir.path()));
    let place = format!("{arguments:?}, {:?}", ended.code);
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    if !arguments.starts_with(&["export", "link"]) {
        assert_no_secret(&format!("{place} on stdout"), ended.stdout.as_bytes());
    }
    assert_no_secret(&format!("{place} on stderr"), ended.stderr.as_bytes());
    if host.path("store").exists() {
        assert_no_secret_below(&host.path("store"));
    }
    ended
}

#[test]
fn a_successful_sync_prints_no_secret_even_at_trace_level() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream);
    let ended = run_and_check(&host, &["sync"]);
    assert_eq!(ended.code, Some(0));
    assert!(ended.stderr.lines().count() > 5, "the log is too short: {}", ended.stderr);
    run_and_check(&host, &["sync", "--json"]);
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
        run_and_check(&host, arguments);
    }
    // The key from the environment is not printed either.
    let host = host.without("api.keyFile");
    let ended = run_with_timeout(with_trace_log(&mut host.command(&["sync"])).env("DOCWHARF_API_KEY", KEY));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_no_secret("the environment", ended.stderr.as_bytes());
}

#[test]
fn rust_log_cannot_enable_the_logs_of_libraries() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream);
    let log_lines = |directives: &str| {
        let ended = run_with_timeout(host.command(&["export", "start"]).env("RUST_LOG", directives));
        assert_eq!(ended.code, Some(0), "{directives}: {}", ended.stderr);
        ended.stderr.lines().count()
    };
    let own_lines = log_lines("docwharf=trace");
    for directives in ["trace", "hyper=trace,docwharf=trace", "reqwest=trace,hyper_util=trace,docwharf=trace"] {
        assert_eq!(log_lines(directives), own_lines, "{directives}");
    }
}

#[test]
fn a_failed_sync_prints_and_stores_no_secret() {
    let secret = format!("?X-Amz-Signature={SIGNATURE}0000");
    let nowhere = format!("http://127.0.0.1:9/exports/x{secret}");
    let echo = format!("bad key {KEY} in Authorization: Bearer {KEY}");
    let mut cases: Vec<(UpstreamCall, Reply)> = vec![
        (UpstreamCall::Start, error_reply(401)),
        (UpstreamCall::Start, error_reply(401).json(&json!({"error": echo, "details": [{"message": echo}]}))),
        (UpstreamCall::Start, error_reply(400).body("text/html", format!("<pre>Authorization: Bearer {KEY}</pre>"))),
        (UpstreamCall::Poll, error_reply(403)),
        (UpstreamCall::Link, error_reply(400)),
        (UpstreamCall::Link, error_reply(401).body("text/plain", &echo)),
        (UpstreamCall::Download, redirect_reply(302, &nowhere)),
        (UpstreamCall::Download, redirect_reply(302, &format!("ftp://bucket/x{secret}"))),
        (UpstreamCall::Download, redirect_reply(302, &format!("http://[::1/x{secret}"))),
        (UpstreamCall::Download, redirect_reply(302, &format!("http://user:pa55word@127.0.0.1:9/x{secret}"))),
        (UpstreamCall::Download, storage_error(404, "NoSuchKey", "The specified key does not exist.")),
        (UpstreamCall::Download, raw_reply("text/html", format!("<html>{nowhere}</html>"))),
        (UpstreamCall::Download, expired_link_reply()),
        (UpstreamCall::Download, error_reply(503).header("Retry-After", "3600")),
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
        cases.push((UpstreamCall::Link, raw_reply("application/json", json!({"bundleUrl": link}).to_string())));
        // An unreadable response is quoted, unless it may contain a link.
        cases.push((UpstreamCall::Link, raw_reply("application/json", json!({"bundle_url": link}).to_string())));
        cases.push((UpstreamCall::Link, raw_reply("application/json", format!("{{\"bundleUrl\": \"{link}"))));
    }
    run_concurrently(&cases, |(call, reply)| {
        let upstream = Upstream::new(bundle("one"));
        upstream.on(*call).respond_with(reply.clone());
        let host = Host::new(&upstream).set("sync.jobTimeout", toml_string("20s"));
        let ended = run_and_check(&host, &["sync"]);
        assert_ne!(ended.code, Some(0), "{call:?} {reply:?}");
        run_and_check(&host, &["status", "--json"]);
        run_and_check(&host, &["history", "--json"]);
    });
}

#[test]
fn errors_about_a_bundle_url_never_print_its_secrets() {
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
    run_concurrently(&links, |link| {
        let host = Host::linked(link);
        let ended = run_and_check(&host, &["sync"]);
        assert_ne!(ended.code, Some(0), "{link}");
        run_and_check(&host, &["status"]);
        run_and_check(&host, &["status", "--json"]);
    });
    // An error in another key quotes the line of that key, not the line of the link.
    let host = Host::linked(&format!("http://127.0.0.1:9/x{secret}")).set("staticExport.sha265", toml_string("x"));
    assert_eq!(run_and_check(&host, &["sync"]).code, Some(2));
    let config = std::fs::read_to_string(host.path("docwharf.toml")).unwrap();
    host.put("docwharf.toml", config.replace("0000\"", "0000"));
    assert_eq!(run_and_check(&host, &["sync"]).code, Some(2));
}

#[test]
fn an_error_response_that_quotes_the_link_is_printed_without_its_signature() {
    let upstream = Upstream::new(bundle("one"));
    let link = upstream.link();
    let signature = link.rsplit('=').next().unwrap();
    let replies = [
        storage_error(404, "NoSuchKey", &link),
        storage_error(403, "SignatureDoesNotMatch", &format!("the signature {signature} is not ours")),
        error_reply(410).body("text/html", format!("<html>There is nothing at <a href=\"{link}\">{signature}</a>")),
        error_reply(404).json(&json!({"error": format!("no {link}"), "details": [{"message": signature}]})),
        raw_reply("text/html", format!("<html>{link}")),
        redirect_reply(302, &format!("{link}&again=1")).without("Location"),
    ];
    for reply in replies {
        upstream.clear_rules();
        upstream.on(UpstreamCall::Download).respond_with(reply);
        let host = Host::linked(&link);
        assert_ne!(run_and_check(&host, &["sync"]).code, Some(0));
    }
}

#[test]
fn a_resumed_download_stores_no_link_on_the_disk() {
    let upstream = Upstream::new(support::host::large_bundle("large", 3 << 20));
    upstream.state().link_uses = 1;
    upstream.on(UpstreamCall::Download).respond_with(normal_reply().cut(100_000));
    let host = Host::new(&upstream);
    assert_eq!(run_and_check(&host, &["sync"]).code, Some(4));
    upstream.clear_rules();
    upstream.state().link_uses = 9;
    assert_eq!(run_and_check(&host, &["sync"]).code, Some(0));
}

#[test]
fn run_reveals_no_secret_of_its_bundle_url_in_log_store_and_control_socket() {
    let upstream = Upstream::new(bundle("one"));
    let link = upstream.link();
    let host = Host::linked(&link).set("sync.interval", toml_string("300ms"));
    let log = std::fs::File::create(host.path("log")).unwrap();
    let daemon = Daemon::start(with_trace_log(&mut host.command(&["run"])).stderr(Stdio::from(log)));
    until("the first version", || front_page_title(&daemon) == "one");
    assert_no_secret_on_socket(&host);
    upstream.on(UpstreamCall::Download).respond_with(storage_error(404, "NoSuchKey", &link));
    until("a failure", || host.last_result() == "failed");
    assert_ne!(run_and_check(&host, &["sync"]).code, Some(0));
    assert_no_secret_on_socket(&host);
    drop(daemon);
    assert_no_secret("the log", &std::fs::read(host.path("log")).unwrap());
    assert_no_secret_below(&host.path("store"));
}

#[test]
fn run_reveals_no_secret_during_failures_reloads_and_commands() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream).set("sync.interval", toml_string("300ms"));
    let log = std::fs::File::create(host.path("log")).unwrap();
    let mut command = host.command(&["run"]);
    let daemon = Daemon::start(with_trace_log(&mut command).stderr(Stdio::from(log)));
    until("the first version", || front_page_title(&daemon) == "one");
    for fault in [close_without_reply(), error_reply(503), raw_reply("text/html", "<html>")] {
        upstream.on(UpstreamCall::Poll).times(1).respond_with(fault);
    }
    upstream.on(UpstreamCall::Download).times(1).respond_with(expired_link_reply());
    let secret = format!("http://127.0.0.1:9/x?X-Amz-Signature={SIGNATURE}0000");
    upstream.on(UpstreamCall::Download).times(1).respond_with(redirect_reply(302, &secret));
    upstream.publish(bundle("two"));
    daemon.signal("HUP");
    until("the second version", || front_page_title(&daemon) == "two");
    upstream
        .on(UpstreamCall::Start)
        .respond_with(error_reply(401).json(&json!({"error": format!("unknown key {KEY}")})));
    daemon.signal("HUP");
    until("the refusal", || host.last_result() == "failed");
    run_and_check(&host, &["status", "--json"]);
    run_and_check(&host, &["history", "--json"]);
    // This sync is a command on the control socket, and fails.
    assert_eq!(run_and_check(&host, &["sync"]).code, Some(3));
    assert_no_secret_on_socket(&host);
    std::fs::write(host.path("key"), "dwk_5ecretAdminKey\nof two lines").unwrap();
    daemon.signal("HUP");
    until("the refused key", || host.last_error().contains("control"));
    assert_no_secret_on_socket(&host);
    drop(daemon);
    let log = std::fs::read(host.path("log")).unwrap();
    assert!(log.len() > 1000, "the log is too short");
    assert_no_secret("the log", &log);
    assert_no_secret_below(&host.path("store"));
}
