//! Reads the response of a chat endpoint, as it arrives: a stream of server-sent events with a JSON object each (HTML
//! Standard, section 9.2), or a single JSON object. Pure.
//!
//! In a stream, each line with `data:` counts as an event: no endpoint divides an object among lines, and some leave
//! the empty lines out. The endpoint is not trusted: the response is bounded, and what does not parse is a fault.

use serde::Deserialize;
use serde::de::IgnoredAny;

/// The largest response that is read, in bytes. A longer stream is cut there.
pub(crate) const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// The event that ends a stream.
const END_OF_STREAM: &[u8] = b"[DONE]";

/// The reason why a response has no usable answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChatFault {
    /// The response is neither a stream of events nor an object of the expected form.
    #[error("sent a response that is not one of chat completions")]
    Unreadable,
    /// The endpoint reports an error in the response.
    #[error("reported an error in its response")]
    Reported,
    /// The response ended before the answer did.
    #[error("ended its response too early")]
    Cut,
    /// The object is too long.
    #[error("sent a response of more than 1 MiB")]
    TooLong,
    /// The answer has no text.
    #[error("sent an answer without text")]
    Empty,
}

/// The form of a response, which its first byte shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChatResponseForm {
    Unknown,
    Object,
    Stream,
}

/// Reads a response.
#[derive(Debug)]
pub(crate) struct ChatResponseReader {
    form: ChatResponseForm,
    /// The bytes of a line, or of the object, that is not complete.
    partial: Vec<u8>,
    received: usize,
    /// Whether the answer is complete, as far as it will be.
    is_done: bool,
    is_truncated: bool,
    has_text: bool,
}

/// A response or one event of it (the chat completion object and the chat completion chunk object of `OpenAI`).
#[derive(Debug, Deserialize)]
struct ChatCompletion {
    #[serde(default)]
    choices: Vec<Choice>,
    error: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    /// The next part of the message, in an event.
    delta: Option<Message>,
    /// The whole message, in an object.
    message: Option<Message>,
    finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Message {
    content: Option<String>,
}

impl ChatResponseReader {
    /// Creates the reader of a response of which nothing was received.
    pub(crate) fn new() -> ChatResponseReader {
        ChatResponseReader {
            form: ChatResponseForm::Unknown,
            partial: Vec::new(),
            received: 0,
            is_done: false,
            is_truncated: false,
            has_text: false,
        }
    }

    /// Returns whether nothing more has to be received.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Returns whether no more bytes are read.
    pub(crate) fn is_full(&self) -> bool {
        self.received >= MAX_RESPONSE_BYTES
    }

    /// Returns whether the answer was cut, by the endpoint at the number of tokens, or at the largest response.
    pub(crate) fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Takes received bytes, and returns the text in them.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<String, ChatFault> {
        if self.is_done {
            return Ok(String::new());
        }
        let bytes = if self.form == ChatResponseForm::Unknown { self.find_form(bytes) } else { bytes };
        let allowed = bytes.len().min(MAX_RESPONSE_BYTES - self.received);
        self.received += allowed;
        let mut text = String::new();
        if self.form == ChatResponseForm::Object {
            self.partial.extend_from_slice(&bytes[..allowed]);
            return if allowed < bytes.len() { Err(ChatFault::TooLong) } else { Ok(text) };
        }
        let mut rest = &bytes[..allowed];
        while let Some(end) = memchr::memchr2(b'\n', b'\r', rest).filter(|_| !self.is_done) {
            self.partial.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            let line = std::mem::take(&mut self.partial);
            self.read_line(&line, &mut text)?;
        }
        self.partial.extend_from_slice(rest);
        if self.is_full() && !self.is_done {
            (self.is_done, self.is_truncated) = (true, true);
        }
        Ok(text)
    }

    /// Ends the response, and returns the text that was not returned before. A second call returns none.
    pub(crate) fn finish(&mut self) -> Result<String, ChatFault> {
        let mut text = String::new();
        let partial = std::mem::take(&mut self.partial);
        match self.form {
            ChatResponseForm::Unknown => return Err(ChatFault::Unreadable),
            ChatResponseForm::Object if !self.is_done => self.read_object(&partial, &mut text)?,
            // The last line may have no end.
            ChatResponseForm::Stream if !self.is_done => self.read_line(&partial, &mut text)?,
            ChatResponseForm::Object | ChatResponseForm::Stream => {}
        }
        if !self.is_done {
            return Err(ChatFault::Cut);
        }
        if self.has_text { Ok(text) } else { Err(ChatFault::Empty) }
    }

    /// Decides about the form by the first byte that is not white space, and returns the bytes from there on.
    fn find_form<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let bytes = bytes.trim_ascii_start();
        match bytes.first() {
            None => {}
            Some(b'{') => self.form = ChatResponseForm::Object,
            Some(_) => self.form = ChatResponseForm::Stream,
        }
        bytes
    }

    fn read_line(&mut self, line: &[u8], text: &mut String) -> Result<(), ChatFault> {
        let Some(data) = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii) else {
            // Comments begin with a colon. Other fields of events have a name; anything else is no stream of events.
            let is_field = line.is_empty() || line.contains(&b':') || matches!(line, b"event" | b"id" | b"retry");
            let is_markup = line.starts_with(b"<");
            return if is_field && !is_markup { Ok(()) } else { Err(ChatFault::Unreadable) };
        };
        if data == END_OF_STREAM {
            self.is_done = true;
            return Ok(());
        }
        if data.is_empty() {
            return Ok(());
        }
        let choice = parse_completion(data)?;
        self.read_choice(choice.map(|choice| (choice.delta.or(choice.message), choice.finish_reason)), text);
        Ok(())
    }

    fn read_object(&mut self, object: &[u8], text: &mut String) -> Result<(), ChatFault> {
        let choice = parse_completion(object)?.ok_or(ChatFault::Unreadable)?;
        // An object is complete also without a reason.
        self.is_done = true;
        self.read_choice(Some((choice.message, choice.finish_reason)), text);
        Ok(())
    }

    fn read_choice(&mut self, choice: Option<(Option<Message>, Option<String>)>, text: &mut String) {
        // An event with the usage has no choices.
        let Some((message, finish_reason)) = choice else { return };
        if let Some(content) = message.and_then(|message| message.content) {
            self.has_text |= !content.trim().is_empty();
            text.push_str(&content);
        }
        if let Some(reason) = finish_reason {
            self.is_done = true;
            self.is_truncated |= reason == "length";
        }
    }
}

/// Parses an object and returns its first choice.
fn parse_completion(json: &[u8]) -> Result<Option<Choice>, ChatFault> {
    let completion: ChatCompletion = serde_json::from_slice(json).map_err(|_| ChatFault::Unreadable)?;
    if completion.error.is_some() {
        return Err(ChatFault::Reported);
    }
    Ok(completion.choices.into_iter().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a response in pieces of this number of bytes. Returns the text, and whether it was cut.
    fn read(response: &[u8], piece: usize) -> Result<(String, bool), ChatFault> {
        let (mut reader, mut text) = (ChatResponseReader::new(), String::new());
        for piece in response.chunks(piece) {
            text.push_str(&reader.push(piece)?);
            if reader.is_done() {
                break;
            }
        }
        text.push_str(&reader.finish()?);
        Ok((text, reader.is_truncated()))
    }

    fn event(text: &str) -> String {
        format!("data: {}\n\n", serde_json::json!({ "choices": [{ "index": 0, "delta": { "content": text } }] }))
    }

    const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    const DONE: &str = "data: [DONE]\n\n";

    fn assert_read(response: &str, expected: Result<(&str, bool), ChatFault>) {
        let expected = expected.map(|(text, is_truncated)| (text.to_owned(), is_truncated));
        for piece in (1..=response.len()).filter(|piece| piece % 7 == 1 || *piece == response.len()) {
            assert_eq!(read(response.as_bytes(), piece), expected, "{response:?} by {piece}");
        }
    }

    #[test]
    fn a_stream_of_events_is_read_wherever_its_pieces_end() {
        let (one, two) = (event("Use "), event("線 [1]"));
        let role = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\n";
        let usage = "data: {\"choices\":[],\"usage\":{\"total_tokens\":7}}\n\n";
        let expected = Ok(("Use 線 [1]", false));
        assert_read(&format!("{role}{one}{two}{STOP}{usage}{DONE}"), expected);
        assert_read(&format!(": comment\n\n{one}{two}{DONE}"), expected);
        assert_read(&format!("event: message\nid: 1\n{one}{two}{STOP}"), expected);
        assert_read(&format!("\n\n{one}{two}{STOP}").replace('\n', "\r\n"), expected);
        assert_read(&format!("{one}{two}{STOP}").replace("\n\n", "\n").replace("data: ", "data:"), expected);
        assert_read(format!("{one}{two}{STOP}").trim_end(), expected);
        let null = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":null}],\"error\":null}\n\n";
        assert_read(&format!("{null}{DONE}"), Ok(("x", false)));
        let length = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n";
        assert_read(&format!("{one}{length}{DONE}"), Ok(("Use ", true)));
    }

    #[test]
    fn a_single_object_is_read() {
        let object = |reason: &str| {
            format!(" \n{{\"choices\":[{{\"message\":{{\"content\":\"A\\nb\"}},\"finish_reason\":{reason}}}]}}\n")
        };
        assert_read(&object("\"stop\""), Ok(("A\nb", false)));
        assert_read(&object("null"), Ok(("A\nb", false)));
        assert_read(&object("\"length\""), Ok(("A\nb", true)));
    }

    #[test]
    fn what_is_no_answer_is_a_fault() {
        let one = event("text");
        for (response, fault) in [
            ("", ChatFault::Unreadable),
            (" \n ", ChatFault::Unreadable),
            ("<!doctype html><h1>It: works</h1>\n", ChatFault::Unreadable),
            ("garbage\n", ChatFault::Unreadable),
            ("data: {\n\n", ChatFault::Unreadable),
            ("data: [1]\n\n", ChatFault::Unreadable),
            ("{\"choices\":[]}", ChatFault::Unreadable),
            ("{\"choices\":", ChatFault::Unreadable),
            ("{\"choices\":[{\"message\":{\"content\":7}}]}", ChatFault::Unreadable),
            ("{\"error\":{\"message\":\"no such model\"}}", ChatFault::Reported),
            ("data: {\"error\":\"out of memory\"}\n\n", ChatFault::Reported),
            (&one, ChatFault::Cut),
            (": comment\n\n", ChatFault::Cut),
            (DONE, ChatFault::Empty),
            ("{\"choices\":[{\"message\":{\"content\":\" \"},\"finish_reason\":\"stop\"}]}", ChatFault::Empty),
            ("{\"choices\":[{\"message\":{\"content\":null,\"tool_calls\":[]}}]}", ChatFault::Empty),
        ] {
            assert_read(response, Err(fault));
        }
    }

    #[test]
    fn a_stream_is_cut_at_1_mib_and_a_longer_object_is_a_fault() {
        let stream = event("0123456789").repeat(100_000);
        let (text, is_truncated) = read(stream.as_bytes(), 1 << 14).unwrap();
        assert!(is_truncated && text.len() < MAX_RESPONSE_BYTES && text.starts_with("0123456789"));
        let one_line = format!("data: {}", "x".repeat(2 << 20));
        assert_eq!(read(one_line.as_bytes(), 1 << 14), Err(ChatFault::Empty));
        let mut reader = ChatResponseReader::new();
        for piece in one_line.as_bytes().chunks(1 << 14) {
            let _ = reader.push(piece);
        }
        assert!(reader.partial.len() <= MAX_RESPONSE_BYTES, "{} bytes are held", reader.partial.len());
        let object = format!("{{\"choices\":[{{\"message\":{{\"content\":\"{}\"}}}}]}}", "x".repeat(1 << 20));
        assert_eq!(read(object.as_bytes(), 1 << 14), Err(ChatFault::TooLong));
    }
}
