//! An API key in a file: one line, read again when the file changes, so that the key can be replaced without a restart.
//!
//! If the file becomes unreadable or empty, no key is accepted: an operator who removes a key wants it to stop working.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use docwharf_base::error_chain::ErrorChain;
use docwharf_base::locks::Mutex;

/// The largest size of a key file, in bytes. A wrong file (an archive, a device without end) is not read to its end.
const MAX_KEY_FILE_BYTES: u64 = 4096;

/// The error if a file has no API key. The message never quotes the content of the file.
#[derive(Debug, thiserror::Error)]
pub enum ApiKeyFileError {
    /// The file does not exist or cannot be read.
    #[error("cannot read the API key from {}", path.display())]
    Read {
        /// The key file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The content of the file is not a key.
    #[error("{} does not contain an API key: {reason}; write the key into it, on one line", path.display())]
    Invalid {
        /// The key file.
        path: PathBuf,
        /// The reason.
        reason: &'static str,
    },
}

/// An API key. Its `Debug` output does not show it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct FileApiKey(Vec<u8>);

impl FileApiKey {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for FileApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The metadata that changes when a file is replaced or written: device, inode, size, mtime and ctime.
type ApiKeyFileStamp = (u64, u64, u64, i64, i64, i64, i64);

/// A key file, with the key as it was last read.
#[derive(Debug)]
pub(super) struct ApiKeyFile {
    path: PathBuf,
    last_read: Mutex<(Option<ApiKeyFileStamp>, Option<FileApiKey>)>,
}

impl ApiKeyFile {
    /// Opens a key file and reads the key.
    pub(super) fn open(path: PathBuf) -> Result<ApiKeyFile, ApiKeyFileError> {
        // The stamp is taken before the file is read: a change in between then causes one more read, and is not missed.
        let stamp = read_stamp(&path);
        let key = read_key(&path)?;
        Ok(ApiKeyFile { path, last_read: Mutex::new((stamp, Some(key))) })
    }

    /// Returns the current key of the file; `None` while it cannot be read, which is logged once. One `stat` per
    /// request costs less than a thread that watches the file.
    pub(super) fn current_key(&self) -> Option<FileApiKey> {
        let mut last = self.last_read.lock();
        let current_stamp = read_stamp(&self.path);
        if last.0 != current_stamp {
            let result = read_key(&self.path);
            match &result {
                Ok(_) => tracing::info!("read the API key again from {}", self.path.display()),
                Err(error) => tracing::error!(
                    "{}; all requests with a key are refused until the file can be read",
                    ErrorChain(error)
                ),
            }
            *last = (current_stamp, result.ok());
        }
        last.1.clone()
    }
}

/// A key file with the id of the organization to which the key belongs.
#[derive(Debug)]
pub(super) struct OrganizationApiKeyFile {
    pub(super) organization: String,
    pub(super) file: ApiKeyFile,
}

/// Returns the stamp of a file, or `None` if there is no such file. A pipe can be read only once, so it has a constant
/// stamp and is treated as unchanged.
fn read_stamp(path: &Path) -> Option<ApiKeyFileStamp> {
    let metadata: Metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() {
        return Some(ApiKeyFileStamp::default());
    }
    Some((
        metadata.dev(),
        metadata.ino(),
        metadata.size(),
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ctime(),
        metadata.ctime_nsec(),
    ))
}

fn read_key(path: &Path) -> Result<FileApiKey, ApiKeyFileError> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_KEY_FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|source| ApiKeyFileError::Read { path: path.to_owned(), source })?;
    parse_key(&bytes).map_err(|reason| ApiKeyFileError::Invalid { path: path.to_owned(), reason })
}

fn parse_key(bytes: &[u8]) -> Result<FileApiKey, &'static str> {
    let key = bytes.trim_ascii();
    if bytes.len() as u64 > MAX_KEY_FILE_BYTES {
        Err("the file is longer than 4096 bytes")
    } else if key.is_empty() {
        Err("the file is empty")
    } else if key.iter().any(u8::is_ascii_control) {
        Err("the key contains control characters")
    } else {
        Ok(FileApiKey(key.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_line_without_control_characters() {
        for (file, key) in [("adm_1", Some("adm_1")), (" adm_1\r\n", Some("adm_1")), ("a b", Some("a b"))] {
            assert_eq!(parse_key(file.as_bytes()).ok(), key.map(|key| FileApiKey(key.as_bytes().to_vec())), "{file:?}");
        }
        for wrong in ["", "\n", " \t\r\n", "a\nb", "a\0b", "a\tb", "\u{7f}x", &"k".repeat(5000)] {
            assert!(parse_key(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
        assert!(parse_key(&[b'k'; 4096]).is_ok() && parse_key(&[b'k'; 4097]).is_err());
        assert_eq!(format!("{:?}", parse_key(b"adm_1")), "Ok(***)");
    }

    #[test]
    fn an_invalid_or_missing_key_file_disables_the_api_key_until_the_file_is_valid() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        assert!(matches!(ApiKeyFile::open(path.clone()), Err(ApiKeyFileError::Read { .. })));
        std::fs::write(&path, "").unwrap();
        assert!(matches!(ApiKeyFile::open(path.clone()), Err(ApiKeyFileError::Invalid { .. })));
        std::fs::write(&path, "one").unwrap();
        let file = ApiKeyFile::open(path.clone()).unwrap();
        let key = || file.current_key().map(|key| String::from_utf8(key.as_bytes().to_vec()).unwrap());
        for (text, expected) in [
            (Some("one"), Some("one")),
            (Some("others"), Some("others")),
            (Some(""), None),
            (None, None),
            (Some("x"), Some("x")),
        ] {
            match text {
                Some(text) => std::fs::write(&path, text).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
            assert_eq!(key().as_deref(), expected, "{text:?}");
            assert_eq!(key().as_deref(), expected, "the file has not changed since");
        }
    }
}
