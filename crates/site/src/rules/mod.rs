//! Redirects, rewrites and header fields by address.
//!
//! The rules come from the bundle (`_redirects`, `_headers`, the `redirects` of a `docs.json`) and from the operator's
//! configuration. They are read once, when a version or the configuration is opened; a faulty rule of a bundle is left
//! out and reported. A redirect from one address is found in a hash table; other redirects and all rules of header
//! fields are tried in their order. The limits on their number and length keep a hostile bundle from slowing the server
//! down.

pub mod destination;
pub mod docs_json;
pub mod header_fields;
pub mod netlify_files;
pub mod operator_restrictions;
pub mod pattern;
pub mod robots_tag;
pub mod route;
pub(crate) mod rule;
pub mod rule_check;
pub(crate) mod rule_draft;
pub(crate) mod rule_set;

pub use rule::{RedirectRule, RuleAction};
pub use rule_draft::{RuleDraft, RuleFault};
pub use rule_set::RuleSet;
