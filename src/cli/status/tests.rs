//! Tests of the output of `docwharf status`.

use super::*;

/// Returns one object with the members of both.
fn join_objects(mut all: serde_json::Value, more: &serde_json::Value) -> serde_json::Value {
    for (name, value) in more.as_object().unwrap() {
        all[name] = value.clone();
    }
    all
}

/// Returns the lines for a status with these members, without the first line, which names the store.
fn lines(more: &serde_json::Value, silent: Option<&str>, start: Option<&str>) -> Vec<String> {
    let minimum = json!({ "schemaVersion": 1, "store": "/s", "activeLabels": [] });
    let text = status_text(&serde_json::from_value(join_objects(minimum, more)).unwrap(), silent, start);
    let mut lines = text.lines().map(str::to_owned);
    assert_eq!(lines.next().as_deref(), Some("store      /s"));
    lines.collect()
}

#[test]
fn status_output_has_a_line_for_each_field_that_is_set() {
    let (one, two) = ("1".repeat(64), "2".repeat(64));
    let waits = |how: &str| json!({ "version": two, "waits": how, "next": "N" });
    let gate = |version: &str| json!({ "version": version, "time": "T", "passed": false, "refused": "R" });
    let attempt = |saw: &str, failures: u32| json!({ "time": "T", "result": "failed", "saw": saw, "error": "E", "failures": failures });
    let cases: [(serde_json::Value, &[&str]); 30] = [
        (json!({}), &[]),
        (json!({ "active": one }), &["active     111111111111"]),
        (json!({ "active": one, "activePresent": true, "activeSince": "T" }), &["active     111111111111 since T"]),
        (json!({ "active": one, "activeLabels": ["1.4", "x"] }), &["active     111111111111 (1.4, x)"]),
        (json!({ "active": one, "activePresent": false }), &["active     111111111111 is missing from the store"]),
        (json!({ "previous": two }), &["previous   222222222222"]),
        (json!({ "active": one, "newest": one }), &["active     111111111111"]),
        (json!({ "newest": two }), &["newest     222222222222, not active"]),
        (json!({ "newest": two, "staged": waits("manual") }), &["staged     222222222222; N"]),
        (
            json!({ "newest": one, "staged": waits("gate") }),
            &["staged     222222222222; N", "newest     111111111111, not active"],
        ),
        (
            json!({ "staged": waits("gate"), "gate": gate(&two) }),
            &["staged     222222222222, the gate refused it at the last check: R; N"],
        ),
        (json!({ "staged": waits("gate"), "gate": gate(&one) }), &["staged     222222222222; N"]),
        (json!({ "newest": two, "staged": waits("hold") }), &["newest     222222222222, not active"]),
        (json!({ "staged": waits("look") }), &[]),
        (json!({ "hold": { "who": "me", "when": "T", "why": "a\nb" } }), &["held       by me since T: a\\nb"]),
        (json!({ "pin": "1.4", "activeLabels": ["1.4"] }), &["pinned to  1.4"]),
        (json!({ "pin": "1.4" }), &["pinned to  1.4, which is not the active version"]),
        (
            json!({ "damagedVersions": [one, two] }),
            &[
                "damaged    111111111111: import its bundle again to replace it, and check the disk",
                "damaged    222222222222: import its bundle again to replace it, and check the disk",
            ],
        ),
        (json!({ "source": "U", "nextLook": "T" }), &["source     U", "next check T"]),
        (
            json!({ "source": "https://a.example/v1#docs.example" }),
            &["source     docs.example through https://a.example/v1"],
        ),
        (json!({ "source": "/srv/a#b.zip" }), &["source     /srv/a#b.zip"]),
        (json!({ "why": "no source is configured: W" }), &["source     none: W"]),
        (json!({ "lastAttempt": { "time": "T", "result": "held" } }), &["last check T held"]),
        (json!({ "lastAttempt": attempt("S", 1) }), &["last check T failed; found: S", "error      E"]),
        (
            json!({ "lastAttempt": attempt("S", 2) }),
            &["last check T failed; found: S", "error      E (2 times in a row)"],
        ),
        (json!({ "why": "S" }), &["why        S"]),
        (json!({ "why": "S", "lastAttempt": attempt("S", 1) }), &["last check T failed; found: S", "error      E"]),
        (
            json!({ "why": "S", "lastAttempt": { "time": "T", "result": "held", "saw": "X" } }),
            &["last check T held; found: X", "why        S"],
        ),
        (
            json!({ "nextStep": "X", "job": { "id": "se_1", "source": "", "started": "T" } }),
            &["next step  X", "export     se_1 since T"],
        ),
        (json!({ "configError": "E" }), &["config     not taken over: E"]),
    ];
    for (more, expected) in cases {
        let found = lines(&more, None, None).into_iter();
        let none = ["active     nothing yet", "daemon     none runs on this store"];
        let found: Vec<String> = found.filter(|line| !none.contains(&line.as_str())).collect();
        assert_eq!(found, expected, "{more}");
    }
    let start = lines(&json!({}), None, Some("X"));
    assert_eq!(start, ["active     nothing yet", "daemon     none runs on this store", "next step  X"]);
    let silent = lines(&json!({}), Some("it sleeps"), None);
    assert_eq!(silent[1], "daemon     one runs, but it sleeps: the following lines are read from the store");
}

#[test]
fn status_output_describes_the_state_of_the_running_daemon() {
    let (one, two) = ("1".repeat(64), "2".repeat(64));
    let policy = |ready: bool, long: u64, unsure: u64| {
        let sizes = json!({ "pages": 3, "tooLong": long, "unsure": unsure, "longest": 99, "total": 99 });
        join_objects(json!({ "preset": "airgap", "version": one, "ready": ready }), &sizes)
    };
    let forms = |ready: bool, files: &[u64], error: Option<&str>| {
        let made = |files: &u64| json!({ "coding": "br", "files": files, "bytes": 5, "seconds": 0.5 });
        let made: Vec<serde_json::Value> = files.iter().map(made).collect();
        json!({ "version": one, "ready": ready, "made": made, "error": error })
    };
    let search = |more: serde_json::Value| join_objects(json!({ "version": one, "ready": false }), &more);
    let recording = |searches: u64, error: Option<&str>| json!({ "bytes": 3_145_728, "searches": searches, "clicks": 97, "views": 5960, "dropped": 0, "error": error });
    let delivery = |more: serde_json::Value| {
        let numbers = json!({ "searches": 1, "counts": 2, "waitingSearches": 3, "waitingCounts": 1 });
        let rest = json!({ "to": "O", "refusedBatches": 0, "refusedCounts": 0, "undeliveredSearches": 0 });
        join_objects(join_objects(numbers, &rest), &more)
    };
    let cases: [(serde_json::Value, &[&str]); 34] = [
        (json!({}), &[]),
        (json!({ "addresses": ["a", "b"] }), &["serving    a", "serving    b"]),
        (json!({ "admin": ["a"], "staged": ["b"] }), &["admin      a", "staged at  b"]),
        (json!({ "tls": { "notAfter": "D" } }), &["tls        certificate until D"]),
        (json!({ "tls": { "notAfter": "D", "error": "E" } }), &["tls        certificate until D; E"]),
        (json!({ "publish": { "directory": "/p" } }), &["published  nothing yet in /p"]),
        (
            json!({ "publish": { "directory": "/p", "version": two, "error": "E" } }),
            &["published  222222222222 in /p; E"],
        ),
        (json!({ "inbox": { "directory": "/i" } }), &["inbox      /i"]),
        (json!({ "inbox": { "directory": "/i", "error": "E" } }), &["inbox      E"]),
        (json!({ "inbox": { "directory": "/i", "fileError": "E" } }), &["inbox      /i; E"]),
        (
            json!({ "inbox": { "directory": "/i", "fileError": "R", "rejected": 4, "lastRejected": "R" } }),
            &["inbox      /i; 4 rejected since the start, the last: R"],
        ),
        (
            json!({ "inbox": join_objects(
                json!({ "directory": "/i", "fileError": "E", "rejected": 1, "lastRejected": "R" }),
                &json!({ "waiting": 1, "firstWaiting": "W" })
            ) }),
            &["inbox      /i; 1 rejected since the start, the last: R; 1 file waits, the first: W; E"],
        ),
        (
            json!({ "inbox": { "directory": "/i", "waiting": 2, "firstWaiting": "W" } }),
            &["inbox      /i; 2 files wait, the first: W"],
        ),
        (json!({ "csp": policy(false, 0, 0) }), &["policy     airgap: the pages of 111111111111 are being read"]),
        (json!({ "csp": policy(true, 0, 0) }), &["policy     airgap: 3 pages, at most 99 bytes"]),
        (
            json!({ "csp": policy(true, 1, 2) }),
            &["policy     airgap: 3 pages, at most 99 bytes; 3 allow all inline scripts (1 would be too long, 2 are \
                 not certain)"],
        ),
        (json!({ "codings": forms(true, &[2, 1], None) }), &["codings    br for 2 files (5 B); br for 1 file (5 B)"]),
        (
            json!({ "codings": forms(false, &[], None) }),
            &["codings    compressed copies of 111111111111 are being made"],
        ),
        (json!({ "codings": forms(false, &[], Some("E")) }), &["codings    not made: E"]),
        (json!({ "search": search(json!({})) }), &["search     the index of 111111111111 is being built"]),
        (
            json!({ "search": search(json!({ "pages": 1, "sections": 2, "bytes": 5, "box": true, "boxWhy": "W" })) }),
            &["search     1 page, 2 sections (5 B); pages get the search box: W"],
        ),
        (
            json!({ "search": search(json!({ "error": "E", "box": false, "boxWhy": "W" })) }),
            &["search     the index is not built: E; pages get no search box: W"],
        ),
        (
            json!({ "search": search(json!({ "boxForbidden": "P" })) }),
            &["search     the index of 111111111111 is being built", "search box browsers refuse its script: P"],
        ),
        (
            json!({ "analytics": recording(412, None) }),
            &["analytics  412 searches, 97 clicks, 5960 views; 0 lost; 3.1 MB"],
        ),
        (
            json!({ "analytics": recording(1, Some("E")) }),
            &["analytics  1 search, 97 clicks, 5960 views; 0 lost; 3.1 MB; not recorded at the moment: E"],
        ),
        (
            json!({ "analytics": join_objects(recording(1, None), &json!({ "damagedFile": "/s/f" })) }),
            &["analytics  1 search, 97 clicks, 5960 views; 0 lost; 3.1 MB; damaged, now /s/f"],
        ),
        (
            json!({ "delivery": delivery(json!({})) }),
            &["delivery   1 search and 2 counts to O; 3 searches and 1 count wait"],
        ),
        (
            json!({ "delivery": delivery(json!({ "refusedBatches": 4, "undeliveredSearches": 1, "error": "E" })) }),
            &["delivery   1 search and 2 counts to O; 3 searches and 1 count wait; 4 batches of searches \
                 and 0 counts refused; 1 search not delivered, because too many waited; E"],
        ),
        (
            json!({ "served": null, "addresses": ["a"] }),
            &[
                "listening  a",
                "served     nothing, because the active version cannot be served; the log has the reason",
            ],
        ),
        (
            json!({ "served": two }),
            &["served     222222222222, because the active version cannot be served; the log has the reason"],
        ),
        (json!({ "doing": "D" }), &["doing      D"]),
        (
            json!({ "needsRestart": ["server.listen"] }),
            &["restart    server.listen has changed: restart docwharf to apply the new value"],
        ),
        (
            json!({ "needsRestart": ["server.listen", "tls.hsts"] }),
            &["restart    server.listen, tls.hsts have changed: restart docwharf to apply the new values"],
        ),
        (json!({ "doing": "D", "doingError": "E" }), &["doing      D; E"]),
    ];
    for (more, expected) in cases {
        let minimum =
            json!({ "pid": 7, "version": "1", "started": "T", "addresses": [], "failures": 0, "served": one });
        let found =
            lines(&json!({ "active": one, "daemon": join_objects(minimum, &more) }), None, Some("docwharf run"));
        assert_eq!(found[..2], ["active     111111111111", "daemon     process 7 since T"]);
        assert_eq!(found[2..], *expected, "{more}");
    }
}

#[test]
fn without_a_daemon_the_next_step_is_a_first_version_if_the_store_is_empty() {
    let inbox = Some(Path::new("/in"));
    for (is_empty, has_source, inbox, expected) in [
        (false, false, None, "`docwharf run` serves what the store has"),
        (false, true, inbox, "`docwharf run` serves what the store has"),
        (true, true, inbox, "`docwharf run` fetches the first version and serves it"),
        (true, false, inbox, "copy a bundle to /in; `docwharf run` imports and serves it"),
        (true, false, None, "`docwharf import BUNDLE`, or set a source or an inbox; then `docwharf run`"),
    ] {
        assert_eq!(start_advice("docwharf run", is_empty, has_source, inbox), expected);
    }
}

#[test]
fn the_error_of_the_last_check_is_not_shown_while_the_next_one_runs_without_an_error() {
    let attempt = json!({ "time": "T", "result": "failed", "error": "E", "failures": 1 });
    let failed = json!({ "active": "1".repeat(64), "lastAttempt": attempt, "nextStep": "N" });
    for (doing, expected) in [
        (json!({}), &["error      E", "next step  N"][..]),
        (json!({ "doing": "D" }), &["doing      D"]),
        (json!({ "doing": "D", "doingError": "F" }), &["error      E", "next step  N", "doing      D; F"]),
    ] {
        let daemon = json!({
            "pid": 7, "version": "1", "started": "T", "addresses": [], "failures": 1, "served": "1".repeat(64)
        });
        let status = join_objects(failed.clone(), &json!({ "daemon": join_objects(daemon, &doing) }));
        let found = lines(&status, None, None);
        let first = found.iter().position(|line| line == "last check T failed").unwrap();
        assert_eq!(found[first + 1..], *expected, "{doing}");
    }
}
