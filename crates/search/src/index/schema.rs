//! The fields of the tantivy index. The documentation of [`index`](crate::index) says what each is for.

use tantivy::IndexSettings;
use tantivy::schema::{
    Field, IndexRecordOption, NumericOptions, Schema, SchemaBuilder, TextFieldIndexing, TextOptions,
};
use tantivy::tokenizer::TokenizerManager;

use super::packed_tokens::PackedTokenizer;

/// The name under which [`PackedTokenizer`] is registered.
const PACKED_TOKENIZER: &str = "packed";
/// The name of the column with the number of the page.
pub(super) const PAGE_COLUMN: &str = "page";
/// The size of the blocks in which stored text is compressed, in bytes. Larger blocks compress better, and each section
/// of an answer costs the decompression of one.
const STORE_BLOCK_BYTES: usize = 8 << 10;

/// The fields of the index.
#[derive(Debug, Clone)]
pub(crate) struct SearchSchema {
    /// The schema itself.
    pub(crate) schema: Schema,
    /// The words of heading and text.
    pub(crate) body: Field,
    /// The words of the section's own heading.
    pub(crate) heading: Field,
    /// The words of the title of the page and of the headings above the section.
    pub(crate) title: Field,
    /// The stems of words in `body`.
    pub(crate) body_stem: Field,
    /// The stems of words in `heading`.
    pub(crate) heading_stem: Field,
    /// The stems of words in `title`.
    pub(crate) title_stem: Field,
    /// The names of the section, whole.
    pub(crate) names: Field,
    /// The number of the page.
    pub(crate) page: Field,
    /// The anchor, stored.
    pub(crate) anchor: Field,
    /// The path of headings, stored.
    pub(crate) headings: Field,
    /// The text for excerpts, stored.
    pub(crate) text: Field,
}

impl SearchSchema {
    pub(crate) fn new() -> SearchSchema {
        let mut builder = Schema::builder();
        let body = add_words(&mut builder, "body");
        let heading = add_words(&mut builder, "heading");
        let title = add_words(&mut builder, "title");
        let body_stem = add_counted(&mut builder, "body_stem");
        let heading_stem = add_counted(&mut builder, "heading_stem");
        let title_stem = add_counted(&mut builder, "title_stem");
        let names = add_counted(&mut builder, "names");
        let page = builder.add_u64_field(PAGE_COLUMN, NumericOptions::default().set_fast());
        let anchor = builder.add_text_field("anchor", TextOptions::default().set_stored());
        let headings = builder.add_text_field("headings", TextOptions::default().set_stored());
        let text = builder.add_text_field("text", TextOptions::default().set_stored());
        let schema = builder.build();
        SearchSchema {
            schema,
            body,
            heading,
            title,
            body_stem,
            heading_stem,
            title_stem,
            names,
            page,
            anchor,
            headings,
            text,
        }
    }
}

/// Adds a field with frequencies, positions and lengths.
fn add_words(builder: &mut SchemaBuilder, name: &str) -> Field {
    add_indexed(builder, name, IndexRecordOption::WithFreqsAndPositions, true)
}

/// Adds a field with frequencies only.
fn add_counted(builder: &mut SchemaBuilder, name: &str) -> Field {
    add_indexed(builder, name, IndexRecordOption::WithFreqs, false)
}

fn add_indexed(builder: &mut SchemaBuilder, name: &str, option: IndexRecordOption, has_lengths: bool) -> Field {
    let indexing = TextFieldIndexing::default()
        .set_tokenizer(PACKED_TOKENIZER)
        .set_index_option(option)
        .set_fieldnorms(has_lengths);
    builder.add_text_field(name, TextOptions::default().set_indexing_options(indexing))
}

/// Returns the tokenizers that the fields name.
pub(super) fn create_tokenizers() -> TokenizerManager {
    let tokenizers = TokenizerManager::default();
    tokenizers.register(PACKED_TOKENIZER, PackedTokenizer::default());
    tokenizers
}

/// Returns the settings of all parts of the index, which must be equal to merge them.
pub(super) fn index_settings() -> IndexSettings {
    IndexSettings {
        docstore_blocksize: STORE_BLOCK_BYTES,
        // A part is written by a thread of its own already.
        docstore_compress_dedicated_thread: false,
        ..IndexSettings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_for_phrases_have_positions() {
        let schema = SearchSchema::new();
        let options = |field: Field| {
            let entry = schema.schema.get_field_entry(field);
            (entry.field_type().get_index_record_option(), entry.has_fieldnorms())
        };
        for field in [schema.body, schema.heading, schema.title] {
            assert_eq!(options(field), (Some(IndexRecordOption::WithFreqsAndPositions), true));
        }
        for field in [schema.body_stem, schema.heading_stem, schema.title_stem, schema.names] {
            assert_eq!(options(field), (Some(IndexRecordOption::WithFreqs), false));
        }
        assert_eq!(options(schema.text).0, None);
    }
}
