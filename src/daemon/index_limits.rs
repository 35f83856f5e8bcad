//! Bounds of building a search index, whatever the pages are: the time, the disk space, and the memory.
//!
//! The memory follows the limit of the cgroup, which is that of a container or of a unit. Where a cgroup ends as a
//! whole when its memory runs out, as in a pod, a build that exceeds the limit would end the server with it. So the
//! index process may use half of that limit, and an allocation beyond it ends the index process alone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use docwharf_base::directory::{Directory, DirectoryEntry, EntryKind};
use docwharf_base::model::site_path::is_page;
use docwharf_base::model::units::format_size;
use docwharf_search::site_markdown::MAX_LLMS_BYTES;
use docwharf_site::sealed_version::SealedVersion;

/// The maximum duration of a build. At the lowest priority, a build takes many times longer on a host under load.
const MAX_BUILD_TIME: Duration = Duration::from_hours(6);
/// The maximum disk space of an index that is being built, in bytes for each byte of HTML. A build needs less than half
/// a byte.
const MAX_BYTES_PER_HTML_BYTE: u64 = 8;
/// The number of bytes of HTML for which an index and its parts need one byte of disk space, at most.
const HTML_BYTES_PER_INDEX_BYTE: u64 = 2;
/// The number of bytes of HTML for which the compressed Markdown needs one byte of disk space, at most.
const HTML_BYTES_PER_MARKDOWN_BYTE: u64 = 2;
/// The disk space that every build may use, in bytes.
const MIN_DISK_BYTES: u64 = 64 << 20;
/// Interval between checks of the disk space.
const DISK_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The number of levels of folders below that of the index in which a build has files.
const FOLDER_LEVELS: u32 = 2;

/// The maximum memory of the index process in bytes, for its heap and stacks. The largest sites need half of it.
const MAX_PROCESS_BYTES: u64 = 1 << 30;
/// The memory of the process, divided by this number, is the limit for the parts of the index.
const PARTS_MEMORY_DIVISOR: u64 = 4;
/// The memory for each thread that reads pages, in bytes: a page, and what is made of it.
const THREAD_BYTES: u64 = 128 << 20;
/// The list of cgroups of this process.
const CGROUPS_FILE: &str = "/proc/self/cgroup";
/// The folder in which the cgroups are mounted.
const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// The bounds of one build, while it runs.
#[derive(Debug)]
pub(super) struct BuildLimits<'a> {
    folder: &'a Directory,
    deadline: Instant,
    max_bytes: u64,
    next_disk_check: Instant,
}

impl<'a> BuildLimits<'a> {
    /// Creates the bounds of a build that begins now, in `folder`.
    pub(super) fn new(version: &SealedVersion, folder: &'a Directory) -> BuildLimits<'a> {
        let now = Instant::now();
        let max_bytes = max_disk_bytes(html_bytes(version));
        BuildLimits { folder, deadline: now + MAX_BUILD_TIME, max_bytes, next_disk_check: now + DISK_CHECK_INTERVAL }
    }

    /// Returns an error if a bound is exceeded at the time `now`.
    pub(super) fn check(&mut self, now: Instant) -> io::Result<()> {
        if now >= self.deadline {
            let hours = MAX_BUILD_TIME.as_secs() / 3600;
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("it has taken more than {hours} hours")));
        }
        if now >= self.next_disk_check {
            self.next_disk_check = now + DISK_CHECK_INTERVAL;
            let (bytes, max_bytes) = (folder_bytes(self.folder, FOLDER_LEVELS), self.max_bytes);
            if bytes > max_bytes {
                let [bytes, max_bytes] = [bytes, max_bytes].map(format_size);
                return Err(io::Error::other(format!("it has {bytes}; for this site at most {max_bytes} are allowed")));
            }
        }
        Ok(())
    }
}

/// Returns the disk space that an index and its parts need, at most, in bytes.
pub fn estimate_index_bytes(version: &SealedVersion) -> u64 {
    html_bytes(version) / HTML_BYTES_PER_INDEX_BYTE
}

/// Returns the disk space that the Markdown of all pages needs, at most, in bytes: the compressed pages, and
/// `llms-full.txt` with its gzip form.
pub(super) fn estimate_markdown_bytes(version: &SealedVersion) -> u64 {
    max_markdown_bytes(html_bytes(version))
}

fn max_markdown_bytes(html_bytes: u64) -> u64 {
    let list_bytes = html_bytes.min(MAX_LLMS_BYTES as u64);
    html_bytes / HTML_BYTES_PER_MARKDOWN_BYTE + list_bytes + list_bytes / 2
}

/// Returns the size of the content of all HTML files in bytes.
fn html_bytes(version: &SealedVersion) -> u64 {
    let files = 0..version.index().len();
    files.filter(|&file| is_page(version.index().path(file))).map(|file| version.entry(file).len).sum()
}

fn max_disk_bytes(html_bytes: u64) -> u64 {
    html_bytes.saturating_mul(MAX_BYTES_PER_HTML_BYTE).saturating_add(MIN_DISK_BYTES)
}

/// Returns the size of the files in a folder and in `levels` levels of folders below it. Files that vanish meanwhile do
/// not count.
fn folder_bytes(folder: &Directory, levels: u32) -> u64 {
    let Ok(entries) = folder.entries() else { return 0 };
    let bytes_of = |entry: DirectoryEntry| match entry.kind {
        EntryKind::File => folder.metadata_of(&entry.name).map_or(0, |metadata| metadata.len()),
        EntryKind::Directory if levels > 0 => {
            folder.open_directory(&entry.name).map_or(0, |below| folder_bytes(&below, levels - 1))
        }
        EntryKind::Directory | EntryKind::Link | EntryKind::Other => 0,
    };
    entries.flatten().map(bytes_of).sum()
}

/// The memory of the index process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessMemory {
    /// The memory for heap and stacks in bytes.
    pub(super) bytes: u64,
}

impl ProcessMemory {
    /// Returns the memory that this process may use if it builds an index.
    pub(super) fn of_this_process() -> ProcessMemory {
        let cgroups = fs::read_to_string(CGROUPS_FILE).unwrap_or_default();
        ProcessMemory::within(read_memory_limit(&cgroups, Path::new(CGROUP_ROOT)))
    }

    /// Returns the memory of the process if `limit` is the limit of its cgroup; `None` if it has none.
    fn within(limit: Option<u64>) -> ProcessMemory {
        ProcessMemory { bytes: limit.map_or(MAX_PROCESS_BYTES, |limit| (limit / 2).min(MAX_PROCESS_BYTES)) }
    }

    /// Returns the memory for the parts of the index, at most `wanted` bytes.
    pub(super) fn parts_bytes(self, wanted: usize) -> usize {
        usize::try_from(self.bytes / PARTS_MEMORY_DIVISOR).map_or(wanted, |bytes| bytes.min(wanted))
    }

    /// Returns the number of threads that have enough memory: at least one, and at most `wanted`.
    pub(super) fn threads(self, wanted: usize) -> usize {
        usize::try_from(self.bytes / THREAD_BYTES).map_or(wanted, |threads| threads.min(wanted)).max(1)
    }
}

/// Returns the smallest limit of the memory of the cgroups in `cgroups`, the content of `/proc/self/cgroup`, and of
/// those above them. `root` is where they are mounted. A container sees its own cgroup there, whatever its path is.
fn read_memory_limit(cgroups: &str, root: &Path) -> Option<u64> {
    let limits = cgroups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        // Version 2 has one cgroup with all controllers. In version 1 the memory has a hierarchy of its own.
        let (mount, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let ancestors: Vec<PathBuf> = Path::new(path.trim_start_matches('/')).ancestors().map(Path::to_owned).collect();
        let texts = ancestors.iter().filter_map(|path| fs::read_to_string(mount.join(path).join(file)).ok());
        // "max" is no number and no limit.
        texts.filter_map(|text| text.trim().parse::<u64>().ok()).min()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_that_takes_too_long_or_fills_the_disk_ends() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Directory::open(dir.path()).unwrap();
        let now = Instant::now();
        let limits = |max_bytes: u64| BuildLimits {
            folder: &folder,
            deadline: now + MAX_BUILD_TIME,
            max_bytes,
            next_disk_check: now + DISK_CHECK_INTERVAL,
        };
        fs::create_dir_all(dir.path().join("parts/0-0")).unwrap();
        for (path, bytes) in [("pages", 100), ("parts/file", 20), ("parts/0-0/file", 3)] {
            fs::write(dir.path().join(path), vec![b'x'; bytes]).unwrap();
        }
        assert_eq!(folder_bytes(&folder, FOLDER_LEVELS), 123);
        let check_at = now + DISK_CHECK_INTERVAL;
        assert!(limits(123).check(check_at).is_ok());
        let error = limits(122).check(check_at).unwrap_err().to_string();
        assert!(error.contains("at most 122 B are allowed"), "{error}");
        // Between two checks, nothing is read.
        let mut between = limits(0);
        assert!(between.check(now).is_ok() && between.check(check_at).is_err() && between.check(check_at).is_ok());
        let mut late = limits(123);
        assert!(late.check(now + MAX_BUILD_TIME.saturating_sub(Duration::from_secs(1))).is_ok());
        let error = late.check(now + MAX_BUILD_TIME).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (io::ErrorKind::TimedOut, "it has taken more than 6 hours")
        );
    }

    #[test]
    fn the_disk_space_of_a_build_follows_the_size_of_the_site() {
        assert_eq!(max_disk_bytes(0), 64 << 20);
        assert_eq!(max_disk_bytes(1 << 20), 72 << 20);
        assert_eq!(max_disk_bytes(u64::MAX), u64::MAX);
        // The compressed pages, and a list that has a bound.
        assert_eq!(max_markdown_bytes(0), 0);
        assert_eq!(max_markdown_bytes(16 << 20), (8 + 16 + 8) << 20);
        assert_eq!(max_markdown_bytes(1 << 30), (512 + 32 + 16) << 20);
    }

    #[test]
    fn the_memory_of_a_build_is_half_of_the_limit_of_its_cgroup() {
        for (limit, bytes, parts, threads) in [
            (None, 1 << 30, 96 << 20, 4),
            (Some(8 << 30), 1 << 30, 96 << 20, 4),
            (Some(512 << 20), 256 << 20, 64 << 20, 2),
            (Some(128 << 20), 64 << 20, 16 << 20, 1),
            (Some(0), 0, 0, 1),
        ] {
            let memory = ProcessMemory::within(limit);
            assert_eq!((memory.bytes, memory.parts_bytes(96 << 20), memory.threads(4)), (bytes, parts, threads));
        }
    }

    #[test]
    fn the_smallest_memory_limit_of_a_cgroup_and_those_above_it_counts() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let limit = |cgroups: &str| read_memory_limit(cgroups, dir.path());
        assert_eq!(limit("0::/system.slice/docwharf.service\n"), None);
        write("system.slice/docwharf.service/memory.max", "max\n");
        assert_eq!(limit("0::/system.slice/docwharf.service\n"), None);
        write("system.slice/memory.max", "2000\n");
        assert_eq!(limit("0::/system.slice/docwharf.service\n"), Some(2000));
        write("system.slice/docwharf.service/memory.max", "1000\n");
        assert_eq!(limit("0::/system.slice/docwharf.service\n"), Some(1000));
        // A container that does not see the cgroups above it.
        write("memory.max", "500\n");
        assert_eq!((limit("0::/\n"), limit("0::/kubepods/pod1/container1\n")), (Some(500), Some(500)));
        write("memory/docker/1/memory.limit_in_bytes", "400\n");
        assert_eq!(limit("9:cpu,cpuacct:/docker/1\n5:memory:/docker/1\n"), Some(400));
        for odd in ["", "0", "0:", "x\n\n::\n", "1:name=systemd:/docker/1\n"] {
            assert!(limit(odd).is_none_or(|limit| limit == 500), "{odd:?}");
        }
    }
}
