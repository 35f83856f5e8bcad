//! Extracts the addresses in a sitemap (sitemaps.org, protocol 0.9).

use std::borrow::Cow;

use docwharf_site::external::character_references::resolve_references;

/// Maximum bytes of an element up to the end of its address; a longer one is ignored.
const MAX_LOC_BYTES: usize = 8 << 10;

/// Calls `visit` for each address in an XML document, if that is a sitemap or a sitemap index: pages, or further
/// sitemaps.
pub fn visit_sitemap_addresses(body: &[u8], visit: &mut dyn FnMut(&str)) {
    let text = String::from_utf8_lossy(body);
    let mut is_sitemap = false;
    let mut rest = &*text;
    while let Some(position) = rest.find('<') {
        rest = &rest[position..];
        if let Some(comment) = rest.strip_prefix("<!--") {
            rest = comment.split_once("-->").map_or("", |(_, after)| after);
            continue;
        }
        let end = rest.find('>').map_or(rest.len(), |end| end + 1);
        let (tag, after) = rest.split_at(end);
        rest = after;
        if tag.starts_with("<?") || tag.starts_with("<!") || tag.starts_with("</") {
            continue;
        }
        let name = tag[1..].split(|c: char| c.is_ascii_whitespace() || matches!(c, '/' | '>')).next();
        // Ignore the namespace prefix.
        match name.map(|name| name.rsplit(':').next().unwrap_or(name)) {
            Some("urlset" | "sitemapindex") => is_sitemap = true,
            _ if !is_sitemap => return,
            // `image:loc` and similar elements do not name pages, but they do name addresses of the site.
            Some("loc") => {
                if let Some(address) = element_text(&rest[..rest.floor_char_boundary(MAX_LOC_BYTES)]) {
                    visit(&address);
                }
            }
            _ => {}
        }
    }
}

/// Returns the text up to the end of its element.
fn element_text(rest: &str) -> Option<Cow<'_, str>> {
    if let Some(data) = rest.trim_start().strip_prefix("<![CDATA[") {
        return Some(data.split_once("]]>")?.0.trim().into());
    }
    let text = rest.split('<').next().unwrap_or_default().trim();
    (!text.is_empty()).then(|| resolve_references(text).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loc_addresses_are_read_only_from_sitemap_documents() {
        let read = |text: &str| {
            let mut all = Vec::new();
            visit_sitemap_addresses(text.as_bytes(), &mut |address| all.push(address.to_owned()));
            all
        };
        let text = "<?xml version='1.0'?><!-- <urlset> --><s:urlset xmlns:s='x'><s:url><s:loc> http://a/b?c=1&amp;d </s:loc>\
            <lastmod>x</lastmod></s:url><!-- <loc>no</loc> --><url><loc><![CDATA[http://a/c&d]]></loc></url></s:urlset>";
        assert_eq!(read(text), ["http://a/b?c=1&d", "http://a/c&d"]);
        assert_eq!(read("<sitemapindex><sitemap><loc>s.xml</loc></sitemap></sitemapindex>"), ["s.xml"]);
        assert!(read("<rss><loc>x</loc></rss>").is_empty());
        assert!(read("<html><urlset>").is_empty());
        for text in ["", "<", "<urlset", "<urlset><loc>", "<!--", "<urlset><loc><![CDATA[x"] {
            read(text);
        }
    }

    #[test]
    fn unclosed_sitemap_elements_are_not_scanned_again_for_each_start_tag() {
        let text = format!("<urlset>{}]]>", "<loc><![CDATA[".repeat(2 << 16));
        let mut bytes = 0;
        visit_sitemap_addresses(text.as_bytes(), &mut |address| bytes += address.len());
        assert!(bytes < MAX_LOC_BYTES * MAX_LOC_BYTES, "{bytes} of a text of {}", text.len());
    }
}
