//! Commands to a running daemon: queued as a task, or executed at once.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use crate::admin::command_execution::execute_at_once;
use crate::admin::control_messages::{CommandAction, CommandReply, CommandResult, DaemonCommand};
use crate::admin::routes::QueuedCommand;
use docwharf_agent::sync::plan::SyncTrigger;
use docwharf_agent::sync::{SyncError, operator};
use docwharf_base::error_chain::OneLine;
use docwharf_base::model::version::{VersionId, VersionLabel};

use super::main_loop::MainLoop;
use super::pending_tasks::TaskCommand;
use super::reporter::{CommandError, ReplySender, log_report};

impl MainLoop {
    /// Executes a command, or queues it as a next task.
    pub(super) async fn execute_command(&mut self, queued: QueuedCommand) {
        let QueuedCommand { command, reply } = queued;
        if matches!(command.action, CommandAction::Sync { .. }) {
            // A link that was replaced just before `docwharf sync` is the one to fetch.
            self.read_changed_files();
        }
        if let Some(digest) = &command.source_digest
            && *digest != self.configuration.sync_settings().configured_source_digest()
        {
            let _ = reply.send(self.reporter.failure(&CommandError::OtherConfiguration));
            return;
        }
        match command.action {
            CommandAction::Sync { refresh, force } => {
                self.cancel_task_for(TaskCommand::Sync);
                let trigger = if refresh { SyncTrigger::Refresh } else { SyncTrigger::Command };
                self.pending.request_sync(trigger, force, command.author, reply);
            }
            CommandAction::Import(import) => match import.label.as_deref().map(VersionLabel::new).transpose() {
                Ok(_) => {
                    self.cancel_task_for(TaskCommand::Import);
                    self.pending.request_import(import, command.author, reply);
                }
                Err(why) => {
                    let _ = reply.send(self.reporter.failure(&CommandError::Label(why)));
                }
            },
            CommandAction::Release => self.end_hold(command.author, reply).await,
            _ => {
                let answer = self.execute_at_once(command).await;
                let _ = reply.send(answer);
            }
        }
    }

    /// Ends a hold at once. The version that becomes active is decided at once as well, unless the gate has to read
    /// pages for that: then the decision is the next task, and the client gets its reply afterwards.
    async fn end_hold(&mut self, author: String, waiter: ReplySender) {
        let (writer, sync_settings, task_author) =
            (Arc::clone(&self.writer), self.configuration.sync_settings().clone(), author.clone());
        let done = spawn_blocking(move || {
            let was_held = operator::end_hold(&*writer, &task_author)?;
            // Cancelled from the start, so that the decision is made only if the gate has to read no page; otherwise it
            // becomes a task.
            let in_force = || sync_settings.clone();
            Ok((was_held, operator::activate_target_version(&*writer, &in_force, &task_author, &|| true)))
        });
        match done.await.unwrap_or_else(|error| Err(SyncError::Bug(error.to_string()))) {
            Ok((was_held, Err(SyncError::Cancelled))) => {
                log_release(was_held, &author);
                self.cancel_task_for(TaskCommand::Release);
                self.pending.request_release(was_held, author, waiter);
            }
            Ok((was_held, result)) => {
                log_release(was_held, &author);
                if let Ok(report) = &result {
                    log_report(report);
                }
                self.served.serve_active(self.configuration.sync_settings().seal_options).await;
                self.reporter.reply_to_release(self.writer.store(), was_held, vec![waiter], &result);
            }
            Err(error) => self.reporter.reply(vec![waiter], &Err(error)),
        }
        // A hold prevents automatic exports, so the source may have a newer version that was not fetched.
        self.pending.request_check_now(SyncTrigger::Changed);
    }

    /// Executes a command that needs no task, even while a sync runs.
    async fn execute_at_once(&mut self, command: DaemonCommand) -> CommandReply {
        let (writer, sync_settings) = (Arc::clone(&self.writer), self.configuration.sync_settings().clone());
        let DaemonCommand { action, author, .. } = command.clone();
        let done = spawn_blocking(move || execute_at_once(&writer, &sync_settings, &action, &author)).await;
        let (result, activated) = match done {
            Ok(Ok(Some(done))) => done,
            Ok(Ok(None)) => return self.reporter.failure(&CommandError::NotAtOnce),
            Ok(Err(error)) => return self.reporter.failure(&CommandError::Failed(&error)),
            Err(error) => {
                let error = SyncError::Bug(error.to_string());
                return self.reporter.failure(&CommandError::Failed(&error));
            }
        };
        log_command(&command, activated.as_ref().map(|version| version.id), &result);
        if let Some(version) = activated {
            self.served.serve(version.id, version);
        }
        // A sync may have activated another version in between: the record decides.
        self.served.serve_active(self.configuration.sync_settings().seal_options).await;
        CommandReply::Executed(result)
    }
}

/// Logs a command that was executed at once and decides which version is active. `activated` is the version that it has
/// activated.
fn log_command(command: &DaemonCommand, activated: Option<VersionId>, result: &CommandResult) {
    let author = OneLine(&command.author);
    let doing = match &command.action {
        CommandAction::Activate { .. } => "activated",
        CommandAction::Rollback => "rolled back",
        CommandAction::Hold { reason } => {
            let why = OneLine(reason);
            tracing::info!("activation is stopped by {author} ({why}) until `docwharf release`");
            return;
        }
        _ => return,
    };
    if let Some(id) = activated {
        let hold = if result.json["held"] == true { "; held until `docwharf release`" } else { "" };
        tracing::info!("version {} is active: {doing} by {author}{hold}", id.short());
    }
}

fn log_release(was_held: bool, author: &str) {
    if was_held {
        tracing::info!("the hold is ended by {}", OneLine(author));
    }
}
