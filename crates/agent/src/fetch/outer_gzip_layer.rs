//! Removal of an unrequested content coding. Often the header field is only a wrong label of a `.tar.gz`; sometimes
//! there is gzip around a complete archive (`docs/design/agent.md`, rule 7). The bytes decide.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::PathBuf;

use flate2::read::MultiGzDecoder;

use docwharf_base::directory::{Directory, FileAccess, FileRequirements};

use super::partial_bundle::{FILE_MODE, INNER_FILE, PART_FILE};

/// First bytes of the archives that may be inside the outer layer of gzip: gzip, ZIP, Zstandard.
const INNER_ARCHIVE_SIGNATURES: [&[u8]; 4] = [&[0x1f, 0x8b], b"PK\x03\x04", b"PK\x05\x06", &[0x28, 0xb5, 0x2f, 0xfd]];

/// Removes gzip that is around a complete archive (ZIP, gzip, Zstandard): writes the inner archive to a file beside the
/// received one in `downloads` and returns its path; `None` if the received file is not such gzip. It writes at most
/// `limit` bytes plus one, which shows that the limit is exceeded.
pub fn remove_outer_gzip_layer(downloads: &Directory, limit: u64) -> io::Result<Option<PathBuf>> {
    let open_layer = || -> io::Result<_> {
        let part = downloads.open_file(PART_FILE, FileAccess::Read, FileRequirements::SINGLE_NAME)?;
        Ok(MultiGzDecoder::new(BufReader::with_capacity(256 * 1024, part)))
    };
    let mut head = Vec::new();
    // A file that cannot be inflated has no outer layer; verifying it will report the damage.
    if open_layer()?.take(4).read_to_end(&mut head).is_err()
        || !INNER_ARCHIVE_SIGNATURES.iter().any(|signature| head.starts_with(signature))
    {
        return Ok(None);
    }
    downloads.remove_file_if_exists(INNER_FILE)?;
    let written =
        downloads.create_file(INNER_FILE, FILE_MODE).and_then(|inner| write_layer_content(open_layer()?, inner, limit));
    if !matches!(written, Ok(true)) {
        let _ = downloads.remove_file(INNER_FILE);
    }
    Ok(written?.then(|| downloads.path().join(INNER_FILE)))
}

/// Writes the content of the layer to `out`. Returns false if the layer is damaged: it is then not removed, and
/// verifying the bundle reports the damage.
fn write_layer_content(layer: impl Read, mut out: File, limit: u64) -> io::Result<bool> {
    let mut decoder = layer.take(limit.saturating_add(1));
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match decoder.read(&mut buffer) {
            Ok(0) => return Ok(true),
            Ok(n) => out.write_all(&buffer[..n])?,
            Err(_) => return Ok(false),
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // directories of these tests alone
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn inner_archive_of(bytes: &[u8]) -> Option<Vec<u8>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bundle.part");
        std::fs::write(&path, bytes).unwrap();
        remove_outer_gzip_layer(&Directory::open(dir.path()).unwrap(), 1 << 20)
            .unwrap()
            .map(|path| std::fs::read(path).unwrap())
    }

    #[test]
    fn inner_archive_is_written_up_to_one_byte_over_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("inner");
        for (layer, written) in [(999, 999), (1000, 1000), (1001, 1001), (8 << 20, 1001)] {
            let file = File::create(&path).unwrap();
            assert!(write_layer_content(io::repeat(7).take(layer), file, 1000).unwrap());
            assert_eq!(std::fs::metadata(&path).unwrap().len(), written, "{layer}");
        }
    }

    #[test]
    fn gzip_is_removed_around_an_archive_but_not_around_other_content() {
        let tar_gz = gzip(b"any content");
        assert_eq!(inner_archive_of(&tar_gz), None);
        assert_eq!(inner_archive_of(b"PK\x03\x04 zip"), None);
        assert_eq!(inner_archive_of(&gzip(&tar_gz)), Some(tar_gz));
        assert_eq!(inner_archive_of(&gzip(b"PK\x03\x04 zip")).as_deref(), Some(&b"PK\x03\x04 zip"[..]));
        let mut cut = gzip(&gzip(&[7; 5000]));
        cut.truncate(cut.len() - 6);
        assert_eq!(inner_archive_of(&cut), None);
    }

    #[test]
    fn inner_archive_is_recognized_by_its_first_bytes() {
        for (inner, is_archive) in [
            (&b"PK\x03\x04..."[..], true),
            (b"PK\x05\x06...", true),
            (b"PK\x07\x08...", false),
            (b"PK", false),
            (b"\x28\xb5\x2f\xfd...", true),
            (b"\x28\xb5\x2f...", false),
            (b"\x1f\x8b", true),
            (b"\x1f", false),
            (b"", false),
        ] {
            let expected = is_archive.then(|| inner.to_vec());
            assert_eq!(inner_archive_of(&gzip(inner)), expected, "{}", inner.escape_ascii());
        }
        assert_eq!(inner_archive_of(b""), None);
        let members = [gzip(b"PK\x03"), gzip(b"\x04 zip")].concat();
        assert_eq!(
            inner_archive_of(&members).as_deref(),
            Some(&b"PK\x03\x04 zip"[..]),
            "several members are one layer"
        );
    }

    #[test]
    fn old_inner_archive_is_replaced_and_a_damaged_outer_layer_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let (part, inner) = (dir.path().join(PART_FILE), dir.path().join(INNER_FILE));
        let directory = Directory::open(dir.path()).unwrap();
        std::fs::write(&part, gzip(b"PK\x03\x04 new")).unwrap();
        std::fs::write(&inner, "the inner archive of another bundle").unwrap();
        assert_eq!(remove_outer_gzip_layer(&directory, 1 << 20).unwrap(), Some(inner.clone()));
        assert_eq!(std::fs::read(&inner).unwrap(), b"PK\x03\x04 new");
        let mut damaged = gzip(&gzip(&[7; 5000]));
        let crc = damaged.len() - 8;
        damaged[crc] ^= 1;
        std::fs::write(&part, damaged).unwrap();
        assert_eq!(remove_outer_gzip_layer(&directory, 1 << 20).unwrap(), None);
        assert!(!inner.exists());
        std::fs::hard_link(&part, dir.path().join("second")).unwrap();
        assert!(
            remove_outer_gzip_layer(&directory, 1 << 20).is_err(),
            "a file with a second name may belong to another user"
        );
    }

    // Regression: root, working in another user's store, wrote the inner archive through a link in its place.
    #[test]
    fn the_inner_archive_is_written_through_no_link_in_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let [downloads, elsewhere] = ["downloads", "elsewhere"].map(|name| dir.path().join(name));
        std::fs::create_dir(&downloads).unwrap();
        std::fs::create_dir(&elsewhere).unwrap();
        let (inner, victim) = (downloads.join(INNER_FILE), elsewhere.join("victim"));
        std::fs::write(&victim, "secret").unwrap();
        std::fs::write(downloads.join(PART_FILE), gzip(b"PK\x03\x04 new")).unwrap();
        let directory = Directory::open(&downloads).unwrap();
        let assert_untouched = |case: &str| {
            assert_eq!(std::fs::read_to_string(&victim).unwrap(), "secret", "{case}");
            assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 1, "{case}");
        };
        let links: [(&str, &dyn Fn()); 3] = [
            ("a link", &|| symlink(&victim, &inner).unwrap()),
            ("a link to a missing file", &|| symlink(elsewhere.join("new"), &inner).unwrap()),
            ("a hard link", &|| std::fs::hard_link(&victim, &inner).unwrap()),
        ];
        for (case, create_link) in links {
            create_link();
            assert_eq!(remove_outer_gzip_layer(&directory, 1 << 20).unwrap(), Some(inner.clone()), "{case}");
            let metadata = inner.symlink_metadata().unwrap();
            assert!(metadata.is_file() && metadata.nlink() == 1, "{case}");
            assert_eq!(std::fs::read(&inner).unwrap(), b"PK\x03\x04 new", "{case}");
            assert_untouched(case);
            std::fs::remove_file(&inner).unwrap();
        }
        // The other user creates the link again at any moment.
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let _ = symlink(&victim, &inner);
                }
            });
            for _ in 0..500 {
                let _ = remove_outer_gzip_layer(&directory, 1 << 20);
            }
            is_done.store(true, Ordering::Relaxed);
        });
        assert_untouched("a link at any moment");
        // The path of the directory leads elsewhere, and so does its name for the inner archive.
        let _ = std::fs::remove_file(&inner);
        std::fs::rename(&downloads, dir.path().join("moved")).unwrap();
        symlink(&elsewhere, &downloads).unwrap();
        remove_outer_gzip_layer(&directory, 1 << 20).unwrap();
        assert!(dir.path().join("moved").join(INNER_FILE).is_file());
        assert_untouched("a directory that is a link");
    }
}
