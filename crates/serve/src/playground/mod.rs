//! The API playground: `POST BASE/_docwharf/playground` sends a request of a page to an API that the operator has
//! listed, and answers with its response as JSON. "Try it" forms of a site then need neither CORS nor an exception in a
//! content security policy.
//!
//! Such requests make this server connect to other hosts. So they come from pages of the site itself only
//! ([`own_origin`](super::own_origin)), their URL is refused rather than repaired (`target_url`), rules decide about
//! origin, method and path (`rules`), and every address of the target is checked (`target_client`). Cookies and other
//! fields that identify the reader are not passed on (`header_fields`), and no field of the target becomes one of the
//! response. Nothing about a target is logged.
//!
//! With `playground.rewrite`, a script in each page (`script`) sends the page's own calls of `fetch` and
//! `XMLHttpRequest` to listed origins through the playground.

pub(crate) mod answer;
mod header_fields;
mod outcome;
pub(crate) mod request;
pub(crate) mod rules;
mod script;
pub(crate) mod target_client;
mod target_url;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};
use rustls::ClientConfig;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use docwharf_base::error_chain::ErrorChain;
use docwharf_base::net::client::build_tls_config;

use super::held_bytes::HeldBytes;
use super::outcome_counts::OutcomeCounts;
use super::playground_settings::PlaygroundSettings;
use super::request_body::BodyLimits;
use super::request_rate::RequestRate;
use super::search::SearchAsset;

use request::max_json_bytes;

pub use outcome::PlaygroundOutcome;
pub(crate) use script::is_script_path;

/// The deadline for a complete body of a request, which may be larger than those of other resources.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// The least memory of the bodies of all requests of the process, and of what is made from them until it is sent. It is
/// more if larger bodies are permitted.
const MIN_BODY_MEMORY_BYTES: u64 = 64 << 20;
/// That memory.
pub(super) static BODY_MEMORY: HeldBytes = HeldBytes::new(MIN_BODY_MEMORY_BYTES);
/// The largest number of requests to targets at a time.
const MAX_PARALLEL_REQUESTS: usize = 32;

/// Returns the limit of [`BODY_MEMORY`] for these settings, in bytes: twice a request and its JSON, or a response and
/// its JSON, fit into it, however large they may be.
fn max_body_memory(settings: &PlaygroundSettings) -> u64 {
    let largest = settings.max_request.saturating_mul(4).saturating_add(settings.max_response.saturating_mul(3));
    largest.max(MIN_BODY_MEMORY_BYTES)
}

/// The playground of a site.
#[derive(Debug)]
pub(super) struct Playground {
    /// The settings in force; `None` while the playground is off.
    in_force: ArcSwapOption<PlaygroundInForce>,
    rate: RequestRate,
    counts: OutcomeCounts<PlaygroundOutcome>,
    running: Arc<Semaphore>,
}

impl Default for Playground {
    fn default() -> Playground {
        Playground {
            in_force: ArcSwapOption::empty(),
            rate: RequestRate::default(),
            counts: OutcomeCounts::default(),
            running: Arc::new(Semaphore::new(MAX_PARALLEL_REQUESTS)),
        }
    }
}

/// The settings in force, and what is made from them.
pub(crate) struct PlaygroundInForce {
    pub(crate) settings: Arc<PlaygroundSettings>,
    /// The TLS configuration; `None` if no target needs it, or if it could not be built.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// The script of pages, if `rewrite` is set.
    pub(crate) script: Option<SearchAsset>,
}

impl fmt::Debug for PlaygroundInForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlaygroundInForce").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl PlaygroundInForce {
    /// Prepares settings. The root certificates are read now, and again with the next settings.
    fn new(settings: Arc<PlaygroundSettings>, base_path: &str) -> PlaygroundInForce {
        let tls = if settings.allow.iter().any(|target| target.is_https) {
            match build_tls_config(settings.network.ca_file.as_deref()) {
                Ok(config) => Some(Arc::new(config)),
                Err(error) => {
                    let error = ErrorChain(&error);
                    tracing::warn!(
                        "the playground cannot reach targets of https: {error}; correct the certificates of the \
                         host, or the file of api.caFile, and reload"
                    );
                    None
                }
            }
        } else {
            None
        };
        BODY_MEMORY.set_limit(max_body_memory(&settings));
        let script = settings.rewrite.then(|| script::render_script_asset(&settings.allow, base_path));
        PlaygroundInForce { settings, tls, script }
    }
}

impl Playground {
    /// Replaces the settings; `None` turns the playground off.
    pub(super) fn set_settings(&self, settings: Option<Arc<PlaygroundSettings>>, base_path: &str) {
        self.in_force.store(settings.map(|settings| Arc::new(PlaygroundInForce::new(settings, base_path))));
    }

    /// Returns the settings; `None` while the playground is off.
    pub(super) fn settings(&self) -> Option<Arc<PlaygroundSettings>> {
        self.in_force.load().as_ref().map(|in_force| Arc::clone(&in_force.settings))
    }

    /// Returns whether pages have the script that sends their requests through the playground.
    pub(super) fn has_script(&self) -> bool {
        self.in_force.load().as_ref().is_some_and(|in_force| in_force.script.is_some())
    }

    /// Returns the limits of the bodies of requests; `None` while the playground is off.
    pub(super) fn body_limits(&self) -> Option<BodyLimits> {
        let max_bytes = max_json_bytes(self.in_force.load().as_ref()?.settings.max_request);
        let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
        Some(BodyLimits { timeout: BODY_TIMEOUT, ..BodyLimits::new(max_bytes, &BODY_MEMORY) })
    }

    /// Returns what is in force, for the duration of one request; `None` while the playground is off.
    pub(super) fn load(&self) -> Guard<Option<Arc<PlaygroundInForce>>> {
        self.in_force.load()
    }

    /// Counts a request of a client and returns whether it is allowed.
    pub(super) fn allows_request_from(&self, address: IpAddr, per_minute: u32) -> bool {
        self.rate.allow_now(address, per_minute)
    }

    /// Takes the permit for a request to a target, which lasts until it is dropped; `None` if there are too many.
    pub(super) fn take_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.running).try_acquire_owned().ok()
    }

    /// Counts the outcome of a request.
    pub(super) fn count_outcome(&self, outcome: PlaygroundOutcome) {
        self.counts.count(outcome);
    }

    /// Returns the counts of requests since the start.
    pub(super) fn counts(&self) -> &OutcomeCounts<PlaygroundOutcome> {
        &self.counts
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use docwharf_base::net::NetworkSettings;

    use super::*;
    use crate::named_host::HostList;

    #[test]
    fn the_memory_of_bodies_is_that_of_the_last_settings() {
        let settings = |max_response| PlaygroundSettings {
            allow: Vec::new(),
            hosts: HostList::default(),
            timeout: Duration::from_secs(1),
            max_request: 1 << 20,
            max_response,
            per_minute: NonZeroU32::MIN,
            rewrite: false,
            network: NetworkSettings::default(),
        };
        assert_eq!(max_body_memory(&settings(64 << 20)), 196 << 20);
        let playground = Playground::default();
        playground.set_settings(Some(Arc::new(settings(64 << 20))), "/");
        playground.set_settings(Some(Arc::new(settings(5 << 20))), "/");
        // The other tests of this process have no larger bodies.
        assert_eq!(BODY_MEMORY.limit(), MIN_BODY_MEMORY_BYTES);
    }
}
