//! Masking of secrets in texts that readers typed, before anything is written. Pure functions.
//!
//! A text is searched for e-mail addresses, JSON web tokens and other random-looking words. The rules prefer to mask
//! too much: a masked search term is a small loss, a stored key is not. Yet the names that readers of documentation
//! search for stay: `std::collections::hash_map`, `x86_64-unknown-linux-gnu`, `lodash@4.17.21`.

use std::borrow::Cow;
use std::ops::Range;

/// The text that replaces a secret.
const MASK: &str = "[masked]";
/// The smallest number of letters and digits of a random-looking word.
const MIN_RANDOM_CHARS: usize = 24;
/// The first characters of each part of a JSON web token: base64url of `{"`.
const TOKEN_PREFIX: &str = "eyJ";

/// Replaces secrets in `text` by `[masked]`:
///
/// - e-mail addresses: characters of a dot-atom (RFC 5321, section 4.1.2) or letters of any script, `@`, and a domain
///   with a label of two or more letters after its first dot. `foo@bar` and `lodash@4.17.21` are none.
/// - JSON web tokens: `eyJ` at the start of a word, up to the end of the letters, digits, `-`, `_` and `.`, if there is
///   a dot between them. A token may have two or more parts, and an empty signature.
/// - words of ASCII letters, digits, `-` and `_` that have 24 or more letters and digits in a row, among them both
///   a letter and a digit. Keys often have a prefix, as in `sk_live_…`, so the whole word is masked.
/// - such words that have 24 or more letters and digits in total, if they have a digit and either letters of both cases
///   or hexadecimal digits only: base64url contains `-` and `_` at random places, and the parts of a UUID are shorter
///   than 24. Names in one case, such as `x86_64-unknown-linux-gnu`, stay.
///
/// An `@` may be written as `%40`, as in a URL, or as the full-width `＠`. A text with secrets has `@` instead.
pub fn mask_secrets(text: &str) -> Cow<'_, str> {
    if !text.contains("%40") && !text.contains('＠') {
        return mask_plain(text);
    }
    let plain = text.replace("%40", "@").replace('＠', "@");
    match mask_plain(&plain) {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        Cow::Owned(masked) => Cow::Owned(masked),
    }
}

fn mask_plain(text: &str) -> Cow<'_, str> {
    let mut secrets = find_email_addresses(text);
    secrets.append(&mut find_tokens(text));
    secrets.append(&mut find_random_words(text));
    if secrets.is_empty() {
        return Cow::Borrowed(text);
    }
    secrets.sort_unstable_by_key(|secret| secret.start);
    let (mut masked, mut end) = (String::with_capacity(text.len()), 0);
    for secret in secrets {
        // A secret that overlaps the one before it extends it. One that follows without a gap does too.
        if secret.start > end || masked.is_empty() {
            masked.push_str(&text[end..secret.start]);
            masked.push_str(MASK);
        }
        end = end.max(secret.end);
    }
    masked.push_str(&text[end..]);
    Cow::Owned(masked)
}

/// Finds e-mail addresses. Neither part of an address has an `@`, so each character is looked at twice at most.
fn find_email_addresses(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices('@') {
        let local = text[..at].char_indices().rev().take_while(|(_, c)| is_local_part_char(*c)).last();
        let Some((start, _)) = local else { continue };
        let after = &text[at + 1..];
        let end = after.find(|c: char| !is_domain_char(c)).unwrap_or(after.len());
        // A dot at the end is that of a sentence.
        let domain = after[..end].trim_end_matches(['.', '-']);
        if has_top_level_domain(domain) {
            found.push(start..at + 1 + domain.len());
        }
    }
    found
}

/// Returns whether `c` may be in the part of an address before the `@`. A slash is allowed there, but it is not used,
/// and it separates the address from the path of a URL.
fn is_local_part_char(c: char) -> bool {
    c.is_alphanumeric() || "!#$%&'*+-=?^_`{|}~.".contains(c)
}

fn is_domain_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '.')
}

/// Returns whether a label after the first one begins with two letters. The numbers of a version do not.
fn has_top_level_domain(domain: &str) -> bool {
    let mut labels = domain.split('.');
    let has_name = labels.next().is_some_and(|label| !label.is_empty());
    let begins_with_letters = |label: &str| {
        let mut chars = label.chars();
        chars.next().is_some_and(char::is_alphabetic) && chars.next().is_some_and(char::is_alphabetic)
    };
    has_name && labels.any(begins_with_letters)
}

/// Finds JSON web tokens.
fn find_tokens(text: &str) -> Vec<Range<usize>> {
    let (bytes, mut found, mut searched) = (text.as_bytes(), Vec::new(), 0);
    for (start, _) in text.match_indices(TOKEN_PREFIX) {
        // A later prefix in the same run of characters is a part of the token, or there is no dot after it either.
        if start < searched || start > 0 && bytes[start - 1].is_ascii_alphanumeric() {
            continue;
        }
        let is_token_byte = |byte: &u8| is_word_byte(*byte) || *byte == b'.';
        let end = start + bytes[start..].iter().take_while(|byte| is_token_byte(byte)).count();
        searched = end;
        if text[start..end].trim_end_matches('.').contains('.') {
            found.push(start..end);
        }
    }
    found
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// Finds random-looking words.
fn find_random_words(text: &str) -> Vec<Range<usize>> {
    let (mut found, mut start) = (Vec::new(), 0);
    for word in text.as_bytes().split(|byte| !is_word_byte(*byte)) {
        if is_random(word) {
            found.push(start..start + word.len());
        }
        start += word.len() + 1;
    }
    found
}

fn is_random(word: &[u8]) -> bool {
    let count = |predicate: fn(&u8) -> bool| word.iter().filter(|byte| predicate(byte)).count();
    let (letters, digits) = (count(u8::is_ascii_alphabetic), count(u8::is_ascii_digit));
    if letters == 0 || digits == 0 || letters + digits < MIN_RANDOM_CHARS {
        return false;
    }
    let has_both_cases = count(u8::is_ascii_lowercase) > 0 && count(u8::is_ascii_uppercase) > 0;
    let is_hexadecimal = count(u8::is_ascii_hexdigit) == letters + digits;
    let is_random_part = |part: &[u8]| {
        part.len() >= MIN_RANDOM_CHARS
            && part.iter().any(u8::is_ascii_alphabetic)
            && part.iter().any(u8::is_ascii_digit)
    };
    has_both_cases || is_hexadecimal || word.split(|byte| !byte.is_ascii_alphanumeric()).any(is_random_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A token of RFC 7519, section 3.1.
    const TOKEN: &str = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9\
        .eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ\
        .dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";

    fn assert_masked(cases: &[(&str, &str)]) {
        for (text, masked) in cases {
            assert_eq!(mask_secrets(text), *masked, "{text:?}");
            // The mask is not a secret, so a text may be masked twice.
            assert_eq!(mask_secrets(masked), *masked, "{text:?}");
        }
    }

    fn assert_unchanged(cases: &[&str]) {
        for text in cases {
            assert!(matches!(mask_secrets(text), Cow::Borrowed(same) if same == *text), "{text:?}");
        }
    }

    #[test]
    fn email_addresses_are_masked() {
        assert_masked(&[
            ("bob@example.org", "[masked]"),
            ("reset password bob@example.org please", "reset password [masked] please"),
            ("Write to Bob.Smith+docs@mail.example.co.uk.", "Write to [masked]."),
            ("<bob@example.org>, (eve@example.org)", "<[masked]>, ([masked])"),
            ("mailto:bob@example.org?subject=x", "mailto:[masked]?subject=x"),
            ("https://user:secret@host.example/x", "https://user:[masked]/x"),
            ("/account/bob@example.org/keys", "/account/[masked]/keys"),
            ("bounce+bob=example.org@lists.example.com", "[masked]"),
            ("müller@bücher.example", "[masked]"),
            ("иван@пример.рф", "[masked]"),
            ("bob@xn--bcher-kva.example", "[masked]"),
            ("bob@example.xn--p1ai", "[masked]"),
            ("bob@example.com2", "[masked]"),
            ("bob@example.com-", "[masked]-"),
            ("bob@EXAMPLE.ORG", "[masked]"),
            ("a@b.co", "[masked]"),
            ("@bob@social.example", "@[masked]"),
            ("bob@example.orgeve@example.org", "[masked]"),
            ("bob@example.org eve@example.org", "[masked] [masked]"),
            ("邮箱 bob@example.org 吗", "邮箱 [masked] 吗"),
        ]);
    }

    #[test]
    fn names_with_an_at_sign_that_are_no_addresses_stay() {
        assert_unchanged(&[
            "@decorator",
            "@app.route",
            "foo@bar",
            "user@localhost",
            "lodash@4.17.21",
            "react@18.2.0-rc.1",
            "pkg@1.x",
            "@angular/core@17.0",
            "actions/checkout@v4",
            "foo @bar.com",
            "foo@ bar.com",
            "foo@.com",
            "foo@bar.",
            "a/@example.org",
            "@",
            "@@@",
            "",
        ]);
    }

    #[test]
    fn json_web_tokens_are_masked_whatever_they_consist_of() {
        let (header, rest) = TOKEN.split_once('.').unwrap();
        let (payload, _) = rest.split_once('.').unwrap();
        assert_masked(&[
            (TOKEN, "[masked]"),
            (format!("Bearer {TOKEN} is refused").as_str(), "Bearer [masked] is refused"),
            (format!("{header}.{payload}").as_str(), "[masked]"),
            (format!("{header}.{payload}.").as_str(), "[masked]"),
            (format!("token={header}..{payload};").as_str(), "token=[masked];"),
            (format!("{TOKEN}.{payload}.{payload}").as_str(), "[masked]"),
            ("eyJhbGciOi.eyJhIjox", "[masked]"),
            ("id_eyJhbGciOi.eyJhIjox", "id_[masked]"),
            ("検索eyJhbGciOi.eyJhIjox検索", "検索[masked]検索"),
        ]);
        assert_unchanged(&["eyJ", "eyJhbGciOi", "eyJson.", "surveyJs.model", "KeyJoin.eyJ", "eyj.eyj"]);
    }

    #[test]
    fn runs_of_24_letters_and_digits_with_both_are_masked_with_their_whole_word() {
        assert_masked(&[
            ("abcdefghijklmnopqrstuvw1", "[masked]"),
            ("1234567890123456789012a4", "[masked]"),
            ("da39a3ee5e6b4b0d3255bfef95601890afd80709", "[masked]"),
            ("error: 4eC39HqLyjWDarjtT1zdp7dc.", "error: [masked]."),
            ("sk_live_4ec39hqlyjwdarjtt1zdp7dc", "[masked]"),
            ("/reset/da39a3ee5e6b4b0d3255bfef/confirm", "/reset/[masked]/confirm"),
            ("ключda39a3ee5e6b4b0d3255bfefключ", "ключ[masked]ключ"),
        ]);
        assert_unchanged(&[
            "abcdefghijklmnopqrstuv1",
            "abcdefghijklmnopqrstabcdefghijklmnopqrst",
            "123456789012345678901234567890",
            "1234-5678-9012-3456-7890-1234",
            "abcdefghijkl1 mnopqrstuvwxyz2",
        ]);
    }

    #[test]
    fn random_words_with_hyphens_and_underscores_are_masked() {
        assert_masked(&[
            ("550e8400-e29b-41d4-a716-446655440000", "[masked]"),
            ("id 550E8400-E29B-41D4-A716-446655440000", "id [masked]"),
            ("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", "[masked]"),
            ("xoxb-123456789012-1234567890123-AbCdEf", "[masked]"),
        ]);
    }

    #[test]
    fn names_that_readers_search_for_stay() {
        assert_unchanged(&[
            "std::collections::hash_map",
            "x86_64-unknown-linux-gnu",
            "how-to-install-python3-on-ubuntu-22-04",
            "AWS_S3_BUCKET_REGION_DEFAULT",
            "aws_iam_role_policy_attachment_v2",
            "AbstractSingletonProxyFactoryBean",
            "how to configure TLS 1.3 with HTTP/2",
            "+49 30 1234567890123456",
            "認証トークンの有効期限を設定する方法はどこに書いてありますか2024年版",
            "如何在集群中配置身份验证以及授权策略",
        ]);
    }

    #[test]
    fn adjacent_and_overlapping_secrets_become_one_mask() {
        assert_masked(&[
            (format!("{TOKEN}@example.org").as_str(), "[masked]"),
            ("da39a3ee5e6b4b0d3255bfef@example.org", "[masked]"),
            ("bob@da39a3ee5e6b4b0d3255bfef.example", "[masked]"),
            ("x bob@example.org-da39a3ee5e6b4b0d3255bfef y", "x [masked] y"),
        ]);
    }

    #[test]
    fn an_address_is_masked_however_its_at_sign_is_written() {
        assert_eq!(mask_secrets("/account/bob%40example.org/keys"), "/account/[masked]/keys");
        assert_eq!(mask_secrets("jane.doe＠example.com"), "[masked]");
        assert_eq!(mask_secrets("100%40 of it ＠ home"), "100%40 of it ＠ home");
    }
}
