//! ZIP: all headers of an archive agree, or the archive is refused.

use crate::archive_checks::{assert_accepted, assert_refused, expected_tree, unpack_archive};
use support::zip::{Header, Member, RawArchive, RawMember, archive, deflate, deflated, extra, stored, zip};

const TEXT: &str = "some text that is long enough to be worth compressing, long enough, long enough";

/// Faults of an end record with wrong values.
const LESS: &str = "its directory holds less than the end record counts";
const MORE: &str = "its directory holds more than the end record counts";
const ELSEWHERE: &str = "its directory is not where the end record says";

fn page() -> Member {
    stored("index.html", "<!doctype html>")
}

fn victim() -> RawMember {
    RawMember::from_member(&deflated("victim.html", TEXT))
}

/// Creates an archive of a page and this member.
fn zip_with(member: RawMember) -> Vec<u8> {
    archive(&[page()]).with(member).bytes()
}

fn plain_archive() -> Vec<u8> {
    zip_with(victim())
}

/// Asserts that the archive is accepted and has the version of the plain archive with the same content.
#[track_caller]
fn assert_same_as_plain(case: &str, bytes: &[u8]) {
    assert_eq!(
        assert_accepted(case, bytes)["version"],
        assert_accepted("honest", &plain_archive())["version"],
        "{case}"
    );
    let content: &[(&[u8], &[u8])] = &[(b"index.html", b"<!doctype html>"), (b"victim.html", TEXT.as_bytes())];
    assert_eq!(unpack_archive(case, bytes, &[]), expected_tree(content), "{case}");
}

#[test]
fn local_and_central_headers_agree_or_the_archive_is_refused() {
    type Change = fn(&mut Header);
    let table: [(&str, Change, &str); 11] = [
        ("name", |h| h.name = b"other_.html".to_vec(), "in its name"),
        ("length of the name", |h| h.name = b"victim.html5".to_vec(), "in its name"),
        ("case of the name", |h| h.name = b"Victim.html".to_vec(), "in its name"),
        ("method", |h| h.method = 0, "in its method"),
        ("UTF-8 flag", |h| h.flags ^= 1 << 11, "in its flags"),
        ("descriptor flag", |h| h.flags ^= 8, "in its flags"),
        ("checksum", |h| h.crc ^= 1, "in its checksum"),
        ("checksum of nothing", |h| h.crc = 0, "in its checksum"),
        ("size", |h| h.size += 1, "in its sizes"),
        ("size of nothing", |h| h.size = 0, "in its sizes"),
        ("compressed size", |h| h.coded -= 1, "in its sizes"),
    ];
    for (case, change, expected) in table {
        let (mut local, mut central) = (victim(), victim());
        change(&mut local.local);
        change(&mut central.central);
        // A fault that is visible in the directory is refused before a local header is read.
        let central_word = match case {
            "length of the name" => "overlaps another entry",
            "method" => "has another size than it declares",
            _ => expected,
        };
        assert_refused(&format!("local {case}"), &zip_with(local), &["entry \"victim.html\"", expected]);
        assert_refused(&format!("central {case}"), &zip_with(central), &["entry \"", central_word]);
    }
}

#[test]
fn zip_member_whose_data_contradicts_both_headers_is_refused() {
    let mut no_block = victim();
    no_block.data[0] |= 3 << 1;
    let mut damaged = RawMember::from_member(&stored("victim.html", TEXT));
    damaged.data[10] ^= 4;
    let flushed = support::zip::deflate_piece(TEXT.as_bytes());
    let unfinished =
        RawMember { data: flushed.clone(), ..victim() }.change_both_headers(|h| h.coded = flushed.len() as u32);
    let (crc, size) = ("does not match its checksum", "has another size than it declares");
    let table = [
        ("checksum", victim().change_both_headers(|h| h.crc ^= 1 << 31), crc),
        ("size too small", victim().change_both_headers(|h| h.size -= 1), size),
        ("size too large", victim().change_both_headers(|h| h.size += 1), size),
        ("size of nothing", victim().change_both_headers(|h| h.size = 0), size),
        ("size of 60 MiB", victim().change_both_headers(|h| h.size = 60 << 20), size),
        (
            "compressed size too small",
            victim().change_both_headers(|h| h.coded -= 1),
            "cannot be read: the compressed data",
        ),
        ("compressed size too large", victim().change_both_headers(|h| h.coded += 1), "overlaps another entry"),
        ("compressed size of 4 GiB", victim().change_both_headers(|h| h.coded = u32::MAX), "overlaps another entry"),
        (
            "stored, with two sizes",
            RawMember::from_member(&stored("victim.html", TEXT)).change_both_headers(|h| h.size -= 1),
            size,
        ),
        // As DEFLATE, the text begins with a match that refers to bytes before its start.
        (
            "stored, declared as deflate",
            RawMember::from_member(&stored("victim.html", TEXT)).change_both_headers(|h| h.method = 8),
            "(a match from",
        ),
        ("deflate, declared as stored", victim().change_both_headers(|h| (h.method, h.size) = (0, h.coded)), crc),
        ("damaged data", damaged, crc),
        ("damaged compressed data", no_block, "(a block of unknown type)"),
        ("no data", RawMember::coded(b"victim.html", 8, Vec::new(), 0, 0), "the compressed data is cut short"),
        ("unfinished data", unfinished, "the compressed data is cut short"),
        ("folder with content", RawMember::from_member(&stored("victim/", "x")), "is a folder with content"),
        (
            "folder with compressed content",
            RawMember::from_member(&deflated("victim/", TEXT)),
            "is a folder with content",
        ),
    ];
    for (case, raw, expected) in table {
        assert_refused(case, &zip_with(raw), &["entry \"victim", expected]);
    }
}

/// A change that makes a header wrong.
type Change = fn(&mut Header);

#[test]
fn every_data_descriptor_form_is_read_and_wrong_values_are_refused() {
    let expected = &["entry \"victim.html\"", "in its data descriptor"];
    for (signed, wide) in [(true, false), (false, false), (true, true), (false, true)] {
        let case = format!("descriptor, signed {signed}, 64 bit {wide}");
        let raw = victim().with_data_descriptor(signed, wide);
        assert_same_as_plain(&case, &zip_with(raw.clone()));
        assert_same_as_plain(&case, &archive(&[]).with(raw.clone()).with(RawMember::from_member(&page())).bytes());
        let at = if signed { 4 } else { 0 };
        for byte in at..raw.trailing.len() {
            let mut wrong = raw.clone();
            wrong.trailing[byte] ^= 1;
            assert_refused(&format!("{case}, byte {byte}"), &zip_with(wrong), expected);
        }
        let mut cut = raw.clone();
        cut.trailing.pop();
        assert_refused(&format!("{case}, cut"), &zip_with(cut), expected);
        let mut absent = raw;
        absent.trailing.clear();
        assert_refused(&format!("{case}, absent"), &zip_with(absent), expected);
    }
    // A stored member may have a descriptor, too, and the local header may have the right values.
    let stored_too = RawMember::from_member(&stored("victim.html", TEXT)).with_data_descriptor(true, false);
    assert_same_as_plain("stored with descriptor", &zip_with(stored_too));
    let mut known = victim().with_data_descriptor(true, false);
    let flags = known.local.flags;
    known.local = Header { flags, ..victim().local };
    assert_same_as_plain("descriptor and right local header", &zip_with(known.clone()));
    // A local header must have the right values or zeros, because a streaming reader uses it.
    let changes: [(&str, Change); 4] = [
        ("in its checksum", |header| header.crc ^= 1),
        ("in its sizes", |header| header.size += 1),
        ("in its sizes", |header| header.coded += 1),
        ("in its sizes", |header| header.coded = 1),
    ];
    for (expected, change) in changes {
        for mut wrong in [known.clone(), victim().with_data_descriptor(true, false)] {
            wrong.local.crc = wrong.central.crc;
            change(&mut wrong.local);
            assert_refused(
                &format!("descriptor and {expected}"),
                &zip_with(wrong),
                &["entry \"victim.html\"", expected],
            );
        }
    }
    let wide = RawMember { zip64: true, ..victim().with_data_descriptor(true, true) };
    assert_same_as_plain("descriptor and zip64", &zip_with(wide));
}

#[test]
fn zip64_records_comments_and_extra_fields_are_accepted() {
    let wide = RawMember { zip64: true, ..victim() };
    assert_same_as_plain("zip64 member", &zip_with(wide.clone()));
    let end = RawArchive { zip64: true, ..archive(&[page()]).with(wide.clone()) };
    assert_same_as_plain("zip64 everywhere", &end.bytes());
    assert_same_as_plain("zip64 end record", &RawArchive { zip64: true, ..archive(&[page()]).with(victim()) }.bytes());
    let repeated_counts =
        RawArchive { zip64: true, entries_on_disk: Some(2), total: Some(2), ..archive(&[page()]).with(victim()) };
    assert_same_as_plain("zip64 end record that repeats the old one", &repeated_counts.bytes());

    let comment = RawArchive { comment: b"made by hand".to_vec(), ..archive(&[page()]).with(victim()) };
    assert_same_as_plain("comment", &comment.bytes());
    // Android's signing block lies there.
    let gap = RawArchive { gap: vec![b'g'; 5000], ..archive(&[page()]).with(victim()) };
    assert_same_as_plain("bytes between the members and the directory", &gap.bytes());
    let longest = RawArchive { comment: vec![b'c'; 65_535], ..archive(&[page()]).with(victim()) };
    assert_same_as_plain("longest comment", &longest.bytes());
    assert_same_as_plain(
        "member comment",
        &zip_with(RawMember { comment: b"a comment of its own".to_vec(), ..victim() }),
    );

    let times = extra(0x5455, &[3, 0, 0, 0, 0, 0, 0, 0, 0]);
    for (case, field) in [
        ("times", times.clone()),
        ("owner", extra(0x7875, &[1, 4, 0, 0, 0, 0, 4, 0, 0, 0, 0])),
        ("unknown", extra(0xbeef, &[7; 3000])),
        ("several", [times, extra(0xcafe, &[0xca, 0xfe])].concat()),
        ("alignment padding", vec![0, 0, 0]),
        ("Unicode path that says otherwise", extra(0x7075, b"\x01\0\0\0\0../evil")),
    ] {
        assert_same_as_plain(case, &zip_with(victim().change_both_headers(|h| h.extra.clone_from(&field))));
        let (mut local, mut central) = (victim(), victim());
        local.local.extra.clone_from(&field);
        central.central.extra.clone_from(&field);
        assert_same_as_plain(&format!("local {case}"), &zip_with(local));
        assert_same_as_plain(&format!("central {case}"), &zip_with(central));
    }
}

// Regression: ZIP64 sizes behind a long extra field were not found.
#[test]
fn zip64_sizes_are_found_among_long_extra_fields() {
    for length in [0, 9, 60, 100, 3000, 60_000] {
        let field = extra(0xbeef, &vec![7; length]);
        let wide = RawMember { zip64: true, ..victim() }.change_both_headers(|h| h.extra.clone_from(&field));
        assert_same_as_plain(&format!("zip64 and {length} bytes more"), &zip_with(wide));
    }
}

#[test]
fn wrong_zip64_sizes_offsets_and_counts_are_refused() {
    let wide = RawMember { zip64: true, ..victim() };
    let end = RawArchive { zip64: true, ..archive(&[page()]).with(wide.clone()) };
    let table = [
        ("zip64 count", RawArchive { zip64_total: Some(3), ..end.clone() }, LESS),
        ("zip64 count of nothing", RawArchive { zip64_total: Some(0), ..end.clone() }, MORE),
        ("zip64 count of everything", RawArchive { zip64_total: Some(u64::MAX), ..end.clone() }, "(limits.entries)"),
        (
            "count beside zip64",
            RawArchive { total: Some(3), entries_on_disk: Some(3), ..end.clone() },
            "its end records do not agree",
        ),
        ("start beside zip64", RawArchive { start: Some(1), ..end.clone() }, "its end records do not agree"),
    ];
    for (case, wrong, expected) in table {
        assert_refused(case, &wrong.bytes(), &[expected]);
    }
    let bytes = end.bytes();
    let locator = bytes.len() - 22 - 20;
    let record = locator - 56;
    for (case, at, expected) in [
        // The offset leads to other bytes, or out of the archive.
        ("locator's offset", locator + 8, "its zip64 "),
        ("locator's disk", locator + 4, "its zip64 locator"),
        ("record's length", record + 4, "its zip64 end record"),
        ("record's disk", record + 16, "its zip64 end record"),
        ("directory's disk", record + 20, "its zip64 end record"),
        ("count on this disk", record + 24, "its zip64 end record"),
        ("directory's size", record + 40, ELSEWHERE),
        ("directory's start", record + 48, ELSEWHERE),
    ] {
        for flip in [1, 0x80] {
            let mut wrong = bytes.clone();
            wrong[at] ^= flip;
            assert_refused(case, &wrong, &["the bundle is damaged", expected]);
        }
        let mut wrong = bytes.clone();
        wrong[at..at + 8].fill(0xff);
        assert_refused(case, &wrong, &["the bundle is damaged", expected]);
    }
    let mut several_disks = bytes.clone();
    several_disks[locator + 16] = 2;
    assert_refused("locator's number of disks", &several_disks, &["the bundle is damaged", "its zip64 locator"]);
    for (case, member, expected) in [
        (
            "size",
            wide.clone().change_both_headers(|h| h.size += 1),
            "entry \"victim.html\" has another size than it declares",
        ),
        ("compressed size", wide.clone().change_both_headers(|h| h.coded += 1), "entry \"victim.html\" overlaps"),
        ("offset", RawMember { offset: Some(1), ..wide.clone() }, "entry \"index.html\" overlaps"),
    ] {
        assert_refused(&format!("zip64 {case}"), &zip_with(member), &[expected]);
    }
    let mut short = victim();
    (short.central.size, short.central.extra) = (u32::MAX, extra(1, &[0; 4]));
    assert_refused("zip64 field that is too short", &zip_with(short), &["entry \"victim.html\"", "its zip64 field"]);
    let cut = victim().change_both_headers(|h| h.extra = vec![1, 0, 200, 0, 1, 2, 3]);
    assert_refused("extra field without room", &zip_with(cut), &["entry \"victim.html\"", "its extra fields"]);
}

#[test]
fn zip_members_that_overlap_are_refused() {
    let a = victim();
    let same = RawMember { offset: Some(0), ..RawMember::from_member(&page()) };
    let twice = archive(&[page()]).with(same.clone()).bytes();
    assert_refused("two entries of one member", &twice, &["entry \"index.html\" overlaps"]);
    let mut renamed = same;
    renamed.central.name = b"copy.html".to_vec();
    let twice = archive(&[page()]).with(renamed).bytes();
    assert_refused("two names of one member", &twice, &["entry \"index.html\" overlaps"]);

    // A local header is quoted by a stored DEFLATE block, so that both members end with the same kernel, as in
    // overlapping bombs.
    let kernel = RawMember::from_member(&deflated("b.html", TEXT));
    let inner = archive(&[]).with(kernel.clone());
    let local = inner.bytes()[..30 + 6 + kernel.data.len()].to_vec();
    let header = 30 + 6;
    let mut quoting = vec![0, header as u8, 0, !(header as u8), 0xff];
    quoting.extend_from_slice(&local);
    let content = [&local[..header], TEXT.as_bytes()].concat();
    let outer = RawMember::coded(b"a.html", 8, quoting, crc32fast::hash(&content), content.len() as u32);
    let alone = archive(&[page()]).with(outer.clone()).bytes();
    assert_accepted("the outer member alone", &alone);
    let inner_at =
        archive(&[page()]).bytes().windows(4).position(|w| w == b"PK\x01\x02").expect("a directory") + header + 5;
    let mut shared = archive(&[page()]).with(outer);
    shared.members.push(RawMember { offset: Some(inner_at as u32), ..kernel });
    let mut bytes = shared.bytes();
    // Removes the third member's own local header and data.
    let directory = bytes.windows(4).position(|w| w == b"PK\x01\x02").expect("a directory");
    bytes.drain(directory - local.len()..directory);
    let at = bytes.len() - 6;
    bytes[at..at + 4].copy_from_slice(&((directory - local.len()) as u32).to_le_bytes());
    assert_refused("quoted local header", &bytes, &["overlaps"]);

    let mut reaching = a.clone();
    reaching = reaching.change_both_headers(|h| h.coded += 30);
    assert_refused(
        "a member that reaches into the next",
        &archive(&[]).with(reaching.clone()).with(RawMember::from_member(&page())).bytes(),
        &["entry \"victim.html\" overlaps"],
    );
    assert_refused(
        "a member that reaches into the directory",
        &zip_with(reaching),
        &["entry \"victim.html\" overlaps"],
    );
}

/// Adds an extra field to the local header of a stored member, so that its data extends into the next member or the
/// directory. The checksums are those of the shifted data.
fn shift_data(bytes: &mut [u8], at: usize, name: &str) {
    const FIELD: usize = 30;
    bytes[at + 28] = FIELD as u8;
    let start = at + 30 + name.len() + FIELD;
    let crc = crc32fast::hash(&bytes[start..start + FIELD + TEXT.len()]).to_le_bytes();
    bytes[at + 14..at + 18].copy_from_slice(&crc);
    let header = [b"PK\x01\x02\x14\x03", &bytes[at + 4..at + 14]].concat();
    let central = bytes.windows(header.len()).position(|w| w == header).expect("its entry of the directory");
    bytes[central + 16..central + 20].copy_from_slice(&crc);
}

#[test]
fn zip_member_with_a_valid_checksum_must_not_overlap_the_next_member_or_directory() {
    // For a reader of the directory alone, the extra field is a part of the content.
    let content = [&extra(0xcafe, &[b'e'; 26])[..], TEXT.as_bytes()].concat();
    let victim = RawMember::from_member(&Member { name: b"victim.html".to_vec(), content, deflate: false });
    // `shift_data` finds the entry in the directory by this version.
    let victim = victim.change_both_headers(|header| header.version = 10);
    assert_accepted("the member as it is", &zip_with(victim.clone()));
    let mut first = archive(&[]).with(victim.clone()).with(RawMember::from_member(&page())).bytes();
    shift_data(&mut first, 0, "victim.html");
    assert_refused("the next member", &first, &["entry \"victim.html\" overlaps"]);
    let mut last = zip_with(victim);
    let at = archive(&[page()]).bytes().windows(4).position(|w| w == b"PK\x01\x02").expect("a directory");
    shift_data(&mut last, at, "victim.html");
    assert_refused("the directory", &last, &["entry \"victim.html\" overlaps"]);
}

/// Returns four bytes that give `prefix` and themselves this CRC-32 (ISO 3309), by running the register backwards.
fn forge_crc(prefix: &[u8], crc: u32) -> [u8; 4] {
    let table: Vec<u32> =
        (0..256u32).map(|n| (0..8).fold(n, |n, _| if n & 1 == 1 { n >> 1 ^ 0xedb8_8320 } else { n >> 1 })).collect();
    let register = (0..4).fold(!crc, |register, _| {
        let index =
            table.iter().position(|entry| entry >> 24 == register >> 24).expect("each first byte is there once");
        (register ^ table[index]) << 8 | index as u32
    });
    (register ^ !crc32fast::hash(prefix)).to_le_bytes()
}

#[test]
fn data_descriptor_that_overlaps_the_next_zip_member_is_refused() {
    // The next member's header, from its signature on, is also a descriptor without a signature: the checksum, 13
    // compressed bytes, 8 bytes of content.
    let signature = u32::from_le_bytes(*b"PK\x03\x04");
    let content = [&b"text"[..], &forge_crc(b"text", signature)].concat();
    assert_eq!(crc32fast::hash(&content), signature);
    let block = [&[1, 8, 0, !8, 0xff][..], &content].concat();
    let mut first = RawMember::coded(b"first.html", 8, block, signature, 8).with_data_descriptor(false, false);
    let next = RawMember::from_member(&deflated("index.html", TEXT)).change_both_headers(|header| header.version = 13);
    assert_accepted("with a descriptor of its own", &archive(&[]).with(first.clone()).with(next.clone()).bytes());
    first.trailing = Vec::new();
    assert_refused(
        "in the next member",
        &archive(&[]).with(first).with(next).bytes(),
        &["entry \"first.html\" overlaps"],
    );
}

#[test]
fn wrong_zip_entry_counts_and_offsets_are_refused() {
    let good = || archive(&[page()]).with(victim());
    let size = good().bytes().len();
    let table = [
        ("total of one", RawArchive { total: Some(1), entries_on_disk: Some(1), ..good() }, MORE),
        ("total of three", RawArchive { total: Some(3), entries_on_disk: Some(3), ..good() }, LESS),
        ("total of nothing", RawArchive { total: Some(0), entries_on_disk: Some(0), ..good() }, MORE),
        ("total and here differ", RawArchive { entries_on_disk: Some(1), ..good() }, "it is one part of several"),
        ("directory's size", RawArchive { size: Some(1), ..good() }, ELSEWHERE),
        ("directory's start", RawArchive { start: Some(0), ..good() }, ELSEWHERE),
        ("directory behind the end", RawArchive { start: Some(size as u32), ..good() }, ELSEWHERE),
        (
            "directory beyond all bounds",
            RawArchive { start: Some(u32::MAX), size: Some(u32::MAX), ..good() },
            ELSEWHERE,
        ),
        ("disk number", RawArchive { disks: [1, 0], ..good() }, "it is one part of several"),
        ("disk of the directory", RawArchive { disks: [0, 1], ..good() }, "it is one part of several"),
        (
            "member's disk",
            archive(&[page()]).with(RawMember { disk: 1, ..victim() }),
            "it is on another disk of the archive",
        ),
    ];
    for (case, wrong, expected) in table {
        assert_refused(case, &wrong.bytes(), &[expected]);
    }
    for (case, offset, expected) in [
        ("in the member before", 3, "entry \"index.html\" overlaps"),
        ("in the directory", size as u32 - 60, "entry \"victim.html\" overlaps"),
        ("behind the end", size as u32 + 60, "entry \"victim.html\" overlaps"),
        ("beyond all bounds", u32::MAX, "entry \"victim.html\" overlaps"),
    ] {
        assert_refused(
            &format!("offset {case}"),
            &zip_with(RawMember { offset: Some(offset), ..victim() }),
            &[expected],
        );
    }
    // Two members whose offsets are exchanged.
    let mut swapped = good();
    swapped.members[0].offset = Some(30 + 10 + 15);
    swapped.members[1].offset = Some(0);
    assert_refused("exchanged offsets", &swapped.bytes(), &["entry \"victim.html\" overlaps"]);
}

#[test]
fn zip_must_end_with_exactly_one_end_of_central_directory_record() {
    let good = plain_archive();
    let other = zip(&[stored("index.html", "other")]);
    let none = "no ZIP end record at its end";
    assert_refused("bytes behind the end", &[&good[..], b"x"].concat(), &[none]);
    assert_refused("zeros behind the end", &[&good[..], &[0; 100]].concat(), &[none]);
    assert_refused("70,000 bytes behind the end", &[&good[..], &vec![b'x'; 70_000]].concat(), &[none]);
    assert_refused("two archives", &[&good[..], &other].concat(), &[ELSEWHERE]);
    assert_refused("bytes before the start", &[b"#!/bin/sh\nexit\n", &good[..]].concat(), &["is of an unknown kind"]);
    assert_refused("bytes before the start that look right", &[b"PK\x03\x04", &good[..]].concat(), &[ELSEWHERE]);
    let end = &other[other.len() - 22..];
    assert_refused("two end records", &[&good[..], end].concat(), &[ELSEWHERE]);
    let whole = RawArchive { comment: other.clone(), ..archive(&[page()]).with(victim()) };
    assert_refused("an archive in the comment", &whole.bytes(), &["several end records"]);
    let record = RawArchive { comment: end.to_vec(), ..archive(&[page()]).with(victim()) };
    assert_refused("an end record in the comment", &record.bytes(), &["several end records"]);
    let within = RawArchive { comment: [end, b"more"].concat(), ..archive(&[page()]).with(victim()) };
    assert_refused("an end record and more in the comment", &within.bytes(), &["an end record inside the comment"]);
    let overlong = RawArchive { comment: b"comment".to_vec(), ..archive(&[page()]).with(victim()) };
    let bytes = overlong.bytes();
    assert_refused("a comment that is cut", &bytes[..bytes.len() - 1], &[none]);
    assert_refused("an end record alone but for a local header", &[b"PK\x03\x04", end].concat(), &[ELSEWHERE]);
    // An archive as content is harmless.
    let nested = RawMember::from_member(&Member { name: b"download.zip".to_vec(), content: other, deflate: false });
    assert_accepted("an archive as content", &zip_with(nested));
}

#[test]
fn encrypted_members_and_unsupported_zip_methods_are_refused_by_name() {
    let table: [(&str, RawMember, &str); 12] = [
        ("encrypted", victim().change_both_headers(|h| h.flags |= 1), "encrypted"),
        ("strongly encrypted", victim().change_both_headers(|h| h.flags |= 1 | 1 << 6), "encrypted"),
        ("masked", victim().change_both_headers(|h| h.flags |= 1 << 13), "encrypted"),
        ("AES", victim().change_both_headers(|h| (h.flags, h.method) = (1, 99)), "encrypted"),
        ("patch", victim().change_both_headers(|h| h.flags |= 1 << 5), "patch"),
        ("bzip2", victim().change_both_headers(|h| h.method = 12), "bzip2"),
        ("lzma", victim().change_both_headers(|h| h.method = 14), "lzma"),
        ("zstd", victim().change_both_headers(|h| h.method = 93), "zstd"),
        ("xz", victim().change_both_headers(|h| h.method = 95), "xz"),
        ("deflate64", victim().change_both_headers(|h| h.method = 9), "deflate64"),
        ("implode", victim().change_both_headers(|h| h.method = 6), "implode"),
        ("unknown", victim().change_both_headers(|h| h.method = 4242), "4242"),
    ];
    for (case, raw, expected) in table {
        assert_refused(case, &zip_with(raw), &[expected, "entry \"victim.html\""]);
    }
}

#[test]
fn deflate_data_of_every_zlib_compression_level_is_read() {
    let text = TEXT.repeat(2000);
    let mut random = 1u32;
    let noise: Vec<u8> = (0..200_000)
        .map(|_| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 24) as u8
        })
        .collect();
    for content in [text.as_bytes(), &noise, b"", b"x"] {
        for level in 0..=9 {
            let mut raw = flate2::Compress::new(flate2::Compression::new(level), false);
            let mut data = Vec::with_capacity(content.len() * 2 + 10_000);
            raw.compress_vec(content, &mut data, flate2::FlushCompress::Finish).expect("memory");
            let member = RawMember::coded(b"victim.html", 8, data, crc32fast::hash(content), content.len() as u32);
            let files: &[(&[u8], &[u8])] = &[(b"index.html", b"<!doctype html>"), (b"victim.html", content)];
            assert_eq!(unpack_archive(&format!("level {level}"), &zip_with(member), &[]), expected_tree(files));
        }
    }
    // A folder may have an empty DEFLATE stream, as Java writes it.
    let folder = RawMember::coded(b"empty/", 8, deflate(b""), 0, 0);
    assert_same_as_plain("compressed folder", &archive(&[page()]).with(folder).with(victim()).bytes());
    // Bytes after the stream, which the compressed size includes, are not content.
    let mut loose = victim();
    loose.data.extend_from_slice(b"loose");
    let loose = loose.change_both_headers(|h| h.coded += 5);
    assert_same_as_plain("bytes behind the stream", &zip_with(loose));
}
