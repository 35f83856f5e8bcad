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
use docwharf_agent::store::api_state::{ApiStateDirectory, BudgetWait, RateLimit, RequestBudget};
use docwharf_agent::sync::system::TaskContext;
use docwharf_agent::sync::{ApiSource, SyncError};
use docwharf_base::backoff;
use docwharf_base::clock::now_unix_millis;
use docwharf_base::error_chain::{ErrorChain, OneLine};
use docwharf_base::model::units::format_duration;
use docwharf_base::net::client::{HttpClient, build_client};
use docwharf_base::net::request_error::{RequestError, RequestErrorCause};
use docwharf_base::net::retry::{CallAttempts, MAX_SYNC_RETRY_AFTER};

use super::failure::CommandFailure;

/// The API's limit for previews: "5 requests per minute per organization".
const API_PREVIEW_LIMIT: RateLimit = RateLimit { requests: 5, window: Duration::from_mins(1) };
/// The API's limit for analytics: "100 requests per organization per hour, shared across all analytics endpoints".
pub(super) const API_ANALYTICS_LIMIT: RateLimit = RateLimit { requests: 100, window: Duration::from_hours(1) };

/// Tolerance of the longest wait: a one-minute budget can be closed for 60.5 s (`WINDOW_MARGIN_MS`), which must still
/// count as within [`MAX_SYNC_RETRY_AFTER`].
const BUDGET_WAIT_TOLERANCE: Duration = Duration::from_secs(1);

/// Calls the management API with retries and, if wanted, within budgets and a deadline.
pub(super) struct ApiCaller<'a> {
    pub(super) config: &'a Config,
    pub(super) task_context: &'a TaskContext,
    pub(super) http: HttpClient,
    pub(super) api: ApiClient,
    pub(super) source: &'a ApiSource,
    budgets: Option<RequestBudgets>,
    /// The time at which the command stops waiting; none if it has no deadline.
    pub(super) deadline: Option<Instant>,
}

/// The budgets of requests: those in the store, which all processes share, or the one of this process alone.
struct RequestBudgets {
    /// The budgets in the store; `None` if it cannot be written to. Then `local` counts.
    stored: Option<ApiStateDirectory>,
    local: RefCell<RequestBudget>,
    /// Whether a write to the store has failed after `stored` was opened. Then `local` counts.
    has_store_failed: Cell<bool>,
    /// Whether to wait until a request is free, instead of failing.
    waits: bool,
}

impl<'a> ApiCaller<'a> {
    /// Creates a caller without budgets. `verb` names the command in messages.
    pub(super) fn new(
        config: &'a Config,
        task_context: &'a TaskContext,
        verb: &str,
    ) -> Result<ApiCaller<'a>, CommandFailure> {
        let missing_api =
            || CommandFailure::Usage(format!("{verb} needs [api] with baseUrl and domain; see `docwharf config init`"));
        let source = config.sync_settings.api.as_ref().ok_or_else(missing_api)?;
        let network = &config.sync_settings.network;
        let key = source.api_key.read()?;
        let http = build_client(network).map_err(SyncError::from)?;
        let api = ApiClient::new(http.clone(), source.base.clone(), key, network.call_timeout, network.max_redirects);
        Ok(ApiCaller { config, task_context, http, api, source, budgets: None, deadline: None })
    }

    /// Creates a caller within the budgets of the API. `waits`: whether it waits for a free request, instead of
    /// failing.
    pub(super) fn with_budgets(
        config: &'a Config,
        task_context: &'a TaskContext,
        verb: &str,
        waits: bool,
    ) -> Result<Self, CommandFailure> {
        let caller = ApiCaller::new(config, task_context, verb)?;
        let stored = match ApiStateDirectory::open(&config.store) {
            Ok(stored) => Some(stored),
            Err(error) => {
                warn_uncounted(&error);
                None
            }
        };
        Ok(ApiCaller {
            budgets: Some(RequestBudgets {
                stored,
                local: RefCell::default(),
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
        let missing_project = || {
            CommandFailure::Usage(format!(
                "{verb} needs api.projectId; copy it from the page of API keys in the dashboard"
            ))
        };
        self.source.project.as_deref().ok_or_else(missing_project)
    }

    /// Sleeps, but not beyond the deadline.
    pub(super) fn pause(&self, pause: Duration) -> Result<(), CommandFailure> {
        let pause =
            self.deadline.map_or(pause, |deadline| pause.min(deadline.saturating_duration_since(Instant::now())));
        Ok(self.task_context.wait_for(async { tokio::time::sleep(pause).await })?)
    }

    /// Waits for the response to a call, but not beyond the deadline.
    pub(super) fn call_until_deadline<T>(
        &self,
        call: impl Future<Output = Result<T, RequestError>>,
    ) -> Result<Result<T, RequestError>, SyncError> {
        let Some(deadline) = self.deadline else { return self.task_context.wait_for(call) };
        let late = || RequestError::new(RequestErrorCause::NoUsableResponse, "no response before the deadline");
        // Created inside the future: a timer must be created within its runtime.
        let timed = async { tokio::time::timeout_at(deadline.into(), call).await };
        Ok(self.task_context.wait_for(timed)?.unwrap_or_else(|_| Err(late())))
    }

    /// Returns whether the deadline has passed.
    pub(super) fn is_past_deadline(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Repeats a call until it succeeds, until no retry can help, or until the deadline has passed.
    pub(super) fn call_with_retries<T>(
        &self,
        api_call: ApiCall,
        doing: &str,
        mut send: impl FnMut() -> Result<Result<T, RequestError>, SyncError>,
    ) -> Result<T, CommandFailure> {
        let mut attempts = CallAttempts::default();
        loop {
            let taken_at = self.take_request(api_call)?;
            let request_error = match send()? {
                Ok(response) => return Ok(response),
                Err(request_error) => request_error,
            };
            self.record_failure(api_call, taken_at, &request_error);
            match attempts
                .next_pause(api_call.kind(), &request_error, backoff::random_fraction())
                .filter(|_| !self.is_past_deadline())
            {
                Some(pause) => {
                    let line = format!("cannot {doing}: {request_error}; trying again in {:.1} s", pause.as_secs_f64());
                    tracing::warn!("{}", OneLine(&line));
                    self.pause(pause)?;
                }
                None => {
                    return Err(SyncError::Upstream { doing: doing.to_owned(), call: api_call, request_error }.into());
                }
            }
        }
    }

    /// Takes one request from the budget of a call, if it has one, and waits until a request is free. Returns the time
    /// at which it was taken, in milliseconds since 1970.
    fn take_request(&self, api_call: ApiCall) -> Result<Option<i64>, CommandFailure> {
        let (Some(budgets), Some((limit, name))) = (&self.budgets, budget_of(api_call)) else { return Ok(None) };
        let mut is_reported = false;
        loop {
            let now = now_unix_millis();
            let (wait, line, is_closed) = match self.change_budget(name, |budget| budget.take_request(limit, now)) {
                Ok(()) => return Ok(Some(now)),
                Err(BudgetWait::UsedUp(wait)) => {
                    let (requests, window) = (limit.requests, format_duration(limit.window));
                    let users = "is used up, by this command or others";
                    (wait, format!("the budget of {requests} requests for {name} in {window} {users}"), false)
                }
                Err(BudgetWait::Closed(wait)) => {
                    (wait, format!("the API demands a pause of its calls for {name}"), true)
                }
            };
            // Rounded up: a retry after the printed time must not be too early.
            let seconds = Duration::from_secs(wait.as_millis().div_ceil(1000) as u64);
            // For a pause that the API demands, the limit is that of any other `Retry-After`.
            let is_too_long = is_closed && wait > MAX_SYNC_RETRY_AFTER + BUDGET_WAIT_TOLERANCE;
            if is_too_long || !budgets.waits {
                let wait = format_duration(seconds);
                let advice = if is_too_long { "" } else { ", or omit --no-wait-for-budget" };
                return Err(CommandFailure::Unavailable(format!(
                    "{line}: the next request is free in {wait}; try again then{advice}"
                )));
            }
            if !is_reported {
                is_reported = true;
                tracing::warn!("{line}; waiting {} for the next request", format_duration(seconds));
            }
            self.task_context
                .progress
                .display_step(&format!("waiting for the budget of {name}: {}", format_duration(seconds)));
            self.pause(wait.min(Duration::from_secs(1)))?;
        }
    }

    /// Records in the budget how a request failed. A request that was not sent is returned to the budget; `Retry-After`
    /// closes the budget.
    fn record_failure(&self, api_call: ApiCall, taken_at: Option<i64>, request_error: &RequestError) {
        let (Some(time), Some((_, name))) = (taken_at, budget_of(api_call)) else { return };
        match (request_error.cause, request_error.retry_after) {
            (RequestErrorCause::NotConnected | RequestErrorCause::NotPermitted, _) => {
                self.change_budget(name, |budget| budget.return_request(time));
            }
            (RequestErrorCause::Status(429), Some(wait)) => {
                let until = now_unix_millis().saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
                self.change_budget(name, |budget| budget.close(until));
            }
            _ => {}
        }
    }

    /// Changes a budget. If the store cannot be written to any more, as on a full disk, this command counts its own
    /// requests.
    fn change_budget<T>(&self, name: &str, change: impl Fn(&mut RequestBudget) -> T) -> T {
        let Some(budgets) = &self.budgets else { return change(&mut RequestBudget::default()) };
        let mut local = budgets.local.borrow_mut();
        if let (Some(stored), false) = (&budgets.stored, budgets.has_store_failed.get()) {
            // One store may be used with several APIs.
            let name = format!("{name} {}", self.source.base.without_secrets().trim_end_matches('/'));
            match stored.change_budget(&name, &change) {
                Ok(result) => return result,
                Err(error) => {
                    budgets.has_store_failed.set(true);
                    // Requests that the stored budget has counted still count.
                    *local = stored.read_budget(&name);
                    warn_uncounted(&error);
                }
            }
        }
        change(&mut local)
    }
}

/// Warns that requests cannot be counted in the store, with advice. A user without access to the store gets no warning:
/// the store belongs to the daemon, and a command that calls the API does not need it.
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
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free some space",
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::NotADirectory => "; set store.path to a writable folder",
        _ => "",
    };
    tracing::warn!("{}; {COUNTED_ALONE_NOTE}{advice}", ErrorChain(error));
}

/// The consequence of a store that cannot be written to.
const COUNTED_ALONE_NOTE: &str = "requests are counted for this command alone";

/// Returns the budget that a call takes from, and its name; none for calls without a budget.
fn budget_of(api_call: ApiCall) -> Option<(RateLimit, &'static str)> {
    match api_call {
        ApiCall::Preview => Some((API_PREVIEW_LIMIT, "previews")),
        ApiCall::Searches | ApiCall::Views | ApiCall::PageCounts => Some((API_ANALYTICS_LIMIT, "analytics")),
        ApiCall::StartExport | ApiCall::PollExport | ApiCall::RequestExportLink | ApiCall::Deployment => None,
    }
}
