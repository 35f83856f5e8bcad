//! What to do next, from configuration and state alone: pure, so that it can be tested through every case.

use crate::model::version::VersionId;
use crate::store::record::{Looked, Record};

/// What woke the sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// The daemon starts.
    Start,
    /// The interval has passed.
    Interval,
    /// SIGHUP, or `docwharf sync`.
    Asked,
    /// `docwharf sync --refresh`: a satisfied pin is no reason not to look.
    Refresh,
}

/// The bundle file as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The source's name, as in receipts.
    pub source: String,
    /// Its size in bytes.
    pub size: u64,
    /// When it was last changed, in nanoseconds since 1970.
    pub modified: i64,
}

/// What the configuration says, as far as deciding needs it.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// `staticExport.enabled`
    pub enabled: bool,
    /// The source's name, if there is one.
    pub source: Option<&'a str>,
    /// `staticExport.version`
    pub pin: Option<&'a str>,
    /// `staticExport.sha256`, in hex.
    pub sha256: Option<&'a str>,
}

/// What comes before the source is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// Nothing at all.
    Disabled,
    /// The version that should be active is in the store: see that it is, and leave the source alone.
    Settle,
    /// Look at the source.
    Look,
}

/// Whether the source has to be looked at. `has` tells which versions are in the store.
pub fn first(record: &Record, wish: &Wish<'_>, trigger: Trigger, has: impl Fn(VersionId) -> bool) -> First {
    let Some(source) = wish.source.filter(|_| wish.enabled) else {
        return First::Disabled;
    };
    if trigger == Trigger::Refresh {
        return First::Look;
    }
    let satisfied = wish.pin.and_then(|pin| record.labels.get(pin)).is_some_and(|labelled| {
        labelled.source == source
            && wish.sha256.is_none_or(|sha256| labelled.sha256.as_deref() == Some(sha256))
            && has(labelled.version)
    });
    if satisfied { First::Settle } else { First::Look }
}

/// What a look at the source leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Then {
    /// It is the file that was accepted before, holding this version.
    Known(VersionId),
    /// It is the file that was refused before.
    StillRefused,
    /// It may be the same: its digest decides.
    Digest,
}

/// Judges the file by what is known of the last look.
pub fn then(record: &Record, wish: &Wish<'_>, trigger: Trigger, seen: &Seen, has: impl Fn(VersionId) -> bool) -> Then {
    let Some(looked) = record.looked.as_ref().filter(|looked| same_question(looked, wish, &seen.source)) else {
        return Then::Digest;
    };
    if looked.size != seen.size || looked.modified != seen.modified || trigger == Trigger::Refresh {
        return Then::Digest;
    }
    match looked.version {
        Some(id) if has(id) => Then::Known(id),
        Some(_) => Then::Digest,
        // A person who asks may have changed what the refusal was about, such as a limit.
        None if trigger == Trigger::Asked => Then::Digest,
        None => Then::StillRefused,
    }
}

/// Whether the last look was at this source, under this label, with this demand.
pub fn same_question(looked: &Looked, wish: &Wish<'_>, source: &str) -> bool {
    looked.source == source && looked.label.as_deref() == wish.pin && looked.demanded.as_deref() == wish.sha256
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::digest::Digest;
    use crate::store::record::Labelled;

    const WISH: Wish<'_> = Wish { enabled: true, source: Some("/b.zip"), pin: None, sha256: None };

    fn id() -> VersionId {
        VersionId(Digest::of(b"x"))
    }

    fn looked(version: Option<VersionId>) -> Record {
        Record {
            looked: Some(Looked {
                source: "/b.zip".into(),
                label: None,
                demanded: None,
                size: 5,
                modified: 7,
                sha256: None,
                version,
            }),
            ..Record::default()
        }
    }

    fn labelled(source: &str) -> Record {
        let mut record = Record::default();
        let label = Labelled { version: id(), source: source.into(), sha256: Some("aa".into()), time: String::new() };
        record.labels.insert("L".into(), label);
        record
    }

    #[test]
    fn disabled_or_without_a_source_nothing_is_looked_at() {
        let record = Record::default();
        for wish in [Wish { enabled: false, ..WISH }, Wish { source: None, ..WISH }] {
            assert_eq!(first(&record, &wish, Trigger::Refresh, |_| true), First::Disabled);
        }
    }

    #[test]
    fn a_satisfied_pin_is_left_alone_until_source_digest_or_a_person_say_otherwise() {
        let pinned = Wish { pin: Some("L"), ..WISH };
        let record = labelled("/b.zip");
        assert_eq!(first(&record, &pinned, Trigger::Asked, |_| true), First::Settle);
        assert_eq!(first(&record, &pinned, Trigger::Refresh, |_| true), First::Look);
        assert_eq!(first(&record, &pinned, Trigger::Asked, |_| false), First::Look);
        assert_eq!(first(&record, &Wish { sha256: Some("aa"), ..pinned }, Trigger::Asked, |_| true), First::Settle);
        assert_eq!(first(&record, &Wish { sha256: Some("bb"), ..pinned }, Trigger::Asked, |_| true), First::Look);
        assert_eq!(first(&labelled("/other.zip"), &pinned, Trigger::Start, |_| true), First::Look);
        assert_eq!(first(&Record::default(), &pinned, Trigger::Start, |_| true), First::Look);
    }

    #[test]
    fn an_unchanged_file_is_not_read_again() {
        let seen = Seen { source: "/b.zip".into(), size: 5, modified: 7 };
        let accepted = looked(Some(id()));
        assert_eq!(then(&accepted, &WISH, Trigger::Interval, &seen, |_| true), Then::Known(id()));
        assert_eq!(then(&accepted, &WISH, Trigger::Interval, &seen, |_| false), Then::Digest);
        assert_eq!(
            then(&accepted, &WISH, Trigger::Interval, &Seen { size: 6, ..seen.clone() }, |_| true),
            Then::Digest
        );
        assert_eq!(
            then(&accepted, &WISH, Trigger::Interval, &Seen { modified: 8, ..seen.clone() }, |_| true),
            Then::Digest
        );
        assert_eq!(
            then(&accepted, &Wish { sha256: Some("aa"), ..WISH }, Trigger::Interval, &seen, |_| true),
            Then::Digest
        );
        let refused = looked(None);
        assert_eq!(then(&refused, &WISH, Trigger::Interval, &seen, |_| true), Then::StillRefused);
        assert_eq!(then(&refused, &WISH, Trigger::Asked, &seen, |_| true), Then::Digest);
    }
}
