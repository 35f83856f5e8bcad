//! Configurations: random ones, and one under which the newest content has to become active.

use std::path::PathBuf;
use std::time::Duration;

use docwharf::api::preview::StatusPath;
use docwharf::base::secret::{SafeUrl, Secret};
use docwharf::model::version::VersionLabel;
use docwharf::store::space::SpaceLimits;
use docwharf::sync::api_key::ApiKeyLocation;
use docwharf::sync::gate::GateConditions;
use docwharf::sync::schedule::Schedule;
use docwharf::sync::{ActivationMode, ApiSource, BundleLocation, SyncSettings};

use super::random::Random;

/// Path of the configured bundle file.
pub(crate) const FILE: &str = "/drop/bundle.zip";

fn url(text: &str) -> SafeUrl {
    SafeUrl::parse(text).expect("a URL")
}

fn api(domain: &str) -> ApiSource {
    ApiSource {
        base: url("https://api.test/v1"),
        domain: domain.to_owned(),
        project: None,
        status_path: StatusPath::default(),
        api_key: ApiKeyLocation::Environment(Secret::new("key".to_owned())),
    }
}

/// Returns a random configuration.
pub(crate) fn any(random: &mut Random) -> SyncSettings {
    let minutes = Duration::from_mins;
    let kind = random.below(20);
    let with_api = kind < 15;
    let bundle = match kind {
        0..=11 => None,
        12 | 13 | 15..=17 => Some(BundleLocation::Link(url("https://files.test/bundle.zip?sig=secret"))),
        _ => Some(BundleLocation::File(PathBuf::from(FILE))),
    };
    let api = with_api.then(|| api(random.pick(&["a.test", "a.test", "a.test", "b.test"])));
    let domain = api.as_ref().map_or_else(String::new, |api| api.domain.clone());
    let exports_at_each_check = random.happens(0.3);
    let probes =
        if exports_at_each_check { Vec::new() } else { vec![url(&format!("https://{domain}.test/sitemap.xml"))] };
    let pin = random.happens(0.35).then(|| VersionLabel::new(random.pick(&["one", "two"])).expect("a label"));
    SyncSettings {
        enabled: random.happens(0.93),
        bundle,
        api,
        pin,
        exports_at_each_check,
        probes: if with_api { probes } else { Vec::new() },
        interval: random.pick(&[minutes(1), minutes(15), minutes(15), minutes(24 * 60)]),
        max_age: random.pick(&[minutes(60), minutes(24 * 60)]),
        job_timeout: random.pick(&[minutes(5), minutes(30), minutes(30)]),
        space_limits: SpaceLimits {
            keep: random.below(4) as usize,
            max_bytes: random.happens(0.2).then_some(40_000_000),
            min_free: random.happens(0.2).then_some(20_000_000),
        },
        gate: GateConditions { min_pages: random.happens(0.2).then_some(8), ..GateConditions::default() },
        activation: if random.happens(0.1) { ActivationMode::Manual } else { ActivationMode::Auto },
        ..SyncSettings::default()
    }
}

/// Returns a schedule, or none in most cases. It has the same minutes in every time zone, so that a run can be repeated
/// on any machine.
pub(crate) fn schedule(random: &mut Random) -> Option<Schedule> {
    random.happens(0.3).then(|| Schedule::parse("*/15 * * * *").expect("a schedule"))
}

/// Returns `config` without the settings that can keep the newest version from becoming active.
pub(crate) fn unrestricted(config: &SyncSettings) -> SyncSettings {
    SyncSettings {
        enabled: true,
        gate: GateConditions::default(),
        activation: ActivationMode::Auto,
        space_limits: SpaceLimits { keep: 2, max_bytes: None, min_free: None },
        ..config.clone()
    }
}
