//! The file with the Markdown of all pages, in a temporary folder that is removed as soon as the file is open.
//!
//! It is made by a thread of the serving process, so it has bounds of its own: the time, the size of the file, and the
//! end when no site needs it any more. Its memory is that of one page at a time, and of the list of the pages.

use std::io;
use std::time::{Duration, Instant};

use docwharf_base::directory::Directory;
use docwharf_base::model::site_path::is_page;
use docwharf_base::model::units::format_size;
use docwharf_search::index::{BuildProgress, BuildSettings};
use docwharf_search::site_markdown::{SiteMarkdown, build_site_markdown_within};
use docwharf_site::sealed_version::SealedVersion;

/// The maximum duration of making a file. The largest sites take minutes.
const MAX_FILE_TIME: Duration = Duration::from_hours(1);
/// The size that every file may have, in bytes, besides a byte for each byte of HTML: that of both lists.
const MIN_FILE_BYTES: u64 = 128 << 20;
/// The maximum size of a file in bytes.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// The bounds of making a file.
struct FileLimits {
    deadline: Instant,
    max_bytes: u64,
}

impl FileLimits {
    /// Creates the bounds of a file of a version that is begun now.
    fn new(version: &SealedVersion) -> FileLimits {
        let files = 0..version.index().len();
        let pages = files.filter(|&file| is_page(version.index().path(file)));
        let html_bytes: u64 = pages.map(|file| version.entry(file).len).sum();
        FileLimits { deadline: Instant::now() + MAX_FILE_TIME, max_bytes: max_file_bytes(html_bytes) }
    }

    /// Returns an error if a file of this size exceeds a bound at the time `now`.
    fn check(&self, bytes: u64, now: Instant) -> io::Result<()> {
        if now >= self.deadline {
            let minutes = MAX_FILE_TIME.as_secs() / 60;
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("it has taken more than {minutes} minutes")));
        }
        if bytes > self.max_bytes {
            let max_bytes = format_size(self.max_bytes);
            return Err(io::Error::other(format!("it is too large; for this site at most {max_bytes} are allowed")));
        }
        Ok(())
    }
}

fn max_file_bytes(html_bytes: u64) -> u64 {
    html_bytes.saturating_add(MIN_FILE_BYTES).min(MAX_FILE_BYTES)
}

/// Makes and opens the file of a version. `should_stop` is called before each page and each write; if it returns true,
/// the error is `Interrupted`.
pub(super) fn build_in_temporary_folder(
    version: &SealedVersion,
    settings: &BuildSettings,
    should_stop: &(dyn Fn() -> bool + Sync),
) -> io::Result<SiteMarkdown> {
    build_within(&FileLimits::new(version), version, settings, should_stop)
}

fn build_within(
    limits: &FileLimits,
    version: &SealedVersion,
    settings: &BuildSettings,
    should_stop: &(dyn Fn() -> bool + Sync),
) -> io::Result<SiteMarkdown> {
    let folder = tempfile::Builder::new().prefix("docwharf-").tempdir()?;
    let target = Directory::open(folder.path())?;
    build_site_markdown_within(version, settings, &target, &BuildProgress::default(), &|bytes| {
        if should_stop() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        limits.check(bytes, Instant::now())
    })?;
    SiteMarkdown::open(&target, version.id).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::test_versions::version_with_files;

    fn build(limits: &FileLimits, should_stop: &(dyn Fn() -> bool + Sync)) -> Result<u32, (io::ErrorKind, String)> {
        let version = version_with_files(&[("a.html", "<p>first"), ("b.html", "<p>second")], 0);
        let settings = BuildSettings { threads: 1, ..BuildSettings::default() };
        let built = build_within(limits, &version, &settings, should_stop);
        built.map(|file| file.pages()).map_err(|error| (error.kind(), error.to_string()))
    }

    #[test]
    fn a_file_that_takes_too_long_is_too_large_or_is_not_needed_is_not_made() {
        let version = version_with_files(&[("a.html", "<p>first")], 0);
        let limits = FileLimits::new(&version);
        assert_eq!(limits.max_bytes, (128 << 20) + 8);
        assert!(limits.deadline <= Instant::now() + MAX_FILE_TIME);
        assert_eq!(build(&limits, &|| false), Ok(2));
        let late = FileLimits { deadline: Instant::now(), ..limits };
        assert_eq!(build(&late, &|| false), Err((io::ErrorKind::TimedOut, "it has taken more than 60 minutes".into())));
        let deadline = Instant::now() + MAX_FILE_TIME;
        let (kind, why) = build(&FileLimits { deadline, max_bytes: 99 }, &|| false).unwrap_err();
        assert_eq!(kind, io::ErrorKind::Other);
        assert_eq!(why, "it is too large; for this site at most 99 B are allowed");
        // After the first page.
        let calls = AtomicUsize::new(0);
        let stopped =
            build(&FileLimits { deadline, max_bytes: 1 << 20 }, &|| calls.fetch_add(1, Ordering::Relaxed) == 2);
        assert_eq!(stopped.unwrap_err().0, io::ErrorKind::Interrupted);
        assert_eq!(calls.into_inner(), 3);
    }

    #[test]
    fn the_size_of_a_file_follows_the_size_of_the_site_up_to_a_bound() {
        assert_eq!(max_file_bytes(0), 128 << 20);
        assert_eq!(max_file_bytes(1 << 20), 129 << 20);
        assert_eq!(max_file_bytes(u64::MAX), 1 << 30);
    }
}
