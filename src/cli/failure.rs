//! The reason why a command ends with another exit code than 0, and its message.

use std::fmt;
use std::io;

use crate::config::problem::ConfigProblem;
use crate::daemon::DaemonError;
use docwharf_agent::publish::PublishError;
use docwharf_agent::store::StoreError;
use docwharf_agent::sync::SyncError;
use docwharf_base::error_chain::{ErrorChain, OneLine, error_message};
#[cfg(feature = "origin")]
use docwharf_origin::OriginError;
use docwharf_site::seal::SealError;

use super::advice::advice_for;

/// The reason why a command ends with another exit code than 0.
#[derive(Debug)]
pub enum CommandFailure {
    /// No subcommand was given. The text is the help.
    Help(String),
    /// The command line is invalid.
    Usage(String),
    /// The configuration is invalid.
    Config(Vec<ConfigProblem>),
    /// There is no source to sync from. The text is the message.
    NoSource(String),
    /// Verifying or sealing a bundle failed.
    Seal(SealError),
    /// An operation of the store failed.
    Store(StoreError),
    /// A sync failed.
    Sync(SyncError),
    /// The daemon failed.
    Daemon(DaemonError),
    /// The management API cannot be served.
    #[cfg(feature = "origin")]
    Origin(OriginError),
    /// The daemon failed to carry out a command.
    DaemonReported {
        /// The exit code.
        code: u8,
        /// The message.
        message: String,
    },
    /// A process that docwharf has started for itself failed.
    InternalProcess(String),
    /// The daemon is not alive, or has nothing to serve.
    Unhealthy(String),
    /// A stored version is damaged or missing.
    Damage(String),
    /// The active version could not be published.
    Publish(PublishError),
    /// The bundle is sealed but not active, for this reason.
    NotActive(String),
    /// The API returns no result now: a budget is used up, a deadline has passed, or a response lacks a field.
    Unavailable(String),
    /// The API's pages of results never end.
    EndlessPages(String),
    /// A preview failed, for this reason.
    Preview(String),
    /// This host has not recorded what its readers do.
    NothingRecorded(String),
    /// The file in which this host records what its readers do cannot be used.
    RecordedAnalytics {
        /// The operation that failed: "cannot read x".
        doing: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Recorded rows of this host are deleted, but their bytes are still in a file. The text says why.
    BytesRemain(String),
    /// A file or folder on this machine cannot be used.
    Local {
        /// The operation that failed: "cannot write x".
        doing: String,
        /// The cause.
        source: io::Error,
    },
    /// An input file is damaged or incomplete, or a part of it is invalid. Nothing of it was used.
    RefusedFile {
        /// The file, and what is wrong with it.
        message: String,
        /// The next step for the user.
        advice: &'static str,
    },
    /// The input changed while it was read.
    InputChanged(String),
    /// A bug was found. The text says what went wrong.
    Bug(String),
    /// A check found something and has printed it. There is no message.
    CheckFailed,
    /// The result cannot be printed.
    Output(io::Error),
    /// The signal with this number ended the command.
    Signal(u8),
}

impl CommandFailure {
    /// Returns a function that wraps an I/O error with the operation that failed.
    pub fn local(doing: impl Into<String>) -> impl FnOnce(io::Error) -> CommandFailure {
        move |source| CommandFailure::Local { doing: doing.into(), source }
    }
}

/// Writes the chain of errors and the advice on one line.
fn write_error_line(f: &mut fmt::Formatter<'_>, error: &(dyn std::error::Error + 'static)) -> fmt::Result {
    write!(f, "docwharf: {}{}", ErrorChain(error), advice_for(error))
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandFailure::Help(text) => f.write_str(text.trim_end()),
            CommandFailure::Usage(what)
            | CommandFailure::NoSource(what)
            | CommandFailure::InputChanged(what)
            | CommandFailure::RefusedFile { message: what, .. }
            | CommandFailure::Unhealthy(what)
            | CommandFailure::Damage(what)
            | CommandFailure::Unavailable(what)
            | CommandFailure::EndlessPages(what)
            | CommandFailure::Preview(what)
            | CommandFailure::NothingRecorded(what)
            | CommandFailure::BytesRemain(what)
            | CommandFailure::InternalProcess(what)
            | CommandFailure::DaemonReported { message: what, .. } => {
                write!(f, "docwharf: {}", OneLine(what))
            }
            CommandFailure::Config(problems) => {
                for (i, problem) in problems.iter().enumerate() {
                    let end = if i + 1 < problems.len() { "\n" } else { "" };
                    write!(f, "docwharf: {}{end}", OneLine(&problem.to_string()))?;
                }
                Ok(())
            }
            CommandFailure::Seal(error) => write_error_line(f, error),
            CommandFailure::Store(error) => write_error_line(f, error),
            CommandFailure::Sync(error) => write_error_line(f, error),
            CommandFailure::Daemon(error) => write_error_line(f, error),
            #[cfg(feature = "origin")]
            CommandFailure::Origin(error) => write_error_line(f, error),
            CommandFailure::Publish(error) => write_error_line(f, error),
            CommandFailure::Bug(what) => {
                write!(f, "docwharf: {}; this is a bug in docwharf, please report it", OneLine(what))
            }
            CommandFailure::NotActive(why) => {
                write!(f, "docwharf: sealed, but not activated: {}", OneLine(why))
            }
            CommandFailure::Local { doing, source } => {
                write!(f, "docwharf: {}{}", OneLine(&format!("{doing}: {}", error_message(source))), advice_for(source))
            }
            CommandFailure::RecordedAnalytics { doing, source } => {
                let line = format!("{doing}: {}", ErrorChain(&**source));
                write!(f, "docwharf: {}{}", OneLine(&line), advice_for(&**source))
            }
            CommandFailure::CheckFailed => Ok(()),
            CommandFailure::Signal(_) => f.write_str("docwharf: interrupted"),
            CommandFailure::Output(error) => {
                write!(f, "docwharf: cannot write to standard output: {}{}", error_message(error), advice_for(error))
            }
        }
    }
}

impl From<SealError> for CommandFailure {
    fn from(error: SealError) -> CommandFailure {
        CommandFailure::Seal(error)
    }
}

impl From<StoreError> for CommandFailure {
    fn from(error: StoreError) -> CommandFailure {
        CommandFailure::Store(error)
    }
}

impl From<SyncError> for CommandFailure {
    fn from(error: SyncError) -> CommandFailure {
        CommandFailure::Sync(error)
    }
}

impl From<DaemonError> for CommandFailure {
    fn from(error: DaemonError) -> CommandFailure {
        CommandFailure::Daemon(error)
    }
}

impl From<PublishError> for CommandFailure {
    fn from(error: PublishError) -> CommandFailure {
        CommandFailure::Publish(error)
    }
}

#[cfg(feature = "origin")]
impl From<OriginError> for CommandFailure {
    fn from(error: OriginError) -> CommandFailure {
        CommandFailure::Origin(error)
    }
}
