//! The checks of `docwharf doctor`: they find what is wrong, or soon will be, on this host, in the configuration and at
//! the upstream. They only read and send requests without effect: no store is created, no job started, no link used up.
//!
//! Each file is one subject, each function one check. A check is one line with the finding and one with the advice.

mod certificate;
pub mod check;
mod checked_user;
mod clock;
pub mod configuration;
mod disk;
mod key;
mod limits;
mod network;
mod permissions;
mod ports;
mod proxy;
mod proxy_rules;
mod store;

use tokio::runtime::Handle;

use crate::config::checked::Config;
use crate::config::sources::ConfigSources;
use docwharf_agent::sync::BundleLocation;
use docwharf_base::error_chain::OneLine;
use docwharf_base::secret::Scrubber;

use check::DoctorCheck;
use checked_user::CheckedUser;

/// Runs all checks, in the order in which one depends on another. With `offline`, it opens no connection and looks up
/// no name. Sockets and timers belong to `runtime`.
pub fn run_checks(sources: &ConfigSources, offline: bool, runtime: &Handle) -> Vec<DoctorCheck> {
    let (config, mut checks) = configuration::check(sources);
    // A configuration with mistakes may still name the right store.
    let root = config.as_ref().map(|config| config.store.clone()).or_else(|| sources.store());
    let subject = CheckedUser::new(sources);
    checks.push(subject.check(sources));
    let mut dates = Vec::new();
    if let Some(config) = &config {
        checks.push(key::check(config, &subject));
        checks.push(proxy::check(config));
        if !offline {
            let seen = runtime.block_on(network::check_network(config));
            checks.extend(seen.checks);
            dates = seen.dates;
        }
    }
    checks.push(clock::check(root.as_deref(), &dates));
    if let Some(root) = &root {
        checks.extend(disk::check(root, config.as_ref()));
        checks.extend(store::check(root));
    }
    checks.extend(permissions::check(root.as_deref(), sources, config.as_ref(), &subject));
    if let Some(config) = &config {
        checks.extend(permissions::inbox(config, &subject));
        checks.extend(certificate::check(config));
        checks.extend(ports::check(config, &subject));
    }
    checks.push(limits::inotify());
    checks.push(limits::descriptors());
    let scrubber = scrubber(config.as_ref());
    for check in &mut checks {
        check.found = clean(&scrubber, &check.found);
        check.advice = check.advice.as_deref().map(|advice| clean(&scrubber, advice));
    }
    checks
}

fn clean(scrubber: &Scrubber, text: &str) -> String {
    OneLine(&scrubber.scrub(text)).to_string()
}

/// Returns a scrubber for the configured secrets. No finding should contain one, but findings quote what servers send.
fn scrubber(config: Option<&Config>) -> Scrubber {
    let mut scrubber = Scrubber::default();
    let Some(config) = config else { return scrubber };
    if let Some(api) = &config.intent.api {
        if let Ok(key) = api.api_key.read() {
            scrubber.hide(&key);
        }
        scrubber.hide_url(&api.base);
    }
    if let Some(BundleLocation::Link(url)) = &config.intent.bundle {
        scrubber.hide_url(url);
    }
    for probe in &config.intent.probes {
        scrubber.hide_url(probe);
    }
    scrubber
}
