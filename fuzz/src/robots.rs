//! robots.txt against RFC 9309, read line by line: the groups of our name or else those of everybody, of their rules the
//! longest that matches, by a matcher that keeps every place at which it might be.

use docwharf::origin::source::crawl::address::{LinkTarget, resolve_link};
use docwharf::origin::source::crawl::robots::Robots;
use url::Url;

use super::recipe::Recipe;

/// So much is read at least (RFC 9309, 2.5), in bytes.
const AT_LEAST: usize = 500 << 10;

/// Addresses as links have them.
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
/// Rules with codes of characters that need none.
const CODED: [&str; 4] = ["/%61", "/%7Ea", "/%69ndex.html", "/%61/*.%70df$"];

/// A group: whom it is for, and what it says.
#[derive(Default)]
struct Group {
    names: Vec<String>,
    rules: Vec<(bool, Vec<u8>)>,
}

/// What a robots.txt says, by its lines.
struct Model {
    groups: Vec<Group>,
    sitemaps: Vec<String>,
}

impl Model {
    fn read(body: &[u8]) -> Model {
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
                    groups.last_mut().expect("there is one").names.push(value.to_owned());
                }
                name @ ("allow" | "disallow") => {
                    has_rules = true;
                    if let Some(group) = groups.last_mut().filter(|_| !value.is_empty()) {
                        group.rules.push((name == "allow", octets(value)));
                    }
                }
                "sitemap" => sitemaps.push(value.to_owned()),
                _ => {}
            }
        }
        Model { groups, sitemaps }
    }

    /// Whether this address may be asked for (RFC 9309, 2.2).
    fn allows(&self, address: &str) -> bool {
        let is_ours = |name: &str| {
            let product = name.split(['/', ' ']).next().unwrap_or_default();
            product.eq_ignore_ascii_case("docwharf")
        };
        let ours: Vec<&Group> = self.of(is_ours);
        let groups = if ours.is_empty() { self.of(|name| name == "*") } else { ours };
        let address = octets(address);
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

    fn of(&self, is_meant: impl Fn(&str) -> bool) -> Vec<&Group> {
        self.groups.iter().filter(|group| group.names.iter().any(|name| is_meant(name))).collect()
    }
}

/// What is compared (RFC 9309, 2.2.2): codes of unreserved characters as these, others with digits in upper case, and codes in
/// the place of what must be encoded.
fn octets(text: &str) -> Vec<u8> {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        let digit = |at: usize| bytes.get(at).and_then(|&b| char::from(b).to_digit(16));
        let (byte, len) = match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => ((high * 16 + low) as u8, 3),
            (byte, ..) => (byte, 1),
        };
        let is_unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if is_unreserved || (len == 1 && byte.is_ascii_graphic()) {
            out.push(byte);
        } else {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
        at += len;
    }
    out
}

/// Whether a rule matches the beginning of an address, or all of it where it ends with `$`.
fn matches(rule: &[u8], address: &[u8]) -> bool {
    let (rule, is_whole) = rule.strip_suffix(b"$").map_or((rule, false), |rule| (rule, true));
    // Where in the address what has been read of the rule may end.
    let mut may_end = vec![false; address.len() + 1];
    may_end[0] = true;
    for &byte in rule {
        let mut next = vec![false; address.len() + 1];
        for at in (0..=address.len()).filter(|&at| may_end[at]) {
            if byte == b'*' {
                next[at..].fill(true);
            } else if address.get(at) == Some(&byte) {
                next[at + 1] = true;
            }
        }
        may_end = next;
    }
    if is_whole { may_end[address.len()] } else { may_end.contains(&true) }
}

/// Whether every percent sign begins a code: what others mean nobody says.
fn is_coded(text: &str) -> bool {
    let is_digit = |b: Option<&u8>| b.is_some_and(u8::is_ascii_hexdigit);
    let mut codes = text.split('%').skip(1).map(str::as_bytes);
    codes.all(|code| is_digit(code.first()) && is_digit(code.get(1)))
}

fn compare(body: &[u8], addresses: &[&str]) {
    let (robots, model) = (Robots::parse(body), Model::read(body));
    let shown = String::from_utf8_lossy(body);
    assert_eq!(robots.sitemaps, model.sitemaps, "{shown:?}");
    let start = Url::parse("http://site.example/").expect("a URL");
    for address in addresses {
        // As it is asked for.
        let LinkTarget::Here { address, .. } = resolve_link(&start, &start, address) else { continue };
        let address = address.to_string();
        assert_eq!(robots.allows(&address), model.allows(&address), "{address} by {shown:?}");
    }
}

/// A robots.txt by a recipe.
fn described(recipe: &mut Recipe<'_>) -> Vec<u8> {
    let end = recipe.one_of(&["\n", "\n", "\r\n", "\r"]);
    let mut text = recipe.one_of(&["", "", "", "\u{feff}", "# who may do what\n"]).to_owned();
    for _ in 0..recipe.below(24) {
        let (field, value) = match recipe.below(8) {
            0 | 1 => {
                let names = ["*", "*", "docwharf", "DocWharf/2.0", "docwharf bot", "docwharfbot", "other", "", "*x"];
                ("User-agent", recipe.one_of(&names))
            }
            2 | 3 => ("Disallow", recipe.one_of(&RULES)),
            4 | 5 => ("Allow", recipe.one_of(&RULES)),
            6 => (
                recipe.one_of(&["Allow", "Disallow"]),
                recipe.one_of(&["", "", CODED[0], CODED[1], CODED[2], CODED[3]]),
            ),
            _ => recipe.one_of(&[("Sitemap", "http://site.example/s.xml"), ("Crawl-delay", "3"), ("", ""), ("", "x")]),
        };
        let field = match recipe.below(3) {
            0 => field.to_owned(),
            1 => field.to_uppercase(),
            _ => field.to_lowercase(),
        };
        let colon = recipe.one_of(&[": ", ": ", ":", " :\t", " "]);
        let behind = recipe.one_of(&["", "", "", " ", " # but why", "#"]);
        for part in [field.as_str(), colon, value, behind, end] {
            text.push_str(part);
        }
    }
    text.into_bytes()
}

/// See the head of this file: any bytes, or groups by a recipe.
pub fn robots(data: &[u8]) {
    let mut recipe = Recipe::new(data);
    let is_long = recipe.once_in(64);
    let (body, asked) = if recipe.once_in(2) {
        let most = recipe.below(40);
        let asked = format!("/{}", String::from_utf8_lossy(recipe.bytes(most)));
        (recipe.rest().to_vec(), asked)
    } else {
        (described(&mut recipe), "/".to_owned())
    };
    // In a text or in an address; a rule goes to the end of its line.
    if !is_coded(&String::from_utf8_lossy(&body)) {
        return;
    }
    let mut addresses: Vec<&str> = ADDRESSES.to_vec();
    addresses.push(&asked);
    compare(&body, &addresses);
    if is_long && body.len() < AT_LEAST / 2 {
        // What comes late counts, too.
        let comment = [b"#".repeat(AT_LEAST - body.len() - 1), b"\n".to_vec()].concat();
        compare(&[comment, body].concat(), &addresses);
    }
}
