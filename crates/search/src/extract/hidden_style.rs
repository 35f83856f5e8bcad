//! Inline styles that hide the text of an element from a reader.

use std::borrow::Cow;

/// The maximum length of a style that is read, in bytes. A longer one is taken for one that hides.
const MAX_STYLE_BYTES: usize = 16 << 10;

/// Whether one of the declarations of a `style` attribute hides the text of the element. `style` has its character
/// references decoded.
///
/// A later declaration that shows the text again has no effect here: no page writes both for a reader. Strings and
/// addresses are not recognised, so a style is also read with what looks like comments in them.
pub(super) fn hides_text(style: &str) -> bool {
    style.len() > MAX_STYLE_BYTES || has_hiding_declaration(style) || {
        let plain = remove_comments_and_escapes(style);
        matches!(plain, Cow::Owned(_)) && has_hiding_declaration(&plain)
    }
}

fn has_hiding_declaration(style: &str) -> bool {
    style.split(';').filter_map(|declaration| declaration.split_once(':')).any(|(property, value)| {
        // A block before the property belongs to an at-rule, which browsers skip.
        let property = property.rsplit('}').next().unwrap_or_default();
        let value = value.split('!').next().unwrap_or_default().trim();
        hides_by(property.trim(), value)
    })
}

/// Whether a declaration hides text.
fn hides_by(property: &str, value: &str) -> bool {
    let is = |property_name: &str| property.eq_ignore_ascii_case(property_name);
    let has_value = |names: &[&str]| names.iter().any(|name| value.eq_ignore_ascii_case(name));
    if is("display") {
        has_value(&["none"])
    } else if is("visibility") {
        has_value(&["hidden", "collapse"])
    } else if is("content-visibility") {
        has_value(&["hidden"])
    } else if is("opacity") || is("font-size") {
        is_not_positive(value)
    } else if is("font") {
        // The size is one of the words before the height of a line: `bold 0/0 serif`.
        value
            .split('/')
            .next()
            .unwrap_or_default()
            .split_ascii_whitespace()
            .any(|word| is_not_positive(word) && !is_angle(word))
    } else {
        false
    }
}

/// Whether a word is an angle: `0deg` of `oblique 0deg`.
fn is_angle(word: &str) -> bool {
    let lower = word.to_ascii_lowercase();
    ["deg", "grad", "rad", "turn"].iter().any(|unit| lower.ends_with(unit))
}

/// Whether a value is a number that is zero or less, with or without a unit: `0`, `.0em`, `0%`, `-1`, `calc(0)`.
fn is_not_positive(value: &str) -> bool {
    let lower = value.trim().to_ascii_lowercase();
    let inner = lower.strip_prefix("calc(").and_then(|rest| rest.strip_suffix(')')).unwrap_or(&lower).trim();
    let is_number = |character: char| character.is_ascii_digit() || matches!(character, '.' | '+' | '-');
    let len = inner.find(|character| !is_number(character)).unwrap_or(inner.len());
    let (number, mut unit) = inner.split_at(len);
    // An exponent does not change the sign.
    if let Some(exponent) = unit.strip_prefix('e') {
        let digits = exponent.trim_start_matches(['+', '-']);
        if digits.starts_with(|character: char| character.is_ascii_digit()) {
            unit = digits.trim_start_matches(|character: char| character.is_ascii_digit());
        }
    }
    let is_unit = unit == "%" || unit.bytes().all(|byte| byte.is_ascii_alphabetic());
    is_unit && number.parse::<f64>().is_ok_and(|number| number <= 0.0)
}

/// Removes comments, and replaces escapes by the characters they stand for (CSS Syntax Level 3, 4.3.2 and 4.3.7).
fn remove_comments_and_escapes(style: &str) -> Cow<'_, str> {
    if !style.contains(['\\', '*']) {
        return Cow::Borrowed(style);
    }
    let mut plain = String::with_capacity(style.len());
    let mut rest = style;
    while let Some(start) = rest.find(['\\', '/']) {
        plain.push_str(&rest[..start]);
        rest = &rest[start..];
        if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment.split_once("*/").map_or("", |(_, rest)| rest);
        } else if let Some(escape) = rest.strip_prefix('\\') {
            rest = push_escape(&mut plain, escape);
        } else {
            plain.push('/');
            rest = &rest[1..];
        }
    }
    plain.push_str(rest);
    Cow::Owned(plain)
}

/// Appends the character of an escape, which begins after its backslash. Returns the text after it.
fn push_escape<'a>(plain: &mut String, escape: &'a str) -> &'a str {
    let digits = escape.bytes().take(6).take_while(u8::is_ascii_hexdigit).count();
    if digits == 0 {
        let mut characters = escape.chars();
        plain.extend(characters.next());
        return characters.as_str();
    }
    let code = u32::from_str_radix(&escape[..digits], 16).unwrap_or_default();
    plain.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
    let rest = &escape[digits..];
    // One white space ends an escape and belongs to it.
    rest.strip_prefix("\r\n").or_else(|| rest.strip_prefix([' ', '\t', '\n', '\r', '\x0c'])).unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_that_hide_text_are_recognised_however_they_are_written() {
        for style in [
            "display:none",
            "DISPLAY : None",
            "color:red;display:none;",
            "display:none!important",
            "display: none ! important",
            "display:/* x */none",
            "dis/**/play:none;display:none",
            "d\\69 splay:none",
            "display:n\\6fne",
            "display:n\\00006Fne",
            "visibility:hidden",
            "visibility: collapse",
            "content-visibility:hidden",
            "opacity:0",
            "opacity:0.0",
            "opacity:.0",
            "opacity: 0%",
            "opacity:-1",
            "opacity:0e5",
            "opacity:calc( 0 )",
            "font-size:0",
            "font-size:0px !important",
            "font-size:0.00em",
            "font-size: +0PT",
            "font-size:0%",
            "font:0/0 a",
            "font: bold 0 serif",
            "\ndisplay\t:\nnone",
        ] {
            assert!(hides_text(style), "{style}");
        }
    }

    #[test]
    fn other_styles_do_not_hide_text() {
        for style in [
            "",
            "display",
            "display:",
            "display:block",
            "font: oblique 0deg 1rem serif",
            "display:none none",
            "visibility:visible",
            "opacity:0.1",
            "opacity:1",
            "font-size:10px",
            "font-size:small",
            "font: 12px/0 serif-0",
            "--display:none",
            "x-display:none",
            "/* display:none */",
            "/* display:none",
            "background:url(a\\;display:none)",
            "opacity:0foo-1",
            "opacity:var(--x)",
            "\\",
        ] {
            assert!(!hides_text(style), "{style}");
        }
        // The end of a piece may be inside a character.
        // What a longer one has is not read.
        assert!(hides_text(&"é".repeat(MAX_STYLE_BYTES)));
    }
}
