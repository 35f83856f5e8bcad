//! What `sync` and `export` ask of the management API, what they make of its answers, and how they end.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::host::{Host, at_once, bundle, finish, judged, text};
use support::upstream::{
    Call, DOMAIN, KEY, Reply, SIGNATURE, Upstream, answer, close, honest, http_date, raw, redirect, silence,
};
use support::{docwharf, end, folder};

const CALLS: [Call; 3] = [Call::Start, Call::Poll, Call::Bundle];

fn upstream() -> Upstream {
    Upstream::new(bundle("one"))
}

/// A 200 with JSON.
fn object(body: &Value) -> Reply {
    raw("application/json", body.to_string())
}

// The honest course of things.

#[test]
fn a_sync_starts_a_job_polls_it_asks_for_the_link_and_activates_what_is_behind_it() {
    let upstream = upstream();
    let host = Host::new(&upstream);
    let ended = host.ok(&["sync"]);
    assert!(ended.stdout.starts_with("activated "), "{ended:?}");
    assert_eq!(ended.stderr, "");
    let said: Vec<Call> = upstream.log().iter().map(|request| request.call).collect();
    assert_eq!(said, [Call::Start, Call::Poll, Call::Poll, Call::Poll, Call::Bundle, Call::Download]);
    let start = &upstream.calls(Call::Start)[0];
    assert_eq!(start.json()["domain"], DOMAIN);
    let kind = start.header("content-type").unwrap();
    assert!(kind.starts_with("application/json"), "{kind}");
    for request in upstream.log().iter().filter(|request| request.call != Call::Download) {
        assert_eq!(request.header("authorization"), Some(&*format!("Bearer {KEY}")));
        assert!(request.target.starts_with("/v1/static-export/jobs"), "{}", request.target);
    }
    assert_eq!(host.status()["job"], Value::Null, "a job that gave its bundle is forgotten");
    assert_eq!(host.last(), "activated");
    host.assert_tidy();
}

#[test]
fn the_bundle_call_has_neither_body_nor_content_type() {
    let upstream = upstream();
    Host::new(&upstream).ok(&["sync"]);
    let request = &upstream.calls(Call::Bundle)[0];
    assert!(request.body.is_empty());
    assert_eq!(request.header("content-type"), None, "{request:?}");
    assert_eq!(request.header("transfer-encoding"), None, "{request:?}");
    assert!(matches!(request.header("content-length"), None | Some("0")), "{request:?}");
}

#[test]
fn the_same_content_again_is_already_current_though_each_sync_asks_for_a_job() {
    let upstream = upstream();
    let host = Host::new(&upstream);
    assert_eq!(host.sync(), "activated");
    let ended = host.ok(&["sync"]);
    assert!(ended.stdout.starts_with("already current: "), "{ended:?}");
    assert_eq!(host.sync(), "already current");
    assert_eq!(upstream.count(Call::Start), 3, "{}", upstream.story());
    upstream.publish(bundle("two"));
    let ended = host.ok(&["sync", "--json"]);
    assert_eq!(ended.json()["result"], "activated");
    assert_eq!(ended.json()["version"].as_str(), host.active().as_deref());
}

#[test]
fn a_trailing_slash_in_the_base_url_is_fine() {
    let upstream = upstream();
    let host = Host::new(&upstream).set("api.baseUrl", text(&format!("{}/", upstream.base())));
    host.ok(&["sync"]);
    assert_eq!(upstream.count(Call::Start), 1);
    assert_eq!(upstream.count(Call::Other), 0, "{}", upstream.story());
}

// C1: what an answer must hold, and what it need not.

#[test]
fn any_2xx_with_a_json_object_counts() {
    let mut cases = Vec::new();
    for call in CALLS {
        for status in [200, 201, 202, 203, 206, 299] {
            cases.push((call, status));
        }
    }
    at_once(&cases, |&(call, status)| {
        let upstream = upstream();
        upstream.on(call).gives(honest().status(status));
        let host = Host::new(&upstream);
        assert_eq!(host.sync(), "activated", "{call:?} {status}");
        assert_eq!(upstream.count(Call::Start), 1, "{call:?} {status}");
    });
}

#[test]
fn json_counts_whatever_its_content_type_says() {
    let cases = ["text/plain", "application/octet-stream", "text/html; charset=utf-8", "nonsense", ""];
    at_once(&cases, |kind| {
        let upstream = upstream();
        for call in CALLS {
            let reply = honest();
            upstream.on(call).gives(match *kind {
                "" => reply.without("Content-Type"),
                kind => reply.header("Content-Type", kind),
            });
        }
        assert_eq!(Host::new(&upstream).sync(), "activated", "{kind:?}");
        assert_eq!(upstream.count(Call::Start), 1, "{kind:?}");
    });
}

#[test]
fn optional_fields_may_be_missing_or_of_any_type() {
    let odd = [Value::Null, json!("10"), json!("soon"), json!(-1.5e300), json!([]), json!({"a": {}}), json!(true)];
    at_once(&odd, |odd| {
        let upstream = upstream();
        upstream.on(Call::Start).gives(object(&json!({
            "jobId": "se_odd", "status": odd, "progress": odd, "pageCount": odd, "createdAt": odd, "updatedAt": odd,
            "error": odd, "aNewField": odd,
        })));
        upstream.finished_job("se_odd");
        upstream.statuses(&[
            json!({"status": "running", "jobId": odd, "progress": odd, "pageCount": odd, "error": odd, "new": odd}),
            json!({"status": "completed", "jobId": odd, "progress": odd, "pageCount": odd, "error": odd}),
        ]);
        {
            let mut plan = upstream.plan();
            plan.expires_at = Some(odd.clone());
            plan.size_bytes = Some(odd.clone());
        }
        assert_eq!(Host::new(&upstream).sync(), "activated", "{odd}");
        assert_eq!(upstream.count(Call::Start), 1, "{odd}");
    });
    let upstream = upstream();
    upstream.on(Call::Start).gives(object(&json!({"jobId": "x"})));
    upstream.finished_job("x");
    upstream.statuses(&[json!({"status": "completed"})]);
    let link = upstream.link();
    upstream.on(Call::Bundle).gives(object(&json!({"bundleUrl": link})));
    assert_eq!(Host::new(&upstream).sync(), "activated");
}

#[test]
fn an_answer_without_its_one_field_is_no_answer_and_is_asked_for_again() {
    let mut cases = Vec::new();
    for (call, field) in [(Call::Start, "jobId"), (Call::Poll, "status"), (Call::Bundle, "bundleUrl")] {
        for value in [json!(""), json!(null), json!(7), json!(["x"])] {
            cases.push((call, json!({field: value})));
        }
        cases.push((call, json!({})));
    }
    at_once(&cases, |(call, body)| {
        let upstream = upstream();
        upstream.on(*call).times(1).gives(object(body));
        assert_eq!(Host::new(&upstream).sync(), "activated", "{call:?} {body}");
        assert_eq!(upstream.count(Call::Bundle), if *call == Call::Bundle { 2 } else { 1 }, "{call:?} {body}");
    });
}

#[test]
fn what_is_not_needed_is_not_judged() {
    let bodies = [
        r#"{"jobId": "x", "progress": 1e999, "pageCount": -1e999}"#.to_owned(),
        r#"{"jobId": "x", "error": "cut in the middle of a character \ud83d"}"#.to_owned(),
        format!(r#"{{"jobId": "x", "deep": {}1{}}}"#, "[".repeat(400), "]".repeat(400)),
        "\n\n {\"jobId\":\"x\",\"jobs\":[]} \r\n".to_owned(),
    ];
    at_once(&bodies, |body| {
        let upstream = upstream();
        upstream.finished_job("x");
        upstream.on(Call::Start).gives(raw("application/json", body));
        assert_eq!(Host::new(&upstream).sync(), "activated", "{body:.60}");
        assert_eq!(upstream.count(Call::Start), 1, "{body:.60}");
    });
}

#[test]
fn an_answer_without_a_length_counts() {
    let upstream = upstream();
    for call in CALLS {
        upstream.on(call).gives(honest().without("Content-Length"));
    }
    assert_eq!(Host::new(&upstream).sync(), "activated");
    assert_eq!(upstream.count(Call::Start), 1);
}

#[test]
fn odd_ids_and_keys_are_no_panic() {
    let upstream = upstream();
    upstream.plan().job_ids.push_back("x".repeat(900_000));
    let ended = finish(&mut Host::new(&upstream).command(&["sync"]));
    assert!(matches!(ended.code, Some(1..=8)), "{:?}", ended.code);
    let own = ended.stderr.lines().find(|line| line.starts_with("docwharf: cannot")).unwrap();
    assert!(own.chars().count() < 1000, "{} characters", own.chars().count());
    for key in ["dwk_ü", "dwk 1", "🔑", "\u{85}", "dwk_\u{2028}x"] {
        let upstream = Upstream::new(bundle("one"));
        let host = Host::new(&upstream);
        host.put("key", key);
        let ended = finish(&mut host.command(&["sync"]));
        assert!(matches!(ended.code, Some(2 | 3)), "{key:?}: {ended:?}");
        assert!(!ended.stderr.contains(key), "{key:?}: {ended:?}");
    }
}

// C2: the end of a job.

#[test]
fn completed_and_failed_alone_end_a_job() {
    let upstream = upstream();
    let odd = ["queued", "running", "warming-up", "cancelled", "error", "Completed", "FAILED", "success", "done", "🚢"];
    let mut statuses: Vec<Value> = odd.iter().map(|status| json!(status)).collect();
    statuses.push(json!("completed"));
    upstream.statuses(&statuses);
    assert_eq!(Host::new(&upstream).sync(), "activated");
    assert_eq!(upstream.count(Call::Poll), statuses.len());
    assert_eq!((upstream.count(Call::Start), upstream.count(Call::Bundle)), (1, 1));
}

#[test]
fn a_failed_job_is_exit_6_with_its_error_and_nothing_more_is_asked() {
    let cases = [
        (json!({"status": "failed", "error": "page guides/tide.mdx does not parse"}), "guides/tide.mdx"),
        (json!({"status": "failed", "error": null}), ""),
        (json!({"status": "failed"}), ""),
        (json!({"status": "failed", "error": {"code": 7}}), ""),
        (json!({"status": "failed", "error": "bell\u{7} and \u{1b}[31mcolour\nand a line"}), "bell"),
        (json!({"status": "failed", "error": "x".repeat(100_000)}), "xxx"),
    ];
    at_once(&cases, |(last, words)| {
        let upstream = upstream();
        upstream.statuses(&[json!("running"), last.clone()]);
        let host = Host::new(&upstream);
        let ended = host.ends(6, &["sync"]);
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
        assert_eq!(upstream.count(Call::Poll), 2);
        assert_eq!(upstream.count(Call::Bundle) + upstream.count(Call::Download), 0);
        assert_eq!(host.job(), None, "a job that failed is forgotten");
        upstream.statuses(&[json!("completed")]);
        assert_eq!(host.sync(), "activated");
        assert_eq!(upstream.count(Call::Start), 2);
    });
}

#[test]
fn a_job_that_never_ends_is_given_up_at_a_deadline_of_our_own() {
    let upstream = upstream();
    upstream.statuses(&[json!("running")]);
    let host = Host::new(&upstream).set("sync.jobTimeout", text("1s"));
    let begun = Instant::now();
    let ended = host.ends(4, &["sync"]);
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(ended.stderr.contains("se_0000000000000001"), "which job: {}", ended.stderr);
    assert_eq!(upstream.count(Call::Start), 1);
    assert_eq!(host.job(), None, "it is forgotten after jobTimeout");
}

// C3: final answers.

#[test]
fn refusals_are_final_at_once_with_the_words_of_the_upstream() {
    let mut cases = Vec::new();
    for call in CALLS {
        for (status, code) in [(400, 2), (401, 3), (403, 3)] {
            cases.push((call, status, code));
        }
    }
    at_once(&cases, |&(call, status, code)| {
        let upstream = upstream();
        upstream.on(call).gives(answer(status).json(&json!({
            "error": "Static export needs the Enterprise plan",
            "details": [{"message": "ask sales"}, {"message": "or an admin"}],
        })));
        let host = Host::new(&upstream);
        let begun = Instant::now();
        let ended = host.ends(code, &["sync"]);
        assert!(begun.elapsed() < Duration::from_secs(10), "final means at once");
        for words in ["Static export needs the Enterprise plan", "ask sales", "or an admin", &status.to_string()] {
            assert!(ended.stderr.contains(words), "{call:?} {status}: {words:?} is missing: {}", ended.stderr);
        }
        assert_eq!(upstream.count(call), 1, "{call:?} {status}");
        assert_eq!(host.last(), "failed");
    });
}

#[test]
fn an_error_that_is_no_json_is_quoted_by_its_first_characters() {
    let page = format!("<html><body><h1>Forbidden by the gateway</h1>{}</body></html>", "lorem ipsum ".repeat(200_000));
    let cases: Vec<(Reply, &[&str])> = vec![
        (answer(403).body("text/html", &page), &["403", "Forbidden by the gateway"]),
        (answer(403).body("text/plain", ""), &["403"]),
        (answer(403).body("text/plain", b"\xff\xfe\0binary\x1b[2J"), &["403", "binary"]),
        (answer(403).body("application/json", "{\"error\": "), &["403"]),
        (answer(403).json(&json!({"error": ["odd"], "details": "odd too"})), &["403"]),
        (
            answer(403).json(&json!({"error": "no", "details": [7, {"message": null}, {"message": "yes"}]})),
            &["no", "yes"],
        ),
        (answer(403).json(&json!("just a text")), &["403", "just a text"]),
        (answer(403).json(&json!({"error": "e".repeat(1_000_000)})), &["403", "eee"]),
        (answer(403).json(&json!({"error": "two\nlines \u{1b}[31m"})), &["two", "lines"]),
    ];
    at_once(&cases, |(reply, words)| {
        let upstream = upstream();
        upstream.on(Call::Start).gives(reply.clone());
        let ended = Host::new(&upstream).ends(3, &["sync"]);
        for word in *words {
            assert!(ended.stderr.contains(word), "{word:?} is missing: {}", ended.stderr);
        }
        assert!(!ended.stderr.contains("at line"), "a parser's words are no message: {}", ended.stderr);
        assert!(!ended.stderr.contains(&"lorem ipsum ".repeat(30)), "200 characters are enough: {}", ended.stderr);
        assert_eq!(upstream.count(Call::Start), 1);
    });
}

#[test]
fn an_unknown_route_is_exit_4_and_asked_for_once() {
    let upstream = upstream();
    let host = Host::new(&upstream).set("api.baseUrl", text(&format!("{}/elsewhere/v1", upstream.api())));
    let ended = host.ends(4, &["sync"]);
    assert!(ended.stderr.contains("404"), "{}", ended.stderr);
    assert_eq!(upstream.log().len(), 1, "{}", upstream.story());
}

// C4: what is tried again, how often, and when.

#[test]
fn one_bad_answer_to_any_call_is_survived() {
    type Make = fn() -> Reply;
    let faults: [(&str, Make); 12] = [
        ("503", || answer(503)),
        ("500 with HTML", || answer(500).body("text/html", "<h1>Oops</h1>")),
        ("502 without a body", || answer(502).body("text/plain", "")),
        ("504", || answer(504)),
        ("429", || answer(429)),
        ("429 with an odd Retry-After", || answer(429).header("Retry-After", "in a while, -5")),
        ("closed", close),
        ("cut head", || honest().cut(0)),
        ("cut body", || honest().cut(7)),
        ("HTML", || raw("text/html", "<html>Please log in</html>")),
        ("nothing", || raw("application/json", "")),
        ("no object", || raw("application/json", "[\"jobId\", \"status\", \"bundleUrl\"]")),
    ];
    let mut cases: Vec<(Call, &str, Make)> = Vec::new();
    for call in CALLS {
        cases.extend(faults.iter().map(|&(name, make)| (call, name, make)));
    }
    cases.push((Call::Bundle, "409", || answer(409)));
    at_once(&cases, |&(call, name, make)| {
        let upstream = upstream();
        upstream.on(call).times(1).gives(make());
        assert_eq!(Host::new(&upstream).sync(), "activated", "{call:?} {name}");
        let starts = if call == Call::Start { 2 } else { 1 };
        assert_eq!(upstream.count(Call::Start), starts, "{call:?} {name}: {}", upstream.story());
        let bundles = if call == Call::Bundle { 2 } else { 1 };
        assert_eq!(upstream.count(Call::Bundle), bundles, "{call:?} {name}: {}", upstream.story());
    });
}

#[test]
fn silence_is_a_failed_attempt_and_not_for_ever() {
    at_once(&CALLS, |&call| {
        let upstream = upstream();
        upstream.on(call).times(1).gives(silence());
        let host = Host::new(&upstream).set("network.callTimeout", text("1s"));
        assert_eq!(host.sync(), "activated", "{call:?}");
        assert_eq!(upstream.count(Call::Start), if call == Call::Start { 2 } else { 1 }, "{call:?}");
    });
    // An answer that comes in drops has a time, too.
    let upstream = Upstream::new(bundle("one"));
    upstream.on(Call::Poll).times(1).gives(honest().trickle(100, Duration::from_millis(250)));
    let begun = Instant::now();
    assert_eq!(Host::new(&upstream).set("network.callTimeout", text("1s")).sync(), "activated");
    assert!(begun.elapsed() < Duration::from_secs(10), "every drop was waited for");
    // A body that never ends is silence.
    at_once(&CALLS, |&call| {
        let upstream = Upstream::new(bundle("one"));
        upstream.on(call).times(1).gives(honest().stall(3));
        let host = Host::new(&upstream).set("network.callTimeout", text("1s"));
        assert_eq!(host.sync(), "activated", "{call:?}");
    });
}

/// The pauses between requests of one kind, in seconds.
fn pauses(upstream: &Upstream, call: Call) -> Vec<f64> {
    let times: Vec<Instant> = upstream.calls(call).iter().map(|request| request.at).collect();
    times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect()
}

#[test]
fn five_attempts_a_call_and_three_where_a_job_may_have_started_unseen() {
    type Make = fn() -> Reply;
    let cases: [(Call, &str, Make, usize); 13] = [
        (Call::Start, "503", || answer(503), 5),
        (Call::Start, "429", || answer(429), 5),
        (Call::Start, "503, cut", || answer(503).cut(5), 3),
        (Call::Start, "closed", close, 3),
        (Call::Start, "silence", silence, 3),
        (Call::Start, "HTML", || raw("text/html", "<html>"), 3),
        (Call::Start, "no id", || object(&json!({"status": "queued"})), 3),
        (Call::Poll, "503", || answer(503), 5),
        (Call::Poll, "503, cut", || answer(503).cut(5), 5),
        (Call::Poll, "HTML", || raw("text/html", "<html>"), 5),
        (Call::Bundle, "409", || answer(409), 5),
        (Call::Bundle, "closed", close, 5),
        (Call::Download, "503", || answer(503), 5),
    ];
    at_once(&cases, |&(call, name, make, attempts)| {
        let upstream = upstream();
        upstream.on(call).gives(make());
        // Only silence is waited for; on a busy machine an answer may take a while.
        let host = Host::new(&upstream).set("network.callTimeout", text(if name == "silence" { "1s" } else { "20s" }));
        let ended = host.ends(4, &["sync"]);
        assert_eq!(upstream.count(call), attempts, "{call:?} {name}: {}", upstream.story());
        assert!(!ended.stderr.contains("expected value"), "{}", ended.stderr);
        // 1, 2, 4, 8 s, never less than half. A request is noted when it has arrived, which may be a little late.
        for (pause, least) in pauses(&upstream, call).iter().zip([0.5, 1.0, 2.0, 4.0]) {
            assert!(*pause > least - 0.05, "{call:?} {name}: {:?}", pauses(&upstream, call));
        }
        if call != Call::Start {
            assert_eq!(upstream.count(Call::Start), 1, "no second job: {}", upstream.story());
            // A download that fails is no reason to forget the job, nor is a poll.
            assert!(host.job().is_some(), "{call:?} {name}");
        }
    });
}

#[test]
fn no_more_of_an_endless_answer_is_taken_than_an_answer_may_have() {
    let verbs: [(Call, &[&str], usize, &str); 4] = [
        (Call::Start, &["export", "start"], 1, "the answer is over 1 MiB"),
        (Call::Poll, &["export", "status", "se_done"], 1, "the answer is over 1 MiB"),
        // What may hold a link is not spoken of in detail.
        (Call::Bundle, &["export", "link", "se_done"], 1, "the answer is no JSON object that can be read"),
        (Call::Deployment, &["preview", "status", "dep_1"], 16, "the answer is over 16 MiB"),
    ];
    at_once(&verbs, |(call, verb, most, says)| {
        let upstream = upstream();
        upstream.finished_job("se_done");
        upstream.on(*call).gives(raw("application/json", "{\"data\": {").without("Content-Length").zeros(256 << 20));
        let host = Host::new(&upstream).set("api.projectId", text("prj_1"));
        let ended = host.ends(4, verb);
        assert!(ended.stderr.contains(says), "{call:?}: {}", ended.stderr);
        // What buffers on the way hold comes on top, at each attempt.
        let most = upstream.count(*call) * ((most + 16) << 20);
        assert!(upstream.sent() < most, "{call:?}: {} bytes", upstream.sent());
    });
}

#[test]
fn pauses_are_random() {
    let gaps = std::sync::Mutex::new(Vec::new());
    at_once(&[0; 8], |_| {
        let upstream = upstream();
        upstream.on(Call::Start).times(1).gives(answer(503));
        Host::new(&upstream).ok(&["sync"]);
        gaps.lock().unwrap().extend(pauses(&upstream, Call::Start));
    });
    let gaps = gaps.into_inner().unwrap();
    let (least, most) = gaps.iter().fold((f64::MAX, f64::MIN), |(l, m), gap| (l.min(*gap), m.max(*gap)));
    assert!(most - least > 0.03, "eight clients in step: {gaps:?}");
}

#[test]
fn a_poll_counts_anew_after_each_good_answer() {
    let upstream = upstream();
    upstream.statuses(&["queued", "a", "b", "c", "d", "e", "completed"].map(Value::from));
    for _ in 0..6 {
        upstream.on(Call::Poll).times(1).gives(answer(503));
        upstream.on(Call::Poll).times(1).gives(honest());
    }
    assert_eq!(Host::new(&upstream).sync(), "activated");
    assert_eq!(upstream.count(Call::Poll), 13, "{}", upstream.story());
    assert_eq!(upstream.count(Call::Start), 1);
}

#[test]
fn a_refused_connection_is_waited_for() {
    let upstream = Upstream::closed(bundle("one"));
    let host = Host::new(&upstream);
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| host.sync());
        // Not to synchronise: the first attempt should find the door shut, and the test is right if it does not.
        std::thread::sleep(Duration::from_millis(300));
        upstream.open();
        assert_eq!(sync.join().unwrap(), "activated");
    });
    assert_eq!(upstream.count(Call::Start), 1);
}

#[test]
fn an_unreachable_upstream_is_exit_4_and_says_where_it_is() {
    let shut = Upstream::closed(bundle("one"));
    // Connections that are neither taken nor refused: the queue of this listener is full.
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    let _kept: Vec<_> = (0..3)
        .map(|_| std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)))
        .take_while(Result::is_ok)
        .collect();
    let bases = [shut.base(), format!("http://{address}/v1"), "http://docs.invalid/v1".to_owned()];
    at_once(&bases, |base| {
        let host = Host::new(&shut).set("api.baseUrl", text(base)).set("network.connectTimeout", text("300ms"));
        let ended = host.ends(4, &["sync"]);
        let authority = base.split('/').nth(2).unwrap();
        assert!(ended.stderr.contains(authority), "{base}: {}", ended.stderr);
    });
}

#[test]
fn retry_after_is_a_lower_bound() {
    let cases =
        [(Call::Start, "2".to_owned(), 2.0), (Call::Poll, "2".to_owned(), 2.0), (Call::Download, "2".into(), 2.0)];
    at_once(&cases, |(call, value, least)| {
        let upstream = upstream();
        upstream.on(*call).times(1).gives(answer(503).header("Retry-After", value));
        assert_eq!(Host::new(&upstream).sync(), "activated");
        let pause = pauses(&upstream, *call)[0];
        assert!(pause > least - 0.05, "{call:?}: {pause}");
    });
    // A date has no fractions, so that three seconds may be two.
    let upstream = upstream();
    upstream.on(Call::Start).times(1).gives(answer(429).header("Retry-After", http_date(3)));
    assert_eq!(Host::new(&upstream).sync(), "activated");
    assert!(pauses(&upstream, Call::Start)[0] > 1.9, "{:?}", pauses(&upstream, Call::Start));
}

#[test]
fn a_retry_after_beyond_patience_ends_the_sync_at_once_and_names_the_time() {
    let cases = [
        (Call::Start, 429, "3600".to_owned()),
        (Call::Poll, 503, "61".to_owned()),
        (Call::Bundle, 429, http_date(7200)),
        (Call::Download, 503, "600".to_owned()),
        (Call::Start, 503, "99999999999999999999".to_owned()),
        (Call::Start, 503, http_date(3_000_000_000)),
    ];
    at_once(&cases, |(call, status, value)| {
        let upstream = upstream();
        upstream.on(*call).gives(answer(*status).header("Retry-After", value));
        let host = Host::new(&upstream);
        let begun = Instant::now();
        let ended = host.ends(4, &["sync"]);
        assert!(begun.elapsed() < Duration::from_secs(10), "{value}");
        assert_eq!(upstream.count(*call), 1, "{call:?} {value}");
        let places =
            [status.to_string(), upstream.api(), upstream.bucket(), "se_0000000000000001".to_owned(), "/v1".to_owned()];
        let told = places.iter().fold(ended.stderr.clone(), |told, place| told.replace(place, ""));
        let told = told.replace("se0000000000000001", "");
        assert!(told.contains(|c: char| c.is_ascii_digit()), "the time: {}", ended.stderr);
    });
}

// C5: jobs.

#[test]
fn a_vanished_job_ends_this_sync_and_the_next_starts_its_own() {
    at_once(&[Call::Poll, Call::Bundle], |&call| {
        let upstream = upstream();
        upstream.on(call).times(1).gives(answer(404).json(&json!({"error": "no such job"})));
        let host = Host::new(&upstream);
        let ended = host.ends(4, &["sync"]);
        assert!(ended.stderr.contains("se_0000000000000001"), "{}", ended.stderr);
        assert_eq!((upstream.count(Call::Start), upstream.count(call)), (1, 1), "{}", upstream.story());
        assert_eq!(host.job(), None);
        assert_eq!(host.sync(), "activated");
        assert_eq!(upstream.count(Call::Start), 2);
    });
}

#[test]
fn a_job_left_behind_is_waited_for_and_then_another_is_started_because_content_of_now_is_wanted() {
    let upstream = upstream();
    upstream.on(Call::Poll).times(1).gives(answer(401));
    let host = Host::new(&upstream);
    host.ends(3, &["sync"]);
    assert_eq!(host.job().as_deref(), Some("se_0000000000000001"));
    assert_eq!(host.sync(), "activated");
    let told: Vec<(Call, Option<String>)> = upstream.log().iter().skip(2).map(|r| (r.call, r.job())).collect();
    let own = told.iter().position(|(call, _)| *call == Call::Start).expect("a job of its own");
    assert!(own >= 3, "the old job was not waited for: {}", upstream.story());
    assert!(told[..own].iter().all(|(call, job)| *call == Call::Poll && job.as_deref() == Some("se_0000000000000001")));
    assert!(
        told[own + 1..]
            .iter()
            .all(|(call, job)| *call == Call::Download || job.as_deref() != Some("se_0000000000000001"))
    );
    assert_eq!(upstream.count(Call::Start), 2);
}

#[test]
fn a_job_left_behind_that_is_gone_or_failed_does_not_hinder_the_next_sync() {
    let gone: [fn(&Upstream); 2] = [Upstream::forget_jobs, |upstream| {
        upstream.on(Call::Poll).times(1).gives(object(&json!({"status": "failed"})));
    }];
    at_once(&gone, |go| {
        let upstream = upstream();
        upstream.on(Call::Poll).times(1).gives(answer(403));
        let host = Host::new(&upstream);
        host.ends(3, &["sync"]);
        assert!(host.job().is_some());
        go(&upstream);
        assert_eq!(host.sync(), "activated");
        assert_eq!(upstream.count(Call::Start), 2, "{}", upstream.story());
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
    at_once(&ids, |id| {
        let upstream = upstream();
        upstream.plan().job_ids.push_back((*id).to_owned());
        assert_eq!(Host::new(&upstream).sync(), "activated", "{id:?}: {}", upstream.story());
        for request in upstream.calls(Call::Poll).iter().chain(&upstream.calls(Call::Bundle)) {
            assert_eq!(request.job().as_deref(), Some(*id), "{}", request.target);
        }
        assert_eq!(upstream.count(Call::Other), 0, "{id:?}: {}", upstream.story());
    });
    // What no client can send as a segment leads nowhere else, either.
    for id in ["..", "."] {
        let upstream = upstream();
        upstream.plan().job_ids.push_back(id.to_owned());
        let _ = finish(&mut Host::new(&upstream).command(&["sync"]));
        for request in upstream.log() {
            let path = request.target.split('?').next().unwrap();
            assert!(path.starts_with("/v1/static-export/jobs"), "{id:?} led to {}", request.target);
        }
    }
}

// C6 and the key.

#[test]
fn the_key_is_trimmed() {
    let upstream = upstream();
    let host = Host::new(&upstream);
    host.put("key", format!(" \t{KEY}\r\n\n"));
    host.ok(&["sync"]);
    assert_eq!(upstream.calls(Call::Start)[0].header("authorization"), Some(&*format!("Bearer {KEY}")));
}

#[test]
fn the_key_comes_from_its_file_else_the_environment_else_the_credentials_folder() {
    let upstream = upstream();
    let host = Host::new(&upstream);
    let credentials = folder();
    std::fs::write(credentials.path().join("api-key"), "from-credentials\n").unwrap();
    let sent = |host: &Host, environment: Option<&str>| {
        let mut command = host.command(&["sync"]);
        command.env("CREDENTIALS_DIRECTORY", credentials.path());
        if let Some(key) = environment {
            command.env("DOCWHARF_API_KEY", key);
        }
        let _ = finish(&mut command);
        upstream.calls(Call::Start).last().unwrap().header("authorization").unwrap().to_owned()
    };
    assert_eq!(sent(&host, Some("from-environment")), format!("Bearer {KEY}"));
    let host = host.without("api.keyFile");
    assert_eq!(sent(&host, Some(" from-environment\n")), "Bearer from-environment");
    assert_eq!(sent(&host, Some(" \n")), "Bearer from-credentials", "a blank variable is none");
    assert_eq!(sent(&host, None), "Bearer from-credentials");
}

#[test]
fn a_key_with_control_characters_inside_is_a_mistake_before_any_request() {
    for key in ["dwk_first\ndwk_second", "dwk_a\u{0}b", "dwk_a\rX-Evil: 1", "dwk_\u{1b}[2Jx"] {
        let upstream = upstream();
        let host = Host::new(&upstream);
        host.put("key", key);
        let ended = host.ends(2, &["sync"]);
        assert!(!ended.stderr.contains("dwk_"), "the key is in the message: {}", ended.stderr);
        assert_eq!(upstream.connections(), 0);
    }
    let upstream = upstream();
    let host = Host::new(&upstream);
    for key in ["", " \n"] {
        host.put("key", key);
        host.ends(2, &["sync"]);
    }
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn the_bearer_goes_to_the_api_and_nowhere_else() {
    let upstream = upstream();
    let elsewhere = Upstream::new(bundle("one"));
    upstream.on(Call::Download).times(1).gives(redirect(302, &elsewhere.link()));
    Host::new(&upstream).ok(&["sync"]);
    let beyond: Vec<_> = upstream.calls(Call::Download).into_iter().chain(elsewhere.log()).collect();
    assert_eq!(beyond.len(), 2);
    for request in beyond {
        let head = request.head();
        assert_eq!(request.header("authorization"), None, "{head}");
        assert!(!head.contains(KEY), "{head}");
        assert_eq!((request.header("cookie"), request.header("referer")), (None, None), "{head}");
    }
    // Nor to the API's own address, when that is where the link leads.
    upstream.plan().link_on_api = true;
    upstream.publish(bundle("two"));
    Host::new(&upstream).ok(&["sync"]);
    for request in upstream.calls(Call::Download) {
        assert_eq!(request.header("authorization"), None, "{}", request.head());
    }
}

#[test]
fn a_redirect_of_an_api_call_never_takes_the_key_elsewhere() {
    let mut cases = Vec::new();
    for call in CALLS {
        for status in [301, 302, 303, 307, 308] {
            cases.push((call, status));
        }
    }
    at_once(&cases, |&(call, status)| {
        let upstream = upstream();
        let elsewhere = upstream_elsewhere();
        upstream.on(call).gives(redirect(status, &format!("{}/v1/static-export/jobs", elsewhere.api())));
        let ended = finish(&mut Host::new(&upstream).command(&["sync"]));
        assert_ne!(ended.code, Some(0), "{call:?} {status}");
        for request in elsewhere.log() {
            assert!(!request.head().contains(KEY), "{call:?} {status}: {}", request.head());
        }
    });
}

fn upstream_elsewhere() -> Upstream {
    Upstream::new(bundle("elsewhere"))
}

#[test]
fn no_other_host_on_the_same_port_gets_the_key() {
    // localhost and 127.0.0.1 are one machine but two origins.
    let upstream = upstream();
    let other = upstream.base().replace("127.0.0.1", "localhost");
    upstream.on(Call::Start).times(1).gives(redirect(307, &format!("{other}/static-export/jobs")));
    let _ = finish(&mut Host::new(&upstream).command(&["sync"]));
    for request in upstream.log().iter().filter(|request| request.header("host").unwrap().starts_with("localhost")) {
        assert_eq!(request.header("authorization"), None, "{}", request.head());
    }
}

// C12, C13: messages, codes, mistakes.

#[test]
fn mistakes_of_configuration_are_found_before_any_request() {
    type Change = fn(Host) -> Host;
    let upstream = upstream();
    let cases: [(Change, &str); 14] = [
        (|host| host.without("api.domain"), "domain"),
        (|host| host.without("api.baseUrl"), "baseUrl"),
        (|host| host.set("api.domain", text("https://docs.example.com/")), "domain"),
        (|host| host.set("api.domain", text("")), "domain"),
        (|host| host.set("api.baseUrl", text("ftp://api.example.com/v1")), "baseUrl"),
        (|host| host.set("api.baseUrl", text("api.example.com/v1")), "baseUrl"),
        (|host| host.set("api.baseURL", text("https://api.example.com/v1")), "baseUrl"),
        (|host| host.set("api.keyFile", "7"), "keyFile"),
        (|host| host.set("network.pollFirst", text("soon")), "pollFirst"),
        (|host| host.set("network.callTimeout", text("0s")), "callTimeout"),
        (|host| host.set("network.redirects", text("many")), "redirects"),
        (|host| host.set("sync.jobTimeout", text("never")), "jobTimeout"),
        (|host| host.set("sync.schedule", text("every day")), "schedule"),
        (|host| host.set("sync.probe", "[\"file:///etc/passwd\"]"), "probe"),
    ];
    for (change, key) in cases {
        let host = change(Host::new(&upstream));
        for verb in ["sync", "run"] {
            let ended = host.ends(2, &[verb]);
            assert!(ended.stderr.contains(key), "{key}: {}", ended.stderr);
        }
        assert!(!host.path("store").exists(), "{key}");
    }
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn what_configuration_points_at_but_is_absent_ends_a_sync_with_2_and_is_named() {
    let upstream = upstream();
    for (key, value) in [("api.keyFile", "no-such-key"), ("api.caFile", "no-such-ca.pem")] {
        let host = Host::new(&upstream).set(key, text(value));
        for verb in ["sync", "run"] {
            let ended = host.ends(2, &[verb]);
            assert!(ended.stderr.contains(value), "{verb}: {}", ended.stderr);
        }
    }
    let host = Host::new(&upstream).without("api.keyFile");
    let ended = host.ends(2, &["sync"]);
    assert!(ended.stderr.contains("key"), "{}", ended.stderr);
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn no_source_at_all_is_a_mistake_unless_the_store_has_a_version() {
    let host = Host::bare();
    host.ends(2, &["sync"]);
    host.ends(2, &["run"]);
    host.put("b.zip", bundle("imported"));
    host.ok(&["import", host.path("b.zip").to_str().unwrap()]);
    let daemon = host.run();
    assert_eq!(support::host::front(&daemon), "imported");
}

#[test]
fn the_environment_overrides_the_file() {
    let upstream = upstream();
    let host =
        Host::new(&upstream).set("api.domain", text("other.example")).set("api.baseUrl", text("http://127.0.0.1:9/v1"));
    let mut command = host.command(&["sync"]);
    command.env("DOCWHARF_API__BASE_URL", upstream.base()).env("DOCWHARF_API__DOMAIN", "docs.from.environment");
    judged(0, finish(&mut command));
    assert_eq!(upstream.calls(Call::Start)[0].json()["domain"], "docs.from.environment");
    let mut command = host.command(&["sync"]);
    judged(2, finish(command.env("DOCWHARF_API__BASE_URI", upstream.base())));
}

// The verbs a person types.

#[test]
fn export_verbs_give_their_one_datum_on_stdout() {
    let upstream = upstream();
    let host = Host::new(&upstream);
    let job = host.ok(&["export", "start"]).stdout.trim_end().to_owned();
    assert_eq!(job, "se_0000000000000001");
    assert_eq!(upstream.calls(Call::Start)[0].json()["domain"], DOMAIN);
    assert!(host.ok(&["export", "status", &job]).stdout.contains("queued"));
    assert!(host.ok(&["export", "status", &job, "--wait"]).stdout.contains("completed"));
    let link = host.ok(&["export", "link", &job]).stdout;
    assert_eq!(link.lines().count(), 1);
    assert!(link.starts_with(&upstream.bucket()) && link.contains(SIGNATURE), "{link}");
    let target = host.path("taken.tar.gz");
    host.ok(&["export", "download", &job, "--output", target.to_str().unwrap()]);
    assert_eq!(std::fs::read(&target).unwrap(), upstream.plan().bundle);
    assert_eq!(upstream.count(Call::Start), 1);
    assert!(!host.path("store").exists() || host.active().is_none(), "verbs activate nothing");
}

#[test]
fn a_download_is_named_after_its_link_unless_that_names_a_hidden_file_or_no_file() {
    let names = [
        ("docs-2.tar.gz", "docs-2.tar.gz"),
        (".bashrc", "bundle"),
        ("", "bundle"),
        ("a%2F..%2Fb", "bundle"),
        ("a%00b", "bundle"),
        ("a b", "bundle"),
    ];
    for (last, name) in names {
        let upstream = upstream();
        let bucket = upstream.bucket();
        let link = format!("{bucket}/exports/{last}?signature=geheim");
        upstream.on(Call::Bundle).gives(object(&json!({"bundleUrl": link})));
        upstream.on(Call::Download).gives(raw("application/zip", bundle("one")));
        upstream.finished_job("se_done");
        let host = Host::new(&upstream);
        let folder = host.path("here");
        std::fs::create_dir(&folder).unwrap();
        finish(host.command(&["export", "download", "se_done"]).current_dir(&folder));
        let found: Vec<_> = support::read_tree(&folder).into_iter().map(|(name, _)| name).collect();
        assert_eq!(found, [name], "{last:?}");
    }
}

#[test]
fn a_file_is_replaced_by_a_download_only_if_it_is_named() {
    let upstream = upstream();
    let link = format!("{}/exports/docs.zip?signature=geheim", upstream.bucket());
    upstream.on(Call::Bundle).gives(object(&json!({"bundleUrl": link})));
    upstream.on(Call::Download).gives(raw("application/zip", bundle("one")));
    upstream.finished_job("se_done");
    let host = Host::new(&upstream);
    let folder = host.path("here");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("docs.zip"), "mine").unwrap();
    let download = |more: &[&str]| {
        let arguments = [&["export", "download", "se_done"][..], more].concat();
        finish(host.command(&arguments).current_dir(&folder))
    };
    let ended = download(&[]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("docs.zip") && ended.stderr.contains("--output"), "{}", ended.stderr);
    assert_eq!(upstream.count(Call::Download), 0);
    assert_eq!(support::read_tree(&folder), [("docs.zip".to_owned(), b"mine".to_vec())]);
    let ended = download(&["--output", "docs.zip"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(support::read_tree(&folder), [("docs.zip".to_owned(), bundle("one"))]);
}

#[test]
fn whoever_waits_for_a_job_waits_as_long_as_a_job_may_take() {
    let upstream = upstream();
    upstream.finished_job("se_done");
    upstream.on(Call::Poll).gives(answer(200).json(&json!({"status": "processing"})));
    let host = Host::new(&upstream).set("sync.jobTimeout", text("2s"));
    let begun = Instant::now();
    let ended = host.ends(4, &["export", "status", "se_done", "--wait"]);
    assert!(begun.elapsed() < Duration::from_secs(20) && ended.stderr.contains("processing"), "{}", ended.stderr);
}

#[test]
fn export_verbs_speak_json() {
    let upstream = upstream();
    let host = Host::new(&upstream);
    let start = host.ok(&["export", "start", "--json"]).json();
    assert_eq!(start["jobId"], "se_0000000000000001", "{start}");
    let status = host.ok(&["export", "status", "se_0000000000000001", "--wait", "--json"]).json();
    assert_eq!(status["job"]["status"], "completed", "{status}");
    let link = host.ok(&["export", "link", "se_0000000000000001", "--json"]).json();
    assert!(link["bundleUrl"].as_str().unwrap().contains(SIGNATURE), "{link}");
    let target = host.path("taken");
    let taken =
        host.ok(&["export", "download", "se_0000000000000001", "--output", target.to_str().unwrap(), "--json"]).json();
    assert!(taken.is_object(), "{taken}");
    assert!(!taken.to_string().contains(SIGNATURE), "{taken}");
    assert_eq!(std::fs::read(target).unwrap(), upstream.plan().bundle);
}

#[test]
fn export_start_can_tag_a_version() {
    let upstream = upstream();
    let host = Host::new(&upstream);
    host.ok(&["export", "start", "--version", "2026-08"]);
    assert_eq!(upstream.calls(Call::Start)[0].json()["version"], "2026-08");
    host.ok(&["export", "start"]);
    assert_eq!(upstream.calls(Call::Start)[1].json().get("version"), None);
}

#[test]
fn export_verbs_end_with_the_code_of_what_went_wrong() {
    let upstream = upstream();
    let host = Host::new(&upstream);
    let ended = host.ends(4, &["export", "status", "se_unknown"]);
    assert!(ended.stderr.contains("se_unknown"), "{}", ended.stderr);
    host.ends(4, &["export", "link", "se_unknown"]);
    upstream.statuses(&[json!("running"), json!({"status": "failed", "error": "no pages"})]);
    host.ok(&["export", "start"]);
    let ended = host.ends(6, &["export", "status", "se_0000000000000001", "--wait"]);
    assert!(ended.stderr.contains("no pages"), "{}", ended.stderr);
    upstream.on(Call::Start).gives(answer(403));
    host.ends(3, &["export", "start"]);
    upstream.heal();
    upstream.on(Call::Start).gives(answer(400));
    host.ends(2, &["export", "start"]);
}

#[test]
fn verbs_work_though_syncing_is_disabled() {
    let upstream = upstream();
    let host = Host::new(&upstream).set("staticExport.enabled", "false");
    assert_eq!(host.sync(), "disabled");
    assert_eq!(upstream.connections(), 0);
    host.ok(&["export", "start"]);
    assert_eq!(upstream.count(Call::Start), 1);
}

#[test]
fn a_download_in_the_way_of_a_file_or_a_missing_folder_is_local_trouble() {
    let upstream = upstream();
    upstream.finished_job("se_done");
    let host = Host::new(&upstream);
    let ended = host.ends(8, &["export", "download", "se_done", "--output", "/no/such/folder/file"]);
    assert!(ended.stderr.contains("/no/such/folder"), "{}", ended.stderr);
}

#[test]
fn help_tells_of_the_new_verbs() {
    for arguments in [&["export", "--help"][..], &["export", "start", "--help"], &["sync", "--help"]] {
        assert!(!end(docwharf().args(arguments)).expect(0).stdout.is_empty());
    }
}
