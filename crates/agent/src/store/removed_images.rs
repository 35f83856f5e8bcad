//! Images that were removed while they were mapped: their disk space becomes free when the mapping ends.

use docwharf_base::locks::Mutex;
use docwharf_base::mapped_files::FileMappings;

/// Images that were removed while this process had them mapped, with their sizes in bytes.
#[derive(Debug, Default)]
pub(super) struct RemovedImages(Mutex<Vec<(FileMappings, u64)>>);

impl RemovedImages {
    /// Adds an image that has been removed; it counts as long as it is mapped.
    pub(super) fn add(&self, mappings: FileMappings, bytes: u64) {
        if mappings.is_any_alive() {
            self.0.lock().push((mappings, bytes));
        }
    }

    /// Returns the bytes of the removed images that are still mapped.
    pub(super) fn mapped_bytes(&self) -> u64 {
        let mut removed = self.0.lock();
        removed.retain(|(mappings, _)| mappings.is_any_alive());
        removed.iter().map(|(_, bytes)| bytes).sum()
    }
}
