//! A certificate and its key, proved to belong together before anybody is served under them.

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

use docwharf_base::regular;
use docwharf_base::model::units::show_time;
use docwharf_base::net::certificate;

/// No certificate chain and no key is as large.
const MOST: u64 = 1 << 20;

/// Where a pair is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The certificate, followed by those that lead to its root; PEM.
    pub certificate: PathBuf,
    /// Its key; PEM, not encrypted.
    pub key: PathBuf,
}

/// Why a pair cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// A file is missing or cannot be read.
    #[error("cannot read {} for TLS", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is not PEM, or holds something else.
    #[error("there is no certificate in {}: it should be PEM, beginning with -----BEGIN CERTIFICATE-----{hint}", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
        /// What it is instead, if that is known.
        hint: &'static str,
    },
    /// A PEM block is cut or damaged.
    #[error("{} is damaged: {why}; copy it again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What the reader says.
        why: String,
    },
    /// A block says that it is a certificate, but is none.
    #[error("certificate {number} in {} cannot be read; have it issued again, or copy it again", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Which one, from 1.
        number: usize,
    },
    /// The certificates are in another order than their issuers.
    #[error("the certificates in {} are in the wrong order: the server's own comes first, then the one that has signed it, and so on", path.display())]
    Order {
        /// The file.
        path: PathBuf,
    },
    /// There is none.
    #[error("there is no private key in {}: it should be PEM, with a block like -----BEGIN PRIVATE KEY-----", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// Nobody is there to type its passphrase.
    #[error("the key in {} is encrypted, and there is nobody to ask for its passphrase: decrypt it (openssl pkey -in FILE -out NEW) and keep it readable for docwharf only", path.display())]
    Encrypted {
        /// The file.
        path: PathBuf,
    },
    /// Its kind is not supported.
    #[error("the key in {} cannot be used: RSA of 2048 to 8192 bits, ECDSA on P-256 or P-384, or Ed25519 is needed", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
    },
    /// They do not belong together.
    #[error("the key in {} does not belong to the certificate in {}: give the key that the certificate was requested with", key.display(), certificate.display())]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// The library refuses.
    #[error("cannot set up TLS with {}: {why}", path.display())]
    Library {
        /// The certificate's file.
        path: PathBuf,
        /// What it says.
        why: String,
    },
}

/// Whether a certificate counts today.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It does.
    Valid,
    /// It will.
    NotYet,
    /// It did.
    Ended,
}

/// A pair that can be served under.
#[derive(Debug)]
pub struct Pair {
    pub(super) config: Arc<ServerConfig>,
    /// What is sent, the server's own first.
    chain: Vec<CertificateDer<'static>>,
    /// From when the certificate counts.
    pub begin: SystemTime,
    /// Until when.
    pub end: SystemTime,
}

impl Pair {
    /// Reads both files and proves that they belong together. Dates are not judged: see [`Pair::standing`].
    pub fn load(files: &Files) -> Result<Pair, PairError> {
        let chain = read_chain(&files.certificate)?;
        let key = read_key(&files.key)?;
        let unusable = |_| PairError::Unusable { path: files.key.clone() };
        let key = ring::sign::any_supported_type(&key).map_err(unusable)?;
        let dates = certificate::read(&chain[0])
            .map(|first| (first.begin, first.end))
            .ok_or_else(|| PairError::Unreadable { path: files.certificate.clone(), number: 1 })?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            Ok(()) => {}
            Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => return Err(mismatch(files, &certified)),
            Err(_) => return Err(PairError::Unreadable { path: files.certificate.clone(), number: 1 }),
        }
        check_order(&files.certificate, &certified.cert)?;
        let chain = certified.cert.clone();
        let config = configure(SingleCertAndKey::from(certified))
            .map_err(|error| PairError::Library { path: files.certificate.clone(), why: error.to_string() })?;
        Ok(Pair { config: Arc::new(config), chain, begin: dates.0, end: dates.1 })
    }

    /// Whether both say the same; a key is never another where the certificate is not.
    pub(super) fn is_same(&self, other: &Pair) -> bool {
        self.chain == other.chain
    }

    /// Whether the certificate counts at this time.
    pub fn standing(&self, now: SystemTime) -> Standing {
        match (now < self.begin, now > self.end) {
            (true, _) => Standing::NotYet,
            (_, true) => Standing::Ended,
            _ => Standing::Valid,
        }
    }

    /// What is wrong with its dates, on one line; browsers refuse such a certificate, so it is no small thing.
    pub fn doubt(&self, now: SystemTime) -> Option<String> {
        match self.standing(now) {
            Standing::Valid => None,
            Standing::NotYet => {
                let begin = show_time(self.begin);
                Some(format!("the TLS certificate does not count before {begin}: check this machine's clock, or wait"))
            }
            Standing::Ended => Some(format!(
                "the TLS certificate has ended on {}: put a renewed one in its place",
                show_time(self.end)
            )),
        }
    }
}

fn configure(resolver: impl ResolvesServerCert + 'static) -> Result<ServerConfig, Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Resumption without a memory of ours for each client.
    config.ticketer = ring::Ticketer::new()?;
    Ok(config)
}

fn read(path: &Path) -> Result<Vec<u8>, PairError> {
    regular::read(path, MOST).map_err(|source| PairError::Read { path: path.to_owned(), source })
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, PairError> {
    let text = read(path)?;
    let chain = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| PairError::Damaged { path: path.to_owned(), why: error.to_string() })?;
    if chain.is_empty() {
        let hint = match text.first() {
            Some(0x30) => "; this looks like DER: openssl x509 -inform der -in FILE -out NEW turns it into PEM",
            _ if contains(&text, b"PRIVATE KEY-----") => "; it holds a private key: are the two files exchanged?",
            None => "; it is empty",
            Some(_) => "",
        };
        return Err(PairError::NoCertificate { path: path.to_owned(), hint });
    }
    Ok(chain)
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, PairError> {
    let text = read(path)?;
    if contains(&text, b"BEGIN ENCRYPTED PRIVATE KEY") || contains(&text, b"Proc-Type: 4,ENCRYPTED") {
        return Err(PairError::Encrypted { path: path.to_owned() });
    }
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        PemError::NoItemsFound => PairError::NoKey { path: path.to_owned() },
        // What the reader says may quote what it has read, which is a secret here.
        _ => PairError::Damaged { path: path.to_owned(), why: "its PEM cannot be read".to_owned() },
    })
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// The key does not belong to the first certificate: to another one, perhaps?
fn mismatch(files: &Files, pair: &CertifiedKey) -> PairError {
    let belongs = |certificate: &CertificateDer<'static>| {
        CertifiedKey::new(vec![certificate.clone()], Arc::clone(&pair.key)).keys_match().is_ok()
    };
    if pair.cert.iter().skip(1).any(belongs) {
        return PairError::Order { path: files.certificate.clone() };
    }
    PairError::Mismatch { certificate: files.certificate.clone(), key: files.key.clone() }
}

/// Each is followed by its issuer, if that is there at all.
fn check_order(path: &Path, chain: &[CertificateDer<'static>]) -> Result<(), PairError> {
    let mut names = Vec::with_capacity(chain.len());
    for (at, der) in chain.iter().enumerate() {
        let unreadable = || PairError::Unreadable { path: path.to_owned(), number: at + 1 };
        let certificate = certificate::read(der).ok_or_else(unreadable)?;
        names.push((certificate.subject, certificate.issuer));
    }
    for (at, (subject, issuer)) in names.iter().enumerate() {
        let is_root = subject == issuer;
        let follows = names.get(at + 1).is_some_and(|(next, _)| next == issuer);
        let is_elsewhere = names.iter().any(|(other, _)| other == issuer);
        if !is_root && !follows && is_elsewhere {
            return Err(PairError::Order { path: path.to_owned() });
        }
    }
    Ok(())
}
