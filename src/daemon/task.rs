//! The thread on which `run` checks the source, downloads, verifies and seals. It requests a lower priority than that
//! of the serving threads, and at most `sync.threads` processors. Where the latter is refused, as by the
//! `SystemCallFilter` of the shipped unit, `sync.threads` only limits the number of threads.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use arc_swap::ArcSwap;
use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use tokio::sync::{oneshot, watch};

use crate::admin::control_messages::{CommandReply, ImportCommand};
use docwharf_agent::store::writer::StoreWriter;
use docwharf_agent::sync::activation::SyncReport;
use docwharf_agent::sync::import::{ImportRequest, import};
use docwharf_agent::sync::inbox::InboxFile;
use docwharf_agent::sync::plan::SyncTrigger;
use docwharf_agent::sync::system::{self, TaskContext, TaskProgress};
use docwharf_agent::sync::{SyncError, SyncSettings, open, operator};
use docwharf_base::model::version::{VersionId, VersionLabel};
use docwharf_base::processors;
use docwharf_base::secret::panic_message;
use docwharf_site::seal::SealError;
use docwharf_site::sealed_version::SealedVersion;

/// Niceness of background threads (nice(2)); that of the serving threads is left as it is.
const BACKGROUND_NICENESS: i32 = 10;

/// A task for the thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DaemonTask {
    /// A sync.
    Sync {
        /// The event that caused it.
        trigger: SyncTrigger,
        /// Whether the version becomes active although the gate refuses it.
        force: bool,
        /// The user whose command requested it, if a command did.
        author: Option<String>,
    },
    /// The import of a file from the inbox.
    Inbox(InboxFile),
    /// The import of a bundle by command, with the user who ran the command.
    Import(ImportCommand, String),
    /// The decision after the end of a hold, for which the gate reads the target version.
    Release {
        /// Whether there was a hold.
        was_held: bool,
        /// The user who ended it.
        author: String,
    },
}

/// The kind of a task. It decides which commands cancel the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskKind {
    /// A sync that no command has requested.
    AutomaticSync,
    /// A sync by command.
    CommandedSync,
    /// An import, by command or from the inbox.
    Import,
    /// The decision after the end of a hold.
    Release,
}

impl DaemonTask {
    /// Returns the kind of the task.
    pub(super) fn kind(&self) -> TaskKind {
        match self {
            DaemonTask::Sync { trigger, .. } if *trigger < SyncTrigger::Command => TaskKind::AutomaticSync,
            DaemonTask::Sync { .. } => TaskKind::CommandedSync,
            DaemonTask::Inbox(_) | DaemonTask::Import(..) => TaskKind::Import,
            DaemonTask::Release { .. } => TaskKind::Release,
        }
    }

    /// Returns the author of the task for receipts and history.
    fn author(&self) -> &str {
        match self {
            DaemonTask::Sync { author, .. } => author.as_deref().unwrap_or("docwharf run"),
            DaemonTask::Inbox(_) => "inbox",
            DaemonTask::Import(_, author) | DaemonTask::Release { author, .. } => author,
        }
    }

    /// Returns whether the version becomes active although the gate refuses it.
    fn is_forced(&self) -> bool {
        match self {
            DaemonTask::Sync { force, .. } => *force,
            DaemonTask::Inbox(_) | DaemonTask::Release { .. } => false,
            DaemonTask::Import(import, _) => import.force,
        }
    }
}

/// The result of a task.
#[derive(Debug)]
pub(super) struct FinishedTask {
    pub(super) task: DaemonTask,
    pub(super) result: Result<SyncReport, SyncError>,
    pub(super) opened: VersionToServe,
}

/// A task in progress.
#[derive(Debug)]
pub(super) struct RunningTask {
    /// Resolves when the task is done; an error means that the thread died.
    pub(super) done: oneshot::Receiver<FinishedTask>,
    pub(super) kind: TaskKind,
    stop: watch::Sender<bool>,
    /// The progress, for display.
    pub(super) progress: Arc<TaskProgress>,
    /// The time at which the task started.
    pub(super) started: Instant,
    /// The clients that wait for the result.
    pub(super) waiting: Vec<oneshot::Sender<CommandReply>>,
}

impl RunningTask {
    /// Starts a task on a separate thread, under the configuration in force. `served` is the version that is served
    /// now.
    pub(super) fn start(
        task: DaemonTask,
        writer: &Arc<StoreWriter>,
        in_force: &Arc<ArcSwap<SyncSettings>>,
        served: Option<VersionId>,
        runtime: tokio::runtime::Handle,
    ) -> io::Result<RunningTask> {
        let (stop, stopped) = watch::channel(false);
        let (send, done) = oneshot::channel();
        let kind = task.kind();
        let progress = Arc::new(TaskProgress::default());
        let task_progress = Arc::clone(&progress);
        let (writer, in_force) = (Arc::clone(writer), Arc::clone(in_force));
        let sync_settings = in_force.load_full();
        thread::Builder::new().name("docwharf-sync".to_owned()).spawn(move || {
            lower_priority_to_background(sync_settings.seal_options.threads);
            let task_context = TaskContext {
                runtime,
                stop: stopped,
                progress: task_progress,
                author: task.author().to_owned(),
                force: task.is_forced(),
                in_force: Some(in_force),
            };
            // A panic in the task must not end the server: serving does not depend on the task.
            let done = panic::catch_unwind(AssertUnwindSafe(|| {
                run_task(&task, &writer, &sync_settings, served, &task_context)
            }));
            let (result, opened) =
                done.unwrap_or_else(|panic| (Err(SyncError::Bug(panic_message(panic.as_ref()).to_owned())), None));
            // There is no receiver any more when the program ends.
            let _ = send.send(FinishedTask { task, result, opened });
        })?;
        Ok(RunningTask { done, kind, stop, progress, started: Instant::now(), waiting: Vec::new() })
    }

    /// Sets the clients that wait for the result.
    pub(super) fn with_waiting(self, waiting: Vec<oneshot::Sender<CommandReply>>) -> RunningTask {
        RunningTask { waiting, ..self }
    }

    /// Cancels the task at its next wait or page. An import cannot be cancelled.
    pub(super) fn cancel(&self) {
        self.stop.send_replace(true);
    }
}

/// The active version after a task, opened to be served, or the error of opening it. `None` if the task has opened
/// none: it failed, no version is active, or the active version is served already or is known to be damaged.
pub(super) type VersionToServe = Option<(VersionId, Result<SealedVersion, SyncError>)>;

fn run_task(
    task: &DaemonTask,
    writer: &StoreWriter,
    sync_settings: &SyncSettings,
    served: Option<VersionId>,
    task_context: &TaskContext,
) -> (Result<SyncReport, SyncError>, VersionToServe) {
    let result = match task {
        DaemonTask::Sync { trigger, .. } => system::sync_store(writer, sync_settings, *trigger, task_context),
        DaemonTask::Inbox(inbox_file) => {
            let (path, source) = (&inbox_file.path, inbox_file.path.display().to_string());
            let unread = |error| SyncError::Seal(SealError::Read { path: path.clone(), source: error });
            inbox_file.open().map_err(unread).and_then(|file| {
                let (file, author) = (Some(&file), task_context.author.as_str());
                let request =
                    ImportRequest { path, file, source: &source, label: None, author, force: task_context.force };
                import(writer, &|| task_context.in_force(sync_settings), request, &task_context.progress.sealing)
            })
        }
        DaemonTask::Import(command, author) => {
            let label = command.label.as_deref().and_then(|label| VersionLabel::new(label).ok());
            let (path, source) = (&command.path, &command.source);
            let request =
                ImportRequest { path, file: None, source, label: label.as_ref(), author, force: task_context.force };
            import(writer, &|| task_context.in_force(sync_settings), request, &task_context.progress.sealing)
        }
        DaemonTask::Release { author, .. } => {
            task_context.progress.set_step("reading the pages of the target version");
            operator::activate_target_version(writer, &|| task_context.in_force(sync_settings), author, &|| {
                task_context.is_cancelled()
            })
        }
    };
    let active = writer.store().record().ok().and_then(|record| record.active);
    let to_open = active.filter(|&id| result.is_ok() && served != Some(id) && !writer.store().has_read_as_damaged(id));
    let opened = to_open.map(|id| (id, open::open_checked(writer, id, &sync_settings.seal_options)));
    (result, opened)
}

/// Returns the number of background threads if `sync.threads` is not set: half the processors, at least one.
pub(super) fn default_thread_count() -> usize {
    (processors::count() / 2).max(1)
}

/// Lowers the priority of the calling thread and binds it to at most `threads` processors. Threads that it starts
/// inherit both. Failures are ignored: they only slow down serving.
pub(super) fn lower_priority_to_background(threads: usize) {
    let thread_id = gettid();
    let nice = getpriority_process(Some(thread_id)).unwrap_or(0);
    if nice < BACKGROUND_NICENESS {
        let _ = setpriority_process(Some(thread_id), BACKGROUND_NICENESS);
    }
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let mut processors = CpuSet::new();
    // The last processors: most interrupts and other threads run on the first ones.
    let chosen = (0..CpuSet::MAX_CPU).rev().filter(|&cpu| allowed.is_set(cpu)).take(threads);
    for cpu in chosen {
        processors.set(cpu);
    }
    let _ = sched_setaffinity(None, &processors);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_has_an_author_and_only_a_forced_task_skips_the_gate() {
        let import = |force| {
            let command = ImportCommand { path: "a.zip".into(), source: "a.zip".to_owned(), label: None, force };
            DaemonTask::Import(command, "bob".to_owned())
        };
        let sync = |force, author: Option<&str>| DaemonTask::Sync {
            trigger: SyncTrigger::RegularCheck,
            force,
            author: author.map(str::to_owned),
        };
        for (task, author, is_forced) in [
            (sync(false, None), "docwharf run", false),
            (sync(false, Some("ann")), "ann", false),
            (sync(true, Some("ann")), "ann", true),
            (import(false), "bob", false),
            (import(true), "bob", true),
            (DaemonTask::Release { was_held: true, author: "cyd".to_owned() }, "cyd", false),
        ] {
            assert_eq!((task.author(), task.is_forced()), (author, is_forced), "{task:?}");
        }
    }
}
