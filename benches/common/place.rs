//! Where a server of a benchmark is set up: its folder, its ports, the version of its program.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where a server is set up.
#[derive(Debug)]
pub(crate) struct Place {
    /// Its own folder, for its configuration and whatever it writes.
    pub folder: PathBuf,
    /// The document root.
    pub root: PathBuf,
    pub port: u16,
    /// For HTTP/2 in clear where that takes a port of its own.
    pub h2_port: u16,
}

/// A port that nobody has just now.
pub(crate) fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|error| format!("cannot find a free port: {error}"))
}

pub(crate) fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

impl Place {
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

/// The version in what a program prints about it, on whichever stream: the first word that begins with a digit.
pub(crate) fn version_of(program: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut words = text.split(|c: char| c.is_whitespace() || c == '/');
    let version = words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    Some(format!("{} {version}", program.file_name()?.to_str()?))
}

/// Started by root, they would become somebody else, who may not be let into the folders above the site.
pub(crate) fn stay(line: &str) -> &str {
    if rustix::process::geteuid().is_root() { line } else { "" }
}
