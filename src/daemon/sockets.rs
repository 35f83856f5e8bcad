//! Sockets that somebody has opened for us and holds while we restart (`LISTEN_FDS`, as systemd passes them).

use std::io;
use std::net::TcpListener;

use listenfd::ListenFd;
use socket2::SockRef;

use super::DaemonError;

/// The sockets by what they are for.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// For the site: named `http`, not named at all, or after the socket unit, as systemd does it by itself.
    pub(super) public: Vec<TcpListener>,
    /// For the site, encrypted: named `https`.
    pub(super) tls: Vec<TcpListener>,
    /// For the admin side: named `admin`.
    pub(super) admin: Vec<TcpListener>,
    /// For the version that waits to become active: named `staged`.
    pub(super) staged: Vec<TcpListener>,
}

/// What a name says about a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Public,
    Tls,
    Admin,
    Staged,
}

impl Use {
    fn of(name: &str) -> Result<Use, io::Error> {
        match name {
            "admin" => Ok(Use::Admin),
            "staged" => Ok(Use::Staged),
            "https" => Ok(Use::Tls),
            "" | "http" | "unknown" => Ok(Use::Public),
            unit if unit.ends_with(".socket") => Ok(Use::Public),
            _ => Err(io::Error::other(
                "nothing is known by this name; set FileDescriptorName= to http, https, admin or staged",
            )),
        }
    }
}

/// Takes what was passed to this process. To be called before there are threads: it changes the environment, so that no
/// other program takes the sockets for its own.
pub(super) fn passed() -> Result<Passed, DaemonError> {
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut descriptors = ListenFd::from_env();
    let mut passed = Passed::default();
    for at in 0..descriptors.len() {
        let name = names.next().unwrap_or_default();
        let wrong = |source| DaemonError::Passed { descriptor: FIRST + at, name: name.to_owned(), source };
        let purpose = Use::of(name).map_err(wrong)?;
        let taken = descriptors.take_tcp_listener(at).and_then(|listener| listener.ok_or_else(not_listening));
        let listener = taken.and_then(ready).map_err(wrong)?;
        match purpose {
            Use::Public => passed.public.push(listener),
            Use::Tls => passed.tls.push(listener),
            Use::Admin => passed.admin.push(listener),
            Use::Staged => passed.staged.push(listener),
        }
    }
    Ok(passed)
}

/// The first descriptor that is passed (`SD_LISTEN_FDS_START`).
const FIRST: usize = 3;

fn not_listening() -> io::Error {
    io::Error::other("it is no listening TCP socket; the socket unit needs ListenStream= with a port, and Accept=no")
}

/// Makes it like those that we open ourselves.
fn ready(listener: TcpListener) -> io::Result<TcpListener> {
    let socket = SockRef::from(&listener);
    if !socket.is_listener()? {
        return Err(not_listening());
    }
    socket.set_tcp_nodelay(true)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_for_readers_unless_its_name_says_admin_and_encrypted_if_it_says_https() {
        for public in ["", "http", "unknown", "docwharf.socket", "docwharf-docs.socket"] {
            assert_eq!(Use::of(public).unwrap(), Use::Public, "{public:?}");
        }
        assert_eq!(Use::of("admin").unwrap(), Use::Admin);
        assert_eq!(Use::of("https").unwrap(), Use::Tls);
        assert_eq!(Use::of("staged").unwrap(), Use::Staged);
        for wrong in ["HTTPS", "Admin", "connection", "stored", "metrics"] {
            assert!(Use::of(wrong).unwrap_err().to_string().contains("FileDescriptorName"), "{wrong}");
        }
    }
}
