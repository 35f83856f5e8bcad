//! What is stored is proved again from time to time (`store.scrub`), and at once after a daemon that was cut off: a disk that
//! has lost something is found out before readers find it. One version after another, beside serving and far behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use docwharf_base::chain::Chain;
use docwharf_base::model::units::unix_seconds;
use docwharf_base::model::version::VersionId;
use docwharf_serve::Site;
use docwharf_site::sealed::Sealed;
use docwharf_agent::store::keeper::Keeper;
use docwharf_agent::store::writer::Writer;
use docwharf_agent::sync::plan::Trigger;
use docwharf_agent::sync::scrub::{Verdict, scrub};
use docwharf_agent::sync::settle::candidates;
use docwharf_agent::sync::{SyncError, open};

use super::agent::Agent;
use super::work::step_back;

/// Seconds after which a version that could not be read, or just was, may be read again.
const AGAIN: i64 = 600;
/// No longer than this without a look at what is due: versions come, and clocks are set.
const LOOK: Duration = Duration::from_hours(1);

/// What has been found out about a version.
#[derive(Debug)]
pub(super) enum Finding {
    /// It is damaged.
    Rotten(Rotten),
    /// Its index is not what it should be, or has just been made again.
    Index(VersionId),
}

/// A version whose file is no longer what was sealed.
#[derive(Debug)]
pub(super) struct Rotten {
    pub(super) id: VersionId,
    /// What is wrong with it.
    pub(super) why: String,
}

/// When versions were looked at, beyond what the store knows: a damaged one has its turn, too, and one that cannot be read
/// just now keeps no other from being read.
#[derive(Debug, Default)]
struct Rounds {
    /// To be read at once.
    doubted: BTreeSet<VersionId>,
    /// Not to be read before, in seconds since 1970.
    not_before: BTreeMap<VersionId, i64>,
}

/// Proves what is due for as long as the program runs. A version that is found damaged has been marked when it is told of.
pub(super) async fn live(writer: Arc<Writer>, site: Arc<Site>, every: Duration, found: mpsc::Sender<Finding>) {
    let mut rounds = Rounds::default();
    let begun = Arc::clone(&writer);
    match spawn_blocking(move || begun.begin_run()).await {
        // What was there when the power failed is looked at now.
        Ok(Ok(true)) => {
            tracing::info!("the docwharf before this one was cut off; what is stored is read again");
            let store = writer.store().clone();
            rounds.doubted = spawn_blocking(move || store.proved().into_keys().collect()).await.unwrap_or_default();
        }
        Ok(Ok(false)) => {}
        Ok(Err(error)) => {
            tracing::warn!("{}; whether this daemon ended as it should will not be known", Chain(&error));
        }
        Err(_) => return,
    }
    let whole = i64::try_from(every.as_secs()).unwrap_or(i64::MAX);
    loop {
        let store = writer.store().clone();
        let known = spawn_blocking(move || (store.record().ok().and_then(|record| record.active), store.proved()));
        let Ok((active, proved)) = known.await else { return };
        let id = match next(active, &proved, whole, &rounds) {
            Ok(id) => id,
            Err(wait) => {
                tokio::select! {
                    () = sleep(wait.min(LOOK)) => {}
                    // It could not be sent as it was sealed.
                    versions = site.doubted() => rounds.doubted.extend(versions),
                }
                continue;
            }
        };
        rounds.doubted.remove(&id);
        let was_known = writer.store().is_rotten(id);
        let pause = match one(&writer, id).await {
            Ok(Verdict::Damaged(why)) => {
                if !was_known && found.send(Finding::Rotten(Rotten { id, why })).await.is_err() {
                    return;
                }
                whole
            }
            Ok(Verdict::Mended) => {
                if found.send(Finding::Index(id)).await.is_err() {
                    return;
                }
                AGAIN
            }
            Ok(Verdict::Whole | Verdict::Gone) => AGAIN,
            Err(error) => {
                tracing::warn!("cannot read version {} again: {error}; trying again in 10 min", id.short());
                rounds.doubted.insert(id);
                AGAIN
            }
        };
        rounds.not_before.insert(id, unix_seconds(SystemTime::now()).saturating_add(pause));
        rounds.not_before.retain(|id, _| proved.contains_key(id));
    }
}

/// The version that is due, the active one first, or how long until one is.
fn next(
    active: Option<VersionId>,
    proved: &BTreeMap<VersionId, i64>,
    every: i64,
    rounds: &Rounds,
) -> Result<VersionId, Duration> {
    let now = unix_seconds(SystemTime::now());
    let left = proved.iter().map(|(&id, &time)| {
        // A clock that was set back must not put it off.
        let due = if rounds.doubted.contains(&id) { 0 } else { time.min(now).saturating_add(every) - now };
        let held = rounds.not_before.get(&id).map_or(0, |&until| (until - now).min(every.max(AGAIN)));
        (due.max(held).max(0), active != Some(id), id)
    });
    match left.min() {
        Some((0, _, id)) => Ok(id),
        Some((left, ..)) => Err(Duration::from_secs(left.unsigned_abs())),
        None => Err(LOOK),
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
        // It may have been mended while this waited for its turn.
        if !self.writer.store().is_suspect(id) {
            return;
        }
        // Nobody is to get its assets any more, for which browsers do not ask twice.
        self.site.let_go(id);
        self.writer.note("docwharf run", "damaged", Some(id), Some(why.clone()));
        if self.shown != Some(id) {
            let short = id.short();
            tracing::error!("the stored version {short} is damaged: {why}; import its bundle again to mend it");
            return;
        }
        let instead = self.next_best(id).await;
        let short = id.short();
        self.lost = Some(id);
        if let Some((other, version)) = instead {
            let other_short = other.short();
            tracing::error!(
                "the version that was served, {short}, is damaged: {why}; {other_short} is served until it is mended"
            );
            self.show(other, version);
            self.site.let_go(id);
            self.writer.note("docwharf run", "fell back", Some(other), None);
        } else {
            // What is shown is not what will be there once it is mended.
            self.is_stale = true;
            tracing::error!(
                "the version that is served, {short}, is damaged: {why}; there is no other to serve: import its bundle again"
            );
        }
        self.agenda.wake(Trigger::Interval);
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

#[cfg(test)]
mod tests {
    use docwharf_base::model::digest::Digest;

    use super::*;

    #[test]
    fn a_version_that_was_proved_in_the_future_is_due_after_the_usual_time() {
        let id = VersionId(Digest::of(b"a version"));
        let now = unix_seconds(SystemTime::now());
        let year = 365 * 24 * 3600;
        let due = |time: i64| next(None, &BTreeMap::from([(id, time)]), 3600, &Rounds::default());
        for time in [now + 1, now + year, i64::MAX] {
            let left = due(time).expect_err("it was proved").as_secs();
            assert!((3590..=3600).contains(&left), "{left} s for {}", time - now);
        }
        assert_eq!(due(now - 3600), Ok(id));
        assert_eq!(due(i64::MIN / 2), Ok(id));
    }
}
