//! One organization uses as much as its limits allow, and the jobs of another one are completed.

use super::*;

use docwharf::origin::resource_pools::ResourcePools;
use docwharf::origin::{OriginLimits, SharedResource};
use serde_json::json;
use support::test_origin::{FOLDER_PROJECT, JOBS_PATH, TestOrigin, git, json_body, repository};
use support::write_site;

const PREVIEW_PATH: &str = "/v1/project/preview";
const STATUS_PATH: &str = "/v1/project/update-status";
/// Keeps a processor busy for longer than any test takes.
const SPINNING_BUILD: &str = "while :; do :; done";

/// Waits for a condition. The timeout is long because builds have the lowest priority. No job of acme ends before
/// it.
#[track_caller]
fn until(what: &str, condition: impl FnMut() -> bool) {
    support::until_within(Duration::from_mins(8), what, condition);
}

#[track_caller]
fn queue(origin: &TestOrigin, key: &str, domain: &str) -> String {
    let response = origin.send_request(key, "POST", JOBS_PATH, Some(&json!({ "domain": domain })));
    assert_eq!(response.status, 202, "{}", response.text());
    json_body(&response)["jobId"].as_str().expect("an id").to_owned()
}

fn status(origin: &TestOrigin, key: &str, job: &str) -> String {
    json_body(&origin.send_request(key, "GET", &format!("{JOBS_PATH}/{job}"), None))["status"]
        .as_str()
        .expect("a status")
        .to_owned()
}

#[track_caller]
fn preview(origin: &TestOrigin, key: &str, project: &str, branch: &str) -> String {
    let response =
        origin.send_request(key, "POST", &format!("{PREVIEW_PATH}/{project}"), Some(&json!({ "branch": branch })));
    assert_eq!(response.status, 202, "{}", response.text());
    json_body(&response)["statusId"].as_str().expect("an id").to_owned()
}

/// Starts a server that sends just fast enough that no timeout ends the response, until the test ends.
fn start_slow_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let head = "HTTP/1.1 200 x\r\nContent-Length: 60000000\r\nContent-Type: text/html\r\n\r\n";
                let mut result = stream.write_all(head.as_bytes());
                while result.is_ok() {
                    std::thread::sleep(Duration::from_millis(200));
                    result = stream.write_all(&[b' '; 2048]);
                }
            });
        }
    });
    url
}

#[test]
fn slow_jobs_of_one_organization_do_not_block_exports_and_previews_of_another() {
    let script = "/_next/static/".repeat((4 << 20) / 14);
    let scripts = TestServer::start(move |target, _| match target {
        "/" => html("<script src=/a.js></script>"),
        "/a.js" => with_type("text/javascript", script.clone()),
        _ => not_found(),
    });
    let file = ALL
        .replace("DRIPS", &start_slow_server())
        .replace("SCRIPTS", &scripts.url("/"))
        .replace("BUILD", SPINNING_BUILD);
    // The keys of `[limits]` are at their defaults.
    let mut origin = TestOrigin::new(&file);
    std::fs::set_permissions(origin.dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("the permissions can be set");
    write_site(&origin.path("folder"), &[("index.html", "<p>umbrella")]);
    repository(&origin.path("branches"), &[("index.html", "<p>branch")]);
    repository(&origin.path("spins"), &[("index.html", "<p>spin")]);
    for n in 0..4 {
        git(&origin.path("spins"), &["branch", &format!("b{n}")]);
    }
    let (acme, umbrella) = (origin.key.clone(), origin.create_key("umbrella", "all", &[]));
    origin.start();
    let mut hostile: Vec<String> = Vec::new();
    for _ in 0..3 {
        for name in ["drips", "scripts", "spins"] {
            hostile.push(queue(&origin, &acme, &format!("{name}.acme.example")));
        }
    }
    let previews: Vec<String> = (0..4).map(|n| preview(&origin, &acme, "spins", &format!("b{n}"))).collect();
    until("the first job of acme is running", || status(&origin, &acme, &hostile[0]) == "running");

    for _ in 0..2 {
        let export = queue(&origin, &umbrella, "docs.umbrella.example");
        let built = queue(&origin, &umbrella, "branches.umbrella.example");
        let shown = preview(&origin, &umbrella, "branches", "main");
        for job in [&export, &built] {
            until("the export of umbrella is completed", || status(&origin, &umbrella, job) == "completed");
        }
        until("the preview of umbrella is served", || {
            let deployment = json_body(&origin.send_request(&umbrella, "GET", &format!("{STATUS_PATH}/{shown}"), None));
            assert_ne!(deployment["status"], "failure", "{deployment}");
            deployment["status"] == "success"
        });
    }
    // No job of acme had to end for that.
    assert_eq!(status(&origin, &acme, &hostile[0]), "running");
    assert!(
        hostile[1..].iter().all(|job| status(&origin, &acme, job) == "queued"),
        "one worker is reserved for other organizations"
    );
    let under_way = |id: &&String| {
        let deployment = json_body(&origin.send_request(&acme, "GET", &format!("{STATUS_PATH}/{id}"), None));
        !matches!(deployment["status"].as_str(), Some("success" | "failure"))
    };
    assert_eq!(previews.iter().filter(under_way).count(), previews.len());
}

#[test]
fn crawls_of_an_organization_share_its_crawl_address_limit() {
    let server = TestServer::start(|target, _| match target {
        "/" => html((0..100).map(|n| format!("<a href=/{n}>")).collect::<Vec<_>>().concat()),
        _ => html("x"),
    });
    let limits =
        OriginLimits::from_config(|resource| (resource == SharedResource::CrawlAddresses).then_some(150), |_| None);
    let pools = ResourcePools::new(limits.expect("limits"), 2);
    let other = JobContext::with_shares(Arc::clone(&pools), "acme");
    other.hold_share(SharedResource::CrawlAddresses, 100).expect("a share");
    let dir = temporary_folder();
    let context = JobContext::with_shares(Arc::clone(&pools), "acme");
    let error = crawl(&crawl_source(&server.url("/")), None, dir.path(), &context).expect_err("no copy");
    assert!(matches!(error, CrawlError::Share { resource: SharedResource::CrawlAddresses, .. }), "{error:?}");
    assert!(error.to_string().contains("crawlAddresses"), "{error}");
    other.release_shares();
    context.release_shares();
    let dir = temporary_folder();
    crawl(&crawl_source(&server.url("/")), None, dir.path(), &context).expect("a copy");
    let address_count = pools.pool(SharedResource::CrawlAddresses).in_use();
    assert!((100..=150).contains(&address_count), "{address_count}");
}

// Regression: any client learned the internal address of a crawled site from its sitemap.
#[test]
fn sitemap_response_does_not_reveal_the_url_of_a_crawled_site() {
    let url = "http://127.0.0.1:21012/";
    let mut origin = TestOrigin::new(&FOLDER_PROJECT.replace("directory = \"site\"", &format!("crawl = \"{url}\"")));
    origin.start();
    let response = support::http::get(origin.address(), "/sites/docs.acme.example/sitemap.xml");
    assert_eq!(response.status, 404);
    assert!(!response.text().contains("21012") && !response.text().contains("127.0.0.1"), "{}", response.text());
}
