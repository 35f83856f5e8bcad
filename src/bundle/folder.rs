//! A folder as a bundle: a snapshot of what lies in it.
//!
//! Unlike in an archive, a symbolic link is no attack here: one that stays inside is followed, any other is left out
//! with a warning, and so are loops, sockets, fifos and devices.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::model::limits::Limits;
use crate::model::site_path::SitePath;
use crate::model::units::unix_seconds;

use super::policy::{Fault, Tally};
use super::{Entries, EntryKind, Head, ReadError, Sink};

/// One regular file of a folder.
#[derive(Debug, Clone)]
pub struct Item {
    /// Its path below the folder.
    pub path: SitePath,
    /// Where it is.
    pub file: PathBuf,
    /// Its size when it was listed.
    pub size: u64,
    /// When it was last changed.
    pub modified: SystemTime,
}

/// A folder that has been walked.
#[derive(Debug)]
pub struct Folder {
    /// Regular files in byte order of their paths.
    pub items: Vec<Item>,
    /// What was left out, one line each, the first few.
    pub warnings: Vec<String>,
    next: usize,
    /// The file whose content may be asked for.
    current: Option<usize>,
}

struct Walk {
    root: PathBuf,
    tally: Tally,
    found: Folder,
    /// Canonical paths of the folders being walked, to notice loops.
    above: Vec<PathBuf>,
}

impl Folder {
    /// Walks `root`.
    pub fn open(root: &Path, limits: &Limits) -> Result<Folder, ReadError> {
        let canonical = root.canonicalize().map_err(ReadError::io(root))?;
        let mut walk = Walk {
            root: canonical.clone(),
            tally: Tally::new(*limits),
            found: Folder { items: Vec::new(), warnings: Vec::new(), next: 0, current: None },
            above: Vec::new(),
        };
        walk.folder(&canonical, &mut Vec::new())?;
        let mut found = walk.found;
        found.items.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }
}

impl Walk {
    fn folder(&mut self, dir: &Path, name: &mut Vec<u8>) -> Result<(), ReadError> {
        self.above.push(dir.to_owned());
        for entry in fs::read_dir(dir).map_err(ReadError::io(dir))? {
            let entry = entry.map_err(ReadError::io(dir))?;
            let length = name.len();
            if length > 0 {
                name.push(b'/');
            }
            name.extend_from_slice(entry.file_name().as_bytes());
            self.entry(&entry.path(), name)?;
            name.truncate(length);
        }
        self.above.pop();
        Ok(())
    }

    fn entry(&mut self, file: &Path, name: &mut Vec<u8>) -> Result<(), ReadError> {
        let metadata = fs::symlink_metadata(file).map_err(ReadError::io(file))?;
        if !metadata.is_symlink() {
            return self.plain(file, &metadata, name);
        }
        match file.canonicalize() {
            Err(_) => self.leave_out(name, "a link that leads nowhere"),
            Ok(target) if !target.starts_with(&self.root) => self.leave_out(name, "a link that leads outside"),
            Ok(target) if self.above.contains(&target) => self.leave_out(name, "a link that leads round in a loop"),
            Ok(target) => {
                let metadata = fs::metadata(&target).map_err(ReadError::io(file))?;
                return self.plain(&target, &metadata, name);
            }
        }
        Ok(())
    }

    fn plain(&mut self, file: &Path, metadata: &fs::Metadata, name: &mut Vec<u8>) -> Result<(), ReadError> {
        if metadata.is_dir() {
            self.tally.entry(name, 0)?;
            return self.folder(file, name);
        }
        if !metadata.is_file() {
            self.leave_out(name, "neither file nor folder");
            return Ok(());
        }
        self.tally.entry(name, metadata.len())?;
        let judged = SitePath::judge(name, false).map_err(|fault| Fault::Name(fault).of(name))?;
        if let Some(path) = judged {
            let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            self.found.items.push(Item { path, file: file.to_owned(), size: metadata.len(), modified });
        }
        Ok(())
    }

    fn leave_out(&mut self, name: &[u8], why: &str) {
        self.found.warnings.push(format!("{} is left out: {why}", crate::base::chain::Name(name)));
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
        let Some(item) = self.current.take().and_then(|i| self.items.get(i)) else {
            return Ok(());
        };
        let mut file = File::open(&item.file).map_err(ReadError::io(&item.file))?;
        let mut buffer = vec![0; (item.size as usize).clamp(1, 256 * 1024)];
        let mut left = item.size;
        while left > 0 {
            let want = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let n = file.read(&mut buffer[..want]).map_err(ReadError::io(&item.file))?;
            if n == 0 {
                return Err(Fault::WrongSize.of(item.path.as_bytes()).into());
            }
            sink(&buffer[..n])?;
            left -= n as u64;
        }
        Ok(())
    }
}
