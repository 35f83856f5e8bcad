//! Disk space for a bundle: freed before the download, and again before sealing. A bundle that does not fit is not
//! downloaded, so that the disk is not filled up before the same failure.

use std::os::unix::fs::FileExt;

use crate::store::StoreError;
use crate::store::operations::StoreOperations;
use crate::store::record::StoreRecord;
use crate::store::space::{SpaceLimits, SpaceRequest};
use docwharf_base::model::units::format_size;
use docwharf_base::regular_file;
use docwharf_site::bundle::{BundleKind, format};

use super::SyncSettings;
use super::incoming_bundle::IncomingBundle;

/// Frees disk space for `request`; appends the versions removed for it to history.
pub fn reserve_space<S: StoreOperations>(
    store: &S,
    record: &StoreRecord,
    sync_settings: &SyncSettings,
    request: SpaceRequest,
    author: &str,
) -> Result<(), StoreError> {
    // Decisions that people have made since the sync began are taken into account.
    let mut record = record.clone();
    if let Ok(stored) = store.record() {
        record.copy_decisions(&stored);
    }
    for id in store.free_disk_space(&record, &sync_settings.space_limits, request)? {
        store.note(author, "pruned", Some(id), Some("to free disk space".to_owned()));
    }
    Ok(())
}

/// Estimates the space that sealing a bundle needs. An image is about as large as a compressed archive; a ZIP that may
/// be moved becomes the image by a rename.
pub(super) fn estimate_seal_space(incoming_bundle: &IncomingBundle<'_>, may_move: bool) -> SpaceRequest {
    let opened = match incoming_bundle.file {
        Some(file) => file.try_clone(),
        None => regular_file::open(incoming_bundle.path),
    };
    let Ok(file) = opened else { return SpaceRequest::default() };
    let mut head = [0; 4];
    let size = file.metadata().map_or(0, |metadata| metadata.len());
    let kind = file.read_exact_at(&mut head, 0).ok().and_then(|()| format::guess_kind(&head));
    match kind {
        Some(BundleKind::Zip) if may_move => SpaceRequest { version_bytes: size, remaining_bytes: 0 },
        Some(_) => SpaceRequest { version_bytes: size, remaining_bytes: size },
        // A plain tar of pages is compressed by an unknown factor.
        None => SpaceRequest::default(),
    }
}

/// Warns if versions that must stay exceed `store.maxBytes`.
pub(super) fn warn_if_over<S: StoreOperations>(store: &S, limits: &SpaceLimits) {
    let (Some(max_bytes), Ok(versions)) = (limits.max_bytes, store.versions()) else { return };
    let total: u64 = store.sizes_of(&versions).iter().map(|(_, bytes)| bytes).sum();
    if total > max_bytes {
        tracing::warn!(
            "the store {} holds {} in versions that must stay, more than store.maxBytes ({}): raise store.maxBytes, or remove labels or a hold that are not needed",
            store.root().display(),
            format_size(total),
            format_size(max_bytes)
        );
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs::File;
    use std::path::Path;

    use super::*;
    use crate::store::IMAGE;
    use crate::store::record::ActivationHold;
    use crate::store::writer::StoreWriter;
    use crate::sync::incoming_bundle::ArrivalCause;
    use docwharf_base::model::digest::Digest;
    use docwharf_base::model::version::VersionId;

    fn incoming_bundle<'a>(path: &'a Path, file: Option<&'a File>) -> IncomingBundle<'a> {
        IncomingBundle {
            path,
            file,
            source: "s",
            title: "s",
            cause: ArrivalCause::Import,
            label: None,
            demanded: None,
            job: None,
            sent: None,
            streamed_seal: RefCell::default(),
        }
    }

    #[test]
    fn a_hold_that_was_set_since_the_sync_began_counts_for_the_space() {
        let dir = tempfile::tempdir().unwrap();
        let writer = StoreWriter::open(dir.path(), std::time::Duration::ZERO).unwrap();
        let mut record = StoreRecord::default();
        for n in [1, 2] {
            let id = VersionId(Digest::compute(&[n]));
            std::fs::create_dir(writer.store().version_dir(id)).unwrap();
            std::fs::write(writer.store().version_dir(id).join(IMAGE), [0u8; 10]).unwrap();
            record.activate(id, "t");
        }
        writer.replace_record(&record).unwrap();
        let space_limits = SpaceLimits { keep: 9, max_bytes: Some(25), min_free: None };
        let sync_settings = SyncSettings { space_limits, ..SyncSettings::default() };
        let request = SpaceRequest { version_bytes: 10, remaining_bytes: 0 };
        let reserve = || reserve_space(&writer, &record, &sync_settings, request, "test");
        assert!(reserve().is_ok(), "the new version takes the place of the previous one");
        let hold = ActivationHold { author: String::new(), when: String::new(), why: String::new() };
        writer.change_record(|record| record.hold = Some(hold)).unwrap();
        let refused = reserve();
        assert!(matches!(refused, Err(StoreError::OverMaxBytes { protected: 20, .. })), "{refused:?}");
    }

    #[test]
    fn seal_space_is_the_archive_size_except_for_a_moved_zip_or_an_unknown_format() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bundle");
        let request = |version_bytes, remaining_bytes| SpaceRequest { version_bytes, remaining_bytes };
        let cases: [(&[u8], SpaceRequest, SpaceRequest); 7] = [
            (b"PK\x03\x04zip", request(7, 7), request(7, 0)),
            (b"\x1f\x8b\x08\0gz", request(6, 6), request(6, 6)),
            (b"\x28\xb5\x2f\xfdzstd", request(8, 8), request(8, 8)),
            (b"a plain tar", SpaceRequest::default(), SpaceRequest::default()),
            (b"PK\x05\x06", request(4, 4), request(4, 0)),
            (b"PK\x03", SpaceRequest::default(), SpaceRequest::default()),
            (b"", SpaceRequest::default(), SpaceRequest::default()),
        ];
        let elsewhere = dir.path().join("none");
        for (content, copied, moved) in cases {
            std::fs::write(&path, content).unwrap();
            let open = File::open(&path).unwrap();
            assert_eq!(estimate_seal_space(&incoming_bundle(&path, None), false), copied, "{content:?}");
            assert_eq!(estimate_seal_space(&incoming_bundle(&path, None), true), moved, "{content:?}");
            assert_eq!(
                estimate_seal_space(&incoming_bundle(&elsewhere, Some(&open)), false),
                copied,
                "{content:?}: by the open file"
            );
        }
        assert_eq!(estimate_seal_space(&incoming_bundle(&elsewhere, None), false), SpaceRequest::default());
    }
}
