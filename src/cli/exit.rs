//! From an error to a line and an exit code.

use std::fmt;
use std::io;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::api::ask::Ask;
use crate::base::chain::{Chain, words};
use crate::config::Problem;
use crate::daemon::DaemonError;
use crate::net::trouble::{Cause, Trouble};
use crate::origin::{KeyError, OriginError};
use crate::publish::PublishError;
use crate::seal::SealError;
use crate::serve::pair::PairError;
use crate::store::StoreError;
use crate::sync::SyncError;

/// Why a command ends with another code than 0.
#[derive(Debug)]
pub enum Failure {
    /// Nothing was asked for: the help.
    Help(String),
    /// The command line is wrong.
    Usage(String),
    /// The configuration is.
    Config(Vec<Problem>),
    /// There is nothing to sync from, in these words.
    NoSource(String),
    /// Proving or sealing failed.
    Seal(SealError),
    /// The store failed.
    Store(StoreError),
    /// A sync failed.
    Sync(SyncError),
    /// The daemon failed.
    Daemon(DaemonError),
    /// The management API cannot be served.
    Origin(OriginError),
    /// The daemon did not do it, for a reason of its own.
    Remote {
        /// The exit code.
        code: u8,
        /// The line.
        message: String,
    },
    /// The daemon is not alive, or has nothing to serve.
    Unhealthy(String),
    /// Something stored is not what it was.
    Damage(String),
    /// What is active could not be published.
    Publish(PublishError),
    /// The bundle is sealed but not active, for this reason.
    NotActive(String),
    /// The API may not be asked now.
    Unavailable(String),
    /// The API's pages never end.
    GoesRound(String),
    /// A preview failed, for this reason.
    Preview(String),
    /// A file or folder on this machine cannot be used.
    Local {
        /// What was being done: "cannot write x".
        doing: String,
        /// Why not.
        source: io::Error,
    },
    /// What was being read changed meanwhile.
    Changed(String),
    /// What was looked for was found; what it is was printed.
    Found,
    /// The result cannot be printed.
    Output(io::Error),
    /// A signal ended it: this one.
    Signal(u8),
}

impl Failure {
    /// Wraps an I/O error with what was being done.
    pub fn local(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Failure {
        move |source| Failure::Local { doing: doing.into(), source }
    }

    /// The documented exit code.
    pub fn code(&self) -> ExitCode {
        ExitCode::from(self.number())
    }

    /// What is printed for programs: `{"schemaVersion": 1, "error": {"exit", "message", "nextStep"}}`.
    pub fn json(&self) -> Value {
        let text = self.to_string();
        let lines = text.lines().map(|line| line.strip_prefix("docwharf: ").unwrap_or(line));
        let message = lines.collect::<Vec<_>>().join("; ");
        json!({
            "schemaVersion": 1,
            "error": { "exit": self.number(), "message": message, "nextStep": self.next_step() },
        })
    }

    /// What to do about it: for this cause, or else for this kind of failure.
    fn next_step(&self) -> String {
        let specific = match self {
            Failure::Sync(SyncError::Upstream { call, trouble, .. }) => call.hint(trouble),
            Failure::Seal(error) => hint(error).to_owned(),
            Failure::Store(error) => hint(error).to_owned(),
            Failure::Sync(error) => hint(error).to_owned(),
            Failure::Daemon(error) => hint(error).to_owned(),
            Failure::Origin(error) => hint(error).to_owned(),
            Failure::Publish(error) => hint(error).to_owned(),
            Failure::Local { source, .. } | Failure::Output(source) => hint(source).to_owned(),
            _ => String::new(),
        };
        let specific = specific.trim_start_matches("; ");
        if !specific.is_empty() {
            return specific.to_owned();
        }
        let general = match self {
            Failure::Help(_) | Failure::Usage(_) => "see docwharf --help, or --help behind the command",
            Failure::Config(_) => "correct the configuration; docwharf config check lists what is wrong with it",
            Failure::NoSource(_) => "set staticExport.bundleUrl or [api], or import a bundle",
            Failure::Unhealthy(_) => "docwharf status tells how the daemon is, docwharf run starts one",
            Failure::Damage(_) => "import the bundle again, or let the next sync bring it",
            Failure::Changed(_) => "run the command again when nothing writes there",
            Failure::Preview(_) => "correct what the build's log names, then deploy the preview again",
            _ => match self.number() {
                2 => "correct the arguments or the configuration; docwharf config check lists what is wrong with it",
                3 => "check the key; docwharf doctor tries it",
                4 => "try again later; docwharf doctor looks at the network and the upstream",
                5 => "have the bundle made again; docwharf bundle verify says what is wrong with one",
                6 => "look at the project's build, then try again",
                7 => "docwharf stage shows what waits, and for what",
                8 => "docwharf doctor looks at disk, permissions, ports and locks",
                _ => "docwharf doctor looks for what is wrong",
            },
        };
        general.to_owned()
    }

    fn number(&self) -> u8 {
        match self {
            Failure::Help(_) | Failure::Usage(_) | Failure::Config(_) | Failure::NoSource(_) => 2,
            Failure::Seal(error) => seal_code(error),
            Failure::Store(error) => store_code(error),
            Failure::Sync(error) => sync_code(error),
            Failure::Daemon(error) => match error {
                DaemonError::NothingToServe { .. } | DaemonError::Nowhere | DaemonError::NoPair => 2,
                DaemonError::Tls(error) => pair_code(error),
                DaemonError::FirstSync(error) => sync_code(error),
                DaemonError::Store(error) => store_code(error),
                DaemonError::Bind { .. }
                | DaemonError::Passed { .. }
                | DaemonError::Log { .. }
                | DaemonError::TooFewFiles(_)
                | DaemonError::Start(_) => 8,
                DaemonError::Died(_) => 1,
            },
            Failure::Origin(error) => origin_code(error),
            Failure::Remote { code, .. } => *code,
            Failure::Signal(number) => 128 + number,
            Failure::Changed(_) | Failure::Unhealthy(_) | Failure::Found => 1,
            Failure::Unavailable(_) | Failure::GoesRound(_) => 4,
            Failure::Preview(_) => 6,
            Failure::NotActive(_) => 7,
            Failure::Local { .. } | Failure::Output(_) | Failure::Damage(_) | Failure::Publish(_) => 8,
        }
    }
}

fn seal_code(error: &SealError) -> u8 {
    match error {
        SealError::Refused { .. } => 5,
        // A wrong path is a wrong argument; a right one that cannot be read is this machine's fault.
        SealError::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => 2,
        SealError::Read { .. } | SealError::Write { .. } => 8,
    }
}

/// What a configuration points at and cannot be used is a mistake in it; a file that is there and may not be read is this
/// machine's fault.
fn pair_code(error: &PairError) -> u8 {
    match error {
        PairError::Read { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => 8,
        _ => 2,
    }
}

fn store_code(error: &StoreError) -> u8 {
    match error {
        StoreError::Unknown(_) | StoreError::Ambiguous(_) => 2,
        StoreError::NoPrevious => 1,
        StoreError::Io { .. }
        | StoreError::Locked { .. }
        | StoreError::Damaged { .. }
        | StoreError::Later { .. }
        | StoreError::NoSpace { .. }
        | StoreError::OverMost { .. }
        | StoreError::StillRead { .. } => 8,
    }
}

fn sync_code(error: &SyncError) -> u8 {
    match error {
        // Of the addresses of these two calls only the project's id is ours to say: another try would find as little.
        SyncError::Missing { .. }
        | SyncError::IsFolder { .. }
        | SyncError::Absent(_)
        | SyncError::Client(_)
        | SyncError::Upstream {
            call: Ask::Preview | Ask::Searches,
            trouble: Trouble { cause: Cause::Status(404), .. },
            ..
        } => 2,
        SyncError::Changing { source, .. } => sync_code(source),
        SyncError::Upstream { trouble, .. } => trouble_code(trouble),
        SyncError::Download { signed, trouble, renewable, .. } => match trouble.cause {
            Cause::Disk => 8,
            Cause::TooLarge => 5,
            // A signed link that is refused has run out; a plain one is refused.
            Cause::Status(401 | 403) if !*renewable && !*signed && trouble.code().is_none() => 3,
            _ => 4,
        },
        SyncError::JobFailed { .. } => 6,
        SyncError::JobVanished { .. } | SyncError::JobTimeout { .. } => 4,
        SyncError::Interrupted | SyncError::Broken(_) => 1,
        SyncError::WrongDigest { .. } | SyncError::StillRefused(_) => 5,
        SyncError::Seal(error) => seal_code(error),
        SyncError::Store(error) => store_code(error),
        SyncError::Open { .. } | SyncError::DamagedVersion { .. } | SyncError::Thread(_) => 8,
    }
}

fn origin_code(error: &OriginError) -> u8 {
    match error {
        OriginError::Key(KeyError::NoKey { .. }) => 2,
        OriginError::Site { source, .. } | OriginError::Key(KeyError::Read { source, .. })
            if source.kind() == io::ErrorKind::NotFound =>
        {
            2
        }
        OriginError::Site { .. }
        | OriginError::Key(KeyError::Read { .. })
        | OriginError::Database(_)
        | OriginError::Previews(_)
        | OriginError::Locked(_)
        | OriginError::System { .. } => 8,
    }
}

/// What the daemon answers over its control socket when a verb fails.
pub(super) fn describe(error: &SyncError) -> (u8, String) {
    (sync_code(error), format!("{}{}", Chain(error), hint(error)))
}

/// What the API's answer means.
fn trouble_code(trouble: &Trouble) -> u8 {
    match trouble.cause {
        Cause::Status(400 | 422) => 2,
        Cause::Status(401..=403) => 3,
        _ => 4,
    }
}

/// What a person can do about a cause that only says what is so.
fn hint(error: &(dyn std::error::Error + 'static)) -> &'static str {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(DaemonError::Bind { address, source }) = error.downcast_ref::<DaemonError>()
            && source.kind() == io::ErrorKind::PermissionDenied
            && address.port() < 1024
        {
            return "; only root may use ports below 1024: choose one from 1024 on, have systemd hold it \
                    (systemctl enable --now docwharf.socket), or give CAP_NET_BIND_SERVICE \
                    (AmbientCapabilities= of the unit)";
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return match error.kind() {
                io::ErrorKind::AddrInUse => "; choose another port, or stop what uses it",
                io::ErrorKind::AddrNotAvailable => "; this machine does not have that address",
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free some space and try again",
                io::ErrorKind::PermissionDenied => "; check owner and mode, or use another user or place",
                io::ErrorKind::ReadOnlyFilesystem => {
                    "; it is mounted read-only, or is so for this service (ReadWritePaths= of its unit): use another place"
                }
                _ => "",
            };
        }
        cause = error.source();
    }
    ""
}

/// The whole chain on one line, with a hint at its end.
fn line(f: &mut fmt::Formatter<'_>, error: &(dyn std::error::Error + 'static)) -> fmt::Result {
    write!(f, "docwharf: {}{}", Chain(error), hint(error))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Help(text) => f.write_str(text.trim_end()),
            Failure::Usage(what)
            | Failure::NoSource(what)
            | Failure::Changed(what)
            | Failure::Unhealthy(what)
            | Failure::Damage(what)
            | Failure::Unavailable(what)
            | Failure::GoesRound(what)
            | Failure::Preview(what)
            | Failure::Remote { message: what, .. } => {
                write!(f, "docwharf: {}", crate::base::chain::OneLine(what))
            }
            Failure::Config(problems) => {
                for (i, problem) in problems.iter().enumerate() {
                    let end = if i + 1 < problems.len() { "\n" } else { "" };
                    write!(f, "docwharf: {}{end}", crate::base::chain::OneLine(&problem.to_string()))?;
                }
                Ok(())
            }
            Failure::Seal(error) => line(f, error),
            Failure::Store(error) => line(f, error),
            Failure::Sync(error) => line(f, error),
            Failure::Daemon(error) => line(f, error),
            Failure::Origin(error) => line(f, error),
            Failure::Publish(error) => line(f, error),
            Failure::NotActive(why) => {
                write!(f, "docwharf: sealed, but not activated: {}", crate::base::chain::OneLine(why))
            }
            Failure::Local { doing, source } => {
                write!(
                    f,
                    "docwharf: {}{}",
                    crate::base::chain::OneLine(&format!("{doing}: {}", words(source))),
                    hint(source)
                )
            }
            Failure::Found => Ok(()),
            Failure::Signal(_) => f.write_str("docwharf: interrupted"),
            Failure::Output(error) => {
                write!(f, "docwharf: cannot write to standard output: {}{}", words(error), hint(error))
            }
        }
    }
}

impl From<SealError> for Failure {
    fn from(error: SealError) -> Failure {
        Failure::Seal(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::Store(error)
    }
}

impl From<SyncError> for Failure {
    fn from(error: SyncError) -> Failure {
        Failure::Sync(error)
    }
}

impl From<DaemonError> for Failure {
    fn from(error: DaemonError) -> Failure {
        Failure::Daemon(error)
    }
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Failure {
        Failure::Publish(error)
    }
}

impl From<OriginError> for Failure {
    fn from(error: OriginError) -> Failure {
        Failure::Origin(error)
    }
}
