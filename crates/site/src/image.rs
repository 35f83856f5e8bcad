//! The writer of sealed images. An image is a standard ZIP (APPNOTE.TXT) that is written sequentially; its bytes do not
//! depend on the time or the machine.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::index::EntryCompression;

/// The id of an extra field (APPNOTE.TXT 4.5) which marks a name whose bytes are to be taken literally: the name is not
/// UTF-8, or has a backslash that is not a separator. The reader of our own images uses the same id.
const RAW_NAME_FIELD_ID: u16 = 0x7764;
/// Midnight of 1 January 1980 in MS-DOS format: the earliest time that a ZIP can hold.
const EARLIEST_DOS_TIME: [u8; 4] = [0, 0, 0x21, 0];
const ZIP32_LIMIT: u64 = u32::MAX as u64;

/// One member of the image, with the values of its headers.
#[derive(Debug, Clone)]
pub struct ImageMember {
    /// The path; that of a folder ends with `/`.
    pub name: Box<[u8]>,
    /// The compression method of the bytes.
    pub coding: EntryCompression,
    /// The CRC-32 of the content.
    pub crc: u32,
    /// The compressed size in bytes.
    pub coded_len: u64,
    /// The uncompressed size in bytes.
    pub len: u64,
    /// The offset of the local file header.
    pub header: u64,
}

fn write_u16_le(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn write_u32_le(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&(value.min(ZIP32_LIMIT) as u32).to_le_bytes());
}

fn write_u64_le(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

impl ImageMember {
    fn flags(&self) -> u16 {
        if !self.name.is_ascii() && std::str::from_utf8(&self.name).is_ok() { 1 << 11 } else { 0 }
    }

    fn write_raw_name_field(&self, out: &mut Vec<u8>) {
        if std::str::from_utf8(&self.name).is_err() || self.name.contains(&b'\\') {
            write_u16_le(out, RAW_NAME_FIELD_ID);
            write_u16_le(out, 0);
        }
    }

    /// Whether the local header has eight-byte sizes (zip64). This is decided from the size of the content before it is
    /// compressed, so the limit leaves 64 MiB for a compressed form that is larger than the content.
    fn needs_zip64(&self) -> bool {
        self.len >= ZIP32_LIMIT - (64 << 20)
    }

    fn write_common_fields(&self, out: &mut Vec<u8>, wide: bool) {
        write_u16_le(out, if wide { 45 } else { 20 });
        write_u16_le(out, self.flags());
        write_u16_le(out, if self.coding == EntryCompression::Deflate { 8 } else { 0 });
        out.extend_from_slice(&EARLIEST_DOS_TIME);
        write_u32_le(out, u64::from(self.crc));
        write_u32_le(out, if wide { ZIP32_LIMIT } else { self.coded_len });
        write_u32_le(out, if wide { ZIP32_LIMIT } else { self.len });
        write_u16_le(out, self.name.len() as u16);
    }

    /// Appends the local file header (APPNOTE.TXT 4.3.7).
    pub fn write_local_header(&self, out: &mut Vec<u8>) {
        let wide = self.needs_zip64();
        let mut extra = Vec::new();
        if wide {
            write_u16_le(&mut extra, 1);
            write_u16_le(&mut extra, 16);
            write_u64_le(&mut extra, self.len);
            write_u64_le(&mut extra, self.coded_len);
        }
        self.write_raw_name_field(&mut extra);
        out.extend_from_slice(b"PK\x03\x04");
        self.write_common_fields(out, wide);
        write_u16_le(out, extra.len() as u16);
        out.extend_from_slice(&self.name);
        out.extend_from_slice(&extra);
    }

    /// Appends the central directory header (APPNOTE.TXT 4.3.12).
    fn write_central_header(&self, out: &mut Vec<u8>) {
        let wide = self.needs_zip64();
        let mut values = Vec::new();
        if wide {
            write_u64_le(&mut values, self.len);
            write_u64_le(&mut values, self.coded_len);
        }
        if self.header >= ZIP32_LIMIT {
            write_u64_le(&mut values, self.header);
        }
        let mut extra = Vec::new();
        if !values.is_empty() {
            write_u16_le(&mut extra, 1);
            write_u16_le(&mut extra, values.len() as u16);
            extra.extend_from_slice(&values);
        }
        self.write_raw_name_field(&mut extra);
        let folder = self.name.ends_with(b"/");
        let mode: u32 = if folder { 0o040_755 << 16 | 0x10 } else { 0o100_644 << 16 };
        out.extend_from_slice(b"PK\x01\x02");
        write_u16_le(out, 3 << 8 | 45); // made by: Unix, version 4.5
        self.write_common_fields(out, wide);
        write_u16_le(out, extra.len() as u16);
        out.extend_from_slice(&[0; 6]); // no comment, disk 0, no internal attributes
        write_u32_le(out, u64::from(mode));
        write_u32_le(out, self.header);
        out.extend_from_slice(&self.name);
        out.extend_from_slice(&extra);
    }
}

/// An image that is being written. Members are appended one after another, each complete.
#[derive(Debug)]
pub struct ImageWriter {
    file: File,
    at: u64,
    central: Vec<u8>,
    count: u64,
}

/// A large member, whose content is written in several calls.
#[derive(Debug)]
pub struct LargeMember {
    member: ImageMember,
    data: u64,
}

impl ImageWriter {
    /// Creates a writer for `file`, which must be empty.
    pub fn new(file: File) -> ImageWriter {
        ImageWriter { file, at: 0, central: Vec::new(), count: 0 }
    }

    /// Returns the number of bytes written so far, which is the offset of the next member.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// Returns the file, for reading back what was written.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Appends a block of complete members at [`ImageWriter::position`]. The `header` offset of each member is relative
    /// to the start of the block.
    pub fn append(&mut self, block: &[u8], members: impl Iterator<Item = ImageMember>) -> io::Result<()> {
        self.file.write_all_at(block, self.at)?;
        for mut member in members {
            member.header += self.at;
            self.add_central_header(&member);
        }
        self.at += block.len() as u64;
        Ok(())
    }

    fn add_central_header(&mut self, member: &ImageMember) {
        member.write_central_header(&mut self.central);
        self.count += 1;
    }

    /// Appends a folder; its name ends with `/`.
    pub fn append_folder(&mut self, name: &[u8]) -> io::Result<()> {
        let member = ImageMember {
            name: name.into(),
            coding: EntryCompression::Stored,
            crc: 0,
            coded_len: 0,
            len: 0,
            header: 0,
        };
        let mut block = Vec::new();
        member.write_local_header(&mut block);
        self.append(&block, std::iter::once(member))
    }

    /// Starts a member with `len` bytes of content. [`ImageWriter::end_large`] completes its local header.
    pub fn begin_large(&mut self, name: &[u8], coding: EntryCompression, len: u64) -> io::Result<LargeMember> {
        let member = ImageMember { name: name.into(), coding, crc: 0, coded_len: 0, len, header: self.at };
        let mut head = Vec::new();
        member.write_local_header(&mut head);
        self.file.write_all_at(&head, self.at)?;
        self.at += head.len() as u64;
        Ok(LargeMember { member, data: self.at })
    }

    /// Appends compressed bytes to the large member that was started last.
    pub fn write_large(&mut self, coded: &[u8]) -> io::Result<()> {
        self.file.write_all_at(coded, self.at)?;
        self.at += coded.len() as u64;
        Ok(())
    }

    /// Completes a large member. Returns the offset and the length of its compressed data.
    pub fn end_large(&mut self, large: LargeMember, crc: u32) -> io::Result<(u64, u64)> {
        let LargeMember { mut member, data } = large;
        member.crc = crc;
        member.coded_len = self.at - data;
        let mut head = Vec::new();
        member.write_local_header(&mut head);
        self.file.write_all_at(&head, member.header)?;
        self.add_central_header(&member);
        Ok((data, member.coded_len))
    }

    /// Writes the central directory and the end records (APPNOTE.TXT 4.3.14 to 4.3.16). Returns the length of the
    /// image.
    pub fn finish(&mut self) -> io::Result<u64> {
        let (start, size) = (self.at, self.central.len() as u64);
        let mut tail = Vec::new();
        if self.count >= 0xffff || start >= ZIP32_LIMIT || size >= ZIP32_LIMIT {
            tail.extend_from_slice(b"PK\x06\x06");
            write_u64_le(&mut tail, 44);
            write_u16_le(&mut tail, 3 << 8 | 45);
            write_u16_le(&mut tail, 45);
            tail.extend_from_slice(&[0; 8]);
            for number in [self.count, self.count, size, start] {
                write_u64_le(&mut tail, number);
            }
            tail.extend_from_slice(b"PK\x06\x07\0\0\0\0");
            write_u64_le(&mut tail, start + size);
            tail.extend_from_slice(&1u32.to_le_bytes());
        }
        tail.extend_from_slice(b"PK\x05\x06\0\0\0\0");
        let narrow = self.count.min(0xffff) as u16;
        write_u16_le(&mut tail, narrow);
        write_u16_le(&mut tail, narrow);
        write_u32_le(&mut tail, size);
        write_u32_le(&mut tail, start);
        write_u16_le(&mut tail, 0);
        self.file.write_all_at(&self.central, start)?;
        self.file.write_all_at(&tail, start + size)?;
        self.at = start + size + tail.len() as u64;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn member(name: &[u8], len: u64, header: u64) -> ImageMember {
        ImageMember { name: name.into(), coding: EntryCompression::Stored, crc: 0x0403_0201, coded_len: 5, len, header }
    }

    fn local(member: &ImageMember) -> Vec<u8> {
        let mut out = Vec::new();
        member.write_local_header(&mut out);
        out
    }

    fn central(member: &ImageMember) -> Vec<u8> {
        let mut out = Vec::new();
        member.write_central_header(&mut out);
        out
    }

    #[test]
    fn names_are_marked_by_what_their_bytes_are() {
        for (name, flags, is_marked) in [
            (&b"a.html"[..], 0, false),
            ("é".as_bytes(), 1 << 11, false),
            (b"\xff", 0, true),
            (b"a\\b", 0, true),
            ("é\\".as_bytes(), 1 << 11, true),
        ] {
            let member = member(name, 5, 0);
            let mark: &[u8] = if is_marked { &[0x64, 0x77, 0, 0] } else { &[] };
            let (local, central) = (local(&member), central(&member));
            assert_eq!((&local[6..8], &local[30 + name.len()..]), (&u16::to_le_bytes(flags)[..], mark), "{name:?}");
            assert_eq!(
                (&central[8..10], &central[46 + name.len()..]),
                (&u16::to_le_bytes(flags)[..], mark),
                "{name:?}"
            );
            assert_eq!(
                (&local[26..30], &local[30..][..name.len()]),
                (&[name.len() as u8, 0, mark.len() as u8, 0][..], name)
            );
            assert_eq!((&central[28..32], &central[46..][..name.len()]), (&local[26..30], name));
        }
    }

    #[test]
    fn sizes_and_places_that_do_not_fit_have_eight_bytes() {
        const WIDE: u64 = ZIP32_LIMIT - (64 << 20);
        let narrow = local(&member(b"x", WIDE - 1, 0));
        assert_eq!((&narrow[..6], narrow.len()), (&b"PK\x03\x04\x14\0"[..], 31));
        assert_eq!(
            (&narrow[14..22], &narrow[22..26]),
            (&[1, 2, 3, 4, 5, 0, 0, 0][..], &(WIDE as u32 - 1).to_le_bytes()[..])
        );
        let wide = local(&member(b"x", WIDE, 0));
        assert_eq!((wide[4], &wide[18..26], &wide[31..35]), (45, &[0xff; 8][..], &[1, 0, 16, 0][..]));
        assert_eq!(wide[35..], [WIDE.to_le_bytes(), 5u64.to_le_bytes()].concat());
        for (len, header, values) in [
            (5, ZIP32_LIMIT - 1, vec![]),
            (5, ZIP32_LIMIT, vec![ZIP32_LIMIT]),
            (WIDE - 1, 0, vec![]),
            (WIDE, 0, vec![WIDE, 5]),
            (WIDE, ZIP32_LIMIT + 7, vec![WIDE, 5, ZIP32_LIMIT + 7]),
        ] {
            let central = central(&member(b"x", len, header));
            assert_eq!(central[42..46], (header.min(ZIP32_LIMIT) as u32).to_le_bytes(), "{len} {header}");
            let extra: Vec<u8> = values.iter().flat_map(|value: &u64| value.to_le_bytes()).collect();
            let head: &[u8] = if extra.is_empty() { &[] } else { &[1, 0, extra.len() as u8, 0] };
            assert_eq!(central[47..], [head, &extra].concat(), "{len} {header}");
        }
        let coded = ImageMember { coding: EntryCompression::Deflate, ..member(b"x", 9, 0) };
        assert_eq!((local(&coded)[8], central(&coded)[10], narrow[8]), (8, 8, 0));
        let modes = [&b"x"[..], b"x/"].map(|name| central(&member(name, 0, 0))[38..42].to_vec());
        assert_eq!(modes, [(0o100_644u32 << 16).to_le_bytes(), (0o040_755 << 16 | 0x10u32).to_le_bytes()]);
    }

    #[test]
    fn the_end_has_eight_bytes_from_the_first_number_on_that_does_not_fit() {
        for (at, count, is_wide) in
            [(0, 0xfffe, false), (0, 0xffff, true), (ZIP32_LIMIT - 1, 0, false), (ZIP32_LIMIT, 0, true)]
        {
            let mut writer = ImageWriter { at, count, ..ImageWriter::new(tempfile::tempfile().unwrap()) };
            let end = writer.finish().unwrap();
            assert_eq!(
                (end - at, writer.position(), writer.file().metadata().unwrap().len()),
                (if is_wide { 98 } else { 22 }, end, end)
            );
            let mut tail = vec![0; (end - at) as usize];
            writer.file().read_exact_at(&mut tail, at).unwrap();
            let (wide, short) = tail.split_at(tail.len() - 22);
            let narrow = (count.min(0xffff) as u16).to_le_bytes();
            assert_eq!((&short[..4], &short[8..10], &short[10..12]), (&b"PK\x05\x06"[..], &narrow[..], &narrow[..]));
            assert_eq!((&short[12..16], &short[16..20]), (&[0; 4][..], &(at as u32).to_le_bytes()[..]));
            if is_wide {
                let numbers = [count, count, 0, at].map(u64::to_le_bytes).concat();
                assert_eq!((&wide[..12], &wide[24..56]), (&b"PK\x06\x06\x2c\0\0\0\0\0\0\0"[..], &numbers[..]));
                assert_eq!((&wide[56..60], &wide[64..72]), (&b"PK\x06\x07"[..], &at.to_le_bytes()[..]));
            }
        }
    }

    #[test]
    fn what_was_written_another_reader_finds() {
        let mut writer = ImageWriter::new(tempfile::tempfile().unwrap());
        let whole = |name: &[u8], text: &[u8], header: usize| ImageMember {
            name: name.into(),
            coding: EntryCompression::Stored,
            crc: crc32fast::hash(text),
            coded_len: text.len() as u64,
            len: text.len() as u64,
            header: header as u64,
        };
        writer.append_folder(b"d/").unwrap();
        for (one, other) in [(&b"a.html"[..], &b"d/b.html"[..]), (b"d/c", b"e")] {
            let mut block = Vec::new();
            let members = [one, other].map(|name| {
                let member = whole(name, name, block.len());
                member.write_local_header(&mut block);
                block.extend_from_slice(name);
                member
            });
            writer.append(&block, members.into_iter()).unwrap();
        }
        let large = writer.begin_large(b"large", EntryCompression::Stored, 11).unwrap();
        let data = writer.position();
        writer.write_large(b"first").unwrap();
        writer.write_large(b"second").unwrap();
        assert_eq!(writer.end_large(large, crc32fast::hash(b"firstsecond")).unwrap(), (data, 11));
        writer.finish().unwrap();
        let mut archive = zip::ZipArchive::new(writer.file().try_clone().unwrap()).unwrap();
        assert_eq!(archive.len(), 6);
        for (name, expected) in [
            ("d/", ""),
            ("a.html", "a.html"),
            ("d/b.html", "d/b.html"),
            ("d/c", "d/c"),
            ("e", "e"),
            ("large", "firstsecond"),
        ] {
            let mut text = String::new();
            archive.by_name(name).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, expected, "{name}");
        }
    }
}
