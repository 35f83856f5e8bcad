//! The keys of an agent's configuration. The checks, `config show`, `config init`, `config schema` and
//! docs/configuration.md all read them from this table.

mod analytics;
mod assistant;
mod deployment;
mod playground;
mod rules;
mod search;
mod serving;
mod source;
mod versions;

use super::key_table::{ConfigKey, KeyTable};
use analytics::{ANALYTICS, ANALYTICS_DELIVERY};
use assistant::ASSISTANT;
pub(super) use deployment::DEPLOYMENT;
pub(super) use playground::PLAYGROUND_METHODS;
use playground::{PLAYGROUND, PLAYGROUND_ALLOW};
use rules::{HEADERS, REDIRECTS};
use search::SEARCH;
use serving::{ACCESS, ADMIN, SERVER, TLS};
use source::{API, NETWORK, STATIC_EXPORT, SYNC};
use versions::{ACTIVATE, GATE, LIMITS, PUBLISH, STORE};

/// The table. `config show` and `config init` print the sections in this order.
pub static AGENT_KEYS: KeyTable = KeyTable {
    sections: &[
        STATIC_EXPORT,
        API,
        SYNC,
        NETWORK,
        DEPLOYMENT,
        STORE,
        SERVER,
        TLS,
        ACCESS,
        SEARCH,
        ASSISTANT,
        PLAYGROUND,
        ANALYTICS,
        ANALYTICS_DELIVERY,
        ADMIN,
        GATE,
        ACTIVATE,
        PUBLISH,
        LIMITS,
    ],
    lists: &[REDIRECTS, HEADERS, PLAYGROUND_ALLOW],
};

/// Lists the keys.
pub fn keys() -> impl Iterator<Item = ConfigKey> {
    AGENT_KEYS.keys()
}
