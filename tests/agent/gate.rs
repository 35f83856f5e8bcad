//! The gate and manual activation: versions that are not activated automatically, how this is reported, and how the
//! operator overrides it.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

use serde_json::Value;
use support::host::Host;
use support::zip::{Member, deflated, zip};
use support::{CommandOutput, Daemon, http, run_to_end, until};

/// A configuration with a bundle file. `sections` are complete sections, such as `[gate]`.
fn config_with_bundle(sections: &str) -> String {
    format!("[staticExport]\nbundleUrl = \"bundle.zip\"\n{sections}")
}

/// Writes the bundle file and runs `sync`, which must end with `code`.
#[track_caller]
fn sync_bundle(host: &Host, code: i32, bytes: &[u8]) -> CommandOutput {
    host.put_bundle(bytes);
    host.expect_exit_one_line(code, &["sync"])
}

#[track_caller]
fn start_run(host: &Host) -> Daemon {
    Daemon::start(host.command(&["run"]).env("DOCWHARF_SYNC__INTERVAL", "100ms"))
}

/// The response to `/metrics` on the control socket.
fn metrics(host: &Host) -> String {
    let mut stream = UnixStream::connect(host.path("store/control.sock")).expect("the daemon listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

fn events_of_kind(host: &Host, kind: &str) -> Vec<Value> {
    let history = host.expect_exit_one_line(0, &["history", "--json"]).json();
    history["events"].as_array().unwrap().iter().filter(|event| event["what"] == kind).cloned().collect()
}

/// A site of `pages` pages. `front` is the content of the front page.
fn site_of_pages(pages: usize, front: &str) -> Vec<u8> {
    let names: Vec<String> = (1..pages).map(|n| format!("p{n}.html")).collect();
    let mut members: Vec<Member> = names.iter().map(|name| deflated(name, "<p>page</p>")).collect();
    members.push(deflated("index.html", &format!("<h1>{front}</h1>")));
    members.push(deflated("sitemap.xml", "<urlset></urlset>"));
    zip(&members)
}

/// A page with `links` links to missing pages.
fn page_with_broken_links(links: usize) -> String {
    (0..links).fold(String::new(), |mut text, n| {
        let _ = write!(text, "<a href=\"gone-{n}\">x</a>");
        text
    })
}

const SHRINK: &str = "[gate]\nmaxShrink = \"30%\"\n";

/// A condition, the bundle that is active before, one that passes, one that is refused, and the message of the refusal.
type Case = (&'static str, Option<Vec<u8>>, Vec<u8>, Vec<u8>, &'static str);

#[test]
fn each_gate_condition_accepts_its_limit_and_refuses_one_step_beyond() {
    let cases: [Case; 8] = [
        (
            "minPages = 5",
            None,
            site_of_pages(5, "a"),
            site_of_pages(4, "b"),
            "minPages: 4 pages; at least 5 are demanded",
        ),
        (
            "maxShrink = \"30%\"",
            Some(site_of_pages(40, "a")),
            site_of_pages(28, "b"),
            site_of_pages(27, "c"),
            "maxShrink: 27 pages instead of 40, 32.5 % fewer; at most 30 % are allowed",
        ),
        (
            "maxBrokenLinks = 2",
            Some(site_of_pages(3, &page_with_broken_links(1))),
            site_of_pages(3, &page_with_broken_links(3)),
            site_of_pages(3, &page_with_broken_links(4)),
            "maxBrokenLinks: 4 broken links instead of 1; at most 2 more are allowed (such as \"/gone-0\" on \"index.html\")",
        ),
        (
            "maxBrokenLinks = 2",
            None,
            site_of_pages(3, &page_with_broken_links(2)),
            site_of_pages(3, &page_with_broken_links(3)),
            "maxBrokenLinks: 3 broken links; at most 2 are allowed",
        ),
        (
            "require = [\"/\", \"/sitemap.xml\", \"/p1/\"]",
            None,
            site_of_pages(2, "a"),
            site_of_pages(1, "b"),
            "require: 404 at \"/p1/\"",
        ),
        (
            "require = [\"/a%20b\"]",
            None,
            zip(&[deflated("index.html", "<p>home"), deflated("a b.html", "<p>page</p>")]),
            site_of_pages(2, "b"),
            "require: 404 at \"/a%20b\"",
        ),
        (
            "maxShrink = \"0%\"",
            Some(site_of_pages(3, "a")),
            site_of_pages(3, "b"),
            site_of_pages(2, "c"),
            "33.4 % fewer; at most 0 %",
        ),
        (
            "maxBrokenLinks = 0",
            Some(site_of_pages(3, "a")),
            site_of_pages(3, "b"),
            site_of_pages(3, "<img src=no.png>"),
            "1 broken link instead of 0",
        ),
    ];
    for (condition, before, passing_bundle, refused_bundle, message) in cases {
        for (bundle, passes) in [(&passing_bundle, true), (&refused_bundle, false)] {
            let host = Host::configured(&config_with_bundle(""));
            if let Some(before) = &before {
                sync_bundle(&host, 0, before);
            }
            let active_before = host.version_id("active");
            host.configure(&config_with_bundle(&format!("[gate]\n{condition}\n")));
            let ended = sync_bundle(&host, if passes { 0 } else { 7 }, bundle);
            if passes {
                assert_ne!(host.version_id("active"), active_before, "{condition}");
                continue;
            }
            assert!(
                ended.stderr.contains("refused by the gate: ") && ended.stderr.contains(message),
                "{}",
                ended.stderr
            );
            let activation_advice =
                format!("`docwharf activate {}` activates it, or use --force with", &host.version_id("newest")[..12]);
            assert!(ended.stderr.contains(&activation_advice), "{}", ended.stderr);
            assert_eq!(ended.stderr.contains("nothing is served yet"), before.is_none(), "{}", ended.stderr);
            assert_eq!(host.version_id("active"), active_before, "{condition}");
        }
    }
}

#[test]
fn a_gate_refusal_is_in_status_and_once_in_history_and_is_not_recomputed() {
    let host = Host::configured(&config_with_bundle("[gate]\nmaxShrink = \"30%\"\nmaxBrokenLinks = 0\n"));
    sync_bundle(&host, 0, &site_of_pages(10, "one"));
    let first = host.version_id("active");
    sync_bundle(&host, 7, &site_of_pages(6, "two"));
    let verdict = host.status()["gate"].clone();
    host.expect_exit_one_line(7, &["sync"]);
    host.expect_exit_one_line(7, &["sync"]);
    let status = host.status();
    let second = host.version_id("newest");
    assert_eq!(status["active"], first.as_str());
    assert_eq!(status["gate"], verdict, "the verdict is unchanged, with its time");
    assert_eq!(
        (&status["gate"]["version"], &status["gate"]["against"], &status["gate"]["passed"]),
        (&Value::from(second.as_str()), &Value::from(first.as_str()), &Value::Bool(false))
    );
    assert_eq!((&status["staged"]["version"], status["staged"]["waits"].as_str()), (&verdict["version"], Some("gate")));
    assert_eq!(status["lastAttempt"]["result"], "not activated");
    let text = host.expect_exit_one_line(0, &["status"]).stdout;
    assert!(text.contains("maxShrink: 6 pages instead of 10, 40 % fewer") && text.contains("activates it"), "{text}");
    let kept_back = events_of_kind(&host, "kept back");
    assert_eq!(kept_back.len(), 1);
    assert!(kept_back[0]["note"].as_str().unwrap().starts_with("maxShrink: "));
}

#[test]
fn the_gate_does_not_compare_with_an_unreadable_active_version() {
    let host = Host::configured(&config_with_bundle(SHRINK));
    sync_bundle(&host, 0, &site_of_pages(10, "one"));
    let image = host.path("store/versions").join(host.version_id("active")).join("site.zip");
    std::fs::remove_file(image).unwrap();
    host.put_bundle(&site_of_pages(2, "two"));
    let ended = run_to_end(&mut host.command(&["sync"])).expect(0);
    assert!(ended.stderr.contains("the gate does not compare the new version with it"), "{}", ended.stderr);
    assert_eq!(host.version_id("active"), host.version_id("newest"));
}

#[test]
fn force_overrides_the_gate_once_and_history_names_the_condition() {
    let host = Host::configured(&config_with_bundle(SHRINK));
    sync_bundle(&host, 0, &site_of_pages(10, "one"));
    sync_bundle(&host, 7, &site_of_pages(2, "two"));
    // The refused version is activated without another download.
    let forced = host.expect_exit_one_line(0, &["sync", "--force", "--json"]).json();
    assert_eq!((&forced["result"], &forced["version"]), (&"activated".into(), &host.version_id("active").into()));
    assert_eq!(host.version_id("active"), host.version_id("newest"));
    let note = events_of_kind(&host, "activated").pop().unwrap()["note"].as_str().unwrap().to_owned();
    assert!(note.starts_with("forced past the gate: maxShrink: 2 pages instead of 10"), "{note}");
    assert_eq!(host.status()["staged"], Value::Null);
    host.expect_exit_one_line(0, &["sync"]);
    // `--force` counts once: the next version is checked again.
    sync_bundle(&host, 7, &site_of_pages(1, "three"));
    host.put_bundle(&site_of_pages(1, "four"));
    let bundle = host.path("bundle.zip");
    host.expect_exit_one_line(7, &["import", bundle.to_str().unwrap()]);
    host.expect_exit_one_line(0, &["import", bundle.to_str().unwrap(), "--force"]);
    assert_eq!(host.version_id("active"), host.version_id("newest"));
}

#[test]
fn force_does_not_override_a_hold_and_activate_bypasses_the_gate() {
    let host = Host::configured(&config_with_bundle(SHRINK));
    sync_bundle(&host, 0, &site_of_pages(10, "one"));
    let first = host.version_id("active");
    host.expect_exit_one_line(0, &["hold"]);
    host.put_bundle(&site_of_pages(2, "two"));
    let held = host.expect_exit_one_line(7, &["sync", "--force"]);
    assert!(held.stderr.contains("held by tester"), "{}", held.stderr);
    assert_eq!(host.version_id("active"), first);
    // The end of the hold does not activate the refused version either.
    let released = host.expect_exit_one_line(0, &["release", "--json"]).json();
    assert_eq!((&released["outcome"], &released["version"]), (&"not activated".into(), &first.as_str().into()));
    let second = host.version_id("newest");
    host.expect_exit_one_line(0, &["activate", &second[..12]]);
    assert_eq!(host.version_id("active"), second);
    assert!(host.status()["hold"].is_object(), "a version that the operator activates is held");
    host.expect_exit_one_line(0, &["rollback"]);
    assert_eq!(host.version_id("active"), first);
}

#[test]
fn run_activates_a_refused_version_after_the_gate_conditions_are_relaxed() {
    let host = Host::configured(&config_with_bundle(SHRINK));
    sync_bundle(&host, 0, &site_of_pages(10, "one"));
    let daemon = start_run(&host);
    host.put_bundle(&site_of_pages(6, "two"));
    until("the gate keeps the version back", || events_of_kind(&host, "kept back").len() == 1);
    assert_eq!(http::get(&daemon.address, "/").text(), "<h1>one</h1>");
    host.configure(&config_with_bundle("[gate]\nmaxShrink = \"40%\"\n"));
    until("the new version is served", || http::get(&daemon.address, "/").text() == "<h1>two</h1>");
    assert_eq!(events_of_kind(&host, "kept back").len(), 1);
    // Without conditions every version is activated.
    host.put_bundle(&site_of_pages(1, "three"));
    until("the gate keeps the version back", || events_of_kind(&host, "kept back").len() == 2);
    host.configure(&config_with_bundle(""));
    until("the new version is served", || http::get(&daemon.address, "/").text() == "<h1>three</h1>");
}

/// A site that the gate needs seconds to read: each link is short, but is resolved against a long base URL.
fn slow_site(front: &str) -> Vec<u8> {
    let names: Vec<String> = (0..SLOW_PAGES).map(|n| format!("p{n}.html")).collect();
    let page = format!("<base href=\"/{}\">{}", "a/".repeat(2000), page_with_broken_links(1500));
    let front = format!("<h1>{front}</h1>");
    let mut members: Vec<Member> = names.iter().map(|name| deflated(name, &page)).collect();
    members.push(deflated("index.html", &front));
    zip(&members)
}

const SLOW_PAGES: usize = 100;

// Regression: a `release` beside `run` delayed every other command and change while the gate read pages.
#[test]
fn a_hold_takes_effect_at_once_while_the_gate_checks_a_release() {
    let host = Host::configured(&config_with_bundle("[gate]\nmaxBrokenLinks = 1000000\n"));
    sync_bundle(&host, 0, &site_of_pages(3, "one"));
    let first = host.version_id("active");
    let daemon = start_run(&host);
    host.expect_exit_one_line(0, &["hold"]);
    host.put_bundle(&slow_site("two"));
    until("the version is in the store", || host.version_id("newest") != first);
    let start_release = || {
        let mut command = host.command(&["release", "--json"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("docwharf starts")
    };
    let result = |child: Child| {
        let ended = child.wait_with_output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        serde_json::from_slice::<Value>(&ended.stdout).unwrap()
    };
    let released = start_release();
    until("the hold has ended", || host.status()["hold"].is_null());
    host.expect_exit_one_line(0, &["hold", "--reason", "after all"]);
    let report = result(released);
    assert_eq!((&report["outcome"], &report["wasHeld"]), (&"already current".into(), &true.into()));
    assert_eq!((report["version"].as_str(), host.version_id("active")), (Some(first.as_str()), first.clone()));
    assert_eq!(host.status()["hold"]["why"], "after all");
    // With other conditions the version is read once more, and is served when `release` ends.
    host.configure(&config_with_bundle("[gate]\nmaxBrokenLinks = 1000001\n"));
    let report = result(start_release());
    assert_eq!(
        (&report["outcome"], report["version"].as_str()),
        (&"activated".into(), Some(host.version_id("newest").as_str()))
    );
    assert_eq!(http::get(&daemon.address, "/").text(), "<h1>two</h1>");
    assert_eq!(events_of_kind(&host, "activated").last().unwrap()["who"], "tester");
}

// Regression: a gate that was reading pages could not be cancelled.
#[test]
fn a_changed_configuration_cancels_the_gate_check_and_discards_its_result() {
    let host = Host::configured(&config_with_bundle("[gate]\nmaxBrokenLinks = 0\n"));
    sync_bundle(&host, 0, &site_of_pages(3, "one"));
    let first = host.version_id("active");
    let daemon = start_run(&host);
    host.put_bundle(&slow_site("two"));
    until("the version is in the store", || host.version_id("newest") != first);
    host.configure(&config_with_bundle(""));
    daemon.signal("HUP");
    until("the new version is served", || http::get(&daemon.address, "/").text() == "<h1>two</h1>");
    assert_eq!(
        events_of_kind(&host, "kept back").len(),
        0,
        "the gate finished a check with conditions that are no longer in force"
    );
}

#[test]
fn run_never_serves_a_version_refused_by_the_gate_even_without_another() {
    let host = Host::configured(&config_with_bundle("[gate]\nminPages = 5\n"));
    sync_bundle(&host, 7, &site_of_pages(2, "small"));
    let daemon = start_run(&host);
    until("the first check has ended", || host.status()["lastAttempt"]["result"] == "not activated");
    assert_eq!(http::get(&daemon.address, "/").status, 503);
    host.put_bundle(&site_of_pages(5, "whole"));
    until("a version that passes", || http::get(&daemon.address, "/").text() == "<h1>whole</h1>");
    drop(daemon);
    // If the active version is damaged, the refused one is no fallback.
    host.put_bundle(&site_of_pages(3, "half"));
    host.expect_exit_one_line(7, &["sync"]);
    let image = host.path("store/versions").join(host.version_id("active")).join("site.zip");
    std::fs::remove_file(&image).unwrap();
    let daemon = start_run(&host);
    assert_ne!(http::get(&daemon.address, "/").text(), "<h1>half</h1>");
}

#[test]
fn an_inbox_import_refused_by_the_gate_is_activated_when_the_condition_is_removed() {
    let host = Host::configured(&config_with_bundle(""));
    let config = "[sync]\ninbox = \"inbox\"\n";
    host.configure(config);
    std::fs::create_dir(host.path("inbox")).unwrap();
    let daemon = start_run(&host);
    std::fs::write(host.path("inbox/one.zip"), site_of_pages(10, "one")).unwrap();
    until("the first", || http::get(&daemon.address, "/").text() == "<h1>one</h1>");
    host.configure(&format!("{config}{SHRINK}"));
    // The bundle is valid, so it is moved to `accepted`; it is only not activated automatically.
    std::fs::write(host.path("inbox/two.zip"), site_of_pages(2, "two")).unwrap();
    until("the file is moved to accepted/", || host.path("inbox/accepted/two.zip").exists());
    until("the gate keeps the version back", || events_of_kind(&host, "kept back").len() == 1);
    assert_eq!(http::get(&daemon.address, "/").text(), "<h1>one</h1>");
    host.configure(config);
    until("the new version is served", || http::get(&daemon.address, "/").text() == "<h1>two</h1>");
}

#[test]
fn the_gate_checks_a_pinned_version_and_a_refused_version_is_not_pruned() {
    let host = Host::configured(&config_with_bundle("[sync]\nkeep = 0\n"));
    let import_labelled = |name: &str, bytes: &[u8]| {
        host.put_bundle(bytes);
        let bundle = host.path("bundle.zip");
        let _ = run_to_end(&mut host.command(&["import", bundle.to_str().unwrap(), "--label", name]));
    };
    import_labelled("big", &site_of_pages(10, "big"));
    let big = host.version_id("active");
    import_labelled("small", &site_of_pages(2, "small"));
    let small = host.version_id("active");
    host.expect_exit_one_line(0, &["activate", "big"]);
    host.configure(&config_with_bundle(&format!("[sync]\nkeep = 0\n{SHRINK}")));
    host.expect_exit_one_line(0, &["release"]);
    assert_eq!(host.version_id("active"), big, "the newest is refused");
    // The new bundle is another version. The version before it has a label, so it is not pruned.
    host.put_bundle(&site_of_pages(3, "three"));
    let arguments = ["sync", "--refresh"];
    let mut command = host.command(&arguments);
    let ended = run_to_end(command.env("DOCWHARF_STATIC_EXPORT__VERSION", "three")).expect(7);
    assert!(ended.stderr.contains("maxShrink: 3 pages instead of 10"), "{}", ended.stderr);
    assert_eq!(host.version_id("active"), big);
    let versions = host.expect_exit_one_line(0, &["versions", "--json"]).json();
    let ids: Vec<&str> = versions["versions"].as_array().unwrap().iter().map(|v| v["id"].as_str().unwrap()).collect();
    assert!(ids.contains(&small.as_str()) && ids.contains(&host.version_id("newest").as_str()), "{ids:?}");
    // Now the label is in the store. The sync does not read the source, and the version is refused all the same.
    let mut command = host.command(&["sync"]);
    run_to_end(command.env("DOCWHARF_STATIC_EXPORT__VERSION", "three")).expect(7);
    let mut forced = host.command(&["sync", "--force"]);
    run_to_end(forced.env("DOCWHARF_STATIC_EXPORT__VERSION", "three")).expect(0);
    assert_ne!(host.version_id("active"), big);
}

#[test]
fn the_gate_resolves_links_like_the_server() {
    let pages = [
        (
            "index.html",
            "<a href=/docs/guide>a</a><a href=guide/>b</a><a href=guide.html?x#y>c</a><a href=/guide>broken</a>",
        ),
        ("guide/index.html", "<img src=../logo.svg><link rel=stylesheet href=%2e%2e/a%20b.css><a href=..>up</a>"),
        ("a b.css", "a{}"),
        ("logo.svg", "<svg/>"),
        (
            "base.html",
            "<base href=/docs/guide/><a href=../guide>a</a><a href=logo.svg>broken</a><a href=logo.svg#x>same</a>",
        ),
        (
            "out.html",
            "<a href=https://x.example/gone>a</a><a href=//x.example/gone>b</a><a href=mailto:a@b>c</a>\
                     <form action=gone></form><!-- <a href=gone> --><script>'<a href=gone>'</script>",
        ),
        (".hidden/page.html", "<a href=gone>never read</a>"),
    ];
    let members: Vec<Member> = pages.iter().map(|(name, text)| deflated(name, text)).collect();
    let base = "[gate]\nmaxBrokenLinks";
    for (limit, code) in [(2, 0), (1, 7)] {
        let host = Host::configured(&config_with_bundle(""));
        host.configure(&format!(
            "basePath = \"/docs/\"\n[staticExport]\nbundleUrl = \"bundle.zip\"\n{base} = {limit}\n"
        ));
        let ended = sync_bundle(&host, code, &zip(&members));
        if code == 7 {
            let message = "2 broken links; at most 1 are allowed (such as \"/docs/guide/logo.svg\" on \"base.html\")";
            assert!(ended.stderr.contains(message), "{}", ended.stderr);
        }
        if code == 0 {
            // The server finds the same pages.
            let daemon = start_run(&host);
            for (target, status) in [("/docs/guide/logo.svg", 404), ("/guide", 404), ("/docs/a%20b.css", 200)] {
                assert_eq!(http::get(&daemon.address, target).status, status, "{target}");
            }
        }
    }
}

#[test]
fn broken_links_of_the_active_version_are_recounted_after_a_base_path_change() {
    let pages = (0..20).fold(String::new(), |mut text, n| {
        let _ = write!(text, "<a href=\"/docs/p{}\">x</a>", n + 1);
        text
    });
    let configure = |host: &Host, base: &str, max_broken_links: u32| {
        host.configure(&format!(
            "basePath = {base:?}\n[staticExport]\nbundleUrl = \"bundle.zip\"\n[gate]\nmaxBrokenLinks = {max_broken_links}\n"
        ));
    };
    // With another base path all 20 links of the first version are broken: more than the next version may have.
    let host = Host::configured(&config_with_bundle(""));
    configure(&host, "/other/", 20);
    sync_bundle(&host, 0, &site_of_pages(21, &pages));
    let first = host.version_id("active");
    configure(&host, "/docs/", 0);
    let ended = sync_bundle(&host, 7, &site_of_pages(21, &format!("{pages}{}", page_with_broken_links(10))));
    assert!(ended.stderr.contains("10 broken links instead of 0"), "{}", ended.stderr);
    assert_eq!(host.version_id("active"), first);
    // With the base paths exchanged, the next version has no more broken links than the first has by then.
    let host = Host::configured(&config_with_bundle(""));
    configure(&host, "/docs/", 0);
    sync_bundle(&host, 0, &site_of_pages(21, &pages));
    let first = host.version_id("active");
    configure(&host, "/other/", 0);
    sync_bundle(&host, 0, &site_of_pages(22, &pages));
    assert_ne!(host.version_id("active"), first);
}

// Regression: with `maxBrokenLinks`, a bundle of many rules and long links kept the agent busy for days.
#[test]
fn the_gate_refuses_a_bundle_whose_links_are_too_expensive_to_resolve() {
    // A thousand patterns, and links with the maximum number of redirects.
    let mut rules = (0..900).fold(String::new(), |all, n| all + &format!("/none{n}/* /x 301\n"));
    for n in 0..30 {
        let _ = writeln!(rules, "/hop{n}/* /hop{}/:splat 301", n + 1);
    }
    let long_path = "a".repeat(4000);
    let links =
        |count: usize| (0..count).fold(String::new(), |all, n| all + &format!("<a href=/hop0/{n}/{long_path}>x</a>"));
    let bundle = |links: &str| {
        zip(&[deflated("index.html", "<p>home"), deflated("_redirects", &rules), deflated("links.html", links)])
    };
    let host = Host::configured(&config_with_bundle("[gate]\nmaxBrokenLinks = 100000\n"));
    sync_bundle(&host, 0, &bundle(&links(5)));
    let first = host.version_id("active");
    let ended = sync_bundle(&host, 7, &bundle(&links(700)));
    assert!(ended.stderr.contains("maxBrokenLinks: not all links could be resolved"), "{}", ended.stderr);
    assert_eq!(host.version_id("active"), first);
    // `--force` overrides it, and the next version is not refused because of it.
    host.expect_exit_one_line(0, &["sync", "--force"]);
    assert_ne!(host.version_id("active"), first);
    sync_bundle(&host, 0, &bundle(&links(6)));
}

const MANUAL: &str = "[activate]\nmode = \"manual\"\n";

#[test]
fn in_manual_mode_activate_promotes_each_staged_version_without_a_hold() {
    let host = Host::configured(&config_with_bundle(MANUAL));
    let output = host.expect_exit_one_line(0, &["stage"]);
    assert_eq!(output.stdout, "nothing is staged; nothing is active\n");
    let first = sync_bundle(&host, 0, &site_of_pages(3, "one"));
    assert!(first.stdout.starts_with("staged ") && first.stdout.contains("`docwharf activate "), "{}", first.stdout);
    let daemon = start_run(&host);
    until("the first check has ended", || host.status()["lastAttempt"]["result"] == "staged");
    assert_eq!(http::get(&daemon.address, "/").status, 503, "the first version needs a command, too");
    assert!(host.expect_exit_one_line(0, &["status"]).stdout.contains("makes it active"));
    let stage = host.expect_exit_one_line(0, &["stage"]).stdout;
    assert!(stage.ends_with("pages      3\nagainst    nothing is active\n"), "{stage}");
    assert_eq!(host.expect_exit_one_line(0, &["stage", "--json"]).json()["diff"], Value::Null);
    drop(daemon);

    let one = host.version_id("newest");
    let done = host.expect_exit_one_line(0, &["activate", &one[..12], "--json"]).json();
    assert_eq!((&done["result"], &done["held"]), (&"activated".into(), &false.into()));
    assert_eq!((host.version_id("active"), host.status()["hold"].clone()), (one.clone(), Value::Null));

    let json = host.expect_exit_one_line(0, &["sync", "--json"]).json();
    assert_eq!(json["result"], "already current");
    host.put_bundle(&site_of_pages(5, "two"));
    let json = host.expect_exit_one_line(0, &["sync", "--json", "--force"]).json();
    assert_eq!(
        (&json["result"], json["version"] == one.as_str()),
        (&"staged".into(), false),
        "--force overrides only the gate"
    );
    let two = host.version_id("newest");

    let stage = host.expect_exit_one_line(0, &["stage", "--json"]).json();
    assert_eq!(stage["staged"]["version"], two.as_str());
    assert_eq!((&stage["staged"]["waits"], &stage["gate"]), (&"manual".into(), &Value::Null));
    assert!(stage["staged"]["receipt"]["source"].as_str().unwrap().ends_with("bundle.zip"));
    assert_eq!((&stage["diff"]["pages"]["added"], &stage["diff"]["pages"]["changed"]), (&2.into(), &1.into()));
    let text = host.expect_exit_one_line(0, &["stage"]).stdout;
    assert!(text.contains(&two[..12]) && text.contains("3 → 5: 2 added, 0 removed, 1 changed"), "{text}");

    // A rollback holds in this mode, too. Its release stages the newest version, and does not activate it.
    host.expect_exit_one_line(0, &["activate", &two[..12]]);
    host.expect_exit_one_line(0, &["rollback"]);
    assert_eq!((host.version_id("active"), host.status()["hold"].is_object()), (one.clone(), true));
    assert_eq!(host.expect_exit_one_line(0, &["stage", "--json"]).json()["staged"]["waits"], "hold");
    assert_eq!(host.expect_exit_one_line(0, &["release", "--json"]).json()["outcome"], "staged");
    assert_eq!(host.version_id("active"), one);
    // An older version that the operator activates is held.
    host.expect_exit_one_line(0, &["activate", &two[..12]]);
    host.expect_exit_one_line(0, &["activate", &one[..12]]);
    assert!(host.status()["hold"].is_object());
}

#[test]
fn manual_mode_serves_the_promoted_version_and_auto_mode_activates_the_staged() {
    let host = Host::configured(&config_with_bundle(MANUAL));
    sync_bundle(&host, 0, &site_of_pages(3, "one"));
    host.expect_exit_one_line(0, &["activate", &host.version_id("newest")[..12]]);
    let daemon = start_run(&host);
    host.put_bundle(&site_of_pages(3, "two"));
    until("the version is staged", || host.status()["lastAttempt"]["result"] == "staged");
    assert_eq!(http::get(&daemon.address, "/").text(), "<h1>one</h1>");
    host.configure(&config_with_bundle(""));
    until("the version is active", || http::get(&daemon.address, "/").text() == "<h1>two</h1>");
}

#[test]
fn in_manual_mode_the_pin_labels_the_staged_version_and_the_gate_only_reports() {
    let host = Host::configured(&config_with_bundle(""));
    sync_bundle(&host, 0, &site_of_pages(10, "one"));
    let one = host.version_id("active");
    host.configure(&config_with_bundle(&format!("version = \"next\"\n{MANUAL}{SHRINK}")));
    host.put_bundle(&site_of_pages(2, "next"));
    assert_eq!(host.expect_exit_one_line(0, &["sync", "--json"]).json()["result"], "staged");
    assert_eq!(host.version_id("active"), one);
    let stage = host.expect_exit_one_line(0, &["stage", "--json"]).json();
    assert_eq!((&stage["staged"]["labels"][0], &stage["staged"]["waits"]), (&"next".into(), &"manual".into()));
    assert_eq!(stage["gate"]["passed"], false);
    assert!(host.expect_exit_one_line(0, &["stage"]).stdout.contains("refuses it: maxShrink: 2 pages instead of 10"));
    host.expect_exit_one_line(0, &["activate", "next"]);
    assert_eq!((host.version_id("active") != one, host.status()["hold"].clone()), (true, Value::Null));
}

#[test]
fn stage_runs_the_gate_if_state_json_has_no_verdict_by_the_current_conditions() {
    let host = Host::configured(&config_with_bundle(""));
    sync_bundle(&host, 0, &site_of_pages(10, "one"));
    host.expect_exit_one_line(0, &["hold"]);
    host.put_bundle(&site_of_pages(2, "two"));
    host.expect_exit_one_line(7, &["sync"]);
    let before = std::fs::read(host.path("store/state.json")).unwrap();
    host.configure(&config_with_bundle("[gate]\nmaxShrink = \"30%\"\nmaxBrokenLinks = 0\n"));
    let stage = host.expect_exit_one_line(0, &["stage", "--json"]).json();
    assert_eq!((&stage["staged"]["waits"], &stage["gate"]["passed"]), (&"hold".into(), &false.into()));
    assert_eq!(std::fs::read(host.path("store/state.json")).unwrap(), before, "stage only reads");
    // The verdict by other conditions does not count, either.
    host.expect_exit_one_line(0, &["release"]);
    assert_eq!(host.status()["gate"]["passed"], false);
    host.configure(&config_with_bundle("[gate]\nminPages = 2\n"));
    let stage = host.expect_exit_one_line(0, &["stage", "--json"]).json();
    assert_eq!(stage["gate"], serde_json::json!({ "passed": true, "refused": null }), "{stage}");
}

#[test]
fn a_running_daemon_applies_force_and_activate_and_serves_the_result() {
    let host = Host::configured(&config_with_bundle(SHRINK));
    sync_bundle(&host, 0, &site_of_pages(10, "one"));
    let daemon = start_run(&host);
    host.put_bundle(&site_of_pages(6, "two"));
    until("the gate keeps the version back", || events_of_kind(&host, "kept back").len() == 1);
    let text = host.expect_exit_one_line(0, &["status"]).stdout;
    assert!(text.contains("the gate refused it at the last check: maxShrink: 6 pages instead of 10"), "{text}");
    assert!(metrics(&host).contains("\ndocwharf_gate_refused 1\n"));
    let refused = host.expect_exit_one_line(7, &["sync"]);
    assert!(refused.stderr.contains("refused by the gate: maxShrink: "), "{}", refused.stderr);
    assert_eq!(host.expect_exit_one_line(0, &["sync", "--force", "--json"]).json()["result"], "activated");
    assert_eq!(http::get(&daemon.address, "/").text(), "<h1>two</h1>");
    assert!(metrics(&host).contains("\ndocwharf_gate_refused 0\n"));
    // `--force` counted once.
    host.put_bundle(&site_of_pages(2, "three"));
    until("the gate keeps the version back", || events_of_kind(&host, "kept back").len() == 2);
    std::fs::write(host.path("four.zip"), site_of_pages(1, "four")).unwrap();
    let four = host.path("four.zip");
    host.expect_exit_one_line(7, &["import", four.to_str().unwrap()]);
    host.expect_exit_one_line(0, &["import", four.to_str().unwrap(), "--force"]);
    assert_eq!(http::get(&daemon.address, "/").text(), "<h1>four</h1>");

    host.configure(&config_with_bundle(MANUAL));
    let five = host.path("five.zip");
    let mut attempts = 0;
    // Before the daemon has read its configuration again, an imported version becomes active.
    until("the imported version is staged", || {
        attempts += 1;
        std::fs::write(&five, site_of_pages(1, &format!("five {attempts}"))).unwrap();
        let ended = run_to_end(&mut host.command(&["import", five.to_str().unwrap(), "--json"]));
        ended.code == Some(0) && ended.json()["result"] == "staged"
    });
    let waiting = host.version_id("newest");
    let done = host.expect_exit_one_line(0, &["activate", &waiting[..12], "--json"]).json();
    assert_eq!((&done["version"], &done["held"]), (&waiting.as_str().into(), &false.into()));
    assert_eq!(http::get(&daemon.address, "/").text(), format!("<h1>five {attempts}</h1>"));
}

// Regression: after the loss of the record the newest version became active, also one that had never been active.
#[test]
fn a_lost_state_json_does_not_activate_a_version_refused_by_the_gate() {
    let host = Host::configured(&config_with_bundle(SHRINK));
    sync_bundle(&host, 0, &site_of_pages(10, "one"));
    let one = host.version_id("active");
    sync_bundle(&host, 7, &site_of_pages(2, "two"));
    std::fs::write(host.path("store/state.json"), "{").unwrap();
    run_to_end(&mut host.command(&["sync"])).expect(7);
    assert_eq!(host.version_id("active"), one);
}

#[test]
fn config_check_reports_each_invalid_gate_condition_by_key() {
    let host = Host::configured(&config_with_bundle(
        "[gate]\nrequire = [\"guides\"]\nminPages = -1\nmaxShrink = 30\nmaxBrokenLinks = \"few\"\n\
         [activate]\nmode = \"sometimes\"\n",
    ));
    let ended = run_to_end(&mut host.command(&["config", "check"])).expect(2);
    for key in ["gate.require", "gate.minPages", "gate.maxShrink", "gate.maxBrokenLinks", "activate.mode"] {
        assert_eq!(
            ended.stderr.lines().filter(|line| line.contains(&format!("{key}: "))).count(),
            1,
            "{}",
            ended.stderr
        );
    }
}
