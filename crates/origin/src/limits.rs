//! How much of what they share the organizations of an origin may take: one bound for each of them, one for all together.
//!
//! `[limits.organization]` and `[limits.total]` have the same keys, one for each [`Resource`]. A bound counts what is held at
//! the moment, but for [`Resource::Events`] and [`Resource::Links`], which count what was taken within the last hour.
//!
//! A bound for each organization alone does not help the others while a few of them can take everything. So an organization
//! that already holds something of a resource does not get the last free [place](Resource::place) of it.

use std::ops::{Index, IndexMut};
use std::time::Duration;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const MINUTE: u64 = 60_000;

/// What organizations share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Exports that are made at a time.
    Workers,
    /// Export jobs that wait for a worker. Previews wait in a queue of their own, with the same bounds.
    WaitingJobs,
    /// Time that crawls under way may take, each from its beginning to its end, in milliseconds.
    CrawlTime,
    /// Addresses that crawls under way may know, whether or not they are fetched.
    CrawlAddresses,
    /// Previews that are built at a time.
    PreviewBuilds,
    /// Bytes of request bodies that are received or worked on.
    BodyBytes,
    /// Searches taken in within an hour.
    Events,
    /// Rows of searches and of their batches in the database.
    Rows,
    /// Bytes of the database: for an organization those of its searches, in total everything in it.
    DatabaseBytes,
    /// Bytes of bundles that are kept.
    BundleBytes,
    /// Links to bundles given out within an hour.
    Links,
    /// Bytes of memory that builds under way may take.
    BuildMemory,
    /// Bytes that builds under way may write.
    BuildDisk,
    /// Processes that builds under way may have.
    BuildProcesses,
}

/// What the value of a resource's key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A number.
    Count,
    /// Bytes, written like `"4GiB"`.
    Bytes,
    /// Milliseconds, written like `"1h"`.
    Time,
}

/// What there is to say of a resource.
struct About {
    key: &'static str,
    unit: Unit,
    organization: u64,
    total: u64,
    place: u64,
}

impl Resource {
    /// All of them, in the order of their keys in `origin.example.toml`.
    pub const ALL: [Resource; 14] = [
        Resource::Workers,
        Resource::WaitingJobs,
        Resource::CrawlTime,
        Resource::CrawlAddresses,
        Resource::PreviewBuilds,
        Resource::BodyBytes,
        Resource::Events,
        Resource::Rows,
        Resource::DatabaseBytes,
        Resource::BundleBytes,
        Resource::Links,
        Resource::BuildMemory,
        Resource::BuildDisk,
        Resource::BuildProcesses,
    ];

    /// Its key in both tables.
    pub fn key(self) -> &'static str {
        self.about().key
    }

    /// What its value is.
    pub fn unit(self) -> Unit {
        self.about().unit
    }

    /// The amount that one use of it takes at most. So much stays free for organizations that hold nothing of it.
    pub fn place(self) -> u64 {
        self.about().place
    }

    fn about(self) -> About {
        let of = |key, unit, organization, total, place| About { key, unit, organization, total, place };
        match self {
            // Two, so that one crawl or one large folder does not hold up everybody. That an organization may take all of
            // them says nothing as long as there is another one: it does not get the last place.
            Resource::Workers => of("workers", Unit::Count, 2, 2, 1),
            Resource::PreviewBuilds => of("previewBuilds", Unit::Count, 2, 2, 1),
            // An agent has one job at a time; 64 are a script that has gone wrong.
            Resource::WaitingJobs => of("waitingJobs", Unit::Count, 64, 1024, 1),
            // 50,000 pages at 20 a second take 40 minutes.
            Resource::CrawlTime => of("crawlTime", Unit::Time, 60 * MINUTE, 120 * MINUTE, MINUTE),
            // About 1 KiB of memory each. Twice the 50,000 files that a crawl may bring by default.
            Resource::CrawlAddresses => of("crawlAddresses", Unit::Count, 100_000, 200_000, 1000),
            // Three of the largest batches at a time for each; all of it is memory.
            Resource::BodyBytes => of("bodyBytes", Unit::Bytes, 24 * MIB, 64 * MIB, 8 * MIB),
            // 280 a second without a pause: more than readers of a documentation do.
            Resource::Events => of("events", Unit::Count, 1_000_000, 4_000_000, 1000),
            // A question reads each row of its range: ten million take seconds.
            Resource::Rows => of("rows", Unit::Count, 10_000_000, 40_000_000, 1000),
            // Ten million searches of everyday length have 1 GiB.
            Resource::DatabaseBytes => of("databaseBytes", Unit::Bytes, 4 * GIB, 16 * GIB, 16 * MIB),
            // Twenty bundles of 1 GiB, which is a large site with pictures.
            Resource::BundleBytes => of("bundleBytes", Unit::Bytes, 20 * GIB, 100 * GIB, MIB),
            // An agent asks for one a bundle, and again when it has ended.
            Resource::Links => of("links", Unit::Count, 1000, 10_000, 1),
            // What a large static site generator takes, so that two of them leave room on a machine of 8 GiB.
            Resource::BuildMemory => of("buildMemory", Unit::Bytes, 2 * GIB, 4 * GIB, 256 * MIB),
            // The default of buildSize, for two builds.
            Resource::BuildDisk => of("buildDisk", Unit::Bytes, 4 * GIB, 8 * GIB, 256 * MIB),
            // A compiler for each of many cores, and no fork bomb.
            Resource::BuildProcesses => of("buildProcesses", Unit::Count, 256, 512, 16),
        }
    }
}

/// A bound for each resource, in its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimits([u64; Resource::ALL.len()]);

impl ResourceLimits {
    /// As a time.
    pub fn time(&self, resource: Resource) -> Duration {
        Duration::from_millis(self[resource])
    }

    /// As a number of things that are in memory.
    pub fn count(&self, resource: Resource) -> usize {
        usize::try_from(self[resource]).unwrap_or(usize::MAX)
    }
}

impl Index<Resource> for ResourceLimits {
    type Output = u64;

    fn index(&self, resource: Resource) -> &u64 {
        &self.0[resource as usize]
    }
}

impl IndexMut<Resource> for ResourceLimits {
    fn index_mut(&mut self, resource: Resource) -> &mut u64 {
        &mut self.0[resource as usize]
    }
}

/// The bounds of an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OriginLimits {
    /// For each organization.
    pub organization: ResourceLimits,
    /// For all of them together.
    pub total: ResourceLimits,
}

impl Default for OriginLimits {
    fn default() -> OriginLimits {
        OriginLimits {
            organization: ResourceLimits(Resource::ALL.map(|resource| resource.about().organization)),
            total: ResourceLimits(Resource::ALL.map(|resource| resource.about().total)),
        }
    }
}

impl OriginLimits {
    /// The defaults but for what is written. A default gives way to what is written in the other table, so that no
    /// organization may take more than there is.
    ///
    /// The error is every resource of which both are written and an organization may take more than all together.
    pub fn of(
        organization: impl Fn(Resource) -> Option<u64>,
        total: impl Fn(Resource) -> Option<u64>,
    ) -> Result<OriginLimits, Vec<Resource>> {
        let (mut limits, mut wrong) = (OriginLimits::default(), Vec::new());
        for resource in Resource::ALL {
            let (each, all) = (&mut limits.organization[resource], &mut limits.total[resource]);
            match (organization(resource), total(resource)) {
                (Some(own), Some(sum)) => {
                    if own > sum {
                        wrong.push(resource);
                    }
                    (*each, *all) = (own, sum);
                }
                (Some(own), None) => (*each, *all) = (own, own.max(*all)),
                // An organization may take all workers that are written: another one finds a place all the same.
                (None, Some(sum)) if matches!(resource, Resource::Workers | Resource::PreviewBuilds) => {
                    (*each, *all) = (sum, sum);
                }
                (None, Some(sum)) => (*each, *all) = (sum.min(*each), sum),
                (None, None) => {}
            }
        }
        if wrong.is_empty() { Ok(limits) } else { Err(wrong) }
    }
}

/// The least that a request body counts as: what its connection takes while it waits.
pub const LEAST_BODY: u64 = 64 * KIB;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(organization: &[(Resource, u64)], total: &[(Resource, u64)]) -> Result<OriginLimits, Vec<Resource>> {
        let find = |list: &[(Resource, u64)], resource| {
            list.iter().find(|(written, _)| *written == resource).map(|(_, value)| *value)
        };
        OriginLimits::of(|resource| find(organization, resource), |resource| find(total, resource))
    }

    #[test]
    fn no_default_lets_an_organization_take_more_than_there_is_or_less_than_a_place() {
        let limits = OriginLimits::default();
        for resource in Resource::ALL {
            let (each, all) = (limits.organization[resource], limits.total[resource]);
            assert!(resource.place() <= each && each <= all, "{}", resource.key());
        }
        assert_eq!(limits.organization.time(Resource::CrawlTime), Duration::from_hours(1));
    }

    #[test]
    fn a_default_gives_way_to_what_is_written_in_the_other_table() {
        let limits = of(&[(Resource::Links, 20_000)], &[(Resource::Rows, 5), (Resource::Workers, 9)]).unwrap();
        assert_eq!((limits.organization[Resource::Links], limits.total[Resource::Links]), (20_000, 20_000));
        assert_eq!((limits.organization[Resource::Rows], limits.total[Resource::Rows]), (5, 5));
        assert_eq!((limits.organization[Resource::Workers], limits.total[Resource::Workers]), (9, 9));
        assert_eq!(limits.organization[Resource::Events], OriginLimits::default().organization[Resource::Events]);
        let written = [(Resource::Rows, 6), (Resource::Events, 5)];
        let wrong = of(&written, &[(Resource::Rows, 5), (Resource::Events, 5)]);
        assert_eq!(wrong, Err(vec![Resource::Rows]));
    }
}
