//! Every route of an origin × whoever may ask there: no key, a wrong one, one that may read, one that may write, one of
//! another organization, one that was revoked; about what there is, and about what there is not. The routes are those
//! that the origin itself knows, so that a route without a case here fails.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::management_api::{TWO, deploy, deployed};
use support::http::{Response, get, parse, raw};
use support::hub::{Hub, data, error, repository};
use support::write_site;

const ADMIN: &str = "[server]\nlisten = [\"127.0.0.1:0\"]\n[admin]\nlisten = [\"127.0.0.1:0\"]\n";
const UPDATE: &str = "/v1/project/update-status";

/// Acme with a repository, which has previews, a job and a deployment that have ended; umbrella with a folder.
struct Stand {
    hub: Hub,
    /// Of acme, one each.
    reads: String,
    revoked: String,
    /// Of umbrella.
    umbrella: String,
    umbrella_reads: String,
    job: String,
    deployment: String,
}

impl Stand {
    fn new() -> Stand {
        let mut hub = Hub::with(ADMIN, &TWO.replace("directory = \"site\"", "git = \"repo\""));
        repository(&hub.path("repo"), &[("index.html", "<p>acme")]);
        write_site(&hub.path("other"), &[("index.html", "<p>umbrella")]);
        let reads = hub.create("acme", "reads", &["--scope", "read"]);
        let revoked = hub.create("acme", "revoked", &[]);
        let umbrella = hub.create("umbrella", "all", &[]);
        let umbrella_reads = hub.create("umbrella", "reads", &["--scope", "read"]);
        hub.start();
        assert_eq!(hub.ask(&revoked, "GET", &format!("{UPDATE}/x"), None).status, 404, "it works until it is revoked");
        hub.ok(&["key", "revoke", "acme", "revoked"]);
        let job = hub.export(&json!({}));
        assert_eq!(hub.ended(&job)["status"], "completed");
        let (deployment, _) = deploy(&hub, "main");
        assert_eq!(deployed(&hub, &deployment)["status"], "success");
        Stand { hub, reads, revoked, umbrella, umbrella_reads, job, deployment }
    }

    /// What there is of acme's, by numbers that no refusal may change.
    fn numbers(&self) -> Vec<String> {
        let metrics = get(&self.hub.admin_address(), "/metrics").text();
        let is_number = |line: &&str| {
            ["docwharf_origin_jobs{", "docwharf_origin_previews ", "docwharf_origin_searches_total "]
                .iter()
                .any(|name| line.starts_with(name))
        };
        let numbers: Vec<String> = metrics.lines().filter(is_number).map(str::to_owned).collect();
        assert!(numbers.len() >= 3, "{metrics}");
        numbers
    }
}

/// Every route of the interface with its method, as in `get /v1/static-export/jobs/{jobId}`.
fn routes(hub: &Hub) -> Vec<String> {
    let document = data(&get(hub.address(), "/openapi.json"));
    let paths = document["paths"].as_object().expect("paths").iter();
    let methods = |methods: &Value| methods.as_object().expect("methods").keys().cloned().collect::<Vec<_>>();
    paths.flat_map(|(path, all)| methods(all).into_iter().map(move |method| format!("{method} {path}"))).collect()
}

/// A route, and what it is asked about.
struct Case<'a> {
    route: &'static str,
    /// What is answered to a key of acme that may write.
    status: u16,
    /// Something of acme's, and something of the same form that nobody has. It stands in the path, or is the domain in
    /// the body where the path has no place for it.
    own: &'a str,
    nobodys: &'a str,
    body: Option<Value>,
}

impl Case<'_> {
    fn method(&self) -> String {
        self.route.split(' ').next().unwrap_or_default().to_uppercase()
    }

    fn target(&self, id: &str) -> String {
        let path = self.route.split(' ').nth(1).expect("a method and a path");
        let Some((begin, rest)) = path.split_once('{') else { return path.to_owned() };
        format!("{begin}{id}{}", rest.split_once('}').expect("a name in braces").1)
    }

    /// Asks about `id` with this key, if there is one.
    fn ask(&self, hub: &Hub, key: Option<&str>, method: &str, id: &str) -> Response {
        let body = if self.route.contains('{') { self.body.clone() } else { Some(json!({ "domain": id })) };
        let body = body.filter(|_| method == "POST").map(|body| body.to_string()).unwrap_or_default();
        let key = key.map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default();
        let text = format!(
            "{method} {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{key}Content-Length: {}\r\n\r\n{body}",
            self.target(id),
            body.len()
        );
        parse(&raw(hub.address(), text.as_bytes()), method == "HEAD")
    }

    /// What is refused whoever it is about: without a key that works, or without the scope.
    fn refuses(&self, stand: &Stand, id: &str) {
        let (hub, method, route) = (&stand.hub, self.method(), self.route);
        let wrong = nobodys(&hub.key);
        for key in [None, Some(""), Some("x"), Some(wrong.as_str()), Some(stand.revoked.as_str())] {
            let answer = self.ask(hub, key, &method, id);
            assert_eq!(answer.status, 401, "{route} with {key:?}: {}", answer.text());
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{route} with {key:?}");
        }
        for key in [&stand.reads, &stand.umbrella_reads] {
            if method == "POST" {
                let answer = self.ask(hub, Some(key), &method, id);
                assert_eq!(answer.status, 403, "{route} with a key that may only read: {}", answer.text());
                assert!(error(&answer).contains("may only read"), "{route}: {}", answer.text());
            }
        }
        // A method that the route does not have is refused to strangers as any other.
        for method in ["DELETE", "PUT", "PATCH"] {
            assert_eq!(self.ask(hub, None, method, id).status, 401, "{method} {route}");
            assert_eq!(self.ask(hub, Some(&stand.reads), method, id).status, 403, "{method} {route}");
            let answer = self.ask(hub, Some(&hub.key), method, id);
            let allowed = answer.header("allow").unwrap_or_default();
            assert!(answer.status == 405 && allowed.contains(&self.method()), "{method} {route}: {}", answer.text());
        }
    }

    /// What acme has is there for acme, and for nobody else; nobody can tell it from what there is not.
    fn separates(&self, stand: &Stand) {
        let (hub, method, route) = (&stand.hub, self.method(), self.route);
        let missing = if route.contains('{') { 404 } else { 400 };
        let absent = self.ask(hub, Some(&hub.key), &method, self.nobodys);
        assert_eq!(absent.status, missing, "{route} about what nobody has: {}", absent.text());
        let umbrellas = [&stand.umbrella, &stand.umbrella_reads];
        for key in umbrellas.into_iter().take(if method == "POST" { 1 } else { 2 }) {
            let theirs = self.ask(hub, Some(key), &method, self.own);
            let nobodys = self.ask(hub, Some(key), &method, self.nobodys);
            let absent = words(&absent, self.nobodys);
            assert_eq!(words(&theirs, self.own), absent, "{route}: what another organization has is told of");
            assert_eq!(words(&nobodys, self.nobodys), absent, "{route}");
        }
    }

    fn answers(&self, stand: &Stand) {
        let (hub, method, route) = (&stand.hub, self.method(), self.route);
        let answer = self.ask(hub, Some(&hub.key), &method, self.own);
        assert_eq!(answer.status, self.status, "{route}: {}", answer.text());
        if method == "GET" {
            let same = self.ask(hub, Some(&stand.reads), &method, self.own);
            assert_eq!((same.status, same.text()), (answer.status, answer.text()), "{route} with a key that may read");
            let head = self.ask(hub, Some(&stand.reads), "HEAD", self.own);
            assert_eq!(head.status, answer.status, "{route} with HEAD");
            let stranger = self.ask(hub, Some(&stand.umbrella), "HEAD", self.own);
            assert_eq!(stranger.status, 404, "{route} with HEAD, of another organization");
        }
    }
}

/// An answer, in words that do not depend on what it is about.
fn words(answer: &Response, id: &str) -> (u16, String) {
    (answer.status, answer.text().replace(id, "…"))
}

/// An id, a key or a signature of the same form that nobody has.
fn nobodys(id: &str) -> String {
    let last = if id.ends_with('0') { "1" } else { "0" };
    format!("{}{last}", &id[..id.len() - 1])
}

#[test]
fn each_route_answers_its_own_organization_and_no_other() {
    let stand = Stand::new();
    let batch = json!({ "batchId": "b", "events": [{ "query": "moat", "time": "2026-11-01T10:00:00Z" }] });
    let (no_job, no_deployment) = (nobodys(&stand.job), nobodys(&stand.deployment));
    let of = |route, status, own, nobodys, body| Case { route, status, own, nobodys, body };
    let branch = json!({ "branch": "main" });
    let cases = [
        of("post /v1/project/preview/{projectId}", 202, "docs", "nobody", Some(branch)),
        of("get /v1/project/update-status/{statusId}", 200, &stand.deployment, &no_deployment, None),
        of("post /v1/static-export/jobs", 202, "docs.acme.example", "nobody.example", None),
        of("get /v1/static-export/jobs/{jobId}", 200, &stand.job, &no_job, None),
        of("post /v1/static-export/jobs/{jobId}/bundle", 200, &stand.job, &no_job, None),
        of("get /v1/analytics/{projectId}/searches", 200, "docs", "nobody", None),
        of("post /v1/analytics/{projectId}/searches", 200, "docs", "nobody", Some(batch)),
    ];
    let known: BTreeSet<&str> = cases.iter().map(|case| case.route).collect();
    let all = routes(&stand.hub);
    assert_eq!(all.iter().map(String::as_str).collect::<BTreeSet<_>>(), known, "each route has a case here");

    let before = stand.numbers();
    for case in &cases {
        case.refuses(&stand, case.own);
        case.refuses(&stand, case.nobodys);
        case.separates(&stand);
    }
    assert_eq!(stand.numbers(), before, "nothing that was refused was done");
    for case in &cases {
        case.answers(&stand);
    }
    // What is no route is nothing to strangers, not even that.
    let nowhere = Case { route: "get /v1/{nothing}", status: 404, own: "nothing", nobodys: "nothing", body: None };
    assert_eq!(nowhere.ask(&stand.hub, None, "GET", "nothing").status, 401);
    assert_eq!(nowhere.ask(&stand.hub, Some(&stand.hub.key), "GET", "nothing").status, 404);
    let theirs = stand.hub.ask(&stand.umbrella, "GET", "/v1/analytics/secrets/searches", None);
    assert_eq!(data(&theirs)["totalSearches"], 0);
}

/// The literal parts of the addresses that a file of the origin's source distinguishes: in the patterns of the lines
/// that begin so.
fn literals(file: &str, begins: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/origin/src").join(file);
    let text = std::fs::read_to_string(path).expect("a source file");
    let patterns = text.lines().map(str::trim).filter(|line| line.starts_with(begins) && line.contains("=>"));
    let patterns: Vec<&str> = patterns.filter_map(|line| line.split("=>").next()).collect();
    patterns.iter().flat_map(|pattern| pattern.split('"').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// An address without a key, and the status of its answers to GET: alone, and with a key.
type Open = (String, u16, u16);

#[test]
fn addresses_outside_of_v1_answer_everybody_alike_and_links_take_no_key() {
    let stand = Stand::new();
    let hub = &stand.hub;
    let link = hub.link(&stand.job);
    let (path, query) = link.split_once('?').expect("a signed link");
    let no_job = path.replace(&stand.job, &nobodys(&stand.job));
    let altered = format!("{path}?{}", nobodys(query));
    let open = |target: &str, status: u16| -> Open { (target.to_owned(), status, status) };
    let on_api: Vec<Open> = vec![
        // A link is the only proof. Whoever sends a key to it would send it to a storage service as well.
        (link.clone(), 200, 400),
        (path.to_owned(), 403, 400),
        (altered, 403, 400),
        (format!("{no_job}?{query}"), 403, 400),
        open("/sites/docs.acme.example/sitemap.xml", 200),
        open("/sites/docs.umbrella.example/sitemap.xml", 200),
        open("/sites/nobody.example/sitemap.xml", 404),
        open("/openapi.json", 200),
        open("/livez", 200),
        open("/readyz", 200),
        open("/preview/docs/main/", 200),
        open("/preview/docs/nothing/", 404),
        open("/preview/secrets/main/", 404),
        open("/preview/nobody/main/", 404),
        // Those of the other listener, and what is nowhere.
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
    // What the origin distinguishes has a case above.
    let known = |cases: &[Open]| -> BTreeSet<String> {
        let parts =
            cases.iter().filter(|(_, status, _)| *status == 200).flat_map(|(target, ..)| target.split(['/', '?']));
        parts.map(str::to_owned).collect()
    };
    let mut parts = known(&on_api);
    parts.insert("v1".to_owned());
    for (file, begins, parts) in [("routes.rs", "[\"", parts), ("admin.rs", "\"/", known(&on_admin))] {
        let found = literals(file, begins);
        assert!(found.len() >= 3, "{file}: {found:?}");
        let missing: Vec<&String> = found.iter().filter(|part| !parts.contains(part.trim_start_matches('/'))).collect();
        assert!(missing.is_empty(), "{file}: no case is about {missing:?}");
    }

    let admin = stand.hub.admin_address();
    let keys = [&hub.key, &stand.reads, &stand.umbrella, &stand.revoked].map(String::as_str);
    for (address, cases) in [(hub.address(), &on_api), (admin.as_str(), &on_admin)] {
        for (target, alone, with_key) in cases {
            let ask = |method: &str, field: &str| {
                let text = format!("{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{field}\r\n");
                parse(&raw(address, text.as_bytes()), method == "HEAD")
            };
            let plain = ask("GET", "");
            assert_eq!(plain.status, *alone, "{target}: {}", plain.text());
            assert_eq!(ask("HEAD", "").status, *alone, "HEAD {target}");
            for key in keys {
                let answer = ask("GET", &format!("Authorization: Bearer {key}\r\n"));
                assert_eq!(answer.status, *with_key, "{target} with a key: {}", answer.text());
            }
            if *alone == 200 {
                assert_eq!(ask("POST", "Content-Length: 0\r\n").status, 405, "POST {target}");
            }
        }
    }
}
