//! Language tags (BCP 47) and the direction of their writing.

/// The upper bound of the length of a language tag that is written into a page, in bytes. Real tags are far shorter.
const MAX_TAG_BYTES: usize = 35;

/// The languages that are written from right to left, if the tag names no script.
const RIGHT_TO_LEFT_LANGUAGES: [&str; 17] =
    ["ar", "arc", "azb", "ckb", "dv", "fa", "glk", "he", "iw", "mzn", "nqo", "pnb", "ps", "sd", "ug", "ur", "yi"];
/// The scripts that are written from right to left (ISO 15924).
const RIGHT_TO_LEFT_SCRIPTS: [&str; 8] = ["Adlm", "Arab", "Aran", "Hebr", "Nkoo", "Rohg", "Syrc", "Thaa"];

/// Whether a text has the form of a language tag: subtags of up to 8 letters and digits, the first of letters.
pub(super) fn is_language_tag(tag: &str) -> bool {
    let primary = primary_subtag(tag);
    tag.len() <= MAX_TAG_BYTES
        && primary.len() >= 2
        && primary.bytes().all(|b| b.is_ascii_alphabetic())
        && tag.split('-').all(|part| (1..=8).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric()))
}

/// Returns the language of a tag: `pt` in `pt-BR`.
pub(super) fn primary_subtag(tag: &str) -> &str {
    tag.split('-').next().unwrap_or_default()
}

/// Returns the value of the attribute `dir` for a language.
pub(super) fn text_direction(tag: &str) -> &'static str {
    let is_script = |part: &&str| part.len() == 4 && part.bytes().all(|b| b.is_ascii_alphabetic());
    let is_in = |names: &[&str], text: &str| names.iter().any(|name| name.eq_ignore_ascii_case(text));
    let is_right_to_left = match tag.split('-').skip(1).find(is_script) {
        Some(script) => is_in(&RIGHT_TO_LEFT_SCRIPTS, script),
        None => is_in(&RIGHT_TO_LEFT_LANGUAGES, primary_subtag(tag)),
    };
    if is_right_to_left { "rtl" } else { "ltr" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_language_tags_are_recognized() {
        for tag in ["en", "pt-BR", "zh-Hant-TW", "de-CH-1996", "nqo"] {
            assert!(is_language_tag(tag), "{tag}");
        }
        for tag in ["", "e", "-en", "en-", "en_US", "e1", "en us", "\"><b>", "en-abcdefghi", &"en-aaaaaaaa".repeat(5)] {
            assert!(!is_language_tag(tag), "{tag}");
        }
    }

    #[test]
    fn direction_follows_the_script_or_else_the_language() {
        for (tag, expected) in [
            ("ar", "rtl"),
            ("HE-il", "rtl"),
            ("fa", "rtl"),
            ("ur-PK", "rtl"),
            ("az-Arab", "rtl"),
            ("uz-arab-AF", "rtl"),
            ("ar-Latn", "ltr"),
            ("en", "ltr"),
            ("ja", "ltr"),
            ("", "ltr"),
        ] {
            assert_eq!(text_direction(tag), expected, "{tag}");
        }
    }
}
