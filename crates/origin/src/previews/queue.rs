//! Queue of deployments: those that wait, those that are being built, and the threads that build them.
//!
//! Of one branch only one deployment is built at a time, and only one waits. A request for a branch that already waits
//! gets the waiting deployment, because that builds the branch as it is when its turn comes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use docwharf_base::locks::{Condvar, Mutex, MutexGuard};

use super::super::limits::SharedResource;
use super::super::shares::{ResourcePools, ResourceShare};
use super::super::source::JobContext;
use super::rows::QueuedDeployment;

/// A deployment that is being built, with its organization's share of the builds.
#[derive(Debug)]
struct RunningBuild {
    job: QueuedDeployment,
    watch: Arc<JobContext>,
    _place: ResourceShare,
}

#[derive(Debug, Default)]
struct DeploymentQueueState {
    waiting: VecDeque<QueuedDeployment>,
    building: Vec<RunningBuild>,
    /// Value of `begun` at the last turn of each organization; one that has had no turn is absent.
    turns: HashMap<String, u64>,
    begun: u64,
    /// Number of threads that have not ended.
    threads: usize,
    is_closed: bool,
}

/// Queue of deployments, shared by requests and build threads.
#[derive(Debug)]
pub(super) struct DeploymentQueue {
    shares: Arc<ResourcePools>,
    table: Mutex<DeploymentQueueState>,
    /// Notified of each change of `table`.
    changed: Condvar,
}

/// Result of queueing a deployment.
#[derive(Debug)]
pub(super) enum EnqueueResult<E> {
    /// This deployment waits; it is an earlier one of the branch, or the new one.
    Waits(QueuedDeployment),
    /// Too many deployments wait.
    Full,
    /// The queue is closed.
    Closed,
    /// The deployment could not be written.
    Failed(E),
}

fn same(a: &QueuedDeployment, b: &QueuedDeployment) -> bool {
    a.project == b.project && a.branch == b.branch
}

impl DeploymentQueueState {
    /// Returns the position of each organization's first deployment whose branch is not being built, in the order of
    /// their turns: the organization with the fewest builds first; of several, the one whose last turn is longest ago.
    fn next(&self) -> Vec<usize> {
        let may_begin = |waits: &QueuedDeployment| !self.building.iter().any(|building| same(&building.job, waits));
        let mut first: BTreeMap<&str, usize> = BTreeMap::new();
        for (at, waits) in self.waiting.iter().enumerate().filter(|(_, waits)| may_begin(waits)) {
            first.entry(&waits.organization).or_insert(at);
        }
        let builds = |whose: &str| self.building.iter().filter(|building| building.job.organization == whose).count();
        let turn = |whose: &str| self.turns.get(whose).copied().unwrap_or(0);
        let mut order: Vec<_> = first.into_iter().map(|(whose, at)| (builds(whose), turn(whose), at)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, _, at)| at).collect()
    }
}

impl DeploymentQueue {
    pub(super) fn new(shares: Arc<ResourcePools>) -> DeploymentQueue {
        DeploymentQueue { shares, table: Mutex::default(), changed: Condvar::new() }
    }

    fn table(&self) -> MutexGuard<'_, DeploymentQueueState> {
        // No code panics in the middle of a change, so the table is consistent.
        self.table.lock()
    }

    /// Queues a deployment, after `write` has made it durable and completed it.
    pub(super) fn admit<E>(
        &self,
        wanted: QueuedDeployment,
        write: impl FnOnce(QueuedDeployment) -> Result<QueuedDeployment, E>,
    ) -> EnqueueResult<E> {
        // The lock is held during the write, so that the order here is the order on disk.
        let mut table = self.table();
        if table.is_closed {
            return EnqueueResult::Closed;
        }
        if let Some(waits) = table.waiting.iter().find(|waits| same(waits, &wanted)) {
            return EnqueueResult::Waits(waits.clone());
        }
        let own = table.waiting.iter().filter(|waits| waits.organization == wanted.organization).count();
        // An organization with a waiting deployment leaves the last place to those that have none.
        let all = table.waiting.len() + usize::from(own > 0);
        let limits = &self.shares.limits;
        let bounds = [limits.organization, limits.total].map(|limits| limits.count(SharedResource::WaitingJobs));
        if own >= bounds[0] || all >= bounds[1] {
            self.shares.pool(SharedResource::WaitingJobs).count_refusal();
            return EnqueueResult::Full;
        }
        match write(wanted) {
            Ok(written) => {
                table.waiting.push_back(written.clone());
                self.changed.notify_all();
                EnqueueResult::Waits(written)
            }
            Err(error) => EnqueueResult::Failed(error),
        }
    }

    /// Queues deployments that were waiting when the last process ended.
    pub(super) fn resume(&self, waiting: Vec<QueuedDeployment>) {
        self.table().waiting.extend(waiting);
        self.changed.notify_all();
    }

    /// Waits for a deployment that may begin; `None` once the queue is closed. Organizations take turns: the many
    /// branches of one delay the single branch of another by at most one build. An organization that is building
    /// already does not get the last free place.
    pub(super) fn next(&self) -> Option<(QueuedDeployment, Arc<JobContext>)> {
        let mut table = self.table();
        loop {
            if table.is_closed {
                return None;
            }
            let places = self.shares.pool(SharedResource::PreviewBuilds);
            let found =
                table.next().into_iter().find_map(|at| Some((at, places.take_turn(&table.waiting[at].organization)?)));
            if let Some((at, place)) = found
                && let Some(job) = table.waiting.remove(at)
            {
                let watch = Arc::new(JobContext::of(Arc::clone(&self.shares), &job.organization));
                table.begun += 1;
                let begun = table.begun;
                table.turns.insert(job.organization.clone(), begun);
                table.building.push(RunningBuild { job: job.clone(), watch: Arc::clone(&watch), _place: place });
                return Some((job, watch));
            }
            table = self.changed.wait(table);
        }
    }

    /// Removes a deployment that has ended, after its result has taken effect.
    pub(super) fn done(&self, job: &QueuedDeployment) {
        self.table().building.retain(|building| building.job.id != job.id);
        self.changed.notify_all();
    }

    /// Returns the job state of a deployment that is being built.
    pub(super) fn watch(&self, id: &str) -> Option<Arc<JobContext>> {
        let table = self.table();
        table.building.iter().find(|building| building.job.id == id).map(|building| Arc::clone(&building.watch))
    }

    /// Whether a deployment of this slug waits or is being built.
    ///
    /// Serving threads call this and must not wait for a thread that writes to the disk. So it returns true while the
    /// table is locked; the client tries again.
    pub(super) fn is_busy(&self, slug: &str) -> bool {
        let Some(table) = self.table.try_lock() else { return true };
        table.waiting.iter().chain(table.building.iter().map(|building| &building.job)).any(|job| job.slug == slug)
    }

    /// Whether the queue is closed, so that no deployment begins any more.
    pub(super) fn is_closed(&self) -> bool {
        self.table().is_closed
    }

    /// Waits for `time` or until the queue is closed; returns whether it is closed.
    pub(super) fn sleep(&self, time: Duration) -> bool {
        let table = self.table();
        self.changed.wait_timeout_while(table, time, |table| !table.is_closed).is_closed
    }

    /// Registers a thread until the returned value is dropped.
    pub(super) fn enter(self: &Arc<Self>) -> Inside {
        self.table().threads += 1;
        Inside(Arc::clone(self))
    }

    /// Closes the queue, cancels the running builds, and waits for the threads, at most `patience`.
    pub(super) fn close(&self, patience: Duration) {
        let mut table = self.table();
        table.is_closed = true;
        for building in &table.building {
            building.watch.cancel();
        }
        self.changed.notify_all();
        let deadline = Instant::now() + patience;
        while table.threads > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                tracing::warn!("a preview is still being built; the next start marks its deployment as failed");
                return;
            }
            table = self.changed.wait_timeout(table, left);
        }
    }
}

/// Registration of a thread; ends when it is dropped.
#[derive(Debug)]
pub(super) struct Inside(Arc<DeploymentQueue>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.table().threads -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::limits::OriginLimits;
    use super::*;

    fn queue(organizations: usize) -> DeploymentQueue {
        DeploymentQueue::new(ResourcePools::new(OriginLimits::default(), organizations))
    }

    fn job(organization: &str, branch: &str, id: &str) -> QueuedDeployment {
        QueuedDeployment {
            id: id.to_owned(),
            organization: organization.to_owned(),
            project: organization.to_owned(),
            branch: branch.to_owned(),
            slug: branch.to_owned(),
        }
    }

    fn admit(queue: &DeploymentQueue, job: QueuedDeployment) -> EnqueueResult<()> {
        queue.admit(job, Ok)
    }

    #[test]
    fn who_asks_for_a_branch_that_waits_gets_the_one_that_waits() {
        let queue = queue(1);
        assert!(matches!(admit(&queue, job("o", "b", "1")), EnqueueResult::Waits(job) if job.id == "1"));
        assert!(matches!(admit(&queue, job("o", "b", "2")), EnqueueResult::Waits(job) if job.id == "1"));
        // A deployment that is being built may have read the branch already.
        queue.next().unwrap();
        assert!(matches!(admit(&queue, job("o", "b", "3")), EnqueueResult::Waits(job) if job.id == "3"));
    }

    #[test]
    fn a_branch_is_built_once_at_a_time_and_others_pass_it_by() {
        let queue = queue(1);
        admit(&queue, job("o", "b", "1"));
        let (first, _) = queue.next().unwrap();
        admit(&queue, job("o", "b", "2"));
        admit(&queue, job("o", "c", "3"));
        assert_eq!(queue.next().unwrap().0.id, "3");
        assert!(queue.watch("1").is_some() && queue.watch("2").is_none() && queue.is_busy("b"));
        queue.done(&first);
        assert_eq!(queue.next().unwrap().0.id, "2");
    }

    #[test]
    fn organizations_take_turns_and_none_has_the_last_place() {
        let queue = queue(2);
        for (whose, id) in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("b", "b2")] {
            admit(&queue, job(whose, id, id));
        }
        let next = || queue.next().unwrap().0;
        let [first, second] = [next(), next()];
        assert_eq!([&*first.id, &*second.id], ["a1", "b1"]);
        queue.done(&second);
        let third = next();
        assert_eq!(third.id, "b2", "the other place is not acme's, although its turn is longer ago");
        queue.done(&third);
        assert!(queue.shares.pool(SharedResource::PreviewBuilds).take_turn("a").is_none());
        queue.done(&first);
        assert_eq!(next().id, "a2");
    }

    #[test]
    fn one_organization_cannot_fill_the_queue_for_the_others() {
        let of = |resource| (resource == SharedResource::WaitingJobs).then_some(16);
        let queue = DeploymentQueue::new(ResourcePools::new(OriginLimits::from_config(of, |_| None).unwrap(), 2));
        for n in 0..16 {
            assert!(matches!(admit(&queue, job("o", &n.to_string(), &n.to_string())), EnqueueResult::Waits(_)));
        }
        assert!(matches!(admit(&queue, job("o", "x", "x")), EnqueueResult::Full));
        assert_eq!(queue.shares.pool(SharedResource::WaitingJobs).refused(), 1);
        assert!(matches!(admit(&queue, job("p", "x", "x")), EnqueueResult::Waits(_)));
        queue.close(Duration::ZERO);
        assert!(matches!(admit(&queue, job("p", "y", "y")), EnqueueResult::Closed));
        assert!(queue.next().is_none());
    }

    #[test]
    fn the_last_place_of_all_is_for_who_has_nothing_waiting() {
        let of = |resource| (resource == SharedResource::WaitingJobs).then_some(3);
        let queue = DeploymentQueue::new(ResourcePools::new(OriginLimits::from_config(|_| None, of).unwrap(), 3));
        for (whose, id, is_admitted) in
            [("a", "a1", true), ("a", "a2", true), ("a", "a3", false), ("b", "b1", true), ("c", "c1", false)]
        {
            let admitted = admit(&queue, job(whose, id, id));
            assert_eq!(matches!(admitted, EnqueueResult::Waits(_)), is_admitted, "{id}: {admitted:?}");
            assert_eq!(matches!(admitted, EnqueueResult::Full), !is_admitted, "{id}: {admitted:?}");
        }
        assert_eq!(queue.shares.pool(SharedResource::WaitingJobs).refused(), 2);
        // A deployment that is being built does not wait any more.
        queue.next().unwrap();
        assert!(matches!(admit(&queue, job("c", "c1", "c1")), EnqueueResult::Waits(_)));
    }

    #[test]
    fn what_cannot_be_written_down_does_not_wait_and_what_waited_before_a_start_does() {
        let queue = queue(1);
        assert!(matches!(queue.admit(job("o", "b", "1"), |_| Err(7)), EnqueueResult::Failed(7)));
        assert!(!queue.is_busy("b"));
        let written =
            queue.admit(job("o", "b", "2"), |wanted| Ok::<_, ()>(QueuedDeployment { slug: "s".to_owned(), ..wanted }));
        assert!(matches!(written, EnqueueResult::Waits(job) if job.slug == "s") && queue.is_busy("s"));
        queue.resume(vec![job("o", "c", "3")]);
        let (first, watch) = queue.next().unwrap();
        assert_eq!((&*first.id, queue.next().unwrap().0.id), ("2", "3".to_owned()));
        assert!(!watch.is_over() && !queue.is_closed());
        queue.close(Duration::ZERO);
        assert!(watch.is_over() && queue.is_closed() && queue.sleep(Duration::from_mins(1)));
        queue.done(&first);
        assert!(queue.watch("2").is_none() && queue.watch("3").is_some() && !queue.is_busy("s"));
    }
}
