//! Room for a bundle: made before it is downloaded, and again before it is sealed. One for which there is none is not
//! begun, so that a disk does not fill up to its last byte on the way to the same end.

use std::os::unix::fs::FileExt;

use crate::base::regular;
use crate::bundle::{Kind, format};
use crate::model::units::show_size;
use crate::store::StoreError;
use crate::store::keeper::Keeper;
use crate::store::record::Record;
use crate::store::space::{Allowance, Wanted};

use super::Intent;
use super::bring::Arrival;

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

/// What sealing a bundle takes, as far as it can be told beforehand. An image is about as large as the archive if that is
/// compressed; a ZIP of ours becomes the image by a rename.
pub(super) fn to_seal(arrival: &Arrival<'_>, ours: bool) -> Wanted {
    let opened = match arrival.file {
        Some(file) => file.try_clone(),
        None => regular::open(arrival.path),
    };
    let Ok(file) = opened else { return Wanted::default() };
    let mut head = [0; 4];
    let size = file.metadata().map_or(0, |metadata| metadata.len());
    let kind = file.read_exact_at(&mut head, 0).ok().and_then(|()| format::guess(&head));
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
