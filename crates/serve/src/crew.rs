//! Threads that serve, one a core, each with a runtime of its own: a connection stays on the thread that it was given to, so
//! that its requests, its fields and what it allocates never leave that core's caches, and nobody steals work from anybody.
//! The first also accepts, and gives each connection to the thread that has the fewest.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use docwharf_base::{cores, runtime};

use super::pulse::Pulse;
use super::reclaim;
use super::turn;

/// More threads than this serve nobody: the kernel's part of a request is larger than ours.
const MOST: usize = 64;

/// Tasks that a serving thread polls before it looks at its sockets and timers again; tokio's default is 61. A turn may take
/// [`turn::TURN`], so fewer tasks bound how long a new connection waits. Looking costs a system call, so not after each task.
const POLLED_BETWEEN_LOOKS: u32 = 16;

/// Threads for work that blocks, all together; the runtime's own default.
const BLOCKING: usize = 512;

/// Where connections are served.
#[derive(Debug, Clone)]
pub(super) struct Crew(Arc<[Member]>);

#[derive(Debug)]
struct Member {
    handle: Handle,
    /// Connections that it has.
    load: Arc<AtomicUsize>,
}

/// What a connection weighs on whom it was given to.
#[derive(Debug)]
pub(super) struct Load(Arc<AtomicUsize>);

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Ends the threads when it is dropped.
#[derive(Debug)]
pub(super) struct Hired {
    _ends: Vec<oneshot::Sender<()>>,
}

impl Crew {
    /// The runtime of the caller alone.
    pub(super) fn here() -> Crew {
        Crew([Member { handle: Handle::current(), load: Arc::default() }].into())
    }

    /// A thread for each core that this process may use. Each beats.
    pub(super) fn hire(pulse: &Arc<Pulse>) -> io::Result<(Crew, Hired)> {
        let count = cores::count().min(MOST);
        let (mut members, mut ends) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for number in 0..count {
            // As many for work that blocks as one runtime for all would have.
            let blocking = (BLOCKING / count).max(1);
            let mut builder = Builder::new_current_thread();
            builder.max_blocking_threads(blocking).event_interval(POLLED_BETWEEN_LOOKS);
            let runtime = runtime::build(&mut builder)?;
            let (end, ended) = oneshot::channel::<()>();
            members.push(Member { handle: runtime.handle().clone(), load: Arc::default() });
            ends.push(end);
            let pulse = Arc::clone(pulse);
            let work = move || {
                runtime.block_on(async {
                    tokio::spawn(turn::resume_in_order());
                    // Whoever could say that it is over has gone: that says it, too.
                    let _ = pulse.heart().beside(ended).await;
                });
                // What is left was cut.
                runtime.shutdown_background();
            };
            thread::Builder::new().name(format!("serve-{number}")).spawn(work)?;
        }
        let crew = Crew(members.into());
        if let Some(first) = crew.0.first() {
            first.handle.spawn(reclaim::give_back(crew.clone()));
        }
        Ok((crew, Hired { _ends: ends }))
    }

    /// Has the first of them do this, and waits for it.
    pub(super) async fn first<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<T> {
        self.0[0].handle.spawn(work).await.map_err(io::Error::other)
    }

    /// Connections that all of them have.
    pub(super) fn connections(&self) -> usize {
        self.0.iter().map(|member| member.load.load(Ordering::Relaxed)).sum()
    }

    /// Who gets the next connection, and the weight of it; nobody if it is the caller, the first of them.
    pub(super) fn next(&self) -> (Option<&Handle>, Load) {
        let (at, least) = self
            .0
            .iter()
            .enumerate()
            .min_by_key(|(_, member)| member.load.load(Ordering::Relaxed))
            .unwrap_or((0, &self.0[0]));
        least.load.fetch_add(1, Ordering::Relaxed);
        ((at > 0).then_some(&least.handle), Load(Arc::clone(&least.load)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_is_given_to_who_has_the_fewest_and_weighs_until_it_is_gone() {
        let member = || Member { handle: Handle::current(), load: Arc::default() };
        let crew = Crew([member(), member(), member()].into());
        let loads = || -> Vec<usize> { crew.0.iter().map(|member| member.load.load(Ordering::Relaxed)).collect() };
        let mut all: Vec<Load> = Vec::new();
        for (is_other, expected) in [(false, [1, 0, 0]), (true, [1, 1, 0]), (true, [1, 1, 1]), (false, [2, 1, 1])] {
            let (to, load) = crew.next();
            assert_eq!((to.is_some(), loads()), (is_other, expected.to_vec()));
            all.push(load);
        }
        assert_eq!(crew.connections(), 4);
        drop(all.remove(2));
        assert_eq!((loads(), crew.connections()), (vec![2, 1, 0], 3));
        let (to, load) = crew.next();
        assert_eq!((to.is_some(), loads()), (true, vec![2, 1, 1]));
        drop((load, all));
        assert_eq!((loads(), crew.connections()), (vec![0, 0, 0], 0));
        let here = Crew::here();
        assert!(here.next().0.is_none(), "there is nobody else");
        assert_eq!(crew.first(async { 7 }).await.unwrap(), 7);
    }
}
