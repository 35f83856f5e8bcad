//! What sealing makes of a bundle: when a ZIP becomes the image as it is, what lies beside the image, which digest and
//! progress are reported, and the verification of images. Packing is the way back.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use crate::archive_checks::{
    Files, PAGE, as_tar, as_zip, every_kind, expected_tree, list_folder, run_bundle, unpack_archive, write_bundle,
};
use docwharf::base::directory::Directory;
use docwharf::base::error_chain::ErrorChain;
use docwharf::base::growing_file::WriteProgress;
use docwharf::bundle::format::{self, RecognizedArchive};
use docwharf::bundle::{BundleKind, BundleReader};
use docwharf::codec::inflate::{InflateStatus, Inflater};
use docwharf::model::digest::Digest;
use docwharf::model::limits::BundleLimits;
use docwharf::seal::{
    IMAGE_FILE_NAME, ImageTarget, SealError, SealOptions, SealProgress, SealedBundle, seal, seal_growing_archive,
    seal_opened, verify, verify_image, verify_slowly,
};
use docwharf::site::index::EntryCompression;
use support::zip::{Member, RawMember, archive, deflated, stored, zip};
use support::{docwharf, run_to_end, tar, temporary_folder, write_site};

fn default_options() -> SealOptions {
    SealOptions::new(BundleLimits::default())
}

/// Seals the archive into the folder that it is in.
fn seal_archive(bytes: &[u8]) -> (tempfile::TempDir, SealedBundle) {
    let (dir, file) = write_bundle(bytes);
    let target = ImageTarget::Dir(Directory::open(dir.path()).expect("the folder exists"));
    let sealed = seal(&file, &target, &default_options(), &SealProgress::default()).expect("the bundle is good");
    (dir, sealed)
}

#[test]
fn a_zip_becomes_the_image_unless_a_twentieth_of_it_is_text_without_compression() {
    // The members take 100,113 bytes and the text.
    let beside_a_picture = |length: usize| {
        vec![stored("index.html", "<p>"), stored("p.png", &"p".repeat(100_000)), stored("a.css", &"a".repeat(length))]
    };
    let short_texts = |length: usize| -> Vec<Member> {
        let names = (0..50).map(|n| format!("{n:02}.css"));
        names.map(|name| stored(&name, &"a".repeat(length))).chain([stored("index.html", "<p>")]).collect()
    };
    for (case, members, is_adopted) in [
        ("compressed text alone", vec![deflated("index.html", &"<p>".repeat(5000))], true),
        ("less than a twentieth", beside_a_picture(5269), true),
        ("a twentieth", beside_a_picture(5270), false),
        ("texts of 1 KiB", short_texts(1024), true),
        ("texts over 1 KiB", short_texts(1025), false),
        ("a picture and a short page", vec![stored("index.html", "<p>"), stored("p.png", &"p".repeat(9))], true),
    ] {
        let bytes = zip(&members);
        let (dir, sealed) = seal_archive(&bytes);
        let image = fs::read(dir.path().join(IMAGE_FILE_NAME)).expect("the image was written");
        assert_eq!((sealed.adopted, image == bytes), (is_adopted, is_adopted), "{case}");
        assert_eq!(sealed.image_len, image.len() as u64, "{case}");
        assert_eq!(list_folder(dir.path()), ["bundle", IMAGE_FILE_NAME], "{case}: the received ZIP is removed");
        // The archive that was received, not the image that was made of it.
        assert_eq!(sealed.verified.archive, Some((Digest::compute(&bytes), bytes.len() as u64)), "{case}");
    }
}

/// Seals a ZIP that was downloaded to `downloads/bundle` into the folder `target` beside `downloads`. `interfere` is
/// called after the file was opened.
fn seal_download(bytes: &[u8], interfere: impl FnOnce(&Path)) -> (tempfile::TempDir, Result<SealedBundle, SealError>) {
    let dir = temporary_folder();
    let [downloads, target] = ["downloads", "target"].map(|name| {
        let path = dir.path().join(name);
        fs::create_dir(&path).expect("a folder");
        Directory::open(&path).expect("the folder exists")
    });
    let path = downloads.path().join("bundle");
    fs::write(&path, bytes).expect("files can be written");
    let file = File::open(&path).expect("it was written");
    interfere(&path);
    let location = Some((&downloads, OsStr::new("bundle")));
    let target = ImageTarget::Dir(target);
    let sealed = seal_opened(file, &path, location, &target, &default_options(), &SealProgress::default());
    (dir, sealed)
}

#[test]
fn a_downloaded_zip_is_moved_and_no_other_file_and_none_with_a_hard_link_becomes_the_image() {
    let text = "<p>".repeat(500);
    for (case, bytes, is_adopted) in [
        ("a ZIP that becomes the image", zip(&[deflated("index.html", &text)]), true),
        ("a ZIP that is written anew", zip(&[stored("index.html", &text)]), false),
    ] {
        let mut inode = 0;
        let (dir, sealed) = seal_download(&bytes, |path| inode = fs::metadata(path).expect("a file").ino());
        let sealed = sealed.expect("the bundle is good");
        assert_eq!(sealed.adopted, is_adopted, "{case}");
        assert_eq!(sealed.verified.archive, Some((Digest::compute(&bytes), bytes.len() as u64)), "{case}");
        assert_eq!(list_folder(&dir.path().join("downloads")), Vec::<String>::new(), "{case}");
        assert_eq!(list_folder(&dir.path().join("target")), [IMAGE_FILE_NAME], "{case}");
        let image = fs::metadata(dir.path().join("target").join(IMAGE_FILE_NAME)).expect("the image was written");
        assert_eq!(image.ino() == inode, is_adopted, "{case}: moved, not copied");
        let refusal = |interfere: &dyn Fn(&Path)| {
            let (_dir, sealed) = seal_download(&bytes, interfere);
            ErrorChain(&sealed.expect_err(case)).to_string()
        };
        // A process that has another name for the file could write to the sealed image.
        let hard_link_refusal =
            refusal(&|path| fs::hard_link(path, path.with_file_name("other")).expect("a hard link"));
        assert!(
            hard_link_refusal.ends_with("it has a second name (a hard link); remove it"),
            "{case}: {hard_link_refusal}"
        );
        let replaced = refusal(&|path| {
            fs::rename(path, path.with_file_name("other")).expect("files can be renamed");
            fs::write(path, &bytes).expect("files can be written");
        });
        assert!(replaced.contains("another process replaced the file while it was being stored"), "{case}: {replaced}");
    }
}

#[test]
fn an_archive_that_could_not_be_written_to_its_end_is_not_read_as_a_shorter_one() {
    // A plain tar may end after any entry.
    let bytes = tar::blocks(&[tar::file("index.html", "<p>")]);
    for is_complete in [true, false] {
        let (_dir, path) = write_bundle(&bytes);
        let growth = Arc::new(WriteProgress::growing(bytes.len() as u64));
        let file = File::open(&path).expect("it was written");
        let opened = format::open_growing_archive(file, &path, &BundleLimits::default(), &growth).expect("a tar");
        let RecognizedArchive::Tar(BundleKind::Tar, mut reader) = opened else { panic!("it is a plain tar") };
        if is_complete {
            growth.mark_complete();
        } else {
            growth.mark_failed();
        }
        assert!(reader.next_entry().expect("the page has arrived").is_some());
        match reader.next_entry() {
            Ok(end) => assert!(is_complete && end.is_none(), "{end:?}"),
            Err(error) => {
                let expected = format!("cannot read {}: the file could not be written to its end", path.display());
                assert_eq!((ErrorChain(&error).to_string(), is_complete), (expected, false));
            }
        }
    }
}

#[test]
fn a_bundle_is_sealed_while_it_downloads_unless_it_has_a_hard_link_or_is_a_zip_or_no_byte_arrived() {
    let (in_tar, in_zip) = (as_tar(&[PAGE]), as_zip(&[PAGE]));
    for (case, bytes, has_hard_link, expected) in [
        ("a tar", &in_tar, false, Ok(true)),
        ("a tar in gzip", &tar::gzip(&in_tar), false, Ok(true)),
        ("a ZIP", &in_zip, false, Ok(false)),
        ("no byte", &Vec::new(), false, Ok(false)),
        ("a hard link", &in_tar, true, Err("it has a second name (a hard link); remove it")),
    ] {
        let (dir, path) = write_bundle(bytes);
        if has_hard_link {
            fs::hard_link(&path, dir.path().join("other")).expect("a hard link");
        }
        let growth = Arc::new(WriteProgress::growing(bytes.len() as u64));
        growth.mark_complete();
        let directory = Directory::open(dir.path()).expect("the folder exists");
        let target = ImageTarget::Unlinked(dir.path().to_owned());
        let location = (&directory, OsStr::new("bundle"));
        let sealed = seal_growing_archive(location, &growth, &target, &default_options(), &SealProgress::default());
        match (sealed, expected) {
            (Ok(sealed), Ok(is_sealed)) => assert_eq!(sealed.is_some(), is_sealed, "{case}"),
            (Err(error), Err(end)) => assert!(ErrorChain(&error).to_string().ends_with(end), "{case}: {error:?}"),
            (sealed, _) => panic!("{case}: {sealed:?}"),
        }
    }
}

#[test]
fn a_disk_that_fills_up_while_a_bundle_is_unpacked_leaves_the_target_as_it_was() {
    // The image is small, and the file that is unpacked from it is not.
    let large = "x".repeat(3 << 20);
    let archive = as_zip(&[PAGE, (b"a/large.txt", large.as_bytes()), (b"b.html", b"x")]);
    for exists in [false, true] {
        let (dir, file) = write_bundle(&archive);
        let target = dir.path().join("target");
        if exists {
            fs::create_dir(&target).expect("a folder");
        }
        let program = docwharf();
        let mut limited = Command::new("bash");
        limited.args(["-c", "trap '' XFSZ; ulimit -f 1024; exec \"$@\"", "bash"]).arg(program.get_program());
        for (name, _) in program.get_envs().filter(|(_, value)| value.is_none()) {
            limited.env_remove(name);
        }
        let output = run_to_end(limited.args(["bundle", "unpack"]).args([&file, &target])).expect(8);
        assert!(output.stderr.contains("target/a/large.txt: File too large"), "{}", output.stderr);
        let expected: &[&str] = if exists { &["bundle", "target"] } else { &["bundle"] };
        assert_eq!(list_folder(dir.path()), expected);
        assert!(!exists || list_folder(&target).is_empty());
    }
}

#[test]
fn the_digest_of_an_archive_is_that_of_all_its_bytes_whatever_its_kind() {
    let files: &Files<'_> = &[PAGE, (b"a/b.css", b"a{b:c}"), (b"empty", b"")];
    let padded = [as_tar(files), vec![0; 9000]].concat();
    let more = [
        ("gzip with padding", [tar::gzip(&padded), vec![0; 3000]].concat()),
        ("zstd with a checksum", tar::zstd_with_checksum(&padded)),
        ("padded tar", padded),
    ];
    for (kind, bytes) in every_kind(files).into_iter().chain(more) {
        let expected = Some((Digest::compute(&bytes), bytes.len() as u64));
        let (_dir, sealed) = seal_archive(&bytes);
        assert_eq!(sealed.verified.archive, expected, "{kind}: sealed");
        let (_dir, file) = write_bundle(&bytes);
        let verified = verify(&file, &default_options(), &SealProgress::default()).expect("the bundle is good");
        assert_eq!((verified.archive, verified.id), (expected, sealed.verified.id), "{kind}: verified");
    }
}

#[test]
fn an_image_is_verified_without_the_limits_of_bundles_and_at_the_pace_of_its_content() {
    let text = "some text ".repeat(70_000);
    let files: &Files<'_> = &[PAGE, (b"a.txt", text.as_bytes()), (b"p.png", b"picture")];
    let content_len = files.iter().map(|(_, content)| content.len() as u64).sum::<u64>();
    let (dir, sealed) = seal_archive(&as_tar(files));
    let path = dir.path().join(IMAGE_FILE_NAME);
    // An operator may lower the limits while versions are stored.
    let limits = BundleLimits { entries: 1, unpacked: 1, archive: 1, entry: 1 };
    let verified = verify_image(&path, &SealOptions::new(limits)).expect("limits are for what is received");
    assert_eq!(verified.id, sealed.verified.id);
    let mut paced = 0;
    let image = File::open(&path).expect("the image was written");
    let verified = verify_slowly(image, &path, &mut |bytes| paced += bytes).expect("the image is good");
    assert_eq!((verified.id, paced), (sealed.verified.id, content_len));
}

#[test]
fn files_of_a_folder_keep_their_times_and_times_in_an_archive_are_ignored() {
    let large = "0123456789abcdef".repeat(200_000);
    let names = ["index.html", "empty.txt", "a/large.js", "a/large.png"];
    let contents = ["<p>", "", &large, &large];
    let dir = temporary_folder();
    let site = dir.path().join("site");
    for (n, (name, content)) in (1..).zip(names.into_iter().zip(contents)) {
        write_site(&site, &[(name, content)]);
        let file = File::options().write(true).open(site.join(name)).expect("it was written");
        file.set_modified(UNIX_EPOCH + Duration::from_millis(300_000_000_999 * n)).expect("the test owns the file");
    }
    let files = || names.into_iter().zip(contents);
    let in_tar: Vec<tar::TarEntry> =
        files().map(|(name, content)| tar::file(name, content).with(136, b"14000000000\0")).collect();
    let archive = dir.path().join("bundle");
    fs::write(&archive, tar::tar(&in_tar)).expect("files can be written");
    let target = ImageTarget::Unlinked(dir.path().to_owned());
    let times = |path: &Path| {
        let progress = SealProgress::default();
        let verified = verify(path, &default_options(), &progress).expect("the bundle is good");
        let sealed = seal(path, &target, &default_options(), &progress).expect("the bundle is good");
        [verified, sealed.verified].map(|bundle| {
            names.map(|name| {
                let file = bundle.files.iter().find(|(path, _)| path.as_bytes() == name.as_bytes());
                file.expect("a file of the site").1.modified
            })
        })
    };
    assert_eq!(times(&site), [[300_000_000, 600_000_001, 900_000_002, 1_200_000_003]; 2]);
    assert_eq!(times(&archive), [[0; 4]; 2]);
}

#[test]
fn an_image_has_the_same_bytes_however_many_threads_compress_it() {
    // Each file is a batch of its own, and every second one takes a worker no time.
    let text = support::sample_text(400_000);
    let names: Vec<String> = (0..24).map(|n| format!("{n:02}.{}", if n % 2 == 0 { "txt" } else { "png" })).collect();
    let mut files: Vec<(&[u8], &[u8])> = names.iter().map(|name| (name.as_bytes(), text.as_bytes())).collect();
    files.push(PAGE);
    let (dir, file) = write_bundle(&as_tar(&files));
    let images = [1usize, 2, 8].map(|threads| {
        let folder = dir.path().join(threads.to_string());
        fs::create_dir(&folder).expect("a folder");
        let target = ImageTarget::Dir(Directory::open(&folder).expect("the folder exists"));
        let options = SealOptions { threads, ..default_options() };
        seal(&file, &target, &options, &SealProgress::default()).expect("the bundle is good");
        fs::read(folder.join(IMAGE_FILE_NAME)).expect("the image was written")
    });
    assert!(images[1] == images[0] && images[2] == images[0], "the bytes depend on the number of threads");
}

#[test]
fn each_record_of_an_image_describes_the_bytes_of_its_file() {
    // Compressed, the large text is longer than each buffer.
    let large = support::sample_text(4 << 20);
    let files: &Files<'_> = &[
        PAGE,
        (b"a.css", b"a{b:c}a{b:c}a{b:c}a{b:c}"),
        (b"large.txt", large.as_bytes()),
        (b"large.png", large.as_bytes()),
        (b"empty", b""),
    ];
    let linked = tar::tar(&[
        tar::raw_entry(PAGE.0, b'0', PAGE.1),
        tar::file("large.txt", &large),
        tar::file("large.png", &large),
        tar::link("copy.txt", b'1', "large.txt"),
        tar::link("copy.png", b'1', "large.png"),
    ]);
    for (kind, bytes) in every_kind(files).into_iter().chain([("tar with hard links", linked)]) {
        let (dir, sealed) = seal_archive(&bytes);
        let image = fs::read(dir.path().join(IMAGE_FILE_NAME)).expect("the image was written");
        for (path, entry) in &sealed.verified.files {
            let case = format!("{kind}: {path:?}");
            let coded = &image[entry.offset as usize..][..entry.compressed_len as usize];
            let mut expected = (0, 0, 0);
            let content = if entry.compression == EntryCompression::Stored {
                coded.to_vec()
            } else {
                let mut inflate = Inflater::new();
                let (mut consumed, mut content) = (0, Vec::new());
                loop {
                    let step = inflate.run(&coded[consumed..], true).expect("the stream is good");
                    consumed += step.consumed;
                    content.extend_from_slice(inflate.output());
                    if step.status == InflateStatus::Done {
                        break;
                    }
                }
                assert_eq!(consumed, coded.len(), "{case}");
                expected = (crc32fast::hash(coded), inflate.last_block_bit(), inflate.spare_bits());
                content
            };
            assert_eq!((entry.compressed_crc, entry.last_block_bit, entry.spare_bits), expected, "{case}");
            let expected = (content.len() as u64, crc32fast::hash(&content), Digest::compute(&content));
            assert_eq!((entry.len, entry.crc, entry.content), expected, "{case}");
        }
    }
}

#[test]
fn progress_counts_each_file_and_all_of_its_content() {
    let large = "0123456789abcdef".repeat(200_000);
    let files: &Files<'_> = &[PAGE, (b"a/large.js", large.as_bytes()), (b"a/large.png", large.as_bytes()), (b"b", b"")];
    let folders: &Files<'_> = &[(b"a/", b""), (b"empty/", b"")];
    let with_folders = as_zip(&[folders, files].concat());
    let expected = (4, (PAGE.1.len() + 2 * large.len()) as u64);
    for (kind, bytes) in every_kind(files).into_iter().chain([("zip with folders", with_folders)]) {
        let (dir, file) = write_bundle(&bytes);
        let (sealing, verifying) = (SealProgress::default(), SealProgress::default());
        verify(&file, &default_options(), &verifying).expect("the bundle is good");
        let target = ImageTarget::Unlinked(dir.path().to_owned());
        seal(&file, &target, &default_options(), &sealing).expect("the bundle is good");
        for progress in [verifying, sealing] {
            assert_eq!((progress.files(), progress.bytes()), expected, "{kind}");
        }
    }
}

#[test]
fn of_several_faulty_members_the_first_is_named_however_many_threads_verify() {
    // The fault of the large member is known only at its end, long after that of the small one.
    let faulty = |name: &str, length: usize| {
        let content = vec![b'x'; length];
        let member = RawMember::from_member(&Member { name: name.into(), content, deflate: false });
        member.change_both_headers(|header| header.crc ^= 1)
    };
    let bytes = archive(&[stored("index.html", "<p>")]).with(faulty("large.png", 8 << 20)).with(faulty("small.png", 9));
    let (_dir, file) = write_bundle(&bytes.bytes());
    for threads in [1, 2, 4] {
        let options = SealOptions { threads, ..default_options() };
        let error = verify(&file, &options, &SealProgress::default()).expect_err("two checksums are wrong");
        let error = ErrorChain(&error).to_string();
        assert!(error.ends_with("entry \"large.png\" does not match its checksum"), "{threads}: {error}");
    }
}

/// Returns a path of `length` bytes whose components have up to 199 bytes.
fn path_of(length: usize) -> String {
    (0..length).map(|at| if at % 200 == 199 && at + 1 < length { '/' } else { 'n' }).collect()
}

// Regression: packing a file whose name is not UTF-8 into a ZIP failed with the advice to pack it again when nothing
// writes to the folder.
#[test]
fn a_name_that_is_not_utf8_is_packed_into_a_tar_and_named_where_a_zip_is_asked_for() {
    let dir = temporary_folder();
    let site = write_site(&dir.path().join("site"), &[("index.html", "<p>home")]);
    let name = b"caf\xe9.html";
    fs::write(site.join(OsStr::from_bytes(name)), "<p>latin").expect("files can be written");
    let to = |name: &str| dir.path().join(name);
    let output = run_bundle("pack", &[&site, &to("bundle.zip")], &[]).expect(2);
    let expected = "\"caf\\xe9.html\" has a name that is not UTF-8, which a ZIP cannot hold";
    assert!(output.stderr.contains(expected), "{}", output.stderr);
    assert_eq!(list_folder(dir.path()), ["site"]);
    run_bundle("pack", &[&site, &to("bundle.tar.gz")], &[]).expect(0);
    let bytes = fs::read(to("bundle.tar.gz")).expect("it was packed");
    let files: &Files<'_> = &[(b"index.html", b"<p>home"), (name, b"<p>latin")];
    assert_eq!(unpack_archive("tar.gz", &bytes, &[]), expected_tree(files));
}

#[test]
fn packing_keeps_names_and_contents_of_any_length() {
    // Names over 100 bytes are in a PAX record, whose length includes its own digits.
    let names = [1, 99, 100, 101, 155, 256, 989, 990, 991, 992].map(path_of);
    let contents = [0, 1, 511, 512, 513, 1024, 1025, 0, 3, 70_000].map(|length| "c".repeat(length));
    let mut files: Vec<(&str, &str)> = vec![("index.html", "<p>home")];
    files.extend(names.iter().map(String::as_str).zip(contents.iter().map(String::as_str)));
    let dir = temporary_folder();
    let site = write_site(&dir.path().join("site"), &files);
    let packed: Vec<(&[u8], &[u8])> =
        files.iter().map(|(name, content)| (name.as_bytes(), content.as_bytes())).collect();
    for end in ["zip", "tar", "tar.gz", "tar.zst", "ZIP", "Tar", "TGZ", "tar.Zst"] {
        let to = dir.path().join(format!("bundle.{end}"));
        run_bundle("pack", &[&site, &to], &[]).expect(0);
        let bytes = fs::read(&to).expect("it was packed");
        assert_eq!(unpack_archive(end, &bytes, &[]), expected_tree(&packed), "{end}");
    }
}
