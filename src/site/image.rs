//! Writing a sealed image: a standard ZIP, sequentially, with nothing in it that depends on when or where.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::index::Coding;

/// Marks a name whose bytes are meant as they are: not UTF-8, or with a backslash that does not separate. The reader of
/// our own images knows the same number.
const RAW_NAME: u16 = 0x7764;
/// 1 January 1980, midnight: the format's zero.
const DOS_TIME: [u8; 4] = [0, 0, 0x21, 0];
const MAX32: u64 = u32::MAX as u64;

/// One member of the image, as its headers tell it.
#[derive(Debug, Clone)]
pub struct Member {
    /// The path; a folder's ends with `/`.
    pub name: Box<[u8]>,
    /// How its bytes are coded.
    pub coding: Coding,
    /// CRC-32 of the content.
    pub crc: u32,
    /// Coded size.
    pub coded_len: u64,
    /// Size of the content.
    pub len: u64,
    /// Where its local header stands.
    pub header: u64,
}

fn put16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put32(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&(value.min(MAX32) as u32).to_le_bytes());
}

fn put64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

impl Member {
    fn flags(&self) -> u16 {
        if !self.name.is_ascii() && std::str::from_utf8(&self.name).is_ok() { 1 << 11 } else { 0 }
    }

    fn put_raw_mark(&self, out: &mut Vec<u8>) {
        if std::str::from_utf8(&self.name).is_err() || self.name.contains(&b'\\') {
            put16(out, RAW_NAME);
            put16(out, 0);
        }
    }

    /// Whether the local header needs eight-byte sizes. Decided by the content's size, with room for a coded form that
    /// is larger, so that it is known before the content is.
    fn wide(&self) -> bool {
        self.len >= MAX32 - (64 << 20)
    }

    fn put_common(&self, out: &mut Vec<u8>, wide: bool) {
        put16(out, if wide { 45 } else { 20 });
        put16(out, self.flags());
        put16(out, if self.coding == Coding::Deflate { 8 } else { 0 });
        out.extend_from_slice(&DOS_TIME);
        put32(out, u64::from(self.crc));
        put32(out, if wide { MAX32 } else { self.coded_len });
        put32(out, if wide { MAX32 } else { self.len });
        put16(out, self.name.len() as u16);
    }

    /// Appends the local header (APPNOTE 4.3.7).
    pub fn put_local(&self, out: &mut Vec<u8>) {
        let wide = self.wide();
        let mut extra = Vec::new();
        if wide {
            put16(&mut extra, 1);
            put16(&mut extra, 16);
            put64(&mut extra, self.len);
            put64(&mut extra, self.coded_len);
        }
        self.put_raw_mark(&mut extra);
        out.extend_from_slice(b"PK\x03\x04");
        self.put_common(out, wide);
        put16(out, extra.len() as u16);
        out.extend_from_slice(&self.name);
        out.extend_from_slice(&extra);
    }

    /// Appends the directory record (APPNOTE 4.3.12).
    fn put_central(&self, out: &mut Vec<u8>) {
        let wide = self.wide();
        let mut values = Vec::new();
        if wide {
            put64(&mut values, self.len);
            put64(&mut values, self.coded_len);
        }
        if self.header >= MAX32 {
            put64(&mut values, self.header);
        }
        let mut extra = Vec::new();
        if !values.is_empty() {
            put16(&mut extra, 1);
            put16(&mut extra, values.len() as u16);
            extra.extend_from_slice(&values);
        }
        self.put_raw_mark(&mut extra);
        let folder = self.name.ends_with(b"/");
        let mode: u32 = if folder { 0o040_755 << 16 | 0x10 } else { 0o100_644 << 16 };
        out.extend_from_slice(b"PK\x01\x02");
        put16(out, 3 << 8 | 45); // made by Unix
        self.put_common(out, wide);
        put16(out, extra.len() as u16);
        out.extend_from_slice(&[0; 6]); // no comment, disk 0, internal attributes
        put32(out, u64::from(mode));
        put32(out, self.header);
        out.extend_from_slice(&self.name);
        out.extend_from_slice(&extra);
    }
}

/// An image being written. Members are appended one after another, each whole.
#[derive(Debug)]
pub struct ImageWriter {
    file: File,
    at: u64,
    central: Vec<u8>,
    count: u64,
}

/// A member whose content is written in pieces because it is large.
#[derive(Debug)]
pub struct LargeMember {
    member: Member,
    data: u64,
}

impl ImageWriter {
    /// Writes to `file`, which is empty.
    pub fn new(file: File) -> ImageWriter {
        ImageWriter { file, at: 0, central: Vec::new(), count: 0 }
    }

    /// Bytes written so far: where the next member goes.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// The file, for reading back.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Appends a block of whole members that begins at [`ImageWriter::position`]; their `header` is relative to it.
    pub fn append(&mut self, block: &[u8], members: impl Iterator<Item = Member>) -> io::Result<()> {
        self.file.write_all_at(block, self.at)?;
        for mut member in members {
            member.header += self.at;
            self.record(&member);
        }
        self.at += block.len() as u64;
        Ok(())
    }

    fn record(&mut self, member: &Member) {
        member.put_central(&mut self.central);
        self.count += 1;
    }

    /// Appends an empty folder; its name ends with `/`.
    pub fn folder(&mut self, name: &[u8]) -> io::Result<()> {
        let member = Member { name: name.into(), coding: Coding::Stored, crc: 0, coded_len: 0, len: 0, header: 0 };
        let mut block = Vec::new();
        member.put_local(&mut block);
        self.append(&block, std::iter::once(member))
    }

    /// Begins a member of `len` bytes of content; its header is completed by [`ImageWriter::end_large`].
    pub fn begin_large(&mut self, name: &[u8], coding: Coding, len: u64) -> io::Result<LargeMember> {
        let member = Member { name: name.into(), coding, crc: 0, coded_len: 0, len, header: self.at };
        let mut head = Vec::new();
        member.put_local(&mut head);
        self.file.write_all_at(&head, self.at)?;
        self.at += head.len() as u64;
        Ok(LargeMember { member, data: self.at })
    }

    /// Appends coded bytes of a large member.
    pub fn write_large(&mut self, coded: &[u8]) -> io::Result<()> {
        self.file.write_all_at(coded, self.at)?;
        self.at += coded.len() as u64;
        Ok(())
    }

    /// Ends a large member; gives where its data begin and how many they are.
    pub fn end_large(&mut self, large: LargeMember, crc: u32) -> io::Result<(u64, u64)> {
        let LargeMember { mut member, data } = large;
        member.crc = crc;
        member.coded_len = self.at - data;
        let mut head = Vec::new();
        member.put_local(&mut head);
        self.file.write_all_at(&head, member.header)?;
        self.record(&member);
        Ok((data, member.coded_len))
    }

    /// Writes the directory and the end records (APPNOTE 4.3.14 to 4.3.16); gives the image's length.
    pub fn finish(&mut self) -> io::Result<u64> {
        let (start, size) = (self.at, self.central.len() as u64);
        let mut tail = Vec::new();
        if self.count >= 0xffff || start >= MAX32 || size >= MAX32 {
            tail.extend_from_slice(b"PK\x06\x06");
            put64(&mut tail, 44);
            put16(&mut tail, 3 << 8 | 45);
            put16(&mut tail, 45);
            tail.extend_from_slice(&[0; 8]);
            for number in [self.count, self.count, size, start] {
                put64(&mut tail, number);
            }
            tail.extend_from_slice(b"PK\x06\x07\0\0\0\0");
            put64(&mut tail, start + size);
            tail.extend_from_slice(&1u32.to_le_bytes());
        }
        tail.extend_from_slice(b"PK\x05\x06\0\0\0\0");
        let narrow = self.count.min(0xffff) as u16;
        put16(&mut tail, narrow);
        put16(&mut tail, narrow);
        put32(&mut tail, size);
        put32(&mut tail, start);
        put16(&mut tail, 0);
        self.file.write_all_at(&self.central, start)?;
        self.file.write_all_at(&tail, start + size)?;
        self.at = start + size + tail.len() as u64;
        Ok(self.at)
    }
}
