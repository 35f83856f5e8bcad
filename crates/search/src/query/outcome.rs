//! The result of a search, and the answer that is made from it.

use docwharf_base::encode_sets::LOCATION_PATH;
use docwharf_base::model::version::VersionId;
use percent_encoding::utf8_percent_encode;

use crate::page::{ExcerptMark, SearchResponse, SearchResult, SectionResult};

/// The result of a search.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SearchOutcome {
    /// The number of pages that match.
    pub total: u64,
    /// The text that was searched instead, if words were replaced.
    pub corrected: Option<String>,
    /// Whether the search was ended by its deadline.
    pub partial: bool,
    /// The pages that were asked for, best first.
    pub results: Vec<PageMatch>,
}

/// A page that matches.
#[derive(Debug, Clone, PartialEq)]
pub struct PageMatch {
    /// The path of the page's file in the site.
    pub path: String,
    /// The address of the page below the base path, without a leading slash, in the form that the site itself uses.
    pub address: String,
    /// The title of the page.
    pub title: String,
    /// The language tag of the page, if it has one.
    pub lang: Option<String>,
    /// The rank; larger is better.
    pub score: f32,
    /// The best section of the page.
    pub best: SectionMatch,
    /// Further sections that match, the best first.
    pub sections: Vec<SectionMatch>,
}

/// A section that matches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SectionMatch {
    /// The fragment identifier; `None` for the page itself.
    pub anchor: Option<String>,
    /// The headings from the first of the page to the section's own.
    pub headings: Vec<String>,
    /// A part of the text.
    pub excerpt: String,
    /// The matches in the excerpt.
    pub marks: Vec<ExcerptMark>,
}

impl SearchOutcome {
    /// Makes the answer to a query. `base_path` is the path below which the site is served, such as `/docs/`; `version`
    /// is the active version; `indexing` says whether the index is that of an earlier one; `ms` is the duration in
    /// milliseconds.
    pub fn into_response(
        self,
        query: &str,
        base_path: &str,
        version: VersionId,
        indexing: bool,
        ms: f64,
    ) -> SearchResponse {
        let SearchOutcome { total, corrected, partial, results } = self;
        SearchResponse {
            query: query.to_owned(),
            corrected,
            total,
            ms,
            indexing,
            partial,
            version: version.to_string(),
            results: results.into_iter().map(|page| page.into_result(base_path)).collect(),
        }
    }
}

impl PageMatch {
    fn into_result(self, base_path: &str) -> SearchResult {
        let PageMatch { address, title, lang, score, best, sections, .. } = self;
        let create_url = |anchor: Option<&str>| section_url(base_path, &address, anchor);
        let sections = sections.into_iter().map(|section| SectionResult {
            url: create_url(section.anchor.as_deref()),
            title: section.headings.last().cloned().unwrap_or_else(|| title.clone()),
            excerpt: section.excerpt,
            marks: section.marks,
        });
        let sections = sections.collect();
        SearchResult {
            url: create_url(best.anchor.as_deref()),
            title,
            section: best.headings,
            lang,
            excerpt: best.excerpt,
            marks: best.marks,
            score,
            sections,
        }
    }
}

/// Returns the address of a section from the root of the host, percent-encoded.
fn section_url(base_path: &str, address: &str, anchor: Option<&str>) -> String {
    let path = utf8_percent_encode(address, LOCATION_PATH);
    match anchor {
        Some(anchor) => format!("{base_path}{path}#{}", utf8_percent_encode(anchor, LOCATION_PATH)),
        None => format!("{base_path}{path}"),
    }
}

#[cfg(test)]
mod tests {
    use docwharf_base::model::digest::Digest;

    use super::*;

    #[test]
    fn an_answer_has_addresses_with_base_path_and_anchor() {
        let section = |anchor: Option<&str>, headings: &[&str]| SectionMatch {
            anchor: anchor.map(str::to_owned),
            headings: headings.iter().map(|&heading| heading.to_owned()).collect(),
            excerpt: "text".to_owned(),
            marks: vec![ExcerptMark { start: 0, length: 4 }],
        };
        let page = PageMatch {
            path: "a b/c.html".to_owned(),
            address: "a b/c".to_owned(),
            title: "Title".to_owned(),
            lang: Some("en".to_owned()),
            score: 1.5,
            best: section(Some("os.path-join_é"), &["Title", "join"]),
            sections: vec![section(None, &[]), section(Some("x\"<"), &["Other"])],
        };
        let outcome = SearchOutcome { total: 7, corrected: Some("x".to_owned()), partial: true, results: vec![page] };
        let version = VersionId(Digest::compute(b"x"));
        let response = outcome.into_response("q", "/docs/", version, true, 2.5);
        assert_eq!((response.total, response.partial, response.indexing, response.ms), (7, true, true, 2.5));
        assert_eq!(response.version, version.to_string());
        let result = &response.results[0];
        assert_eq!(result.url, "/docs/a%20b/c#os.path-join_%C3%A9");
        assert_eq!(result.section, ["Title", "join"]);
        let sections: Vec<(&str, &str)> =
            result.sections.iter().map(|section| (section.url.as_str(), section.title.as_str())).collect();
        assert_eq!(sections, [("/docs/a%20b/c", "Title"), ("/docs/a%20b/c#x%22%3C", "Other")]);
    }
}
