//! Options of TCP sockets that no dependency offers. Linux only. [`set_defer_accept`] sets `TCP_DEFER_ACCEPT`: a
//! connection is accepted only when it has data, so a client that sends its request at once costs one wake-up instead
//! of two. [`acknowledged_bytes`] reads how many bytes a peer has acknowledged.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// The operation on an option.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SocketOptionAccess {
    Get,
    Set,
}

/// Makes the kernel hold back connections without data for about `max_wait`; after that they are accepted as well
/// (`TCP_DEFER_ACCEPT`, tcp(7)).
pub fn set_defer_accept(listener: &impl AsFd, max_wait: Duration) -> io::Result<()> {
    let seconds = libc::c_int::try_from(max_wait.as_secs()).unwrap_or(libc::c_int::MAX);
    access_tcp_option(listener, libc::TCP_DEFER_ACCEPT, &mut seconds.to_ne_bytes(), SocketOptionAccess::Set).map(drop)
}

/// Returns how many bytes the peer of a connection has acknowledged since it was opened (`tcpi_bytes_acked` of
/// `TCP_INFO`, tcp(7); Linux 4.1 or later).
pub fn acknowledged_bytes(socket: &impl AsFd) -> io::Result<u64> {
    /// Offset of the field in `struct tcp_info` of linux/tcp.h: after 8 bytes, 24 fields of 32 bits and 2 of 64 bits.
    const BYTES_ACKED_OFFSET: usize = 8 + 24 * 4 + 2 * 8;
    let mut info = [0; BYTES_ACKED_OFFSET + 8];
    let read_bytes = access_tcp_option(socket, libc::TCP_INFO, &mut info, SocketOptionAccess::Get)?;
    match info.last_chunk() {
        Some(bytes) if read_bytes == info.len() => Ok(u64::from_ne_bytes(*bytes)),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Reads a TCP option into `value`, or sets it to `value`. Returns the number of bytes that the kernel has read or
/// written.
fn access_tcp_option(
    socket: &impl AsFd,
    name: libc::c_int,
    value: &mut [u8],
    access: SocketOptionAccess,
) -> io::Result<usize> {
    let (fd, pointer) = (socket.as_fd().as_raw_fd(), value.as_mut_ptr().cast());
    let mut len = libc::socklen_t::try_from(value.len()).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open for as long as it is borrowed. The kernel reads or writes at most `len` bytes of
    // `value`, which has that many, and keeps no pointer.
    let status = unsafe {
        match access {
            SocketOptionAccess::Set => libc::setsockopt(fd, libc::IPPROTO_TCP, name, pointer, len),
            SocketOptionAccess::Get => libc::getsockopt(fd, libc::IPPROTO_TCP, name, pointer, &raw mut len),
        }
    };
    if status == 0 { Ok(len as usize) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // tests connect to their own sockets
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn defer_accept_delays_connections_without_data_for_about_the_given_seconds() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for seconds in [1, 3, 10] {
            set_defer_accept(&listener, Duration::from_secs(seconds)).unwrap();
            let mut value = [0; size_of::<libc::c_int>()];
            access_tcp_option(&listener, libc::TCP_DEFER_ACCEPT, &mut value, SocketOptionAccess::Get).unwrap();
            // The kernel rounds up to the time of a retransmission, at most to twice the number.
            let held_seconds = u64::try_from(libc::c_int::from_ne_bytes(value)).unwrap();
            assert!((seconds..=2 * seconds).contains(&held_seconds), "{held_seconds} s instead of {seconds} s");
        }
    }

    #[test]
    fn bytes_count_as_acknowledged_once_the_peer_has_acknowledged_them() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let before = acknowledged_bytes(&server).unwrap();
        server.write_all(&[7; 1000]).unwrap();
        client.read_exact(&mut [0; 1000]).unwrap();
        // This segment acknowledges everything that was received before.
        client.write_all(b"x").unwrap();
        server.read_exact(&mut [0]).unwrap();
        assert_eq!(acknowledged_bytes(&server).unwrap() - before, 1000);
    }
}
