//! Random bytes for secrets and ids.

use std::io;

/// Returns random bytes of the system.
pub(super) fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let n = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    // The system call returns up to 256 bytes completely (getrandom(2)). With fewer, a part of the secret would be
    // zeros.
    if n == N { Ok(bytes) } else { Err(io::Error::other("the system returned too few random bytes")) }
}
