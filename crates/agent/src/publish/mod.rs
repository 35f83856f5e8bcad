//! Publication of a version as plain files for another server, such as an nginx in the same pod.
//!
//! ```text
//! <id>/              the site as files; never changed once it is here
//! current            -> <id>, a relative link that is replaced by rename
//! .docwharf.json     the directories that docwharf has made, and when each was replaced (see `record`)
//! .docwharf.lock     flock: one process publishes at a time
//! .staging-…/        unfinished work, and directories being removed; swept at the next publication
//! ```
//!
//! A site is built in a staging directory. `syncfs` then writes it to disk as a whole, which costs little whether it
//! has ten files or a hundred thousand. The record names it, it is renamed to its id, and the link is replaced. So
//! `<id>` is complete or absent at any instant, and a server that opens `current/…` gets a file of either version.
//!
//! A file that has not changed since an earlier directory is linked, not written. The other server may have write
//! access as well, so a file to link must have the expected owner, mode, size and time, and is then read and compared
//! with its digest: a change made in one directory does not spread to the next. Only a file of the same path is linked,
//! because the modification time of a file says since when its path has had its content; servers such as nginx make
//! entity tags of it.
//!
//! Directories that the record does not name, and all other files here, are never changed.

// Other users may write here, so a path may lead elsewhere by the time it is used. See `docwharf_base::directory`.
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

/// How thoroughly an existing directory is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishCheck {
    /// The link and the record are trusted.
    TrustRecord,
    /// Every file must exist with its owner, mode, size and time.
    CheckFiles,
}

/// Publishes `version`: `current` then leads to a complete copy of it. Directories that are no longer needed are
/// removed. After an error `current` leads where it did before.
pub fn publish_version(
    settings: &PublishSettings,
    version: &SealedVersion,
    care: PublishCheck,
) -> Result<PublishOutcome, PublishError> {
    let id = version.id;
    let place = PublishDirectory::open(settings)?;
    let now = now_unix_seconds();
    let current = place.current_version()?;
    let mut record = place.record()?;
    record.correct_by_state(current, now, |id| place.has_version(id));
    let mut done = PublishOutcome::default();
    let believed = care == PublishCheck::TrustRecord && current == Some(id);
    if !(record.has(id, settings.modes) && (believed || place.is_whole(version))) {
        done = place.build_version(version, &mut record, current, now)?;
    }
    if current != Some(id) {
        record.set_current(id, current, now);
        place.write_record(&record)?;
        place.replace_link(id)?;
        done.changed = true;
    }
    place.remove_unneeded(&mut record, id, now);
    Ok(done)
}

/// Returns the version that `current` leads to, if the link names one.
pub fn published_version(settings: &PublishSettings) -> Option<VersionId> {
    publish_directory::read_link_target(&Directory::open(&settings.directory).ok()?).ok()?
}
