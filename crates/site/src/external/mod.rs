//! Finds the external resources of a site. Every HTML page, style sheet, script, SVG image, web app manifest and XML
//! document of a sealed version is read, and each address in it that a browser would fetch is reported together with
//! its purpose. The content security policies ([`csp`]) and the report of `bundle audit` ([`audit`]) are computed from
//! these facts.
//!
//! Files may be hostile. Reading one page needs at most [`page::MAX_PAGE_MEMORY_BYTES`] bytes, of any other file only
//! the first 8 MiB are read, and the receivers of the facts limit what they store of a whole site.

pub mod address;
pub mod audit;
mod base_address;
pub mod character_references;
mod content_fact;
pub mod csp;
pub mod css;
mod element;
mod inline;
mod json_scripts;
mod manifest;
pub mod page;
mod script;
mod site_reader;
mod source_format;
mod xml;

pub use content_fact::{ContentFact, RESOURCE_KINDS, ResourceKind};
pub use source_format::{SourceFormat, detect_source_format};
