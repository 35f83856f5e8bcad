//! Answers requests for the Markdown of pages, and for `llms.txt` and `llms-full.txt`, that docwharf makes.
//!
//! A page has Markdown at its path with the suffix `.md`, and at its own address for a client that prefers Markdown.
//! What the site has itself takes precedence: its own `.md` files are negotiated by
//! [`FileResponse`](super::file_response), and its files and rules by the lookup of the address. Access control and the
//! checks of the request come before all of this.

use std::sync::Arc;

use http::header::{CACHE_CONTROL, CONTENT_LENGTH, LINK};
use http::{HeaderValue, Response, StatusCode};

use docwharf_base::model::digest::Digest;
use docwharf_base::model::site_path::is_page;
use docwharf_search::site_markdown::LlmsText;
use docwharf_site::lookup::{SiteFiles, find_page_of_markdown};
use docwharf_site::rules::robots_tag::X_ROBOTS_TAG;
use docwharf_site::rules::route::RouteResult;
use docwharf_site::sealed_version::SealedVersion;

use super::assistant_settings::AssistantSettings;
use super::body::ResponseBody;
use super::converted_pages::{ConvertedFile, FileProspect, MarkdownForm, PendingPage};
use super::entity_tag::EntityTag;
use super::fixed_responses::{PLAIN_TEXT_TYPE, list_failed, with_retry_after};
use super::header_pool::{self, set_field};
use super::held_bytes::hold_body;
use super::markdown_links::{LLMS_PATH, NEGOTIATED_VARY, add_content_location, link_to_llms, made_markdown_url};
use super::markdown_statistics::{MarkdownEndpoint, MarkdownOutcome};
use super::negotiate::{AcceptedCodings, ResponseForm, prefers_markdown};
use super::page_markdown::build_settings;
use super::representation::Representation;
use super::request_context::RequestContext;
use super::request_rate::BUSY_RETRY_SECONDS;
use super::site::Site;

/// The Retry-After while the list of the pages is made, in seconds.
const BUILDING_RETRY_SECONDS: u32 = 5;
/// The Retry-After after the list could not be made, in seconds.
const FAILED_RETRY_SECONDS: u32 = 60;
const MARKDOWN_TYPE: &str = "text/markdown; charset=utf-8";
pub(super) const LLMS_FULL_PATH: &str = "llms-full.txt";
/// The folder under which both texts are as well (RFC 8615).
pub(super) const WELL_KNOWN_FOLDER: &str = ".well-known/";

/// The text that a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MarkdownTarget {
    /// The Markdown of a page.
    Page {
        file: usize,
        /// Whether the request is for the address of the page itself.
        is_negotiated: bool,
    },
    Llms(LlmsText),
}

impl MarkdownTarget {
    fn endpoint(self) -> MarkdownEndpoint {
        match self {
            MarkdownTarget::Page { is_negotiated: false, .. } => MarkdownEndpoint::Page,
            MarkdownTarget::Page { is_negotiated: true, .. } => MarkdownEndpoint::NegotiatedPage,
            MarkdownTarget::Llms(LlmsText::Index) => MarkdownEndpoint::Llms,
            MarkdownTarget::Llms(LlmsText::Full) => MarkdownEndpoint::LlmsFull,
        }
    }
}

/// Returns whether a request may be for Markdown that docwharf makes. Cheap, because every request that is not answered
/// from the cache is asked.
pub(super) fn may_be_markdown(context: &RequestContext<'_>) -> bool {
    let path = context.target().path().as_bytes();
    context.site().assistant_settings_with(|settings| settings.markdown)
        // An encoded suffix is looked at more closely later.
        && (path.ends_with(b".md") || path.contains(&b'%') || prefers_markdown(context.headers()))
}

/// A page that must be converted for a request.
#[derive(Debug)]
pub(super) struct UnconvertedPage {
    /// The version that was served when the request was received.
    pub(super) version: Arc<SealedVersion>,
    file: usize,
    accepted: AcceptedCodings,
}

impl UnconvertedPage {
    /// Starts the conversion.
    pub(super) fn start_conversion(self, site: &Site) -> PendingPage {
        let base_path = site.settings.base_path.clone();
        site.markdown.start_conversion(self.version, self.file, base_path, self.accepted)
    }
}

/// Returns the page that must be converted before a request is answered; `None` if its response is available at once.
/// The caller has checked that the client may read the site.
pub(super) fn find_unconverted_page(context: &RequestContext<'_>) -> Option<UnconvertedPage> {
    let path = context.path_in_site()?;
    if !path.ends_with(b".md") && !prefers_markdown(context.headers()) {
        return None;
    }
    let version = context.version()?;
    match find_target(context, version, path, context.route()?)? {
        MarkdownTarget::Page { file, .. } => {
            let accepted = AcceptedCodings::parse(context.headers());
            match context.site().markdown.get_ready(version, file, accepted) {
                Some(_) => None,
                None => Some(UnconvertedPage { version: context.shared_version()?, file, accepted }),
            }
        }
        MarkdownTarget::Llms(_) => None,
    }
}

/// Answers a request for Markdown that docwharf makes, and counts that; `None` if it is for something else. `path` is
/// the decoded path within the site with its leading slash, and `route` where it leads.
pub(super) fn respond(
    context: &RequestContext<'_>,
    version: &SealedVersion,
    path: &[u8],
    route: &RouteResult,
) -> Option<Response<ResponseBody>> {
    let site = context.site();
    let target = find_target(context, version, path, route)?;
    let accepted = AcceptedCodings::parse(context.headers());
    let response = match target {
        MarkdownTarget::Page { file, is_negotiated } => match site.markdown.get_ready(version, file, accepted) {
            // The page itself, or 404.
            Some(ConvertedFile::NotConvertible) => return None,
            Some(ConvertedFile::Page(page)) => {
                respond_with_page(context, version, file, page.choose_form(accepted), is_negotiated)
            }
            None => respond_later(BUSY_RETRY_SECONDS),
        },
        MarkdownTarget::Llms(text) => respond_with_llms(context, version, text, accepted),
    };
    site.markdown_counts.count_with(target.endpoint(), MarkdownOutcome::of_status(response.status()));
    Some(response)
}

fn find_target(
    context: &RequestContext<'_>,
    version: &SealedVersion,
    path: &[u8],
    route: &RouteResult,
) -> Option<MarkdownTarget> {
    let site = context.site();
    let makes = |wanted: fn(&AssistantSettings) -> bool| site.assistant_settings_with(wanted);
    let address = path.strip_prefix(b"/")?;
    match *route {
        RouteResult::File(file) => {
            let is_wanted = is_page(version.index().path(file))
                && makes(|settings| settings.markdown)
                && prefers_markdown(context.headers())
                && version.markdown_of(file).is_none();
            is_wanted.then_some(MarkdownTarget::Page { file, is_negotiated: true })
        }
        // A rule for missing paths, such as `/*`, does not hide what docwharf makes.
        RouteResult::NotFound | RouteResult::Rewritten(..) if version.find(address).is_none() => {
            if address.ends_with(b".md") {
                let file = find_page_of_markdown(version, address).filter(|_| makes(|settings| settings.markdown))?;
                let is_made = is_page(version.index().path(file)) && version.markdown_of(file).is_none();
                return is_made.then_some(MarkdownTarget::Page { file, is_negotiated: false });
            }
            let text = match address.strip_prefix(WELL_KNOWN_FOLDER.as_bytes()).unwrap_or(address) {
                name if name == LLMS_PATH.as_bytes() => LlmsText::Index,
                name if name == LLMS_FULL_PATH.as_bytes() => LlmsText::Full,
                _ => return None,
            };
            makes(|settings| settings.llms).then_some(MarkdownTarget::Llms(text))
        }
        _ => None,
    }
}

fn respond_with_page(
    context: &RequestContext<'_>,
    version: &SealedVersion,
    file: usize,
    form: MarkdownForm,
    is_negotiated: bool,
) -> Response<ResponseBody> {
    let MarkdownForm { body, coding, entity_tag } = form;
    // Without room for more bodies, the client is asked to come again.
    let Some(body) = hold_body(body) else { return respond_later(BUSY_RETRY_SECONDS) };
    // The page at the same address may be HTML.
    let vary = Some(NEGOTIATED_VARY);
    let (media_type, has_ranges) = (MARKDOWN_TYPE, true);
    let mut response = Representation { media_type, body, coding, entity_tag, vary, has_ranges }.respond(context);
    let site = context.site();
    let status = response.status();
    let headers = response.headers_mut();
    headers.insert(X_ROBOTS_TAG, HeaderValue::from_static("noindex"));
    if is_negotiated {
        add_content_location(headers, status, &made_markdown_url(site, version.index().path(file)));
    }
    if let Some(link) = link_to_llms(site, version).filter(|_| status.is_success()) {
        set_field(headers, LINK, &link);
    }
    response
}

fn respond_with_llms(
    context: &RequestContext<'_>,
    version: &SealedVersion,
    text: LlmsText,
    accepted: AcceptedCodings,
) -> Response<ResponseBody> {
    let site = context.site();
    let settings = build_settings(site);
    if let Some(file) = site.markdown.file_in_force(version, settings.digest) {
        let identity = format!("{} {} {:08x} {text:?}", version.id, settings.digest.to_hex(), file.checksum());
        let digest = Digest::compute(identity.as_bytes());
        let form = accepted.choose(0, |_| None);
        let (body, letter) = match form {
            // Its bytes are identified by the checksum of the file.
            ResponseForm::Gzip => (file.llms_gzip(text), Some((b'g', file.checksum()))),
            _ => (file.llms(text), None),
        };
        let representation = Representation {
            media_type: PLAIN_TEXT_TYPE,
            body,
            coding: letter.and(form.token()),
            entity_tag: EntityTag::of_content(&digest, None, letter),
            vary: Some("accept-encoding"),
            has_ranges: true,
        };
        return representation.respond(context);
    }
    match context.shared_version().map(|version| site.markdown.request_file(&version, settings)) {
        Some(FileProspect::Failed) => with_retry_after(list_failed(context.is_head()), FAILED_RETRY_SECONDS),
        Some(FileProspect::Pending) | None => respond_later(BUILDING_RETRY_SECONDS),
    }
}

fn respond_later(retry_seconds: u32) -> Response<ResponseBody> {
    let mut response = header_pool::new_response(StatusCode::SERVICE_UNAVAILABLE, ResponseBody::empty());
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
    with_retry_after(response, retry_seconds)
}

#[cfg(test)]
mod tests;
