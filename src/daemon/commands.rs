//! Commands to a running agent: queued as a task, or executed at once.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use crate::admin::command_execution::execute_at_once;
use crate::admin::control_messages::{CommandAction, CommandReply, DaemonCommand};
use crate::admin::routes::QueuedCommand;
use docwharf_agent::sync::plan::SyncTrigger;
use docwharf_agent::sync::{SyncError, operator};
use docwharf_base::model::version::VersionLabel;

use super::agent::Agent;
use super::pending_tasks::TaskCommand;
use super::reporter::{CommandError, ReplySender};

impl Agent {
    /// Executes a command, or queues it as a next task.
    pub(super) async fn execute_command(&mut self, queued: QueuedCommand) {
        let QueuedCommand { command, reply } = queued;
        if let Some(digest) = &command.source_digest
            && *digest != self.configuration.intent().source_digest()
        {
            let _ = reply.send(self.reporter.failure(&CommandError::OtherConfiguration));
            return;
        }
        match command.action {
            CommandAction::Sync { refresh, force } => {
                self.cancel_task_for(TaskCommand::Sync);
                let trigger = if refresh { SyncTrigger::Refresh } else { SyncTrigger::Command };
                self.pending.request_sync(trigger, force, command.who, reply);
            }
            CommandAction::Import(import) => match import.label.as_deref().map(VersionLabel::new).transpose() {
                Ok(_) => {
                    self.cancel_task_for(TaskCommand::Import);
                    self.pending.request_import(import, command.who, reply);
                }
                Err(why) => {
                    let _ = reply.send(self.reporter.failure(&CommandError::Label(why)));
                }
            },
            CommandAction::Release => self.end_hold(command.who, reply).await,
            _ => {
                let answer = self.execute_at_once(command).await;
                let _ = reply.send(answer);
            }
        }
    }

    /// Ends a hold at once. The version that becomes active is decided at once as well, unless the gate has to read
    /// pages for that: then the decision is the next task, and the client gets its reply afterwards.
    async fn end_hold(&mut self, who: String, waiter: ReplySender) {
        let (writer, intent, author) = (Arc::clone(&self.writer), self.configuration.intent().clone(), who.clone());
        let done = spawn_blocking(move || {
            let was_held = operator::end_hold(&*writer, &author)?;
            // Cancelled from the start, so that the decision is made only if the gate has to read no page; otherwise it
            // becomes a task.
            Ok((was_held, operator::activate_target_version(&*writer, &|| intent.clone(), &author, &|| true)))
        });
        match done.await.unwrap_or_else(|error| Err(SyncError::Bug(error.to_string()))) {
            Ok((was_held, Err(SyncError::Interrupted))) => {
                self.cancel_task_for(TaskCommand::Release);
                self.pending.request_release(was_held, who, waiter);
            }
            Ok((was_held, result)) => {
                self.served.serve_active(self.configuration.intent().seal_options).await;
                self.reporter.reply_to_release(self.writer.store(), was_held, vec![waiter], &result);
            }
            Err(error) => self.reporter.reply(vec![waiter], &Err(error)),
        }
        // A hold prevents automatic exports, so the source may have a newer version that was not fetched.
        self.pending.request_check_now(SyncTrigger::Changed);
    }

    /// Executes a command that needs no task, even while a sync runs.
    async fn execute_at_once(&mut self, command: DaemonCommand) -> CommandReply {
        let (writer, intent) = (Arc::clone(&self.writer), self.configuration.intent().clone());
        let done = spawn_blocking(move || execute_at_once(&writer, &intent, &command.action, &command.who)).await;
        let (result, activated) = match done {
            Ok(Ok(Some(done))) => done,
            Ok(Ok(None)) => return self.reporter.failure(&CommandError::NotAtOnce),
            Ok(Err(error)) => return self.reporter.failure(&CommandError::Failed(&error)),
            Err(error) => {
                let error = SyncError::Bug(error.to_string());
                return self.reporter.failure(&CommandError::Failed(&error));
            }
        };
        if let Some(version) = activated {
            self.served.serve(version.id, version);
        }
        // A sync may have activated another version in between: the record decides.
        self.served.serve_active(self.configuration.intent().seal_options).await;
        CommandReply::Executed(result)
    }
}
