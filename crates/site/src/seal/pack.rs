//! Packs folders into bundles. One folder always results in the same bytes, on every machine and at any time.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::bundle::bundle_reader::{BundleKind, BundleReadError, BundleReader};
use crate::bundle::folder::FolderReader;
use docwharf_base::error_chain::QuotedName;
use docwharf_base::model::site_path::SitePath;

use super::image_target::ImageTarget;
use super::seal_bundle::seal;
use super::seal_error::SealError;
use super::seal_options::{SealOptions, SealProgress};
use super::verified_bundle::VerifiedBundle;
use super::verify::verify;

/// zlib's default level: a bundle is written once and transferred often.
const GZIP_LEVEL: u32 = 6;
/// The Zstandard level for bundles.
const ZSTD_LEVEL: i32 = 12;
const TAR_BLOCK_BYTES: usize = 512;

/// The reason why no bundle was written.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The folder is refused as a site, or cannot be read.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The name of the target does not end with a supported extension.
    #[error("cannot tell the format of {}; its name must end with .zip, .tar, .tar.gz, .tgz or .tar.zst", .0.display())]
    UnknownExtension(PathBuf),
    /// A file of the folder has a name that is not UTF-8, and the target is a ZIP.
    #[error("{} has a name that is not UTF-8, which a ZIP cannot hold; pack a .tar, .tar.gz or .tar.zst", QuotedName(.0.as_bytes()))]
    NotUtf8(SitePath),
    /// The bundle cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The bundle.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The bundle that was written differs from the folder that was read before.
    #[error("{} changed while it was packed; pack it again when nothing writes to it", .0.display())]
    Changed(PathBuf),
}

fn kind_by_extension(name: &Path) -> Option<BundleKind> {
    let name = name.file_name()?.to_str()?.to_ascii_lowercase();
    let has_extension = |extension: &str| name.ends_with(extension);
    match () {
        () if has_extension(".zip") => Some(BundleKind::Zip),
        () if has_extension(".tar") => Some(BundleKind::Tar),
        () if has_extension(".tar.gz") || has_extension(".tgz") => Some(BundleKind::TarGz),
        () if has_extension(".tar.zst") => Some(BundleKind::TarZst),
        () => None,
    }
}

/// The progress of each of the three passes of packing.
#[derive(Debug, Default)]
pub struct PackProgress {
    /// The first pass: verifies the folder.
    pub reading: SealProgress,
    /// The second pass: writes the bundle.
    pub writing: SealProgress,
    /// The third pass: verifies the bundle that was written.
    pub verifying: SealProgress,
}

/// Packs the site in `folder` into `to`, whose extension selects the format, and verifies the result. `progress` is
/// that of the first pass.
pub fn pack(
    folder: &Path,
    to: &Path,
    options: &SealOptions,
    progress: &SealProgress,
) -> Result<VerifiedBundle, PackError> {
    pack_in_passes(folder, to, options, [progress, &SealProgress::default(), &SealProgress::default()])
}

/// Packs a site as [`pack`] does, and reports the progress of all passes.
pub fn pack_with_progress(
    folder: &Path,
    to: &Path,
    options: &SealOptions,
    passes: &PackProgress,
) -> Result<VerifiedBundle, PackError> {
    pack_in_passes(folder, to, options, [&passes.reading, &passes.writing, &passes.verifying])
}

fn pack_in_passes(
    folder: &Path,
    to: &Path,
    options: &SealOptions,
    [reading, writing, verifying]: [&SealProgress; 3],
) -> Result<VerifiedBundle, PackError> {
    let kind = kind_by_extension(to).ok_or_else(|| PackError::UnknownExtension(to.to_owned()))?;
    let write_error = |source| PackError::Write { path: to.to_owned(), source };
    let parent = match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let folder_content = verify(folder, options, reading)?;
    // A ZIP reader decodes a name that is not UTF-8 as CP437. docwharf does so too, because in a received archive it
    // ignores `RAW_NAME_FIELD_ID`.
    let mut paths = folder_content.raw_files.iter().map(|(path, _)| path);
    if kind == BundleKind::Zip
        && let Some(path) = paths.find(|path| std::str::from_utf8(path.as_bytes()).is_err())
    {
        return Err(PackError::NotUtf8(path.clone()));
    }
    let mut output = tempfile::Builder::new().prefix(".docwharf-").tempfile_in(parent).map_err(write_error)?;
    if kind == BundleKind::Zip {
        let options = SealOptions { level: GZIP_LEVEL, ..*options };
        let sealed = seal(folder, &ImageTarget::Unlinked(parent.to_owned()), &options, writing)?;
        let mut image = sealed.image.into_file();
        io::Seek::rewind(&mut image).and_then(|()| io::copy(&mut image, output.as_file_mut())).map_err(write_error)?;
    } else {
        let reader =
            FolderReader::open(folder, &options.limits).map_err(|e| SealError::from_read(e, folder, parent))?;
        write_tar(reader, kind, output.as_file_mut(), writing).map_err(|error| match error {
            BundleReadError::Sink(source) => write_error(source),
            error => SealError::from_read(error, folder, parent).into(),
        })?;
    }
    output.as_file().sync_all().map_err(write_error)?;
    let verified = verify(output.path(), options, verifying)?;
    if verified.id != folder_content.id {
        return Err(PackError::Changed(folder.to_owned()));
    }
    output.as_file().set_permissions(std::fs::Permissions::from_mode(0o644)).map_err(write_error)?;
    output.persist(to).map_err(|error| write_error(error.error))?;
    Ok(VerifiedBundle { warnings: folder_content.warnings, ..verified })
}

/// Writes the files of a folder as a tar of this kind. An error of writing is [`BundleReadError::Sink`].
fn write_tar(
    mut folder: FolderReader,
    kind: BundleKind,
    file: &mut File,
    progress: &SealProgress,
) -> Result<(), BundleReadError> {
    let mut output: Box<dyn FinishWriter> = match kind {
        BundleKind::TarGz => {
            Box::new(flate2::write::GzEncoder::new(BufWriter::new(file), flate2::Compression::new(GZIP_LEVEL)))
        }
        BundleKind::TarZst => Box::new(
            zstd::stream::write::Encoder::new(BufWriter::new(file), ZSTD_LEVEL).map_err(BundleReadError::Sink)?,
        ),
        _ => Box::new(BufWriter::new(file)),
    };
    while let Some(entry) = folder.next_entry()? {
        let Some(path) = entry.path else { continue };
        write_header(&mut *output, &path, entry.size).map_err(BundleReadError::Sink)?;
        folder.read_content(&mut |bytes| output.write_all(bytes).map_err(BundleReadError::Sink))?;
        let padding = entry.size.next_multiple_of(TAR_BLOCK_BYTES as u64) - entry.size;
        output.write_all(&[0; TAR_BLOCK_BYTES][..padding as usize]).map_err(BundleReadError::Sink)?;
        progress.add(entry.size);
    }
    output.write_all(&[0; 2 * TAR_BLOCK_BYTES]).and_then(|()| output.finish()).map_err(BundleReadError::Sink)
}

/// A writer that must be finished to be complete.
trait FinishWriter: Write {
    fn finish(self: Box<Self>) -> io::Result<()>;
}

impl<W: Write> FinishWriter for flate2::write::GzEncoder<W> {
    fn finish(self: Box<Self>) -> io::Result<()> {
        flate2::write::GzEncoder::finish(*self)?.flush()
    }
}

impl<W: Write> FinishWriter for zstd::stream::write::Encoder<'static, W> {
    fn finish(self: Box<Self>) -> io::Result<()> {
        zstd::stream::write::Encoder::finish(*self)?.flush()
    }
}

impl<W: Write> FinishWriter for BufWriter<W> {
    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.flush()
    }
}

/// Writes a ustar header whose values do not differ between machines, preceded by a PAX header if the path or the size
/// does not fit (POSIX.1-2017, pax, "ustar Interchange Format").
fn write_header(output: &mut dyn Write, path: &SitePath, size: u64) -> io::Result<()> {
    const MAX_USTAR_SIZE: u64 = 0o77_777_777_777;
    let path = path.as_bytes();
    let mut records = Vec::new();
    if path.len() > 100 {
        append_pax_record(&mut records, b"path", path);
    }
    if size > MAX_USTAR_SIZE {
        append_pax_record(&mut records, b"size", size.to_string().as_bytes());
    }
    if !records.is_empty() {
        output.write_all(&ustar_header(b"././@PaxHeader", records.len() as u64, b'x'))?;
        let padding = records.len().next_multiple_of(TAR_BLOCK_BYTES) - records.len();
        output.write_all(&records)?;
        output.write_all(&[0; TAR_BLOCK_BYTES][..padding])?;
    }
    output.write_all(&ustar_header(&path[..path.len().min(100)], size.min(MAX_USTAR_SIZE), b'0'))
}

/// Appends a PAX record, `LENGTH KEY=VALUE\n`, whose length includes its own digits.
fn append_pax_record(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let fixed_len = key.len() + value.len() + 3;
    let mut record_len = fixed_len + 1;
    while record_len != fixed_len + record_len.to_string().len() {
        record_len = fixed_len + record_len.to_string().len();
    }
    records.extend_from_slice(record_len.to_string().as_bytes());
    records.push(b' ');
    records.extend_from_slice(key);
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

fn ustar_header(name: &[u8], size: u64, kind: u8) -> [u8; TAR_BLOCK_BYTES] {
    let mut block = [0u8; TAR_BLOCK_BYTES];
    block[..name.len()].copy_from_slice(name);
    block[100..108].copy_from_slice(b"0000644\0");
    block[108..116].copy_from_slice(b"0000000\0");
    block[116..124].copy_from_slice(b"0000000\0");
    block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[136..148].copy_from_slice(b"00000000000\0");
    block[148..156].fill(b' ');
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = block.iter().map(|&b| u32::from(b)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use docwharf_base::model::limits::BundleLimits;

    use super::*;

    // Regression: a file that could not be read was reported as "cannot write", with the name of the bundle.
    #[test]
    fn file_that_cannot_be_read_during_packing_is_named_as_the_file_that_cannot_be_read() {
        for kind in [BundleKind::Tar, BundleKind::TarGz, BundleKind::TarZst] {
            let dir = tempfile::tempdir().unwrap();
            let page = dir.path().join("index.html");
            std::fs::write(&page, "<p>home").unwrap();
            let reader = FolderReader::open(dir.path(), &BundleLimits::default()).unwrap();
            std::fs::remove_file(&page).unwrap();
            let mut output = tempfile::tempfile().unwrap();
            let result = write_tar(reader, kind, &mut output, &SealProgress::default());
            let Err(BundleReadError::Io { path, .. }) = result else { panic!("{kind:?}: {result:?}") };
            assert_eq!(path, page.canonicalize().unwrap_or(page), "{kind:?}");
        }
    }
}
