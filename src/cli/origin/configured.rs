//! The origin that `--config` names: its configuration and its database.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;

use crate::config::origin::{OriginConfig, read};
use docwharf_base::model::limits::BundleLimits;
use docwharf_origin::analytics::AnalyticsLimits;
use docwharf_origin::database::{self, Database};
use docwharf_origin::resource_pools::ResourcePools;
use docwharf_origin::{DATABASE_FILE_NAME, Organization, OriginError, OriginStorage};

use super::super::context::CommandContext;
use super::super::failure::CommandFailure;

/// Reads the configuration of the origin, which `--config` must name, and prints the warnings about it.
pub(in crate::cli) fn read_origin_config(context: &CommandContext) -> Result<OriginConfig, CommandFailure> {
    // The limits in an agent's configuration do not apply to an origin.
    let Some(path) = &context.global.config else {
        return Err(CommandFailure::Usage("name the configuration of the origin: --config origin.toml".to_owned()));
    };
    let config = read(path, BundleLimits::default()).map_err(CommandFailure::Config)?;
    context.print_config_warnings(&config.warnings);
    Ok(config)
}

/// Returns the limits on what is imported into a project, which are those of its organization.
pub(super) fn analytics_limits(config: &OriginConfig, project: &str) -> Result<AnalyticsLimits, CommandFailure> {
    let settings = &config.settings;
    let owners_of = |organization: &'_ Organization| {
        let owner = organization.id.clone();
        organization.projects.iter().map(move |project| (project.id.clone(), owner.clone())).collect::<Vec<_>>()
    };
    let owners: BTreeMap<String, String> = settings.organizations.iter().flat_map(owners_of).collect();
    let Some(owner) = owners.get(project).cloned() else {
        return Err(CommandFailure::Usage(format!("there is no project {project:?} in the file")));
    };
    let pools = ResourcePools::new(settings.limits, settings.organizations.len());
    Ok(AnalyticsLimits::new(&owner, Arc::new(owners), pools, None, settings.min_free))
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
