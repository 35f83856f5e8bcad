//! The body of a request to ask: a JSON object with the question. Pure.

use serde::Deserialize;

use crate::request_body::is_json_object;
use crate::search::{MAX_SECTION_BYTES, may_be_language_tag};

/// The largest body of a request, in bytes.
pub(crate) const MAX_BODY_BYTES: usize = 64 << 10;

/// A question of a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReaderQuestion {
    /// The text, without white space at its ends.
    pub(crate) text: String,
    /// The path below which pages are searched, below the base path.
    pub(crate) section: Option<String>,
    /// The language tag of the pages that are searched first.
    pub(crate) lang: Option<String>,
}

/// The reason why a request has no question that can be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QuestionFault {
    /// The body is not a JSON object of the expected form.
    #[error("the body is not a JSON object with the text question, and optionally the texts section and lang")]
    Body,
    /// The question has no text.
    #[error("question is empty")]
    Empty,
    /// The question is too long.
    #[error("question has more than {0} characters (assistant.maxQuestion)")]
    TooLong(usize),
    /// The section is too long.
    #[error("section has more than {} bytes", MAX_SECTION_BYTES)]
    LongSection,
}

#[derive(Debug, Deserialize)]
struct QuestionBody {
    question: String,
    section: Option<String>,
    lang: Option<String>,
}

impl ReaderQuestion {
    /// Parses a body, whose length the caller bounds. As in a search, an empty section and a language that is no
    /// language tag count as absent. Fields that are not known are ignored.
    pub(crate) fn parse(body: &[u8], max_chars: usize) -> Result<ReaderQuestion, QuestionFault> {
        if !is_json_object(body) {
            return Err(QuestionFault::Body);
        }
        let QuestionBody { question, section, lang } = serde_json::from_slice(body).map_err(|_| QuestionFault::Body)?;
        let text = question.trim().to_owned();
        if text.is_empty() {
            return Err(QuestionFault::Empty);
        }
        if text.chars().count() > max_chars {
            return Err(QuestionFault::TooLong(max_chars));
        }
        let section = section.filter(|section| !section.trim_matches('/').is_empty());
        if section.as_ref().is_some_and(|section| section.len() > MAX_SECTION_BYTES) {
            return Err(QuestionFault::LongSection);
        }
        let lang = lang.filter(|lang| may_be_language_tag(lang));
        Ok(ReaderQuestion { text, section, lang })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_an_object_with_text_and_optionally_section_and_language() {
        let parse = |body: &str| ReaderQuestion::parse(body.as_bytes(), 10);
        let question = |section: Option<&str>, lang: Option<&str>| {
            Ok(ReaderQuestion {
                text: "How?".to_owned(),
                section: section.map(str::to_owned),
                lang: lang.map(str::to_owned),
            })
        };
        for (body, expected) in [
            (r#"{"question":"How?"}"#, question(None, None)),
            (r#" {"question":" How?\n","section":null,"lang":null,"x":[1]}"#, question(None, None)),
            (r#"{"question":"How?","section":"/api/","lang":"pt_BR"}"#, question(Some("/api/"), Some("pt_BR"))),
            (r#"{"question":"How?","section":"/","lang":"<x>"}"#, question(None, None)),
            (
                r#"{"question":"0123456789"}"#,
                Ok(ReaderQuestion { text: "0123456789".to_owned(), section: None, lang: None }),
            ),
            (
                r#"{"question":"線線線線線線線線線線"}"#,
                Ok(ReaderQuestion { text: "線".repeat(10), section: None, lang: None }),
            ),
            (r#"{"question":"01234567890"}"#, Err(QuestionFault::TooLong(10))),
            (r#"{"question":""}"#, Err(QuestionFault::Empty)),
            (r#"{"question":" \t "}"#, Err(QuestionFault::Empty)),
            (r#"{"question":7}"#, Err(QuestionFault::Body)),
            (r#"{"question":null}"#, Err(QuestionFault::Body)),
            (r#"{"question":"a","question":"b"}"#, Err(QuestionFault::Body)),
            (r#"{"question":"a","lang":["en"]}"#, Err(QuestionFault::Body)),
            ("{}", Err(QuestionFault::Body)),
            (r#"["How?"]"#, Err(QuestionFault::Body)),
            (r#""How?""#, Err(QuestionFault::Body)),
            ("", Err(QuestionFault::Body)),
            ("{", Err(QuestionFault::Body)),
        ] {
            assert_eq!(parse(body), expected, "{body}");
        }
        let body = format!(r#"{{"question":"How?","section":"{}"}}"#, "x".repeat(MAX_SECTION_BYTES + 1));
        assert_eq!(parse(&body), Err(QuestionFault::LongSection));
    }
}
