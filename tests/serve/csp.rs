//! Fields of a response that protect readers, and the content security policy of each page.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use docwharf::model::digest::Digest;
use support::host::{Host, toml_string};
use support::http::{self, Response};
use support::zip::{deflated, zip};
use support::{Daemon, serve_site, until_done_in_background};

const INLINE: &str = "document.title = 'ran';";
const CSP: &str = "content-security-policy";
const REPORT: &str = "content-security-policy-report-only";

/// The hash source (CSP Level 3) that allows an inline script or style with this text.
fn hash(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes = Digest::compute(text.as_bytes()).0;
    let mut out = String::new();
    // In Base64, 256 bits are 42 letters of six bits, one letter of four, and one `=`.
    for n in 0..43 {
        let bit = n * 6;
        let word = u16::from(bytes[bit / 8]) << 8 | u16::from(bytes.get(bit / 8 + 1).copied().unwrap_or(0));
        out.push(char::from(LETTERS[usize::from(word >> (10 - bit % 8)) & 63]));
    }
    format!("'sha256-{out}='")
}

fn directive<'a>(policy: &'a str, name: &str) -> &'a str {
    policy.split("; ").find_map(|part| part.strip_prefix(name)?.strip_prefix(' ')).unwrap_or_default()
}

fn policy(response: &Response) -> &str {
    response.header(CSP).unwrap_or_default()
}

/// Waits until the policy of `page` has `source`: then the policies of the served version are computed.
#[track_caller]
fn wait_for_policy(address: &str, page: &str, source: &str) -> String {
    let mut last = String::new();
    until_done_in_background(&format!("the policy of {page} has {source}"), || {
        policy(&http::get(address, page)).clone_into(&mut last);
        last.contains(source)
    });
    last
}

fn page(content: &str) -> String {
    format!("<!doctype html><title>x</title>{content}<p>text")
}

fn bundle(pages: &[(&str, String)]) -> Vec<u8> {
    zip(&pages.iter().map(|(name, text)| deflated(name, text)).collect::<Vec<_>>())
}

fn host(preset: &str) -> Host {
    Host::bare().set("server.csp", toml_string(preset))
}

fn import_bundle(host: &Host, pages: &[(&str, String)]) {
    host.put("bundle.zip", bundle(pages));
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
}

/// `start_run`, and where it says what it has to say.
fn start_run(host: &Host) -> (Daemon, PathBuf) {
    let log = host.path("log");
    let daemon = Daemon::start(host.command(&["run"]).stderr(File::create(&log).unwrap()));
    (daemon, log)
}

fn log_contains(log: &Path, part: &str) -> bool {
    std::fs::read_to_string(log).unwrap().contains(part)
}

fn policy_path(host: &Host) -> PathBuf {
    host.path("store").join("derived").join(host.active().unwrap()).join("csp")
}

#[test]
fn every_response_has_the_security_headers() {
    let (_dir, daemon) = serve_site(&[("index.html", "<p>x"), ("a.png", "x"), ("d/index.html", "<p>x")], &[]);
    let get = |target: &str, fields: &[&str]| http::request(&daemon.address, "GET", target, fields);
    let tag = get("/", &[]).header("etag").unwrap().to_owned();
    let matching = format!("If-None-Match: {tag}");
    for (response, status) in [
        (get("/", &[]), 200),
        (get("/a.png", &[]), 200),
        (get("/", &[&matching]), 304),
        (get("/a.png", &["Range: bytes=0-0"]), 206),
        (get("/d", &[]), 307),
        (get("/none", &[]), 404),
        (get("/none.js", &[]), 404),
        (http::request(&daemon.address, "DELETE", "/", &[]), 405),
        (http::request(&daemon.address, "OPTIONS", "/", &[]), 204),
        (http::request(&daemon.address, "HEAD", "/", &[]), 200),
    ] {
        assert_eq!(response.status, status);
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{status}");
        assert_eq!(response.header("referrer-policy"), Some("strict-origin-when-cross-origin"), "{status}");
        assert_eq!(response.header("x-frame-options"), Some("SAMEORIGIN"), "{status}");
        assert_eq!(response.header(CSP), None, "{status}");
        assert_eq!(response.header("strict-transport-security"), None, "plain http, {status}");
    }
}

#[test]
fn frames_and_referrer_policy_settings_set_the_security_headers() {
    for (frames, old, new) in
        [("same", Some("SAMEORIGIN"), "'self'"), ("none", Some("DENY"), "'none'"), ("any", None, "")]
    {
        let host = host("airgap")
            .set("server.frames", toml_string(frames))
            .set("server.referrerPolicy", toml_string("no-referrer"));
        import_bundle(&host, &[("index.html", page(""))]);
        let daemon = host.run();
        let response = http::get(&daemon.address, "/");
        assert_eq!(response.header("x-frame-options"), old, "{frames}");
        assert_eq!(directive(policy(&response), "frame-ancestors"), new, "{frames}");
        assert_eq!(response.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(response.header("x-dns-prefetch-control"), Some("off"));
    }
    let host = Host::bare().set("server.referrerPolicy", toml_string("off"));
    import_bundle(&host, &[("index.html", page(""))]);
    assert_eq!(http::get(&host.run().address, "/").header("referrer-policy"), None);
}

#[test]
fn a_new_version_is_never_sent_with_the_policy_of_the_previous_version() {
    let host = host("connected");
    import_bundle(&host, &[("index.html", page("<img src=\"https://old.example/a.png\">"))]);
    let (daemon, _) = start_run(&host);
    wait_for_policy(&daemon.address, "/", "https://old.example");
    // Computing the policies of so many pages takes longer than a response.
    let script = |n: usize| format!("<script>document.title = {n};</script>");
    let long = |n: usize| page(&script(n).repeat(500));
    let names: Vec<String> = (0..300).map(|n| format!("{n}.html")).collect();
    let mut pages: Vec<(&str, String)> = names.iter().enumerate().map(|(n, name)| (&**name, long(n))).collect();
    pages.push(("index.html", page("<img src=\"https://new.example/a.png\">")));
    std::thread::scope(|scope| {
        scope.spawn(|| import_bundle(&host, &pages));
        let mut without = 0;
        until_done_in_background("the new version has its own policy", || {
            let response = http::get(&daemon.address, "/");
            if !response.text().contains("new.example") {
                return false;
            }
            match response.header(CSP) {
                None => without += 1,
                Some(policy) => assert!(policy.contains("https://new.example"), "{policy}"),
            }
            response.header(CSP).is_some()
        });
        assert!(without > 0, "no response was sent before the policies were computed");
    });
}

#[test]
fn config_check_lists_the_valid_values_of_security_settings() {
    for (key, value, expected) in [
        ("server.csp", "strict", "airgap"),
        ("server.frames", "self", "\\\"same\\\""),
        ("server.referrerPolicy", "never", "no-referrer"),
        ("server.cspSize", "100", "1KiB"),
    ] {
        let ended = Host::bare().set(key, toml_string(value)).expect_exit(2, &["config", "check"]);
        let stderr = ended.stderr.replace('"', "\\\"");
        assert!(stderr.contains(&format!("{key}: ")) && stderr.contains(expected), "{key}: {}", ended.stderr);
    }
}

#[test]
fn a_policy_has_the_script_hashes_of_its_page_and_the_origins_of_all_pages() {
    let host = host("connected");
    let other_script = "go();";
    import_bundle(
        &host,
        &[
            ("index.html", page(&format!("<script>{INLINE}</script><style>p {{}}</style>"))),
            ("plain.html", page("<style>p {}</style><p style='color:red'>x")),
            ("click.html", page("<button onclick='go()'>x</button><img src='https://img.example/a.png'>")),
            ("both.html", page(&format!("<script>{INLINE}</script><script>{other_script}</script>"))),
            ("none.html", page("")),
            ("404.html", page("<script>lost()</script>")),
            (
                "style.css",
                "@import 'https://css.example/a.css'; @font-face { src: url(https://font.example/f) }".into(),
            ),
            ("app.js", "fetch('https://api.example/v1'); WebAssembly.compile(x)".into()),
            ("a.svg", "<svg xmlns='http://www.w3.org/2000/svg'><script>x()</script></svg>".into()),
            ("a.png", "x".into()),
        ],
    );
    let daemon = host.run();
    let index = wait_for_policy(&daemon.address, "/", &hash(INLINE));
    assert_eq!(directive(&index, "script-src"), format!("'self' {} 'wasm-unsafe-eval'", hash(INLINE)));
    assert_eq!(directive(&index, "style-src"), "'self' 'unsafe-inline' https://css.example");
    let policy_at = |target: &str| policy(&http::get(&daemon.address, target)).to_owned();
    let plain = policy_at("/plain");
    assert_eq!(directive(&plain, "script-src"), "'self' 'wasm-unsafe-eval'");
    let styles = format!("'self' 'unsafe-hashes' {} {} https://css.example", hash("p {}"), hash("color:red"));
    assert_eq!(directive(&plain, "style-src"), styles);
    let click = policy_at("/click");
    assert_eq!(directive(&click, "script-src"), format!("'self' 'unsafe-hashes' {} 'wasm-unsafe-eval'", hash("go()")));
    assert_eq!(
        directive(&policy_at("/both"), "script-src"),
        format!("'self' {} {} 'wasm-unsafe-eval'", hash(INLINE), hash(other_script))
    );
    // After soft navigation (without a page load), other pages are under the policy of the first page.
    for target in ["/none", "/both", "/click"] {
        let policy = policy_at(target);
        assert!(directive(&policy, "img-src").ends_with(" https://img.example"), "{target}: {policy}");
        assert!(directive(&policy, "font-src").contains("https://font.example"), "{target}: {policy}");
        assert!(directive(&policy, "connect-src").ends_with(" https://api.example"), "{target}: {policy}");
    }
    assert!(policy_at("/no/such/page").contains(&hash("lost()")), "the site's own 404 page");
    // A file other than a page that can run scripts has a policy without hashes. Any other file has no policy.
    for target in ["/app.js", "/a.svg"] {
        assert!(policy_at(target).contains("script-src 'self' 'unsafe-inline'"), "{target}");
    }
    assert_eq!(policy_at("/a.png"), "");
    let response = http::get(&daemon.address, "/");
    let head = http::request(&daemon.address, "HEAD", "/", &[]);
    let tag = format!("If-None-Match: {}", response.header("etag").unwrap());
    let not_modified = http::request(&daemon.address, "GET", "/", &[&tag]);
    assert_eq!(
        (head.header(CSP), not_modified.header(CSP), not_modified.status),
        (response.header(CSP), response.header(CSP), 304)
    );
}

#[test]
fn the_airgap_policy_blocks_other_origins_from_the_first_response_on() {
    let host = host("airgap");
    let mut pages: Vec<(String, String)> = (0..400)
        .map(|n| (format!("p{n}.html"), page(&format!("<script>a({n})</script><img src='https://x.example/{n}'>"))))
        .collect();
    pages.push(("index.html".to_owned(), page(&format!("<script>{INLINE}</script>"))));
    let pages: Vec<(&str, String)> = pages.iter().map(|(name, text)| (name.as_str(), text.clone())).collect();
    import_bundle(&host, &pages);
    let (daemon, log) = start_run(&host);
    let first = http::get(&daemon.address, "/");
    for name in ["default-src", "script-src", "style-src"] {
        assert!(directive(policy(&first), name).starts_with("'self'"), "{}", policy(&first));
    }
    assert!(!policy(&first).contains("example") && !policy(&first).contains("http"), "{}", policy(&first));
    let page_policy = wait_for_policy(&daemon.address, "/p7", &hash("a(7)"));
    assert!(!page_policy.contains("example") && !page_policy.contains(&hash("a(8)")), "{page_policy}");
    until_done_in_background("the summary is logged", || log_contains(&log, "the longest policy has"));
    assert!(log_contains(&log, "until then, other origins are refused"));
    until_done_in_background("the status reports it", || host.status()["daemon"]["csp"]["ready"] == true);
    let csp = &host.status()["daemon"]["csp"];
    assert_eq!((&csp["pages"], &csp["preset"], &csp["tooLong"]), (&401.into(), &"airgap".into(), &0.into()));
    assert_eq!(csp["version"], host.status()["active"]);
    assert!(host.ok(&["status"]).stdout.contains("policy     airgap: 401 pages"), "{}", host.ok(&["status"]).stdout);
    // The policy is sent without a version, too.
    let empty = Host::bare().set("server.csp", toml_string("airgap")).set("sync.inbox", toml_string("inbox"));
    std::fs::create_dir(empty.path("inbox")).unwrap();
    let response = http::get(&empty.run().address, "/");
    assert_eq!(response.status, 503);
    assert!(directive(policy(&response), "default-src").starts_with("'self'"));
}

#[test]
fn the_report_preset_sends_a_report_only_policy() {
    let host = host("report");
    import_bundle(&host, &[("index.html", page(&format!("<script>{INLINE}</script>")))]);
    let daemon = host.run();
    until_done_in_background("the policy is computed", || http::get(&daemon.address, "/").header(REPORT).is_some());
    let response = http::get(&daemon.address, "/");
    assert!(response.header(REPORT).unwrap().contains(&hash(INLINE)));
    assert_eq!(response.header(CSP), None);
}

#[test]
fn a_page_with_too_many_inline_scripts_allows_all_of_them_and_is_reported() {
    let many = |n: usize| {
        let scripts: Vec<String> = (0..n).map(|n| format!("<script>self.push({n})</script>")).collect();
        page(&scripts.concat())
    };
    let pages =
        [("index.html", many(300)), ("few.html", many(20)), ("code.html", page("<a href='javascript:go()'>x</a>"))];
    let host = host("connected");
    import_bundle(&host, &pages);
    let (daemon, log) = start_run(&host);
    let few = wait_for_policy(&daemon.address, "/few", &hash("self.push(19)"));
    assert!(few.len() <= 3072, "{}", few.len());
    let policy_at = |target: &str| policy(&http::get(&daemon.address, target)).to_owned();
    for target in ["/", "/code"] {
        assert_eq!(directive(&policy_at(target), "script-src"), "'self' 'unsafe-inline'", "{target}");
    }
    until_done_in_background("the summary is logged", || log_contains(&log, "cannot be named for certain"));
    assert!(log_contains(&log, "1 of 3 pages have more inline scripts than a policy of 3072 bytes (server.cspSize)"));
    until_done_in_background("the status reports it", || host.status()["daemon"]["csp"]["ready"] == true);
    let csp = &host.status()["daemon"]["csp"];
    assert_eq!((&csp["tooLong"], &csp["unsure"]), (&1.into(), &1.into()));
    drop(daemon);
    // A larger `server.cspSize` has space for all hashes. The pages are not read again for it.
    let host = host.set("server.cspSize", toml_string("20KiB"));
    let (daemon, log) = start_run(&host);
    let policy = wait_for_policy(&daemon.address, "/", &hash("self.push(299)"));
    assert!(policy.len() > 16_000, "{}", policy.len());
    assert!(!log_contains(&log, "reading the pages"));
}

#[test]
fn policies_are_computed_once_per_version_and_again_if_their_file_is_damaged() {
    let host = host("airgap");
    import_bundle(&host, &[("index.html", page(&format!("<script>{INLINE}</script>")))]);
    let start = || {
        let (daemon, log) = start_run(&host);
        wait_for_policy(&daemon.address, "/", &hash(INLINE));
        until_done_in_background("the summary is logged", || log_contains(&log, "the longest policy has"));
        drop(daemon);
        log_contains(&log, "reading the pages")
    };
    assert!(start());
    let valid = std::fs::read(policy_path(&host)).unwrap();
    let metadata = std::fs::metadata(policy_path(&host)).unwrap();
    assert!(!start(), "the stored policies are used");
    assert_eq!(std::fs::metadata(policy_path(&host)).unwrap().ino(), metadata.ino());
    for bytes in [&valid[..valid.len() - 1], b"", &[&valid[..50], b"x", &valid[51..]].concat()] {
        std::fs::write(policy_path(&host), bytes).unwrap();
        assert!(start(), "{} bytes", bytes.len());
        assert_eq!(std::fs::read(policy_path(&host)).unwrap(), valid);
    }
    // The whole folder may be removed at any time.
    std::fs::remove_dir_all(host.path("store/derived")).unwrap();
    assert!(start());
    assert_eq!(std::fs::read(policy_path(&host)).unwrap(), valid);
    // If the policies cannot be stored, the site has them all the same.
    std::fs::remove_dir_all(host.path("store/derived")).unwrap();
    std::fs::write(host.path("store/derived"), "in the way").unwrap();
    let (daemon, log) = start_run(&host);
    wait_for_policy(&daemon.address, "/", &hash(INLINE));
    drop(daemon);
    assert!(log_contains(&log, "computed again") || host.path("store/derived").is_dir());
}

#[test]
fn policies_are_removed_with_their_version_and_partial_ones_when_the_store_opens() {
    let host = host("airgap").set("sync.keep", "0");
    let pages = |n: u32| [("index.html", page(&format!("<script>v({n})</script>")))];
    import_bundle(&host, &pages(1));
    let first = policy_path(&host);
    let daemon = host.run();
    for n in 1..=4 {
        if n > 1 {
            import_bundle(&host, &pages(n));
        }
        wait_for_policy(&daemon.address, "/", &hash(&format!("v({n})")));
        let policy_file = policy_path(&host);
        until_done_in_background("the policies are stored", || policy_file.exists());
    }
    until_done_in_background("the first version is removed", || !first.parent().unwrap().exists());
    drop(daemon);
    let (policy_file, orphan) = (policy_path(&host), host.path("store/derived").join("ab".repeat(32)));
    std::fs::write(policy_file.with_file_name(".csp.new"), "half").unwrap();
    std::fs::create_dir_all(&orphan).unwrap();
    std::fs::write(orphan.join("csp"), "of no version").unwrap();
    std::fs::write(host.path("store/derived/stray"), "x").unwrap();
    host.ok(&["hold", "--reason", "to open the store"]);
    assert!(!orphan.exists() && !policy_file.with_file_name(".csp.new").exists() && policy_file.exists());
    assert!(!host.path("store/derived/stray").exists());
    host.ok(&["store", "verify"]);
    assert_eq!(std::fs::metadata(&policy_file).unwrap().permissions().mode() & 0o777, 0o644);
}

#[test]
fn serve_computes_policies_in_memory_and_again_after_a_change() {
    let (dir, daemon) =
        serve_site(&[("index.html", &page(&format!("<script>{INLINE}</script>")))], &["--csp", "airgap", "--watch"]);
    wait_for_policy(&daemon.address, "/", &hash(INLINE));
    std::fs::write(dir.path().join("site/index.html"), page("<script>changed()</script>")).unwrap();
    let policy = wait_for_policy(&daemon.address, "/", &hash("changed()"));
    assert!(!policy.contains(&hash(INLINE)));
}

#[test]
fn a_page_cannot_inject_directives_into_its_policy() {
    let hostile = "<img src='https://a;sandbox/'><img src='https://*/'><img src='https://ok.example;script-src *'>\
                   <script src=\"https://x.example' 'unsafe-eval/\"></script><base href='https://*'>";
    let host = host("connected");
    import_bundle(&host, &[("index.html", page(&format!("{hostile}<script>{INLINE}</script>")))]);
    let policy = wait_for_policy(&host.run().address, "/", &hash(INLINE));
    for word in ["sandbox", "*", "unsafe-eval", "script-src *"] {
        assert!(!policy.contains(word), "{word} in {policy}");
    }
}

/// Serves a site of these files, waits for its policies, and returns the one of `target`.
fn policy_of(pages: &[(&str, String)], target: &str) -> String {
    let host = host("connected");
    let last = [("last.html", page(&format!("<script>{INLINE}</script>")))];
    import_bundle(&host, &[pages, &last].concat());
    let daemon = host.run();
    wait_for_policy(&daemon.address, "/last", &hash(INLINE));
    policy(&http::get(&daemon.address, target)).to_owned()
}

// Regression: the policy refused modules that an import map names.
#[test]
fn a_policy_allows_import_maps_speculation_rules_and_mapped_modules() {
    let map = r#"{"imports": {"a": "https://esm.example/a.js", "b/": "/own/b/"}, "integrity": {"https://int.example/c": "x"},
        "scopes": {"https://scope.example/x/": {"c": "//in.example/c.js", "d": null}}}"#;
    let rules = r#"{"prefetch": [{"urls": ["https://next.example/"]}]}"#;
    let data = r#"{"@id": "https://data.example/"}"#;
    let html = format!(
        "<script type=importmap>{map}</script><script type=speculationrules>{rules}</script>\
         <script type='application/ld+json'>{data}</script>"
    );
    let policy = policy_of(&[("index.html", page(&html))], "/");
    let scripts = directive(&policy, "script-src");
    let origins = "https://esm.example https://int.example https://scope.example in.example";
    assert_eq!(scripts, format!("'self' {} {} {origins}", hash(map), hash(rules)));
    assert!(!policy.contains("next.example") && !policy.contains("data.example"), "{policy}");
}

// Regression: addresses in `image-set` and addresses with escapes in style sheets were missed, and names of namespaces
// and `curl(` were read as images.
#[test]
fn style_sheets_are_parsed_for_image_origins_as_browsers_parse_them() {
    let css = r#"@namespace svg url(http://no1.example/svg); @namespace "http://no2.example/";
        a { background: image-set("https://set.example/a.png" 1x, url(https://url.example/b.png) 2x) }
        b { background: -webkit-image-set('https://old.example/a.png' type("image/png") 1x); x: curl(https://no3.example/) }
        c { background: u\72l(https\3a//escaped.example/c.png) } /* url(https://no4.example/) */"#;
    let policy = policy_of(&[("index.html", page("")), ("a.css", css.to_owned())], "/");
    let images = "https://escaped.example https://old.example https://set.example https://url.example";
    assert_eq!(directive(&policy, "img-src"), format!("'self' data: blob: {images}"));
}

// Regression: XHTML and other XML documents were never read, and neither prefixes nor style instructions of SVG
// documents.
#[test]
fn policies_cover_the_origins_and_inline_scripts_of_xml_documents() {
    let xhtml = r#"<?xml version="1.0"?><?xml-stylesheet href="https://css.example/a.css" type="text/css"?>
        <!DOCTYPE html><html xmlns="http://www.w3.org/1999/xhtml" xmlns:s="http://www.w3.org/2000/svg"><head><title/>
        <script src="https://js.example/a.js"/><script>//<![CDATA[
        if (1 < 2) fetch("https://api.example/v1"); //]]></script></head><body><br/><img src="https://img.example/a.png"/>
        <!-- <img src="https://no.example/a.png"/> --><s:svg><s:image href="https://drawn.example/a.png"/></s:svg></body></html>"#;
    let feed = r#"<feed xmlns="http://www.w3.org/2005/Atom"><link rel="icon" href="https://feed.example/"/></feed>"#;
    let drawing = r#"<?xml-stylesheet href='https://svgcss.example/a.css'?><svg xmlns="http://www.w3.org/2000/svg"><style><![CDATA[
        a { fill: url(https://filled.example/) } ]]></style><script/><image href="https://behind.example/a.png"/></svg>"#;
    for name in ["doc.xhtml", "doc.xht", "doc.xml"] {
        let files = |xhtml: &str| {
            [("index.html", page("")), (name, xhtml.into()), ("feed.xml", feed.into()), ("d.svg", drawing.into())]
        };
        let policy = policy_of(&files(xhtml), &format!("/{name}"));
        assert_eq!(directive(&policy, "script-src"), "'self' 'unsafe-inline' https://js.example", "{name}");
        // With an external script, images, styles and connections of any origin are allowed.
        let policy = policy_of(&files(&xhtml.replace("https://js.example", "")), &format!("/{name}"));
        let sources = |name: &str| directive(&policy, name).to_owned();
        assert_eq!(sources("script-src"), "'self' 'unsafe-inline'", "{name}");
        assert_eq!(sources("style-src"), "'self' 'unsafe-inline' https://css.example https://svgcss.example", "{name}");
        for host in ["img", "drawn", "filled", "behind"] {
            assert!(sources("img-src").contains(&format!(" https://{host}.example")), "{name}, {host}: {policy}");
        }
        assert!(sources("connect-src").contains(" https://api.example"), "{name}: {policy}");
        assert!(!policy.contains("no.example") && !policy.contains("feed.example"), "{name}: {policy}");
    }
}

// Regression: the hosts of many images displaced the origins of scripts from the policy.
#[test]
fn many_image_hosts_do_not_displace_script_origins_from_the_policy() {
    let mut pages: Vec<(String, String)> =
        (0..300).map(|n| (format!("a{n}.html"), page(&format!("<img src='https://i{n}.example/'>")))).collect();
    pages.push(("index.html".to_owned(), page("<script src='https://js.example/a.js'></script>")));
    let pages: Vec<(&str, String)> = pages.iter().map(|(name, text)| (name.as_str(), text.clone())).collect();
    let policy = policy_of(&pages, "/");
    assert_eq!(directive(&policy, "script-src"), "'self' https://js.example");
    assert_eq!(directive(&policy, "img-src"), "'self' data: blob: http: https:");
}

// Regression: an inline handler with `&&` made its page allow all inline scripts, and the digest of one with `&#13;`
// was wrong.
#[test]
fn inline_handlers_with_character_references_are_hashed_correctly() {
    for (written, decoded) in [
        ("a()&&b()", "a()&&b()"),
        ("go('?a=1&copy=2&lt1&amp=3')", "go('?a=1&copy=2&lt1&amp=3')"),
        ("a(&lt;b&gt, &#38;&#x80;&apos;&eacute )", "a(<b>, &\u{20ac}'\u{e9} )"),
        ("a(&#13;&#10;)", "a(\r\n)"),
    ] {
        let policy = policy_of(&[("index.html", page(&format!("<p onclick=\"{written}\">x")))], "/");
        assert_eq!(directive(&policy, "script-src"), format!("'self' 'unsafe-hashes' {}", hash(decoded)), "{written}");
    }
}

// Regression: an inline script with an `href` was treated as an external script.
#[test]
fn a_script_with_an_href_is_external_only_in_svg() {
    let html = "<script href='a.js'>here()</script><svg><script href='b.js'/><script src='c.js'>drawn()</script></svg>";
    let policy = policy_of(&[("index.html", page(html))], "/");
    assert_eq!(directive(&policy, "script-src"), format!("'self' {} {}", hash("here()"), hash("drawn()")));
}

// Regression: the digest of a script in an inline SVG with a comment in it covered only its first half.
#[test]
fn an_svg_script_split_by_a_comment_is_not_allowed_by_a_partial_hash() {
    let html = "<svg><script>a()<!-- x -->;b()</script></svg>";
    let policy = policy_of(&[("index.html", page(html))], "/");
    assert_eq!(directive(&policy, "script-src"), "'self' 'unsafe-inline'");
}

// Regression: the policy lacked what handlers fetch, and that they compile code from text.
#[test]
fn a_policy_allows_fetches_and_eval_in_inline_handlers() {
    let html = "<p onclick=\"fetch('https://api.example/v1')\" onmouseover=\"eval('1')\">\
                <iframe srcdoc='&check; <img src=https://img.example/a.png>'></iframe>\
                <p style='background: url(https://bg.example/&check;)'>";
    let policy = policy_of(&[("index.html", page(html))], "/");
    assert_eq!(
        directive(&policy, "script-src"),
        "'self' 'unsafe-inline' 'unsafe-eval'",
        "the frame's scripts cannot be read for certain"
    );
    assert!(directive(&policy, "connect-src").ends_with(" https://api.example"), "{policy}");
    assert!(directive(&policy, "img-src").ends_with(" https://bg.example https://img.example"), "{policy}");
}

// Regression: documents that browsers render under other names than `.html`, `.xml` or `.svg` (`.shtml`, `.xsl`,
// `.rdf`, `.atom`), and texts that a rule sends as pages, had no policy, not even under `airgap`.
#[test]
fn every_document_type_that_can_run_scripts_has_a_policy() {
    const SCRIPTABLE_NAMES: [&str; 12] = [
        "old.shtml",
        "help.hxt",
        "a.xsl",
        "a.xslt",
        "a.xsd",
        "a.rng",
        "a.wsdl",
        "a.rdf",
        "a.mathml",
        "a.atom",
        "a.rss",
        "a.jsx",
    ];
    let xhtml = r#"<html xmlns="http://www.w3.org/1999/xhtml"><script>fetch("https://evil.example/")</script></html>"#;
    let rules = "/typed.txt\n  Content-Type: text/html\n/lists/*\n  Content-Type: text/plain, Text/HTML;charset=utf-8\n\
                 /plain.txt\n  Content-Type: text/plain;charset=us-ascii\n";
    let host = host("airgap");
    let names = ["typed.txt", "plain.txt", "lists/a.txt", "other.txt", "a.css", "a.json"];
    let mut files: Vec<(&str, String)> =
        SCRIPTABLE_NAMES.iter().chain(&names).map(|&name| (name, xhtml.to_owned())).collect();
    files.extend([("index.html", page("")), ("_headers", rules.to_owned())]);
    import_bundle(&host, &files);
    let daemon = host.run();
    let policy_at = |name: &str| policy(&http::get(&daemon.address, &format!("/{name}"))).to_owned();
    for name in SCRIPTABLE_NAMES.into_iter().chain(["typed.txt", "lists/a.txt"]) {
        assert!(policy_at(name).starts_with("default-src 'self'"), "{name}: {}", policy_at(name));
    }
    for name in ["plain.txt", "other.txt", "a.css", "a.json"] {
        assert_eq!(policy_at(name), "", "{name}");
    }
    let tag = http::get(&daemon.address, "/typed.txt").header("etag").unwrap().to_owned();
    let not_modified = http::request(&daemon.address, "GET", "/typed.txt", &[&format!("If-None-Match: {tag}")]);
    assert_eq!((not_modified.status, policy(&not_modified).is_empty()), (304, false));
    // The operator can set a type, too, and the operator's policy replaces any other.
    let page = |name: &str| format!("{{ source = \"/{name}\", values = {{ Content-Type = \"text/html\" }} }}");
    let policy_rule = "{ source = \"/plain.txt\", values = { Content-Security-Policy = \"default-src 'none'\" } }";
    drop(daemon);
    let host = host.set("server.headers", format!("[{}, {}, {policy_rule}]", page("other.txt"), page("plain.txt")));
    let daemon = host.run();
    let policy_at = |name: &str| policy(&http::get(&daemon.address, &format!("/{name}"))).to_owned();
    assert!(policy_at("other.txt").starts_with("default-src 'self'"), "{}", policy_at("other.txt"));
    assert_eq!(policy_at("plain.txt"), "default-src 'none'");
}

// Regression: documents that browsers render under other names than `.html`, `.xml` or `.svg` (`.shtml`, `.xsl`,
// `.rdf`, `.atom`), and texts that a rule sends as pages, had no policy, not even under `airgap`.
#[test]
fn an_shtml_page_is_scanned_like_an_html_page() {
    let old = page(&format!("<script>{INLINE}</script><script src='https://js.example/a.js'></script>"));
    let feed = r#"<rdf xmlns:s="http://www.w3.org/2000/svg"><s:image href="https://drawn.example/a.png"/></rdf>"#;
    let policy = policy_of(&[("index.html", page("")), ("old.shtml", old), ("a.rdf", feed.into())], "/old.shtml");
    assert_eq!(directive(&policy, "script-src"), format!("'self' {} https://js.example", hash(INLINE)));
    assert!(directive(&policy, "img-src").contains("https:"), "{policy}");
}

// Regression: `(0,eval)(x)` and `window.eval(x)` were not recognised, and were refused under `connected`.
#[test]
fn indirect_calls_of_eval_are_recognised_and_allowed() {
    for script in ["(0,eval)(x)", "window.eval(x)", "f = new globalThis.Function('a', x)", "self.eval(x)"] {
        let policy = policy_of(&[("index.html", page("")), ("a.js", script.to_owned())], "/");
        assert_eq!(directive(&policy, "script-src"), "'self' 'unsafe-eval'", "{script}");
    }
    let policy = policy_of(&[("index.html", page("")), ("a.js", "model.eval(x)".to_owned())], "/");
    assert_eq!(directive(&policy, "script-src"), "'self'");
}
