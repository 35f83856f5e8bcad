//! How many bundles are kept, and whether there is room for another.

use std::time::{Duration, SystemTime};

use rusqlite::Transaction;

use docwharf_base::model::units::{show_duration, show_size};
use crate::db::DatabaseError;
use crate::limits::Resource;
use crate::millis;
use crate::shares::{NoShare, Shares};
use crate::space::FreeSpace;

use super::{Exports, rows};

/// What keeping bundles may cost.
#[derive(Debug, Clone, Copy)]
pub(in crate) struct Keep {
    /// Finished jobs of each project.
    pub(in crate) jobs: usize,
    /// Bytes of the bundles of each organization, and of all.
    pub(in crate) bytes: Bytes,
    /// What must stay free on the disk.
    pub(in crate) min_free: Option<u64>,
    /// For how long after its end, and after the end of its last link, a job stays whatever else there is.
    pub(in crate) young: Duration,
}

/// Bytes of bundles beyond which the oldest go that may.
#[derive(Debug, Clone, Copy)]
pub(in crate) struct Bytes {
    pub(in crate) organization: u64,
    pub(in crate) total: u64,
}

impl Keep {
    pub(in crate) fn new(jobs: usize, shares: &Shares, young: Duration, min_free: Option<u64>) -> Keep {
        let resource = Resource::BundleBytes;
        // What organizations leave to others is not for old bundles either.
        let total = shares.limits.total[resource].saturating_sub(shares.pool(resource).reserve());
        let bytes = Bytes { organization: shares.limits.organization[resource], total };
        Keep { jobs, bytes, min_free, young }
    }

    /// Forgets jobs that are beyond it at this time, in milliseconds since 1970; the files that may go.
    pub(super) fn forget(self, transaction: &Transaction<'_>, now: i64) -> rusqlite::Result<Vec<String>> {
        rows::forget(transaction, self.jobs, self.bytes, self.young_at(now), now)
    }

    /// What has ended after this time is young at `now`.
    fn young_at(self, now: i64) -> i64 {
        now.saturating_sub(i64::try_from(self.young.as_millis()).unwrap_or(i64::MAX))
    }
}

impl Exports {
    /// Bytes of bundles of an organization and of all. Where `may_stay` only those count that nothing removes now: young ones,
    /// and those with a link that works.
    fn bundle_bytes(&self, organization: &str, may_stay: bool) -> Result<(u64, u64), DatabaseError> {
        let now = millis(SystemTime::now());
        let times = may_stay.then(|| (self.keep.young_at(now), now));
        self.db.read(|connection| rows::bundle_bytes(connection, organization, times))
    }

    /// Bytes of all bundles.
    pub(in crate) fn all_bundle_bytes(&self) -> Result<u64, DatabaseError> {
        Ok(self.bundle_bytes("", false)?.1)
    }

    /// Why nothing may be packed that takes so many bytes, if that is so: a bundle that has no room when it is there has cost
    /// time and disk of everybody.
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
