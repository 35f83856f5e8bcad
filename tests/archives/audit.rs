//! `bundle audit`: the external resources that a site needs.

use std::path::PathBuf;

use support::host::Host;
use support::zip::{deflated, zip};
use support::{CommandOutput, run_docwharf, run_to_end, temporary_folder, write_site};

fn audit(files: &[(&str, &str)], options: &[&str], exit_code: i32) -> CommandOutput {
    let dir = temporary_folder();
    let site: PathBuf = write_site(&dir.path().join("site"), files);
    run_docwharf(["bundle", "audit", site.to_str().unwrap()].iter().chain(options)).expect(exit_code)
}

fn needs(files: &[(&str, &str)]) -> Vec<String> {
    let json = audit(files, &["--json"], 1).json();
    assert_eq!(json["result"], "outside");
    let describe = |need: &serde_json::Value| {
        format!(
            "{} {} {} {}",
            need["kind"].as_str().unwrap(),
            need["origin"].as_str().unwrap(),
            need["files"],
            need["example"]["path"].as_str().unwrap()
        )
    };
    json["needs"].as_array().unwrap().iter().map(describe).collect()
}

#[test]
fn audit_of_a_site_without_external_resources_prints_one_line_and_exits_0() {
    let output = audit(
        &[
            (
                "index.html",
                "<link rel=stylesheet href=a.css><script src=a.js></script><a href='https://x.example'>x</a>",
            ),
            ("a.css", "p { background: url(data:image/png;base64,AAAA) } /* https://no.example */"),
            ("a.js", "// https://no.example\nfetch('/search.json')"),
        ],
        &[],
        0,
    );
    assert_eq!(output.stdout, "ok: nothing is needed from other origins (1 page, 3 files read)\n");
    assert_eq!(output.stderr, "");
}

#[test]
fn audit_reports_each_external_resource_with_its_kind() {
    let external_needs = needs(&[
        (
            "index.html",
            "<link rel=stylesheet href='https://css.example/a.css'><script src='//js.example/a.js'></script>\
             <img srcset='https://img.example/a.png 2x'><iframe src='https://frame.example/'></iframe>\
             <video src='https://media.example/a.mp4'></video><form action='https://form.example/'></form>\
             <script>fetch('https://api.example/v1')</script><p style=\"background:url('https://bg.example/b')\">\
             <object data='https://obj.example/'></object><meta http-equiv=refresh content='1;url=https://next.example/'>\
             <link rel='icon' href='https://icon.example/i.ico'>",
        ),
        ("sub/page.html", "<script src='//js.example/b.js'></script>"),
        ("a.css", "@import url(https://import.example/b.css); @font-face { src: url(https://font.example/f.woff2) }"),
        ("sw.js", "importScripts('https://worker.example/w.js')"),
        ("app.webmanifest", r#"{"icons": [{"src": "https://manifest.example/i.png"}]}"#),
        ("d.svg", "<svg><image href='https://drawing.example/i.png'/></svg>"),
    ]);
    assert_eq!(
        external_needs,
        [
            "script //js.example 2 index.html",
            "connect https://api.example 1 index.html",
            "image https://bg.example 1 index.html",
            "style https://css.example 1 index.html",
            "image https://drawing.example 1 d.svg",
            "font https://font.example 1 a.css",
            "form https://form.example 1 index.html",
            "frame https://frame.example 1 index.html",
            "image https://icon.example 1 index.html",
            "image https://img.example 1 index.html",
            "style https://import.example 1 a.css",
            "image https://manifest.example 1 app.webmanifest",
            "media https://media.example 1 index.html",
            "refresh https://next.example 1 index.html",
            "object https://obj.example 1 index.html",
            "script https://worker.example 1 sw.js",
        ]
    );
}

#[test]
fn audit_resolves_relative_urls_against_an_external_base() {
    let external_needs =
        needs(&[("index.html", "<img src=a.png><base href='https://base.example/x/'><script src=b.js></script>")]);
    assert_eq!(external_needs, ["script https://base.example 1 index.html", "base https://base.example 1 index.html"]);
}

#[test]
fn resource_hints_and_origins_named_in_scripts_do_not_fail_the_audit() {
    let files = [(
        "index.html",
        "<link rel='preconnect' href='https://hint.example'><script>var docs = 'https://named.example/x';\
          navigator.serviceWorker.register('/sw.js')</script>",
    )];
    let output = audit(&files, &[], 0);
    assert!(output.stdout.starts_with("ok: nothing is needed from other origins"), "{}", output.stdout);
    assert!(output.stdout.contains("harmless when refused (preconnect, dns-prefetch, prefetch): https://hint.example"));
    assert!(output.stdout.contains("service worker") && !output.stdout.contains("named.example"), "{}", output.stdout);
    let all = audit(&files, &["--all"], 0);
    assert!(all.stdout.contains("https://named.example  1 file"), "{}", all.stdout);
    let json = audit(&files, &["--json"], 0).json();
    assert_eq!((&json["result"], &json["mentions"][0]["origin"]), (&"inside".into(), &"https://named.example".into()));
}

#[test]
fn audit_text_and_markdown_name_the_affected_files_and_the_effect() {
    let pages: Vec<(String, &str)> = (0..25)
        .map(|n| {
            (
                if n == 0 { "index.html".to_owned() } else { format!("p{n:02}.html") },
                "<script src='https://js.example/a|b.js'></script>",
            )
        })
        .collect();
    let pages: Vec<(&str, &str)> = pages.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    let text = audit(&pages, &[], 1);
    assert!(text.stdout.starts_with("1 external origin in 25 files (25 pages in all)\n"), "{}", text.stdout);
    for line in [
        "  script    25 files: does not run, and neither does code that depends on it",
        "            index.html has https://js.example/a|b.js",
        "  p18.html: script https://js.example",
        "  … and 5 more: --all shows them",
        "cannot be found by reading the scripts",
    ] {
        assert!(text.stdout.contains(line), "{line}: {}", text.stdout);
    }
    assert_eq!(text.stderr, "");
    assert!(audit(&pages, &["--all"], 1).stdout.contains("p24.html: script"));
    let markdown = audit(&pages, &["--markdown"], 1).stdout;
    assert!(markdown.contains("| `https://js.example` | script | 25 |"), "{markdown}");
}

#[test]
fn audit_prints_no_control_characters_of_pages() {
    let page = "<img src='https://x.example/\u{1b}[31m\u{202e}a'><script src='https://ev\u{200b}il.example/'></script>";
    let text = audit(&[("a\u{1b}b.html", page), ("index.html", "<p>")], &[], 1).stdout;
    assert!(!text.contains('\u{1b}') && text.contains("x.example"), "{text:?}");
}

#[test]
fn audit_reads_archives_and_the_active_version() {
    let host = Host::bare();
    host.put("bundle.zip", zip(&[deflated("index.html", "<img src='https://img.example/a.png'>")]));
    let path = host.path("bundle.zip");
    let first_origin = |options: &[&str]| {
        let output = run_to_end(host.command(&["bundle", "audit", "--json"]).args(options)).expect(1);
        assert_eq!(output.stderr, "");
        output.json()["needs"][0]["origin"].as_str().unwrap().to_owned()
    };
    assert_eq!(first_origin(&[path.to_str().unwrap()]), "https://img.example");
    let no_version = host.expect_exit(2, &["bundle", "audit"]);
    assert!(no_version.stderr.contains("there is no active version"), "{}", no_version.stderr);
    host.ok(&["import", path.to_str().unwrap()]);
    assert_eq!(first_origin(&[]), "https://img.example");
    host.put("bad.zip", b"no archive".as_slice());
    host.expect_exit(5, &["bundle", "audit", host.path("bad.zip").to_str().unwrap()]);
}

// Regression: the `base` of a page in `srcdoc` was applied to the page around it.
#[test]
fn the_base_element_in_a_srcdoc_applies_only_to_the_srcdoc_page() {
    let inner = "<base href=https://inner.example/><img src=a.png>\
                 <iframe srcdoc='<img src=b.png>'></iframe>";
    let external_needs = needs(&[(
        "index.html",
        &format!(
            "<iframe srcdoc=\"{inner}\"></iframe><script src=own.js></script><base href='https://outer.example/'>\
             <iframe srcdoc='<video src=c.mp4></video>'></iframe><object data=d></object>"
        ),
    )]);
    assert_eq!(
        external_needs,
        [
            "image https://inner.example 1 index.html",
            "base https://inner.example 1 index.html",
            "media https://outer.example 1 index.html",
            "object https://outer.example 1 index.html",
            "base https://outer.example 1 index.html",
        ]
    );
}

// Regression: second and later arguments of `importScripts`, and ping addresses, were not reported.
#[test]
fn audit_reports_every_import_scripts_argument_and_every_ping_address() {
    let external_needs = needs(&[
        (
            "index.html",
            "<a href=/x ping='/own https://ping1.example/a https://ping2.example/b'>x</a>\
             <map><area href=/y ping='https://ping3.example/'></map>",
        ),
        (
            "sw.js",
            "self.importScripts ('https://one.example/a.js', \"//two.example/b.js\",\n  `https://three.example/c.js`)",
        ),
    ]);
    assert_eq!(
        external_needs,
        [
            "script //two.example 1 sw.js",
            "script https://one.example 1 sw.js",
            "connect https://ping1.example 1 index.html",
            "connect https://ping2.example 1 index.html",
            "connect https://ping3.example 1 index.html",
            "script https://three.example 1 sw.js",
        ]
    );
}
