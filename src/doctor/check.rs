//! The result of a check of `docwharf doctor`.

use serde::Serialize;

/// The status of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckStatus {
    /// Nothing is wrong.
    Ok,
    /// The subject works, but not as well as it could, or not for long.
    Warning,
    /// The subject does not work.
    Error,
}

impl CheckStatus {
    /// Returns the word that is printed for it.
    pub fn name(self) -> &'static str {
        match self {
            CheckStatus::Ok => "ok",
            CheckStatus::Warning => "warning",
            CheckStatus::Error => "error",
        }
    }
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DoctorCheck {
    /// The subject, one word: `key`, `clock`, …
    pub name: &'static str,
    /// The result.
    pub status: CheckStatus,
    /// The finding, on one line.
    pub found: String,
    /// The advice, on one line, if there is something to do.
    pub advice: Option<String>,
}

impl DoctorCheck {
    pub(super) fn ok(name: &'static str, found: impl Into<String>) -> DoctorCheck {
        DoctorCheck { name, status: CheckStatus::Ok, found: found.into(), advice: None }
    }

    pub(super) fn warning(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> DoctorCheck {
        DoctorCheck { name, status: CheckStatus::Warning, found: found.into(), advice: Some(advice.into()) }
    }

    pub(super) fn error(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> DoctorCheck {
        DoctorCheck { name, status: CheckStatus::Error, found: found.into(), advice: Some(advice.into()) }
    }
}
