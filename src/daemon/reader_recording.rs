//! Stores what readers do while `run` serves the site: a thread takes it from the recorder of the site and writes it to
//! `analytics.db` in the store. Serving never waits for it.
//!
//! If the file cannot be written, for example on a full disk, what happens meanwhile is dropped and counted, and
//! another attempt is made after a pause. A damaged file is moved aside, and a new one is begun.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use docwharf_agent::store::ANALYTICS_DATABASE;
use docwharf_analytics::recording::{ActivityWriter, AnalyticsStore, WriterSettings};
use docwharf_base::clock::now_unix_millis;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::locks::Mutex;
use docwharf_base::model::reader_activity::ReaderActivity;
use docwharf_serve::Site;
use docwharf_serve::recording::agents::AgentClassifier;
use docwharf_serve::recording::{Recorder, RecordingSettings};

use crate::admin::analytics_api::{AnalyticsApi, AnalyticsApiSettings};
use crate::admin::daemon_state::{DaemonState, RecordingCounts, RecordingState};
use crate::config::analytics::AnalyticsConfig;
use crate::config::analytics_delivery::DeliverySettings;

use super::analytics_damage::report_damage;
use super::analytics_delivery::AnalyticsDelivery;

/// The interval at which activity is written. A kill loses what happened since.
const WRITE_INTERVAL: Duration = Duration::from_millis(500);
/// The pause after a failure to open or write the file.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// The longest time for which the start of the daemon waits until the file is open.
const OPEN_TIMEOUT: Duration = Duration::from_secs(1);

/// The parts of the daemon that the recording uses.
#[derive(Debug, Clone)]
pub(super) struct RecordingParts {
    /// The site whose readers are recorded.
    pub(super) site: Arc<Site>,
    /// The recorder of the site.
    pub(super) recorder: Arc<Recorder>,
    /// The folder of the store.
    pub(super) store: PathBuf,
    /// The routes that read what was recorded.
    pub(super) api: Arc<AnalyticsApi>,
    /// The state that the admin routes report.
    pub(super) daemon_state: Arc<DaemonState>,
}

/// Records what readers do from the first request on, until [`ReaderRecording::start`] begins to write it.
pub(super) fn attach_recorder(site: &Site, config: &AnalyticsConfig) -> Arc<Recorder> {
    let recorder = Arc::new(Recorder::new(site.base_path(), recording_settings(config)));
    if config.enabled {
        site.set_recorder(Some(Arc::clone(&recorder)));
    }
    recorder
}

/// The recording of what the readers of a site do.
#[derive(Debug)]
pub(super) struct ReaderRecording {
    /// The newest configuration that the thread has not seen.
    newest: Arc<Mutex<Option<AnalyticsConfig>>>,
    /// Wakes the thread for it.
    wake: SyncSender<()>,
    thread: JoinHandle<()>,
    /// The settings of the delivery, which ends when this is dropped.
    delivery: watch::Sender<Option<DeliverySettings>>,
}

impl ReaderRecording {
    /// Starts the thread, and waits until it has opened the file. Without the thread the site is served all the same,
    /// and nothing is recorded.
    pub(super) async fn start(parts: RecordingParts, config: AnalyticsConfig) -> Option<ReaderRecording> {
        let site = Arc::clone(&parts.site);
        let (delivery, settings) = watch::channel(delivered(&config));
        let delivery_task = AnalyticsDelivery::new(Arc::clone(&parts.api), Arc::clone(&parts.daemon_state));
        let (newest, (wake, woken)) = (Arc::<Mutex<Option<AnalyticsConfig>>>::default(), sync_channel(1));
        let (open_sender, opened) = oneshot::channel();
        let run = {
            let newest = Arc::clone(&newest);
            move || RecordingThread::new(parts, config).run(&newest, &woken, open_sender)
        };
        match std::thread::Builder::new().name("analytics".to_owned()).spawn(run) {
            Ok(thread) => {
                // Another process may hold the lock of the file, which is no reason not to start.
                let _ = timeout(OPEN_TIMEOUT, opened).await;
                tokio::spawn(delivery_task.run(settings));
                Some(ReaderRecording { newest, wake, thread, delivery })
            }
            Err(error) => {
                tracing::warn!("cannot start the thread that records what readers do: {error}; nothing is recorded");
                site.set_recorder(None);
                None
            }
        }
    }

    /// Applies another configuration.
    pub(super) fn configure(&self, config: AnalyticsConfig) {
        *self.newest.lock() = Some(config);
        // If the channel is full, the thread is about to wake.
        let _ = self.wake.try_send(());
    }

    /// Applies the settings of the delivery, and ends its pause: the configuration was read again.
    pub(super) fn configure_delivery(&self, config: &AnalyticsConfig) {
        self.delivery.send_replace(delivered(config));
    }

    /// Writes the rest and ends the thread. This waits for the disk.
    pub(super) fn finish(self) {
        drop(self.delivery);
        drop(self.wake);
        let _ = self.thread.join();
    }
}

/// The state of the thread.
struct RecordingThread {
    parts: RecordingParts,
    config: AnalyticsConfig,
    recorder: Arc<Recorder>,
    writer: Option<ActivityWriter>,
    /// The earliest time of the next attempt to open or write the file.
    retry_at: Option<Instant>,
    counts: RecordingCounts,
}

impl RecordingThread {
    fn new(parts: RecordingParts, config: AnalyticsConfig) -> RecordingThread {
        let recorder = Arc::clone(&parts.recorder);
        RecordingThread { parts, config, recorder, writer: None, retry_at: None, counts: RecordingCounts::default() }
    }

    fn run(mut self, newest: &Mutex<Option<AnalyticsConfig>>, woken: &Receiver<()>, opened: oneshot::Sender<()>) {
        self.apply();
        // The receiver may have given up.
        let _ = opened.send(());
        loop {
            match woken.recv_timeout(WRITE_INTERVAL) {
                Ok(()) => {
                    // What happened before the change is written by the settings of that time.
                    self.write();
                    if let Some(config) = newest.lock().take() {
                        self.config = config;
                        self.apply();
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.write(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.parts.site.set_recorder(None);
        self.write();
        self.parts.api.set_store(None);
        // If it were only dropped, the process could end before the log is written to the file and removed.
        if let Some(writer) = self.writer.take() {
            writer.store().close();
        }
    }

    /// Puts the configuration into force.
    fn apply(&mut self) {
        self.parts.api.set_settings(api_settings(&self.config));
        self.recorder.set_settings(recording_settings(&self.config));
        if !self.config.enabled {
            self.parts.site.set_recorder(None);
            // Requests that began before may still be recorded.
            drop(self.recorder.take());
            self.writer = None;
            self.parts.api.set_store(None);
            self.parts.daemon_state.update(|snapshot| snapshot.recording = None);
            return;
        }
        if let Some(writer) = &mut self.writer {
            writer.set_settings(writer_settings(&self.config));
        } else {
            self.retry_at = None;
            self.open();
        }
        self.parts.site.set_recorder(Some(Arc::clone(&self.recorder)));
    }

    /// Opens the file, which is created if it is missing.
    fn open(&mut self) {
        let path = self.path();
        match AnalyticsStore::open_or_replace(&path) {
            Ok((store, moved)) => {
                if let Some(moved) = moved {
                    report_damage(&path, &moved);
                }
                let store = Arc::new(store);
                self.writer = Some(ActivityWriter::new(Arc::clone(&store), writer_settings(&self.config)));
                self.parts.api.set_store(Some(store));
                self.retry_at = None;
                self.report(None);
            }
            Err(error) => self.fail(format!("cannot open {}: {}", path.display(), ErrorChain(&error))),
        }
    }

    /// Writes what has happened since the last call.
    fn write(&mut self) {
        if !self.config.enabled {
            return;
        }
        let activity = self.recorder.take();
        if self.retry_at.is_some_and(|time| Instant::now() < time) {
            return self.count_dropped(&activity);
        }
        if self.writer.is_none() {
            self.open();
        }
        let Some(writer) = &mut self.writer else { return self.count_dropped(&activity) };
        match writer.write(activity, now_unix_millis()) {
            Ok(report) => {
                self.counts.searches += report.searches;
                self.counts.clicks += report.clicks;
                self.counts.views += report.views;
                self.counts.dropped += report.dropped;
                if let Some(moved) = report.moved_aside {
                    report_damage(&self.path(), &moved);
                }
                if self.retry_at.take().is_some() {
                    tracing::info!("what readers do is recorded again");
                }
                self.report(None);
            }
            Err(error) => {
                self.counts.dropped += error.dropped;
                self.fail(ErrorChain(&error).to_string());
            }
        }
    }

    /// Reports a failure, and begins the pause before the next attempt.
    fn fail(&mut self, reason: String) {
        if self.retry_at.is_none() {
            tracing::warn!(
                "{reason}; until this succeeds, what readers do is not recorded (docwharf tries again every {} s), and \
                 the site is served as before",
                RETRY_INTERVAL.as_secs()
            );
        }
        self.retry_at = Some(Instant::now() + RETRY_INTERVAL);
        self.report(Some(reason));
    }

    fn report(&self, error: Option<String>) {
        let store = self.writer.as_ref().map(ActivityWriter::store);
        let bytes = store.map_or(0, |store| store.bytes());
        let damaged_file = store.and_then(|store| store.damaged_file());
        let state = RecordingState { error, bytes, counts: self.counts, damaged_file };
        self.parts.daemon_state.update(|snapshot| snapshot.recording = Some(state));
    }

    fn count_dropped(&mut self, activity: &ReaderActivity) {
        self.counts.dropped += activity.dropped + activity.searches.len() as u64;
        let views = activity.days.iter().flat_map(|day| &day.views);
        self.counts.dropped += views.map(|(_, counts)| counts.human + counts.ai + counts.bot).sum::<u64>();
    }

    fn path(&self) -> PathBuf {
        self.parts.store.join(ANALYTICS_DATABASE)
    }
}

/// Returns the settings of the delivery; `None` if nothing is recorded or delivered.
fn delivered(config: &AnalyticsConfig) -> Option<DeliverySettings> {
    config.deliver.clone().filter(|_| config.enabled)
}

/// Returns the settings of the routes that read what was recorded.
pub(super) fn api_settings(config: &AnalyticsConfig) -> AnalyticsApiSettings {
    AnalyticsApiSettings { project: config.project.clone(), keys: config.key_file.clone(), is_enabled: config.enabled }
}

fn recording_settings(config: &AnalyticsConfig) -> RecordingSettings {
    RecordingSettings {
        searches: config.searches,
        pages: config.pages,
        respects_opt_out: config.respect_opt_out,
        agents: Arc::new(AgentClassifier::with_patterns(&config.bots.patterns)),
    }
}

fn writer_settings(config: &AnalyticsConfig) -> WriterSettings {
    WriterSettings { mask: config.mask, keep: Some(config.keep), max_bytes: config.max_bytes }
}
