//! The names in definitions: `threading.Thread` in `class threading.Thread(group=None)`.

use crate::extract::Section;

/// The maximum number of names that one definition has: `-h, --help`.
const MAX_DEFINITION_NAMES: usize = 4;
/// The maximum number of ends of a dotted name. The ends of a name with more are not names.
const MAX_NAME_ENDS: usize = 8;
/// The maximum number of names at the start of a line that a section has.
const MAX_LINE_NAMES: usize = 2000;
/// The maximum length of a name in code, in bytes.
const MAX_NAME_BYTES: usize = 200;

/// Words that stand before the name in a definition.
const KEYWORDS: [&str; 49] = [
    "abstract",
    "abstractmethod",
    "async",
    "attribute",
    "await",
    "class",
    "classmethod",
    "const",
    "constant",
    "constructor",
    "coroutine",
    "data",
    "decorator",
    "def",
    "enum",
    "exception",
    "extern",
    "final",
    "fn",
    "func",
    "function",
    "generator",
    "impl",
    "interface",
    "let",
    "macro",
    "member",
    "method",
    "mod",
    "module",
    "mut",
    "namespace",
    "package",
    "private",
    "property",
    "protected",
    "protocol",
    "pub",
    "public",
    "static",
    "staticmethod",
    "struct",
    "trait",
    "type",
    "typedef",
    "union",
    "unsafe",
    "var",
    "virtual",
];

/// Returns the names that a definition defines.
pub(super) fn definition_names(text: &str) -> Vec<&str> {
    split_at_commas(text).into_iter().filter_map(definition_name).collect()
}

/// Splits a definition at commas outside brackets.
fn split_at_commas(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut depth) = (0, 0u32);
    for (index, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' | '>' => depth = depth.saturating_sub(1),
            ',' if depth == 0 && parts.len() + 1 < MAX_DEFINITION_NAMES => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn definition_name(text: &str) -> Option<&str> {
    let text = text.trim();
    let before = text.find('(').map(|open| last_name(without_type_parameters(text[..open].trim_end())));
    // The parenthesis of `\copy table [ (column) ]` is not that of a call.
    let name = before.filter(|name| !name.is_empty()).unwrap_or_else(|| first_name(without_keywords(text)));
    (!name.is_empty()).then_some(name)
}

/// Removes type parameters from the end of a text: `Vec` remains of `Vec<T>`.
fn without_type_parameters(text: &str) -> &str {
    if text.ends_with('>') { text.split('<').next().unwrap_or(text).trim_end() } else { text }
}

/// Returns the name at the end of what stands before a parenthesis, after keywords and types.
fn last_name(text: &str) -> &str {
    let before = text.char_indices().rfind(|(_, c)| !is_name_char(*c));
    &text[before.map_or(0, |(index, c)| index + c.len_utf8())..]
}

/// Returns the name at the beginning of a definition without parameters.
fn first_name(text: &str) -> &str {
    let is_end = |c: char| c.is_whitespace() || matches!(c, '=' | '<' | '[' | '{' | '(' | ';');
    let end = text.find(is_end).unwrap_or(text.len());
    text[..end].trim_end_matches([':', ','])
}

fn without_keywords(text: &str) -> &str {
    let mut rest = text;
    while let Some((word, after)) = rest.split_once(char::is_whitespace) {
        if !KEYWORDS.contains(&word) {
            break;
        }
        rest = after.trim_start();
    }
    rest
}

/// Whether a heading starts like the definition of a function: `pub fn push(&mut self, value: T)`.
pub(super) fn starts_with_keyword(heading: &str) -> bool {
    heading.split_whitespace().next().is_some_and(|word| KEYWORDS.contains(&word))
}

/// Whether a definition is a term of several words, as in a glossary, and not code.
pub(super) fn is_term(text: &str) -> bool {
    let is_word = |word: &str| word.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '/' | '\''));
    text.split_whitespace().count() > 1
        && text.split_whitespace().all(is_word)
        && text.starts_with(|c: char| c.is_alphanumeric())
}

/// Returns the names in code with which lines of a section start and that more text follows: documentation lists
/// functions, settings and types in the first column of a table, or in the items of a list.
pub(super) fn line_names(section: &Section) -> impl Iterator<Item = &str> {
    let names = section.code_spans.iter().filter_map(|&(start, end)| {
        let (start, end) = (start as usize, end as usize);
        let (before, code, after) =
            (section.text.get(..start)?, section.text.get(start..end)?, section.text.get(end..)?);
        let is_start = before.is_empty() || before.ends_with('\n');
        let is_alone = after.is_empty() || after.starts_with('\n');
        let name = code.split('(').next().unwrap_or(code);
        let is_name = name.chars().any(char::is_alphabetic) && !name.contains(char::is_whitespace);
        (is_start && !is_alone && is_name && (2..=MAX_NAME_BYTES).contains(&name.len())).then_some(name)
    });
    names.take(MAX_LINE_NAMES)
}

/// Returns the name in a definition with which its anchor ends: `b.c` in `type b.c` for the anchor `a.b.c`.
pub(super) fn find_name_of_anchor<'a>(text: &'a str, anchor: &str) -> Option<&'a str> {
    let is_end = |name: &&str| {
        anchor.strip_suffix(name).is_some_and(|rest| !name.is_empty() && (rest.is_empty() || rest.ends_with('.')))
    };
    text.split(|c: char| !is_name_char(c)).find(is_end)
}

/// Whether a name is that of a member whose owner stands before it in the anchor: `join` of `os.path.join`. A letter
/// for the language and the kind of a definition are no owners: `c.PyList_New`, `method.push`.
pub(super) fn is_member(name: &str, anchor: &str) -> bool {
    let owner = anchor.strip_suffix(name).and_then(|rest| rest.strip_suffix('.'));
    owner.is_some_and(|owner| owner.len() > 1 && !KEYWORDS.contains(&owner))
}

fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.' | ':' | '-' | '$' | '!' | '@' | '+' | '#')
}

/// Whether a text is a name in code and not a word: it has a dot, an underscore or a capital after a small letter.
pub(super) fn is_code_name(text: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | ':' | '$' | '!');
    let has_capital =
        text.as_bytes().windows(2).any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
    text.len() <= MAX_NAME_BYTES
        && text.chars().all(is_name)
        && text.chars().any(char::is_alphabetic)
        && (text.contains(['.', '_']) || text.contains("::") || has_capital)
}

/// Returns the ends of a dotted name, the longest first: `path.join` and `join` of `os.path.join`.
pub(super) fn name_ends(name: &str) -> Vec<&str> {
    let mut ends = Vec::new();
    let mut rest = name;
    while let Some(dot) = rest.find(['.', ':']) {
        rest = rest[dot..].trim_start_matches(['.', ':']);
        // The ends of `fig.1` mean nothing.
        if rest.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            ends.push(rest);
        }
    }
    if ends.len() > MAX_NAME_ENDS {
        ends.clear();
    }
    ends
}

/// Returns a heading without the number before it: `Connections` of `19.3. Connections`. A heading that is nothing else
/// stays.
pub(super) fn without_numbering(heading: &str) -> &str {
    let heading = heading.trim();
    let rest =
        ["Chapter ", "Appendix ", "Section "].iter().find_map(|word| heading.strip_prefix(word)).unwrap_or(heading);
    let number = rest.find(char::is_whitespace).unwrap_or(0);
    let may_be_letter = rest.len() < heading.len();
    let is_number = rest[..number]
        .chars()
        .all(|c| c.is_ascii_digit() || matches!(c, '.' | '-' | ')' | ':') || (may_be_letter && c.is_ascii_uppercase()));
    let after = rest[number..].trim_start();
    if number > 0 && is_number && !after.is_empty() { after } else { heading }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_between_keywords_types_and_parameters() {
        let cases: &[(&str, &[&str])] = &[
            ("os.path.join(path, *paths)", &["os.path.join"]),
            ("class threading.Thread(group=None, target=None)", &["threading.Thread"]),
            ("exception ValueError", &["ValueError"]),
            ("PyObject *PyList_New(Py_ssize_t len)", &["PyList_New"]),
            ("pub fn push(&mut self, value: T)", &["push"]),
            ("pub fn map<U, F>(self, f: F) -> Option<U>", &["map"]),
            ("struct Vec<T>", &["Vec"]),
            ("const MAX: usize = 5", &["MAX"]),
            ("max_connections (integer)", &["max_connections"]),
            ("-h, --help", &["-h", "--help"]),
            ("-c <command>", &["-c"]),
            ("@functools.lru_cache(maxsize=128)", &["@functools.lru_cache"]),
            ("\\copy { table [ ( column ) ] }", &["\\copy"]),
            ("PYTHONPATH", &["PYTHONPATH"]),
            ("static", &["static"]),
            ("a, b, c, d, e", &["a", "b", "c", "d"]),
            ("", &[]),
            ("(", &[]),
            ("()", &[]),
            ("*", &["*"]),
        ];
        for (text, expected) in cases {
            assert_eq!(definition_names(text), *expected, "{text}");
        }
    }

    #[test]
    fn names_of_code_differ_from_words_and_from_anchors_of_headings() {
        for name in ["os.path.join", "lru_cache", "ThreadPool", "std::vec", "method.push", "__init__"] {
            assert!(is_code_name(name), "{name}");
        }
        for name in ["sorting", "sorting-lists", "GUC-MAX-CONNECTIONS", "PYTHONPATH", "1.2", "", "a b_c"] {
            assert!(!is_code_name(name), "{name}");
        }
        assert!(!is_code_name(&"a_".repeat(1000)));
    }

    #[test]
    fn ends_of_a_dotted_name_start_with_a_letter() {
        assert_eq!(name_ends("datetime.datetime.strptime"), ["datetime.strptime", "strptime"]);
        assert_eq!(name_ends("std::vec::Vec"), ["vec::Vec", "Vec"]);
        assert_eq!(name_ends("fig.1.a"), ["a"]);
        assert!(name_ends("strptime").is_empty() && name_ends("...").is_empty());
        assert!(name_ends(&"a.".repeat(100)).is_empty());
    }

    #[test]
    fn the_number_before_a_heading_is_left_out() {
        for (heading, expected) in [
            ("19.3. Connections", "Connections"),
            ("Chapter 20. Server Configuration", "Server Configuration"),
            ("Appendix A. Error Codes", "Error Codes"),
            ("3 Ways", "Ways"),
            ("Section of code", "Section of code"),
            ("Chapter One", "Chapter One"),
            ("Chapter", "Chapter"),
            ("2.", "2."),
            ("Connections", "Connections"),
            ("", ""),
        ] {
            assert_eq!(without_numbering(heading), expected, "{heading}");
        }
    }
}
