//! Decides in which format a file of a site is parsed.

use docwharf_base::model::site_path::{file_name, is_hidden};

use crate::lookup::unserved_paths::RESERVED_FOLDER;
use crate::media_types::{is_script, is_xml, media_type};

/// The format in which a file is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceFormat {
    /// HTML.
    Html,
    /// XML that a browser shows as a document. It may contain HTML and SVG elements.
    Xml,
    /// An SVG image. It may contain scripts and styles.
    Svg,
    /// CSS.
    Style,
    /// JavaScript.
    Script,
    /// A web app manifest.
    Manifest,
}

/// Returns the format in which a file is parsed, by the media type with which it is served. Returns `None` for a file
/// that is not served or cannot name resources.
pub fn detect_source_format(path: &[u8]) -> Option<SourceFormat> {
    if is_hidden(path) || path.split(|&b| b == b'/').next() == Some(RESERVED_FOLDER) {
        return None;
    }
    match media_type(path)? {
        "text/html" => Some(SourceFormat::Html),
        "image/svg+xml" => Some(SourceFormat::Svg),
        "text/css" => Some(SourceFormat::Style),
        "application/manifest+json" => Some(SourceFormat::Manifest),
        "application/json" if file_name(path) == b"manifest.json" => Some(SourceFormat::Manifest),
        media_type if is_xml(media_type) => Some(SourceFormat::Xml),
        media_type if is_script(media_type) => Some(SourceFormat::Script),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_format_follows_the_file_name_and_hidden_files_have_none() {
        for (path, expected) in [
            ("index.html", Some(SourceFormat::Html)),
            ("a/b.HTM", Some(SourceFormat::Html)),
            ("a.svg", Some(SourceFormat::Svg)),
            ("a.css", Some(SourceFormat::Style)),
            ("a.js", Some(SourceFormat::Script)),
            ("a.mjs", Some(SourceFormat::Script)),
            ("a.webmanifest", Some(SourceFormat::Manifest)),
            ("a/manifest.json", Some(SourceFormat::Manifest)),
            ("a.json", None),
            ("a.xml", Some(SourceFormat::Xml)),
            ("a.xhtml", Some(SourceFormat::Xml)),
            ("a.txt", None),
            ("a.png", None),
            ("LICENSE", None),
            (".git/a.html", None),
            ("a/.b.css", None),
            (".well-known/a.html", Some(SourceFormat::Html)),
            ("_docwharf/a.html", None),
            ("_docwharf.html", Some(SourceFormat::Html)),
            ("a/_docwharf/a.html", Some(SourceFormat::Html)),
        ] {
            assert_eq!(detect_source_format(path.as_bytes()), expected, "{path}");
        }
    }
}
