//! What is stored is proved again from time to time (`store.scrub`), and at once after a daemon that was cut off: a disk that
//! has lost something is found out before readers find it. One version after another, beside serving and far behind it.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::base::backoff;
use crate::base::chain::Chain;
use crate::model::units::unix_seconds;
use crate::model::version::VersionId;
use crate::site::sealed::Sealed;
use crate::store::Store;
use crate::store::writer::Writer;
use crate::sync::plan::Trigger;
use crate::sync::scrub::{Verdict, scrub};
use crate::sync::settle::candidates;
use crate::sync::{SyncError, open};

use super::agent::Agent;
use super::work::step_back;

/// No longer than this without a look at what is due: versions come, and clocks are set.
const LOOK: Duration = Duration::from_hours(1);

/// A version whose file is no longer what was sealed.
#[derive(Debug)]
pub(super) struct Rotten {
    pub(super) id: VersionId,
    /// What is wrong with it.
    pub(super) why: String,
}

/// Proves what is due for as long as the program runs. A version that is found damaged has been marked when it is told of.
pub(super) async fn live(writer: Arc<Writer>, every: Duration, found: mpsc::Sender<Rotten>) {
    let begun = Arc::clone(&writer);
    let was_cut_off = match spawn_blocking(move || begun.begin_run()).await {
        Ok(Ok(was_cut_off)) => was_cut_off,
        Ok(Err(error)) => {
            tracing::warn!("{}; whether this daemon ended as it should will not be known", Chain(&error));
            false
        }
        Err(_) => return,
    };
    // What was there when the power failed is looked at now.
    let mut doubted = BTreeSet::new();
    if was_cut_off {
        tracing::info!("the docwharf before this one was cut off; what is stored is read again");
        doubted.extend(writer.store().versions().unwrap_or_default().into_iter().map(|version| version.id));
    }
    let mut failures = 0;
    loop {
        let (due, wait) = next(writer.store(), every, &doubted);
        let Some(id) = due else {
            sleep(wait.min(LOOK)).await;
            continue;
        };
        match one(&writer, id).await {
            Ok(verdict) => {
                failures = 0;
                doubted.remove(&id);
                if let Verdict::Damaged(why) = verdict
                    && found.send(Rotten { id, why }).await.is_err()
                {
                    return;
                }
            }
            Err(error) => {
                failures += 1;
                let wait = backoff::after(failures);
                let again = wait.as_secs();
                tracing::warn!("cannot read version {} again: {error}; trying again in {again} s", id.short());
                sleep(wait).await;
            }
        }
    }
}

/// The version that is due, or how long until one is. The active one comes first; one that is known to be damaged has its
/// turn like the others, and is none any more once it is found whole.
fn next(store: &Store, every: Duration, doubted: &BTreeSet<VersionId>) -> (Option<VersionId>, Duration) {
    let now = unix_seconds(SystemTime::now());
    let every = i64::try_from(every.as_secs()).unwrap_or(i64::MAX);
    let active = store.record().ok().and_then(|record| record.active);
    let mut first: Option<(bool, i64, VersionId)> = None;
    for id in store.versions().unwrap_or_default().into_iter().map(|version| version.id) {
        let left = match store.proved_at(id) {
            _ if doubted.contains(&id) => 0,
            // A clock that was set back must not put it off.
            Some(time) => time.min(now).saturating_add(every).saturating_sub(now).max(0),
            None => every,
        };
        let rank = (left > 0 || active != Some(id), left, id);
        if first.is_none_or(|first| (rank.1, rank.0) < (first.1, first.0)) {
            first = Some(rank);
        }
    }
    match first {
        Some((_, 0, id)) => (Some(id), Duration::ZERO),
        Some((_, left, _)) => (None, Duration::from_secs(left.unsigned_abs())),
        None => (None, LOOK),
    }
}

async fn one(writer: &Arc<Writer>, id: VersionId) -> io::Result<Verdict> {
    let (send, done) = oneshot::channel();
    let writer = Arc::clone(writer);
    thread::Builder::new().name("docwharf-scrub".to_owned()).spawn(move || {
        step_back(1);
        // Nobody waits when the program ends.
        let _ = send.send(scrub(&writer, id));
    })?;
    done.await.map_err(io::Error::other)?
}

impl Agent {
    /// A version has rotted. If it is the one that is served, the best that is left takes its place; if there is none, it
    /// stays: most of it is still good, and everybody who asks is told. The source is looked at, to bring it again.
    pub(super) async fn give_up(&mut self, rotten: Rotten) {
        let Rotten { id, why } = rotten;
        self.writer.note("docwharf run", "damaged", Some(id), Some(why.clone()));
        if self.shown != Some(id) {
            let short = id.short();
            tracing::error!("the stored version {short} is damaged: {why}; import its bundle again to mend it");
            return;
        }
        let instead = self.next_best(id).await;
        let short = id.short();
        if let Some((other, version)) = instead {
            let other_short = other.short();
            tracing::error!(
                "the version that was served, {short}, is damaged: {why}; {other_short} is served until it is mended"
            );
            self.show(other, version);
            self.writer.note("docwharf run", "fell back", Some(other), None);
        } else {
            tracing::error!(
                "the version that is served, {short}, is damaged: {why}; there is no other to serve: import its bundle again"
            );
        }
        self.wake(Trigger::Interval);
    }

    async fn next_best(&self, damaged: VersionId) -> Option<(VersionId, Sealed)> {
        let (writer, intent) = (Arc::clone(&self.writer), self.config.intent.clone());
        let best = spawn_blocking(move || {
            let record = writer.store().record().ok()?;
            let stored = writer.store().versions().ok()?;
            let left = candidates(&record, &intent, stored.iter().map(|version| version.id));
            left.into_iter().filter(|&id| id != damaged).find_map(|id| {
                let opened: Result<_, SyncError> = open::open_doubted(&writer, id, &intent.effort);
                Some((id, opened.ok()?))
            })
        });
        best.await.ok().flatten()
    }
}
