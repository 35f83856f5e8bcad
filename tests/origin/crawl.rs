//! Copies of a running site that work without its server.

mod hostile;
mod other_organizations;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use docwharf::model::deployment::OutboundPolicy;
use docwharf::origin::source::JobContext;
use docwharf::origin::source::crawl::{CrawlError, CrawlSource, CrawlSummary, crawl};

use support::http::get;
use support::{Daemon, ReservedPort, read_tree, temporary_folder, until};

/// A response: status, header fields, body.
#[derive(Clone)]
struct TestResponse(u16, String, Vec<u8>);

/// Function that returns the response for a target and the head of its request.
type Responder = dyn Fn(&str, &str) -> TestResponse + Send + Sync;

/// A server with responses that the test chooses. It runs until it is dropped.
struct TestServer {
    port: u16,
    /// Reserves the port, so that no other process gets it after the stop.
    _reserved: ReservedPort,
    /// Targets of all requests.
    targets: Arc<Mutex<Vec<String>>>,
    /// The largest number of concurrent requests.
    max_concurrent: Arc<AtomicUsize>,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TestServer {
    /// Starts a server. `respond` gets the target and the head of each request.
    fn start(respond: impl Fn(&str, &str) -> TestResponse + Send + Sync + 'static) -> TestServer {
        let reserved = ReservedPort::new();
        let listener = reserved.listen();
        let port = listener.local_addr().expect("an address").port();
        let (targets, is_stopped) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (current, max_concurrent) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let responder: Arc<Responder> = Arc::new(respond);
        let (log, stopped, highest) = (Arc::clone(&targets), Arc::clone(&is_stopped), Arc::clone(&max_concurrent));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (responder, log, current, highest) =
                    (Arc::clone(&responder), Arc::clone(&log), Arc::clone(&current), Arc::clone(&highest));
                std::thread::spawn(move || {
                    highest.fetch_max(current.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    respond_on(stream, &*responder, &log);
                    current.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        TestServer { port, _reserved: reserved, targets, max_concurrent, is_stopped, thread: Some(thread) }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn targets(&self) -> Vec<String> {
        self.targets.lock().expect("a log").clone()
    }

    /// Stops the server. Later connections are refused.
    fn stop(mut self) {
        self.end();
        // A process that another test is starting has a copy of the socket until its program runs.
        until("connections are refused", || TcpStream::connect(("127.0.0.1", self.port)).is_err());
    }

    fn end(&mut self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server ends");
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Entry of the log for a connection that begins with a TLS handshake.
const TLS_HANDSHAKE: &str = "a TLS handshake";

fn respond_on(mut stream: TcpStream, responder: &Responder, log: &Mutex<Vec<String>>) {
    let mut first = [0];
    if stream.peek(&mut first).is_ok_and(|n| n == 1) && first[0] == 22 {
        log.lock().expect("a log").push(TLS_HANDSHAKE.to_owned());
        return;
    }
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut head = String::new();
    while reader.read_line(&mut head).is_ok_and(|n| n > 2) {}
    let Some(target) = head.split(' ').nth(1).map(str::to_owned) else { return };
    log.lock().expect("a log").push(target.clone());
    let TestResponse(status, fields, body) = responder(&target, &head);
    let fields = if fields.is_empty() { fields } else { format!("{fields}\r\n") };
    let text = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n{fields}\r\n", body.len());
    let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.write_all(&body));
}

fn with_type(media_type: &str, body: impl Into<Vec<u8>>) -> TestResponse {
    TestResponse(200, format!("Content-Type: {media_type}"), body.into())
}

fn html(body: impl AsRef<str>) -> TestResponse {
    with_type("text/html; charset=utf-8", format!("<!doctype html><title>x</title>{}", body.as_ref()))
}

fn redirect(status: u16, to: &str) -> TestResponse {
    TestResponse(status, format!("Location: {to}"), Vec::new())
}

fn not_found() -> TestResponse {
    TestResponse(404, "Content-Type: text/html".to_owned(), b"<h1>nothing here</h1><img src=\"lost.png\">".to_vec())
}

fn crawl_source(url: &str) -> CrawlSource {
    CrawlSource {
        start: url.parse().expect("a URL"),
        max_concurrent_requests: 4,
        obeys_robots: true,
        max_files: 1000,
        max_duration: Duration::from_mins(2),
        outbound_policy: OutboundPolicy::Any,
    }
}

fn crawl_into(url: &str, target: &Path) -> CrawlSummary {
    crawl(&crawl_source(url), None, target, &JobContext::default()).unwrap_or_else(|error| panic!("{error}: {error:?}"))
}

/// Returns the responses of a site with every kind of link. `foreign_port` must not get a request.
fn full_site_response(host: &str, foreign_port: u16, target: &str, flaky: &AtomicUsize) -> TestResponse {
    let host = host.trim();
    match target {
        "/" => html(format!(
            r#"<link rel="canonical" href="http://{host}/"><link rel=stylesheet href="/style.css?v=3"><link rel="icon" href="/icon">
            <a href="/a">a</a><a href="/a/">a/</a><a href="http://{host}/guide#top">own</a><a href="/old">old</a><a href="/away">away</a>
            <a href="/caf%C3%A9">c</a><a href="/über uns">u</a><a href="/list?page=1">1</a><a href="/list?page=2">2</a><a href="/list">l</a>
            <a href="/same?utm=x">s</a><a href="/secret/x">no</a><a href="/gone">gone</a><a href="/hop?x=1">hop</a>
            <a href="http://127.0.0.1:{foreign_port}/x">foreign</a><img src="//127.0.0.1:{foreign_port}/y.png"><a href="/data">data</a>
            <img src="i.png" srcset="/pic?w=1 1x, /pic?w=2 2x"><p style="background: url('bg.png')"><a href="mailto:a@b.example">m</a>
            <a href="/flaky">f</a><noscript><img src="/only-noscript.png"></noscript><script src="/app.js"></script>
            <meta http-equiv="refresh" content="900; url=/later"><link rel=manifest href=/site.webmanifest><a href="/a%2Fb">enc</a>
            <a href="/.hidden">hidden</a><a href="/old?from=1">old</a><a href="/loop1">loop</a><a href="/a.html">a.html</a>"#
        )),
        "/a" => html("a without slash <img src=\"/i.png\">"),
        "/a/" => html("a with slash <a href=\"b\">b</a>"),
        "/a.html" => html("a third one"),
        "/a/b" | "/later" | "/caf%C3%A9" | "/%C3%BCber%20uns" | "/sitemap-only" | "/a%2Fb" | "/nested" | "/.hidden" => {
            html(format!("page <a href=/>{}</a>", target.len()))
        }
        "/guide" => html("guide <a href='?'>self</a>"),
        "/list" => html("list"),
        "/list?page=1" => html("list one <a href='?page=2'>next</a>"),
        "/list?page=2" => html("list two"),
        "/same?utm=x" | "/same" => html("same"),
        "/hop?x=1" => redirect(302, "/guide"),
        "/old" | "/old?from=1" => redirect(308, "/guide#new"),
        "/away" => redirect(302, &format!("http://127.0.0.1:{foreign_port}/there?x=1")),
        "/loop1" => redirect(302, "/loop2"),
        "/loop2" => redirect(302, "/loop1"),
        "/flaky" if flaky.fetch_add(1, Ordering::SeqCst) == 0 => {
            TestResponse(503, "Retry-After: 0".to_owned(), Vec::new())
        }
        "/flaky" => html("at last"),
        "/style.css?v=3" => with_type(
            "text/css",
            format!(
                "@import 'more.css'; @font-face {{ src: url(f.woff2) }} a {{ b: url(http://{host}/bg2.png) url(/pic?w=1) }}"
            ),
        ),
        "/more.css" => with_type("text/css", "@import url(deep/last.css);"),
        "/deep/last.css" => with_type("text/css", "a { b: url('../i.png') }"),
        "/f.woff2" => with_type("font/woff2", "font"),
        "/i.png" | "/bg.png" | "/bg2.png" | "/icon" | "/only-noscript.png" | "/lost.png" | "/m.png" => {
            with_type("image/png", format!("picture {target}"))
        }
        "/pic?w=1" => with_type("image/png", "small"),
        "/pic?w=2" => with_type("image/png", "large"),
        "/app.js" => with_type("text/javascript", "import './lib.js'; fetch('/data')"),
        "/lib.js" => with_type("text/javascript", "export default import('./not-there.js')"),
        "/data" => with_type("application/json", "{}"),
        "/site.webmanifest" => with_type("application/manifest+json", r#"{"icons":[{"src":"/m.png"}]}"#),
        "/robots.txt" => with_type(
            "text/plain",
            format!(
                "User-agent: *\nDisallow: /secret/\nSitemap: http://{host}/maps/index.xml\nSitemap: http://127.0.0.1:{foreign_port}/s.xml"
            ),
        ),
        "/maps/index.xml" => with_type(
            "application/xml",
            format!("<sitemapindex><sitemap><loc>http://{host}/maps/1.xml</loc></sitemap></sitemapindex>"),
        ),
        "/maps/1.xml" => with_type(
            "application/xml",
            format!(
                "<urlset><url><loc>http://{host}/sitemap-only</loc></url><url><loc>http://127.0.0.1:{foreign_port}/z</loc></url></urlset>"
            ),
        ),
        "/llms.txt" => with_type("text/plain", "for assistants"),
        _ => not_found(),
    }
}

fn full_site(foreign_port: u16) -> TestServer {
    TestServer::start(full_site_responder(foreign_port))
}

fn full_site_responder(foreign_port: u16) -> impl Fn(&str, &str) -> TestResponse {
    let flaky = AtomicUsize::new(0);
    move |target, head| {
        let lower = head.to_ascii_lowercase();
        let host_start = lower.find("\r\nhost:").expect("a host") + 7;
        full_site_response(head[host_start..].lines().next().unwrap_or_default(), foreign_port, target, &flaky)
    }
}

/// Returns every address in a page or style sheet, as docwharf itself reads them.
fn addresses_in(is_css: bool, body: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    if is_css {
        let text = String::from_utf8_lossy(body);
        docwharf::site::external::css::find_addresses(&text, &mut |_, address| all.push(address.to_owned()));
    } else {
        docwharf::site::links::read_links(
            |feed| {
                feed(body);
            },
            |address| {
                if let docwharf::site::links::PageAddress::Link(link) = address {
                    all.push(link.to_owned());
                }
            },
        );
    }
    all
}

/// Follows every link and asset from the front page, and returns the status of each address of the copy.
fn statuses_of_all_links(daemon: &Daemon) -> BTreeMap<String, u16> {
    let root = url::Url::parse(&daemon.urls[0]).expect("a URL");
    let (mut statuses, mut queue) = (BTreeMap::new(), vec![root.clone()]);
    while let Some(url) = queue.pop() {
        let target = url[url::Position::BeforePath..url::Position::AfterQuery].to_owned();
        if url.origin() != root.origin() || statuses.contains_key(&target) {
            continue;
        }
        let response = get(&daemon.address, &target);
        statuses.insert(target, response.status);
        if let Some(to) = response.header("location") {
            queue.push(url.join(to).expect("a location"));
        } else if response
            .header("content-type")
            .is_some_and(|t| t.starts_with("text/html") || t.starts_with("text/css"))
        {
            let is_css = response.header("content-type").is_some_and(|t| t.starts_with("text/css"));
            let links = addresses_in(is_css, &response.body);
            queue.extend(links.iter().filter_map(|link| url.join(link).ok()));
        }
    }
    statuses
}

/// Returns a listener on a port that must not get a connection.
fn unused_listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("the listener can be made nonblocking");
    listener
}

#[test]
fn crawled_copy_is_complete_and_its_links_work_without_the_server() {
    let foreign_listener = unused_listener();
    let server = full_site(foreign_listener.local_addr().expect("an address").port());
    let dir = temporary_folder();
    let target = dir.path().join("copy");
    let context = JobContext::default();
    let result = crawl(&crawl_source(&server.url("/")), None, &target, &context).expect("a copy");
    assert!(foreign_listener.accept().is_err(), "another origin got a request");
    assert!(server.targets().iter().all(|target| !target.starts_with("/secret")), "robots.txt was not obeyed");
    assert_eq!(context.pages().0, result.pages);
    let host = server.url("");
    server.stop();

    let files: Vec<String> = read_tree(&target).into_iter().map(|(name, _)| name).collect();
    for name in [
        "index.html",
        "a.html",
        "a/index.html",
        "a/b.html",
        "café.html",
        "über uns.html",
        "list.html",
        "same.html",
        "404.html",
        "sitemap-only.html",
        "style.css",
        "more.css",
        "deep/last.css",
        "f.woff2",
        "icon.png",
        "data.json",
        "lib.js",
        "m.png",
        "only-noscript.png",
        "lost.png",
        "robots.txt",
        "llms.txt",
        "maps/index.xml",
        "maps/1.xml",
        "later.html",
        "_redirects",
    ] {
        assert!(files.iter().any(|file| file == name), "{name} is not in {files:?}");
    }
    assert_eq!(files.len() as u64, result.pages + result.assets);
    for prefix in ["list.", "pic.", "a."] {
        assert!(files.iter().filter(|file| file.starts_with(prefix)).count() >= 2, "{prefix}: {files:?}");
    }
    let front = std::fs::read_to_string(target.join("index.html")).expect("a front page");
    assert!(
        front.contains(&format!("rel=\"canonical\" href=\"{host}/\"")),
        "the canonical address stays that of the site: {front}"
    );
    assert!(front.contains("href=\"/guide#top\"") && front.contains("href=\"/style.css?v=3\""), "{front}");

    let daemon = Daemon::serve(&target, &[]);
    let statuses = statuses_of_all_links(&daemon);
    let bad: Vec<_> = statuses.iter().filter(|(_, status)| !matches!(status, 200 | 301..=308)).collect();
    let bad: Vec<&str> = bad.iter().map(|(target, _)| target.as_str()).collect();
    assert_eq!(bad, ["/gone", "/loop1", "/secret/x"], "only the addresses that are missing at the site: {statuses:?}");
    for (target, content) in [
        ("/a", "a without slash"),
        ("/a/", "a with slash"),
        ("/list", "list"),
        ("/sitemap-only", "page"),
        ("/flaky", "at last"),
        ("/caf%C3%A9", "page"),
        ("/data", "{}"),
    ] {
        let response = get(&daemon.address, target);
        assert!(
            response.status == 200 && response.text().contains(content),
            "{target}: {} {}",
            response.status,
            response.text()
        );
    }
    for (target, status, to) in [("/old", 308, "/guide#new"), ("/away", 302, "/there?x=1")] {
        let response = get(&daemon.address, target);
        assert_eq!(response.status, status, "{target}");
        assert!(response.header("location").is_some_and(|location| location.ends_with(to)), "{target}: {response:?}");
    }
    let lost = get(&daemon.address, "/no/such/page");
    assert!(lost.status == 404 && lost.text().contains("nothing here"), "{lost:?}");
    let warnings = result.warnings.join("\n");
    for part in [
        "/gone returns status 404; / links to it",
        "robots.txt disallows /secret/x",
        "redirect loop",
        "of other origins",
    ] {
        assert!(warnings.contains(part), "{part} is not in the warnings: {warnings}");
    }
}

#[test]
fn rewritten_links_lead_to_the_same_content_as_before() {
    let foreign_listener = unused_listener();
    let server = full_site(foreign_listener.local_addr().expect("an address").port());
    let dir = temporary_folder();
    crawl_into(&server.url("/"), dir.path());
    server.stop();
    let daemon = Daemon::serve(dir.path(), &[]);
    let front = get(&daemon.address, "/");
    let links = addresses_in(false, &front.body);
    let follow = |link: &str| {
        let (path, _) = link.split_once('#').unwrap_or((link, ""));
        get(&daemon.address, path).text()
    };
    let contents: Vec<String> = links.iter().filter(|link| link.starts_with('/')).map(|link| follow(link)).collect();
    for part in
        ["list one", "list two", "small", "large", "a third one", "a without slash", "a with slash", "guide", "same"]
    {
        assert!(contents.iter().any(|text| text.contains(part)), "no link leads to {part:?}: {links:?}");
    }
    let first_page = contents.iter().find(|text| text.contains("list one")).expect("the first of the list");
    let next = addresses_in(false, first_page.as_bytes());
    assert!(follow(&next[0]).contains("list two"), "{next:?}");
}

#[test]
fn crawl_output_is_identical_at_any_request_concurrency() {
    let foreign_listener = unused_listener();
    let port = foreign_listener.local_addr().expect("an address").port();
    let respond = full_site_responder(port);
    let allows_concurrency = Arc::new(AtomicBool::new(false));
    let waits = Arc::clone(&allows_concurrency);
    let (begun, arrival) = (Mutex::new(0), Condvar::new());
    let server = TestServer::start(move |target, head| {
        let mut requests = begun.lock().expect("a count");
        *requests += 1;
        arrival.notify_all();
        if target == "/a" && waits.load(Ordering::SeqCst) {
            // The crawl sends another request before it has this response.
            let own = *requests;
            let wait = arrival.wait_timeout_while(requests, Duration::from_secs(20), |requests| *requests == own);
            drop(wait);
        } else {
            drop(requests);
        }
        respond(target, head)
    });
    let trees: Vec<_> = [1, 7]
        .into_iter()
        .map(|max_concurrent_requests| {
            allows_concurrency.store(max_concurrent_requests > 1, Ordering::SeqCst);
            let dir = temporary_folder();
            let source = CrawlSource { max_concurrent_requests, ..crawl_source(&server.url("/")) };
            let result = crawl(&source, None, dir.path(), &JobContext::default()).expect("a copy");
            (read_tree(dir.path()), result)
        })
        .collect();
    assert!(trees[0] == trees[1], "{:?}\n{:?}", trees[0].1, trees[1].1);
    assert!(server.max_concurrent.load(Ordering::SeqCst) > 1, "there were no concurrent requests");
}

/// Returns the target of the redirect at `/<name>`, for a site at this port.
fn redirect_target(name: &str, port: u16, other: u16) -> Option<String> {
    Some(match name {
        "address" => format!("http://127.0.0.1:{port}/to-address"),
        "path" => "/to-path".to_owned(),
        "no-scheme" => format!("//127.0.0.1:{port}/to-no-scheme"),
        "scheme" => format!("https://127.0.0.1:{port}/to-scheme"),
        "host" => format!("http://localhost:{port}/to-host"),
        "port" => format!("http://127.0.0.1:{other}/to-port"),
        "port-no-scheme" => format!("//127.0.0.1:{other}/to-port-no-scheme"),
        "user" => format!("http://ada:pa55word@127.0.0.1:{port}/to-user"),
        "own-as-user" => format!("http://127.0.0.1:{port}@127.0.0.1:{other}/to-own-as-user"),
        _ => return None,
    })
}

#[test]
fn no_redirect_leads_a_crawl_to_another_scheme_host_port_or_user() {
    const NAMES: [&str; 9] =
        ["address", "path", "no-scheme", "scheme", "host", "port", "port-no-scheme", "user", "own-as-user"];
    let foreign_listener = unused_listener();
    let other = foreign_listener.local_addr().expect("an address").port();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&requests);
    let server = TestServer::start(move |target, head| {
        let head = head.to_ascii_lowercase();
        let host = head.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default().to_owned();
        let port = host.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or_default();
        recorded.lock().expect("a list").push((target.to_owned(), host, head.contains("\nauthorization:")));
        match target {
            "/" => html(NAMES.map(|name| format!("<a href=/{name}>{name}</a>")).concat()),
            _ if target.starts_with("/to-") => html("there"),
            _ => redirect_target(&target[1..], port, other).map_or_else(not_found, |to| redirect(302, &to)),
        }
    });
    let dir = temporary_folder();
    crawl_into(&server.url("/"), dir.path());
    assert!(foreign_listener.accept().is_err(), "another port got a request");
    assert!(!server.targets().iter().any(|target| target == TLS_HANDSHAKE), "another scheme was used");
    let requests = requests.lock().expect("a list");
    for (target, host, has_user) in &*requests {
        assert_eq!((host.as_str(), has_user), (&*format!("127.0.0.1:{}", server.port), &false), "{target}");
    }
    let mut followed: Vec<&str> = requests.iter().filter_map(|(target, ..)| target.strip_prefix("/to-")).collect();
    followed.sort_unstable();
    assert_eq!(followed, ["address", "no-scheme", "path"]);
}

#[test]
fn crawl_waits_for_the_retry_after_of_a_503_response() {
    let times = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&times);
    let server = TestServer::start(move |target, _| match target {
        "/" => {
            let mut recorded = recorded.lock().expect("a list");
            recorded.push(Instant::now());
            // Without this field the pause is a second at most.
            if recorded.len() == 1 {
                TestResponse(503, "Retry-After: 2".to_owned(), Vec::new())
            } else {
                html("at last")
            }
        }
        _ => not_found(),
    });
    let dir = temporary_folder();
    crawl_into(&server.url("/"), dir.path());
    let times = times.lock().expect("a list");
    let pause = times[1] - times[0];
    assert!(times.len() == 2 && pause >= Duration::from_secs(2), "{} requests, {pause:?} between two", times.len());
}

#[test]
fn crawl_ignores_robots_txt_when_configured() {
    let server = TestServer::start(|target, _| match target {
        "/robots.txt" => with_type("text/plain", "User-agent: docwharf\nDisallow: /"),
        "/" => html("<a href=/x>x</a>"),
        "/x" => html("x"),
        _ => not_found(),
    });
    let dir = temporary_folder();
    let refused = crawl(&crawl_source(&server.url("/")), None, &dir.path().join("a"), &JobContext::default());
    assert!(matches!(&refused, Err(CrawlError::NoPage { reason, .. }) if reason.contains("robots.txt")), "{refused:?}");
    let source = CrawlSource { obeys_robots: false, ..crawl_source(&server.url("/")) };
    let result = crawl(&source, None, &dir.path().join("b"), &JobContext::default()).expect("a copy");
    assert_eq!(result.pages, 3, "both pages and the 404 page: {result:?}");
}

#[test]
fn unreadable_robots_txt_ends_the_crawl_and_a_redirected_one_is_obeyed() {
    let server = TestServer::start(|target, _| match target {
        // A coding that was not requested is an error that is not retried.
        "/robots.txt" => TestResponse(200, "Content-Encoding: br".to_owned(), b"x".to_vec()),
        _ => html("x"),
    });
    let dir = temporary_folder();
    let result = crawl(&crawl_source(&server.url("/")), None, &dir.path().join("a"), &JobContext::default());
    assert!(matches!(&result, Err(CrawlError::Fetch { url, .. }) if url.path() == "/robots.txt"), "{result:?}");
    assert_eq!(server.targets(), ["/robots.txt"], "nothing is requested that it may forbid");
    // RFC 9309, 2.3.1.2: the rules behind a redirect apply.
    let server = TestServer::start(|target, _| match target {
        "/robots.txt" => redirect(301, "/rules/one"),
        "/rules/one" => redirect(302, "/rules/two.txt"),
        "/rules/two.txt" => with_type("text/plain", "User-agent: *\nDisallow: /secret"),
        "/" => html("<a href=/secret>no</a><a href=/open>yes</a>"),
        "/open" | "/secret" => html("x"),
        _ => not_found(),
    });
    let result = crawl_into(&server.url("/"), &dir.path().join("b"));
    let targets = server.targets();
    assert!(targets.contains(&"/open".to_owned()) && !targets.contains(&"/secret".to_owned()), "{targets:?}");
    assert!(result.warnings.contains(&"robots.txt disallows /secret; / links to it".to_owned()), "{result:?}");
}

#[test]
fn crawl_of_a_site_that_never_returns_404_saves_only_linked_pages_and_no_404_page() {
    let server = TestServer::start(|_, _| html("x"));
    let dir = temporary_folder();
    let result = crawl_into(&server.url("/"), dir.path());
    let files: Vec<String> = read_tree(dir.path()).into_iter().map(|(name, _)| name).collect();
    assert_eq!(files, ["index.html"]);
    assert_eq!((result.pages, result.assets), (1, 0));
    assert!(result.warnings.iter().any(|line| line.starts_with("the site has no 404 page")), "{result:?}");
}

#[test]
fn crawl_succeeds_with_exactly_max_files_and_fails_with_one_more() {
    let server = TestServer::start(|target, _| match target {
        "/" => html("<a href=/1>1</a><a href=/2>2</a><form action=/submit><button formaction=/submit-also></form>"),
        "/1" | "/2" => html(target),
        _ => TestResponse(404, String::new(), Vec::new()),
    });
    let dir = temporary_folder();
    for (max_files, folder) in [(3, "a"), (2, "b")] {
        let source = CrawlSource { max_files, ..crawl_source(&server.url("/")) };
        let result = crawl(&source, None, &dir.path().join(folder), &JobContext::default());
        match result {
            Ok(result) => assert_eq!((max_files, result.pages), (3, 3)),
            Err(CrawlError::TooMany { max_files: allowed, .. }) => assert_eq!((max_files, allowed), (2, 2)),
            Err(error) => panic!("{error}"),
        }
    }
    let targets = server.targets();
    assert!(targets.iter().all(|target| !target.contains("submit")), "no form is submitted: {targets:?}");
}

#[test]
fn a_crawl_sends_only_as_many_requests_at_a_time_as_it_may() {
    const ALLOWED: usize = 3;
    // Of the requests for linked addresses: those that have begun, those under way, and the most of these at a time.
    let counts = Arc::new((Mutex::new((0, 0, 0)), Condvar::new()));
    let counted = Arc::clone(&counts);
    let server = TestServer::start(move |target, _| {
        if target == "/" {
            return html((0..20).map(|n| format!("<a href=/link{n}>{n}</a>")).collect::<Vec<_>>().concat());
        }
        if target.starts_with("/link") {
            let (counts, begun) = &*counted;
            let mut counts = counts.lock().expect("counts");
            (counts.0, counts.1) = (counts.0 + 1, counts.1 + 1);
            counts.2 = counts.2.max(counts.1);
            begun.notify_all();
            // The first requests wait for one more than is allowed. None arrives, so they wait for a moment only.
            let wait = begun.wait_timeout_while(counts, Duration::from_millis(300), |counts| counts.0 <= ALLOWED);
            wait.expect("counts").0.1 -= 1;
        }
        TestResponse(404, String::new(), Vec::new())
    });
    let dir = temporary_folder();
    let source = CrawlSource { max_concurrent_requests: ALLOWED, ..crawl_source(&server.url("/")) };
    crawl(&source, None, dir.path(), &JobContext::default()).expect("a copy");
    let (begun, under_way, most) = *counts.0.lock().expect("counts");
    assert_eq!((begun, under_way), (20, 0));
    assert!(most <= ALLOWED, "{most}");
}

#[test]
fn partial_crawl_includes_downloads_that_requested_pages_link_to() {
    let server = TestServer::start(|target, _| match target {
        "/a" => html("<a href=/manual.pdf>manual</a><a href=/b>b</a>"),
        "/b" => html("b"),
        "/manual.pdf" => with_type("application/pdf", "%PDF"),
        _ => TestResponse(404, String::new(), Vec::new()),
    });
    let dir = temporary_folder();
    let paths = ["/a".to_owned()];
    crawl(&crawl_source(&server.url("/")), Some(&paths), dir.path(), &JobContext::default()).expect("a copy");
    let files: Vec<String> = read_tree(dir.path()).into_iter().map(|(name, _)| name).collect();
    assert_eq!(files, ["a.html", "manual.pdf"]);
}

#[test]
fn crawl_of_an_endless_calendar_fails_at_the_file_limit() {
    let server = TestServer::start(|target, _| {
        let day: u64 = target.trim_start_matches("/day/").parse().unwrap_or(0);
        if target == "/robots.txt" { not_found() } else { html(format!("<a href=/day/{}>next</a>", day + 1)) }
    });
    let dir = temporary_folder();
    let source = CrawlSource { max_files: 50, ..crawl_source(&server.url("/")) };
    let error = crawl(&source, None, dir.path(), &JobContext::default()).expect_err("no copy").to_string();
    assert!(error.contains("more than 50 pages") && error.contains("/day/") && error.contains("calendar"), "{error}");
    assert!(server.targets().len() < 80, "{}", server.targets().len());
    assert!(read_tree(dir.path()).is_empty(), "the failed crawl leaves no files");
}

#[test]
fn page_that_keeps_returning_500_fails_the_crawl_with_its_url() {
    let server = TestServer::start(|target, _| match target {
        "/" => html("<a href=/broken>x</a>"),
        "/broken" => TestResponse(500, String::new(), Vec::new()),
        _ => not_found(),
    });
    let dir = temporary_folder();
    let error = crawl(&crawl_source(&server.url("/")), None, dir.path(), &JobContext::default()).expect_err("no copy");
    assert!(matches!(&error, CrawlError::Fetch { url, .. } if url.path() == "/broken"), "{error:?}");
    assert!(server.targets().iter().filter(|target| *target == "/broken").count() > 2, "{:?}", server.targets());
}

#[test]
fn partial_crawl_saves_only_requested_pages_and_their_assets() {
    let foreign_listener = unused_listener();
    let server = full_site(foreign_listener.local_addr().expect("an address").port());
    let dir = temporary_folder();
    let paths = ["/a".to_owned(), "guide".to_owned()];
    let result =
        crawl(&crawl_source(&server.url("/")), Some(&paths), dir.path(), &JobContext::default()).expect("a copy");
    let pages: Vec<String> = read_tree(dir.path()).into_iter().map(|(name, _)| name).collect();
    let pages: Vec<&str> =
        pages.iter().map(String::as_str).filter(|name| docwharf::model::site_path::is_page(name.as_bytes())).collect();
    assert_eq!(pages, ["404.html", "a.html", "guide.html"], "{result:?}");
    assert!(dir.path().join("i.png").exists());
}

#[test]
fn cancelled_crawl_ends_during_a_pending_request() {
    let (gate, is_requested) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (is_open, requested) = (Arc::clone(&gate), Arc::clone(&is_requested));
    let server = TestServer::start(move |target, _| {
        if target == "/" {
            requested.store(true, Ordering::SeqCst);
            until("the end of the test", || is_open.load(Ordering::SeqCst));
        }
        not_found()
    });
    let (dir, context) = (temporary_folder(), Arc::new(JobContext::default()));
    let (source, target, crawl_context) = (crawl_source(&server.url("/")), dir.path().to_owned(), Arc::clone(&context));
    let thread = std::thread::spawn(move || crawl(&source, None, &target, &crawl_context));
    until("the start page is requested", || is_requested.load(Ordering::SeqCst));
    context.cancel();
    let result = thread.join().expect("the crawl ends");
    gate.store(true, Ordering::SeqCst);
    assert!(matches!(result, Err(CrawlError::Cancelled)), "{result:?}");
}

#[test]
fn pages_in_other_charsets_are_saved_unchanged_with_a_warning() {
    let latin = b"<p>caf\xe9 <a href=\"http://127.0.0.1/\">x</a>".to_vec();
    let body = latin.clone();
    let server = TestServer::start(move |target, _| match target {
        "/" => html("<a href=/latin>x</a>"),
        "/latin" => with_type("text/html; charset=ISO-8859-1", body.clone()),
        _ => not_found(),
    });
    let dir = temporary_folder();
    let result = crawl_into(&server.url("/"), dir.path());
    assert_eq!(std::fs::read(dir.path().join("latin.html")).expect("a page"), latin);
    assert!(result.warnings.iter().any(|line| line.contains("/latin") && line.contains("iso-8859-1")), "{result:?}");
}

#[test]
fn crawl_below_a_path_redirects_the_root_there_and_refuses_a_non_empty_folder() {
    let server = TestServer::start(|target, _| match target {
        "/docs/" => html("<a href=start>x</a><link rel=stylesheet href=a.css>"),
        "/docs/start" => html("start"),
        "/docs/a.css" => with_type("text/css", ""),
        _ => TestResponse(404, String::new(), Vec::new()),
    });
    let dir = temporary_folder();
    let target = dir.path().join("copy");
    crawl_into(&server.url("/docs/"), &target);
    let second = crawl(&crawl_source(&server.url("/docs/")), None, &target, &JobContext::default());
    assert!(matches!(second, Err(CrawlError::Write { .. })), "{second:?}");
    let daemon = Daemon::serve(&target, &[]);
    let front = get(&daemon.address, "/");
    assert_eq!((front.status, front.header("location")), (302, Some("/docs/")));
    for target in ["/docs/", "/docs/start", "/docs/a.css"] {
        assert_eq!(get(&daemon.address, target).status, 200, "{target}");
    }
}

#[test]
fn crawl_of_a_next_js_site_saves_chunks_rsc_payloads_and_images() {
    let server = TestServer::start(|target, head| match target {
        "/guide?_rsc" if head.contains("rsc: 1") || head.contains("RSC: 1") => {
            with_type("text/x-component", "1:\"static/chunks/p.js\"")
        }
        "/" => html(
            r#"<img srcset="/_next/image?url=%2Fa.png&amp;w=64 1x, /_next/image?url=%2Fa.png&amp;w=128 2x"><a href=/guide>g</a>
            <script src="/_next/static/chunks/m.js"></script>"#,
        ),
        "/guide" => html("guide<script>self.__next_f.push([1,\"2:\\\"/_next/static/chunks/flight.js\\\"\"])</script>"),
        "/_next/static/chunks/m.js" => {
            with_type("application/javascript", r#"l("static/chunks/lazy.js");c={path:"/_next/image",unoptimized:!1}"#)
        }
        "/_next/image?url=%2Fa.png&w=64" => with_type("image/webp", "small"),
        "/_next/image?url=%2Fa.png&w=128" => with_type("image/webp", "large"),
        "/a.png" => with_type("image/png", "whole"),
        _ if target.starts_with("/_next/static/chunks/") => with_type("application/javascript", "1"),
        _ => not_found(),
    });
    let dir = temporary_folder();
    crawl_into(&server.url("/"), dir.path());
    server.stop();
    let files: Vec<String> = read_tree(dir.path()).into_iter().map(|(name, _)| name).collect();
    for name in ["m", "lazy", "p", "flight"].map(|name| format!("_next/static/chunks/{name}.js")) {
        assert!(files.contains(&name), "{name} is not in {files:?}");
    }
    assert!(files.contains(&"guide.txt".to_owned()) && files.contains(&"a.png".to_owned()), "{files:?}");
    let daemon = Daemon::serve(dir.path(), &[]);
    assert!(statuses_of_all_links(&daemon).values().all(|status| *status == 200));
    let front = addresses_in(false, &get(&daemon.address, "/").body);
    let pictures: Vec<String> =
        front.iter().filter(|link| link.contains("image")).map(|link| get(&daemon.address, link).text()).collect();
    assert_eq!(pictures, ["small", "large"], "{front:?}");
    assert!(get(&daemon.address, "/_next/static/chunks/m.js").text().contains("unoptimized:!0"));
}

#[test]
fn crawl_of_a_url_with_credentials_fails_and_the_error_does_not_contain_them() {
    let dir = temporary_folder();
    let error = crawl(&crawl_source("http://user:pass@127.0.0.1:9/"), None, dir.path(), &JobContext::default())
        .expect_err("no copy");
    assert!(!error.to_string().contains("pass@") && !error.to_string().contains("user:"), "{error}");
}

/// Configuration of the sites of acme, and of two sites of umbrella.
const ALL: &str = r#"
[[organization]]
id = "acme"
[[organization.project]]
id = "drips"
domain = "drips.acme.example"
crawl = "DRIPS"
[[organization.project]]
id = "scripts"
domain = "scripts.acme.example"
crawl = "SCRIPTS"
[[organization.project]]
id = "spins"
domain = "spins.acme.example"
git = "spins"
build = "BUILD"
allowUntrusted = true

[[organization]]
id = "umbrella"
[[organization.project]]
id = "folder"
domain = "docs.umbrella.example"
directory = "folder"
[[organization.project]]
id = "branches"
domain = "branches.umbrella.example"
git = "branches"
build = "mkdir out && cp index.html out"
output = "out"
allowUntrusted = true
"#;
