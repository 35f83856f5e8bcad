//! Runs the HTML parser over a page and turns its tokens into events.
//!
//! The parser reports texts and comments with their places in the page. What lies between them are tags, which
//! [`TagReader`](super::tags::TagReader) reads from the page itself. There are two reasons not to use the parser's
//! handlers for elements: the parser reports an end tag only if it matches its own stack of open elements, which knows
//! nothing of omitted end tags; and that stack needs memory for each level of nesting.

use std::cell::RefCell;
use std::ops::Range;
use std::time::{Duration, Instant};

use lol_html::errors::RewritingError;
use lol_html::html_content::TextChunk;
use lol_html::{HandlerResult, HtmlRewriter, MemorySettings, Settings, doc_comments, doc_text};

use super::encoding::PageBytes;
use super::reference_decoder::ReferenceDecoder;
use super::tags::{PageEvent, TagReader};

/// The memory limit of the HTML parser for one page, in bytes. It is exceeded by a tag with very many attributes, by a
/// very long tag or comment that the page does not finish, and, in a page that declares an encoding, by very deep
/// nesting.
const MAX_PARSER_MEMORY_BYTES: usize = 16 << 20;
/// The number of events after which the time is checked again.
const TIME_CHECK_EVENTS: u32 = 1024;

/// The consumer of the events of a page.
pub(crate) trait PageEventHandler {
    /// Reads the next event.
    fn handle(&mut self, event: &PageEvent<'_>);
}

/// Passes the events of a page to `handler`, and returns it with whether `max_time` was over before the end of the
/// page. The error of the parser is returned if it fails before that.
pub(crate) fn read_page<H: PageEventHandler>(
    page: &PageBytes<'_>,
    max_time: Duration,
    handler: H,
) -> Result<(H, bool), RewritingError> {
    let reader = RefCell::new(PageReader::new(&page.bytes, max_time, handler));
    let outcome = {
        let settings = Settings::new()
            .append_document_content_handler(doc_text!(|chunk| reader.borrow_mut().read_text(chunk)))
            .append_document_content_handler(doc_comments!(|comment| {
                reader.borrow_mut().skip_comment(comment.source_location().bytes())
            }))
            .with_adjust_charset_on_meta_tag(page.declares_encoding)
            .with_memory_settings(MemorySettings::new().with_max_allowed_memory_usage(MAX_PARSER_MEMORY_BYTES))
            // Markup that is ambiguous without the whole document tree is read as text, as in most browsers.
            .with_strict(false);
        let mut rewriter = HtmlRewriter::new(settings, |_: &[u8]| {});
        rewriter.write(&page.bytes).and_then(|()| rewriter.end())
    };
    let mut reader = reader.into_inner();
    match outcome {
        Ok(()) => reader.read_to_end(),
        Err(_) if reader.time_exceeded => {}
        Err(error) => return Err(error),
    }
    Ok((reader.handler, reader.time_exceeded))
}

/// The state of reading a page.
struct PageReader<'p, H> {
    page: &'p [u8],
    /// The end of the last token that has been read, in bytes from the start of the page.
    position: usize,
    references: ReferenceDecoder,
    handler: H,
    start: Instant,
    max_time: Duration,
    /// The number of events that have been read.
    events: u32,
    time_exceeded: bool,
}

impl<'p, H: PageEventHandler> PageReader<'p, H> {
    fn new(page: &'p [u8], max_time: Duration, handler: H) -> Self {
        PageReader {
            page,
            position: 0,
            references: ReferenceDecoder::default(),
            handler,
            start: Instant::now(),
            max_time,
            events: 0,
            time_exceeded: false,
        }
    }

    fn read_text(&mut self, chunk: &TextChunk<'_>) -> HandlerResult {
        let place = chunk.source_location().bytes();
        self.read_tags(place.start)?;
        self.position = self.position.max(place.end);
        let text = chunk.as_str();
        if text.is_empty() {
            return Ok(());
        }
        self.count_event()?;
        if chunk.text_type().allows_html_entities() {
            self.handler.handle(&PageEvent::Text(&self.references.decode(text)));
        } else {
            self.handler.handle(&PageEvent::Text(text));
        }
        Ok(())
    }

    fn skip_comment(&mut self, place: Range<usize>) -> HandlerResult {
        self.read_tags(place.start)?;
        self.end_text();
        self.position = self.position.max(place.end);
        Ok(())
    }

    /// Reads the tags after the last text.
    fn read_to_end(&mut self) {
        // The only error is that the time is over, which is remembered.
        let _ = self.read_tags(self.page.len());
        self.end_text();
    }

    /// Reads the tags between the last token and the token that starts at `end`.
    fn read_tags(&mut self, end: usize) -> HandlerResult {
        let page = self.page;
        let Some(markup) = page.get(self.position..end).filter(|markup| !markup.is_empty()) else { return Ok(()) };
        self.end_text();
        self.position = end;
        for event in TagReader::new(markup) {
            self.count_event()?;
            self.handler.handle(&event);
        }
        Ok(())
    }

    /// Reads the end of a text that could have been the start of a character reference.
    fn end_text(&mut self) {
        if let Some(text) = self.references.finish() {
            self.handler.handle(&PageEvent::Text(&text));
        }
    }

    /// Counts an event, and fails if the time is over.
    fn count_event(&mut self) -> HandlerResult {
        if self.events.is_multiple_of(TIME_CHECK_EVENTS) && self.start.elapsed() >= self.max_time {
            self.time_exceeded = true;
            return Err("the time for the page is over".into());
        }
        self.events = self.events.wrapping_add(1);
        Ok(())
    }
}
