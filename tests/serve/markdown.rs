//! Markdown of pages and `llms.txt`, through the executable: over HTTP/1.1, over both implementations of HTTP/2, and
//! for a daemon with a store.

use std::fs;

use support::h2::Http2Client;
use support::host::Host;
use support::http::{Response, get, gunzip, request};
use support::zip::{deflated, zip};
use support::{Daemon, HTTP2_SERVERS, metrics, serve_configured, serve_site, serve_site_with_http2, until};

const PAGES: [(&str, &str); 5] = [
    (
        "guides/start.html",
        "<html lang=en><title>Start</title><nav>menu</nav><main><h1 id=s>Start</h1><p>Read <a href=../api/>the API</a>.\
         <pre><code class=language-sh>make</code></pre></main>",
    ),
    ("api/index.html", "<title>API</title><table><tr><th>Name<th>Use<tr><td><code>a|b</code><td>both</table>"),
    ("index.html", "<title>Docs</title><meta name=description content='All of it.'><h1>Docs</h1>"),
    ("private.html", "<title>P</title><meta name=robots content=noindex><p>private"),
    ("image.png", "not a page"),
];
const START: &str = "# Start\n\nRead [the API](/api/).\n\n```sh\nmake\n```\n";
const ACCEPT: &str = "text/markdown, text/html;q=0.9";

/// Status, body, and the fields that describe the Markdown.
fn describe(response: &Response) -> (u16, String, Vec<Option<&str>>) {
    let names = ["content-type", "etag", "vary", "x-robots-tag", "content-location", "link", "content-length"];
    (response.status, response.text(), names.iter().map(|name| response.header(name)).collect())
}

#[test]
fn every_page_has_markdown_over_http1_and_http2_from_the_first_request_on() {
    for http2 in HTTP2_SERVERS {
        for (target, fields) in [("/guides/start.md", &[][..]), ("/guides/start", &[("accept", ACCEPT)])] {
            // A new server, so that the first request of each protocol finds a page that is not converted.
            for first_is_http1 in [true, false] {
                let (_dir, daemon) = serve_site_with_http2(http2, &PAGES);
                let http1 = || {
                    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
                    request(&daemon.address, "GET", target, &fields.iter().map(String::as_str).collect::<Vec<_>>())
                };
                let http2 = || {
                    let mut client = Http2Client::open(&daemon.address);
                    let stream = client.request("GET", target, fields);
                    client.response(stream)
                };
                let responses = if first_is_http1 { [http1(), http2(), http1()] } else { [http2(), http1(), http2()] };
                let (status, text, described) = describe(&responses[0]);
                assert_eq!((status, text.as_str()), (200, START), "{target}");
                assert_eq!(described[0], Some("text/markdown; charset=utf-8"));
                assert_eq!(described[3], Some("noindex"));
                assert_eq!(described[4].is_some(), target == "/guides/start");
                assert_eq!(described[5], Some("</llms.txt>; rel=\"describedby\""));
                for response in &responses[1..] {
                    assert_eq!(describe(response), describe(&responses[0]), "{target}");
                }
                let tag = format!("If-None-Match: {}", responses[0].header("etag").unwrap());
                let mut fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
                let head =
                    request(&daemon.address, "HEAD", target, &fields.iter().map(String::as_str).collect::<Vec<_>>());
                assert_eq!((head.status, head.body.len()), (200, 0));
                assert_eq!(describe(&head).2, described);
                fields.push(tag);
                let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
                let not_modified = request(&daemon.address, "GET", target, &fields);
                assert_eq!((not_modified.status, not_modified.header("etag")), (304, described[1]));
                assert_eq!(not_modified.header("vary"), described[2]);
            }
        }
    }
}

#[test]
fn page_names_its_markdown_and_browsers_get_the_page() {
    let (_dir, daemon) = serve_site(&PAGES, &["--base-path", "/docs/"]);
    // The first response is made, later ones come from the response cache.
    for _ in 0..3 {
        let page = request(&daemon.address, "GET", "/docs/guides/start", &["Accept: text/html, */*;q=0.8"]);
        assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
        assert_eq!(page.header("vary"), Some("accept, accept-encoding"));
        let link =
            "</docs/guides/start.md>; rel=\"alternate\"; type=\"text/markdown\", </docs/llms.txt>; rel=\"describedby\"";
        assert_eq!(page.header("link"), Some(link));
        let markdown = request(&daemon.address, "GET", "/docs/guides/start", &[&format!("Accept: {ACCEPT}")]);
        assert_eq!(markdown.header("content-location"), Some("/docs/guides/start.md"));
        assert_eq!(markdown.text(), START.replace("(/api/)", "(/docs/api/)"));
        assert_eq!(get(&daemon.address, "/docs/image.png").header("link"), None);
    }
    for target in ["/docs/none.md", "/docs/image.md", "/docs/image.png.md", "/guides/start.md"] {
        assert_eq!(get(&daemon.address, target).status, 404, "{target}");
    }
}

/// Requests a text until it has been made.
#[track_caller]
fn get_when_made(daemon: &Daemon, target: &str) -> Response {
    let mut response = get(&daemon.address, target);
    until("the list of the pages is made", || {
        response = get(&daemon.address, target);
        response.status != 503
    });
    response
}

#[test]
fn llms_txt_is_made_without_pages_that_ask_to_be_left_out() {
    let (_dir, daemon) = serve_configured(&PAGES, "[search]\nexclude = [\"/api/*\"]\n");
    let list = "# Docs\n\n> All of it.\n\n## guides\n\n- [Start](/guides/start.md)\n\n\
                ## Pages\n\n- [Docs](/index.md): All of it.\n";
    for target in ["/llms.txt", "/.well-known/llms.txt"] {
        let response = get_when_made(&daemon, target);
        assert_eq!((response.status, response.text().as_str()), (200, list));
        assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"));
        let tag = format!("If-None-Match: {}", response.header("etag").unwrap());
        assert_eq!(request(&daemon.address, "GET", target, &[&tag]).status, 304);
    }
    let full = get_when_made(&daemon, "/llms-full.txt").text();
    assert!(full.contains(START), "{full}");
    assert!(!full.contains("private") && !full.contains("both"), "{full}");
    // A page that is left out of the lists has its own Markdown.
    assert_eq!(get(&daemon.address, "/private.md").text(), "private\n");
}

#[test]
fn pages_with_a_header_rule_against_indexing_are_left_out_of_the_lists() {
    let rules = ("_headers", "/guides/*\n  X-Robots-Tag: nofollow, noindex\n");
    let rule = "[[server.headers]]\nsource = \"/api/*\"\nvalues = { X-Robots-Tag = \"none\" }\n";
    let (_dir, daemon) = serve_configured(&[&PAGES[..], &[rules]].concat(), rule);
    let list = "# Docs\n\n> All of it.\n\n## Pages\n\n- [Docs](/index.md): All of it.\n";
    assert_eq!(get_when_made(&daemon, "/llms.txt").text(), list);
    let full = get_when_made(&daemon, "/llms-full.txt").text();
    assert!(!full.contains("Read") && !full.contains("both"), "{full}");
    // They have Markdown of their own, which says that it is not to be indexed.
    for target in ["/guides/start.md", "/api.md"] {
        let page = get(&daemon.address, target);
        assert_eq!(page.status, 200, "{target}");
        let robots = page.header("x-robots-tag").unwrap();
        assert!(robots.contains("noindex") || robots.contains("none"), "{target}: {robots}");
    }
}

#[test]
fn links_of_llms_txt_lead_to_the_pages_while_markdown_is_off() {
    let (_dir, daemon) = serve_configured(&PAGES, "[assistant]\nmarkdown = false\n");
    let list = get_when_made(&daemon, "/llms.txt").text();
    let links: Vec<&str> = list.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()).collect();
    assert_eq!(links, ["/api/", "/guides/start.html", "/"], "{list}");
    for link in links {
        assert_eq!(get(&daemon.address, link).status, 200, "{link}");
    }
    assert!(!get_when_made(&daemon, "/llms-full.txt").text().contains(".md)"));
}

#[test]
fn markdown_is_compressed_for_clients_that_accept_it_and_sent_in_ranges() {
    let (_dir, daemon) = serve_site(&PAGES, &[]);
    until("the page is converted", || get(&daemon.address, "/guides/start.md").status == 200);
    get_when_made(&daemon, "/llms-full.txt");
    for target in ["/guides/start.md", "/llms.txt", "/llms-full.txt"] {
        let plain = get(&daemon.address, target);
        let coded = request(&daemon.address, "GET", target, &["Accept-Encoding: gzip, br"]);
        assert_eq!((coded.status, coded.header("content-encoding")), (200, Some("gzip")), "{target}");
        assert_eq!(gunzip(&coded.body), plain.body, "{target}");
        assert!(coded.header("vary").unwrap().contains("accept-encoding"), "{target}");
        assert_eq!(coded.header("vary"), plain.header("vary"));
        assert_ne!(coded.header("etag"), plain.header("etag"), "{target}");
        let tag = format!("If-None-Match: {}", coded.header("etag").unwrap());
        let fields = ["Accept-Encoding: gzip", tag.as_str()];
        assert_eq!(request(&daemon.address, "GET", target, &fields).status, 304, "{target}");
        let refused = request(&daemon.address, "GET", target, &["Accept-Encoding: gzip;q=0"]);
        assert_eq!((refused.header("content-encoding"), &refused.body), (None, &plain.body));
        for (fields, body) in [(&[][..], &plain.body), (&["Accept-Encoding: gzip"], &coded.body)] {
            let part = request(&daemon.address, "GET", target, &[fields, &["Range: bytes=2-5"]].concat());
            let range = format!("bytes 2-5/{}", body.len());
            assert_eq!((part.status, part.header("content-range")), (206, Some(range.as_str())), "{target}");
            assert_eq!(part.body, body[2..6], "{target}");
        }
        let stale = request(&daemon.address, "GET", target, &["Range: bytes=2-5", "If-Range: \"other\""]);
        assert_eq!((stale.status, &stale.body), (200, &plain.body));
        let beyond = request(&daemon.address, "GET", target, &["Range: bytes=99999999-"]);
        let range = format!("bytes */{}", plain.body.len());
        assert_eq!((beyond.status, beyond.header("content-range")), (416, Some(range.as_str())));
        let several = request(&daemon.address, "GET", target, &["Range: bytes=0-1,4-5"]);
        assert_eq!((several.status, &several.body), (200, &plain.body));
    }
}

#[test]
fn settings_turn_markdown_and_llms_txt_off() {
    let (_dir, daemon) = serve_configured(&PAGES, "[assistant]\nmarkdown = false\nllms = false\n");
    for target in ["/guides/start.md", "/llms.txt", "/llms-full.txt", "/.well-known/llms.txt"] {
        assert_eq!(get(&daemon.address, target).status, 404, "{target}");
    }
    let page = request(&daemon.address, "GET", "/guides/start", &[&format!("Accept: {ACCEPT}")]);
    assert_eq!((page.header("link"), page.header("vary")), (None, Some("accept-encoding")));
    assert!(page.text().contains("<nav>"));
}

#[test]
fn daemon_keeps_the_markdown_of_its_version_and_makes_it_again_when_it_is_damaged() {
    // It is made after the search index.
    let host = Host::bare().set("search.enabled", "true");
    let files: Vec<_> = PAGES.iter().map(|(path, text)| deflated(path, text)).collect();
    host.put("site.zip", zip(&files));
    host.ok(&["import", host.path("site.zip").to_str().unwrap()]);
    let file = host.path("store").join("derived").join(host.active().unwrap()).join("markdown/pages");
    {
        let daemon = host.run();
        until("the Markdown is made", || file.is_file());
        let list = get_when_made(&daemon, "/llms.txt");
        assert!(list.text().starts_with("# Docs\n\n> All of it.\n"), "{}", list.text());
        assert_eq!(get(&daemon.address, "/guides/start.md").text(), START);
    }
    let mut bytes = fs::read(&file).unwrap();
    bytes[10] ^= 1;
    fs::remove_file(&file).unwrap();
    fs::write(&file, &bytes).unwrap();
    let daemon = host.run();
    until("the Markdown is made again", || fs::read(&file).is_ok_and(|now| now != bytes));
    assert!(get_when_made(&daemon, "/llms.txt").text().starts_with("# Docs\n"));
    assert_eq!(get(&daemon.address, "/guides/start.md").text(), START);
}

#[test]
fn daemon_follows_the_settings_of_its_lists_and_counts_requests() {
    let rule = "[{ source = \"/api/*\", values = { X-Robots-Tag = \"noindex\" } }]";
    let mut host =
        Host::bare().set("search.enabled", "true").set("server.headers", rule).set("admin.listen", "\"127.0.0.1:0\"");
    let files: Vec<_> = PAGES.iter().map(|(path, text)| deflated(path, text)).collect();
    host.put("site.zip", zip(&files));
    host.ok(&["import", host.path("site.zip").to_str().unwrap()]);
    let file = host.path("store").join("derived").join(host.active().unwrap()).join("markdown/pages");
    let daemon = host.run();
    until("the Markdown is made", || file.is_file());
    let list = "# Docs\n\n> All of it.\n\n## guides\n\n- [Start](/guides/start.md)\n\n\
                ## Pages\n\n- [Docs](/index.md): All of it.\n";
    assert_eq!(get_when_made(&daemon, "/llms.txt").text(), list, "the process that makes it knows the rules");
    let tag = format!("If-None-Match: {}", get(&daemon.address, "/guides/start.md").header("etag").unwrap());
    request(&daemon.address, "GET", "/guides/start.md", &[&tag]);
    request(&daemon.address, "GET", "/guides/start", &[&format!("Accept: {ACCEPT}")]);
    request(&daemon.address, "GET", "/llms-full.txt", &["Range: bytes=99999999-"]);
    let admin = host.reported_address("admin");
    let counted = |labels: &str| metrics::value(&admin, &format!("docwharf_markdown_requests_total{{{labels}}}"));
    for (labels, expected) in [
        ("endpoint=\"page\",outcome=\"ok\"", 1),
        ("endpoint=\"page\",outcome=\"not_modified\"", 1),
        ("endpoint=\"negotiated_page\",outcome=\"ok\"", 1),
        ("endpoint=\"llms_full\",outcome=\"refused\"", 1),
        ("endpoint=\"llms_full\",outcome=\"busy\"", 0),
    ] {
        assert_eq!(counted(labels), expected, "{labels}");
    }
    let before = counted("endpoint=\"llms\",outcome=\"ok\"");
    assert_eq!(get(&daemon.address, "/llms.txt").status, 200);
    assert_eq!(counted("endpoint=\"llms\",outcome=\"ok\""), before + 1);
    host.change("assistant.markdown", "false");
    daemon.signal("HUP");
    let without = list.replace("/guides/start.md", "/guides/start.html").replace("/index.md", "/");
    until("the list leads to the pages", || get(&daemon.address, "/llms.txt").text() == without);
}
