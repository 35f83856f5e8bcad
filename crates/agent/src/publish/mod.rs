//! Publication of a version as plain files for another server, such as an nginx in the same pod.
//!
//! ```text
//! <id>/              the site as files; never changed afterwards
//! current            -> <id>, a relative link that is replaced by rename
//! .docwharf.json     the directories that docwharf has made, and when each was replaced (see `record`)
//! .docwharf.lock     flock: one process publishes at a time
//! .staging-…/        unfinished directories, and directories being removed; removed at the next publication
//! ```
//!
//! A site is built in a staging directory. `syncfs` then writes the whole directory to disk, which is cheap for ten
//! files and for a hundred thousand. The directory is added to the record, renamed to its id, and the link is replaced.
//! Therefore `<id>` is complete or absent at any time, and a server that opens `current/…` gets a file of one of the
//! two versions.
//!
//! A file that has not changed since an earlier directory is hard-linked, not written. The other server may have write
//! access as well, so a file to link must have the expected owner, mode, size and time, and is then read and compared
//! with its digest: a change made in one directory is not copied to the next. Only a file with the same path is linked,
//! because the modification time of a file is the time at which its path got this content; servers such as nginx derive
//! entity tags from it.
//!
//! Directories that are not in the record, and all other files in the directory, are never changed.

// Other users may write here, so a path may lead to another file when it is used. See `docwharf_base::directory`.
#![deny(clippy::disallowed_methods)]

mod error;
mod publish_directory;
mod record;
mod settings;
mod tree_builder;

use docwharf_base::clock::now_unix_seconds;
use docwharf_base::directory::Directory;
use docwharf_base::model::version::VersionId;
use docwharf_site::sealed_version::SealedVersion;

pub use error::PublishError;
pub use publish_directory::CURRENT_LINK;
use publish_directory::PublishDirectory;
pub use settings::PublishSettings;
pub use tree_builder::PublishOutcome;

/// How thoroughly an existing directory is checked before it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishCheck {
    /// The link and the record are trusted.
    TrustRecord,
    /// Every file must exist with its owner, mode, size and time.
    CheckFiles,
}

/// Publishes `version`: `current` then links to a complete copy of it. Directories that are no longer needed are
/// removed. After an error `current` links to the same directory as before, unless only the final sync of the directory
/// failed.
pub fn publish_version(
    settings: &PublishSettings,
    version: &SealedVersion,
    check: PublishCheck,
) -> Result<PublishOutcome, PublishError> {
    let id = version.id;
    let directory = PublishDirectory::open(settings)?;
    let now = now_unix_seconds();
    let current = directory.current_version()?;
    let mut record = directory.record()?;
    record.reconcile_with_disk(current, now, |id| directory.has_version(id));
    let mut outcome = PublishOutcome::default();
    let is_trusted = check == PublishCheck::TrustRecord && current == Some(id);
    if !(record.has_directory_with_modes(id, settings.modes) && (is_trusted || directory.is_complete(version))) {
        outcome = directory.build_version(version, &mut record, current, now)?;
    }
    if current != Some(id) {
        record.set_current(id, current, now);
        directory.write_record(&record)?;
        directory.replace_link(id)?;
        outcome.changed = true;
    }
    directory.remove_unneeded(&mut record, id, now);
    Ok(outcome)
}

/// Returns the version that `current` links to, if it links to one.
pub fn published_version(settings: &PublishSettings) -> Option<VersionId> {
    publish_directory::read_link_target(&Directory::open(&settings.directory).ok()?).ok()?
}
