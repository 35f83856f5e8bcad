//! Receiving of searches from clients, in batches. A batch is stored completely or not at all, and counts once.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::search_limits::SearchLimits;
use super::{AnalyticsError, invalid_request};
use crate::database::Database;
use docwharf_analytics::searches::rows::{BatchSize, BatchWriter, SearchRow, bytes_of_batch, bytes_of_row, find_batch};
use docwharf_analytics::searches::term::fold_term;
use docwharf_analytics::searches::time::{MAX_CLOCK_SKEW, floor_to_millisecond, parse_rfc3339};
use docwharf_base::bounded_list::BoundedList;

/// The largest length of a search term in characters, without surrounding white space.
pub const MAX_TERM_CHARS: usize = 512;
/// The largest length of the path of a page, in characters.
pub const MAX_PAGE_CHARS: usize = 2048;
/// The largest number of events of a batch.
const MAX_BATCH_EVENTS: usize = 1000;
/// The largest length of the id of a batch, in characters.
const MAX_BATCH_ID_CHARS: usize = 128;
/// The largest number of invalid events that an error describes.
const MAX_DESCRIBED_EVENTS: usize = 20;

/// A batch of search events.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Batch")]
pub struct SearchBatch {
    /// The id that the client chose for the batch, unique in its project. A batch that is sent again is acknowledged
    /// but not counted twice. Visible ASCII characters.
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[!-~]+$"))]
    pub batch_id: String,
    /// The events, in any order.
    #[schemars(length(min = 1, max = 1000), with = "Vec<SearchEvent>")]
    pub(super) events: EventList<SearchEvent>,
}

/// A search by a reader.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Event")]
pub struct SearchEvent {
    /// The text that the reader searched for: 1 to 512 characters, not counting white space at its ends.
    #[schemars(length(min = 1, max = 512), regex(pattern = r"\S"))]
    pub query: String,
    /// The time of the search (RFC 3339); at most a day ahead of the server's clock.
    #[schemars(extend("format" = "date-time"))]
    pub time: String,
    /// The path of the page that the reader opened from the results; null or absent if none was.
    #[serde(default)]
    #[schemars(length(max = 2048), regex(pattern = "^/"))]
    pub clicked_page: Option<String>,
}

/// The events of a batch.
pub(super) type EventList<T> = BoundedList<T, MAX_BATCH_EVENTS>;

/// The acknowledgement of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Accepted")]
pub struct BatchReceipt {
    /// The id of the batch.
    pub batch_id: String,
    /// The number of events that are counted under this id.
    pub accepted: u64,
    /// Whether an earlier request has sent this id. Then nothing of this request was counted.
    pub duplicate: bool,
}

/// A validated event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CheckedSearchEvent {
    pub(super) time: i64,
    pub(super) query: String,
    pub(super) page: Option<String>,
}

/// Stores a batch for `project`, within the `limits` of its organization. It blocks until the batch is on disk.
pub fn receive_batch(
    db: &Database,
    project: &str,
    body: &[u8],
    limits: &SearchLimits,
) -> Result<BatchReceipt, AnalyticsError> {
    receive_within(db, project, body, floor_to_millisecond(Timestamp::now()), Some(limits.clone()))
}

/// Stores a batch at a given time and without limits, for tests.
#[cfg(test)]
pub(super) fn receive_at(db: &Database, project: &str, body: &[u8], now: i64) -> Result<BatchReceipt, AnalyticsError> {
    receive_within(db, project, body, now, None)
}

fn receive_within(
    db: &Database,
    project: &str,
    body: &[u8],
    now: i64,
    limits: Option<SearchLimits>,
) -> Result<BatchReceipt, AnalyticsError> {
    let invalid =
        |details| invalid_request("the batch is invalid, and none of its searches was accepted; see details", details);
    let batch: SearchBatch =
        serde_json::from_slice(body).map_err(|error| invalid(explain_invalid_batch(body, &error)))?;
    let id = batch.batch_id;
    let events = validate_batch(&id, batch.events, now).map_err(invalid)?;
    // A repeated batch is acknowledged even if a limit is reached by now.
    if let Some(size) = db.read(|connection| find_batch(connection, project, &id))? {
        return Ok(BatchReceipt { batch_id: id, accepted: size.rows, duplicate: true });
    }
    if let Some(limits) = &limits {
        limits.use_events(events.len() as u64)?;
    }
    let event_bytes = |event: &CheckedSearchEvent| bytes_of_row(project, &event.query, event.page.as_deref());
    let bytes = bytes_of_batch(project, &id) + events.iter().map(event_bytes).sum::<u64>();
    let (project, batch_id) = (project.to_owned(), id.clone());
    let result = db.write(move |transaction| {
        if let Some(size) = find_batch(transaction, &project, &id)? {
            return Ok(Ok((size.rows, true)));
        }
        if let Some(limits) = limits
            && let Err(refusal) = limits.check_space(transaction, events.len() as u64 + 1, bytes)?
        {
            return Ok(Err(refusal));
        }
        let size = BatchSize { rows: events.len() as u64, searches: events.len() as u64 };
        let mut writer = BatchWriter::begin(transaction, &project, &id, now, size)?;
        for CheckedSearchEvent { time, query, page } in &events {
            let clicks = u64::from(page.is_some());
            let (time, page) = (*time, page.as_deref());
            writer.push(SearchRow { time, query, page, count: 1, clicks, results: None, source: None })?;
        }
        Ok(Ok((size.rows, false)))
    })?;
    let (accepted, duplicate) = result?;
    Ok(BatchReceipt { batch_id, accepted, duplicate })
}

fn validate_batch(id: &str, events: EventList<SearchEvent>, now: i64) -> Result<Vec<CheckedSearchEvent>, Vec<String>> {
    let mut problems = Vec::new();
    if !(1..=MAX_BATCH_ID_CHARS).contains(&id.len()) || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
        problems.push(format!("batchId: it is 1 to {MAX_BATCH_ID_CHARS} visible ASCII characters"));
    }
    if !(1..=MAX_BATCH_EVENTS).contains(&events.len) {
        problems.push(format!("events: a batch has 1 to {MAX_BATCH_EVENTS} of them, not {}", events.len));
        return Err(problems);
    }
    let mut checked = Vec::with_capacity(events.len);
    let mut invalid_events = InvalidEvents::default();
    for (index, event) in events.first.into_iter().enumerate() {
        match event.validate(now) {
            Ok(event) => checked.push(event),
            Err(reason) => invalid_events.push(index, &reason),
        }
    }
    problems.extend(invalid_events.messages());
    if problems.is_empty() { Ok(checked) } else { Err(problems) }
}

impl SearchEvent {
    /// Validates an event. The error lists everything that is wrong with it.
    pub(super) fn validate(self, now: i64) -> Result<CheckedSearchEvent, String> {
        let mut problems = Vec::new();
        let characters = self.query.trim().chars().count();
        if !(1..=MAX_TERM_CHARS).contains(&characters) {
            problems.push(format!("query: it has 1 to {MAX_TERM_CHARS} characters, not {characters}"));
        }
        let time = parse_rfc3339(&self.time);
        match time {
            None => problems.push("time: it is not a time of RFC 3339; write it like 2026-11-01T08:30:00Z".to_owned()),
            Some(time) if is_too_far_ahead(time, now) => problems.push("time: it is more than a day ahead".to_owned()),
            Some(_) => {}
        }
        if let Some(page) = &self.clicked_page {
            if !page.starts_with('/') {
                problems.push("clickedPage: a path begins with a slash".to_owned());
            }
            if page.chars().count() > MAX_PAGE_CHARS {
                problems.push(format!("clickedPage: it has at most {MAX_PAGE_CHARS} characters"));
            }
        }
        match time {
            Some(time) if problems.is_empty() => {
                Ok(CheckedSearchEvent { time, query: fold_term(&self.query), page: self.clicked_page })
            }
            _ => Err(problems.join("; ")),
        }
    }
}

/// Whether a time is further ahead than a slightly wrong clock explains.
pub(super) fn is_too_far_ahead(time: i64, now: i64) -> bool {
    time > now.saturating_add(MAX_CLOCK_SKEW.as_millis() as i64)
}

/// Invalid events: the messages for the first ones, and the number of the others.
#[derive(Debug, Default)]
struct InvalidEvents {
    messages: Vec<String>,
    more: usize,
}

impl InvalidEvents {
    fn push(&mut self, index: usize, reason: &str) {
        if self.messages.len() < MAX_DESCRIBED_EVENTS {
            self.messages.push(format!("events[{index}]: {reason}"));
        } else {
            self.more += 1;
        }
    }

    fn messages(mut self) -> Vec<String> {
        if self.more > 0 {
            self.messages.push(format!("and {} more events", self.more));
        }
        self.messages
    }
}

/// A batch whose two fields are not parsed yet.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct UnparsedBatch<'a> {
    #[serde(borrow)]
    batch_id: Option<&'a RawValue>,
    #[serde(borrow)]
    events: Option<&'a RawValue>,
}

/// Describes why a body is not a valid batch, for each of its fields.
fn explain_invalid_batch(body: &[u8], error: &serde_json::Error) -> Vec<String> {
    let Ok(UnparsedBatch { batch_id, events }) = serde_json::from_slice(body) else {
        return vec![format!("the body is not a JSON object with batchId and events: {error}")];
    };
    let mut problems = Vec::new();
    // The message ends with a line and column within the field, which are not those of the body.
    let message = |error: serde_json::Error| error.to_string().split(" at line ").next().unwrap_or_default().to_owned();
    match batch_id.map(|id| serde_json::from_str::<String>(id.get())) {
        None => problems.push("batchId: it is missing".to_owned()),
        Some(Err(error)) => problems.push(format!("batchId: {}", message(error))),
        Some(Ok(_)) => {}
    }
    match events.map(|events| serde_json::from_str::<EventList<&RawValue>>(events.get())) {
        None => problems.push("events: they are missing".to_owned()),
        Some(Err(error)) => problems.push(format!("events: {}", message(error))),
        Some(Ok(events)) => {
            let mut invalid_events = InvalidEvents::default();
            for (index, event) in events.first.iter().enumerate() {
                if let Err(error) = serde_json::from_str::<SearchEvent>(event.get()) {
                    invalid_events.push(index, &message(error));
                }
            }
            problems.extend(invalid_events.messages());
        }
    }
    if problems.is_empty() {
        problems.push(error.to_string());
    }
    problems
}
