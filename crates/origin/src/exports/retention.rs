//! Limits of stored bundles: how many stay, and whether there is space for another.

use std::time::Duration;

use rusqlite::Transaction;

use crate::database::DatabaseError;
use crate::free_space::FreeSpace;
use crate::limits::SharedResource;
use crate::resource_pools::{LimitReached, ResourcePools};
use docwharf_base::clock::now_unix_millis;
use docwharf_base::model::units::{format_duration, format_size};

use super::ExportJobs;
use super::rows::{self, BundleByteLimits};

/// Limits of the stored bundles.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BundleRetention {
    /// Number of newest bundles that stay for each project, and of failed jobs as well.
    pub(crate) max_jobs_per_project: usize,
    /// Bytes of the bundles of each organization, and of all together.
    pub(crate) bytes: BundleByteLimits,
    /// Bytes that must stay free on the disk.
    pub(crate) min_free: Option<u64>,
    /// Minimum time that a job stays after its end, whatever the other limits.
    pub(crate) min_job_age: Duration,
}

impl BundleRetention {
    pub(crate) fn new(
        max_jobs_per_project: usize,
        pools: &ResourcePools,
        min_job_age: Duration,
        min_free: Option<u64>,
    ) -> BundleRetention {
        let resource = SharedResource::BundleBytes;
        // The reserve that organizations leave to others is not available to old bundles either.
        let total = pools.limits.total[resource].saturating_sub(pools.pool(resource).reserve());
        let bytes = BundleByteLimits { organization: pools.limits.organization[resource], total };
        BundleRetention { max_jobs_per_project, bytes, min_free, min_job_age }
    }

    /// Deletes the jobs beyond the limits at this time, in milliseconds since 1970. Returns the names of the files to
    /// remove.
    pub(super) fn delete_old_jobs(self, transaction: &Transaction<'_>, now: i64) -> rusqlite::Result<Vec<String>> {
        rows::delete_old_jobs(transaction, self.max_jobs_per_project, self.bytes, self.oldest_retained_end(now), now)
    }

    /// Returns the time, in milliseconds since 1970, after which a job must have ended to be younger than
    /// `min_job_age`.
    fn oldest_retained_end(self, now: i64) -> i64 {
        now.saturating_sub(i64::try_from(self.min_job_age.as_millis()).unwrap_or(i64::MAX))
    }
}

impl ExportJobs {
    /// Returns the bytes of the bundles of an organization, and of all. With `only_retained`, only those count that
    /// must not be removed now: those of jobs that ended within `min_job_age`, and those with a valid link.
    fn bundle_bytes(&self, organization: &str, only_retained: bool) -> Result<(u64, u64), DatabaseError> {
        let now = now_unix_millis();
        let times = only_retained.then(|| (self.retention.oldest_retained_end(now), now));
        self.db.read(|connection| rows::bundle_bytes(connection, organization, times))
    }

    /// Returns the bytes of all bundles.
    pub(crate) fn all_bundle_bytes(&self) -> Result<u64, DatabaseError> {
        Ok(self.bundle_bytes("", false)?.1)
    }

    /// Returns the reason if a bundle of this size must not be packed, and `None` if it may be. This is checked before
    /// packing, because a bundle that turns out not to fit has cost time and disk space of all organizations.
    pub(super) fn find_space_problem(&self, organization: &str, bytes: u64) -> Option<String> {
        let space = FreeSpace::read(&self.bundles, self.retention.min_free).ok()?;
        if space.writable_bytes().is_some_and(|writable| writable == 0 || writable < bytes) {
            self.pools.pool(SharedResource::BundleBytes).count_refusal();
            return Some(format!(
                "the disk of the origin has no space for a bundle of {} (store.minFree); try again later",
                format_size(bytes)
            ));
        }
        let (own, all) = self.bundle_bytes(organization, true).ok()?;
        let limit = self.pools.pool(SharedResource::BundleBytes).check(own, all, 1).err()?;
        Some(self.describe_limit_reached(limit))
    }

    /// Returns the message for clients if a limit on the bytes of bundles is reached.
    pub(super) fn describe_limit_reached(&self, limit: LimitReached) -> String {
        let limits = &self.pools.limits;
        let (owner, table, max_bytes) = match limit {
            LimitReached::Organization => {
                ("your organization", "organization", limits.organization[SharedResource::BundleBytes])
            }
            LimitReached::Total => ("all organizations together", "total", limits.total[SharedResource::BundleBytes]),
        };
        format!(
            "the bundles of {owner} would take more than {} (limits.{table}.bundleBytes); a bundle can be removed {} after the \
             end of its job, once no link to it is valid: start another job then",
            format_size(max_bytes),
            format_duration(self.retention.min_job_age)
        )
    }
}
