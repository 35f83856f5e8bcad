//! Content of a site: media types, caching, validators, ranges, codings.

use std::fs::File;
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use support::http::{Response, get, gunzip, request};
use support::{Daemon, sample_text, serve_archive, serve_site, tar, temporary_folder, write_site, zip};

/// The entity tag of content without a content coding.
fn identity_tag(content: &[u8]) -> String {
    let digest = Sha256::digest(content);
    let (first, _) = digest.split_first_chunk::<8>().expect("32 bytes");
    format!("\"{:016x}\"", u64::from_be_bytes(*first))
}

/// The `max-age` of `Cache-Control`, in seconds.
fn max_age(response: &Response) -> Option<u64> {
    let value = response.header("cache-control")?;
    value.split(',').find_map(|part| part.trim().strip_prefix("max-age=")?.parse().ok())
}

const GZIP: &str = "Accept-Encoding: gzip";

const OWN_404: &str = "<h1>the site's own page for what is missing</h1>";

// ---------------------------------------------------------------------------------------------------------------------
// Types and caching

#[test]
fn files_have_the_media_types_that_browsers_need() {
    let expected = [
        ("a.html", "text/html; charset=utf-8"),
        ("a.htm", "text/html; charset=utf-8"),
        ("a.css", "text/css; charset=utf-8"),
        ("a.js", "text/javascript; charset=utf-8"),
        ("a.mjs", "text/javascript; charset=utf-8"),
        ("a.json", "application/json"),
        ("a.wasm", "application/wasm"),
        ("a.svg", "image/svg+xml"),
        ("a.avif", "image/avif"),
        ("a.png", "image/png"),
        ("a.woff2", "font/woff2"),
        ("a.webmanifest", "application/manifest+json"),
        ("a.xml", "application/xml; charset=utf-8"),
        ("a.txt", "text/plain; charset=utf-8"),
        ("a.md", "text/markdown; charset=utf-8"),
        ("a.pdf", "application/pdf"),
        ("A.CSS", "text/css; charset=utf-8"),
        ("b.unheardof", "application/octet-stream"),
        ("LICENSE", "application/octet-stream"),
    ];
    let files: Vec<_> =
        [("index.html", "<p>home")].into_iter().chain(expected.iter().map(|(name, _)| (*name, "content"))).collect();
    let (_dir, daemon) = serve_site(&files, &[]);
    for (name, media_type) in expected {
        for fields in [&[][..], &[GZIP], &["Range: bytes=0-1"]] {
            let response = request(&daemon.address, "GET", &format!("/{name}"), fields);
            assert!(matches!(response.status, 200 | 206), "{name}");
            assert_eq!(response.header("content-type"), Some(media_type), "{name}");
            assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{name}");
        }
    }
}

// Regression: an archive for download was sent with `Content-Encoding: gzip`.
#[test]
fn an_archive_in_the_site_is_sent_unchanged_and_without_content_encoding() {
    let inner = String::from_utf8(tar::tar(&[tar::file("x", "y")])).expect("a tar of text");
    let names = ["a.tar.gz", "a.tgz", "a.zip", "a.gz"];
    let in_folder: Vec<_> =
        [("index.html", "<p>home")].into_iter().chain(names.map(|name| (name, inner.as_str()))).collect();
    let (_dir, from_folder) = serve_site(&in_folder, &[]);
    // A ZIP whose entries deflate these files again. The ZIP is adopted unchanged.
    let members: Vec<_> = in_folder.iter().map(|(name, content)| zip::deflated(name, content)).collect();
    let (_dir2, from_zip) = serve_archive(&zip::zip(&members));
    for (daemon, kind) in [(&from_folder, "folder"), (&from_zip, "zip")] {
        for name in names {
            let response = request(&daemon.address, "GET", &format!("/{name}"), &[GZIP]);
            assert_eq!(response.header("content-encoding"), None, "{name} from a {kind}");
            assert_eq!(response.text(), inner, "{name} from a {kind}");
            let expected = if name == "a.zip" { "application/zip" } else { "application/gzip" };
            assert_eq!(response.header("content-type"), Some(expected), "{name} from a {kind}");
        }
    }
}

#[test]
fn hashed_assets_are_cached_for_a_year_and_pages_are_revalidated() {
    let immutable = ["_next/static/chunk.js", "_next/static/css/a.css", "assets/main.0ab12cd3.css", "f-1234567a.woff2"];
    let fresh = [
        "page.html",
        "_next/static/page.html",
        "main.css",
        "assets/main.deadbeef.css",
        "a.0ab12cd3.txt",
        "p.0ab12cd3.html",
    ];
    let files: Vec<_> = [("index.html", "<p>home")]
        .into_iter()
        .chain(immutable.iter().chain(&fresh).map(|name| (*name, "some content")))
        .collect();
    let (_dir, daemon) = serve_site(&files, &[]);
    for (names, is_immutable) in [(&immutable[..], true), (&fresh[..], false)] {
        for name in names {
            let target = format!("/{name}");
            let full = get(&daemon.address, &target);
            let tag = format!("If-None-Match: {}", full.header("etag").expect("a tag"));
            let cache = full.header("cache-control").expect("a policy");
            assert_eq!(cache.contains("immutable"), is_immutable, "{name}: {cache}");
            if is_immutable {
                assert!(max_age(&full).is_some_and(|age| age >= 31_536_000), "{name}: {cache}");
            } else {
                assert!(cache.contains("no-cache") || max_age(&full) == Some(0), "{name}: {cache}");
            }
            for (fields, status) in
                [(&[GZIP][..], 200), (&["Range: bytes=1-2"], 206), (&[GZIP, "Range: bytes=1-2"], 206), (&[&tag], 304)]
            {
                let response = request(&daemon.address, "GET", &target, fields);
                assert_eq!(
                    (response.status, response.header("cache-control")),
                    (status, Some(cache)),
                    "{name} {fields:?}"
                );
            }
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Validators

#[test]
fn an_etag_depends_only_on_the_content_and_its_coding() {
    let files = [("index.html", "<p>home"), ("a.css", "a { color: red }"), ("p.png", "not really"), ("empty.txt", "")];
    let dir = temporary_folder();
    let root = write_site(&dir.path().join("site"), &files);
    let zipped: Vec<_> = files.iter().map(|(name, content)| zip::deflated(name, content)).collect();
    let stored: Vec<_> = files.iter().map(|(name, content)| zip::stored(&format!("wrapper/{name}"), content)).collect();
    let tarred: Vec<_> = files.iter().map(|(name, content)| tar::file(name, content)).collect();
    for (name, bytes) in [
        ("a.zip", zip::zip(&zipped)),
        ("b.zip", zip::zip(&stored)),
        ("c.tar", tar::tar(&tarred)),
        ("d.tar.gz", tar::gzip(&tar::tar(&tarred))),
        ("e.tar.zst", tar::zstd(&tar::tar(&tarred))),
    ] {
        std::fs::write(dir.path().join(name), bytes).expect("an archive can be written");
    }
    for path in [
        root,
        dir.path().join("a.zip"),
        dir.path().join("b.zip"),
        dir.path().join("c.tar"),
        dir.path().join("d.tar.gz"),
        dir.path().join("e.tar.zst"),
    ] {
        let (first, restarted) = (Daemon::serve(&path, &[]), Daemon::serve(&path, &[]));
        for (name, content) in files {
            let target = format!("/{name}");
            let identity = get(&first.address, &target);
            assert_eq!(
                identity.header("etag"),
                Some(identity_tag(content.as_bytes()).as_str()),
                "{name} from {}",
                path.display()
            );
            let coded = request(&first.address, "GET", &target, &[GZIP]);
            let coded_tag = coded.header("etag").expect("a tag");
            assert!(coded_tag.starts_with('"') && coded_tag.ends_with('"'), "strong: {coded_tag}");
            assert_eq!(
                coded_tag != identity.header("etag").unwrap(),
                coded.header("content-encoding").is_some(),
                "equal tags mean equal bytes"
            );
            let later = request(&restarted.address, "GET", &target, &[GZIP]);
            assert_eq!(later.header("etag"), Some(coded_tag), "{name} from {} after a restart", path.display());
            assert_eq!(later.body, coded.body, "{name} from {} after a restart", path.display());
        }
    }
}

/// Targets and `Accept-Encoding` fields that select each form: identity, gzip, and a stored file.
const FORMS: [(&str, &str); 3] =
    [("/page.html", "Accept-Encoding: identity"), ("/page.html", GZIP), ("/picture.png", GZIP)];

/// A site with [`FORMS`] whose files were changed on a Sunday in 2001 at 01:46:40.
fn dated_site() -> (tempfile::TempDir, Daemon) {
    let dir = temporary_folder();
    let page = sample_text(5000);
    let root = write_site(
        &dir.path().join("site"),
        &[("index.html", "<p>home"), ("page.html", &page), ("picture.png", &page)],
    );
    for name in ["page.html", "picture.png"] {
        let file = File::options().write(true).open(root.join(name)).expect("a file can be opened");
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).expect("times can be set");
    }
    let daemon = Daemon::serve(&root, &[]);
    (dir, daemon)
}

const MODIFIED: &str = "Sun, 09 Sep 2001 01:46:40 GMT";
const BEFORE: &str = "Sun, 09 Sep 2001 01:46:39 GMT";
const AFTER: &str = "Sun, 09 Sep 2001 01:46:41 GMT";

#[test]
fn preconditions_are_evaluated_in_the_order_of_rfc_9110() {
    let (_dir, daemon) = dated_site();
    for (target, accept) in FORMS {
        let full = request(&daemon.address, "GET", target, &[accept]);
        assert_eq!(full.header("last-modified"), Some(MODIFIED));
        let tag = full.header("etag").expect("a tag").to_owned();
        let opaque = tag.trim_matches('"').to_owned();
        let cases: &[(&[&str], u16)] = &[
            // If-None-Match: weak comparison, lists, `*`.
            (&["If-None-Match: TAG"], 304),
            (&["If-None-Match: W/TAG"], 304),
            (&["If-None-Match: *"], 304),
            (&["If-None-Match: \"x\", TAG"], 304),
            (&["If-None-Match: \"x\",W/TAG,\"y\""], 304),
            (&["If-None-Match: \"a,b\" , TAG"], 304),
            (&["If-None-Match: , TAG,"], 304),
            (&["If-None-Match: \"x\"", "If-None-Match: TAG"], 304),
            (&["If-None-Match: \"x\""], 200),
            (&["If-None-Match: BARE"], 200),
            (&["If-None-Match: \"xBARE\""], 200),
            (&["If-None-Match: \"*\""], 200),
            (&["If-None-Match:"], 200),
            (&["If-None-Match: \"unfinished"], 200),
            // If-None-Match takes precedence over If-Modified-Since.
            (&["If-None-Match: \"x\"", "If-Modified-Since: AFTER"], 200),
            (&["If-None-Match: TAG", "If-Modified-Since: BEFORE"], 304),
            (&["If-Modified-Since: MODIFIED"], 304),
            (&["If-Modified-Since: AFTER"], 304),
            (&["If-Modified-Since: BEFORE"], 200),
            (&["If-Modified-Since: Sunday, 09-Sep-01 01:46:40 GMT"], 304),
            (&["If-Modified-Since: Sun Sep  9 01:46:40 2001"], 304),
            (&["If-Modified-Since: yesterday"], 200),
            (&["If-Modified-Since: 1000000000"], 200),
            (&["If-Modified-Since: Sun, 99 Sep 2001 01:46:40 GMT"], 200),
            (&["If-Modified-Since:"], 200),
            // If-Match: strong comparison. It takes precedence over If-Unmodified-Since.
            (&["If-Match: TAG"], 200),
            (&["If-Match: *"], 200),
            (&["If-Match: \"x\", TAG"], 200),
            (&["If-Match: \"x\""], 412),
            (&["If-Match: W/TAG"], 412),
            (&["If-Match: BARE"], 412),
            (&["If-Match: \"x\", W/TAG"], 412),
            (&["If-Match: W/\"x\" , TAG"], 200),
            (&["If-Match: \"x\"", "If-Match: TAG"], 200),
            (&["If-Match:"], 412),
            (&["If-Unmodified-Since: MODIFIED", "If-Unmodified-Since: BEFORE"], 200),
            (&["If-Modified-Since: MODIFIED", "If-Modified-Since: MODIFIED"], 200),
            (&["If-Unmodified-Since: MODIFIED"], 200),
            (&["If-Unmodified-Since: AFTER"], 200),
            (&["If-Unmodified-Since: BEFORE"], 412),
            (&["If-Unmodified-Since: Sunday, 06-Nov-94 08:49:37 GMT"], 412),
            (&["If-Unmodified-Since: soon"], 200),
            (&["If-Match: TAG", "If-Unmodified-Since: BEFORE"], 200),
            (&["If-Match: \"x\"", "If-None-Match: TAG"], 412),
            (&["If-Match: TAG", "If-None-Match: TAG"], 304),
            (&["If-Unmodified-Since: BEFORE", "If-None-Match: TAG"], 412),
            // Preconditions come before ranges.
            (&["If-None-Match: TAG", "Range: bytes=0-1"], 304),
            (&["If-Match: \"x\"", "Range: bytes=0-1"], 412),
            (&["If-None-Match: \"x\"", "Range: bytes=0-1"], 206),
            (&["If-Match: TAG", "Range: bytes=0-1"], 206),
            (&["If-None-Match: TAG", "Range: bytes=999999-"], 304),
        ];
        for &(fields, status) in cases {
            let mut fields: Vec<String> = fields
                .iter()
                .map(|field| {
                    let field = field.replace("TAG", &tag).replace("BARE", &opaque);
                    field.replace("MODIFIED", MODIFIED).replace("BEFORE", BEFORE).replace("AFTER", AFTER)
                })
                .collect();
            fields.push(accept.to_owned());
            let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
            let response = request(&daemon.address, "GET", target, &fields);
            assert_eq!(response.status, status, "{target} {fields:?}");
            match status {
                200 => assert_eq!(response.body, full.body, "{target} {fields:?}"),
                304 => {
                    assert!(response.body.is_empty(), "{target} {fields:?}");
                    for name in ["etag", "cache-control", "vary", "last-modified"] {
                        assert_eq!(response.header(name), full.header(name), "{name} of 304 to {target} {fields:?}");
                    }
                    // No fields that describe a body: a cache would update its stored ones (RFC 9111, 3.2).
                    for name in ["content-type", "content-length", "content-encoding", "content-range"] {
                        assert_eq!(response.header(name), None, "{name} of 304 to {target} {fields:?}");
                    }
                }
                _ => {}
            }
        }
    }
}

// Regression: a file whose date is in the future was reported as changed after its response.
#[test]
fn last_modified_of_a_file_from_the_future_is_not_later_than_date() {
    let dir = temporary_folder();
    let root = write_site(&dir.path().join("site"), &[("index.html", "<p>home")]);
    let file = File::options().write(true).open(root.join("index.html")).expect("a file can be opened");
    file.set_modified(SystemTime::now() + Duration::from_hours(240)).expect("times can be set");
    let daemon = Daemon::serve(&root, &[]);
    let seconds = |text: Option<&str>| httpdate::parse_http_date(text.expect("a date")).expect("a good date");
    for fields in [&[][..], &["If-None-Match: *"], &["Range: bytes=0-0"], &["If-Match: \"x\""]] {
        let response = request(&daemon.address, "GET", "/", fields);
        let (modified, now) = (seconds(response.header("last-modified")), seconds(response.header("date")));
        // `Date` is made once a second, and may lag behind by a few on a busy machine.
        assert!(modified <= now + Duration::from_secs(5), "{fields:?}: {:?}", response.headers);
    }
}

#[test]
fn an_etag_of_one_coding_does_not_match_another_coding() {
    let (_dir, daemon) = dated_site();
    let (identity, coded) =
        (get(&daemon.address, "/page.html"), request(&daemon.address, "GET", "/page.html", &[GZIP]));
    let (identity, coded) = (identity.header("etag").expect("a tag"), coded.header("etag").expect("a tag"));
    for (fields, status) in [
        (vec![format!("If-None-Match: {coded}")], 200),
        (vec![GZIP.to_owned(), format!("If-None-Match: {identity}")], 200),
        (vec![GZIP.to_owned(), format!("If-None-Match: {identity}, {coded}")], 304),
        (vec!["Range: bytes=0-9".to_owned(), format!("If-Range: {coded}")], 200),
        (vec![GZIP.to_owned(), "Range: bytes=0-9".to_owned(), format!("If-Range: {identity}")], 200),
    ] {
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        assert_eq!(request(&daemon.address, "GET", "/page.html", &fields).status, status, "{fields:?}");
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Ranges

/// Start and end (exclusive) of the range, or the status of any other response.
type Expected = Result<(usize, usize), u16>;

#[test]
fn a_range_response_has_exactly_the_requested_bytes_of_the_representation() {
    let (_dir, daemon) = dated_site();
    for (target, accept) in FORMS {
        let full = request(&daemon.address, "GET", target, &[accept]);
        assert_eq!(full.header("accept-ranges"), Some("bytes"));
        let n = full.body.len();
        let cases: Vec<(String, Expected)> = vec![
            ("bytes=0-0".into(), Ok((0, 1))),
            ("bytes=0-99".into(), Ok((0, 100))),
            ("bytes=10-19".into(), Ok((10, 20))),
            ("bytes=0-".into(), Ok((0, n))),
            ("bytes=7-".into(), Ok((7, n))),
            (format!("bytes={}-", n - 1), Ok((n - 1, n))),
            (format!("bytes=0-{}", n - 1), Ok((0, n))),
            (format!("bytes=0-{n}"), Ok((0, n))),
            ("bytes=5-99999999".into(), Ok((5, n))),
            ("bytes=5-18446744073709551615".into(), Ok((5, n))),
            ("bytes=5-18446744073709551616".into(), Ok((5, n))),
            ("bytes=5-99999999999999999999999999".into(), Ok((5, n))),
            ("bytes=-1".into(), Ok((n - 1, n))),
            ("bytes=-9".into(), Ok((n - 9, n))),
            (format!("bytes=-{n}"), Ok((0, n))),
            (format!("bytes=-{}", n + 100), Ok((0, n))),
            ("bytes=-99999999999999999999999999".into(), Ok((0, n))),
            ("Bytes=1-2".into(), Ok((1, 3))),
            (format!("bytes={n}-"), Err(416)),
            (format!("bytes={n}-{}", n + 5), Err(416)),
            ("bytes=18446744073709551615-".into(), Err(416)),
            ("bytes=18446744073709551616-".into(), Err(416)),
            ("bytes=99999999999999999999999999-99999999999999999999999999".into(), Err(416)),
            ("bytes=-0".into(), Err(416)),
            ("bytes=5-4".into(), Err(200)),
            ("bytes=a-b".into(), Err(200)),
            ("bytes=".into(), Err(200)),
            ("bytes=-".into(), Err(200)),
            ("bytes=--5".into(), Err(200)),
            ("bytes=+1-2".into(), Err(200)),
            ("bytes=0x1-2".into(), Err(200)),
            ("bytes".into(), Err(200)),
            ("0-1".into(), Err(200)),
            ("lines=0-1".into(), Err(200)),
            ("seconds=1-2".into(), Err(200)),
        ];
        for (range, expected) in cases {
            let response = request(&daemon.address, "GET", target, &[accept, &format!("Range: {range}")]);
            let case = format!("{range} of {target}, {accept}, {n} bytes");
            match expected {
                Ok((start, end)) => {
                    assert_eq!(response.status, 206, "{case}");
                    assert_eq!(
                        response.header("content-range"),
                        Some(format!("bytes {start}-{}/{n}", end - 1).as_str()),
                        "{case}"
                    );
                    assert_eq!(response.body, full.body[start..end], "{case}");
                    for name in ["etag", "cache-control", "vary", "content-encoding", "content-type", "last-modified"] {
                        assert_eq!(response.header(name), full.header(name), "{name} of {case}");
                    }
                }
                Err(416) => {
                    assert_eq!(response.status, 416, "{case}");
                    assert_eq!(response.header("content-range"), Some(format!("bytes */{n}").as_str()), "{case}");
                    assert!(response.body.len() < 200, "{case}");
                }
                Err(status) => {
                    assert_eq!((response.status, response.body == full.body), (status, true), "{case}");
                    assert!(response.header("content-range").is_none(), "{case}");
                }
            }
        }
    }
}

// Regression: a date in If-Range matched both codings, so parts of different representations could be joined.
#[test]
fn if_range_needs_the_exact_etag_or_date_of_the_representation() {
    let (_dir, daemon) = dated_site();
    for (target, accept) in FORMS {
        let full = request(&daemon.address, "GET", target, &[accept]);
        let tag = full.header("etag").expect("a tag").to_owned();
        for (value, status) in [
            (tag.clone(), 206),
            (format!("W/{tag}"), 200),
            ("\"x\"".to_owned(), 200),
            (format!("{tag}, \"x\""), 200),
            ("*".to_owned(), 200),
            // Both codings have the same date, so a date identifies the bytes only where there is one form.
            (MODIFIED.to_owned(), if accept == GZIP && target == "/page.html" { 200 } else { 206 }),
            (BEFORE.to_owned(), 200),
            (AFTER.to_owned(), 200),
            ("yesterday".to_owned(), 200),
        ] {
            let response =
                request(&daemon.address, "GET", target, &[accept, "Range: bytes=2-5", &format!("If-Range: {value}")]);
            assert_eq!(response.status, status, "{target} {accept} If-Range: {value}");
            let expected = if status == 206 { &full.body[2..6] } else { &full.body[..] };
            assert_eq!(response.body, expected, "{target} {accept} If-Range: {value}");
        }
        let stale = request(&daemon.address, "GET", target, &[accept, "Range: bytes=999999-", "If-Range: \"x\""]);
        assert_eq!(stale.status, 200, "a stale If-Range makes the range not matter, even one beyond the end");
        let alone = request(&daemon.address, "GET", target, &[accept, "If-Range: \"x\""]);
        assert_eq!(alone.status, 200);
    }
}

#[test]
fn a_download_in_gzip_coding_can_be_resumed_with_ranges() {
    let page = sample_text(300_000);
    let (_dir, daemon) = serve_site(&[("index.html", &page)], &[]);
    let full = request(&daemon.address, "GET", "/", &[GZIP]);
    let tag = full.header("etag").expect("a tag");
    let n = full.body.len();
    for step_len in [7, 4096, n / 3, n - 9, n - 8, n - 4] {
        let mut joined = Vec::new();
        let mut offset = 0;
        // Steps of 7 read the gzip header and trailer at both ends; one step of the rest is between them.
        while offset < n {
            let end = if step_len == 7 && offset == 28 { n - 28 } else { (offset + step_len).min(n) };
            let response = request(
                &daemon.address,
                "GET",
                "/",
                &[GZIP, &format!("Range: bytes={offset}-{}", end - 1), &format!("If-Range: {tag}")],
            );
            assert_eq!((response.status, response.header("content-encoding")), (206, Some("gzip")), "from {offset}");
            joined.extend_from_slice(&response.body);
            offset = end;
        }
        assert!(joined == full.body, "in steps of {step_len}");
        assert!(gunzip(&joined) == page.as_bytes(), "in steps of {step_len}");
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Codings

#[test]
fn accept_encoding_selects_the_content_coding() {
    let page = sample_text(5000);
    let (_dir, daemon) = serve_site(&[("index.html", &page), ("p.png", &page)], &[]);
    let cases: &[(&[&str], bool)] = &[
        (&["gzip"], true),
        (&["gzip, deflate, br, zstd"], true),
        (&["br;q=1.0, gzip;q=0.8, *;q=0.1"], true),
        (&["GZIP"], true),
        (&["gzip;q=0.001"], true),
        (&["deflate,gzip"], true),
        (&["gzip, *;q=0"], true),
        (&["gzip, identity;q=0"], true),
        (&["identity;q=0, *;q=0.5"], true),
        (&["identity;q=0.5, gzip;q=1"], true),
        (&["br", "gzip"], true),
        (&[", gzip ,"], true),
        (&[], false),
        (&[""], false),
        (&["identity"], false),
        (&["br"], false),
        (&["deflate"], false),
        (&["gzip;q=0"], false),
        (&["gzip;q=0.000"], false),
        (&["gzip; q=0"], false),
        (&["gzip ; Q=0"], false),
        (&["gzip;q=0, *"], false),
        (&["gzip;q=0, br"], false),
        (&["*, gzip;q=0"], false),
        (&["identity, *;q=0"], false),
        (&["identity;q=1, gzip;q=0.5"], false),
        (&["gzipped"], false),
        (&["xgzip"], false),
    ];
    for &(values, is_gzip) in cases {
        let fields: Vec<String> = values.iter().map(|value| format!("Accept-Encoding: {value}")).collect();
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        let response = request(&daemon.address, "GET", "/", &fields);
        assert_eq!(response.status, 200, "{values:?}");
        assert_eq!(response.header("content-encoding"), is_gzip.then_some("gzip"), "{values:?}");
        let content = if is_gzip { gunzip(&response.body) } else { response.body };
        assert!(content == page.as_bytes(), "{values:?}");
        // A stored file is sent without a coding.
        let stored = request(&daemon.address, "GET", "/p.png", &fields);
        assert_eq!((stored.status, stored.header("content-encoding")), (200, None), "{values:?}");
    }
    // If no available form is acceptable, the server disregards the field (RFC 9110, 12.1 and 12.5.3): the identity
    // form helps a reader, a 406 does not. gzip is not sent to a client that excludes it.
    for value in ["*;q=0", "identity;q=0, gzip;q=0", "*;q=0, br", "identity;q=0", "br, identity;q=0", "identity;q=0.0"]
    {
        for target in ["/", "/p.png"] {
            let response = request(&daemon.address, "GET", target, &[&format!("Accept-Encoding: {value}")]);
            assert_eq!((response.status, response.header("content-encoding")), (200, None), "{value}");
            assert!(response.body == page.as_bytes(), "{value}");
        }
    }
    for value in ["identity;q=0, gzip", "identity;q=0, gzip;q=0.001", "*, identity;q=0"] {
        let response = request(&daemon.address, "GET", "/", &[&format!("Accept-Encoding: {value}")]);
        assert_eq!((response.status, response.header("content-encoding")), (200, Some("gzip")), "{value}");
        // A stored file has one form, which is sent even if the client excludes it.
        let stored = request(&daemon.address, "GET", "/p.png", &[&format!("Accept-Encoding: {value}")]);
        assert_eq!((stored.status, stored.header("content-encoding")), (200, None), "{value}");
    }
    for value in
        ["gzip;q=", "gzip;q=x", "gzip;q=-1", "gzip;q=99", "gzip;q=NaN", ";;;", "gzip;;q=0", "\u{e9}", "gzip;level=9"]
    {
        let response = request(&daemon.address, "GET", "/", &[&format!("Accept-Encoding: {value}")]);
        assert_eq!(response.status, 200, "{value}");
    }
}

#[test]
fn vary_is_sent_exactly_when_the_content_coding_is_negotiated() {
    let page = sample_text(5000);
    let missing = format!("{OWN_404}{page}");
    let (_dir, daemon) = serve_site(&[("index.html", &page), ("p.png", &page), ("404.html", missing.as_str())], &[]);
    // A page has Markdown as another form.
    let cases = [("/", Some("accept, accept-encoding")), ("/p.png", None), ("/missing", Some("accept-encoding"))];
    for (target, expected) in cases {
        let tag = |fields: &[&str]| {
            request(&daemon.address, "GET", target, fields).header("etag").unwrap_or("\"x\"").to_owned()
        };
        let (identity, coded) = (format!("If-None-Match: {}", tag(&[])), format!("If-None-Match: {}", tag(&[GZIP])));
        for fields in [
            &[][..],
            &["Accept-Encoding: identity"],
            &["Accept-Encoding: br"],
            &[GZIP],
            &["Range: bytes=0-4"],
            &[GZIP, "Range: bytes=0-4"],
            &[&identity],
            &[GZIP, &coded],
        ] {
            let response = request(&daemon.address, "GET", target, fields);
            let vary = response.header("vary").map(str::to_ascii_lowercase);
            assert_eq!(vary.as_deref(), expected, "{target} {fields:?}: {}", response.status);
        }
    }
}

#[test]
fn every_file_is_served_unchanged_with_and_without_gzip() {
    let long = sample_text(70_000);
    let files = [
        ("index.html", "<!doctype html><p>home"),
        ("long.html", long.as_str()),
        ("one.txt", "x"),
        ("empty.html", ""),
        ("empty.txt", ""),
        ("empty.png", ""),
        ("p.png", "\u{1}\u{2}\u{3}"),
        ("f.woff2", long.as_str()),
        ("a.js", "a()"),
        ("LICENSE", "terms"),
    ];
    let (_dir, from_folder) = serve_site(&files, &[]);
    let deflated: Vec<_> = files.iter().map(|(name, content)| zip::deflated(name, content)).collect();
    let (_dir2, from_zip) = serve_archive(&zip::zip(&deflated));
    let tarred: Vec<_> = files.iter().map(|(name, content)| tar::file(name, content)).collect();
    let (_dir3, from_tar) = serve_archive(&tar::gzip(&tar::tar(&tarred)));
    for daemon in [&from_folder, &from_zip, &from_tar] {
        for (name, content) in files {
            let target = format!("/{name}");
            let plain = get(&daemon.address, &target);
            assert_eq!((plain.status, plain.header("content-encoding")), (200, None), "{name}");
            assert!(plain.body == content.as_bytes(), "{name}");
            let accepts_gzip = request(&daemon.address, "GET", &target, &[GZIP]);
            let body = if accepts_gzip.header("content-encoding") == Some("gzip") {
                gunzip(&accepts_gzip.body)
            } else {
                accepts_gzip.body
            };
            assert!(body == content.as_bytes(), "{name}, with gzip accepted");
            if content.is_empty() {
                let part = request(&daemon.address, "GET", &target, &["Range: bytes=0-"]);
                assert_eq!((part.status, part.header("content-range")), (416, Some("bytes */0")), "{name}");
            }
        }
    }
}

#[test]
fn deflated_zip_entries_are_sent_without_recompression_and_stored_ones_with_gzip() {
    let page = sample_text(50_000);
    let adopted = zip::zip(&[zip::deflated("index.html", &page)]);
    let (_dir, daemon) = serve_archive(&adopted);
    let response = request(&daemon.address, "GET", "/", &[GZIP]);
    assert_eq!(response.body[10..response.body.len() - 8], zip::deflate(page.as_bytes()), "no byte is compressed anew");

    // Bytes after the end of the DEFLATE stream, within the entry's compressed size, are sent to no client.
    let mut loose = zip::RawMember::from_member(&zip::deflated("index.html", &page));
    loose.data.extend_from_slice(b"loose");
    let (_dir, daemon) =
        serve_archive(&zip::archive(&[]).with(loose.change_both_headers(|header| header.coded += 5)).bytes());
    assert!(gunzip(&request(&daemon.address, "GET", "/", &[GZIP]).body) == page.as_bytes());
    assert_eq!(get(&daemon.address, "/").body, page.as_bytes());

    let unadopted =
        zip::zip(&[zip::stored("index.html", &page), zip::stored("a/b.css", &page), zip::stored("p.png", "p")]);
    let (_dir, daemon) = serve_archive(&unadopted);
    for target in ["/", "/a/b.css"] {
        let response = request(&daemon.address, "GET", target, &[GZIP]);
        assert_eq!(response.header("content-encoding"), Some("gzip"), "{target}");
        assert!(response.body.len() < page.len() / 2, "{target} has {} bytes", response.body.len());
        assert!(gunzip(&response.body) == page.as_bytes(), "{target}");
        assert_eq!(get(&daemon.address, target).body, page.as_bytes(), "{target}");
    }
}

#[test]
fn large_compressed_files_are_served_completely_and_by_range() {
    let (five, twenty) = (sample_text(5 << 20), sample_text((20 << 20) + 17));
    let (_dir, daemon) = serve_site(&[("index.html", "<p>home"), ("five.txt", &five), ("twenty.html", &twenty)], &[]);
    for (target, content) in [("/five.txt", five.as_bytes()), ("/twenty", twenty.as_bytes())] {
        // Twice, because the inflated file may be cached.
        for _ in 0..2 {
            let plain = get(&daemon.address, target);
            assert_eq!((plain.status, plain.header("content-encoding")), (200, None), "{target}");
            assert!(plain.body == content, "{target}");
            let n = content.len();
            for (start, end) in [(0, 10), (1_048_570, 1_048_590), (n / 2, n / 2 + 100_000), (n - 5, n)] {
                let part = request(&daemon.address, "GET", target, &[&format!("Range: bytes={start}-{}", end - 1)]);
                // A range of more than 16 MiB would have to be inflated for each request, so all of it is sent.
                let is_whole = n > 16 << 20;
                let range = (!is_whole).then(|| format!("bytes {start}-{}/{n}", end - 1));
                let expected = if is_whole { content } else { &content[start..end] };
                assert_eq!(part.status, if is_whole { 200 } else { 206 }, "{start}-{end} of {target}");
                assert_eq!(part.header("content-range"), range.as_deref(), "{start}-{end} of {target}");
                assert!(part.body == expected, "{start}-{end} of {target}");
            }
            assert_eq!(
                request(&daemon.address, "GET", target, &[&format!("Range: bytes={n}-")]).status,
                416,
                "{target}"
            );
        }
        let coded = request(&daemon.address, "GET", target, &[GZIP]);
        assert_eq!(coded.header("content-encoding"), Some("gzip"), "{target}");
        assert!(gunzip(&coded.body) == content, "{target}");
        let middle = coded.body.len() / 2;
        let part = request(&daemon.address, "GET", target, &[GZIP, &format!("Range: bytes={middle}-")]);
        assert_eq!(part.status, 206, "{target}: a range of a stored coding");
        assert!(part.body == coded.body[middle..], "{target}");
    }
}
