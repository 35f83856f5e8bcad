//! Version ids, the manifest that they are computed from, and labels.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::digest::{Digest, Sha256Hasher};

/// The id of a version: the SHA-256 of its [`VersionManifest`]. Versions with equal content have equal ids.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VersionId(pub Digest);

impl VersionId {
    /// The first 12 digits, which are shown to users. Commands accept any unique prefix of 8 digits or more.
    pub fn short(&self) -> String {
        let mut text = self.0.to_hex();
        text.truncate(12);
        text
    }

    /// Whether `prefix` has 8 or more digits and this id begins with them.
    pub fn has_prefix(&self, prefix: &str) -> bool {
        prefix.len() >= 8 && self.0.to_hex().starts_with(&prefix.to_ascii_lowercase())
    }
}

impl fmt::Display for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for VersionId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Ids are also file names, so only one spelling is accepted.
        if text.bytes().any(|b| b.is_ascii_uppercase()) {
            return Err("not a version id");
        }
        Digest::parse(text).map(VersionId).ok_or("not a version id")
    }
}

impl Serialize for VersionId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_hex())
    }
}

impl<'de> Deserialize<'de> for VersionId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The list of a version's files, from which a [`VersionId`] is computed: one line for each file, in byte order of the
/// paths. Only its hash is stored.
#[derive(Debug, Default)]
pub struct VersionManifest {
    hasher: Sha256Hasher,
    line: Vec<u8>,
}

impl VersionManifest {
    /// Adds the line of the next file: `<sha256 of content> <size> <path>\n`. In the path `\`, CR and LF are written as
    /// `\\`, `\r` and `\n`.
    pub fn add(&mut self, content: &Digest, size: u64, path: &[u8]) {
        self.line.clear();
        self.line.extend_from_slice(content.to_hex().as_bytes());
        self.line.extend_from_slice(format!(" {size} ").as_bytes());
        for &byte in path {
            match byte {
                b'\\' => self.line.extend_from_slice(b"\\\\"),
                b'\r' => self.line.extend_from_slice(b"\\r"),
                b'\n' => self.line.extend_from_slice(b"\\n"),
                _ => self.line.push(byte),
            }
        }
        self.line.push(b'\n');
        self.hasher.update(&self.line);
    }

    /// Returns the id of the added files.
    pub fn id(mut self) -> VersionId {
        VersionId(self.hasher.finalize_reset())
    }
}

/// A label that names a version, such as `staticExport.version` in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VersionLabel(String);

/// Names that commands accept for versions in place of a label, and that therefore cannot be labels.
const RESERVED_LABELS: [&str; 3] = ["active", "previous", "newest"];

impl VersionLabel {
    /// Checks a label: 1 to 200 characters, no control characters, no white space at either end, and not a reserved
    /// name.
    pub fn new(text: &str) -> Result<VersionLabel, &'static str> {
        if text.is_empty() || text.chars().count() > 200 {
            return Err("a label has 1 to 200 characters");
        }
        if text.chars().any(char::is_control) || text.trim() != text {
            return Err("a label has no control characters and no space at its ends");
        }
        if RESERVED_LABELS.contains(&text) {
            return Err("active, previous and newest cannot be labels: docwharf uses these names itself");
        }
        Ok(VersionLabel(text.to_owned()))
    }

    /// The text of the label.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VersionLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_is_the_documented_text() {
        let mut manifest = VersionManifest::default();
        manifest.add(&Digest::compute(b"hello"), 5, b"a\\b\n.html");
        let line = format!("{} 5 a\\\\b\\n.html\n", Digest::compute(b"hello"));
        assert_eq!(manifest.id().0, Digest::compute(line.as_bytes()));
    }

    #[test]
    fn manifest_has_one_line_per_file_in_insertion_order() {
        let mut manifest = VersionManifest::default();
        manifest.add(&Digest::compute(b"a"), 1, b"a\r.html");
        manifest.add(&Digest::compute(b""), 0, b"b c");
        let lines = format!("{} 1 a\\r.html\n{} 0 b c\n", Digest::compute(b"a"), Digest::compute(b""));
        assert_eq!(manifest.id().0, Digest::compute(lines.as_bytes()));
        assert_eq!(VersionManifest::default().id().0, Digest::compute(b""));
    }

    #[test]
    fn version_id_matches_prefixes_of_eight_or_more_digits_and_parses_in_lower_case() {
        let id = VersionId(Digest::compute(b""));
        let hex = id.0.to_hex();
        assert!(hex.starts_with("e3b0c44298fc1c14"));
        for (prefix, expected) in [
            ("e3b0c442", true),
            ("E3B0C442", true),
            ("e3b0c4429", true),
            (&hex, true),
            ("e3b0c44", false),
            ("", false),
            ("e3b0c443", false),
            ("3b0c44298", false),
            (&format!("{hex}0"), false),
        ] {
            assert_eq!(id.has_prefix(prefix), expected, "{prefix}");
        }
        assert_eq!(
            (id.short().as_str(), id.to_string(), format!("{id:?}")),
            ("e3b0c44298fc", hex.clone(), hex.clone())
        );
        assert_eq!(hex.parse::<VersionId>(), Ok(id));
        for invalid in ["", &hex[1..], &hex.to_ascii_uppercase(), &hex.replace('e', "x"), &format!("{hex}0")] {
            assert!(invalid.parse::<VersionId>().is_err(), "{invalid}");
        }
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, format!("\"{hex}\""));
        assert_eq!(serde_json::from_str::<VersionId>(&json).unwrap(), id);
        assert!(serde_json::from_str::<VersionId>("\"e3b0\"").is_err());
    }

    #[test]
    fn label_is_one_line_of_at_most_200_characters_and_not_a_reserved_word() {
        for (text, is_valid) in [
            ("x", true),
            ("v 2", true),
            ("Active", true),
            (&"ä".repeat(200), true),
            (&"ä".repeat(201), false),
            ("", false),
            (" x", false),
            ("x\u{a0}", false),
            ("x\ty", false),
            ("x\u{7f}y", false),
            ("active", false),
            ("previous", false),
            ("newest", false),
        ] {
            assert_eq!(
                VersionLabel::new(text).map(|label| label.to_string() + label.as_str()).ok(),
                is_valid.then(|| text.repeat(2)),
                "{text}"
            );
        }
    }
}
