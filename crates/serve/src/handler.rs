//! One request, one response. Nothing on the wire causes an error of the server.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_RANGE, CONTENT_TYPE,
    ETAG, HOST, LAST_MODIFIED, LINK, TRANSFER_ENCODING, VARY,
};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use percent_encoding::{CONTROLS, percent_decode, percent_encode, utf8_percent_encode};

use docwharf_base::codec::dense::Dense;
use docwharf_base::codec::gzip;
use docwharf_base::model::site_path::is_page;
use docwharf_site::index::{Coding, Entry};
use docwharf_site::lookup::{Files, Place, place};
use docwharf_site::rules::route::{Ask, Route, route, with_query};
use docwharf_site::rules::target::IN_PATH;
use docwharf_site::sealed::Sealed;
use docwharf_site::types::{CacheClass, media_type};

use super::body::{Again, Body, Chunk, Wanted};
use super::conditional::{self, Verdict};
use super::dress::{Shown, dress};
use super::multipart::Multipart;
use super::negotiate::{self, Accepted, Form};
use super::pages::{PageSource, SMALL};
use super::plain::is_plain_host;
use super::range::{self, Part};
use super::reply;
use super::spare;
use super::tag::Tag;
use super::{Site, access};

/// An identity range of a compressed file beyond this is answered with the whole file (rules B8).
const RANGE_WHOLE: u64 = 16 << 20;

/// Answers a request for a resource of the site.
pub fn handle<B>(site: &Site, request: &Request<B>) -> Response<Body> {
    let version = site.current();
    handle_on(site, version.as_deref(), request)
}

/// The same, for somebody who wants to know which version it was.
pub(super) fn handle_on<B>(site: &Site, version: Option<&Sealed>, request: &Request<B>) -> Response<Body> {
    let refused = access::refuse(site, request);
    let mut response = refused.unwrap_or_else(|| answer(site, version, request));
    dress(site, version, request, &mut response);
    response
}

/// Answers a request with `refusal`, whatever it asks for, unless it may not read the site at all.
pub(super) fn refuse_on<B>(
    site: &Site,
    version: Option<&Sealed>,
    request: &Request<B>,
    refusal: Response<Body>,
) -> Response<Body> {
    let mut response = access::refuse(site, request).unwrap_or(refusal);
    dress(site, version, request, &mut response);
    response
}

/// The decoded address within the site that this asks for, if it may be that of an asset of an earlier version which is not
/// open yet. Only at a start is there any.
pub(super) fn asset_to_come<B>(site: &Site, version: Option<&Sealed>, request: &Request<B>) -> Option<Vec<u8>> {
    let decoded: Vec<u8> = percent_decode(request.uri().path().as_bytes()).collect();
    let address = decoded.strip_prefix(site.settings.base_path.as_bytes())?;
    let may_come = matches!(*request.method(), Method::GET | Method::HEAD)
        && site.retained.may_have(address)
        && version?.find(address).is_none()
        && access::refuse(site, request).is_none();
    may_come.then(|| address.to_vec())
}

fn answer<B>(site: &Site, version: Option<&Sealed>, request: &Request<B>) -> Response<Body> {
    let head = request.method() == Method::HEAD;
    if let Some(refusal) = refuse(request, head) {
        return refusal;
    }
    match *request.method() {
        Method::GET | Method::HEAD => {}
        Method::OPTIONS => return reply::options(),
        _ => return reply::method_not_allowed(),
    }
    // A target without its slash: hyper takes it for the authority of a CONNECT.
    if !request.uri().path().starts_with('/') {
        return reply::bad_request(head, true);
    }
    let decoded: Cow<'_, [u8]> = percent_decode(request.uri().path().as_bytes()).into();
    if decoded.iter().any(|&b| b < 0x20 || b == 0x7f) {
        return reply::bad_request(head, false);
    }
    let Some(version) = version else {
        return reply::no_version(head);
    };
    // It goes along with redirects, and a field is ASCII (RFC 9110, 5.5) where a request line may hold any UTF-8.
    let query: Option<Cow<'_, str>> = request.uri().query().map(|query| utf8_percent_encode(query, CONTROLS).into());
    let query = query.as_deref();
    let base_path = &site.settings.base_path;
    let address = match place(base_path, &decoded) {
        // With the slash that ends the base path: rules speak of addresses of the site.
        Place::Inside(_) => &decoded[base_path.len() - 1..],
        Place::Front(payload) if version.is_next => payload,
        Place::Above => return reply::redirect(307, &with_query(base_path.clone(), query), head),
        Place::Outside if asks_for_page(&decoded) => return reply::page_not_found(head),
        Place::Outside | Place::Front(_) => return reply::file_not_found(head),
    };
    let slashes = site.settings.slashes.unwrap_or(version.auto_slashes);
    let rules = site.rules();
    let headers = request.headers();
    let found = route(version, &Ask { base_path, slashes, rules: &rules }, address, query);
    // What pages of an earlier version ask for comes before a rule that is meant for what is not there, such as `/*`.
    if matches!(found, Route::Instead(..) | Route::Moved(..))
        && version.find(&address[1..]).is_none()
        && let Some((earlier, file)) = site.retained.find(&address[1..])
    {
        return Answer::new(site, &earlier, file, headers, head).send();
    }
    match found {
        Route::File(file) => Answer::negotiated(site, version, file, headers, head).send(),
        Route::Instead(file, 200) => Answer::new(site, version, file, headers, head).send(),
        Route::Instead(file, _) => missing(&Answer::new(site, version, file, headers, head)),
        Route::Moved(status, location) => reply::redirect(status, &location, head),
        Route::Home(location) => reply::redirect(307, &location, head),
        Route::Nothing => match site.retained.find(&address[1..]) {
            Some((earlier, file)) => Answer::new(site, &earlier, file, headers, head).send(),
            None if asks_for_payload(query) => reply::file_not_found(head),
            None => not_found(site, version, address, headers, head),
        },
    }
}

/// Whether it is a client of Next.js that asks: it has no use for a page that says that there is none.
fn asks_for_payload(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|pair| pair.split('=').next() == Some("_rsc")))
}

/// What is refused before the address matters.
fn refuse<B>(request: &Request<B>, head: bool) -> Option<Response<Body>> {
    let headers = request.headers();
    // No resource here takes a body. hyper drops Content-Length beside Transfer-Encoding, so the two together cannot be
    // told from the one; both are refused and the connection closed (RFC 9112, 6.1).
    if headers.contains_key(TRANSFER_ENCODING) {
        return Some(reply::bad_request(head, true));
    }
    let mut hosts = headers.get_all(HOST).iter();
    let good = match (hosts.next(), hosts.next()) {
        (None, _) => request.version() != Version::HTTP_11,
        (Some(host), None) => is_host(host),
        (Some(_), Some(_)) => false,
    };
    (!good).then(|| reply::bad_request(head, true))
}

/// A host and perhaps a port, nothing else (RFC 9112, 3.2).
pub fn is_host(value: &HeaderValue) -> bool {
    is_plain_host(value.as_bytes()) || is_odd_host(value)
}

fn is_odd_host(value: &HeaderValue) -> bool {
    let Some(authority) = value.to_str().ok().and_then(|text| text.parse::<Authority>().ok()) else { return false };
    let text = authority.as_str();
    let host = authority.host();
    let port = &text[text.find(host).map_or(0, |at| at + host.len())..];
    let good_port = port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()));
    let good_host = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']').is_some_and(|v6| v6.parse::<std::net::Ipv6Addr>().is_ok()),
        None => !host.is_empty(),
    };
    !text.contains('@') && good_host && good_port
}

/// Whether a missing address may have been a page: it has no extension, a page's, or one that is no known type.
fn asks_for_page(address: &[u8]) -> bool {
    is_page(address) || media_type(address).is_none()
}

/// 404: the site's own page where a reader asked for a page, one line where a browser asked for a part of one.
fn not_found(site: &Site, version: &Sealed, address: &[u8], headers: &HeaderMap, head: bool) -> Response<Body> {
    if !asks_for_page(address) {
        return reply::file_not_found(head);
    }
    match version.not_found {
        Some(file) => missing(&Answer::new(site, version, file, headers, head)),
        None => reply::page_not_found(head),
    }
}

/// A page that says that there is none.
fn missing(page: &Answer<'_>) -> Response<Body> {
    let mut response = page.whole(StatusCode::NOT_FOUND);
    let fields = response.headers_mut();
    fields.remove(ETAG);
    fields.remove(LAST_MODIFIED);
    fields.remove(ACCEPT_RANGES);
    fields.insert(CACHE_CONTROL, HeaderValue::from_static(reply::NOT_FOUND_CACHE));
    response
}

/// The body of an answer that was given before, unless it would have to be made.
pub(super) fn again(site: &Site, version: &Sealed, file: usize, form: Form) -> Option<Chunk> {
    let entry = version.entry(file);
    match (form, entry.coding) {
        (Form::Gzip, _) => Some(framed(version, &entry)),
        (Form::Dense(_), _) => None,
        (Form::Identity, Coding::Stored) => Some(version.coded(&entry).into()),
        (Form::Identity, Coding::Deflate) => site.inflated.get(&entry.content).map(Chunk::from),
    }
}

/// The sealed DEFLATE bytes of a file in a gzip frame.
fn framed(version: &Sealed, entry: &Entry) -> Chunk {
    Chunk::framed(&gzip::HEADER, version.coded(entry), gzip::trailer(entry.crc, entry.len))
}

/// A file on its way out.
struct Answer<'a> {
    site: &'a Site,
    version: &'a Sealed,
    file: usize,
    entry: Entry,
    form: Form,
    /// The body, if it is in a dense form; without bytes otherwise.
    dense: Bytes,
    /// CRC-32 of that.
    dense_crc: u32,
    tag: Tag,
    headers: &'a HeaderMap,
    head: bool,
    /// Whether another client may get Markdown or HTML instead.
    kind: Kind,
}

/// Where the bytes of a body come from.
enum Origin {
    /// They lie there.
    There(Chunk),
    /// They are made as they are sent, and what comes before them, too: unless the page is small, or kept by then.
    Made,
    /// The same, where too much would come before a part.
    Far,
}

/// What a file is to those who can have the same page as Markdown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The only form that there is.
    Only,
    /// A page beside which there is this Markdown.
    Page(usize),
    /// The Markdown that was chosen instead of the page.
    Markdown,
}

impl<'a> Answer<'a> {
    fn new(site: &'a Site, version: &'a Sealed, file: usize, headers: &'a HeaderMap, head: bool) -> Answer<'a> {
        let entry = version.entry(file);
        let (form, dense, dense_crc) = match entry.coding {
            Coding::Stored => (Form::Identity, Bytes::new(), 0),
            // An archive for download must arrive as it is, though it lies compressed in the image: some clients would
            // store what it holds under its name.
            Coding::Deflate if version.is_archive(file) => (Form::Identity, Bytes::new(), 0),
            Coding::Deflate => site.form(version, file, framed_len(&entry), Accepted::of(headers)),
        };
        // A strong tag names the bytes on the wire: the coded form adds a checksum of its own bytes.
        let tag = match form {
            Form::Identity => Tag::new(&entry.content, None),
            Form::Gzip => Tag::new(&entry.content, Some((b'g', entry.coded_crc))),
            Form::Dense(Dense::Brotli) => Tag::new(&entry.content, Some((b'b', dense_crc))),
            Form::Dense(Dense::Zstd) => Tag::new(&entry.content, Some((b'z', dense_crc))),
        };
        Answer { site, version, file, entry, form, dense, dense_crc, tag, headers, head, kind: Kind::Only }
    }

    /// The same, or the Markdown beside a page for those who would rather have that.
    fn negotiated(site: &'a Site, version: &'a Sealed, file: usize, headers: &'a HeaderMap, head: bool) -> Answer<'a> {
        let (file, kind) = match version.markdown(file) {
            None => (file, Kind::Only),
            Some(markdown) if negotiate::prefers_markdown(headers) => (markdown, Kind::Markdown),
            Some(markdown) => (file, Kind::Page(markdown)),
        };
        Answer { kind, ..Answer::new(site, version, file, headers, head) }
    }

    fn send(self) -> Response<Body> {
        match conditional::judge(self.headers, self.tag.as_str(), self.site.dated(self.entry.modified)) {
            Verdict::NotModified => self.response(StatusCode::NOT_MODIFIED, self.no_body()),
            Verdict::Failed => self.bare(StatusCode::PRECONDITION_FAILED),
            Verdict::Proceed => self.part(),
        }
    }

    /// Length of the whole body in the chosen form.
    fn len(&self) -> u64 {
        match self.form {
            Form::Identity => self.entry.len,
            Form::Gzip => framed_len(&self.entry),
            Form::Dense(_) => self.dense.len() as u64,
        }
    }

    fn part(&self) -> Response<Body> {
        let len = self.len();
        let dated = (self.form == Form::Identity).then(|| self.site.dated(self.entry.modified));
        let may = conditional::range_holds(self.headers, self.tag.as_str(), dated);
        match if may { range::parse(self.headers, len) } else { Part::Whole } {
            Part::Whole => self.whole(StatusCode::OK),
            Part::Nowhere => {
                let mut response = self.bare(StatusCode::RANGE_NOT_SATISFIABLE);
                set(response.headers_mut(), CONTENT_RANGE, &format!("bytes */{len}"));
                response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(0));
                response
            }
            Part::Slice(start, end) => self.slice(start, end, len),
            Part::Slices(slices) => self.slices(&slices, len).unwrap_or_else(|| self.whole(StatusCode::OK)),
        }
    }

    fn slice(&self, start: u64, end: u64, len: u64) -> Response<Body> {
        let body = match self.origin() {
            Origin::Far => return self.whole(StatusCode::OK),
            _ if self.head => Body::empty(),
            Origin::There(chunk) => Body::slice(&chunk.parts(), start, end),
            Origin::Made => self.made([Wanted::Made(start, end)]),
        };
        let mut response = self.response(StatusCode::PARTIAL_CONTENT, body);
        let headers = response.headers_mut();
        set(headers, CONTENT_RANGE, &format!("bytes {start}-{}/{len}", end - 1));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(end - start));
        self.describe(headers);
        response
    }

    /// Several parts in one answer; nothing if the whole is the better one.
    fn slices(&self, slices: &[(u64, u64)], len: u64) -> Option<Response<Body>> {
        let media_type = self.version.content_type(self.file);
        let multipart = Multipart::new(slices, len, &self.entry.content, &media_type, self.form.token())?;
        let origin = self.origin();
        let is_good = match &origin {
            // What has to be looked through is bounded.
            Origin::There(chunk) if self.form != Form::Identity => {
                len <= RANGE_WHOLE && !multipart.occurs_in(&chunk.parts())
            }
            // However many parts are asked for, they are made in one go. So that the answer does not depend on what happens
            // to be kept, that goes for a page that is, too.
            Origin::There(_) if self.entry.coding == Coding::Deflate && self.entry.len > SMALL => {
                multipart.is_ascending()
            }
            Origin::There(_) => true,
            Origin::Made => self.entry.len <= SMALL || multipart.is_ascending(),
            Origin::Far => false,
        };
        if !is_good {
            return None;
        }
        let (content_type, total) = (multipart.content_type(), multipart.total());
        let body = match origin {
            _ if self.head => Body::empty(),
            Origin::There(chunk) => multipart.body(&chunk.parts()),
            Origin::Made | Origin::Far => self.made(multipart.wanted()),
        };
        let mut response = self.response(StatusCode::PARTIAL_CONTENT, body);
        let headers = response.headers_mut();
        set(headers, CONTENT_TYPE, &content_type);
        headers.insert(CONTENT_LENGTH, HeaderValue::from(total));
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        Some(response)
    }

    fn whole(&self, status: StatusCode) -> Response<Body> {
        let body = match self.origin() {
            _ if self.head => self.no_body(),
            Origin::There(chunk) => self.lasting(chunk.into()),
            Origin::Made | Origin::Far => {
                let body = self.made([Wanted::Made(0, self.entry.len)]);
                // The next time it may be there.
                if self.site.inflated.takes(self.entry.len) { self.lasting(body) } else { body }
            }
        };
        let mut response = self.response(status, body);
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(self.len()));
        self.describe(response.headers_mut());
        response
    }

    /// No body, which is the same the next time.
    fn no_body(&self) -> Body {
        if self.is_lasting() { Body::empty().lasting(Again::Nothing) } else { Body::empty() }
    }

    /// The whole body, and how it is had again.
    fn lasting(&self, body: Body) -> Body {
        if !self.is_lasting() {
            return body;
        }
        body.lasting(match self.form {
            Form::Dense(coding) => Again::Dense(self.file, coding, self.dense_crc),
            form => Again::File(self.file, form),
        })
    }

    /// Whether the answer is the same until the site changes: a file of another version goes when its time is over, and
    /// what is dated in the future is sent with the date of now.
    fn is_lasting(&self) -> bool {
        let is_served =
            self.site.showing().as_ref().is_some_and(|version| std::ptr::eq(&raw const **version, self.version));
        is_served && spare::is_over(self.entry.modified)
    }

    /// Where the body's bytes come from. Costs nothing: a HEAD asks for it, too.
    fn origin(&self) -> Origin {
        let coded = || self.version.coded(&self.entry);
        match (self.form, self.entry.coding) {
            (Form::Gzip, _) => Origin::There(framed(self.version, &self.entry)),
            (Form::Dense(_), _) => Origin::There(self.dense.clone().into()),
            (Form::Identity, Coding::Stored) => Origin::There(coded().into()),
            (Form::Identity, Coding::Deflate) => match self.site.inflated.get(&self.entry.content) {
                Some(page) => Origin::There(page.into()),
                None if self.entry.len <= RANGE_WHOLE => Origin::Made,
                None => Origin::Far,
            },
        }
    }

    /// A body of what the file's stream expands to, made when it is sent.
    fn made(&self, wanted: impl IntoIterator<Item = Wanted>) -> Body {
        let source = PageSource {
            pages: Arc::clone(&self.site.inflated),
            version: self.version.id,
            digest: self.entry.content,
            len: self.entry.len,
            crc: self.entry.crc,
        };
        Body::page(source, self.version.coded(&self.entry), wanted)
    }

    /// An answer without a body that has the fields of the 200.
    fn bare(&self, status: StatusCode) -> Response<Body> {
        let mut response = self.response(status, Body::empty());
        if status == StatusCode::PRECONDITION_FAILED {
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(0));
        }
        response
    }

    /// The fields that 200, 206, 304, 412 and 416 share.
    fn response(&self, status: StatusCode, body: Body) -> Response<Body> {
        let mut response = spare::response(status, body);
        if self.site.csp_rules().is_some() {
            response.extensions_mut().insert(Shown::new(self.version, self.file));
        }
        let headers = response.headers_mut();
        set(headers, ETAG, self.tag.as_str());
        if let Some(date) = spare::date(self.entry.modified) {
            headers.insert(LAST_MODIFIED, date);
        }
        let cache = match self.version.cache_class(self.file) {
            // Without `public`: what a proxy gives to those who have signed in is not for shared caches.
            CacheClass::Immutable => "max-age=31536000, immutable",
            CacheClass::Revalidate => "no-cache",
        };
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
        // A 206 and a 304 have it where a 200 would (RFC 9110, 15.3.7 and 15.4.5); an error is no form of the page.
        if self.kind == Kind::Markdown && (status.is_success() || status == StatusCode::NOT_MODIFIED) {
            set(headers, CONTENT_LOCATION, &self.address_of(self.file));
        }
        match (self.entry.coding, self.kind) {
            (Coding::Stored, Kind::Only) => {}
            (Coding::Deflate, Kind::Only) => drop(headers.insert(VARY, HeaderValue::from_static("accept-encoding"))),
            // One of the two may be compressed and the other not.
            (_, _) => drop(headers.insert(VARY, HeaderValue::from_static("accept, accept-encoding"))),
        }
        response
    }

    /// The fields that describe a body.
    fn describe(&self, headers: &mut HeaderMap) {
        match self.version.content_type(self.file) {
            Cow::Borrowed(known) => drop(headers.insert(CONTENT_TYPE, HeaderValue::from_static(known))),
            Cow::Owned(other) => set(headers, CONTENT_TYPE, &other),
        }
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if let Some(token) = self.form.token() {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(token));
        }
        if is_page(self.version.index().path(self.file)) || self.kind == Kind::Markdown {
            self.link(headers);
        }
    }

    /// Tells assistants of a page's Markdown, and where the site's index for them is (llmstxt.org).
    fn link(&self, headers: &mut HeaderMap) {
        if !matches!(self.kind, Kind::Page(_)) && self.version.llms.is_none() {
            return;
        }
        let markdown = match self.kind {
            Kind::Page(file) => Some(format!("<{}>; rel=\"alternate\"; type=\"text/markdown\"", self.address_of(file))),
            Kind::Only | Kind::Markdown => None,
        };
        let llms = self.version.llms.map(|file| format!("<{}>; rel=\"describedby\"", self.address_of(file)));
        match (markdown, llms) {
            (Some(markdown), Some(llms)) => set(headers, LINK, &format!("{markdown}, {llms}")),
            (Some(one), None) | (None, Some(one)) => set(headers, LINK, &one),
            (None, None) => {}
        }
    }

    /// The address of a file of the site.
    fn address_of(&self, file: usize) -> String {
        format!("{}{}", self.site.settings.base_path, percent_encode(self.version.index().path(file), IN_PATH))
    }
}

/// Length of a file's gzip form.
fn framed_len(entry: &Entry) -> u64 {
    (gzip::HEADER.len() + gzip::TRAILER) as u64 + entry.coded_len
}

/// Sets a field to a text of our own making, which has no character that a field may not have.
fn set(headers: &mut HeaderMap, name: http::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_and_perhaps_a_port() {
        for good in [
            "x",
            "x:80",
            "x:",
            "docs.example.com",
            "docs.example.com.",
            "a_b:8080",
            "127.0.0.1:8080",
            "[::1]",
            "[::1]:80",
            "[::1]:",
            "[2001:db8::7]:65535",
        ] {
            assert!(is_host(&HeaderValue::from_static(good)), "{good}");
        }
        for wrong in [
            "",
            ":80",
            "x:y",
            "x:80:90",
            "x y",
            "x/y",
            "x?y",
            "x#y",
            "user@x",
            "user:secret@x",
            "@x",
            "[::1",
            "::1",
            "[]",
            "[zz]",
            "[::1]x",
            "[::1]:x",
            "[::1]80",
            "[127.0.0.1]",
            "x@[::1]",
        ] {
            assert!(!is_host(&HeaderValue::from_static(wrong)), "{wrong}");
        }
        assert!(!is_host(&HeaderValue::from_bytes("bücher".as_bytes()).unwrap()));
    }

    #[test]
    fn a_missing_address_may_have_been_a_page_unless_it_ends_like_another_file() {
        for page in ["/", "/guide", "/guide/", "/guide.html", "/GUIDE.HTM", "/release-1.0", "/a.js/b", "/.x", "/x."] {
            assert!(asks_for_page(page.as_bytes()), "{page}");
        }
        for file in ["/a.js", "/a.css", "/a.JSON", "/a/b.txt", "/a.map", "/a.png", "/a.woff2", "/a.zip", "/a.tar.gz"] {
            assert!(!asks_for_page(file.as_bytes()), "{file}");
        }
    }

    #[test]
    fn a_client_of_next_is_known_by_the_name_in_its_query() {
        for (query, expected) in [
            (None, false),
            (Some(""), false),
            (Some("_rsc"), true),
            (Some("_rsc=1a2b"), true),
            (Some("a=b&_rsc=1a2b"), true),
            (Some("_rsc=1&a=b"), true),
            (Some("a=_rsc"), false),
            (Some("x_rsc=1"), false),
            (Some("_rscs=1"), false),
            (Some("a=b;_rsc=1"), false),
        ] {
            assert_eq!(asks_for_payload(query), expected, "{query:?}");
        }
    }
}
