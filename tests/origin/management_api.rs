//! The whole management API, by the real program: organizations, keys, jobs that outlive it, searches.

use serde_json::{Value, json};
use support::host::Host;
use support::http::{get, request};
use support::hub::{FOLDER, Hub, JOBS, commit, data, error, git, repository};
use support::{Daemon, ReservedPort, docwharf, end, until, write_site};

/// Acme with a folder, umbrella with another.
pub(crate) const TWO: &str = "[[organization]]\nid = \"acme\"\n[[organization.project]]\nid = \"docs\"\n\
                   domain = \"docs.acme.example\"\ndirectory = \"site\"\n\
                   [[organization]]\nid = \"umbrella\"\n[[organization.project]]\nid = \"secrets\"\n\
                   domain = \"docs.umbrella.example\"\ndirectory = \"other\"\n";

fn two() -> (Hub, String) {
    let mut hub = Hub::new(TWO);
    write_site(&hub.path("site"), &[("index.html", "<p>acme")]);
    write_site(&hub.path("other"), &[("index.html", "<p>umbrella")]);
    let key = hub.create("umbrella", "all", &[]);
    hub.start();
    (hub, key)
}

/// A host whose upstream is this origin.
fn agent(hub: &Hub) -> Host {
    let host = Host::bare()
        .set("api.baseUrl", format!("\"http://{}/v1\"", hub.address()))
        .set("api.domain", "\"docs.acme.example\"")
        .set("api.projectId", "\"docs\"")
        .set("api.keyFile", "\"key\"");
    host.put("key", &hub.key);
    host
}

// ---------------------------------------------------------------------------------------------------------------------
// Static exports

#[test]
fn the_typical_sequence_of_an_export_start_poll_link_download_and_a_fresh_link_later() {
    let mut hub = Hub::of_folder();
    hub.start();
    let answer = hub.post(JOBS, &json!({ "domain": "docs.acme.example" }));
    assert_eq!((answer.status, answer.header("content-type")), (202, Some("application/json")));
    let job = data(&answer);
    for field in ["jobId", "status", "progress", "pageCount", "createdAt", "updatedAt", "error"] {
        assert!(job.get(field).is_some(), "{field} is missing: {job}");
    }
    let id = job["jobId"].as_str().unwrap();
    let ended = hub.ended(id);
    assert_eq!(
        (&ended["status"], &ended["progress"], &ended["pageCount"]),
        (&json!("completed"), &json!(100), &json!(2))
    );
    let first = data(&hub.ask(&hub.key, "POST", &format!("{JOBS}/{id}/bundle"), None));
    assert!(first["expiresAt"].as_str().unwrap().ends_with('Z') && first["sizeBytes"].as_u64().unwrap() > 0, "{first}");
    let bundle = hub.bundle(id);
    assert_eq!((bundle.status, bundle.body.len() as u64), (200, first["sizeBytes"].as_u64().unwrap()));
    assert_eq!(hub.files(&bundle), ["a.css", "guides/start.html", "index.html"]);
    assert_eq!(hub.bundle(id).body, bundle.body, "the job stays usable");
}

#[test]
fn an_agent_brings_in_what_an_origin_exports() {
    let mut hub = Hub::of_folder();
    hub.start();
    let host = agent(&hub).set("sync.probe", "[]");
    host.sync();
    let daemon = host.run();
    assert_eq!(get(&daemon.address, "/guides/start").text(), "<p>start");
}

#[test]
fn an_export_has_the_version_and_the_pages_that_were_asked_for() {
    let mut hub = Hub::of_folder();
    write_site(&hub.path("site"), &[("guides/other.html", "<p>other"), ("404.html", "<p>no")]);
    hub.start();
    let id = hub.export(&json!({ "version": "1.4", "paths": ["/guides/start"] }));
    assert_eq!(data(&hub.get(&format!("{JOBS}/{id}")))["version"], "1.4");
    let bundle = hub.bundle(&id);
    assert_eq!(hub.files(&bundle), ["404.html", "a.css", "guides/start.html"]);
    let id = hub.export(&json!({ "paths": ["/guides/start", "/nowhere"] }));
    let failed = hub.ended(&id);
    assert_eq!(failed["status"], "failed");
    assert!(failed["error"].as_str().unwrap().contains("/nowhere: there is no such page"), "{failed}");
    for (body, says) in [
        (json!({ "domain": "docs.acme.example", "paths": [] }), "at least one"),
        (json!({ "domain": "docs.acme.example", "paths": ["guides"] }), "begins with /"),
        (json!({ "domain": "docs.acme.example/" }), "without a path"),
        (json!({ "domain": "elsewhere.example" }), "not served here"),
        (json!({}), "domain is missing"),
        (json!([]), "no JSON object"),
    ] {
        let answer = hub.post(JOBS, &body);
        assert_eq!(answer.status, 400, "{body}");
        assert!(error(&answer).contains(says), "{body}: {}", answer.text());
    }
}

#[test]
fn what_a_project_may_not_do_is_403() {
    let hub = &mut Hub::new(&FOLDER.replace("directory", "exports = false\ndirectory"));
    write_site(&hub.path("site"), &[("index.html", "<p>home")]);
    hub.start();
    let answer = hub.post(JOBS, &json!({ "domain": "docs.acme.example" }));
    assert_eq!(answer.status, 403);
    assert!(error(&answer).contains("exports"), "{}", answer.text());
    let answer = hub.post("/v1/project/preview/docs", &json!({ "branch": "main" }));
    assert_eq!(answer.status, 403);
    assert!(error(&answer).contains("previews"), "{}", answer.text());
}

/// An operator may have put a backup there.
#[test]
fn what_is_no_bundle_among_the_bundles_is_left_alone_and_keeps_nothing_from_starting() {
    let mut hub = Hub::of_folder();
    hub.start();
    let job = hub.export(&json!({}));
    let bundle = hub.bundle(&job);
    hub.kill();
    let bundles = hub.path("state/bundles");
    write_site(&bundles, &[("backup/old.tar.gz", "old"), ("notes.txt", "notes"), ("se_0123456789abcdef.zip", "left")]);
    hub.start();
    assert!(bundles.join("backup/old.tar.gz").exists() && bundles.join("notes.txt").exists());
    assert!(!bundles.join("se_0123456789abcdef.zip").exists(), "a bundle that no job names goes");
    assert!(hub.log().contains("bundles/backup is not a bundle of any job"), "{}", hub.log());
    assert_eq!(hub.bundle(&job).body, bundle.body);
}

#[test]
fn jobs_links_and_keys_outlive_the_process() {
    let mut hub = Hub::of_folder();
    hub.start();
    let job = hub.export(&json!({}));
    let bundle = hub.bundle(&job);
    let link = hub.link(&job);
    let before = data(&hub.get(&format!("{JOBS}/{job}")));
    hub.kill();
    hub.start();
    assert_eq!(data(&hub.get(&format!("{JOBS}/{job}"))), before);
    assert_eq!(get(hub.address(), &link).body, bundle.body, "a link of before still works");
    assert_eq!(hub.bundle(&job).body, bundle.body);
}

#[test]
fn a_job_that_was_under_way_when_the_origin_was_killed_has_failed_and_those_that_waited_are_done() {
    let mut hub = Hub::new(&format!("[exports]\nworkers = 1\n{FOLDER}"));
    for n in 0..40 {
        let text = support::text(200_000);
        write_site(&hub.path("site"), &[(&format!("p{n}.html"), &text)]);
    }
    hub.start();
    let (first, second) = (hub.export(&json!({})), hub.export(&json!({})));
    until("it is under way", || data(&hub.get(&format!("{JOBS}/{first}")))["status"] == "running");
    hub.kill();
    hub.start();
    let ended = hub.ended(&first);
    assert_eq!(ended["status"], "failed");
    assert!(ended["error"].as_str().unwrap().contains("stopped while"), "{ended}");
    assert_eq!(hub.ended(&second)["status"], "completed");
    let made: Vec<_> = std::fs::read_dir(hub.path("state/bundles")).unwrap().collect();
    assert_eq!(
        (made.len(), std::fs::read_dir(hub.path("state/work")).unwrap().count()),
        (1, 0),
        "nothing half-done stays"
    );
}

#[test]
fn only_so_many_bundles_are_kept_and_each_project_keeps_its_newest() {
    let mut hub = Hub::new(&FOLDER.replacen("[[", "[exports]\nkeep = 2\nlinkLifetime = \"1s\"\n[[", 1));
    write_site(&hub.path("site"), &[("index.html", "<p>home")]);
    hub.start();
    let first = hub.export(&json!({}));
    hub.ended(&first);
    let (mut newest, mut made) = (first.clone(), 1);
    until("the first is forgotten", || {
        newest = hub.export(&json!({}));
        hub.ended(&newest);
        made += 1;
        hub.get(&format!("{JOBS}/{first}")).status == 404
    });
    assert_eq!(hub.bundle(&newest).status, 200);
    let files = std::fs::read_dir(hub.path("state/bundles")).unwrap().count();
    assert!(files < made, "{files} of {made}");
}

#[test]
fn a_job_stays_as_long_as_a_link_to_its_bundle_works_and_for_as_long_after_its_end() {
    let mut hub = Hub::new(&FOLDER.replacen("[[", "[exports]\nkeep = 1\nlinkLifetime = \"1h\"\n[[", 1));
    write_site(&hub.path("site"), &[("index.html", "<p>home")]);
    hub.start();
    let first = hub.export(&json!({}));
    hub.ended(&first);
    let link = hub.link(&first);
    for _ in 0..3 {
        hub.ended(&hub.export(&json!({})));
    }
    assert_eq!((get(hub.address(), &link).status, hub.bundle(&first).status), (200, 200));
}

// ---------------------------------------------------------------------------------------------------------------------
// Keys and organizations

#[test]
fn a_key_is_seen_once_and_works_until_it_is_revoked_or_over() {
    let mut hub = Hub::of_folder();
    hub.start();
    let status = |hub: &Hub, key: &str, method: &str| hub.ask(key, method, &format!("{JOBS}/x"), None).status;
    let reads = hub.create("acme", "ci", &["--scope", "read", "--expires", "1h"]);
    let over = hub.create("acme", "old", &["--expires", "1s"]);
    let post = hub.ask(&reads, "POST", JOBS, Some(&json!({ "domain": "docs.acme.example" })));
    assert_eq!((status(&hub, &reads, "GET"), post.status), (404, 403));
    assert!(error(&post).contains("may only read"), "{}", post.text());
    until("it is over", || status(&hub, &over, "GET") == 401);
    let listed = hub.ok(&["key", "list"]).stdout;
    assert!(listed.contains(&reads[..11]) && listed.contains("acme  ci") && !listed.contains(&reads[12..]), "{listed}");
    hub.ok(&["key", "revoke", "acme", "ci"]);
    let answer = hub.ask(&reads, "GET", &format!("{JOBS}/x"), None);
    assert_eq!(answer.status, 401, "at once, while the origin runs");
    assert!(!error(&answer).is_empty());
    let state = std::fs::read(hub.path("state/origin.db-wal")).unwrap_or_default();
    assert!(memchr::memmem::find(&state, &reads.as_bytes()[12..]).is_none(), "only its digest is kept");
    assert!(!hub.log().contains(&hub.key[12..]));
    let wrong = end(&mut hub.command(&["key", "create", "nobody", "x"])).expect(2);
    assert!(wrong.stderr.contains("no organization"), "{}", wrong.stderr);
    let wrong = end(&mut hub.command(&["key", "revoke", "acme", "ci"])).expect(2);
    assert!(wrong.stderr.contains("no key called"), "{}", wrong.stderr);
}

// ---------------------------------------------------------------------------------------------------------------------
// Search analytics

pub(crate) fn searches(query: &str, n: usize, day: u8) -> Vec<Value> {
    let event = |n| json!({ "query": query, "time": format!("2026-11-{day:02}T10:{n:02}:00Z"), "clickedPage": "/guides/start" });
    (0..n).map(event).collect()
}

#[test]
fn searches_are_counted_ordered_and_dated_as_the_api_says_and_our_own_client_reads_them() {
    let mut hub = Hub::of_folder();
    hub.start();
    let mut events = searches("moat", 3, 1);
    events.extend(searches("tide", 5, 2));
    events.extend(searches("bridge", 3, 3));
    let batch = json!({ "batchId": "b1", "events": events });
    let answer = hub.post("/v1/analytics/docs/searches", &batch);
    assert_eq!((answer.status, &data(&answer)["accepted"]), (200, &json!(11)), "{}", answer.text());
    let again = data(&hub.post("/v1/analytics/docs/searches", &batch));
    assert_eq!((&again["duplicate"], &again["accepted"]), (&json!(true), &json!(11)), "{again}");
    let all = data(&hub.get("/v1/analytics/docs/searches"));
    let terms: Vec<&str> =
        all["searches"].as_array().unwrap().iter().map(|s| s["searchQuery"].as_str().unwrap()).collect();
    assert_eq!(
        (terms, &all["totalSearches"], &all["nextCursor"]),
        (vec!["tide", "bridge", "moat"], &json!(11), &Value::Null)
    );
    let tide = &all["searches"][0];
    assert_eq!((&tide["hits"], &tide["topClickedPage"]), (&json!(5), &json!("/guides/start")), "{tide}");
    assert_eq!(tide["lastSearchedAt"], "2026-11-02T10:04:00Z");
    let until_second = data(&hub.get("/v1/analytics/docs/searches?dateFrom=2026-11-01&dateTo=2026-11-02"));
    assert_eq!(until_second["totalSearches"], 3, "dateTo is exclusive: {until_second}");
    let first = data(&hub.get("/v1/analytics/docs/searches?limit=2"));
    // What arrives between two pages moves nobody.
    let more = json!({ "batchId": "b2", "events": searches("moat", 9, 4) });
    assert_eq!(hub.post("/v1/analytics/docs/searches", &more).status, 200);
    let cursor = first["nextCursor"].as_str().unwrap();
    let second = data(&hub.get(&format!("/v1/analytics/docs/searches?limit=2&cursor={cursor}")));
    assert_eq!(
        (&second["searches"][0]["searchQuery"], &second["totalSearches"]),
        (&json!("moat"), &json!(11)),
        "{second}"
    );
    for wrong in
        ["limit=0", "limit=101", "limit=x", "dateFrom=yesterday", "cursor=x", "dateFrom=2026-11-02&dateTo=2026-11-01"]
    {
        let answer = hub.get(&format!("/v1/analytics/docs/searches?{wrong}"));
        assert_eq!(answer.status, 400, "{wrong}");
        assert!(!data(&answer)["details"][0]["message"].as_str().unwrap().is_empty(), "{wrong}: {}", answer.text());
    }
    let host = agent(&hub);
    let read = host.ok(&["analytics", "searches", "--json"]).stdout;
    assert!(read.contains("moat") && read.contains("tide"), "{read}");
}

#[test]
fn an_organization_has_a_hundred_questions_an_hour_and_is_told_when_to_come_back() {
    let (hub, umbrella) = two();
    for n in 0..100 {
        let answer = hub.get("/v1/analytics/docs/searches?limit=1");
        assert_eq!(answer.status, 200, "the {n}th: {}", answer.text());
    }
    let answer = hub.get("/v1/analytics/docs/searches");
    assert_eq!(answer.status, 429);
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=3600).contains(&wait), "{wait}");
    assert_eq!(hub.ask(&umbrella, "GET", "/v1/analytics/secrets/searches", None).status, 200, "others have their own");
}

#[test]
fn searches_from_a_csv_file_count_once_however_often_it_is_imported() {
    let mut hub = Hub::of_folder();
    hub.start();
    let csv = "query,time,clickedPage\ntide,2026-11-01T10:00:00Z,/guides/start\n\"a, b\",2026-11-02T10:00:00Z,\n";
    std::fs::write(hub.path("s.csv"), csv).unwrap();
    let file = hub.path("s.csv");
    for _ in 0..2 {
        hub.ok(&["import-searches", "docs", file.to_str().unwrap()]);
    }
    let all = data(&hub.get("/v1/analytics/docs/searches"));
    assert_eq!(all["totalSearches"], 2, "{all}");
    std::fs::write(hub.path("s.csv"), "query,time\ntide,tomorrow\n").unwrap();
    let wrong = end(&mut hub.command(&["import-searches", "docs", file.to_str().unwrap()])).expect(2);
    assert!(wrong.stderr.contains("line 2"), "{}", wrong.stderr);
    assert_eq!(wrong.stderr.lines().count(), 1, "{}", wrong.stderr);
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill_and_nothing_is_counted_twice() {
    let mut hub = Hub::of_folder();
    hub.start();
    let batch = |n: u32| json!({ "batchId": format!("b{n}"), "events": searches("tide", 2, 1) });
    let acknowledged = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        let (hub, acknowledged) = (&hub, &acknowledged);
        let sending = scope.spawn(move || {
            for n in 0..10_000 {
                let target = "/v1/analytics/docs/searches";
                let body = batch(n).to_string();
                let head = format!(
                    "POST {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n{body}",
                    hub.key,
                    body.len()
                );
                let Ok(mut stream) = std::net::TcpStream::connect(hub.address()) else { return };
                let _ = std::io::Write::write_all(&mut stream, head.as_bytes());
                let mut answer = Vec::new();
                let _ = std::io::Read::read_to_end(&mut stream, &mut answer);
                if !answer.starts_with(b"HTTP/1.1 200") || !answer.ends_with(b"}") {
                    return;
                }
                acknowledged.store(n + 1, std::sync::atomic::Ordering::SeqCst);
            }
        });
        until("some are in", || acknowledged.load(std::sync::atomic::Ordering::SeqCst) > 20);
        hub.daemon.as_ref().unwrap().signal("KILL");
        sending.join().unwrap();
    });
    hub.kill_quietly();
    hub.start();
    let known = acknowledged.into_inner();
    let total = data(&hub.get("/v1/analytics/docs/searches"))["totalSearches"].as_u64().unwrap();
    assert!(
        total == u64::from(known) * 2 || total == u64::from(known + 1) * 2,
        "{known} batches of 2, and {total} searches"
    );
    // The client cannot know about the one whose answer was lost: it sends it again.
    assert_eq!(hub.post("/v1/analytics/docs/searches", &batch(known)).status, 200);
    let total = data(&hub.get("/v1/analytics/docs/searches"))["totalSearches"].as_u64().unwrap();
    assert_eq!(total, u64::from(known + 1) * 2);
}

// ---------------------------------------------------------------------------------------------------------------------
// Previews

const GIT: &str = "[previews]\nsweep = \"1s\"\n[[organization]]\nid = \"acme\"\n[[organization.project]]\nid = \"docs\"\n\
                   domain = \"docs.acme.example\"\ngit = \"repo\"\n";

/// Starts a deployment; its id and where its preview is.
#[track_caller]
pub(crate) fn deploy(hub: &Hub, branch: &str) -> (String, String) {
    let answer = hub.post("/v1/project/preview/docs", &json!({ "branch": branch }));
    assert_eq!(answer.status, 202, "{}", answer.text());
    let told = data(&answer);
    (told["statusId"].as_str().unwrap().to_owned(), told["previewUrl"].as_str().unwrap().to_owned())
}

/// The deployment once it has ended.
#[track_caller]
pub(crate) fn deployed(hub: &Hub, id: &str) -> Value {
    let mut last = Value::Null;
    until("the deployment ends", || {
        last = data(&hub.get(&format!("/v1/project/update-status/{id}")));
        last["status"] == "success" || last["status"] == "failure"
    });
    last
}

#[test]
fn a_preview_of_a_branch_is_created_changed_deployed_again_at_its_address_and_gone_with_the_branch() {
    let mut hub = Hub::new(GIT);
    let repo = hub.path("repo");
    repository(&repo, &[("index.html", "<p>production <a href=\"guide\">guide</a>"), ("guide.html", "<p>guide")]);
    git(&repo, &["checkout", "-q", "-b", "feature/tide"]);
    commit(&repo, &[("index.html", "<p>tide <a href=\"guide\">guide</a> <a href=\"/gone\">gone</a>")], "high water");
    hub.start();
    hub.ended(&hub.export(&json!({})));
    let (id, url) = deploy(&hub, "feature/tide");
    assert_eq!(url, format!("http://{}/preview/docs/feature-tide/", hub.address()));
    let told = deployed(&hub, &id);
    assert_eq!(told["status"], "success", "{told}");
    for field in
        ["_id", "projectId", "createdAt", "endedAt", "summary", "logs", "subdomain", "author", "commit", "source"]
    {
        assert!(!told[field].is_null(), "{field} is missing: {told}");
    }
    assert_eq!((&told["commit"]["ref"], &told["commit"]["message"]), (&json!("feature/tide"), &json!("high water")));
    assert_eq!(told["commit"]["filesChanged"]["modified"], json!(["index.html"]));
    assert!(told["summary"].as_str().unwrap().contains("/gone"), "a link that production does not have: {told}");
    let page = get(hub.address(), "/preview/docs/feature-tide/");
    assert!(page.status == 200 && page.text().starts_with("<p>tide"), "{}", page.text());
    assert_eq!(page.header("x-robots-tag"), Some("noindex"));
    assert_eq!(get(hub.address(), "/preview/docs/feature-tide/guide").text(), "<p>guide");

    commit(&repo, &[("index.html", "<p>ebb")], "low water");
    let (again, same) = deploy(&hub, "feature/tide");
    assert_ne!(again, id);
    assert_eq!(same, url, "deployed again, not twice");
    deployed(&hub, &again);
    assert_eq!(get(hub.address(), "/preview/docs/feature-tide/").text(), "<p>ebb");

    hub.kill();
    hub.start();
    assert_eq!(get(hub.address(), "/preview/docs/feature-tide/").text(), "<p>ebb", "it outlives the process");
    git(&repo, &["checkout", "-q", "main"]);
    git(&repo, &["branch", "-q", "-D", "feature/tide"]);
    until("it is gone with its branch", || get(hub.address(), "/preview/docs/feature-tide/").status == 404);
}

#[test]
fn a_preview_has_a_host_of_its_own_where_there_is_a_name_for_it() {
    let mut hub = Hub::new(&GIT.replace("sweep", "host = \"preview.acme.example\"\nsweep"));
    repository(&hub.path("repo"), &[("index.html", "<p>home")]);
    hub.start();
    let (id, url) = deploy(&hub, "main");
    let port = hub.address().rsplit(':').next().unwrap();
    assert_eq!(url, format!("http://main.preview.acme.example:{port}/"));
    deployed(&hub, &id);
    let at = |host: &str, target: &str| {
        let text = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        support::http::parse(&support::http::raw(hub.address(), text.as_bytes()), false)
    };
    assert_eq!(at(&format!("main.preview.acme.example:{port}"), "/").text(), "<p>home");
    assert_eq!(at("MAIN.preview.acme.example", "/v1/static-export/jobs").status, 404, "it is the preview's own");
    assert_eq!(at("other.preview.acme.example", "/").status, 404);
    assert_eq!(at("preview.acme.example", "/openapi.json").status, 200);
}

#[test]
fn previews_are_refused_as_the_api_says_and_five_a_minute_for_an_organization() {
    let mut hub = Hub::new(GIT);
    repository(&hub.path("repo"), &[("index.html", "<p>home")]);
    hub.start();
    for (body, status) in [(json!({}), 400), (json!({ "branch": "" }), 400), (json!({ "branch": "a..b" }), 400)] {
        let answer = hub.post("/v1/project/preview/docs", &body);
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        assert!(!error(&answer).is_empty());
    }
    let (id, _) = deploy(&hub, "nothing");
    let (_, _) = deploy(&hub, "main");
    let answer = hub.post("/v1/project/preview/docs", &json!({ "branch": "main" }));
    assert_eq!(answer.status, 429);
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    let told = deployed(&hub, &id);
    assert_eq!(told["status"], "failure");
    assert!(told["summary"].as_str().unwrap().contains("nothing"), "{told}");
}

#[test]
fn a_deployment_that_was_under_way_when_the_origin_was_killed_says_so_and_the_branch_can_be_deployed_again() {
    let mut hub = Hub::new(
        &GIT.replace("git =", "build = \"while [ ! -e done ]; do sleep 0.1; done\"\nallowUntrusted = true\ngit ="),
    );
    let repo = hub.path("repo");
    repository(&repo, &[("index.html", "<p>home")]);
    hub.start();
    let (id, _) = deploy(&hub, "main");
    until("it is being built", || {
        data(&hub.get(&format!("/v1/project/update-status/{id}")))["status"] == "in_progress"
    });
    hub.kill();
    hub.start();
    let told = deployed(&hub, &id);
    assert_eq!(told["status"], "failure", "{told}");
    assert!(told["summary"].as_str().unwrap().contains("stopped"), "{told}");
    commit(&repo, &[("done", "")], "done");
    let (id, _) = deploy(&hub, "main");
    assert_eq!(deployed(&hub, &id)["status"], "success");
}

#[test]
fn a_site_is_exported_from_a_repository_with_a_build_that_sees_no_secret() {
    let file = GIT.replace(
        "git =",
        "build = \"mkdir -p out && env >out/index.html && ls /root /home >>out/index.html 2>&1 || true\"\n\
                                     output = \"out\"\nallowUntrusted = true\ngit =",
    );
    let mut hub = Hub::new(&file);
    repository(&hub.path("repo"), &[("page.md", "# home")]);
    let log = std::fs::File::create(hub.path("log")).unwrap();
    hub.daemon = Some(Daemon::start(hub.command(&["-vv"]).env("SOME_TOKEN", "s3cret").stderr(log)));
    let bundle = hub.bundle(&hub.export(&json!({})));
    assert_eq!(hub.files(&bundle), ["index.html"]);
    let page = std::fs::read_to_string(hub.path("unpacked/index.html")).unwrap();
    assert!(page.contains("PATH=") && !page.contains("s3cret"), "{page}");
    assert!(get(hub.address(), "/sites/docs.acme.example/sitemap.xml").text().contains("head of the branch"));
}

#[test]
fn every_command_that_asks_an_api_works_with_an_origin() {
    let mut hub = Hub::new(GIT);
    repository(&hub.path("repo"), &[("index.html", "<p>home")]);
    hub.start();
    let host = agent(&hub);
    let job = host.ok(&["export", "start", "--version", "1.4", "--json"]).json();
    let id = job["jobId"].as_str().unwrap_or_else(|| panic!("{job}")).to_owned();
    hub.ended(&id);
    assert!(host.ok(&["export", "status", &id]).stdout.contains("completed"));
    assert!(host.ok(&["export", "link", &id]).stdout.contains("/bundles/"));
    let bundle = host.path("b.tar.gz");
    host.ok(&["export", "download", &id, "-o", bundle.to_str().unwrap()]);
    host.ok(&["bundle", "verify", bundle.to_str().unwrap()]);
    let created = host.ok(&["preview", "create", "--branch", "main", "--wait"]);
    assert!(created.stdout.contains("/preview/docs/main/"), "{}", created.stdout);
    let batch = json!({ "batchId": "b", "events": searches("tide", 3, 1) });
    assert_eq!(hub.post("/v1/analytics/docs/searches", &batch).status, 200);
    let csv = host.ok(&["analytics", "searches", "--all", "--from", "2026-10-01", "--format", "csv"]).stdout;
    assert!(csv.contains("tide"), "{csv}");
    let report = host.ok(&["analytics", "report", "--from", "2026-10-01", "--to", "2026-11-30"]).stdout;
    assert!(report.contains("tide"), "{report}");
    // What is printed as CSV goes back in as what it was.
    std::fs::write(hub.path("again.csv"), &csv).unwrap();
    hub.ok(&["import-searches", "docs", hub.path("again.csv").to_str().unwrap()]);
    assert_eq!(data(&hub.get("/v1/analytics/docs/searches"))["searches"][0]["hits"], 6);
    // The head of the branch is what a probe sees.
    let host = host.set("sync.probe", format!("[\"http://{}/sites/docs.acme.example/sitemap.xml\"]", hub.address()));
    host.sync();
    let first = host.active();
    assert_eq!(host.sync(), "already current", "the head is where it was");
    commit(&hub.path("repo"), &[("index.html", "<p>changed")], "changed");
    // Heads are asked for every few seconds, not by everybody.
    until("the change is seen", || {
        host.sync();
        host.active() != first
    });
}

// ---------------------------------------------------------------------------------------------------------------------
// A server like any other

#[test]
fn the_description_of_the_interface_needs_no_key_and_names_every_endpoint_of_the_api() {
    let mut hub = Hub::of_folder();
    hub.start();
    let answer = get(hub.address(), "/openapi.json");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    let document = data(&answer);
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
fn health_and_metrics_are_told_on_an_address_of_their_own() {
    let mut hub = Hub::with("[server]\nlisten = [\"127.0.0.1:0\"]\n[admin]\nlisten = [\"127.0.0.1:0\"]\n", FOLDER);
    write_site(&hub.path("site"), &[("index.html", "<p>home")]);
    hub.start();
    hub.ended(&hub.export(&json!({})));
    let log = hub.log();
    let admin = log.split("health and metrics are at http://").nth(1).and_then(|rest| rest.split('/').next()).unwrap();
    assert_eq!((get(admin, "/livez").status, get(admin, "/readyz").status), (200, 200));
    let metrics = get(admin, "/metrics").text();
    assert!(metrics.contains("docwharf_origin_jobs{state=\"completed\"} 1"), "{metrics}");
    assert!(
        metrics.contains("docwharf_origin_requests_total{operation=\"startExport\",status=\"2xx\"} 1"),
        "{metrics}"
    );
    assert_eq!(get(hub.address(), "/metrics").status, 404, "not for everybody");
    assert_eq!(get(hub.address(), "/readyz").status, 200);
    assert_eq!(request(admin, "POST", "/livez", &[]).status, 405);
    // Where no bundle can be kept, no balancer is to send exports.
    let bundles = hub.path("state/bundles");
    std::fs::rename(&bundles, hub.path("aside")).unwrap();
    assert_eq!((get(admin, "/readyz").status, get(admin, "/livez").status), (503, 200));
    std::fs::rename(hub.path("aside"), &bundles).unwrap();
    assert_eq!(get(admin, "/readyz").status, 200);
}

#[test]
fn a_request_without_a_host_or_with_two_is_refused() {
    let mut hub = Hub::of_folder();
    hub.start();
    for hosts in ["", "Host: a\r\nHost: a\r\n", "Host: a b\r\n"] {
        let text = format!("GET /openapi.json HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n");
        let answer = support::http::parse(&support::http::raw(hub.address(), text.as_bytes()), false);
        assert_eq!(answer.status, 400, "{hosts:?}");
    }
}

#[test]
fn readers_of_a_sitemap_who_go_away_leave_one_question_to_its_repository_and_not_one_each() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let repository = format!("http://{}/x.git", listener.local_addr().unwrap());
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&asked);
    // Takes connections, and says nothing.
    std::thread::spawn(move || {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept() {
            held.push(stream);
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    });
    let mut hub = Hub::new(&GIT.replace("\"repo\"", &format!("\"{repository}\"")));
    hub.start();
    let target = "/sites/docs.acme.example/sitemap.xml";
    for _ in 0..20 {
        let mut stream = std::net::TcpStream::connect(hub.address()).unwrap();
        std::io::Write::write_all(&mut stream, format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        until("the repository is asked", || asked.load(std::sync::atomic::Ordering::SeqCst) > 0);
    }
    let answer = get(hub.address(), target);
    assert_eq!(answer.status, 503, "it waits a while, and then has no answer");
    assert!(answer.header("retry-after").is_some());
    assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[test]
fn a_start_that_fails_takes_no_job_that_waits() {
    let port = ReservedPort::new();
    let server = format!("[server]\nlisten = [{:?}]\n", port.address);
    let mut hub = Hub::with(&server, &format!("[exports]\nworkers = 1\n{FOLDER}"));
    for n in 0..40 {
        write_site(&hub.path("site"), &[(&format!("p{n}.html"), &support::text(200_000))]);
    }
    hub.start();
    let jobs = [hub.export(&json!({})), hub.export(&json!({})), hub.export(&json!({}))];
    until("the first is under way", || data(&hub.get(&format!("{JOBS}/{}", jobs[0])))["status"] == "running");
    hub.kill();
    let other = port.listen();
    let ended = end(&mut hub.command(&[])).expect(8);
    assert!(ended.stderr.contains("cannot listen"), "{}", ended.stderr);
    drop(other);
    hub.start();
    assert_eq!(hub.ended(&jobs[1])["status"], "completed");
    assert_eq!(hub.ended(&jobs[2])["status"], "completed");
}

#[test]
fn two_origins_do_not_work_in_one_folder() {
    let mut hub = Hub::of_folder();
    hub.start();
    let ended = end(&mut hub.command(&["--listen", "127.0.0.1:0"])).expect(8);
    assert!(ended.stderr.contains("another origin"), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
}

#[test]
fn every_mistake_in_the_file_is_told_with_its_line() {
    let hub = Hub::of_folder();
    for (file, says) in [
        ("x = 1\n", "origin.toml:2:1: there is no key x"),
        ("[store]\n", "origin.toml:2:2: store.path is missing"),
        ("# no [store]\n[server]\n", "store.path is missing"),
        ("[store]\npath = \"s\"\n", "there is nothing to serve"),
        (
            &FOLDER.replace("directory = \"site\"", "") as &str,
            "origin.toml:6:1: project \"docs\" needs one of directory, git and crawl",
        ),
        (&FOLDER.replace("docs.acme.example", "https://x/"), "domain: a domain is a host name only"),
        (&FOLDER.replace("directory", "branch = \"x\"\ndirectory"), "it is for projects with git ="),
        (
            &format!("{FOLDER}[[organization.project]]\nid = \"docs\"\ndomain = \"b\"\ndirectory = \"s\"\n"),
            "is there twice",
        ),
        (
            &format!(
                "{FOLDER}[[organization]]\nid = \"globex\"\n[[organization.project]]\nid = \"docs\"\ndomain = \"b\"\n\
                 directory = \"s\"\n"
            ),
            "ids count for all organizations",
        ),
        (&FOLDER.replace("directory = \"site\"", "crawl = \"ftp://x/\""), "ftp is not http or https"),
        (
            &format!("[limits.total]\nrow = 5\n{FOLDER}"),
            "there is no key limits.total.row; did you mean limits.total.rows?",
        ),
        (&format!("[limits.organization]\nrows = \"5\"\n{FOLDER}"), "limits.organization.rows: write a number"),
        (&format!("[limits.organization]\nlinks = 0\n{FOLDER}"), "limits.organization.links: at least 1"),
        (
            &format!("[limits.organization]\nlinks = 9\n[limits.total]\nlinks = 5\n{FOLDER}"),
            "origin.toml:4:1: limits.organization.links: it is more than all together",
        ),
        (
            &format!("[exports]\nworkers = 1\n[limits.total]\nworkers = 3\n{FOLDER}"),
            "exports.workers: limits.total.workers has another value",
        ),
    ] {
        let store = if file.contains("[store]") { "" } else { "[store]\npath = \"state\"\n" };
        let at = if store.is_empty() { "\n" } else { "" };
        std::fs::write(
            hub.path("origin.toml"),
            format!("{at}{store}{file}").replacen("[store]\npath = \"state\"\nx", "\nx", 1),
        )
        .unwrap();
        let ended = end(&mut hub.command(&[])).expect(2);
        assert!(ended.stderr.contains(says), "{file}: {}", ended.stderr);
    }
    let ended = end(docwharf().arg("origin")).expect(2);
    assert!(ended.stderr.contains("--config origin.toml"), "{}", ended.stderr);
}

#[test]
fn the_api_is_served_encrypted_with_links_that_say_so() {
    let authority = support::tls::Authority::new();
    let issued = authority.issue(&["localhost"]);
    let server =
        "[server]\nlisten = []\n[tls]\ncertFile = \"cert.pem\"\nkeyFile = \"key.pem\"\nlisten = [\"127.0.0.1:0\"]\n";
    let mut hub = Hub::with(server, FOLDER);
    write_site(&hub.path("site"), &[("index.html", "<p>home")]);
    std::fs::write(hub.path("cert.pem"), &issued.certificate).unwrap();
    std::fs::write(hub.path("key.pem"), &issued.key).unwrap();
    std::fs::write(hub.path("ca.pem"), authority.pem()).unwrap();
    let daemon = Daemon::start(&mut hub.command(&[]));
    let port = daemon.address.rsplit(':').next().unwrap();
    let host = Host::bare()
        .set("api.baseUrl", format!("\"https://localhost:{port}/v1\""))
        .set("api.domain", "\"docs.acme.example\"")
        .set("api.keyFile", "\"key\"")
        .set("api.caFile", format!("\"{}\"", hub.path("ca.pem").display()))
        .set("sync.probe", "[]");
    host.put("key", &hub.key);
    host.sync();
    assert!(host.active().is_some());
    hub.daemon = Some(daemon);
}
