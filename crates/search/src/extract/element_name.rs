//! The names of HTML elements, grouped by what the rules for end tags and the extraction of text need to know.

/// The length of the longest name that is known here, in bytes.
const MAX_KNOWN_NAME_BYTES: usize = 16;

/// A hash by which the names of a group differ. A collision between unknown names only ends an element too early.
pub(crate) type NameHash = u32;

/// The name of an element. A group holds the elements that are treated alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ElementName {
    Html,
    /// `head` and `body`.
    Body,
    Title,
    Meta,
    Link,
    Main,
    Article,
    /// Elements that contain a heading and its text: `section`, `details`.
    Section(NameHash),
    Div,
    Header,
    P,
    /// `h1` to `h6`, with the level.
    Heading(u8),
    Pre,
    /// `ul`, `ol` and `menu`.
    List(NameHash),
    Li,
    Dl,
    Dt,
    Dd,
    Table,
    /// `caption` and `colgroup`.
    TablePart(NameHash),
    /// `thead`, `tbody` and `tfoot`.
    RowGroup,
    Row,
    /// `td` and `th`.
    Cell,
    /// Other block elements.
    Block(NameHash),
    /// Block elements that are left out.
    LeftOutBlock(NameHash),
    /// Elements that are left out and do not separate text.
    LeftOutInline(NameHash),
    Template,
    Button,
    Svg,
    Math,
    /// Elements of SVG and `MathML` that contain HTML.
    ForeignHtml(NameHash),
    A,
    /// `code`, `kbd` and `samp`.
    Code(NameHash),
    /// Formatting elements (HTML Standard, 13.2.4.3) but `a` and `code`.
    Formatting(NameHash),
    /// Inline elements that end SVG and `MathML`, as most HTML elements do.
    Phrase(NameHash),
    /// Elements with any other name.
    Inline(NameHash),
    /// `br`.
    LineBreak,
    /// `hr`.
    Rule,
    /// Other elements without content.
    Void,
}

impl ElementName {
    /// Recognises a name as it is written in a tag.
    pub(crate) fn parse(name: &[u8]) -> Self {
        let mut buffer = [0; MAX_KNOWN_NAME_BYTES];
        let Some(name) = lower_case(name, &mut buffer) else { return Self::Inline(hash_name(name)) };
        match name {
            b"html" => Self::Html,
            b"head" | b"body" => Self::Body,
            b"title" => Self::Title,
            b"meta" => Self::Meta,
            b"link" => Self::Link,
            b"main" => Self::Main,
            b"article" => Self::Article,
            b"section" | b"details" => Self::Section(hash_name(name)),
            b"div" => Self::Div,
            b"header" => Self::Header,
            b"p" => Self::P,
            [b'h', level @ b'1'..=b'6'] => Self::Heading(level - b'0'),
            b"pre" => Self::Pre,
            b"ul" | b"ol" | b"menu" => Self::List(hash_name(name)),
            b"li" => Self::Li,
            b"dl" => Self::Dl,
            b"dt" => Self::Dt,
            b"dd" => Self::Dd,
            b"table" => Self::Table,
            b"caption" | b"colgroup" => Self::TablePart(hash_name(name)),
            b"thead" | b"tbody" | b"tfoot" => Self::RowGroup,
            b"tr" => Self::Row,
            b"td" | b"th" => Self::Cell,
            b"address" | b"blockquote" | b"center" | b"dialog" | b"dir" | b"fieldset" | b"figcaption" | b"figure"
            | b"hgroup" | b"legend" | b"listing" | b"search" | b"summary" => Self::Block(hash_name(name)),
            b"nav" | b"footer" | b"aside" | b"form" => Self::LeftOutBlock(hash_name(name)),
            b"script" | b"style" | b"noscript" | b"iframe" | b"noembed" | b"noframes" | b"textarea" | b"select"
            | b"canvas" | b"audio" | b"video" | b"datalist" | b"rp" | b"annotation" => {
                Self::LeftOutInline(hash_name(name))
            }
            b"template" => Self::Template,
            b"button" => Self::Button,
            b"svg" => Self::Svg,
            b"math" => Self::Math,
            b"foreignobject" | b"desc" | b"annotation-xml" | b"mi" | b"mo" | b"mn" | b"ms" | b"mtext" => {
                Self::ForeignHtml(hash_name(name))
            }
            b"a" => Self::A,
            b"code" | b"kbd" | b"samp" => Self::Code(hash_name(name)),
            b"b" | b"big" | b"em" | b"font" | b"i" | b"nobr" | b"s" | b"small" | b"strike" | b"strong" | b"tt"
            | b"u" => Self::Formatting(hash_name(name)),
            b"span" | b"sub" | b"sup" | b"ruby" | b"var" => Self::Phrase(hash_name(name)),
            b"br" => Self::LineBreak,
            b"hr" => Self::Rule,
            b"area" | b"base" | b"basefont" | b"bgsound" | b"col" | b"embed" | b"frame" | b"img" | b"input"
            | b"keygen" | b"param" | b"source" | b"track" | b"wbr" => Self::Void,
            _ => Self::Inline(hash_name(name)),
        }
    }

    /// Whether the element has no content and no end tag.
    pub(crate) fn is_void(self) -> bool {
        matches!(self, Self::Meta | Self::Link | Self::LineBreak | Self::Rule | Self::Void)
    }

    /// Whether the element separates the text in it from the text around it.
    pub(crate) fn is_block(self) -> bool {
        self.ends_heading()
            || matches!(
                self,
                Self::Div
                    | Self::Header
                    | Self::Li
                    | Self::Dt
                    | Self::Dd
                    | Self::TablePart(_)
                    | Self::RowGroup
                    | Self::Row
                    | Self::Cell
                    | Self::LeftOutBlock(_)
                    | Self::LineBreak
                    | Self::Rule
            )
    }

    /// Whether the element cannot be a part of a heading. When it starts after the text of a heading, the end tag of
    /// the heading is missing.
    pub(crate) fn ends_heading(self) -> bool {
        matches!(
            self,
            Self::Main
                | Self::Article
                | Self::Section(_)
                | Self::P
                | Self::Heading(_)
                | Self::Pre
                | Self::List(_)
                | Self::Dl
                | Self::Table
                | Self::Block(_)
        )
    }

    /// Whether the element is one that text flows through.
    pub(crate) fn is_inline(self) -> bool {
        matches!(self, Self::A | Self::Code(_) | Self::Formatting(_) | Self::Phrase(_) | Self::Inline(_))
    }

    /// Whether the element is a formatting element (HTML Standard, 13.2.4.3), or is treated as one.
    pub(crate) fn is_formatting(self) -> bool {
        matches!(self, Self::A | Self::Code(_) | Self::Formatting(_))
    }

    /// Whether the start tag ends an open paragraph.
    pub(crate) fn ends_paragraph(self) -> bool {
        self.ends_heading()
            || matches!(
                self,
                Self::Div | Self::Header | Self::Li | Self::Dt | Self::Dd | Self::LeftOutBlock(_) | Self::Rule
            )
    }

    /// Whether the element is special (HTML Standard, 13.2.4.2): the end tag of an inline element does not end it.
    pub(crate) fn is_special(self) -> bool {
        self.is_block()
            || matches!(
                self,
                Self::Title | Self::LeftOutInline(_) | Self::Template | Self::Button | Self::ForeignHtml(_)
            )
    }

    /// Whether end tags in the element do not end elements around it (HTML Standard, "have an element in scope").
    pub(crate) fn limits_scope(self) -> bool {
        matches!(self, Self::Table | Self::TablePart(_) | Self::Cell | Self::Template | Self::ForeignHtml(_))
    }

    /// Whether the start tag ends SVG or `MathML` in which it appears directly (HTML Standard, 13.2.6.5).
    pub(crate) fn ends_foreign_content(self) -> bool {
        matches!(
            self,
            Self::Body
                | Self::Meta
                | Self::Div
                | Self::P
                | Self::Heading(_)
                | Self::Pre
                | Self::List(_)
                | Self::Li
                | Self::Dl
                | Self::Dt
                | Self::Dd
                | Self::Table
                | Self::Block(_)
                | Self::Code(_)
                | Self::Formatting(_)
                | Self::Phrase(_)
                | Self::LineBreak
                | Self::Rule
        )
    }

    /// Whether a heading without an id may use the id of the element around it.
    pub(crate) fn gives_id_to_heading(self) -> bool {
        matches!(self, Self::Section(_) | Self::Div | Self::Article)
    }
}

/// Copies a name in lower case into `buffer`. Returns `None` if it is too long to be known.
pub(crate) fn lower_case<'b>(name: &[u8], buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    let copy = buffer.get_mut(..name.len())?;
    copy.copy_from_slice(name);
    copy.make_ascii_lowercase();
    Some(&*copy)
}

/// Computes the FNV-1a hash of a name in lower case.
fn hash_name(name: &[u8]) -> NameHash {
    name.iter().fold(0x811c_9dc5, |hash: NameHash, byte| {
        (hash ^ NameHash::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn element_names_are_recognised_in_any_case() {
        for (written, expected) in [
            ("H2", ElementName::Heading(2)),
            ("h7", ElementName::Inline(hash_name(b"h7"))),
            ("SECTION", ElementName::Section(hash_name(b"section"))),
            ("Nav", ElementName::LeftOutBlock(hash_name(b"nav"))),
            ("tH", ElementName::Cell),
            ("foreignObject", ElementName::ForeignHtml(hash_name(b"foreignobject"))),
            ("my-element-with-a-long-name", ElementName::Inline(hash_name(b"MY-element-with-a-long-NAME"))),
        ] {
            assert_eq!(ElementName::parse(written.as_bytes()), expected, "{written}");
        }
    }

    #[test]
    fn names_of_one_group_differ_from_each_other() {
        for (first, second) in [("ul", "ol"), ("nav", "aside"), ("code", "kbd"), ("x-card", "x-tabs")] {
            assert_ne!(ElementName::parse(first.as_bytes()), ElementName::parse(second.as_bytes()));
        }
    }
}
