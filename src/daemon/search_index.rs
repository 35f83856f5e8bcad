//! Builds and opens the search index of the served version and the Markdown of its pages in the background: neither a
//! start nor an activation waits for them.
//!
//! It is level-triggered, like the codings: whenever the served version or the settings of one of the two products are
//! others than those of the open one, the stored one is opened or a new one is built ([`index_job`](super::index_job)),
//! first the index, then the Markdown. A separate process builds it ([`index_process`](super::index_process)); it takes
//! turns with the process that makes the Brotli and Zstandard forms ([`build_turn`](super::build_turn)). Until the new
//! index is open, the site answers from the previous one. Both stay with their version, so that a restart or a rollback
//! finds them. A job is cancelled when another version is served, the settings change, or the daemon stops; the
//! unfinished product is removed then.
//!
//! The site never makes the Markdown of all pages itself: this process has the bounds of the service, not those of a
//! build. If it cannot be built, lists of the pages are refused, and single pages are converted on request.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep_until;

use crate::admin::daemon_state::SearchPhase;
use docwharf_serve::SiteMarkdownSource;
use docwharf_site::sealed_version::SealedVersion;

use super::build_failures::BuildFailures;
use super::build_product::BuildProduct;
use super::index_job::{IndexJob, IndexJobResult, run_job};
use super::index_settings::{ProductKey, SearchConfigInForce};
use super::search_parts::SearchParts;

/// Time until the next attempt after there was too little disk space.
const NO_SPACE_RETRY_DELAY: Duration = Duration::from_mins(10);

/// The attempts to open or build one product.
#[derive(Debug)]
struct ProductAttempts {
    product: BuildProduct,
    /// The product of the last attempt that was not cancelled.
    handled: Option<ProductKey>,
    failures: BuildFailures<ProductKey>,
    retry_at: Option<Instant>,
    /// The product for which there was no space even without the other derived files. They are not removed again for
    /// it: else they would be made and removed in turn.
    without_space: Option<ProductKey>,
}

impl ProductAttempts {
    fn new(product: BuildProduct) -> ProductAttempts {
        let (failures, without_space) = (BuildFailures::default(), None);
        ProductAttempts { product, handled: None, failures, retry_at: None, without_space }
    }

    /// Returns whether an attempt is made now.
    fn is_due(&self, key: ProductKey) -> bool {
        self.handled != Some(key) || self.retry_at.is_some_and(|retry_at| Instant::now() >= retry_at)
    }

    /// Makes an attempt. Returns whether it has ended without being cancelled; `None` if the daemon stops.
    async fn run(
        &mut self,
        parts: &SearchParts,
        (version, in_force, key): (Arc<SealedVersion>, &Arc<SearchConfigInForce>, ProductKey),
        stopped: &mut watch::Receiver<bool>,
    ) -> Option<bool> {
        self.failures.begin_attempt(key);
        let (stop, stop_channel) = channel();
        let job = IndexJob {
            parts: parts.clone(),
            version,
            in_force: Arc::clone(in_force),
            key,
            may_remove_forms: self.without_space != Some(key),
            stop_channel,
        };
        let result = run_job(job, stop, stopped).await?;
        if matches!(result, IndexJobResult::NoSpace(_)) {
            self.without_space = Some(key);
        }
        (self.handled, self.retry_at) = (Some(key), None);
        match parts.report_result(key, result, &mut self.failures) {
            NextAttempt::None => {}
            NextAttempt::Now => {
                self.handled = None;
                return Some(false);
            }
            NextAttempt::After(delay) => self.retry_at = Some(Instant::now() + delay),
        }
        Some(true)
    }
}

/// Keeps the search index of the site and the Markdown of its pages up to date until the daemon stops.
pub(super) async fn maintain_search_index(parts: SearchParts, mut stopped: watch::Receiver<bool>) {
    let mut settings = parts.settings.clone();
    let mut versions = parts.site.subscribe_to_versions();
    let mut products = [BuildProduct::SearchIndex, BuildProduct::SiteMarkdown].map(ProductAttempts::new);
    loop {
        versions.mark_unchanged();
        let in_force = Arc::clone(&settings.borrow_and_update());
        if let Some(version) = parts.site.served_version() {
            match parts.make_products(&version, &in_force, &mut products, &mut stopped).await {
                None => return,
                Some(false) => continue,
                Some(true) => parts.turn.finish_index(version.id),
            }
        }
        let retry_at = products.iter().filter_map(|attempts| attempts.retry_at).min();
        tokio::select! {
            changed = versions.changed() => if changed.is_err() { return },
            changed = settings.changed() => if changed.is_err() { return },
            _ = stopped.changed() => return,
            () = sleep_until(retry_at.unwrap_or_else(Instant::now).into()), if retry_at.is_some() => {}
        }
    }
}

/// When the task makes another attempt for the same version.
enum NextAttempt {
    None,
    Now,
    After(Duration),
}

impl SearchParts {
    /// Opens or builds the products of a version that are due. Returns whether no attempt was cancelled; `None` if the
    /// daemon stops.
    async fn make_products(
        &self,
        version: &Arc<SealedVersion>,
        in_force: &Arc<SearchConfigInForce>,
        products: &mut [ProductAttempts],
        stopped: &mut watch::Receiver<bool>,
    ) -> Option<bool> {
        let id = version.id;
        let due = |attempts: &ProductAttempts| in_force.key(id, attempts.product).filter(|key| attempts.is_due(*key));
        // While the index is built, which may take long, a list of the pages is not refused, but answered later.
        if products.iter().any(|attempts| attempts.product == BuildProduct::SiteMarkdown && due(attempts).is_some()) {
            self.site.set_site_markdown_source(SiteMarkdownSource::Program);
        }
        for attempts in products {
            if let Some(key) = due(attempts) {
                if !attempts.run(self, (Arc::clone(version), in_force, key), stopped).await? {
                    return Some(false);
                }
            } else if in_force.key(id, attempts.product).is_none() {
                self.turn_off(attempts.product);
                (attempts.handled, attempts.retry_at) = (None, None);
            } else if attempts.product == BuildProduct::SearchIndex {
                self.update_inject_mode(in_force);
            }
        }
        Some(true)
    }

    /// Stops answering requests from a product.
    fn turn_off(&self, product: BuildProduct) {
        match product {
            BuildProduct::SearchIndex => {
                self.site.set_search_building(false);
                self.site.set_search_index(None);
                self.daemon_state.update(|snapshot| snapshot.search = None);
            }
            BuildProduct::SiteMarkdown => {
                self.site.set_site_markdown(None);
                // If the settings change, a request may come before this task knows it.
                self.site.set_site_markdown_source(SiteMarkdownSource::Program);
            }
        }
    }

    /// Shows the mode of insertion in the status, which may have changed without the index.
    fn update_inject_mode(&self, in_force: &SearchConfigInForce) {
        self.daemon_state.update(|snapshot| {
            if let Some(search) = &mut snapshot.search {
                search.inject = in_force.config.inject;
            }
        });
    }

    /// Reports a failure in log, status and metrics, and returns when to try again.
    fn report_result(
        &self,
        key: ProductKey,
        result: IndexJobResult,
        failures: &mut BuildFailures<ProductKey>,
    ) -> NextAttempt {
        let (product, id) = (key.product, key.id.short());
        let (name, served) = match (product, self.site.search_index()) {
            (BuildProduct::SearchIndex, Some(_)) => ("search index", "the site is served with an older one"),
            (BuildProduct::SearchIndex, None) => ("search index", "the site is served without it"),
            (BuildProduct::SiteMarkdown, _) => {
                ("Markdown", "llms.txt and llms-full.txt are refused, and pages are converted on request")
            }
        };
        match result {
            IndexJobResult::Done => {
                *failures = BuildFailures::default();
                NextAttempt::None
            }
            IndexJobResult::Cancelled => NextAttempt::Now,
            IndexJobResult::NoSpace(why) => {
                tracing::warn!("the {name} of version {id} is not built: {why}; {served}");
                self.count_build(product, "no_space");
                self.set_failed(product, why);
                NextAttempt::After(NO_SPACE_RETRY_DELAY)
            }
            IndexJobResult::Failed(why) => {
                let delay = failures.count();
                let next = match delay {
                    Some(_) => "trying again later",
                    None => "the next version or start tries again",
                };
                tracing::warn!("cannot build the {name} of version {id}: {why}; {served}, {next}");
                self.count_build(product, "failed");
                self.set_failed(product, why);
                delay.map_or(NextAttempt::None, NextAttempt::After)
            }
        }
    }

    /// Answers requests without a product that could not be built.
    fn set_failed(&self, product: BuildProduct, why: String) {
        if product == BuildProduct::SiteMarkdown {
            self.site.set_site_markdown_source(SiteMarkdownSource::Failed);
            return;
        }
        self.site.set_search_building(false);
        self.daemon_state.update(|snapshot| {
            if let Some(search) = &mut snapshot.search {
                search.phase = SearchPhase::Failed(why);
            }
        });
        self.show_older_index();
    }
}
