//! A folder as a bundle: a snapshot of what lies in it.
//!
//! Unlike in an archive, a symbolic link is no attack here: one that stays inside is followed, any other is left out
//! with a warning, and so are loops, sockets, fifos and devices.
//!
//! Other users may write to the folder, and they may not be allowed to read what its reader is allowed to. So the folder
//! is opened once. The place of each file is noted with its links resolved, and is later opened below that descriptor
//! without following any. What is opened must be the very file that was listed, with the size that it had; a file that was
//! exchanged or has grown or shrunk is an error ([`Fault::Changed`]), never other content.

// Other users may write here: what is reached by path may lead elsewhere by then. See `base/directory`.
#![deny(clippy::disallowed_methods)]

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use docwharf_base::directory::{Directory, EntryKind as Kind, FileId, LinkError};
use docwharf_base::model::limits::Limits;
use docwharf_base::model::site_path::SitePath;
use docwharf_base::model::units::unix_seconds;

use super::policy::{Fault, Tally};
use super::{Entries, EntryKind, Head, ReadError, Sink};

/// One regular file of a folder.
#[derive(Debug, Clone)]
pub struct Item {
    /// Its path below the folder.
    pub path: SitePath,
    /// Where it lies below the folder once links are followed.
    real: PathBuf,
    /// Its size when it was listed.
    pub size: u64,
    /// When it was last changed.
    pub modified: SystemTime,
    /// Which file it was when it was listed.
    id: FileId,
}

/// A folder that has been walked.
#[derive(Debug)]
pub struct Folder {
    root: Directory,
    /// Regular files in byte order of their paths.
    pub items: Vec<Item>,
    /// What was left out, one line each, the first few.
    pub warnings: Vec<String>,
    next: usize,
    /// The file whose content may be asked for.
    current: Option<usize>,
}

struct Walk {
    tally: Tally,
    found: Folder,
    /// The folders being walked, to notice loops.
    above: Vec<FileId>,
}

impl Folder {
    /// Walks `root`.
    pub fn open(root: &Path, limits: &Limits) -> Result<Folder, ReadError> {
        #[allow(clippy::disallowed_methods)] // the path that the person or the configuration names
        let directory = root.canonicalize().and_then(|root| Directory::open_unlinked(&root));
        let directory = directory.map_err(ReadError::io(root))?;
        let mut walk = Walk {
            tally: Tally::new(*limits),
            found: Folder { root: directory, items: Vec::new(), warnings: Vec::new(), next: 0, current: None },
            above: Vec::new(),
        };
        walk.folder(Path::new(""), &mut Vec::new())?;
        let mut found = walk.found;
        found.items.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    /// Opens a file of this folder as it was listed.
    pub fn file(&self, item: &Item) -> Result<File, ReadError> {
        let file = self.root.file(&item.real).map_err(ReadError::io(&self.root.path().join(&item.real)))?;
        let metadata = file.metadata().map_err(ReadError::io(&self.root.path().join(&item.real)))?;
        if FileId::of(&metadata) != item.id || metadata.len() != item.size {
            return Err(Fault::Changed.of(item.path.as_bytes()).into());
        }
        Ok(file)
    }

    /// Reads a file of this folder to its end, which must be where it was when it was listed.
    pub fn read(&self, item: &Item, sink: &mut Sink<'_>) -> Result<(), ReadError> {
        let mut file = self.file(item)?;
        let mut read = |buffer: &mut [u8]| {
            file.read(buffer).map_err(|source| ReadError::Io { path: self.root.path().join(&item.real), source })
        };
        let mut buffer = vec![0; (item.size as usize).clamp(1, 256 * 1024)];
        let mut left = item.size;
        while left > 0 {
            let want = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let n = read(&mut buffer[..want])?;
            if n == 0 {
                return Err(Fault::Changed.of(item.path.as_bytes()).into());
            }
            sink(&buffer[..n])?;
            left -= n as u64;
        }
        if read(&mut buffer[..1])? > 0 {
            return Err(Fault::Changed.of(item.path.as_bytes()).into());
        }
        Ok(())
    }
}

impl Walk {
    /// Walks the folder that lies at `real` below the root. No more than one descriptor is held open, however deep it is.
    fn folder(&mut self, real: &Path, name: &mut Vec<u8>) -> Result<(), ReadError> {
        let shown = self.found.root.path().join(real);
        let directory = self.found.root.directory(real).map_err(ReadError::io(&shown))?;
        self.above.push(FileId::of(&directory.metadata().map_err(ReadError::io(&shown))?));
        let mut folders = Vec::new();
        for entry in directory.entries().map_err(ReadError::io(&shown))? {
            let entry = entry.map_err(ReadError::io(&shown))?;
            let length = name.len();
            if length > 0 {
                name.push(b'/');
            }
            name.extend_from_slice(entry.name.as_bytes());
            let (place, metadata) = if entry.kind == Kind::Link {
                (self.target(&real.join(&entry.name), name), None)
            } else {
                let metadata = directory.metadata_of(&entry.name).map_err(ReadError::io(&shown.join(&entry.name)))?;
                (Some(real.join(&entry.name)), Some(metadata))
            };
            if let Some(place) = place
                && self.entry(&place, metadata, name)?
            {
                folders.push((place, name.clone()));
            }
            name.truncate(length);
        }
        drop(directory);
        for (place, mut name) in folders {
            self.folder(&place, &mut name)?;
        }
        self.above.pop();
        Ok(())
    }

    /// Where a link leads, if it is to be followed.
    fn target(&mut self, link: &Path, name: &[u8]) -> Option<PathBuf> {
        match self.found.root.resolve(link) {
            Ok(target) => return Some(target),
            Err(LinkError::Outside) => self.leave_out(name, "a link that leads outside"),
            Err(LinkError::Loop | LinkError::Nowhere(_)) => self.leave_out(name, "a link that leads nowhere"),
        }
        None
    }

    /// Takes in what lies at `place`; whether it is a folder that is to be walked.
    fn entry(&mut self, place: &Path, listed: Option<Metadata>, name: &[u8]) -> Result<bool, ReadError> {
        let is_link = listed.is_none();
        let Some(metadata) = listed.or_else(|| self.found.root.metadata_of(place).ok()) else {
            self.leave_out(name, "a link that leads nowhere");
            return Ok(false);
        };
        if metadata.is_dir() {
            if is_link && self.above.contains(&FileId::of(&metadata)) {
                self.leave_out(name, "a link that leads round in a loop");
                return Ok(false);
            }
            self.tally.entry(name, 0)?;
            return Ok(true);
        }
        if !metadata.is_file() {
            self.leave_out(name, "neither file nor folder");
            return Ok(false);
        }
        self.tally.entry(name, metadata.len())?;
        let judged = SitePath::judge(name, false).map_err(|fault| Fault::Name(fault).of(name))?;
        if let Some(path) = judged {
            let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let (size, id) = (metadata.len(), FileId::of(&metadata));
            self.found.items.push(Item { path, real: place.to_owned(), size, modified, id });
        }
        Ok(false)
    }

    fn leave_out(&mut self, name: &[u8], why: &str) {
        self.found.warnings.push(format!("{} is left out: {why}", docwharf_base::chain::Name(name)));
    }
}

impl Entries for Folder {
    fn next_entry(&mut self) -> Result<Option<Head>, ReadError> {
        let Some(item) = self.items.get(self.next) else {
            return Ok(None);
        };
        self.current = Some(self.next);
        self.next += 1;
        Ok(Some(Head {
            path: Some(item.path.clone()),
            kind: EntryKind::File,
            size: item.size,
            modified: unix_seconds(item.modified),
        }))
    }

    fn content(&mut self, sink: &mut Sink<'_>) -> Result<(), ReadError> {
        match self.current.take().and_then(|i| self.items.get(i)) {
            Some(item) => self.read(item, sink),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // folders that nobody else knows
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    /// A folder with `a/page.html` in it, opened, and a secret of the same length beside it.
    fn opened() -> (tempfile::TempDir, PathBuf, Folder) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("site");
        fs::create_dir_all(root.join("a")).unwrap();
        fs::write(root.join("a/page.html"), "public").unwrap();
        fs::write(dir.path().join("page.html"), "secret").unwrap();
        let folder = Folder::open(&root, &Limits::default()).unwrap();
        (dir, root, folder)
    }

    fn content(folder: &mut Folder) -> Result<Vec<u8>, ReadError> {
        let mut bytes = Vec::new();
        folder.next_entry()?.expect("an entry");
        folder.content(&mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(bytes)
    }

    #[test]
    fn a_file_that_grows_or_shrinks_while_it_is_read_is_told_of() {
        const PIECE: usize = 256 * 1024;
        for (size, change) in [(PIECE, 1), (PIECE + 1, 1), (3 * PIECE, -1), (PIECE, 0), (3 * PIECE, 0)] {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("page.html");
            fs::write(&file, vec![b'x'; size]).unwrap();
            let mut folder = Folder::open(dir.path(), &Limits::default()).unwrap();
            folder.next_entry().unwrap();
            let to_len = size.checked_add_signed(change).unwrap() as u64;
            let read = folder.content(&mut |_| {
                File::options().write(true).open(&file).unwrap().set_len(to_len).unwrap();
                Ok(())
            });
            let is_told = matches!(&read, Err(ReadError::Refused(refusal)) if refusal.fault == Fault::Changed);
            assert!(is_told == (change != 0) && read.is_ok() != is_told, "{size} {change}: {read:?}");
        }
    }

    #[test]
    fn what_was_listed_is_what_is_read_or_nothing_is() {
        let exchanges: [fn(&Path, &Path); 6] = [
            |dir, root| {
                fs::remove_file(root.join("a/page.html")).unwrap();
                symlink(dir.join("page.html"), root.join("a/page.html")).unwrap();
            },
            |dir, root| {
                fs::rename(root.join("a"), root.join("b")).unwrap();
                symlink(dir, root.join("a")).unwrap();
            },
            |dir, root| fs::rename(dir.join("page.html"), root.join("a/page.html")).unwrap(),
            |_, root| {
                fs::remove_file(root.join("a/page.html")).unwrap();
                mknodat(CWD, root.join("a/page.html"), FileType::Fifo, Mode::RWXU, 0).unwrap();
            },
            |_, root| fs::write(root.join("a/page.html"), "grown since").unwrap(),
            |_, root| fs::write(root.join("a/page.html"), "cut").unwrap(),
        ];
        for (n, exchange) in exchanges.into_iter().enumerate() {
            let (dir, root, mut folder) = opened();
            exchange(dir.path(), &root);
            assert!(content(&mut folder).is_err(), "exchange {n}");
        }
        let (dir, root, mut folder) = opened();
        // The folder itself may be exchanged: what is open is what is read.
        fs::rename(&root, dir.path().join("was")).unwrap();
        symlink(dir.path(), &root).unwrap();
        assert_eq!(content(&mut folder).unwrap(), b"public");
    }

    #[test]
    fn links_that_stay_inside_are_followed_to_what_they_led_to() {
        let (dir, root, _) = opened();
        symlink("../a/page.html", root.join("a/relative.html")).unwrap();
        symlink(root.join("a"), root.join("absolute")).unwrap();
        symlink("../page.html", root.join("outside.html")).unwrap();
        symlink("..", root.join("a/round")).unwrap();
        let folder = Folder::open(&root, &Limits::default()).unwrap();
        let paths: Vec<_> = folder.items.iter().map(|item| item.path.as_bytes()).collect();
        let expected = ["a/page.html", "a/relative.html", "absolute/page.html", "absolute/relative.html"];
        assert_eq!(paths, expected.map(str::as_bytes));
        assert_eq!(folder.warnings.len(), 3, "{:?}", folder.warnings);
        // One that leads elsewhere afterwards is not followed anew.
        fs::remove_file(root.join("absolute")).unwrap();
        symlink(dir.path(), root.join("absolute")).unwrap();
        let mut folder = folder;
        for _ in 0..4 {
            assert_eq!(content(&mut folder).unwrap(), b"public");
        }
    }
}
