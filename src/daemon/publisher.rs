//! Publishes the version that `run` serves as files, if the configuration names a folder.
//!
//! A task decides when to publish, and a separate thread does it: serving neither waits for it nor depends on it. It
//! is level-triggered: it publishes the version that the site serves at that moment, with the configuration of that
//! moment. A failure leaves the link `current` unchanged and is retried.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

use crate::admin::daemon_state::DaemonState;
use docwharf_agent::publish::{PublishCheck, PublishError, PublishOutcome, PublishSettings, publish_version};
use docwharf_base::backoff;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::units::format_count;
use docwharf_base::model::version::VersionId;
use docwharf_serve::Site;
use docwharf_site::sealed_version::SealedVersion;

use super::task::lower_priority_to_background;

/// Interval between checks whether the published folder is up to date and whether old folders can be removed.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// Publishes the version that a site serves.
pub(super) struct Publisher {
    settings: watch::Sender<Option<PublishSettings>>,
}

impl Publisher {
    /// Starts publishing in the background.
    pub(super) fn start(
        settings: Option<PublishSettings>,
        site: Arc<Site>,
        daemon_state: Arc<DaemonState>,
    ) -> Publisher {
        let (send, receive) = watch::channel(settings);
        tokio::spawn(publish_changes(receive, site, daemon_state));
        Publisher { settings: send }
    }

    /// Replaces the settings. If nothing is to be published any more, the published files stay.
    pub(super) fn configure(&self, settings: Option<PublishSettings>) {
        self.settings.send_if_modified(|before| {
            let changed = *before != settings;
            *before = settings;
            changed
        });
    }
}

async fn publish_changes(
    mut settings: watch::Receiver<Option<PublishSettings>>,
    site: Arc<Site>,
    daemon_state: Arc<DaemonState>,
) {
    let mut failures = 0;
    let mut versions = site.subscribe_to_versions();
    // A folder that was found complete is not checked file by file again.
    let mut checked: Option<(PublishSettings, VersionId)> = None;
    loop {
        let requested = settings.borrow_and_update().clone();
        let mut wait = CHECK_INTERVAL;
        daemon_state.update(|snapshot| snapshot.publish.clone_from(&requested));
        if let (Some(requested), Some(version)) = (requested, site.served_version()) {
            let current = (requested.clone(), version.id);
            let check =
                if checked.as_ref() == Some(&current) { PublishCheck::TrustRecord } else { PublishCheck::CheckFiles };
            match publish(requested, version, check).await {
                Ok(()) => {
                    (failures, checked) = (0, Some(current));
                    daemon_state.update(|snapshot| snapshot.publish_error = None);
                }
                Err(error) => {
                    failures += 1;
                    let line = ErrorChain(error.as_ref()).to_string();
                    daemon_state.update(|snapshot| snapshot.publish_error = Some(line));
                    wait = backoff::wait_after_failures(failures);
                    tracing::error!(
                        "{}; the previously published version stays; trying again in {} s",
                        ErrorChain(error.as_ref()),
                        wait.as_secs()
                    );
                }
            }
        }
        tokio::select! {
            _ = versions.changed() => {}
            changed = settings.changed() => if changed.is_err() { return },
            () = sleep(wait) => {}
        }
    }
}

async fn publish(
    settings: PublishSettings,
    version: Arc<SealedVersion>,
    check: PublishCheck,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (send, done) = oneshot::channel::<Result<PublishOutcome, PublishError>>();
    let id = version.id;
    thread::Builder::new().name("docwharf-publish".to_owned()).spawn(move || {
        lower_priority_to_background(1);
        // There is no receiver any more when the program ends.
        let _ = send.send(publish_version(&settings, &version, check));
    })?;
    let died = || io::Error::other("publishing ended unexpectedly; this is a bug");
    let published = done.await.map_err(|_| died())??;
    if published.changed {
        let (written, linked) = (format_count(published.written, "file"), published.linked);
        tracing::info!("version {} is published ({written} written, {linked} linked)", id.short());
    }
    Ok(())
}
