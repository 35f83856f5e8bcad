//! Integrity of stored versions: which were found damaged, when each was last verified, and whether the previous daemon
//! ended cleanly.
//!
//! `suspect` has a line for each damaged version. It is a separate file because a signal handler writes it, too. A disk
//! that fails often refuses writes, so the findings of this process are also in memory. `scrub.json` may be deleted at
//! any time: versions are then verified sooner.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use docwharf_base::clock::now_rfc3339;
use docwharf_base::directory::{FileAccess, FileId, FileRequirements};
use docwharf_base::locks::{Mutex, MutexGuard};
use docwharf_base::model::units::parse_time;
use docwharf_base::model::version::VersionId;

use super::history::ends_with_newline;
use super::layout::IMAGE;
use super::writer::StoreWriter;
use super::{StoreError, VersionStore, json};

/// Name of the file that marks damaged versions.
pub(super) const SUSPECT: &str = "suspect";
/// Name of the file with the times of verification.
const SCRUB_FILE: &str = "scrub.json";
/// Upper bound of the size of either file in bytes: both have a line for each version.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The content of the file with the times of verification.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ScrubLog {
    /// Start of the running daemon, RFC 3339; none after a clean end.
    #[serde(default)]
    running: Option<String>,
    /// When versions were last verified, RFC 3339.
    // The wire name is older than the term "verified"; it must not change.
    #[serde(default, rename = "proved")]
    verified: BTreeMap<VersionId, String>,
}

/// The versions that this process has found damaged, each with the identity of the damaged file.
#[derive(Debug, Default)]
pub(super) struct DamageMarks(Mutex<BTreeMap<VersionId, Option<FileId>>>);

impl DamageMarks {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<VersionId, Option<FileId>>> {
        self.0.lock()
    }
}

impl VersionStore {
    /// Lists the stored versions that were found damaged.
    pub fn damaged_versions(&self) -> Vec<VersionId> {
        let text = self.read_suspect_file().unwrap_or_default();
        let mut ids: Vec<VersionId> = text.lines().filter_map(|line| line.parse().ok()).collect();
        ids.extend(self.damage_marks.lock().keys());
        ids.sort_unstable();
        ids.dedup();
        ids.retain(|&id| self.has(id));
        ids
    }

    /// Whether a version is marked as damaged: this or an earlier process found damage, and the mark is not cleared.
    pub fn is_marked_damaged(&self, id: VersionId) -> bool {
        self.damaged_versions().contains(&id)
    }

    /// Whether this process has read the file that is stored now and found it damaged, so that reading it again would
    /// give no new result. False for a mark of an earlier process, and once another file has replaced the damaged one.
    pub fn has_read_as_damaged(&self, id: VersionId) -> bool {
        let marked = self.damage_marks.lock().get(&id).copied().flatten();
        marked.is_some() && marked == self.image_file_id(id)
    }

    /// Whether the store has a version that is not marked as damaged.
    pub fn has_undamaged(&self, id: VersionId) -> bool {
        self.has(id) && !self.is_marked_damaged(id)
    }

    /// When a version was last verified, in seconds since 1970: by a scrub, or at its last arrival.
    pub fn verified_at(&self, id: VersionId) -> Option<i64> {
        self.verified_times().get(&id).copied()
    }

    /// When each version was last verified, in seconds since 1970; see [`VersionStore::verified_at`].
    pub fn verified_times(&self) -> BTreeMap<VersionId, i64> {
        let scrub_log = self.read_scrub_log();
        let times = self.versions().unwrap_or_default().into_iter().map(|version| {
            // Each arrival was verified. The file's modification time does not count: a disk fault may change it, too.
            let arrived = version.receipts.last().and_then(|receipt| parse_time(&receipt.time));
            let scrubbed = scrub_log.verified.get(&version.id).and_then(|time| parse_time(time));
            (version.id, arrived.max(scrubbed).unwrap_or(0))
        });
        times.collect()
    }

    fn image_file_id(&self, id: VersionId) -> Option<FileId> {
        let path = Path::new("versions").join(id.to_string()).join(IMAGE);
        Some(FileId::from_metadata(&self.directory().ok()?.metadata_of(path).ok()?))
    }

    /// Reads the file that marks damaged versions.
    fn read_suspect_file(&self) -> io::Result<String> {
        let bytes = self.directory()?.read(SUSPECT, MAX_FILE_BYTES)?;
        // After a power cut a line may not be text, and must not hide the marks of other versions.
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads the times of verification; a file that cannot be read counts as empty.
    fn read_scrub_log(&self) -> ScrubLog {
        let bytes = self.directory().and_then(|root| root.read(SCRUB_FILE, MAX_FILE_BYTES)).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }
}

impl StoreWriter {
    /// Opens the file in which damaged versions are marked, to append a line.
    pub fn suspect_file(&self) -> Result<File, StoreError> {
        let open = || -> io::Result<File> {
            let root = self.store().directory()?;
            let mut file = root.open_file(SUSPECT, FileAccess::Append(0o644), FileRequirements::SINGLE_NAME)?;
            if !ends_with_newline(root.open_for_reading(SUSPECT)?)? {
                // Ends a line that a crash has left incomplete, so that the next mark is on a separate line. A failure
                // is ignored, because a start must succeed on a full disk, too.
                let _ = file.write_all(b"\n");
            }
            Ok(file)
        };
        open().map_err(StoreError::io("open", &self.store().root().join(SUSPECT)))
    }

    /// Marks a version as damaged: it is verified before it is served again, and fetched again if possible. If the mark
    /// cannot be written, it is still valid in this process.
    pub fn mark_damaged(&self, id: VersionId) -> Result<(), StoreError> {
        let is_marked = self.store().is_marked_damaged(id);
        let image = self.store().image_file_id(id);
        let mut marks = self.store().damage_marks.lock();
        marks.insert(id, image);
        if is_marked {
            return Ok(());
        }
        let mut file = self.suspect_file()?;
        let mut write = || -> io::Result<()> {
            file.write_all(format!("{id}\n").as_bytes())?;
            file.sync_all()
        };
        write().map_err(StoreError::io("mark a damaged version in", &self.store().root().join(SUSPECT)))
    }

    /// Clears the mark of a version. The file is not replaced: the signal handler has it open.
    pub(super) fn clear_damage_mark(&self, id: VersionId) -> Result<(), StoreError> {
        let mut marks = self.store().damage_marks.lock();
        marks.remove(&id);
        let path = self.store().root().join(SUSPECT);
        let write = || -> io::Result<()> {
            let text = self.store().read_suspect_file()?;
            let marked: Vec<VersionId> = text.lines().filter_map(|line| line.parse().ok()).collect();
            if !marked.contains(&id) {
                return Ok(());
            }
            let others: String = marked
                .iter()
                .filter(|other| **other != id)
                .flat_map(|other| [other.to_string(), "\n".to_owned()])
                .collect();
            // Overwritten in place, then truncated, so that the mark of another version is never missing.
            let file =
                self.store().directory()?.open_file(SUSPECT, FileAccess::ReadWrite, FileRequirements::SINGLE_NAME)?;
            file.write_all_at(others.as_bytes(), 0)?;
            file.set_len(others.len() as u64)?;
            file.sync_all()
        };
        match write() {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::io("clear a mark in", &path)(error))
            }
            _ => Ok(()),
        }
    }

    /// Records that a daemon is running. Returns whether the previous one ended without [`StoreWriter::end_run`].
    pub fn begin_run(&self) -> Result<bool, StoreError> {
        let _lock = self.store().damage_marks.lock();
        let mut scrub_log = self.store().read_scrub_log();
        let was_cut_off = scrub_log.running.replace(now_rfc3339()).is_some();
        self.write_scrub_log(&scrub_log)?;
        Ok(was_cut_off)
    }

    /// Records that the daemon ended cleanly.
    pub fn end_run(&self) -> Result<(), StoreError> {
        let _lock = self.store().damage_marks.lock();
        let mut scrub_log = self.store().read_scrub_log();
        if scrub_log.running.take().is_none() { Ok(()) } else { self.write_scrub_log(&scrub_log) }
    }

    /// Records that a version has just been verified.
    pub fn note_verified(&self, id: VersionId) -> Result<(), StoreError> {
        let _lock = self.store().damage_marks.lock();
        let mut scrub_log = self.store().read_scrub_log();
        scrub_log.verified.retain(|&id, _| self.store().has(id));
        scrub_log.verified.insert(id, now_rfc3339());
        self.write_scrub_log(&scrub_log)
    }

    fn write_scrub_log(&self, scrub_log: &ScrubLog) -> Result<(), StoreError> {
        let path = self.store().root().join(SCRUB_FILE);
        let written =
            self.store().directory().and_then(|root| root.replace(SCRUB_FILE, 0o644, &json::encode(scrub_log)));
        written.map_err(StoreError::io("write", &path))
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // directories of these tests alone
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;
    use crate::store::Receipt;
    use crate::store::operations::StoreOperations;
    use docwharf_base::model::digest::Digest;

    fn id(n: u8) -> VersionId {
        VersionId(Digest::compute(&[n]))
    }

    /// A store with the versions 1 to 3, whose content is never read.
    fn store_with_three_versions(root: &Path) -> StoreWriter {
        let writer = StoreWriter::open(root, Duration::ZERO).unwrap();
        for n in 1..=3 {
            write_image(&writer, id(n));
        }
        writer
    }

    fn write_image(writer: &StoreWriter, id: VersionId) {
        let folder = writer.store().version_dir(id);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("new"), "image").unwrap();
        fs::rename(folder.join("new"), folder.join(IMAGE)).unwrap();
    }

    /// The damaged versions that this process and that another process sees, sorted.
    fn damaged_versions(writer: &StoreWriter) -> [Vec<VersionId>; 2] {
        [writer.store().damaged_versions(), VersionStore::at(writer.store().root()).damaged_versions()]
    }

    fn sorted_ids(numbers: &[u8]) -> Vec<VersionId> {
        let mut ids: Vec<VersionId> = numbers.iter().map(|&n| id(n)).collect();
        ids.sort_unstable();
        ids
    }

    #[test]
    fn damage_mark_stays_until_cleared_or_its_version_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let writer = store_with_three_versions(dir.path());
        assert_eq!(damaged_versions(&writer), [sorted_ids(&[]), sorted_ids(&[])]);
        writer.clear_damage_mark(id(1)).unwrap();
        let mut suspect_file = writer.suspect_file().unwrap();
        for n in [1, 2, 1, 3] {
            writer.mark_damaged(id(n)).unwrap();
        }
        assert_eq!(damaged_versions(&writer), [sorted_ids(&[1, 2, 3]), sorted_ids(&[1, 2, 3])]);
        assert_eq!(fs::read_to_string(dir.path().join(SUSPECT)).unwrap().lines().count(), 3, "each is marked once");
        assert!(!writer.store().has_undamaged(id(1)) && !writer.store().has_undamaged(id(9)));
        writer.clear_damage_mark(id(2)).unwrap();
        writer.clear_damage_mark(id(2)).unwrap();
        assert_eq!(damaged_versions(&writer), [sorted_ids(&[1, 3]), sorted_ids(&[1, 3])]);
        assert!(
            writer.store().has_undamaged(id(2))
                && !writer.store().is_marked_damaged(id(2))
                && writer.store().is_marked_damaged(id(3))
        );
        // The signal handler marks a version through a descriptor that it has opened before.
        suspect_file.write_all(format!("{}\n", id(2)).as_bytes()).unwrap();
        assert_eq!(damaged_versions(&writer), [sorted_ids(&[1, 2, 3]), sorted_ids(&[1, 2, 3])]);
        writer.clear_damage_mark(id(2)).unwrap();
        fs::remove_dir_all(writer.store().version_dir(id(3))).unwrap();
        assert_eq!(damaged_versions(&writer), [sorted_ids(&[1]), sorted_ids(&[1])]);
        writer.clear_damage_mark(id(1)).unwrap();
        writer.clear_damage_mark(id(3)).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join(SUSPECT)).unwrap(), "");
    }

    // Regression: one byte that is no text hid the marks of all damaged versions, and none could be cleared.
    #[test]
    fn corrupt_line_in_the_suspect_file_hides_no_other_mark() {
        let dir = tempfile::tempdir().unwrap();
        let writer = store_with_three_versions(dir.path());
        let text = [b"\xff\xfe\n".as_slice(), format!("{}\n{}\n", id(1), id(2)).as_bytes()].concat();
        fs::write(dir.path().join(SUSPECT), text).unwrap();
        assert_eq!(damaged_versions(&writer), [sorted_ids(&[1, 2]), sorted_ids(&[1, 2])]);
        writer.clear_damage_mark(id(1)).unwrap();
        assert_eq!(damaged_versions(&writer), [sorted_ids(&[2]), sorted_ids(&[2])]);
    }

    // Regression: a mark after an incomplete line was part of that line, and unknown to the next start.
    #[test]
    fn torn_last_line_of_the_suspect_file_hides_no_later_mark() {
        let dir = tempfile::tempdir().unwrap();
        let writer = store_with_three_versions(dir.path());
        let damaged_after_restart = || VersionStore::at(dir.path()).damaged_versions();
        fs::write(dir.path().join(SUSPECT), &id(3).to_string()[..40]).unwrap();
        writer.mark_damaged(id(1)).unwrap();
        assert_eq!(damaged_after_restart(), [id(1)]);
        // The descriptor of the signal handler.
        fs::write(dir.path().join(SUSPECT), &id(3).to_string()[..40]).unwrap();
        writer.suspect_file().unwrap().write_all(format!("{}\n", id(2)).as_bytes()).unwrap();
        assert_eq!(damaged_after_restart(), [id(2)]);
    }

    #[test]
    fn unwritten_damage_mark_counts_in_this_process_and_only_for_the_file_that_was_read() {
        let dir = tempfile::tempdir().unwrap();
        let writer = store_with_three_versions(dir.path());
        fs::create_dir(dir.path().join(SUSPECT)).unwrap();
        assert!(writer.mark_damaged(id(1)).is_err());
        assert_eq!(damaged_versions(&writer), [sorted_ids(&[1]), sorted_ids(&[])]);
        fs::remove_dir(dir.path().join(SUSPECT)).unwrap();
        writer.mark_damaged(id(2)).unwrap();
        let read_as_damaged = |writer: &StoreWriter| [1, 2, 3].map(|n| writer.store().has_read_as_damaged(id(n)));
        assert_eq!(read_as_damaged(&writer), [true, true, false]);
        assert!(!writer.store().has_read_as_damaged(id(9)), "a missing version was not read");
        write_image(&writer, id(2));
        assert_eq!(read_as_damaged(&writer), [true, false, false], "another file has replaced it");
        assert!(writer.store().is_marked_damaged(id(2)), "the new file has not been verified yet");
        writer.mark_damaged(id(2)).unwrap();
        assert_eq!(read_as_damaged(&writer), [true, true, false], "the new file was read and is damaged, too");
        assert!(
            !VersionStore::at(dir.path()).has_read_as_damaged(id(1)),
            "another process has to verify the file again"
        );
    }

    #[test]
    fn unclean_end_of_a_run_is_reported_to_the_next_run() {
        let dir = tempfile::tempdir().unwrap();
        let writer = store_with_three_versions(dir.path());
        writer.end_run().unwrap();
        assert!(!dir.path().join(SCRUB_FILE).exists(), "no daemon has run");
        assert!(!writer.begin_run().unwrap());
        writer.note_verified(id(1)).unwrap();
        drop(writer);
        let writer = StoreWriter::open(dir.path(), Duration::ZERO).unwrap();
        let has_time = |n| writer.store().verified_at(id(n)) > Some(0);
        assert!(writer.begin_run().unwrap(), "the previous daemon was killed");
        assert!(has_time(1), "the next daemon has the times of verification");
        writer.end_run().unwrap();
        assert!(has_time(1), "a clean end keeps them");
        writer.note_verified(id(2)).unwrap();
        assert!(!writer.begin_run().unwrap(), "the previous daemon ended cleanly");
        assert!(has_time(1) && has_time(2) && !has_time(3));
    }

    #[test]
    fn scrub_log_has_stable_json_names() {
        let dir = tempfile::tempdir().unwrap();
        let writer = store_with_three_versions(dir.path());
        let (time, key) = ("2026-11-21T10:00:00Z", id(1).to_string());
        let text = format!("{{\"running\": \"{time}\", \"proved\": {{\"{key}\": \"{time}\"}}}}");
        fs::write(dir.path().join(SCRUB_FILE), text).unwrap();
        assert_eq!(writer.store().verified_at(id(1)), parse_time(time));
        assert!(writer.begin_run().unwrap());
        let written = fs::read(dir.path().join(SCRUB_FILE)).unwrap();
        let written: serde_json::Value = serde_json::from_slice(&written).unwrap();
        assert!(written["running"].is_string(), "{written}");
        assert_eq!(written["proved"], serde_json::json!({ key: time }));
    }

    #[test]
    fn verification_time_is_the_later_of_arrival_and_last_scrub() {
        let dir = tempfile::tempdir().unwrap();
        let writer = store_with_three_versions(dir.path());
        let time_at = |hour: u8| format!("2026-11-21T{hour:02}:00:00Z");
        let seconds = |hour: u8| parse_time(&time_at(hour));
        let add_arrival = |n: u8, hour: u8| {
            let receipt = Receipt::with_time(time_at(hour));
            writer.add_receipt(id(n), &receipt).unwrap();
        };
        let write_times = |times: &[(u8, &str)]| {
            let verified = times.iter().map(|&(n, time)| (id(n), time.to_owned())).collect();
            writer.write_scrub_log(&ScrubLog { running: None, verified }).unwrap();
        };
        let verified_times = || [1, 2, 3, 9].map(|n| writer.store().verified_at(id(n)));
        assert_eq!(verified_times(), [Some(0), Some(0), Some(0), None]);
        add_arrival(1, 3);
        add_arrival(1, 5);
        add_arrival(2, 5);
        assert_eq!(verified_times(), [seconds(5), seconds(5), Some(0), None]);
        write_times(&[(1, &time_at(4)), (2, &time_at(6)), (3, "once"), (9, &time_at(1))]);
        assert_eq!(verified_times(), [seconds(5), seconds(6), Some(0), None]);
        writer.note_verified(id(3)).unwrap();
        let scrub_log = writer.store().read_scrub_log();
        assert_eq!(
            scrub_log.verified.keys().copied().collect::<Vec<_>>(),
            sorted_ids(&[1, 2, 3]),
            "versions that are not stored are removed from the file"
        );
        assert!(verified_times()[2] > Some(0));
        fs::write(dir.path().join(SCRUB_FILE), "{").unwrap();
        assert_eq!(verified_times(), [seconds(5), seconds(5), Some(0), None], "an unreadable file counts as empty");
    }
}
