//! The checks of `docwharf doctor`: they find present and imminent faults of this host, of the configuration and of the
//! upstream. They only read and send requests without effect: no store is created, no job started, no link used up.
//!
//! Each file is one subject, each function one check. A check is one line with the finding and one with the advice.

mod certificate;
pub mod check;
mod checked_user;
mod clock;
pub mod configuration;
mod deployment;
mod disk;
mod host_limits;
mod key;
mod network;
mod permissions;
mod playground;
mod ports;
mod proxy;
mod proxy_rules;
mod search;
mod store;
mod user_thread;

use tokio::runtime::Handle;

use crate::config::checked::Config;
use crate::config::inputs::ConfigInputs;
use docwharf_agent::sync::BundleLocation;
use docwharf_agent::sync::api_key::read_key_file;
use docwharf_base::error_chain::OneLine;
use docwharf_base::secret::SecretRedactor;

use check::DoctorCheck;
use checked_user::CheckedUser;

/// The choices of a person who runs the checks.
#[derive(Debug, Clone, Copy, Default)]
pub struct DoctorOptions<'a> {
    /// Whether to open no connection and look up no name.
    pub is_offline: bool,
    /// The name or number of the user for whom paths and ports are checked.
    pub user: Option<&'a str>,
}

/// Runs all checks, in the order in which one depends on another. Sockets and timers belong to `runtime`. The error
/// says why the user of the options cannot be checked.
pub fn run_checks(
    config_inputs: &ConfigInputs,
    options: DoctorOptions<'_>,
    runtime: &Handle,
) -> Result<Vec<DoctorCheck>, String> {
    let user = CheckedUser::new(config_inputs, options.user)?;
    let (config, mut checks) = configuration::check(config_inputs);
    // A configuration with mistakes may still name the right store.
    let root = config.as_ref().map(|config| config.store.clone()).or_else(|| config_inputs.store());
    checks.push(user.check(config_inputs));
    let mut dates = Vec::new();
    if let Some(config) = &config {
        checks.push(deployment::check(config));
        checks.push(key::check(config, &user));
        checks.push(proxy::check(config));
        if !options.is_offline {
            let results = runtime.block_on(network::check_network(config));
            checks.extend(results.checks);
            dates = results.dates;
        }
    }
    checks.push(clock::check(root.as_deref(), &dates));
    if let Some(root) = &root {
        checks.extend(disk::check(root, config.as_ref()));
        checks.extend(store::check(root));
    }
    checks.extend(permissions::check(root.as_deref(), config_inputs, config.as_ref(), &user));
    if let Some(config) = &config {
        checks.extend(permissions::check_inbox(config, &user));
        checks.extend(certificate::check(config));
        checks.extend(search::check(config));
        checks.extend(ports::check(config, &user));
    }
    checks.push(host_limits::inotify());
    checks.push(host_limits::descriptors());
    let redactor = redactor(config.as_ref());
    for check in &mut checks {
        check.found = clean(&redactor, &check.found);
        check.advice = check.advice.as_deref().map(|advice| clean(&redactor, advice));
    }
    Ok(checks)
}

fn clean(redactor: &SecretRedactor, text: &str) -> String {
    OneLine(&redactor.redact(text)).to_string()
}

/// Returns a redactor for the configured secrets. No finding should contain one, but findings quote what servers send.
fn redactor(config: Option<&Config>) -> SecretRedactor {
    let mut redactor = SecretRedactor::default();
    let Some(config) = config else { return redactor };
    if let Some(api) = &config.sync_settings.api {
        if let Ok(key) = api.api_key.read() {
            redactor.hide(&key);
        }
        redactor.hide_url(&api.base);
    }
    if let Some(path) = config.assistant.ask.as_ref().and_then(|ask| ask.key_file.as_deref())
        && let Ok(key) = read_key_file(path, "assistant.keyFile")
    {
        redactor.hide(&key);
    }
    if let Some(BundleLocation::Link(url)) = &config.sync_settings.bundle {
        redactor.hide_url(url);
    }
    for probe in &config.sync_settings.probes {
        redactor.hide_url(probe);
    }
    redactor
}
