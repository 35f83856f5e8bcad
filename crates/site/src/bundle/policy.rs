//! What is refused, in one line (rules A). One hostile entry condemns the whole archive.

use std::fmt;

use docwharf_base::chain::Name;
use docwharf_base::codec::inflate::InflateFault;
use docwharf_base::model::limits::{BOMB_FLOOR, BOMB_RATIO, Limits, PATH_BYTES, is_bomb};
use docwharf_base::model::site_path::{NameFault, SitePath, tree_order};
use docwharf_base::model::units::show_size;

/// The verdict on a bundle that is not accepted: which entry, and what it does.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Refusal {
    /// The entry's name as the archive has it; `None` for a fault of the archive as a whole.
    pub entry: Option<Vec<u8>>,
    /// What is wrong.
    pub fault: Fault,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.entry {
            Some(name) => write!(f, "entry {} {}", Name(name), self.fault),
            None => write!(f, "the archive {}", self.fault),
        }
    }
}

/// Everything an archive can do wrong. Each text continues "entry NAME …" or "the archive …".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the texts are the documentation
pub enum Fault {
    #[error("{0}")]
    Name(#[from] NameFault),
    #[error("is a {0}, which no bundle needs")]
    Special(&'static str),
    #[error("is a hard link to {}, which is no earlier file", Name(.0))]
    BadHardLink(Vec<u8>),
    #[error("is there twice")]
    Duplicate,
    #[error("is both a file and a folder")]
    FileAndFolder,
    #[error("is a folder with content")]
    FolderWithContent,
    #[error("is called a folder but named like a file")]
    FolderNamedLikeFile,
    #[error("expands to over {} and over {BOMB_RATIO} times its size: a bomb", show_size(BOMB_FLOOR))]
    Bomb,
    #[error("has over {0} entries (limits.entries)")]
    TooManyEntries(u64),
    #[error("expands to over {} (limits.unpacked)", show_size(*.0))]
    TooMuchContent(u64),
    #[error("is over {} (limits.archive)", show_size(*.0))]
    ArchiveTooLarge(u64),
    #[error("is over {} (limits.entry)", show_size(*.0))]
    EntryTooLarge(u64),
    #[error("has over {} of names", show_size(PATH_BYTES))]
    TooManyNames,
    #[error("has another size than it declares")]
    WrongSize,
    #[error("was changed while it was read; try again when nothing writes to the folder")]
    Changed,
    #[error("does not match its checksum")]
    WrongCrc,
    #[error("cannot be read: {0}")]
    Inflate(#[from] InflateFault),
    #[error("is encrypted")]
    Encrypted,
    #[error("is compressed by method {0} ({name}); only stored and deflate are read", name = method_name(*.0))]
    Method(u16),
    #[error("has a local header that does not agree with the directory in its {0}")]
    Disagrees(&'static str),
    #[error("overlaps another entry")]
    Overlap,
    #[error("is damaged: {0}")]
    Damaged(&'static str),
    #[error("is cut short: {0}")]
    Cut(&'static str),
    #[error("has an entry type that is not read ({})", Name(&[*.0]))]
    TarType(u8),
    #[error("is a sparse file, which is not read")]
    Sparse,
    #[error("holds no HTML page: this is no site")]
    NoPage,
    #[error("{0}")]
    NotAnArchive(String),
}

fn method_name(method: u16) -> &'static str {
    match method {
        1..=5 => "shrink or reduce",
        6 => "implode",
        9 => "deflate64",
        12 => "bzip2",
        14 => "lzma",
        20 | 93 => "zstd",
        95 => "xz",
        96 => "jpeg",
        97 => "wavpack",
        98 => "ppmd",
        99 => "AES encryption",
        _ => "unknown",
    }
}

impl Fault {
    /// The fault of one entry.
    pub fn of(self, entry: &[u8]) -> Refusal {
        Refusal { entry: Some(entry.to_vec()), fault: self }
    }

    /// A fault of the archive as a whole.
    pub fn of_archive(self) -> Refusal {
        Refusal { entry: None, fault: self }
    }
}

/// Counts what a bundle costs while it is read, and stops it at the limits.
#[derive(Debug)]
pub struct Tally {
    limits: Limits,
    entries: u64,
    content: u64,
    names: u64,
}

impl Tally {
    /// Nothing counted yet.
    pub fn new(limits: Limits) -> Tally {
        Tally { limits, entries: 0, content: 0, names: 0 }
    }

    /// Counts one entry before its content is read.
    pub fn entry(&mut self, name: &[u8], size: u64) -> Result<(), Refusal> {
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(Fault::TooManyEntries(self.limits.entries).of_archive());
        }
        self.names += name.len() as u64;
        if self.names > PATH_BYTES {
            return Err(Fault::TooManyNames.of_archive());
        }
        if size > self.limits.entry {
            return Err(Fault::EntryTooLarge(self.limits.entry).of(name));
        }
        self.content = self.content.saturating_add(size);
        if self.content > self.limits.unpacked {
            return Err(Fault::TooMuchContent(self.limits.unpacked).of_archive());
        }
        Ok(())
    }
}

/// Refuses `output` bytes made from `input` bytes when they are a bomb.
pub fn check_bomb(output: u64, input: u64, entry: Option<&[u8]>) -> Result<(), Refusal> {
    if is_bomb(output, input) {
        return Err(Refusal { entry: entry.map(<[u8]>::to_vec), fault: Fault::Bomb });
    }
    Ok(())
}

/// Refuses a file that is there twice and a path that is both file and folder (rules A5).
pub fn check_tree<'a>(
    files: impl Iterator<Item = &'a SitePath>,
    folders: impl Iterator<Item = &'a SitePath>,
) -> Result<(), Refusal> {
    let mut all: Vec<(&[u8], bool)> =
        files.map(|p| (p.as_bytes(), true)).chain(folders.map(|p| (p.as_bytes(), false))).collect();
    all.sort_unstable_by(|a, b| tree_order(a.0, b.0).then(a.1.cmp(&b.1)));
    for pair in all.windows(2) {
        let [(first, first_is_file), (second, second_is_file)] = *pair else {
            continue;
        };
        if first == second {
            if first_is_file && second_is_file {
                return Err(Fault::Duplicate.of(first));
            }
            if first_is_file != second_is_file {
                return Err(Fault::FileAndFolder.of(first));
            }
        } else if first_is_file && second.strip_prefix(first).is_some_and(|rest| rest.first() == Some(&b'/')) {
            return Err(Fault::FileAndFolder.of(first));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[&str], folders: &[&str]) -> Result<(), Fault> {
        let judge = |names: &[&str]| -> Vec<SitePath> {
            names.iter().map(|n| SitePath::judge(n.as_bytes(), false).unwrap().unwrap()).collect()
        };
        check_tree(judge(files).iter(), judge(folders).iter()).map_err(|r| r.fault)
    }

    #[test]
    fn a_path_is_one_thing_once() {
        assert_eq!(tree(&["a", "a-b/c", "a.x"], &["b", "b", "a-b"]), Ok(()));
        assert_eq!(tree(&["a", "b", "./a"], &[]), Err(Fault::Duplicate));
        assert_eq!(tree(&["a/b", "a-", "a"], &[]), Err(Fault::FileAndFolder));
        assert_eq!(tree(&["a"], &["a"]), Err(Fault::FileAndFolder));
        assert_eq!(tree(&["a", "a.b"], &["a/b/c"]), Err(Fault::FileAndFolder));
    }
}
