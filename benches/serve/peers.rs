//! The peers with their configurations: one worker, no access log, no limit of connections, files compressed in
//! advance, and entity tags and caches of open files where the server has them.

use std::path::Path;

use crate::common::process::raise_file_limit;
use crate::common::server_setup::{ServerSetup, line_if_root, version_of};
use crate::rows::Row;

/// The command that starts a server.
#[derive(Debug)]
pub(crate) struct LaunchCommand {
    pub command: Vec<String>,
    pub variables: Vec<(String, String)>,
    /// The port for HTTP/2 in clear.
    pub h2_port: u16,
    /// The rows that the server cannot do, with the reasons.
    pub missing_rows: &'static [(Row, &'static str)],
}

/// A server that docwharf is compared with.
pub(crate) struct Peer {
    pub name: &'static str,
    pub program: &'static str,
    version: &'static [&'static str],
    set_up: fn(&ServerSetup) -> Result<LaunchCommand, String>,
}

pub(crate) const PEERS: &[Peer] = &[
    Peer { name: "nginx", program: "nginx", version: &["-v"], set_up: nginx_usual },
    Peer { name: "nginx-small", program: "nginx", version: &["-v"], set_up: nginx_small },
    Peer { name: "h2o", program: "h2o", version: &["-v"], set_up: h2o },
    Peer { name: "lighttpd", program: "lighttpd", version: &["-v"], set_up: lighttpd },
    Peer { name: "caddy", program: "caddy", version: &["version"], set_up: caddy },
    Peer {
        name: "static-web-server",
        program: "static-web-server",
        version: &["--version"],
        set_up: static_web_server,
    },
];

impl Peer {
    pub(crate) fn version(&self) -> Result<String, String> {
        let missing =
            || format!("{} is not installed: install it, or leave it out by --without {}", self.program, self.name);
        version_of(Path::new(self.program), self.version).ok_or_else(missing)
    }

    pub(crate) fn set_up(&self, setup: &ServerSetup) -> Result<LaunchCommand, String> {
        (self.set_up)(setup)
    }
}

fn launch(command: &[&str]) -> LaunchCommand {
    let command = command.iter().map(|&argument| argument.to_owned()).collect();
    LaunchCommand { command, variables: Vec::new(), h2_port: 0, missing_rows: &[] }
}

fn nginx(setup: &ServerSetup, sending: &str) -> Result<LaunchCommand, String> {
    let ServerSetup { folder, root, port, h2_port } = setup;
    let (folder, root, user) = (folder.display(), root.display(), line_if_root("user root;"));
    // Each file in the cache uses a descriptor, which is missing for connections.
    let (files, cached) = (raise_file_limit(), raise_file_limit() / 3);
    let text = format!(
        "{user}
worker_processes 1;
worker_rlimit_nofile {files};
daemon off;
pid {folder}/pid;
error_log {folder}/error.log crit;
events {{ worker_connections 12000; }}
http {{
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
    gzip_static on;
    open_file_cache max={cached} inactive=1h;
    open_file_cache_valid 1h;
    {sending}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        listen 127.0.0.1:{h2_port} http2 backlog=4096;
        root {root};
    }}
}}
"
    );
    let file = setup.write("nginx.conf", &text)?;
    let prefix = folder.to_string();
    Ok(LaunchCommand { h2_port: *h2_port, ..launch(&["nginx", "-p", &prefix, "-e", "error.log", "-c", &file]) })
}

fn nginx_usual(setup: &ServerSetup) -> Result<LaunchCommand, String> {
    nginx(setup, "sendfile on;\n    tcp_nopush on;")
}

fn nginx_small(setup: &ServerSetup) -> Result<LaunchCommand, String> {
    nginx(setup, "sendfile off;\n    output_buffers 2 1m;")
}

fn h2o(setup: &ServerSetup) -> Result<LaunchCommand, String> {
    let ServerSetup { folder, root, port, .. } = setup;
    let text = format!(
        "{user}
num-threads: 1
max-connections: 30000
pid-file: {folder}/pid
listen:
  host: 127.0.0.1
  port: {port}
http1-request-timeout: 3600
http2-idle-timeout: 3600
file.send-compressed: ON
hosts:
  default:
    paths:
      /:
        file.dir: {root}
",
        user = line_if_root("user: root"),
        folder = folder.display(),
        root = root.display(),
    );
    let file = setup.write("h2o.conf", &text)?;
    Ok(LaunchCommand { h2_port: *port, ..launch(&["h2o", "-m", "worker", "-c", &file]) })
}

fn lighttpd(setup: &ServerSetup) -> Result<LaunchCommand, String> {
    let ServerSetup { folder, root, port, .. } = setup;
    let text = format!(
        r#"server.modules = ("mod_deflate")
server.bind = "127.0.0.1"
server.port = {port}
server.document-root = "{root}"
server.errorlog = "{folder}/error.log"
server.upload-dirs = ("{folder}")
server.max-fds = {files}
server.max-connections = 30000
server.listen-backlog = 4096
server.max-keep-alive-requests = 1000000000
server.max-keep-alive-idle = 3600
server.max-read-idle = 3600
server.stat-cache-engine = "inotify"
server.feature-flags += ("server.h2proto" => "enable", "server.h2c" => "enable")
index-file.names = ("index.html")
mimetype.assign = (".html" => "text/html", ".css" => "text/css", ".js" => "text/javascript",
    ".json" => "application/json", ".svg" => "image/svg+xml", ".txt" => "text/plain", ".xml" => "application/xml",
    ".png" => "image/png", ".woff2" => "font/woff2", "" => "application/octet-stream")
deflate.mimetypes = ("text/", "application/json", "application/xml", "image/svg+xml")
deflate.allowed-encodings = ("gzip")
deflate.params = ("gzip" => ("level" => 6))
deflate.cache-dir = "{folder}/deflate"
"#,
        root = root.display(),
        folder = folder.display(),
        files = raise_file_limit(),
    );
    let file = setup.write("lighttpd.conf", &text)?;
    Ok(LaunchCommand { h2_port: *port, ..launch(&["lighttpd", "-D", "-f", &file]) })
}

fn caddy(setup: &ServerSetup) -> Result<LaunchCommand, String> {
    let ServerSetup { folder, root, port, .. } = setup;
    let text = format!(
        "{{
    admin off
    auto_https off
    servers {{
        protocols h1 h2c
    }}
}}
http://:{port} {{
    bind 127.0.0.1
    root * {root}
    file_server {{
        precompressed gzip
    }}
}}
",
        root = root.display(),
    );
    let file = setup.write("Caddyfile", &text)?;
    let home = folder.display().to_string();
    let variables = ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"].map(|name| (name.to_owned(), home.clone())).to_vec();
    Ok(LaunchCommand {
        variables,
        h2_port: *port,
        ..launch(&["caddy", "run", "--adapter", "caddyfile", "--config", &file])
    })
}

const MISSING_ROWS_OF_STATIC_WEB_SERVER: &[(Row, &str)] = &[
    (Row::Close, "ends the connection without saying so in its answer, which wrk takes for a failure"),
    (Row::H2, "speaks HTTP/2 over TLS only"),
];

// The type is that of the other servers, which write a configuration.
#[allow(clippy::unnecessary_wraps)]
fn static_web_server(setup: &ServerSetup) -> Result<LaunchCommand, String> {
    let (port, root) = (setup.port.to_string(), setup.root.display().to_string());
    let mut arguments = vec!["static-web-server", "--host", "127.0.0.1", "--port", &port, "--root", &root];
    arguments.extend(["--threads-multiplier", "1", "--compression-static", "--log-level", "error"]);
    Ok(LaunchCommand { missing_rows: MISSING_ROWS_OF_STATIC_WEB_SERVER, ..launch(&arguments) })
}
