//! Bundles that need not be downloaded again: those of the active, the newest and the offered version, by their
//! receipts, and the one that was refused last.

use crate::fetch::BundleValidator;
use crate::store::operations::StoreOperations;
use crate::store::record::StoreRecord;
use docwharf_base::model::digest::Digest;

use super::environment::KnownBundle;

/// Returns the known bundles of `source`. With `demanded` only the archive with that digest counts.
pub fn find_known_bundles<S: StoreOperations>(
    store: &S,
    record: &StoreRecord,
    source: &str,
    demanded: Option<Digest>,
) -> Vec<KnownBundle> {
    let demanded = demanded.map(|digest| digest.to_hex());
    let is_accepted = |sha256: Option<&String>| demanded.is_none() || sha256 == demanded.as_ref();
    let mut known = Vec::new();
    for id in [record.active, record.newest, record.offered_version()]
        .into_iter()
        .flatten()
        .filter(|&id| store.has_undamaged(id))
    {
        let receipts = store.receipts(id);
        let receipt = receipts.iter().rev().find(|receipt| receipt.source == source);
        if let Some(receipt) = receipt.filter(|receipt| is_accepted(receipt.archive_sha256.as_ref()))
            && let (Some(validator), Some(size)) = (&receipt.validator, receipt.sent_bytes)
            && !known.iter().any(|(known, _): &KnownBundle| known.validator == *validator)
        {
            known.push((BundleValidator { validator: validator.clone(), size }, Some(id)));
        }
    }
    let refused = record
        .last_checked_bundle
        .as_ref()
        .filter(|check| check.version.is_none() && check.source == source && check.demanded == demanded);
    if let Some(check) = refused
        && let Some(validator) = &check.validator
    {
        known.push((BundleValidator { validator: validator.clone(), size: check.size }, None));
    }
    known
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::store::record::{BundleCheck, OfferedVersion};
    use crate::store::writer::StoreWriter;
    use crate::store::{IMAGE, Receipt};
    use docwharf_base::model::version::VersionId;

    fn id(n: u8) -> VersionId {
        VersionId(Digest::compute(&[n]))
    }

    /// Version, source, validator, size as sent, archive.
    type Arrival<'a> = (u8, &'a str, Option<&'a str>, Option<u64>, &'a [u8]);

    /// Creates a store with these arrivals.
    fn store(root: &Path, arrivals: &[Arrival<'_>]) -> StoreWriter {
        let writer = StoreWriter::open(root, Duration::ZERO).unwrap();
        for (minute, &(n, source, validator, sent_bytes, archive)) in arrivals.iter().enumerate() {
            let folder = writer.store().version_dir(id(n));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(IMAGE), "image").unwrap();
            let receipt = Receipt {
                time: format!("2026-11-21T10:{minute:02}:00Z"),
                author: String::new(),
                source: source.to_owned(),
                kind: String::new(),
                archive_sha256: Some(Digest::compute(archive).to_hex()),
                archive_bytes: None,
                label: None,
                job: None,
                validator: validator.map(str::to_owned),
                sent_bytes,
                found_by_check: true,
            };
            writer.add_receipt(id(n), &receipt).unwrap();
        }
        writer
    }

    fn list_known(
        store: &StoreWriter,
        record: &StoreRecord,
        demanded: Option<&[u8]>,
    ) -> Vec<(String, u64, Option<VersionId>)> {
        let known = find_known_bundles(store, record, "s", demanded.map(Digest::compute));
        known.into_iter().map(|(known, version)| (known.validator, known.size, version)).collect()
    }

    #[test]
    fn active_newest_and_offered_bundles_of_the_source_are_known() {
        let dir = tempfile::tempdir().unwrap();
        let writer = store(
            dir.path(),
            &[
                (1, "s", Some("first"), Some(9), b"1"),
                (1, "s", Some("one"), Some(10), b"1"),
                (1, "elsewhere", Some("other"), Some(11), b"1"),
                (2, "s", Some("two"), Some(20), b"2"),
                (3, "s", Some("three"), Some(30), b"3"),
                (4, "s", Some("four"), Some(40), b"4"),
                (5, "elsewhere", Some("five"), Some(50), b"5"),
                (6, "s", None, Some(60), b"6"),
                (7, "s", Some("seven"), None, b"7"),
                (8, "s", Some("one"), Some(80), b"8"),
            ],
        );
        let offered = |n: u8| Some(OfferedVersion { source: "s".to_owned(), version: id(n) });
        let record = |active: u8, newest: u8, offer: u8| StoreRecord {
            active: Some(id(active)),
            newest: Some(id(newest)),
            offered: offered(offer),
            ..StoreRecord::default()
        };
        let first = || ("one".to_owned(), 10, Some(id(1)));
        let second = || ("two".to_owned(), 20, Some(id(2)));
        let third = || ("three".to_owned(), 30, Some(id(3)));
        assert_eq!(list_known(&writer, &StoreRecord::default(), None), []);
        assert_eq!(list_known(&writer, &record(1, 2, 3), None), [first(), second(), third()]);
        assert_eq!(list_known(&writer, &record(1, 1, 1), None), [first()]);
        assert_eq!(list_known(&writer, &record(5, 6, 7), None), [], "another source, no validator, no size");
        assert_eq!(
            list_known(&writer, &record(1, 8, 2), None),
            [first(), second()],
            "of two bundles with one validator the first counts"
        );
        assert_eq!(
            list_known(&writer, &record(1, 2, 9), None),
            [first(), second()],
            "a version that is not stored any more"
        );
        assert_eq!(list_known(&writer, &record(1, 2, 3), Some(b"2")), [second()]);
        assert_eq!(list_known(&writer, &record(1, 2, 3), Some(b"4")), []);
        writer.mark_damaged(id(2)).unwrap();
        assert_eq!(
            list_known(&writer, &record(1, 2, 3), None),
            [first(), third()],
            "a damaged version is downloaded again"
        );
    }

    #[test]
    fn refused_bundle_is_known_as_long_as_the_demanded_digest_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let writer = store(dir.path(), &[]);
        let check = || BundleCheck {
            source: "s".to_owned(),
            pin: None,
            demanded: None,
            size: 5,
            modified: 0,
            validator: Some("bad".to_owned()),
            sha256: None,
            version: None,
            refusal: None,
        };
        let demanded = Some(Digest::compute(b"x").to_hex());
        let cases: [(BundleCheck, Option<&[u8]>, bool); 7] = [
            (check(), None, true),
            (check(), Some(b"x"), false),
            (BundleCheck { demanded: demanded.clone(), ..check() }, Some(b"x"), true),
            (BundleCheck { demanded, ..check() }, None, false),
            (BundleCheck { source: "elsewhere".to_owned(), ..check() }, None, false),
            (BundleCheck { version: Some(id(1)), ..check() }, None, false),
            (BundleCheck { validator: None, ..check() }, None, false),
        ];
        for (n, (check, demanded, is_known)) in cases.into_iter().enumerate() {
            let record = StoreRecord { last_checked_bundle: Some(check), ..StoreRecord::default() };
            let expected: Vec<_> = is_known.then(|| ("bad".to_owned(), 5, None)).into_iter().collect();
            assert_eq!(list_known(&writer, &record, demanded), expected, "case {n}");
        }
    }
}
