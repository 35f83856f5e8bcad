//! The searches to which a click may refer, in memory. Pure: callers pass the times.
//!
//! A search is remembered for half an hour under its id, or under a hash of its term if it has no id, together with its
//! row in the database. A row gets the number of its batch when it is written. Until then the searches of a write are
//! remembered without it, and [`RecentSearches::set_batch`] or [`RecentSearches::remove_from`] ends the write.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use super::planned_write::MAX_BATCH_SEARCHES;
use docwharf_base::model::reader_activity::SearchId;

/// The time for which a search is remembered, in milliseconds.
const MAX_CLICK_DELAY_MS: u64 = 30 * 60 * 1000;
/// The largest number of searches that are remembered. Beyond it the oldest is removed. They take 8 MB.
const MAX_RECENT_SEARCHES: usize = 65_536;

/// The name by which a click refers to a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum SearchKey {
    /// The id that a client chose. It is unique.
    Id(SearchId),
    /// A hash of the term of a search on the search page; see [`RecentSearches::term_key`]. Several searches may have
    /// the same term.
    Term(u64),
}

/// The row of a search in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowKey {
    /// The time of the search, in milliseconds since 1970.
    pub(super) time: i64,
    /// The number of its batch; `None` while the batch is being written.
    pub(super) batch: Option<i64>,
    /// The place in its batch; in the whole write while it is being written.
    pub(super) place: i64,
}

#[derive(Debug, Clone, Copy)]
struct RecentSearch {
    key: SearchKey,
    row: RowKey,
    /// The number of the newest earlier search with the same term that has no click yet.
    previous: Option<u64>,
    is_clicked: bool,
}

/// The searches of the last half hour.
#[derive(Debug, Default)]
pub(super) struct RecentSearches {
    /// The searches in the order in which they were remembered, numbered from `first_number` on.
    searches: VecDeque<RecentSearch>,
    first_number: u64,
    /// The number of the search with an id, or of the newest search with a term that has no click yet.
    numbers: HashMap<SearchKey, u64>,
    /// Has a random key, so that a client cannot choose terms with equal hashes.
    term_hasher: RandomState,
}

impl RecentSearches {
    /// Returns the key of a folded term. The text itself would take much more memory.
    pub(super) fn term_key(&self, term: &str) -> SearchKey {
        SearchKey::Term(self.term_hasher.hash_one(term))
    }

    /// Returns the number that the next search gets. With it, a write begins.
    pub(super) fn next_number(&self) -> u64 {
        self.first_number + self.searches.len() as u64
    }

    /// Remembers a search whose batch is not written yet. Returns whether it counts: a search with the id of one that
    /// is remembered already was sent twice.
    pub(super) fn remember(&mut self, key: SearchKey, time: i64, place: i64) -> bool {
        let number = self.next_number();
        let previous = self.numbers.get(&key).copied();
        if matches!(key, SearchKey::Id(_)) && previous.is_some_and(|previous| self.is_recent(previous, time)) {
            return false;
        }
        if self.searches.len() >= MAX_RECENT_SEARCHES {
            self.remove_oldest();
        }
        let row = RowKey { time, batch: None, place };
        self.searches.push_back(RecentSearch { key, row, previous, is_clicked: false });
        self.numbers.insert(key, number);
        true
    }

    /// Marks the search to which a click refers as clicked, and returns its row. `None` if it is not remembered, or has
    /// been clicked before.
    pub(super) fn click(&mut self, key: SearchKey, time: i64) -> Option<RowKey> {
        let number = *self.numbers.get(&key)?;
        if !self.is_recent(number, time) {
            return None;
        }
        let search = self.search_mut(number)?;
        if search.is_clicked {
            return None;
        }
        search.is_clicked = true;
        let (row, previous) = (search.row, search.previous);
        // An id stays known until the search is removed, so that a repetition of the search is noticed.
        if matches!(key, SearchKey::Term(_)) {
            self.set_number(key, previous);
        }
        Some(row)
    }

    /// Sets the batches of the searches from number `first` on, whose places continue over all of them: their write has
    /// succeeded. `first_batch` is the number of the first one.
    pub(super) fn set_batch(&mut self, first: u64, first_batch: i64) {
        let skipped = usize::try_from(first.saturating_sub(self.first_number)).unwrap_or(usize::MAX);
        let batch_len = (MAX_BATCH_SEARCHES as u64).cast_signed();
        for search in self.searches.iter_mut().skip(skipped) {
            search.row.batch = Some(first_batch + search.row.place / batch_len);
            search.row.place %= batch_len;
        }
    }

    /// Removes the searches from number `first` on: their write has failed. Earlier searches that were clicked stay
    /// clicked, so these clicks are lost.
    pub(super) fn remove_from(&mut self, first: u64) {
        while self.next_number() > first
            && let Some(search) = self.searches.pop_back()
        {
            // It had this number.
            let number = self.next_number();
            if self.numbers.get(&search.key) == Some(&number) {
                self.set_number(search.key, search.previous);
            }
        }
    }

    /// Removes all searches that are older than half an hour.
    pub(super) fn expire(&mut self, now: i64) {
        while self.searches.front().is_some_and(|search| !is_near(search.row.time, now)) {
            self.remove_oldest();
        }
    }

    /// Removes all searches before number `first`, because their rows are gone.
    pub(super) fn remove_until(&mut self, first: u64) {
        while self.first_number < first && !self.searches.is_empty() {
            self.remove_oldest();
        }
    }

    fn remove_oldest(&mut self) {
        if let Some(search) = self.searches.pop_front() {
            if self.numbers.get(&search.key) == Some(&self.first_number) {
                self.numbers.remove(&search.key);
            }
            self.first_number += 1;
        }
    }

    /// Makes `number` the one that a click with this key refers to, if that search is still remembered.
    fn set_number(&mut self, key: SearchKey, number: Option<u64>) {
        match number.filter(|number| *number >= self.first_number) {
            Some(number) => self.numbers.insert(key, number),
            None => self.numbers.remove(&key),
        };
    }

    fn is_recent(&self, number: u64, time: i64) -> bool {
        let index = number.checked_sub(self.first_number).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| self.searches.get(index)).is_some_and(|search| is_near(search.row.time, time))
    }

    fn search_mut(&mut self, number: u64) -> Option<&mut RecentSearch> {
        self.searches.get_mut(usize::try_from(number.checked_sub(self.first_number)?).ok()?)
    }
}

/// Returns whether a click at `time` may refer to a search at `search_time`. A clock that was set back makes a search
/// later than its click; if it was set back far, the times have no meaning.
fn is_near(search_time: i64, time: i64) -> bool {
    search_time.abs_diff(time) <= MAX_CLICK_DELAY_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF_HOUR: i64 = 30 * 60 * 1000;

    fn id(number: u64) -> SearchKey {
        SearchKey::Id(SearchId(number))
    }

    fn row(time: i64, batch: i64, place: i64) -> RowKey {
        RowKey { time, batch: Some(batch), place }
    }

    /// Remembers the searches of one write.
    fn write(recent: &mut RecentSearches, batch: i64, searches: &[(SearchKey, i64)]) {
        let first = recent.next_number();
        for (place, (key, time)) in searches.iter().enumerate() {
            assert!(recent.remember(*key, *time, i64::try_from(place).unwrap()));
        }
        recent.set_batch(first, batch);
    }

    #[test]
    fn the_first_click_within_half_an_hour_finds_the_row_of_its_search() {
        let mut recent = RecentSearches::default();
        write(&mut recent, 3, &[(id(1), 1_000), (id(2), 1_000), (id(3), 1_000), (id(4), 1_000)]);
        assert_eq!(recent.click(id(2), 1_000), Some(row(1_000, 3, 1)));
        assert_eq!(recent.click(id(2), 1_001), None, "a search is clicked once");
        assert_eq!(recent.click(id(9), 1_001), None, "a search that nobody sent");
        assert_eq!(recent.click(id(3), 1_000 + HALF_HOUR), Some(row(1_000, 3, 2)));
        assert_eq!(recent.click(id(4), 1_001 + HALF_HOUR), None, "half an hour is over");
        assert_eq!(recent.click(id(1), 400), Some(row(1_000, 3, 0)), "the clock was set back a little");
    }

    #[test]
    fn a_search_that_is_sent_twice_counts_once_while_it_is_remembered() {
        let mut recent = RecentSearches::default();
        write(&mut recent, 1, &[(id(1), 0)]);
        assert!(!recent.remember(id(1), 5, 0));
        assert_eq!(recent.click(id(1), 5), Some(row(0, 1, 0)));
        assert!(!recent.remember(id(1), 6, 0), "also after it was clicked");
        assert!(recent.remember(id(1), HALF_HOUR + 1, 0));
    }

    #[test]
    fn a_click_on_the_search_page_refers_to_the_newest_search_with_its_term_that_has_no_click() {
        let mut recent = RecentSearches::default();
        let (install, deploy) = (recent.term_key("install"), recent.term_key("deploy"));
        assert_ne!(install, deploy);
        write(&mut recent, 1, &[(install, 1), (deploy, 2), (install, 3)]);
        write(&mut recent, 2, &[(install, 4)]);
        assert_eq!(recent.click(install, 5), Some(row(4, 2, 0)));
        write(&mut recent, 3, &[(install, 6)]);
        assert_eq!(recent.click(install, 7), Some(row(6, 3, 0)));
        assert_eq!(recent.click(install, 8), Some(row(3, 1, 2)));
        assert_eq!(recent.click(install, 9), Some(row(1, 1, 0)));
        assert_eq!(recent.click(install, 10), None);
        assert_eq!(recent.click(deploy, HALF_HOUR + 3), None);
    }

    #[test]
    fn searches_of_a_failed_write_are_removed_and_earlier_ones_stay() {
        let mut recent = RecentSearches::default();
        let term = recent.term_key("term");
        write(&mut recent, 1, &[(term, 1), (id(1), 1)]);
        let first = recent.next_number();
        assert!(recent.remember(term, 2, 0) && recent.remember(id(2), 2, 1) && recent.remember(term, 2, 2));
        assert_eq!(recent.click(term, 2), Some(RowKey { time: 2, batch: None, place: 2 }));
        recent.remove_from(first);
        assert_eq!(recent.next_number(), first);
        assert_eq!(recent.click(id(2), 3), None);
        assert_eq!(recent.click(term, 3), Some(row(1, 1, 0)));
        assert_eq!(recent.click(id(1), 3), Some(row(1, 1, 1)));
        assert!(recent.remember(id(2), 3, 0), "it was never counted");
    }

    #[test]
    fn a_failed_write_of_more_searches_than_are_remembered_leaves_none() {
        let mut recent = RecentSearches::default();
        let term = recent.term_key("term");
        write(&mut recent, 1, &[(term, 1)]);
        let first = recent.next_number();
        for place in 0..=MAX_RECENT_SEARCHES {
            assert!(recent.remember(term, 2, i64::try_from(place).unwrap()));
        }
        recent.remove_from(first);
        assert_eq!(recent.click(term, 2), None);
        assert!(recent.searches.is_empty() && recent.numbers.is_empty());
        write(&mut recent, 2, &[(term, 3)]);
        assert_eq!(recent.click(term, 3), Some(row(3, 2, 0)));
    }

    #[test]
    fn old_searches_and_those_beyond_the_limit_leave_memory() {
        let mut recent = RecentSearches::default();
        let max = MAX_RECENT_SEARCHES as u64;
        let searches: Vec<(SearchKey, i64)> = (0..max + 10).map(|number| (id(number), 7)).collect();
        write(&mut recent, 1, &searches);
        assert_eq!((recent.searches.len(), recent.numbers.len()), (MAX_RECENT_SEARCHES, MAX_RECENT_SEARCHES));
        assert_eq!(recent.click(id(9), 8), None);
        assert_eq!(recent.click(id(10), 8), Some(row(7, 1, 10)));
        recent.expire(7 + HALF_HOUR);
        assert_eq!(recent.searches.len(), MAX_RECENT_SEARCHES);
        recent.expire(8 + HALF_HOUR);
        assert!(recent.searches.is_empty() && recent.numbers.is_empty());
        write(&mut recent, 2, &[(id(10), 9 + HALF_HOUR)]);
        let first = recent.next_number();
        write(&mut recent, 3, &[(id(11), 9 + HALF_HOUR)]);
        recent.remove_until(first);
        assert_eq!(recent.click(id(10), 9 + HALF_HOUR), None);
        assert_eq!(recent.click(id(11), 9 + HALF_HOUR), Some(row(9 + HALF_HOUR, 3, 0)));
    }
}
