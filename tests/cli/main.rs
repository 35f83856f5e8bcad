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
mod assistant_settings;
mod configuration;
mod contract;
#[cfg(feature = "origin")]
mod demo;
mod diff;
mod doctor;
mod doctor_assistant;
mod doctor_user;
mod exit_codes;
mod features;
mod first_contact;
mod manuals;
mod mcp;
mod mcp_stored;
mod preview;
mod search;
mod tarball;
mod verbs;
