//! Every route of an origin with every kind of client: without a key, with a wrong key, a read-only key, a key that may
//! write, a key of another organization and a revoked key; for objects that exist and for objects that do not. The list
//! of routes is read from the `OpenAPI` document of the origin, so a route without a case in this file fails the test.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::management_api::{TWO_ORGANIZATIONS, deploy, wait_for_deployment};
use support::http::{Response, get, parse, send_bytes};
use support::test_origin::{TestOrigin, error_message, json_body, repository};
use support::write_site;

const SERVER_SECTION: &str = "[server]\nlisten = [\"127.0.0.1:0\"]\n[admin]\nlisten = [\"127.0.0.1:0\"]\n";
const STATUS_PATH: &str = "/v1/project/update-status";

/// An origin with two organizations: acme with a repository, an ended job and an ended deployment; umbrella with a
/// folder.
struct RoutesFixture {
    origin: TestOrigin,
    /// Keys of acme.
    read_key: String,
    revoked_key: String,
    /// Keys of umbrella.
    umbrella_key: String,
    umbrella_read_key: String,
    job: String,
    deployment: String,
}

impl RoutesFixture {
    fn new() -> RoutesFixture {
        let mut origin = TestOrigin::with_server_section(
            SERVER_SECTION,
            &TWO_ORGANIZATIONS.replace("directory = \"site\"", "git = \"repo\""),
        );
        repository(&origin.path("repo"), &[("index.html", "<p>acme")]);
        write_site(&origin.path("other"), &[("index.html", "<p>umbrella")]);
        let read_key = origin.create_key("acme", "reads", &["--scope", "read"]);
        let revoked_key = origin.create_key("acme", "revoked", &[]);
        let umbrella_key = origin.create_key("umbrella", "all", &[]);
        let umbrella_read_key = origin.create_key("umbrella", "reads", &["--scope", "read"]);
        origin.start();
        assert_eq!(
            origin.send_request(&revoked_key, "GET", &format!("{STATUS_PATH}/x"), None).status,
            404,
            "the key works until it is revoked"
        );
        origin.ok(&["key", "revoke", "acme", "revoked"]);
        let job = origin.export(&json!({}));
        assert_eq!(origin.wait_for_job(&job)["status"], "completed");
        let (deployment, _) = deploy(&origin, "main");
        assert_eq!(wait_for_deployment(&origin, &deployment)["status"], "success");
        RoutesFixture { origin, read_key, revoked_key, umbrella_key, umbrella_read_key, job, deployment }
    }

    /// Returns the metrics that a refused request must not change.
    fn object_metrics(&self) -> Vec<String> {
        let metrics = get(&self.origin.admin_address(), "/metrics").text();
        let is_object_metric = |line: &&str| {
            let names = [
                "docwharf_origin_jobs{",
                "docwharf_origin_previews ",
                "docwharf_origin_searches_total ",
                "docwharf_origin_views_total ",
            ];
            names.iter().any(|name| line.starts_with(name))
        };
        let numbers: Vec<String> = metrics.lines().filter(is_object_metric).map(str::to_owned).collect();
        assert!(numbers.len() >= 4, "{metrics}");
        numbers
    }
}

/// Every route of the interface with its method, as in `get /v1/static-export/jobs/{jobId}`.
fn routes(origin: &TestOrigin) -> Vec<String> {
    let document = json_body(&get(origin.address(), "/openapi.json"));
    let paths = document["paths"].as_object().expect("paths").iter();
    let methods = |methods: &Value| methods.as_object().expect("methods").keys().cloned().collect::<Vec<_>>();
    paths.flat_map(|(path, all)| methods(all).into_iter().map(move |method| format!("{method} {path}"))).collect()
}

/// A test case: a route, and the objects that requests name.
struct RouteCase<'a> {
    route: &'static str,
    /// Status of the response for a key of acme that may write.
    status: u16,
    /// Id of an object of acme, and an id of the same form that does not exist. The id is in the path, or it is the
    /// domain in the body if the path has no parameter.
    own_id: &'a str,
    absent_id: &'a str,
    body: Option<Value>,
}

impl RouteCase<'_> {
    fn method(&self) -> String {
        self.route.split(' ').next().unwrap_or_default().to_uppercase()
    }

    fn target(&self, id: &str) -> String {
        let path = self.route.split(' ').nth(1).expect("a method and a path");
        let Some((begin, rest)) = path.split_once('{') else { return path.to_owned() };
        format!("{begin}{id}{}", rest.split_once('}').expect("a name in braces").1)
    }

    /// Sends a request for `id`, with this key if there is one.
    fn send(&self, origin: &TestOrigin, key: Option<&str>, method: &str, id: &str) -> Response {
        let body = if self.route.contains('{') { self.body.clone() } else { Some(json!({ "domain": id })) };
        let body = body.filter(|_| method == "POST").map(|body| body.to_string()).unwrap_or_default();
        let key = key.map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default();
        let text = format!(
            "{method} {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{key}Content-Length: {}\r\n\r\n{body}",
            self.target(id),
            body.len()
        );
        parse(&send_bytes(origin.address(), text.as_bytes()), method == "HEAD")
    }

    /// Asserts that a request is refused without a valid key, and without the scope, whatever the id.
    fn assert_authentication(&self, fixture: &RoutesFixture, id: &str) {
        let (origin, method, route) = (&fixture.origin, self.method(), self.route);
        let wrong = change_last_character(&origin.key);
        for key in [None, Some(""), Some("x"), Some(wrong.as_str()), Some(fixture.revoked_key.as_str())] {
            let response = self.send(origin, key, &method, id);
            assert_eq!(response.status, 401, "{route} with {key:?}: {}", response.text());
            assert_eq!(response.header("www-authenticate"), Some("Bearer"), "{route} with {key:?}");
        }
        for key in [&fixture.read_key, &fixture.umbrella_read_key] {
            if method == "POST" {
                let response = self.send(origin, Some(key), &method, id);
                assert_eq!(response.status, 403, "{route} with a key that may only read: {}", response.text());
                assert!(error_message(&response).contains("may only read"), "{route}: {}", response.text());
            }
        }
        // A request with a method that the route does not have is authenticated like any other.
        for method in ["DELETE", "PUT", "PATCH"] {
            assert_eq!(self.send(origin, None, method, id).status, 401, "{method} {route}");
            assert_eq!(self.send(origin, Some(&fixture.read_key), method, id).status, 403, "{method} {route}");
            let response = self.send(origin, Some(&origin.key), method, id);
            let allowed = response.header("allow").unwrap_or_default();
            assert!(
                response.status == 405 && allowed.contains(&self.method()),
                "{method} {route}: {}",
                response.text()
            );
        }
    }

    /// Asserts that an object of acme and an object that does not exist have the same response for other organizations.
    fn assert_separation(&self, fixture: &RoutesFixture) {
        let (origin, method, route) = (&fixture.origin, self.method(), self.route);
        let missing = if route.contains('{') { 404 } else { 400 };
        let absent = self.send(origin, Some(&origin.key), &method, self.absent_id);
        assert_eq!(absent.status, missing, "{route} for an id that does not exist: {}", absent.text());
        let umbrella_keys = [&fixture.umbrella_key, &fixture.umbrella_read_key];
        for key in umbrella_keys.into_iter().take(if method == "POST" { 1 } else { 2 }) {
            let existing = self.send(origin, Some(key), &method, self.own_id);
            let other_absent = self.send(origin, Some(key), &method, self.absent_id);
            let absent = normalized(&absent, self.absent_id);
            assert_eq!(
                normalized(&existing, self.own_id),
                absent,
                "{route}: an object of another organization must look absent"
            );
            assert_eq!(normalized(&other_absent, self.absent_id), absent, "{route}");
        }
    }

    /// Asserts the response for the organization that owns the object.
    fn assert_response(&self, fixture: &RoutesFixture) {
        let (origin, method, route) = (&fixture.origin, self.method(), self.route);
        let response = self.send(origin, Some(&origin.key), &method, self.own_id);
        assert_eq!(response.status, self.status, "{route}: {}", response.text());
        if method == "GET" {
            let read_response = self.send(origin, Some(&fixture.read_key), &method, self.own_id);
            assert_eq!(
                (read_response.status, read_response.text()),
                (response.status, response.text()),
                "{route} with a key that may read"
            );
            let head = self.send(origin, Some(&fixture.read_key), "HEAD", self.own_id);
            assert_eq!(head.status, response.status, "{route} with HEAD");
            let other_organization = self.send(origin, Some(&fixture.umbrella_key), "HEAD", self.own_id);
            assert_eq!(other_organization.status, 404, "{route} with HEAD, of another organization");
        }
    }
}

/// Returns status and text of a response, with the id replaced.
fn normalized(response: &Response, id: &str) -> (u16, String) {
    (response.status, response.text().replace(id, "…"))
}

/// Returns an id, key or signature of the same form that does not exist.
fn change_last_character(id: &str) -> String {
    let other_digit = if id.ends_with('0') { "1" } else { "0" };
    format!("{}{other_digit}", &id[..id.len() - 1])
}

#[test]
fn each_v1_route_serves_only_objects_of_the_keys_organization() {
    let fixture = RoutesFixture::new();
    let batch = json!({ "batchId": "b", "events": [{ "query": "moat", "time": "2026-11-01T10:00:00Z" }] });
    let count = json!({ "day": "2026-11-01", "kind": "view", "key": "/moat", "human": 1 });
    let view_batch = json!({ "batchId": "b", "installation": "00112233445566ff", "counts": [count] });
    let (no_job, no_deployment) = (change_last_character(&fixture.job), change_last_character(&fixture.deployment));
    let case = |route, status, own_id, absent_id, body| RouteCase { route, status, own_id, absent_id, body };
    let branch = json!({ "branch": "main" });
    let cases = [
        case("post /v1/project/preview/{projectId}", 202, "docs", "absent", Some(branch)),
        case("get /v1/project/update-status/{statusId}", 200, &fixture.deployment, &no_deployment, None),
        case("post /v1/static-export/jobs", 202, "docs.acme.example", "absent.example", None),
        case("get /v1/static-export/jobs/{jobId}", 200, &fixture.job, &no_job, None),
        case("post /v1/static-export/jobs/{jobId}/bundle", 200, &fixture.job, &no_job, None),
        case("get /v1/analytics/{projectId}/searches", 200, "docs", "absent", None),
        case("post /v1/analytics/{projectId}/searches", 200, "docs", "absent", Some(batch)),
        case("get /v1/analytics/{projectId}/views", 200, "docs", "absent", None),
        case("post /v1/analytics/{projectId}/views", 200, "docs", "absent", Some(view_batch)),
        // The parameter `by` is missing.
        case("get /v1/analytics/{projectId}/pages", 400, "docs", "absent", None),
    ];
    let covered: BTreeSet<&str> = cases.iter().map(|case| case.route).collect();
    let all = routes(&fixture.origin);
    assert_eq!(all.iter().map(String::as_str).collect::<BTreeSet<_>>(), covered, "each route has a case");

    let before = fixture.object_metrics();
    for case in &cases {
        case.assert_authentication(&fixture, case.own_id);
        case.assert_authentication(&fixture, case.absent_id);
        case.assert_separation(&fixture);
    }
    assert_eq!(fixture.object_metrics(), before, "a refused request must have no effect");
    for case in &cases {
        case.assert_response(&fixture);
    }
    // A request for a path without a route is authenticated, too.
    let no_route =
        RouteCase { route: "get /v1/{nothing}", status: 404, own_id: "nothing", absent_id: "nothing", body: None };
    assert_eq!(no_route.send(&fixture.origin, None, "GET", "nothing").status, 401);
    assert_eq!(no_route.send(&fixture.origin, Some(&fixture.origin.key), "GET", "nothing").status, 404);
    let response = fixture.origin.send_request(&fixture.umbrella_key, "GET", "/v1/analytics/secrets/searches", None);
    assert_eq!(json_body(&response)["totalSearches"], 0);
}

/// Returns the string literals in the match patterns of a source file of the origin, on the lines that begin with
/// `prefix`.
fn pattern_literals(file: &str, prefix: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/origin/src").join(file);
    let text = std::fs::read_to_string(path).expect("a source file");
    let patterns = text.lines().map(str::trim).filter(|line| line.starts_with(prefix) && line.contains("=>"));
    let patterns: Vec<&str> = patterns.filter_map(|line| line.split("=>").next()).collect();
    patterns.iter().flat_map(|pattern| pattern.split('"').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// A target, and the status of a GET without a key and with one.
type OpenTarget = (String, u16, u16);

#[test]
fn routes_outside_v1_respond_the_same_with_any_key_and_links_refuse_keys() {
    let fixture = RoutesFixture::new();
    let origin = &fixture.origin;
    let link = origin.link(&fixture.job);
    let (path, query) = link.split_once('?').expect("a signed link");
    let no_job = path.replace(&fixture.job, &change_last_character(&fixture.job));
    let altered = format!("{path}?{}", change_last_character(query));
    let open = |target: &str, status: u16| -> OpenTarget { (target.to_owned(), status, status) };
    let on_api: Vec<OpenTarget> = vec![
        // A link is the only credential. A client that sends its key as well would send it to an object store, too.
        (link.clone(), 200, 400),
        (path.to_owned(), 403, 400),
        (altered, 403, 400),
        (format!("{no_job}?{query}"), 403, 400),
        open("/sites/docs.acme.example/sitemap.xml", 200),
        open("/sites/docs.umbrella.example/sitemap.xml", 200),
        open("/sites/absent.example/sitemap.xml", 404),
        open("/openapi.json", 200),
        open("/livez", 200),
        open("/readyz", 200),
        open("/preview/docs/main/", 200),
        open("/preview/docs/nothing/", 404),
        open("/preview/secrets/main/", 404),
        open("/preview/absent/main/", 404),
        // Targets of the other listener, and a target that does not exist.
        open("/metrics", 404),
        open("/status", 404),
        open("/", 404),
    ];
    let on_admin = vec![
        open("/livez", 200),
        open("/readyz", 200),
        open("/metrics", 200),
        open("/status", 404),
        open("/openapi.json", 404),
        open("/v1/static-export/jobs/x", 404),
        open(&link, 404),
        open("/preview/docs/main/", 404),
        open("/", 404),
    ];
    // Each path in the patterns of the origin's source has a case above.
    let covered_parts = |cases: &[OpenTarget]| -> BTreeSet<String> {
        let parts =
            cases.iter().filter(|(_, status, _)| *status == 200).flat_map(|(target, ..)| target.split(['/', '?']));
        parts.map(str::to_owned).collect()
    };
    let mut parts = covered_parts(&on_api);
    parts.insert("v1".to_owned());
    for (file, prefix, parts) in [("routes.rs", "[\"", parts), ("admin.rs", "\"/", covered_parts(&on_admin))] {
        let found = pattern_literals(file, prefix);
        assert!(found.len() >= 3, "{file}: {found:?}");
        let missing: Vec<&String> = found.iter().filter(|part| !parts.contains(part.trim_start_matches('/'))).collect();
        assert!(missing.is_empty(), "{file}: no case is about {missing:?}");
    }

    let admin = fixture.origin.admin_address();
    let keys = [&origin.key, &fixture.read_key, &fixture.umbrella_key, &fixture.revoked_key].map(String::as_str);
    for (address, cases) in [(origin.address(), &on_api), (admin.as_str(), &on_admin)] {
        for (target, without_key, with_key) in cases {
            let send = |method: &str, field: &str| {
                let text = format!("{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{field}\r\n");
                parse(&send_bytes(address, text.as_bytes()), method == "HEAD")
            };
            let without_key_response = send("GET", "");
            assert_eq!(without_key_response.status, *without_key, "{target}: {}", without_key_response.text());
            assert_eq!(send("HEAD", "").status, *without_key, "HEAD {target}");
            for key in keys {
                let response = send("GET", &format!("Authorization: Bearer {key}\r\n"));
                assert_eq!(response.status, *with_key, "{target} with a key: {}", response.text());
            }
            if *without_key == 200 {
                assert_eq!(send("POST", "Content-Length: 0\r\n").status, 405, "POST {target}");
            }
        }
    }
}
