//! Runs docwharf on an archive and checks the result: with the executable, or in process for tests with thousands of
//! archives.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use docwharf::model::limits::BundleLimits;
use docwharf::seal::{SealOptions, SealProgress, verify};
use serde_json::Value;

use support::{CommandOutput, docwharf, run_to_end, tar, temporary_folder, zip};

/// A page, so that a bundle is a site.
pub(crate) const PAGE: (&[u8], &[u8]) = (b"index.html", b"<!doctype html><title>Home</title>");

/// Files: path and content of each.
pub(crate) type Files<'a> = [(&'a [u8], &'a [u8])];

/// Packs the files into an archive of each format.
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

/// Writes the archive into a new folder, under a name without an extension.
pub(crate) fn write_bundle(archive: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let dir = temporary_folder();
    let file = dir.path().join("bundle");
    fs::write(&file, archive).expect("files can be written");
    (dir, file)
}

/// Runs `docwharf bundle VERB FILE …`.
pub(crate) fn run_bundle(verb: &str, paths: &[&Path], options: &[&str]) -> CommandOutput {
    run_to_end(docwharf().args(["bundle", verb]).args(paths).args(options))
}

/// Returns the names of the entries of a folder, sorted.
pub(crate) fn list_folder(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a folder can be read");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry can be read").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Asserts that `stderr` is one line that is safe on a terminal (docs/design/archives.md, rule 14).
#[track_caller]
pub(crate) fn assert_one_line(case: &str, stderr: &str) {
    let line =
        stderr.strip_suffix('\n').unwrap_or_else(|| panic!("{case}: stderr does not end with a line end: {stderr:?}"));
    assert!(line.starts_with("docwharf: "), "{case}: {line}");
    assert!(!line.chars().any(char::is_control), "{case}: control characters: {line:?}");
    assert!(line.chars().count() < 1000, "{case}: {} characters", line.chars().count());
}

/// Asserts that every command refuses the archive with exit code 5 and one line that contains each of `expected_parts`,
/// and writes nothing (rules 1 and 14).
#[track_caller]
pub(crate) fn assert_refused(case: &str, archive: &[u8], expected_parts: &[&str]) {
    let (dir, file) = write_bundle(archive);
    let target = dir.path().join("target");
    let outputs = [
        run_bundle("verify", &[&file], &[]),
        run_bundle("inspect", &[&file], &[]),
        run_bundle("unpack", &[&file, &target], &[]),
        run_bundle("unpack", &[&file, &target], &["--raw"]),
    ];
    for output in &outputs {
        assert_eq!(output.code, Some(5), "{case}: {output:?}");
        assert_eq!(output.stdout, "", "{case}");
        assert_one_line(case, &output.stderr);
        assert_eq!(output.stderr, outputs[0].stderr, "{case}: every command must refuse with the same line");
        for part in expected_parts {
            assert!(output.stderr.contains(part), "{case}: {part:?} is missing: {}", output.stderr);
        }
    }
    assert_eq!(list_folder(dir.path()), ["bundle"], "{case}: unexpected files");
}

/// Asserts that the archive is accepted without a warning. Returns the JSON of `inspect`.
#[track_caller]
pub(crate) fn assert_accepted(case: &str, archive: &[u8]) -> Value {
    let (_dir, file) = write_bundle(archive);
    let verified = run_bundle("verify", &[&file], &["--json"]);
    assert_eq!((verified.code, verified.stderr.as_str()), (Some(0), ""), "{case}: {verified:?}");
    let inspected = run_bundle("inspect", &[&file], &["--json"]);
    assert_eq!((inspected.code, inspected.stderr.as_str()), (Some(0), ""), "{case}: {inspected:?}");
    let inspected = inspected.json();
    assert_eq!(verified.json()["version"], inspected["version"], "{case}");
    inspected
}

/// Files by the bytes of their paths.
pub(crate) type Tree = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns the tree that unpacking these files results in.
pub(crate) fn expected_tree(files: &Files<'_>) -> Tree {
    files.iter().map(|(name, content)| (name.to_vec(), content.to_vec())).collect()
}

/// Reads all files below `root`.
pub(crate) fn read_files(root: &Path) -> Tree {
    let mut files = Tree::new();
    let mut folders = vec![root.to_owned()];
    while let Some(dir) = folders.pop() {
        for entry in fs::read_dir(&dir).expect("a folder can be read") {
            let path = entry.expect("an entry can be read").path();
            if fs::symlink_metadata(&path).expect("the entry exists").is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(root).expect("below the root").as_os_str().as_bytes().to_vec();
                files.insert(name, fs::read(&path).expect("unpacked files are readable"));
            }
        }
    }
    files
}

/// Unpacks the archive into an absent folder and asserts that nothing but the target was created (rule 1).
#[track_caller]
pub(crate) fn unpack_archive(case: &str, archive: &[u8], options: &[&str]) -> Tree {
    let (dir, file) = write_bundle(archive);
    let target = dir.path().join("target");
    let output = run_bundle("unpack", &[&file, &target], options);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{case}: {output:?}");
    assert_eq!(list_folder(dir.path()), ["bundle", "target"], "{case}: unexpected files");
    read_files(&target)
}

/// Verifies an archive with the library, because processes for thousands of archives would take minutes. Returns the
/// version id, or the text of the refusal.
#[track_caller]
pub(crate) fn verify_archive(case: &str, file: &Path, archive: &[u8]) -> Result<String, String> {
    verify_with_limits(case, file, archive, BundleLimits::default())
}

/// Verifies an archive as [`verify_archive`] does, with these limits.
#[track_caller]
pub(crate) fn verify_with_limits(
    case: &str,
    file: &Path,
    archive: &[u8],
    limits: BundleLimits,
) -> Result<String, String> {
    fs::write(file, archive).expect("files can be written");
    verify_path(case, file, limits)
}

/// Verifies the file or folder at `path` as [`verify_archive`] does, with these limits.
#[track_caller]
pub(crate) fn verify_path(case: &str, path: &Path, limits: BundleLimits) -> Result<String, String> {
    let seal_options = SealOptions { threads: 1, ..SealOptions::new(limits) };
    let result = std::panic::catch_unwind(|| verify(path, &seal_options, &SealProgress::default()));
    match result.unwrap_or_else(|_| panic!("{case}: verification must not panic")) {
        Ok(verified) => Ok(verified.id.to_string()),
        Err(error) => {
            assert!(
                matches!(error, docwharf::seal::SealError::Refused { .. }),
                "{case}: not refused but failed: {error:?}"
            );
            Err(docwharf::base::error_chain::ErrorChain(&error).to_string())
        }
    }
}
