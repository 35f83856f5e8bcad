//! A private authority, an upstream that speaks TLS under a certificate of it, and a client that trusts it.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::http::{Response, exchange};
use crate::upstream::{Upstream, Wire, Wrap};

/// An authority that no system knows.
#[must_use]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, PEM.
#[derive(Clone)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

impl Default for Authority {
    fn default() -> Authority {
        Authority::new()
    }
}

impl Authority {
    /// A new authority with a key of its own.
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "docwharf test authority");
        let key = KeyPair::generate().expect("randomness");
        Authority { issuer: CertifiedIssuer::self_signed(params, key).expect("a certificate") }
    }

    /// Its root, as `api.caFile` wants it.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// An open upstream over TLS with a certificate for this name.
    pub fn upstream(&self, name: &str, bundle: Vec<u8>) -> Upstream {
        let upstream = Upstream::build(bundle, "https", self.wrap(&[name]));
        upstream.open();
        upstream
    }

    /// An open upstream over TLS whose certificate for this name ends in so long.
    pub fn upstream_ending_in(&self, name: &str, bundle: Vec<u8>, left: Duration) -> Upstream {
        let upstream = Upstream::build(bundle, "https", serve_as(&self.issue_ending_in(&[name], left)));
        upstream.open();
        upstream
    }

    /// The server's side of TLS, with a certificate for these names.
    pub fn wrap(&self, names: &[&str]) -> Wrap {
        serve_as(&self.issue(names))
    }

    /// A certificate for these names, that counts today.
    pub fn issue(&self, names: &[&str]) -> Issued {
        self.issue_between(names, 2020, 2100)
    }

    /// A certificate for these names, from the first day of one year to that of another.
    pub fn issue_between(&self, names: &[&str], from: i32, to: i32) -> Issued {
        self.sign(names, |params| {
            params.not_before = date_time_ymd(from, 1, 1);
            params.not_after = date_time_ymd(to, 1, 1);
        })
    }

    /// A certificate for these names that counts today and ends in so long.
    pub fn issue_ending_in(&self, names: &[&str], left: Duration) -> Issued {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970");
        self.sign(names, |params| {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(1970, 1, 1) + now + left;
        })
    }

    fn sign(&self, names: &[&str], set_dates: impl FnOnce(&mut CertificateParams)) -> Issued {
        let key = KeyPair::generate().expect("randomness");
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names.clone()).expect("names");
        set_dates(&mut params);
        params.distinguished_name.push(rcgen::DnType::CommonName, names.concat());
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Issued { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// An authority below this one.
    pub fn below(&self, name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().expect("randomness");
        Authority { issuer: CertifiedIssuer::signed_by(params, key, &self.issuer).expect("a certificate") }
    }

    /// A client that trusts this authority alone and offers these protocols.
    pub fn client(&self, protocols: &[&str]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has them")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

/// The server's side of TLS with this certificate.
fn serve_as(pair: &Issued) -> Wrap {
    let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("key and certificate belong together");
    let config = Arc::new(config);
    Arc::new(move |stream| {
        let connection = ServerConnection::new(Arc::clone(&config)).ok()?;
        Some(Box::new(StreamOwned::new(connection, stream)) as Box<dyn Wire>)
    })
}

/// An encrypted connection as a client has it.
pub type Secure = StreamOwned<ClientConnection, TcpStream>;

/// Connects and agrees. The certificate must be for `name`.
pub fn shake(address: &str, config: &Arc<ClientConfig>, name: &str) -> io::Result<Secure> {
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

/// The certificate that the server has sent as its own.
pub fn certificate_of(stream: &Secure) -> CertificateDer<'static> {
    stream.conn.peer_certificates().expect("a server has one")[0].clone()
}

/// One request on a connection of its own. `headers` are whole lines without line ends.
pub fn secure_get(address: &str, config: &Arc<ClientConfig>, name: &str, target: &str, headers: &[&str]) -> Response {
    let stream = shake(address, config, name).expect("a handshake");
    let mut head = format!("GET {target} HTTP/1.1\r\nHost: {name}\r\n");
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    exchange(stream, head.as_bytes(), false)
}
