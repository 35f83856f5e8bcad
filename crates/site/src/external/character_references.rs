//! Resolves character references in attributes as HTML does (HTML Standard, 13.2.5.72 to 13.2.5.80).

use std::borrow::Cow;

/// An upper bound in bytes for the names of characters in HTML.
const MAX_NAME_BYTES: usize = 32;

/// Resolves the character references in the text of an attribute. The second value is whether all of them are known.
/// Of the names that require a semicolon, only common ones are known here; any other name is left as written.
/// `links::decode_references` is stricter: an unknown name ends the check of a link.
pub fn resolve_references(text: &str) -> (Cow<'_, str>, bool) {
    if !text.contains('&') {
        return (Cow::Borrowed(text), true);
    }
    let mut output = String::with_capacity(text.len());
    let (mut rest, mut is_certain) = (text, true);
    while let Some(ampersand) = rest.find('&') {
        output.push_str(&rest[..ampersand]);
        rest = &rest[ampersand + 1..];
        let reference = match rest.strip_prefix('#') {
            Some(number) => parse_numeric_reference(number).map(|(character, len)| (character, len + 1)),
            None => match parse_named_reference(rest) {
                NamedReference::Character(character, len) => Some((character, len)),
                NamedReference::NotAReference => None,
                NamedReference::Unknown => {
                    is_certain = false;
                    None
                }
            },
        };
        if let Some((character, len)) = reference {
            output.push(character);
            rest = &rest[len..];
        } else {
            output.push('&');
        }
    }
    output.push_str(rest);
    (Cow::Owned(output), is_certain)
}

/// The meaning of the text after an ampersand.
enum NamedReference {
    /// A character, and the length of its reference in bytes without the ampersand.
    Character(char, usize),
    /// The text is not a reference; the ampersand stands for itself.
    NotAReference,
    /// The text may be a name that is not known here.
    Unknown,
}

fn parse_named_reference(rest: &str) -> NamedReference {
    // The scan is bounded, because a hostile page may consist of letters only.
    let len = rest.bytes().take(MAX_NAME_BYTES + 1).take_while(u8::is_ascii_alphanumeric).count();
    let (name, next) = (&rest[..len], rest.as_bytes().get(len));
    let find =
        |table: &[(&str, char)]| table.binary_search_by_key(&name, |(name, _)| name).ok().map(|index| table[index].1);
    match (find(&LEGACY_NAMES), next) {
        _ if len == 0 || len > MAX_NAME_BYTES => NamedReference::NotAReference,
        (Some(character), Some(b';')) => NamedReference::Character(character, len + 1),
        (None, Some(b';')) => find(&COMMON_NAMES)
            .map_or(NamedReference::Unknown, |character| NamedReference::Character(character, len + 1)),
        // A parameter, as in `?a=1&copy=2`. A name followed by a letter or a digit is longer, and not in the table.
        (Some(_), Some(b'=')) | (None, _) => NamedReference::NotAReference,
        (Some(character), _) => NamedReference::Character(character, len),
    }
}

/// Parses a numeric reference after `&#`: the character, and the length of the number in bytes. The semicolon may be
/// missing.
fn parse_numeric_reference(rest: &str) -> Option<(char, usize)> {
    let (digits, radix) = rest.strip_prefix(['x', 'X']).map_or((rest, 10), |digits| (digits, 16));
    let len = digits.bytes().take_while(|b| char::from(*b).is_digit(radix)).count();
    if len == 0 {
        return None;
    }
    let number = digits[..len].chars().filter_map(|c| c.to_digit(radix));
    let number = number.fold(0u32, |number, digit| number.saturating_mul(radix).saturating_add(digit));
    let character = match number {
        0 => char::REPLACEMENT_CHARACTER,
        0x80..=0x9f => WINDOWS_1252[number as usize - 0x80],
        _ => char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER),
    };
    let end = usize::from(digits.as_bytes().get(len) == Some(&b';'));
    Some((character, rest.len() - digits.len() + len + end))
}

/// The characters for the numbers of control characters from 0x80 to 0x9f, which HTML reads as windows-1252.
#[rustfmt::skip]
const WINDOWS_1252: [char; 32] = [
    '\u{20ac}', '\u{81}', '\u{201a}', '\u{192}', '\u{201e}', '\u{2026}', '\u{2020}', '\u{2021}',
    '\u{2c6}', '\u{2030}', '\u{160}', '\u{2039}', '\u{152}', '\u{8d}', '\u{17d}', '\u{8f}',
    '\u{90}', '\u{2018}', '\u{2019}', '\u{201c}', '\u{201d}', '\u{2022}', '\u{2013}', '\u{2014}',
    '\u{2dc}', '\u{2122}', '\u{161}', '\u{203a}', '\u{153}', '\u{9d}', '\u{17e}', '\u{178}',
];

/// All names that are references also without a semicolon, sorted.
#[rustfmt::skip]
const LEGACY_NAMES: [(&str, char); 106] = [
    ("AElig", 'Æ'), ("AMP", '&'), ("Aacute", 'Á'), ("Acirc", 'Â'), ("Agrave", 'À'), ("Aring", 'Å'), ("Atilde", 'Ã'),
    ("Auml", 'Ä'), ("COPY", '©'), ("Ccedil", 'Ç'), ("ETH", 'Ð'), ("Eacute", 'É'), ("Ecirc", 'Ê'), ("Egrave", 'È'),
    ("Euml", 'Ë'), ("GT", '>'), ("Iacute", 'Í'), ("Icirc", 'Î'), ("Igrave", 'Ì'), ("Iuml", 'Ï'), ("LT", '<'),
    ("Ntilde", 'Ñ'), ("Oacute", 'Ó'), ("Ocirc", 'Ô'), ("Ograve", 'Ò'), ("Oslash", 'Ø'), ("Otilde", 'Õ'),
    ("Ouml", 'Ö'), ("QUOT", '"'), ("REG", '®'), ("THORN", 'Þ'), ("Uacute", 'Ú'), ("Ucirc", 'Û'), ("Ugrave", 'Ù'),
    ("Uuml", 'Ü'), ("Yacute", 'Ý'), ("aacute", 'á'), ("acirc", 'â'), ("acute", '´'), ("aelig", 'æ'), ("agrave", 'à'),
    ("amp", '&'), ("aring", 'å'), ("atilde", 'ã'), ("auml", 'ä'), ("brvbar", '¦'), ("ccedil", 'ç'), ("cedil", '¸'),
    ("cent", '¢'), ("copy", '©'), ("curren", '¤'), ("deg", '°'), ("divide", '÷'), ("eacute", 'é'), ("ecirc", 'ê'),
    ("egrave", 'è'), ("eth", 'ð'), ("euml", 'ë'), ("frac12", '½'), ("frac14", '¼'), ("frac34", '¾'), ("gt", '>'),
    ("iacute", 'í'), ("icirc", 'î'), ("iexcl", '¡'), ("igrave", 'ì'), ("iquest", '¿'), ("iuml", 'ï'), ("laquo", '«'),
    ("lt", '<'), ("macr", '¯'), ("micro", 'µ'), ("middot", '·'), ("nbsp", '\u{a0}'), ("not", '¬'), ("ntilde", 'ñ'),
    ("oacute", 'ó'), ("ocirc", 'ô'), ("ograve", 'ò'), ("ordf", 'ª'), ("ordm", 'º'), ("oslash", 'ø'), ("otilde", 'õ'),
    ("ouml", 'ö'), ("para", '¶'), ("plusmn", '±'), ("pound", '£'), ("quot", '"'), ("raquo", '»'), ("reg", '®'),
    ("sect", '§'), ("shy", '\u{ad}'), ("sup1", '¹'), ("sup2", '²'), ("sup3", '³'), ("szlig", 'ß'), ("thorn", 'þ'),
    ("times", '×'), ("uacute", 'ú'), ("ucirc", 'û'), ("ugrave", 'ù'), ("uml", '¨'), ("uuml", 'ü'), ("yacute", 'ý'),
    ("yen", '¥'), ("yuml", 'ÿ'),
];

/// Names that require a semicolon and that occur in event handlers and addresses, sorted.
#[rustfmt::skip]
const COMMON_NAMES: [(&str, char); 51] = [
    ("Hat", '^'), ("NewLine", '\n'), ("Tab", '\t'), ("apos", '\''), ("ast", '*'), ("bsol", '\\'), ("bull", '•'),
    ("colon", ':'), ("comma", ','), ("commat", '@'), ("darr", '↓'), ("dollar", '$'), ("emsp", '\u{2003}'),
    ("ensp", '\u{2002}'), ("equals", '='), ("excl", '!'), ("grave", '`'), ("hellip", '…'), ("larr", '←'),
    ("lbrace", '{'), ("lbrack", '['), ("lcub", '{'), ("ldquo", '“'), ("lowbar", '_'), ("lpar", '('), ("lsqb", '['),
    ("lsquo", '‘'), ("mdash", '—'), ("ndash", '–'), ("num", '#'), ("percnt", '%'), ("period", '.'), ("plus", '+'),
    ("quest", '?'), ("rarr", '→'), ("rbrace", '}'), ("rbrack", ']'), ("rcub", '}'), ("rdquo", '”'), ("rpar", ')'),
    ("rsqb", ']'), ("rsquo", '’'), ("semi", ';'), ("sol", '/'), ("thinsp", '\u{2009}'), ("trade", '™'), ("uarr", '↑'),
    ("verbar", '|'), ("vert", '|'), ("zwj", '\u{200d}'), ("zwnj", '\u{200c}'),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn character_references_in_attributes_are_decoded_as_html_specifies() {
        for (written, character) in [
            ("a()&&b() & c&", "a()&&b() & c&"),
            ("&amp;&lt;&gt;&quot;&apos;&nbsp;", "&<>\"'\u{a0}"),
            ("a?b=1&copy=2&copyx&copy&copy;", "a?b=1&copy=2&copyx\u{a9}\u{a9}"),
            ("&notit &not &notx= &eacute.", "&notit \u{ac} &notx= \u{e9}."),
            ("&#38&#x26;&#X41 &#65x &#; &#x; &#xg", "&&A Ax &#; &#x; &#xg"),
            ("&#0;&#128;&#x99;&#x81;", "\u{fffd}\u{20ac}\u{2122}\u{81}"),
            ("&#xd800;&#x110000;&#99999999999;", "\u{fffd}\u{fffd}\u{fffd}"),
            ("&#13;&#10;", "\r\n"),
        ] {
            assert_eq!(resolve_references(written), (Cow::Borrowed(character), true), "{written}");
        }
        for written in ["a &notin; b", "&foo;", "&NotEqualTilde;"] {
            assert_eq!(resolve_references(written), (Cow::Borrowed(written), false));
        }
        assert!(
            resolve_references(&"&".repeat(1 << 20)).1 && resolve_references(&format!("&{}", "a".repeat(1 << 20))).1
        );
    }

    #[test]
    fn character_reference_names_are_sorted_for_the_binary_search() {
        assert!(LEGACY_NAMES.is_sorted() && COMMON_NAMES.is_sorted());
    }

    #[test]
    fn character_after_a_reference_decides_whether_the_reference_is_decoded() {
        for (written, character) in [
            ("&copy=", "&copy="),
            ("&copy;=", "\u{a9}="),
            ("&copy,", "\u{a9},"),
            ("&copy", "\u{a9}"),
            ("&copy1", "&copy1"),
            ("&COPY&", "\u{a9}&"),
            ("&Copy", "&Copy"),
            ("&comma;", ","),
            ("&comma", "&comma"),
            ("&#65;&#65", "AA"),
            ("&#065a", "Aa"),
            ("&#x41g", "Ag"),
            ("&#127;&#159;&#160;", "\u{7f}\u{178}\u{a0}"),
            ("&#x10ffff;", "\u{10ffff}"),
            ("&# 65;", "&# 65;"),
            ("&;", "&;"),
            ("&é;", "&é;"),
        ] {
            assert_eq!(resolve_references(written), (Cow::Borrowed(character), true), "{written}");
        }
        let name = |len: usize| format!("&{};", "a".repeat(len));
        assert!(!resolve_references(&name(MAX_NAME_BYTES)).1 && resolve_references(&name(MAX_NAME_BYTES + 1)).1);
    }
}
