//! The origin that `--config` names: its configuration and its database.

use std::os::unix::fs::DirBuilderExt;

use crate::config::origin::{OriginConfig, read};
use docwharf_base::model::limits::BundleLimits;
use docwharf_origin::database::{self, Database};
use docwharf_origin::{DATABASE_FILE_NAME, OriginError, OriginStorage};

use super::super::context::CommandContext;
use super::super::failure::CommandFailure;

/// Reads the configuration of the origin, which `--config` must name.
pub(super) fn read_origin_config(context: &CommandContext) -> Result<OriginConfig, CommandFailure> {
    // The limits in an agent's configuration do not apply to an origin.
    let Some(path) = &context.global.config else {
        return Err(CommandFailure::Usage("name the configuration of the origin: --config origin.toml".to_owned()));
    };
    read(path, BundleLimits::default()).map_err(CommandFailure::Config)
}

/// Opens the database of the origin and creates its folder if it is missing. Another process may be serving it.
pub(super) fn open_database(config: &OriginConfig) -> Result<Database, CommandFailure> {
    let OriginStorage::Folder(folder) = &config.settings.storage else {
        return Err(CommandFailure::Usage("this origin stores nothing; set store.path".to_owned()));
    };
    let mut builder = std::fs::DirBuilder::new();
    let created = builder.recursive(true).mode(0o711).create(folder);
    created.map_err(CommandFailure::local(format!("cannot create {}", folder.display())))?;
    Ok(database::open_database(&folder.join(DATABASE_FILE_NAME)).map_err(OriginError::from)?)
}
