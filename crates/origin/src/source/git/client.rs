//! Runs the `git` program under a configuration of this program alone.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use docwharf_base::child_network::ChildNetwork;
use docwharf_base::error_chain::OneLine;

use super::address::{GitCredentials, PROTOCOLS, RepositoryAddress, RepositoryLocation};
use super::process::{ProgramLimits, ProgramResult, ProgramStop, run_program};
use super::{GitAuthor, GitCommit, GitError, GitSource, MAX_LISTED_FILES, is_branch_name};

/// Local reference of the fetched branch. The branch's own name may be too long for a file.
const FETCHED_REF: &str = "refs/heads/head";
/// Maximum length of a commit message in bytes; the rest is left out.
const MAX_MESSAGE_BYTES: usize = 16 * 1024;
/// Environment variables that git inherits: where its programs are, and which certificates it trusts.
const INHERITED_VARIABLES: [&str; 6] =
    ["PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "GIT_EXEC_PATH", "TMPDIR"];
/// Environment variables that decide how git reaches other hosts. In an air-gapped deployment it does not inherit them.
const NETWORK_VARIABLES: [&str; 8] =
    ["SSH_AUTH_SOCK", "http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"];
/// Author and committer of all that git records. Without them it would look up the name of this host, at a name server
/// if need be, for an e-mail address.
const IDENTITY_VARIABLES: [(&str, &str); 4] = [
    ("GIT_AUTHOR_NAME", "docwharf"),
    ("GIT_AUTHOR_EMAIL", "docwharf@localhost"),
    ("GIT_COMMITTER_NAME", "docwharf"),
    ("GIT_COMMITTER_EMAIL", "docwharf@localhost"),
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
    logAllRefUpdates = false
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
/// Further configuration of git in an air-gapped deployment: a response cannot lead it to another server (by a
/// redirect, or by `objects/info/http-alternates`), and it begins no login without credentials.
const AIR_GAPPED_CONFIGURATION: &str = "[http]\n    followRedirects = false\n    emptyAuth = false\n";
/// Configuration of Kerberos in an air-gapped deployment. With a login of type Negotiate, which a server can offer, the
/// library of the system would look up the name of the server's address.
const AIR_GAPPED_KERBEROS_CONFIGURATION: &str = r"[libdefaults]
    dns_canonicalize_hostname = false
    rdns = false
    dns_lookup_realm = false
    dns_lookup_kdc = false
";
/// The file with it, in the folder with the configuration of git.
const KERBEROS_FILE: &str = "krb5.conf";
/// Environment variables of Kerberos in an air-gapped deployment: it uses no ticket and no key of this machine, so it
/// has nothing to begin a login with.
const AIR_GAPPED_KERBEROS_VARIABLES: [(&str, &str); 2] =
    [("KRB5CCNAME", "MEMORY:"), ("KRB5_CLIENT_KTNAME", "/dev/null")];
/// Credential helper: prints user name and password when git calls it with the argument `get`.
const CREDENTIAL_HELPER: &str = r#"!f() { test \"$1\" = get && printf 'username=%s\\npassword=%s\\n' \"$DOCWHARF_USER\" \"$DOCWHARF_PASSWORD\"; }; f"#;

/// Head commit of a branch that was checked out.
#[derive(Debug)]
pub(super) struct BranchHead {
    pub(super) commit: GitCommit,
    /// Commit time in seconds since 1970.
    pub(super) committed_at: i64,
}

/// Client of one repository, which runs the `git` program.
#[derive(Debug)]
pub(super) struct GitClient<'a> {
    git: &'a GitSource,
    address: &'a RepositoryAddress,
    /// Folder with the configuration of git.
    home: PathBuf,
    /// Folder for fetched objects (`GIT_DIR`).
    repository: PathBuf,
    limits: &'a ProgramLimits<'a>,
}

impl<'a> GitClient<'a> {
    /// Writes the configuration. `home` must not exist yet.
    pub(super) fn new(
        git: &'a GitSource,
        address: &'a RepositoryAddress,
        home: PathBuf,
        limits: &'a ProgramLimits<'a>,
    ) -> Result<GitClient<'a>, GitError> {
        fs::DirBuilder::new().mode(0o700).create(&home).map_err(GitError::io_error("make", &home))?;
        let is_air_gapped = git.outbound_policy.is_air_gapped();
        let file = home.join(".gitconfig");
        fs::write(&file, configuration(address, is_air_gapped)).map_err(GitError::io_error("write", &file))?;
        if is_air_gapped {
            let file = home.join(KERBEROS_FILE);
            fs::write(&file, AIR_GAPPED_KERBEROS_CONFIGURATION).map_err(GitError::io_error("write", &file))?;
        }
        Ok(GitClient { git, address, home, repository: limits.work_folder.join("git"), limits })
    }

    /// Returns the current branches of the repository, each with its commit id.
    pub(super) fn list_branches(&self) -> Result<BTreeMap<String, String>, GitError> {
        let repository = self.address.plain.as_str();
        let output = self.run("list the branches of", &["ls-remote", "--heads", "--refs", "--", repository], None)?;
        let output = String::from_utf8_lossy(&output);
        let parse_line = |line: &str| {
            let (sha, name) = line.split_once('\t')?;
            let name = name.strip_prefix("refs/heads/")?;
            is_branch_name(name).then(|| (name.to_owned(), sha.to_owned()))
        };
        Ok(output.lines().filter_map(parse_line).collect())
    }

    /// Fetches the head of a branch and writes its files to `site`, which must not exist yet.
    pub(super) fn check_out(&self, branch: &str, site: &Path) -> Result<BranchHead, GitError> {
        fs::create_dir(site).map_err(GitError::io_error("make", site))?;
        self.run("create a local repository for", &["init", "--quiet", "--template="], Some(site))?;
        self.fetch(branch, site)?;
        let head = self.read_head(branch, site)?;
        self.run("check out", &["checkout", "--quiet", "--force", "--detach", FETCHED_REF, "--"], Some(site))?;
        let short = head.commit.sha.get(..12).unwrap_or_default();
        self.limits.context.log_line(format!("{branch} is at {short}: {}", subject(&head.commit.message)));
        Ok(head)
    }

    /// Removes the folders with objects and configuration.
    pub(super) fn remove_folders(&self) -> Result<(), GitError> {
        for folder in [&self.repository, &self.home] {
            fs::remove_dir_all(folder).map_err(GitError::io_error("remove", folder))?;
        }
        Ok(())
    }

    /// Fetches the newest commit and its parents, without any further history.
    fn fetch(&self, branch: &str, site: &Path) -> Result<(), GitError> {
        let refs = format!("+refs/heads/{branch}:{FETCHED_REF}");
        let repository = self.address.plain.as_str();
        let arguments = [
            "fetch",
            "--quiet",
            "--depth=2",
            "--no-tags",
            "--no-recurse-submodules",
            "--update-head-ok",
            "--",
            repository,
            &refs,
        ];
        let fetch_error = match self.run("fetch from", &arguments, Some(site)) {
            Err(error @ GitError::Git { .. }) => error,
            other => return other.map(drop),
        };
        // The message for a missing branch differs between versions of git.
        match self.list_branches() {
            // A repository without any branch is more likely being set up again than missing this one.
            Ok(branches) if !branches.is_empty() && !branches.contains_key(branch) => {
                Err(GitError::NoBranch { repository: self.address.redacted.clone(), branch: branch.to_owned() })
            }
            _ => Err(fetch_error),
        }
    }

    /// Reads the fetched commit and the files that it changes.
    fn read_head(&self, branch: &str, site: &Path) -> Result<BranchHead, GitError> {
        let format = "--format=%H%x00%P%x00%an%x00%ae%x00%ct%x00%B";
        let output =
            self.run("read the head of", &["log", "-1", "--no-color", format, FETCHED_REF, "--"], Some(site))?;
        let output = String::from_utf8_lossy(&output);
        let mut fields = output.splitn(6, '\0');
        let mut next_field = || fields.next().unwrap_or_default();
        let [sha, parents, name, email, committed_at, message] = std::array::from_fn(|_| next_field());
        let author = (!name.is_empty() || !email.is_empty())
            .then(|| GitAuthor { name: truncate(name, 256).to_owned(), email: truncate(email, 256).to_owned() });
        let mut commit = GitCommit {
            sha: sha.to_owned(),
            branch: branch.to_owned(),
            message: truncate(message.trim_end(), MAX_MESSAGE_BYTES).to_owned(),
            author,
            added: Vec::new(),
            modified: Vec::new(),
            removed: Vec::new(),
        };
        let diff_tree = ["diff-tree", "-r", "-z", "--no-commit-id", "--name-status", "--no-renames", "--no-ext-diff"];
        let arguments = match parents.split(' ').next() {
            Some(parent) if !parent.is_empty() => [&diff_tree[..], &[parent, sha, "--"]].concat(),
            _ => [&diff_tree[..], &["--root", sha, "--"]].concat(),
        };
        add_file_names(&self.run("compare the head of", &arguments, Some(site))?, &mut commit);
        Ok(BranchHead { commit, committed_at: committed_at.parse().unwrap_or_default() })
    }

    /// Runs git and returns its standard output; its standard error goes to the log.
    fn run(&self, doing: &'static str, arguments: &[&str], site: Option<&Path>) -> Result<Vec<u8>, GitError> {
        let context = self.limits.context;
        context.log_line(format!("$ git {}", OneLine(&self.address.redact(&arguments.join(" ")))));
        let mut command = self.git_command();
        if let Some(site) = site {
            command.env("GIT_DIR", &self.repository).env("GIT_WORK_TREE", site).current_dir(site);
        }
        let result = run_program(command.args(arguments), true, self.limits, &mut |line| {
            context.log_line(self.address.redact(line));
        });
        let ProgramResult { status, output, last_lines } = match result {
            Err(ProgramStop::StartFailed(_, error)) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(GitError::NotInstalled);
            }
            result => result.map_err(|stop| GitError::from_stop("git", self.git, stop))?,
        };
        if status.success() {
            return Ok(output);
        }
        context.log_line(format!("git ended with {status}"));
        let output = if last_lines.is_empty() { status.to_string() } else { self.address.redact(&last_lines) };
        Err(GitError::Git { doing, repository: self.address.redacted.clone(), output })
    }

    /// Returns the command `git` with a clean environment.
    fn git_command(&self) -> Command {
        let network = match self.address.location {
            // A repository on the disk can name another one, elsewhere, for objects that it lacks.
            RepositoryLocation::Local => ChildNetwork::for_other_program(&self.git.outbound_policy),
            _ => ChildNetwork::Inherited,
        };
        let mut command = network.command("git");
        command.env_clear().current_dir(&self.home);
        let is_air_gapped = self.git.outbound_policy.is_air_gapped();
        let network_variables: &[&str] = if is_air_gapped { &[] } else { &NETWORK_VARIABLES };
        for name in INHERITED_VARIABLES.iter().chain(network_variables) {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        let value = |text: &'static str| OsStr::new(text);
        command
            .env("HOME", &self.home)
            .env("GIT_CONFIG_GLOBAL", self.home.join(".gitconfig"))
            .envs([("GIT_CONFIG_NOSYSTEM", value("1")), ("GIT_ATTR_NOSYSTEM", value("1"))])
            .env("GIT_ALLOW_PROTOCOL", allowed_protocols(self.address, is_air_gapped).join(":"))
            // No user can answer a prompt.
            .envs([("GIT_TERMINAL_PROMPT", value("0")), ("GIT_ASKPASS", value("")), ("SSH_ASKPASS", value(""))])
            .envs([("GIT_SSH_COMMAND", value("ssh -o BatchMode=yes")), ("GIT_LFS_SKIP_SMUDGE", value("1"))])
            .envs(IDENTITY_VARIABLES)
            .env("LC_ALL", "C");
        if let Some(GitCredentials { user, password, .. }) = &self.address.credentials {
            command.env("DOCWHARF_USER", user.expose()).env("DOCWHARF_PASSWORD", password.expose());
        }
        if is_air_gapped {
            command.env("KRB5_CONFIG", self.home.join(KERBEROS_FILE)).envs(AIR_GAPPED_KERBEROS_VARIABLES);
        }
        command
    }
}

/// Returns the protocols that git may use: in an air-gapped deployment, only that of the address.
fn allowed_protocols(address: &RepositoryAddress, is_air_gapped: bool) -> Vec<&'static str> {
    let is_allowed = |protocol: &&str| match address.plain.split_once("://") {
        _ if !is_air_gapped => true,
        Some((scheme, _)) => scheme == *protocol,
        None => *protocol == "file",
    };
    PROTOCOLS.into_iter().filter(is_allowed).collect()
}

/// Returns the complete configuration of git.
fn configuration(address: &RepositoryAddress, is_air_gapped: bool) -> String {
    let mut text = CONFIGURATION.to_owned();
    for protocol in allowed_protocols(address, is_air_gapped) {
        let _ = write!(text, "[protocol \"{protocol}\"]\n    allow = always\n");
    }
    if is_air_gapped {
        text.push_str(AIR_GAPPED_CONFIGURATION);
    }
    if let Some(GitCredentials { origin, .. }) = &address.credentials {
        // The helper is set for this origin only, so no other host gets the credentials, whatever the redirects. An
        // origin contains neither quotes nor backslashes.
        let _ = write!(text, "[credential \"{origin}\"]\n    helper = \"{CREDENTIAL_HELPER}\"\n");
    }
    text
}

/// Adds the file names that `diff-tree -z --name-status` prints to a commit.
fn add_file_names(output: &[u8], commit: &mut GitCommit) {
    let mut fields = output.split(|byte| *byte == 0);
    while let (Some(status), Some(name)) = (fields.next(), fields.next()) {
        let names = match status.first() {
            Some(b'A') => &mut commit.added,
            Some(b'D') => &mut commit.removed,
            _ => &mut commit.modified,
        };
        if names.len() < MAX_LISTED_FILES {
            names.push(String::from_utf8_lossy(name).into_owned());
        }
    }
}

/// Returns the first line of a message, shortened for the log.
fn subject(message: &str) -> String {
    OneLine(truncate(message.lines().next().unwrap_or_default(), 200)).to_string()
}

/// Returns at most `max_bytes` bytes of a text.
fn truncate(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

#[cfg(test)]
mod tests {
    use docwharf_base::model::deployment::OutboundPolicy;

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
    fn changed_files_of_a_commit_are_listed_as_added_modified_or_removed() {
        let mut changed = commit();
        add_file_names("A\0a\nb\0M\0ü\0D\0c\0T\0link\0".as_bytes(), &mut changed);
        let expected = GitCommit {
            added: vec!["a\nb".into()],
            modified: vec!["ü".into(), "link".into()],
            removed: vec!["c".into()],
            ..commit()
        };
        assert_eq!(changed, expected);
        let many = (0..5000).map(|n| format!("A\0{n}\0")).collect::<Vec<_>>().concat();
        add_file_names(many.as_bytes(), &mut changed);
        assert_eq!(changed.added.len(), MAX_LISTED_FILES);
    }

    #[test]
    fn the_git_configuration_limits_credentials_to_one_host_and_contains_no_password() {
        let parse = |repository: &str| RepositoryAddress::parse(repository, &OutboundPolicy::Any).unwrap();
        let text = configuration(&parse("https://user:hunter22@host.example/a"), false);
        assert!(text.contains("[credential \"https://host.example\"]") && !text.contains("hunter22"), "{text}");
        assert!(!configuration(&parse("https://host.example/a"), false).contains("DOCWHARF"));
    }

    #[test]
    fn git_of_an_air_gapped_origin_follows_no_redirect_and_uses_one_protocol() {
        let policy = OutboundPolicy::AirGapped { allow: [].into() };
        for (repository, protocol) in [("http://127.0.0.1/a", "http"), ("/srv/a", "file"), ("file:///srv/a", "file")] {
            let text = configuration(&RepositoryAddress::parse(repository, &policy).unwrap(), true);
            assert!(text.contains("followRedirects = false"), "{text}");
            let allowed: Vec<&str> =
                text.split("[protocol \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
            assert_eq!(allowed, [protocol]);
        }
        let text = configuration(&RepositoryAddress::parse("/srv/a", &OutboundPolicy::Any).unwrap(), false);
        assert!(!text.contains("followRedirects") && text.contains("[protocol \"ssh\"]"), "{text}");
    }
}
