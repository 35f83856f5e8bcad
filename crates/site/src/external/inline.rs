//! Decides which `script` elements a browser runs, and computes the text of inline code whose hash a policy contains.

use std::borrow::Cow;

use docwharf_base::model::digest::{Digest, Sha256Hasher};

use super::character_references::resolve_references;

/// Whether a browser runs a `script` element with these `type` and `language` attributes, or reads it as an import map
/// or speculation rules (HTML Standard, "prepare the script element"). Any other element is a data block.
pub(super) fn is_executable(kind: Option<&str>, language: Option<&str>) -> bool {
    const EXECUTABLE_TYPES: [&str; 17] = [
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
    let is_executable_type = |kind: &str| {
        let kind = kind.trim_matches(|c: char| c.is_ascii_whitespace()).to_ascii_lowercase();
        EXECUTABLE_TYPES.contains(&kind.as_str()) || kind == "text/x-javascript" || kind == "text/x-ecmascript"
    };
    match (kind, language) {
        (Some(""), _) | (None, None | Some("")) => true,
        (Some(kind), _) => is_executable_type(kind),
        (None, Some(language)) => is_executable_type(&format!("text/{language}")),
    }
}

/// Returns the text of an attribute with its character references resolved; `None` if one of them is not known.
pub(super) fn exact_attribute_text(written: &str) -> Option<String> {
    // Line ends are normalised before references are resolved, so a line end written as a reference does not change.
    let plain = normalize_newlines(written, &mut false);
    let (text, is_certain) = resolve_references(&plain);
    is_certain.then(|| text.into_owned())
}

/// Normalises text as the first step of an HTML parser does: line ends become `\n`, and NUL is replaced. `after_return`
/// is whether the text before ended with `\r`, and is updated.
fn normalize_newlines<'t>(text: &'t str, after_return: &mut bool) -> Cow<'t, str> {
    if !*after_return && !text.bytes().any(|b| matches!(b, b'\r' | 0)) {
        return Cow::Borrowed(text);
    }
    let mut output = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' if *after_return => {}
            '\r' => output.push('\n'),
            '\0' => output.push(char::REPLACEMENT_CHARACTER),
            letter => output.push(letter),
        }
        *after_return = letter == '\r';
    }
    Cow::Owned(output)
}

/// Computes the digest of text as the HTML parser produces it.
#[derive(Debug, Default)]
pub(super) struct NormalizedHasher {
    hasher: Sha256Hasher,
    after_return: bool,
}

impl NormalizedHasher {
    /// Adds text as it is written in the page.
    pub(super) fn update(&mut self, text: &str) {
        self.hasher.update(normalize_newlines(text, &mut self.after_return).as_bytes());
    }

    /// Returns the digest of all text so far.
    pub(super) fn take(&mut self) -> Digest {
        self.hasher.finalize_reset()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_type_is_executable_if_browsers_run_it() {
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
            assert_eq!(is_executable(kind, language), expected, "{kind:?} {language:?}");
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
            assert!(
                is_executable(Some(kind), None) && is_executable(Some(&format!("\t{} ", kind.to_uppercase())), None),
                "{kind}"
            );
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
            assert!(!is_executable(Some(kind), None), "{kind}");
        }
    }

    #[test]
    fn inline_text_is_hashed_after_newline_normalization_in_chunks_of_any_size() {
        for (written, meant) in [
            ("a\r\nb", "a\nb"),
            ("a\rb\r", "a\nb\n"),
            ("a\n\nb", "a\n\nb"),
            ("a\r\r\n\nb", "a\n\n\nb"),
            ("\0é", "\u{fffd}é"),
        ] {
            for cut in (0..=written.len()).filter(|&cut| written.is_char_boundary(cut)) {
                let mut parts = NormalizedHasher::default();
                parts.update(&written[..cut]);
                parts.update(&written[cut..]);
                assert_eq!(parts.take(), Digest::compute(meant.as_bytes()), "{written:?} {cut}");
            }
            assert_eq!(exact_attribute_text(written).as_deref(), Some(meant), "{written:?}");
        }
        assert_eq!(exact_attribute_text("&#13;&#10;\r\n").as_deref(), Some("\r\n\n"));
        assert_eq!(exact_attribute_text("&notin;"), None);
    }
}
