//! Fair scheduling of the connections of a serving thread. A connection that always has work ends its turn after
//! [`MAX_TURN`], and continues after the thread has checked its sockets and timers.
//!
//! Each serving thread has a queue of connections that ended a turn with work left. [`resume_queued`] wakes one of them
//! each time the runtime has polled its I/O driver. So between two polls of the driver there is exactly one such turn,
//! and a connection that is new or has little work is served in between. Waking the task itself (`wake_by_ref`) is not
//! enough: tokio polls many woken tasks before it polls its driver (61 by default).
//!
//! Inflating is the most expensive work, so it also has a limit per thread ([`may_inflate`]). Otherwise a thousand
//! connections that each request one large file would each inflate for a whole turn.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The longest time that a connection works before other connections get their turn.
pub(super) const MAX_TURN: Duration = Duration::from_millis(1);
/// The work, in bytes handled, after which the clock is read. Reading it at each response would make cached responses
/// two per cent slower.
const CLOCK_CHECK_COST: usize = 64 * 1024;
/// The fixed cost of a response besides its bytes, in bytes handled.
pub(super) const RESPONSE_COST: usize = 2048;
/// The fixed cost of a response that was not cached, in bytes handled. It makes the clock be read after each of them.
pub(super) const UNCACHED_RESPONSE_COST: usize = CLOCK_CHECK_COST;

/// Measures whether a connection's turn is over.
#[derive(Debug, Default)]
pub(super) struct TurnBudget {
    /// Work since the clock was last read, in bytes handled.
    unchecked: usize,
    /// When the clock was first read in this turn.
    started_at: Option<Instant>,
}

impl TurnBudget {
    /// Starts a turn. The clock is first read after some work, so a turn with one small response does not read it.
    pub(super) fn new() -> TurnBudget {
        TurnBudget::default()
    }

    /// Adds work of this cost, in bytes handled, and returns whether the turn is over.
    pub(super) fn spend(&mut self, cost: usize) -> bool {
        self.unchecked = self.unchecked.saturating_add(cost);
        if self.unchecked < CLOCK_CHECK_COST {
            return false;
        }
        self.unchecked = 0;
        let now = Instant::now();
        now.duration_since(*self.started_at.get_or_insert(now)) >= MAX_TURN
    }
}

thread_local! {
    static THREAD_TURNS: RefCell<ThreadTurns> = const { RefCell::new(ThreadTurns::new()) };
}

/// The state of one serving thread: its connections with work left, and how much it has inflated.
#[derive(Debug)]
struct ThreadTurns {
    /// Whether [`resume_queued`] runs on this thread.
    has_resumer: bool,
    /// Wakes [`resume_queued`]; `None` while that task is awake.
    resumer: Option<Waker>,
    /// The connections that wait for another turn, each once.
    queue: VecDeque<Waker>,
    /// The connection whose turn it is.
    current: Option<Waker>,
    /// The time spent inflating since the turn of `current` began.
    inflated: Duration,
}

impl ThreadTurns {
    const fn new() -> ThreadTurns {
        ThreadTurns {
            has_resumer: false,
            resumer: None,
            queue: VecDeque::new(),
            current: None,
            inflated: Duration::ZERO,
        }
    }

    fn enqueue(&mut self, waker: &Waker) {
        if !self.queue.iter().any(|queued| queued.will_wake(waker)) {
            self.queue.push_back(waker.clone());
        }
        if let Some(resumer) = self.resumer.take() {
            resumer.wake();
        }
    }

    /// Returns whether the connection of this waker may inflate now.
    fn may_inflate(&self, waker: &Waker) -> bool {
        let is_next = match &self.current {
            Some(current) => current.will_wake(waker),
            None => self.queue.is_empty(),
        };
        is_next && self.inflated < MAX_TURN
    }
}

/// Ends a turn with work left: the task is woken when its next turn comes.
pub(super) fn end_turn(context: &Context<'_>) {
    THREAD_TURNS.with_borrow_mut(|thread| {
        if thread.has_resumer {
            thread.enqueue(context.waker());
        } else {
            // On a runtime with several threads, another thread polls the driver meanwhile.
            context.waker().wake_by_ref();
        }
    });
}

/// Returns whether this task may inflate now; if not, the task is woken when it may.
pub(super) fn may_inflate(context: &Context<'_>) -> bool {
    THREAD_TURNS.with_borrow_mut(|thread| {
        let is_allowed = !thread.has_resumer || thread.may_inflate(context.waker());
        if !is_allowed {
            thread.enqueue(context.waker());
        }
        is_allowed
    })
}

/// Adds the time that one step of inflating took.
pub(super) fn add_inflate_time(time: Duration) {
    THREAD_TURNS.with_borrow_mut(|thread| thread.inflated = thread.inflated.saturating_add(time));
}

/// Wakes the connections of this thread that have work left, one after each poll of the I/O driver. Runs on a
/// single-threaded runtime until that ends.
pub(super) async fn resume_queued() {
    let _resumer = Resumer::new();
    loop {
        poll_fn(|context| {
            THREAD_TURNS.with_borrow_mut(|thread| {
                if thread.queue.is_empty() {
                    // No connection waits, so the inflate time is counted from zero.
                    thread.current = None;
                    thread.inflated = Duration::ZERO;
                    thread.resumer = Some(context.waker().clone());
                    return Poll::Pending;
                }
                Poll::Ready(())
            })
        })
        .await;
        // The runtime wakes a task that has yielded in this way only after it has polled its driver.
        tokio::task::yield_now().await;
        THREAD_TURNS.with_borrow_mut(|thread| {
            thread.inflated = Duration::ZERO;
            thread.current = thread.queue.pop_front();
            if let Some(current) = &thread.current {
                current.wake_by_ref();
            }
        });
    }
}

/// Marks the thread as one on which [`resume_queued`] runs, until it is dropped.
struct Resumer;

impl Resumer {
    fn new() -> Resumer {
        THREAD_TURNS.with_borrow_mut(|thread| thread.has_resumer = true);
        Resumer
    }
}

impl Drop for Resumer {
    fn drop(&mut self) {
        THREAD_TURNS.with_borrow_mut(|thread| {
            thread.has_resumer = false;
            (thread.resumer, thread.current) = (None, None);
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
    fn turn_ends_after_its_time_limit_and_reads_the_clock_only_after_some_work() {
        let mut budget = TurnBudget::new();
        assert!(!budget.spend(CLOCK_CHECK_COST - 1) && budget.started_at.is_none(), "the clock is not read");
        assert!(!budget.spend(1));
        let started_at = budget.started_at.expect("the clock was read");
        while !budget.spend(UNCACHED_RESPONSE_COST) {
            assert!(started_at.elapsed() < Duration::from_secs(10), "a turn is shorter");
        }
        assert!(started_at.elapsed() >= MAX_TURN);
    }

    /// Runs `test` on a thread that is set up as a serving thread.
    fn on_serving_thread(test: impl Future<Output = ()> + 'static) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            tokio::task::spawn_local(resume_queued());
            test.await;
        });
    }

    #[test]
    fn each_poll_of_the_io_driver_is_followed_by_one_turn_of_a_queued_connection() {
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
                // Returns once per poll of the driver.
                tokio::task::yield_now().await;
            }
            let counts: Vec<u32> = turns.iter().map(Cell::get).collect();
            // Each connection also had its first turn.
            assert!((50..=110).contains(&counts.iter().sum::<u32>()), "{counts:?} turns in 100 polls of the driver");
            assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}: in order");
        });
    }

    #[test]
    fn connections_of_a_thread_inflate_in_turn_within_a_shared_time_limit() {
        on_serving_thread(async {
            tokio::task::yield_now().await;
            let steps: Rc<[Cell<u32>; 3]> = Rc::default();
            for number in 0..steps.len() {
                let steps = Rc::clone(&steps);
                tokio::task::spawn_local(poll_fn(move |context| -> Poll<()> {
                    while may_inflate(context) {
                        steps[number].set(steps[number].get() + 1);
                        add_inflate_time(MAX_TURN / 2);
                    }
                    Poll::Pending
                }));
            }
            for _ in 0..60 {
                tokio::task::yield_now().await;
            }
            let counts: Vec<u32> = steps.iter().map(Cell::get).collect();
            assert!(counts.iter().sum::<u32>() <= 2 * 61, "{counts:?}: two steps of half a turn in each of 60 polls");
            assert!(counts.iter().min().unwrap() + 4 >= *counts.iter().max().unwrap(), "{counts:?}: in order");
            assert!(*counts.iter().min().unwrap() > 10, "{counts:?}");
        });
    }

    /// A waker that does nothing, and differs from all others.
    struct InertWaker;

    impl std::task::Wake for InertWaker {
        fn wake(self: std::sync::Arc<Self>) {}
    }

    #[test]
    fn connection_is_queued_once_and_inflates_only_during_its_turn() {
        // Clones of one waker, unlike the waker itself, are sure to have the same table of functions.
        let wakers = [0, 1].map(|_| Waker::from(std::sync::Arc::new(InertWaker)).clone());
        let mut thread = ThreadTurns::new();
        assert!(thread.may_inflate(&wakers[0]), "no other connection waits");
        for index in [0, 1, 0, 0, 1] {
            thread.enqueue(&wakers[index]);
        }
        assert_eq!(thread.queue.len(), 2);
        assert!(!thread.may_inflate(&wakers[0]) && !thread.may_inflate(&wakers[1]), "others were first");
        thread.current = thread.queue.pop_front();
        assert!(thread.may_inflate(&wakers[0]) && !thread.may_inflate(&wakers[1]));
        thread.inflated = MAX_TURN;
        assert!(!thread.may_inflate(&wakers[0]), "its time is over");
    }
}
