//! A response with content that is in memory as a whole: preconditions, ranges, and the fields of the representation
//! (RFC 9110, section 3.2). Files of a version are answered by `file_response`.

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, VARY,
};
use http::{HeaderValue, Response, StatusCode};

use super::body::ResponseBody;
use super::byte_range::{RequestedRange, parse_range};
use super::conditional::{PreconditionOutcome, evaluate_tag_preconditions, if_range_matches};
use super::entity_tag::EntityTag;
use super::fixed_responses::select_content;
use super::header_pool;
use super::request_context::RequestContext;

/// A representation with a strong tag that clients revalidate at each use.
#[derive(Debug)]
pub(super) struct Representation {
    pub(super) media_type: &'static str,
    pub(super) body: Bytes,
    /// The value of Content-Encoding; `None` for none.
    pub(super) coding: Option<&'static str>,
    pub(super) entity_tag: EntityTag,
    /// The value of Vary; `None` if nothing was negotiated.
    pub(super) vary: Option<&'static str>,
    /// Whether a range of it is sent. Several ranges are answered with the whole.
    pub(super) has_ranges: bool,
}

impl Representation {
    /// Returns the response to a GET or HEAD request.
    pub(super) fn respond(self, context: &RequestContext<'_>) -> Response<ResponseBody> {
        let outcome = evaluate_tag_preconditions(context.headers(), self.entity_tag.as_str());
        let range = if outcome == PreconditionOutcome::Proceed { self.requested_range(context) } else { None };
        let full_len = self.body.len();
        let content = match range {
            Some(RequestedRange::Single(start, end)) => self.body.slice(start as usize..end as usize),
            _ => self.body,
        };
        let (mut status, mut len, mut body) = select_content(outcome, context.is_head(), content);
        let content_range = match range {
            Some(RequestedRange::Single(start, end)) => {
                status = StatusCode::PARTIAL_CONTENT;
                Some(format!("bytes {start}-{}/{full_len}", end - 1))
            }
            Some(RequestedRange::NotSatisfiable) => {
                (status, len, body) = (StatusCode::RANGE_NOT_SATISFIABLE, Some(0), ResponseBody::empty());
                Some(format!("bytes */{full_len}"))
            }
            _ => None,
        };
        let mut response = header_pool::new_response(status, body);
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        if let Ok(tag) = HeaderValue::from_str(self.entity_tag.as_str()) {
            headers.insert(ETAG, tag);
        }
        if let Some(vary) = self.vary {
            headers.insert(VARY, HeaderValue::from_static(vary));
        }
        if let Some(len) = len {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
        }
        if let Some(range) = content_range.and_then(|range| HeaderValue::try_from(range).ok()) {
            headers.insert(CONTENT_RANGE, range);
        }
        if matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.media_type));
            if let Some(coding) = self.coding {
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
            }
            if self.has_ranges {
                headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
            }
        }
        response
    }

    /// Returns the range that is sent; `None` for the whole.
    fn requested_range(&self, context: &RequestContext<'_>) -> Option<RequestedRange> {
        let headers = context.headers();
        if !self.has_ranges || !if_range_matches(headers, self.entity_tag.as_str(), None) {
            return None;
        }
        let range = parse_range(headers, self.body.len() as u64);
        matches!(range, RequestedRange::Single(..) | RequestedRange::NotSatisfiable).then_some(range)
    }
}
