//! The answer to a search, as the JSON interface sends it and as the search page shows it.

use serde::{Deserialize, Serialize};

/// The upper bound of the length of a query, in characters.
pub const MAX_QUERY_CHARS: usize = 200;
/// The number of results in an answer if the request does not name one.
pub const DEFAULT_LIMIT: u32 = 10;
/// The upper bound of the number of results in an answer.
pub const MAX_LIMIT: u32 = 50;
/// The upper bound of the number of results that an answer leaves out at the beginning.
pub const MAX_OFFSET: u32 = 490;

/// The answer to a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchResponse {
    /// The query as the client sent it.
    pub query: String,
    /// The words that were searched instead of the query, if any.
    pub corrected: Option<String>,
    /// The number of pages that match.
    pub total: u64,
    /// The duration of the search, in milliseconds.
    pub ms: f64,
    /// Whether the results come from the index of an earlier version, because that of the active one is being built.
    pub indexing: bool,
    /// Whether the search was ended before all results were found, because it took too long.
    pub partial: bool,
    /// The id of the active version.
    pub version: String,
    /// The results, best first, one for each page.
    pub results: Vec<SearchResult>,
}

/// A page that matches, with its best section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchResult {
    /// The address of the section: the path from the root of the host, with the base path and the anchor.
    pub url: String,
    /// The title of the page.
    pub title: String,
    /// The headings from the first of the page to that of the section.
    pub section: Vec<String>,
    /// The language of the page, if the page names one.
    pub lang: Option<String>,
    /// The part of the section's text that matches: plain text.
    pub excerpt: String,
    /// The matches in `excerpt`, in order.
    pub marks: Vec<ExcerptMark>,
    /// The rank; larger is better.
    pub score: f32,
    /// Further sections of the page that match.
    pub sections: Vec<SectionResult>,
}

/// A further section of a page that matches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SectionResult {
    /// The address of the section, as in [`SearchResult::url`].
    pub url: String,
    /// The heading of the section.
    pub title: String,
    /// The part of the section's text that matches: plain text.
    pub excerpt: String,
    /// The matches in `excerpt`, in order.
    pub marks: Vec<ExcerptMark>,
}

/// A match in an excerpt, counted in UTF-16 units as JavaScript counts them. In JSON, it is a list of the two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, u32)", into = "(u32, u32)")]
pub struct ExcerptMark {
    /// The number of units before the match.
    pub start: u32,
    /// The number of units of the match.
    pub length: u32,
}

impl From<(u32, u32)> for ExcerptMark {
    fn from((start, length): (u32, u32)) -> ExcerptMark {
        ExcerptMark { start, length }
    }
}

impl From<ExcerptMark> for (u32, u32) {
    fn from(mark: ExcerptMark) -> (u32, u32) {
        (mark.start, mark.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_documented_fields() {
        let response = SearchResponse {
            query: "lru cahce".to_owned(),
            corrected: Some("lru cache".to_owned()),
            total: 1,
            ms: 1.5,
            indexing: false,
            partial: true,
            version: "v".to_owned(),
            results: vec![SearchResult {
                url: "/docs/functools.html#functools.lru_cache".to_owned(),
                title: "functools".to_owned(),
                section: vec!["functools".to_owned(), "lru_cache".to_owned()],
                lang: None,
                excerpt: "a cache".to_owned(),
                marks: vec![ExcerptMark { start: 2, length: 5 }],
                score: 2.0,
                sections: vec![SectionResult {
                    url: "/docs/functools.html#functools.cache".to_owned(),
                    title: "cache".to_owned(),
                    excerpt: String::new(),
                    marks: Vec::new(),
                }],
            }],
        };
        let expected = serde_json::json!({
            "query": "lru cahce", "corrected": "lru cache", "total": 1, "ms": 1.5, "indexing": false, "partial": true,
            "version": "v",
            "results": [{
                "url": "/docs/functools.html#functools.lru_cache", "title": "functools",
                "section": ["functools", "lru_cache"], "lang": null, "excerpt": "a cache", "marks": [[2, 5]],
                "score": 2.0,
                "sections": [{
                    "url": "/docs/functools.html#functools.cache", "title": "cache", "excerpt": "", "marks": []
                }],
            }],
        });
        assert_eq!(serde_json::to_value(&response).unwrap(), expected);
        assert_eq!(serde_json::from_value::<SearchResponse>(expected).unwrap(), response);
    }
}
