//! Every limit of an archive just below its bound, at it and above it, and what it protects: memory and disk.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::verdict::{
    Files, PAGE, accepted, assert_one_line, bundle, every_kind, judge_path, judge_within, listing, refused,
};
use docwharf::model::limits::{BundleLimits, MAX_TOTAL_PATH_BYTES};
use docwharf::model::site_path::{MAX_COMPONENT_BYTES, MAX_PATH_BYTES};
use support::host::finish_child;
use support::zip::{Archive, Member, Raw, archive, stored};
use support::{Ended, docwharf, end, folder, tar};

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

/// The program, which the kernel ends when it makes a file larger than so many bytes.
fn with_room(bytes: u64, arguments: &[&str]) -> Command {
    let program = docwharf();
    let mut command = Command::new("prlimit");
    command.arg(format!("--fsize={bytes}:{bytes}")).arg(program.get_program()).args(arguments);
    for (name, _) in program.get_envs().filter(|(_, value)| value.is_none()) {
        command.env_remove(name);
    }
    command
}

/// The largest resident size of a command in KiB, and how it ended. The kernel keeps the peak until the process ends, so what is
/// missed is at most what it takes up in its last instant; 0 if it was gone too soon.
fn peak(command: &mut Command) -> (u64, Ended) {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    loop {
        let child = command.spawn().expect("docwharf starts");
        let status = PathBuf::from(format!("/proc/{}/status", child.id()));
        let is_over = AtomicBool::new(false);
        let (largest, ended) = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut largest = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let text = fs::read_to_string(&status).unwrap_or_default();
                    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
                    let now = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok()).unwrap_or(0);
                    largest = now.max(largest);
                    std::thread::yield_now();
                }
                largest
            });
            let ended = finish_child(child);
            is_over.store(true, Ordering::Relaxed);
            (watcher.join().expect("reading a file does not panic"), ended)
        });
        // On a busy machine the process can end before anybody has looked at it.
        if largest > 0 {
            return (largest, ended);
        }
    }
}

/// The limits with one of them set.
type With<'a> = &'a dyn Fn(u64) -> BundleLimits;

#[test]
fn every_limit_lets_in_what_is_at_its_bound_and_refuses_one_more() {
    let dir = folder();
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
        // Taken apart, so that a new limit is missed here.
        let BundleLimits { entries, unpacked, archive: length, entry } = fits;
        let within = |limits: BundleLimits| match kind {
            "folder" => judge_path(kind, &site, limits),
            _ => judge_within(kind, &file, &archive, limits),
        };
        let id = within(BundleLimits::default()).expect("the defaults are larger");
        let table: [(&str, u64, With<'_>); 4] = [
            ("limits.entries", entries, &|entries| BundleLimits { entries, ..fits }),
            ("limits.unpacked", unpacked, &|unpacked| BundleLimits { unpacked, ..fits }),
            ("limits.entry", entry, &|entry| BundleLimits { entry, ..fits }),
            ("limits.archive", length, &|archive| BundleLimits { archive, ..fits }),
        ];
        // A folder is no archive.
        for (name, bound, with) in table.into_iter().filter(|(name, ..)| (kind, *name) != ("folder", "limits.archive"))
        {
            assert_eq!(within(with(bound + 1)), Ok(id.clone()), "{kind}: {name}: just below");
            assert_eq!(within(with(bound)), Ok(id.clone()), "{kind}: {name}: at the bound");
            let said = within(with(bound - 1)).expect_err(name);
            assert!(said.contains(&format!("({name})")), "{kind}: {name}: {said}");
        }
    }
}

#[test]
fn a_path_its_components_and_what_is_said_of_an_entry_have_bounds_that_no_configuration_changes() {
    let path = |length: usize| -> Vec<u8> {
        (0..length).map(|at| if at % 200 == 100 && at + 1 < length { b'/' } else { b'p' }).collect()
    };
    let component = |length: usize| -> Vec<u8> { [&b"a/"[..], &vec![b'c'; length], b"/b"].concat() };
    let long = format!("a path over {MAX_PATH_BYTES} bytes");
    let wide = format!("a component over {MAX_COMPONENT_BYTES} bytes");
    for below in [1, 0] {
        for name in [path(MAX_PATH_BYTES - below), component(MAX_COMPONENT_BYTES - below)] {
            for (kind, archive) in every_kind(&[(&name, b"x"), PAGE]) {
                accepted(&format!("{kind}: {} bytes", name.len()), &archive);
            }
        }
    }
    for (name, word) in [(path(MAX_PATH_BYTES + 1), &long), (component(MAX_COMPONENT_BYTES + 1), &wide)] {
        for (kind, archive) in every_kind(&[(&name, b"x"), PAGE]) {
            refused(kind, &archive, &["entry \"", word]);
        }
    }
    // A PAX header is kept in memory until its entry comes.
    let around = |records: &[u8]| tar::tar(&[tar::pax_bytes(records), tar::file("index.html", "x")]);
    let frame = "1048576 comment=\n".len();
    for (what, length) in [("just below", MIB - 1), ("at the bound", MIB)] {
        let records = tar::pax_record("comment", &vec![b'c'; length - frame]);
        assert_eq!(records.len(), length);
        accepted(what, &around(&records));
    }
    refused("over 1 MiB", &around(&tar::pax_record("comment", &vec![b'c'; MIB + 1 - frame])), &["over 1 MiB"]);
}

/// Names of `longest` bytes, the last one shorter, which are with that of the page `total` bytes together. Each begins with
/// its number, so that none is there twice.
fn names(total: u64, longest: usize) -> impl Iterator<Item = Vec<u8>> {
    let (mut left, mut number) = (total as usize - PAGE.0.len(), 0);
    std::iter::from_fn(move || {
        let length = left.min(longest);
        left -= length;
        number += 1;
        let mut name = format!("{number:06}/").into_bytes();
        name.extend((name.len()..length).map(|at| if at % 200 == 0 && at + 1 < length { b'/' } else { b'n' }));
        (length > 0).then_some(name)
    })
}

/// Writes a ZIP of empty files with these names and the page, without having all of it in memory.
fn write_zip(file: &Path, names: impl Iterator<Item = Vec<u8>>) {
    let mut out = BufWriter::new(File::create(file).expect("files can be made"));
    let (mut local, mut central) = (Vec::new(), Vec::new());
    let (mut at, mut count) = (0, 0);
    let members = names.map(|name| Member { name, ..Member::default() });
    for member in members.chain([stored("index.html", "x")]) {
        let raw = Raw::of(&member);
        local.clear();
        raw.put_local(&mut local);
        raw.put_central(at, &mut central);
        out.write_all(&local).expect("files can be written");
        at += local.len() as u32;
        count += 1;
    }
    let (here, size) = (Some(count), Some(central.len() as u32));
    let ending = Archive { here, total: here, size, start: Some(at), ..Archive::default() }.bytes();
    out.write_all(&central).and_then(|()| out.write_all(&ending)).and_then(|()| out.flush()).expect("and ended");
}

/// The same as a tar with PAX paths.
fn write_tar(file: &Path, names: impl Iterator<Item = Vec<u8>>) {
    let mut out = BufWriter::new(File::create(file).expect("files can be made"));
    for name in names {
        out.write_all(&tar::blocks(&tar::any_file(&name, b""))).expect("files can be written");
    }
    let ending = tar::tar(&[tar::file("index.html", "x")]);
    out.write_all(&ending).and_then(|()| out.flush()).expect("files can be written");
}

/// A host's folder with a configuration that sets one limit.
fn host(key: &str, value: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = folder();
    let config = dir.path().join("c.toml");
    fs::write(&config, format!("[store]\npath = \"store\"\n[limits]\n{key} = {value}\n"))
        .expect("files can be written");
    (dir, config)
}

#[test]
fn names_of_an_archive_take_64_mib_together_at_most() {
    let dir = folder();
    let file = dir.path().join("bundle");
    let shown = file.display().to_string();
    for kind in ["zip", "tar"] {
        let write = |total: u64| match kind {
            "zip" => write_zip(&file, names(total, MAX_PATH_BYTES)),
            _ => write_tar(&file, names(total, MAX_PATH_BYTES)),
        };
        // At the bound: each name is there as its archive has it, as a judged path, and in lists of files while the tree
        // is checked and the version is concluded. That is four times the bound.
        write(MAX_TOTAL_PATH_BYTES);
        let (largest, ended) = peak(&mut with_room(0, &["bundle", "verify", &shown]));
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{kind}: {ended:?}");
        assert!((1..384 * 1024).contains(&largest), "{kind}: {largest} KiB");
        write(MAX_TOTAL_PATH_BYTES + 1);
        let (largest, ended) = peak(&mut with_room(0, &["bundle", "verify", &shown]));
        assert_eq!(ended.code, Some(5), "{kind}: {ended:?}");
        assert!(ended.stderr.contains("the archive has over 67 MB of names"), "{kind}: {}", ended.stderr);
        assert_one_line(kind, &ended.stderr);
        assert!((1..256 * 1024).contains(&largest), "{kind}: {largest} KiB");
    }
}

#[test]
fn entries_over_their_limit_take_no_memory() {
    let (dir, config) = host("entries", "1000");
    let file = dir.path().join("bundle");
    let (shown, config) = (file.display().to_string(), config.display().to_string());
    for kind in ["zip", "tar"] {
        // 60,000 of them, below the bound for names: without the limit they take 240 MB.
        match kind {
            "zip" => write_zip(&file, names(60_000_000, 1000)),
            _ => write_tar(&file, names(60_000_000, 1000)),
        }
        let (largest, ended) = peak(&mut with_room(0, &["bundle", "verify", &shown, "--config", &config]));
        assert_eq!(ended.code, Some(5), "{kind}: {ended:?}");
        assert!(ended.stderr.contains("has over 1000 entries (limits.entries)"), "{kind}: {}", ended.stderr);
        assert!((1..64 * 1024).contains(&largest), "{kind}: {largest} KiB");
    }
}

/// An archive that claims members of these sizes beside the page, which is one byte; none of them is there.
fn claims(sizes: &[u32]) -> Vec<u8> {
    let mut all = archive(&[stored("index.html", "x")]);
    for (number, &size) in sizes.iter().enumerate() {
        let member = Raw::of(&stored(&format!("{number}.png"), ""));
        all.members.push(member.both(|header| (header.size, header.coded) = (size, size)));
    }
    all.bytes()
}

#[test]
fn limits_that_nobody_has_set_hold_as_readme_names_them() {
    const GIB: u64 = 1 << 30;
    let dir = folder();
    let (file, config) = (dir.path().join("bundle"), dir.path().join("empty.toml"));
    fs::write(&config, "").expect("files can be written");
    let config = config.display().to_string();
    let verdict = |what: &str| {
        let ended = bundle("verify", &[&file], &["--config", &config]).expect(5);
        assert_one_line(what, &ended.stderr);
        ended.stderr
    };
    // Files with holes, which take no room. At the bound the next rule judges.
    for (length, word) in [(4 * GIB, "no ZIP end record at its end"), (4 * GIB + 1, "(limits.archive)")] {
        fs::write(&file, b"PK\x03\x04").expect("files can be written");
        let opened = File::options().write(true).open(&file).and_then(|file| file.set_len(length));
        opened.expect("a file may have holes");
        let said = verdict("archive");
        assert!(said.contains(word), "{length}: {said}");
    }
    let two = 2 << 30;
    let many = |count| {
        let page = archive(&[stored("index.html", "x")]);
        Archive { wide: true, wide_total: Some(count), ..page }.bytes()
    };
    let table = [
        ("a file at the bound", claims(&[two]), "entry \"0.png\" overlaps"),
        ("a file over it", claims(&[two + 1]), "entry \"0.png\" is over 2.1 GB (limits.entry)"),
        ("content at the bound", claims(&[two, two, two, two - 1]), "entry \"0.png\" overlaps"),
        ("content over it", claims(&[two, two, two, two]), "(limits.unpacked)"),
        ("entries at the bound", many(200_000), "its directory holds less than the end record counts"),
        ("entries over it", many(200_001), "has over 200000 entries (limits.entries)"),
    ];
    for (what, archive, word) in table {
        fs::write(&file, archive).expect("files can be written");
        let said = verdict(what);
        assert!(said.contains(word), "{what}: {said}");
    }
}

#[test]
fn what_is_over_a_limit_is_not_written_beyond_it() {
    // A picture is sealed as it is: nothing of it is saved by compressing it.
    let pictures = |content: &[u8]| -> Vec<(Vec<u8>, Vec<u8>)> {
        (0..8).map(|number| (format!("{number}.png").into_bytes(), content.to_vec())).collect()
    };
    let table = [
        ("archive", "\"1MiB\"", pictures(&noise(MIB)), 3 * MIB),
        ("unpacked", "\"2MiB\"", pictures(&vec![0; MIB]), 3 * MIB),
        ("entry", "\"1MiB\"", vec![(b"0.png".to_vec(), vec![0; 8 * MIB])], 2 * MIB),
    ];
    for (key, value, files, room) in table {
        let files: Vec<(&[u8], &[u8])> =
            [PAGE].into_iter().chain(files.iter().map(|(name, content)| (&name[..], &content[..]))).collect();
        for (kind, archive) in every_kind(&files) {
            let (dir, config) = host(key, value);
            let path = |name: &str| dir.path().join(name).display().to_string();
            fs::write(path("bundle"), &archive).expect("files can be written");
            let config = config.display().to_string();
            for arguments in [&["import", &path("bundle")][..], &["bundle", "unpack", &path("bundle"), &path("target")]]
            {
                let what = format!("{kind}: limits.{key}: {}", arguments[0]);
                let ended = end(&mut with_room(room as u64, &[arguments, &["--config", &config]].concat()));
                assert_eq!(ended.code, Some(5), "{what}: {ended:?}");
                assert_one_line(&what, &ended.stderr);
                assert!(ended.stderr.contains(&format!("(limits.{key})")), "{what}: {}", ended.stderr);
            }
            for emptied in ["versions", "staging", "receipts", "downloads"] {
                assert!(listing(&dir.path().join("store").join(emptied)).is_empty(), "{kind}: limits.{key}: {emptied}");
            }
            assert_eq!(listing(dir.path()), ["bundle", "c.toml", "store"], "{kind}: limits.{key}: litter");
        }
    }
}
