//! Sites that try to use up the resources of a crawl: time, memory, the stack.

use super::*;

use serde_json::json;
use support::test_origin::{FOLDER_PROJECT, TestOrigin};
use support::{until_done_in_background, write_site};

/// Returns the configuration of two organizations: the site of acme is crawled, that of umbrella is a folder.
fn two_organizations(url: &str, head: &str) -> String {
    let crawl_into = FOLDER_PROJECT.replace("directory = \"site\"", &format!("crawl = \"{url}\""));
    format!(
        "{head}{crawl_into}[[organization]]\nid = \"umbrella\"\n[[organization.project]]\nid = \"folder\"\n\
         domain = \"docs.umbrella.example\"\ndirectory = \"folder\"\n"
    )
}

#[track_caller]
fn export_umbrella(origin: &TestOrigin, key: &str) {
    let response = origin.send_request(
        key,
        "POST",
        support::test_origin::JOBS_PATH,
        Some(&json!({ "domain": "docs.umbrella.example" })),
    );
    assert_eq!(response.status, 202, "{}", response.text());
    let id = support::test_origin::json_body(&response)["jobId"].as_str().expect("an id").to_owned();
    until_done_in_background("the export of umbrella is completed", || {
        let response = origin.send_request(key, "GET", &format!("{}/{id}", support::test_origin::JOBS_PATH), None);
        support::test_origin::json_body(&response)["status"] == "completed"
    });
}

// Regression: one crawled page of 2 MiB stopped the exports of all organizations for minutes, because the time of the
// script scanners was quadratic.
#[test]
fn hostile_script_does_not_delay_the_export_of_another_organization() {
    for piece in ["/_next/static/", "static/chunks/a", "static/chunks/\"+", "/_next/image\""] {
        let server = TestServer::start(move |target, _| match target {
            "/" => html(format!("<script src=/a.js></script>{}", piece.repeat((2 << 20) / piece.len()))),
            "/a.js" => with_type("text/javascript", piece.repeat((2 << 20) / piece.len())),
            _ => not_found(),
        });
        // One worker for both organizations, so that the export of umbrella waits for the crawl of acme.
        let mut origin = TestOrigin::new(&two_organizations(&server.url("/"), "[exports]\nworkers = 1\n"));
        write_site(&origin.path("folder"), &[("index.html", "<p>umbrella")]);
        let key = origin.create_key("umbrella", "all", &[]);
        origin.start();
        let hostile = origin.export(&json!({}));
        export_umbrella(&origin, &key);
        origin.wait_for_job(&hostile);
    }
}

/// Starts a server that sends its response a byte at a time, until the client closes the connection.
fn start_slow_server() -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let head = "HTTP/1.1 200 x\r\nContent-Length: 1000000\r\nContent-Type: text/html\r\n\r\n";
        stream.write_all(head.as_bytes()).expect("a head can be sent");
        while stream.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    (url, thread)
}

// Regression: a crawl of a server that answers one byte at a time occupied the only worker without end.
#[test]
fn crawl_of_a_slow_server_ends_after_max_duration() {
    let (url, server) = start_slow_server();
    let dir = temporary_folder();
    let source = CrawlSource { max_duration: Duration::from_secs(2), ..crawl_source(&url) };
    let error = crawl(&source, None, dir.path(), &JobContext::default()).expect_err("no copy");
    server.join().expect("the client closes the connection");
    assert!(matches!(error, CrawlError::Time { .. }), "{error:?}");
    assert!(error.to_string().contains("ended after 2 s"), "{error}");
}

// Regression: links that robots.txt forbids were stored in memory without a bound.
#[test]
fn links_disallowed_by_robots_txt_are_counted_and_not_stored() {
    let server = TestServer::start(|target, _| match target {
        "/robots.txt" => with_type("text/plain", "User-agent: *\nDisallow: /x"),
        "/" => html((0..100_000).map(|n| format!("<a href=/x{n}>")).collect::<Vec<_>>().concat()),
        _ => not_found(),
    });
    let dir = temporary_folder();
    let result = crawl_into(&server.url("/"), dir.path());
    let is_listed = |line: &&String| line.starts_with("robots.txt disallows /x") && line.ends_with("; / links to it");
    let listed = result.warnings.iter().filter(is_listed);
    assert_eq!(listed.count(), 20, "{:?}", result.warnings);
    assert!(result.warnings.iter().any(|line| line.ends_with("the targets of 100000 links")), "{:?}", result.warnings);
}

#[test]
fn crawl_limits_the_total_bytes_of_urls() {
    let long = "x".repeat(1900);
    let server = TestServer::start(move |target, _| match target {
        "/" => html((0..25_000).map(|n| format!("<a href=/?{long}{n}>")).collect::<Vec<_>>().concat()),
        _ => not_found(),
    });
    let dir = temporary_folder();
    let source = CrawlSource { max_files: 1_000_000, ..crawl_source(&server.url("/")) };
    let error = crawl(&source, None, dir.path(), &JobContext::default()).expect_err("no copy");
    assert!(matches!(error, CrawlError::AddressBytes { .. }), "{error:?}");
}

// Regression: chains of guessed addresses that turned out to be needed were followed by recursion on the stack.
#[test]
fn long_redirect_chain_of_guessed_urls_does_not_overflow_the_stack() {
    // Each address is only a guess and redirects to the next one. Then a slow page makes the first address required.
    const STEPS: usize = 3000;
    let gate = Arc::new(AtomicBool::new(false));
    let is_open = Arc::clone(&gate);
    let server = TestServer::start(move |target, _| {
        let step = target.strip_prefix("/_next/static/chunks/").and_then(|name| name.strip_suffix(".js"));
        match (target, step.and_then(|step| step.parse::<usize>().ok())) {
            ("/", _) => html("<a href=/late>x</a><p>/_next/static/chunks/0.js</p>"),
            ("/late", _) => {
                until_done_in_background("the last step is requested", || is_open.load(Ordering::SeqCst));
                html("<script src=/_next/static/chunks/0.js></script>")
            }
            (_, Some(STEPS)) => {
                is_open.store(true, Ordering::SeqCst);
                with_type("text/javascript", "1")
            }
            (_, Some(step)) => redirect(302, &format!("/_next/static/chunks/{}.js", step + 1)),
            _ => not_found(),
        }
    });
    let dir = temporary_folder();
    let source = CrawlSource { max_files: 10_000, ..crawl_source(&server.url("/")) };
    let target = dir.path().to_owned();
    // A stack that is large enough for a crawl, but not for one frame for each step.
    let thread = std::thread::Builder::new().stack_size(1 << 20);
    let thread = thread.spawn(move || crawl(&source, None, &target, &JobContext::default())).expect("a thread");
    let result = thread.join().expect("the stack does not overflow").expect("a copy");
    assert!(result.pages >= 2, "{result:?}");
    assert!(gate.load(Ordering::SeqCst));
}

#[test]
fn link_rewriting_cannot_grow_a_page_without_limit() {
    // `?1` is the address of the page itself with a query, so it is rewritten to a file name of 1,500 characters.
    let (path, links) = ("p".repeat(200) + "/", 600_000);
    let path = format!("/{}x", path.repeat(7));
    let page_path = path.clone();
    let server = TestServer::start(move |target, _| match target.strip_prefix(&*page_path) {
        _ if target == "/" => html(format!("<a href=\"{page_path}\">x</a>")),
        Some("") => html("<a href=?1>".repeat(links)),
        Some("?1") => html("another"),
        _ => not_found(),
    });
    let dir = temporary_folder();
    let result = crawl_into(&server.url("/"), dir.path());
    assert!(result.bytes < 100 << 20, "{} bytes", result.bytes);
    assert!(
        result.warnings.iter().any(|line| line.contains("more links than can be rewritten")),
        "{:?}",
        result.warnings
    );
}

// Regression: the memory of a crawl stayed with the process, up to 64 MiB for each arena of the C library.
#[test]
fn memory_of_finished_crawls_is_returned_to_the_system() {
    let page = "/_next/static/".repeat((7 << 20) / 14);
    let server = TestServer::start(move |target, _| if target == "/" { html(page.clone()) } else { not_found() });
    let mut origin =
        TestOrigin::new(&FOLDER_PROJECT.replace("directory = \"site\"", &format!("crawl = \"{}\"", server.url("/"))));
    origin.start();
    let before = origin.anonymous_memory_bytes();
    let jobs: Vec<String> = (0..4).map(|_| origin.export(&json!({}))).collect();
    for job in &jobs {
        assert_eq!(origin.wait_for_job(job)["status"], "completed");
    }
    until("the memory is returned to the system", || origin.anonymous_memory_bytes() < before + (24 << 20));
}
