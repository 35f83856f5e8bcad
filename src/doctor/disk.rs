//! Checks the disk of the store: the free space, the space that must stay free, and the kind of file system.

use std::path::{Path, PathBuf};

use crate::config::checked::Config;
use docwharf_agent::store::VersionStore;
use docwharf_base::model::units::format_size;

use super::check::DoctorCheck;

const CHECK_NAME: &str = "disk";
/// The number of free inodes below which they may be used up within days.
const MIN_FREE_INODES: u64 = 1000;

pub(super) fn check(root: &Path, config: Option<&Config>) -> Vec<DoctorCheck> {
    let place = nearest_existing(root);
    let file_system = match rustix::fs::statvfs(&place) {
        Ok(file_system) => file_system,
        Err(error) => {
            let found = format!("cannot read the free space of {}: {error}", place.display());
            return vec![DoctorCheck::error(CHECK_NAME, found, "check the path, its owner and mode")];
        }
    };
    let mut checks = Vec::new();
    // Some network file systems do not report their size.
    if file_system.f_blocks > 0 {
        checks.push(check_free_space(root, file_system.f_bavail.saturating_mul(file_system.f_frsize), config));
    }
    if file_system.f_files > 0 && file_system.f_favail < MIN_FREE_INODES {
        let found = format!(
            "{} can be created on the file system of {}",
            describe_free_inodes(file_system.f_favail),
            root.display()
        );
        checks.push(DoctorCheck::warning(CHECK_NAME, found, "remove files: each version needs a few"));
    }
    checks.extend(check_max_bytes(root, config));
    checks.extend(check_file_system(&place));
    checks
}

/// Returns the path or the nearest folder above it that exists.
pub(super) fn nearest_existing(path: &Path) -> PathBuf {
    path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/")).to_owned()
}

fn describe_free_inodes(files: u64) -> String {
    if files == 0 {
        "no more files".to_owned()
    } else {
        format!("only {} more", docwharf_base::model::units::format_count(files, "file"))
    }
}

/// Checks the free space against `store.minFree`, and against what a bundle like the largest version needs.
fn check_free_space(root: &Path, free: u64, config: Option<&Config>) -> DoctorCheck {
    let min_free = config.and_then(|config| config.sync_settings.space_limits.min_free).unwrap_or(0);
    let versions = VersionStore::at(root).versions().unwrap_or_default();
    let largest = versions.iter().map(|version| version.bytes).max().unwrap_or(0);
    let found = format!("{} free on the file system of {}", format_size(free), root.display());
    let reserved = if min_free == 0 {
        String::new()
    } else {
        format!(", of which {} must stay free (store.minFree)", format_size(min_free))
    };
    let usable = free.saturating_sub(min_free);
    if free == 0 || free < min_free {
        let advice = "free some space: no new version can be stored; the active version is still served";
        return DoctorCheck::error(CHECK_NAME, format!("no space: {found}{reserved}"), advice);
    }
    // A sync needs space for a download and for the image made from it.
    if usable < largest.saturating_mul(2) {
        let advice = "free some space, or keep fewer versions: sync.keep, store.maxBytes, labels";
        let found = format!("{found}{reserved}: less than twice the largest version ({})", format_size(largest));
        return DoctorCheck::warning(CHECK_NAME, found, advice);
    }
    DoctorCheck::ok(CHECK_NAME, format!("{found}{reserved}"))
}

fn check_max_bytes(root: &Path, config: Option<&Config>) -> Option<DoctorCheck> {
    let limit = config?.sync_settings.space_limits.max_bytes?;
    let sizes = VersionStore::at(root).sizes().ok()?;
    let total: u64 = sizes.iter().map(|(_, bytes)| bytes).sum();
    let found = format!("versions take {} of store.maxBytes ({})", format_size(total), format_size(limit));
    let advice = "raise store.maxBytes, or remove labels or a hold that are not needed";
    Some(if total > limit {
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
        return Some(DoctorCheck::warning(CHECK_NAME, format!("{} is in memory (tmpfs)", place.display()), advice));
    }
    let (_, name) = REMOTE.iter().find(|(kind, _)| *kind == found)?;
    Some(DoctorCheck::warning(
        CHECK_NAME,
        format!("{} is on {name}: versions are read into memory, and changes are noticed late", place.display()),
        "a local disk is better; on NFS, locks need a lock manager",
    ))
}
