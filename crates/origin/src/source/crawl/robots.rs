//! Parses robots.txt and applies its rules (RFC 9309).

/// Maximum size of robots.txt that is parsed, in bytes; the rest is ignored. RFC 9309, 2.5, requires at least 500 KiB.
const MAX_ROBOTS_BYTES: usize = 512 << 10;
/// Product token of this crawler.
const NAME: &str = "docwharf";

/// The rules of a robots.txt that apply to this crawler.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Robots {
    rules: Vec<(bool, String)>,
    /// URLs of the sitemaps that it names, as written.
    pub sitemaps: Vec<String>,
}

impl Robots {
    /// Parses a robots.txt. The groups for `docwharf` apply or, if there are none, those for `*`.
    pub fn parse(body: &[u8]) -> Robots {
        let text = String::from_utf8_lossy(&body[..body.len().min(MAX_ROBOTS_BYTES)]);
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let (mut ours, mut everybody, mut sitemaps) = (None::<Vec<_>>, Vec::new(), Vec::new());
        // Whether the current group applies to this crawler, and whether it applies to `*`. Consecutive `user-agent`
        // lines share a group.
        let (mut is_ours, mut is_all, mut in_names) = (false, false, false);
        for line in text.split(['\n', '\r']) {
            let line = line.split('#').next().unwrap_or_default();
            let Some((field, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            match field.trim().to_ascii_lowercase().as_str() {
                "user-agent" => {
                    if !in_names {
                        (is_ours, is_all) = (false, false);
                    }
                    in_names = true;
                    // A product may be followed by a version, which is not part of its name.
                    let name = value.split(['/', ' ']).next().unwrap_or_default();
                    if name.eq_ignore_ascii_case(NAME) {
                        is_ours = true;
                        ours.get_or_insert_default();
                    }
                    is_all |= value == "*";
                }
                field @ ("allow" | "disallow") => {
                    in_names = false;
                    if value.is_empty() {
                        continue;
                    }
                    let rule = (field == "allow", normal(value));
                    if is_ours {
                        ours.get_or_insert_default().push(rule.clone());
                    }
                    if is_all {
                        everybody.push(rule);
                    }
                }
                "sitemap" => sitemaps.push(value.to_owned()),
                _ => {}
            }
        }
        Robots { rules: ours.unwrap_or(everybody), sitemaps }
    }

    /// Whether an address may be requested. The longest matching rule decides; of two equally long ones, `Allow` wins.
    pub fn allows(&self, address: &str) -> bool {
        let address = normal(address);
        let matching = self.rules.iter().filter(|(_, pattern)| matches(pattern.as_bytes(), address.as_bytes()));
        matching.max_by_key(|(allow, pattern)| (pattern.len(), *allow)).is_none_or(|(allow, _)| *allow)
    }
}

/// Normalises an address (RFC 9309, 2.2.2; RFC 3986, 6.2.2): codes in upper case, and only where they are needed.
fn normal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let code = (first == b'%').then(|| code(behind)).flatten();
        let byte = code.unwrap_or(first);
        let is_unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if is_unreserved || (code.is_none() && byte.is_ascii_graphic()) {
            out.push(char::from(byte));
        } else {
            out.push_str(percent_encoding::percent_encode_byte(byte));
        }
        rest = if code.is_some() { &behind[2..] } else { behind };
    }
    out
}

/// Returns the byte that two hexadecimal digits encode.
fn code(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| digits.get(at).and_then(|&digit| char::from(digit).to_digit(16));
    u8::try_from(digit(0)? << 4 | digit(1)?).ok()
}

/// Whether a pattern matches the beginning of an address, or all of it if the pattern ends in `$`; `*` matches any
/// characters. Backtracks to the last `*` only, so that no pattern is slow.
fn matches(pattern: &[u8], address: &[u8]) -> bool {
    let (pattern, is_whole) = pattern.strip_suffix(b"$").map_or((pattern, false), |pattern| (pattern, true));
    let (mut at, mut from) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        if at == pattern.len() && (!is_whole || from == address.len()) {
            return true;
        }
        if pattern.get(at) == Some(&b'*') {
            star = Some((at, from));
            at += 1;
        } else if at < pattern.len() && address.get(from) == Some(&pattern[at]) {
            (at, from) = (at + 1, from + 1);
        } else {
            let Some((back, taken)) = star.filter(|(_, taken)| *taken < address.len()) else { return false };
            star = Some((back, taken + 1));
            (at, from) = (back + 1, taken + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_rule_decides() {
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
    fn rules_and_addresses_are_compared_in_one_spelling() {
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
    fn a_group_of_our_own_replaces_that_for_everybody() {
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
            "nothing is"
        );
        // An empty line ends no group.
        assert!(!Robots::parse(b"User-agent: docwharf\n\nUser-agent: x\nDisallow: /").allows("/x"));
        assert!(Robots::parse(b"").allows("/") && Robots::parse(b"\xff\xfe: \n:::").allows("/"));
    }

    #[test]
    fn stars_are_not_slow() {
        assert!(!matches("*a".repeat(500).as_bytes(), "b".repeat(2000).as_bytes()));
        assert!(matches(b"/*/*/c$", b"/a/b/c/c") && !matches(b"/*/c$", b"/a/c/d") && matches(b"*", b""));
    }
}
