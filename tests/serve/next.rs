//! Exports of Next.js: payloads under every name that its client requests, and assets of replaced versions.

use std::time::{Duration, SystemTime};

use support::host::{Host, toml_string};
use support::http::{get, request};
use support::zip::{Member, deflated, zip};
use support::{Daemon, serve_site, temporary_folder, until, write_site};

const PLAIN: &str = "text/plain; charset=utf-8";

/// The files of an export without `trailingSlash`, of one with it, and of one without it that was made on Windows.
const LAYOUTS: [&[(&str, &str)]; 3] = [
    &[
        ("guides/start.html", "<p>start"),
        ("guides/start.txt", "payload"),
        ("guides/start/__next._tree.txt", "tree"),
        ("guides/start/__next.guides.start.__PAGE__.txt", "page"),
        ("api/one/__next.api.$d$slug.__PAGE__.txt", "dynamic"),
    ],
    &[
        ("guides/start/index.html", "<p>start"),
        ("guides/start/index.txt", "payload"),
        ("guides/start/__next._tree.txt", "tree"),
        ("guides/start/__next.guides.start.__PAGE__.txt", "page"),
        ("api/one/__next.api.$d$slug.__PAGE__.txt", "dynamic"),
    ],
    &[
        ("guides/start.html", "<p>start"),
        ("guides/start.txt", "payload"),
        ("guides/start/__next._tree.txt", "tree"),
        ("guides/start/__next.guides/start/__PAGE__.txt", "page"),
        ("api/one/__next.api/$d$slug/__PAGE__.txt", "dynamic"),
    ],
];

const COMMON: [(&str, &str); 5] = [
    ("index.html", "<p>home"),
    ("index.txt", "front"),
    ("__next._tree.txt", "front tree"),
    ("404.html", "<p>the site's own page for what is missing, which is long enough not to be taken for a line of text"),
    ("_next/static/chunks/main.js", "1"),
];

#[test]
fn next_js_payloads_and_segments_are_found_in_each_export_layout() {
    for layout in LAYOUTS {
        let files: Vec<_> = COMMON.iter().chain(layout).copied().collect();
        for (base, options) in [("", &[][..]), ("/docs", &["--base-path", "/docs"])] {
            let (_dir, daemon) = serve_site(&files, options);
            for (target, body) in [
                ("/guides/start.txt", "payload"),
                ("/guides/start/index.txt", "payload"),
                ("/guides/start.txt?_rsc=1k9qz", "payload"),
                ("/index.txt?_rsc=acgkz", "front"),
                ("/__next._tree.txt", "front tree"),
                ("/guides/start/__next._tree.txt?_rsc=1", "tree"),
                ("/guides/start/__next.guides.start.__PAGE__.txt?_rsc=1", "page"),
                ("/guides/start/__next.guides/start/__PAGE__.txt", "page"),
                ("/api/one/__next.api.$d$slug.__PAGE__.txt", "dynamic"),
                ("/api/one/__next.api.%24d%24slug.__PAGE__.txt", "dynamic"),
            ] {
                let target = format!("{base}{target}");
                let response = get(&daemon.address, &target);
                assert_eq!((response.status, response.text().as_str()), (200, body), "{target} in {layout:?}");
                assert_eq!(response.header("content-type"), Some(PLAIN), "the type of a payload: {target}");
                assert_eq!(response.header("cache-control"), Some("no-cache"), "{target}");
            }
            if !base.is_empty() {
                // The client appends .txt to the path of the link to the front page.
                assert_eq!(get(&daemon.address, "/docs.txt?_rsc=1").text(), "front");
                assert_eq!(get(&daemon.address, "/docs.rsc").status, 404);
            }
            // Before it prefetches a page, the client checks with HEAD that it exists.
            for (target, status) in [("/guides/start", 200), ("/guides/start/", 200), ("/", 200), ("/nowhere", 404)] {
                let probe = request(&daemon.address, "HEAD", &format!("{base}{target}"), &[]);
                assert_eq!((probe.status, probe.body.len()), (status, 0), "HEAD {base}{target}");
            }
        }
    }
}

#[test]
fn missing_next_js_payloads_and_assets_get_a_404_of_one_line() {
    let (_dir, daemon) = serve_site(&COMMON, &[]);
    for target in [
        "/nowhere.txt",
        "/nowhere/index.txt?_rsc=1",
        "/nowhere/__next._tree.txt?_rsc=1",
        "/__next.nowhere.__PAGE__.txt",
        "/nowhere.rsc",
        "/nowhere?_rsc=1k9qz",
        "/nowhere/?a=b&_rsc",
        "/_next/static/chunks/gone.js",
        "/_next/data/build/nowhere.json",
    ] {
        let response = get(&daemon.address, target);
        assert_eq!((response.status, response.header("content-type")), (404, Some(PLAIN)), "{target}");
        assert!(response.body.len() < 100, "{target}: {}", response.text());
        assert_eq!(response.header("cache-control"), Some("max-age=60"), "{target}");
    }
    for target in ["/nowhere", "/nowhere?a=_rsc", "/nowhere?x_rsc=1"] {
        assert!(get(&daemon.address, target).text().starts_with("<p>the site's own page"), "{target}");
    }
}

#[test]
fn sites_not_exported_by_next_js_have_no_alternative_payload_names() {
    let (_dir, daemon) =
        serve_site(&[("index.html", "<p>home"), ("a.txt", "a"), ("b/index.txt", "b"), ("r.rsc", "r")], &[]);
    for target in ["/a/index.txt", "/b.txt"] {
        assert_eq!(get(&daemon.address, target).status, 404, "{target}");
    }
    assert_eq!(get(&daemon.address, "/r.rsc").header("content-type"), Some("text/x-component; charset=utf-8"));
}

// ---------------------------------------------------------------------------------------------------------------------
// Assets that outlive their version

/// The files of version `n` of a site: with assets and other files under names that no other version has.
fn members_of_version(n: u32) -> Vec<Member> {
    vec![
        deflated("index.html", &format!("<title>v{n}</title><script src=/_next/static/chunks/v{n}.js></script>")),
        deflated(&format!("_next/static/chunks/v{n}.js"), &format!("version({n})")),
        deflated(&format!("assets/main.0ab12cd{n}.css"), &format!(".v{n} {{}}")),
        deflated(&format!("assets/plain-v{n}.css"), &format!(".plain-v{n} {{}}")),
        deflated(&format!("only-v{n}.html"), &format!("<p>only v{n}")),
        deflated(&format!("_next/static/v{n}.html"), &format!("<p>no asset v{n}")),
        deflated(&format!(".git/main.0ab12cd{n}.css"), "hidden"),
        deflated(&format!("_docwharf/main.0ab12cd{n}.css"), "reserved"),
    ]
}

fn host() -> Host {
    Host::bare()
        .set("sync.interval", toml_string("100ms"))
        .set("staticExport.bundleUrl", toml_string("bundle.zip"))
        .set("server.assetGrace", toml_string("1h"))
}

#[track_caller]
fn replace_version(host: &Host, daemon: &Daemon, n: u32) {
    host.put("bundle.zip", zip(&members_of_version(n)));
    until("the next version", || is_active(daemon, n));
}

fn is_active(daemon: &Daemon, n: u32) -> bool {
    get(&daemon.address, "/").text().contains(&format!("<title>v{n}<"))
}

/// Whether the hashed assets of version `n` are served.
#[track_caller]
fn serves_assets_of(daemon: &Daemon, n: u32) -> bool {
    let script = get(&daemon.address, &format!("/_next/static/chunks/v{n}.js"));
    let style = get(&daemon.address, &format!("/assets/main.0ab12cd{n}.css"));
    if [script.status, style.status].contains(&404) {
        return false;
    }
    assert_eq!((script.status, script.text()), (200, format!("version({n})")));
    assert_eq!((style.status, style.text()), (200, format!(".v{n} {{}}")));
    assert_eq!(script.header("cache-control"), Some("max-age=31536000, immutable"));
    true
}

#[test]
fn only_hashed_assets_of_replaced_versions_are_still_served() {
    let host = host();
    host.put("bundle.zip", zip(&members_of_version(1)));
    let daemon = host.run();
    until("the first version", || is_active(&daemon, 1));
    let before = get(&daemon.address, "/_next/static/chunks/v1.js");
    replace_version(&host, &daemon, 2);
    replace_version(&host, &daemon, 3);
    for n in 1..=3 {
        assert!(serves_assets_of(&daemon, n), "v{n}");
    }
    for n in 1..=2 {
        for target in [
            format!("/only-v{n}"),
            format!("/only-v{n}.html"),
            format!("/_next/static/v{n}.html"),
            format!("/_next/static/v{n}"),
            format!("/assets/plain-v{n}.css"),
            format!("/.git/main.0ab12cd{n}.css"),
            format!("/_docwharf/main.0ab12cd{n}.css"),
            format!("/assets/main.0ab12cd{n}.css/"),
        ] {
            assert_eq!(get(&daemon.address, &target).status, 404, "{target}");
        }
    }
    // A response from a replaced version is unchanged: fields, preconditions, ranges, codings.
    let after = get(&daemon.address, "/_next/static/chunks/v1.js");
    let fields = |response: &support::http::Response| {
        let mut fields = response.headers.clone();
        fields.retain(|(name, _)| name != "date");
        fields
    };
    assert_eq!((fields(&before), before.body), (fields(&after), after.body));
    let tag = after.headers.iter().find(|(name, _)| name == "etag").map(|(_, tag)| format!("If-None-Match: {tag}"));
    let target = "/_next/static/chunks/v1.js";
    assert_eq!(request(&daemon.address, "GET", target, &[&tag.expect("a tag")]).status, 304);
    assert_eq!(request(&daemon.address, "GET", target, &["Range: bytes=0-6"]).text(), "version");
    assert_eq!(request(&daemon.address, "HEAD", target, &["Accept-Encoding: gzip"]).status, 200);
}

#[test]
fn a_restart_a_rollback_and_a_release_lose_no_asset() {
    let host = host();
    host.put("bundle.zip", zip(&members_of_version(1)));
    let mut daemon = host.run();
    until("the first version", || is_active(&daemon, 1));
    replace_version(&host, &daemon, 2);
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
    let mut daemon = host.run();
    until("the assets after a restart", || serves_assets_of(&daemon, 1));
    host.ok(&["rollback"]);
    assert!(is_active(&daemon, 1));
    assert!(serves_assets_of(&daemon, 1) && serves_assets_of(&daemon, 2));
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
    let daemon = host.run();
    until("the assets of the version that was rolled back", || serves_assets_of(&daemon, 2));
    host.ok(&["release"]);
    until("the newest again", || is_active(&daemon, 2));
    assert!(serves_assets_of(&daemon, 1) && serves_assets_of(&daemon, 2));
}

/// Waits until the clock's second changes, so that a version sealed after it has another date.
fn wait_for_next_second() {
    let second = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970").as_secs();
    let now = second();
    until("the next second", || second() > now);
}

// Regression: after a rollback, If-Modified-Since with the date of the newer version was answered with 304 although the
// bytes differ.
#[test]
fn after_a_rollback_the_date_of_the_newer_version_causes_no_304() {
    let host = host();
    host.put("bundle.zip", zip(&members_of_version(1)));
    let mut daemon = host.run();
    until("the first version", || is_active(&daemon, 1));
    let date = |daemon: &Daemon| get(&daemon.address, "/").header("last-modified").expect("a date").to_owned();
    let first = date(&daemon);
    wait_for_next_second();
    replace_version(&host, &daemon, 2);
    let second = date(&daemon);
    assert_ne!(first, second);
    host.ok(&["rollback"]);
    for _ in 0..2 {
        until("the first version again", || is_active(&daemon, 1));
        let send =
            |fields: &[&str]| request(&daemon.address, "GET", "/", &[fields, &["Accept-Encoding: identity"]].concat());
        let status_with_date = |name: &str, date: &str| send(&[&format!("{name}: {date}")]).status;
        let stale = send(&[&format!("If-Modified-Since: {second}")]);
        assert_eq!((stale.status, stale.text().contains("<title>v1<")), (200, true), "the bytes differ");
        assert_eq!(status_with_date("If-Unmodified-Since", &second), 412);
        assert_eq!(
            (status_with_date("If-Modified-Since", &first), status_with_date("If-Unmodified-Since", &first)),
            (304, 200)
        );
        let later = "Fri, 31 Dec 2100 23:59:59 GMT";
        assert_eq!(
            (status_with_date("If-Modified-Since", later), status_with_date("If-Unmodified-Since", later)),
            (304, 200)
        );
        // Since that second, the address has had other content.
        let range = send(&["Range: bytes=0-1", &format!("If-Range: {first}")]);
        assert_eq!(range.status, 200);
        // After a restart, the daemon knows that from its history.
        daemon.signal("TERM");
        assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
        daemon = host.run();
    }
}

// Regression: two versions that were sealed within one second had the same date for different contents.
#[test]
fn versions_that_are_sealed_within_one_second_do_not_share_a_date() {
    let host = host();
    host.put("bundle.zip", zip(&members_of_version(1)));
    let daemon = host.run();
    until("the first version", || is_active(&daemon, 1));
    let date = || get(&daemon.address, "/").header("last-modified").expect("a date").to_owned();
    let mut before = date();
    for n in 2..=8 {
        replace_version(&host, &daemon, n);
        let now = date();
        assert_ne!(before, now, "version {n} and the one before");
        before = now;
    }
}

#[test]
fn asset_grace_counts_from_the_replacement_even_if_the_daemon_was_down() {
    let host = host();
    for n in 1..=3 {
        host.put("bundle.zip", zip(&members_of_version(n)));
        host.ok(&["sync"]);
    }
    let mut daemon = host.run();
    until("the assets", || serves_assets_of(&daemon, 1) && serves_assets_of(&daemon, 2));
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
    // As if all of it had happened two years ago.
    for name in ["store/history.jsonl", "store/state.json"] {
        let path = host.path(name);
        let text = std::fs::read_to_string(&path).expect("it can be read");
        std::fs::write(&path, two_years_earlier(&text)).expect("it can be written");
    }
    let daemon = host.run();
    // The daemon opens replaced versions before its next check of the source ends with a new version.
    replace_version(&host, &daemon, 4);
    replace_version(&host, &daemon, 5);
    assert!(serves_assets_of(&daemon, 4), "the version replaced now is retained");
    assert!(!serves_assets_of(&daemon, 1) && !serves_assets_of(&daemon, 2), "versions replaced too long ago are not");
}

/// `text` with each time of the current year moved to two years earlier.
fn two_years_earlier(text: &str) -> String {
    let year = this_year();
    text.replace(&format!("\"{year}-"), &format!("\"{}-", year - 2))
}

fn this_year() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock that is set");
    1970 + since.as_secs() / 31_556_952
}

#[test]
fn assets_of_retained_versions_are_served_and_of_pruned_ones_are_not() {
    let host = host().set("sync.keep", "1");
    host.put("bundle.zip", zip(&members_of_version(1)));
    let daemon = host.run();
    until("the first version", || is_active(&daemon, 1));
    for n in 2..=5 {
        replace_version(&host, &daemon, n);
    }
    let ids = || host.ok(&["versions", "--json"]).json()["versions"].as_array().expect("a list").len();
    // Active, previous, and one more: retained assets do not prevent pruning.
    until("older versions are pruned", || ids() == 3);
    assert!(!serves_assets_of(&daemon, 1) && !serves_assets_of(&daemon, 2));
    assert!(serves_assets_of(&daemon, 3) && serves_assets_of(&daemon, 4) && serves_assets_of(&daemon, 5));
    host.ok(&["store", "verify"]);
}

#[test]
fn with_asset_grace_0s_no_asset_of_a_replaced_version_is_served() {
    let host = host().set("server.assetGrace", toml_string("0s"));
    host.put("bundle.zip", zip(&members_of_version(1)));
    let daemon = host.run();
    until("the first version", || is_active(&daemon, 1));
    replace_version(&host, &daemon, 2);
    assert!(!serves_assets_of(&daemon, 1) && serves_assets_of(&daemon, 2));
}

#[test]
fn assets_of_a_replaced_version_get_404_after_asset_grace() {
    let host = host().set("server.assetGrace", toml_string("2s"));
    host.put("bundle.zip", zip(&members_of_version(1)));
    let daemon = host.run();
    until("the first version", || is_active(&daemon, 1));
    replace_version(&host, &daemon, 2);
    until("the end of the grace time", || !serves_assets_of(&daemon, 1));
    assert!(serves_assets_of(&daemon, 2));
}

#[test]
fn a_watched_folder_still_serves_hashed_assets_of_its_earlier_content() {
    let dir = temporary_folder();
    let root = dir.path().join("site");
    let write_version = |n: u32| {
        let page = format!("<title>v{n}</title>");
        let (script, style) = (format!("_next/static/chunks/v{n}.js"), format!("assets/main.0ab12cd{n}.css"));
        let files = [("index.html", page), (&script, format!("version({n})")), (&style, format!(".v{n} {{}}"))];
        let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        write_site(&root, &files);
    };
    write_version(1);
    let daemon = Daemon::serve(&root, &["--watch"]);
    for n in 2..=3 {
        std::fs::remove_dir_all(root.join("_next")).expect("a folder can be removed");
        std::fs::remove_dir_all(root.join("assets")).expect("a folder can be removed");
        write_version(n);
        until("the next version", || is_active(&daemon, n));
    }
    for n in 1..=3 {
        assert!(serves_assets_of(&daemon, n), "v{n}");
    }
}
