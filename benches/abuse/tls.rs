//! Attacks over TLS.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::crypto::cipher::{OutboundChunks, OutboundPlainMessage};
use rustls::crypto::ring::{cipher_suite, default_provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, ConnectionTrafficSecrets, ContentType, ProtocolVersion, RootCertStore,
    SupportedCipherSuite, SupportedProtocolVersion,
};
use tokio::time::timeout;

use crate::attack::{Attack, Listener, Pace, Running, Session, Shared};
use crate::servers::NAME;
use crate::site::{SMALL, big_page};

const fn free(name: &'static str, title: &'static str, connections: usize, run: fn(Session) -> Running) -> Attack {
    Attack { name, title, on: Listener::Tls, connections, pace: Pace::Free, narrow: false, run }
}

const fn half(name: &'static str, title: &'static str, connections: usize, run: fn(Session) -> Running) -> Attack {
    Attack { pace: Pace::Half, ..free(name, title, connections, run) }
}

pub(crate) const ATTACKS: &[Attack] = &[
    half("tls-handshakes", "handshakes", 64, |s| Box::pin(handshakes(s))),
    half("tls-half-handshakes", "handshakes that stop half-way", 1000, |s| Box::pin(half_handshakes(s))),
    half("tls-idle", "handshakes, then nothing", 1000, |s| Box::pin(idle(s))),
    half("tls-idle-4000", "4,000 handshakes, then nothing", 4000, |s| Box::pin(idle(s))),
    free("tls-renegotiation", "TLS 1.2 renegotiation", 16, |s| Box::pin(renegotiation(s))),
    free("tls-small-records", "requests in records of one byte", 16, |s| Box::pin(small_records(s))),
    free("tls-key-updates", "key updates", 16, |s| Box::pin(key_updates(s))),
    Attack { narrow: true, ..half("tls-stalled", "identity pages, readers that stall", 400, |s| Box::pin(stalled(s))) },
];

/// A client that trusts the root in this file, speaks these versions and resumes nothing.
pub(crate) fn client(
    root: &std::path::Path,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(root).map_err(|error| format!("{}: {error}", root.display()))?;
    roots.add(certificate).map_err(|error| error.to_string())?;
    let mut provider = default_provider();
    if versions == [&rustls::version::TLS12] {
        // The one suite whose records `renegotiation` makes.
        provider.cipher_suites = vec![cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256];
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(provider)).with_protocol_versions(versions);
    let mut config = builder.map_err(|error| error.to_string())?.with_root_certificates(roots).with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.enable_secret_extraction = true;
    Ok(config)
}

fn begin(shared: &Shared, versions: &[&'static SupportedProtocolVersion]) -> io::Result<ClientConnection> {
    let config = client(&shared.orders.root, versions).map_err(io::Error::other)?;
    let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
    ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)
}

/// Sends what waits to be sent.
async fn flush(session: &mut Session, tls: &mut ClientConnection) -> io::Result<()> {
    let mut bytes = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut bytes)?;
    }
    session.send(&bytes).await
}

async fn shake(session: &mut Session, versions: &[&'static SupportedProtocolVersion]) -> io::Result<ClientConnection> {
    let mut tls = begin(&session.shared, versions)?;
    loop {
        flush(session, &mut tls).await?;
        if !tls.is_handshaking() {
            return Ok(tls);
        }
        let bytes = session.receive(16 * 1024).await?;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            tls.read_tls(&mut rest)?;
            tls.process_new_packets().map_err(io::Error::other)?;
        }
    }
}

async fn handshakes(mut session: Session) -> io::Result<()> {
    session.shared.units(1).await;
    shake(&mut session, rustls::ALL_VERSIONS).await.map(|_| ())
}

/// Keeps what the server holds for a connection over TLS that has sent no request.
async fn idle(mut session: Session) -> io::Result<()> {
    session.shared.units(1).await;
    let _tls = shake(&mut session, rustls::ALL_VERSIONS).await?;
    session.drain().await
}

async fn half_handshakes(mut session: Session) -> io::Result<()> {
    session.shared.units(1).await;
    let mut hello = Vec::new();
    begin(&session.shared, rustls::ALL_VERSIONS)?.write_tls(&mut hello)?;
    // Every second one does not even finish its first message.
    let length = if session.number.is_multiple_of(2) { hello.len() } else { hello.len() / 2 };
    session.send(&hello[..length]).await?;
    // Then another one takes its place.
    timeout(Duration::from_secs(1), session.drain()).await?
}

/// The length of a record's own head.
const RECORD_HEAD: usize = 5;

/// After a handshake with TLS 1.2, a `ClientHello` in an encrypted record, again and again. rustls does not
/// renegotiate, so the records are made here from the secrets of the connection.
async fn renegotiation(mut session: Session) -> io::Result<()> {
    let versions: &[&'static SupportedProtocolVersion] = &[&rustls::version::TLS12];
    let mut hello = Vec::new();
    begin(&session.shared, versions)?.write_tls(&mut hello)?;
    let secrets = shake(&mut session, versions).await?.dangerous_extract_secrets().map_err(io::Error::other)?;
    let (mut sequence, ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }) = secrets.tx else {
        return Err(io::Error::other("another cipher suite than was offered"));
    };
    let SupportedCipherSuite::Tls12(suite) = cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 else {
        return Err(io::Error::other("the suite is not of TLS 1.2"));
    };
    let mut encrypter = suite.aead_alg.encrypter(key, iv.as_ref(), &[]);
    session
        .flood(|buffer| {
            let message = OutboundPlainMessage {
                typ: ContentType::Handshake,
                version: ProtocolVersion::TLSv1_2,
                payload: OutboundChunks::Single(&hello[RECORD_HEAD..]),
            };
            if let Ok(record) = encrypter.encrypt(message, sequence) {
                buffer.extend(record.encode());
            }
            sequence += 1;
            1
        })
        .await
}

async fn small_records(mut session: Session) -> io::Result<()> {
    let mut tls = shake(&mut session, rustls::ALL_VERSIONS).await?;
    tls.set_buffer_limit(None);
    let request = format!("HEAD {SMALL} HTTP/1.1\r\nHost: {NAME}\r\n\r\n");
    session
        .flood(|buffer| {
            for byte in request.bytes() {
                // Each write is a record.
                let _ = tls.writer().write(&[byte]);
            }
            while tls.wants_write() {
                let _ = tls.write_tls(buffer);
            }
            1
        })
        .await
}

async fn key_updates(mut session: Session) -> io::Result<()> {
    let mut tls = shake(&mut session, &[&rustls::version::TLS13]).await?;
    tls.set_buffer_limit(None);
    session
        .flood(|buffer| {
            for _ in 0..100 {
                let _ = tls.refresh_traffic_keys();
            }
            while tls.wants_write() {
                let _ = tls.write_tls(buffer);
            }
            100
        })
        .await
}

async fn stalled(mut session: Session) -> io::Result<()> {
    session.shared.units(1).await;
    let mut tls = shake(&mut session, rustls::ALL_VERSIONS).await?;
    let path = big_page(session.number);
    write!(tls.writer(), "GET {path} HTTP/1.1\r\nHost: {NAME}\r\n\r\n")?;
    flush(&mut session, &mut tls).await?;
    session.hold().await
}
