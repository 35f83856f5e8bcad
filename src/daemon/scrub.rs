//! Verifies the stored versions again at intervals (`store.scrub`), and at once if the previous daemon did not end
//! cleanly, so that lost data is found before readers request it. It verifies one version at a time, at low priority
//! in the background.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use docwharf_agent::store::writer::StoreWriter;
use docwharf_agent::sync::scrub::{ScrubResult, scrub};
use docwharf_base::clock::now_unix_seconds;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::version::VersionId;
use docwharf_serve::Site;

use super::task::lower_priority_to_background;

/// Seconds after which a version that could not be read, or has just been read, may be read again.
const RETRY_SECONDS: i64 = 600;
/// The longest time between two checks which version is due: versions arrive, and clocks are set.
const MAX_CHECK_INTERVAL: Duration = Duration::from_hours(1);

/// A fault of a version that the main loop must handle.
#[derive(Debug)]
pub(super) enum VersionFault {
    /// The version is damaged.
    Damaged(DamagedVersion),
    /// The index of the version is wrong, or has just been rebuilt: the version must be opened again.
    WrongIndex(VersionId),
}

/// A version whose image is no longer what was sealed.
#[derive(Debug)]
pub(super) struct DamagedVersion {
    pub(super) id: VersionId,
    /// The damage.
    pub(super) why: String,
}

/// The part of the schedule that the store does not record: versions to verify at once, and versions that must not be
/// read again yet.
#[derive(Debug, Default)]
struct ScrubSchedule {
    /// Versions that are due at once.
    due_at_once: BTreeSet<VersionId>,
    /// The earliest time at which a version is due, in seconds since 1970.
    not_before: BTreeMap<VersionId, i64>,
}

/// Records in the store that a daemon runs. Returns whether the previous one did not end cleanly. It is done before the
/// main loop starts: a run that ends at once would otherwise be recorded after its end.
pub(super) async fn begin_run(writer: &Arc<StoreWriter>) -> bool {
    let writer = Arc::clone(writer);
    match spawn_blocking(move || writer.begin_run()).await {
        Ok(Ok(was_cut_off)) => {
            if was_cut_off {
                tracing::info!(
                    "the previous docwharf process did not end cleanly; the stored versions are verified again"
                );
            }
            was_cut_off
        }
        Ok(Err(error)) => {
            tracing::warn!("{}; the next start will not know whether this daemon ended cleanly", ErrorChain(&error));
            false
        }
        Err(_) => false,
    }
}

/// Records in the store that the daemon ended cleanly.
pub(super) fn end_run(writer: &StoreWriter) {
    if let Err(error) = writer.end_run() {
        tracing::warn!("{}; the stored versions are verified again at the next start", ErrorChain(&error));
    }
}

/// Verifies versions when they are due, for as long as the program runs; all of them at once if the previous daemon
/// `was_cut_off`. A damaged version is marked in the store before it is sent to `faults`.
pub(super) async fn verify_versions(
    writer: Arc<StoreWriter>,
    site: Arc<Site>,
    every: Duration,
    was_cut_off: bool,
    faults: mpsc::Sender<VersionFault>,
) {
    let mut schedule = ScrubSchedule::default();
    if was_cut_off {
        // Versions that were stored when the power failed are verified now.
        let store = writer.store().clone();
        schedule.due_at_once =
            spawn_blocking(move || store.verified_times().into_keys().collect()).await.unwrap_or_default();
    }
    let interval_seconds = i64::try_from(every.as_secs()).unwrap_or(i64::MAX);
    loop {
        let store = writer.store().clone();
        let stored =
            spawn_blocking(move || (store.record().ok().and_then(|record| record.active), store.verified_times()));
        let Ok((active, verified)) = stored.await else { return };
        let id = match next_due(active, &verified, interval_seconds, &schedule) {
            Ok(id) => id,
            Err(wait) => {
                tokio::select! {
                    () = sleep(wait.min(MAX_CHECK_INTERVAL)) => {}
                    // A response could not be sent, because bytes of a version are damaged or unreadable.
                    versions = site.wait_for_damage() => schedule.due_at_once.extend(versions),
                }
                continue;
            }
        };
        schedule.due_at_once.remove(&id);
        let was_known = writer.store().has_read_as_damaged(id);
        let pause = match verify_version(&writer, id).await {
            Ok(ScrubResult::Damaged(why)) => {
                if !was_known && faults.send(VersionFault::Damaged(DamagedVersion { id, why })).await.is_err() {
                    return;
                }
                interval_seconds
            }
            Ok(ScrubResult::IndexRebuilt) => {
                if faults.send(VersionFault::WrongIndex(id)).await.is_err() {
                    return;
                }
                RETRY_SECONDS
            }
            Ok(ScrubResult::Undamaged | ScrubResult::Removed) => RETRY_SECONDS,
            Err(error) => {
                tracing::warn!("cannot read version {} again: {error}; trying again in 10 min", id.short());
                schedule.due_at_once.insert(id);
                RETRY_SECONDS
            }
        };
        schedule.not_before.insert(id, now_unix_seconds().saturating_add(pause));
        schedule.not_before.retain(|id, _| verified.contains_key(id));
    }
}

/// Returns the version that is due, the active one first, or the time until one is due.
fn next_due(
    active: Option<VersionId>,
    verified: &BTreeMap<VersionId, i64>,
    every: i64,
    schedule: &ScrubSchedule,
) -> Result<VersionId, Duration> {
    let now = now_unix_seconds();
    let waits = verified.iter().map(|(&id, &time)| {
        // A clock that was set back must not postpone it.
        let due = if schedule.due_at_once.contains(&id) { 0 } else { time.min(now).saturating_add(every) - now };
        let retry_wait = schedule.not_before.get(&id).map_or(0, |&until| (until - now).min(every.max(RETRY_SECONDS)));
        (due.max(retry_wait).max(0), active != Some(id), id)
    });
    match waits.min() {
        Some((0, _, id)) => Ok(id),
        Some((wait, ..)) => Err(Duration::from_secs(wait.unsigned_abs())),
        None => Err(MAX_CHECK_INTERVAL),
    }
}

async fn verify_version(writer: &Arc<StoreWriter>, id: VersionId) -> io::Result<ScrubResult> {
    let (send, done) = oneshot::channel();
    let writer = Arc::clone(writer);
    thread::Builder::new().name("docwharf-scrub".to_owned()).spawn(move || {
        lower_priority_to_background(1);
        // There is no receiver any more when the program ends.
        let _ = send.send(scrub(&writer, id));
    })?;
    done.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use docwharf_base::model::digest::Digest;

    use super::*;

    #[test]
    fn scrub_verifies_the_active_version_first_and_delays_recently_read_versions() {
        let [a, b] = ["a", "b"].map(|text| VersionId(Digest::compute(text.as_bytes())));
        let now = now_unix_seconds();
        let next = |active: Option<VersionId>, times: [i64; 2], schedule: &ScrubSchedule| {
            next_due(active, &BTreeMap::from([(a, times[0]), (b, times[1])]), 3600, schedule)
        };
        let none = ScrubSchedule::default();
        // The other one has been due for longer.
        assert_eq!(next(Some(a), [now - 3600, now - 9000], &none), Ok(a));
        assert_eq!(next(Some(b), [now - 9000, now - 3600], &none), Ok(b));
        assert_eq!(next(Some(a), [now, now - 3600], &none), Ok(b), "the active one is not due");
        let wait = next(None, [now, now - 1000], &none).expect_err("neither is due").as_secs();
        assert!((2590..=2600).contains(&wait), "{wait} s: the first of the two");
        // After a crash, or a response that could not be sent, a version is due whenever it was verified.
        let at_once = |not_before: i64| ScrubSchedule {
            due_at_once: BTreeSet::from([b]),
            not_before: BTreeMap::from([(b, not_before)]),
        };
        assert_eq!(next(Some(a), [now, now], &at_once(now - 1)), Ok(b));
        let wait = next(Some(a), [now, now], &at_once(now + 600)).expect_err("it was just read").as_secs();
        assert!((590..=600).contains(&wait), "{wait} s");
        // A clock that was set back does not postpone it for ever.
        let only_b = BTreeMap::from([(b, now)]);
        let wait = next_due(None, &only_b, 3600, &at_once(now + 1_000_000)).expect_err("it was just read").as_secs();
        assert!((3590..=3600).contains(&wait), "{wait} s");
        assert_eq!(next_due(Some(a), &BTreeMap::new(), 3600, &none), Err(MAX_CHECK_INTERVAL));
    }

    #[test]
    fn version_with_a_verification_time_in_the_future_is_due_after_one_interval() {
        let id = VersionId(Digest::compute(b"a version"));
        let now = now_unix_seconds();
        let year = 365 * 24 * 3600;
        let due = |time: i64| next_due(None, &BTreeMap::from([(id, time)]), 3600, &ScrubSchedule::default());
        for time in [now + 1, now + year, i64::MAX] {
            let wait = due(time).expect_err("it was verified").as_secs();
            assert!((3590..=3600).contains(&wait), "{wait} s for {}", time - now);
        }
        assert_eq!(due(now - 3600), Ok(id));
        assert_eq!(due(i64::MIN / 2), Ok(id));
    }
}
