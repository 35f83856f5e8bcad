//! `doctor`: what an operator would look at one after the other, looked at in one go. It reads and asks, and changes
//! nothing: no store is made, no job started, no link used up.
//!
//! Each file is one subject, each function one check; a check is what was found in one line, and what to do in another.

mod clock;
pub mod configuration;
mod disk;
mod key;
mod limits;
mod network;
mod pair;
mod permissions;
mod ports;
mod proxy;
mod store;
mod subject;

use serde::Serialize;
use tokio::runtime::Handle;

use docwharf_base::chain::OneLine;
use docwharf_base::secret::Scrubber;
use crate::config::checked::{Config, Sources};
use docwharf_agent::sync::BundleLocation;

use subject::Subject;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It works, or will, but not as well as it could, or not for long.
    Warning,
    /// It does not work.
    Error,
}

impl Verdict {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Error => "error",
        }
    }
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The subject, one word: `key`, `clock`, …
    pub name: &'static str,
    /// How it ended.
    pub status: Verdict,
    /// What was found, on one line.
    pub found: String,
    /// What to do, on one line, where there is something to do.
    pub advice: Option<String>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Check {
        Check { name, status: Verdict::Ok, found: found.into(), advice: None }
    }

    fn warning(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, status: Verdict::Warning, found: found.into(), advice: Some(advice.into()) }
    }

    fn error(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, status: Verdict::Error, found: found.into(), advice: Some(advice.into()) }
    }
}

/// All checks in the order in which one depends on the other. With `offline`, no connection is opened and no name asked
/// for. Sockets and timers belong to `runtime`.
pub fn examine(sources: &Sources, offline: bool, runtime: &Handle) -> Vec<Check> {
    let (config, mut checks) = configuration::check(sources);
    // What a configuration with mistakes says of the store may still be right.
    let root = config.as_ref().map(|config| config.store.clone()).or_else(|| sources.store());
    let subject = Subject::new(sources);
    checks.push(subject.check(sources));
    let mut dates = Vec::new();
    if let Some(config) = &config {
        checks.push(key::check(config, &subject));
        checks.push(proxy::check(config));
        if !offline {
            let seen = runtime.block_on(network::look(config));
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
        checks.extend(pair::check(config));
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

/// Nothing that is found should hold a secret; what others say is beyond us.
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
