//! The functions by which the tag behind the pages of a [`Site`] is chosen and replaced.

use std::sync::Arc;

use arc_swap::Guard;

use docwharf_site::own_search::find_own_search;
use docwharf_site::sealed_version::SealedVersion;

use super::insertion::{InsertedScripts, InsertedTag};
use super::search::InjectMode;
use super::site::Site;

impl Site {
    /// Inserts this tag into the pages of all responses from the next request on; with `None`, inserts none.
    ///
    /// [`Site::set_version`], [`Site::set_search_settings`] and [`Site::set_playground_settings`] call it. A response
    /// is consistent in itself at every moment, because its entity tag and length are those of the tag that it has.
    pub fn set_inserted_tag(&self, tag: Option<Arc<InsertedTag>>) {
        if *self.inserted_tag.load() == tag {
            return;
        }
        // Under one date, bytes with and without the tag were sent, so the date is no strong validator any more (RFC
        // 9110, 8.8.2.2). A page with the date of a client's copy has the same content, so it stays a weak one.
        if self.served_version.load().is_some() {
            self.note_content_change();
        }
        self.inserted_tag.store(tag);
        self.invalidate_responses();
    }

    /// Returns the tag that is inserted into pages.
    pub(super) fn inserted_tag(&self) -> Guard<Option<Arc<InsertedTag>>> {
        self.inserted_tag.load()
    }

    /// Inserts the tag into the pages of `version`, or inserts none, as the settings of search and playground say.
    pub(super) fn update_inserted_tag(&self, version: Option<&SealedVersion>) {
        let inject = self.search_settings().map_or(InjectMode::Never, |settings| settings.inject);
        let search_box = match inject {
            InjectMode::Always => true,
            InjectMode::Never => false,
            InjectMode::Auto => version.is_some_and(|version| find_own_search(version).is_none()),
        };
        let scripts = InsertedScripts { search_box, playground: self.playground.has_script() };
        let tag = InsertedTag::with_scripts(&self.settings.base_path, scripts);
        self.set_inserted_tag(tag.map(Arc::new));
    }
}

#[cfg(test)]
mod tests {
    use docwharf_base::clock::now_unix_seconds;

    use super::*;
    use crate::SiteSettings;
    use crate::conditional::ContentDates;
    use crate::search::{SearchSettings, test_indexes};
    use crate::test_versions::version_with_files;

    #[test]
    fn a_changed_tag_makes_dates_weak_validators_and_an_equal_tag_changes_nothing() {
        let tag = |base_path: &str| InsertedTag::new(base_path).map(Arc::new);
        let site = Site::new(SiteSettings::default());
        site.set_inserted_tag(tag("/"));
        assert_eq!(site.content_dates(5), ContentDates::never_replaced(5), "no version was served");
        site.set_version(version_with_files(&[("a", "1")], 0));
        let generation = site.generation();
        site.set_inserted_tag(tag("/"));
        assert_eq!((site.generation(), site.content_dates(5)), (generation, ContentDates::never_replaced(5)));
        let before = now_unix_seconds();
        for other in [tag("/docs/"), None] {
            site.set_inserted_tag(other);
            let dates = site.content_dates(5);
            assert!(dates.replaced.is_some_and(|replaced| replaced >= before) && dates.rerouted.is_none());
        }
        assert!(site.generation() > generation);
    }

    #[test]
    fn the_settings_of_the_search_and_the_version_decide_whether_pages_have_a_tag() {
        let settings = |inject: InjectMode| Arc::new(SearchSettings { inject, ..test_indexes::settings() });
        let plain = || version_with_files(&[("index.html", "<p>a")], 0);
        let with_index = || version_with_files(&[("index.html", "<p>b"), ("searchindex.js", "{}")], 0);
        let site = Site::new(SiteSettings { base_path: "/docs/".to_owned(), ..SiteSettings::default() });
        let has_tag = || {
            let tag = site.inserted_tag();
            assert!(tag.as_ref().is_none_or(|tag| tag.bytes().starts_with(b"<script src=\"/docs/_docwharf/")));
            tag.is_some()
        };
        site.set_version(plain());
        assert!(!has_tag(), "without settings, the search is off");
        site.set_search_settings(settings(InjectMode::Auto));
        assert!(has_tag());
        site.set_version(with_index());
        assert!(!has_tag());
        site.set_search_settings(settings(InjectMode::Always));
        assert!(has_tag());
        site.set_version(plain());
        assert!(has_tag());
        site.set_search_settings(settings(InjectMode::Never));
        assert!(!has_tag());
        site.set_search_settings(settings(InjectMode::Auto));
        assert!(has_tag());
        let disabled = SearchSettings { enabled: false, ..test_indexes::settings() };
        site.set_search_settings(Arc::new(SearchSettings { inject: InjectMode::Always, ..disabled }));
        assert!(!has_tag());
    }
}
