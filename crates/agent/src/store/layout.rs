//! Names of the files and directories in a store.

/// Name of the image in a version's directory.
pub const IMAGE: &str = "site.zip";
/// Name of the index in a version's directory.
pub const INDEX: &str = "index";
/// Name of the control socket in a store.
pub const CONTROL: &str = "control.sock";
/// Name of the database with what readers searched for and read.
pub const ANALYTICS_DATABASE: &str = "analytics.db";
/// Name of the directory with data that was computed from versions.
pub(super) const DERIVED: &str = "derived";
/// Name of the record's file.
pub(super) const RECORD: &str = "state.json";
/// Name of the copy of a damaged record, which may have been edited by hand.
pub(super) const DAMAGED_RECORD: &str = "state.json.damaged";
