//! `[limits.organization]` and `[limits.total]` of an origin.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::{Spanned, Value};

use super::OriginChecker;
use docwharf_base::model::units::{parse_duration, parse_size};
use docwharf_origin::{LimitUnit, OriginLimits, SharedResource};

/// The values of a table by their keys.
type LimitTable = BTreeMap<String, Spanned<Value>>;

/// Both tables as written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct WrittenLimits {
    organization: LimitTable,
    total: LimitTable,
}

/// A key in another section that sets the same limit as a key of `[limits.total]`.
#[derive(Debug)]
pub(super) struct LimitAlias {
    pub(super) key: &'static str,
    pub(super) resource: SharedResource,
    pub(super) value: Spanned<u64>,
}

impl OriginChecker<'_> {
    /// Checks the limits, combined with those that other keys set.
    pub(super) fn limits(&mut self, written: &WrittenLimits, aliases: &[LimitAlias]) -> OriginLimits {
        let organization = self.table("limits.organization", &written.organization);
        let mut total = self.table("limits.total", &written.total);
        for LimitAlias { key, resource, value: at } in aliases {
            let value = *at.get_ref();
            if *total.entry(*resource).or_insert(value) != value {
                let what = format!("{key}: limits.total.{} has another value; remove one of the two", resource.key());
                self.problem(at, what);
            }
        }
        let limits = OriginLimits::from_config(
            |resource| organization.get(&resource).copied(),
            |resource| total.get(&resource).copied(),
        );
        let wrong = match limits {
            Ok(limits) => return limits,
            Err(wrong) => wrong,
        };
        for resource in wrong {
            let key = resource.key();
            let Some(at) = written.organization.get(key) else { continue };
            let what = format!("limits.organization.{key}: it is more than all together may have (limits.total.{key})");
            self.problem(at, what);
        }
        OriginLimits::default()
    }

    fn table(&mut self, name: &str, table: &LimitTable) -> BTreeMap<SharedResource, u64> {
        let mut values = BTreeMap::new();
        for (key, written) in table {
            let Some(resource) = SharedResource::ALL.into_iter().find(|resource| resource.key() == key) else {
                let keys: Vec<_> = SharedResource::ALL.into_iter().map(SharedResource::key).collect();
                self.problem(written, format!("{name}.{key}: unknown limit; the limits are {}", keys.join(", ")));
                continue;
            };
            match value(written.get_ref(), resource.unit()) {
                Ok(value) => drop(values.insert(resource, value)),
                Err(why) => self.problem(written, format!("{name}.{key}: {why}")),
            }
        }
        values
    }
}

fn value(written: &Value, unit: LimitUnit) -> Result<u64, String> {
    let value = match (unit, written) {
        (LimitUnit::Count, Value::Integer(number)) => u64::try_from(*number).unwrap_or(0),
        (LimitUnit::Bytes, Value::String(text)) => parse_size(text)?,
        (LimitUnit::Time, Value::String(text)) => {
            u64::try_from(parse_duration(text)?.as_millis()).map_err(|_| format!("{text:?} is too long"))?
        }
        (LimitUnit::Count, _) => return Err("write a number, like 1000".to_owned()),
        (LimitUnit::Bytes, _) => return Err("write a size, like \"4GiB\"".to_owned()),
        (LimitUnit::Time, _) => return Err("write a time, like \"1h\"".to_owned()),
    };
    // SQLite stores signed integers of 64 bits.
    if (1..=i64::MAX.cast_unsigned()).contains(&value) { Ok(value) } else { Err("at least 1 is needed".to_owned()) }
}
