//! The state of ask: the settings in force, the limits, and the counts of outcomes.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;
use docwharf_base::clock::now_unix_seconds;
use docwharf_base::locks::Mutex;

use crate::assistant_settings::AskSettings;
use crate::outcome_counts::OutcomeCounts;
use crate::request_rate::RequestRate;

use super::chat_client::{ChatEndpoint, ChatFailure};
use super::statistics::AskOutcome;

/// The seconds of a day.
const DAY_SECONDS: i64 = 86_400;

/// Settings with which questions are answered, and the client that is made from them.
#[derive(Debug)]
pub(crate) struct AskInForce {
    pub(crate) settings: AskSettings,
    pub(crate) endpoint: ChatEndpoint,
}

/// The state of ask of a site. The settings can be replaced at any time; a question keeps those that were in force when
/// it began. The counts stay.
#[derive(Debug, Default)]
pub(crate) struct AskState {
    in_force: ArcSwapOption<AskInForce>,
    client_rate: RequestRate,
    day: Mutex<QuestionDay>,
    /// The number of questions that are being answered.
    running: AtomicUsize,
    counts: OutcomeCounts<AskOutcome>,
    /// Whether the last answer failed, so that a further failure is not logged.
    has_logged_failure: AtomicBool,
}

/// The number of questions on a day.
#[derive(Debug, Default)]
struct QuestionDay {
    /// The day, in days since 1970 (UTC).
    day: i64,
    questions: u32,
}

impl QuestionDay {
    /// Counts a question at this time, in seconds since 1970. With an error, the day has had `max` of them already; it
    /// is the number of seconds until the next one.
    fn allow(&mut self, max: u32, now: i64) -> Result<(), u32> {
        let day = now.div_euclid(DAY_SECONDS);
        if self.day != day {
            *self = QuestionDay { day, questions: 0 };
        }
        if self.questions >= max {
            return Err(u32::try_from(DAY_SECONDS - now.rem_euclid(DAY_SECONDS)).unwrap_or(u32::MAX));
        }
        self.questions += 1;
        Ok(())
    }
}

impl AskState {
    /// Replaces the settings; with `None`, no questions are answered.
    pub(crate) fn set_settings(&self, settings: Option<&AskSettings>) {
        self.in_force.store(settings.map(|settings| {
            Arc::new(AskInForce { settings: settings.clone(), endpoint: ChatEndpoint::new(settings) })
        }));
        self.has_logged_failure.store(false, Ordering::Relaxed);
    }

    /// Returns the settings in force; `None` if no questions are answered.
    pub(crate) fn in_force(&self) -> Option<Arc<AskInForce>> {
        self.in_force.load_full()
    }

    /// Returns whether questions are answered.
    pub(crate) fn is_enabled(&self) -> bool {
        self.in_force.load().is_some()
    }

    /// Returns whether a client has no question left in this minute. It counts nothing.
    pub(crate) fn is_client_limited(&self, client: IpAddr, per_minute: u32) -> bool {
        self.client_rate.is_used_up_now(client, per_minute)
    }

    /// Counts a question of a client; returns false if it has sent too many.
    pub(crate) fn allows_client(&self, client: IpAddr, per_minute: u32) -> bool {
        self.client_rate.allow_now(client, per_minute)
    }

    /// Counts a question of the day. The error is the number of seconds after which one is allowed again.
    pub(crate) fn allows_today(&self, per_day: u32) -> Result<(), u32> {
        self.day.lock().allow(per_day, now_unix_seconds())
    }

    /// Begins to answer a question; `None` if `parallel` questions are being answered already.
    pub(crate) fn start_question(self: &Arc<Self>, parallel: usize) -> Option<RunningQuestion> {
        let add = |running: usize| (running < parallel).then_some(running + 1);
        self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(RunningQuestion { state: Arc::clone(self), outcome: AskOutcome::Cancelled })
    }

    /// Counts a question that was refused.
    pub(crate) fn count(&self, outcome: AskOutcome) {
        self.counts.count(outcome);
    }

    /// Returns the counts of questions.
    pub(crate) fn counts(&self) -> &OutcomeCounts<AskOutcome> {
        &self.counts
    }

    /// Logs why the endpoint has failed, unless the question before has failed, too.
    fn log_failure(&self, failure: &ChatFailure) {
        if !self.has_logged_failure.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a question was not answered: the endpoint {failure}; check assistant.baseUrl, model and keyFile, and \
                 the log of the endpoint. Further failures are not logged until a question is answered"
            );
        }
    }
}

/// A question that is being answered. It counts until it is dropped; without another outcome, the reader has
/// disconnected.
#[derive(Debug)]
pub(crate) struct RunningQuestion {
    state: Arc<AskState>,
    outcome: AskOutcome,
}

impl RunningQuestion {
    /// Sets how the question has ended.
    pub(crate) fn finish(&mut self, outcome: AskOutcome) {
        self.outcome = outcome;
        if outcome == AskOutcome::Answered {
            self.state.has_logged_failure.store(false, Ordering::Relaxed);
        }
    }

    /// Sets that the endpoint has failed, and logs it.
    pub(crate) fn fail(&mut self, failure: &ChatFailure) {
        let is_timeout = *failure == ChatFailure::TimedOut;
        self.outcome = if is_timeout { AskOutcome::TimedOut } else { AskOutcome::EndpointFailed };
        self.state.log_failure(failure);
    }
}

impl Drop for RunningQuestion {
    fn drop(&mut self) {
        self.state.running.fetch_sub(1, Ordering::Relaxed);
        self.state.counts.count(self.outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_questions_of_a_day_are_bounded_and_the_next_day_begins_at_midnight() {
        let (mut count, noon) = (QuestionDay::default(), 20_000 * DAY_SECONDS + DAY_SECONDS / 2);
        assert_eq!([count.allow(2, noon), count.allow(2, noon + 1)], [Ok(()); 2]);
        assert_eq!(count.allow(2, noon + 2), Err(DAY_SECONDS as u32 / 2 - 2));
        assert_eq!(count.allow(3, noon + 2), Ok(()), "the limit was raised");
        assert_eq!(count.allow(3, noon + DAY_SECONDS / 2 - 1), Err(1));
        assert_eq!(count.allow(3, noon + DAY_SECONDS / 2), Ok(()));
    }

    #[test]
    fn questions_count_until_they_are_dropped_and_have_one_outcome() {
        let state = Arc::<AskState>::default();
        let mut first = state.start_question(2).unwrap();
        let second = state.start_question(2).unwrap();
        assert!(state.start_question(2).is_none() && state.start_question(1).is_none());
        drop(second);
        first.finish(AskOutcome::Answered);
        assert!(state.start_question(2).is_some());
        drop(first);
        let mut failed = state.start_question(1).unwrap();
        failed.fail(&ChatFailure::TimedOut);
        drop(failed);
        let mut failed = state.start_question(1).unwrap();
        failed.fail(&ChatFailure::Status(401));
        drop(failed);
        let counts = [AskOutcome::Answered, AskOutcome::Cancelled, AskOutcome::TimedOut, AskOutcome::EndpointFailed];
        assert_eq!(counts.map(|outcome| state.counts().get(outcome)), [1, 2, 1, 1]);
    }
}
