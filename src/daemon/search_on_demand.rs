//! The search index of a site without a store: it is built at the first search, never before, in a temporary folder
//! that is removed as soon as the index is open.
//!
//! If another version is served after that, its index is built at once, because the site is searched. Until it is open,
//! the previous one answers. Sites that share an [`IndexPool`] have bounds together.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use docwharf_base::backoff;
use docwharf_base::child_network::ChildNetwork;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::locks::Mutex;
use docwharf_base::model::units::{format_count, format_size};
use docwharf_base::model::version::VersionId;
use docwharf_search::index::SearchIndex;
use docwharf_serve::Site;

use super::build_product::BuildProduct;
use super::index_process::{IndexProgress, IndexTask, build_in_process};
use super::index_settings::IndexSettings;
use super::temporary_folder::TemporaryFolder;

/// Interval between checks whether to continue.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// The longest time that a stop waits for a build to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// The maximum number of open indexes of a pool. Each needs a few megabytes of memory.
const MAX_POOL_INDEXES: usize = 32;
/// The maximum size of the open indexes of a pool together, in bytes; one index may be larger. Their files have no name
/// any more, but take disk space.
const MAX_POOL_BYTES: u64 = 1 << 30;

/// Bounds what the indexes of several sites take together: one of them is built at a time, and if too many are open, or
/// they are too large, those that were opened first are closed. The next search in such a site builds its index again.
#[derive(Debug, Default)]
#[cfg_attr(not(feature = "origin"), allow(dead_code))] // only previews of an origin have a pool
pub(super) struct IndexPool {
    /// Locked while an index is built.
    build: Mutex<()>,
    /// The open indexes with their sizes in bytes, in the order in which they were opened.
    open: Mutex<VecDeque<(Weak<OnDemandBuilder>, u64)>>,
}

impl IndexPool {
    /// Adds an index that was opened, and closes others beyond the bounds.
    fn add(&self, builder: &Arc<OnDemandBuilder>, bytes: u64) {
        let excess = {
            let mut open = self.open.lock();
            open.retain(|(other, _)| other.strong_count() > 0 && !std::ptr::eq(other.as_ptr(), Arc::as_ptr(builder)));
            open.push_back((Arc::downgrade(builder), bytes));
            let mut total: u64 = open.iter().map(|(_, bytes)| bytes).sum();
            let mut excess = Vec::new();
            while open.len() > 1 && (open.len() > MAX_POOL_INDEXES || total > MAX_POOL_BYTES) {
                let Some((first, bytes)) = open.pop_front() else { break };
                total -= bytes;
                excess.extend(first.upgrade());
            }
            excess
        };
        for builder in excess {
            OnDemandIndex(builder).close();
        }
    }
}

/// The search index of a site, built at the first search.
#[derive(Debug, Clone)]
pub struct OnDemandIndex(Arc<OnDemandBuilder>);

#[derive(Debug)]
struct OnDemandBuilder {
    /// The site. It owns the action that starts this builder; a strong reference would keep both for ever.
    site: Weak<Site>,
    settings: IndexSettings,
    /// The network of the index process.
    network: ChildNetwork,
    /// The folder for temporary folders; `None` for that of the system.
    folder: Option<PathBuf>,
    pool: Option<Arc<IndexPool>>,
    state: Mutex<BuilderState>,
}

#[derive(Debug, Default)]
struct BuilderState {
    /// The served version, and its image.
    version: Option<(VersionId, File)>,
    /// Whether there was a search.
    is_used: bool,
    /// Whether a thread builds an index.
    is_running: bool,
    is_stopped: bool,
    /// The number of builds in a row that failed.
    failures: u32,
}

/// The next step of the thread that builds indexes.
enum NextStep {
    /// Build the index of the version that is served now.
    BuildAgain,
    /// Wait until there is a search again, after this time.
    WaitForSearch(Duration),
    /// The index of the served version is open, or the builder is not needed any more.
    End,
}

impl OnDemandIndex {
    /// Creates the index of a site, for which no version was set yet. `network` is that of the index process.
    pub fn new(site: &Arc<Site>, settings: IndexSettings, network: ChildNetwork) -> OnDemandIndex {
        let (site, state) = (Arc::downgrade(site), Mutex::default());
        OnDemandIndex(Arc::new(OnDemandBuilder { site, settings, network, folder: None, pool: None, state }))
    }

    /// Creates the index of a site like [`OnDemandIndex::new`], with temporary folders in `folder` and within the
    /// bounds of `pool`.
    #[cfg(feature = "origin")]
    pub(super) fn in_pool(
        site: &Arc<Site>,
        settings: IndexSettings,
        network: ChildNetwork,
        folder: PathBuf,
        pool: Arc<IndexPool>,
    ) -> OnDemandIndex {
        let (site, state) = (Arc::downgrade(site), Mutex::default());
        let (folder, pool) = (Some(folder), Some(pool));
        OnDemandIndex(Arc::new(OnDemandBuilder { site, settings, network, folder, pool, state }))
    }

    /// Must be called after the version `id` was set, with its image. Builds its index now if the site is searched,
    /// else at the first search.
    pub fn update_version(&self, id: VersionId, image: File) {
        let is_used = {
            let mut state = self.0.state.lock();
            state.version = Some((id, image));
            state.failures = 0;
            state.is_used
        };
        if is_used { self.start() } else { self.wait_for_search() }
    }

    /// Ends a build in progress, so that its folder is removed.
    pub fn stop(&self) {
        self.0.state.lock().is_stopped = true;
        let deadline = Instant::now() + STOP_TIMEOUT;
        while self.0.state.lock().is_running && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Closes the index; the next search builds it again.
    fn close(&self) {
        let Some(site) = self.0.site.upgrade() else { return };
        self.0.state.lock().is_used = false;
        site.set_search_index(None);
        self.wait_for_search();
    }

    /// Builds the index at the next search.
    fn wait_for_search(&self) {
        let this = self.clone();
        if let Some(site) = self.0.site.upgrade() {
            site.on_first_search(Box::new(move || this.start()));
        }
    }

    /// Starts a thread that builds the index, unless one runs.
    fn start(&self) {
        {
            let mut state = self.0.state.lock();
            state.is_used = true;
            if state.is_running || state.is_stopped {
                return;
            }
            state.is_running = true;
        }
        let this = self.clone();
        let started = thread::Builder::new().name("docwharf-search".to_owned()).spawn(move || this.run());
        if let Err(error) = started {
            tracing::error!("cannot start a thread for the search index: {error}");
            self.0.state.lock().is_running = false;
            self.wait_for_search();
        }
    }

    /// Builds indexes until none is needed. It is the function of the thread.
    fn run(&self) {
        loop {
            match OnDemandBuilder::build_and_open(&self.0) {
                NextStep::BuildAgain => {}
                NextStep::WaitForSearch(delay) => {
                    if !self.0.sleep(delay) {
                        // Another version, which may not have the fault.
                        continue;
                    }
                    self.0.state.lock().is_running = false;
                    return self.wait_for_search();
                }
                NextStep::End => return,
            }
        }
    }
}

impl OnDemandBuilder {
    /// Whether the index of the version `id` is still to be built.
    fn is_needed(&self, id: VersionId) -> bool {
        let state = self.state.lock();
        let is_current = state.version.as_ref().is_some_and(|(current, _)| *current == id);
        is_current && !state.is_stopped && self.site.strong_count() > 0
    }

    /// Sleeps, unless the process stops or another version is served. Returns whether the version is still the same.
    fn sleep(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        let version = |state: &BuilderState| state.version.as_ref().map(|(id, _)| *id);
        let before = version(&self.state.lock());
        while Instant::now() < deadline {
            let state = self.state.lock();
            if state.is_stopped || self.site.strong_count() == 0 {
                return true;
            }
            if version(&state) != before {
                return false;
            }
            drop(state);
            thread::sleep(POLL_INTERVAL);
        }
        true
    }

    fn build_and_open(self: &Arc<Self>) -> NextStep {
        let built = {
            let _turn = self.pool.as_ref().map(|pool| pool.build.lock());
            self.build_current()
        };
        let Some(site) = self.site.upgrade() else { return NextStep::End };
        match built {
            Ok((id, index)) => {
                let bytes = index.bytes();
                site.set_search_index(Some(Arc::new(index)));
                if let Some(pool) = &self.pool {
                    pool.add(self, bytes);
                }
                let mut state = self.state.lock();
                let is_current = state.version.as_ref().is_some_and(|(current, _)| *current == id);
                // Under the lock: a version that is set later finds that no thread runs.
                state.is_running = !is_current && !state.is_stopped;
                if state.is_running { NextStep::BuildAgain } else { NextStep::End }
            }
            // Another version is served meanwhile, or the process stops.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                let mut state = self.state.lock();
                state.is_running = !state.is_stopped;
                if state.is_running { NextStep::BuildAgain } else { NextStep::End }
            }
            Err(error) => {
                tracing::warn!("cannot build the search index: {}; a later search tries again", ErrorChain(&error));
                site.set_search_building(false);
                let mut state = self.state.lock();
                state.failures += 1;
                NextStep::WaitForSearch(backoff::wait_after_failures(state.failures))
            }
        }
    }

    /// Builds and opens the index of the served version. `Interrupted` if it is not needed any more.
    fn build_current(&self) -> io::Result<(VersionId, SearchIndex)> {
        let (id, image) = {
            let state = self.state.lock();
            let (id, image) = state.version.as_ref().ok_or(io::ErrorKind::NotFound)?;
            (*id, image.try_clone()?)
        };
        let version = self.site.upgrade().and_then(|site| site.served_version());
        // Another version was set; `update_version` is called with it next.
        let Some(version) = version.filter(|version| version.id == id) else {
            thread::sleep(POLL_INTERVAL);
            return Err(io::ErrorKind::Interrupted.into());
        };
        let started = Instant::now();
        let folder = TemporaryFolder::create(self.folder.as_deref())?;
        let (settings, network) = (&self.settings, self.network);
        let product = BuildProduct::SearchIndex;
        let task = IndexTask { version: &version, image, settings, product, is_background: true, network };
        let report = build_in_process(task, folder.directory(), &mut |_: IndexProgress| {
            if self.is_needed(id) { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
        })?;
        let index = SearchIndex::open(folder.directory(), id).map_err(io::Error::other)?;
        tracing::info!(
            "the search index has {} with {} ({}); it took {} ms",
            format_count(report.build.pages, "page"),
            format_count(report.build.sections, "section"),
            format_size(report.build.bytes),
            started.elapsed().as_millis()
        );
        Ok((id, index))
    }
}

#[cfg(all(test, feature = "origin"))]
mod tests {
    use super::*;
    use docwharf_serve::SiteSettings;
    use docwharf_site::lookup::AddressSettings;

    /// The index of a site that has been searched. Its site stays as long as the first part.
    fn searched_site(pool: &Arc<IndexPool>) -> (Arc<Site>, OnDemandIndex) {
        let site = Site::new(SiteSettings::default());
        let settings = IndexSettings::new(AddressSettings::default(), Vec::new());
        let (network, folder) = (ChildNetwork::Inherited, PathBuf::from("/nowhere"));
        let search = OnDemandIndex::in_pool(&site, settings, network, folder, Arc::clone(pool));
        search.0.state.lock().is_used = true;
        (site, search)
    }

    /// For each site, whether its index is open: a closed one waits for a search.
    fn open_indexes(sites: &[(Arc<Site>, OnDemandIndex)]) -> Vec<bool> {
        sites.iter().map(|(_, search)| search.0.state.lock().is_used).collect()
    }

    #[test]
    fn the_open_indexes_of_a_pool_are_bounded_in_number_and_bytes() {
        let pool = Arc::new(IndexPool::default());
        let sites: Vec<_> = (0..MAX_POOL_INDEXES + 2).map(|_| searched_site(&pool)).collect();
        for (_, search) in &sites {
            pool.add(&search.0, 1);
        }
        let open = open_indexes(&sites);
        assert_eq!(open[..2], [false, false], "those that were opened first are closed");
        assert!(open[2..].iter().all(|&is_open| is_open), "{open:?}");
        // An index that is built again is the last one, and counts once.
        pool.add(&sites[2].1.0, MAX_POOL_BYTES - 30);
        let open = open_indexes(&sites);
        assert_eq!(open[2..5], [true, false, true], "one byte too many");
        sites[3].1.0.state.lock().is_used = true;
        pool.add(&sites[3].1.0, MAX_POOL_BYTES + 1);
        let open = open_indexes(&sites);
        assert_eq!(open.iter().filter(|&&is_open| is_open).count(), 1, "one index may be larger than the bound");
    }

    #[test]
    fn a_removed_site_leaves_its_place_in_the_pool() {
        let pool = Arc::new(IndexPool::default());
        let kept = searched_site(&pool);
        pool.add(&kept.1.0, 1);
        for _ in 0..MAX_POOL_INDEXES * 2 {
            let (_site, search) = searched_site(&pool);
            pool.add(&search.0, MAX_POOL_BYTES - 1);
        }
        assert!(kept.1.0.state.lock().is_used);
        assert!(pool.open.lock().len() <= 2);
    }
}
