//! What `run` serves is published as files, too, if the configuration says where.
//!
//! A task decides when, a thread of its own does it: serving does not wait for it and does not depend on it. It is
//! level-triggered like everything else: what is to be published is what the site shows and what the configuration says
//! at that moment. A failure leaves `current` where it was, and it is tried again.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

use crate::admin::live::Live;
use docwharf_base::backoff;
use docwharf_base::chain::Chain;
use docwharf_base::model::units::count_noun;
use docwharf_base::model::version::VersionId;
use docwharf_agent::publish::{Care, PublishError, Published, Settings, bring_up_to_date};
use docwharf_serve::Site;
use docwharf_site::sealed::Sealed;

use super::work::step_back;

/// How often it is looked whether all is as it should be, and whether old folders can go.
const TICK: Duration = Duration::from_mins(1);

/// Publishes what a site shows.
pub(super) struct Publisher {
    settings: watch::Sender<Option<Settings>>,
}

impl Publisher {
    /// Begins at once, in the background.
    pub(super) fn start(settings: Option<Settings>, site: Arc<Site>, told: Arc<Live>) -> Publisher {
        let (send, receive) = watch::channel(settings);
        tokio::spawn(live(receive, site, told));
        Publisher { settings: send }
    }

    /// Takes over a configuration. Where nothing is to be published any more, what is there stays.
    pub(super) fn configure(&self, settings: Option<Settings>) {
        self.settings.send_if_modified(|before| {
            let changed = *before != settings;
            *before = settings;
            changed
        });
    }
}

async fn live(mut settings: watch::Receiver<Option<Settings>>, site: Arc<Site>, told: Arc<Live>) {
    let mut failures = 0;
    let mut shown = site.shown();
    // What has been found whole once is not gone through again.
    let mut looked: Option<(Settings, VersionId)> = None;
    loop {
        let wanted = settings.borrow_and_update().clone();
        let mut wait = TICK;
        told.tell(|now| now.publish.clone_from(&wanted));
        if let (Some(wanted), Some(version)) = (wanted, site.current()) {
            let now = (wanted.clone(), version.id);
            let care = if looked.as_ref() == Some(&now) { Care::Glance } else { Care::Look };
            match publish(wanted, version, care).await {
                Ok(()) => {
                    (failures, looked) = (0, Some(now));
                    told.tell(|now| now.publish_error = None);
                }
                Err(error) => {
                    failures += 1;
                    let line = Chain(error.as_ref()).to_string();
                    told.tell(|now| now.publish_error = Some(line));
                    wait = backoff::after(failures);
                    tracing::error!(
                        "{}; what was published before stays; trying again in {} s",
                        Chain(error.as_ref()),
                        wait.as_secs()
                    );
                }
            }
        }
        tokio::select! {
            _ = shown.changed() => {}
            changed = settings.changed() => if changed.is_err() { return },
            () = sleep(wait) => {}
        }
    }
}

async fn publish(
    settings: Settings,
    version: Arc<Sealed>,
    care: Care,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (send, done) = oneshot::channel::<Result<Published, PublishError>>();
    let id = version.id;
    thread::Builder::new().name("docwharf-publish".to_owned()).spawn(move || {
        step_back(1);
        // Nobody waits when the program ends.
        let _ = send.send(bring_up_to_date(&settings, &version, care));
    })?;
    let died = || io::Error::other("publishing ended unexpectedly; this is a bug");
    let published = done.await.map_err(|_| died())??;
    if published.changed {
        let (written, linked) = (count_noun(published.written, "file"), published.linked);
        tracing::info!("version {} is published ({written} written, {linked} linked)", id.short());
    }
    Ok(())
}
