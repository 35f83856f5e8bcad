//! A version as a plain folder for another server, such as an nginx in the same pod.
//!
//! ```text
//! <id>/              the site as files; never changed once it is here
//! current            -> <id>, a relative link that is replaced by rename
//! .docwharf.json     which of the folders are ours, and since when they are no longer current (see `record`)
//! .docwharf.lock     flock: one of us publishes at a time
//! .staging-…/        unfinished work, and what is being removed; swept at the next publishing
//! ```
//!
//! A site is built aside. Once `syncfs` has brought it to disk as a whole, which costs little whether it has ten files or
//! a hundred thousand, the record names it, it is renamed to its id and the link is flipped. So `<id>` is whole or
//! absent at any instant, and who opens `current/…` gets a file of the one version or of the other.
//!
//! A file that has not changed since an earlier folder is linked, not written. The other server may be able to write here
//! as well, so what is linked has to look untouched (owner, mode, size and time) and is then read and compared with its
//! digest: whatever was done to one folder does not reach the next. Only a file of the same path is linked: files carry
//! the time since when their path has had their content, from which servers such as nginx make entity tags.
//!
//! Folders that the record does not name, and anything else that lies here, are left alone.

// Other users may write here: what is reached by path may lead elsewhere by then. See `base/directory`.
#![deny(clippy::disallowed_methods)]

mod build;
mod place;
mod record;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use docwharf_base::directory::Directory;
use docwharf_base::model::units::unix_seconds;
use docwharf_base::model::version::VersionId;
use docwharf_site::sealed::Sealed;
use docwharf_site::tree::Modes;

use place::Place;

/// The link's name.
pub const CURRENT: &str = "current";
/// How long a folder that has been replaced stays, for readers that have not looked at the link since.
const GRACE: Duration = Duration::from_mins(15);

/// Where to publish, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The folder.
    pub directory: PathBuf,
    /// The store, which it must not lie in.
    pub store: PathBuf,
    /// What files and folders get, whatever the umask says.
    pub modes: Modes,
}

/// How closely a folder that is there already is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Care {
    /// What the link and the record say is believed.
    Glance,
    /// Every file has to be there with its owner, mode, size and time.
    Look,
}

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Published {
    /// Whether the link was flipped or its folder made anew.
    pub changed: bool,
    /// Files that were written.
    pub written: u64,
    /// Files that were linked from an earlier folder.
    pub linked: u64,
}

/// Why `current` still leads where it did.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// What is published must not be able to harm the store.
    #[error("cannot publish into {}: it is the store or lies in it; give publish.directory a place of its own", .0.display())]
    InStore(PathBuf),
    /// Something else than a link lies where the link is to be.
    #[error("cannot publish: {} is there and is no symbolic link; move it away, or publish elsewhere", .0.display())]
    NotALink(PathBuf),
    /// A folder with the version's name that we have not made.
    #[error("cannot publish: {} is there and not known as made by docwharf; move it away, or publish elsewhere", .0.display())]
    Foreign(PathBuf),
    /// Somebody else publishes here and does not come to an end.
    #[error("cannot publish into {}: another docwharf does so just now", .0.display())]
    Busy(PathBuf),
    /// The operating system failed.
    #[error("cannot publish: cannot {doing} {}", path.display())]
    Io {
        /// What was being done: "read", "write", …
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl PublishError {
    fn io<'a, E: Into<io::Error>>(doing: &'static str, path: &'a Path) -> impl FnOnce(E) -> PublishError + 'a {
        move |source| PublishError::Io { doing, path: path.to_owned(), source: source.into() }
    }
}

/// Makes `current` lead to the whole of `version`, if it does not already, and removes what nobody needs any more. After
/// a failure it leads where it did.
pub fn bring_up_to_date(settings: &Settings, version: &Sealed, care: Care) -> Result<Published, PublishError> {
    let id = version.id;
    let place = Place::open(settings)?;
    let now = unix_seconds(SystemTime::now());
    let current = place.current()?;
    let mut record = place.record()?;
    record.observe(current, now, |id| place.has(id));
    let mut done = Published::default();
    let believed = care == Care::Glance && current == Some(id);
    if !(record.has(id, settings.modes) && (believed || place.is_whole(version))) {
        done = place.bring(version, &mut record, current, now)?;
    }
    if current != Some(id) {
        record.succeed(id, current, now);
        place.write_record(&record)?;
        place.flip(id)?;
        done.changed = true;
    }
    place.remove_surplus(&mut record, id, now);
    Ok(done)
}

/// The version that `current` leads to, if it is one of ours.
pub fn published(settings: &Settings) -> Option<VersionId> {
    place::target(&Directory::open(&settings.directory).ok()?).ok()?
}
