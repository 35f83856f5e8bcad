//! Listening sockets that the service manager passes to this process and keeps open while it restarts (`LISTEN_FDS`,
//! `sd_listen_fds(3)`): those of socket units (socket activation), and those that an earlier process has bound and
//! stored there (`FDSTORE=1`, `sd_pid_notify_with_fds(3)`).

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};

use listenfd::ListenFd;
use socket2::SockRef;

use super::error::DaemonError;

/// The passed sockets by their purpose.
#[derive(Debug, Default)]
pub(super) struct PassedSockets {
    /// Sockets of the site: named `http`, without a name, or named after the socket unit, which is systemd's default.
    pub(super) public: Vec<TcpListener>,
    /// Sockets of the site with TLS: named `https`.
    pub(super) tls: Vec<TcpListener>,
    /// Sockets of the admin routes: named `admin`.
    pub(super) admin: Vec<TcpListener>,
    /// Sockets of the version that waits to become active: named `staged`.
    pub(super) waiting: Vec<TcpListener>,
    /// Sockets that an earlier process has bound to configured addresses and stored: named [`STORED_SOCKET`].
    pub(super) stored: StoredSockets,
}

/// The name under which this program stores its sockets in the service manager.
pub(super) const STORED_SOCKET: &str = "docwharf-listener";

/// Sockets that an earlier process has bound and stored in the service manager.
#[derive(Debug, Default)]
pub(super) struct StoredSockets(Vec<TcpListener>);

impl StoredSockets {
    /// Ends the sockets whose address is in none of the lists: the configuration has changed. Closing them would not be
    /// enough, because the service manager has them, too, and a socket that listens on `127.0.0.1:80` lets no other one
    /// be bound to `0.0.0.0:80`.
    pub(super) fn end_all_but(&mut self, configured: &[&[SocketAddr]]) {
        self.0.retain(|socket| {
            let is_configured = socket.local_addr().is_ok_and(|own| configured.concat().contains(&own));
            if !is_configured {
                let _ = SockRef::from(socket).shutdown(Shutdown::Both);
            }
            is_configured
        });
    }

    /// Takes the socket that listens on this address.
    pub(super) fn take(&mut self, address: SocketAddr) -> Option<TcpListener> {
        let index = self.0.iter().position(|socket| socket.local_addr().is_ok_and(|own| own == address))?;
        Some(self.0.swap_remove(index))
    }
}

/// The purpose of a socket, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SocketPurpose {
    Public,
    Tls,
    Admin,
    WaitingVersion,
    Stored,
}

impl SocketPurpose {
    fn from_name(name: &str) -> Result<SocketPurpose, io::Error> {
        match name {
            "admin" => Ok(SocketPurpose::Admin),
            "staged" => Ok(SocketPurpose::WaitingVersion),
            "https" => Ok(SocketPurpose::Tls),
            STORED_SOCKET => Ok(SocketPurpose::Stored),
            "" | "http" | "unknown" => Ok(SocketPurpose::Public),
            unit if unit.ends_with(".socket") => Ok(SocketPurpose::Public),
            _ => {
                Err(io::Error::other("this name is not known; set FileDescriptorName= to http, https, admin or staged"))
            }
        }
    }
}

/// Takes the sockets that were passed to this process. Must be called before any thread is started: it changes the
/// environment, so that no child process uses the sockets as its own.
pub(super) fn take_passed_sockets() -> Result<PassedSockets, DaemonError> {
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut descriptors = ListenFd::from_env();
    let mut passed = PassedSockets::default();
    for i in 0..descriptors.len() {
        let name = names.next().unwrap_or_default();
        let passed_error =
            |source| DaemonError::Passed { descriptor: FIRST_PASSED_DESCRIPTOR + i, name: name.to_owned(), source };
        let purpose = SocketPurpose::from_name(name).map_err(passed_error)?;
        let listener = descriptors.take_tcp_listener(i).and_then(|listener| listener.ok_or_else(not_listening_error));
        let listener = listener.and_then(prepare_socket);
        if purpose == SocketPurpose::Stored {
            // One that cannot be used is bound again.
            passed.stored.0.extend(listener.ok());
            continue;
        }
        let listener = listener.map_err(passed_error)?;
        match purpose {
            SocketPurpose::Public => passed.public.push(listener),
            SocketPurpose::Tls => passed.tls.push(listener),
            SocketPurpose::Admin => passed.admin.push(listener),
            SocketPurpose::WaitingVersion => passed.waiting.push(listener),
            SocketPurpose::Stored => {}
        }
    }
    Ok(passed)
}

/// The number of the first passed descriptor (`SD_LISTEN_FDS_START`).
const FIRST_PASSED_DESCRIPTOR: usize = 3;

fn not_listening_error() -> io::Error {
    io::Error::other("it is not a listening TCP socket; the socket unit needs ListenStream= with a port, and Accept=no")
}

/// Sets the options that sockets opened by docwharf have. It is an error if the socket does not listen.
fn prepare_socket(listener: TcpListener) -> io::Result<TcpListener> {
    let socket = SockRef::from(&listener);
    if !socket.is_listener()? {
        return Err(not_listening_error());
    }
    socket.set_tcp_nodelay(true)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_socket_is_public_unless_its_name_is_admin_https_or_staged() {
        for public in ["", "http", "unknown", "docwharf.socket", "docwharf-docs.socket"] {
            assert_eq!(SocketPurpose::from_name(public).unwrap(), SocketPurpose::Public, "{public:?}");
        }
        assert_eq!(SocketPurpose::from_name("admin").unwrap(), SocketPurpose::Admin);
        assert_eq!(SocketPurpose::from_name("https").unwrap(), SocketPurpose::Tls);
        assert_eq!(SocketPurpose::from_name("staged").unwrap(), SocketPurpose::WaitingVersion);
        assert_eq!(SocketPurpose::from_name("docwharf-listener").unwrap(), SocketPurpose::Stored);
        for wrong in ["HTTPS", "Admin", "connection", "stored", "metrics"] {
            assert!(SocketPurpose::from_name(wrong).unwrap_err().to_string().contains("FileDescriptorName"), "{wrong}");
        }
    }

    #[test]
    fn a_stored_socket_of_another_address_ends_also_where_a_copy_of_it_is_open() {
        let (kept, other) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let (kept_address, other_address) = (kept.local_addr().unwrap(), other.local_addr().unwrap());
        let _copy_of_the_manager = other.try_clone().unwrap();
        let mut stored = StoredSockets(vec![other, kept]);
        stored.end_all_but(&[&[], &[kept_address]]);
        let wildcard = SocketAddr::from(([0, 0, 0, 0], other_address.port()));
        docwharf_serve::listener::bind(wildcard).expect("the port is free");
        assert!(stored.take(other_address).is_none());
        assert!(stored.take(kept_address).is_some());
        assert!(stored.take(kept_address).is_none(), "it is taken once");
    }
}
