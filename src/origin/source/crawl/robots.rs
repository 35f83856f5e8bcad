//! What a site asks crawlers to leave alone (RFC 9309).

/// A longer robots.txt is read up to here, in bytes; the standard asks for no less.
const LONGEST: usize = 512 << 10;
/// Who we are.
const NAME: &str = "docwharf";

/// What of a robots.txt concerns us.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Robots {
    rules: Vec<(bool, String)>,
    /// The sitemaps that it names, as written.
    pub sitemaps: Vec<String>,
}

impl Robots {
    /// Reads one. The groups for `docwharf` count, or, where there are none, those for everybody.
    pub fn parse(body: &[u8]) -> Robots {
        let text = String::from_utf8_lossy(&body[..body.len().min(LONGEST)]);
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let (mut ours, mut everybody, mut sitemaps) = (None::<Vec<_>>, Vec::new(), Vec::new());
        // Whom the group is for that is being read: us, everybody. Names that follow one another share a group.
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

    /// Whether an address may be asked for: the longest rule that matches says so, and `Allow` of two that are as long.
    pub fn allows(&self, address: &str) -> bool {
        let address = normal(address);
        let matching = self.rules.iter().filter(|(_, pattern)| matches(pattern.as_bytes(), address.as_bytes()));
        matching.max_by_key(|(allow, pattern)| (pattern.len(), *allow)).is_none_or(|(allow, _)| *allow)
    }
}

/// Codes in upper case, and what should have been encoded as its code.
fn normal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_code = 0;
    for byte in text.bytes() {
        if byte.is_ascii_graphic() {
            out.push(if in_code > 0 { char::from(byte.to_ascii_uppercase()) } else { char::from(byte) });
            in_code = if byte == b'%' { 2 } else { usize::max(in_code, 1) - 1 };
        } else {
            out.push_str(percent_encoding::percent_encode_byte(byte));
            in_code = 0;
        }
    }
    out
}

/// Whether a pattern matches the beginning of an address, or all of it if it ends in `$`; `*` stands for anything. Goes
/// back to the last `*` only, so that no pattern is slow.
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
