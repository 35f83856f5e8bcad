//! A small file system for tests of a full disk: a tmpfs in a mount namespace that a helper process keeps open. Other
//! processes reach it through the root of the helper process (`/proc/PID/root`). The file system is unmounted when the
//! helper process ends.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{CWD, FileType, Mode, mknodat};

/// A small file system; unmounted when dropped.
pub struct SmallDisk {
    holder: Child,
    root: PathBuf,
    _dir: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts a file system with these options of tmpfs, such as `size=1m`. Panics without the right to mount it.
    #[track_caller]
    pub fn new(options: &str) -> SmallDisk {
        let dir = crate::temporary_folder();
        let namespaces: &[&str] =
            if rustix::process::geteuid().is_root() { &["--mount"] } else { &["--user", "--map-root-user", "--mount"] };
        let mut holder = Command::new("unshare")
            .args(namespaces)
            .args(["sh", "-c", "mount -t tmpfs -o \"$1\" tmpfs \"$2\" && echo ready && exec cat", "sh", options])
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("`unshare` (util-linux) is needed for a small file system");
        let mut line = String::new();
        let _ = BufReader::new(holder.stdout.take().expect("a pipe")).read_line(&mut line);
        if line != "ready\n" {
            let mut message = String::new();
            let _ = holder.stderr.take().expect("a pipe").read_to_string(&mut message);
            let _ = holder.wait();
            panic!(
                "these tests mount a small file system. They need the right to `unshare --mount` as root, or to make \
                 user namespaces (`unshare --user --map-root-user --mount`) otherwise: {message}"
            );
        }
        let relative = dir.path().strip_prefix("/").expect("temporary folders are absolute");
        let root = Path::new("/proc").join(holder.id().to_string()).join("root").join(relative);
        SmallDisk { holder, root, _dir: dir }
    }

    /// Returns the path of a file on the file system.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Returns the number of free bytes.
    pub fn free_bytes(&self) -> u64 {
        let statistics = rustix::fs::statvfs(&self.root).expect("statvfs works on a mounted file system");
        statistics.f_bavail * statistics.f_frsize
    }

    /// Fills the file system until exactly `bytes` bytes are free.
    pub fn leave_free_bytes(&self, bytes: u64) {
        self.remove_fillers();
        let mut file = File::create(self.path("filler")).expect("there is space for a file name");
        let zeros = vec![0; 1 << 16];
        let mut remaining = self.free_bytes().checked_sub(bytes).expect("at least `bytes` are free");
        while remaining > 0 {
            let n = remaining.min(zeros.len() as u64) as usize;
            file.write_all(&zeros[..n]).expect("free space can be filled");
            remaining -= n as u64;
        }
        assert_eq!(self.free_bytes(), bytes);
    }

    /// Fills the file system to its last byte, also if another process writes at the same time.
    pub fn fill(&self) {
        self.remove_fillers();
        let mut file = File::create(self.path("filler")).expect("there is space for a file name");
        let zeros = vec![0; 1 << 16];
        let error = loop {
            if let Err(error) = file.write_all(&zeros) {
                break error;
            }
        };
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    }

    /// Creates files until at most `inodes` more can be created.
    pub fn leave_free_inodes(&self, inodes: u64) {
        self.remove_fillers();
        std::fs::create_dir(self.path("fillers")).expect("there is space for a folder");
        let free = || rustix::fs::statvfs(&self.root).expect("statvfs works on a mounted file system").f_favail;
        for n in 0.. {
            if free() <= inodes {
                return;
            }
            // Not opened: a process that another test starts at this moment would inherit the file until it runs its
            // program, and free the inode after it was counted.
            let path = self.path("fillers").join(n.to_string());
            mknodat(CWD, path, FileType::RegularFile, Mode::RUSR, 0).expect("free space can be filled");
        }
    }

    /// Removes the files that fill the file system.
    pub fn remove_fillers(&self) {
        // Truncated first: a process that another test starts may have inherited the file.
        let _ = File::options().write(true).truncate(true).open(self.path("filler"));
        let _ = std::fs::remove_file(self.path("filler"));
        let _ = std::fs::remove_dir_all(self.path("fillers"));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
