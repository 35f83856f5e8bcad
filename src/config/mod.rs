//! The configuration: as written ([`written`]), read by the table of all keys ([`keys`]), then checked ([`checked`]).
//! All mistakes are reported at once.

pub mod access;
pub mod analytics;
pub mod analytics_delivery;
pub mod assistant;
pub mod checked;
mod checker;
pub mod default_file;
mod deployment;
mod gate;
pub mod inputs;
pub mod key_documents;
pub mod key_table;
pub mod keys;
pub mod link_file;
mod listen;
#[cfg(feature = "origin")]
pub mod origin;
pub mod playground;
pub mod problem;
mod publish;
mod rules;
pub mod schema;
pub mod search;
pub mod security_headers;
mod serving;
pub mod show;
pub mod starter;
mod store_path;
mod store_space;
mod sync_settings;
pub mod systemd_credentials;
pub mod systemd_unit;
pub mod tls;
mod toml_text;
pub mod value_parsers;
pub mod written;
pub mod written_value;
