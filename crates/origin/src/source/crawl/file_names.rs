//! Chooses the file names of a copy. A page at `/a/b` is `a/b.html`, one at `/a/b/` is `a/b/index.html`. Any other file
//! keeps its name, and gets an extension if it has none that tells its type.
//!
//! Several addresses may have one preferred name: `/a` and `/a.html`, or `/a?x=1` and `/a?x=2`. If their content is
//! equal, they share a file. Otherwise the address with the first [`NameRank`] gets the name. The others get names with
//! a digest of their content, so that a cache never confuses two of them. Names depend on the site alone, not on the
//! order of its responses.

use std::collections::{BTreeMap, BTreeSet};

use docwharf_base::model::digest::Digest;
use docwharf_base::model::site_path::{MAX_COMPONENT_BYTES, SitePath, components, extension, is_hidden, is_page};
use docwharf_site::bundle::site_layout::SiteLayout;
use docwharf_site::lookup::RESERVED_FOLDER;
use docwharf_site::media_types::media_type;
use docwharf_site::rules::netlify_files::{HEADERS_FILE, REDIRECTS_FILE};

use super::address::SiteAddress;

/// Length in bytes to which a path component is cut if it is too long for a file name.
const TRUNCATED_COMPONENT_BYTES: usize = 100;
/// Extensions of programs that produce responses; they do not tell the type of the response.
const SERVER_PROGRAM_EXTENSIONS: [&str; 9] = ["php", "asp", "aspx", "ashx", "jsp", "jspx", "cgi", "do", "pl"];

/// A body that needs a file name.
#[derive(Debug, Clone)]
pub(super) struct NamingCandidate {
    pub(super) address: SiteAddress,
    /// The name that it gets unless a body with an earlier [`NameRank`] gets it.
    pub(super) preferred_name: Vec<u8>,
    /// How directly the address corresponds to the preferred name.
    pub(super) rank: NameRank,
    pub(super) digest: Digest,
    /// Whether its content changes with the file names of other bodies.
    pub(super) varies: bool,
}

/// How directly an address corresponds to a name; the first variant wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NameRank {
    /// The usual address of the name: a page without its extension, any other file with it.
    Plain,
    /// Another address that leads to the name.
    Other,
    /// An address with a query.
    Query,
    /// An address that had to be changed to become a legal name.
    Altered,
}

impl NamingCandidate {
    pub(super) fn new(
        address: SiteAddress,
        is_html: bool,
        media_type: &str,
        digest: Digest,
        varies: bool,
    ) -> NamingCandidate {
        let (preferred_name, is_altered) = choose_preferred_name(&address, is_html, media_type);
        let rank = match () {
            () if is_altered => NameRank::Altered,
            () if address.query.is_some() => NameRank::Query,
            () if (address.decoded_path()[1..] == preferred_name[..]) != is_html => NameRank::Plain,
            () => NameRank::Other,
        };
        NamingCandidate { address, preferred_name, rank, digest, varies }
    }
}

/// Returns the name of each candidate, in the order of the candidates.
pub(super) fn assign_names(candidates: &[NamingCandidate]) -> Vec<Vec<u8>> {
    let assets_digest = compute_assets_digest(candidates);
    let mut groups: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
    for (index, candidate) in candidates.iter().enumerate() {
        groups.entry(&candidate.preferred_name).or_default().push(index);
    }
    let mut names = vec![Vec::new(); candidates.len()];
    for (preferred_name, group) in &groups {
        let owner = find_owner(candidates, group);
        for &index in group {
            let candidate = &candidates[index];
            let is_own = owner == Some(&candidate.digest) && candidate.rank != NameRank::Altered;
            names[index] = if is_own { preferred_name.to_vec() } else { name_with_digest(candidate, &assets_digest) };
        }
    }
    // A file cannot have the path of a folder that other files need. Its new name contains a digest, so no other path
    // begins with it.
    let folders: BTreeSet<Vec<u8>> = names.iter().flat_map(|name| parent_folders(name)).map(<[u8]>::to_vec).collect();
    for (index, name) in names.iter_mut().enumerate() {
        if folders.contains(name) {
            *name = name_with_digest(&candidates[index], &assets_digest);
        }
    }
    names
}

/// Returns the digest of the content that gets the preferred name of a group, if any does.
fn find_owner<'a>(candidates: &'a [NamingCandidate], group: &[usize]) -> Option<&'a Digest> {
    let best =
        group.iter().map(|&index| &candidates[index]).min_by_key(|candidate| (candidate.rank, &candidate.address))?;
    match best.rank {
        NameRank::Plain | NameRank::Other => Some(&best.digest),
        // The response does not depend on the query.
        NameRank::Query if group.iter().all(|&index| candidates[index].digest == best.digest) => Some(&best.digest),
        NameRank::Query | NameRank::Altered => None,
    }
}

/// Returns a digest that changes with any file that a style sheet or manifest may name.
fn compute_assets_digest(candidates: &[NamingCandidate]) -> String {
    let assets = candidates.iter().filter(|candidate| !is_page(&candidate.preferred_name));
    let mut all: Vec<String> =
        assets.map(|candidate| format!("{} {}\n", candidate.digest.to_hex(), candidate.address)).collect();
    all.sort_unstable();
    Digest::compute(all.concat().as_bytes()).to_hex()
}

/// Returns the preferred name with a part of a digest before its extension.
fn name_with_digest(candidate: &NamingCandidate, assets_digest: &str) -> Vec<u8> {
    let assets_digest = if candidate.varies { assets_digest } else { "" };
    let altered = if candidate.rank == NameRank::Altered { candidate.address.to_string() } else { String::new() };
    let digest =
        Digest::compute(format!("{} {assets_digest} {altered}", candidate.digest.to_hex()).as_bytes()).to_hex();
    let name = &candidate.preferred_name;
    let start = name.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
    let dot =
        name[start..].iter().rposition(|&b| b == b'.').filter(|&dot| dot > 0).map_or(name.len(), |dot| start + dot);
    [&name[..dot], b".", &digest.as_bytes()[..16], &name[dot..]].concat()
}

/// Returns the folders that contain a file.
fn parent_folders(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    name.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(index, _)| &name[..index])
}

/// Returns the preferred name of an address, and whether the address had to be changed to become a legal name.
fn choose_preferred_name(address: &SiteAddress, is_html: bool, media_type: &str) -> (Vec<u8>, bool) {
    let mut is_altered = false;
    let mut parts = Vec::new();
    let path = &address.path[1..];
    let (path, is_folder) = path.strip_suffix('/').map_or((path, path.is_empty()), |path| (path, true));
    for written in path.split('/').filter(|_| !path.is_empty()) {
        let decoded_path: Vec<u8> = percent_encoding::percent_decode_str(written).collect();
        let part = legal_component(&decoded_path);
        is_altered |= part != decoded_path || part.is_empty();
        if !part.is_empty() {
            parts.push(part);
        }
    }
    if is_folder {
        parts.push(b"index".to_vec());
    }
    let mut name = parts.join(&b'/');
    if let Some(more) = missing_extension(&name, is_html, media_type) {
        name.push(b'.');
        name.extend_from_slice(more.as_bytes());
    }
    if !is_served(&name) {
        is_altered = true;
        let start = if name.starts_with(RESERVED_FOLDER) || name.get(1) == Some(&b':') {
            0
        } else {
            name.iter().rposition(|&b| b == b'/').map_or(0, |index| index + 1)
        };
        name.insert(start, b'-');
    }
    (name, is_altered)
}

/// Returns a legal form of a path component: not hidden, and without characters that a server rejects in an address.
fn legal_component(part: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> =
        part.iter().map(|&b| if b < 0x20 || matches!(b, b'/' | b'\\' | 0x7f) { b'-' } else { b }).collect();
    if out.starts_with(b".") && out != b".well-known" {
        out[0] = b'-';
    }
    if out == b"__MACOSX" {
        out[0] = b'-';
    }
    // Leave space for an extension and a digest.
    if out.len() > MAX_COMPONENT_BYTES - 40 {
        out.truncate(TRUNCATED_COMPONENT_BYTES);
    }
    out
}

fn is_served(name: &[u8]) -> bool {
    let reserved = components(name).next() == Some(RESERVED_FOLDER)
        || name == REDIRECTS_FILE.as_bytes()
        || name == HEADERS_FILE.as_bytes();
    let Ok(Some(path)) = SitePath::parse(name, true) else { return false };
    // Launchers and files that operating systems leave behind are not content (docs/design/archives.md, rule 12).
    let index = SitePath::parse(b"index.html", false).ok().flatten();
    let is_content = SiteLayout::detect(index.iter()).is_ok_and(|site_layout| site_layout.site_path(&path).is_some());
    !reserved && !is_hidden(name) && is_content
}

/// Returns the extension that a name needs so that a static file server knows its type; `None` if it needs none.
fn missing_extension(name: &[u8], is_html: bool, media_type_text: &str) -> Option<&'static str> {
    if is_html {
        return (!is_page(name)).then_some("html");
    }
    let name_extension = extension(name).filter(|extension| !SERVER_PROGRAM_EXTENSIONS.contains(&extension.as_str()));
    let is_known = name_extension.is_some() && media_type(name).is_some() && !is_page(name);
    if is_known { None } else { extension_of(media_type_text) }
}

fn extension_of(media_type_text: &str) -> Option<&'static str> {
    Some(match media_type_text {
        "text/css" => "css",
        "text/javascript" | "application/javascript" | "application/x-javascript" => "js",
        "application/json" => "json",
        "application/manifest+json" => "webmanifest",
        "application/xml" | "text/xml" | "application/rss+xml" | "application/atom+xml" => "xml",
        "text/plain" => "txt",
        "text/markdown" => "md",
        "text/x-component" => "rsc",
        "image/jpeg" => "jpg",
        "image/svg+xml" => "svg",
        "image/x-icon" | "image/vnd.microsoft.icon" => "ico",
        "image/png" => "png",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "image/avif" => "avif",
        "font/woff" => "woff",
        "font/woff2" => "woff2",
        "audio/mpeg" => "mp3",
        "video/mp4" => "mp4",
        "video/webm" => "webm",
        "application/pdf" => "pdf",
        "application/zip" => "zip",
        "application/wasm" => "wasm",
        "text/csv" => "csv",
        "text/vtt" => "vtt",
        // An unknown type gets no extension.
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(address: &str, media_type: &str, content: &str) -> NamingCandidate {
        let (path, query) = address.split_once('?').map_or((address, None), |(path, query)| (path, Some(query)));
        let address = SiteAddress { query: query.map(str::to_owned), ..SiteAddress::from_path(path) };
        NamingCandidate::new(address, media_type == "text/html", media_type, Digest::compute(content.as_bytes()), false)
    }

    /// Digests are shown as `#`.
    fn named(candidates: &[(&str, &str, &str)]) -> Vec<String> {
        let candidates: Vec<NamingCandidate> =
            candidates.iter().map(|(address, media_type, content)| candidate(address, media_type, content)).collect();
        let shown = |name: &[u8]| {
            let text = String::from_utf8(name.to_vec()).unwrap();
            let is_digest = |part: &str| part.len() == 16 && part.bytes().all(|b| b.is_ascii_hexdigit());
            text.split('.').map(|part| if is_digest(part) { "#" } else { part }).collect::<Vec<_>>().join(".")
        };
        assign_names(&candidates).iter().map(|name| shown(name)).collect()
    }

    #[test]
    fn a_crawled_address_without_conflicts_gets_its_natural_file_name() {
        for (address, media_type, name) in [
            ("/", "text/html", "index.html"),
            ("/a/b", "text/html", "a/b.html"),
            ("/a/b/", "text/html", "a/b/index.html"),
            ("/a.html", "text/html", "a.html"),
            ("/a.php", "text/html", "a.php.html"),
            ("/v1.0", "text/html", "v1.0.html"),
            ("/caf%C3%A9", "text/html", "café.html"),
            ("/a.css", "text/css", "a.css"),
            ("/a.css?v=3", "text/css", "a.css"),
            ("/feed/", "application/rss+xml", "feed/index.xml"),
            ("/data", "application/json", "data.json"),
            ("/pic.php", "image/png", "pic.php.png"),
            ("/a.html", "text/plain", "a.html.txt"),
            ("/LICENSE", "application/octet-stream", "LICENSE"),
            ("/.well-known/x.txt", "text/plain", ".well-known/x.txt"),
        ] {
            assert_eq!(named(&[(address, media_type, "x")]), [name], "{address}");
        }
    }

    #[test]
    fn crawled_addresses_with_unusable_file_names_get_names_that_are_served() {
        for (address, media_type, name) in [
            ("/.env", "text/plain", "-env.#.txt"),
            ("/_docwharf/x", "text/html", "-_docwharf/x.#.html"),
            ("/_redirects", "text/plain", "_redirects.txt"),
            ("/_redirects", "", "-_redirects.#"),
            ("/serve.js", "text/javascript", "-serve.#.js"),
            ("/a%2Fb", "text/html", "a-b.#.html"),
            ("/a//b", "text/html", "a/b.#.html"),
            ("/C:/a", "text/html", "-C:/a.#.html"),
        ] {
            let names = named(&[(address, media_type, "x")]);
            assert_eq!(names, [name], "{address}");
            assert!(is_served(names[0].replace('#', "0123456789abcdef").as_bytes()), "{names:?}");
        }
        let long = format!("/{}", "x".repeat(300));
        assert!(is_served(named(&[(&long, "text/html", "x")])[0].as_bytes()));
    }

    #[test]
    fn the_simplest_of_conflicting_addresses_has_the_name_and_equal_files_share_one() {
        let html = "text/html";
        assert_eq!(named(&[("/a", html, "1"), ("/a/", html, "2")]), ["a.html", "a/index.html"]);
        assert_eq!(named(&[("/a", html, "1"), ("/a.html", html, "1")]), ["a.html", "a.html"]);
        assert_eq!(named(&[("/a", html, "1"), ("/a.html", html, "2")]), ["a.html", "a.#.html"]);
        assert_eq!(
            named(&[("/a", html, "1"), ("/a?x=1", html, "1"), ("/a?x=2", html, "2")]),
            ["a.html", "a.html", "a.#.html"]
        );
        assert_eq!(named(&[("/a?x=1", html, "1"), ("/a?x=2", html, "2")]), ["a.#.html", "a.#.html"]);
        assert_eq!(named(&[("/a?x=1", html, "1"), ("/a?x=2", html, "1")]), ["a.html", "a.html"]);
    }

    #[test]
    fn a_file_is_renamed_if_its_name_is_also_a_folder() {
        let names = named(&[("/a", "application/octet-stream", "1"), ("/a/b", "text/html", "2")]);
        assert_eq!(names, ["a.#", "a/b.html"]);
        let names = named(&[("/a.html", "text/html", "1"), ("/a.html/b", "text/html", "2")]);
        assert_eq!(names, ["a.#.html", "a.html/b.html"]);
    }
}
