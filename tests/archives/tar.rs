//! Tar in all its dialects, and the streams around it.

use crate::verdict::{PAGE, accepted, as_tar, refused, tree, unpacked};
use support::tar::{
    Entry, blocks, entry, file, gzip, gzip_frame, link, long_name, pax, pax_bytes, pax_record, tar, zstd, zstd_checked,
    zstd_raw, zstd_skippable,
};
use support::zip::{LAST_BLOCK, deflate};

const NO_PAX: &str = "is damaged: a PAX header that does not parse";
const CUT: &str = "cannot be read: the compressed data is cut short";

fn page() -> Entry {
    file("index.html", "<!doctype html><title>Home</title>")
}

/// These entries and a page.
fn with(mut entries: Vec<Entry>) -> Vec<u8> {
    entries.push(page());
    tar(&entries)
}

/// Accepted, and holds the page and one other file.
#[track_caller]
fn holds(what: &str, archive: &[u8], name: &[u8], content: &[u8]) {
    accepted(what, archive);
    assert_eq!(unpacked(what, archive, &[]), tree(&[PAGE, (name, content)]), "{what}");
}

fn long(length: usize) -> String {
    "component/".repeat(length / 10) + &"x".repeat(length % 10)
}

/// A size in base 256.
fn base256(size: u64) -> [u8; 12] {
    let mut field = [0; 12];
    field[0] = 0x80;
    field[4..].copy_from_slice(&size.to_be_bytes());
    field
}

#[test]
fn every_dialect_of_names_and_sizes_is_read() {
    let content = "x".repeat(700);
    let plain = |name: &str| file(name, &content);
    let far = long(180) + "end";
    let farther = long(1000) + "end";
    let table: Vec<(&str, Vec<Entry>, &str)> = vec![
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
        ("checksum of signed bytes", vec![signed(plain("a/b").with(265, b"\xe4\xf6\xfc"))], "a/b"),
    ];
    for (what, entries, name) in table {
        let full = format!("{}/{}", "p".repeat(155), "n".repeat(100));
        let name = if name.is_empty() { &full } else { name };
        for (kind, archive) in [
            ("tar", with(entries.clone())),
            ("tar.gz", gzip(&with(entries.clone()))),
            ("tar.zst", zstd(&with(entries))),
        ] {
            holds(&format!("{kind}: {what}"), &archive, name.as_bytes(), content.as_bytes());
        }
    }
}

/// With the checksum that some old writers made.
fn signed(mut entry: Entry) -> Entry {
    entry.header[148..156].fill(b' ');
    let sum: i32 = entry.header.iter().map(|&b| i32::from(b.cast_signed())).sum();
    entry.header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    entry
}

#[test]
fn a_tar_may_end_as_it_likes_but_not_go_on_behind_its_end() {
    let entries = [page(), file("a", "1")];
    let bare = blocks(&entries);
    for (what, end) in [
        ("no end blocks", 0),
        ("one end block", 512),
        ("two", 1024),
        ("a full record", 10_240 - bare.len()),
        ("many", 100_352),
    ] {
        holds(what, &[&bare[..], &vec![0; end]].concat(), b"a", b"1");
        holds(what, &gzip(&[&bare[..], &vec![0; end]].concat()), b"a", b"1");
    }
    let other = tar(&[file("b", "2")]);
    for (what, tail) in [
        ("another archive", other.clone()),
        ("an entry behind one zero block", [&[0; 512][..], &other].concat()),
        ("text", b"text".to_vec()),
        ("one byte far behind", [&[0; 5000][..], b"x"].concat()),
    ] {
        let archive = [&tar(&entries)[..], &tail].concat();
        for archive in [archive.clone(), gzip(&archive), zstd(&archive)] {
            refused(what, &archive, &["end marker"]);
        }
    }
}

#[test]
fn headers_that_cannot_be_true_are_refused() {
    let plain = || file("victim", "content");
    let mut broken = plain();
    broken.header[0] ^= 1;
    let negative = "entry \"victim\" is damaged: a negative or impossible size";
    let no_number = "entry \"victim\" is damaged: a size that is no number";
    let limit = "entry \"victim\" is over 2.1 GB (limits.entry)";
    let too_long = "a name or PAX header over 1 MiB";
    let table: Vec<(&str, Vec<Entry>, &str)> = vec![
        ("negative size", vec![plain().with(124, &[0xff; 12])], negative),
        ("small negative size", vec![plain().with(124, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xf9")], negative),
        ("negative octal size", vec![plain().with(124, b"-0000000007\0")], no_number),
        ("size that is no number", vec![plain().with(124, b"0000000009x\0")], no_number),
        ("size of 2^63", vec![plain().with(124, &base256(1 << 63))], limit),
        ("size of 2^64 - 1", vec![plain().with(124, &base256(u64::MAX))], limit),
        ("size beyond 64 bits", vec![plain().with(124, b"\x80\x01\0\0\0\0\0\0\0\0\0\0")], "a size beyond all bounds"),
        ("size of 8 GiB - 1", vec![plain().with(124, b"77777777777\0")], limit),
        ("PAX size of 2^64 - 1", vec![pax(&[("size", b"18446744073709551615")]), plain()], limit),
        ("PAX size beyond 64 bits", vec![pax(&[("size", b"18446744073709551616")]), plain()], NO_PAX),
        ("negative PAX size", vec![pax(&[("size", b"-7")]), plain()], NO_PAX),
        ("PAX size that is no number", vec![pax(&[("size", b"7x")]), plain()], NO_PAX),
        ("checksum", vec![broken], "the archive is damaged: a tar header's checksum"),
        ("folder with content", vec![entry("victim/", b'5', b"content")], "entry \"victim/\" is a folder with content"),
        (
            "hard link with content",
            vec![entry("victim", b'1', b"content").with(157, b"index.html")],
            "entry \"victim\" is damaged: a hard link with content",
        ),
        ("PAX header of nothing", vec![pax(&[("path", b"victim")])], "a header that speaks of no entry"),
        ("long name of nothing", vec![long_name(b"victim")], "a header that speaks of no entry"),
        ("long name over 1 MiB", vec![long_name(&vec![b'x'; 2 << 20]), plain()], too_long),
        ("long name of 1 TiB", vec![long_name(b"x").with(124, &base256(1 << 40)), plain()], too_long),
        ("PAX header of 1 TiB", vec![pax(&[("path", b"x")]).with(124, &base256(1 << 40)), plain()], too_long),
    ];
    for (what, entries, word) in table {
        // The page comes first here, so that a header that swallows what follows cannot hide behind its absence.
        let mut all = vec![page()];
        all.extend(entries);
        refused(what, &tar(&all), &[word]);
    }
}

#[test]
fn a_pax_header_that_does_not_parse_is_refused() {
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
        let what = String::from_utf8_lossy(records).into_owned();
        refused(&what, &with(vec![pax_bytes(records), file("victim", "x")]), &[NO_PAX]);
        let global = entry("pax_global_header", b'g', records);
        refused(&format!("global {what}"), &with(vec![global, file("victim", "x")]), &[NO_PAX]);
    }
    accepted("a PAX header of nothing", &with(vec![pax_bytes(b""), file("fine", "x")]));
    refused("a PAX path with a NUL", &with(vec![pax(&[("path", b"a\0b")]), file("victim", "x")]), &["NUL"]);
    refused("a PAX path of one slash", &with(vec![pax(&[("path", b"/")]), file("victim", "x")]), &["absolute"]);
}

#[test]
fn types_that_are_not_known_to_be_harmless_are_refused() {
    for (what, kind) in [
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
        refused(what, &with(vec![entry("victim", kind, b"content")]), words);
        refused(what, &gzip(&with(vec![entry("victim", kind, b"")])), words);
    }
    // The three PAX forms of sparse files: expanded rightly or refused; here refused.
    let old = entry("victim", b'S', b"content")
        .with(257, b"ustar  \0")
        .with(386, b"00000000000\x0000000000007\x00")
        .with(483, b"00000010000\0");
    refused("old GNU sparse with its map", &with(vec![old]), &["entry \"victim\"", "sparse"]);
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
        refused(
            "PAX sparse",
            &with(vec![pax(&records), file("GNUSparseFile.0/victim", "content")]),
            &["victim", "sparse"],
        );
    }
    refused(
        "hidden name of a sparse file",
        &with(vec![pax(&[("GNU.sparse.name", b"../evil")]), file("victim", "x")]),
        &["entry \"victim\" is a sparse file"],
    );
    for (key, value) in [("path", &b"everything"[..]), ("linkpath", b"a"), ("size", b"1"), ("GNU.sparse.major", b"1")] {
        let global = entry("pax_global_header", b'g', &pax_record(key, value));
        let words = &["a global header that names files"];
        refused(&format!("global {key}"), &with(vec![global, file("victim", "x")]), words);
    }
}

/// The bytes as gzip members of `size` bytes of content each.
fn members(bytes: &[u8], size: usize) -> Vec<u8> {
    bytes.chunks(size).flat_map(gzip).collect()
}

#[test]
fn gzip_of_any_number_of_members_is_one_stream() {
    let content = "0123456789".repeat(300);
    let bytes = with(vec![file("a/b", &content), file("later", "x")]);
    let expected = accepted("one member", &gzip(&bytes))["version"].clone();
    for size in [10, 1, 511, 512, 513, 1000, 4096] {
        assert_eq!(accepted(&format!("members of {size}"), &members(&bytes, size))["version"], expected);
    }
    for at in [1, 9, 511, 512, 700, bytes.len() - 1025, bytes.len() - 1] {
        let parts = [gzip(&bytes[..at]), gzip(b""), gzip(&bytes[at..]), gzip(b"")].concat();
        assert_eq!(accepted(&format!("split at {at}"), &parts)["version"], expected);
    }
    assert_eq!(accepted("padding of zeros", &[gzip(&bytes), vec![0; 3000]].concat())["version"], expected);
    let (coded, crc, len) = (deflate(&bytes), crc32fast::hash(&bytes), bytes.len() as u32);
    for (what, flags, fields) in [
        ("name", 8, b"bundle.tar\0".to_vec()),
        ("comment", 16, b"made by hand\0".to_vec()),
        ("extra", 4, [&[3, 0][..], b"abc"].concat()),
        ("long name", 8, [vec![b'n'; 60_000], vec![0]].concat()),
        ("text", 1, Vec::new()),
    ] {
        let framed =
            [&[0x1f, 0x8b, 8, flags, 1, 2, 3, 4, 2, 3][..], &fields, &coded, &crc.to_le_bytes(), &len.to_le_bytes()]
                .concat();
        assert_eq!(accepted(what, &framed)["version"], expected);
    }
    let head = [0x1f, 0x8b, 8, 2, 0, 0, 0, 0, 0, 3];
    let check = (crc32fast::hash(&head) as u16).to_le_bytes();
    let tail = [&coded[..], &crc.to_le_bytes(), &len.to_le_bytes()].concat();
    assert_eq!(accepted("header checksum", &[&head[..], &check, &tail].concat())["version"], expected);
    refused("wrong header checksum", &[&head[..], &[check[0], check[1] ^ 1], &tail].concat(), &["the gzip header"]);
}

#[test]
fn gzip_is_read_to_its_end_and_every_member_checked() {
    let bytes = with(vec![file("a", "1")]);
    let good = gzip(&bytes);
    let (coded, crc, len) = (deflate(&bytes), crc32fast::hash(&bytes), bytes.len() as u32);
    let empty = gzip_frame(&LAST_BLOCK, 0, 0);
    let unfinished = gzip_frame(&support::zip::deflate_piece(&bytes), crc, len);
    let wrong_crc = "the archive does not match its checksum";
    let wrong_size = "the archive has another size than it declares";
    for (what, archive, word) in [
        ("checksum", gzip_frame(&coded, crc ^ 1, len), wrong_crc),
        ("length", gzip_frame(&coded, crc, len + 1), wrong_size),
        ("bytes behind", [&good[..], b"trailing"].concat(), "bytes behind the compressed data"),
        ("zeros, then bytes", [&good[..], &[0; 100], b"x"].concat(), "bytes behind the compressed data"),
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
        refused(what, &archive, &[word]);
    }
    // What its trailer is when it is read as a block depends on the checksum.
    refused("a stream without its last block, and a trailer", &unfinished, &["the archive "]);
    // Damage far behind the end marker of the tar counts too.
    let padded = [&bytes[..], &vec![0; 100_000]].concat();
    let mut damaged = gzip(&padded);
    let at = damaged.len() - 5;
    damaged[at] ^= 1;
    refused("damage behind the end marker", &damaged, &[wrong_crc]);
}

#[test]
fn zstd_of_any_number_of_frames_is_one_stream() {
    let content = "0123456789".repeat(3000);
    let bytes = with(vec![file("a/b", &content)]);
    let expected = accepted("one frame", &zstd(&bytes))["version"].clone();
    let (first, second) = bytes.split_at(700);
    for (what, archive) in [
        ("checksum", zstd_checked(&bytes)),
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
        assert_eq!(accepted(what, &archive)["version"], expected, "{what}");
    }
    let good = zstd_checked(&bytes);
    let mut wrong = good.clone();
    *wrong.last_mut().expect("not empty") ^= 1;
    // Zeros may stand behind the end marker of the tar, so that nothing but their frame is wrong.
    let zeros = zstd_checked(&[0; 3000]);
    let (damaged, cut) = ("is damaged: the zstd data", "is cut short: the zstd data");
    for (what, archive, word) in [
        ("checksum", wrong, damaged),
        ("bytes behind", [&good[..], b"trailing"].concat(), damaged),
        ("zeros behind", [&good[..], &[0; 8]].concat(), damaged),
        ("a cut frame behind", [&good[..], &zeros[..zeros.len() - 3]].concat(), cut),
        ("a cut skippable frame behind", [&good[..], &zstd_skippable(b"0123456789")[..12]].concat(), cut),
        ("another archive behind", [&good[..], &good].concat(), "it goes on behind its end marker"),
        ("a window of 144 MiB", zstd_raw((27 - 10) << 3 | 1, &bytes), "its zstd window is over 128 MiB"),
        ("a window of 256 MiB", zstd_raw((28 - 10) << 3, &bytes), "its zstd window is over 128 MiB"),
        ("the largest window", zstd_raw(0xff, &bytes), "its zstd window is over 128 MiB"),
        ("only a skippable frame", zstd_skippable(b"nothing"), "is zstd of an empty file"),
    ] {
        refused(what, &archive, &[word]);
    }
}

#[test]
fn a_hard_link_after_a_pax_header_or_long_link_finds_its_target() {
    let target = long(300) + "page.html";
    let entries = vec![
        long_name(target.as_bytes()),
        file("short", "x"),
        entry("././@LongLink", b'K', &[target.as_bytes(), b"\0"].concat()),
        link("copy", b'1', "wrong"),
    ];
    let files: &crate::verdict::Files<'_> = &[(target.as_bytes(), b"x"), (b"copy", b"x"), PAGE];
    assert_eq!(unpacked("GNU long link", &with(entries), &[]), tree(files));
    assert_eq!(accepted("the same as files", &as_tar(files))["kind"], "tar");
}
