//! What must hold for any input whatever: one function a target, which panics where it does not.
//!
//! The fuzz targets call these with what libFuzzer makes up, and `tests/archives/fuzz_replay.rs` with the corpora in this folder.
//! None of them is content with not crashing. They hold the program against an independent reader of the same format,
//! against a naive model that can afford to be slow, or against what the input was made of.
//!
//! Targets called `…_built` read their input as a description of an archive, and write that down with its checksums:
//! plain bytes seldom come past those.

#![allow(missing_docs, unreachable_pub)] // a library for fuzz targets, a module for a test

mod address;
#[path = "api.rs"]
mod answers;
mod archive;
mod config;
mod cursor;
mod headers;
mod hpack;
mod http1;
mod http2;
mod index;
mod inflate;
mod peer;
mod pipe;
mod recipe;
mod rfc7541;
mod robots;
mod rules;
mod sitemap;
mod tar;
mod zip;
mod zstd_frame;

use support::tar as make_tar;
use support::zip as make_zip;

/// Panics unless what must hold does.
pub type Check = fn(&[u8]);

/// Every target: the name of its fuzz target and of its corpus, and its function.
pub const TARGETS: &[(&str, Check)] = &[
    ("zip", zip::bytes),
    ("zip_built", zip::built),
    ("tar", tar::bytes),
    ("tar_built", tar::built),
    ("inflate", inflate::inflate),
    ("lookup", address::lookup),
    ("rules", rules::rules),
    ("range", headers::range),
    ("accept_encoding", headers::accept_encoding),
    ("conditional", headers::conditional),
    ("forwarded", peer::forwarded),
    ("config", config::config),
    ("api", answers::api),
    ("http1_head", http1::http1_head),
    ("http2", http2::http2),
    ("hpack", hpack::hpack),
    ("zstd_frame", zstd_frame::zstd_frame),
    ("index", index::index),
    ("sitemap", sitemap::sitemap),
    ("robots", robots::robots),
    ("cursor", cursor::cursor),
    ("retry_after", headers::retry_after),
];

/// From now on nothing is left out for the sake of speed.
pub fn be_thorough() {
    archive::THOROUGH.store(true, std::sync::atomic::Ordering::Relaxed);
}

/// Runs the target of this name.
pub fn check(target: &str, data: &[u8]) {
    let (_, check) = TARGETS.iter().find(|(name, _)| *name == target).expect("a target of this name");
    check(data);
}
