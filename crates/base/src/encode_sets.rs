//! The characters that are percent-encoded (RFC 3986 section 2.1), one set for each part of a URL that docwharf writes.
//! Bytes outside ASCII are in every set.

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC};

/// One segment of a path, or a value in a query: all characters but the unreserved ones (RFC 3986 section 2.3).
pub const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A path, or a value in a query or a fragment: all characters but the unreserved ones and `/`. None of the other
/// characters has a meaning in XML.
pub const PLAIN_PATH: &AsciiSet = &SEGMENT.remove(b'/');

/// The path of a link in a copied site: all characters that HTML, CSS or a rule could interpret.
pub const COPIED_LINK: &AsciiSet = &PLAIN_PATH.remove(b'@').remove(b'$');

/// The path of a link in a copied site that is percent-encoded already: existing encodings stay.
pub const ENCODED_COPIED_LINK: &AsciiSet = &COPIED_LINK.remove(b'%').remove(b'+').remove(b',').remove(b'=');

/// The path of a `Location`: all characters but those that a path may contain (`pchar` and `/`, RFC 3986 section 3.3).
pub const LOCATION_PATH: &AsciiSet = &COPIED_LINK
    .remove(b'!')
    .remove(b'(')
    .remove(b')')
    .remove(b',')
    .remove(b'+')
    .remove(b'=')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'*')
    .remove(b':')
    .remove(b';');

/// A decoded path that becomes the path of a URL: all characters that have another meaning for a URL parser.
pub const URL_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'`')
    .add(b'{')
    .add(b'}');

/// The destination of a rule as it is written: all characters that no URL contains (RFC 3986 appendix A). A `%` in it
/// begins an encoding already.
pub const RULE_TEXT: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\').add(b'^').add(b'`').add(b'{').add(b'|').add(b'}');

/// The query of a request that becomes the query of a `Location`: all characters but `pchar`, `/` and `?` (RFC 3986
/// section 3.4). A `%` stays where it begins an encoding.
pub const LOCATION_QUERY: &AsciiSet = &RULE_TEXT.add(b'#').add(b'[').add(b']');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_encode_set_preserves_the_characters_allowed_in_its_url_part() {
        let printable: String = (b' '..=b'~').map(char::from).filter(|c| !c.is_ascii_alphanumeric()).collect();
        for (name, set, expected) in [
            ("segment", SEGMENT, "-._~"),
            ("plain path", PLAIN_PATH, "-./_~"),
            ("copied link", COPIED_LINK, "$-./@_~"),
            ("encoded copied link", ENCODED_COPIED_LINK, "$%+,-./=@_~"),
            ("path of a Location", LOCATION_PATH, "!$&'()*+,-./:;=@_~"),
            ("path of a URL", URL_PATH, "!$&'()*+,-./:;=@[]^_|~"),
            ("rule", RULE_TEXT, "!#$%&'()*+,-./:;=?@[]_~"),
            ("query of a Location", LOCATION_QUERY, "!$%&'()*+,-./:;=?@_~"),
        ] {
            let is_unchanged =
                |c: &char| percent_encoding::utf8_percent_encode(&c.to_string(), set).to_string().len() == 1;
            assert_eq!(printable.chars().filter(is_unchanged).collect::<String>(), expected, "{name}");
            let encoded = percent_encoding::utf8_percent_encode("Az09\0\n\u{7f}é", set).to_string();
            assert_eq!(encoded, "Az09%00%0A%7F%C3%A9", "{name}");
        }
    }
}
