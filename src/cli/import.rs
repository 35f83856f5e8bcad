//! `docwharf import FILE|DIR`: imports a bundle, in this process or through the daemon that has the store open.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use crate::admin::control_messages::{self, CommandAction, CommandResult};
use docwharf_agent::sync::import::{ImportRequest, import};
use docwharf_agent::sync::system::TaskContext;
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
    /// Add this label to the version
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
        let sync_settings = sync::foreground_sync_settings(&config);
        let source = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone()).display().to_string();
        // With `publish`, another server may serve the version. The note about a missing daemon would be wrong then.
        let is_published = config.publish.is_some();
        let config_inputs = context.config_inputs();
        let copy_to_remove: Arc<Mutex<Option<BundleCopy>>> = Arc::default();
        let copy_slot = Arc::clone(&copy_to_remove);
        let outcome = run_interruptible(context, move |task_context| {
            check_readable(&self.path)?;
            match open_store_or_daemon(&config.store, task_context)? {
                StoreAccess::Writer(writer) => {
                    task_context.progress.set_step("verifying the bundle");
                    let progress = &task_context.progress.sealing;
                    let (path, author) = (self.path.as_path(), current_user_name());
                    let request = ImportRequest {
                        path,
                        file: None,
                        source: &source,
                        label: label.as_ref(),
                        author: &author,
                        force: self.force,
                    };
                    let report = import(&writer, &|| sync_settings.clone(), request, progress)?;
                    Ok((CommandResult::from_report(&report), publish_active(&config_inputs, &writer), true))
                }
                StoreAccess::Daemon(daemon) => {
                    // Stored outside of this closure, so that the copy is removed after a signal as well. Otherwise it
                    // would stay until the next start of the daemon.
                    let copy = BundleCopy::create(&config.store)?;
                    let path = copy.path.clone();
                    *copy_slot.lock() = Some(copy.clone());
                    copy.copy_from(&self.path, &sync_settings.seal_options, task_context)?;
                    let action = CommandAction::Import(control_messages::ImportCommand {
                        path,
                        source,
                        label: self.label,
                        force: self.force,
                    });
                    execute_on_daemon(&daemon, &config.store, action, None, task_context)
                        .map(|result| (result, Ok(()), false))
                }
            }
        });
        if let Some(copy) = copy_to_remove.lock().take() {
            copy.remove();
        }
        let (result, published, is_local) = outcome??;
        print_command_result(context, &result).and(published)?;
        if is_local && !is_published && !context.global.json {
            let start_command = context.start_command();
            context.print_note(&format!("docwharf: no daemon serves this store; `{start_command}` starts one"));
        }
        Ok(())
    }
}

/// Checks whether this process can read the bundle, before it creates a store for it.
fn check_readable(path: &Path) -> Result<(), SealError> {
    let unread = |source| SealError::Read { path: path.into(), source };
    if fs::metadata(path).map_err(unread)?.is_dir() {
        return Ok(());
    }
    regular_file::open(path).map(drop).map_err(unread)
}

/// A copy of the bundle in the store, where the daemon can read it. The daemon may not see the original: it may run as
/// another user, with its own `/tmp` and without `/home`.
#[derive(Debug, Clone)]
struct BundleCopy {
    /// The path that is sent to the daemon.
    path: PathBuf,
    /// The folder, held open and never opened through a link: another user may own it, and this process may be root.
    folder: Directory,
    name: String,
}

impl BundleCopy {
    fn create(store: &Path) -> Result<BundleCopy, CommandFailure> {
        let staging = store.join("staging");
        let folder = Directory::open_no_follow(&staging);
        let folder = folder.map_err(CommandFailure::local(format!("cannot open {}", staging.display())))?;
        let random = backoff::random_fraction().to_bits();
        let name = format!("import-{}-{random:x}.tar", std::process::id());
        Ok(BundleCopy { path: staging.join(&name), folder, name })
    }

    fn copy_from(
        &self,
        source: &Path,
        seal_options: &SealOptions,
        task_context: &TaskContext,
    ) -> Result<(), CommandFailure> {
        let doing = || format!("cannot copy {} into the store", source.display());
        let unread = |error| SealError::Read { path: source.into(), source: error };
        if fs::metadata(source).map_err(unread)?.is_dir() {
            task_context.progress.set_step("packing the folder");
            // `pack` makes the file readable for all users (0644).
            let target_path = self.folder.proc_fd_path().join(&self.name);
            pack(source, &target_path, seal_options, &task_context.progress.sealing)?;
            return Ok(());
        }
        task_context.progress.set_step("copying the bundle for the daemon");
        let mut source = regular_file::open(source).map_err(unread)?;
        let mut target = self.folder.create_file(&self.name, 0o600).map_err(CommandFailure::local(doing()))?;
        std::io::copy(&mut source, &mut target).map_err(CommandFailure::local(doing()))?;
        // The daemon may run as any user.
        target.set_permissions(fs::Permissions::from_mode(0o644)).map_err(CommandFailure::local(doing()))
    }

    fn remove(&self) {
        let _ = self.folder.remove_file(&self.name);
    }
}
