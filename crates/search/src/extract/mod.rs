//! Reads an HTML page and returns the text that is indexed, one section for each heading.
//!
//! A page passes through four layers, each of which knows nothing of the next:
//!
//! 1. `encoding` removes a byte order mark and decodes UTF-16.
//! 2. `page_reader` runs the HTML parser and turns its tokens into a stream of three events: a start tag, an end tag,
//!    and a text with its character references decoded.
//! 3. `section_builder` follows the open elements by the rules of HTML for omitted and misplaced end tags
//!    (`open_elements`). `reading_scope` decides for each text whether it counts: which root it lies in, and whether an
//!    element around it is left out (`content_rules`), also because a style hides it (`hidden_style`).
//! 4. `section_store` collects the sections within the limits.
//!
//! The first two layers and `reading_scope` also serve [`markdown`](crate::markdown), which writes the same content as
//! Markdown.
//!
//! No document tree is built, so the memory for a page depends on the limits and not on the page. The root is chosen
//! in the same pass: when the first text in a greater root arrives (`main` is greater than `body`), what has been
//! collected outside is discarded, and from then on text outside is ignored.
//!
//! Pages may be hostile. Nesting costs no call stack, the number of open elements that are remembered is bounded, and
//! characters that are invisible or change the direction of text never reach a result.

pub(crate) mod content_rules;
pub(crate) mod element_effect;
pub(crate) mod element_ends;
pub(crate) mod element_name;
pub(crate) mod encoding;
mod hidden_style;
pub(crate) mod open_elements;
pub(crate) mod page_facts;
pub(crate) mod page_reader;
pub(crate) mod reading_scope;
mod reference_decoder;
mod section_builder;
mod section_store;
pub(crate) mod tags;
pub(crate) mod text_buffer;

#[cfg(test)]
mod tests;

use std::time::Duration;

use lol_html::errors::RewritingError;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use section_builder::SectionBuilder;

pub use text_buffer::is_invisible;

/// The default limit of the text of one page, in bytes.
pub const MAX_TEXT_BYTES: usize = 2 << 20;
/// The default limit of the number of sections of one page.
pub const MAX_SECTIONS: usize = 5000;
/// The default limit of a heading or title, in characters.
pub const MAX_HEADING_CHARS: usize = 500;
/// The default limit of the time for one page.
pub const MAX_EXTRACT_TIME: Duration = Duration::from_secs(5);

/// The level of the section of a definition, the `dt` element of a definition list. Headings have the levels 1 to 6.
pub const DEFINITION_LEVEL: u8 = 7;

/// The limits of one page. What exceeds them is left out and counted in [`LeftOutContent`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtractLimits {
    /// The text of all sections without their headings, in bytes.
    pub text_bytes: usize,
    /// The number of sections.
    pub sections: usize,
    /// The length of a heading and of the title, in characters.
    pub heading_chars: usize,
    /// The time for reading the page.
    pub time: Duration,
}

impl Default for ExtractLimits {
    fn default() -> Self {
        Self {
            text_bytes: MAX_TEXT_BYTES,
            sections: MAX_SECTIONS,
            heading_chars: MAX_HEADING_CHARS,
            time: MAX_EXTRACT_TIME,
        }
    }
}

/// The searchable content of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtractedPage {
    /// The text of the `title` element, else of the first `h1`; empty if the page has neither.
    pub title: String,
    /// The value of `lang` of the `html` element in lower case, otherwise as written.
    pub lang: Option<String>,
    /// The address of the `link` to the canonical page, with character references decoded.
    pub canonical: Option<String>,
    /// The reason in the page itself for leaving it out of the index.
    pub exclusion: Option<PageExclusion>,
    /// The sections in document order. Text before the first heading is a section without an anchor and headings.
    pub sections: Vec<Section>,
    /// The number of words in the headings and texts of the sections. In scripts without spaces each character counts.
    pub words: u32,
    /// The number of these words that are in links.
    pub link_words: u32,
    /// The number of links with text to other pages of the site: `href` has no scheme and no host, and is not only a
    /// fragment.
    pub site_links: u32,
    /// The amounts that exceeded the limits.
    pub left_out: LeftOutContent,
}

/// The reason why a page asks not to be indexed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageExclusion {
    /// A `meta` element for robots contains `noindex` or `none`, or the page has `data-pagefind-ignore`.
    NoIndex,
    /// A `meta` element leads to another address.
    Refresh,
}

/// A heading and the text up to the next heading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// The id that leads to the section, as in the document tree: character references are decoded, nothing is
    /// percent-encoded. A heading without an id has the anchor of the heading above it. `None` stands for the page
    /// itself.
    pub anchor: Option<String>,
    /// The headings from the first level down to the section's own, which is the last. Empty for text before the first
    /// heading.
    pub headings: Vec<String>,
    /// The level of the heading, 1 to 6; [`DEFINITION_LEVEL`] for a definition; 1 for text before the first heading.
    pub level: u8,
    /// Whether the section is a definition: a `dt` element with an id, and the text that explains it.
    pub is_definition: bool,
    /// The text without the heading. White space is collapsed to spaces; line feeds separate blocks and lines of code.
    pub text: String,
    /// The ranges of `text` in bytes that are code: `code`, `pre`, `kbd` and `samp` elements. They do not overlap.
    pub code_spans: Vec<(u32, u32)>,
}

/// The content of a page that exceeded its limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOutContent {
    /// The length of the text that was left out, in bytes without white space.
    pub text_bytes: usize,
    /// The number of headings and definitions that did not become sections.
    pub sections: usize,
    /// The number of headings that were cut, and one if the title was.
    pub headings: usize,
    /// Whether reading ended early because of its time. The other numbers do not include what was not read.
    pub time_exceeded: bool,
}

/// The reason why a page cannot be read.
#[derive(Debug, Error)]
pub enum ExtractError {
    /// The HTML parser failed. A tag of the page needs more memory than `MAX_PARSER_MEMORY_BYTES`.
    #[error("cannot parse the page as HTML")]
    Parser(#[source] RewritingError),
}

/// Reads the sections of an HTML page, and the facts that decide whether and where the page is indexed.
///
/// The page is in UTF-8, unless it begins with a byte order mark of UTF-16 or declares another encoding in a `meta`
/// element. Bytes that are invalid in the encoding become U+FFFD.
pub fn extract_page(html: &[u8], limits: &ExtractLimits) -> Result<ExtractedPage, ExtractError> {
    let page = encoding::decode_byte_order_mark(html);
    let builder = SectionBuilder::new(limits);
    let (builder, time_exceeded) = page_reader::read_page(&page, limits.time, builder).map_err(ExtractError::Parser)?;
    Ok(builder.finish(time_exceeded))
}
