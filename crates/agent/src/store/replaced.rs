//! The versions that were active before, and when each was replaced.

use std::collections::BTreeMap;

use docwharf_base::model::units::parse_time;
use docwharf_base::model::version::VersionId;

use super::record::StoreRecord;
use super::{HistoryEvent, VersionStore};

impl VersionStore {
    /// The versions that were active and no longer are, each with the second (since 1970) in which it was last
    /// replaced. Versions that have left the store since are included. An unreadable record or history counts as empty.
    pub fn replaced(&self) -> Vec<(VersionId, i64)> {
        replaced(&self.record().unwrap_or_default(), &self.history().unwrap_or_default())
    }
}

fn replaced(record: &StoreRecord, history: &[HistoryEvent]) -> Vec<(VersionId, i64)> {
    let mut until: BTreeMap<VersionId, i64> = BTreeMap::new();
    let mut active: Option<VersionId> = None;
    // A hold or release names the active version as well; the line of the activation may have been lost in a crash.
    let says = |event: &&HistoryEvent| matches!(event.what.as_str(), "activated" | "rolled back" | "held" | "released");
    for event in history.iter().filter(says) {
        let (Some(id), Some(time)) = (event.version, parse_time(&event.time)) else { continue };
        if let Some(before) = active.replace(id).filter(|&before| before != id) {
            until.insert(before, time);
        }
    }
    let since = record.active_since.as_deref().and_then(parse_time);
    if let (Some(previous), Some(since)) = (record.previous, since) {
        // The record is written before history, so its time is never missing.
        let known = until.entry(previous).or_insert(since);
        *known = since.max(*known);
    }
    until.into_iter().filter(|&(id, _)| record.active != Some(id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use docwharf_base::model::digest::Digest;

    fn id(n: u8) -> VersionId {
        VersionId(Digest::of(&[n]))
    }

    fn event(what: &str, version: u8, minute: u8) -> HistoryEvent {
        let time = format!("2026-11-21T10:{minute:02}:00Z");
        HistoryEvent { time, who: String::new(), what: what.to_owned(), version: Some(id(version)), note: None }
    }

    fn at(minute: u8) -> i64 {
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
        let mut expected = vec![(id(1), at(3)), (id(3), at(5))];
        expected.sort();
        assert_eq!(replaced(&record, &history), expected);
    }

    #[test]
    fn a_lost_line_of_history_is_made_good_by_the_record() {
        let mut record = StoreRecord::default();
        record.activate(id(1), &event("", 0, 1).time);
        record.activate(id(2), &event("", 0, 9).time);
        assert_eq!(replaced(&record, &[event("activated", 1, 1)]), [(id(1), at(9))]);
        assert_eq!(replaced(&record, &[]), [(id(1), at(9))]);
        assert_eq!(replaced(&StoreRecord::default(), &[]), []);
    }

    #[test]
    fn of_several_times_the_last_one_counts_and_what_is_active_is_not_replaced() {
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
        let of = |record: &StoreRecord, history: &[HistoryEvent]| {
            replaced(record, history).into_iter().collect::<BTreeMap<VersionId, i64>>()
        };
        assert_eq!(of(&record, &history), BTreeMap::from([(id(1), at(5)), (id(2), at(3))]));
        // History and record may both know when a version was replaced: the later time counts.
        record.active_since = Some(event("", 0, 4).time);
        assert_eq!(of(&record, &history)[&id(1)], at(5));
        record.active_since = Some(event("", 0, 8).time);
        assert_eq!(of(&record, &history)[&id(1)], at(8));
        // Each of these events names the version that was active at its time; an event without version or time is
        // ignored.
        for what in ["activated", "rolled back", "held", "released"] {
            let lines = [event("activated", 1, 1), event(what, 2, 6)];
            assert_eq!(of(&StoreRecord::default(), &lines), BTreeMap::from([(id(1), at(6))]), "{what}");
        }
        for what in ["imported", "pruned", "refused", "kept back"] {
            assert_eq!(of(&StoreRecord::default(), &[event("activated", 1, 1), event(what, 2, 6)]), BTreeMap::new());
        }
        let nameless = HistoryEvent { version: None, ..event("held", 2, 6) };
        let timeless = HistoryEvent { time: "soon".to_owned(), ..event("activated", 2, 6) };
        for odd in [nameless, timeless] {
            assert_eq!(of(&StoreRecord::default(), &[event("activated", 1, 1), odd]), BTreeMap::new());
        }
    }
}
