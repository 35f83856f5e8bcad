//! A private authority, and an upstream that speaks TLS under a certificate of it.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::upstream::{Upstream, Wire};

/// An authority that no system knows.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
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
        let key = KeyPair::generate().expect("randomness");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has them")
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
            )
            .expect("key and certificate belong together");
        let config = Arc::new(config);
        let upstream = Upstream::build(
            bundle,
            "https",
            Arc::new(move |stream| {
                let connection = ServerConnection::new(Arc::clone(&config)).ok()?;
                Some(Box::new(StreamOwned::new(connection, stream)) as Box<dyn Wire>)
            }),
        );
        upstream.open();
        upstream
    }
}
