//! Decides the next action for an export job from its state. Pure: it uses no clock and no socket.

use std::time::Duration;

use super::responses::{ExportJob, ExportStatus};

/// Time without progress after which a job is reported as stalled.
const STALL_TIMEOUT: Duration = Duration::from_mins(2);

/// The next action after a poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportAction {
    /// Poll again after a pause.
    Poll,
    /// Request the link to the bundle.
    RequestLink,
    /// The job has failed, for this reason.
    Failed(String),
}

/// Returns the next action. Only `completed` and `failed` end a job; any other status means that it is still working.
pub fn next_action(job: &ExportJob) -> ExportAction {
    match job.status_meaning() {
        ExportStatus::Completed => ExportAction::RequestLink,
        ExportStatus::Failed => {
            ExportAction::Failed(job.error.clone().unwrap_or_else(|| "no reason was reported".to_owned()))
        }
        ExportStatus::Working(_) => ExportAction::Poll,
    }
}

/// Returns the pause after this many polls: it grows by half each time, from `first` to `max`.
pub fn poll_pause(polls: u32, first: Duration, max: Duration) -> Duration {
    first.mul_f64(1.5f64.powi(polls.min(30).cast_signed())).min(max)
}

/// Detects a job that makes no progress.
#[derive(Debug, Clone, Default)]
pub struct StallDetector {
    last_change: Option<(ExportJob, Duration)>,
    reported: bool,
}

impl StallDetector {
    /// Records a state at `elapsed` since the first poll. Returns the time without progress when it first exceeds the
    /// limit; a job is reported once until it changes.
    pub fn observe(&mut self, job: &ExportJob, elapsed: Duration) -> Option<Duration> {
        match &self.last_change {
            Some((before, since)) if before == job => {
                let unchanged = elapsed.saturating_sub(*since);
                let is_new_stall = unchanged >= STALL_TIMEOUT && !self.reported;
                self.reported |= is_new_stall;
                is_new_stall.then_some(unchanged)
            }
            _ => {
                self.last_change = Some((job.clone(), elapsed));
                self.reported = false;
                None
            }
        }
    }

    /// Returns how long the job has been unchanged.
    pub fn unchanged_for(&self, elapsed: Duration) -> Duration {
        self.last_change.as_ref().map_or(Duration::ZERO, |(_, since)| elapsed.saturating_sub(*since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(status: &str, progress: f64) -> ExportJob {
        ExportJob { status: status.into(), progress: Some(progress), page_count: None, updated_at: None, error: None }
    }

    #[test]
    fn only_completed_and_failed_end_a_job() {
        assert_eq!(next_action(&job("completed", 1.0)), ExportAction::RequestLink);
        assert!(matches!(next_action(&job("failed", 1.0)), ExportAction::Failed(_)));
        for status in ["queued", "running", "COMPLETED", "done", "error", "cancelled"] {
            assert_eq!(next_action(&job(status, 100.0)), ExportAction::Poll, "{status}");
        }
    }

    #[test]
    fn polling_slows_down_from_one_second_to_ten() {
        let pause_ms = |polls| poll_pause(polls, Duration::from_secs(1), Duration::from_secs(10)).as_millis();
        assert_eq!(
            [pause_ms(0), pause_ms(1), pause_ms(2), pause_ms(50), pause_ms(u32::MAX)],
            [1000, 1500, 2250, 10_000, 10_000]
        );
    }

    #[test]
    fn stalled_job_is_reported_once_until_it_progresses() {
        let minutes = |n| Duration::from_mins(n);
        let mut stall = StallDetector::default();
        assert_eq!(stall.observe(&job("running", 5.0), minutes(0)), None);
        assert_eq!(stall.observe(&job("running", 5.0), minutes(1)), None);
        assert_eq!(stall.observe(&job("running", 5.0), minutes(2)), Some(minutes(2)));
        assert_eq!(stall.observe(&job("running", 5.0), minutes(3)), None);
        assert_eq!(stall.observe(&job("running", 6.0), minutes(4)), None);
        assert_eq!(stall.unchanged_for(minutes(9)), minutes(5));
        assert_eq!(stall.observe(&job("running", 6.0), minutes(6)), Some(minutes(2)));
    }

    #[test]
    fn failed_job_reports_its_own_reason_if_it_has_one() {
        let failed =
            |error: Option<&str>| next_action(&ExportJob { error: error.map(str::to_owned), ..job("failed", 1.0) });
        assert_eq!(failed(Some("no pages")), ExportAction::Failed("no pages".to_owned()));
        assert_eq!(failed(None), ExportAction::Failed("no reason was reported".to_owned()));
    }

    #[test]
    fn any_changed_field_of_a_job_counts_as_progress() {
        let seconds = Duration::from_secs;
        let unchanged = ExportJob { page_count: Some(1), updated_at: Some("1".to_owned()), ..job("running", 5.0) };
        for changed in [
            ExportJob { status: "packing".to_owned(), ..unchanged.clone() },
            ExportJob { progress: None, ..unchanged.clone() },
            ExportJob { page_count: Some(2), ..unchanged.clone() },
            ExportJob { updated_at: Some("2".to_owned()), ..unchanged.clone() },
        ] {
            let mut stall = StallDetector::default();
            assert_eq!(stall.unchanged_for(seconds(9)), Duration::ZERO);
            assert_eq!((stall.observe(&unchanged, seconds(7)), stall.observe(&unchanged, seconds(126))), (None, None));
            assert_eq!(stall.observe(&changed, seconds(127)), None, "{changed:?}");
            assert_eq!(stall.unchanged_for(seconds(128)), seconds(1));
            assert_eq!(
                (stall.observe(&changed, seconds(247)), stall.observe(&changed, seconds(248))),
                (Some(seconds(120)), None)
            );
        }
        let pause_ms = |first, max| poll_pause(3, seconds(first), seconds(max)).as_millis();
        assert_eq!((pause_ms(2, 10), pause_ms(2, 5), pause_ms(20, 10)), (6750, 5000, 10_000));
    }
}
