//! Disk space for a bundle: freed before the download, and again before sealing. A bundle that does not fit is not
//! begun, so that a disk does not fill up to its last byte on the way to the same failure.

use std::os::unix::fs::FileExt;

use crate::store::StoreError;
use crate::store::operations::StoreOperations;
use crate::store::record::StoreRecord;
use crate::store::space::{SpaceLimits, SpaceRequest};
use docwharf_base::model::units::show_size;
use docwharf_base::regular_file;
use docwharf_site::bundle::{BundleKind, format};

use super::SyncIntent;
use super::incoming_bundle::IncomingBundle;

/// Frees the space for `wanted`; notes the versions removed for it in history.
pub fn reserve_space<K: StoreOperations>(
    keeper: &K,
    record: &StoreRecord,
    intent: &SyncIntent,
    wanted: SpaceRequest,
    who: &str,
) -> Result<(), StoreError> {
    // Decisions that people have made since the sync began count.
    let mut record = record.clone();
    if let Ok(now) = keeper.record() {
        record.adopt_decisions(&now);
    }
    for id in keeper.make_room(&record, &intent.allowance, wanted)? {
        keeper.note(who, "pruned", Some(id), Some("to make room".to_owned()));
    }
    Ok(())
}

/// Estimates the space that sealing a bundle needs. An image is about as large as a compressed archive; a ZIP of ours
/// becomes the image by a rename.
pub(super) fn to_seal(arrival: &IncomingBundle<'_>, ours: bool) -> SpaceRequest {
    let opened = match arrival.file {
        Some(file) => file.try_clone(),
        None => regular_file::open(arrival.path),
    };
    let Ok(file) = opened else { return SpaceRequest::default() };
    let mut head = [0; 4];
    let size = file.metadata().map_or(0, |metadata| metadata.len());
    let kind = file.read_exact_at(&mut head, 0).ok().and_then(|()| format::guess_kind(&head));
    match kind {
        Some(BundleKind::Zip) if ours => SpaceRequest { whole: size, more: 0 },
        Some(_) => SpaceRequest { whole: size, more: size },
        // A plain tar of pages shrinks by an unknown amount.
        None => SpaceRequest::default(),
    }
}

/// Warns if versions that must stay exceed `store.maxBytes`.
pub(super) fn warn_if_over<K: StoreOperations>(keeper: &K, allowance: &SpaceLimits) {
    let (Some(most), Ok(versions)) = (allowance.max_bytes, keeper.versions()) else { return };
    let total: u64 = keeper.sizes_of(&versions).iter().map(|(_, bytes)| bytes).sum();
    if total > most {
        tracing::warn!(
            "the store {} holds {} in versions that must stay, more than store.maxBytes ({}): raise it, or take away labels or a hold that are not needed",
            keeper.root().display(),
            show_size(total),
            show_size(most)
        );
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs::File;
    use std::path::Path;

    use super::*;
    use crate::sync::incoming_bundle::Occasion;

    fn arrival<'a>(path: &'a Path, file: Option<&'a File>) -> IncomingBundle<'a> {
        IncomingBundle {
            path,
            file,
            source: "s",
            title: "s",
            occasion: Occasion::Import,
            label: None,
            demanded: None,
            job: None,
            sent: None,
            ahead: RefCell::default(),
        }
    }

    #[test]
    fn sealing_takes_about_the_archive_again_unless_it_is_a_zip_of_ours_or_nobody_knows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bundle");
        let wanted = |whole, more| SpaceRequest { whole, more };
        let cases: [(&[u8], SpaceRequest, SpaceRequest); 7] = [
            (b"PK\x03\x04zip", wanted(7, 7), wanted(7, 0)),
            (b"\x1f\x8b\x08\0gz", wanted(6, 6), wanted(6, 6)),
            (b"\x28\xb5\x2f\xfdzstd", wanted(8, 8), wanted(8, 8)),
            (b"a plain tar", SpaceRequest::default(), SpaceRequest::default()),
            (b"PK\x05\x06", wanted(4, 4), wanted(4, 0)),
            (b"PK\x03", SpaceRequest::default(), SpaceRequest::default()),
            (b"", SpaceRequest::default(), SpaceRequest::default()),
        ];
        let elsewhere = dir.path().join("none");
        for (content, others, ours) in cases {
            std::fs::write(&path, content).unwrap();
            let open = File::open(&path).unwrap();
            assert_eq!(to_seal(&arrival(&path, None), false), others, "{content:?}");
            assert_eq!(to_seal(&arrival(&path, None), true), ours, "{content:?}");
            assert_eq!(to_seal(&arrival(&elsewhere, Some(&open)), false), others, "{content:?}: by what is open");
        }
        assert_eq!(to_seal(&arrival(&elsewhere, None), false), SpaceRequest::default());
    }
}
