//! The functions by which the program changes the search of a [`Site`] and reads its counts.

use std::sync::Arc;

use docwharf_search::index::SearchIndex;

use super::search::{QueryStatistics, SearchSettings};
use super::site::Site;

impl Site {
    /// Replaces the settings of the search from the next request on. Without a call, the search is off.
    pub fn set_search_settings(&self, settings: Arc<SearchSettings>) {
        self.search.set_settings(settings);
        self.invalidate_responses();
        self.update_inserted_tag(self.served_version().as_deref());
    }

    /// Returns the settings of the search; `None` if the search is off.
    pub fn search_settings(&self) -> Option<Arc<SearchSettings>> {
        self.search.settings().map(|in_force| Arc::clone(&in_force.settings))
    }

    /// Answers queries from this index from now on, also after another version was set: each result is then looked up
    /// in that version. With `None`, queries get 503.
    pub fn set_search_index(&self, index: Option<Arc<SearchIndex>>) {
        self.search.set_index(index);
    }

    /// Returns the index that answers queries.
    pub fn search_index(&self) -> Option<Arc<SearchIndex>> {
        self.search.index()
    }

    /// Sets whether an index is being built or will be built. It decides what clients learn while there is none: to
    /// wait, or that there will be no answer. True before the first call.
    pub fn set_search_building(&self, is_building: bool) {
        self.search.set_building(is_building);
    }

    /// Calls `action` once, at the first search while there is no index of the served version, and calls
    /// [`set_search_building`](Site::set_search_building) with true before. A serving thread calls it, so it must not
    /// block.
    pub fn on_first_search(&self, action: Box<dyn FnOnce() + Send>) {
        self.search.set_first_search_action(action);
    }

    /// Returns the counts of queries since the start.
    pub fn search_statistics(&self) -> QueryStatistics {
        self.search.statistics()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SiteSettings;
    use crate::response_cache::SiteState;
    use crate::search::test_indexes;

    #[test]
    fn changed_search_settings_invalidate_cached_responses() {
        let site = Site::new(SiteSettings::default());
        assert!(site.search_settings().is_none() && site.search_index().is_none());
        let before = (site.generation(), SiteState::current(&site));
        site.set_search_settings(Arc::new(test_indexes::settings()));
        assert!(site.generation() > before.0 && SiteState::current(&site) != before.1);
        assert!(site.search_settings().is_some_and(|settings| settings.enabled));
        let disabled = SearchSettings { enabled: false, ..test_indexes::settings() };
        site.set_search_settings(Arc::new(disabled));
        assert!(site.search_settings().is_none());
    }
}
