//! Tar in all its dialects, and the gzip and zstd streams that contain it.

use crate::archive_checks::{PAGE, as_tar, assert_accepted, assert_refused, expected_tree, unpack_archive};
use support::tar::{
    TarEntry, blocks, entry, file, gzip, gzip_frame, link, long_name, pax, pax_bytes, pax_record, tar, zstd, zstd_raw,
    zstd_skippable, zstd_with_checksum,
};
use support::zip::{LAST_BLOCK, deflate};

const NO_PAX: &str = "is damaged: a PAX header that does not parse";
const CUT: &str = "cannot be read: the compressed data is cut short";

fn page() -> TarEntry {
    file("index.html", "<!doctype html><title>Home</title>")
}

/// Creates a tar of these entries and a page.
fn tar_with(mut entries: Vec<TarEntry>) -> Vec<u8> {
    entries.push(page());
    tar(&entries)
}

/// Asserts that the archive is accepted and contains the page and one other file.
#[track_caller]
fn assert_contains_file(case: &str, archive: &[u8], name: &[u8], content: &[u8]) {
    assert_accepted(case, archive);
    assert_eq!(unpack_archive(case, archive, &[]), expected_tree(&[PAGE, (name, content)]), "{case}");
}

fn long_path(length: usize) -> String {
    "component/".repeat(length / 10) + &"x".repeat(length % 10)
}

/// Encodes a size in base 256.
fn base256(size: u64) -> [u8; 12] {
    let mut field = [0; 12];
    field[0] = 0x80;
    field[4..].copy_from_slice(&size.to_be_bytes());
    field
}

#[test]
fn every_tar_dialect_of_names_and_sizes_is_read() {
    let content = "x".repeat(700);
    let plain = |name: &str| file(name, &content);
    let far = long_path(180) + "end";
    let farther = long_path(1000) + "end";
    let table: Vec<(&str, Vec<TarEntry>, &str)> = vec![
        ("./ prefix", vec![entry("./", b'5', b""), plain("./a/b")], "a/b"),
        ("v7", vec![plain("a/b").with(257, &[0; 8]).with(156, &[0])], "a/b"),
        (
            "v7 folder by its slash",
            vec![entry("a/", 0, b"").with(257, &[0; 8]), plain("a/b").with(257, &[0; 8])],
            "a/b",
        ),
        ("ustar prefix", vec![plain("b").with(345, b"pre/fix")], "pre/fix/b"),
        ("ustar prefix that ends with a slash", vec![plain("b").with(345, b"pre/fix/")], "pre/fix/b"),
        ("full ustar prefix and name", vec![plain(&"n".repeat(100)).with(345, &[b'p'; 155])], ""),
        ("old GNU, which has no prefix", vec![plain("b").with(257, b"ustar  \0").with(345, b"14000000000\0")], "b"),
        ("contiguous file", vec![plain("a/b").with(156, b"7")], "a/b"),
        ("PAX path", vec![pax(&[("path", far.as_bytes())]), plain("short")], &far),
        (
            "PAX path beats prefix and GNU name",
            vec![long_name(b"other"), pax(&[("path", b"a/b")]), plain("c").with(345, b"d")],
            "a/b",
        ),
        ("PAX path beats a GNU name behind it", vec![pax(&[("path", b"a/b")]), long_name(b"other"), plain("c")], "a/b"),
        (
            "GNU name beats PAX-less header",
            vec![long_name(farther.as_bytes()), plain("short").with(345, b"d")],
            &farther,
        ),
        ("GNU name without its NUL", vec![entry("././@LongLink", b'L', b"a/b"), plain("short")], "a/b"),
        ("GNU link name without a link", vec![entry("././@LongLink", b'K', b"target\0"), plain("a/b")], "a/b"),
        (
            "PAX path of another kind",
            vec![pax(&[("comment", b"path=evil\n\0"), ("path", "\u{e4} = b".as_bytes())]), plain("x")],
            "\u{e4} = b",
        ),
        ("PAX path that is taken back", vec![pax(&[("path", b"evil"), ("path", b"")]), plain("a/b")], "a/b"),
        (
            "PAX attributes",
            vec![pax(&[("mtime", b"1.5"), ("SCHILY.xattr.user.x", b"\0\n\xff"), ("LIBARCHIVE.x", b"")]), plain("a/b")],
            "a/b",
        ),
        ("PAX size wins", vec![pax(&[("size", b"700")]), plain("a/b").sized(0)], "a/b"),
        ("PAX size beats a base-256 size", vec![pax(&[("size", b"700")]), plain("a/b").with(124, &base256(9))], "a/b"),
        ("base-256 size", vec![plain("a/b").with(124, &base256(700))], "a/b"),
        ("size with spaces", vec![plain("a/b").with(124, b"       1274 ")], "a/b"),
        ("size without an end", vec![plain("a/b").with(124, b"000000001274")], "a/b"),
        (
            "global comment",
            vec![entry("pax_global_header", b'g', &pax_record("comment", b"0123456789abcdef")), plain("a/b")],
            "a/b",
        ),
        ("checksum of signed bytes", vec![with_signed_checksum(plain("a/b").with(265, b"\xe4\xf6\xfc"))], "a/b"),
    ];
    for (case, entries, name) in table {
        let full = format!("{}/{}", "p".repeat(155), "n".repeat(100));
        let name = if name.is_empty() { &full } else { name };
        for (kind, archive) in [
            ("tar", tar_with(entries.clone())),
            ("tar.gz", gzip(&tar_with(entries.clone()))),
            ("tar.zst", zstd(&tar_with(entries))),
        ] {
            assert_contains_file(&format!("{kind}: {case}"), &archive, name.as_bytes(), content.as_bytes());
        }
    }
}

/// Sets the checksum of signed bytes, which some old writers compute.
fn with_signed_checksum(mut entry: TarEntry) -> TarEntry {
    entry.header[148..156].fill(b' ');
    let sum: i32 = entry.header.iter().map(|&b| i32::from(b.cast_signed())).sum();
    entry.header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    entry
}

#[test]
fn a_tar_may_end_with_any_number_of_zero_blocks_but_no_data_after_them() {
    let entries = [page(), file("a", "1")];
    let entry_blocks = blocks(&entries);
    for (case, end) in [
        ("no end blocks", 0),
        ("one end block", 512),
        ("two", 1024),
        ("a full record", 10_240 - entry_blocks.len()),
        ("many", 100_352),
    ] {
        assert_contains_file(case, &[&entry_blocks[..], &vec![0; end]].concat(), b"a", b"1");
        assert_contains_file(case, &gzip(&[&entry_blocks[..], &vec![0; end]].concat()), b"a", b"1");
    }
    let other = tar(&[file("b", "2")]);
    // One block of zeros is an end, too: a reader that expects two would find another entry behind it.
    let behind_one = [&entry_blocks[..], &[0; 512], &other].concat();
    for archive in [behind_one.clone(), gzip(&behind_one), zstd(&behind_one)] {
        assert_refused("an entry behind one block of zeros", &archive, &["it has data after its end marker"]);
    }
    for (case, tail) in [
        ("another archive", other.clone()),
        ("an entry behind one zero block", [&[0; 512][..], &other].concat()),
        ("text", b"text".to_vec()),
        ("one byte far behind", [&[0; 5000][..], b"x"].concat()),
    ] {
        let archive = [&tar(&entries)[..], &tail].concat();
        for archive in [archive.clone(), gzip(&archive), zstd(&archive)] {
            assert_refused(case, &archive, &["end marker"]);
        }
    }
}

#[test]
fn invalid_tar_headers_are_refused() {
    let plain = || file("victim", "content");
    let mut broken = plain();
    broken.header[0] ^= 1;
    let negative = "entry \"victim\" is damaged: a negative or impossible size";
    let no_number = "entry \"victim\" is damaged: a size that is not a number";
    let limit = "entry \"victim\" is over 2.1 GB (limits.entry)";
    let too_long = "a name or PAX header over 1 MiB";
    let table: Vec<(&str, Vec<TarEntry>, &str)> = vec![
        ("negative size", vec![plain().with(124, &[0xff; 12])], negative),
        ("small negative size", vec![plain().with(124, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xf9")], negative),
        ("negative octal size", vec![plain().with(124, b"-0000000007\0")], no_number),
        ("size that is no number", vec![plain().with(124, b"0000000009x\0")], no_number),
        ("size of 2^63", vec![plain().with(124, &base256(1 << 63))], limit),
        ("size of 2^64 - 1", vec![plain().with(124, &base256(u64::MAX))], limit),
        ("size beyond 64 bits", vec![plain().with(124, b"\x80\x01\0\0\0\0\0\0\0\0\0\0")], "a size over 64 bits"),
        ("size of 8 GiB - 1", vec![plain().with(124, b"77777777777\0")], limit),
        ("PAX size of 2^64 - 1", vec![pax(&[("size", b"18446744073709551615")]), plain()], limit),
        ("PAX size beyond 64 bits", vec![pax(&[("size", b"18446744073709551616")]), plain()], NO_PAX),
        ("negative PAX size", vec![pax(&[("size", b"-7")]), plain()], NO_PAX),
        ("PAX size that is no number", vec![pax(&[("size", b"7x")]), plain()], NO_PAX),
        ("checksum", vec![broken], "the bundle is damaged: a tar header's checksum"),
        ("folder with content", vec![entry("victim/", b'5', b"content")], "entry \"victim/\" is a folder with content"),
        (
            "hard link with content",
            vec![entry("victim", b'1', b"content").with(157, b"index.html")],
            "entry \"victim\" is damaged: a hard link with content",
        ),
        ("PAX header of nothing", vec![pax(&[("path", b"victim")])], "a header without the entry that it describes"),
        ("long name of nothing", vec![long_name(b"victim")], "a header without the entry that it describes"),
        ("long name over 1 MiB", vec![long_name(&vec![b'x'; 2 << 20]), plain()], too_long),
        ("long name of 1 TiB", vec![long_name(b"x").with(124, &base256(1 << 40)), plain()], too_long),
        ("PAX header of 1 TiB", vec![pax(&[("path", b"x")]).with(124, &base256(1 << 40)), plain()], too_long),
    ];
    for (case, entries, word) in table {
        // The page is first, so that the archive is not refused for a missing page if a header includes the entries
        // after it.
        let mut all = vec![page()];
        all.extend(entries);
        assert_refused(case, &tar(&all), &[word]);
    }
}

#[test]
fn invalid_pax_headers_are_refused() {
    let table: [&[u8]; 17] = [
        b"11 path=a b\n",
        b"13 path=a b\n",
        b"12 path=a bX",
        b"x path=a\n",
        b"path=a\n",
        b" 9 path=a\n",
        b"9path=a\n",
        b"0 path=a\n",
        b"-9 path=a\n",
        b"99999999999999999999999 path=a\n",
        b"9999 path=a\n",
        b"4 =\n",
        b"7 path\n",
        b"9 path=a\n\0",
        b"9 path=a\n9",
        b"\n",
        b"9 path=a",
    ];
    for records in table {
        let case = String::from_utf8_lossy(records).into_owned();
        assert_refused(&case, &tar_with(vec![pax_bytes(records), file("victim", "x")]), &[NO_PAX]);
        let global = entry("pax_global_header", b'g', records);
        assert_refused(&format!("global {case}"), &tar_with(vec![global, file("victim", "x")]), &[NO_PAX]);
    }
    assert_accepted("a PAX header of nothing", &tar_with(vec![pax_bytes(b""), file("fine", "x")]));
    assert_refused("a PAX path with a NUL", &tar_with(vec![pax(&[("path", b"a\0b")]), file("victim", "x")]), &["NUL"]);
    assert_refused(
        "a PAX path of one slash",
        &tar_with(vec![pax(&[("path", b"/")]), file("victim", "x")]),
        &["absolute"],
    );
}

#[test]
fn sparse_files_and_unknown_tar_entry_types_are_refused() {
    for (case, kind) in [
        ("old GNU sparse", b'S'),
        ("multi-volume", b'M'),
        ("volume label", b'V'),
        ("GNU folder listing", b'D'),
        ("old long name", b'N'),
        ("Solaris ACL", b'A'),
        ("Solaris extended header", b'X'),
        ("unknown", b'Z'),
        ("unknown digit", b'8'),
        ("unknown byte", 0xff),
        ("escape", 0x1b),
    ] {
        let word = if kind == b'S' { "is a sparse file" } else { "has an entry type that is not read" };
        let words = &["entry \"victim\"", word];
        assert_refused(case, &tar_with(vec![entry("victim", kind, b"content")]), words);
        assert_refused(case, &gzip(&tar_with(vec![entry("victim", kind, b"")])), words);
    }
    // The three PAX forms of sparse files, which are refused.
    let old = entry("victim", b'S', b"content")
        .with(257, b"ustar  \0")
        .with(386, b"00000000000\x0000000000007\x00")
        .with(483, b"00000010000\0");
    assert_refused("old GNU sparse with its map", &tar_with(vec![old]), &["entry \"victim\"", "sparse"]);
    for records in [
        vec![
            ("GNU.sparse.size", &b"4096"[..]),
            ("GNU.sparse.numblocks", b"1"),
            ("GNU.sparse.offset", b"0"),
            ("GNU.sparse.numbytes", b"7"),
        ],
        vec![("GNU.sparse.name", &b"victim"[..]), ("GNU.sparse.size", b"4096"), ("GNU.sparse.map", b"0,7")],
        vec![
            ("GNU.sparse.major", &b"1"[..]),
            ("GNU.sparse.minor", b"0"),
            ("GNU.sparse.name", b"victim"),
            ("GNU.sparse.realsize", b"4096"),
        ],
    ] {
        assert_refused(
            "PAX sparse",
            &tar_with(vec![pax(&records), file("GNUSparseFile.0/victim", "content")]),
            &["victim", "sparse"],
        );
    }
    assert_refused(
        "hidden name of a sparse file",
        &tar_with(vec![pax(&[("GNU.sparse.name", b"../evil")]), file("victim", "x")]),
        &["entry \"victim\" is a sparse file"],
    );
    for (key, value) in [("path", &b"everything"[..]), ("linkpath", b"a"), ("size", b"1"), ("GNU.sparse.major", b"1")] {
        let global = entry("pax_global_header", b'g', &pax_record(key, value));
        let words = &["a global header with a path, a size or a sparse file"];
        assert_refused(&format!("global {key}"), &tar_with(vec![global, file("victim", "x")]), words);
    }
}

/// Compresses the bytes as gzip members of `size` bytes of content each.
fn members(bytes: &[u8], size: usize) -> Vec<u8> {
    bytes.chunks(size).flat_map(gzip).collect()
}

#[test]
fn gzip_members_are_concatenated_into_one_tar_stream() {
    let content = "0123456789".repeat(300);
    let bytes = tar_with(vec![file("a/b", &content), file("later", "x")]);
    let expected = assert_accepted("one member", &gzip(&bytes))["version"].clone();
    for size in [10, 1, 511, 512, 513, 1000, 4096] {
        assert_eq!(assert_accepted(&format!("members of {size}"), &members(&bytes, size))["version"], expected);
    }
    for at in [1, 9, 511, 512, 700, bytes.len() - 1025, bytes.len() - 1] {
        let parts = [gzip(&bytes[..at]), gzip(b""), gzip(&bytes[at..]), gzip(b"")].concat();
        assert_eq!(assert_accepted(&format!("split at {at}"), &parts)["version"], expected);
    }
    assert_eq!(assert_accepted("padding of zeros", &[gzip(&bytes), vec![0; 3000]].concat())["version"], expected);
    let (compressed, crc, len) = (deflate(&bytes), crc32fast::hash(&bytes), bytes.len() as u32);
    for (case, flags, fields) in [
        ("name", 8, b"bundle.tar\0".to_vec()),
        ("comment", 16, b"made by hand\0".to_vec()),
        ("extra", 4, [&[3, 0][..], b"abc"].concat()),
        ("long name", 8, [vec![b'n'; 60_000], vec![0]].concat()),
        ("text", 1, Vec::new()),
    ] {
        let framed = [
            &[0x1f, 0x8b, 8, flags, 1, 2, 3, 4, 2, 3][..],
            &fields,
            &compressed,
            &crc.to_le_bytes(),
            &len.to_le_bytes(),
        ]
        .concat();
        assert_eq!(assert_accepted(case, &framed)["version"], expected);
    }
    let head = [0x1f, 0x8b, 8, 2, 0, 0, 0, 0, 0, 3];
    let check = (crc32fast::hash(&head) as u16).to_le_bytes();
    let tail = [&compressed[..], &crc.to_le_bytes(), &len.to_le_bytes()].concat();
    assert_eq!(assert_accepted("header checksum", &[&head[..], &check, &tail].concat())["version"], expected);
    assert_refused(
        "wrong header checksum",
        &[&head[..], &[check[0], check[1] ^ 1], &tail].concat(),
        &["the gzip header"],
    );
}

#[test]
fn every_gzip_member_is_verified_up_to_the_end_of_the_file() {
    let bytes = tar_with(vec![file("a", "1")]);
    let good = gzip(&bytes);
    let (compressed, crc, len) = (deflate(&bytes), crc32fast::hash(&bytes), bytes.len() as u32);
    let empty = gzip_frame(&LAST_BLOCK, 0, 0);
    let unfinished = gzip_frame(&support::zip::deflate_piece(&bytes), crc, len);
    let wrong_crc = "the bundle does not match its checksum";
    let wrong_size = "the bundle has another size than it declares";
    for (case, archive, word) in [
        ("checksum", gzip_frame(&compressed, crc ^ 1, len), wrong_crc),
        ("length", gzip_frame(&compressed, crc, len + 1), wrong_size),
        ("bytes behind", [&good[..], b"trailing"].concat(), "bytes after the compressed data"),
        ("zeros, then bytes", [&good[..], &[0; 100], b"x"].concat(), "bytes after the compressed data"),
        ("the start of another member", [&good[..], &[0x1f]].concat(), "is cut short: a gzip header"),
        ("a cut trailer", good[..good.len() - 1].to_vec(), "is cut short: the gzip trailer"),
        ("a cut member behind", [&good[..], &gzip_frame(&LAST_BLOCK[..1], 0, 0)[..11]].concat(), CUT),
        ("a wrong checksum behind", [&good[..], &gzip_frame(&LAST_BLOCK, 1, 0)].concat(), wrong_crc),
        ("a wrong length behind", [&empty[..], &good, &gzip_frame(&LAST_BLOCK, 0, 1)].concat(), wrong_size),
        ("a broken member behind", [&good[..], &gzip_frame(&[7], 0, 0)].concat(), "(a block of unknown type)"),
        ("a stream without its last block", unfinished[..unfinished.len() - 8].to_vec(), CUT),
        ("reserved flags", [&[0x1f, 0x8b, 8, 0x20][..], &good[4..]].concat(), "the gzip header"),
        ("another method", [&[0x1f, 0x8b, 7][..], &good[3..]].concat(), "the gzip header"),
    ] {
        assert_refused(case, &archive, &[word]);
    }
    // The decoder reads the trailer as a block, so the message depends on the checksum.
    assert_refused("a stream without its last block, and a trailer", &unfinished, &["the bundle "]);
    // Damage long after the end marker of the tar is detected, too.
    let padded = [&bytes[..], &vec![0; 100_000]].concat();
    let mut damaged = gzip(&padded);
    let at = damaged.len() - 5;
    damaged[at] ^= 1;
    assert_refused("damage behind the end marker", &damaged, &[wrong_crc]);
}

#[test]
fn zstd_frames_are_concatenated_into_one_tar_stream() {
    let content = "0123456789".repeat(3000);
    let bytes = tar_with(vec![file("a/b", &content)]);
    let expected = assert_accepted("one frame", &zstd(&bytes))["version"].clone();
    let (first, second) = bytes.split_at(700);
    for (case, archive) in [
        ("checksum", zstd_with_checksum(&bytes)),
        ("two frames", [zstd(first), zstd(second)].concat()),
        ("many frames", bytes.chunks(100).flat_map(zstd).collect()),
        ("empty frames", [zstd(b""), zstd(first), zstd(b""), zstd(second), zstd(b"")].concat()),
        ("skippable frame first", [zstd_skippable(b"seek table"), zstd(&bytes)].concat()),
        (
            "skippable frames all over",
            [zstd(first), zstd_skippable(&[7; 5000]), zstd(second), zstd_skippable(b"")].concat(),
        ),
        ("a raw block", zstd_raw(0x40, &bytes)),
        ("a window of 128 MiB", zstd_raw((27 - 10) << 3, &bytes)),
    ] {
        assert_eq!(assert_accepted(case, &archive)["version"], expected, "{case}");
    }
    let good = zstd_with_checksum(&bytes);
    let mut wrong = good.clone();
    *wrong.last_mut().expect("not empty") ^= 1;
    // Zeros may follow the end marker of the tar, so only the frame that contains them is invalid.
    let zeros = zstd_with_checksum(&[0; 3000]);
    let (damaged, cut) = ("is damaged: the zstd data", "is cut short: the zstd data");
    for (case, archive, word) in [
        ("checksum", wrong, damaged),
        ("bytes behind", [&good[..], b"trailing"].concat(), damaged),
        ("zeros behind", [&good[..], &[0; 8]].concat(), damaged),
        ("a cut frame behind", [&good[..], &zeros[..zeros.len() - 3]].concat(), cut),
        ("a cut skippable frame behind", [&good[..], &zstd_skippable(b"0123456789")[..12]].concat(), cut),
        ("another archive behind", [&good[..], &good].concat(), "it has data after its end marker"),
        ("a window of 144 MiB", zstd_raw((27 - 10) << 3 | 1, &bytes), "its zstd window is over 128 MiB"),
        ("a window of 256 MiB", zstd_raw((28 - 10) << 3, &bytes), "its zstd window is over 128 MiB"),
        ("the largest window", zstd_raw(0xff, &bytes), "its zstd window is over 128 MiB"),
        ("only a skippable frame", zstd_skippable(b"nothing"), "is zstd of an empty file"),
    ] {
        assert_refused(case, &archive, &[word]);
    }
}

#[test]
fn hard_links_resolve_targets_from_pax_headers_and_gnu_long_links() {
    let target = long_path(300) + "page.html";
    let entries = vec![
        long_name(target.as_bytes()),
        file("short", "x"),
        entry("././@LongLink", b'K', &[target.as_bytes(), b"\0"].concat()),
        link("copy", b'1', "wrong"),
        file("wrong", "y"),
        // Of a PAX target and a GNU target, PAX wins, in either order.
        entry("././@LongLink", b'K', b"wrong\0"),
        pax(&[("linkpath", target.as_bytes())]),
        link("second", b'1', "wrong"),
        pax(&[("linkpath", target.as_bytes())]),
        entry("././@LongLink", b'K', b"wrong\0"),
        link("third", b'1', "wrong"),
        // A GNU target applies to one entry alone.
        link("fourth", b'1', "wrong"),
    ];
    let files: &crate::archive_checks::Files<'_> = &[
        (target.as_bytes(), b"x"),
        (b"copy", b"x"),
        (b"wrong", b"y"),
        (b"second", b"x"),
        (b"third", b"x"),
        (b"fourth", b"y"),
        PAGE,
    ];
    assert_eq!(unpack_archive("GNU long link", &tar_with(entries), &[]), expected_tree(files));
    assert_eq!(assert_accepted("the same as files", &as_tar(files))["kind"], "tar");
}
