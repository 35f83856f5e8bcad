//! Calls to the management API that a person has asked for: with patience, and within the budget that the organization
//! has with the API, which other processes use, too.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::time::{Duration, Instant, SystemTime};

use docwharf_agent::api::Api;
use docwharf_agent::api::ask::Ask;
use docwharf_base::backoff;
use docwharf_base::chain::{Chain, OneLine};
use crate::config::checked::Config;
use docwharf_base::model::units::show_duration;
use docwharf_base::net::client::client;
use docwharf_base::net::retry::{Attempts, PATIENCE};
use docwharf_base::net::trouble::{Cause, Trouble};
use docwharf_agent::store::StoreError;
use docwharf_agent::store::asked::{Allowance, Asked, Ledger, Wait};
use docwharf_agent::sync::act::Means;
use docwharf_agent::sync::{ApiSource, SyncError};

use super::Failure;

/// "5 requests per minute per organization"
const PREVIEWS: Allowance = Allowance { requests: 5, window: Duration::from_mins(1) };
/// "100 requests per organization per hour, shared across all analytics endpoints"
const ANALYTICS: Allowance = Allowance { requests: 100, window: Duration::from_hours(1) };

/// A budget of a minute may be closed for a little more than one.
const SLACK: Duration = Duration::from_secs(1);

/// Calls the API with patience.
pub(super) struct Caller<'a> {
    pub(super) config: &'a Config,
    pub(super) means: &'a Means,
    pub(super) http: reqwest::Client,
    pub(super) api: Api,
    pub(super) source: &'a ApiSource,
    budgets: Option<Budgets>,
    /// When nobody waits any more.
    pub(super) deadline: Option<Instant>,
}

/// Where requests are counted.
struct Budgets {
    /// None where the store cannot be written to: then this process counts its own.
    asked: Option<Asked>,
    own: RefCell<Ledger>,
    /// Whether the store has failed since.
    is_cut_off: Cell<bool>,
    /// Whether to wait until there is one.
    waits: bool,
}

impl<'a> Caller<'a> {
    /// `verb` is what needs it, for messages.
    pub(super) fn new(config: &'a Config, means: &'a Means, verb: &str) -> Result<Caller<'a>, Failure> {
        let none = || Failure::Usage(format!("{verb} needs [api] with baseUrl and domain; see `docwharf config init`"));
        let source = config.intent.api.as_ref().ok_or_else(none)?;
        let network = &config.intent.network;
        let key = source.key.read()?;
        let http = client(network).map_err(SyncError::from)?;
        let api = Api::new(http.clone(), source.base.clone(), key, network.call, network.redirects);
        Ok(Caller { config, means, http, api, source, budgets: None, deadline: None })
    }

    /// The same, within the budgets of the API; `waits` says whether to wait for them.
    pub(super) fn budgeted(config: &'a Config, means: &'a Means, verb: &str, waits: bool) -> Result<Self, Failure> {
        let caller = Caller::new(config, means, verb)?;
        let asked = match Asked::open(&config.store) {
            Ok(asked) => Some(asked),
            Err(error) => {
                tell_alone(&error);
                None
            }
        };
        Ok(Caller {
            budgets: Some(Budgets { asked, own: RefCell::default(), is_cut_off: Cell::new(false), waits }),
            ..caller
        })
    }

    /// What outlives this command, if the store can be written to.
    pub(super) fn asked(&self) -> Option<&Asked> {
        self.budgets.as_ref()?.asked.as_ref()
    }

    /// The project that previews and analytics are of.
    pub(super) fn project(&self, verb: &str) -> Result<&'a str, Failure> {
        let none =
            || Failure::Usage(format!("{verb} needs api.projectId; copy it from the dashboard's page of API keys"));
        self.source.project.as_deref().ok_or_else(none)
    }

    /// Waits, but not beyond the deadline.
    pub(super) fn pause(&self, pause: Duration) -> Result<(), Failure> {
        let pause =
            self.deadline.map_or(pause, |deadline| pause.min(deadline.saturating_duration_since(Instant::now())));
        Ok(self.means.wait_for(async { tokio::time::sleep(pause).await })?)
    }

    /// Waits for an answer, but not beyond the deadline.
    pub(super) fn answer<T>(
        &self,
        call: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<Result<T, Trouble>, SyncError> {
        let Some(deadline) = self.deadline else { return self.means.wait_for(call) };
        let late = || Trouble::new(Cause::Lost, "no answer in the time that was given");
        // Made inside, because a timer wants its runtime from the start.
        let timed = async { tokio::time::timeout_at(deadline.into(), call).await };
        Ok(self.means.wait_for(timed)?.unwrap_or_else(|_| Err(late())))
    }

    /// Whether nobody waits any more.
    pub(super) fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Asks until there is a good answer, or none can be expected.
    pub(super) fn persist<T>(
        &self,
        ask: Ask,
        doing: &str,
        mut call: impl FnMut() -> Result<Result<T, Trouble>, SyncError>,
    ) -> Result<T, Failure> {
        let mut attempts = Attempts::default();
        loop {
            let taken = self.take(ask)?;
            let trouble = match call()? {
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            self.note(ask, taken, &trouble);
            match attempts.next(ask.call(), &trouble, backoff::random()).filter(|_| !self.is_late()) {
                Some(pause) => {
                    let line = format!("cannot {doing}: {trouble}; trying again in {:.1} s", pause.as_secs_f64());
                    tracing::warn!("{}", OneLine(&line));
                    self.pause(pause)?;
                }
                None => return Err(SyncError::Upstream { doing: doing.to_owned(), call: ask, trouble }.into()),
            }
        }
    }

    /// Takes a request out of its budget, if it has one, waiting until there is one; gives when it was taken.
    fn take(&self, ask: Ask) -> Result<Option<i64>, Failure> {
        let (Some(budgets), Some((allowance, name))) = (&self.budgets, budget_of(ask)) else { return Ok(None) };
        let mut is_told = false;
        loop {
            let now = now();
            let (wait, line, is_closed) = match self.ledger(name, |ledger| ledger.take(allowance, now)) {
                Ok(()) => return Ok(Some(now)),
                Err(Wait::UsedUp(wait)) => {
                    let (requests, window) = (allowance.requests, show_duration(allowance.window));
                    let by = "is used up, by this command or others";
                    (wait, format!("the budget of {requests} requests for {name} in {window} {by}"), false)
                }
                Err(Wait::Closed(wait)) => (wait, format!("the API has asked to be left alone with {name}"), true),
            };
            // Up, so that nobody comes a moment too early.
            let seconds = Duration::from_secs(wait.as_millis().div_ceil(1000) as u64);
            // What the API asks for is waited for as long as anything that it asks for.
            let is_long = is_closed && wait > PATIENCE + SLACK;
            if is_long || !budgets.waits {
                let wait = show_duration(seconds);
                let next = if is_long { "" } else { ", or leave --no-wait-for-budget out" };
                return Err(Failure::Unavailable(format!("{line}: the next is free in {wait}; try again then{next}")));
            }
            if !is_told {
                is_told = true;
                tracing::warn!("{line}; waiting {} for the next", show_duration(seconds));
            }
            self.means.doing.show(&format!("waiting for the budget of {name}: {}", show_duration(seconds)));
            self.pause(wait.min(Duration::from_secs(1)))?;
        }
    }

    /// What came of a request that was taken out of its budget.
    fn note(&self, ask: Ask, taken: Option<i64>, trouble: &Trouble) {
        let (Some(then), Some((_, name))) = (taken, budget_of(ask)) else { return };
        match (trouble.cause, trouble.retry_after) {
            (Cause::NotSent, _) => self.ledger(name, |ledger| ledger.give_back(then)),
            (Cause::Status(429), Some(wait)) => {
                let until = now().saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
                self.ledger(name, |ledger| ledger.close(until));
            }
            _ => {}
        }
    }

    /// Changes a budget. Where it cannot be kept any more, as on a disk that is full, this command counts its own.
    fn ledger<T>(&self, name: &str, change: impl Fn(&mut Ledger) -> T) -> T {
        let Some(budgets) = &self.budgets else { return change(&mut Ledger::default()) };
        let mut own = budgets.own.borrow_mut();
        if let (Some(asked), false) = (&budgets.asked, budgets.is_cut_off.get()) {
            // Several APIs may be asked from one store.
            let name = format!("{name} {}", self.source.base.name().trim_end_matches('/'));
            match asked.with(&name, &change) {
                Ok(result) => return result,
                Err(error) => {
                    budgets.is_cut_off.set(true);
                    // What was used is used.
                    *own = asked.last(&name);
                    tell_alone(&error);
                }
            }
        }
        change(&mut own)
    }
}

/// Tells that requests cannot be counted in the store, and what helps. A user who may not use the store at all is not told: it
/// is the daemon's, and a verb that asks the API needs no store.
fn tell_alone(error: &StoreError) {
    let kind = match error {
        StoreError::Io { source, .. } => source.kind(),
        _ => io::ErrorKind::Other,
    };
    let advice = match kind {
        io::ErrorKind::PermissionDenied => {
            tracing::debug!("{}; {ALONE}", Chain(error));
            return;
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; make room",
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::NotADirectory => {
            "; set store.path to a folder that can be written to"
        }
        _ => "",
    };
    tracing::warn!("{}; {ALONE}{advice}", Chain(error));
}

/// What follows where the store cannot be written to.
const ALONE: &str = "requests are counted for this command alone";

/// Which budget a call takes from.
fn budget_of(ask: Ask) -> Option<(Allowance, &'static str)> {
    match ask {
        Ask::Preview => Some((PREVIEWS, "previews")),
        Ask::Searches => Some((ANALYTICS, "analytics")),
        Ask::Start | Ask::Poll | Ask::Link | Ask::Deployment => None,
    }
}

/// Milliseconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
