//! Who is at the other end of a connection, as the socket says.

use std::net::SocketAddr;

/// What every request of a connection carries in its extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its address and port.
    pub address: SocketAddr,
    /// Whether the connection is encrypted by us.
    pub is_encrypted: bool,
}
