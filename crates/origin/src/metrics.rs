//! The counters and gauges of an origin.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use docwharf_base::locks::Mutex;

type Labels<const N: usize> = [(&'static str, String); N];

/// The metrics. No label has a value that a client can choose.
#[derive(Debug)]
pub(super) struct OriginMetrics {
    pub(super) registry: Mutex<Registry>,
    pub(super) requests: Family<Labels<2>, Counter>,
    pub(super) searches: Counter,
    pub(super) views: Counter,
    pub(super) jobs: Family<Labels<1>, Gauge>,
    pub(super) previews: Gauge,
    pub(super) in_use: Family<Labels<1>, Gauge>,
    pub(super) limits: Family<Labels<1>, Gauge>,
    pub(super) refused: Family<Labels<1>, Counter>,
}

impl OriginMetrics {
    pub(super) fn new() -> OriginMetrics {
        let mut registry = Registry::with_prefix("docwharf_origin");
        let metrics = OriginMetrics {
            registry: Mutex::default(),
            requests: Family::default(),
            searches: Counter::default(),
            views: Counter::default(),
            jobs: Family::default(),
            previews: Gauge::default(),
            in_use: Family::default(),
            limits: Family::default(),
            refused: Family::default(),
        };
        registry.register("requests", "Requests to the API by operation and class of status", metrics.requests.clone());
        registry.register("searches", "Searches that were accepted", metrics.searches.clone());
        registry.register("views", "Views of pages that were accepted", metrics.views.clone());
        registry.register("jobs", "Export jobs by state", metrics.jobs.clone());
        registry.register("previews", "Previews that are served", metrics.previews.clone());
        let help = "Use of a resource by all organizations, in the unit of its key in [limits]; times in milliseconds";
        registry.register("resource_in_use", help, metrics.in_use.clone());
        let help = "limits.total of a resource, in the same unit; times in milliseconds";
        registry.register("resource_limit", help, metrics.limits.clone());
        registry.register("resource_refused", "Requests and jobs that a limit has refused", metrics.refused.clone());
        *metrics.registry.lock() = registry;
        metrics
    }

    /// Counts a request and the class of its status.
    pub(super) fn count_request(&self, operation: &'static str, status: u16) {
        let labels = [("operation", operation.to_owned()), ("status", format!("{}xx", status / 100))];
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts received searches.
    pub(super) fn count_searches(&self, count: u64) {
        self.searches.inc_by(count);
    }

    /// Counts received views.
    pub(super) fn count_views(&self, count: u64) {
        self.views.inc_by(count);
    }
}
