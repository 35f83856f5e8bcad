use http::HeaderMap;

use super::*;
use crate::negotiate::AcceptedCodings;
use crate::test_versions::version_with_files;
use crate::{SiteMarkdownSource, SiteSettings};

const FILES: [(&str, &str); 4] = [
    ("a.html", "<title>A</title><p>first"),
    ("b.html", "<title>B</title><p>second"),
    ("c.html", "<title>C</title><p>third"),
    ("style.css", "a{}"),
];

#[test]
fn a_page_is_converted_alone_while_the_program_makes_the_file_of_all_pages() {
    let site = Site::new(SiteSettings::default());
    site.set_version(version_with_files(&FILES, 0));
    site.set_site_markdown_source(SiteMarkdownSource::Program);
    let version = site.served_version().unwrap();
    let identity = AcceptedCodings::parse(&HeaderMap::new());
    let converted = |site: &Site| -> Vec<usize> {
        (0..FILES.len()).filter(|&file| site.markdown.get_ready(&version, file, identity).is_some()).collect()
    };
    assert_eq!(find(&site, &version, 1).unwrap().text, "second\n");
    assert_eq!(converted(&site), [1]);
    // The page that is kept is the answer the next time.
    assert!(Arc::ptr_eq(&find(&site, &version, 1).unwrap(), &find(&site, &version, 1).unwrap()));
    assert_eq!(find(&site, &version, 0).unwrap().title, "A");
    assert_eq!(converted(&site), [0, 1]);
    assert_eq!(site.markdown.file_of(&version).map(|file| file.pages()), None);
}
