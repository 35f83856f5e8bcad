//! The queue with sites in memory. Most builds wait until the test lets them go on.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ThreadId;

use super::*;
use crate::converted_pages::{FileProspect, MarkdownState, SiteMarkdownSource};
use crate::test_versions::version_with_files;

/// A delay that no test outlasts.
const LONG_DELAY: Duration = Duration::from_hours(1);
/// Time limit for what a thread of the queue does.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A site with a version that has one page with this text.
struct TestSite {
    state: Arc<MarkdownState>,
    version: Arc<SealedVersion>,
}

impl TestSite {
    fn new(text: &str) -> TestSite {
        let site = TestSite { state: Arc::default(), version: version(text) };
        site.state.begin_version(site.version.id);
        site
    }

    fn request(&self, queue: &Arc<FileQueue>) -> FileProspect {
        self.state.request_file_from(queue, &self.version, BuildSettings::default())
    }

    fn has_file(&self) -> bool {
        self.state.file_of(&self.version).is_some()
    }

    fn replace_version(&mut self, text: &str) {
        self.version = version(text);
        self.state.begin_version(self.version.id);
    }
}

fn version(text: &str) -> Arc<SealedVersion> {
    Arc::new(version_with_files(&[("index.html", text)], 0))
}

#[track_caller]
fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < TIMEOUT, "{what}");
        std::thread::yield_now();
    }
}

/// A queue whose builds wait for this lock, and the threads that have begun one.
struct HeldQueue {
    queue: Arc<FileQueue>,
    hold: Arc<Mutex<()>>,
    threads: Arc<Mutex<HashSet<ThreadId>>>,
    builds: Arc<AtomicUsize>,
}

impl HeldQueue {
    fn new() -> HeldQueue {
        let hold = Arc::new(Mutex::new(()));
        let (threads, builds) = (Arc::new(Mutex::new(HashSet::new())), Arc::new(AtomicUsize::new(0)));
        let build: Box<BuildFile> = {
            let (hold, threads, builds) = (Arc::clone(&hold), Arc::clone(&threads), Arc::clone(&builds));
            Box::new(move |version, settings, should_stop| {
                threads.lock().insert(std::thread::current().id());
                builds.fetch_add(1, Ordering::Relaxed);
                drop(hold.lock());
                build_in_temporary_folder(version, settings, should_stop)
            })
        };
        HeldQueue { queue: Arc::new(FileQueue::new(LONG_DELAY, build)), hold, threads, builds }
    }

    fn begun(&self) -> usize {
        self.builds.load(Ordering::Relaxed)
    }
}

#[test]
fn build_that_panics_blocks_neither_its_site_nor_the_queue() {
    let calls = AtomicUsize::new(0);
    let build: Box<BuildFile> = Box::new(move |version, settings, should_stop| {
        assert!(calls.fetch_add(1, Ordering::Relaxed) > 0, "the first build panics");
        build_in_temporary_folder(version, settings, should_stop)
    });
    let queue = Arc::new(FileQueue::new(LONG_DELAY, build));
    let mut site = TestSite::new("first");
    assert_eq!(site.request(&queue), FileProspect::Pending);
    wait_until("the build ends", || site.request(&queue) == FileProspect::Failed);
    // The queue serves other sites, and this one from its next version on, before the delay is over.
    let other = TestSite::new("other");
    assert_eq!(other.request(&queue), FileProspect::Pending);
    wait_until("the file of another site is made", || other.has_file());
    assert_eq!(site.request(&queue), FileProspect::Failed);
    site.replace_version("second");
    assert_eq!(site.request(&queue), FileProspect::Pending);
    wait_until("the file of the next version is made", || site.has_file());
}

#[test]
fn failed_build_is_tried_again_by_the_first_request_after_the_delay() {
    let calls = AtomicUsize::new(0);
    let build: Box<BuildFile> = Box::new(move |version, settings, should_stop| {
        if calls.fetch_add(1, Ordering::Relaxed) < 2 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        build_in_temporary_folder(version, settings, should_stop)
    });
    let queue = Arc::new(FileQueue::new(Duration::ZERO, build));
    let site = TestSite::new("page");
    wait_until("the third build succeeds", || {
        site.request(&queue);
        site.has_file()
    });
}

#[test]
fn one_thread_makes_the_files_of_all_sites() {
    let held = HeldQueue::new();
    let sites: Vec<TestSite> = (0..12).map(|number| TestSite::new(&number.to_string())).collect();
    let hold = held.hold.lock();
    for site in &sites {
        assert_eq!(site.request(&held.queue), FileProspect::Pending);
        // A second request adds nothing.
        assert_eq!(site.request(&held.queue), FileProspect::Pending);
    }
    wait_until("the first build begins", || held.begun() == 1);
    drop(hold);
    wait_until("all files are made", || sites.iter().all(TestSite::has_file));
    assert_eq!((held.begun(), held.threads.lock().len()), (12, 1));
}

#[test]
fn site_that_finds_the_queue_full_is_served_by_a_later_request() {
    let held = HeldQueue::new();
    let sites: Vec<TestSite> = (0..MAX_WAITING_SITES + 2).map(|number| TestSite::new(&number.to_string())).collect();
    let hold = held.hold.lock();
    sites[0].request(&held.queue);
    wait_until("the first build begins", || held.begun() == 1);
    for site in &sites[1..] {
        assert_eq!(site.request(&held.queue), FileProspect::Pending);
    }
    assert_eq!(held.queue.state.lock().waiting.len(), MAX_WAITING_SITES);
    let last = sites.last().unwrap();
    assert!(!last.state.is_wanted(last.version.id), "it does not wait");
    drop(hold);
    wait_until("the file of the last site is made", || {
        last.request(&held.queue);
        last.has_file()
    });
}

#[test]
fn open_files_of_all_sites_have_a_bound() {
    let queue = Arc::new(FileQueue::new(LONG_DELAY, Box::new(build_in_temporary_folder)));
    let sites: Vec<TestSite> = (0..MAX_OPEN_FILES + 3).map(|number| TestSite::new(&number.to_string())).collect();
    for site in &sites {
        site.request(&queue);
        wait_until("its file is made", || site.has_file());
    }
    // The thread counts a file after the site has it.
    wait_until("the first files are closed", || sites[..3].iter().all(|site| !site.has_file()));
    assert!(sites[3..].iter().all(TestSite::has_file));
    sites[0].request(&queue);
    wait_until("the first file is made again", || sites[0].has_file());
    wait_until("another one is closed for it", || !sites[3].has_file());
    // A site that is gone takes no place.
    drop(sites);
    let site = TestSite::new("last");
    site.request(&queue);
    wait_until("its file is counted", || queue.state.lock().open.len() == 1);
    assert!(site.has_file());
}

#[test]
fn files_that_are_too_large_together_are_closed_except_the_last() {
    let closed = |sizes: &[u64]| {
        let open = |&bytes: &u64| OpenFile { site: Weak::new(), file: Weak::new(), bytes };
        let mut open: VecDeque<OpenFile> = sizes.iter().map(open).collect();
        take_excess(&mut open).into_iter().map(|file| file.bytes).collect::<Vec<u64>>()
    };
    let half = MAX_OPEN_BYTES / 2;
    assert!(closed(&[half, half]).is_empty());
    assert_eq!(closed(&[1, half, half]), [1]);
    assert_eq!(closed(&[1, 2, half, MAX_OPEN_BYTES]), [1, 2, half]);
    assert!(closed(&[MAX_OPEN_BYTES + 1]).is_empty());
}

#[test]
fn file_of_a_version_is_closed_when_another_is_served() {
    let queue = Arc::new(FileQueue::new(LONG_DELAY, Box::new(build_in_temporary_folder)));
    let mut site = TestSite::new("first");
    site.request(&queue);
    wait_until("the file is made", || site.has_file());
    let file = Arc::downgrade(&site.state.file_of(&site.version).unwrap());
    site.state.begin_version(site.version.id);
    assert!(site.has_file(), "the version is opened again");
    site.replace_version("second");
    wait_until("the file is closed", || file.strong_count() == 0);
}

#[test]
fn build_ends_when_its_file_is_not_needed_any_more() {
    let (begun, stopped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let build: Box<BuildFile> = {
        let (begun, stopped) = (Arc::clone(&begun), Arc::clone(&stopped));
        Box::new(move |_, _, should_stop| {
            begun.fetch_add(1, Ordering::Relaxed);
            wait_until("the build is stopped", should_stop);
            stopped.fetch_add(1, Ordering::Relaxed);
            Err(io::ErrorKind::Interrupted.into())
        })
    };
    let queue = Arc::new(FileQueue::new(LONG_DELAY, build));
    let mut site = TestSite::new("first");
    let mut check = |reason: &str, end: &dyn Fn(&mut TestSite)| {
        let number = stopped.load(Ordering::Relaxed);
        site.state.set_source(SiteMarkdownSource::OnRequest);
        wait_until("the build begins", || {
            site.request(&queue);
            begun.load(Ordering::Relaxed) > number
        });
        end(&mut site);
        wait_until(reason, || stopped.load(Ordering::Relaxed) > number);
    };
    check("another version is served", &|site| site.replace_version("second"));
    check("the program makes the file", &|site| site.state.set_source(SiteMarkdownSource::Program));
    check("the site is removed", &|site| *site = TestSite::new("another site"));
}

#[test]
fn version_that_is_opened_again_while_its_site_waits_gets_its_file() {
    let held = HeldQueue::new();
    let (first, mut site) = (TestSite::new("first"), TestSite::new("page"));
    let hold = held.hold.lock();
    first.request(&held.queue);
    site.request(&held.queue);
    site.replace_version("page");
    drop(hold);
    wait_until("the file is made", || {
        site.request(&held.queue);
        site.has_file()
    });
}
