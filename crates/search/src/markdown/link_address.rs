//! The addresses of links: resolved against the address of the page, and written so that Markdown does not change them.

use std::fmt::Write;

use crate::extract::text_buffer::is_invisible;

use super::MarkdownSettings;

/// The maximum length of the address of a link, in bytes, as it is written in the page and in the Markdown. The text of
/// a link with a longer one is plain text.
const MAX_ADDRESS_BYTES: usize = 2048;

/// The target of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LinkAddress {
    /// The address, as it is written between parentheses.
    pub(super) url: String,
    /// Whether the page links to a place in itself.
    pub(super) is_fragment: bool,
}

/// The address that the links of a page are relative to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LinkBase {
    /// The scheme and the host, without a slash; empty for the host of the page.
    origin: String,
    /// The path, which starts with a slash.
    path: String,
}

impl LinkBase {
    /// The address of the page itself.
    pub(super) fn of_page(settings: &MarkdownSettings<'_>) -> LinkBase {
        let base = settings.base_path.trim_matches('/');
        let mut path = String::from("/");
        if !base.is_empty() && !settings.page_url.starts_with('/') {
            path.push_str(base);
            path.push('/');
        }
        path.push_str(settings.page_url.trim_start_matches('/'));
        LinkBase { origin: String::new(), path }
    }

    /// The address of a `base` element. It is relative to that of the page.
    pub(super) fn with_base_element(&self, href: &str) -> Option<LinkBase> {
        let resolved = self.join(&clean_address(href)?)?;
        let has_host = resolved.starts_with("//") || !resolved.starts_with('/');
        let path_start = if has_host { resolved.find("//")? + 2 } else { 0 };
        let path_len = resolved[path_start..].find('/').map_or(resolved.len(), |slash| path_start + slash);
        let (origin, rest) = resolved.split_at(path_len);
        let path = rest.split(['?', '#']).next().unwrap_or_default();
        let path = if path.is_empty() { "/" } else { path };
        Some(LinkBase { origin: origin.to_owned(), path: path.to_owned() })
    }

    /// Resolves the address of a link. `None` if its scheme is not one that a reader may safely follow, or it is too
    /// long.
    pub(super) fn resolve(&self, href: &str) -> Option<LinkAddress> {
        let href = clean_address(href)?;
        let url = encode(&self.join(&href)?);
        (url.len() <= MAX_ADDRESS_BYTES).then(|| LinkAddress { url, is_fragment: href.starts_with('#') })
    }

    /// Resolves an address (URL Standard, 4.4, for the schemes `http` and `https`).
    fn join(&self, href: &str) -> Option<String> {
        if let Some((scheme, rest)) = split_scheme(href) {
            let is_web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
            if is_web {
                let host = rest.replace('\\', "/");
                let host = host.strip_prefix("//").filter(|host| !host.starts_with('/') && !host.is_empty())?;
                return Some(format!("{}://{host}", scheme.to_ascii_lowercase()));
            }
            return scheme.eq_ignore_ascii_case("mailto").then(|| format!("mailto:{rest}"));
        }
        let path_len = href.find(['?', '#']).unwrap_or(href.len());
        let (path, suffix) = href.split_at(path_len);
        let path = path.replace('\\', "/");
        if let Some(host) = path.strip_prefix("//") {
            return (!host.is_empty() && !host.starts_with('/')).then(|| format!("//{host}{suffix}"));
        }
        let path = if path.is_empty() {
            self.path.clone()
        } else if path.starts_with('/') {
            remove_dot_segments(&path)
        } else {
            let folder = self.path.rfind('/').map_or("/", |slash| &self.path[..=slash]);
            remove_dot_segments(&format!("{folder}{path}"))
        };
        Some(format!("{}{path}{suffix}", self.origin))
    }
}

/// Removes what the URL parser of a browser removes, and invisible characters, which would hide text in an address.
/// `None` if the address is too long.
fn clean_address(href: &str) -> Option<String> {
    if href.len() > MAX_ADDRESS_BYTES {
        return None;
    }
    let href = href.trim_matches(|character: char| character <= ' ');
    Some(href.chars().filter(|&character| !is_invisible(character)).collect())
}

/// Splits an address that starts with a scheme.
fn split_scheme(href: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = href.split_once(':')?;
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    is_scheme.then_some((scheme, rest))
}

/// Removes the segments `.` and `..` of a path that starts with a slash, also if their dots are encoded.
fn remove_dot_segments(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    let mut is_folder = false;
    for segment in path.split('/').skip(1) {
        let dots = segment.to_ascii_lowercase().replace("%2e", ".");
        is_folder = matches!(dots.as_str(), "." | "..");
        match dots.as_str() {
            "." => {}
            ".." => {
                segments.pop();
            }
            _ => segments.push(segment),
        }
    }
    // Empty segments at the start would be read as a host.
    let start = segments.iter().position(|segment| !segment.is_empty()).unwrap_or(segments.len());
    let has_end_slash = is_folder || path.ends_with('/');
    let mut plain = String::from("/");
    plain.push_str(&segments[start..].join("/"));
    if has_end_slash && !plain.ends_with('/') {
        plain.push('/');
    }
    plain
}

/// Percent-encodes the characters that an address may not have, and those that end the target of a link in Markdown or
/// a cell of a table.
fn encode(url: &str) -> String {
    let mut encoded = String::with_capacity(url.len());
    let bytes = url.as_bytes();
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b'(' | b')' | b'<' | b'>' | b'"' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => {
                let _ = write!(encoded, "%{byte:02X}");
            }
            // It could begin a character reference of Markdown.
            b'&' if is_reference(&bytes[at + 1..]) => encoded.push_str("\\&"),
            b'!'..=b'~' => encoded.push(char::from(byte)),
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

/// Whether a text after an `&` has the form of a character reference.
fn is_reference(text: &[u8]) -> bool {
    let end = text.iter().position(|&byte| !(byte.is_ascii_alphanumeric() || byte == b'#'));
    end.is_some_and(|end| end > 0 && text[end] == b';')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(page_url: &str, base_path: &str) -> LinkBase {
        LinkBase::of_page(&MarkdownSettings { page_url, base_path })
    }

    #[test]
    fn links_become_absolute_within_the_host() {
        let page = base("guides/start.html", "/docs/");
        for (href, expected) in [
            ("install.html", Some("/docs/guides/install.html")),
            ("../api/", Some("/docs/api/")),
            ("../../../../x", Some("/x")),
            ("./", Some("/docs/guides/")),
            ("..", Some("/docs/")),
            ("%2e%2E/x", Some("/docs/x")),
            ("/other?q=1#a", Some("/other?q=1#a")),
            ("#a b", Some("/docs/guides/start.html#a%20b")),
            ("?q", Some("/docs/guides/start.html?q")),
            ("", Some("/docs/guides/start.html")),
            ("a:b/c", None),
            ("./a:b", Some("/docs/guides/a:b")),
            ("x y(z).html", Some("/docs/guides/x%20y%28z%29.html")),
            ("größe", Some("/docs/guides/gr%C3%B6%C3%9Fe")),
            ("?a=1&copy=2&lt;", Some("/docs/guides/start.html?a=1&copy=2\\&lt;")),
            ("//example.org/x", Some("//example.org/x")),
            ("\\\\example.org\\x", Some("//example.org/x")),
            ("/a//..//b", Some("/a//b")),
            ("/.//example.org", Some("/example.org")),
            ("https://example.org/a_b", Some("https://example.org/a_b")),
            ("HTTPS:\\\\example.org", Some("https://example.org")),
            ("https:x", None),
            ("mailto:a@example.org", Some("mailto:a@example.org")),
        ] {
            assert_eq!(page.resolve(href).map(|link| link.url).as_deref(), expected, "{href}");
        }
        assert_eq!(base("/docs/a/", "/docs/").resolve("x").unwrap().url, "/docs/a/x");
        assert_eq!(base("", "/").resolve("x").unwrap().url, "/x");
        assert!(page.resolve("#a").unwrap().is_fragment && !page.resolve("a#a").unwrap().is_fragment);
    }

    #[test]
    fn unsafe_schemes_are_refused_however_they_are_written() {
        for href in [
            "javascript:alert(1)",
            " JavaScript:x",
            "java\nscript:x",
            "\u{1}javascript:x",
            "java\u{200b}script:x",
            "data:text/html,x",
            "vbscript:x",
            "file:///etc/passwd",
            "blob:x",
        ] {
            assert_eq!(base("", "/").resolve(href), None, "{href}");
        }
        assert_eq!(base("", "/").resolve(&"x".repeat(MAX_ADDRESS_BYTES + 1)), None);
        assert_eq!(base("", "/").resolve(&"ö".repeat(MAX_ADDRESS_BYTES / 2)), None);
    }

    #[test]
    fn base_element_changes_the_folder_and_the_host() {
        let page = base("guides/start.html", "/docs/");
        for (element, href, expected) in [
            ("/docs/", "x", "/docs/x"),
            ("..", "x", "/docs/x"),
            ("../api/index.html?a#b", "x#y", "/docs/api/x#y"),
            ("https://example.org/a/b", "x", "https://example.org/a/x"),
            ("https://example.org", "x", "https://example.org/x"),
            ("//example.org/a/", "/x", "//example.org/x"),
        ] {
            let base = page.with_base_element(element).unwrap();
            assert_eq!(base.resolve(href).unwrap().url, expected, "{element}");
        }
        assert_eq!(page.with_base_element("javascript:x"), None);
    }
}
