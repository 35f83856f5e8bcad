//! The servers that are attacked: docwharf, nginx and h2o on all cores, with their own time-outs and limits. Each
//! serves the same site in clear, over HTTP/2 in clear and over TLS.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::attack::Listener;
use crate::common::http;
use crate::common::place::{Place, free_port, local, stay, version_of};
use crate::common::process::{How, Server, many_files, spawn};
use crate::site::{BIG_PAGES, PAGES, SMALL, Site, big_page, page};
use support::tls::Authority;

/// Whether a process has not ended: one that has lost its memory has no program.
pub(crate) fn is_running(pid: u32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

/// A certificate that all three use, its key, and the root that clients trust, as PEM files.
#[derive(Debug)]
pub(crate) struct Identity {
    certificate: PathBuf,
    key: PathBuf,
    pub root: PathBuf,
}

/// The name in the certificate.
pub(crate) const NAME: &str = "localhost";

impl Identity {
    pub(crate) fn make(folder: &Path) -> Result<Self, String> {
        let authority = Authority::new();
        let issued = authority.issue(&[NAME]);
        let write = |name: &str, text: String| {
            let path = folder.join(name);
            let written = std::fs::write(&path, text);
            written.map(|()| path.clone()).map_err(|error| format!("cannot write {}: {error}", path.display()))
        };
        Ok(Self {
            certificate: write("certificate.pem", issued.certificate)?,
            key: write("key.pem", issued.key)?,
            root: write("root.pem", authority.pem())?,
        })
    }
}

/// A server that can be attacked.
pub(crate) struct Target {
    pub name: &'static str,
    pub version: String,
    place: Place,
    command: Vec<String>,
    tls_port: u16,
    /// docwharf's admin listener.
    pub admin: Option<SocketAddr>,
}

/// What a store that is opened on a busy disk takes.
const START_TIMEOUT: Duration = Duration::from_secs(20);

impl Target {
    pub(crate) fn address(&self, listener: Listener) -> SocketAddr {
        local(match listener {
            Listener::Clear => self.place.port,
            Listener::Http2 => self.place.h2_port,
            Listener::Tls => self.tls_port,
        })
    }

    /// Starts the server and fetches each page in both codings, so that its caches are as full as they get.
    pub(crate) fn start(&self, site: &Site) -> Result<Server, String> {
        let mut server = spawn(&self.command, &self.place.folder, &[], How::AllCores)?;
        let begun = Instant::now();
        while !http::once(self.address(Listener::Clear), SMALL, &[]).is_ok_and(|answer| answer.body == site.small) {
            if !server.is_running() || begun.elapsed() > START_TIMEOUT {
                return Err(format!("{} does not serve; its output: {}", self.name, self.log().trim()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.walk().map_err(|error| format!("{}: cannot fetch all pages: {error}", self.name))?;
        Ok(server)
    }

    /// What it has printed.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.place.folder.join("log")).unwrap_or_default()
    }

    /// Its own folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.place.folder
    }

    fn walk(&self) -> std::io::Result<()> {
        let mut client = http::Client::connect(self.address(Listener::Clear))?;
        for coding in ["identity", "gzip"] {
            let fields = [("Accept-Encoding".to_owned(), coding.to_owned())];
            for path in (0..PAGES).map(page).chain((0..BIG_PAGES).map(big_page)) {
                if !client.get(&path, &fields)?.keeps {
                    client = http::Client::connect(self.address(Listener::Clear))?;
                }
            }
        }
        Ok(())
    }
}

/// docwharf as `run` has it, without the denser codings, whose making would be taken for the attack's work.
pub(crate) fn docwharf(program: &Path, scratch: &Path, identity: &Identity, source: &str) -> Result<Target, String> {
    let place = Place::new(scratch.join("docwharf"), scratch)?;
    let (tls_port, admin) = (free_port()?, free_port()?);
    let text = format!(
        "[store]\npath = 'store'\n{source}\n[server]\nlisten = \"127.0.0.1:{}\"\ncodings = []\n\
         [tls]\ncertFile = '{}'\nkeyFile = '{}'\nlisten = \"127.0.0.1:{tls_port}\"\n\
         [admin]\nlisten = \"127.0.0.1:{admin}\"\n",
        place.port,
        identity.certificate.display(),
        identity.key.display(),
    );
    let config = place.write("docwharf.toml", &text)?;
    let version = version_of(program, &["--version"]).ok_or_else(|| format!("cannot start {}", program.display()))?;
    let command = vec![program.display().to_string(), "--config".to_owned(), config, "run".to_owned()];
    let place = Place { h2_port: place.port, ..place };
    Ok(Target { name: DOCWHARF, version, place, command, tls_port, admin: Some(local(admin)) })
}

pub(crate) const DOCWHARF: &str = "docwharf";

/// docwharf with the site imported beforehand.
pub(crate) fn docwharf_with(
    program: &Path,
    scratch: &Path,
    identity: &Identity,
    site: &Site,
) -> Result<Target, String> {
    let folder = scratch.join(DOCWHARF);
    let inbox = folder.join("inbox");
    std::fs::create_dir_all(&inbox).map_err(|error| format!("cannot make {}: {error}", inbox.display()))?;
    let target = docwharf(program, scratch, identity, "[sync]\ninbox = 'inbox'")?;
    let mut import = Command::new(program);
    import.current_dir(&folder).args(["--config", "docwharf.toml", "import"]).arg(&site.zip);
    let output = import.output().map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    if !output.status.success() {
        return Err(format!("cannot import the site: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(target)
}

/// nginx as most have it, with compressed files made beforehand.
pub(crate) fn nginx(scratch: &Path, identity: &Identity, site: &Site) -> Result<Target, String> {
    let place = Place::new(scratch.join("nginx"), &site.folder)?;
    let tls_port = free_port()?;
    let version = version_of(Path::new("nginx"), &["-v"]).ok_or("nginx is not installed")?;
    let text = format!(
        "{user}
worker_processes 2;
worker_rlimit_nofile {files};
daemon off;
pid {folder}/pid;
error_log {folder}/error.log crit;
events {{ worker_connections 12000; }}
http {{
    include /etc/nginx/mime.types;
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    gzip_static on;
    keepalive_requests 1000000000;
    sendfile on;
    tcp_nopush on;
    open_file_cache max=10000 inactive=1h;
    open_file_cache_valid 1h;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        listen 127.0.0.1:{h2_port} http2 backlog=4096;
        listen 127.0.0.1:{tls_port} ssl http2 backlog=4096;
        ssl_certificate {certificate};
        ssl_certificate_key {key};
        root {root};
    }}
}}
",
        user = stay("user root;"),
        files = many_files(),
        folder = place.folder.display(),
        port = place.port,
        h2_port = place.h2_port,
        certificate = identity.certificate.display(),
        key = identity.key.display(),
        root = place.root.display(),
    );
    let config = place.write("nginx.conf", &text)?;
    let prefix = place.folder.display().to_string();
    let command = ["nginx", "-p", &prefix, "-e", "error.log", "-c", &config].map(str::to_owned).to_vec();
    Ok(Target { name: "nginx", version, place, command, tls_port, admin: None })
}

/// h2o as its package has it, with compressed files made beforehand.
pub(crate) fn h2o(scratch: &Path, identity: &Identity, site: &Site) -> Result<Target, String> {
    let place = Place::new(scratch.join("h2o"), &site.folder)?;
    let place = Place { h2_port: place.port, ..place };
    let tls_port = free_port()?;
    let version = version_of(Path::new("h2o"), &["-v"]).ok_or("h2o is not installed")?;
    let text = format!(
        "{user}
num-threads: 2
max-connections: 30000
pid-file: {folder}/pid
listen:
  host: 127.0.0.1
  port: {port}
listen:
  host: 127.0.0.1
  port: {tls_port}
  ssl:
    certificate-file: {certificate}
    key-file: {key}
file.send-compressed: ON
hosts:
  default:
    paths:
      /:
        file.dir: {root}
",
        user = stay("user: root"),
        folder = place.folder.display(),
        port = place.port,
        certificate = identity.certificate.display(),
        key = identity.key.display(),
        root = place.root.display(),
    );
    let config = place.write("h2o.conf", &text)?;
    let command = ["h2o", "-m", "worker", "-c", &config].map(str::to_owned).to_vec();
    Ok(Target { name: "h2o", version, place, command, tls_port, admin: None })
}
