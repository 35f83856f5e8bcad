//! The links between a page, its Markdown and `llms.txt`, and the header fields of the negotiation between HTML and
//! Markdown (RFC 9110, section 12).

use http::header::{CONTENT_LOCATION, LINK, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use percent_encoding::percent_encode;

use docwharf_base::encode_sets;
use docwharf_base::model::site_path::is_page;
use docwharf_search::site_markdown::markdown_path;
use docwharf_site::lookup::SiteFiles;
use docwharf_site::sealed_version::SealedVersion;

use super::header_pool::set_field;
use super::negotiate::prefers_markdown;
use super::request_context::RequestContext;
use super::site::Site;

/// The path of the list of the pages within the site.
pub(super) const LLMS_PATH: &str = "llms.txt";
/// The value of Vary where either a page or its Markdown is sent: each of them may be compressed.
pub(super) const NEGOTIATED_VARY: &str = "accept, accept-encoding";

/// The role of a file in content negotiation between HTML and Markdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MarkdownRole {
    /// The file is not negotiated.
    NotNegotiated,
    /// The file is a page, and this other file is its Markdown.
    Page(usize),
    /// The file is a page whose Markdown docwharf makes.
    PageOfMadeMarkdown,
    /// The file is the Markdown that was chosen instead of its page.
    Markdown,
}

impl MarkdownRole {
    /// Chooses between a page and the Markdown that the site has of it. Returns the chosen file and its role.
    pub(super) fn choose(context: &RequestContext<'_>, version: &SealedVersion, file: usize) -> (usize, MarkdownRole) {
        match version.markdown_of(file) {
            None if makes_markdown(context.site(), version.index().path(file)) => {
                (file, MarkdownRole::PageOfMadeMarkdown)
            }
            None => (file, MarkdownRole::NotNegotiated),
            Some(markdown) if prefers_markdown(context.headers()) => (markdown, MarkdownRole::Markdown),
            Some(markdown) => (file, MarkdownRole::Page(markdown)),
        }
    }

    /// Adds Content-Location and Vary to a response with this status about `file`. `is_compressed` says whether that
    /// depends on Accept-Encoding.
    pub(super) fn add_negotiation_fields(
        self,
        headers: &mut HeaderMap,
        status: StatusCode,
        (site, version, file): (&Site, &SealedVersion, usize),
        is_compressed: bool,
    ) {
        if self == MarkdownRole::Markdown {
            add_content_location(headers, status, &url_path(site, version.index().path(file)));
        }
        let vary = match self {
            MarkdownRole::NotNegotiated if !is_compressed => return,
            MarkdownRole::NotNegotiated => "accept-encoding",
            _ => NEGOTIATED_VARY,
        };
        headers.insert(VARY, HeaderValue::from_static(vary));
    }

    /// Adds a Link field that refers AI assistants to the page's Markdown and to the site's `llms.txt` (llmstxt.org).
    pub(super) fn add_link_field(self, headers: &mut HeaderMap, site: &Site, version: &SealedVersion, file: usize) {
        let path = |file: usize| version.index().path(file);
        let markdown = match self {
            MarkdownRole::Page(markdown) => Some(url_path(site, path(markdown))),
            MarkdownRole::PageOfMadeMarkdown => Some(made_markdown_url(site, path(file))),
            MarkdownRole::NotNegotiated | MarkdownRole::Markdown => None,
        };
        let markdown = markdown.map(|url| format!("<{url}>; rel=\"alternate\"; type=\"text/markdown\""));
        match (markdown, link_to_llms(site, version)) {
            (Some(markdown), Some(llms)) => set_field(headers, LINK, &format!("{markdown}, {llms}")),
            (Some(link), None) | (None, Some(link)) => set_field(headers, LINK, &link),
            (None, None) => {}
        }
    }
}

/// Adds the address of the Markdown that is sent instead of its page. 206 and 304 have it where 200 would (RFC 9110,
/// 15.3.7 and 15.4.5). An error is not a representation of the page.
pub(super) fn add_content_location(headers: &mut HeaderMap, status: StatusCode, url: &str) {
    if status.is_success() || status == StatusCode::NOT_MODIFIED {
        set_field(headers, CONTENT_LOCATION, url);
    }
}

/// Returns the link to `llms.txt`, as in a Link field: to that of the site, else to the one that docwharf makes.
pub(super) fn link_to_llms(site: &Site, version: &SealedVersion) -> Option<String> {
    let url = match version.llms {
        Some(file) => url_path(site, version.index().path(file)),
        None if site.assistant_settings_with(|settings| settings.llms) => url_path(site, LLMS_PATH.as_bytes()),
        None => return None,
    };
    Some(format!("<{url}>; rel=\"describedby\""))
}

/// Returns the address of the Markdown that docwharf makes of a page.
pub(super) fn made_markdown_url(site: &Site, path: &[u8]) -> String {
    url_path(site, &markdown_path(path))
}

/// Returns whether docwharf makes the Markdown of a file that has none of its own.
fn makes_markdown(site: &Site, path: &[u8]) -> bool {
    is_page(path) && site.assistant_settings_with(|settings| settings.markdown)
}

/// Returns the URL path of a path within the site.
fn url_path(site: &Site, path: &[u8]) -> String {
    format!("{}{}", site.settings.base_path, percent_encode(path, encode_sets::LOCATION_PATH))
}
