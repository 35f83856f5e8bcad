//! Names, links, duplicates, and the files that unpacking writes, in every format of archive.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::archive_checks::{
    Files, PAGE, as_tar, as_zip, assert_accepted, assert_one_line, assert_refused, every_kind, expected_tree,
    list_folder, read_files, run_bundle, unpack_archive, write_bundle,
};
use docwharf::base::directory::Directory;
use docwharf::model::limits::BundleLimits;
use docwharf::seal::{ImageTarget, SealOptions, SealProgress, seal};
use support::{tar, zip};

/// Returns one letter `length` times.
fn repeated_letter(length: usize) -> Vec<u8> {
    vec![b'x'; length]
}

/// Returns a path of `length` bytes whose components are legal.
fn long_path(length: usize) -> Vec<u8> {
    let mut path = b"d123456789/".repeat(length / 11 + 1);
    path.truncate(length);
    if path.ends_with(b"/") {
        path.pop();
        path.push(b'y');
    }
    path
}

/// Returns archives of a file with this name and a page. The page is last, because a hostile entry must cause the
/// refusal of later entries, too.
fn archives_with_file_and_page(name: &[u8]) -> [(&'static str, Vec<u8>); 4] {
    every_kind(&[(name, b"evil"), PAGE])
}

#[test]
fn an_archive_of_any_format_with_an_unsafe_entry_name_is_refused() {
    let table: [(&[u8], &str); 17] = [
        (b"../x", "\"../x\""),
        (b"..", "\"..\""),
        (b"a/../x", "\"a/../x\""),
        (b"a/..", "\"a/..\""),
        (b"./../x", "\"./../x\""),
        (b"a/b/../../../x", "leaves"),
        (b"a/../", "leaves"),
        (b"/etc/passwd", "absolute"),
        (b"//host/share/x", "absolute"),
        (b"/", "absolute"),
        (b"C:/x.html", "drive"),
        (b"c:x.html", "drive"),
        (b"Z:", "drive"),
        (b"a\0b.html", "NUL"),
        (b"index.html\0.png", "NUL"),
        (&repeated_letter(256), "component"),
        (&long_path(4097), "4096"),
    ];
    for (name, expected) in table {
        for (kind, archive) in archives_with_file_and_page(name) {
            assert_refused(&format!("{kind} with {}", String::from_utf8_lossy(name)), &archive, &[expected, "entry "]);
        }
    }
}

#[test]
fn a_drive_letter_after_dot_components_is_refused() {
    // `.` and empty components are removed, so this is `C:/x` for a program that unpacks it.
    for name in [&b"./C:/x.html"[..], b".//./C:x", b"./c:"] {
        for (kind, archive) in archives_with_file_and_page(name) {
            assert_refused(&format!("{kind} with {}", String::from_utf8_lossy(name)), &archive, &["drive", "entry "]);
        }
    }
}

#[test]
fn an_entry_without_a_name_is_refused() {
    for (kind, archive) in archives_with_file_and_page(b"") {
        assert_refused(kind, &archive, &["entry \"\" has no name"]);
    }
    let page = || tar::file("index.html", "x");
    // With a slash at its end it is a folder.
    for (name, expected) in [(".", "has no name"), ("././/.", "has no name"), ("./", "is a folder with content")] {
        assert_refused(
            "a file that is the root",
            &tar::tar(&[tar::file(name, "evil"), page()]),
            &["entry \".", expected],
        );
    }
    for name in [".", "./", "././/."] {
        let archive = tar::tar(&[page(), tar::link(name, b'1', "index.html")]);
        assert_refused("a hard link that is the root", &archive, &["entry \".", "has no name"]);
    }
    assert_refused("a file that is the root, in a zip", &as_zip(&[(b".", b"x"), PAGE]), &["entry \".\" has no name"]);
}

#[test]
fn zip_names_are_split_at_backslashes_before_they_are_checked() {
    let table: [(&[u8], &str); 20] = [
        (b"..\\x", "leaves the bundle"),
        (b"a\\..\\x", "leaves the bundle"),
        (b"a/..\\x", "leaves the bundle"),
        (b"a\\../x", "leaves the bundle"),
        (b"a\\..", "leaves the bundle"),
        (b"\\x", "has an absolute path"),
        (b"\\\\host\\share\\x", "has an absolute path"),
        (b"\\\\?\\C:\\x", "has an absolute path"),
        (b"C:\\x", "begins with a drive letter"),
        (b"c:\\", "begins with a drive letter"),
        // The following names are not UTF-8, so they are in code page 437 (APPNOTE.TXT, appendix D), where 0x82 is a
        // letter.
        (b"..\\\x82", "leaves the bundle"),
        (b"\x82\\..\\x", "leaves the bundle"),
        (b"\x82/..\\x", "leaves the bundle"),
        (b"\x82\\../x", "leaves the bundle"),
        (b"\x82\\..", "leaves the bundle"),
        (b"\\\x82", "has an absolute path"),
        (b"\\\\host\\share\\\x82", "has an absolute path"),
        (b"\\\\?\\C:\\\x82", "has an absolute path"),
        (b"C:\\\x82", "begins with a drive letter"),
        (b"\x82:\\..\\x", "leaves the bundle"),
    ];
    for (name, expected) in table {
        assert_refused(&String::from_utf8_lossy(name), &as_zip(&[(name, b"evil"), PAGE]), &["entry \"", expected]);
    }
    for first in [&b"a\\"[..], b"\x82\\"] {
        let name = [first, &repeated_letter(256), b"\\b"].concat();
        let case = "a long component between backslashes";
        assert_refused(case, &as_zip(&[(&name, b"evil"), PAGE]), &["has a component over 255 bytes"]);
    }
}

#[test]
fn a_tar_name_is_checked_in_every_header_field_that_can_contain_a_name() {
    let named = |name: &str| tar::file(name, "evil");
    let out = "entry \"../evil\" leaves the bundle";
    let table = [
        ("name field", vec![named("../evil")], out),
        ("ustar prefix", vec![named("evil").with(345, b"a/..")], "entry \"a/../evil\" leaves the bundle"),
        ("absolute ustar prefix", vec![named("evil").with(345, b"/etc")], "entry \"/etc/evil\" has an absolute path"),
        (
            "drive in a ustar prefix",
            vec![named("evil").with(345, b"C:")],
            "entry \"C:/evil\" begins with a drive letter",
        ),
        ("PAX path", vec![tar::pax(&[("path", b"../evil")]), named("fine")], out),
        (
            "PAX path after others",
            vec![tar::pax(&[("mtime", b"1"), ("path", b"fine"), ("path", b"../evil")]), named("fine")],
            out,
        ),
        ("GNU long name", vec![tar::long_name(b"../evil"), named("fine")], out),
        ("GNU long name with a NUL", vec![tar::long_name(b"evil\0fine"), named("fine")], "has a NUL byte in its name"),
        ("folder", vec![tar::entry("../evil/", b'5', b"")], "entry \"../evil/\" leaves the bundle"),
        ("v7 folder", vec![tar::entry("../evil/", 0, b"").with(257, &[0; 8])], "entry \"../evil/\" leaves the bundle"),
        ("hard link's own name", vec![named("fine"), tar::link("../evil", b'1', "fine")], out),
    ];
    for (case, mut entries, expected) in table {
        entries.push(tar::file("index.html", "x"));
        assert_refused(case, &tar::tar(&entries), &[expected]);
    }
    // Only the name that is used is checked.
    let entries = [tar::pax(&[("path", b"fine.html")]), named("../evil"), tar::file("index.html", "x")];
    assert!(unpack_archive("PAX path over a bad name", &tar::tar(&entries), &[]).contains_key(&b"fine.html"[..]));
    let entries = [tar::long_name(b"fine.html"), named("/evil"), tar::file("index.html", "x")];
    assert!(unpack_archive("GNU name over a bad name", &tar::tar(&entries), &[]).contains_key(&b"fine.html"[..]));
}

/// Returns unusual names that are legal in every format of archive.
fn odd_names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = [
        "100%.html",
        "a%2fb.html",
        "%2e%2e/x.html",
        "at 12:30.html",
        "ab:cd/e",
        "[[...slug]].html",
        "(group)/[id].html",
        "@slot/x",
        "con",
        "nul.txt",
        "AUX.html",
        "com1/x",
        "Readme.html",
        "README.html",
        "readme.html",
        "\u{e4}.html",
        "a\u{308}.html",
        "\u{65e5}\u{672c}.html",
        " lead",
        "trail ",
        "dot.",
        "line\nbreak.html",
        "cr\r.html",
        "tab\t.html",
        "esc\u{1b}[31m.html",
        "a\"quote'.html",
        "a*b?c<d>e|f.html",
        "-rf",
        "~",
        "$HOME",
        "`id`",
        "..a/x",
        "a../x",
        "...",
        "a/.../b",
        "a\\b.html",
        "zero\u{200b}width",
        "\u{202e}lmth.exe",
    ]
    .map(|name| name.as_bytes().to_vec())
    .into();
    names.push(repeated_letter(255));
    names.push([&[b'y'; 255], &b"/"[..], &[b'z'; 255]].concat());
    names.push(long_path(2000));
    names
}

#[test]
fn unusual_but_legal_names_are_accepted_and_unpacked_unchanged() {
    let names = odd_names();
    let mut files: Vec<(&[u8], &[u8])> = names.iter().map(|name| (&name[..], &name[..])).collect();
    files.push(PAGE);
    let mut ids = Vec::new();
    for (kind, archive) in every_kind(&files) {
        assert_eq!(unpack_archive(kind, &archive, &[]), expected_tree(&files), "{kind}");
        ids.push(assert_accepted(kind, &archive)["version"].clone());
    }
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

/// Asserts that a sealed image with this name can be verified again, as happens when its index was lost.
#[track_caller]
fn assert_sealed_image_verifies_again(name: &[u8]) {
    let case = String::from_utf8_lossy(name);
    let (dir, file) = write_bundle(&as_tar(&[(name, b"x"), PAGE]));
    let image_target = ImageTarget::Dir(Directory::open(dir.path()).unwrap());
    let sealed = seal(&file, &image_target, &SealOptions::new(BundleLimits::default()), &SealProgress::default())
        .expect("the name is legal in a tar");
    let image = dir.path().join(docwharf::seal::IMAGE_FILE_NAME);
    let verified_again =
        docwharf::seal::verify_image(&image, &SealOptions::new(BundleLimits::default())).expect("the image is good");
    assert_eq!(verified_again.id, sealed.verified.id, "{case}");
}

#[test]
fn a_sealed_image_with_unusual_names_verifies_again_to_the_same_version() {
    for name in odd_names() {
        assert_sealed_image_verifies_again(&name);
    }
    for name in [&b"caf\xe9.html"[..], b"\xff\xfe", b"\x81.html"] {
        assert_sealed_image_verifies_again(name);
    }
}

// Regression: the verification of an image that was made from a tar with backslashes in its names failed.
#[test]
fn a_sealed_image_of_a_tar_with_backslashes_verifies_again() {
    for name in [&b"a\\..\\b"[..], b"\\x", b"\\\\host\\share"] {
        assert_sealed_image_verifies_again(name);
    }
}

// Regression: a received ZIP with the private mark of sealed images was stored as one: its names differed when it was
// verified again, and the store counted as damaged.
#[test]
fn a_received_zip_with_the_extra_field_of_sealed_images_is_not_stored_unchanged() {
    // In an image the name would be used unchanged. In a received ZIP it is CP437, and the mark is ignored.
    for name in [&b"caf\x82.html"[..], b"plain.html"] {
        let marked =
            zip::RawMember::from_member(&zip::Member { name: name.to_vec(), content: b"x".to_vec(), deflate: true });
        let marked = marked.change_both_headers(|header| header.extra = zip::extra(0x7764, &[]));
        let page = zip::deflated("index.html", "<!doctype html><title>Home</title>");
        let (dir, file) = write_bundle(&zip::archive(&[page]).with(marked).bytes());
        let options = SealOptions::new(BundleLimits::default());
        let image_target = ImageTarget::Dir(Directory::open(dir.path()).unwrap());
        let sealed = seal(&file, &image_target, &options, &SealProgress::default())
            .expect("the mark in a received ZIP is not a fault");
        let verified_again = docwharf::seal::verify_image(&dir.path().join(docwharf::seal::IMAGE_FILE_NAME), &options);
        let verified_again = verified_again.expect("the image is good");
        assert_eq!(verified_again.id, sealed.verified.id, "{}", String::from_utf8_lossy(name));
    }
}

// Regression: a path of 4,096 bytes was accepted, but could not be unpacked.
#[test]
fn a_path_of_4096_bytes_is_legal_and_unpacks() {
    for (kind, archive) in every_kind(&[(&long_path(4096), b"x"), PAGE]) {
        assert_accepted(kind, &archive);
        let (dir, file) = write_bundle(&archive);
        // Together with the path of the target it is longer than the kernel accepts, so it is not read here.
        run_bundle("unpack", &[&file, &dir.path().join("target")], &[]).expect(0);
    }
}

#[test]
fn a_zip_component_over_255_bytes_with_a_backslash_in_it_is_refused() {
    let name = [&repeated_letter(200)[..], b"\\", &repeated_letter(200)].concat();
    let archive = as_zip(&[(&name, b"x"), PAGE]);
    assert_refused("200 bytes, a backslash, 200 bytes", &archive, &["has a component over 255 bytes"]);
}

#[test]
fn zip_names_are_utf8_if_they_can_be_and_cp437_otherwise() {
    let named = |name: &[u8], flags: u16| {
        zip::RawMember::from_member(&zip::Member { name: name.into(), content: b"x".into(), deflate: false })
            .change_both_headers(|h| h.flags |= flags)
    };
    let archive = zip::archive(&[zip::stored("index.html", "x")])
        .with(named(b"caf\x82.html", 0))
        .with(named("na\u{ef}ve.html".as_bytes(), 0))
        .with(named("gr\u{fc}n.html".as_bytes(), 1 << 11))
        .with(named(b"\x80\xe1\xff\xb0.html", 0));
    let names: Vec<String> = unpack_archive("CP437", &archive.bytes(), &[])
        .into_keys()
        .map(|name| String::from_utf8(name).expect("UTF-8"))
        .collect();
    assert_eq!(
        names,
        ["caf\u{e9}.html", "gr\u{fc}n.html", "index.html", "na\u{ef}ve.html", "\u{c7}\u{df}\u{a0}\u{2591}.html"]
    );
    // The flag is a claim that is checked, not a hint.
    for name in [&b"caf\x82.html"[..], b"caf\xc3"] {
        let claimed = zip::archive(&[zip::stored("index.html", "x")]).with(named(name, 1 << 11));
        let expected = &["entry \"caf\\x", "its name is not the UTF-8 that it claims to be"];
        assert_refused("a claim of UTF-8 for other bytes", &claimed.bytes(), expected);
    }
    // Two encodings of one name are one name.
    let twice = archive.with(named("caf\u{e9}.html".as_bytes(), 1 << 11));
    assert_refused("CP437 and UTF-8", &twice.bytes(), &["caf", "twice"]);
}

#[test]
fn tar_names_that_are_not_utf8_keep_their_bytes() {
    let files: &Files<'_> = &[PAGE, (b"caf\xe9.html", b"latin-1"), (b"\xff/\xfe.html", b"bytes")];
    assert_eq!(unpack_archive("tar", &as_tar(files), &[]), expected_tree(files));
    let (_dir, file) = write_bundle(&as_tar(files));
    let server = support::Daemon::serve(&file, &[]);
    assert_eq!(support::http::get(&server.address, "/caf%E9.html").text(), "latin-1");
}

#[test]
fn an_archive_with_a_symbolic_link_device_fifo_or_socket_is_refused() {
    for (case, kind) in [("symbolic link", b'2'), ("character device", b'3'), ("block device", b'4'), ("fifo", b'6')] {
        for target in ["index.html", "../../etc/passwd", "/etc/passwd", ""] {
            let entries = [tar::file("index.html", "x"), tar::link("sub/evil", kind, target)];
            assert_refused(case, &tar::tar(&entries), &[case, "\"sub/evil\""]);
        }
    }
    let kinds = [
        ("symbolic link", 0o120_777),
        ("character device", 0o020_666),
        ("block device", 0o060_666),
        ("fifo", 0o010_666),
        ("socket", 0o140_666),
    ];
    for (case, mode) in kinds {
        let mut evil = zip::RawMember::from_member(&zip::stored("sub/evil", "index.html"));
        evil.attributes = mode << 16;
        assert_refused(
            case,
            &zip::archive(&[zip::stored("index.html", "x")]).with(evil).bytes(),
            &[case, "\"sub/evil\""],
        );
    }
    // One reader would make a folder of it and another a file.
    let mut folder = zip::RawMember::from_member(&zip::stored("sub/evil", "x"));
    folder.attributes = 0o040_755 << 16;
    let archive = zip::archive(&[zip::stored("index.html", "x")]).with(folder).bytes();
    let expected = &["entry \"sub/evil\" is marked as a folder, but its name does not end with a slash"];
    assert_refused("a folder without a slash", &archive, expected);
}

#[test]
fn a_hard_link_copies_an_earlier_file_and_is_refused_for_any_other_target() {
    let page = tar::file("a/index.html", "<!doctype html>");
    let root = tar::file("index.html", "x");
    let large = "0123456789".repeat(400_000);
    let entries = [
        page.clone(),
        tar::file("a/large.js", &large),
        tar::link("index.html", b'1', "a/index.html"),
        tar::link("b.html", b'1', "./a//index.html"),
        tar::link("c.html", b'1', "b.html"),
        tar::link("large.js", b'1', "a/large.js"),
        tar::pax(&[("linkpath", b"a/index.html"), ("path", b"d.html")]),
        tar::link("x", b'1', "../evil"),
    ];
    let content = b"<!doctype html>";
    let files: &Files<'_> = &[
        (b"a/index.html", content),
        (b"a/large.js", large.as_bytes()),
        (b"large.js", large.as_bytes()),
        (b"index.html", content),
        (b"b.html", content),
        (b"c.html", content),
        (b"d.html", content),
    ];
    let linked = tar::tar(&entries);
    assert_eq!(unpack_archive("hard links", &linked, &[]), expected_tree(files));
    assert_eq!(assert_accepted("hard links", &linked)["version"], assert_accepted("copies", &as_tar(files))["version"]);

    let folder = tar::entry("a/", b'5', b"");
    let evil = |target: &str| {
        vec![folder.clone(), page.clone(), root.clone(), tar::link("evil", b'1', target), tar::file("later", "x")]
    };
    for target in ["later", "absent", "a", "a/", "evil", "../index.html", "/etc/passwd", "", "."] {
        assert_refused(&format!("hard link to {target:?}"), &tar::tar(&evil(target)), &["\"evil\"", "hard link"]);
    }
}

#[test]
fn unpack_ignores_modes_owners_and_setuid_bits_of_the_archive() {
    let mode = |entry: tar::TarEntry, mode: &[u8]| entry.with(100, mode).with(108, b"0001750\0");
    let tar = tar::tar(&[
        mode(tar::entry("dark/", b'5', b""), b"0000000\0"),
        mode(tar::file("dark/plain.html", "x"), b"0000000\0"),
        mode(tar::file("index.html", "x"), b"0006777\0"),
        mode(tar::file("run.sh", "x"), b"0001755\0"),
    ]);
    let member = |name: &str, mode: u32| {
        let mut raw = zip::RawMember::from_member(&zip::stored(name, if name.ends_with('/') { "" } else { "x" }));
        raw.attributes = mode << 16;
        raw
    };
    let zip = zip::archive(&[])
        .with(member("dark/", 0o040_000))
        .with(member("dark/plain.html", 0o100_000))
        .with(member("index.html", 0o106_777))
        .with(member("run.sh", 0o101_755));
    for archive in [tar, zip.bytes()] {
        let (dir, file) = write_bundle(&archive);
        let target = dir.path().join("target");
        run_bundle("unpack", &[&file, &target], &["--raw"]).expect(0);
        let modes: Vec<u32> = ["dark/plain.html", "index.html", "run.sh"]
            .map(|name| fs::metadata(target.join(name)).expect("it was unpacked"))
            .map(|metadata| {
                assert_eq!(metadata.uid(), fs::metadata(&file).expect("the archive exists").uid());
                metadata.permissions().mode() & 0o7777
            })
            .into();
        assert!(modes.iter().all(|mode| *mode == modes[0] && mode & 0o7111 == 0 && mode & 0o400 != 0), "{modes:?}");
        let dark = fs::metadata(target.join("dark")).expect("it was unpacked").permissions().mode();
        assert_eq!(dark & 0o7700, 0o700, "{dark:o}");
    }
}

#[test]
fn duplicate_files_and_paths_that_are_both_file_and_folder_are_refused() {
    let table: [(&str, &Files<'_>, &[&str]); 9] = [
        ("twice", &[(b"a", b"1"), (b"a", b"2")], &["\"a\"", "twice"]),
        ("twice with equal content", &[(b"a", b"1"), (b"a", b"1")], &["\"a\"", "twice"]),
        ("a and ./a", &[(b"a", b"1"), (b"./a", b"1")], &["\"a\"", "twice"]),
        ("b/a and b//./a", &[(b"b/a", b"1"), (b"b//./a", b"1")], &["\"b/a\"", "twice"]),
        ("the page twice", &[(b"./index.html", b"x")], &["\"index.html\"", "twice"]),
        ("file, then folder", &[(b"a", b"1"), (b"a/b", b"2")], &["\"a\"", "both"]),
        ("folder, then file", &[(b"a/b", b"2"), (b"a", b"1")], &["\"a\"", "both"]),
        ("file between", &[(b"a-", b"1"), (b"a/b/c", b"2"), (b"a.x", b"3"), (b"a/b", b"4")], &["\"a/b\"", "both"]),
        ("junk twice", &[(b".DS_Store", b"1"), (b".DS_Store", b"1")], &["twice"]),
    ];
    for (case, files, expected) in table {
        for (kind, archive) in every_kind(&[files, &[PAGE]].concat()) {
            assert_refused(&format!("{kind}: {case}"), &archive, expected);
        }
    }
    let folder = |name: &str| tar::entry(name, b'5', b"");
    let page = tar::file("index.html", "x");
    let file = || tar::file("a", "x");
    for (case, entries, expected) in [
        ("folder a and file a", vec![folder("a/"), file()], "is both a file and a folder"),
        ("file a and folder a", vec![file(), folder("a")], "is both a file and a folder"),
        ("file a and folder a/b", vec![file(), folder("a/b/")], "is both a file and a folder"),
        ("hard link over a file", vec![tar::file("b", "x"), file(), tar::link("a", b'1', "b")], "occurs twice"),
        ("hard link to itself", vec![file(), tar::link("a", b'1', "a")], "occurs twice"),
    ] {
        assert_refused(case, &tar::tar(&[entries, vec![page.clone()]].concat()), &["entry \"a\"", expected]);
    }
    assert_refused("zip: folder a/ and file a", &as_zip(&[(b"a/", b""), (b"a", b"x"), PAGE]), &["\"a\"", "both"]);
}

#[test]
fn duplicate_folder_entries_are_accepted() {
    let files: &Files<'_> = &[
        (b"a/", b""),
        (b"a/", b""),
        (b"./a//", b""),
        (b"./", b""),
        (b"a/b/", b""),
        (b"a/b/x", b"1"),
        PAGE,
        (b"a/", b""),
    ];
    let site: &Files<'_> = &[(b"a/b/x", b"1"), PAGE];
    assert_eq!(unpack_archive("zip", &as_zip(files), &["--raw"]), expected_tree(site));
    let folder = |name: &str| tar::entry(name, b'5', b"");
    let archive = tar::tar(&[
        folder("./"),
        folder("."),
        folder("a"),
        folder("a/"),
        folder("./a//"),
        tar::file("a/b/x", "1"),
        folder("a/b"),
        tar::raw_entry(PAGE.0, b'0', PAGE.1),
        folder("a"),
    ]);
    assert_eq!(unpack_archive("tar", &archive, &["--raw"]), expected_tree(site));
    assert_eq!(assert_accepted("tar", &archive)["version"], assert_accepted("zip", &as_zip(site))["version"]);
}

#[test]
fn empty_folders_are_unpacked_only_with_the_raw_option() {
    let archive = tar::tar(&[tar::entry("empty/deep/", b'5', b""), tar::file("index.html", "x")]);
    let (dir, file) = write_bundle(&archive);
    let (served, raw) = (dir.path().join("served"), dir.path().join("raw"));
    run_bundle("unpack", &[&file, &served], &[]).expect(0);
    run_bundle("unpack", &[&file, &raw], &["--raw"]).expect(0);
    assert_eq!(
        (list_folder(&served), list_folder(&raw)),
        (vec!["index.html".to_owned()], vec!["empty".to_owned(), "index.html".to_owned()])
    );
}

#[test]
fn unpack_writes_only_into_a_missing_or_empty_folder() {
    for (kind, archive) in every_kind(&[PAGE, (b"a/b", b"1")]) {
        let (dir, file) = write_bundle(&archive);
        let full = dir.path().join("full");
        support::write_site(&full, &[("mine", "1")]);
        let output = run_bundle("unpack", &[&file, &full], &[]).expect(2);
        assert_one_line(kind, &output.stderr);
        assert_eq!(list_folder(&full), ["mine"], "{kind}");
        run_bundle("unpack", &[&file, &file], &[]).expect(2);
        assert_eq!(fs::read(&file).expect("untouched"), archive, "{kind}");
        let empty = dir.path().join("empty");
        fs::create_dir(&empty).expect("a folder");
        run_bundle("unpack", &[&file, &empty], &[]).expect(0);
        assert_eq!(list_folder(&empty), ["a", "index.html"], "{kind}");
        assert_eq!(list_folder(dir.path()), ["bundle", "empty", "full"], "{kind}: unexpected files");
        assert_eq!(read_files(&empty), expected_tree(&[PAGE, (b"a/b", b"1")]), "{kind}");
        // The unpacked site is mostly served by another user.
        let absent = dir.path().join("absent");
        run_bundle("unpack", &[&file, &absent], &[]).expect(0);
        let mode = |path: &str| fs::metadata(absent.join(path)).expect("it was unpacked").permissions().mode() & 0o777;
        assert_eq!([".", "a", "a/b", "index.html"].map(mode), [0o755, 0o755, 0o644, 0o644], "{kind}");
    }
}

#[test]
fn a_refused_archive_leaves_the_unpack_target_empty() {
    // The entry that is refused is at the end of the archive.
    for (kind, archive) in every_kind(&[PAGE, (b"a/b", b"1"), (b"../evil", b"1")]) {
        let (dir, file) = write_bundle(&archive);
        let empty = dir.path().join("empty");
        fs::create_dir(&empty).expect("a folder");
        run_bundle("unpack", &[&file, &empty], &[]).expect(5);
        assert_eq!(list_folder(&empty), Vec::<String>::new(), "{kind}");
        assert_eq!(list_folder(dir.path()), ["bundle", "empty"], "{kind}: unexpected files");
    }
}
