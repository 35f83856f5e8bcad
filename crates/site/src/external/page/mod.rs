//! Reads an HTML page as a browser does, and reports the addresses that it fetches and its inline scripts and styles.
//!
//! A policy identifies an inline script by the SHA-256 of its text as the HTML parser produces it: decoded, with line
//! ends normalised to `\n` and NUL replaced. If that text is not certain, [`ContentFact::UncertainScript`] is reported:
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
/// The number of bytes of an inline script or style that are collected to be searched for addresses. The digest covers
/// the whole text.
const MAX_INLINE_TEXT_BYTES: usize = 1 << 20;
/// The number of levels to which nested pages (`srcdoc`, `noscript`) are read.
const MAX_NESTING_DEPTH: u32 = 3;
const SVG_NAMESPACE: &str = "http://www.w3.org/2000/svg";

/// Passes a page in pieces to a callback until the callback returns `false`.
pub(super) type PageFeed<'a> = dyn FnMut(&mut dyn FnMut(&[u8]) -> bool) + 'a;

/// Reads a page and reports each fact in it to `report`, in order.
pub(super) fn read_page(feed: &mut PageFeed<'_>, report: &mut dyn FnMut(ContentFact<'_>)) {
    read_nested(feed, MAX_NESTING_DEPTH, report);
}

fn read_nested(feed: &mut PageFeed<'_>, depth: u32, report: &mut dyn FnMut(ContentFact<'_>)) {
    let reader =
        RefCell::new(PageReader { report, open: None, last_kind: OpenElementKind::Ignored, in_media: false, depth });
    let mut is_complete = true;
    {
        let settings = Settings::new()
            .append_element_content_handler(element!("*", |element| {
                reader.borrow_mut().read_element(element);
                Ok(())
            }))
            .append_element_content_handler(text!("script, style, noscript", |chunk| {
                reader.borrow_mut().read_text(chunk);
                Ok(())
            }))
            .with_memory_settings(MemorySettings::new().with_max_allowed_memory_usage(MAX_PAGE_MEMORY_BYTES))
            .with_strict(false);
        let mut rewriter = HtmlRewriter::new(settings, |_: &[u8]| {});
        let mut is_first = true;
        feed(&mut |piece| {
            // A byte order mark overrides the charset of the response, and this reader does not decode UTF-16.
            if std::mem::take(&mut is_first) && (piece.starts_with(b"\xff\xfe") || piece.starts_with(b"\xfe\xff")) {
                is_complete = false;
            }
            is_complete = is_complete && rewriter.write(piece).is_ok();
            is_complete
        });
        // The end of the page closes open elements. A browser does not run a script without an end tag.
        is_complete = is_complete && rewriter.end().is_ok();
    }
    let reader = reader.into_inner();
    if !is_complete {
        (reader.report)(ContentFact::UncertainScript);
    }
}

/// The state of reading one page or nested page.
pub(super) struct PageReader<'t> {
    pub(super) report: &'t mut dyn FnMut(ContentFact<'_>),
    /// The element whose text is being collected.
    open: Option<OpenElement>,
    /// The kind of the last such element. More of its text may follow after a comment.
    last_kind: OpenElementKind,
    /// Whether the last element with `source` children was `audio` or `video`, and not `picture`.
    pub(super) in_media: bool,
    depth: u32,
}

/// An element whose text is collected.
struct OpenElement {
    kind: OpenElementKind,
    digest: NormalizedHasher,
    text: String,
    is_uncertain: bool,
}

/// The kind of an element whose text is collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenElementKind {
    /// An inline script that runs.
    Script,
    /// An import map or speculation rules. A policy allows both by hash, like scripts.
    JsonScript(json_scripts::JsonScriptKind),
    /// A script from a file, or a data block in a `script` element. Its text has no effect.
    Ignored,
    Style,
    NoScript,
}

impl PageReader<'_> {
    fn read_element(&mut self, element: &Element<'_, '_>) {
        let tag = element.tag_name();
        match tag.as_str() {
            "script" => self.read_script_element(element),
            "style" => self.open_element(OpenElementKind::Style),
            "noscript" => self.open_element(OpenElementKind::NoScript),
            "picture" => self.in_media = false,
            "video" | "audio" => self.in_media = true,
            _ => {}
        }
        if element.attributes().is_empty() {
            return;
        }
        for attribute in element.attributes() {
            let name = attribute.name();
            let is_style = name == "style";
            if is_style || name.starts_with("on") {
                self.read_code_attribute(is_style, &attribute.value());
            }
        }
        self.report_addresses(&tag, element);
    }

    fn open_element(&mut self, kind: OpenElementKind) {
        self.last_kind = kind;
        self.open =
            Some(OpenElement { kind, digest: NormalizedHasher::default(), text: String::new(), is_uncertain: false });
    }

    fn read_script_element(&mut self, element: &Element<'_, '_>) {
        // The source of a script is `src` in HTML and `href` in SVG.
        let names: &[&str] = if element.namespace_uri() == SVG_NAMESPACE { &["href", "xlink:href"] } else { &["src"] };
        let source = names.iter().find_map(|name| element.get_attribute(name));
        let attribute = |name: &str| element.get_attribute(name).map(|text| resolve_references(&text).0.into_owned());
        let kind = attribute("type");
        let runs = is_executable(kind.as_deref(), attribute("language").as_deref());
        if let Some(source) = source {
            if runs {
                (self.report)(ContentFact::ScriptFile);
            }
            self.report_attribute_address(ResourceKind::Script, &source);
            self.open_element(OpenElementKind::Ignored);
        } else {
            let map =
                kind.as_deref().and_then(json_scripts::JsonScriptKind::from_type).map(OpenElementKind::JsonScript);
            self.open_element(if runs { map.unwrap_or(OpenElementKind::Script) } else { OpenElementKind::Ignored });
        }
    }

    fn read_code_attribute(&mut self, is_style: bool, value: &str) {
        let Some(text) = exact_attribute_text(value) else {
            (self.report)(if is_style { ContentFact::UncertainStyle } else { ContentFact::UncertainScript });
            // The addresses in it can still be reported.
            self.read_code(is_style, &resolve_references(value).0);
            return;
        };
        let digest = Digest::compute(text.as_bytes());
        (self.report)(if is_style { ContentFact::StyleAttribute(digest) } else { ContentFact::EventHandler(digest) });
        self.read_code(is_style, &text);
    }

    fn read_code(&mut self, is_style: bool, text: &str) {
        if is_style {
            css::read_css(text, self.report);
        } else {
            script::read_script(text, self.report);
        }
    }

    /// Reports an address from an attribute, in which character references are still to be resolved.
    pub(super) fn report_attribute_address(&mut self, kind: ResourceKind, written: &str) {
        // An unknown character name cannot occur in an origin, so it does not matter here.
        self.report_address(kind, &resolve_references(written).0);
    }

    /// Reports an address, or the code in a `javascript:` address.
    pub(super) fn report_address(&mut self, kind: ResourceKind, text: &str) {
        if classify_address(text) == AddressTarget::JavaScript {
            if !is_no_op_javascript(text) {
                (self.report)(ContentFact::JavaScriptAddress);
            }
        } else if !text.trim().is_empty() {
            (self.report)(ContentFact::Address(kind, text));
        }
    }

    /// Reads a nested page in a `srcdoc` attribute. It has the policy of the outer page, but may have its own base
    /// address.
    pub(super) fn read_srcdoc(&mut self, written: &str) {
        let text = exact_attribute_text(written);
        if text.is_none() || self.depth == 0 {
            (self.report)(ContentFact::UncertainScript);
        }
        if self.depth > 0 {
            (self.report)(ContentFact::NestedPageStart);
            self.read_fragment(&text.unwrap_or_else(|| resolve_references(written).0.into_owned()));
            (self.report)(ContentFact::NestedPageEnd);
        }
    }

    fn read_fragment(&mut self, text: &str) {
        let mut feed = |sink: &mut dyn FnMut(&[u8]) -> bool| {
            sink(text.as_bytes());
        };
        read_nested(&mut feed, self.depth - 1, self.report);
    }

    fn read_text(&mut self, chunk: &TextChunk<'_>) {
        let text = chunk.as_str();
        // In SVG the text of these elements may contain character references and may be in several parts.
        let is_data = matches!(chunk.text_type(), TextType::Data | TextType::CDataSection);
        let Some(open) = &mut self.open else {
            if is_data && !text.is_empty() {
                match self.last_kind {
                    OpenElementKind::Script | OpenElementKind::JsonScript(_) => {
                        (self.report)(ContentFact::UncertainScript);
                    }
                    OpenElementKind::Style => (self.report)(ContentFact::UncertainStyle),
                    OpenElementKind::Ignored | OpenElementKind::NoScript => {}
                }
            }
            return;
        };
        open.is_uncertain |= is_data && text.contains('&') || chunk.text_type() == TextType::CDataSection;
        if matches!(open.kind, OpenElementKind::Script | OpenElementKind::JsonScript(_) | OpenElementKind::Style) {
            open.digest.update(text);
        }
        if open.kind != OpenElementKind::Ignored && open.text.len() < MAX_INLINE_TEXT_BYTES {
            open.text.push_str(text);
        }
        if chunk.last_in_text_node()
            && let Some(open) = self.open.take()
        {
            self.close_element(open);
        }
    }

    fn close_element(&mut self, mut open: OpenElement) {
        // An empty element has no effect.
        if open.text.is_empty() {
            return;
        }
        match open.kind {
            OpenElementKind::Script => {
                (self.report)(if open.is_uncertain {
                    ContentFact::UncertainScript
                } else {
                    ContentFact::InlineScript(open.digest.take())
                });
                script::read_script(&open.text, self.report);
            }
            OpenElementKind::JsonScript(map) => {
                (self.report)(if open.is_uncertain {
                    ContentFact::UncertainScript
                } else {
                    ContentFact::InlineScript(open.digest.take())
                });
                json_scripts::read_json_script(map, &open.text, self.report);
            }
            OpenElementKind::Style => {
                (self.report)(if open.is_uncertain {
                    ContentFact::UncertainStyle
                } else {
                    ContentFact::InlineStyle(open.digest.take())
                });
                css::read_css(&open.text, self.report);
            }
            OpenElementKind::NoScript if self.depth > 0 => self.read_fragment(&open.text),
            OpenElementKind::NoScript | OpenElementKind::Ignored => {}
        }
    }
}

#[cfg(test)]
mod tests;
