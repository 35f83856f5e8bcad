//! Reads an HTML page as a browser does, and reports the addresses that it fetches and its inline scripts and styles.
//!
//! A policy identifies an inline script by the SHA-256 of its text as the HTML parser produces it: decoded, with line
//! ends normalised to `\n` and NUL replaced. If that text is not certain, [`ContentFact::Unsure`] is reported:
//! character references in a script in SVG, character names that are not known here, a page that is not read to its
//! end.

use std::cell::RefCell;

use lol_html::html_content::{Element, TextChunk, TextType};
use lol_html::{HtmlRewriter, MemorySettings, Settings, element, text};

use docwharf_base::model::digest::Digest;

use super::address::{AddressTarget, classify_address, is_no_op_javascript};
use super::character_references::resolve_references;
use super::content_fact::{ContentFact, ResourceKind};
use super::inline::{NormalizedHasher, exact_attribute_text, is_executable};
use super::{css, json_scripts, script};

/// The memory limit for reading one page, in bytes.
pub const MAX_PAGE_MEMORY_BYTES: usize = 16 << 20;
/// The length in bytes at which the text of an inline script or style is no longer collected to search it for
/// addresses. The digest covers all of it.
const MAX_INLINE_TEXT_BYTES: usize = 1 << 20;
/// The number of levels to which nested pages (`srcdoc`, `noscript`) are read.
const MAX_NESTING_DEPTH: u32 = 3;
const SVG_NAMESPACE: &str = "http://www.w3.org/2000/svg";

/// Passes a page in pieces to a callback until that returns `false`.
pub(super) type PageFeed<'a> = dyn FnMut(&mut dyn FnMut(&[u8]) -> bool) + 'a;

/// Reads a page and reports each fact in it to `tell`, in order.
pub(super) fn read_page(feed: &mut PageFeed<'_>, tell: &mut dyn FnMut(ContentFact<'_>)) {
    nested(feed, MAX_NESTING_DEPTH, tell);
}

fn nested(feed: &mut PageFeed<'_>, depth: u32, tell: &mut dyn FnMut(ContentFact<'_>)) {
    let reader = RefCell::new(PageReader { tell, open: None, last: OpenElementKind::Nothing, media: false, depth });
    let mut is_whole = true;
    {
        let settings = Settings::new()
            .append_element_content_handler(element!("*", |element| {
                reader.borrow_mut().element(element);
                Ok(())
            }))
            .append_element_content_handler(text!("script, style, noscript", |chunk| {
                reader.borrow_mut().text(chunk);
                Ok(())
            }))
            .with_memory_settings(MemorySettings::new().with_max_allowed_memory_usage(MAX_PAGE_MEMORY_BYTES))
            .with_strict(false);
        let mut rewriter = HtmlRewriter::new(settings, |_: &[u8]| {});
        let mut is_first = true;
        feed(&mut |piece| {
            // A byte order mark overrides the charset of the response, and this reader does not decode UTF-16.
            if std::mem::take(&mut is_first) && (piece.starts_with(b"\xff\xfe") || piece.starts_with(b"\xfe\xff")) {
                is_whole = false;
            }
            is_whole = is_whole && rewriter.write(piece).is_ok();
            is_whole
        });
        // Elements that are open at the end are closed by it. A browser does not run a script without an end tag.
        is_whole = is_whole && rewriter.end().is_ok();
    }
    let reader = reader.into_inner();
    if !is_whole {
        (reader.tell)(ContentFact::Unsure);
    }
}

/// The state of reading one page or nested page.
pub(super) struct PageReader<'t> {
    pub(super) tell: &'t mut dyn FnMut(ContentFact<'_>),
    /// The element whose text is being collected.
    open: Option<OpenElement>,
    /// The kind of the last such element. Behind a comment there may be more of its text.
    last: OpenElementKind,
    /// Whether the last element with `source` children was `audio` or `video`, and not `picture`.
    pub(super) media: bool,
    depth: u32,
}

/// An element whose text is collected.
struct OpenElement {
    what: OpenElementKind,
    digest: NormalizedHasher,
    text: String,
    is_unsure: bool,
}

/// The kind of an element whose text is collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenElementKind {
    /// An inline script that runs.
    Script,
    /// An import map or speculation rules. A policy allows both by hash, as it does scripts.
    Map(json_scripts::JsonScriptKind),
    /// A script from a file, or a data block in a `script` element. Its text has no effect.
    Nothing,
    Style,
    NoScript,
}

impl PageReader<'_> {
    fn element(&mut self, element: &Element<'_, '_>) {
        let tag = element.tag_name();
        match tag.as_str() {
            "script" => self.script(element),
            "style" => self.begin(OpenElementKind::Style),
            "noscript" => self.begin(OpenElementKind::NoScript),
            "picture" => self.media = false,
            "video" | "audio" => self.media = true,
            _ => {}
        }
        if element.attributes().is_empty() {
            return;
        }
        for attribute in element.attributes() {
            let name = attribute.name();
            let is_style = name == "style";
            if is_style || name.starts_with("on") {
                self.attribute(is_style, &attribute.value());
            }
        }
        self.addresses(&tag, element);
    }

    fn begin(&mut self, what: OpenElementKind) {
        self.last = what;
        self.open =
            Some(OpenElement { what, digest: NormalizedHasher::default(), text: String::new(), is_unsure: false });
    }

    fn script(&mut self, element: &Element<'_, '_>) {
        // The source of a script is `src` in HTML and `href` in SVG.
        let names: &[&str] = if element.namespace_uri() == SVG_NAMESPACE { &["href", "xlink:href"] } else { &["src"] };
        let source = names.iter().find_map(|name| element.get_attribute(name));
        let says = |name: &str| element.get_attribute(name).map(|text| resolve_references(&text).0.into_owned());
        let kind = says("type");
        let runs = is_executable(kind.as_deref(), says("language").as_deref());
        if let Some(source) = source {
            if runs {
                (self.tell)(ContentFact::Runs);
            }
            self.address(ResourceKind::Script, &source);
            self.begin(OpenElementKind::Nothing);
        } else {
            let map = kind.as_deref().and_then(json_scripts::JsonScriptKind::of).map(OpenElementKind::Map);
            self.begin(if runs { map.unwrap_or(OpenElementKind::Script) } else { OpenElementKind::Nothing });
        }
    }

    fn attribute(&mut self, is_style: bool, value: &str) {
        let Some(text) = exact_attribute_text(value) else {
            (self.tell)(if is_style { ContentFact::UnsureStyle } else { ContentFact::Unsure });
            // The addresses in it can still be reported.
            self.code(is_style, &resolve_references(value).0);
            return;
        };
        let digest = Digest::of(text.as_bytes());
        (self.tell)(if is_style { ContentFact::StyleAttribute(digest) } else { ContentFact::Handler(digest) });
        self.code(is_style, &text);
    }

    fn code(&mut self, is_style: bool, text: &str) {
        if is_style {
            css::read_css(text, self.tell);
        } else {
            script::read_script(text, self.tell);
        }
    }

    /// Reports an address from an attribute, in which character references are still to be resolved.
    pub(super) fn address(&mut self, kind: ResourceKind, written: &str) {
        // An unknown character name cannot occur in an origin, so it does not matter here.
        self.report_address(kind, &resolve_references(written).0);
    }

    /// Reports an address, or the code in a `javascript:` address.
    pub(super) fn report_address(&mut self, kind: ResourceKind, text: &str) {
        if classify_address(text) == AddressTarget::JavaScript {
            if !is_no_op_javascript(text) {
                (self.tell)(ContentFact::CodeInAddress);
            }
        } else if !text.trim().is_empty() {
            (self.tell)(ContentFact::Address(kind, text));
        }
    }

    /// Reads a nested page in a `srcdoc` attribute. It has the policy of the outer page, but may have a base address of
    /// its own.
    pub(super) fn document(&mut self, written: &str) {
        let text = exact_attribute_text(written);
        if text.is_none() || self.depth == 0 {
            (self.tell)(ContentFact::Unsure);
        }
        if self.depth > 0 {
            (self.tell)(ContentFact::Enters);
            self.fragment(&text.unwrap_or_else(|| resolve_references(written).0.into_owned()));
            (self.tell)(ContentFact::Leaves);
        }
    }

    fn fragment(&mut self, text: &str) {
        let mut feed = |take: &mut dyn FnMut(&[u8]) -> bool| {
            take(text.as_bytes());
        };
        nested(&mut feed, self.depth - 1, self.tell);
    }

    fn text(&mut self, chunk: &TextChunk<'_>) {
        let text = chunk.as_str();
        // In SVG the text of these elements may contain character references and may be in several parts.
        let is_data = matches!(chunk.text_type(), TextType::Data | TextType::CDataSection);
        let Some(open) = &mut self.open else {
            if is_data && !text.is_empty() {
                match self.last {
                    OpenElementKind::Script | OpenElementKind::Map(_) => (self.tell)(ContentFact::Unsure),
                    OpenElementKind::Style => (self.tell)(ContentFact::UnsureStyle),
                    OpenElementKind::Nothing | OpenElementKind::NoScript => {}
                }
            }
            return;
        };
        open.is_unsure |= is_data && text.contains('&') || chunk.text_type() == TextType::CDataSection;
        if matches!(open.what, OpenElementKind::Script | OpenElementKind::Map(_) | OpenElementKind::Style) {
            open.digest.update(text);
        }
        if open.what != OpenElementKind::Nothing && open.text.len() < MAX_INLINE_TEXT_BYTES {
            open.text.push_str(text);
        }
        if chunk.last_in_text_node()
            && let Some(open) = self.open.take()
        {
            self.close(open);
        }
    }

    fn close(&mut self, mut open: OpenElement) {
        // An empty element has no effect.
        if open.text.is_empty() {
            return;
        }
        match open.what {
            OpenElementKind::Script => {
                (self.tell)(if open.is_unsure { ContentFact::Unsure } else { ContentFact::Script(open.digest.take()) });
                script::read_script(&open.text, self.tell);
            }
            OpenElementKind::Map(map) => {
                (self.tell)(if open.is_unsure { ContentFact::Unsure } else { ContentFact::Script(open.digest.take()) });
                json_scripts::read_json_script(map, &open.text, self.tell);
            }
            OpenElementKind::Style => {
                (self.tell)(if open.is_unsure {
                    ContentFact::UnsureStyle
                } else {
                    ContentFact::Style(open.digest.take())
                });
                css::read_css(&open.text, self.tell);
            }
            OpenElementKind::NoScript if self.depth > 0 => self.fragment(&open.text),
            OpenElementKind::NoScript | OpenElementKind::Nothing => {}
        }
    }
}

#[cfg(test)]
mod tests;
