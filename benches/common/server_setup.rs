//! The setup of a server in a benchmark: its folder, its ports, the version of its program.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folders and ports of a server.
#[derive(Debug)]
pub(crate) struct ServerSetup {
    /// A folder for its configuration and all files that it writes.
    pub folder: PathBuf,
    /// The document root.
    pub root: PathBuf,
    pub port: u16,
    /// The port for HTTP/2 in clear, if the server needs a separate one.
    pub h2_port: u16,
}

/// A port that is free at the moment.
pub(crate) fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|error| format!("cannot find a free port: {error}"))
}

pub(crate) fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

impl ServerSetup {
    pub(crate) fn new(folder: PathBuf, root: &Path) -> Result<Self, String> {
        fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        Ok(Self { folder, root: root.to_path_buf(), port: free_port()?, h2_port: free_port()? })
    }

    /// Writes a configuration and returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<String, String> {
        let path = self.folder.join(name);
        fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(path.display().to_string())
    }
}

/// The version of a program: the first word of its output, on either stream, that begins with a digit.
pub(crate) fn version_of(program: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut words = text.split(|c: char| c.is_whitespace() || c == '/');
    let version = words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    Some(format!("{} {version}", program.file_name()?.to_str()?))
}

/// The configuration of a docwharf without a search, whose responses have the bytes of the files, as those of other
/// servers; empty for an earlier docwharf, which has no such section.
pub(crate) fn section_without_search(program: &Path) -> &'static str {
    let help = Command::new(program).args(["search", "--help"]).output();
    if help.is_ok_and(|output| output.status.success()) { "[search]\nenabled = false\n" } else { "" }
}

/// The configuration of a docwharf that does not record what readers do, as other servers do not; empty for an earlier
/// docwharf, which has no such section.
pub(crate) fn section_without_recording(program: &Path) -> &'static str {
    let help = Command::new(program).args(["analytics", "pages", "--help"]).output();
    if help.is_ok_and(|output| output.status.success()) { "[analytics]\nenabled = false\n" } else { "" }
}

/// The configuration of a docwharf without MCP server, Markdown and `llms.txt`; empty for an earlier docwharf, which
/// has no such section.
pub(crate) fn section_without_assistants(program: &Path) -> &'static str {
    let help = Command::new(program).args(["mcp", "--help"]).output();
    let has_section = help.is_ok_and(|output| output.status.success());
    if has_section { "[assistant]\nmcp = false\nmarkdown = false\nllms = false\n" } else { "" }
}

/// The configuration line that keeps a server running as root, if root starts it: another user may have no access to
/// the site.
pub(crate) fn line_if_root(line: &str) -> &str {
    if rustix::process::geteuid().is_root() { line } else { "" }
}
