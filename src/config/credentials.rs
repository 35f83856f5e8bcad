//! Where the credentials are that systemd passes to the service (systemd.exec(5), `LoadCredential=`): in the folder that it
//! names to the service itself; for root, who types a command beside the service, where the unit takes them from.

use std::path::PathBuf;

use super::unit::ServiceUnit;

/// Where credentials are found by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// None are passed.
    #[default]
    None,
    /// In `$CREDENTIALS_DIRECTORY`.
    Passed(PathBuf),
    /// Where this unit takes them from.
    Unit(Box<ServiceUnit>),
}

/// A credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Its file, which may not be there.
    pub path: PathBuf,
    /// The unit whose credential it is, where it is looked at from beside the service.
    pub unit: Option<String>,
}

impl Credentials {
    /// The folder that systemd has named, else `unit`.
    pub fn new(unit: Option<ServiceUnit>) -> Credentials {
        match (std::env::var_os("CREDENTIALS_DIRECTORY"), unit) {
            (Some(folder), _) => Credentials::Passed(PathBuf::from(folder)),
            (None, Some(unit)) => Credentials::Unit(Box::new(unit)),
            (None, None) => Credentials::None,
        }
    }

    /// What the unit puts into this variable, for root beside the service; an empty value counts as none.
    pub fn variable(&self, name: &str) -> Option<String> {
        let Credentials::Unit(unit) = self else { return None };
        let found = unit.environment().into_iter().rev().find(|(known, _)| known == name);
        found.and_then(|(_, value)| value.into_string().ok()).filter(|value| !value.trim().is_empty())
    }

    /// The credential of this name, if one is passed.
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
