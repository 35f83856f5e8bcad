//! A TLS certificate and its private key: reads them, and verifies that they belong together before they are used.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::ring;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ResolvesServerCert;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{Error, InconsistentKeys, ServerConfig};

use docwharf_base::clock::format_system_time;
use docwharf_base::net::certificate;
use docwharf_base::regular_file;

/// The largest certificate or key file in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The paths of a certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPairFiles {
    /// The certificate chain in PEM: the server's own certificate first.
    pub certificate: PathBuf,
    /// The private key in PEM, not encrypted.
    pub key: PathBuf,
}

/// The reason why a certificate and key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyPairError {
    /// A file is missing or cannot be read.
    #[error("cannot read {} for TLS", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the read.
        #[source]
        source: io::Error,
    },
    /// The certificate file has no PEM certificate.
    #[error("there is no certificate in {}: it should be PEM, beginning with -----BEGIN CERTIFICATE-----{likely_mistake}", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
        /// The likely mistake, or an empty string.
        likely_mistake: &'static str,
    },
    /// A PEM block is truncated or damaged.
    #[error("{} is damaged: {why}; copy it again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The message of the PEM reader.
        why: String,
    },
    /// A PEM block is labelled as a certificate but cannot be parsed as one.
    #[error("certificate {number} in {} cannot be read; have it issued again, or copy it again", path.display())]
    InvalidCertificate {
        /// The file.
        path: PathBuf,
        /// The position of the certificate in the file, from 1.
        number: usize,
    },
    /// The certificates are not in the order of their issuers.
    #[error("the certificates in {} are in the wrong order: the server's own comes first, then the one that has signed it, and so on", path.display())]
    Order {
        /// The file.
        path: PathBuf,
    },
    /// The key file has no private key.
    #[error("there is no private key in {}: it should be PEM, with a block like -----BEGIN PRIVATE KEY-----", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// The key is encrypted, and docwharf has no means to enter its passphrase.
    #[error("the key in {} is encrypted, and docwharf cannot ask for its passphrase: decrypt it (openssl pkey -in FILE -out NEW), and let only docwharf read it", path.display())]
    Encrypted {
        /// The file.
        path: PathBuf,
    },
    /// The type or size of the key is not supported.
    #[error("the key in {} cannot be used: RSA of 2048 to 8192 bits, ECDSA on P-256 or P-384, or Ed25519 is needed", path.display())]
    UnsupportedKey {
        /// The file.
        path: PathBuf,
    },
    /// The key does not belong to the certificate.
    #[error("the key in {} does not belong to the certificate in {}: use the key that the certificate was requested with", key.display(), certificate.display())]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// rustls refuses the configuration.
    #[error("cannot set up TLS with {}: {why}", path.display())]
    Rustls {
        /// The certificate's file.
        path: PathBuf,
        /// The message of rustls.
        why: String,
    },
}

/// The validity of a certificate at a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateValidity {
    /// The certificate is valid.
    Valid,
    /// The certificate is not valid yet.
    NotYet,
    /// The certificate has expired.
    Expired,
}

/// A certificate and key that belong together, and the TLS configuration made from them.
#[derive(Debug)]
pub struct KeyPair {
    /// Offers HTTP/2 and HTTP/1.1.
    pub(super) config: Arc<ServerConfig>,
    /// Offers HTTP/1.1 only.
    pub(super) http1_config: Arc<ServerConfig>,
    /// The certificates that are sent; the server's own first.
    chain: Vec<CertificateDer<'static>>,
    /// The start of the certificate's validity (`notBefore`).
    pub not_before: SystemTime,
    /// The end of the certificate's validity (`notAfter`).
    pub not_after: SystemTime,
}

impl KeyPair {
    /// Reads both files and verifies that they belong together. Does not check the dates: see [`KeyPair::validity`].
    pub fn load(files: &KeyPairFiles) -> Result<KeyPair, KeyPairError> {
        let chain = read_chain(&files.certificate)?;
        let key = read_key(&files.key)?;
        let unsupported_key = |_| KeyPairError::UnsupportedKey { path: files.key.clone() };
        let key = ring::sign::any_supported_type(&key).map_err(unsupported_key)?;
        let dates = certificate::parse_certificate(&chain[0])
            .map(|first| (first.not_before, first.not_after))
            .ok_or_else(|| KeyPairError::InvalidCertificate { path: files.certificate.clone(), number: 1 })?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            Ok(()) => {}
            Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                return Err(mismatch_error(files, &certified));
            }
            Err(_) => return Err(KeyPairError::InvalidCertificate { path: files.certificate.clone(), number: 1 }),
        }
        check_order(&files.certificate, &certified.cert)?;
        let chain = certified.cert.clone();
        let config = configure(SingleCertAndKey::from(certified))
            .map_err(|error| KeyPairError::Rustls { path: files.certificate.clone(), why: error.to_string() })?;
        let mut http1_config = config.clone();
        http1_config.alpn_protocols = vec![HTTP1_PROTOCOL.to_vec()];
        let (config, http1_config) = (Arc::new(config), Arc::new(http1_config));
        Ok(KeyPair { config, http1_config, chain, not_before: dates.0, not_after: dates.1 })
    }

    /// Returns whether both have the same certificates. The key is not compared: it belongs to the certificate.
    pub(super) fn has_same_certificates(&self, other: &KeyPair) -> bool {
        self.chain == other.chain
    }

    /// Returns whether the certificate is valid at this time.
    pub fn validity(&self, now: SystemTime) -> CertificateValidity {
        match (now < self.not_before, now > self.not_after) {
            (true, _) => CertificateValidity::NotYet,
            (_, true) => CertificateValidity::Expired,
            _ => CertificateValidity::Valid,
        }
    }

    /// Describes on one line why the certificate is not valid at this time; `None` if it is valid. Browsers refuse a
    /// certificate outside its dates.
    pub fn date_problem(&self, now: SystemTime) -> Option<String> {
        match self.validity(now) {
            CertificateValidity::Valid => None,
            CertificateValidity::NotYet => {
                let begin = format_system_time(self.not_before);
                Some(format!("the TLS certificate is not valid before {begin}: check this machine's clock, or wait"))
            }
            CertificateValidity::Expired => Some(format!(
                "the TLS certificate expired on {}: replace it by a renewed one",
                format_system_time(self.not_after)
            )),
        }
    }
}

/// The name of HTTP/1.1 in ALPN (RFC 7301, section 6).
const HTTP1_PROTOCOL: &[u8] = b"http/1.1";

fn configure(resolver: impl ResolvesServerCert + 'static) -> Result<ServerConfig, Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![b"h2".to_vec(), HTTP1_PROTOCOL.to_vec()];
    // Session tickets resume sessions without state for each client.
    config.ticketer = ring::Ticketer::new()?;
    Ok(config)
}

fn read(path: &Path) -> Result<Vec<u8>, KeyPairError> {
    regular_file::read(path, MAX_FILE_BYTES).map_err(|source| KeyPairError::Read { path: path.to_owned(), source })
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, KeyPairError> {
    let text = read(path)?;
    let chain = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| KeyPairError::Damaged { path: path.to_owned(), why: error.to_string() })?;
    if chain.is_empty() {
        let likely_mistake = match text.first() {
            Some(0x30) => "; this looks like DER: openssl x509 -inform der -in FILE -out NEW turns it into PEM",
            _ if contains(&text, b"PRIVATE KEY-----") => "; it holds a private key: are the two files exchanged?",
            None => "; it is empty",
            Some(_) => "",
        };
        return Err(KeyPairError::NoCertificate { path: path.to_owned(), likely_mistake });
    }
    Ok(chain)
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, KeyPairError> {
    let text = read(path)?;
    if contains(&text, b"BEGIN ENCRYPTED PRIVATE KEY") || contains(&text, b"Proc-Type: 4,ENCRYPTED") {
        return Err(KeyPairError::Encrypted { path: path.to_owned() });
    }
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        PemError::NoItemsFound => KeyPairError::NoKey { path: path.to_owned() },
        // The message of the PEM reader may quote its input, which is secret here.
        _ => KeyPairError::Damaged { path: path.to_owned(), why: "its PEM cannot be read".to_owned() },
    })
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Returns the error for a key that does not belong to the first certificate: it may belong to another one in the file,
/// which is then in the wrong order.
fn mismatch_error(files: &KeyPairFiles, pair: &CertifiedKey) -> KeyPairError {
    let belongs = |certificate: &CertificateDer<'static>| {
        CertifiedKey::new(vec![certificate.clone()], Arc::clone(&pair.key)).keys_match().is_ok()
    };
    if pair.cert.iter().skip(1).any(belongs) {
        return KeyPairError::Order { path: files.certificate.clone() };
    }
    KeyPairError::Mismatch { certificate: files.certificate.clone(), key: files.key.clone() }
}

/// Checks that each certificate is followed by its issuer, if the issuer is in the file.
fn check_order(path: &Path, chain: &[CertificateDer<'static>]) -> Result<(), KeyPairError> {
    let mut names = Vec::with_capacity(chain.len());
    for (index, der) in chain.iter().enumerate() {
        let invalid_certificate = || KeyPairError::InvalidCertificate { path: path.to_owned(), number: index + 1 };
        let certificate = certificate::parse_certificate(der).ok_or_else(invalid_certificate)?;
        names.push((certificate.subject, certificate.issuer));
    }
    for (index, (subject, issuer)) in names.iter().enumerate() {
        let is_root = subject == issuer;
        let follows = names.get(index + 1).is_some_and(|(next, _)| next == issuer);
        let is_elsewhere = names.iter().any(|(name, _)| name == issuer);
        if !is_root && !follows && is_elsewhere {
            return Err(KeyPairError::Order { path: path.to_owned() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::server::ResolvesServerCertUsingSni;

    use super::*;

    #[test]
    fn a_certificate_is_valid_from_its_first_to_its_last_second() {
        let config = Arc::new(configure(ResolvesServerCertUsingSni::new()).unwrap());
        let at = |second| SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        let http1_config = Arc::clone(&config);
        let pair = KeyPair { config, http1_config, chain: Vec::new(), not_before: at(100), not_after: at(200) };
        for (second, expected, problem) in [
            (99, CertificateValidity::NotYet, "is not valid before 1970-01-01T00:01:40Z"),
            (100, CertificateValidity::Valid, ""),
            (200, CertificateValidity::Valid, ""),
            (201, CertificateValidity::Expired, "expired on 1970-01-01T00:03:20Z"),
        ] {
            assert_eq!(pair.validity(at(second)), expected, "{second}");
            let date_problem = pair.date_problem(at(second)).unwrap_or_default();
            assert!(date_problem.contains(problem) && date_problem.is_empty() == problem.is_empty(), "{date_problem}");
        }
    }
}
