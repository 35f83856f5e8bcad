//! The command line: commands, exit codes, output, help.

mod admin;
mod analytics;
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
mod manuals;
mod preview;
mod search;
mod verbs;
