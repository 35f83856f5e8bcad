//! Known vulnerabilities of other readers of archives, by their CVE or RUSTSEC number. Every command that reads a
//! bundle must accept or refuse it alike, and leave no files after a refusal.

use std::process::Command;

use crate::archive_checks::{
    assert_accepted, assert_one_line, assert_refused, expected_tree, list_folder, unpack_archive, write_bundle,
};
use support::tar::{self, TarEntry, entry, file, gzip, link, long_name, pax, pax_bytes, pax_record};
use support::zip::{RawArchive, RawMember, archive, deflate, deflate_piece, deflated, extra, stored, zip};
use support::{docwharf, run_to_end};

const PAGE: &str = "<!doctype html><title>Home</title>";
const TEXT: &str = "some text that is long enough to be worth compressing, long enough, long enough";

/// Parts of the messages about faults of a name.
const LEAVES: &str = "leaves the bundle";
const ABSOLUTE: &str = "has an absolute path";
const DRIVE: &str = "begins with a drive letter";

/// Creates a tar of the page and these entries.
fn tar_with(entries: Vec<TarEntry>) -> Vec<u8> {
    let mut all = vec![file("index.html", PAGE)];
    all.extend(entries);
    tar::tar(&all)
}

fn page() -> RawMember {
    RawMember::from_member(&stored("index.html", PAGE))
}

fn zip_with(raw: RawMember) -> Vec<u8> {
    archive(&[]).with(page()).with(raw).bytes()
}

fn victim() -> RawMember {
    RawMember::from_member(&deflated("victim.html", TEXT))
}

/// Asserts that `verify`, `inspect`, `unpack`, `serve`, `import` and `sync` refuse the archive with exit code 5 and one
/// line, and store nothing.
#[track_caller]
fn assert_all_commands_refuse(case: &str, bytes: &[u8], expected_parts: &[&str]) {
    assert_refused(case, bytes, expected_parts);
    let (dir, bundle) = write_bundle(bytes);
    let config = dir.path().join("c.toml");
    let text =
        "[store]\npath = \"store\"\n[server]\nlisten = \"127.0.0.1:0\"\n[staticExport]\nbundleUrl = \"bundle\"\n";
    std::fs::write(&config, text).unwrap();
    let mut serve = docwharf();
    serve.arg("serve").arg(&bundle).args(["--listen", "127.0.0.1:0"]);
    let mut import = docwharf();
    import.arg("import").arg(&bundle).arg("--config").arg(&config);
    let mut sync = docwharf();
    sync.arg("sync").arg("--config").arg(&config);
    let mut commands: [(&str, Command); 3] = [("serve", serve), ("import", import), ("sync", sync)];
    for (verb, command) in &mut commands {
        let output = run_to_end(command);
        assert_eq!((output.code, output.stdout.as_str()), (Some(5), ""), "{case}: {verb}: {output:?}");
        assert_one_line(&format!("{case}: {verb}"), &output.stderr);
        for part in expected_parts {
            assert!(output.stderr.contains(part), "{case}: {verb}: {part:?} is missing: {}", output.stderr);
        }
    }
    for empty in ["versions", "staging", "receipts", "downloads"] {
        assert!(list_folder(&dir.path().join("store").join(empty)).is_empty(), "{case}: {empty}");
    }
}

/// Asserts that the archive is accepted and that unpacking it results in these files.
#[track_caller]
fn assert_unpacks_to(case: &str, bytes: &[u8], files: &[(&str, &str)]) {
    assert_accepted(case, bytes);
    let files: Vec<(&[u8], &[u8])> = files.iter().map(|(name, text)| (name.as_bytes(), text.as_bytes())).collect();
    assert_eq!(unpack_archive(case, bytes, &[]), expected_tree(&files), "{case}");
}

/// Creates a symbolic link in a ZIP: its target is the content, its file type is in the attributes.
fn zip_link(name: &str, target: &str) -> RawMember {
    RawMember { attributes: 0o120_777 << 16, ..RawMember::from_member(&stored(name, target)) }
}

#[test]
fn zip_archives_with_symbolic_links_are_refused() {
    for (case, links) in [
        (
            "CVE-2025-29787 (zip, Rust): a file through an absolute link",
            vec![zip_link("out", "/tmp"), RawMember::from_member(&stored("out/x.html", "x"))],
        ),
        (
            "CVE-2025-11001 (7-Zip): a link up and a file through it",
            vec![zip_link("a/up", "../../.."), RawMember::from_member(&stored("a/up/x", "x"))],
        ),
        ("CVE-2025-55188 (7-Zip): a link of two steps", vec![zip_link("a", "b/.."), zip_link("a/c", "../../x")]),
        (
            "CVE-2018-1002200 (plexus, Zip Slip's sibling): a link that stays inside",
            vec![zip_link("in.html", "index.html")],
        ),
    ] {
        let mut all = archive(&[]).with(page());
        all.members.extend(links);
        assert_all_commands_refuse(case, &all.bytes(), &["symbolic link"]);
    }
}

#[test]
fn zip_names_that_leave_the_bundle_are_refused() {
    for (case, name, expected) in [
        ("CVE-2018-1002201 (Zip Slip)", "../../evil.html", LEAVES),
        ("CVE-2018-1263 (Zip Slip behind a folder)", "ok/../../evil.html", LEAVES),
        ("a slash of Windows", "..\\..\\evil.html", LEAVES),
        ("both slashes", "ok\\../..\\evil.html", LEAVES),
        ("CVE-2001-1268 (unzip): an absolute name", "/etc/cron.d/evil", ABSOLUTE),
        ("CVE-2001-1269 (unzip): an absolute name of many slashes", "////etc/evil", ABSOLUTE),
        ("CVE-2021-37713 (node-tar): a drive without a root", "C:../evil.html", DRIVE),
        ("a name of a server", "\\\\server\\share\\evil", ABSOLUTE),
        ("a name of a device", "\\\\?\\C:\\evil", ABSOLUTE),
    ] {
        assert_all_commands_refuse(
            case,
            &zip_with(RawMember::from_member(&stored(name, "x"))),
            &["entry \"", expected],
        );
    }
    assert_all_commands_refuse(
        "a name that C ends early",
        &zip_with(RawMember::coded(b"ok.html\0.exe", 0, b"x".to_vec(), 0x8cdc_1683, 1)),
        &["entry \"", "has a NUL byte in its name"],
    );
    // With these names Python's zipfile.Path looped (CVE-2024-8088) and Go's archive/zip panicked (CVE-2021-41772). By
    // docwharf's rules only `./` is the root folder.
    for name in ["/", "//", "./"] {
        let archive_bytes = zip(&[stored("index.html", PAGE), stored(name, "")]);
        if name == "./" {
            assert_unpacks_to("a root folder", &archive_bytes, &[("index.html", PAGE)]);
        } else {
            assert_all_commands_refuse(name, &archive_bytes, &["entry \"/", ABSOLUTE]);
        }
    }
}

#[test]
fn zip_archives_that_two_readers_read_differently_are_refused() {
    // uv CVE-2025-54368, CVE-2025-13327: a member that only a streaming reader finds, or only a reader of the
    // directory.
    let hidden = RawMember::from_member(&stored("hidden.html", "only a streaming reader sees this"));
    let mut bytes = archive(&[]).with(page()).with(hidden.clone()).bytes();
    let first = bytes.windows(4).position(|four| four == b"PK\x01\x02").unwrap();
    let second = first + 4 + bytes[first + 4..].windows(4).position(|four| four == b"PK\x01\x02").unwrap();
    let end_at = bytes.len() - 22;
    bytes.drain(second..end_at);
    let (size, end_at) = ((second - first) as u32, second);
    bytes[end_at + 8..end_at + 12].copy_from_slice(&[1, 0, 1, 0]);
    bytes[end_at + 12..end_at + 16].copy_from_slice(&size.to_le_bytes());
    assert_all_commands_refuse(
        "CVE-2025-54368 (uv): a member that the directory does not list",
        &bytes,
        &["does not list"],
    );
    // The same in front of the first member that the directory lists.
    let mut bytes = archive(&[]).with(hidden).with(page()).bytes();
    let first = bytes.windows(4).position(|four| four == b"PK\x01\x02").unwrap();
    let second = first + 4 + bytes[first + 4..].windows(4).position(|four| four == b"PK\x01\x02").unwrap();
    bytes.drain(first..second);
    let end_at = bytes.len() - 22;
    let size = (end_at - first) as u32;
    bytes[end_at + 8..end_at + 12].copy_from_slice(&[1, 0, 1, 0]);
    bytes[end_at + 12..end_at + 16].copy_from_slice(&size.to_le_bytes());
    assert_all_commands_refuse(
        "CVE-2025-54368 (uv): a first member that the directory does not list",
        &bytes,
        &["an entry that its directory does not list"],
    );
    let twice =
        archive(&[]).with(page()).with(victim()).with(RawMember::from_member(&deflated("victim.html", "another text")));
    assert_all_commands_refuse("CVE-2025-54368 (uv): two members of one name", &twice.bytes(), &["occurs twice"]);
    let mut renamed = victim();
    renamed.local.name = b"script.html".to_vec();
    assert_all_commands_refuse(
        "CVE-2025-13327 (uv): a local name of its own",
        &zip_with(renamed),
        &["differs from the central directory in its name"],
    );
    // Python CVE-2025-8291: the zip64 locator has a wrong offset, which the reader ignores.
    let good = RawArchive { zip64: true, ..archive(&[]).with(page()).with(victim()) }.bytes();
    let locator = good.len() - 22 - 20;
    for (case, offset, expected) in [
        ("before", 0u64, "its zip64 end record"),
        ("behind", good.len() as u64, "its zip64 locator"),
        ("beyond all bounds", u64::MAX, "its zip64 locator"),
    ] {
        let mut bytes = good.clone();
        bytes[locator + 8..locator + 16].copy_from_slice(&offset.to_le_bytes());
        assert_all_commands_refuse(
            &format!("CVE-2025-8291 (Python): a zip64 locator that points {case}"),
            &bytes,
            &[expected],
        );
    }
    // Go CVE-2024-24789: some readers ignore an end record with a truncated comment, others accept it.
    let mut cut = archive(&[]).with(page()).with(victim()).bytes();
    let at = cut.len() - 2;
    cut[at] = 9;
    assert_all_commands_refuse(
        "CVE-2024-24789 (Go): a comment that is not there",
        &cut,
        &["no ZIP end record at its end"],
    );
    // The data descriptor has another size.
    let mut wrong_descriptor = victim().with_data_descriptor(true, false);
    wrong_descriptor.trailing[8] ^= 1;
    let expected = &["entry \"victim.html\"", "in its data descriptor"];
    assert_all_commands_refuse("a descriptor of another size", &zip_with(wrong_descriptor), expected);
    let front = [&b"MZ\x90\0"[..], &zip_with(victim())].concat();
    assert_all_commands_refuse("a program before the archive", &front, &["is of an unknown kind"]);
    let stacked = [zip_with(victim()), zip(&[stored("index.html", "other")])].concat();
    let elsewhere = "its directory is not where the end record says";
    assert_all_commands_refuse("two archives, one behind the other", &stacked, &[elsewhere]);
}

#[test]
fn zip_bombs_are_refused() {
    // CVE-2019-13232 (unzip), CVE-2024-0450 (Python): members that share one kernel, each quoting the local headers
    // after it.
    let kernel = deflate_piece(&vec![b'a'; 1 << 20]);
    let kernel = [kernel, vec![3, 0]].concat();
    let crc = crc32fast::hash(&vec![b'a'; 1 << 20]);
    let shared = RawMember::coded(b"k0.html", 8, kernel, crc, 1 << 20);
    let mut overlapping = archive(&[]).with(page()).with(shared.clone());
    for n in 1..50 {
        let mut again = shared.clone();
        again.central.name = format!("k{n}.html").into_bytes();
        again.local.name.clone_from(&again.central.name);
        (again.offset, again.data) = (Some(30 + 10 + PAGE.len() as u32), Vec::new());
        overlapping.members.push(again);
    }
    assert_all_commands_refuse(
        "CVE-2019-13232 (unzip), CVE-2024-0450 (Python): fifty members of one kernel",
        &overlapping.bytes(),
        &["entry \"k0.html\" overlaps"],
    );
    // CVE-2019-9674 (Python): 1000 to 1.
    let zeros = vec![0u8; 80 << 20];
    let bomb = RawMember::coded(b"zeros.html", 8, deflate(&zeros), crc32fast::hash(&zeros), zeros.len() as u32);
    assert_all_commands_refuse("CVE-2019-9674 (Python): 80 MiB of zeros", &zip_with(bomb), &["bomb"]);
    // CVE-2021-33196 (Go), CVE-2021-36090 (commons-compress): memory is allocated for a declared number.
    let declared = RawArchive { zip64: true, zip64_total: Some(u64::MAX / 46), ..archive(&[]).with(page()) };
    assert_all_commands_refuse("CVE-2021-33196 (Go): 4e17 members claimed", &declared.bytes(), &["(limits.entries)"]);
    let huge = victim().change_both_headers(|header| header.size = u32::MAX - 1);
    let expected = &["entry \"victim.html\"", "(limits.entry)"];
    assert_all_commands_refuse("CVE-2021-36090 (commons-compress): 4 GiB claimed", &zip_with(huge), expected);
}

#[test]
fn malformed_zip_fields_of_known_vulnerabilities_are_refused_or_ignored() {
    // CVE-2014-8139 to 8141 (unzip): extra fields that declare more bytes than they have.
    for (case, field) in [
        ("CVE-2014-8139: a field longer than its room", vec![0x55, 0x54, 0xff, 0xff, 1]),
        ("CVE-2014-8141: a zip64 field cut short", vec![1, 0, 8, 0, 1, 2, 3]),
    ] {
        let raw = victim().change_both_headers(|header| header.extra.clone_from(&field));
        assert_all_commands_refuse(case, &zip_with(raw), &["entry \"victim.html\"", "its extra fields"]);
    }
    // CVE-2014-9913, CVE-2016-9844 (zipinfo): the number of a method is printed into eleven bytes.
    assert_all_commands_refuse(
        "CVE-2016-9844 (zipinfo): method 65535",
        &zip_with(victim().change_both_headers(|h| h.method = 0xffff)),
        &["method 65535"],
    );
    // CVE-2018-1000035 (unzip): an encrypted entry causes a request for a password.
    assert_all_commands_refuse(
        "CVE-2018-1000035 (unzip): encrypted",
        &zip_with(victim().change_both_headers(|h| h.flags |= 1)),
        &["encrypted"],
    );
    // CVE-2022-0529, CVE-2022-0530, CVE-2021-4217 (unzip): a Unicode path with invalid UTF-8. docwharf ignores the
    // field.
    let broken = [&[1][..], &crc32fast::hash(b"victim.html").to_le_bytes(), &[0xff, 0xfe, 0, 0xc0]].concat();
    let raw = victim().change_both_headers(|header| header.extra = extra(0x7075, &broken));
    let archive_bytes = zip_with(raw);
    assert_unpacks_to(
        "CVE-2022-0529 (unzip): a Unicode path of broken UTF-8",
        &archive_bytes,
        &[("index.html", PAGE), ("victim.html", TEXT)],
    );
    // CVE-2018-11771 (commons-compress): a stored member whose descriptor never comes.
    let mut endless = RawMember::from_member(&stored("victim.html", TEXT)).with_data_descriptor(true, false);
    endless.trailing.clear();
    assert_all_commands_refuse(
        "CVE-2018-11771 (commons-compress): a descriptor that never comes",
        &zip_with(endless),
        &["entry \"victim.html\"", "in its data descriptor"],
    );
}

#[test]
fn tar_symbolic_links_and_hard_links_outside_the_bundle_are_refused() {
    let (symbolic, hard) = ("is a symbolic link", "is a hard link to \"/etc/passwd\"");
    let cases: Vec<(&str, Vec<TarEntry>, &str)> = vec![
        (
            "CVE-2021-38511 (tar, Rust): a folder through a link",
            vec![link("a", b'2', "/tmp"), entry("a/b/", b'5', b"")],
            symbolic,
        ),
        ("CVE-2018-20990 (tar, Rust): a hard link to an absolute name", vec![link("a", b'1', "/etc/passwd")], hard),
        (
            "CVE-2026-33055 (tar, Rust): a link over a folder whose mode is set",
            vec![entry("d/", b'5', b""), link("d", b'2', "/tmp")],
            symbolic,
        ),
        (
            "CVE-2021-32803 (node-tar): a folder, then a link of its name",
            vec![entry("a/", b'5', b""), link("a", b'2', "/tmp"), file("a/x", "x")],
            symbolic,
        ),
        (
            "CVE-2021-37701 (node-tar): the same with a backslash",
            vec![link("a\\b", b'2', "/tmp"), file("a\\b/x", "x")],
            symbolic,
        ),
        (
            "CVE-2025-45582 (GNU tar): a link that a second archive would follow",
            vec![link("x", b'2', "../../../../../tmp")],
            symbolic,
        ),
        (
            "CVE-2025-4517 (Python): a chain of long links",
            vec![long_name("d/".repeat(120).as_bytes()), link("short", b'2', "d"), link("esc", b'2', "short/../../..")],
            symbolic,
        ),
        (
            "CVE-2025-4138 (Python): a link that is fine until its folder moves",
            vec![link("a/b", b'2', "../c"), link("c", b'2', "../..")],
            symbolic,
        ),
        (
            "CVE-2016-5418 (libarchive): a hard link that brings content",
            vec![link("h", b'1', "/etc/passwd").with(124, b"00000000001\0")],
            hard,
        ),
    ];
    for (case, entries, expected) in cases {
        assert_all_commands_refuse(case, &tar_with(entries), &["entry \"", expected]);
    }
}

#[test]
fn tar_names_that_leave_the_bundle_are_refused() {
    for (case, name, expected) in [
        ("CVE-2007-4559 (Python)", "../../evil", LEAVES),
        ("CVE-2016-6321 (GNU tar): what is stripped leaves a way", "etc/../../etc/evil", LEAVES),
        ("CVE-2021-32804 (node-tar): slashes that are stripped once", "////etc/evil", ABSOLUTE),
        ("CVE-2021-37713 (node-tar): a drive", "C:../evil", DRIVE),
        ("CVE-2015-2304 (bsdcpio): absolute", "/etc/evil", ABSOLUTE),
    ] {
        let entry_text = format!("entry \"{name}\"");
        let expected = &[entry_text.as_str(), expected];
        assert_all_commands_refuse(case, &tar_with(vec![file(name, "x")]), expected);
        assert_all_commands_refuse(
            case,
            &gzip(&tar_with(vec![pax(&[("path", name.as_bytes())]), file("ok", "x")])),
            expected,
        );
    }
    // CVE-2024-28863 (node-tar): folders in folders without an end.
    let deep = "d/".repeat(2100) + "x.html";
    assert_all_commands_refuse(
        "CVE-2024-28863 (node-tar): 2,100 folders deep",
        &tar_with(vec![pax(&[("path", deep.as_bytes())]), file("x", "x")]),
        &["entry \"d/d/", "has a path over 4096 bytes"],
    );
    // CVE-2021-37712 (node-tar): names that are equal after Unicode normalisation are two files, as on Linux.
    let composed = tar_with(vec![
        pax(&[("path", "é.html".as_bytes())]),
        file("a", "1"),
        pax(&[("path", "e\u{301}.html".as_bytes())]),
        file("b", "2"),
    ]);
    assert_unpacks_to(
        "CVE-2021-37712 (node-tar)",
        &composed,
        &[("index.html", PAGE), ("é.html", "1"), ("e\u{301}.html", "2")],
    );
}

/// Returns the blocks of an entry that a reader with the wrong size would find in the middle of another entry.
fn smuggled_entry() -> Vec<u8> {
    tar::blocks(&[file("smuggled.html", "seen only by a reader that goes by the wrong size")])
}

#[test]
fn a_pax_size_overrides_the_ustar_size_and_invalid_tar_sizes_are_refused() {
    // CVE-2025-62518 (tokio-tar, "TARmageddon"), CVE-2026-33056 (tar): the size in the PAX header overrides the size in
    // the ustar header.
    let inner = smuggled_entry();
    let size = inner.len().to_string();
    let outer = TarEntry { content: inner.clone(), ..entry("download.tar", b'0', b"") };
    let archive = tar_with(vec![pax(&[("size", size.as_bytes())]), outer.sized(0)]);
    let inner_text = String::from_utf8(inner.clone()).unwrap();
    assert_unpacks_to(
        "CVE-2025-62518 (tokio-tar): PAX has the size, ustar has none",
        &archive,
        &[("index.html", PAGE), ("download.tar", &inner_text)],
    );
    // Here the ustar header has the larger size. By the PAX size, the bytes after the header are a separate entry.
    let hidden = TarEntry { content: inner, ..entry("download.tar", b'0', b"") };
    let archive = tar_with(vec![pax(&[("size", b"0")]), hidden]);
    let files = [
        ("index.html", PAGE),
        ("download.tar", ""),
        ("smuggled.html", "seen only by a reader that goes by the wrong size"),
    ];
    assert_unpacks_to("CVE-2026-33056 (tar): PAX says that there is nothing", &archive, &files);
    let negative = "a negative or impossible size";
    for (case, size, expected) in [
        ("CVE-2025-8194 (Python): a negative size", [0xff; 12], negative),
        ("CVE-2025-8194 (Python): the most negative size", [0x80 | 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], negative),
        ("base-256 beyond 64 bits", [0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "a size over 64 bits"),
    ] {
        assert_all_commands_refuse(
            case,
            &tar_with(vec![file("a", "").with(124, &size)]),
            &["entry \"a\" is damaged", expected],
        );
    }
    assert_all_commands_refuse(
        "CVE-2025-8194 (Python): a negative size in PAX",
        &tar_with(vec![pax(&[("size", b"-512")]), file("a", "x")]),
        &["a PAX header that does not parse"],
    );
    assert_all_commands_refuse(
        "CVE-2022-48303 (GNU tar): a field of spaces with a stray byte",
        &tar_with(vec![file("a", "").with(124, b"           \x01")]),
        &["entry \"a\" is damaged: a size that is not a number"],
    );
    assert_all_commands_refuse(
        "CVE-2021-35517 (commons-compress): 8 EiB claimed",
        &tar_with(vec![file("a", "x").with(124, &[0x80, 0, 0, 0, 0x7f, 255, 255, 255, 255, 255, 255, 255])]),
        &["entry \"a\" is over 2.1 GB (limits.entry)"],
    );
}

#[test]
fn malformed_tar_headers_of_known_vulnerabilities_are_refused_or_ignored() {
    for (case, records) in [
        ("CVE-2019-20907 (Python): a record of length 0", b"0 path=x\n".to_vec()),
        ("a record that ends behind its header", b"99 path=x\n".to_vec()),
        ("a record without a line's end", b"8 path=x".to_vec()),
        ("CVE-2024-6232 (Python): digits without an end", vec![b'9'; 60_000]),
        ("CVE-2023-42503 (commons-compress): a length of 20 digits", b"99999999999999999999 path=x\n".to_vec()),
        ("RUSTSEC-2026-0112 (astral-tokio-tar): a record that is not there", b"12 path=\n".to_vec()),
    ] {
        let expected = &["a PAX header that does not parse"];
        assert_all_commands_refuse(case, &tar_with(vec![pax_bytes(&records), file("a", "x")]), expected);
    }
    // CVE-2023-39804 (GNU tar): an attribute without a name. docwharf ignores attributes.
    let nameless = tar_with(vec![pax_bytes(&pax_record("SCHILY.xattr.", b"")), file("a.html", "x")]);
    assert_unpacks_to(
        "CVE-2023-39804 (GNU tar): an attribute without a name",
        &nameless,
        &[("index.html", PAGE), ("a.html", "x")],
    );
    // CVE-2022-2879 (Go): a header of unlimited size that describes the next entry.
    assert_all_commands_refuse(
        "CVE-2022-2879 (Go): 2 MiB of PAX",
        &tar_with(vec![pax(&[("comment", &vec![b'c'; 2 << 20])]), file("a", "x")]),
        &["1 MiB"],
    );
    assert_all_commands_refuse(
        "CVE-2022-2879 (Go): a long name of 2 MiB",
        &tar_with(vec![long_name(&vec![b'n'; 2 << 20]), file("a", "x")]),
        &["1 MiB"],
    );
    // CVE-2024-57970 (libarchive): the archive ends within a long link.
    let cut =
        [tar::blocks(&[file("index.html", PAGE)]), tar::blocks(&[long_name(&[b'n'; 700])])[..1100].to_vec()].concat();
    assert_all_commands_refuse("CVE-2024-57970 (libarchive): cut within a long name", &cut, &["cut short"]);
    // CVE-2019-9923, CVE-2018-20482 (GNU tar), CVE-2025-58183 (Go): sparse files in all their dialects.
    for (case, entries) in [
        ("CVE-2018-20482 (GNU tar): old GNU sparse", vec![entry("s", b'S', b"x")]),
        (
            "CVE-2025-58183 (Go): GNU.sparse of version 1.0",
            vec![
                pax(&[("GNU.sparse.major", b"1"), ("GNU.sparse.minor", b"0"), ("GNU.sparse.name", b"s")]),
                file("GNUSparseFile.0/s", "99999999\n"),
            ],
        ),
        ("CVE-2019-9923 (GNU tar): a map without numbers", vec![pax(&[("GNU.sparse.map", b"")]), file("s", "")]),
    ] {
        assert_all_commands_refuse(case, &tar_with(entries), &["sparse"]);
    }
    assert_all_commands_refuse(
        "CVE-2010-0624 (GNU tar): a volume of several",
        &tar_with(vec![entry("v", b'M', b"x")]),
        &["type"],
    );
}

#[test]
fn malformed_or_oversized_compressed_streams_are_refused() {
    let good = tar_with(vec![file("a.html", "x")]);
    // RFC 1952, 2.3: a name without its end.
    let endless = [&[0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 0xff][..], &vec![b'n'; 3 << 20]].concat();
    assert_all_commands_refuse("gzip: a name of 3 MiB without an end", &endless, &["is cut short: a gzip header"]);
    let mut trailing = gzip(&good);
    trailing.extend_from_slice(b"not gzip");
    assert_all_commands_refuse("gzip: something else behind it", &trailing, &["bytes after the compressed data"]);
    // A window larger than any memory.
    let window = tar::zstd_raw(0xff, &good[..1024]);
    assert_all_commands_refuse("zstd: a window of 3.75 TiB", &window, &["its zstd window is over 128 MiB"]);
    let zeros = tar::tar(&[
        file("index.html", PAGE),
        TarEntry { content: vec![0; 80 << 20], ..entry("z.html", b'0', b"") }.sized(80 << 20),
    ]);
    assert_all_commands_refuse("tar.gz: 80 MiB of zeros", &gzip(&zeros), &["bomb"]);
    assert_all_commands_refuse("tar.zst: 80 MiB of zeros", &tar::zstd(&zeros), &["bomb"]);
    // Archives in archives (42.zip) are content, which docwharf does not open.
    let inner = zip_with(victim());
    let text = zip_with(RawMember::coded(b"inner.zip", 0, inner.clone(), crc32fast::hash(&inner), inner.len() as u32));
    assert_accepted("42.zip: an archive inside", &text);
}
