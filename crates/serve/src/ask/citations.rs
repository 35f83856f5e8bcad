//! Citations in the text of a model: `[1]` or `[1, 2]`, the numbers of passages. Pure.
//!
//! The text arrives in pieces, and a citation may begin in one and end in the next. Text that may become a citation is
//! therefore held back until that is certain. Code has brackets with numbers that are none, such as `list[0]`, and is
//! passed on as it is.

/// The largest length of a citation in bytes. A longer text in brackets is text.
const MAX_CITATION_BYTES: usize = 64;
/// The smallest number of backticks or tildes that begin a block of code (`CommonMark` 0.31, section 4.5).
const MIN_FENCE_CHARS: usize = 3;

/// Passes the text of a model on, without the numbers that no passage has, and notes the others.
#[derive(Debug)]
pub(crate) struct CitationFilter {
    /// The number of passages.
    passages: usize,
    /// Which passages were cited.
    cited: Vec<bool>,
    /// The text that may be a citation, with the spaces before it.
    held: String,
    code: CodeState,
}

/// Whether the text is in code.
#[derive(Debug, Default)]
struct CodeState {
    /// The characters that began the code, and their number; `None` outside.
    open: Option<CodeMark>,
    /// Backticks or tildes that may be continued.
    run: Option<CodeMark>,
    /// Whether the line has had other characters than white space.
    is_inside_line: bool,
}

/// A run of backticks or tildes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CodeMark {
    character: char,
    count: usize,
    /// Whether it is the first on its line, so that it may be the fence of a block.
    starts_line: bool,
}

impl CodeMark {
    fn is_fence(self) -> bool {
        self.starts_line && self.count >= MIN_FENCE_CHARS
    }
}

impl CodeState {
    /// Reads a character and returns whether it belongs to code or to a mark of code.
    fn read(&mut self, character: char) -> bool {
        if character == '`' || character == '~' {
            match &mut self.run {
                Some(run) if run.character == character => run.count += 1,
                _ => {
                    self.end_run();
                    let starts_line = !self.is_inside_line;
                    self.run = Some(CodeMark { character, count: 1, starts_line });
                }
            }
            self.is_inside_line = true;
            return true;
        }
        self.end_run();
        if character == '\n' {
            self.is_inside_line = false;
            // A backtick without its counterpart must not make code of the whole rest.
            self.open = self.open.filter(|open| open.is_fence());
        } else if !character.is_whitespace() {
            self.is_inside_line = true;
        }
        self.open.is_some()
    }

    /// Decides what a run of backticks or tildes means, after its last one.
    fn end_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        let ends = |open: CodeMark| {
            let has_length =
                if open.is_fence() { run.is_fence() && run.count >= open.count } else { run.count == open.count };
            run.character == open.character && has_length
        };
        match self.open {
            Some(open) if ends(open) => self.open = None,
            None if run.is_fence() || run.character == '`' => self.open = Some(run),
            _ => {}
        }
    }
}

impl CitationFilter {
    /// Creates a filter for an answer to which this number of passages was given.
    pub(crate) fn new(passages: usize) -> CitationFilter {
        CitationFilter { passages, cited: vec![false; passages], held: String::new(), code: CodeState::default() }
    }

    /// Takes the next piece of text, and returns what can be passed on.
    pub(crate) fn push(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(self.held.len() + text.len());
        for character in text.chars() {
            self.read(character, &mut out);
        }
        out
    }

    /// Returns the text that was held back at the end. A citation that is cut off is left out.
    pub(crate) fn finish(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        let is_cut = held.contains('[') && held.contains(|character: char| character.is_ascii_digit());
        if is_cut { String::new() } else { held }
    }

    /// Returns whether any passage was cited.
    pub(crate) fn has_citations(&self) -> bool {
        self.cited.contains(&true)
    }

    /// Returns whether the passage with this number, from 1, was cited.
    pub(crate) fn is_cited(&self, number: usize) -> bool {
        number.checked_sub(1).and_then(|index| self.cited.get(index)).is_some_and(|cited| *cited)
    }

    fn read(&mut self, character: char, out: &mut String) {
        if self.code.read(character) {
            out.push_str(&std::mem::take(&mut self.held));
            return out.push(character);
        }
        let is_open = self.held.contains('[');
        match character {
            '[' => {
                if is_open {
                    out.push_str(&std::mem::take(&mut self.held));
                }
                self.held.push('[');
            }
            ']' if is_open => self.end_citation(out),
            ' ' | ',' | '0'..='9' if is_open && self.held.len() < MAX_CITATION_BYTES => self.held.push(character),
            ' ' if !is_open && self.held.len() < MAX_CITATION_BYTES => self.held.push(' '),
            _ => {
                out.push_str(&std::mem::take(&mut self.held));
                out.push(character);
            }
        }
    }

    /// Passes on the known numbers of a citation that is complete; all of it if it is none.
    fn end_citation(&mut self, out: &mut String) {
        let held = std::mem::take(&mut self.held);
        let (before, inside) = held.split_once('[').unwrap_or((&held, ""));
        let Some(numbers) = parse_numbers(inside) else {
            out.push_str(&held);
            return out.push(']');
        };
        let mut known: Vec<usize> = Vec::new();
        for number in numbers {
            if (1..=self.passages).contains(&number) && !known.contains(&number) {
                self.cited[number - 1] = true;
                known.push(number);
            }
        }
        if known.is_empty() {
            return;
        }
        let known: Vec<String> = known.iter().map(usize::to_string).collect();
        out.push_str(before);
        out.push('[');
        out.push_str(&known.join(", "));
        out.push(']');
    }
}

/// Parses numbers that are separated by commas; `None` if the text is something else. A number that is too large for
/// any passage becomes the largest one.
fn parse_numbers(text: &str) -> Option<Vec<usize>> {
    text.split(',')
        .map(|number| {
            let number = number.trim_matches(' ');
            let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| number.parse().unwrap_or(usize::MAX))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes a text through a filter for three passages, in pieces of this number of characters. Returns the text and
    /// the numbers that were cited.
    fn filter(text: &str, piece: usize) -> (String, Vec<usize>) {
        let mut filter = CitationFilter::new(3);
        let characters: Vec<char> = text.chars().collect();
        let mut out: String =
            characters.chunks(piece).map(|piece| filter.push(&piece.iter().collect::<String>())).collect();
        out.push_str(&filter.finish());
        let cited = (0..9).filter(|&number| filter.is_cited(number)).collect::<Vec<usize>>();
        assert_eq!(filter.has_citations(), !cited.is_empty());
        (out, cited)
    }

    #[test]
    fn citations_are_found_and_unknown_numbers_removed_wherever_the_pieces_end() {
        for (text, expected, cited) in [
            ("Use it [1].", "Use it [1].", &[1][..]),
            ("Both [1, 2] and [3][1]", "Both [1, 2] and [3][1]", &[1, 2, 3]),
            ("Close[2]", "Close[2]", &[2]),
            ("[1,2 , 3]", "[1, 2, 3]", &[1, 2, 3]),
            ("[ 1 ] [01]", "[1] [1]", &[1]),
            ("Unknown [4].", "Unknown.", &[]),
            ("Some [1, 7, 2] known", "Some [1, 2] known", &[1, 2]),
            ("None [0] of [4, 5] these [99999999999999999999999]", "None of these", &[]),
            ("Twice [2, 2]", "Twice [2]", &[2]),
            ("A list [a], [], [ ], [1a], [1-2], [,], [1,]", "A list [a], [], [ ], [1a], [1-2], [,], [1,]", &[]),
            ("[[1]]", "[[1]]", &[1]),
            ("[[4]]", "[]", &[]),
            ("A link [1](https://evil.example)", "A link [1](https://evil.example)", &[1]),
            ("Cut off [1", "Cut off", &[]),
            ("Cut off [", "Cut off [", &[]),
            ("Ends with spaces  ", "Ends with spaces  ", &[]),
            ("線 [2]。[9]", "線 [2]。", &[2]),
            ("1] and ]", "1] and ]", &[]),
        ] {
            for piece in 1..=text.chars().count() {
                assert_eq!(filter(text, piece), (expected.to_owned(), cited.to_vec()), "{text:?} by {piece}");
            }
        }
    }

    #[test]
    fn brackets_in_code_are_no_citations() {
        for (text, cited) in [
            ("`a[9]` and ``b`[1]`` then [2]", &[2][..]),
            ("```\nlist[1]\n  ```\nthen [1]", &[1]),
            ("```rust\n`[1]\n~~~\n[1]\n````\n[3]", &[3]),
            ("  ~~~\n[1]\n```\n[2]\n~~~\n[3]", &[3]),
            ("a ~[1]~ tilde", &[1]),
            ("an open ` backtick [1]\nends with its line [2]", &[2]),
            ("text ``` is no fence [1]\n[2]", &[2]),
            ("```\n[1] never closed", &[]),
        ] {
            for piece in 1..=text.chars().count() {
                assert_eq!(filter(text, piece), (text.to_owned(), cited.to_vec()), "{text:?} by {piece}");
            }
        }
        assert_eq!(filter("`x[7]` [7]", 2).0, "`x[7]`");
    }

    #[test]
    fn text_that_is_no_citation_is_not_held_back_for_long() {
        let mut filter = CitationFilter::new(1);
        let numbers = "[".to_owned() + &"1,".repeat(1000);
        let out = filter.push(&numbers);
        assert!(numbers.starts_with(&out) && numbers.len() - out.len() <= MAX_CITATION_BYTES);
        let spaces = " ".repeat(1000);
        let out = filter.push(&spaces);
        assert!(out.len() >= 900, "{}", out.len());
    }
}
