//! The whole management API, tested with the real program: organizations, keys, jobs after a restart, searches,
//! previews.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use support::h2::Http2Client;
use support::host::Host;
use support::http::{get, request};
use support::test_origin::{FOLDER_PROJECT, JOBS_PATH, TestOrigin, commit, error_message, git, json_body, repository};
use support::{Daemon, KillOnDrop, ReservedPort, docwharf, run_to_end, until, until_done_in_background, write_site};

/// Configuration of two organizations: acme with one folder, umbrella with another.
pub(crate) const TWO_ORGANIZATIONS: &str = "[[organization]]\nid = \"acme\"\n[[organization.project]]\nid = \"docs\"\n\
                   domain = \"docs.acme.example\"\ndirectory = \"site\"\n\
                   [[organization]]\nid = \"umbrella\"\n[[organization.project]]\nid = \"secrets\"\n\
                   domain = \"docs.umbrella.example\"\ndirectory = \"other\"\n";

/// Starts an origin with two organizations. Returns it with a key of umbrella.
fn start_with_two_organizations() -> (TestOrigin, String) {
    let mut origin = TestOrigin::new(TWO_ORGANIZATIONS);
    write_site(&origin.path("site"), &[("index.html", "<p>acme")]);
    write_site(&origin.path("other"), &[("index.html", "<p>umbrella")]);
    let key = origin.create_key("umbrella", "all", &[]);
    origin.start();
    (origin, key)
}

/// Returns a host whose agent uses this origin.
pub(crate) fn host_with_agent(origin: &TestOrigin) -> Host {
    let host = Host::bare()
        .set("api.baseUrl", format!("\"http://{}/v1\"", origin.address()))
        .set("api.domain", "\"docs.acme.example\"")
        .set("api.projectId", "\"docs\"")
        .set("api.keyFile", "\"key\"");
    host.put("key", &origin.key);
    host
}

// ---------------------------------------------------------------------------------------------------------------------
// Static exports

#[test]
fn completed_export_job_returns_the_same_bundle_for_every_new_link() {
    let mut origin = TestOrigin::with_folder_project();
    origin.start();
    let response = origin.post(JOBS_PATH, &json!({ "domain": "docs.acme.example" }));
    assert_eq!((response.status, response.header("content-type")), (202, Some("application/json")));
    let job = json_body(&response);
    for field in ["jobId", "status", "progress", "pageCount", "createdAt", "updatedAt", "error"] {
        assert!(job.get(field).is_some(), "{field} is missing: {job}");
    }
    let id = job["jobId"].as_str().unwrap();
    let completed = origin.wait_for_job(id);
    assert_eq!(
        (&completed["status"], &completed["progress"], &completed["pageCount"]),
        (&json!("completed"), &json!(100), &json!(2))
    );
    let first = json_body(&origin.send_request(&origin.key, "POST", &format!("{JOBS_PATH}/{id}/bundle"), None));
    assert!(first["expiresAt"].as_str().unwrap().ends_with('Z') && first["sizeBytes"].as_u64().unwrap() > 0, "{first}");
    let bundle = origin.bundle(id);
    assert_eq!((bundle.status, bundle.body.len() as u64), (200, first["sizeBytes"].as_u64().unwrap()));
    assert_eq!(origin.files(&bundle), ["a.css", "guides/start.html", "index.html"]);
    assert_eq!(origin.bundle(id).body, bundle.body, "the job stays usable");
}

#[test]
fn agent_syncs_and_serves_an_export_of_the_origin() {
    let mut origin = TestOrigin::with_folder_project();
    origin.start();
    let host = host_with_agent(&origin).set("sync.probe", "[]");
    host.sync();
    let daemon = host.run();
    assert_eq!(get(&daemon.address, "/guides/start").text(), "<p>start");
}

#[test]
fn export_has_the_requested_version_and_only_the_requested_pages() {
    let mut origin = TestOrigin::with_folder_project();
    write_site(&origin.path("site"), &[("guides/other.html", "<p>other"), ("404.html", "<p>no")]);
    origin.start();
    let id = origin.export(&json!({ "version": "1.4", "paths": ["/guides/start"] }));
    assert_eq!(json_body(&origin.get(&format!("{JOBS_PATH}/{id}")))["version"], "1.4");
    let bundle = origin.bundle(&id);
    assert_eq!(origin.files(&bundle), ["404.html", "a.css", "guides/start.html"]);
    let id = origin.export(&json!({ "paths": ["/guides/start", "/nowhere"] }));
    let failed = origin.wait_for_job(&id);
    assert_eq!(failed["status"], "failed");
    assert!(failed["error"].as_str().unwrap().contains("/nowhere: there is no such page"), "{failed}");
    for (body, message) in [
        (json!({ "domain": "docs.acme.example", "paths": [] }), "at least one"),
        (json!({ "domain": "docs.acme.example", "paths": ["guides"] }), "begins with /"),
        (json!({ "domain": "docs.acme.example/" }), "without a path"),
        (json!({ "domain": "elsewhere.example" }), "not served here"),
        (json!({}), "domain is missing"),
        (json!([]), "not a JSON object"),
    ] {
        let response = origin.post(JOBS_PATH, &body);
        assert_eq!(response.status, 400, "{body}");
        assert!(error_message(&response).contains(message), "{body}: {}", response.text());
    }
}

#[test]
fn exports_and_previews_disabled_for_a_project_return_403() {
    let origin = &mut TestOrigin::new(&FOLDER_PROJECT.replace("directory", "exports = false\ndirectory"));
    write_site(&origin.path("site"), &[("index.html", "<p>home")]);
    origin.start();
    let response = origin.post(JOBS_PATH, &json!({ "domain": "docs.acme.example" }));
    assert_eq!(response.status, 403);
    assert!(error_message(&response).contains("exports"), "{}", response.text());
    let response = origin.post("/v1/project/preview/docs", &json!({ "branch": "main" }));
    assert_eq!(response.status, 403);
    assert!(error_message(&response).contains("previews"), "{}", response.text());
}

#[test]
fn origin_starts_without_a_project_folder_and_exports_it_once_it_exists() {
    let mut origin = TestOrigin::new(TWO_ORGANIZATIONS);
    write_site(&origin.path("other"), &[("index.html", "<p>umbrella")]);
    origin.start();
    assert!(origin.log().contains("its exports fail until the folder or archive exists"), "{}", origin.log());
    let failed = origin.wait_for_job(&origin.export(&json!({})));
    assert_eq!(failed["status"], "failed", "{failed}");
    write_site(&origin.path("site"), &[("index.html", "<p>acme")]);
    assert_eq!(origin.wait_for_job(&origin.export(&json!({})))["status"], "completed");
}

#[test]
fn start_with_a_smaller_keep_setting_removes_the_older_bundles() {
    let mut origin = TestOrigin::with_folder_project();
    origin.start();
    let jobs = [(); 3].map(|()| {
        let job = origin.export(&json!({}));
        assert_eq!(origin.wait_for_job(&job)["status"], "completed");
        job
    });
    origin.kill();
    let database = rusqlite::Connection::open(origin.path("state/origin.db")).unwrap();
    database.execute("UPDATE jobs SET updated = 1", []).unwrap();
    drop(database);
    origin.write("[server]\nlisten = [\"127.0.0.1:0\"]\n", &format!("[exports]\nkeep = 1\n{FOLDER_PROJECT}"));
    origin.start();
    let newest = format!("{}.tar.gz", jobs[2]);
    until("only the newest bundle is there", || {
        let names = std::fs::read_dir(origin.path("state/bundles")).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).eq([newest.clone()])
    });
    let job = json_body(&origin.get(&format!("{JOBS_PATH}/{}", jobs[2])));
    assert_eq!(job["updatedAt"], "1970-01-01T00:00:00Z", "{job}");
    assert!(job["createdAt"].as_str().unwrap() > "2000", "{job}");
    let statuses = jobs.map(|job| origin.get(&format!("{JOBS_PATH}/{job}")).status);
    assert_eq!(statuses, [404, 404, 200]);
}

/// An operator may have put a backup there.
// Regression: a folder in `state/bundles/` kept the origin from starting, and the origin removed a file there that it
// had not written.
#[test]
fn unknown_files_in_the_bundles_folder_are_not_removed_and_do_not_prevent_a_start() {
    let mut origin = TestOrigin::with_folder_project();
    origin.start();
    let job = origin.export(&json!({}));
    let bundle = origin.bundle(&job);
    origin.kill();
    let bundles = origin.path("state/bundles");
    write_site(&bundles, &[("backup/old.tar.gz", "old"), ("notes.txt", "notes"), ("se_0123456789abcdef.zip", "left")]);
    origin.start();
    assert!(bundles.join("backup/old.tar.gz").exists() && bundles.join("notes.txt").exists());
    assert!(!bundles.join("se_0123456789abcdef.zip").exists(), "a bundle that belongs to no job is removed");
    assert!(origin.log().contains("bundles/backup is not a bundle of any job"), "{}", origin.log());
    assert_eq!(origin.bundle(&job).body, bundle.body);
}

#[test]
fn jobs_links_and_keys_persist_across_a_restart() {
    let mut origin = TestOrigin::with_folder_project();
    origin.start();
    let job = origin.export(&json!({}));
    let bundle = origin.bundle(&job);
    let link = origin.link(&job);
    let before = json_body(&origin.get(&format!("{JOBS_PATH}/{job}")));
    origin.kill();
    origin.start();
    assert_eq!(json_body(&origin.get(&format!("{JOBS_PATH}/{job}"))), before);
    assert_eq!(get(origin.address(), &link).body, bundle.body, "a link from before the restart still works");
    assert_eq!(origin.bundle(&job).body, bundle.body);
}

#[test]
fn restart_after_a_kill_fails_the_running_job_and_completes_the_queued_ones() {
    let mut origin = TestOrigin::new(&format!("[exports]\nworkers = 1\n{FOLDER_PROJECT}"));
    for n in 0..40 {
        let text = support::sample_text(200_000);
        write_site(&origin.path("site"), &[(&format!("p{n}.html"), &text)]);
    }
    origin.start();
    let (first, second) = (origin.export(&json!({})), origin.export(&json!({})));
    until("the first job is running", || {
        json_body(&origin.get(&format!("{JOBS_PATH}/{first}")))["status"] == "running"
    });
    origin.kill();
    origin.start();
    let result = origin.wait_for_job(&first);
    assert_eq!(result["status"], "failed");
    assert!(result["error"].as_str().unwrap().contains("stopped while"), "{result}");
    assert_eq!(origin.wait_for_job(&second)["status"], "completed");
    let bundles: Vec<_> = std::fs::read_dir(origin.path("state/bundles")).unwrap().collect();
    assert_eq!(
        (bundles.len(), std::fs::read_dir(origin.path("state/work")).unwrap().count()),
        (1, 0),
        "no unfinished files remain"
    );
}

#[test]
fn bundles_above_the_keep_limit_are_removed_except_the_newest_of_a_project() {
    let mut origin =
        TestOrigin::new(&FOLDER_PROJECT.replacen("[[", "[exports]\nkeep = 2\nlinkLifetime = \"1s\"\n[[", 1));
    write_site(&origin.path("site"), &[("index.html", "<p>home")]);
    origin.start();
    let first = origin.export(&json!({}));
    origin.wait_for_job(&first);
    let (mut newest, mut job_count) = (first.clone(), 1);
    until_done_in_background("the first job is deleted", || {
        newest = origin.export(&json!({}));
        origin.wait_for_job(&newest);
        job_count += 1;
        origin.get(&format!("{JOBS_PATH}/{first}")).status == 404
    });
    assert_eq!(origin.bundle(&newest).status, 200);
    let files = std::fs::read_dir(origin.path("state/bundles")).unwrap().count();
    assert!(files < job_count, "{files} of {job_count}");
}

// Regression: an origin removed jobs while links to their bundles were valid, and before a slow client had seen their
// end.
#[test]
fn job_is_retained_while_its_link_is_valid_and_for_a_link_lifetime_after_its_end() {
    let mut origin =
        TestOrigin::new(&FOLDER_PROJECT.replacen("[[", "[exports]\nkeep = 1\nlinkLifetime = \"1h\"\n[[", 1));
    write_site(&origin.path("site"), &[("index.html", "<p>home")]);
    origin.start();
    let first = origin.export(&json!({}));
    origin.wait_for_job(&first);
    let link = origin.link(&first);
    for _ in 0..3 {
        origin.wait_for_job(&origin.export(&json!({})));
    }
    assert_eq!((get(origin.address(), &link).status, origin.bundle(&first).status), (200, 200));
}

// ---------------------------------------------------------------------------------------------------------------------
// Keys and organizations

#[test]
fn api_key_is_shown_once_and_works_until_it_is_revoked_or_expires() {
    let mut origin = TestOrigin::with_folder_project();
    origin.start();
    let status = |origin: &TestOrigin, key: &str, method: &str| {
        origin.send_request(key, method, &format!("{JOBS_PATH}/x"), None).status
    };
    let read_key = origin.create_key("acme", "ci", &["--scope", "read", "--expires", "1h"]);
    let expiring_key = origin.create_key("acme", "old", &["--expires", "1s"]);
    let post = origin.send_request(&read_key, "POST", JOBS_PATH, Some(&json!({ "domain": "docs.acme.example" })));
    assert_eq!((status(&origin, &read_key, "GET"), post.status), (404, 403));
    assert!(error_message(&post).contains("may only read"), "{}", post.text());
    until("the key has expired", || status(&origin, &expiring_key, "GET") == 401);
    let listed = origin.ok(&["key", "list"]).stdout;
    assert!(
        listed.contains(&read_key[..11]) && listed.contains("acme  ci") && !listed.contains(&read_key[12..]),
        "{listed}"
    );
    origin.ok(&["key", "revoke", "acme", "ci"]);
    let response = origin.send_request(&read_key, "GET", &format!("{JOBS_PATH}/x"), None);
    assert_eq!(response.status, 401, "the revocation takes effect while the origin runs");
    assert!(!error_message(&response).is_empty());
    let state = std::fs::read(origin.path("state/origin.db-wal")).unwrap_or_default();
    assert!(memchr::memmem::find(&state, &read_key.as_bytes()[12..]).is_none(), "only the digest of the key is stored");
    assert!(!origin.log().contains(&origin.key[12..]));
    let failed = run_to_end(&mut origin.command(&["key", "create", "nobody", "x"])).expect(2);
    assert!(failed.stderr.contains("no organization"), "{}", failed.stderr);
    let failed = run_to_end(&mut origin.command(&["key", "revoke", "acme", "ci"])).expect(2);
    assert!(failed.stderr.contains("no key called"), "{}", failed.stderr);
}

// ---------------------------------------------------------------------------------------------------------------------
// Search analytics

pub(crate) fn search_events(query: &str, n: usize, day: u8) -> Vec<Value> {
    let event = |n| json!({ "query": query, "time": format!("2026-11-{day:02}T10:{n:02}:00Z"), "clickedPage": "/guides/start" });
    (0..n).map(event).collect()
}

#[test]
fn searches_endpoint_counts_sorts_and_filters_terms_and_the_cli_reads_the_result() {
    let mut origin = TestOrigin::with_folder_project();
    origin.start();
    let mut events = search_events("moat", 3, 1);
    events.extend(search_events("tide", 5, 2));
    events.extend(search_events("bridge", 3, 3));
    let batch = json!({ "batchId": "b1", "events": events });
    let response = origin.post("/v1/analytics/docs/searches", &batch);
    assert_eq!((response.status, &json_body(&response)["accepted"]), (200, &json!(11)), "{}", response.text());
    let again = json_body(&origin.post("/v1/analytics/docs/searches", &batch));
    assert_eq!((&again["duplicate"], &again["accepted"]), (&json!(true), &json!(11)), "{again}");
    let all = json_body(&origin.get("/v1/analytics/docs/searches"));
    let terms: Vec<&str> =
        all["searches"].as_array().unwrap().iter().map(|s| s["searchQuery"].as_str().unwrap()).collect();
    assert_eq!(
        (terms, &all["totalSearches"], &all["nextCursor"]),
        (vec!["tide", "bridge", "moat"], &json!(11), &Value::Null)
    );
    let tide = &all["searches"][0];
    assert_eq!((&tide["hits"], &tide["topClickedPage"]), (&json!(5), &json!("/guides/start")), "{tide}");
    assert_eq!(tide["lastSearchedAt"], "2026-11-02T10:04:00Z");
    let until_second = json_body(&origin.get("/v1/analytics/docs/searches?dateFrom=2026-11-01&dateTo=2026-11-02"));
    assert_eq!(until_second["totalSearches"], 3, "dateTo is exclusive: {until_second}");
    let first = json_body(&origin.get("/v1/analytics/docs/searches?limit=2"));
    // Searches that arrive between two requests do not change the pages of the query.
    let more = json!({ "batchId": "b2", "events": search_events("moat", 9, 4) });
    assert_eq!(origin.post("/v1/analytics/docs/searches", &more).status, 200);
    let cursor = first["nextCursor"].as_str().unwrap();
    let second = json_body(&origin.get(&format!("/v1/analytics/docs/searches?limit=2&cursor={cursor}")));
    assert_eq!(
        (&second["searches"][0]["searchQuery"], &second["totalSearches"]),
        (&json!("moat"), &json!(11)),
        "{second}"
    );
    for query in
        ["limit=0", "limit=101", "limit=x", "dateFrom=yesterday", "cursor=x", "dateFrom=2026-11-02&dateTo=2026-11-01"]
    {
        let response = origin.get(&format!("/v1/analytics/docs/searches?{query}"));
        assert_eq!(response.status, 400, "{query}");
        assert!(
            !json_body(&response)["details"][0]["message"].as_str().unwrap().is_empty(),
            "{query}: {}",
            response.text()
        );
    }
    let host = host_with_agent(&origin);
    let read = host.ok(&["analytics", "searches", "--json"]).stdout;
    assert!(read.contains("moat") && read.contains("tide"), "{read}");
}

#[test]
fn analytics_queries_above_100_an_hour_return_429_with_retry_after() {
    let (origin, umbrella) = start_with_two_organizations();
    for n in 0..100 {
        let response = origin.get("/v1/analytics/docs/searches?limit=1");
        assert_eq!(response.status, 200, "the {n}th: {}", response.text());
    }
    let response = origin.get("/v1/analytics/docs/searches");
    assert_eq!(response.status, 429);
    let wait: u64 = response.header("retry-after").unwrap().parse().unwrap();
    assert!((1800..=3600).contains(&wait), "{wait}: an hour after the first of them");
    assert_eq!(
        origin.send_request(&umbrella, "GET", "/v1/analytics/secrets/searches", None).status,
        200,
        "each organization has its own limit"
    );
}

#[test]
fn repeated_import_of_a_csv_file_counts_its_searches_once() {
    let mut origin = TestOrigin::with_folder_project();
    origin.start();
    let csv = "query,time,clickedPage\ntide,2026-11-01T10:00:00Z,/guides/start\n\"a, b\",2026-11-02T10:00:00Z,\n";
    std::fs::write(origin.path("s.csv"), csv).unwrap();
    let file = origin.path("s.csv");
    for _ in 0..2 {
        origin.ok(&["import-searches", "docs", file.to_str().unwrap()]);
    }
    let all = json_body(&origin.get("/v1/analytics/docs/searches"));
    assert_eq!(all["totalSearches"], 2, "{all}");
    std::fs::write(origin.path("s.csv"), "query,time\ntide,tomorrow\n").unwrap();
    let failed = run_to_end(&mut origin.command(&["import-searches", "docs", file.to_str().unwrap()])).expect(2);
    assert!(failed.stderr.contains("line 2"), "{}", failed.stderr);
    assert_eq!(failed.stderr.lines().count(), 1, "{}", failed.stderr);
}

#[test]
fn acknowledged_search_batches_survive_a_kill_and_are_counted_once() {
    let mut origin = TestOrigin::with_folder_project();
    origin.start();
    let batch = |n: u32| json!({ "batchId": format!("b{n}"), "events": search_events("tide", 2, 1) });
    let acknowledged = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        let (origin, acknowledged) = (&origin, &acknowledged);
        let sender = scope.spawn(move || {
            for n in 0..10_000 {
                let target = "/v1/analytics/docs/searches";
                let body = batch(n).to_string();
                let head = format!(
                    "POST {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n{body}",
                    origin.key,
                    body.len()
                );
                let Ok(mut stream) = std::net::TcpStream::connect(origin.address()) else { return };
                let _ = std::io::Write::write_all(&mut stream, head.as_bytes());
                let mut response = Vec::new();
                let _ = std::io::Read::read_to_end(&mut stream, &mut response);
                if !response.starts_with(b"HTTP/1.1 200") || !response.ends_with(b"}") {
                    return;
                }
                acknowledged.store(n + 1, std::sync::atomic::Ordering::SeqCst);
            }
        });
        until("some batches are acknowledged", || acknowledged.load(std::sync::atomic::Ordering::SeqCst) > 20);
        origin.daemon.as_ref().unwrap().signal("KILL");
        sender.join().unwrap();
    });
    origin.wait_for_end();
    origin.start();
    let acknowledged = acknowledged.into_inner();
    let total = json_body(&origin.get("/v1/analytics/docs/searches"))["totalSearches"].as_u64().unwrap();
    assert!(
        total == u64::from(acknowledged) * 2 || total == u64::from(acknowledged + 1) * 2,
        "{acknowledged} batches of 2, and {total} searches"
    );
    // The client does not know the result of the batch whose response was lost, so it sends that batch again.
    assert_eq!(origin.post("/v1/analytics/docs/searches", &batch(acknowledged)).status, 200);
    let total = json_body(&origin.get("/v1/analytics/docs/searches"))["totalSearches"].as_u64().unwrap();
    assert_eq!(total, u64::from(acknowledged + 1) * 2);
}

// ---------------------------------------------------------------------------------------------------------------------
// Previews

/// Previews without the search, so that pages are sent as they are.
const GIT_PROJECT: &str = "[previews]\nsearch = false\nsweep = \"1s\"\n\
                   [[organization]]\nid = \"acme\"\n[[organization.project]]\nid = \"docs\"\n\
                   domain = \"docs.acme.example\"\ngit = \"repo\"\n";

/// Starts a deployment. Returns its id and the URL of its preview.
#[track_caller]
pub(crate) fn deploy(origin: &TestOrigin, branch: &str) -> (String, String) {
    let response = origin.post("/v1/project/preview/docs", &json!({ "branch": branch }));
    assert_eq!(response.status, 202, "{}", response.text());
    let deployment = json_body(&response);
    (deployment["statusId"].as_str().unwrap().to_owned(), deployment["previewUrl"].as_str().unwrap().to_owned())
}

/// Waits for the end of a deployment, and returns it.
#[track_caller]
pub(crate) fn wait_for_deployment(origin: &TestOrigin, id: &str) -> Value {
    let mut last = Value::Null;
    until_done_in_background("the deployment ends", || {
        last = json_body(&origin.get(&format!("/v1/project/update-status/{id}")));
        last["status"] == "success" || last["status"] == "failure"
    });
    last
}

#[test]
fn preview_is_redeployed_at_the_same_url_and_removed_with_its_branch() {
    let mut origin = TestOrigin::new(GIT_PROJECT);
    let repo = origin.path("repo");
    repository(&repo, &[("index.html", "<p>production <a href=\"guide\">guide</a>"), ("guide.html", "<p>guide")]);
    git(&repo, &["checkout", "-q", "-b", "feature/tide"]);
    commit(&repo, &[("index.html", "<p>tide <a href=\"guide\">guide</a> <a href=\"/gone\">gone</a>")], "high water");
    origin.start();
    origin.wait_for_job(&origin.export(&json!({})));
    let (id, url) = deploy(&origin, "feature/tide");
    assert_eq!(url, format!("http://{}/preview/docs/feature-tide/", origin.address()));
    let deployment = wait_for_deployment(&origin, &id);
    assert_eq!(deployment["status"], "success", "{deployment}");
    for field in
        ["_id", "projectId", "createdAt", "endedAt", "summary", "logs", "subdomain", "author", "commit", "source"]
    {
        assert!(!deployment[field].is_null(), "{field} is missing: {deployment}");
    }
    assert_eq!(
        (&deployment["commit"]["ref"], &deployment["commit"]["message"]),
        (&json!("feature/tide"), &json!("high water"))
    );
    assert_eq!(deployment["commit"]["filesChanged"]["modified"], json!(["index.html"]));
    assert!(
        deployment["summary"].as_str().unwrap().contains("/gone"),
        "a link that production does not have: {deployment}"
    );
    let page = get(origin.address(), "/preview/docs/feature-tide/");
    assert!(page.status == 200 && page.text().starts_with("<p>tide"), "{}", page.text());
    assert_eq!(page.header("x-robots-tag"), Some("noindex"));
    assert_eq!(get(origin.address(), "/preview/docs/feature-tide/guide").text(), "<p>guide");

    commit(&repo, &[("index.html", "<p>ebb")], "low water");
    let (second_id, second_url) = deploy(&origin, "feature/tide");
    assert_ne!(second_id, id);
    assert_eq!(second_url, url, "the preview keeps its address");
    wait_for_deployment(&origin, &second_id);
    assert_eq!(get(origin.address(), "/preview/docs/feature-tide/").text(), "<p>ebb");

    origin.kill();
    origin.start();
    assert_eq!(
        get(origin.address(), "/preview/docs/feature-tide/").text(),
        "<p>ebb",
        "the preview is served after a restart"
    );
    git(&repo, &["checkout", "-q", "main"]);
    git(&repo, &["branch", "-q", "-D", "feature/tide"]);
    until_done_in_background("the preview is removed with its branch", || {
        get(origin.address(), "/preview/docs/feature-tide/").status == 404
    });
}

#[test]
fn readers_can_search_a_preview_whose_index_is_built_at_the_first_search() {
    let mut origin = TestOrigin::new(&GIT_PROJECT.replace("search = false\n", ""));
    let repo = origin.path("repo");
    repository(&repo, &[("index.html", "<title>Home</title><p>bowline"), ("a.html", "<title>A</title><p>a bowline")]);
    origin.start();
    let (id, _) = deploy(&origin, "main");
    assert_eq!(wait_for_deployment(&origin, &id)["status"], "success");
    let work = origin.path("state/previews/work");
    let work_files = || std::fs::read_dir(&work).into_iter().flatten().flatten().count();
    let page = get(origin.address(), "/preview/docs/main/");
    let tag = "<script src=\"/preview/docs/main/_docwharf/search.js\" defer></script>";
    assert!(page.text().ends_with(tag), "{}", page.text());
    let search = |word: &str| {
        let target = format!("/preview/docs/main/_docwharf/search?q={word}");
        request(origin.address(), "GET", &target, &["Accept: application/json"])
    };
    let first = search("bowline");
    assert_eq!((first.status, json_body(&first)), (503, json!({ "indexing": true })));
    // An answer says itself how long it holds; every other response of a preview is revalidated.
    assert_eq!((first.header("cache-control"), first.header("retry-after")), (Some("no-store"), Some("2")));
    assert_eq!(page.header("cache-control"), Some("private, no-cache"));
    until_done_in_background("the index is open", || search("bowline").status == 200);
    let found = search("bowline");
    // A busy machine may have ended the query before it had all results.
    let cache = if json_body(&found)["partial"] == true { "no-store" } else { "private, max-age=60" };
    assert_eq!((found.header("x-robots-tag"), found.header("cache-control")), (Some("noindex"), Some(cache)));
    let results = json_body(&found)["results"].clone();
    let mut urls: Vec<&str> =
        results.as_array().unwrap().iter().map(|result| result["url"].as_str().unwrap()).collect();
    urls.sort_unstable();
    assert_eq!(urls, ["/preview/docs/main/", "/preview/docs/main/a.html"]);
    until("the folder of the index is removed", || work_files() == 0);
    // A deployment of a preview that was searched gets its index at once.
    commit(&repo, &[("index.html", "<title>Home</title><p>sheepshank")], "another knot");
    let (id, _) = deploy(&origin, "main");
    wait_for_deployment(&origin, &id);
    until_done_in_background("the new index is open", || json_body(&search("sheepshank"))["total"] == 1);
    assert_eq!(json_body(&search("bowline"))["total"], 1);
    until("the folder of the index is removed", || work_files() == 0);
    assert_eq!(get(origin.address(), "/preview/docs/none/_docwharf/search?q=bowline").status, 404);
    // Behind a proxy that decrypts, the description has the scheme by which readers know the origin.
    origin.kill();
    let server = "[server]\nlisten = [\"127.0.0.1:0\"]\npublicUrl = \"https://origin.example\"\n";
    origin.write(server, &GIT_PROJECT.replace("search = false\n", ""));
    origin.start();
    let description = get(origin.address(), "/preview/docs/main/_docwharf/opensearch.xml").text();
    assert!(description.contains("template=\"https://"), "{description}");
    // Without the search, there is neither the tag nor its addresses.
    origin.kill();
    origin.write("[server]\nlisten = [\"127.0.0.1:0\"]\n", GIT_PROJECT);
    origin.start();
    assert_eq!(get(origin.address(), "/preview/docs/main/").text(), "<title>Home</title><p>sheepshank");
    assert_eq!(get(origin.address(), "/preview/docs/main/_docwharf/search?q=bowline").status, 404);
}

#[test]
fn preview_has_its_own_host_name_when_previews_host_is_configured() {
    let mut origin = TestOrigin::new(&GIT_PROJECT.replace("sweep", "host = \"preview.acme.example\"\nsweep"));
    repository(&origin.path("repo"), &[("index.html", "<p>home")]);
    origin.start();
    let (id, url) = deploy(&origin, "main");
    let port = origin.address().rsplit(':').next().unwrap();
    assert_eq!(url, format!("http://main.preview.acme.example:{port}/"));
    wait_for_deployment(&origin, &id);
    let get_from_host = |host: &str, target: &str| {
        let text = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        support::http::parse(&support::http::send_bytes(origin.address(), text.as_bytes()), false)
    };
    let with_port = format!("main.preview.acme.example:{port}");
    for host in ["MAIN.Preview.acme.example", "main.preview.acme.example.", &with_port] {
        assert_eq!(get_from_host(host, "/").text(), "<p>home", "{host}");
    }
    assert_eq!(
        get_from_host("MAIN.preview.acme.example", "/v1/static-export/jobs").status,
        404,
        "the API is not reachable at the host of a preview"
    );
    for host in ["other.preview.acme.example", "a.main.preview.acme.example"] {
        for target in ["/", "/openapi.json"] {
            assert_eq!(get_from_host(host, target).status, 404, "{host} {target}");
        }
    }
    assert_eq!(get_from_host("mainpreview.acme.example", "/openapi.json").status, 200, "it is not below that host");
    // HTTP/2 has the host in `:authority`.
    let mut client = Http2Client::open(origin.address());
    for (authority, target, status) in [
        (&*with_port, "/", 200),
        ("other.preview.acme.example", "/openapi.json", 404),
        ("main.preview.acme.example", "/openapi.json", 404),
        ("preview.acme.example", "/openapi.json", 200),
    ] {
        let fields = [(":method", "GET"), (":scheme", "http"), (":authority", authority), (":path", target)];
        let stream = client.send_fields(&fields);
        assert_eq!(client.response(stream).status, status, "{authority} {target}");
    }
    assert_eq!(get_from_host("preview.acme.example", "/openapi.json").status, 200);
}

#[test]
fn invalid_previews_return_400_and_more_than_five_a_minute_return_429() {
    let mut origin = TestOrigin::new(GIT_PROJECT);
    repository(&origin.path("repo"), &[("index.html", "<p>home")]);
    origin.start();
    for (body, status) in [(json!({}), 400), (json!({ "branch": "" }), 400), (json!({ "branch": "a..b" }), 400)] {
        let response = origin.post("/v1/project/preview/docs", &body);
        assert_eq!(response.status, status, "{body}: {}", response.text());
        assert!(!error_message(&response).is_empty());
    }
    let (id, _) = deploy(&origin, "nothing");
    let (_, _) = deploy(&origin, "main");
    let response = origin.post("/v1/project/preview/docs", &json!({ "branch": "main" }));
    assert_eq!(response.status, 429);
    let wait: u64 = response.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    let deployment = wait_for_deployment(&origin, &id);
    assert_eq!(deployment["status"], "failure");
    assert!(deployment["summary"].as_str().unwrap().contains("nothing"), "{deployment}");
}

#[test]
fn disabled_previews_are_neither_built_nor_served() {
    let mut origin = TestOrigin::new(GIT_PROJECT);
    repository(&origin.path("repo"), &[("index.html", "<p>home")]);
    origin.start();
    let (id, _) = deploy(&origin, "main");
    assert_eq!(wait_for_deployment(&origin, &id)["status"], "success");
    assert_eq!(get(origin.address(), "/preview/docs/main/").text(), "<p>home");
    origin.kill();
    let disabled = GIT_PROJECT.replace("git =", "previews = false\ngit =");
    origin.write("[server]\nlisten = [\"127.0.0.1:0\"]\n", &disabled);
    origin.start();
    let missing = get(origin.address(), "/preview/docs/main/");
    assert_eq!((missing.status, missing.header("content-type")), (404, Some("text/plain; charset=utf-8")));
    assert_eq!((missing.header("cache-control"), missing.header("x-robots-tag")), (Some("no-store"), Some("noindex")));
    let response = origin.post("/v1/project/preview/docs", &json!({ "branch": "main" }));
    assert_eq!(response.status, 403);
    assert!(error_message(&response).contains("previews = true"), "{}", response.text());
}

#[test]
fn preview_links_are_compared_with_the_newest_export_of_the_whole_site() {
    let mut origin = TestOrigin::new(GIT_PROJECT);
    let repo = origin.path("repo");
    repository(&repo, &[("index.html", "<p>home"), ("guide.html", "<p>guide")]);
    git(&repo, &["checkout", "-q", "-b", "b"]);
    let broken = [("index.html", "<a href=\"/gone\">gone</a>")];
    commit(&repo, &broken, "a broken link");
    origin.start();
    let summary_of_preview = || {
        let (id, _) = deploy(&origin, "b");
        let deployment = wait_for_deployment(&origin, &id);
        deployment["summary"].as_str().unwrap_or_else(|| panic!("{deployment}")).to_owned()
    };
    origin.wait_for_job(&origin.export(&json!({})));
    let expected = "2 pages; 1 broken link, 1 of them new against production: /index.html -> /gone";
    assert_eq!(summary_of_preview(), expected);
    git(&repo, &["checkout", "-q", "main"]);
    commit(&repo, &broken, "the same link in production");
    origin.wait_for_job(&origin.export(&json!({})));
    let part = origin.bundle(&origin.export(&json!({ "paths": ["/guide"] })));
    assert_eq!(origin.files(&part), ["guide.html"]);
    assert_eq!(summary_of_preview(), "2 pages; 1 broken link, none of them new against production");
}

#[test]
fn running_deployment_fails_after_a_kill_and_its_branch_can_be_deployed_again() {
    let mut origin = TestOrigin::new(
        &GIT_PROJECT
            .replace("git =", "build = \"while [ ! -e done ]; do sleep 0.1; done\"\nallowUntrusted = true\ngit ="),
    );
    let repo = origin.path("repo");
    repository(&repo, &[("index.html", "<p>home")]);
    origin.start();
    let (id, _) = deploy(&origin, "main");
    until_done_in_background("the branch is being built", || {
        json_body(&origin.get(&format!("/v1/project/update-status/{id}")))["status"] == "in_progress"
    });
    origin.kill();
    origin.start();
    let deployment = wait_for_deployment(&origin, &id);
    assert_eq!(deployment["status"], "failure", "{deployment}");
    assert!(deployment["summary"].as_str().unwrap().contains("stopped"), "{deployment}");
    commit(&repo, &[("done", "")], "done");
    let (id, _) = deploy(&origin, "main");
    assert_eq!(wait_for_deployment(&origin, &id)["status"], "success");
}

// Regression: a start right after a kill failed, because a process that the killed origin was starting still had its
// lock.
#[test]
fn start_waits_for_the_lock_of_an_origin_that_is_ending() {
    let mut origin = TestOrigin::with_folder_project();
    origin.start();
    origin.kill();
    let lock = File::options().append(true).open(origin.path("state/lock")).unwrap();
    lock.lock().unwrap();
    let log = File::options().append(true).open(origin.path("log")).unwrap();
    let mut child = KillOnDrop(origin.command(&[]).stdout(Stdio::piped()).stderr(log).spawn().unwrap());
    until("the origin waits", || origin.log().contains("waiting up to 10 s for its end"));
    drop(lock);
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("http://"), "{line:?}");
}

#[test]
fn sitemap_of_a_missing_branch_returns_503_and_only_the_log_has_the_reason() {
    let mut origin = TestOrigin::new(&GIT_PROJECT.replace("git =", "branch = \"absent\"\ngit ="));
    repository(&origin.path("repo"), &[("index.html", "<p>home")]);
    origin.start();
    let mut response = get(origin.address(), "/sites/docs.acme.example/sitemap.xml");
    // A request does not wait long for git, which runs at the lowest priority.
    until_done_in_background("the branch is missing", || {
        response = get(origin.address(), "/sites/docs.acme.example/sitemap.xml");
        origin.log().contains("or has no such branch")
    });
    assert_eq!((response.status, response.header("retry-after")), (503, Some("5")), "{}", response.text());
    assert!(error_message(&response).ends_with("the log of the origin has the reason"), "{}", response.text());
}

#[test]
fn export_cancelled_by_a_stop_fails_with_that_reason_after_the_next_start() {
    let build = "build = \"while :; do sleep 0.1; done\"\nallowUntrusted = true\ngit =";
    let mut origin = TestOrigin::new(&GIT_PROJECT.replace("git =", build));
    repository(&origin.path("repo"), &[("index.html", "<p>home")]);
    origin.start();
    let job = origin.export(&json!({}));
    until_done_in_background("the site is being built", || {
        origin.path(&format!("state/work/{job}/checkout/home")).exists()
    });
    let mut daemon = origin.daemon.take().unwrap();
    daemon.signal("TERM");
    assert_eq!(daemon.wait(std::time::Duration::from_secs(20)), Some(0));
    origin.start();
    let ended = origin.wait_for_job(&job);
    let expected = "the origin was stopped while the bundle was made; start another job";
    assert_eq!((&ended["status"], &ended["error"]), (&json!("failed"), &json!(expected)));
    assert_eq!(std::fs::read_dir(origin.path("state/work")).unwrap().count(), 0);
}

#[test]
fn export_from_a_git_repository_runs_a_build_without_secrets() {
    let file = GIT_PROJECT.replace(
        "git =",
        "build = \"mkdir -p out && env >out/index.html && ls /root /home >>out/index.html 2>&1 || true\"\n\
                                     output = \"out\"\nallowUntrusted = true\ngit =",
    );
    let mut origin = TestOrigin::new(&file);
    repository(&origin.path("repo"), &[("page.md", "# home")]);
    let log = std::fs::File::create(origin.path("log")).unwrap();
    origin.daemon = Some(Daemon::start(origin.command(&["-vv"]).env("SOME_TOKEN", "s3cret").stderr(log)));
    let bundle = origin.bundle(&origin.export(&json!({})));
    assert_eq!(origin.files(&bundle), ["index.html"]);
    let page = std::fs::read_to_string(origin.path("unpacked/index.html")).unwrap();
    assert!(page.contains("PATH=") && !page.contains("s3cret"), "{page}");
    until_done_in_background("the sitemap has the head of the branch", || {
        get(origin.address(), "/sites/docs.acme.example/sitemap.xml").text().contains("head of the branch")
    });
}

#[test]
fn every_api_command_of_the_cli_works_with_an_origin() {
    let mut origin = TestOrigin::new(GIT_PROJECT);
    repository(&origin.path("repo"), &[("index.html", "<p>home")]);
    origin.start();
    let host = host_with_agent(&origin);
    let job = host.ok(&["export", "start", "--version", "1.4", "--json"]).json();
    let id = job["jobId"].as_str().unwrap_or_else(|| panic!("{job}")).to_owned();
    origin.wait_for_job(&id);
    assert!(host.ok(&["export", "status", &id]).stdout.contains("completed"));
    assert!(host.ok(&["export", "link", &id]).stdout.contains("/bundles/"));
    let bundle = host.path("b.tar.gz");
    host.ok(&["export", "download", &id, "-o", bundle.to_str().unwrap()]);
    host.ok(&["bundle", "verify", bundle.to_str().unwrap()]);
    let created = host.ok(&["preview", "create", "--branch", "main", "--wait"]);
    assert!(created.stdout.contains("/preview/docs/main/"), "{}", created.stdout);
    let batch = json!({ "batchId": "b", "events": search_events("tide", 3, 1) });
    assert_eq!(origin.post("/v1/analytics/docs/searches", &batch).status, 200);
    let csv = host.ok(&["analytics", "searches", "--all", "--from", "2026-10-01", "--format", "csv"]).stdout;
    assert!(csv.contains("tide"), "{csv}");
    let report = host.ok(&["analytics", "report", "--from", "2026-10-01", "--to", "2026-11-30"]).stdout;
    assert!(report.contains("tide"), "{report}");
    // An exported CSV file can be imported with the same numbers.
    std::fs::write(origin.path("again.csv"), &csv).unwrap();
    origin.ok(&["import-searches", "docs", origin.path("again.csv").to_str().unwrap()]);
    assert_eq!(json_body(&origin.get("/v1/analytics/docs/searches"))["searches"][0]["hits"], 6);
    // A probe detects a change by the head of the branch.
    let host = host.set("sync.probe", format!("[\"http://{}/sites/docs.acme.example/sitemap.xml\"]", origin.address()));
    host.sync();
    let first = host.active();
    assert_eq!(host.sync(), "already current", "the head of the branch is unchanged");
    commit(&origin.path("repo"), &[("index.html", "<p>changed")], "changed");
    // The head of a branch is read at most once in a few seconds.
    until_done_in_background("the change is detected", || {
        host.sync();
        host.active() != first
    });
}

// ---------------------------------------------------------------------------------------------------------------------
// The server

#[test]
fn openapi_document_needs_no_key_and_lists_every_api_endpoint() {
    let mut origin = TestOrigin::with_folder_project();
    origin.start();
    let response = get(origin.address(), "/openapi.json");
    assert_eq!((response.status, response.header("content-type")), (200, Some("application/json")));
    let document = json_body(&response);
    assert_eq!((&document["openapi"], &document["info"]["version"]), (&json!("3.1.0"), &json!("1.0.0")));
    for (path, method) in [
        ("/v1/project/preview/{projectId}", "post"),
        ("/v1/project/update-status/{statusId}", "get"),
        ("/v1/static-export/jobs", "post"),
        ("/v1/static-export/jobs/{jobId}", "get"),
        ("/v1/static-export/jobs/{jobId}/bundle", "post"),
        ("/v1/analytics/{projectId}/searches", "get"),
    ] {
        assert!(document["paths"][path][method].is_object(), "{method} {path}");
    }
}

#[test]
fn health_and_metrics_are_served_on_the_admin_listener() {
    let mut origin = TestOrigin::with_server_section(
        "[server]\nlisten = [\"127.0.0.1:0\"]\n[admin]\nlisten = [\"127.0.0.1:0\"]\n",
        FOLDER_PROJECT,
    );
    write_site(&origin.path("site"), &[("index.html", "<p>home")]);
    origin.start();
    origin.wait_for_job(&origin.export(&json!({})));
    let admin = &origin.admin_address();
    assert_eq!((get(admin, "/livez").status, get(admin, "/readyz").status), (200, 200));
    let metrics = get(admin, "/metrics").text();
    for (state, count) in [("completed", 1), ("queued", 0), ("running", 0), ("failed", 0)] {
        let line = format!("docwharf_origin_jobs{{state=\"{state}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    assert_eq!(get(admin, "/metrics").header("vary"), Some("Accept"), "the format depends on it");
    assert!(
        metrics.contains("docwharf_origin_requests_total{operation=\"startExport\",status=\"2xx\"} 1"),
        "{metrics}"
    );
    assert_eq!(get(origin.address(), "/metrics").status, 404, "metrics are not on the public listener");
    assert_eq!(get(origin.address(), "/readyz").status, 200);
    assert_eq!(request(admin, "POST", "/livez", &[]).status, 405);
    // An origin that cannot store bundles is not ready, so a load balancer sends no requests to it.
    for folder in ["state/bundles", "state/work"].map(|name| origin.path(name)) {
        std::fs::rename(&folder, origin.path("aside")).unwrap();
        assert_eq!((get(admin, "/readyz").status, get(admin, "/livez").status), (503, 200), "{}", folder.display());
        std::fs::rename(origin.path("aside"), &folder).unwrap();
        assert_eq!(get(admin, "/readyz").status, 200);
    }
}

// Regression: an origin answered requests with two hosts or none.
#[test]
fn request_without_exactly_one_valid_host_header_returns_400() {
    let mut origin = TestOrigin::with_folder_project();
    origin.start();
    for hosts in ["", "Host: a\r\nHost: a\r\n", "Host: a b\r\n"] {
        let text = format!("GET /openapi.json HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n");
        let response = support::http::parse(&support::http::send_bytes(origin.address(), text.as_bytes()), false);
        assert_eq!(response.status, 400, "{hosts:?}");
        let text = text.replace("/openapi.json", "/v1/analytics/docs/searches");
        let response = support::http::parse(&support::http::send_bytes(origin.address(), text.as_bytes()), false);
        assert_eq!(response.status, 400, "{hosts:?}");
        assert_eq!(json_body(&response)["details"][0]["message"], error_message(&response), "{hosts:?}");
    }
}

// Regression: a client that requested the sitemap of a repository and disconnected left a process behind, without a
// bound on their number.
#[test]
fn disconnected_sitemap_clients_leave_one_pending_request_to_the_git_repository() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let repository = format!("http://{}/x.git", listener.local_addr().unwrap());
    let connections = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = std::sync::Arc::clone(&connections);
    // Accepts connections, and sends nothing.
    std::thread::spawn(move || {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept() {
            held.push(stream);
            counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    });
    let mut origin = TestOrigin::new(&GIT_PROJECT.replace("\"repo\"", &format!("\"{repository}\"")));
    origin.start();
    let target = "/sites/docs.acme.example/sitemap.xml";
    for _ in 0..20 {
        let mut stream = std::net::TcpStream::connect(origin.address()).unwrap();
        std::io::Write::write_all(&mut stream, format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        until_done_in_background("the repository gets a connection", || {
            connections.load(std::sync::atomic::Ordering::SeqCst) > 0
        });
    }
    let response = get(origin.address(), target);
    assert_eq!(response.status, 503, "the request waits until the timeout");
    assert!(response.header("retry-after").is_some());
    assert_eq!(connections.load(std::sync::atomic::Ordering::SeqCst), 1);
}

// Regression: a start of an origin that failed had taken a waiting job, which failed with it.
#[test]
fn failed_start_of_an_origin_does_not_fail_queued_jobs() {
    let port = ReservedPort::new();
    let server = format!("[server]\nlisten = [{:?}]\n", port.address);
    let mut origin = TestOrigin::with_server_section(&server, &format!("[exports]\nworkers = 1\n{FOLDER_PROJECT}"));
    for n in 0..40 {
        write_site(&origin.path("site"), &[(&format!("p{n}.html"), &support::sample_text(200_000))]);
    }
    origin.start();
    let jobs = [origin.export(&json!({})), origin.export(&json!({})), origin.export(&json!({}))];
    until("the first job is running", || {
        json_body(&origin.get(&format!("{JOBS_PATH}/{}", jobs[0])))["status"] == "running"
    });
    origin.kill();
    let listener = port.listen();
    let result = run_to_end(&mut origin.command(&[])).expect(8);
    assert!(result.stderr.contains("cannot listen"), "{}", result.stderr);
    drop(listener);
    // A process that another test is starting has a copy of the socket until its program runs.
    until("the port is free", || std::net::TcpStream::connect(&port.address).is_err());
    origin.start();
    assert_eq!(origin.wait_for_job(&jobs[1])["status"], "completed");
    assert_eq!(origin.wait_for_job(&jobs[2])["status"], "completed");
}

// Regression: a user who could write to the folder of a project had any file of the origin exported, by exchanging a
// listed file for a link.
#[test]
fn file_replaced_by_a_symlink_during_a_partial_export_is_not_followed() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    const SECRET: &str = "the secret of another organization";
    let mut origin = TestOrigin::with_folder_project();
    let [file, link] = ["site/a.css", "site/.link"].map(|name| origin.path(name));
    // The file has the length of the secret, so that the length does not show the exchange.
    std::fs::write(&file, "x".repeat(SECRET.len())).unwrap();
    std::fs::write(origin.path("secret"), SECRET).unwrap();
    std::os::unix::fs::symlink(origin.path("secret"), &link).unwrap();
    origin.start();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                renameat_with(CWD, &file, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
        });
        let contents: Vec<Option<Vec<u8>>> = (0..40)
            .map(|_| {
                let job = origin.export(&json!({ "paths": ["/"] }));
                let is_completed = origin.wait_for_job(&job)["status"] == "completed";
                is_completed.then(|| support::http::gunzip(&get(origin.address(), &origin.link(&job)).body))
            })
            .collect();
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        for content in contents.into_iter().flatten() {
            let has_secret = content.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
            assert!(!has_secret, "the secret was exported");
        }
    });
    // Without exchanges, the export works.
    if file.is_symlink() {
        std::fs::rename(&link, &file).unwrap();
    }
    let bundle = origin.bundle(&origin.export(&json!({ "paths": ["/"] })));
    assert_eq!(origin.files(&bundle), ["a.css", "index.html"]);
}

#[test]
fn second_origin_with_the_same_state_folder_exits_8() {
    let mut origin = TestOrigin::with_folder_project();
    origin.start();
    let result = run_to_end(&mut origin.command(&["--listen", "127.0.0.1:0"])).expect(8);
    let lines: Vec<&str> = result.stderr.lines().collect();
    let [log, error] = lines[..] else { panic!("not two lines: {}", result.stderr) };
    assert!(log.contains("waiting up to 10 s"), "{log}");
    assert!(error.starts_with("docwharf: another origin is using "), "{error}");
}

// Regression: any local user could keep an origin from starting by a lock on a file that everybody could open.
#[test]
fn origin_lock_and_state_are_private_and_an_existing_lock_gets_mode_0600() {
    let mut origin = TestOrigin::with_folder_project();
    let lock = origin.path("state/lock");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    origin.start();
    assert_eq!(mode(&lock), 0o600);
    // Builds that run as another user pass through these folders, and can list none of them.
    for (name, expected) in [
        ("state", 0o711),
        ("state/bundles", 0o700),
        ("state/work", 0o711),
        ("state/previews", 0o711),
        ("state/origin.db", 0o600),
    ] {
        assert_eq!(mode(&origin.path(name)), expected, "{name}");
    }
    origin.kill();
    std::fs::set_permissions(&lock, PermissionsExt::from_mode(0o644)).unwrap();
    origin.start();
    assert_eq!(mode(&lock), 0o600, "an earlier docwharf made it readable by everybody");
}

#[test]
fn errors_in_origin_toml_name_their_line_or_key() {
    let origin = TestOrigin::with_folder_project();
    for (file, message) in [
        ("x = 1\n", "origin.toml:2:1: there is no key x"),
        ("[store]\n", "origin.toml:2:2: store.path is missing"),
        ("# no [store]\n[server]\n", "store.path is missing"),
        ("[store]\npath = \"s\"\n", "there is nothing to serve"),
        (
            &FOLDER_PROJECT.replace("directory = \"site\"", "") as &str,
            "origin.toml:6:1: project \"docs\" needs one of directory, git and crawl",
        ),
        (&FOLDER_PROJECT.replace("docs.acme.example", "https://x/"), "domain: a domain is a host name only"),
        (&FOLDER_PROJECT.replace("directory", "branch = \"x\"\ndirectory"), "it is for projects with git ="),
        (
            &format!("{FOLDER_PROJECT}[[organization.project]]\nid = \"docs\"\ndomain = \"b\"\ndirectory = \"s\"\n"),
            "is defined twice",
        ),
        (
            &format!(
                "{FOLDER_PROJECT}[[organization]]\nid = \"globex\"\n[[organization.project]]\nid = \"docs\"\ndomain = \"b\"\n\
                 directory = \"s\"\n"
            ),
            "ids must be unique in all organizations",
        ),
        (&FOLDER_PROJECT.replace("directory = \"site\"", "crawl = \"ftp://x/\""), "ftp is not http or https"),
        (
            &format!("[limits.total]\nrow = 5\n{FOLDER_PROJECT}"),
            "there is no key limits.total.row; did you mean limits.total.rows?",
        ),
        (&format!("[limits.organization]\nrows = \"5\"\n{FOLDER_PROJECT}"), "limits.organization.rows: write a number"),
        (&format!("[limits.organization]\nlinks = 0\n{FOLDER_PROJECT}"), "limits.organization.links: at least 1"),
        (
            &format!("[limits.organization]\nlinks = 9\n[limits.total]\nlinks = 5\n{FOLDER_PROJECT}"),
            "origin.toml:4:1: limits.organization.links: the value is more than limits.total.links",
        ),
        (
            &format!("[exports]\nworkers = 1\n[limits.total]\nworkers = 3\n{FOLDER_PROJECT}"),
            "exports.workers: limits.total.workers has another value",
        ),
    ] {
        let store = if file.contains("[store]") { "" } else { "[store]\npath = \"state\"\n" };
        let first_line = if store.is_empty() { "\n" } else { "" };
        std::fs::write(
            origin.path("origin.toml"),
            format!("{first_line}{store}{file}").replacen("[store]\npath = \"state\"\nx", "\nx", 1),
        )
        .unwrap();
        let result = run_to_end(&mut origin.command(&[])).expect(2);
        assert!(result.stderr.contains(message), "{file}: {}", result.stderr);
    }
    let result = run_to_end(docwharf().arg("origin")).expect(2);
    assert!(result.stderr.contains("--config origin.toml"), "{}", result.stderr);
}

#[test]
fn origin_serves_the_api_over_tls_with_https_links() {
    let authority = support::tls::CertificateAuthority::new();
    let issued = authority.issue(&["localhost"]);
    let server =
        "[server]\nlisten = []\n[tls]\ncertFile = \"cert.pem\"\nkeyFile = \"key.pem\"\nlisten = [\"127.0.0.1:0\"]\n";
    let mut origin = TestOrigin::with_server_section(server, FOLDER_PROJECT);
    write_site(&origin.path("site"), &[("index.html", "<p>home")]);
    std::fs::write(origin.path("cert.pem"), &issued.certificate).unwrap();
    std::fs::write(origin.path("key.pem"), &issued.key).unwrap();
    std::fs::write(origin.path("ca.pem"), authority.pem()).unwrap();
    let daemon = Daemon::start(&mut origin.command(&[]));
    let port = daemon.address.rsplit(':').next().unwrap();
    let host = Host::bare()
        .set("api.baseUrl", format!("\"https://localhost:{port}/v1\""))
        .set("api.domain", "\"docs.acme.example\"")
        .set("api.keyFile", "\"key\"")
        .set("api.caFile", format!("\"{}\"", origin.path("ca.pem").display()))
        .set("sync.probe", "[]");
    host.put("key", &origin.key);
    host.sync();
    assert!(host.active().is_some());
    origin.daemon = Some(daemon);
}
