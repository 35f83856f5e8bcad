//! Decides from the start tag of an element whether it is left out, and whether it is the root of a page's content.

use super::element_name::ElementName;
use super::hidden_style::hides_text;
use super::tags::StartTag;

/// The part of a page that its content is read from. Of the roots that contain text, the greatest one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RootKind {
    /// The whole page.
    Page,
    /// `article`.
    Article,
    /// `role=main`.
    MainRole,
    /// `main`.
    Main,
    /// `data-pagefind-body`.
    PagefindBody,
}

impl RootKind {
    /// All kinds, the greatest first.
    pub(crate) const ALL: [RootKind; 5] =
        [RootKind::PagefindBody, RootKind::Main, RootKind::MainRole, RootKind::Article, RootKind::Page];

    /// The place in [`RootKind::ALL`].
    fn place(self) -> usize {
        Self::ALL.len() - 1 - self as usize
    }

    /// Returns the kind of root that an element is.
    pub(crate) fn of_element(tag: &StartTag<'_>) -> Option<RootKind> {
        if tag.has_pagefind_body() {
            Some(RootKind::PagefindBody)
        } else if tag.name == ElementName::Main {
            Some(RootKind::Main)
        } else if tag.has_role("main") {
            Some(RootKind::MainRole)
        } else if tag.name == ElementName::Article {
            Some(RootKind::Article)
        } else {
            None
        }
    }
}

/// The number of open elements of each kind of root, in the order of [`RootKind::ALL`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OpenRoots([u32; RootKind::ALL.len()]);

impl OpenRoots {
    pub(super) fn start(&mut self, root: RootKind) {
        self.0[root.place()] += 1;
    }

    /// Ends a root that has been started.
    pub(super) fn end(&mut self, root: RootKind) {
        self.0[root.place()] -= 1;
    }

    /// Returns the greatest kind of root that is open.
    pub(super) fn greatest(&self) -> RootKind {
        let open = RootKind::ALL.into_iter().zip(self.0).find(|&(_, open)| open > 0);
        open.map_or(RootKind::Page, |(kind, _)| kind)
    }
}

/// Whether an element is left out because of its name: it contains navigation, or is not shown as text.
pub(super) fn is_left_out_by_name(name: ElementName) -> bool {
    matches!(
        name,
        ElementName::Header
            | ElementName::LeftOutBlock(_)
            | ElementName::LeftOutInline(_)
            | ElementName::Template
            | ElementName::Button
            | ElementName::Svg
            | ElementName::Title
    )
}

/// Whether an element is left out because of its attributes.
pub(super) fn is_left_out_by_attributes(tag: &StartTag<'_>) -> bool {
    is_hidden(tag)
        || tag.has_pagefind_ignore()
        || tag.has_role("navigation")
        || tag.has_role("search")
        // The sign behind a heading of Sphinx, and the links around a page of DocBook.
        || tag.has_class("headerlink")
        || tag.has_class("navheader")
        || tag.has_class("navfooter")
        // Links such as "skip to content".
        || tag.name == ElementName::A && (tag.has_class("sr-only") || tag.has_class("visually-hidden"))
}

/// Whether a reader of the page does not see the element. `html` and `body` are not asked: a page may hide itself until
/// its script has run.
pub(super) fn is_hidden(tag: &StartTag<'_>) -> bool {
    tag.is_aria_hidden()
        || tag.has_hidden()
        || tag.style().is_some_and(|style| hides_text(&style))
        // A dialog is hidden until it is opened.
        || matches!(tag.name, ElementName::Block(_)) && tag.is_named("dialog") && tag.attribute("open").is_none()
}

/// Whether a link leads to another page of the site: it has no scheme and no host, and is not only a fragment.
pub(crate) fn is_site_link(href: &str) -> bool {
    let href = href.trim();
    let is_empty = href.is_empty() || href.starts_with('#');
    let has_host = href.starts_with("//") || href.starts_with("\\\\");
    let has_scheme = href.find([':', '/', '?', '#']).is_some_and(|end| href.as_bytes()[end] == b':');
    !is_empty && !has_host && !has_scheme
}

/// Whether a link leads to a place in its own page.
pub(crate) fn is_fragment_link(href: &str) -> bool {
    href.trim_start().starts_with('#')
}

/// Whether a character stands for a link to the heading that it follows. A link that has only such characters as its
/// text is left out.
pub(crate) fn is_permalink_sign(character: char) -> bool {
    matches!(character, '¶' | '§' | '#' | '🔗' | '⚓')
}

#[cfg(test)]
mod tests {
    use super::super::tags::{PageEvent, TagReader};
    use super::*;

    fn with_tag<T>(markup: &str, read: impl FnOnce(&StartTag<'_>) -> T) -> T {
        let Some(PageEvent::Start(tag)) = TagReader::new(markup.as_bytes()).next() else { panic!("{markup}") };
        read(&tag)
    }

    #[test]
    fn root_is_the_greatest_kind_of_an_element() {
        for (markup, expected) in [
            ("<body>", None),
            ("<div>", None),
            ("<article>", Some(RootKind::Article)),
            ("<article role=main>", Some(RootKind::MainRole)),
            ("<main role=main>", Some(RootKind::Main)),
            ("<main data-pagefind-body>", Some(RootKind::PagefindBody)),
            ("<div data-pagefind-body=''>", Some(RootKind::PagefindBody)),
        ] {
            assert_eq!(with_tag(markup, RootKind::of_element), expected, "{markup}");
        }
        assert!(RootKind::ALL.is_sorted_by(|first, second| first > second));
    }

    #[test]
    fn navigation_and_hidden_elements_are_left_out() {
        for (markup, expected) in [
            ("<nav>", true),
            ("<header>", true),
            ("<footer>", true),
            ("<aside>", true),
            ("<form>", true),
            ("<button>", true),
            ("<svg>", true),
            ("<script>", true),
            ("<style>", true),
            ("<template>", true),
            ("<noscript>", true),
            ("<span aria-hidden=true>", true),
            ("<span aria-hidden=false>", false),
            ("<div role=navigation>", true),
            ("<div role=search>", true),
            ("<a class='reference headerlink'>", true),
            ("<a class=header>", false),
            ("<div data-pagefind-ignore>", true),
            ("<div class=navheader>", true),
            ("<p hidden>", true),
            ("<p HIDDEN=''>", true),
            ("<p hidden=until-found>", true),
            ("<p style='color: red; Display : NONE ! important'>", true),
            ("<p style='&#100;isplay:none'>", true),
            ("<p style='color:red'>", false),
            ("<a class=sr-only>", true),
            ("<span class=sr-only>", false),
            ("<main>", false),
            ("<code>", false),
        ] {
            let is_left_out = with_tag(markup, |tag| is_left_out_by_name(tag.name) || is_left_out_by_attributes(tag));
            assert_eq!(is_left_out, expected, "{markup}");
        }
    }

    #[test]
    fn site_link_has_no_scheme_and_no_host_and_leaves_the_page() {
        for (href, expected) in [
            ("guide.html", true),
            ("/guide#install", true),
            ("../a:b", true),
            ("?page=2", true),
            (" x ", true),
            ("#install", false),
            ("", false),
            ("https://example.org/", false),
            ("mailto:a@example.org", false),
            ("JavaScript:void(0)", false),
            ("//example.org/", false),
        ] {
            assert_eq!(is_site_link(href), expected, "{href}");
        }
        assert!(is_fragment_link(" #a") && !is_fragment_link("a#a"));
    }
}
