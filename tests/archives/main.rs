//! Archives: which bundles are accepted, which are refused, and how much memory and disk space reading them needs.

#![allow(clippy::disallowed_methods)] // it starts programs

mod archive_checks;
mod audit;
mod bounds;
mod codec;
#[cfg(feature = "origin")]
mod fuzz_replay;
mod known_vulnerabilities;
mod layout;
mod limits;
mod names;
mod sealing;
mod tar;
mod zip;
