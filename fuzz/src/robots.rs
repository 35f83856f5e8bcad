//! robots.txt compared with a simple model of RFC 9309, which reads line by line. The groups for docwharf apply, or
//! else the groups for `*`; the longest matching rule decides. The model's matcher tracks all possible match positions.

use docwharf::origin::source::crawl::address::{LinkTarget, resolve_link};
use docwharf::origin::source::crawl::robots::Robots;
use url::Url;

use super::fuzz_input::FuzzInput;

/// The size up to which a robots.txt must be read (RFC 9309, 2.5).
const MIN_READ_BYTES: usize = 500 << 10;

/// Link addresses.
const ADDRESSES: [&str; 16] = [
    "/",
    "/a",
    "/ab",
    "/a/b/c.pdf",
    "/a/b/c.pdf?d=e",
    "/A",
    "/caf\u{e9}",
    "/caf%c3%a9",
    "/%61%2Fb",
    "/a%2fb",
    "/~a",
    "/%7Ea",
    "/a$",
    "/a*",
    "/a?b&c",
    "/index.html",
];
const RULES: [&str; 24] = [
    "/",
    "/a",
    "/a$",
    "/a/b",
    "/a/*/c",
    "/*.pdf$",
    "/*.pdf",
    "*",
    "*a",
    "/*a*b*c",
    "/caf\u{e9}",
    "/caf%C3%A9",
    "/caf%c3%a9",
    "/a%2fb",
    "/a%2Fb",
    "/a%2A",
    "/a%24",
    "/a$b",
    "/a*$",
    "/a?b",
    "/index.html",
    "a",
    "/a b",
    "$",
];
// Regression: a percent-encoded unreserved character was decoded in addresses but not in the rules of robots.txt, so
// `Disallow: /%61b` did not forbid `/ab`.
/// Rules with unnecessary percent-encoding.
const ENCODED_RULES: [&str; 4] = ["/%61", "/%7Ea", "/%69ndex.html", "/%61/*.%70df$"];

/// A group: its user agents and its rules. A rule is whether it allows, and its pattern.
#[derive(Default)]
struct Group {
    user_agents: Vec<String>,
    rules: Vec<(bool, Vec<u8>)>,
}

/// The model of a robots.txt.
struct RobotsModel {
    groups: Vec<Group>,
    sitemaps: Vec<String>,
}

impl RobotsModel {
    fn parse(body: &[u8]) -> RobotsModel {
        let text = String::from_utf8_lossy(body);
        let (mut groups, mut sitemaps): (Vec<Group>, Vec<String>) = (Vec::new(), Vec::new());
        let mut has_rules = true;
        for line in text.strip_prefix('\u{feff}').unwrap_or(&text).split(['\r', '\n']) {
            let line = line.split('#').next().unwrap_or_default();
            let Some((field, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            match &field.trim().to_ascii_lowercase()[..] {
                "user-agent" => {
                    if std::mem::take(&mut has_rules) {
                        groups.push(Group::default());
                    }
                    groups.last_mut().expect("a group was added").user_agents.push(value.to_owned());
                }
                name @ ("allow" | "disallow") => {
                    has_rules = true;
                    if let Some(group) = groups.last_mut().filter(|_| !value.is_empty()) {
                        group.rules.push((name == "allow", normalize_path(value)));
                    }
                }
                "sitemap" => sitemaps.push(value.to_owned()),
                _ => {}
            }
        }
        RobotsModel { groups, sitemaps }
    }

    /// Whether the address may be requested (RFC 9309, 2.2).
    fn allows(&self, address: &str) -> bool {
        let is_docwharf = |name: &str| {
            let product = name.split(['/', ' ']).next().unwrap_or_default();
            product.eq_ignore_ascii_case("docwharf")
        };
        let own_groups: Vec<&Group> = self.groups_for(is_docwharf);
        let groups = if own_groups.is_empty() { self.groups_for(|name| name == "*") } else { own_groups };
        let address = normalize_path(address);
        let rules = groups.iter().flat_map(|group| &group.rules).filter(|(_, rule)| matches(rule, &address));
        let (mut longest, mut is_allowed) = (0, true);
        for (is_allow, rule) in rules {
            if rule.len() > longest {
                (longest, is_allowed) = (rule.len(), *is_allow);
            } else if rule.len() == longest {
                is_allowed |= *is_allow;
            }
        }
        is_allowed
    }

    fn groups_for(&self, matches_name: impl Fn(&str) -> bool) -> Vec<&Group> {
        self.groups.iter().filter(|group| group.user_agents.iter().any(|name| matches_name(name))).collect()
    }
}

/// The form of a path for comparison (RFC 9309, 2.2.2): unreserved characters are decoded, other percent-encodings have
/// upper-case digits, and all characters that must be encoded are encoded.
fn normalize_path(text: &str) -> Vec<u8> {
    let (bytes, mut output, mut at) = (text.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        let digit = |at: usize| bytes.get(at).and_then(|&b| char::from(b).to_digit(16));
        let (byte, len) = match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => ((high * 16 + low) as u8, 3),
            (byte, ..) => (byte, 1),
        };
        let is_unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if is_unreserved || (len == 1 && byte.is_ascii_graphic()) {
            output.push(byte);
        } else {
            output.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
        at += len;
    }
    output
}

/// Whether a rule matches the beginning of an address, or the complete address if the rule ends with `$`.
fn matches(rule: &[u8], address: &[u8]) -> bool {
    let (rule, is_anchored) = rule.strip_suffix(b"$").map_or((rule, false), |rule| (rule, true));
    // The positions of the address at which a match of the rule so far can end.
    let mut match_ends = vec![false; address.len() + 1];
    match_ends[0] = true;
    for &byte in rule {
        let mut next = vec![false; address.len() + 1];
        for at in (0..=address.len()).filter(|&at| match_ends[at]) {
            if byte == b'*' {
                next[at..].fill(true);
            } else if address.get(at) == Some(&byte) {
                next[at + 1] = true;
            }
        }
        match_ends = next;
    }
    if is_anchored { match_ends[address.len()] } else { match_ends.contains(&true) }
}

/// Whether each percent sign begins a percent-encoding. RFC 9309 does not define the meaning of others.
fn is_percent_encoded(text: &str) -> bool {
    let is_digit = |b: Option<&u8>| b.is_some_and(u8::is_ascii_hexdigit);
    let mut encodings = text.split('%').skip(1).map(str::as_bytes);
    encodings.all(|digits| is_digit(digits.first()) && is_digit(digits.get(1)))
}

fn compare(body: &[u8], addresses: &[&str]) {
    let (robots, model) = (Robots::parse(body), RobotsModel::parse(body));
    let text = String::from_utf8_lossy(body);
    assert_eq!(robots.sitemaps, model.sitemaps, "{text:?}");
    let start = Url::parse("http://site.example/").expect("a URL");
    for address in addresses {
        // The address as it is requested.
        let LinkTarget::SameSite { address, .. } = resolve_link(&start, &start, address) else { continue };
        let address = address.to_string();
        assert_eq!(robots.allows(&address), model.allows(&address), "{address} by {text:?}");
    }
}

/// Makes a robots.txt.
fn make_robots_txt(input: &mut FuzzInput<'_>) -> Vec<u8> {
    let line_end = input.one_of(&["\n", "\n", "\r\n", "\r"]);
    let mut text = input.one_of(&["", "", "", "\u{feff}", "# a comment\n"]).to_owned();
    for _ in 0..input.below(24) {
        let (field, value) = match input.below(8) {
            0 | 1 => {
                let names = ["*", "*", "docwharf", "DocWharf/2.0", "docwharf bot", "docwharfbot", "other", "", "*x"];
                ("User-agent", input.one_of(&names))
            }
            2 | 3 => ("Disallow", input.one_of(&RULES)),
            4 | 5 => ("Allow", input.one_of(&RULES)),
            6 => (
                input.one_of(&["Allow", "Disallow"]),
                input.one_of(&["", "", ENCODED_RULES[0], ENCODED_RULES[1], ENCODED_RULES[2], ENCODED_RULES[3]]),
            ),
            _ => input.one_of(&[("Sitemap", "http://site.example/s.xml"), ("Crawl-delay", "3"), ("", ""), ("", "x")]),
        };
        let field = match input.below(3) {
            0 => field.to_owned(),
            1 => field.to_uppercase(),
            _ => field.to_lowercase(),
        };
        let colon = input.one_of(&[": ", ": ", ":", " :\t", " "]);
        let after = input.one_of(&["", "", "", " ", " # comment", "#"]);
        for part in [field.as_str(), colon, value, after, line_end] {
            text.push_str(part);
        }
    }
    text.into_bytes()
}

/// The fuzz target (see the module documentation): any bytes, or generated groups.
pub fn robots(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    let is_long = input.once_in(64);
    let (body, extra_address) = if input.once_in(2) {
        let max_len = input.below(40);
        let extra_address = format!("/{}", String::from_utf8_lossy(input.bytes(max_len)));
        (input.rest().to_vec(), extra_address)
    } else {
        (make_robots_txt(&mut input), "/".to_owned())
    };
    // Invalid percent-encodings are not compared.
    if !is_percent_encoded(&String::from_utf8_lossy(&body)) {
        return;
    }
    let mut addresses: Vec<&str> = ADDRESSES.to_vec();
    addresses.push(&extra_address);
    compare(&body, &addresses);
    if is_long && body.len() < MIN_READ_BYTES / 2 {
        // Rules after a long comment apply, too.
        let comment = [b"#".repeat(MIN_READ_BYTES - body.len() - 1), b"\n".to_vec()].concat();
        compare(&[comment, body].concat(), &addresses);
    }
}
