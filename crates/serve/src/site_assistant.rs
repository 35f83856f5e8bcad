//! The functions by which the program changes what a [`Site`] offers to assistants, and its playground.

use std::sync::Arc;

use docwharf_search::site_markdown::SiteMarkdown;

use super::ask::AskOutcome;
use super::assistant_settings::AssistantSettings;
use super::converted_pages::SiteMarkdownSource;
use super::markdown_statistics::MarkdownCounts;
use super::mcp_statistics::McpCounts;
use super::outcome_counts::OutcomeCounts;
use super::playground::PlaygroundOutcome;
use super::playground_settings::PlaygroundSettings;
use super::site::Site;

impl Site {
    /// Replaces the settings of `[assistant]` from the next request on. Without a call, all of it is off.
    pub fn set_assistant_settings(&self, settings: Option<Arc<AssistantSettings>>) {
        self.ask.set_settings(settings.as_ref().and_then(|settings| settings.ask.as_ref()));
        self.assistant.store(settings);
        self.invalidate_responses();
    }

    /// Returns the settings of `[assistant]`; `None` if all of it is off.
    pub fn assistant_settings(&self) -> Option<Arc<AssistantSettings>> {
        self.assistant.load_full()
    }

    /// Returns the counts of requests of the Model Context Protocol since the start.
    pub fn mcp_counts(&self) -> &McpCounts {
        self.mcp.counts()
    }

    /// Returns the counts of requests for Markdown and `llms.txt` that docwharf makes, since the start.
    pub fn markdown_counts(&self) -> &MarkdownCounts {
        &self.markdown_counts
    }

    /// Returns the counts of questions since the start, by outcome.
    pub fn ask_counts(&self) -> &OutcomeCounts<AskOutcome> {
        self.ask.counts()
    }

    /// Returns whether the settings of `[assistant]` have a property; false if all of it is off.
    pub(super) fn assistant_settings_with(&self, has_property: impl FnOnce(&AssistantSettings) -> bool) -> bool {
        self.assistant.load().as_ref().is_some_and(|settings| has_property(settings))
    }

    /// Serves the Markdown of pages from this file from now on, as long as its version is served. With `None`, pages
    /// are converted on request.
    pub fn set_site_markdown(&self, file: Option<Arc<SiteMarkdown>>) {
        self.markdown.set_file(file);
    }

    /// Sets the source of the file for [`set_site_markdown`](Site::set_site_markdown). Before the first call, the site
    /// makes it when `llms.txt` is first requested.
    pub fn set_site_markdown_source(&self, source: SiteMarkdownSource) {
        self.markdown.set_source(source);
    }

    /// Replaces the settings of `[playground]` from the next request on; `None` turns it off. Without a call, it is
    /// off.
    pub fn set_playground_settings(&self, settings: Option<Arc<PlaygroundSettings>>) {
        self.playground.set_settings(settings, &self.settings.base_path);
        self.invalidate_responses();
        self.update_inserted_tag(self.served_version().as_deref());
    }

    /// Returns the settings of `[playground]`; `None` if it is off.
    pub fn playground_settings(&self) -> Option<Arc<PlaygroundSettings>> {
        self.playground.settings()
    }

    /// Returns the counts of requests to the playground since the start, by outcome.
    pub fn playground_counts(&self) -> &OutcomeCounts<PlaygroundOutcome> {
        self.playground.counts()
    }
}
