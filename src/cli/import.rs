//! `docwharf import FILE|DIR`: imports a bundle, itself or through the daemon that has the store open.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use crate::admin::control_messages::{self, CommandAction, CommandResult};
use docwharf_agent::sync::import::{ImportRequest, import};
use docwharf_agent::sync::system::SyncContext;
use docwharf_base::backoff;
use docwharf_base::directory::Directory;
use docwharf_base::locks::Mutex;
use docwharf_base::model::version::VersionLabel;
use docwharf_base::regular_file;
use docwharf_site::seal::pack::pack;
use docwharf_site::seal::{SealError, SealOptions};

use super::context::{CommandContext, current_user_name};
use super::failure::CommandFailure;
use super::interruptible::run_interruptible;
use super::publish::publish_active;
use super::sync;
use super::write_command::{StoreAccess, execute_on_daemon, open_store_or_daemon, print_command_result};

#[derive(Debug, Args)]
pub(super) struct ImportBundleCommand {
    /// A zip, tar, tar.gz or tar.zst, or a folder
    path: PathBuf,
    /// Give the version this label
    #[arg(long)]
    label: Option<String>,
    /// Activate it even if the gate refuses it; a hold or a pin stays
    #[arg(long)]
    force: bool,
}

impl ImportBundleCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let label = self.label.as_deref().map(VersionLabel::new).transpose();
        let label = label.map_err(|why| CommandFailure::Usage(format!("--label: {why}")))?;
        let config = context.config()?;
        let intent = sync::foreground_intent(&config);
        let source = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone()).display().to_string();
        // With `publish`, another server may serve the version: the note about a missing daemon would be wrong.
        let is_published = config.publish.is_some();
        let sources = context.sources();
        let deposited: Arc<Mutex<Option<StagedBundleCopy>>> = Arc::default();
        let keeps = Arc::clone(&deposited);
        let ended = run_interruptible(context, move |means| match open_store_or_daemon(&config.store, means)? {
            StoreAccess::Writer(writer) => {
                means.doing.tell("verifying the bundle");
                let meter = &means.doing.sealing;
                let (path, who) = (self.path.as_path(), current_user_name());
                let handed = ImportRequest {
                    path,
                    file: None,
                    source: &source,
                    label: label.as_ref(),
                    who: &who,
                    force: self.force,
                };
                let report = import(&writer, &|| intent.clone(), handed, meter)?;
                Ok((CommandResult::from_report(&report), publish_active(&sources, &writer), true))
            }
            StoreAccess::Daemon(daemon) => {
                // Kept outside of this closure, so that the copy is removed after a signal as well. Otherwise it would
                // stay until the next start of the daemon.
                let deposit = StagedBundleCopy::create(&config.store)?;
                let path = deposit.path.clone();
                *keeps.lock() = Some(deposit.clone());
                deposit.copy_from(&self.path, &intent.effort, means)?;
                let verb = CommandAction::Import(control_messages::ImportCommand {
                    path,
                    source,
                    label: self.label,
                    force: self.force,
                });
                execute_on_daemon(&daemon, &config.store, verb, None, means).map(|told| (told, Ok(()), false))
            }
        });
        if let Some(deposit) = deposited.lock().take() {
            deposit.remove();
        }
        let (told, published, is_here) = ended??;
        print_command_result(context, &told).and(published)?;
        if is_here && !is_published && !context.global.json {
            let how = context.start_command();
            context.print_note(&format!("docwharf: no daemon serves this store at the moment; `{how}` does"));
        }
        Ok(())
    }
}

/// A copy of the bundle in the store, where the daemon can read it. The daemon may not see the original: it may run as
/// another user, with its own `/tmp` and without `/home`.
#[derive(Debug, Clone)]
struct StagedBundleCopy {
    /// The path that is sent to the daemon.
    path: PathBuf,
    /// The folder, held open and never opened through a link: another user may own it, and this process may be root.
    folder: Directory,
    name: String,
}

impl StagedBundleCopy {
    fn create(store: &Path) -> Result<StagedBundleCopy, CommandFailure> {
        let staging = store.join("staging");
        let opened = Directory::open_unlinked(&staging);
        let opened = opened.map_err(CommandFailure::local(format!("cannot open {}", staging.display())))?;
        let random = backoff::random_fraction().to_bits();
        let name = format!("import-{}-{random:x}.tar", std::process::id());
        Ok(StagedBundleCopy { path: staging.join(&name), folder: opened, name })
    }

    fn copy_from(&self, from: &Path, effort: &SealOptions, means: &SyncContext) -> Result<(), CommandFailure> {
        let doing = || format!("cannot copy {} into the store", from.display());
        let unread = |source| SealError::Read { path: from.into(), source };
        if fs::metadata(from).map_err(unread)?.is_dir() {
            means.doing.tell("packing the folder");
            // `pack` makes the file readable for all users (0644).
            let beside = self.folder.path_of_descriptor().join(&self.name);
            pack(from, &beside, effort, &means.doing.sealing)?;
            return Ok(());
        }
        means.doing.tell("handing the bundle to the daemon");
        let mut from = regular_file::open(from).map_err(unread)?;
        let mut to = self.folder.create_file(&self.name, 0o600).map_err(CommandFailure::local(doing()))?;
        std::io::copy(&mut from, &mut to).map_err(CommandFailure::local(doing()))?;
        // The daemon may run as any user.
        to.set_permissions(fs::Permissions::from_mode(0o644)).map_err(CommandFailure::local(doing()))
    }

    fn remove(&self) {
        let _ = self.folder.remove_file(&self.name);
    }
}
