//! ZIP: every header tells the same story, or the archive is refused.

use crate::verdict::{accepted, refused, tree, unpacked};
use support::zip::{Archive, Header, Member, Raw, archive, deflate, deflated, extra, stored, zip};

const TEXT: &str = "some text that is long enough to be worth compressing, long enough, long enough";

/// Faults of an end record that is not true.
const LESS: &str = "its directory holds less than the end record counts";
const MORE: &str = "its directory holds more than the end record counts";
const ELSEWHERE: &str = "its directory is not where the end record says";

fn page() -> Member {
    stored("index.html", "<!doctype html>")
}

fn victim() -> Raw {
    Raw::of(&deflated("victim.html", TEXT))
}

/// A page and another member.
fn with(member: Raw) -> Vec<u8> {
    archive(&[page()]).with(member).bytes()
}

fn honest() -> Vec<u8> {
    with(victim())
}

/// Accepted, and the same version as the plain archive of the same content.
#[track_caller]
fn same_as_honest(what: &str, bytes: &[u8]) {
    assert_eq!(accepted(what, bytes)["version"], accepted("honest", &honest())["version"], "{what}");
    let content: &[(&[u8], &[u8])] = &[(b"index.html", b"<!doctype html>"), (b"victim.html", TEXT.as_bytes())];
    assert_eq!(unpacked(what, bytes, &[]), tree(content), "{what}");
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
    for (what, change, word) in table {
        let (mut local, mut central) = (victim(), victim());
        change(&mut local.local);
        change(&mut central.central);
        // What the directory alone shows is refused before any local header is read.
        let central_word = match what {
            "length of the name" => "overlaps another entry",
            "method" => "has another size than it declares",
            _ => word,
        };
        refused(&format!("local {what}"), &with(local), &["entry \"victim.html\"", word]);
        refused(&format!("central {what}"), &with(central), &["entry \"", central_word]);
    }
}

#[test]
fn both_headers_together_may_not_lie_either() {
    let mut no_block = victim();
    no_block.data[0] |= 3 << 1;
    let mut damaged = Raw::of(&stored("victim.html", TEXT));
    damaged.data[10] ^= 4;
    let flushed = support::zip::deflate_piece(TEXT.as_bytes());
    let unfinished = Raw { data: flushed.clone(), ..victim() }.both(|h| h.coded = flushed.len() as u32);
    let (crc, size) = ("does not match its checksum", "has another size than it declares");
    let table = [
        ("checksum", victim().both(|h| h.crc ^= 1 << 31), crc),
        ("size too small", victim().both(|h| h.size -= 1), size),
        ("size too large", victim().both(|h| h.size += 1), size),
        ("size of nothing", victim().both(|h| h.size = 0), size),
        ("size of 60 MiB", victim().both(|h| h.size = 60 << 20), size),
        ("compressed size too small", victim().both(|h| h.coded -= 1), "cannot be read: the compressed data"),
        ("compressed size too large", victim().both(|h| h.coded += 1), "overlaps another entry"),
        ("compressed size of 4 GiB", victim().both(|h| h.coded = u32::MAX), "overlaps another entry"),
        ("stored, with two sizes", Raw::of(&stored("victim.html", TEXT)).both(|h| h.size -= 1), size),
        // Read as DEFLATE, the text begins with a match from before its start.
        ("stored, declared as deflate", Raw::of(&stored("victim.html", TEXT)).both(|h| h.method = 8), "(a match from"),
        ("deflate, declared as stored", victim().both(|h| (h.method, h.size) = (0, h.coded)), crc),
        ("damaged data", damaged, crc),
        ("damaged compressed data", no_block, "(a block of unknown type)"),
        ("no data", Raw::coded(b"victim.html", 8, Vec::new(), 0, 0), "the compressed data is cut short"),
        ("unfinished data", unfinished, "the compressed data is cut short"),
        ("folder with content", Raw::of(&stored("victim/", "x")), "is a folder with content"),
        ("folder with compressed content", Raw::of(&deflated("victim/", TEXT)), "is a folder with content"),
    ];
    for (what, raw, word) in table {
        refused(what, &with(raw), &["entry \"victim", word]);
    }
}

/// A lie in a header.
type Change = fn(&mut Header);

#[test]
fn data_descriptors_of_every_form_work_and_may_not_lie() {
    let words = &["entry \"victim.html\"", "in its data descriptor"];
    for (signed, wide) in [(true, false), (false, false), (true, true), (false, true)] {
        let what = format!("descriptor, signed {signed}, 64 bit {wide}");
        let raw = victim().descriptor(signed, wide);
        same_as_honest(&what, &with(raw.clone()));
        same_as_honest(&what, &archive(&[]).with(raw.clone()).with(Raw::of(&page())).bytes());
        let at = if signed { 4 } else { 0 };
        for byte in at..raw.behind.len() {
            let mut lying = raw.clone();
            lying.behind[byte] ^= 1;
            refused(&format!("{what}, byte {byte}"), &with(lying), words);
        }
        let mut cut = raw.clone();
        cut.behind.pop();
        refused(&format!("{what}, cut"), &with(cut), words);
        let mut absent = raw;
        absent.behind.clear();
        refused(&format!("{what}, absent"), &with(absent), words);
    }
    // A stored member may have one too, and the local header may already be right.
    let stored_too = Raw::of(&stored("victim.html", TEXT)).descriptor(true, false);
    same_as_honest("stored with descriptor", &with(stored_too));
    let mut known = victim().descriptor(true, false);
    let flags = known.local.flags;
    known.local = Header { flags, ..victim().local };
    same_as_honest("descriptor and right local header", &with(known.clone()));
    // What is neither right nor absent would be believed by who reads from the front.
    let changes: [(&str, Change); 4] = [
        ("in its checksum", |header| header.crc ^= 1),
        ("in its sizes", |header| header.size += 1),
        ("in its sizes", |header| header.coded += 1),
        ("in its sizes", |header| header.coded = 1),
    ];
    for (word, change) in changes {
        for mut lying in [known.clone(), victim().descriptor(true, false)] {
            lying.local.crc = lying.central.crc;
            change(&mut lying.local);
            refused(&format!("descriptor and {word}"), &with(lying), &["entry \"victim.html\"", word]);
        }
    }
    let wide = Raw { wide: true, ..victim().descriptor(true, true) };
    same_as_honest("descriptor and zip64", &with(wide));
}

#[test]
fn zip64_comments_and_extra_fields_work() {
    let wide = Raw { wide: true, ..victim() };
    same_as_honest("zip64 member", &with(wide.clone()));
    let end = Archive { wide: true, ..archive(&[page()]).with(wide.clone()) };
    same_as_honest("zip64 everywhere", &end.bytes());
    same_as_honest("zip64 end record", &Archive { wide: true, ..archive(&[page()]).with(victim()) }.bytes());
    let told = Archive { wide: true, here: Some(2), total: Some(2), ..archive(&[page()]).with(victim()) };
    same_as_honest("zip64 end record that repeats the old one", &told.bytes());

    let comment = Archive { comment: b"made by hand".to_vec(), ..archive(&[page()]).with(victim()) };
    same_as_honest("comment", &comment.bytes());
    let longest = Archive { comment: vec![b'c'; 65_535], ..archive(&[page()]).with(victim()) };
    same_as_honest("longest comment", &longest.bytes());
    same_as_honest("member comment", &with(Raw { comment: b"a comment of its own".to_vec(), ..victim() }));

    let times = extra(0x5455, &[3, 0, 0, 0, 0, 0, 0, 0, 0]);
    for (what, field) in [
        ("times", times.clone()),
        ("owner", extra(0x7875, &[1, 4, 0, 0, 0, 0, 4, 0, 0, 0, 0])),
        ("unknown", extra(0xbeef, &[7; 3000])),
        ("several", [times, extra(0xcafe, &[0xca, 0xfe])].concat()),
        ("alignment padding", vec![0, 0, 0]),
        ("Unicode path that says otherwise", extra(0x7075, b"\x01\0\0\0\0../evil")),
    ] {
        same_as_honest(what, &with(victim().both(|h| h.extra.clone_from(&field))));
        let (mut local, mut central) = (victim(), victim());
        local.local.extra.clone_from(&field);
        central.central.extra.clone_from(&field);
        same_as_honest(&format!("local {what}"), &with(local));
        same_as_honest(&format!("central {what}"), &with(central));
    }
}

#[test]
fn zip64_sizes_are_found_among_long_extra_fields() {
    for length in [0, 9, 60, 100, 3000, 60_000] {
        let field = extra(0xbeef, &vec![7; length]);
        let wide = Raw { wide: true, ..victim() }.both(|h| h.extra.clone_from(&field));
        same_as_honest(&format!("zip64 and {length} bytes more"), &with(wide));
    }
}

#[test]
fn zip64_numbers_may_not_lie() {
    let wide = Raw { wide: true, ..victim() };
    let end = Archive { wide: true, ..archive(&[page()]).with(wide.clone()) };
    let table = [
        ("zip64 count", Archive { wide_total: Some(3), ..end.clone() }, LESS),
        ("zip64 count of nothing", Archive { wide_total: Some(0), ..end.clone() }, MORE),
        ("zip64 count of everything", Archive { wide_total: Some(u64::MAX), ..end.clone() }, "(limits.entries)"),
        (
            "count beside zip64",
            Archive { total: Some(3), here: Some(3), ..end.clone() },
            "its end records do not agree",
        ),
        ("start beside zip64", Archive { start: Some(1), ..end.clone() }, "its end records do not agree"),
    ];
    for (what, lying, word) in table {
        refused(what, &lying.bytes(), &[word]);
    }
    let bytes = end.bytes();
    let locator = bytes.len() - 22 - 20;
    let record = locator - 56;
    for (what, at, word) in [
        // What lies where it leads is no record, or not in the archive.
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
            let mut lying = bytes.clone();
            lying[at] ^= flip;
            refused(what, &lying, &["the archive is damaged", word]);
        }
        let mut lying = bytes.clone();
        lying[at..at + 8].fill(0xff);
        refused(what, &lying, &["the archive is damaged", word]);
    }
    for (what, member, word) in [
        ("size", wide.clone().both(|h| h.size += 1), "entry \"victim.html\" has another size than it declares"),
        ("compressed size", wide.clone().both(|h| h.coded += 1), "entry \"victim.html\" overlaps"),
        ("offset", Raw { offset: Some(1), ..wide.clone() }, "entry \"index.html\" overlaps"),
    ] {
        refused(&format!("zip64 {what}"), &with(member), &[word]);
    }
    let mut short = victim();
    (short.central.size, short.central.extra) = (u32::MAX, extra(1, &[0; 4]));
    refused("zip64 field that is too short", &with(short), &["entry \"victim.html\"", "its zip64 field"]);
    let cut = victim().both(|h| h.extra = vec![1, 0, 200, 0, 1, 2, 3]);
    refused("extra field without room", &with(cut), &["entry \"victim.html\"", "its extra fields"]);
}

#[test]
fn members_that_share_bytes_are_refused() {
    let a = victim();
    let same = Raw { offset: Some(0), ..Raw::of(&page()) };
    let twice = archive(&[page()]).with(same.clone()).bytes();
    refused("two entries of one member", &twice, &["entry \"index.html\" overlaps"]);
    let mut renamed = same;
    renamed.central.name = b"copy.html".to_vec();
    let twice = archive(&[page()]).with(renamed).bytes();
    refused("two names of one member", &twice, &["entry \"index.html\" overlaps"]);

    // A local header quoted by a stored DEFLATE block: both members end with the same kernel (the overlap of better bombs).
    let kernel = Raw::of(&deflated("b.html", TEXT));
    let inner = archive(&[]).with(kernel.clone());
    let local = inner.bytes()[..30 + 6 + kernel.data.len()].to_vec();
    let header = 30 + 6;
    let mut quoting = vec![0, header as u8, 0, !(header as u8), 0xff];
    quoting.extend_from_slice(&local);
    let content = [&local[..header], TEXT.as_bytes()].concat();
    let outer = Raw::coded(b"a.html", 8, quoting, crc32fast::hash(&content), content.len() as u32);
    let alone = archive(&[page()]).with(outer.clone()).bytes();
    accepted("the outer member alone", &alone);
    let inner_at =
        archive(&[page()]).bytes().windows(4).position(|w| w == b"PK\x01\x02").expect("a directory") + header + 5;
    let mut shared = archive(&[page()]).with(outer);
    shared.members.push(Raw { offset: Some(inner_at as u32), ..kernel });
    let mut bytes = shared.bytes();
    // Takes the third member's own local header and data away again.
    let directory = bytes.windows(4).position(|w| w == b"PK\x01\x02").expect("a directory");
    bytes.drain(directory - local.len()..directory);
    let at = bytes.len() - 6;
    bytes[at..at + 4].copy_from_slice(&((directory - local.len()) as u32).to_le_bytes());
    refused("quoted local header", &bytes, &["overlaps"]);

    let mut reaching = a.clone();
    reaching = reaching.both(|h| h.coded += 30);
    refused(
        "a member that reaches into the next",
        &archive(&[]).with(reaching.clone()).with(Raw::of(&page())).bytes(),
        &["entry \"victim.html\" overlaps"],
    );
    refused("a member that reaches into the directory", &with(reaching), &["entry \"victim.html\" overlaps"]);
}

/// A stored member whose local header has an extra field that its directory does not know, so that its data reach so many bytes
/// into what follows; its checksum is that of the bytes which they cover then.
fn shifted(bytes: &mut [u8], at: usize, name: &str) {
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
fn a_member_with_a_right_checksum_may_not_reach_into_the_next_or_the_directory() {
    // The local header's field is a part of the content for those who read the directory.
    let content = [&extra(0xcafe, &[b'e'; 26])[..], TEXT.as_bytes()].concat();
    let victim = Raw::of(&Member { name: b"victim.html".to_vec(), content, deflate: false });
    // Another version, by which its entry of the directory is found.
    let victim = victim.both(|header| header.version = 10);
    accepted("the member as it is", &with(victim.clone()));
    let mut first = archive(&[]).with(victim.clone()).with(Raw::of(&page())).bytes();
    shifted(&mut first, 0, "victim.html");
    refused("the next member", &first, &["entry \"victim.html\" overlaps"]);
    let mut last = with(victim);
    let at = archive(&[page()]).bytes().windows(4).position(|w| w == b"PK\x01\x02").expect("a directory");
    shifted(&mut last, at, "victim.html");
    refused("the directory", &last, &["entry \"victim.html\" overlaps"]);
}

/// Four bytes that give this CRC-32 behind `prefix` (ISO 3309): its register is run backwards.
fn forged(prefix: &[u8], crc: u32) -> [u8; 4] {
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
fn a_data_descriptor_may_not_lie_in_the_next_member() {
    // The next member's header, from its signature on, reads as a descriptor without one: checksum, 13 bytes coded, 8 in all.
    let signature = u32::from_le_bytes(*b"PK\x03\x04");
    let content = [&b"text"[..], &forged(b"text", signature)].concat();
    assert_eq!(crc32fast::hash(&content), signature);
    let block = [&[1, 8, 0, !8, 0xff][..], &content].concat();
    let mut first = Raw::coded(b"first.html", 8, block, signature, 8).descriptor(false, false);
    let next = Raw::of(&deflated("index.html", TEXT)).both(|header| header.version = 13);
    accepted("with a descriptor of its own", &archive(&[]).with(first.clone()).with(next.clone()).bytes());
    first.behind = Vec::new();
    refused("in the next member", &archive(&[]).with(first).with(next).bytes(), &["entry \"first.html\" overlaps"]);
}

#[test]
fn counts_and_offsets_are_true_or_the_archive_is_refused() {
    let good = || archive(&[page()]).with(victim());
    let size = good().bytes().len();
    let table = [
        ("total of one", Archive { total: Some(1), here: Some(1), ..good() }, MORE),
        ("total of three", Archive { total: Some(3), here: Some(3), ..good() }, LESS),
        ("total of nothing", Archive { total: Some(0), here: Some(0), ..good() }, MORE),
        ("total and here differ", Archive { here: Some(1), ..good() }, "it is one part of several"),
        ("directory's size", Archive { size: Some(1), ..good() }, ELSEWHERE),
        ("directory's start", Archive { start: Some(0), ..good() }, ELSEWHERE),
        ("directory behind the end", Archive { start: Some(size as u32), ..good() }, ELSEWHERE),
        ("directory beyond all bounds", Archive { start: Some(u32::MAX), size: Some(u32::MAX), ..good() }, ELSEWHERE),
        ("disk number", Archive { disks: [1, 0], ..good() }, "it is one part of several"),
        ("disk of the directory", Archive { disks: [0, 1], ..good() }, "it is one part of several"),
        ("member's disk", archive(&[page()]).with(Raw { disk: 1, ..victim() }), "it lies on another disk"),
    ];
    for (what, lying, word) in table {
        refused(what, &lying.bytes(), &[word]);
    }
    for (what, offset, word) in [
        ("in the member before", 3, "entry \"index.html\" overlaps"),
        ("in the directory", size as u32 - 60, "entry \"victim.html\" overlaps"),
        ("behind the end", size as u32 + 60, "entry \"victim.html\" overlaps"),
        ("beyond all bounds", u32::MAX, "entry \"victim.html\" overlaps"),
    ] {
        refused(&format!("offset {what}"), &with(Raw { offset: Some(offset), ..victim() }), &[word]);
    }
    // Two members whose offsets are exchanged.
    let mut swapped = good();
    swapped.members[0].offset = Some(30 + 10 + 15);
    swapped.members[1].offset = Some(0);
    refused("exchanged offsets", &swapped.bytes(), &["entry \"victim.html\" overlaps"]);
}

#[test]
fn there_is_one_end_record_at_the_very_end() {
    let good = honest();
    let other = zip(&[stored("index.html", "other")]);
    let none = "no ZIP end record at its end";
    refused("bytes behind the end", &[&good[..], b"x"].concat(), &[none]);
    refused("zeros behind the end", &[&good[..], &[0; 100]].concat(), &[none]);
    refused("70,000 bytes behind the end", &[&good[..], &vec![b'x'; 70_000]].concat(), &[none]);
    refused("two archives", &[&good[..], &other].concat(), &[ELSEWHERE]);
    refused("bytes before the start", &[b"#!/bin/sh\nexit\n", &good[..]].concat(), &["is of no known kind"]);
    refused("bytes before the start that look right", &[b"PK\x03\x04", &good[..]].concat(), &[ELSEWHERE]);
    let end = &other[other.len() - 22..];
    refused("two end records", &[&good[..], end].concat(), &[ELSEWHERE]);
    let whole = Archive { comment: other.clone(), ..archive(&[page()]).with(victim()) };
    refused("an archive in the comment", &whole.bytes(), &["several end records"]);
    let record = Archive { comment: end.to_vec(), ..archive(&[page()]).with(victim()) };
    refused("an end record in the comment", &record.bytes(), &["several end records"]);
    let within = Archive { comment: [end, b"more"].concat(), ..archive(&[page()]).with(victim()) };
    refused("an end record and more in the comment", &within.bytes(), &["an end record inside the comment"]);
    let overlong = Archive { comment: b"comment".to_vec(), ..archive(&[page()]).with(victim()) };
    let bytes = overlong.bytes();
    refused("a comment that is cut", &bytes[..bytes.len() - 1], &[none]);
    refused("an end record alone but for a local header", &[b"PK\x03\x04", end].concat(), &[ELSEWHERE]);
    // As content it is harmless.
    let nested = Raw::of(&Member { name: b"download.zip".to_vec(), content: other, deflate: false });
    accepted("an archive as content", &with(nested));
}

#[test]
fn encrypted_and_unknown_methods_are_refused_by_name() {
    let table: [(&str, Raw, &str); 12] = [
        ("encrypted", victim().both(|h| h.flags |= 1), "encrypted"),
        ("strongly encrypted", victim().both(|h| h.flags |= 1 | 1 << 6), "encrypted"),
        ("masked", victim().both(|h| h.flags |= 1 << 13), "encrypted"),
        ("AES", victim().both(|h| (h.flags, h.method) = (1, 99)), "encrypted"),
        ("patch", victim().both(|h| h.flags |= 1 << 5), "patch"),
        ("bzip2", victim().both(|h| h.method = 12), "bzip2"),
        ("lzma", victim().both(|h| h.method = 14), "lzma"),
        ("zstd", victim().both(|h| h.method = 93), "zstd"),
        ("xz", victim().both(|h| h.method = 95), "xz"),
        ("deflate64", victim().both(|h| h.method = 9), "deflate64"),
        ("implode", victim().both(|h| h.method = 6), "implode"),
        ("unknown", victim().both(|h| h.method = 4242), "4242"),
    ];
    for (what, raw, word) in table {
        refused(what, &with(raw), &[word, "entry \"victim.html\""]);
    }
}

#[test]
fn every_shape_of_deflate_data_that_zlib_writes_is_read() {
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
            let member = Raw::coded(b"victim.html", 8, data, crc32fast::hash(content), content.len() as u32);
            let files: &[(&[u8], &[u8])] = &[(b"index.html", b"<!doctype html>"), (b"victim.html", content)];
            assert_eq!(unpacked(&format!("level {level}"), &with(member), &[]), tree(files));
        }
    }
    // A folder may be compressed to nothing, as Java writes it.
    let folder = Raw::coded(b"empty/", 8, deflate(b""), 0, 0);
    same_as_honest("compressed folder", &archive(&[page()]).with(folder).with(victim()).bytes());
    // Bytes behind the stream that its size counts are no content.
    let mut loose = victim();
    loose.data.extend_from_slice(b"loose");
    let loose = loose.both(|h| h.coded += 5);
    same_as_honest("bytes behind the stream", &with(loose));
}
