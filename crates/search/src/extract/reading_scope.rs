//! The text of a page that is read: which root it lies in, and whether an element around it is left out.
//!
//! All builders follow the same events with one [`ReadingScope`], so a text that is hidden from a reader of the page is
//! left out of the search index and of the Markdown by the same rules. Each builder adds its own effects of elements.

use super::content_rules::{OpenRoots, RootKind, is_hidden, is_left_out_by_attributes, is_left_out_by_name};
use super::element_effect::{CommonEffect, EffectOfElement, LeftOutElement, UnclosedElement, header_effect};
use super::element_name::ElementName;
use super::open_elements::{MAX_OPEN_ELEMENTS, OpenElement, OpenElements};
use super::page_facts::PageFacts;
use super::tags::StartTag;
use super::text_buffer::has_visible_text;

/// The open elements of a page, with effects of the type `E`, and their consequences for the text in them.
#[derive(Debug)]
pub(crate) struct ReadingScope<E> {
    /// The facts outside the content.
    pub(crate) facts: PageFacts,
    elements: OpenElements<E>,
    /// The number of open elements beyond [`MAX_OPEN_ELEMENTS`], each of which must have an end tag.
    deeper_elements: u64,
    left_out: Option<LeftOutElement>,
    /// Whether an element that is left out was among those beyond the limit. Its end is not known, so nothing after it
    /// is read.
    has_deep_left_out: bool,
    open_roots: OpenRoots,
    /// The greatest kind of root in which text has been found.
    root: RootKind,
    /// The number of open links, which the builder counts.
    pub(crate) open_links: u32,
    /// The number of open inline elements that have an effect.
    inline_effects: u32,
}

/// The place of a text in the content of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextPlace {
    /// The text is not content.
    Ignored,
    /// White space in the content.
    WhiteSpace,
    /// Visible text in the content.
    Content,
    /// The first visible text in a root that is greater than those before it: what has been read so far is no content.
    FirstInGreaterRoot,
}

impl<E: EffectOfElement> ReadingScope<E> {
    /// `max_title_chars` is the maximum length of the title, in characters.
    pub(crate) fn new(max_title_chars: usize) -> Self {
        ReadingScope {
            facts: PageFacts::new(max_title_chars),
            elements: OpenElements::default(),
            deeper_elements: 0,
            left_out: None,
            has_deep_left_out: false,
            open_roots: OpenRoots::default(),
            root: RootKind::Page,
            open_links: 0,
            inline_effects: 0,
        }
    }

    pub(crate) fn elements(&self) -> &OpenElements<E> {
        &self.elements
    }

    /// Returns the id that a heading at this place may use, as [`OpenElements::use_ids`].
    pub(crate) fn use_ids(&mut self) -> Option<Box<str>> {
        self.elements.use_ids()
    }

    /// Whether no element around the place is left out.
    pub(crate) fn is_read(&self) -> bool {
        self.left_out.is_none()
    }

    /// The greatest kind of root in which text has been found.
    pub(crate) fn root(&self) -> RootKind {
        self.root
    }

    /// The greatest kind of root around the place.
    pub(crate) fn open_root(&self) -> RootKind {
        self.open_roots.greatest()
    }

    /// Whether a root is greater than those around it and those in which text has been found.
    pub(crate) fn is_outer_root(&self, root: RootKind) -> bool {
        root > self.open_root() && root > self.root
    }

    /// Counts an element that starts beyond [`MAX_OPEN_ELEMENTS`]. Returns whether it does, and so has no effect.
    pub(crate) fn skip_deep(&mut self, tag: &StartTag<'_>) -> bool {
        let is_deep = self.deeper_elements > 0 || self.elements.len() >= MAX_OPEN_ELEMENTS;
        if is_deep && !tag.name.is_void() {
            self.deeper_elements += 1;
            self.has_deep_left_out |= is_left_out_by_attributes(tag) || is_left_out_by_name(tag.name);
        }
        is_deep
    }

    /// Reads an end tag beyond [`MAX_OPEN_ELEMENTS`]. Returns whether it is there, and so ends no remembered element.
    pub(crate) fn skip_deep_end(&mut self, name: ElementName) -> bool {
        let is_deep = self.deeper_elements > 0;
        if is_deep && !name.is_void() {
            self.deeper_elements -= 1;
        }
        is_deep
    }

    /// Starts `html` or `body`. Returns whether the tag is that of one.
    pub(crate) fn start_page(&mut self, tag: &StartTag<'_>) -> bool {
        let is_page = matches!(tag.name, ElementName::Html | ElementName::Body);
        // The content is in these elements to the end of the page, also after their end tags.
        if is_page && let Some(root) = RootKind::of_element(tag) {
            self.open_roots.start(root);
        }
        is_page
    }

    /// Whether an element without content, such as an image, is read.
    pub(crate) fn is_void_read(&self, tag: &StartTag<'_>) -> bool {
        self.is_read() && !is_hidden(tag) && !tag.has_pagefind_ignore()
    }

    /// Whether the tag has no end tag: that of an element without content, or one that ends itself in SVG or `MathML`.
    pub(crate) fn has_no_end(&self, tag: &StartTag<'_>) -> bool {
        let is_foreign =
            self.elements.holds_foreign_content() || matches!(tag.name, ElementName::Svg | ElementName::Math);
        tag.name.is_void() || tag.is_self_closing && is_foreign
    }

    /// Returns the effect of an element that all builders share. `None` means that the element is content: its effect
    /// is the builder's.
    pub(crate) fn common_effect(&mut self, tag: &StartTag<'_>) -> Option<CommonEffect> {
        match self.left_out {
            None => {}
            Some(LeftOutElement::Whole) => return Some(CommonEffect::None),
            Some(LeftOutElement::ExceptH1) => return Some(header_effect(tag)),
        }
        if is_left_out_by_attributes(tag) {
            return Some(CommonEffect::LeaveOut(LeftOutElement::Whole));
        }
        if tag.name == ElementName::Title && self.facts.start_title() {
            return Some(CommonEffect::Title);
        }
        if is_left_out_by_name(tag.name) {
            let has_h1 = tag.name == ElementName::Header && self.open_root() > RootKind::Page;
            let left_out = if has_h1 { LeftOutElement::ExceptH1 } else { LeftOutElement::Whole };
            return Some(CommonEffect::LeaveOut(left_out));
        }
        RootKind::of_element(tag).map(CommonEffect::Root)
    }

    /// Whether the id of an element with this effect may be that of a heading around it or after it.
    pub(crate) fn is_anchor_read(&self, tag: &StartTag<'_>, effect: &E) -> bool {
        // The sign that links to a heading often has the id of the heading, and is left out itself.
        self.is_read() && (!matches!(effect.common(), Some(CommonEffect::LeaveOut(_))) || tag.name == ElementName::A)
    }

    /// Whether the text in an element with this effect is read, if it is in the right root.
    pub(crate) fn is_content_read(&self, effect: &E) -> bool {
        match effect.common() {
            Some(CommonEffect::LeaveOut(_)) => false,
            Some(CommonEffect::InHeader(left_out)) => left_out.is_none(),
            _ => self.is_read(),
        }
    }

    /// Whether an element with this effect must be among the open elements.
    pub(crate) fn is_remembered(&self, name: ElementName, effect: &E) -> bool {
        !name.is_inline()
            || effect.has_effect()
            // Their end tags must not be taken for those of an element that has an effect.
            || self.inline_effects > 0
            || !self.is_read()
            || self.elements.holds_foreign_content()
    }

    /// Adds an element to the open elements. Its effect is started by the caller. `id` is that which a heading in it
    /// may use.
    pub(crate) fn push(&mut self, name: ElementName, effect: E, id: Option<String>) {
        self.inline_effects += u32::from(name.is_inline() && effect.has_effect());
        self.elements.push(name, effect, id.map(String::into_boxed_str));
    }

    /// Removes the last open element. Its effect is ended by the caller.
    pub(crate) fn pop(&mut self) -> Option<OpenElement<E>> {
        let element = self.elements.pop()?;
        self.count_inline_end(element.name, &element.effect);
        Some(element)
    }

    /// Ends the element at a depth without the elements in it. Its effect is ended by the caller.
    pub(crate) fn close_only(&mut self, depth: usize) -> Option<E> {
        let (name, effect) = self.elements.close_only(depth)?;
        self.count_inline_end(name, &effect);
        Some(effect)
    }

    fn count_inline_end(&mut self, name: ElementName, effect: &E) {
        self.inline_effects -= u32::from(name.is_inline() && effect.has_effect());
    }

    /// Opens a formatting element that is left out again.
    pub(crate) fn open_again(&mut self, element: UnclosedElement) {
        let effect = CommonEffect::LeaveOut(element.left_out);
        self.start_common(effect);
        self.push(element.name, effect.into(), None);
    }

    pub(crate) fn start_common(&mut self, effect: CommonEffect) {
        match effect {
            // The title has been started when the effect was decided.
            CommonEffect::None | CommonEffect::Title => {}
            CommonEffect::LeaveOut(left_out) => self.left_out = Some(left_out),
            CommonEffect::InHeader(left_out) => self.left_out = left_out,
            CommonEffect::Root(root) => self.open_roots.start(root),
        }
    }

    pub(crate) fn end_common(&mut self, effect: CommonEffect) {
        match effect {
            CommonEffect::None => {}
            CommonEffect::LeaveOut(_) => self.left_out = None,
            CommonEffect::InHeader(_) => self.left_out = Some(LeftOutElement::ExceptH1),
            CommonEffect::Title => self.facts.end_title(),
            CommonEffect::Root(root) => self.open_roots.end(root),
        }
    }

    /// Whether the place may be in a link.
    pub(crate) fn may_be_in_link(&self) -> bool {
        self.open_links > 0 || !self.is_read()
    }

    /// Whether the start or end of an element separates the texts before and after it.
    pub(crate) fn separates_blocks(&self, name: ElementName) -> bool {
        name.is_block() && self.is_read()
    }

    /// Decides whether a text is content. A text in the title is added to it.
    pub(crate) fn place_text(&mut self, text: &str) -> TextPlace {
        if self.facts.is_title_open() {
            self.facts.push_title(text);
            return TextPlace::Ignored;
        }
        let root = self.open_root();
        if !self.is_read() || self.has_deep_left_out || root < self.root {
            return TextPlace::Ignored;
        }
        let is_greater = root > self.root;
        match (has_visible_text(text), is_greater) {
            (true, true) => {
                self.root = root;
                TextPlace::FirstInGreaterRoot
            }
            (true, false) => TextPlace::Content,
            (false, true) => TextPlace::Ignored,
            (false, false) => TextPlace::WhiteSpace,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::element_ends::ElementEnds;
    use super::super::page_reader::{self, PageEventHandler};
    use super::super::tags::PageEvent;
    use super::super::{MAX_EXTRACT_TIME, encoding};
    use super::*;

    impl EffectOfElement for CommonEffect {
        fn common(&self) -> Option<CommonEffect> {
            Some(*self)
        }
    }

    /// A builder without effects of its own, which joins the texts that are content.
    struct TextBuilder {
        scope: ReadingScope<CommonEffect>,
        text: String,
    }

    impl ElementEnds for TextBuilder {
        type Effect = CommonEffect;

        fn scope(&mut self) -> &mut ReadingScope<CommonEffect> {
            &mut self.scope
        }

        fn end_element_at(&mut self, _depth: usize, _name: ElementName, effect: CommonEffect) {
            self.end_effect(effect);
        }

        fn end_effect(&mut self, effect: CommonEffect) {
            self.scope.end_common(effect);
        }

        fn separate_blocks(&mut self, _name: ElementName) {}
    }

    impl PageEventHandler for TextBuilder {
        fn handle(&mut self, event: &PageEvent<'_>) {
            match event {
                PageEvent::Start(tag) => self.start_element(tag),
                PageEvent::End(name) => self.end_element(*name),
                PageEvent::Text(text) => self.read_text(text),
            }
        }
    }

    impl TextBuilder {
        fn start_element(&mut self, tag: &StartTag<'_>) {
            let is_ignored = self.scope.skip_deep(tag) || !self.close_before(tag.name);
            if is_ignored || self.scope.start_page(tag) || self.scope.has_no_end(tag) {
                return;
            }
            let effect = self.scope.common_effect(tag).unwrap_or_default();
            if self.scope.is_remembered(tag.name, &effect) {
                self.scope.start_common(effect);
                self.scope.push(tag.name, effect, None);
            }
        }

        fn read_text(&mut self, text: &str) {
            match self.scope.place_text(text) {
                TextPlace::Ignored => return,
                TextPlace::FirstInGreaterRoot => self.text.clear(),
                TextPlace::WhiteSpace | TextPlace::Content => {}
            }
            self.text.push_str(text);
        }
    }

    /// Returns the texts that are content, and the title.
    fn read(markup: &str) -> (String, String) {
        let builder = TextBuilder { scope: ReadingScope::new(100), text: String::new() };
        let page = encoding::decode_byte_order_mark(markup.as_bytes());
        let (mut builder, _) = page_reader::read_page(&page, MAX_EXTRACT_TIME, builder).unwrap();
        builder.close_elements(0);
        (builder.text, builder.scope.facts.take_title().0)
    }

    #[test]
    fn text_is_content_unless_an_element_around_it_is_left_out_or_it_is_in_a_lesser_root() {
        for (markup, expected) in [
            ("a<p hidden>b</p>c", "ac"),
            ("a<span hidden>b<span>c</span>d</span>e", "ae"),
            ("<p><b hidden>a<p>b</b>c", "c"),
            ("<ul hidden><li>a<li>b</ul>c", "c"),
            ("a<nav>b</nav><main>c<p hidden>d</p></main>e", "c"),
            ("a<main> <!-- --></main>b", "ab"),
            ("<article>a</article><main>b</main><article>c</article>", "b"),
            ("<main><header>a<h1>b<i hidden>c</i></h1>d</header>e</main>", "be"),
            ("<header>a<h1>b</h1></header>c", "c"),
            ("<svg><g hidden/><text>a</text></svg>b", "b"),
            ("<body role=main>a</body>b", "ab"),
        ] {
            assert_eq!(read(markup).0, expected, "{markup}");
        }
        assert_eq!(read("<title>t</title>a<title>b</title>"), ("a".to_owned(), "t".to_owned()));
    }

    #[test]
    fn nothing_is_read_after_an_element_that_is_left_out_beyond_the_limit_of_open_elements() {
        let deep = "<div>".repeat(MAX_OPEN_ELEMENTS);
        assert_eq!(read(&format!("a{deep}b<p>c</p>d")).0, "abcd");
        assert_eq!(read(&format!("a{deep}b<p hidden>c</p>d")).0, "ab");
        assert_eq!(read(&format!("a{deep}b<nav>c</nav>d")).0, "ab");
    }
}
