//! Every limit of an archive, just below its bound, at it and above it, and the resources that it protects: memory and
//! disk space.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::archive_checks::{
    Files, PAGE, assert_accepted, assert_one_line, assert_refused, every_kind, list_folder, run_bundle, verify_path,
    verify_with_limits,
};
use docwharf::model::limits::{BundleLimits, MAX_TOTAL_PATH_BYTES};
use docwharf::model::site_path::{MAX_COMPONENT_BYTES, MAX_PATH_BYTES};
use support::host::run_and_measure;
use support::zip::{Member, RawArchive, RawMember, archive, stored};
use support::{docwharf, run_to_end, tar, temporary_folder};

const MIB: usize = 1 << 20;

/// Bytes that do not compress.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Returns a command for docwharf that cannot write a file of more than `bytes` bytes.
fn command_with_file_limit(bytes: u64, arguments: &[&str]) -> Command {
    let program = docwharf();
    let mut command = Command::new("prlimit");
    command.arg(format!("--fsize={bytes}:{bytes}")).arg(program.get_program()).args(arguments);
    for (name, _) in program.get_envs().filter(|(_, value)| value.is_none()) {
        command.env_remove(name);
    }
    command
}

/// A function that returns the limits with one of them set.
type LimitSetter<'a> = &'a dyn Fn(u64) -> BundleLimits;

#[test]
fn each_bundle_limit_accepts_its_bound_and_refuses_one_more() {
    let dir = temporary_folder();
    let (file, site) = (dir.path().join("bundle"), dir.path().join("site"));
    let text = noise(5000);
    let files: &Files<'_> = &[PAGE, (b"a", &text), (b"b", &text)];
    fs::create_dir(&site).expect("a folder");
    for (name, content) in files {
        fs::write(site.join(&*String::from_utf8_lossy(name)), content).expect("files can be written");
    }
    let total = (10_000 + PAGE.1.len()) as u64;
    for (kind, archive) in every_kind(files).into_iter().chain([("folder", Vec::new())]) {
        let fits = BundleLimits { entries: 3, unpacked: total, archive: archive.len() as u64, entry: 5000 };
        // Without `..`, so that a new limit that is not tested here is a compile error.
        let BundleLimits { entries, unpacked, archive: length, entry } = fits;
        let verify_kind = |limits: BundleLimits| match kind {
            "folder" => verify_path(kind, &site, limits),
            _ => verify_with_limits(kind, &file, &archive, limits),
        };
        let id = verify_kind(BundleLimits::default()).expect("the default limits are larger");
        let table: [(&str, u64, LimitSetter<'_>); 4] = [
            ("limits.entries", entries, &|entries| BundleLimits { entries, ..fits }),
            ("limits.unpacked", unpacked, &|unpacked| BundleLimits { unpacked, ..fits }),
            ("limits.entry", entry, &|entry| BundleLimits { entry, ..fits }),
            ("limits.archive", length, &|archive| BundleLimits { archive, ..fits }),
        ];
        // A folder is no archive.
        for (name, bound, with) in table.into_iter().filter(|(name, ..)| (kind, *name) != ("folder", "limits.archive"))
        {
            assert_eq!(verify_kind(with(bound + 1)), Ok(id.clone()), "{kind}: {name}: just below");
            assert_eq!(verify_kind(with(bound)), Ok(id.clone()), "{kind}: {name}: at the bound");
            let error = verify_kind(with(bound - 1)).expect_err(name);
            assert!(error.contains(&format!("({name})")), "{kind}: {name}: {error}");
        }
    }
}

#[test]
fn folders_count_as_entries() {
    let dir = temporary_folder();
    let (file, site) = (dir.path().join("bundle"), dir.path().join("site"));
    fs::create_dir_all(site.join("a/b")).expect("folders");
    fs::write(site.join("index.html"), PAGE.1).expect("files can be written");
    let folders = [tar::entry("a/", b'5', b""), tar::entry("a/b/", b'5', b""), tar::raw_entry(PAGE.0, b'0', PAGE.1)];
    let in_tar = tar::tar(&folders);
    let in_zip = archive(&[stored("a/", ""), stored("a/b/", ""), stored("index.html", "x")]).bytes();
    for (kind, bytes) in
        [("folder", None), ("zip", Some(in_zip)), ("tar.gz", Some(tar::gzip(&in_tar))), ("tar", Some(in_tar))]
    {
        let verify_kind = |entries| {
            let limits = BundleLimits { entries, ..BundleLimits::default() };
            match &bytes {
                Some(bytes) => verify_with_limits(kind, &file, bytes, limits),
                None => verify_path(kind, &site, limits),
            }
        };
        assert!(verify_kind(3).is_ok(), "{kind}");
        let error = verify_kind(2).expect_err(kind);
        assert!(error.contains("has over 2 entries (limits.entries)"), "{kind}: {error}");
    }
}

#[test]
fn a_folder_of_any_depth_needs_few_open_files() {
    let dir = temporary_folder();
    let site = dir.path().join("site");
    let deepest = site.join("d/".repeat(120));
    fs::create_dir_all(&deepest).expect("folders");
    for folder in [&site, &deepest] {
        fs::write(folder.join("index.html"), PAGE.1).expect("files can be written");
    }
    let program = docwharf();
    let mut command = Command::new("prlimit");
    command.arg("--nofile=64:64").arg(program.get_program()).args(["bundle", "verify"]).arg(&site);
    for (name, _) in program.get_envs().filter(|(_, value)| value.is_none()) {
        command.env_remove(name);
    }
    let output = run_to_end(&mut command).expect(0);
    assert!(output.stdout.contains("(2 pages, 2 files, "), "{}", output.stdout);
}

#[test]
fn paths_components_and_pax_headers_have_fixed_bounds() {
    let path = |length: usize| -> Vec<u8> {
        (0..length).map(|at| if at % 200 == 100 && at + 1 < length { b'/' } else { b'p' }).collect()
    };
    let component = |length: usize| -> Vec<u8> { [&b"a/"[..], &vec![b'c'; length], b"/b"].concat() };
    let long = format!("a path over {MAX_PATH_BYTES} bytes");
    let wide = format!("a component over {MAX_COMPONENT_BYTES} bytes");
    for below in [1, 0] {
        for name in [path(MAX_PATH_BYTES - below), component(MAX_COMPONENT_BYTES - below)] {
            for (kind, archive) in every_kind(&[(&name, b"x"), PAGE]) {
                assert_accepted(&format!("{kind}: {} bytes", name.len()), &archive);
            }
        }
    }
    for (name, expected) in [(path(MAX_PATH_BYTES + 1), &long), (component(MAX_COMPONENT_BYTES + 1), &wide)] {
        for (kind, archive) in every_kind(&[(&name, b"x"), PAGE]) {
            assert_refused(kind, &archive, &["entry \"", expected]);
        }
    }
    // A PAX header is stored in memory until its entry is read.
    let around = |records: &[u8]| tar::tar(&[tar::pax_bytes(records), tar::file("index.html", "x")]);
    let frame = "1048576 comment=\n".len();
    for (case, length) in [("just below", MIB - 1), ("at the bound", MIB)] {
        let records = tar::pax_record("comment", &vec![b'c'; length - frame]);
        assert_eq!(records.len(), length);
        assert_accepted(case, &around(&records));
    }
    assert_refused("over 1 MiB", &around(&tar::pax_record("comment", &vec![b'c'; MIB + 1 - frame])), &["over 1 MiB"]);
}

/// Returns names of `longest` bytes, the last one shorter. With the name of the page they have `total` bytes. Each
/// begins with its number, so that no name occurs twice.
fn file_names(total: u64, longest: usize) -> impl Iterator<Item = Vec<u8>> {
    let (mut remaining, mut number) = (total as usize - PAGE.0.len(), 0);
    std::iter::from_fn(move || {
        let length = remaining.min(longest);
        remaining -= length;
        number += 1;
        let mut name = format!("{number:06}/").into_bytes();
        name.extend((name.len()..length).map(|at| if at % 200 == 0 && at + 1 < length { b'/' } else { b'n' }));
        (length > 0).then_some(name)
    })
}

/// Writes a ZIP of empty files with these names and of the page, without the whole archive in memory.
fn write_zip(file: &Path, names: impl Iterator<Item = Vec<u8>>) {
    let mut writer = BufWriter::new(File::create(file).expect("files can be made"));
    let (mut local, mut central) = (Vec::new(), Vec::new());
    let (mut at, mut count) = (0, 0);
    let members = names.map(|name| Member { name, ..Member::default() });
    for member in members.chain([stored("index.html", "x")]) {
        let raw = RawMember::from_member(&member);
        local.clear();
        raw.put_local(&mut local);
        raw.put_central(at, &mut central);
        writer.write_all(&local).expect("files can be written");
        at += local.len() as u32;
        count += 1;
    }
    let (entries, size) = (Some(count), Some(central.len() as u32));
    let ending =
        RawArchive { entries_on_disk: entries, total: entries, size, start: Some(at), ..RawArchive::default() }.bytes();
    writer
        .write_all(&central)
        .and_then(|()| writer.write_all(&ending))
        .and_then(|()| writer.flush())
        .expect("files can be written");
}

/// Writes a tar of empty files with these names, as PAX paths, and of the page.
fn write_tar(file: &Path, names: impl Iterator<Item = Vec<u8>>) {
    let mut writer = BufWriter::new(File::create(file).expect("files can be made"));
    for name in names {
        writer.write_all(&tar::blocks(&tar::any_file(&name, b""))).expect("files can be written");
    }
    let ending = tar::tar(&[tar::file("index.html", "x")]);
    writer.write_all(&ending).and_then(|()| writer.flush()).expect("files can be written");
}

/// Creates a folder with a configuration that sets one limit.
fn folder_with_config(key: &str, value: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = temporary_folder();
    let config = dir.path().join("c.toml");
    fs::write(&config, format!("[store]\npath = \"store\"\n[limits]\n{key} = {value}\n"))
        .expect("files can be written");
    (dir, config)
}

#[test]
fn an_archive_with_over_64_mib_of_names_is_refused() {
    let dir = temporary_folder();
    let file = dir.path().join("bundle");
    let file_argument = file.display().to_string();
    for kind in ["zip", "tar"] {
        let write = |total: u64| match kind {
            "zip" => write_zip(&file, file_names(total, MAX_PATH_BYTES)),
            _ => write_tar(&file, file_names(total, MAX_PATH_BYTES)),
        };
        // At the bound, each name is in memory up to four times: as the bytes in the archive, as a checked path, and in
        // the lists of files while the tree is checked and the version id is computed.
        write(MAX_TOTAL_PATH_BYTES);
        let (peak_memory, output) =
            run_and_measure(|| command_with_file_limit(0, &["bundle", "verify", &file_argument]));
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{kind}: {output:?}");
        assert!((1..384 * 1024).contains(&peak_memory), "{kind}: {peak_memory} KiB");
        write(MAX_TOTAL_PATH_BYTES + 1);
        let (peak_memory, output) =
            run_and_measure(|| command_with_file_limit(0, &["bundle", "verify", &file_argument]));
        assert_eq!(output.code, Some(5), "{kind}: {output:?}");
        assert!(output.stderr.contains("the bundle has over 67 MB of names"), "{kind}: {}", output.stderr);
        assert_one_line(kind, &output.stderr);
        assert!((1..256 * 1024).contains(&peak_memory), "{kind}: {peak_memory} KiB");
    }
}

#[test]
fn an_archive_over_limits_entries_is_refused_in_64_mib_of_memory() {
    let (dir, config) = folder_with_config("entries", "1000");
    let file = dir.path().join("bundle");
    let (file_argument, config) = (file.display().to_string(), config.display().to_string());
    for kind in ["zip", "tar"] {
        // 60,000 entries, below the bound for names. Without the limit they need 240 MB.
        match kind {
            "zip" => write_zip(&file, file_names(60_000_000, 1000)),
            _ => write_tar(&file, file_names(60_000_000, 1000)),
        }
        let (peak_memory, output) =
            run_and_measure(|| command_with_file_limit(0, &["bundle", "verify", &file_argument, "--config", &config]));
        assert_eq!(output.code, Some(5), "{kind}: {output:?}");
        assert!(output.stderr.contains("has over 1000 entries (limits.entries)"), "{kind}: {}", output.stderr);
        assert!((1..64 * 1024).contains(&peak_memory), "{kind}: {peak_memory} KiB");
    }
}

/// Returns an archive whose headers declare members of these sizes besides the page of one byte; the content is
/// missing.
fn archive_with_declared_sizes(sizes: &[u32]) -> Vec<u8> {
    let mut all = archive(&[stored("index.html", "x")]);
    for (number, &size) in sizes.iter().enumerate() {
        let member = RawMember::from_member(&stored(&format!("{number}.png"), ""));
        all.members.push(member.change_both_headers(|header| (header.size, header.coded) = (size, size)));
    }
    all.bytes()
}

#[test]
fn the_default_limits_are_those_of_the_readme() {
    const GIB: u64 = 1 << 30;
    let dir = temporary_folder();
    let (file, config) = (dir.path().join("bundle"), dir.path().join("empty.toml"));
    fs::write(&config, "").expect("files can be written");
    let config = config.display().to_string();
    let verdict = |case: &str| {
        let output = run_bundle("verify", &[&file], &["--config", &config]).expect(5);
        assert_one_line(case, &output.stderr);
        output.stderr
    };
    // Files with holes, which need no disk space. At the bound, a later check refuses the file.
    for (length, expected) in [(4 * GIB, "no ZIP end record at its end"), (4 * GIB + 1, "(limits.archive)")] {
        fs::write(&file, b"PK\x03\x04").expect("files can be written");
        let opened = File::options().write(true).open(&file).and_then(|file| file.set_len(length));
        opened.expect("a file may have holes");
        let error = verdict("archive");
        assert!(error.contains(expected), "{length}: {error}");
    }
    let two = 2 << 30;
    let many = |count| {
        let page = archive(&[stored("index.html", "x")]);
        RawArchive { zip64: true, zip64_total: Some(count), ..page }.bytes()
    };
    let table = [
        ("a file at the bound", archive_with_declared_sizes(&[two]), "entry \"0.png\" overlaps"),
        ("a file over it", archive_with_declared_sizes(&[two + 1]), "entry \"0.png\" is over 2.1 GB (limits.entry)"),
        ("content at the bound", archive_with_declared_sizes(&[two, two, two, two - 1]), "entry \"0.png\" overlaps"),
        ("content over it", archive_with_declared_sizes(&[two, two, two, two]), "(limits.unpacked)"),
        ("entries at the bound", many(200_000), "its directory holds less than the end record counts"),
        ("entries over it", many(200_001), "has over 200000 entries (limits.entries)"),
    ];
    for (case, archive, expected) in table {
        fs::write(&file, archive).expect("files can be written");
        let error = verdict(case);
        assert!(error.contains(expected), "{case}: {error}");
    }
}

#[test]
fn import_and_unpack_write_no_more_than_a_limit_allows_and_leave_no_files() {
    // A picture is sealed uncompressed.
    let pictures = |content: &[u8]| -> Vec<(Vec<u8>, Vec<u8>)> {
        (0..8).map(|number| (format!("{number}.png").into_bytes(), content.to_vec())).collect()
    };
    let table = [
        ("archive", "\"1MiB\"", pictures(&noise(MIB)), 3 * MIB),
        ("unpacked", "\"2MiB\"", pictures(&vec![0; MIB]), 3 * MIB),
        ("entry", "\"1MiB\"", vec![(b"0.png".to_vec(), vec![0; 8 * MIB])], 2 * MIB),
    ];
    for (key, value, files, max_file_bytes) in table {
        let files: Vec<(&[u8], &[u8])> =
            [PAGE].into_iter().chain(files.iter().map(|(name, content)| (&name[..], &content[..]))).collect();
        for (kind, archive) in every_kind(&files) {
            let (dir, config) = folder_with_config(key, value);
            let path = |name: &str| dir.path().join(name).display().to_string();
            fs::write(path("bundle"), &archive).expect("files can be written");
            let config = config.display().to_string();
            for arguments in [&["import", &path("bundle")][..], &["bundle", "unpack", &path("bundle"), &path("target")]]
            {
                let case = format!("{kind}: limits.{key}: {}", arguments[0]);
                let output = run_to_end(&mut command_with_file_limit(
                    max_file_bytes as u64,
                    &[arguments, &["--config", &config]].concat(),
                ));
                assert_eq!(output.code, Some(5), "{case}: {output:?}");
                assert_one_line(&case, &output.stderr);
                assert!(output.stderr.contains(&format!("(limits.{key})")), "{case}: {}", output.stderr);
            }
            for emptied in ["versions", "staging", "receipts", "downloads"] {
                assert!(
                    list_folder(&dir.path().join("store").join(emptied)).is_empty(),
                    "{kind}: limits.{key}: {emptied}"
                );
            }
            assert_eq!(
                list_folder(dir.path()),
                ["bundle", "c.toml", "store"],
                "{kind}: limits.{key}: unexpected files"
            );
        }
    }
}
