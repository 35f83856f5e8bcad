//! The addresses in a sitemap (sitemaps.org, protocol 0.9).

use crate::site::outside::references::resolved;

/// What a sitemap lists.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sitemap {
    /// Pages, or, in an index, further sitemaps.
    pub(super) addresses: Vec<String>,
}

impl Sitemap {
    /// Reads a document in XML; `None` if it is no sitemap and no index of sitemaps.
    pub(super) fn parse(body: &[u8]) -> Option<Sitemap> {
        let text = String::from_utf8_lossy(body);
        let mut sitemap: Option<Sitemap> = None;
        let mut rest = &*text;
        while let Some(at) = rest.find('<') {
            rest = &rest[at..];
            if let Some(comment) = rest.strip_prefix("<!--") {
                rest = comment.split_once("-->").map_or("", |(_, behind)| behind);
                continue;
            }
            let end = rest.find('>').map_or(rest.len(), |end| end + 1);
            let (tag, behind) = rest.split_at(end);
            rest = behind;
            if tag.starts_with("<?") || tag.starts_with("<!") || tag.starts_with("</") {
                continue;
            }
            let name = tag[1..].split(|c: char| c.is_ascii_whitespace() || matches!(c, '/' | '>')).next();
            // Whatever prefix the namespace has.
            let name = name.map(|name| name.rsplit(':').next().unwrap_or(name));
            match (&mut sitemap, name) {
                (None, Some("urlset" | "sitemapindex")) => sitemap = Some(Sitemap::default()),
                (None, _) => return None,
                // `image:loc` and its like are no pages, but addresses of the site all the same.
                (Some(sitemap), Some("loc")) => sitemap.addresses.extend(content(rest)),
                _ => {}
            }
        }
        sitemap
    }
}

/// The text up to the end of its element.
fn content(rest: &str) -> Option<String> {
    if let Some(data) = rest.trim_start().strip_prefix("<![CDATA[") {
        return Some(data.split_once("]]>")?.0.trim().to_owned());
    }
    let text = rest.split('<').next().unwrap_or_default().trim();
    (!text.is_empty()).then(|| resolved(text).0.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_sitemaps_and_nowhere_else() {
        let read = |text: &str| Sitemap::parse(text.as_bytes()).map(|sitemap| sitemap.addresses);
        let text = "<?xml version='1.0'?><!-- <urlset> --><s:urlset xmlns:s='x'><s:url><s:loc> http://a/b?c=1&amp;d </s:loc>\
            <lastmod>x</lastmod></s:url><!-- <loc>no</loc> --><url><loc><![CDATA[http://a/c&d]]></loc></url></s:urlset>";
        assert_eq!(read(text).unwrap(), ["http://a/b?c=1&d", "http://a/c&d"]);
        assert_eq!(read("<sitemapindex><sitemap><loc>s.xml</loc></sitemap></sitemapindex>").unwrap(), ["s.xml"]);
        assert_eq!(read("<rss><loc>x</loc></rss>"), None);
        assert_eq!(read("<html><urlset>"), None);
        for text in ["", "<", "<urlset", "<urlset><loc>", "<!--", "<urlset><loc><![CDATA[x"] {
            read(text);
        }
    }
}
