//! `[limits.organization]` and `[limits.total]` of an origin.

use std::collections::BTreeMap;
use std::time::Duration;

use docwharf_base::model::units::{parse_duration, parse_size};
use docwharf_origin::{LimitUnit, OriginLimits, SharedResource};

use crate::config::checker::ValueChecker;
use crate::config::key_table::{ConfigKey, KEY, Section, ValueType};
use crate::config::written_value::ConfigValue;

const COUNT: ValueType = ValueType::Number { min: 1, max: i64::MAX.cast_unsigned() };
const BYTES: ValueType = ValueType::Size { min: 1, max: i64::MAX.cast_unsigned() };
const TIME: ValueType = ValueType::Duration { min: Duration::from_millis(1) };

const fn limit(name: &'static str, value_type: ValueType, default: &'static str, help: &'static str) -> ConfigKey {
    ConfigKey { name, value_type, default, help, ..KEY }
}

/// The limits of each organization.
pub(super) const ORGANIZATION_LIMITS: Section = Section {
    name: "limits.organization",
    keys: &[
        limit("limits.organization.workers", COUNT, "2", "exports that run at a time"),
        limit("limits.organization.waitingJobs", COUNT, "64", "exports that wait"),
        limit("limits.organization.crawlTime", TIME, "\"1h\"", "the time of running crawls"),
        limit("limits.organization.crawlAddresses", COUNT, "100000", "addresses of running crawls"),
        limit("limits.organization.previewBuilds", COUNT, "2", "previews that are built at a time"),
        limit("limits.organization.bodyBytes", BYTES, "\"24MiB\"", "request bodies that are received or processed"),
        limit("limits.organization.events", COUNT, "1000000", "searches accepted within an hour"),
        limit("limits.organization.rows", COUNT, "10000000", "stored searches, batches and daily counts"),
        limit("limits.organization.databaseBytes", BYTES, "\"4GiB\"", "bytes of the database"),
        limit("limits.organization.bundleBytes", BYTES, "\"20GiB\"", "stored bundles"),
        limit("limits.organization.links", COUNT, "1000", "links to bundles that are issued within an hour"),
        limit("limits.organization.buildMemory", BYTES, "\"2GiB\"", "memory of running builds"),
        limit("limits.organization.buildDisk", BYTES, "\"4GiB\"", "bytes that running builds write"),
        limit("limits.organization.buildProcesses", COUNT, "256", "processes of running builds"),
    ],
};

/// The limits of all organizations together.
pub(super) const TOTAL_LIMITS: Section = Section {
    name: "limits.total",
    keys: &[
        limit("limits.total.workers", COUNT, "2", "exports that run at a time"),
        limit("limits.total.waitingJobs", COUNT, "1024", "exports that wait"),
        limit("limits.total.crawlTime", TIME, "\"2h\"", "the time of running crawls"),
        limit("limits.total.crawlAddresses", COUNT, "200000", "addresses of running crawls"),
        limit("limits.total.previewBuilds", COUNT, "2", "previews that are built at a time"),
        limit("limits.total.bodyBytes", BYTES, "\"64MiB\"", "request bodies that are received or processed"),
        limit("limits.total.events", COUNT, "4000000", "searches accepted within an hour"),
        limit("limits.total.rows", COUNT, "40000000", "stored searches, batches and daily counts"),
        limit("limits.total.databaseBytes", BYTES, "\"16GiB\"", "bytes of the database"),
        limit("limits.total.bundleBytes", BYTES, "\"100GiB\"", "stored bundles"),
        limit("limits.total.links", COUNT, "10000", "links to bundles that are issued within an hour"),
        limit("limits.total.buildMemory", BYTES, "\"4GiB\"", "memory of running builds"),
        limit("limits.total.buildDisk", BYTES, "\"8GiB\"", "bytes that running builds write"),
        limit("limits.total.buildProcesses", COUNT, "512", "processes of running builds"),
    ],
};

/// The keys in other sections that set the same limit as a key of `[limits.total]`.
const ALIASES: [(&str, SharedResource); 3] = [
    ("exports.workers", SharedResource::Workers),
    ("previews.workers", SharedResource::PreviewBuilds),
    ("store.maxBytes", SharedResource::BundleBytes),
];

/// Checks the limits, combined with those that other keys set.
pub(super) fn check_limits(checker: &mut ValueChecker<'_>) -> OriginLimits {
    let organization = check_section(checker, ORGANIZATION_LIMITS.name);
    let mut total = check_section(checker, TOTAL_LIMITS.name);
    for (key, resource) in ALIASES {
        let value = match resource.unit() {
            LimitUnit::Bytes => checker.size(key),
            LimitUnit::Count | LimitUnit::Time => checker.number(key),
        };
        let Some(value) = value else { continue };
        if *total.entry(resource).or_insert(value) != value {
            let message = format!("limits.total.{} has another value; remove one of the two", resource.key());
            checker.value::<()>(key, |_| Err(message));
        }
    }
    let limits = OriginLimits::from_config(
        |resource| organization.get(&resource).copied(),
        |resource| total.get(&resource).copied(),
    );
    limits.unwrap_or_else(|exceeded| {
        for resource in exceeded {
            let key = resource.key();
            let message = format!("the value is more than limits.total.{key}, the limit of all organizations together");
            checker.value::<()>(&format!("{}.{key}", ORGANIZATION_LIMITS.name), |_| Err(message));
        }
        OriginLimits::default()
    })
}

fn check_section(checker: &mut ValueChecker<'_>, section: &str) -> BTreeMap<SharedResource, u64> {
    let value = |resource: SharedResource| {
        let key = format!("{section}.{}", resource.key());
        checker.value(&key, |value| parse_limit(value, resource.unit())).map(|value| (resource, value))
    };
    SharedResource::ALL.into_iter().filter_map(value).collect()
}

fn parse_limit(written: &ConfigValue, unit: LimitUnit) -> Result<u64, String> {
    let value = match (unit, written) {
        (LimitUnit::Count, ConfigValue::Number(number)) => u64::try_from(*number).unwrap_or(0),
        (LimitUnit::Bytes, ConfigValue::Text(text)) => parse_size(text)?,
        (LimitUnit::Time, ConfigValue::Text(text)) => {
            u64::try_from(parse_duration(text)?.as_millis()).map_err(|_| format!("{text:?} is too long"))?
        }
        (LimitUnit::Count, _) => return Err("write a number, like 1000".to_owned()),
        (LimitUnit::Bytes, _) => return Err("write a size, like \"4GiB\"".to_owned()),
        (LimitUnit::Time, _) => return Err("write a time, like \"1h\"".to_owned()),
    };
    // The database stores signed integers of 64 bits.
    if (1..=i64::MAX.cast_unsigned()).contains(&value) { Ok(value) } else { Err("at least 1 is needed".to_owned()) }
}
