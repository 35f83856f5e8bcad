//! The file with the bearer keys for `/v1/analytics/…` on `admin.listen` (`analytics.keyFile`). It is not read with
//! the configuration: users who may not read the keys run commands with the same configuration.

use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use docwharf_base::model::digest::Digest;
use docwharf_base::regular_file;
use docwharf_base::secret::Secret;

/// The maximum number of keys in a file. The key of a request is compared with all of them.
const MAX_KEYS: usize = 100;
/// The minimum length of a key in characters. A shorter one could be guessed.
const MIN_KEY_CHARS: usize = 16;
/// The maximum length of a key in characters.
const MAX_KEY_CHARS: usize = 512;
/// The maximum size of the file in bytes: the longest keys, and as much for comments.
const MAX_FILE_BYTES: u64 = 128 << 10;

/// The location of the keys. They are read each time they are needed, because they may have been replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnalyticsKeyFile(PathBuf);

impl AnalyticsKeyFile {
    /// Creates the location from the path of the file.
    pub fn new(path: PathBuf) -> AnalyticsKeyFile {
        AnalyticsKeyFile(path)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Reads the keys.
    pub fn read(&self) -> Result<AnalyticsKeys, AnalyticsKeyFileError> {
        let path = || self.0.clone();
        // A secret is overwritten with zeros when it is dropped.
        let text = regular_file::read_text(&self.0, MAX_FILE_BYTES)
            .map(Secret::new)
            .map_err(|source| AnalyticsKeyFileError::Read { path: path(), source })?;
        let mut keys = Vec::new();
        for (line, key) in (1..).zip(text.expose().lines().map(str::trim)) {
            if key.is_empty() || key.starts_with('#') {
                continue;
            }
            check_key(key).map_err(|reason| AnalyticsKeyFileError::InvalidKey { path: path(), line, reason })?;
            keys.push(Digest::compute(key.as_bytes()));
        }
        match keys.len() {
            0 => Err(AnalyticsKeyFileError::NoKey { path: path() }),
            number if number > MAX_KEYS => Err(AnalyticsKeyFileError::TooManyKeys { path: path(), number }),
            _ => Ok(AnalyticsKeys(keys)),
        }
    }

    /// Returns a warning if the mode of the file allows more than 0640.
    pub fn mode_warning(&self) -> Option<String> {
        mode_warning(&self.0, "analytics.keyFile")
    }
}

/// Returns a warning if the mode of a file of keys allows more than 0640. `key` is the key of the configuration.
pub fn mode_warning(path: &Path, key: &str) -> Option<String> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    let path = path.display();
    (mode & 0o037 != 0).then(|| {
        let mode = mode & 0o7777;
        let use_by_others = "which lets other users use it or its group write it";
        format!("{path} ({key}) has mode {mode:04o}, {use_by_others}: chmod 0640 it")
    })
}

/// Checks the form of a key. The reason never quotes the key.
fn check_key(key: &str) -> Result<(), String> {
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("the key has a space or a character that is not visible ASCII".to_owned());
    }
    let chars = key.len();
    if (MIN_KEY_CHARS..=MAX_KEY_CHARS).contains(&chars) {
        Ok(())
    } else {
        Err(format!("the key has {chars} characters, and {MIN_KEY_CHARS} to {MAX_KEY_CHARS} are needed"))
    }
}

/// The keys of a file, as digests: the keys themselves are not kept in memory.
#[derive(Clone, PartialEq, Eq)]
pub struct AnalyticsKeys(Vec<Digest>);

impl AnalyticsKeys {
    /// Returns whether this is one of the keys. The duration does not depend on the keys: the digest of the token is
    /// compared with all of their digests, each to its end.
    pub fn accepts(&self, token: &[u8]) -> bool {
        let digest = Digest::compute(token);
        let mut is_known = false;
        for key in &self.0 {
            let difference = key.0.iter().zip(digest.0).fold(0u8, |bits, (one, other)| bits | (one ^ other));
            // Without the barrier, the compiler might end a comparison at the first difference.
            is_known |= std::hint::black_box(difference) == 0;
        }
        is_known
    }
}

impl fmt::Debug for AnalyticsKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnalyticsKeys({})", self.0.len())
    }
}

/// The error if a file has no usable keys. The message never quotes a key.
#[derive(Debug, thiserror::Error)]
pub enum AnalyticsKeyFileError {
    /// The file does not exist or cannot be read.
    #[error("cannot read {} (analytics.keyFile)", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A line is neither a key nor a comment.
    #[error("{} (analytics.keyFile), line {line}: {reason}", path.display())]
    InvalidKey {
        /// The file.
        path: PathBuf,
        /// The number of the line, counted from 1.
        line: usize,
        /// The fault of the line.
        reason: String,
    },
    /// There are more keys than are allowed.
    #[error("{} (analytics.keyFile) has {number} keys; at most {} are allowed", path.display(), MAX_KEYS)]
    TooManyKeys {
        /// The file.
        path: PathBuf,
        /// The number of keys.
        number: usize,
    },
    /// The file has no key.
    #[error("{} (analytics.keyFile) has no key; write one a line, for example with `openssl rand -hex 32`", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use docwharf_base::error_chain::ErrorChain;

    const KEY: &str = "0123456789abcdef";

    #[test]
    fn each_line_of_the_file_is_a_key_and_no_other_token_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let file = AnalyticsKeyFile::new(dir.path().join("keys"));
        let longest = "~".repeat(MAX_KEY_CHARS);
        std::fs::write(file.path(), format!("# Grafana\n{KEY}\n\n  {longest}\t\r\n#{KEY}-old\n")).unwrap();
        let keys = file.read().unwrap();
        assert!(keys.accepts(KEY.as_bytes()) && keys.accepts(longest.as_bytes()));
        for wrong in ["", "0123456789abcdeF", "0123456789abcdef ", "# Grafana", "0123456789abcdef-old", &longest[1..]] {
            assert!(!keys.accepts(wrong.as_bytes()), "{wrong}");
        }
        assert_eq!(format!("{keys:?}"), "AnalyticsKeys(2)");
    }

    #[test]
    fn a_file_without_usable_keys_is_an_error_that_names_the_line_and_quotes_no_key() {
        let dir = tempfile::tempdir().unwrap();
        let file = AnalyticsKeyFile::new(dir.path().join("keys"));
        let path = file.path().display().to_string();
        let error = || ErrorChain(&file.read().unwrap_err()).to_string();
        assert!(error().starts_with(&format!("cannot read {path} (analytics.keyFile): ")), "{}", error());
        let (many, too_long) = (format!("{KEY}\n").repeat(MAX_KEYS), "k".repeat(MAX_KEY_CHARS + 1));
        let too_many = format!("{many}{KEY}\n");
        let no_key = " has no key; write one a line, for example with `openssl rand -hex 32`";
        let cases: &[(&str, &str)] = &[
            ("", no_key),
            ("# nothing\n \n", no_key),
            ("#\n0123456789abcde\n", ", line 2: the key has 15 characters, and 16 to 512 are needed"),
            (&too_long, ", line 1: the key has 513 characters, and 16 to 512 are needed"),
            ("0123456789 abcdef", ", line 1: the key has a space or a character that is not visible ASCII"),
            ("0123456789\u{1}abcdef", ", line 1: the key has a space or a character that is not visible ASCII"),
            ("schlüsselschlüssel", ", line 1: the key has a space or a character that is not visible ASCII"),
            (&too_many, " has 101 keys; at most 100 are allowed"),
        ];
        for (content, expected) in cases {
            std::fs::write(file.path(), content).unwrap();
            assert_eq!(error(), format!("{path} (analytics.keyFile){expected}"));
        }
        std::fs::write(file.path(), many).unwrap();
        assert!(file.read().is_ok());
        std::fs::write(file.path(), vec![b'#'; usize::try_from(MAX_FILE_BYTES).unwrap() + 1]).unwrap();
        assert!(error().ends_with("the file is larger than 131072 bytes"), "{}", error());
    }

    #[test]
    fn a_file_that_others_can_read_or_the_group_can_write_causes_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        let file = AnalyticsKeyFile::new(dir.path().join("keys"));
        assert_eq!(file.mode_warning(), None);
        std::fs::write(file.path(), KEY).unwrap();
        for (mode, is_too_open) in [(0o600, false), (0o640, false), (0o400, false), (0o644, true), (0o660, true)] {
            std::fs::set_permissions(file.path(), PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(file.mode_warning().is_some(), is_too_open, "{mode:o}");
        }
        let warning = "has mode 0660, which lets other users use it or its group write it: chmod 0640 it";
        assert_eq!(file.mode_warning(), Some(format!("{} (analytics.keyFile) {warning}", file.path().display())));
    }
}
