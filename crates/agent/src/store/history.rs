//! `history.jsonl`: each event with user, action and time. Lines are appended. When the file grows too large, the
//! newest lines stay, and of the older ones those from which a lost record is recovered.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};

use serde::{Deserialize, Serialize};

use docwharf_base::directory::{Directory, FileAccess, FileRequirements};
use docwharf_base::model::version::VersionId;

use super::{StoreError, VersionStore};

/// Name of the file in the store.
pub const HISTORY_FILE: &str = "history.jsonl";
/// Size in bytes (some 20,000 lines) above which the oldest lines are removed, until `KEPT_HISTORY_BYTES` bytes remain.
pub const MAX_HISTORY_BYTES: u64 = 4 << 20;
/// Bytes of the newest lines that stay; see [`MAX_HISTORY_BYTES`].
const KEPT_HISTORY_BYTES: usize = 2 << 20;
/// Suffix of the note of a version that a person has activated and that is held since then.
pub const BY_HAND: &str = " by hand";

/// One line of history.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEvent {
    /// Time of the event, RFC 3339.
    pub time: String,
    /// The user or process that caused the event.
    #[serde(rename = "who")]
    pub author: String,
    /// The event: `imported`, `offered again`, `label moved`, `activated`, `kept back`, `rolled back`, `fell back`,
    /// `held`, `released`, `export started`, `failed`, `refused`, `damaged`, `mended`, `pruned`. `kept back`: the gate
    /// refused a version; `refused`: a bundle was refused; `mended`: a damaged version is served undamaged again.
    pub what: String,
    /// The version of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<VersionId>,
    /// Further details: a label, a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl HistoryEvent {
    /// Whether a person has set or ended a hold with this event.
    pub fn is_hold_decision(&self) -> bool {
        match self.what.as_str() {
            "held" | "rolled back" | "released" => true,
            "activated" => self.note.as_ref().is_some_and(|note| note.ends_with(BY_HAND)),
            _ => false,
        }
    }

    /// Whether a version became active with this event.
    pub fn is_activation(&self) -> bool {
        matches!(self.what.as_str(), "activated" | "rolled back")
    }
}

impl VersionStore {
    /// Reads the history, oldest event first; an incomplete line is ignored.
    pub fn history(&self) -> Result<Vec<HistoryEvent>, StoreError> {
        let path = self.root().join(HISTORY_FILE);
        match self.directory().and_then(|root| root.open_for_reading(HISTORY_FILE)) {
            Ok(file) => Ok(lines(file).filter_map(|line| serde_json::from_slice(&line).ok()).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(source) => Err(StoreError::Io { doing: "read", path, source }),
        }
    }
}

/// Splits the file into lines of bytes: after a power cut a line may not be text, and must not hide the lines after it.
fn lines(file: File) -> impl Iterator<Item = Vec<u8>> {
    BufReader::new(file).split(b'\n').map_while(Result::ok)
}

/// Appends a line, durably.
pub(super) fn append(root: &Directory, event: &HistoryEvent) -> io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    let mut file = root.open_file(HISTORY_FILE, FileAccess::Append(0o644), FileRequirements::SINGLE_NAME)?;
    if !ends_with_newline(root.open_for_reading(HISTORY_FILE)?)? {
        // Ends a line that a crash has left incomplete, so that this event is on a separate line.
        line.insert(0, b'\n');
    }
    file.write_all(&line)?;
    file.sync_data()
}

/// Whether the last line of a file is complete; also if the file is empty.
pub(super) fn ends_with_newline(mut file: File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Shortens a history larger than [`MAX_HISTORY_BYTES`] in one step.
pub(super) fn shorten(root: &Directory, is_stored: impl Fn(VersionId) -> bool) -> io::Result<()> {
    let file = root.open_for_reading(HISTORY_FILE)?;
    if file.metadata()?.len() <= MAX_HISTORY_BYTES {
        return Ok(());
    }
    root.replace(HISTORY_FILE, 0o644, &select_lines(&lines(file).collect::<Vec<_>>(), KEPT_HISTORY_BYTES, is_stored))
}

/// Selects the newest lines up to `max_bytes` and, of the older ones, those from which a lost record is recovered: the
/// last decision of a person, and the last activation of each version that is still stored.
fn select_lines(lines: &[Vec<u8>], max_bytes: usize, is_stored: impl Fn(VersionId) -> bool) -> Vec<u8> {
    let (mut kept, mut bytes) = (Vec::new(), 0);
    let (mut has_hold_decision, mut activated) = (false, BTreeSet::new());
    for line in lines.iter().rev() {
        bytes += line.len() + 1;
        let Ok(event) = serde_json::from_slice::<HistoryEvent>(line) else { continue };
        let is_last_hold_decision = event.is_hold_decision() && !has_hold_decision;
        has_hold_decision |= is_last_hold_decision;
        let became_active = event.version.filter(|&id| event.is_activation() && is_stored(id));
        let is_last_activation = became_active.is_some_and(|id| activated.insert(id));
        if bytes <= max_bytes || is_last_hold_decision || is_last_activation {
            kept.push(line);
        }
    }
    kept.iter().rev().flat_map(|line| line.iter().copied().chain([b'\n'])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use docwharf_base::model::digest::Digest;

    fn id(n: u8) -> VersionId {
        VersionId(Digest::compute(&[n]))
    }

    fn line(what: &str, version: u8, note: Option<&str>) -> Vec<u8> {
        let note = note.map(str::to_owned);
        let time = "2026-11-21T10:00:00Z".to_owned();
        let event =
            HistoryEvent { time, author: "x".to_owned(), what: what.to_owned(), version: Some(id(version)), note };
        serde_json::to_vec(&event).unwrap()
    }

    #[test]
    fn trimmed_history_preserves_newest_lines_last_hold_decision_and_activations() {
        let mut lines = vec![
            line("activated", 1, None),
            line("activated", 2, None),
            line("held", 2, Some("old")),
            line("activated", 3, Some("activated x by hand")),
            line("activated", 2, None),
            b"incomplete".to_vec(),
        ];
        lines.extend((0..50).map(|_| line("refused", 9, None)));
        let max_bytes = 10 * (lines[20].len() + 1);
        let selected = select_lines(&lines, max_bytes, |version| version != id(1));
        let selected: Vec<_> = selected.split(|&byte| byte == b'\n').collect();
        let mut expected = vec![&lines[3][..], &lines[4]];
        expected.extend(lines[46..].iter().map(Vec::as_slice));
        expected.push(b"");
        assert_eq!(selected, expected);
    }

    #[test]
    fn event_types_are_classified_as_hold_decisions_and_activations() {
        let cases = [
            ("held", None, true, false),
            ("released", None, true, false),
            ("rolled back", None, true, true),
            ("activated", Some("activated 0ab12cd3 by hand"), true, true),
            ("activated", Some("by hand it was not"), false, true),
            ("activated", None, false, true),
            ("imported", Some("x by hand"), false, false),
            ("kept back", None, false, false),
            ("fell back", None, false, false),
            ("offered again", None, false, false),
            ("pruned", None, false, false),
        ];
        for (what, note, is_hold_decision, is_activation) in cases {
            let event: HistoryEvent = serde_json::from_slice(&line(what, 1, note)).unwrap();
            assert_eq!(
                (event.is_hold_decision(), event.is_activation()),
                (is_hold_decision, is_activation),
                "{what} {note:?}"
            );
        }
    }

    #[test]
    fn trimmed_history_preserves_last_hold_decision_and_last_activation_per_version() {
        let lines = [
            line("held", 1, None),
            line("activated", 1, None),
            line("released", 1, None),
            line("activated", 1, None),
            line("activated", 2, None),
            line("imported", 1, None),
        ];
        let total_bytes: usize = lines.iter().map(|line| line.len() + 1).sum();
        let selected_bytes = |max_bytes| select_lines(&lines, max_bytes, |_| false).len();
        assert_eq!(
            (selected_bytes(total_bytes), selected_bytes(total_bytes - 1)),
            (total_bytes, total_bytes - lines[0].len() - 1)
        );
        assert_eq!(select_lines(&lines, 0, |_| false), [&lines[2][..], b""].join(&b'\n'));
        assert_eq!(select_lines(&lines, 0, |_| true), [&lines[2][..], &lines[3], &lines[4], b""].join(&b'\n'));
        assert_eq!(select_lines(&lines, lines[5].len(), |_| false), [&lines[2][..], b""].join(&b'\n'));
        assert_eq!(select_lines(&lines, lines[5].len() + 1, |_| false), [&lines[2][..], &lines[5], b""].join(&b'\n'));
    }
}
