//! Limits on the resources that the organizations of an origin share: one for each organization, and one for all
//! together.
//!
//! `[limits.organization]` and `[limits.total]` have the same keys, one for each [`Resource`]. A limit applies to the
//! amount held at the moment. Only [`Resource::Events`] and [`Resource::Links`] count the use within the last hour.
//!
//! A limit for each organization alone does not protect the others, because a few organizations could hold everything.
//! An organization that already holds a part of a resource therefore does not get the last free
//! [unit of use](Resource::place).

use std::ops::{Index, IndexMut};
use std::time::Duration;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const MINUTE: u64 = 60_000;

/// A resource that organizations share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Exports that are being made.
    Workers,
    /// Export jobs that wait for a worker. Previews wait in a queue of their own, with the same limits.
    WaitingJobs,
    /// The time that crawls under way may take, each from its start to its end, in milliseconds.
    CrawlTime,
    /// The addresses that crawls under way know, whether or not they are fetched.
    CrawlAddresses,
    /// Previews that are being built.
    PreviewBuilds,
    /// The bytes of request bodies that are being received or processed.
    BodyBytes,
    /// Searches that were received within an hour.
    Events,
    /// Rows of searches and of their batches in the database.
    Rows,
    /// Bytes of the database: for an organization those of its searches, in total the whole database.
    DatabaseBytes,
    /// Bytes of stored bundles.
    BundleBytes,
    /// Links to bundles that were created within an hour.
    Links,
    /// Bytes of memory of builds under way.
    BuildMemory,
    /// Bytes on disk of builds under way.
    BuildDisk,
    /// Processes of builds under way.
    BuildProcesses,
}

/// The unit of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    Count,
    /// Bytes, written like `"4GiB"`.
    Bytes,
    /// Milliseconds, written like `"1h"`.
    Time,
}

/// The key, the unit and the default limits of a resource.
struct About {
    key: &'static str,
    unit: Unit,
    organization: u64,
    total: u64,
    place: u64,
}

impl Resource {
    /// All resources, in the order of their keys in `origin.example.toml`.
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

    /// Returns the key in both tables.
    pub fn key(self) -> &'static str {
        self.about().key
    }

    /// Returns the unit of the value.
    pub fn unit(self) -> Unit {
        self.about().unit
    }

    /// Returns the largest amount that one use takes. This amount stays free for organizations that hold nothing.
    pub fn place(self) -> u64 {
        self.about().place
    }

    fn about(self) -> About {
        let of = |key, unit, organization, total, place| About { key, unit, organization, total, place };
        match self {
            // Two, so that one crawl or one large folder does not delay all other jobs. One organization may hold both
            // only if it is the only one; otherwise it does not get the last free one.
            Resource::Workers => of("workers", Unit::Count, 2, 2, 1),
            Resource::PreviewBuilds => of("previewBuilds", Unit::Count, 2, 2, 1),
            // An agent has one job at a time; 64 come from a faulty script.
            Resource::WaitingJobs => of("waitingJobs", Unit::Count, 64, 1024, 1),
            // 50,000 pages at 20 a second take 40 minutes.
            Resource::CrawlTime => of("crawlTime", Unit::Time, 60 * MINUTE, 120 * MINUTE, MINUTE),
            // About 1 KiB of memory each. By default a crawl may have 50,000 files; this is twice as many.
            Resource::CrawlAddresses => of("crawlAddresses", Unit::Count, 100_000, 200_000, 1000),
            // Three of the largest batches at the same time for each organization. All of it is memory.
            Resource::BodyBytes => of("bodyBytes", Unit::Bytes, 24 * MIB, 64 * MIB, 8 * MIB),
            // 280 a second without a pause, which is more than the readers of a documentation site produce.
            Resource::Events => of("events", Unit::Count, 1_000_000, 4_000_000, 1000),
            // A query reads each row of its range, which takes seconds for ten million.
            Resource::Rows => of("rows", Unit::Count, 10_000_000, 40_000_000, 1000),
            // Ten million searches of usual length take 1 GiB.
            Resource::DatabaseBytes => of("databaseBytes", Unit::Bytes, 4 * GIB, 16 * GIB, 16 * MIB),
            // Twenty bundles of 1 GiB, which is a large site with images.
            Resource::BundleBytes => of("bundleBytes", Unit::Bytes, 20 * GIB, 100 * GIB, MIB),
            // An agent requests one for each bundle, and another one if it has expired.
            Resource::Links => of("links", Unit::Count, 1000, 10_000, 1),
            // The need of a large static site generator; two of them fit on a machine of 8 GiB.
            Resource::BuildMemory => of("buildMemory", Unit::Bytes, 2 * GIB, 4 * GIB, 256 * MIB),
            // The default of buildSize, for two builds.
            Resource::BuildDisk => of("buildDisk", Unit::Bytes, 4 * GIB, 8 * GIB, 256 * MIB),
            // A compiler for each of many cores, but not a fork bomb.
            Resource::BuildProcesses => of("buildProcesses", Unit::Count, 256, 512, 16),
        }
    }
}

/// A limit for each resource, in its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimits([u64; Resource::ALL.len()]);

impl ResourceLimits {
    /// Returns the limit as a time.
    pub fn time(&self, resource: Resource) -> Duration {
        Duration::from_millis(self[resource])
    }

    /// Returns the limit as a number of objects in memory.
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

/// The limits of an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OriginLimits {
    /// The limit of each organization.
    pub organization: ResourceLimits,
    /// The limit of all organizations together.
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
    /// Combines configured limits with defaults. If only one of the two limits of a resource is configured, the default
    /// of the other is adjusted, so that no organization may hold more than the total.
    ///
    /// The error lists every resource whose two limits are both configured, with the organization's above the total.
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
                // An organization may hold all configured workers: where there are several organizations, it still does
                // not get the last free one.
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

/// The smallest amount that a request body counts as, in bytes: the memory of its connection while it waits.
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
