//! Path lookup through the complete request handler: requests of any address to a site of a few files. The content of a
//! file is its path.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use docwharf::model::digest::Digest;
use docwharf::model::site_path::SitePath;
use docwharf::model::version::VersionManifest;
use docwharf::serve::{Site, SiteSettings, handler};
use docwharf::site::index::{EntryCompression, ImageIndex, IndexEntry, encode_index};
use docwharf::site::lookup::Slashes;
use docwharf::site::sealed_version::SealedVersion;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body::Body as _;

use super::fuzz_input::FuzzInput;

/// Path components that the lookup treats specially.
const COMPONENTS: [&str; 24] = [
    "index.html",
    "x",
    "x.html",
    "index",
    "a",
    "a.html",
    "b.css",
    ".git",
    "_docwharf",
    "x.md",
    "404.html",
    ".html",
    "..a",
    "[[...slug]]",
    "%2e",
    "%2f",
    "é",
    ".well-known",
    "index.md",
    "llms.txt",
    "x.htm",
    "a b",
    "_redirects",
    "q?r",
];
/// Separators between the components of an address.
const SEPARATORS: [&str; 12] = ["/", "/", "/", "//", "/./", "/../", "\\", "%2F", "%5c", "/%2e%2e/", "%252e", ";"];

pub struct Response {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// Makes a site of the files; the keys are their paths.
pub fn make_site(files: &BTreeMap<Vec<u8>, Vec<u8>>, settings: SiteSettings) -> Arc<Site> {
    let (mut image, mut entries, mut manifest) = (Vec::new(), Vec::new(), VersionManifest::default());
    for (path, content) in files {
        let (content_digest, len) = (Digest::compute(content), content.len() as u64);
        let entry = IndexEntry {
            compression: EntryCompression::Stored,
            offset: image.len() as u64,
            compressed_len: len,
            len,
            crc: crc32fast::hash(content),
            content: content_digest,
            compressed_crc: 0,
            last_block_bit: 0,
            spare_bits: 0,
            modified: 1_000_000_000,
        };
        image.extend_from_slice(content);
        manifest.add(&content_digest, len, path);
        entries.push((&path[..], entry));
    }
    let (id, len) = (manifest.id(), image.len() as u64);
    let index = ImageIndex::decode(encode_index(len, id, &entries), len, id).expect("the index is valid");
    let site = Site::new(settings);
    site.set_version(SealedVersion::new(id, image.into(), index));
    site
}

/// Requests a target. `None` if the target is no valid URI.
pub fn request_target(site: &Site, method: Method, target: &str) -> Option<Response> {
    let request = Request::builder().method(method).uri(target).header("host", "site.example").body(()).ok()?;
    Some(respond(site, &request))
}

/// Handles a request and reads the complete body.
pub fn respond(site: &Site, request: &Request<()>) -> Response {
    let response = handler::handle(site, request, None);
    let (head, mut body) = response.into_parts();
    let mut bytes = Vec::new();
    // The body never waits: all its bytes are in memory.
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut context) {
        bytes.extend(frame.into_data().expect("bytes").parts().concat());
    }
    Response { status: head.status.as_u16(), headers: head.headers, body: bytes }
}

/// Makes files from the input. No file has the path of another file's folder.
fn make_files(input: &mut FuzzInput<'_>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut files = BTreeMap::new();
    for _ in 0..=input.below(8) {
        let components: Vec<&str> = (0..=input.below(3)).map(|_| input.one_of(&COMPONENTS)).collect();
        let Ok(Some(path)) = SitePath::parse(components.join("/").as_bytes(), false) else { continue };
        let path = path.as_bytes().to_vec();
        let is_below = |a: &[u8], b: &[u8]| a.strip_prefix(b).is_some_and(|rest| rest.starts_with(b"/"));
        if files.keys().all(|other: &Vec<u8>| !is_below(other, &path) && !is_below(&path, other)) {
            files.insert(path.clone(), path);
        }
    }
    // Rules have a separate target.
    for name in [&b"_redirects"[..], b"_headers"] {
        files.remove(name);
    }
    files
}

/// Makes an address from the input: components in any encoding, or any bytes.
fn make_address(input: &mut FuzzInput<'_>, base: &str) -> String {
    if input.once_in(4) {
        return format!("/{}", String::from_utf8_lossy(input.bytes(60)));
    }
    let mut address = if input.once_in(8) { "/".to_owned() } else { base.to_owned() };
    for n in 0..input.below(5) {
        if n > 0 {
            address.push_str(input.one_of(&SEPARATORS));
        }
        for byte in input.one_of(&COMPONENTS).bytes() {
            let encoding = input.below(8);
            match byte {
                b'?' | b'%' | b' ' | 0x80.. => _ = write!(address, "%{byte:02X}"),
                _ if encoding == 1 => _ = write!(address, "%{byte:02x}"),
                _ if encoding == 2 => _ = write!(address, "%25{byte:02x}"),
                _ => address.push(char::from(byte)),
            }
        }
    }
    address.push_str(input.one_of(&["", "", "/", "/index.html", ".html", "//", "/.", ".md"]));
    address
}

/// Percent-decodes once. A `%` without two hexadecimal digits stays.
fn percent_decode(text: &str) -> Vec<u8> {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        let hex = |at: usize| bytes.get(at).and_then(|&b| char::from(b).to_digit(16));
        if let (b'%', Some(high), Some(low)) = (bytes[at], hex(at + 1), hex(at + 2)) {
            out.push((high * 16 + low) as u8);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    out
}

/// The query with all characters encoded that a query cannot contain (RFC 3986, 3.4: `pchar`, `/` and `?`).
fn encode_query(query: &str) -> String {
    let bytes = query.as_bytes();
    let is_hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    let encode = |(at, &byte): (usize, &u8)| match byte {
        b'%' if is_hex(at + 1) && is_hex(at + 2) => "%".to_owned(),
        _ if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?".contains(&byte) => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    bytes.iter().enumerate().map(encode).collect()
}

/// The paths that an address can resolve to, in order of preference (rules B3).
fn candidate_paths(address: &[u8]) -> Vec<Vec<u8>> {
    let join = |stem: &[u8], end: &[u8]| [stem, end].concat();
    let is_page = |name: &[u8]| {
        let last = name.rsplit(|&b| b == b'/').next().unwrap_or_default();
        [&b".html"[..], b".htm"].iter().any(|end| last.len() > end.len() && last.to_ascii_lowercase().ends_with(end))
    };
    let page_paths = |stem: &[u8]| -> Vec<Vec<u8>> {
        if stem.is_empty() || stem.ends_with(b"/") {
            return Vec::new();
        }
        let same_name = is_page(stem).then(|| stem.to_vec());
        same_name.into_iter().chain([join(stem, b".html"), join(stem, b"/index.html")]).collect()
    };
    let mut candidates = vec![address.to_vec()];
    if address.is_empty() {
        candidates.push(b"index.html".to_vec());
    } else if let Some(stem) = address.strip_suffix(b"/") {
        candidates.push(join(stem, b"/index.html"));
        candidates.extend(page_paths(stem));
    } else {
        candidates.extend([join(address, b".html"), join(address, b"/index.html")]);
        if let Some(stem) = address.strip_suffix(b"/index.html").or_else(|| address.strip_suffix(b".html")) {
            candidates.extend(page_paths(stem));
        }
    }
    candidates
}

fn is_hidden(path: &[u8]) -> bool {
    let mut components = path.split(|&b| b == b'/');
    components.clone().next() == Some(b"_docwharf")
        || components.any(|c| c.len() > 1 && c[0] == b'.' && c[1] != b'.' && c != b".well-known")
}

pub fn lookup(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    let base = input.one_of(&["/", "/", "/docs/", "/a/b/"]);
    let slashes = input.one_of(&[Slashes::Serve, Slashes::Redirect]);
    let files = make_files(&mut input);
    let settings = |slashes| SiteSettings {
        base_path: base.to_owned(),
        slashes: Some(slashes),
        identity_cache: 0,
        asset_grace: Duration::ZERO,
        ..SiteSettings::default()
    };
    let requested_site = make_site(&files, settings(slashes));
    let target = make_address(&mut input, base);
    let query = input.one_of(&["", "", "?", "?a=b", "?x=%0d%0a&y=//"]);
    let target = format!("{target}{query}");
    let Some(response) = request_target(&requested_site, Method::GET, &target) else { return };

    // HEAD gets the same status and fields.
    let head = request_target(&requested_site, Method::HEAD, &target).expect("the target is valid for each method");
    assert_eq!(
        (head.status, &head.headers, &head.body[..]),
        (response.status, &response.headers, &b""[..]),
        "{target}"
    );

    let raw_path = target.split('?').next().unwrap_or_default();
    // A fragment is not part of a target. The `http` crate removes it.
    let raw_path = raw_path.split('#').next().unwrap_or_default();
    let decoded = percent_decode(raw_path);
    let site_path = decoded.strip_prefix(base.as_bytes());
    match response.status {
        200 => {
            let served_path = &response.body;
            assert!(files.contains_key(served_path), "{target}: {:?}", String::from_utf8_lossy(served_path));
            assert!(
                !is_hidden(served_path),
                "{target}: the hidden file {:?} is served",
                String::from_utf8_lossy(served_path)
            );
            let site_path = site_path.expect("a served file is below the base path");
            let expected = find_expected(&files, site_path);
            match expected {
                Some(expected) => assert_eq!(served_path, &expected, "{target}"),
                // The Markdown version of a page, or llms.txt.
                None => assert!(
                    (site_path.ends_with(b".md") && served_path.ends_with(b".md"))
                        || (site_path.ends_with(b"llms.txt") && served_path.ends_with(b"llms.txt")),
                    "{target}: {:?}",
                    String::from_utf8_lossy(served_path)
                ),
            }
        }
        307 => {
            let location = response.headers["location"].to_str().expect("visible characters").to_owned();
            assert!(location.bytes().all(|b| b.is_ascii_graphic()), "{target}: {location:?}");
            assert!(location.starts_with(base), "{target}: {location:?} is outside the site");
            assert!(!location.starts_with("//") && !location.starts_with("/\\"), "{target}: {location:?}");
            let location_url = url::Url::parse("http://site.example")
                .and_then(|url| url.join(&location))
                .expect("the location is valid");
            assert_eq!(location_url.host_str(), Some("site.example"), "{target}: {location:?}");
            let query = target.split('#').next().and_then(|target| target.split_once('?')).map(|(_, query)| query);
            let expected_query = query.map(encode_query);
            assert_eq!(
                location.split_once('?').map(|(_, query)| query.to_owned()),
                expected_query,
                "{target}: {location:?}"
            );
            let is_outside_site = site_path.is_none();
            let second = request_target(&requested_site, Method::GET, &location).expect("a location is a valid target");
            if is_outside_site {
                // The redirect leads to the base path, which may redirect again or have no page.
                assert_eq!(location.split('?').next(), Some(base));
            } else {
                assert_eq!(slashes, Slashes::Redirect, "{target}");
                assert_eq!(second.status, 200, "{target} redirects to {location}, which is not served");
                let site = make_site(&files, settings(Slashes::Serve));
                let direct = request_target(&site, Method::GET, &target).expect("the target is valid");
                assert_eq!((direct.status, &direct.body), (200, &second.body), "{target} redirects to {location}");
            }
        }
        400 => {
            assert!(decoded.iter().any(|&b| b < 0x20 || b == 0x7f) || !raw_path.starts_with('/'), "{target} is valid");
        }
        404 => {
            // The paths of rule files are never served, not even if a folder has that name.
            let site_path = site_path.filter(|path| ![&b"_redirects"[..], b"_headers"].contains(path));
            let expected = site_path.and_then(|path| find_expected(&files, path));
            assert!(
                expected.is_none(),
                "{target}: {:?} exists",
                String::from_utf8_lossy(&expected.unwrap_or_default())
            );
            // The site's 404 page or docwharf's: never the requested file.
            assert!(response.body.len() < 2000);
        }
        other => panic!("{target}: {} {:?}", other, StatusCode::from_u16(other)),
    }
}

/// The path of the file that must be served for an address.
fn find_expected(files: &BTreeMap<Vec<u8>, Vec<u8>>, address: &[u8]) -> Option<Vec<u8>> {
    if is_hidden(address) {
        return None;
    }
    candidate_paths(address).into_iter().find(|path| files.contains_key(path))
}
