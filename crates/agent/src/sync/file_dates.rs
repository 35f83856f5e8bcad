//! Last-Modified of the files of a version.

use crate::store::writer::StoreWriter;
use docwharf_base::model::version::VersionId;
use docwharf_site::seal::VerifiedBundle;

use super::stored_index::read_index;

/// Sets Last-Modified of each file. If one of the versions `date_sources` has the same content at the same path, the
/// file gets the date that it has in the first such version. Otherwise it gets the time of sealing. While one of them
/// has other content with the same date at the path, the date is moved back by a second: two versions may be sealed
/// within one second, and a date must not be in the future (RFC 9110, section 8.8.2.1).
pub(super) fn date_files(
    verified: &mut VerifiedBundle,
    sealed_at: i64,
    writer: &StoreWriter,
    date_sources: &[VersionId],
) {
    let indexes: Vec<_> = date_sources.iter().filter_map(|&id| read_index(writer.store(), id).ok()).collect();
    for (path, entry) in &mut verified.files {
        let at_path = || indexes.iter().filter_map(|index| Some(index.entry(index.find(path.as_bytes())?)));
        entry.modified =
            at_path().find(|other| other.content == entry.content).map_or(sealed_at, |other| other.modified);
        while at_path().any(|other| other.content != entry.content && other.modified == entry.modified) {
            entry.modified -= 1;
        }
    }
}
