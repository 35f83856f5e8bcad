//! Requests for several ranges (RFC 9110, 14.6 and 15.3.7.2).

use support::h2::{Http2Client, StreamOutcome};
use support::http::{Response, gunzip, request};
use support::{
    Daemon, HTTP2_SERVERS, peak_memory_kib, sample_text, serve_site, serve_site_with_http2, temporary_folder,
    write_site,
};

const IDENTITY: &str = "Accept-Encoding: identity";
const GZIP: &str = "Accept-Encoding: gzip";

/// Requests that select each form (identity, gzip, a stored file): target, `Accept-Encoding`, media type and coding.
const FORMS: [(&str, &str, &str, Option<&str>); 3] = [
    ("/page.html", IDENTITY, "text/html; charset=utf-8", None),
    ("/page.html", GZIP, "text/html; charset=utf-8", Some("gzip")),
    ("/picture.png", GZIP, "image/png", None),
];

fn site_with_forms() -> (tempfile::TempDir, Daemon) {
    site_with_forms_and_http2("own")
}

fn site_with_forms_and_http2(http2: &str) -> (tempfile::TempDir, Daemon) {
    let page = sample_text(5000);
    let files = [("index.html", "<p>home"), ("page.html", &page), ("picture.png", &page), ("empty.txt", "")];
    serve_site_with_http2(http2, &files)
}

/// One part: its field lines and its bytes.
struct Part {
    fields: Vec<String>,
    bytes: Vec<u8>,
}

/// Parses a `multipart/byteranges` response. Panics on any byte that RFC 9110 does not provide for.
#[track_caller]
fn parse_multipart(response: &Response) -> Vec<Part> {
    assert_eq!(response.status, 206);
    let kind = response.header("content-type").expect("a type");
    let boundary = kind.strip_prefix("multipart/byteranges; boundary=").unwrap_or_else(|| panic!("{kind}"));
    assert!(!boundary.is_empty() && boundary.len() <= 70 && boundary.bytes().all(|b| b.is_ascii_alphanumeric()));
    assert!(
        response.header("content-range").is_none(),
        "a multipart response has no Content-Range of its own (15.3.7.2)"
    );
    assert!(response.header("content-encoding").is_none(), "the multipart body has no coding");
    let find = |offset: usize, needle: &[u8]| {
        response.body[offset..].windows(needle.len()).position(|w| w == needle).map(|n| offset + n)
    };
    let delimiter = format!("\r\n--{boundary}").into_bytes();
    let mut parts = Vec::new();
    assert!(response.body.starts_with(&delimiter[2..]), "it begins with the boundary");
    let mut offset = delimiter.len() - 2;
    while !response.body[offset..].starts_with(b"--\r\n") {
        assert_eq!(&response.body[offset..offset + 2], b"\r\n");
        let end = find(offset, b"\r\n\r\n").expect("a part has fields");
        let fields = String::from_utf8(response.body[offset + 2..end].to_vec()).expect("fields are text");
        let next = find(end + 4, &delimiter).expect("a part has an end");
        let bytes = response.body[end + 4..next].to_vec();
        parts.push(Part { fields: fields.split("\r\n").map(str::to_owned).collect(), bytes });
        offset = next + delimiter.len();
    }
    assert_eq!(offset + 4, response.body.len(), "no bytes after the last boundary");
    parts
}

#[test]
fn several_ranges_get_a_multipart_response_of_the_same_representation() {
    let (_dir, daemon) = site_with_forms();
    for (target, accept, kind, coding) in FORMS {
        let full = request(&daemon.address, "GET", target, &[accept]);
        let n = full.body.len();
        let lists: &[(String, &[(usize, usize)])] = &[
            ("0-1,5-6".into(), &[(0, 2), (5, 7)]),
            ("5-6, 0-1".into(), &[(5, 7), (0, 2)]),
            ("0-0,-1".into(), &[(0, 1), (n - 1, n)]),
            ("0-1,2-3".into(), &[(0, 2), (2, 4)]),
            (format!("3-9,{}-", n - 20), &[(3, 10), (n - 20, n)]),
            (format!("0-{},{}-99999999999999999999999", n / 2 - 1, n / 2), &[(0, n / 2), (n / 2, n)]),
            (format!("0-4,{n}-,7-8,-0"), &[(0, 5), (7, 9)]),
            (",0-1,,3-4,".into(), &[(0, 2), (3, 5)]),
        ];
        for (list, expected) in lists {
            let case = format!("{list} of {target}, {accept}");
            let range = format!("Range: bytes={list}");
            let response = request(&daemon.address, "GET", target, &[accept, &range]);
            let parts = parse_multipart(&response);
            assert_eq!(parts.len(), expected.len(), "{case}");
            for (part, &(start, end)) in parts.iter().zip(*expected) {
                assert!(part.bytes == full.body[start..end], "{case}");
                let mut fields = vec![format!("Content-Type: {kind}")];
                fields.extend(coding.map(|coding| format!("Content-Encoding: {coding}")));
                fields.push(format!("Content-Range: bytes {start}-{}/{n}", end - 1));
                assert_eq!(part.fields, fields, "{case}");
            }
            assert!(response.body.len() <= n + 200 * parts.len(), "{case}: {} bytes", response.body.len());
            for name in ["etag", "last-modified", "cache-control", "vary", "accept-ranges"] {
                assert_eq!(response.header(name), full.header(name), "{name} of {case}");
            }
            let repeated = request(&daemon.address, "GET", target, &[accept, &range]);
            assert!(repeated.body == response.body, "the boundary is the same each time: {case}");
            let mut head = request(&daemon.address, "HEAD", target, &[accept, &range]);
            let mut get = response.clone();
            for response in [&mut head, &mut get] {
                response.headers.retain(|(name, _)| name != "date");
            }
            assert_eq!((head.status, head.headers), (206, get.headers), "HEAD {case}");
        }
    }
}

#[test]
fn head_with_several_ranges_has_no_body_over_http2() {
    for http2 in HTTP2_SERVERS {
        let (_dir, daemon) = site_with_forms_and_http2(http2);
        let mut client = Http2Client::open(&daemon.address);
        for (target, ..) in FORMS {
            let stream = client.request("HEAD", target, &[("range", "bytes=0-1,4-5")]);
            assert_eq!(
                client.wait_for_stream(stream),
                StreamOutcome::Response { status: 206, body: Vec::new() },
                "{target}"
            );
            assert!(matches!(client.get(target, &[]), StreamOutcome::Response { status: 200, .. }), "{target}");
        }
    }
}

#[test]
fn invalid_or_excessive_range_lists_get_200_a_single_range_or_416() {
    let (_dir, daemon) = site_with_forms();
    let many = vec!["0-1"; 500].join(",");
    let separate_ranges = |count: usize| (0..count).map(|n| format!("{0}-{0}", 2 * n)).collect::<Vec<_>>().join(",");
    for (target, accept, ..) in FORMS {
        let full = request(&daemon.address, "GET", target, &[accept]);
        let n = full.body.len();
        let get = |range: &str| request(&daemon.address, "GET", target, &[accept, &format!("Range: bytes={range}")]);
        for range in
            ["0-1, 1-2", "5-9,0-7", "0-,0-,0-", "0-,-5", "0-1,x", "0-1,5-4", "0-1,-", ",", &many, &separate_ranges(17)]
        {
            let response = get(range);
            assert_eq!((response.status, response.body == full.body), (200, true), "{range} of {target}");
        }
        assert_eq!(parse_multipart(&get(&separate_ranges(16))).len(), 16);
        let single = get(&format!("2-5,{n}-"));
        assert_eq!(
            (single.status, &single.body[..]),
            (206, &full.body[2..6]),
            "a single satisfiable range needs no multipart"
        );
        assert_eq!(single.header("content-range"), Some(format!("bytes 2-5/{n}").as_str()));
        assert_eq!(single.header("content-type"), full.header("content-type"));
        for range in [format!("{n}-,{n}-{n}"), "-0,-0".to_owned(), format!("99999999999999999999999-,{n}-")] {
            let response = get(&range);
            assert_eq!(response.status, 416, "{range} of {target}");
            assert_eq!(response.header("content-range"), Some(format!("bytes */{n}").as_str()));
        }
        let two_fields = request(&daemon.address, "GET", target, &[accept, "Range: bytes=0-1", "Range: bytes=5-6"]);
        assert_eq!((two_fields.status, two_fields.body == full.body), (200, true), "two fields");
    }
    assert_eq!(request(&daemon.address, "GET", "/empty.txt", &["Range: bytes=0-0,-1"]).status, 416);
}

// Regression: a date in If-Range matched both codings, so parts of different representations could be joined.
#[test]
fn several_ranges_are_served_only_if_the_preconditions_hold() {
    let (_dir, daemon) = site_with_forms();
    for (target, accept, _, coding) in FORMS {
        let full = request(&daemon.address, "GET", target, &[accept]);
        let tag = full.header("etag").expect("a tag").to_owned();
        let modified = full.header("last-modified").expect("a date").to_owned();
        let other_accept = if accept == GZIP { IDENTITY } else { GZIP };
        let other_tag =
            request(&daemon.address, "GET", target, &[other_accept]).header("etag").expect("a tag").to_owned();
        for (value, status) in [
            (tag.clone(), 206),
            // Both codings have the same date.
            (modified, if coding.is_some() { 200 } else { 206 }),
            (format!("W/{tag}"), 200),
            ("\"x\"".to_owned(), 200),
            ("yesterday".to_owned(), 200),
            (other_tag.clone(), if other_tag == tag { 206 } else { 200 }),
        ] {
            let fields = [accept, "Range: bytes=0-1,5-6", &format!("If-Range: {value}")];
            let response = request(&daemon.address, "GET", target, &fields);
            assert_eq!(response.status, status, "{target} {accept} If-Range: {value}");
            if status == 206 {
                assert_eq!(parse_multipart(&response).len(), 2);
            } else {
                assert!(response.body == full.body);
            }
        }
        let fields = [accept, "Range: bytes=0-1,5-6", &format!("If-None-Match: {tag}")];
        assert_eq!(request(&daemon.address, "GET", target, &fields).status, 304, "preconditions come first");
        let fields = [accept, "Range: bytes=0-1,5-6", "If-Match: \"x\""];
        assert_eq!(request(&daemon.address, "GET", target, &fields).status, 412);
    }
}

#[test]
fn joined_multipart_ranges_of_a_gzip_response_decode_to_the_page() {
    let page = sample_text(300_000);
    let (_dir, daemon) = serve_site(&[("index.html", &page)], &[]);
    let n = request(&daemon.address, "GET", "/", &[GZIP]).body.len();
    let range = format!("Range: bytes=0-8,9-{},{}-{},-3", n / 2, n / 2 + 1, n - 4);
    let joined: Vec<u8> = parse_multipart(&request(&daemon.address, "GET", "/", &[GZIP, &range]))
        .into_iter()
        .flat_map(|part| part.bytes)
        .collect();
    assert!(gunzip(&joined) == page.as_bytes());
}

/// Resets the peak of resident memory to the current value, and returns it in bytes.
fn reset_peak_memory(daemon: &Daemon) -> usize {
    std::fs::write(format!("/proc/{}/clear_refs", daemon.pid()), "5").expect("the process is ours");
    peak_memory(daemon)
}

/// Returns the peak of resident memory in bytes.
fn peak_memory(daemon: &Daemon) -> usize {
    peak_memory_kib(daemon.pid()).expect("the process lives") as usize * 1024
}

// Regression: a range of a compressed file of 15 MiB inflated the whole file at once, even for HEAD.
#[test]
fn a_range_of_a_large_compressed_file_uses_little_memory() {
    let content = sample_text(15 << 20);
    let (_dir, daemon) = serve_site(&[("index.html", "<p>home"), ("big.txt", &content)], &[]);
    let n = content.len();
    // The first request touches the mapping and allocates buffers, so that they do not count.
    let full = request(&daemon.address, "GET", "/big.txt", &[IDENTITY]);
    assert!(full.body == content.as_bytes());
    let before = reset_peak_memory(&daemon);
    for method in ["HEAD", "GET"] {
        for (start, end) in [(0, 10), (229_370, 229_380), (n / 2, n / 2 + 300_000), (n - 10, n)] {
            let range = format!("Range: bytes={start}-{}", end - 1);
            let part = request(&daemon.address, method, "/big.txt", &[IDENTITY, &range]);
            assert_eq!(part.status, 206);
            assert_eq!(part.header("content-range"), Some(format!("bytes {start}-{}/{n}", end - 1).as_str()));
            assert_eq!(part.header("content-length"), Some((end - start).to_string().as_str()));
            assert!(method == "HEAD" || part.body == content.as_bytes()[start..end], "{start}-{end}");
        }
    }
    let grown = peak_memory(&daemon).saturating_sub(before);
    assert!(grown < 8 << 20, "a few DEFLATE windows are enough, but memory grew by {grown} bytes");
}

#[test]
fn several_ranges_of_a_large_page_get_206_only_in_ascending_order() {
    // Too large for the cache of inflated files.
    let content = sample_text(5 << 20);
    let (_dir, daemon) = serve_site(&[("index.html", "<p>home"), ("big.txt", &content)], &[]);
    let n = content.len();
    let send =
        |method, list: &str| request(&daemon.address, method, "/big.txt", &[IDENTITY, &format!("Range: bytes={list}")]);
    let slices = [(0, 10), (10, 20), (229_000, 230_000), (1 << 20, (1 << 20) + 700_000), (n - 20, n - 10), (n - 5, n)];
    let list = slices.map(|(start, end)| format!("{start}-{}", end - 1)).join(",");
    let response = send("GET", &list);
    let parts = parse_multipart(&response);
    assert_eq!(parts.len(), slices.len());
    for (part, (start, end)) in parts.iter().zip(slices) {
        assert!(part.bytes == content.as_bytes()[start..end], "{start}-{end}");
        assert!(part.fields.contains(&format!("Content-Range: bytes {start}-{}/{n}", end - 1)), "{:?}", part.fields);
    }
    let head = send("HEAD", &list);
    assert_eq!((head.status, head.header("content-length")), (206, Some(response.body.len().to_string().as_str())));
    // Ranges out of order would need a second inflate from the beginning.
    for (method, list) in [("GET", "5-6,0-1"), ("HEAD", "5-6,0-1"), ("GET", "0-1,-5,7-8")] {
        let response = send(method, list);
        assert_eq!((response.status, response.header("content-length")), (200, Some(n.to_string().as_str())), "{list}");
        assert!(method == "HEAD" || response.body == content.as_bytes(), "{list}");
    }
}

#[test]
fn several_ranges_of_a_compressed_file_over_16_mib_get_the_whole_file() {
    let dir = temporary_folder();
    let root = write_site(&dir.path().join("site"), &[("index.html", "<p>home"), ("big.txt", &sample_text(20 << 20))]);
    std::fs::write(root.join("big.png"), sample_text(20 << 20)).expect("a file can be written");
    let daemon = Daemon::serve(&root, &[]);
    let list = (0..16).map(|n| format!("{}-{}", n << 20, (n << 20) + 9)).collect::<Vec<_>>().join(",");
    let range = format!("Range: bytes={list}");
    let stored = request(&daemon.address, "GET", "/big.png", &[IDENTITY, &range]);
    assert_eq!(parse_multipart(&stored).len(), 16, "a stored file can be cut anywhere");
    assert!(stored.body.len() <= 160 + 200 * 16);
    // Beyond 16 MiB a compressed file would have to be inflated whole for each list.
    let inflated = request(&daemon.address, "GET", "/big.txt", &[IDENTITY, &range]);
    assert_eq!((inflated.status, inflated.body.len()), (200, 20 << 20));
}
