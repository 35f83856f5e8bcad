//! All operations agree on an archive: reading, verifying, sealing and unpacking accept or refuse it together, and
//! return the same files. A refused archive leaves no files.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use docwharf::base::directory::Directory;
use docwharf::base::error_chain::{ErrorChain, OneLine};
use docwharf::bundle::format::{self, RecognizedArchive};
use docwharf::bundle::refusal::check_path_conflicts;
use docwharf::bundle::site_layout::SiteLayout;
use docwharf::bundle::zip::ZipArchive;
use docwharf::bundle::zip_entry::ZipReader;
use docwharf::bundle::{BundleEntryKind, BundleKind, BundleReadError, BundleReader};
use docwharf::model::digest::Digest;
use docwharf::model::limits::BundleLimits;
use docwharf::seal::unpack::{UnpackError, unpack};
use docwharf::seal::{ImageTarget, SealError, SealOptions, SealProgress, VerifiedBundle, seal, verify, verify_image};

/// The contents of files; the keys are the bytes of their paths.
pub type Tree = BTreeMap<Vec<u8>, Vec<u8>>;

/// Small limits keep a run fast. Archives that expand further have other tests.
const LIMITS: BundleLimits = BundleLimits { entries: 10_000, unpacked: 8 << 20, archive: 1 << 20, entry: 4 << 20 };

/// Whether each archive goes through all operations. Sealing and unpacking need threads and files, so fuzzing runs them
/// for one archive in sixteen, selected by its CRC-32.
pub static THOROUGH: AtomicBool = AtomicBool::new(false);

/// An archive that was accepted.
pub struct Accepted {
    /// All its files.
    pub files: Tree,
    pub kind: BundleKind,
    /// The sealed image, if it was sealed.
    pub image: Option<Vec<u8>>,
}

/// Checks an archive. The error is the message of the refusal.
pub fn check_archive(bytes: &[u8]) -> Result<Accepted, String> {
    let read_result = read_archive(bytes);
    if !THOROUGH.load(Ordering::Relaxed) && !crc32fast::hash(bytes).is_multiple_of(16) {
        return read_result;
    }
    match (read_result, run_all_operations(bytes)) {
        (Ok(accepted), Ok((files, image))) => {
            assert!(accepted.files == files, "reading and unpacking return other files");
            Ok(Accepted { image: Some(image), ..accepted })
        }
        (Err(reason), Err(_)) => Err(reason),
        (read, sealed) => panic!("read: {:?}, sealed: {:?}", read.map(|a| a.kind), sealed.map(|s| s.0.len())),
    }
}

/// Reads all entries in this thread, from an unnamed temporary file.
fn read_archive(bytes: &[u8]) -> Result<Accepted, String> {
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(bytes).and_then(|()| file.rewind()).expect("files can be written");
    let path = Path::new("bundle");
    let mut contents = ArchiveContents { files: Tree::new(), kind: BundleKind::Zip };
    let result = format::open_archive(file, path, &LIMITS).and_then(|archive| match archive {
        RecognizedArchive::Zip(file) => {
            contents.read_all(BundleKind::Zip, &mut ZipReader::new(ZipArchive::open(file, path, &LIMITS)?))
        }
        RecognizedArchive::Tar(kind, mut tar) => contents.read_all(kind, &mut *tar),
    });
    match result {
        Ok(()) => Ok(Accepted { files: contents.files, kind: contents.kind, image: None }),
        Err(BundleReadError::Refused(refusal)) => {
            let reason = OneLine(&refusal.to_string()).to_string();
            assert!(!reason.is_empty() && !reason.chars().any(char::is_control), "{reason:?} is not one line");
            assert!(reason.chars().count() < 1000, "{} characters", reason.chars().count());
            Err(reason)
        }
        Err(error) => panic!("failed instead of a refusal: {}", ErrorChain(&error)),
    }
}

/// The files that reading has found.
struct ArchiveContents {
    files: Tree,
    kind: BundleKind,
}

impl ArchiveContents {
    fn read_all(&mut self, kind: BundleKind, entries: &mut dyn BundleReader) -> Result<(), BundleReadError> {
        self.kind = kind;
        let (mut files, mut folders) = (Vec::new(), Vec::new());
        while let Some(head) = entries.next_entry()? {
            let Some(path) = head.path else { continue };
            let mut content = Vec::new();
            match head.kind {
                BundleEntryKind::Folder => {
                    folders.push(path);
                    continue;
                }
                BundleEntryKind::HardLink(earlier) => content.clone_from(&self.files[earlier.as_bytes()]),
                BundleEntryKind::File => entries.read_content(&mut |bytes| {
                    content.extend_from_slice(bytes);
                    Ok(())
                })?,
            }
            self.files.insert(path.as_bytes().to_vec(), content);
            files.push(path);
        }
        check_path_conflicts(files.iter(), folders.iter())?;
        SiteLayout::detect(files.iter())?;
        Ok(())
    }
}

/// Verifies and seals the archive, verifies the image, and unpacks with all entries. Returns the unpacked files and the
/// image.
fn run_all_operations(bytes: &[u8]) -> Result<(Tree, Vec<u8>), String> {
    let dir = tempfile::Builder::new().prefix("docwharf-fuzz-").tempdir().expect("a temporary folder");
    let (bundle, staging, target) = (dir.path().join("bundle"), dir.path().join("staging"), dir.path().join("target"));
    fs::write(&bundle, bytes).expect("files can be written");
    fs::create_dir(&staging).expect("folders can be made");
    let options = SealOptions { threads: 1, ..SealOptions::new(LIMITS) };
    let progress = SealProgress::default();

    let verify_result = verify(&bundle, &options, &progress).map_err(|error| refusal_message(&error));
    let staging_dir = Directory::open(&staging).expect("the folder exists");
    let seal_result =
        seal(&bundle, &ImageTarget::Dir(staging_dir), &options, &progress).map_err(|error| refusal_message(&error));
    let (verified, sealing) = match (verify_result, seal_result) {
        (Ok(verified), Ok(sealing)) => (verified, sealing),
        (Err(reason), Err(_)) => {
            let unpacked = unpack(&bundle, &target, true, &options, &progress);
            assert!(
                matches!(unpacked, Err(UnpackError::Seal(SealError::Refused { .. }))),
                "verify: {reason}, unpack: {unpacked:?}"
            );
            assert_eq!(names_in(dir.path()), ["bundle", "staging"], "files left after {reason}");
            return Err(reason);
        }
        (verify, seal) => panic!("verify: {:?}, seal: {:?}", verify.map(|v| v.id), seal.map(|s| s.verified.id)),
    };
    assert_same_bundle(&verified, &sealing.verified);
    let path = staging.join("site.zip");
    let image = fs::read(&path).expect("the image can be read");
    assert_eq!(image.len() as u64, sealing.image_len, "the length of the image");
    assert_same_bundle(
        &verified,
        &verify_image(&path, &options).unwrap_or_else(|error| panic!("the image: {}", ErrorChain(&error))),
    );

    let unpacked = unpack(&bundle, &target, true, &options, &progress);
    let unpacked = unpacked.unwrap_or_else(|error| panic!("verified, but cannot be unpacked: {}", ErrorChain(&error)));
    assert_eq!(unpacked.id, verified.id);
    assert_eq!(names_in(dir.path()), ["bundle", "staging", "target"], "files left");
    let files = read_tree(&target);
    let verified_files: BTreeMap<&[u8], (u64, Digest)> =
        verified.raw_files.iter().map(|(path, entry)| (path.as_bytes(), (entry.len, entry.content))).collect();
    let unpacked_files =
        files.iter().map(|(path, content)| (&path[..], (content.len() as u64, Digest::compute(content)))).collect();
    assert_eq!(verified_files, unpacked_files, "verifying and unpacking return other files");
    Ok((files, image))
}

fn refusal_message(error: &SealError) -> String {
    assert!(matches!(error, SealError::Refused { .. }), "failed instead of a refusal: {}", ErrorChain(error));
    // Without the name of the temporary file.
    let message = ErrorChain(error).to_string();
    message.split_once(": ").map_or(message.clone(), |(_, reason)| reason.to_owned())
}

fn assert_same_bundle(a: &VerifiedBundle, b: &VerifiedBundle) {
    let files = |verified: &VerifiedBundle| -> BTreeMap<Vec<u8>, (u64, Digest)> {
        let files = verified.raw_files.iter().map(|(p, e)| (p.as_bytes().to_vec(), (e.len, e.content)));
        files.collect()
    };
    assert_eq!(a.id, b.id);
    assert_eq!(files(a), files(b));
    assert_eq!(a.folders, b.folders);
    assert_eq!(a.site_layout, b.site_layout);
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a folder can be read");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry can be read").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Reads all files below a folder.
fn read_tree(root: &Path) -> Tree {
    let mut files = Tree::new();
    let mut folders = vec![root.to_owned()];
    while let Some(dir) = folders.pop() {
        for entry in fs::read_dir(&dir).expect("a folder can be read") {
            let path = entry.expect("an entry can be read").path();
            if fs::symlink_metadata(&path).expect("the path exists").is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(root).expect("below the root").as_os_str().as_bytes().to_vec();
                files.insert(name, fs::read(&path).expect("the owner can read what was unpacked"));
            }
        }
    }
    files
}

/// Removes `.` and empty components from a name, as rules A2 require.
pub fn normalize_path(name: &[u8]) -> Vec<u8> {
    let components = name.split(|&b| b == b'/').filter(|c| !c.is_empty() && *c != b".");
    components.collect::<Vec<_>>().join(&b'/')
}

/// Panics unless the trees have the same files. `reader` names the origin of `reference`.
pub fn assert_same_files(docwharf: &Tree, reference: &Tree, reader: &str) {
    let names = |tree: &Tree| -> Vec<String> {
        tree.iter().map(|(name, content)| format!("{:?} {}", String::from_utf8_lossy(name), content.len())).collect()
    };
    assert_eq!(names(docwharf), names(reference), "names and sizes; right: {reader}");
    for (name, content) in docwharf {
        assert!(
            Some(content) == reference.get(name),
            "{reader} has other bytes in {:?}",
            String::from_utf8_lossy(name)
        );
    }
}
