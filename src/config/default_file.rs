//! The default configuration file.

/// The default path of the configuration.
pub const DEFAULT_FILE: &str = "/etc/docwharf/config.toml";
