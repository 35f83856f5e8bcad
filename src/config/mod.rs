//! The configuration: as written ([`written`]), read by the table of all keys ([`keys`]), then checked ([`checked`]).
//! All mistakes are reported at once.

pub mod access;
pub mod checked;
mod checker;
pub mod default_file;
mod gate;
mod intent;
pub mod key_documents;
pub mod key_table;
pub mod keys;
mod listen;
#[cfg(feature = "origin")]
pub mod origin;
pub mod problem;
pub mod protection;
mod publish;
mod rules;
pub mod schema;
mod serving;
pub mod show;
pub mod sources;
mod store_path;
mod store_space;
pub mod systemd_credentials;
pub mod systemd_unit;
pub mod tls;
mod toml_text;
pub mod value_parsers;
pub mod written;
pub mod written_value;
