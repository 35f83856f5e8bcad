//! The payloads (React Server Component flight data) of Next.js exports: the addresses that the Next.js client
//! requests, and the names that an export may have for them.
//!
//! For a page at `/x` the client fetches `/x.txt`, for a page at `/x/` it fetches `/x/index.txt`. The export has one of
//! the two, depending on its `trailingSlash`. Before that the client fetches segments of the page, such as
//! `/x/__next.x.__PAGE__.txt`. An export that was built on Windows has folders where those names have dots:
//! `x/__next.x/__PAGE__.txt`.

use super::site_files::SiteFiles;
use super::unserved_paths::is_never_served;

/// The extensions of payloads; `.rsc` where a hosting service has renamed them.
const PAYLOAD_EXTENSIONS: [&[u8]; 2] = [b".txt", b".rsc"];
/// The prefix of a segment's file name, up to its first dot.
const SEGMENT_PREFIX: &[u8] = b"__next";

/// Finds the payload for an address at which the site has no file, and returns its file number (see [`SiteFiles`]). The
/// address is decoded, without its leading slash.
pub(super) fn find_payload(site: &impl SiteFiles, address: &[u8]) -> Option<usize> {
    let ending = PAYLOAD_EXTENSIONS.into_iter().find(|ending| address.ends_with(ending))?;
    let stem = &address[..address.len() - ending.len()];
    if let Some(segments_start) = find_segments_start(stem) {
        return find_other_form(site, stem, segments_start, ending);
    }
    let other_name = match stem.strip_suffix(b"/index") {
        Some(page) => [page, ending].concat(),
        None => [stem, b"/index", ending].concat(),
    };
    if is_never_served(&other_name) { None } else { site.find(&other_name) }
}

/// Returns the offset at which the segments begin in `x/__next.a.b` and `x/__next.a/b`: that of their first dot.
fn find_segments_start(stem: &[u8]) -> Option<usize> {
    let mut component_start = 0;
    for component in stem.split(|&b| b == b'/') {
        if component.strip_prefix(SEGMENT_PREFIX).is_some_and(|rest| rest.starts_with(b".")) {
            return Some(component_start + SEGMENT_PREFIX.len());
        }
        component_start += component.len() + 1;
    }
    None
}

/// Looks up the segments of `stem` with slashes in place of dots, or dots in place of slashes. The name of a segment
/// contains neither: Next.js uses letters, digits, `-`, `_`, `@`, `$` and `!`.
fn find_other_form(site: &impl SiteFiles, stem: &[u8], segments_start: usize, ending: &[u8]) -> Option<usize> {
    let first = segments_start + 1;
    let is_nested = stem[first..].contains(&b'/');
    let (from, to) = if is_nested { (b'/', b'.') } else { (b'.', b'/') };
    let mut other_name = stem.to_vec();
    for byte in &mut other_name[first..] {
        if *byte == from {
            *byte = to;
        }
    }
    other_name.extend_from_slice(ending);
    site.find(&other_name)
}

#[cfg(test)]
mod tests {
    use super::super::site_files::path_list::PathListSite;
    use super::*;

    #[test]
    fn next_payloads_and_segments_are_found_under_the_names_of_both_exports() {
        let files = [
            "x.txt",
            "y/index.txt",
            "r.rsc",
            "x/__next.x.$d$slug.__PAGE__.txt",
            "y/__next.y/deep/__PAGE__.txt",
            "__next._tree.txt",
        ];
        for (address, file) in [
            ("x/index.txt", "x.txt"),
            ("y.txt", "y/index.txt"),
            ("r/index.rsc", "r.rsc"),
            ("x/__next.x/$d$slug/__PAGE__.txt", "x/__next.x.$d$slug.__PAGE__.txt"),
            ("y/__next.y.deep.__PAGE__.txt", "y/__next.y/deep/__PAGE__.txt"),
        ] {
            assert_eq!(
                find_payload(&PathListSite(&files), address.as_bytes()).map(|i| files[i]),
                Some(file),
                "{address}"
            );
        }
        for address in [
            "x/index.html",
            "z.txt",
            ".txt",
            "/index.txt",
            "index.txt",
            "x/__next..txt",
            "x/__next.txt",
            "y/__next.y.deep/__PAGE__.txt",
            "y/__next/y/deep/__PAGE__.txt",
            "y/index.rsc",
        ] {
            assert_eq!(find_payload(&PathListSite(&files), address.as_bytes()), None, "{address}");
        }
    }
}
