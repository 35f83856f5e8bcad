//! The response to a request for a file of a version: its form ([`ResponseForm`]), preconditions, ranges, body and
//! header fields.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use docwharf_base::codec::content_coding::ContentCoding;
use docwharf_base::model::site_path::is_page;
use docwharf_site::index::{EntryCompression, IndexEntry};
use docwharf_site::media_types::{CacheClass, is_html};
use docwharf_site::sealed_version::SealedVersion;

use super::body::{BodyLocation, ResponseBody};
use super::body_chunk::BodyChunk;
use super::byte_range::{self, RequestedRange};
use super::conditional::{self, PreconditionOutcome};
use super::csp_header::ServedFile;
use super::entity_tag::EntityTag;
use super::file_body::{gzip_chunk, gzip_len, identity_chunk, precompressed_chunk};
use super::header_pool::{self, set_field};
use super::header_rules::content_type_of_rules;
use super::inflated_file_cache::{InflatedFileSource, MAX_SMALL_FILE_BYTES};
use super::inflating_body::BodySegment;
use super::insertion::{self, InsertedTag};
use super::markdown_links::MarkdownRole;
use super::multipart::Multipart;
use super::negotiate::{AcceptedCodings, ResponseForm};
use super::recording::ViewedContent;
use super::request_context::RequestContext;
use super::site::Site;

/// The largest inflated size, in bytes, of a file that is stored compressed and of which identity ranges are served. A
/// larger file that is not in the cache of inflated files is sent as a whole (docs/design/http.md, rule 8). Also the
/// largest gzip or precompressed form in which several ranges are served.
const MAX_RANGE_SOURCE_BYTES: u64 = 16 << 20;

/// The response to a request for a file.
pub(super) struct FileResponse<'a> {
    site: &'a Site,
    version: &'a SealedVersion,
    file: usize,
    entry: IndexEntry,
    form: ResponseForm,
    /// The body if the form is precompressed; otherwise empty.
    precompressed: Bytes,
    /// The CRC-32 of `precompressed`.
    precompressed_crc: u32,
    /// The Content-Type that rules set; `None` if none does.
    type_of_rules: Option<String>,
    /// The tag that follows the page; `None` if none does.
    inserted_tag: Option<Arc<InsertedTag>>,
    entity_tag: EntityTag,
    headers: &'a HeaderMap,
    is_head: bool,
    /// The role of the file in the negotiation between HTML and Markdown.
    markdown_role: MarkdownRole,
}

/// The source of the bytes of a response body.
enum BodySource {
    /// All bytes are available.
    Available(BodyChunk),
    /// The bytes are inflated as they are sent, and so are those before a range, unless the file is small or in the
    /// cache when the body is sent.
    Inflated,
    /// The bytes are inflated as they are sent, and the file is so large that ranges are not served.
    TooLargeForRanges,
}

impl<'a> FileResponse<'a> {
    /// Creates the response to a request for this file.
    pub(super) fn new(context: &'a RequestContext<'_>, version: &'a SealedVersion, file: usize) -> FileResponse<'a> {
        FileResponse::with_type_of_rules(context, version, file, content_type_of_rules(context))
    }

    /// Creates a response with the site's page for errors. Rules do not set its media type.
    pub(super) fn error_page(
        context: &'a RequestContext<'_>,
        version: &'a SealedVersion,
        file: usize,
    ) -> FileResponse<'a> {
        FileResponse::with_type_of_rules(context, version, file, None)
    }

    fn with_type_of_rules(
        context: &'a RequestContext<'_>,
        version: &'a SealedVersion,
        file: usize,
        type_of_rules: Option<String>,
    ) -> FileResponse<'a> {
        let (site, headers) = (context.site(), context.headers());
        let inserted_tag = tag_of_file(site, version, file, type_of_rules.as_deref());
        let entry = version.entry(file);
        let (form, precompressed, precompressed_crc) = match entry.compression {
            EntryCompression::Stored => (ResponseForm::Identity, Bytes::new(), 0),
            // An archive is sent without a content coding, although the image stores it compressed: some clients would
            // save the coded bytes under its name.
            EntryCompression::Deflate if version.is_archive(file) => (ResponseForm::Identity, Bytes::new(), 0),
            EntryCompression::Deflate => {
                let accepted = AcceptedCodings::parse(headers);
                match site.codings.choose_form(version, file, gzip_len(&entry), accepted) {
                    // The tag cannot be added to this form. It can be added to every gzip form.
                    (ResponseForm::Precompressed(coding), body, _)
                        if inserted_tag.is_some()
                            && !insertion::is_continuable_form(coding, version.index().path(file), &body) =>
                    {
                        (accepted.choose(gzip_len(&entry), |_| None), Bytes::new(), 0)
                    }
                    chosen => chosen,
                }
            }
        };
        // A strong entity tag identifies the bytes that are sent, so the tag of a coded form includes a checksum of the
        // coded bytes. It is that of the bytes without an inserted tag, which together with that tag determine those
        // that are sent.
        let coding = match form {
            ResponseForm::Identity => None,
            ResponseForm::Gzip => Some((b'g', entry.compressed_crc)),
            ResponseForm::Precompressed(ContentCoding::Brotli) => Some((b'b', precompressed_crc)),
            ResponseForm::Precompressed(ContentCoding::Zstd) => Some((b'z', precompressed_crc)),
        };
        let tag_digest = inserted_tag.as_deref().map(InsertedTag::digest);
        let entity_tag = EntityTag::of_content(&entry.content, tag_digest, coding);
        FileResponse {
            site,
            version,
            file,
            entry,
            form,
            precompressed,
            precompressed_crc,
            type_of_rules,
            inserted_tag,
            entity_tag,
            headers,
            is_head: context.is_head(),
            markdown_role: MarkdownRole::NotNegotiated,
        }
    }

    /// Creates the response for a page, or for its Markdown if the client prefers that.
    pub(super) fn negotiated(
        context: &'a RequestContext<'_>,
        version: &'a SealedVersion,
        file: usize,
    ) -> FileResponse<'a> {
        let (file, markdown_role) = MarkdownRole::choose(context, version, file);
        FileResponse { markdown_role, ..FileResponse::new(context, version, file) }
    }

    /// Evaluates preconditions and ranges, and returns the response.
    pub(super) fn respond(self) -> Response<ResponseBody> {
        match conditional::evaluate_preconditions(
            self.headers,
            self.entity_tag.as_str(),
            self.site.content_dates(self.entry.modified),
        ) {
            PreconditionOutcome::NotModified => self.response(StatusCode::NOT_MODIFIED, self.empty_body()),
            PreconditionOutcome::Failed => self.respond_without_body(StatusCode::PRECONDITION_FAILED),
            PreconditionOutcome::Proceed => self.respond_with_range(),
        }
    }

    /// Returns the length of the whole body in the chosen form, in bytes.
    fn len(&self) -> u64 {
        let len = match self.form {
            ResponseForm::Identity => self.entry.len,
            ResponseForm::Gzip => gzip_len(&self.entry),
            ResponseForm::Precompressed(_) => self.precompressed.len() as u64,
        };
        len + self.inserted_tag.as_ref().map_or(0, |tag| tag.growth(self.form, &self.entry))
    }

    fn respond_with_range(&self) -> Response<ResponseBody> {
        let len = self.len();
        let dates = (self.form == ResponseForm::Identity).then(|| self.site.content_dates(self.entry.modified));
        let range_applies = conditional::if_range_matches(self.headers, self.entity_tag.as_str(), dates);
        match if range_applies { byte_range::parse_range(self.headers, len) } else { RequestedRange::Whole } {
            RequestedRange::Whole => self.respond_whole(StatusCode::OK),
            RequestedRange::NotSatisfiable => {
                let mut response = self.respond_without_body(StatusCode::RANGE_NOT_SATISFIABLE);
                set_field(response.headers_mut(), CONTENT_RANGE, &format!("bytes */{len}"));
                response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(0));
                response
            }
            RequestedRange::Single(start, end) => self.respond_slice(start, end, len),
            RequestedRange::Multiple(slices) => {
                self.respond_multipart(&slices, len).unwrap_or_else(|| self.respond_whole(StatusCode::OK))
            }
        }
    }

    fn respond_slice(&self, start: u64, end: u64, len: u64) -> Response<ResponseBody> {
        let body = match self.body_source() {
            BodySource::TooLargeForRanges => return self.respond_whole(StatusCode::OK),
            _ if self.is_head => ResponseBody::empty(),
            BodySource::Available(chunk) => ResponseBody::slice(&chunk.parts(), start, end),
            BodySource::Inflated => self.inflated_body([BodySegment::Inflated(start, end)]),
        };
        let mut response = self.response(StatusCode::PARTIAL_CONTENT, body);
        let headers = response.headers_mut();
        set_field(headers, CONTENT_RANGE, &format!("bytes {start}-{}/{len}", end - 1));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(end - start));
        self.add_content_fields(headers);
        response
    }

    /// Returns a response with several ranges; `None` if the whole file is sent instead.
    fn respond_multipart(&self, slices: &[(u64, u64)], len: u64) -> Option<Response<ResponseBody>> {
        let media_type = match &self.type_of_rules {
            Some(type_of_rules) => Cow::Borrowed(type_of_rules.as_str()),
            None => self.version.content_type(self.file),
        };
        let multipart = Multipart::new(slices, len, &self.entry.content, &media_type, self.form.token())?;
        let source = self.body_source();
        let is_possible = match &source {
            // The search for the boundary is limited to bodies of this size.
            BodySource::Available(chunk) if self.form != ResponseForm::Identity => {
                len <= MAX_RANGE_SOURCE_BYTES && !multipart.boundary_occurs_in(&chunk.parts())
            }
            // All parts are inflated in one pass, so they must be in ascending order. That also applies to a file in
            // the cache, so that the response does not depend on what is cached.
            BodySource::Available(_)
                if self.entry.compression == EntryCompression::Deflate && self.entry.len > MAX_SMALL_FILE_BYTES =>
            {
                multipart.is_ascending()
            }
            BodySource::Available(_) => true,
            BodySource::Inflated => self.entry.len <= MAX_SMALL_FILE_BYTES || multipart.is_ascending(),
            BodySource::TooLargeForRanges => false,
        };
        if !is_possible {
            return None;
        }
        let (content_type, total) = (multipart.content_type(), multipart.total_len());
        let body = match source {
            _ if self.is_head => ResponseBody::empty(),
            BodySource::Available(chunk) => multipart.body(&chunk.parts()),
            BodySource::Inflated | BodySource::TooLargeForRanges => self.inflated_body(multipart.segments()),
        };
        let mut response = self.response(StatusCode::PARTIAL_CONTENT, body);
        let headers = response.headers_mut();
        set_field(headers, CONTENT_TYPE, &content_type);
        headers.insert(CONTENT_LENGTH, HeaderValue::from(total));
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        Some(response)
    }

    /// Returns a response with the whole file.
    pub(super) fn respond_whole(&self, status: StatusCode) -> Response<ResponseBody> {
        let body = match self.body_source() {
            _ if self.is_head => self.empty_body(),
            BodySource::Available(chunk) => self.with_location(chunk.into()),
            BodySource::Inflated | BodySource::TooLargeForRanges => {
                let body = self.inflated_body([BodySegment::Inflated(0, self.len())]);
                // The cache may have the file at the next request.
                if self.site.inflated_file_cache.is_within_file_limit(self.entry.len) {
                    self.with_location(body)
                } else {
                    body
                }
            }
        };
        let mut response = self.response(status, body);
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(self.len()));
        self.add_content_fields(response.headers_mut());
        response
    }

    /// Returns an empty body, which a cached response can have.
    fn empty_body(&self) -> ResponseBody {
        if self.is_cacheable() {
            ResponseBody::empty().with_location(BodyLocation::Empty)
        } else {
            ResponseBody::empty()
        }
    }

    /// Adds the location of the whole body, so that a cached response can have it.
    fn with_location(&self, body: ResponseBody) -> ResponseBody {
        if !self.is_cacheable() {
            return body;
        }
        body.with_location(match (&self.inserted_tag, self.form) {
            (Some(tag), form) => BodyLocation::PageWithTag {
                file: self.file,
                form,
                coded_crc: self.precompressed_crc,
                tag: tag.digest(),
            },
            (None, ResponseForm::Precompressed(coding)) => {
                BodyLocation::Precompressed(self.file, coding, self.precompressed_crc)
            }
            (None, form) => BodyLocation::File(self.file, form),
        })
    }

    /// Returns whether the response stays the same until the site changes. It does not if the file belongs to a
    /// replaced version, which expires, or if its date is in the future, because Last-Modified is then the current
    /// time.
    fn is_cacheable(&self) -> bool {
        self.is_current() && header_pool::is_past(self.entry.modified)
    }

    /// Returns whether the file belongs to the version that is served now.
    fn is_current(&self) -> bool {
        let served = self.site.load_served_version();
        served.as_ref().is_some_and(|version| std::ptr::eq(&raw const **version, self.version))
    }

    /// Returns the source of the body's bytes. It must be cheap, because HEAD requests need it as well.
    fn body_source(&self) -> BodySource {
        let tag = self.inserted_tag.as_deref();
        match (self.form, self.entry.compression) {
            (ResponseForm::Gzip, _) => BodySource::Available(gzip_chunk(self.version, &self.entry, tag)),
            (ResponseForm::Precompressed(coding), _) => {
                BodySource::Available(precompressed_chunk(coding, self.precompressed.clone(), tag))
            }
            (ResponseForm::Identity, EntryCompression::Stored) => {
                BodySource::Available(identity_chunk(self.version.compressed_bytes(&self.entry).into(), tag))
            }
            (ResponseForm::Identity, EntryCompression::Deflate) => {
                match self.site.inflated_file_cache.get(&self.entry.content) {
                    Some(file) => BodySource::Available(identity_chunk(file.into(), tag)),
                    None if self.entry.len <= MAX_RANGE_SOURCE_BYTES => BodySource::Inflated,
                    None => BodySource::TooLargeForRanges,
                }
            }
        }
    }

    /// Returns a body of segments of the file's content and of the tag behind it, inflated as it is sent.
    fn inflated_body(&self, segments: impl IntoIterator<Item = BodySegment>) -> ResponseBody {
        let file_source = InflatedFileSource {
            cache: Arc::clone(&self.site.inflated_file_cache),
            version: self.version.id,
            digest: self.entry.content,
            len: self.entry.len,
            crc: self.entry.crc,
        };
        let segments = segments.into_iter().flat_map(|segment| self.split_at_tag(segment));
        ResponseBody::from_file(file_source, self.version.compressed_bytes(&self.entry), segments)
    }

    /// Splits a segment into the part before the end of the content and the part of the tag. Each may be empty.
    fn split_at_tag(&self, segment: BodySegment) -> [BodySegment; 2] {
        match (segment, &self.inserted_tag) {
            (BodySegment::Inflated(start, end), Some(tag)) => {
                let content_len = self.entry.len;
                let offset_in_tag = |offset: u64| offset.saturating_sub(content_len) as usize;
                [
                    BodySegment::Inflated(start.min(content_len), end.min(content_len)),
                    BodySegment::Bytes(tag.bytes().slice(offset_in_tag(start)..offset_in_tag(end))),
                ]
            }
            (segment, _) => [segment, BodySegment::Bytes(Bytes::new())],
        }
    }

    /// Returns a response without a body that has the fields that all responses about a file share.
    fn respond_without_body(&self, status: StatusCode) -> Response<ResponseBody> {
        let mut response = self.response(status, ResponseBody::empty());
        if status == StatusCode::PRECONDITION_FAILED {
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(0));
        }
        response
    }

    /// Returns a response with the fields that 200, 206, 304, 412 and 416 share.
    fn response(&self, status: StatusCode, body: ResponseBody) -> Response<ResponseBody> {
        let viewed = match status {
            StatusCode::OK | StatusCode::NOT_MODIFIED if self.is_current() => {
                ViewedContent::of_file(self.version, self.file)
            }
            _ => ViewedContent::Nothing,
        };
        let mut response = header_pool::new_response(status, body.with_viewed(viewed));
        if self.site.csp_settings().is_some() {
            response.extensions_mut().insert(ServedFile::new(self.version, self.file));
        }
        let headers = response.headers_mut();
        set_field(headers, ETAG, self.entity_tag.as_str());
        if let Some(date) = header_pool::last_modified_value(self.entry.modified) {
            headers.insert(LAST_MODIFIED, date);
        }
        let cache = match self.version.cache_class(self.file) {
            // Without `public`: a response behind a proxy that authenticates users must not enter shared caches.
            CacheClass::Immutable => "max-age=31536000, immutable",
            CacheClass::Revalidate => "no-cache",
        };
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
        let (file, is_compressed) = (self.file, self.entry.compression == EntryCompression::Deflate);
        self.markdown_role.add_negotiation_fields(headers, status, (self.site, self.version, file), is_compressed);
        response
    }

    /// Adds the fields that describe a body.
    fn add_content_fields(&self, headers: &mut HeaderMap) {
        match self.version.content_type(self.file) {
            Cow::Borrowed(media_type) => drop(headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type))),
            Cow::Owned(media_type) => set_field(headers, CONTENT_TYPE, &media_type),
        }
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if let Some(token) = self.form.token() {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(token));
        }
        if is_page(self.version.index().path(self.file)) || self.markdown_role == MarkdownRole::Markdown {
            self.markdown_role.add_link_field(headers, self.site, self.version, self.file);
        }
    }
}

/// Returns the tag that follows a file, if the site inserts one and the response has the media type of HTML.
/// `type_of_rules` is the Content-Type that rules set. An archive is sent unchanged whatever its type.
fn tag_of_file(
    site: &Site,
    version: &SealedVersion,
    file: usize,
    type_of_rules: Option<&str>,
) -> Option<Arc<InsertedTag>> {
    let tag = site.inserted_tag();
    let tag = tag.as_ref()?;
    let is_page = match type_of_rules {
        Some(content_type) => is_html(content_type) && !version.is_archive(file),
        None => is_html(&version.content_type(file)),
    };
    is_page.then(|| Arc::clone(tag))
}
