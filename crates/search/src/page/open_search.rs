//! The description in `opensearch.xml`, by which browsers add a site to their search engines (`OpenSearch` 1.1).

use super::markup::push_escaped;

/// The upper bound of the length of a short name, in characters (`OpenSearch` 1.1).
const MAX_SHORT_NAME_CHARS: usize = 16;

/// Renders `BASE/_docwharf/opensearch.xml`.
///
/// `site_url` is the address of the site's root with the base path, as the client knows it: `https://host/base`.
/// Browsers accept no relative addresses here. `name` is a name for the site, such as the host; it is cut to 16
/// characters.
pub fn render_open_search(site_url: &str, name: &str) -> String {
    // Braces begin a parameter of the template.
    let folder = site_url.trim_end_matches('/').replace('{', "%7B").replace('}', "%7D");
    let mut out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
        <OpenSearchDescription xmlns=\"http://a9.com/-/spec/opensearch/1.1/\">\n<ShortName>"
        .to_owned();
    push_escaped(&mut out, &name.chars().take(MAX_SHORT_NAME_CHARS).collect::<String>());
    out.push_str(
        "</ShortName>\n<Description>Search the documentation</Description>\n<InputEncoding>UTF-8</InputEncoding>\n\
         <Url type=\"text/html\" template=\"",
    );
    push_escaped(&mut out, &folder);
    out.push_str(
        "/_docwharf/search?q={searchTerms}\"/>\n\
         <Url type=\"application/opensearchdescription+xml\" rel=\"self\" template=\"",
    );
    push_escaped(&mut out, &folder);
    out.push_str("/_docwharf/opensearch.xml\"/>\n</OpenSearchDescription>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_names_the_search_page_of_the_site() {
        for site_url in ["https://docs.example:8443/base", "https://docs.example:8443/base/"] {
            let xml = render_open_search(site_url, "docs.example");
            assert!(xml.contains("<ShortName>docs.example</ShortName>"), "{xml}");
            assert!(
                xml.contains("template=\"https://docs.example:8443/base/_docwharf/search?q={searchTerms}\""),
                "{xml}"
            );
        }
    }

    #[test]
    fn hostile_names_stay_text() {
        let xml = render_open_search("https://a/\"><x y='{searchTerms}'>&", "</ShortName><a>\0\u{202e}");
        assert!(xml.contains("<ShortName>&lt;/ShortName&gt;&lt;a&gt; </ShortName>"), "{xml}");
        assert!(
            xml.contains("https://a/&quot;&gt;&lt;x y=&#39;%7BsearchTerms%7D&#39;&gt;&amp;/_docwharf/search?q"),
            "{xml}"
        );
    }

    #[test]
    fn short_names_have_at_most_16_characters() {
        let xml = render_open_search("https://a", &"語".repeat(17));
        assert!(xml.contains(&format!("<ShortName>{}</ShortName>", "語".repeat(16))), "{xml}");
    }
}
