//! Answers, from a request to frames.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http::{HeaderMap, Request, Response, StatusCode};

use crate::answer::{refused, told};
use crate::body::Body;
use crate::handler::asset_to_come;
use crate::memo::{self, Question, Shape, State};
use crate::reply;
use crate::spare;
use crate::tally::{Piece, Told};
use crate::turn::{ANSWER, NEW_ANSWER};

use super::frame::{self, Code, Fault};
use super::hpack::{Fields, encode};
use super::request::{judge, partial_request, request};
use super::{Later, Two};

thread_local! {
    /// A second, since 1970, and the field `date` in it.
    static NOW: RefCell<(u64, Vec<u8>)> = const { RefCell::new((0, Vec::new())) };
}

impl Two {
    /// Answers a request.
    pub(super) fn answer(&mut self, id: u32, is_last: bool, fields: &Fields) -> Result<(), Fault> {
        let malformed = Fault::Stream(id, Code::Protocol);
        let asked = judge(fields);
        if !is_last {
            // What comes of it comes, whatever becomes of the answer.
            self.uploads.begin(id, asked.as_ref().and_then(|asked| asked.length));
        }
        if fields.is_too_large() {
            let request = asked.and_then(|asked| request(&asked, fields)).unwrap_or_else(|| partial_request(fields));
            self.refuse(id, is_last, request, reply::fields_too_large(fields.get(b":method") == Some(b"HEAD")));
            return Ok(());
        }
        let asked = asked.ok_or(malformed)?;
        if is_last && asked.length.is_some_and(|length| length > 0) {
            return Err(malformed);
        }
        let known = asked.question.and_then(|question| Some((question, State::of(&self.site)?)));
        if let Some((question, state)) = &known
            && self.answer_again(id, is_last, question, *state)
        {
            self.spend(ANSWER);
            return Ok(());
        }
        self.spend(NEW_ANSWER);
        let mut request = request(&asked, fields).ok_or(malformed)?;
        let site = Arc::clone(&self.site);
        if site.looks_at_peers() {
            request.extensions_mut().insert(self.peer);
        }
        let begun = site.log().map(|_| Instant::now());
        if let Some(asset) =
            site.is_opening().then(|| asset_to_come(&site, site.current().as_deref(), &request)).flatten()
        {
            let answer = Box::pin(async move {
                site.retained.wait_for(&asset).await;
                told(&site, &request, begun)
            });
            self.later.push(Later { stream: id, is_fed: !is_last, widened: 0, answer });
            return Ok(());
        }
        let response = told(&site, &request, begun);
        spare::keep(std::mem::take(request.headers_mut()));
        self.give(id, !is_last, response, known);
        Ok(())
    }

    /// Gives `refusal`, by way of whoever may read the site and of the log.
    fn refuse(&mut self, id: u32, is_last: bool, mut request: Request<()>, refusal: Response<Body>) {
        if self.site.looks_at_peers() {
            request.extensions_mut().insert(self.peer);
        }
        let begun = self.site.log().map(|_| Instant::now());
        let response = refused(&self.site, &request, begun, refusal);
        self.give(id, !is_last, response, None);
    }

    /// Gives an answer that was given before; false if there is none.
    fn answer_again(&mut self, id: u32, is_last: bool, question: &Question<'_>, state: State) -> bool {
        let is_first = !self.has_told_of_table;
        let site = &self.site;
        let known = self.out.write(|queue| {
            let at = queue.len();
            queue.extend_from_slice(&[0; frame::HEAD]);
            if is_first {
                queue.push(encode::NOTHING_KEPT);
            }
            let Some((status, body)) = memo::recall(site, state, question, Shape::Block, queue) else {
                queue.truncate(at);
                return None;
            };
            date(queue);
            let body = Piece::from(body);
            let flags = frame::END_HEADERS | if body.is_empty() { frame::END_STREAM } else { 0 };
            let head = frame::head(queue.len() - at - frame::HEAD, frame::HEADERS, flags, id);
            queue[at..][..frame::HEAD].copy_from_slice(&head);
            Some((status, body))
        });
        let Some((status, body)) = known else { return false };
        self.has_told_of_table = true;
        self.site.count(status);
        let body = Some(body).filter(|body| !body.is_empty());
        self.send(id, !is_last, body, None);
        true
    }

    /// Gives an answer, and remembers it as that to this question.
    pub(super) fn give(
        &mut self,
        id: u32,
        is_fed: bool,
        response: Response<Told>,
        known: Option<(Question<'_>, State)>,
    ) {
        let (parts, body) = response.into_parts();
        let mut block = Vec::with_capacity(512);
        head(parts.status, &parts.headers, body.len(), &mut block);
        if let (Some((question, state)), Some(again)) = (known, body.again()) {
            memo::remember(state, &question, Shape::Block, parts.status, &block, again.clone());
        }
        spare::keep(parts.headers);
        date(&mut block);
        if !self.has_told_of_table {
            self.has_told_of_table = true;
            block.insert(0, encode::NOTHING_KEPT);
        }
        let body = Some(body).filter(|body| body.len() > 0);
        let mut flags = if body.is_none() { frame::END_STREAM } else { 0 };
        let mut kind = frame::HEADERS;
        let mut parts = block.chunks(frame::LONGEST).peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                flags |= frame::END_HEADERS;
            }
            self.out.frame(kind, flags, id, part);
            (kind, flags) = (frame::CONTINUATION, 0);
        }
        self.send(id, is_fed, None, body);
    }

    /// Sends what comes behind a head.
    fn send(&mut self, id: u32, is_fed: bool, piece: Option<Piece>, body: Option<Told>) {
        if piece.is_some() || body.is_some() {
            return self.streams.begin(id, piece, body, is_fed);
        }
        self.streams.served.answers += 1;
        if is_fed {
            self.has_answered_upload(id);
        }
    }
}

/// Status and fields, but for the date. `len` is the length of the body that there would be.
fn head(status: StatusCode, fields: &HeaderMap, len: u64, block: &mut Vec<u8>) {
    encode::status(status, block);
    // What is about a connection of HTTP/1 has no place here (RFC 9113, 8.2.2).
    for (name, value) in fields.iter().filter(|(name, _)| *name != CONNECTION && *name != TRANSFER_ENCODING) {
        encode::field(name.as_str(), value.as_bytes(), block);
    }
    // Where there can be no body there is no length of it (RFC 9110, 8.6).
    let may_have_body = status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED;
    if may_have_body && !fields.contains_key(CONTENT_LENGTH) {
        encode::field(CONTENT_LENGTH.as_str(), len.to_string().as_bytes(), block);
    }
}

fn date(block: &mut Vec<u8>) {
    let second = spare::second();
    NOW.with_borrow_mut(|(known, field)| {
        if *known != second || field.is_empty() {
            field.clear();
            encode::field(DATE.as_str(), spare::written(second).as_bytes(), field);
            *known = second;
        }
        block.extend_from_slice(field);
    });
}
