//! Parses the body of `POST /_docwharf/events`: the searches, clicks and soft navigations that the script of the search
//! box reports. Pure.
//!
//! The body is `{"events": […]}` with 1 to 20 events. One event that is malformed makes the whole body malformed, and
//! the fault says which one it is. Fields that are not known are ignored.

use serde::Deserialize;
use serde_json::value::RawValue;

use docwharf_base::bounded_list::BoundedList;
use docwharf_base::model::reader_activity::SearchId;

use crate::request_body::is_json_object;

/// The maximum number of events of a body.
const MAX_EVENTS: usize = 20;
/// The maximum length of a query in characters, without white space at its ends.
const MAX_QUERY_CHARS: usize = 512;
/// The maximum number of results of a search.
const MAX_RESULTS: u64 = 1_000_000;
/// The maximum length of the path of a page, in characters.
const MAX_PAGE_CHARS: usize = 2_048;

/// An event as it was received. Whether its page exists is not known yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReceivedEvent {
    /// A finished search.
    Search {
        /// The id to which clicks refer.
        id: SearchId,
        /// The text as it was typed, without white space at its ends.
        query: String,
        /// The number of results.
        results: u64,
    },
    /// A click on a result of a search.
    Click {
        /// The id of the search.
        id: SearchId,
        /// The path of the page, percent-encoded as in an address, without query and fragment.
        page: String,
    },
    /// A view of a page that a script of the site has shown without a request for it.
    View {
        /// The path of the page, as that of a click.
        page: String,
    },
}

/// The reason why a body is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EventFault {
    /// The body is no JSON object with a list of events.
    #[error("the body is not a JSON object with a list of events")]
    Body,
    /// There are too many events, or none.
    #[error("events: a body has 1 to {max} of them, not {0}", max = MAX_EVENTS)]
    Count(usize),
    /// An event is malformed.
    #[error("events[{index}]: {reason}")]
    Event {
        /// The index of the event, from 0.
        index: usize,
        /// The reason.
        reason: EventFaultReason,
    },
}

/// The reason why an event is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EventFaultReason {
    /// The event is no JSON object, or has a field twice.
    #[error("it is not a JSON object that has each field once")]
    Form,
    /// The type is missing or not known.
    #[error("type is not search, click or view")]
    Type,
    /// The id is missing or malformed.
    #[error("id is not 16 hexadecimal digits")]
    Id,
    /// The query is missing, or its length is out of bounds.
    #[error("query is not a text of 1 to {} characters", MAX_QUERY_CHARS)]
    Query,
    /// The number of results is missing, or out of bounds.
    #[error("results is not a number from 0 to {}", MAX_RESULTS)]
    Results,
    /// The page is missing, or not a path.
    #[error("page is not a path of at most {} characters that begins with one slash", MAX_PAGE_CHARS)]
    Page,
}

/// Parses a body. The caller bounds its length.
pub(crate) fn parse_events(body: &[u8]) -> Result<Vec<ReceivedEvent>, EventFault> {
    if !is_json_object(body) {
        return Err(EventFault::Body);
    }
    let UnparsedBatch { events } = serde_json::from_slice(body).map_err(|_| EventFault::Body)?;
    if !(1..=MAX_EVENTS).contains(&events.len) {
        return Err(EventFault::Count(events.len));
    }
    let parsed = events
        .first
        .iter()
        .enumerate()
        .map(|(index, event)| parse_event(event.get()).map_err(|reason| EventFault::Event { index, reason }));
    parsed.collect()
}

/// A body whose events are not parsed yet.
#[derive(Debug, Deserialize)]
struct UnparsedBatch<'a> {
    #[serde(borrow)]
    events: BoundedList<&'a RawValue, MAX_EVENTS>,
}

/// The fields of an event, which are not parsed yet. Fields that its type does not have are never parsed.
#[derive(Debug, Deserialize)]
struct UnparsedEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    query: Option<&'a RawValue>,
    #[serde(borrow)]
    results: Option<&'a RawValue>,
    #[serde(borrow)]
    page: Option<&'a RawValue>,
}

/// Parses an event, which is valid JSON.
fn parse_event(text: &str) -> Result<ReceivedEvent, EventFaultReason> {
    if !is_json_object(text.as_bytes()) {
        return Err(EventFaultReason::Form);
    }
    let event: UnparsedEvent<'_> = serde_json::from_str(text).map_err(|_| EventFaultReason::Form)?;
    match parse_text(event.kind).as_deref() {
        Some("search") => Ok(ReceivedEvent::Search {
            id: parse_id(event.id)?,
            query: parse_query(event.query)?,
            results: parse_results(event.results)?,
        }),
        Some("click") => Ok(ReceivedEvent::Click { id: parse_id(event.id)?, page: parse_page(event.page)? }),
        Some("view") => Ok(ReceivedEvent::View { page: parse_page(event.page)? }),
        _ => Err(EventFaultReason::Type),
    }
}

fn parse_text(field: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(field?.get()).ok()
}

fn parse_id(field: Option<&RawValue>) -> Result<SearchId, EventFaultReason> {
    parse_text(field).and_then(|text| SearchId::parse(&text)).ok_or(EventFaultReason::Id)
}

fn parse_query(field: Option<&RawValue>) -> Result<String, EventFaultReason> {
    let text = parse_text(field).ok_or(EventFaultReason::Query)?;
    let query = text.trim();
    let is_valid = (1..=MAX_QUERY_CHARS).contains(&query.chars().count());
    if is_valid { Ok(query.to_owned()) } else { Err(EventFaultReason::Query) }
}

fn parse_results(field: Option<&RawValue>) -> Result<u64, EventFaultReason> {
    let number: Option<u64> = field.and_then(|field| serde_json::from_str(field.get()).ok());
    number.filter(|number| *number <= MAX_RESULTS).ok_or(EventFaultReason::Results)
}

/// Parses the path of a page. A query and a fragment are removed, because they may have personal data, and must never
/// be stored.
fn parse_page(field: Option<&RawValue>) -> Result<String, EventFaultReason> {
    let text = parse_text(field).ok_or(EventFaultReason::Page)?;
    let path = text.split(['?', '#']).next().unwrap_or_default();
    let is_valid = path.starts_with('/')
        && !path.starts_with("//")
        && path.chars().count() <= MAX_PAGE_CHARS
        && !path.contains(char::is_control);
    if is_valid { Ok(path.to_owned()) } else { Err(EventFaultReason::Page) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: SearchId = SearchId(0x0123_4567_89ab_cdef);

    /// Parses a body with one event.
    fn parse(event: &str) -> Result<ReceivedEvent, EventFaultReason> {
        match parse_events(format!(r#"{{"events": [{event}]}}"#).as_bytes()) {
            Ok(mut events) => Ok(events.pop().expect(event)),
            Err(EventFault::Event { index: 0, reason }) => Err(reason),
            Err(fault) => panic!("{event}: {fault}"),
        }
    }

    fn search(query: &str, results: u64) -> ReceivedEvent {
        ReceivedEvent::Search { id: ID, query: query.to_owned(), results }
    }

    #[test]
    fn searches_clicks_and_views_are_received_in_their_order() {
        let body = r#" {"version": 2, "events": [
            {"type": "search", "id": "0123456789abcdef", "query": "install on linux", "results": 7},
            {"page": "/docs/install", "id": "0123456789ABCDEF", "type": "click"},
            {"type": "view", "page": "/docs/a%20b", "id": 5, "query": null, "more": [{"type": "x"}]}
        ]} "#;
        let expected = vec![
            search("install on linux", 7),
            ReceivedEvent::Click { id: ID, page: "/docs/install".to_owned() },
            ReceivedEvent::View { page: "/docs/a%20b".to_owned() },
        ];
        assert_eq!(parse_events(body.as_bytes()), Ok(expected));
    }

    #[test]
    fn a_body_that_is_no_object_with_a_list_is_refused() {
        for body in [
            "",
            " ",
            "null",
            "[]",
            "{}",
            r#"[[{"type": "view", "page": "/"}]]"#,
            r#"{"events": {}}"#,
            r#"{"events": null}"#,
            r#"{"events": "x"}"#,
            r#"{"events": [{"type": "view", "page": "/"}]"#,
            r#"{"events": [{"type": "view", "page": "/"}]} x"#,
            r#"{"events": [{"type": "view", "page": "/",}]}"#,
            r#"{"events": [], "events": []}"#,
            r#"{"Events": [{"type": "view", "page": "/"}]}"#,
        ] {
            assert_eq!(parse_events(body.as_bytes()), Err(EventFault::Body), "{body}");
        }
        assert_eq!(parse_events(b"{\"events\": [{\"type\": \"view\", \"page\": \"/\xff\"}]}"), Err(EventFault::Body));
    }

    #[test]
    fn a_body_has_1_to_20_events_and_more_are_counted_but_not_stored() {
        let body = |count: usize, event: &str| format!(r#"{{"events": [{}]}}"#, vec![event; count].join(","));
        let view = r#"{"type": "view", "page": "/x"}"#;
        for count in [1, 20] {
            assert_eq!(parse_events(body(count, view).as_bytes()).map(|events| events.len()), Ok(count));
        }
        for (count, event) in [(0, view), (21, view), (4_000, "0")] {
            assert_eq!(parse_events(body(count, event).as_bytes()), Err(EventFault::Count(count)));
        }
        let list: BoundedList<u8, MAX_EVENTS> =
            serde_json::from_str(&format!("[{}]", vec!["0"; 4_000].join(","))).unwrap();
        assert_eq!((list.first.len(), list.len), (20, 4_000));
    }

    #[test]
    fn an_event_without_a_valid_field_is_refused_with_the_name_of_the_field() {
        let id = r#""id": "0123456789abcdef""#;
        for (event, expected) in [
            ("5".to_owned(), EventFaultReason::Form),
            (r#"["view", null, null, null, "/x"]"#.to_owned(), EventFaultReason::Form),
            (r#"{"type": "view", "page": "/a", "page": "/b"}"#.to_owned(), EventFaultReason::Form),
            ("{}".to_owned(), EventFaultReason::Type),
            (r#"{"type": "hover", "page": "/x"}"#.to_owned(), EventFaultReason::Type),
            (r#"{"type": "View", "page": "/x"}"#.to_owned(), EventFaultReason::Type),
            (r#"{"type": ["view"], "page": "/x"}"#.to_owned(), EventFaultReason::Type),
            (r#"{"type": "click", "page": "/x"}"#.to_owned(), EventFaultReason::Id),
            (r#"{"type": "click", "id": "12", "page": "/x"}"#.to_owned(), EventFaultReason::Id),
            (r#"{"type": "click", "id": 1234567890123456, "page": "/x"}"#.to_owned(), EventFaultReason::Id),
            (format!(r#"{{"type": "click", {id}}}"#), EventFaultReason::Page),
            (r#"{"type": "view"}"#.to_owned(), EventFaultReason::Page),
            (format!(r#"{{"type": "search", {id}, "results": 1}}"#), EventFaultReason::Query),
            (format!(r#"{{"type": "search", {id}, "query": 5, "results": 1}}"#), EventFaultReason::Query),
            (format!(r#"{{"type": "search", {id}, "query": "\ud800", "results": 1}}"#), EventFaultReason::Query),
            (format!(r#"{{"type": "search", {id}, "query": "x"}}"#), EventFaultReason::Results),
            (format!(r#"{{"type": "search", {id}, "query": "x", "results": null}}"#), EventFaultReason::Results),
            (format!(r#"{{"type": "search", {id}, "query": "x", "results": -1}}"#), EventFaultReason::Results),
            (format!(r#"{{"type": "search", {id}, "query": "x", "results": 1.5}}"#), EventFaultReason::Results),
            (format!(r#"{{"type": "search", {id}, "query": "x", "results": "1"}}"#), EventFaultReason::Results),
            (format!(r#"{{"type": "search", {id}, "query": "x", "results": 1000001}}"#), EventFaultReason::Results),
        ] {
            assert_eq!(parse(&event), Err(expected), "{event}");
        }
    }

    #[test]
    fn a_query_has_1_to_512_characters_without_white_space_at_its_ends() {
        let parse = |query: &str| {
            let query = serde_json::to_string(query).unwrap();
            parse(&format!(r#"{{"type": "search", "id": "0123456789abcdef", "query": {query}, "results": 1000000}}"#))
        };
        let long = "線".repeat(512);
        for (query, expected) in [("  a  b\n", "a  b"), ("\"x\"", "\"x\""), (long.as_str(), long.as_str())] {
            assert_eq!(parse(query), Ok(search(expected, MAX_RESULTS)));
        }
        assert_eq!(parse(&format!("  {long}  ")), Ok(search(&long, MAX_RESULTS)));
        for query in ["", "  \t", &"線".repeat(513)] {
            assert_eq!(parse(query), Err(EventFaultReason::Query));
        }
    }

    #[test]
    fn the_page_of_an_event_is_a_path_without_query_and_fragment() {
        let parse = |page: &str| {
            let page = serde_json::to_string(page).unwrap();
            parse(&format!(r#"{{"type": "view", "page": {page}}}"#))
        };
        let long = format!("/{}", "é".repeat(MAX_PAGE_CHARS - 1));
        let with_long_query = format!("/x?{}", "q".repeat(5_000));
        for (page, expected) in [
            ("/", "/"),
            ("/x", "/x"),
            ("/x?email=reader@example.com", "/x"),
            ("/x#section", "/x"),
            ("/x#?a", "/x"),
            ("/?//", "/"),
            ("/a//b", "/a//b"),
            ("/x?\n", "/x"),
            (long.as_str(), long.as_str()),
            (with_long_query.as_str(), "/x"),
        ] {
            assert_eq!(parse(page), Ok(ReceivedEvent::View { page: expected.to_owned() }), "{page}");
        }
        let too_long = format!("{long}x");
        for page in ["", "x", "?/x", "//x.example/x", "https://x.example/", "/a\nb", "/a\u{0}", "/\u{85}", &too_long] {
            assert_eq!(parse(page), Err(EventFaultReason::Page), "{page}");
        }
    }

    #[test]
    fn one_malformed_event_is_named_by_its_index_and_makes_the_body_malformed() {
        let body = r#"{"events": [{"type": "view", "page": "/x"}, {"type": "view", "page": "x"}, {}]}"#;
        let fault = parse_events(body.as_bytes()).unwrap_err();
        assert_eq!(fault, EventFault::Event { index: 1, reason: EventFaultReason::Page });
        let message = "events[1]: page is not a path of at most 2048 characters that begins with one slash";
        assert_eq!(fault.to_string(), message);
        assert_eq!(EventFault::Count(21).to_string(), "events: a body has 1 to 20 of them, not 21");
        for reason in [EventFaultReason::Form, EventFaultReason::Query, EventFaultReason::Results] {
            assert!(!EventFault::Event { index: 0, reason }.to_string().contains('\n'));
        }
    }

    #[test]
    fn deeply_nested_values_are_ignored() {
        let nested = format!("{}{}", "[".repeat(4_000), "]".repeat(4_000));
        let event = format!(r#"{{"type": "view", "page": "/x", "more": {nested}}}"#);
        assert_eq!(parse(&event), Ok(ReceivedEvent::View { page: "/x".to_owned() }));
        assert_eq!(parse(&format!(r#"{{"type": {nested}}}"#)), Err(EventFaultReason::Type));
        assert_eq!(parse(&nested), Err(EventFaultReason::Form));
    }
}
