//! The record of published directories: which ones docwharf has created, and which may be removed. No I/O.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use docwharf_base::model::units::{format_unix_seconds, parse_time};
use docwharf_base::model::version::VersionId;
use docwharf_site::extract::FileModes;

/// Time after which a replaced directory may be removed: a server may have opened the old target of the link.
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
    /// The directories that docwharf has created.
    // The wire name is older than the term "directory"; it must not change.
    #[serde(default, rename = "trees")]
    directories: BTreeMap<VersionId, PublishedDirectory>,
}

/// A directory that docwharf has created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PublishedDirectory {
    /// Mode of its files in octal digits.
    file_mode: String,
    /// Mode of its directories in octal digits.
    folder_mode: String,
    /// Time at which another version became current, RFC 3339; none while this one is current.
    #[serde(default)]
    replaced: Option<String>,
}

impl PublishedDirectory {
    /// Returns the time of the replacement in seconds since 1970.
    fn replaced_at(&self) -> Option<i64> {
        self.replaced.as_deref().and_then(parse_time)
    }
}

fn format_octal(mode: u32) -> String {
    format!("{mode:04o}")
}

impl Default for PublishRecord {
    fn default() -> Self {
        PublishRecord { schema_version: 1, previous: None, directories: BTreeMap::new() }
    }
}

impl PublishRecord {
    /// Whether docwharf has created this directory, with these modes.
    pub(super) fn has_directory_with_modes(&self, id: VersionId, modes: FileModes) -> bool {
        let has_modes = |directory: &PublishedDirectory| {
            directory.file_mode == format_octal(modes.file) && directory.folder_mode == format_octal(modes.folder)
        };
        self.directories.get(&id).is_some_and(has_modes)
    }

    /// Whether docwharf has created this directory.
    pub(super) fn has_directory(&self, id: VersionId) -> bool {
        self.directories.contains_key(&id)
    }

    /// Corrects the record after changes that it does not have: a crash may have happened between replacing the link
    /// and writing the record, a person may have removed directories, and the clock may have been set back.
    pub(super) fn reconcile_with_disk(
        &mut self,
        current: Option<VersionId>,
        now: i64,
        exists: impl Fn(VersionId) -> bool,
    ) {
        self.directories.retain(|&id, _| exists(id));
        for (&id, directory) in &mut self.directories {
            directory.replaced = match directory.replaced_at() {
                _ if current == Some(id) => None,
                Some(time) if time <= now => continue,
                _ => Some(format_unix_seconds(now)),
            };
        }
    }

    /// Adds a directory that is about to be renamed to its id; `is_current` if it replaces the directory of the current
    /// version.
    pub(super) fn add(&mut self, id: VersionId, modes: FileModes, is_current: bool, now: i64) {
        let replaced = (!is_current).then(|| format_unix_seconds(now));
        self.directories.insert(
            id,
            PublishedDirectory {
                file_mode: format_octal(modes.file),
                folder_mode: format_octal(modes.folder),
                replaced,
            },
        );
    }

    /// Records that `id` becomes current after `previous`.
    pub(super) fn set_current(&mut self, id: VersionId, previous: Option<VersionId>, now: i64) {
        self.previous = previous.or(self.previous);
        for (&other, directory) in &mut self.directories {
            if other == id {
                directory.replaced = None;
            } else if Some(other) == previous {
                directory.replaced = Some(format_unix_seconds(now));
            }
        }
    }

    /// Returns the directories from which unchanged files are linked, in the order of preference.
    pub(super) fn link_sources(&self, current: Option<VersionId>, id: VersionId) -> Vec<VersionId> {
        let mut sources: Vec<VersionId> = [current, Some(id), self.previous].into_iter().flatten().collect();
        sources.dedup();
        sources.retain(|&source| self.has_directory(source));
        sources
    }

    /// Returns the directories that are not needed while `current` is current.
    pub(super) fn unneeded(&self, current: VersionId, now: i64) -> Vec<VersionId> {
        let is_expired = |directory: &PublishedDirectory| {
            directory.replaced_at().is_some_and(|time| now - time >= REPLACED_DIRECTORY_GRACE.as_secs().cast_signed())
        };
        let unneeded = self
            .directories
            .iter()
            .filter(|&(&id, directory)| id != current && Some(id) != self.previous && is_expired(directory));
        unneeded.map(|(&id, _)| id).collect()
    }

    /// Removes a directory from the record.
    pub(super) fn remove(&mut self, id: VersionId) {
        self.directories.remove(&id);
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
    fn record_after(versions: &[u8]) -> (PublishRecord, i64) {
        let (mut record, mut now, mut current) = (PublishRecord::default(), 0, None);
        for &n in versions {
            now += HOUR;
            record.reconcile_with_disk(current, now, |_| true);
            record.add(id(n), MODES, false, now);
            record.set_current(id(n), current, now);
            current = Some(id(n));
        }
        (record, now)
    }

    #[test]
    fn current_and_previous_directories_stay_and_older_ones_only_for_15_minutes() {
        let (record, now) = record_after(&[1, 2, 3, 4]);
        assert_eq!(record.unneeded(id(4), now), [id(1), id(2)]);
        assert_eq!(record.unneeded(id(4), now + 1000 * HOUR), [id(1), id(2)]);
        // The second one was replaced at the third hour, and stays for 15 minutes.
        assert_eq!(record.unneeded(id(4), 3 * HOUR + 15 * 60 - 1), [id(1)]);
        assert_eq!(record.unneeded(id(4), 3 * HOUR + 15 * 60), [id(1), id(2)]);
    }

    #[test]
    fn switching_between_two_versions_preserves_both_directories() {
        let (record, now) = record_after(&[1, 2, 1, 2, 1]);
        assert_eq!(record.unneeded(id(1), now + HOUR), []);
        assert_eq!(record.link_sources(Some(id(1)), id(3)), [id(1), id(2)]);
    }

    #[test]
    fn previous_directory_stays_after_the_current_link_was_removed() {
        let (mut record, now) = record_after(&[1, 2]);
        record.reconcile_with_disk(None, now, |_| true);
        record.set_current(id(2), None, now);
        assert_eq!(record.unneeded(id(2), now + HOUR), []);
    }

    #[test]
    fn record_is_reconciled_after_a_crash_and_after_a_clock_set_back() {
        let (mut record, now) = record_after(&[1, 2, 3]);
        record.add(id(4), MODES, false, now);
        // The link already leads to 4, but the record does not have that.
        record.reconcile_with_disk(Some(id(4)), now, |_| true);
        assert!(!record.unneeded(id(4), now + HOUR).contains(&id(4)));
        assert!(record.directories[&id(3)].replaced.is_some());
        // The times of replacement are in the future now.
        record.reconcile_with_disk(Some(id(4)), now - 100 * HOUR, |_| true);
        assert_eq!(record.directories[&id(1)].replaced, Some(format_unix_seconds(now - 100 * HOUR)));
        record.reconcile_with_disk(Some(id(4)), now, |other| other == id(4));
        assert!(!record.has_directory(id(1)));
    }
}
