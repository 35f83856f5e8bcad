//! The bounds of lists and resources.

#![allow(clippy::needless_pass_by_value)] // JSON is written where it is passed

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::arguments::{ListPagesArguments, ReadPageArguments};
use super::page_part::MAX_PART_CHARS;
use super::site_reader::SiteReader;
use crate::test_versions::version_with_files;
use crate::{Site, SiteMarkdownSource, SiteSettings};

/// The maximum length of the text of a resource, in characters (SECURITY.md).
const MAX_RESOURCE_CHARS: usize = 1 << 20;

/// A reader of a site without a search index.
fn reader_of(files: &[(&str, &str)]) -> SiteReader {
    let site = Site::new(SiteSettings::default());
    site.set_version(version_with_files(files, 0));
    // The pages are read one by one.
    site.set_site_markdown_source(SiteMarkdownSource::Program);
    let version = site.served_version().unwrap();
    SiteReader::new(Arc::clone(&site), version, None)
}

fn arguments(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

#[track_caller]
fn list_pages(reader: &SiteReader, value: Value) -> Value {
    let listed = reader.list_pages(&ListPagesArguments::read(arguments(value)).unwrap());
    listed.result.structured_content.unwrap()
}

#[track_caller]
fn read_page(reader: &SiteReader, value: Value) -> Value {
    let read = reader.read_page(&ReadPageArguments::read(arguments(value)).unwrap());
    read.result.structured_content.unwrap()
}

#[test]
fn a_list_whose_time_is_over_ends_early_with_a_cursor_that_leads_to_all_pages() {
    let files: Vec<(String, String)> =
        (0..9).map(|number| (format!("{number}.html"), format!("<title>Page {number}</title>"))).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let mut reader = reader_of(&[&files[..], &[("style.css", "a{}")]].concat());
    let all = list_pages(&reader, json!({}));
    assert_eq!((all["pages"].as_array().unwrap().len(), &all["nextCursor"]), (9, &Value::Null));
    reader.max_list_time = Duration::ZERO;
    let (mut pages, mut parts, mut arguments) = (Vec::new(), 0, json!({}));
    loop {
        let part = list_pages(&reader, arguments.clone());
        // Fewer pages than the limit, and a cursor: so a model knows that the list goes on.
        let listed = part["pages"].as_array().unwrap();
        assert!(listed.len() <= 1, "{part}");
        pages.extend(listed.clone());
        parts += 1;
        let Some(cursor) = part["nextCursor"].as_str() else { break };
        arguments["cursor"] = json!(cursor);
        assert!(parts < 20, "each part goes on: {part}");
    }
    assert_eq!((&json!(pages), parts), (&all["pages"], files.len() + 1));
    let (resources, cursor) = reader.list_resources(None).unwrap();
    assert_eq!((resources.len(), cursor.is_some()), (1, true));
    let (rest, _) = reader.list_resources(cursor.as_deref()).unwrap();
    assert_ne!(rest[0].uri, resources[0].uri);
}

#[test]
fn the_text_of_a_resource_is_cut_and_says_where_read_page_continues() {
    // Characters of several bytes: characters are counted, not bytes.
    let paragraphs =
        (0..45_000).map(|number| format!("<p>Док {number} of the harbour.</p>")).collect::<Vec<_>>().concat();
    let reader = reader_of(&[("long.html", &paragraphs), ("short.html", "<p>short")]);
    let text_of = |uri: &str| {
        let contents = serde_json::to_value(reader.read_resource(uri).unwrap()).unwrap();
        contents["text"].as_str().unwrap().to_owned()
    };
    assert_eq!(text_of("docwharf:///short.html"), "short\n");
    let text = text_of("docwharf:///long.html");
    let (part, note) = text.split_once("\n(The page is longer: ").unwrap();
    let length = part.chars().count();
    assert!((MAX_RESOURCE_CHARS - MAX_PART_CHARS..=MAX_RESOURCE_CHARS).contains(&length), "{length}");
    assert_eq!(note, format!("read the rest with the tool read_page, offset {length}.)\n"));
    let rest = read_page(&reader, json!({ "url": "/long.html", "offset": length }));
    assert!(rest["total"].as_u64().unwrap() > length as u64);
    let last: Vec<usize> = [part, rest["markdown"].as_str().unwrap()]
        .into_iter()
        .flat_map(|text| text.split("Док ").skip(1))
        .map(|paragraph| paragraph.split(' ').next().unwrap().parse().unwrap())
        .collect();
    assert!(last.iter().copied().eq(0..last.len()), "the parts follow each other");
    assert!(last.len() > part.matches("Док ").count(), "the rest has paragraphs");
}
