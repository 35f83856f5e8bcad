//! The credentials that systemd passes to the service (systemd.exec(5), `LoadCredential=`). The service finds them in
//! the folder that systemd names. A command that root runs beside the service finds them in the files from which the
//! unit loads them.

use std::path::PathBuf;

use super::unit::ServiceUnit;

/// The place in which credentials are found by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Credentials {
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
pub struct Credential {
    /// The path of its file, which may be missing.
    pub path: PathBuf,
    /// The unit that loads it, if a command beside the service reads it.
    pub unit: Option<String>,
}

impl Credentials {
    /// Returns the folder that systemd has named, otherwise the files of `unit`.
    pub fn new(unit: Option<ServiceUnit>) -> Credentials {
        match (std::env::var_os("CREDENTIALS_DIRECTORY"), unit) {
            (Some(folder), _) => Credentials::Passed(PathBuf::from(folder)),
            (None, Some(unit)) => Credentials::Unit(Box::new(unit)),
            (None, None) => Credentials::None,
        }
    }

    /// Returns the value that the unit gives to an environment variable, for root beside the service. An empty value
    /// counts as unset.
    pub fn variable(&self, name: &str) -> Option<String> {
        let Credentials::Unit(unit) = self else { return None };
        let found = unit.environment().into_iter().rev().find(|(known, _)| known == name);
        found.and_then(|(_, value)| value.into_string().ok()).filter(|value| !value.trim().is_empty())
    }

    /// Finds the credential of this name, if one is passed.
    pub fn find(&self, name: &str) -> Option<Credential> {
        match self {
            Credentials::None => None,
            Credentials::Passed(folder) => Some(Credential { path: folder.join(name), unit: None }),
            Credentials::Unit(unit) => {
                let path = unit.credential(name)?.to_owned();
                Some(Credential { path, unit: Some(unit.name.clone()) })
            }
        }
    }
}
