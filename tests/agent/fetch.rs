//! How a bundle is brought from behind a link: whole or not at all, whatever lies between.

use std::time::{Duration, Instant};

use docwharf::model::digest::Digest;
use serde_json::{Value, json};
use support::host::{Host, at_once, bundle, finish, front, large_bundle, text};
use support::proxy::Proxy;
use support::tar;
use support::upstream::{
    Call, Coding, Reply, Request, SIGNATURE, Upstream, answer, close, expired, honest, raw, redirect, stamp,
    storage_error,
};
use support::{docwharf, http};

/// Above what a connection buffers, so that a cut is seen where it was made.
const LARGE: usize = 3 << 20;

fn large() -> (Upstream, Vec<u8>) {
    let bytes = large_bundle("large", LARGE);
    (Upstream::new(bytes.clone()), bytes)
}

/// Where a request wants to go on.
fn from(request: &Request) -> Option<usize> {
    let range = request.header("range")?;
    let from = range.strip_prefix("bytes=").and_then(|range| range.strip_suffix('-'));
    Some(from.unwrap_or_else(|| panic!("an odd range: {range}")).parse().unwrap())
}

/// What is served after a sync: nothing else than these bytes.
#[track_caller]
fn assert_brought(host: &Host, bytes: &[u8]) {
    let receipts = host.ok(&["history", "--json"]).json();
    assert!(host.active().is_some(), "{receipts}");
    host.put("wanted", bytes);
    let wanted =
        support::end(docwharf().args(["bundle", "verify", "--json"]).arg(host.path("wanted"))).expect(0).json();
    assert_eq!(host.active().as_deref(), wanted["version"].as_str());
    host.assert_tidy();
}

// C7: what is asked.

#[test]
fn a_download_is_one_plain_get_for_identity() {
    let upstream = Upstream::new(bundle("one"));
    Host::new(&upstream).ok(&["sync"]);
    let downloads = upstream.calls(Call::Download);
    assert_eq!(downloads.len(), 1, "{}", upstream.story());
    let request = &downloads[0];
    assert_eq!(request.method, "GET", "a presigned link is signed for GET alone");
    assert_eq!(request.header("accept-encoding"), Some("identity"));
    assert_eq!(request.header("range"), None);
    assert_eq!(request.header("authorization"), None);
    assert!(request.body.is_empty());
    // Escapes in the query are part of what was signed.
    assert!(request.target.contains("X-Amz-Credential=AKIDEXAMPLE%2F20260801%2Fus-east-1%2Fs3"), "{}", request.target);
    assert_eq!(request.header("host"), Some(upstream.bucket().strip_prefix("http://").unwrap()));
}

#[test]
fn every_kind_of_archive_survives_a_gzip_coding_that_is_a_label_or_a_layer() {
    let tar = tar::tar(&[tar::file("index.html", "<title>tar</title>"), tar::file("a.css", "p{}")]);
    let kinds = [bundle("zip"), tar::gzip(&tar), tar::zstd(&tar), tar];
    let mut cases = Vec::new();
    for kind in &kinds {
        for coding in [None, Some(Coding::Label), Some(Coding::Layer)] {
            cases.push((kind, coding));
        }
    }
    at_once(&cases, |(kind, coding)| {
        let upstream = Upstream::new(Vec::clone(kind));
        upstream.plan().coding = *coding;
        let host = Host::new(&upstream);
        let ended = finish(&mut host.command(&["sync"]));
        assert_eq!(ended.code, Some(0), "{:?}… {coding:?}: {ended:?}", &kind[..2]);
        assert_eq!(upstream.count(Call::Download), 1, "{coding:?}");
        assert_brought(&host, kind);
    });
}

#[test]
fn what_a_coding_is_called_does_not_matter() {
    let tar = tar::gzip(&tar::tar(&[tar::file("index.html", "<title>tar</title>")]));
    let labels = ["aws-chunked", "gzip,aws-chunked", "GZIP", "x-gzip", "identity", "utf-8", "", "br", "zstd"];
    let cases: Vec<_> = labels.iter().flat_map(|label| [(label, bundle("zip")), (label, tar.clone())]).collect();
    at_once(&cases, |(label, bytes)| {
        let upstream = Upstream::new(bytes.clone());
        upstream.on(Call::Download).gives(honest().header("Content-Encoding", label));
        let host = Host::new(&upstream);
        let ended = finish(&mut host.command(&["sync"]));
        assert_eq!(ended.code, Some(0), "{label:?}: {ended:?}");
        assert_brought(&host, bytes);
    });
}

#[test]
fn a_part_that_nobody_asked_for_is_taken_if_it_is_the_whole_and_else_asked_for_again() {
    let bytes = bundle("one");
    let part = |from: usize, to: usize| {
        let span = format!("bytes {from}-{}/{}", to - 1, bytes.len());
        raw("application/gzip", &bytes[from..to]).status(206).header("Content-Range", span)
    };
    let replies = [part(0, bytes.len()), part(10, bytes.len()), part(0, 100)];
    at_once(&replies, |reply| {
        let upstream = Upstream::new(bytes.clone());
        upstream.on(Call::Download).times(1).gives(reply.clone());
        let host = Host::new(&upstream);
        let ended = finish(&mut host.command(&["sync"]));
        assert_eq!(ended.code, Some(0), "{ended:?}{}", upstream.story());
        assert_brought(&host, &bytes);
    });
}

#[test]
fn a_304_that_nobody_asked_for_is_no_bundle() {
    let upstream = Upstream::new(bundle("one"));
    upstream.on(Call::Download).times(1).gives(answer(304));
    let host = Host::new(&upstream);
    let ended = finish(&mut host.command(&["sync"]));
    assert!(ended.code == Some(0) && host.active().is_some() || ended.code == Some(4), "{ended:?}");
}

#[test]
fn a_coding_does_not_disturb_a_resumed_download() {
    at_once(&[Coding::Label, Coding::Layer], |&coding| {
        let (upstream, bytes) = large();
        upstream.plan().coding = Some(coding);
        upstream.on(Call::Download).times(1).gives(honest().cut(LARGE / 2));
        let host = Host::new(&upstream);
        host.ok(&["sync"]);
        assert_brought(&host, &bytes);
    });
}

#[test]
fn a_stalled_download_goes_on_and_a_slow_one_is_left_alone() {
    let (upstream, bytes) = large();
    upstream.on(Call::Download).times(1).gives(honest().stall(1_500_000));
    let host = Host::new(&upstream).set("network.idleTimeout", text("300ms"));
    host.ok(&["sync"]);
    assert_brought(&host, &bytes);
    let downloads = upstream.calls(Call::Download);
    assert_eq!(downloads.len(), 2);
    assert_eq!(from(&downloads[1]), Some(1_500_000), "{:?}", downloads[1]);

    // Longer than every time-out there is, but never silent: there is no total time-out.
    let upstream = Upstream::new(bytes.clone());
    upstream.on(Call::Download).gives(honest().trickle(30, Duration::from_millis(60)));
    let host = Host::new(&upstream)
        .set("network.idleTimeout", text("900ms"))
        .set("network.callTimeout", text("900ms"))
        .set("network.connectTimeout", text("900ms"));
    host.ok(&["sync"]);
    assert_brought(&host, &bytes);
    assert_eq!(upstream.count(Call::Download), 1);
}

// C8: going on where it stopped.

#[test]
fn a_cut_download_goes_on_where_it_stopped_if_the_bundle_is_still_the_same() {
    let (upstream, bytes) = large();
    upstream.on(Call::Download).times(1).gives(honest().cut(1_000_000));
    upstream.on(Call::Download).times(1).gives(honest().cut(500_000));
    let host = Host::new(&upstream);
    host.ok(&["sync"]);
    assert_brought(&host, &bytes);
    let downloads = upstream.calls(Call::Download);
    let asked: Vec<_> = downloads.iter().map(from).collect();
    assert_eq!(asked, [None, Some(1_000_000), Some(1_500_000)], "{}", upstream.story());
    let etag = upstream.plan().validator();
    for request in &downloads[1..] {
        assert_eq!(request.header("if-range"), Some(&*etag));
        assert_eq!(request.header("accept-encoding"), Some("identity"));
        assert_eq!((request.method.as_str(), request.status), ("GET", 206));
    }
    assert_eq!((upstream.count(Call::Start), upstream.count(Call::Bundle)), (1, 1));
}

#[test]
fn what_does_not_fit_behind_the_part_that_is_there_is_brought_from_the_start() {
    const AT: usize = 1_000_000;
    let total = large_bundle("large", LARGE).len();
    let say = |text: String| honest().header("Content-Range", text);
    let cases: Vec<(&str, Reply)> = vec![
        ("range ignored", honest().ignoring_range()),
        ("one byte late", say(format!("bytes {}-{}/{total}", AT + 1, total - 1))),
        ("from the start under a 206", say(format!("bytes 0-{}/{total}", total - 1))),
        ("another total", say(format!("bytes {AT}-{}/{}", total - 1, total + 1))),
        ("no Content-Range", honest().without("Content-Range")),
        ("an odd Content-Range", say("bytes lots".to_owned())),
        ("another unit", say(format!("pages {AT}-{}/{total}", total - 1))),
        ("another ETag", honest().header("ETag", "\"0123456789abcdef\"")),
        ("416", answer(416).header("Content-Range", format!("bytes */{total}"))),
    ];
    at_once(&cases, |(what, reply)| {
        let (upstream, bytes) = large();
        upstream.on(Call::Download).times(1).gives(honest().cut(AT));
        upstream.on(Call::Download).times(1).gives(reply.clone());
        let host = Host::new(&upstream);
        let ended = finish(&mut host.command(&["sync"]));
        assert_eq!(ended.code, Some(0), "{what}: {ended:?}{}", upstream.story());
        assert_brought(&host, &bytes);
        let downloads = upstream.calls(Call::Download);
        assert_eq!(from(&downloads[1]), Some(AT), "{what}");
        if *what != "range ignored" {
            assert_eq!(downloads.len(), 3, "{what}: {}", upstream.story());
            assert_eq!(from(&downloads[2]), None, "{what}: {}", upstream.story());
        }
        assert_eq!(upstream.count(Call::Start), 1);
    });
}

#[test]
fn a_bundle_that_changes_in_the_middle_is_never_put_together_from_two() {
    // Whether the bucket honours If-Range or not.
    at_once(&[true, false], |&obeys| {
        let (upstream, _) = large();
        upstream.on(Call::Download).times(1).gives(honest().cut(1_000_000));
        let host = Host::new(&upstream);
        let new = large_bundle("new", LARGE + 5);
        std::thread::scope(|scope| {
            let sync = scope.spawn(|| host.ok(&["sync"]));
            support::until("the first part", || upstream.count(Call::Download) == 1);
            upstream.publish(new.clone());
            if !obeys {
                let rest = new[1_000_000..].to_vec();
                let span = format!("bytes 1000000-{}/{}", new.len() - 1, new.len());
                let etag = upstream.plan().validator();
                let reply = raw("application/gzip", rest).status(206).header("Content-Range", span);
                upstream.on(Call::Download).times(1).gives(reply.header("ETag", etag));
            }
            sync.join().unwrap();
        });
        assert_brought(&host, &new);
    });
}

#[test]
fn without_a_strong_validator_nothing_is_put_together() {
    let weak: fn() -> Reply = || honest().header("ETag", "W/\"weak\"").without("Last-Modified");
    let none: fn() -> Reply = || honest().without("ETag").without("Last-Modified");
    at_once(&[weak, none], |make| {
        let (upstream, bytes) = large();
        upstream.on(Call::Download).times(1).gives(make().cut(1_000_000));
        upstream.on(Call::Download).gives(make());
        let host = Host::new(&upstream);
        host.ok(&["sync"]);
        assert_brought(&host, &bytes);
        let again = &upstream.calls(Call::Download)[1];
        assert_eq!((from(again), again.header("if-range")), (None, None), "{}", again.head());
    });
}

#[test]
fn each_further_mebibyte_counts_as_progress_and_less_does_not() {
    // Six failures, each after more than one MiB: more than five attempts, and none too many.
    let bytes = large_bundle("progress", 8 << 20);
    let upstream = Upstream::new(bytes.clone());
    upstream.on(Call::Download).times(6).gives(honest().cut((1 << 20) + 50_000));
    let host = Host::new(&upstream);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            host.ok(&["sync"]);
            assert_brought(&host, &bytes);
            assert_eq!(upstream.count(Call::Download), 7, "{}", upstream.story());
            assert_eq!(upstream.count(Call::Bundle), 1);
        });
        scope.spawn(|| {
            let upstream = Upstream::new(bytes.clone());
            upstream.on(Call::Download).gives(honest().cut(100_000));
            let host = Host::new(&upstream);
            host.ends(4, &["sync"]);
            assert_eq!(upstream.count(Call::Download), 5, "{}", upstream.story());
            assert_eq!(upstream.count(Call::Start), 1);
            assert_eq!(host.active(), None);
        });
    });
}

#[test]
fn one_bad_answer_to_a_download_is_survived() {
    type Make = fn() -> Reply;
    let faults: [(&str, Make); 7] = [
        ("503", || answer(503)),
        ("500 of the bucket", || storage_error(500, "InternalError", "We encountered an internal error")),
        ("SlowDown", || storage_error(503, "SlowDown", "Please reduce your request rate")),
        ("429", || answer(429)),
        ("closed", close),
        ("cut head", || honest().cut(0)),
        ("a length that is too long", || honest().header("Content-Length", "99999999").cut(1000)),
    ];
    at_once(&faults, |&(what, make)| {
        let upstream = Upstream::new(bundle("one"));
        upstream.on(Call::Download).times(1).gives(make());
        let host = Host::new(&upstream);
        assert_eq!(host.sync(), "activated", "{what}");
        assert_eq!(upstream.count(Call::Start), 1, "{what}: {}", upstream.story());
        // With a wrong length the rest does not fit, and the whole is asked for.
        assert!((2..=3).contains(&upstream.count(Call::Download)), "{what}: {}", upstream.story());
    });
}

#[test]
fn an_expired_link_is_renewed_for_the_same_job() {
    let errors: [fn() -> Reply; 6] = [
        expired,
        || storage_error(403, "ExpiredToken", "The provided token has expired."),
        // S3's status for credentials behind a link that have run out (Amazon S3 API, error responses).
        || storage_error(400, "ExpiredToken", "The provided token has expired."),
        || storage_error(400, "InvalidToken", "The provided token is malformed or otherwise not valid."),
        || answer(403).body("text/plain", ""),
        || answer(403).body("text/html", "<h1>403 Forbidden</h1>"),
    ];
    at_once(&errors, |make| {
        let upstream = Upstream::new(bundle("one"));
        upstream.on(Call::Download).times(1).gives(make());
        let host = Host::new(&upstream);
        assert_eq!(host.sync(), "activated");
        assert_eq!((upstream.count(Call::Start), upstream.count(Call::Bundle)), (1, 2), "{}", upstream.story());
        let downloads = upstream.calls(Call::Download);
        assert_ne!(downloads[0].target, downloads[1].target, "the link is fresh");
    });
}

#[test]
fn a_400_that_does_not_speak_of_a_token_is_final_and_no_other_link_is_asked_for() {
    let errors: [fn() -> Reply; 2] =
        [|| storage_error(400, "InvalidRequest", "The request is not valid."), || answer(400).body("text/plain", "")];
    at_once(&errors, |make| {
        let upstream = Upstream::new(bundle("one"));
        upstream.on(Call::Download).gives(make());
        let ended = Host::new(&upstream).ends(4, &["sync"]);
        assert!(ended.stderr.contains("400"), "{}", ended.stderr);
        assert_eq!((upstream.count(Call::Bundle), upstream.count(Call::Download)), (1, 1), "{}", upstream.story());
    });
}

#[test]
fn a_link_that_expires_in_the_middle_is_renewed_and_the_download_goes_on() {
    let (upstream, bytes) = large();
    upstream.plan().link_uses = 1;
    upstream.on(Call::Download).times(1).gives(honest().cut(1_000_000));
    let host = Host::new(&upstream);
    host.ok(&["sync"]);
    assert_brought(&host, &bytes);
    let downloads = upstream.calls(Call::Download);
    assert_eq!(downloads.iter().map(|r| r.status).collect::<Vec<_>>(), [200, 403, 206], "{}", upstream.story());
    assert_eq!(from(&downloads[2]), Some(1_000_000), "the bytes behind the fresh link are the same");
    assert_eq!((upstream.count(Call::Start), upstream.count(Call::Bundle)), (1, 2));
}

#[test]
fn a_link_that_never_works_is_given_up_after_a_few_and_the_job_is_kept() {
    let upstream = Upstream::new(bundle("one"));
    upstream.on(Call::Download).gives(expired());
    let host = Host::new(&upstream);
    let ended = host.ends(4, &["sync"]);
    assert!(ended.stderr.contains("expired") || ended.stderr.contains("AccessDenied"), "{}", ended.stderr);
    assert_eq!(upstream.count(Call::Start), 1, "{}", upstream.story());
    assert!((2..=6).contains(&upstream.count(Call::Bundle)), "{}", upstream.story());
    assert!(upstream.count(Call::Download) <= 6, "{}", upstream.story());
}

#[test]
fn expires_at_and_the_clock_of_the_upstream_are_only_hints() {
    let mut cases: Vec<(Value, i64)> = vec![
        (json!(stamp(-3600)), 0),
        (json!("yesterday"), 0),
        (json!(""), 0),
        (json!(1_790_000_000), 0),
        (json!("9999-12-31T23:59:59Z"), 0),
        (json!("0001-01-01T00:00:00Z"), 0),
        (json!({"at": 1}), 0),
        (Value::Null, 0),
    ];
    cases.extend([(json!(stamp(3600 - 17 * 60)), -17 * 60), (json!(stamp(3600 + 17 * 60)), 17 * 60)]);
    at_once(&cases, |(expires, skew)| {
        let upstream = Upstream::new(bundle("one"));
        {
            let mut plan = upstream.plan();
            plan.expires_at = Some(expires.clone());
            plan.skew = *skew;
        }
        assert_eq!(Host::new(&upstream).sync(), "activated", "{expires} {skew}");
        assert_eq!(upstream.count(Call::Start), 1);
        assert!(upstream.count(Call::Bundle) <= 2, "{expires}: {}", upstream.story());
    });
}

#[test]
fn a_size_that_lies_does_not_matter() {
    for size in [json!(0), json!(1), json!(-1), json!(u64::MAX), json!("12 MB"), json!(1.5)] {
        let upstream = Upstream::new(bundle("one"));
        upstream.plan().size_bytes = Some(size.clone());
        assert_eq!(Host::new(&upstream).sync(), "activated", "{size}");
    }
}

// C6: where a link may lead.

#[test]
fn redirects_of_a_link_are_followed_to_another_origin_without_telling_it_anything() {
    at_once(&[301, 302, 303, 307, 308], |&status| {
        let (upstream, elsewhere) = (Upstream::new(bundle("one")), Upstream::new(bundle("one")));
        upstream.on(Call::Download).times(1).gives(redirect(status, &elsewhere.link()));
        assert_eq!(Host::new(&upstream).sync(), "activated", "{status}");
        let request = &elsewhere.log()[0];
        assert_eq!((request.method.as_str(), request.header("accept-encoding")), ("GET", Some("identity")));
        for secret in ["authorization", "cookie", "referer"] {
            assert_eq!(request.header(secret), None);
        }
        assert!(!request.head().contains(upstream.bucket().trim_start_matches("http://")), "{}", request.head());
    });
}

#[test]
fn a_relative_redirect_stays_where_it_is() {
    let upstream = Upstream::new(bundle("one"));
    let link = upstream.link();
    let target = link.strip_prefix(&upstream.bucket()).unwrap();
    upstream.on(Call::Download).times(1).gives(redirect(302, target));
    assert_eq!(Host::new(&upstream).sync(), "activated");
    assert_eq!(upstream.calls(Call::Download)[1].target, target);
}

#[test]
fn links_and_redirects_to_anything_but_http_are_refused() {
    let (_dir, secret) = {
        let dir = support::folder();
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
    at_once(&links, |link| {
        // A wrong link is an answer that cannot be read: asked for again, and then given up.
        let upstream = Upstream::new(bundle("one"));
        upstream.plan().link = Some(link.clone());
        let host = Host::new(&upstream);
        let ended = finish(&mut host.command(&["sync"]));
        assert!(matches!(ended.code, Some(4 | 5)), "{link}: {ended:?}");
        assert_eq!((host.active(), upstream.count(Call::Start)), (None, 1), "{link}");
    });
    at_once(&links[..4], |link| {
        if !link.starts_with('/') {
            let upstream = Upstream::new(bundle("one"));
            upstream.on(Call::Download).gives(redirect(302, link));
            let host = Host::new(&upstream);
            let ended = finish(&mut host.command(&["sync"]));
            assert!(matches!(ended.code, Some(4 | 5)), "to {link}: {ended:?}");
            assert_eq!((host.active(), upstream.count(Call::Start)), (None, 1), "to {link}");
        }
    });
}

#[test]
fn redirects_end_after_a_bounded_number_of_hops() {
    // A loop, and a chain that grows.
    let upstream = Upstream::new(bundle("one"));
    let link = upstream.link();
    upstream.on(Call::Download).gives(redirect(302, &link));
    let host = Host::new(&upstream).set("network.redirects", "3");
    let ended = host.ends(4, &["sync"]);
    assert!(ended.stderr.contains("redirect"), "{}", ended.stderr);
    assert!(upstream.count(Call::Download) <= 5 * 4, "{}", upstream.story());

    let upstream = Upstream::new(bundle("one"));
    for _ in 0..3 {
        let link = upstream.link();
        upstream.on(Call::Download).times(1).gives(redirect(307, &link));
    }
    assert_eq!(Host::new(&upstream).set("network.redirects", "3").sync(), "activated");
    assert_eq!(upstream.count(Call::Download), 4);

    // Without a place to go to.
    let upstream = Upstream::new(bundle("one"));
    upstream.on(Call::Download).gives(redirect(302, "").without("Location"));
    Host::new(&upstream).ends(4, &["sync"]);
}

// What came is judged.

#[test]
fn what_is_no_bundle_is_refused_and_says_what_it_is() {
    let cases: [(Reply, &str); 5] = [
        (raw("text/html", "<!doctype html><html><title>Sign in</title></html>"), "HTML"),
        (raw("application/json", "{\"error\": \"no\"}"), "JSON"),
        (storage_error(200, "NoSuchKey", "The specified key does not exist."), "NoSuchKey"),
        (raw("application/gzip", ""), "empty"),
        (raw("application/gzip", tar::gzip(b"no tar")), ""),
    ];
    at_once(&cases, |(reply, words)| {
        let upstream = Upstream::new(bundle("one"));
        upstream.on(Call::Download).gives(reply.clone());
        let host = Host::new(&upstream);
        let ended = host.ends(5, &["sync"]);
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
        assert!(!ended.stderr.contains(SIGNATURE), "{}", ended.stderr);
        assert_eq!(host.job(), None, "the job of a refused bundle is forgotten");
        host.assert_tidy();
    });
}

#[test]
fn a_length_that_is_too_short_never_becomes_a_version() {
    let (upstream, _) = large();
    upstream.on(Call::Download).gives(honest().header("Content-Length", "1000000").cut(1_000_000));
    let host = Host::new(&upstream);
    let ended = finish(&mut host.command(&["sync"]));
    assert!(matches!(ended.code, Some(4 | 5)), "{ended:?}");
    assert_eq!(host.active(), None);
}

#[test]
fn a_bundle_above_the_limit_is_refused_before_it_fills_the_disk() {
    /// What the kernel holds of a connection on both sides, and more.
    const ON_ITS_WAY: usize = 16 << 20;
    let bytes = large_bundle("large", 30 << 20);
    // Without a length only counting what comes helps.
    let without = honest().without("Content-Length").zeros(128 << 20);
    at_once(&[honest(), without], |reply| {
        let upstream = Upstream::new(bytes.clone());
        upstream.on(Call::Download).gives(reply.clone());
        let host = Host::new(&upstream).set("limits.archive", text("1MiB"));
        let ended = host.ends(5, &["sync"]);
        assert!(ended.stderr.contains("limits.archive") || ended.stderr.contains("1 MiB"), "{}", ended.stderr);
        assert_eq!(upstream.count(Call::Download), 1);
        assert!(upstream.sent() < (1 << 20) + ON_ITS_WAY, "{} bytes were taken", upstream.sent());
        host.assert_tidy();
    });
}

#[test]
fn only_the_demanded_archive_is_accepted_from_a_link() {
    let good = bundle("one");
    let upstream = Upstream::new(good.clone());
    let digest = Digest::of(&good).hex();
    let host = Host::linked(&upstream.link()).set("staticExport.sha256", text(&digest));
    assert_eq!(host.sync(), "activated");
    upstream.publish(bundle("two"));
    let ended = host.ends(5, &["sync"]);
    assert!(ended.stderr.contains(&digest), "{}", ended.stderr);
    let other = Host::new(&upstream).set("staticExport.sha256", text(&digest));
    other.ends(5, &["sync"]);
    assert_eq!(other.active(), None);
}

#[test]
fn a_body_without_a_length_and_a_chunked_one_are_read_to_their_ends() {
    let bytes = bundle("one");
    let mut chunked = Vec::new();
    for piece in bytes.chunks(100) {
        chunked.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        chunked.extend_from_slice(piece);
        chunked.extend_from_slice(b"\r\n");
    }
    let whole = [&chunked[..], b"0\r\n\r\n"].concat();
    let cases =
        [honest().without("Content-Length"), raw("application/gzip", &whole).header("Transfer-Encoding", "chunked")];
    at_once(&cases, |reply| {
        let upstream = Upstream::new(bytes.clone());
        upstream.on(Call::Download).gives(reply.clone());
        let host = Host::new(&upstream);
        assert_eq!(host.sync(), "activated");
        assert_brought(&host, &bytes);
    });
    // A chunked body that does not end is not whole.
    let upstream = Upstream::new(bytes.clone());
    let cut = raw("application/gzip", &chunked).header("Transfer-Encoding", "chunked");
    upstream.on(Call::Download).times(1).gives(cut);
    assert_eq!(Host::new(&upstream).sync(), "activated");
    assert_eq!(upstream.count(Call::Download), 2);
}

// A bundleUrl alone.

#[test]
fn a_link_alone_needs_no_api_and_no_key_and_later_looks_are_conditional() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::linked(&upstream.link());
    assert_eq!(host.sync(), "activated");
    assert_eq!(host.sync(), "already current");
    let downloads = upstream.calls(Call::Download);
    assert_eq!(downloads.len(), upstream.log().len(), "nothing but the link was asked: {}", upstream.story());
    assert_eq!(downloads[0].header("authorization"), None);
    assert_eq!(downloads[1].header("if-none-match"), Some(&*upstream.plan().validator()));
    assert_eq!(downloads[1].status, 304);
    upstream.publish(bundle("two"));
    assert_eq!(host.sync(), "activated");
    let daemon = host.run();
    assert_eq!(front(&daemon), "two");
}

#[test]
fn a_304_that_does_not_say_what_it_is_about_is_taken_for_no_version_and_the_bundle_is_asked_for_anew() {
    for tag in [None, Some("\"another\"")] {
        let upstream = Upstream::new(bundle("one"));
        let host = Host::linked(&upstream.link());
        host.ok(&["sync"]);
        host.ok(&["hold"]);
        upstream.publish(bundle("two"));
        host.ends(7, &["sync"]);
        // Both are known now. The server still has the second, and does not say so.
        let unclear = answer(304).without("ETag");
        let unclear = tag.map_or(unclear.clone(), |tag| unclear.header("ETag", tag));
        upstream.on(Call::Download).times(1).gives(unclear);
        host.ends(7, &["sync"]);
        let asked: Vec<bool> =
            upstream.calls(Call::Download).iter().map(|request| request.header("if-none-match").is_some()).collect();
        assert_eq!(asked, [false, true, true, false], "{}", upstream.story());
        host.ok(&["release"]);
        assert_eq!(front(&host.run()), "two");
    }
}

#[test]
fn a_304_with_a_weak_tag_or_about_the_only_bundle_is_clear() {
    for weak in [true, false] {
        let upstream = Upstream::new(bundle("one"));
        let host = Host::linked(&upstream.link());
        host.ok(&["sync"]);
        let tag = format!("W/{}", upstream.plan().validator());
        let unchanged = answer(304).without("ETag");
        let unchanged = if weak { unchanged.header("ETag", tag) } else { unchanged };
        upstream.on(Call::Download).gives(unchanged);
        assert_eq!(host.sync(), "already current");
        assert_eq!(upstream.count(Call::Download), 2);
    }
}

#[test]
fn a_key_lying_about_is_not_sent_to_a_link() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::linked(&upstream.link());
    let mut command = host.command(&["sync"]);
    assert_eq!(finish(command.env("DOCWHARF_API_KEY", "dwk_other")).code, Some(0));
    for request in upstream.log() {
        assert!(!request.head().contains("dwk_other"), "{}", request.head());
    }
}

#[test]
fn a_link_alone_that_has_expired_or_leads_nowhere_is_exit_4_at_once() {
    let cases: [(Reply, &str); 4] = [
        (expired(), "expired"),
        (storage_error(403, "ExpiredToken", "The provided token has expired."), "ExpiredToken"),
        (storage_error(404, "NoSuchKey", "The specified key does not exist."), "404"),
        (answer(410), "410"),
    ];
    at_once(&cases, |(reply, words)| {
        let upstream = Upstream::new(bundle("one"));
        upstream.on(Call::Download).gives(reply.clone());
        let host = Host::linked(&upstream.link());
        let begun = Instant::now();
        let ended = host.ends(4, &["sync"]);
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
        assert!(!ended.stderr.contains(SIGNATURE), "{}", ended.stderr);
        assert_eq!(upstream.count(Call::Download), 1, "{}", upstream.story());
    });
}

#[test]
fn a_link_with_an_api_is_used_once_while_the_store_is_empty() {
    let (upstream, bucket) = (Upstream::new(bundle("from the API")), Upstream::new(bundle("from the link")));
    let host = Host::new(&upstream).set("staticExport.bundleUrl", text(&bucket.link()));
    assert_eq!(host.sync(), "activated");
    assert_eq!((bucket.count(Call::Download), upstream.count(Call::Start)), (1, 0), "{}", upstream.story());
    assert_eq!(host.sync(), "activated");
    assert_eq!((bucket.count(Call::Download), upstream.count(Call::Start)), (1, 1), "{}", upstream.story());
    let daemon = host.run();
    assert_eq!(front(&daemon), "from the API");
}

#[test]
fn a_link_that_fails_gives_way_to_the_api_in_the_same_sync() {
    let faults: [fn() -> Reply; 3] = [expired, || answer(404), || raw("text/html", "<html>no</html>")];
    at_once(&faults, |make| {
        let (upstream, bucket) = (Upstream::new(bundle("from the API")), Upstream::new(bundle("from the link")));
        bucket.on(Call::Download).gives(make());
        let host = Host::new(&upstream).set("staticExport.bundleUrl", text(&bucket.link()));
        assert_eq!(host.sync(), "activated");
        assert_eq!(upstream.count(Call::Start), 1);
        assert_brought(&host, &bundle("from the API"));
    });
}

// Not again what is there already.

#[test]
fn a_bundle_that_is_active_already_is_not_downloaded_again() {
    let (upstream, _) = large();
    // Whoever wants the body again waits for it in vain.
    upstream.on(Call::Download).after(1).gives(honest().stall(100_000));
    let host = Host::new(&upstream);
    assert_eq!(host.sync(), "activated");
    assert_eq!(host.sync(), "already current");
    assert!(upstream.count(Call::Download) <= 2, "{}", upstream.story());
    assert_eq!(host.job(), None);
}

#[test]
fn an_interrupted_download_of_a_killed_sync_does_not_hinder_the_next() {
    let (upstream, bytes) = large();
    upstream.on(Call::Download).times(1).gives(honest().stall(1_500_000));
    let host = Host::new(&upstream).set("network.idleTimeout", text("20s"));
    let mut child = host.command(&["sync"]).spawn().unwrap();
    support::until("the download", || upstream.count(Call::Download) == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(host.sync(), "activated");
    assert_brought(&host, &bytes);
}

#[test]
fn a_download_that_was_damaged_before_it_went_on_is_brought_again_from_the_start() {
    let (upstream, bytes) = large();
    upstream.on(Call::Download).times(1).gives(honest().stall(1_500_000));
    let host = Host::new(&upstream).set("network.idleTimeout", text("20s"));
    let mut child = host.command(&["sync"]).spawn().unwrap();
    let part = || {
        let path = host.path("store/downloads/bundle.part");
        path.metadata().is_ok_and(|metadata| metadata.len() == 1_500_000).then_some(path)
    };
    support::until("what was sent", || part().is_some());
    child.kill().unwrap();
    child.wait().unwrap();
    // What a power cut makes of it: its length is right.
    let file = std::fs::File::options().write(true).open(part().unwrap()).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 4096], 700_000).unwrap();
    assert_eq!(host.sync(), "activated");
    assert_brought(&host, &bytes);
    let starts: Vec<_> = upstream.calls(Call::Download).iter().map(from).collect();
    assert_eq!(starts, [None, Some(1_500_000), None]);
}

#[test]
fn a_download_is_not_continued_for_another_source() {
    let (upstream, bytes) = large();
    upstream.on(Call::Download).times(1).gives(honest().stall(1_500_000));
    let mut host = Host::new(&upstream).set("network.idleTimeout", text("20s"));
    let mut child = host.command(&["sync"]).spawn().unwrap();
    support::until("the download", || upstream.count(Call::Download) == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    // The same server and the same tag, but a bundle of another site.
    host.change("api.domain", text("other.example.com"));
    assert_eq!(host.sync(), "activated");
    assert_brought(&host, &bytes);
    assert_eq!(from(&upstream.calls(Call::Download)[1]), None);
}

#[test]
fn an_answer_is_the_known_bundle_if_tag_and_length_are_and_is_not_read_then() {
    let upstream = Upstream::new(bundle("one"));
    let tagged = |bytes: Vec<u8>| raw("application/zip", bytes).header("ETag", "\"same\"");
    upstream.on(Call::Download).times(1).gives(tagged(bundle("one")));
    // A server that knows no conditional requests. Whoever reads the body waits for its end in vain.
    upstream.on(Call::Download).times(1).gives(tagged(bundle("one")).stall(10));
    upstream.on(Call::Download).gives(tagged(bundle("a longer one")));
    let host = Host::new(&upstream).set("network.idleTimeout", text("20s"));
    assert_eq!(host.sync(), "activated");
    assert_eq!(host.sync(), "already current");
    assert_eq!(upstream.count(Call::Download), 2);
    assert_eq!(host.sync(), "activated", "a tag that stays over a change");
    assert_brought(&host, &bundle("a longer one"));
}

#[test]
fn what_is_secret_in_the_link_that_a_redirect_leads_to_is_told_to_nobody() {
    let upstream = Upstream::new(bundle("one"));
    let behind = format!("{}/exports/other?X-Amz-Signature=geheim0123456789", upstream.bucket());
    upstream.on(Call::Download).times(1).gives(redirect(302, &behind));
    let message = "the signature geheim0123456789 does not match";
    // A final answer: a fresh link would not lead there again.
    upstream.on(Call::Download).gives(storage_error(400, "InvalidRequest", message));
    let host = Host::new(&upstream);
    let ended = finish(host.command(&["sync"]).env("DOCWHARF_LOG", "trace"));
    assert_eq!(upstream.count(Call::Download), 2, "{}", upstream.story());
    assert!(ended.code != Some(0) && ended.stderr.contains("does not match"), "{ended:?}");
    for text in [&ended.stdout, &ended.stderr, &host.ok(&["status", "--json"]).stdout] {
        assert!(!text.contains("geheim0123456789"), "{text}");
    }
}

#[test]
fn whoever_asks_after_a_refusal_has_the_bundle_judged_anew() {
    let upstream = Upstream::new(bundle("one"));
    let mut host = Host::new(&upstream).set("limits.entry", text("1"));
    host.ends(5, &["sync"]);
    assert_eq!(host.active(), None);
    host.remove("limits.entry");
    assert_eq!(host.sync(), "activated");
}

// Proxies.

#[test]
fn a_proxy_of_the_environment_is_used_unless_the_host_is_excepted() {
    let upstream = Upstream::new(bundle("one"));
    let port = upstream.api().rsplit(':').next().unwrap().to_owned();
    for (name, excepting, none, through) in [
        ("HTTP_PROXY", "NO_PROXY", "", true),
        ("http_proxy", "NO_PROXY", "", true),
        ("HTTP_PROXY", "NO_PROXY", "127.0.0.1", false),
        ("HTTP_PROXY", "NO_PROXY", "*", false),
        ("HTTP_PROXY", "no_proxy", "*", false),
        ("HTTP_PROXY", "no_proxy", " * ", false),
        ("HTTP_PROXY", "NO_PROXY", "example.com, 127.0.0.1", false),
        ("HTTP_PROXY", "NO_PROXY", "example.com", true),
    ] {
        let proxy = Proxy::new();
        let host = Host::new(&upstream);
        let mut command = host.command(&["sync"]);
        command.env(name, proxy.url());
        if !none.is_empty() {
            command.env(excepting, none);
        }
        let ended = finish(&mut command);
        assert_eq!(ended.code, Some(0), "{name} {excepting} {none}: {ended:?}");
        let asked = proxy.asked();
        assert_eq!(!asked.is_empty(), through, "{name} {excepting} {none:?}: {asked:?}");
        if through {
            assert!(asked[0].starts_with(&format!("POST http://127.0.0.1:{port}/v1/static-export/jobs ")), "{asked:?}");
            assert!(asked.iter().any(|line| line.contains("/exports/")), "links too: {asked:?}");
        }
    }
}

#[test]
fn a_proxy_that_is_down_is_an_upstream_that_is_down() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream);
    let mut command = host.command(&["sync"]);
    let ended = finish(command.env("HTTP_PROXY", "http://user:pa55word@127.0.0.1:9"));
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(!ended.stderr.contains("pa55word"), "{}", ended.stderr);
    assert_eq!(upstream.connections(), 0);
}

// Files.

#[test]
fn a_file_bundle_works_without_a_network_interface() {
    let host = Host::bare().set("staticExport.bundleUrl", text("bundle.zip"));
    host.put("bundle.zip", bundle("one"));
    let possible = std::process::Command::new("unshare").args(["-rn", "true"]).output();
    if !possible.is_ok_and(|output| output.status.success()) {
        eprintln!("not tested: this machine gives no namespace without a network");
        return;
    }
    let mut command = std::process::Command::new("unshare");
    command.args(["-rn", env!("CARGO_BIN_EXE_docwharf"), "sync", "--config"]).arg(host.path("docwharf.toml"));
    let ended = finish(&mut command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let daemon = host.run();
    assert_eq!(http::get(&daemon.address, "/guide").status, 200);
}
