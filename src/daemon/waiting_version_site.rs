//! The version that waits to become active, served on a separate listener.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use docwharf_agent::store::VersionStore;
use docwharf_agent::sync::waiting::find_waiting_version;
use docwharf_agent::sync::{SyncSettings, open};
use docwharf_serve::access::{AccessControl, AccessRules};
use docwharf_serve::{AssistantSettings, Site};
use docwharf_site::rules::RuleSet;

/// The site that serves the version that waits to become active.
pub(super) struct WaitingVersionSite {
    site: Arc<Site>,
    /// Whether the site has a listener. Without one, no version is opened for it.
    has_listener: bool,
}

impl WaitingVersionSite {
    /// Creates the state of a site that serves no version yet.
    pub(super) fn new(site: Arc<Site>, has_listener: bool) -> WaitingVersionSite {
        WaitingVersionSite { site, has_listener }
    }

    /// Serves the version that waits now, or none.
    pub(super) async fn serve_waiting(&self, store: &VersionStore, sync_settings: &SyncSettings) {
        if !self.has_listener {
            return;
        }
        let Ok(record) = store.record() else { return };
        let waiting = find_waiting_version(&record, Some(sync_settings)).map(|waiting| waiting.version);
        if waiting == self.site.served_version().map(|version| version.id) {
            return;
        }
        let store = store.clone();
        let opened = match waiting {
            Some(id) => spawn_blocking(move || open::open_read_only(&store, id).ok()).await.ok().flatten(),
            None => None,
        };
        match opened {
            Some(version) => self.site.set_version(version),
            None => self.site.remove_version(),
        }
    }

    /// Replaces the operator's rules.
    pub(super) fn set_rules(&self, rules: Arc<RuleSet>) {
        self.site.set_rules(rules);
    }

    /// Replaces what the site offers to assistants, from the next request on.
    pub(super) fn set_assistant_settings(&self, settings: AssistantSettings) {
        self.site.set_assistant_settings(Some(Arc::new(settings)));
    }

    /// Replaces the trusted proxies, from the next request on. Every client is admitted, whatever `access` says.
    pub(super) fn set_access_control(&self, access_control: &AccessControl) {
        self.site.set_access_control(admit_all(access_control));
    }
}

/// Returns access control with the same trusted proxies that admits every client.
pub(super) fn admit_all(access_control: &AccessControl) -> AccessControl {
    AccessControl { rules: AccessRules::default(), proxies: access_control.proxies.clone() }
}
