//! Finds the addresses that a style sheet fetches: imports, fonts, images. The style sheet is read token by token (CSS
//! Syntax Module Level 3): `curl(` is not a `url(`, `u\72l(` is one, and text in a comment or a string is neither.

use std::borrow::Cow;
use std::ops::Range;

use super::content_fact::{ContentFact, ResourceKind};

/// An upper bound in bytes for an address in a style sheet. Anything longer is content (`data:`).
const MAX_ADDRESS_BYTES: usize = 4096;

/// Reports each address in a style sheet or `style` attribute.
pub(super) fn read_css(css: &str, tell: &mut dyn FnMut(ContentFact<'_>)) {
    scan(css, &mut |kind, _, text| tell(ContentFact::Address(kind, text)));
}

/// Reports the place and the text of each address in a style sheet or `style` attribute. The text in this place can be
/// replaced by any text of letters, digits and `/.-_~%#?=`. An address of 4 KiB or more is content and is left out.
pub fn find_addresses(css: &str, tell: &mut dyn FnMut(Range<usize>, &str)) {
    scan(css, &mut |_, place, text| {
        if place.len() < MAX_ADDRESS_BYTES {
            tell(place, text);
        }
    });
}

fn scan(css: &str, tell: &mut AddressCallback<'_>) {
    let mut reader = CssReader { css, at: 0, open: Vec::new(), fonts: 0, rule: AtRule::None, tell };
    while reader.at < css.len() {
        reader.token();
    }
}

/// A callback that receives the purpose, the place and the text of an address.
type AddressCallback<'t> = dyn FnMut(ResourceKind, Range<usize>, &str) + 't;

/// A block or function that is open. It takes one byte, because a hostile style sheet may open millions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CssBlock {
    /// A block in braces.
    Block,
    /// The block of an `@font-face`.
    Font,
    /// A function whose strings are addresses: `url`, `src`, `image-set`.
    Addresses,
    /// Another function, a parenthesis or a bracket.
    Other,
}

/// The at-rule whose prelude is being read. It decides the purpose of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AtRule {
    None,
    Import,
    Font,
    /// An at-rule whose addresses are names that are never fetched, such as `@namespace`.
    Names,
}

struct CssReader<'a> {
    css: &'a str,
    at: usize,
    open: Vec<CssBlock>,
    /// The number of open `@font-face` blocks.
    fonts: usize,
    rule: AtRule,
    tell: &'a mut AddressCallback<'a>,
}

impl<'a> CssReader<'a> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.css.as_bytes().get(self.at + ahead).copied()
    }

    /// Reads one token.
    fn token(&mut self) {
        let Some(byte) = self.peek(0) else { return };
        match byte {
            b'/' if self.peek(1) == Some(b'*') => {
                let end = self.css[self.at + 2..].find("*/");
                self.at = end.map_or(self.css.len(), |end| self.at + 2 + end + 2);
            }
            b'"' | b'\'' => self.string(),
            b'@' => {
                self.at += 1;
                let name = self.name();
                self.rule = match name.to_ascii_lowercase().as_str() {
                    "import" => AtRule::Import,
                    "font-face" => AtRule::Font,
                    "namespace" | "document" | "-moz-document" => AtRule::Names,
                    _ => self.rule,
                };
            }
            // Neither `#url` nor `1url` can be the name of a function.
            b'#' | b'0'..=b'9' => {
                self.at += 1;
                self.name();
            }
            _ if is_name(byte) || self.is_escape() => self.word(),
            b'{' => {
                let is_font = self.rule == AtRule::Font;
                self.push(if is_font { CssBlock::Font } else { CssBlock::Block });
                self.rule = AtRule::None;
            }
            b'(' | b'[' => self.push(CssBlock::Other),
            b')' | b']' => self.pop(&[CssBlock::Addresses, CssBlock::Other]),
            b'}' => self.pop(&[CssBlock::Block, CssBlock::Font]),
            b';' => {
                self.rule = AtRule::None;
                self.at += 1;
            }
            _ => self.at += 1,
        }
    }

    fn push(&mut self, open: CssBlock) {
        self.fonts += usize::from(open == CssBlock::Font);
        self.open.push(open);
        self.at += 1;
    }

    /// Closes the innermost open block or function, if it is one of `these`.
    fn pop(&mut self, these: &[CssBlock]) {
        if let Some(open) = self.open.pop_if(|open| these.contains(open)) {
            self.fonts -= usize::from(open == CssBlock::Font);
        }
        self.at += 1;
    }

    /// Reads a name, which may be the name of a function.
    fn word(&mut self) {
        let name = self.name();
        if self.peek(0) != Some(b'(') {
            return;
        }
        let is_url = name.eq_ignore_ascii_case("url");
        let takes = ["url", "src", "image-set", "-webkit-image-set"].iter().any(|one| name.eq_ignore_ascii_case(one));
        self.push(if takes { CssBlock::Addresses } else { CssBlock::Other });
        if is_url {
            let rest = self.css[self.at..].trim_start_matches(is_space);
            if !rest.starts_with(['"', '\'']) {
                self.at = self.css.len() - rest.len();
                self.open.pop();
                self.bare();
            }
        }
    }

    /// Reads an address without quotes in `url(`, up to the closing parenthesis.
    fn bare(&mut self) {
        let start = self.at;
        let mut is_good = true;
        while let Some(byte) = self.peek(0) {
            match byte {
                b')' => break,
                b'\\' => self.at += 1,
                b'"' | b'\'' | b'(' => is_good = false,
                _ => {}
            }
            self.at += 1;
        }
        self.at = self.at.min(self.css.len());
        let text = cut(self.css, start, self.at);
        self.at += 1;
        // An address that contains a quote, a parenthesis or white space is invalid and not fetched.
        let text = text.trim_matches(is_space);
        if is_good && (text.contains('\\') || !text.contains(is_space)) {
            self.tell(text);
        }
    }

    fn string(&mut self) {
        let quote = self.peek(0);
        self.at += 1;
        let start = self.at;
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\\' if self.css[self.at..].starts_with("\\\r\n") => self.at += 2,
                b'\\' => self.at += 1,
                // The string is not closed, so the declaration that contains it is invalid.
                b'\n' | b'\r' | b'\x0c' => return,
                _ if Some(byte) == quote => break,
                _ => {}
            }
            self.at += 1;
        }
        self.at = self.at.min(self.css.len());
        let text = cut(self.css, start, self.at);
        self.at += 1;
        if self.rule == AtRule::Import || self.open.last() == Some(&CssBlock::Addresses) {
            self.tell(text.trim());
        }
    }

    fn tell(&mut self, written: &str) {
        let kind = match self.rule {
            AtRule::Names => return,
            AtRule::Import => ResourceKind::Style,
            _ if self.fonts > 0 => ResourceKind::Font,
            _ => ResourceKind::Image,
        };
        if self.rule == AtRule::Import {
            // The conditions behind the address of an import name nothing that is fetched.
            self.rule = AtRule::None;
        }
        if !written.is_empty() {
            // `written` is always a slice of the style sheet, so the difference is its offset.
            let start = written.as_ptr() as usize - self.css.as_ptr() as usize;
            (self.tell)(kind, start..start + written.len(), &unescaped(written));
        }
    }

    /// Reads a name and resolves its escapes. The name may be empty.
    fn name(&mut self) -> Cow<'a, str> {
        let start = self.at;
        loop {
            if self.peek(0).is_some_and(is_name) {
                self.at += 1;
            } else if self.is_escape() {
                // The skipped byte may be the first one of a multi-byte character; the others count as name bytes.
                self.at += 2;
                let is_hex = |byte: Option<u8>| byte.is_some_and(|b| b.is_ascii_hexdigit());
                if is_hex(self.css.as_bytes().get(self.at - 1).copied()) {
                    (0..5).for_each(|_| self.at += usize::from(is_hex(self.peek(0))));
                    self.at += usize::from(self.peek(0).is_some_and(|b| is_space(char::from(b))));
                }
            } else {
                break;
            }
        }
        self.at = self.at.min(self.css.len());
        // No name that has a meaning here is longer, even if all of its characters are escaped.
        unescaped(self.css.get(start..self.at).filter(|text| text.len() <= 256).unwrap_or_default())
    }

    fn is_escape(&self) -> bool {
        self.peek(0) == Some(b'\\') && self.peek(1).is_some_and(|b| !matches!(b, b'\n' | b'\r' | b'\x0c'))
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || byte >= 0x80
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0c')
}

/// Returns a part of the style sheet, cut off after [`LONGEST`] bytes. The part is empty if its bounds are inside a
/// character, where an escape in hostile text may end.
fn cut(css: &str, start: usize, end: usize) -> &str {
    let end = if end.saturating_sub(start) > MAX_ADDRESS_BYTES {
        css.floor_char_boundary(start + MAX_ADDRESS_BYTES)
    } else {
        end
    };
    css.get(start..end).unwrap_or_default()
}

/// Resolves the escapes in a text (CSS Syntax Module Level 3, 4.3.7).
fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            out.push(letter);
            continue;
        }
        let mut number: Option<u32> = None;
        for _ in 0..6 {
            let Some(digit) = letters.next_if(char::is_ascii_hexdigit) else { break };
            number = Some(number.unwrap_or(0) * 16 + digit.to_digit(16).unwrap_or(0));
        }
        match number {
            Some(number) => {
                out.push(char::from_u32(number).filter(|c| *c != '\0').unwrap_or(char::REPLACEMENT_CHARACTER));
                if letters.next_if_eq(&'\r').is_some() {
                    letters.next_if_eq(&'\n');
                } else {
                    letters.next_if(|c| is_space(*c));
                }
            }
            None => match letters.next() {
                // An escaped line end in a string is removed.
                Some('\r') => {
                    letters.next_if_eq(&'\n');
                }
                Some('\n' | '\x0c') | None => {}
                Some(letter) => out.push(letter),
            },
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(css: &str) -> Vec<String> {
        let mut all = Vec::new();
        read_css(css, &mut |fact| {
            if let ContentFact::Address(kind, text) = fact {
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
    fn names_end_where_css_ends_them() {
        let css = r#"a { x: curl(no), #url(no), 1url(no), -url(no), url (no), éurl(no); y: 2 url(a), 1.5 url(b)url(c) }
            @namespace x url(no); @namespace "no"; @-moz-document url(no) { d { x: url(d) } }
            @imports "no"; @\69mport/**/"e"; @import/* "no" */'f' layer(x) supports(src: "no") "no"; g { h: url(g) }"#;
        let expected = ["image a", "image b", "image c", "image d", "style e", "style f", "image g"];
        assert_eq!(found(css), expected);
    }

    #[test]
    fn strings_are_addresses_in_the_functions_that_take_them() {
        let css = r#"a { x: image-set("a" 1x, url(b) 2x type("no"), 'c' type('no')), format("no") "no";
            y: -WEBKIT-image-set( /* "no" */ "d" 1x); z: url("e" "f"); content: "no" } @font-face { src: src("g") }"#;
        let expected = ["image a", "image b", "image c", "image d", "image e", "image f", "font g"];
        assert_eq!(found(css), expected);
    }

    #[test]
    fn escapes_stand_for_what_they_stand_for() {
        let css = "a { x: u\\72l(a\\29 b\\)c), \\000075 rl('d\\\ne\\27'), \\75\\72\\6C\n( f ), url(\\61\\0\\110000 g), url(\\é) }";
        assert_eq!(found(css), ["image a)b)c", "image de'", "image f", "image a\u{fffd}\u{fffd}g", "image é"]);
    }

    #[test]
    fn broken_styles_end_where_they_end() {
        for css in [
            "url(",
            "url(\"",
            "@import",
            "/*",
            "\"\\",
            "url('a\\",
            "}}}}url(x)",
            "@import \"a\\é",
            "\\",
            "url(\\",
            "@\\",
            "#",
            "url(a\\é",
            "\\é(",
            "/",
            "@",
            "@é",
            "url(é\\",
        ] {
            found(css);
        }
        // None of these addresses is fetched.
        assert_eq!(found(&"url(".repeat(1 << 20)), Vec::<String>::new());
        assert_eq!(found("a { x: url(a b), url(a\"b), url(\"a\n) } c { d: url(e) }"), ["image e"]);
        for css in ["image-set(", "(", "{", "url(\"a\" ", "\\", "@font-face{", "é\\"] {
            found(&css.repeat(1 << 18));
        }
    }

    #[test]
    fn a_font_is_what_stands_in_the_block_of_one() {
        for (css, expected) in [
            ("@font-face { src: url(f) } a { x: url(i) }", &["font f", "image i"][..]),
            ("@font-face { src: url(f) } @font-face { src: url(g) } a { x: url(i) }", &["font f", "font g", "image i"]),
            ("@font-face { { x: url(f) } y: url(g) } a { x: url(i) }", &["font f", "font g", "image i"]),
            ("@font-face; a { x: url(i) }", &["image i"]),
            ("@FONT-FACE { src: url(f), local(\"no\") } }", &["font f"]),
            ("@media x { a { x: url(i) } } url(j)", &["image i", "image j"]),
            ("@import url(a) supports(x: y); @import 'b'; b { x: url(j) }", &["style a", "style b", "image j"]),
            ("@font-face-x { src: url(i) }", &["image i"]),
            ("@document url(no) { a { x: url(i) } }", &["image i"]),
        ] {
            assert_eq!(found(css), expected, "{css}");
        }
        let mut told = Vec::new();
        let css = "a { x: url( 'b' ), url(c\\64) }";
        find_addresses(css, &mut |place, text| told.push((css[place].to_owned(), text.to_owned())));
        assert_eq!(told, [("b".to_owned(), "b".to_owned()), ("c\\64".to_owned(), "cd".to_owned())]);
        for (len, number) in [(MAX_ADDRESS_BYTES - 1, 1), (MAX_ADDRESS_BYTES, 0)] {
            let mut all = 0;
            find_addresses(&format!("a {{ x: url({}) }}", "b".repeat(len)), &mut |_, _| all += 1);
            assert_eq!(all, number, "{len}");
        }
    }
}
