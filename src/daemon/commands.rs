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
    pub(super) async fn execute_command(&mut self, call: QueuedCommand) {
        let QueuedCommand { order, reply } = call;
        if let Some(question) = &order.question
            && *question != self.configuration.intent().question()
        {
            let _ = reply.send(self.reporter.failure(&CommandError::OtherConfiguration));
            return;
        }
        match order.verb {
            CommandAction::Sync { refresh, force } => {
                self.cancel_task_for(TaskCommand::Sync);
                let trigger = if refresh { SyncTrigger::Refresh } else { SyncTrigger::Asked };
                self.pending.request_sync(trigger, force, order.who, reply);
            }
            CommandAction::Import(import) => match import.label.as_deref().map(VersionLabel::new).transpose() {
                Ok(_) => {
                    self.cancel_task_for(TaskCommand::Import);
                    self.pending.request_import(import, order.who, reply);
                }
                Err(why) => {
                    let _ = reply.send(self.reporter.failure(&CommandError::Label(why)));
                }
            },
            CommandAction::Release => self.end_hold(order.who, reply).await,
            _ => {
                let answer = self.execute_at_once(order).await;
                let _ = reply.send(answer);
            }
        }
    }

    /// Ends a hold at once. The version that becomes active is decided at once as well, unless the gate has to read
    /// pages for that: then the decision is the next task, and the client gets its reply afterwards.
    async fn end_hold(&mut self, who: String, waiter: ReplySender) {
        let (writer, intent, by) = (Arc::clone(&self.writer), self.configuration.intent().clone(), who.clone());
        let done = spawn_blocking(move || {
            let was_held = operator::end_hold(&*writer, &by)?;
            // Cancelled from the start: it ends where the gate would have to read pages.
            Ok((was_held, operator::activate_due(&*writer, &|| intent.clone(), &by, &|| true)))
        });
        match done.await.unwrap_or_else(|died| Err(SyncError::Broken(died.to_string()))) {
            Ok((was_held, Err(SyncError::Interrupted))) => {
                self.cancel_task_for(TaskCommand::Release);
                self.pending.request_release(was_held, who, waiter);
            }
            Ok((was_held, result)) => {
                self.served.serve_active(self.configuration.intent().effort).await;
                self.reporter.reply_to_release(self.writer.store(), was_held, vec![waiter], &result);
            }
            Err(error) => self.reporter.reply(vec![waiter], &Err(error)),
        }
        // The hold may have kept the daemon from fetching a newer version.
        self.pending.wake(SyncTrigger::Changed);
    }

    /// Executes a command that needs no task, even while a sync runs.
    async fn execute_at_once(&mut self, order: DaemonCommand) -> CommandReply {
        let (writer, intent) = (Arc::clone(&self.writer), self.configuration.intent().clone());
        let done = spawn_blocking(move || execute_at_once(&writer, &intent, &order.verb, &order.who)).await;
        let (told, chosen) = match done {
            Ok(Ok(Some(done))) => done,
            Ok(Ok(None)) => return self.reporter.failure(&CommandError::NotAtOnce),
            Ok(Err(error)) => return self.reporter.failure(&CommandError::Work(&error)),
            Err(died) => {
                let error = SyncError::Broken(died.to_string());
                return self.reporter.failure(&CommandError::Work(&error));
            }
        };
        if let Some(version) = chosen {
            self.served.serve(version.id, version);
        }
        // A sync may have activated another version in between: the record decides.
        self.served.serve_active(self.configuration.intent().effort).await;
        CommandReply::Told(told)
    }
}
