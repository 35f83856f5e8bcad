//! `docwharf search`: results as text and as JSON, places, restrictions, the index that it builds, and its exit codes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use support::host::{Host, run_with_timeout, toml_string};
use support::zip::{Member, deflated, zip};
use support::{CommandOutput, KillOnDrop, docwharf, send_signal, until, until_done_in_background, write_site};

const PAGES: [(&str, &str); 5] = [
    ("index.html", "<title>Start</title><h1>Start</h1><p>Anchors and quays."),
    ("guide/tides.html", "<html lang=en><title>Tides</title><h1 id=tides>Tides</h1><p>Anchors in the tide."),
    (
        "guide/ropes.html",
        "<title>Ropes</title><h1>Ropes</h1><p>How to tie a bowline: <code>rope --tight</code>.\
         <h2 id=knots>Knots</h2><p>Anchors.",
    ),
    ("de/taue.html", "<html lang=de><title>Taue</title><h1>Taue</h1><p>Anchors heißen Anker."),
    ("hidden.html", "<meta name=robots content=noindex><title>Hidden</title><p>Anchors."),
];

fn bundle(pages: &[(&str, &str)]) -> Vec<u8> {
    let members: Vec<Member> = pages.iter().map(|(name, text)| deflated(name, text)).collect();
    zip(&members)
}

/// A host with [`PAGES`] as its active version, and a version before that with one page.
fn host() -> Host {
    let host = Host::bare();
    let before = [("index.html", "<title>Before</title><p>Anchors, once."), ("a.html", "<p>sheepshank")];
    host.put("before.zip", bundle(&before));
    host.put("bundle.zip", bundle(&PAGES));
    host.ok(&["import", host.path("before.zip").to_str().unwrap(), "--label", "1.3"]);
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap(), "--label", "1.4"]);
    host
}

/// The addresses of the results, sorted.
#[track_caller]
fn urls(output: &CommandOutput) -> Vec<String> {
    let answer = output.json();
    let results = answer["results"].as_array().unwrap_or_else(|| panic!("no results: {answer}"));
    let mut urls: Vec<String> = results.iter().map(|result| result["url"].as_str().unwrap().to_owned()).collect();
    urls.sort_unstable();
    urls
}

/// Runs a search that finds nothing: that is no error.
#[track_caller]
fn find_nothing(host: &Host, arguments: &[&str]) -> CommandOutput {
    let output = run_with_timeout(&mut host.command(arguments)).expect(1);
    assert_eq!(output.stderr, "", "no result is a result, not an error");
    output
}

#[test]
fn results_have_title_headings_address_and_excerpt_and_no_result_exits_1() {
    let host = host();
    let found = host.ok(&["search", "anchors"]);
    assert!(found.stdout.contains("Ropes — Knots\n  /guide/ropes.html#knots\n  Anchors.\n"), "{}", found.stdout);
    assert!(found.stdout.contains("Tides\n  /guide/tides.html#tides\n  Anchors in the tide.\n"), "{}", found.stdout);
    assert!(!found.stdout.contains("Hidden") && !found.stdout.contains('\x1b'), "{}", found.stdout);
    // In colours, titles and matches are bold.
    let bold = host.ok(&["search", "anchors", "--color", "always"]).stdout;
    assert!(
        bold.contains("\x1b[1mTides\x1b[0m\n  /guide/tides.html#tides\n  \x1b[1mAnchors\x1b[0m in the tide."),
        "{bold}"
    );
    let corrected = host.ok(&["search", "bowlnie"]).stdout;
    assert!(corrected.starts_with("results for: bowline\n\nRopes\n  /guide/ropes.html\n"), "{corrected}");
    assert_eq!(find_nothing(&host, &["search", "zyxwvut"]).stdout, "no results\n");
    assert_eq!(find_nothing(&host, &["search", "zyxwvut", "--json"]).json()["total"], 0);
}

#[test]
fn json_has_the_fields_of_the_interface() {
    let host = host();
    let output = host.ok(&["search", "--json", "anchors", "quays"]);
    let answer = output.json();
    let fields = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let mut expected =
        ["schemaVersion", "query", "corrected", "total", "ms", "indexing", "partial", "version", "results"];
    expected.sort_unstable();
    let mut found = fields(&answer);
    found.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!((&answer["schemaVersion"], &answer["query"]), (&json!(1), &json!("anchors quays")));
    assert_eq!((&answer["indexing"], &answer["partial"]), (&json!(false), &json!(false)));
    assert_eq!(answer["version"].as_str(), host.active().as_deref());
    let first = &answer["results"][0];
    assert_eq!((&first["url"], &first["title"]), (&json!("/"), &json!("Start")));
    let excerpt: Vec<u16> = first["excerpt"].as_str().unwrap().encode_utf16().collect();
    let marked: Vec<String> = first["marks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mark| {
            let [start, length] = [0, 1].map(|n| usize::try_from(mark[n].as_u64().unwrap()).unwrap());
            String::from_utf16(&excerpt[start..start + length]).unwrap()
        })
        .collect();
    assert_eq!(marked, ["Anchors", "quays"]);
    let mut expected = ["url", "title", "section", "lang", "excerpt", "marks", "score", "sections"];
    expected.sort_unstable();
    let mut found = fields(first);
    found.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn the_place_is_a_version_an_archive_or_a_folder() {
    let host = host();
    let folder = [("index.html", "<title>Folder</title><p>Marlinspike.")];
    write_site(&host.path("site"), &folder);
    let id = host.active().unwrap();
    let all = ["/", "/de/taue.html", "/guide/ropes.html#knots", "/guide/tides.html#tides"];
    for (place, word, expected) in [
        ("1.4", "anchors", &all[..]),
        (&id[..8], "anchors", &all[..]),
        ("active", "anchors", &all[..]),
        ("newest", "anchors", &all[..]),
        ("1.3", "sheepshank", &["/a.html"][..]),
        ("previous", "sheepshank", &["/a.html"][..]),
        // In the working directory.
        ("bundle.zip", "anchors", &all[..]),
        ("./site", "marlinspike", &["/"][..]),
        ("site/", "marlinspike", &["/"][..]),
    ] {
        let mut command = host.command(&["search", "--json", "--in", place, word]);
        let output = run_with_timeout(command.current_dir(host.dir.path())).expect(0);
        assert_eq!(urls(&output), expected, "{place}");
    }
    let missing = host.expect_exit(2, &["search", "--in", "no-such-label", "anchors"]);
    assert!(missing.stderr.contains("no-such-label"), "{}", missing.stderr);
    let nowhere = host.path("nowhere.zip");
    let failed = run_with_timeout(&mut host.command(&["search", "--in", nowhere.to_str().unwrap(), "x"]));
    assert!(failed.code.is_some_and(|code| code > 1) && failed.stderr.contains("nowhere.zip"), "{failed:?}");
    // Without a configuration and without a store, an archive can still be searched.
    let mut command = docwharf();
    command.args(["search", "--json", "anchors", "--in"]).arg(host.path("bundle.zip"));
    command.env("HOME", host.path("none")).current_dir(host.path("site"));
    assert_eq!(urls(&run_with_timeout(&mut command).expect(0)), all);
}

#[test]
fn limit_section_and_language_restrict_the_results() {
    let host = host();
    let one = host.ok(&["search", "--limit", "1", "anchors"]).stdout;
    assert!(one.ends_with("\n1 of 4 pages: --limit shows more\n"), "{one}");
    let search = |more: &[&str]| urls(&host.ok(&[&["search", "--json", "anchors"], more].concat()));
    assert_eq!(search(&["--section", "/guide"]), ["/guide/ropes.html#knots", "/guide/tides.html#tides"]);
    // A page without a language is in every language.
    assert_eq!(search(&["--lang", "de"]), ["/", "/de/taue.html", "/guide/ropes.html#knots"]);
    // Others only if there is none in this language.
    assert_eq!(urls(&host.ok(&["search", "--json", "--lang", "de", "bowline"])), ["/guide/ropes.html"]);
    find_nothing(&host, &["search", "--section", "/nowhere", "anchors"]);
    let long = "a".repeat(201);
    for wrong in [
        &["search"][..],
        &["search", "--limit", "0", "x"],
        &["search", "--limit", "51", "x"],
        &["search", "--limit", "few", "x"],
        &["search", "--unknown", "x"],
        &["search", &long],
        &["search", "--index-only", "x"],
        &["search", "--index-only", "--limit", "5"],
    ] {
        let output = run_with_timeout(&mut host.command(wrong)).expect(2);
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{wrong:?}: {output:?}");
    }
    let refused = host.expect_exit(2, &["search", &long]);
    assert!(refused.stderr.contains("200 characters"), "{}", refused.stderr);
}

#[test]
fn words_with_dashes_and_phrases_are_text() {
    let host = host();
    let run = |words: &[&str]| {
        let mut command = docwharf();
        command.args(["search", "--json", "--config"]).arg(host.path("docwharf.toml")).arg("--").args(words);
        run_with_timeout(&mut command)
    };
    assert_eq!(urls(&run(&["--tight"]).expect(0)), ["/guide/ropes.html"]);
    assert_eq!(urls(&run(&["\"anchors in the tide\""]).expect(0)), ["/guide/tides.html#tides"]);
    run(&["\"the tide in anchors\""]).expect(1);
    for odd in ["AND", "(", "*", "\"", "a:b", "\\", "\u{202e}"] {
        let output = run(&[odd]);
        assert!(matches!(output.code, Some(0 | 1)), "{odd:?}: {output:?}");
    }
}

#[test]
fn index_only_builds_the_index_anew_and_prints_its_numbers() {
    let host = host();
    let index = host.path("store/derived").join(host.active().unwrap()).join("search");
    let report = host.ok(&["search", "--index-only", "--json"]).json();
    assert_eq!((&report["schemaVersion"], &report["pages"], &report["kept"]), (&json!(1), &json!(4), &json!(true)));
    // Each page has one section, and one page has another heading.
    assert_eq!(report["sections"], 5, "{report}");
    assert_eq!(report["leftOut"]["noIndex"], 1, "{report}");
    assert_eq!(report["cut"]["textBytes"], 0, "{report}");
    assert!(report["seconds"].as_f64().unwrap() > 0.0, "{report}");
    assert!(report["peakMemory"].as_u64().unwrap() > 1 << 20, "{report}");
    let sizes = fs::read_dir(&index).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
    let (bytes, stored) = (report["bytes"].as_u64().unwrap(), sizes.sum::<u64>());
    assert!((bytes..bytes + 200).contains(&stored), "{bytes} bytes, {stored} on the disk");
    let inode = || fs::metadata(&index).unwrap().ino();
    let before = inode();
    host.ok(&["search", "anchors"]);
    assert_eq!(inode(), before, "a search uses it");
    let text = host.ok(&["search", "--index-only"]).stdout;
    assert_ne!(inode(), before, "it is built anew");
    for line in ["pages      4", "sections   5", "left out   1 (1 noindex)"] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    let archive = host.path("before.zip");
    let other = host.ok(&["search", "--index-only", "--json", "--in", archive.to_str().unwrap()]).json();
    assert_eq!((&other["pages"], &other["kept"]), (&json!(2), &json!(false)));
}

#[test]
fn a_missing_damaged_or_outdated_index_is_built_before_the_search() {
    let mut host = host();
    let index = host.path("store/derived").join(host.active().unwrap()).join("search");
    assert!(!index.exists());
    host.ok(&["search", "anchors"]);
    let header = index.join("search.json");
    fs::write(&header, "{}").unwrap();
    host.ok(&["search", "anchors"]);
    assert!(fs::metadata(&header).unwrap().len() > 100, "it was built again");
    // Other settings.
    host.change("search.exclude", "[\"/guide/:path*\", \"/\"]");
    assert_eq!(urls(&host.ok(&["search", "--json", "anchors"])), ["/de/taue.html"]);
    host.put("words.toml", "sets = [[\"anker\", \"kryptel\"]]");
    host.change("search.synonyms", toml_string("words.toml"));
    assert_eq!(urls(&host.ok(&["search", "--json", "kryptel"])), ["/de/taue.html"]);
    host.change("server.basePath", toml_string("/docs/"));
    assert_eq!(urls(&host.ok(&["search", "--json", "anchors"])), ["/docs/de/taue.html"]);
}

#[test]
fn beside_a_daemon_the_index_is_built_in_a_folder_that_is_removed() {
    let host = host();
    fs::create_dir(host.path("tmp")).unwrap();
    let _daemon = host.run();
    let run = |arguments: &[&str]| run_with_timeout(host.command(arguments).env("TMPDIR", host.path("tmp"))).expect(0);
    assert_eq!(urls(&run(&["search", "--json", "anchors"])).len(), 4);
    assert_eq!(run(&["search", "--index-only", "--json"]).json()["kept"], false);
    assert!(run(&["search", "--index-only"]).stdout.contains("\nkept       no"));
    assert!(fs::read_dir(host.path("tmp")).unwrap().next().is_none());
    assert!(!host.path("store/derived").join(host.active().unwrap()).join("search").exists());
}

#[test]
fn the_index_of_a_running_daemon_is_used() {
    let host = host().set("search.enabled", "true");
    let _daemon = host.run();
    until_done_in_background("the index is there", || host.status()["daemon"]["search"]["ready"] == true);
    // It could not build another one.
    let mut command = host.command(&["search", "--json", "anchors"]);
    let output = run_with_timeout(command.env("TMPDIR", host.path("nowhere"))).expect(0);
    assert_eq!(urls(&output).len(), 4);
}

#[test]
fn a_signal_ends_a_build_and_leaves_nothing() {
    let host = Host::bare();
    let text = support::sample_text(20_000);
    let pages: Vec<Member> =
        (0..1000).map(|n| deflated(&format!("{n}.html"), &format!("<title>{n}</title><p>{n} {text}"))).collect();
    host.put("bundle.zip", zip(&pages));
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
    fs::create_dir(host.path("tmp")).unwrap();
    let partial = host.path("store/derived").join(host.active().unwrap()).join(".search.new");
    let archive = host.path("bundle.zip");
    let is_empty = || fs::read_dir(host.path("tmp")).unwrap().next().is_none();
    for is_stored in [true, false] {
        let place: &[&str] = if is_stored { &[] } else { &["--in", archive.to_str().unwrap()] };
        let mut command = host.command(&[&["search", "--index-only"], place].concat());
        command.env("TMPDIR", host.path("tmp")).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = KillOnDrop(command.spawn().expect("docwharf starts"));
        until("the build has begun", || if is_stored { partial.exists() } else { !is_empty() });
        send_signal(&process.0, "INT");
        assert_eq!(process.wait(Duration::from_secs(20)), Some(130));
        until("nothing is left", || !partial.exists() && is_empty());
    }
}

#[test]
fn no_control_character_of_a_page_reaches_the_terminal() {
    let host = Host::bare();
    let hostile = "marlinspike \x1b[31mred\x07 \u{202e}back \u{200b}\u{9b}2J &#27;[2J &#x202e;end";
    let page = format!("<title>{hostile}</title><h1 id=\"a\x1bb\">{hostile}</h1><p>{hostile} <b>&lt;script&gt;</b>");
    host.put("bundle.zip", bundle(&[("index.html", "<title>Start</title>"), ("a.html", &page)]));
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
    for colour in ["never", "always"] {
        let text = host.ok(&["search", "--color", colour, "marlinspike"]).stdout;
        let plain = text.replace("\x1b[1m", "").replace("\x1b[0m", "");
        let is_allowed = |c: char| c == '\n' || !c.is_control() && !"\u{202e}\u{200b}\u{2066}".contains(c);
        assert!(plain.chars().all(is_allowed), "{text:?}");
        assert!(plain.contains("<script>"), "text stays text: {text:?}");
    }
    let answer = host.ok(&["search", "--json", "marlinspike"]).json();
    for field in ["title", "excerpt"] {
        let text = answer["results"][0][field].as_str().unwrap();
        assert!(!text.contains(['\x1b', '\x07', '\u{202e}', '\u{9b}']), "{field}: {text:?}");
    }
}

// Regression: with a mistake in the configuration, an index with pages that are excluded replaced the stored one; and
// the limits of the store did not count.
#[test]
fn an_index_stays_in_the_store_only_if_the_configuration_is_right_and_its_limits_leave_space() {
    let mut host = host();
    let kept = |host: &Host| host.ok(&["search", "--index-only", "--json"]).json()["kept"].clone();
    assert_eq!(kept(&host), true);
    let used = host.ok(&["versions", "--json"]).json()["versions"].as_array().unwrap().len();
    assert_eq!(used, 2);
    host.change("store.maxBytes", "1");
    assert_eq!(kept(&host), false);
    host.change("store.maxBytes", "1000000000");
    assert_eq!(kept(&host), true);
    host.change("search.exclude", "[\"no pattern\"]");
    assert_eq!(kept(&host), false);
}
