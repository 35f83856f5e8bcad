//! Which files this process has mapped. A mapping outlives its file's name: the disk has the room of a file that was removed
//! only when the last mapping has gone.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Device and inode. An inode is not given to another file as long as it is mapped.
type Inode = (u64, u64);

static MAPPED: Mutex<Vec<(Inode, Weak<()>)>> = Mutex::new(Vec::new());

/// Says that a file is mapped, for as long as it is kept.
#[derive(Debug)]
pub struct Note {
    _alive: Arc<()>,
}

impl Note {
    /// The file with this metadata is mapped from now on.
    pub fn of(file: &Metadata) -> Note {
        let alive = Arc::new(());
        let mut mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
        mapped.retain(|(_, alive)| alive.strong_count() > 0);
        mapped.push((inode(file), Arc::downgrade(&alive)));
        Note { _alive: alive }
    }
}

/// The mappings of one file by this process.
#[derive(Debug)]
pub struct Mappings(Vec<Weak<()>>);

impl Mappings {
    /// Those of the file with this metadata.
    pub fn of(file: &Metadata) -> Mappings {
        let mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
        Mappings(mapped.iter().filter(|(mapped, _)| *mapped == inode(file)).map(|(_, alive)| alive.clone()).collect())
    }

    /// Whether one of them is still there.
    pub fn are_there(&self) -> bool {
        self.0.iter().any(|alive| alive.strong_count() > 0)
    }
}

fn inode(file: &Metadata) -> Inode {
    (file.dev(), file.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_mapped_as_long_as_one_of_its_notes_is_kept() {
        let file = tempfile::tempfile().unwrap().metadata().unwrap();
        assert!(!Mappings::of(&file).are_there());
        let notes = (Note::of(&file), Note::of(&file));
        let mappings = Mappings::of(&file);
        drop(notes.0);
        assert!(mappings.are_there());
        drop(notes.1);
        assert!(!mappings.are_there());
        assert!(!Mappings::of(&file).are_there());
    }

    #[test]
    fn the_note_of_one_file_says_nothing_of_another() {
        let [one, other] = [(); 2].map(|()| tempfile::tempfile().unwrap());
        let of = |file: &std::fs::File| Mappings::of(&file.metadata().unwrap()).are_there();
        let note = Note::of(&one.metadata().unwrap());
        assert_eq!((of(&one), of(&other)), (true, false));
        let _second = Note::of(&other.metadata().unwrap());
        assert_eq!((of(&one), of(&other)), (true, true), "a note outlives those that are taken later");
        drop(note);
        assert_eq!((of(&one), of(&other)), (false, true));
    }
}
