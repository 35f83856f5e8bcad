//! Writes the main content of an HTML page as Markdown (`CommonMark` 0.31 with the tables and strikethrough of GFM).
//!
//! The page is read as for the search index: [`extract`](crate::extract) decodes it, turns it into a stream of tags and
//! texts, and says which elements are content. Here, `builder` follows the open elements and decides what each text is
//! part of; `content` collects the current block and writes the finished ones. It passes texts to `inline_text`, which
//! escapes them and writes emphasis, links and code, and blocks to `block_writer`, which puts the marks of lists and
//! quotes before their lines. `table` and `code_block` collect the two kinds of block whose form depends on all of
//! their content.
//!
//! No document tree is built, so the memory for a page is bounded by [`MAX_MARKDOWN_BYTES`] and by the number of open
//! elements. Pages may be hostile: text that a reader of the page does not see is left out, and text that is visible
//! never becomes Markdown syntax; in particular it cannot become a link or an image.

mod block_writer;
mod builder;
mod code_block;
mod code_language;
mod content;
mod element_effect;
mod inline_text;
mod link_address;
mod page_head;
mod section_list;
mod table;

#[cfg(test)]
mod tests;

use docwharf_base::encode_sets;
use percent_encoding::percent_encode;
use serde::{Deserialize, Serialize};

use crate::extract::{ExtractError, MAX_EXTRACT_TIME, PageExclusion, encoding, page_reader};
use builder::MarkdownBuilder;
use inline_text::{InlineText, Mark};
use link_address::LinkBase;

/// The maximum length of the Markdown of a page, in bytes. The blocks that do not fit are left out.
pub const MAX_MARKDOWN_BYTES: usize = 2 << 20;

/// The place of a page, against which its links are resolved.
#[derive(Debug, Clone, Copy)]
pub struct MarkdownSettings<'a> {
    /// The address of the page below the base path, percent-encoded: `guides/start.html`, `guides/`, or nothing for the
    /// start page. One with a slash at its start has the base path already.
    pub page_url: &'a str,
    /// The base path of the site, with a slash at its start and its end.
    pub base_path: &'a str,
}

/// A page as Markdown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PageMarkdown {
    /// The text of the `title` element, else of the first `h1`; empty if the page has neither.
    pub title: String,
    /// The description of the page in a `meta` element.
    pub description: Option<String>,
    /// The language of the page, in lower case.
    pub lang: Option<String>,
    /// The reason in the page itself for leaving it out.
    pub exclusion: Option<PageExclusion>,
    /// The main content. It ends with a line feed, unless it is empty.
    pub text: String,
    /// The offsets in `text` at which blocks begin, in bytes: the places at which it can be divided.
    pub block_starts: Vec<u32>,
    /// The parts of `text` to which an anchor leads, ordered by their starts.
    pub sections: Vec<MarkdownSection>,
    /// Whether content is missing, because the page exceeded a limit.
    pub is_cut: bool,
}

/// A heading or a term with an anchor, and the text that belongs to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MarkdownSection {
    /// The fragment identifier, decoded; empty if the heading has none.
    pub anchor: String,
    /// The text of the heading or term, without marks.
    pub heading: String,
    /// The start of the heading in the text of the page, in bytes.
    pub start: u32,
    /// The end: of a heading, the start of the next one of the same or a higher level; of a term, the end of what
    /// explains it.
    pub end: u32,
}

impl PageMarkdown {
    /// Returns the section to which a fragment identifier leads, decoded.
    pub fn find_section(&self, anchor: &str) -> Option<&MarkdownSection> {
        self.sections.iter().find(|section| section.anchor == anchor && !anchor.is_empty())
    }
}

/// Writes the main content of an HTML page as Markdown.
///
/// The encoding of the page is found as by [`extract_page`](crate::extract::extract_page).
pub fn render_page(html: &[u8], settings: &MarkdownSettings<'_>) -> Result<PageMarkdown, ExtractError> {
    let page = encoding::decode_byte_order_mark(html);
    let builder = MarkdownBuilder::new(settings);
    let (builder, time_exceeded) =
        page_reader::read_page(&page, MAX_EXTRACT_TIME, builder).map_err(ExtractError::Parser)?;
    Ok(builder.finish(time_exceeded))
}

/// Writes a link with this text, for a list in Markdown. `path` is the path of an address, not percent-encoded.
pub(crate) fn write_link(text: &str, path: &str) -> String {
    let base = LinkBase::of_page(&MarkdownSettings { page_url: "", base_path: "/" });
    let encoded = percent_encode(path.as_bytes(), encode_sets::LOCATION_PATH).to_string();
    let mut inline = InlineText::for_line();
    if let Some(address) = base.resolve(&encoded) {
        inline.open_mark(Mark::Link(address));
    }
    inline.push_text(text);
    inline.take(0)
}

/// Escapes a text that follows something in a line.
pub(crate) fn escape_line(text: &str) -> String {
    let mut inline = InlineText::for_line();
    inline.push_text(text);
    inline.take(0)
}
