//! `[analytics.deliver]`: the origin that receives what this host records.

use std::path::PathBuf;
use std::time::Duration;

use docwharf_agent::analytics::key_file::mode_warning;
use docwharf_base::net::NetworkSettings;
use docwharf_base::secret::SafeUrl;

use super::checker::ValueChecker;
use super::deployment::check_outbound_url;
use super::key_table::exact_size;
use super::problem::ConfigProblem;
use super::value_parsers::{parse_base_url, parse_project};

const KEY_FILE: &str = "analytics.deliver.keyFile";
const DEFAULT_INTERVAL: Duration = Duration::from_mins(1);
/// The default size of the searches that may wait, in bytes.
const DEFAULT_QUEUE_BYTES: u64 = 64 << 20;

/// The delivery of what this host records to an origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliverySettings {
    /// The URL of the API of the origin.
    pub base: SafeUrl,
    /// The project of the origin that receives it.
    pub project: String,
    /// The file with the key of the origin. It is read for each delivery, because the key may have been replaced.
    pub key_file: PathBuf,
    /// The time between two deliveries.
    pub interval: Duration,
    /// The size of the searches that may wait, in bytes.
    pub queue_bytes: u64,
    /// The settings of connections.
    pub network: NetworkSettings,
}

impl DeliverySettings {
    /// Returns a warning if the mode of the file with the key allows more than 0640.
    pub fn mode_warning(&self) -> Option<String> {
        mode_warning(&self.key_file, KEY_FILE)
    }
}

/// Checks `[analytics.deliver]`. Returns `None` without `baseUrl`, or if there is a mistake. `project` is the default
/// project.
pub(super) fn check_delivery(
    checker: &mut ValueChecker<'_>,
    base_of: &dyn Fn(&str) -> PathBuf,
    project: &str,
    network: &NetworkSettings,
) -> Option<DeliverySettings> {
    const BASE_URL: &str = "analytics.deliver.baseUrl";
    let base = checker.parsed(BASE_URL, |text| check_outbound_url(parse_base_url(text)?, &network.outbound));
    let project = checker.parsed("analytics.deliver.projectId", parse_project).unwrap_or_else(|| project.to_owned());
    let key_file = checker.text(KEY_FILE).map(|path| base_of(KEY_FILE).join(path));
    let interval = checker.duration("analytics.deliver.interval").unwrap_or(DEFAULT_INTERVAL);
    let queue_bytes = check_queue(checker).unwrap_or(DEFAULT_QUEUE_BYTES);
    let raw = checker.raw;
    for (present, missing) in [(BASE_URL, KEY_FILE), (KEY_FILE, BASE_URL)] {
        if let (Some(written), None) = (raw.get(present), raw.get(missing)) {
            let message = format!("{missing} is missing: [analytics.deliver] needs baseUrl and keyFile");
            checker.problems.push(ConfigProblem { place: written.place.clone(), message });
        }
    }
    Some(DeliverySettings {
        base: base?,
        project,
        key_file: key_file?,
        interval,
        queue_bytes,
        network: network.clone(),
    })
}

fn check_queue(checker: &mut ValueChecker<'_>) -> Option<u64> {
    const KEY: &str = "analytics.deliver.queue";
    let (min, _) = checker.number_bounds(KEY);
    let bytes = checker.size(KEY)?;
    if bytes < min {
        return checker.value(KEY, |_| Err(format!("at least {} is needed", exact_size(min))));
    }
    Some(bytes)
}
