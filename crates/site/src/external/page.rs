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
mod tests {
    use super::*;

    fn found(html: &str, piece: usize) -> Vec<String> {
        let mut all = Vec::new();
        let mut feed = |take: &mut dyn FnMut(&[u8]) -> bool| {
            let _ = html.as_bytes().chunks(piece).all(take);
        };
        read_page(&mut feed, &mut |fact| {
            all.push(match fact {
                ContentFact::Address(kind, text) => format!("{} {text}", kind.name()),
                ContentFact::Mention(text) => format!("? {text}"),
                ContentFact::Script(digest) => format!("script {}", &digest.hex()[..8]),
                ContentFact::Handler(digest) => format!("handler {}", &digest.hex()[..8]),
                ContentFact::Style(digest) => format!("style {}", &digest.hex()[..8]),
                ContentFact::StyleAttribute(digest) => format!("style= {}", &digest.hex()[..8]),
                other => format!("{other:?}"),
            });
        });
        all
    }

    fn short(text: &str) -> String {
        Digest::of(text.as_bytes()).hex()[..8].to_owned()
    }

    #[test]
    fn addresses_are_told_by_what_browsers_take_them_for() {
        let html = r#"<!doctype html><base href="https://b.example/"><link rel="preload STYLESHEET" href=a.css>
            <link rel="preload" as=font href=f.woff2><link rel=preconnect href="//c.example"><link rel=canonical href=no>
            <link rel="shortcut icon" href=i.ico><link rel=manifest href=m.json><script src=s.js></script>
            <script type="application/ld+json">{"no": "https://no.example/"}</script>
            <img src=i.png srcset="i1.png, i2.png 2x"><picture><source srcset=p.webp></picture>
            <video poster=v.png><source src=v.mp4></video><iframe src=fr.html></iframe><object data=o.svg></object>
            <form action="https://form.example/"><a href="https://no.example/">x</a><a href="javascript:void(0)">y</a>
            <noscript><img src="n.png"></noscript><svg><image href="s.png"/></svg>
            <meta http-equiv=refresh content="5; url=https://next.example/"><a href="javascript:go()">z</a>"#;
        let expected = [
            "base https://b.example/",
            "style a.css",
            "font f.woff2",
            "hint //c.example",
            "image i.ico",
            "manifest m.json",
            "Runs",
            "script s.js",
            "image i.png",
            "image i1.png",
            "image i2.png",
            "image p.webp",
            "image v.png",
            "media v.mp4",
            "frame fr.html",
            "object o.svg",
            "form https://form.example/",
            "image n.png",
            "image s.png",
            "refresh https://next.example/",
            "CodeInAddress",
        ];
        assert_eq!(found(html, 7), expected);
        assert_eq!(found(html, 1 << 20), expected);
    }

    #[test]
    fn what_stands_in_a_page_is_named_as_a_browser_names_it() {
        let html = "<script>a\r\n<!-- <script> b</script> -->\rc\0</script><script type=module>é</script><script></script>\
            <style>p{}\r\n</style><p style=\"a:&quot;b&quot;\r\n\" ONCLICK='go(1 && 2)'>x</p><script type=text/plain>no</script>";
        for piece in [1, 3, 1 << 20] {
            assert_eq!(
                found(html, piece),
                [
                    format!("script {}", short("a\n<!-- <script> b</script> -->\nc\u{fffd}")),
                    format!("script {}", short("é")),
                    format!("style {}", short("p{}\n")),
                    format!("style= {}", short("a:\"b\"\n")),
                    format!("handler {}", short("go(1 && 2)")),
                ],
                "{piece}"
            );
        }
    }

    #[test]
    fn pages_in_attributes_are_read_and_doubts_are_told() {
        let html = "<iframe srcdoc=\"<script>in()</script>&lt;img src='https://i.example/'>\"></iframe>";
        let script = format!("script {}", short("in()"));
        assert_eq!(found(html, 99), ["Enters", &script, "image https://i.example/", "Leaves"]);
        for html in [
            "<p onclick='a(&notin;)'>",
            "<svg><script>a &amp; b</script></svg>",
            "<svg><script><![CDATA[a]]></script></svg>",
        ] {
            assert_eq!(found(html, 99), ["Unsure"], "{html}");
        }
        assert_eq!(found("\u{feff}<script>a</script>", 99), [format!("script {}", short("a"))]);
        let mut deep = "<script>x</script>".to_owned();
        for _ in 0..10 {
            deep = format!("<iframe srcdoc=\"{}\"></iframe>", deep.replace('&', "&amp;").replace('"', "&quot;"));
        }
        assert_eq!(found(&deep, 1 << 20), ["Enters", "Enters", "Enters", "Unsure", "Leaves", "Leaves", "Leaves"]);
    }

    #[test]
    fn what_comments_cut_into_parts_is_doubted_and_nothing_else_is() {
        let style = "<svg><style>a<![CDATA[b]]></style></svg><script>c</script>";
        assert_eq!(
            found(style, 99),
            [format!("style {}", short("a")), "UnsureStyle".to_owned(), format!("script {}", short("c"))]
        );
        for html in ["<svg><script>a<!-- x -->b</script></svg>", "<svg><script>a<b/>c</script></svg>"] {
            assert_eq!(found(html, 99), [format!("script {}", short("a")), "Unsure".to_owned()], "{html}");
        }
        assert_eq!(found("<svg><script href=x.js>a<!-- x -->b</script>c</svg>", 99), ["Runs", "script x.js"]);
    }

    #[test]
    fn a_hostile_page_ends_in_doubt_and_bounded_memory() {
        let html = "<div><p>".repeat(2_000_000);
        assert_eq!(found(&html, 65536), ["Unsure"]);
        let html = format!("<script>{}</script>", "x".repeat(64 << 20));
        assert_eq!(found(&html, 65536).len(), 1);
    }

    #[test]
    fn each_attribute_that_names_something_is_told_with_what_it_is_for() {
        for (html, expected) in [
            ("<img src=a>", &["image a"][..]),
            ("<img srcset='a 1x, b' src=' '>", &["image a", "image b"]),
            ("<video src=a poster=b>", &["media a", "image b"]),
            ("<audio src=a><source src=b><track src=c></audio>", &["media a", "media b", "media c"]),
            ("<video></video><picture><source src=a srcset=b></picture>", &["image a", "image b"]),
            ("<frame src=a>", &["frame a"]),
            ("<iframe src=a></iframe>", &["frame a"]),
            ("<embed src=a>", &["object a"]),
            ("<object data=a></object>", &["object a"]),
            ("<form action=a></form>", &["form a"]),
            ("<button formaction=a></button>", &["form a"]),
            ("<input formaction=a src=b>", &["form a", "image b"]),
            ("<body background=a>", &["image a"]),
            ("<table background=a>", &["image a"]),
            ("<table><td background=a><th background=b>", &["image a", "image b"]),
            ("<svg><image href=a xlink:href=b /><use href=c /></svg>", &["image a", "image b", "image c"]),
            ("<svg><feImage href=a /></svg>", &["image a"]),
            ("<base href=a>", &["base a"]),
            ("<meta http-equiv=REFRESH content='1;url=a'>", &["refresh a"]),
            ("<meta name=refresh content='1;url=a'>", &[]),
            ("<meta http-equiv=refresh content=1>", &[]),
            ("<a href=https://x.example/ ping='a  b'>x</a>", &["connect a", "connect b"]),
            ("<a href='javascript:void(0)'>x</a>", &[]),
            ("<area href='javascript:go()'>", &["CodeInAddress"]),
            ("<svg><a xlink:href='javascript:go()'>x</a></svg>", &["CodeInAddress"]),
            ("<iframe src='javascript:go()'></iframe>", &["CodeInAddress"]),
            ("<form action='javascript:;'></form>", &[]),
            ("<p src=a href=b data=c>", &[]),
            ("<a href='java&#115;cript:go()'>x</a>", &["CodeInAddress"]),
        ] {
            assert_eq!(found(html, 99), expected, "{html}");
        }
    }

    #[test]
    fn what_a_link_is_for_is_told_by_its_words() {
        for (rel, destination, expected) in [
            ("stylesheet", "", "style a"),
            ("alternate STYLESHEET", "", "style a"),
            ("modulepreload", "", "script a"),
            ("preload", "script", "script a"),
            ("preload", "Style", "style a"),
            ("preload", "font", "font a"),
            ("preload", "image", "image aimage b"),
            ("preload", "audio", "media a"),
            ("preload", "video", "media a"),
            ("preload", "track", "media a"),
            ("preload", "document", "frame a"),
            ("preload", "embed", "frame a"),
            ("preload", "object", "frame a"),
            ("preload", "worker", "worker a"),
            ("preload", "fetch", "connect a"),
            ("preload", "", "connect a"),
            ("icon", "", "image aimage b"),
            ("apple-touch-icon", "", "image aimage b"),
            ("apple-touch-icon-precomposed", "", "image aimage b"),
            ("mask-icon", "", "image aimage b"),
            ("manifest", "", "manifest a"),
            ("preconnect", "", "hint a"),
            ("dns-prefetch", "", "hint a"),
            ("prefetch", "", "hint a"),
            ("prerender", "", "hint a"),
            ("prefetch stylesheet", "", "style a"),
            ("canonical", "", ""),
            ("alternate", "style", ""),
            ("stylesheets", "", ""),
            ("", "", ""),
        ] {
            let html = format!("<link rel='{rel}' as='{destination}' href=a imagesrcset='b 2x'>");
            assert_eq!(found(&html, 99).concat(), expected, "{html}");
        }
        assert_eq!(found("<link href=a>", 99), [""; 0]);
    }

    #[test]
    fn scripts_run_by_their_type_and_are_named_or_come_from_a_file() {
        let named = format!("script {}", short("x"));
        for (html, expected) in [
            ("<script>x</script>", &[&*named][..]),
            ("<script type=''>x</script>", &[&*named]),
            ("<script type=' Text/JavaScript '>x</script>", &[&*named]),
            ("<script type=module>x</script>", &[&*named]),
            ("<script type=application/json>x</script>", &[]),
            ("<script type='text/javascript;charset=utf-8'>x</script>", &[]),
            ("<script type=text/plain language=javascript>x</script>", &[]),
            ("<script language=JavaScript1.2>x</script>", &[&*named]),
            ("<script language=vbscript>x</script>", &[]),
            ("<script language=''>x</script>", &[&*named]),
            ("<script src=a>x</script>", &["Runs", "script a"]),
            ("<script type=text/plain src=a>x</script>", &["script a"]),
            ("<script type=importmap>{\"imports\": {\"a\": \"//x.example\"}}</script>", &["script //x.example"]),
            ("<script type=ImportMap src=a></script>", &["Runs", "script a"]),
            ("<style></style><script></script>", &[]),
            ("<noscript><img src=a></noscript>", &["image a"]),
        ] {
            let told: Vec<String> =
                found(html, 99).into_iter().filter(|fact| !html.contains("=importmap") || !is_named(fact)).collect();
            assert_eq!(told, expected, "{html}");
        }
    }

    fn is_named(fact: &str) -> bool {
        fact.strip_prefix("script ")
            .is_some_and(|digits| digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
    }

    #[test]
    fn a_page_in_another_encoding_or_with_references_that_are_not_known_is_doubted() {
        let read_bytes = |bytes: &[u8]| {
            let mut all = Vec::new();
            read_page(
                &mut |take| {
                    take(bytes);
                },
                &mut |fact| all.push(format!("{fact:?}")),
            );
            all
        };
        assert_eq!(read_bytes(b"\xff\xfe<img src=a>"), ["Unsure"]);
        assert_eq!(read_bytes(b"\xfe\xff<img src=a>"), ["Unsure"]);
        assert_eq!(read_bytes(b"\xef\xbb\xbf<img src=a>"), ["Address(Image, \"a\")"]);
        assert_eq!(read_bytes(b" \xff\xfe<img src=a>"), ["Address(Image, \"a\")"]);
        for (html, expected) in [
            ("<p style='background: url(a) &notin;'>", &["UnsureStyle", "image a"][..]),
            ("<p onclick='fetch(\"//x.example\") &notin;'>", &["Unsure", "connect //x.example"]),
            ("<iframe srcdoc='<img src=a> &notin;'></iframe>", &["Unsure", "Enters", "image a", "Leaves"]),
            ("<svg><style>a &amp; b</style></svg>", &["UnsureStyle"]),
            ("<svg><style>a<!-- --> b</style></svg>", &[&format!("style {}", short("a")), "UnsureStyle"]),
        ] {
            assert_eq!(found(html, 99), expected, "{html}");
        }
    }
}
