//! One reader, one verdict: the reader alone, proving, sealing and unpacking say the same of an archive, and give the same
//! bytes; what was refused leaves nothing behind.

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
use docwharf::seal::{ImageSpace, SealError, SealOptions, SealProgress, VerifiedBundle, seal, verify, verify_image};

/// Files by the bytes of their paths.
pub type Tree = BTreeMap<Vec<u8>, Vec<u8>>;

/// What an archive of a few kilobytes may become before a run gets slow; smaller than the bombs, which have tests.
const LIMITS: BundleLimits = BundleLimits { entries: 10_000, unpacked: 8 << 20, archive: 1 << 20, entry: 4 << 20 };

/// Whether every archive goes through all of it. Sealing and unpacking take threads and files, so that fuzzing does so with
/// one archive in sixteen, by its bytes.
pub static THOROUGH: AtomicBool = AtomicBool::new(false);

/// An archive that was accepted.
pub struct Accepted {
    /// All its files.
    pub files: Tree,
    pub kind: BundleKind,
    /// The sealed image, if it was sealed.
    pub image: Option<Vec<u8>>,
}

/// The verdict on an archive; a refusal as it is told.
pub fn judge(bytes: &[u8]) -> Result<Accepted, String> {
    let alone = read_alone(bytes);
    if !THOROUGH.load(Ordering::Relaxed) && !crc32fast::hash(bytes).is_multiple_of(16) {
        return alone;
    }
    match (alone, go_through(bytes)) {
        (Ok(alone), Ok((files, image))) => {
            assert!(alone.files == files, "what was read is what was unpacked");
            Ok(Accepted { image: Some(image), ..alone })
        }
        (Err(why), Err(_)) => Err(why),
        (alone, through) => panic!("read: {:?}, sealed: {:?}", alone.map(|a| a.kind), through.map(|t| t.0.len())),
    }
}

/// The reader alone, in one thread and without a file that has a name.
fn read_alone(bytes: &[u8]) -> Result<Accepted, String> {
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(bytes).and_then(|()| file.rewind()).expect("files can be written");
    let path = Path::new("bundle");
    let mut found = Read { files: Tree::new(), kind: BundleKind::Zip };
    let result = format::open_archive(file, path, &LIMITS).and_then(|archive| match archive {
        RecognizedArchive::Zip(file) => {
            found.all(BundleKind::Zip, &mut ZipReader::new(ZipArchive::open(file, path, &LIMITS)?))
        }
        RecognizedArchive::Tar(kind, mut tar) => found.all(kind, &mut *tar),
    });
    match result {
        Ok(()) => Ok(Accepted { files: found.files, kind: found.kind, image: None }),
        Err(BundleReadError::Refused(refusal)) => {
            let why = OneLine(&refusal.to_string()).to_string();
            assert!(!why.is_empty() && !why.chars().any(char::is_control), "a line for people: {why:?}");
            assert!(why.chars().count() < 1000, "{} characters", why.chars().count());
            Err(why)
        }
        Err(other) => panic!("not refused, but failed: {}", ErrorChain(&other)),
    }
}

struct Read {
    files: Tree,
    kind: BundleKind,
}

impl Read {
    fn all(&mut self, kind: BundleKind, entries: &mut dyn BundleReader) -> Result<(), BundleReadError> {
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

/// Proving, sealing, proving the image and unpacking with every entry; gives what lies there then, and the image.
fn go_through(bytes: &[u8]) -> Result<(Tree, Vec<u8>), String> {
    let dir = tempfile::Builder::new().prefix("docwharf-fuzz-").tempdir().expect("a temporary folder");
    let (bundle, space, target) = (dir.path().join("bundle"), dir.path().join("space"), dir.path().join("target"));
    fs::write(&bundle, bytes).expect("files can be written");
    fs::create_dir(&space).expect("folders can be made");
    let effort = SealOptions { threads: 1, ..SealOptions::new(LIMITS) };
    let meter = SealProgress::default();

    let proved = verify(&bundle, &effort, &meter).map_err(|error| refusal(&error));
    let stage = Directory::open(&space).expect("it has just been made");
    let sealed = seal(&bundle, &ImageSpace::Dir(stage), &effort, &meter).map_err(|error| refusal(&error));
    let (proven, sealing) = match (proved, sealed) {
        (Ok(proven), Ok(sealing)) => (proven, sealing),
        (Err(why), Err(_)) => {
            let unpacked = unpack(&bundle, &target, true, &effort, &meter);
            assert!(matches!(unpacked, Err(UnpackError::Seal(SealError::Refused { .. }))), "{why}, but {unpacked:?}");
            assert_eq!(names_in(dir.path()), ["bundle", "space"], "litter after {why}");
            return Err(why);
        }
        (proved, sealed) => panic!("verify: {:?}, seal: {:?}", proved.map(|p| p.id), sealed.map(|s| s.proven.id)),
    };
    same(&proven, &sealing.proven);
    let path = space.join("site.zip");
    let image = fs::read(&path).expect("the image can be read");
    assert_eq!(image.len() as u64, sealing.image_len, "the image has the length that it is said to have");
    same(&proven, &verify_image(&path, &effort).unwrap_or_else(|error| panic!("the image: {}", ErrorChain(&error))));

    let unpacked = unpack(&bundle, &target, true, &effort, &meter);
    let unpacked = unpacked.unwrap_or_else(|error| panic!("verified, but cannot be unpacked: {}", ErrorChain(&error)));
    assert_eq!(unpacked.id, proven.id);
    assert_eq!(names_in(dir.path()), ["bundle", "space", "target"], "litter");
    let files = read(&target);
    let told: BTreeMap<&[u8], (u64, Digest)> =
        proven.raw_files.iter().map(|(path, entry)| (path.as_bytes(), (entry.len, entry.content))).collect();
    let found = files.iter().map(|(path, content)| (&path[..], (content.len() as u64, Digest::of(content)))).collect();
    assert_eq!(told, found, "what was proved is what was unpacked");
    Ok((files, image))
}

fn refusal(error: &SealError) -> String {
    assert!(matches!(error, SealError::Refused { .. }), "not refused, but failed: {}", ErrorChain(error));
    // Without the name of the temporary file.
    let told = ErrorChain(error).to_string();
    told.split_once(": ").map_or(told.clone(), |(_, why)| why.to_owned())
}

fn same(one: &VerifiedBundle, other: &VerifiedBundle) {
    let files = |proven: &VerifiedBundle| -> BTreeMap<Vec<u8>, (u64, Digest)> {
        let files = proven.raw_files.iter().map(|(p, e)| (p.as_bytes().to_vec(), (e.len, e.content)));
        files.collect()
    };
    assert_eq!(one.id, other.id);
    assert_eq!(files(one), files(other));
    assert_eq!(one.folders, other.folders);
    assert_eq!(one.flavor, other.flavor);
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a folder can be read");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry can be read").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn read(root: &Path) -> Tree {
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

/// A name without `.` and empty components, as rules A2 have it.
pub fn plain(name: &[u8]) -> Vec<u8> {
    let components = name.split(|&b| b == b'/').filter(|c| !c.is_empty() && *c != b".");
    components.collect::<Vec<_>>().join(&b'/')
}

/// Fails unless the independent reader has found the same files.
pub fn agree(ours: &Tree, theirs: &Tree, reader: &str) {
    let names = |tree: &Tree| -> Vec<String> {
        tree.iter().map(|(name, content)| format!("{:?} {}", String::from_utf8_lossy(name), content.len())).collect()
    };
    assert_eq!(names(ours), names(theirs), "names and sizes, {reader} on the right");
    for (name, content) in ours {
        assert!(Some(content) == theirs.get(name), "{reader} has other bytes in {:?}", String::from_utf8_lossy(name));
    }
}
