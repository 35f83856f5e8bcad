//! A batch of searches: its JSON form, and its validation.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::batch_problems::{
    InvalidElements, TOO_FAR_AHEAD, UnparsedBatch, batch_id_problem, check_list_field, check_string_field,
    deserialize_bounded,
};
use super::{MAX_BATCH_ENTRIES, MAX_COUNT};
use crate::searches::term::fold_term;
use crate::searches::time::{MAX_CLOCK_SKEW, parse_rfc3339};

/// The largest length of a search term in characters, without surrounding white space.
pub const MAX_TERM_CHARS: usize = 512;
/// The largest length of the path of a page, in characters.
pub const MAX_PAGE_CHARS: usize = 2048;

/// A batch of searches. It has 1 to 1,000 events and clicks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Batch"))]
#[serde(rename_all = "camelCase")]
pub struct SearchBatch {
    /// The id that the client chose for the batch, unique in its project. A batch that is sent again is acknowledged
    /// but not counted twice. Visible ASCII characters.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128), regex(pattern = r"^[!-~]+$")))]
    pub batch_id: String,
    /// The events, in any order. There are none only if there are clicks.
    #[serde(deserialize_with = "deserialize_bounded")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000)))]
    pub events: Vec<SearchEvent>,
    /// Clicks on results of searches that were events of earlier batches.
    #[serde(default, deserialize_with = "deserialize_bounded", skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000)))]
    pub clicks: Vec<LaterClick>,
}

/// A search by a reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Event"))]
#[serde(rename_all = "camelCase")]
pub struct SearchEvent {
    /// The text that the reader searched for: 1 to 512 characters, not counting white space at its ends.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 512), regex(pattern = r"\S")))]
    pub query: String,
    /// The time of the search (RFC 3339); at most a day ahead of the server's clock.
    #[cfg_attr(feature = "schema", schemars(extend("format" = "date-time")))]
    pub time: String,
    /// The path of the page that the reader opened from the results; null or absent if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 2048), regex(pattern = "^/")))]
    pub clicked_page: Option<String>,
    /// The number of results; null or absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = 100_000_000_000_u64)))]
    pub results: Option<u64>,
    /// The kind of program that searched; null or absent for a search of a reader. Only searches of readers are counted
    /// in the totals of terms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<EventSource>,
    /// The number by which a click in a later batch refers to the event. No two events of a batch have the same. If it
    /// is null or absent, it is the position in the list, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = 100_000_000_000_u64)))]
    pub number: Option<u64>,
}

impl SearchEvent {
    /// Creates a search by a reader without a click. `time` is in RFC 3339.
    pub fn new(query: impl Into<String>, time: impl Into<String>) -> SearchEvent {
        let (query, time) = (query.into(), time.into());
        SearchEvent { query, time, clicked_page: None, results: None, source: None, number: None }
    }
}

/// The kind of program that searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum EventSource {
    /// A program that searches on behalf of a person.
    Assistant,
}

/// A click on a result of a search that was an event of an earlier batch. It is ignored if the search is not stored any
/// more, or has a click already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Click"))]
#[serde(rename_all = "camelCase")]
pub struct LaterClick {
    /// The id of the batch with the search.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128), regex(pattern = r"^[!-~]+$")))]
    pub batch_id: String,
    /// The number of the search in that batch.
    #[cfg_attr(feature = "schema", schemars(range(max = 100_000_000_000_u64)))]
    pub number: u64,
    /// The time of the search, as in its event.
    #[cfg_attr(feature = "schema", schemars(extend("format" = "date-time")))]
    pub time: String,
    /// The path of the page that the reader opened.
    #[cfg_attr(feature = "schema", schemars(length(max = 2048), regex(pattern = "^/")))]
    pub page: String,
}

/// A validated batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedSearchBatch {
    /// The id of the batch.
    pub id: String,
    /// The searches, each with another number.
    pub searches: Vec<CheckedSearch>,
    /// The clicks on searches of earlier batches.
    pub clicks: Vec<CheckedClick>,
}

/// A validated event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedSearch {
    /// The number of the event in its batch, if it has one.
    pub number: Option<u64>,
    /// The time of the search, in milliseconds since 1970.
    pub time: i64,
    /// The folded term.
    pub query: String,
    /// The path of the page that was opened from the results.
    pub page: Option<String>,
    /// The number of results, if it is known.
    pub results: Option<u64>,
    /// The kind of program that searched; `None` for a search of a reader.
    pub source: Option<EventSource>,
}

/// A validated click on a search of an earlier batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedClick {
    /// The id of the batch with the search.
    pub batch_id: String,
    /// The number of the search in that batch.
    pub number: u64,
    /// The time of the search, in milliseconds since 1970.
    pub time: i64,
    /// The path of the page that was opened.
    pub page: String,
}

impl EventSource {
    /// Returns the text that is stored.
    pub fn name(self) -> &'static str {
        match self {
            EventSource::Assistant => "assistant",
        }
    }

    /// Parses the text that is stored.
    pub(crate) fn parse(name: &str) -> Option<EventSource> {
        (name == EventSource::Assistant.name()).then_some(EventSource::Assistant)
    }
}

impl SearchBatch {
    /// Parses a batch. The error lists everything that does not have the form of a batch.
    pub fn parse(body: &[u8]) -> Result<SearchBatch, Vec<String>> {
        serde_json::from_slice(body).map_err(|error| describe_invalid_form(body, &error))
    }

    /// Validates the values of a batch. `now` is the time in milliseconds since 1970. The error lists all that is wrong
    /// with the batch.
    pub fn check(self, now: i64) -> Result<CheckedSearchBatch, Vec<String>> {
        let SearchBatch { batch_id: id, events, clicks } = self;
        let mut problems: Vec<String> = batch_id_problem(&id).into_iter().collect();
        let entries = events.len() + clicks.len();
        if !(1..=MAX_BATCH_ENTRIES).contains(&entries) {
            let of = if clicks.is_empty() { "of them" } else { "of them and clicks" };
            problems.push(format!("events: a batch has 1 to {MAX_BATCH_ENTRIES} {of}, not {entries}"));
            return Err(problems);
        }
        let searches = check_events(events, now, &mut problems);
        let (mut checked_clicks, mut invalid) = (Vec::with_capacity(clicks.len()), InvalidElements::new("clicks"));
        for (index, click) in clicks.into_iter().enumerate() {
            match click.check(now) {
                Ok(click) => checked_clicks.push(click),
                Err(reason) => invalid.push(index, &reason),
            }
        }
        problems.extend(invalid.messages());
        if problems.is_empty() {
            Ok(CheckedSearchBatch { id, searches, clicks: checked_clicks })
        } else {
            Err(problems)
        }
    }
}

/// Validates the events of a batch and their numbers. Adds what is wrong to `problems`.
fn check_events(events: Vec<SearchEvent>, now: i64, problems: &mut Vec<String>) -> Vec<CheckedSearch> {
    let (mut checked, mut numbers) = (Vec::with_capacity(events.len()), HashSet::with_capacity(events.len()));
    let mut invalid = InvalidElements::new("events");
    for (index, event) in events.into_iter().enumerate() {
        let number = event.number.unwrap_or(index as u64);
        let is_new = numbers.insert(number);
        match event.check(now) {
            Ok(_) if !is_new => invalid.push(index, &format!("number: another event has the number {number}, too")),
            Ok(event) => checked.push(CheckedSearch { number: Some(number), ..event }),
            Err(reason) => invalid.push(index, &reason),
        }
    }
    problems.extend(invalid.messages());
    checked
}

impl SearchEvent {
    /// Validates an event. `now` is the time in milliseconds since 1970. The error lists everything that is wrong with
    /// it.
    pub fn check(self, now: i64) -> Result<CheckedSearch, String> {
        let mut problems = Vec::new();
        let characters = self.query.trim().chars().count();
        if !(1..=MAX_TERM_CHARS).contains(&characters) {
            problems.push(format!("query: it has 1 to {MAX_TERM_CHARS} characters, not {characters}"));
        }
        let time = check_time(&self.time, now, &mut problems);
        if let Some(page) = &self.clicked_page {
            check_page("clickedPage", page, &mut problems);
        }
        for (name, value) in [("results", self.results), ("number", self.number)] {
            check_number(name, value.unwrap_or(0), &mut problems);
        }
        match time {
            Some(time) if problems.is_empty() => Ok(CheckedSearch {
                number: self.number,
                time,
                query: fold_term(&self.query),
                page: self.clicked_page,
                results: self.results,
                source: self.source,
            }),
            _ => Err(problems.join("; ")),
        }
    }
}

impl LaterClick {
    fn check(self, now: i64) -> Result<CheckedClick, String> {
        let mut problems: Vec<String> = batch_id_problem(&self.batch_id).into_iter().collect();
        check_number("number", self.number, &mut problems);
        let time = check_time(&self.time, now, &mut problems);
        check_page("page", &self.page, &mut problems);
        match time {
            Some(time) if problems.is_empty() => {
                Ok(CheckedClick { batch_id: self.batch_id, number: self.number, time, page: self.page })
            }
            _ => Err(problems.join("; ")),
        }
    }
}

/// Parses a time, and adds a problem if it is invalid or too far ahead.
fn check_time(text: &str, now: i64, problems: &mut Vec<String>) -> Option<i64> {
    let time = parse_rfc3339(text);
    match time {
        None => problems.push("time: it is not a time of RFC 3339; write it like 2026-11-01T08:30:00Z".to_owned()),
        Some(time) if is_too_far_ahead(time, now) => problems.push(format!("time: {TOO_FAR_AHEAD}")),
        Some(_) => {}
    }
    time
}

fn check_page(name: &str, page: &str, problems: &mut Vec<String>) {
    if !page.starts_with('/') {
        problems.push(format!("{name}: a path begins with a slash"));
    }
    if page.chars().count() > MAX_PAGE_CHARS {
        problems.push(format!("{name}: it has at most {MAX_PAGE_CHARS} characters"));
    }
}

fn check_number(name: &str, number: u64, problems: &mut Vec<String>) {
    if number > MAX_COUNT {
        problems.push(format!("{name}: it is at most {MAX_COUNT}"));
    }
}

/// Returns whether a time is further ahead than a slightly wrong clock explains. Both are in milliseconds since 1970.
pub fn is_too_far_ahead(time: i64, now: i64) -> bool {
    time > now.saturating_add(MAX_CLOCK_SKEW.as_millis() as i64)
}

/// Describes why a body does not have the form of a batch, for each of its fields.
fn describe_invalid_form(body: &[u8], error: &serde_json::Error) -> Vec<String> {
    let Ok(batch) = serde_json::from_slice::<UnparsedBatch<'_>>(body) else {
        return vec![format!("the body is not a JSON object with batchId and events: {error}")];
    };
    let mut problems = Vec::new();
    check_string_field("batchId", batch.batch_id, &mut problems);
    check_list_field::<SearchEvent>("events", batch.events, &mut problems);
    if batch.clicks.is_some() {
        check_list_field::<LaterClick>("clicks", batch.clicks, &mut problems);
    }
    if problems.is_empty() {
        problems.push(error.to_string());
    }
    problems
}
