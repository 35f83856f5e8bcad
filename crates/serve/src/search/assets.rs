//! The files of the search box, of its panel for questions and of the search page, with their codings.

use std::num::NonZeroUsize;
use std::sync::LazyLock;

use bytes::Bytes;

use docwharf_base::codec::content_coding::{ContentCoding, ContentEncoder, StreamEnd, choose_encoder_level};
use docwharf_base::codec::gzip::encode_member;
use docwharf_base::model::digest::Digest;
use docwharf_search::page::{ASK_CSS, PAGE_CSS, SEARCH_CSS, render_ask_script, render_search_script};

use crate::entity_tag::EntityTag;
use crate::negotiate::{AcceptedCodings, ResponseForm};

use super::settings::SearchBoxSettings;

/// The compression level of gzip. The files are small and compressed once.
const GZIP_LEVEL: u32 = 9;
/// The size of a site by which the level of an encoder is chosen, in bytes. A serving thread waits for the encoder; at
/// the level for the largest sites, Brotli takes about a millisecond for one of these files.
const ENCODER_SITE_BYTES: u64 = u64::MAX;

const SCRIPT_TYPE: &str = "text/javascript; charset=utf-8";
const STYLES_TYPE: &str = "text/css; charset=utf-8";

static BOX_STYLES: LazyLock<SearchAsset> = LazyLock::new(|| SearchAsset::new(STYLES_TYPE, SEARCH_CSS.into()));
static ASK_SCRIPT: LazyLock<SearchAsset> = LazyLock::new(|| SearchAsset::new(SCRIPT_TYPE, render_ask_script().into()));
static ASK_STYLES: LazyLock<SearchAsset> = LazyLock::new(|| SearchAsset::new(STYLES_TYPE, ASK_CSS.into()));
static PAGE_STYLES: LazyLock<SearchAsset> = LazyLock::new(|| SearchAsset::new(STYLES_TYPE, PAGE_CSS.into()));

/// A small file of this program, with its codings.
#[derive(Debug)]
pub(crate) struct SearchAsset {
    /// The media type.
    pub(crate) media_type: &'static str,
    digest: Digest,
    content: Bytes,
    gzip: CodedContent,
    brotli: Option<CodedContent>,
    zstd: Option<CodedContent>,
}

/// The content in one coding.
#[derive(Debug)]
struct CodedContent {
    bytes: Bytes,
    /// The CRC-32 of `bytes`.
    crc: u32,
}

/// The form of a file that a client gets.
#[derive(Debug)]
pub(crate) struct AssetForm {
    /// The body.
    pub(crate) body: Bytes,
    /// The value of Content-Encoding; `None` for the content without a coding.
    pub(crate) token: Option<&'static str>,
    /// The strong entity tag.
    pub(crate) entity_tag: EntityTag,
}

impl SearchAsset {
    /// Renders and compresses the script of the search box. `max_question` is the maximum length of a question, if
    /// questions are answered.
    pub(super) fn render_script(settings: &SearchBoxSettings, max_question: Option<NonZeroUsize>) -> SearchAsset {
        SearchAsset::from_script(render_search_script(&settings.as_script_settings(max_question)))
    }

    /// Returns the script of the panel for questions.
    pub(crate) fn ask_script() -> &'static SearchAsset {
        &ASK_SCRIPT
    }

    /// Returns the style sheet of the panel for questions.
    pub(crate) fn ask_styles() -> &'static SearchAsset {
        &ASK_STYLES
    }

    /// Returns the style sheet of the search box.
    pub(crate) fn box_styles() -> &'static SearchAsset {
        &BOX_STYLES
    }

    /// Returns the style sheet of the search page.
    pub(crate) fn page_styles() -> &'static SearchAsset {
        &PAGE_STYLES
    }

    /// Compresses a script.
    pub(crate) fn from_script(script: String) -> SearchAsset {
        SearchAsset::new(SCRIPT_TYPE, script.into())
    }

    fn new(media_type: &'static str, content: Bytes) -> SearchAsset {
        SearchAsset {
            media_type,
            digest: Digest::compute(&content),
            gzip: CodedContent::new(encode_member(&content, GZIP_LEVEL)),
            brotli: encode(ContentCoding::Brotli, &content),
            zstd: encode(ContentCoding::Zstd, &content),
            content,
        }
    }

    fn coded(&self, coding: ContentCoding) -> Option<&CodedContent> {
        match coding {
            ContentCoding::Brotli => self.brotli.as_ref(),
            ContentCoding::Zstd => self.zstd.as_ref(),
        }
    }

    /// Returns the form for a client that accepts these codings.
    pub(crate) fn choose_form(&self, accepted: AcceptedCodings) -> AssetForm {
        let coded_len = |coding: ContentCoding| self.coded(coding).map(|coded| coded.bytes.len() as u64);
        let form = accepted.choose(self.gzip.bytes.len() as u64, coded_len);
        let (coded, letter) = match form {
            ResponseForm::Identity => (None, b' '),
            ResponseForm::Gzip => (Some(&self.gzip), b'g'),
            ResponseForm::Precompressed(coding @ ContentCoding::Brotli) => (self.coded(coding), b'b'),
            ResponseForm::Precompressed(coding @ ContentCoding::Zstd) => (self.coded(coding), b'z'),
        };
        let entity_tag = EntityTag::of_content(&self.digest, None, coded.map(|coded| (letter, coded.crc)));
        match coded {
            Some(coded) => AssetForm { body: coded.bytes.clone(), token: form.token(), entity_tag },
            None => AssetForm { body: self.content.clone(), token: None, entity_tag },
        }
    }
}

impl CodedContent {
    fn new(bytes: Vec<u8>) -> CodedContent {
        CodedContent { crc: crc32fast::hash(&bytes), bytes: bytes.into() }
    }
}

/// Encodes the content; `None` if the encoder fails, which it does without memory.
fn encode(coding: ContentCoding, content: &[u8]) -> Option<CodedContent> {
    let level = choose_encoder_level(coding, ENCODER_SITE_BYTES);
    let mut encoder = ContentEncoder::new(coding, level, content.len() as u64, StreamEnd::Shortest).ok()?;
    encoder.write(content).ok()?;
    encoder.finish().ok().map(CodedContent::new)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use http::HeaderMap;
    use http::header::ACCEPT_ENCODING;

    use super::*;

    fn form(asset: &SearchAsset, accept_encoding: &str) -> AssetForm {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, accept_encoding.parse().unwrap());
        asset.choose_form(AcceptedCodings::parse(&headers))
    }

    fn script(selector: &str) -> SearchAsset {
        script_with_events(selector, false)
    }

    fn script_with_events(selector: &str, events: bool) -> SearchAsset {
        let settings = SearchBoxSettings { selectors: vec![selector.to_owned()], button: true, events };
        SearchAsset::render_script(&settings, events.then_some(NonZeroUsize::MIN))
    }

    #[test]
    fn each_coding_decodes_to_the_content_and_has_its_own_strong_tag() {
        let asset = script("#search");
        let identity = form(&asset, "identity");
        assert!(identity.token.is_none() && identity.body.windows(7).any(|part| part == b"#search"));
        let mut tags = vec![identity.entity_tag.as_str().to_owned()];
        for token in ["gzip", "br", "zstd"] {
            let coded = form(&asset, token);
            assert_eq!(coded.token, Some(token));
            assert!(coded.body.len() < identity.body.len() / 2, "{token}: {} bytes", coded.body.len());
            let tag = coded.entity_tag.as_str().to_owned();
            assert!(tag.starts_with('"') && !tags.contains(&tag), "{tag}");
            tags.push(tag);
        }
        let mut content = Vec::new();
        flate2::read::GzDecoder::new(&form(&asset, "gzip").body[..]).read_to_end(&mut content).unwrap();
        assert!(content == identity.body);
        content.clear();
        brotli_decompressor::Decompressor::new(&form(&asset, "br").body[..], 4096).read_to_end(&mut content).unwrap();
        assert!(content == identity.body);
        assert!(zstd::stream::decode_all(&form(&asset, "zstd").body[..]).unwrap() == identity.body);
    }

    #[test]
    fn other_settings_of_the_box_make_another_file_with_another_tag() {
        let tags = ["#a", "#b", "#a"].map(|selector| form(&script(selector), "gzip").entity_tag.as_str().to_owned());
        assert!(tags[0] == tags[2] && tags[0] != tags[1], "{tags:?}");
        let recorded = form(&script_with_events("#a", true), "gzip").entity_tag.as_str().to_owned();
        assert!(recorded != tags[0], "{recorded}");
        let types = [SearchAsset::box_styles(), SearchAsset::page_styles()].map(|asset| asset.media_type);
        assert_eq!(types, [STYLES_TYPE; 2]);
    }

    #[test]
    fn the_panel_for_questions_is_at_most_10_kb_as_gzip() {
        let len = [SearchAsset::ask_script(), SearchAsset::ask_styles()].map(|asset| form(asset, "gzip").body.len());
        assert!(len.iter().sum::<usize>() <= 10_000, "{len:?} bytes");
    }

    #[test]
    fn the_box_is_at_most_15_kb_as_gzip() {
        let (script, styles) = (script_with_events("[data-docwharf-search]", true), SearchAsset::box_styles());
        let len = form(&script, "gzip").body.len() + form(styles, "gzip").body.len();
        assert!(len <= 15_000, "{len} bytes");
    }
}
