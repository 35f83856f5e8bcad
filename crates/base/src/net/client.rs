//! The HTTP client: proxies from the environment, roots from the system, `SSL_CERT_FILE` and `api.caFile`, no redirects.
//!
//! A client is made for each sync, so that a certificate that was exchanged meanwhile counts from the next one on.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use reqwest::redirect::Policy;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::regular;

use super::Network;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The file of root certificates is not there or not readable.
    #[error("cannot read {} (api.caFile)", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It holds no certificate.
    #[error("{} (api.caFile) holds no PEM certificate that can be used; it should begin with -----BEGIN CERTIFICATE-----", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// The library refuses.
    #[error("cannot set up the HTTP client: {0}")]
    Build(String),
}

/// Builds a client. Redirects are followed by whoever knows what may go along.
pub fn client(network: &Network) -> Result<reqwest::Client, ClientError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ClientError::Build(error.to_string()))?
        .with_root_certificates(roots(network.ca_file.as_deref())?)
        .with_no_client_auth();
    let builder = reqwest::Client::builder();
    // What everybody else takes for "none at all" the library takes for a name.
    let none = ["NO_PROXY", "no_proxy"].iter().any(|name| std::env::var(name).is_ok_and(|list| list.trim() == "*"));
    let builder = if network.direct || none { builder.no_proxy() } else { builder };
    builder
        .tls_backend_preconfigured(tls)
        // Answers carry the server's certificate, so that its end can be told of.
        .tls_info(true)
        .redirect(Policy::none())
        .referer(false)
        .connect_timeout(network.connect)
        .user_agent(concat!("docwharf/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| ClientError::Build(error.without_url().to_string()))
}

/// No file of root certificates is larger, in bytes.
const LARGEST: u64 = 16 << 20;

fn roots(more: Option<&Path>) -> Result<RootCertStore, ClientError> {
    let mut roots = RootCertStore::empty();
    // Reads SSL_CERT_FILE and SSL_CERT_DIR before the system's own places.
    let native = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(native.certs);
    for error in native.errors {
        // A container may have none and need none; if they are needed, the refusal of TLS says what to do.
        tracing::debug!("cannot read root certificates: {error}");
    }
    if let Some(path) = more {
        let text =
            regular::read(path, LARGEST).map_err(|source| ClientError::Read { path: path.to_owned(), source })?;
        let given: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(&text).filter_map(Result::ok).collect();
        let (used, _) = roots.add_parsable_certificates(given);
        if used == 0 {
            return Err(ClientError::NoCertificate { path: path.to_owned() });
        }
    }
    Ok(roots)
}
