//! Queue of deployments: those that wait, those that are being built, and the threads that build them.
//!
//! Of one branch only one deployment is built at a time, and only one waits. A request for a branch that already waits
//! gets the waiting deployment, because that builds the branch as it is when its turn comes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use docwharf_base::locks::{Condvar, Mutex, MutexGuard};

use super::super::limits::SharedResource;
use super::super::resource_pools::{ResourcePools, ResourceShare};
use super::super::source::JobContext;
use super::rows::DeploymentRequest;

/// A deployment that is being built, with its organization's share of the builds.
#[derive(Debug)]
struct RunningBuild {
    deployment: DeploymentRequest,
    context: Arc<JobContext>,
    _build_share: ResourceShare,
}

#[derive(Debug, Default)]
struct DeploymentQueueState {
    waiting: VecDeque<DeploymentRequest>,
    building: Vec<RunningBuild>,
    /// Value of `started_builds` at the last build of each organization; an organization without a build is absent.
    last_builds: HashMap<String, u64>,
    started_builds: u64,
    /// Number of threads that have not ended.
    threads: usize,
    is_closed: bool,
}

/// Queue of deployments, shared by requests and build threads.
#[derive(Debug)]
pub(super) struct DeploymentQueue {
    pools: Arc<ResourcePools>,
    state: Mutex<DeploymentQueueState>,
    /// Notified of each change of `state`.
    changed: Condvar,
}

/// Result of queueing a deployment.
#[derive(Debug)]
pub(super) enum EnqueueResult<E> {
    /// This deployment waits; it is an earlier one of the branch, or the new one.
    Waiting(DeploymentRequest),
    /// Too many deployments wait.
    Full,
    /// The queue is closed.
    Closed,
    /// The deployment could not be written.
    Failed(E),
}

fn is_same_branch(a: &DeploymentRequest, b: &DeploymentRequest) -> bool {
    a.project == b.project && a.branch == b.branch
}

impl DeploymentQueueState {
    /// Returns the position of each organization's first deployment whose branch is not being built. The organization
    /// with the fewest running builds is first; of several, the one whose last build was started longest ago.
    fn startable(&self) -> Vec<usize> {
        let can_start = |queued: &DeploymentRequest| {
            !self.building.iter().any(|building| is_same_branch(&building.deployment, queued))
        };
        let mut first: BTreeMap<&str, usize> = BTreeMap::new();
        for (position, queued) in self.waiting.iter().enumerate().filter(|(_, queued)| can_start(queued)) {
            first.entry(&queued.organization).or_insert(position);
        }
        let builds = |organization: &str| {
            self.building.iter().filter(|building| building.deployment.organization == organization).count()
        };
        let last_build = |organization: &str| self.last_builds.get(organization).copied().unwrap_or(0);
        let mut order: Vec<_> = first
            .into_iter()
            .map(|(organization, position)| (builds(organization), last_build(organization), position))
            .collect();
        order.sort_unstable();
        order.into_iter().map(|(_, _, position)| position).collect()
    }
}

impl DeploymentQueue {
    pub(super) fn new(pools: Arc<ResourcePools>) -> DeploymentQueue {
        DeploymentQueue { pools, state: Mutex::default(), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, DeploymentQueueState> {
        // No code panics in the middle of a change, so the state is consistent.
        self.state.lock()
    }

    /// Queues a deployment, after `write` has stored it; `write` returns it with its slug.
    pub(super) fn enqueue<E>(
        &self,
        deployment: DeploymentRequest,
        write: impl FnOnce(DeploymentRequest) -> Result<DeploymentRequest, E>,
    ) -> EnqueueResult<E> {
        // The lock is held during the write, so that the order in memory is the order on disk.
        let mut state = self.state();
        if state.is_closed {
            return EnqueueResult::Closed;
        }
        if let Some(queued) = state.waiting.iter().find(|queued| is_same_branch(queued, &deployment)) {
            return EnqueueResult::Waiting(queued.clone());
        }
        let own = state.waiting.iter().filter(|queued| queued.organization == deployment.organization).count();
        // An organization with a waiting deployment leaves the last place in the queue to organizations without one.
        let all = state.waiting.len() + usize::from(own > 0);
        let limits = &self.pools.limits;
        let [own_limit, total_limit] =
            [limits.organization, limits.total].map(|limits| limits.count(SharedResource::WaitingJobs));
        if own >= own_limit || all >= total_limit {
            self.pools.pool(SharedResource::WaitingJobs).count_refusal();
            return EnqueueResult::Full;
        }
        match write(deployment) {
            Ok(written) => {
                state.waiting.push_back(written.clone());
                self.changed.notify_all();
                EnqueueResult::Waiting(written)
            }
            Err(error) => EnqueueResult::Failed(error),
        }
    }

    /// Queues deployments that were waiting when the last process ended.
    pub(super) fn resume(&self, waiting: Vec<DeploymentRequest>) {
        self.state().waiting.extend(waiting);
        self.changed.notify_all();
    }

    /// Waits for a deployment that can start; `None` once the queue is closed. Organizations take turns: the many
    /// branches of one delay the single branch of another by at most one build. Where there are several organizations,
    /// one that is building already does not get the last free build.
    pub(super) fn next_deployment(&self) -> Option<(DeploymentRequest, Arc<JobContext>)> {
        let mut state = self.state();
        loop {
            if state.is_closed {
                return None;
            }
            let builds = self.pools.pool(SharedResource::PreviewBuilds);
            let found = state.startable().into_iter().find_map(|position| {
                Some((position, builds.acquire_from_queue(&state.waiting[position].organization)?))
            });
            if let Some((position, share)) = found
                && let Some(deployment) = state.waiting.remove(position)
            {
                let context = Arc::new(JobContext::with_shares(Arc::clone(&self.pools), &deployment.organization));
                state.started_builds += 1;
                let started_builds = state.started_builds;
                state.last_builds.insert(deployment.organization.clone(), started_builds);
                state.building.push(RunningBuild {
                    deployment: deployment.clone(),
                    context: Arc::clone(&context),
                    _build_share: share,
                });
                return Some((deployment, context));
            }
            state = self.changed.wait(state);
        }
    }

    /// Removes a deployment that has ended, after its result has taken effect.
    pub(super) fn remove_ended(&self, deployment: &DeploymentRequest) {
        self.state().building.retain(|building| building.deployment.id != deployment.id);
        self.changed.notify_all();
    }

    /// Returns the [`JobContext`] of a deployment that is being built.
    pub(super) fn build_context(&self, id: &str) -> Option<Arc<JobContext>> {
        let state = self.state();
        state
            .building
            .iter()
            .find(|building| building.deployment.id == id)
            .map(|building| Arc::clone(&building.context))
    }

    /// Whether a deployment of this slug waits or is being built.
    ///
    /// Serving threads call this and must not wait for a thread that writes to the disk. So it returns true while the
    /// state is locked; the client tries again.
    pub(super) fn is_busy(&self, slug: &str) -> bool {
        let Some(state) = self.state.try_lock() else { return true };
        state
            .waiting
            .iter()
            .chain(state.building.iter().map(|building| &building.deployment))
            .any(|deployment| deployment.slug == slug)
    }

    /// Whether the queue is closed, so that no deployment starts any more.
    pub(super) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Waits for `time` or until the queue is closed; returns whether it is closed.
    pub(super) fn wait_or_closed(&self, time: Duration) -> bool {
        let state = self.state();
        self.changed.wait_timeout_while(state, time, |state| !state.is_closed).is_closed
    }

    /// Registers a thread until the returned value is dropped.
    pub(super) fn register_thread(self: &Arc<Self>) -> ThreadRegistration {
        self.state().threads += 1;
        ThreadRegistration(Arc::clone(self))
    }

    /// Closes the queue, cancels the running builds, and waits for the threads, at most `timeout`.
    pub(super) fn close(&self, timeout: Duration) {
        let mut state = self.state();
        state.is_closed = true;
        for building in &state.building {
            building.context.cancel();
        }
        self.changed.notify_all();
        let deadline = Instant::now() + timeout;
        while state.threads > 0 {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                tracing::warn!("a preview is still being built; the next start marks its deployment as failed");
                return;
            }
            state = self.changed.wait_timeout(state, remaining);
        }
    }
}

/// Registration of a thread; ends when it is dropped.
#[derive(Debug)]
pub(super) struct ThreadRegistration(Arc<DeploymentQueue>);

impl Drop for ThreadRegistration {
    fn drop(&mut self) {
        self.0.state().threads -= 1;
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

    fn deployment(organization: &str, branch: &str, id: &str) -> DeploymentRequest {
        DeploymentRequest {
            id: id.to_owned(),
            organization: organization.to_owned(),
            project: organization.to_owned(),
            branch: branch.to_owned(),
            slug: branch.to_owned(),
        }
    }

    fn enqueue(queue: &DeploymentQueue, deployment: DeploymentRequest) -> EnqueueResult<()> {
        queue.enqueue(deployment, Ok)
    }

    #[test]
    fn a_second_request_for_a_queued_branch_returns_the_queued_deployment() {
        let queue = queue(1);
        assert!(
            matches!(enqueue(&queue, deployment("o", "b", "1")), EnqueueResult::Waiting(queued) if queued.id == "1")
        );
        assert!(
            matches!(enqueue(&queue, deployment("o", "b", "2")), EnqueueResult::Waiting(queued) if queued.id == "1")
        );
        // A deployment that is being built may have read the branch already.
        queue.next_deployment().unwrap();
        assert!(
            matches!(enqueue(&queue, deployment("o", "b", "3")), EnqueueResult::Waiting(queued) if queued.id == "3")
        );
    }

    #[test]
    fn a_branch_has_at_most_one_running_build_and_does_not_block_other_branches() {
        let queue = queue(1);
        enqueue(&queue, deployment("o", "b", "1"));
        let (first, _) = queue.next_deployment().unwrap();
        enqueue(&queue, deployment("o", "b", "2"));
        enqueue(&queue, deployment("o", "c", "3"));
        assert_eq!(queue.next_deployment().unwrap().0.id, "3");
        assert!(queue.build_context("1").is_some() && queue.build_context("2").is_none() && queue.is_busy("b"));
        queue.remove_ended(&first);
        assert_eq!(queue.next_deployment().unwrap().0.id, "2");
    }

    // Regression: previews were built in the order of their deployments, so one organization delayed the previews of
    // another.
    #[test]
    fn preview_builds_alternate_between_organizations_and_one_slot_stays_reserved() {
        let queue = queue(2);
        for (organization, id) in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("b", "b2")] {
            enqueue(&queue, deployment(organization, id, id));
        }
        let next = || queue.next_deployment().unwrap().0;
        let [first, second] = [next(), next()];
        assert_eq!([&*first.id, &*second.id], ["a1", "b1"]);
        queue.remove_ended(&second);
        let third = next();
        assert_eq!(third.id, "b2", "`a` does not get the other build, although its last build was started longer ago");
        queue.remove_ended(&third);
        assert!(queue.pools.pool(SharedResource::PreviewBuilds).acquire_from_queue("a").is_none());
        queue.remove_ended(&first);
        assert_eq!(next().id, "a2");
    }

    #[test]
    fn one_organization_cannot_fill_the_queue_for_the_others() {
        let limit = |resource| (resource == SharedResource::WaitingJobs).then_some(16);
        let queue = DeploymentQueue::new(ResourcePools::new(OriginLimits::from_config(limit, |_| None).unwrap(), 2));
        for n in 0..16 {
            assert!(matches!(
                enqueue(&queue, deployment("o", &n.to_string(), &n.to_string())),
                EnqueueResult::Waiting(_)
            ));
        }
        assert!(matches!(enqueue(&queue, deployment("o", "x", "x")), EnqueueResult::Full));
        assert_eq!(queue.pools.pool(SharedResource::WaitingJobs).refusals(), 1);
        assert!(matches!(enqueue(&queue, deployment("p", "x", "x")), EnqueueResult::Waiting(_)));
        queue.close(Duration::ZERO);
        assert!(matches!(enqueue(&queue, deployment("p", "y", "y")), EnqueueResult::Closed));
        assert!(queue.next_deployment().is_none());
    }

    #[test]
    fn the_last_queue_slot_is_reserved_for_an_organization_without_queued_deployments() {
        let limit = |resource| (resource == SharedResource::WaitingJobs).then_some(3);
        let queue = DeploymentQueue::new(ResourcePools::new(OriginLimits::from_config(|_| None, limit).unwrap(), 3));
        for (organization, id, is_enqueued) in
            [("a", "a1", true), ("a", "a2", true), ("a", "a3", false), ("b", "b1", true), ("c", "c1", false)]
        {
            let result = enqueue(&queue, deployment(organization, id, id));
            assert_eq!(matches!(result, EnqueueResult::Waiting(_)), is_enqueued, "{id}: {result:?}");
            assert_eq!(matches!(result, EnqueueResult::Full), !is_enqueued, "{id}: {result:?}");
        }
        assert_eq!(queue.pools.pool(SharedResource::WaitingJobs).refusals(), 2);
        // A deployment that is being built does not count as waiting.
        queue.next_deployment().unwrap();
        assert!(matches!(enqueue(&queue, deployment("c", "c1", "c1")), EnqueueResult::Waiting(_)));
    }

    #[test]
    fn deployments_that_cannot_be_stored_are_not_queued_and_queued_ones_are_resumed() {
        let queue = queue(1);
        assert!(matches!(queue.enqueue(deployment("o", "b", "1"), |_| Err(7)), EnqueueResult::Failed(7)));
        assert!(!queue.is_busy("b"));
        let written = queue.enqueue(deployment("o", "b", "2"), |deployment| {
            Ok::<_, ()>(DeploymentRequest { slug: "s".to_owned(), ..deployment })
        });
        assert!(matches!(written, EnqueueResult::Waiting(queued) if queued.slug == "s") && queue.is_busy("s"));
        queue.resume(vec![deployment("o", "c", "3")]);
        let (first, context) = queue.next_deployment().unwrap();
        assert_eq!((&*first.id, queue.next_deployment().unwrap().0.id), ("2", "3".to_owned()));
        assert!(!context.is_cancelled() && !queue.is_closed());
        queue.close(Duration::ZERO);
        assert!(context.is_cancelled() && queue.is_closed() && queue.wait_or_closed(Duration::from_mins(1)));
        queue.remove_ended(&first);
        assert!(queue.build_context("2").is_none() && queue.build_context("3").is_some() && !queue.is_busy("s"));
    }
}
