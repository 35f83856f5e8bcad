//! Address look-up through the whole handler: a site made up of a few files whose content is their path, asked at any
//! address.

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

use super::recipe::Recipe;

/// Components of paths that mean something to look-up.
const WORDS: [&str; 24] = [
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
/// What may stand between them in an address.
const JOINS: [&str; 12] = ["/", "/", "/", "//", "/./", "/../", "\\", "%2F", "%5c", "/%2e%2e/", "%252e", ";"];

pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// A site of these files, by path.
pub fn site(files: &BTreeMap<Vec<u8>, Vec<u8>>, settings: SiteSettings) -> Arc<Site> {
    let (mut image, mut entries, mut manifest) = (Vec::new(), Vec::new(), VersionManifest::default());
    for (path, content) in files {
        let (content_digest, len) = (Digest::of(content), content.len() as u64);
        let entry = IndexEntry {
            coding: EntryCompression::Stored,
            offset: image.len() as u64,
            coded_len: len,
            len,
            crc: crc32fast::hash(content),
            content: content_digest,
            coded_crc: 0,
            last_header_bit: 0,
            spare_bits: 0,
            modified: 1_000_000_000,
        };
        image.extend_from_slice(content);
        manifest.add(&content_digest, len, path);
        entries.push((&path[..], entry));
    }
    let (id, len) = (manifest.id(), image.len() as u64);
    let index = ImageIndex::decode(encode_index(len, id, &entries), len, id).expect("an index of these files");
    let site = Site::new(settings);
    site.set_version(SealedVersion::new(id, image.into(), index));
    site
}

/// Asks for a target; none if it can be none.
pub fn ask(site: &Site, method: Method, target: &str) -> Option<Answer> {
    let request = Request::builder().method(method).uri(target).header("host", "site.example").body(()).ok()?;
    Some(answer(site, &request))
}

/// Makes a request.
pub fn answer(site: &Site, request: &Request<()>) -> Answer {
    let response = handler::handle(site, request, None);
    let (head, mut body) = response.into_parts();
    let mut bytes = Vec::new();
    // Nothing is waited for: all bytes are there.
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut context) {
        bytes.extend(frame.into_data().expect("bytes").parts().concat());
    }
    Answer { status: head.status.as_u16(), headers: head.headers, body: bytes }
}

/// Files by a recipe, none of which is in another's way. Their content is their path.
fn files(recipe: &mut Recipe<'_>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut files = BTreeMap::new();
    for _ in 0..=recipe.below(8) {
        let words: Vec<&str> = (0..=recipe.below(3)).map(|_| recipe.one_of(&WORDS)).collect();
        let Ok(Some(path)) = SitePath::parse(words.join("/").as_bytes(), false) else { continue };
        let path = path.as_bytes().to_vec();
        let below = |a: &[u8], b: &[u8]| a.strip_prefix(b).is_some_and(|rest| rest.starts_with(b"/"));
        if files.keys().all(|other: &Vec<u8>| !below(other, &path) && !below(&path, other)) {
            files.insert(path.clone(), path);
        }
    }
    // Rules have a target of their own.
    for name in [&b"_redirects"[..], b"_headers"] {
        files.remove(name);
    }
    files
}

/// An address: words, or any bytes, in any spelling.
fn address(recipe: &mut Recipe<'_>, base: &str) -> String {
    if recipe.once_in(4) {
        return format!("/{}", String::from_utf8_lossy(recipe.bytes(60)));
    }
    let mut address = if recipe.once_in(8) { "/".to_owned() } else { base.to_owned() };
    for at in 0..recipe.below(5) {
        if at > 0 {
            address.push_str(recipe.one_of(&JOINS));
        }
        for byte in recipe.one_of(&WORDS).bytes() {
            let spell = recipe.below(8);
            match byte {
                b'?' | b'%' | b' ' | 0x80.. => _ = write!(address, "%{byte:02X}"),
                _ if spell == 1 => _ = write!(address, "%{byte:02x}"),
                _ if spell == 2 => _ = write!(address, "%25{byte:02x}"),
                _ => address.push(char::from(byte)),
            }
        }
    }
    address.push_str(recipe.one_of(&["", "", "/", "/index.html", ".html", "//", "/.", ".md"]));
    address
}

/// Once, and only pairs of digits.
fn decode(text: &str) -> Vec<u8> {
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

/// A query as it was asked, but for what none may have (RFC 3986, 3.4: `pchar`, `/` and `?`).
fn spelled(query: &str) -> String {
    let bytes = query.as_bytes();
    let hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    let spell = |(at, &byte): (usize, &u8)| match byte {
        b'%' if hex(at + 1) && hex(at + 2) => "%".to_owned(),
        _ if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?".contains(&byte) => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    bytes.iter().enumerate().map(spell).collect()
}

/// The files that an address may mean, the best first (rules B3).
fn meant(address: &[u8]) -> Vec<Vec<u8>> {
    let with = |stem: &[u8], end: &[u8]| [stem, end].concat();
    let is_page = |name: &[u8]| {
        let last = name.rsplit(|&b| b == b'/').next().unwrap_or_default();
        [&b".html"[..], b".htm"].iter().any(|end| last.len() > end.len() && last.to_ascii_lowercase().ends_with(end))
    };
    let page = |stem: &[u8]| -> Vec<Vec<u8>> {
        if stem.is_empty() || stem.ends_with(b"/") {
            return Vec::new();
        }
        let named = is_page(stem).then(|| stem.to_vec());
        named.into_iter().chain([with(stem, b".html"), with(stem, b"/index.html")]).collect()
    };
    let mut all = vec![address.to_vec()];
    if address.is_empty() {
        all.push(b"index.html".to_vec());
    } else if let Some(stem) = address.strip_suffix(b"/") {
        all.push(with(stem, b"/index.html"));
        all.extend(page(stem));
    } else {
        all.extend([with(address, b".html"), with(address, b"/index.html")]);
        if let Some(stem) = address.strip_suffix(b"/index.html").or_else(|| address.strip_suffix(b".html")) {
            all.extend(page(stem));
        }
    }
    all
}

fn is_hidden(path: &[u8]) -> bool {
    let mut components = path.split(|&b| b == b'/');
    components.clone().next() == Some(b"_docwharf")
        || components.any(|c| c.len() > 1 && c[0] == b'.' && c[1] != b'.' && c != b".well-known")
}

pub fn lookup(data: &[u8]) {
    let mut recipe = Recipe::new(data);
    let base = recipe.one_of(&["/", "/", "/docs/", "/a/b/"]);
    let slashes = recipe.one_of(&[Slashes::Serve, Slashes::Redirect]);
    let files = files(&mut recipe);
    let settings = |slashes| SiteSettings {
        base_path: base.to_owned(),
        slashes: Some(slashes),
        identity_cache: 0,
        asset_grace: Duration::ZERO,
        ..SiteSettings::default()
    };
    let asked = site(&files, settings(slashes));
    let target = address(&mut recipe, base);
    let query = recipe.one_of(&["", "", "?", "?a=b", "?x=%0d%0a&y=//"]);
    let target = format!("{target}{query}");
    let Some(answer) = ask(&asked, Method::GET, &target) else { return };

    // HEAD says the same.
    let head = ask(&asked, Method::HEAD, &target).expect("a target is one for every method");
    assert_eq!((head.status, &head.headers, &head.body[..]), (answer.status, &answer.headers, &b""[..]), "{target}");

    let raw_path = target.split('?').next().unwrap_or_default();
    // A fragment is no part of a target; http takes it off.
    let raw_path = raw_path.split('#').next().unwrap_or_default();
    let decoded = decode(raw_path);
    let inside = decoded.strip_prefix(base.as_bytes());
    match answer.status {
        200 => {
            let found = &answer.body;
            assert!(files.contains_key(found), "{target}: {:?}", String::from_utf8_lossy(found));
            assert!(!is_hidden(found), "{target}: hidden {:?}", String::from_utf8_lossy(found));
            let inside = inside.expect("what is served lies below where the site begins");
            let expected = model(&files, inside);
            match expected {
                Some(expected) => assert_eq!(found, &expected, "{target}"),
                // Markdown beside a page, and what assistants ask for.
                None => assert!(
                    (inside.ends_with(b".md") && found.ends_with(b".md"))
                        || (inside.ends_with(b"llms.txt") && found.ends_with(b"llms.txt")),
                    "{target}: {:?}",
                    String::from_utf8_lossy(found)
                ),
            }
        }
        307 => {
            let location = answer.headers["location"].to_str().expect("visible characters").to_owned();
            assert!(location.bytes().all(|b| b.is_ascii_graphic()), "{target}: {location:?}");
            assert!(location.starts_with(base), "{target}: {location:?} leads out of the site");
            assert!(!location.starts_with("//") && !location.starts_with("/\\"), "{target}: {location:?}");
            let home = url::Url::parse("http://site.example").and_then(|url| url.join(&location)).expect("a location");
            assert_eq!(home.host_str(), Some("site.example"), "{target}: {location:?}");
            let asked_query =
                target.split('#').next().and_then(|target| target.split_once('?')).map(|(_, query)| query);
            let spelled = asked_query.map(spelled);
            assert_eq!(location.split_once('?').map(|(_, query)| query.to_owned()), spelled, "{target}: {location:?}");
            let is_above = inside.is_none();
            let second = ask(&asked, Method::GET, &location).expect("a location is a target");
            if is_above {
                // To where the site begins, which may send on or have no page.
                assert_eq!(location.split('?').next(), Some(base));
            } else {
                assert_eq!(slashes, Slashes::Redirect, "{target}");
                assert_eq!(second.status, 200, "{target} leads to {location}, which is no page");
                let plain = ask(&site(&files, settings(Slashes::Serve)), Method::GET, &target).expect("a target");
                assert_eq!((plain.status, &plain.body), (200, &second.body), "{target} leads to {location}");
            }
        }
        400 => assert!(
            decoded.iter().any(|&b| b < 0x20 || b == 0x7f) || !raw_path.starts_with('/'),
            "{target} is an address"
        ),
        404 => {
            // Where rules would lie nothing is answered, also where a folder has that name.
            let inside = inside.filter(|inside| ![&b"_redirects"[..], b"_headers"].contains(inside));
            let model = inside.and_then(|inside| model(&files, inside));
            assert!(model.is_none(), "{target}: {:?} is there", String::from_utf8_lossy(&model.unwrap_or_default()));
            // The site's own page for what is missing, or ours: never what was asked for.
            assert!(answer.body.len() < 2000);
        }
        other => panic!("{target}: {} {:?}", other, StatusCode::from_u16(other)),
    }
}

fn model(files: &BTreeMap<Vec<u8>, Vec<u8>>, address: &[u8]) -> Option<Vec<u8>> {
    if is_hidden(address) {
        return None;
    }
    meant(address).into_iter().find(|path| files.contains_key(path))
}
