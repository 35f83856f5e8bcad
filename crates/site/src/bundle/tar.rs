//! Tar as a stream of entries: v7, ustar, PAX (POSIX.1-2001) and GNU (rules A8).
//!
//! Headers are 512-byte blocks. PAX headers and GNU long names precede the entry they speak of; a global PAX header
//! speaks of all that follow. What is not known to be harmless is refused.

use std::collections::HashSet;

use docwharf_base::model::limits::Limits;
use docwharf_base::model::site_path::{NameFault, SitePath};

use super::policy::{Fault, Refusal, Tally};
use super::stream::Source;
use super::{Entries, EntryKind, Head, ReadError, Sink};

const BLOCK: usize = 512;
/// Names and PAX records are bounded: memory must not follow what a header claims.
const LONGEST_META: u64 = 1 << 20;

/// A tar archive being read.
pub struct Tar {
    source: Box<dyn Source>,
    tally: Tally,
    /// Bytes of content and padding of the current entry still to come.
    left: u64,
    padding: u64,
    /// The current entry's name, for messages.
    name: Vec<u8>,
    global: Pax,
    /// Earlier regular files: what a hard link may name.
    files: HashSet<SitePath>,
    ended: bool,
}

/// What PAX records say that matters here.
#[derive(Debug, Default, Clone)]
struct Pax {
    path: Option<Vec<u8>>,
    linkpath: Option<Vec<u8>>,
    size: Option<u64>,
    sparse: bool,
}

/// A header block and what PAX and GNU headers said of its entry before.
type Described = (Box<[u8; BLOCK]>, Pax);

/// Whether `block` is a tar header by its checksum.
pub fn is_header(block: &[u8]) -> bool {
    block.len() >= BLOCK && !is_zero(&block[..BLOCK]) && checksum_holds(&block[..BLOCK])
}

fn is_zero(block: &[u8]) -> bool {
    block.iter().all(|&b| b == 0)
}

/// The sum of all bytes, those of the field itself as spaces; some old writers summed signed bytes.
fn checksum_holds(block: &[u8]) -> bool {
    let Some(stored) = octal(&block[148..156]) else {
        return false;
    };
    let value = |i: usize| {
        if (148..156).contains(&i) { b' ' } else { block[i] }
    };
    let unsigned: u64 = (0..BLOCK).map(|i| u64::from(value(i))).sum();
    let signed: i64 = (0..BLOCK).map(|i| i64::from(value(i).cast_signed())).sum();
    stored == unsigned || i64::try_from(stored) == Ok(signed)
}

/// An octal field: spaces, digits, then NUL or space to its end. Empty is zero.
fn octal(field: &[u8]) -> Option<u64> {
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

/// A size field: octal, or base-256 with the high bit of the first byte set (GNU); negative is refused.
fn size_field(field: &[u8]) -> Result<u64, Fault> {
    match field[0] {
        0x80 => field[1..].iter().try_fold(0u64, |sum, &b| {
            sum.checked_mul(256).map(|s| s | u64::from(b)).ok_or(Fault::Damaged("a size beyond all bounds"))
        }),
        0x81..=0xff => Err(Fault::Damaged("a negative or impossible size")),
        _ => octal(field).ok_or(Fault::Damaged("a size that is no number")),
    }
}

fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    &field[..end]
}

/// The name in the header itself: with the prefix where the header is ustar (not GNU, which uses those bytes for times).
fn header_name(block: &[u8]) -> Vec<u8> {
    let name = text(&block[..100]);
    let prefix = text(&block[345..500]);
    if &block[257..263] == b"ustar\0" && !prefix.is_empty() {
        let mut full = prefix.to_vec();
        full.push(b'/');
        full.extend_from_slice(name);
        full
    } else {
        name.to_vec()
    }
}

/// Records of a PAX header: `LENGTH KEY=VALUE\n`, each length counting the whole record.
fn parse_pax(mut data: &[u8], pax: &mut Pax) -> Result<(), Fault> {
    const WRONG: Fault = Fault::Damaged("a PAX header that does not parse");
    while !data.is_empty() {
        let space = data.iter().take(20).position(|&b| b == b' ').ok_or(WRONG)?;
        let length = decimal(&data[..space]).and_then(|n| usize::try_from(n).ok()).ok_or(WRONG)?;
        let record = data.get(space + 1..length).ok_or(WRONG)?;
        let record = record.strip_suffix(b"\n").ok_or(WRONG)?;
        let equals = record.iter().position(|&b| b == b'=').ok_or(WRONG)?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        if key.is_empty() {
            return Err(WRONG);
        }
        match key {
            // An empty value takes an earlier (global) one back.
            b"path" => pax.path = (!value.is_empty()).then(|| value.to_vec()),
            b"linkpath" => pax.linkpath = (!value.is_empty()).then(|| value.to_vec()),
            b"size" if value.is_empty() => pax.size = None,
            b"size" => pax.size = Some(decimal(value).ok_or(WRONG)?),
            _ if key.starts_with(b"GNU.sparse.") => pax.sparse = true,
            _ => {}
        }
        data = &data[length..];
    }
    Ok(())
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, &b| match b {
        b'0'..=b'9' => sum.checked_mul(10)?.checked_add(u64::from(b - b'0')),
        _ => None,
    })
}

impl Tar {
    /// Reads the archive that `source` decodes.
    pub fn new(source: Box<dyn Source>, limits: Limits) -> Tar {
        Tar {
            source,
            tally: Tally::new(limits),
            left: 0,
            padding: 0,
            name: Vec::new(),
            global: Pax::default(),
            files: HashSet::new(),
            ended: false,
        }
    }

    /// The source, for its receipt after the end.
    pub fn into_source(self) -> Box<dyn Source> {
        self.source
    }

    /// One block; `None` where the stream ends cleanly before it.
    fn block(&mut self) -> Result<Option<[u8; BLOCK]>, ReadError> {
        let mut block = [0; BLOCK];
        let mut have = 0;
        while have < BLOCK {
            let bytes = self.source.fill()?;
            if bytes.is_empty() {
                if have == 0 {
                    return Ok(None);
                }
                return Err(Fault::Cut("a tar header").of_archive().into());
            }
            let n = bytes.len().min(BLOCK - have);
            block[have..have + n].copy_from_slice(&bytes[..n]);
            self.source.consume(n);
            have += n;
        }
        Ok(Some(block))
    }

    fn skip_rest(&mut self) -> Result<(), ReadError> {
        self.content(&mut |_| Ok(()))
    }

    /// The content of a header that speaks of the next entry.
    fn meta(&mut self, size: u64) -> Result<Vec<u8>, ReadError> {
        if size > LONGEST_META {
            return Err(self.fault(Fault::Damaged("a name or PAX header over 1 MiB")).into());
        }
        let mut data = Vec::with_capacity(size as usize);
        self.left = size;
        self.padding = padding(size);
        self.content(&mut |bytes| {
            data.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(data)
    }

    fn fault(&self, fault: Fault) -> Refusal {
        fault.of(&self.name)
    }

    /// Behind the end marker only zeros may stand: another reader might go on there.
    fn drain(&mut self) -> Result<(), ReadError> {
        self.ended = true;
        loop {
            let bytes = self.source.fill()?;
            if bytes.is_empty() {
                return Ok(());
            }
            if !is_zero(bytes) {
                return Err(Fault::Damaged("it goes on behind its end marker").of_archive().into());
            }
            let n = bytes.len();
            self.source.consume(n);
        }
    }

    /// The header of the next real entry, with all that was said of it before.
    fn described(&mut self) -> Result<Option<Described>, ReadError> {
        let mut pax = self.global.clone();
        let mut pending = false;
        let (mut long_name, mut long_link) = (None, None);
        loop {
            let Some(block) = self.block()? else {
                if pending {
                    return Err(Fault::Cut("a header that speaks of no entry").of_archive().into());
                }
                self.ended = true;
                return Ok(None);
            };
            if is_zero(&block) {
                if pending {
                    return Err(Fault::Cut("a header that speaks of no entry").of_archive().into());
                }
                self.drain()?;
                return Ok(None);
            }
            if !checksum_holds(&block) {
                return Err(Fault::Damaged("a tar header's checksum").of_archive().into());
            }
            self.name = header_name(&block);
            let size = size_field(&block[124..136]).map_err(|fault| self.fault(fault))?;
            match block[156] {
                b'x' => {
                    let data = self.meta(size)?;
                    parse_pax(&data, &mut pax).map_err(|fault| self.fault(fault))?;
                    pending = true;
                }
                b'g' => {
                    let data = self.meta(size)?;
                    let mut global = std::mem::take(&mut self.global);
                    parse_pax(&data, &mut global).map_err(|fault| self.fault(fault))?;
                    if global.path.is_some() || global.linkpath.is_some() || global.size.is_some() || global.sparse {
                        // One path or size for every file that follows makes no sense but for deceit.
                        return Err(self.fault(Fault::Damaged("a global header that names files")).into());
                    }
                    self.global = global;
                }
                b'L' => {
                    long_name = Some(self.long(size)?);
                    pending = true;
                }
                b'K' => {
                    long_link = Some(self.long(size)?);
                    pending = true;
                }
                _ => {
                    // As for GNU tar and libarchive, PAX beats the GNU forms, and those beat the header.
                    pax.path = pax.path.or(long_name);
                    pax.linkpath = pax.linkpath.or(long_link);
                    return Ok(Some((Box::new(block), pax)));
                }
            }
        }
    }

    fn long(&mut self, size: u64) -> Result<Vec<u8>, ReadError> {
        let data = self.meta(size)?;
        // Ends with one NUL; a NUL before that is judged with the name.
        Ok(data.strip_suffix(&[0]).unwrap_or(&data).to_vec())
    }

    fn entry(&mut self, block: &[u8; BLOCK], pax: Pax) -> Result<Head, ReadError> {
        if let Some(name) = pax.path {
            self.name = name;
        }
        if pax.sparse || block[156] == b'S' {
            return Err(self.fault(Fault::Sparse).into());
        }
        let declared = size_field(&block[124..136]).map_err(|fault| self.fault(fault))?;
        let size = pax.size.unwrap_or(declared);
        let path = SitePath::judge(&self.name, false).map_err(|fault| self.fault(Fault::Name(fault)))?;
        let slash = self.name.ends_with(b"/");
        let special = |what| Fault::Special(what);
        let kind = match block[156] {
            // A slash at the end makes a folder of a file, as in v7.
            0 | b'0' | b'7' if slash => EntryKind::Folder,
            0 | b'0' | b'7' => EntryKind::File,
            b'5' => EntryKind::Folder,
            b'1' => self.hard_link(pax.linkpath.as_deref().unwrap_or_else(|| text(&block[157..257])))?,
            b'2' => return Err(self.fault(special("symbolic link")).into()),
            b'3' => return Err(self.fault(special("character device")).into()),
            b'4' => return Err(self.fault(special("block device")).into()),
            b'6' => return Err(self.fault(special("fifo")).into()),
            other => return Err(self.fault(Fault::TarType(other)).into()),
        };
        let size = match kind {
            EntryKind::File => size,
            EntryKind::Folder | EntryKind::SameAs(_) if size == 0 => 0,
            // Some writers give a folder or hard link a size without content; others with. Nobody can tell.
            EntryKind::Folder => return Err(self.fault(Fault::FolderWithContent).into()),
            EntryKind::SameAs(_) => {
                return Err(self.fault(Fault::Damaged("a hard link with content")).into());
            }
        };
        if path.is_none() && kind != EntryKind::Folder {
            return Err(self.fault(Fault::Name(NameFault::Empty)).into());
        }
        self.tally.entry(&self.name, size)?;
        self.left = size;
        self.padding = padding(size);
        if let (Some(path), EntryKind::File | EntryKind::SameAs(_)) = (&path, &kind) {
            self.files.insert(path.clone());
        }
        Ok(Head { path, kind, size, modified: 0 })
    }

    fn hard_link(&self, target: &[u8]) -> Result<EntryKind, Refusal> {
        match SitePath::judge(target, false) {
            Ok(Some(path)) if self.files.contains(&path) => Ok(EntryKind::SameAs(path)),
            _ => Err(self.fault(Fault::BadHardLink(target.to_vec()))),
        }
    }
}

fn padding(size: u64) -> u64 {
    size.next_multiple_of(BLOCK as u64) - size
}

impl Entries for Tar {
    fn next_entry(&mut self) -> Result<Option<Head>, ReadError> {
        self.skip_rest()?;
        if self.ended {
            return Ok(None);
        }
        match self.described()? {
            Some((block, pax)) => self.entry(&block, pax).map(Some),
            None => Ok(None),
        }
    }

    fn content(&mut self, sink: &mut Sink<'_>) -> Result<(), ReadError> {
        while self.left + self.padding > 0 {
            let bytes = self.source.fill()?;
            if bytes.is_empty() {
                return Err(Fault::Cut("an entry's content").of(&self.name).into());
            }
            let n = if self.left > 0 {
                let n = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
                sink(&bytes[..n])?;
                self.left -= n as u64;
                n
            } else {
                let n = bytes.len().min(self.padding as usize);
                self.padding -= n as u64;
                n
            };
            self.source.consume(n);
        }
        Ok(())
    }
}

impl std::fmt::Debug for Tar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tar").field("left", &self.left).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_fields_are_octal_or_positive_base_256() {
        assert_eq!(size_field(b"00000001750\0"), Ok(1000));
        assert_eq!(size_field(b"       17 \0 "), Ok(15));
        assert_eq!(size_field(b"\x80\0\0\0\0\0\0\0\0\0\x01\0"), Ok(256));
        assert!(size_field(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff").is_err());
        assert!(size_field(b"\x80\0\0\x01\0\0\0\0\0\0\0\0").is_err());
        assert!(size_field(b"0000000189\0\0").is_err());
        assert!(size_field(b"-0000000001\0").is_err());
    }

    #[test]
    fn pax_records_parse_to_the_byte_or_not_at_all() {
        let mut pax = Pax::default();
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
            assert!(parse_pax(wrong, &mut Pax::default()).is_err(), "{:?}", String::from_utf8_lossy(wrong));
        }
    }
}
