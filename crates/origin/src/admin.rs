//! Health checks and metrics of an origin, for its operator. They are on a separate listener (`admin.listen`).
//! `/livez` and `/readyz` are on the public listener as well.

use std::sync::Arc;
use std::time::Instant;

use http::header::VARY;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use prometheus_client::encoding::text::encode;

use docwharf_base::error_chain::ErrorChain;
use docwharf_base::metrics_format::MetricsFormat;
use docwharf_serve::peer::Peer;
use docwharf_serve::service::{RequestService, ServiceResponse, box_body};

use super::analytics::DatabaseUsage;
use super::body::ApiBody;
use super::database::DatabaseError;
use super::limits::SharedResource;
use super::responses::{method_not_allowed, not_found, text, unavailable};
use super::server::OriginServer;

const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

impl OriginServer {
    /// Responds to `/readyz`: the origin is ready if it can read its database and its folders.
    pub(super) fn readiness(&self) -> Response<ApiBody> {
        if let Err(reason) = self.export_jobs.check_folders() {
            return unavailable("read the folders of store.path", &reason);
        }
        match self.export_jobs.count_by_status() {
            Ok(_) => text(StatusCode::OK, PLAIN_TEXT, "ready\n".to_owned()),
            Err(reason) => unavailable("read the database", &ErrorChain(&reason)),
        }
    }

    /// Updates the metrics of each resource from the places where it is counted.
    fn update_resource_metrics(&self, jobs: &[(String, u64)]) -> Result<(), DatabaseError> {
        let usage = self.database.read(|connection| DatabaseUsage::read(connection, |_| false))?;
        let bundles = self.export_jobs.all_bundle_bytes()?;
        let count_in_state = |state: &str| jobs.iter().find(|(name, _)| name == state).map_or(0, |(_, count)| *count);
        let now = Instant::now();
        for resource in SharedResource::ALL {
            let pool = self.pools.pool(resource);
            let in_use = match resource {
                SharedResource::WaitingJobs => count_in_state("queued"),
                SharedResource::Workers => count_in_state("running"),
                SharedResource::Events => self.event_rate_limiter.in_use(now),
                SharedResource::DownloadLinks => self.link_rate_limiter.in_use(now),
                SharedResource::Rows => usage.rows,
                SharedResource::DatabaseBytes => usage.file_bytes,
                SharedResource::BundleBytes => bundles,
                _ => pool.in_use(),
            };
            let gauge_value = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            let labels = [("resource", resource.key().to_owned())];
            self.metrics.in_use.get_or_create(&labels).set(gauge_value(in_use));
            self.metrics.limits.get_or_create(&labels).set(gauge_value(self.pools.limits.total[resource]));
            let refused = self.metrics.refused.get_or_create(&labels);
            refused.inc_by(pool.refusals().saturating_sub(refused.get()));
        }
        Ok(())
    }

    /// Responds to `/metrics`.
    fn metrics(&self, format: MetricsFormat) -> Response<ApiBody> {
        let counts = match self
            .export_jobs
            .count_by_status()
            .and_then(|counts| self.update_resource_metrics(&counts).map(|()| counts))
        {
            Ok(counts) => counts,
            Err(reason) => return unavailable("read the database", &ErrorChain(&reason)),
        };
        let registry = self.metrics.registry.lock();
        for state in ["queued", "running", "completed", "failed"] {
            let count = counts.iter().find(|(name, _)| name == state).map_or(0, |(_, count)| *count);
            self.metrics.jobs.get_or_create(&[("state", state.to_owned())]).set(count.cast_signed());
        }
        self.metrics.previews.set(i64::try_from(self.preview_service.count()).unwrap_or(i64::MAX));
        let mut out = String::new();
        match encode(&mut out, &registry) {
            Ok(()) => {
                let mut response = text(StatusCode::OK, format.content_type(), format.render(out));
                response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
                response
            }
            Err(reason) => unavailable("encode the metrics", &reason),
        }
    }
}

/// The service on `admin.listen`.
#[derive(Debug)]
pub struct OriginAdmin(pub Arc<OriginServer>);

impl RequestService for OriginAdmin {
    fn respond(self: Arc<Self>, request: Request<Incoming>, _peer: Peer) -> ServiceResponse {
        let origin = Arc::clone(&self.0);
        let path = request.uri().path().to_owned();
        let format = MetricsFormat::negotiate(request.headers());
        let is_get = matches!(*request.method(), Method::GET | Method::HEAD);
        Box::pin(async move {
            if !is_get {
                return box_body(method_not_allowed(&["GET", "HEAD"]));
            }
            let task = tokio::task::spawn_blocking(move || match path.as_str() {
                "/livez" => text(StatusCode::OK, PLAIN_TEXT, "ok\n".to_owned()),
                "/readyz" => origin.readiness(),
                "/metrics" => origin.metrics(format),
                _ => not_found(),
            });
            box_body(task.await.unwrap_or_else(|_| not_found()))
        })
    }
}
