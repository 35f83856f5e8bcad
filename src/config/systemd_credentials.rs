//! The credentials that systemd passes to the service (systemd.exec(5), `LoadCredential=`). The service finds them in
//! the folder that systemd names. A command that root runs next to the service finds them in the files from which the
//! unit loads them.

use std::path::{Path, PathBuf};

use super::systemd_unit::ServiceUnit;

/// The place in which credentials are found by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SystemdCredentials {
    /// There are no credentials.
    #[default]
    None,
    /// The folder `$CREDENTIALS_DIRECTORY`.
    Passed(PathBuf),
    /// The files from which this unit loads them.
    Unit(Box<ServiceUnit>),
}

/// A credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemdCredential {
    /// The path of its file, which may be missing.
    pub path: PathBuf,
    /// The unit that loads it, if a command of root reads it.
    pub unit: Option<String>,
}

impl SystemdCredentials {
    /// Returns the folder that systemd has named, otherwise the files of `unit`.
    pub fn new(unit: Option<ServiceUnit>) -> SystemdCredentials {
        match (std::env::var_os("CREDENTIALS_DIRECTORY"), unit) {
            (Some(folder), _) => SystemdCredentials::Passed(PathBuf::from(folder)),
            (None, Some(unit)) => SystemdCredentials::Unit(Box::new(unit)),
            (None, None) => SystemdCredentials::None,
        }
    }

    /// Returns the value that the unit sets for an environment variable, for a command of root. An empty value
    /// counts as unset.
    pub fn variable(&self, name: &str) -> Option<String> {
        let SystemdCredentials::Unit(unit) = self else { return None };
        let found = unit.environment().into_iter().rev().find(|(known, _)| known == name);
        found.and_then(|(_, value)| value.into_string().ok()).filter(|value| !value.trim().is_empty())
    }

    /// Returns the file that a command of root reads in place of this one: if it is the path of a credential of the
    /// unit, the file that systemd loads it from, because the path exists only while the service runs.
    pub fn source_of(&self, path: PathBuf) -> PathBuf {
        match self {
            SystemdCredentials::Unit(unit) => unit.credential_source(&path).map_or(path.clone(), Path::to_owned),
            _ => path,
        }
    }

    /// Finds the credential of this name, if one is passed.
    pub fn find(&self, name: &str) -> Option<SystemdCredential> {
        match self {
            SystemdCredentials::None => None,
            SystemdCredentials::Passed(folder) => Some(SystemdCredential { path: folder.join(name), unit: None }),
            SystemdCredentials::Unit(unit) => {
                let path = unit.credential(name)?.to_owned();
                Some(SystemdCredential { path, unit: Some(unit.name.clone()) })
            }
        }
    }
}
