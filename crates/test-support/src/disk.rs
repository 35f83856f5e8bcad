//! A small file system of its own: a tmpfs in a mount namespace that one process holds open. Everybody reaches it
//! through that process's root, and it is gone with it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The file system; gone when dropped.
pub struct Disk {
    holder: Child,
    root: PathBuf,
    _dir: tempfile::TempDir,
}

impl Disk {
    /// With these options of tmpfs, such as `size=1m`. Without the right to mount it there is no test, and it says so.
    #[track_caller]
    pub fn new(options: &str) -> Disk {
        let dir = crate::folder();
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
            let mut said = String::new();
            let _ = holder.stderr.take().expect("a pipe").read_to_string(&mut said);
            let _ = holder.wait();
            panic!(
                "these tests need a small file system of their own: the right to `unshare --mount` as root, or to make \
                 user namespaces (`unshare --user --map-root-user --mount`) otherwise: {said}"
            );
        }
        let below = dir.path().strip_prefix("/").expect("temporary folders are absolute");
        let root = Path::new("/proc").join(holder.id().to_string()).join("root").join(below);
        Disk { holder, root, _dir: dir }
    }

    /// A path on it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Bytes that are free.
    pub fn free(&self) -> u64 {
        let about = rustix::fs::statvfs(&self.root).expect("a file system can be asked");
        about.f_bavail * about.f_frsize
    }

    /// Fills it until so many bytes are free.
    pub fn leave(&self, bytes: u64) {
        self.empty();
        let mut file = File::create(self.path("filler")).expect("there is room for a name");
        let zeros = vec![0; 1 << 16];
        let mut left = self.free().checked_sub(bytes).expect("so many are free");
        while left > 0 {
            let n = left.min(zeros.len() as u64) as usize;
            file.write_all(&zeros[..n]).expect("what is free can be filled");
            left -= n as u64;
        }
        assert_eq!(self.free(), bytes);
    }

    /// Fills it to its last byte while another process writes, too.
    pub fn fill(&self) {
        self.empty();
        let mut file = File::create(self.path("filler")).expect("there is room for a name");
        let zeros = vec![0; 1 << 16];
        let full = loop {
            if let Err(error) = file.write_all(&zeros) {
                break error;
            }
        };
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    }

    /// Makes files until so many more can be made.
    pub fn leave_inodes(&self, inodes: u64) {
        self.empty();
        std::fs::create_dir(self.path("fillers")).expect("there is room for a folder");
        let free = || rustix::fs::statvfs(&self.root).expect("a file system can be asked").f_favail;
        for n in 0.. {
            if free() <= inodes {
                return;
            }
            File::create(self.path("fillers").join(n.to_string())).expect("what is free can be filled");
        }
    }

    /// Takes away what fills it.
    pub fn empty(&self) {
        let _ = std::fs::remove_file(self.path("filler"));
        let _ = std::fs::remove_dir_all(self.path("fillers"));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
