//! The amounts of shared resources that organizations hold at the moment, and their limits. The state is in memory.
//!
//! A [`ResourceShare`] is returned to its pool when it is dropped, so that no exit path of a request or a job leaks it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use docwharf_base::locks::{Condvar, Mutex, MutexGuard};

use super::limits::{OriginLimits, SharedResource};

/// The limit that prevents an organization from getting more of a resource at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitReached {
    /// The limit of the organization is reached.
    Organization,
    /// The total limit is reached, or only the reserve for other organizations remains.
    Total,
}

impl LimitReached {
    /// Describes which limit all jobs of the kind `jobs` (such as `"crawls"`) have reached.
    pub fn describe(self, jobs: &str, resource: SharedResource) -> String {
        let key = resource.key();
        match self {
            LimitReached::Organization => {
                format!("all {jobs} of the organization together reached limits.organization.{key}")
            }
            LimitReached::Total => format!(
                "all {jobs} of all organizations together reached limits.total.{key}, apart from what is reserved for \
                 organizations that have none"
            ),
        }
    }
}

/// A pool of one resource that organizations share.
#[derive(Debug)]
pub struct ResourcePool {
    organization: u64,
    total: u64,
    /// The amount that stays free for organizations that hold nothing.
    reserve: u64,
    held: Mutex<HeldAmounts>,
    /// Wakes the threads in [`ResourcePool::acquire_within`] when a share is returned.
    released: Condvar,
}

#[derive(Debug, Default)]
struct HeldAmounts {
    total_held: u64,
    /// The amount held by each organization; an organization that holds nothing has no entry.
    by_organization: HashMap<Arc<str>, u64>,
    /// The number of requests for a share that were refused.
    refusals: u64,
}

impl ResourcePool {
    /// Creates a pool of `total`, of which each organization may hold `organization`. An organization that holds
    /// something leaves `reserve` for those that hold nothing.
    pub fn new(organization: u64, total: u64, reserve: u64) -> Arc<ResourcePool> {
        Arc::new(ResourcePool { organization, total, reserve, held: Mutex::default(), released: Condvar::new() })
    }

    fn held(&self) -> MutexGuard<'_, HeldAmounts> {
        // No code panics while it holds this lock, so a poisoned lock has consistent data.
        self.held.lock()
    }

    /// Acquires `amount` for an organization, or counts a refusal.
    pub fn acquire(self: &Arc<Self>, organization: &str, amount: u64) -> Result<ResourceShare, LimitReached> {
        let mut held = self.held();
        self.try_acquire(&mut held, organization, amount).inspect_err(|_| held.refusals += 1)
    }

    /// Acquires one unit for a job that waits in a queue. `None` means that the job keeps waiting, and does not count
    /// as a refusal.
    pub fn acquire_from_queue(self: &Arc<Self>, organization: &str) -> Option<ResourceShare> {
        let mut held = self.held();
        self.try_acquire(&mut held, organization, 1).ok()
    }

    /// Acquires `amount` for an organization, and waits up to `timeout` for others to return their shares.
    pub fn acquire_within(
        self: &Arc<Self>,
        organization: &str,
        amount: u64,
        timeout: Duration,
    ) -> Result<ResourceShare, LimitReached> {
        let deadline = Instant::now() + timeout;
        let mut held = self.held();
        loop {
            let limit_reached = match self.try_acquire(&mut held, organization, amount) {
                Ok(share) => return Ok(share),
                Err(limit_reached) => limit_reached,
            };
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                held.refusals += 1;
                return Err(limit_reached);
            }
            held = self.released.wait_timeout(held, remaining);
        }
    }

    /// Acquires as much as is available, up to `max_amount`. Fails if nothing is available.
    pub fn acquire_up_to(self: &Arc<Self>, organization: &str, max_amount: u64) -> Result<ResourceShare, LimitReached> {
        let mut held = self.held();
        let amount = max_amount.min(self.available_to(&held, organization).1);
        if amount == 0 {
            held.refusals += 1;
            return Err(self.available_to(&held, organization).0);
        }
        self.try_acquire(&mut held, organization, amount)
    }

    /// Returns the amount that an organization can acquire, and the limit that prevents more. The organization holds
    /// `own_held`, and all organizations together hold `total_held`.
    fn available(&self, own_held: u64, total_held: u64) -> (LimitReached, u64) {
        let reserve = if own_held > 0 { self.reserve } else { 0 };
        let remaining_total = self.total.saturating_sub(total_held).saturating_sub(reserve);
        let remaining_own = self.organization.saturating_sub(own_held);
        if remaining_own <= remaining_total {
            (LimitReached::Organization, remaining_own)
        } else {
            (LimitReached::Total, remaining_total)
        }
    }

    /// Returns the amount that an organization can acquire from this pool, and the limit that prevents more.
    fn available_to(&self, held: &HeldAmounts, organization: &str) -> (LimitReached, u64) {
        self.available(held.by_organization.get(organization).copied().unwrap_or(0), held.total_held)
    }

    /// Checks whether `amount` more is within the limits, for a resource whose use (`own_held`, `total_held`) is
    /// counted elsewhere, for example in the database. Counts a refusal if it is not.
    pub fn check(&self, own_held: u64, total_held: u64, amount: u64) -> Result<(), LimitReached> {
        let (reason, available) = self.available(own_held, total_held);
        if amount <= available {
            return Ok(());
        }
        self.count_refusal();
        Err(reason)
    }

    /// Counts a refusal that the caller has decided.
    pub fn count_refusal(&self) {
        self.held().refusals += 1;
    }

    /// Returns the amount that organizations with a share leave for those without one.
    pub fn reserve(&self) -> u64 {
        self.reserve
    }

    fn try_acquire(
        self: &Arc<Self>,
        held: &mut HeldAmounts,
        organization: &str,
        amount: u64,
    ) -> Result<ResourceShare, LimitReached> {
        let (reason, available) = self.available_to(held, organization);
        if amount > available {
            return Err(reason);
        }
        let organization = held
            .by_organization
            .get_key_value(organization)
            .map_or_else(|| Arc::from(organization), |(name, _)| Arc::clone(name));
        if amount > 0 {
            held.total_held += amount;
            *held.by_organization.entry(Arc::clone(&organization)).or_default() += amount;
        }
        Ok(ResourceShare { pool: Arc::clone(self), organization, amount })
    }

    fn release(&self, organization: &Arc<str>, amount: u64) {
        if amount == 0 {
            return;
        }
        let mut held = self.held();
        held.total_held = held.total_held.saturating_sub(amount);
        if let Some(own_held) = held.by_organization.get_mut(organization) {
            *own_held = own_held.saturating_sub(amount);
            if *own_held == 0 {
                held.by_organization.remove(organization);
            }
        }
        drop(held);
        self.released.notify_all();
    }

    /// Returns the amount that all organizations hold at the moment.
    pub fn in_use(&self) -> u64 {
        self.held().total_held
    }

    /// Returns the number of refusals.
    pub fn refusals(&self) -> u64 {
        self.held().refusals
    }
}

/// An amount of a pool that an organization holds until this is dropped.
#[derive(Debug)]
#[must_use = "dropping it returns the share to its pool"]
pub struct ResourceShare {
    pool: Arc<ResourcePool>,
    organization: Arc<str>,
    amount: u64,
}

impl ResourceShare {
    /// Returns the amount.
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// Changes the amount: acquires more from the pool, or returns a part.
    pub fn resize(&mut self, amount: u64) -> Result<(), LimitReached> {
        if amount >= self.amount {
            return self.grow(amount - self.amount);
        }
        self.pool.release(&self.organization, self.amount - amount);
        self.amount = amount;
        Ok(())
    }

    /// Acquires more from the pool.
    pub fn grow(&mut self, additional: u64) -> Result<(), LimitReached> {
        let mut share = self.pool.acquire(&self.organization, additional)?;
        // This share now holds the amount, so dropping the other one returns nothing.
        self.amount += std::mem::take(&mut share.amount);
        Ok(())
    }
}

impl Drop for ResourceShare {
    fn drop(&mut self) {
        self.pool.release(&self.organization, self.amount);
    }
}

/// One pool for each resource. For resources that are counted elsewhere (in the database, or by the hour) only the
/// limits and the count of refusals are used.
#[derive(Debug)]
pub struct ResourcePools {
    /// The limits of all pools.
    pub limits: OriginLimits,
    pools: [Arc<ResourcePool>; SharedResource::ALL.len()],
}

impl ResourcePools {
    /// Creates pools for this number of organizations. A single organization leaves no reserve for others.
    pub fn new(limits: OriginLimits, organizations: usize) -> Arc<ResourcePools> {
        let pools = SharedResource::ALL.map(|resource| {
            let (organization_limit, total_limit) = (limits.organization[resource], limits.total[resource]);
            // If the reserve were the whole total or more, an organization that holds something could never get more,
            // and no bundle could be retained (`BundleRetention`).
            let reserve = if organizations > 1 && total_limit > resource.reserve() { resource.reserve() } else { 0 };
            ResourcePool::new(organization_limit, total_limit, reserve)
        });
        Arc::new(ResourcePools { limits, pools })
    }

    /// Returns the pool of a resource.
    pub fn pool(&self, resource: SharedResource) -> &Arc<ResourcePool> {
        &self.pools[resource as usize]
    }

    /// Acquires `amount` of a resource; see [`ResourcePool::acquire`].
    pub fn acquire(
        &self,
        organization: &str,
        resource: SharedResource,
        amount: u64,
    ) -> Result<ResourceShare, LimitReached> {
        self.pool(resource).acquire(organization, amount)
    }

    /// Acquires up to `max_amount` of a resource; see [`ResourcePool::acquire_up_to`].
    pub fn acquire_up_to(
        &self,
        organization: &str,
        resource: SharedResource,
        max_amount: u64,
    ) -> Result<ResourceShare, LimitReached> {
        self.pool(resource).acquire_up_to(organization, max_amount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_organization_with_a_share_cannot_acquire_the_reserved_part_of_a_pool() {
        let pool = ResourcePool::new(9, 3, 1);
        let first = pool.acquire("a", 1).unwrap();
        let second = pool.acquire("a", 1).unwrap();
        assert_eq!(pool.acquire("a", 1).unwrap_err(), LimitReached::Total);
        let other = pool.acquire("b", 1).unwrap();
        assert_eq!(pool.acquire("b", 1).unwrap_err(), LimitReached::Total);
        assert_eq!((pool.in_use(), pool.refusals()), (3, 2));
        drop((first, second, other));
        assert_eq!(pool.in_use(), 0);
        assert!(pool.held().by_organization.is_empty());
    }

    #[test]
    fn with_two_workers_one_is_reserved_and_with_one_worker_none_is() {
        let limits = OriginLimits::default();
        let many = ResourcePools::new(limits, 2);
        let first = many.acquire("a", SharedResource::Workers, 1).unwrap();
        assert_eq!(many.acquire("a", SharedResource::Workers, 1).unwrap_err(), LimitReached::Total);
        drop(first);
        let alone = ResourcePools::new(limits, 1);
        let shares = [(); 2].map(|()| alone.acquire("a", SharedResource::Workers, 1).unwrap());
        assert_eq!(alone.acquire("a", SharedResource::Workers, 1).unwrap_err(), LimitReached::Organization);
        drop(shares);
        let limits =
            OriginLimits::from_config(|_| None, |resource| (resource == SharedResource::Workers).then_some(1)).unwrap();
        assert!(ResourcePools::new(limits, 5).acquire("a", SharedResource::Workers, 1).is_ok());
    }

    #[test]
    fn pool_check_applies_the_same_limits_to_externally_counted_usage() {
        let pool = ResourcePool::new(10, 20, 5);
        assert_eq!(pool.check(4, 4, 6), Ok(()));
        assert_eq!(pool.check(4, 4, 7), Err(LimitReached::Organization));
        assert_eq!(
            pool.check(4, 14, 2),
            Err(LimitReached::Total),
            "five are reserved for organizations that hold nothing"
        );
        assert_eq!(pool.check(0, 14, 6), Ok(()));
        assert_eq!(
            pool.check(30, 40, 1),
            Err(LimitReached::Organization),
            "the limits may be lower than the use after a change of the configuration"
        );
        assert_eq!(pool.refusals(), 3);
    }

    #[test]
    fn a_resource_share_grows_within_its_limits_and_is_released_completely_on_drop() {
        let pool = ResourcePool::new(10, 100, 10);
        let mut share = pool.acquire("a", 4).unwrap();
        share.grow(6).unwrap();
        assert_eq!(share.grow(1), Err(LimitReached::Organization));
        assert_eq!((share.amount(), pool.in_use()), (10, 10));
        assert_eq!(pool.acquire_up_to("a", 5).unwrap_err(), LimitReached::Organization);
        share.resize(3).unwrap();
        assert_eq!((share.amount(), pool.in_use()), (3, 3));
        assert_eq!(share.resize(11), Err(LimitReached::Organization));
        share.resize(10).unwrap();
        drop(share);
        assert_eq!(pool.acquire_up_to("a", 50).unwrap().amount(), 10);
        assert_eq!(pool.in_use(), 0);
        assert_eq!(pool.acquire("a", 11).unwrap_err(), LimitReached::Organization);
        assert_eq!(pool.acquire("a", 0).unwrap().amount(), 0);
        assert_eq!(pool.refusals(), 4, "each refusal is counted");
    }

    #[test]
    fn a_waiting_acquire_gets_a_released_share_or_fails_after_its_timeout() {
        let pool = ResourcePool::new(1, 1, 0);
        let share = pool.acquire("a", 1).unwrap();
        assert_eq!(pool.acquire_within("b", 1, Duration::from_millis(1)).unwrap_err(), LimitReached::Total);
        assert!(pool.acquire_from_queue("b").is_none());
        assert_eq!(pool.refusals(), 1, "a job that keeps waiting is not refused");
        std::thread::scope(|scope| {
            let waiting =
                scope.spawn(|| pool.acquire_within("b", 1, Duration::from_mins(1)).map(|share| share.amount()));
            drop(share);
            assert_eq!(waiting.join().unwrap(), Ok(1));
        });
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn pool_limits_hold_for_random_acquire_and_release_sequences() {
        let pool = ResourcePool::new(6, 16, 2);
        let (mut shares, mut state) = (Vec::new(), 7_u64);
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let random = state >> 33;
            if random % 3 == 0 && !shares.is_empty() {
                drop(shares.swap_remove(random as usize % shares.len()));
            } else if let Ok(share) = pool.acquire(["a", "b", "c", "d"][random as usize % 4], random % 5) {
                shares.push(share);
            }
            let held = pool.held();
            assert!(held.total_held <= 16 && held.by_organization.values().all(|own_held| (1..=6).contains(own_held)));
            assert_eq!(held.total_held, held.by_organization.values().sum::<u64>());
        }
        shares.clear();
        assert_eq!(pool.in_use(), 0);
    }
}
