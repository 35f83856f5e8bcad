//! The file of further patterns that an operator names (`analytics.bots`). Pure.
//!
//! A line has a class, white space and a pattern: `bot Intranet-Checker/`. Empty lines and lines that begin with `#`
//! are ignored. The class `human` exempts programs of people, such as a browser whose name contains `bot`.

use memchr::memchr_iter;

use docwharf_base::model::reader_activity::VisitorClass;

/// The maximum size of the file, in bytes.
const MAX_FILE_BYTES: usize = 1 << 20;
/// The maximum number of lines of the file.
const MAX_LINES: usize = 10_000;
/// The minimum length of a pattern, in bytes. One character would match nearly everything.
const MIN_PATTERN_BYTES: usize = 2;
/// The maximum length of a pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 200;
/// The maximum number of faults that are reported.
const MAX_FAULTS: usize = 100;

/// A literal that occurs in User-Agents, in either case, and the class of the visitors that send it. It is also the
/// name under which they are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPattern {
    /// The class.
    pub class: VisitorClass,
    /// The literal.
    pub text: String,
}

/// A line of a file of patterns that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct PatternFault {
    /// The number of the line, from 1.
    pub line: usize,
    /// The reason.
    pub reason: PatternFaultReason,
}

/// The reason why a line of a file of patterns is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PatternFaultReason {
    /// The line does not begin with a class, or has no pattern.
    #[error("this is not a class (human, ai or bot), white space and a pattern")]
    Form,
    /// The pattern contains another character than the printable ones of ASCII.
    #[error("the pattern has a character that is not printable ASCII")]
    Character,
    /// The pattern is too short or too long.
    #[error("the pattern does not have {} to {} characters", MIN_PATTERN_BYTES, MAX_PATTERN_BYTES)]
    Length,
    /// The file has too many lines.
    #[error("the file has more than {} lines", MAX_LINES)]
    LineCount,
    /// The file is too large.
    #[error("the file has more than {} bytes", MAX_FILE_BYTES)]
    FileSize,
}

/// Parses a file of patterns. The error has each line that is refused, up to a bound.
pub fn parse_patterns(text: &str) -> Result<Vec<AgentPattern>, Vec<PatternFault>> {
    if let Some(beginning) = text.as_bytes().get(..=MAX_FILE_BYTES) {
        let line = 1 + memchr_iter(b'\n', beginning).count();
        return Err(vec![PatternFault { line, reason: PatternFaultReason::FileSize }]);
    }
    let (mut patterns, mut faults) = (Vec::new(), Vec::new());
    // Some editors write a byte order mark.
    let lines = text.strip_prefix('\u{feff}').unwrap_or(text).lines();
    for (line_text, line) in lines.zip(1..) {
        let parsed = if line > MAX_LINES { Err(PatternFaultReason::LineCount) } else { parse_line(line_text) };
        match parsed {
            Ok(pattern) => patterns.extend(pattern),
            Err(reason) => faults.push(PatternFault { line, reason }),
        }
        if line > MAX_LINES || faults.len() == MAX_FAULTS {
            break;
        }
    }
    if faults.is_empty() { Ok(patterns) } else { Err(faults) }
}

/// Parses a line; `None` if it is empty or a comment.
fn parse_line(line: &str) -> Result<Option<AgentPattern>, PatternFaultReason> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let (class, pattern) = line.split_once([' ', '\t']).ok_or(PatternFaultReason::Form)?;
    let class = match class {
        "human" => VisitorClass::Human,
        "ai" => VisitorClass::Ai,
        "bot" => VisitorClass::Bot,
        _ => return Err(PatternFaultReason::Form),
    };
    let pattern = pattern.trim();
    if !pattern.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return Err(PatternFaultReason::Character);
    }
    if !(MIN_PATTERN_BYTES..=MAX_PATTERN_BYTES).contains(&pattern.len()) {
        return Err(PatternFaultReason::Length);
    }
    Ok(Some(AgentPattern { class, text: pattern.to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<(usize, PatternFaultReason)> {
        parse_patterns(text).expect_err(text).iter().map(|fault| (fault.line, fault.reason)).collect()
    }

    #[test]
    fn a_line_is_a_class_and_a_pattern() {
        let text = "\u{feff}# Own programs\r\n\r\nbot\tIntranet-Checker/\r\n  ai   Helper 2 (beta)  \nhuman \t #1\n#";
        let expected = [
            (VisitorClass::Bot, "Intranet-Checker/"),
            (VisitorClass::Ai, "Helper 2 (beta)"),
            (VisitorClass::Human, "#1"),
        ]
        .map(|(class, text)| AgentPattern { class, text: text.to_owned() });
        assert_eq!(parse_patterns(text), Ok(expected.to_vec()));
        assert_eq!(parse_patterns(""), Ok(Vec::new()));
    }

    #[test]
    fn each_malformed_line_is_named() {
        use PatternFaultReason::{Character, Form, Length};
        let text = "bot good\nbot\nBot name\nname\nbot:name\nbot x\nbot caf\u{e9}\nbot a\tb\nai \n";
        let expected =
            vec![(2, Form), (3, Form), (4, Form), (5, Form), (6, Length), (7, Character), (8, Character), (9, Form)];
        assert_eq!(faults(text), expected);
        let fault = PatternFault { line: 6, reason: Length };
        assert_eq!(fault.to_string(), "line 6: the pattern does not have 2 to 200 characters");
    }

    #[test]
    fn the_bounds_of_patterns_lines_and_bytes_hold() {
        let with_length = |length: usize| format!("ai {}", "x".repeat(length));
        assert!(parse_patterns(&with_length(2)).is_ok() && parse_patterns(&with_length(200)).is_ok());
        assert_eq!(faults(&with_length(201)), [(1, PatternFaultReason::Length)]);
        assert_eq!(parse_patterns(&"bot xy\n".repeat(MAX_LINES)).map(|patterns| patterns.len()), Ok(MAX_LINES));
        assert_eq!(faults(&"bot xy\n".repeat(MAX_LINES + 5)), [(MAX_LINES + 1, PatternFaultReason::LineCount)]);
        let comment = |length: usize| format!("#\n{}", "#".repeat(length - 2));
        assert_eq!(parse_patterns(&comment(MAX_FILE_BYTES)), Ok(Vec::new()));
        assert_eq!(faults(&comment(MAX_FILE_BYTES + 1)), [(2, PatternFaultReason::FileSize)]);
    }

    #[test]
    fn the_number_of_reported_faults_is_bounded() {
        assert_eq!(faults(&"nonsense\n".repeat(5_000)).len(), MAX_FAULTS);
    }
}
