//! `/v1/analytics/{projectId}/…`: what readers searched for and read, as the management API returns it. On the
//! control socket it needs no key and has no budget. On `admin.listen` it needs a bearer key of `analytics.keyFile`,
//! and all routes together have a budget.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use http::header::{ALLOW, AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use serde::Serialize;
use serde_json::json;

use docwharf_analytics::query_error::QueryError;
use docwharf_analytics::recording::AnalyticsStore;
use docwharf_base::clock::seconds_ceil;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::locks::Mutex;
use docwharf_serve::body::ResponseBody;

use super::responses::{AdminTransport, JSON_TYPE, admin_response};
use docwharf_agent::analytics::key_file::AnalyticsKeyFile;

/// The path below which the routes are.
pub(super) const PATH_PREFIX: &str = "/v1/analytics/";
/// The number of requests from the network that are answered in [`BUDGET_PERIOD`], all routes together.
const BUDGET_REQUESTS: usize = 100;
const BUDGET_PERIOD: Duration = Duration::from_hours(1);

/// The routes of the management API that read analytics.
#[derive(Debug)]
pub struct AnalyticsApi {
    /// The store; `None` while the database is not open: recording is off, or the file cannot be opened.
    store: ArcSwapOption<AnalyticsStore>,
    settings: ArcSwap<AnalyticsApiSettings>,
    budget: RequestBudget,
}

/// The settings of the routes.
#[derive(Debug)]
pub struct AnalyticsApiSettings {
    /// The project in the addresses (`analytics.projectId`).
    pub project: String,
    /// The keys for requests from the network (`analytics.keyFile`); `None` refuses all of them.
    pub keys: Option<AnalyticsKeyFile>,
    /// Whether what readers do is recorded (`analytics.enabled`).
    pub is_enabled: bool,
}

/// A query of one of the routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnalyticsQuery {
    Searches,
    Views,
    Pages,
}

impl AnalyticsApi {
    /// Creates the routes without a store.
    pub fn new(settings: AnalyticsApiSettings) -> AnalyticsApi {
        AnalyticsApi {
            store: ArcSwapOption::empty(),
            settings: ArcSwap::from_pointee(settings),
            budget: RequestBudget::default(),
        }
    }

    /// Replaces the settings, from the next request on.
    pub fn set_settings(&self, settings: AnalyticsApiSettings) {
        self.settings.store(Arc::new(settings));
    }

    /// Answers queries from this store from now on.
    pub fn set_store(&self, store: Option<Arc<AnalyticsStore>>) {
        self.store.store(store);
    }

    /// Returns the store; `None` while it is not open.
    pub fn store(&self) -> Option<Arc<AnalyticsStore>> {
        self.store.load_full()
    }

    /// Answers a request for a path below [`PATH_PREFIX`]. This waits for the disk.
    pub(super) fn respond(&self, head: &Parts, transport: AdminTransport) -> Response<ResponseBody> {
        if !matches!(head.method, Method::GET | Method::HEAD) {
            let mut response = error_response(StatusCode::METHOD_NOT_ALLOWED, "this address allows only GET and HEAD");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        let settings = self.settings.load();
        if transport == AdminTransport::Network
            && let Some(refusal) = check_key(&settings, &head.headers).or_else(|| self.check_budget())
        {
            return refusal;
        }
        let rest = head.uri.path().strip_prefix(PATH_PREFIX).unwrap_or_default();
        let Some((project, route)) = rest.split_once('/') else { return not_found() };
        let query = match route {
            "searches" => AnalyticsQuery::Searches,
            "views" => AnalyticsQuery::Views,
            "pages" => AnalyticsQuery::Pages,
            _ => return not_found(),
        };
        if percent_encoding::percent_decode_str(project).decode_utf8().ok().as_deref() != Some(&settings.project) {
            let reason = "no such project; this host has the project of analytics.projectId";
            return error_response(StatusCode::NOT_FOUND, reason);
        }
        self.run_query(query, head.uri.query())
    }

    fn run_query(&self, query: AnalyticsQuery, parameters: Option<&str>) -> Response<ResponseBody> {
        let store = self.store.load_full();
        let Some(store) = store else {
            return if self.settings.load().is_enabled {
                let reason = "the analytics cannot be opened at the moment; the log has the reason";
                error_response(StatusCode::SERVICE_UNAVAILABLE, reason)
            } else {
                error_response(StatusCode::NOT_FOUND, "nothing is recorded on this host (analytics.enabled)")
            };
        };
        match query {
            AnalyticsQuery::Searches => query_response(&store, || store.searches(parameters)),
            AnalyticsQuery::Views => query_response(&store, || store.views(parameters)),
            AnalyticsQuery::Pages => query_response(&store, || store.pages(parameters)),
        }
    }

    fn check_budget(&self) -> Option<Response<ResponseBody>> {
        let wait = self.budget.use_one(Instant::now()).err()?;
        let reason = format!("at most {BUDGET_REQUESTS} analytics queries are answered in an hour; try again later");
        let mut response = error_response(StatusCode::TOO_MANY_REQUESTS, &reason);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds_ceil(wait).max(1)));
        Some(response)
    }
}

/// Refuses a request from the network without a valid key.
fn check_key(settings: &AnalyticsApiSettings, headers: &HeaderMap) -> Option<Response<ResponseBody>> {
    let Some(file) = &settings.keys else {
        let reason = "analytics are not served to the network while analytics.keyFile is not set";
        return Some(error_response(StatusCode::FORBIDDEN, reason));
    };
    let keys = match file.read() {
        Ok(keys) => keys,
        Err(error) => {
            tracing::error!("cannot check the key of an analytics query: {}", ErrorChain(&error));
            let reason = "the keys cannot be read at the moment; the log has the reason";
            return Some(error_response(StatusCode::SERVICE_UNAVAILABLE, reason));
        }
    };
    let reason = match bearer_token(headers) {
        None => "the request has no key; send one of analytics.keyFile as `Authorization: Bearer KEY`",
        Some(token) if keys.accepts(token) => return None,
        Some(_) => "the key is not one of analytics.keyFile",
    };
    let mut response = error_response(StatusCode::UNAUTHORIZED, reason);
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Some(response)
}

/// Returns the token of the only `Authorization` field, if its scheme is `Bearer` (RFC 6750, section 2.1).
fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (scheme, token) = value.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

fn query_response<T: Serialize>(
    store: &AnalyticsStore,
    query: impl FnOnce() -> Result<T, QueryError>,
) -> Response<ResponseBody> {
    let generation = store.generation();
    let json = match query() {
        Ok(page) => serde_json::to_vec(&page),
        Err(QueryError::Invalid(invalid)) => {
            return error_with_details(StatusCode::BAD_REQUEST, &invalid.error, &invalid.details);
        }
        Err(QueryError::Database(error)) => {
            tracing::error!("cannot answer an analytics query: {}", ErrorChain(&error));
            if error.is_damage() {
                move_damaged_aside(store, generation);
            }
            let reason = "the analytics cannot be read at the moment; the log has the reason";
            return error_response(StatusCode::SERVICE_UNAVAILABLE, reason);
        }
    };
    match json {
        Ok(json) => admin_response(StatusCode::OK, JSON_TYPE, json),
        Err(error) => error_response(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// Begins a new file, because a query has found damage in the present one.
fn move_damaged_aside(store: &AnalyticsStore, generation: u64) {
    match store.replace_damaged(generation) {
        Ok(moved) => tracing::error!(
            "{} is damaged: it was moved to {}, and a new one is begun; what readers did before is missing in reports",
            store.path().display(),
            moved.display()
        ),
        Err(error) => tracing::error!("{}", ErrorChain(&error)),
    }
}

fn not_found() -> Response<ResponseBody> {
    let reason = "no such address; below /v1/analytics/{projectId}/ there are searches, views and pages";
    error_response(StatusCode::NOT_FOUND, reason)
}

/// Creates an error response; `details` has the error itself.
fn error_response(status: StatusCode, error: &str) -> Response<ResponseBody> {
    error_with_details(status, error, &[error.to_owned()])
}

fn error_with_details(status: StatusCode, error: &str, details: &[String]) -> Response<ResponseBody> {
    let details: Vec<_> = details.iter().map(|message| json!({ "message": message })).collect();
    admin_response(status, JSON_TYPE, json!({ "error": error, "details": details }).to_string())
}

/// The requests of the last hour.
#[derive(Debug, Default)]
struct RequestBudget(Mutex<VecDeque<Instant>>);

impl RequestBudget {
    /// Uses one request. The error is the time after which another one is allowed.
    fn use_one(&self, now: Instant) -> Result<(), Duration> {
        let mut times = self.0.lock();
        while times.front().is_some_and(|time| now.duration_since(*time) >= BUDGET_PERIOD) {
            times.pop_front();
        }
        if times.len() >= BUDGET_REQUESTS
            && let Some(first) = times.front()
        {
            return Err(BUDGET_PERIOD.saturating_sub(now.duration_since(*first)));
        }
        times.push_back(now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_requests_are_answered_in_each_hour() {
        let (budget, start) = (RequestBudget::default(), Instant::now());
        for n in 0..BUDGET_REQUESTS as u32 {
            assert_eq!(budget.use_one(start + Duration::from_secs(1) * n), Ok(()));
        }
        let later = start + Duration::from_mins(30);
        assert_eq!(budget.use_one(later), Err(Duration::from_mins(30)));
        assert_eq!(budget.use_one(start + BUDGET_PERIOD), Ok(()));
        assert_eq!(budget.use_one(start + BUDGET_PERIOD), Err(Duration::from_secs(1)));
    }

    #[test]
    fn only_one_authorization_field_with_the_bearer_scheme_has_a_token() {
        let token = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, HeaderValue::from_static(value));
            }
            bearer_token(&headers).map(<[u8]>::to_vec)
        };
        assert_eq!(token(&["Bearer k"]), Some(b"k".to_vec()));
        assert_eq!(token(&["bearer  k "]), Some(b"k".to_vec()));
        for wrong in [&[][..], &["Basic k"], &["Bearer"], &["k"], &["Bearer k", "Bearer k"]] {
            assert_eq!(token(wrong), None, "{wrong:?}");
        }
    }

    fn api(store: Option<Arc<AnalyticsStore>>, is_enabled: bool) -> AnalyticsApi {
        let api = AnalyticsApi::new(AnalyticsApiSettings { project: "site".to_owned(), keys: None, is_enabled });
        api.set_store(store);
        api
    }

    #[test]
    fn a_file_that_cannot_be_opened_has_another_status_than_recording_that_is_off() {
        for (is_enabled, status) in [(true, StatusCode::SERVICE_UNAVAILABLE), (false, StatusCode::NOT_FOUND)] {
            assert_eq!(api(None, is_enabled).run_query(AnalyticsQuery::Views, None).status(), status);
        }
    }

    #[test]
    fn damage_that_a_query_finds_begins_a_new_file_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("analytics.db");
        AnalyticsStore::open(&path).unwrap().close();
        let connection = rusqlite::Connection::open(&path).unwrap();
        let root_page = "SELECT rootpage FROM sqlite_schema WHERE name = 'views'";
        let page: usize = connection.query_row(root_page, [], |row| row.get::<_, u32>(0)).unwrap() as usize;
        let page_bytes = connection.pragma_query_value(None, "page_size", |row| row.get::<_, u32>(0)).unwrap() as usize;
        drop(connection);
        let mut content = std::fs::read(&path).unwrap();
        content[(page - 1) * page_bytes..page * page_bytes].fill(0xaa);
        std::fs::write(&path, content).unwrap();
        let store = Arc::new(AnalyticsStore::open(&path).unwrap());
        let (api, generation) = (api(Some(Arc::clone(&store)), true), store.generation());
        assert_eq!(api.run_query(AnalyticsQuery::Views, None).status(), StatusCode::SERVICE_UNAVAILABLE);
        let damaged = store.damaged_file().expect("the damaged file is kept");
        // A query that found the damage at the same time does not replace the new file.
        move_damaged_aside(&store, generation);
        assert_eq!(store.damaged_file().as_ref(), Some(&damaged));
        assert!(damaged.exists());
        assert_eq!(api.run_query(AnalyticsQuery::Views, None).status(), StatusCode::OK);
    }
}
