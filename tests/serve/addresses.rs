//! Addresses of a site: methods, names, redirects, missing pages.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;

use support::http::{self, Response, get, gunzip, request};
use support::{Daemon, docwharf, sample_text, serve_archive, serve_site, temporary_folder, write_site, zip};

/// The `max-age` of `Cache-Control`, in seconds.
fn max_age(response: &Response) -> Option<u64> {
    let value = response.header("cache-control")?;
    value.split(',').find_map(|part| part.trim().strip_prefix("max-age=")?.parse().ok())
}

/// Whether no cache may store the response for more than a minute.
fn is_short_lived(response: &Response) -> bool {
    let value = response.header("cache-control").unwrap_or_default();
    value.contains("no-store") || value.contains("no-cache") || max_age(response).is_some_and(|age| age <= 60)
}

const GZIP: &str = "Accept-Encoding: gzip";
const ALLOW: &str = "GET, HEAD, OPTIONS";

// ---------------------------------------------------------------------------------------------------------------------
// Methods

#[test]
fn methods_other_than_get_head_and_options_get_405() {
    let (_dir, daemon) = serve_site(&[("index.html", "<p>home"), ("a.css", "a{}"), ("x/index.html", "<p>x")], &[]);
    for target in ["/", "/a.css", "/x", "/nowhere", "/nowhere.js", "/%00", "*"] {
        let response = request(&daemon.address, "OPTIONS", target, &[]);
        if target != "/%00" {
            assert_eq!(response.status, 204, "OPTIONS {target}");
            assert_eq!(response.header("allow"), Some(ALLOW), "OPTIONS {target}");
        }
        assert!(response.status < 500, "OPTIONS {target}");
        for method in ["POST", "PUT", "DELETE", "PATCH", "PROPFIND", "BREW", "get"] {
            if target == "*" {
                continue;
            }
            let response = request(&daemon.address, method, target, &[]);
            assert_eq!(response.status, 405, "{method} {target}");
            assert_eq!(response.header("allow"), Some(ALLOW), "{method} {target}");
        }
    }
}

#[test]
fn trace_echoes_nothing() {
    let (_dir, daemon) = serve_site(&[("index.html", "<p>home")], &[]);
    for target in ["/", "/s3cret-path"] {
        let response = request(&daemon.address, "TRACE", target, &["X-Mine: s3cret-field", "Cookie: s3cret-cookie"]);
        assert_eq!(response.status, 405);
        assert_eq!(response.header("allow"), Some(ALLOW));
        assert!(!format!("{:?}{}", response.headers, response.text()).contains("s3cret"), "{response:?}");
    }
}

#[test]
fn head_has_every_field_of_get_and_no_body() {
    let long = sample_text(100_000);
    let (_dir, daemon) = serve_site(
        &[
            ("index.html", &long),
            ("404.html", "<p>the site's own page for what is missing"),
            ("x/index.html", "<p>x"),
            ("picture.png", "not really"),
            ("empty.txt", ""),
            ("_docwharf/x.html", "<p>reserved"),
        ],
        &["--slashes", "redirect"],
    );
    let tag = get(&daemon.address, "/").header("etag").expect("a tag").to_owned();
    let none_match = format!("If-None-Match: {tag}");
    let requests: &[(&str, &[&str], u16)] = &[
        ("/", &[], 200),
        ("/", &[GZIP], 200),
        ("/", &[&none_match], 304),
        ("/", &["If-Match: \"x\""], 412),
        ("/", &["Range: bytes=5-9"], 206),
        ("/", &[GZIP, "Range: bytes=5-9"], 206),
        ("/", &["Range: bytes=999999-"], 416),
        ("/picture.png", &[], 200),
        ("/picture.png", &["Range: bytes=-1"], 206),
        ("/empty.txt", &[], 200),
        ("/empty.txt", &[GZIP], 200),
        ("/x?y=z", &[], 307),
        ("/missing", &[], 404),
        ("/missing", &[GZIP], 404),
        ("/missing.js", &[], 404),
        ("/.git/config", &[], 404),
        ("/_docwharf/x", &[], 404),
        ("/%01", &[], 400),
    ];
    for &(target, fields, status) in requests {
        let send = |method| {
            let mut response = request(&daemon.address, method, target, fields);
            assert_eq!(response.status, status, "{method} {target} {fields:?}");
            response.headers.retain(|(name, _)| name != "date");
            response.headers.sort();
            response
        };
        let (full, head) = (send("GET"), send("HEAD"));
        assert_eq!(full.headers, head.headers, "{target} {fields:?}");
        assert!(head.body.is_empty(), "{target} {fields:?}");
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Addresses

#[test]
fn a_page_is_found_with_or_without_slash_and_html_suffix_in_either_layout() {
    for page in ["guides/x.html", "guides/x/index.html"] {
        let (_dir, daemon) = serve_site(&[("index.html", "<p>home"), (page, "<p>the page")], &["--slashes", "serve"]);
        for target in
            ["/guides/x", "/guides/x/", "/guides/x.html", "/guides/x/index.html", "/guides/x?a=b", "/guides/%78"]
        {
            let response = get(&daemon.address, target);
            assert_eq!((response.status, response.text().as_str()), (200, "<p>the page"), "{page} at {target}");
            assert_eq!(response.header("content-type"), Some("text/html; charset=utf-8"), "{page} at {target}");
        }
        for target in ["/", "/index.html", "/?a", "/index"] {
            assert_eq!(get(&daemon.address, target).text(), "<p>home", "{target}");
        }
        for target in
            ["/guides", "/guides/", "/guides/index.html", "/guides/x/y", "/guides/x//", "/guides//x", "/Guides/x"]
        {
            assert_eq!(get(&daemon.address, target).status, 404, "{page} at {target}");
        }
    }
}

#[test]
fn slash_redirects_match_the_page_layout_and_keep_the_query() {
    let files = [
        ("index.html", "<p>home"),
        ("dir/index.html", "<p>dir"),
        ("page.html", "<p>page"),
        ("both.html", "<p>both, the file"),
        ("both/index.html", "<p>both, the folder"),
        ("taken", "no page"),
        ("taken.html", "<p>taken"),
        ("a b/index.html", "<p>a b"),
        ("\u{e9}/index.html", "<p>e"),
        ("what?/index.html", "<p>what"),
        ("50%/index.html", "<p>half"),
    ];
    let (_dir, daemon) = serve_site(&files, &["--slashes", "redirect"]);
    for (target, expected) in [
        ("/dir", "-> /dir/"),
        ("/dir.html", "-> /dir/"),
        ("/dir/", "<p>dir"),
        ("/dir/index.html", "<p>dir"),
        ("/page", "<p>page"),
        ("/page.html", "<p>page"),
        ("/page/", "-> /page"),
        ("/page/index.html", "-> /page"),
        ("/both", "<p>both, the file"),
        ("/both/", "<p>both, the folder"),
        ("/both.html", "<p>both, the file"),
        ("/both/index.html", "<p>both, the folder"),
        ("/taken", "no page"),
        ("/taken/", "-> /taken.html"),
        ("/", "<p>home"),
        ("/index.html", "<p>home"),
        ("/a%20b", "-> /a%20b/"),
        ("/%C3%A9", "-> /%C3%A9/"),
        ("/what%3F", "-> /what%3F/"),
        ("/50%25", "-> /50%25/"),
    ] {
        for query in ["", "?q=a%20b&r=//x/../y?"] {
            let response = get(&daemon.address, &format!("{target}{query}"));
            if let Some(to) = expected.strip_prefix("-> ") {
                assert_eq!(response.status, 307, "{target}");
                assert_eq!(response.header("location"), Some(format!("{to}{query}").as_str()), "{target}");
                assert!(is_short_lived(&response), "{target}: {response:?}");
                let target_response = get(&daemon.address, to);
                assert_eq!(target_response.status, 200, "{to} does not redirect again");
            } else {
                assert_eq!((response.status, response.text().as_str()), (200, expected), "{target}");
            }
        }
    }
}

// Regression: a redirect copied a query with bytes beyond ASCII into a field that is ASCII.
#[test]
fn a_redirect_percent_encodes_non_ascii_bytes_of_the_query() {
    let (_dir, daemon) =
        serve_site(&[("index.html", "<p>home"), ("dir/index.html", "<p>dir")], &["--slashes", "redirect"]);
    let response = get(&daemon.address, "/dir?q=\u{e9}&r=%C3%A9+\u{1f600}");
    assert_eq!(response.status, 307);
    assert_eq!(response.header("location"), Some("/dir/?q=%C3%A9&r=%C3%A9+%F0%9F%98%80"));
}

#[test]
fn slashes_auto_redirects_except_on_next_js_exports() {
    let pages = [("index.html", "<p>home"), ("x/index.html", "<p>x"), ("y.html", "<p>y")];
    for (extra, targets, status) in [
        ("_next/static/a.js", ["/x", "/y/"], 200),
        ("docs/_next/static/a.js", ["/x", "/y/"], 307),
        ("_nextish/a.js", ["/x", "/y/"], 307),
        ("_next", ["/x", "/y/"], 307),
    ] {
        let files: Vec<_> = pages.iter().copied().chain([(extra, "1")]).collect();
        for options in [&[][..], &["--slashes", "auto"]] {
            let (_dir, daemon) = serve_site(&files, options);
            for target in targets {
                assert_eq!(get(&daemon.address, target).status, status, "{target} beside {extra}");
            }
        }
    }
}

#[test]
fn a_page_file_takes_precedence_over_its_folder_and_folders_are_not_listed() {
    let files = [
        ("index.html", "<p>home"),
        ("x.html", "<p>file"),
        ("x/index.html", "<p>folder"),
        ("x/y.html", "<p>y"),
        ("bare/y.html", "<p>y"),
        ("z.html", "<p>z"),
        ("z/y.txt", "y"),
    ];
    for slashes in ["serve", "redirect"] {
        let (_dir, daemon) = serve_site(&files, &["--slashes", slashes]);
        for (target, body) in [
            ("/x", "<p>file"),
            ("/x/", "<p>folder"),
            ("/x.html", "<p>file"),
            ("/x/index.html", "<p>folder"),
            ("/z", "<p>z"),
        ] {
            assert_eq!(get(&daemon.address, target).text(), body, "{target}, {slashes}");
        }
        for target in ["/bare", "/bare/", "/bare/index.html", "/bare.html"] {
            let response = get(&daemon.address, target);
            assert_eq!(response.status, 404, "{target}, {slashes}");
            assert!(!response.text().contains("y.html"), "{target}, {slashes}");
        }
    }
}

#[test]
fn no_redirect_leads_to_another_host() {
    let files = [("index.html", "<p>home"), ("evil.example/index.html", "<p>x"), ("x/index.html", "<p>x")];
    for options in [&["--slashes", "redirect"][..], &["--slashes", "redirect", "--base-path", "/docs/"]] {
        let (_dir, daemon) = serve_site(&files, options);
        for target in [
            "//evil.example",
            "///evil.example",
            "//evil.example/..",
            "/%2Fevil.example",
            "/%2f%2fevil.example",
            "/\\evil.example",
            "/%5Cevil.example",
            "/%5c%5cevil.example",
            "/.//evil.example",
            "//x",
            "/x//",
            "/docs//evil.example",
            "/docs/%2Fevil.example",
            "/docs/%5Cevil.example",
            "/docs//x",
            "/evil.example",
            "/x",
            "/docs/x",
            "/docs",
            "http://evil.example/x",
            "http://evil.example/docs/x",
            "http://evil.example",
        ] {
            let response = request(
                &daemon.address,
                "GET",
                target,
                &["X-Forwarded-Host: evil.example", "Forwarded: host=evil.example"],
            );
            assert!(response.status < 500, "{target}");
            if let Some(to) = response.header("location") {
                assert!(
                    to.starts_with('/') && !to.starts_with("//") && !to.starts_with("/\\"),
                    "{target} leads to {to}"
                );
            }
        }
    }
}

#[test]
fn addresses_outside_the_base_path_get_404_and_the_root_redirects_to_the_base_path() {
    let files = [
        ("index.html", "<p>home"),
        ("x/index.html", "<p>x"),
        ("a.css", "a{}"),
        ("docs/deep.html", "<p>deep"),
        ("404.html", "<p>own"),
    ];
    for base in ["/docs", "/docs/"] {
        let (_dir, daemon) = serve_site(&files, &["--base-path", base]);
        for (target, expected) in [
            ("/", "-> /docs/"),
            ("/?a=b", "-> /docs/?a=b"),
            ("/docs", "-> /docs/"),
            ("/docs?a=b", "-> /docs/?a=b"),
            ("/docs/", "<p>home"),
            ("/docs/index.html", "<p>home"),
            ("/docs/x", "-> /docs/x/"),
            ("/docs/x?a=b", "-> /docs/x/?a=b"),
            ("/docs/x/", "<p>x"),
            ("/docs/a.css", "a{}"),
            ("/docs/docs/deep", "<p>deep"),
            ("/%64ocs/a.css", "a{}"),
        ] {
            let response = get(&daemon.address, target);
            if let Some(to) = expected.strip_prefix("-> ") {
                assert_eq!((response.status, response.header("location")), (307, Some(to)), "{target}");
            } else {
                assert_eq!((response.status, response.text().as_str()), (200, expected), "{target}");
            }
        }
        for target in [
            "/x",
            "/x/",
            "/a.css",
            "/index.html",
            "/docsx",
            "/docs.html",
            "/Docs/",
            "/doc",
            "//docs/",
            "/docs//a.css",
            "/docs/../a.css",
        ] {
            let missing = get(&daemon.address, target);
            assert_eq!(missing.status, 404, "{target}");
            assert_ne!(missing.text(), "<p>own", "the site's own page is for addresses of the site: {target}");
        }
        assert_eq!(get(&daemon.address, "/docs/nowhere").text(), "<p>own");
        let script = get(&daemon.address, "/outside.js");
        assert_eq!(script.status, 404);
        assert!(
            script.body.len() < 100,
            "a missing script gets one line, also outside the base path: {}",
            script.text()
        );
    }
}

#[test]
fn percent_escapes_in_a_path_are_decoded_exactly_once() {
    let dir = temporary_folder();
    let root = dir.path().join("site");
    let files = [
        ("index.html", "<p>home"),
        ("a+b.html", "plus"),
        ("a b.html", "space"),
        ("100%.html", "percent"),
        ("a%41.html", "literal escape"),
        ("[[...slug]].html", "slug"),
        ("[id]/index.html", "id"),
        ("a..b.html", "dots"),
        ("..a.html", "two dots first"),
        (".../x.html", "three dots"),
        ("\u{65e5}\u{672c}.html", "japanese"),
        ("caf\u{e9}.html", "composed"),
        ("cafe\u{301}.html", "decomposed"),
        ("q?x#y.html", "delimiters"),
        ("ab:c;d=,e&f'g(h)!$@~.html", "punctuation"),
        ("back\\slash.html", "backslash"),
        ("quote\"<>.html", "quote"),
        ("Case.html", "upper"),
        ("case.html", "lower"),
    ];
    write_site(&root, &files);
    std::fs::write(root.join(std::ffi::OsStr::from_bytes(b"latin-\xe9.html")), "latin").expect("any bytes are a name");
    let daemon = Daemon::serve(&root, &["--slashes", "serve"]);
    for (target, body) in [
        ("/a+b", "plus"),
        ("/a%2Bb", "plus"),
        ("/a%2bb.html", "plus"),
        ("/a%20b", "space"),
        ("/100%25", "percent"),
        ("/100%25.html", "percent"),
        ("/a%2541", "literal escape"),
        ("/[[...slug]]", "slug"),
        ("/%5B%5B...slug%5D%5D", "slug"),
        ("/%5b%5b%2e%2e%2eslug%5d%5d.html", "slug"),
        ("/[id]", "id"),
        ("/%5Bid%5D/", "id"),
        ("/a..b", "dots"),
        ("/a%2e%2eb.html", "dots"),
        ("/..a", "two dots first"),
        ("/.../x", "three dots"),
        ("/%E6%97%A5%E6%9C%AC", "japanese"),
        ("/%e6%97%a5%e6%9c%ac.html", "japanese"),
        ("/caf%C3%A9", "composed"),
        ("/cafe%CC%81", "decomposed"),
        ("/q%3Fx%23y", "delimiters"),
        ("/ab:c;d=,e&f'g(h)!$@~", "punctuation"),
        ("/back%5Cslash", "backslash"),
        ("/quote%22%3C%3E", "quote"),
        ("/latin-%E9", "latin"),
        ("/Case", "upper"),
        ("/case", "lower"),
        ("/%63ase", "lower"),
    ] {
        let response = get(&daemon.address, target);
        assert_eq!((response.status, response.text().as_str()), (200, body), "{target}");
    }
    for target in ["/a%2Fb", "/a%252Bb", "/a%41", "/aA", "/a%252541", "/100%2525", "/latin-%C3%A9", "/CASE"] {
        assert_eq!(get(&daemon.address, target).status, 404, "{target}");
    }
    // An invalid escape is read literally or refused.
    for target in [
        "/%",
        "/%4",
        "/%zz",
        "/a%4",
        "/%%41",
        "/%u0041",
        "/caf\u{e9}",
        "/\u{65e5}",
        "/a\"b",
        "/a<b>",
        "/a|b",
        "/a^b",
        "/a`b{c}",
    ] {
        assert!(matches!(get(&daemon.address, target).status, 200 | 400 | 404), "{target}");
    }
    assert!(matches!(get(&daemon.address, "/100%").status, 200 | 400));
}

#[test]
fn control_characters_in_an_address_are_refused() {
    let (_dir, daemon) =
        serve_site(&[("index.html", "<p>home"), ("tab\there.html", "x"), ("line\nfeed.html", "x")], &[]);
    for target in [
        "/%00",
        "/index.html%00",
        "/%00index.html",
        "/a%0d%0aSet-Cookie:x",
        "/tab%09here",
        "/line%0Afeed.html",
        "/%1f",
        "/%7F",
    ] {
        let response = get(&daemon.address, target);
        assert!(matches!(response.status, 400 | 404), "{target}: {}", response.status);
        assert!(response.header("set-cookie").is_none(), "{target}");
    }
    for byte in [0x00u8, 0x01, 0x7f] {
        let mut bytes = b"GET /x".to_vec();
        bytes.push(byte);
        bytes.extend_from_slice(b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert!(
            matches!(http::parse(&http::send_bytes(&daemon.address, &bytes), false).status, 400 | 404),
            "{byte:02x}"
        );
    }
    for target in ["/a%0d%0aSet-Cookie:x=y", "/x?a=%0d%0aSet-Cookie:x=y"] {
        assert!(get(&daemon.address, target).header("set-cookie").is_none());
    }
}

// Regression: a request target that does not begin with a slash was redirected.
#[test]
fn no_path_traversal_reads_a_file_outside_the_site() {
    let dir = temporary_folder();
    let root = write_site(
        &dir.path().join("site"),
        &[("index.html", "<p>home"), ("x/index.html", "<p>x"), ("x/y.html", "<p>y")],
    );
    write_site(dir.path(), &[("secret.html", "TOPSECRET"), ("secret", "TOPSECRET"), ("site.html", "TOPSECRET")]);
    for options in [&[][..], &["--base-path", "/docs"]] {
        let daemon = Daemon::serve(&root, options);
        for prefix in [
            "/../",
            "/../../../../../../../../",
            "/x/../../",
            "/x/../../../",
            "/./../",
            "/x/y/../../../",
            "/%2e%2e/",
            "/%2E%2E/",
            "/.%2e/",
            "/%2e./",
            "/..%2f",
            "/..%2F",
            "/%2e%2e%2f",
            "/%2e%2e%5c",
            "/..%5c",
            "/..\\",
            "/%252e%252e/",
            "/%252e%252e%252f",
            "/..%252f",
            "/..%25252f",
            "/..%c0%af",
            "/%c0%ae%c0%ae/",
            "/%e0%80%ae%e0%80%ae/",
            "/..;/",
            "/..%00/",
            "/..%20/",
            "/.../",
            "/....//",
            "/.%00./",
            "//../",
            "/docs/../",
            "/docs/%2e%2e/",
            "/docs/..%2f..%2f",
        ] {
            for name in ["secret", "secret.html", "etc/passwd", "site", "etc/passwd%00.html"] {
                let target = format!("{prefix}{name}");
                let response = get(&daemon.address, &target);
                assert!(matches!(response.status, 400 | 404), "{target}: {}", response.status);
                assert!(!response.text().contains("TOPSECRET") && !response.text().contains("root:"), "{target}");
            }
        }
        let absolute = root.with_file_name("secret.html");
        let absolute = absolute.to_str().expect("a plain path");
        for target in [
            absolute.to_owned(),
            format!("/{absolute}"),
            format!("file://{absolute}"),
            absolute.replace('/', "%2F"),
            "../secret.html".into(),
            "secret.html".into(),
        ] {
            let response = get(&daemon.address, &target);
            assert!(matches!(response.status, 400 | 404), "{target}: {}", response.status);
            assert!(!response.text().contains("TOPSECRET"), "{target}");
        }
        // A redirect does not reveal the folder of the site either.
        for target in ["/x", "/..", "/../", "/docs/.."] {
            let response = get(&daemon.address, target);
            assert!(!format!("{response:?}").contains(dir.path().to_str().expect("a plain path")), "{target}");
        }
    }
}

#[test]
fn hidden_and_reserved_names_are_not_served_and_well_known_is() {
    let files = [
        ("index.html", "<p>home"),
        (".git/config", "HIDDEN"),
        (".git/index.html", "HIDDEN"),
        (".env", "HIDDEN"),
        (".hidden.html", "HIDDEN"),
        ("a/.htpasswd", "HIDDEN"),
        ("a/.well-known/.secret", "HIDDEN"),
        (".well-known/.secret", "HIDDEN"),
        (".well-knownx/a.txt", "HIDDEN"),
        ("_docwharf/search.js", "HIDDEN"),
        ("_docwharf/x.html", "HIDDEN"),
        ("_docwharf/index.html", "HIDDEN"),
        (".well-known/security.txt", "Contact: x"),
        ("a/.well-known/b.txt", "b"),
        ("a/_docwharf/x.html", "<p>deeper"),
        ("_docwharfs.html", "<p>another name"),
    ];
    let (_dir, daemon) = serve_site(&files, &["--slashes", "serve"]);
    for target in [
        "/.git/config",
        "/.git/",
        "/.git",
        "/.git/index.html",
        "/.env",
        "/.hidden.html",
        "/.hidden",
        "/%2egit/config",
        "/%2Eenv",
        "/a/.htpasswd",
        "/a/%2ehtpasswd",
        "/a/.well-known/.secret",
        "/.well-known/.secret",
        "/.well-knownx/a.txt",
        "/_docwharf/x.html",
        "/_docwharf/x",
        "/_docwharf/",
        "/_docwharf",
        "/_docwharf.html",
        "/%5fdocwharf/x.html",
        "/_docwharf%2fx.html",
    ] {
        let response = get(&daemon.address, target);
        assert_eq!(response.status, 404, "{target}");
        assert!(!response.text().contains("HIDDEN"), "{target}");
    }
    // The script of the search box has this address, whatever the bundle has there.
    let script = get(&daemon.address, "/_docwharf/search.js");
    assert!(script.status == 200 && !script.text().contains("HIDDEN"), "{}", script.status);
    for (target, body) in [
        ("/.well-known/security.txt", "Contact: x"),
        ("/%2Ewell-known/security.txt", "Contact: x"),
        ("/a/.well-known/b.txt", "b"),
        ("/a/_docwharf/x", "<p>deeper"),
        ("/_docwharfs", "<p>another name"),
    ] {
        assert_eq!(get(&daemon.address, target).text(), body, "{target}");
    }
}

#[test]
fn wrapper_folder_launchers_and_junk_are_not_part_of_the_site() {
    let members = [
        zip::deflated("export/index.html", "<p>home"),
        zip::deflated("export/guides/serve.js", "content()"),
        zip::stored("export/serve.js", "LAUNCHER"),
        zip::stored("export/Start Docs.bat", "LAUNCHER"),
        zip::stored("Start Docs.command", "LAUNCHER"),
        zip::stored("serve.js", "LAUNCHER"),
        zip::stored("__MACOSX/export/._index.html", "JUNK"),
        zip::stored("export/.DS_Store", "JUNK"),
        zip::stored("export/a/Thumbs.db", "JUNK"),
        zip::stored("export/a/desktop.ini", "JUNK"),
        zip::stored("export/.well-known/x.txt", "known"),
    ];
    let (_dir, daemon) = serve_archive(&zip::zip(&members));
    for (target, body) in [("/", "<p>home"), ("/guides/serve.js", "content()"), ("/.well-known/x.txt", "known")] {
        assert_eq!(get(&daemon.address, target).text(), body, "{target}");
    }
    for target in [
        "/serve.js",
        "/Start%20Docs.bat",
        "/Start%20Docs.command",
        "/export/",
        "/export/index.html",
        "/export/serve.js",
        "/__MACOSX/export/._index.html",
        "/.DS_Store",
        "/a/Thumbs.db",
        "/a/desktop.ini",
    ] {
        let response = get(&daemon.address, target);
        assert_eq!(response.status, 404, "{target}");
        assert!(!response.text().contains("LAUNCHER") && !response.text().contains("JUNK"), "{target}");
    }
}

#[test]
fn symlinks_out_of_the_site_are_left_out_with_a_warning_and_others_are_followed() {
    use std::os::unix::fs::symlink;
    let dir = temporary_folder();
    let root = write_site(&dir.path().join("site"), &[("index.html", "<p>home"), ("real/a.html", "<p>a")]);
    write_site(dir.path(), &[("outside/secret.html", "TOPSECRET")]);
    symlink("real/a.html", root.join("page.html")).expect("links can be made");
    symlink("real", root.join("alias")).expect("links can be made");
    let stderr = dir.path().join("stderr");
    let log = File::create(&stderr).expect("a file can be made");
    let serve = |log: File| {
        let mut command = docwharf();
        command.arg("serve").arg(&root).args(["--listen", "127.0.0.1:0", "--search-box", "never"]).stderr(log);
        Daemon::start(&mut command)
    };
    let daemon = serve(log);
    assert_eq!(get(&daemon.address, "/page").text(), "<p>a");
    assert_eq!(get(&daemon.address, "/alias/a").text(), "<p>a");
    drop(daemon);
    let warnings = || {
        let log_text = std::fs::read_to_string(&stderr).expect("a log");
        // `serve` says which version it serves, and that it has ended.
        let is_note = |line: &&str| line.contains(": version ") || line.ends_with("serving has ended");
        log_text.lines().filter(|line| !is_note(line)).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(warnings(), Vec::<String>::new(), "nothing to warn of");

    symlink(dir.path().join("outside"), root.join("out")).expect("links can be made");
    for (links, expected) in [(1, ""), (4, "3 more")] {
        if links > 1 {
            symlink("../outside/secret.html", root.join("secret.html")).expect("links can be made");
            symlink("/etc/passwd", root.join("passwd.txt")).expect("links can be made");
            symlink("nowhere", root.join("dangling.html")).expect("links can be made");
        }
        let daemon = serve(File::create(&stderr).expect("a file can be made"));
        for target in ["/out/secret", "/out/secret.html", "/out", "/secret", "/passwd.txt", "/dangling"] {
            let response = get(&daemon.address, target);
            assert_eq!(response.status, 404, "{target}");
            assert!(!response.text().contains("TOPSECRET") && !response.text().contains("root:"), "{target}");
        }
        assert_eq!(get(&daemon.address, "/page").text(), "<p>a");
        drop(daemon);
        let log_text = warnings().join("\n");
        assert_eq!(log_text.lines().count(), 1, "{log_text}");
        assert!(
            log_text.contains("warning") && log_text.contains(expected) && log_text.contains("left out"),
            "{log_text}"
        );
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Missing pages and files

const OWN_404: &str = "<h1>the site's own page for what is missing</h1>";

#[test]
fn a_missing_page_gets_the_sites_404_page_and_a_missing_asset_one_line_of_text() {
    for page in ["404.html", "404/index.html"] {
        let (_dir, daemon) = serve_site(&[("index.html", "<p>home"), (page, OWN_404), ("v/index.html", "<p>v")], &[]);
        for target in [
            "/zzz",
            "/zzz/",
            "/zzz.html",
            "/zzz.htm",
            "/zzz.HTML",
            "/release-1.0",
            "/v1.2.3",
            "/a/b/zzz",
            "/zzz.unheardof",
            "/a.b/zzz",
            "/x.js/zzz",
            "/zzz.",
            "/zzz?a=b.js",
            "/v/zzz",
        ] {
            for fields in [&[][..], &[GZIP]] {
                let response = request(&daemon.address, "GET", target, fields);
                assert_eq!(response.status, 404, "{target}");
                let body = if response.header("content-encoding").is_some() {
                    gunzip(&response.body)
                } else {
                    response.body.clone()
                };
                assert_eq!(String::from_utf8_lossy(&body), OWN_404, "{target}");
                assert_eq!(response.header("content-type"), Some("text/html; charset=utf-8"), "{target}");
                assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{target}");
                assert!(is_short_lived(&response), "{target}: {response:?}");
            }
        }
        for name in [
            "js",
            "mjs",
            "css",
            "json",
            "txt",
            "map",
            "png",
            "jpg",
            "gif",
            "svg",
            "ico",
            "webp",
            "avif",
            "woff",
            "woff2",
            "ttf",
            "zip",
            "gz",
            "tar.gz",
            "xml",
            "pdf",
            "wasm",
            "webmanifest",
            "min.js",
            "JS",
            "md",
        ] {
            for prefix in ["/zzz.", "/a/b/zzz.", "/_next/static/zzz-0a1b2c3d."] {
                let response = get(&daemon.address, &format!("{prefix}{name}"));
                assert_eq!(response.status, 404, "{prefix}{name}");
                assert!(
                    response.body.len() < 100 && response.text().trim_end().lines().count() == 1,
                    "{prefix}{name}: {}",
                    response.text()
                );
                assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"), "{prefix}{name}");
                assert!(is_short_lived(&response), "{prefix}{name}: {response:?}");
                assert!(!response.text().contains("zzz"), "echoes its path: {}", response.text());
            }
        }
        // At its own address, the page is an ordinary page.
        assert_eq!(get(&daemon.address, &format!("/{page}")).status, 200);
    }
}

#[test]
fn a_site_without_a_404_page_gets_a_plain_default_page() {
    let (_dir, daemon) = serve_site(&[("index.html", "<p>home")], &[]);
    for target in ["/zzz", "/zzz.html", "/zzz/", "/release-1.0", "/zzz%3Cscript%3E"] {
        let response = get(&daemon.address, target);
        assert_eq!(response.status, 404, "{target}");
        assert_eq!(response.header("content-type"), Some("text/html; charset=utf-8"), "{target}");
        assert!(is_short_lived(&response), "{target}");
        let text = response.text();
        assert!(
            !text.contains("zzz") && !text.contains("release-1.0") && !text.contains("script"),
            "echoes its path: {text}"
        );
        assert!(text.len() < 4096 && !text.contains("src=") && !text.contains("http"), "refers to nothing: {text}");
    }
}

#[test]
fn a_404_response_ignores_preconditions_and_ranges() {
    let (_dir, daemon) = serve_site(&[("index.html", "<p>home"), ("404.html", OWN_404)], &[]);
    let page = get(&daemon.address, "/404.html");
    let tag = page.header("etag").expect("a tag");
    let modified = page.header("last-modified").expect("a date");
    for field in [
        "If-None-Match: *".to_owned(),
        format!("If-None-Match: {tag}"),
        format!("If-Match: {tag}"),
        "If-Match: \"x\"".to_owned(),
        "If-Match: *".to_owned(),
        format!("If-Modified-Since: {modified}"),
        "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT".to_owned(),
        "Range: bytes=0-3".to_owned(),
        "Range: bytes=99999-".to_owned(),
        format!("Range: bytes=0-3\r\nIf-Range: {tag}"),
    ] {
        let response = request(&daemon.address, "GET", "/zzz", &[&field]);
        assert_eq!((response.status, response.text().as_str()), (404, OWN_404), "{field}");
        for name in ["etag", "last-modified", "accept-ranges", "content-range"] {
            assert_eq!(response.header(name), None, "a missing page has neither validators nor ranges: {field}");
        }
        assert_eq!(response.header("cache-control"), Some("max-age=60"), "{field}");
        let response = request(&daemon.address, "GET", "/zzz.js", &[&field]);
        assert_eq!(response.status, 404, "{field}");
        assert!(response.body.len() < 100 && response.header("content-range").is_none(), "{field}");
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Fields about the client and about proxies

#[test]
fn origin_and_forwarded_headers_of_untrusted_clients_change_no_response() {
    let (_dir, daemon) = serve_site(&[("index.html", "<p>home"), ("x/index.html", "<p>x")], &["--slashes", "redirect"]);
    let fields = [
        "Origin: https://evil.example",
        "Referer: https://evil.example/",
        "Forwarded: for=10.0.0.1;host=evil.example;proto=https",
        "X-Forwarded-For: evil.example",
        "X-Forwarded-Host: evil.example",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Prefix: //evil.example",
        "X-Original-URL: /x/",
        "X-Rewrite-URL: /x/",
        "X-HTTP-Method-Override: DELETE",
    ];
    for target in ["/", "/x", "/x/", "/missing", "/missing.js"] {
        let without_date = |mut response: Response| {
            response.headers.retain(|(name, _)| name != "date");
            format!("{response:?}")
        };
        let with_headers = without_date(request(&daemon.address, "GET", target, &fields));
        assert_eq!(with_headers, without_date(get(&daemon.address, target)), "{target}");
        assert!(!with_headers.contains("evil.example"), "{target}");
        assert!(!with_headers.contains("strict-transport-security"), "none over plain http: {target}");
        let server = get(&daemon.address, target).header("server").unwrap_or_default().to_owned();
        assert!(!server.bytes().any(|b| b.is_ascii_digit()), "a version in Server: {server}");
    }
    let host = request(&daemon.address, "GET", "http://evil.example/x", &[]);
    assert_eq!(host.header("location"), Some("/x/"));
}

#[test]
fn serve_ignores_changes_of_the_folder_after_the_start() {
    let (dir, daemon) = serve_site(&[("index.html", "<p>home"), ("b.txt", "before")], &[]);
    std::fs::write(dir.path().join("site/b.txt"), "after!").expect("a file can be written");
    std::fs::remove_file(dir.path().join("site/index.html")).expect("a file can be removed");
    assert_eq!(get(&daemon.address, "/b.txt").text(), "before");
    assert_eq!(get(&daemon.address, "/").text(), "<p>home");
}
