//! The only key that opens a path: a name that has been judged (rules A2).

use std::fmt;

/// The longest path, in bytes.
pub const LONGEST_PATH: usize = 4096;
/// The longest component, in bytes.
pub const LONGEST_COMPONENT: usize = 255;

/// A relative path below a site's root: components separated by `/`, none of them empty, `.` or `..`; no NUL. Its bytes
/// are what the archive said, UTF-8 or not.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SitePath(Box<[u8]>);

/// What is wrong with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// Nothing is left of it.
    #[error("has no name")]
    Empty,
    /// Holds a NUL byte.
    #[error("has a NUL byte in its name")]
    Nul,
    /// Begins with a separator.
    #[error("has an absolute path")]
    Absolute,
    /// Begins like `C:`.
    #[error("begins with a drive letter")]
    Drive,
    /// Has a `..` component.
    #[error("leaves the bundle")]
    DotDot,
    /// Has a component over 255 bytes.
    #[error("has a component over {LONGEST_COMPONENT} bytes")]
    LongComponent,
    /// Is over 4,096 bytes.
    #[error("has a path over {LONGEST_PATH} bytes")]
    LongPath,
}

impl SitePath {
    /// Judges a name from an archive or a folder. `backslash` says that `\` separates components too (ZIP), for the
    /// checks only. A name of `.` and separators alone is the root: `None`.
    pub fn judge(name: &[u8], backslash: bool) -> Result<Option<SitePath>, NameFault> {
        let separates = |b: &u8| *b == b'/' || (backslash && *b == b'\\');
        if name.is_empty() {
            return Err(NameFault::Empty);
        }
        if name.contains(&0) {
            return Err(NameFault::Nul);
        }
        if name.len() > LONGEST_PATH {
            return Err(NameFault::LongPath);
        }
        if separates(&name[0]) {
            return Err(NameFault::Absolute);
        }
        if has_drive(name) {
            return Err(NameFault::Drive);
        }
        for component in name.split(separates) {
            if component == b".." {
                return Err(NameFault::DotDot);
            }
            if component.len() > LONGEST_COMPONENT {
                return Err(NameFault::LongComponent);
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
        // Once more for what was hidden behind `./`, and for components that only a backslash kept short.
        if has_drive(&path) {
            return Err(NameFault::Drive);
        }
        if components(&path).any(|component| component.len() > LONGEST_COMPONENT) {
            return Err(NameFault::LongComponent);
        }
        if path.is_empty() { Ok(None) } else { Ok(Some(SitePath(path.into()))) }
    }

    /// The path's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path without its first component, which must be `folder`.
    pub fn below(&self, folder: &[u8]) -> Option<SitePath> {
        let rest = self.0.strip_prefix(folder)?.strip_prefix(b"/")?;
        (!rest.is_empty()).then(|| SitePath(rest.into()))
    }
}

impl fmt::Debug for SitePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

/// Begins like `C:`.
fn has_drive(name: &[u8]) -> bool {
    name.len() >= 2 && name[0].is_ascii_alphabetic() && name[1] == b':'
}

/// The components of a path.
pub fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&b| b == b'/')
}

/// The last component of a path.
pub fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&b| b == b'/').next().unwrap_or(path)
}

/// What stands behind the last dot of a name, lower-cased; `None` for `.env` and names without a dot.
pub fn extension(path: &[u8]) -> Option<String> {
    let name = file_name(path);
    let dot = name.iter().rposition(|&b| b == b'.')?;
    if dot == 0 {
        return None;
    }
    String::from_utf8(name[dot + 1..].to_ascii_lowercase()).ok()
}

/// A short extension, lower-cased.
#[derive(Debug, Clone, Copy)]
pub struct Extension {
    bytes: [u8; Extension::LONGEST],
    len: usize,
}

impl Extension {
    /// Whatever has a meaning is shorter.
    const LONGEST: usize = 16;

    /// As text; empty where it is none.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

/// The same as [`extension`] where it is at most 16 bytes long, without allocating: it is asked for with every request.
pub fn short_extension(path: &[u8]) -> Option<Extension> {
    let name = file_name(path);
    let dot = name.iter().rposition(|&b| b == b'.').filter(|&dot| dot > 0)?;
    let said = &name[dot + 1..];
    let mut bytes = [0; Extension::LONGEST];
    let place = bytes.get_mut(..said.len())?;
    place.copy_from_slice(said);
    place.make_ascii_lowercase();
    Some(Extension { bytes, len: said.len() })
}

/// Whether a path names a page: an HTML document.
pub fn is_page(path: &[u8]) -> bool {
    let name = file_name(path);
    [&b".html"[..], b".htm"]
        .iter()
        .any(|end| name.len() > end.len() && name[name.len() - end.len()..].eq_ignore_ascii_case(end))
}

/// Whether a path is content that is never shown: a component begins with one dot followed by another character than a
/// dot, `.well-known` aside (rules A12).
pub fn is_hidden(path: &[u8]) -> bool {
    // Most paths have no such dot, and this is asked with every request.
    let may_be = path.first() == Some(&b'.') || path.windows(2).any(|pair| pair == b"/.");
    may_be && components(path).any(|c| c.len() > 1 && c[0] == b'.' && c[1] != b'.' && c != b".well-known")
}

/// Orders paths so that everything below a folder follows it at once, as if `/` were the lowest byte.
pub fn tree_order(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
    let key = |byte: u8| if byte == b'/' { 0u16 } else { u16::from(byte) + 1 };
    match a.iter().zip(b).find(|(x, y)| x != y) {
        Some((&x, &y)) => key(x).cmp(&key(y)),
        None => a.len().cmp(&b.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(name: &str) -> Result<Option<String>, NameFault> {
        let path = SitePath::judge(name.as_bytes(), false)?;
        Ok(path.map(|p| String::from_utf8(p.as_bytes().to_vec()).unwrap()))
    }

    #[test]
    fn dots_and_empty_components_are_removed() {
        assert_eq!(judged("./a//b/.").unwrap().unwrap(), "a/b");
        assert_eq!(judged("./").unwrap(), None);
        assert_eq!(judged("a...b/..c/c../...").unwrap().unwrap(), "a...b/..c/c../...");
    }

    #[test]
    fn every_way_out_is_refused() {
        for (name, fault) in [
            ("", NameFault::Empty),
            ("a\0b", NameFault::Nul),
            ("/etc/passwd", NameFault::Absolute),
            ("//host/share", NameFault::Absolute),
            ("C:/x", NameFault::Drive),
            ("c:x", NameFault::Drive),
            ("./C:/x", NameFault::Drive),
            ("..", NameFault::DotDot),
            ("a/../b", NameFault::DotDot),
            ("a/..", NameFault::DotDot),
        ] {
            assert_eq!(judged(name), Err(fault), "{name:?}");
        }
        assert_eq!(judged(&"x".repeat(256)), Err(NameFault::LongComponent));
        assert!(judged(&"x".repeat(255)).is_ok());
        assert_eq!(judged(&"x/".repeat(2049)), Err(NameFault::LongPath));
    }

    #[test]
    fn a_backslash_separates_in_zip_checks_only() {
        for name in [r"..\x", r"a\..\b", r"\x", r"\\host\share"] {
            assert!(SitePath::judge(name.as_bytes(), true).is_err(), "{name}");
            assert!(SitePath::judge(name.as_bytes(), false).is_ok(), "{name}");
        }
        let odd = SitePath::judge(br"a\b", true).unwrap().unwrap();
        assert_eq!(odd.as_bytes(), br"a\b");
    }

    #[test]
    fn odd_names_are_legal() {
        for name in ["100%.html", "ab:c", "[[...slug]].html", "con", "Ä", "A\u{308}", " x ", "nul.txt", "a\nb"] {
            assert!(judged(name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn hidden_is_one_dot_then_another_character() {
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
            (deep(97), Some(NameFault::LongPath)),
            (format!("a/{}/b", x(255)), None),
            (format!("a/{}/b", x(256)), Some(NameFault::LongComponent)),
            ("C".to_owned(), None),
            ("1:x".to_owned(), None),
            ("a/C:".to_owned(), None),
            ("C:".to_owned(), Some(NameFault::Drive)),
            (".//./z:x".to_owned(), Some(NameFault::Drive)),
        ] {
            assert_eq!(judged(&name).err(), fault, "{} bytes: {name:.20}", name.len());
        }
        // In ZIP what a backslash separates is short, and the component that is made of it may still be too long.
        for (name, fault) in [
            (format!(r"{}\{}", x(127), x(127)), None),
            (format!(r"{}\{}", x(128), x(127)), Some(NameFault::LongComponent)),
            (format!(r"{}\a", x(256)), Some(NameFault::LongComponent)),
            (r"a\C:".to_owned(), None),
        ] {
            assert_eq!(SitePath::judge(name.as_bytes(), true).err(), fault, "{name}");
        }
    }

    #[test]
    fn what_lies_below_a_folder_is_known_by_all_of_its_name() {
        let path = SitePath::judge(b"docs/a/b", false).unwrap().unwrap();
        for (folder, below) in
            [("docs", Some("a/b")), ("docs/a", Some("b")), ("docs/a/b", None), ("doc", None), ("a", None)]
        {
            let found = path.below(folder.as_bytes());
            assert_eq!(found.as_ref().map(SitePath::as_bytes), below.map(str::as_bytes), "{folder}");
        }
        assert_eq!(format!("{path:?}"), "\"docs/a/b\"");
        assert_eq!(components(b"docs/a/b").collect::<Vec<_>>(), [&b"docs"[..], b"a", b"b"]);
        for (path, name) in [("docs/a/b.c", "b.c"), ("b", "b"), ("docs/", "")] {
            assert_eq!(file_name(path.as_bytes()), name.as_bytes());
        }
    }

    #[test]
    fn extensions_and_pages_are_told_by_the_last_name_alone() {
        let (long, longer) = (format!("x.{}", "e".repeat(16)), format!("x.{}", "e".repeat(17)));
        for (path, known, page) in [
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
            assert_eq!(extension(path.as_bytes()).as_deref(), known, "{path}");
            let short = short_extension(path.as_bytes());
            assert_eq!(short.as_ref().map(Extension::as_str), known.filter(|known| known.len() <= 16), "{path}");
            assert_eq!(is_page(path.as_bytes()), page, "{path}");
        }
        assert_eq!(extension(b"x.\xff"), None);
        assert_eq!(short_extension(b"x.\xff").unwrap().as_str(), "");
    }

    #[test]
    fn whatever_is_below_a_folder_follows_it_at_once() {
        let mut paths = ["b", "a.html", "ab", "a/b/c", "a-b", "a", "a/b", "a/a", "a\u{1}"];
        paths.sort_by(|a, b| tree_order(a.as_bytes(), b.as_bytes()));
        assert_eq!(paths, ["a", "a/a", "a/b", "a/b/c", "a\u{1}", "a-b", "a.html", "ab", "b"]);
        assert_eq!(tree_order(b"a/b", b"a/b"), std::cmp::Ordering::Equal);
    }
}
