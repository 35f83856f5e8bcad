//! The attacked servers: docwharf, nginx and h2o on all cores, with their default timeouts and limits. Each
//! serves the same site in clear, over HTTP/2 in clear and over TLS.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::attack::Listener;
use crate::common::http;
use crate::common::process::{Server, StartMode, raise_file_limit, spawn};
use crate::common::server_setup::{ServerSetup, free_port, line_if_root, local, version_of};
use crate::site::{BIG_PAGES, PAGES, SMALL, Site, big_page, page, word};
use support::tls::CertificateAuthority;

/// Whether a process has not ended. A zombie process has no `exe`.
pub(crate) fn is_running(pid: u32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

/// The certificate of all three servers, its key, and the root that clients trust, as PEM files.
#[derive(Debug)]
pub(crate) struct TestCertificate {
    certificate: PathBuf,
    key: PathBuf,
    pub root: PathBuf,
}

/// The name in the certificate.
pub(crate) const SERVER_NAME: &str = "localhost";

impl TestCertificate {
    pub(crate) fn make(folder: &Path) -> Result<Self, String> {
        let authority = CertificateAuthority::new();
        let issued = authority.issue(&[SERVER_NAME]);
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
    setup: ServerSetup,
    command: Vec<String>,
    tls_port: u16,
    /// docwharf's admin listener.
    pub admin: Option<SocketAddr>,
}

/// Enough for opening a store on a busy disk.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Enough for building the index of the site at the lowest priority.
const INDEX_TIMEOUT: Duration = Duration::from_mins(3);

impl Target {
    pub(crate) fn address(&self, listener: Listener) -> SocketAddr {
        local(match listener {
            Listener::Clear => self.setup.port,
            Listener::Http2 => self.setup.h2_port,
            Listener::Tls => self.tls_port,
        })
    }

    /// Starts the server and requests each page in both codings, so that its caches are full.
    pub(crate) fn start(&self, site: &Site) -> Result<Server, String> {
        let mut server = spawn(&self.command, &self.setup.folder, &[], StartMode::AllCores)?;
        let started = Instant::now();
        while !http::get_once(self.address(Listener::Clear), SMALL, &[])
            .is_ok_and(|response| response.body == site.small)
        {
            if !server.is_running() || started.elapsed() > START_TIMEOUT {
                return Err(format!("{} does not serve; its output: {}", self.name, self.log().trim()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.fetch_all_pages().map_err(|error| format!("{}: cannot fetch all pages: {error}", self.name))?;
        if self.admin.is_some() {
            self.wait_for_index()?;
        }
        Ok(server)
    }

    /// Waits until docwharf answers searches: building the index would count as cost of the attack.
    fn wait_for_index(&self) -> Result<(), String> {
        let started = Instant::now();
        let search = format!("/_docwharf/search?q={}", word(0));
        while !http::get_once(self.address(Listener::Clear), &search, &[]).is_ok_and(|response| response.status == 200)
        {
            if started.elapsed() > INDEX_TIMEOUT {
                return Err(format!("{} has no search index; its output: {}", self.name, self.log().trim()));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// The server's output.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.setup.folder.join("log")).unwrap_or_default()
    }

    /// The server's folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.setup.folder
    }

    fn fetch_all_pages(&self) -> std::io::Result<()> {
        let mut client = http::HttpClient::connect(self.address(Listener::Clear))?;
        for coding in ["identity", "gzip"] {
            let fields = [("Accept-Encoding".to_owned(), coding.to_owned())];
            for path in (0..PAGES).map(page).chain((0..BIG_PAGES).map(big_page)) {
                if !client.get(&path, &fields)?.is_reusable {
                    client = http::HttpClient::connect(self.address(Listener::Clear))?;
                }
            }
        }
        Ok(())
    }
}

/// docwharf's `run`, without Brotli and Zstandard forms, whose encoding would count as cost of the attack. Its pages
/// have the same bytes as those of the other servers, without the search box; they can be searched.
pub(crate) fn docwharf(
    program: &Path,
    scratch: &Path,
    certificate_files: &TestCertificate,
    source: &str,
) -> Result<Target, String> {
    let setup = ServerSetup::new(scratch.join("docwharf"), scratch)?;
    let (tls_port, admin) = (free_port()?, free_port()?);
    let text = format!(
        "[store]\npath = 'store'\n{source}\n[server]\nlisten = \"127.0.0.1:{}\"\ncodings = []\n\
         [tls]\ncertFile = '{}'\nkeyFile = '{}'\nlisten = \"127.0.0.1:{tls_port}\"\n\
         [admin]\nlisten = \"127.0.0.1:{admin}\"\n[search]\ninject = \"never\"\n",
        setup.port,
        certificate_files.certificate.display(),
        certificate_files.key.display(),
    );
    let config = setup.write("docwharf.toml", &text)?;
    let version = version_of(program, &["--version"]).ok_or_else(|| format!("cannot start {}", program.display()))?;
    let command = vec![program.display().to_string(), "--config".to_owned(), config, "run".to_owned()];
    let setup = ServerSetup { h2_port: setup.port, ..setup };
    Ok(Target { name: DOCWHARF, version, setup, command, tls_port, admin: Some(local(admin)) })
}

pub(crate) const DOCWHARF: &str = "docwharf";

/// docwharf with the site in its store.
pub(crate) fn docwharf_with_site(
    program: &Path,
    scratch: &Path,
    certificate_files: &TestCertificate,
    site: &Site,
) -> Result<Target, String> {
    let folder = scratch.join(DOCWHARF);
    let inbox = folder.join("inbox");
    std::fs::create_dir_all(&inbox).map_err(|error| format!("cannot make {}: {error}", inbox.display()))?;
    let target = docwharf(program, scratch, certificate_files, "[sync]\ninbox = 'inbox'")?;
    let mut import = Command::new(program);
    import.current_dir(&folder).args(["--config", "docwharf.toml", "import"]).arg(&site.zip);
    let output = import.output().map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    if !output.status.success() {
        return Err(format!("cannot import the site: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(target)
}

/// nginx with an ordinary configuration and precompressed files.
pub(crate) fn nginx(scratch: &Path, certificate_files: &TestCertificate, site: &Site) -> Result<Target, String> {
    let setup = ServerSetup::new(scratch.join("nginx"), &site.folder)?;
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
        user = line_if_root("user root;"),
        files = raise_file_limit(),
        folder = setup.folder.display(),
        port = setup.port,
        h2_port = setup.h2_port,
        certificate = certificate_files.certificate.display(),
        key = certificate_files.key.display(),
        root = setup.root.display(),
    );
    let config = setup.write("nginx.conf", &text)?;
    let prefix = setup.folder.display().to_string();
    let command = ["nginx", "-p", &prefix, "-e", "error.log", "-c", &config].map(str::to_owned).to_vec();
    Ok(Target { name: "nginx", version, setup, command, tls_port, admin: None })
}

/// h2o with the configuration of its package and precompressed files.
pub(crate) fn h2o(scratch: &Path, certificate_files: &TestCertificate, site: &Site) -> Result<Target, String> {
    let setup = ServerSetup::new(scratch.join("h2o"), &site.folder)?;
    let setup = ServerSetup { h2_port: setup.port, ..setup };
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
        user = line_if_root("user: root"),
        folder = setup.folder.display(),
        port = setup.port,
        certificate = certificate_files.certificate.display(),
        key = certificate_files.key.display(),
        root = setup.root.display(),
    );
    let config = setup.write("h2o.conf", &text)?;
    let command = ["h2o", "-m", "worker", "-c", &config].map(str::to_owned).to_vec();
    Ok(Target { name: "h2o", version, setup, command, tls_port, admin: None })
}
