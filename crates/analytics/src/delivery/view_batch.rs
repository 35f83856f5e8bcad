//! A batch of the daily counts: its JSON form, and its validation.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::batch_problems::{
    InvalidElements, TOO_FAR_AHEAD, UnparsedBatch, batch_id_problem, check_length, check_list_field,
    check_string_field, deserialize_bounded,
};
use super::{MAX_BATCH_ENTRIES, MAX_COUNT, MAX_PAGE_CHARS};
use crate::views::{OTHER_KEY, format_day};
use docwharf_base::model::reader_activity::ViewCounts;

/// The largest length of a host, in characters. A name of the DNS is shorter; a port may follow it.
const MAX_HOST_CHARS: usize = 255;
/// The largest length of the name of a program, in characters: that of a pattern of `analytics.bots`.
const MAX_AGENT_CHARS: usize = 200;
/// The number of days by which the clock of a client may be ahead.
const MAX_DAYS_AHEAD: i64 = 1;
const DAY_SECONDS: i64 = 24 * 60 * 60;
const DAY_MS: i64 = DAY_SECONDS * 1000;

/// A batch of 1 to 1,000 daily counts. Each count is absolute: all that the installation has counted on that day so
/// far. A count that is not larger than one that arrived before changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ViewBatch {
    /// The id that the client chose for the batch. Visible ASCII characters.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128), regex(pattern = r"^[!-~]+$")))]
    pub batch_id: String,
    /// The random id of the installation that counted: 16 lower-case hexadecimal digits.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = r"^[0-9a-f]{16}$")))]
    pub installation: String,
    /// The counts, in any order.
    #[serde(deserialize_with = "deserialize_bounded")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1000)))]
    pub counts: Vec<DayCount>,
}

/// The count of a key on a day. `human`, `ai` and `bot` are those of the kind `view`, and `count` is that of all other
/// kinds; absent numbers are 0. One of the numbers is larger than 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct DayCount {
    /// The day (UTC); at most one after the day of the server's clock.
    #[cfg_attr(feature = "schema", schemars(extend("format" = "date")))]
    pub day: String,
    /// The kind of the key.
    pub kind: DayCountKind,
    /// A path of at most 2,048 characters that begins with a slash; for `referrer`, a host of at most 255; for `agent`,
    /// a name of at most 200; for all, also `(other)`.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 2048)))]
    pub key: String,
    /// Views by people.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "schema", schemars(range(max = 100_000_000_000_u64)))]
    pub human: u64,
    /// Views by agents and crawlers of AI services.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "schema", schemars(range(max = 100_000_000_000_u64)))]
    pub ai: u64,
    /// Views by other programs.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "schema", schemars(range(max = 100_000_000_000_u64)))]
    pub bot: u64,
    /// The count of a key of another kind than `view`.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "schema", schemars(range(max = 100_000_000_000_u64)))]
    pub count: u64,
}

/// The kind of the key of a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum DayCountKind {
    /// The path of a page: its views by class of visitor.
    View,
    /// The host whose page led a person here.
    Referrer,
    /// The path of the page with which a person began a visit.
    Entry,
    /// A path that a person requested and that does not exist.
    NotFound,
    /// The name of a program that requested a page.
    Agent,
}

/// A validated batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedViewBatch {
    /// The id of the batch.
    pub id: String,
    /// The id of the installation.
    pub installation: [u8; 8],
    /// The counts.
    pub counts: Vec<CheckedDayCount>,
}

/// A validated count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedDayCount {
    /// The day, in days since 1970.
    pub day: i64,
    /// The kind of the key.
    pub kind: DayCountKind,
    /// The path, host or name.
    pub key: String,
    /// The views by class of visitor. For another kind than [`DayCountKind::View`], `human` is the count, and the
    /// others are 0.
    pub counts: ViewCounts,
}

impl DayCount {
    /// Creates the count of the views of a page on a day (days since 1970).
    pub fn of_views(day: i64, path: String, counts: ViewCounts) -> DayCount {
        let ViewCounts { human, ai, bot } = counts;
        DayCount { day: format_day(day), kind: DayCountKind::View, key: path, human, ai, bot, count: 0 }
    }

    /// Creates the count of a key of another kind than [`DayCountKind::View`] on a day (days since 1970).
    pub fn of_key(day: i64, kind: DayCountKind, key: String, count: u64) -> DayCount {
        DayCount { day: format_day(day), kind, key, human: 0, ai: 0, bot: 0, count }
    }

    /// Returns whether a receiver accepts the key and the numbers.
    pub(crate) fn is_acceptable(&self) -> bool {
        let mut problems = Vec::new();
        check_key(self.kind, &self.key, &mut problems);
        let numbers = [self.human, self.ai, self.bot, self.count];
        problems.is_empty() && numbers.iter().all(|number| *number <= MAX_COUNT) && numbers != [0; 4]
    }

    fn check(self, now: i64) -> Result<CheckedDayCount, String> {
        let DayCount { day, kind, key, human, ai, bot, count } = self;
        let mut problems = Vec::new();
        let parsed_day = parse_day(&day);
        match parsed_day {
            None => problems.push("day: it is not a day since 1970; write it like 2026-11-01".to_owned()),
            Some(day) if day > now.div_euclid(DAY_MS) + MAX_DAYS_AHEAD => {
                problems.push(format!("day: {TOO_FAR_AHEAD}"));
            }
            Some(_) => {}
        }
        check_key(kind, &key, &mut problems);
        for (name, number) in [("human", human), ("ai", ai), ("bot", bot), ("count", count)] {
            let is_of_views = name != "count";
            if number > MAX_COUNT {
                problems.push(format!("{name}: it is at most {MAX_COUNT}"));
            } else if number > 0 && is_of_views != (kind == DayCountKind::View) {
                problems.push(format!("{name}: it does not belong to this kind"));
            }
        }
        if [human, ai, bot, count] == [0; 4] {
            problems.push("there is no number larger than 0".to_owned());
        }
        match parsed_day {
            Some(day) if problems.is_empty() => {
                let human = if kind == DayCountKind::View { human } else { count };
                Ok(CheckedDayCount { day, kind, key, counts: ViewCounts { human, ai, bot } })
            }
            _ => Err(problems.join("; ")),
        }
    }
}

impl ViewBatch {
    /// Parses a batch. The error lists everything that does not have the form of a batch.
    pub fn parse(body: &[u8]) -> Result<ViewBatch, Vec<String>> {
        serde_json::from_slice(body).map_err(|error| describe_invalid_form(body, &error))
    }

    /// Validates the values of a batch. `now` is the time in milliseconds since 1970. The error lists all that is wrong
    /// with the batch.
    pub fn check(self, now: i64) -> Result<CheckedViewBatch, Vec<String>> {
        let ViewBatch { batch_id: id, installation, counts } = self;
        let mut problems: Vec<String> = batch_id_problem(&id).into_iter().collect();
        let installation = parse_installation(&installation);
        if installation.is_none() {
            problems.push("installation: it is 16 lower-case hexadecimal digits".to_owned());
        }
        if !(1..=MAX_BATCH_ENTRIES).contains(&counts.len()) {
            problems.push(format!("counts: a batch has 1 to {MAX_BATCH_ENTRIES} of them, not {}", counts.len()));
        }
        let (mut checked, mut invalid) = (Vec::with_capacity(counts.len()), InvalidElements::new("counts"));
        for (index, count) in counts.into_iter().enumerate() {
            match count.check(now) {
                Ok(count) => checked.push(count),
                Err(reason) => invalid.push(index, &reason),
            }
        }
        problems.extend(invalid.messages());
        match installation {
            Some(installation) if problems.is_empty() => Ok(CheckedViewBatch { id, installation, counts: checked }),
            _ => Err(problems),
        }
    }
}

fn check_key(kind: DayCountKind, key: &str, problems: &mut Vec<String>) {
    let max = match kind {
        DayCountKind::View | DayCountKind::Entry | DayCountKind::NotFound => MAX_PAGE_CHARS,
        DayCountKind::Referrer => MAX_HOST_CHARS,
        DayCountKind::Agent => MAX_AGENT_CHARS,
    };
    if max == MAX_PAGE_CHARS && key != OTHER_KEY && !key.starts_with('/') {
        problems.push(format!("key: a path begins with a slash; all further ones together are {OTHER_KEY}"));
    }
    check_length("key", key, max, problems);
}

/// Parses 16 lower-case hexadecimal digits.
pub(super) fn parse_installation(text: &str) -> Option<[u8; 8]> {
    let is_valid = text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_valid.then(|| u64::from_str_radix(text, 16).ok().map(u64::to_be_bytes)).flatten()
}

/// Parses a day since 1970, written as YYYY-MM-DD, and returns it in days since 1970.
fn parse_day(text: &str) -> Option<i64> {
    let date: Date = text.parse().ok().filter(|date: &Date| date.to_string() == text)?;
    let time: Timestamp = date.to_zoned(TimeZone::UTC).ok()?.timestamp();
    Some(time.as_second().div_euclid(DAY_SECONDS)).filter(|day| *day >= 0)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Describes why a body does not have the form of a batch, for each of its fields.
fn describe_invalid_form(body: &[u8], error: &serde_json::Error) -> Vec<String> {
    let Ok(batch) = serde_json::from_slice::<UnparsedBatch<'_>>(body) else {
        return vec![format!("the body is not a JSON object with batchId, installation and counts: {error}")];
    };
    let mut problems = Vec::new();
    check_string_field("batchId", batch.batch_id, &mut problems);
    check_string_field("installation", batch.installation, &mut problems);
    check_list_field::<DayCount>("counts", batch.counts, &mut problems);
    if problems.is_empty() {
        problems.push(error.to_string());
    }
    problems
}
