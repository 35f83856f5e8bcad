//! Bundles that need not be downloaded again: those of stored versions, by their receipts, and the one that was refused
//! last.

use crate::fetch::BundleValidator;
use crate::store::operations::StoreOperations;
use crate::store::record::StoreRecord;
use docwharf_base::model::digest::Digest;

use super::environment::KnownBundle;

/// The known bundles of `source`. With `demanded` only the archive with that digest counts.
pub fn known<K: StoreOperations>(
    keeper: &K,
    record: &StoreRecord,
    source: &str,
    demanded: Option<Digest>,
) -> Vec<KnownBundle> {
    let demanded = demanded.map(|digest| digest.hex());
    let wanted = |sha256: Option<&String>| demanded.is_none() || sha256 == demanded.as_ref();
    let mut known = Vec::new();
    for id in [record.active, record.newest, record.offered_version()]
        .into_iter()
        .flatten()
        .filter(|&id| keeper.has_whole(id))
    {
        let receipts = keeper.receipts(id);
        let ours = receipts.iter().rev().find(|receipt| receipt.source == source);
        if let Some(receipt) = ours.filter(|receipt| wanted(receipt.archive_sha256.as_ref()))
            && let (Some(validator), Some(size)) = (&receipt.validator, receipt.sent_bytes)
            && !known.iter().any(|(known, _): &KnownBundle| known.validator == *validator)
        {
            known.push((BundleValidator { validator: validator.clone(), size }, Some(id)));
        }
    }
    let refused = record
        .looked
        .as_ref()
        .filter(|looked| looked.version.is_none() && looked.source == source && looked.demanded == demanded);
    if let Some(looked) = refused
        && let Some(validator) = &looked.validator
    {
        known.push((BundleValidator { validator: validator.clone(), size: looked.size }, None));
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
        VersionId(Digest::of(&[n]))
    }

    /// Version, source, validator, size as sent, archive.
    type Came<'a> = (u8, &'a str, Option<&'a str>, Option<u64>, &'a [u8]);

    /// A store in which these have arrived.
    fn store(root: &Path, arrivals: &[Came<'_>]) -> StoreWriter {
        let writer = StoreWriter::open(root, Duration::ZERO).unwrap();
        for (minute, &(n, source, validator, sent_bytes, archive)) in arrivals.iter().enumerate() {
            let folder = writer.store().version_dir(id(n));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(IMAGE), "image").unwrap();
            let receipt = Receipt {
                time: format!("2026-11-21T10:{minute:02}:00Z"),
                who: String::new(),
                source: source.to_owned(),
                kind: String::new(),
                archive_sha256: Some(Digest::of(archive).hex()),
                archive_bytes: None,
                label: None,
                job: None,
                validator: validator.map(str::to_owned),
                sent_bytes,
                looked: true,
            };
            writer.receive(id(n), &receipt).unwrap();
        }
        writer
    }

    fn told(
        keeper: &StoreWriter,
        record: &StoreRecord,
        demanded: Option<&[u8]>,
    ) -> Vec<(String, u64, Option<VersionId>)> {
        let known = known(keeper, record, "s", demanded.map(Digest::of));
        known.into_iter().map(|(known, version)| (known.validator, known.size, version)).collect()
    }

    #[test]
    fn what_is_active_newest_or_offered_need_not_be_downloaded_again_if_it_came_from_there() {
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
        let of = |active: u8, newest: u8, offer: u8| StoreRecord {
            active: Some(id(active)),
            newest: Some(id(newest)),
            offered: offered(offer),
            ..StoreRecord::default()
        };
        let one = || ("one".to_owned(), 10, Some(id(1)));
        let two = || ("two".to_owned(), 20, Some(id(2)));
        let three = || ("three".to_owned(), 30, Some(id(3)));
        assert_eq!(told(&writer, &StoreRecord::default(), None), []);
        assert_eq!(told(&writer, &of(1, 2, 3), None), [one(), two(), three()]);
        assert_eq!(told(&writer, &of(1, 1, 1), None), [one()]);
        assert_eq!(told(&writer, &of(5, 6, 7), None), [], "another source, no name, no size");
        assert_eq!(told(&writer, &of(1, 8, 2), None), [one(), two()], "of two with one name the first counts");
        assert_eq!(told(&writer, &of(1, 2, 9), None), [one(), two()], "one that has gone");
        assert_eq!(told(&writer, &of(1, 2, 3), Some(b"2")), [two()]);
        assert_eq!(told(&writer, &of(1, 2, 3), Some(b"4")), []);
        writer.mark_suspect(id(2)).unwrap();
        assert_eq!(told(&writer, &of(1, 2, 3), None), [one(), three()], "what is damaged is brought again");
    }

    #[test]
    fn what_was_refused_need_not_be_downloaded_again_as_long_as_the_same_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        let writer = store(dir.path(), &[]);
        let looked = || BundleCheck {
            source: "s".to_owned(),
            label: None,
            demanded: None,
            size: 5,
            modified: 0,
            validator: Some("bad".to_owned()),
            sha256: None,
            version: None,
            refusal: None,
        };
        let demanded = Some(Digest::of(b"x").hex());
        let cases: [(BundleCheck, Option<&[u8]>, bool); 7] = [
            (looked(), None, true),
            (looked(), Some(b"x"), false),
            (BundleCheck { demanded: demanded.clone(), ..looked() }, Some(b"x"), true),
            (BundleCheck { demanded, ..looked() }, None, false),
            (BundleCheck { source: "elsewhere".to_owned(), ..looked() }, None, false),
            (BundleCheck { version: Some(id(1)), ..looked() }, None, false),
            (BundleCheck { validator: None, ..looked() }, None, false),
        ];
        for (n, (looked, demanded, is_known)) in cases.into_iter().enumerate() {
            let record = StoreRecord { looked: Some(looked), ..StoreRecord::default() };
            let expected: Vec<_> = is_known.then(|| ("bad".to_owned(), 5, None)).into_iter().collect();
            assert_eq!(told(&writer, &record, demanded), expected, "case {n}");
        }
    }
}
