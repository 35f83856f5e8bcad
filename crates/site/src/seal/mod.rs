//! Proving and sealing: a bundle becomes a sealed image and the records of its index, or is refused.
//!
//! A ZIP is copied first and proved from the copy, all its members in parallel; when it fits it *is* the image
//! ([`adopt`]). Anything else is decoded by one thread and compressed by others into a new image ([`rewrite`]). Either
//! way every byte has been read to the end of the archive before anyone else sees the result.

// Other users may write here: what is reached by path may lead elsewhere by then. See `base/directory`.
#![deny(clippy::disallowed_methods)]

mod adopt;
mod copying;
#[allow(clippy::disallowed_methods)] // who packs says where to
pub mod pack;
pub mod recode;
mod rewrite;
#[allow(clippy::disallowed_methods)] // who unpacks says where to
pub mod unpack;

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use docwharf_base::cores;
use docwharf_base::directory::{Access, Demands, Directory, FileId};
use docwharf_base::growth::Growth;
use docwharf_base::regular;
use crate::bundle::flavor::Flavor;
use crate::bundle::folder::Folder;
use crate::bundle::format::{self, Archive};
use crate::bundle::policy::{Fault, Refusal, check_tree};
use crate::bundle::tar::Tar;
use crate::bundle::zip::Zip;
use crate::bundle::zip_member::ZipStream;
use crate::bundle::{Entries, Kind, ReadError};
use docwharf_base::model::digest::Digest;
use docwharf_base::model::limits::Limits;
use docwharf_base::model::site_path::SitePath;
use docwharf_base::model::version::{Manifest, VersionId};
use crate::image::ImageWriter;
use crate::index::{self, Entry};

/// An image is made once and mostly sent to browsers on the same site: little effort is enough.
const FASTEST: u32 = 1;

/// How much work, and how much of it at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// What an archive may cost.
    pub limits: Limits,
    /// Threads that prove or compress, besides the one that reads.
    pub threads: usize,
    /// Whether the image must survive a power cut.
    pub durable: bool,
    /// zlib's level for what is compressed anew, 1 to 9.
    pub level: u32,
    /// Whether the bundle is ours, on the file system of the image, and may be moved.
    pub take: bool,
}

impl Effort {
    /// All cores, not durable.
    pub fn new(limits: Limits) -> Effort {
        Effort { limits, threads: cores::count(), durable: false, level: FASTEST, take: false }
    }
}

/// How far sealing has come, for whoever shows it.
#[derive(Debug, Default)]
pub struct Meter {
    done: AtomicU64,
    files: AtomicU64,
}

impl Meter {
    /// Bytes of content read.
    pub fn bytes(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Files read.
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        self.files.fetch_add(1, Ordering::Relaxed);
    }
}

/// Where images are written while nobody knows yet whether they are good.
#[derive(Debug)]
pub enum Space {
    /// Named files in a folder of the store, which another user may own.
    Dir(Directory),
    /// Files without a name in this folder, gone with the process.
    Unlinked(PathBuf),
}

/// The name of the image in [`Space::Dir`].
pub const IMAGE: &str = "site.zip";
/// A received ZIP that did not fit, while it is being written anew.
const RECEIVED: &str = "received.zip";

impl Space {
    fn create(&self, name: &str) -> Result<File, SealError> {
        let made = match self {
            Space::Dir(dir) => dir.create_file(name, 0o600).map_err(|e| (dir.path().join(name), e)),
            Space::Unlinked(dir) => tempfile::tempfile_in(dir).map_err(|e| (dir.clone(), e)),
        };
        made.map_err(|(path, source)| SealError::Write { path, source })
    }

    fn path(&self) -> &Path {
        match self {
            Space::Dir(dir) => dir.path(),
            Space::Unlinked(dir) => dir,
        }
    }
}

/// Why there is no sealed version.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The bundle is refused.
    #[error("{}", path.display())]
    Refused {
        /// The bundle.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Refusal,
    },
    /// The bundle cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The bundle, or the file in it.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The image cannot be written.
    #[error("cannot write in {}", path.display())]
    Write {
        /// The folder or file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl SealError {
    fn from_read(error: ReadError, bundle: &Path, space: &Path) -> SealError {
        match error {
            ReadError::Refused(source) => SealError::Refused { path: bundle.to_owned(), source },
            ReadError::Io { path, source } => SealError::Read { path, source },
            ReadError::Sink(source) => SealError::Write { path: space.to_owned(), source },
        }
    }
}

/// A bundle that has been read to its end and found good.
#[derive(Debug)]
pub struct Proven {
    /// The version it holds.
    pub id: VersionId,
    /// What it was.
    pub kind: Kind,
    /// Its layout, and what of it is no part of the site.
    pub flavor: Flavor,
    /// The site's files in byte order of their paths.
    pub files: Vec<(SitePath, Entry)>,
    /// All files, those that are no part of the site included, as the archive has them.
    pub raw_files: Vec<(SitePath, Entry)>,
    /// Folders that the archive names.
    pub folders: Vec<SitePath>,
    /// SHA-256 and size of the archive; none for a folder.
    pub archive: Option<(Digest, u64)>,
    /// Things worth knowing that are no reason to refuse.
    pub warnings: Vec<String>,
}

impl Proven {
    /// Size of the site's content in bytes.
    pub fn content_len(&self) -> u64 {
        self.files.iter().map(|(_, entry)| entry.len).sum()
    }

    /// The index of an image of `image_len` bytes that holds these files.
    pub fn index(&self, image_len: u64) -> Vec<u8> {
        let files: Vec<(&[u8], Entry)> = self.files.iter().map(|(path, entry)| (path.as_bytes(), *entry)).collect();
        index::encode(image_len, self.id, &files)
    }
}

/// A proven bundle and its image.
#[derive(Debug)]
pub struct Sealing {
    /// What was proved.
    pub proven: Proven,
    /// The image, open for reading.
    pub image: File,
    /// Its length.
    pub image_len: u64,
    /// Whether the received ZIP became the image unchanged.
    pub adopted: bool,
}

/// What reading every entry gave.
pub(crate) struct Gathered {
    pub(crate) files: Vec<(SitePath, Entry)>,
    pub(crate) folders: Vec<SitePath>,
}

fn conclude(gathered: Gathered, kind: Kind, archive: Option<(Digest, u64)>) -> Result<Proven, Refusal> {
    let Gathered { files: raw_files, mut folders } = gathered;
    check_tree(raw_files.iter().map(|(path, _)| path), folders.iter())?;
    folders.sort_unstable();
    folders.dedup();
    let flavor = Flavor::of(raw_files.iter().map(|(path, _)| path))?;
    let mut files: Vec<(SitePath, Entry)> =
        raw_files.iter().filter_map(|(path, entry)| Some((flavor.site_path(path)?, *entry))).collect();
    files.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let mut manifest = Manifest::default();
    for (path, entry) in &files {
        manifest.add(&entry.content, entry.len, path.as_bytes());
    }
    let mut warnings = Vec::new();
    if !flavor.has_index {
        warnings.push("there is no index.html at the root, so / will be 404".to_owned());
    }
    Ok(Proven { id: manifest.id(), kind, flavor, files, raw_files, folders, archive, warnings })
}

/// Proves the bundle at `path` and writes its sealed image in `space`.
pub fn seal(path: &Path, space: &Space, effort: &Effort, meter: &Meter) -> Result<Sealing, SealError> {
    let lift = |error: ReadError| SealError::from_read(error, path, space.path());
    if is_dir(path)? {
        let folder = Folder::open(path, &effort.limits).map_err(lift)?;
        let warnings = folder.warnings.clone();
        let mut sealing = write_anew(folder, Kind::Folder, |_| None, path, space, effort, meter)?;
        sealing.proven.warnings.extend(warnings);
        return Ok(sealing);
    }
    let file = regular::open(path).map_err(|source| SealError::Read { path: path.to_owned(), source })?;
    seal_opened(file, path, None, space, effort, meter)
}

/// The same for an archive that is open already. `path` is for messages. If it is ours and on the file system of the image,
/// it is moved from its `place` rather than copied.
pub fn seal_opened(
    file: File,
    path: &Path,
    place: Option<Place<'_>>,
    space: &Space,
    effort: &Effort,
    meter: &Meter,
) -> Result<Sealing, SealError> {
    let lift = |error: ReadError| SealError::from_read(error, path, space.path());
    match format::open(file, path, &effort.limits).map_err(lift)? {
        Archive::Tar(kind, tar) => seal_tar(*tar, kind, path, space, effort, meter),
        Archive::Zip(received) => seal_zip(&received, path, place, space, effort, meter),
    }
}

/// Where a file lies: its directory, and its name there.
pub type Place<'a> = (&'a Directory, &'a OsStr);

/// As [`seal`], for a bundle that is still arriving at `place`, if it is one that is read from its begin to its end. None for
/// others: nothing can be said of them before they are whole.
pub fn seal_arriving(
    (directory, name): Place<'_>,
    growth: &Arc<Growth>,
    space: &Space,
    effort: &Effort,
    meter: &Meter,
) -> Result<Option<Sealing>, SealError> {
    // The file is made with its first byte.
    if growth.wait_for(1).is_none_or(|there| there == 0) {
        return Ok(None);
    }
    let path = &directory.path().join(name);
    let lift = |error: ReadError| SealError::from_read(error, path, space.path());
    let opened = directory.open_file(name, Access::Read, Demands::SINGLE_NAME);
    let file = opened.map_err(|source| SealError::Read { path: path.clone(), source })?;
    match format::open_growing(file, path, &effort.limits, growth).map_err(lift)? {
        Archive::Tar(kind, tar) => seal_tar(*tar, kind, path, space, effort, meter).map(Some),
        Archive::Zip(_) => Ok(None),
    }
}

fn seal_tar(
    tar: Tar,
    kind: Kind,
    path: &Path,
    space: &Space,
    effort: &Effort,
    meter: &Meter,
) -> Result<Sealing, SealError> {
    write_anew(tar, kind, |tar| Some(tar.into_source().receipt()), path, space, effort, meter)
}

/// Copies, then adopts or writes anew.
fn seal_zip(
    received: &File,
    path: &Path,
    place: Option<Place<'_>>,
    space: &Space,
    effort: &Effort,
    meter: &Meter,
) -> Result<Sealing, SealError> {
    let lift = |error: ReadError| SealError::from_read(error, path, space.path());
    let write = |source| SealError::Write { path: space.path().to_owned(), source };
    let length = received.metadata().map_err(|source| SealError::Read { path: path.to_owned(), source })?.len();
    if length > effort.limits.archive {
        return Err(lift(Fault::ArchiveTooLarge(effort.limits.archive).of_archive().into()));
    }
    let read = |source| SealError::Read { path: path.to_owned(), source };
    let start = Zip::find_start(received.try_clone().map_err(read)?, path).map_err(lift)?;
    if let (Some((directory, name)), Space::Dir(dir)) = (place, space)
        && directory.rename(name, dir, IMAGE).is_ok()
    {
        let image = moved(dir, received).map_err(write)?;
        return take_zip(image, path, space, effort, meter);
    }
    let image = space.create(IMAGE)?;
    // The copy is what will be served, so the copy is what is judged, whatever becomes of the original meanwhile. Its
    // directory comes first; the members are proved while they are being copied.
    copying::range(received, &image, start, length).map_err(write)?;
    let zip = Zip::open(image.try_clone().map_err(write)?, path, &effort.limits).map_err(lift)?;
    let (archive, zip) = if adopt::fits(&zip) {
        let received = adopt::Received { from: received, to: &image, end: start };
        let proved = adopt::prove(&zip, effort, meter, Some(&received)).map_err(lift)?;
        if proved.exact {
            let image_len = proved.archive.1;
            let proven = conclude(proved.gathered, Kind::Zip, Some(proved.archive));
            let proven = proven.map_err(|refusal| lift(refusal.into()))?;
            return Ok(Sealing { proven, image, image_len, adopted: true });
        }
        (proved.archive, zip)
    } else {
        copying::range(received, &image, 0, start).map_err(write)?;
        (adopt::digest(&image, &Growth::done()).map_err(write)?, zip)
    };
    rewrite_zip(zip, archive, path, space, effort, meter)
}

/// Opens the image that was `received` and has been moved into `dir`. It has no other name, so that no later download can
/// write to what has been sealed; and it is that file, whatever the owner of the store has done to its name meanwhile.
fn moved(dir: &Directory, received: &File) -> io::Result<File> {
    let image = dir.open_file(IMAGE, Access::ReadWrite, Demands::SINGLE_NAME)?;
    if FileId::of(&image.metadata()?) == FileId::of(&received.metadata()?) {
        Ok(image)
    } else {
        let why = "another process replaced the file while it was being stored; check who may write to the store, then try \
                   again";
        Err(io::Error::other(why))
    }
}

/// Proves a ZIP that nobody else writes to where it lies: in `space`, under the image's name.
fn take_zip(image: File, path: &Path, space: &Space, effort: &Effort, meter: &Meter) -> Result<Sealing, SealError> {
    let lift = |error: ReadError| SealError::from_read(error, path, space.path());
    let write = |source| SealError::Write { path: space.path().to_owned(), source };
    let zip = Zip::open(image.try_clone().map_err(write)?, path, &effort.limits).map_err(lift)?;
    let mut archive = None;
    if adopt::fits(&zip) {
        let proved = adopt::prove(&zip, effort, meter, None).map_err(lift)?;
        if proved.exact {
            if effort.durable {
                image.sync_all().map_err(write)?;
            }
            let image_len = proved.archive.1;
            let proven = conclude(proved.gathered, Kind::Zip, Some(proved.archive));
            let proven = proven.map_err(|refusal| lift(refusal.into()))?;
            return Ok(Sealing { proven, image, image_len, adopted: true });
        }
        archive = Some(proved.archive);
    }
    let archive = match archive {
        Some(archive) => archive,
        None => adopt::digest(&image, &Growth::done()).map_err(write)?,
    };
    rewrite_zip(zip, archive, path, space, effort, meter)
}

/// Writes the ZIP that lies in `space` under the image's name anew.
fn rewrite_zip(
    zip: Zip,
    archive: (Digest, u64),
    path: &Path,
    space: &Space,
    effort: &Effort,
    meter: &Meter,
) -> Result<Sealing, SealError> {
    let write = |source| SealError::Write { path: space.path().to_owned(), source };
    if let Space::Dir(dir) = space {
        dir.rename(IMAGE, dir, RECEIVED).map_err(write)?;
    }
    let sealing = write_anew(ZipStream::new(zip), Kind::Zip, |_| Some(archive), path, space, effort, meter)?;
    if let Space::Dir(dir) = space {
        dir.remove_file(RECEIVED).map_err(write)?;
    }
    Ok(sealing)
}

fn write_anew<E: Entries>(
    mut entries: E,
    kind: Kind,
    archive: impl FnOnce(E) -> Option<(Digest, u64)>,
    path: &Path,
    space: &Space,
    effort: &Effort,
    meter: &Meter,
) -> Result<Sealing, SealError> {
    let lift = |error: ReadError| SealError::from_read(error, path, space.path());
    let write = |source| SealError::Write { path: space.path().to_owned(), source };
    let image = space.create(IMAGE)?;
    let writer = ImageWriter::new(image.try_clone().map_err(write)?);
    let (gathered, writer) = rewrite::run(&mut entries, Some(writer), effort, meter).map_err(lift)?;
    let proven = conclude(gathered, kind, archive(entries)).map_err(|refusal| lift(refusal.into()))?;
    let mut image_len = 0;
    if let Some(mut writer) = writer {
        for folder in &proven.folders {
            writer.folder(&[folder.as_bytes(), b"/"].concat()).map_err(write)?;
        }
        image_len = writer.finish().map_err(write)?;
    }
    if effort.durable {
        image.sync_all().map_err(write)?;
    }
    Ok(Sealing { proven, image, image_len, adopted: false })
}

/// Proves the bundle at `path` without keeping anything of it.
pub fn verify(path: &Path, effort: &Effort, meter: &Meter) -> Result<Proven, SealError> {
    let lift = |error: ReadError| SealError::from_read(error, path, path);
    let refuse = |refusal: Refusal| lift(refusal.into());
    if is_dir(path)? {
        let mut folder = Folder::open(path, &effort.limits).map_err(lift)?;
        let (gathered, _) = rewrite::run(&mut folder, None, effort, meter).map_err(lift)?;
        let mut proven = conclude(gathered, Kind::Folder, None).map_err(refuse)?;
        proven.warnings.extend(folder.warnings);
        return Ok(proven);
    }
    match open(path, &effort.limits).map_err(lift)? {
        Archive::Tar(kind, mut tar) => {
            let (gathered, _) = rewrite::run(&mut *tar, None, effort, meter).map_err(lift)?;
            conclude(gathered, kind, Some(tar.into_source().receipt())).map_err(refuse)
        }
        Archive::Zip(file) => {
            let zip = Zip::open(file, path, &effort.limits).map_err(lift)?;
            let proved = adopt::prove(&zip, effort, meter, None).map_err(lift)?;
            conclude(proved.gathered, Kind::Zip, Some(proved.archive)).map_err(refuse)
        }
    }
}

/// It was within the limits when it was received, and an image may be larger than its archive.
const UNLIMITED: Limits = Limits { entries: u64::MAX, unpacked: u64::MAX, archive: u64::MAX, entry: u64::MAX };

/// Proves a sealed image again.
pub fn verify_image(path: &Path, effort: &Effort) -> Result<Proven, SealError> {
    let file = regular::open(path).map_err(|source| SealError::Read { path: path.to_owned(), source })?;
    verify_opened_image(file, path, effort)
}

/// The same for one that is open already. `path` is for messages.
pub fn verify_opened_image(file: File, path: &Path, effort: &Effort) -> Result<Proven, SealError> {
    let lift = |error: ReadError| SealError::from_read(error, path, path);
    let zip = Zip::open_image(file, path, &UNLIMITED).map_err(lift)?;
    let proved = adopt::prove(&zip, effort, &Meter::default(), None).map_err(lift)?;
    conclude(proved.gathered, Kind::Zip, Some(proved.archive)).map_err(|refusal| lift(refusal.into()))
}

/// The same on this thread alone, as fast as `pace` lets it, which is told of each piece of content that was read. `path` is
/// for messages.
pub fn verify_slowly(image: File, path: &Path, pace: &mut dyn FnMut(u64)) -> Result<Proven, SealError> {
    let lift = |error: ReadError| SealError::from_read(error, path, path);
    let zip = Zip::open_image(image, path, &UNLIMITED).map_err(lift)?;
    let gathered = adopt::prove_slowly(&zip, pace).map_err(lift)?;
    conclude(gathered, Kind::Zip, None).map_err(|refusal| lift(refusal.into()))
}

fn open(path: &Path, limits: &Limits) -> Result<Archive, ReadError> {
    format::open(regular::open(path).map_err(ReadError::io(path))?, path, limits)
}

#[allow(clippy::disallowed_methods)] // what it says is found out anew by opening
fn is_dir(path: &Path) -> Result<bool, SealError> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(metadata.is_dir()),
        Err(source) => Err(SealError::Read { path: path.to_owned(), source }),
    }
}
