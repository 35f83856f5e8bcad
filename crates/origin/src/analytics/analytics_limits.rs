//! Limits on the searches and daily counts that an organization may add to the database.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::free_space::FreeSpace;
use crate::limits::SharedResource;
use crate::rate_limit::RateLimiter;
use crate::resource_pools::{LimitReached, ResourcePools};
use docwharf_analytics::searches::rows::get_u64;

/// The time after which an organization with too many rows may try again: expired rows are removed once an hour.
const CLEANUP_RETRY_AFTER: Duration = Duration::from_hours(1);

/// The limits of one organization: searches within an hour, and rows and bytes in total.
#[derive(Debug, Clone)]
pub struct AnalyticsLimits {
    organization: String,
    /// The organization of each project.
    owners: Arc<BTreeMap<String, String>>,
    pools: Arc<ResourcePools>,
    /// The limit of searches within an hour; `None` for imports by the operator.
    events: Option<Arc<RateLimiter>>,
    /// The number of bytes that must stay free on the disk; `None` for the default.
    min_free: Option<u64>,
}

/// The limit because of which a batch or an import is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchRefusal {
    /// The organization would hold more of the resource than `[limits.organization]` allows.
    #[error(
        "your organization would have more {} than it may (limits.organization.{}); try again when old rows have been \
         removed",
        describe_resource(*.0), .0.key()
    )]
    OrganizationStored(SharedResource),
    /// All organizations together would hold more of the resource than `[limits.total]` allows, or the reserve for the
    /// others would be used.
    #[error(
        "limits.total.{} is reached, apart from what is reserved for organizations that have none; try again when old \
         rows have been removed",
        .0.key()
    )]
    TotalStored(SharedResource),
    /// The organization has sent as many searches within an hour as it may. The value is the time after which it may
    /// try again.
    #[error(
        "with this batch your organization would have sent more searches within an hour than limits.organization.events \
         allows; try again later"
    )]
    OrganizationHourly(Duration),
    /// All organizations together have sent as many searches within an hour as they may. The value is the time after
    /// which one may try again.
    #[error(
        "with this batch all organizations together would have sent more searches within an hour than limits.total.events \
         allows, apart from what is reserved for organizations that have sent none; try again later"
    )]
    TotalHourly(Duration),
    /// The disk is nearly full.
    #[error("the disk of the origin is nearly full (store.minFree); try again later")]
    Disk,
}

fn describe_resource(resource: SharedResource) -> &'static str {
    if resource == SharedResource::Rows { "rows of searches and counts" } else { "bytes in the database" }
}

impl BatchRefusal {
    /// Describes the refusal of an import into a project of `organization` for the operator, who can raise limits.
    pub fn describe_for_operator(&self, organization: &str) -> String {
        const REMEDY: &str = "raise the limit or wait until old rows are removed";
        match self {
            BatchRefusal::OrganizationStored(resource) => format!(
                "organization {organization:?} would have more {} than it may (limits.organization.{}); {REMEDY}",
                describe_resource(*resource),
                resource.key()
            ),
            BatchRefusal::TotalStored(resource) => format!(
                "limits.total.{} is reached, apart from what is reserved for organizations that have none; {REMEDY}",
                resource.key()
            ),
            BatchRefusal::OrganizationHourly(_) | BatchRefusal::TotalHourly(_) | BatchRefusal::Disk => self.to_string(),
        }
    }

    /// Returns the time after which another attempt may succeed.
    pub fn retry_after(&self) -> Duration {
        match self {
            BatchRefusal::OrganizationHourly(wait) | BatchRefusal::TotalHourly(wait) => *wait,
            BatchRefusal::Disk => Duration::from_mins(1),
            BatchRefusal::OrganizationStored(_) | BatchRefusal::TotalStored(_) => CLEANUP_RETRY_AFTER,
        }
    }
}

impl AnalyticsLimits {
    /// Creates the limits of an organization. `events` limits searches that clients send; it is `None` for imports by
    /// the operator, which count as rows only.
    pub fn new(
        organization: &str,
        owners: Arc<BTreeMap<String, String>>,
        pools: Arc<ResourcePools>,
        events: Option<Arc<RateLimiter>>,
        min_free: Option<u64>,
    ) -> AnalyticsLimits {
        AnalyticsLimits { organization: organization.to_owned(), owners, pools, events, min_free }
    }

    /// Returns the name of the organization.
    pub fn organization(&self) -> &str {
        &self.organization
    }

    /// Uses `count` searches of the hourly limit.
    pub(super) fn use_events(&self, count: u64) -> Result<(), BatchRefusal> {
        let Some(events) = &self.events else { return Ok(()) };
        events.use_amount(&self.organization, count, Instant::now()).map_err(|exceeded| {
            self.pools.pool(SharedResource::Events).count_refusal();
            match exceeded.limit {
                LimitReached::Organization => BatchRefusal::OrganizationHourly(exceeded.wait_time),
                LimitReached::Total => BatchRefusal::TotalHourly(exceeded.wait_time),
            }
        })
    }

    /// Checks whether this number of rows, with this number of bytes, may be added.
    pub(super) fn check_space(
        &self,
        connection: &Connection,
        rows: u64,
        bytes: u64,
    ) -> rusqlite::Result<Result<(), BatchRefusal>> {
        let folder = connection.path().map(Path::new).and_then(Path::parent);
        let space = folder.and_then(|folder| FreeSpace::read(folder, self.min_free).ok());
        if space.and_then(|space| space.writable_bytes()).is_some_and(|writable| writable < bytes) {
            self.pools.pool(SharedResource::DatabaseBytes).count_refusal();
            return Ok(Err(BatchRefusal::Disk));
        }
        let is_own = |project: &str| self.owners.get(project).is_some_and(|owner| *owner == self.organization);
        let usage = DatabaseUsage::read(connection, is_own)?;
        let check = |resource, own, total, additional| {
            self.pools.pool(resource).check(own, total, additional).map_err(|reason| match reason {
                LimitReached::Organization => BatchRefusal::OrganizationStored(resource),
                LimitReached::Total => BatchRefusal::TotalStored(resource),
            })
        };
        let checked = check(SharedResource::Rows, usage.own_rows, usage.rows, rows)
            .and_then(|()| check(SharedResource::DatabaseBytes, usage.own_bytes, usage.file_bytes, bytes));
        Ok(checked)
    }
}

/// The use of the database.
#[derive(Debug, Clone, Copy, Default)]
pub struct DatabaseUsage {
    /// Rows of searches, batches and daily counts of one organization.
    pub own_rows: u64,
    /// The approximate number of bytes of these rows.
    pub own_bytes: u64,
    /// Rows of searches, batches and daily counts of all organizations.
    pub rows: u64,
    /// Bytes of the whole database, without free pages.
    pub file_bytes: u64,
}

impl DatabaseUsage {
    /// Reads the use. `is_own` decides which projects belong to the organization.
    pub fn read(connection: &Connection, is_own: impl Fn(&str) -> bool) -> rusqlite::Result<DatabaseUsage> {
        let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let pages = pragma("page_count")?.saturating_sub(pragma("freelist_count")?);
        let file_bytes = pages.saturating_mul(pragma("page_size")?).unsigned_abs();
        let mut usage = DatabaseUsage { file_bytes, ..DatabaseUsage::default() };
        let mut select = connection.prepare_cached("SELECT project, rows, bytes FROM usage")?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let (rows_of_project, bytes) = (get_u64(row, 1)?, get_u64(row, 2)?);
            usage.rows += rows_of_project;
            if is_own(row.get_ref(0)?.as_str()?) {
                usage.own_rows += rows_of_project;
                usage.own_bytes += bytes;
            }
        }
        Ok(usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_refusal_has_a_retry_after() {
        let seconds = Duration::from_secs;
        for (refusal, expected) in [
            (BatchRefusal::OrganizationHourly(seconds(7)), seconds(7)),
            (BatchRefusal::TotalHourly(seconds(9)), seconds(9)),
            (BatchRefusal::Disk, seconds(60)),
            (BatchRefusal::OrganizationStored(SharedResource::Rows), seconds(3600)),
            (BatchRefusal::TotalStored(SharedResource::DatabaseBytes), seconds(3600)),
        ] {
            assert_eq!(refusal.retry_after(), expected, "{refusal}");
        }
        let message = BatchRefusal::OrganizationStored(SharedResource::DatabaseBytes).to_string();
        let expected = "more bytes in the database than it may (limits.organization.databaseBytes)";
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn an_operator_learns_which_organization_reached_which_limit_and_that_it_can_be_raised() {
        let refused = BatchRefusal::OrganizationStored(SharedResource::Rows).describe_for_operator("acme");
        let expected = "organization \"acme\" would have more rows of searches and counts than it may \
                        (limits.organization.rows); raise the limit or wait until old rows are removed";
        assert_eq!(refused, expected);
        let total = BatchRefusal::TotalStored(SharedResource::DatabaseBytes).describe_for_operator("acme");
        assert!(total.starts_with("limits.total.databaseBytes is reached") && total.contains("; raise the limit"));
        assert_eq!(BatchRefusal::Disk.describe_for_operator("acme"), BatchRefusal::Disk.to_string());
    }
}
