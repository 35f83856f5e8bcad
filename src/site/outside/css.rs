//! What a style sheet fetches: imports, fonts, images.

use super::{Fact, Kind};

/// An address in a style is never longer, in bytes; what is longer is content (`data:`).
const LONGEST: usize = 4096;

/// Tells of each address in a style sheet, or in a `style` attribute.
pub(super) fn read(css: &str, tell: &mut dyn FnMut(Fact<'_>)) {
    let bytes = css.as_bytes();
    let (mut at, mut depth) = (0, 0u32);
    // The depth at which the block of an `@font-face` lies; what an `@import` names is a style.
    let (mut font, mut is_import) = (None, false);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                at = css[at + 2..].find("*/").map_or(bytes.len(), |end| at + 2 + end + 2);
                continue;
            }
            b'"' | b'\'' => {
                let end = string_end(bytes, at);
                if is_import {
                    told(css, at + 1, end, Kind::Style, tell);
                    is_import = false;
                }
                at = end;
            }
            b'@' if begins(bytes, at + 1, b"import") => is_import = true,
            b'@' if begins(bytes, at + 1, b"font-face") => font = font.or(Some(depth)),
            b'{' => depth += 1,
            b'}' => {
                depth = depth.saturating_sub(1);
                if font.is_some_and(|outer| outer >= depth) {
                    font = None;
                }
            }
            b';' => is_import = false,
            b'u' | b'U' if begins(bytes, at, b"url(") => {
                let mut start = at + 4;
                while bytes.get(start).is_some_and(u8::is_ascii_whitespace) {
                    start += 1;
                }
                let quoted = matches!(bytes.get(start), Some(b'"' | b'\''));
                let end = if quoted {
                    string_end(bytes, start)
                } else {
                    bytes[start..].iter().position(|&b| b == b')').map_or(bytes.len(), |end| start + end)
                };
                let kind = match (is_import, font) {
                    (true, _) => Kind::Style,
                    (_, Some(_)) => Kind::Font,
                    _ => Kind::Image,
                };
                told(css, start + usize::from(quoted), end, kind, tell);
                is_import = false;
                at = end;
            }
            _ => {}
        }
        at += 1;
    }
}

/// Where the string that begins at `at` ends: at its quote, or at the end of its line.
fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while let Some(&byte) = bytes.get(end) {
        match byte {
            b'\\' => end += 1,
            b'\n' => return end,
            _ if byte == bytes[at] => return end,
            _ => {}
        }
        end += 1;
    }
    bytes.len()
}

fn begins(bytes: &[u8], at: usize, word: &[u8]) -> bool {
    bytes.get(at..at + word.len()).is_some_and(|here| here.eq_ignore_ascii_case(word))
}

fn told(css: &str, start: usize, end: usize, kind: Kind, tell: &mut dyn FnMut(Fact<'_>)) {
    // Quotes and parentheses are ASCII, but a hostile text may end within what an escape has skipped.
    let end = end.min(css.len());
    let cut = if end.saturating_sub(start) > LONGEST { css.floor_char_boundary(start + LONGEST) } else { end };
    if let Some(text) = css.get(start..cut).map(str::trim).filter(|text| !text.is_empty()) {
        tell(Fact::Address(kind, text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(css: &str) -> Vec<String> {
        let mut all = Vec::new();
        read(css, &mut |fact| {
            if let Fact::Address(kind, text) = fact {
                all.push(format!("{} {text}", kind.name()));
            }
        });
        all
    }

    #[test]
    fn imports_fonts_and_images_are_told_apart() {
        let css = r#"@charset "utf-8"; @IMPORT "a.css"; @import url( 'b.css' ) screen; /* url(no.png) */
            @font-face { font-family: "url(no)"; src: url(f.woff2) format("woff2"), URL("g.woff") }
            @media print { @font-face{src:url(h.ttf)} a { background: url(i.png) } }
            b { background: url("j.png"), url(data:,x); content: "@import 'no.css'" } c { src: url(k.png)"#;
        assert_eq!(
            found(css),
            [
                "style a.css",
                "style b.css",
                "font f.woff2",
                "font g.woff",
                "font h.ttf",
                "image i.png",
                "image j.png",
                "image data:,x",
                "image k.png",
            ]
        );
    }

    #[test]
    fn broken_styles_end_where_they_end() {
        for css in ["url(", "url(\"", "@import", "/*", "\"\\", "url('a\\", "}}}}url(x)", "@import \"a\\é"] {
            found(css);
        }
        assert_eq!(found(&"url(".repeat(1 << 20)).len(), 1);
    }
}
