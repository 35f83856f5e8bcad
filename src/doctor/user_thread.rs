//! Runs a function with the credentials of another user, so that the kernel decides what that user may do: modes,
//! access control lists, file systems with rules of their own. Linux has credentials for each thread; only the C
//! library gives all threads the same ones. So a thread takes the user's credentials and ends with the function, and
//! those of the process stay.

use std::io;
use std::thread;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// The user and the groups of a user. The first group is the primary one.
#[derive(Debug, Clone, Copy)]
pub(super) struct UserCredentials<'a> {
    /// The user id.
    pub(super) uid: u32,
    /// The group ids, at least one.
    pub(super) gids: &'a [u32],
}

/// Runs `action` on a thread with these credentials. It fails if this process may not take them, as one without
/// `CAP_SETUID` and `CAP_SETGID`, or in a user namespace that does not have the user.
pub(super) fn run_as<T: Send>(credentials: &UserCredentials<'_>, action: impl FnOnce() -> T + Send) -> io::Result<T> {
    let UserCredentials { uid, gids } = *credentials;
    // These numbers mean "unchanged" in the system calls.
    if uid == u32::MAX || gids.contains(&u32::MAX) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let on_thread = move || -> io::Result<T> {
        let gids: Vec<Gid> = gids.iter().copied().map(Gid::from_raw).collect();
        let primary = gids.first().copied().ok_or(io::ErrorKind::InvalidInput)?;
        // The user id is last: without root's capabilities, the groups cannot be changed any more.
        set_thread_groups(&gids)?;
        set_thread_res_gid(primary, primary, primary)?;
        let uid = Uid::from_raw(uid);
        set_thread_res_uid(uid, uid, uid)?;
        Ok(action())
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("docwharf-user".to_owned()).spawn_scoped(scope, on_thread)?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the check ended unexpectedly")))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rustix::process::{getegid, geteuid};

    use super::*;

    #[test]
    fn the_kernel_decides_for_the_user_of_the_thread_and_the_process_keeps_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let own = (geteuid(), getegid());
        let set_mode = |path: &std::path::Path, mode| {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        };
        set_mode(folder.path(), 0o755);
        let read = |uid, gids: &[u32]| run_as(&UserCredentials { uid, gids }, || std::fs::read(&file).is_ok());
        if !own.0.is_root() {
            assert!(read(own.0.as_raw() + 1, &[1]).is_err(), "only root can take another user's credentials");
            return;
        }
        std::os::unix::fs::chown(&file, Some(4711), Some(4712)).unwrap();
        for (mode, uid, gids, expected) in [
            (0o600, 4711, &[1][..], true),
            (0o600, 4713, &[4712], false),
            (0o640, 4713, &[1, 4712], true),
            (0o640, 4713, &[1], false),
            (0o604, 4713, &[4712], false),
            (0o604, 4713, &[1], true),
            (0o000, 0, &[0], true),
        ] {
            set_mode(&file, mode);
            assert_eq!(read(uid, gids).ok(), Some(expected), "{mode:o} {uid} {gids:?}");
        }
        // A closed folder above the file counts, too.
        set_mode(&file, 0o644);
        set_mode(folder.path(), 0o700);
        assert_eq!(read(4711, &[4712]).ok(), Some(false));
        assert_eq!((geteuid(), getegid()), own);
        assert!(read(u32::MAX, &[1]).is_err() && read(1, &[u32::MAX]).is_err() && read(1, &[]).is_err());
    }
}
