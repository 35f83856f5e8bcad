//! `sync` and `export` with the management API: requests, handling of responses, exit codes.

use std::time::{Duration, Instant};

use docwharf::model::digest::Digest;
use serde_json::{Value, json};
use support::host::{Host, bundle, expect_plain_exit, run_concurrently, run_with_timeout, toml_string};
use support::upstream::{
    DOMAIN, KEY, Reply, SIGNATURE, Upstream, UpstreamCall, close_without_reply, error_reply, expired_link_reply,
    http_date_in, no_reply, normal_reply, raw_reply, redirect_reply,
};
use support::{docwharf, run_to_end, temporary_folder};

const CALLS: [UpstreamCall; 3] = [UpstreamCall::Start, UpstreamCall::Poll, UpstreamCall::Link];

fn upstream() -> Upstream {
    Upstream::new(bundle("one"))
}

/// A response 200 with this JSON.
fn json_response(body: &Value) -> Reply {
    raw_reply("application/json", body.to_string())
}

// A sync without faults.

#[test]
fn sync_starts_a_job_polls_it_requests_the_link_and_activates_the_bundle() {
    let upstream = upstream();
    let host = Host::new(&upstream);
    let ended = host.ok(&["sync"]);
    assert!(ended.stdout.starts_with("activated "), "{ended:?}");
    assert_eq!(ended.stderr, "");
    let calls: Vec<UpstreamCall> = upstream.log().iter().map(|request| request.call).collect();
    assert_eq!(
        calls,
        [
            UpstreamCall::Start,
            UpstreamCall::Poll,
            UpstreamCall::Poll,
            UpstreamCall::Poll,
            UpstreamCall::Link,
            UpstreamCall::Download
        ]
    );
    let start = &upstream.calls(UpstreamCall::Start)[0];
    assert_eq!(start.json()["domain"], DOMAIN);
    let kind = start.header("content-type").unwrap();
    assert!(kind.starts_with("application/json"), "{kind}");
    for request in upstream.log().iter().filter(|request| request.call != UpstreamCall::Download) {
        assert_eq!(request.header("authorization"), Some(&*format!("Bearer {KEY}")));
        assert!(request.target.starts_with("/v1/static-export/jobs"), "{}", request.target);
    }
    assert_eq!(host.status()["job"], Value::Null, "a job whose bundle was downloaded is removed from the record");
    assert_eq!(host.last_result(), "activated");
    host.assert_tidy();
}

#[test]
fn a_receipt_records_the_source_and_the_user_of_a_version() {
    let newest_receipt = |host: &Host| {
        let mut receipt = host.ok(&["versions", "--json"]).json()["versions"][0]["receipts"][0].clone();
        let time = receipt["time"].take();
        assert!(time.as_str().is_some_and(|time| time.ends_with('Z')), "{time}");
        receipt
    };
    let upstream = upstream();
    let host = Host::new(&upstream);
    host.ok(&["sync"]);
    let (bytes, validator) = (bundle("one"), upstream.state().validator());
    let sha256 = Digest::compute(&bytes).to_hex();
    let expected = json!({
        "time": null, "who": "tester", "source": format!("{}#{DOMAIN}", upstream.base_url()), "kind": "zip",
        "archiveSha256": sha256, "archiveBytes": bytes.len(), "label": null, "job": "se_0000000000000001",
        "validator": validator, "sentBytes": bytes.len(), "looked": true,
    });
    assert_eq!(newest_receipt(&host), expected);

    let host = Host::bare();
    host.put("b.zip", &bytes);
    let path = host.path("b.zip").to_str().expect("UTF-8").to_owned();
    host.ok(&["import", &path, "--label", "L"]);
    let receipt = newest_receipt(&host);
    let expected = json!({
        "time": null, "who": "tester", "source": receipt["source"], "kind": "zip", "archiveSha256": sha256,
        "archiveBytes": bytes.len(), "label": "L", "job": null, "validator": null, "sentBytes": null, "looked": false,
    });
    assert!(receipt["source"].as_str().is_some_and(|source| source.ends_with("b.zip")), "{receipt}");
    assert_eq!(receipt, expected);
}

#[test]
fn the_link_request_has_neither_body_nor_content_type() {
    let upstream = upstream();
    Host::new(&upstream).ok(&["sync"]);
    let request = &upstream.calls(UpstreamCall::Link)[0];
    assert!(request.body.is_empty());
    assert_eq!(request.header("content-type"), None, "{request:?}");
    assert_eq!(request.header("transfer-encoding"), None, "{request:?}");
    assert!(matches!(request.header("content-length"), None | Some("0")), "{request:?}");
}

#[test]
fn unchanged_content_is_already_current_although_each_sync_starts_a_job() {
    let upstream = upstream();
    let host = Host::new(&upstream);
    assert_eq!(host.sync(), "activated");
    let ended = host.ok(&["sync"]);
    assert!(ended.stdout.starts_with("already current: "), "{ended:?}");
    assert_eq!(host.sync(), "already current");
    assert_eq!(upstream.count(UpstreamCall::Start), 3, "{}", upstream.request_history());
    upstream.publish(bundle("two"));
    let ended = host.ok(&["sync", "--json"]);
    assert_eq!(ended.json()["result"], "activated");
    assert_eq!(ended.json()["version"].as_str(), host.active().as_deref());
}

#[test]
fn a_trailing_slash_in_the_base_url_is_ignored() {
    let upstream = upstream();
    let host = Host::new(&upstream).set("api.baseUrl", toml_string(&format!("{}/", upstream.base_url())));
    host.ok(&["sync"]);
    assert_eq!(upstream.count(UpstreamCall::Start), 1);
    assert_eq!(upstream.count(UpstreamCall::Other), 0, "{}", upstream.request_history());
}

// Required and optional fields of a response.

#[test]
fn any_2xx_response_with_a_json_object_is_accepted() {
    let mut cases = Vec::new();
    for call in CALLS {
        for status in [200, 201, 202, 203, 206, 299] {
            cases.push((call, status));
        }
    }
    run_concurrently(&cases, |&(call, status)| {
        let upstream = upstream();
        upstream.on(call).respond_with(normal_reply().status(status));
        let host = Host::new(&upstream);
        assert_eq!(host.sync(), "activated", "{call:?} {status}");
        assert_eq!(upstream.count(UpstreamCall::Start), 1, "{call:?} {status}");
    });
}

#[test]
fn a_json_response_is_accepted_with_any_content_type() {
    let cases = ["text/plain", "application/octet-stream", "text/html; charset=utf-8", "nonsense", ""];
    run_concurrently(&cases, |kind| {
        let upstream = upstream();
        for call in CALLS {
            let reply = normal_reply();
            upstream.on(call).respond_with(match *kind {
                "" => reply.without("Content-Type"),
                kind => reply.header("Content-Type", kind),
            });
        }
        assert_eq!(Host::new(&upstream).sync(), "activated", "{kind:?}");
        assert_eq!(upstream.count(UpstreamCall::Start), 1, "{kind:?}");
    });
}

#[test]
fn optional_fields_may_be_missing_or_of_any_type() {
    let odd = [Value::Null, json!("10"), json!("soon"), json!(-1.5e300), json!([]), json!({"a": {}}), json!(true)];
    run_concurrently(&odd, |odd| {
        let upstream = upstream();
        upstream.on(UpstreamCall::Start).respond_with(json_response(&json!({
            "jobId": "se_odd", "status": odd, "progress": odd, "pageCount": odd, "createdAt": odd, "updatedAt": odd,
            "error": odd, "aNewField": odd,
        })));
        upstream.add_finished_job("se_odd");
        upstream.statuses(&[
            json!({"status": "running", "jobId": odd, "progress": odd, "pageCount": odd, "error": odd, "new": odd}),
            json!({"status": "completed", "jobId": odd, "progress": odd, "pageCount": odd, "error": odd}),
        ]);
        {
            let mut plan = upstream.state();
            plan.expires_at = Some(odd.clone());
            plan.size_bytes = Some(odd.clone());
        }
        assert_eq!(Host::new(&upstream).sync(), "activated", "{odd}");
        assert_eq!(upstream.count(UpstreamCall::Start), 1, "{odd}");
    });
    let upstream = upstream();
    upstream.on(UpstreamCall::Start).respond_with(json_response(&json!({"jobId": "x"})));
    upstream.add_finished_job("x");
    upstream.statuses(&[json!({"status": "completed"})]);
    let link = upstream.link();
    upstream.on(UpstreamCall::Link).respond_with(json_response(&json!({"bundleUrl": link})));
    assert_eq!(Host::new(&upstream).sync(), "activated");
}

#[test]
fn an_api_call_is_retried_if_the_response_lacks_its_required_field() {
    let mut cases = Vec::new();
    for (call, field) in
        [(UpstreamCall::Start, "jobId"), (UpstreamCall::Poll, "status"), (UpstreamCall::Link, "bundleUrl")]
    {
        for value in [json!(""), json!(null), json!(7), json!(["x"])] {
            cases.push((call, json!({field: value})));
        }
        cases.push((call, json!({})));
    }
    run_concurrently(&cases, |(call, body)| {
        let upstream = upstream();
        upstream.on(*call).times(1).respond_with(json_response(body));
        assert_eq!(Host::new(&upstream).sync(), "activated", "{call:?} {body}");
        assert_eq!(
            upstream.count(UpstreamCall::Link),
            if *call == UpstreamCall::Link { 2 } else { 1 },
            "{call:?} {body}"
        );
    });
}

#[test]
fn response_fields_that_are_not_needed_are_not_validated() {
    let bodies = [
        r#"{"jobId": "x", "progress": 1e999, "pageCount": -1e999}"#.to_owned(),
        r#"{"jobId": "x", "error": "cut in the middle of a character \ud83d"}"#.to_owned(),
        format!(r#"{{"jobId": "x", "deep": {}1{}}}"#, "[".repeat(400), "]".repeat(400)),
        "\n\n {\"jobId\":\"x\",\"jobs\":[]} \r\n".to_owned(),
    ];
    run_concurrently(&bodies, |body| {
        let upstream = upstream();
        upstream.add_finished_job("x");
        upstream.on(UpstreamCall::Start).respond_with(raw_reply("application/json", body));
        assert_eq!(Host::new(&upstream).sync(), "activated", "{body:.60}");
        assert_eq!(upstream.count(UpstreamCall::Start), 1, "{body:.60}");
    });
}

#[test]
fn a_response_without_content_length_is_accepted() {
    let upstream = upstream();
    for call in CALLS {
        upstream.on(call).respond_with(normal_reply().without("Content-Length"));
    }
    assert_eq!(Host::new(&upstream).sync(), "activated");
    assert_eq!(upstream.count(UpstreamCall::Start), 1);
}

#[test]
fn unusual_job_ids_and_keys_cause_no_panic() {
    let upstream = upstream();
    upstream.state().job_ids.push_back("x".repeat(900_000));
    let ended = run_with_timeout(&mut Host::new(&upstream).command(&["sync"]));
    assert!(matches!(ended.code, Some(1..=8)), "{:?}", ended.code);
    let own_message = ended.stderr.lines().find(|line| line.starts_with("docwharf: cannot")).unwrap();
    assert!(own_message.chars().count() < 1000, "{} characters", own_message.chars().count());
    for key in ["dwk_ü", "dwk 1", "🔑", "\u{85}", "dwk_\u{2028}x"] {
        let upstream = Upstream::new(bundle("one"));
        let host = Host::new(&upstream);
        host.put("key", key);
        let ended = run_with_timeout(&mut host.command(&["sync"]));
        assert!(matches!(ended.code, Some(2 | 3)), "{key:?}: {ended:?}");
        assert!(!ended.stderr.contains(key), "{key:?}: {ended:?}");
    }
}

// The end of a job.

#[test]
fn only_the_statuses_completed_and_failed_end_the_polling_of_a_job() {
    let upstream = upstream();
    let odd = ["queued", "running", "warming-up", "cancelled", "error", "Completed", "FAILED", "success", "done", "🚢"];
    let mut statuses: Vec<Value> = odd.iter().map(|status| json!(status)).collect();
    statuses.push(json!("completed"));
    upstream.statuses(&statuses);
    assert_eq!(Host::new(&upstream).sync(), "activated");
    assert_eq!(upstream.count(UpstreamCall::Poll), statuses.len());
    assert_eq!((upstream.count(UpstreamCall::Start), upstream.count(UpstreamCall::Link)), (1, 1));
}

#[test]
fn a_failed_job_is_exit_code_6_with_its_error_and_no_further_request() {
    let cases = [
        (json!({"status": "failed", "error": "page guides/tide.mdx does not parse"}), "guides/tide.mdx"),
        (json!({"status": "failed", "error": null}), ""),
        (json!({"status": "failed"}), ""),
        (json!({"status": "failed", "error": {"code": 7}}), ""),
        (json!({"status": "failed", "error": "bell\u{7} and \u{1b}[31mcolour\nand a line"}), "bell"),
        (json!({"status": "failed", "error": "x".repeat(100_000)}), "xxx"),
    ];
    run_concurrently(&cases, |(last, part)| {
        let upstream = upstream();
        upstream.statuses(&[json!("running"), last.clone()]);
        let host = Host::new(&upstream);
        let ended = host.expect_exit(6, &["sync"]);
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
        assert_eq!(upstream.count(UpstreamCall::Poll), 2);
        assert_eq!(upstream.count(UpstreamCall::Link) + upstream.count(UpstreamCall::Download), 0);
        assert_eq!(host.job(), None, "a failed job is removed from the record");
        upstream.statuses(&[json!("completed")]);
        assert_eq!(host.sync(), "activated");
        assert_eq!(upstream.count(UpstreamCall::Start), 2);
    });
}

#[test]
fn a_job_that_never_ends_is_abandoned_after_job_timeout() {
    let upstream = upstream();
    upstream.statuses(&[json!("running")]);
    let host = Host::new(&upstream).set("sync.jobTimeout", toml_string("1s"));
    let started = Instant::now();
    let ended = host.expect_exit(4, &["sync"]);
    assert!(started.elapsed() < Duration::from_secs(20));
    assert!(ended.stderr.contains("se_0000000000000001"), "the id of the job is missing: {}", ended.stderr);
    assert_eq!(upstream.count(UpstreamCall::Start), 1);
    assert_eq!(host.job(), None, "the job is removed from the record after jobTimeout");
}

// Final responses.

#[test]
fn a_400_401_or_403_ends_the_sync_after_one_request_with_the_message_of_the_upstream() {
    let mut cases = Vec::new();
    for call in CALLS {
        for (status, code) in [(400, 2), (401, 3), (403, 3)] {
            cases.push((call, status, code));
        }
    }
    run_concurrently(&cases, |&(call, status, code)| {
        let upstream = upstream();
        upstream.on(call).respond_with(error_reply(status).json(&json!({
            "error": "Static export needs the Enterprise plan",
            "details": [{"message": "ask sales"}, {"message": "or an admin"}],
        })));
        let host = Host::new(&upstream);
        let ended = host.expect_exit(code, &["sync"]);
        for part in ["Static export needs the Enterprise plan", "ask sales", "or an admin", &status.to_string()] {
            assert!(ended.stderr.contains(part), "{call:?} {status}: {part:?} is missing: {}", ended.stderr);
        }
        assert_eq!(upstream.count(call), 1, "{call:?} {status}");
        assert_eq!(host.last_result(), "failed");
    });
}

#[test]
fn an_error_response_that_is_not_json_is_quoted_by_its_first_characters() {
    let page = format!("<html><body><h1>Forbidden by the gateway</h1>{}</body></html>", "lorem ipsum ".repeat(200_000));
    let cases: Vec<(Reply, &[&str])> = vec![
        (error_reply(403).body("text/html", &page), &["403", "Forbidden by the gateway"]),
        (error_reply(403).body("text/plain", ""), &["403"]),
        (error_reply(403).body("text/plain", b"\xff\xfe\0binary\x1b[2J"), &["403", "binary"]),
        (error_reply(403).body("application/json", "{\"error\": "), &["403"]),
        (error_reply(403).json(&json!({"error": ["odd"], "details": "odd too"})), &["403"]),
        (
            error_reply(403).json(&json!({"error": "no", "details": [7, {"message": null}, {"message": "yes"}]})),
            &["no", "yes"],
        ),
        (error_reply(403).json(&json!("just a text")), &["403", "just a text"]),
        (error_reply(403).json(&json!({"error": "e".repeat(1_000_000)})), &["403", "eee"]),
        (error_reply(403).json(&json!({"error": "two\nlines \u{1b}[31m"})), &["two", "lines"]),
    ];
    run_concurrently(&cases, |(reply, parts)| {
        let upstream = upstream();
        upstream.on(UpstreamCall::Start).respond_with(reply.clone());
        let ended = Host::new(&upstream).expect_exit(3, &["sync"]);
        for part in *parts {
            assert!(ended.stderr.contains(part), "{part:?} is missing: {}", ended.stderr);
        }
        assert!(!ended.stderr.contains("at line"), "the message quotes a parser: {}", ended.stderr);
        assert!(!ended.stderr.contains(&"lorem ipsum ".repeat(30)), "200 characters are enough: {}", ended.stderr);
        assert_eq!(upstream.count(UpstreamCall::Start), 1);
    });
}

#[test]
fn an_unknown_route_is_exit_code_4_after_one_request() {
    let upstream = upstream();
    let host = Host::new(&upstream).set("api.baseUrl", toml_string(&format!("{}/elsewhere/v1", upstream.api_origin())));
    let ended = host.expect_exit(4, &["sync"]);
    assert!(ended.stderr.contains("404"), "{}", ended.stderr);
    assert_eq!(upstream.log().len(), 1, "{}", upstream.request_history());
}

// Retries: which calls, how many, and when.

#[test]
fn each_api_call_is_retried_after_a_bad_response() {
    type MakeReply = fn() -> Reply;
    let faults: [(&str, MakeReply); 12] = [
        ("503", || error_reply(503)),
        ("500 with HTML", || error_reply(500).body("text/html", "<h1>Oops</h1>")),
        ("502 without a body", || error_reply(502).body("text/plain", "")),
        ("504", || error_reply(504)),
        ("429", || error_reply(429)),
        ("429 with an odd Retry-After", || error_reply(429).header("Retry-After", "in a while, -5")),
        ("closed", close_without_reply),
        ("cut head", || normal_reply().cut(0)),
        ("cut body", || normal_reply().cut(7)),
        ("HTML", || raw_reply("text/html", "<html>Please log in</html>")),
        ("nothing", || raw_reply("application/json", "")),
        ("no object", || raw_reply("application/json", "[\"jobId\", \"status\", \"bundleUrl\"]")),
    ];
    let mut cases: Vec<(UpstreamCall, &str, MakeReply)> = Vec::new();
    for call in CALLS {
        cases.extend(faults.iter().map(|&(name, make_reply)| (call, name, make_reply)));
    }
    cases.push((UpstreamCall::Link, "409", || error_reply(409)));
    run_concurrently(&cases, |&(call, name, make_reply)| {
        let upstream = upstream();
        upstream.on(call).times(1).respond_with(make_reply());
        assert_eq!(Host::new(&upstream).sync(), "activated", "{call:?} {name}");
        let starts = if call == UpstreamCall::Start { 2 } else { 1 };
        assert_eq!(upstream.count(UpstreamCall::Start), starts, "{call:?} {name}: {}", upstream.request_history());
        let bundles = if call == UpstreamCall::Link { 2 } else { 1 };
        assert_eq!(upstream.count(UpstreamCall::Link), bundles, "{call:?} {name}: {}", upstream.request_history());
    });
}

#[test]
fn an_api_call_without_a_complete_response_times_out_and_is_retried() {
    run_concurrently(&CALLS, |&call| {
        let upstream = upstream();
        upstream.on(call).times(1).respond_with(no_reply());
        let host = Host::new(&upstream).set("network.callTimeout", toml_string("3s"));
        assert_eq!(host.sync(), "activated", "{call:?}");
        assert_eq!(upstream.count(UpstreamCall::Start), if call == UpstreamCall::Start { 2 } else { 1 }, "{call:?}");
    });
    // A response that arrives byte by byte has a timeout, too.
    let upstream = Upstream::new(bundle("one"));
    upstream.on(UpstreamCall::Poll).times(1).respond_with(normal_reply().trickle(100, Duration::from_millis(500)));
    let started = Instant::now();
    assert_eq!(Host::new(&upstream).set("network.callTimeout", toml_string("3s")).sync(), "activated");
    assert!(started.elapsed() < Duration::from_secs(20), "the timeout started anew with each byte");
    // A body that never ends counts as a timeout.
    run_concurrently(&CALLS, |&call| {
        let upstream = Upstream::new(bundle("one"));
        upstream.on(call).times(1).respond_with(normal_reply().stall(3));
        let host = Host::new(&upstream).set("network.callTimeout", toml_string("2s"));
        assert_eq!(host.sync(), "activated", "{call:?}");
    });
}

/// The pauses between requests of one kind, in seconds.
fn pauses(upstream: &Upstream, call: UpstreamCall) -> Vec<f64> {
    let times: Vec<Instant> = upstream.calls(call).iter().map(|request| request.received_at).collect();
    times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect()
}

#[test]
fn an_api_call_has_five_attempts_or_three_if_a_job_may_have_started() {
    type MakeReply = fn() -> Reply;
    let cases: [(UpstreamCall, &str, MakeReply, usize); 14] = [
        (UpstreamCall::Start, "503", || error_reply(503), 5),
        (UpstreamCall::Start, "429", || error_reply(429), 5),
        (UpstreamCall::Start, "503, cut", || error_reply(503).cut(5), 3),
        // Regression: a stalled response counted as a complete one.
        (UpstreamCall::Start, "503, stalled", || error_reply(503).stall(5), 3),
        (UpstreamCall::Start, "closed", close_without_reply, 3),
        (UpstreamCall::Start, "silence", no_reply, 3),
        (UpstreamCall::Start, "HTML", || raw_reply("text/html", "<html>"), 3),
        (UpstreamCall::Start, "no id", || json_response(&json!({"status": "queued"})), 3),
        (UpstreamCall::Poll, "503", || error_reply(503), 5),
        (UpstreamCall::Poll, "503, cut", || error_reply(503).cut(5), 5),
        (UpstreamCall::Poll, "HTML", || raw_reply("text/html", "<html>"), 5),
        (UpstreamCall::Link, "409", || error_reply(409), 5),
        (UpstreamCall::Link, "closed", close_without_reply, 5),
        (UpstreamCall::Download, "503", || error_reply(503), 5),
    ];
    run_concurrently(&cases, |&(call, name, make_reply, attempts)| {
        let upstream = upstream();
        upstream.on(call).respond_with(make_reply());
        // A short timeout only where the test needs it: on a busy machine, a response may take a while.
        let host =
            Host::new(&upstream).set("network.callTimeout", toml_string(if name == "silence" { "4s" } else { "20s" }));
        let ended = host.expect_exit(4, &["sync"]);
        assert_eq!(upstream.count(call), attempts, "{call:?} {name}: {}", upstream.request_history());
        assert!(!ended.stderr.contains("expected value"), "{}", ended.stderr);
        // 1, 2, 4, 8 s, never less than half. A request is recorded on arrival, which may be a little late.
        for (pause, shortest) in pauses(&upstream, call).iter().zip([0.5, 1.0, 2.0, 4.0]) {
            assert!(*pause > shortest - 0.05, "{call:?} {name}: {:?}", pauses(&upstream, call));
        }
        if call != UpstreamCall::Start {
            assert_eq!(upstream.count(UpstreamCall::Start), 1, "no second job: {}", upstream.request_history());
            // A failed download or poll does not remove the job from the record.
            assert!(host.job().is_some(), "{call:?} {name}");
        }
    });
}

#[test]
fn an_endless_response_is_read_only_up_to_the_response_limit() {
    let cases: [(UpstreamCall, &[&str], usize, &str); 4] = [
        (UpstreamCall::Start, &["export", "start"], 1, "the response is over 1 MiB"),
        (UpstreamCall::Poll, &["export", "status", "se_done"], 1, "the response is over 1 MiB"),
        // A response that may contain a link is not described in detail.
        (UpstreamCall::Link, &["export", "link", "se_done"], 1, "the response is no valid JSON object"),
        (UpstreamCall::Deployment, &["preview", "status", "dep_1"], 16, "the response is over 16 MiB"),
    ];
    run_concurrently(&cases, |(call, command, max_mib, message)| {
        let upstream = upstream();
        upstream.add_finished_job("se_done");
        upstream
            .on(*call)
            .respond_with(raw_reply("application/json", "{\"data\": {").without("Content-Length").zeros(256 << 20));
        let host = Host::new(&upstream).set("api.projectId", toml_string("prj_1"));
        let ended = host.expect_exit(4, command);
        assert!(ended.stderr.contains(message), "{call:?}: {}", ended.stderr);
        // Buffers on the way hold further bytes, in each attempt.
        let max_mib = upstream.count(*call) * ((max_mib + 16) << 20);
        assert!(upstream.sent_bytes() < max_mib, "{call:?}: {} bytes", upstream.sent_bytes());
    });
}

#[test]
fn pauses_between_attempts_are_random() {
    let all_pauses = std::sync::Mutex::new(Vec::new());
    run_concurrently(&[0; 8], |_| {
        let upstream = upstream();
        upstream.on(UpstreamCall::Start).times(1).respond_with(error_reply(503));
        Host::new(&upstream).ok(&["sync"]);
        all_pauses.lock().unwrap().extend(pauses(&upstream, UpstreamCall::Start));
    });
    let all_pauses = all_pauses.into_inner().unwrap();
    let (shortest, longest) =
        all_pauses.iter().fold((f64::MAX, f64::MIN), |(l, m), pause| (l.min(*pause), m.max(*pause)));
    assert!(longest - shortest > 0.03, "eight clients have equal pauses: {all_pauses:?}");
}

#[test]
fn each_successful_poll_resets_the_number_of_failed_attempts() {
    let upstream = upstream();
    upstream.statuses(&["queued", "a", "b", "c", "d", "e", "completed"].map(Value::from));
    for _ in 0..6 {
        upstream.on(UpstreamCall::Poll).times(1).respond_with(error_reply(503));
        upstream.on(UpstreamCall::Poll).times(1).respond_with(normal_reply());
    }
    assert_eq!(Host::new(&upstream).sync(), "activated");
    assert_eq!(upstream.count(UpstreamCall::Poll), 13, "{}", upstream.request_history());
    assert_eq!(upstream.count(UpstreamCall::Start), 1);
}

#[test]
fn sync_retries_a_refused_connection() {
    let upstream = Upstream::closed(bundle("one"));
    let host = Host::new(&upstream);
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| host.sync());
        // Not for synchronisation: the first attempt should be refused, but the test also passes if it is not.
        std::thread::sleep(Duration::from_millis(300));
        upstream.open();
        assert_eq!(sync.join().unwrap(), "activated");
    });
    assert_eq!(upstream.count(UpstreamCall::Start), 1);
}

#[test]
fn an_unreachable_upstream_is_exit_code_4_with_its_address_in_the_message() {
    let closed_upstream = Upstream::closed(bundle("one"));
    // The queue of this listener is full, so the kernel neither accepts nor refuses connections.
    let full_listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full_listener.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    full_listener.listen(0).unwrap();
    let address = full_listener.local_addr().unwrap().as_socket().unwrap();
    let _connections: Vec<_> = (0..3)
        .map(|_| std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)))
        .take_while(Result::is_ok)
        .collect();
    let bases = [closed_upstream.base_url(), format!("http://{address}/v1"), "http://docs.invalid/v1".to_owned()];
    run_concurrently(&bases, |base| {
        let host = Host::new(&closed_upstream)
            .set("api.baseUrl", toml_string(base))
            .set("network.connectTimeout", toml_string("300ms"));
        let ended = host.expect_exit(4, &["sync"]);
        let authority = base.split('/').nth(2).unwrap();
        assert!(ended.stderr.contains(authority), "{base}: {}", ended.stderr);
        // The request was never sent, so no job can have been started: the next start of one is not delayed.
        let record = std::fs::read(host.path("store/state.json")).unwrap();
        let record: Value = serde_json::from_slice(&record).unwrap();
        assert_eq!((&record["lastStart"], &record["job"]), (&Value::Null, &Value::Null), "{base}");
    });
}

#[test]
fn retry_after_is_a_lower_bound() {
    let cases = [
        (UpstreamCall::Start, "2".to_owned(), 2.0),
        (UpstreamCall::Poll, "2".to_owned(), 2.0),
        (UpstreamCall::Download, "2".into(), 2.0),
    ];
    run_concurrently(&cases, |(call, value, shortest)| {
        let upstream = upstream();
        upstream.on(*call).times(1).respond_with(error_reply(503).header("Retry-After", value));
        assert_eq!(Host::new(&upstream).sync(), "activated");
        let pause = pauses(&upstream, *call)[0];
        assert!(pause > shortest - 0.05, "{call:?}: {pause}");
    });
    // A date has whole seconds, and some of its seconds may pass before the first request.
    let upstream = upstream();
    upstream.on(UpstreamCall::Start).times(1).respond_with(error_reply(429).header("Retry-After", http_date_in(6)));
    assert_eq!(Host::new(&upstream).sync(), "activated");
    assert!(pauses(&upstream, UpstreamCall::Start)[0] > 1.9, "{:?}", pauses(&upstream, UpstreamCall::Start));
}

#[test]
fn a_retry_after_over_its_limit_ends_the_sync_at_once_and_prints_the_time() {
    let cases = [
        (UpstreamCall::Start, 429, "3600".to_owned()),
        (UpstreamCall::Poll, 503, "61".to_owned()),
        (UpstreamCall::Link, 429, http_date_in(7200)),
        (UpstreamCall::Download, 503, "600".to_owned()),
        (UpstreamCall::Start, 503, "99999999999999999999".to_owned()),
        (UpstreamCall::Start, 503, http_date_in(3_000_000_000)),
    ];
    run_concurrently(&cases, |(call, status, value)| {
        let upstream = upstream();
        upstream.on(*call).respond_with(error_reply(*status).header("Retry-After", value));
        let host = Host::new(&upstream);
        let started = Instant::now();
        let ended = host.expect_exit(4, &["sync"]);
        assert_eq!(upstream.count(*call), 1, "{call:?} {value}");
        // The shortest time that a response asks for is 61 s.
        assert!(started.elapsed() < Duration::from_secs(55), "{call:?} {value}");
        let known_parts = [
            status.to_string(),
            upstream.api_origin(),
            upstream.object_store_origin(),
            "se_0000000000000001".to_owned(),
            "/v1".to_owned(),
        ];
        let message = known_parts.iter().fold(ended.stderr.clone(), |message, part| message.replace(part, ""));
        let message = message.replace("se0000000000000001", "");
        assert!(message.contains(|c: char| c.is_ascii_digit()), "the time is missing: {}", ended.stderr);
    });
}

// Jobs of earlier syncs, and job ids.

#[test]
fn a_404_for_a_job_ends_the_sync_and_the_next_sync_starts_a_new_job() {
    run_concurrently(&[UpstreamCall::Poll, UpstreamCall::Link], |&call| {
        let upstream = upstream();
        upstream.on(call).times(1).respond_with(error_reply(404).json(&json!({"error": "no such job"})));
        let host = Host::new(&upstream);
        let ended = host.expect_exit(4, &["sync"]);
        assert!(ended.stderr.contains("se_0000000000000001"), "{}", ended.stderr);
        assert_eq!(
            (upstream.count(UpstreamCall::Start), upstream.count(call)),
            (1, 1),
            "{}",
            upstream.request_history()
        );
        assert_eq!(host.job(), None);
        assert_eq!(host.sync(), "activated");
        assert_eq!(upstream.count(UpstreamCall::Start), 2);
    });
}

#[test]
fn sync_waits_for_the_unfinished_job_of_an_earlier_sync_and_then_starts_another() {
    let upstream = upstream();
    upstream.on(UpstreamCall::Poll).times(1).respond_with(error_reply(401));
    let host = Host::new(&upstream);
    host.expect_exit(3, &["sync"]);
    assert_eq!(host.job().as_deref(), Some("se_0000000000000001"));
    assert_eq!(host.sync(), "activated");
    let requests: Vec<(UpstreamCall, Option<String>)> =
        upstream.log().iter().skip(2).map(|r| (r.call, r.job())).collect();
    let start_index =
        requests.iter().position(|(call, _)| *call == UpstreamCall::Start).expect("the sync starts a job");
    assert!(start_index >= 3, "the old job was not waited for: {}", upstream.request_history());
    assert!(
        requests[..start_index]
            .iter()
            .all(|(call, job)| *call == UpstreamCall::Poll && job.as_deref() == Some("se_0000000000000001"))
    );
    assert!(
        requests[start_index + 1..]
            .iter()
            .all(|(call, job)| *call == UpstreamCall::Download || job.as_deref() != Some("se_0000000000000001"))
    );
    assert_eq!(upstream.count(UpstreamCall::Start), 2);
}

#[test]
fn a_missing_or_failed_job_of_an_earlier_sync_does_not_block_the_next_sync() {
    let endings: [fn(&Upstream); 2] = [Upstream::remove_jobs, |upstream| {
        upstream.on(UpstreamCall::Poll).times(1).respond_with(json_response(&json!({"status": "failed"})));
    }];
    run_concurrently(&endings, |end_job| {
        let upstream = upstream();
        upstream.on(UpstreamCall::Poll).times(1).respond_with(error_reply(403));
        let host = Host::new(&upstream);
        host.expect_exit(3, &["sync"]);
        assert!(host.job().is_some());
        end_job(&upstream);
        assert_eq!(host.sync(), "activated");
        assert_eq!(upstream.count(UpstreamCall::Start), 2, "{}", upstream.request_history());
    });
}

#[test]
fn a_job_id_is_opaque_and_one_segment_of_the_path() {
    let ids = [
        "a/b?c#d e",
        "%2F",
        "100%",
        "x/../../admin",
        "ünï→🚢",
        "a+b&c=d;e:f@g",
        "se_1/bundle",
        "\\",
        "\"<>",
        "a\tb\nc",
        "x".repeat(300).leak(),
    ];
    run_concurrently(&ids, |id| {
        let upstream = upstream();
        upstream.state().job_ids.push_back((*id).to_owned());
        assert_eq!(Host::new(&upstream).sync(), "activated", "{id:?}: {}", upstream.request_history());
        for request in upstream.calls(UpstreamCall::Poll).iter().chain(&upstream.calls(UpstreamCall::Link)) {
            assert_eq!(request.job().as_deref(), Some(*id), "{}", request.target);
        }
        assert_eq!(upstream.count(UpstreamCall::Other), 0, "{id:?}: {}", upstream.request_history());
    });
    // An id that cannot be a path segment leads to no other path either.
    for id in ["..", "."] {
        let upstream = upstream();
        upstream.state().job_ids.push_back(id.to_owned());
        let _ = run_with_timeout(&mut Host::new(&upstream).command(&["sync"]));
        for request in upstream.log() {
            let path = request.target.split('?').next().unwrap();
            assert!(path.starts_with("/v1/static-export/jobs"), "{id:?} led to {}", request.target);
        }
    }
}

// The API key.

#[test]
fn white_space_around_the_api_key_is_removed() {
    let upstream = upstream();
    let host = Host::new(&upstream);
    host.put("key", format!(" \t{KEY}\r\n\n"));
    host.ok(&["sync"]);
    assert_eq!(upstream.calls(UpstreamCall::Start)[0].header("authorization"), Some(&*format!("Bearer {KEY}")));
}

#[test]
fn the_key_is_read_from_key_file_else_environment_else_credentials_directory() {
    let upstream = upstream();
    let host = Host::new(&upstream);
    let credentials = temporary_folder();
    std::fs::write(credentials.path().join("api-key"), "from-credentials\n").unwrap();
    let authorization = |host: &Host, environment: Option<&str>| {
        let mut command = host.command(&["sync"]);
        command.env("CREDENTIALS_DIRECTORY", credentials.path());
        if let Some(key) = environment {
            command.env("DOCWHARF_API_KEY", key);
        }
        let _ = run_with_timeout(&mut command);
        upstream.calls(UpstreamCall::Start).last().unwrap().header("authorization").unwrap().to_owned()
    };
    assert_eq!(authorization(&host, Some("from-environment")), format!("Bearer {KEY}"));
    let host = host.without("api.keyFile");
    assert_eq!(authorization(&host, Some(" from-environment\n")), "Bearer from-environment");
    assert_eq!(authorization(&host, Some(" \n")), "Bearer from-credentials", "a blank variable is none");
    assert_eq!(authorization(&host, None), "Bearer from-credentials");
}

#[test]
fn an_empty_key_or_one_with_control_characters_is_refused_before_any_request() {
    for key in ["dwk_first\ndwk_second", "dwk_a\u{0}b", "dwk_a\rX-Evil: 1", "dwk_\u{1b}[2Jx"] {
        let upstream = upstream();
        let host = Host::new(&upstream);
        host.put("key", key);
        let ended = host.expect_exit(2, &["sync"]);
        assert!(!ended.stderr.contains("dwk_"), "the key is in the message: {}", ended.stderr);
        assert_eq!(upstream.connections(), 0);
    }
    let upstream = upstream();
    let host = Host::new(&upstream);
    for key in ["", " \n"] {
        host.put("key", key);
        host.expect_exit(2, &["sync"]);
    }
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn the_bearer_token_is_sent_only_to_the_api() {
    let upstream = upstream();
    let other_upstream = Upstream::new(bundle("one"));
    upstream.on(UpstreamCall::Download).times(1).respond_with(redirect_reply(302, &other_upstream.link()));
    Host::new(&upstream).ok(&["sync"]);
    let downloads: Vec<_> = upstream.calls(UpstreamCall::Download).into_iter().chain(other_upstream.log()).collect();
    assert_eq!(downloads.len(), 2);
    for request in downloads {
        let head = request.head();
        assert_eq!(request.header("authorization"), None, "{head}");
        assert!(!head.contains(KEY), "{head}");
        assert_eq!((request.header("cookie"), request.header("referer")), (None, None), "{head}");
    }
    // A link to the API's own address is requested without the key, too.
    upstream.state().link_on_api = true;
    upstream.publish(bundle("two"));
    Host::new(&upstream).ok(&["sync"]);
    for request in upstream.calls(UpstreamCall::Download) {
        assert_eq!(request.header("authorization"), None, "{}", request.head());
    }
}

#[test]
fn a_redirect_of_an_api_call_never_sends_the_key_to_another_origin() {
    let mut cases = Vec::new();
    for call in CALLS {
        for status in [301, 302, 303, 307, 308] {
            cases.push((call, status));
        }
    }
    run_concurrently(&cases, |&(call, status)| {
        let upstream = upstream();
        let other_upstream = new_other_upstream();
        upstream
            .on(call)
            .respond_with(redirect_reply(status, &format!("{}/v1/static-export/jobs", other_upstream.api_origin())));
        let ended = run_with_timeout(&mut Host::new(&upstream).command(&["sync"]));
        assert_ne!(ended.code, Some(0), "{call:?} {status}");
        for request in other_upstream.log() {
            assert!(!request.head().contains(KEY), "{call:?} {status}: {}", request.head());
        }
    });
}

fn new_other_upstream() -> Upstream {
    Upstream::new(bundle("elsewhere"))
}

#[test]
fn no_other_host_on_the_same_port_gets_the_key() {
    // localhost and 127.0.0.1 are one machine but two origins.
    let upstream = upstream();
    let localhost_base = upstream.base_url().replace("127.0.0.1", "localhost");
    upstream
        .on(UpstreamCall::Start)
        .times(1)
        .respond_with(redirect_reply(307, &format!("{localhost_base}/static-export/jobs")));
    let _ = run_with_timeout(&mut Host::new(&upstream).command(&["sync"]));
    for request in upstream.log().iter().filter(|request| request.header("host").unwrap().starts_with("localhost")) {
        assert_eq!(request.header("authorization"), None, "{}", request.head());
    }
}

// Messages, exit codes, invalid configuration.

#[test]
fn configuration_errors_are_reported_before_any_request() {
    type Change = fn(Host) -> Host;
    let upstream = upstream();
    let cases: [(Change, &str); 14] = [
        (|host| host.without("api.domain"), "domain"),
        (|host| host.without("api.baseUrl"), "baseUrl"),
        (|host| host.set("api.domain", toml_string("https://docs.example.com/")), "domain"),
        (|host| host.set("api.domain", toml_string("")), "domain"),
        (|host| host.set("api.baseUrl", toml_string("ftp://api.example.com/v1")), "baseUrl"),
        (|host| host.set("api.baseUrl", toml_string("api.example.com/v1")), "baseUrl"),
        (|host| host.set("api.baseURL", toml_string("https://api.example.com/v1")), "baseUrl"),
        (|host| host.set("api.keyFile", "7"), "keyFile"),
        (|host| host.set("network.pollFirst", toml_string("soon")), "pollFirst"),
        (|host| host.set("network.callTimeout", toml_string("0s")), "callTimeout"),
        (|host| host.set("network.redirects", toml_string("many")), "redirects"),
        (|host| host.set("sync.jobTimeout", toml_string("never")), "jobTimeout"),
        (|host| host.set("sync.schedule", toml_string("every day")), "schedule"),
        (|host| host.set("sync.probe", "[\"file:///etc/passwd\"]"), "probe"),
    ];
    for (change, key) in cases {
        let host = change(Host::new(&upstream));
        for command in ["sync", "run"] {
            let ended = host.expect_exit(2, &[command]);
            assert!(ended.stderr.contains(key), "{key}: {}", ended.stderr);
        }
        assert!(!host.path("store").exists(), "{key}");
    }
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn a_missing_key_file_or_ca_file_is_exit_code_2_with_its_name_in_the_message() {
    let upstream = upstream();
    for (key, value) in [("api.keyFile", "no-such-key"), ("api.caFile", "no-such-ca.pem")] {
        let host = Host::new(&upstream).set(key, toml_string(value));
        for command in ["sync", "run"] {
            let ended = host.expect_exit(2, &[command]);
            assert!(ended.stderr.contains(value), "{command}: {}", ended.stderr);
        }
    }
    let host = Host::new(&upstream).without("api.keyFile");
    let ended = host.expect_exit(2, &["sync"]);
    assert!(ended.stderr.contains("key"), "{}", ended.stderr);
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn a_missing_source_is_a_configuration_error_unless_the_store_has_a_version() {
    let host = Host::bare();
    host.expect_exit(2, &["sync"]);
    host.expect_exit(2, &["run"]);
    host.put("b.zip", bundle("imported"));
    host.ok(&["import", host.path("b.zip").to_str().unwrap()]);
    let daemon = host.run();
    assert_eq!(support::host::front_page_title(&daemon), "imported");
}

#[test]
fn the_environment_overrides_the_file() {
    let upstream = upstream();
    let host = Host::new(&upstream)
        .set("api.domain", toml_string("other.example"))
        .set("api.baseUrl", toml_string("http://127.0.0.1:9/v1"));
    let mut command = host.command(&["sync"]);
    command.env("DOCWHARF_API__BASE_URL", upstream.base_url()).env("DOCWHARF_API__DOMAIN", "docs.from.environment");
    expect_plain_exit(0, run_with_timeout(&mut command));
    assert_eq!(upstream.calls(UpstreamCall::Start)[0].json()["domain"], "docs.from.environment");
    let mut command = host.command(&["sync"]);
    expect_plain_exit(2, run_with_timeout(command.env("DOCWHARF_API__BASE_URI", upstream.base_url())));
}

// The export commands.

#[test]
fn export_commands_print_only_their_result_on_stdout() {
    let upstream = upstream();
    let host = Host::new(&upstream);
    let job = host.ok(&["export", "start"]).stdout.trim_end().to_owned();
    assert_eq!(job, "se_0000000000000001");
    assert_eq!(upstream.calls(UpstreamCall::Start)[0].json()["domain"], DOMAIN);
    assert!(host.ok(&["export", "status", &job]).stdout.contains("queued"));
    assert!(host.ok(&["export", "status", &job, "--wait"]).stdout.contains("completed"));
    let link = host.ok(&["export", "link", &job]).stdout;
    assert_eq!(link.lines().count(), 1);
    assert!(link.starts_with(&upstream.object_store_origin()) && link.contains(SIGNATURE), "{link}");
    let target = host.path("taken.tar.gz");
    host.ok(&["export", "download", &job, "--output", target.to_str().unwrap()]);
    assert_eq!(std::fs::read(&target).unwrap(), upstream.state().bundle);
    assert_eq!(upstream.count(UpstreamCall::Start), 1);
    assert!(!host.path("store").exists() || host.active().is_none(), "export commands activate nothing");
}

#[test]
fn export_download_names_the_file_after_the_link_unless_hidden_or_invalid() {
    let names = [
        ("docs-2.tar.gz", "docs-2.tar.gz"),
        (".bashrc", "bundle"),
        ("", "bundle"),
        ("a%2F..%2Fb", "bundle"),
        ("a%00b", "bundle"),
        ("a b", "bundle"),
    ];
    for (segment, expected) in names {
        let upstream = upstream();
        let object_store = upstream.object_store_origin();
        let link = format!("{object_store}/exports/{segment}?signature=secret-value");
        upstream.on(UpstreamCall::Link).respond_with(json_response(&json!({"bundleUrl": link})));
        upstream.on(UpstreamCall::Download).respond_with(raw_reply("application/zip", bundle("one")));
        upstream.add_finished_job("se_done");
        let host = Host::new(&upstream);
        let folder = host.path("here");
        std::fs::create_dir(&folder).unwrap();
        run_with_timeout(host.command(&["export", "download", "se_done"]).current_dir(&folder));
        let files: Vec<_> = support::read_tree(&folder).into_iter().map(|(expected, _)| expected).collect();
        assert_eq!(files, [expected], "{segment:?}");
    }
}

#[test]
fn export_download_replaces_a_file_only_if_output_names_it() {
    let upstream = upstream();
    let link = format!("{}/exports/docs.zip?signature=secret-value", upstream.object_store_origin());
    upstream.on(UpstreamCall::Link).respond_with(json_response(&json!({"bundleUrl": link})));
    upstream.on(UpstreamCall::Download).respond_with(raw_reply("application/zip", bundle("one")));
    upstream.add_finished_job("se_done");
    let host = Host::new(&upstream);
    let folder = host.path("here");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("docs.zip"), "mine").unwrap();
    let download = |options: &[&str]| {
        let arguments = [&["export", "download", "se_done"][..], options].concat();
        run_with_timeout(host.command(&arguments).current_dir(&folder))
    };
    let ended = download(&[]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("docs.zip") && ended.stderr.contains("--output"), "{}", ended.stderr);
    assert_eq!(upstream.count(UpstreamCall::Download), 0);
    assert_eq!(support::read_tree(&folder), [("docs.zip".to_owned(), b"mine".to_vec())]);
    let ended = download(&["--output", "docs.zip"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(support::read_tree(&folder), [("docs.zip".to_owned(), bundle("one"))]);
}

#[test]
fn export_download_renews_an_expired_link_and_keeps_the_old_file_if_it_fails() {
    let upstream = upstream();
    upstream.add_finished_job("se_done");
    let host = Host::new(&upstream);
    let folder = host.path("here");
    std::fs::create_dir(&folder).unwrap();
    let target = folder.join("taken.zip");
    let download = ["export", "download", "se_done", "--output", target.to_str().unwrap()];
    upstream.on(UpstreamCall::Download).times(1).respond_with(expired_link_reply());
    host.ok(&download);
    assert_eq!((upstream.count(UpstreamCall::Link), upstream.count(UpstreamCall::Download)), (2, 2));
    upstream.on(UpstreamCall::Download).respond_with(error_reply(400).body("text/plain", ""));
    host.expect_exit(4, &download);
    upstream.clear_rules();
    let host = host.set("limits.archive", "10");
    host.expect_exit(5, &download);
    assert_eq!(std::fs::read(&target).unwrap(), upstream.state().bundle);
    let names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["taken.zip"], "a failed download leaves nothing behind");
}

#[test]
fn export_status_with_wait_gives_up_after_job_timeout() {
    let upstream = upstream();
    upstream.add_finished_job("se_done");
    upstream.on(UpstreamCall::Poll).respond_with(error_reply(200).json(&json!({"status": "processing"})));
    let host = Host::new(&upstream).set("sync.jobTimeout", toml_string("2s"));
    let started = Instant::now();
    let ended = host.expect_exit(4, &["export", "status", "se_done", "--wait"]);
    assert!(started.elapsed() < Duration::from_secs(20) && ended.stderr.contains("processing"), "{}", ended.stderr);
}

#[test]
fn export_commands_print_json() {
    let upstream = upstream();
    let host = Host::new(&upstream);
    let start = host.ok(&["export", "start", "--json"]).json();
    assert_eq!(start["jobId"], "se_0000000000000001", "{start}");
    let status = host.ok(&["export", "status", "se_0000000000000001", "--wait", "--json"]).json();
    assert_eq!(status["job"]["status"], "completed", "{status}");
    let link = host.ok(&["export", "link", "se_0000000000000001", "--json"]).json();
    assert!(link["bundleUrl"].as_str().unwrap().contains(SIGNATURE), "{link}");
    let size = upstream.state().representation().len();
    assert_eq!((&link["sizeBytes"], link["expiresAt"].is_string()), (&size.into(), true), "{link}");
    let target = host.path("taken");
    let report =
        host.ok(&["export", "download", "se_0000000000000001", "--output", target.to_str().unwrap(), "--json"]).json();
    let size = std::fs::metadata(&target).unwrap().len();
    assert_eq!((&report["bytes"], report["file"].as_str()), (&size.into(), target.to_str()), "{report}");
    assert!(!report.to_string().contains(SIGNATURE), "{report}");
    assert_eq!(std::fs::read(target).unwrap(), upstream.state().bundle);
}

#[test]
fn export_start_can_tag_a_version() {
    let upstream = upstream();
    let host = Host::new(&upstream);
    host.ok(&["export", "start", "--version", "2026-08"]);
    assert_eq!(upstream.calls(UpstreamCall::Start)[0].json()["version"], "2026-08");
    host.ok(&["export", "start"]);
    assert_eq!(upstream.calls(UpstreamCall::Start)[1].json().get("version"), None);
    // By default, it is the pinned label.
    let host = host.set("staticExport.version", toml_string("2026-09"));
    host.ok(&["export", "start"]);
    host.ok(&["export", "start", "--version", "2026-10"]);
    let starts = upstream.calls(UpstreamCall::Start);
    assert_eq!((&starts[2].json()["version"], &starts[3].json()["version"]), (&"2026-09".into(), &"2026-10".into()));
    let output = host.expect_exit(2, &["export", "start", "--version", ""]);
    assert!(output.stderr.contains("--version: a label has 1 to 200 characters"), "{}", output.stderr);
    assert_eq!(upstream.count(UpstreamCall::Start), 4);
}

#[test]
fn export_commands_exit_with_the_code_of_their_failure() {
    let upstream = upstream();
    let host = Host::new(&upstream);
    let ended = host.expect_exit(4, &["export", "status", "se_unknown"]);
    assert!(ended.stderr.contains("se_unknown"), "{}", ended.stderr);
    host.expect_exit(4, &["export", "link", "se_unknown"]);
    upstream.statuses(&[json!("running"), json!({"status": "failed", "error": "no pages"})]);
    host.ok(&["export", "start"]);
    let ended = host.expect_exit(6, &["export", "status", "se_0000000000000001", "--wait"]);
    assert!(ended.stderr.contains("no pages"), "{}", ended.stderr);
    // Also for a script that does not wait; the state is printed, and no second document.
    let ended = host.expect_exit(6, &["export", "status", "se_0000000000000001", "--json"]);
    assert_eq!(ended.json()["job"]["status"], "failed", "{}", ended.stdout);
    assert_eq!(ended.json()["jobId"], "se_0000000000000001", "{}", ended.stdout);
    upstream.on(UpstreamCall::Start).respond_with(error_reply(403));
    host.expect_exit(3, &["export", "start"]);
    upstream.clear_rules();
    upstream.on(UpstreamCall::Start).respond_with(error_reply(400));
    host.expect_exit(2, &["export", "start"]);
}

#[test]
fn export_commands_work_while_syncing_is_disabled() {
    let upstream = upstream();
    let host = Host::new(&upstream).set("staticExport.enabled", "false");
    assert_eq!(host.sync(), "disabled");
    assert_eq!(upstream.connections(), 0);
    host.ok(&["export", "start"]);
    assert_eq!(upstream.count(UpstreamCall::Start), 1);
}

#[test]
fn export_download_into_a_missing_folder_is_exit_code_8() {
    let upstream = upstream();
    upstream.add_finished_job("se_done");
    let host = Host::new(&upstream);
    let ended = host.expect_exit(8, &["export", "download", "se_done", "--output", "/no/such/folder/file"]);
    assert!(ended.stderr.contains("/no/such/folder"), "{}", ended.stderr);
}

#[test]
fn export_and_sync_print_their_help() {
    for arguments in [&["export", "--help"][..], &["export", "start", "--help"], &["sync", "--help"]] {
        assert!(!run_to_end(docwharf().args(arguments)).expect(0).stdout.is_empty());
    }
}
