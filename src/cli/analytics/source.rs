//! The source of analytics: the management API, or what this host has recorded.

use clap::Args;

use crate::config::checked::Config;
use docwharf_agent::api::analytics::{SearchPage, SearchPageRequest};
use docwharf_agent::api::calls::ApiCall;
use docwharf_agent::api::views::{CountKey, CountList, RowsRequest, ViewList};
use docwharf_agent::sync::system::TaskContext;
use docwharf_base::error_chain::OneLine;

use super::super::api_caller::{API_ANALYTICS_LIMIT, ApiCaller};
use super::super::failure::CommandFailure;

/// The number of requests that the API answers in an hour.
pub(super) const REQUESTS_PER_HOUR: u64 = API_ANALYTICS_LIMIT.requests as u64;

/// A source of analytics. Its methods wait for the network or the disk.
pub(super) trait AnalyticsSource {
    /// Returns the id of the project.
    fn project_id(&self) -> Result<&str, CommandFailure>;

    /// Reads a page of search terms.
    fn search_page(&self, request: &SearchPageRequest<'_>) -> Result<SearchPage, CommandFailure>;

    /// Reads views of pages.
    fn views(&self, request: &RowsRequest<'_>) -> Result<ViewList, CommandFailure>;

    /// Reads counts by a key.
    fn page_counts(&self, by: CountKey, request: &RowsRequest<'_>) -> Result<CountList, CommandFailure>;

    /// Returns the caller of the API if this source is the API, whose requests have a budget.
    fn api_caller(&self) -> Option<&ApiCaller<'_>>;

    /// Returns whether a reading needs more requests than the API answers in an hour.
    fn exceeds_hourly_requests(&self, requests: u64) -> bool {
        self.api_caller().is_some() && requests > REQUESTS_PER_HOUR
    }
}

impl AnalyticsSource for ApiCaller<'_> {
    fn project_id(&self) -> Result<&str, CommandFailure> {
        self.project("analytics")
    }

    fn search_page(&self, request: &SearchPageRequest<'_>) -> Result<SearchPage, CommandFailure> {
        let project = self.project_id()?;
        let doing = format!("read what was searched for in project {}", OneLine(project));
        self.call_with_retries(ApiCall::Searches, &doing, || {
            self.call_until_deadline(self.api.search_page(project, request))
        })
    }

    fn views(&self, request: &RowsRequest<'_>) -> Result<ViewList, CommandFailure> {
        let project = self.project_id()?;
        let doing = format!("read the views of pages in project {}", OneLine(project));
        self.call_with_retries(ApiCall::Views, &doing, || self.call_until_deadline(self.api.views(project, request)))
    }

    fn page_counts(&self, by: CountKey, request: &RowsRequest<'_>) -> Result<CountList, CommandFailure> {
        let project = self.project_id()?;
        let doing = format!("read the counts by {} in project {}", by.name(), OneLine(project));
        self.call_with_retries(ApiCall::PageCounts, &doing, || {
            self.call_until_deadline(self.api.page_counts(project, by, request))
        })
    }

    fn api_caller(&self) -> Option<&ApiCaller<'_>> {
        Some(self)
    }
}

/// The choice of the source, as arguments.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct SourceArgs {
    /// Read what this host has recorded. This is the default unless an API is configured
    #[arg(long)]
    local: bool,
    /// Fail if the budget of 100 requests an hour is used up, instead of waiting
    #[arg(long)]
    no_wait_for_budget: bool,
}

impl SourceArgs {
    /// Opens the source.
    pub(super) fn open<'a>(
        self,
        config: &'a Config,
        task_context: &'a TaskContext,
    ) -> Result<Box<dyn AnalyticsSource + 'a>, CommandFailure> {
        if self.local || config.sync_settings.api.is_none() {
            return open_local(config, self.local);
        }
        Ok(Box::new(ApiCaller::with_budgets(config, task_context, "analytics", !self.no_wait_for_budget)?))
    }
}

/// Opens what this host has recorded. `is_requested`: whether `--local` was given.
#[cfg(feature = "analytics")]
fn open_local(config: &Config, is_requested: bool) -> Result<Box<dyn AnalyticsSource>, CommandFailure> {
    // Without --local, the API may be the source that was meant.
    let advice = if is_requested { "" } else { "; to read from an API, set api.baseUrl" };
    Ok(Box::new(super::local_store::LocalStore::open(&config.store, &config.analytics.project, advice)?))
}

#[cfg(not(feature = "analytics"))]
fn open_local(_: &Config, is_requested: bool) -> Result<Box<dyn AnalyticsSource>, CommandFailure> {
    if is_requested {
        return Err(missing_feature("--local"));
    }
    let why = "because this docwharf was built without the feature \"analytics\"";
    let message = format!("analytics needs [api] with baseUrl and domain, {why}; see `docwharf config init`");
    Err(CommandFailure::Usage(message))
}

/// Returns the failure of a command or an option that needs what this host has recorded.
#[cfg(not(feature = "analytics"))]
pub(super) fn missing_feature(name: &str) -> CommandFailure {
    CommandFailure::Usage(format!("{name}: this docwharf was built without the feature \"analytics\""))
}
