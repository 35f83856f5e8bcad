//! The entity tag of an answer. It identifies everything that the answer depends on, but not the time that the query
//! took, so it is known without a query, and is the same in every process with the same index. Pure.

use docwharf_base::model::digest::{Digest, Sha256Hasher, encode_hex};
use docwharf_base::model::version::VersionId;
use docwharf_search::analyze::ANALYZER_NUMBER;
use docwharf_search::index::{FORMAT_NUMBER, SearchIndex};
use docwharf_site::lookup::AddressSettings;

use crate::search::{AnswerFormat, SearchParameters};

/// The number of bytes of the digest that a tag has, as in the tags of files.
const TAG_DIGEST_BYTES: usize = 8;

/// Returns the opaque tag of an answer, with its quotes and without `W/`.
pub(super) fn compute_answer_tag(
    parameters: &SearchParameters,
    format: AnswerFormat,
    version: VersionId,
    index: Option<&SearchIndex>,
    addresses: &AddressSettings,
    search_settings: &Digest,
) -> String {
    // Not its size, which two builds of the same index do not share. The settings decide what it leaves out.
    let index = index.map(|index| (index.version(), index.settings()));
    let program = (env!("CARGO_PKG_VERSION"), FORMAT_NUMBER, ANALYZER_NUMBER);
    // In this form, texts are quoted, and rules are their digest.
    let settings = (&addresses.base_path, addresses.slashes, &addresses.rules, search_settings);
    let facts = format!("{program:?} {format:?} {version:?} {index:?} {settings:?} {parameters:?}");
    let mut hasher = Sha256Hasher::new();
    hasher.update(facts.as_bytes());
    format!("\"{}\"", encode_hex(&hasher.finalize_reset().0[..TAG_DIGEST_BYTES]))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use docwharf_site::lookup::Slashes;
    use docwharf_site::rules::{RuleDraft, RuleSet, netlify_files};

    use super::*;
    use crate::search::test_indexes::{build_index, build_index_with};
    use crate::test_versions::version_with_files;

    #[test]
    fn a_tag_changes_with_each_part_of_the_question_the_version_the_index_and_the_settings() {
        let version = version_with_files(&[("a.html", "<h1>A</h1>")], 0);
        let index = build_index(&version);
        // Of the same version, with other pages left out.
        let other_index = build_index_with(&version, Digest::compute(b"other"));
        let (addresses, synonyms) = (AddressSettings::default(), Digest::compute(b"synonyms"));
        let plain = SearchParameters { text: "a".to_owned(), ..SearchParameters::default() };
        let json = AnswerFormat::Json;
        let tag_of = |parameters: &SearchParameters| {
            compute_answer_tag(parameters, json, version.id, Some(&*index), &addresses, &synonyms)
        };
        let mut tags = vec![tag_of(&plain)];
        let changes: [fn(&mut SearchParameters); 6] = [
            |parameters| parameters.text = "b".to_owned(),
            |parameters| parameters.text = "A".to_owned(),
            |parameters| parameters.limit = 11,
            |parameters| parameters.offset = 1,
            |parameters| parameters.section = Some("a".to_owned()),
            |parameters| parameters.lang = Some("a".to_owned()),
        ];
        for change in changes {
            let mut parameters = plain.clone();
            change(&mut parameters);
            tags.push(tag_of(&parameters));
        }
        let other_version = VersionId(Digest::compute(b"other"));
        let mut draft = RuleDraft::default();
        netlify_files::read_redirects("/a /b\n", "rules", &mut draft);
        let with_rules = AddressSettings { rules: Arc::new(RuleSet::new(draft)), ..AddressSettings::default() };
        let with_slashes = AddressSettings { slashes: Some(Slashes::Serve), ..AddressSettings::default() };
        let below = AddressSettings { base_path: "/docs/".to_owned(), ..AddressSettings::default() };
        let compute = |format, version, index, addresses: &AddressSettings, synonyms: &Digest| {
            compute_answer_tag(&plain, format, version, index, addresses, synonyms)
        };
        tags.push(compute(AnswerFormat::Page, version.id, Some(&*index), &addresses, &synonyms));
        tags.push(compute(json, other_version, Some(&*index), &addresses, &synonyms));
        tags.push(compute(json, version.id, Some(&*other_index), &addresses, &synonyms));
        tags.push(compute(json, version.id, None, &addresses, &synonyms));
        for other in [&with_rules, &with_slashes, &below] {
            tags.push(compute(json, version.id, Some(&*index), other, &synonyms));
        }
        tags.push(compute(json, version.id, Some(&*index), &addresses, &Digest::compute(b"others")));
        let count = tags.len();
        assert!(tags.iter().all(|tag| tag.len() == 18 && tag.starts_with('"') && tag.ends_with('"')), "{tags:?}");
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), count);
        assert_eq!(tag_of(&plain), tag_of(&plain.clone()), "the same question has the same tag");
    }
}
