//! ZIP archives that are built byte by byte, so that a test can make each field wrong.

/// A member of an archive.
#[derive(Debug, Clone, Default)]
pub struct Member {
    /// The path in the archive.
    pub name: Vec<u8>,
    /// The content before compression.
    pub content: Vec<u8>,
    /// Whether the content is compressed (DEFLATE) or stored.
    pub deflate: bool,
}

/// Makes a stored member.
pub fn stored(name: &str, content: &str) -> Member {
    Member { name: name.into(), content: content.into(), deflate: false }
}

/// Makes a compressed member.
pub fn deflated(name: &str, content: &str) -> Member {
    Member { name: name.into(), content: content.into(), deflate: true }
}

/// Makes a valid archive of these members.
pub fn zip(members: &[Member]) -> Vec<u8> {
    archive(members).bytes()
}

/// Describes a valid archive of these members; its fields can be changed before it is written.
pub fn archive(members: &[Member]) -> RawArchive {
    RawArchive { members: members.iter().map(RawMember::from_member).collect(), ..RawArchive::default() }
}

/// Compresses into raw DEFLATE, by zlib.
pub fn deflate(content: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(content).expect("memory");
    encoder.finish().expect("memory")
}

/// Compresses into raw DEFLATE that ends on a byte boundary without a last block, and that does not refer to earlier
/// data. Such pieces can be concatenated in any order and ended with [`LAST_BLOCK`].
pub fn deflate_piece(content: &[u8]) -> Vec<u8> {
    let mut compressor = flate2::Compress::new(flate2::Compression::default(), false);
    let mut out = Vec::with_capacity(content.len() + content.len() / 100 + 4096);
    compressor.compress_vec(content, &mut out, flate2::FlushCompress::Full).expect("memory");
    assert_eq!(compressor.total_in(), content.len() as u64, "the buffer is large enough");
    out
}

/// An empty last block.
pub const LAST_BLOCK: [u8; 2] = [3, 0];

/// The fields that the local and the central header of a member share.
#[derive(Debug, Clone, Default)]
pub struct Header {
    /// The version needed to extract.
    pub version: u16,
    /// The general-purpose flags.
    pub flags: u16,
    /// The compression method.
    pub method: u16,
    /// The time and date in DOS format.
    pub time: [u8; 4],
    /// The CRC-32 of the content.
    pub crc: u32,
    /// The size of the compressed data.
    pub coded: u32,
    /// The size of the content.
    pub size: u32,
    /// The file name.
    pub name: Vec<u8>,
    /// The extra fields.
    pub extra: Vec<u8>,
}

impl Header {
    /// Appends the shared fields, up to the lengths of name and extra fields.
    fn append_to(&self, extra: &[u8], out: &mut Vec<u8>) {
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

/// A member with all fields that are written.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct RawMember {
    /// The local header.
    pub local: Header,
    /// The central directory header.
    pub central: Header,
    /// The compressed data.
    pub data: Vec<u8>,
    /// The bytes trailing the data, usually a data descriptor.
    pub trailing: Vec<u8>,
    /// The external attributes.
    pub attributes: u32,
    /// The number of the disk with the local header.
    pub disk: u16,
    /// The comment of the member.
    pub comment: Vec<u8>,
    /// The offset of the local header in the directory; `None` for the correct one.
    pub offset: Option<u32>,
    /// Whether sizes and offset are in zip64 fields; the fields in the headers then have all bits set.
    pub zip64: bool,
}

/// Makes an extra field.
pub fn extra(id: u16, data: &[u8]) -> Vec<u8> {
    [&id.to_le_bytes()[..], &(data.len() as u16).to_le_bytes(), data].concat()
}

impl RawMember {
    /// Makes a member with correct headers.
    pub fn from_member(member: &Member) -> RawMember {
        let data = if member.deflate { deflate(&member.content) } else { member.content.clone() };
        let method = if member.deflate { 8 } else { 0 };
        RawMember::coded(&member.name, method, data, crc32fast::hash(&member.content), member.content.len() as u32)
    }

    /// Makes a member from compressed data.
    pub fn coded(name: &[u8], method: u16, data: Vec<u8>, crc: u32, size: u32) -> RawMember {
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
        RawMember { central: local.clone(), local, data, attributes: 0o100_644 << 16, ..RawMember::default() }
    }

    /// Changes the local and the central header in the same way.
    pub fn change_both_headers(mut self, change: impl Fn(&mut Header)) -> RawMember {
        change(&mut self.local);
        change(&mut self.central);
        self
    }

    /// Moves checksum and sizes into a data descriptor, with or without a signature, with sizes of 8 or 4 bytes.
    pub fn with_data_descriptor(mut self, signed: bool, zip64: bool) -> RawMember {
        self = self.change_both_headers(|header| header.flags |= 8);
        self.trailing = if signed { b"PK\x07\x08".to_vec() } else { Vec::new() };
        self.trailing.extend_from_slice(&self.central.crc.to_le_bytes());
        for size in [self.central.coded, self.central.size] {
            let bytes = u64::from(size).to_le_bytes();
            self.trailing.extend_from_slice(&bytes[..if zip64 { 8 } else { 4 }]);
        }
        (self.local.crc, self.local.coded, self.local.size) = (0, 0, 0);
        self
    }

    /// Appends the local header, the data and the trailing bytes.
    pub fn put_local(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"PK\x03\x04");
        let mut header = self.local.clone();
        let mut all_extra = Vec::new();
        if self.zip64 {
            all_extra =
                extra(1, &[u64::from(header.size).to_le_bytes(), u64::from(header.coded).to_le_bytes()].concat());
            (header.size, header.coded) = (u32::MAX, u32::MAX);
        }
        all_extra.extend_from_slice(&header.extra);
        header.append_to(&all_extra, out);
        for part in [&header.name, &all_extra, &self.data, &self.trailing] {
            out.extend_from_slice(part);
        }
    }

    /// Appends the central directory header of a member at this offset.
    pub fn put_central(&self, local_offset: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(b"PK\x01\x02\x14\x03");
        let mut header = self.central.clone();
        let mut offset = self.offset.unwrap_or(local_offset);
        let mut all_extra = Vec::new();
        if self.zip64 {
            let values = [header.size, header.coded, offset].map(|value| u64::from(value).to_le_bytes());
            all_extra = extra(1, &values.concat());
            (header.size, header.coded, offset) = (u32::MAX, u32::MAX, u32::MAX);
        }
        all_extra.extend_from_slice(&header.extra);
        header.append_to(&all_extra, out);
        out.extend_from_slice(&(self.comment.len() as u16).to_le_bytes());
        out.extend_from_slice(&self.disk.to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&self.attributes.to_le_bytes());
        out.extend_from_slice(&offset.to_le_bytes());
        for part in [&header.name, &all_extra, &self.comment] {
            out.extend_from_slice(part);
        }
    }
}

/// An archive with all fields that are written; `None` stands for the correct value.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct RawArchive {
    /// The members in order.
    pub members: Vec<RawMember>,
    /// The bytes between the members and the directory.
    pub gap: Vec<u8>,
    /// The disk numbers in the end record.
    pub disks: [u16; 2],
    /// The number of entries on this disk in the end record.
    pub entries_on_disk: Option<u16>,
    /// The number of entries in the end record.
    pub total: Option<u16>,
    /// The size of the central directory in the end record.
    pub size: Option<u32>,
    /// The offset of the central directory in the end record.
    pub start: Option<u32>,
    /// The comment of the archive.
    pub comment: Vec<u8>,
    /// Whether a zip64 end record is written. The fields of the normal end record that are `None` then have all bits
    /// set.
    pub zip64: bool,
    /// The number of entries in the zip64 end record.
    pub zip64_total: Option<u64>,
}

impl RawArchive {
    /// Adds a member.
    pub fn with(mut self, member: RawMember) -> RawArchive {
        self.members.push(member);
        self
    }

    /// Returns the bytes of the archive.
    pub fn bytes(&self) -> Vec<u8> {
        let (mut out, mut central) = (Vec::new(), Vec::new());
        for member in &self.members {
            let local_offset = out.len() as u32;
            member.put_local(&mut out);
            member.put_central(local_offset, &mut central);
        }
        out.extend_from_slice(&self.gap);
        let start = out.len() as u64;
        let (size, count) = (central.len() as u64, self.members.len() as u64);
        out.extend_from_slice(&central);
        if self.zip64 {
            let zip64_end = out.len() as u64;
            let total = self.zip64_total.unwrap_or(count);
            out.extend_from_slice(b"PK\x06\x06");
            out.extend_from_slice(&44u64.to_le_bytes());
            out.extend_from_slice(&[45, 3, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            for value in [total, total, size, start] {
                out.extend_from_slice(&value.to_le_bytes());
            }
            out.extend_from_slice(b"PK\x06\x07\0\0\0\0");
            out.extend_from_slice(&zip64_end.to_le_bytes());
            out.extend_from_slice(&1u32.to_le_bytes());
        }
        let field16 = |value: Option<u16>| value.unwrap_or(if self.zip64 { 0xffff } else { count as u16 });
        let field32 =
            |value: Option<u32>, correct: u64| value.unwrap_or(if self.zip64 { u32::MAX } else { correct as u32 });
        out.extend_from_slice(b"PK\x05\x06");
        for value in [self.disks[0], self.disks[1], field16(self.entries_on_disk), field16(self.total)] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&field32(self.size, size).to_le_bytes());
        out.extend_from_slice(&field32(self.start, start).to_le_bytes());
        out.extend_from_slice(&(self.comment.len() as u16).to_le_bytes());
        out.extend_from_slice(&self.comment);
        out
    }
}
