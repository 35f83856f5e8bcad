//! Checked relative paths. Only a [`SitePath`] may be joined to a folder; a name from an archive or a folder is checked
//! by [`SitePath::parse`] (docs/design/archives.md, rule 2).

use std::fmt;

/// The longest path in bytes.
pub const MAX_PATH_BYTES: usize = 4096;
/// The longest component of a path in bytes.
pub const MAX_COMPONENT_BYTES: usize = 255;

/// A relative path below the root of a site: components separated by `/`, none of them empty, `.` or `..`, without NUL.
/// It need not be UTF-8.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SitePath(Box<[u8]>);

/// The reason why a name is refused. Each text continues "entry NAME …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EntryNameFault {
    /// The name is empty, or the name of a file has only dots and separators.
    #[error("has no name")]
    Empty,
    /// The name contains a NUL byte.
    #[error("has a NUL byte in its name")]
    Nul,
    /// The name begins with a separator.
    #[error("has an absolute path")]
    Absolute,
    /// The name begins with a drive letter, such as `C:`.
    #[error("begins with a drive letter")]
    Drive,
    /// The name has a `..` component.
    #[error("leaves the bundle")]
    DotDot,
    /// The name has a component over 255 bytes.
    #[error("has a component over {MAX_COMPONENT_BYTES} bytes")]
    LongComponent,
    /// The name is over 4,096 bytes.
    #[error("has a path over {MAX_PATH_BYTES} bytes")]
    LongPath,
}

impl SitePath {
    /// Checks a name from an archive or a folder and normalises it. If `backslash_separates` is set (ZIP), the checks
    /// treat `\` as a separator too; it stays an ordinary character of the path. A name of `.` and separators alone is
    /// the root: `None`.
    pub fn parse(name: &[u8], backslash_separates: bool) -> Result<Option<SitePath>, EntryNameFault> {
        let is_separator = |b: &u8| *b == b'/' || (backslash_separates && *b == b'\\');
        if name.is_empty() {
            return Err(EntryNameFault::Empty);
        }
        if name.contains(&0) {
            return Err(EntryNameFault::Nul);
        }
        if name.len() > MAX_PATH_BYTES {
            return Err(EntryNameFault::LongPath);
        }
        if is_separator(&name[0]) {
            return Err(EntryNameFault::Absolute);
        }
        if has_drive(name) {
            return Err(EntryNameFault::Drive);
        }
        for component in name.split(is_separator) {
            if component == b".." {
                return Err(EntryNameFault::DotDot);
            }
            if component.len() > MAX_COMPONENT_BYTES {
                return Err(EntryNameFault::LongComponent);
            }
        }
        let mut path = Vec::with_capacity(name.len());
        for component in name.split(|&b| b == b'/') {
            if component.is_empty() || component == b"." {
                continue;
            }
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(component);
        }
        // Checked again: removing `./` may uncover a drive letter, and a component that contains a backslash may be too
        // long although each of its parts was short enough.
        if has_drive(&path) {
            return Err(EntryNameFault::Drive);
        }
        if components(&path).any(|component| component.len() > MAX_COMPONENT_BYTES) {
            return Err(EntryNameFault::LongComponent);
        }
        if path.is_empty() { Ok(None) } else { Ok(Some(SitePath(path.into()))) }
    }

    /// The bytes of the path.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the path relative to `folder`; `None` if it is not below it.
    pub fn strip_folder(&self, folder: &[u8]) -> Option<SitePath> {
        let relative = self.0.strip_prefix(folder)?.strip_prefix(b"/")?;
        (!relative.is_empty()).then(|| SitePath(relative.into()))
    }
}

impl fmt::Debug for SitePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

/// Whether a name begins with a drive letter, such as `C:`.
fn has_drive(name: &[u8]) -> bool {
    name.len() >= 2 && name[0].is_ascii_alphabetic() && name[1] == b':'
}

/// Returns the components of a path.
pub fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&b| b == b'/')
}

/// Returns the last component of a path.
pub fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&b| b == b'/').next().unwrap_or(path)
}

/// Returns the extension of a path: the part of its last component after the last dot, in lower case. `None` for
/// `.env`, for names without a dot and for an extension that is not UTF-8.
pub fn extension(path: &[u8]) -> Option<String> {
    let name = file_name(path);
    let dot = name.iter().rposition(|&b| b == b'.')?;
    if dot == 0 {
        return None;
    }
    String::from_utf8(name[dot + 1..].to_ascii_lowercase()).ok()
}

/// An extension of at most 16 bytes, in lower case, without an allocation.
#[derive(Debug, Clone, Copy)]
pub struct FileExtension {
    bytes: [u8; FileExtension::MAX_BYTES],
    len: usize,
}

impl FileExtension {
    /// The capacity in bytes. Every known extension is shorter.
    const MAX_BYTES: usize = 16;

    /// The extension as text; empty if it is not UTF-8.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

/// Returns the extension of a path as [`extension`] does, but without an allocation, because it is needed for every
/// request. `None` also for an extension over 16 bytes.
pub fn short_extension(path: &[u8]) -> Option<FileExtension> {
    let name = file_name(path);
    let dot = name.iter().rposition(|&b| b == b'.').filter(|&dot| dot > 0)?;
    let extension = &name[dot + 1..];
    let mut bytes = [0; FileExtension::MAX_BYTES];
    let target = bytes.get_mut(..extension.len())?;
    target.copy_from_slice(extension);
    target.make_ascii_lowercase();
    Some(FileExtension { bytes, len: extension.len() })
}

/// Whether a path names a page: an HTML document (`.html`, `.htm`).
pub fn is_page(path: &[u8]) -> bool {
    let name = file_name(path);
    [&b".html"[..], b".htm"]
        .iter()
        .any(|end| name.len() > end.len() && name[name.len() - end.len()..].eq_ignore_ascii_case(end))
}

/// Whether a path is content that is never served: one of its components, other than `.well-known`, begins with one dot
/// followed by another character than a dot (docs/design/archives.md, rule 12).
pub fn is_hidden(path: &[u8]) -> bool {
    // Most paths have no such dot, and this check runs for every request.
    let may_be_hidden = path.first() == Some(&b'.') || path.windows(2).any(|pair| pair == b"/.");
    may_be_hidden && components(path).any(|c| c.len() > 1 && c[0] == b'.' && c[1] != b'.' && c != b".well-known")
}

/// Compares paths as if `/` were the lowest byte, so that everything below a folder follows the folder directly.
pub fn compare_tree_order(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
    let key = |byte: u8| if byte == b'/' { 0u16 } else { u16::from(byte) + 1 };
    match a.iter().zip(b).find(|(x, y)| x != y) {
        Some((&x, &y)) => key(x).cmp(&key(y)),
        None => a.len().cmp(&b.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(name: &str) -> Result<Option<String>, EntryNameFault> {
        let path = SitePath::parse(name.as_bytes(), false)?;
        Ok(path.map(|p| String::from_utf8(p.as_bytes().to_vec()).unwrap()))
    }

    #[test]
    fn dots_and_empty_components_are_removed() {
        assert_eq!(parse_text("./a//b/.").unwrap().unwrap(), "a/b");
        assert_eq!(parse_text("./").unwrap(), None);
        assert_eq!(parse_text("a...b/..c/c../...").unwrap().unwrap(), "a...b/..c/c../...");
    }

    #[test]
    fn absolute_dot_dot_drive_and_overlong_names_are_refused() {
        for (name, fault) in [
            ("", EntryNameFault::Empty),
            ("a\0b", EntryNameFault::Nul),
            ("/etc/passwd", EntryNameFault::Absolute),
            ("//host/share", EntryNameFault::Absolute),
            ("C:/x", EntryNameFault::Drive),
            ("c:x", EntryNameFault::Drive),
            ("./C:/x", EntryNameFault::Drive),
            ("..", EntryNameFault::DotDot),
            ("a/../b", EntryNameFault::DotDot),
            ("a/..", EntryNameFault::DotDot),
        ] {
            assert_eq!(parse_text(name), Err(fault), "{name:?}");
        }
        assert_eq!(parse_text(&"x".repeat(256)), Err(EntryNameFault::LongComponent));
        assert!(parse_text(&"x".repeat(255)).is_ok());
        assert_eq!(parse_text(&"x/".repeat(2049)), Err(EntryNameFault::LongPath));
    }

    #[test]
    fn a_backslash_separates_in_zip_checks_only() {
        for name in [r"..\x", r"a\..\b", r"\x", r"\\host\share"] {
            assert!(SitePath::parse(name.as_bytes(), true).is_err(), "{name}");
            assert!(SitePath::parse(name.as_bytes(), false).is_ok(), "{name}");
        }
        let with_backslash = SitePath::parse(br"a\b", true).unwrap().unwrap();
        assert_eq!(with_backslash.as_bytes(), br"a\b");
    }

    #[test]
    fn odd_names_are_legal() {
        for name in ["100%.html", "ab:c", "[[...slug]].html", "con", "Ä", "A\u{308}", " x ", "nul.txt", "a\nb"] {
            assert!(parse_text(name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn hidden_name_starts_with_one_dot_followed_by_another_character() {
        for path in [".git/x", "a/.env", ".well-known/.x", ".a"] {
            assert!(is_hidden(path.as_bytes()), "{path}");
        }
        for path in [".well-known/x", "..a", "a/...", "a.b", "..."] {
            assert!(!is_hidden(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn the_bounds_of_a_path_and_of_a_component_are_exact() {
        let x = |n| "x".repeat(n);
        let deep = |n: usize| format!("{}{}", "y/".repeat(2000), x(n));
        for (name, fault) in [
            (deep(96), None),
            (deep(97), Some(EntryNameFault::LongPath)),
            (format!("a/{}/b", x(255)), None),
            (format!("a/{}/b", x(256)), Some(EntryNameFault::LongComponent)),
            ("C".to_owned(), None),
            ("1:x".to_owned(), None),
            ("a/C:".to_owned(), None),
            ("C:".to_owned(), Some(EntryNameFault::Drive)),
            (".//./z:x".to_owned(), Some(EntryNameFault::Drive)),
        ] {
            assert_eq!(parse_text(&name).err(), fault, "{} bytes: {name:.20}", name.len());
        }
        // In ZIP the parts between backslashes may be short enough while the whole component is too long.
        for (name, fault) in [
            (format!(r"{}\{}", x(127), x(127)), None),
            (format!(r"{}\{}", x(128), x(127)), Some(EntryNameFault::LongComponent)),
            (format!(r"{}\a", x(256)), Some(EntryNameFault::LongComponent)),
            (r"a\C:".to_owned(), None),
        ] {
            assert_eq!(SitePath::parse(name.as_bytes(), true).err(), fault, "{name}");
        }
    }

    #[test]
    fn strip_folder_matches_whole_components_only() {
        let path = SitePath::parse(b"docs/a/b", false).unwrap().unwrap();
        for (folder, expected) in
            [("docs", Some("a/b")), ("docs/a", Some("b")), ("docs/a/b", None), ("doc", None), ("a", None)]
        {
            let relative = path.strip_folder(folder.as_bytes());
            assert_eq!(relative.as_ref().map(SitePath::as_bytes), expected.map(str::as_bytes), "{folder}");
        }
        assert_eq!(format!("{path:?}"), "\"docs/a/b\"");
        assert_eq!(components(b"docs/a/b").collect::<Vec<_>>(), [&b"docs"[..], b"a", b"b"]);
        for (path, name) in [("docs/a/b.c", "b.c"), ("b", "b"), ("docs/", "")] {
            assert_eq!(file_name(path.as_bytes()), name.as_bytes());
        }
    }

    #[test]
    fn extension_and_page_type_are_derived_from_the_file_name_alone() {
        let (long, longer) = (format!("x.{}", "e".repeat(16)), format!("x.{}", "e".repeat(17)));
        for (path, expected, is_html) in [
            ("a/b.HTML", Some("html"), true),
            ("b.htm", Some("htm"), true),
            ("a/B.Html", Some("html"), true),
            (".html", None, false),
            ("a/.htm", None, false),
            ("a.html/b", None, false),
            ("a.xhtml", Some("xhtml"), false),
            ("a.html5", Some("html5"), false),
            ("html", None, false),
            (".env", None, false),
            (".env.local", Some("local"), false),
            ("x.tar.GZ", Some("gz"), false),
            ("x.", Some(""), false),
            (&long, Some(&long[2..]), false),
            (&longer, Some(&longer[2..]), false),
        ] {
            assert_eq!(extension(path.as_bytes()).as_deref(), expected, "{path}");
            let short = short_extension(path.as_bytes());
            assert_eq!(short.as_ref().map(FileExtension::as_str), expected.filter(|text| text.len() <= 16), "{path}");
            assert_eq!(is_page(path.as_bytes()), is_html, "{path}");
        }
        assert_eq!(extension(b"x.\xff"), None);
        assert_eq!(short_extension(b"x.\xff").unwrap().as_str(), "");
    }

    #[test]
    fn tree_order_lists_the_contents_of_a_folder_directly_after_it() {
        let mut paths = ["b", "a.html", "ab", "a/b/c", "a-b", "a", "a/b", "a/a", "a\u{1}"];
        paths.sort_by(|a, b| compare_tree_order(a.as_bytes(), b.as_bytes()));
        assert_eq!(paths, ["a", "a/a", "a/b", "a/b/c", "a\u{1}", "a-b", "a.html", "ab", "b"]);
        assert_eq!(compare_tree_order(b"a/b", b"a/b"), std::cmp::Ordering::Equal);
    }
}
