//! A failure for programs: its message, its exit code and advice (`nextStep`).

use std::io;

use serde_json::{Value, json};

use docwharf_agent::store::StoreError;
use docwharf_agent::sync::SyncError;
use docwharf_site::seal::SealError;

use super::advice::advice_for;
use super::failure::CommandFailure;
use crate::config::problem::ConfigProblem;

/// Advice for mistakes in a configuration that was read.
const CORRECT_CONFIGURATION: &str = "correct the configuration; docwharf config check lists what is wrong with it";

impl CommandFailure {
    /// Returns the failure for programs: `{"schemaVersion": 1, "error": {"exit", "message", "nextStep"}}`.
    pub fn json(&self) -> Value {
        let text = self.to_string();
        let lines = text.lines().map(|line| line.strip_prefix("docwharf: ").unwrap_or(line));
        let message = lines.collect::<Vec<_>>().join("; ");
        json!({
            "schemaVersion": 1,
            "error": { "exit": self.exit_number(), "message": message, "nextStep": self.advice() },
        })
    }

    /// Returns advice: for the cause if there is any, otherwise for the kind of failure.
    fn advice(&self) -> String {
        let specific = match self {
            CommandFailure::Sync(SyncError::Upstream { call, request_error, .. }) => call.advice(request_error),
            CommandFailure::Seal(error) => advice_for(error).into_owned(),
            CommandFailure::Store(error) => advice_for(error).into_owned(),
            CommandFailure::Sync(error) => advice_for(error).into_owned(),
            CommandFailure::Daemon(error) => advice_for(error).into_owned(),
            #[cfg(feature = "origin")]
            CommandFailure::Origin(error) => advice_for(error).into_owned(),
            CommandFailure::Publish(error) => advice_for(error).into_owned(),
            CommandFailure::RecordedAnalytics { source, .. } => advice_for(&**source).into_owned(),
            CommandFailure::Local { source, .. } | CommandFailure::Output(source) => advice_for(source).into_owned(),
            _ => String::new(),
        };
        let specific = specific.trim_start_matches("; ");
        if !specific.is_empty() {
            return specific.to_owned();
        }
        let general = match self {
            CommandFailure::Help(_) | CommandFailure::Usage(_) => "see docwharf --help, or docwharf COMMAND --help",
            CommandFailure::Seal(SealError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                "name a file or folder that exists"
            }
            CommandFailure::Store(StoreError::UnknownVersion(_) | StoreError::AmbiguousId(_)) => {
                "docwharf versions lists ids and labels"
            }
            CommandFailure::Config(problems) => {
                (problems.iter().find_map(ConfigProblem::advice_to_read)).unwrap_or(CORRECT_CONFIGURATION)
            }
            CommandFailure::NoSource(_) => "set staticExport.bundleUrl or [api], or import a bundle",
            CommandFailure::Unhealthy(_) => "docwharf status shows the state of the daemon, docwharf run starts one",
            CommandFailure::Damage(_) => "import the bundle again, or wait until the next sync fetches it",
            CommandFailure::RefusedFile { advice, .. } => advice,
            CommandFailure::InputChanged(_) => "run the command again when no other program changes the input",
            CommandFailure::Bug(_) | CommandFailure::Sync(SyncError::Bug(_)) => "report this line",
            CommandFailure::NothingRecorded(_) => "start docwharf run; it records while analytics.enabled is true",
            CommandFailure::BytesRemain(_) => "run the command again once no query is running",
            CommandFailure::Preview(_) => "correct the errors in the log of the build, then deploy the preview again",
            _ => match self.exit_number() {
                2 => "correct the arguments or the configuration; docwharf config check lists what is wrong with it",
                3 => "check the key; docwharf doctor tests it",
                4 => "try again later; docwharf doctor checks the network and the upstream",
                5 => "make the bundle again; docwharf bundle verify reports what is wrong with it",
                6 => "check the build of the project, then try again",
                7 => "docwharf stage shows which version waits, and why",
                8 => "docwharf doctor checks disk, permissions, ports and locks",
                _ => "docwharf doctor searches for faults",
            },
        };
        general.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind::{AddrInUse, NotFound, PermissionDenied, StorageFull};

    use super::super::sample_errors::{bind, io, path, refused, upstream};
    use super::*;
    use crate::config::problem::{ConfigPlace, ConfigProblem};
    use docwharf_agent::api::calls::ApiCall;
    use docwharf_base::net::request_error::RequestErrorCause;

    #[test]
    fn advice_depends_on_the_cause_of_the_failure_or_else_on_its_exit_code() {
        let text = || "x".to_owned();
        let unreadable =
            ConfigProblem { place: ConfigPlace::Missing, message: "cannot read x: no such file".to_owned() };
        let absent = SealError::Read { path: path(), source: io(NotFound) };
        let cases: [(CommandFailure, &str); 24] = [
            (upstream(ApiCall::Preview, RequestErrorCause::Status(400)).into(), "check the branch and api.projectId"),
            (CommandFailure::Local { doing: text(), source: io(StorageFull) }, "free some space and try again"),
            (CommandFailure::Output(io(PermissionDenied)), "check owner and mode"),
            (bind(8080, AddrInUse).into(), "choose another port"),
            (CommandFailure::Usage(text()), "see docwharf --help"),
            (CommandFailure::Config(Vec::new()), "correct the configuration"),
            (CommandFailure::NoSource(text()), "set staticExport.bundleUrl or [api]"),
            (CommandFailure::Unhealthy(text()), "docwharf status"),
            (CommandFailure::NothingRecorded(text()), "start docwharf run"),
            (CommandFailure::BytesRemain(text()), "run the command again"),
            (
                CommandFailure::RecordedAnalytics { doing: text(), source: Box::new(io(PermissionDenied)) },
                "check owner and mode",
            ),
            (StoreError::UnknownVersion(text()).into(), "docwharf versions lists"),
            (CommandFailure::Config(vec![unreadable]), "name a file that can be read"),
            (absent.into(), "name a file or folder that exists"),
            (CommandFailure::DaemonReported { code: 3, message: text() }, "check the key"),
            (CommandFailure::Unavailable(text()), "try again later"),
            (refused().into(), "make the bundle again"),
            (CommandFailure::NotActive(text()), "docwharf stage"),
            (StoreError::locked(&path()).into(), "docwharf doctor checks disk"),
            (CommandFailure::InputChanged(text()), "run the command again"),
            (CommandFailure::RefusedFile { message: text(), advice: "use the later version" }, "use the later version"),
            (CommandFailure::Bug(text()), "report this line"),
            (SyncError::Bug(text()).into(), "report this line"),
            (CommandFailure::CheckFailed, "docwharf doctor searches for faults"),
        ];
        for (failure, expected) in cases {
            assert!(failure.advice().starts_with(expected), "{failure:?}: {}", failure.advice());
        }
    }

    #[test]
    fn each_config_problem_has_its_own_line_and_json_output_joins_them_in_one_message() {
        let problem = |what: &str| ConfigProblem { place: ConfigPlace::Missing, message: what.to_owned() };
        let failure = CommandFailure::Config(vec![problem("a\nb"), problem("c")]);
        assert_eq!(failure.to_string(), "docwharf: configuration: a\\nb\ndocwharf: configuration: c");
        let json = failure.json();
        assert_eq!(json["error"]["message"], "configuration: a\\nb; configuration: c");
        assert_eq!((&json["schemaVersion"], &json["error"]["exit"]), (&1.into(), &2.into()));
        assert_eq!(json["error"]["nextStep"], failure.advice());
        let full = CommandFailure::Local { doing: "cannot write x".to_owned(), source: io(StorageFull) };
        let message = full.to_string();
        assert!(
            message.starts_with("docwharf: cannot write x: ") && message.ends_with("; free some space and try again")
        );
        assert_eq!(CommandFailure::CheckFailed.to_string(), "");
    }
}
