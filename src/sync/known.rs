//! Bundles that need not be downloaded again: what receipts say of the versions that are there, and of what was refused.

use crate::fetch::Known;
use crate::model::digest::Digest;
use crate::store::keeper::Keeper;
use crate::store::record::Record;

use super::world::KnownBundle;

/// Those of `source`, of which `demanded` may be the only one that counts.
pub fn known<K: Keeper>(keeper: &K, record: &Record, source: &str, demanded: Option<Digest>) -> Vec<KnownBundle> {
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
            known.push((Known { validator: validator.clone(), size }, Some(id)));
        }
    }
    let refused = record
        .looked
        .as_ref()
        .filter(|looked| looked.version.is_none() && looked.source == source && looked.demanded == demanded);
    if let Some(looked) = refused
        && let Some(validator) = &looked.validator
    {
        known.push((Known { validator: validator.clone(), size: looked.size }, None));
    }
    known
}
