//! Health checks and metrics of an origin, for its operator. They are on a listener of their own (`admin.listen`).
//! `/livez` and `/readyz` are on the public listener as well.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use http::header::VARY;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use docwharf_base::chain::Chain;
use docwharf_base::exposition::MetricsFormat;
use docwharf_serve::service::RequestService;
use docwharf_serve::peer::Peer;

use super::Origin;
use super::analytics::DatabaseUse;
use super::answers::{failed, not_allowed, nothing_here, text};
use super::body::Body;
use super::db::DatabaseError;
use super::limits::Resource;

const TEXT: &str = "text/plain; charset=utf-8";

type Labels<const N: usize> = [(&'static str, String); N];

/// The metrics. No label has a value that a client can choose.
#[derive(Debug)]
pub(super) struct Counted {
    registry: Mutex<Registry>,
    requests: Family<Labels<2>, Counter>,
    searches: Counter,
    jobs: Family<Labels<1>, Gauge>,
    previews: Gauge,
    in_use: Family<Labels<1>, Gauge>,
    limits: Family<Labels<1>, Gauge>,
    refused: Family<Labels<1>, Counter>,
}

impl Counted {
    pub(super) fn new() -> Counted {
        let mut registry = Registry::with_prefix("docwharf_origin");
        let counted = Counted {
            registry: Mutex::default(),
            requests: Family::default(),
            searches: Counter::default(),
            jobs: Family::default(),
            previews: Gauge::default(),
            in_use: Family::default(),
            limits: Family::default(),
            refused: Family::default(),
        };
        registry.register("requests", "Requests to the API by operation and class of status", counted.requests.clone());
        registry.register("searches", "Searches that were taken in", counted.searches.clone());
        registry.register("jobs", "Export jobs by state", counted.jobs.clone());
        registry.register("previews", "Previews that are served", counted.previews.clone());
        let what = "Use of a resource by all organizations, in the unit of its key in [limits]; times in milliseconds";
        registry.register("resource_in_use", what, counted.in_use.clone());
        let what = "limits.total of a resource, in the same unit; times in milliseconds";
        registry.register("resource_limit", what, counted.limits.clone());
        registry.register("resource_refused", "Requests and jobs that a limit has refused", counted.refused.clone());
        *counted.registry.lock().unwrap_or_else(PoisonError::into_inner) = registry;
        counted
    }

    /// Counts a request and the class of its status.
    pub(super) fn request(&self, operation: &'static str, status: u16) {
        let labels = [("operation", operation.to_owned()), ("status", format!("{}xx", status / 100))];
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts received searches.
    pub(super) fn searches(&self, more: u64) {
        self.searches.inc_by(more);
    }
}

impl Origin {
    /// Answers `/readyz`: the origin is ready if it can read its database and its folders.
    pub(super) fn readiness(&self) -> Response<Body> {
        if let Err(why) = self.exports.check_folders() {
            return failed("read the folders of store.path", &why);
        }
        match self.exports.count() {
            Ok(_) => text(StatusCode::OK, TEXT, "ready\n".to_owned()),
            Err(why) => failed("read the database", &Chain(&why)),
        }
    }

    /// Updates the metrics of each resource from the places where it is counted.
    fn count_resources(&self, jobs: &[(String, u64)]) -> Result<(), DatabaseError> {
        let used = self.db.read(|connection| DatabaseUse::read(connection, |_| false))?;
        let bundles = self.exports.all_bundle_bytes()?;
        let in_state = |state: &str| jobs.iter().find(|(name, _)| name == state).map_or(0, |(_, count)| *count);
        let now = Instant::now();
        for resource in Resource::ALL {
            let pool = self.shares.pool(resource);
            let in_use = match resource {
                Resource::WaitingJobs => in_state("queued"),
                Resource::Workers => in_state("running"),
                Resource::Events => self.event_budget.in_use(now),
                Resource::Links => self.link_budget.in_use(now),
                Resource::Rows => used.rows,
                Resource::DatabaseBytes => used.file_bytes,
                Resource::BundleBytes => bundles,
                _ => pool.in_use(),
            };
            let gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            let labels = [("resource", resource.key().to_owned())];
            self.counted.in_use.get_or_create(&labels).set(gauge(in_use));
            self.counted.limits.get_or_create(&labels).set(gauge(self.shares.limits.total[resource]));
            let refused = self.counted.refused.get_or_create(&labels);
            refused.inc_by(pool.refused().saturating_sub(refused.get()));
        }
        Ok(())
    }

    fn metrics(&self, format: MetricsFormat) -> Response<Body> {
        let counts = match self.exports.count().and_then(|counts| self.count_resources(&counts).map(|()| counts)) {
            Ok(counts) => counts,
            Err(why) => return failed("read the database", &Chain(&why)),
        };
        let registry = self.counted.registry.lock().unwrap_or_else(PoisonError::into_inner);
        for state in ["queued", "running", "completed", "failed"] {
            let count = counts.iter().find(|(name, _)| name == state).map_or(0, |(_, count)| *count);
            self.counted.jobs.get_or_create(&[("state", state.to_owned())]).set(count.cast_signed());
        }
        self.counted.previews.set(i64::try_from(self.previews.count()).unwrap_or(i64::MAX));
        let mut out = String::new();
        match encode(&mut out, &registry) {
            Ok(()) => {
                let mut response = text(StatusCode::OK, format.content_type(), format.render(out));
                response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
                response
            }
            Err(why) => failed("write metrics", &why),
        }
    }
}

/// The service on `admin.listen`.
#[derive(Debug)]
pub struct Ops(pub Arc<Origin>);

impl RequestService for Ops {
    type Body = Body;

    fn respond(
        self: &Arc<Self>,
        request: Request<Incoming>,
        _peer: Peer,
    ) -> impl Future<Output = Response<Body>> + Send + 'static + use<> {
        let origin = Arc::clone(&self.0);
        let path = request.uri().path().to_owned();
        let format = MetricsFormat::accepted(request.headers());
        let is_get = matches!(*request.method(), Method::GET | Method::HEAD);
        async move {
            if !is_get {
                return not_allowed(&["GET", "HEAD"]);
            }
            let told = tokio::task::spawn_blocking(move || match path.as_str() {
                "/livez" => text(StatusCode::OK, TEXT, "ok\n".to_owned()),
                "/readyz" => origin.readiness(),
                "/metrics" => origin.metrics(format),
                _ => nothing_here(),
            });
            told.await.unwrap_or_else(|_| nothing_here())
        }
    }
}
