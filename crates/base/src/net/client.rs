//! The HTTP client: proxies from the environment; root certificates from the system, or from `SSL_CERT_FILE` and
//! `SSL_CERT_DIR` instead, and from `api.caFile` in addition; no automatic redirects. An air-gapped client uses no
//! proxies and connects to permitted addresses only ([`super::connect`]).
//!
//! Each sync builds a new client, so that the next sync uses a replaced root certificate.

#![allow(clippy::disallowed_types)] // only this module makes clients of the library, with the resolver of the policy

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use reqwest::RequestBuilder;
use reqwest::redirect::Policy;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::locks::Mutex;
use crate::model::deployment::OutboundPolicy;
use crate::regular_file;
use crate::secret::SafeUrl;

use super::NetworkSettings;
use super::connect::{PolicyResolver, check_url};
use super::request_error::{RequestError, RequestErrorCause};

/// The reason why the client cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The file of root certificates is missing or cannot be read.
    #[error("cannot read {} (api.caFile)", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The file contains no usable certificate.
    #[error("{} (api.caFile) holds no PEM certificate that can be used; it should begin with -----BEGIN CERTIFICATE-----", path.display())]
    NoCertificate {
        /// The path of the file.
        path: PathBuf,
    },
    /// The client library refused the settings.
    #[error("cannot set up the HTTP client: {0}")]
    Build(String),
}

/// Upper bound of the clients of an air-gapped process, one for each port. Beyond it, all of them are built anew.
const MAX_CLIENTS: usize = 16;

/// The HTTP client of all of docwharf. It creates requests to permitted addresses only.
#[derive(Debug, Clone)]
pub struct HttpClient(Arc<SharedClient>);

#[derive(Debug)]
struct SharedClient {
    outbound: OutboundPolicy,
    tls: ClientConfig,
    uses_proxies: bool,
    connect_timeout: Duration,
    /// The clients of the library: one for each port if the process is air-gapped, because their resolver must know the
    /// port; else a single one.
    clients: Mutex<BTreeMap<u16, reqwest::Client>>,
}

/// Builds a client. It follows no redirects: [`super::redirects`] does, with a policy that decides whether a key may be
/// sent to the target.
pub fn build_client(network: &NetworkSettings) -> Result<HttpClient, ClientError> {
    let tls = build_tls_config(network.ca_file.as_deref())?;
    let client = SharedClient {
        outbound: network.outbound.clone(),
        tls,
        uses_proxies: !network.ignore_proxies && uses_proxies(&network.outbound),
        connect_timeout: network.connect_timeout,
        clients: Mutex::default(),
    };
    // An error of the library is reported now, not at the first request.
    client.for_port(443)?;
    Ok(HttpClient(Arc::new(client)))
}

/// Builds the TLS configuration of clients, with the root certificates of the system and those of `ca_file`.
pub fn build_tls_config(ca_file: Option<&Path>) -> Result<ClientConfig, ClientError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ClientError::Build(error.to_string()))?;
    Ok(builder.with_root_certificates(load_root_certificates(ca_file)?).with_no_client_auth())
}

/// Returns whether proxies from the environment are used. They are not if the process is air-gapped, or if `NO_PROXY`
/// excludes every host.
pub fn uses_proxies(outbound: &OutboundPolicy) -> bool {
    // Other programs read `*` as "no proxy for any host"; the library treats it as a host name.
    let excludes_all =
        ["NO_PROXY", "no_proxy"].iter().any(|name| std::env::var(name).is_ok_and(|list| list.trim() == "*"));
    !outbound.is_air_gapped() && !excludes_all
}

impl HttpClient {
    /// Creates a request, if the policy permits a connection to the host and port of its URL. The request must not get
    /// another URL.
    pub fn request(&self, method: Method, url: &SafeUrl) -> Result<RequestBuilder, RequestError> {
        let client = &self.0;
        check_url(url.expose(), &client.outbound)
            .map_err(|error| RequestError::new(RequestErrorCause::NotPermitted, error.to_string()))?;
        let port = url.expose().port_or_known_default().unwrap_or_default();
        let library_client = client
            .for_port(port)
            .map_err(|error| RequestError::new(RequestErrorCause::NotConnected, error.to_string()))?;
        Ok(library_client.request(method, url.expose().clone()))
    }
}

impl SharedClient {
    /// Returns the client of the library for URLs with this port.
    fn for_port(&self, port: u16) -> Result<reqwest::Client, ClientError> {
        let key = if self.outbound.is_air_gapped() { port } else { 0 };
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(&key) {
            return Ok(client.clone());
        }
        let client = self.build(port)?;
        if clients.len() >= MAX_CLIENTS {
            clients.clear();
        }
        clients.insert(key, client.clone());
        Ok(client)
    }

    fn build(&self, port: u16) -> Result<reqwest::Client, ClientError> {
        #[allow(clippy::disallowed_methods)] // requests and the resolver apply the policy
        let builder = reqwest::Client::builder();
        let builder = if self.uses_proxies { builder } else { builder.no_proxy() };
        let builder = if self.outbound.is_air_gapped() {
            builder.dns_resolver(PolicyResolver { policy: self.outbound.clone(), port })
        } else {
            builder
        };
        builder
            .tls_backend_preconfigured(self.tls.clone())
            // Responses carry the server's certificate, so that its expiry can be reported.
            .tls_info(true)
            .redirect(Policy::none())
            .referer(false)
            .connect_timeout(self.connect_timeout)
            .user_agent(concat!("docwharf/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| ClientError::Build(error.without_url().to_string()))
    }
}

/// Upper bound of the size of a file of root certificates in bytes.
const MAX_CA_FILE_BYTES: u64 = 16 << 20;

fn load_root_certificates(ca_file: Option<&Path>) -> Result<RootCertStore, ClientError> {
    let mut roots = RootCertStore::empty();
    // Reads SSL_CERT_FILE and SSL_CERT_DIR before the system's own locations.
    let native = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(native.certs);
    for error in native.errors {
        // A container may have no root certificates and need none. If they are needed, the message of the TLS error
        // names the setting.
        tracing::debug!("cannot read root certificates: {error}");
    }
    if let Some(path) = ca_file {
        let text = regular_file::read(path, MAX_CA_FILE_BYTES)
            .map_err(|source| ClientError::Read { path: path.to_owned(), source })?;
        let certificates: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(&text).filter_map(Result::ok).collect();
        let (usable, _) = roots.add_parsable_certificates(certificates);
        if usable == 0 {
            return Err(ClientError::NoCertificate { path: path.to_owned() });
        }
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::model::deployment::AllowedAddress;

    #[test]
    fn http_client_sends_its_user_agent_and_follows_no_redirects() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/first", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(&stream).lines().map(Result::unwrap);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            stream.write_all(b"HTTP/1.1 302 Found\r\nlocation: /second\r\ncontent-length: 0\r\n\r\n").unwrap();
            head
        });
        let client = build_client(&NetworkSettings { ignore_proxies: true, ..NetworkSettings::default() }).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let url = SafeUrl::parse(&url).unwrap();
        let response = runtime.block_on(client.request(Method::GET, &url).unwrap().send()).unwrap();
        assert_eq!((response.status().as_u16(), response.url().path()), (302, "/first"));
        let head = server.join().unwrap();
        assert_eq!(head[0], "GET /first HTTP/1.1");
        assert!(head.contains(&format!("user-agent: docwharf/{}", env!("CARGO_PKG_VERSION"))), "{head:?}");
    }

    fn air_gapped(allow: &[&str]) -> NetworkSettings {
        let allow = allow.iter().map(|text| AllowedAddress::parse(text).unwrap()).collect();
        NetworkSettings { outbound: OutboundPolicy::AirGapped { allow }, ..NetworkSettings::default() }
    }

    #[test]
    fn an_air_gapped_client_creates_requests_to_permitted_addresses_only() {
        let client = build_client(&air_gapped(&["192.0.2.7:443"])).unwrap();
        let request = |url: &str| client.request(Method::GET, &SafeUrl::parse(url).unwrap());
        for permitted in ["http://127.0.0.1:8080/x", "https://192.0.2.7/", "http://localhost/", "http://[::1]:9/"] {
            assert!(request(permitted).is_ok(), "{permitted}");
        }
        for refused in ["http://192.0.2.7/", "https://192.0.2.8/", "https://docwharf.invalid/"] {
            let error = request(refused).unwrap_err();
            assert_eq!(error.cause, RequestErrorCause::NotPermitted, "{refused}");
            assert!(error.to_string().contains("deployment.type is \"air-gapped\""), "{error}");
        }
        // The policy refuses in the resolver, too: it does not depend on the check of the URL.
        let library_client = client.0.for_port(80).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let error = runtime.block_on(library_client.get("http://docwharf.invalid/").send()).unwrap_err();
        let error = crate::error_chain::ErrorChain(&error).to_string();
        assert!(error.contains("docwharf.invalid is not there"), "{error}");
    }

    #[test]
    fn an_air_gapped_client_finds_localhost_without_a_name_server_and_uses_few_clients() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(&stream).lines().map(Result::unwrap);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
            head
        });
        let client = build_client(&air_gapped(&[])).unwrap();
        let url = SafeUrl::parse(&format!("http://api.localhost:{port}/")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let response = runtime.block_on(client.request(Method::GET, &url).unwrap().send()).unwrap();
        assert_eq!(response.status().as_u16(), 204);
        assert!(server.join().unwrap().contains(&format!("host: api.localhost:{port}")));
        for port in 1..100 {
            let url = SafeUrl::parse(&format!("http://127.0.0.1:{port}/")).unwrap();
            assert!(client.request(Method::GET, &url).is_ok());
            assert!(client.0.clients.lock().len() <= MAX_CLIENTS);
        }
    }
}
