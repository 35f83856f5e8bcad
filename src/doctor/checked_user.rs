//! The user for whom `doctor` checks paths and ports. It is the user of this process or, if root runs `doctor` on a
//! host with a systemd unit for this configuration, the user of that unit inside its sandbox. What root may do says
//! nothing about the service.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use crate::config::inputs::ConfigInputs;
use crate::config::systemd_unit::{ServiceUnit, enabled_socket};
use docwharf_base::accounts;

use super::check::DoctorCheck;

const CHECK_NAME: &str = "user";

/// The user for whom paths and ports are checked.
#[derive(Debug)]
pub(super) enum CheckedUser {
    /// The user of this process.
    Process,
    /// The user of a service unit.
    Service(Box<ServiceUser>),
}

/// The user of a service unit, with its groups and sockets.
#[derive(Debug)]
pub(super) struct ServiceUser {
    pub(super) unit: ServiceUnit,
    /// `None` for a user that exists only while the service runs (`DynamicUser=`): it owns only what systemd provides.
    uid: Option<u32>,
    gids: Vec<u32>,
    /// The socket unit that listens in place of `server.listen`.
    pub(super) socket: Option<String>,
}

impl CheckedUser {
    pub(super) fn new(config_inputs: &ConfigInputs) -> CheckedUser {
        let Some(unit) = config_inputs.unit() else { return CheckedUser::Process };
        let account = match &unit.user {
            Some(user) => accounts::find_user(user),
            None if unit.dynamic_user => None,
            None => accounts::find_user("0"),
        };
        let mut gids: Vec<u32> = account.iter().map(|account| account.gid).collect();
        gids.extend(
            unit.group.iter().chain(&unit.supplementary_groups).filter_map(|name| accounts::find_group_id(name)),
        );
        gids.extend(unit.user.iter().flat_map(|user| accounts::find_group_ids(user)));
        let socket = enabled_socket(&unit);
        CheckedUser::Service(Box::new(ServiceUser { unit, uid: account.map(|account| account.uid), gids, socket }))
    }

    /// Returns the check that names the user of the other checks.
    pub(super) fn check(&self, config_inputs: &ConfigInputs) -> DoctorCheck {
        let CheckedUser::Service(service) = self else {
            let unit = ServiceUnit::for_configuration(&config_inputs.file().0);
            let note = unit.map_or_else(String::new, |unit| {
                format!("; root's `docwharf doctor` checks as the user of {}", unit.name)
            });
            return DoctorCheck::ok(CHECK_NAME, format!("the following is checked as {}{note}", self.name()));
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
        DoctorCheck::ok(CHECK_NAME, format!("the following is checked as {} ({user}{groups})", self.name()))
    }

    /// Returns the name of the user, for use in a sentence.
    pub(super) fn name(&self) -> String {
        match self {
            CheckedUser::Service(service) => format!("the user of {}", service.unit.name),
            CheckedUser::Process => {
                let uid = rustix::process::geteuid().as_raw();
                accounts::find_user_name(uid).map_or_else(|| format!("uid {uid}"), |name| format!("uid {uid} ({name})"))
            }
        }
    }

    /// Returns the service's user; `None` if the checks are made for this process.
    pub(super) fn service(&self) -> Option<&ServiceUser> {
        match self {
            CheckedUser::Service(service) => Some(service),
            CheckedUser::Process => None,
        }
    }

    /// Checks whether the modes of this one path allow the access. The folders above it are not checked.
    pub(super) fn access(&self, path: &Path, needed: Access) -> Result<(), Errno> {
        let CheckedUser::Service(service) = self else { return accessat(CWD, path, needed, AtFlags::EACCESS) };
        let metadata = std::fs::metadata(path)
            .map_err(|error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))?;
        let bits = [(Access::READ_OK, 4), (Access::WRITE_OK, 2), (Access::EXEC_OK, 1)];
        let needed_bits = bits.iter().filter(|(bit, _)| needed.contains(*bit)).map(|(_, value)| value).sum();
        let file = FileMode { mode: metadata.permissions().mode(), uid: metadata.uid(), gid: metadata.gid() };
        if file.allows(service.uid, &service.gids, needed_bits) { Ok(()) } else { Err(Errno::ACCESS) }
    }

    /// Returns advice for a missing folder that the user may not create.
    pub(super) fn advise_create(&self, path: &Path) -> String {
        let path = path.display();
        let install_advice = |uid: u32| format!("as root, install -d -o {uid} {path}; or name another folder");
        match self {
            CheckedUser::Process => install_advice(rustix::process::geteuid().as_raw()),
            CheckedUser::Service(service) => service.uid.map_or_else(
                || {
                    let unit = &service.unit.name;
                    format!(
                        "as root, install -d -m 2775 -g GROUP {path}, and add the service to the group: systemctl edit {unit}, \
                         SupplementaryGroups=GROUP"
                    )
                },
                install_advice,
            ),
        }
    }

    /// Returns advice for a path whose mode denies access to the user; `may` are the missing rights, of `rwx`.
    pub(super) fn advise_grant(&self, place: &Path, may: &str) -> String {
        let place = place.display();
        match self {
            CheckedUser::Process => {
                let uid = rustix::process::geteuid().as_raw();
                format!("chown {uid} {place}, or chmod it so that uid {uid} has {may}")
            }
            CheckedUser::Service(service) => match service.uid {
                Some(uid) => format!("chown {uid} {place}, or chmod it so that uid {uid} has {may}"),
                None => format!(
                    "grant it through a group: SupplementaryGroups=GROUP (systemctl edit {}), chgrp GROUP {place}, \
                     chmod g+{may} {place}",
                    service.unit.name
                ),
            },
        }
    }
}

impl ServiceUser {
    /// Returns advice to add this setting to the unit in a drop-in file.
    pub(super) fn drop_in(&self, setting: &str) -> String {
        format!("systemctl edit {}, and below [Service]: {setting}", self.unit.name)
    }

    /// Returns the error for a path that the sandbox of the unit makes read-only, with advice; `None` if it does not.
    pub(super) fn write_barrier(&self, name: &'static str, path: &Path) -> Option<DoctorCheck> {
        let real = resolve(path);
        let setting = self.unit.write_barrier(&real)?;
        let found = format!("{} may not write to {}: {setting} of the unit", self.unit.name, path.display());
        let advice = if setting == "ProtectSystem=" {
            self.drop_in(&format!("ReadWritePaths={}", real.display()))
        } else {
            let allow = self.drop_in("ReadWritePaths=/srv/FOLDER");
            format!("use another folder, such as one in /srv; {allow}")
        };
        Some(DoctorCheck::error(name, found, advice))
    }

    /// Returns the error for a path that the sandbox of the unit hides, with advice; `None` if it does not.
    pub(super) fn read_barrier(&self, name: &'static str, path: &Path) -> Option<DoctorCheck> {
        let setting = self.unit.read_barrier(&resolve(path))?;
        let found = format!("{} cannot see {}: {setting} of the unit", self.unit.name, path.display());
        Some(DoctorCheck::error(name, found, "move it to another folder, such as /etc/docwharf or a folder in /srv"))
    }
}

/// Resolves the links in the part of a path that exists: settings of a sandbox apply to the resolved path.
fn resolve(path: &Path) -> PathBuf {
    let existing = super::disk::nearest_existing(path);
    let rest = path.strip_prefix(&existing).unwrap_or(Path::new(""));
    std::fs::canonicalize(&existing).map_or_else(|_| path.to_owned(), |real| real.join(rest))
}

/// Mode, owner and group of a file.
#[derive(Debug, Clone, Copy)]
struct FileMode {
    mode: u32,
    uid: u32,
    gid: u32,
}

impl FileMode {
    /// Returns whether a user with this id (`None`: one that owns nothing) and these groups has all rights of
    /// `needed_bits`: the sum of 4 (read), 2 (write) and 1 (search). As in `path_resolution(7)`, the first class that
    /// fits decides.
    fn allows(self, uid: Option<u32>, gids: &[u32], needed_bits: u32) -> bool {
        let shift = match () {
            () if uid == Some(0) => return true,
            () if uid == Some(self.uid) => 6,
            () if gids.contains(&self.gid) => 3,
            () => 0,
        };
        (self.mode >> shift) & needed_bits == needed_bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_matching_permission_class_decides_what_a_file_mode_allows() {
        const READ: u32 = 4;
        for (mode, uid, gids, needed_bits, allowed) in [
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
            assert_eq!(file.allows(uid, gids, needed_bits), allowed, "{mode:o} {uid:?} {gids:?} {needed_bits}");
        }
    }
}
