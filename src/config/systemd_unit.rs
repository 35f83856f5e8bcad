//! The systemd service unit that runs docwharf with a configuration: as which user, with which credentials and
//! environment, and the paths that its sandbox lets it write (systemd.exec(5)).
//!
//! The files of the unit are read, and the service manager is not queried: the result is the same in a container,
//! before the first start, and while the service is down.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use docwharf_base::regular_file;

use super::default_file::DEFAULT_FILE;

/// The name of the shipped unit.
const DEFAULT_UNIT: &str = "docwharf.service";
/// The folders of units in order of precedence (systemd.unit(5)); `$SYSTEMD_UNIT_PATH` replaces the list.
const UNIT_FOLDERS: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
/// The maximum size of a unit file in bytes.
const MAX_UNIT_BYTES: u64 = 1 << 20;
/// The folders that `ProtectHome=` protects.
const HOMES: [&str; 3] = ["/home", "/root", "/run/user"];
const BIND_SERVICE_CAPABILITY: &str = "CAP_NET_BIND_SERVICE";

/// How much of the file system `ProtectSystem=` makes read-only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ProtectSystem {
    /// Nothing.
    #[default]
    No,
    /// `/usr` and the boot loader's folders.
    Yes,
    /// The folders of `Yes`, and `/etc`.
    Full,
    /// Everything but `/dev`, `/proc` and `/sys`.
    Strict,
}

/// The effect of `ProtectHome=` on homes: `/home`, `/root` and `/run/user`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ProtectHome {
    /// No effect.
    #[default]
    No,
    /// Homes can be read, but not written.
    ReadOnly,
    /// Homes are hidden: they cannot be entered (`yes`), or are empty (`tmpfs`).
    Hidden,
}

/// A service unit, with its drop-ins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceUnit {
    /// The name, such as `docwharf.service`.
    pub name: String,
    /// `User=`
    pub user: Option<String>,
    /// `Group=`
    pub group: Option<String>,
    /// `DynamicUser=`
    pub dynamic_user: bool,
    /// `SupplementaryGroups=`
    pub supplementary_groups: Vec<String>,
    /// `LoadCredential=`: name and source.
    credentials: Vec<(String, PathBuf)>,
    /// `ReadWritePaths=`
    pub read_write_paths: Vec<PathBuf>,
    /// `ProtectSystem=`
    pub protect_system: ProtectSystem,
    /// `ProtectHome=`
    pub protect_home: ProtectHome,
    /// `PrivateTmp=`
    pub private_tmp: bool,
    /// `PrivateUsers=`: with it, a capability has no effect on the host.
    private_users: bool,
    ambient: Vec<String>,
    /// `CapabilityBoundingSet=`; `None` for all capabilities.
    bounding: Option<Vec<String>>,
    /// Folders that systemd makes and gives to the user: `StateDirectory=`, `LogsDirectory=` and the like.
    own_folders: Vec<PathBuf>,
    exec_start: Vec<String>,
    environment: Vec<(String, String)>,
    environment_files: Vec<PathBuf>,
}

impl ServiceUnit {
    /// Returns `docwharf.service` or `docwharf@<file stem>.service`, whichever is installed and names this
    /// configuration file.
    pub fn for_configuration(file: &Path) -> Option<ServiceUnit> {
        let folders = UnitFolders::from_env();
        let instance = file.file_stem().and_then(|stem| stem.to_str()).map(|stem| format!("docwharf@{stem}.service"));
        [Some(DEFAULT_UNIT.to_owned()), instance]
            .into_iter()
            .flatten()
            .filter_map(|name| folders.load(&name))
            .find(|unit| unit.configuration() == file)
    }

    /// Parses the unit of this name from its texts: its own file first, then its drop-ins in their order.
    pub fn parse(name: &str, texts: &[String]) -> ServiceUnit {
        let mut unit = ServiceUnit { name: name.to_owned(), ..ServiceUnit::default() };
        for text in texts {
            for (key, value) in service_settings(text) {
                unit.set(&key, &expand(&value, name));
            }
        }
        if unit.dynamic_user {
            // A dynamic user implies `strict`, whatever the unit says, and `read-only` unless the unit hides homes
            // (systemd.exec(5)).
            unit.protect_system = ProtectSystem::Strict;
            if unit.protect_home == ProtectHome::No {
                unit.protect_home = ProtectHome::ReadOnly;
            }
            unit.private_tmp = true;
        }
        unit
    }

    /// Returns the configuration file with which the unit starts docwharf. `EnvironmentFile=` is not considered.
    pub fn configuration(&self) -> PathBuf {
        let mut arguments = self.exec_start.iter();
        while let Some(argument) = arguments.next() {
            if argument == "--config" {
                return arguments.next().map(PathBuf::from).unwrap_or_default();
            }
            if let Some(path) = argument.strip_prefix("--config=") {
                return PathBuf::from(path);
            }
        }
        let named = self.environment.iter().rev().find(|(name, _)| name == "DOCWHARF_CONFIG");
        named.map_or_else(|| PathBuf::from(DEFAULT_FILE), |(_, path)| PathBuf::from(path))
    }

    /// Returns the file that the unit passes to the service as the credential of this name.
    pub fn credential(&self, name: &str) -> Option<&Path> {
        self.credentials.iter().find(|(known, _)| known == name).map(|(_, path)| path.as_path())
    }

    /// Returns whether this file is a credential of the service: one that the unit passes on, which systemd reads as
    /// root, or its copy for the service.
    pub fn passes_credential(&self, path: &Path) -> bool {
        self.credentials.iter().any(|(_, source)| source == path) || self.credential_source(path).is_some()
    }

    /// Returns the file that the service sees under this path, if it is the path of a credential
    /// (`/run/credentials/UNIT/NAME`).
    pub fn credential_source(&self, path: &Path) -> Option<&Path> {
        let name = path.strip_prefix("/run/credentials").ok()?.strip_prefix(&self.name).ok()?;
        self.credential(name.to_str()?)
    }

    /// Returns the environment variables that the unit sets, including those of `EnvironmentFile=`. A file that cannot
    /// be read is skipped.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut all = self.environment.clone();
        for file in &self.environment_files {
            all.extend(parse_environment(&regular_file::read_text(file, MAX_UNIT_BYTES).unwrap_or_default()));
        }
        all.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    /// Returns whether the user of the unit may listen on privileged ports.
    pub fn may_bind_low_ports(&self) -> bool {
        let is_bounded = |set: &Vec<String>| set.iter().any(|capability| capability == BIND_SERVICE_CAPABILITY);
        let is_allowed = self.bounding.as_ref().is_none_or(is_bounded);
        let is_root = !self.dynamic_user && self.user.as_deref().is_none_or(|user| user == "root" || user == "0");
        is_allowed
            && !self.private_users
            && (is_root || self.ambient.iter().any(|name| name == BIND_SERVICE_CAPABILITY))
    }

    /// Returns whether systemd creates this path, or a folder above it, and gives it to the user of the unit.
    pub fn owns(&self, path: &Path) -> bool {
        self.own_folders.iter().any(|folder| path.starts_with(folder))
    }

    /// Returns the setting that keeps the service from writing to this path, if there is one.
    pub fn write_barrier(&self, path: &Path) -> Option<&'static str> {
        let below = |roots: &[&str]| roots.iter().any(|root| path.starts_with(root));
        if self.owns(path) {
            return None;
        }
        if self.private_tmp && below(&["/tmp", "/var/tmp"]) {
            return Some("PrivateTmp=");
        }
        let writable = self.read_write_paths.iter().any(|writable| path.starts_with(writable));
        if self.protect_home != ProtectHome::No && below(&HOMES) && !writable {
            return Some("ProtectHome=");
        }
        let is_protected = match self.protect_system {
            ProtectSystem::No => false,
            ProtectSystem::Yes => below(&["/usr", "/boot", "/efi"]),
            ProtectSystem::Full => below(&["/usr", "/boot", "/efi", "/etc"]),
            ProtectSystem::Strict => !below(&["/dev", "/proc", "/sys"]),
        };
        (is_protected && !writable).then_some("ProtectSystem=")
    }

    /// Returns the setting that hides this path from the service, if there is one.
    pub fn read_barrier(&self, path: &Path) -> Option<&'static str> {
        let below = |roots: &[&str]| roots.iter().any(|root| path.starts_with(root));
        if self.private_tmp && below(&["/tmp", "/var/tmp"]) {
            return Some("PrivateTmp=");
        }
        (self.protect_home == ProtectHome::Hidden && below(&HOMES)).then_some("ProtectHome=")
    }

    fn set(&mut self, key: &str, value: &str) {
        let is_yes = matches!(value, "yes" | "true" | "on" | "1");
        let words = || split_words(value);
        match key {
            "User" => self.user = non_empty(value),
            "Group" => self.group = non_empty(value),
            "DynamicUser" => self.dynamic_user = is_yes,
            "SupplementaryGroups" => extend(&mut self.supplementary_groups, value, words()),
            "ReadWritePaths" => {
                let paths = words().iter().map(|path| PathBuf::from(path.trim_start_matches(['-', '+']))).collect();
                extend(&mut self.read_write_paths, value, paths);
            }
            "ProtectSystem" => {
                self.protect_system = match value {
                    "strict" => ProtectSystem::Strict,
                    "full" => ProtectSystem::Full,
                    _ if is_yes => ProtectSystem::Yes,
                    _ => ProtectSystem::No,
                }
            }
            "ProtectHome" => {
                self.protect_home = match value {
                    "read-only" => ProtectHome::ReadOnly,
                    _ if is_yes || value == "tmpfs" => ProtectHome::Hidden,
                    _ => ProtectHome::No,
                }
            }
            "PrivateTmp" => self.private_tmp = is_yes || value == "disconnected",
            "PrivateUsers" => self.private_users = is_yes || matches!(value, "self" | "identity" | "full"),
            "AmbientCapabilities" => extend(&mut self.ambient, value, words()),
            "CapabilityBoundingSet" => self.set_bounding_set(value),
            "LoadCredential" => {
                let pair = value.split_once(':').map(|(name, path)| (name.to_owned(), PathBuf::from(path)));
                extend(&mut self.credentials, value, pair.into_iter().collect());
            }
            "ExecStart" => self.exec_start = words(),
            "Environment" => {
                let pairs = words().iter().filter_map(|word| word.split_once('=')).map(owned).collect();
                extend(&mut self.environment, value, pairs);
            }
            "EnvironmentFile" => {
                extend(&mut self.environment_files, value, vec![PathBuf::from(value.trim_start_matches('-'))]);
            }
            "StateDirectory" => self.add_own_folders("/var/lib", value),
            "CacheDirectory" => self.add_own_folders("/var/cache", value),
            "LogsDirectory" => self.add_own_folders("/var/log", value),
            "RuntimeDirectory" => self.add_own_folders("/run", value),
            _ => {}
        }
    }

    /// Records each folder under its own name and under `private`, where the folder of a dynamic user really is.
    fn add_own_folders(&mut self, root: &str, value: &str) {
        for name in split_words(value) {
            let name = name.split(':').next().unwrap_or_default();
            self.own_folders.push(Path::new(root).join(name));
            self.own_folders.push(Path::new(root).join("private").join(name));
        }
    }

    /// Applies `CapabilityBoundingSet=`. An empty value forbids all capabilities; `~` forbids some, of which only
    /// [`BIND_SERVICE_CAPABILITY`] matters here.
    fn set_bounding_set(&mut self, value: &str) {
        match value.strip_prefix('~') {
            Some(without) => {
                let mut remaining = self.bounding.clone().unwrap_or_else(|| vec![BIND_SERVICE_CAPABILITY.to_owned()]);
                remaining.retain(|capability| !split_words(without).contains(capability));
                self.bounding = Some(remaining);
            }
            None if value.is_empty() => self.bounding = Some(Vec::new()),
            None => self.bounding.get_or_insert_default().extend(split_words(value)),
        }
    }
}

/// Returns the socket unit that replaces `server.listen` of this service, if it is enabled.
pub fn enabled_socket(service: &ServiceUnit) -> Option<String> {
    let name = service.name.replace(".service", ".socket");
    let is_enabled =
        |folder: &PathBuf| std::fs::symlink_metadata(folder.join("sockets.target.wants").join(&name)).is_ok();
    UnitFolders::from_env().0.iter().any(is_enabled).then_some(name)
}

/// The folders in which units are searched, in order of precedence.
struct UnitFolders(Vec<PathBuf>);

impl UnitFolders {
    fn from_env() -> UnitFolders {
        match std::env::var_os("SYSTEMD_UNIT_PATH").filter(|list| !list.is_empty()) {
            Some(list) => UnitFolders(std::env::split_paths(&list).filter(|path| path.is_absolute()).collect()),
            None => UnitFolders(UNIT_FOLDERS.map(PathBuf::from).to_vec()),
        }
    }

    fn load(&self, name: &str) -> Option<ServiceUnit> {
        let template = name.split_once('@').map(|(prefix, _)| format!("{prefix}@.service"));
        let names: Vec<String> = std::iter::once(name.to_owned()).chain(template).collect();
        let own = names.iter().find_map(|name| self.first(name))?;
        let mut texts = vec![own];
        texts.extend(self.drop_ins(&names));
        Some(ServiceUnit::parse(name, &texts))
    }

    fn first(&self, name: &str) -> Option<String> {
        let path = self.0.iter().map(|folder| folder.join(name)).find(|path| path.exists())?;
        // A masked unit is a link to /dev/null, which `read_text` refuses: it counts as not installed.
        regular_file::read_text(&path, MAX_UNIT_BYTES).ok()
    }

    /// Reads the drop-ins, ordered by the names of their files, whichever folder they are in. Of two with the same
    /// name, the one in the folder of higher precedence counts.
    fn drop_ins(&self, names: &[String]) -> Vec<String> {
        let mut found: std::collections::BTreeMap<OsString, PathBuf> = std::collections::BTreeMap::new();
        for folder in &self.0 {
            for name in names {
                let entries = std::fs::read_dir(folder.join(format!("{name}.d"))).into_iter().flatten().flatten();
                for path in entries.map(|entry| entry.path()) {
                    if let Some(file) = path.file_name().filter(|_| path.extension().is_some_and(|end| end == "conf")) {
                        found.entry(file.to_owned()).or_insert_with(|| path.clone());
                    }
                }
            }
        }
        found.values().filter_map(|path| regular_file::read_text(path, MAX_UNIT_BYTES).ok()).collect()
    }
}

/// Returns key and value of each line below `[Service]`.
fn service_settings(text: &str) -> Vec<(String, String)> {
    let joined = text.replace("\\\n", " ");
    let mut settings = Vec::new();
    let mut is_service = false;
    for line in joined.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if line.starts_with('[') {
            is_service = line == "[Service]";
        } else if let Some((key, value)) = line.split_once('=').filter(|_| is_service) {
            settings.push((key.trim().to_owned(), value.trim().to_owned()));
        }
    }
    settings
}

/// Expands the specifiers that the shipped units use: `%i`, `%I`, `%n`, `%N`, `%%`.
fn expand(value: &str, name: &str) -> String {
    let bare = name.trim_end_matches(".service");
    let instance = bare.split_once('@').map_or("", |(_, instance)| instance);
    let mut out = String::new();
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match (letter, letter == '%') {
            (_, true) => match letters.next() {
                Some('i' | 'I') => out.push_str(instance),
                Some('n') => out.push_str(name),
                Some('N') => out.push_str(bare),
                Some('%') | None => out.push('%'),
                Some(other) => out.extend(['%', other]),
            },
            _ => out.push(letter),
        }
    }
    out
}

/// Splits a value into words at white space; quotes keep a word together.
fn split_words(value: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in value.chars() {
        match quote {
            Some(end) if letter == end => quote = None,
            None if letter == '"' || letter == '\'' => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            None if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// Parses the `NAME=value` lines of an `EnvironmentFile=`.
fn parse_environment(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';']));
    let unquoted = |value: &str| {
        let quoted = ['"', '\''].iter().find_map(|q| value.strip_prefix(*q)?.strip_suffix(*q));
        quoted.unwrap_or(value).to_owned()
    };
    lines.filter_map(|line| line.split_once('=')).map(|(name, value)| (name.trim().into(), unquoted(value))).collect()
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

fn non_empty(value: &str) -> Option<String> {
    Some(value.to_owned()).filter(|value| !value.is_empty())
}

/// Extends a list with the values of a line; an empty value clears the list.
fn extend<T>(list: &mut Vec<T>, value: &str, more: Vec<T>) {
    if value.is_empty() {
        list.clear();
    }
    list.extend(more);
}

#[cfg(test)]
mod tests;
