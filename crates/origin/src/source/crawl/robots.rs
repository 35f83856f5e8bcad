//! Parses robots.txt and applies its rules (RFC 9309).

/// Maximum size of robots.txt that is parsed, in bytes; the rest is ignored. RFC 9309, 2.5, requires at least 500 KiB.
const MAX_ROBOTS_BYTES: usize = 512 << 10;
/// Product token of this crawler.
const PRODUCT_TOKEN: &str = "docwharf";

/// The rules of a robots.txt that apply to this crawler.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Robots {
    /// Whether the rule is `Allow`, and its pattern.
    rules: Vec<(bool, String)>,
    /// URLs of the sitemaps that it names, as written.
    pub sitemaps: Vec<String>,
}

impl Robots {
    /// Parses a robots.txt. The groups for `docwharf` apply or, if there are none, those for `*`.
    pub fn parse(body: &[u8]) -> Robots {
        let text = String::from_utf8_lossy(&body[..body.len().min(MAX_ROBOTS_BYTES)]);
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let (mut own_rules, mut general_rules, mut sitemaps) = (None::<Vec<_>>, Vec::new(), Vec::new());
        // Whether the current group applies to this crawler, and whether it applies to `*`. Consecutive `user-agent`
        // lines share a group.
        let (mut is_own_group, mut is_general_group, mut in_user_agents) = (false, false, false);
        for line in text.split(['\n', '\r']) {
            let line = line.split('#').next().unwrap_or_default();
            let Some((field, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            match field.trim().to_ascii_lowercase().as_str() {
                "user-agent" => {
                    if !in_user_agents {
                        (is_own_group, is_general_group) = (false, false);
                    }
                    in_user_agents = true;
                    // A product may be followed by a version, which is not part of its name.
                    let name = value.split(['/', ' ']).next().unwrap_or_default();
                    if name.eq_ignore_ascii_case(PRODUCT_TOKEN) {
                        is_own_group = true;
                        own_rules.get_or_insert_default();
                    }
                    is_general_group |= value == "*";
                }
                field @ ("allow" | "disallow") => {
                    in_user_agents = false;
                    if value.is_empty() {
                        continue;
                    }
                    let rule = (field == "allow", normalize_address(value));
                    if is_own_group {
                        own_rules.get_or_insert_default().push(rule.clone());
                    }
                    if is_general_group {
                        general_rules.push(rule);
                    }
                }
                "sitemap" => sitemaps.push(value.to_owned()),
                _ => {}
            }
        }
        Robots { rules: own_rules.unwrap_or(general_rules), sitemaps }
    }

    /// Whether an address may be requested. The longest matching rule decides; of two equally long ones, `Allow` wins.
    pub fn allows(&self, address: &str) -> bool {
        let address = normalize_address(address);
        let matching = self.rules.iter().filter(|(_, pattern)| matches_pattern(pattern.as_bytes(), address.as_bytes()));
        matching.max_by_key(|(allow, pattern)| (pattern.len(), *allow)).is_none_or(|(allow, _)| *allow)
    }
}

/// Normalises an address (RFC 9309, 2.2.2; RFC 3986, 6.2.2): percent-encodings are in upper case, and only where
/// they are needed.
fn normalize_address(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = (first == b'%').then(|| decode_hex(after)).flatten();
        let byte = code.unwrap_or(first);
        let is_unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if is_unreserved || (code.is_none() && byte.is_ascii_graphic()) {
            out.push(char::from(byte));
        } else {
            out.push_str(percent_encoding::percent_encode_byte(byte));
        }
        rest = if code.is_some() { &after[2..] } else { after };
    }
    out
}

/// Returns the byte that two hexadecimal digits encode.
fn decode_hex(digits: &[u8]) -> Option<u8> {
    let digit = |index: usize| digits.get(index).and_then(|&digit| char::from(digit).to_digit(16));
    u8::try_from(digit(0)? << 4 | digit(1)?).ok()
}

/// Whether a pattern matches the beginning of an address, or all of it if the pattern ends in `$`; `*` matches any
/// characters. Backtracks to the last `*` only, so that no pattern is slow.
fn matches_pattern(pattern: &[u8], address: &[u8]) -> bool {
    let (pattern, must_match_end) = pattern.strip_suffix(b"$").map_or((pattern, false), |pattern| (pattern, true));
    let (mut pattern_position, mut address_position) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern_position == pattern.len() && (!must_match_end || address_position == address.len()) {
            return true;
        }
        if pattern.get(pattern_position) == Some(&b'*') {
            star = Some((pattern_position, address_position));
            pattern_position += 1;
        } else if pattern_position < pattern.len() && address.get(address_position) == Some(&pattern[pattern_position])
        {
            (pattern_position, address_position) = (pattern_position + 1, address_position + 1);
        } else {
            let Some((star_position, star_end)) = star.filter(|(_, star_end)| *star_end < address.len()) else {
                return false;
            };
            star = Some((star_position, star_end + 1));
            (pattern_position, address_position) = (star_position + 1, star_end + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_matching_robots_rule_applies() {
        let robots = Robots::parse(
            b"User-agent: *\nDisallow: /a\nAllow: /a/b # but this\nDisallow: /*.pdf$\nDisallow: /caf\xc3\xa9\nDisallow:\n\
            Disallow: /x*y\nAllow: /same\nDisallow: /same",
        );
        for (address, allowed) in [
            ("/", true),
            ("/a", false),
            ("/abc", false),
            ("/a/b/c", true),
            ("/x.pdf", false),
            ("/x.pdf?a", true),
            ("/caf%c3%a9", false),
            ("/x-y", false),
            ("/x-z", true),
            ("/same", true),
            // Rules and addresses are compared in one spelling.
            ("/%61", false),
            ("/%78%2dy", false),
        ] {
            assert_eq!(robots.allows(address), allowed, "{address}");
        }
    }

    #[test]
    fn robots_rules_and_addresses_are_compared_after_percent_encoding_normalization() {
        let robots =
            Robots::parse(b"User-agent: *\nDisallow: /%61b\nDisallow: /%7euser\nDisallow: /%2a\nDisallow: /%3f");
        for (address, allowed) in [
            ("/ab", false),
            ("/%61%62", false),
            ("/~user", false),
            ("/%7Euser", false),
            ("/%2A", false),
            ("/x", true),
            ("/%3F", false),
            ("/?", true),
            ("/%", true),
        ] {
            assert_eq!(robots.allows(address), allowed, "{address}");
        }
    }

    #[test]
    fn a_robots_group_for_docwharf_replaces_the_wildcard_group() {
        let text = "user-agent: other\nuser-agent: DocWharf/1.0\ndisallow: /ours\n\nuser-agent: *\ndisallow: /\n\
            user-agent: docwharf\ndisallow: /more\nsitemap: https://x.example/s.xml";
        let robots = Robots::parse(text.as_bytes());
        assert_eq!(robots.sitemaps, ["https://x.example/s.xml"]);
        for (address, allowed) in [("/", true), ("/ours", false), ("/more", false)] {
            assert_eq!(robots.allows(address), allowed, "{address}");
        }
        assert!(!Robots::parse(b"User-agent: *\nDisallow: /").allows("/x"));
        assert!(
            Robots::parse(b"User-agent: docwharf\nDisallow:\n\nUser-agent: *\nDisallow: /").allows("/x"),
            "an empty Disallow allows everything"
        );
        // An empty line ends no group.
        assert!(!Robots::parse(b"User-agent: docwharf\n\nUser-agent: x\nDisallow: /").allows("/x"));
        assert!(Robots::parse(b"").allows("/") && Robots::parse(b"\xff\xfe: \n:::").allows("/"));
        // A byte order mark, other line ends, and as many bytes as the RFC requires at least.
        for text in [
            "\u{feff}User-agent: *\nDisallow: /".to_owned(),
            "User-agent: *\rDisallow: /".to_owned(),
            "User-agent: *\r\nDisallow: /".to_owned(),
            format!("User-agent: *\n#{}\nDisallow: /", "x".repeat(500 << 10)),
        ] {
            assert!(!Robots::parse(text.as_bytes()).allows("/x"), "{}", &text[..20]);
        }
    }

    #[test]
    fn robots_patterns_with_many_wildcards_do_not_backtrack_exponentially() {
        assert!(!matches_pattern("*a".repeat(500).as_bytes(), "b".repeat(2000).as_bytes()));
        assert!(
            matches_pattern(b"/*/*/c$", b"/a/b/c/c")
                && !matches_pattern(b"/*/c$", b"/a/c/d")
                && matches_pattern(b"*", b"")
        );
    }
}
