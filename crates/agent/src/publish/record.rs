//! The record of published directories: which ones docwharf has made, and which may be removed. No I/O.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use docwharf_base::model::units::{parse_time, show_unix};
use docwharf_base::model::version::VersionId;
use docwharf_site::extract::FileModes;

/// Time for which a replaced directory stays, for servers that have opened the old target of the link.
const REPLACED_DIRECTORY_GRACE: Duration = Duration::from_mins(15);
/// File name of the record.
pub(super) const RECORD_FILE: &str = ".docwharf.json";

/// The record of the directory to publish into.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PublishRecord {
    schema_version: u32,
    /// The version that was current before.
    #[serde(default)]
    previous: Option<VersionId>,
    /// The directories that docwharf has made.
    #[serde(default)]
    trees: BTreeMap<VersionId, PublishedDirectory>,
}

/// A directory that docwharf has made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PublishedDirectory {
    /// Modes in octal digits.
    file_mode: String,
    folder_mode: String,
    /// Time at which another version became current, RFC 3339; none while this one is current.
    #[serde(default)]
    replaced: Option<String>,
}

impl PublishedDirectory {
    fn replaced(&self) -> Option<i64> {
        self.replaced.as_deref().and_then(parse_time)
    }
}

fn octal(mode: u32) -> String {
    format!("{mode:04o}")
}

impl Default for PublishRecord {
    fn default() -> Self {
        PublishRecord { schema_version: 1, previous: None, trees: BTreeMap::new() }
    }
}

impl PublishRecord {
    /// Whether docwharf has made this directory, with these modes.
    pub(super) fn has(&self, id: VersionId, modes: FileModes) -> bool {
        let same =
            |made: &PublishedDirectory| made.file_mode == octal(modes.file) && made.folder_mode == octal(modes.folder);
        self.trees.get(&id).is_some_and(same)
    }

    /// Whether docwharf has made this directory.
    pub(super) fn has_directory(&self, id: VersionId) -> bool {
        self.trees.contains_key(&id)
    }

    /// Corrects the record by the real state: a crash may have happened between replacing the link and writing the
    /// record, a person may have removed directories, and the clock may have been set back.
    pub(super) fn correct_by_state(
        &mut self,
        current: Option<VersionId>,
        now: i64,
        is_there: impl Fn(VersionId) -> bool,
    ) {
        self.trees.retain(|&id, _| is_there(id));
        for (&id, made) in &mut self.trees {
            made.replaced = match made.replaced() {
                _ if current == Some(id) => None,
                Some(time) if time <= now => continue,
                _ => Some(show_unix(now)),
            };
        }
    }

    /// Adds a directory that is about to be put in place; `is_current` if it replaces the directory of the current
    /// version.
    pub(super) fn add(&mut self, id: VersionId, modes: FileModes, is_current: bool, now: i64) {
        let replaced = (!is_current).then(|| show_unix(now));
        self.trees.insert(
            id,
            PublishedDirectory { file_mode: octal(modes.file), folder_mode: octal(modes.folder), replaced },
        );
    }

    /// Records that `id` becomes current after `before`.
    pub(super) fn set_current(&mut self, id: VersionId, before: Option<VersionId>, now: i64) {
        self.previous = before.or(self.previous);
        for (&other, made) in &mut self.trees {
            if other == id {
                made.replaced = None;
            } else if Some(other) == before {
                made.replaced = Some(show_unix(now));
            }
        }
    }

    /// Returns the directories to link unchanged files from, the best first.
    pub(super) fn link_sources(&self, current: Option<VersionId>, id: VersionId) -> Vec<VersionId> {
        let mut donors: Vec<VersionId> = [current, Some(id), self.previous].into_iter().flatten().collect();
        donors.dedup();
        donors.retain(|&donor| self.has_directory(donor));
        donors
    }

    /// Returns the directories that are not needed while `current` is current.
    pub(super) fn unneeded(&self, current: VersionId, now: i64) -> Vec<VersionId> {
        let is_over = |made: &PublishedDirectory| {
            made.replaced().is_some_and(|time| now - time >= REPLACED_DIRECTORY_GRACE.as_secs().cast_signed())
        };
        let all = self.trees.iter().filter(|&(&id, made)| id != current && Some(id) != self.previous && is_over(made));
        all.map(|(&id, _)| id).collect()
    }

    /// Removes a directory from the record.
    pub(super) fn forget(&mut self, id: VersionId) {
        self.trees.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use docwharf_base::model::digest::Digest;

    const MODES: FileModes = FileModes { file: 0o644, folder: 0o755 };
    const HOUR: i64 = 3600;

    fn id(n: u8) -> VersionId {
        VersionId(Digest([n; 32]))
    }

    /// Creates a record after these versions became current one after another, an hour apart, the last one at `HOUR *
    /// n`.
    fn after(versions: &[u8]) -> (PublishRecord, i64) {
        let (mut record, mut now, mut current) = (PublishRecord::default(), 0, None);
        for &n in versions {
            now += HOUR;
            record.correct_by_state(current, now, |_| true);
            record.add(id(n), MODES, false, now);
            record.set_current(id(n), current, now);
            current = Some(id(n));
        }
        (record, now)
    }

    #[test]
    fn current_and_the_one_before_stay_however_old_and_others_for_a_while() {
        let (record, now) = after(&[1, 2, 3, 4]);
        assert_eq!(record.unneeded(id(4), now), [id(1), id(2)]);
        assert_eq!(record.unneeded(id(4), now + 1000 * HOUR), [id(1), id(2)]);
        let grace = REPLACED_DIRECTORY_GRACE.as_secs().cast_signed();
        assert_eq!(record.unneeded(id(4), 3 * HOUR + grace - 1), [id(1)]);
    }

    #[test]
    fn going_back_and_forth_keeps_both() {
        let (record, now) = after(&[1, 2, 1, 2, 1]);
        assert_eq!(record.unneeded(id(1), now + HOUR), []);
        assert_eq!(record.link_sources(Some(id(1)), id(3)), [id(1), id(2)]);
    }

    #[test]
    fn a_crash_after_the_flip_and_a_clock_set_back_are_put_right() {
        let (mut record, now) = after(&[1, 2, 3]);
        record.add(id(4), MODES, false, now);
        // The link already leads to 4, but the record does not say so.
        record.correct_by_state(Some(id(4)), now, |_| true);
        assert!(!record.unneeded(id(4), now + HOUR).contains(&id(4)));
        assert!(record.trees[&id(3)].replaced.is_some());
        // The times of replacement are in the future now.
        record.correct_by_state(Some(id(4)), now - 100 * HOUR, |_| true);
        assert_eq!(record.trees[&id(1)].replaced, Some(show_unix(now - 100 * HOUR)));
        record.correct_by_state(Some(id(4)), now, |other| other == id(4));
        assert!(!record.has_directory(id(1)));
    }
}
