//! A private certificate authority, an upstream with a certificate from this authority, and a client that trusts it.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::http::{Response, exchange};
use crate::upstream::{ByteStream, StreamWrapper, Upstream};

/// A private certificate authority, which no system trusts.
#[must_use]
pub struct CertificateAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key in PEM.
#[derive(Clone)]
pub struct IssuedCertificate {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

impl Default for CertificateAuthority {
    fn default() -> CertificateAuthority {
        CertificateAuthority::new()
    }
}

impl CertificateAuthority {
    /// Creates an authority with a new key.
    pub fn new() -> CertificateAuthority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "docwharf test authority");
        let key = KeyPair::generate().expect("randomness");
        CertificateAuthority { issuer: CertifiedIssuer::self_signed(params, key).expect("a certificate") }
    }

    /// Returns the root certificate in PEM, for `api.caFile`.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Starts an upstream over TLS with a certificate for this name.
    pub fn upstream(&self, name: &str, bundle: Vec<u8>) -> Upstream {
        let upstream = Upstream::build(bundle, "https", self.server_stream_wrapper(&[name]));
        upstream.open();
        upstream
    }

    /// Starts an upstream over TLS with a certificate for this name that expires after `lifetime`.
    pub fn upstream_expiring_in(&self, name: &str, bundle: Vec<u8>, lifetime: Duration) -> Upstream {
        let upstream = Upstream::build(bundle, "https", tls_wrapper(&self.issue_expiring_in(&[name], lifetime)));
        upstream.open();
        upstream
    }

    /// Returns a wrapper for the server side of TLS, with a certificate for these names.
    pub fn server_stream_wrapper(&self, names: &[&str]) -> StreamWrapper {
        tls_wrapper(&self.issue(names))
    }

    /// Issues a certificate for these names that is valid today.
    pub fn issue(&self, names: &[&str]) -> IssuedCertificate {
        self.issue_between(names, 2020, 2100)
    }

    /// Issues a certificate for these names that is valid from 1 January of one year to 1 January of another.
    pub fn issue_between(&self, names: &[&str], first_year: i32, last_year: i32) -> IssuedCertificate {
        self.sign(names, |params| {
            params.not_before = date_time_ymd(first_year, 1, 1);
            params.not_after = date_time_ymd(last_year, 1, 1);
        })
    }

    /// Issues a certificate for these names that is valid today and expires after `lifetime`.
    pub fn issue_expiring_in(&self, names: &[&str], lifetime: Duration) -> IssuedCertificate {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970");
        self.sign(names, |params| {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(1970, 1, 1) + now + lifetime;
        })
    }

    fn sign(&self, names: &[&str], set_dates: impl FnOnce(&mut CertificateParams)) -> IssuedCertificate {
        let key = KeyPair::generate().expect("randomness");
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names.clone()).expect("names");
        set_dates(&mut params);
        params.distinguished_name.push(rcgen::DnType::CommonName, names.concat());
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        IssuedCertificate { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// Creates an intermediate authority below this one.
    pub fn intermediate(&self, name: &str) -> CertificateAuthority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().expect("randomness");
        CertificateAuthority { issuer: CertifiedIssuer::signed_by(params, key, &self.issuer).expect("a certificate") }
    }

    /// Creates a client configuration that trusts only this authority and offers these protocols (ALPN).
    pub fn client(&self, protocols: &[&str]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring supports the protocol versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

/// Returns a wrapper for the server side of TLS with this certificate.
fn tls_wrapper(pair: &IssuedCertificate) -> StreamWrapper {
    let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring supports the protocol versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("key and certificate belong together");
    let config = Arc::new(config);
    Arc::new(move |stream| {
        let connection = ServerConnection::new(Arc::clone(&config)).ok()?;
        Some(Box::new(StreamOwned::new(connection, stream)) as Box<dyn ByteStream>)
    })
}

/// The client side of an encrypted connection.
pub type TlsClientStream = StreamOwned<ClientConnection, TcpStream>;

/// Connects and completes the TLS handshake. The certificate must be for `name`.
pub fn tls_handshake(address: &str, config: &Arc<ClientConfig>, name: &str) -> io::Result<TlsClientStream> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(20)))?;
    socket.set_nodelay(true)?;
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let mut connection = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut socket)?;
    }
    Ok(StreamOwned::new(connection, socket))
}

/// Returns the certificate that the server has sent for itself.
pub fn peer_certificate(stream: &TlsClientStream) -> CertificateDer<'static> {
    stream.conn.peer_certificates().expect("a server has one")[0].clone()
}

/// Sends a GET on a new connection. `headers` are complete lines without line ends.
pub fn https_get(address: &str, config: &Arc<ClientConfig>, name: &str, target: &str, headers: &[&str]) -> Response {
    let stream = tls_handshake(address, config, name).expect("a handshake");
    let mut head = format!("GET {target} HTTP/1.1\r\nHost: {name}\r\n");
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    exchange(stream, head.as_bytes(), false)
}
