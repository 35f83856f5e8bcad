//! Packs folders into bundles. The same folder gives the same bytes on every machine and at any time.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::bundle::bundle_reader::{BundleKind, BundleReader};
use crate::bundle::folder::FolderReader;
use docwharf_base::model::site_path::SitePath;

use super::image_space::ImageSpace;
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
    /// The name of the target ends with none of the supported extensions.
    #[error("{} does not say what to make; let it end with .zip, .tar, .tar.gz, .tgz or .tar.zst", .0.display())]
    NoKind(PathBuf),
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
    #[error("{} changed while it was packed; pack it again when it is quiet", .0.display())]
    Changed(PathBuf),
}

fn kind_by_extension(name: &Path) -> Option<BundleKind> {
    let name = name.file_name()?.to_str()?.to_ascii_lowercase();
    let ends = |end: &str| name.ends_with(end);
    match () {
        () if ends(".zip") => Some(BundleKind::Zip),
        () if ends(".tar") => Some(BundleKind::Tar),
        () if ends(".tar.gz") || ends(".tgz") => Some(BundleKind::TarGz),
        () if ends(".tar.zst") => Some(BundleKind::TarZst),
        () => None,
    }
}

/// The progress of each of the three passes of packing.
#[derive(Debug, Default)]
pub struct PackProgress {
    /// Verifying the folder.
    pub reading: SealProgress,
    /// Writing the bundle.
    pub writing: SealProgress,
    /// Verifying the bundle that was written.
    pub proving: SealProgress,
}

/// Packs the site in `folder` into `to`, whose extension selects the kind, and verifies the result. `meter` shows the
/// progress of the first pass.
pub fn pack(folder: &Path, to: &Path, effort: &SealOptions, meter: &SealProgress) -> Result<VerifiedBundle, PackError> {
    pack_measured(folder, to, effort, [meter, &SealProgress::default(), &SealProgress::default()])
}

/// As [`pack`], with the progress of all its passes.
pub fn pack_with_progress(
    folder: &Path,
    to: &Path,
    effort: &SealOptions,
    passes: &PackProgress,
) -> Result<VerifiedBundle, PackError> {
    pack_measured(folder, to, effort, [&passes.reading, &passes.writing, &passes.proving])
}

fn pack_measured(
    folder: &Path,
    to: &Path,
    effort: &SealOptions,
    [reading, writing, proving]: [&SealProgress; 3],
) -> Result<VerifiedBundle, PackError> {
    let kind = kind_by_extension(to).ok_or_else(|| PackError::NoKind(to.to_owned()))?;
    let write = |source| PackError::Write { path: to.to_owned(), source };
    let parent = match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let read = verify(folder, effort, reading)?;
    let mut output = tempfile::Builder::new().prefix(".docwharf-").tempfile_in(parent).map_err(write)?;
    if kind == BundleKind::Zip {
        let effort = SealOptions { level: GZIP_LEVEL, ..*effort };
        let sealing = seal(folder, &ImageSpace::Unlinked(parent.to_owned()), &effort, writing)?;
        let mut image = sealing.image.into_file();
        io::Seek::rewind(&mut image).and_then(|()| io::copy(&mut image, output.as_file_mut())).map_err(write)?;
    } else {
        let items = FolderReader::open(folder, &effort.limits).map_err(|e| SealError::from_read(e, folder, parent))?;
        write_tar(items, kind, output.as_file_mut(), writing).map_err(write)?;
    }
    output.as_file().sync_all().map_err(write)?;
    let proven = verify(output.path(), effort, proving)?;
    if proven.id != read.id {
        return Err(PackError::Changed(folder.to_owned()));
    }
    output.as_file().set_permissions(std::fs::Permissions::from_mode(0o644)).map_err(write)?;
    output.persist(to).map_err(|error| write(error.error))?;
    Ok(VerifiedBundle { warnings: read.warnings, ..proven })
}

fn write_tar(mut folder: FolderReader, kind: BundleKind, file: &mut File, meter: &SealProgress) -> io::Result<()> {
    let mut out: Box<dyn FinishWriter> = match kind {
        BundleKind::TarGz => {
            Box::new(flate2::write::GzEncoder::new(BufWriter::new(file), flate2::Compression::new(GZIP_LEVEL)))
        }
        BundleKind::TarZst => Box::new(zstd::stream::write::Encoder::new(BufWriter::new(file), ZSTD_LEVEL)?),
        _ => Box::new(BufWriter::new(file)),
    };
    while let Some(head) = folder.next_entry().map_err(io::Error::other)? {
        let Some(path) = head.path else { continue };
        write_header(&mut *out, &path, head.size)?;
        folder
            .read_content(&mut |bytes| {
                out.write_all(bytes).map_err(crate::bundle::bundle_reader::BundleReadError::Sink)
            })
            .map_err(io::Error::other)?;
        let padding = head.size.next_multiple_of(TAR_BLOCK_BYTES as u64) - head.size;
        out.write_all(&[0; TAR_BLOCK_BYTES][..padding as usize])?;
        meter.add(head.size);
    }
    out.write_all(&[0; 2 * TAR_BLOCK_BYTES])?;
    out.finish()
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
fn write_header(out: &mut dyn Write, path: &SitePath, size: u64) -> io::Result<()> {
    const MAX_USTAR_SIZE: u64 = 0o77_777_777_777;
    let path = path.as_bytes();
    let mut records = Vec::new();
    if path.len() > 100 {
        pax_record(&mut records, b"path", path);
    }
    if size > MAX_USTAR_SIZE {
        pax_record(&mut records, b"size", size.to_string().as_bytes());
    }
    if !records.is_empty() {
        out.write_all(&ustar_header(b"././@PaxHeader", records.len() as u64, b'x'))?;
        let padding = records.len().next_multiple_of(TAR_BLOCK_BYTES) - records.len();
        out.write_all(&records)?;
        out.write_all(&[0; TAR_BLOCK_BYTES][..padding])?;
    }
    out.write_all(&ustar_header(&path[..path.len().min(100)], size.min(MAX_USTAR_SIZE), b'0'))
}

/// Appends a PAX record, `LENGTH KEY=VALUE\n`, whose length includes its own digits.
fn pax_record(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    records.extend_from_slice(length.to_string().as_bytes());
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
