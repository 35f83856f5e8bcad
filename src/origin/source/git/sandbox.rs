//! What a build may reach, and what holds it back.
//!
//! | | own user | own processes | own files | own network |
//! |---|---|---|---|---|
//! | [`Sandbox::Bubblewrap`] | where we are root | yes | yes: the system read-only, the checkout, nothing else | yes |
//! | [`Sandbox::Namespaces`] | yes | yes | no: what anybody may read | yes |
//! | [`Sandbox::User`] | yes | no | no | no |
//! | [`Sandbox::Nothing`] | no | no | no | no |
//!
//! Whether one can be had is found out by trying it, with the very arguments that the build gets: containers forbid now this,
//! now that. All but the last also mean no new privileges (`PR_SET_NO_NEW_PRIVS`) and no capabilities.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::base::chain::OneLine;

use super::address::redact;
use super::process::{Bounds, Cut, run};
use super::{Git, GitError};

/// Who is called nobody everywhere: builds are run as this user where we are root.
const NOBODY: &str = "65534";
const NOBODY_ID: u32 = 65534;
/// How long trying a sandbox may take.
const TRIAL: Duration = Duration::from_secs(10);
/// Where a build finds the system's programs.
const SYSTEM: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Folders of the system. Those that are links are links in the sandbox, too.
const FOLDERS: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// What programs want to know of the system; nothing of it is anybody's secret.
const SETTINGS: [&str; 18] = [
    "alternatives",
    "ca-certificates",
    "fonts",
    "group",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "passwd",
    "perl",
    "pki/ca-trust",
    "pki/tls/certs",
    "ssl/certs",
    "ssl/openssl.cnf",
    "texmf",
    "timezone",
];
/// What only those who may use the network want to know.
const NETWORK: [&str; 3] = ["hosts", "resolv.conf", "services"];
/// No core dumps, and some end to files, processes and the size of one file (in blocks of 512 bytes). Each shell has its
/// own letter for the processes. Then the build begins.
const LIMITS: &str = "ulimit -c 0 2>/dev/null; ulimit -n 4096 2>/dev/null; ulimit -f \"$2\" 2>/dev/null; \
                      ulimit -u 4096 2>/dev/null || ulimit -p 4096 2>/dev/null; exec /bin/sh -c \"$1\"";
/// Is the checkout there, and may something be written?
const TRY: &str = "cd \"$1\" && : > \"$2/probe\" && rm \"$2/probe\"";

/// What holds a build back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sandbox {
    /// `bwrap`.
    Bubblewrap,
    /// Another user with processes and a network of its own; only root can.
    Namespaces,
    /// Another user; only root can.
    User,
    /// Nothing, which the configuration has to allow.
    Nothing,
}

impl Sandbox {
    /// All of them, the best first.
    pub const ALL: [Sandbox; 4] = [Sandbox::Bubblewrap, Sandbox::Namespaces, Sandbox::User, Sandbox::Nothing];
}

impl fmt::Display for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sandbox::Bubblewrap => "bubblewrap",
            Sandbox::Namespaces => "another user with namespaces",
            Sandbox::User => "another user",
            Sandbox::Nothing => "no sandbox",
        })
    }
}

/// Where a build takes place.
#[derive(Debug)]
pub(super) struct Cell<'a> {
    git: &'a Git,
    site: &'a Path,
    bounds: &'a Bounds<'a>,
    is_root: bool,
}

/// Folders as the build knows them.
struct Seen {
    site: PathBuf,
    home: PathBuf,
    tmp: PathBuf,
}

impl<'a> Cell<'a> {
    /// Makes the folders that a build has beside the checkout, and hands everything over to whoever will run it.
    pub(super) fn new(git: &'a Git, site: &'a Path, bounds: &'a Bounds<'a>) -> Result<Cell<'a>, GitError> {
        let cell = Cell { git, site, bounds, is_root: rustix::process::geteuid().is_root() };
        for folder in cell.beside() {
            fs::DirBuilder::new().mode(0o700).create(&folder).map_err(GitError::io("make", &folder))?;
            if cell.is_root {
                hand_over(&folder)?;
            }
        }
        if cell.is_root {
            hand_over(site)?;
            // Nobody may pass through, and not look around.
            let passable = fs::Permissions::from_mode(0o711);
            fs::set_permissions(bounds.space, passable).map_err(GitError::io("open", bounds.space))?;
        }
        Ok(cell)
    }

    fn beside(&self) -> [PathBuf; 3] {
        ["home", "tmp", "shm"].map(|name| self.bounds.space.join(name))
    }

    /// Removes those folders.
    pub(super) fn sweep(&self) -> Result<(), GitError> {
        for folder in self.beside() {
            fs::remove_dir_all(&folder).map_err(GitError::io("remove", &folder))?;
        }
        Ok(())
    }

    /// The first of these sandboxes that works here.
    pub(super) fn choose(&self, among: &[Sandbox]) -> Result<Sandbox, GitError> {
        let mut reasons = Vec::new();
        for &sandbox in among {
            match self.is_usable(sandbox)? {
                None => return Ok(sandbox),
                Some(why) => reasons.push(format!("{sandbox}: {why}")),
            }
        }
        Err(GitError::NoSandbox(reasons.join("; ")))
    }

    /// Why a sandbox cannot be used, if so.
    fn is_usable(&self, sandbox: Sandbox) -> Result<Option<String>, GitError> {
        if sandbox == Sandbox::Nothing {
            return Ok((!self.git.allow_untrusted).then(|| "it is not allowed".to_owned()));
        }
        let seen = self.seen(sandbox);
        let inner = [OsStr::new(TRY), OsStr::new("sh"), seen.site.as_os_str(), seen.tmp.as_os_str()];
        let mut command = match self.command(sandbox, &inner) {
            Ok(command) => command,
            Err(why) => return Ok(Some(why)),
        };
        let mine = self.bounds;
        let bounds = Bounds { until: mine.until.min(Instant::now() + TRIAL), ..*mine };
        let ended = run(&mut command, false, &bounds, &mut |_| {});
        match ended {
            Ok(ended) if ended.status.success() => Ok(None),
            Ok(ended) => Ok(Some(format!("{} ({})", OneLine(&ended.last), ended.how()))),
            Err(Cut::Time) if Instant::now() < mine.until => Ok(Some("it takes too long".to_owned())),
            Err(Cut::Start(_, error)) => Ok(Some(error.to_string())),
            Err(cut) => Err(GitError::cut("trying a sandbox", self.git, cut)),
        }
    }

    /// Runs the build.
    pub(super) fn build(&self, sandbox: Sandbox, build: &str, made: i64) -> Result<(), GitError> {
        let watch = self.bounds.watch;
        watch.say(format!("the build has {}", self.words(sandbox)));
        watch.say(format!("$ {}", OneLine(&redact(build))));
        // The size of all files together is watched; one that is just too large is found by that, not by its shell.
        let blocks = OsString::from((self.git.size / 512).saturating_add(4096).to_string());
        let inner = [OsStr::new(LIMITS), OsStr::new("sh"), OsStr::new(build), &blocks];
        let mut command = self.command(sandbox, &inner).map_err(GitError::NoSandbox)?;
        command.env("SOURCE_DATE_EPOCH", made.to_string());
        let began = Instant::now();
        let ended = run(&mut command, false, self.bounds, &mut |line| watch.say(redact(line)));
        let ended = ended.map_err(|cut| GitError::cut("the build", self.git, cut));
        let ended = ended.inspect_err(|error| watch.say(error.to_string()))?;
        let how = ended.how();
        watch.say(format!("the build ended after {:.1} s with {how}", began.elapsed().as_secs_f64()));
        if ended.status.code() == Some(127) {
            watch.say("exit code 127 mostly means that a command is not found; tools outside /usr have to be named");
        }
        if ended.status.success() {
            return Ok(());
        }
        Err(GitError::Build { build: redact(build), how, said: redact(&ended.last) })
    }

    /// What is told of a sandbox in the log.
    fn words(&self, sandbox: Sandbox) -> String {
        let user = if self.is_root { format!(" as user {NOBODY}") } else { String::new() };
        let network = match (sandbox, self.git.network) {
            (_, true) => "with the network",
            (Sandbox::Bubblewrap | Sandbox::Namespaces, false) => "without network",
            (Sandbox::User | Sandbox::Nothing, false) => "with the network, which it cannot be kept from",
        };
        match sandbox {
            Sandbox::Bubblewrap => format!("the sandbox of bubblewrap{user}, {network}"),
            Sandbox::Namespaces => format!("processes of its own{user}, {network}"),
            Sandbox::User => format!("no sandbox but that it runs{user}, {network}"),
            Sandbox::Nothing => format!("no sandbox, as the configuration allows, {network}"),
        }
    }

    fn seen(&self, sandbox: Sandbox) -> Seen {
        if sandbox == Sandbox::Bubblewrap {
            return Seen { site: "/build".into(), home: "/home/build".into(), tmp: "/tmp".into() };
        }
        let [home, tmp, _] = self.beside();
        Seen { site: self.site.to_owned(), home, tmp }
    }

    /// `sh -c` in a sandbox, with these arguments; or why there is none.
    fn command(&self, sandbox: Sandbox, inner: &[&OsStr]) -> Result<Command, String> {
        let mut words = match sandbox {
            Sandbox::Bubblewrap => self.bubblewrap()?,
            Sandbox::Namespaces => {
                let setpriv = self.nobody(&[])?;
                let mut words = vec![setpriv[0].clone()];
                words.extend(["--pdeathsig", "KILL", "--"].map(OsString::from));
                words.push(find("unshare")?);
                words.extend(["--pid", "--fork", "--kill-child", "--mount-proc", "--ipc"].map(OsString::from));
                words.extend((!self.git.network).then(|| OsString::from("--net")));
                words.push("--".into());
                [words, setpriv].concat()
            }
            Sandbox::User => self.nobody(&["--pdeathsig", "KILL"])?,
            Sandbox::Nothing => Vec::new(),
        };
        words.extend(["/bin/sh", "-c"].map(OsString::from));
        let mut command = Command::new(&words[0]);
        let seen = self.seen(sandbox);
        let tools = self.git.tools.iter().map(|tool| tool.as_os_str()).chain([OsStr::new(SYSTEM)]);
        command
            .args(&words[1..])
            .args(inner)
            .current_dir(self.site)
            .env_clear()
            .env("PATH", tools.collect::<Vec<_>>().join(OsStr::new(":")))
            .env("HOME", seen.home)
            .env("TMPDIR", seen.tmp)
            .envs([("LANG", "C.UTF-8"), ("CI", "true"), ("TERM", "dumb")]);
        Ok(command)
    }

    /// Become nobody, for good.
    fn nobody(&self, more: &[&str]) -> Result<Vec<OsString>, String> {
        if !self.is_root {
            return Err("only root can".to_owned());
        }
        let mut words = vec![find("setpriv")?];
        words.extend(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--no-new-privs"].map(OsString::from));
        words.extend(["--inh-caps=-all", "--bounding-set=-all"].map(OsString::from));
        words.extend(more.iter().map(OsString::from));
        words.push("--".into());
        Ok(words)
    }

    /// The system read-only, the checkout, and nothing else.
    fn bubblewrap(&self) -> Result<Vec<OsString>, String> {
        let mut words = vec![find("bwrap")?];
        let mut add = |arguments: &[&OsStr]| words.extend(arguments.iter().map(OsString::from));
        for flag in ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"] {
            add(&[flag.as_ref()]);
        }
        if !self.git.network {
            add(&["--unshare-net".as_ref()]);
        }
        for folder in FOLDERS {
            match fs::read_link(folder) {
                Ok(target) => add(&["--symlink".as_ref(), target.as_os_str(), folder.as_ref()]),
                Err(_) => add(&["--ro-bind-try".as_ref(), folder.as_ref(), folder.as_ref()]),
            }
        }
        let network: &[&str] = if self.git.network { &NETWORK } else { &[] };
        for name in SETTINGS.iter().chain(network) {
            let path = Path::new("/etc").join(name);
            add(&["--ro-bind-try".as_ref(), path.as_os_str(), path.as_os_str()]);
        }
        add(&["--proc", "/proc", "--dev", "/dev"].map(OsStr::new));
        let (seen, [home, tmp, shared]) = (self.seen(Sandbox::Bubblewrap), self.beside());
        add(&["--dir", "/home"].map(OsStr::new));
        // Memory that is a file system counts like any file: it is in our space.
        let own = [(home, seen.home), (tmp, seen.tmp), (shared, "/dev/shm".into()), (self.site.to_owned(), seen.site)];
        for (from, to) in own {
            add(&["--bind".as_ref(), from.as_os_str(), to.as_os_str()]);
        }
        // Behind our folders: one of them may be above a tool, as /tmp is.
        for tool in &self.git.tools {
            for above in above(tool) {
                add(&["--dir".as_ref(), above.as_os_str()]);
            }
            add(&["--ro-bind-try".as_ref(), tool.as_os_str(), tool.as_os_str()]);
        }
        add(&["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/build"].map(OsStr::new));
        add(&["--die-with-parent", "--new-session", "--cap-drop", "ALL"].map(OsStr::new));
        if self.is_root {
            // Root needs no namespace of users, which is what containers forbid most. What it keeps, it needs to become
            // nobody, and loses by that.
            for capability in ["CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"] {
                add(&["--cap-add".as_ref(), capability.as_ref()]);
            }
            add(&["--".as_ref()]);
            return Ok([words, self.nobody(&[])?].concat());
        }
        add(&["--unshare-user", "--"].map(OsStr::new));
        Ok(words)
    }
}

/// Gives a tree to nobody. Links are given away themselves, not what they lead to.
fn hand_over(root: &Path) -> Result<(), GitError> {
    let mut found = vec![root.to_owned()];
    while let Some(path) = found.pop() {
        lchown(&path, Some(NOBODY_ID), Some(NOBODY_ID)).map_err(GitError::io("hand over", &path))?;
        if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir()) {
            for entry in fs::read_dir(&path).map_err(GitError::io("read", &path))? {
                found.push(entry.map_err(GitError::io("read", &path))?.path());
            }
        }
    }
    Ok(())
}

/// The folders above a tool, the highest first. Those that bubblewrap makes unasked let nobody but root through.
fn above(tool: &Path) -> Vec<&Path> {
    let is_ours =
        |folder: &&Path| folder.parent().is_some() && !FOLDERS.iter().any(|system| folder.starts_with(system));
    let mut above: Vec<&Path> = tool.ancestors().skip(1).filter(is_ours).collect();
    above.reverse();
    above
}

/// A program on our PATH, with the folder that it is in.
fn find(name: &str) -> Result<OsString, String> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| SYSTEM.into());
    let is_program =
        |file: &PathBuf| fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.mode() & 0o111 != 0);
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(is_program);
    found.map(PathBuf::into_os_string).ok_or_else(|| format!("{name} is not installed"))
}
