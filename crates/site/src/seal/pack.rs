//! Making bundles: the same folder gives the same bytes, wherever and whenever.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::bundle::folder::Folder;
use crate::bundle::{Entries, Kind};
use docwharf_base::model::site_path::SitePath;

use super::{Effort, Meter, Proven, SealError, Space, seal, verify};

/// zlib's usual effort: a bundle is made once and carried far.
const GZIP_LEVEL: u32 = 6;
/// zstd's effort for the same purpose.
const ZSTD_LEVEL: i32 = 12;
const BLOCK: usize = 512;

/// Why no bundle was made.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The folder is no site, or cannot be read.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The name says none of the kinds that can be made.
    #[error("{} does not say what to make; let it end with .zip, .tar, .tar.gz, .tgz or .tar.zst", .0.display())]
    NoKind(PathBuf),
    /// The bundle cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The bundle.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What was written is not what was read.
    #[error("{} changed while it was packed; pack it again when it is quiet", .0.display())]
    Changed(PathBuf),
}

fn kind_of(name: &Path) -> Option<Kind> {
    let name = name.file_name()?.to_str()?.to_ascii_lowercase();
    let ends = |end: &str| name.ends_with(end);
    match () {
        () if ends(".zip") => Some(Kind::Zip),
        () if ends(".tar") => Some(Kind::Tar),
        () if ends(".tar.gz") || ends(".tgz") => Some(Kind::TarGz),
        () if ends(".tar.zst") => Some(Kind::TarZst),
        () => None,
    }
}

/// How far each of the three passes over a folder has come.
#[derive(Debug, Default)]
pub struct Passes {
    /// Reading it, to learn what it is.
    pub reading: Meter,
    /// Writing the bundle.
    pub writing: Meter,
    /// Proving what was written.
    pub proving: Meter,
}

/// Packs the site in `folder` into `to`, whose name says the kind, and proves what was written. `meter` is that of the
/// first pass.
pub fn pack(folder: &Path, to: &Path, effort: &Effort, meter: &Meter) -> Result<Proven, PackError> {
    pack_measured(folder, to, effort, [meter, &Meter::default(), &Meter::default()])
}

/// As [`pack`], with all its passes measured.
pub fn pack_watched(folder: &Path, to: &Path, effort: &Effort, passes: &Passes) -> Result<Proven, PackError> {
    pack_measured(folder, to, effort, [&passes.reading, &passes.writing, &passes.proving])
}

fn pack_measured(
    folder: &Path,
    to: &Path,
    effort: &Effort,
    [reading, writing, proving]: [&Meter; 3],
) -> Result<Proven, PackError> {
    let kind = kind_of(to).ok_or_else(|| PackError::NoKind(to.to_owned()))?;
    let write = |source| PackError::Write { path: to.to_owned(), source };
    let parent = match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let read = verify(folder, effort, reading)?;
    let mut output = tempfile::Builder::new().prefix(".docwharf-").tempfile_in(parent).map_err(write)?;
    if kind == Kind::Zip {
        let effort = Effort { level: GZIP_LEVEL, ..*effort };
        let mut sealing = seal(folder, &Space::Unlinked(parent.to_owned()), &effort, writing)?;
        io::Seek::rewind(&mut sealing.image)
            .and_then(|()| io::copy(&mut sealing.image, output.as_file_mut()))
            .map_err(write)?;
    } else {
        let items = Folder::open(folder, &effort.limits).map_err(|e| SealError::from_read(e, folder, parent))?;
        write_tar(items, kind, output.as_file_mut(), writing).map_err(write)?;
    }
    output.as_file().sync_all().map_err(write)?;
    let proven = verify(output.path(), effort, proving)?;
    if proven.id != read.id {
        return Err(PackError::Changed(folder.to_owned()));
    }
    output.as_file().set_permissions(std::fs::Permissions::from_mode(0o644)).map_err(write)?;
    output.persist(to).map_err(|error| write(error.error))?;
    Ok(Proven { warnings: read.warnings, ..proven })
}

fn write_tar(mut folder: Folder, kind: Kind, file: &mut File, meter: &Meter) -> io::Result<()> {
    let mut out: Box<dyn Finish> = match kind {
        Kind::TarGz => {
            Box::new(flate2::write::GzEncoder::new(BufWriter::new(file), flate2::Compression::new(GZIP_LEVEL)))
        }
        Kind::TarZst => Box::new(zstd::stream::write::Encoder::new(BufWriter::new(file), ZSTD_LEVEL)?),
        _ => Box::new(BufWriter::new(file)),
    };
    while let Some(head) = folder.next_entry().map_err(io::Error::other)? {
        let Some(path) = head.path else { continue };
        write_header(&mut *out, &path, head.size)?;
        folder
            .content(&mut |bytes| out.write_all(bytes).map_err(crate::bundle::ReadError::Sink))
            .map_err(io::Error::other)?;
        let padding = head.size.next_multiple_of(BLOCK as u64) - head.size;
        out.write_all(&[0; BLOCK][..padding as usize])?;
        meter.add(head.size);
    }
    out.write_all(&[0; 2 * BLOCK])?;
    out.finish()
}

/// A writer with an end of its own.
trait Finish: Write {
    fn finish(self: Box<Self>) -> io::Result<()>;
}

impl<W: Write> Finish for flate2::write::GzEncoder<W> {
    fn finish(self: Box<Self>) -> io::Result<()> {
        flate2::write::GzEncoder::finish(*self)?.flush()
    }
}

impl<W: Write> Finish for zstd::stream::write::Encoder<'static, W> {
    fn finish(self: Box<Self>) -> io::Result<()> {
        zstd::stream::write::Encoder::finish(*self)?.flush()
    }
}

impl<W: Write> Finish for BufWriter<W> {
    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.flush()
    }
}

/// A ustar header with nothing in it that differs between machines, and a PAX header before it where a path or size
/// does not fit (POSIX.1-2017, pax, "ustar Interchange Format").
fn write_header(out: &mut dyn Write, path: &SitePath, size: u64) -> io::Result<()> {
    const LARGEST: u64 = 0o77_777_777_777;
    let path = path.as_bytes();
    let mut records = Vec::new();
    if path.len() > 100 {
        pax_record(&mut records, b"path", path);
    }
    if size > LARGEST {
        pax_record(&mut records, b"size", size.to_string().as_bytes());
    }
    if !records.is_empty() {
        out.write_all(&header(b"././@PaxHeader", records.len() as u64, b'x'))?;
        let padding = records.len().next_multiple_of(BLOCK) - records.len();
        out.write_all(&records)?;
        out.write_all(&[0; BLOCK][..padding])?;
    }
    out.write_all(&header(&path[..path.len().min(100)], size.min(LARGEST), b'0'))
}

/// `LENGTH KEY=VALUE\n`, where the length counts its own digits.
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

fn header(name: &[u8], size: u64, kind: u8) -> [u8; BLOCK] {
    let mut block = [0u8; BLOCK];
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
