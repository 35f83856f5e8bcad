//! The user for whom `doctor` checks paths and ports. It is the user of this process or, if root runs `doctor`, the
//! user that `--user` names, else the user of the systemd unit for this configuration inside its sandbox, else the user
//! of the package, if there is one. What root may do says nothing about the service.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use crate::config::inputs::ConfigInputs;
use crate::config::systemd_unit::{ServiceUnit, enabled_socket};
use docwharf_base::accounts;

use super::check::DoctorCheck;
use super::user_thread::{UserCredentials, run_as};

const CHECK_NAME: &str = "user";
/// The user that the package creates for the service.
const PACKAGE_USER: &str = "docwharf";

/// The user for whom paths and ports are checked.
#[derive(Debug)]
pub(super) enum CheckedUser {
    /// The user of this process.
    Process,
    /// Another user, without a service unit.
    Account(CheckedAccount),
    /// The user of a service unit.
    Service(Box<ServiceUser>),
}

/// A user other than that of this process.
#[derive(Debug)]
pub(super) struct CheckedAccount {
    uid: u32,
    gids: Vec<u32>,
    /// Whether a thread of this process can take the user's credentials. Otherwise, the modes of files decide.
    can_become: bool,
}

/// The user of a service unit, with its groups and sockets.
#[derive(Debug)]
pub(super) struct ServiceUser {
    pub(super) unit: ServiceUnit,
    /// `None` for a user that exists only while the service runs (`DynamicUser=`): it owns only what systemd provides.
    account: Option<CheckedAccount>,
    gids: Vec<u32>,
    /// The socket unit that listens in place of `server.listen`.
    pub(super) socket: Option<String>,
}

impl CheckedAccount {
    /// Finds a user by name or number, with its groups. `primary_group` replaces the one of the user; `more_groups` are
    /// further ones.
    fn find(user: &str, primary_group: Option<u32>, more_groups: &[u32]) -> Option<CheckedAccount> {
        let account = accounts::find_user(user)?;
        let name = accounts::find_user_name(account.uid);
        let listed = name.iter().flat_map(|name| accounts::find_group_ids(name));
        let primary = primary_group.unwrap_or(account.gid);
        let gids: Vec<u32> = [primary].into_iter().chain(more_groups.iter().copied()).chain(listed).collect();
        let can_become = run_as(&UserCredentials { uid: account.uid, gids: &gids }, || ()).is_ok();
        Some(CheckedAccount { uid: account.uid, gids, can_become })
    }

    /// Runs `action` with the credentials of this user; `None` if that is not possible.
    fn run<T: Send>(&self, action: impl FnOnce() -> T + Send) -> Option<T> {
        let credentials = UserCredentials { uid: self.uid, gids: &self.gids };
        if self.can_become { run_as(&credentials, action).ok() } else { None }
    }

    fn description(&self) -> String {
        accounts::describe_user(self.uid)
    }

    /// Returns the name of the user for commands such as chown, or its number if it has no name.
    fn short_name(&self) -> String {
        accounts::find_user_name(self.uid).unwrap_or_else(|| self.uid.to_string())
    }
}

impl CheckedUser {
    /// Returns the user that `--user` names, or the one that the configuration is probably for. The error says why
    /// `named` cannot be used.
    pub(super) fn new(config_inputs: &ConfigInputs, named: Option<&str>) -> Result<CheckedUser, String> {
        let own_uid = rustix::process::geteuid();
        let unit = config_inputs.unit();
        let Some(named) = named else {
            if let Some(unit) = unit {
                return Ok(CheckedUser::of_unit(unit));
            }
            let package = if own_uid.is_root() { CheckedAccount::find(PACKAGE_USER, None, &[]) } else { None };
            return Ok(package.map_or(CheckedUser::Process, CheckedUser::Account));
        };
        let Some(account) = CheckedAccount::find(named, None, &[]) else {
            return Err(format!(
                "--user: there is no user {named:?} in /etc/passwd; name another one, or give its number"
            ));
        };
        if let Some(unit) = unit
            && unit.user.as_deref().and_then(accounts::find_user).is_some_and(|user| user.uid == account.uid)
        {
            return Ok(CheckedUser::of_unit(unit));
        }
        if account.uid == own_uid.as_raw() {
            return Ok(CheckedUser::Process);
        }
        if !own_uid.is_root() {
            let own = accounts::describe_user(own_uid.as_raw());
            return Err(format!(
                "--user: only root can check as another user, and this is {own}; run it as root, or as {named} \
                 (sudo -u {named} docwharf doctor)"
            ));
        }
        Ok(CheckedUser::Account(account))
    }

    fn of_unit(unit: ServiceUnit) -> CheckedUser {
        // `Group=` replaces the user's primary group, as in systemd.exec(5).
        let primary = unit.group.as_deref().and_then(accounts::find_group_id);
        let groups = unit.group.iter().chain(&unit.supplementary_groups);
        let unit_gids: Vec<u32> = groups.filter_map(|name| accounts::find_group_id(name)).collect();
        let account = match &unit.user {
            Some(user) => CheckedAccount::find(user, primary, &unit_gids),
            None if unit.dynamic_user => None,
            None => CheckedAccount::find("0", primary, &unit_gids),
        };
        // systemd takes the groups that list the name of a dynamic user, too.
        let listed = || unit.user.iter().flat_map(|user| accounts::find_group_ids(user));
        let gids = account
            .as_ref()
            .map_or_else(|| unit_gids.iter().copied().chain(listed()).collect(), |account| account.gids.clone());
        let socket = enabled_socket(&unit);
        CheckedUser::Service(Box::new(ServiceUser { unit, account, gids, socket }))
    }

    /// Returns the check that names the user of the other checks.
    pub(super) fn check(&self, config_inputs: &ConfigInputs) -> DoctorCheck {
        let name = self.name();
        let by_modes = match self.account() {
            Some(account) if !account.can_become => ", by the modes of files, because this process cannot become it",
            _ => "",
        };
        let CheckedUser::Service(service) = self else {
            let unit = ServiceUnit::for_configuration(&config_inputs.file().0);
            let note = match self {
                CheckedUser::Process => {
                    unit.map(|unit| format!("; root's `docwharf doctor` checks as the user of {}", unit.name))
                }
                _ => None,
            };
            let note = note.unwrap_or_default();
            return DoctorCheck::ok(CHECK_NAME, format!("the following is checked as {name}{by_modes}{note}"));
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
        let of_unit = if service.account.is_some() { format!(", the user of {}", unit.name) } else { String::new() };
        let found = format!("the following is checked as {name}{of_unit} ({user}{groups}){by_modes}");
        DoctorCheck::ok(CHECK_NAME, found)
    }

    /// Returns the name of the user, for use in a sentence.
    pub(super) fn name(&self) -> String {
        match (self, self.account()) {
            (CheckedUser::Service(service), None) => format!("the user of {}", service.unit.name),
            (_, Some(account)) => account.description(),
            (_, None) => accounts::describe_user(rustix::process::geteuid().as_raw()),
        }
    }

    /// Returns the service's user; `None` if the checks are made for another one.
    pub(super) fn service(&self) -> Option<&ServiceUser> {
        match self {
            CheckedUser::Service(service) => Some(service),
            CheckedUser::Account(_) | CheckedUser::Process => None,
        }
    }

    /// Returns whether the checks are made for the user of this process.
    pub(super) fn is_process(&self) -> bool {
        matches!(self, CheckedUser::Process)
    }

    fn account(&self) -> Option<&CheckedAccount> {
        match self {
            CheckedUser::Process => None,
            CheckedUser::Account(account) => Some(account),
            CheckedUser::Service(service) => service.account.as_ref(),
        }
    }

    /// Runs `action` with the credentials of the user. The process itself runs it if it has them, or cannot take them.
    pub(super) fn run<T: Send>(&self, action: impl Fn() -> T + Send + Sync) -> T {
        self.account().and_then(|account| account.run(&action)).unwrap_or_else(action)
    }

    /// Checks whether this one path allows the access. The folders above it are not checked.
    pub(super) fn access(&self, path: &Path, needed: Access) -> Result<(), Errno> {
        let ask_kernel = || accessat(CWD, path, needed, AtFlags::EACCESS);
        if self.is_process() {
            return ask_kernel();
        }
        // Root sees whether the path exists.
        let metadata = std::fs::metadata(path)
            .map_err(|error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))?;
        if let Some(result) = self.account().and_then(|account| account.run(ask_kernel)) {
            return result;
        }
        let bits = [(Access::READ_OK, 4), (Access::WRITE_OK, 2), (Access::EXEC_OK, 1)];
        let needed_bits = bits.iter().filter(|(bit, _)| needed.contains(*bit)).map(|(_, value)| value).sum();
        let file = FileMode { mode: metadata.permissions().mode(), uid: metadata.uid(), gid: metadata.gid() };
        let gids = self.service().map(|service| &service.gids).or(self.account().map(|account| &account.gids));
        let gids = gids.map_or(&[][..], Vec::as_slice);
        let is_allowed = file.allows(self.account().map(|account| account.uid), gids, needed_bits);
        if is_allowed { Ok(()) } else { Err(Errno::ACCESS) }
    }

    /// Returns the name of the user for commands such as chown; `None` for a dynamic user, which can own no such file.
    fn owner_name(&self) -> Option<String> {
        let own_uid = || rustix::process::geteuid().as_raw();
        let own_name = || accounts::find_user_name(own_uid()).unwrap_or_else(|| own_uid().to_string());
        if self.is_process() { Some(own_name()) } else { self.account().map(CheckedAccount::short_name) }
    }

    /// Returns advice for a missing folder that the user may not create.
    pub(super) fn advise_create(&self, path: &Path) -> String {
        let path = path.display();
        match (self.owner_name(), self.service()) {
            (None, Some(service)) => format!(
                "as root, install -d -m 2775 -g GROUP {path}, and add the service to the group: systemctl edit {}, \
                 SupplementaryGroups=GROUP",
                service.unit.name
            ),
            (owner, _) => {
                let owner = owner.unwrap_or_default();
                format!("as root, install -d -o {owner} {path}; or name another folder")
            }
        }
    }

    /// Returns advice for a path whose mode denies access to the user; `may` are the missing rights, of `rwx`.
    pub(super) fn advise_grant(&self, place: &Path, may: &str) -> String {
        let place = place.display();
        match (self.owner_name(), self.service()) {
            (None, Some(service)) => format!(
                "grant it through a group: SupplementaryGroups=GROUP (systemctl edit {}), chgrp GROUP {place}, \
                 chmod g+{may} {place}",
                service.unit.name
            ),
            (owner, _) => {
                let (owner, name) = (owner.unwrap_or_default(), self.name());
                format!("chown {owner} {place}, or chmod it so that {name} has {may}")
            }
        }
    }
}

impl ServiceUser {
    /// Returns advice to make a folder that the service may write to. A unit with `ReadWritePaths=` of a folder that
    /// does not exist does not start.
    fn advise_writable(&self, folder: &Path) -> String {
        let allowed = self.drop_in(&format!("ReadWritePaths={}", folder.display()));
        let is_there = folder.exists();
        let folder = folder.display();
        match &self.account {
            _ if is_there => allowed,
            Some(account) => format!("as root, install -d -o {} {folder}; then {allowed}", account.short_name()),
            None => format!(
                "as root, groupadd --system GROUP and install -d -m 2775 -g GROUP {folder}; then {allowed} and \
                 SupplementaryGroups=GROUP"
            ),
        }
    }

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
            self.advise_writable(&real)
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
