//! A scanner of HTML for the indexes that documentation brings: tags, attributes and texts, without a tree. The
//! generators of the corpora write names of elements and attributes in lower case.

/// The longest character reference that is decoded, in bytes.
const MAX_REFERENCE_BYTES: usize = 10;

/// A part of a page.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HtmlToken<'a> {
    /// A start tag, also of an element without an end tag.
    Start(StartTag<'a>),
    /// An end tag, by the name of its element.
    End(&'a str),
    /// A text, with its character references.
    Text(&'a str),
}

/// A start tag.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StartTag<'a> {
    pub name: &'a str,
    attributes: &'a str,
}

impl StartTag<'_> {
    /// The value of an attribute, with its character references decoded.
    pub(crate) fn attribute(&self, name: &str) -> Option<String> {
        let mut rest = self.attributes;
        while let Some((before, after)) = rest.split_once('=') {
            let key = before.trim_end().rsplit(|c: char| c.is_ascii_whitespace()).next().unwrap_or_default();
            let after = after.trim_start();
            let (value, remainder) = match after.chars().next() {
                Some(quote @ ('"' | '\'')) => after[1..].split_once(quote).unwrap_or((&after[1..], "")),
                _ => after.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((after, "")),
            };
            if key == name {
                return Some(decode_references(value));
            }
            rest = remainder;
        }
        None
    }
}

/// Returns the tokens of a page, each with its offset in bytes. Comments, declarations, scripts and style sheets are
/// left out.
#[derive(Debug)]
pub(crate) struct HtmlScanner<'a> {
    html: &'a str,
    position: usize,
}

impl<'a> HtmlScanner<'a> {
    pub(crate) fn new(html: &'a str) -> Self {
        Self { html, position: 0 }
    }

    /// Moves behind the next occurrence of `end`, or to the end of the page.
    fn skip_past(&mut self, end: &str) {
        let (html, position) = (self.html, self.position);
        self.position = html[position..].find(end).map_or(html.len(), |index| position + index + end.len());
    }

    fn text(&mut self, start: usize, length: usize) -> (usize, HtmlToken<'a>) {
        let html = self.html;
        self.position = start + length;
        (start, HtmlToken::Text(&html[start..start + length]))
    }
}

impl<'a> Iterator for HtmlScanner<'a> {
    type Item = (usize, HtmlToken<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (html, start) = (self.html, self.position);
            let rest = &html[start..];
            match rest.as_bytes() {
                [] => return None,
                [b'<', b'!', b'-', b'-', ..] => self.skip_past("-->"),
                [b'<', b'!' | b'?', ..] => self.skip_past(">"),
                [b'<', b'/', ..] => {
                    self.skip_past(">");
                    let name = html[start + 2..self.position].trim_end_matches('>').trim();
                    return Some((start, HtmlToken::End(name)));
                }
                [b'<', letter, ..] if letter.is_ascii_alphabetic() => {
                    let length = tag_length(rest);
                    self.position = start + length;
                    let tag = parse_start_tag(&rest[1..length]);
                    match tag.name {
                        "script" => self.skip_past("</script>"),
                        "style" => self.skip_past("</style>"),
                        _ => return Some((start, HtmlToken::Start(tag))),
                    }
                }
                // A `<` that begins no tag.
                [b'<', ..] => return Some(self.text(start, 1)),
                _ => return Some(self.text(start, rest.find('<').unwrap_or(rest.len()))),
            }
        }
    }
}

/// The length of a start tag up to its `>`, which may also be in a quoted value.
fn tag_length(tag: &str) -> usize {
    let mut quote = None;
    for (index, byte) in tag.bytes().enumerate() {
        match quote {
            None if byte == b'>' => return index + 1,
            None if matches!(byte, b'"' | b'\'') => quote = Some(byte),
            Some(open) if open == byte => quote = None,
            _ => {}
        }
    }
    tag.len()
}

fn parse_start_tag(tag: &str) -> StartTag<'_> {
    let tag = tag.trim_end_matches('>').trim_end_matches('/');
    let end = tag.find(|c: char| c.is_ascii_whitespace() || c == '/').unwrap_or(tag.len());
    StartTag { name: &tag[..end], attributes: &tag[end..] }
}

/// Decodes numeric character references, and the named ones of the corpora.
pub(crate) fn decode_references(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('&') {
        decoded.push_str(&rest[..start]);
        rest = &rest[start + 1..];
        let end = rest.find(';').filter(|end| *end <= MAX_REFERENCE_BYTES);
        match end.and_then(|end| Some((decode_reference(&rest[..end])?, end))) {
            Some((c, end)) => {
                decoded.push(c);
                rest = &rest[end + 1..];
            }
            None => decoded.push('&'),
        }
    }
    decoded.push_str(rest);
    decoded
}

fn decode_reference(name: &str) -> Option<char> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16),
            None => number.parse(),
        };
        return char::from_u32(code.ok()?);
    }
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        "ndash" => '–',
        "mdash" => '—',
        "hellip" => '…',
        "para" => '¶',
        _ => return None,
    })
}

/// Decodes a text and collapses its white space.
pub(crate) fn clean_text(text: &str) -> String {
    decode_references(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A link of a page with its text.
#[derive(Debug)]
pub(crate) struct Link {
    pub href: String,
    pub text: String,
}

/// Returns all links of a page.
pub(crate) fn links(html: &str) -> Vec<Link> {
    let mut links = Vec::new();
    let (mut href, mut text) = (None, String::new());
    for (_, token) in HtmlScanner::new(html) {
        match token {
            HtmlToken::Start(tag) if tag.name == "a" => {
                href = tag.attribute("href");
                text.clear();
            }
            HtmlToken::End("a") => {
                if let Some(href) = href.take() {
                    links.push(Link { href, text: clean_text(&text) });
                }
            }
            HtmlToken::Text(part) if href.is_some() => text.push_str(part),
            _ => {}
        }
    }
    links
}
