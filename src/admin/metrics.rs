//! The metrics of the daemon, as `OpenMetrics` text. Names and units follow the conventions of Prometheus; no label
//! contains a path, a URL or any other value without a bound.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use docwharf_agent::publish::published_version;
use docwharf_agent::store::VersionStore;
use docwharf_agent::sync::waiting::{WaitingReason, find_waiting_version};
use docwharf_base::clock::unix_seconds;
use docwharf_base::locks::Mutex;
use docwharf_base::model::units::parse_time;
use docwharf_serve::mcp::{McpOperation, McpOutcome};
use docwharf_serve::search::{QUERY_DURATION_BOUNDS, QueryOutcome, QueryStatistics};
use docwharf_serve::{
    AskOutcome, CountLabel, MarkdownEndpoint, MarkdownOutcome, OutcomeCounts, PlaygroundOutcome, STATUS_CLASSES, Site,
};

use super::daemon_state::{DaemonState, PrecompressedState, SearchPhase};

type NoMetricLabel = [(&'static str, String); 0];
/// The labels of a metric that has one label.
type MetricLabel = [(&'static str, String); 1];
type SecondsGauge = Gauge<f64, AtomicU64>;

/// The results of building a search index, or the Markdown of all pages.
const BUILD_RESULTS: [&str; 3] = ["built", "failed", "no_space"];

/// The requests for a resource of the site, which the site counts by outcome and perhaps by one more label.
type OutcomeFamily = Family<Vec<(&'static str, String)>, Counter>;

/// Registers the requests for a resource, with all values of their labels.
fn register_outcomes<O: CountLabel, L: CountLabel>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    family: &OutcomeFamily,
) {
    registry.register(name, help, family.clone());
    update_outcomes(family, &OutcomeCounts::<O, L>::default());
}

/// Raises the requests for a resource to these counts.
fn update_outcomes<O: CountLabel, L: CountLabel>(family: &OutcomeFamily, counts: &OutcomeCounts<O, L>) {
    for &label in L::ALL {
        for &outcome in O::ALL {
            let labels = [(L::KEY, label.name()), (O::KEY, outcome.name())];
            let labels = labels.into_iter().filter(|(key, _)| !key.is_empty());
            let counter = family.get_or_create_owned(&labels.map(|(key, name)| (key, name.to_owned())).collect());
            counter.inc_by(counts.get_with(label, outcome).saturating_sub(counter.get()));
        }
    }
}

/// The durations of queries, which the site counts, as a histogram.
#[derive(Debug, Clone, Default)]
struct QueryDurations(Arc<Mutex<QueryStatistics>>);

impl EncodeMetric for QueryDurations {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let statistics = self.0.lock();
        let bounds = QUERY_DURATION_BOUNDS.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(statistics.durations).collect();
        let count = statistics.durations.iter().sum();
        encoder.encode_histogram::<NoMetricLabel>(statistics.total_seconds, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// All metrics of the daemon, and the registry that encodes them.
#[derive(Debug)]
pub struct DaemonMetrics {
    /// The registry. It is locked during a scrape, because the gauges are set just before they are encoded.
    registry: Mutex<Registry>,
    syncs: Family<MetricLabel, Counter>,
    imports: Family<MetricLabel, Counter>,
    duration: Histogram,
    requests: Family<MetricLabel, Counter>,
    active: Family<MetricLabel, Gauge>,
    active_since: SecondsGauge,
    last_attempt: SecondsGauge,
    last_success: SecondsGauge,
    next_check: SecondsGauge,
    failures: Gauge,
    hold_active: Gauge,
    gate_refused: Gauge,
    published: Gauge,
    pinned: Gauge,
    ready: Gauge,
    config_ok: Gauge,
    store_bytes: Gauge,
    identity_cache: Gauge,
    response_bytes: Gauge,
    store_versions: Gauge,
    store_free: Gauge,
    /// Without an inbox there is no value: a 0 would be an alert.
    inbox_ready: Family<NoMetricLabel, Gauge>,
    inbox_rejected: Counter,
    damaged: Gauge,
    active_verified: SecondsGauge,
    certificate_end: SecondsGauge,
    coded_files: Family<MetricLabel, Gauge>,
    coded_bytes: Family<MetricLabel, Gauge>,
    coded_seconds: Family<MetricLabel, SecondsGauge>,
    log_dropped: Counter,
    queries: Family<MetricLabel, Counter>,
    query_durations: QueryDurations,
    mcp_requests: OutcomeFamily,
    markdown_requests: OutcomeFamily,
    search_builds: Family<MetricLabel, Counter>,
    markdown_builds: Family<MetricLabel, Counter>,
    search_build_seconds: SecondsGauge,
    search_index_bytes: Gauge,
    search_ready: Gauge,
    playground: OutcomeFamily,
    questions: OutcomeFamily,
    recorded: Family<MetricLabel, Counter>,
    record_dropped: Counter,
    analytics_bytes: Gauge,
    delivered: Family<MetricLabel, Counter>,
    waiting: Family<MetricLabel, Gauge>,
    undelivered: Gauge,
}

impl DaemonMetrics {
    /// Creates metrics in which nothing has been counted. `is_encrypted` says whether there is a TLS certificate to
    /// report.
    pub fn new(is_encrypted: bool) -> DaemonMetrics {
        let mut registry = Registry::with_prefix("docwharf");
        let metrics = DaemonMetrics {
            registry: Mutex::default(),
            syncs: Family::default(),
            imports: Family::default(),
            duration: Histogram::new(exponential_buckets(0.1, 4.0, 8)),
            requests: Family::default(),
            active: Family::default(),
            active_since: SecondsGauge::default(),
            last_attempt: SecondsGauge::default(),
            last_success: SecondsGauge::default(),
            next_check: SecondsGauge::default(),
            failures: Gauge::default(),
            hold_active: Gauge::default(),
            gate_refused: Gauge::default(),
            published: Gauge::default(),
            pinned: Gauge::default(),
            ready: Gauge::default(),
            config_ok: Gauge::default(),
            store_bytes: Gauge::default(),
            identity_cache: Gauge::default(),
            response_bytes: Gauge::default(),
            store_versions: Gauge::default(),
            store_free: Gauge::default(),
            inbox_ready: Family::default(),
            inbox_rejected: Counter::default(),
            damaged: Gauge::default(),
            active_verified: SecondsGauge::default(),
            certificate_end: SecondsGauge::default(),
            coded_files: Family::default(),
            coded_bytes: Family::default(),
            coded_seconds: Family::default(),
            log_dropped: Counter::default(),
            queries: Family::default(),
            query_durations: QueryDurations::default(),
            mcp_requests: Family::default(),
            markdown_requests: Family::default(),
            search_builds: Family::default(),
            markdown_builds: Family::default(),
            search_build_seconds: SecondsGauge::default(),
            search_index_bytes: Gauge::default(),
            search_ready: Gauge::default(),
            playground: Family::default(),
            questions: Family::default(),
            recorded: Family::default(),
            record_dropped: Counter::default(),
            analytics_bytes: Gauge::default(),
            delivered: Family::default(),
            waiting: Family::default(),
            undelivered: Gauge::default(),
        };
        let r = &mut registry;
        r.register("build", "The version of the program", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        r.register("sync_attempts", "Checks of the source, by result", metrics.syncs.clone());
        r.register("imports", "Bundles imported by hand or from the inbox, by result", metrics.imports.clone());
        let help = "Duration of checks of the source, whatever their result";
        r.register_with_unit("sync_duration", help, Unit::Seconds, metrics.duration.clone());
        r.register("http_requests", "Requests for the site, by class of their status", metrics.requests.clone());
        let help = "The served version (not the active one, if that cannot be served)";
        r.register("active_version_info", help, metrics.active.clone());
        for (name, help, gauge) in [
            ("active_since_timestamp", "When the active version became active", &metrics.active_since),
            ("last_attempt_timestamp", "When the source was last checked", &metrics.last_attempt),
            ("last_success_timestamp", "When the source was last checked without an error", &metrics.last_success),
            // The wire name is older than the term "check"; it must not change.
            ("next_look_timestamp", "When the source is checked next", &metrics.next_check),
            ("active_verified_timestamp", "When the active version was last verified", &metrics.active_verified),
        ] {
            r.register_with_unit(name, help, Unit::Seconds, gauge.clone());
        }
        let gate_help = "Whether a version waits because the gate refuses it; 0 during a hold and in manual mode";
        for (name, help, gauge) in [
            ("consecutive_failures", "Checks of the source in a row that failed", &metrics.failures),
            ("held", "Whether automatic activation is stopped", &metrics.hold_active),
            ("gate_refused", gate_help, &metrics.gate_refused),
            ("published", "Whether the served version is published as files", &metrics.published),
            ("pinned", "Whether a version is pinned by the configuration", &metrics.pinned),
            ("ready", "Whether a version is served", &metrics.ready),
            ("config_reload_success", "Whether the current configuration is in force", &metrics.config_ok),
            ("store_versions", "Versions in the store", &metrics.store_versions),
            ("store_damaged_versions", "Versions that were found damaged", &metrics.damaged),
        ] {
            r.register(name, help, gauge.clone());
        }
        if is_encrypted {
            // Without a certificate, a 0 would look like one that expired long ago.
            let (name, help) = ("tls_certificate_not_after_timestamp", "When the TLS certificate in force ends");
            r.register_with_unit(name, help, Unit::Seconds, metrics.certificate_end.clone());
        }
        let help = "Files that have a Brotli or Zstandard form, once it has been made";
        r.register("coded_files", help, metrics.coded_files.clone());
        r.register_with_unit(
            "coded",
            "Size of the Brotli and Zstandard forms",
            Unit::Bytes,
            metrics.coded_bytes.clone(),
        );
        let help = "Processor time used to make the Brotli and Zstandard forms";
        r.register_with_unit("coded_processor", help, Unit::Seconds, metrics.coded_seconds.clone());
        let help = "Lines of the access log that could not be written";
        r.register("access_log_dropped_lines", help, metrics.log_dropped.clone());
        let help = "Size of all versions in the store";
        r.register_with_unit("store", help, Unit::Bytes, metrics.store_bytes.clone());
        let help = "Bytes free for the store's user on the file system of the store";
        r.register_with_unit("store_free", help, Unit::Bytes, metrics.store_free.clone());
        r.register("inbox_ready", "Whether the inbox can be used", metrics.inbox_ready.clone());
        let help = "Files from the inbox that were moved to rejected/";
        r.register("inbox_rejected", help, metrics.inbox_rejected.clone());
        let help = "Inflated pages in memory, which server.identityCache bounds";
        r.register_with_unit("identity_cache", help, Unit::Bytes, metrics.identity_cache.clone());
        let help = "Memory of responses that clients have not read yet, which server.heldBytes bounds";
        // The registry adds prefix and unit: `docwharf_answers_held_bytes`. The wire name is older than the term
        // "response"; it must not change.
        r.register_with_unit("answers_held", help, Unit::Bytes, metrics.response_bytes.clone());
        metrics.register_search(&mut registry);
        metrics.register_assistants(&mut registry);
        metrics.register_recording(&mut registry);
        // Series that exist from the start can be summed and alerted on.
        for result in ["activated", "already_current", "staged", "not_activated", "probes_unreadable", "failed"] {
            metrics.syncs.get_or_create_owned(&[("result", result.to_owned())]);
            metrics.imports.get_or_create_owned(&[("result", result.to_owned())]);
        }
        DaemonMetrics { registry: Mutex::new(registry), ..metrics }
    }

    /// Registers the metrics of the search of the site.
    fn register_search(&self, registry: &mut Registry) {
        let help = "Requests to the search of the site, by outcome";
        registry.register("search_queries", help, self.queries.clone());
        let help = "Duration of the queries that ran";
        registry.register_with_unit("search_query", help, Unit::Seconds, self.query_durations.clone());
        registry.register("search_builds", "Search indexes that were built, by result", self.search_builds.clone());
        let help = "Duration of the last build of a search index by this process";
        registry.register_with_unit("search_build", help, Unit::Seconds, self.search_build_seconds.clone());
        let help = "Size of the search index of the served version";
        registry.register_with_unit("search_index", help, Unit::Bytes, self.search_index_bytes.clone());
        let help = "Whether searches are answered from the index of the served version";
        registry.register("search_ready", help, self.search_ready.clone());
        for outcome in QueryOutcome::ALL {
            self.queries.get_or_create_owned(&[("outcome", outcome.name().to_owned())]);
        }
        let help = "Builds of the Markdown of all pages of a version, by result";
        registry.register("markdown_builds", help, self.markdown_builds.clone());
        for result in BUILD_RESULTS {
            self.search_builds.get_or_create_owned(&[("result", result.to_owned())]);
            self.markdown_builds.get_or_create_owned(&[("result", result.to_owned())]);
        }
    }

    /// Registers the metrics of assistants, of questions that a model answers, and of the API playground.
    fn register_assistants(&self, registry: &mut Registry) {
        let help = "Requests of the Model Context Protocol, by operation and outcome";
        register_outcomes::<McpOutcome, McpOperation>(registry, "mcp_requests", help, &self.mcp_requests);
        let help = "Requests for Markdown of pages and for llms.txt, by endpoint and outcome";
        let name = "markdown_requests";
        register_outcomes::<MarkdownOutcome, MarkdownEndpoint>(registry, name, help, &self.markdown_requests);
        let help = "Questions of readers to the model, by outcome";
        register_outcomes::<AskOutcome, ()>(registry, "ask_questions", help, &self.questions);
        let help = "Requests to the API playground, by outcome";
        register_outcomes::<PlaygroundOutcome, ()>(registry, "playground_requests", help, &self.playground);
    }

    /// Registers the metrics of the recording of what readers do.
    fn register_recording(&self, registry: &mut Registry) {
        let help = "Searches, clicks and views of readers that were recorded, by kind";
        registry.register("analytics_recorded", help, self.recorded.clone());
        let help = "Searches, clicks and views that were lost, because they could not be written or were too many";
        registry.register("analytics_dropped", help, self.record_dropped.clone());
        let help = "Searches and daily counts that were delivered to an origin, by kind";
        registry.register("analytics_delivered", help, self.delivered.clone());
        let help = "Searches and daily counts that wait for the delivery to an origin, by kind";
        registry.register("analytics_waiting", help, self.waiting.clone());
        let help = "Stored searches that are not delivered to an origin, because too many waited";
        registry.register("analytics_undelivered", help, self.undelivered.clone());
        let help = "Size of analytics.db and its write-ahead log";
        registry.register_with_unit("analytics", help, Unit::Bytes, self.analytics_bytes.clone());
    }

    /// Counts the end of building a search index; `result` is `built`, `failed` or `no_space`.
    pub fn count_search_build(&self, result: &str) {
        debug_assert!(BUILD_RESULTS.contains(&result));
        self.search_builds.get_or_create(&[("result", result.to_owned())]).inc();
    }

    /// Counts the end of building the Markdown of all pages; `result` is `built`, `failed` or `no_space`.
    pub fn count_markdown_build(&self, result: &str) {
        debug_assert!(BUILD_RESULTS.contains(&result));
        self.markdown_builds.get_or_create(&[("result", result.to_owned())]).inc();
    }

    /// Sets the duration of the last build of a search index.
    pub fn set_search_build_seconds(&self, took: Duration) {
        self.search_build_seconds.set(took.as_secs_f64());
    }

    /// Counts a sync that has ended.
    pub fn count_sync(&self, result: &str, took: Duration) {
        self.syncs.get_or_create(&[("result", result.replace(' ', "_"))]).inc();
        self.duration.observe(took.as_secs_f64());
    }

    /// Counts an import that has ended.
    pub fn count_import(&self, result: &str) {
        self.imports.get_or_create(&[("result", result.replace(' ', "_"))]).inc();
    }

    /// Counts a file from the inbox that was refused.
    pub fn count_rejected(&self) {
        self.inbox_rejected.inc();
    }

    /// Encodes all metrics with their current values.
    pub fn encode(&self, store: &VersionStore, daemon_state: &DaemonState, site: &Site) -> Result<String, fmt::Error> {
        let registry = self.registry.lock();
        self.set_gauges(store, daemon_state);
        self.ready.set(i64::from(site.served_version().is_some()));
        for (class, count) in STATUS_CLASSES.into_iter().zip(site.request_counts()) {
            let counter = self.requests.get_or_create_owned(&[("code", class.to_owned())]);
            counter.inc_by(count.saturating_sub(counter.get()));
        }
        self.identity_cache.set(site.inflated_file_cache_bytes().cast_signed());
        self.response_bytes.set(site.held_bytes().cast_signed());
        let dropped = site.access_log().map_or(0, |log| log.dropped());
        self.log_dropped.inc_by(dropped.saturating_sub(self.log_dropped.get()));
        let searches = site.search_statistics();
        for outcome in QueryOutcome::ALL {
            let counter = self.queries.get_or_create_owned(&[("outcome", outcome.name().to_owned())]);
            counter.inc_by(searches.count(outcome).saturating_sub(counter.get()));
        }
        *self.query_durations.0.lock() = searches;
        update_outcomes(&self.playground, site.playground_counts());
        update_outcomes(&self.mcp_requests, site.mcp_counts());
        update_outcomes(&self.markdown_requests, site.markdown_counts());
        update_outcomes(&self.questions, site.ask_counts());
        if let Some(tls) = &daemon_state.tls {
            self.certificate_end.set(seconds(tls.key_pair().not_after));
        }
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }

    /// Sets the gauges. If the store cannot be read, its gauges keep their values.
    fn set_gauges(&self, store: &VersionStore, daemon_state: &DaemonState) {
        let snapshot = daemon_state.snapshot();
        self.failures.set(i64::from(snapshot.failures));
        self.next_check.set(snapshot.next_check.map_or(0.0, seconds));
        self.pinned
            .set(i64::from(snapshot.sync_settings.as_ref().is_some_and(|sync_settings| sync_settings.pin.is_some())));
        let is_published =
            snapshot.publish.as_ref().and_then(published_version).is_some_and(|id| snapshot.served == Some(id));
        self.published.set(i64::from(is_published));
        self.active.clear();
        if let Some(id) = snapshot.served {
            self.active.get_or_create(&[("version", id.short())]).set(1);
        }
        self.inbox_ready.clear();
        if let Some(inbox) = &snapshot.inbox {
            self.inbox_ready.get_or_create(&[]).set(i64::from(inbox.error.is_none()));
        }
        let index = snapshot.search.as_ref().and_then(|search| match search.phase {
            SearchPhase::Ready(statistics) => Some(statistics),
            SearchPhase::Building | SearchPhase::Failed(_) => None,
        });
        self.search_ready.set(i64::from(index.is_some()));
        let recording = snapshot.recording.clone().unwrap_or_default();
        self.analytics_bytes.set(recording.bytes.cast_signed());
        if snapshot.recording.is_some() {
            let counts = recording.counts;
            for (kind, count) in [("search", counts.searches), ("click", counts.clicks), ("view", counts.views)] {
                let counter = self.recorded.get_or_create_owned(&[("kind", kind.to_owned())]);
                counter.inc_by(count.saturating_sub(counter.get()));
            }
            self.record_dropped.inc_by(counts.dropped.saturating_sub(self.record_dropped.get()));
        }
        let undelivered = snapshot.delivery.as_ref().map_or(0, |delivery| delivery.undelivered_searches);
        self.undelivered.set(undelivered.cast_signed());
        self.waiting.clear();
        if let Some(delivery) = &snapshot.delivery {
            for (kind, delivered, waiting) in [
                ("search", delivery.delivered_searches, delivery.waiting_searches),
                ("count", delivery.delivered_counts, delivery.waiting_counts),
            ] {
                let label = [("kind", kind.to_owned())];
                let counter = self.delivered.get_or_create_owned(&label);
                counter.inc_by(delivered.saturating_sub(counter.get()));
                self.waiting.get_or_create(&label).set(waiting.cast_signed());
            }
        }
        self.search_index_bytes.set(index.map_or(0, |index| index.bytes.cast_signed()));
        let (files, bytes, took) = (&self.coded_files, &self.coded_bytes, &self.coded_seconds);
        files.clear();
        bytes.clear();
        took.clear();
        for (coding, statistics) in snapshot.codings.iter().flat_map(PrecompressedState::available) {
            let label = [("coding", coding.token().to_owned())];
            files.get_or_create(&label).set(statistics.files.cast_signed());
            bytes.get_or_create(&label).set(statistics.bytes.cast_signed());
            took.get_or_create(&label).set(statistics.seconds());
        }
        if let Ok(record) = store.record() {
            let time = |text: Option<&str>| text.and_then(parse_time).map_or(0.0, |time| time as f64);
            self.active_since.set(time(record.active_since.as_deref()));
            self.last_attempt.set(time(record.last_attempt.as_ref().map(|attempt| attempt.time.as_str())));
            self.last_success.set(time(record.last_good_sync.as_deref()));
            let verified = record.active.and_then(|id| store.verified_at(id));
            self.active_verified.set(verified.map_or(0.0, |time| time as f64));
            self.hold_active.set(i64::from(record.hold.is_some()));
            let reason = find_waiting_version(&record, snapshot.sync_settings.as_ref()).map(|waiting| waiting.reason);
            self.gate_refused.set(i64::from(matches!(reason, Some(WaitingReason::Gate(_)))));
            self.config_ok.set(i64::from(record.config_error.is_none()));
        }
        if let Ok(file_system) = rustix::fs::statvfs(store.root()) {
            self.store_free.set(file_system.f_bavail.saturating_mul(file_system.f_frsize).cast_signed());
        }
        self.damaged.set(i64::try_from(store.damaged_versions().len()).unwrap_or(i64::MAX));
        if let Ok(versions) = store.versions() {
            self.store_versions.set(i64::try_from(versions.len()).unwrap_or(i64::MAX));
            self.store_bytes.set(versions.iter().map(|version| version.bytes.cast_signed()).sum());
        }
    }
}

fn seconds(time: SystemTime) -> f64 {
    unix_seconds(time) as f64
}
