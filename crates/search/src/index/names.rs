//! The names of a section: the texts that a reader types to find exactly this section. A query that is equal to a name
//! finds the section before all others.
//!
//! Names are compared by keys. A section has several: its whole heading, the name that the heading defines, the ends of
//! a dotted name, their pieces, and the stems of the heading. Each key has a strength, which is stored as the frequency
//! of the key in the section.

use std::collections::HashMap;

use crate::analyze::{Token, TokenKind, fold, tokenize};
use crate::extract::Section;

use super::definition_names::{
    definition_names, find_name_of_anchor, is_code_name, is_member, is_term, line_names, name_ends,
    starts_with_keyword, without_numbering,
};
use super::section_tokens::StemCache;

/// The maximum length of a key in bytes. Readers do not type longer headings.
pub(crate) const MAX_KEY_BYTES: usize = 200;

/// The strength of the stems of a heading: `Sorting` for the query `sort`.
const STEMS_STRENGTH: u32 = 1;
/// The strength of the pieces of a name at the start of a line.
const LINE_PIECES_STRENGTH: u32 = 1;
/// The strength of a name at the start of a line: what the row of a table or the item of a list describes.
const LINE_NAME_STRENGTH: u32 = 2;
/// The strength of the pieces of a name: `thread pool executor`.
const PIECES_STRENGTH: u32 = 2;
/// The strength of the end of a dotted name: `strptime`.
const NAME_END_STRENGTH: u32 = 3;
/// The strength of a name within a heading, and of an anchor that is a name.
const HEADING_NAME_STRENGTH: u32 = 4;
/// The strength of a whole heading, and of the title of the page.
const HEADING_STRENGTH: u32 = 5;
/// The strength of the name that a definition or a whole page is about.
const NAME_STRENGTH: u32 = 6;
/// The maximum strength.
pub(crate) const MAX_STRENGTH: u32 = NAME_STRENGTH;

/// The separators after which a heading or title explains the name before it.
const EXPLANATION_SEPARATORS: [&str; 6] = [" — ", " – ", " - ", " | ", ": ", " · "];

/// The keys of a section with their strengths.
#[derive(Debug, Default)]
struct NameKeys {
    strengths: HashMap<String, u32>,
}

impl NameKeys {
    /// Returns the keys in the order of the texts.
    fn into_sorted(self) -> Vec<(String, u32)> {
        let mut keys: Vec<_> = self.strengths.into_iter().collect();
        keys.sort_unstable();
        keys
    }

    /// Adds a key; the largest of its strengths counts.
    fn add_key(&mut self, key: Option<String>, strength: u32) {
        if let Some(key) = key {
            let known = self.strengths.entry(key).or_insert(0);
            *known = strength.max(*known);
        }
    }

    /// Adds a text as a whole, and without the number of its chapter.
    fn add_text(&mut self, text: &str, strength: u32) {
        self.add_key(exact_key(text), strength);
        self.add_key(exact_key(without_numbering(text)), strength);
    }

    /// Adds a name, the ends of a dotted one, and the pieces of both.
    fn add_name(&mut self, name: &str, strength: u32) {
        let bare = name.trim_matches(['@', '!', '$', '&', '*']);
        for name in [name, bare] {
            self.add_key(exact_key(name), strength);
        }
        self.add_key(pieces_key(&split_into_pieces(bare)), PIECES_STRENGTH);
        let ends = name_ends(bare);
        for end in &ends {
            self.add_key(exact_key(end), NAME_END_STRENGTH);
        }
        if let Some(last) = ends.last() {
            self.add_key(pieces_key(&split_into_pieces(last)), PIECES_STRENGTH);
        }
    }
}

/// Returns the keys of a section. `is_first` says whether it is the first one of its page, whose title is `title`.
pub(super) fn collect_names(
    section: &Section,
    is_first: bool,
    title: &str,
    stems: Option<&mut StemCache>,
) -> Vec<(String, u32)> {
    let mut names = NameKeys::default();
    let heading = section.headings.last().map_or("", String::as_str);
    if section.is_definition {
        add_definition(&mut names, heading, section.anchor.as_deref(), stems);
    } else {
        let is_about_page = is_first || section.level == 1;
        names.add_text(heading, if is_about_page { NAME_STRENGTH } else { HEADING_STRENGTH });
        for name in heading_names(heading) {
            names.add_name(name, if is_about_page { NAME_STRENGTH } else { HEADING_NAME_STRENGTH });
        }
        let pieces = split_into_pieces(without_numbering(heading));
        names.add_key(pieces_key(&pieces), PIECES_STRENGTH);
        names.add_key(stems.and_then(|stems| stems_key(&pieces, stems)), STEMS_STRENGTH);
        for name in line_names(section) {
            names.add_key(exact_key(name), LINE_NAME_STRENGTH);
            let pieces = split_into_pieces(name);
            names.add_key(pieces_key(&pieces).filter(|_| pieces.len() > 1), LINE_PIECES_STRENGTH);
        }
    }
    if is_first {
        names.add_text(title, HEADING_STRENGTH);
        names.add_text(before_explanation(title), HEADING_STRENGTH);
    }
    if let Some(anchor) = section.anchor.as_deref().filter(|anchor| is_code_name(anchor)) {
        names.add_name(anchor, HEADING_NAME_STRENGTH);
    }
    names.into_sorted()
}

/// Adds what a definition defines: a term of several words (`text encoding` in a glossary), or names of code.
fn add_definition(names: &mut NameKeys, heading: &str, anchor: Option<&str>, stems: Option<&mut StemCache>) {
    if is_term(heading) {
        names.add_text(heading, NAME_STRENGTH);
        let pieces = split_into_pieces(heading);
        names.add_key(pieces_key(&pieces), PIECES_STRENGTH);
        names.add_key(stems.and_then(|stems| stems_key(&pieces, stems)), STEMS_STRENGTH);
        if !starts_with_keyword(heading) {
            return;
        }
    }
    let anchor = anchor.filter(|anchor| is_code_name(anchor));
    let defined = definition_names(heading);
    // The anchor tells a name from the type before it.
    let by_anchor = anchor.and_then(|anchor| find_name_of_anchor(heading, anchor));
    let defined = match by_anchor.filter(|name| !defined.contains(name)) {
        Some(name) => vec![name],
        None => defined,
    };
    for name in defined {
        // Members are often written without their owner, which only the anchor has.
        match anchor.filter(|anchor| is_member(name, anchor)) {
            Some(whole) => {
                names.add_name(whole, NAME_STRENGTH);
                names.add_name(name, NAME_END_STRENGTH);
            }
            None => names.add_name(name, NAME_STRENGTH),
        }
    }
}

/// Returns the names within a heading: what stands before an explanation, and the name of code in it.
fn heading_names(heading: &str) -> Vec<&str> {
    let heading = without_numbering(heading);
    let mut names = Vec::new();
    let before = before_explanation(heading);
    if before != heading && !before.contains('(') {
        names.push(before);
    }
    // Headings of API documentation are definitions: `pub fn push(&mut self, value: T)`. In prose, a parenthesis
    // follows several words.
    if heading.contains('(') {
        let is_definition = starts_with_keyword(heading);
        let is_name = |name: &&str| is_definition || is_code_name(name) || heading.starts_with(name);
        names.extend(definition_names(heading).into_iter().filter(is_name));
    }
    names
}

/// Returns a heading or title up to its explanation.
pub(super) fn before_explanation(text: &str) -> &str {
    let ends = EXPLANATION_SEPARATORS.iter().filter_map(|separator| text.find(separator));
    text[..ends.min().unwrap_or(text.len())].trim()
}

/// Returns the key of a text: folded, with single spaces, without punctuation at its ends and without `()`. `None` if
/// nothing remains, or too much.
pub(crate) fn exact_key(text: &str) -> Option<String> {
    // Folding can make a text longer, but hardly shorter than a quarter.
    if text.len() > MAX_KEY_BYTES * 4 {
        return None;
    }
    let folded = fold(text);
    let trimmed = folded.trim_matches(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | ':' | '?' | '¶' | '"'));
    let trimmed = trimmed.trim_end_matches('.');
    let trimmed = trimmed.strip_suffix("()").unwrap_or(trimmed);
    let mut key = String::with_capacity(trimmed.len());
    for word in trimmed.split_whitespace() {
        if !key.is_empty() {
            key.push(' ');
        }
        key.push_str(word);
    }
    (!key.is_empty() && key.len() <= MAX_KEY_BYTES).then_some(key)
}

/// Returns the smallest pieces of the words of a text, in order: `thread`, `pool`, `executor`. Of scripts without
/// spaces each character is a piece.
pub(crate) fn split_into_pieces(text: &str) -> Vec<String> {
    let mut pieces: Vec<(u32, String)> = Vec::new();
    tokenize(text, &mut |token: Token<'_>| {
        if !matches!(token.kind, TokenKind::Word | TokenKind::Piece | TokenKind::Unigram) {
            return;
        }
        // The last token at a position is the smallest.
        match pieces.last_mut().filter(|(position, _)| *position == token.position) {
            Some((_, piece)) => token.text.clone_into(piece),
            None => pieces.push((token.position, token.text.to_owned())),
        }
    });
    pieces.into_iter().map(|(_, piece)| piece).collect()
}

/// Returns the key of pieces.
pub(crate) fn pieces_key(pieces: &[String]) -> Option<String> {
    let key = pieces.join(" ");
    (!key.is_empty() && key.len() <= MAX_KEY_BYTES).then_some(key)
}

/// Returns the key of the stems of pieces; `None` if no stem differs from its piece.
fn stems_key(pieces: &[String], stems: &mut StemCache) -> Option<String> {
    let mut has_stem = false;
    let mut stem_of = |piece: &String| {
        let stem = stems.find_stem(piece);
        has_stem |= stem.is_some();
        stem.unwrap_or(piece.as_str()).to_owned()
    };
    let stems: Vec<String> = pieces.iter().map(&mut stem_of).collect();
    pieces_key(&stems).filter(|_| has_stem)
}

#[cfg(test)]
mod tests {
    use super::super::section_tokens::StemCaches;
    use super::*;

    fn names(headings: &[&str], anchor: Option<&str>, is_definition: bool, is_first: bool, title: &str) -> Vec<String> {
        let section = Section {
            anchor: anchor.map(str::to_owned),
            headings: headings.iter().map(|&heading| heading.to_owned()).collect(),
            level: if is_definition { 7 } else { 2 },
            is_definition,
            text: String::new(),
            code_spans: Vec::new(),
        };
        let mut caches = StemCaches::default();
        let keys = collect_names(&section, is_first, title, caches.find(None));
        keys.into_iter().map(|(key, strength)| format!("{key} {strength}")).collect()
    }

    #[test]
    fn a_definition_is_found_by_its_name_by_its_ends_and_by_its_pieces() {
        assert_eq!(
            names(&["class concurrent.futures.ThreadPoolExecutor(max_workers=None)"], None, true, false, ""),
            [
                "concurrent futures thread pool executor 2",
                "concurrent.futures.threadpoolexecutor 6",
                "futures.threadpoolexecutor 3",
                "thread pool executor 2",
                "threadpoolexecutor 3",
            ]
        );
        assert_eq!(
            names(&["max_connections (integer)"], Some("GUC-MAX-CONNECTIONS"), true, false, ""),
            ["max connections 2", "max_connections 6"]
        );
    }

    #[test]
    fn a_term_of_a_glossary_is_found_whole_and_not_by_its_first_word() {
        let keys = names(&["text encoding"], Some("term-text-encoding"), true, false, "");
        assert_eq!(keys, ["text encod 1", "text encoding 6"]);
        let keys = names(&["type alias"], None, true, false, "");
        assert!(keys.contains(&"type alias 6".to_owned()), "{keys:?}");
    }

    #[test]
    fn a_member_without_its_owner_is_the_end_of_the_name_in_the_anchor() {
        let keys = names(&["annotation"], Some("inspect.Parameter.annotation"), true, false, "");
        for expected in ["annotation 3", "inspect.parameter.annotation 6"] {
            assert!(keys.iter().any(|key| key == expected), "{keys:?}");
        }
        // What stands before the name in such an anchor is no owner.
        for anchor in ["c.PyList_New", "function.PyList_New"] {
            let keys = names(&["PyObject *PyList_New(Py_ssize_t len)"], Some(anchor), true, false, "");
            assert!(keys.contains(&"pylist_new 6".to_owned()), "{keys:?}");
        }
    }

    #[test]
    fn the_anchor_tells_a_name_from_its_type() {
        let keys = names(&["visitproc PyTypeObject.tp_visit"], Some("c.PyTypeObject.tp_visit"), true, false, "");
        assert!(keys.contains(&"pytypeobject.tp_visit 6".to_owned()), "{keys:?}");
        assert!(!keys.iter().any(|key| key.starts_with("visitproc")), "{keys:?}");
        let heading = "typedef int (*visitproc)(PyObject *object)";
        let keys = names(&[heading], Some("c.visitproc"), true, false, "");
        assert!(keys.contains(&"visitproc 6".to_owned()), "{keys:?}");
    }

    #[test]
    fn a_heading_is_found_whole_and_by_the_name_before_its_explanation() {
        assert_eq!(
            names(&["json — JSON encoder"], Some("module-json"), false, true, "json — JSON encoder — Python 3.11"),
            [
                "json 6",
                "json json encod 1",
                "json json encoder 2",
                "json — json encoder 6",
                "json — json encoder — python 3.11 5"
            ]
        );
        assert_eq!(
            names(&["1.2. Sorting Lists"], Some("sorting-lists"), false, false, ""),
            ["1.2. sorting lists 5", "sort list 1", "sorting lists 5"]
        );
    }

    #[test]
    fn code_in_a_heading_and_an_anchor_that_is_a_name_are_names() {
        let keys = names(&["Vec", "pub fn push(&mut self, value: T)"], Some("method.push"), false, false, "");
        for expected in ["push 4", "method.push 4"] {
            assert!(keys.iter().any(|key| key == expected), "{keys:?}");
        }
        let keys = names(&["Using fork (and why not)"], None, false, false, "");
        assert!(!keys.iter().any(|key| key.starts_with("fork")), "{keys:?}");
    }

    #[test]
    fn code_with_which_a_line_starts_is_a_name_below_those_of_headings() {
        let text =
            "Function Result\ntrim_scale ( numeric ) → numeric\nreturns trim\nage → interval\nSELECT 1\nx is\nexample";
        let code = ["trim_scale", "numeric", "age", "SELECT 1", "x", "example"];
        let spans = code.map(|code| text.find(code).map(|start| (start as u32, (start + code.len()) as u32)).unwrap());
        let section = Section {
            anchor: None,
            headings: vec!["Functions".to_owned()],
            level: 2,
            is_definition: false,
            text: text.to_owned(),
            code_spans: spans.to_vec(),
        };
        let keys = collect_names(&section, false, "", None);
        let keys: Vec<String> = keys.into_iter().map(|(key, strength)| format!("{key} {strength}")).collect();
        assert_eq!(keys, ["age 2", "functions 5", "trim scale 1", "trim_scale 2"]);
    }

    #[test]
    fn keys_are_folded_and_have_neither_outer_punctuation_nor_parentheses_of_a_call() {
        for (text, expected) in [
            ("  Émile's\n Guide: ", Some("emile's guide")),
            ("print()", Some("print")),
            ("println!", Some("println!")),
            ("C++", Some("c++")),
            (".NET", Some(".net")),
            ("--flag", Some("--flag")),
            ("Start here.", Some("start here")),
            ("数据库", Some("数据库")),
            (" ¶ ", None),
            ("", None),
        ] {
            assert_eq!(exact_key(text).as_deref(), expected, "{text:?}");
        }
        assert!(exact_key(&"x".repeat(MAX_KEY_BYTES)).is_some());
        assert_eq!(exact_key(&"x".repeat(MAX_KEY_BYTES + 1)), None);
        assert_eq!(exact_key(&"x".repeat(1 << 20)), None);
    }

    #[test]
    fn pieces_are_the_same_whether_words_are_written_together_or_apart() {
        for text in ["ThreadPoolExecutor", "thread pool executor", "thread_pool_executor", "Thread-Pool Executor"] {
            assert_eq!(split_into_pieces(text), ["thread", "pool", "executor"], "{text}");
        }
        assert_eq!(split_into_pieces("数据库"), ["数", "据", "库"]);
        assert!(split_into_pieces("--").is_empty());
    }
}
