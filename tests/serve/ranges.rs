//! What is promised to who asks for several ranges at once (RFC 9110, 14.6 and 15.3.7.2).

use support::h2::{Answer, Client};
use support::http::{Response, gunzip, request};
use support::{Daemon, folder, site, text, write_site};

const IDENTITY: &str = "Accept-Encoding: identity";
const GZIP: &str = "Accept-Encoding: gzip";

/// The same resource in every form it can have: its address, what is accepted, its type, and the coding of its parts.
const FORMS: [(&str, &str, &str, Option<&str>); 3] = [
    ("/page.html", IDENTITY, "text/html; charset=utf-8", None),
    ("/page.html", GZIP, "text/html; charset=utf-8", Some("gzip")),
    ("/picture.png", GZIP, "image/png", None),
];

fn forms() -> (tempfile::TempDir, Daemon) {
    let page = text(5000);
    site(&[("index.html", "<p>home"), ("page.html", &page), ("picture.png", &page), ("empty.txt", "")], &[])
}

/// One part: its header section without line ends around it, and its bytes.
struct Part {
    fields: Vec<String>,
    bytes: Vec<u8>,
}

/// Takes an answer apart as the RFC has it put together; every byte is accounted for.
#[track_caller]
fn parts(answer: &Response) -> Vec<Part> {
    assert_eq!(answer.status, 206);
    let kind = answer.header("content-type").expect("a type");
    let boundary = kind.strip_prefix("multipart/byteranges; boundary=").unwrap_or_else(|| panic!("{kind}"));
    assert!(!boundary.is_empty() && boundary.len() <= 70 && boundary.bytes().all(|b| b.is_ascii_alphanumeric()));
    assert!(answer.header("content-range").is_none(), "the whole has no Content-Range (15.3.7.2)");
    assert!(answer.header("content-encoding").is_none(), "the envelope is not coded");
    let find = |at: usize, what: &[u8]| answer.body[at..].windows(what.len()).position(|w| w == what).map(|n| at + n);
    let delimiter = format!("\r\n--{boundary}").into_bytes();
    let mut found = Vec::new();
    assert!(answer.body.starts_with(&delimiter[2..]), "it begins with the boundary");
    let mut at = delimiter.len() - 2;
    while !answer.body[at..].starts_with(b"--\r\n") {
        assert_eq!(&answer.body[at..at + 2], b"\r\n");
        let end = find(at, b"\r\n\r\n").expect("a part has fields");
        let fields = String::from_utf8(answer.body[at + 2..end].to_vec()).expect("fields are text");
        let next = find(end + 4, &delimiter).expect("a part has an end");
        let bytes = answer.body[end + 4..next].to_vec();
        found.push(Part { fields: fields.split("\r\n").map(str::to_owned).collect(), bytes });
        at = next + delimiter.len();
    }
    assert_eq!(at + 4, answer.body.len(), "nothing behind the last boundary");
    found
}

#[test]
fn a_list_of_ranges_comes_as_parts_of_what_the_tag_names() {
    let (_dir, daemon) = forms();
    for (target, accept, kind, coding) in FORMS {
        let whole = request(&daemon.address, "GET", target, &[accept]);
        let n = whole.body.len();
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
            let what = format!("{list} of {target}, {accept}");
            let range = format!("Range: bytes={list}");
            let answer = request(&daemon.address, "GET", target, &[accept, &range]);
            let parts = parts(&answer);
            assert_eq!(parts.len(), expected.len(), "{what}");
            for (part, &(start, end)) in parts.iter().zip(*expected) {
                assert!(part.bytes == whole.body[start..end], "{what}");
                let mut fields = vec![format!("Content-Type: {kind}")];
                fields.extend(coding.map(|coding| format!("Content-Encoding: {coding}")));
                fields.push(format!("Content-Range: bytes {start}-{}/{n}", end - 1));
                assert_eq!(part.fields, fields, "{what}");
            }
            assert!(answer.body.len() <= n + 200 * parts.len(), "{what}: {} bytes", answer.body.len());
            for name in ["etag", "last-modified", "cache-control", "vary", "accept-ranges"] {
                assert_eq!(answer.header(name), whole.header(name), "{name} of {what}");
            }
            let again = request(&daemon.address, "GET", target, &[accept, &range]);
            assert!(again.body == answer.body, "the boundary is the same each time: {what}");
            let mut head = request(&daemon.address, "HEAD", target, &[accept, &range]);
            let mut full = answer.clone();
            for answer in [&mut head, &mut full] {
                answer.headers.retain(|(name, _)| name != "date");
            }
            assert_eq!((head.status, head.headers), (206, full.headers), "HEAD {what}");
        }
    }
}

#[test]
fn the_head_of_an_answer_with_parts_is_all_of_it_over_http_2_too() {
    let (_dir, daemon) = forms();
    let mut client = Client::open(&daemon.address);
    for (target, ..) in FORMS {
        let stream = client.request("HEAD", target, &[("range", "bytes=0-1,4-5")]);
        assert_eq!(client.answer(stream), Answer::Response { status: 206, body: Vec::new() }, "{target}");
        assert!(matches!(client.get(target, &[]), Answer::Response { status: 200, .. }), "{target}");
    }
}

#[test]
fn what_is_no_such_list_is_answered_with_the_whole_or_one_range_or_416() {
    let (_dir, daemon) = forms();
    let many = vec!["0-1"; 500].join(",");
    let apart = |count: usize| (0..count).map(|n| format!("{0}-{0}", 2 * n)).collect::<Vec<_>>().join(",");
    for (target, accept, ..) in FORMS {
        let whole = request(&daemon.address, "GET", target, &[accept]);
        let n = whole.body.len();
        let get = |range: &str| request(&daemon.address, "GET", target, &[accept, &format!("Range: bytes={range}")]);
        for range in ["0-1, 1-2", "5-9,0-7", "0-,0-,0-", "0-,-5", "0-1,x", "0-1,5-4", "0-1,-", ",", &many, &apart(17)] {
            let answer = get(range);
            assert_eq!((answer.status, answer.body == whole.body), (200, true), "{range} of {target}");
        }
        assert_eq!(parts(&get(&apart(16))).len(), 16);
        let one = get(&format!("2-5,{n}-"));
        assert_eq!((one.status, &one.body[..]), (206, &whole.body[2..6]), "one that is left needs no envelope");
        assert_eq!(one.header("content-range"), Some(format!("bytes 2-5/{n}").as_str()));
        assert_eq!(one.header("content-type"), whole.header("content-type"));
        for range in [format!("{n}-,{n}-{n}"), "-0,-0".to_owned(), format!("99999999999999999999999-,{n}-")] {
            let answer = get(&range);
            assert_eq!(answer.status, 416, "{range} of {target}");
            assert_eq!(answer.header("content-range"), Some(format!("bytes */{n}").as_str()));
        }
        let two = request(&daemon.address, "GET", target, &[accept, "Range: bytes=0-1", "Range: bytes=5-6"]);
        assert_eq!((two.status, two.body == whole.body), (200, true), "two fields");
    }
    assert_eq!(request(&daemon.address, "GET", "/empty.txt", &["Range: bytes=0-0,-1"]).status, 416);
}

#[test]
fn a_list_counts_only_if_what_there_is_has_not_changed() {
    let (_dir, daemon) = forms();
    for (target, accept, _, coding) in FORMS {
        let whole = request(&daemon.address, "GET", target, &[accept]);
        let tag = whole.header("etag").expect("a tag").to_owned();
        let modified = whole.header("last-modified").expect("a date").to_owned();
        let other = if accept == GZIP { IDENTITY } else { GZIP };
        let other = request(&daemon.address, "GET", target, &[other]).header("etag").expect("a tag").to_owned();
        for (value, status) in [
            (tag.clone(), 206),
            // The date is that of both codings.
            (modified, if coding.is_some() { 200 } else { 206 }),
            (format!("W/{tag}"), 200),
            ("\"x\"".to_owned(), 200),
            ("yesterday".to_owned(), 200),
            (other.clone(), if other == tag { 206 } else { 200 }),
        ] {
            let fields = [accept, "Range: bytes=0-1,5-6", &format!("If-Range: {value}")];
            let answer = request(&daemon.address, "GET", target, &fields);
            assert_eq!(answer.status, status, "{target} {accept} If-Range: {value}");
            if status == 206 {
                assert_eq!(parts(&answer).len(), 2);
            } else {
                assert!(answer.body == whole.body);
            }
        }
        let fields = [accept, "Range: bytes=0-1,5-6", &format!("If-None-Match: {tag}")];
        assert_eq!(request(&daemon.address, "GET", target, &fields).status, 304, "preconditions come first");
        let fields = [accept, "Range: bytes=0-1,5-6", "If-Match: \"x\""];
        assert_eq!(request(&daemon.address, "GET", target, &fields).status, 412);
    }
}

#[test]
fn the_parts_of_a_coding_put_together_are_that_coding() {
    let page = text(300_000);
    let (_dir, daemon) = site(&[("index.html", &page)], &[]);
    let n = request(&daemon.address, "GET", "/", &[GZIP]).body.len();
    let range = format!("Range: bytes=0-8,9-{},{}-{},-3", n / 2, n / 2 + 1, n - 4);
    let joined: Vec<u8> =
        parts(&request(&daemon.address, "GET", "/", &[GZIP, &range])).into_iter().flat_map(|part| part.bytes).collect();
    assert!(gunzip(&joined) == page.as_bytes());
}

/// Sets the most memory that was ever resident back to what is now, and gives it in bytes.
fn forget_peak(daemon: &Daemon) -> usize {
    std::fs::write(format!("/proc/{}/clear_refs", daemon.pid()), "5").expect("the process is ours");
    peak(daemon)
}

fn peak(daemon: &Daemon) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("the process lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux tells");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}

#[test]
fn a_part_of_a_large_page_is_made_without_the_whole() {
    let content = text(15 << 20);
    let (_dir, daemon) = site(&[("index.html", "<p>home"), ("big.txt", &content)], &[]);
    let n = content.len();
    // What is mapped is touched, and what a request needs is there.
    let whole = request(&daemon.address, "GET", "/big.txt", &[IDENTITY]);
    assert!(whole.body == content.as_bytes());
    let before = forget_peak(&daemon);
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
    let grown = peak(&daemon).saturating_sub(before);
    assert!(grown < 8 << 20, "a few windows are enough, and it took {grown} bytes");
}

#[test]
fn a_list_about_a_large_page_is_made_in_one_go_or_not_at_all() {
    // Larger than what is inflated whole.
    let content = text(5 << 20);
    let (_dir, daemon) = site(&[("index.html", "<p>home"), ("big.txt", &content)], &[]);
    let n = content.len();
    let ask =
        |method, list: &str| request(&daemon.address, method, "/big.txt", &[IDENTITY, &format!("Range: bytes={list}")]);
    let slices = [(0, 10), (10, 20), (229_000, 230_000), (1 << 20, (1 << 20) + 700_000), (n - 20, n - 10), (n - 5, n)];
    let list = slices.map(|(start, end)| format!("{start}-{}", end - 1)).join(",");
    let answer = ask("GET", &list);
    let parts = parts(&answer);
    assert_eq!(parts.len(), slices.len());
    for (part, (start, end)) in parts.iter().zip(slices) {
        assert!(part.bytes == content.as_bytes()[start..end], "{start}-{end}");
        assert!(part.fields.contains(&format!("Content-Range: bytes {start}-{}/{n}", end - 1)), "{:?}", part.fields);
    }
    let head = ask("HEAD", &list);
    assert_eq!((head.status, head.header("content-length")), (206, Some(answer.body.len().to_string().as_str())));
    // To go back is to begin again.
    for (method, list) in [("GET", "5-6,0-1"), ("HEAD", "5-6,0-1"), ("GET", "0-1,-5,7-8")] {
        let answer = ask(method, list);
        assert_eq!((answer.status, answer.header("content-length")), (200, Some(n.to_string().as_str())), "{list}");
        assert!(method == "HEAD" || answer.body == content.as_bytes(), "{list}");
    }
}

#[test]
fn no_list_is_a_lever_though_the_file_is_large() {
    let dir = folder();
    let root = write_site(&dir.path().join("site"), &[("index.html", "<p>home"), ("big.txt", &text(20 << 20))]);
    std::fs::write(root.join("big.png"), text(20 << 20)).expect("a file can be written");
    let daemon = Daemon::serve(&root, &[]);
    let list = (0..16).map(|n| format!("{}-{}", n << 20, (n << 20) + 9)).collect::<Vec<_>>().join(",");
    let range = format!("Range: bytes={list}");
    let stored = request(&daemon.address, "GET", "/big.png", &[IDENTITY, &range]);
    assert_eq!(parts(&stored).len(), 16, "what lies there as it is can be cut anywhere");
    assert!(stored.body.len() <= 160 + 200 * 16);
    // Beyond 16 MiB a compressed file would have to be inflated whole for each list.
    let inflated = request(&daemon.address, "GET", "/big.txt", &[IDENTITY, &range]);
    assert_eq!((inflated.status, inflated.body.len()), (200, 20 << 20));
}
