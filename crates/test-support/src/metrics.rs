//! The metrics that a program reports.

use crate::http::get;

/// Finds the value of a sample in a text of metrics. `sample` is the name with its labels, as in the text.
pub fn find<'t>(text: &'t str, sample: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '))
}

/// Requests the metrics at the address of an admin listener, and returns the value of a sample, a whole number.
#[track_caller]
pub fn value(admin: &str, sample: &str) -> u64 {
    let text = get(admin, "/metrics").text();
    let value = find(&text, sample).unwrap_or_else(|| panic!("no {sample} in {text}"));
    value.parse().unwrap_or_else(|error| panic!("{sample} {value}: {error}"))
}
