//! Limits for stored bundles: how many are kept, and whether there is space for another.

use std::time::{Duration, SystemTime};

use rusqlite::Transaction;

use docwharf_base::model::units::{show_duration, show_size};
use crate::db::DatabaseError;
use crate::limits::Resource;
use crate::millis;
use crate::shares::{NoShare, Shares};
use crate::space::FreeSpace;

use super::{ExportJobs, rows};

/// Limits of the bundles that are kept.
#[derive(Debug, Clone, Copy)]
pub(in crate) struct BundleRetention {
    /// Number of finished jobs of each project.
    pub(in crate) jobs: usize,
    /// Bytes of the bundles of each organization, and of all together.
    pub(in crate) bytes: BundleByteLimits,
    /// Bytes that must stay free on the disk.
    pub(in crate) min_free: Option<u64>,
    /// Time that a job stays after its end, and after the end of its last link, whatever the other limits.
    pub(in crate) young: Duration,
}

/// Sizes of bundles in bytes; beyond them the oldest that may be removed are removed.
#[derive(Debug, Clone, Copy)]
pub(in crate) struct BundleByteLimits {
    pub(in crate) organization: u64,
    pub(in crate) total: u64,
}

impl BundleRetention {
    pub(in crate) fn new(jobs: usize, shares: &Shares, young: Duration, min_free: Option<u64>) -> BundleRetention {
        let resource = Resource::BundleBytes;
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
        let now = millis(SystemTime::now());
        let times = may_stay.then(|| (self.keep.young_at(now), now));
        self.db.read(|connection| rows::bundle_bytes(connection, organization, times))
    }

    /// Returns the bytes of all bundles.
    pub(in crate) fn all_bundle_bytes(&self) -> Result<u64, DatabaseError> {
        Ok(self.bundle_bytes("", false)?.1)
    }

    /// Returns why a bundle of this size must not be packed, if so. It is checked before packing, because a bundle that
    /// turns out not to fit has cost time and disk space of all organizations.
    pub(super) fn no_room(&self, organization: &str, bytes: u64) -> Option<String> {
        let space = FreeSpace::of(&self.bundles, self.keep.min_free).ok()?;
        if space.room().is_some_and(|room| room == 0 || room < bytes) {
            self.shares.pool(Resource::BundleBytes).refuse();
            return Some(format!(
                "the disk of the origin has no room for a bundle of {} (store.minFree); try again later",
                show_size(bytes)
            ));
        }
        let (own, all) = self.bundle_bytes(organization, true).ok()?;
        let why = self.shares.pool(Resource::BundleBytes).check(own, all, 1).err()?;
        Some(self.full(why))
    }

    pub(super) fn full(&self, why: NoShare) -> String {
        let limits = &self.shares.limits;
        let (whose, table, most) = match why {
            NoShare::Organization => ("your organization", "organization", limits.organization[Resource::BundleBytes]),
            NoShare::Total => ("all organizations together", "total", limits.total[Resource::BundleBytes]),
        };
        format!(
            "the bundles of {whose} would take more than {} (limits.{table}.bundleBytes); a bundle can be removed {} after the \
             end of its job, once no link to it is valid: start another job then",
            show_size(most),
            show_duration(self.keep.young)
        )
    }
}
