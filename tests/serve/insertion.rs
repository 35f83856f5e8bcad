//! The tag of the search box behind pages: every form and protocol, who gets it, and what a change of it changes. The
//! bytes of each form are tested in `serve::insertion` and `base::codec::continuation`.

use std::io::Read;
use std::path::Path;

use support::h2::Http2Client;
use support::host::{Host, toml_string};
use support::http::{PersistentConnection, Response, gunzip, request};
use support::zip::{LAST_BLOCK, RawMember, archive, deflate, deflate_piece, deflated, stored, zip};
use support::{
    Daemon, HTTP2_SERVERS, docwharf, sample_text, temporary_folder, until, until_done_in_background, write_site,
};

const TAG: &str = "<script src=\"/_docwharf/search.js\" defer></script>";

/// Starts `docwharf serve` for a folder or an archive.
fn serve(path: &Path, more: &[&str]) -> Daemon {
    Daemon::start(docwharf().arg("serve").arg(path).args(["--listen", "127.0.0.1:0"]).args(more))
}

/// Writes files into a temporary folder and starts `docwharf serve` for it.
fn serve_files(files: &[(&str, &str)], more: &[&str]) -> (tempfile::TempDir, Daemon) {
    let dir = temporary_folder();
    let root = write_site(&dir.path().join("site"), files);
    let daemon = serve(&root, more);
    (dir, daemon)
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

/// Status and fields, without the date.
fn head_without_date(response: &Response) -> (u16, Vec<(String, String)>) {
    let mut fields = response.headers.clone();
    fields.retain(|(name, _)| name != "date");
    fields.sort();
    (response.status, fields)
}

#[test]
fn each_form_is_sent_with_the_tag_over_each_protocol() {
    // The large page is sent from a memfd, once it is cached.
    let (long, large) = (sample_text(300_000), sample_text(2_000_000));
    let files = [
        ("index.html", "<p>home"),
        ("empty.html", ""),
        ("long.html", long.as_str()),
        ("large.html", large.as_str()),
        ("404.html", "<p>missing"),
        ("style.css", "p { color: teal }"),
    ];
    for http2 in HTTP2_SERVERS {
        let dir = temporary_folder();
        let root = write_site(&dir.path().join("site"), &files);
        let config = dir.path().join("config.toml");
        std::fs::write(&config, format!("[server]\nhttp2 = \"{http2}\"\n")).expect("a file can be written");
        let daemon = serve(&root, &["--config", config.to_str().expect("a name"), "--search-box", "always"]);
        let mut fast = PersistentConnection::open(&daemon.address);
        let mut hyper = PersistentConnection::open(&daemon.address);
        // OPTIONS is not a plain request: from here on, hyper serves the connection.
        hyper.send("OPTIONS / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(hyper.response(false).status, 204);
        let mut client = Http2Client::open(&daemon.address);
        for (target, status, text, tag) in [
            ("/", 200, "<p>home", TAG),
            ("/empty", 200, "", TAG),
            ("/long", 200, &long, TAG),
            ("/large", 200, &large, TAG),
            ("/nowhere", 404, "<p>missing", TAG),
            ("/style.css", 200, "p { color: teal }", ""),
        ] {
            let expected = [text, tag].concat().into_bytes();
            for accept in ["identity", "gzip", "br"] {
                // The first response is made, later ones come from the response cache.
                for attempt in 0..4 {
                    let case = format!("{target} {accept} (attempt {attempt}, {http2})");
                    let mut heads = Vec::new();
                    for method in ["GET", "HEAD"] {
                        let text =
                            format!("{method} {target} HTTP/1.1\r\nHost: x\r\nAccept-Encoding: {accept}\r\n\r\n");
                        for connection in [&mut fast, &mut hyper] {
                            connection.send(&text);
                            let response = connection.response(method == "HEAD");
                            assert_eq!(response.status, status, "{case}");
                            assert!(method == "HEAD" || content(&response) == expected, "{case}");
                            heads.push(head_without_date(&response));
                        }
                        let stream = client.request(method, target, &[("accept-encoding", accept)]);
                        let response = client.response(stream);
                        assert_eq!(response.status, status, "HTTP/2 {case}");
                        assert!(method == "HEAD" || content(&response) == expected, "HTTP/2 {case}");
                        heads.push(head_without_date(&response));
                    }
                    assert!(heads.iter().all(|head| *head == heads[0]), "{case}: {heads:#?}");
                }
            }
        }
    }
}

#[test]
fn pipelined_responses_with_tags_do_not_run_into_each_other() {
    let (_dir, daemon) = serve_files(&[("index.html", "<p>home"), ("a.html", "<p>a")], &["--search-box", "always"]);
    let mut connection = PersistentConnection::open(&daemon.address);
    let pair = "GET / HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\n";
    connection.send(pair.repeat(50));
    for _ in 0..50 {
        assert_eq!(content(&connection.response(false)), ["<p>home", TAG].concat().as_bytes());
        assert_eq!(content(&connection.response(false)), ["<p>a", TAG].concat().as_bytes());
    }
}

#[test]
fn pages_of_an_adopted_archive_get_the_tag_within_one_gzip_member() {
    let (long, short) = (sample_text(400_000), sample_text(3000));
    // Blocks of several kinds, and an empty last one.
    let blocks = [deflate_piece(short.as_bytes()), deflate_piece(long.as_bytes()), LAST_BLOCK.to_vec()].concat();
    let uncompressed = {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::none());
        std::io::Write::write_all(&mut encoder, short.as_bytes()).expect("memory");
        encoder.finish().expect("memory")
    };
    let both = [short.as_str(), long.as_str()].concat();
    let mut raw = archive(&[
        deflated("index.html", "<p>home"),
        deflated("empty.html", ""),
        deflated("long.html", &long),
        stored("stored.html", "<p>stored"),
    ]);
    let member = |name: &[u8], coded: Vec<u8>, text: &str| {
        RawMember::coded(name, 8, coded, crc32fast::hash(text.as_bytes()), text.len() as u32)
    };
    raw.members.push(member(b"blocks.html", blocks, &both));
    raw.members.push(member(b"uncompressed.html", uncompressed, &short));
    raw.members.push(member(b"tiny.html", deflate(b"x"), "x"));
    let dir = temporary_folder();
    let path = dir.path().join("bundle.zip");
    std::fs::write(&path, raw.bytes()).expect("a file can be written");
    let daemon = serve(&path, &["--search-box", "always"]);
    for (target, text) in [
        ("/", "<p>home"),
        ("/empty", ""),
        ("/long", &long),
        ("/stored", "<p>stored"),
        ("/blocks", &both),
        ("/uncompressed", &short),
        ("/tiny", "x"),
    ] {
        let expected = [text, TAG].concat().into_bytes();
        for accept in ["identity", "gzip"] {
            let accept = format!("Accept-Encoding: {accept}");
            let full = request(&daemon.address, "GET", target, &[&accept]);
            assert!(content(&full) == expected, "{target} {accept}");
            let n = full.body.len();
            for (range, start, end) in [
                (format!("-{}", TAG.len() + 3), n - n.min(TAG.len() + 3), n),
                (format!("{}-", n - 1), n - 1, n),
                (format!("{}-{}", n / 2, n - 2), n / 2, n - 1),
            ] {
                let part = request(&daemon.address, "GET", target, &[&accept, &format!("Range: bytes={range}")]);
                let case = format!("{range} of {target} {accept}");
                assert_eq!(part.status, 206, "{case}");
                assert_eq!(part.header("content-range"), Some(format!("bytes {start}-{}/{n}", end - 1).as_str()));
                assert!(part.body == full.body[start..end], "{case}");
                assert_eq!(part.header("etag"), full.header("etag"), "{case}");
            }
        }
    }
}

#[test]
fn ranges_of_a_file_that_a_rule_makes_html_have_the_tag_and_that_type() {
    let files = [
        ("_headers", "/readme\n  Content-Type: text/html\n"),
        ("index.html", "<p>home"),
        ("readme", "<p>how to begin"),
    ];
    let (_dir, daemon) = serve_files(&files, &["--search-box", "always"]);
    let len = "<p>how to begin".len() + TAG.len();
    let last = format!("{}-{}", len - 9, len - 1);
    let response = request(&daemon.address, "GET", "/readme", &[&format!("Range: bytes=0-2,{last}")]);
    assert_eq!(response.status, 206);
    let media_type = response.header("content-type").expect("a type");
    let boundary = media_type.strip_prefix("multipart/byteranges; boundary=").unwrap_or_else(|| panic!("{media_type}"));
    let part = |range: &str, bytes: &str| {
        let fields = format!("Content-Type: text/html\r\nContent-Range: bytes {range}/{len}\r\n");
        format!("--{boundary}\r\n{fields}\r\n{bytes}\r\n")
    };
    assert_eq!(response.text(), format!("{}{}--{boundary}--\r\n", part("0-2", "<p>"), part(&last, "</script>")));
}

#[test]
fn a_site_with_its_own_search_gets_the_tag_only_if_that_is_requested() {
    let plain = [("index.html", "<p>home"), ("a.html", "<p>a")];
    let book = [("index.html", "<p>home"), ("searchindex.js", "{}")];
    for (files, how, has_tag) in [
        (&plain[..], &[][..], true),
        (&plain, &["--search-box", "auto"], true),
        (&plain, &["--search-box", "always"], true),
        (&plain, &["--search-box", "never"], false),
        (&book, &[], false),
        (&book, &["--search-box", "auto"], false),
        (&book, &["--search-box", "always"], true),
    ] {
        let (_dir, daemon) = serve_files(files, how);
        let page = request(&daemon.address, "GET", "/", &[]);
        let expected = if has_tag { ["<p>home", TAG].concat() } else { "<p>home".to_owned() };
        assert_eq!(page.text(), expected, "{files:?} {how:?}");
        assert_eq!(page.header("etag").expect("a tag").contains("-i"), has_tag, "{files:?} {how:?}");
    }
    let (_dir, daemon) = serve_files(&plain, &["--search-box", "always", "--base-path", "/docs/"]);
    let page = request(&daemon.address, "GET", "/docs/", &[]);
    assert_eq!(page.text(), "<p>home<script src=\"/docs/_docwharf/search.js\" defer></script>");
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

#[test]
fn a_reload_that_ends_the_insertion_changes_length_and_entity_tag_of_each_form_and_nothing_else() {
    const CODINGS: [&str; 4] = ["identity", "gzip", "br", "zstd"];
    let mut host = Host::bare().set("search.enabled", "true").set("search.inject", toml_string("always"));
    let text = sample_text(20_000);
    host.put("bundle.zip", zip(&[deflated("index.html", &text), deflated("main.css", &text)]));
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
    let daemon = host.run();
    wait_for_codings(&host);
    let get = |method: &str, target: &str, coding: &str| {
        request(&daemon.address, method, target, &[&format!("Accept-Encoding: {coding}")])
    };
    let with_tag = CODINGS.map(|coding| get("GET", "/", coding));
    let styles = CODINGS.map(|coding| get("GET", "/main.css", coding));
    for (response, coding) in with_tag.iter().zip(CODINGS) {
        assert_eq!(response.header("content-encoding"), Some(coding).filter(|coding| *coding != "identity"));
        assert!(content(response) == [text.as_str(), TAG].concat().into_bytes(), "{coding}");
        assert_eq!(head_without_date(&get("HEAD", "/", coding)), head_without_date(response), "{coding}");
        let entity_tag = response.header("etag").expect("a tag");
        let condition = format!("If-None-Match: {entity_tag}");
        let fields = [format!("Accept-Encoding: {coding}"), condition];
        let unchanged = request(&daemon.address, "GET", "/", &fields.each_ref().map(String::as_str));
        assert_eq!((unchanged.status, unchanged.header("etag")), (304, Some(entity_tag)), "{coding}");
    }
    host.change("search.inject", toml_string("never"));
    daemon.signal("HUP");
    until("pages have no tag", || get("GET", "/", "identity").body == text.as_bytes());
    for (before, coding) in with_tag.iter().zip(CODINGS) {
        let after = get("GET", "/", coding);
        assert!(content(&after) == text.as_bytes(), "{coding}");
        let (old_tag, new_tag) = (before.header("etag").expect("a tag"), after.header("etag").expect("a tag"));
        // The content, the inserted tag, and the coded bytes.
        let (content_digest, inserted) = old_tag.split_at(1 + 16);
        assert!(inserted.starts_with("-i"), "{old_tag}");
        assert_eq!(new_tag, [content_digest, &inserted[2 + 8..]].concat(), "{coding}");
        let other_fields = |response: &Response| {
            let (status, mut fields) = head_without_date(response);
            fields.retain(|(name, _)| name != "etag" && name != "content-length");
            (status, fields)
        };
        assert_eq!(other_fields(&after), other_fields(before), "{coding}");
    }
    for (before, coding) in styles.iter().zip(CODINGS) {
        let after = get("GET", "/main.css", coding);
        assert_eq!(head_without_date(&after), head_without_date(before), "{coding}");
        assert!(after.body == before.body, "{coding}");
    }
}
