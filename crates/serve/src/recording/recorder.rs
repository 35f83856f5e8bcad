//! The recorder of a site: decides what counts, and holds it until it is taken.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use http::StatusCode;
use percent_encoding::percent_decode;

use docwharf_base::clock::{now_unix_millis, now_unix_seconds};
use docwharf_base::locks::Mutex;
use docwharf_base::model::reader_activity::{ReaderActivity, SearchActivity, SearchId, SearchSource, VisitorClass};
use docwharf_site::lookup::reader_path;
use docwharf_site::sealed_version::SealedVersion;

use crate::header_pool;
use crate::request_rate::RequestRate;
use crate::search::SearchParameters;

use super::ViewedContent;
use super::agents::{AgentClassifier, AgentMatch, ClassCache};
use super::recorded_fields::RecordedFields;
use super::view_counts::{PageView, ViewCounters};

/// The maximum number of searches and clicks that wait to be taken. More are dropped and counted.
const MAX_WAITING_SEARCHES: usize = 10_000;
/// The maximum number of bytes of their texts.
const MAX_WAITING_BYTES: usize = 1 << 20;
/// The maximum number of requests with events of one client in a minute.
const MAX_EVENT_REQUESTS: u32 = 60;
/// The maximum length of a question in the records, in characters. The rest is left out.
const MAX_QUESTION_CHARS: usize = 512;
/// The seconds of a day.
const DAY_SECONDS: i64 = 86_400;

thread_local! {
    /// The classes of the User-Agents that this thread has seen.
    static CLASS_CACHE: RefCell<ClassCache> = RefCell::new(ClassCache::default());
}

/// The settings of a [`Recorder`].
#[derive(Debug, Clone)]
pub struct RecordingSettings {
    /// Whether searches and clicks on their results are recorded.
    pub searches: bool,
    /// Whether views of pages are counted.
    pub pages: bool,
    /// Whether nothing is recorded of requests with `Sec-GPC: 1` or `DNT: 1`.
    pub respects_opt_out: bool,
    /// The classes of visitors.
    pub agents: Arc<AgentClassifier>,
}

/// Records what the readers of a site do, until it is taken.
#[derive(Debug)]
pub struct Recorder {
    /// The path below which the site is served, with a slash at both ends.
    base_path: String,
    settings: ArcSwap<RecordingSettings>,
    views: ViewCounters,
    searches: Mutex<WaitingSearches>,
    dropped: AtomicU64,
    event_rate: RequestRate,
}

/// The searches and clicks that wait to be taken.
#[derive(Debug, Default)]
struct WaitingSearches {
    list: Vec<SearchActivity>,
    /// The bytes of their texts.
    text_bytes: usize,
}

impl WaitingSearches {
    /// Adds a search or a click; returns false if there are too many.
    fn push(&mut self, activity: SearchActivity) -> bool {
        let text_bytes = match &activity {
            SearchActivity::Search { query, .. } => query.len(),
            SearchActivity::Click { page, .. } => page.len(),
            SearchActivity::PageClick { query, page, .. } => query.len() + page.len(),
        };
        if self.list.len() >= MAX_WAITING_SEARCHES || self.text_bytes + text_bytes > MAX_WAITING_BYTES {
            return false;
        }
        self.text_bytes += text_bytes;
        self.list.push(activity);
        true
    }
}

/// A request, as far as it is recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordedRequest<'a> {
    /// The path and query of the target.
    pub(crate) target: &'a str,
    pub(crate) fields: RecordedFields<'a>,
}

impl Recorder {
    /// Creates a recorder for a site below this path, which has a slash at both ends.
    pub fn new(base_path: &str, settings: RecordingSettings) -> Recorder {
        Recorder {
            base_path: base_path.to_owned(),
            settings: ArcSwap::from_pointee(settings),
            views: ViewCounters::default(),
            searches: Mutex::default(),
            dropped: AtomicU64::new(0),
            event_rate: RequestRate::default(),
        }
    }

    /// Replaces the settings, from the next request on.
    pub fn set_settings(&self, settings: RecordingSettings) {
        self.settings.store(Arc::new(settings));
    }

    /// Returns whether searches are recorded.
    pub fn records_searches(&self) -> bool {
        self.settings.load().searches
    }

    /// Returns everything since the last call, and begins again.
    pub fn take(&self) -> ReaderActivity {
        ReaderActivity {
            days: self.views.take(&self.base_path),
            searches: std::mem::take(&mut *self.searches.lock()).list,
            dropped: self.dropped.swap(0, Ordering::Relaxed),
        }
    }

    /// Records the response to a GET request for a path of the site.
    pub(crate) fn note_response(
        &self,
        request: &RecordedRequest<'_>,
        status: StatusCode,
        viewed: ViewedContent,
        version: Option<&Arc<SealedVersion>>,
    ) {
        let is_not_found = status == StatusCode::NOT_FOUND;
        if !is_not_found && viewed == ViewedContent::Nothing {
            return;
        }
        let (settings, fields) = (self.settings.load(), &request.fields);
        if !fields.may_be_view() || (fields.is_opted_out && settings.respects_opt_out) {
            return;
        }
        let day = header_pool::unix_seconds_now().cast_signed().div_euclid(DAY_SECONDS);
        if is_not_found {
            if settings.pages && classify(&settings.agents, fields.user_agent).class == VisitorClass::Human {
                let path = request.target.split('?').next().unwrap_or_default();
                self.views.count_not_found(day, &self.base_path, path);
            }
            return;
        }
        let Some(version) = version else { return };
        let visitor = classify(&settings.agents, fields.user_agent);
        let is_human = visitor.class == VisitorClass::Human;
        let (file, class) = match viewed {
            ViewedContent::Nothing => return,
            ViewedContent::Page(file) => (file as usize, visitor.class),
            // A person gets the page. A program that reads the Markdown does so for a language model.
            ViewedContent::Markdown(_) if is_human => return,
            ViewedContent::Markdown(file) => (file as usize, VisitorClass::Ai),
        };
        if settings.pages {
            let referrer = if is_human { fields.referring_host() } else { None };
            let agent = visitor.name.map(|name| settings.agents.name(name));
            let is_entry = is_human && fields.is_entry();
            let view = PageView { file, class, is_entry, referrer: referrer.as_deref(), agent };
            self.views.count_view(day, &self.base_path, version, &view);
        }
        if settings.searches && is_human {
            self.note_click_of_search_page(fields, version, file);
        }
    }

    /// Records a view of a page that a script of the site has shown without a request for it.
    pub(crate) fn note_soft_view(&self, fields: &RecordedFields<'_>, version: &Arc<SealedVersion>, file: usize) {
        let settings = self.settings.load();
        if !settings.pages {
            return;
        }
        let visitor = classify(&settings.agents, fields.user_agent);
        let agent = visitor.name.map(|name| settings.agents.name(name));
        let view = PageView { file, class: visitor.class, is_entry: false, referrer: None, agent };
        let day = now_unix_seconds().div_euclid(DAY_SECONDS);
        self.views.count_view(day, &self.base_path, version, &view);
    }

    /// Records a search whose answer was a page, if a person has requested it, or one whose answer was JSON, if its
    /// client asks for it with `record`. Later parts of the same answer do not count.
    pub(crate) fn note_answer(
        &self,
        fields: &RecordedFields<'_>,
        client: IpAddr,
        parameters: &SearchParameters,
        is_page: bool,
        total: Option<u64>,
    ) {
        let settings = self.settings.load();
        if !settings.searches || parameters.offset > 0 || (fields.is_opted_out && settings.respects_opt_out) {
            return;
        }
        let id = if is_page {
            // The search box has sent this search.
            if parameters.record.is_some() {
                return;
            }
            let visitor = classify(&settings.agents, fields.user_agent);
            if !fields.may_be_view() || visitor.class != VisitorClass::Human {
                return;
            }
            None
        } else {
            let Some(id) = parameters.record else { return };
            Some(id)
        };
        // A client cannot make the file grow faster with searches than with events.
        if !self.allows_events_from(client) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.push_search(SearchActivity::Search {
            id,
            query: parameters.text.clone(),
            results: total,
            source: SearchSource::Reader,
            time: now_unix_millis(),
        });
    }

    /// Records a question to the assistant as a search with this number of results. The caller has asked
    /// [`records_searches`](Self::records_searches) and [`records_events_of`](Self::records_events_of).
    pub(crate) fn note_question(&self, client: IpAddr, question: &str, results: u64) {
        // A client cannot make the file grow faster with questions than with events.
        if !self.allows_events_from(client) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.push_search(SearchActivity::Search {
            id: None,
            query: question.chars().take(MAX_QUESTION_CHARS).collect(),
            results: Some(results),
            source: SearchSource::Assistant,
            time: now_unix_millis(),
        });
    }

    /// Records a search of the search box.
    pub(crate) fn note_search(&self, id: SearchId, query: String, results: u64) {
        let (results, source, time) = (Some(results), SearchSource::Reader, now_unix_millis());
        self.push_search(SearchActivity::Search { id: Some(id), query, results, source, time });
    }

    /// Records a click on a result of the search with this id.
    pub(crate) fn note_click(&self, id: SearchId, version: &SealedVersion, file: usize) {
        let page = reader_path(version, &self.base_path, version.index().path(file));
        self.push_search(SearchActivity::Click { id, page, time: now_unix_millis() });
    }

    /// Returns whether events of a client with these fields are recorded.
    pub(crate) fn records_events_of(&self, fields: &RecordedFields<'_>) -> bool {
        !(fields.is_opted_out && self.settings.load().respects_opt_out)
    }

    /// Counts a request with events; returns false if this client has sent too many.
    pub(crate) fn allows_events_from(&self, address: IpAddr) -> bool {
        self.event_rate.allow_now(address, MAX_EVENT_REQUESTS)
    }

    /// Records the request of a page as a click if the search page has led to it.
    fn note_click_of_search_page(&self, fields: &RecordedFields<'_>, version: &SealedVersion, file: usize) {
        let Some(target) = fields.own_referrer_target() else { return };
        let Some((path, query)) = target.split_once('?') else { return };
        let decoded: Vec<u8> = percent_decode(path.as_bytes()).collect();
        // The target has no leading slash.
        let resource = decoded.strip_prefix(&self.base_path.as_bytes()[1..]);
        if resource != Some(b"_docwharf/search") {
            return;
        }
        let Ok(parameters) = SearchParameters::parse(Some(query)) else { return };
        if parameters.is_empty() {
            return;
        }
        let page = reader_path(version, &self.base_path, version.index().path(file));
        let time = now_unix_millis();
        self.push_search(match parameters.record {
            Some(id) => SearchActivity::Click { id, page, time },
            None => SearchActivity::PageClick { query: parameters.text, page, time },
        });
    }

    fn push_search(&self, activity: SearchActivity) {
        if !self.searches.lock().push(activity) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn classify(agents: &AgentClassifier, user_agent: &[u8]) -> AgentMatch {
    CLASS_CACHE.with_borrow_mut(|cache| cache.classify(agents, user_agent))
}
