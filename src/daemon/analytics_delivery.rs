//! Delivers what the host records to an origin (`[analytics.deliver]`): searches and daily counts, in batches that wait
//! in `analytics.db` until the origin has acknowledged them.
//!
//! The response decides about the next step: a batch that the origin refuses (400) is marked as refused, because it
//! would be refused again; after several of them, or if the key is refused (401, 403), the delivery pauses until the
//! configuration is read again; after anything else the batch is sent again, after a pause that grows.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use docwharf_agent::api::{AnalyticsBatchKind, ApiClient};
use docwharf_agent::sync::api_key::read_key_file;
use docwharf_analytics::database::DatabaseError;
use docwharf_analytics::recording::{AnalyticsStore, OutgoingBatch};
use docwharf_base::backoff::{add_jitter, random_fraction, wait_after_failures};
use docwharf_base::clock::now_unix_millis;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::net::client::build_client;
use docwharf_base::net::format_seconds;
use docwharf_base::net::request_error::{RequestError, RequestErrorCause};

use crate::admin::analytics_api::AnalyticsApi;
use crate::admin::daemon_state::{DaemonState, DeliveryState};
use crate::config::analytics_delivery::DeliverySettings;

use super::analytics_damage::report_damage;

/// The longest pause that an origin can demand.
const MAX_PAUSE: Duration = Duration::from_hours(1);
/// The pause before another look whether the database is open.
const NO_STORE_PAUSE: Duration = Duration::from_secs(5);
/// The interval at which the state is reported during a pause and while much is sent.
const REPORT_INTERVAL: Duration = Duration::from_secs(30);
/// The number of batches in a row after whose refusal nothing is sent.
const MAX_REFUSALS: u32 = 3;

/// The delivery of what the host records.
#[derive(Debug)]
pub(super) struct AnalyticsDelivery {
    api: Arc<AnalyticsApi>,
    daemon_state: Arc<DaemonState>,
    state: DeliveryState,
    /// The number of deliveries in a row that failed.
    failures: u32,
    /// The number of batches in a row that the origin refused.
    refusals: u32,
}

/// The reason why a delivery ended before the queue was empty.
#[derive(Debug)]
enum DeliveryError {
    /// Another attempt is made after a pause, which is at least this long.
    Retry { reason: String, pause: Option<Duration> },
    /// The database is not open: recording is off, or the file cannot be opened, which the status says.
    NoStore,
    /// Only another configuration, key or origin can help, so no attempt is made before the configuration is read
    /// again.
    Paused(String),
}

impl AnalyticsDelivery {
    pub(super) fn new(api: Arc<AnalyticsApi>, daemon_state: Arc<DaemonState>) -> AnalyticsDelivery {
        AnalyticsDelivery { api, daemon_state, state: DeliveryState::default(), failures: 0, refusals: 0 }
    }

    /// Delivers with the newest settings until their sender is dropped.
    pub(super) async fn run(mut self, mut newest: watch::Receiver<Option<DeliverySettings>>) {
        loop {
            let settings = newest.borrow_and_update().clone();
            (self.failures, self.refusals) = (0, 0);
            let Some(settings) = settings else {
                let changed = tokio::select! {
                    changed = newest.changed() => changed,
                    never = self.turn_off() => match never {},
                };
                if changed.is_err() {
                    return;
                }
                continue;
            };
            self.state.target = settings.base.without_secrets();
            // A batch whose response is not awaited is sent again, and the origin counts it once.
            let changed = tokio::select! {
                changed = newest.changed() => changed,
                never = self.deliver_repeatedly(&settings) => match never {},
            };
            if changed.is_err() {
                return;
            }
        }
    }

    /// Delivers with these settings until it is cancelled.
    async fn deliver_repeatedly(&mut self, settings: &DeliverySettings) -> Infallible {
        let mut has_begun = false;
        loop {
            let result = self.deliver_queue(settings, &mut has_begun).await;
            let pause = self.record_result(result, settings);
            self.wait(pause).await;
        }
    }

    /// Waits, and reports what waits meanwhile. Without a pause it waits for ever.
    async fn wait(&mut self, pause: Option<Duration>) {
        let end = pause.map(|pause| Instant::now() + pause);
        loop {
            self.report().await;
            let left = end.map_or(REPORT_INTERVAL, |end| end.saturating_duration_since(Instant::now()));
            sleep(left.min(REPORT_INTERVAL)).await;
            if end.is_some_and(|end| Instant::now() >= end) {
                return;
            }
        }
    }

    /// Records the result of a delivery, and returns the pause before the next one; `None` if there is none.
    fn record_result(&mut self, result: Result<(), DeliveryError>, settings: &DeliverySettings) -> Option<Duration> {
        let target = &self.state.target;
        match result {
            Ok(()) => {
                if self.state.error.take().is_some() {
                    tracing::info!("analytics are delivered to {target} again");
                }
                self.failures = 0;
                Some(add_jitter(settings.interval, random_fraction()))
            }
            Err(DeliveryError::NoStore) => Some(settings.interval.min(NO_STORE_PAUSE)),
            Err(DeliveryError::Retry { reason, pause }) => {
                self.failures += 1;
                let pause = pause_after(self.failures, settings.interval, pause);
                // Each reason is logged once.
                if self.state.error.as_ref() != Some(&reason) {
                    tracing::warn!(
                        "cannot deliver analytics to {target}: {reason}; nothing is lost: it waits in analytics.db; next \
                         attempt in {}",
                        format_seconds(pause)
                    );
                }
                self.state.error = Some(reason);
                Some(pause)
            }
            Err(DeliveryError::Paused(reason)) => {
                let reason = format!("{reason}; until the configuration is read again, nothing is sent");
                tracing::error!("cannot deliver analytics to {target}: {reason}");
                self.state.error = Some(reason);
                None
            }
        }
    }

    /// Sends all that waits. `has_begun` is whether the store knows the origin of these settings.
    async fn deliver_queue(&mut self, settings: &DeliverySettings, has_begun: &mut bool) -> Result<(), DeliveryError> {
        let Some(store) = self.api.store() else { return Err(DeliveryError::NoStore) };
        if !*has_begun {
            let target = format!("{} {}", settings.base.without_secrets(), settings.project);
            run_on_store(&store, move |store| store.begin_delivery(&target)).await?;
            *has_begun = true;
        }
        let (queue_bytes, target) = (settings.queue_bytes, self.state.target.clone());
        // This closure runs to its end even if the configuration is read meanwhile and this function is cancelled, so
        // the warning belongs to it: the next call does not find the same searches again.
        let limit_queue = run_on_store(&store, move |store| {
            store.assign_batches(now_unix_millis())?;
            let left_out = store.limit_queue(queue_bytes)?;
            if left_out > 0 {
                tracing::warn!(
                    "{left_out} searches are not delivered to {target}: more than analytics.deliver.queue waited; this \
                     host and `docwharf analytics export` have them"
                );
            }
            Ok(())
        });
        limit_queue.await?;
        let (mut client, mut reported) = (None, Instant::now());
        while let Some(batch) = run_on_store(&store, |store| store.next_batch(now_unix_millis())).await? {
            // Without anything to send, the key is not needed.
            let client = match &client {
                Some(client) => client,
                None => client.insert(create_client(settings).await?),
            };
            let is_last = matches!(batch, OutgoingBatch::Views { has_more: false, .. });
            self.send(client, &store, settings, batch).await?;
            if is_last {
                break;
            }
            if reported.elapsed() >= REPORT_INTERVAL {
                self.report().await;
                reported = Instant::now();
            }
        }
        self.state.last_success = Some(SystemTime::now());
        Ok(())
    }

    /// Sends a batch and notes the response.
    async fn send(
        &mut self,
        client: &ApiClient,
        store: &Arc<AnalyticsStore>,
        settings: &DeliverySettings,
        batch: OutgoingBatch,
    ) -> Result<(), DeliveryError> {
        let (kind, body) = match &batch {
            OutgoingBatch::Searches { batch, .. } => (AnalyticsBatchKind::Searches, to_json(batch)?),
            OutgoingBatch::Views { batch, .. } => (AnalyticsBatchKind::Views, to_json(batch)?),
        };
        let (client, project) = (client.clone(), settings.project.clone());
        // The future of the client cannot move between threads, as a task of this runtime may. The request ends when
        // this function is cancelled, because the guard is dropped then.
        let (_guard, cancelled) = oneshot::channel::<()>();
        let sent = spawn_blocking(move || {
            Handle::current().block_on(async {
                tokio::select! {
                    sent = client.send_analytics(&project, kind, &body) => sent,
                    _ = cancelled => Err(RequestError::new(RequestErrorCause::NotConnected, "the delivery has ended")),
                }
            })
        });
        let sent = sent.await.map_err(|error| DeliveryError::Retry { reason: error.to_string(), pause: None })?;
        match sent {
            Ok(()) => {
                self.refusals = 0;
                let (searches, counts) = match &batch {
                    OutgoingBatch::Searches { searches, .. } => (*searches, 0),
                    OutgoingBatch::Views { batch, .. } => (0, batch.counts.len() as u64),
                };
                run_on_store(store, move |store| store.acknowledge(&batch)).await?;
                self.state.delivered_searches += searches;
                self.state.delivered_counts += counts;
                Ok(())
            }
            Err(error) => match error.cause {
                RequestErrorCause::Status(400) => self.refuse(store, batch, &error).await,
                RequestErrorCause::Status(401 | 403) => Err(DeliveryError::Paused(format!(
                    "{error}; put a key of the origin with the scope write into {} (analytics.deliver.keyFile)",
                    settings.key_file.display()
                ))),
                RequestErrorCause::Status(404) => {
                    let reason = format!("{error}; check analytics.deliver.baseUrl and projectId");
                    Err(DeliveryError::Retry { reason, pause: error.retry_after })
                }
                RequestErrorCause::Status(413) => {
                    let reason = format!("{error}; permit bodies of 8 MiB in the proxy before the origin");
                    Err(DeliveryError::Retry { reason, pause: error.retry_after })
                }
                _ => Err(retry(&error)),
            },
        }
    }

    /// Marks a batch as refused. If the origin refuses one after the other, the cause is not the content of a batch.
    async fn refuse(
        &mut self,
        store: &Arc<AnalyticsStore>,
        batch: OutgoingBatch,
        error: &RequestError,
    ) -> Result<(), DeliveryError> {
        let reason = error.to_string();
        tracing::error!(
            "{} refuses {}: {reason}; they are not sent again before the configuration is read again, and this host \
             keeps them: compare the versions and the clocks of host and origin",
            self.state.target,
            describe_content(&batch)
        );
        run_on_store(store, move |store| store.refuse(&batch)).await?;
        self.refusals += 1;
        if self.refusals < MAX_REFUSALS {
            return Ok(());
        }
        Err(DeliveryError::Paused(format!(
            "{reason}, {MAX_REFUSALS} batches in a row; check analytics.deliver.baseUrl"
        )))
    }

    /// Reports the state of the delivery.
    async fn report(&mut self) {
        if let Some(store) = self.api.store()
            && let Ok(queue) = run_on_store(&store, AnalyticsStore::queue_state).await
        {
            self.state.waiting_searches = queue.waiting_searches;
            self.state.waiting_counts = queue.waiting_counts;
            self.state.refused_batches = queue.refused_batches;
            self.state.refused_counts = queue.refused_counts;
            self.state.undelivered_searches = queue.undelivered_searches;
        }
        let state = self.state.clone();
        self.daemon_state.update(|snapshot| snapshot.delivery = Some(state));
    }

    /// Ends to note what the origin does not have, once the store is open, and then waits for ever.
    async fn turn_off(&mut self) -> Infallible {
        self.daemon_state.update(|snapshot| snapshot.delivery = None);
        loop {
            if let Some(store) = self.api.store()
                && run_on_store(&store, AnalyticsStore::end_delivery).await.is_ok()
            {
                return std::future::pending().await;
            }
            sleep(NO_STORE_PAUSE).await;
        }
    }
}

/// Runs a function of the store, which waits for the disk.
async fn run_on_store<T: Send + 'static>(
    store: &Arc<AnalyticsStore>,
    function: impl FnOnce(&AnalyticsStore) -> Result<T, DatabaseError> + Send + 'static,
) -> Result<T, DeliveryError> {
    let store = Arc::clone(store);
    let run = move || {
        let generation = store.generation();
        function(&store).map_err(|error| {
            // A damaged file is replaced by the first one who finds the damage.
            if error.is_damage() {
                match store.replace_damaged(generation) {
                    Ok(moved) => report_damage(store.path(), &moved),
                    Err(error) => tracing::error!("{}", ErrorChain(&error)),
                }
            }
            ErrorChain(&error).to_string()
        })
    };
    let result = spawn_blocking(run).await.unwrap_or_else(|error| Err(error.to_string()));
    result.map_err(|reason| DeliveryError::Retry { reason, pause: None })
}

/// Returns the pause after this many failures in a row, of which the last one demanded `demanded`. It is never shorter
/// than that.
fn pause_after(failures: u32, interval: Duration, demanded: Option<Duration>) -> Duration {
    let demanded = demanded.unwrap_or_default().min(MAX_PAUSE);
    wait_after_failures(failures).max(interval).max(demanded)
}

fn describe_content(batch: &OutgoingBatch) -> String {
    match batch {
        OutgoingBatch::Searches { searches: 1, .. } => "1 search".to_owned(),
        OutgoingBatch::Searches { searches, .. } => format!("{searches} searches"),
        OutgoingBatch::Views { batch, .. } => format!("{} daily counts", batch.counts.len()),
    }
}

fn retry(error: &RequestError) -> DeliveryError {
    DeliveryError::Retry { reason: error.to_string(), pause: error.retry_after }
}

/// Reads the key and builds a client, which waits for the disk.
async fn create_client(settings: &DeliverySettings) -> Result<ApiClient, DeliveryError> {
    let settings = settings.clone();
    let create = move || {
        let path = &settings.key_file;
        let key = read_key_file(path, &format!("{} (analytics.deliver.keyFile)", path.display()))?;
        let network = &settings.network;
        let http = build_client(network).map_err(|error| ErrorChain(&error).to_string())?;
        Ok(ApiClient::new(http, settings.base, key, network.call_timeout, network.max_redirects))
    };
    let result = spawn_blocking(create).await.unwrap_or_else(|error| Err(error.to_string()));
    result.map_err(|reason| DeliveryError::Retry { reason, pause: None })
}

fn to_json(batch: &impl Serialize) -> Result<Value, DeliveryError> {
    serde_json::to_value(batch).map_err(|error| DeliveryError::Retry { reason: error.to_string(), pause: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_grows_with_failures_and_respects_retry_after() {
        let seconds = Duration::from_secs;
        for (failures, interval, demanded, expected) in [
            (1, 1, None, 5),
            (2, 1, None, 10),
            (2, 60, None, 60),
            (100, 60, None, 600),
            (1, 60, Some(120), 120),
            (100, 60, Some(120), 600),
            (1, 60, Some(86_400), 3600),
            (1, 7200, Some(86_400), 7200),
        ] {
            let pause = pause_after(failures, seconds(interval), demanded.map(seconds));
            assert_eq!(pause, seconds(expected), "{failures} {interval} {demanded:?}");
        }
    }
}
