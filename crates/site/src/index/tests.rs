use super::previous_format::{PREVIOUS_FORMAT_VERSION, PREVIOUS_HEADER_BYTES};
use super::*;

fn sample() -> (Vec<u8>, VersionId) {
    let entry = |n: u64| IndexEntry {
        compression: EntryCompression::Deflate,
        offset: n,
        compressed_len: 5,
        len: 9,
        crc: 7,
        content: Digest::compute(&[n as u8]),
        compressed_crc: 1,
        last_block_bit: 3,
        spare_bits: 2,
        modified: -5,
    };
    let mut manifest = VersionManifest::default();
    let files: Vec<(&[u8], IndexEntry)> = vec![(b"a.html", entry(0)), (b"a.md", entry(5)), (b"b", entry(10))];
    for (path, entry) in &files {
        manifest.add(&entry.content, entry.len, path);
    }
    let id = manifest.id();
    (encode_index(15, id, &files), id)
}

#[test]
fn image_index_finds_the_paths_that_were_written() {
    let (bytes, id) = sample();
    let index = ImageIndex::decode(bytes, 15, id).unwrap();
    assert_eq!([&b"a.html"[..], b"a.md", b"b", b"a."].map(|path| index.find(path)), [Some(0), Some(1), Some(2), None]);
    assert_eq!(
        (index.first_path_from(b"a.i"), index.first_path_from(b"b"), index.first_path_from(b"c")),
        (Some(&b"a.md"[..]), Some(&b"b"[..]), None)
    );
    assert_eq!([0, 1, 2].map(|page| index.markdown_of(page)), [Some(1), None, None]);
    assert_eq!((index.path(2), index.entry(2).offset, index.entry(2).modified), (&b"b"[..], 10, -5));
}

#[test]
fn any_flipped_bit_and_any_other_length_is_noticed() {
    let (bytes, id) = sample();
    // The check before a request is answered.
    let read = |bytes: &[u8], len, id| ImageIndex::read(Bytes::copy_from_slice(bytes), len, id);
    assert!(read(&bytes, 15, id).is_ok());
    for bit in 0..bytes.len() * 8 {
        let mut wrong = bytes.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        assert!(read(&wrong, 15, id).is_err() && ImageIndex::decode(wrong, 15, id).is_err(), "bit {bit}");
    }
    for cut in 0..bytes.len() {
        assert!(read(&bytes[..cut], 15, id).is_err(), "cut at {cut}");
        assert!(ImageIndex::decode(bytes[..cut].to_vec(), 15, id).is_err(), "cut at {cut}");
    }
    let other = VersionId(Digest::compute(b"other"));
    assert!(read(&bytes, 14, id).is_err() && read(&bytes, 15, other).is_err());
    assert!(ImageIndex::decode(bytes.clone(), 14, id).is_err() && ImageIndex::decode(bytes, 15, other).is_err());
}

/// Sets the CRC-32 that matches the changed bytes.
fn with_crc(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc_offset = bytes.len() - CRC32_BYTES;
    let crc = crc32fast::hash(&bytes[..crc_offset]);
    bytes[crc_offset..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn damaged_image_index_with_a_matching_crc_fails_verification_and_stays_in_bounds() {
    let (bytes, id) = sample();
    for bit in 0..(bytes.len() - CRC32_BYTES) * 8 {
        let mut wrong = bytes.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        let wrong = with_crc(wrong);
        assert!(ImageIndex::decode(wrong.clone(), 15, id).is_err(), "bit {bit}");
        // An index that passes the first check stays within its bounds.
        if let Ok(index) = ImageIndex::read(wrong.into(), 15, id) {
            for file in 0..index.len() {
                let entry = index.entry(file);
                assert!(entry.offset + entry.compressed_len <= 15, "bit {bit}");
            }
        }
    }
}

#[test]
fn image_index_that_is_damaged_after_its_check_never_panics_or_loops() {
    let (bytes, id) = sample();
    let good = ImageIndex::decode(bytes.clone(), 15, id).unwrap();
    let call_all_methods = |bytes: Vec<u8>| {
        let index = ImageIndex { bytes: bytes.into(), ..good.clone() };
        for file in 0..index.len() {
            let _ = (index.path(file), index.entry(file), index.markdown_of(file));
        }
        let missing = [&b""[..], b"a", b"a/b.html", b"zz"].map(|path| (index.find(path), index.first_path_from(path)));
        assert!(missing.iter().all(|(file, _)| file.is_none_or(|file| file < index.len())));
        let _ = index.verify(id);
    };
    for bit in 0..bytes.len() * 8 {
        let mut wrong = bytes.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        call_all_methods(wrong);
    }
    call_all_methods(vec![0; bytes.len()]);
    call_all_methods(vec![0xff; bytes.len()]);
    // A table without an empty slot.
    let mut full = bytes.clone();
    full[good.part_offsets[0]..good.part_offsets[1]].fill(0);
    call_all_methods(full);
}

/// Converts the index of [`sample`] to the previous format.
fn encode_previous_format(bytes: &[u8]) -> Vec<u8> {
    let index = ImageIndex::read(Bytes::copy_from_slice(bytes), 15, sample().1).unwrap();
    let mut old = bytes[..PREVIOUS_HEADER_BYTES].to_vec();
    old[8..12].copy_from_slice(&PREVIOUS_FORMAT_VERSION.to_le_bytes());
    old.extend_from_slice(&bytes[HEADER_BYTES..index.part_offsets[0]]);
    old.extend_from_slice(&bytes[index.part_offsets[2]..index.part_offsets[3]]);
    let digest = Digest::compute(&old);
    old.extend_from_slice(&digest.0);
    old
}

#[test]
fn index_of_the_previous_format_is_converted_if_it_is_undamaged() {
    let (bytes, id) = sample();
    let old = encode_previous_format(&bytes);
    assert!(ImageIndex::read(Bytes::from(old.clone()), 15, id).is_err(), "it must be converted first");
    assert_eq!(ImageIndex::decode(old.clone(), 15, id).unwrap().bytes(), bytes);
    assert!(ImageIndex::decode(old.clone(), 14, id).is_err());
    for bit in 0..old.len() * 8 {
        let mut wrong = old.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        assert!(ImageIndex::decode(wrong, 15, id).is_err(), "bit {bit}");
    }
    for cut in 0..old.len() {
        assert!(ImageIndex::decode(old[..cut].to_vec(), 15, id).is_err(), "cut at {cut}");
    }
}

/// Sets the SHA-256 and the CRC-32 that match the changed bytes.
fn with_digest_and_crc(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len() - CRC32_BYTES - SHA256_BYTES;
    let digest = Digest::compute(&bytes[..end]);
    bytes[end..end + SHA256_BYTES].copy_from_slice(&digest.0);
    with_crc(bytes)
}

fn overwrite(bytes: &[u8], offset: usize, replacement: &[u8]) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    changed[offset..offset + replacement.len()].copy_from_slice(replacement);
    changed
}

#[test]
fn index_bounds_are_checked_before_use_even_if_the_checksum_matches() {
    let (bytes, id) = sample();
    let [table, pairs, paths, _] = ImageIndex::read(bytes.clone().into(), 15, id).unwrap().part_offsets;
    let last = HEADER_BYTES + 2 * RECORD_BYTES;
    let read = |bytes: Vec<u8>| ImageIndex::read(with_crc(bytes).into(), 15, id).map(drop);
    let (word, long) = (|n: u32| n.to_le_bytes(), |n: u64| n.to_le_bytes());
    for (offset, replacement, expected) in [
        (0, &b"d"[..], "another format"),
        (8, &word(FORMAT_VERSION + 1), "another format"),
        (12, &word(2), "length"),
        (56, &long(10), "length"),
        (56, &long(u64::MAX), "length"),
        // The total length is right, but the hash table has another size.
        (64, &[word(4), word(3)].concat(), "length"),
        (16, &long(14), "another image"),
        (55, &[bytes[55] ^ 1], "another image"),
        (last, &word(11), "a path out of bounds"),
        (last, &word(u32::MAX), "a path out of bounds"),
        (last + 4, &[2, 0], "a path out of bounds"),
        (last + 12, &long(11), "a file out of bounds"),
        (last + 12, &long(u64::MAX), "a file out of bounds"),
        (last + 20, &long(6), "a file out of bounds"),
        (table, &word(3), "a slot out of bounds"),
        (table, &word(EMPTY_SLOT - 1), "a slot out of bounds"),
        (pairs, &word(3), "Markdown out of bounds"),
        (pairs + 4, &word(3), "Markdown out of bounds"),
    ] {
        assert_eq!(read(overwrite(&bytes, offset, replacement)), Err(IndexFault(expected)), "{offset} {replacement:?}");
    }
    for (offset, replacement) in [
        (last + 4, &[0, 0][..]),
        (last + 12, &long(0)),
        (last + 20, &long(0)),
        (table, &word(2)),
        (table, &word(EMPTY_SLOT)),
        (pairs, &word(2)),
        (pairs + 4, &word(2)),
    ] {
        assert_eq!(read(overwrite(&bytes, offset, replacement)), Ok(()), "{offset} {replacement:?}");
    }
    let with_pairs = |extra_pairs: u32| {
        let mut longer = overwrite(&bytes, 68, &word(1 + extra_pairs));
        longer.splice(paths..paths, vec![0; extra_pairs as usize * 8]);
        longer
    };
    assert_eq!((read(with_pairs(2)), read(with_pairs(3))), (Ok(()), Err(IndexFault("length"))));
    let wrong = overwrite(&bytes, last + 8, &word(8));
    assert_eq!(ImageIndex::read(wrong.into(), 15, id).map(drop), Err(IndexFault("checksum")));
}

#[test]
fn image_index_verification_names_the_part_that_is_wrong() {
    let (bytes, id) = sample();
    let [table, pairs, _, _] = ImageIndex::read(bytes.clone().into(), 15, id).unwrap().part_offsets;
    let verify = |bytes: Vec<u8>| ImageIndex::read(bytes.into(), 15, id).unwrap().verify(id);
    let last = HEADER_BYTES + 2 * RECORD_BYTES;
    // The version id does not cover the date of a file; the digest of the index does.
    let dated = overwrite(&bytes, last + 44, &7u64.to_le_bytes());
    assert_eq!(
        (verify(with_digest_and_crc(dated.clone())), verify(with_crc(dated))),
        (Ok(()), Err(IndexFault("its SHA-256 is wrong")))
    );
    let slot = (0..8).map(|n| table + n * 4).find(|&offset| read_u32_le(&bytes, offset) == 0).unwrap();
    for (offset, replacement, expected) in [
        (last + 52, &[bytes[last + 52] ^ 1][..], "version id"),
        (last + 28, &8u64.to_le_bytes(), "version id"),
        (slot, &EMPTY_SLOT.to_le_bytes(), "a path that is not found"),
        (pairs, &1u32.to_le_bytes(), "its Markdown pairs are wrong"),
        (pairs + 4, &2u32.to_le_bytes(), "its Markdown pairs are wrong"),
    ] {
        assert_eq!(
            verify(with_digest_and_crc(overwrite(&bytes, offset, replacement))),
            Err(IndexFault(expected)),
            "{offset}"
        );
    }
    let good = ImageIndex::decode(bytes, 15, id).unwrap();
    assert_eq!(good.verify(VersionId(Digest::compute(b"other"))), Err(IndexFault("version id")));
    for names in [[b"b", b"a"], [b"a", b"a"]] {
        let files = names.map(|name| (&name[..], good.entry(0)));
        let index = ImageIndex::read(encode_index(15, id, &files).into(), 15, id).unwrap();
        assert_eq!(index.verify(id), Err(IndexFault("its paths are not in order")));
    }
}

#[test]
fn index_of_the_previous_format_is_checked_against_the_same_bounds() {
    let (bytes, id) = sample();
    let old = encode_previous_format(&bytes);
    let last = PREVIOUS_HEADER_BYTES + 2 * RECORD_BYTES;
    let decode_changed = |offset: usize, replacement: &[u8]| {
        let mut changed = overwrite(&old, offset, replacement);
        let end = changed.len() - SHA256_BYTES;
        let digest = Digest::compute(&changed[..end]);
        changed[end..].copy_from_slice(&digest.0);
        ImageIndex::decode(changed, 15, id).map(drop)
    };
    let name = |n: usize| old[PREVIOUS_HEADER_BYTES + n * RECORD_BYTES..][..6].to_vec();
    assert_eq!(decode_changed(0, &[]), Ok(()));
    for (offset, replacement, expected) in [
        (12, &2u32.to_le_bytes()[..], "length"),
        (56, &10u64.to_le_bytes(), "length"),
        (16, &14u64.to_le_bytes(), "another image"),
        (24, &[old[24] ^ 1], "another image"),
        (last + 4, &[2, 0], "a path out of bounds"),
        (last, &u32::MAX.to_le_bytes(), "a path out of bounds"),
        (last, &name(0), "its paths are not in order"),
        (last, &name(1), "its paths are not in order"),
        (last + 20, &6u64.to_le_bytes(), "a file out of bounds"),
    ] {
        assert_eq!(decode_changed(offset, replacement), Err(IndexFault(expected)), "{offset}");
    }
    assert_eq!(ImageIndex::decode(overwrite(&old, last + 44, &[9]), 15, id).map(drop), Err(IndexFault("checksum")));
}
