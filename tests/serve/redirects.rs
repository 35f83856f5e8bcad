//! Rules of a bundle and of the operator: redirects, rewrites, header fields, Markdown, and what no bundle may do.

use std::path::Path;
use std::time::{Duration, Instant};

use support::h2::{Http2Client, StreamOutcome};
use support::host::Host;
use support::http::{Response, get, gunzip, request};
use support::zip::{deflated, zip};
use support::{
    Daemon, HTTP2_SERVERS, docwharf, peak_memory_kib, run_to_end, serve_site, serve_site_with_http2, temporary_folder,
    until, write_site,
};

/// Serves a folder of these files with the operator's configuration `config`.
fn serve_with_config(files: &[(&str, &str)], config: &str, options: &[&str]) -> (tempfile::TempDir, Daemon) {
    let dir = temporary_folder();
    let root = write_site(&dir.path().join("site"), files);
    let path = dir.path().join("docwharf.toml");
    std::fs::write(&path, config).unwrap();
    let arguments: Vec<&str> = ["--config", path.to_str().unwrap()].iter().chain(options).copied().collect();
    let daemon = Daemon::serve(&root, &arguments);
    (dir, daemon)
}

/// Status and `Location` of a GET. HEAD must have equal status and fields.
#[track_caller]
fn status_and_location(daemon: &Daemon, target: &str) -> (u16, String) {
    let send = |method| {
        let mut response = request(&daemon.address, method, target, &[]);
        response.headers.retain(|(name, _)| name != "date");
        response.headers.sort();
        response
    };
    let (full, head) = (send("GET"), send("HEAD"));
    assert_eq!((full.status, &full.headers), (head.status, &head.headers), "{target}");
    assert!(head.body.is_empty(), "{target}");
    (full.status, full.header("location").unwrap_or_default().to_owned())
}

/// Status and `Location` of a single GET, for tests in which rules change.
fn current_status_and_location(daemon: &Daemon, target: &str) -> (u16, String) {
    let response = get(&daemon.address, target);
    (response.status, response.header("location").unwrap_or_default().to_owned())
}

#[track_caller]
fn assert_all(daemon: &Daemon, cases: &[(&str, u16, &str)]) {
    for &(target, status, location) in cases {
        assert_eq!(status_and_location(daemon, target), (status, location.to_owned()), "{target}");
    }
}

const PAGES: [(&str, &str); 5] = [
    ("index.html", "<p>home"),
    ("guides/start.html", "<p>start"),
    ("v2/intro.html", "<p>intro"),
    ("404.html", "<p>the site's own page for what is missing"),
    ("a.css", "a{}"),
];

fn with_pages<'a>(added_files: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    PAGES.iter().chain(added_files).copied().collect()
}

// ---------------------------------------------------------------------------------------------------------------------
// Redirects

#[test]
fn redirects_of_a_bundle_have_the_declared_status_and_location() {
    let lines = "# moved\n/old /guides/start\n/tmp /guides/start 302\n/see /guides/start 303\n/t7 /guides/start 307\n\
                 /t8 /guides/start 308\n/beta/* /v2/:splat 302\n/blog/:year/:slug /v2/:slug?y=:year#:slug\n\
                 /out https://other.example/x?own=1\n/caf%C3%A9 /guides/start\n/trail /trail/\n/first /one 302\n/first /two 302\n\
                 /both/x /exact 302\n/both/* /pattern 302\n/late/* /pattern 302\n/late/x /exact 302\n";
    let docs = "{\"redirects\": [{\"source\": \"/d/:slug*\", \"destination\": \"/v2/:slug*\"},\
                {\"source\": \"/e/old-*\", \"destination\": \"/v2/new-*\", \"permanent\": false},\
                {\"source\": \"/old\", \"destination\": \"/never\"}]}";
    let (_dir, daemon) = serve_site(&with_pages(&[("_redirects", lines), ("docs.json", docs)]), &[]);
    assert_all(
        &daemon,
        &[
            ("/old", 301, "/guides/start"),
            ("/old/", 301, "/guides/start"),
            ("/old?a=b&c", 301, "/guides/start?a=b&c"),
            ("/o%6cd", 301, "/guides/start"),
            ("/OLD", 404, ""),
            ("/old/x", 404, ""),
            ("/tmp", 302, "/guides/start"),
            ("/see", 303, "/guides/start"),
            ("/t7", 307, "/guides/start"),
            ("/t8", 308, "/guides/start"),
            ("/beta", 302, "/v2/"),
            ("/beta/intro", 302, "/v2/intro"),
            ("/beta/a/b?x", 302, "/v2/a/b?x"),
            ("/blog/2024/x%26y?y=1&z=2", 301, "/v2/x&y?y=2024&z=2#x%26y"),
            ("/blog/2024", 404, ""),
            ("/out", 301, "https://other.example/x?own=1"),
            ("/out?own=2&more=3", 301, "https://other.example/x?own=1&more=3"),
            ("/caf%C3%A9", 301, "/guides/start"),
            ("/trail", 301, "/trail/"),
            ("/trail/", 404, ""),
            ("/first", 302, "/one"),
            ("/both/x", 302, "/exact"),
            ("/both/y", 302, "/pattern"),
            ("/late/x", 302, "/pattern"),
            ("/d/a/b", 308, "/v2/a/b"),
            ("/d", 308, "/v2/"),
            ("/e/old-7", 307, "/v2/new-7"),
            ("/e/old-7/8", 404, ""),
        ],
    );
    for (target, age) in
        [("/old", "max-age=3600"), ("/t8", "max-age=3600"), ("/tmp", "max-age=60"), ("/t7", "max-age=60")]
    {
        assert_eq!(get(&daemon.address, target).header("cache-control"), Some(age), "{target}");
    }
    for method in ["POST", "PUT", "DELETE"] {
        assert_eq!(request(&daemon.address, method, "/old", &[]).status, 405, "{method}");
    }
    assert_eq!(request(&daemon.address, "OPTIONS", "/old", &[]).status, 204);
}

#[test]
fn existing_files_precede_unforced_rules_and_operator_rules_precede_the_bundles() {
    let lines = "/guides/start /bundle 302\n/a.css /bundle 302!\n/v2/* /bundle 302\n/n /bundle 302\n/f /bundle 302!\n/index.html /bundle 302\n";
    let config = "[[server.redirects]]\nsource = \"/n\"\ndestination = \"/own\"\n\
                  [[server.redirects]]\nsource = \"/f\"\ndestination = \"/own\"\n\
                  [[server.redirects]]\nsource = \"/v2/intro\"\ndestination = \"/own\"\nforce = true\npermanent = true\n\
                  [[server.redirects]]\nsource = \"/a.css\"\ndestination = \"/own\"\n";
    let (_dir, daemon) = serve_with_config(&with_pages(&[("_redirects", lines)]), config, &["--slashes", "serve"]);
    assert_all(
        &daemon,
        &[
            ("/guides/start", 200, ""),
            ("/guides/start/", 200, ""),
            ("/guides/start.html", 200, ""),
            ("/index.html", 200, ""),
            ("/a.css", 302, "/bundle"),
            ("/n", 307, "/own"),
            ("/f", 307, "/own"),
            ("/v2/intro", 308, "/own"),
            ("/v2/intro/", 308, "/own"),
            ("/v2/intro.html", 200, ""),
            ("/v2/other", 302, "/bundle"),
        ],
    );
}

#[test]
fn redirect_rules_are_relative_to_the_base_path() {
    let config = "[[server.redirects]]\nsource = \"/own/:x*\"\ndestination = \"/v2/:x*\"\n";
    let (_dir, daemon) = serve_with_config(
        &with_pages(&[("_redirects", "/old/* /guides/:splat\n/out https://x.example/\n/app/* /index.html 200\n")]),
        config,
        &["--base-path", "/docs/"],
    );
    assert_all(
        &daemon,
        &[
            ("/docs/old/start?q", 301, "/docs/guides/start?q"),
            ("/docs/own/intro", 307, "/docs/v2/intro"),
            ("/docs/out", 301, "https://x.example/"),
            ("/docs/app/x", 200, ""),
            ("/old/start", 404, ""),
            ("/own/intro", 404, ""),
            ("/docs", 307, "/docs/"),
            ("/", 307, "/docs/"),
        ],
    );
}

#[test]
fn a_redirect_to_a_folder_is_followed_by_a_slash_redirect() {
    let files = [
        ("index.html", "<p>home"),
        ("dir/index.html", "<p>dir"),
        ("_redirects", "/old /dir 302\n/dir/gone /dir/ 302\n"),
    ];
    let (_dir, daemon) = serve_site(&files, &["--slashes", "redirect"]);
    assert_all(
        &daemon,
        &[("/old", 302, "/dir"), ("/dir", 307, "/dir/"), ("/dir/gone", 302, "/dir/"), ("/dir/", 200, "")],
    );
}

#[test]
fn a_redirect_target_cannot_change_its_host_or_inject_a_header() {
    let lines = "/a/* /:splat 302\n/b/* https://other.example/area/:splat 302\n/c/:x/* /:x/:splat 302\n/d/* /x?y=:splat#:splat 302\n";
    let (_dir, daemon) = serve_site(&with_pages(&[("_redirects", lines)]), &[]);
    for target in [
        "/a//evil.example",
        "/a/%2Fevil.example",
        "/a/%2f%2f%2fevil.example",
        "/a/%5Cevil.example",
        "/a/%5c%5cevil.example/x",
        "/a/https://evil.example/",
        "/a/@evil.example",
        "/a/%09/evil.example",
        "/a/%0d%0aSet-Cookie:%20x=1",
        "/a/..%2f..%2f/evil.example",
        "/a/.//evil.example",
        "/a/%E2%80%AE/x",
        "/a/%ff%fe",
        "/c/%2F/evil.example",
        "/c/%5C/evil.example",
        "/d/%0d%0aX:y",
        "/d/a&b=c#d",
    ] {
        let response = get(&daemon.address, target);
        let location = response.header("location").unwrap_or_default();
        assert!(matches!(response.status, 302 | 400 | 404), "{target}: {}", response.status);
        assert!(response.status != 302 || location.starts_with('/'), "{target}: {location}");
        assert!(!location.starts_with("//") && !location.starts_with("/\\"), "{target}: {location}");
        assert_eq!(response.header("set-cookie"), None, "{target}");
    }
    // A path on another host stays below the folder that the rule names.
    for target in ["/b/../../x", "/b/..%2fx", "/b/%2e%2e/x", "/b/x/.."] {
        assert_eq!(status_and_location(&daemon, target), (404, String::new()), "{target}");
    }
    assert_eq!(
        status_and_location(&daemon, "/b/@evil.example"),
        (302, "https://other.example/area/@evil.example".to_owned())
    );
    assert_eq!(
        status_and_location(&daemon, "/b//evil.example"),
        (302, "https://other.example/area//evil.example".to_owned())
    );
}

#[test]
fn a_rule_that_redirects_to_itself_is_ignored_and_longer_loops_end() {
    let lines = "/self /self\n/self2 /self2?a=1\n/a /b\n/b /a\n/grow/* /grow/x/:splat\n/frag /frag#x\n/r /r 200\n";
    let (_dir, daemon) = serve_site(&with_pages(&[("_redirects", lines)]), &[]);
    assert_all(
        &daemon,
        &[
            ("/self", 404, ""),
            ("/frag", 404, ""),
            ("/self2", 301, "/self2?a=1"),
            ("/self2?a=1", 404, ""),
            ("/r", 404, ""),
            ("/a", 301, "/b"),
            ("/b", 301, "/a"),
        ],
    );
    // The redirects end when the address is too long for a request or a `Location`.
    let long = format!("/grow/{}", "y".repeat(15_000));
    assert!(matches!(get(&daemon.address, &long).status, 301 | 404 | 414));
}

// ---------------------------------------------------------------------------------------------------------------------
// Rewrites

#[test]
fn a_rewrite_rule_serves_another_file_of_the_site() {
    let app = "<p>app ".repeat(500);
    let lines = "/app/* /shell.html 200\n/en/* /en/404.html 404\n/gone /nowhere.html 200\n/proxy/* https://x.example/:splat 200\n\
                 /copy/:name /v2/:name 200\n/env /.env 200\n/rules /_redirects 200\n/a.css /shell.html 200\n";
    let added_files =
        [("_redirects", lines), ("shell.html", &app), ("en/404.html", "<p>not in English"), (".env", "SECRET")];
    let (_dir, daemon) = serve_site(&with_pages(&added_files), &[]);
    let page = get(&daemon.address, "/shell.html");
    let tag = page.header("etag").expect("a tag").to_owned();
    for target in ["/app", "/app/", "/app/x/y?z"] {
        let response = get(&daemon.address, target);
        assert_eq!((response.status, response.text()), (200, app.clone()), "{target}");
        assert_eq!((response.header("etag"), response.header("location")), (Some(&*tag), None), "{target}");
    }
    let send = |fields: &[&str]| request(&daemon.address, "GET", "/app/x", fields);
    assert_eq!(send(&[&format!("If-None-Match: {tag}")]).status, 304);
    assert_eq!((send(&["Range: bytes=0-3"]).status, send(&["Range: bytes=0-3"]).text()), (206, "<p>a".to_owned()));
    assert_eq!(gunzip(&send(&["Accept-Encoding: gzip"]).body), app.as_bytes());
    let missing = get(&daemon.address, "/en/x");
    assert_eq!((missing.status, missing.text().as_str(), missing.header("etag")), (404, "<p>not in English", None));
    assert_eq!(get(&daemon.address, "/copy/intro").text(), "<p>intro");
    assert_all(
        &daemon,
        &[
            ("/gone", 404, ""),
            ("/proxy/x", 404, ""),
            ("/copy/none", 404, ""),
            ("/env", 404, ""),
            ("/rules", 404, ""),
            ("/a.css", 200, ""),
        ],
    );
    assert_eq!(get(&daemon.address, "/a.css").text(), "a{}");
}

#[test]
fn redirects_and_headers_files_get_404_but_docs_json_is_served() {
    let files = with_pages(&[
        ("_redirects", "/x /y\n"),
        ("_headers", "/*\n X-A: 1\n"),
        ("docs.json", "{}"),
        ("sub/_redirects", "text"),
    ]);
    let (_dir, daemon) = serve_site(&files, &[]);
    for target in ["/_redirects", "/_headers", "/%5Fredirects", "/_redirects/", "/_headers.html"] {
        assert_eq!(status_and_location(&daemon, target).0, 404, "{target}");
    }
    assert_eq!(status_and_location(&daemon, "/docs.json").0, 200);
    assert_eq!(status_and_location(&daemon, "/sub/_redirects").0, 200);
}

// ---------------------------------------------------------------------------------------------------------------------
// Fields

#[test]
fn header_rules_apply_also_to_404_and_redirects_but_cache_control_only_to_files() {
    let text = "/*\n  X-All: 1\n  X-Frame-Options: DENY\n  Vary: Cookie\n/guides/*\n  X-All: 2\n  Cache-Control: public, max-age=7\n\
                /guides/start\n  ! X-Frame-Options\n/old\n  X-Old: 1\n/*.css\n  Cache-Control: max-age=8\n";
    let page = "<p>start ".repeat(300);
    let files = [
        ("index.html", "<p>home"),
        ("guides/start.html", &*page),
        ("a.css", "a{}"),
        ("_headers", text),
        ("_redirects", "/old /\n"),
    ];
    let config = "[[server.headers]]\nsource = \"/guides/*\"\nvalues = { X-Own = [\"a\", \"b\"], X-All = \"own\" }\n\
                  [[server.headers]]\nsource = \"/a.css\"\nremove = [\"Referrer-Policy\", \"X-All\"]\n";
    let (_dir, daemon) = serve_with_config(&files, config, &["--slashes", "serve"]);
    let send = |method, target, fields: &[&str]| request(&daemon.address, method, target, fields);
    let tag = send("GET", "/guides/start", &[]).header("etag").unwrap().to_owned();
    for (fields, status) in [
        (vec![], 200),
        (vec![format!("If-None-Match: {tag}")], 304),
        (vec!["Range: bytes=1-5".to_owned()], 206),
        (vec!["Accept-Encoding: gzip".to_owned()], 200),
    ] {
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        for method in ["GET", "HEAD"] {
            let response = send(method, "/guides/start", &fields);
            assert_eq!(response.status, status);
            assert_eq!(response.header("x-all"), Some("own"), "the operator's value replaces the bundle's");
            assert_eq!(response.header("x-own"), Some("a, b"));
            assert_eq!(response.header("cache-control"), Some("public, max-age=7"), "{status}");
            assert_eq!(
                response.header("x-frame-options"),
                Some("SAMEORIGIN"),
                "a bundle cannot remove docwharf's own field"
            );
            assert_eq!(response.header("vary"), Some("accept, accept-encoding, Cookie"), "joined, not replaced");
            assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
        }
    }
    let home = send("GET", "/", &[]);
    assert_eq!((home.header("x-all"), home.header("x-frame-options")), (Some("1"), Some("DENY")));
    assert_eq!(home.header("cache-control"), Some("no-cache"));
    let style = send("GET", "/a.css", &[]);
    assert_eq!(style.header("cache-control"), Some("max-age=8"));
    assert_eq!((home.header("referrer-policy").is_some(), style.header("referrer-policy")), (true, None));
    assert_eq!(style.header("x-all"), None, "the operator removes docwharf's fields and those of the bundle");
    let missing = send("GET", "/guides/none", &[]);
    assert_eq!(
        (missing.status, missing.header("cache-control")),
        (404, Some("max-age=60")),
        "an error keeps its own caching"
    );
    assert_eq!(missing.header("x-all"), Some("own"));
    let redirect = send("GET", "/old", &[]);
    assert_eq!(
        (redirect.status, redirect.header("x-old"), redirect.header("cache-control")),
        (301, Some("1"), Some("max-age=3600"))
    );
    for (method, target, status) in [("POST", "/", 405), ("OPTIONS", "/", 204), ("GET", "/%01", 400)] {
        let response = send(method, target, &[]);
        assert_eq!((response.status, response.header("x-all")), (status, None), "{method} {target}");
    }
}

// Regression: the `_headers` of a bundle could send readers to other hosts, and widen the scope of its service worker.
#[test]
fn a_bundle_cannot_set_headers_for_framing_validators_cookies_or_redirects() {
    let names = [
        "Content-Length",
        "Content-Encoding",
        "Transfer-Encoding",
        "Connection",
        "Keep-Alive",
        "Upgrade",
        "Trailer",
        "TE",
        "ETag",
        "Date",
        "Last-Modified",
        "Content-Range",
        "Accept-Ranges",
        "Location",
        "Allow",
        "Age",
        "Host",
        "Set-Cookie",
        "Strict-Transport-Security",
        "Alt-Svc",
        "Clear-Site-Data",
        "NEL",
        "Refresh",
        "Report-To",
        "Reporting-Endpoints",
        "Service-Worker-Allowed",
        "X-Content-Type-Options",
        "Bad Name",
        "X-Bad\u{1}",
        "Content-Location",
        "Retry-After",
        "WWW-Authenticate",
        "Proxy-Authenticate",
        "Proxy-Connection",
    ];
    let lines = names.iter().map(|name| format!("  ! {name}\n  {name}: 7\n")).collect::<Vec<_>>().concat();
    let text = format!("/*\n{lines}  ! Vary\n  ! Cache-Control\n  ! Content-Type\n  X-Good: yes\n");
    let page = "<p>home ".repeat(300);
    let plain = serve_site(&[("index.html", &*page)], &[]);
    let with_rules = serve_site(&[("index.html", &*page), ("_headers", &*text)], &[]);
    for fields in [&[][..], &["Accept-Encoding: gzip"], &["Range: bytes=0-9"]] {
        let headers_of = |daemon: &Daemon| {
            let mut response = request(&daemon.address, "GET", "/", fields);
            response.headers.retain(|(name, _)| !matches!(name.as_str(), "date" | "last-modified" | "x-good"));
            response
        };
        let (before, after): (Response, Response) = (headers_of(&plain.1), headers_of(&with_rules.1));
        assert_eq!(before.headers, after.headers, "{fields:?}");
        assert_eq!(before.body, after.body);
    }
    assert_eq!(get(&with_rules.1.address, "/").header("x-good"), Some("yes"));
}

// Regression: the `_headers` of a bundle could send the reports of its policy to other hosts.
#[test]
fn a_csp_of_a_bundle_is_sent_without_its_report_directives() {
    let text = "/*\n  Content-Security-Policy: img-src 'self'; report-uri https://x.example/r; report-to all\n  \
                Content-Security-Policy-Report-Only: report-uri https://x.example/r\n  X-Frame-Options: ALLOWALL\n";
    let (dir, daemon) = serve_site(&[("index.html", "<p>home"), ("_headers", text)], &[]);
    let home = get(&daemon.address, "/");
    assert_eq!(home.header("content-security-policy"), Some("img-src 'self'"));
    assert_eq!(home.header("content-security-policy-report-only"), None);
    assert_eq!(home.header("x-frame-options"), Some("SAMEORIGIN"), "an unknown value does not replace the default");
    let stdout = run_to_end(docwharf().args(["redirects", "check"]).arg(dir.path().join("site"))).expect(1).stdout;
    for line in ["_headers:2", "_headers:3", "_headers:4", "report-uri and report-to are ignored", "DENY or SAMEORIGIN"]
    {
        assert!(stdout.contains(line), "{line}: {stdout}");
    }
}

// Regression: a bundle replaced the operator's `referrerPolicy`, allowed framing with a value that no browser knows,
// preconnected under `airgap`, and let shared caches store responses that need access.
#[test]
fn headers_of_a_bundle_override_defaults_but_not_operator_settings() {
    const OUTSIDE: &str = "<https://x.example>; rel=preconnect";
    const INSIDE: &str = "</a.css>; rel=preload; as=style";
    const OWN: &str = "</index.md>; rel=\"alternate\"; type=\"text/markdown\", </llms.txt>; rel=\"describedby\"";
    let text = format!(
        "/*\n  Referrer-Policy: unsafe-url\n  X-Frame-Options: DENY\n  Link: {OUTSIDE}\n  Link: {INSIDE}\n  \
         Cache-Control: public, max-age=600\n  CDN-Cache-Control: max-age=600\n  Access-Control-Allow-Origin: *\n"
    );
    let host = host_with_bundle(&[("index.html", "<p>home"), ("a.css", "a{}"), ("_headers", &text)]);
    let both = format!("{OWN}, {OUTSIDE}, {INSIDE}");
    let inside = format!("{OWN}, {INSIDE}");
    let bundles = [
        ("referrer-policy", Some("unsafe-url")),
        ("x-frame-options", Some("DENY")),
        ("link", Some(&*both)),
        ("cache-control", Some("public, max-age=600")),
        ("cdn-cache-control", Some("max-age=600")),
        ("access-control-allow-origin", Some("*")),
    ];
    for (config, overrides) in [
        ("", &[][..]),
        ("referrerPolicy = \"same-origin\"\n", &[("referrer-policy", Some("same-origin"))]),
        ("referrerPolicy = \"off\"\n", &[("referrer-policy", None)]),
        ("frames = \"same\"\n", &[("x-frame-options", Some("SAMEORIGIN"))]),
        ("frames = \"any\"\n", &[("x-frame-options", None)]),
        ("csp = \"airgap\"\n", &[("link", Some(&*inside))]),
        (
            "[access]\nallow = [\"127.0.0.0/8\"]\n",
            &[
                ("cache-control", Some("private, no-cache")),
                ("cdn-cache-control", None),
                ("access-control-allow-origin", None),
            ],
        ),
        (
            "frames = \"any\"\n[access]\nallow = [\"127.0.0.0/8\"]\n[[server.headers]]\nsource = \"/*\"\n\
             values = { Cache-Control = \"public\", X-Frame-Options = \"DENY\", Refresh = \"600\" }\n",
            &[
                ("cache-control", Some("public")),
                ("refresh", Some("600")),
                ("cdn-cache-control", None),
                ("access-control-allow-origin", None),
            ],
        ),
    ] {
        host.configure(&config_with_bundle(config));
        run_to_end(&mut host.command(&["sync"])).expect(0);
        let daemon = Daemon::start(&mut host.command(&["run"]));
        let home = get(&daemon.address, "/");
        assert_eq!(home.status, 200, "{config}");
        for (name, value) in
            bundles.iter().filter(|(name, _)| overrides.iter().all(|(other, _)| other != name)).chain(overrides)
        {
            assert_eq!(home.header(name), *value, "{name} with the configuration {config:?}");
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Markdown

// Regression: a 304 and a 206 with several parts did not name the location of the negotiated Markdown.
#[test]
fn accept_selects_markdown_and_both_forms_send_vary() {
    let long = "# Start\n".repeat(300);
    let files = [
        ("index.html", "<p>home"),
        ("index.md", "# home"),
        ("guides/start.html", "<p>start"),
        ("guides/start.md", &*long),
        ("dir/index.html", "<p>dir"),
        ("dir.md", "# dir"),
        ("v1/index.html", "<p>v1"),
        ("v1/index.html.md", "# v1"),
        ("alone.html", "<p>alone"),
        ("README.md", "# read me"),
        ("llms.txt", "# Docs\n"),
        ("llms-full.txt", "# All\n"),
    ];
    let (_dir, daemon) = serve_site(&files, &["--slashes", "serve"]);
    let send = |target: &str, accept: &str| request(&daemon.address, "GET", target, &[&format!("Accept: {accept}")]);
    for (accept, is_markdown) in [
        ("text/markdown", true),
        ("text/markdown, text/html, */*", true),
        ("text/html;q=0.5, text/markdown;q=0.6", true),
        ("text/html, text/markdown;q=0.9", false),
        ("text/markdown;q=0, text/html;q=0", false),
        ("text/html,application/xhtml+xml,*/*;q=0.8", false),
        ("*/*", false),
        ("nonsense;;;=,,", false),
    ] {
        let response = send("/guides/start", accept);
        let kind = if is_markdown { "text/markdown; charset=utf-8" } else { "text/html; charset=utf-8" };
        assert_eq!((response.status, response.header("content-type")), (200, Some(kind)), "{accept}");
        assert_eq!(response.header("vary"), Some("accept, accept-encoding"), "{accept}");
        assert_eq!(response.header("content-location"), is_markdown.then_some("/guides/start.md"), "{accept}");
    }
    let (html, markdown) = (send("/guides/start", "*/*"), send("/guides/start", "text/markdown"));
    assert_ne!(html.header("etag"), markdown.header("etag"));
    assert_eq!(
        html.header("link"),
        Some("</guides/start.md>; rel=\"alternate\"; type=\"text/markdown\", </llms.txt>; rel=\"describedby\"")
    );
    let tag = format!("If-None-Match: {}", html.header("etag").unwrap());
    let revalidate = |accept| request(&daemon.address, "GET", "/guides/start", &[&tag, accept]);
    assert_eq!((revalidate("Accept: text/html").status, revalidate("Accept: text/markdown").status), (304, 200));
    assert_eq!(revalidate("Accept: text/html").header("vary"), Some("accept, accept-encoding"));
    // 304 and 206 have the Content-Location of the 200. An error does not represent the Markdown.
    let tag = markdown.header("etag").unwrap();
    for (field, status, has_location) in [
        (format!("If-None-Match: {tag}"), 304, true),
        ("Range: bytes=0-9".to_owned(), 206, true),
        ("Range: bytes=0-9,40-49".to_owned(), 206, true),
        ("If-Match: \"other\"".to_owned(), 412, false),
        ("Range: bytes=99999999-".to_owned(), 416, false),
    ] {
        let response = request(&daemon.address, "GET", "/guides/start", &["Accept: text/markdown", &field]);
        let location = response.header("content-location");
        assert_eq!((response.status, location), (status, has_location.then_some("/guides/start.md")), "{field}");
    }
    let zipped = request(&daemon.address, "GET", "/guides/start", &["Accept: text/markdown", "Accept-Encoding: gzip"]);
    assert_eq!(gunzip(&zipped.body), long.as_bytes());
    for (target, expected) in
        [("/", "# home"), ("/dir", "# dir"), ("/dir/", "# dir"), ("/dir/index.html", "# dir"), ("/v1", "# v1")]
    {
        assert_eq!(send(target, "text/markdown").text(), expected, "{target}");
        assert!(send(target, "text/html").text().starts_with("<p>"), "{target}");
    }
    // At its own address, a Markdown file ignores `Accept`: it has one form.
    for (target, expected) in [
        ("/guides/start.md", &*long),
        ("/index.md", "# home"),
        ("/v1.md", "# v1"),
        ("/v1/index.md", "# v1"),
        ("/README.md", "# read me"),
        ("/dir/index.md", "# dir"),
    ] {
        let response = send(target, "text/html");
        assert_eq!((response.status, response.text().as_str()), (200, expected), "{target}");
        assert_eq!(response.header("content-type"), Some("text/markdown; charset=utf-8"), "{target}");
        assert!(!response.header("vary").unwrap_or_default().contains("accept,"), "{target}");
    }
    // Of a page without a file of its own, docwharf makes the Markdown.
    assert_eq!(send("/alone", "text/html").text(), "<p>alone");
    assert_eq!(send("/alone", "text/markdown").text(), "alone\n");
    assert_eq!(send("/alone.md", "text/html").text(), "alone\n");
    for (target, text) in [
        ("/llms.txt", "# Docs\n"),
        ("/llms-full.txt", "# All\n"),
        ("/.well-known/llms.txt", "# Docs\n"),
        ("/.well-known/llms-full.txt", "# All\n"),
    ] {
        let response = get(&daemon.address, target);
        assert_eq!((response.status, response.text().as_str()), (200, text), "{target}");
        assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"), "{target}");
        assert_eq!(response.header("cache-control"), Some("no-cache"), "{target}");
    }
    status_and_location(&daemon, "/guides/start");
}

// ---------------------------------------------------------------------------------------------------------------------
// HTTP/2

#[test]
fn redirect_and_rewrite_rules_apply_equally_over_http2() {
    for http2 in HTTP2_SERVERS {
        let lines = "/old /guides/start\n/beta/* /v2/:splat 302\n/app/* /index.html 200\n/a/* /:splat 307\n";
        let (_dir, daemon) =
            serve_site_with_http2(http2, &with_pages(&[("_redirects", lines), ("guides/start.md", "# start")]));
        let mut client = Http2Client::open(&daemon.address);
        for (path, fields) in [
            ("/old", &[][..]),
            ("/beta/intro", &[]),
            ("/app/x", &[]),
            ("/a//evil.example", &[]),
            ("/guides/start", &[("accept", "text/markdown")]),
            ("/guides/start", &[]),
            ("/none", &[]),
            ("/_redirects", &[]),
        ] {
            let lines: Vec<String> = fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let expected = request(&daemon.address, "GET", path, &lines);
            let expected = StreamOutcome::Response { status: expected.status, body: expected.body };
            assert_eq!(client.get(path, fields), expected, "{path}");
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Hostile bundles

#[test]
fn a_bundle_with_invalid_rules_is_served_without_them_and_logs_one_line() {
    let dir = temporary_folder();
    let wrong: &[(&str, &[u8])] = &[
        (
            "_redirects",
            b"/a\n/b c\n/ok /guides/start\n/c/* https://:splat/\n/d //evil.example\n/e /x 999\n\xc3\xa9 /x\n",
        ),
        ("_redirects", b"\xff\xfe/a /b\n"),
        ("_headers", b"X-A: 1\n/*\nX-B\n  no colon\n  X-Ok: 1\n"),
        ("docs.json", b"{\"redirects\": \"all\"}"),
        ("docs.json", b"{\"redirects\": [{}]}"),
        ("docs.json", b"{\"redirects\": ["),
    ];
    for (number, (name, content)) in wrong.iter().enumerate() {
        let root = write_site(
            &dir.path().join(format!("site{number}")),
            &[("index.html", "<p>home"), ("guides/start.html", "x")],
        );
        std::fs::write(root.join(name), content).unwrap();
        let ended = run_to_end(docwharf().args(["redirects", "check"]).arg(&root)).expect(1);
        assert!(ended.stdout.contains("invalid") && ended.stdout.contains(name), "{}", ended.stdout);
        let daemon = Daemon::serve(&root, &[]);
        assert_eq!(get(&daemon.address, "/").status, 200);
        if number == 0 {
            assert_eq!(status_and_location(&daemon, "/ok"), (301, "/guides/start".to_owned()));
            assert_eq!(status_and_location(&daemon, "/c/evil.example").0, 404);
        }
    }
    // One line for all findings, before any listener opens.
    let mut command = docwharf();
    command.arg("serve").arg(dir.path().join("site0")).args(["--listen", "256.0.0.1:1"]);
    run_to_end(&mut command).expect(2);
    let root = dir.path().join("site0");
    let stderr = dir.path().join("stderr");
    let file = std::fs::File::create(&stderr).unwrap();
    let daemon = Daemon::start(
        docwharf().arg("serve").arg(&root).args(["--listen", "127.0.0.1:0"]).env("DOCWHARF_LOG", "warn").stderr(file),
    );
    assert_eq!(get(&daemon.address, "/").status, 200);
    let log_text = std::fs::read_to_string(&stderr).unwrap();
    // `serve` says which version it serves.
    let log_text: Vec<&str> = log_text.lines().filter(|line| !line.contains(": version ")).collect();
    assert_eq!(log_text.len(), 1, "{log_text:?}");
    let log_text = log_text[0];
    assert!(log_text.contains("_redirects:1") && log_text.contains(" more); "), "{log_text}");
}

#[test]
fn hostile_rule_files_cost_little_time_and_memory() {
    let dir = temporary_folder();
    // The maximum of patterns, each of which fails at its last byte. And inputs far beyond each limit.
    let long = "x".repeat(900);
    let slow_rules = (0..1_900).map(|n| format!("/{long}/*/{n} /y 302\n")).collect::<Vec<_>>().concat();
    let many_rules = (0..150_000).map(|n| format!("/{n} /y\n")).collect::<Vec<_>>().concat();
    let fields = (0..1_900).map(|n| format!("/*\n X-{n}: {long}\n")).collect::<Vec<_>>().concat();
    let docs = format!("{{\"redirects\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let list: Vec<String> = (0..60_000).map(|n| format!("{{\"source\":\"/j{n}\",\"destination\":\"/y\"}}")).collect();
    let docs_long = format!("{{\"redirects\": [{}]}}", list.join(","));
    let many_lines = "/a /b\n".repeat(1_000_000);
    for (name, content) in [
        ("_redirects", &slow_rules),
        ("_redirects", &many_rules),
        ("_redirects", &many_lines),
        ("_headers", &fields),
        ("docs.json", &docs),
        ("docs.json", &docs_long),
    ] {
        let path = dir.path().join("b.zip");
        std::fs::write(&path, zip(&[deflated("index.html", "<p>home"), deflated(name, content)])).unwrap();
        let started = Instant::now();
        let daemon = Daemon::serve(&path, &[]);
        let target = format!("/{long}/{long}/{long}");
        for _ in 0..100 {
            assert_eq!(get(&daemon.address, &target).status, 404, "{name}");
        }
        let response = get(&daemon.address, "/");
        assert_eq!(response.status, 200);
        let bytes: usize = response.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        assert!(bytes < 32 << 10, "{name}: {bytes} bytes of fields");
        assert!(started.elapsed() < Duration::from_secs(20), "{name}: {:?}", started.elapsed());
        let peak = peak_memory_kib(daemon.pid()).expect("the process lives");
        assert!(peak < 256 << 10, "{name}: {peak} KiB");
    }
}

// Regression: the query of a request was copied into `Location` without encoding.
#[test]
fn a_query_is_percent_encoded_in_the_location_header() {
    let (_dir, daemon) = serve_site(
        &with_pages(&[("_redirects", "/old /guides/start 302\n/own /b?x=1 302\n/self /self 302\n")]),
        &["--base-path", "/docs", "--slashes", "redirect"],
    );
    let raw = "a=\\^`|{}&b=%2f%zz%&c=é";
    let encoded = "a=%5C%5E%60%7C%7B%7D&b=%2f%25zz%25&c=%C3%A9";
    assert_all(
        &daemon,
        &[
            (&format!("/docs/old?{raw}"), 302, &format!("/docs/guides/start?{encoded}")),
            (&format!("/docs/own?{raw}"), 302, &format!("/docs/b?x=1&{encoded}")),
            (&format!("/docs/guides/start/?{raw}"), 307, &format!("/docs/guides/start?{encoded}")),
            (&format!("/?{raw}"), 307, &format!("/docs/?{encoded}")),
            // A redirect to itself is ignored with any query.
            (&format!("/docs/self?{raw}"), 404, ""),
        ],
    );
    // The HTTP parser refuses some of these characters. Others are encoded.
    for target in ["/docs/old?\"", "/docs/old?<b>", "/docs/old?a[]"] {
        let (status, location) = status_and_location(&daemon, target);
        let is_good = location.bytes().all(|b| b.is_ascii_graphic() && !b"\"<>[]".contains(&b));
        assert!(is_good && [302, 400].contains(&status), "{target}: {status} {location}");
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// redirects check

/// Runs `redirects check` with further options. Returns place and kind of each finding.
fn check_findings(code: i32, root: &Path, options: &[&str]) -> Vec<(String, String)> {
    let ended = run_to_end(docwharf().args(["redirects", "check", "--json"]).arg(root).args(options)).expect(code);
    let json = ended.json();
    let place_and_kind = |finding: &serde_json::Value| {
        let text = |key: &str| finding[key].as_str().unwrap().to_owned();
        (text("place").rsplit('/').next().unwrap().to_owned(), text("kind"))
    };
    json["findings"].as_array().unwrap().iter().map(place_and_kind).collect()
}

#[test]
fn redirects_check_reports_loops_dead_targets_and_shadowed_rules() {
    let dir = temporary_folder();
    for (number, (line, expected)) in [
        ("/old /guides/start", None),
        ("/old/* /guides/:splat", None),
        ("/old/* /nowhere/:splat", Some("dead")),
        ("/old https://x.example/", None),
        ("/old/* https://x.example/:splat", None),
        ("/old /nowhere", Some("dead")),
        ("/old /a.css", None),
        ("/old /one\n/one /two\n/two /guides/start", None),
        ("/old /one\n/one /two\n/two /old", Some("loop")),
        ("/x/* /y/:splat\n/y/* /x/:splat", Some("loop")),
        ("/x/* /x/x/:splat", Some("loop")),
        ("/x/* /y/:splat\n/y/* /guides/:splat", None),
        ("/same /same", Some("never")),
        ("/guides/start /a.css", Some("shadowed")),
        ("/guides/start /a.css 301!", None),
        ("/guides/start/ /a.css", Some("shadowed")),
        ("/old /a.css\n/old /guides/start", Some("shadowed")),
        ("/x/* /a.css\n/x/y /guides/start", Some("shadowed")),
        ("/x/y /guides/start\n/x/* /a.css", None),
        ("/:a/* /a.css\n/x/:b /guides/start", Some("shadowed")),
        ("/x/:b /guides/start\n/x/* /a.css", None),
        ("/app/* /index.html 200", None),
        ("/app/* /none.html 200", Some("dead")),
        ("/app /none", Some("dead")),
        ("/a/../b /a.css", Some("invalid")),
        ("/old?x=1 /a.css", Some("invalid")),
        ("/x/* https://x.example/:splat 200", Some("invalid")),
        ("/_docwharf/x /a.css", Some("invalid")),
    ]
    .into_iter()
    .enumerate()
    {
        let root = write_site(&dir.path().join(format!("{number}")), &with_pages(&[("_redirects", line)]));
        let findings = check_findings(i32::from(expected.is_some()), &root, &[]);
        assert_eq!(findings.is_empty(), expected.is_none(), "{line}: {findings:?}");
        if let Some(kind) = expected {
            assert!(findings.iter().all(|(_, found)| found == kind), "{line}: {findings:?}");
        }
    }
}

#[test]
fn redirects_check_accepts_archives_and_versions_and_adds_operator_rules() {
    let dir = temporary_folder();
    let config = dir.path().join("docwharf.toml");
    let rule = "[[server.redirects]]\nsource = \"/own\"\ndestination = \"/nowhere\"\n";
    std::fs::write(&config, format!("[store]\npath = \"store\"\n[server]\nredirectsFile = \"moved\"\n{rule}")).unwrap();
    std::fs::write(dir.path().join("moved"), "/m /guides/start\n/n /nowhere\n").unwrap();
    let path = dir.path().join("b.zip");
    let members = [
        deflated("index.html", "<p>"),
        deflated("guides/start.html", "<p>"),
        deflated("_redirects", "/old /nowhere\n"),
    ];
    std::fs::write(&path, zip(&members)).unwrap();
    let expected =
        |places: &[&str]| places.iter().map(|place| ((*place).to_owned(), "dead".to_owned())).collect::<Vec<_>>();
    assert_eq!(check_findings(1, &path, &[]), expected(&["_redirects:1"]));
    let with_config = ["--config", config.to_str().unwrap()];
    let all = expected(&["docwharf.toml:5", "moved:2", "_redirects:1"]);
    assert_eq!(check_findings(1, &path, &with_config), all);
    run_to_end(docwharf().args(["import"]).arg(&path).args(with_config)).expect(0);
    let ended = run_to_end(docwharf().args(["redirects", "check"]).args(with_config)).expect(1);
    assert_eq!(ended.stdout.lines().count(), 4, "{}", ended.stdout);
    assert!(ended.stdout.ends_with("4 rules, 3 findings\n"), "{}", ended.stdout);
    assert_eq!(ended.stderr, "");
    assert_eq!(check_findings(1, Path::new("active"), &with_config), all);
    let ended = run_to_end(docwharf().args(["redirects", "check", "no-such-thing"]).args(with_config)).expect(2);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
}

// Regression: `redirects check` took minutes for long rules.
#[test]
fn redirects_check_of_too_expensive_rules_stops_and_reports_unchecked_ones() {
    let dir = temporary_folder();
    let page = &[("index.html", "<p>home")][..];
    // A file of the maximum size. Each rule has to be compared with all earlier ones up to its last byte.
    let long = "x".repeat(1_900);
    let rule = |source: String| format!("{{\"source\":\"/{long}/{source}\",\"destination\":\"/index.html\"}}");
    let patterns = (0..1_000).map(|n| rule(format!("{n}/:rest*")));
    let rules: Vec<String> = patterns.chain((0..3_000).map(|n| rule(format!("{n}-{n}")))).collect();
    let docs = format!("{{\"redirects\":[{}]}}", rules.join(","));
    let root = write_site(&dir.path().join("slow"), &[page, &[("docs.json", &docs)]].concat());
    let json = run_to_end(docwharf().args(["redirects", "check", "--json"]).arg(&root)).expect(1).json();
    let unchecked = json["unchecked"].as_u64().unwrap();
    assert!((1..3_000).contains(&unchecked) && json["rules"] == 4_000, "{unchecked}");
    assert_eq!(json["findings"].as_array().unwrap().len(), 0);
    let stdout = run_to_end(docwharf().args(["redirects", "check"]).arg(&root)).expect(1).stdout;
    assert!(stdout.starts_with(&format!("the last {unchecked} rules were not checked")), "{stdout}");
    // The same number of ordinary rules is checked completely.
    let patterns = (0..1_000).map(|n| format!("/moved/section-{n}/* / 302\n")).collect::<Vec<_>>().concat();
    let exact = (0..9_000).map(|n| format!("/guides/chapter-{n}/page-{n} / 302\n")).collect::<Vec<_>>().concat();
    let last = "/guides/chapter-7/page-7 / 302\n/moved/section-7/x / 302\n";
    let root = write_site(&dir.path().join("usual"), &[page, &[("_redirects", &(patterns + &exact + last))]].concat());
    let json = run_to_end(docwharf().args(["redirects", "check", "--json"]).arg(&root)).expect(1).json();
    assert_eq!((&json["unchecked"], &json["rules"]), (&0.into(), &10_002.into()));
    let kinds: Vec<_> = json["findings"].as_array().unwrap().iter().map(|finding| finding["kind"].clone()).collect();
    assert_eq!(kinds, ["shadowed", "shadowed"]);
}

// ---------------------------------------------------------------------------------------------------------------------
// Configuration, gate, reload

#[test]
fn config_check_reports_invalid_redirect_and_header_rules_with_their_place() {
    let dir = temporary_folder();
    let config = dir.path().join("c.toml");
    std::fs::write(dir.path().join("moved"), "/a /b\n/c\n").unwrap();
    std::fs::write(dir.path().join("docs.json"), "{\"redirects\": [{\"source\": \"/a\"}]}").unwrap();
    for (text, expected) in [
        (
            "[[server.redirects]]\nsource = \"a\"\ndestination = \"/b\"\n",
            "c.toml:1:1: server.redirects: the source is not an address",
        ),
        (
            "[[server.redirects]]\nsource = \"/a/*\"\ndestination = \"https://*/\"\n",
            "c.toml:1:1: server.redirects: the host of a redirect must not depend on the request",
        ),
        (
            "[[server.redirects]]\nsource = \"/a\"\ndestination = \"/b\"\nstatus = 200\nforse = true\n",
            "did you mean server.redirects.force?",
        ),
        (
            "[[server.headers]]\nsource = \"/*\"\nvalues = { Content-Length = \"1\" }\n",
            "c.toml:3:12: server.headers.values.Content-Length:",
        ),
        ("[server]\nredirectsFile = \"moved\"\n", "c.toml:2:1: server.redirectsFile: "),
        ("[server]\nredirectsFile = \"docs.json\"\n", "missing field `destination`"),
        ("[server]\nredirectFile = \"moved\"\n", "did you mean server.redirectsFile?"),
        ("[server]\nredirectsFile = \"absent\"\n", "cannot be read"),
    ] {
        std::fs::write(&config, text).unwrap();
        let ended = run_to_end(docwharf().args(["config", "check", "--config"]).arg(&config)).expect(2);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{text}: {}", ended.stderr);
    }
    std::fs::write(&config, "[[server.headers]]\nsource = \"/*\"\nvalues = { X-A = \"1\" }\n").unwrap();
    let output = run_to_end(docwharf().args(["config", "show", "--config"]).arg(&config)).expect(0);
    assert!(
        output.stdout.contains("[[server.headers]]  # ") && output.stdout.contains("values.X-A = \"1\""),
        "{}",
        output.stdout
    );
    let json = run_to_end(docwharf().args(["config", "show", "--json", "--config"]).arg(&config)).expect(0).json();
    assert_eq!(json["lists"]["server.headers"][0]["values"]["values.X-A"], "1");
}

/// A configuration with a bundle file. `config` continues the section `[server]`.
fn config_with_bundle(config: &str) -> String {
    format!("{config}\n[staticExport]\nbundleUrl = \"bundle.zip\"")
}

/// A host with a bundle of these members.
fn host_with_bundle(members: &[(&str, &str)]) -> Host {
    let host = Host::configured(&config_with_bundle(""));
    put_members(&host, members);
    host
}

/// Puts a bundle of these members in place.
fn put_members(host: &Host, members: &[(&str, &str)]) {
    let members: Vec<_> = members.iter().map(|(name, content)| deflated(name, content)).collect();
    host.put_bundle(&zip(&members));
}

#[test]
fn operator_rules_are_reloaded_and_invalid_ones_change_nothing() {
    let host = host_with_bundle(&[
        ("index.html", "<p>home"),
        ("_redirects", "/old /bundle 302\n"),
        ("guides/start.html", "<p>"),
    ]);
    let rule = |to: &str| format!("[[server.redirects]]\nsource = \"/old\"\ndestination = \"{to}\"\n");
    host.configure(&config_with_bundle(""));
    run_to_end(&mut host.command(&["sync"])).expect(0);
    let daemon = Daemon::start(&mut host.command(&["run"]));
    assert_eq!(current_status_and_location(&daemon, "/old"), (302, "/bundle".to_owned()));
    host.configure(&config_with_bundle(&rule("/one")));
    until("the first rule", || current_status_and_location(&daemon, "/old") == (307, "/one".to_owned()));
    // An invalid rule leaves the rules in force.
    host.configure(&config_with_bundle(&rule("//evil.example")));
    daemon.signal("HUP");
    until("the invalid rule is reported", || {
        run_to_end(&mut host.command(&["status", "--json"])).stdout.contains("two slashes")
            || current_status_and_location(&daemon, "/old") != (307, "/one".to_owned())
    });
    assert_eq!(current_status_and_location(&daemon, "/old"), (307, "/one".to_owned()));
    // A file of redirects is watched, too. Its rules come after those of the configuration.
    std::fs::write(host.path("moved"), "/old /file\n/new /file 302\n").unwrap();
    host.configure(&config_with_bundle(&format!("redirectsFile = \"moved\"\n{}", rule("/two"))));
    until("the second rule", || current_status_and_location(&daemon, "/old") == (307, "/two".to_owned()));
    assert_eq!(current_status_and_location(&daemon, "/new"), (302, "/file".to_owned()));
    std::fs::write(host.path("moved.new"), "/new /guides/start 308\n").unwrap();
    std::fs::rename(host.path("moved.new"), host.path("moved")).unwrap();
    until("the file's new rule", || current_status_and_location(&daemon, "/new") == (308, "/guides/start".to_owned()));
    host.configure(&config_with_bundle("[[server.headers]]\nsource = \"/*\"\nvalues = { X-New = \"1\" }\n"));
    until("the new field", || get(&daemon.address, "/").header("x-new") == Some("1"));
    assert_eq!(current_status_and_location(&daemon, "/old"), (302, "/bundle".to_owned()));
}

// Regression: after new rules of the operator had put another file of the same date at an address, `If-Modified-Since`
// was answered with 304.
#[test]
fn after_changed_operator_rules_an_old_date_causes_no_304() {
    let host = host_with_bundle(&[("index.html", "<p>home"), ("one.html", "<p>one"), ("two.html", "<p>two")]);
    let rule = |to: &str| format!("[[server.redirects]]\nsource = \"/now\"\ndestination = \"{to}\"\nstatus = 200\n");
    host.configure(&config_with_bundle(&rule("/one.html")));
    run_to_end(&mut host.command(&["sync"])).expect(0);
    let daemon = Daemon::start(&mut host.command(&["run"]));
    // Both files are of one version, and have one date.
    let rest = || {
        let date = get(&daemon.address, "/now").header("last-modified").expect("a date").to_owned();
        let response = request(&daemon.address, "GET", "/now", &["Range: bytes=3-", &format!("If-Range: {date}")]);
        (response.status, response.text())
    };
    assert_eq!(rest(), (206, "one".to_owned()));
    let date = get(&daemon.address, "/now").header("last-modified").expect("a date").to_owned();
    let since = |address: &str| request(&daemon.address, "GET", address, &[&format!("If-Modified-Since: {date}")]);
    assert_eq!((since("/now").status, since("/one").status), (304, 304));
    host.configure(&config_with_bundle(&rule("/two.html")));
    until("the new rule", || get(&daemon.address, "/now").text() == "<p>two");
    assert_eq!(rest(), (200, "<p>two".to_owned()), "ranges of two files are never combined");
    assert_eq!((since("/now").status, since("/now").text()), (200, "<p>two".to_owned()));
}

// Regression: after the rules of a new version had put another file of the same date at an address, `If-Modified-Since`
// was answered with 304.
#[test]
fn after_changed_bundle_rules_an_old_date_causes_no_304() {
    let rule = |to: &str| format!("/now {to} 200\n");
    let (one, two) = (rule("/one"), rule("/two"));
    let pages = [("index.html", "<p>home"), ("one.html", "<p>one"), ("two.html", "<p>two")];
    let host = host_with_bundle(&[&pages[..], &[("_redirects", &one)]].concat());
    host.configure(&config_with_bundle(""));
    run_to_end(&mut host.command(&["sync"])).expect(0);
    let daemon = Daemon::start(&mut host.command(&["run"]));
    let date = get(&daemon.address, "/now").header("last-modified").expect("a date").to_owned();
    let since = |address: &str| {
        let response = request(&daemon.address, "GET", address, &[&format!("If-Modified-Since: {date}")]);
        (response.status, response.text())
    };
    assert_eq!(since("/now").0, 304);
    let sync = |members: &[(&str, &str)]| {
        put_members(&host, members);
        run_to_end(&mut host.command(&["sync"])).expect(0);
    };
    // A new version with equal rules leaves the dates of unchanged files valid.
    sync(&[&pages[1..], &[("_redirects", &one), ("index.html", "<p>new")]].concat());
    until("the new version", || get(&daemon.address, "/").text() == "<p>new");
    assert_eq!(since("/now").0, 304);
    sync(&[&pages[1..], &[("_redirects", &two), ("index.html", "<p>newer")]].concat());
    until("the newest version", || get(&daemon.address, "/").text() == "<p>newer");
    assert_eq!(since("/now"), (200, "<p>two".to_owned()));
}

// Regression: a file that the configuration named for the first time was read before it was watched, so a change in
// between was never noticed.
#[test]
fn a_new_redirects_file_is_watched_before_its_rules_apply() {
    let host = host_with_bundle(&[("index.html", "<p>home")]);
    host.configure(&config_with_bundle(""));
    run_to_end(&mut host.command(&["sync"])).expect(0);
    let daemon = Daemon::start(&mut host.command(&["run"]));
    for n in 0..10 {
        let (file, next) = (host.path(&format!("moved{n}")), host.path("moved.new"));
        std::fs::write(&file, format!("/old /file{n}\n")).unwrap();
        std::fs::write(&next, format!("/old /next{n}\n")).unwrap();
        host.configure(&config_with_bundle(&format!("redirectsFile = \"moved{n}\"\n")));
        // Without a pause: the file changes as soon as its first rule counts.
        let deadline = Instant::now() + Duration::from_secs(30);
        while get(&daemon.address, "/old").header("location") != Some(format!("/file{n}").as_str()) {
            assert!(Instant::now() < deadline, "the rule of file {n} does not count");
        }
        std::fs::rename(next, file).unwrap();
        until("the changed file's rule", || current_status_and_location(&daemon, "/old").1 == format!("/next{n}"));
    }
}

#[test]
fn the_gate_follows_redirects_as_a_reader_would() {
    let lines = "/good /guides/start\n/out https://x.example/\n/bad /nowhere\n/a /b\n/b /a\n/app/* /index.html 200\n/en/* /404.html 404\n";
    let pages = [
        ("index.html", "<a href=\"/good\">x</a><a href=\"/app/x\">y</a>"),
        ("404.html", "<p>"),
        ("guides/start.html", "<p>"),
        ("_redirects", lines),
    ];
    let operator_rule = "[[server.redirects]]\nsource = \"/own\"\ndestination = \"/good\"\n";
    for (require, code) in [
        ("/good", 0),
        ("/good/", 0),
        ("/out", 0),
        ("/own", 0),
        ("/app/x", 0),
        ("/bad", 7),
        ("/a", 7),
        ("/en/x", 7),
        ("/_redirects", 7),
    ] {
        let host = host_with_bundle(&pages);
        host.configure(&config_with_bundle(&format!(
            "{operator_rule}[gate]\nrequire = [\"{require}\"]\nmaxBrokenLinks = 0\n"
        )));
        let ended = run_to_end(&mut host.command(&["sync"])).expect(code);
        assert_eq!(ended.stderr.contains("require: 404 at"), code == 7, "{require}: {}", ended.stderr);
    }
}

// Regression: a thousand patterns and a long address kept a thread busy for a third of a second.
#[test]
fn redirect_rules_do_not_apply_to_very_long_paths() {
    let dir = temporary_folder();
    let root = write_site(
        &dir.path().join("site"),
        &[("index.html", "<title>x</title>"), ("_redirects", "/* /:splat/x 302\n")],
    );
    let daemon = Daemon::serve(&root, &[]);
    assert_eq!(get(&daemon.address, &format!("/{}", "a".repeat(4000))).status, 302);
    assert_eq!(get(&daemon.address, &format!("/{}", "a".repeat(60_000))).status, 404);
}

// Regression: a rule for `/*` hid the assets of the previous version from pages that were still open.
#[test]
fn a_catch_all_rule_does_not_hide_assets_of_the_previous_version() {
    let dir = temporary_folder();
    let import_folder = |name: &str, files: &[(&str, &str)]| {
        let root = write_site(&dir.path().join(name), files);
        let config = dir.path().join("docwharf.toml");
        run_to_end(docwharf().args(["import", root.to_str().unwrap(), "--config", config.to_str().unwrap()])).expect(0);
    };
    let config = "[store]\npath = \"store\"\n[server]\nlisten = \"127.0.0.1:0\"\n[search]\nenabled = false\n";
    std::fs::write(dir.path().join("docwharf.toml"), config).unwrap();
    let asset = "assets/app.a1b2c3d4e5f6.js";
    import_folder("one", &[("index.html", "<title>one</title>"), (asset, "old()")]);
    let daemon = Daemon::start(docwharf().args(["run", "--config"]).arg(dir.path().join("docwharf.toml")));
    for (rule, status) in [("/* /index.html 200\n", 200), ("/* https://new.example/:splat 301\n", 301)] {
        import_folder("next", &[("index.html", "<title>next</title>"), ("_redirects", rule)]);
        until("the rule is in force", || get(&daemon.address, "/nowhere").status == status);
        assert_eq!(get(&daemon.address, &format!("/{asset}")).text(), "old()", "{rule}");
        std::fs::remove_dir_all(dir.path().join("next")).unwrap();
    }
}

#[test]
fn a_forced_rule_precedes_the_asset_of_the_previous_version() {
    let asset = "assets/app.a1b2c3d4e5f6.js";
    let host = host_with_bundle(&[("index.html", "<title>one</title>"), (asset, "old()")]);
    host.sync();
    let daemon = host.run();
    for (rule, status, location, body) in
        [("/moved.js 302!", 302, Some("/moved.js"), None), ("/moved.js 200!", 200, None, Some("moved()"))]
    {
        let rules = format!("/{asset} {rule}\n/marker /moved.js {status}\n");
        put_members(
            &host,
            &[("index.html", "<title>next</title>"), (asset, "new()"), ("moved.js", "moved()"), ("_redirects", &rules)],
        );
        host.sync();
        until("the rules are in force", || get(&daemon.address, "/marker").status == status);
        let response = get(&daemon.address, &format!("/{asset}"));
        assert_eq!((response.status, response.header("location")), (status, location), "{rule}: {}", response.text());
        assert!(body.is_none_or(|body| response.text() == body), "{rule}: {}", response.text());
    }
}
