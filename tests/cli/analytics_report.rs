//! `analytics report` against an upstream that counts events: numbers, text on the terminal, JSON and HTML page.

use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::{Value, json};
use support::CommandOutput;
use support::host::{Host, bundle, toml_string};
use support::project_api::PROJECT;
use support::upstream::{KEY, Upstream, UpstreamCall, error_reply};

/// Two weeks in February, compared with the two weeks before.
const DAYS: [&str; 6] = ["--from", "2026-02-15", "--to", "2026-03-01", "--compare", "previous"];

fn host(upstream: &Upstream) -> Host {
    Host::new(upstream).set("api.projectId", toml_string(PROJECT))
}

fn report(host: &Host, more: &[&str]) -> CommandOutput {
    host.ok(&[&["analytics", "report"], more].concat())
}

/// Adds searches for a term on a day, some of which led to a click on this page.
fn add_searches(upstream: &Upstream, term: &str, day: &str, times: usize, clicks: usize, page: &str) {
    for n in 0..times {
        let clicked = (n < clicks).then(|| page.to_owned());
        upstream.state().project_api.events.push((term.to_owned(), day.to_owned(), clicked));
    }
}

/// An upstream with two periods, counted by hand: 100 searches with 40 clicks, and before them 80 searches with 48.
fn two_periods() -> Upstream {
    let upstream = Upstream::new(bundle("one"));
    let now = "2026-02-20";
    add_searches(&upstream, "tides", now, 40, 30, "/guides/tides");
    add_searches(&upstream, "harbour", now, 24, 3, "/guides/harbour");
    add_searches(&upstream, "night watch", now, 16, 0, "");
    add_searches(&upstream, "buoys", now, 10, 6, "/guides/buoys");
    add_searches(&upstream, "anchor", now, 8, 1, "/guides/anchor");
    add_searches(&upstream, "typo", now, 2, 0, "");
    // The end is exclusive: the first of the next month does not count, the last day before it does.
    add_searches(&upstream, "tides", "2026-03-01", 50, 0, "");
    let before = "2026-02-14";
    add_searches(&upstream, "tides", before, 30, 24, "/guides/tides");
    add_searches(&upstream, "harbour", before, 30, 12, "/guides/harbour");
    add_searches(&upstream, "buoys", "2026-02-01", 10, 8, "/guides/buoys");
    add_searches(&upstream, "sextant", before, 10, 4, "/guides/sextant");
    add_searches(&upstream, "sextant", "2026-01-31", 99, 0, "");
    upstream
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|term| term["searchQuery"].as_str().unwrap()).collect()
}

#[test]
fn report_json_contains_the_numbers_counted_by_hand() {
    let upstream = two_periods();
    let host = host(&upstream);
    let report = report(&host, &[&DAYS[..], &["--json"]].concat()).json();
    let mut keys: Vec<&String> = report.as_object().unwrap().keys().collect();
    let expected = [
        "change",
        "lowCtr",
        "madeAt",
        "period",
        "previous",
        "project",
        "rules",
        "schemaVersion",
        "top",
        "trends",
        "unclicked",
    ];
    keys.sort();
    assert_eq!(keys, expected);
    assert_eq!((&report["schemaVersion"], &report["project"]), (&json!(1), &json!(PROJECT)));
    assert_eq!(report["rules"], json!({"top": 10, "lowPercent": 20.0, "fewestHits": 3}));
    assert_eq!(
        report["period"],
        json!({"from": "2026-02-15", "to": "2026-03-01", "totalSearches": 100, "termsRead": 6, "allTermsRead": true,
            "searchesRead": 100, "clickThroughRate": 40.0})
    );
    assert_eq!(
        report["previous"],
        json!({"from": "2026-02-01", "to": "2026-02-15", "totalSearches": 80, "termsRead": 4, "allTermsRead": true,
            "searchesRead": 80, "clickThroughRate": 60.0})
    );
    assert_eq!(report["change"], json!({"searches": 20, "percent": 25.0, "points": -20.0}));

    assert_eq!(names(&report["top"]), ["tides", "harbour", "night watch", "buoys", "anchor", "typo"]);
    assert_eq!(
        report["top"][0],
        json!({"searchQuery": "tides", "rank": 1, "hits": 40, "share": 40.0, "ctr": 75.0, "withoutClick": 10,
            "topClickedPage": "/guides/tides", "before": {"rank": 2, "hits": 30, "ctr": 80.0}, "change": 10})
    );
    // 21 of the 24 searches for harbour had no click, and 7 of the 8 for anchor.
    assert_eq!(names(&report["lowCtr"]["list"]), ["harbour", "anchor"]);
    assert_eq!((&report["lowCtr"]["list"][0]["withoutClick"], &report["lowCtr"]["share"]), (&json!(21), &json!(32.0)));
    assert_eq!(names(&report["unclicked"]["list"]), ["night watch", "typo"]);
    let unclicked = &report["unclicked"];
    assert_eq!(
        (&unclicked["terms"], &unclicked["searches"], &unclicked["share"]),
        (&json!(2), &json!(18), &json!(18.0))
    );
    let trends = &report["trends"];
    assert_eq!(names(&trends["risen"]), ["tides"]);
    assert_eq!(names(&trends["fallen"]), ["harbour"]);
    assert_eq!(names(&trends["new"]), ["night watch", "anchor", "typo"]);
    assert_eq!(trends["gone"], json!([{"searchQuery": "sextant", "before": {"rank": 4, "hits": 10, "ctr": 40.0}}]));

    // One request a period: six terms are one page.
    assert_eq!(upstream.count(UpstreamCall::Searches), 2);
    assert!(report["madeAt"].as_str().unwrap().ends_with('Z'));
}

#[test]
fn text_report_shows_the_same_numbers_as_the_json_report() {
    let upstream = two_periods();
    let host = host(&upstream);
    let shown = report(&host, &DAYS).stdout;
    let has = |words: &[&str]| {
        let found = shown
            .lines()
            .any(|line| line.split_whitespace().collect::<Vec<_>>().join(" ").starts_with(&words.join(" ")));
        assert!(found, "{words:?} in {shown}");
    };
    has(&["Searches in prj_7/a, 2026-02-15 to 2026-02-28 (14 days)"]);
    has(&["Searches 100 25.0% more than 80 in 2026-02-01 to 2026-02-14"]);
    has(&["Led to a click 40.0% 20.0 points less"]);
    has(&["Nobody clicked 18 2 terms, 18.0% of all searches"]);
    has(&["tides ━━━━━━━━━━━━╌╌╌╌ 40 40.0% 75.0% +10 /guides/tides"]);
    has(&["night watch ╌╌╌╌╌╌ 16 16.0% 0.0% new"]);
    has(&["harbour 30 24 −6 1 → 2 12.5%"]);
    has(&["sextant 10 40.0%"]);
    assert!(!shown.contains('\x1b'), "no colour unless it is requested");
    let painted = report(&host, &[&DAYS[..], &["--color", "always"]].concat()).stdout;
    assert!(painted.contains("\x1b[36m━"), "{painted}");

    let alone = report(&host, &DAYS[..4]).stdout;
    assert!(!alone.contains("CHANGE") && !alone.contains("Not searched for"), "{alone}");
    let few = report(&host, &[&DAYS[..], &["--top", "1", "--low", "13%", "--json"]].concat()).json();
    assert_eq!((few["top"].as_array().unwrap().len(), few["unclicked"]["terms"].as_u64()), (1, Some(2)));
    assert_eq!(names(&few["lowCtr"]["list"]), ["harbour"]);
    for arguments in [["--low", "0"], ["--low", "101"], ["--top", "0"], ["--compare", "next"], ["--terms", "0"]] {
        host.expect_exit(2, &[&["analytics", "report"], &arguments[..]].concat());
    }
    host.expect_exit(2, &["analytics", "report", "--terms", "5", "--all"]);
}

#[test]
fn report_of_a_period_without_searches_is_one_line_and_exits_0() {
    let upstream = Upstream::new(bundle("one"));
    let host = host(&upstream);
    let page = host.path("report.html");
    let output = report(&host, &[&DAYS[..], &["--html", page.to_str().unwrap()]].concat());
    assert_eq!(output.stdout, "Nobody searched in prj_7/a: 2026-02-15 to 2026-02-28 (14 days)\n");
    assert!(std::fs::read_to_string(&page).unwrap().contains("Nobody searched in this period."));
    let json = report(&host, &[&DAYS[..], &["--json"]].concat()).json();
    assert_eq!((&json["period"]["totalSearches"], &json["change"]["percent"]), (&json!(0), &Value::Null));
    assert_eq!(json["period"]["clickThroughRate"], Value::Null);
}

#[test]
fn report_without_clicks_lists_every_term_as_unclicked() {
    let upstream = Upstream::new(bundle("one"));
    add_searches(&upstream, "tides", "2026-02-20", 3, 0, "");
    add_searches(&upstream, "harbour", "2026-02-20", 2, 0, "");
    let host = host(&upstream);
    let json = report(&host, &[&DAYS[..], &["--json"]].concat()).json();
    assert_eq!((&json["period"]["clickThroughRate"], &json["unclicked"]["share"]), (&json!(0.0), &json!(100.0)));
    assert_eq!(names(&json["unclicked"]["list"]), ["tides", "harbour"]);
    assert_eq!(json["lowCtr"]["terms"], 0);
    let shown = report(&host, &DAYS).stdout;
    assert!(shown.contains("at least 3 searches: no term\n"), "{shown}");
}

/// Terms that a reader may type.
const HOSTILE: [&str; 8] = [
    "<script>alert(1)</script>",
    "</style><img src=https://evil.example/x>",
    "\u{1b}[2J\u{1b}]0;taken\u{7}",
    "line\r\nbreak\u{0}",
    "\u{202e}gnp.exe",
    "潮汐表 🌊 e\u{301}",
    "مد وجزر",
    "",
];

#[test]
fn search_terms_are_escaped_in_terminal_output_and_in_the_html_report() {
    let upstream = Upstream::new(bundle("one"));
    let long = "W".repeat(20_000);
    for term in HOSTILE.into_iter().chain([long.as_str()]) {
        add_searches(&upstream, term, "2026-02-20", 9, 1, &format!("/{term}"));
        add_searches(&upstream, &format!("{term} "), "2026-02-20", 2, 0, "");
        add_searches(&upstream, term, "2026-02-10", 5, 1, "javascript:alert(1)");
    }
    let host = host(&upstream);
    let page = host.path("report.html");
    let shown = report(&host, &[&DAYS[..], &["--top", "99", "--html", page.to_str().unwrap()]].concat());
    for text in [&shown.stdout, &shown.stderr] {
        assert!(!text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{text:?}");
        assert!(!text.contains(KEY));
    }
    assert!(
        shown.stdout.contains("潮汐表 🌊") && shown.stdout.contains("مد وجزر") && shown.stdout.contains("\\u{1b}[2J")
    );

    let html = std::fs::read_to_string(&page).unwrap();
    assert!(!html.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'));
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;") && html.contains("潮汐表"));
    assert!(html.contains("default-src 'none'; style-src 'unsafe-inline'") && !html.contains(KEY));
    // No element that could load or run anything; addresses are text, never in an attribute or a style.
    let lower = html.to_ascii_lowercase();
    for element in ["script", "img", "link", "iframe", "object", "embed", "base", "form", "a", "svg", "image", "video"]
    {
        assert!(!lower.contains(&format!("<{element}>")) && !lower.contains(&format!("<{element} ")), "<{element}");
    }
    for attribute in [" src=", " href=", " action=", " onerror=", "url(", "@import", "http-equiv=\"refresh"] {
        let outside = lower.replace("&lt;img src=https://evil.example/x&gt;", "");
        assert!(!outside.contains(attribute), "{attribute}");
    }
    let json = report(&host, &[&DAYS[..], &["--top", "99", "--json"]].concat()).json();
    for term in HOSTILE {
        assert!(names(&json["top"]).contains(&term), "{term:?} is unchanged");
    }
}

#[test]
fn terms_option_limits_the_terms_read_and_the_report_shows_the_share_read() {
    let upstream = Upstream::new(bundle("one"));
    for n in 0..230 {
        add_searches(&upstream, &format!("term {n:03}"), "2026-02-20", if n < 2 { 5 } else { 1 }, 1, "/x");
    }
    let host = host(&upstream);
    let page = host.path("report.html");
    let few = report(&host, &["--from", "2026-02-15", "--terms", "120", "--html", page.to_str().unwrap()]).stdout;
    assert_eq!(upstream.count(UpstreamCall::Searches), 2);
    assert!(few.contains("read, and there are more (53.8% of all searches): --terms N or --all"), "{few}");
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("Only the first 120 terms were read, 53.8% of its searches"), "{html}");
    let json = report(&host, &["--from", "2026-02-15", "--terms", "120", "--json"]).json();
    assert_eq!((&json["period"]["totalSearches"], &json["period"]["searchesRead"]), (&json!(238), &json!(128)));
    let all = report(&host, &["--from", "2026-02-15", "--all", "--json"]).json();
    assert_eq!((&all["period"]["termsRead"], &all["period"]["allTermsRead"]), (&json!(230), &json!(true)));
    // The API answers 100 requests of 100 terms an hour, and --compare reads two periods.
    for (options, warning) in [
        (&["--terms", "10000"][..], None),
        (&["--terms", "10001"], Some("up to 101 requests are needed")),
        (&["--terms", "5000", "--compare", "previous"], None),
        (&["--terms", "5001", "--compare", "previous"], Some("up to 102 requests are needed")),
    ] {
        let period = &["--from", "2026-02-15", "--to", "2026-02-22"][..];
        let stderr = report(&host, &[period, options].concat()).stderr;
        assert_eq!(stderr.contains("are needed"), warning.is_some(), "{options:?}: {stderr}");
        assert!(warning.is_none_or(|warning| stderr.contains(warning)), "{options:?}: {stderr}");
    }
    // A later report must not reuse the terms of an earlier one.
    add_searches(&upstream, "tides", "2026-02-20", 1, 0, "");
    let all = report(&host, &["--from", "2026-02-15", "--all", "--json"]).json();
    assert_eq!(all["period"]["totalSearches"], 239);
}

#[test]
fn report_period_defaults_to_the_last_30_whole_days() {
    let upstream = two_periods();
    let json = report(&host(&upstream), &["--compare", "previous", "--json"]).json();
    let day = |value: &Value| value.as_str().unwrap().parse::<jiff::civil::Date>().unwrap();
    let (from, to) = (day(&json["period"]["from"]), day(&json["period"]["to"]));
    assert_eq!(from.until(to).unwrap().get_days(), 30);
    assert_eq!(day(&json["previous"]["to"]), from);
    assert_eq!(day(&json["previous"]["from"]).until(from).unwrap().get_days(), 30);
    // Both times are from one reading of the clock.
    let made_at = json["madeAt"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let today = made_at.to_zoned(jiff::tz::TimeZone::UTC).date();
    assert!(to == today, "{to} {today}");
}

#[test]
fn html_report_is_replaced_atomically_and_its_path_is_checked_before_any_request() {
    let upstream = two_periods();
    let host = host(&upstream);
    std::fs::create_dir(host.path("reports")).unwrap();
    std::fs::write(host.path("reports/real.html"), "old").unwrap();
    symlink("real.html", host.path("reports/link.html")).unwrap();
    let path_of = |name: &str| host.path(name).to_str().unwrap().to_owned();
    report(&host, &[&DAYS[..], &["--html", &path_of("reports/link.html")]].concat());
    assert!(std::fs::symlink_metadata(host.path("reports/link.html")).unwrap().is_symlink());
    let written = std::fs::read_to_string(host.path("reports/real.html")).unwrap();
    assert!(written.starts_with("<!doctype html>") && written.ends_with("</html>\n"));
    assert!(written.contains("<title>Searches in prj_7/a, 2026-02-15 to 2026-02-28 (14 days)</title>"));
    let remaining: Vec<_> =
        std::fs::read_dir(host.path("reports")).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(remaining.len(), 2, "{remaining:?}");

    let before = upstream.count(UpstreamCall::Searches);
    for name in ["nowhere/report.html", "reports", "key/report.html", "/dev/null", "/proc/report.html"] {
        let path = if name.starts_with('/') { name.to_owned() } else { path_of(name) };
        let output = host.expect_exit(8, &["analytics", "report", "--html", &path]);
        assert!(output.stderr.contains("cannot write the report to"), "{}", output.stderr);
    }
    assert_eq!(upstream.count(UpstreamCall::Searches), before, "no request");
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());

    // A later failure leaves the old page, and no other file.
    upstream.state().project_api.events.clear();
    let unknown = Host::new(&upstream).set("api.projectId", toml_string("prj_unknown"));
    let output = unknown.expect_exit(2, &["analytics", "report", "--html", &path_of("reports/real.html")]);
    assert!(output.stderr.contains("no such project"), "{}", output.stderr);
    assert_eq!(std::fs::read_to_string(host.path("reports/real.html")).unwrap(), written);
    assert_eq!(std::fs::read_dir(host.path("reports")).unwrap().count(), 2);
}

#[test]
fn html_report_file_mode_follows_the_umask() {
    let upstream = two_periods();
    let host = host(&upstream);
    let page = host.path("report.html");
    let command = host.command(&["analytics", "report", "--html", page.to_str().unwrap()]);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "umask 027; exec \"$@\"", "sh"]).arg(command.get_program()).args(command.get_args());
    let status = shell.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).status().unwrap();
    assert!(status.success());
    assert_eq!(std::fs::metadata(&page).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn interrupted_report_resumes_in_the_period_where_it_stopped() {
    let upstream = Upstream::new(bundle("one"));
    for n in 0..230 {
        add_searches(&upstream, &format!("term {n:03}"), "2026-02-20", 1, 0, "");
        if n < 150 {
            add_searches(&upstream, &format!("term {n:03}"), "2026-02-10", 2, 1, "/x");
        }
    }
    let host = host(&upstream);
    let page = host.path("report.html");
    let all = [&["analytics", "report"], &DAYS[..], &["--all", "--json", "--html", page.to_str().unwrap()]].concat();
    // Three pages of the first period, one of the other.
    upstream.on(UpstreamCall::Searches).after(4).respond_with(error_reply(401));
    host.expect_exit(3, &all);
    assert!(!page.exists());
    upstream.clear_rules();
    let report = host.ok(&all).json();
    assert_eq!(upstream.count(UpstreamCall::Searches), 5 + 1, "pages that were read are not requested again");
    assert_eq!((&report["period"]["totalSearches"], &report["previous"]["totalSearches"]), (&json!(230), &json!(300)));
    assert_eq!((&report["period"]["termsRead"], &report["previous"]["termsRead"]), (&json!(230), &json!(150)));
    assert_eq!(
        (names(&report["trends"]["new"]).len(), report["trends"]["fallen"][0]["change"].as_i64()),
        (10, Some(-1))
    );
    let entries = std::fs::read_dir(host.path("store/api")).unwrap().flatten();
    assert!(!entries.map(|entry| entry.path()).any(|path| path.extension().is_some_and(|end| end == "jsonl")));
}

#[test]
fn click_rates_between_0_and_1_are_shown_as_percentages() {
    let upstream = Upstream::new(bundle("one"));
    let row = |term: &str, hits: Value, ctr: Value, page: Value| json!({"searchQuery": term, "hits": hits, "ctr": ctr, "topClickedPage": page});
    let rows = [
        row("tides", json!(30), json!(0.9), json!("/tides")),
        row("harbour", json!(10), json!(0.1), json!("/harbour")),
        row("no numbers", Value::Null, Value::Null, Value::Null),
    ];
    let body = json!({"searches": rows, "totalSearches": "unknown", "nextCursor": null});
    upstream.on(UpstreamCall::Searches).respond_with(error_reply(200).json(&body));
    let host = host(&upstream);
    let json = report(&host, &["--from", "2026-02-15", "--json"]).json();
    assert_eq!((&json["top"][0]["ctr"], &json["top"][1]["ctr"]), (&json!(90.0), &json!(10.0)));
    assert_eq!((&json["period"]["clickThroughRate"], &json["period"]["totalSearches"]), (&json!(70.0), &json!(40)));
    assert_eq!(
        (names(&json["lowCtr"]["list"]), names(&json["unclicked"]["list"])),
        (vec!["harbour"], vec!["no numbers"])
    );
    let shown = report(&host, &["--from", "2026-02-15"]).stdout;
    assert!(shown.contains("no numbers") && shown.contains('–'), "{shown}");
}
