//! The format of a file, the part of an archive that is the site, and the messages about both.

use std::fs;
use std::time::{Duration, SystemTime};

use crate::archive_checks::{
    Files, PAGE, as_tar, as_zip, assert_accepted, assert_one_line, assert_refused, every_kind, expected_tree,
    list_folder, run_bundle, unpack_archive, write_bundle,
};
use support::{docwharf, run_to_end, tar, zip};

const HTML: &[u8] = b"<!doctype html><title>x</title>";

#[test]
fn a_file_that_is_no_archive_is_refused_with_its_detected_format() {
    let table: [(&[u8], &str); 18] = [
        (b"", "empty"),
        (b"<!DOCTYPE html><html><body>Not found</body></html>", "HTML"),
        (b"\xef\xbb\xbf \r\n<HTML><head></head></HTML>", "HTML"),
        (b"<?xml version=\"1.0\"?><feed></feed>", "XML"),
        (b"<feed xmlns=\"http://www.w3.org/2005/Atom\"/>", "XML"),
        (
            b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>",
            "AccessDenied",
        ),
        (b"<Error><Code>NoSuchKey</Code></Error>", "NoSuchKey"),
        (b"{\"error\":\"not ready\"}", "JSON"),
        (b"\n [1, 2]", "JSON"),
        (b"upstream connect error or disconnect", "text"),
        (b"ok", "text"),
        (b"BZh91AY&SY", "bzip2"),
        (b"\xfd7zXZ\0\0", "xz"),
        (b"7z\xbc\xaf\x27\x1c\0\x04", "7-Zip"),
        (b"Rar!\x1a\x07\x01\0", "RAR"),
        (b"%PDF-1.7", "PDF"),
        (b"PK\x07\x08PK\x03\x04", "split"),
        (b"\x00\x01\x02\x03\x04\x05\x06\x07", "unknown kind"),
    ];
    for (content, word) in table {
        assert_refused(&String::from_utf8_lossy(content), content, &[word]);
    }
}

#[test]
fn html_is_detected_by_a_leading_comment_head_or_title() {
    let table = [
        "<!-- a padded error page -->\n<!DOCTYPE html><html></html>",
        "<head><title>502 Bad Gateway</title></head>",
        "<title>502 Bad Gateway</title><h1>502</h1>",
    ];
    for page in table {
        assert_refused(page, page.as_bytes(), &["HTML"]);
    }
}

#[test]
fn text_is_detected_even_if_the_first_kib_ends_within_a_character() {
    // The first KiB may end within a character.
    for text in ["日", "日本語", "xéééééééé"] {
        assert_refused(text, text.as_bytes(), &["a text file"]);
    }
    for start in 0..4 {
        let text = format!("{}{}", "x".repeat(start), "日é".repeat(500));
        assert_refused("text that is cut within a character", text.as_bytes(), &["a text file"]);
    }
}

// Regression: a storage error with a long code that is not ASCII ended in a panic.
#[test]
fn a_storage_error_is_reported_with_its_code_escaped_and_without_a_panic() {
    let error_document = |code: &str| format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code></Error>").into_bytes();
    assert_refused("control characters", &error_document("Access\x1b[31mDenied\n"), &["Access\\u{1b}"]);
    for shift in 0..4 {
        let code = format!("{}{}", "x".repeat(shift), "日".repeat(60));
        assert_refused("a long code that is not ASCII", &error_document(&code), &["object store"]);
    }
}

#[test]
fn compressed_data_without_a_tar_is_refused_with_the_format_of_its_content() {
    for pack in [tar::gzip as fn(&[u8]) -> Vec<u8>, tar::zstd] {
        for (content, word) in [(HTML, "HTML"), (b"{}", "JSON"), (b"", "empty"), (b"\0\x01\x02", "unknown kind")] {
            assert_refused(&String::from_utf8_lossy(content), &pack(content), &[word]);
        }
        assert_refused("a zip inside", &pack(&as_zip(&[PAGE])), &["of a ZIP"]);
        let (_dir, file) = write_bundle(&pack(b"\0\x01\x02"));
        let error = run_bundle("verify", &[&file], &[]).stderr;
        assert!(!error.contains("of of"), "{error}");
    }
}

#[test]
fn the_archive_format_is_detected_by_content_not_by_file_name() {
    for (kind, archive) in every_kind(&[PAGE]) {
        for name in ["bundle.zip", "bundle.tar", "bundle.tar.gz", "bundle.tar.zst", "index.html", "x"] {
            let dir = support::temporary_folder();
            let file = dir.path().join(name);
            fs::write(&file, &archive).expect("files can be written");
            let output = run_bundle("inspect", &[&file], &["--json"]).expect(0);
            assert_eq!(output.json()["kind"], kind, "{name}");
        }
    }
}

#[test]
fn a_bundle_without_a_page_is_refused() {
    let table: [&Files<'_>; 6] = [
        &[],
        &[(b"style.css", b"x")],
        &[(b"html", b"x"), (b".html", b"x")],
        &[(b".git/index.html", HTML), (b"x.css", b"x")],
        &[(b"__MACOSX/index.html", HTML), (b"x.css", b"x")],
        &[(b"._index.html", HTML), (b"x.css", b"x")],
    ];
    for files in table {
        for (kind, archive) in every_kind(files) {
            assert_refused(kind, &archive, &["no HTML page"]);
        }
    }
    assert_refused("an empty zip", &zip::zip(&[]), &["no HTML page"]);
}

#[test]
fn a_bundle_without_a_root_index_page_is_accepted_with_one_warning() {
    for (kind, archive) in every_kind(&[(b"guide.html", HTML), (b"sub/OLD.HTM", HTML)]) {
        let (dir, file) = write_bundle(&archive);
        let target = dir.path().join("target");
        let unpack = run_bundle("unpack", &[&file, &target], &[]);
        for output in [run_bundle("verify", &[&file], &[]), run_bundle("inspect", &[&file], &[]), unpack] {
            assert_eq!(output.code, Some(0), "{kind}: {output:?}");
            assert_one_line(kind, &output.stderr);
            assert!(output.stderr.contains("warning") && output.stderr.contains("index.html"), "{}", output.stderr);
        }
        assert_eq!(list_folder(&target), ["guide.html", "sub"]);
        let json = run_bundle("inspect", &[&file], &["--json"]);
        assert_eq!(json.json()["warnings"].as_array().map(Vec::len), Some(1), "{kind}");
    }
}

#[test]
fn several_warnings_are_one_line_with_a_count() {
    let dir = support::temporary_folder();
    let site = support::write_site(&dir.path().join("site"), &[("guide.html", "x")]);
    for name in ["one", "two"] {
        std::os::unix::fs::symlink("/etc/hostname", site.join(name)).expect("links can be made");
    }
    let output = run_bundle("verify", &[&site], &[]).expect(0);
    assert_one_line("three warnings", &output.stderr);
    assert!(output.stderr.contains("2 more warnings"), "{}", output.stderr);
    // The links are not in the archive, and whoever packs it learns of them.
    let packed = run_bundle("pack", &[&site, &dir.path().join("site.zip")], &[]).expect(0);
    assert_eq!(packed.stderr, output.stderr);
    fs::remove_file(site.join("two")).expect("the test owns the file");
    let output = run_bundle("verify", &[&site], &[]).expect(0);
    assert!(output.stderr.contains("1 more warning)"), "{}", output.stderr);
}

#[test]
fn the_site_excludes_the_wrapper_folder_launchers_hidden_files_and_junk() {
    type Case<'a> = (&'a str, &'a [&'a str], &'a [&'a str]);
    let table: [Case<'_>; 16] = [
        ("a wrapper", &["docs/index.html", "docs/a/b.css"], &["index.html", "a/b.css"]),
        ("one level only", &["a/b/index.html"], &["a/b/index.html"]),
        ("one level of two", &["a/index.html", "a/b/index.html"], &["index.html", "b/index.html"]),
        ("a wrapper without index", &["docs/page.html"], &["docs/page.html"]),
        ("a page beside it", &["docs/index.html", "about.html"], &["docs/index.html", "about.html"]),
        ("a file beside it", &["docs/index.html", "robots.txt"], &["docs/index.html", "robots.txt"]),
        ("a hidden file beside it", &["docs/index.html", ".env"], &["docs/index.html"]),
        (
            "launchers and junk beside it",
            &["docs/index.html", "serve.js", "Start Docs.bat", ".DS_Store", "__MACOSX/docs/._x"],
            &["index.html"],
        ),
        (
            "launchers inside it",
            &["docs/index.html", "docs/serve.js", "docs/Start Docs.command", "docs/x/serve.js"],
            &["index.html", "x/serve.js"],
        ),
        (
            "launchers at the root",
            &["index.html", "serve.js", "Start Docs.command", "Start Docs.bat", "js/serve.js"],
            &["index.html", "js/serve.js"],
        ),
        (
            "other cases are content",
            &["index.html", "Serve.js", "start docs.bat"],
            &["index.html", "Serve.js", "start docs.bat"],
        ),
        (
            "junk at any depth",
            &["index.html", "a/.DS_Store", "a/._b", "Thumbs.db", "a/Thumbs.db", "desktop.ini", "a/__MACOSX/x"],
            &["index.html"],
        ),
        (
            "junk of Windows in any case",
            &["index.html", "THUMBS.DB", "a/thumbs.db", "a/Desktop.ini", "x.thumbs.db", "DESKTOP.INI"],
            &["index.html", "x.thumbs.db"],
        ),
        (
            "well-known",
            &["index.html", ".well-known/security.txt", ".well-known/.secret"],
            &["index.html", ".well-known/security.txt"],
        ),
        (
            "hidden",
            &["index.html", ".git/config", "a/.env", "a/.b/c.html", "..x", "a/...", ".htaccess"],
            &["index.html", "..x", "a/..."],
        ),
        ("two folders", &["a/index.html", "b/index.html"], &["a/index.html", "b/index.html"]),
    ];
    for (case, names, site) in table {
        let files: Vec<(&[u8], &[u8])> = names.iter().map(|name| (name.as_bytes(), name.as_bytes())).collect();
        for (kind, archive) in every_kind(&files) {
            let case = format!("{kind}: {case}");
            let (dir, file) = write_bundle(&archive);
            let target = dir.path().join("target");
            run_bundle("unpack", &[&file, &target], &["--quiet"]).expect(0);
            let mut unpacked: Vec<String> = support::read_tree(&target).into_iter().map(|(name, _)| name).collect();
            let mut expected = site.to_vec();
            unpacked.sort();
            expected.sort_unstable();
            assert_eq!(unpacked, expected, "{case}");
            let raw_target = dir.path().join("raw");
            run_bundle("unpack", &[&file, &raw_target], &["--raw", "--quiet"]).expect(0);
            assert_eq!(crate::archive_checks::read_files(&raw_target), expected_tree(&files), "{case}: raw");
        }
    }
}

#[test]
fn serve_returns_404_for_files_of_the_bundle_outside_the_site() {
    let files: &Files<'_> = &[
        (b"docs/index.html", b"home"),
        (b"docs/100%.html", b"percent"),
        (b"docs/[[...slug]].html", b"slug"),
        (b"docs/.well-known/security.txt", b"contact"),
        (b"docs/.git/config", b"secret"),
        (b"docs/a/serve.js", b"content"),
        (b"docs/serve.js", b"launcher"),
        (b"docs/.DS_Store", b"junk"),
        (b"serve.js", b"launcher"),
    ];
    for (kind, archive) in every_kind(files) {
        let (_dir, file) = write_bundle(&archive);
        let server = support::Daemon::serve(&file, &[]);
        let get = |target: &str| support::http::get(&server.address, target);
        for (target, content) in [
            ("/", "home"),
            ("/100%25.html", "percent"),
            ("/[[...slug]].html", "slug"),
            ("/.well-known/security.txt", "contact"),
            ("/a/serve.js", "content"),
        ] {
            assert_eq!((get(target).status, get(target).text()), (200, content.to_owned()), "{kind} {target}");
        }
        for target in
            ["/.git/config", "/%2egit/config", "/serve.js", "/.DS_Store", "/docs/index.html", "/docs/", "/../serve.js"]
        {
            assert_eq!(get(target).status, 404, "{kind} {target}");
        }
    }
}

#[test]
fn serve_refuses_an_invalid_bundle_like_verify_before_it_listens() {
    for (kind, archive) in every_kind(&[PAGE, (b"../evil", b"x")]) {
        let (dir, file) = write_bundle(&archive);
        let temporary = dir.path().join("tmp");
        fs::create_dir(&temporary).expect("a folder");
        let output =
            run_to_end(docwharf().arg("serve").arg(&file).args(["--listen", "127.0.0.1:0"]).env("TMPDIR", &temporary))
                .expect(5);
        assert_eq!(output.stdout, "", "{kind}: the server must not listen");
        assert_one_line(kind, &output.stderr);
        assert_eq!(output.stderr, run_bundle("verify", &[&file], &[]).stderr, "{kind}");
        assert_eq!(list_folder(&temporary), Vec::<String>::new(), "{kind}: unexpected files");
    }
}

#[test]
fn the_version_id_includes_hidden_files_but_not_junk_and_launchers() {
    let id = |files: &Files<'_>| assert_accepted("zip", &as_zip(files))["version"].clone();
    let site = id(&[PAGE]);
    assert_ne!(id(&[PAGE, (b".env", b"x")]), site);
    assert_ne!(id(&[PAGE, (b"a/serve.js", b"x")]), site);
    assert_eq!(id(&[PAGE, (b"serve.js", b"x"), (b".DS_Store", b"x"), (b"__MACOSX/._index.html", b"x")]), site);
    assert_eq!(id(&[(b"docs/index.html", PAGE.1), (b"Start Docs.bat", b"x")]), site);
}

#[test]
fn the_version_id_is_independent_of_archive_format_and_entry_order() {
    let files: &Files<'_> =
        &[PAGE, (b"a/b.css", b"b{}"), (b"a.css", b"a{}"), (b"z/index.html", HTML), (b"empty.txt", b"")];
    let reversed_files: Vec<(&[u8], &[u8])> = files.iter().rev().copied().collect();
    let mut archives: Vec<(&str, Vec<u8>)> = every_kind(files).into();
    archives.extend(every_kind(&reversed_files));
    archives.push((
        "stored zip",
        zip::zip(
            &files
                .iter()
                .map(|(n, c)| zip::Member { name: n.to_vec(), content: c.to_vec(), deflate: false })
                .collect::<Vec<_>>(),
        ),
    ));
    let dated_entries: Vec<tar::TarEntry> = files
        .iter()
        .map(|(name, content)| tar::raw_entry(name, b'0', content).with(100, b"0000755\0").with(136, b"14000000000\0"))
        .collect();
    archives.push(("dated tar", tar::tar(&dated_entries)));
    let dir = support::temporary_folder();
    for (name, content) in files {
        let name = String::from_utf8_lossy(name).into_owned();
        support::write_site(dir.path(), &[(&name, &String::from_utf8_lossy(content))]);
    }
    let id = run_bundle("inspect", &[dir.path()], &["--json"]).expect(0).json()["version"].clone();
    for (kind, archive) in &archives {
        assert_eq!(assert_accepted(kind, archive)["version"], id, "{kind}");
    }
}

#[test]
fn an_archive_inside_is_content_and_is_never_opened() {
    let inner = as_zip(&[(b"../evil", b"x")]);
    let files: &Files<'_> =
        &[PAGE, (b"download.zip", &inner), (b"download.tar.gz", &tar::gzip(&as_tar(&[(b"/evil", b"x")])))];
    for (kind, archive) in every_kind(files) {
        assert_eq!(unpack_archive(kind, &archive, &[]), expected_tree(files), "{kind}");
    }
}

#[test]
fn a_refusal_escapes_and_shortens_the_name_of_the_entry() {
    let name = "\u{1b}[2J\r\n\u{7}\u{9b}\u{2028}\u{202e}\"evil\"\u{7f}/../x";
    for (kind, archive) in every_kind(&[PAGE, (name.as_bytes(), b"x")]) {
        assert_refused(kind, &archive, &["\\u{1b}[2J\\r\\n", "evil"]);
        let (_dir, file) = write_bundle(&archive);
        let error = run_bundle("verify", &[&file], &[]).stderr;
        assert!(!error.contains(['\u{2028}', '\u{202e}', '\u{9b}']), "{kind}: {error:?}");
    }
    for filler in ["\n", "x", "日", "\u{1b}"] {
        let name = format!("../{}", filler.repeat(20_000 / filler.len()));
        // The message contains the fault, however long the name is.
        let words = &["entry \"../", "has a path over 4096 bytes"];
        assert_refused("a name of 20,000 bytes in a zip", &as_zip(&[PAGE, (name.as_bytes(), b"x")]), words);
        assert_refused("a name of 20,000 bytes in a tar", &as_tar(&[PAGE, (name.as_bytes(), b"x")]), words);
        let entries =
            [tar::file("index.html", "x"), tar::pax(&[("linkpath", name.as_bytes())]), tar::link("evil", b'1', "x")];
        let words = &["entry \"evil\" is a hard link to \"../", "which is not an earlier file"];
        assert_refused("a link target of 20,000 bytes", &tar::tar(&entries), words);
    }
    assert_refused(
        "bytes that are no text",
        &as_tar(&[PAGE, (b"../\xff\xfe", b"x")]),
        &["entry \"../\\xff\\xfe\" leaves"],
    );
}

#[test]
fn a_missing_bundle_path_is_exit_code_2() {
    let dir = support::temporary_folder();
    for (verb, more) in [("verify", &[][..]), ("inspect", &[]), ("unpack", &["/nowhere/at/all"])] {
        let output = run_bundle(verb, &[&dir.path().join("absent")], more).expect(2);
        assert_one_line(verb, &output.stderr);
        assert!(output.stderr.contains("absent: No such file or directory"), "{verb}: {}", output.stderr);
    }
}

#[test]
fn a_packed_bundle_is_readable_by_all_users() {
    let dir = support::temporary_folder();
    let site = support::write_site(&dir.path().join("site"), &[("index.html", "home")]);
    for end in ["zip", "tar", "tar.gz"] {
        let to = dir.path().join(format!("bundle.{end}"));
        run_bundle("pack", &[&site, &to], &[]).expect(0);
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&to).expect("it was packed").permissions());
        assert_eq!(mode & 0o777, 0o644, "{end}");
    }
}

#[test]
fn packing_the_same_content_gives_the_same_bytes() {
    let files = [
        ("index.html", "home"),
        ("a/b.css", "b{}"),
        ("a.css", "a{}"),
        (".env", "x"),
        ("\u{e4}/100%.html", "x"),
        ("empty", ""),
    ];
    let large = "0123456789abcdef".repeat(200_000);
    let dir = support::temporary_folder();
    let (first, second) = (dir.path().join("one"), dir.path().join("two"));
    support::write_site(&first, &files);
    support::write_site(&first, &[("large.js", &large)]);
    support::write_site(&second, &[("large.js", &large)]);
    for (at, (name, content)) in files.iter().rev().enumerate() {
        support::write_site(&second, &[(name, content)]);
        let file = fs::File::options().write(true).open(second.join(name)).expect("just written");
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + 86_400 * at as u64))
            .expect("the test owns the file");
    }
    let id = run_bundle("verify", &[&first], &["--json"]).expect(0).json()["version"].clone();
    for end in ["zip", "tar", "tar.gz", "tgz", "tar.zst"] {
        let packed: Vec<Vec<u8>> = [&first, &second, &first]
            .iter()
            .enumerate()
            .map(|(at, site)| {
                let to = dir.path().join(format!("{at}.{end}"));
                let output = run_bundle("pack", &[site, &to], &["--json"]).expect(0);
                assert_eq!((output.stderr.as_str(), &output.json()["version"]), ("", &id), "{end}");
                fs::read(to).expect("it was packed")
            })
            .collect();
        assert!(packed.iter().all(|bytes| *bytes == packed[0]), "{end}: the bytes differ");
        assert_eq!(assert_accepted(end, &packed[0])["version"], id, "{end}");
    }
    let mut names = list_folder(dir.path());
    names.retain(|name| !name.starts_with(['0', '1', '2']));
    assert_eq!(names, ["one", "two"], "unexpected files");
    let output = run_bundle("pack", &[&first, &dir.path().join("bundle.rar")], &[]).expect(2);
    assert_one_line("an unknown kind", &output.stderr);
}
