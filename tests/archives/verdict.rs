//! What docwharf says of an archive: through the executable, and in process where thousands are judged.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use docwharf::model::limits::BundleLimits;
use docwharf::seal::{SealOptions, SealProgress, verify};
use serde_json::Value;

use support::{Ended, docwharf, end, folder, tar, zip};

/// A page, so that a bundle is a site.
pub(crate) const PAGE: (&[u8], &[u8]) = (b"index.html", b"<!doctype html><title>Home</title>");

/// Files by path, with content.
pub(crate) type Files<'a> = [(&'a [u8], &'a [u8])];

/// The same files as an archive of each kind.
pub(crate) fn every_kind(files: &Files<'_>) -> [(&'static str, Vec<u8>); 4] {
    let tar = as_tar(files);
    [("zip", as_zip(files)), ("tar.gz", tar::gzip(&tar)), ("tar.zst", tar::zstd(&tar)), ("tar", tar)]
}

pub(crate) fn as_zip(files: &Files<'_>) -> Vec<u8> {
    let members = files.iter().map(|(name, content)| zip::Member {
        name: name.to_vec(),
        content: content.to_vec(),
        deflate: true,
    });
    zip::zip(&members.collect::<Vec<_>>())
}

pub(crate) fn as_tar(files: &Files<'_>) -> Vec<u8> {
    tar::tar(&files.iter().flat_map(|(name, content)| tar::any_file(name, content)).collect::<Vec<_>>())
}

/// A folder that holds nothing but the archive, under a name that says nothing.
pub(crate) fn laid_down(archive: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let dir = folder();
    let file = dir.path().join("bundle");
    fs::write(&file, archive).expect("files can be written");
    (dir, file)
}

/// Runs `docwharf bundle VERB FILE …`.
pub(crate) fn bundle(verb: &str, paths: &[&Path], more: &[&str]) -> Ended {
    end(docwharf().args(["bundle", verb]).args(paths).args(more))
}

/// What lies in a folder, by name.
pub(crate) fn listing(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a folder can be read");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry can be read").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// One line for people, safe on a terminal (rule 14).
#[track_caller]
pub(crate) fn assert_one_line(what: &str, stderr: &str) {
    let line = stderr.strip_suffix('\n').unwrap_or_else(|| panic!("{what}: no line: {stderr:?}"));
    assert!(line.starts_with("docwharf: "), "{what}: {line}");
    assert!(!line.chars().any(char::is_control), "{what}: control characters: {line:?}");
    assert!(line.chars().count() < 1000, "{what}: {} characters", line.chars().count());
}

/// The archive is refused by every command alike: code 5, one line that holds `words`, nothing written (rules 1, 14).
#[track_caller]
pub(crate) fn refused(what: &str, archive: &[u8], words: &[&str]) {
    let (dir, file) = laid_down(archive);
    let target = dir.path().join("target");
    let verdicts = [
        bundle("verify", &[&file], &[]),
        bundle("inspect", &[&file], &[]),
        bundle("unpack", &[&file, &target], &[]),
        bundle("unpack", &[&file, &target], &["--raw"]),
    ];
    for ended in &verdicts {
        assert_eq!(ended.code, Some(5), "{what}: {ended:?}");
        assert_eq!(ended.stdout, "", "{what}");
        assert_one_line(what, &ended.stderr);
        assert_eq!(ended.stderr, verdicts[0].stderr, "{what}: one reader, one verdict");
        for word in words {
            assert!(ended.stderr.contains(word), "{what}: {word:?} is missing: {}", ended.stderr);
        }
    }
    assert_eq!(listing(dir.path()), ["bundle"], "{what}: litter");
}

/// The archive is accepted without a word; what `inspect` says of it.
#[track_caller]
pub(crate) fn accepted(what: &str, archive: &[u8]) -> Value {
    let (_dir, file) = laid_down(archive);
    let verified = bundle("verify", &[&file], &["--json"]);
    assert_eq!((verified.code, verified.stderr.as_str()), (Some(0), ""), "{what}: {verified:?}");
    let inspected = bundle("inspect", &[&file], &["--json"]);
    assert_eq!((inspected.code, inspected.stderr.as_str()), (Some(0), ""), "{what}: {inspected:?}");
    let sheet = inspected.json();
    assert_eq!(verified.json()["version"], sheet["version"], "{what}");
    sheet
}

/// Files by the bytes of their paths.
pub(crate) type Tree = BTreeMap<Vec<u8>, Vec<u8>>;

/// What these files would be when unpacked.
pub(crate) fn tree(files: &Files<'_>) -> Tree {
    files.iter().map(|(name, content)| (name.to_vec(), content.to_vec())).collect()
}

/// All files below `root`.
pub(crate) fn read(root: &Path) -> Tree {
    let mut found = Tree::new();
    let mut folders = vec![root.to_owned()];
    while let Some(dir) = folders.pop() {
        for entry in fs::read_dir(&dir).expect("a folder can be read") {
            let path = entry.expect("an entry can be read").path();
            if fs::symlink_metadata(&path).expect("it is there").is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(root).expect("below the root").as_os_str().as_bytes().to_vec();
                found.insert(name, fs::read(&path).expect("the owner can read what was unpacked"));
            }
        }
    }
    found
}

/// Unpacks the archive into an absent folder; success leaves only the target (rule 1).
#[track_caller]
pub(crate) fn unpacked(what: &str, archive: &[u8], more: &[&str]) -> Tree {
    let (dir, file) = laid_down(archive);
    let target = dir.path().join("target");
    let ended = bundle("unpack", &[&file, &target], more);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{what}: {ended:?}");
    assert_eq!(listing(dir.path()), ["bundle", "target"], "{what}: litter");
    read(&target)
}

/// The version id, or the refusal. Through the library, as a process for each of thousands would take minutes.
#[track_caller]
pub(crate) fn judge(what: &str, file: &Path, archive: &[u8]) -> Result<String, String> {
    judge_within(what, file, archive, BundleLimits::default())
}

/// The same with other limits.
#[track_caller]
pub(crate) fn judge_within(what: &str, file: &Path, archive: &[u8], limits: BundleLimits) -> Result<String, String> {
    fs::write(file, archive).expect("files can be written");
    judge_path(what, file, limits)
}

/// The same for a file or folder that is there.
#[track_caller]
pub(crate) fn judge_path(what: &str, path: &Path, limits: BundleLimits) -> Result<String, String> {
    let effort = SealOptions { threads: 1, ..SealOptions::new(limits) };
    let judged = std::panic::catch_unwind(|| verify(path, &effort, &SealProgress::default()));
    match judged.unwrap_or_else(|_| panic!("{what}: a panic is no verdict")) {
        Ok(proven) => Ok(proven.id.to_string()),
        Err(error) => {
            assert!(
                matches!(error, docwharf::seal::SealError::Refused { .. }),
                "{what}: not refused but failed: {error:?}"
            );
            Err(docwharf::base::error_chain::ErrorChain(&error).to_string())
        }
    }
}
