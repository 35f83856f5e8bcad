//! Computes the content security policies of the served version in the background: neither a start nor an activation
//! waits for them.
//!
//! It is level-triggered: whenever the policies of the served version are not known, they are read from the store or
//! computed on a separate thread, at low priority. If another version is served meanwhile, the computation is
//! cancelled.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::admin::daemon_state::{DaemonState, PolicyState};
use docwharf_agent::store::VersionStore;
use docwharf_agent::store::derived::CSP;
use docwharf_agent::store::writer::StoreWriter;
use docwharf_base::backoff;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::units::format_count;
use docwharf_serve::Site;
use docwharf_serve::csp_header::VersionCsp;
use docwharf_site::external::csp::{self, CspFacts, CspSettings, CspStatistics};
use docwharf_site::sealed_version::SealedVersion;

use super::task::lower_priority_to_background;

/// The maximum size of a stored file of facts in bytes. The facts themselves are bounded while they are collected.
const MAX_STORED_BYTES: u64 = 256 << 20;

/// Keeps the policies of `site` up to date for as long as the program runs. Returns at once if no policies are
/// configured.
pub(super) async fn maintain_policies(
    site: Arc<Site>,
    writer: Arc<StoreWriter>,
    threads: usize,
    daemon_state: Arc<DaemonState>,
) {
    let Some(settings) = site.csp_settings().cloned() else { return };
    let mut versions = site.subscribe_to_versions();
    let (mut ready_id, mut failures) = (None, 0);
    loop {
        versions.mark_unchanged();
        let version_without_policies = site.served_version().filter(|version| ready_id != Some(version.id));
        let Some(version) = version_without_policies else {
            if versions.changed().await.is_err() {
                return;
            }
            continue;
        };
        let preset = settings.preset.name();
        daemon_state
            .update(|snapshot| snapshot.policy = Some(PolicyState { preset, version: version.id, statistics: None }));
        match load_or_compute(&site, version.clone(), &writer, &settings, threads).await {
            Some(statistics) => {
                (ready_id, failures) = (Some(version.id), 0);
                daemon_state.update(|snapshot| {
                    snapshot.policy = Some(PolicyState { preset, version: version.id, statistics: Some(statistics) });
                });
            }
            // No thread could be started, or another version cancelled the task and this one is served again.
            None if site.served_version().is_some_and(|current| current.id == version.id) => {
                failures += 1;
                sleep(backoff::wait_after_failures(failures)).await;
            }
            None => {}
        }
    }
}

async fn load_or_compute(
    site: &Arc<Site>,
    version: Arc<SealedVersion>,
    writer: &Arc<StoreWriter>,
    settings: &CspSettings,
    threads: usize,
) -> Option<CspStatistics> {
    let (send, done) = oneshot::channel();
    let (site, writer, settings) = (Arc::clone(site), Arc::clone(writer), settings.clone());
    let task = move || {
        lower_priority_to_background(threads);
        let facts = load_stored(writer.store(), &version).or_else(|| {
            let facts = compute(&site, &version, &settings, threads)?;
            if let Err(error) = writer.write_derived(version.id, CSP, &csp::encode_facts(&facts, version.id)) {
                tracing::warn!("{}; it is computed again at the next start", ErrorChain(&error));
            }
            Some(facts)
        });
        // There is no receiver any more when the program ends.
        let _ = send.send(facts.map(|facts| serve_policies(&site, &version, facts, &settings)));
    };
    let started = thread::Builder::new().name("docwharf-csp".to_owned()).spawn(task);
    if let Err(error) = started {
        tracing::error!("cannot start a thread for the content security policies: {error}");
        return None;
    }
    done.await.ok().flatten()
}

/// Reads the stored facts about a version, which an earlier process or activation has collected.
fn load_stored(store: &VersionStore, version: &SealedVersion) -> Option<CspFacts> {
    let bytes = store.read_derived(version.id, CSP, MAX_STORED_BYTES)?;
    match csp::decode_facts(&bytes, version.id, version.index().len()) {
        Ok(facts) => Some(facts),
        Err(fault) => {
            tracing::warn!("{fault}; they are computed again");
            None
        }
    }
}

/// Collects the facts from all pages; `None` if another version is served meanwhile.
fn compute(site: &Site, version: &SealedVersion, settings: &CspSettings, threads: usize) -> Option<CspFacts> {
    let interim = match settings.preset {
        csp::CspPreset::Airgap => "until then, other origins are refused, and inline scripts are not listed",
        _ => "until then, none is sent",
    };
    let (id, preset) = (version.id.short(), settings.preset.name());
    tracing::info!("reading the pages of version {id} for their content security policies ({preset}); {interim}");
    let started = Instant::now();
    let facts = csp::collect_facts(version, threads, &|| site.served_version().is_none_or(|now| now.id != version.id))?;
    tracing::info!("the content security policies of version {id} took {} ms", started.elapsed().as_millis());
    Some(facts)
}

/// Serves the policies from now on, and logs and returns their statistics.
fn serve_policies(site: &Site, version: &SealedVersion, facts: CspFacts, settings: &CspSettings) -> CspStatistics {
    let ready = VersionCsp::new(version.id, facts, settings);
    let statistics = ready.statistics;
    site.set_csp(ready);
    log_statistics(&statistics, settings);
    statistics
}

fn log_statistics(statistics: &CspStatistics, settings: &CspSettings) {
    let CspStatistics { pages, uncertain, too_long, longest_bytes, .. } = *statistics;
    let pages = format_count(pages, "page");
    tracing::info!(
        "content security policy {}: {pages}, the longest policy has {longest_bytes} bytes",
        settings.preset.name()
    );
    if too_long > 0 {
        tracing::warn!(
            "{too_long} of {pages} have more inline scripts than a policy of {} bytes (server.cspSize) can name: there, \
             all inline scripts are allowed; other origins are refused as on all pages",
            settings.max_bytes
        );
    }
    if uncertain > 0 {
        tracing::warn!(
            "{uncertain} of {pages} have scripts that cannot be named for certain (code in addresses, unknown character \
             references, pages that break off): there, all inline scripts are allowed"
        );
    }
}

/// Computes and serves the policies of a site without a store, on the calling thread. The priority of that thread stays
/// lowered.
pub fn serve_policies_without_store(site: &Site, threads: usize) {
    let (Some(settings), Some(version)) = (site.csp_settings(), site.served_version()) else { return };
    lower_priority_to_background(threads);
    if let Some(facts) = compute(site, &version, settings, threads) {
        serve_policies(site, &version, facts, settings);
    }
}
