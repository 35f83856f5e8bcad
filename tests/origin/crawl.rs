//! A running site, made into a folder that stands without it.

mod hostile;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use docwharf::origin::source::JobContext;
use docwharf::origin::source::crawl::{Crawl, CrawlError, Crawled, crawl};

use support::http::get;
use support::{Daemon, ReservedPort, folder, read_tree, until};

/// An answer: status, further fields, body.
#[derive(Clone)]
struct Page(u16, String, Vec<u8>);

type Answers = dyn Fn(&str, &str) -> Page + Send + Sync;

/// A server that renders whatever it is told to, until it is dropped.
struct Server {
    port: u16,
    /// Nobody else is given the port once it has stopped.
    _reserved: ReservedPort,
    asked: Arc<Mutex<Vec<String>>>,
    most: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// `answers` is given target and head of each request.
    fn start(answers: impl Fn(&str, &str) -> Page + Send + Sync + 'static) -> Server {
        let reserved = ReservedPort::new();
        let listener = reserved.listen();
        let port = listener.local_addr().expect("an address").port();
        let (asked, is_over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let answers: Arc<Answers> = Arc::new(answers);
        let (log, over, highest) = (Arc::clone(&asked), Arc::clone(&is_over), Arc::clone(&most));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (answers, log, now, most) =
                    (Arc::clone(&answers), Arc::clone(&log), Arc::clone(&now), Arc::clone(&highest));
                std::thread::spawn(move || {
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    answer(stream, &*answers, &log);
                    now.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Server { port, _reserved: reserved, asked, most, is_over, thread: Some(thread) }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("a log").clone()
    }

    /// What is asked of it from now on is refused.
    fn stop(mut self) {
        self.end();
        assert!(TcpStream::connect(("127.0.0.1", self.port)).is_err(), "it still listens");
    }

    fn end(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it ends");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// What the log has for a connection that begins with a TLS handshake.
const ENCRYPTED: &str = "a TLS handshake";

fn answer(mut stream: TcpStream, answers: &Answers, log: &Mutex<Vec<String>>) {
    let mut first = [0];
    if stream.peek(&mut first).is_ok_and(|n| n == 1) && first[0] == 22 {
        log.lock().expect("a log").push(ENCRYPTED.to_owned());
        return;
    }
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut head = String::new();
    while reader.read_line(&mut head).is_ok_and(|n| n > 2) {}
    let Some(target) = head.split(' ').nth(1).map(str::to_owned) else { return };
    log.lock().expect("a log").push(target.clone());
    let Page(status, fields, body) = answers(&target, &head);
    let fields = if fields.is_empty() { fields } else { format!("{fields}\r\n") };
    let text = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n{fields}\r\n", body.len());
    let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.write_all(&body));
}

fn typed(kind: &str, body: impl Into<Vec<u8>>) -> Page {
    Page(200, format!("Content-Type: {kind}"), body.into())
}

fn html(body: impl AsRef<str>) -> Page {
    typed("text/html; charset=utf-8", format!("<!doctype html><title>x</title>{}", body.as_ref()))
}

fn moved(status: u16, to: &str) -> Page {
    Page(status, format!("Location: {to}"), Vec::new())
}

fn missing() -> Page {
    Page(404, "Content-Type: text/html".to_owned(), b"<h1>nothing here</h1><img src=\"lost.png\">".to_vec())
}

fn of(url: &str) -> Crawl {
    Crawl { start: url.parse().expect("a URL"), parallel: 4, robots: true, most: 1000, time: Duration::from_mins(2) }
}

fn crawled(url: &str, into: &Path) -> Crawled {
    crawl(&of(url), None, into, &JobContext::default()).unwrap_or_else(|error| panic!("{error}: {error:?}"))
}

/// A site with one of everything. `foreign` is a port that nobody may ask.
fn everything(host: &str, foreign: u16, target: &str, flaky: &AtomicUsize) -> Page {
    let host = host.trim();
    match target {
        "/" => html(format!(
            r#"<link rel="canonical" href="http://{host}/"><link rel=stylesheet href="/style.css?v=3"><link rel="icon" href="/icon">
            <a href="/a">a</a><a href="/a/">a/</a><a href="http://{host}/guide#top">own</a><a href="/old">old</a><a href="/away">away</a>
            <a href="/caf%C3%A9">c</a><a href="/über uns">u</a><a href="/list?page=1">1</a><a href="/list?page=2">2</a><a href="/list">l</a>
            <a href="/same?utm=x">s</a><a href="/secret/x">no</a><a href="/gone">gone</a><a href="/hop?x=1">hop</a>
            <a href="http://127.0.0.1:{foreign}/x">foreign</a><img src="//127.0.0.1:{foreign}/y.png"><a href="/data">data</a>
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
        "/hop?x=1" => moved(302, "/guide"),
        "/old" | "/old?from=1" => moved(308, "/guide#new"),
        "/away" => moved(302, &format!("http://127.0.0.1:{foreign}/there?x=1")),
        "/loop1" => moved(302, "/loop2"),
        "/loop2" => moved(302, "/loop1"),
        "/flaky" if flaky.fetch_add(1, Ordering::SeqCst) == 0 => Page(503, "Retry-After: 0".to_owned(), Vec::new()),
        "/flaky" => html("at last"),
        "/style.css?v=3" => typed(
            "text/css",
            format!(
                "@import 'more.css'; @font-face {{ src: url(f.woff2) }} a {{ b: url(http://{host}/bg2.png) url(/pic?w=1) }}"
            ),
        ),
        "/more.css" => typed("text/css", "@import url(deep/last.css);"),
        "/deep/last.css" => typed("text/css", "a { b: url('../i.png') }"),
        "/f.woff2" => typed("font/woff2", "font"),
        "/i.png" | "/bg.png" | "/bg2.png" | "/icon" | "/only-noscript.png" | "/lost.png" | "/m.png" => {
            typed("image/png", format!("picture {target}"))
        }
        "/pic?w=1" => typed("image/png", "small"),
        "/pic?w=2" => typed("image/png", "large"),
        "/app.js" => typed("text/javascript", "import './lib.js'; fetch('/data')"),
        "/lib.js" => typed("text/javascript", "export default import('./not-there.js')"),
        "/data" => typed("application/json", "{}"),
        "/site.webmanifest" => typed("application/manifest+json", r#"{"icons":[{"src":"/m.png"}]}"#),
        "/robots.txt" => typed(
            "text/plain",
            format!(
                "User-agent: *\nDisallow: /secret/\nSitemap: http://{host}/maps/index.xml\nSitemap: http://127.0.0.1:{foreign}/s.xml"
            ),
        ),
        "/maps/index.xml" => typed(
            "application/xml",
            format!("<sitemapindex><sitemap><loc>http://{host}/maps/1.xml</loc></sitemap></sitemapindex>"),
        ),
        "/maps/1.xml" => typed(
            "application/xml",
            format!(
                "<urlset><url><loc>http://{host}/sitemap-only</loc></url><url><loc>http://127.0.0.1:{foreign}/z</loc></url></urlset>"
            ),
        ),
        "/llms.txt" => typed("text/plain", "for assistants"),
        _ => missing(),
    }
}

fn site(foreign: u16) -> Server {
    let flaky = AtomicUsize::new(0);
    Server::start(move |target, head| {
        let lower = head.to_ascii_lowercase();
        let at = lower.find("\r\nhost:").expect("a host") + 7;
        everything(head[at..].lines().next().unwrap_or_default(), foreign, target, &flaky)
    })
}

/// Every address in a page or style, as the program itself reads them.
fn addresses(is_css: bool, body: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    if is_css {
        let text = String::from_utf8_lossy(body);
        docwharf::site::external::css::find_addresses(&text, &mut |_, address| all.push(address.to_owned()));
    } else {
        docwharf::site::links::read_links(
            |take| {
                take(body);
            },
            |said| {
                if let docwharf::site::links::PageAddress::Link(link) = said {
                    all.push(link.to_owned());
                }
            },
        );
    }
    all
}

/// Follows every link and asset from the front page on, and gives the status of each address of the copy.
fn walked(daemon: &Daemon) -> BTreeMap<String, u16> {
    let root = url::Url::parse(&daemon.urls[0]).expect("a URL");
    let (mut seen, mut queue) = (BTreeMap::new(), vec![root.clone()]);
    while let Some(url) = queue.pop() {
        let target = url[url::Position::BeforePath..url::Position::AfterQuery].to_owned();
        if url.origin() != root.origin() || seen.contains_key(&target) {
            continue;
        }
        let answer = get(&daemon.address, &target);
        seen.insert(target, answer.status);
        if let Some(to) = answer.header("location") {
            queue.push(url.join(to).expect("a location"));
        } else if answer.header("content-type").is_some_and(|t| t.starts_with("text/html") || t.starts_with("text/css"))
        {
            let is_css = answer.header("content-type").is_some_and(|t| t.starts_with("text/css"));
            let links = addresses(is_css, &answer.body);
            queue.extend(links.iter().filter_map(|link| url.join(link).ok()));
        }
    }
    seen
}

fn nobody() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("it need not wait");
    listener
}

#[test]
fn a_copy_stands_without_its_server_and_every_link_in_it_answers() {
    let foreign = nobody();
    let server = site(foreign.local_addr().expect("an address").port());
    let dir = folder();
    let into = dir.path().join("copy");
    let watch = JobContext::default();
    let result = crawl(&of(&server.url("/")), None, &into, &watch).expect("a copy");
    assert!(foreign.accept().is_err(), "another origin was asked");
    assert!(server.asked().iter().all(|target| !target.starts_with("/secret")), "robots.txt was not obeyed");
    assert_eq!(watch.pages().0, result.pages);
    let host = server.url("");
    server.stop();

    let files: Vec<String> = read_tree(&into).into_iter().map(|(name, _)| name).collect();
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
    let front = std::fs::read_to_string(into.join("index.html")).expect("a front page");
    assert!(
        front.contains(&format!("rel=\"canonical\" href=\"{host}/\"")),
        "the canonical address is the site's: {front}"
    );
    assert!(front.contains("href=\"/guide#top\"") && front.contains("href=\"/style.css?v=3\""), "{front}");

    let daemon = Daemon::serve(&into, &[]);
    let seen = walked(&daemon);
    let bad: Vec<_> = seen.iter().filter(|(_, status)| !matches!(status, 200 | 301..=308)).collect();
    let bad: Vec<&str> = bad.iter().map(|(target, _)| target.as_str()).collect();
    assert_eq!(bad, ["/gone", "/loop1", "/secret/x"], "what the site had, or had not: {seen:?}");
    for (target, content) in [
        ("/a", "a without slash"),
        ("/a/", "a with slash"),
        ("/list", "list"),
        ("/sitemap-only", "page"),
        ("/flaky", "at last"),
        ("/caf%C3%A9", "page"),
        ("/data", "{}"),
    ] {
        let answer = get(&daemon.address, target);
        assert!(
            answer.status == 200 && answer.text().contains(content),
            "{target}: {} {}",
            answer.status,
            answer.text()
        );
    }
    for (target, status, to) in [("/old", 308, "/guide#new"), ("/away", 302, "/there?x=1")] {
        let answer = get(&daemon.address, target);
        assert_eq!(answer.status, status, "{target}");
        assert!(answer.header("location").is_some_and(|location| location.ends_with(to)), "{target}: {answer:?}");
    }
    let lost = get(&daemon.address, "/no/such/page");
    assert!(lost.status == 404 && lost.text().contains("nothing here"), "{lost:?}");
    let said = result.warnings.join("\n");
    for part in
        ["/gone answers 404; / leads there", "robots.txt disallows /secret/x", "in a circle", "of other origins"]
    {
        assert!(said.contains(part), "{part} is not said: {said}");
    }
}

#[test]
fn links_lead_to_what_they_led_to() {
    let foreign = nobody();
    let server = site(foreign.local_addr().expect("an address").port());
    let dir = folder();
    crawled(&server.url("/"), dir.path());
    server.stop();
    let daemon = Daemon::serve(dir.path(), &[]);
    let front = get(&daemon.address, "/");
    let links = addresses(false, &front.body);
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
    let one = contents.iter().find(|text| text.contains("list one")).expect("the first of the list");
    let next = addresses(false, one.as_bytes());
    assert!(follow(&next[0]).contains("list two"), "{next:?}");
}

#[test]
fn the_same_site_gives_the_same_folder() {
    let foreign = nobody();
    let port = foreign.local_addr().expect("an address").port();
    let server = site(port);
    let trees: Vec<_> = [1, 7]
        .into_iter()
        .map(|parallel| {
            let dir = folder();
            let how = Crawl { parallel, ..of(&server.url("/")) };
            let done = crawl(&how, None, dir.path(), &JobContext::default()).expect("a copy");
            (read_tree(dir.path()), done)
        })
        .collect();
    assert!(trees[0] == trees[1], "{:?}\n{:?}", trees[0].1, trees[1].1);
    assert!(server.most.load(Ordering::SeqCst) > 1, "nothing was asked for at the same time");
}

/// Where `/<name>` redirects to, seen from a site at this port.
fn place(name: &str, port: u16, other: u16) -> Option<String> {
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
    let foreign = nobody();
    let other = foreign.local_addr().expect("an address").port();
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    let server = Server::start(move |target, head| {
        let head = head.to_ascii_lowercase();
        let host = head.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default().to_owned();
        let port = host.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or_default();
        seen.lock().expect("a list").push((target.to_owned(), host, head.contains("\nauthorization:")));
        match target {
            "/" => html(NAMES.map(|name| format!("<a href=/{name}>{name}</a>")).concat()),
            _ if target.starts_with("/to-") => html("there"),
            _ => place(&target[1..], port, other).map_or_else(missing, |to| moved(302, &to)),
        }
    });
    let dir = folder();
    crawled(&server.url("/"), dir.path());
    assert!(foreign.accept().is_err(), "another port was asked");
    assert!(!server.asked().iter().any(|target| target == ENCRYPTED), "another scheme was asked");
    let heads = heads.lock().expect("a list");
    for (target, host, has_user) in &*heads {
        assert_eq!((host.as_str(), has_user), (&*format!("127.0.0.1:{}", server.port), &false), "{target}");
    }
    let mut followed: Vec<&str> = heads.iter().filter_map(|(target, ..)| target.strip_prefix("/to-")).collect();
    followed.sort_unstable();
    assert_eq!(followed, ["address", "no-scheme", "path"]);
}

#[test]
fn a_server_that_asks_to_be_left_alone_is_asked_again_no_earlier() {
    let times = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::clone(&times);
    let server = Server::start(move |target, _| match target {
        "/" => {
            let mut asked = asked.lock().expect("a list");
            asked.push(Instant::now());
            // Without this field the pause is a second at most.
            if asked.len() == 1 { Page(503, "Retry-After: 2".to_owned(), Vec::new()) } else { html("at last") }
        }
        _ => missing(),
    });
    let dir = folder();
    crawled(&server.url("/"), dir.path());
    let times = times.lock().expect("a list");
    let pause = times[1] - times[0];
    assert!(times.len() == 2 && pause >= Duration::from_secs(2), "{} requests, {pause:?} between two", times.len());
}

#[test]
fn robots_are_left_aside_when_told_to() {
    let server = Server::start(|target, _| match target {
        "/robots.txt" => typed("text/plain", "User-agent: docwharf\nDisallow: /"),
        "/" => html("<a href=/x>x</a>"),
        "/x" => html("x"),
        _ => missing(),
    });
    let dir = folder();
    let refused = crawl(&of(&server.url("/")), None, &dir.path().join("a"), &JobContext::default());
    assert!(matches!(&refused, Err(CrawlError::NoPage { why, .. }) if why.contains("robots.txt")), "{refused:?}");
    let how = Crawl { robots: false, ..of(&server.url("/")) };
    let done = crawl(&how, None, &dir.path().join("b"), &JobContext::default()).expect("a copy");
    assert_eq!(done.pages, 3, "both pages and that for what is missing: {done:?}");
}

#[test]
fn an_endless_calendar_ends_at_the_limit() {
    let server = Server::start(|target, _| {
        let day: u64 = target.trim_start_matches("/day/").parse().unwrap_or(0);
        if target == "/robots.txt" { missing() } else { html(format!("<a href=/day/{}>next</a>", day + 1)) }
    });
    let dir = folder();
    let how = Crawl { most: 50, ..of(&server.url("/")) };
    let error = crawl(&how, None, dir.path(), &JobContext::default()).expect_err("no copy").to_string();
    assert!(error.contains("more than 50 pages") && error.contains("/day/") && error.contains("calendar"), "{error}");
    assert!(server.asked().len() < 80, "{}", server.asked().len());
    assert!(read_tree(dir.path()).is_empty(), "nothing of it is left");
}

#[test]
fn a_page_that_stays_away_fails_the_crawl_by_its_address() {
    let server = Server::start(|target, _| match target {
        "/" => html("<a href=/broken>x</a>"),
        "/broken" => Page(500, String::new(), Vec::new()),
        _ => missing(),
    });
    let dir = folder();
    let error = crawl(&of(&server.url("/")), None, dir.path(), &JobContext::default()).expect_err("no copy");
    assert!(matches!(&error, CrawlError::Fetch { url, .. } if url.path() == "/broken"), "{error:?}");
    assert!(server.asked().iter().filter(|target| *target == "/broken").count() > 2, "{:?}", server.asked());
}

#[test]
fn only_the_pages_that_are_asked_for_come_with_what_they_need() {
    let foreign = nobody();
    let server = site(foreign.local_addr().expect("an address").port());
    let dir = folder();
    let paths = ["/a".to_owned(), "guide".to_owned()];
    let done = crawl(&of(&server.url("/")), Some(&paths), dir.path(), &JobContext::default()).expect("a copy");
    let pages: Vec<String> = read_tree(dir.path()).into_iter().map(|(name, _)| name).collect();
    let pages: Vec<&str> =
        pages.iter().map(String::as_str).filter(|name| docwharf::model::site_path::is_page(name.as_bytes())).collect();
    assert_eq!(pages, ["404.html", "a.html", "guide.html"], "{done:?}");
    assert!(dir.path().join("i.png").exists());
}

#[test]
fn a_crawl_ends_when_it_is_not_wanted_any_more() {
    let (gate, is_asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (open, asked) = (Arc::clone(&gate), Arc::clone(&is_asked));
    let server = Server::start(move |target, _| {
        if target == "/" {
            asked.store(true, Ordering::SeqCst);
            until("the end of the test", || open.load(Ordering::SeqCst));
        }
        missing()
    });
    let (dir, watch) = (folder(), Arc::new(JobContext::default()));
    let (how, into, seen) = (of(&server.url("/")), dir.path().to_owned(), Arc::clone(&watch));
    let thread = std::thread::spawn(move || crawl(&how, None, &into, &seen));
    until("the start page is asked for", || is_asked.load(Ordering::SeqCst));
    watch.cancel();
    let ended = thread.join().expect("it ends");
    gate.store(true, Ordering::SeqCst);
    assert!(matches!(ended, Err(CrawlError::Stopped)), "{ended:?}");
}

#[test]
fn pages_in_other_charsets_are_kept_byte_for_byte_and_told_of() {
    let latin = b"<p>caf\xe9 <a href=\"http://127.0.0.1/\">x</a>".to_vec();
    let body = latin.clone();
    let server = Server::start(move |target, _| match target {
        "/" => html("<a href=/latin>x</a>"),
        "/latin" => typed("text/html; charset=ISO-8859-1", body.clone()),
        _ => missing(),
    });
    let dir = folder();
    let done = crawled(&server.url("/"), dir.path());
    assert_eq!(std::fs::read(dir.path().join("latin.html")).expect("a page"), latin);
    assert!(done.warnings.iter().any(|line| line.contains("/latin") && line.contains("iso-8859-1")), "{done:?}");
}

#[test]
fn a_site_below_a_path_begins_there_and_a_folder_with_something_in_it_is_left_alone() {
    let server = Server::start(|target, _| match target {
        "/docs/" => html("<a href=start>x</a><link rel=stylesheet href=a.css>"),
        "/docs/start" => html("start"),
        "/docs/a.css" => typed("text/css", ""),
        _ => Page(404, String::new(), Vec::new()),
    });
    let dir = folder();
    let into = dir.path().join("copy");
    crawled(&server.url("/docs/"), &into);
    let again = crawl(&of(&server.url("/docs/")), None, &into, &JobContext::default());
    assert!(matches!(again, Err(CrawlError::Write { .. })), "{again:?}");
    let daemon = Daemon::serve(&into, &[]);
    let front = get(&daemon.address, "/");
    assert_eq!((front.status, front.header("location")), (302, Some("/docs/")));
    for target in ["/docs/", "/docs/start", "/docs/a.css"] {
        assert_eq!(get(&daemon.address, target).status, 200, "{target}");
    }
}

#[test]
fn a_site_of_next_has_its_chunks_payloads_and_pictures_as_files() {
    let server = Server::start(|target, head| match target {
        "/guide?_rsc" if head.contains("rsc: 1") || head.contains("RSC: 1") => {
            typed("text/x-component", "1:\"static/chunks/p.js\"")
        }
        "/" => html(
            r#"<img srcset="/_next/image?url=%2Fa.png&amp;w=64 1x, /_next/image?url=%2Fa.png&amp;w=128 2x"><a href=/guide>g</a>
            <script src="/_next/static/chunks/m.js"></script>"#,
        ),
        "/guide" => html("guide<script>self.__next_f.push([1,\"2:\\\"/_next/static/chunks/flight.js\\\"\"])</script>"),
        "/_next/static/chunks/m.js" => {
            typed("application/javascript", r#"l("static/chunks/lazy.js");c={path:"/_next/image",unoptimized:!1}"#)
        }
        "/_next/image?url=%2Fa.png&w=64" => typed("image/webp", "small"),
        "/_next/image?url=%2Fa.png&w=128" => typed("image/webp", "large"),
        "/a.png" => typed("image/png", "whole"),
        _ if target.starts_with("/_next/static/chunks/") => typed("application/javascript", "1"),
        _ => missing(),
    });
    let dir = folder();
    crawled(&server.url("/"), dir.path());
    server.stop();
    let files: Vec<String> = read_tree(dir.path()).into_iter().map(|(name, _)| name).collect();
    for name in ["m", "lazy", "p", "flight"].map(|name| format!("_next/static/chunks/{name}.js")) {
        assert!(files.contains(&name), "{name} is not in {files:?}");
    }
    assert!(files.contains(&"guide.txt".to_owned()) && files.contains(&"a.png".to_owned()), "{files:?}");
    let daemon = Daemon::serve(dir.path(), &[]);
    assert!(walked(&daemon).values().all(|status| *status == 200));
    let front = addresses(false, &get(&daemon.address, "/").body);
    let pictures: Vec<String> =
        front.iter().filter(|link| link.contains("image")).map(|link| get(&daemon.address, link).text()).collect();
    assert_eq!(pictures, ["small", "large"], "{front:?}");
    assert!(get(&daemon.address, "/_next/static/chunks/m.js").text().contains("unoptimized:!0"));
}

#[test]
fn credentials_are_never_sent() {
    let dir = folder();
    let error =
        crawl(&of("http://user:pass@127.0.0.1:9/"), None, dir.path(), &JobContext::default()).expect_err("no copy");
    assert!(!error.to_string().contains("pass@") && !error.to_string().contains("user:"), "{error}");
}

/// Acme's sites, and two of umbrella's.
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

/// One organization takes all the work that it can get; another's is done all the same.
mod neighbours {
    use std::time::Instant;

    use super::*;

    use docwharf::origin::shares::ResourcePools;
    use docwharf::origin::{OriginLimits, SharedResource};
    use serde_json::json;
    use support::hub::{FOLDER, Hub, JOBS, data, git, repository};
    use support::write_site;

    const PREVIEWS: &str = "/v1/project/preview";
    const STATUS: &str = "/v1/project/update-status";
    /// Keeps a processor busy for longer than any test takes.
    const SPINS: &str = "while :; do :; done";

    /// Builds have the lowest priority, so that a machine with other work takes its time. Nothing of acme's ends before.
    #[track_caller]
    fn until(what: &str, mut yes: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_mins(8);
        while !yes() {
            assert!(Instant::now() < deadline, "waited in vain: {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[track_caller]
    fn queue(hub: &Hub, key: &str, domain: &str) -> String {
        let answer = hub.ask(key, "POST", JOBS, Some(&json!({ "domain": domain })));
        assert_eq!(answer.status, 202, "{}", answer.text());
        data(&answer)["jobId"].as_str().expect("an id").to_owned()
    }

    fn status(hub: &Hub, key: &str, job: &str) -> String {
        data(&hub.ask(key, "GET", &format!("{JOBS}/{job}"), None))["status"].as_str().expect("a status").to_owned()
    }

    #[track_caller]
    fn preview(hub: &Hub, key: &str, project: &str, branch: &str) -> String {
        let answer = hub.ask(key, "POST", &format!("{PREVIEWS}/{project}"), Some(&json!({ "branch": branch })));
        assert_eq!(answer.status, 202, "{}", answer.text());
        data(&answer)["statusId"].as_str().expect("an id").to_owned()
    }

    /// Answers every connection just fast enough not to be given up, until the test ends.
    fn drips_for_all() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let head = "HTTP/1.1 200 x\r\nContent-Length: 60000000\r\nContent-Type: text/html\r\n\r\n";
                    let mut sent = stream.write_all(head.as_bytes());
                    while sent.is_ok() {
                        std::thread::sleep(Duration::from_millis(200));
                        sent = stream.write_all(&[b' '; 2048]);
                    }
                });
            }
        });
        url
    }

    #[test]
    fn with_one_organization_doing_its_worst_anothers_exports_and_previews_are_made() {
        let script = "/_next/static/".repeat((4 << 20) / 14);
        let scripts = Server::start(move |target, _| match target {
            "/" => html("<script src=/a.js></script>"),
            "/a.js" => typed("text/javascript", script.clone()),
            _ => missing(),
        });
        let file = ALL.replace("DRIPS", &drips_for_all()).replace("SCRIPTS", &scripts.url("/")).replace("BUILD", SPINS);
        // The keys of `[limits]` are at their defaults.
        let mut hub = Hub::new(&file);
        std::fs::set_permissions(hub.dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("ours");
        write_site(&hub.path("folder"), &[("index.html", "<p>umbrella")]);
        repository(&hub.path("branches"), &[("index.html", "<p>branch")]);
        repository(&hub.path("spins"), &[("index.html", "<p>spin")]);
        for n in 0..4 {
            git(&hub.path("spins"), &["branch", &format!("b{n}")]);
        }
        let (acme, umbrella) = (hub.key.clone(), hub.create("umbrella", "all", &[]));
        hub.start();
        let mut hostile: Vec<String> = Vec::new();
        for _ in 0..3 {
            for name in ["drips", "scripts", "spins"] {
                hostile.push(queue(&hub, &acme, &format!("{name}.acme.example")));
            }
        }
        let previews: Vec<String> = (0..4).map(|n| preview(&hub, &acme, "spins", &format!("b{n}"))).collect();
        until("acme's first job is under way", || status(&hub, &acme, &hostile[0]) == "running");

        for _ in 0..2 {
            let export = queue(&hub, &umbrella, "docs.umbrella.example");
            let built = queue(&hub, &umbrella, "branches.umbrella.example");
            let shown = preview(&hub, &umbrella, "branches", "main");
            for job in [&export, &built] {
                until("umbrella's export is made", || status(&hub, &umbrella, job) == "completed");
            }
            until("umbrella's preview is shown", || {
                let told = data(&hub.ask(&umbrella, "GET", &format!("{STATUS}/{shown}"), None));
                assert_ne!(told["status"], "failure", "{told}");
                told["status"] == "success"
            });
        }
        // Nothing of acme's had to end for that.
        assert_eq!(status(&hub, &acme, &hostile[0]), "running");
        assert!(hostile[1..].iter().all(|job| status(&hub, &acme, job) == "queued"), "one worker is left for others");
        let under_way = |id: &&String| {
            let told = data(&hub.ask(&acme, "GET", &format!("{STATUS}/{id}"), None));
            !matches!(told["status"].as_str(), Some("success" | "failure"))
        };
        assert_eq!(previews.iter().filter(under_way).count(), previews.len());
    }

    #[test]
    fn crawls_of_an_organization_share_what_it_may_take() {
        let server = Server::start(|target, _| match target {
            "/" => html((0..100).map(|n| format!("<a href=/{n}>")).collect::<Vec<_>>().concat()),
            _ => html("x"),
        });
        let limits =
            OriginLimits::from_config(|resource| (resource == SharedResource::CrawlAddresses).then_some(150), |_| None);
        let shares = ResourcePools::new(limits.expect("limits"), 2);
        let other = JobContext::of(Arc::clone(&shares), "acme");
        other.hold_share(SharedResource::CrawlAddresses, 100).expect("a share");
        let dir = folder();
        let watch = JobContext::of(Arc::clone(&shares), "acme");
        let error = crawl(&of(&server.url("/")), None, dir.path(), &watch).expect_err("no copy");
        assert!(matches!(error, CrawlError::Share { resource: SharedResource::CrawlAddresses, .. }), "{error:?}");
        assert!(error.to_string().contains("crawlAddresses"), "{error}");
        other.release_shares();
        watch.release_shares();
        let dir = folder();
        crawl(&of(&server.url("/")), None, dir.path(), &watch).expect("a copy");
        let known = shares.pool(SharedResource::CrawlAddresses).in_use();
        assert!((100..=150).contains(&known), "{known}");
    }

    #[test]
    fn nobody_without_a_key_learns_where_a_crawled_site_lies() {
        let url = "http://127.0.0.1:21012/";
        let mut hub = Hub::new(&FOLDER.replace("directory = \"site\"", &format!("crawl = \"{url}\"")));
        hub.start();
        let answer = support::http::get(hub.address(), "/sites/docs.acme.example/sitemap.xml");
        assert_eq!(answer.status, 404);
        assert!(!answer.text().contains("21012") && !answer.text().contains("127.0.0.1"), "{}", answer.text());
    }
}
