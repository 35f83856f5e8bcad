//! The descriptions of what is wrong with a batch.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::MAX_BATCH_ENTRIES;
use docwharf_base::bounded_list::BoundedList;

/// The largest length of the id of a batch, in characters.
const MAX_BATCH_ID_CHARS: usize = 128;
/// The largest number of invalid elements of a list that are described.
const MAX_DESCRIBED_ELEMENTS: usize = 20;

/// The problem of a time or day that the clock of the receiver has not reached.
pub(super) const TOO_FAR_AHEAD: &str = "it is more than a day ahead";

/// A list of a batch.
type BatchList<T> = BoundedList<T, MAX_BATCH_ENTRIES>;

/// Reads a list of at most [`MAX_BATCH_ENTRIES`] elements. Further ones are counted for the error, but not stored.
pub(super) fn deserialize_bounded<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let list = BatchList::deserialize(deserializer)?;
    if list.len > MAX_BATCH_ENTRIES {
        return Err(serde::de::Error::custom(format!(
            "a batch has 1 to {MAX_BATCH_ENTRIES} of them, not {}",
            list.len
        )));
    }
    Ok(list.first)
}

/// Describes what is wrong with the id of a batch.
pub(super) fn batch_id_problem(id: &str) -> Option<String> {
    let is_valid = (1..=MAX_BATCH_ID_CHARS).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    (!is_valid).then(|| format!("batchId: it is 1 to {MAX_BATCH_ID_CHARS} visible ASCII characters"))
}

/// Adds a problem if `text` does not have from 1 to `max` characters.
pub(super) fn check_length(name: &str, text: &str, max: usize, problems: &mut Vec<String>) {
    let characters = text.chars().count();
    if !(1..=max).contains(&characters) {
        problems.push(format!("{name}: it has 1 to {max} characters, not {characters}"));
    }
}

/// The invalid elements of a list: the messages for the first ones, and the number of the others.
#[derive(Debug)]
pub(super) struct InvalidElements {
    list: &'static str,
    messages: Vec<String>,
    more: usize,
}

impl InvalidElements {
    /// Creates the description of the list with this name.
    pub(super) fn new(list: &'static str) -> InvalidElements {
        InvalidElements { list, messages: Vec::new(), more: 0 }
    }

    pub(super) fn push(&mut self, index: usize, reason: &str) {
        if self.messages.len() < MAX_DESCRIBED_ELEMENTS {
            self.messages.push(format!("{}[{index}]: {reason}", self.list));
        } else {
            self.more += 1;
        }
    }

    pub(super) fn messages(mut self) -> Vec<String> {
        if self.more > 0 {
            self.messages.push(format!("and {} more {}", self.more, self.list));
        }
        self.messages
    }
}

/// A batch of either kind whose fields are not parsed yet.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UnparsedBatch<'a> {
    #[serde(borrow)]
    pub(super) batch_id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) installation: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) events: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) clicks: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) counts: Option<&'a RawValue>,
}

/// Adds a problem if a field is missing or not a string.
pub(super) fn check_string_field(name: &str, value: Option<&RawValue>, problems: &mut Vec<String>) {
    match value.map(|value| serde_json::from_str::<String>(value.get())) {
        None => problems.push(format!("{name}: it is missing")),
        Some(Err(error)) => problems.push(format!("{name}: {}", remove_position(&error))),
        Some(Ok(_)) => {}
    }
}

/// Adds a problem if a field is missing or not a list, and one for each element that is not a `T`.
pub(super) fn check_list_field<'a, T: Deserialize<'a>>(
    name: &'static str,
    value: Option<&'a RawValue>,
    problems: &mut Vec<String>,
) {
    let list = match value.map(|value| serde_json::from_str::<BatchList<&RawValue>>(value.get())) {
        None => return problems.push(format!("{name}: they are missing")),
        Some(Err(error)) => return problems.push(format!("{name}: {}", remove_position(&error))),
        Some(Ok(list)) => list,
    };
    if list.len > MAX_BATCH_ENTRIES {
        return problems.push(format!("{name}: a batch has 1 to {MAX_BATCH_ENTRIES} of them, not {}", list.len));
    }
    let mut invalid = InvalidElements::new(name);
    for (index, element) in list.first.iter().enumerate() {
        if let Err(error) = serde_json::from_str::<T>(element.get()) {
            invalid.push(index, &remove_position(&error));
        }
    }
    problems.extend(invalid.messages());
}

/// Returns the message of an error without its line and column, which are those in a field and not in the whole input.
pub(super) fn remove_position(error: &serde_json::Error) -> String {
    error.to_string().split(" at line ").next().unwrap_or_default().to_owned()
}
