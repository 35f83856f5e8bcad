//! Responses on HTTP/2: from a decoded request to frames.

use std::cell::RefCell;

use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http::{HeaderMap, Request, Response, StatusCode};

use crate::body::ResponseBody;
use crate::fixed_responses;
use crate::header_pool;
use crate::logged_body::{LoggedBody, LoggedChunk};
use crate::respond::{SiteResponse, respond, respond_from_cache, respond_refused};
use crate::response_cache::{CacheLookup, HeadFormat};
use crate::turn::{RESPONSE_COST, UNCACHED_RESPONSE_COST};

use super::frame::{self, ErrorCode, Http2Error};
use super::hpack::{DecodedFields, encode};
use super::request::{build_partial_request, build_request, check_request_fields};
use super::{DeferredResponse, Http2Connection};

thread_local! {
    /// The current second since 1970, and its encoded `date` field.
    static NOW: RefCell<(u64, Vec<u8>)> = const { RefCell::new((0, Vec::new())) };
}

impl Http2Connection {
    /// Answers a request, or returns the error of its stream if the request is malformed.
    pub(super) fn respond(&mut self, id: u32, is_last: bool, fields: &DecodedFields) -> Result<(), Http2Error> {
        let malformed = Http2Error::Stream(id, ErrorCode::Protocol);
        let asked = check_request_fields(fields);
        if !is_last {
            // The body will come, whatever the response is.
            self.uploads.begin(id, asked.as_ref().and_then(|asked| asked.content_length));
        }
        if fields.is_too_large() {
            let request =
                asked.and_then(|asked| build_request(&asked, fields)).unwrap_or_else(|| build_partial_request(fields));
            self.refuse(
                id,
                is_last,
                request,
                fixed_responses::fields_too_large(fields.get(b":method") == Some(b"HEAD")),
            );
            return Ok(());
        }
        let asked = asked.ok_or(malformed)?;
        if is_last && asked.content_length.is_some_and(|length| length > 0) {
            return Err(malformed);
        }
        let lookup = asked.cache_key.as_ref().and_then(|key| CacheLookup::new(&self.site, key, HeadFormat::Block));
        if let Some(lookup) = &lookup
            && self.respond_from_cache(id, is_last, lookup)
        {
            self.spend(RESPONSE_COST);
            return Ok(());
        }
        self.spend(UNCACHED_RESPONSE_COST);
        let request = build_request(&asked, fields).ok_or(malformed)?;
        match respond(&self.site, request, self.peer) {
            SiteResponse::Now(response) => self.queue_response(id, !is_last, response.into_inner(), lookup),
            SiteResponse::Later(response) => {
                self.deferred.push(DeferredResponse { stream: id, is_request_open: !is_last, widened: 0, response });
            }
        }
        Ok(())
    }

    /// Answers with `refusal`, after access control, and with an entry in the access log.
    fn refuse(&mut self, id: u32, is_last: bool, request: Request<()>, refusal: Response<ResponseBody>) {
        let response = respond_refused(&self.site, request, self.peer, refusal);
        self.queue_response(id, !is_last, response, None);
    }

    /// Answers from the response cache; false if the response is not cached.
    fn respond_from_cache(&mut self, id: u32, is_last: bool, lookup: &CacheLookup<'_>) -> bool {
        let is_first = !self.has_sent_head;
        let site = &self.site;
        let cached = self.send_buffer.write(|queue| {
            let at = queue.len();
            queue.extend_from_slice(&[0; frame::HEADER_BYTES]);
            if is_first {
                queue.push(encode::TABLE_SIZE_ZERO);
            }
            let Some(body) = respond_from_cache(site, lookup, queue) else {
                queue.truncate(at);
                return None;
            };
            append_date(queue);
            let body = LoggedChunk::from(body);
            let flags = frame::END_HEADERS | if body.is_empty() { frame::END_STREAM } else { 0 };
            let head = frame::encode_header(queue.len() - at - frame::HEADER_BYTES, frame::HEADERS, flags, id);
            queue[at..][..frame::HEADER_BYTES].copy_from_slice(&head);
            Some(body)
        });
        let Some(body) = cached else { return false };
        self.has_sent_head = true;
        let body = Some(body).filter(|body| !body.is_empty());
        self.start_body(id, !is_last, body, None);
        true
    }

    /// Queues the head of a response, caches it if there is a `lookup`, and starts sending the body.
    pub(super) fn queue_response(
        &mut self,
        id: u32,
        is_fed: bool,
        response: Response<LoggedBody>,
        lookup: Option<CacheLookup<'_>>,
    ) {
        let (parts, body) = response.into_parts();
        let mut block = Vec::with_capacity(512);
        encode_head(parts.status, &parts.headers, body.len(), &mut block);
        if let (Some(lookup), Some(location)) = (lookup, body.location()) {
            lookup.store(parts.status, &block, location.clone());
        }
        header_pool::recycle_header_map(parts.headers);
        append_date(&mut block);
        if !self.has_sent_head {
            self.has_sent_head = true;
            block.insert(0, encode::TABLE_SIZE_ZERO);
        }
        let body = Some(body).filter(|body| body.len() > 0);
        let mut flags = if body.is_none() { frame::END_STREAM } else { 0 };
        let mut kind = frame::HEADERS;
        let mut parts = block.chunks(frame::MAX_PAYLOAD_BYTES).peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                flags |= frame::END_HEADERS;
            }
            self.send_buffer.queue_frame(kind, flags, id, part);
            (kind, flags) = (frame::CONTINUATION, 0);
        }
        self.start_body(id, is_fed, None, body);
    }

    /// Starts sending the body behind a head; counts the response as complete if there is none.
    fn start_body(&mut self, id: u32, is_fed: bool, piece: Option<LoggedChunk>, body: Option<LoggedBody>) {
        if piece.is_some() || body.is_some() {
            return self.streams.begin(id, piece, body, is_fed);
        }
        self.streams.served.answers += 1;
        if is_fed {
            self.has_answered_upload(id);
        }
    }
}

/// Encodes the status and the header fields except for the date. `len` is the length of the body, also if none is sent.
fn encode_head(status: StatusCode, fields: &HeaderMap, len: u64, block: &mut Vec<u8>) {
    encode::append_status(status, block);
    // Fields that belong to an HTTP/1 connection are not allowed (RFC 9113, section 8.2.2).
    for (name, value) in fields.iter().filter(|(name, _)| *name != CONNECTION && *name != TRANSFER_ENCODING) {
        encode::append_field(name.as_str(), value.as_bytes(), block);
    }
    // A status without a body has no Content-Length (RFC 9110, section 8.6).
    let may_have_body = status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED;
    if may_have_body && !fields.contains_key(CONTENT_LENGTH) {
        encode::append_field(CONTENT_LENGTH.as_str(), len.to_string().as_bytes(), block);
    }
}

fn append_date(block: &mut Vec<u8>) {
    let second = header_pool::unix_seconds_now();
    NOW.with_borrow_mut(|(known, field)| {
        if *known != second || field.is_empty() {
            field.clear();
            encode::append_field(DATE.as_str(), header_pool::format_http_date(second).as_bytes(), field);
            *known = second;
        }
        block.extend_from_slice(field);
    });
}
