//! Checks limits of this host: those of inotify, and the number of open files of a process.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

use super::check::DoctorCheck;

/// Watches that `run` needs, estimated generously.
const MIN_FREE_WATCHES: u64 = 8;
/// Open files that a small server needs: connections, files and sockets.
const MIN_OPEN_FILES: u64 = 1024;

/// Checks inotify. `run` watches its files with one instance; if none is left, it polls them every few seconds.
pub(super) fn inotify() -> DoctorCheck {
    const NAME: &str = "inotify";
    let limit = |name: &str| -> Option<u64> {
        std::fs::read_to_string(Path::new("/proc/sys/fs/inotify").join(name)).ok()?.trim().parse().ok()
    };
    let (Some(instances), Some(watches)) = (limit("max_user_instances"), limit("max_user_watches")) else {
        return DoctorCheck::ok(NAME, "this system does not report its limits");
    };
    let (used, watched) = count_in_use();
    let found = format!("{used} of {instances} instances and {watched} of {watches} watches of this user are in use");
    if used >= instances || watched + MIN_FREE_WATCHES > watches {
        let advice = "raise fs.inotify.max_user_instances and max_user_watches with sysctl; until then, changes are noticed late";
        return DoctorCheck::warning(NAME, found, advice);
    }
    DoctorCheck::ok(NAME, found)
}

/// Counts the instances and watches of this user's processes, as far as `/proc` shows them.
fn count_in_use() -> (u64, u64) {
    let uid = rustix::process::geteuid().as_raw();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let own_processes = processes.filter(|entry| entry.metadata().is_ok_and(|metadata| metadata.uid() == uid));
    let (mut instances, mut watches) = (0, 0);
    for process in own_processes.map(|entry| entry.path()) {
        for descriptor in std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
            let is_inotify =
                std::fs::read_link(descriptor.path()).is_ok_and(|to| to == Path::new("anon_inode:inotify"));
            if is_inotify {
                instances += 1;
                let fdinfo = std::fs::read_to_string(process.join("fdinfo").join(descriptor.file_name()));
                watches += fdinfo
                    .map_or(0, |fdinfo| fdinfo.lines().filter(|line| line.starts_with("inotify ")).count() as u64);
            }
        }
    }
    (instances, watches)
}

/// Checks how many files, including sockets, one process may have open.
pub(super) fn descriptors() -> DoctorCheck {
    const NAME: &str = "descriptors";
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < MIN_OPEN_FILES => DoctorCheck::warning(
            NAME,
            format!("a process may have only {limit} files open, so it serves few clients at a time"),
            format!("raise it to {MIN_OPEN_FILES} or more: LimitNOFILE= of the unit, or ulimit -n"),
        ),
        Some(limit) => DoctorCheck::ok(NAME, format!("a process may have {limit} files open")),
        None => DoctorCheck::ok(NAME, "a process may have any number of files open"),
    }
}
