//! Finds the addresses that a style sheet fetches: imports, fonts, images. `cssparser` reads the tokens (CSS Syntax
//! Module Level 3): `curl(` is not a `url(`, `u\72l(` is one, and text in a comment or a string is no address.
//!
//! The tokens are read as one flat sequence, and this module has a stack of the open blocks: a caller of
//! `cssparser` enters a block by a nested call, and a hostile style sheet opens millions of blocks.

use std::ops::Range;

use cssparser::{Parser, ParserInput, Token, match_ignore_ascii_case};

use super::content_fact::{ContentFact, ResourceKind};

/// An upper bound in bytes for an address in a style sheet. Anything longer is content (`data:`).
const MAX_ADDRESS_BYTES: usize = 4096;

/// Reports each address in a style sheet or `style` attribute, up to [`MAX_ADDRESS_BYTES`] of it.
pub(super) fn read_css(css: &str, report: &mut dyn FnMut(ContentFact<'_>)) {
    scan(css, &mut |kind, _, text| {
        report(ContentFact::Address(kind, &text[..text.floor_char_boundary(MAX_ADDRESS_BYTES)]));
    });
}

/// Reports the range and the text of each address in a style sheet or `style` attribute. The text in this range can be
/// replaced by any text of letters, digits and `/.-_~%#?=`. An address of 4 KiB or more is content and is left out.
pub fn find_addresses(css: &str, report: &mut dyn FnMut(Range<usize>, &str)) {
    scan(css, &mut |_, range, text| {
        if range.len() < MAX_ADDRESS_BYTES {
            report(range, text);
        }
    });
}

fn scan(css: &str, report: &mut AddressCallback<'_>) {
    let mut reader = CssReader { css, open_blocks: Vec::new(), open_font_blocks: 0, rule: AtRule::None, report };
    let mut input = ParserInput::new(css);
    loop {
        // A parser skips a block that its caller does not enter. A new parser does not know that a block was opened,
        // and continues with the next token.
        let mut parser = Parser::new(&mut input);
        let start = parser.position().byte_index();
        let Ok(token) = parser.next_including_whitespace_and_comments().cloned() else { return };
        reader.read_token(&token, start..parser.position().byte_index());
    }
}

/// A callback that receives the purpose, the range and the text of an address.
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

/// The state of reading one style sheet.
struct CssReader<'a> {
    css: &'a str,
    open_blocks: Vec<CssBlock>,
    /// The number of open `@font-face` blocks.
    open_font_blocks: usize,
    rule: AtRule,
    report: &'a mut AddressCallback<'a>,
}

impl CssReader<'_> {
    /// Reads the token in `range`.
    fn read_token(&mut self, token: &Token<'_>, range: Range<usize>) {
        match token {
            Token::AtKeyword(name) => {
                self.rule = match_ignore_ascii_case! { name,
                    "import" => AtRule::Import,
                    "font-face" => AtRule::Font,
                    "namespace" | "document" | "-moz-document" => AtRule::Names,
                    _ => self.rule,
                };
            }
            Token::Function(name) => {
                self.open_block(match_ignore_ascii_case! { name,
                    "url" | "src" | "image-set" | "-webkit-image-set" => CssBlock::Addresses,
                    _ => CssBlock::Other,
                });
            }
            Token::ParenthesisBlock | Token::SquareBracketBlock => self.open_block(CssBlock::Other),
            Token::CurlyBracketBlock => {
                self.open_block(if self.rule == AtRule::Font { CssBlock::Font } else { CssBlock::Block });
                self.rule = AtRule::None;
            }
            Token::CloseParenthesis | Token::CloseSquareBracket => {
                self.close_block(&[CssBlock::Addresses, CssBlock::Other]);
            }
            Token::CloseCurlyBracket => self.close_block(&[CssBlock::Block, CssBlock::Font]),
            Token::Semicolon => self.rule = AtRule::None,
            Token::UnquotedUrl(address) => {
                let opening = self.css[range.clone()].find('(').map_or(0, |at| at + 1);
                self.read_address(range, opening, address);
            }
            Token::QuotedString(address)
                if self.rule == AtRule::Import || self.open_blocks.last() == Some(&CssBlock::Addresses) =>
            {
                self.read_address(range, 1, address);
            }
            // A string or an address with a syntax error makes its declaration invalid.
            _ => {}
        }
    }

    fn open_block(&mut self, open: CssBlock) {
        self.open_font_blocks += usize::from(open == CssBlock::Font);
        self.open_blocks.push(open);
    }

    /// Closes the innermost open block or function, if its kind is one of `kinds`.
    fn close_block(&mut self, kinds: &[CssBlock]) {
        if let Some(open) = self.open_blocks.pop_if(|open| kinds.contains(open)) {
            self.open_font_blocks -= usize::from(open == CssBlock::Font);
        }
    }

    /// Reads the address of the token in `range`, which begins `opening` bytes after the token.
    fn read_address(&mut self, range: Range<usize>, opening: usize, address: &str) {
        let kind = match self.rule {
            AtRule::Names => return,
            AtRule::Import => ResourceKind::Style,
            _ if self.open_font_blocks > 0 => ResourceKind::Font,
            _ => ResourceKind::Image,
        };
        if self.rule == AtRule::Import {
            // The conditions after the address of an import contain nothing that is fetched.
            self.rule = AtRule::None;
        }
        let address = address.trim_matches(is_space);
        if !address.is_empty() {
            let range = address_range(&self.css[range.clone()], opening, range.start);
            (self.report)(kind, range, address);
        }
    }
}

/// Returns the range of the address in `token`, a string or a `url(…)` that begins at `start`: without quotes,
/// parentheses and white space. The end of the style sheet may have cut the token off.
fn address_range(token: &str, opening: usize, start: usize) -> Range<usize> {
    let closing = if token.starts_with(['"', '\'']) { &token[..1] } else { ")" };
    let inner = &token[opening..];
    let inner = inner.strip_suffix(closing).unwrap_or(inner);
    let written = inner.trim_start_matches(is_space);
    let start = start + opening + (inner.len() - written.len());
    start..start + written.trim_end_matches(is_space).len()
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0c')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_addresses(css: &str) -> Vec<String> {
        let mut addresses = Vec::new();
        read_css(css, &mut |fact| {
            if let ContentFact::Address(kind, text) = fact {
                addresses.push(format!("{} {text}", kind.name()));
            }
        });
        addresses
    }

    #[test]
    fn css_addresses_are_classified_as_imports_fonts_or_images() {
        let css = r#"@charset "utf-8"; @IMPORT "a.css"; @import url( 'b.css' ) screen; /* url(no.png) */
            @font-face { font-family: "url(no)"; src: url(f.woff2) format("woff2"), URL("g.woff") }
            @media print { @font-face{src:url(h.ttf)} a { background: url(i.png) } }
            b { background: url("j.png"), url(data:,x); content: "@import 'no.css'" } c { src: url(k.png)"#;
        assert_eq!(
            read_addresses(css),
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

    // Regression: `curl(` in a style sheet was read as `url(`.
    #[test]
    fn css_function_and_at_rule_names_are_matched_as_whole_identifiers() {
        let css = r#"a { x: curl(no), #url(no), 1url(no), -url(no), url (no), éurl(no); y: 2 url(a), 1.5 url(b)url(c) }
            @namespace x url(no); @namespace "no"; @-moz-document url(no) { d { x: url(d) } }
            @imports "no"; @\69mport/**/"e"; @import/* "no" */'f' layer(x) supports(src: "no") "no"; g { h: url(g) }"#;
        let expected = ["image a", "image b", "image c", "image d", "style e", "style f", "image g"];
        assert_eq!(read_addresses(css), expected);
    }

    #[test]
    fn strings_in_css_image_set_and_src_functions_are_addresses() {
        let css = r#"a { x: image-set("a" 1x, url(b) 2x type("no"), 'c' type('no')), format("no") "no";
            y: -WEBKIT-image-set( /* "no" */ "d" 1x); z: url("e" "f"); content: "no" } @font-face { src: src("g") }"#;
        let expected = ["image a", "image b", "image c", "image d", "image e", "image f", "font g"];
        assert_eq!(read_addresses(css), expected);
    }

    #[test]
    fn css_escapes_are_decoded_in_names_and_addresses() {
        let css = "a { x: u\\72l(a\\29 b\\)c), \\000075 rl('d\\\ne\\27'), \\75\\72\\6C\n( f ), url(\\61\\0\\110000 g), url(\\é) }";
        assert_eq!(read_addresses(css), ["image a)b)c", "image de'", "image f", "image a\u{fffd}\u{fffd}g", "image é"]);
    }

    #[test]
    fn css_addresses_are_parsed_as_browsers_parse_them() {
        for (css, expected) in [
            ("<!--url(a)-->", &["image a"][..]),
            ("a { x: url(a\0b), url('c\0d') }", &["image a\u{fffd}b", "image c\u{fffd}d"]),
            ("a { x: url(a\u{1}b), url(\\61\n) }", &["image a"]),
            ("a { x: url(a\\62  c), url(d\\65  ), url(f\\\ng) }", &["image de"]),
            ("a { x: url(b\\", &["image b\u{fffd}"]),
            ("a { x: url('b\\", &["image b"]),
            ("a { x: url( ' b\t' ) }", &["image b"]),
            ("a { x: url(), url(''), url(' ') }", &[]),
        ] {
            assert_eq!(read_addresses(css), expected, "{css:?}");
        }
        let mut addresses = Vec::new();
        let css = "@import ' é\\61 ' ; a { x: u\\72l( 😀 ), src(\" b\" ), url(c";
        find_addresses(css, &mut |range, text| addresses.push((css[range].to_owned(), text.to_owned())));
        let expected = [("é\\61", "éa"), ("😀", "😀"), ("b", "b"), ("c", "c")];
        assert_eq!(addresses, expected.map(|(written, text)| (written.to_owned(), text.to_owned())));
    }

    #[test]
    fn malformed_css_causes_no_panic_and_yields_no_address_that_browsers_ignore() {
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
            read_addresses(css);
        }
        // None of these addresses is fetched.
        assert_eq!(read_addresses(&"url(".repeat(1 << 20)), Vec::<String>::new());
        assert_eq!(read_addresses("a { x: url(a b), url(a\"b), url(\"a\n) } c { d: url(e) }"), ["image e"]);
        for css in ["image-set(", "(", "{", "url(\"a\" ", "\\", "@font-face{", "é\\"] {
            read_addresses(&css.repeat(1 << 18));
        }
    }

    #[test]
    fn css_address_is_a_font_only_inside_a_font_face_block() {
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
            assert_eq!(read_addresses(css), expected, "{css}");
        }
        let mut addresses = Vec::new();
        let css = "a { x: url( 'b' ), url(c\\64) }";
        find_addresses(css, &mut |range, text| addresses.push((css[range].to_owned(), text.to_owned())));
        assert_eq!(addresses, [("b".to_owned(), "b".to_owned()), ("c\\64".to_owned(), "cd".to_owned())]);
        for (len, number) in [(MAX_ADDRESS_BYTES - 1, 1), (MAX_ADDRESS_BYTES, 0)] {
            let mut count = 0;
            find_addresses(&format!("a {{ x: url({}) }}", "b".repeat(len)), &mut |_, _| count += 1);
            assert_eq!(count, number, "{len}");
        }
    }
}
