//! Reads tar archives entry by entry: v7, ustar, pax (POSIX.1-2001) and GNU tar (docs/design/archives.md, rule 8).
//!
//! A header is a block of 512 bytes. A pax extended header and a GNU long name precede the entry that they describe; a
//! pax global header applies to all entries that follow. Everything that is not known to be harmless is refused.

use std::collections::HashSet;

use docwharf_base::model::limits::BundleLimits;
use docwharf_base::model::site_path::{EntryNameFault, SitePath};

use super::archive_stream::ArchiveStream;
use super::bundle_reader::{BundleEntry, BundleEntryKind, BundleReadError, BundleReader, ContentSink};
use super::refusal::{BundleFault, BundleRefusal, LimitCounter};

const BLOCK_BYTES: usize = 512;
/// The largest pax header or GNU long name in bytes. Memory must stay bounded whatever size a header declares.
const MAX_EXTENSION_BYTES: u64 = 1 << 20;

/// A tar archive being read.
pub struct TarReader {
    source: Box<dyn ArchiveStream>,
    counter: LimitCounter,
    /// The number of bytes of the current entry's content that have not been read yet.
    remaining: u64,
    /// The number of bytes of its padding that have not been read yet.
    remaining_padding: u64,
    /// The name of the current entry, for messages.
    name: Vec<u8>,
    global: PaxRecords,
    /// The regular files so far, one of which a hard link must name.
    files: HashSet<SitePath>,
    ended: bool,
}

/// The records of a pax header that have an effect here.
#[derive(Debug, Default, Clone)]
struct PaxRecords {
    path: Option<Vec<u8>>,
    linkpath: Option<Vec<u8>>,
    size: Option<u64>,
    sparse: bool,
}

/// A header block, and the records of the pax and GNU headers that precede it.
type HeaderWithPax = (Box<[u8; BLOCK_BYTES]>, PaxRecords);

/// Whether `block` is a tar header with a correct checksum.
pub fn is_tar_header(block: &[u8]) -> bool {
    block.len() >= BLOCK_BYTES && !is_zero(&block[..BLOCK_BYTES]) && has_valid_checksum(&block[..BLOCK_BYTES])
}

fn is_zero(block: &[u8]) -> bool {
    block.iter().all(|&b| b == 0)
}

/// Whether the checksum of a header is correct: the sum of all its bytes, with the checksum field as spaces. Some old
/// writers add signed bytes; their sum is accepted too.
fn has_valid_checksum(block: &[u8]) -> bool {
    let Some(stored) = parse_octal(&block[148..156]) else {
        return false;
    };
    let value = |i: usize| {
        if (148..156).contains(&i) { b' ' } else { block[i] }
    };
    let unsigned: u64 = (0..BLOCK_BYTES).map(|i| u64::from(value(i))).sum();
    let signed: i64 = (0..BLOCK_BYTES).map(|i| i64::from(value(i).cast_signed())).sum();
    stored == unsigned || i64::try_from(stored) == Ok(signed)
}

/// Parses an octal field: spaces, digits, then NUL or spaces to the end of the field. An empty field is zero.
fn parse_octal(field: &[u8]) -> Option<u64> {
    let digits: Vec<u8> =
        field.iter().copied().skip_while(|&b| b == b' ').take_while(|&b| b != 0 && b != b' ').collect();
    let used = field.iter().take_while(|&&b| b == b' ').count() + digits.len();
    if field[used..].iter().any(|&b| b != 0 && b != b' ') && !digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, &b| match b {
        b'0'..=b'7' => sum.checked_mul(8)?.checked_add(u64::from(b - b'0')),
        _ => None,
    })
}

/// Parses a size field: octal, or base-256 with the high bit of the first byte set (GNU tar). A negative size is
/// refused.
fn parse_size(field: &[u8]) -> Result<u64, BundleFault> {
    match field[0] {
        0x80 => field[1..].iter().try_fold(0u64, |sum, &b| {
            sum.checked_mul(256).map(|s| s | u64::from(b)).ok_or(BundleFault::Damaged("a size over 64 bits"))
        }),
        0x81..=0xff => Err(BundleFault::Damaged("a negative or impossible size")),
        _ => parse_octal(field).ok_or(BundleFault::Damaged("a size that is not a number")),
    }
}

fn trim_at_nul(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    &field[..end]
}

/// Returns the name in the header block itself. A ustar header also has a prefix field; a GNU header stores times in
/// those bytes.
fn header_name(block: &[u8]) -> Vec<u8> {
    let name = trim_at_nul(&block[..100]);
    let prefix = trim_at_nul(&block[345..500]);
    if &block[257..263] == b"ustar\0" && !prefix.is_empty() {
        let mut full = prefix.to_vec();
        full.push(b'/');
        full.extend_from_slice(name);
        full
    } else {
        name.to_vec()
    }
}

/// Parses the records of a pax header: `LENGTH KEY=VALUE\n`. The length counts the whole record.
fn parse_pax(mut data: &[u8], pax: &mut PaxRecords) -> Result<(), BundleFault> {
    const MALFORMED: BundleFault = BundleFault::Damaged("a PAX header that does not parse");
    while !data.is_empty() {
        let space = data.iter().take(20).position(|&b| b == b' ').ok_or(MALFORMED)?;
        let length = parse_decimal(&data[..space]).and_then(|n| usize::try_from(n).ok()).ok_or(MALFORMED)?;
        let record = data.get(space + 1..length).ok_or(MALFORMED)?;
        let record = record.strip_suffix(b"\n").ok_or(MALFORMED)?;
        let equals = record.iter().position(|&b| b == b'=').ok_or(MALFORMED)?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        if key.is_empty() {
            return Err(MALFORMED);
        }
        match key {
            // An empty value cancels an earlier one, also that of a global header.
            b"path" => pax.path = (!value.is_empty()).then(|| value.to_vec()),
            b"linkpath" => pax.linkpath = (!value.is_empty()).then(|| value.to_vec()),
            b"size" if value.is_empty() => pax.size = None,
            b"size" => pax.size = Some(parse_decimal(value).ok_or(MALFORMED)?),
            _ if key.starts_with(b"GNU.sparse.") => pax.sparse = true,
            _ => {}
        }
        data = &data[length..];
    }
    Ok(())
}

fn parse_decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, &b| match b {
        b'0'..=b'9' => sum.checked_mul(10)?.checked_add(u64::from(b - b'0')),
        _ => None,
    })
}

impl TarReader {
    /// Reads the tar archive in the decoded bytes of `source`.
    pub fn new(source: Box<dyn ArchiveStream>, limits: BundleLimits) -> TarReader {
        TarReader {
            source,
            counter: LimitCounter::new(limits),
            remaining: 0,
            remaining_padding: 0,
            name: Vec::new(),
            global: PaxRecords::default(),
            files: HashSet::new(),
            ended: false,
        }
    }

    /// Returns the source, which has the digest of the archive after the end.
    pub fn into_source(self) -> Box<dyn ArchiveStream> {
        self.source
    }

    /// Reads one block. Returns `None` if the stream ends before its first byte.
    fn read_block(&mut self) -> Result<Option<[u8; BLOCK_BYTES]>, BundleReadError> {
        let mut block = [0; BLOCK_BYTES];
        let mut filled = 0;
        while filled < BLOCK_BYTES {
            let bytes = self.source.fill()?;
            if bytes.is_empty() {
                if filled == 0 {
                    return Ok(None);
                }
                return Err(BundleFault::Truncated("a tar header").in_bundle().into());
            }
            let n = bytes.len().min(BLOCK_BYTES - filled);
            block[filled..filled + n].copy_from_slice(&bytes[..n]);
            self.source.consume(n);
            filled += n;
        }
        Ok(Some(block))
    }

    fn skip_rest(&mut self) -> Result<(), BundleReadError> {
        self.read_content(&mut |_| Ok(()))
    }

    /// Reads the content of a pax header or GNU long name.
    fn read_extension(&mut self, size: u64) -> Result<Vec<u8>, BundleReadError> {
        if size > MAX_EXTENSION_BYTES {
            return Err(self.fault(BundleFault::Damaged("a name or PAX header over 1 MiB")).into());
        }
        let mut data = Vec::with_capacity(size as usize);
        self.remaining = size;
        self.remaining_padding = padding_len(size);
        self.read_content(&mut |bytes| {
            data.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(data)
    }

    fn fault(&self, fault: BundleFault) -> BundleRefusal {
        fault.in_entry(&self.name)
    }

    /// Refuses anything but zeros after the end-of-archive marker: another reader might find more entries there.
    fn check_trailing_zeros(&mut self) -> Result<(), BundleReadError> {
        self.ended = true;
        loop {
            let bytes = self.source.fill()?;
            if bytes.is_empty() {
                return Ok(());
            }
            if !is_zero(bytes) {
                return Err(BundleFault::Damaged("it has data after its end marker").in_bundle().into());
            }
            let n = bytes.len();
            self.source.consume(n);
        }
    }

    /// Reads the header of the next entry, with the pax and GNU headers that precede it. Returns `None` at the end.
    fn read_header(&mut self) -> Result<Option<HeaderWithPax>, BundleReadError> {
        let mut pax = self.global.clone();
        let mut has_extension = false;
        let (mut long_name, mut long_link) = (None, None);
        loop {
            let Some(block) = self.read_block()? else {
                if has_extension {
                    return Err(BundleFault::Truncated("a header without the entry that it describes")
                        .in_bundle()
                        .into());
                }
                self.ended = true;
                return Ok(None);
            };
            if is_zero(&block) {
                if has_extension {
                    return Err(BundleFault::Truncated("a header without the entry that it describes")
                        .in_bundle()
                        .into());
                }
                self.check_trailing_zeros()?;
                return Ok(None);
            }
            if !has_valid_checksum(&block) {
                return Err(BundleFault::Damaged("a tar header's checksum").in_bundle().into());
            }
            self.name = header_name(&block);
            let size = parse_size(&block[124..136]).map_err(|fault| self.fault(fault))?;
            match block[156] {
                b'x' => {
                    let data = self.read_extension(size)?;
                    parse_pax(&data, &mut pax).map_err(|fault| self.fault(fault))?;
                    has_extension = true;
                }
                b'g' => {
                    let data = self.read_extension(size)?;
                    let mut global = std::mem::take(&mut self.global);
                    parse_pax(&data, &mut global).map_err(|fault| self.fault(fault))?;
                    if global.path.is_some() || global.linkpath.is_some() || global.size.is_some() || global.sparse {
                        // One path or size for all following files has no legitimate use.
                        return Err(self
                            .fault(BundleFault::Damaged("a global header with a path, a size or a sparse file"))
                            .into());
                    }
                    self.global = global;
                }
                b'L' => {
                    long_name = Some(self.read_long_name(size)?);
                    has_extension = true;
                }
                b'K' => {
                    long_link = Some(self.read_long_name(size)?);
                    has_extension = true;
                }
                _ => {
                    // pax records override GNU long names, and those override the header, as in GNU tar and libarchive.
                    pax.path = pax.path.or(long_name);
                    pax.linkpath = pax.linkpath.or(long_link);
                    return Ok(Some((Box::new(block), pax)));
                }
            }
        }
    }

    fn read_long_name(&mut self, size: u64) -> Result<Vec<u8>, BundleReadError> {
        let data = self.read_extension(size)?;
        // A long name ends with one NUL. Any other NUL is refused when the name is checked.
        Ok(data.strip_suffix(&[0]).unwrap_or(&data).to_vec())
    }

    fn parse_entry(&mut self, block: &[u8; BLOCK_BYTES], pax: PaxRecords) -> Result<BundleEntry, BundleReadError> {
        if let Some(name) = pax.path {
            self.name = name;
        }
        if pax.sparse || block[156] == b'S' {
            return Err(self.fault(BundleFault::Sparse).into());
        }
        let declared = parse_size(&block[124..136]).map_err(|fault| self.fault(fault))?;
        let size = pax.size.unwrap_or(declared);
        let path = SitePath::parse(&self.name, false).map_err(|fault| self.fault(BundleFault::Name(fault)))?;
        let has_slash = self.name.ends_with(b"/");
        let special_file = |what| BundleFault::SpecialFile(what);
        let kind = match block[156] {
            // A name that ends with a slash is a folder, as in v7.
            0 | b'0' | b'7' if has_slash => BundleEntryKind::Folder,
            0 | b'0' | b'7' => BundleEntryKind::File,
            b'5' => BundleEntryKind::Folder,
            b'1' => self.parse_hard_link(pax.linkpath.as_deref().unwrap_or_else(|| trim_at_nul(&block[157..257])))?,
            b'2' => return Err(self.fault(special_file("symbolic link")).into()),
            b'3' => return Err(self.fault(special_file("character device")).into()),
            b'4' => return Err(self.fault(special_file("block device")).into()),
            b'6' => return Err(self.fault(special_file("fifo")).into()),
            kind => return Err(self.fault(BundleFault::TarType(kind)).into()),
        };
        let size = match kind {
            BundleEntryKind::File => size,
            BundleEntryKind::Folder | BundleEntryKind::HardLink(_) if size == 0 => 0,
            // Some writers declare a size for a folder or hard link without writing content, others write the content.
            // The archive does not show which, so a size is refused.
            BundleEntryKind::Folder => return Err(self.fault(BundleFault::FolderWithContent).into()),
            BundleEntryKind::HardLink(_) => {
                return Err(self.fault(BundleFault::Damaged("a hard link with content")).into());
            }
        };
        if path.is_none() && kind != BundleEntryKind::Folder {
            return Err(self.fault(BundleFault::Name(EntryNameFault::Empty)).into());
        }
        self.counter.count_entry(&self.name, size)?;
        self.remaining = size;
        self.remaining_padding = padding_len(size);
        if let (Some(path), BundleEntryKind::File | BundleEntryKind::HardLink(_)) = (&path, &kind) {
            self.files.insert(path.clone());
        }
        Ok(BundleEntry { path, kind, size, modified: 0 })
    }

    fn parse_hard_link(&self, target: &[u8]) -> Result<BundleEntryKind, BundleRefusal> {
        match SitePath::parse(target, false) {
            Ok(Some(path)) if self.files.contains(&path) => Ok(BundleEntryKind::HardLink(path)),
            _ => Err(self.fault(BundleFault::BadHardLink(target.to_vec()))),
        }
    }
}

fn padding_len(size: u64) -> u64 {
    size.next_multiple_of(BLOCK_BYTES as u64) - size
}

impl BundleReader for TarReader {
    fn next_entry(&mut self) -> Result<Option<BundleEntry>, BundleReadError> {
        self.skip_rest()?;
        if self.ended {
            return Ok(None);
        }
        match self.read_header()? {
            Some((block, pax)) => self.parse_entry(&block, pax).map(Some),
            None => Ok(None),
        }
    }

    fn read_content(&mut self, sink: &mut ContentSink<'_>) -> Result<(), BundleReadError> {
        while self.remaining + self.remaining_padding > 0 {
            let bytes = self.source.fill()?;
            if bytes.is_empty() {
                return Err(BundleFault::Truncated("an entry's content").in_entry(&self.name).into());
            }
            let n = if self.remaining > 0 {
                let n = bytes.len().min(usize::try_from(self.remaining).unwrap_or(usize::MAX));
                sink(&bytes[..n])?;
                self.remaining -= n as u64;
                n
            } else {
                let n = bytes.len().min(self.remaining_padding as usize);
                self.remaining_padding -= n as u64;
                n
            };
            self.source.consume(n);
        }
        Ok(())
    }
}

impl std::fmt::Debug for TarReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TarReader").field("remaining", &self.remaining).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_fields_are_octal_or_positive_base_256() {
        assert_eq!(parse_size(b"00000001750\0"), Ok(1000));
        assert_eq!(parse_size(b"       17 \0 "), Ok(15));
        assert_eq!(parse_size(b"\x80\0\0\0\0\0\0\0\0\0\x01\0"), Ok(256));
        assert!(parse_size(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff").is_err());
        assert!(parse_size(b"\x80\0\0\x01\0\0\0\0\0\0\0\0").is_err());
        assert!(parse_size(b"0000000189\0\0").is_err());
        assert!(parse_size(b"-0000000001\0").is_err());
    }

    #[test]
    fn pax_records_are_parsed_exactly_and_malformed_ones_are_refused() {
        let mut pax = PaxRecords::default();
        assert_eq!(parse_pax(b"12 path=a b\n10 size=7\n", &mut pax), Ok(()));
        assert_eq!((pax.path.as_deref(), pax.size), (Some(&b"a b"[..]), Some(7)));
        for wrong in [
            &b"11 path=a b\n"[..],
            b"13 path=a b\n",
            b"x path=a\n",
            b"9 size=-\n",
            b"10 size=-7\n",
            b"4 =\n",
            b"path=a\n",
        ] {
            assert!(parse_pax(wrong, &mut PaxRecords::default()).is_err(), "{:?}", String::from_utf8_lossy(wrong));
        }
    }
}
