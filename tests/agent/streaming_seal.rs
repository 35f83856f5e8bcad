//! Streaming seal: a tar is sealed while it is downloaded. The result does not depend on it.

use std::process::{Child, Stdio};
use std::time::Duration;

use support::host::{Host, large_tar, run_concurrently, run_with_timeout, toml_string};
use support::upstream::{BundleCoding, Upstream, UpstreamCall, expired_link_reply, normal_reply, raw_reply};
use support::{docwharf, send_signal, tar};

/// Larger than the buffers of a connection, and large enough for a streaming seal.
const CONTENT_BYTES: usize = 3 << 20;
/// The offset at which downloads stall.
const STALL_AT: usize = 2 << 20;

/// A bundle as tar.gz, tar.zst and tar, which are read from start to end.
fn bundle_in_all_containers(text: &str) -> [Vec<u8>; 3] {
    let tar = large_tar(text, CONTENT_BYTES);
    [tar::gzip(&tar), tar::zstd(&tar), tar]
}

/// The size of all images of incoming versions.
fn sealed_bytes(host: &Host) -> u64 {
    let folders = std::fs::read_dir(host.path("store/staging")).into_iter().flatten().flatten();
    folders.filter_map(|stage| Some(stage.path().join("site.zip").metadata().ok()?.len())).sum()
}

/// Starts a sync whose download stalls, and waits until most of the received bytes are sealed.
fn start_stalled_sync(upstream: &Upstream, host: &Host) -> Child {
    upstream.on(UpstreamCall::Download).times(1).respond_with(normal_reply().stall(STALL_AT));
    let sync = host.command(&["sync"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    support::until("an image of the received bytes", || sealed_bytes(host) > STALL_AT as u64 / 2);
    assert_eq!(upstream.count(UpstreamCall::Download), 1);
    sync
}

/// Panics unless the active version is the one of the bundle `bytes`.
#[track_caller]
fn assert_active_bundle(host: &Host, bytes: &[u8]) {
    host.put("wanted", bytes);
    let expected =
        support::run_to_end(docwharf().args(["bundle", "verify", "--json"]).arg(host.path("wanted"))).expect(0).json();
    assert_eq!(host.active().as_deref(), expected["version"].as_str());
    host.ok(&["store", "verify"]);
    host.assert_tidy();
}

#[test]
fn the_received_part_of_a_tar_is_sealed_while_the_download_continues() {
    run_concurrently(&bundle_in_all_containers("ahead"), |bytes| {
        let upstream = Upstream::new(bytes.clone());
        let host = Host::new(&upstream).set("network.idleTimeout", toml_string("4s"));
        let mut sync = start_stalled_sync(&upstream, &host);
        // After the timeout the download is resumed, and the sealed part is used.
        assert_eq!(sync.wait().unwrap().code(), Some(0));
        assert_active_bundle(&host, bytes);
        let second = &upstream.calls(UpstreamCall::Download)[1];
        assert_eq!(second.header("range"), Some(&*format!("bytes={STALL_AT}-")), "{}", upstream.request_history());
    });
}

#[test]
fn sync_succeeds_after_a_sync_was_killed_during_its_streaming_seal() {
    run_concurrently(&[("TERM", Some(143)), ("KILL", None)], |&(signal, code)| {
        let [bytes, _, _] = bundle_in_all_containers("ended");
        let upstream = Upstream::new(bytes.clone());
        let host = Host::new(&upstream).set("network.idleTimeout", toml_string("10m"));
        let mut sync = start_stalled_sync(&upstream, &host);
        send_signal(&sync, signal);
        assert_eq!(sync.wait().unwrap().code(), code);
        assert_eq!(host.sync(), "activated");
        assert_active_bundle(&host, &bytes);
    });
}

#[test]
fn disabling_the_agent_removes_its_partially_sealed_version() {
    let [bytes, _, _] = bundle_in_all_containers("elsewhere");
    let upstream = Upstream::new(bytes);
    upstream.on(UpstreamCall::Download).times(1).respond_with(normal_reply().stall(STALL_AT));
    let mut host = Host::new(&upstream).set("network.idleTimeout", toml_string("10m"));
    let daemon = host.run();
    support::until("an image of the received bytes", || sealed_bytes(&host) > STALL_AT as u64 / 2);
    host.change("staticExport.enabled", "false");
    daemon.signal("HUP");
    support::until("an empty staging folder", || std::fs::read_dir(host.path("store/staging")).unwrap().count() == 0);
}

#[test]
fn a_bundle_that_changes_during_its_streaming_seal_is_replaced_by_the_new_one() {
    run_concurrently(&[true, false], |&honours_if_range| {
        let [old, _, _] = bundle_in_all_containers("old");
        let [new, _, _] = bundle_in_all_containers("new");
        let upstream = Upstream::new(old);
        let host = Host::new(&upstream).set("network.idleTimeout", toml_string("4s"));
        let mut sync = start_stalled_sync(&upstream, &host);
        upstream.publish(new.clone());
        if !honours_if_range {
            let span = format!("bytes {STALL_AT}-{}/{}", new.len() - 1, new.len());
            let reply = raw_reply("application/gzip", &new[STALL_AT..]).status(206).header("Content-Range", span);
            let etag = upstream.state().validator();
            upstream.on(UpstreamCall::Download).times(1).respond_with(reply.header("ETag", etag));
        }
        assert_eq!(sync.wait().unwrap().code(), Some(0), "{}", upstream.request_history());
        assert_active_bundle(&host, &new);
    });
}

#[test]
fn a_streaming_seal_refuses_a_fault_at_the_end_like_bundle_verify() {
    let [gzip, zstd, plain] = bundle_in_all_containers("last");
    let damaged = |bytes: &[u8], from_end: usize| {
        let mut bytes = bytes.to_vec();
        let offset = bytes.len() - from_end;
        bytes[offset] ^= 0x55;
        bytes
    };
    let mut hostile = plain.clone();
    hostile.truncate(hostile.len() - 1024);
    hostile.extend(tar::tar(&[tar::file("../outside.html", "x")]));
    let cases = [
        ("a checksum", damaged(&gzip, 8)),
        ("a length", damaged(&gzip, 3)),
        ("too little", gzip[..gzip.len() - 9].to_vec()),
        ("too little", zstd[..zstd.len() - 1].to_vec()),
        ("too little", plain[..plain.len() - 1400].to_vec()),
        ("an entry", tar::gzip(&hostile)),
    ];
    run_concurrently(&cases, |(case, bytes)| {
        let upstream = Upstream::new(bytes.clone());
        upstream.on(UpstreamCall::Download).times(1).respond_with(normal_reply().cut(STALL_AT));
        let host = Host::new(&upstream);
        let ended = host.expect_exit(5, &["sync"]);
        host.put("bundle", bytes);
        let verdict = support::run_to_end(docwharf().args(["bundle", "verify"]).arg(host.path("bundle"))).expect(5);
        let reason = |text: &str| text.rsplit_once(": ").map(|(_, reason)| reason.trim().to_owned());
        assert_eq!(reason(&verdict.stderr), reason(&ended.stderr), "{case}");
        assert_eq!(host.active(), None, "{case}");
        host.assert_tidy();
    });
}

#[test]
fn a_streaming_seal_is_accepted_only_with_the_configured_sha256() {
    let [bytes, _, _] = bundle_in_all_containers("demanded");
    let upstream = Upstream::new(bytes.clone());
    let mut host = Host::linked(&upstream.link()).set("staticExport.sha256", toml_string(&"0".repeat(64)));
    host.expect_exit(5, &["sync"]);
    assert_eq!(host.active(), None);
    host.assert_tidy();
    let digest = docwharf::model::digest::Digest::compute(&bytes).to_hex();
    host.change("staticExport.sha256", toml_string(&digest));
    assert_eq!(host.sync(), "activated");
    assert_active_bundle(&host, &bytes);
}

// Regression: a download that was replaced by another one left its streaming-seal thread waiting, and the sync with it.
#[test]
fn sync_does_not_wait_for_the_streaming_seal_of_a_replaced_download() {
    // The link's bundle never arrives completely. The API's bundle has no Content-Length.
    let [incomplete, _, _] = bundle_in_all_containers("from the link");
    let object_store = Upstream::new(incomplete);
    object_store.on(UpstreamCall::Download).times(1).respond_with(normal_reply().cut(STALL_AT));
    object_store.on(UpstreamCall::Download).respond_with(expired_link_reply());
    let small = tar::gzip(&tar::tar(&[tar::file("index.html", "<title>from the API</title>")]));
    let upstream = Upstream::new(small.clone());
    upstream.on(UpstreamCall::Download).respond_with(normal_reply().without("Content-Length"));
    let host = Host::new(&upstream).set("staticExport.bundleUrl", toml_string(&object_store.link()));
    assert_eq!(host.sync(), "activated");
    assert_active_bundle(&host, &small);
}

#[test]
fn a_streaming_seal_accepts_a_true_or_false_gzip_content_encoding() {
    let [bytes, _, _] = bundle_in_all_containers("layers");
    for coding in [BundleCoding::Layer, BundleCoding::Label] {
        let upstream = Upstream::new(bytes.clone());
        upstream.state().coding = Some(coding);
        let host = Host::new(&upstream);
        let ended = run_with_timeout(&mut host.command(&["sync"]));
        assert_eq!(ended.code, Some(0), "{coding:?}: {ended:?}");
        assert_active_bundle(&host, &bytes);
    }
}

#[test]
fn run_activates_a_bundle_that_arrives_slowly() {
    let [bytes, _, _] = bundle_in_all_containers("slowly");
    let upstream = Upstream::new(bytes.clone());
    upstream.on(UpstreamCall::Download).respond_with(normal_reply().trickle(40, Duration::from_millis(10)));
    let host = Host::new(&upstream);
    let daemon = host.run();
    support::until("the active version", || support::host::front_page_title(&daemon) == "slowly");
    drop(daemon);
    assert_active_bundle(&host, &bytes);
}
