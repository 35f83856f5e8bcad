//! An answer that is being made, and the JSON and the server-sent events in which clients get it.

use std::time::Instant;

use docwharf_search::extract::is_invisible;
use http::StatusCode;
use serde::Serialize;

use crate::streamed_body::BodySender;

use super::chat_client::{ChatAnswer, ChatFailure};
use super::citations::CitationFilter;
use super::passages::{Citation, Passage, list_citations};
use super::state::RunningQuestion;
use super::statistics::AskOutcome;

/// The reason why there is no answer, although everything works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Refusal {
    /// The search found nothing, so the model was not asked.
    NothingFound,
    /// The answer cites no passage, and was withheld.
    Uncited,
}

/// The end of an answer and what is known only then: the event `done`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct AnswerEnd {
    /// The passages that the answer cites; all of them if it was withheld.
    citations: Vec<Citation>,
    refused: Option<Refusal>,
    /// Whether the answer was cut.
    truncated: bool,
    /// The name of the model.
    model: String,
    /// The time since the request was received, in milliseconds.
    ms: u64,
}

/// A complete answer as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct CompleteAnswer {
    /// The text; empty if there is none.
    answer: String,
    #[serde(flatten)]
    end: AnswerEnd,
}

/// An event of a streamed answer (HTML Standard, section 9.2).
#[derive(Debug)]
pub(crate) enum AnswerEvent<'a> {
    /// The passages that the answer may cite.
    Citations(&'a [Citation]),
    /// A part of the text.
    Delta(&'a str),
    /// The end.
    Done(&'a AnswerEnd),
    /// The answer ends because of an error.
    Error { status: StatusCode, message: &'a str },
}

impl AnswerEvent<'_> {
    /// Encodes the event. JSON has no line breaks, so each event has one line of data.
    pub(crate) fn encode(&self) -> String {
        let (name, data) = match self {
            AnswerEvent::Citations(citations) => ("citations", serde_json::json!({ "citations": citations })),
            AnswerEvent::Delta(text) => ("delta", serde_json::json!({ "text": text })),
            AnswerEvent::Done(end) => ("done", serde_json::json!(end)),
            AnswerEvent::Error { status, message } => {
                ("error", serde_json::json!({ "error": message, "status": status.as_u16() }))
            }
        };
        format!("event: {name}\ndata: {data}\n\n")
    }
}

/// Returns the end of a question to which the search found nothing. `start` is when the request was received.
pub(crate) fn nothing_found(model: &str, start: Instant) -> AnswerEnd {
    let (citations, refused, model) = (Vec::new(), Some(Refusal::NothingFound), model.to_owned());
    AnswerEnd { citations, refused, truncated: false, model, ms: milliseconds_since(start) }
}

/// Removes the characters of a model's text that a reader does not see or that change the direction of text.
fn without_invisible(text: &str) -> String {
    text.chars().filter(|&character| matches!(character, '\n' | '\t') || !is_invisible(character)).collect()
}

fn milliseconds_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// An answer of the model that is being received.
#[derive(Debug)]
pub(crate) struct RunningAnswer {
    running: RunningQuestion,
    passages: Vec<Passage>,
    chat: ChatAnswer,
    filter: CitationFilter,
    model: String,
    start: Instant,
    has_ended: bool,
}

impl RunningAnswer {
    /// Begins to receive an answer to a question that was asked with these passages. `start` is when its request was
    /// received.
    pub(crate) fn new(
        running: RunningQuestion,
        passages: Vec<Passage>,
        chat: ChatAnswer,
        model: &str,
        start: Instant,
    ) -> RunningAnswer {
        let filter = CitationFilter::new(passages.len());
        RunningAnswer { running, passages, chat, filter, model: model.to_owned(), start, has_ended: false }
    }

    /// Returns the deadline of the model.
    pub(crate) fn deadline(&self) -> tokio::time::Instant {
        self.chat.deadline()
    }

    /// Waits for the next part of the text, without numbers that no passage has; `None` at the end.
    pub(crate) async fn next_text(&mut self) -> Result<Option<String>, ChatFailure> {
        while !self.has_ended {
            let text = match self.chat.next_text().await {
                Ok(Some(text)) => self.filter.push(&without_invisible(&text)),
                Ok(None) => {
                    self.has_ended = true;
                    self.filter.finish()
                }
                Err(failure) => {
                    self.running.fail(&failure);
                    return Err(failure);
                }
            };
            if !text.is_empty() {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    /// Ends the answer, and counts its outcome.
    fn finish(&mut self) -> AnswerEnd {
        let is_cited = self.filter.has_citations();
        self.running.finish(if is_cited { AskOutcome::Answered } else { AskOutcome::Uncited });
        AnswerEnd {
            citations: list_citations(&self.passages, |number| !is_cited || self.filter.is_cited(number)),
            refused: (!is_cited).then_some(Refusal::Uncited),
            truncated: self.chat.is_truncated(),
            model: self.model.clone(),
            ms: milliseconds_since(self.start),
        }
    }

    /// Waits for the whole answer. An answer without citations is withheld.
    pub(crate) async fn complete(mut self) -> Result<CompleteAnswer, ChatFailure> {
        let mut answer = String::new();
        while let Some(text) = self.next_text().await? {
            answer.push_str(&text);
        }
        let end = self.finish();
        let answer = if end.refused.is_none() { answer } else { String::new() };
        Ok(CompleteAnswer { answer, end })
    }

    /// Sends the answer as events, of which `first` is the first text.
    pub(crate) async fn stream(mut self, first: Option<String>, sender: BodySender) {
        let passages = list_citations(&self.passages, |_| true);
        let mut events = AnswerEvent::Citations(&passages).encode();
        let mut next = Ok(first);
        loop {
            match next {
                Ok(Some(text)) => {
                    events.push_str(&AnswerEvent::Delta(&text).encode());
                    sender.send(std::mem::take(&mut events)).await;
                }
                Ok(None) => {
                    events.push_str(&AnswerEvent::Done(&self.finish()).encode());
                    return sender.send(events).await;
                }
                Err(failure) => {
                    let (status, message) = describe_failure(&failure);
                    return sender.send(AnswerEvent::Error { status, message }.encode()).await;
                }
            }
            next = self.next_text().await;
        }
    }
}

impl CompleteAnswer {
    /// Creates an answer without a text.
    pub(crate) fn without_text(end: AnswerEnd) -> CompleteAnswer {
        CompleteAnswer { answer: String::new(), end }
    }
}

/// Returns the status and the message that a reader gets. It names neither the endpoint nor what is wrong with it: the
/// log has that.
pub(crate) fn describe_failure(failure: &ChatFailure) -> (StatusCode, &'static str) {
    match failure {
        ChatFailure::TimedOut => {
            (StatusCode::GATEWAY_TIMEOUT, "the model did not answer in time; ask again, or a shorter question")
        }
        _ => (StatusCode::BAD_GATEWAY, "the model has failed; the log of docwharf has the reason"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_a_name_and_one_line_of_json() {
        let end = nothing_found("m\n", Instant::now());
        let citation = Citation { n: 1, url: "/a#b".to_owned(), title: "A\n\nB".to_owned(), section: None };
        for (event, expected) in [
            (
                AnswerEvent::Citations(std::slice::from_ref(&citation)),
                r#"event: citations|data: {"citations":[{"n":1,"section":null,"title":"A\n\nB","url":"/a#b"}]}||"#,
            ),
            (AnswerEvent::Delta("a\r\n\nevent: done"), r#"event: delta|data: {"text":"a\r\n\nevent: done"}||"#),
            (
                AnswerEvent::Error { status: StatusCode::GATEWAY_TIMEOUT, message: "late" },
                r#"event: error|data: {"error":"late","status":504}||"#,
            ),
        ] {
            assert_eq!(event.encode().replace('\n', "|"), expected);
        }
        let done = AnswerEvent::Done(&end).encode();
        assert!(done.starts_with("event: done\ndata: {") && done.ends_with("}\n\n"), "{done}");
        assert_eq!(done.matches('\n').count(), 3);
    }

    #[test]
    fn json_has_the_documented_fields() {
        let answer = CompleteAnswer::without_text(nothing_found("m", Instant::now()));
        let mut json = serde_json::to_value(&answer).unwrap();
        assert!(json["ms"].take().is_u64());
        let expected = serde_json::json!({
            "answer": "", "citations": [], "refused": "nothing-found", "truncated": false, "model": "m", "ms": null,
        });
        assert_eq!(json, expected);
        assert_eq!(serde_json::json!(Refusal::Uncited), "uncited");
    }

    #[test]
    fn a_reader_learns_nothing_about_the_endpoint() {
        let failures = [
            ChatFailure::TimedOut,
            ChatFailure::Unusable("/etc/docwharf/key (assistant.keyFile) is empty".to_owned()),
            ChatFailure::NotPermitted,
            ChatFailure::Unreachable,
            ChatFailure::Status(401),
        ];
        assert_eq!(failures.each_ref().map(|failure| describe_failure(failure).0.as_u16()), [504, 502, 502, 502, 502]);
        for failure in &failures[1..] {
            assert_eq!(describe_failure(failure), describe_failure(&ChatFailure::Status(500)));
        }
    }
}
