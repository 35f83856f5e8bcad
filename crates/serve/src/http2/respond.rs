//! Answers decoded requests on HTTP/2: queues the frames of their responses.

use std::cell::RefCell;

use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http::{HeaderMap, Request, Response, StatusCode};

use crate::body::ResponseBody;
use crate::fixed_responses;
use crate::header_pool;
use crate::logged_body::{LoggedBody, LoggedChunk};
use crate::recording::recorded_fields::RecordedFields;
use crate::respond::{DeferredSiteResponse, SiteResponse, respond, respond_from_cache, respond_refused};
use crate::response_cache::{CacheAddress, HeadFormat};
use crate::turn::{RESPONSE_COST, UNCACHED_RESPONSE_COST};

use super::frame::{self, ErrorCode, Http2Error};
use super::hpack::{DecodedFields, encode};
use super::request::{build_partial_request, build_request, check_request_fields};
use super::{DeferredResponse, Http2Connection};

thread_local! {
    /// The second, since 1970, of the cached date, and its encoded `date` field.
    static ENCODED_DATE: RefCell<(u64, Vec<u8>)> = const { RefCell::new((0, Vec::new())) };
}

impl Http2Connection {
    /// Answers a request; a stream error if the request is malformed.
    pub(super) fn answer_request(
        &mut self,
        id: u32,
        ends_stream: bool,
        fields: &DecodedFields,
    ) -> Result<(), Http2Error> {
        let malformed = Http2Error::Stream(id, ErrorCode::Protocol);
        let request_fields = check_request_fields(fields);
        if !ends_stream {
            // The peer sends the body whatever the response is.
            self.receive_window
                .add(id, request_fields.as_ref().and_then(|request_fields| request_fields.content_length));
        }
        if fields.is_too_large() {
            let request = request_fields.and_then(|request_fields| build_request(&request_fields, fields));
            let request = request.unwrap_or_else(|| build_partial_request(fields));
            self.refuse(
                id,
                ends_stream,
                request,
                fixed_responses::fields_too_large(fields.get(b":method") == Some(b"HEAD")),
            );
            return Ok(());
        }
        let request_fields = request_fields.ok_or(malformed)?;
        if ends_stream && request_fields.content_length.is_some_and(|length| length > 0) {
            return Err(malformed);
        }
        let address =
            request_fields.cache_key.as_ref().and_then(|key| CacheAddress::new(&self.site, key, HeadFormat::Block));
        if let Some(address) = &address
            && self.answer_from_cache(id, ends_stream, address, &request_fields.recorded)
        {
            self.spend(RESPONSE_COST);
            return Ok(());
        }
        self.spend(UNCACHED_RESPONSE_COST);
        let request = build_request(&request_fields, fields).ok_or(malformed)?;
        let request = self.attach_body(id, ends_stream, request)?;
        match respond(&self.site, request, self.peer) {
            SiteResponse::Ready(response) => self.queue_response(id, !ends_stream, response.into_inner(), address),
            SiteResponse::Deferred(response) => self.defer_response(id, ends_stream, false, response),
            SiteResponse::DeferredWhileConnected(response) => self.defer_response(id, ends_stream, true, response),
        }
        Ok(())
    }

    fn defer_response(&mut self, id: u32, ends_stream: bool, ends_with_input: bool, response: DeferredSiteResponse) {
        self.deferred.push(DeferredResponse {
            stream: id,
            is_request_open: !ends_stream,
            window_increment: 0,
            ends_with_input,
            response,
        });
    }

    /// Answers with `refusal`, after access control, and with an entry in the access log.
    fn refuse(&mut self, id: u32, ends_stream: bool, request: Request<()>, refusal: Response<ResponseBody>) {
        let response = respond_refused(&self.site, request, self.peer, refusal);
        self.queue_response(id, !ends_stream, response, None);
    }

    /// Answers from the response cache; returns false if the response is not cached.
    fn answer_from_cache(
        &mut self,
        id: u32,
        ends_stream: bool,
        address: &CacheAddress<'_>,
        fields: &RecordedFields<'_>,
    ) -> bool {
        let is_first_head = !self.has_sent_head;
        let site = &self.site;
        let cached = self.send_buffer.write(|queue| {
            let start = queue.len();
            queue.extend_from_slice(&[0; frame::HEADER_BYTES]);
            if is_first_head {
                queue.push(encode::TABLE_SIZE_ZERO);
            }
            let Some(body) = respond_from_cache(site, address, fields, queue) else {
                queue.truncate(start);
                return None;
            };
            append_date(queue);
            let body = LoggedChunk::from(body);
            let flags = frame::END_HEADERS | if body.is_empty() { frame::END_STREAM } else { 0 };
            let head = frame::encode_header(queue.len() - start - frame::HEADER_BYTES, frame::HEADERS, flags, id);
            queue[start..][..frame::HEADER_BYTES].copy_from_slice(&head);
            Some(body)
        });
        let Some(body) = cached else { return false };
        self.has_sent_head = true;
        let body = Some(body).filter(|body| !body.is_empty());
        self.start_body(id, !ends_stream, body, None);
        true
    }

    /// Queues the head of a response and starts sending the body. With an `address` in the response cache, the head is
    /// also stored there if the body can be read again.
    pub(super) fn queue_response(
        &mut self,
        id: u32,
        is_request_open: bool,
        response: Response<LoggedBody>,
        address: Option<CacheAddress<'_>>,
    ) {
        let (parts, body) = response.into_parts();
        let mut block = Vec::with_capacity(512);
        let len = (!body.is_streamed()).then(|| body.len());
        encode_head(parts.status, &parts.headers, len, &mut block);
        if let (Some(address), Some(stored)) = (address, body.stored_body()) {
            address.store(parts.status, &block, stored);
        }
        header_pool::recycle_header_map(parts.headers);
        append_date(&mut block);
        if !self.has_sent_head {
            self.has_sent_head = true;
            block.insert(0, encode::TABLE_SIZE_ZERO);
        }
        let body = Some(body).filter(|body| !body.is_empty());
        let mut flags = if body.is_none() { frame::END_STREAM } else { 0 };
        let mut kind = frame::HEADERS;
        let mut parts = block.chunks(frame::INITIAL_MAX_FRAME_SIZE).peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                flags |= frame::END_HEADERS;
            }
            self.send_buffer.queue_frame(kind, flags, id, part);
            (kind, flags) = (frame::CONTINUATION, 0);
        }
        self.start_body(id, is_request_open, None, body);
    }

    /// Starts sending the body after a head; counts the response as complete if there is none.
    fn start_body(&mut self, id: u32, is_request_open: bool, chunk: Option<LoggedChunk>, body: Option<LoggedBody>) {
        if chunk.is_some() || body.is_some() {
            return self.streams.start_body(id, chunk, body, is_request_open);
        }
        self.streams.queued.responses += 1;
        if is_request_open {
            self.handle_unfinished_request(id);
        }
    }
}

/// Encodes the status and the header fields except for the date. `len` is the length of the body, also if none is sent;
/// `None` if it is not known.
fn encode_head(status: StatusCode, fields: &HeaderMap, len: Option<u64>, block: &mut Vec<u8>) {
    encode::append_status(status, block);
    // Fields that belong to an HTTP/1 connection are not allowed (RFC 9113, section 8.2.2).
    for (name, value) in fields.iter().filter(|(name, _)| *name != CONNECTION && *name != TRANSFER_ENCODING) {
        encode::append_field(name.as_str(), value.as_bytes(), block);
    }
    // A status without a body has no Content-Length (RFC 9110, section 8.6).
    let may_have_body = status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED;
    if let Some(len) = len.filter(|_| may_have_body && !fields.contains_key(CONTENT_LENGTH)) {
        encode::append_field(CONTENT_LENGTH.as_str(), len.to_string().as_bytes(), block);
    }
}

fn append_date(block: &mut Vec<u8>) {
    let second = header_pool::unix_seconds_now();
    ENCODED_DATE.with_borrow_mut(|(cached_second, field)| {
        if *cached_second != second || field.is_empty() {
            field.clear();
            encode::append_field(DATE.as_str(), header_pool::format_http_date(second).as_bytes(), field);
            *cached_second = second;
        }
        block.extend_from_slice(field);
    });
}

#[cfg(test)]
mod tests {
    use super::super::hpack::HpackDecoder;
    use super::*;

    #[test]
    fn the_date_of_an_earlier_second_is_not_sent_again() {
        let mut earlier = Vec::new();
        encode::append_field(DATE.as_str(), b"Thu, 01 Jan 1970 00:00:01 GMT", &mut earlier);
        ENCODED_DATE.set((1, earlier));
        let (mut block, mut fields) = (Vec::new(), DecodedFields::default());
        append_date(&mut block);
        HpackDecoder::default().decode(&block, &mut fields).unwrap();
        let date = String::from_utf8_lossy(fields.get(b"date").unwrap());
        assert!(date.ends_with(" GMT") && !date.contains(" 1970 "), "{date}");
    }
}
