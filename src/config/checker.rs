//! Reads typed values from the configuration as written. Each mistake is recorded with its place, and reading
//! continues.

use std::path::Path;
use std::time::Duration;

use docwharf_base::model::units::{format_duration, parse_duration, parse_size};

use super::key_table::ValueType;
use super::problem::ConfigProblem;
use super::written::WrittenConfig;
use super::written_value::{ConfigValue, WrittenValue};

/// The maximum number of mistakes in a file that a key names that are reported.
const MAX_REPORTED_MISTAKES: usize = 10;
/// The longest value that a message quotes, in characters.
const MAX_QUOTED_CHARS: usize = 80;

/// Values by key: those of a configuration, or those of one row of a list.
pub(super) trait WrittenValues {
    /// Returns the value of a key, if it was written.
    fn written(&self, key: &str) -> Option<&WrittenValue>;

    /// Returns the type and the bounds that the table of keys has.
    fn value_type(&self, key: &str) -> Option<ValueType>;

    /// Returns the name of a key in messages.
    fn message_name(&self, key: &str) -> String {
        key.to_owned()
    }
}

impl WrittenValues for WrittenConfig {
    fn written(&self, key: &str) -> Option<&WrittenValue> {
        self.get(key)
    }

    fn value_type(&self, key: &str) -> Option<ValueType> {
        self.keys().find_key(key).map(|key| key.value_type)
    }
}

/// Reads values as the types that are needed, and collects mistakes.
pub(super) struct ValueChecker<'a, V = WrittenConfig> {
    pub(super) raw: &'a V,
    pub(super) problems: Vec<ConfigProblem>,
}

impl<V: WrittenValues> ValueChecker<'_, V> {
    pub(super) fn problem(&mut self, written: &WrittenValue, message: String) {
        self.problems.push(ConfigProblem { place: written.place.clone(), message });
    }

    /// Records the mistakes in a file that a key names. Of many mistakes, it records the first ones and the number of
    /// the others.
    pub(super) fn file_problems(&mut self, key: &str, path: &Path, mistakes: &[String]) {
        let Some(written) = self.raw.written(key) else { return };
        let start = format!("{}: {}", self.raw.message_name(key), path.display());
        for mistake in mistakes.iter().take(MAX_REPORTED_MISTAKES) {
            self.problem(written, format!("{start}: {mistake}"));
        }
        if let Some(more) = mistakes.len().checked_sub(MAX_REPORTED_MISTAKES).filter(|&more| more > 0) {
            self.problem(written, format!("{start}: at least {more} more mistakes"));
        }
    }

    /// Reads a value with `parse`. Text from the environment is parsed like text from a file.
    pub(super) fn value<T>(&mut self, key: &str, parse: impl FnOnce(&ConfigValue) -> Result<T, String>) -> Option<T> {
        let written = self.raw.written(key)?;
        match parse(&written.value) {
            Ok(value) => Some(value),
            Err(why) => {
                self.problem(written, format!("{}: {why}", self.raw.message_name(key)));
                None
            }
        }
    }

    pub(super) fn text(&mut self, key: &str) -> Option<String> {
        self.value(key, |value| match value {
            ConfigValue::Text(text) if text.is_empty() => Err("it is empty".to_owned()),
            ConfigValue::Text(text) => Ok(text.clone()),
            _ => Err("a text in quotes is needed".to_owned()),
        })
    }

    pub(super) fn flag(&mut self, key: &str) -> Option<bool> {
        self.value(key, |value| match value {
            ConfigValue::Flag(flag) => Ok(*flag),
            ConfigValue::Text(text) if text == "true" => Ok(true),
            ConfigValue::Text(text) if text == "false" => Ok(false),
            _ => Err("true or false is needed".to_owned()),
        })
    }

    /// Reads a whole number within the bounds of the table.
    pub(super) fn number(&mut self, key: &str) -> Option<u64> {
        let (min, max) = self.number_bounds(key);
        self.value(key, |value| {
            let number = match value {
                ConfigValue::Number(number) => u64::try_from(*number).ok(),
                ConfigValue::Text(text) => text.parse().ok(),
                _ => None,
            };
            number
                .filter(|n| (min..=max).contains(n))
                .ok_or_else(|| format!("a whole number from {min} to {max} is needed"))
        })
    }

    /// Reads a duration that is not shorter than the table allows.
    pub(super) fn duration(&mut self, key: &str) -> Option<Duration> {
        let min = self.min_duration(key);
        self.value(key, |value| match value {
            ConfigValue::Text(text) => parse_duration(text).and_then(|duration| {
                let is_long_enough = duration >= min;
                if is_long_enough { Ok(duration) } else { Err(format!("at least {} is needed", format_duration(min))) }
            }),
            _ => Err("a duration such as \"15m\" is needed".to_owned()),
        })
    }

    /// Reads one of the allowed words, and returns its value in `values`.
    pub(super) fn word<T: Copy>(&mut self, key: &str, values: &[(&str, T)]) -> Option<T> {
        let words = self.raw.value_type(key);
        self.parsed(key, |text| {
            let found = values.iter().find(|(word, _)| *word == text);
            found.map(|(_, value)| *value).ok_or_else(|| message_for_words(words, text))
        })
    }

    /// Reads a text with `parse`.
    pub(super) fn parsed<T>(&mut self, key: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        self.value(key, |value| match value {
            ConfigValue::Text(text) if text.is_empty() => Err("it is empty".to_owned()),
            ConfigValue::Text(text) => parse(text),
            _ => Err("a text in quotes is needed".to_owned()),
        })
    }

    pub(super) fn size(&mut self, key: &str) -> Option<u64> {
        self.value(key, |value| match value {
            ConfigValue::Text(text) => parse_size(text),
            ConfigValue::Number(number) => u64::try_from(*number).map_err(|_| "a size is not negative".to_owned()),
            _ => Err("a size such as \"64MiB\" is needed".to_owned()),
        })
    }

    pub(super) fn texts(&mut self, key: &str) -> Option<Vec<String>> {
        self.value(key, |value| match value {
            ConfigValue::Text(text) => Ok(text.split(',').map(|item| item.trim().to_owned()).collect()),
            ConfigValue::Texts(texts) => Ok(texts.clone()),
            _ => Err("a text or a list of texts is needed".to_owned()),
        })
    }

    /// Returns the bounds of a number or a size. A test compares those of all keys with what the checks accept.
    pub(super) fn number_bounds(&self, key: &str) -> (u64, u64) {
        match self.raw.value_type(key) {
            Some(ValueType::Number { min, max } | ValueType::Size { min, max }) => (min, max),
            _ => (0, u64::MAX),
        }
    }

    /// Returns the shortest duration that a key accepts.
    pub(super) fn min_duration(&self, key: &str) -> Duration {
        match self.raw.value_type(key) {
            Some(ValueType::Duration { min } | ValueType::DurationOrZero { min }) => min,
            _ => Duration::ZERO,
        }
    }
}

/// Returns the message for a value that is none of these words.
fn message_for_words(words: Option<ValueType>, text: &str) -> String {
    let Some(ValueType::Word(words)) = words else { return String::new() };
    let text: String = text.chars().take(MAX_QUOTED_CHARS).collect();
    let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    match quoted.split_last() {
        Some((last, before)) => format!("{} or {last} is needed, not {text:?}", before.join(", ")),
        None => String::new(),
    }
}
