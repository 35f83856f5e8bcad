//! Turns of connections on a serving thread. A connection that always has something to do ends its turn after
//! [`TURN`], and goes on after the thread has looked at its sockets and timers.
//!
//! Each serving thread has a queue of connections that ended a turn with work left. [`resume_in_order`] wakes one of them
//! each time the runtime has polled its I/O driver. So between two looks at sockets there is one such turn, however many
//! connections have work left, and a connection that has just come, or asks for little, is answered in between. Waking
//! the task itself (`wake_by_ref`) would not do: tokio polls woken tasks 61 times before it looks at its driver.
//!
//! Inflating is what costs most, so it has a bound for the whole thread as well ([`may_inflate`]): a thousand connections
//! that ask for one large page each would otherwise have a turn each.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// How long a connection may work before others have their turn.
pub(super) const TURN: Duration = Duration::from_millis(1);
/// The clock is read after so much work, in bytes that were handled: reading it for each answer would cost hot answers
/// one part in fifty.
const UNCHECKED: usize = 64 * 1024;
/// What an answer costs beside its bytes, in the same measure.
pub(super) const ANSWER: usize = 2048;
/// What an answer costs that was not given before: the clock is read behind each.
pub(super) const NEW_ANSWER: usize = UNCHECKED;

/// The time that is left of a connection's turn.
#[derive(Debug, Default)]
pub(super) struct TurnBudget {
    /// Work since the clock was read.
    unchecked: usize,
    begun: Option<Instant>,
}

impl TurnBudget {
    /// A turn that begins now. The clock is first read when some work has been done, so a turn with one small answer costs
    /// nothing.
    pub(super) fn new() -> TurnBudget {
        TurnBudget::default()
    }

    /// Counts work of this cost, in bytes that were handled, and says whether the turn is over.
    pub(super) fn spend(&mut self, cost: usize) -> bool {
        self.unchecked = self.unchecked.saturating_add(cost);
        if self.unchecked < UNCHECKED {
            return false;
        }
        self.unchecked = 0;
        let now = Instant::now();
        now.duration_since(*self.begun.get_or_insert(now)) >= TURN
    }
}

thread_local! {
    static THREAD: RefCell<ThreadTurns> = const { RefCell::new(ThreadTurns::new()) };
}

/// What one serving thread knows of its connections that have work left.
#[derive(Debug)]
struct ThreadTurns {
    /// Whether [`resume_in_order`] runs on this thread.
    has_resumer: bool,
    /// What wakes it; none while it is awake.
    resumer: Option<Waker>,
    /// Connections that wait for another turn, each once.
    queue: VecDeque<Waker>,
    /// The connection whose turn it is.
    chosen: Option<Waker>,
    /// Time that was spent inflating since the last one was chosen.
    inflated: Duration,
}

impl ThreadTurns {
    const fn new() -> ThreadTurns {
        ThreadTurns {
            has_resumer: false,
            resumer: None,
            queue: VecDeque::new(),
            chosen: None,
            inflated: Duration::ZERO,
        }
    }

    fn enter(&mut self, waker: &Waker) {
        if !self.queue.iter().any(|known| known.will_wake(waker)) {
            self.queue.push_back(waker.clone());
        }
        if let Some(resumer) = self.resumer.take() {
            resumer.wake();
        }
    }

    /// Whether this connection may inflate now.
    fn may_inflate(&self, waker: &Waker) -> bool {
        let is_next = match &self.chosen {
            Some(chosen) => chosen.will_wake(waker),
            None => self.queue.is_empty(),
        };
        is_next && self.inflated < TURN
    }
}

/// Ends a turn that leaves work: the task is woken again when it is its turn.
pub(super) fn end_turn(context: &Context<'_>) {
    THREAD.with_borrow_mut(|thread| {
        if thread.has_resumer {
            thread.enter(context.waker());
        } else {
            // A runtime with other threads, which look at sockets meanwhile.
            context.waker().wake_by_ref();
        }
    });
}

/// Whether the thread may inflate for this task now; if not, the task is woken when it may.
pub(super) fn may_inflate(context: &Context<'_>) -> bool {
    THREAD.with_borrow_mut(|thread| {
        let may = !thread.has_resumer || thread.may_inflate(context.waker());
        if !may {
            thread.enter(context.waker());
        }
        may
    })
}

/// Counts the time that a step of inflating took.
pub(super) fn has_inflated(time: Duration) {
    THREAD.with_borrow_mut(|thread| thread.inflated = thread.inflated.saturating_add(time));
}

/// Wakes the connections of this thread that have work left, one after each time the driver was polled. Runs on a runtime
/// with a single thread, for as long as that serves.
pub(super) async fn resume_in_order() {
    let _resumer = Resumer::new();
    loop {
        poll_fn(|context| {
            THREAD.with_borrow_mut(|thread| {
                if thread.queue.is_empty() {
                    // Whatever was asked for since then has been inflated within its bound.
                    thread.chosen = None;
                    thread.inflated = Duration::ZERO;
                    thread.resumer = Some(context.waker().clone());
                    return Poll::Pending;
                }
                Poll::Ready(())
            })
        })
        .await;
        // The runtime wakes what has yielded so after it has polled its driver.
        tokio::task::yield_now().await;
        THREAD.with_borrow_mut(|thread| {
            thread.inflated = Duration::ZERO;
            thread.chosen = thread.queue.pop_front();
            if let Some(chosen) = &thread.chosen {
                chosen.wake_by_ref();
            }
        });
    }
}

/// Says that connections are resumed in order on this thread, until it is dropped.
struct Resumer;

impl Resumer {
    fn new() -> Resumer {
        THREAD.with_borrow_mut(|thread| thread.has_resumer = true);
        Resumer
    }
}

impl Drop for Resumer {
    fn drop(&mut self) {
        THREAD.with_borrow_mut(|thread| {
            thread.has_resumer = false;
            (thread.resumer, thread.chosen) = (None, None);
            thread.queue.drain(..).for_each(Waker::wake);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use tokio::task::LocalSet;

    use super::*;

    #[test]
    fn a_turn_is_over_when_its_time_is_and_not_before_some_work_was_done() {
        let mut budget = TurnBudget::new();
        assert!(!budget.spend(UNCHECKED - 1) && budget.begun.is_none(), "the clock is not read");
        assert!(!budget.spend(1));
        let begun = budget.begun.expect("the clock was read");
        while !budget.spend(NEW_ANSWER) {
            assert!(begun.elapsed() < Duration::from_secs(10), "no turn lasts that long");
        }
        assert!(begun.elapsed() >= TURN);
    }

    /// Runs `test` on a thread like those that serve.
    fn on_serving_thread(test: impl Future<Output = ()> + 'static) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            tokio::task::spawn_local(resume_in_order());
            test.await;
        });
    }

    #[test]
    fn between_two_looks_at_sockets_there_is_one_turn_of_a_connection_that_has_work_left() {
        on_serving_thread(async {
            tokio::task::yield_now().await;
            let turns: Rc<[Cell<u32>; 5]> = Rc::default();
            for number in 0..turns.len() {
                let turns = Rc::clone(&turns);
                tokio::task::spawn_local(poll_fn(move |context| -> Poll<()> {
                    turns[number].set(turns[number].get() + 1);
                    end_turn(context);
                    Poll::Pending
                }));
            }
            for _ in 0..100 {
                // Woken once each time the driver was polled.
                tokio::task::yield_now().await;
            }
            let all: Vec<u32> = turns.iter().map(Cell::get).collect();
            // Each has had its first turn besides.
            assert!((50..=110).contains(&all.iter().sum::<u32>()), "{all:?} turns in 100 looks");
            assert!(all.iter().max().unwrap() - all.iter().min().unwrap() <= 1, "{all:?}: in order");
        });
    }

    #[test]
    fn a_thread_inflates_for_one_connection_after_another() {
        on_serving_thread(async {
            tokio::task::yield_now().await;
            let steps: Rc<[Cell<u32>; 3]> = Rc::default();
            for number in 0..steps.len() {
                let steps = Rc::clone(&steps);
                tokio::task::spawn_local(poll_fn(move |context| -> Poll<()> {
                    while may_inflate(context) {
                        steps[number].set(steps[number].get() + 1);
                        has_inflated(TURN / 2);
                    }
                    Poll::Pending
                }));
            }
            for _ in 0..60 {
                tokio::task::yield_now().await;
            }
            let all: Vec<u32> = steps.iter().map(Cell::get).collect();
            assert!(all.iter().sum::<u32>() <= 2 * 61, "{all:?}: two steps of half a turn in each of 60 looks");
            assert!(all.iter().min().unwrap() + 4 >= *all.iter().max().unwrap(), "{all:?}: in order");
            assert!(*all.iter().min().unwrap() > 10, "{all:?}");
        });
    }
}
