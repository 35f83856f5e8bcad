//! A query that is ready to run, and its answer in the form that the client gets.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use docwharf_base::model::version::VersionId;
use docwharf_search::analyze::SynonymTable;
use docwharf_search::index::{SearchIndex, is_withheld};
use docwharf_search::page::{SearchPage, SearchPageContent, SearchResponse, render_page};
use docwharf_search::query::{SearchError, SearchOutcome, SearchRequest};
use docwharf_site::lookup::{AddressSettings, SiteFiles, Slashes, is_answered};
use docwharf_site::rules::pattern::Pattern;
use docwharf_site::rules::robots_tag::forbids_indexing;
use docwharf_site::rules::route::{RouteResult, RouteSettings, route_address};
use docwharf_site::sealed_version::SealedVersion;

use super::parameters::{SearchParameters, section_in_site};
use super::settings::SearchSettings;

/// The time after the deadline of a query in which its results are still looked up in the served version.
const MAX_LOOKUP_TIME: Duration = Duration::from_millis(100);

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerFormat {
    /// The JSON interface.
    Json,
    /// The search page.
    Page,
}

impl AnswerFormat {
    /// Returns the media type.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            AnswerFormat::Json => "application/json",
            AnswerFormat::Page => "text/html; charset=utf-8",
        }
    }
}

/// The audience of the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SearchAudience {
    /// Readers of the site. A header rule with `X-Robots-Tag: noindex` is for crawlers of other sites, so it hides no
    /// page from them.
    Readers,
    /// Programs and models, from which pages with such a rule are withheld, too.
    Assistants,
}

/// A question, and everything that its answer depends on.
#[derive(Debug)]
pub(crate) struct SearchQuery {
    pub(crate) parameters: SearchParameters,
    pub(crate) format: AnswerFormat,
    pub(crate) audience: SearchAudience,
    pub(crate) index: Arc<SearchIndex>,
    /// The version that is served. The index may be of an earlier one.
    pub(crate) version: Arc<SealedVersion>,
    /// The settings that decide which addresses of the version are answered.
    pub(crate) addresses: AddressSettings,
    /// The addresses of pages that are no results.
    pub(crate) exclude: Arc<[Pattern]>,
    pub(crate) synonyms: Arc<SynonymTable>,
}

/// An answer, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SearchAnswer {
    pub(crate) body: Vec<u8>,
    /// Whether the results come from the index of an earlier version.
    pub(crate) is_indexing: bool,
    /// Whether the query was ended by its deadline.
    pub(crate) is_partial: bool,
    /// Whether there are results.
    pub(crate) has_results: bool,
    /// The number of all pages that are results, also of those that the answer does not list.
    pub(crate) total: u64,
}

/// The reason why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QueryFailure {
    /// The index cannot be read.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// The answer cannot be written as JSON.
    #[error("cannot encode the answer")]
    Encode(#[from] serde_json::Error),
}

impl SearchQuery {
    /// Creates a query of a model or of an assistant. Its section may have the base path, and an empty one counts as
    /// absent; its language may be written with `_`.
    pub(crate) fn for_assistants(
        parameters: SearchParameters,
        index: Arc<SearchIndex>,
        version: Arc<SealedVersion>,
        addresses: AddressSettings,
        settings: &SearchSettings,
    ) -> SearchQuery {
        let SearchParameters { section, lang, .. } = parameters;
        let section = section.map(|section| section_in_site(&addresses.base_path, &section).to_owned());
        let parameters = SearchParameters {
            section: section.filter(|section| !section.is_empty()),
            lang: lang.map(|lang| lang.replace('_', "-")),
            ..parameters
        };
        SearchQuery {
            parameters,
            format: AnswerFormat::Json,
            audience: SearchAudience::Assistants,
            index,
            version,
            addresses,
            exclude: Arc::clone(&settings.exclude),
            synonyms: Arc::clone(&settings.synonyms),
        }
    }

    /// Returns whether the index is of an earlier version than the one that is served.
    pub(crate) fn is_of_earlier_index(&self) -> bool {
        self.index.version() != self.version.id
    }

    /// Searches the index, at most until the deadline, and renders the answer.
    pub(crate) fn run(&self, deadline: Instant) -> Result<SearchAnswer, QueryFailure> {
        Ok(render_answer(&self.parameters, self.format, &self.search(deadline)?)?)
    }

    /// Searches the index, at most until the deadline. A page that the served version does not answer is no result.
    pub(crate) fn search(&self, deadline: Instant) -> Result<SearchResponse, QueryFailure> {
        let start = Instant::now();
        let parameters = &self.parameters;
        let request = SearchRequest {
            text: &parameters.text,
            limit: parameters.limit,
            offset: parameters.offset,
            section: parameters.section.as_deref(),
            lang: parameters.lang.as_deref(),
            synonyms: &self.synonyms,
            deadline: Some(deadline),
        };
        let pages = ServedPages::new(self, deadline + MAX_LOOKUP_TIME);
        let outcome = self.index.search(&request, &|address| pages.contains(address))?;
        let is_indexing = self.is_of_earlier_index();
        let base_path = &self.addresses.base_path;
        let ms = (start.elapsed().as_secs_f64() * 10_000.0).round() / 10.0;
        let mut response = outcome.into_response(&parameters.text, base_path, self.version.id, is_indexing, ms);
        response.partial |= pages.is_over.get();
        Ok(response)
    }
}

/// The pages of the served version, for the results of one query.
struct ServedPages<'q> {
    query: &'q SearchQuery,
    slashes: Slashes,
    /// The time after which no more pages are looked up.
    deadline: Instant,
    /// Whether that time is over. A page that was not looked up counts as not served.
    is_over: Cell<bool>,
}

impl<'q> ServedPages<'q> {
    fn new(query: &'q SearchQuery, deadline: Instant) -> ServedPages<'q> {
        let slashes = query.addresses.slashes.unwrap_or(query.version.auto_slashes);
        ServedPages { query, slashes, deadline, is_over: Cell::new(false) }
    }

    /// Returns whether a page is answered, directly or after redirects, and is not excluded from the search. The
    /// address has no leading slash.
    fn contains(&self, address: &str) -> bool {
        if self.is_over.get() || Instant::now() >= self.deadline {
            self.is_over.set(true);
            return false;
        }
        // An index that was built before `search.exclude` changed has pages that are excluded now.
        let in_site = format!("/{address}");
        if self.query.exclude.iter().any(|pattern| pattern.matches(in_site.as_bytes()).is_some()) {
            return false;
        }
        if self.query.audience == SearchAudience::Assistants && self.is_withheld(in_site.as_bytes()) {
            return false;
        }
        let addresses = &self.query.addresses;
        let address = format!("{}{address}", addresses.base_path);
        is_answered(&*self.query.version, addresses, self.slashes, address.as_bytes())
    }
}

impl ServedPages<'_> {
    /// Returns whether the page at an address of the site, with its leading slash, is withheld from assistants.
    fn is_withheld(&self, address: &[u8]) -> bool {
        let SearchQuery { version, addresses, exclude, .. } = self.query;
        let settings =
            RouteSettings { base_path: &addresses.base_path, slashes: self.slashes, rules: &addresses.rules };
        match route_address(&**version, &settings, address, None) {
            RouteResult::File(file) | RouteResult::Rewritten(file, 200) => {
                is_withheld(version, addresses, exclude, file, Some(address))
            }
            _ => forbids_indexing(&version.rules().fields, &addresses.rules.fields, address),
        }
    }
}

/// Returns the answer to a question without words, which has no results.
pub(crate) fn empty_response(text: &str, version: VersionId, is_indexing: bool) -> SearchResponse {
    SearchOutcome::default().into_response(text, "/", version, is_indexing, 0.0)
}

/// Renders an answer.
pub(crate) fn render_answer(
    parameters: &SearchParameters,
    format: AnswerFormat,
    response: &SearchResponse,
) -> Result<SearchAnswer, serde_json::Error> {
    let body = match format {
        AnswerFormat::Json => serde_json::to_vec(response)?,
        AnswerFormat::Page => render_search_page(parameters, SearchPageContent::Results(response)).into_bytes(),
    };
    Ok(SearchAnswer {
        body,
        is_indexing: response.indexing,
        is_partial: response.partial,
        has_results: !response.results.is_empty(),
        total: response.total,
    })
}

/// Renders the search page with this content.
pub(crate) fn render_search_page(parameters: &SearchParameters, content: SearchPageContent<'_>) -> String {
    render_page(&SearchPage {
        query: &parameters.text,
        section: parameters.section.as_deref(),
        lang: parameters.lang.as_deref(),
        limit: parameters.limit,
        offset: parameters.offset,
        record: parameters.record,
        content,
    })
}

#[cfg(test)]
mod tests {
    use docwharf_site::rules::pattern::PatternDialect;
    use docwharf_site::rules::{RuleDraft, RuleSet, netlify_files};
    use serde_json::Value;

    use super::*;
    use crate::search::test_indexes::build_index;
    use crate::test_versions::version_with_files;

    const PAGES: [(&str, &str); 3] = [
        ("index.html", "<title>Start</title><h1>Start</h1><p>anchors and quays"),
        ("guide/tides.html", "<title>Tides</title><h1 id=tides>Tides</h1><p>anchors in the tide"),
        ("old.html", "<title>Old</title><h1>Old</h1><p>anchors of old"),
    ];

    fn query(index_of: &[(&str, &str)], served: &[(&str, &str)], text: &str) -> SearchQuery {
        SearchQuery {
            parameters: SearchParameters { text: text.to_owned(), ..SearchParameters::default() },
            format: AnswerFormat::Json,
            audience: SearchAudience::Readers,
            index: build_index(&version_with_files(index_of, 0)),
            version: Arc::new(version_with_files(served, 0)),
            addresses: AddressSettings { base_path: "/docs/".to_owned(), ..AddressSettings::default() },
            exclude: Arc::default(),
            synonyms: Arc::default(),
        }
    }

    #[test]
    fn a_query_of_an_assistant_has_no_empty_section_and_a_language_tag_with_hyphens() {
        let pages = [("index.html", "<h1>Start</h1>")];
        for (section, lang, expected) in [
            (None, None, (None, None)),
            (Some("/docs/"), Some("pt_BR"), (None, Some("pt-BR"))),
            (Some("/docs/guide/"), Some("de"), (Some("guide/"), Some("de"))),
            (Some("/"), None, (None, None)),
            (Some("guide"), None, (Some("guide"), None)),
        ] {
            let SearchQuery { parameters, index, version, addresses, .. } = query(&pages, &pages, "quays");
            let (section, lang) = (section.map(str::to_owned), lang.map(str::to_owned));
            let parameters = SearchParameters { section, lang, ..parameters };
            let settings = crate::search::test_indexes::settings();
            let query = SearchQuery::for_assistants(parameters, index, version, addresses, &settings);
            let found = (query.parameters.section.as_deref(), query.parameters.lang.as_deref());
            assert_eq!((found, query.audience), (expected, SearchAudience::Assistants));
        }
    }

    fn run(query: &SearchQuery) -> Value {
        let answer = query.run(Instant::now() + Duration::from_hours(1)).unwrap();
        serde_json::from_slice(&answer.body).unwrap()
    }

    fn urls(answer: &Value) -> Vec<&str> {
        let mut urls: Vec<&str> =
            answer["results"].as_array().unwrap().iter().map(|result| result["url"].as_str().unwrap()).collect();
        urls.sort_unstable();
        urls
    }

    #[test]
    fn an_answer_has_the_address_of_each_page_below_the_base_path() {
        let query = query(&PAGES, &PAGES, "anchors");
        let answer = run(&query);
        assert_eq!(urls(&answer), ["/docs/", "/docs/guide/tides.html#tides", "/docs/old.html"]);
        assert_eq!((&answer["total"], &answer["indexing"]), (&3.into(), &false.into()));
        assert_eq!(answer["version"], query.version.id.to_string());
        assert_eq!((&answer["query"], &answer["partial"]), (&"anchors".into(), &false.into()));
    }

    #[test]
    fn results_of_an_earlier_index_are_dropped_if_their_page_is_gone_and_kept_if_it_is_redirected() {
        let served = [
            ("index.html", "<h1>Start</h1>"),
            ("_redirects", "/guide/* /:splat 301\n/old.html /nowhere 301\n"),
            ("tides.html", "<h1>Tides</h1>"),
        ];
        let answer = run(&query(&PAGES, &served, "anchors"));
        assert_eq!(urls(&answer), ["/docs/", "/docs/guide/tides.html#tides"]);
        assert_eq!((&answer["total"], &answer["indexing"]), (&2.into(), &true.into()));
        let mut query = query(&PAGES, &PAGES, "anchors");
        let mut draft = RuleDraft::default();
        netlify_files::read_redirects("/old* /none 302!\n", "rules", &mut draft);
        query.addresses.rules = Arc::new(RuleSet::new(draft));
        assert_eq!(urls(&run(&query)), ["/docs/", "/docs/guide/tides.html#tides"], "a rule of the operator");
        // Regression: pages that are excluded now were results until the index was built again.
        query.exclude = Arc::new([Pattern::parse("/guide/:path*", PatternDialect::DocsJson).unwrap()]);
        assert_eq!(urls(&run(&query)), ["/docs/"]);
    }

    #[test]
    fn a_query_whose_time_is_over_is_partial() {
        let query = query(&PAGES, &PAGES, "anchors");
        let answer = query.run(Instant::now()).unwrap();
        assert!(answer.is_partial);
        let pages = ServedPages::new(&query, Instant::now());
        assert!(!pages.contains("index.html") && pages.is_over.get());
        let pages = ServedPages::new(&query, Instant::now() + Duration::from_hours(1));
        assert!(pages.contains("index.html") && !pages.contains("none.html") && !pages.is_over.get());
    }

    #[test]
    fn the_page_shows_the_same_results_and_keeps_the_parameters() {
        let mut query = query(&PAGES, &PAGES, "anchors");
        query.format = AnswerFormat::Page;
        query.parameters.section = Some("/guide".to_owned());
        query.parameters.lang = Some("de".to_owned());
        let answer = query.run(Instant::now() + Duration::from_hours(1)).unwrap();
        let html = String::from_utf8(answer.body).unwrap();
        for expected in ["<html lang=\"de\"", "/docs/guide/tides.html#tides", "value=\"/guide\"", "value=\"anchors\""] {
            assert!(html.contains(expected), "{expected}\n{html}");
        }
        assert!(!html.contains("/docs/old.html"), "{html}");
        assert!(answer.has_results && !answer.is_indexing && !answer.is_partial);
    }

    #[test]
    fn a_question_without_words_has_no_results_and_needs_no_index() {
        let version = version_with_files(&PAGES, 0);
        for (format, expected) in
            [(AnswerFormat::Json, "\"results\":[]"), (AnswerFormat::Page, "<form role=\"search\"")]
        {
            let response = empty_response(" ", version.id, false);
            let answer = render_answer(&SearchParameters::default(), format, &response).unwrap();
            assert!(String::from_utf8(answer.body).unwrap().contains(expected), "{format:?}");
            assert!(!answer.has_results && !answer.is_indexing && !answer.is_partial);
        }
    }
}
