//! The exit code of each failure.

use std::io;
use std::process::ExitCode;

use crate::daemon::{CommandError, DaemonError};
use docwharf_agent::api::calls::ApiCall;
use docwharf_agent::store::StoreError;
use docwharf_agent::sync::SyncError;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::net::request_error::{RequestError, RequestErrorCause};
#[cfg(feature = "origin")]
use docwharf_origin::{ApiKeyFileError, OriginError};
use docwharf_serve::key_pair::KeyPairError;
use docwharf_site::seal::SealError;

use super::advice::advice_for;
use super::failure::CommandFailure;

impl CommandFailure {
    /// Returns the documented exit code.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.exit_number())
    }

    pub(super) fn exit_number(&self) -> u8 {
        match self {
            CommandFailure::Help(_)
            | CommandFailure::Usage(_)
            | CommandFailure::Config(_)
            | CommandFailure::NoSource(_) => 2,
            CommandFailure::Seal(error) => seal_exit_code(error),
            CommandFailure::Store(error) => store_exit_code(error),
            CommandFailure::Sync(error) => sync_exit_code(error),
            CommandFailure::Daemon(error) => match error {
                DaemonError::NothingToServe { .. } | DaemonError::NoListener | DaemonError::NoCertificate => 2,
                DaemonError::Tls(error) => key_pair_exit_code(error),
                DaemonError::FirstSync(error) => sync_exit_code(error),
                DaemonError::Store(error) => store_exit_code(error),
                DaemonError::Bind { .. }
                | DaemonError::Passed { .. }
                | DaemonError::Log { .. }
                | DaemonError::TooFewFiles(_)
                | DaemonError::Start(_) => 8,
                DaemonError::EndedUnexpectedly(_) => 1,
            },
            #[cfg(feature = "origin")]
            CommandFailure::Origin(error) => origin_exit_code(error),
            CommandFailure::DaemonReported { code, .. } => *code,
            CommandFailure::Signal(number) => signal_exit_code(*number),
            CommandFailure::InputChanged(_)
            | CommandFailure::NothingRecorded(_)
            | CommandFailure::Bug(_)
            | CommandFailure::Unhealthy(_)
            | CommandFailure::CheckFailed => 1,
            CommandFailure::Unavailable(_) | CommandFailure::EndlessPages(_) => 4,
            CommandFailure::RefusedFile { .. } => 5,
            CommandFailure::Preview(_) => 6,
            CommandFailure::NotActive(_) => 7,
            CommandFailure::Local { .. }
            | CommandFailure::Output(_)
            | CommandFailure::Damage(_)
            | CommandFailure::InternalProcess(_)
            | CommandFailure::RecordedAnalytics { .. }
            | CommandFailure::BytesRemain(_)
            | CommandFailure::Publish(_) => 8,
        }
    }
}

/// Returns the exit code of a process that a signal has ended, as shells report it.
pub(super) fn signal_exit_code(number: u8) -> u8 {
    128 + number
}

fn seal_exit_code(error: &SealError) -> u8 {
    match error {
        SealError::Refused { .. } => 5,
        // A path that does not exist is a wrong argument; one that cannot be read is a fault of this machine.
        SealError::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => 2,
        SealError::Read { .. } | SealError::Write { .. } => 8,
    }
}

/// Returns the exit code for an unusable certificate or key. That is a mistake in the configuration (2), except for a
/// file that may not be read, which is a fault of this machine (8).
fn key_pair_exit_code(error: &KeyPairError) -> u8 {
    match error {
        KeyPairError::Read { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => 8,
        _ => 2,
    }
}

fn store_exit_code(error: &StoreError) -> u8 {
    match error {
        StoreError::UnknownVersion(_) | StoreError::AmbiguousId(_) => 2,
        StoreError::NoPrevious => 1,
        StoreError::Io { .. }
        | StoreError::Locked { .. }
        | StoreError::DamagedRecord { .. }
        | StoreError::LaterRecord { .. }
        | StoreError::NoSpace { .. }
        | StoreError::OverMaxBytes { .. }
        | StoreError::RemovedVersionsInUse { .. } => 8,
    }
}

fn sync_exit_code(error: &SyncError) -> u8 {
    match error {
        SyncError::Missing { .. }
        | SyncError::IsFolder { .. }
        | SyncError::UnusableSetting(_)
        | SyncError::Client(_)
        // In the URLs of these calls, only the project id is configured: a 404 means that it is wrong.
        | SyncError::Upstream {
            call: ApiCall::Preview | ApiCall::Searches | ApiCall::Views | ApiCall::PageCounts,
            request_error: RequestError { cause: RequestErrorCause::Status(404), .. },
            ..
        } => 2,
        SyncError::Changing { source, .. } => sync_exit_code(source),
        SyncError::Upstream { request_error, .. } => request_exit_code(request_error),
        SyncError::Download { signed, request_error, key, .. } => match request_error.cause {
            RequestErrorCause::NotPermitted => 2,
            RequestErrorCause::Disk => 8,
            RequestErrorCause::TooLarge => 5,
            // 401 and 403 mean that access is denied only for a plain link that cannot be renewed and whose response
            // has no storage error code. Any other link counts as expired.
            RequestErrorCause::Status(401 | 403) if key.is_some() && !*signed && request_error.code().is_none() => 3,
            _ => 4,
        },
        SyncError::JobFailed { .. } => 6,
        SyncError::JobVanished { .. } | SyncError::JobTimeout { .. } => 4,
        SyncError::Cancelled | SyncError::Bug(_) => 1,
        SyncError::WrongDigest { .. } | SyncError::StillRefused(_) => 5,
        SyncError::Seal(error) => seal_exit_code(error),
        SyncError::Store(error) => store_exit_code(error),
        SyncError::Open { .. } | SyncError::DamagedVersion { .. } | SyncError::Thread(_) => 8,
    }
}

#[cfg(feature = "origin")]
fn origin_exit_code(error: &OriginError) -> u8 {
    match error {
        OriginError::Key(ApiKeyFileError::Invalid { .. }) => 2,
        OriginError::Site { source, .. } | OriginError::Key(ApiKeyFileError::Read { source, .. })
            if source.kind() == io::ErrorKind::NotFound =>
        {
            2
        }
        OriginError::Site { .. }
        | OriginError::Key(ApiKeyFileError::Read { .. })
        | OriginError::Database(_)
        | OriginError::Previews(_)
        | OriginError::Locked(_)
        | OriginError::System { .. } => 8,
    }
}

/// Returns the exit code and the message that the daemon sends over its control socket when a command fails.
pub(super) fn exit_code_and_message(error: &CommandError<'_>) -> (u8, String) {
    match error {
        CommandError::Failed(error) => (sync_exit_code(error), format!("{}{}", ErrorChain(*error), advice_for(*error))),
        CommandError::OtherConfiguration => {
            let message = "the daemon on this store has another source, pin, SHA-256 or `enabled` than the \
                           configuration of --config: leave --config out to use the daemon's, or stop the daemon";
            (8, message.to_owned())
        }
        CommandError::Label(why) => (2, format!("--label: {why}")),
        CommandError::NotAtOnce => (1, "internal error: this command was not given a task".to_owned()),
    }
}

/// Returns the exit code for a failed API call.
fn request_exit_code(request_error: &RequestError) -> u8 {
    match request_error.cause {
        RequestErrorCause::Status(400 | 422) | RequestErrorCause::NotPermitted => 2,
        RequestErrorCause::Status(401..=403) => 3,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind::{AddrInUse, NotFound, PermissionDenied};
    use std::time::Duration;

    use http::HeaderMap;

    use super::super::sample_errors::{bind, damaged, io, path, read, refused, upstream};
    use super::*;
    use docwharf_agent::publish::PublishError;
    use docwharf_agent::sync::BUNDLE_URL_KEY;
    use docwharf_base::model::digest::Digest;
    use docwharf_base::model::version::VersionId;
    use docwharf_base::net::client::ClientError;
    use docwharf_base::secret::SecretRedactor;

    #[track_caller]
    fn assert_exit_codes(cases: Vec<(u8, CommandFailure)>) {
        for (code, failure) in cases {
            assert_eq!(failure.exit_number(), code, "{failure:?}");
        }
    }

    #[test]
    fn command_exits_with_the_exit_code_of_its_failure() {
        let text = || "x".to_owned();
        assert_exit_codes(vec![
            (1, CommandFailure::InputChanged(text())),
            (1, CommandFailure::NothingRecorded(text())),
            (1, CommandFailure::Bug(text())),
            (1, CommandFailure::Unhealthy(text())),
            (1, CommandFailure::CheckFailed),
            (2, CommandFailure::Help(text())),
            (2, CommandFailure::Usage(text())),
            (2, CommandFailure::Config(Vec::new())),
            (2, CommandFailure::NoSource(text())),
            (4, CommandFailure::Unavailable(text())),
            (4, CommandFailure::EndlessPages(text())),
            (5, CommandFailure::RefusedFile { message: text(), advice: "" }),
            (6, CommandFailure::Preview(text())),
            (7, CommandFailure::NotActive(text())),
            (7, CommandFailure::DaemonReported { code: 7, message: text() }),
            (8, CommandFailure::Local { doing: text(), source: io(NotFound) }),
            (8, CommandFailure::Output(io(NotFound))),
            (8, CommandFailure::Damage(text())),
            (8, CommandFailure::InternalProcess(text())),
            (8, CommandFailure::RecordedAnalytics { doing: text(), source: Box::new(io(NotFound)) }),
            (8, CommandFailure::BytesRemain(text())),
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
    fn store_error_has_the_exit_code_of_a_wrong_name_or_a_local_failure() {
        assert_exit_codes(vec![
            (1, StoreError::NoPrevious.into()),
            (2, StoreError::UnknownVersion("x".to_owned()).into()),
            (2, StoreError::AmbiguousId("x".to_owned()).into()),
            (8, StoreError::Io { doing: "read", path: path(), source: io(NotFound) }.into()),
            (8, StoreError::locked(&path()).into()),
            (8, StoreError::DamagedRecord { path: path(), source: damaged() }.into()),
            (8, StoreError::LaterRecord { path: path(), found: 9 }.into()),
            (8, StoreError::NoSpace { path: path(), needed: 2, free: 1, min_free: 0 }.into()),
        ]);
    }

    #[test]
    fn sync_error_has_the_exit_code_of_the_bundle_the_upstream_or_this_machine() {
        let id = VersionId(Digest::compute(b"x"));
        let text = || "x".to_owned();
        let after = Duration::from_secs(1);
        let changing = |source| SyncError::Changing { path: path(), source: Box::new(source) };
        let sync: Vec<(u8, SyncError)> = vec![
            (1, SyncError::Cancelled),
            (1, SyncError::Bug(text())),
            (2, SyncError::Missing { path: path(), key: BUNDLE_URL_KEY, source: io(NotFound) }),
            (2, SyncError::IsFolder { path: path(), key: BUNDLE_URL_KEY }),
            (2, SyncError::UnusableSetting(text())),
            (2, SyncError::Client(ClientError::Read { path: path(), source: io(NotFound) })),
            (
                4,
                SyncError::JobVanished {
                    id: text(),
                    request_error: RequestError::new(RequestErrorCause::Status(404), "x"),
                },
            ),
            (4, SyncError::JobTimeout { id: text(), after, state: text(), still: after }),
            (5, SyncError::WrongDigest { name: text(), found: id.0, demanded: id.0 }),
            (5, SyncError::StillRefused(text())),
            (5, SyncError::Seal(refused())),
            (8, SyncError::Seal(read(PermissionDenied))),
            (5, changing(SyncError::Seal(refused()))),
            (8, changing(SyncError::Seal(read(PermissionDenied)))),
            (6, SyncError::JobFailed { id: text(), reason: text() }),
            (1, SyncError::Store(StoreError::NoPrevious)),
            (8, SyncError::Store(StoreError::locked(&path()))),
            (8, SyncError::Open { id, source: io(NotFound) }),
            (8, SyncError::DamagedVersion { id, source: None }),
            (8, SyncError::Thread(io(NotFound))),
        ];
        for (code, error) in &sync {
            assert_eq!(exit_code_and_message(&CommandError::Failed(error)).0, *code, "{error:?}");
        }
        assert_exit_codes(sync.into_iter().map(|(code, error)| (code, error.into())).collect());
    }

    #[test]
    fn command_that_the_daemon_refuses_has_an_exit_code_and_a_message() {
        for (error, code, message) in [
            (CommandError::OtherConfiguration, 8, "the daemon on this store has another source, pin, SHA-256"),
            (CommandError::Label("x"), 2, "--label: x"),
            (CommandError::NotAtOnce, 1, "internal error: this command was not given a task"),
        ] {
            let found = exit_code_and_message(&error);
            assert!(found.0 == code && found.1.starts_with(message), "{error:?}: {found:?}");
        }
    }

    #[test]
    fn api_error_has_the_exit_code_of_configuration_key_or_upstream() {
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
            (RequestErrorCause::NoUsableResponse, 4),
            (RequestErrorCause::Unreadable, 4),
            (RequestErrorCause::RefusedRedirect, 4),
            (RequestErrorCause::NotPermitted, 2),
        ];
        // 404 means a wrong project id for the calls whose URL contains nothing else that is configured.
        for (call, absent) in [
            (ApiCall::StartExport, 4),
            (ApiCall::PollExport, 4),
            (ApiCall::RequestExportLink, 4),
            (ApiCall::Deployment, 4),
            (ApiCall::Preview, 2),
            (ApiCall::Searches, 2),
            (ApiCall::Views, 2),
            (ApiCall::PageCounts, 2),
        ] {
            for (cause, code) in causes.into_iter().chain([(RequestErrorCause::Status(404), absent)]) {
                assert_eq!(sync_exit_code(&upstream(call, cause)), code, "{call:?} {cause:?}");
            }
        }
    }

    #[test]
    fn rejected_download_link_is_expired_unless_plain_not_renewable_and_without_storage_code() {
        let plain = |cause| RequestError::new(cause, "x");
        let storage = |status| {
            let body = b"<Error><Code>AccessDenied</Code></Error>";
            RequestError::from_response(status, &HeaderMap::new(), body, &SecretRedactor::default())
        };
        for (request_error, signed, renewable, code) in [
            (plain(RequestErrorCause::Status(401)), false, false, 3),
            (plain(RequestErrorCause::Status(403)), false, false, 3),
            (plain(RequestErrorCause::Status(403)), true, false, 4),
            (plain(RequestErrorCause::Status(403)), false, true, 4),
            (plain(RequestErrorCause::Status(401)), true, true, 4),
            (storage(403), false, false, 4),
            (plain(RequestErrorCause::Status(402)), false, false, 4),
            (plain(RequestErrorCause::Status(404)), false, false, 4),
            (plain(RequestErrorCause::Status(500)), false, false, 4),
            (plain(RequestErrorCause::NoUsableResponse), false, false, 4),
            (plain(RequestErrorCause::NotPermitted), true, true, 2),
            (plain(RequestErrorCause::TooLarge), true, true, 5),
            (plain(RequestErrorCause::Disk), true, true, 8),
        ] {
            let what = format!("{request_error:?}, signed: {signed}, renewable: {renewable}");
            let key = (!renewable).then_some(BUNDLE_URL_KEY);
            let error = SyncError::Download { link: "x".to_owned(), signed, request_error, key };
            assert_eq!(sync_exit_code(&error), code, "{what}");
        }
    }

    #[test]
    fn server_start_error_has_the_exit_code_of_configuration_or_this_machine() {
        let pair = |kind| DaemonError::Tls(KeyPairError::Read { path: path(), source: io(kind) });
        assert_exit_codes(vec![
            (1, DaemonError::EndedUnexpectedly(io(NotFound)).into()),
            (2, DaemonError::NothingToServe { store: path(), missing_config: None }.into()),
            (2, DaemonError::NoListener.into()),
            (2, DaemonError::NoCertificate.into()),
            (2, pair(NotFound).into()),
            (8, pair(PermissionDenied).into()),
            (2, DaemonError::Tls(KeyPairError::NoKey { path: path() }).into()),
            (3, DaemonError::FirstSync(upstream(ApiCall::StartExport, RequestErrorCause::Status(401))).into()),
            (8, DaemonError::Store(StoreError::locked(&path())).into()),
            (8, bind(8080, AddrInUse).into()),
            (8, DaemonError::Passed { descriptor: 3, name: String::new(), source: io(NotFound) }.into()),
            (8, DaemonError::Log { path: path(), source: io(NotFound) }.into()),
            (8, DaemonError::TooFewFiles(9).into()),
            (8, DaemonError::Start(io(NotFound)).into()),
        ]);
    }

    #[test]
    #[cfg(feature = "origin")]
    fn origin_start_error_has_the_exit_code_of_configuration_or_this_machine() {
        use docwharf_origin::database::DatabaseError;

        let site = |kind| OriginError::Site {
            domain: docwharf_origin::Domain::parse("docs.example").unwrap(),
            path: path(),
            source: io(kind),
        };
        let key = |kind| OriginError::Key(ApiKeyFileError::Read { path: path(), source: io(kind) });
        assert_exit_codes(vec![
            (2, site(NotFound).into()),
            (8, site(PermissionDenied).into()),
            (2, key(NotFound).into()),
            (8, key(PermissionDenied).into()),
            (2, OriginError::Key(ApiKeyFileError::Invalid { path: path(), reason: "it is empty" }).into()),
            (8, OriginError::Database(DatabaseError::Closed).into()),
            (8, OriginError::Locked(path()).into()),
            (8, OriginError::System { doing: "start", source: io(NotFound) }.into()),
        ]);
    }
}
