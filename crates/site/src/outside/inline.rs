//! What a browser takes for a script, and the text by which a policy names it.

use std::borrow::Cow;

use docwharf_base::model::digest::{Digest, Hasher};

use super::references::resolved;

/// Whether a `script` of this type runs, or decides how others do; anything else is data.
pub(super) fn runs(kind: Option<&str>, language: Option<&str>) -> bool {
    const TYPES: [&str; 17] = [
        "text/javascript",
        "application/javascript",
        "module",
        "importmap",
        "speculationrules",
        "application/ecmascript",
        "application/x-ecmascript",
        "application/x-javascript",
        "text/ecmascript",
        "text/javascript1.0",
        "text/javascript1.1",
        "text/javascript1.2",
        "text/javascript1.3",
        "text/javascript1.4",
        "text/javascript1.5",
        "text/jscript",
        "text/livescript",
    ];
    let of = |kind: &str| {
        let kind = kind.trim_matches(|c: char| c.is_ascii_whitespace()).to_ascii_lowercase();
        TYPES.contains(&kind.as_str()) || kind == "text/x-javascript" || kind == "text/x-ecmascript"
    };
    match (kind, language) {
        (Some(""), _) | (None, None | Some("")) => true,
        (Some(kind), _) => of(kind),
        (None, Some(language)) => of(&format!("text/{language}")),
    }
}

/// An attribute's text with its character references taken out, where it is certain what they stand for.
pub(super) fn exact(written: &str) -> Option<String> {
    // Line ends are made the same before references are read: one that is written as a reference stays.
    let plain = normal(written, &mut false);
    let (text, is_certain) = resolved(&plain);
    is_certain.then(|| text.into_owned())
}

/// Text as a parser begins with it: line ends are `\n`, and NUL is replaced.
fn normal<'t>(text: &'t str, after_return: &mut bool) -> Cow<'t, str> {
    if !*after_return && !text.bytes().any(|b| matches!(b, b'\r' | 0)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' if *after_return => {}
            '\r' => out.push('\n'),
            '\0' => out.push(char::REPLACEMENT_CHARACTER),
            other => out.push(other),
        }
        *after_return = letter == '\r';
    }
    Cow::Owned(out)
}

/// A digest of text as HTML hands it on.
#[derive(Debug, Default)]
pub(super) struct Normal {
    hasher: Hasher,
    after_return: bool,
}

impl Normal {
    /// Adds text as it stands in the page.
    pub(super) fn update(&mut self, text: &str) {
        self.hasher.update(normal(text, &mut self.after_return).as_bytes());
    }

    /// The digest of all that was added.
    pub(super) fn take(&mut self) -> Digest {
        self.hasher.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_what_a_browser_runs() {
        for (kind, language, expected) in [
            (None, None, true),
            (None, Some(""), true),
            (Some(""), Some("vbscript"), true),
            (None, Some("JavaScript"), true),
            (None, Some("jscript"), true),
            (None, Some("javascript1.5"), true),
            (None, Some("javascript1.6"), false),
            (None, Some("vbscript"), false),
            (Some("text/plain"), Some("javascript"), false),
            (Some(" "), None, false),
        ] {
            assert_eq!(runs(kind, language), expected, "{kind:?} {language:?}");
        }
        for kind in [
            "text/javascript",
            "application/javascript",
            "module",
            "importmap",
            "speculationrules",
            "application/ecmascript",
            "application/x-ecmascript",
            "application/x-javascript",
            "text/ecmascript",
            "text/javascript1.0",
            "text/javascript1.1",
            "text/javascript1.2",
            "text/javascript1.3",
            "text/javascript1.4",
            "text/javascript1.5",
            "text/jscript",
            "text/livescript",
            "text/x-javascript",
            "text/x-ecmascript",
        ] {
            assert!(runs(Some(kind), None) && runs(Some(&format!("\t{} ", kind.to_uppercase())), None), "{kind}");
        }
        for kind in [
            "application/json",
            "application/ld+json",
            "text/html",
            "javascript",
            "modules",
            "text/javascript; x",
            "\u{a0}module",
        ] {
            assert!(!runs(Some(kind), None), "{kind}");
        }
    }

    #[test]
    fn text_is_named_as_a_parser_hands_it_on_in_whatever_parts_it_comes() {
        for (written, meant) in [
            ("a\r\nb", "a\nb"),
            ("a\rb\r", "a\nb\n"),
            ("a\n\nb", "a\n\nb"),
            ("a\r\r\n\nb", "a\n\n\nb"),
            ("\0é", "\u{fffd}é"),
        ] {
            for cut in (0..=written.len()).filter(|&cut| written.is_char_boundary(cut)) {
                let mut parts = Normal::default();
                parts.update(&written[..cut]);
                parts.update(&written[cut..]);
                assert_eq!(parts.take(), Digest::of(meant.as_bytes()), "{written:?} {cut}");
            }
            assert_eq!(exact(written).as_deref(), Some(meant), "{written:?}");
        }
        assert_eq!(exact("&#13;&#10;\r\n").as_deref(), Some("\r\n\n"));
        assert_eq!(exact("&notin;"), None);
    }
}
