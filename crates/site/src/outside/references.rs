//! Character references in attributes, taken out as HTML does it (HTML, 13.2.5.72 to 80).

use std::borrow::Cow;

/// The longest name of a character that HTML knows is shorter, in bytes.
const NAME: usize = 32;

/// An attribute's text with its character references taken out, and whether it is certain what all of them stand for:
/// of the names that end with a semicolon only those that occur are known here; the others are left as they stand.
pub fn resolved(text: &str) -> (Cow<'_, str>, bool) {
    if !text.contains('&') {
        return (Cow::Borrowed(text), true);
    }
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut is_certain) = (text, true);
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let found = match rest.strip_prefix('#') {
            Some(number) => numbered(number).map(|(meant, len)| (meant, len + 1)),
            None => match named(rest) {
                Named::Character(meant, len) => Some((meant, len)),
                Named::Nothing => None,
                Named::Unknown => {
                    is_certain = false;
                    None
                }
            },
        };
        if let Some((meant, len)) = found {
            out.push(meant);
            rest = &rest[len..];
        } else {
            out.push('&');
        }
    }
    out.push_str(rest);
    (Cow::Owned(out), is_certain)
}

enum Named {
    /// A character, and how many bytes name it.
    Character(char, usize),
    /// The ampersand is itself.
    Nothing,
    /// This may be a name that is not known here.
    Unknown,
}

fn named(rest: &str) -> Named {
    // No further: a page may be made of nothing but letters.
    let len = rest.bytes().take(NAME + 1).take_while(u8::is_ascii_alphanumeric).count();
    let (name, next) = (&rest[..len], rest.as_bytes().get(len));
    let find = |table: &[(&str, char)]| table.binary_search_by_key(&name, |(name, _)| name).ok().map(|at| table[at].1);
    match (find(&OLD), next) {
        _ if len == 0 || len > NAME => Named::Nothing,
        (Some(meant), Some(b';')) => Named::Character(meant, len + 1),
        (None, Some(b';')) => find(&COMMON).map_or(Named::Unknown, |meant| Named::Character(meant, len + 1)),
        // As in `?a=1&copy=2`. Where a letter or a digit follows, the name has not ended and is not in the table.
        (Some(_), Some(b'=')) | (None, _) => Named::Nothing,
        (Some(meant), _) => Named::Character(meant, len),
    }
}

/// The character of this number, and how many bytes say it; the semicolon may be missing.
fn numbered(rest: &str) -> Option<(char, usize)> {
    let (digits, radix) = rest.strip_prefix(['x', 'X']).map_or((rest, 10), |digits| (digits, 16));
    let len = digits.bytes().take_while(|b| char::from(*b).is_digit(radix)).count();
    if len == 0 {
        return None;
    }
    let number = digits[..len].chars().filter_map(|c| c.to_digit(radix));
    let number = number.fold(0u32, |all, digit| all.saturating_mul(radix).saturating_add(digit));
    let meant = match number {
        0 => char::REPLACEMENT_CHARACTER,
        0x80..=0x9f => WINDOWS[number as usize - 0x80],
        _ => char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER),
    };
    let end = usize::from(digits.as_bytes().get(len) == Some(&b';'));
    Some((meant, rest.len() - digits.len() + len + end))
}

/// What the numbers of control characters from 0x80 on stand for (windows-1252).
#[rustfmt::skip]
const WINDOWS: [char; 32] = [
    '\u{20ac}', '\u{81}', '\u{201a}', '\u{192}', '\u{201e}', '\u{2026}', '\u{2020}', '\u{2021}',
    '\u{2c6}', '\u{2030}', '\u{160}', '\u{2039}', '\u{152}', '\u{8d}', '\u{17d}', '\u{8f}',
    '\u{90}', '\u{2018}', '\u{2019}', '\u{201c}', '\u{201d}', '\u{2022}', '\u{2013}', '\u{2014}',
    '\u{2dc}', '\u{2122}', '\u{161}', '\u{203a}', '\u{153}', '\u{9d}', '\u{17e}', '\u{178}',
];

/// The names that count without a semicolon, too: all of them.
#[rustfmt::skip]
const OLD: [(&str, char); 106] = [
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

/// Names with a semicolon that occur in handlers and addresses.
#[rustfmt::skip]
const COMMON: [(&str, char); 51] = [
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
    fn references_in_attributes_are_taken_out_as_html_says() {
        for (written, meant) in [
            ("a()&&b() & c&", "a()&&b() & c&"),
            ("&amp;&lt;&gt;&quot;&apos;&nbsp;", "&<>\"'\u{a0}"),
            ("a?b=1&copy=2&copyx&copy&copy;", "a?b=1&copy=2&copyx\u{a9}\u{a9}"),
            ("&notit &not &notx= &eacute.", "&notit \u{ac} &notx= \u{e9}."),
            ("&#38&#x26;&#X41 &#65x &#; &#x; &#xg", "&&A Ax &#; &#x; &#xg"),
            ("&#0;&#128;&#x99;&#x81;", "\u{fffd}\u{20ac}\u{2122}\u{81}"),
            ("&#xd800;&#x110000;&#99999999999;", "\u{fffd}\u{fffd}\u{fffd}"),
            ("&#13;&#10;", "\r\n"),
        ] {
            assert_eq!(resolved(written), (Cow::Borrowed(meant), true), "{written}");
        }
        for written in ["a &notin; b", "&foo;", "&NotEqualTilde;"] {
            assert_eq!(resolved(written), (Cow::Borrowed(written), false));
        }
        assert!(resolved(&"&".repeat(1 << 20)).1 && resolved(&format!("&{}", "a".repeat(1 << 20))).1);
    }

    #[test]
    fn names_are_in_the_order_in_which_they_are_looked_up() {
        assert!(OLD.is_sorted() && COMMON.is_sorted());
    }

    #[test]
    fn what_ends_a_name_or_a_number_decides() {
        for (written, meant) in [
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
            assert_eq!(resolved(written), (Cow::Borrowed(meant), true), "{written}");
        }
        let name = |len: usize| format!("&{};", "a".repeat(len));
        assert!(!resolved(&name(NAME)).1 && resolved(&name(NAME + 1)).1);
    }
}
