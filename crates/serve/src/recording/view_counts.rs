//! The counts of page views since they were last taken, in several parts: each thread counts in its own part, so that
//! threads do not wait for each other.

use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use docwharf_base::locks::Mutex;
use docwharf_base::model::reader_activity::{DayActivity, ViewCounts, VisitorClass};
use docwharf_site::lookup::reader_path;
use docwharf_site::sealed_version::SealedVersion;

/// The number of parts. If there are more threads than parts, several threads share one.
const PARTS: usize = 16;
/// The maximum number of distinct referring hosts, and of distinct paths that do not exist, of a part between two
/// takings. All others count as [`OTHER_KEY`].
const MAX_PART_TEXTS: usize = 250;
/// The longest path that does not exist and is counted under itself, in bytes.
const MAX_NOT_FOUND_PATH_BYTES: usize = 512;
/// The longest referring host that is counted under itself, in bytes: that of a domain name (RFC 1035, section 2.3.4).
const MAX_HOST_BYTES: usize = 255;
/// The key of everything beyond a bound.
pub(super) const OTHER_KEY: &str = "(other)";

thread_local! {
    /// The part of this thread; `None` before its first view.
    static PART: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The views of pages, counted by all threads.
#[derive(Debug, Default)]
pub(super) struct ViewCounters {
    parts: [Mutex<CounterPart>; PARTS],
}

/// The counts of one day while one version is served, and finished ones of other days and versions.
#[derive(Debug, Default)]
struct CounterPart {
    /// The day, in days since 1970.
    day: i64,
    /// The version whose files `pages` counts.
    version: Option<Arc<SealedVersion>>,
    pages: HashMap<usize, PageCounts>,
    referrers: HashMap<Box<str>, u64>,
    not_found: HashMap<Box<str>, u64>,
    agents: HashMap<Arc<str>, u64>,
    /// The counts before the day or the version changed.
    finished: Vec<DayActivity>,
}

/// The counts of a page.
#[derive(Debug, Clone, Copy, Default)]
struct PageCounts {
    views: ViewCounts,
    entries: u64,
}

/// A view of a page.
#[derive(Debug)]
pub(super) struct PageView<'a> {
    /// The file of the page.
    pub(super) file: usize,
    pub(super) class: VisitorClass,
    /// Whether a person begins a visit with it.
    pub(super) is_entry: bool,
    /// The host whose page led a person here.
    pub(super) referrer: Option<&'a str>,
    /// The name of the program; `None` for a person.
    pub(super) agent: Option<&'a Arc<str>>,
}

impl ViewCounters {
    /// Counts a view of a page of `version` on this day.
    pub(super) fn count_view(&self, day: i64, base_path: &str, version: &Arc<SealedVersion>, view: &PageView<'_>) {
        self.with_part(|part| {
            part.prepare(day, base_path, Some(version));
            let counts = part.pages.entry(view.file).or_default();
            counts.views.add_view(view.class);
            counts.entries += u64::from(view.is_entry);
            if let Some(host) = view.referrer {
                count_text(&mut part.referrers, host, MAX_HOST_BYTES);
            }
            if let Some(agent) = view.agent {
                // The classifier has a bounded number of names.
                *part.agents.entry(Arc::clone(agent)).or_default() += 1;
            }
        });
    }

    /// Counts a request of a person for a path that does not exist.
    pub(super) fn count_not_found(&self, day: i64, base_path: &str, path: &str) {
        self.with_part(|part| {
            part.prepare(day, base_path, None);
            count_text(&mut part.not_found, path, MAX_NOT_FOUND_PATH_BYTES);
        });
    }

    /// Returns the counts since the last call by day, and begins again.
    pub(super) fn take(&self, base_path: &str) -> Vec<DayActivity> {
        let mut days: Vec<DayActivity> = Vec::new();
        for part in &self.parts {
            let mut part = std::mem::take(&mut *part.lock());
            part.finish(base_path);
            for activity in part.finished {
                merge_day(&mut days, activity);
            }
        }
        days.sort_unstable_by_key(|activity| activity.day);
        days
    }

    fn with_part(&self, count: impl FnOnce(&mut CounterPart)) {
        static NEXT_PART: AtomicUsize = AtomicUsize::new(0);
        let index = PART.get().unwrap_or_else(|| {
            let index = NEXT_PART.fetch_add(1, Ordering::Relaxed) % PARTS;
            PART.set(Some(index));
            index
        });
        count(&mut self.parts[index].lock());
    }
}

impl CounterPart {
    /// Finishes the counts of another day or version.
    fn prepare(&mut self, day: i64, base_path: &str, version: Option<&Arc<SealedVersion>>) {
        let is_other_version = |current: &Arc<SealedVersion>| version.is_some_and(|new| !Arc::ptr_eq(current, new));
        if self.day != day || self.version.as_ref().is_some_and(is_other_version) {
            self.finish(base_path);
            self.day = day;
        }
        if let (None, Some(version)) = (&self.version, version) {
            self.version = Some(Arc::clone(version));
        }
    }

    /// Moves the counts to `finished`, with the paths of pages instead of their files.
    fn finish(&mut self, base_path: &str) {
        let mut activity = DayActivity {
            day: self.day,
            referrers: drain_texts(&mut self.referrers),
            not_found: drain_texts(&mut self.not_found),
            agents: self.agents.drain().map(|(name, count)| (name.to_string(), count)).collect(),
            ..DayActivity::default()
        };
        if let Some(version) = self.version.take() {
            let path = |file: usize| reader_path(&*version, base_path, version.index().path(file));
            self.pages.retain(|&file, _| file < version.index().len());
            let pages: Vec<(String, PageCounts)> =
                self.pages.drain().map(|(file, counts)| (path(file), counts)).collect();
            let entries = pages.iter().filter(|(_, counts)| counts.entries > 0);
            merge(&mut activity.entries, entries.map(|(path, counts)| (path.clone(), counts.entries)), add_count);
            merge(&mut activity.views, pages.into_iter().map(|(path, counts)| (path, counts.views)), add_views);
        }
        if activity != (DayActivity { day: self.day, ..DayActivity::default() }) {
            merge_day(&mut self.finished, activity);
        }
    }
}

/// Counts a text under itself, or under [`OTHER_KEY`] if it is too long or the map has too many.
fn count_text(counts: &mut HashMap<Box<str>, u64>, text: &str, max_bytes: usize) {
    if let Some(count) = counts.get_mut(text) {
        *count += 1;
        return;
    }
    let key = if text.len() <= max_bytes && counts.len() < MAX_PART_TEXTS { text } else { OTHER_KEY };
    *counts.entry(key.into()).or_default() += 1;
}

fn drain_texts(counts: &mut HashMap<Box<str>, u64>) -> Vec<(String, u64)> {
    counts.drain().map(|(text, count)| (text.into(), count)).collect()
}

/// Adds the counts of a day to those of the same day in `days`.
fn merge_day(days: &mut Vec<DayActivity>, activity: DayActivity) {
    let Some(same_day) = days.iter_mut().find(|other| other.day == activity.day) else { return days.push(activity) };
    merge(&mut same_day.views, activity.views, add_views);
    merge(&mut same_day.entries, activity.entries, add_count);
    merge(&mut same_day.referrers, activity.referrers, add_count);
    merge(&mut same_day.not_found, activity.not_found, add_count);
    merge(&mut same_day.agents, activity.agents, add_count);
}

fn add_views(sum: &mut ViewCounts, counts: ViewCounts) {
    sum.human += counts.human;
    sum.ai += counts.ai;
    sum.bot += counts.bot;
}

fn add_count(sum: &mut u64, count: u64) {
    *sum += count;
}

/// Adds the values of `added` to those of the same keys in `list`.
fn merge<K: Hash + Eq, V>(list: &mut Vec<(K, V)>, added: impl IntoIterator<Item = (K, V)>, add: impl Fn(&mut V, V)) {
    let mut sums: HashMap<K, V> = list.drain(..).collect();
    for (key, value) in added {
        match sums.entry(key) {
            Entry::Occupied(mut entry) => add(entry.get_mut(), value),
            Entry::Vacant(entry) => drop(entry.insert(value)),
        }
    }
    list.extend(sums);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_versions::version_with_files;

    fn version(files: &[(&str, &str)]) -> Arc<SealedVersion> {
        Arc::new(version_with_files(files, 0))
    }

    fn human_view(file: usize) -> PageView<'static> {
        PageView { file, class: VisitorClass::Human, is_entry: false, referrer: None, agent: None }
    }

    fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
        list.sort();
        list
    }

    #[test]
    fn views_of_several_threads_and_versions_are_added_up_by_path_and_day() {
        let counters = ViewCounters::default();
        let (old, new) = (version(&[("a.html", "a"), ("b.html", "b")]), version(&[("b.html", "b")]));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    counters.count_view(7, "/", &old, &human_view(0));
                    counters.count_view(7, "/", &old, &human_view(1));
                    counters.count_view(7, "/", &new, &human_view(0));
                    counters.count_view(8, "/", &new, &human_view(0));
                });
            }
        });
        let days = counters.take("/");
        let views = |day: &DayActivity| {
            sorted(day.views.iter().map(|(path, counts)| (path.clone(), counts.human)).collect::<Vec<_>>())
        };
        assert_eq!(days.iter().map(|day| day.day).collect::<Vec<_>>(), [7, 8]);
        assert_eq!(views(&days[0]), [("/a".to_owned(), 4), ("/b".to_owned(), 8)]);
        assert_eq!(views(&days[1]), [("/b".to_owned(), 4)]);
        assert!(counters.take("/").is_empty());
    }

    #[test]
    fn entries_referrers_and_agents_are_counted_beside_the_views() {
        let counters = ViewCounters::default();
        let version = version(&[("index.html", "a")]);
        let agent: Arc<str> = "GPTBot".into();
        let entry = PageView { is_entry: true, referrer: Some("search.example"), ..human_view(0) };
        let ai = PageView { class: VisitorClass::Ai, agent: Some(&agent), ..human_view(0) };
        for view in [&entry, &entry, &ai] {
            counters.count_view(1, "/docs/", &version, view);
        }
        let [day] = counters.take("/docs/").try_into().expect("one day");
        assert_eq!(day.views, [("/docs/".to_owned(), ViewCounts { human: 2, ai: 1, bot: 0 })]);
        assert_eq!(day.entries, [("/docs/".to_owned(), 2)]);
        assert_eq!(day.referrers, [("search.example".to_owned(), 2)]);
        assert_eq!(day.agents, [("GPTBot".to_owned(), 1)]);
    }

    #[test]
    fn a_flood_of_not_found_paths_and_referrers_takes_bounded_memory_and_is_counted() {
        let counters = ViewCounters::default();
        let version = version(&[("a.html", "a")]);
        for n in 0..10 * MAX_PART_TEXTS {
            counters.count_not_found(1, "/", &format!("/{n}"));
            let host = format!("{n}.example");
            counters.count_view(1, "/", &version, &PageView { referrer: Some(&host), ..human_view(0) });
        }
        counters.count_not_found(1, "/", &"/a".repeat(MAX_NOT_FOUND_PATH_BYTES));
        counters.count_not_found(1, "/", "/1");
        let [day] = counters.take("/").try_into().expect("one day");
        let count = |list: &[(String, u64)], key: &str| list.iter().find(|(text, _)| text == key).map(|(_, n)| *n);
        assert_eq!((day.not_found.len(), day.referrers.len()), (MAX_PART_TEXTS + 1, MAX_PART_TEXTS + 1));
        assert_eq!(count(&day.not_found, "/1"), Some(2));
        assert_eq!(count(&day.not_found, OTHER_KEY), Some(9 * MAX_PART_TEXTS as u64 + 1));
        assert_eq!(count(&day.referrers, OTHER_KEY), Some(9 * MAX_PART_TEXTS as u64));
    }

    #[test]
    fn counters_hold_no_replaced_version_after_they_were_taken() {
        let counters = ViewCounters::default();
        let version = version(&[("a.html", "a")]);
        counters.count_view(1, "/", &version, &human_view(0));
        assert_eq!(Arc::strong_count(&version), 2);
        counters.take("/");
        assert_eq!(Arc::strong_count(&version), 1);
    }
}
