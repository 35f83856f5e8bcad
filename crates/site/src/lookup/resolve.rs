//! Finds the file of a site for an address, or another address of the same page. This module does no I/O. It uses
//! the paths of the site, its Markdown files and whether it is a Next.js export, but no rules.

use docwharf_base::model::site_path::is_page;

use super::next_payloads;
use super::site_files::SiteFiles;
use super::unserved_paths::is_never_served;

/// The response at an address of a page that is not its canonical one (`server.slashes`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slashes {
    /// Serves the page there as well.
    Serve,
    /// Redirects to the canonical address, unless the page's relative links work at the requested one as well.
    Redirect,
}

/// The result of the lookup of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupResult {
    /// The number of the file to serve.
    File(usize),
    /// The path to redirect to, relative to the site's root, not percent-encoded.
    Redirect(Vec<u8>),
    /// The site has no file at the address.
    NotFound,
}

/// Looks up a decoded address without its leading slash.
pub fn resolve_address(site: &impl SiteFiles, address: &[u8], slashes: Slashes) -> LookupResult {
    if is_never_served(address) {
        return LookupResult::NotFound;
    }
    // A file at exactly this address is served with any value of `slashes`. Most requests end here.
    if let Some(file) = site.find(address) {
        return LookupResult::File(file);
    }
    let Some((path, file)) = find_page_or_file(site, address) else {
        let payload = if site.is_next() { next_payloads::find_payload(site, address) } else { None };
        return payload
            .or_else(|| find_assistant_file(site, address))
            .map_or(LookupResult::NotFound, LookupResult::File);
    };
    if slashes == Slashes::Serve || parent_folder(address) == parent_folder(&path) || !is_page(&path) {
        return LookupResult::File(file);
    }
    LookupResult::Redirect(canonical_address(site, &path))
}

/// Returns the number of the file at exactly this address, if it may be served.
pub fn find_exact(site: &impl SiteFiles, address: &[u8]) -> Option<usize> {
    if is_never_served(address) { None } else { site.find(address) }
}

/// Finds the file for an address that is not its path (docs/design/http.md, "Addresses, entity tags and caching").
/// `/_docwharf.html` does not lead to `_docwharf/index.html`, which is never served.
fn find_page_or_file(site: &impl SiteFiles, address: &[u8]) -> Option<(Vec<u8>, usize)> {
    let exact = |path: &[u8]| find_exact(site, path).map(|file| (path.to_vec(), file));
    if address.is_empty() {
        return exact(b"index.html");
    }
    if let Some(stem) = address.strip_suffix(b"/") {
        // `/x/` is the folder's index page if there is one, and otherwise the page `x`.
        return exact(&join(stem, b"/index.html")).or_else(|| find_page(site, stem));
    }
    exact(&join(address, b".html")).or_else(|| exact(&join(address, b"/index.html"))).or_else(|| {
        let stem = address.strip_suffix(b"/index.html").or_else(|| address.strip_suffix(b".html"))?;
        find_page(site, stem)
    })
}

/// Returns the file for the addresses that language model assistants request: `/x.md` for the Markdown of the page
/// `/x`, at any of its paths, and the site's `llms.txt` below `/.well-known/`.
fn find_assistant_file(site: &impl SiteFiles, address: &[u8]) -> Option<usize> {
    if let Some(name @ (b"llms.txt" | b"llms-full.txt")) = address.strip_prefix(b".well-known/") {
        return site.find(name);
    }
    site.markdown_of(find_page_of_markdown(site, address)?)
}

/// Returns the page whose Markdown a decoded address without its leading slash stands for: `x.md` for the page `x`, at
/// any of its paths. Whether the site has that Markdown does not matter.
pub fn find_page_of_markdown(site: &impl SiteFiles, address: &[u8]) -> Option<usize> {
    // `/x/.md` is never served.
    let stem = address.strip_suffix(b".md").filter(|_| !is_never_served(address))?;
    find_exact(site, stem).or_else(|| find_page_or_file(site, stem).map(|(_, page)| page))
}

/// Returns the page with the name `stem`, under any of its paths.
fn find_page(site: &impl SiteFiles, stem: &[u8]) -> Option<(Vec<u8>, usize)> {
    if stem.is_empty() || stem.ends_with(b"/") {
        return None;
    }
    let named = is_page(stem).then(|| stem.to_vec());
    named
        .into_iter()
        .chain([join(stem, b".html"), join(stem, b"/index.html")])
        .find_map(|path| find_exact(site, &path).map(|file| (path, file)))
}

fn join(stem: &[u8], end: &[u8]) -> Vec<u8> {
    [stem, end].concat()
}

/// Returns the folder of a path, up to and including its last slash: the base of relative links.
fn parent_folder(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
    &path[..end]
}

/// Returns the canonical address of a page, in its own folder: without `.html`, unless another file has that name.
fn canonical_address(site: &impl SiteFiles, path: &[u8]) -> Vec<u8> {
    if path == b"index.html" || path.ends_with(b"/index.html") {
        return path[..path.len() - b"index.html".len()].to_vec();
    }
    match path.strip_suffix(b".html") {
        Some(short) if !short.ends_with(b"/") && site.find(short).is_none() => short.to_vec(),
        _ => path.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::addresses::{AddressSettings, is_answered};
    use super::super::site_files::path_list::PathListSite;
    use super::*;
    use crate::sealed_version::test_versions::version_with_files;

    fn lookup(files: &[&str], address: &str, slashes: Slashes) -> String {
        match resolve_address(&PathListSite(files), address.as_bytes(), slashes) {
            LookupResult::File(i) => files[i].to_owned(),
            LookupResult::Redirect(to) => format!("-> /{}", String::from_utf8(to).unwrap()),
            LookupResult::NotFound => "404".to_owned(),
        }
    }

    #[test]
    fn a_page_is_found_with_or_without_slash_and_html_suffix_in_either_layout() {
        for files in [["index.html", "x.html"], ["index.html", "x/index.html"]] {
            for address in ["x", "x/", "x.html", "x/index.html"] {
                assert_eq!(lookup(&files, address, Slashes::Serve), files[1], "{address}");
            }
            for address in ["", "index.html", "index"] {
                assert_eq!(lookup(&files, address, Slashes::Serve), "index.html", "{address}");
            }
        }
    }

    #[test]
    fn a_page_file_wins_over_the_folder_of_its_name() {
        let files = ["x.html", "x/index.html", "x/y.html"];
        for (address, file) in
            [("x", "x.html"), ("x/", "x/index.html"), ("x.html", "x.html"), ("x/index.html", "x/index.html")]
        {
            for slashes in [Slashes::Serve, Slashes::Redirect] {
                assert_eq!(lookup(&files, address, slashes), file, "{address}");
            }
        }
    }

    #[test]
    fn redirects_lead_to_the_address_form_against_which_relative_links_resolve() {
        let files = ["x/index.html", "y.html", "z", "z.html", "index.html"];
        for (address, target) in [
            ("x", "-> /x/"),
            ("x.html", "-> /x/"),
            ("x/", "x/index.html"),
            ("x/index.html", "x/index.html"),
            ("y", "y.html"),
            ("y.html", "y.html"),
            ("y/", "-> /y"),
            ("y/index.html", "-> /y"),
            ("z", "z"),
            ("z/", "-> /z.html"),
            ("", "index.html"),
            ("index", "index.html"),
        ] {
            assert_eq!(lookup(&files, address, Slashes::Redirect), target, "{address}");
        }
    }

    #[test]
    fn files_that_are_not_pages_are_found_only_under_their_exact_path() {
        let files = ["a.css", "d/x.txt", ".git/config", "_docwharf/x.html", "[[...slug]].html"];
        for address in [
            "a.css/",
            "a",
            "a.css.html",
            "d",
            "d/",
            "d/x.txt/index.html",
            ".git/config",
            "_docwharf/x",
            "../a.css",
            "/a.css",
            ".html",
            "/",
        ] {
            assert_eq!(lookup(&files, address, Slashes::Serve), "404", "{address}");
        }
        assert_eq!(lookup(&files, "[[...slug]]", Slashes::Serve), "[[...slug]].html");
    }

    #[test]
    fn slash_redirect_uses_a_short_address_only_if_it_leads_to_the_page() {
        let files = ["a/b.html", "a/c", "a/c.html", "w.htm", "d.html/index.html", "e/index.html"];
        for (address, target) in [
            ("a/b/", "-> /a/b"),
            ("a/b.html/", "-> /a/b"),
            ("a/b/index.html", "-> /a/b"),
            ("a/c/", "-> /a/c.html"),
            ("a/c.html/", "-> /a/c.html"),
            ("a/c", "a/c"),
            ("w.htm", "w.htm"),
            ("w.htm/", "-> /w.htm"),
            ("w", "404"),
            ("d", "404"),
            ("d.html", "-> /d.html/"),
            ("d.html/", "d.html/index.html"),
            ("e.html", "-> /e/"),
            ("e/index", "e/index.html"),
            ("e//", "404"),
        ] {
            assert_eq!(lookup(&files, address, Slashes::Redirect), target, "{address}");
        }
    }

    // Regression: `/_docwharf.html` was answered with the bundle's `_docwharf/index.html`.
    #[test]
    fn hidden_and_reserved_files_are_not_found_under_any_address() {
        let site = version_with_files(&[
            ("_redirects", "/moved /a\n"),
            ("_headers", ""),
            ("_docwharf/x.html", ""),
            ("_docwharf/index.html", ""),
            ("_docwharf/index.md", ""),
            ("_docwharf/index.txt", ""),
            ("_docwharf.html", "a page"),
            ("_next/a.js", ""),
            ("_docwharf", ""),
            (".env", ""),
            ("a/.git/b.html", ""),
            ("sub/_redirects", ""),
            ("_docwharfs/x.html", ""),
            (".well-known/b.html", ""),
            ("\u{7f}.css", ""),
            ("a b.css", ""),
        ]);
        let is_found = |address: &str| {
            (
                resolve_address(&site, address.as_bytes(), Slashes::Serve) != LookupResult::NotFound,
                find_exact(&site, address.as_bytes()).is_some(),
            )
        };
        for address in [
            "_redirects",
            "_headers",
            "_docwharf",
            "_docwharf/",
            "_docwharf/x",
            "_docwharf/x.html",
            "_docwharf.md",
            "_docwharf.html.md",
            "_docwharf.txt",
            ".env",
            "a/.git/b",
            "a/.git/b.html",
        ] {
            assert_eq!(is_found(address), (false, false), "{address}");
        }
        for address in ["_docwharf.html", "sub/_redirects", "_docwharfs/x.html", ".well-known/b.html", "a b.css"] {
            assert_eq!(is_found(address), (true, true), "{address}");
        }
        let is_answered =
            |address: &str| is_answered(&site, &AddressSettings::default(), Slashes::Serve, address.as_bytes());
        assert!(
            is_answered("/a b.css") && !is_answered("/\u{7f}.css") && !is_answered("/moved") && !is_answered("/\u{1f}")
        );
    }

    #[test]
    fn markdown_and_llms_txt_files_have_additional_addresses() {
        let files = [
            "index.html",
            "index.md",
            "x.html",
            "x/index.html.md",
            "y/index.html",
            "y.html.md",
            "y/index.md",
            "z.html",
            "llms.txt",
            "llms-full.txt",
            "own.md",
        ];
        let site = version_with_files(&files.map(|name| (name, name)));
        for (address, file) in [
            ("index.md", Some("index.md")),
            ("own.md", Some("own.md")),
            ("x.md", None),
            ("y.md", Some("y/index.md")),
            ("y/.md", None),
            ("y.html.md", Some("y.html.md")),
            ("y/index.html.md", Some("y/index.md")),
            ("z.md", None),
            ("none.md", None),
            (".well-known/llms.txt", Some("llms.txt")),
            (".well-known/llms-full.txt", Some("llms-full.txt")),
            (".well-known/index.html", None),
            ("well-known/llms.txt", None),
        ] {
            let expected =
                file.map_or(LookupResult::NotFound, |file| LookupResult::File(site.find(file.as_bytes()).unwrap()));
            assert_eq!(resolve_address(&site, address.as_bytes(), Slashes::Serve), expected, "{address}");
        }
    }

    #[test]
    fn next_payloads_have_additional_addresses_only_on_next_sites() {
        for (files, expected) in [
            (&["index.html", "index.txt", "x.html", "x.txt", "_next/a.js"][..], true),
            (&["index.html", "index.txt", "x.html", "x.txt"], false),
        ] {
            let site = version_with_files(&files.iter().map(|&name| (name, name)).collect::<Vec<_>>());
            let docs = AddressSettings { base_path: "/docs/".to_owned(), ..AddressSettings::default() };
            assert_eq!(resolve_address(&site, b"x/index.txt", Slashes::Serve) != LookupResult::NotFound, expected);
            assert_eq!(is_answered(&site, &docs, Slashes::Serve, b"/docs.txt"), expected);
            assert!(!is_answered(&site, &docs, Slashes::Serve, b"/docs.rsc"));
        }
    }
}
