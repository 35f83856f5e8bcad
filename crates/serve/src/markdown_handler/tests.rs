//! Requests for Markdown, answered by a site in memory.

use std::num::NonZeroU32;
use std::sync::Arc;

use http::header::{ACCEPT, HOST, IF_NONE_MATCH, RETRY_AFTER};
use http::{HeaderName, Method, Request};
use http_body_util::BodyExt;

use super::*;
use crate::handler::{handle, handle_deferred};
use crate::test_versions::version_with_files;
use crate::{AssistantSettings, HostList, SiteMarkdownSource, SiteSettings};

const PAGES: [(&str, &str); 6] = [
    ("404.html", "<h1>Missing</h1>"),
    ("guides/index.html", "<title>Guides</title><h1>Guides</h1><p><a href=start.html>Start</a><p hidden>secret</p>"),
    ("guides/own.html", "<h1>Page</h1>"),
    ("guides/own.md", "own Markdown"),
    ("guides/start.html", "<title>Start</title><h1>Start</h1><p><a href=../>Up</a>"),
    ("index.html", "<title>Docs</title><meta name=description content='All of it'><p>Welcome"),
];

fn settings(markdown: bool, llms: bool) -> Arc<AssistantSettings> {
    let mcp_per_minute = NonZeroU32::MIN;
    Arc::new(AssistantSettings { mcp: false, mcp_per_minute, markdown, llms, hosts: HostList::default(), ask: None })
}

fn site(files: &[(&str, &str)]) -> Arc<Site> {
    let site = Site::new(SiteSettings { base_path: "/docs/".to_owned(), ..SiteSettings::default() });
    site.set_version(version_with_files(files, 0));
    site.set_assistant_settings(Some(settings(true, true)));
    site
}

struct Answer {
    response: Response<ResponseBody>,
}

impl Answer {
    fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name).map(|value| value.to_str().unwrap())
    }

    async fn text(self) -> String {
        let body = self.response.into_body().collect().await.unwrap();
        String::from_utf8(body.to_bytes().to_vec()).unwrap()
    }
}

fn request(method: Method, target: &str, fields: &[(HeaderName, &str)]) -> Request<()> {
    let mut request = Request::builder().method(method).uri(target).header(HOST, "x").body(()).unwrap();
    for (name, value) in fields {
        request.headers_mut().append(name.clone(), value.parse().unwrap());
    }
    request
}

async fn get(site: &Arc<Site>, target: &str, fields: &[(HeaderName, &str)]) -> Answer {
    Answer { response: handle_deferred(site, request(Method::GET, target, fields), None).await }
}

#[tokio::test]
async fn every_page_has_markdown_beside_it_and_the_markdown_of_the_site_wins() {
    let site = site(&PAGES);
    for (target, expected) in [
        ("/docs/guides/start.md", "# Start\n\n[Up](/docs/)\n"),
        ("/docs/guides/start.html.md", "# Start\n\n[Up](/docs/)\n"),
        ("/docs/guides.md", "# Guides\n\n[Start](/docs/guides/start.html)\n"),
        ("/docs/guides/index.md", "# Guides\n\n[Start](/docs/guides/start.html)\n"),
        ("/docs/index.md", "Welcome\n"),
        ("/docs/guides/st%61rt.m%64", "# Start\n\n[Up](/docs/)\n"),
    ] {
        let answer = get(&site, target, &[]).await;
        assert_eq!((answer.status(), answer.field("content-type")), (200, Some(MARKDOWN_TYPE)), "{target}");
        assert_eq!(
            (answer.field("vary"), answer.field("x-robots-tag")),
            (Some("accept, accept-encoding"), Some("noindex"))
        );
        assert_eq!(answer.field("link"), Some("</docs/llms.txt>; rel=\"describedby\""));
        assert!(answer.field("content-location").is_none());
        assert_eq!(answer.text().await, expected, "{target}");
    }
    assert_eq!(get(&site, "/docs/guides/own.md", &[]).await.text().await, "own Markdown");
    for target in ["/docs/none.md", "/docs/.md", "/docs/guides/.md", "/start.md", "/docs/guides/own.md.md"] {
        assert_eq!(get(&site, target, &[]).await.status(), 404, "{target}");
    }
}

#[tokio::test]
async fn markdown_is_sent_at_the_address_of_the_page_to_clients_that_prefer_it() {
    let site = site(&PAGES);
    let answer = get(&site, "/docs/guides/start", &[(ACCEPT, "text/markdown, text/html;q=0.5")]).await;
    assert_eq!((answer.status(), answer.field("vary")), (200, Some("accept, accept-encoding")));
    assert_eq!(answer.field("content-location"), Some("/docs/guides/start.md"));
    let tag = answer.field("etag").unwrap().to_owned();
    assert_eq!(answer.text().await, "# Start\n\n[Up](/docs/)\n");
    let cached = get(&site, "/docs/guides/start", &[(ACCEPT, "text/markdown"), (IF_NONE_MATCH, &tag)]).await;
    assert_eq!(
        (cached.status(), cached.field("etag"), cached.field("vary")),
        (304, Some(tag.as_str()), Some("accept, accept-encoding"))
    );
    let html = get(&site, "/docs/guides/start", &[(ACCEPT, "text/html, */*")]).await;
    assert_eq!(html.field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(html.field("vary"), Some("accept, accept-encoding"));
    let link =
        "</docs/guides/start.md>; rel=\"alternate\"; type=\"text/markdown\", </docs/llms.txt>; rel=\"describedby\"";
    assert_eq!(html.field("link"), Some(link));
    let head = handle_deferred(&site, request(Method::HEAD, "/docs/guides/start.md", &[]), None).await;
    assert_eq!(head.headers().get(CONTENT_LENGTH).unwrap(), "22");
    assert!(head.into_body().collect().await.unwrap().to_bytes().is_empty());
}

#[tokio::test]
async fn without_the_settings_nothing_is_made() {
    let site = site(&PAGES);
    for setting in [None, Some(settings(false, false))] {
        site.set_assistant_settings(setting);
        for target in ["/docs/guides/start.md", "/docs/llms.txt", "/docs/llms-full.txt", "/docs/.well-known/llms.txt"] {
            assert_eq!(get(&site, target, &[]).await.status(), 404, "{target}");
        }
        let page = get(&site, "/docs/guides/start", &[(ACCEPT, "text/markdown")]).await;
        assert_eq!(
            (page.field("content-type"), page.field("vary")),
            (Some("text/html; charset=utf-8"), Some("accept-encoding"))
        );
        assert_eq!(page.field("link"), None);
        // The site's own Markdown does not depend on the settings.
        assert_eq!(get(&site, "/docs/guides/own.md", &[]).await.status(), 200);
    }
    site.set_assistant_settings(Some(settings(true, false)));
    assert_eq!(get(&site, "/docs/llms.txt", &[]).await.status(), 404);
    assert_eq!(get(&site, "/docs/guides/start.md", &[]).await.status(), 200);
}

#[test]
fn page_that_is_not_converted_yet_is_not_converted_by_the_serving_thread() {
    let site = site(&PAGES);
    let target = "/docs/guides/start.md";
    let answer = handle(&site, &request(Method::GET, target, &[]), None);
    assert_eq!((answer.status().as_u16(), answer.headers().get(RETRY_AFTER).unwrap().to_str().unwrap()), (503, "1"));
    let request = request(Method::GET, target, &[]);
    assert!(find_unconverted_page(&RequestContext::new(&site, &request, None)).is_some());
    let version = site.served_version().unwrap();
    let file = version.find(b"guides/start.html").unwrap();
    let page = crate::page_markdown::find(&site, &version, file).unwrap();
    assert_eq!(page.title, "Start");
    assert!(find_unconverted_page(&RequestContext::new(&site, &request, None)).is_none());
    assert_eq!(handle(&site, &request, None).status().as_u16(), 200);
}

/// Requests a text until it has been made.
async fn get_when_made(site: &Arc<Site>, target: &str) -> Answer {
    let start = std::time::Instant::now();
    loop {
        let answer = get(site, target, &[]).await;
        if answer.status() != 503 {
            return answer;
        }
        assert_eq!(answer.field("retry-after"), Some("5"));
        assert!(start.elapsed() < std::time::Duration::from_mins(1), "the file is never made");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn llms_txt_is_made_for_a_site_that_has_none() {
    let site_without = site(&PAGES);
    let expected = "# Docs\n\n> All of it\n\n## guides\n\n- [Guides](/docs/guides/index.md)\n- [Page](/docs/guides/own.md)\n\
                    - [Start](/docs/guides/start.md)\n\n## Pages\n\n- [Docs](/docs/index.md): All of it\n";
    for target in ["/docs/llms.txt", "/docs/.well-known/llms.txt"] {
        let answer = get_when_made(&site_without, target).await;
        assert_eq!((answer.status(), answer.field("content-type")), (200, Some(PLAIN_TEXT_TYPE)));
        let tag = answer.field("etag").unwrap().to_owned();
        assert_eq!(answer.text().await, expected);
        assert_eq!(get(&site_without, target, &[(IF_NONE_MATCH, &tag)]).await.status(), 304);
    }
    let full = get_when_made(&site_without, "/docs/llms-full.txt").await.text().await;
    assert!(full.contains("# Start\n\n[Up](/docs/)\n") && !full.contains("secret"), "{full}");
    // The pages come from the same file now.
    let request = request(Method::GET, "/docs/guides.md", &[]);
    assert!(find_unconverted_page(&RequestContext::new(&site_without, &request, None)).is_none());
    let own = site(&[&PAGES[..], &[("llms.txt", "own list")]].concat());
    for target in ["/docs/llms.txt", "/docs/.well-known/llms.txt"] {
        assert_eq!(get(&own, target, &[]).await.text().await, "own list");
    }
}

#[tokio::test]
async fn site_makes_no_list_that_the_program_could_not_make_and_still_converts_pages() {
    let site = site(&PAGES);
    site.set_site_markdown_source(SiteMarkdownSource::Failed);
    for target in ["/docs/llms.txt", "/docs/.well-known/llms.txt", "/docs/llms-full.txt"] {
        let answer = get(&site, target, &[]).await;
        assert_eq!((answer.status(), answer.field("retry-after")), (503, Some("60")), "{target}");
        assert_eq!(answer.field("cache-control"), Some("no-store"));
        assert!(answer.text().await.contains("the log of the server has the reason"), "{target}");
    }
    let version = site.served_version().unwrap();
    let file = version.find(b"guides/start.html").unwrap();
    assert_eq!(crate::page_markdown::find(&site, &version, file).unwrap().title, "Start");
    assert_eq!(get(&site, "/docs/guides.md", &[]).await.status(), 200);
    // No file was requested by any of them.
    assert!(!site.markdown.is_wanted(version.id));
    site.set_site_markdown_source(SiteMarkdownSource::OnRequest);
    assert_eq!(get(&site, "/docs/llms.txt", &[]).await.field("retry-after"), Some("5"));
    assert!(get_when_made(&site, "/docs/llms.txt").await.text().await.contains("(/docs/guides/start.md)"));
}

#[tokio::test]
async fn rules_for_missing_paths_do_not_hide_markdown_and_other_rules_win() {
    let rules = ("_redirects", "/guides/start.md /else 301\n/* /index.html 200\n");
    let site = site(&[&PAGES[..], &[rules]].concat());
    assert_eq!(get(&site, "/docs/guides/start.md", &[]).await.status(), 301);
    assert_eq!(get(&site, "/docs/guides.md", &[]).await.field("content-type"), Some(MARKDOWN_TYPE));
    assert_eq!(get(&site, "/docs/none.md", &[]).await.field("content-type"), Some("text/html; charset=utf-8"));
}

#[tokio::test]
async fn a_page_that_is_being_converted_when_the_version_changes_is_still_sent() {
    let site = site(&PAGES);
    let by_accept = [(ACCEPT, "text/markdown")];
    for (target, fields) in [("/docs/guides/start.md", &[][..]), ("/docs/guides/index.html", &by_accept)] {
        site.set_version(version_with_files(&PAGES, 0));
        let deferred = handle_deferred(&site, request(Method::GET, target, fields), None);
        let next = [("guides/index.html", "<h1>Next</h1>"), ("guides/start.html", "<h1>Next</h1>")];
        site.set_version(version_with_files(&next, 0));
        let answer = Answer { response: deferred.await };
        assert_eq!(answer.status(), 200, "{target}");
        let text = answer.text().await;
        assert!(text.starts_with("# Start\n") || text.starts_with("# Guides\n"), "{target}: {text}");
        assert_eq!(get(&site, target, fields).await.text().await, "# Next\n", "{target}");
    }
}
