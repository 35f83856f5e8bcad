//! Calls the management API for a command: with retries, and within the request budget of the organization, which other
//! processes use as well.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::time::{Duration, Instant};

use crate::config::checked::Config;
use docwharf_agent::api::ApiClient;
use docwharf_agent::api::calls::ApiCall;
use docwharf_agent::store::StoreError;
use docwharf_agent::store::api_state::{ApiStateDirectory, Ledger, RateLimit, Wait};
use docwharf_agent::sync::system::SyncContext;
use docwharf_agent::sync::{ApiSource, SyncError};
use docwharf_base::backoff;
use docwharf_base::clock::now_unix_millis;
use docwharf_base::error_chain::{ErrorChain, OneLine};
use docwharf_base::model::units::show_duration;
use docwharf_base::net::client::build_client;
use docwharf_base::net::request_error::{RequestError, RequestErrorCause};
use docwharf_base::net::retry::{CallAttempts, MAX_SYNC_RETRY_AFTER};

use super::failure::CommandFailure;

/// The API's limit for previews: "5 requests per minute per organization".
const PREVIEW_RATE_LIMIT: RateLimit = RateLimit { requests: 5, window: Duration::from_mins(1) };
/// The API's limit for analytics: "100 requests per organization per hour, shared across all analytics endpoints".
const ANALYTICS_RATE_LIMIT: RateLimit = RateLimit { requests: 100, window: Duration::from_hours(1) };

/// Tolerance of the longest wait: a budget of a minute may be closed for a little more than a minute.
const BUDGET_WAIT_TOLERANCE: Duration = Duration::from_secs(1);

/// Calls the management API with retries and, if wanted, within budgets and a deadline.
pub(super) struct ApiCaller<'a> {
    pub(super) config: &'a Config,
    pub(super) means: &'a SyncContext,
    pub(super) http: reqwest::Client,
    pub(super) api: ApiClient,
    pub(super) source: &'a ApiSource,
    budgets: Option<RequestBudgets>,
    /// The time at which the command stops waiting; none if it has no deadline.
    pub(super) deadline: Option<Instant>,
}

/// The budgets of requests: in the store, which all processes share, or of this process alone.
struct RequestBudgets {
    /// The budgets in the store; `None` if it cannot be written to. Then `own` counts.
    stored: Option<ApiStateDirectory>,
    own: RefCell<Ledger>,
    /// Whether writing to the store has failed since then. Then `own` counts.
    has_store_failed: Cell<bool>,
    /// Whether to wait until a request is free, instead of failing.
    waits: bool,
}

impl<'a> ApiCaller<'a> {
    /// Creates a caller without budgets. `verb` names the command in messages.
    pub(super) fn new(config: &'a Config, means: &'a SyncContext, verb: &str) -> Result<ApiCaller<'a>, CommandFailure> {
        let none =
            || CommandFailure::Usage(format!("{verb} needs [api] with baseUrl and domain; see `docwharf config init`"));
        let source = config.intent.api.as_ref().ok_or_else(none)?;
        let network = &config.intent.network;
        let key = source.api_key.read()?;
        let http = build_client(network).map_err(SyncError::from)?;
        let api = ApiClient::new(http.clone(), source.base.clone(), key, network.call_timeout, network.max_redirects);
        Ok(ApiCaller { config, means, http, api, source, budgets: None, deadline: None })
    }

    /// Creates a caller within the budgets of the API. `waits` says whether to wait for a free request or to fail.
    pub(super) fn with_budgets(
        config: &'a Config,
        means: &'a SyncContext,
        verb: &str,
        waits: bool,
    ) -> Result<Self, CommandFailure> {
        let caller = ApiCaller::new(config, means, verb)?;
        let asked = match ApiStateDirectory::open(&config.store) {
            Ok(asked) => Some(asked),
            Err(error) => {
                warn_uncounted(&error);
                None
            }
        };
        Ok(ApiCaller {
            budgets: Some(RequestBudgets {
                stored: asked,
                own: RefCell::default(),
                has_store_failed: Cell::new(false),
                waits,
            }),
            ..caller
        })
    }

    /// Returns the folder of budgets and interrupted readings in the store, if it can be written to.
    pub(super) fn api_state(&self) -> Option<&ApiStateDirectory> {
        self.budgets.as_ref()?.stored.as_ref()
    }

    /// Returns the configured project id, which previews and analytics need.
    pub(super) fn project(&self, verb: &str) -> Result<&'a str, CommandFailure> {
        let none = || {
            CommandFailure::Usage(format!("{verb} needs api.projectId; copy it from the dashboard's page of API keys"))
        };
        self.source.project.as_deref().ok_or_else(none)
    }

    /// Sleeps, but not beyond the deadline.
    pub(super) fn pause(&self, pause: Duration) -> Result<(), CommandFailure> {
        let pause =
            self.deadline.map_or(pause, |deadline| pause.min(deadline.saturating_duration_since(Instant::now())));
        Ok(self.means.wait_for(async { tokio::time::sleep(pause).await })?)
    }

    /// Waits for the response to a call, but not beyond the deadline.
    pub(super) fn call_until_deadline<T>(
        &self,
        call: impl Future<Output = Result<T, RequestError>>,
    ) -> Result<Result<T, RequestError>, SyncError> {
        let Some(deadline) = self.deadline else { return self.means.wait_for(call) };
        let late = || RequestError::new(RequestErrorCause::NoResponse, "no response before the deadline");
        // Created inside the future: a timer must be created within its runtime.
        let timed = async { tokio::time::timeout_at(deadline.into(), call).await };
        Ok(self.means.wait_for(timed)?.unwrap_or_else(|_| Err(late())))
    }

    /// Returns whether the deadline has passed.
    pub(super) fn is_past_deadline(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Repeats a call until it succeeds, until no retry can help, or until the deadline has passed.
    pub(super) fn call_with_retries<T>(
        &self,
        ask: ApiCall,
        doing: &str,
        mut call: impl FnMut() -> Result<Result<T, RequestError>, SyncError>,
    ) -> Result<T, CommandFailure> {
        let mut attempts = CallAttempts::default();
        loop {
            let taken = self.take_request(ask)?;
            let trouble = match call()? {
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            self.record_failure(ask, taken, &trouble);
            match attempts
                .next_pause(ask.kind(), &trouble, backoff::random_fraction())
                .filter(|_| !self.is_past_deadline())
            {
                Some(pause) => {
                    let line = format!("cannot {doing}: {trouble}; trying again in {:.1} s", pause.as_secs_f64());
                    tracing::warn!("{}", OneLine(&line));
                    self.pause(pause)?;
                }
                None => return Err(SyncError::Upstream { doing: doing.to_owned(), call: ask, trouble }.into()),
            }
        }
    }

    /// Takes one request from the budget of a call, if it has one, and waits until one is free. Returns when it was
    /// taken, in milliseconds since 1970.
    fn take_request(&self, ask: ApiCall) -> Result<Option<i64>, CommandFailure> {
        let (Some(budgets), Some((allowance, name))) = (&self.budgets, budget_of(ask)) else { return Ok(None) };
        let mut is_told = false;
        loop {
            let now = now_unix_millis();
            let (wait, line, is_closed) = match self.change_budget(name, |ledger| ledger.take(allowance, now)) {
                Ok(()) => return Ok(Some(now)),
                Err(Wait::UsedUp(wait)) => {
                    let (requests, window) = (allowance.requests, show_duration(allowance.window));
                    let by = "is used up, by this command or others";
                    (wait, format!("the budget of {requests} requests for {name} in {window} {by}"), false)
                }
                Err(Wait::Closed(wait)) => (wait, format!("the API has asked to be left alone with {name}"), true),
            };
            // Rounded up: a retry after the time that is shown must not come too early.
            let seconds = Duration::from_secs(wait.as_millis().div_ceil(1000) as u64);
            // A pause that the API demands is waited for no longer than any other `Retry-After`.
            let is_long = is_closed && wait > MAX_SYNC_RETRY_AFTER + BUDGET_WAIT_TOLERANCE;
            if is_long || !budgets.waits {
                let wait = show_duration(seconds);
                let next = if is_long { "" } else { ", or leave --no-wait-for-budget out" };
                return Err(CommandFailure::Unavailable(format!(
                    "{line}: the next is free in {wait}; try again then{next}"
                )));
            }
            if !is_told {
                is_told = true;
                tracing::warn!("{line}; waiting {} for the next", show_duration(seconds));
            }
            self.means.doing.show(&format!("waiting for the budget of {name}: {}", show_duration(seconds)));
            self.pause(wait.min(Duration::from_secs(1)))?;
        }
    }

    /// Records in the budget how a request failed. One that was not sent is given back; `Retry-After` closes it.
    fn record_failure(&self, ask: ApiCall, taken: Option<i64>, trouble: &RequestError) {
        let (Some(then), Some((_, name))) = (taken, budget_of(ask)) else { return };
        match (trouble.cause, trouble.retry_after) {
            (RequestErrorCause::NotConnected, _) => self.change_budget(name, |ledger| ledger.give_back(then)),
            (RequestErrorCause::Status(429), Some(wait)) => {
                let until = now_unix_millis().saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
                self.change_budget(name, |ledger| ledger.close(until));
            }
            _ => {}
        }
    }

    /// Changes a budget. If it cannot be stored any more, as on a full disk, this command counts its own requests.
    fn change_budget<T>(&self, name: &str, change: impl Fn(&mut Ledger) -> T) -> T {
        let Some(budgets) = &self.budgets else { return change(&mut Ledger::default()) };
        let mut own = budgets.own.borrow_mut();
        if let (Some(asked), false) = (&budgets.stored, budgets.has_store_failed.get()) {
            // One store may be used with several APIs.
            let name = format!("{name} {}", self.source.base.without_secrets().trim_end_matches('/'));
            match asked.with(&name, &change) {
                Ok(result) => return result,
                Err(error) => {
                    budgets.has_store_failed.set(true);
                    // Requests that the stored budget has counted still count.
                    *own = asked.last(&name);
                    warn_uncounted(&error);
                }
            }
        }
        change(&mut own)
    }
}

/// Warns that requests cannot be counted in the store, with advice. A user without access to the store gets no warning:
/// the store is the daemon's, and a command that calls the API does not need it.
fn warn_uncounted(error: &StoreError) {
    let kind = match error {
        StoreError::Io { source, .. } => source.kind(),
        _ => io::ErrorKind::Other,
    };
    let advice = match kind {
        io::ErrorKind::PermissionDenied => {
            tracing::debug!("{}; {COUNTED_ALONE_NOTE}", ErrorChain(error));
            return;
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; make room",
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::NotADirectory => {
            "; set store.path to a folder that can be written to"
        }
        _ => "",
    };
    tracing::warn!("{}; {COUNTED_ALONE_NOTE}{advice}", ErrorChain(error));
}

/// The consequence of a store that cannot be written to.
const COUNTED_ALONE_NOTE: &str = "requests are counted for this command alone";

/// Returns the budget that a call takes from, and its name; none for calls without a budget.
fn budget_of(ask: ApiCall) -> Option<(RateLimit, &'static str)> {
    match ask {
        ApiCall::Preview => Some((PREVIEW_RATE_LIMIT, "previews")),
        ApiCall::Searches => Some((ANALYTICS_RATE_LIMIT, "analytics")),
        ApiCall::Start | ApiCall::Poll | ApiCall::Link | ApiCall::Deployment => None,
    }
}
