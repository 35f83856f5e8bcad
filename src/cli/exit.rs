//! Maps an error to its message, its advice and its exit code.

use std::fmt;
use std::io;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::config::problem::ConfigProblem;
use crate::daemon::{CommandError, DaemonError};
use docwharf_agent::api::calls::ApiCall;
use docwharf_agent::publish::PublishError;
use docwharf_agent::store::StoreError;
use docwharf_agent::sync::SyncError;
use docwharf_base::error_chain::{ErrorChain, error_message};
use docwharf_base::net::request_error::{RequestError, RequestErrorCause};
#[cfg(feature = "origin")]
use docwharf_origin::{KeyFileError, OriginError};
use docwharf_serve::key_pair::KeyPairError;
use docwharf_site::seal::SealError;

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
    /// The encoder process of the daemon failed.
    Encoder(String),
    /// The daemon is not alive, or has nothing to serve.
    Unhealthy(String),
    /// A stored version is damaged or missing.
    Damage(String),
    /// The active version could not be published.
    Publish(PublishError),
    /// The bundle is sealed but not active, for this reason.
    NotActive(String),
    /// The API gives no result now: a budget is used up, a deadline has passed, or a response lacks a field.
    Unavailable(String),
    /// The API's pages of results never end.
    EndlessPages(String),
    /// A preview failed, for this reason.
    Preview(String),
    /// A file or folder on this machine cannot be used.
    Local {
        /// The operation that failed: "cannot write x".
        doing: String,
        /// The cause.
        source: io::Error,
    },
    /// The input changed while it was read, or something happened that only a bug explains.
    InputChanged(String),
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

    /// Returns the documented exit code.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.exit_number())
    }

    /// Returns the failure for programs: `{"schemaVersion": 1, "error": {"exit", "message", "nextStep"}}`.
    pub fn json(&self) -> Value {
        let text = self.to_string();
        let lines = text.lines().map(|line| line.strip_prefix("docwharf: ").unwrap_or(line));
        let message = lines.collect::<Vec<_>>().join("; ");
        json!({
            "schemaVersion": 1,
            "error": { "exit": self.exit_number(), "message": message, "nextStep": self.next_step() },
        })
    }

    /// Returns advice: for the cause if there is any, otherwise for the kind of failure.
    fn next_step(&self) -> String {
        let specific = match self {
            CommandFailure::Sync(SyncError::Upstream { call, trouble, .. }) => call.advice(trouble),
            CommandFailure::Seal(error) => advice_for(error).to_owned(),
            CommandFailure::Store(error) => advice_for(error).to_owned(),
            CommandFailure::Sync(error) => advice_for(error).to_owned(),
            CommandFailure::Daemon(error) => advice_for(error).to_owned(),
            #[cfg(feature = "origin")]
            CommandFailure::Origin(error) => advice_for(error).to_owned(),
            CommandFailure::Publish(error) => advice_for(error).to_owned(),
            CommandFailure::Local { source, .. } | CommandFailure::Output(source) => advice_for(source).to_owned(),
            _ => String::new(),
        };
        let specific = specific.trim_start_matches("; ");
        if !specific.is_empty() {
            return specific.to_owned();
        }
        let general = match self {
            CommandFailure::Help(_) | CommandFailure::Usage(_) => "see docwharf --help, or --help behind the command",
            CommandFailure::Seal(SealError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                "name a file or folder that is there"
            }
            CommandFailure::Store(StoreError::Unknown(_) | StoreError::Ambiguous(_)) => {
                "docwharf versions lists ids and labels"
            }
            CommandFailure::Config(problems)
                if problems.iter().any(|problem| problem.what.starts_with("cannot read ")) =>
            {
                "name a file that can be read with --config; docwharf config init writes one"
            }
            CommandFailure::Config(_) => "correct the configuration; docwharf config check lists what is wrong with it",
            CommandFailure::NoSource(_) => "set staticExport.bundleUrl or [api], or import a bundle",
            CommandFailure::Unhealthy(_) => "docwharf status shows the state of the daemon, docwharf run starts one",
            CommandFailure::Damage(_) => "import the bundle again, or let the next sync bring it",
            CommandFailure::InputChanged(_) => "run the command again when nothing writes there",
            CommandFailure::Preview(_) => "correct what the build's log names, then deploy the preview again",
            _ => match self.exit_number() {
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

    fn exit_number(&self) -> u8 {
        match self {
            CommandFailure::Help(_)
            | CommandFailure::Usage(_)
            | CommandFailure::Config(_)
            | CommandFailure::NoSource(_) => 2,
            CommandFailure::Seal(error) => seal_code(error),
            CommandFailure::Store(error) => store_code(error),
            CommandFailure::Sync(error) => sync_code(error),
            CommandFailure::Daemon(error) => match error {
                DaemonError::NothingToServe { .. } | DaemonError::NoListener | DaemonError::NoCertificate => 2,
                DaemonError::Tls(error) => pair_code(error),
                DaemonError::FirstSync(error) => sync_code(error),
                DaemonError::Store(error) => store_code(error),
                DaemonError::Bind { .. }
                | DaemonError::Passed { .. }
                | DaemonError::Log { .. }
                | DaemonError::TooFewFiles(_)
                | DaemonError::Start(_) => 8,
                DaemonError::EndedUnexpectedly(_) => 1,
            },
            #[cfg(feature = "origin")]
            CommandFailure::Origin(error) => origin_code(error),
            CommandFailure::DaemonReported { code, .. } => *code,
            CommandFailure::Signal(number) => signal_code(*number),
            CommandFailure::InputChanged(_) | CommandFailure::Unhealthy(_) | CommandFailure::CheckFailed => 1,
            CommandFailure::Unavailable(_) | CommandFailure::EndlessPages(_) => 4,
            CommandFailure::Preview(_) => 6,
            CommandFailure::NotActive(_) => 7,
            CommandFailure::Local { .. }
            | CommandFailure::Output(_)
            | CommandFailure::Damage(_)
            | CommandFailure::Encoder(_)
            | CommandFailure::Publish(_) => 8,
        }
    }
}

/// Returns the exit code of a process that a signal has ended, as shells report it.
pub(super) fn signal_code(number: u8) -> u8 {
    128 + number
}

fn seal_code(error: &SealError) -> u8 {
    match error {
        SealError::Refused { .. } => 5,
        // A path that does not exist is a wrong argument; one that cannot be read is a fault of this machine.
        SealError::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => 2,
        SealError::Read { .. } | SealError::Write { .. } => 8,
    }
}

/// Returns the exit code for an unusable certificate or key. That is a mistake in the configuration (2), except for a
/// file that may not be read, which is a fault of this machine (8).
fn pair_code(error: &KeyPairError) -> u8 {
    match error {
        KeyPairError::Read { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => 8,
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
        // Only the project id in the URLs of these two calls is configured. 404 means that it is wrong.
        SyncError::Missing { .. }
        | SyncError::IsFolder { .. }
        | SyncError::Absent(_)
        | SyncError::Client(_)
        | SyncError::Upstream {
            call: ApiCall::Preview | ApiCall::Searches,
            trouble: RequestError { cause: RequestErrorCause::Status(404), .. },
            ..
        } => 2,
        SyncError::Changing { source, .. } => sync_code(source),
        SyncError::Upstream { trouble, .. } => trouble_code(trouble),
        SyncError::Download { signed, trouble, renewable, .. } => match trouble.cause {
            RequestErrorCause::Disk => 8,
            RequestErrorCause::TooLarge => 5,
            // A refused signed link has expired; a refused plain link means that access is denied.
            RequestErrorCause::Status(401 | 403) if !*renewable && !*signed && trouble.code().is_none() => 3,
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

#[cfg(feature = "origin")]
fn origin_code(error: &OriginError) -> u8 {
    match error {
        OriginError::Key(KeyFileError::Invalid { .. }) => 2,
        OriginError::Site { source, .. } | OriginError::Key(KeyFileError::Read { source, .. })
            if source.kind() == io::ErrorKind::NotFound =>
        {
            2
        }
        OriginError::Site { .. }
        | OriginError::Key(KeyFileError::Read { .. })
        | OriginError::Database(_)
        | OriginError::Previews(_)
        | OriginError::Locked(_)
        | OriginError::System { .. } => 8,
    }
}

/// Returns the exit code and the message that the daemon sends over its control socket when a command fails.
pub(super) fn exit_code_and_message(error: &CommandError<'_>) -> (u8, String) {
    match error {
        CommandError::Work(error) => (sync_code(error), format!("{}{}", ErrorChain(*error), advice_for(*error))),
        CommandError::OtherConfiguration => {
            let message = "this daemon has another configuration than the one that was named: leave --config out to \
                           use the daemon's, or stop the daemon";
            (8, message.to_owned())
        }
        CommandError::Label(why) => (2, format!("--label: {why}")),
        CommandError::NotAtOnce => (1, "this command cannot be executed at once".to_owned()),
    }
}

/// Returns the exit code for a failed API call.
fn trouble_code(trouble: &RequestError) -> u8 {
    match trouble.cause {
        RequestErrorCause::Status(400 | 422) => 2,
        RequestErrorCause::Status(401..=403) => 3,
        _ => 4,
    }
}

/// Returns advice for an I/O error or a refused port in the chain of causes. It begins with "; ", or is empty.
fn advice_for(error: &(dyn std::error::Error + 'static)) -> &'static str {
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

/// Writes the chain of errors on one line, and the advice behind it.
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
            | CommandFailure::Unhealthy(what)
            | CommandFailure::Damage(what)
            | CommandFailure::Unavailable(what)
            | CommandFailure::EndlessPages(what)
            | CommandFailure::Preview(what)
            | CommandFailure::Encoder(what)
            | CommandFailure::DaemonReported { message: what, .. } => {
                write!(f, "docwharf: {}", docwharf_base::error_chain::OneLine(what))
            }
            CommandFailure::Config(problems) => {
                for (i, problem) in problems.iter().enumerate() {
                    let end = if i + 1 < problems.len() { "\n" } else { "" };
                    write!(f, "docwharf: {}{end}", docwharf_base::error_chain::OneLine(&problem.to_string()))?;
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
            CommandFailure::NotActive(why) => {
                write!(f, "docwharf: sealed, but not activated: {}", docwharf_base::error_chain::OneLine(why))
            }
            CommandFailure::Local { doing, source } => {
                write!(
                    f,
                    "docwharf: {}{}",
                    docwharf_base::error_chain::OneLine(&format!("{doing}: {}", error_message(source))),
                    advice_for(source)
                )
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

#[cfg(test)]
mod tests {
    use std::io::ErrorKind::{
        AddrInUse, AddrNotAvailable, NotFound, PermissionDenied, ReadOnlyFilesystem, StorageFull,
    };
    use std::path::PathBuf;
    use std::time::Duration;

    use http::HeaderMap;

    use super::*;
    use crate::config::problem::ConfigPlace;
    use docwharf_base::model::digest::Digest;
    use docwharf_base::model::version::VersionId;
    use docwharf_base::net::client::ClientError;
    use docwharf_base::secret::Scrubber;
    use docwharf_site::bundle::refusal::{BundleFault, BundleRefusal};

    fn path() -> PathBuf {
        PathBuf::from("/x")
    }

    fn io(kind: io::ErrorKind) -> io::Error {
        io::Error::from(kind)
    }

    fn refused() -> SealError {
        SealError::Refused { path: path(), source: BundleRefusal { entry: None, fault: BundleFault::Duplicate } }
    }

    fn read(kind: io::ErrorKind) -> SealError {
        SealError::Read { path: path(), source: io(kind) }
    }

    fn upstream(call: ApiCall, cause: RequestErrorCause) -> SyncError {
        SyncError::Upstream { doing: "ask".to_owned(), call, trouble: RequestError::new(cause, "x") }
    }

    fn bind(port: u16, kind: io::ErrorKind) -> DaemonError {
        DaemonError::Bind { address: ([127, 0, 0, 1], port).into(), source: io(kind) }
    }

    fn damaged() -> serde_json::Error {
        serde_json::from_str::<u8>("x").unwrap_err()
    }

    #[track_caller]
    fn ends(cases: Vec<(u8, CommandFailure)>) {
        for (code, failure) in cases {
            assert_eq!(failure.exit_number(), code, "{failure:?}");
        }
    }

    #[test]
    fn a_command_ends_with_the_code_of_what_has_failed() {
        let text = || "x".to_owned();
        ends(vec![
            (1, CommandFailure::InputChanged(text())),
            (1, CommandFailure::Unhealthy(text())),
            (1, CommandFailure::CheckFailed),
            (2, CommandFailure::Help(text())),
            (2, CommandFailure::Usage(text())),
            (2, CommandFailure::Config(Vec::new())),
            (2, CommandFailure::NoSource(text())),
            (4, CommandFailure::Unavailable(text())),
            (4, CommandFailure::EndlessPages(text())),
            (6, CommandFailure::Preview(text())),
            (7, CommandFailure::NotActive(text())),
            (7, CommandFailure::DaemonReported { code: 7, message: text() }),
            (8, CommandFailure::Local { doing: text(), source: io(NotFound) }),
            (8, CommandFailure::Output(io(NotFound))),
            (8, CommandFailure::Damage(text())),
            (8, CommandFailure::Encoder(text())),
            (8, CommandFailure::Publish(PublishError::InStore(path()))),
            (130, CommandFailure::Signal(2)),
            (143, CommandFailure::Signal(15)),
            (5, refused().into()),
            (2, read(NotFound).into()),
            (8, read(PermissionDenied).into()),
            (8, SealError::Write { path: path(), source: io(NotFound) }.into()),
        ]);
    }

    #[test]
    fn what_fails_in_the_store_is_a_wrong_name_or_local() {
        ends(vec![
            (1, StoreError::NoPrevious.into()),
            (2, StoreError::Unknown("x".to_owned()).into()),
            (2, StoreError::Ambiguous("x".to_owned()).into()),
            (8, StoreError::Io { doing: "read", path: path(), source: io(NotFound) }.into()),
            (8, StoreError::Locked { path: path() }.into()),
            (8, StoreError::Damaged { path: path(), source: damaged() }.into()),
            (8, StoreError::Later { path: path(), found: 9 }.into()),
            (8, StoreError::NoSpace { path: path(), needed: 2, free: 1, min_free: 0 }.into()),
        ]);
    }

    #[test]
    fn what_fails_in_a_sync_is_of_the_bundle_the_upstream_or_this_machine() {
        let id = VersionId(Digest::of(b"x"));
        let text = || "x".to_owned();
        let after = Duration::from_secs(1);
        let changing = |source| SyncError::Changing { path: path(), source: Box::new(source) };
        let sync: Vec<(u8, SyncError)> = vec![
            (1, SyncError::Interrupted),
            (1, SyncError::Broken(text())),
            (2, SyncError::Missing { path: path(), source: io(NotFound) }),
            (2, SyncError::IsFolder { path: path() }),
            (2, SyncError::Absent(text())),
            (2, SyncError::Client(ClientError::Read { path: path(), source: io(NotFound) })),
            (4, SyncError::JobVanished { id: text(), trouble: RequestError::new(RequestErrorCause::Status(404), "x") }),
            (4, SyncError::JobTimeout { id: text(), after, state: text(), still: after }),
            (5, SyncError::WrongDigest { name: text(), found: id.0, demanded: id.0 }),
            (5, SyncError::StillRefused(text())),
            (5, SyncError::Seal(refused())),
            (8, SyncError::Seal(read(PermissionDenied))),
            (5, changing(SyncError::Seal(refused()))),
            (8, changing(SyncError::Seal(read(PermissionDenied)))),
            (6, SyncError::JobFailed { id: text(), reason: text() }),
            (1, SyncError::Store(StoreError::NoPrevious)),
            (8, SyncError::Store(StoreError::Locked { path: path() })),
            (8, SyncError::Open { id, source: io(NotFound) }),
            (8, SyncError::DamagedVersion { id, source: None }),
            (8, SyncError::Thread(io(NotFound))),
        ];
        for (code, error) in &sync {
            assert_eq!(exit_code_and_message(&CommandError::Work(error)).0, *code, "{error:?}");
        }
        ends(sync.into_iter().map(|(code, error)| (code, error.into())).collect());
    }

    #[test]
    fn a_command_that_the_daemon_does_not_carry_out_has_a_code_and_a_message() {
        for (error, code, message) in [
            (CommandError::OtherConfiguration, 8, "this daemon has another configuration than the one that was named"),
            (CommandError::Label("x"), 2, "--label: x"),
            (CommandError::NotAtOnce, 1, "this command cannot be executed at once"),
        ] {
            let found = exit_code_and_message(&error);
            assert!(found.0 == code && found.1.starts_with(message), "{error:?}: {found:?}");
        }
    }

    #[test]
    fn what_the_api_answers_says_whose_mistake_it_is() {
        let causes = [
            (RequestErrorCause::Status(400), 2),
            (RequestErrorCause::Status(422), 2),
            (RequestErrorCause::Status(401), 3),
            (RequestErrorCause::Status(402), 3),
            (RequestErrorCause::Status(403), 3),
            (RequestErrorCause::Status(405), 4),
            (RequestErrorCause::Status(409), 4),
            (RequestErrorCause::Status(429), 4),
            (RequestErrorCause::Status(500), 4),
            (RequestErrorCause::NotConnected, 4),
            (RequestErrorCause::Tls, 4),
            (RequestErrorCause::NoResponse, 4),
            (RequestErrorCause::Unreadable, 4),
            (RequestErrorCause::RefusedRedirect, 4),
        ];
        // 404 means a wrong project id for the calls whose URL contains nothing else that is configured.
        for (call, absent) in [
            (ApiCall::Start, 4),
            (ApiCall::Poll, 4),
            (ApiCall::Link, 4),
            (ApiCall::Deployment, 4),
            (ApiCall::Preview, 2),
            (ApiCall::Searches, 2),
        ] {
            for (cause, code) in causes.into_iter().chain([(RequestErrorCause::Status(404), absent)]) {
                assert_eq!(sync_code(&upstream(call, cause)), code, "{call:?} {cause:?}");
            }
        }
    }

    #[test]
    fn a_link_that_is_refused_has_run_out_unless_it_is_plain_and_nobody_renews_it() {
        let plain = |cause| RequestError::new(cause, "x");
        let storage = |status| {
            let body = b"<Error><Code>AccessDenied</Code></Error>";
            RequestError::from_answer(status, &HeaderMap::new(), body, &Scrubber::default())
        };
        for (trouble, signed, renewable, code) in [
            (plain(RequestErrorCause::Status(401)), false, false, 3),
            (plain(RequestErrorCause::Status(403)), false, false, 3),
            (plain(RequestErrorCause::Status(403)), true, false, 4),
            (plain(RequestErrorCause::Status(403)), false, true, 4),
            (plain(RequestErrorCause::Status(401)), true, true, 4),
            (storage(403), false, false, 4),
            (plain(RequestErrorCause::Status(402)), false, false, 4),
            (plain(RequestErrorCause::Status(404)), false, false, 4),
            (plain(RequestErrorCause::Status(500)), false, false, 4),
            (plain(RequestErrorCause::NoResponse), false, false, 4),
            (plain(RequestErrorCause::TooLarge), true, true, 5),
            (plain(RequestErrorCause::Disk), true, true, 8),
        ] {
            let what = format!("{trouble:?}, signed: {signed}, renewable: {renewable}");
            let error = SyncError::Download { link: "x".to_owned(), signed, trouble, renewable };
            assert_eq!(sync_code(&error), code, "{what}");
        }
    }

    #[test]
    fn what_keeps_a_server_from_starting_is_the_configuration_or_this_machine() {
        let pair = |kind| DaemonError::Tls(KeyPairError::Read { path: path(), source: io(kind) });
        ends(vec![
            (1, DaemonError::EndedUnexpectedly(io(NotFound)).into()),
            (2, DaemonError::NothingToServe { store: path() }.into()),
            (2, DaemonError::NoListener.into()),
            (2, DaemonError::NoCertificate.into()),
            (2, pair(NotFound).into()),
            (8, pair(PermissionDenied).into()),
            (2, DaemonError::Tls(KeyPairError::NoKey { path: path() }).into()),
            (3, DaemonError::FirstSync(upstream(ApiCall::Start, RequestErrorCause::Status(401))).into()),
            (8, DaemonError::Store(StoreError::Locked { path: path() }).into()),
            (8, bind(8080, AddrInUse).into()),
            (8, DaemonError::Passed { descriptor: 3, name: String::new(), source: io(NotFound) }.into()),
            (8, DaemonError::Log { path: path(), source: io(NotFound) }.into()),
            (8, DaemonError::TooFewFiles(9).into()),
            (8, DaemonError::Start(io(NotFound)).into()),
        ]);
    }

    #[test]
    #[cfg(feature = "origin")]
    fn what_keeps_an_origin_from_starting_is_the_configuration_or_this_machine() {
        use docwharf_origin::database::DatabaseError;

        let site = |kind| OriginError::Site {
            domain: docwharf_origin::Domain::parse("docs.example").unwrap(),
            path: path(),
            source: io(kind),
        };
        let key = |kind| OriginError::Key(KeyFileError::Read { path: path(), source: io(kind) });
        ends(vec![
            (2, site(NotFound).into()),
            (8, site(PermissionDenied).into()),
            (2, key(NotFound).into()),
            (8, key(PermissionDenied).into()),
            (2, OriginError::Key(KeyFileError::Invalid { path: path(), why: "it is empty" }).into()),
            (8, OriginError::Database(DatabaseError::Closed).into()),
            (8, OriginError::Locked(path()).into()),
            (8, OriginError::System { doing: "start", source: io(NotFound) }.into()),
        ]);
    }

    #[test]
    fn a_cause_that_a_person_can_do_something_about_says_what() {
        for (kind, says) in [
            (AddrInUse, "; choose another port"),
            (AddrNotAvailable, "; this machine does not have"),
            (StorageFull, "; free some space"),
            (io::ErrorKind::QuotaExceeded, "; free some space"),
            (PermissionDenied, "; check owner and mode"),
            (ReadOnlyFilesystem, "; it is mounted read-only"),
        ] {
            assert!(advice_for(&io(kind)).starts_with(says), "{kind:?}");
            // Also from deeper in the chain of causes.
            let error = StoreError::Io { doing: "write", path: path(), source: io(kind) };
            assert!(advice_for(&SyncError::Store(error)).starts_with(says), "{kind:?}");
        }
        assert_eq!((advice_for(&io(NotFound)), advice_for(&StoreError::NoPrevious)), ("", ""));
        for (port, kind, says) in [
            (1023, PermissionDenied, "; only root may use ports below 1024"),
            (1024, PermissionDenied, "; check owner and mode"),
            (80, AddrInUse, "; choose another port"),
        ] {
            assert!(advice_for(&bind(port, kind)).starts_with(says), "{port} {kind:?}");
        }
    }

    #[test]
    fn the_next_step_is_that_of_the_cause_and_else_that_of_the_code() {
        let text = || "x".to_owned();
        let unreadable = ConfigProblem { place: ConfigPlace::Missing, what: "cannot read x: no such file".to_owned() };
        let absent = SealError::Read { path: path(), source: io(NotFound) };
        let cases: [(CommandFailure, &str); 17] = [
            (upstream(ApiCall::Preview, RequestErrorCause::Status(400)).into(), "check the branch and api.projectId"),
            (CommandFailure::Local { doing: text(), source: io(StorageFull) }, "free some space and try again"),
            (CommandFailure::Output(io(PermissionDenied)), "check owner and mode"),
            (bind(8080, AddrInUse).into(), "choose another port"),
            (CommandFailure::Usage(text()), "see docwharf --help"),
            (CommandFailure::Config(Vec::new()), "correct the configuration"),
            (CommandFailure::NoSource(text()), "set staticExport.bundleUrl or [api]"),
            (CommandFailure::Unhealthy(text()), "docwharf status"),
            (StoreError::Unknown(text()).into(), "docwharf versions lists"),
            (CommandFailure::Config(vec![unreadable]), "name a file that can be read"),
            (absent.into(), "name a file or folder that is there"),
            (CommandFailure::DaemonReported { code: 3, message: text() }, "check the key"),
            (CommandFailure::Unavailable(text()), "try again later"),
            (refused().into(), "have the bundle made again"),
            (CommandFailure::NotActive(text()), "docwharf stage"),
            (StoreError::Locked { path: path() }.into(), "docwharf doctor looks at disk"),
            (CommandFailure::CheckFailed, "docwharf doctor looks for what is wrong"),
        ];
        for (failure, says) in cases {
            assert!(failure.next_step().starts_with(says), "{failure:?}: {}", failure.next_step());
        }
    }

    #[test]
    fn every_mistake_has_its_line_and_programs_get_all_of_them_in_one() {
        let problem = |what: &str| ConfigProblem { place: ConfigPlace::Missing, what: what.to_owned() };
        let failure = CommandFailure::Config(vec![problem("a\nb"), problem("c")]);
        assert_eq!(failure.to_string(), "docwharf: configuration: a\\nb\ndocwharf: configuration: c");
        let json = failure.json();
        assert_eq!(json["error"]["message"], "configuration: a\\nb; configuration: c");
        assert_eq!((&json["schemaVersion"], &json["error"]["exit"]), (&1.into(), &2.into()));
        assert_eq!(json["error"]["nextStep"], failure.next_step());
        let full = CommandFailure::Local { doing: "cannot write x".to_owned(), source: io(StorageFull) };
        let told = full.to_string();
        assert!(told.starts_with("docwharf: cannot write x: ") && told.ends_with("; free some space and try again"));
        assert_eq!(CommandFailure::CheckFailed.to_string(), "");
    }
}
