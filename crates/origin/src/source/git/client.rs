//! Runs the `git` program under a configuration of this program alone.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use docwharf_base::error_chain::OneLine;

use super::address::{GitCredentials, PROTOCOLS, RepositoryAddress};
use super::process::{ProgramLimits, ProgramResult, ProgramStop, run};
use super::{Git, GitAuthor, GitCommit, GitError, NAMES, is_branch_name};

/// Local reference of the fetched branch: its own name may be too long for a file.
const HEAD: &str = "refs/heads/head";
/// Maximum length of a commit message in bytes; the rest is left out.
const MESSAGE: usize = 16 * 1024;
/// Environment variables that git inherits: where its programs are, how it reaches the network and which certificates
/// it trusts.
const INHERITED_VARIABLES: [&str; 14] = [
    "PATH",
    "SSH_AUTH_SOCK",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "GIT_SSL_CAINFO",
    "GIT_EXEC_PATH",
    "http_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
    "TMPDIR",
];
/// Configuration of git: hooks, monitors, submodules and large-file filters are off; symbolic links stay symbolic
/// links. A repository may belong to another user (`safe.directory`): git serves it to itself without running anything
/// that the repository configures.
const CONFIGURATION: &str = r#"[core]
    hooksPath = /dev/null
    attributesFile = /dev/null
    excludesFile = /dev/null
    fsmonitor = false
    autocrlf = false
    symlinks = true
[safe]
    directory = *
[submodule]
    recurse = false
[fetch]
    recurseSubmodules = false
[filter "lfs"]
    clean =
    smudge =
    process =
    required = false
[gc]
    auto = 0
[maintenance]
    auto = false
[i18n]
    logOutputEncoding = UTF-8
[log]
    mailmap = false
    showSignature = false
[credential]
    helper =
[protocol]
    allow = never
"#;
/// Credential helper: prints user name and password when git calls it with the argument `get`.
const HELPER: &str = r#"!f() { test \"$1\" = get && printf 'username=%s\\npassword=%s\\n' \"$DOCWHARF_USER\" \"$DOCWHARF_PASSWORD\"; }; f"#;

/// Head commit of a branch that was checked out.
#[derive(Debug)]
pub(super) struct BranchHead {
    pub(super) commit: GitCommit,
    /// Commit time in seconds since 1970.
    pub(super) made: i64,
}

/// Runs the `git` program for one repository.
#[derive(Debug)]
pub(super) struct GitClient<'a> {
    git: &'a Git,
    address: &'a RepositoryAddress,
    /// Folder with the configuration of git.
    home: PathBuf,
    /// Folder for fetched objects (`GIT_DIR`).
    repository: PathBuf,
    bounds: &'a ProgramLimits<'a>,
}

impl<'a> GitClient<'a> {
    /// Writes the configuration. `home` must not exist yet.
    pub(super) fn new(
        git: &'a Git,
        address: &'a RepositoryAddress,
        home: PathBuf,
        bounds: &'a ProgramLimits<'a>,
    ) -> Result<GitClient<'a>, GitError> {
        fs::DirBuilder::new().mode(0o700).create(&home).map_err(GitError::io("make", &home))?;
        let file = home.join(".gitconfig");
        fs::write(&file, configuration(address.credentials.as_ref())).map_err(GitError::io("write", &file))?;
        Ok(GitClient { git, address, home, repository: bounds.space.join("git"), bounds })
    }

    /// Returns the current branches of the repository, each with its commit id.
    pub(super) fn branches(&self) -> Result<BTreeMap<String, String>, GitError> {
        let place = self.address.plain.as_str();
        let listed = self.run("list the branches of", &["ls-remote", "--heads", "--refs", "--", place], None)?;
        let listed = String::from_utf8_lossy(&listed);
        let branch = |line: &str| {
            let (sha, name) = line.split_once('\t')?;
            let name = name.strip_prefix("refs/heads/")?;
            is_branch_name(name).then(|| (name.to_owned(), sha.to_owned()))
        };
        Ok(listed.lines().filter_map(branch).collect())
    }

    /// Fetches the head of a branch and writes its files to `site`, which must not exist yet.
    pub(super) fn check_out(&self, branch: &str, site: &Path) -> Result<BranchHead, GitError> {
        fs::create_dir(site).map_err(GitError::io("make", site))?;
        self.run("prepare a folder for", &["init", "--quiet", "--template="], Some(site))?;
        self.fetch(branch, site)?;
        let head = self.head(branch, site)?;
        self.run("check out", &["checkout", "--quiet", "--force", "--detach", HEAD, "--"], Some(site))?;
        let short = head.commit.sha.get(..12).unwrap_or_default();
        self.bounds.watch.log_line(format!("{branch} is at {short}: {}", subject(&head.commit.message)));
        Ok(head)
    }

    /// Removes the folders with objects and configuration.
    pub(super) fn remove(&self) -> Result<(), GitError> {
        for folder in [&self.repository, &self.home] {
            fs::remove_dir_all(folder).map_err(GitError::io("remove", folder))?;
        }
        Ok(())
    }

    /// Fetches the newest commit and its parents, without any further history.
    fn fetch(&self, branch: &str, site: &Path) -> Result<(), GitError> {
        let refs = format!("+refs/heads/{branch}:{HEAD}");
        let place = self.address.plain.as_str();
        let arguments = [
            "fetch",
            "--quiet",
            "--depth=2",
            "--no-tags",
            "--no-recurse-submodules",
            "--update-head-ok",
            "--",
            place,
            &refs,
        ];
        let failed = match self.run("fetch from", &arguments, Some(site)) {
            Err(failed @ GitError::Git { .. }) => failed,
            other => return other.map(drop),
        };
        // The message for a missing branch differs between versions of git.
        match self.branches() {
            // A repository without any branch is more likely being set up again.
            Ok(branches) if !branches.is_empty() && !branches.contains_key(branch) => {
                Err(GitError::NoBranch { repository: self.address.shown.clone(), branch: branch.to_owned() })
            }
            _ => Err(failed),
        }
    }

    fn head(&self, branch: &str, site: &Path) -> Result<BranchHead, GitError> {
        let format = "--format=%H%x00%P%x00%an%x00%ae%x00%ct%x00%B";
        let told = self.run("read the head of", &["log", "-1", "--no-color", format, HEAD, "--"], Some(site))?;
        let told = String::from_utf8_lossy(&told);
        let mut fields = told.splitn(6, '\0');
        let mut field = || fields.next().unwrap_or_default();
        let [sha, parents, name, email, made, message] = [field(), field(), field(), field(), field(), field()];
        let author = (!name.is_empty() || !email.is_empty())
            .then(|| GitAuthor { name: cut(name, 256).to_owned(), email: cut(email, 256).to_owned() });
        let mut commit = GitCommit {
            sha: sha.to_owned(),
            branch: branch.to_owned(),
            message: cut(message.trim_end(), MESSAGE).to_owned(),
            author,
            added: Vec::new(),
            modified: Vec::new(),
            removed: Vec::new(),
        };
        let compare = ["diff-tree", "-r", "-z", "--no-commit-id", "--name-status", "--no-renames", "--no-ext-diff"];
        let compare = match parents.split(' ').next() {
            Some(parent) if !parent.is_empty() => [&compare[..], &[parent, sha, "--"]].concat(),
            _ => [&compare[..], &["--root", sha, "--"]].concat(),
        };
        take_names(&self.run("compare the head of", &compare, Some(site))?, &mut commit);
        Ok(BranchHead { commit, made: made.parse().unwrap_or_default() })
    }

    /// Runs git and returns its standard output; its standard error goes to the log.
    fn run(&self, doing: &'static str, arguments: &[&str], site: Option<&Path>) -> Result<Vec<u8>, GitError> {
        let watch = self.bounds.watch;
        watch.log_line(format!("$ git {}", OneLine(&self.address.scrub(&arguments.join(" ")))));
        let mut command = self.command();
        if let Some(site) = site {
            command.env("GIT_DIR", &self.repository).env("GIT_WORK_TREE", site).current_dir(site);
        }
        let ended =
            run(command.args(arguments), true, self.bounds, &mut |line| watch.log_line(self.address.scrub(line)));
        let ProgramResult { status, output, last } = match ended {
            Err(ProgramStop::Start(_, error)) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(GitError::NotInstalled);
            }
            other => other.map_err(|cut| GitError::cut("git", self.git, cut))?,
        };
        if status.success() {
            return Ok(output);
        }
        watch.log_line(format!("git ended with {status}"));
        let said = if last.is_empty() { status.to_string() } else { self.address.scrub(&last) };
        Err(GitError::Git { doing, repository: self.address.shown.clone(), said })
    }

    fn command(&self) -> Command {
        let mut command = Command::new("git");
        command.env_clear().current_dir(&self.home);
        for name in INHERITED_VARIABLES {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        let set = |text: &'static str| OsStr::new(text);
        command
            .env("HOME", &self.home)
            .env("GIT_CONFIG_GLOBAL", self.home.join(".gitconfig"))
            .envs([("GIT_CONFIG_NOSYSTEM", set("1")), ("GIT_ATTR_NOSYSTEM", set("1"))])
            .env("GIT_ALLOW_PROTOCOL", PROTOCOLS.join(":"))
            // No user is there to answer a prompt.
            .envs([("GIT_TERMINAL_PROMPT", set("0")), ("GIT_ASKPASS", set("")), ("SSH_ASKPASS", set(""))])
            .envs([("GIT_SSH_COMMAND", set("ssh -o BatchMode=yes")), ("GIT_LFS_SKIP_SMUDGE", set("1"))])
            .env("LC_ALL", "C");
        if let Some(GitCredentials { user, password, .. }) = &self.address.credentials {
            command.env("DOCWHARF_USER", user.expose()).env("DOCWHARF_PASSWORD", password.expose());
        }
        command
    }
}

/// Returns the complete configuration of git.
fn configuration(credentials: Option<&GitCredentials>) -> String {
    let mut text = CONFIGURATION.to_owned();
    for protocol in PROTOCOLS {
        let _ = write!(text, "[protocol \"{protocol}\"]\n    allow = always\n");
    }
    if let Some(GitCredentials { origin, .. }) = credentials {
        // The helper is set for this origin only, so no other host gets the credentials, whatever the redirects. An
        // origin contains neither quotes nor backslashes.
        let _ = write!(text, "[credential \"{origin}\"]\n    helper = \"{HELPER}\"\n");
    }
    text
}

/// Adds the file names that `diff-tree -z --name-status` prints to a commit.
fn take_names(told: &[u8], commit: &mut GitCommit) {
    let mut fields = told.split(|byte| *byte == 0);
    while let (Some(status), Some(name)) = (fields.next(), fields.next()) {
        let names = match status.first() {
            Some(b'A') => &mut commit.added,
            Some(b'D') => &mut commit.removed,
            _ => &mut commit.modified,
        };
        if names.len() < NAMES {
            names.push(String::from_utf8_lossy(name).into_owned());
        }
    }
}

/// Returns the first line of a message, shortened for the log.
fn subject(message: &str) -> String {
    OneLine(cut(message.lines().next().unwrap_or_default(), 200)).to_string()
}

/// Returns at most `most` bytes of a text.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit() -> GitCommit {
        GitCommit {
            sha: String::new(),
            branch: String::new(),
            message: String::new(),
            author: None,
            added: Vec::new(),
            modified: Vec::new(),
            removed: Vec::new(),
        }
    }

    #[test]
    fn names_of_files_are_told_by_what_became_of_them() {
        let mut told = commit();
        take_names("A\0a\nb\0M\0ü\0D\0c\0T\0link\0".as_bytes(), &mut told);
        let expected = GitCommit {
            added: vec!["a\nb".into()],
            modified: vec!["ü".into(), "link".into()],
            removed: vec!["c".into()],
            ..commit()
        };
        assert_eq!(told, expected);
        let many = (0..5000).map(|n| format!("A\0{n}\0")).collect::<Vec<_>>().concat();
        take_names(many.as_bytes(), &mut told);
        assert_eq!(told.added.len(), NAMES);
    }

    #[test]
    fn only_the_host_of_the_url_is_told_the_password_and_the_file_does_not_hold_it() {
        let address = RepositoryAddress::read("https://user:hunter22@host.example/a").unwrap();
        let text = configuration(address.credentials.as_ref());
        assert!(text.contains("[credential \"https://host.example\"]") && !text.contains("hunter22"), "{text}");
        assert!(!configuration(None).contains("DOCWHARF"));
    }
}
