//! Absolute addresses of the site, as canonical links and sitemaps write them, and the files they lead to.
//!
//! A bundle does not say where it will be served, and such addresses have the host and the path of the original site.
//! The path of the bundle is an end of that path: the longest one that leads to a file.

use std::collections::HashMap;

use docwharf_site::lookup::{LookupResult, Slashes, resolve_address};
use docwharf_site::sealed_version::SealedVersion;
use percent_encoding::percent_decode_str;

/// The names of the sitemap of a site.
const SITEMAP_NAMES: [&str; 3] = ["sitemap.xml", "sitemap-index.xml", "sitemap_index.xml"];
/// The maximum size of a sitemap in bytes. A larger one is not read.
const MAX_SITEMAP_BYTES: u64 = 16 << 20;
/// The maximum number of sitemaps that are read.
const MAX_SITEMAPS: usize = 50;
/// The maximum number of addresses that are read from sitemaps.
const MAX_SITEMAP_ADDRESSES: usize = 200_000;
/// The maximum number of folders of an address that can be those of the original site.
const MAX_OUTER_FOLDERS: usize = 8;
/// The maximum length of an address in bytes.
const MAX_ADDRESS_BYTES: usize = 4096;

/// A file of the site, and the address below the site's root that leads to it, without a leading slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SiteTarget {
    pub(super) file: usize,
    pub(super) address: String,
}

/// Returns the file to which a link of the page at `page_path` leads; `None` if it leads to no file of the site.
pub(super) fn find_target(version: &SealedVersion, page_path: &str, href: &str) -> Option<SiteTarget> {
    if href.len() > MAX_ADDRESS_BYTES {
        return None;
    }
    let end = href.find(['?', '#']).unwrap_or(href.len());
    let href = href[..end].trim();
    match absolute_path(href) {
        Some(path) => find_inner_path(version, &decode(path)?),
        None if has_scheme(href) || href.is_empty() => None,
        None => find_path(version, &join_relative(page_path, &decode(href)?)?),
    }
}

/// Returns the path of an address that starts with a scheme and host, with a host, or with a slash, without that slash.
fn absolute_path(href: &str) -> Option<&str> {
    let rest = match href.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => Some(rest),
        _ => href.strip_prefix("//"),
    };
    match rest {
        Some(rest) => Some(rest.split_once('/').map_or("", |(_, path)| path)),
        None => href.strip_prefix('/'),
    }
}

fn has_scheme(href: &str) -> bool {
    href.split(['/', '?']).next().is_some_and(|first| first.contains(':'))
}

/// Returns the decoded path; `None` if it is not UTF-8 or has control characters, which the server refuses.
fn decode(path: &str) -> Option<String> {
    let decoded = percent_decode_str(path).decode_utf8().ok()?;
    (!decoded.contains(char::is_control)).then(|| decoded.into_owned())
}

/// Resolves a relative path against the folder of a page.
fn join_relative(page_path: &str, relative: &str) -> Option<String> {
    let folder = page_path.rfind('/').map_or("", |slash| &page_path[..slash]);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    let mut is_folder = true;
    for part in relative.split('/') {
        is_folder = matches!(part, "" | "." | "..");
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    let mut path = parts.join("/");
    if is_folder && !path.is_empty() {
        path.push('/');
    }
    Some(path)
}

/// Finds the longest end of a path that leads to a file.
fn find_inner_path(version: &SealedVersion, path: &str) -> Option<SiteTarget> {
    let mut rest = path;
    for _ in 0..=MAX_OUTER_FOLDERS {
        if let Some(target) = find_path(version, rest) {
            return Some(target);
        }
        rest = rest.split_once('/')?.1;
    }
    None
}

fn find_path(version: &SealedVersion, path: &str) -> Option<SiteTarget> {
    match resolve_address(version, path.as_bytes(), Slashes::Serve) {
        LookupResult::File(file) => Some(SiteTarget { file, address: path.to_owned() }),
        LookupResult::Redirect(_) | LookupResult::NotFound => None,
    }
}

/// A file in a sitemap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SitemapEntry {
    /// The address, without a leading slash.
    pub(crate) address: String,
    /// The number of files before it.
    pub(crate) position: usize,
}

/// Reads the site's sitemaps. Returns the entry of each file that is in one.
pub(crate) fn read_sitemaps(version: &SealedVersion) -> HashMap<usize, SitemapEntry> {
    let mut addresses = HashMap::new();
    let mut sitemaps: Vec<usize> =
        SITEMAP_NAMES.iter().filter_map(|name| version.index().find(name.as_bytes())).collect();
    let mut next = 0;
    while let Some(&file) = sitemaps.get(next) {
        next += 1;
        for location in read_locations(version, file) {
            if addresses.len() >= MAX_SITEMAP_ADDRESSES {
                return addresses;
            }
            let Some(target) = find_target(version, SITEMAP_NAMES[0], &location) else { continue };
            if location.strip_suffix(".xml").is_some() {
                if sitemaps.len() < MAX_SITEMAPS && !sitemaps.contains(&target.file) {
                    sitemaps.push(target.file);
                }
            } else {
                let position = addresses.len();
                addresses.entry(target.file).or_insert(SitemapEntry { address: target.address, position });
            }
        }
    }
    addresses
}

fn read_locations(version: &SealedVersion, file: usize) -> Vec<String> {
    let entry = version.entry(file);
    if entry.len > MAX_SITEMAP_BYTES {
        return Vec::new();
    }
    let Ok(content) = version.content(&entry) else { return Vec::new() };
    let text = String::from_utf8_lossy(&content);
    let locations = text.split("<loc>").skip(1).filter_map(|rest| rest.split_once("</loc>"));
    locations.map(|(location, _)| read_location(location)).take(MAX_SITEMAP_ADDRESSES).collect()
}

fn read_location(text: &str) -> String {
    let text = text.trim();
    match text.strip_prefix("<![CDATA[").and_then(|text| text.strip_suffix("]]>")) {
        Some(text) => text.trim().to_owned(),
        None => text.replace("&amp;", "&"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_sites::seal_site;
    use super::*;

    #[test]
    fn a_link_leads_to_the_file_at_the_longest_end_of_its_path() {
        let version = seal_site(&[("index.html", ""), ("library/os.html", ""), ("os.html", ""), ("x/index.html", "")]);
        let target = |page: &str, href: &str| {
            let target = find_target(&version, page, href)?;
            let path = String::from_utf8(version.index().path(target.file).to_vec()).unwrap();
            Some(format!("{path} at /{}", target.address))
        };
        for (href, expected) in [
            ("https://docs.example/3/library/os.html#x", Some("library/os.html at /library/os.html")),
            ("https://docs.example/3/os", Some("os.html at /os")),
            ("//docs.example/library/os?x=/y", Some("library/os.html at /library/os")),
            ("/docs/x/", Some("x/index.html at /x/")),
            ("https://docs.example", Some("index.html at /")),
            ("https://docs.example/docs/", Some("index.html at /")),
            ("os.html", Some("library/os.html at /library/os.html")),
            ("../os.html", Some("os.html at /os.html")),
            ("../x/", Some("x/index.html at /x/")),
            ("./%6Fs.html", Some("library/os.html at /library/os.html")),
            ("../../os.html", None),
            ("mailto:os.html", None),
            ("", None),
            ("#x", None),
            ("/%00os.html", None),
            ("/%ff", None),
        ] {
            assert_eq!(target("library/re.html", href).as_deref(), expected, "{href}");
        }
        assert_eq!(target("re.html", &format!("/{}os.html", "a/".repeat(MAX_ADDRESS_BYTES))), None);
        assert_eq!(target("re.html", &format!("/{}os.html", "a/".repeat(MAX_OUTER_FOLDERS + 1))), None);
    }

    #[test]
    fn sitemaps_name_the_addresses_of_pages() {
        let sitemap = "<urlset><url><loc> https://x.example/docs/a </loc></url><url><loc>https://x.example/docs/b.html</loc>\
                       </url><url><loc>https://x.example/docs/missing</loc></url><loc>unclosed";
        let index = "<sitemapindex><sitemap><loc>https://x.example/docs/pages.xml</loc></sitemap>\
                     <sitemap><loc>https://x.example/docs/sitemap.xml</loc></sitemap></sitemapindex>";
        let pages = [("a.html", "1"), ("b.html", "2"), ("c.html", "3")];
        let cdata =
            sitemap.replace("<loc> https://x.example/docs/a </loc>", "<loc><![CDATA[https://x.example/a]]></loc>");
        let direct = seal_site(&[&pages[..], &[("sitemap.xml", sitemap)]].concat());
        let other_name = seal_site(&[&pages[..], &[("sitemap-index.xml", cdata.as_str())]].concat());
        let nested = seal_site(&[&pages[..], &[("pages.xml", sitemap), ("sitemap.xml", index)]].concat());
        for version in [&direct, &other_name, &nested] {
            let addresses = read_sitemaps(version);
            let entry = |path: &str| addresses.get(&version.index().find(path.as_bytes()).unwrap());
            let find = |path: &str| entry(path).map(|entry| (entry.address.as_str(), entry.position));
            assert_eq!((find("a.html"), find("b.html"), find("c.html")), (Some(("a", 0)), Some(("b.html", 1)), None));
        }
        assert!(read_sitemaps(&seal_site(&pages)).is_empty());
    }
}
