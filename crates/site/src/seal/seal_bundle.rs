//! Seals a bundle: a folder, a complete archive or one that still grows.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bundle::bundle_reader::{BundleKind, BundleReadError, BundleReader};
use crate::bundle::folder::FolderReader;
use crate::bundle::format::{self, RecognizedArchive};
use crate::bundle::refusal::{BundleFault, BundleRefusal, check_path_conflicts};
use crate::bundle::site_layout::SiteLayout;
use crate::bundle::tar::TarReader;
use crate::bundle::zip::ZipArchive;
use crate::bundle::zip_entry::ZipReader;
use crate::image::ImageWriter;
use crate::index::{self, IndexEntry};
use crate::mapping::SealedFile;
use docwharf_base::directory::{Directory, FileAccess, FileId, FileRequirements};
use docwharf_base::growing_file::WriteProgress;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::limits::BundleLimits;
use docwharf_base::model::site_path::SitePath;
use docwharf_base::model::version::{VersionId, VersionManifest};
use docwharf_base::processors;
use docwharf_base::regular_file;

use super::{adopt, growing_copy, rewrite};

/// zlib's fastest level: an image is written once and mostly sent to clients on the same network, so little compression
/// is enough.
const FASTEST_LEVEL: u32 = 1;

/// The limits and settings of sealing and verifying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealOptions {
    /// The limits that an archive must keep.
    pub limits: BundleLimits,
    /// The number of threads that verify or compress, in addition to the one that reads.
    pub threads: usize,
    /// Whether the image is synced to disk, so that it survives a power failure.
    pub durable: bool,
    /// zlib's level for files that are compressed, 1 to 9.
    pub level: u32,
    /// Whether the bundle belongs to the caller, is on the file system of the image, and may be moved. It is for the
    /// caller, who then passes a `place` to [`seal_opened`]; sealing itself does not read it.
    pub may_move: bool,
}

impl SealOptions {
    /// Creates settings with all processors, the fastest level, and without syncing to disk.
    pub fn new(limits: BundleLimits) -> SealOptions {
        SealOptions { limits, threads: processors::count(), durable: false, level: FASTEST_LEVEL, may_move: false }
    }
}

/// The progress of sealing, for display by another thread.
#[derive(Debug, Default)]
pub struct SealProgress {
    done: AtomicU64,
    files: AtomicU64,
}

impl SealProgress {
    /// Returns the number of bytes of content that were read.
    pub fn bytes(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Returns the number of files that were read.
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        self.files.fetch_add(1, Ordering::Relaxed);
    }
}

/// The place where images are written before they are verified.
#[derive(Debug)]
pub enum ImageSpace {
    /// Named files in a folder of the store, which another user may own.
    Dir(Directory),
    /// Files without a name in this folder, which disappear with the process.
    Unlinked(PathBuf),
}

/// The name of the image in [`ImageSpace::Dir`].
pub const IMAGE_FILE_NAME: &str = "site.zip";
/// The name of a received ZIP that cannot be adopted, while it is rewritten.
const RECEIVED_FILE_NAME: &str = "received.zip";

impl ImageSpace {
    fn create(&self, name: &str) -> Result<File, SealError> {
        let made = match self {
            ImageSpace::Dir(dir) => dir.create_file(name, 0o600).map_err(|e| (dir.path().join(name), e)),
            ImageSpace::Unlinked(dir) => tempfile::tempfile_in(dir).map_err(|e| (dir.clone(), e)),
        };
        made.map_err(|(path, source)| SealError::Write { path, source })
    }

    fn path(&self) -> &Path {
        match self {
            ImageSpace::Dir(dir) => dir.path(),
            ImageSpace::Unlinked(dir) => dir,
        }
    }
}

/// The reason why a bundle was not sealed or verified.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The bundle is refused.
    #[error("{}", path.display())]
    Refused {
        /// The bundle.
        path: PathBuf,
        /// The reason.
        #[source]
        source: BundleRefusal,
    },
    /// The bundle cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The bundle, or the file in it.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The image cannot be written.
    #[error("cannot write in {}", path.display())]
    Write {
        /// The folder or file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
}

impl SealError {
    pub(super) fn from_read(error: BundleReadError, bundle: &Path, space: &Path) -> SealError {
        match error {
            BundleReadError::Refused(source) => SealError::Refused { path: bundle.to_owned(), source },
            BundleReadError::Io { path, source } => SealError::Read { path, source },
            BundleReadError::Sink(source) => SealError::Write { path: space.to_owned(), source },
        }
    }
}

/// A verified bundle: it was read to its end and accepted.
#[derive(Debug)]
pub struct VerifiedBundle {
    /// The id of the version that it contains.
    pub id: VersionId,
    /// The kind of bundle.
    pub kind: BundleKind,
    /// Its layout, which says which entries are not part of the site.
    pub flavor: SiteLayout,
    /// The site's files, in byte order of their paths.
    pub files: Vec<(SitePath, IndexEntry)>,
    /// All files, including those that are not part of the site, with their paths in the archive.
    pub raw_files: Vec<(SitePath, IndexEntry)>,
    /// The folders that the archive names.
    pub folders: Vec<SitePath>,
    /// The SHA-256 and the size of the archive; `None` for a folder.
    pub archive: Option<(Digest, u64)>,
    /// Warnings, which are no reason to refuse the bundle.
    pub warnings: Vec<String>,
}

impl VerifiedBundle {
    /// Returns the size of the site's content in bytes.
    pub fn content_len(&self) -> u64 {
        self.files.iter().map(|(_, entry)| entry.len).sum()
    }

    /// Encodes the index of an image of `image_len` bytes that contains these files.
    pub fn index(&self, image_len: u64) -> Vec<u8> {
        let files: Vec<(&[u8], IndexEntry)> =
            self.files.iter().map(|(path, entry)| (path.as_bytes(), *entry)).collect();
        index::encode_index(image_len, self.id, &files)
    }
}

/// A verified bundle and its image.
#[derive(Debug)]
pub struct SealedBundle {
    /// The verified bundle.
    pub proven: VerifiedBundle,
    /// The image, which is not written any more.
    pub image: SealedFile,
    /// The length of the image in bytes.
    pub image_len: u64,
    /// Whether the received ZIP became the image unchanged.
    pub adopted: bool,
}

/// The files and folders of a bundle whose entries have been read.
pub(super) struct GatheredEntries {
    pub(super) files: Vec<(SitePath, IndexEntry)>,
    pub(super) folders: Vec<SitePath>,
}

fn finish_verification(
    gathered: GatheredEntries,
    kind: BundleKind,
    archive: Option<(Digest, u64)>,
) -> Result<VerifiedBundle, BundleRefusal> {
    let GatheredEntries { files: raw_files, mut folders } = gathered;
    check_path_conflicts(raw_files.iter().map(|(path, _)| path), folders.iter())?;
    folders.sort_unstable();
    folders.dedup();
    let flavor = SiteLayout::detect(raw_files.iter().map(|(path, _)| path))?;
    let mut files: Vec<(SitePath, IndexEntry)> =
        raw_files.iter().filter_map(|(path, entry)| Some((flavor.site_path(path)?, *entry))).collect();
    files.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let mut manifest = VersionManifest::default();
    for (path, entry) in &files {
        manifest.add(&entry.content, entry.len, path.as_bytes());
    }
    let mut warnings = Vec::new();
    if !flavor.has_root_index {
        warnings.push("there is no index.html at the root, so / will be 404".to_owned());
    }
    Ok(VerifiedBundle { id: manifest.id(), kind, flavor, files, raw_files, folders, archive, warnings })
}

/// Verifies the bundle at `path` and writes its sealed image in `space`.
pub fn seal(
    path: &Path,
    space: &ImageSpace,
    effort: &SealOptions,
    meter: &SealProgress,
) -> Result<SealedBundle, SealError> {
    let lift = |error: BundleReadError| SealError::from_read(error, path, space.path());
    if is_dir(path)? {
        let folder = FolderReader::open(path, &effort.limits).map_err(lift)?;
        let warnings = folder.warnings.clone();
        let mut sealing = write_new_image(folder, BundleKind::Folder, |_| None, path, space, effort, meter)?;
        sealing.proven.warnings.extend(warnings);
        return Ok(sealing);
    }
    let file = regular_file::open(path).map_err(|source| SealError::Read { path: path.to_owned(), source })?;
    seal_opened(file, path, None, space, effort, meter)
}

/// Verifies an archive that is open already and writes its sealed image in `space`. `path` is for messages. If `place`
/// is given and on the file system of the image, the archive is moved from there rather than copied.
pub fn seal_opened(
    file: File,
    path: &Path,
    place: Option<FilePlace<'_>>,
    space: &ImageSpace,
    effort: &SealOptions,
    meter: &SealProgress,
) -> Result<SealedBundle, SealError> {
    let lift = |error: BundleReadError| SealError::from_read(error, path, space.path());
    match format::open_archive(file, path, &effort.limits).map_err(lift)? {
        RecognizedArchive::Tar(kind, tar) => seal_tar(*tar, kind, path, space, effort, meter),
        RecognizedArchive::Zip(received) => seal_zip(&received, path, place, space, effort, meter),
    }
}

/// The place of a file: its directory, and its name in it.
pub type FilePlace<'a> = (&'a Directory, &'a OsStr);

/// Verifies and seals a bundle that is still being downloaded to `place`, if it can be read from start to end. `None`
/// for a ZIP, whose directory is at its end, and for a download that fails or ends before its first byte.
pub fn seal_arriving(
    (directory, name): FilePlace<'_>,
    growth: &Arc<WriteProgress>,
    space: &ImageSpace,
    effort: &SealOptions,
    meter: &SealProgress,
) -> Result<Option<SealedBundle>, SealError> {
    // The download creates the file with its first byte.
    if growth.wait_for(1).is_none_or(|there| there == 0) {
        return Ok(None);
    }
    let path = &directory.path().join(name);
    let lift = |error: BundleReadError| SealError::from_read(error, path, space.path());
    let opened = directory.open_file(name, FileAccess::Read, FileRequirements::SINGLE_NAME);
    let file = opened.map_err(|source| SealError::Read { path: path.clone(), source })?;
    match format::open_growing_archive(file, path, &effort.limits, growth).map_err(lift)? {
        RecognizedArchive::Tar(kind, tar) => seal_tar(*tar, kind, path, space, effort, meter).map(Some),
        RecognizedArchive::Zip(_) => Ok(None),
    }
}

fn seal_tar(
    tar: TarReader,
    kind: BundleKind,
    path: &Path,
    space: &ImageSpace,
    effort: &SealOptions,
    meter: &SealProgress,
) -> Result<SealedBundle, SealError> {
    write_new_image(tar, kind, |tar| Some(tar.into_source().digest_and_len()), path, space, effort, meter)
}

/// Copies or moves a received ZIP, then adopts or rewrites it.
fn seal_zip(
    received: &File,
    path: &Path,
    place: Option<FilePlace<'_>>,
    space: &ImageSpace,
    effort: &SealOptions,
    meter: &SealProgress,
) -> Result<SealedBundle, SealError> {
    let lift = |error: BundleReadError| SealError::from_read(error, path, space.path());
    let write = |source| SealError::Write { path: space.path().to_owned(), source };
    let length = received.metadata().map_err(|source| SealError::Read { path: path.to_owned(), source })?.len();
    if length > effort.limits.archive {
        return Err(lift(BundleFault::ArchiveTooLarge(effort.limits.archive).in_archive().into()));
    }
    let read = |source| SealError::Read { path: path.to_owned(), source };
    let start = ZipArchive::find_directory_start(received.try_clone().map_err(read)?, path).map_err(lift)?;
    if let (Some((directory, name)), ImageSpace::Dir(dir)) = (place, space)
        && directory.rename(name, dir, IMAGE_FILE_NAME).is_ok()
    {
        let image = open_moved_image(dir, received).map_err(write)?;
        return seal_moved_zip(image, path, space, effort, meter);
    }
    let image = space.create(IMAGE_FILE_NAME)?;
    // The copy is verified, because the copy is served, whatever happens to the original meanwhile. Its central
    // directory is copied first; the members are verified while they are being copied.
    growing_copy::copy_range(received, &image, start, length).map_err(write)?;
    let zip = ZipArchive::open(image.try_clone().map_err(write)?, path, &effort.limits).map_err(lift)?;
    let (archive, zip) = if adopt::can_adopt(&zip) {
        let received = adopt::ReceivedZip { from: received, to: &image, end: start };
        let proved = adopt::verify_members(&zip, effort, meter, Some(&received)).map_err(lift)?;
        if proved.exact {
            let image_len = proved.archive.1;
            let proven = finish_verification(proved.gathered, BundleKind::Zip, Some(proved.archive));
            let proven = proven.map_err(|refusal| lift(refusal.into()))?;
            let image = SealedFile::from_sealing(image, proven.id);
            return Ok(SealedBundle { proven, image, image_len, adopted: true });
        }
        (proved.archive, zip)
    } else {
        growing_copy::copy_range(received, &image, 0, start).map_err(write)?;
        (adopt::digest_file(&image, &WriteProgress::complete()).map_err(write)?, zip)
    };
    rewrite_zip(zip, archive, path, space, effort, meter)
}

/// Opens the image that was `received` and has been moved into `dir`. The image must have no other name, so that no
/// later download can write to the sealed file, and must still be that file: another user may own the folder and
/// replace it.
fn open_moved_image(dir: &Directory, received: &File) -> io::Result<File> {
    let image = dir.open_file(IMAGE_FILE_NAME, FileAccess::ReadWrite, FileRequirements::SINGLE_NAME)?;
    if FileId::from_metadata(&image.metadata()?) == FileId::from_metadata(&received.metadata()?) {
        Ok(image)
    } else {
        let why = "another process replaced the file while it was being stored; check who may write to the store, then try \
                   again";
        Err(io::Error::other(why))
    }
}

/// Verifies a moved ZIP in place: in `space`, under the image's name. No other process writes to it.
fn seal_moved_zip(
    image: File,
    path: &Path,
    space: &ImageSpace,
    effort: &SealOptions,
    meter: &SealProgress,
) -> Result<SealedBundle, SealError> {
    let lift = |error: BundleReadError| SealError::from_read(error, path, space.path());
    let write = |source| SealError::Write { path: space.path().to_owned(), source };
    let zip = ZipArchive::open(image.try_clone().map_err(write)?, path, &effort.limits).map_err(lift)?;
    let mut archive = None;
    if adopt::can_adopt(&zip) {
        let proved = adopt::verify_members(&zip, effort, meter, None).map_err(lift)?;
        if proved.exact {
            if effort.durable {
                image.sync_all().map_err(write)?;
            }
            let image_len = proved.archive.1;
            let proven = finish_verification(proved.gathered, BundleKind::Zip, Some(proved.archive));
            let proven = proven.map_err(|refusal| lift(refusal.into()))?;
            let image = SealedFile::from_sealing(image, proven.id);
            return Ok(SealedBundle { proven, image, image_len, adopted: true });
        }
        archive = Some(proved.archive);
    }
    let archive = match archive {
        Some(archive) => archive,
        None => adopt::digest_file(&image, &WriteProgress::complete()).map_err(write)?,
    };
    rewrite_zip(zip, archive, path, space, effort, meter)
}

/// Writes a new image from the ZIP in `space` that has the image's name.
fn rewrite_zip(
    zip: ZipArchive,
    archive: (Digest, u64),
    path: &Path,
    space: &ImageSpace,
    effort: &SealOptions,
    meter: &SealProgress,
) -> Result<SealedBundle, SealError> {
    let write = |source| SealError::Write { path: space.path().to_owned(), source };
    if let ImageSpace::Dir(dir) = space {
        dir.rename(IMAGE_FILE_NAME, dir, RECEIVED_FILE_NAME).map_err(write)?;
    }
    let sealing = write_new_image(ZipReader::new(zip), BundleKind::Zip, |_| Some(archive), path, space, effort, meter)?;
    if let ImageSpace::Dir(dir) = space {
        dir.remove_file(RECEIVED_FILE_NAME).map_err(write)?;
    }
    Ok(sealing)
}

fn write_new_image<E: BundleReader>(
    mut entries: E,
    kind: BundleKind,
    archive: impl FnOnce(E) -> Option<(Digest, u64)>,
    path: &Path,
    space: &ImageSpace,
    effort: &SealOptions,
    meter: &SealProgress,
) -> Result<SealedBundle, SealError> {
    let lift = |error: BundleReadError| SealError::from_read(error, path, space.path());
    let write = |source| SealError::Write { path: space.path().to_owned(), source };
    let image = space.create(IMAGE_FILE_NAME)?;
    let writer = ImageWriter::new(image.try_clone().map_err(write)?);
    let (gathered, writer) = rewrite::rewrite_image(&mut entries, Some(writer), effort, meter).map_err(lift)?;
    let proven = finish_verification(gathered, kind, archive(entries)).map_err(|refusal| lift(refusal.into()))?;
    let mut image_len = 0;
    if let Some(mut writer) = writer {
        for folder in &proven.folders {
            writer.append_folder(&[folder.as_bytes(), b"/"].concat()).map_err(write)?;
        }
        image_len = writer.finish().map_err(write)?;
    }
    if effort.durable {
        image.sync_all().map_err(write)?;
    }
    let image = SealedFile::from_sealing(image, proven.id);
    Ok(SealedBundle { proven, image, image_len, adopted: false })
}

/// Verifies the bundle at `path` without writing anything.
pub fn verify(path: &Path, effort: &SealOptions, meter: &SealProgress) -> Result<VerifiedBundle, SealError> {
    let lift = |error: BundleReadError| SealError::from_read(error, path, path);
    let refuse = |refusal: BundleRefusal| lift(refusal.into());
    if is_dir(path)? {
        let mut folder = FolderReader::open(path, &effort.limits).map_err(lift)?;
        let (gathered, _) = rewrite::rewrite_image(&mut folder, None, effort, meter).map_err(lift)?;
        let mut proven = finish_verification(gathered, BundleKind::Folder, None).map_err(refuse)?;
        proven.warnings.extend(folder.warnings);
        return Ok(proven);
    }
    match open(path, &effort.limits).map_err(lift)? {
        RecognizedArchive::Tar(kind, mut tar) => {
            let (gathered, _) = rewrite::rewrite_image(&mut *tar, None, effort, meter).map_err(lift)?;
            finish_verification(gathered, kind, Some(tar.into_source().digest_and_len())).map_err(refuse)
        }
        RecognizedArchive::Zip(file) => {
            let zip = ZipArchive::open(file, path, &effort.limits).map_err(lift)?;
            let proved = adopt::verify_members(&zip, effort, meter, None).map_err(lift)?;
            finish_verification(proved.gathered, BundleKind::Zip, Some(proved.archive)).map_err(refuse)
        }
    }
}

/// No limits, for images: the archive was within its limits when it was received, and an image may be larger than its
/// archive.
const NO_LIMITS: BundleLimits =
    BundleLimits { entries: u64::MAX, unpacked: u64::MAX, archive: u64::MAX, entry: u64::MAX };

/// Verifies a sealed image again.
pub fn verify_image(path: &Path, effort: &SealOptions) -> Result<VerifiedBundle, SealError> {
    let file = regular_file::open(path).map_err(|source| SealError::Read { path: path.to_owned(), source })?;
    verify_opened_image(file, path, effort)
}

/// Verifies a sealed image that is open already. `path` is for messages.
pub fn verify_opened_image(file: File, path: &Path, effort: &SealOptions) -> Result<VerifiedBundle, SealError> {
    let lift = |error: BundleReadError| SealError::from_read(error, path, path);
    let zip = ZipArchive::open_image(file, path, &NO_LIMITS).map_err(lift)?;
    let proved = adopt::verify_members(&zip, effort, &SealProgress::default(), None).map_err(lift)?;
    finish_verification(proved.gathered, BundleKind::Zip, Some(proved.archive)).map_err(|refusal| lift(refusal.into()))
}

/// Verifies a sealed image on the calling thread alone. `pace` is called with the size of each piece of content that
/// was read, and may block to limit the speed. `path` is for messages.
pub fn verify_slowly(image: File, path: &Path, pace: &mut dyn FnMut(u64)) -> Result<VerifiedBundle, SealError> {
    let lift = |error: BundleReadError| SealError::from_read(error, path, path);
    let zip = ZipArchive::open_image(image, path, &NO_LIMITS).map_err(lift)?;
    let gathered = adopt::verify_members_slowly(&zip, pace).map_err(lift)?;
    finish_verification(gathered, BundleKind::Zip, None).map_err(|refusal| lift(refusal.into()))
}

fn open(path: &Path, limits: &BundleLimits) -> Result<RecognizedArchive, BundleReadError> {
    format::open_archive(regular_file::open(path).map_err(BundleReadError::io(path))?, path, limits)
}

#[allow(clippy::disallowed_methods)] // only a hint: opening the path decides
fn is_dir(path: &Path) -> Result<bool, SealError> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(metadata.is_dir()),
        Err(source) => Err(SealError::Read { path: path.to_owned(), source }),
    }
}
