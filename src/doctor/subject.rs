//! As whom `doctor` judges: as the process that it is, or, typed by root beside the systemd unit that runs this
//! configuration, as the user of that unit inside its sandbox. What root may do says nothing about the service.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use docwharf_base::accounts;
use crate::config::checked::Sources;
use crate::config::unit::{ServiceUnit, enabled_socket};

use super::Check;

const NAME: &str = "user";

/// As whom paths and ports are judged.
#[derive(Debug)]
pub(super) enum Subject {
    /// As the process that asks.
    Process,
    /// As the user of a service unit.
    Service(Box<ServiceUser>),
}

/// The user of a service unit.
#[derive(Debug)]
pub(super) struct ServiceUser {
    pub(super) unit: ServiceUnit,
    /// None for one that exists only while the service runs: it owns nothing but what systemd gives to it.
    uid: Option<u32>,
    gids: Vec<u32>,
    /// The socket unit that listens in place of `server.listen`.
    pub(super) socket: Option<String>,
}

impl Subject {
    pub(super) fn new(sources: &Sources) -> Subject {
        let Some(unit) = sources.unit() else { return Subject::Process };
        let account = match &unit.user {
            Some(user) => accounts::user(user),
            None if unit.dynamic_user => None,
            None => accounts::user("0"),
        };
        let mut gids: Vec<u32> = account.iter().map(|account| account.gid).collect();
        gids.extend(unit.group.iter().chain(&unit.supplementary_groups).filter_map(|name| accounts::group(name)));
        gids.extend(unit.user.iter().flat_map(|user| accounts::groups_of(user)));
        let socket = enabled_socket(&unit);
        Subject::Service(Box::new(ServiceUser { unit, uid: account.map(|account| account.uid), gids, socket }))
    }

    /// As whom, as a line of its own.
    pub(super) fn check(&self, sources: &Sources) -> Check {
        let Subject::Service(service) = self else {
            let beside = ServiceUnit::for_configuration(&sources.file().0);
            let more = beside.map_or_else(String::new, |unit| {
                format!("; root's `docwharf doctor` judges as the user of {}", unit.name)
            });
            return Check::ok(NAME, format!("what follows is judged as {}{more}", self.name()));
        };
        let unit = &service.unit;
        let user = match (&unit.user, unit.dynamic_user) {
            (Some(user), false) => format!("User={user}"),
            (Some(user), true) => format!("DynamicUser, {user}"),
            (None, true) => "DynamicUser".to_owned(),
            (None, false) => "root".to_owned(),
        };
        let groups = unit.supplementary_groups.join(" ");
        let groups = if groups.is_empty() { String::new() } else { format!(", groups {groups}") };
        Check::ok(NAME, format!("what follows is judged as {} ({user}{groups})", self.name()))
    }

    /// Who it is, in a sentence.
    pub(super) fn name(&self) -> String {
        match self {
            Subject::Service(service) => format!("the user of {}", service.unit.name),
            Subject::Process => {
                let uid = rustix::process::geteuid().as_raw();
                accounts::user_name(uid).map_or_else(|| format!("uid {uid}"), |name| format!("uid {uid} ({name})"))
            }
        }
    }

    /// The service's user, if it is judged as that.
    pub(super) fn service(&self) -> Option<&ServiceUser> {
        match self {
            Subject::Service(service) => Some(service),
            Subject::Process => None,
        }
    }

    /// Whether modes let it use this one path; what lies above it is not looked at.
    pub(super) fn access(&self, path: &Path, needed: Access) -> Result<(), Errno> {
        let Subject::Service(service) = self else { return accessat(CWD, path, needed, AtFlags::EACCESS) };
        let metadata = std::fs::metadata(path)
            .map_err(|error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))?;
        let bits = [(Access::READ_OK, 4), (Access::WRITE_OK, 2), (Access::EXEC_OK, 1)];
        let wanted = bits.iter().filter(|(bit, _)| needed.contains(*bit)).map(|(_, value)| value).sum();
        let file = FileMode { mode: metadata.permissions().mode(), uid: metadata.uid(), gid: metadata.gid() };
        if file.allows(service.uid, &service.gids, wanted) { Ok(()) } else { Err(Errno::ACCESS) }
    }

    /// What is to be done about a folder that is missing and that it may not make.
    pub(super) fn make(&self, path: &Path) -> String {
        let path = path.display();
        let of = |uid: u32| format!("as root, install -d -o {uid} {path}; or name another place");
        match self {
            Subject::Process => of(rustix::process::geteuid().as_raw()),
            Subject::Service(service) => service.uid.map_or_else(
                || {
                    let unit = &service.unit.name;
                    format!(
                        "as root, install -d -m 2775 -g GROUP {path}, and give it the group: systemctl edit {unit}, \
                         SupplementaryGroups=GROUP"
                    )
                },
                of,
            ),
        }
    }

    /// What is to be done about a path that modes keep from it; `may` is what it lacks, of `rwx`.
    pub(super) fn grant(&self, place: &Path, may: &str) -> String {
        let place = place.display();
        match self {
            Subject::Process => {
                let uid = rustix::process::geteuid().as_raw();
                format!("chown {uid} {place}, or chmod it so that uid {uid} has {may}")
            }
            Subject::Service(service) => match service.uid {
                Some(uid) => format!("chown {uid} {place}, or chmod it so that uid {uid} has {may}"),
                None => format!(
                    "give it by a group: SupplementaryGroups=GROUP (systemctl edit {}), chgrp GROUP {place}, \
                     chmod g+{may} {place}",
                    service.unit.name
                ),
            },
        }
    }
}

impl ServiceUser {
    /// A drop-in with this setting, as advice.
    pub(super) fn drop_in(&self, setting: &str) -> String {
        format!("systemctl edit {}, and below [Service]: {setting}", self.unit.name)
    }

    /// Why its sandbox keeps it from writing to `path`, and what to do.
    pub(super) fn write_barrier(&self, name: &'static str, path: &Path) -> Option<Check> {
        let real = resolve(path);
        let setting = self.unit.write_barrier(&real)?;
        let found = format!("{} may not write to {}: {setting} of the unit", self.unit.name, path.display());
        let advice = if setting == "ProtectSystem=" {
            self.drop_in(&format!("ReadWritePaths={}", real.display()))
        } else {
            let allow = self.drop_in("ReadWritePaths=/srv/FOLDER");
            format!("use another place, such as a folder in /srv; {allow}")
        };
        Some(Check::error(name, found, advice))
    }

    /// Why its sandbox hides `path` from it, and what to do.
    pub(super) fn read_barrier(&self, name: &'static str, path: &Path) -> Option<Check> {
        let setting = self.unit.read_barrier(&resolve(path))?;
        let found = format!("{} does not see {}: {setting} of the unit", self.unit.name, path.display());
        Some(Check::error(name, found, "put it into another place, such as /etc/docwharf or a folder in /srv"))
    }
}

/// Where a path really is, as far as it exists: settings of a sandbox are about that.
fn resolve(path: &Path) -> PathBuf {
    let there = super::disk::existing(path);
    let rest = path.strip_prefix(&there).unwrap_or(Path::new(""));
    std::fs::canonicalize(&there).map_or_else(|_| path.to_owned(), |real| real.join(rest))
}

/// Mode, owner and group of a file.
#[derive(Debug, Clone, Copy)]
struct FileMode {
    mode: u32,
    uid: u32,
    gid: u32,
}

impl FileMode {
    /// Whether a user of this number (none: one that owns nothing) and these groups has all of `wanted`, of 4 (read), 2
    /// (write) and 1 (search). As in `path_resolution(7)`, the first class that fits decides.
    fn allows(self, uid: Option<u32>, gids: &[u32], wanted: u32) -> bool {
        let shift = match () {
            () if uid == Some(0) => return true,
            () if uid == Some(self.uid) => 6,
            () if gids.contains(&self.gid) => 3,
            () => 0,
        };
        (self.mode >> shift) & wanted == wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_class_that_fits_decides_what_modes_allow() {
        const READ: u32 = 4;
        for (mode, uid, gids, wanted, allowed) in [
            (0o640, None, &[][..], READ, false),
            (0o644, None, &[], READ, true),
            (0o640, None, &[50], READ, true),
            (0o604, None, &[50], READ, false),
            (0o600, Some(7), &[], READ, true),
            (0o066, Some(7), &[50], READ, false),
            (0o000, Some(0), &[], READ, true),
            (0o2775, None, &[50], 7, true),
            (0o2755, None, &[50], 7, false),
            (0o711, None, &[], 1, true),
        ] {
            let file = FileMode { mode, uid: 7, gid: 50 };
            assert_eq!(file.allows(uid, gids, wanted), allowed, "{mode:o} {uid:?} {gids:?} {wanted}");
        }
    }
}
