//! The elements that are open at a place in a page, by the rules of the HTML Standard for tags that are omitted or
//! misplaced (13.2.6, "Tree construction").
//!
//! The rules are those that decide where an element ends. The tree itself is not built, so an element that a browser
//! would move, such as a text between the rows of a table, stays in its place.

use super::element_name::ElementName;

/// The maximum number of open elements that are remembered. Browsers allow 512.
pub(crate) const MAX_OPEN_ELEMENTS: usize = 4096;

/// An open element.
#[derive(Debug)]
pub(crate) struct OpenElement<E> {
    pub(crate) name: ElementName,
    /// The effect that the element has on the text in it.
    pub(crate) effect: E,
    /// The id of the element until a heading has used it.
    pub(crate) id: Option<Box<str>>,
    /// Whether elements in this one are SVG or `MathML`.
    holds_foreign_content: bool,
}

/// The consequence of an end tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndTagAction {
    /// The end tag matches no open element.
    Ignore,
    /// The elements from this depth on end.
    CloseTo(usize),
    /// The element at this depth ends, but the elements in it stay open.
    CloseOnly(usize),
}

/// The stack of open elements. The caller decides what the effect of an element is.
#[derive(Debug, Default)]
pub(crate) struct OpenElements<E> {
    stack: Vec<OpenElement<E>>,
    /// The number of elements at the start of the stack whose ids have been used by a heading.
    used_ids: usize,
}

impl<E: Default> OpenElements<E> {
    pub(crate) fn len(&self) -> usize {
        self.stack.len()
    }

    pub(crate) fn push(&mut self, name: ElementName, effect: E, id: Option<Box<str>>) {
        let holds_foreign_content = match name {
            ElementName::Svg | ElementName::Math => true,
            ElementName::ForeignHtml(_) | ElementName::Title => false,
            _ => self.holds_foreign_content(),
        };
        self.stack.push(OpenElement { name, effect, id, holds_foreign_content });
    }

    pub(crate) fn pop(&mut self) -> Option<OpenElement<E>> {
        let element = self.stack.pop();
        self.used_ids = self.used_ids.min(self.stack.len());
        element
    }

    /// Ends the element at a depth without the elements in it, and returns its name and effect.
    pub(crate) fn close_only(&mut self, depth: usize) -> Option<(ElementName, E)> {
        let element = self.stack.get_mut(depth)?;
        // No end tag has this name.
        let name = std::mem::replace(&mut element.name, ElementName::Void);
        Some((name, std::mem::take(&mut element.effect)))
    }

    /// Returns the id of the innermost element that a heading at the end of the stack may use. A heading can use it
    /// only if it is the first one in the element, so the ids of all open elements are used with it.
    pub(crate) fn use_ids(&mut self) -> Option<Box<str>> {
        let mut nearest = None;
        for element in self.stack.iter_mut().skip(self.used_ids).rev() {
            let id = element.id.take();
            nearest = nearest.or(id);
        }
        self.used_ids = self.stack.len();
        nearest
    }

    /// Whether an element that starts here is SVG or `MathML`.
    pub(crate) fn holds_foreign_content(&self) -> bool {
        self.stack.last().is_some_and(|element| element.holds_foreign_content)
    }

    /// Returns the depth of the SVG or `MathML` element that contains the end of the stack, or the length of the stack.
    pub(crate) fn foreign_content_depth(&self) -> usize {
        self.stack.iter().rposition(|element| !element.holds_foreign_content).map_or(0, |html| html + 1)
    }

    /// Returns the depth at which an element is opened by its start tag: the open elements from this depth on end.
    /// `None` means that the start tag is ignored: it is that of a part of a table outside a table.
    pub(crate) fn start_tag_depth(&self, name: ElementName) -> Option<usize> {
        let mut depth = match name {
            ElementName::Li => self.item_depth(|open| open == ElementName::Li),
            ElementName::Dt | ElementName::Dd => {
                self.item_depth(|open| matches!(open, ElementName::Dt | ElementName::Dd))
            }
            ElementName::Button => self.find_in_scope(self.len(), |open| open == name).unwrap_or(self.len()),
            ElementName::Cell => {
                self.table_depth(|open| matches!(open, ElementName::Row | ElementName::RowGroup | ElementName::Table))?
            }
            ElementName::Row => self.table_depth(|open| matches!(open, ElementName::RowGroup | ElementName::Table))?,
            ElementName::RowGroup | ElementName::TablePart(_) => self.table_depth(|open| open == ElementName::Table)?,
            _ => self.len(),
        };
        if name.ends_paragraph() {
            depth = self.find_paragraph(depth).unwrap_or(depth);
        }
        let is_heading = |name: ElementName| matches!(name, ElementName::Heading(_));
        if is_heading(name) && depth.checked_sub(1).is_some_and(|last| is_heading(self.stack[last].name)) {
            depth -= 1;
        }
        Some(depth)
    }

    /// Returns the consequence of an end tag.
    pub(crate) fn end_tag_action(&self, name: ElementName) -> EndTagAction {
        let len = self.len();
        let depth = match name {
            // Content may follow these end tags.
            ElementName::Html | ElementName::Body => None,
            _ if name.is_void() => None,
            ElementName::A | ElementName::Code(_) | ElementName::Formatting(_) => return self.formatting_action(name),
            _ if name.is_inline() => {
                let nearest = self.stack.iter().rposition(|open| open.name == name || open.name.is_special());
                nearest.filter(|&depth| self.stack[depth].name == name)
            }
            ElementName::P => self.find_paragraph(len),
            ElementName::Li => {
                self.find(len, |open| open == name, |open| open.limits_scope() || matches!(open, ElementName::List(_)))
            }
            ElementName::Heading(_) => self.find_in_scope(len, |open| matches!(open, ElementName::Heading(_))),
            ElementName::Table
            | ElementName::TablePart(_)
            | ElementName::RowGroup
            | ElementName::Row
            | ElementName::Cell => {
                self.find(len, |open| open == name, |open| matches!(open, ElementName::Table | ElementName::Template))
            }
            ElementName::Svg | ElementName::Math => self.find(len, |open| open == name, |_| false),
            _ => self.find_in_scope(len, |open| open == name),
        };
        depth.map_or(EndTagAction::Ignore, EndTagAction::CloseTo)
    }

    /// The end tag of a formatting element ends it although other elements in it are open. Those stay open, as in the
    /// "adoption agency algorithm" of the HTML Standard.
    fn formatting_action(&self, name: ElementName) -> EndTagAction {
        let mut has_blocks = false;
        for (depth, open) in self.stack.iter().enumerate().rev() {
            if open.name == name {
                return if has_blocks { EndTagAction::CloseOnly(depth) } else { EndTagAction::CloseTo(depth) };
            }
            if open.name.limits_scope() {
                break;
            }
            has_blocks |= open.name.is_special();
        }
        EndTagAction::Ignore
    }

    /// Returns the depth of the innermost element below `len` for which `is_match` is true; `None` if an element
    /// for which `is_limit` is true is nearer.
    fn find(
        &self,
        len: usize,
        is_match: impl Fn(ElementName) -> bool,
        is_limit: impl Fn(ElementName) -> bool,
    ) -> Option<usize> {
        let nearest = self.stack[..len].iter().rposition(|open| is_match(open.name) || is_limit(open.name));
        nearest.filter(|&depth| is_match(self.stack[depth].name))
    }

    fn find_in_scope(&self, len: usize, is_match: impl Fn(ElementName) -> bool) -> Option<usize> {
        self.find(len, is_match, ElementName::limits_scope)
    }

    /// Finds the open paragraph ("in button scope").
    fn find_paragraph(&self, len: usize) -> Option<usize> {
        self.find(len, |open| open == ElementName::P, |open| open.limits_scope() || open == ElementName::Button)
    }

    /// Returns the depth of the open item that the start of another item of the list ends, or the length of the stack.
    fn item_depth(&self, is_item: impl Fn(ElementName) -> bool) -> usize {
        let is_other_block =
            |open: ElementName| open.is_special() && !matches!(open, ElementName::Div | ElementName::P);
        self.find(self.len(), is_item, is_other_block).unwrap_or(self.len())
    }

    /// Returns the depth below the innermost part of a table in which a start tag of another part may appear.
    fn table_depth(&self, is_parent: impl Fn(ElementName) -> bool) -> Option<usize> {
        self.find(self.len(), is_parent, |open| open == ElementName::Template).map(|parent| parent + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tags::{PageEvent, TagReader};
    use super::*;

    /// Reads tags and returns the open elements at the end, as they are written.
    fn open_after(markup: &str) -> String {
        let mut elements = OpenElements::<()>::default();
        let mut names: Vec<String> = Vec::new();
        let mut written = markup.split('<').skip(1);
        for event in TagReader::new(markup.as_bytes()) {
            let tag = written.next().unwrap().trim_end_matches('>');
            let depth = match event {
                PageEvent::Start(tag) => {
                    if elements.holds_foreign_content() && tag.name.ends_foreign_content() {
                        while elements.len() > elements.foreign_content_depth() {
                            elements.pop();
                        }
                        names.truncate(elements.len());
                    }
                    let Some(depth) = elements.start_tag_depth(tag.name) else { continue };
                    (depth, Some(tag.name))
                }
                PageEvent::End(name) => match elements.end_tag_action(name) {
                    EndTagAction::Ignore => continue,
                    EndTagAction::CloseTo(depth) => (depth, None),
                    EndTagAction::CloseOnly(depth) => {
                        elements.close_only(depth);
                        names[depth] = format!("({})", names[depth]);
                        continue;
                    }
                },
                PageEvent::Text(_) => continue,
            };
            while elements.len() > depth.0 {
                elements.pop();
            }
            names.truncate(depth.0);
            if let Some(name) = depth.1 {
                elements.push(name, (), None);
                names.push(tag.to_owned());
            }
        }
        names.join(" ")
    }

    #[test]
    fn omitted_end_tags_are_implied_as_in_html() {
        for (markup, expected) in [
            ("<p><p>", "p"),
            ("<p><div>", "div"),
            ("<p><span><ul>", "ul"),
            ("<p><b>", "p b"),
            ("<ul><li><li>", "ul li"),
            ("<ul><li><ul><li></ul><li>", "ul li"),
            ("<ul><li><p><div><li>", "ul li"),
            ("<ul><li><section><li>", "ul li section li"),
            ("<dl><dt><dd><dt>", "dl dt"),
            ("<dl><dd><dl><dt>", "dl dd dl dt"),
            ("<dl><dd><p></dl>", ""),
            ("<table><tr><td><td>", "table tr td"),
            ("<table><tbody><tr><td><p><tr>", "table tbody tr"),
            ("<table><thead><tr><th><tbody>", "table tbody"),
            ("<table><colgroup><tr>", "table tr"),
            ("<table><tr><td><table><tr><td></table><td>", "table tr td"),
            ("<table><tr><td><p></table><p>", "p"),
            ("<h2><h3>", "h3"),
            ("<h2><span><h3>", "h2 span h3"),
            ("<h2></h3>", ""),
            ("<button><button>", "button"),
            ("<button><p></button>", ""),
            ("<p><button><div>", "p button div"),
        ] {
            assert_eq!(open_after(markup), expected, "{markup}");
        }
    }

    #[test]
    fn misplaced_end_tags_close_what_they_close_in_html() {
        for (markup, expected) in [
            ("<div></p>", "div"),
            ("<div></span>", "div"),
            ("<div><nav></div>", ""),
            ("<nav><div></nav>", ""),
            ("<span><div></span>", "span div"),
            ("<a><div></a>", "(a) div"),
            ("<code><p></code>", "(code) p"),
            ("<a><b></a>", ""),
            ("<div><table><tr><td></div>", "div table tr td"),
            ("<table><tr><td><div></td>", "table tr"),
            ("<td><tr><div>", "div"),
            ("<ul><li><ol></li>", "ul li ol"),
            ("<div></body></html>", "div"),
            ("<div></br></img>", "div"),
            ("<x-a><div></x-a>", "x-a div"),
            ("<x-a><x-b></x-a>", ""),
        ] {
            assert_eq!(open_after(markup), expected, "{markup}");
        }
    }

    #[test]
    fn html_elements_end_svg_and_mathml_but_not_in_their_html_parts() {
        for (markup, expected) in [
            ("<svg><g><p>", "p"),
            ("<div><svg><g><span>", "div span"),
            ("<svg><foreignObject><div>", "svg foreignObject div"),
            ("<svg><foreignObject><svg><g><div>", "svg foreignObject div"),
            ("<svg><g></svg>", ""),
            ("<div><svg><g></div>", ""),
            ("<div><svg><foreignObject></div>", "div svg foreignObject"),
            ("<svg><foreignObject><div></svg>", ""),
            ("<math><mi><b>", "math mi b"),
            ("<math><mrow><b>", "b"),
            ("<svg><a><text>", "svg a text"),
        ] {
            assert_eq!(open_after(markup), expected, "{markup}");
        }
    }

    #[test]
    fn id_is_used_by_the_first_heading_in_an_element_only() {
        let push = |elements: &mut OpenElements<()>, id: Option<&str>| {
            elements.push(ElementName::Div, (), id.map(Box::from));
        };
        let mut elements = OpenElements::default();
        push(&mut elements, Some("outer"));
        push(&mut elements, Some("inner"));
        push(&mut elements, None);
        assert_eq!(elements.use_ids().as_deref(), Some("inner"));
        assert_eq!(elements.use_ids(), None);
        elements.pop();
        elements.pop();
        assert_eq!(elements.use_ids(), None, "the first heading in the outer element came before");
        push(&mut elements, Some("next"));
        assert_eq!(elements.use_ids().as_deref(), Some("next"));
        assert_eq!(elements.use_ids(), None);
    }
}
