//! The arguments of the tools: read from JSON and checked. Pure.
//!
//! A model writes the arguments, so each message says what is expected.

use docwharf_search::page::MAX_QUERY_CHARS;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value};

/// The number of results of `search_docs` if the call does not name one.
pub(super) const DEFAULT_RESULTS: u32 = 8;
/// The upper bound of the number of results of `search_docs`.
pub(super) const MAX_RESULTS: u32 = 20;
/// The number of pages of `list_pages` if the call does not name one.
pub(super) const DEFAULT_LISTED_PAGES: u32 = 100;
/// The upper bound of the number of pages of `list_pages`.
pub(super) const MAX_LISTED_PAGES: u32 = 500;
/// The maximum length of an address, an anchor, a section or a cursor, in bytes.
pub(super) const MAX_TEXT_BYTES: usize = 4096;

/// The arguments of `search_docs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SearchDocsArguments {
    /// The question.
    pub(super) query: String,
    /// The maximum number of results.
    pub(super) limit: u32,
    /// The path below which pages are searched.
    pub(super) section: Option<String>,
    /// The language of the pages that are searched first.
    pub(super) lang: Option<String>,
}

/// The arguments of `read_page`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReadPageArguments {
    /// The address of the page.
    pub(super) url: String,
    /// The anchor of the section that is read; `None` for the whole page.
    pub(super) section: Option<String>,
    /// The number of characters that are left out at the beginning.
    pub(super) offset: usize,
}

/// The arguments of `list_pages`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListPagesArguments {
    /// The path below which pages are listed.
    pub(super) section: Option<String>,
    /// The cursor of an earlier answer.
    pub(super) cursor: Option<String>,
    /// The maximum number of pages.
    pub(super) limit: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenSearchDocs {
    query: String,
    limit: Option<Number>,
    section: Option<String>,
    lang: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenReadPage {
    url: String,
    section: Option<String>,
    offset: Option<Number>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenListPages {
    section: Option<String>,
    cursor: Option<String>,
    limit: Option<Number>,
}

impl SearchDocsArguments {
    /// Reads the arguments; the error is advice to the model.
    pub(super) fn read(arguments: Map<String, Value>) -> Result<SearchDocsArguments, String> {
        let written: WrittenSearchDocs = read_object(arguments)?;
        let query = written.query.trim().to_owned();
        if query.is_empty() {
            return Err("query is empty; pass the words to search for".to_owned());
        }
        if query.chars().count() > MAX_QUERY_CHARS {
            return Err(format!(
                "query has more than {MAX_QUERY_CHARS} characters; pass the few words that matter most"
            ));
        }
        let limit = read_limit(written.limit.as_ref(), DEFAULT_RESULTS, MAX_RESULTS)?;
        let section = check_text("section", written.section)?;
        let lang = check_text("lang", written.lang)?;
        Ok(SearchDocsArguments { query, limit, section, lang })
    }
}

impl ReadPageArguments {
    /// Reads the arguments; the error is advice to the model.
    pub(super) fn read(arguments: Map<String, Value>) -> Result<ReadPageArguments, String> {
        let written: WrittenReadPage = read_object(arguments)?;
        let url = check_text("url", Some(written.url))?
            .ok_or("url is empty; pass the url of a page, as search_docs or list_pages returns it")?;
        let section = check_text("section", written.section)?;
        let offset = match written.offset {
            None => 0,
            Some(number) => whole_number(&number)
                .and_then(|offset| usize::try_from(offset).ok())
                .ok_or_else(|| format!("offset is {number}; pass 0 or the nextOffset of the answer before"))?,
        };
        Ok(ReadPageArguments { url, section, offset })
    }
}

impl ListPagesArguments {
    /// Reads the arguments; the error is advice to the model.
    pub(super) fn read(arguments: Map<String, Value>) -> Result<ListPagesArguments, String> {
        let written: WrittenListPages = read_object(arguments)?;
        let limit = read_limit(written.limit.as_ref(), DEFAULT_LISTED_PAGES, MAX_LISTED_PAGES)?;
        let section = check_text("section", written.section)?;
        let cursor = check_text("cursor", written.cursor)?;
        Ok(ListPagesArguments { section, cursor, limit })
    }
}

fn read_object<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| format!("the arguments do not fit: {error}"))
}

/// Checks the length of a text. A text without characters counts as absent, because models fill in all arguments.
fn check_text(name: &str, text: Option<String>) -> Result<Option<String>, String> {
    match text.filter(|text| !text.trim().is_empty()) {
        Some(text) if text.len() > MAX_TEXT_BYTES => {
            Err(format!("{name} has more than {MAX_TEXT_BYTES} bytes; pass a shorter one"))
        }
        text => Ok(text),
    }
}

fn read_limit(number: Option<&Number>, default: u32, max: u32) -> Result<u32, String> {
    let Some(number) = number else { return Ok(default) };
    let limit = whole_number(number).and_then(|limit| u32::try_from(limit).ok());
    limit
        .filter(|limit| (1..=max).contains(limit))
        .ok_or_else(|| format!("limit is {number}; pass a whole number from 1 to {max}"))
}

/// Returns a number without a fraction. JSON has one kind of number, so `8.0` is one.
fn whole_number(number: &Number) -> Option<u64> {
    let is_whole = |value: &f64| value.fract() == 0.0 && (0.0..1e15).contains(value);
    number.as_u64().or_else(|| number.as_f64().filter(is_whole).and_then(|value| value.to_string().parse().ok()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn arguments_have_defaults_and_accept_every_form_of_a_whole_number() {
        let search = |value| SearchDocsArguments::read(object(value)).unwrap();
        let plain = search(json!({ "query": " a b " }));
        let expected = SearchDocsArguments { query: "a b".to_owned(), limit: 8, section: None, lang: None };
        assert_eq!(plain, expected);
        assert_eq!(search(json!({ "query": "a b", "limit": 20.0, "section": "", "lang": null })).limit, 20);
        let read = ReadPageArguments::read(object(json!({ "url": "/a", "offset": 7.0 }))).unwrap();
        assert_eq!(read, ReadPageArguments { url: "/a".to_owned(), section: None, offset: 7 });
        let list = ListPagesArguments::read(object(json!({}))).unwrap();
        assert_eq!(list, ListPagesArguments { section: None, cursor: None, limit: 100 });
    }

    #[test]
    fn arguments_that_do_not_fit_are_answered_with_advice() {
        let long = "x".repeat(MAX_TEXT_BYTES + 1);
        for (arguments, advice) in [
            (json!({}), "missing field `query`"),
            (json!({ "query": " " }), "query is empty"),
            (json!({ "query": "ä".repeat(201) }), "more than 200 characters"),
            (json!({ "query": 7 }), "expected a string"),
            (json!({ "query": "a", "limit": 0 }), "from 1 to 20"),
            (json!({ "query": "a", "limit": 21 }), "from 1 to 20"),
            (json!({ "query": "a", "limit": 1.5 }), "from 1 to 20"),
            (json!({ "query": "a", "limit": "8" }), "do not fit"),
            (json!({ "query": "a", "page": 2 }), "unknown field `page`"),
            (json!({ "query": "a", "section": long }), "section has more than"),
        ] {
            let error = SearchDocsArguments::read(object(arguments.clone())).unwrap_err();
            assert!(error.contains(advice), "{arguments}: {error}");
        }
        for (arguments, advice) in [
            (json!({}), "missing field `url`"),
            (json!({ "url": "" }), "url is empty"),
            (json!({ "url": long }), "url has more than"),
            (json!({ "url": "/a", "offset": -1 }), "offset is -1"),
            (json!({ "url": "/a", "offset": 0.5 }), "offset is 0.5"),
        ] {
            let error = ReadPageArguments::read(object(arguments.clone())).unwrap_err();
            assert!(error.contains(advice), "{arguments}: {error}");
        }
        let error = ListPagesArguments::read(object(json!({ "limit": 501 }))).unwrap_err();
        assert!(error.contains("from 1 to 500"), "{error}");
    }
}
