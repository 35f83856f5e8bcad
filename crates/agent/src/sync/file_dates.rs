//! Last-Modified of the files of a version.

use crate::store::writer::StoreWriter;
use docwharf_base::model::version::VersionId;
use docwharf_site::seal::VerifiedBundle;

use super::stored_index::read_index;

/// Sets Last-Modified of each file. A file that one of the `known` versions has with the same content gets the date of
/// the first such version. Any other file gets the time of sealing, or the latest second before it at which no known
/// version has other content: two versions may be sealed within one second, and a date must not be in the future (RFC
/// 9110, section 8.8.2.1).
pub(super) fn date_files(verified: &mut VerifiedBundle, sealed_at: i64, writer: &StoreWriter, known: &[VersionId]) {
    let indexes: Vec<_> = known.iter().filter_map(|&id| read_index(writer.store(), id).ok()).collect();
    for (path, entry) in &mut verified.files {
        let at_path = || indexes.iter().filter_map(|index| Some(index.entry(index.find(path.as_bytes())?)));
        entry.modified =
            at_path().find(|other| other.content == entry.content).map_or(sealed_at, |known| known.modified);
        while at_path().any(|other| other.content != entry.content && other.modified == entry.modified) {
            entry.modified -= 1;
        }
    }
}
