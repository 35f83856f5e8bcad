//! Access to files through an open directory, which another user with write access cannot redirect.
//!
//! Each call with a path resolves the path again, and a user who may write to any directory on the way can exchange a
//! name between two calls: the file that was checked is then not the file that is opened. A [`Directory`] is opened
//! once. All calls below it start at its descriptor, never leave it and follow no symbolic link (`openat2(2)` with
//! `RESOLVE_BENEATH`; component by component with `O_NOFOLLOW` where the kernel or a seccomp filter refuses that). An
//! opened file is checked by its own descriptor, and opening a named pipe never blocks.
//!
//! Source directories may contain links that stay inside: [`Directory::resolve_links`] returns the target as a path
//! without links, which is then opened like any other.

// Other users may write here, so a path may lead elsewhere by the time it is used. See `docwharf_base::directory`.
#![deny(clippy::disallowed_methods)]

mod open_directory;
mod ownership;
mod removal;
mod resolve;
#[cfg(test)]
#[allow(clippy::disallowed_methods)] // no other user writes to the directories of these tests
mod tests;

pub use open_directory::{
    Directory, DirectoryEntries, DirectoryEntry, EntryKind, FileAccess, FileId, FileRequirements, PathResolution,
    is_unsupported,
};
pub use resolve::SymlinkError;
