//! The location of the API key. The key is read each time it is needed, because it may have been replaced.

use std::path::PathBuf;

use zeroize::Zeroizing;

use docwharf_base::key_file::{MAX_KEY_FILE_BYTES, check_key_characters, secret_file_advice};
use docwharf_base::regular_file;
use docwharf_base::secret::Secret;

pub use docwharf_base::key_file::read_key_file;

use super::error::SyncError;

/// The location of the API key: the first of these that is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiKeyLocation {
    /// `api.keyFile`
    File(PathBuf),
    /// `$DOCWHARF_API_KEY`
    Environment(Secret),
    /// `$CREDENTIALS_DIRECTORY/api-key`, as systemd passes it; an empty file counts as no key.
    Credential(PathBuf),
    /// The file that a systemd unit loads the credential from, for a command that root runs beside the service.
    UnitCredential {
        /// The file's path.
        path: PathBuf,
        /// The unit's name.
        unit: String,
    },
    /// No location is configured.
    Unset,
}

impl ApiKeyLocation {
    /// The name of the location in messages.
    pub fn name(&self) -> String {
        match self {
            ApiKeyLocation::File(path) => format!("{} (api.keyFile)", path.display()),
            ApiKeyLocation::Environment(_) => "$DOCWHARF_API_KEY".to_owned(),
            ApiKeyLocation::Credential(path) => path.display().to_string(),
            ApiKeyLocation::UnitCredential { path, unit } => {
                format!("{} (credential api-key of {unit})", path.display())
            }
            ApiKeyLocation::Unset => "api.keyFile".to_owned(),
        }
    }

    /// The file to watch, if the key is in a file.
    pub fn file(&self) -> Option<&PathBuf> {
        match self {
            ApiKeyLocation::File(path)
            | ApiKeyLocation::Credential(path)
            | ApiKeyLocation::UnitCredential { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Reads the key and trims it.
    pub fn read(&self) -> Result<Secret, SyncError> {
        let unusable = |message: String| SyncError::UnusableSetting(message);
        let no_key = "no API key: set api.keyFile, $DOCWHARF_API_KEY or the systemd credential api-key";
        // Overwritten with zeros when it is dropped, as the key itself.
        let text = Zeroizing::new(match self {
            ApiKeyLocation::Environment(key) => key.expose().to_owned(),
            ApiKeyLocation::Unset => return Err(unusable(no_key.to_owned())),
            ApiKeyLocation::File(path)
            | ApiKeyLocation::Credential(path)
            | ApiKeyLocation::UnitCredential { path, .. } => regular_file::read_text(path, MAX_KEY_FILE_BYTES)
                .map_err(|error| {
                    let advice = secret_file_advice(&error, "the key");
                    unusable(format!("cannot read the API key from {}: {error}{advice}", self.name()))
                })?,
        });
        let key = text.trim();
        if key.is_empty() {
            return Err(unusable(match self {
                ApiKeyLocation::File(_) | ApiKeyLocation::UnitCredential { .. } => {
                    format!("the API key in {} is empty", self.name())
                }
                _ => no_key.to_owned(),
            }));
        }
        check_key_characters(key).map_err(|fault| unusable(format!("the API key in {} {fault}", self.name())))?;
        Ok(Secret::new(key.to_owned()))
    }

    /// Whether the mode of the key's file allows more than 0640.
    pub fn is_too_open(&self) -> bool {
        use std::os::unix::fs::PermissionsExt;
        let (ApiKeyLocation::File(path) | ApiKeyLocation::UnitCredential { path, .. }) = self else { return false };
        std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o037 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_trimmed_and_control_characters_inside_are_an_error() {
        let read = |text: &str| ApiKeyLocation::Environment(Secret::new(text.into())).read();
        assert_eq!(read(" dwk_1\n").unwrap().expose(), "dwk_1");
        for wrong in ["dwk_1\ndwk_2", "a\tb", "a\u{7f}b", " \n", "schlüssel"] {
            let why = read(wrong).unwrap_err().to_string();
            assert!(!why.contains("dwk_1"), "{why}");
        }
    }

    #[test]
    fn api_key_is_read_from_its_file_and_errors_name_the_setting_or_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let unit = |path: &PathBuf| ApiKeyLocation::UnitCredential { path: path.clone(), unit: "a.service".to_owned() };
        let places = [ApiKeyLocation::File(path.clone()), ApiKeyLocation::Credential(path.clone()), unit(&path)];
        // The content of the file; the expected result for a file, and for a credential.
        let large = " ".repeat(usize::try_from(MAX_KEY_FILE_BYTES).unwrap());
        let cases = [
            (None, Err("cannot read the API key from"), Err("cannot read the API key from")),
            (Some(" dwk_1\n"), Ok("dwk_1"), Ok("dwk_1")),
            (Some(" \n"), Err("is empty"), Err("no API key: set api.keyFile")),
            (Some("a\tb"), Err("control characters"), Err("control characters")),
            (Some(large.as_str()), Err("is empty"), Err("no API key: set api.keyFile")),
        ];
        for (text, file_result, credential_result) in cases {
            if let Some(text) = text {
                std::fs::write(&path, text).unwrap();
            }
            for (place, expected) in places.iter().zip([file_result, credential_result, file_result]) {
                let read = place.read().map(|key| key.expose().to_owned()).map_err(|error| error.to_string());
                match (&read, expected) {
                    (Ok(key), Ok(expected)) => assert_eq!(key, expected),
                    (Err(why), Err(part)) => assert!(why.contains(part), "{place:?}: {why}"),
                    _ => panic!("{place:?}: {read:?}"),
                }
                assert_eq!(place.file(), Some(&path));
                assert!(place.name().starts_with(path.to_str().unwrap()));
            }
        }
        std::fs::remove_file(&path).unwrap();
        let message = places[0].read().unwrap_err().to_string();
        assert!(message.ends_with("; put the key there, or correct the path"), "{message}");
        std::fs::write(&path, format!("{large}k")).unwrap();
        assert!(places[0].read().is_err(), "a longer file is refused");
        let message = ApiKeyLocation::Unset.read().unwrap_err().to_string();
        assert!(message.contains("no API key: set api.keyFile"), "{message}");
        assert_eq!(
            (ApiKeyLocation::Unset.file(), ApiKeyLocation::Environment(Secret::new("k".into())).file()),
            (None, None)
        );
    }

    #[test]
    fn key_file_that_others_can_read_or_the_group_can_write_is_too_open() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, "k").unwrap();
        let unit = ApiKeyLocation::UnitCredential { path: path.clone(), unit: "a.service".to_owned() };
        for (mode, is_too_open) in [
            (0o600, false),
            (0o640, false),
            (0o400, false),
            (0o644, true),
            (0o660, true),
            (0o650, true),
            (0o602, true),
            (0o601, true),
        ] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(ApiKeyLocation::File(path.clone()).is_too_open(), is_too_open, "{mode:o}");
            assert_eq!(unit.is_too_open(), is_too_open, "{mode:o}");
            assert!(!ApiKeyLocation::Credential(path.clone()).is_too_open(), "systemd sets its mode");
        }
        assert!(!ApiKeyLocation::File(dir.path().join("none")).is_too_open() && !ApiKeyLocation::Unset.is_too_open());
    }

    #[test]
    fn a_key_file_has_one_key_of_ascii_characters() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        for (text, expected) in [
            (" dwk_1\n", Ok("dwk_1")),
            ("\n", Err("NAME is empty")),
            ("clé", Err("NAME has control characters or non-ASCII characters; the value must be the key only")),
            ("a\nb", Err("NAME has control characters or non-ASCII characters; the value must be the key only")),
        ] {
            std::fs::write(&path, text).unwrap();
            let key = read_key_file(&path, "NAME");
            assert_eq!(key.as_ref().map(Secret::expose).map_err(String::as_str), expected, "{text:?}");
        }
        assert!(read_key_file(&folder.path().join("none"), "NAME").unwrap_err().starts_with("NAME cannot be read: "));
    }
}
