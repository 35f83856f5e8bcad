//! The writer of sealed images. An image is a standard ZIP (APPNOTE.TXT) that is written sequentially; its bytes do not
//! depend on the time or the machine.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::index::EntryCompression;

/// The id of an extra field (APPNOTE.TXT 4.5) which marks a name whose bytes are used unchanged: the name is not UTF-8,
/// or has a backslash that is not a separator. `bundle::zip::RAW_NAME_FIELD_ID`, by which the reader finds this field,
/// is the same number: the writer of images and that reader do not import from each other (ARCHITECTURE.md, Crates and
/// layers).
const RAW_NAME_FIELD_ID: u16 = 0x7764;
/// Midnight of 1 January 1980 in MS-DOS format: the earliest time that a ZIP can hold.
const EARLIEST_DOS_TIME: [u8; 4] = [0, 0, 0x21, 0];
const ZIP32_LIMIT: u64 = u32::MAX as u64;

/// One entry of the image, with the values of its headers.
#[derive(Debug, Clone)]
pub struct ImageEntry {
    /// The path. That of a folder ends with `/`.
    pub name: Box<[u8]>,
    /// The compression method of the bytes.
    pub compression: EntryCompression,
    /// The CRC-32 of the content.
    pub crc: u32,
    /// The compressed size in bytes.
    pub compressed_len: u64,
    /// The uncompressed size in bytes.
    pub len: u64,
    /// The offset of the local file header.
    pub header_offset: u64,
}

fn write_u16_le(output: &mut Vec<u8>, value: u16) {
    output.extend_from_slice(&value.to_le_bytes());
}

fn write_u32_le(output: &mut Vec<u8>, value: u64) {
    output.extend_from_slice(&(value.min(ZIP32_LIMIT) as u32).to_le_bytes());
}

fn write_u64_le(output: &mut Vec<u8>, value: u64) {
    output.extend_from_slice(&value.to_le_bytes());
}

impl ImageEntry {
    fn flags(&self) -> u16 {
        if !self.name.is_ascii() && std::str::from_utf8(&self.name).is_ok() { 1 << 11 } else { 0 }
    }

    fn write_raw_name_field(&self, output: &mut Vec<u8>) {
        if std::str::from_utf8(&self.name).is_err() || self.name.contains(&b'\\') {
            write_u16_le(output, RAW_NAME_FIELD_ID);
            write_u16_le(output, 0);
        }
    }

    /// Whether the local header has eight-byte sizes (zip64). This is decided from the size of the content before it is
    /// compressed, so the limit leaves 64 MiB for a compressed form that is larger than the content.
    fn needs_zip64(&self) -> bool {
        self.len >= ZIP32_LIMIT - (64 << 20)
    }

    fn write_common_fields(&self, output: &mut Vec<u8>, is_zip64: bool) {
        write_u16_le(output, if is_zip64 { 45 } else { 20 });
        write_u16_le(output, self.flags());
        write_u16_le(output, if self.compression == EntryCompression::Deflate { 8 } else { 0 });
        output.extend_from_slice(&EARLIEST_DOS_TIME);
        write_u32_le(output, u64::from(self.crc));
        write_u32_le(output, if is_zip64 { ZIP32_LIMIT } else { self.compressed_len });
        write_u32_le(output, if is_zip64 { ZIP32_LIMIT } else { self.len });
        write_u16_le(output, self.name.len() as u16);
    }

    /// Appends the local file header (APPNOTE.TXT 4.3.7).
    pub fn write_local_header(&self, output: &mut Vec<u8>) {
        let is_zip64 = self.needs_zip64();
        let mut extra = Vec::new();
        if is_zip64 {
            write_u16_le(&mut extra, 1);
            write_u16_le(&mut extra, 16);
            write_u64_le(&mut extra, self.len);
            write_u64_le(&mut extra, self.compressed_len);
        }
        self.write_raw_name_field(&mut extra);
        output.extend_from_slice(b"PK\x03\x04");
        self.write_common_fields(output, is_zip64);
        write_u16_le(output, extra.len() as u16);
        output.extend_from_slice(&self.name);
        output.extend_from_slice(&extra);
    }

    /// Appends the central directory header (APPNOTE.TXT 4.3.12).
    fn write_central_header(&self, output: &mut Vec<u8>) {
        let is_zip64 = self.needs_zip64();
        let mut values = Vec::new();
        if is_zip64 {
            write_u64_le(&mut values, self.len);
            write_u64_le(&mut values, self.compressed_len);
        }
        if self.header_offset >= ZIP32_LIMIT {
            write_u64_le(&mut values, self.header_offset);
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
        output.extend_from_slice(b"PK\x01\x02");
        write_u16_le(output, 3 << 8 | 45); // made by: Unix, version 4.5
        self.write_common_fields(output, is_zip64);
        write_u16_le(output, extra.len() as u16);
        output.extend_from_slice(&[0; 6]); // no comment, disk 0, no internal attributes
        write_u32_le(output, u64::from(mode));
        write_u32_le(output, self.header_offset);
        output.extend_from_slice(&self.name);
        output.extend_from_slice(&extra);
    }
}

/// The writer of an image. Entries are appended one after another, each complete.
#[derive(Debug)]
pub struct ImageWriter {
    file: File,
    position: u64,
    /// The central directory headers of the entries so far.
    central_directory: Vec<u8>,
    count: u64,
}

/// A large entry, whose content is written in several calls.
#[derive(Debug)]
pub struct LargeEntry {
    entry: ImageEntry,
    data_offset: u64,
}

impl ImageWriter {
    /// Creates a writer for `file`, which must be empty.
    pub fn new(file: File) -> ImageWriter {
        ImageWriter { file, position: 0, central_directory: Vec::new(), count: 0 }
    }

    /// Returns the number of bytes written so far, which is the offset of the next entry.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the file, from which the written bytes can be read again.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Appends a block of complete entries at [`ImageWriter::position`]. The `header_offset` of each entry is relative
    /// to the start of the block.
    pub fn append(&mut self, block: &[u8], entries: impl Iterator<Item = ImageEntry>) -> io::Result<()> {
        self.file.write_all_at(block, self.position)?;
        for mut entry in entries {
            entry.header_offset += self.position;
            self.add_central_header(&entry);
        }
        self.position += block.len() as u64;
        Ok(())
    }

    fn add_central_header(&mut self, entry: &ImageEntry) {
        entry.write_central_header(&mut self.central_directory);
        self.count += 1;
    }

    /// Appends a folder; its name ends with `/`.
    pub fn append_folder(&mut self, name: &[u8]) -> io::Result<()> {
        let entry = ImageEntry {
            name: name.into(),
            compression: EntryCompression::Stored,
            crc: 0,
            compressed_len: 0,
            len: 0,
            header_offset: 0,
        };
        let mut block = Vec::new();
        entry.write_local_header(&mut block);
        self.append(&block, std::iter::once(entry))
    }

    /// Starts an entry with `len` bytes of content. [`ImageWriter::finish_large_entry`] completes its local header.
    pub fn start_large_entry(
        &mut self,
        name: &[u8],
        compression: EntryCompression,
        len: u64,
    ) -> io::Result<LargeEntry> {
        let entry =
            ImageEntry { name: name.into(), compression, crc: 0, compressed_len: 0, len, header_offset: self.position };
        let mut head = Vec::new();
        entry.write_local_header(&mut head);
        self.file.write_all_at(&head, self.position)?;
        self.position += head.len() as u64;
        Ok(LargeEntry { entry, data_offset: self.position })
    }

    /// Appends compressed bytes to the large entry that was started last.
    pub fn append_large_content(&mut self, compressed: &[u8]) -> io::Result<()> {
        self.file.write_all_at(compressed, self.position)?;
        self.position += compressed.len() as u64;
        Ok(())
    }

    /// Completes a large entry. Returns the offset and the length of its compressed data.
    pub fn finish_large_entry(&mut self, large: LargeEntry, crc: u32) -> io::Result<(u64, u64)> {
        let LargeEntry { mut entry, data_offset } = large;
        entry.crc = crc;
        entry.compressed_len = self.position - data_offset;
        let mut head = Vec::new();
        entry.write_local_header(&mut head);
        self.file.write_all_at(&head, entry.header_offset)?;
        self.add_central_header(&entry);
        Ok((data_offset, entry.compressed_len))
    }

    /// Writes the central directory and the end records (APPNOTE.TXT 4.3.14 to 4.3.16). Returns the length of the
    /// image.
    pub fn finish(&mut self) -> io::Result<u64> {
        let (start, size) = (self.position, self.central_directory.len() as u64);
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
        let count16 = self.count.min(0xffff) as u16;
        write_u16_le(&mut tail, count16);
        write_u16_le(&mut tail, count16);
        write_u32_le(&mut tail, size);
        write_u32_le(&mut tail, start);
        write_u16_le(&mut tail, 0);
        self.file.write_all_at(&self.central_directory, start)?;
        self.file.write_all_at(&tail, start + size)?;
        self.position = start + size + tail.len() as u64;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn image_entry(name: &[u8], len: u64, header_offset: u64) -> ImageEntry {
        ImageEntry {
            name: name.into(),
            compression: EntryCompression::Stored,
            crc: 0x0403_0201,
            compressed_len: 5,
            len,
            header_offset,
        }
    }

    fn encode_local_header(image_entry: &ImageEntry) -> Vec<u8> {
        let mut output = Vec::new();
        image_entry.write_local_header(&mut output);
        output
    }

    fn encode_central_header(image_entry: &ImageEntry) -> Vec<u8> {
        let mut output = Vec::new();
        image_entry.write_central_header(&mut output);
        output
    }

    #[test]
    fn zip_headers_flag_utf8_names_and_add_an_extra_field_to_unusual_names() {
        for (name, flags, has_field) in [
            (&b"a.html"[..], 0, false),
            ("é".as_bytes(), 1 << 11, false),
            (b"\xff", 0, true),
            (b"a\\b", 0, true),
            ("é\\".as_bytes(), 1 << 11, true),
        ] {
            let image_entry = image_entry(name, 5, 0);
            let field: &[u8] = if has_field { &[0x64, 0x77, 0, 0] } else { &[] };
            let (local, central) = (encode_local_header(&image_entry), encode_central_header(&image_entry));
            assert_eq!((&local[6..8], &local[30 + name.len()..]), (&u16::to_le_bytes(flags)[..], field), "{name:?}");
            assert_eq!(
                (&central[8..10], &central[46 + name.len()..]),
                (&u16::to_le_bytes(flags)[..], field),
                "{name:?}"
            );
            assert_eq!(
                (&local[26..30], &local[30..][..name.len()]),
                (&[name.len() as u8, 0, field.len() as u8, 0][..], name)
            );
            assert_eq!((&central[28..32], &central[46..][..name.len()]), (&local[26..30], name));
        }
    }

    #[test]
    fn entry_sizes_and_offsets_beyond_the_zip32_limit_are_written_as_zip64() {
        const WIDE: u64 = ZIP32_LIMIT - (64 << 20);
        let narrow = encode_local_header(&image_entry(b"x", WIDE - 1, 0));
        assert_eq!((&narrow[..6], narrow.len()), (&b"PK\x03\x04\x14\0"[..], 31));
        assert_eq!(
            (&narrow[14..22], &narrow[22..26]),
            (&[1, 2, 3, 4, 5, 0, 0, 0][..], &(WIDE as u32 - 1).to_le_bytes()[..])
        );
        let wide = encode_local_header(&image_entry(b"x", WIDE, 0));
        assert_eq!((wide[4], &wide[18..26], &wide[31..35]), (45, &[0xff; 8][..], &[1, 0, 16, 0][..]));
        assert_eq!(wide[35..], [WIDE.to_le_bytes(), 5u64.to_le_bytes()].concat());
        for (len, header_offset, values) in [
            (5, ZIP32_LIMIT - 1, vec![]),
            (5, ZIP32_LIMIT, vec![ZIP32_LIMIT]),
            (WIDE - 1, 0, vec![]),
            (WIDE, 0, vec![WIDE, 5]),
            (WIDE, ZIP32_LIMIT + 7, vec![WIDE, 5, ZIP32_LIMIT + 7]),
        ] {
            let central = encode_central_header(&image_entry(b"x", len, header_offset));
            assert_eq!(central[42..46], (header_offset.min(ZIP32_LIMIT) as u32).to_le_bytes(), "{len} {header_offset}");
            let extra: Vec<u8> = values.iter().flat_map(|value: &u64| value.to_le_bytes()).collect();
            let head: &[u8] = if extra.is_empty() { &[] } else { &[1, 0, extra.len() as u8, 0] };
            assert_eq!(central[47..], [head, &extra].concat(), "{len} {header_offset}");
        }
        let compressed = ImageEntry { compression: EntryCompression::Deflate, ..image_entry(b"x", 9, 0) };
        assert_eq!((encode_local_header(&compressed)[8], encode_central_header(&compressed)[10], narrow[8]), (8, 8, 0));
        let modes = [&b"x"[..], b"x/"].map(|name| encode_central_header(&image_entry(name, 0, 0))[38..42].to_vec());
        assert_eq!(modes, [(0o100_644u32 << 16).to_le_bytes(), (0o040_755 << 16 | 0x10u32).to_le_bytes()]);
    }

    #[test]
    fn zip64_end_record_is_written_from_the_first_count_or_offset_that_needs_it() {
        for (position, count, is_zip64) in
            [(0, 0xfffe, false), (0, 0xffff, true), (ZIP32_LIMIT - 1, 0, false), (ZIP32_LIMIT, 0, true)]
        {
            let mut writer = ImageWriter { position, count, ..ImageWriter::new(tempfile::tempfile().unwrap()) };
            let end = writer.finish().unwrap();
            assert_eq!(
                (end - position, writer.position(), writer.file().metadata().unwrap().len()),
                (if is_zip64 { 98 } else { 22 }, end, end)
            );
            let mut tail = vec![0; (end - position) as usize];
            writer.file().read_exact_at(&mut tail, position).unwrap();
            let (zip64_records, end_record) = tail.split_at(tail.len() - 22);
            let count16 = (count.min(0xffff) as u16).to_le_bytes();
            assert_eq!(
                (&end_record[..4], &end_record[8..10], &end_record[10..12]),
                (&b"PK\x05\x06"[..], &count16[..], &count16[..])
            );
            assert_eq!((&end_record[12..16], &end_record[16..20]), (&[0; 4][..], &(position as u32).to_le_bytes()[..]));
            if is_zip64 {
                let numbers = [count, count, 0, position].map(u64::to_le_bytes).concat();
                assert_eq!(
                    (&zip64_records[..12], &zip64_records[24..56]),
                    (&b"PK\x06\x06\x2c\0\0\0\0\0\0\0"[..], &numbers[..])
                );
                assert_eq!(
                    (&zip64_records[56..60], &zip64_records[64..72]),
                    (&b"PK\x06\x07"[..], &position.to_le_bytes()[..])
                );
            }
        }
    }

    #[test]
    fn image_is_readable_by_the_zip_crate() {
        let mut writer = ImageWriter::new(tempfile::tempfile().unwrap());
        let stored_entry = |name: &[u8], text: &[u8], header_offset: usize| ImageEntry {
            name: name.into(),
            compression: EntryCompression::Stored,
            crc: crc32fast::hash(text),
            compressed_len: text.len() as u64,
            len: text.len() as u64,
            header_offset: header_offset as u64,
        };
        writer.append_folder(b"d/").unwrap();
        for (first, second) in [(&b"a.html"[..], &b"d/b.html"[..]), (b"d/c", b"e")] {
            let mut block = Vec::new();
            let entries = [first, second].map(|name| {
                let image_entry = stored_entry(name, name, block.len());
                image_entry.write_local_header(&mut block);
                block.extend_from_slice(name);
                image_entry
            });
            writer.append(&block, entries.into_iter()).unwrap();
        }
        let large = writer.start_large_entry(b"large", EntryCompression::Stored, 11).unwrap();
        let data_offset = writer.position();
        writer.append_large_content(b"first").unwrap();
        writer.append_large_content(b"second").unwrap();
        assert_eq!(writer.finish_large_entry(large, crc32fast::hash(b"firstsecond")).unwrap(), (data_offset, 11));
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
