//! The gate and manual activation: what does not become active by itself, what is said of it, and how a person has the
//! last word.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

use serde_json::Value;
use support::host::Host;
use support::zip::{Member, deflated, zip};
use support::{Daemon, Ended, end, http, until};

/// A configuration with a bundle file; `rules` are whole sections, such as `[gate]`.
fn export(rules: &str) -> String {
    format!("[staticExport]\nbundleUrl = \"bundle.zip\"\n{rules}")
}

/// Puts a bundle in place and brings it.
#[track_caller]
fn bring(host: &Host, code: i32, bytes: &[u8]) -> Ended {
    host.put_bundle(bytes);
    host.ends_plainly(code, &["sync"])
}

#[track_caller]
fn run(host: &Host) -> Daemon {
    Daemon::start(host.command(&["run"]).env("DOCWHARF_SYNC__INTERVAL", "100ms"))
}

/// What monitoring reads of the daemon.
fn metrics(host: &Host) -> String {
    let mut stream = UnixStream::connect(host.path("store/control.sock")).expect("the daemon listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn history(host: &Host, what: &str) -> Vec<Value> {
    let all = host.ends_plainly(0, &["history", "--json"]).json();
    all["events"].as_array().unwrap().iter().filter(|event| event["what"] == what).cloned().collect()
}

/// A site of so many pages; `front` is what its first page holds.
fn site(pages: usize, front: &str) -> Vec<u8> {
    let names: Vec<String> = (1..pages).map(|n| format!("p{n}.html")).collect();
    let mut members: Vec<Member> = names.iter().map(|name| deflated(name, "<p>page</p>")).collect();
    members.push(deflated("index.html", &format!("<h1>{front}</h1>")));
    members.push(deflated("sitemap.xml", "<urlset></urlset>"));
    zip(&members)
}

/// A page that points at so many addresses that are not there.
fn broken(links: usize) -> String {
    (0..links).fold(String::new(), |mut text, n| {
        let _ = write!(text, "<a href=\"gone-{n}\">x</a>");
        text
    })
}

const SHRINK: &str = "[gate]\nmaxShrink = \"30%\"\n";

/// A rule, what is active before, what passes, what is refused, and the words of the refusal.
type Case = (&'static str, Option<Vec<u8>>, Vec<u8>, Vec<u8>, &'static str);

#[test]
fn each_rule_lets_its_limit_through_and_refuses_what_is_just_beyond() {
    let cases: [Case; 7] = [
        ("minPages = 5", None, site(5, "a"), site(4, "b"), "minPages: 4 pages; at least 5 are demanded"),
        (
            "maxShrink = \"30%\"",
            Some(site(40, "a")),
            site(28, "b"),
            site(27, "c"),
            "maxShrink: 27 pages instead of 40, 32.5 % fewer; at most 30 % are allowed",
        ),
        (
            "maxBrokenLinks = 2",
            Some(site(3, &broken(1))),
            site(3, &broken(3)),
            site(3, &broken(4)),
            "maxBrokenLinks: 4 broken links instead of 1; at most 2 more are allowed (such as \"/gone-0\" on \"index.html\")",
        ),
        (
            "maxBrokenLinks = 2",
            None,
            site(3, &broken(2)),
            site(3, &broken(3)),
            "maxBrokenLinks: 3 broken links; at most 2 are allowed",
        ),
        ("require = [\"/\", \"/sitemap.xml\", \"/p1/\"]", None, site(2, "a"), site(1, "b"), "require: 404 at \"/p1/\""),
        ("maxShrink = \"0%\"", Some(site(3, "a")), site(3, "b"), site(2, "c"), "33.4 % fewer; at most 0 %"),
        (
            "maxBrokenLinks = 0",
            Some(site(3, "a")),
            site(3, "b"),
            site(3, "<img src=no.png>"),
            "1 broken link instead of 0",
        ),
    ];
    for (rule, before, good, bad, words) in cases {
        for (bundle, passes) in [(&good, true), (&bad, false)] {
            let host = Host::configured(&export(""));
            if let Some(before) = &before {
                bring(&host, 0, before);
            }
            let stays = host.id("active");
            host.configure(&export(&format!("[gate]\n{rule}\n")));
            let ended = bring(&host, if passes { 0 } else { 7 }, bundle);
            if passes {
                assert_ne!(host.id("active"), stays, "{rule}");
                continue;
            }
            assert!(ended.stderr.contains("refused by the gate: ") && ended.stderr.contains(words), "{}", ended.stderr);
            let way_out = format!("`docwharf activate {}` lets it through, or --force with", &host.id("newest")[..12]);
            assert!(ended.stderr.contains(&way_out), "{}", ended.stderr);
            assert_eq!(ended.stderr.contains("nothing is served yet"), before.is_none(), "{}", ended.stderr);
            assert_eq!(host.id("active"), stays, "{rule}");
        }
    }
}

#[test]
fn a_refusal_is_told_in_status_and_once_in_history_and_pages_are_not_read_again() {
    let host = Host::configured(&export("[gate]\nmaxShrink = \"30%\"\nmaxBrokenLinks = 0\n"));
    bring(&host, 0, &site(10, "one"));
    let first = host.id("active");
    bring(&host, 7, &site(6, "two"));
    let verdict = host.status()["gate"].clone();
    host.ends_plainly(7, &["sync"]);
    host.ends_plainly(7, &["sync"]);
    let status = host.status();
    let second = host.id("newest");
    assert_eq!(status["active"], first.as_str());
    assert_eq!(status["gate"], verdict, "the verdict stands, with its time");
    assert_eq!(
        (&status["gate"]["version"], &status["gate"]["against"], &status["gate"]["passed"]),
        (&Value::from(second.as_str()), &Value::from(first.as_str()), &Value::Bool(false))
    );
    assert_eq!((&status["staged"]["version"], status["staged"]["waits"].as_str()), (&verdict["version"], Some("gate")));
    assert_eq!(status["lastAttempt"]["result"], "not activated");
    let text = host.ends_plainly(0, &["status"]).stdout;
    assert!(
        text.contains("maxShrink: 6 pages instead of 10, 40 % fewer") && text.contains("lets it through"),
        "{text}"
    );
    let kept_back = history(&host, "kept back");
    assert_eq!(kept_back.len(), 1);
    assert!(kept_back[0]["note"].as_str().unwrap().starts_with("maxShrink: "));
}

#[test]
fn force_lets_it_through_once_and_history_says_past_what() {
    let host = Host::configured(&export(SHRINK));
    bring(&host, 0, &site(10, "one"));
    bring(&host, 7, &site(2, "two"));
    // What was refused is forced without being brought again.
    let forced = host.ends_plainly(0, &["sync", "--force", "--json"]).json();
    assert_eq!((&forced["result"], &forced["version"]), (&"activated".into(), &host.id("active").into()));
    assert_eq!(host.id("active"), host.id("newest"));
    let note = history(&host, "activated").pop().unwrap()["note"].as_str().unwrap().to_owned();
    assert!(note.starts_with("forced past the gate: maxShrink: 2 pages instead of 10"), "{note}");
    assert_eq!(host.status()["staged"], Value::Null);
    host.ends_plainly(0, &["sync"]);
    // Once: the next one is judged.
    bring(&host, 7, &site(1, "three"));
    host.put_bundle(&site(1, "four"));
    let bundle = host.path("bundle.zip");
    host.ends_plainly(7, &["import", bundle.to_str().unwrap()]);
    host.ends_plainly(0, &["import", bundle.to_str().unwrap(), "--force"]);
    assert_eq!(host.id("active"), host.id("newest"));
}

#[test]
fn force_does_not_override_a_hold_and_a_person_passes_by_the_gate() {
    let host = Host::configured(&export(SHRINK));
    bring(&host, 0, &site(10, "one"));
    let first = host.id("active");
    host.ends_plainly(0, &["hold"]);
    host.put_bundle(&site(2, "two"));
    let held = host.ends_plainly(7, &["sync", "--force"]);
    assert!(held.stderr.contains("held by tester"), "{}", held.stderr);
    assert_eq!(host.id("active"), first);
    // The end of the hold does not let it in either.
    let released = host.ends_plainly(0, &["release", "--json"]).json();
    assert_eq!((&released["outcome"], &released["version"]), (&"not activated".into(), &first.as_str().into()));
    let second = host.id("newest");
    host.ends_plainly(0, &["activate", &second[..12]]);
    assert_eq!(host.id("active"), second);
    assert!(host.status()["hold"].is_object(), "as before, what a person chooses is held");
    host.ends_plainly(0, &["rollback"]);
    assert_eq!(host.id("active"), first);
}

#[test]
fn run_keeps_the_site_up_and_activates_at_the_next_look_when_the_rules_let_it() {
    let host = Host::configured(&export(SHRINK));
    bring(&host, 0, &site(10, "one"));
    let daemon = run(&host);
    host.put_bundle(&site(6, "two"));
    until("it is kept back", || history(&host, "kept back").len() == 1);
    assert_eq!(http::get(&daemon.address, "/").text(), "<h1>one</h1>");
    host.configure(&export("[gate]\nmaxShrink = \"40%\"\n"));
    until("it is let in", || http::get(&daemon.address, "/").text() == "<h1>two</h1>");
    assert_eq!(history(&host, "kept back").len(), 1);
    // Without rules everything is let in.
    host.put_bundle(&site(1, "three"));
    until("it is kept back", || history(&host, "kept back").len() == 2);
    host.configure(&export(""));
    until("it is let in", || http::get(&daemon.address, "/").text() == "<h1>three</h1>");
}

/// A site of which the gate has to read for seconds: each link is short, but stands under a long base.
fn slow_site(front: &str) -> Vec<u8> {
    let names: Vec<String> = (0..SLOW_PAGES).map(|n| format!("p{n}.html")).collect();
    let page = format!("<base href=\"/{}\">{}", "a/".repeat(2000), broken(1500));
    let front = format!("<h1>{front}</h1>");
    let mut members: Vec<Member> = names.iter().map(|name| deflated(name, &page)).collect();
    members.push(deflated("index.html", &front));
    zip(&members)
}

const SLOW_PAGES: usize = 100;

#[test]
fn what_is_typed_while_a_release_is_judged_is_done_at_once_and_counts() {
    let host = Host::configured(&export("[gate]\nmaxBrokenLinks = 1000000\n"));
    bring(&host, 0, &site(3, "one"));
    let first = host.id("active");
    let daemon = run(&host);
    host.ends_plainly(0, &["hold"]);
    host.put_bundle(&slow_site("two"));
    until("it is in the store", || host.id("newest") != first);
    let release = || {
        let mut command = host.command(&["release", "--json"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("docwharf starts")
    };
    let result = |release: Child| {
        let ended = release.wait_with_output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        serde_json::from_slice::<Value>(&ended.stdout).unwrap()
    };
    let released = release();
    until("the hold has ended", || host.status()["hold"].is_null());
    host.ends_plainly(0, &["hold", "--reason", "after all"]);
    let said = result(released);
    assert_eq!((&said["outcome"], &said["wasHeld"]), (&"already current".into(), &true.into()));
    assert_eq!((said["version"].as_str(), host.id("active")), (Some(first.as_str()), first.clone()));
    assert_eq!(host.status()["hold"]["why"], "after all");
    // Under other rules it is read once more, and is served when the verb ends.
    host.configure(&export("[gate]\nmaxBrokenLinks = 1000001\n"));
    let said = result(release());
    assert_eq!((&said["outcome"], said["version"].as_str()), (&"activated".into(), Some(host.id("newest").as_str())));
    assert_eq!(http::get(&daemon.address, "/").text(), "<h1>two</h1>");
    assert_eq!(history(&host, "activated").last().unwrap()["who"], "tester");
}

#[test]
fn a_changed_configuration_calls_the_judging_off_and_nothing_is_kept_of_it() {
    let host = Host::configured(&export("[gate]\nmaxBrokenLinks = 0\n"));
    bring(&host, 0, &site(3, "one"));
    let first = host.id("active");
    let daemon = run(&host);
    host.put_bundle(&slow_site("two"));
    until("it is in the store", || host.id("newest") != first);
    host.configure(&export(""));
    daemon.signal("HUP");
    until("it is let in", || http::get(&daemon.address, "/").text() == "<h1>two</h1>");
    assert_eq!(history(&host, "kept back").len(), 0, "it was judged to the end under rules that have gone");
}

#[test]
fn a_start_does_not_serve_what_the_gate_refused_also_when_nothing_else_is_there() {
    let host = Host::configured(&export("[gate]\nminPages = 5\n"));
    bring(&host, 7, &site(2, "small"));
    let daemon = run(&host);
    until("it has looked", || host.status()["lastAttempt"]["result"] == "not activated");
    assert_eq!(http::get(&daemon.address, "/").status, 503);
    host.put_bundle(&site(5, "whole"));
    until("a good one", || http::get(&daemon.address, "/").text() == "<h1>whole</h1>");
    drop(daemon);
    // Nor is it fallen back to when the active version is damaged.
    host.put_bundle(&site(3, "half"));
    host.ends_plainly(7, &["sync"]);
    let image = host.path("store/versions").join(host.id("active")).join("site.zip");
    std::fs::remove_file(&image).unwrap();
    let daemon = run(&host);
    assert_ne!(http::get(&daemon.address, "/").text(), "<h1>half</h1>");
}

#[test]
fn what_comes_through_the_inbox_is_judged_and_let_in_when_the_rules_change() {
    let host = Host::configured(&export(""));
    let rules = "[sync]\ninbox = \"inbox\"\n";
    host.configure(rules);
    std::fs::create_dir(host.path("inbox")).unwrap();
    let daemon = run(&host);
    std::fs::write(host.path("inbox/one.zip"), site(10, "one")).unwrap();
    until("the first", || http::get(&daemon.address, "/").text() == "<h1>one</h1>");
    host.configure(&format!("{rules}{SHRINK}"));
    // Put aside as accepted: the bundle is good, it only does not become active by itself.
    std::fs::write(host.path("inbox/two.zip"), site(2, "two")).unwrap();
    until("it is put away", || host.path("inbox/accepted/two.zip").exists());
    until("it is kept back", || history(&host, "kept back").len() == 1);
    assert_eq!(http::get(&daemon.address, "/").text(), "<h1>one</h1>");
    host.configure(rules);
    until("it is let in", || http::get(&daemon.address, "/").text() == "<h1>two</h1>");
}

#[test]
fn a_pin_is_judged_too_and_what_is_kept_back_is_not_pruned() {
    let host = Host::configured(&export("[sync]\nkeep = 0\n"));
    let label = |name: &str, bytes: &[u8]| {
        host.put_bundle(bytes);
        let bundle = host.path("bundle.zip");
        let _ = end(&mut host.command(&["import", bundle.to_str().unwrap(), "--label", name]));
    };
    label("big", &site(10, "big"));
    let big = host.id("active");
    label("small", &site(2, "small"));
    let small = host.id("active");
    host.ends_plainly(0, &["activate", "big"]);
    host.configure(&export(&format!("[sync]\nkeep = 0\n{SHRINK}")));
    host.ends_plainly(0, &["release"]);
    assert_eq!(host.id("active"), big, "the newest is refused");
    // Brought under the same name, it is another version; the one before it is labelled and stays.
    host.put_bundle(&site(3, "three"));
    let pinned = ["sync", "--refresh"];
    let mut command = host.command(&pinned);
    let ended = end(command.env("DOCWHARF_STATIC_EXPORT__VERSION", "three")).expect(7);
    assert!(ended.stderr.contains("maxShrink: 3 pages instead of 10"), "{}", ended.stderr);
    assert_eq!(host.id("active"), big);
    let versions = host.ends_plainly(0, &["versions", "--json"]).json();
    let ids: Vec<&str> = versions["versions"].as_array().unwrap().iter().map(|v| v["id"].as_str().unwrap()).collect();
    assert!(ids.contains(&small.as_str()) && ids.contains(&host.id("newest").as_str()), "{ids:?}");
    // Again, with the label in the store: nothing is asked of the source, and it is refused all the same.
    let mut again = host.command(&["sync"]);
    end(again.env("DOCWHARF_STATIC_EXPORT__VERSION", "three")).expect(7);
    let mut forced = host.command(&["sync", "--force"]);
    end(forced.env("DOCWHARF_STATIC_EXPORT__VERSION", "three")).expect(0);
    assert_ne!(host.id("active"), big);
}

#[test]
fn links_are_looked_up_as_the_server_would() {
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
        let host = Host::configured(&export(""));
        host.configure(&format!(
            "basePath = \"/docs/\"\n[staticExport]\nbundleUrl = \"bundle.zip\"\n{base} = {limit}\n"
        ));
        let ended = bring(&host, code, &zip(&members));
        if code == 7 {
            let number = "2 broken links; at most 1 are allowed (such as \"/docs/guide/logo.svg\" on \"base.html\")";
            assert!(ended.stderr.contains(number), "{}", ended.stderr);
        }
        if code == 0 {
            // The server agrees.
            let daemon = run(&host);
            for (target, status) in [("/docs/guide/logo.svg", 404), ("/guide", 404), ("/docs/a%20b.css", 200)] {
                assert_eq!(http::get(&daemon.address, target).status, status, "{target}");
            }
        }
    }
}

#[test]
fn broken_links_of_the_active_version_are_counted_anew_when_addresses_mean_something_else() {
    let pages = (0..20).fold(String::new(), |mut text, n| {
        let _ = write!(text, "<a href=\"/docs/p{}\">x</a>", n + 1);
        text
    });
    let configure = |host: &Host, base: &str, most: u32| {
        host.configure(&format!(
            "basePath = {base:?}\n[staticExport]\nbundleUrl = \"bundle.zip\"\n[gate]\nmaxBrokenLinks = {most}\n"
        ));
    };
    // Below another base path all 20 links of the first version are broken: more than the next one may have.
    let host = Host::configured(&export(""));
    configure(&host, "/other/", 20);
    bring(&host, 0, &site(21, &pages));
    let first = host.id("active");
    configure(&host, "/docs/", 0);
    let ended = bring(&host, 7, &site(21, &format!("{pages}{}", broken(10))));
    assert!(ended.stderr.contains("10 broken links instead of 0"), "{}", ended.stderr);
    assert_eq!(host.id("active"), first);
    // The other way round the next one has no more of them than the first has by now.
    let host = Host::configured(&export(""));
    configure(&host, "/docs/", 0);
    bring(&host, 0, &site(21, &pages));
    let first = host.id("active");
    configure(&host, "/other/", 0);
    bring(&host, 0, &site(22, &pages));
    assert_ne!(host.id("active"), first);
}

#[test]
fn links_that_would_take_days_to_look_up_are_not_let_in_and_that_is_said() {
    // A thousand patterns, and links that redirects lead from one to the next as often as they are followed.
    let mut rules = (0..900).fold(String::new(), |all, n| all + &format!("/none{n}/* /x 301\n"));
    for n in 0..30 {
        let _ = writeln!(rules, "/hop{n}/* /hop{}/:splat 301", n + 1);
    }
    let long = "a".repeat(4000);
    let links =
        |count: usize| (0..count).fold(String::new(), |all, n| all + &format!("<a href=/hop0/{n}/{long}>x</a>"));
    let bundle = |links: &str| {
        zip(&[deflated("index.html", "<p>home"), deflated("_redirects", &rules), deflated("links.html", links)])
    };
    let host = Host::configured(&export("[gate]\nmaxBrokenLinks = 100000\n"));
    bring(&host, 0, &bundle(&links(5)));
    let first = host.id("active");
    let ended = bring(&host, 7, &bundle(&links(700)));
    assert!(ended.stderr.contains("maxBrokenLinks: not all links could be looked up"), "{}", ended.stderr);
    assert_eq!(host.id("active"), first);
    // A person may know better, and the next one is not held back by it.
    host.ends_plainly(0, &["sync", "--force"]);
    assert_ne!(host.id("active"), first);
    bring(&host, 0, &bundle(&links(6)));
}

const MANUAL: &str = "[activate]\nmode = \"manual\"\n";

#[test]
fn in_manual_mode_a_person_promotes_each_version_and_no_hold_comes_of_it() {
    let host = Host::configured(&export(MANUAL));
    let nothing = host.ends_plainly(0, &["stage"]);
    assert_eq!(nothing.stdout, "nothing is staged; nothing is active\n");
    let first = bring(&host, 0, &site(3, "one"));
    assert!(first.stdout.starts_with("staged ") && first.stdout.contains("`docwharf activate "), "{}", first.stdout);
    let daemon = run(&host);
    until("it has looked", || host.status()["lastAttempt"]["result"] == "staged");
    assert_eq!(http::get(&daemon.address, "/").status, 503, "the empty store is filled by a person, too");
    assert!(host.ends_plainly(0, &["status"]).stdout.contains("makes it active"));
    drop(daemon);

    let one = host.id("newest");
    let done = host.ends_plainly(0, &["activate", &one[..12], "--json"]).json();
    assert_eq!((&done["result"], &done["held"]), (&"activated".into(), &false.into()));
    assert_eq!((host.id("active"), host.status()["hold"].clone()), (one.clone(), Value::Null));

    let json = host.ends_plainly(0, &["sync", "--json"]).json();
    assert_eq!(json["result"], "already current");
    host.put_bundle(&site(5, "two"));
    let json = host.ends_plainly(0, &["sync", "--json", "--force"]).json();
    assert_eq!((&json["result"], json["version"] == one.as_str()), (&"staged".into(), false), "force is for the gate");
    let two = host.id("newest");

    let stage = host.ends_plainly(0, &["stage", "--json"]).json();
    assert_eq!(stage["staged"]["version"], two.as_str());
    assert_eq!((&stage["staged"]["waits"], &stage["gate"]), (&"manual".into(), &Value::Null));
    assert!(stage["staged"]["receipt"]["source"].as_str().unwrap().ends_with("bundle.zip"));
    assert_eq!((&stage["diff"]["pages"]["added"], &stage["diff"]["pages"]["changed"]), (&2.into(), &1.into()));
    let text = host.ends_plainly(0, &["stage"]).stdout;
    assert!(text.contains(&two[..12]) && text.contains("3 → 5: 2 added, 0 removed, 1 changed"), "{text}");

    // A rollback holds as ever, and its end stages; it does not activate.
    host.ends_plainly(0, &["activate", &two[..12]]);
    host.ends_plainly(0, &["rollback"]);
    assert_eq!((host.id("active"), host.status()["hold"].is_object()), (one.clone(), true));
    assert_eq!(host.ends_plainly(0, &["stage", "--json"]).json()["staged"]["waits"], "hold");
    assert_eq!(host.ends_plainly(0, &["release", "--json"]).json()["outcome"], "staged");
    assert_eq!(host.id("active"), one);
    // An older version that a person wants is held.
    host.ends_plainly(0, &["activate", &two[..12]]);
    host.ends_plainly(0, &["activate", &one[..12]]);
    assert!(host.status()["hold"].is_object());
}

#[test]
fn in_manual_mode_run_serves_what_was_promoted_and_auto_takes_over_what_waits() {
    let host = Host::configured(&export(MANUAL));
    bring(&host, 0, &site(3, "one"));
    host.ends_plainly(0, &["activate", &host.id("newest")[..12]]);
    let daemon = run(&host);
    host.put_bundle(&site(3, "two"));
    until("it is staged", || host.status()["lastAttempt"]["result"] == "staged");
    assert_eq!(http::get(&daemon.address, "/").text(), "<h1>one</h1>");
    host.configure(&export(""));
    until("it is active", || http::get(&daemon.address, "/").text() == "<h1>two</h1>");
}

#[test]
fn in_manual_mode_the_pin_names_what_is_staged_and_the_gate_only_advises() {
    let host = Host::configured(&export(""));
    bring(&host, 0, &site(10, "one"));
    let one = host.id("active");
    host.configure(&export(&format!("version = \"next\"\n{MANUAL}{SHRINK}")));
    host.put_bundle(&site(2, "next"));
    assert_eq!(host.ends_plainly(0, &["sync", "--json"]).json()["result"], "staged");
    assert_eq!(host.id("active"), one);
    let stage = host.ends_plainly(0, &["stage", "--json"]).json();
    assert_eq!((&stage["staged"]["labels"][0], &stage["staged"]["waits"]), (&"next".into(), &"manual".into()));
    assert_eq!(stage["gate"]["passed"], false);
    assert!(host.ends_plainly(0, &["stage"]).stdout.contains("refuses it: maxShrink: 2 pages instead of 10"));
    host.ends_plainly(0, &["activate", "next"]);
    assert_eq!((host.id("active") != one, host.status()["hold"].clone()), (true, Value::Null));
}

#[test]
fn stage_asks_the_gate_itself_when_the_record_does_not_know() {
    let host = Host::configured(&export(""));
    bring(&host, 0, &site(10, "one"));
    host.ends_plainly(0, &["hold"]);
    host.put_bundle(&site(2, "two"));
    host.ends_plainly(7, &["sync"]);
    let before = std::fs::read(host.path("store/state.json")).unwrap();
    host.configure(&export("[gate]\nmaxShrink = \"30%\"\nmaxBrokenLinks = 0\n"));
    let stage = host.ends_plainly(0, &["stage", "--json"]).json();
    assert_eq!((&stage["staged"]["waits"], &stage["gate"]["passed"]), (&"hold".into(), &false.into()));
    assert_eq!(std::fs::read(host.path("store/state.json")).unwrap(), before, "it only reads");
}

#[test]
fn force_and_promotion_reach_a_running_daemon_which_serves_what_comes_of_them() {
    let host = Host::configured(&export(SHRINK));
    bring(&host, 0, &site(10, "one"));
    let daemon = run(&host);
    host.put_bundle(&site(6, "two"));
    until("it is kept back", || history(&host, "kept back").len() == 1);
    let text = host.ends_plainly(0, &["status"]).stdout;
    assert!(text.contains("the gate refuses it: maxShrink: 6 pages instead of 10"), "{text}");
    assert!(metrics(&host).contains("\ndocwharf_gate_refused 1\n"));
    let refused = host.ends_plainly(7, &["sync"]);
    assert!(refused.stderr.contains("refused by the gate: maxShrink: "), "{}", refused.stderr);
    assert_eq!(host.ends_plainly(0, &["sync", "--force", "--json"]).json()["result"], "activated");
    assert_eq!(http::get(&daemon.address, "/").text(), "<h1>two</h1>");
    assert!(metrics(&host).contains("\ndocwharf_gate_refused 0\n"));
    // Once.
    host.put_bundle(&site(2, "three"));
    until("it is kept back", || history(&host, "kept back").len() == 2);
    std::fs::write(host.path("four.zip"), site(1, "four")).unwrap();
    let four = host.path("four.zip");
    host.ends_plainly(7, &["import", four.to_str().unwrap()]);
    host.ends_plainly(0, &["import", four.to_str().unwrap(), "--force"]);
    assert_eq!(http::get(&daemon.address, "/").text(), "<h1>four</h1>");

    host.configure(&export(MANUAL));
    let five = host.path("five.zip");
    let mut tries = 0;
    // Until the daemon has read its configuration again, what comes becomes active.
    until("it waits for a person", || {
        tries += 1;
        std::fs::write(&five, site(1, &format!("five {tries}"))).unwrap();
        let ended = end(&mut host.command(&["import", five.to_str().unwrap(), "--json"]));
        ended.code == Some(0) && ended.json()["result"] == "staged"
    });
    let waiting = host.id("newest");
    let done = host.ends_plainly(0, &["activate", &waiting[..12], "--json"]).json();
    assert_eq!((&done["version"], &done["held"]), (&waiting.as_str().into(), &false.into()));
    assert_eq!(http::get(&daemon.address, "/").text(), format!("<h1>five {tries}</h1>"));
}

#[test]
fn a_lost_record_does_not_activate_what_was_kept_back() {
    let host = Host::configured(&export(SHRINK));
    bring(&host, 0, &site(10, "one"));
    let one = host.id("active");
    bring(&host, 7, &site(2, "two"));
    std::fs::write(host.path("store/state.json"), "{").unwrap();
    end(&mut host.command(&["sync"])).expect(7);
    assert_eq!(host.id("active"), one);
}

#[test]
fn mistakes_in_the_rules_are_told_by_key() {
    let host = Host::configured(&export(
        "[gate]\nrequire = [\"guides\"]\nminPages = -1\nmaxShrink = 30\nmaxBrokenLinks = \"few\"\n\
         [activate]\nmode = \"sometimes\"\n",
    ));
    let ended = end(&mut host.command(&["config", "check"])).expect(2);
    for key in ["gate.require", "gate.minPages", "gate.maxShrink", "gate.maxBrokenLinks", "activate.mode"] {
        assert_eq!(
            ended.stderr.lines().filter(|line| line.contains(&format!("{key}: "))).count(),
            1,
            "{}",
            ended.stderr
        );
    }
}
