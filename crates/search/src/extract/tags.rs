//! Reads the start and end tags in a stretch of HTML that contains no text and no comments.

use std::borrow::Cow;

use docwharf_site::external::character_references::resolve_references;
use memchr::memchr;

use super::element_name::{ElementName, lower_case};

/// The length of the longest attribute name that is known here, in bytes.
const MAX_KNOWN_ATTRIBUTE_BYTES: usize = 24;
/// The maximum length of an id, in bytes. A longer one is not used as an anchor.
const MAX_ID_BYTES: usize = 1024;

/// A part of a page, in document order.
#[derive(Debug)]
pub(crate) enum PageEvent<'a> {
    Start(StartTag<'a>),
    End(ElementName),
    /// A text or a piece of one, with character references decoded.
    Text(&'a str),
}

/// A start tag with the attributes that extraction uses, as they are written.
#[derive(Debug)]
pub(crate) struct StartTag<'a> {
    pub(crate) name: ElementName,
    pub(crate) is_self_closing: bool,
    /// The attributes of which only the presence counts.
    present: PresentAttributes,
    /// The name, the attributes and the end of the tag, as they are written.
    markup: &'a [u8],
    id: Option<&'a [u8]>,
    class: Option<&'a [u8]>,
    role: Option<&'a [u8]>,
    aria_hidden: Option<&'a [u8]>,
    style: Option<&'a [u8]>,
    href: Option<&'a [u8]>,
    lang: Option<&'a [u8]>,
    rel: Option<&'a [u8]>,
    /// The attribute `name`.
    name_value: Option<&'a [u8]>,
    http_equiv: Option<&'a [u8]>,
    content: Option<&'a [u8]>,
}

/// A set of attributes that are present.
#[derive(Debug, Clone, Copy, Default)]
struct PresentAttributes(u8);

impl PresentAttributes {
    const HIDDEN: u8 = 1;
    const PAGEFIND_BODY: u8 = 2;
    const PAGEFIND_IGNORE: u8 = 4;

    fn add(&mut self, attribute: u8) {
        self.0 |= attribute;
    }

    fn contains(self, attribute: u8) -> bool {
        self.0 & attribute != 0
    }
}

impl<'a> StartTag<'a> {
    fn new(name: ElementName, markup: &'a [u8]) -> Self {
        StartTag {
            name,
            is_self_closing: false,
            present: PresentAttributes::default(),
            markup,
            id: None,
            class: None,
            role: None,
            aria_hidden: None,
            style: None,
            href: None,
            lang: None,
            rel: None,
            name_value: None,
            http_equiv: None,
            content: None,
        }
    }

    /// Stores the value of an attribute. Of several with the same name, the first counts.
    fn add_attribute(&mut self, name: &[u8], value: &'a [u8]) {
        let mut buffer = [0; MAX_KNOWN_ATTRIBUTE_BYTES];
        let Some(name) = lower_case(name, &mut buffer) else { return };
        let attribute = match name {
            b"id" => &mut self.id,
            b"class" => &mut self.class,
            b"role" => &mut self.role,
            b"aria-hidden" => &mut self.aria_hidden,
            b"hidden" => return self.present.add(PresentAttributes::HIDDEN),
            b"style" => &mut self.style,
            b"data-pagefind-body" => return self.present.add(PresentAttributes::PAGEFIND_BODY),
            b"data-pagefind-ignore" => return self.present.add(PresentAttributes::PAGEFIND_IGNORE),
            b"href" => &mut self.href,
            b"lang" => &mut self.lang,
            b"rel" => &mut self.rel,
            b"name" => &mut self.name_value,
            b"http-equiv" => &mut self.http_equiv,
            b"content" => &mut self.content,
            _ => return,
        };
        attribute.get_or_insert(value);
    }

    /// Whether the element has this name, which is in lower case. A name group holds several.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        let len = self.markup.iter().position(|&byte| is_name_end(byte)).unwrap_or(self.markup.len());
        self.markup[..len].eq_ignore_ascii_case(name.as_bytes())
    }

    /// Reads the tag again for an attribute that is needed seldom. `name` is in lower case.
    pub(crate) fn attribute(&self, name: &str) -> Option<Cow<'a, str>> {
        let reader = &mut TagReader { rest: self.markup };
        reader.take_until(is_name_end)?;
        loop {
            reader.take_until(|byte| !is_space(byte))?;
            match *reader.rest.first()? {
                b'>' => return None,
                b'/' => {
                    reader.take(1);
                }
                _ => {
                    let (written, value) = reader.read_attribute()?;
                    if written.eq_ignore_ascii_case(name.as_bytes()) {
                        return Some(decode(value));
                    }
                }
            }
        }
    }

    /// The words of `class`, as they are written but for bytes that are not UTF-8.
    pub(crate) fn classes(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let class = self.class.unwrap_or_default();
        class.split(u8::is_ascii_whitespace).filter_map(|word| std::str::from_utf8(word).ok())
    }

    /// The fragment identifier that leads to the element.
    pub(crate) fn anchor(&self) -> Option<String> {
        let is_anchor = |value: &&[u8]| !value.is_empty() && value.len() <= MAX_ID_BYTES;
        let name = self.name_value.filter(|_| self.name == ElementName::A);
        self.id.filter(is_anchor).or(name.filter(is_anchor)).map(|value| decode(value).into_owned())
    }

    pub(crate) fn has_class(&self, class: &str) -> bool {
        self.class.is_some_and(|value| has_word(value, |word| word == class.as_bytes()))
    }

    pub(crate) fn has_role(&self, role: &str) -> bool {
        self.role.is_some_and(|value| has_word(value, |word| word.eq_ignore_ascii_case(role.as_bytes())))
    }

    /// Whether `rel` contains a word.
    pub(crate) fn has_rel(&self, rel: &str) -> bool {
        self.rel.is_some_and(|value| has_word(value, |word| word.eq_ignore_ascii_case(rel.as_bytes())))
    }

    pub(crate) fn is_aria_hidden(&self) -> bool {
        self.aria_hidden.is_some_and(|value| value.trim_ascii().eq_ignore_ascii_case(b"true"))
    }

    pub(crate) fn has_hidden(&self) -> bool {
        self.present.contains(PresentAttributes::HIDDEN)
    }

    pub(crate) fn style(&self) -> Option<Cow<'a, str>> {
        self.style.map(decode)
    }

    pub(crate) fn has_pagefind_body(&self) -> bool {
        self.present.contains(PresentAttributes::PAGEFIND_BODY)
    }

    pub(crate) fn has_pagefind_ignore(&self) -> bool {
        self.present.contains(PresentAttributes::PAGEFIND_IGNORE)
    }

    pub(crate) fn href(&self) -> Option<Cow<'a, str>> {
        self.href.map(decode)
    }

    pub(crate) fn lang(&self) -> Option<Cow<'a, str>> {
        self.lang.map(decode)
    }

    /// The value of the attribute `name`.
    pub(crate) fn name_value(&self) -> Option<Cow<'a, str>> {
        self.name_value.map(decode)
    }

    pub(crate) fn http_equiv(&self) -> Option<Cow<'a, str>> {
        self.http_equiv.map(decode)
    }

    pub(crate) fn content(&self) -> Option<Cow<'a, str>> {
        self.content.map(decode)
    }
}

/// Whether a list of words contains one for which `is_match` is true.
fn has_word(value: &[u8], is_match: impl Fn(&[u8]) -> bool) -> bool {
    value.split(u8::is_ascii_whitespace).any(is_match)
}

/// Decodes the value of an attribute.
fn decode(value: &[u8]) -> Cow<'_, str> {
    match String::from_utf8_lossy(value) {
        Cow::Borrowed(text) => resolve_references(text).0,
        Cow::Owned(text) => Cow::Owned(resolve_references(&text).0.into_owned()),
    }
}

/// Iterates over the tags in a stretch of HTML between two texts. It has no text, because the HTML parser has found
/// where each text begins; there a `<` may stand for itself. A document type and the marks of a CDATA section are
/// skipped.
pub(crate) struct TagReader<'a> {
    rest: &'a [u8],
}

impl<'a> TagReader<'a> {
    pub(crate) fn new(markup: &'a [u8]) -> Self {
        TagReader { rest: markup }
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        taken
    }

    /// Takes the bytes before the first one for which `is_end` is true; `None` if there is none.
    fn take_until(&mut self, is_end: impl Fn(u8) -> bool) -> Option<&'a [u8]> {
        let len = self.rest.iter().position(|&byte| is_end(byte))?;
        Some(self.take(len))
    }

    /// Reads a tag after `<` or `</`. Returns `None` for a tag that the page does not finish; the parser ignores it.
    fn read_tag(&mut self, is_end_tag: bool) -> Option<PageEvent<'a>> {
        let markup = self.rest;
        let name = ElementName::parse(self.take_until(is_name_end)?);
        let mut tag = StartTag::new(name, markup);
        loop {
            self.take_until(|byte| !is_space(byte))?;
            match *self.rest.first()? {
                b'>' => {
                    self.take(1);
                    return Some(if is_end_tag { PageEvent::End(name) } else { PageEvent::Start(tag) });
                }
                b'/' => {
                    self.take(1);
                    tag.is_self_closing = self.rest.first() == Some(&b'>');
                }
                _ => {
                    let (name, value) = self.read_attribute()?;
                    tag.add_attribute(name, value);
                }
            }
        }
    }

    /// Reads the name and the value of an attribute. `rest` is not empty.
    fn read_attribute(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        const NO_VALUE: &[u8] = b"";
        let is_name_end = |byte: &u8| is_space(*byte) || matches!(byte, b'/' | b'>' | b'=');
        // A `=` at the start belongs to the name.
        let len = 1 + self.rest.get(1..)?.iter().position(is_name_end)?;
        let name = self.take(len);
        self.take_until(|byte| !is_space(byte))?;
        if self.rest.first() != Some(&b'=') {
            return Some((name, NO_VALUE));
        }
        self.take(1);
        self.take_until(|byte| !is_space(byte))?;
        match *self.rest.first()? {
            quote @ (b'"' | b'\'') => {
                self.take(1);
                let value = self.take_until(|byte| byte == quote)?;
                self.take(1);
                Some((name, value))
            }
            b'>' => Some((name, NO_VALUE)),
            _ => Some((name, self.take_until(|byte| is_space(byte) || byte == b'>')?)),
        }
    }
}

impl<'a> Iterator for TagReader<'a> {
    type Item = PageEvent<'a>;

    fn next(&mut self) -> Option<PageEvent<'a>> {
        loop {
            let start = memchr(b'<', self.rest)?;
            self.take(start + 1);
            let is_end_tag = self.rest.first() == Some(&b'/');
            if is_end_tag {
                self.take(1);
            }
            if self.rest.first().is_some_and(u8::is_ascii_alphabetic) {
                return self.read_tag(is_end_tag);
            }
            // A document type, the start of a CDATA section, or `</>`.
            let end = memchr(b'>', self.rest).map_or(self.rest.len(), |end| end + 1);
            self.take(end);
        }
    }
}

/// Whether a byte ends the name of an element.
fn is_name_end(byte: u8) -> bool {
    is_space(byte) || matches!(byte, b'/' | b'>')
}

/// Whether a byte is white space in a tag.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | b'\x0c')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Describes the tags of a stretch of HTML: the name with the attributes `id`, `class` and `href`.
    fn describe(markup: &str) -> Vec<String> {
        let value = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        TagReader::new(markup.as_bytes())
            .map(|event| match event {
                PageEvent::Start(tag) => {
                    let slash = if tag.is_self_closing { "/" } else { "" };
                    let attributes = [("id", tag.id), ("class", tag.class), ("href", tag.href)];
                    let attributes = attributes.into_iter().filter_map(|(name, bytes)| Some((name, value(bytes)?)));
                    let attributes: Vec<String> =
                        attributes.map(|(name, value)| format!(" {name}={value:?}")).collect();
                    let attributes = attributes.concat();
                    format!("{:?}{attributes}{slash}", tag.name)
                }
                PageEvent::End(name) => format!("/{name:?}"),
                PageEvent::Text(_) => unreachable!("there is no text between tags"),
            })
            .collect()
    }

    #[test]
    fn tags_are_read_as_the_html_tokenizer_reads_them() {
        for (markup, expected) in [
            ("<p></p>", &["P", "/P"][..]),
            ("<DIV ID=a CLASS='b c'>", &["Div id=\"a\" class=\"b c\""][..]),
            ("<div id = \"a>b\" href='x\"y'>", &["Div id=\"a>b\" href=\"x\\\"y\""][..]),
            ("<div id=a/><p/>", &["Div id=\"a/\"", "P/"][..]),
            ("<div id=a / class=b>", &["Div id=\"a\" class=\"b\""][..]),
            ("<div id/class>", &["Div id=\"\" class=\"\""][..]),
            ("<div id=>", &["Div id=\"\""][..]),
            ("<div =id=x id=a id=b>", &["Div id=\"a\""][..]),
            ("<div\nid\t=\r\na\x0c>", &["Div id=\"a\""][..]),
            ("<div id='a'class='b'>", &["Div id=\"a\" class=\"b\""][..]),
            ("</div id='>'><p>", &["/Div", "P"][..]),
            ("<!DOCTYPE html PUBLIC \"-//X//<p\"><p>", &["P"][..]),
            ("</><p>", &["P"][..]),
            ("<![CDATA[]]><p>", &["P"][..]),
            ("<p><div id='", &["P"][..]),
            ("<p><div", &["P"][..]),
            ("<p></", &["P"][..]),
            ("<p><", &["P"][..]),
            ("", &[][..]),
        ] {
            assert_eq!(describe(markup), expected, "{markup}");
        }
    }

    #[test]
    fn anchor_is_the_decoded_id_or_the_name_of_a_link() {
        for (markup, expected) in [
            ("<h2 id='a&amp;b'>", Some("a&b")),
            ("<h2 name=a>", None),
            ("<a name=a>", Some("a")),
            ("<a name=a id=b>", Some("b")),
            ("<a name=a id=''>", Some("a")),
            ("<p id=größe>", Some("größe")),
            ("<p>", None),
        ] {
            let Some(PageEvent::Start(tag)) = TagReader::new(markup.as_bytes()).next() else { panic!("{markup}") };
            assert_eq!(tag.anchor().as_deref(), expected, "{markup}");
        }
        let long = format!("<p id={}>", "x".repeat(MAX_ID_BYTES + 1));
        let Some(PageEvent::Start(tag)) = TagReader::new(long.as_bytes()).next() else { panic!("a start tag") };
        assert_eq!(tag.anchor(), None);
    }

    #[test]
    fn attributes_that_are_needed_seldom_are_found_in_the_tag() {
        let markup = b"<ol / START='3' start=4 data-x>text start=5";
        let Some(PageEvent::Start(tag)) = TagReader::new(markup).next() else { panic!("a start tag") };
        assert!(tag.is_named("ol") && !tag.is_named("ul"));
        assert_eq!(tag.attribute("start").as_deref(), Some("3"));
        assert_eq!(tag.attribute("data-x").as_deref(), Some(""));
        assert_eq!(tag.attribute("text"), None);
    }

    #[test]
    fn attribute_words_are_compared_whole() {
        let markup = b"<p class='a sr-only' role=' Navigation' aria-hidden=TRUE rel='x canonical' DATA-PAGEFIND-BODY>";
        let Some(PageEvent::Start(tag)) = TagReader::new(markup).next() else { panic!("a start tag") };
        assert!(tag.has_class("sr-only") && !tag.has_class("sr") && !tag.has_class("SR-ONLY"));
        assert!(tag.has_role("navigation") && tag.is_aria_hidden() && tag.has_rel("canonical"));
        assert!(tag.has_pagefind_body() && !tag.has_pagefind_ignore());
    }
}
