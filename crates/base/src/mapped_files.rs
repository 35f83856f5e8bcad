//! The files that this process has mapped into memory. A mapping outlives the name of its file: the space of a removed
//! file is free only after the last mapping is gone.

use std::fs::Metadata;
use std::sync::{Arc, Weak};

use crate::directory::FileId;
use crate::locks::Mutex;

/// The mapped files. An inode number is not reused as long as the file is mapped.
static MAPPED_FILES: Mutex<Vec<(FileId, Weak<()>)>> = Mutex::new(Vec::new());

/// Registers a file as mapped, until the guard is dropped.
#[derive(Debug)]
pub struct MappingGuard {
    _alive: Arc<()>,
}

impl MappingGuard {
    /// Registers the file with this metadata as mapped.
    pub fn register(file: &Metadata) -> MappingGuard {
        let alive = Arc::new(());
        let mut mapped = MAPPED_FILES.lock();
        mapped.retain(|(_, alive)| alive.strong_count() > 0);
        mapped.push((FileId::from_metadata(file), Arc::downgrade(&alive)));
        MappingGuard { _alive: alive }
    }
}

/// The mappings of one file in this process.
#[derive(Debug)]
pub struct FileMappings(Vec<Weak<()>>);

impl FileMappings {
    /// Finds the mappings of the file with this metadata.
    pub fn find(file: &Metadata) -> FileMappings {
        let id = FileId::from_metadata(file);
        let mapped = MAPPED_FILES.lock();
        FileMappings(mapped.iter().filter(|(mapped, _)| *mapped == id).map(|(_, alive)| alive.clone()).collect())
    }

    /// Whether at least one of the mappings still exists.
    pub fn is_any_alive(&self) -> bool {
        self.0.iter().any(|alive| alive.strong_count() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_counts_as_mapped_until_its_last_guard_is_dropped() {
        let file = tempfile::tempfile().unwrap().metadata().unwrap();
        assert!(!FileMappings::find(&file).is_any_alive());
        let guards = (MappingGuard::register(&file), MappingGuard::register(&file));
        let mappings = FileMappings::find(&file);
        drop(guards.0);
        assert!(mappings.is_any_alive());
        drop(guards.1);
        assert!(!mappings.is_any_alive());
        assert!(!FileMappings::find(&file).is_any_alive());
    }

    #[test]
    fn mapping_guard_of_one_file_does_not_affect_another_file() {
        let [first, second] = [(); 2].map(|()| tempfile::tempfile().unwrap());
        let is_mapped = |file: &std::fs::File| FileMappings::find(&file.metadata().unwrap()).is_any_alive();
        let first_guard = MappingGuard::register(&first.metadata().unwrap());
        assert_eq!((is_mapped(&first), is_mapped(&second)), (true, false));
        let _second_guard = MappingGuard::register(&second.metadata().unwrap());
        assert_eq!(
            (is_mapped(&first), is_mapped(&second)),
            (true, true),
            "a later registration does not end an earlier one"
        );
        drop(first_guard);
        assert_eq!((is_mapped(&first), is_mapped(&second)), (false, true));
    }
}
