//! The reason why the daemon ended without a stop signal.

use std::io;
use std::path::PathBuf;

use crate::config::checked::{SET_SOURCE_ADVICE, create_config_advice, nothing_to_serve_message};
use docwharf_agent::store::StoreError;
use docwharf_agent::sync::SyncError;
use docwharf_serve::key_pair::KeyPairError;
use docwharf_serve::listener::RESERVED_DESCRIPTORS;

/// The reason why the daemon ended without a stop signal.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Listening on an address failed.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address.
        address: std::net::SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] KeyPairError),
    /// A socket named `https` was passed, but there is no certificate.
    #[error(
        "a socket named https was passed, and there is no certificate: set tls.certFile and tls.keyFile, or pass the credentials tls-cert and tls-key"
    )]
    NoCertificate,
    /// No listener is configured, and no socket was passed.
    #[error(
        "there is no address to serve on: server.listen and tls.listen are empty, and no socket was passed; set one of them, or use --no-serve"
    )]
    NoListener,
    /// The access log cannot be opened.
    #[error("cannot open the access log {}", path.display())]
    Log {
        /// The path of the log.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A passed socket cannot be used.
    #[error("cannot serve on descriptor {descriptor}, which was passed under the name {name:?}")]
    Passed {
        /// The number of the descriptor.
        descriptor: usize,
        /// The name in `LISTEN_FDNAMES`; empty if there is none.
        name: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The async runtime or a signal handler cannot be created.
    #[error("cannot start serving")]
    Start(#[source] io::Error),
    /// The process may open so few files that it could neither read its store nor accept connections. Contains the
    /// allowed number.
    #[error("cannot start serving: a process may open only {0} files here, and {min} are needed; raise LimitNOFILE= of the unit, or ulimit -n", min = RESERVED_DESCRIPTORS)]
    TooFewFiles(u64),
    /// A store operation failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store is empty, and no source is configured.
    #[error(
        "{}; {}{SET_SOURCE_ADVICE}",
        nothing_to_serve_message(store),
        missing_config.as_deref().map(create_config_advice).unwrap_or_default()
    )]
    NothingToServe {
        /// The path of the store.
        store: PathBuf,
        /// The path of the configuration file, if it is missing.
        missing_config: Option<PathBuf>,
    },
    /// The store is empty, and the first sync failed because something that the configuration names is missing.
    #[error(transparent)]
    FirstSync(SyncError),
    /// The server or a thread of the daemon ended unexpectedly.
    #[error("a part of the daemon ended unexpectedly")]
    EndedUnexpectedly(#[source] io::Error),
}
