//! The command line: commands, exit codes, output, help.

#![allow(clippy::disallowed_methods)] // it starts programs

mod admin;
mod air_gapped;
mod analytics;
#[cfg(feature = "analytics")]
mod analytics_import;
#[cfg(feature = "analytics")]
mod analytics_local;
mod analytics_pages;
mod analytics_report;
mod configuration;
mod contract;
#[cfg(feature = "origin")]
mod demo;
mod diff;
mod doctor;
mod exit_codes;
mod features;
mod manuals;
mod preview;
mod search;
mod verbs;
