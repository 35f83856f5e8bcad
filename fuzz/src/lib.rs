//! Properties that must hold for any input: one function for each fuzz target. It panics if the property does not hold.
//!
//! The fuzz targets call these functions with libFuzzer's input, and `tests/archives/fuzz_replay.rs` calls them with
//! the corpora in `fuzz/corpus`. A check does more than look for crashes: it compares the program with an independent
//! implementation of the format, with a simple and slow model, or with the values that the input was made from.
//!
//! The targets `…_built` read their input as a description of an archive, and write that archive with valid checksums.
//! Mutated archives seldom pass the checksums.

#![allow(missing_docs, unreachable_pub)] // a library for fuzz targets, a module for a test

mod address;
mod api;
mod archive;
mod config;
mod cursor;
mod fuzz_input;
mod headers;
mod hpack;
mod http1;
mod http2;
mod index;
mod inflate;
mod page_markdown;
mod peer;
mod pipe;
mod rfc7541;
mod robots;
mod rules;
mod search_extract;
mod sitemap;
mod tar;
mod zip;
mod zstd_frame;

use support::tar as make_tar;
use support::zip as make_zip;

/// Panics if the property does not hold for the input.
pub type Check = fn(&[u8]);

/// All targets: the name, which is also that of the corpus, and the function.
pub const TARGETS: &[(&str, Check)] = &[
    ("zip", zip::archive_bytes),
    ("zip_built", zip::built_archive),
    ("tar", tar::archive_bytes),
    ("tar_built", tar::built_archive),
    ("inflate", inflate::inflate),
    ("lookup", address::lookup),
    ("rules", rules::rules),
    ("range", headers::range),
    ("accept_encoding", headers::accept_encoding),
    ("conditional", headers::conditional),
    ("forwarded", peer::forwarded),
    ("config", config::config),
    ("api", api::api),
    ("http1_head", http1::http1_head),
    ("http2", http2::http2),
    ("hpack", hpack::hpack),
    ("zstd_frame", zstd_frame::zstd_frame),
    ("index", index::index),
    ("sitemap", sitemap::sitemap),
    ("robots", robots::robots),
    ("cursor", cursor::cursor),
    ("retry_after", headers::retry_after),
    ("search_extract", search_extract::search_extract),
    ("page_markdown", page_markdown::page_markdown),
];

/// Runs all checks from now on, including the slow ones.
pub fn be_thorough() {
    archive::THOROUGH.store(true, std::sync::atomic::Ordering::Relaxed);
}

/// Runs the target `target`.
pub fn check(target: &str, data: &[u8]) {
    let (_, check) = TARGETS.iter().find(|(name, _)| *name == target).expect("a target of this name");
    check(data);
}
