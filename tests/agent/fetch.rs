//! Downloads of a bundle by its link: complete or not at all, with any fault of the network or the server.

use std::time::Duration;

use docwharf::model::digest::Digest;
use serde_json::{Value, json};
use support::host::{Host, bundle, front_page_title, large_bundle, run_concurrently, run_with_timeout, toml_string};
use support::proxy::ForwardProxy;
use support::tar;
use support::upstream::{
    BundleCoding, Reply, Request, SIGNATURE, Upstream, UpstreamCall, close_without_reply, error_reply,
    expired_link_reply, no_reply, normal_reply, raw_reply, redirect_reply, rfc3339_in, storage_error,
};
use support::{docwharf, http};

/// Larger than the buffers of a connection, so that the client sees a cut at the right place.
const LARGE: usize = 3 << 20;

fn large_upstream() -> (Upstream, Vec<u8>) {
    let bytes = large_bundle("large", LARGE);
    (Upstream::new(bytes.clone()), bytes)
}

/// The first byte that a request with `Range` asks for.
fn range_start(request: &Request) -> Option<usize> {
    let range = request.header("range")?;
    let from = range.strip_prefix("bytes=").and_then(|range| range.strip_suffix('-'));
    Some(from.unwrap_or_else(|| panic!("an odd range: {range}")).parse().unwrap())
}

/// Panics unless the active version is the one of the bundle `bytes`.
#[track_caller]
fn assert_active_bundle(host: &Host, bytes: &[u8]) {
    let history = host.ok(&["history", "--json"]).json();
    assert!(host.active().is_some(), "{history}");
    host.put("wanted", bytes);
    let expected =
        support::run_to_end(docwharf().args(["bundle", "verify", "--json"]).arg(host.path("wanted"))).expect(0).json();
    assert_eq!(host.active().as_deref(), expected["version"].as_str());
    host.assert_tidy();
}

// The request.

#[test]
fn a_download_is_one_get_request_with_accept_encoding_identity() {
    let upstream = Upstream::new(bundle("one"));
    Host::new(&upstream).ok(&["sync"]);
    let downloads = upstream.calls(UpstreamCall::Download);
    assert_eq!(downloads.len(), 1, "{}", upstream.request_history());
    let request = &downloads[0];
    assert_eq!(request.method, "GET", "a presigned link is signed for GET alone");
    assert_eq!(request.header("accept-encoding"), Some("identity"));
    assert!(request.header("user-agent").is_some_and(|agent| agent.starts_with("docwharf/")), "{}", request.head());
    assert_eq!(request.header("range"), None);
    assert_eq!(request.header("authorization"), None);
    assert!(request.body.is_empty());
    // Escapes in the query are part of what was signed.
    assert!(request.target.contains("X-Amz-Credential=AKIDEXAMPLE%2F20260801%2Fus-east-1%2Fs3"), "{}", request.target);
    assert_eq!(request.header("host"), Some(upstream.object_store_origin().strip_prefix("http://").unwrap()));
}

#[test]
fn every_archive_format_is_accepted_with_a_true_or_false_gzip_content_encoding() {
    let tar = tar::tar(&[tar::file("index.html", "<title>tar</title>"), tar::file("a.css", "p{}")]);
    let kinds = [bundle("zip"), tar::gzip(&tar), tar::zstd(&tar), tar];
    let mut cases = Vec::new();
    for kind in &kinds {
        for coding in [None, Some(BundleCoding::Label), Some(BundleCoding::Layer)] {
            cases.push((kind, coding));
        }
    }
    run_concurrently(&cases, |(kind, coding)| {
        let upstream = Upstream::new(Vec::clone(kind));
        upstream.state().coding = *coding;
        let host = Host::new(&upstream);
        let ended = run_with_timeout(&mut host.command(&["sync"]));
        assert_eq!(ended.code, Some(0), "{:?}… {coding:?}: {ended:?}", &kind[..2]);
        assert_eq!(upstream.count(UpstreamCall::Download), 1, "{coding:?}");
        assert_active_bundle(&host, kind);
    });
}

#[test]
fn a_download_is_accepted_with_any_content_encoding_value() {
    let tar = tar::gzip(&tar::tar(&[tar::file("index.html", "<title>tar</title>")]));
    let labels = ["aws-chunked", "gzip,aws-chunked", "GZIP", "x-gzip", "identity", "utf-8", "", "br", "zstd"];
    let cases: Vec<_> = labels.iter().flat_map(|label| [(label, bundle("zip")), (label, tar.clone())]).collect();
    run_concurrently(&cases, |(label, bytes)| {
        let upstream = Upstream::new(bytes.clone());
        upstream.on(UpstreamCall::Download).respond_with(normal_reply().header("Content-Encoding", label));
        let host = Host::new(&upstream);
        let ended = run_with_timeout(&mut host.command(&["sync"]));
        assert_eq!(ended.code, Some(0), "{label:?}: {ended:?}");
        assert_active_bundle(&host, bytes);
    });
}

#[test]
fn an_unrequested_206_is_accepted_if_complete_and_else_the_download_is_retried() {
    let bytes = bundle("one");
    let part = |from: usize, to: usize| {
        let span = format!("bytes {from}-{}/{}", to - 1, bytes.len());
        raw_reply("application/gzip", &bytes[from..to]).status(206).header("Content-Range", span)
    };
    let replies = [part(0, bytes.len()), part(10, bytes.len()), part(0, 100)];
    run_concurrently(&replies, |reply| {
        let upstream = Upstream::new(bytes.clone());
        upstream.on(UpstreamCall::Download).times(1).respond_with(reply.clone());
        let host = Host::new(&upstream);
        let ended = run_with_timeout(&mut host.command(&["sync"]));
        assert_eq!(ended.code, Some(0), "{ended:?}{}", upstream.request_history());
        assert_active_bundle(&host, &bytes);
    });
}

#[test]
fn an_unrequested_304_does_not_count_as_a_bundle() {
    let upstream = Upstream::new(bundle("one"));
    upstream.on(UpstreamCall::Download).times(1).respond_with(error_reply(304));
    let host = Host::new(&upstream);
    let ended = run_with_timeout(&mut host.command(&["sync"]));
    assert!(ended.code == Some(0) && host.active().is_some() || ended.code == Some(4), "{ended:?}");
}

#[test]
fn a_content_encoding_does_not_break_a_resumed_download() {
    run_concurrently(&[BundleCoding::Label, BundleCoding::Layer], |&coding| {
        let (upstream, bytes) = large_upstream();
        upstream.state().coding = Some(coding);
        upstream.on(UpstreamCall::Download).times(1).respond_with(normal_reply().cut(LARGE / 2));
        let host = Host::new(&upstream);
        host.ok(&["sync"]);
        assert_active_bundle(&host, &bytes);
    });
}

#[test]
fn a_stalled_download_is_resumed_and_a_slow_download_is_not_interrupted() {
    let (upstream, bytes) = large_upstream();
    upstream.on(UpstreamCall::Download).times(1).respond_with(normal_reply().stall(1_500_000));
    let host = Host::new(&upstream).set("network.idleTimeout", toml_string("2s"));
    host.ok(&["sync"]);
    assert_active_bundle(&host, &bytes);
    let downloads = upstream.calls(UpstreamCall::Download);
    assert_eq!(downloads.len(), 2);
    assert_eq!(range_start(&downloads[1]), Some(1_500_000), "{:?}", downloads[1]);

    // The download takes longer than each timeout, but is never idle. There is no total timeout.
    let upstream = Upstream::new(bytes.clone());
    upstream.on(UpstreamCall::Download).respond_with(normal_reply().trickle(40, Duration::from_millis(150)));
    let host = Host::new(&upstream)
        .set("network.idleTimeout", toml_string("3s"))
        .set("network.callTimeout", toml_string("3s"))
        .set("network.connectTimeout", toml_string("3s"));
    host.ok(&["sync"]);
    assert_active_bundle(&host, &bytes);
    assert_eq!(upstream.count(UpstreamCall::Download), 1);
}

// Resumed downloads.

#[test]
fn a_cut_download_resumes_with_range_and_if_range() {
    let (upstream, bytes) = large_upstream();
    upstream.on(UpstreamCall::Download).times(1).respond_with(normal_reply().cut(1_000_000));
    upstream.on(UpstreamCall::Download).times(1).respond_with(normal_reply().cut(500_000));
    let host = Host::new(&upstream);
    host.ok(&["sync"]);
    assert_active_bundle(&host, &bytes);
    let downloads = upstream.calls(UpstreamCall::Download);
    let starts: Vec<_> = downloads.iter().map(range_start).collect();
    assert_eq!(starts, [None, Some(1_000_000), Some(1_500_000)], "{}", upstream.request_history());
    let etag = upstream.state().validator();
    for request in &downloads[1..] {
        assert_eq!(request.header("if-range"), Some(&*etag));
        assert_eq!(request.header("accept-encoding"), Some("identity"));
        assert_eq!((request.method.as_str(), request.status), ("GET", 206));
    }
    assert_eq!((upstream.count(UpstreamCall::Start), upstream.count(UpstreamCall::Link)), (1, 1));
}

#[test]
fn a_response_that_does_not_match_the_requested_range_restarts_the_download() {
    const CUT_AT: usize = 1_000_000;
    let total = large_bundle("large", LARGE).len();
    let with_content_range = |text: String| normal_reply().header("Content-Range", text);
    let cases: Vec<(&str, Reply)> = vec![
        ("range ignored", normal_reply().ignoring_range()),
        ("one byte late", with_content_range(format!("bytes {}-{}/{total}", CUT_AT + 1, total - 1))),
        ("from the start under a 206", with_content_range(format!("bytes 0-{}/{total}", total - 1))),
        ("another total", with_content_range(format!("bytes {CUT_AT}-{}/{}", total - 1, total + 1))),
        ("no Content-Range", normal_reply().without("Content-Range")),
        ("an odd Content-Range", with_content_range("bytes lots".to_owned())),
        ("another unit", with_content_range(format!("pages {CUT_AT}-{}/{total}", total - 1))),
        ("another ETag", normal_reply().header("ETag", "\"0123456789abcdef\"")),
        ("416", error_reply(416).header("Content-Range", format!("bytes */{total}"))),
    ];
    run_concurrently(&cases, |(case, reply)| {
        let (upstream, bytes) = large_upstream();
        upstream.on(UpstreamCall::Download).times(1).respond_with(normal_reply().cut(CUT_AT));
        upstream.on(UpstreamCall::Download).times(1).respond_with(reply.clone());
        let host = Host::new(&upstream);
        let ended = run_with_timeout(&mut host.command(&["sync"]));
        assert_eq!(ended.code, Some(0), "{case}: {ended:?}{}", upstream.request_history());
        assert_active_bundle(&host, &bytes);
        let downloads = upstream.calls(UpstreamCall::Download);
        assert_eq!(range_start(&downloads[1]), Some(CUT_AT), "{case}");
        if *case != "range ignored" {
            assert_eq!(downloads.len(), 3, "{case}: {}", upstream.request_history());
            assert_eq!(range_start(&downloads[2]), None, "{case}: {}", upstream.request_history());
        }
        assert_eq!(upstream.count(UpstreamCall::Start), 1);
    });
}

#[test]
fn a_resumed_download_never_combines_parts_of_two_bundles() {
    // Whether the object store honours If-Range or not.
    run_concurrently(&[true, false], |&honours_if_range| {
        let (upstream, _) = large_upstream();
        upstream.on(UpstreamCall::Download).times(1).respond_with(normal_reply().cut(1_000_000));
        let host = Host::new(&upstream);
        let new = large_bundle("new", LARGE + 5);
        std::thread::scope(|scope| {
            let sync = scope.spawn(|| host.ok(&["sync"]));
            support::until("the first part", || upstream.count(UpstreamCall::Download) == 1);
            upstream.publish(new.clone());
            if !honours_if_range {
                let rest = new[1_000_000..].to_vec();
                let span = format!("bytes 1000000-{}/{}", new.len() - 1, new.len());
                let etag = upstream.state().validator();
                let reply = raw_reply("application/gzip", rest).status(206).header("Content-Range", span);
                upstream.on(UpstreamCall::Download).times(1).respond_with(reply.header("ETag", etag));
            }
            sync.join().unwrap();
        });
        assert_active_bundle(&host, &new);
    });
}

#[test]
fn a_download_without_a_strong_validator_is_not_resumed() {
    let weak: fn() -> Reply = || normal_reply().header("ETag", "W/\"weak\"").without("Last-Modified");
    let none: fn() -> Reply = || normal_reply().without("ETag").without("Last-Modified");
    run_concurrently(&[weak, none], |make_reply| {
        let (upstream, bytes) = large_upstream();
        upstream.on(UpstreamCall::Download).times(1).respond_with(make_reply().cut(1_000_000));
        upstream.on(UpstreamCall::Download).respond_with(make_reply());
        let host = Host::new(&upstream);
        host.ok(&["sync"]);
        assert_active_bundle(&host, &bytes);
        let second = &upstream.calls(UpstreamCall::Download)[1];
        assert_eq!((range_start(second), second.header("if-range")), (None, None), "{}", second.head());
    });
}

#[test]
fn each_mebibyte_of_progress_resets_the_attempts_of_a_download_and_less_does_not() {
    // Six failures, each after more than one MiB: more than five attempts, and none too many.
    let bytes = large_bundle("progress", 8 << 20);
    let upstream = Upstream::new(bytes.clone());
    upstream.on(UpstreamCall::Download).times(6).respond_with(normal_reply().cut((1 << 20) + 50_000));
    let host = Host::new(&upstream);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            host.ok(&["sync"]);
            assert_active_bundle(&host, &bytes);
            assert_eq!(upstream.count(UpstreamCall::Download), 7, "{}", upstream.request_history());
            assert_eq!(upstream.count(UpstreamCall::Link), 1);
        });
        scope.spawn(|| {
            let upstream = Upstream::new(bytes.clone());
            upstream.on(UpstreamCall::Download).respond_with(normal_reply().cut(100_000));
            let host = Host::new(&upstream);
            host.expect_exit(4, &["sync"]);
            assert_eq!(upstream.count(UpstreamCall::Download), 5, "{}", upstream.request_history());
            assert_eq!(upstream.count(UpstreamCall::Start), 1);
            assert_eq!(host.active(), None);
        });
    });
}

#[test]
fn a_download_is_retried_after_a_bad_response() {
    type MakeReply = fn() -> Reply;
    let faults: [(&str, MakeReply); 8] = [
        ("503", || error_reply(503)),
        ("500 of the object store", || storage_error(500, "InternalError", "We encountered an internal error")),
        ("SlowDown", || storage_error(503, "SlowDown", "Please reduce your request rate")),
        ("429", || error_reply(429)),
        ("closed", close_without_reply),
        ("silence", no_reply),
        ("cut head", || normal_reply().cut(0)),
        ("a length that is too long", || normal_reply().header("Content-Length", "99999999").cut(1000)),
    ];
    run_concurrently(&faults, |&(case, make_reply)| {
        let upstream = Upstream::new(bundle("one"));
        upstream.on(UpstreamCall::Download).times(1).respond_with(make_reply());
        // A short timeout only where the test needs it: on a busy machine, a response may take a while.
        let idle_timeout = if case == "silence" { "3s" } else { "5s" };
        let host = Host::new(&upstream).set("network.idleTimeout", toml_string(idle_timeout));
        assert_eq!(host.sync(), "activated", "{case}");
        assert_eq!(upstream.count(UpstreamCall::Start), 1, "{case}: {}", upstream.request_history());
        // With a wrong length the rest does not match, so the download starts anew.
        assert!((2..=3).contains(&upstream.count(UpstreamCall::Download)), "{case}: {}", upstream.request_history());
    });
}

#[test]
fn an_expired_link_is_renewed_for_the_same_job() {
    let errors: [fn() -> Reply; 6] = [
        expired_link_reply,
        || storage_error(403, "ExpiredToken", "The provided token has expired."),
        // S3's status for credentials behind a link that have run out (Amazon S3 API, error responses).
        || storage_error(400, "ExpiredToken", "The provided token has expired."),
        || storage_error(400, "InvalidToken", "The provided token is malformed or otherwise not valid."),
        || error_reply(403).body("text/plain", ""),
        || error_reply(403).body("text/html", "<h1>403 Forbidden</h1>"),
    ];
    run_concurrently(&errors, |make_reply| {
        let upstream = Upstream::new(bundle("one"));
        upstream.on(UpstreamCall::Download).times(1).respond_with(make_reply());
        let host = Host::new(&upstream);
        assert_eq!(host.sync(), "activated");
        assert_eq!(
            (upstream.count(UpstreamCall::Start), upstream.count(UpstreamCall::Link)),
            (1, 2),
            "{}",
            upstream.request_history()
        );
        let downloads = upstream.calls(UpstreamCall::Download);
        assert_ne!(downloads[0].target, downloads[1].target, "the second link is new");
    });
}

#[test]
fn a_400_without_a_token_error_code_ends_the_sync_without_another_link() {
    let errors: [fn() -> Reply; 2] = [
        || storage_error(400, "InvalidRequest", "The request is not valid."),
        || error_reply(400).body("text/plain", ""),
    ];
    run_concurrently(&errors, |make_reply| {
        let upstream = Upstream::new(bundle("one"));
        upstream.on(UpstreamCall::Download).respond_with(make_reply());
        let ended = Host::new(&upstream).expect_exit(4, &["sync"]);
        assert!(ended.stderr.contains("400"), "{}", ended.stderr);
        assert_eq!(
            (upstream.count(UpstreamCall::Link), upstream.count(UpstreamCall::Download)),
            (1, 1),
            "{}",
            upstream.request_history()
        );
    });
}

#[test]
fn a_link_that_expires_during_a_download_is_renewed_and_the_download_resumes() {
    let (upstream, bytes) = large_upstream();
    upstream.state().link_uses = 1;
    upstream.on(UpstreamCall::Download).times(1).respond_with(normal_reply().cut(1_000_000));
    let host = Host::new(&upstream);
    host.ok(&["sync"]);
    assert_active_bundle(&host, &bytes);
    let downloads = upstream.calls(UpstreamCall::Download);
    assert_eq!(
        downloads.iter().map(|r| r.status).collect::<Vec<_>>(),
        [200, 403, 206],
        "{}",
        upstream.request_history()
    );
    assert_eq!(range_start(&downloads[2]), Some(1_000_000), "the new link leads to the same bytes");
    assert_eq!((upstream.count(UpstreamCall::Start), upstream.count(UpstreamCall::Link)), (1, 2));
}

#[test]
fn sync_fails_after_a_few_expired_links_without_starting_a_second_job() {
    let upstream = Upstream::new(bundle("one"));
    upstream.on(UpstreamCall::Download).respond_with(expired_link_reply());
    let host = Host::new(&upstream);
    let ended = host.expect_exit(4, &["sync"]);
    assert!(ended.stderr.contains("expired") || ended.stderr.contains("AccessDenied"), "{}", ended.stderr);
    assert_eq!(upstream.count(UpstreamCall::Start), 1, "{}", upstream.request_history());
    assert!((2..=6).contains(&upstream.count(UpstreamCall::Link)), "{}", upstream.request_history());
    assert!(upstream.count(UpstreamCall::Download) <= 6, "{}", upstream.request_history());
}

#[test]
fn expires_at_and_the_clock_of_the_upstream_are_only_hints() {
    let mut cases: Vec<(Value, i64)> = vec![
        (json!(rfc3339_in(-3600)), 0),
        (json!("yesterday"), 0),
        (json!(""), 0),
        (json!(1_790_000_000), 0),
        (json!("9999-12-31T23:59:59Z"), 0),
        (json!("0001-01-01T00:00:00Z"), 0),
        (json!({"at": 1}), 0),
        (Value::Null, 0),
    ];
    cases.extend([(json!(rfc3339_in(3600 - 17 * 60)), -17 * 60), (json!(rfc3339_in(3600 + 17 * 60)), 17 * 60)]);
    run_concurrently(&cases, |(expires, skew)| {
        let upstream = Upstream::new(bundle("one"));
        {
            let mut plan = upstream.state();
            plan.expires_at = Some(expires.clone());
            plan.skew = *skew;
        }
        assert_eq!(Host::new(&upstream).sync(), "activated", "{expires} {skew}");
        assert_eq!(upstream.count(UpstreamCall::Start), 1);
        assert!(upstream.count(UpstreamCall::Link) <= 2, "{expires}: {}", upstream.request_history());
    });
}

#[test]
fn a_wrong_size_bytes_field_is_ignored() {
    for size in [json!(0), json!(1), json!(-1), json!(u64::MAX), json!("12 MB"), json!(1.5)] {
        let upstream = Upstream::new(bundle("one"));
        upstream.state().size_bytes = Some(size.clone());
        assert_eq!(Host::new(&upstream).sync(), "activated", "{size}");
    }
}

// Targets of links and redirects.

#[test]
fn a_download_follows_redirects_to_another_origin_without_credentials_or_referer() {
    run_concurrently(&[301, 302, 303, 307, 308], |&status| {
        let (upstream, other_origin) = (Upstream::new(bundle("one")), Upstream::new(bundle("one")));
        upstream.on(UpstreamCall::Download).times(1).respond_with(redirect_reply(status, &other_origin.link()));
        assert_eq!(Host::new(&upstream).sync(), "activated", "{status}");
        let request = &other_origin.log()[0];
        assert_eq!((request.method.as_str(), request.header("accept-encoding")), ("GET", Some("identity")));
        for secret in ["authorization", "cookie", "referer"] {
            assert_eq!(request.header(secret), None);
        }
        assert!(
            !request.head().contains(upstream.object_store_origin().trim_start_matches("http://")),
            "{}",
            request.head()
        );
    });
}

#[test]
fn a_relative_redirect_of_a_download_stays_on_the_same_origin() {
    let upstream = Upstream::new(bundle("one"));
    let link = upstream.link();
    let target = link.strip_prefix(&upstream.object_store_origin()).unwrap();
    upstream.on(UpstreamCall::Download).times(1).respond_with(redirect_reply(302, target));
    assert_eq!(Host::new(&upstream).sync(), "activated");
    assert_eq!(upstream.calls(UpstreamCall::Download)[1].target, target);
}

#[test]
fn links_and_redirects_to_anything_but_http_are_refused() {
    let (_dir, secret) = {
        let dir = support::temporary_folder();
        let path = dir.path().join("local.zip");
        std::fs::write(&path, bundle("local")).unwrap();
        (dir, path)
    };
    let links = [
        format!("file://{}", secret.display()),
        secret.display().to_string(),
        "ftp://127.0.0.1/bundle.zip".to_owned(),
        "data:application/zip;base64,UEsFBg==".to_owned(),
        "//127.0.0.1/bundle.zip".to_owned(),
        "not a link".to_owned(),
        "http://".to_owned(),
    ];
    run_concurrently(&links, |link| {
        // A response with an invalid link counts as unreadable: the call is repeated, then the sync fails.
        let upstream = Upstream::new(bundle("one"));
        upstream.state().link = Some(link.clone());
        let host = Host::new(&upstream);
        let ended = run_with_timeout(&mut host.command(&["sync"]));
        assert!(matches!(ended.code, Some(4 | 5)), "{link}: {ended:?}");
        assert_eq!((host.active(), upstream.count(UpstreamCall::Start)), (None, 1), "{link}");
    });
    run_concurrently(&links[..4], |link| {
        if !link.starts_with('/') {
            let upstream = Upstream::new(bundle("one"));
            upstream.on(UpstreamCall::Download).respond_with(redirect_reply(302, link));
            let host = Host::new(&upstream);
            let ended = run_with_timeout(&mut host.command(&["sync"]));
            assert!(matches!(ended.code, Some(4 | 5)), "to {link}: {ended:?}");
            assert_eq!((host.active(), upstream.count(UpstreamCall::Start)), (None, 1), "to {link}");
        }
    });
}

#[test]
fn a_download_follows_at_most_the_configured_number_of_redirects() {
    // A loop, and a chain that grows.
    let upstream = Upstream::new(bundle("one"));
    let link = upstream.link();
    upstream.on(UpstreamCall::Download).respond_with(redirect_reply(302, &link));
    let host = Host::new(&upstream).set("network.redirects", "3");
    let ended = host.expect_exit(4, &["sync"]);
    assert!(ended.stderr.contains("redirect"), "{}", ended.stderr);
    assert!(upstream.count(UpstreamCall::Download) <= 5 * 4, "{}", upstream.request_history());

    let upstream = Upstream::new(bundle("one"));
    for _ in 0..3 {
        let link = upstream.link();
        upstream.on(UpstreamCall::Download).times(1).respond_with(redirect_reply(307, &link));
    }
    assert_eq!(Host::new(&upstream).set("network.redirects", "3").sync(), "activated");
    assert_eq!(upstream.count(UpstreamCall::Download), 4);

    // A redirect without `Location`.
    let upstream = Upstream::new(bundle("one"));
    upstream.on(UpstreamCall::Download).respond_with(redirect_reply(302, "").without("Location"));
    Host::new(&upstream).expect_exit(4, &["sync"]);
}

// Checks of the downloaded file.

#[test]
fn a_downloaded_file_that_is_no_bundle_is_refused_with_its_format() {
    let cases: [(Reply, &str); 5] = [
        (raw_reply("text/html", "<!doctype html><html><title>Sign in</title></html>"), "HTML"),
        (raw_reply("application/json", "{\"error\": \"no\"}"), "JSON"),
        (storage_error(200, "NoSuchKey", "The specified key does not exist."), "NoSuchKey"),
        (raw_reply("application/gzip", ""), "empty"),
        (raw_reply("application/gzip", tar::gzip(b"no tar")), ""),
    ];
    run_concurrently(&cases, |(reply, part)| {
        let upstream = Upstream::new(bundle("one"));
        upstream.on(UpstreamCall::Download).respond_with(reply.clone());
        let host = Host::new(&upstream);
        let ended = host.expect_exit(5, &["sync"]);
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
        assert!(!ended.stderr.contains(SIGNATURE), "{}", ended.stderr);
        assert_eq!(host.job(), None, "the job of a refused bundle is removed from the record");
        host.assert_tidy();
    });
}

#[test]
fn a_body_truncated_by_a_short_content_length_never_becomes_a_version() {
    let (upstream, _) = large_upstream();
    upstream.on(UpstreamCall::Download).respond_with(normal_reply().header("Content-Length", "1000000").cut(1_000_000));
    let host = Host::new(&upstream);
    let ended = run_with_timeout(&mut host.command(&["sync"]));
    assert!(matches!(ended.code, Some(4 | 5)), "{ended:?}");
    assert_eq!(host.active(), None);
}

#[test]
fn a_bundle_above_the_limit_is_refused_before_it_fills_the_disk() {
    /// More than the kernel's buffers of a connection on both sides.
    const BUFFERED_BYTES: usize = 16 << 20;
    let bytes = large_bundle("large", 30 << 20);
    // Without a length, docwharf must count the received bytes.
    let without_length = normal_reply().without("Content-Length").zeros(128 << 20);
    run_concurrently(&[normal_reply(), without_length], |reply| {
        let upstream = Upstream::new(bytes.clone());
        upstream.on(UpstreamCall::Download).respond_with(reply.clone());
        let host = Host::new(&upstream).set("limits.archive", toml_string("1MiB"));
        let ended = host.expect_exit(5, &["sync"]);
        assert!(ended.stderr.contains("limits.archive") || ended.stderr.contains("1 MiB"), "{}", ended.stderr);
        assert_eq!(upstream.count(UpstreamCall::Download), 1);
        assert!(upstream.sent_bytes() < (1 << 20) + BUFFERED_BYTES, "{} bytes were sent", upstream.sent_bytes());
        host.assert_tidy();
    });
}

#[test]
fn a_download_is_accepted_only_with_the_configured_sha256() {
    let accepted = bundle("one");
    let upstream = Upstream::new(accepted.clone());
    let digest = Digest::compute(&accepted).to_hex();
    let host = Host::linked(&upstream.link()).set("staticExport.sha256", toml_string(&digest));
    assert_eq!(host.sync(), "activated");
    upstream.publish(bundle("two"));
    let ended = host.expect_exit(5, &["sync"]);
    assert!(ended.stderr.contains(&digest), "{}", ended.stderr);
    let other_host = Host::new(&upstream).set("staticExport.sha256", toml_string(&digest));
    other_host.expect_exit(5, &["sync"]);
    assert_eq!(other_host.active(), None);
}

#[test]
fn a_body_without_content_length_and_a_chunked_body_are_read_to_their_end() {
    let bytes = bundle("one");
    let mut chunked = Vec::new();
    for piece in bytes.chunks(100) {
        chunked.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        chunked.extend_from_slice(piece);
        chunked.extend_from_slice(b"\r\n");
    }
    let complete = [&chunked[..], b"0\r\n\r\n"].concat();
    let cases = [
        normal_reply().without("Content-Length"),
        raw_reply("application/gzip", &complete).header("Transfer-Encoding", "chunked"),
    ];
    run_concurrently(&cases, |reply| {
        let upstream = Upstream::new(bytes.clone());
        upstream.on(UpstreamCall::Download).respond_with(reply.clone());
        let host = Host::new(&upstream);
        assert_eq!(host.sync(), "activated");
        assert_active_bundle(&host, &bytes);
    });
    // A chunked body without its last chunk is incomplete.
    let upstream = Upstream::new(bytes.clone());
    let truncated = raw_reply("application/gzip", &chunked).header("Transfer-Encoding", "chunked");
    upstream.on(UpstreamCall::Download).times(1).respond_with(truncated);
    assert_eq!(Host::new(&upstream).sync(), "activated");
    assert_eq!(upstream.count(UpstreamCall::Download), 2);
}

// A bundleUrl alone.

#[test]
fn a_bundle_url_alone_needs_no_api_and_no_key_and_later_checks_are_conditional() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::linked(&upstream.link());
    assert_eq!(host.sync(), "activated");
    assert_eq!(host.sync(), "already current");
    let downloads = upstream.calls(UpstreamCall::Download);
    assert_eq!(downloads.len(), upstream.log().len(), "only the link was requested: {}", upstream.request_history());
    assert_eq!(downloads[0].header("authorization"), None);
    assert_eq!(downloads[1].header("if-none-match"), Some(&*upstream.state().validator()));
    assert_eq!(downloads[1].status, 304);
    upstream.publish(bundle("two"));
    assert_eq!(host.sync(), "activated");
    let daemon = host.run();
    assert_eq!(front_page_title(&daemon), "two");
}

// Regression: a 304 without an entity tag was applied to the active version.
#[test]
fn a_304_without_a_known_etag_causes_an_unconditional_request() {
    for tag in [None, Some("\"another\"")] {
        let upstream = Upstream::new(bundle("one"));
        let host = Host::linked(&upstream.link());
        host.ok(&["sync"]);
        host.ok(&["hold"]);
        upstream.publish(bundle("two"));
        host.expect_exit(7, &["sync"]);
        // The store knows both bundles now. The server has the second, but its 304 does not name it.
        let not_modified = error_reply(304).without("ETag");
        let not_modified = tag.map_or(not_modified.clone(), |tag| not_modified.header("ETag", tag));
        upstream.on(UpstreamCall::Download).times(1).respond_with(not_modified);
        host.expect_exit(7, &["sync"]);
        let conditional: Vec<bool> = upstream
            .calls(UpstreamCall::Download)
            .iter()
            .map(|request| request.header("if-none-match").is_some())
            .collect();
        assert_eq!(conditional, [false, true, true, false], "{}", upstream.request_history());
        host.ok(&["release"]);
        assert_eq!(front_page_title(&host.run()), "two");
    }
}

#[test]
fn a_304_is_accepted_with_a_weak_etag_or_if_only_one_bundle_is_known() {
    for weak in [true, false] {
        let upstream = Upstream::new(bundle("one"));
        let host = Host::linked(&upstream.link());
        host.ok(&["sync"]);
        let tag = format!("W/{}", upstream.state().validator());
        let unchanged = error_reply(304).without("ETag");
        let unchanged = if weak { unchanged.header("ETag", tag) } else { unchanged };
        upstream.on(UpstreamCall::Download).respond_with(unchanged);
        assert_eq!(host.sync(), "already current");
        assert_eq!(upstream.count(UpstreamCall::Download), 2);
    }
}

#[test]
fn the_key_in_the_environment_is_not_sent_to_a_bundle_url() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::linked(&upstream.link());
    let mut command = host.command(&["sync"]);
    assert_eq!(run_with_timeout(command.env("DOCWHARF_API_KEY", "dwk_other")).code, Some(0));
    for request in upstream.log() {
        assert!(!request.head().contains("dwk_other"), "{}", request.head());
    }
}

#[test]
fn a_bundle_url_that_has_expired_or_returns_404_is_exit_code_4_after_one_request() {
    let cases: [(Reply, &str); 4] = [
        (expired_link_reply(), "expired"),
        (storage_error(403, "ExpiredToken", "The provided token has expired."), "ExpiredToken"),
        (storage_error(404, "NoSuchKey", "The specified key does not exist."), "404"),
        (error_reply(410), "410"),
    ];
    run_concurrently(&cases, |(reply, part)| {
        let upstream = Upstream::new(bundle("one"));
        upstream.on(UpstreamCall::Download).respond_with(reply.clone());
        let host = Host::linked(&upstream.link());
        let ended = host.expect_exit(4, &["sync"]);
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
        assert!(!ended.stderr.contains(SIGNATURE), "{}", ended.stderr);
        assert_eq!(upstream.count(UpstreamCall::Download), 1, "{}", upstream.request_history());
    });
}

#[test]
fn a_bundle_url_beside_an_api_is_used_only_while_the_store_is_empty() {
    let (upstream, object_store) = (Upstream::new(bundle("from the API")), Upstream::new(bundle("from the link")));
    let host = Host::new(&upstream).set("staticExport.bundleUrl", toml_string(&object_store.link()));
    assert_eq!(host.sync(), "activated");
    assert_eq!(
        (object_store.count(UpstreamCall::Download), upstream.count(UpstreamCall::Start)),
        (1, 0),
        "{}",
        upstream.request_history()
    );
    assert_eq!(host.sync(), "activated");
    assert_eq!(
        (object_store.count(UpstreamCall::Download), upstream.count(UpstreamCall::Start)),
        (1, 1),
        "{}",
        upstream.request_history()
    );
    let daemon = host.run();
    assert_eq!(front_page_title(&daemon), "from the API");
}

#[test]
fn sync_uses_the_api_if_the_bundle_url_fails() {
    let faults: [fn() -> Reply; 3] =
        [expired_link_reply, || error_reply(404), || raw_reply("text/html", "<html>no</html>")];
    run_concurrently(&faults, |make_reply| {
        let (upstream, object_store) = (Upstream::new(bundle("from the API")), Upstream::new(bundle("from the link")));
        object_store.on(UpstreamCall::Download).respond_with(make_reply());
        let host = Host::new(&upstream).set("staticExport.bundleUrl", toml_string(&object_store.link()));
        assert_eq!(host.sync(), "activated");
        assert_eq!(upstream.count(UpstreamCall::Start), 1);
        assert_active_bundle(&host, &bundle("from the API"));
    });
}

// Known bundles, interrupted downloads.

#[test]
fn a_bundle_that_is_active_already_is_not_downloaded_again() {
    let (upstream, _) = large_upstream();
    // A second read of the body would fail.
    upstream.on(UpstreamCall::Download).after(1).respond_with(normal_reply().stall(100_000));
    let host = Host::new(&upstream);
    assert_eq!(host.sync(), "activated");
    assert_eq!(host.sync(), "already current");
    assert!(upstream.count(UpstreamCall::Download) <= 2, "{}", upstream.request_history());
    assert_eq!(host.job(), None);
}

#[test]
fn sync_succeeds_after_a_sync_was_killed_during_its_download() {
    let (upstream, bytes) = large_upstream();
    upstream.on(UpstreamCall::Download).times(1).respond_with(normal_reply().stall(1_500_000));
    let host = Host::new(&upstream).set("network.idleTimeout", toml_string("20s"));
    let mut child = host.command(&["sync"]).spawn().unwrap();
    support::until("the download", || upstream.count(UpstreamCall::Download) == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(host.sync(), "activated");
    assert_active_bundle(&host, &bytes);
}

#[test]
fn a_download_resumed_from_a_damaged_part_is_repeated_from_the_start() {
    let (upstream, bytes) = large_upstream();
    upstream.on(UpstreamCall::Download).times(1).respond_with(normal_reply().stall(1_500_000));
    let host = Host::new(&upstream).set("network.idleTimeout", toml_string("20s"));
    let mut child = host.command(&["sync"]).spawn().unwrap();
    let part = || {
        let path = host.path("store/downloads/bundle.part");
        path.metadata().is_ok_and(|metadata| metadata.len() == 1_500_000).then_some(path)
    };
    support::until("the partial download", || part().is_some());
    child.kill().unwrap();
    child.wait().unwrap();
    // As after a power cut: the length is right, the content is not.
    let file = std::fs::File::options().write(true).open(part().unwrap()).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 4096], 700_000).unwrap();
    assert_eq!(host.sync(), "activated");
    assert_active_bundle(&host, &bytes);
    let starts: Vec<_> = upstream.calls(UpstreamCall::Download).iter().map(range_start).collect();
    assert_eq!(starts, [None, Some(1_500_000), None]);
}

#[test]
fn a_download_is_not_resumed_for_another_source() {
    let (upstream, bytes) = large_upstream();
    upstream.on(UpstreamCall::Download).times(1).respond_with(normal_reply().stall(1_500_000));
    let mut host = Host::new(&upstream).set("network.idleTimeout", toml_string("20s"));
    let mut child = host.command(&["sync"]).spawn().unwrap();
    support::until("the download", || upstream.count(UpstreamCall::Download) == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    // The server and the entity tag are the same, but the site is another one.
    host.change("api.domain", toml_string("other.example.com"));
    assert_eq!(host.sync(), "activated");
    assert_active_bundle(&host, &bytes);
    assert_eq!(range_start(&upstream.calls(UpstreamCall::Download)[1]), None);
}

#[test]
fn the_body_of_a_response_with_the_known_etag_and_length_is_not_read() {
    let upstream = Upstream::new(bundle("one"));
    let with_tag = |bytes: Vec<u8>| raw_reply("application/zip", bytes).header("ETag", "\"same\"");
    upstream.on(UpstreamCall::Download).times(1).respond_with(with_tag(bundle("one")));
    // The server ignores conditions. Reading this body would fail.
    upstream.on(UpstreamCall::Download).times(1).respond_with(with_tag(bundle("one")).stall(10));
    upstream.on(UpstreamCall::Download).respond_with(with_tag(bundle("a longer one")));
    let host = Host::new(&upstream).set("network.idleTimeout", toml_string("20s"));
    assert_eq!(host.sync(), "activated");
    assert_eq!(host.sync(), "already current");
    assert_eq!(upstream.count(UpstreamCall::Download), 2);
    assert_eq!(host.sync(), "activated", "the length has changed, the tag has not");
    assert_active_bundle(&host, &bundle("a longer one"));
}

#[test]
fn secrets_in_a_redirect_target_are_not_printed_logged_or_shown_in_status() {
    let upstream = Upstream::new(bundle("one"));
    let target = format!("{}/exports/other?X-Amz-Signature=secret-value-0123456789", upstream.object_store_origin());
    upstream.on(UpstreamCall::Download).times(1).respond_with(redirect_reply(302, &target));
    let message = "the signature secret-value-0123456789 does not match";
    // A final response: it does not cause a request for a new link.
    upstream.on(UpstreamCall::Download).respond_with(storage_error(400, "InvalidRequest", message));
    let host = Host::new(&upstream);
    let ended = run_with_timeout(host.command(&["sync"]).env("DOCWHARF_LOG", "trace"));
    assert_eq!(upstream.count(UpstreamCall::Download), 2, "{}", upstream.request_history());
    assert!(ended.code != Some(0) && ended.stderr.contains("does not match"), "{ended:?}");
    for text in [&ended.stdout, &ended.stderr, &host.ok(&["status", "--json"]).stdout] {
        assert!(!text.contains("secret-value-0123456789"), "{text}");
    }
}

#[test]
fn sync_verifies_a_refused_bundle_again_after_a_limit_is_removed() {
    let upstream = Upstream::new(bundle("one"));
    let mut host = Host::new(&upstream).set("limits.entry", toml_string("1"));
    host.expect_exit(5, &["sync"]);
    assert_eq!(host.active(), None);
    host.remove("limits.entry");
    assert_eq!(host.sync(), "activated");
}

// Proxies.

#[test]
fn the_proxy_of_the_environment_is_used_unless_no_proxy_excludes_the_host() {
    let upstream = Upstream::new(bundle("one"));
    let port = upstream.api_origin().rsplit(':').next().unwrap().to_owned();
    for (name, no_proxy_name, no_proxy, uses_proxy) in [
        ("HTTP_PROXY", "NO_PROXY", "", true),
        ("http_proxy", "NO_PROXY", "", true),
        ("HTTP_PROXY", "NO_PROXY", "127.0.0.1", false),
        ("HTTP_PROXY", "NO_PROXY", "*", false),
        ("HTTP_PROXY", "no_proxy", "*", false),
        ("HTTP_PROXY", "no_proxy", " * ", false),
        ("HTTP_PROXY", "NO_PROXY", "example.com, 127.0.0.1", false),
        ("HTTP_PROXY", "NO_PROXY", "example.com", true),
    ] {
        let proxy = ForwardProxy::new();
        let host = Host::new(&upstream);
        let mut command = host.command(&["sync"]);
        command.env(name, proxy.url());
        if !no_proxy.is_empty() {
            command.env(no_proxy_name, no_proxy);
        }
        let ended = run_with_timeout(&mut command);
        assert_eq!(ended.code, Some(0), "{name} {no_proxy_name} {no_proxy}: {ended:?}");
        let requests = proxy.request_lines();
        assert_eq!(!requests.is_empty(), uses_proxy, "{name} {no_proxy_name} {no_proxy:?}: {requests:?}");
        if uses_proxy {
            assert!(
                requests[0].starts_with(&format!("POST http://127.0.0.1:{port}/v1/static-export/jobs ")),
                "{requests:?}"
            );
            assert!(requests.iter().any(|line| line.contains("/exports/")), "links use the proxy, too: {requests:?}");
        }
    }
}

#[test]
fn an_unreachable_proxy_is_exit_code_4_without_its_password_in_the_message() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream);
    let mut command = host.command(&["sync"]);
    let ended = run_with_timeout(command.env("HTTP_PROXY", "http://user:pa55word@127.0.0.1:9"));
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(!ended.stderr.contains("pa55word"), "{}", ended.stderr);
    assert_eq!(upstream.connections(), 0);
}

// Files.

#[test]
fn a_file_bundle_works_without_a_network_interface() {
    let host = Host::bare().set("staticExport.bundleUrl", toml_string("bundle.zip"));
    host.put("bundle.zip", bundle("one"));
    let probe = std::process::Command::new("unshare").args(["-rn", "true"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        eprintln!("not tested: this machine allows no namespace without a network");
        return;
    }
    let mut command = std::process::Command::new("unshare");
    command.args(["-rn", env!("CARGO_BIN_EXE_docwharf"), "sync", "--config"]).arg(host.path("docwharf.toml"));
    let ended = run_with_timeout(&mut command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let daemon = host.run();
    assert_eq!(http::get(&daemon.address, "/guide").status, 200);
}
