//! `preview create` and `preview status` against an upstream that records every request.

use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};
use support::host::{Host, bundle, expect_plain_exit, run_concurrently, run_with_timeout, toml_string};
use support::project_api::PROJECT;
use support::upstream::{
    KEY, Upstream, UpstreamCall, close_without_reply, error_reply, no_reply, raw_reply, rfc3339_in,
};

fn upstream() -> Upstream {
    Upstream::new(bundle("one"))
}

fn host(upstream: &Upstream) -> Host {
    Host::new(upstream).set("api.projectId", toml_string(PROJECT))
}

/// Returns the time before so many seconds, in milliseconds since 1970.
fn millis_ago(seconds: i64) -> i64 {
    rfc3339_in(-seconds).parse::<jiff::Timestamp>().unwrap().as_millisecond()
}

/// Writes a budget of requests that were sent so many seconds ago.
fn write_budget(host: &Host, upstream: &Upstream, name: &str, seconds: &[i64]) {
    std::fs::create_dir_all(host.path("store/api")).unwrap();
    let sent: Vec<i64> = seconds.iter().map(|seconds| millis_ago(*seconds)).collect();
    let name = format!("{name} {}", upstream.base_url());
    let book = json!({"schemaVersion": 1, "budgets": {name: {"sent": sent, "closedUntil": null}}});
    std::fs::write(host.path("store/api/budget.json"), book.to_string()).unwrap();
}

#[test]
fn preview_create_prints_only_the_url_and_sends_the_specified_request() {
    let upstream = upstream();
    let output = host(&upstream).ok(&["preview", "create", "--branch", "feature/tides"]);
    assert_eq!(output.stdout, format!("{}/preview/feature-tides\n", upstream.api_origin()));
    assert_eq!(output.stderr, "");
    let requests = upstream.log();
    assert_eq!(requests.len(), 1);
    assert_eq!((requests[0].call, requests[0].method.as_str()), (UpstreamCall::Preview, "POST"));
    assert_eq!(requests[0].target, "/v1/project/preview/prj_7%2Fa", "the project is one segment");
    assert_eq!(requests[0].json(), json!({"branch": "feature/tides"}));
    assert_eq!(requests[0].header("authorization"), Some(&*format!("Bearer {KEY}")));
    assert!(requests[0].header("content-type").unwrap().starts_with("application/json"));
}

#[test]
fn preview_create_json_contains_the_status_id() {
    let upstream = upstream();
    let json = host(&upstream).ok(&["preview", "create", "--branch", "x", "--json"]).json();
    assert_eq!(json["statusId"], "dep_1");
    assert_eq!(json["branch"], "x");
    assert_eq!(json["deployment"], Value::Null);
    assert!(json["previewUrl"].as_str().unwrap().ends_with("/preview/x"));
}

#[test]
fn preview_create_defaults_to_the_checked_out_branch() {
    let upstream = upstream();
    let host = host(&upstream);
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.current_dir(host.dir.path()).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        for name in ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"] {
            git.env(name, "tester");
        }
        run_with_timeout(git.args(arguments)).expect(0);
    };
    let create = |folder: &str| {
        let mut command = host.command(&["preview", "create"]);
        // The folder of the tests may itself be in a checkout.
        run_with_timeout(
            command.current_dir(host.path(folder)).env("GIT_CEILING_DIRECTORIES", host.dir.path().parent().unwrap()),
        )
    };
    assert!(expect_plain_exit(2, create(".")).stderr.contains("not in a Git repository"));
    git(&["init", "-q", "-b", "docs/high-water"]);
    std::fs::create_dir(host.path("below")).unwrap();
    create("below").expect(0);
    assert_eq!(upstream.calls(UpstreamCall::Preview)[0].json()["branch"], "docs/high-water");
    git(&["commit", "-q", "--allow-empty", "-m", "x"]);
    git(&["checkout", "-q", "--detach"]);
    let output = expect_plain_exit(2, create("."));
    assert!(output.stderr.contains("detached") && output.stderr.contains("--branch"), "{}", output.stderr);
    assert_eq!(upstream.log().len(), 1);
}

#[test]
fn api_key_in_a_deployment_response_is_not_printed() {
    let upstream = upstream();
    let text = format!("curl -H 'Authorization: Bearer {KEY}' failed");
    let commit = json!({"sha": text, "ref": text, "message": text, "filesChanged": {"added": [text]}});
    let deployment = json!({
        "_id": "dep_1", "projectId": PROJECT, "status": "failure", "summary": text, "logs": [text, text],
        "createdAt": text, "endedAt": text, "subdomain": text, "commit": commit, "error": text,
    });
    upstream.on(UpstreamCall::Deployment).respond_with(error_reply(200).json(&deployment));
    let host = host(&upstream);
    for arguments in [
        &["preview", "status", "dep_1"][..],
        &["preview", "status", "dep_1", "--json"],
        &["preview", "status", "dep_1", "--wait"],
    ] {
        let output = run_with_timeout(&mut host.command(arguments));
        assert!(output.stdout.contains("failure") || output.stderr.contains("failure"), "{output:?}");
        for printed in [&output.stdout, &output.stderr] {
            assert!(!printed.contains(KEY), "{arguments:?}: {printed}");
        }
    }
}

#[test]
fn invalid_preview_options_fail_before_any_request() {
    let upstream = upstream();
    let complete = host(&upstream);
    for branch in ["", "  "] {
        assert!(
            complete.expect_exit(2, &["preview", "create", "--branch", branch]).stderr.contains("--branch is empty")
        );
    }
    complete.expect_exit(2, &["preview", "create", "--branch", "x", "--comment", "--json"]);
    complete.expect_exit(2, &["preview", "create", "--branch", "x", "--timeout", "5s"]);
    let without = Host::new(&upstream);
    assert!(without.expect_exit(2, &["preview", "create", "--branch", "x"]).stderr.contains("api.projectId"));
    let bare = Host::bare();
    assert!(bare.expect_exit(2, &["preview", "status", "x"]).stderr.contains("[api]"));
    for path in ["status/{statusId}", "/status", "/../{statusId}"] {
        let host = host(&upstream).set("api.statusPath", toml_string(path));
        assert!(host.expect_exit(2, &["preview", "status", "x"]).stderr.contains("api.statusPath"), "{path}");
    }
    assert!(upstream.log().is_empty(), "{}", upstream.request_history());
}

#[test]
fn preview_wait_polls_until_the_deployment_ends_and_prints_summary_and_logs() {
    let upstream = upstream();
    upstream.state().project_api.states =
        ["queued", "in_progress", "hand-over", "in_progress", "success"].map(Value::from).into();
    let host = host(&upstream);
    let output = host.ok(&["preview", "create", "--branch", "x", "--wait"]);
    assert_eq!(output.stdout.lines().count(), 1, "the address alone: {}", output.stdout);
    for expected in
        ["the build ended in success", "cloning", "building 12 pages", "0a1b2c3d feature/tides Tides by moonlight"]
    {
        assert!(output.stderr.contains(expected), "{expected} in {}", output.stderr);
    }
    assert_eq!(upstream.count(UpstreamCall::Deployment), 5, "unknown states mean still working");
    assert_eq!(upstream.calls(UpstreamCall::Deployment)[0].target, "/v1/project/update-status/dep_1");
    let json = host.ok(&["preview", "create", "--branch", "x", "--wait", "--json"]).json();
    assert_eq!(json["deployment"]["status"], "success");
    assert_eq!(json["deployment"]["commit"]["filesChanged"], json!({"added": 1, "modified": 2, "removed": 0}));
}

#[test]
fn failed_preview_exits_6_and_prints_summary_and_logs() {
    let upstream = upstream();
    upstream.state().project_api.states = vec!["in_progress".into(), "failure".into()];
    let host = host(&upstream);
    let output = host.expect_exit(6, &["preview", "create", "--branch", "x", "--wait"]);
    assert!(output.stdout.ends_with("/preview/x\n"));
    assert!(output.stderr.contains("building 12 pages"), "{}", output.stderr);
    assert!(output.stderr.lines().last().unwrap().contains("the preview of x failed: the build ended in failure"));
    let status = host.expect_exit(6, &["preview", "status", "dep_1"]);
    assert!(status.stdout.starts_with("status   failure\n"), "{}", status.stdout);
}

#[test]
fn preview_status_prints_the_current_status_and_wait_polls_until_the_end() {
    let upstream = upstream();
    let host = host(&upstream);
    host.ok(&["preview", "create", "--branch", "x"]);
    assert_eq!(host.ok(&["preview", "status", "dep_1", "--json"]).json()["deployment"]["status"], "queued");
    let output = host.ok(&["preview", "status", "dep_1", "--wait"]);
    assert!(output.stdout.contains("status   success\nsummary  the build ended in success\n"), "{}", output.stdout);
    assert!(host.expect_exit(4, &["preview", "status", "dep_9"]).stderr.contains("no such deployment"));
}

#[test]
fn preview_wait_fails_when_the_deployment_outlasts_the_timeout() {
    let upstream = upstream();
    upstream.state().project_api.states = vec!["pondering".into()];
    let host = host(&upstream);
    let output = host.expect_exit(4, &["preview", "create", "--branch", "x", "--wait", "--timeout", "2s"]);
    assert!(
        output.stderr.contains("pondering") && output.stderr.contains("preview status dep_1 --wait"),
        "{}",
        output.stderr
    );
    assert!(output.stdout.ends_with("/preview/x\n"));
}

#[test]
fn deployment_response_needs_only_the_status_field() {
    let upstream = upstream();
    upstream.state().project_api.states = vec![json!({"status": "success", "logs": null, "summary": 7, "commit": []})];
    let output = host(&upstream).ok(&["preview", "create", "--branch", "x", "--wait"]);
    assert_eq!(output.stderr, "status   success\n");
    upstream
        .on(UpstreamCall::Preview)
        .respond_with(raw_reply("text/plain", r#"{"previewUrl": "https://p.example/x"}"#));
    let host = host(&upstream);
    assert_eq!(host.ok(&["preview", "create", "--branch", "x"]).stdout, "https://p.example/x\n");
    assert!(host.expect_exit(4, &["preview", "create", "--branch", "x", "--wait"]).stderr.contains("no statusId"));
}

// Regression: a preview was started three times when the response omitted its address.
#[test]
fn preview_create_is_not_retried_when_the_response_lacks_a_valid_url() {
    let upstream = upstream();
    upstream
        .on(UpstreamCall::Preview)
        .respond_with(raw_reply("application/json", r#"{"statusId": 7, "previewUrl": "javascript:alert(1)"}"#));
    let host = host(&upstream);
    let output = host.expect_exit(4, &["preview", "create", "--branch", "x"]);
    assert!(output.stderr.contains("returned no address; its statusId is 7"), "{}", output.stderr);
    assert_eq!(host.ok(&["preview", "create", "--branch", "x", "--json"]).json()["statusId"], "7");
    assert_eq!(upstream.count(UpstreamCall::Preview), 2, "{}", upstream.request_history());
}

// Regression: the JSON and the comment of a preview that could not be followed lacked its address and status id.
#[test]
fn preview_create_prints_status_id_and_url_when_the_wait_times_out() {
    let upstream = upstream();
    upstream.state().project_api.states = vec!["pondering".into()];
    let host = host(&upstream);
    let wait = ["preview", "create", "--branch", "x", "--wait", "--timeout", "200ms"];
    let json = host.expect_exit(4, &[&wait[..], &["--json"]].concat()).json();
    assert_eq!((json["statusId"].as_str(), &json["deployment"]), (Some("dep_1"), &Value::Null));
    let comment = host.expect_exit(4, &[&wait[..], &["--comment"]].concat()).stdout;
    assert!(comment.contains("in progress") && comment.contains("/preview/x>"), "{comment}");
}

// Regression: `--timeout` did not bound a server that hangs, and ended too early otherwise.
#[test]
fn preview_timeout_covers_a_server_that_hangs_and_does_not_end_early() {
    let upstream = upstream();
    upstream.on(UpstreamCall::Deployment).respond_with(no_reply());
    let host = host(&upstream).set("network.callTimeout", toml_string("2m"));
    let started = Instant::now();
    let output = host.expect_exit(4, &["preview", "create", "--branch", "x", "--wait", "--timeout", "1s"]);
    assert!(output.stderr.contains("has not ended after 1s; its last state: unknown"), "{}", output.stderr);
    // The time-out of a call is 2 min here.
    assert!(started.elapsed().as_secs() < 60);
    upstream.clear_rules();
    upstream.state().project_api.states = vec!["pondering".into()];
    let started = Instant::now();
    host.expect_exit(4, &["preview", "status", "dep_1", "--wait", "--timeout", "1s"]);
    assert!(started.elapsed().as_millis() >= 1000);
}

// Regression: a long log hid the result of a deployment, success and failure alike.
#[test]
fn long_deployment_log_is_shortened_and_the_result_stays_visible() {
    let upstream = upstream();
    let logs: Vec<String> =
        (0..30_000).map(|n| format!("line {n} of a build that says much more than anybody reads")).collect();
    upstream.state().project_api.states = vec![json!({"status": "success", "logs": logs})];
    let output = host(&upstream).ok(&["preview", "create", "--branch", "x", "--wait"]);
    assert!(output.stderr.contains("line 29999 of") && output.stderr.contains("29800 earlier lines"));
}

#[test]
fn invalid_status_id_fails_before_any_request() {
    let upstream = upstream();
    for id in ["", ".", ".."] {
        host(&upstream).expect_exit(2, &["preview", "status", id]);
    }
    assert!(upstream.log().is_empty());
}

#[test]
fn api_status_path_setting_changes_the_path_of_the_status_request() {
    let upstream = upstream();
    let host = host(&upstream).set("api.statusPath", toml_string("/v9/{projectId}/deployments/{statusId}/state"));
    upstream.on(UpstreamCall::Other).respond_with(raw_reply("application/json", r#"{"status": "success"}"#));
    host.ok(&["preview", "status", "a/b?c"]);
    assert_eq!(upstream.log()[0].target, "/v1/v9/prj_7%2Fa/deployments/a%2Fb%3Fc/state");
}

#[test]
fn preview_comment_is_markdown_with_a_marker_of_its_branch() {
    let upstream = upstream();
    let output = host(&upstream).ok(&["preview", "create", "--branch", "feature/tides", "--wait", "--comment"]);
    assert!(output.stdout.starts_with("<!-- docwharf preview: feature/tides -->\n### Documentation preview: ready\n"));
    assert!(output.stdout.contains(&format!("<{}/preview/feature-tides>", upstream.api_origin())), "{}", output.stdout);
    assert!(output.stdout.contains("building 12 pages"));
    assert_eq!(output.stderr, "");
}

// Regression: a wrong `api.projectId` ended with exit code 4 ("upstream unavailable").
#[test]
fn preview_create_explains_every_4xx_response_and_does_not_retry() {
    let cases = [
        (400, "branch is required", 2, "check the branch"),
        (401, "invalid API key", 3, "put a valid one in its place"),
        (403, "Preview deployments are not available on your plan", 3, "previews need another plan"),
        (403, "forbidden", 3, "the plan may lack previews"),
        (404, "project not found", 2, "api.projectId"),
    ];
    run_concurrently(&cases, |(status, error, code, advice)| {
        let upstream = upstream();
        upstream.on(UpstreamCall::Preview).respond_with(error_reply(*status).json(&json!({"error": error})));
        let output = host(&upstream).expect_exit(*code, &["preview", "create", "--branch", "x"]);
        assert!(output.stderr.contains(error) && output.stderr.contains(advice), "{}", output.stderr);
        assert_eq!((upstream.count(UpstreamCall::Preview), output.stdout.as_str()), (1, ""), "final at once");
    });
}

#[test]
fn long_retry_after_of_a_429_ends_preview_create_at_once_and_blocks_other_processes() {
    let upstream = upstream();
    upstream.on(UpstreamCall::Preview).respond_with(error_reply(429).header("Retry-After", "90"));
    let host = host(&upstream);
    let started = Instant::now();
    let output = host.expect_exit(4, &["preview", "create", "--branch", "x"]);
    assert!(output.stderr.contains("429") && output.stderr.contains("90 s"), "{}", output.stderr);
    let output = host.expect_exit(4, &["preview", "create", "--branch", "x", "--no-wait-for-budget"]);
    let message = "the API demands a pause of its calls for previews: the next request is free in 1m";
    assert!(output.stderr.contains(message), "{}", output.stderr);
    assert_eq!(upstream.count(UpstreamCall::Preview), 1, "{}", upstream.request_history());
    assert!(started.elapsed().as_secs() < 60);
}

#[test]
fn preview_create_retries_twice_when_the_response_is_lost() {
    let upstream = upstream();
    upstream.on(UpstreamCall::Preview).respond_with(close_without_reply());
    host(&upstream).expect_exit(4, &["preview", "create", "--branch", "x"]);
    assert_eq!(upstream.count(UpstreamCall::Preview), 3, "{}", upstream.request_history());
}

#[test]
fn budget_of_five_previews_a_minute_is_shared_by_processes_and_persists() {
    let upstream = upstream();
    let host = host(&upstream);
    let create = ["preview", "create", "--branch", "x", "--no-wait-for-budget"];
    // Eight at a time: any five of them may be first.
    let codes = std::sync::Mutex::new(Vec::new());
    run_concurrently(&[(); 8], |()| {
        let output = run_with_timeout(&mut host.command(&create));
        codes.lock().unwrap().push(output.code);
    });
    let codes = codes.into_inner().unwrap();
    assert_eq!(codes.iter().filter(|code| **code == Some(0)).count(), 5, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == Some(4)).count(), 3, "{codes:?}");
    let output = host.expect_exit(4, &create);
    assert!(output.stderr.contains("5 requests for previews in 1m"), "{}", output.stderr);
    assert_eq!(upstream.count(UpstreamCall::Preview), 5, "{}", upstream.request_history());
}

#[test]
fn wait_for_the_preview_budget_is_logged_and_lasts_until_a_request_is_free() {
    let upstream = upstream();
    let host = host(&upstream);
    write_budget(&host, &upstream, "previews", &[59, 40, 30, 20, 10]);
    let started = millis_ago(0);
    let output = host.ok(&["preview", "create", "--branch", "x"]);
    assert!(output.stderr.contains("is used up") && output.stderr.contains("waiting "), "{}", output.stderr);
    // The oldest request was 59 s old.
    assert!(millis_ago(0) - started >= 1000);
    assert_eq!(upstream.count(UpstreamCall::Preview), 1);
}

#[test]
fn request_that_could_not_connect_does_not_count_against_the_budget() {
    let upstream = Upstream::closed(bundle("one"));
    let host = host(&upstream);
    host.expect_exit(4, &["preview", "create", "--branch", "x"]);
    let book: Value = serde_json::from_slice(&std::fs::read(host.path("store/api/budget.json")).unwrap()).unwrap();
    assert_eq!(book["budgets"][format!("previews {}", upstream.base_url())]["sent"], json!([]));
}

#[test]
fn preview_create_works_with_an_unwritable_store() {
    let upstream = upstream();
    let host = host(&upstream).set("store.path", toml_string("/proc/no-such-place"));
    let output = host.ok(&["preview", "create", "--branch", "x"]);
    assert!(output.stdout.ends_with("/preview/x\n"));
    assert!(output.stderr.contains("counted for this command alone"), "{}", output.stderr);
}

// Regression: a command that calls the API, run by a user without access to the daemon's store, warned about that store
// and advised the user to free disk space.
#[test]
fn preview_create_does_not_warn_a_user_without_access_to_the_store() {
    use std::os::unix::fs::PermissionsExt;
    let upstream = upstream();
    let host = host(&upstream);
    // The program and all files that it reads can be used by another user.
    let program = host.path("docwharf");
    support::copy_program(&program);
    let store = host.path("store");
    std::fs::create_dir_all(&store).unwrap();
    for (path, mode) in [(host.dir.path(), 0o755), (&program, 0o755), (&store, 0o700)] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    for name in ["docwharf.toml", "key"] {
        std::fs::set_permissions(host.path(name), PermissionsExt::from_mode(0o644)).unwrap();
    }
    if !rustix::process::geteuid().is_root() {
        std::fs::set_permissions(&store, PermissionsExt::from_mode(0o000)).unwrap();
    }
    let mut command = std::process::Command::new(&program);
    command.env_clear().args(["preview", "create", "--branch", "x", "--config"]).arg(host.path("docwharf.toml"));
    if rustix::process::geteuid().is_root() {
        std::os::unix::process::CommandExt::uid(&mut command, 65534);
    }
    let output = support::run_to_end(&mut command).expect(0);
    assert!(!output.stderr.contains("lock") && !output.stderr.contains("free some space"), "{}", output.stderr);
    std::fs::set_permissions(&store, PermissionsExt::from_mode(0o700)).unwrap();
}

#[test]
fn preview_create_works_during_a_running_daemon_and_with_sync_disabled() {
    let upstream = upstream();
    let host = host(&upstream);
    let daemon = host.run();
    support::until("the first version", || support::host::front_page_title(&daemon) == "one");
    host.ok(&["preview", "create", "--branch", "x"]);
    drop(daemon);
    host.set("staticExport.enabled", "false").ok(&["preview", "create", "--branch", "x"]);
    assert_eq!(upstream.count(UpstreamCall::Preview), 2);
}

#[test]
fn verbose_option_logs_method_path_status_and_time_without_secrets() {
    let upstream = upstream();
    let output = host(&upstream).ok(&["preview", "create", "--branch", "x", "-vv"]);
    let line = output.stderr.lines().find(|line| line.contains("POST /project/preview/")).unwrap_or_default();
    assert!(line.contains("202 in ") && line.ends_with(" ms"), "{}", output.stderr);
    assert!(!output.stderr.contains(KEY));
    // Each with a store of its own, because of the budget.
    let logged = |options: &[&str], variables: &[(&str, &str)]| -> String {
        let arguments = [&["preview", "create", "--branch", "x"], options].concat();
        let output = run_with_timeout(host(&upstream).command(&arguments).envs(variables.iter().copied())).expect(0);
        output.stderr.lines().find(|line| line.contains("POST /project/preview/")).unwrap_or_default().to_owned()
    };
    assert!(logged(&["-v"], &[]).starts_with("20"), "with the time");
    assert!(logged(&["-v"], &[("JOURNAL_STREAM", "8:1")]).starts_with("DEBUG "), "the journal adds the time");
    assert_eq!(logged(&[], &[]), "");
    // The environment decides before the options, and a variable without a value does not.
    assert_eq!(logged(&["-vv"], &[("DOCWHARF_LOG", "error"), ("RUST_LOG", "debug")]), "");
    assert!(!logged(&[], &[("DOCWHARF_LOG", ""), ("RUST_LOG", "debug")]).is_empty());
    assert!(!logged(&["-v"], &[("DOCWHARF_LOG", "docwharf=loud")]).is_empty(), "the options decide then");
}
