//! Sites that take what a crawl has: time, memory, the stack.

use super::*;

use serde_json::json;
use support::hub::{FOLDER, Hub};
use support::write_site;

/// Acme's site is crawled, umbrella's is a folder.
fn neighbours(url: &str, head: &str) -> String {
    let crawled = FOLDER.replace("directory = \"site\"", &format!("crawl = \"{url}\""));
    format!(
        "{head}{crawled}[[organization]]\nid = \"umbrella\"\n[[organization.project]]\nid = \"folder\"\n\
         domain = \"docs.umbrella.example\"\ndirectory = \"folder\"\n"
    )
}

#[track_caller]
fn export_of_umbrella(hub: &Hub, key: &str) {
    let answer = hub.ask(key, "POST", support::hub::JOBS, Some(&json!({ "domain": "docs.umbrella.example" })));
    assert_eq!(answer.status, 202, "{}", answer.text());
    let id = support::hub::data(&answer)["jobId"].as_str().expect("an id").to_owned();
    until("umbrella's export is made", || {
        let answer = hub.ask(key, "GET", &format!("{}/{id}", support::hub::JOBS), None);
        support::hub::data(&answer)["status"] == "completed"
    });
}

#[test]
fn a_script_made_to_be_read_slowly_does_not_keep_another_organizations_export_waiting() {
    for piece in ["/_next/static/", "static/chunks/a", "static/chunks/\"+", "/_next/image\""] {
        let server = Server::start(move |target, _| match target {
            "/" => html(format!("<script src=/a.js></script>{}", piece.repeat((2 << 20) / piece.len()))),
            "/a.js" => typed("text/javascript", piece.repeat((2 << 20) / piece.len())),
            _ => missing(),
        });
        // One worker for both, so that the one waits for the other.
        let mut hub = Hub::new(&neighbours(&server.url("/"), "[exports]\nworkers = 1\n"));
        write_site(&hub.path("folder"), &[("index.html", "<p>umbrella")]);
        let key = hub.create("umbrella", "all", &[]);
        hub.start();
        let hostile = hub.export(&json!({}));
        export_of_umbrella(&hub, &key);
        hub.ended(&hostile);
    }
}

/// A server whose answers arrive a byte at a time, until they are not read any more.
fn drips() -> (String, JoinHandle<()>) {
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

#[test]
fn a_crawl_ends_after_its_time_however_slowly_the_site_answers() {
    let (url, server) = drips();
    let dir = folder();
    let how = Crawl { time: Duration::from_secs(2), ..of(&url) };
    let error = crawl(&how, None, dir.path(), &JobContext::default()).expect_err("no copy");
    server.join().expect("its connection has ended");
    assert!(matches!(error, CrawlError::Time { .. }), "{error:?}");
    assert!(error.to_string().contains("ended after 2 s"), "{error}");
}

#[test]
fn a_million_links_to_what_robots_forbid_are_counted_and_not_kept() {
    let server = Server::start(|target, _| match target {
        "/robots.txt" => typed("text/plain", "User-agent: *\nDisallow: /x"),
        "/" => html((0..100_000).map(|n| format!("<a href=/x{n}>")).collect::<Vec<_>>().concat()),
        _ => missing(),
    });
    let dir = folder();
    let done = crawled(&server.url("/"), dir.path());
    let is_kept = |line: &&String| line.starts_with("robots.txt disallows /x") && line.ends_with("; / leads there");
    let kept = done.warnings.iter().filter(is_kept);
    assert_eq!(kept.count(), 20, "{:?}", done.warnings);
    assert!(done.warnings.iter().any(|line| line.ends_with("the targets of 100000 links")), "{:?}", done.warnings);
}

#[test]
fn addresses_are_bounded_in_bytes_as_well_as_in_number() {
    let long = "x".repeat(1900);
    let server = Server::start(move |target, _| match target {
        "/" => html((0..25_000).map(|n| format!("<a href=/?{long}{n}>")).collect::<Vec<_>>().concat()),
        _ => missing(),
    });
    let dir = folder();
    let how = Crawl { most: 1_000_000, ..of(&server.url("/")) };
    let error = crawl(&how, None, dir.path(), &JobContext::default()).expect_err("no copy");
    assert!(matches!(error, CrawlError::AddressBytes { .. }), "{error:?}");
}

#[test]
fn a_long_way_of_guesses_that_turns_out_to_be_needed_is_gone_step_by_step() {
    // Each is only guessed at and sends on to the next; then a page that takes its time says that the first is needed.
    const STEPS: usize = 3000;
    let gate = Arc::new(AtomicBool::new(false));
    let open = Arc::clone(&gate);
    let server = Server::start(move |target, _| {
        let step = target.strip_prefix("/_next/static/chunks/").and_then(|name| name.strip_suffix(".js"));
        match (target, step.and_then(|step| step.parse::<usize>().ok())) {
            ("/", _) => html("<a href=/late>x</a><p>/_next/static/chunks/0.js</p>"),
            ("/late", _) => {
                until("the last step was asked for", || open.load(Ordering::SeqCst));
                html("<script src=/_next/static/chunks/0.js></script>")
            }
            (_, Some(STEPS)) => {
                open.store(true, Ordering::SeqCst);
                typed("text/javascript", "1")
            }
            (_, Some(step)) => moved(302, &format!("/_next/static/chunks/{}.js", step + 1)),
            _ => missing(),
        }
    });
    let dir = folder();
    let how = Crawl { most: 10_000, ..of(&server.url("/")) };
    let into = dir.path().to_owned();
    // A stack that has room for what a crawl does, and none for a frame for each step.
    let thread = std::thread::Builder::new().stack_size(1 << 20);
    let thread = thread.spawn(move || crawl(&how, None, &into, &JobContext::default())).expect("a thread");
    let done = thread.join().expect("it does not overflow").expect("a copy");
    assert!(done.pages >= 2, "{done:?}");
    assert!(gate.load(Ordering::SeqCst));
}

#[test]
fn a_short_link_that_stands_for_a_long_one_does_not_make_a_page_grow_without_end() {
    // `?1` is the page's own address with a query, and so is rewritten to the name of a file of 1,500 characters.
    let (path, links) = ("p".repeat(200) + "/", 600_000);
    let path = format!("/{}x", path.repeat(7));
    let at = path.clone();
    let server = Server::start(move |target, _| match target.strip_prefix(&*at) {
        _ if target == "/" => html(format!("<a href=\"{at}\">x</a>")),
        Some("") => html("<a href=?1>".repeat(links)),
        Some("?1") => html("another"),
        _ => missing(),
    });
    let dir = folder();
    let done = crawled(&server.url("/"), dir.path());
    assert!(done.bytes < 100 << 20, "{} bytes", done.bytes);
    assert!(done.warnings.iter().any(|line| line.contains("more links than can be rewritten")), "{:?}", done.warnings);
}

#[test]
fn memory_that_crawls_have_taken_is_given_back_when_they_have_ended() {
    let page = "/_next/static/".repeat((7 << 20) / 14);
    let server = Server::start(move |target, _| if target == "/" { html(page.clone()) } else { missing() });
    let mut hub = Hub::new(&FOLDER.replace("directory = \"site\"", &format!("crawl = \"{}\"", server.url("/"))));
    hub.start();
    let before = hub.anonymous();
    let jobs: Vec<String> = (0..4).map(|_| hub.export(&json!({}))).collect();
    for job in &jobs {
        hub.ended(job);
    }
    until("the memory is given back", || hub.anonymous() < before + (24 << 20));
}
