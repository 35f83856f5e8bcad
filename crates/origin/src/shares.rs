//! The amounts of shared resources that organizations hold at the moment, and their limits. The state is in memory.
//!
//! A [`Share`] is returned to its pool when it is dropped, so that no exit path of a request or a job leaks it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use docwharf_base::locks::{Condvar, Mutex, MutexGuard};

use super::limits::{OriginLimits, SharedResource};

/// The limit because of which an organization gets no more at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitReached {
    /// The limit of the organization is reached.
    Organization,
    /// The total limit is reached, or only the reserve for other organizations is left.
    Total,
}

impl LimitReached {
    /// Describes which limit all work of the kind `work` (such as `"crawls"`) has reached.
    pub fn describe(self, work: &str, resource: SharedResource) -> String {
        let key = resource.key();
        match self {
            LimitReached::Organization => {
                format!("all {work} of the organization together reached limits.organization.{key}")
            }
            LimitReached::Total => format!(
                "all {work} of all organizations together reached limits.total.{key}, apart from what is reserved for \
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
    /// Wakes the threads in [`ResourcePool::take_within`] when a share is returned.
    given_back: Condvar,
}

#[derive(Debug, Default)]
struct HeldAmounts {
    all: u64,
    /// The amount held by each organization; an organization that holds nothing has no entry.
    each: HashMap<Arc<str>, u64>,
    /// The number of requests for a share that were refused.
    refused: u64,
}

impl ResourcePool {
    /// Creates a pool of `total`, of which each organization may hold `organization`. An organization that holds
    /// something leaves `reserve` for those that hold nothing.
    pub fn new(organization: u64, total: u64, reserve: u64) -> Arc<ResourcePool> {
        Arc::new(ResourcePool { organization, total, reserve, held: Mutex::default(), given_back: Condvar::new() })
    }

    fn held(&self) -> MutexGuard<'_, HeldAmounts> {
        // No code panics while it holds this lock, so a poisoned lock has consistent data.
        self.held.lock()
    }

    /// Takes `amount` for an organization, or counts a refusal.
    pub fn take(self: &Arc<Self>, organization: &str, amount: u64) -> Result<ResourceShare, LimitReached> {
        let mut held = self.held();
        self.try_take(&mut held, organization, amount).inspect_err(|_| held.refused += 1)
    }

    /// Takes one unit for a job that waits in a queue. `None` means that the job keeps waiting, and does not count as a
    /// refusal.
    pub fn take_turn(self: &Arc<Self>, organization: &str) -> Option<ResourceShare> {
        let mut held = self.held();
        self.try_take(&mut held, organization, 1).ok()
    }

    /// Takes `amount` for an organization, and waits up to `patience` for others to return their shares.
    pub fn take_within(
        self: &Arc<Self>,
        organization: &str,
        amount: u64,
        patience: Duration,
    ) -> Result<ResourceShare, LimitReached> {
        let deadline = Instant::now() + patience;
        let mut held = self.held();
        loop {
            let refused = match self.try_take(&mut held, organization, amount) {
                Ok(share) => return Ok(share),
                Err(refused) => refused,
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                held.refused += 1;
                return Err(refused);
            }
            held = self.given_back.wait_timeout(held, left);
        }
    }

    /// Takes as much as is available, up to `most`. Fails if nothing is available.
    pub fn take_up_to(self: &Arc<Self>, organization: &str, most: u64) -> Result<ResourceShare, LimitReached> {
        let mut held = self.held();
        let amount = most.min(self.available_to(&held, organization).1);
        if amount == 0 {
            held.refused += 1;
            return Err(self.available_to(&held, organization).0);
        }
        self.try_take(&mut held, organization, amount)
    }

    /// Returns the amount that an organization which holds `own` can take while all together hold `all`, and the limit
    /// that prevents more.
    fn available(&self, own: u64, all: u64) -> (LimitReached, u64) {
        let reserve = if own > 0 { self.reserve } else { 0 };
        let of_all = self.total.saturating_sub(all).saturating_sub(reserve);
        let of_own = self.organization.saturating_sub(own);
        if of_own <= of_all { (LimitReached::Organization, of_own) } else { (LimitReached::Total, of_all) }
    }

    /// Returns the amount that an organization can take from this pool, and the limit that prevents more.
    fn available_to(&self, held: &HeldAmounts, organization: &str) -> (LimitReached, u64) {
        self.available(held.each.get(organization).copied().unwrap_or(0), held.all)
    }

    /// Checks whether `amount` more is within the limits, for a resource whose use (`own`, `all`) is counted elsewhere,
    /// for example in the database. Counts a refusal if it is not.
    pub fn check(&self, own: u64, all: u64, amount: u64) -> Result<(), LimitReached> {
        let (why, room) = self.available(own, all);
        if amount <= room {
            return Ok(());
        }
        self.count_refusal();
        Err(why)
    }

    /// Counts a refusal that the caller has decided.
    pub fn count_refusal(&self) {
        self.held().refused += 1;
    }

    /// Returns the amount that organizations with a share leave for those without one.
    pub fn reserve(&self) -> u64 {
        self.reserve
    }

    fn try_take(
        self: &Arc<Self>,
        held: &mut HeldAmounts,
        organization: &str,
        amount: u64,
    ) -> Result<ResourceShare, LimitReached> {
        let (why, free) = self.available_to(held, organization);
        if amount > free {
            return Err(why);
        }
        let organization =
            held.each.get_key_value(organization).map_or_else(|| Arc::from(organization), |(name, _)| Arc::clone(name));
        if amount > 0 {
            held.all += amount;
            *held.each.entry(Arc::clone(&organization)).or_default() += amount;
        }
        Ok(ResourceShare { pool: Arc::clone(self), organization, amount })
    }

    fn give_back(&self, organization: &Arc<str>, amount: u64) {
        if amount == 0 {
            return;
        }
        let mut held = self.held();
        held.all = held.all.saturating_sub(amount);
        if let Some(own) = held.each.get_mut(organization) {
            *own = own.saturating_sub(amount);
            if *own == 0 {
                held.each.remove(organization);
            }
        }
        drop(held);
        self.given_back.notify_all();
    }

    /// Returns the amount that all organizations hold at the moment.
    pub fn in_use(&self) -> u64 {
        self.held().all
    }

    /// Returns the number of refusals.
    pub fn refused(&self) -> u64 {
        self.held().refused
    }
}

/// An amount of a pool that an organization holds until this is dropped.
#[derive(Debug)]
#[must_use = "it is given back when it is dropped"]
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

    /// Changes the amount: takes more from the pool, or returns a part.
    pub fn resize(&mut self, amount: u64) -> Result<(), LimitReached> {
        if amount >= self.amount {
            return self.grow(amount - self.amount);
        }
        self.pool.give_back(&self.organization, self.amount - amount);
        self.amount = amount;
        Ok(())
    }

    /// Takes more from the pool.
    pub fn grow(&mut self, more: u64) -> Result<(), LimitReached> {
        let mut more = self.pool.take(&self.organization, more)?;
        self.amount += std::mem::take(&mut more.amount);
        Ok(())
    }
}

impl Drop for ResourceShare {
    fn drop(&mut self) {
        self.pool.give_back(&self.organization, self.amount);
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
            let (own, all) = (limits.organization[resource], limits.total[resource]);
            // With only one unit in total, a reserve would leave nothing for any organization.
            let reserve = if organizations > 1 && all > resource.max_amount_per_use() {
                resource.max_amount_per_use()
            } else {
                0
            };
            ResourcePool::new(own, all, reserve)
        });
        Arc::new(ResourcePools { limits, pools })
    }

    /// Returns the pool of a resource.
    pub fn pool(&self, resource: SharedResource) -> &Arc<ResourcePool> {
        &self.pools[resource as usize]
    }

    /// Takes `amount` of a resource; see [`ResourcePool::take`].
    pub fn take(
        &self,
        organization: &str,
        resource: SharedResource,
        amount: u64,
    ) -> Result<ResourceShare, LimitReached> {
        self.pool(resource).take(organization, amount)
    }

    /// Takes up to `most` of a resource; see [`ResourcePool::take_up_to`].
    pub fn take_up_to(
        &self,
        organization: &str,
        resource: SharedResource,
        most: u64,
    ) -> Result<ResourceShare, LimitReached> {
        self.pool(resource).take_up_to(organization, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_organization_that_holds_something_does_not_get_the_last_place() {
        let pool = ResourcePool::new(9, 3, 1);
        let first = pool.take("a", 1).unwrap();
        let second = pool.take("a", 1).unwrap();
        assert_eq!(pool.take("a", 1).unwrap_err(), LimitReached::Total);
        let other = pool.take("b", 1).unwrap();
        assert_eq!(pool.take("b", 1).unwrap_err(), LimitReached::Total);
        assert_eq!((pool.in_use(), pool.refused()), (3, 2));
        drop((first, second, other));
        assert_eq!(pool.in_use(), 0);
        assert!(pool.held().each.is_empty());
    }

    #[test]
    fn with_two_places_an_organization_has_one_of_them_and_all_if_it_is_alone() {
        let limits = OriginLimits::default();
        let many = ResourcePools::new(limits, 2);
        let one = many.take("a", SharedResource::Workers, 1).unwrap();
        assert_eq!(many.take("a", SharedResource::Workers, 1).unwrap_err(), LimitReached::Total);
        drop(one);
        let alone = ResourcePools::new(limits, 1);
        let both = [(); 2].map(|()| alone.take("a", SharedResource::Workers, 1).unwrap());
        assert_eq!(alone.take("a", SharedResource::Workers, 1).unwrap_err(), LimitReached::Organization);
        drop(both);
        let one =
            OriginLimits::from_config(|_| None, |resource| (resource == SharedResource::Workers).then_some(1)).unwrap();
        assert!(ResourcePools::new(one, 5).take("a", SharedResource::Workers, 1).is_ok());
    }

    #[test]
    fn what_is_counted_elsewhere_has_the_same_bounds() {
        let pool = ResourcePool::new(10, 20, 5);
        assert_eq!(pool.check(4, 4, 6), Ok(()));
        assert_eq!(pool.check(4, 4, 7), Err(LimitReached::Organization));
        assert_eq!(pool.check(4, 14, 2), Err(LimitReached::Total), "five are left to those that hold nothing");
        assert_eq!(pool.check(0, 14, 6), Ok(()));
        assert_eq!(pool.check(30, 40, 1), Err(LimitReached::Organization), "bounds may have been lowered");
        assert_eq!(pool.refused(), 3);
    }

    #[test]
    fn a_share_grows_within_the_bounds_and_goes_back_whole() {
        let pool = ResourcePool::new(10, 100, 10);
        let mut share = pool.take("a", 4).unwrap();
        share.grow(6).unwrap();
        assert_eq!(share.grow(1), Err(LimitReached::Organization));
        assert_eq!((share.amount(), pool.in_use()), (10, 10));
        assert_eq!(pool.take_up_to("a", 5).unwrap_err(), LimitReached::Organization);
        share.resize(3).unwrap();
        assert_eq!((share.amount(), pool.in_use()), (3, 3));
        assert_eq!(share.resize(11), Err(LimitReached::Organization));
        share.resize(10).unwrap();
        drop(share);
        assert_eq!(pool.take_up_to("a", 50).unwrap().amount(), 10);
        assert_eq!(pool.in_use(), 0);
        assert_eq!(pool.take("a", 11).unwrap_err(), LimitReached::Organization);
        assert_eq!(pool.take("a", 0).unwrap().amount(), 0);
    }

    #[test]
    fn who_waits_gets_what_another_gives_back_and_nobody_waits_for_ever() {
        let pool = ResourcePool::new(1, 1, 0);
        let share = pool.take("a", 1).unwrap();
        assert_eq!(pool.take_within("b", 1, Duration::from_millis(1)).unwrap_err(), LimitReached::Total);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| pool.take_within("b", 1, Duration::from_mins(1)).map(|share| share.amount()));
            drop(share);
            assert_eq!(waits.join().unwrap(), Ok(1));
        });
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn whatever_is_taken_in_whatever_order_the_bounds_hold_and_all_of_it_comes_back() {
        let pool = ResourcePool::new(6, 16, 2);
        let (mut shares, mut state) = (Vec::new(), 7_u64);
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let dice = state >> 33;
            if dice % 3 == 0 && !shares.is_empty() {
                drop(shares.swap_remove(dice as usize % shares.len()));
            } else if let Ok(share) = pool.take(["a", "b", "c", "d"][dice as usize % 4], dice % 5) {
                shares.push(share);
            }
            let held = pool.held();
            assert!(held.all <= 16 && held.each.values().all(|own| (1..=6).contains(own)));
            assert_eq!(held.all, held.each.values().sum::<u64>());
        }
        shares.clear();
        assert_eq!(pool.in_use(), 0);
    }
}
