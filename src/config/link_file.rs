//! The file of `staticExport.bundleUrlFile`: the location of the bundle, usually a signed link, as a secret that is
//! mounted into a container or written by another program. It is read with the configuration, and read again when it
//! changes.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use docwharf_agent::sync::{BUNDLE_URL_FILE_KEY, BUNDLE_URL_KEY, BundleLocation};
use docwharf_base::key_file::secret_file_advice;
use docwharf_base::model::deployment::OutboundPolicy;
use docwharf_base::regular_file;
use docwharf_base::secret::Secret;

use super::checker::ValueChecker;
use super::deployment::check_outbound_url;
use super::value_parsers::parse_bundle;

/// Upper bound of the file's size in bytes, including white space around the link.
pub const MAX_LINK_FILE_BYTES: u64 = 64 << 10;

/// Returns the location of the bundle, and the file that contains it if it is not in the configuration.
pub(super) fn check_bundle(
    checker: &mut ValueChecker<'_>,
    base_of: &dyn Fn(&str) -> PathBuf,
    outbound: &OutboundPolicy,
) -> (Option<BundleLocation>, Option<PathBuf>) {
    let base = base_of(BUNDLE_URL_KEY);
    let bundle = checker.parsed(BUNDLE_URL_KEY, |text| permitted(parse_bundle(text, &base)?, outbound));
    let file = checker.text(BUNDLE_URL_FILE_KEY).map(|path| base_of(BUNDLE_URL_FILE_KEY).join(path));
    let Some(file) = file.map(|file| checker.raw.credentials.source_of(file)) else { return (bundle, None) };
    if checker.raw.get(BUNDLE_URL_KEY).is_some() {
        checker.value::<()>(BUNDLE_URL_FILE_KEY, |_| {
            Err(format!("{BUNDLE_URL_KEY} is set, too: remove one of them, because only one can have the link"))
        });
        return (None, None);
    }
    let bundle = match read_link_file(&file) {
        Ok(location) => permitted(location, outbound),
        // Not a mistake of the configuration: the file may be mounted, filled or corrected later.
        Err(error) => Ok(BundleLocation::Unreadable { file: file.clone(), error }),
    };
    match bundle {
        Ok(bundle) => (Some(bundle), Some(file)),
        Err(why) => {
            checker.file_problems(BUNDLE_URL_FILE_KEY, &file, &[why]);
            (None, None)
        }
    }
}

/// Returns the location if docwharf may connect to it.
fn permitted(location: BundleLocation, outbound: &OutboundPolicy) -> Result<BundleLocation, String> {
    match location {
        BundleLocation::Link(url) => check_outbound_url(url, outbound).map(BundleLocation::Link),
        other => Ok(other),
    }
}

/// Reads the location of a bundle from a file. White space around it is removed, such as the newline that editors
/// append. The error names the file and the key; it never quotes the content, which may be a secret.
fn read_link_file(path: &Path) -> Result<BundleLocation, String> {
    let name = format!("{} ({BUNDLE_URL_FILE_KEY})", path.display());
    // Overwritten with zeros when it is dropped, as the link itself.
    let text = regular_file::read_text(path, MAX_LINK_FILE_BYTES).map(Secret::new).map_err(|error| {
        format!("cannot read the link to the bundle from {name}: {error}{}", secret_file_advice(&error, "the link"))
    })?;
    parse_content(text.expose().trim()).map_err(|fault| format!("{name}: {fault}"))
}

fn parse_content(text: &str) -> Result<BundleLocation, String> {
    if text.is_empty() {
        return Err("it is empty; write the link to the bundle into it".to_owned());
    }
    if text.contains(['\n', '\r']) {
        return Err("it has more than one line; it must contain one link and nothing else".to_owned());
    }
    // A URL parser removes tabs: the link would be another one than the file appears to have.
    if text.contains(char::is_control) {
        return Err("it has control characters; it must contain one link and nothing else".to_owned());
    }
    // A relative path would depend on the place of this file. Besides, a text without a scheme is rather a placeholder
    // or a part of a link.
    let has_scheme = text.contains("://") || text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("file:"));
    if !has_scheme && !text.starts_with('/') {
        return Err("it has neither a link (https://…) nor a file URL nor an absolute path".to_owned());
    }
    parse_bundle(text, Path::new("/"))
}

/// Returns the warning about a file with a link that users besides its owner and its group may access.
pub fn mode_warning(file: &Path) -> Option<String> {
    let mode = std::fs::metadata(file).ok()?.permissions().mode();
    (mode & 0o007 != 0).then(|| {
        format!("{} ({BUNDLE_URL_FILE_KEY}) is open to more than owner and group: chmod 0640 it", file.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_file_has_one_link_file_url_or_absolute_path_with_white_space_around_it() {
        let link = |text| docwharf_base::secret::SafeUrl::parse(text).map(BundleLocation::Link);
        let file = |path: &str| Ok(BundleLocation::File(path.into()));
        for (text, expected) in [
            ("https://b.example/a.zip?sig=s3cret", link("https://b.example/a.zip?sig=s3cret")),
            ("\n  HTTPS://b.example/a.zip \r\n\n", link("https://b.example/a.zip")),
            ("file:///srv/a%20b.zip\n", file("/srv/a b.zip")),
            ("FILE:/srv/b.zip", file("/srv/b.zip")),
            ("/srv/my bundle.zip", file("/srv/my bundle.zip")),
        ] {
            assert_eq!(parse_content(text.trim()), expected, "{text:?}");
        }
    }

    #[test]
    fn a_link_file_without_one_usable_link_is_an_error_that_does_not_quote_it() {
        for (text, expected) in [
            (" \n\t", "it is empty"),
            ("https://b.example/a?sig=s3cret\nhttps://b.example/b?sig=s3cret", "it has more than one line"),
            ("https://b.example/a?sig=s3cret\r# comment", "it has more than one line"),
            ("https://b.example/a?\tsig=s3cret", "it has control characters"),
            ("https://b.example/\0s3cret", "it has control characters"),
            ("s3cret.zip", "it has neither a link"),
            ("b.example/a.zip?sig=s3cret", "it has neither a link"),
            ("https:b.example/a?sig=s3cret", "it has neither a link"),
            ("/srv/a.zip?sig=s3cret", "a link begins with https://"),
            ("s3://bucket/s3cret", "bundles come from https, http, a file URL or a path, not from \"s3\""),
            ("file:///srv/a.zip?sig=s3cret", "a file URL has no query"),
            ("https://?sig=s3cret", "it is not a URL"),
        ] {
            let why = parse_content(text.trim()).unwrap_err();
            assert!(why.starts_with(expected) && !why.contains("s3cret"), "{text:?}: {why}");
        }
    }

    #[test]
    fn a_link_file_is_read_up_to_its_bound_and_never_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("link");
        let name = format!("{} (staticExport.bundleUrlFile)", path.display());
        let refusal = |part: &str| {
            let why = read_link_file(&path).unwrap_err();
            assert!(why.starts_with(&format!("cannot read the link to the bundle from {name}: ")), "{why}");
            assert!(why.contains(part), "{why}");
        };
        refusal("No such file");
        let link = "https://b.example/a.zip?sig=";
        let padding = usize::try_from(MAX_LINK_FILE_BYTES).unwrap() - link.len();
        std::fs::write(&path, format!("{link}{}", "0".repeat(padding))).unwrap();
        assert!(matches!(read_link_file(&path), Ok(BundleLocation::Link(_))));
        std::fs::write(&path, format!("{link}{}", "0".repeat(padding + 1))).unwrap();
        refusal("larger than 65536 bytes");
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        refusal("not UTF-8");
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        refusal("found a named pipe");
    }

    #[test]
    fn link_file_that_others_can_read_is_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("link");
        std::fs::write(&path, "x").unwrap();
        for (mode, is_warned) in
            [(0o600, false), (0o640, false), (0o440, false), (0o644, true), (0o660, false), (0o601, true)]
        {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(mode_warning(&path).is_some(), is_warned, "{mode:o}");
        }
        assert_eq!(mode_warning(&folder.path().join("none")), None);
    }
}
