//! Limits on the resources that the organizations of an origin share: one for each organization, and one for all
//! together.
//!
//! `[limits.organization]` and `[limits.total]` have the same keys, one for each [`SharedResource`]. A limit applies to
//! the amount held at the moment. Only [`SharedResource::Events`] and [`SharedResource::DownloadLinks`] count the use
//! within the last hour.
//!
//! A limit for each organization alone does not protect the others, because a few organizations could hold everything.
//! An organization that already holds a part of a resource therefore does not get the free
//! [reserve](SharedResource::reserve) of it.

use std::ops::{Index, IndexMut};
use std::time::Duration;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const MINUTE: u64 = 60_000;

/// A resource that organizations share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SharedResource {
    /// Exports that are being made.
    Workers,
    /// Export jobs that wait for a worker. Previews wait in a separate queue, with the same limits.
    WaitingJobs,
    /// The time that crawls under way have taken so far, each since its start, in milliseconds.
    CrawlTime,
    /// The addresses that crawls under way know, whether or not they are fetched.
    CrawlAddresses,
    /// Previews that are being built.
    PreviewBuilds,
    /// The bytes of request bodies that are being received or processed.
    BodyBytes,
    /// Searches that were received within an hour.
    Events,
    /// Rows of searches, of their batches, and of daily counts in the database.
    Rows,
    /// Bytes of the database: for an organization those of these rows, in total the whole database.
    DatabaseBytes,
    /// Bytes of stored bundles.
    BundleBytes,
    /// Links to bundles that were created within an hour.
    DownloadLinks,
    /// Bytes of memory of builds under way.
    BuildMemory,
    /// Bytes on disk of builds under way.
    BuildDisk,
    /// Processes of builds under way.
    BuildProcesses,
}

/// The unit of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitUnit {
    /// A number of things.
    Count,
    /// Bytes, written like `"4GiB"`.
    Bytes,
    /// Milliseconds, written like `"1h"`.
    Time,
}

/// The key, the unit and the default limits of a resource.
struct ResourceSpec {
    key: &'static str,
    unit: LimitUnit,
    organization: u64,
    total: u64,
    reserve: u64,
}

impl SharedResource {
    /// All resources, in the order of their keys in `origin.example.toml`.
    pub const ALL: [SharedResource; 14] = [
        SharedResource::Workers,
        SharedResource::WaitingJobs,
        SharedResource::CrawlTime,
        SharedResource::CrawlAddresses,
        SharedResource::PreviewBuilds,
        SharedResource::BodyBytes,
        SharedResource::Events,
        SharedResource::Rows,
        SharedResource::DatabaseBytes,
        SharedResource::BundleBytes,
        SharedResource::DownloadLinks,
        SharedResource::BuildMemory,
        SharedResource::BuildDisk,
        SharedResource::BuildProcesses,
    ];

    /// Returns the key in both tables.
    pub fn key(self) -> &'static str {
        self.spec().key
    }

    /// Returns the unit of the value.
    pub fn unit(self) -> LimitUnit {
        self.spec().unit
    }

    /// Returns the amount that must stay free for organizations that hold nothing.
    pub fn reserve(self) -> u64 {
        self.spec().reserve
    }

    fn spec(self) -> ResourceSpec {
        let spec = |key, unit, organization, total, reserve| ResourceSpec { key, unit, organization, total, reserve };
        match self {
            // Two, so that one crawl or one large folder does not delay all other jobs. One organization may hold both
            // only if it is the only one; otherwise it does not get the last free one.
            SharedResource::Workers => spec("workers", LimitUnit::Count, 2, 2, 1),
            SharedResource::PreviewBuilds => spec("previewBuilds", LimitUnit::Count, 2, 2, 1),
            // An agent has one job at a time; 64 come from a faulty script.
            SharedResource::WaitingJobs => spec("waitingJobs", LimitUnit::Count, 64, 1024, 1),
            // 50,000 pages at 20 a second take 40 minutes.
            SharedResource::CrawlTime => spec("crawlTime", LimitUnit::Time, 60 * MINUTE, 120 * MINUTE, MINUTE),
            // About 1 KiB of memory each. By default a crawl may have 50,000 files; this is twice as many.
            SharedResource::CrawlAddresses => spec("crawlAddresses", LimitUnit::Count, 100_000, 200_000, 1000),
            // Three of the largest batches at the same time for each organization. All of it is memory.
            SharedResource::BodyBytes => spec("bodyBytes", LimitUnit::Bytes, 24 * MIB, 64 * MIB, 8 * MIB),
            // 280 a second without a pause, which is more than the readers of a documentation site produce.
            SharedResource::Events => spec("events", LimitUnit::Count, 1_000_000, 4_000_000, 1000),
            // A query reads each row of its range, which takes seconds for ten million.
            SharedResource::Rows => spec("rows", LimitUnit::Count, 10_000_000, 40_000_000, 1000),
            // Ten million searches of usual length take 1 GiB.
            SharedResource::DatabaseBytes => spec("databaseBytes", LimitUnit::Bytes, 4 * GIB, 16 * GIB, 16 * MIB),
            // Twenty bundles of 1 GiB, which is a large site with images.
            SharedResource::BundleBytes => spec("bundleBytes", LimitUnit::Bytes, 20 * GIB, 100 * GIB, MIB),
            // An agent requests one for each bundle, and another one if it has expired.
            SharedResource::DownloadLinks => spec("links", LimitUnit::Count, 1000, 10_000, 1),
            // The need of a large static site generator; two of them fit on a machine of 8 GiB.
            SharedResource::BuildMemory => spec("buildMemory", LimitUnit::Bytes, 2 * GIB, 4 * GIB, 256 * MIB),
            // The default of buildSize, for two builds.
            SharedResource::BuildDisk => spec("buildDisk", LimitUnit::Bytes, 4 * GIB, 8 * GIB, 256 * MIB),
            // A compiler for each of many cores, but not a fork bomb.
            SharedResource::BuildProcesses => spec("buildProcesses", LimitUnit::Count, 256, 512, 16),
        }
    }
}

/// A limit for each resource, in its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimits([u64; SharedResource::ALL.len()]);

impl ResourceLimits {
    /// Returns the limit as a time.
    pub fn time(&self, resource: SharedResource) -> Duration {
        Duration::from_millis(self[resource])
    }

    /// Returns the limit as a number of objects in memory.
    pub fn count(&self, resource: SharedResource) -> usize {
        usize::try_from(self[resource]).unwrap_or(usize::MAX)
    }
}

impl Index<SharedResource> for ResourceLimits {
    type Output = u64;

    fn index(&self, resource: SharedResource) -> &u64 {
        &self.0[resource as usize]
    }
}

impl IndexMut<SharedResource> for ResourceLimits {
    fn index_mut(&mut self, resource: SharedResource) -> &mut u64 {
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
            organization: ResourceLimits(SharedResource::ALL.map(|resource| resource.spec().organization)),
            total: ResourceLimits(SharedResource::ALL.map(|resource| resource.spec().total)),
        }
    }
}

impl OriginLimits {
    /// Combines configured limits with defaults. If only one of the two limits of a resource is configured, the default
    /// of the other is adjusted, so that no organization may hold more than the total.
    ///
    /// The error lists every resource whose two limits are both configured, with the organization's above the total.
    pub fn from_config(
        organization: impl Fn(SharedResource) -> Option<u64>,
        total: impl Fn(SharedResource) -> Option<u64>,
    ) -> Result<OriginLimits, Vec<SharedResource>> {
        let (mut limits, mut above_total) = (OriginLimits::default(), Vec::new());
        for resource in SharedResource::ALL {
            let (each, all) = (&mut limits.organization[resource], &mut limits.total[resource]);
            match (organization(resource), total(resource)) {
                (Some(organization_limit), Some(total_limit)) => {
                    if organization_limit > total_limit {
                        above_total.push(resource);
                    }
                    (*each, *all) = (organization_limit, total_limit);
                }
                (Some(organization_limit), None) => (*each, *all) = (organization_limit, organization_limit.max(*all)),
                // An organization may hold all configured workers: where there are several organizations, it still does
                // not get the last free one.
                (None, Some(total_limit))
                    if matches!(resource, SharedResource::Workers | SharedResource::PreviewBuilds) =>
                {
                    (*each, *all) = (total_limit, total_limit);
                }
                (None, Some(total_limit)) => (*each, *all) = (total_limit.min(*each), total_limit),
                (None, None) => {}
            }
        }
        if above_total.is_empty() { Ok(limits) } else { Err(above_total) }
    }
}

/// The smallest amount that a request body counts as, in bytes: the memory of its connection while it waits.
pub const MIN_BODY_BYTES: u64 = 64 * KIB;

#[cfg(test)]
mod tests {
    use super::*;

    fn from_config(
        organization: &[(SharedResource, u64)],
        total: &[(SharedResource, u64)],
    ) -> Result<OriginLimits, Vec<SharedResource>> {
        let find = |list: &[(SharedResource, u64)], resource| {
            list.iter().find(|(listed, _)| *listed == resource).map(|(_, value)| *value)
        };
        OriginLimits::from_config(|resource| find(organization, resource), |resource| find(total, resource))
    }

    #[test]
    fn default_organization_limits_allow_one_use_and_never_exceed_the_total_limit() {
        let limits = OriginLimits::default();
        for resource in SharedResource::ALL {
            let (organization_limit, total_limit) = (limits.organization[resource], limits.total[resource]);
            assert!(
                resource.reserve() <= organization_limit && organization_limit <= total_limit,
                "{}",
                resource.key()
            );
        }
        assert_eq!(limits.organization.time(SharedResource::CrawlTime), Duration::from_hours(1));
    }

    #[test]
    fn a_default_limit_adapts_to_a_configured_total_or_organization_limit() {
        let limits = from_config(
            &[(SharedResource::DownloadLinks, 20_000)],
            &[(SharedResource::Rows, 5), (SharedResource::Workers, 9)],
        )
        .unwrap();
        assert_eq!(
            (limits.organization[SharedResource::DownloadLinks], limits.total[SharedResource::DownloadLinks]),
            (20_000, 20_000)
        );
        assert_eq!((limits.organization[SharedResource::Rows], limits.total[SharedResource::Rows]), (5, 5));
        assert_eq!((limits.organization[SharedResource::Workers], limits.total[SharedResource::Workers]), (9, 9));
        assert_eq!(
            limits.organization[SharedResource::Events],
            OriginLimits::default().organization[SharedResource::Events]
        );
        let organization = [(SharedResource::Rows, 6), (SharedResource::Events, 5)];
        let above_total = from_config(&organization, &[(SharedResource::Rows, 5), (SharedResource::Events, 5)]);
        assert_eq!(above_total, Err(vec![SharedResource::Rows]));
    }
}
