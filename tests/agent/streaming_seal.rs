//! What has arrived of a tar is sealed while the rest is on its way; nothing but time depends on that.

use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use support::host::{Host, at_once, finish, large_tar, text};
use support::upstream::{Call, Coding, Upstream, expired, honest, raw};
use support::{docwharf, tar};

/// Above what a connection buffers, and what is worth sealing ahead.
const LARGE: usize = 3 << 20;
/// Where downloads are held up.
const MOST_OF_IT: usize = 2 << 20;

/// The same bundle in each container that is read from its begin to its end.
fn containers(text: &str) -> [Vec<u8>; 3] {
    let tar = large_tar(text, LARGE);
    [tar::gzip(&tar), tar::zstd(&tar), tar]
}

/// Bytes of images that are no versions yet.
fn staged(host: &Host) -> u64 {
    let stages = std::fs::read_dir(host.path("store/staging")).into_iter().flatten().flatten();
    stages.filter_map(|stage| Some(stage.path().join("site.zip").metadata().ok()?.len())).sum()
}

/// A sync whose download is held up, once most of it has arrived and has been sealed.
fn held_up(upstream: &Upstream, host: &Host) -> Child {
    upstream.on(Call::Download).times(1).gives(honest().stall(MOST_OF_IT));
    let sync = host.command(&["sync"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    support::until("an image of what has arrived", || staged(host) > MOST_OF_IT as u64 / 2);
    assert_eq!(upstream.count(Call::Download), 1);
    sync
}

/// What is served after a sync: nothing else than these bytes.
#[track_caller]
fn assert_brought(host: &Host, bytes: &[u8]) {
    host.put("wanted", bytes);
    let wanted =
        support::end(docwharf().args(["bundle", "verify", "--json"]).arg(host.path("wanted"))).expect(0).json();
    assert_eq!(host.active().as_deref(), wanted["version"].as_str());
    host.ok(&["store", "verify"]);
    host.assert_tidy();
}

#[test]
fn what_has_arrived_of_a_tar_is_sealed_while_the_rest_is_on_its_way() {
    at_once(&containers("ahead"), |bytes| {
        let upstream = Upstream::new(bytes.clone());
        let host = Host::new(&upstream).set("network.idleTimeout", text("1s"));
        let mut sync = held_up(&upstream, &host);
        // It goes on with the same bytes after the time-out, and what was sealed of them counts.
        assert_eq!(sync.wait().unwrap().code(), Some(0));
        assert_brought(&host, bytes);
        let again = &upstream.calls(Call::Download)[1];
        assert_eq!(again.header("range"), Some(&*format!("bytes={MOST_OF_IT}-")), "{}", upstream.story());
    });
}

#[test]
fn a_sync_that_is_ended_meanwhile_hinders_no_other() {
    at_once(&[(Signal::TERM, Some(143)), (Signal::KILL, None)], |&(signal, code)| {
        let [bytes, _, _] = containers("ended");
        let upstream = Upstream::new(bytes.clone());
        let host = Host::new(&upstream).set("network.idleTimeout", text("10m"));
        let mut sync = held_up(&upstream, &host);
        kill_process(Pid::from_child(&sync), signal).unwrap();
        assert_eq!(sync.wait().unwrap().code(), code);
        assert_eq!(host.sync(), "activated");
        assert_brought(&host, &bytes);
    });
}

#[test]
fn what_was_sealed_ahead_goes_when_a_daemon_is_told_to_do_something_else() {
    let [bytes, _, _] = containers("elsewhere");
    let upstream = Upstream::new(bytes);
    upstream.on(Call::Download).times(1).gives(honest().stall(MOST_OF_IT));
    let mut host = Host::new(&upstream).set("network.idleTimeout", text("10m"));
    let daemon = host.run();
    support::until("an image of what has arrived", || staged(&host) > MOST_OF_IT as u64 / 2);
    host.change("staticExport.enabled", "false");
    daemon.signal("HUP");
    support::until("an empty stage", || std::fs::read_dir(host.path("store/staging")).unwrap().count() == 0);
}

#[test]
fn of_a_bundle_that_changes_meanwhile_only_the_new_one_is_brought() {
    at_once(&[true, false], |&obeys| {
        let [old, _, _] = containers("old");
        let [new, _, _] = containers("new");
        let upstream = Upstream::new(old);
        let host = Host::new(&upstream).set("network.idleTimeout", text("2s"));
        let mut sync = held_up(&upstream, &host);
        upstream.publish(new.clone());
        if !obeys {
            let span = format!("bytes {MOST_OF_IT}-{}/{}", new.len() - 1, new.len());
            let reply = raw("application/gzip", &new[MOST_OF_IT..]).status(206).header("Content-Range", span);
            let etag = upstream.plan().validator();
            upstream.on(Call::Download).times(1).gives(reply.header("ETag", etag));
        }
        assert_eq!(sync.wait().unwrap().code(), Some(0), "{}", upstream.story());
        assert_brought(&host, &new);
    });
}

#[test]
fn what_comes_last_is_judged_like_all_else() {
    let [gzip, zstd, plain] = containers("last");
    let damaged = |bytes: &[u8], from_end: usize| {
        let mut bytes = bytes.to_vec();
        let at = bytes.len() - from_end;
        bytes[at] ^= 0x55;
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
    at_once(&cases, |(what, bytes)| {
        let upstream = Upstream::new(bytes.clone());
        upstream.on(Call::Download).times(1).gives(honest().cut(MOST_OF_IT));
        let host = Host::new(&upstream);
        let ended = host.ends(5, &["sync"]);
        host.put("bundle", bytes);
        let verdict = support::end(docwharf().args(["bundle", "verify"]).arg(host.path("bundle"))).expect(5);
        let why = |text: &str| text.rsplit_once(": ").map(|(_, why)| why.trim().to_owned());
        assert_eq!(why(&verdict.stderr), why(&ended.stderr), "{what}");
        assert_eq!(host.active(), None, "{what}");
        host.assert_tidy();
    });
}

#[test]
fn only_the_demanded_archive_is_accepted_however_early_it_was_sealed() {
    let [bytes, _, _] = containers("demanded");
    let upstream = Upstream::new(bytes.clone());
    let mut host = Host::linked(&upstream.link()).set("staticExport.sha256", text(&"0".repeat(64)));
    host.ends(5, &["sync"]);
    assert_eq!(host.active(), None);
    host.assert_tidy();
    let right = docwharf::model::digest::Digest::of(&bytes).hex();
    host.change("staticExport.sha256", text(&right));
    assert_eq!(host.sync(), "activated");
    assert_brought(&host, &bytes);
}

#[test]
fn what_was_begun_of_another_bundle_is_waited_for_by_nobody() {
    // The link's bundle is never whole; the one of the API does not say how long it is.
    let [begun, _, _] = containers("from the link");
    let bucket = Upstream::new(begun);
    bucket.on(Call::Download).times(1).gives(honest().cut(MOST_OF_IT));
    bucket.on(Call::Download).gives(expired());
    let small = tar::gzip(&tar::tar(&[tar::file("index.html", "<title>from the API</title>")]));
    let upstream = Upstream::new(small.clone());
    upstream.on(Call::Download).gives(honest().without("Content-Length"));
    let host = Host::new(&upstream).set("staticExport.bundleUrl", text(&bucket.link()));
    assert_eq!(host.sync(), "activated");
    assert_brought(&host, &small);
}

#[test]
fn a_second_layer_of_gzip_is_taken_off_first() {
    let [bytes, _, _] = containers("layers");
    for coding in [Coding::Layer, Coding::Label] {
        let upstream = Upstream::new(bytes.clone());
        upstream.plan().coding = Some(coding);
        let host = Host::new(&upstream);
        let ended = finish(&mut host.command(&["sync"]));
        assert_eq!(ended.code, Some(0), "{coding:?}: {ended:?}");
        assert_brought(&host, &bytes);
    }
}

#[test]
fn a_daemon_brings_what_arrives_slowly() {
    let [bytes, _, _] = containers("slowly");
    let upstream = Upstream::new(bytes.clone());
    upstream.on(Call::Download).gives(honest().trickle(40, Duration::from_millis(10)));
    let host = Host::new(&upstream);
    let daemon = host.run();
    support::until("the site", || support::host::front(&daemon) == "slowly");
    drop(daemon);
    assert_brought(&host, &bytes);
}
