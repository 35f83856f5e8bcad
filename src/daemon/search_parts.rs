//! The parts of the daemon that build the search index and the Markdown of all pages, and show how far they are.

use std::sync::Arc;

use tokio::sync::watch;

use crate::admin::daemon_state::{DaemonState, SearchPhase};
use crate::admin::metrics::DaemonMetrics;
use docwharf_agent::store::writer::StoreWriter;
use docwharf_serve::Site;

use super::build_product::BuildProduct;
use super::build_turn::BuildTurn;
use super::index_settings::SearchConfigInForce;

/// The parts of the daemon that the task of the index and its jobs use.
#[derive(Debug, Clone)]
pub(super) struct SearchParts {
    pub(super) site: Arc<Site>,
    pub(super) writer: Arc<StoreWriter>,
    pub(super) daemon_state: Arc<DaemonState>,
    pub(super) metrics: Arc<DaemonMetrics>,
    pub(super) turn: Arc<BuildTurn>,
    /// The settings in force, now and later.
    pub(super) settings: watch::Receiver<Arc<SearchConfigInForce>>,
}

impl SearchParts {
    /// Shows in the status whether an older index answers, which changes while the new one is opened or built.
    pub(super) fn show_older_index(&self) {
        let has_older_index = self.site.search_index().is_some();
        self.daemon_state.update(|snapshot| {
            if let Some(search) = snapshot.search.as_mut() {
                search.has_older_index = has_older_index && !matches!(search.phase, SearchPhase::Ready(_));
            }
        });
    }

    /// Counts the end of a build in the metrics.
    pub(super) fn count_build(&self, product: BuildProduct, result: &str) {
        match product {
            BuildProduct::SearchIndex => self.metrics.count_search_build(result),
            BuildProduct::SiteMarkdown => self.metrics.count_markdown_build(result),
        }
    }
}
