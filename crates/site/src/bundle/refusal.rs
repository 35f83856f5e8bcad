//! Reasons to refuse a bundle, and the checks that all readers share (docs/design/archives.md). A refusal is one line.
//! One faulty entry causes the refusal of the whole bundle.

use std::fmt;

use docwharf_base::codec::inflate::InflateFault;
use docwharf_base::error_chain::QuotedName;
use docwharf_base::model::limits::{
    BundleLimits, MAX_EXPANSION_RATIO, MAX_TOTAL_PATH_BYTES, MIN_BOMB_BYTES, is_decompression_bomb,
};
use docwharf_base::model::site_path::{EntryNameFault, SitePath, compare_tree_order};
use docwharf_base::model::units::format_size;

/// The refusal of a bundle: the entry and its fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct BundleRefusal {
    /// The name of the entry as the archive spells it; `None` for a fault of the bundle as a whole.
    pub entry: Option<Vec<u8>>,
    /// The fault of the entry or bundle.
    pub fault: BundleFault,
}

impl fmt::Display for BundleRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.entry {
            Some(name) => write!(f, "entry {} {}", QuotedName(name), self.fault),
            None => write!(f, "the bundle {}", self.fault),
        }
    }
}

/// A fault for which a bundle is refused. Each text continues "entry NAME …" or "the bundle …".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the texts are the documentation
pub enum BundleFault {
    #[error("{0}")]
    Name(#[from] EntryNameFault),
    #[error("is a {0}, which a bundle may not contain")]
    SpecialFile(&'static str),
    #[error("is a hard link to {}, which is not an earlier file", QuotedName(.0))]
    BadHardLink(Vec<u8>),
    #[error("occurs twice")]
    Duplicate,
    #[error("is both a file and a folder")]
    FileAndFolder,
    #[error("is a folder with content")]
    FolderWithContent,
    #[error("is marked as a folder, but its name does not end with a slash")]
    FolderNamedLikeFile,
    #[error("expands to over {} and over {MAX_EXPANSION_RATIO} times its size: a bomb", format_size(MIN_BOMB_BYTES))]
    Bomb,
    #[error("has over {0} entries (limits.entries)")]
    TooManyEntries(u64),
    #[error("expands to over {} (limits.unpacked)", format_size(*.0))]
    TooMuchContent(u64),
    #[error("is over {} (limits.archive)", format_size(*.0))]
    ArchiveTooLarge(u64),
    #[error("is over {} (limits.entry)", format_size(*.0))]
    EntryTooLarge(u64),
    #[error("has over {} of names", format_size(MAX_TOTAL_PATH_BYTES))]
    TooManyNameBytes,
    #[error("has another size than it declares")]
    WrongSize,
    #[error("was changed while it was read; try again when nothing writes to the folder")]
    ChangedWhileRead,
    #[error("does not match its checksum")]
    WrongCrc,
    #[error("cannot be read: {0}")]
    Inflate(#[from] InflateFault),
    #[error("is encrypted")]
    Encrypted,
    #[error("is compressed by method {0} ({name}); only stored and deflate are read", name = compression_method_name(*.0))]
    UnsupportedMethod(u16),
    #[error("has a local header that differs from the central directory in its {0}")]
    HeaderMismatch(&'static str),
    #[error("overlaps another entry")]
    Overlap,
    #[error("is damaged: {0}")]
    Damaged(&'static str),
    #[error("is cut short: {0}")]
    Truncated(&'static str),
    #[error("has an entry type that is not read ({})", QuotedName(&[*.0]))]
    TarType(u8),
    #[error("is a sparse file, which is not read")]
    Sparse,
    #[error("has no HTML page, so it is not a site")]
    NoPage,
    #[error("{0}")]
    NotAnArchive(String),
}

fn compression_method_name(method: u16) -> &'static str {
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

impl BundleFault {
    /// Returns advice for a fault that a person who received the bundle can explain; `None` if its maker is needed.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            BundleFault::Truncated(_) => Some("it was not copied or downloaded completely: do that again"),
            BundleFault::Name(EntryNameFault::DotDot | EntryNameFault::Absolute | EntryNameFault::Drive) => {
                Some("do not use this bundle, and ask who made it: its path leads out of the site")
            }
            _ => None,
        }
    }

    /// Makes a refusal for a fault of one entry.
    pub fn in_entry(self, entry: &[u8]) -> BundleRefusal {
        BundleRefusal { entry: Some(entry.to_vec()), fault: self }
    }

    /// Makes a refusal for a fault of the bundle as a whole.
    pub fn in_bundle(self) -> BundleRefusal {
        BundleRefusal { entry: None, fault: self }
    }
}

/// Counts entries, content bytes and name bytes while a bundle is read, and refuses it at the limits.
#[derive(Debug)]
pub struct LimitCounter {
    limits: BundleLimits,
    entries: u64,
    content_bytes: u64,
    name_bytes: u64,
}

impl LimitCounter {
    /// Creates counters at zero.
    pub fn new(limits: BundleLimits) -> LimitCounter {
        LimitCounter { limits, entries: 0, content_bytes: 0, name_bytes: 0 }
    }

    /// Counts one entry and its declared size. It is called before the content is read.
    pub fn count_entry(&mut self, name: &[u8], size: u64) -> Result<(), BundleRefusal> {
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(BundleFault::TooManyEntries(self.limits.entries).in_bundle());
        }
        self.name_bytes += name.len() as u64;
        if self.name_bytes > MAX_TOTAL_PATH_BYTES {
            return Err(BundleFault::TooManyNameBytes.in_bundle());
        }
        if size > self.limits.entry {
            return Err(BundleFault::EntryTooLarge(self.limits.entry).in_entry(name));
        }
        self.content_bytes = self.content_bytes.saturating_add(size);
        if self.content_bytes > self.limits.unpacked {
            return Err(BundleFault::TooMuchContent(self.limits.unpacked).in_bundle());
        }
        Ok(())
    }
}

/// Refuses a decompression bomb: `output` bytes that were decoded from `input` bytes (see [`is_decompression_bomb`]).
pub fn check_bomb(output: u64, input: u64, entry: Option<&[u8]>) -> Result<(), BundleRefusal> {
    if is_decompression_bomb(output, input) {
        return Err(BundleRefusal { entry: entry.map(<[u8]>::to_vec), fault: BundleFault::Bomb });
    }
    Ok(())
}

/// Refuses a file that occurs twice and a path that is both a file and a folder (docs/design/archives.md, rule 5).
pub fn check_path_conflicts<'a>(
    files: impl Iterator<Item = &'a SitePath>,
    folders: impl Iterator<Item = &'a SitePath>,
) -> Result<(), BundleRefusal> {
    let mut paths: Vec<(&[u8], bool)> =
        files.map(|p| (p.as_bytes(), true)).chain(folders.map(|p| (p.as_bytes(), false))).collect();
    paths.sort_unstable_by(|a, b| compare_tree_order(a.0, b.0).then(a.1.cmp(&b.1)));
    for pair in paths.windows(2) {
        let [(first, first_is_file), (second, second_is_file)] = *pair else {
            continue;
        };
        if first == second {
            if first_is_file && second_is_file {
                return Err(BundleFault::Duplicate.in_entry(first));
            }
            if first_is_file != second_is_file {
                return Err(BundleFault::FileAndFolder.in_entry(first));
            }
        } else if first_is_file && second.strip_prefix(first).is_some_and(|rest| rest.first() == Some(&b'/')) {
            return Err(BundleFault::FileAndFolder.in_entry(first));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_tree(files: &[&str], folders: &[&str]) -> Result<(), BundleFault> {
        let parse_paths = |names: &[&str]| -> Vec<SitePath> {
            names.iter().map(|n| SitePath::parse(n.as_bytes(), false).unwrap().unwrap()).collect()
        };
        check_path_conflicts(parse_paths(files).iter(), parse_paths(folders).iter()).map_err(|r| r.fault)
    }

    #[test]
    fn duplicate_paths_and_a_path_that_is_both_file_and_folder_are_refused() {
        assert_eq!(check_tree(&["a", "a-b/c", "a.x"], &["b", "b", "a-b"]), Ok(()));
        assert_eq!(check_tree(&["a", "b", "./a"], &[]), Err(BundleFault::Duplicate));
        assert_eq!(check_tree(&["a/b", "a-", "a"], &[]), Err(BundleFault::FileAndFolder));
        assert_eq!(check_tree(&["a"], &["a"]), Err(BundleFault::FileAndFolder));
        assert_eq!(check_tree(&["a", "a.b"], &["a/b/c"]), Err(BundleFault::FileAndFolder));
    }
}
