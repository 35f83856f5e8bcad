//! ZIP archives built byte by byte, so that each of their fields can lie.

/// One member. What is `None` is computed.
#[derive(Debug, Clone, Default)]
pub struct Member {
    /// Path in the archive.
    pub name: Vec<u8>,
    /// Content before coding.
    pub content: Vec<u8>,
    /// DEFLATE instead of plain storage.
    pub deflate: bool,
}

/// A stored member.
pub fn stored(name: &str, content: &str) -> Member {
    Member { name: name.into(), content: content.into(), deflate: false }
}

/// A compressed member.
pub fn deflated(name: &str, content: &str) -> Member {
    Member { name: name.into(), content: content.into(), deflate: true }
}

/// An honest archive of these members.
pub fn zip(members: &[Member]) -> Vec<u8> {
    archive(members).bytes()
}

/// An honest archive before it is written, so that fields can be changed.
pub fn archive(members: &[Member]) -> Archive {
    Archive { members: members.iter().map(Raw::of).collect(), ..Archive::default() }
}

/// Raw DEFLATE by zlib.
pub fn deflate(content: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(content).expect("memory");
    encoder.finish().expect("memory")
}

/// Raw DEFLATE that ends on a byte boundary without a last block and needs nothing from before: such pieces can be put
/// together at will and ended with [`LAST_BLOCK`].
pub fn deflate_piece(content: &[u8]) -> Vec<u8> {
    let mut raw = flate2::Compress::new(flate2::Compression::default(), false);
    let mut out = Vec::with_capacity(content.len() + content.len() / 100 + 4096);
    raw.compress_vec(content, &mut out, flate2::FlushCompress::Full).expect("memory");
    assert_eq!(raw.total_in(), content.len() as u64, "the buffer is large enough");
    out
}

/// An empty last block.
pub const LAST_BLOCK: [u8; 2] = [3, 0];

/// Fields that local and central headers share.
#[derive(Debug, Clone, Default)]
pub struct Header {
    /// Version needed to extract.
    pub version: u16,
    /// General-purpose flags.
    pub flags: u16,
    /// Compression method.
    pub method: u16,
    /// Time and date in the format of DOS.
    pub time: [u8; 4],
    /// CRC-32 of the content.
    pub crc: u32,
    /// Size of the coded data.
    pub coded: u32,
    /// Size of the content.
    pub size: u32,
    /// File name.
    pub name: Vec<u8>,
    /// Extra fields.
    pub extra: Vec<u8>,
}

impl Header {
    fn put(&self, extra: &[u8], out: &mut Vec<u8>) {
        for value in [self.version, self.flags, self.method] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&self.time);
        for value in [self.crc, self.coded, self.size] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&(self.name.len() as u16).to_le_bytes());
        out.extend_from_slice(&(extra.len() as u16).to_le_bytes());
    }
}

/// A member as it will be written.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Raw {
    /// Local header.
    pub local: Header,
    /// Central directory header.
    pub central: Header,
    /// Coded data.
    pub data: Vec<u8>,
    /// Bytes behind the data: mostly a data descriptor.
    pub behind: Vec<u8>,
    /// External attributes.
    pub attributes: u32,
    /// Number of the disk with the local header.
    pub disk: u16,
    /// Comment of the member.
    pub comment: Vec<u8>,
    /// Offset of the local header in the directory; `None` is the truth.
    pub offset: Option<u32>,
    /// Sizes and offset in zip64 fields, whose place in the headers is taken by ones.
    pub wide: bool,
}

/// An extra field.
pub fn extra(id: u16, data: &[u8]) -> Vec<u8> {
    [&id.to_le_bytes()[..], &(data.len() as u16).to_le_bytes(), data].concat()
}

impl Raw {
    /// A member with true headers.
    pub fn of(member: &Member) -> Raw {
        let data = if member.deflate { deflate(&member.content) } else { member.content.clone() };
        let method = if member.deflate { 8 } else { 0 };
        Raw::coded(&member.name, method, data, crc32fast::hash(&member.content), member.content.len() as u32)
    }

    /// A member of data that are coded already.
    pub fn coded(name: &[u8], method: u16, data: Vec<u8>, crc: u32, size: u32) -> Raw {
        let coded = data.len() as u32;
        let local = Header {
            version: 20,
            method,
            time: [0, 0, 0x21, 0],
            crc,
            coded,
            size,
            name: name.into(),
            ..Header::default()
        };
        Raw { central: local.clone(), local, data, attributes: 0o100_644 << 16, ..Raw::default() }
    }

    /// Changes both headers alike.
    pub fn both(mut self, change: impl Fn(&mut Header)) -> Raw {
        change(&mut self.local);
        change(&mut self.central);
        self
    }

    /// Moves checksum and sizes into a data descriptor.
    pub fn descriptor(mut self, signed: bool, wide: bool) -> Raw {
        self = self.both(|header| header.flags |= 8);
        self.behind = if signed { b"PK\x07\x08".to_vec() } else { Vec::new() };
        self.behind.extend_from_slice(&self.central.crc.to_le_bytes());
        for size in [self.central.coded, self.central.size] {
            let bytes = u64::from(size).to_le_bytes();
            self.behind.extend_from_slice(&bytes[..if wide { 8 } else { 4 }]);
        }
        (self.local.crc, self.local.coded, self.local.size) = (0, 0, 0);
        self
    }

    /// Appends the local header, the data and the bytes behind them.
    pub fn put_local(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"PK\x03\x04");
        let mut header = self.local.clone();
        let mut all = Vec::new();
        if self.wide {
            all = extra(1, &[u64::from(header.size).to_le_bytes(), u64::from(header.coded).to_le_bytes()].concat());
            (header.size, header.coded) = (u32::MAX, u32::MAX);
        }
        all.extend_from_slice(&header.extra);
        header.put(&all, out);
        for part in [&header.name, &all, &self.data, &self.behind] {
            out.extend_from_slice(part);
        }
    }

    /// Appends the central directory header of a member at this offset.
    pub fn put_central(&self, at: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(b"PK\x01\x02\x14\x03");
        let mut header = self.central.clone();
        let mut at = self.offset.unwrap_or(at);
        let mut all = Vec::new();
        if self.wide {
            let values = [header.size, header.coded, at].map(|value| u64::from(value).to_le_bytes());
            all = extra(1, &values.concat());
            (header.size, header.coded, at) = (u32::MAX, u32::MAX, u32::MAX);
        }
        all.extend_from_slice(&header.extra);
        header.put(&all, out);
        out.extend_from_slice(&(self.comment.len() as u16).to_le_bytes());
        out.extend_from_slice(&self.disk.to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&self.attributes.to_le_bytes());
        out.extend_from_slice(&at.to_le_bytes());
        for part in [&header.name, &all, &self.comment] {
            out.extend_from_slice(part);
        }
    }
}

/// An archive as it will be written; `None` is the truth.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Archive {
    /// Members in order.
    pub members: Vec<Raw>,
    /// Bytes between the members and the directory.
    pub gap: Vec<u8>,
    /// Disk numbers of the end record.
    pub disks: [u16; 2],
    /// Entries on this disk in the end record.
    pub here: Option<u16>,
    /// Entries in the end record.
    pub total: Option<u16>,
    /// Size of the central directory in the end record.
    pub size: Option<u32>,
    /// Offset of the central directory in the end record.
    pub start: Option<u32>,
    /// Comment of the archive.
    pub comment: Vec<u8>,
    /// Writes a zip64 end record, and ones in the old one where it says nothing else.
    pub wide: bool,
    /// The count in the zip64 end record.
    pub wide_total: Option<u64>,
}

impl Archive {
    /// Adds a member.
    pub fn with(mut self, member: Raw) -> Archive {
        self.members.push(member);
        self
    }

    /// The archive as bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let (mut out, mut central) = (Vec::new(), Vec::new());
        for member in &self.members {
            let at = out.len() as u32;
            member.put_local(&mut out);
            member.put_central(at, &mut central);
        }
        out.extend_from_slice(&self.gap);
        let start = out.len() as u64;
        let (size, count) = (central.len() as u64, self.members.len() as u64);
        out.extend_from_slice(&central);
        if self.wide {
            let at = out.len() as u64;
            let total = self.wide_total.unwrap_or(count);
            out.extend_from_slice(b"PK\x06\x06");
            out.extend_from_slice(&44u64.to_le_bytes());
            out.extend_from_slice(&[45, 3, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            for value in [total, total, size, start] {
                out.extend_from_slice(&value.to_le_bytes());
            }
            out.extend_from_slice(b"PK\x06\x07\0\0\0\0");
            out.extend_from_slice(&at.to_le_bytes());
            out.extend_from_slice(&1u32.to_le_bytes());
        }
        let narrow16 = |told: Option<u16>| told.unwrap_or(if self.wide { 0xffff } else { count as u16 });
        let narrow32 = |told: Option<u32>, truth: u64| told.unwrap_or(if self.wide { u32::MAX } else { truth as u32 });
        out.extend_from_slice(b"PK\x05\x06");
        for value in [self.disks[0], self.disks[1], narrow16(self.here), narrow16(self.total)] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&narrow32(self.size, size).to_le_bytes());
        out.extend_from_slice(&narrow32(self.start, start).to_le_bytes());
        out.extend_from_slice(&(self.comment.len() as u16).to_le_bytes());
        out.extend_from_slice(&self.comment);
        out
    }
}
