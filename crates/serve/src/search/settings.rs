//! The settings of the search of a site.

use std::num::NonZeroUsize;
use std::sync::Arc;

use docwharf_search::analyze::SynonymTable;
use docwharf_search::page::SearchScriptSettings;
use docwharf_site::rules::pattern::Pattern;

/// Which pages get the tag of the search box (`search.inject`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InjectMode {
    /// The pages of a site that brings no search index of its own.
    #[default]
    Auto,
    /// All pages.
    Always,
    /// No page.
    Never,
}

/// The settings of the search box: `search.selectors`, `search.button`, and whether the server records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchBoxSettings {
    /// The CSS selectors of the site's own elements that open the box.
    pub selectors: Vec<String>,
    /// Whether a page without such an element gets a button.
    pub button: bool,
    /// Whether the box sends the searches, clicks and views of readers to the server, which records them.
    pub events: bool,
}

impl SearchBoxSettings {
    /// Returns the settings in the form in which the script of the box is rendered with them. `max_question` is the
    /// maximum length of a question, if questions are answered.
    pub fn as_script_settings(&self, max_question: Option<NonZeroUsize>) -> SearchScriptSettings<'_> {
        SearchScriptSettings { selectors: &self.selectors, button: self.button, events: self.events, max_question }
    }
}

/// The settings of the search of a site. They are replaced with [`Site::set_search_settings`].
///
/// [`Site::set_search_settings`]: crate::Site::set_search_settings
#[derive(Debug, Clone)]
pub struct SearchSettings {
    /// Whether readers can search the site. Otherwise all addresses of the search are 404.
    pub enabled: bool,
    /// The settings of the search box.
    pub search_box: SearchBoxSettings,
    /// The number of queries that run at a time.
    pub parallel: NonZeroUsize,
    /// The addresses of pages that are no results, below the base path (`search.exclude`). The index leaves them out;
    /// one that was built before a change has them until it is built again.
    pub exclude: Arc<[Pattern]>,
    /// The words that mean the same.
    pub synonyms: Arc<SynonymTable>,
    /// Which pages get the tag of the search box.
    pub inject: InjectMode,
}
