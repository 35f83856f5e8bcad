//! Checks the disk of the store: what is free, what must stay free, and what kind of file system it is.

use std::path::{Path, PathBuf};

use crate::config::checked::Config;
use docwharf_agent::store::VersionStore;
use docwharf_base::model::units::show_size;

use super::check::DoctorCheck;

const CHECK_NAME: &str = "disk";
/// Fewer free inodes than this last only for days.
const MIN_FREE_INODES: u64 = 1000;

pub(super) fn check(root: &Path, config: Option<&Config>) -> Vec<DoctorCheck> {
    let place = nearest_existing(root);
    let about = match rustix::fs::statvfs(&place) {
        Ok(about) => about,
        Err(error) => {
            let found = format!("cannot ask for the free space of {}: {error}", place.display());
            return vec![DoctorCheck::error(CHECK_NAME, found, "check the path, its owner and mode")];
        }
    };
    let mut checks = Vec::new();
    // Some network file systems do not report their size.
    if about.f_blocks > 0 {
        checks.push(check_free_space(root, about.f_bavail.saturating_mul(about.f_frsize), config));
    }
    if about.f_files > 0 && about.f_favail < MIN_FREE_INODES {
        let found = format!("{} can be made on the file system of {}", count_left(about.f_favail), root.display());
        checks.push(DoctorCheck::warning(CHECK_NAME, found, "make room: each version needs a handful of files"));
    }
    checks.extend(check_max_bytes(root, config));
    checks.extend(check_file_system(&place));
    checks
}

/// Returns the path or the nearest folder above it that exists.
pub(super) fn nearest_existing(path: &Path) -> PathBuf {
    path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/")).to_owned()
}

fn count_left(files: u64) -> String {
    if files == 0 {
        "no more files".to_owned()
    } else {
        format!("only {} more", docwharf_base::model::units::count_noun(files, "file"))
    }
}

/// Checks the free space against `store.minFree`, and against what a bundle like the largest version needs.
fn check_free_space(root: &Path, free: u64, config: Option<&Config>) -> DoctorCheck {
    let min_free = config.and_then(|config| config.intent.allowance.min_free).unwrap_or(0);
    let versions = VersionStore::at(root).versions().unwrap_or_default();
    let largest = versions.iter().map(|version| version.bytes).max().unwrap_or(0);
    let found = format!("{} free on the file system of {}", show_size(free), root.display());
    let kept = if min_free == 0 {
        String::new()
    } else {
        format!(", of which {} must stay so (store.minFree)", show_size(min_free))
    };
    let left = free.saturating_sub(min_free);
    if free == 0 || free < min_free {
        let advice = "make room: nothing new can be brought in; what is active is served";
        return DoctorCheck::error(CHECK_NAME, format!("no space: {found}{kept}"), advice);
    }
    // A sync needs space for a download and for the image made from it.
    if left < largest.saturating_mul(2) {
        let advice = "make room, or keep less: sync.keep, store.maxBytes, labels";
        let found = format!("{found}{kept}: less than twice the largest version ({})", show_size(largest));
        return DoctorCheck::warning(CHECK_NAME, found, advice);
    }
    DoctorCheck::ok(CHECK_NAME, format!("{found}{kept}"))
}

fn check_max_bytes(root: &Path, config: Option<&Config>) -> Option<DoctorCheck> {
    let most = config?.intent.allowance.max_bytes?;
    let sizes = VersionStore::at(root).sizes().ok()?;
    let total: u64 = sizes.iter().map(|(_, bytes)| bytes).sum();
    let found = format!("versions take {} of store.maxBytes ({})", show_size(total), show_size(most));
    let advice = "raise store.maxBytes, or take away labels or a hold that are not needed";
    Some(if total > most {
        DoctorCheck::warning(CHECK_NAME, found, advice)
    } else {
        DoctorCheck::ok(CHECK_NAME, found)
    })
}

/// Warns of a store in memory or on a network file system (statfs(2) lists the magic numbers).
fn check_file_system(place: &Path) -> Option<DoctorCheck> {
    const TMPFS: i64 = 0x0102_1994;
    const REMOTE: [(i64, &str); 7] = [
        (0x6969, "NFS"),
        (0x517b, "SMB"),
        (0xfe53_4d42, "SMB"),
        (0xff53_4d42, "CIFS"),
        (0x6573_5546, "FUSE"),
        (0x0102_1997, "9P"),
        (0x00c3_6400, "Ceph"),
    ];
    #[allow(clippy::unnecessary_cast, clippy::cast_lossless)] // its width depends on the platform
    let found = rustix::fs::statfs(place).ok()?.f_type as i64 & 0xffff_ffff;
    if found == TMPFS {
        let advice = "put the store on a disk, unless it may be empty after a restart";
        return Some(DoctorCheck::warning(CHECK_NAME, format!("{} lies in memory (tmpfs)", place.display()), advice));
    }
    let (_, name) = REMOTE.iter().find(|(kind, _)| *kind == found)?;
    Some(DoctorCheck::warning(
        CHECK_NAME,
        format!("{} is on {name}: versions are read into memory, and changes are noticed late", place.display()),
        "a local disk is better; on NFS, locks need a lock manager",
    ))
}
