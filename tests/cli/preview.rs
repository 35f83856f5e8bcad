//! `preview create` and `preview status` against an upstream that keeps every request.

use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};
use support::host::{Host, at_once, bundle, finish, judged, text};
use support::studio::PROJECT;
use support::upstream::{Call, KEY, Upstream, answer, close, raw, silence, stamp};

fn upstream() -> Upstream {
    Upstream::new(bundle("one"))
}

fn host(upstream: &Upstream) -> Host {
    Host::new(upstream).set("api.projectId", text(PROJECT))
}

/// Milliseconds since 1970, so many seconds ago.
fn ago(seconds: i64) -> i64 {
    stamp(-seconds).parse::<jiff::Timestamp>().unwrap().as_millisecond()
}

/// What the store says of requests that were sent so many seconds ago.
fn spend(host: &Host, upstream: &Upstream, name: &str, seconds: &[i64]) {
    std::fs::create_dir_all(host.path("store/api")).unwrap();
    let sent: Vec<i64> = seconds.iter().map(|seconds| ago(*seconds)).collect();
    let name = format!("{name} {}", upstream.base());
    let book = json!({"schemaVersion": 1, "budgets": {name: {"sent": sent, "closedUntil": null}}});
    std::fs::write(host.path("store/api/budget.json"), book.to_string()).unwrap();
}

#[test]
fn create_prints_the_address_alone_and_asks_as_the_specification_says() {
    let upstream = upstream();
    let ended = host(&upstream).ok(&["preview", "create", "--branch", "feature/tides"]);
    assert_eq!(ended.stdout, format!("{}/preview/feature-tides\n", upstream.api()));
    assert_eq!(ended.stderr, "");
    let requests = upstream.log();
    assert_eq!(requests.len(), 1);
    assert_eq!((requests[0].call, requests[0].method.as_str()), (Call::Preview, "POST"));
    assert_eq!(requests[0].target, "/v1/project/preview/prj_7%2Fa", "the project is one segment");
    assert_eq!(requests[0].json(), json!({"branch": "feature/tides"}));
    assert_eq!(requests[0].header("authorization"), Some(&*format!("Bearer {KEY}")));
    assert!(requests[0].header("content-type").unwrap().starts_with("application/json"));
}

#[test]
fn create_speaks_json_with_the_status_id() {
    let upstream = upstream();
    let json = host(&upstream).ok(&["preview", "create", "--branch", "x", "--json"]).json();
    assert_eq!(json["statusId"], "dep_1");
    assert_eq!(json["branch"], "x");
    assert_eq!(json["deployment"], Value::Null);
    assert!(json["previewUrl"].as_str().unwrap().ends_with("/preview/x"));
}

#[test]
fn the_branch_is_by_default_the_one_that_is_checked_out() {
    let upstream = upstream();
    let host = host(&upstream);
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.current_dir(host.dir.path()).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        for name in ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"] {
            git.env(name, "tester");
        }
        finish(git.args(arguments)).expect(0);
    };
    let create = |folder: &str| {
        let mut command = host.command(&["preview", "create"]);
        // The folder of the tests may itself lie in a checkout.
        finish(command.current_dir(host.path(folder)).env("GIT_CEILING_DIRECTORIES", host.dir.path().parent().unwrap()))
    };
    assert!(judged(2, create(".")).stderr.contains("in no Git repository"));
    git(&["init", "-q", "-b", "docs/high-water"]);
    std::fs::create_dir(host.path("below")).unwrap();
    create("below").expect(0);
    assert_eq!(upstream.calls(Call::Preview)[0].json()["branch"], "docs/high-water");
    git(&["commit", "-q", "--allow-empty", "-m", "x"]);
    git(&["checkout", "-q", "--detach"]);
    let ended = judged(2, create("."));
    assert!(ended.stderr.contains("detached") && ended.stderr.contains("--branch"), "{}", ended.stderr);
    assert_eq!(upstream.log().len(), 1);
}

#[test]
fn nothing_that_a_deployment_says_shows_the_key() {
    let upstream = upstream();
    let said = format!("curl -H 'Authorization: Bearer {KEY}' failed");
    let commit = json!({"sha": said, "ref": said, "message": said, "filesChanged": {"added": [said]}});
    let deployment = json!({
        "_id": "dep_1", "projectId": PROJECT, "status": "failure", "summary": said, "logs": [said, said],
        "createdAt": said, "endedAt": said, "subdomain": said, "commit": commit, "error": said,
    });
    upstream.on(Call::Deployment).gives(answer(200).json(&deployment));
    let host = host(&upstream);
    for arguments in [
        &["preview", "status", "dep_1"][..],
        &["preview", "status", "dep_1", "--json"],
        &["preview", "status", "dep_1", "--wait"],
    ] {
        let ended = finish(&mut host.command(arguments));
        assert!(ended.stdout.contains("failure") || ended.stderr.contains("failure"), "{ended:?}");
        for text in [&ended.stdout, &ended.stderr] {
            assert!(!text.contains(KEY), "{arguments:?}: {text}");
        }
    }
}

#[test]
fn mistakes_are_found_before_any_request() {
    let upstream = upstream();
    let whole = host(&upstream);
    for branch in ["", "  "] {
        assert!(whole.ends(2, &["preview", "create", "--branch", branch]).stderr.contains("--branch is empty"));
    }
    whole.ends(2, &["preview", "create", "--branch", "x", "--comment", "--json"]);
    whole.ends(2, &["preview", "create", "--branch", "x", "--timeout", "5s"]);
    let without = Host::new(&upstream);
    assert!(without.ends(2, &["preview", "create", "--branch", "x"]).stderr.contains("api.projectId"));
    let bare = Host::bare();
    assert!(bare.ends(2, &["preview", "status", "x"]).stderr.contains("[api]"));
    for path in ["status/{statusId}", "/status", "/../{statusId}"] {
        let host = host(&upstream).set("api.statusPath", text(path));
        assert!(host.ends(2, &["preview", "status", "x"]).stderr.contains("api.statusPath"), "{path}");
    }
    assert!(upstream.log().is_empty(), "{}", upstream.story());
}

#[test]
fn wait_follows_the_deployment_to_its_end_and_shows_summary_and_logs() {
    let upstream = upstream();
    upstream.plan().studio.states =
        ["queued", "in_progress", "hand-over", "in_progress", "success"].map(Value::from).into();
    let host = host(&upstream);
    let ended = host.ok(&["preview", "create", "--branch", "x", "--wait"]);
    assert_eq!(ended.stdout.lines().count(), 1, "the address alone: {}", ended.stdout);
    for said in
        ["the build ended in success", "cloning", "building 12 pages", "0a1b2c3d feature/tides Tides by moonlight"]
    {
        assert!(ended.stderr.contains(said), "{said} in {}", ended.stderr);
    }
    assert_eq!(upstream.count(Call::Deployment), 5, "unknown states mean still working");
    assert_eq!(upstream.calls(Call::Deployment)[0].target, "/v1/project/update-status/dep_1");
    let json = host.ok(&["preview", "create", "--branch", "x", "--wait", "--json"]).json();
    assert_eq!(json["deployment"]["status"], "success");
    assert_eq!(json["deployment"]["commit"]["filesChanged"], json!({"added": 1, "modified": 2, "removed": 0}));
}

#[test]
fn a_preview_that_fails_is_exit_6_with_summary_and_logs() {
    let upstream = upstream();
    upstream.plan().studio.states = vec!["in_progress".into(), "failure".into()];
    let host = host(&upstream);
    let ended = host.ends(6, &["preview", "create", "--branch", "x", "--wait"]);
    assert!(ended.stdout.ends_with("/preview/x\n"));
    assert!(ended.stderr.contains("building 12 pages"), "{}", ended.stderr);
    assert!(ended.stderr.lines().last().unwrap().contains("the preview of x failed: the build ended in failure"));
    let status = host.ends(6, &["preview", "status", "dep_1"]);
    assert!(status.stdout.starts_with("status   failure\n"), "{}", status.stdout);
}

#[test]
fn status_shows_how_far_it_is_and_waits_where_it_is_told_to() {
    let upstream = upstream();
    let host = host(&upstream);
    host.ok(&["preview", "create", "--branch", "x"]);
    assert_eq!(host.ok(&["preview", "status", "dep_1", "--json"]).json()["deployment"]["status"], "queued");
    let ended = host.ok(&["preview", "status", "dep_1", "--wait"]);
    assert!(ended.stdout.contains("status   success\nsummary  the build ended in success\n"), "{}", ended.stdout);
    assert!(host.ends(4, &["preview", "status", "dep_9"]).stderr.contains("no such deployment"));
}

#[test]
fn a_deployment_that_never_ends_is_given_up_at_a_time_out_of_our_own() {
    let upstream = upstream();
    upstream.plan().studio.states = vec!["pondering".into()];
    let host = host(&upstream);
    let ended = host.ends(4, &["preview", "create", "--branch", "x", "--wait", "--timeout", "300ms"]);
    assert!(
        ended.stderr.contains("pondering") && ended.stderr.contains("preview status dep_1 --wait"),
        "{}",
        ended.stderr
    );
    assert!(ended.stdout.ends_with("/preview/x\n"));
}

#[test]
fn only_the_status_of_a_deployment_is_needed() {
    let upstream = upstream();
    upstream.plan().studio.states = vec![json!({"status": "success", "logs": null, "summary": 7, "commit": []})];
    let ended = host(&upstream).ok(&["preview", "create", "--branch", "x", "--wait"]);
    assert_eq!(ended.stderr, "status   success\n");
    upstream.on(Call::Preview).gives(raw("text/plain", r#"{"previewUrl": "https://p.example/x"}"#));
    let host = host(&upstream);
    assert_eq!(host.ok(&["preview", "create", "--branch", "x"]).stdout, "https://p.example/x\n");
    assert!(host.ends(4, &["preview", "create", "--branch", "x", "--wait"]).stderr.contains("no statusId"));
}

#[test]
fn a_preview_that_was_started_is_never_started_again_whatever_its_answer_leaves_out() {
    let upstream = upstream();
    upstream
        .on(Call::Preview)
        .gives(raw("application/json", r#"{"statusId": 7, "previewUrl": "javascript:alert(1)"}"#));
    let host = host(&upstream);
    let ended = host.ends(4, &["preview", "create", "--branch", "x"]);
    assert!(ended.stderr.contains("gave no address; its statusId is 7"), "{}", ended.stderr);
    assert_eq!(host.ok(&["preview", "create", "--branch", "x", "--json"]).json()["statusId"], "7");
    assert_eq!(upstream.count(Call::Preview), 2, "{}", upstream.story());
}

#[test]
fn what_was_started_is_told_though_following_it_fails() {
    let upstream = upstream();
    upstream.plan().studio.states = vec!["pondering".into()];
    let host = host(&upstream);
    let wait = ["preview", "create", "--branch", "x", "--wait", "--timeout", "200ms"];
    let json = host.ends(4, &[&wait[..], &["--json"]].concat()).json();
    assert_eq!((json["statusId"].as_str(), &json["deployment"]), (Some("dep_1"), &Value::Null));
    let comment = host.ends(4, &[&wait[..], &["--comment"]].concat()).stdout;
    assert!(comment.contains("on its way") && comment.contains("/preview/x>"), "{comment}");
}

#[test]
fn a_time_out_bounds_also_a_server_that_hangs_and_is_used_to_its_end() {
    let upstream = upstream();
    upstream.on(Call::Deployment).gives(silence());
    let host = host(&upstream);
    let began = Instant::now();
    let ended = host.ends(4, &["preview", "create", "--branch", "x", "--wait", "--timeout", "1s"]);
    assert!(ended.stderr.contains("has not ended after 1s; it was not seen at all"), "{}", ended.stderr);
    // The time-out of a call is 5 s here, and there would be five of them.
    assert!(began.elapsed().as_secs() < 5);
    upstream.heal();
    upstream.plan().studio.states = vec!["pondering".into()];
    let began = Instant::now();
    host.ends(4, &["preview", "status", "dep_1", "--wait", "--timeout", "1s"]);
    assert!(began.elapsed().as_millis() >= 1000);
}

#[test]
fn a_long_log_does_not_hide_what_became_of_it() {
    let upstream = upstream();
    let logs: Vec<String> =
        (0..30_000).map(|n| format!("line {n} of a build that says much more than anybody reads")).collect();
    upstream.plan().studio.states = vec![json!({"status": "success", "logs": logs})];
    let ended = host(&upstream).ok(&["preview", "create", "--branch", "x", "--wait"]);
    assert!(ended.stderr.contains("line 29999 of") && ended.stderr.contains("29800 earlier lines"));
}

#[test]
fn what_is_no_status_id_is_a_mistake_before_any_request() {
    let upstream = upstream();
    for id in ["", ".", ".."] {
        host(&upstream).ends(2, &["preview", "status", id]);
    }
    assert!(upstream.log().is_empty());
}

#[test]
fn the_path_of_the_status_is_a_setting() {
    let upstream = upstream();
    let host = host(&upstream).set("api.statusPath", text("/v9/{projectId}/deployments/{statusId}/state"));
    upstream.on(Call::Other).gives(raw("application/json", r#"{"status": "success"}"#));
    host.ok(&["preview", "status", "a/b?c"]);
    assert_eq!(upstream.log()[0].target, "/v1/v9/prj_7%2Fa/deployments/a%2Fb%3Fc/state");
}

#[test]
fn a_comment_is_markdown_that_finds_itself_again() {
    let upstream = upstream();
    let ended = host(&upstream).ok(&["preview", "create", "--branch", "feature/tides", "--wait", "--comment"]);
    assert!(ended.stdout.starts_with("<!-- docwharf preview: feature/tides -->\n### Documentation preview: ready\n"));
    assert!(ended.stdout.contains(&format!("<{}/preview/feature-tides>", upstream.api())), "{}", ended.stdout);
    assert!(ended.stdout.contains("building 12 pages"));
    assert_eq!(ended.stderr, "");
}

#[test]
fn every_refusal_of_the_specification_is_told_plainly() {
    let cases = [
        (400, "branch is required", 2, "check the branch"),
        (401, "invalid API key", 3, "put a valid one in its place"),
        (403, "Preview deployments are not available on your plan", 3, "previews need another plan"),
        (403, "forbidden", 3, "the plan may lack previews"),
        (404, "project not found", 2, "api.projectId"),
    ];
    at_once(&cases, |(status, said, code, next)| {
        let upstream = upstream();
        upstream.on(Call::Preview).gives(answer(*status).json(&json!({"error": said})));
        let ended = host(&upstream).ends(*code, &["preview", "create", "--branch", "x"]);
        assert!(ended.stderr.contains(said) && ended.stderr.contains(next), "{}", ended.stderr);
        assert_eq!((upstream.count(Call::Preview), ended.stdout.as_str()), (1, ""), "final at once");
    });
}

#[test]
fn a_429_with_a_long_retry_after_ends_it_at_once_and_other_processes_know() {
    let upstream = upstream();
    upstream.on(Call::Preview).gives(answer(429).header("Retry-After", "90"));
    let host = host(&upstream);
    let began = Instant::now();
    let ended = host.ends(4, &["preview", "create", "--branch", "x"]);
    assert!(ended.stderr.contains("429") && ended.stderr.contains("90 s"), "{}", ended.stderr);
    let ended = host.ends(4, &["preview", "create", "--branch", "x", "--no-wait-for-budget"]);
    let said = "the API has asked to be left alone with previews: the next is free in 1m";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
    assert_eq!(upstream.count(Call::Preview), 1, "{}", upstream.story());
    assert!(began.elapsed().as_secs() < 60);
}

#[test]
fn an_answer_that_was_lost_is_asked_for_twice_more() {
    let upstream = upstream();
    upstream.on(Call::Preview).gives(close());
    host(&upstream).ends(4, &["preview", "create", "--branch", "x"]);
    assert_eq!(upstream.count(Call::Preview), 3, "{}", upstream.story());
}

#[test]
fn five_previews_a_minute_are_shared_by_processes_and_outlive_them() {
    let upstream = upstream();
    let host = host(&upstream);
    let create = ["preview", "create", "--branch", "x", "--no-wait-for-budget"];
    // Eight at once: nobody knows which five come first.
    let codes = std::sync::Mutex::new(Vec::new());
    at_once(&[(); 8], |()| {
        let ended = finish(&mut host.command(&create));
        codes.lock().unwrap().push(ended.code);
    });
    let codes = codes.into_inner().unwrap();
    assert_eq!(codes.iter().filter(|code| **code == Some(0)).count(), 5, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == Some(4)).count(), 3, "{codes:?}");
    let ended = host.ends(4, &create);
    assert!(ended.stderr.contains("5 requests for previews in 1m"), "{}", ended.stderr);
    assert_eq!(upstream.count(Call::Preview), 5, "{}", upstream.story());
}

#[test]
fn who_waits_for_the_budget_is_told_and_asks_no_moment_too_early() {
    let upstream = upstream();
    let host = host(&upstream);
    spend(&host, &upstream, "previews", &[59, 40, 30, 20, 10]);
    let began = ago(0);
    let ended = host.ok(&["preview", "create", "--branch", "x"]);
    assert!(ended.stderr.contains("is used up") && ended.stderr.contains("waiting "), "{}", ended.stderr);
    // Of the one that was 59 s old.
    assert!(ago(0) - began >= 1000);
    assert_eq!(upstream.count(Call::Preview), 1);
}

#[test]
fn what_never_left_takes_nothing_out_of_the_budget() {
    let upstream = Upstream::closed(bundle("one"));
    let host = host(&upstream);
    host.ends(4, &["preview", "create", "--branch", "x"]);
    let book: Value = serde_json::from_slice(&std::fs::read(host.path("store/api/budget.json")).unwrap()).unwrap();
    assert_eq!(book["budgets"][format!("previews {}", upstream.base())]["sent"], json!([]));
}

#[test]
fn a_store_that_cannot_be_written_to_is_no_reason_not_to_ask() {
    let upstream = upstream();
    let host = host(&upstream).set("store.path", text("/proc/no-such-place"));
    let ended = host.ok(&["preview", "create", "--branch", "x"]);
    assert!(ended.stdout.ends_with("/preview/x\n"));
    assert!(ended.stderr.contains("counted for this command alone"), "{}", ended.stderr);
}

#[test]
fn who_may_not_use_the_store_is_not_told_about_it() {
    use std::os::unix::fs::PermissionsExt;
    let upstream = upstream();
    let host = host(&upstream);
    // The program and all that it reads, where another user may run it.
    let program = host.path("docwharf");
    support::copy_program(&program);
    let shut = host.path("store");
    std::fs::create_dir_all(&shut).unwrap();
    for (path, mode) in [(host.dir.path(), 0o755), (&program, 0o755), (&shut, 0o700)] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    for name in ["docwharf.toml", "key"] {
        std::fs::set_permissions(host.path(name), PermissionsExt::from_mode(0o644)).unwrap();
    }
    if !rustix::process::geteuid().is_root() {
        std::fs::set_permissions(&shut, PermissionsExt::from_mode(0o000)).unwrap();
    }
    let mut command = std::process::Command::new(&program);
    command.env_clear().args(["preview", "create", "--branch", "x", "--config"]).arg(host.path("docwharf.toml"));
    if rustix::process::geteuid().is_root() {
        std::os::unix::process::CommandExt::uid(&mut command, 65534);
    }
    let ended = support::end(&mut command).expect(0);
    assert!(!ended.stderr.contains("lock") && !ended.stderr.contains("make room"), "{}", ended.stderr);
    std::fs::set_permissions(&shut, PermissionsExt::from_mode(0o700)).unwrap();
}

#[test]
fn previews_work_though_syncing_is_disabled_and_beside_a_daemon() {
    let upstream = upstream();
    let host = host(&upstream);
    let daemon = host.run();
    support::until("the first version", || support::host::front(&daemon) == "one");
    host.ok(&["preview", "create", "--branch", "x"]);
    drop(daemon);
    host.set("staticExport.enabled", "false").ok(&["preview", "create", "--branch", "x"]);
    assert_eq!(upstream.count(Call::Preview), 2);
}

#[test]
fn verbose_shows_method_path_status_and_time_and_no_secret() {
    let upstream = upstream();
    let ended = host(&upstream).ok(&["preview", "create", "--branch", "x", "-vv"]);
    let line = ended.stderr.lines().find(|line| line.contains("POST /project/preview/")).unwrap_or_default();
    assert!(line.contains("202 in ") && line.ends_with(" ms"), "{}", ended.stderr);
    assert!(!ended.stderr.contains(KEY));
}
