//! The language of code, as the generators of documentation write it in classes and attributes.

use crate::extract::tags::StartTag;

/// The maximum length of the name of a language, in bytes.
const MAX_LANGUAGE_BYTES: usize = 32;
/// The prefixes of classes that name a language: Prism, Shiki, Rouge and `markdown-it`; others; Sphinx and GitHub.
const CLASS_PREFIXES: [&str; 3] = ["language-", "lang-", "highlight-"];
/// The names that stand for no language.
const NO_LANGUAGES: [&str; 5] = ["default", "none", "notranslate", "plain", "wrapper"];
/// The words beside the language in the class of `pre` and `code`: pandoc and highlight.js.
const HIGHLIGHTER_CLASSES: [&str; 2] = ["sourceCode", "hljs"];

/// Returns the language that an element around code names.
pub(super) fn of_element_around_code(tag: &StartTag<'_>) -> Option<String> {
    CLASS_PREFIXES.iter().find_map(|prefix| tag.classes().find_map(|class| language_name(class.strip_prefix(prefix)?)))
}

/// Returns the language that a `pre` or `code` element names.
pub(super) fn of_code_element(tag: &StartTag<'_>) -> Option<String> {
    of_element_around_code(tag)
        .or_else(|| ["data-language", "data-lang"].iter().find_map(|name| language_name(&tag.attribute(name)?)))
        .or_else(|| {
            // rustdoc.
            if tag.has_class("rust") {
                return Some(String::from("rust"));
            }
            let highlighter = HIGHLIGHTER_CLASSES.iter().find(|class| tag.has_class(class))?;
            tag.classes().find_map(|class| language_name(class).filter(|class| class != highlighter))
        })
}

/// Returns a name if it can follow a fence and stands for a language.
fn language_name(name: &str) -> Option<String> {
    // GitHub names the grammar: `highlight-source-rust`.
    let name = name.strip_prefix("source-").unwrap_or(name);
    let is_name = !name.is_empty()
        && name.len() <= MAX_LANGUAGE_BYTES
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'#' | b'.' | b'_' | b'-'));
    (is_name && !NO_LANGUAGES.contains(&name)).then(|| name.to_owned())
}
