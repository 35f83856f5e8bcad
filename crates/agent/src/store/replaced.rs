//! The versions that were active before, and when each was replaced.

use std::collections::BTreeMap;

use docwharf_base::model::units::parse_time;
use docwharf_base::model::version::VersionId;

use super::record::StoreRecord;
use super::{HistoryEvent, VersionStore};

impl VersionStore {
    /// The versions that were active and no longer are, each with the second (since 1970) in which it was last
    /// replaced. Versions that have been removed since are included. An unreadable record or history counts as empty.
    pub fn replaced_versions(&self) -> Vec<(VersionId, i64)> {
        find_replaced(&self.record().unwrap_or_default(), &self.history().unwrap_or_default())
    }
}

/// Finds the replaced versions and their times; see [`VersionStore::replaced_versions`].
fn find_replaced(record: &StoreRecord, history: &[HistoryEvent]) -> Vec<(VersionId, i64)> {
    let mut replaced_at: BTreeMap<VersionId, i64> = BTreeMap::new();
    let mut active: Option<VersionId> = None;
    // A hold or release names the active version as well; the line of the activation may have been lost in a crash.
    let names_active =
        |event: &&HistoryEvent| matches!(event.what.as_str(), "activated" | "rolled back" | "held" | "released");
    for event in history.iter().filter(names_active) {
        let (Some(id), Some(time)) = (event.version, parse_time(&event.time)) else { continue };
        if let Some(before) = active.replace(id).filter(|&before| before != id) {
            replaced_at.insert(before, time);
        }
    }
    let since = record.active_since.as_deref().and_then(parse_time);
    if let (Some(previous), Some(since)) = (record.previous, since) {
        // The record is written before history, so its time is never missing.
        let time = replaced_at.entry(previous).or_insert(since);
        *time = since.max(*time);
    }
    replaced_at.into_iter().filter(|&(id, _)| record.active != Some(id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use docwharf_base::model::digest::Digest;

    fn id(n: u8) -> VersionId {
        VersionId(Digest::compute(&[n]))
    }

    fn event(what: &str, version: u8, minute: u8) -> HistoryEvent {
        let time = format!("2026-11-21T10:{minute:02}:00Z");
        HistoryEvent { time, author: String::new(), what: what.to_owned(), version: Some(id(version)), note: None }
    }

    fn seconds_at(minute: u8) -> i64 {
        parse_time(&event("", 0, minute).time).unwrap()
    }

    #[test]
    fn a_version_is_replaced_when_the_next_becomes_active_and_again_after_a_rollback() {
        let history = [
            event("imported", 1, 0),
            event("activated", 1, 1),
            event("imported", 2, 2),
            event("activated", 2, 3),
            event("activated", 3, 4),
            event("rolled back", 2, 5),
            event("pruned", 1, 6),
        ];
        let mut record = StoreRecord::default();
        record.activate(id(3), &history[4].time);
        record.activate(id(2), &history[5].time);
        let mut expected = vec![(id(1), seconds_at(3)), (id(3), seconds_at(5))];
        expected.sort();
        assert_eq!(find_replaced(&record, &history), expected);
    }

    #[test]
    fn record_supplies_the_replacement_time_that_history_lacks() {
        let mut record = StoreRecord::default();
        record.activate(id(1), &event("", 0, 1).time);
        record.activate(id(2), &event("", 0, 9).time);
        assert_eq!(find_replaced(&record, &[event("activated", 1, 1)]), [(id(1), seconds_at(9))]);
        assert_eq!(find_replaced(&record, &[]), [(id(1), seconds_at(9))]);
        assert_eq!(find_replaced(&StoreRecord::default(), &[]), []);
    }

    #[test]
    fn last_replacement_time_counts_and_the_active_version_is_not_replaced() {
        let history = [
            event("activated", 1, 1),
            event("activated", 2, 2),
            event("activated", 1, 3),
            event("imported", 9, 4),
            event("activated", 3, 5),
        ];
        let mut record = StoreRecord::default();
        record.activate(id(1), &history[2].time);
        record.activate(id(3), &history[4].time);
        let find = |record: &StoreRecord, history: &[HistoryEvent]| {
            find_replaced(record, history).into_iter().collect::<BTreeMap<VersionId, i64>>()
        };
        assert_eq!(find(&record, &history), BTreeMap::from([(id(1), seconds_at(5)), (id(2), seconds_at(3))]));
        // History and record may both have the time of the replacement: the later time counts.
        record.active_since = Some(event("", 0, 4).time);
        assert_eq!(find(&record, &history)[&id(1)], seconds_at(5));
        record.active_since = Some(event("", 0, 8).time);
        assert_eq!(find(&record, &history)[&id(1)], seconds_at(8));
        // Each of these events names the version that was active at its time; an event without version or time is
        // ignored.
        for event_name in ["activated", "rolled back", "held", "released"] {
            let lines = [event("activated", 1, 1), event(event_name, 2, 6)];
            assert_eq!(find(&StoreRecord::default(), &lines), BTreeMap::from([(id(1), seconds_at(6))]), "{event_name}");
        }
        for event_name in ["imported", "pruned", "refused", "kept back"] {
            assert_eq!(
                find(&StoreRecord::default(), &[event("activated", 1, 1), event(event_name, 2, 6)]),
                BTreeMap::new()
            );
        }
        let nameless = HistoryEvent { version: None, ..event("held", 2, 6) };
        let timeless = HistoryEvent { time: "soon".to_owned(), ..event("activated", 2, 6) };
        for odd in [nameless, timeless] {
            assert_eq!(find(&StoreRecord::default(), &[event("activated", 1, 1), odd]), BTreeMap::new());
        }
    }
}
