//! Brotli and Zstandard forms, which are made after activation: their content, negotiation, storage and removal.
//! Weights are tested in `serve::negotiate`, the pace of the encoder in `daemon::throttle`.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use support::disk::SmallDisk;
use support::host::{Host, toml_string};
use support::http::{self, Response, gunzip};
use support::zip::{deflate, deflated, stored, zip};
use support::{Daemon, metrics, until_done_in_background};

const BROWSER: &str = "Accept-Encoding: gzip, deflate, br, zstd";

fn page(word: &str) -> String {
    format!("<!doctype html><title>{word}</title>{}<p>{word}", support::sample_text(20_000))
}

/// A site whose pages all contain `word`. The last file is stored without compression.
fn bundle(word: &str) -> Vec<u8> {
    let files = [
        deflated("index.html", &page(word)),
        deflated("guide/start.html", &page(&format!("{word} start"))),
        deflated("main.css", &format!("/* {word} */{}", "a { color: teal; margin: 0 auto }\n".repeat(200))),
        deflated("404.html", &page(&format!("{word} is missing"))),
        deflated("noise.txt", &noise()),
        deflated("tiny.txt", "a few words"),
        deflated("data.tar", &support::sample_text(5000)),
        stored("logo.png", "not really a picture"),
    ];
    zip(&files)
}

/// Text of which Zstandard makes more bytes than gzip.
fn noise() -> String {
    let mut state = 88_172_645_463_325_252_u64;
    let mut letter = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b"01"[(state >> 20) as usize & 1])
    };
    (0..20_000).map(|_| letter()).collect()
}

fn import_bundle(host: &Host, word: &str) {
    host.put("bundle.zip", bundle(word));
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
}

/// Starts `run`, and returns the path of its log.
fn start_run(host: &Host) -> (Daemon, PathBuf) {
    let log = host.path("log");
    let daemon = Daemon::start(host.command(&["run"]).stderr(File::create(&log).unwrap()));
    (daemon, log)
}

fn log_contains(log: &Path, part: &str) -> bool {
    std::fs::read_to_string(log).unwrap().contains(part)
}

/// Waits until all codings of the active version are offered.
#[track_caller]
fn wait_for_codings(host: &Host) {
    until_done_in_background("the codings are ready", || {
        let status = host.status();
        let codings = &status["daemon"]["codings"];
        codings["ready"] == true && codings["version"] == status["active"]
    });
}

fn get(daemon: &Daemon, target: &str, accept: &str) -> Response {
    http::request(&daemon.address, "GET", target, &[&format!("Accept-Encoding: {accept}")])
}

/// The body, decoded by its `Content-Encoding`.
#[track_caller]
fn content(response: &Response) -> Vec<u8> {
    let (coding, body) = (response.header("content-encoding"), &response.body[..]);
    let mut out = Vec::new();
    match coding {
        Some("br") => drop(brotli_decompressor::Decompressor::new(body, 4096).read_to_end(&mut out).expect("Brotli")),
        Some("zstd") => out = zstd::stream::decode_all(body).expect("one frame"),
        Some("gzip") => out = gunzip(body),
        None => out = body.to_vec(),
        Some(other) => panic!("{other} was never offered"),
    }
    out
}

fn coding_path(host: &Host, kind: &str) -> PathBuf {
    host.path("store").join("derived").join(host.active().unwrap()).join(kind)
}

const TEXTS: [&str; 3] = ["/", "/guide/start.html", "/main.css"];

#[test]
fn after_activation_each_text_is_served_in_brotli_and_zstandard() {
    let host = Host::bare();
    import_bundle(&host, "tide");
    let (daemon, log) = start_run(&host);
    let before: Vec<Response> = TEXTS.map(|target| get(&daemon, target, "gzip")).into();
    wait_for_codings(&host);
    for (target, before) in TEXTS.into_iter().zip(before) {
        let plain = get(&daemon, target, "identity");
        let mut tags = vec![plain.header("etag").unwrap().to_owned()];
        for coding in ["gzip", "br", "zstd"] {
            let response = get(&daemon, target, coding);
            assert_eq!(response.header("content-encoding"), Some(coding), "{target}");
            let vary = if target == "/main.css" { "accept-encoding" } else { "accept, accept-encoding" };
            assert_eq!(response.header("vary"), Some(vary), "{target}");
            assert_eq!(content(&response), plain.body, "{target} {coding}");
            if coding == "gzip" {
                assert_eq!(response.body, before.body, "{target}: the sealed bytes do not change");
                assert_eq!(response.header("etag"), before.header("etag"));
            } else {
                assert!(response.body.len() < before.body.len(), "{target} {coding}");
                let letter = &coding[..1];
                let crc = crc32fast::hash(&response.body);
                let stem = tags[0].trim_matches('"');
                assert_eq!(response.header("etag"), Some(format!("\"{stem}-{letter}{crc:08x}\"").as_str()));
            }
            tags.push(response.header("etag").unwrap().to_owned());
            for field in ["content-type", "cache-control", "last-modified", "accept-ranges"] {
                assert_eq!(response.header(field), plain.header(field), "{target} {coding} {field}");
            }
        }
        tags.sort();
        tags.dedup();
        assert_eq!(tags.len(), 4, "{target}: {tags:?}");
        let smallest = ["gzip", "br", "zstd"].map(|coding| get(&daemon, target, coding).body.len()).into_iter().min();
        assert_eq!(http::request(&daemon.address, "GET", target, &[BROWSER]).body.len(), smallest.unwrap());
    }
    assert!(log_contains(&log, "has br for 5 files") && log_contains(&log, "has zstd for 4 files"));
}

#[test]
fn files_that_do_not_shrink_and_archives_have_no_brotli_or_zstandard_form() {
    let host = Host::bare();
    import_bundle(&host, "tide");
    let daemon = host.run();
    wait_for_codings(&host);
    assert_eq!(get(&daemon, "/noise.txt", "br").header("content-encoding"), Some("br"));
    for (accept, coded) in [("zstd", None), ("zstd, gzip", Some("gzip"))] {
        let response = get(&daemon, "/noise.txt", accept);
        assert_eq!(
            (response.header("content-encoding"), content(&response)),
            (coded, noise().into_bytes()),
            "{accept}"
        );
    }
    for (target, gzip) in [("/tiny.txt", true), ("/data.tar", false), ("/logo.png", false)] {
        for (accept, coded) in [("br", None), ("zstd", None), ("br, zstd, gzip", gzip.then_some("gzip"))] {
            let response = get(&daemon, target, accept);
            assert_eq!((response.status, response.header("content-encoding")), (200, coded), "{target} {accept}");
        }
    }
}

#[test]
fn a_site_with_nothing_to_compress_is_encoded_only_once() {
    let host = Host::bare();
    host.put("bundle.zip", zip(&[deflated("index.html", "<p>x"), stored("logo.png", "picture")]));
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
    let (daemon, log) = start_run(&host);
    wait_for_codings(&host);
    drop(daemon);
    assert!(log_contains(&log, "has br for 0 files"));
    let (_daemon, log) = start_run(&host);
    wait_for_codings(&host);
    assert!(!log_contains(&log, "has br"));
    assert_eq!(host.status()["daemon"]["codings"]["made"][0]["files"], 0);
}

#[test]
fn head_conditional_and_range_requests_use_the_etag_of_each_coding() {
    let host = Host::bare();
    import_bundle(&host, "tide");
    let daemon = host.run();
    wait_for_codings(&host);
    for coding in ["br", "zstd"] {
        let accept = format!("Accept-Encoding: {coding}");
        let send = |method: &str, fields: &[&str]| {
            http::request(&daemon.address, method, "/", &[&[accept.as_str()], fields].concat())
        };
        let full = send("GET", &[]);
        let tag = full.header("etag").unwrap().to_owned();
        let head = send("HEAD", &[]);
        assert_eq!((head.status, head.body.len()), (200, 0));
        for field in ["etag", "content-length", "content-encoding", "vary", "content-type"] {
            assert_eq!(head.header(field), full.header(field), "{field}");
        }
        let not_modified = send("GET", &[&format!("If-None-Match: {tag}")]);
        assert_eq!((not_modified.status, not_modified.header("etag")), (304, Some(tag.as_str())));
        assert_eq!(not_modified.header("vary"), Some("accept, accept-encoding"));
        for other_coding in ["gzip", "identity", if coding == "br" { "zstd" } else { "br" }] {
            let fields = [format!("Accept-Encoding: {other_coding}"), format!("If-None-Match: {tag}")];
            let response = http::request(&daemon.address, "GET", "/", &fields.each_ref().map(String::as_str));
            assert_eq!(response.status, 200, "{other_coding} is not {coding}");
        }
        let part = send("GET", &["Range: bytes=10-109"]);
        assert_eq!((part.status, &part.body[..]), (206, &full.body[10..110]));
        assert_eq!(part.header("content-encoding"), Some(coding));
        let total = full.body.len();
        assert_eq!(part.header("content-range"), Some(format!("bytes 10-109/{total}").as_str()));
        let unchanged = send("GET", &["Range: bytes=-5", &format!("If-Range: {tag}")]);
        assert_eq!((unchanged.status, &unchanged.body[..]), (206, &full.body[total - 5..]));
        let gzip = get(&daemon, "/", "gzip").header("etag").unwrap().to_owned();
        let stale = send("GET", &["Range: bytes=-5", &format!("If-Range: {gzip}")]);
        assert_eq!((stale.status, &stale.body), (200, &full.body), "ranges of two codings are never combined");
        let beyond = send("GET", &[&format!("Range: bytes={total}-")]);
        assert_eq!(beyond.header("content-range"), Some(format!("bytes */{total}").as_str()));
        let several = send("GET", &["Range: bytes=0-9,20-29"]);
        assert_eq!(several.status, 206);
        assert!(several.header("content-type").unwrap().starts_with("multipart/byteranges"));
        assert_eq!(several.text().matches(&format!("Content-Encoding: {coding}\r\n")).count(), 2);
        let contains = |part: &[u8]| several.body.windows(part.len()).any(|window| window == part);
        assert!(contains(&full.body[..10]) && contains(&full.body[20..30]));
        let failed = send("GET", &[&format!("If-Match: {gzip}")]);
        assert_eq!(failed.status, 412);
        let missing = http::request(&daemon.address, "GET", "/nowhere", &[&accept]);
        assert_eq!((missing.status, missing.header("content-encoding")), (404, Some(coding)));
        assert!(String::from_utf8(content(&missing)).unwrap().contains("tide is missing"));
        assert_eq!((missing.header("etag"), missing.header("vary")), (None, Some("accept-encoding")));
    }
}

#[test]
fn accept_encoding_weights_decide_and_equal_weights_get_the_smallest_coding() {
    let host = Host::bare();
    import_bundle(&host, "tide");
    let daemon = host.run();
    wait_for_codings(&host);
    let form = |accept: &str| get(&daemon, "/", accept).header("content-encoding").map(str::to_owned);
    for (accept, expected) in [
        ("gzip, deflate, br, zstd", "br"),
        ("zstd;q=1, br;q=0.9, gzip;q=0.8", "zstd"),
        ("br;q=0.2, zstd;q=0.1, gzip;q=0.3", "gzip"),
        ("*;q=0.5, br;q=0", "zstd"),
        ("BR", "br"),
        ("gzip;q=0, br;q=0.001", "br"),
        ("br;q=0, zstd;q=0, gzip", "gzip"),
    ] {
        assert_eq!(form(accept).as_deref(), Some(expected), "{accept}");
    }
    for accept in ["identity", "br;q=0", "deflate", "br;q=0.5, identity;q=0.9", "*;q=0", ""] {
        assert_eq!(form(accept), None, "{accept:?}");
    }
    assert_eq!(http::get(&daemon.address, "/").header("content-encoding"), None);
}

#[test]
fn during_activations_no_coding_has_the_bytes_of_another_version() {
    let host = Host::bare();
    import_bundle(&host, "one");
    let daemon = host.run();
    wait_for_codings(&host);
    for word in ["two", "three", "four"] {
        let responses = std::thread::scope(|scope| {
            let importer = scope.spawn(|| import_bundle(&host, word));
            let mut responses = Vec::new();
            while !importer.is_finished() {
                responses.push(["br", "zstd", "gzip"].map(|coding| get(&daemon, "/", coding)));
            }
            responses
        });
        for response in responses.iter().flatten() {
            let text = String::from_utf8(content(response)).unwrap();
            let title = text.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next()).unwrap();
            assert_eq!(text, page(title), "each response has the bytes of one version only");
        }
        let response = get(&daemon, "/", "br, zstd, gzip");
        assert_eq!(content(&response), page(word).into_bytes(), "no form of the previous version is left");
        wait_for_codings(&host);
        for coding in ["br", "zstd"] {
            let response = get(&daemon, "/", coding);
            assert_eq!(response.header("content-encoding"), Some(coding));
            assert_eq!(content(&response), page(word).into_bytes());
        }
    }
    // A version that is activated again has its codings already.
    let inode = std::fs::metadata(coding_path(&host, "brotli")).unwrap().ino();
    host.ok(&["rollback"]);
    wait_for_codings(&host);
    assert_eq!(content(&get(&daemon, "/", "br")), page("three").into_bytes());
    host.ok(&["rollback"]);
    wait_for_codings(&host);
    assert_eq!(content(&get(&daemon, "/", "zstd")), page("four").into_bytes());
    assert_eq!(std::fs::metadata(coding_path(&host, "brotli")).unwrap().ino(), inode);
}

#[test]
fn a_restart_reuses_coding_files_and_rebuilds_damaged_ones() {
    let host = Host::bare();
    import_bundle(&host, "other");
    let daemon = host.run();
    wait_for_codings(&host);
    let foreign = ["brotli", "zstd"].map(|kind| std::fs::read(coding_path(&host, kind)).unwrap());
    drop(daemon);
    import_bundle(&host, "tide");
    let start = || {
        let (daemon, log) = start_run(&host);
        wait_for_codings(&host);
        for coding in ["br", "zstd"] {
            let response = get(&daemon, "/", coding);
            assert_eq!(response.header("content-encoding"), Some(coding));
            assert_eq!(content(&response), page("tide").into_bytes());
        }
        drop(daemon);
        (log_contains(&log, "has br for"), log_contains(&log, "has zstd for"), log_contains(&log, "it is rebuilt"))
    };
    assert_eq!(start(), (true, true, false));
    let paths = ["brotli", "zstd"].map(|kind| coding_path(&host, kind));
    let numbers = || paths.each_ref().map(|path| std::fs::metadata(path).unwrap().ino());
    let (valid, before) = (paths.each_ref().map(|path| std::fs::read(path).unwrap()), numbers());
    assert_eq!(start(), (false, false, false), "the coding files of the last run are used");
    assert_eq!(numbers(), before);
    let put = |path: &Path, bytes: &[u8]| {
        // As a restored backup does: a file that may be mapped is replaced, never written to.
        let _ = std::fs::remove_file(path);
        std::fs::write(path, bytes).unwrap();
    };
    let (brotli, zstd) = (&valid[0], &valid[1]);
    let flipped = |offset: usize| {
        let mut wrong = brotli.clone();
        wrong[offset] ^= 1;
        wrong
    };
    for (case, bytes) in [
        ("a body", flipped(brotli.len() - 1)),
        ("the table", flipped(100)),
        ("the magic", flipped(0)),
        ("cut", brotli[..brotli.len() - 1].to_vec()),
        ("cut in its head", brotli[..60].to_vec()),
        ("empty", Vec::new()),
        ("trailing bytes", [&brotli[..], b"x"].concat()),
        ("of another version", foreign[0].clone()),
        ("another coding", zstd.clone()),
    ] {
        put(&paths[0], &bytes);
        assert_eq!(start(), (true, false, true), "{case}");
        // The new file may differ in the processor time that it records, and in the checksum.
        assert_eq!(std::fs::read(&paths[0]).unwrap().len(), brotli.len(), "{case}");
        assert_ne!(std::fs::read(&paths[0]).unwrap(), bytes, "{case}");
    }
    // A missing coding is made again, and the other one is used.
    std::fs::remove_file(&paths[1]).unwrap();
    assert_eq!(start(), (false, true, false));
    // The whole folder may be removed at any time.
    std::fs::remove_dir_all(host.path("store/derived")).unwrap();
    assert_eq!(start(), (true, true, false));
    assert_eq!(std::fs::metadata(&paths[0]).unwrap().permissions().mode() & 0o777, 0o444);
}

#[test]
fn a_page_that_fails_its_checksum_is_not_encoded_with_a_new_one() {
    let host = Host::bare();
    import_bundle(&host, "tide");
    let image = host.path("store/versions").join(host.active().unwrap()).join("site.zip");
    let mut bytes = std::fs::read(&image).unwrap();
    let coded = deflate(page("tide start").as_bytes());
    let offset = bytes
        .windows(coded.len())
        .position(|window| window == coded)
        .expect("the image has the bundle's compressed bytes");
    bytes[offset + coded.len() / 2] ^= 1;
    std::fs::remove_file(&image).unwrap();
    std::fs::write(&image, bytes).unwrap();
    let daemon = host.run();
    wait_for_codings(&host);
    let coding = |target: &str, accept: &str| {
        let response = http::request(&daemon.address, "HEAD", target, &[&format!("Accept-Encoding: {accept}")]);
        response.header("content-encoding").map(str::to_owned)
    };
    for accept in ["br", "zstd"] {
        assert_eq!(coding("/guide/start.html", accept), None);
        assert_eq!(coding("/", accept).as_deref(), Some(accept), "other pages have the coding");
    }
}

#[test]
fn gzip_is_served_and_an_error_reported_if_codings_cannot_be_stored() {
    let host = Host::bare();
    import_bundle(&host, "tide");
    std::fs::write(host.path("store/derived"), "in the way").unwrap();
    let (daemon, log) = start_run(&host);
    until_done_in_background("the reason is logged", || {
        log_contains(&log, "cannot make the Brotli and Zstandard forms")
    });
    assert_eq!(http::request(&daemon.address, "GET", "/", &[BROWSER]).header("content-encoding"), Some("gzip"));
    let codings = host.status()["daemon"]["codings"].clone();
    assert_eq!(codings["ready"], false);
    assert!(codings["error"].as_str().unwrap().contains("derived"), "{codings}");
}

#[test]
fn codings_are_removed_with_their_version_and_partial_ones_when_the_store_opens() {
    let host = Host::bare().set("sync.keep", "0");
    import_bundle(&host, "one");
    let first = coding_path(&host, "brotli");
    let daemon = host.run();
    wait_for_codings(&host);
    assert!(first.exists() && first.with_file_name("zstd").exists());
    for word in ["two", "three", "four"] {
        import_bundle(&host, word);
        wait_for_codings(&host);
    }
    until_done_in_background("the first version is removed", || !first.parent().unwrap().exists());
    drop(daemon);
    let coding_file = coding_path(&host, "brotli");
    let partial = coding_file.with_file_name(".zstd.new");
    std::fs::write(&partial, "half").unwrap();
    host.ok(&["hold", "--reason", "to open the store"]);
    assert!(!partial.exists() && coding_file.exists());
    host.ok(&["store", "verify"]);
}

#[test]
fn server_codings_chooses_the_codings_that_are_made() {
    let start = |value: &str| {
        let host = Host::bare().without_assistants().set("server.codings", value);
        import_bundle(&host, "tide");
        let (daemon, log) = start_run(&host);
        (host, daemon, log)
    };
    let (off, _daemon_without, log_without) = start("[]");
    let (host, daemon, _) = start("[\"zstd\"]");
    wait_for_codings(&host);
    assert_eq!(get(&daemon, "/", "br").header("content-encoding"), None);
    assert_eq!(get(&daemon, "/", "gzip, br, zstd").header("content-encoding"), Some("zstd"));
    assert!(!coding_path(&host, "brotli").exists());
    // In the same time, a daemon that was started before it has made no coding.
    let status = off.status()["daemon"].clone();
    assert!(status.is_object() && status["codings"].is_null(), "{status}");
    assert!(!off.path("store/derived").exists() && !log_contains(&log_without, "has br"));
    let ended = Host::bare().set("server.codings", toml_string("deflate")).expect_exit(2, &["config", "check"]);
    assert!(ended.stderr.contains("server.codings") && ended.stderr.contains("zstd"), "{}", ended.stderr);
    Host::bare().set("server.codings", "[\"br\", \"br\"]").expect_exit(2, &["config", "check"]);
}

#[test]
fn status_and_metrics_report_the_codings_of_the_active_version() {
    let host = Host::bare().set("admin.listen", toml_string("127.0.0.1:0"));
    import_bundle(&host, "tide");
    let daemon = host.run();
    wait_for_codings(&host);
    let status = host.status();
    let entries = status["daemon"]["codings"]["made"].as_array().unwrap();
    assert_eq!(entries.iter().map(|entry| entry["coding"].as_str().unwrap()).collect::<Vec<_>>(), ["br", "zstd"]);
    for (entry, (coding, files)) in entries.iter().zip([("br", 5), ("zstd", 4)]) {
        assert_eq!(entry["files"], files);
        let sent: usize = TEXTS.map(|target| get(&daemon, target, coding).body.len()).iter().sum();
        assert!(entry["bytes"].as_u64().unwrap() > sent as u64 && entry["seconds"].as_f64().unwrap() >= 0.0);
    }
    let line = host.ok(&["status"]).stdout;
    assert!(line.contains("\ncodings    br for 5 files (") && line.contains("; zstd for 4 files ("), "{line}");
    let admin = host.reported_address("admin");
    let metrics = http::get(&admin, "/metrics").text();
    for line in ["docwharf_coded_files{coding=\"br\"} 5", "docwharf_coded_files{coding=\"zstd\"} 4"] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
    for name in ["docwharf_coded_bytes{coding=\"br\"} ", "docwharf_coded_processor_seconds{coding=\"zstd\"} "] {
        assert!(metrics.contains(name), "{name}: {metrics}");
    }
    // Inflated pages have a separate metric, because they have a separate limit (`server.identityCache`).
    assert!(metrics.contains("\ndocwharf_identity_cache_bytes 0\n"), "{metrics}");
    assert!(metrics.contains("\ndocwharf_answers_held_bytes 0\n"), "{metrics}");
    let page = get(&daemon, TEXTS[0], "").body.len() as u64;
    let bytes = metrics::value(&admin, "docwharf_identity_cache_bytes");
    assert!((page..page + 1000).contains(&bytes), "{bytes} for a page of {page}");
}

/// A bundle whose pages have about `kib` KiB with gzip.
fn large_bundle(kib: usize) -> Vec<u8> {
    let page = |n: usize| format!("<p>{n}{}", support::sample_text(100_000));
    let page_len = deflate(page(1).as_bytes()).len();
    let pages: Vec<_> = (0..=kib * 1024 / page_len).map(|n| deflated(&format!("{n}.html"), &page(n))).collect();
    zip(&[&[deflated("index.html", "<title>large</title>")], &pages[..]].concat())
}

#[test]
fn codings_are_not_made_on_a_disk_with_too_little_free_space() {
    let disk = SmallDisk::new("size=4m");
    let host = Host::bare().set("store.path", toml_string(disk.path("store").to_str().unwrap()));
    host.put("bundle.zip", large_bundle(1000));
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
    disk.leave_free_bytes(200 << 10);
    let (daemon, log) = start_run(&host);
    until_done_in_background("the reason is logged", || log_contains(&log, "are not made"));
    assert!(log_contains(&log, "free"));
    let response = http::request(&daemon.address, "GET", "/1.html", &[BROWSER]);
    assert_eq!(response.header("content-encoding"), Some("gzip"));
    assert!(!disk.path("store/derived").exists(), "no coding was started");
    drop(daemon);
    // `store.minFree` counts, too.
    disk.remove_fillers();
    let min_free = disk.free_bytes() - (500 << 10);
    let host = host.set("store.minFree", min_free.to_string());
    let (_daemon, log) = start_run(&host);
    until_done_in_background("the reason is logged", || log_contains(&log, "are not made"));
    assert!(log_contains(&log, "store.minFree"));
}

#[test]
fn codings_are_removed_when_a_new_bundle_needs_their_disk_space() {
    // The disk has space for both versions, but not for the coding of the first as well.
    let disk = SmallDisk::new("size=3m");
    let host = Host::bare().set("store.path", toml_string(disk.path("store").to_str().unwrap()));
    let host = host.set("server.codings", "[\"zstd\"]").set("staticExport.bundleUrl", toml_string("bundle.zip"));
    host.put("bundle.zip", large_bundle(700));
    host.sync();
    let daemon = host.run();
    wait_for_codings(&host);
    let path = |kind: &str| disk.path("store").join("derived").join(host.active().unwrap()).join(kind);
    assert!(path("zstd").exists());
    let (first, free) = (path("zstd"), disk.free_bytes());
    host.put("bundle.zip", large_bundle(1800));
    assert!(
        std::fs::metadata(host.path("bundle.zip")).unwrap().len() > free,
        "the bundle needs the space of the coding"
    );
    let before = host.active();
    host.sync();
    assert_ne!(host.active(), before);
    assert!(!first.exists(), "the coding is removed");
    assert_eq!(http::get(&daemon.address, "/1.html").status, 200);
    // No version is removed to make space for codings.
    assert_eq!(host.ok(&["versions", "--json"]).json()["versions"].as_array().unwrap().len(), 2);
}

#[test]
fn codings_are_not_made_when_they_would_exceed_store_max_bytes() {
    let host = Host::bare();
    host.put("bundle.zip", large_bundle(700));
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
    let image = host.path("store/versions").join(host.active().unwrap()).join("site.zip");
    let size = std::fs::metadata(image).unwrap().len();
    let host = host.set("store.maxBytes", (size * 3 / 2).to_string());
    let (daemon, log) = start_run(&host);
    until_done_in_background("the reason is logged", || log_contains(&log, "are not made"));
    assert!(log_contains(&log, "store.maxBytes"));
    assert_eq!(get(&daemon, "/1.html", "br, gzip").header("content-encoding"), Some("gzip"));
}

#[test]
fn a_shutdown_ends_the_encoder_process_and_removes_its_partial_file() {
    let host = Host::bare();
    // Minutes of work.
    host.put("bundle.zip", large_bundle(12_000));
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
    let mut daemon = host.run();
    let partial = coding_path(&host, ".brotli.new");
    let child_processes = |parent: u32| -> Vec<u32> {
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
        let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        let lists: String = lists.chain([children]).collect::<Vec<_>>().join(" ");
        lists.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    };
    until_done_in_background("the encoder has started", || {
        partial.exists() && !child_processes(daemon.pid()).is_empty()
    });
    let child = child_processes(daemon.pid())[0];
    let attribute = |name: &str| std::fs::read_to_string(format!("/proc/{child}/{name}")).unwrap_or_default();
    // It gets no key and no other secret, and if memory runs out, the kernel ends it first.
    until_done_in_background("it runs without an environment", || {
        attribute("cmdline").contains("make-coding") && attribute("environ").is_empty()
    });
    until_done_in_background("it may be ended first", || attribute("oom_score_adj").trim() == "1000");
    // Fields are counted from the third, which is the state; nice is the nineteenth.
    let nice = || attribute("stat").rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(16).map(str::to_owned));
    until_done_in_background("it has the lowest priority", || nice().as_deref() == Some("19"));
    // It may take half of one processor.
    let state = || attribute("stat").rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    until_done_in_background("it is paused", || state() == Some('T'));
    until_done_in_background("it continues", || state().is_some_and(|state| state != 'T'));
    until_done_in_background("it is paused again", || state() == Some('T'));
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
    assert!(!partial.exists(), "no partial file is left");
    let has_ended = || !Path::new(&format!("/proc/{child}")).exists();
    until_done_in_background("the encoder has ended", has_ended);
    // After SIGKILL the daemon cannot clean up; its encoder process ends all the same, even while it is paused.
    let mut daemon = host.run();
    until_done_in_background("the encoder has started", || {
        partial.exists() && !child_processes(daemon.pid()).is_empty()
    });
    let child = child_processes(daemon.pid())[0];
    daemon.signal("KILL");
    daemon.wait(Duration::from_secs(20));
    until_done_in_background("the encoder has ended", || !Path::new(&format!("/proc/{child}")).exists());
    host.ok(&["hold", "--reason", "to open the store"]);
    assert!(!partial.exists(), "the partial file is removed when the store is opened");
}

#[test]
fn make_coding_refuses_to_run_unless_started_by_docwharf() {
    let host = Host::bare();
    import_bundle(&host, "tide");
    let id = host.active().unwrap();
    let index = host.path("store/versions").join(&id).join("index");
    let arguments = ["make-coding", "--coding", "br", "--id", &id, "--index", index.to_str().unwrap(), "--parent", "1"];
    let ended = support::run_docwharf(arguments).expect(8);
    assert!(ended.stderr.contains("for docwharf itself"), "{}", ended.stderr);
    assert!(ended.stdout.is_empty());
    assert!(!support::run_docwharf(["--help"]).stdout.contains("make-coding"));
}
