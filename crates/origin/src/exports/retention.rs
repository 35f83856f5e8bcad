//! Limits for stored bundles: how many are kept, and whether there is space for another.

use std::time::Duration;

use rusqlite::Transaction;

use crate::database::DatabaseError;
use crate::free_space::FreeSpace;
use crate::limits::SharedResource;
use crate::shares::{LimitReached, ResourcePools};
use docwharf_base::clock::now_unix_millis;
use docwharf_base::model::units::{show_duration, show_size};

use super::ExportJobs;
use super::rows::{self, BundleByteLimits};

/// Limits of the bundles that are kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BundleRetention {
    /// Number of finished jobs of each project.
    pub(crate) jobs: usize,
    /// Bytes of the bundles of each organization, and of all together.
    pub(crate) bytes: BundleByteLimits,
    /// Bytes that must stay free on the disk.
    pub(crate) min_free: Option<u64>,
    /// Time that a job stays after its end, and after the end of its last link, whatever the other limits.
    pub(crate) young: Duration,
}

impl BundleRetention {
    pub(crate) fn new(jobs: usize, shares: &ResourcePools, young: Duration, min_free: Option<u64>) -> BundleRetention {
        let resource = SharedResource::BundleBytes;
        // The reserve that organizations leave to others is not available to old bundles either.
        let total = shares.limits.total[resource].saturating_sub(shares.pool(resource).reserve());
        let bytes = BundleByteLimits { organization: shares.limits.organization[resource], total };
        BundleRetention { jobs, bytes, min_free, young }
    }

    /// Deletes the jobs beyond the limits at this time, in milliseconds since 1970. Returns the names of the files to
    /// remove.
    pub(super) fn forget(self, transaction: &Transaction<'_>, now: i64) -> rusqlite::Result<Vec<String>> {
        rows::forget(transaction, self.jobs, self.bytes, self.young_at(now), now)
    }

    /// Returns the time after which a job must have ended to be young at `now`.
    fn young_at(self, now: i64) -> i64 {
        now.saturating_sub(i64::try_from(self.young.as_millis()).unwrap_or(i64::MAX))
    }
}

impl ExportJobs {
    /// Returns the bytes of the bundles of an organization, and of all. With `may_stay`, only those count that may not
    /// be removed now: young ones, and those with a valid link.
    fn bundle_bytes(&self, organization: &str, may_stay: bool) -> Result<(u64, u64), DatabaseError> {
        let now = now_unix_millis();
        let times = may_stay.then(|| (self.keep.young_at(now), now));
        self.db.read(|connection| rows::bundle_bytes(connection, organization, times))
    }

    /// Returns the bytes of all bundles.
    pub(crate) fn all_bundle_bytes(&self) -> Result<u64, DatabaseError> {
        Ok(self.bundle_bytes("", false)?.1)
    }

    /// Returns why a bundle of this size must not be packed, if so. It is checked before packing, because a bundle that
    /// turns out not to fit has cost time and disk space of all organizations.
    pub(super) fn no_room(&self, organization: &str, bytes: u64) -> Option<String> {
        let space = FreeSpace::read(&self.bundles, self.keep.min_free).ok()?;
        if space.writable_bytes().is_some_and(|room| room == 0 || room < bytes) {
            self.shares.pool(SharedResource::BundleBytes).count_refusal();
            return Some(format!(
                "the disk of the origin has no room for a bundle of {} (store.minFree); try again later",
                show_size(bytes)
            ));
        }
        let (own, all) = self.bundle_bytes(organization, true).ok()?;
        let why = self.shares.pool(SharedResource::BundleBytes).check(own, all, 1).err()?;
        Some(self.full(why))
    }

    pub(super) fn full(&self, why: LimitReached) -> String {
        let limits = &self.shares.limits;
        let (whose, table, most) = match why {
            LimitReached::Organization => {
                ("your organization", "organization", limits.organization[SharedResource::BundleBytes])
            }
            LimitReached::Total => ("all organizations together", "total", limits.total[SharedResource::BundleBytes]),
        };
        format!(
            "the bundles of {whose} would take more than {} (limits.{table}.bundleBytes); a bundle can be removed {} after the \
             end of its job, once no link to it is valid: start another job then",
            show_size(most),
            show_duration(self.keep.young)
        )
    }
}
