//! Room for a bundle: made before it is downloaded, and again before it is sealed. One for which there is none is not
//! begun, so that a disk does not fill up to its last byte on the way to the same end.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::bundle::{Kind, format};
use crate::model::units::show_size;
use crate::store::StoreError;
use crate::store::keeper::Keeper;
use crate::store::record::Record;
use crate::store::space::{Allowance, Wanted};

use super::Intent;

/// Sees to it that there is room for `wanted`; history says what had to go for it.
pub fn make<K: Keeper>(
    keeper: &K,
    record: &Record,
    intent: &Intent,
    wanted: Wanted,
    who: &str,
) -> Result<(), StoreError> {
    // What people have decided since the sync began counts.
    let mut record = record.clone();
    if let Ok(now) = keeper.record() {
        record.take_over_from_people(&now);
    }
    for id in keeper.make_room(&record, &intent.allowance, wanted)? {
        keeper.note(who, "pruned", Some(id), Some("to make room".to_owned()));
    }
    Ok(())
}

/// What sealing the bundle at `path` takes, as far as it can be told beforehand. An image is about as large as the
/// archive if that is compressed; a ZIP of ours becomes the image by a rename.
pub(super) fn to_seal(path: &Path, ours: bool) -> Wanted {
    let Ok(metadata) = std::fs::metadata(path) else { return Wanted::default() };
    if !metadata.is_file() {
        return Wanted::default();
    }
    let mut head = [0; 4];
    let kind =
        File::open(path).and_then(|mut file| file.read_exact(&mut head)).ok().and_then(|()| format::guess(&head));
    let size = metadata.len();
    match kind {
        Some(Kind::Zip) if ours => Wanted { whole: size, more: 0 },
        Some(_) => Wanted { whole: size, more: size },
        // Pages in a plain tar shrink, nobody knows how much.
        None => Wanted::default(),
    }
}

/// Protected versions may take more than the store should.
pub(super) fn warn_if_over<K: Keeper>(keeper: &K, allowance: &Allowance) {
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
