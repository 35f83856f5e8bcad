//! Construction of the HTTP client: proxies from the environment; root certificates from the system, or from
//! `SSL_CERT_FILE` and `SSL_CERT_DIR` instead, and from `api.caFile` in addition; no automatic redirects.
//!
//! Each sync builds a new client, so that the next sync uses a replaced root certificate.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use reqwest::redirect::Policy;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::regular_file;

use super::NetworkSettings;

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

/// Builds a client. It follows no redirects: [`super::redirects`] does, with a policy that decides whether a key may be
/// sent to the target.
pub fn build_client(network: &NetworkSettings) -> Result<reqwest::Client, ClientError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ClientError::Build(error.to_string()))?
        .with_root_certificates(load_root_certificates(network.ca_file.as_deref())?)
        .with_no_client_auth();
    let builder = reqwest::Client::builder();
    // Other programs read `*` as "no proxy for any host"; the library treats it as a host name.
    let disables_proxies =
        ["NO_PROXY", "no_proxy"].iter().any(|name| std::env::var(name).is_ok_and(|list| list.trim() == "*"));
    let builder = if network.ignore_proxies || disables_proxies { builder.no_proxy() } else { builder };
    builder
        .tls_backend_preconfigured(tls)
        // Responses carry the server's certificate, so that its expiry can be reported.
        .tls_info(true)
        .redirect(Policy::none())
        .referer(false)
        .connect_timeout(network.connect_timeout)
        .user_agent(concat!("docwharf/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| ClientError::Build(error.without_url().to_string()))
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
        let response = runtime.block_on(client.get(url).send()).unwrap();
        assert_eq!((response.status().as_u16(), response.url().path()), (302, "/first"));
        let head = server.join().unwrap();
        assert_eq!(head[0], "GET /first HTTP/1.1");
        assert!(head.contains(&format!("user-agent: docwharf/{}", env!("CARGO_PKG_VERSION"))), "{head:?}");
    }
}
