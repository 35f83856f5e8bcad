//! The index of a site that Sphinx has made: `objects.inv` has all objects, terms and labels of sections with their
//! addresses, `genindex-all.html` has further places for terms.

use std::io::Read;

use crate::corpus::{OpenCorpus, Target};
use crate::doc_index::DocIndex;
use crate::html::links;

/// The kinds of objects that readers search by name.
const NAME_ROLES: &[&str] = &[
    "py:module",
    "py:class",
    "py:exception",
    "py:function",
    "py:method",
    "py:attribute",
    "py:data",
    "c:function",
    "c:macro",
    "c:type",
];

/// The number of lines before the compressed part of `objects.inv`.
const HEADER_LINES: usize = 4;
/// Pages whose headings name what other pages document.
const CHANGES_FOLDER: &str = "whatsnew/";
/// Terms shorter than this are signs, such as `...`.
const MIN_TERM_CHARS: usize = 3;

pub(crate) fn read_index(corpus: &OpenCorpus) -> Result<DocIndex, String> {
    let inventory = decompress(&corpus.read("objects.inv")?).map_err(|error| format!("objects.inv: {error}"))?;
    let mut index = DocIndex::default();
    for line in inventory.lines() {
        add_object(corpus, &mut index, line);
    }
    add_general_index(&mut index, &corpus.read_text("genindex-all.html")?, corpus);
    Ok(index)
}

fn decompress(inventory: &[u8]) -> std::io::Result<String> {
    let mut compressed = inventory;
    for _ in 0..HEADER_LINES {
        let end = compressed.iter().position(|byte| *byte == b'\n').ok_or(std::io::ErrorKind::UnexpectedEof)?;
        compressed = &compressed[end + 1..];
    }
    let mut text = String::new();
    flate2::read::ZlibDecoder::new(compressed).read_to_string(&mut text)?;
    Ok(text)
}

/// Adds the object of a line: `NAME DOMAIN:ROLE PRIORITY ADDRESS TITLE`. The name may have spaces; `$` at the end of
/// the address stands for the name, and `-` as the title, too.
fn add_object(corpus: &OpenCorpus, index: &mut DocIndex, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let is_role = |at: &usize| words[*at].contains(':') && words.get(at + 1).is_some_and(|n| n.parse::<i32>().is_ok());
    let Some(role) = (1..words.len()).find(is_role) else { return };
    let Some(address) = words.get(role + 2) else { return };
    let (name, title) = (words[..role].join(" "), words[role + 3..].join(" "));
    let href = address.strip_suffix('$').map_or_else(|| (*address).to_owned(), |start| format!("{start}{name}"));
    let target = Target::from_href(&href, "");
    match words[role] {
        "std:term" if name.chars().count() >= MIN_TERM_CHARS => index.terms.add(&name, target, &corpus.pages),
        "std:label" if title != "-" && !href.starts_with(CHANGES_FOLDER) => {
            index.titles.add(&title, target, &corpus.pages);
        }
        kind if NAME_ROLES.contains(&kind) => {
            if let Some((_, last)) = name.rsplit_once('.') {
                index.names.add(last, target.clone(), &corpus.pages);
            }
            index.names.add(&name, target, &corpus.pages);
        }
        _ => {}
    }
}

/// Adds the places that the general index has for terms of the glossary: `term, [1], [2]`.
fn add_general_index(index: &mut DocIndex, html: &str, corpus: &OpenCorpus) {
    let mut term = String::new();
    for link in links(html) {
        if !link.text.starts_with('[') {
            term = link.text;
        }
        if index.terms.has(&term) {
            index.terms.add(&term, Target::from_href(&link.href, "genindex-all.html"), &corpus.pages);
        }
    }
}
