//! Checks the clock against the servers that have responded, otherwise against the newest receipt in the store.

use std::path::Path;
use std::time::Duration;

use docwharf_agent::store::VersionStore;
use docwharf_base::clock::now_unix_seconds;
use docwharf_base::model::units::{format_unix_seconds, parse_time};

use super::check::DoctorCheck;
use super::network::ServerDate;

const CHECK_NAME: &str = "clock";
/// An offset above this is a warning: links and schedules are affected.
const CLOCK_WARNING_OFFSET: Duration = Duration::from_mins(1);
/// An offset of at least this is an error: signed requests and certificates are refused.
const CLOCK_ERROR_OFFSET: Duration = Duration::from_mins(15);
const CLOCK_ADVICE: &str = "set the clock, and synchronize it: timedatectl set-ntp true";

pub(super) fn check(store: Option<&Path>, dates: &[ServerDate]) -> DoctorCheck {
    let farthest = dates.iter().map(|date| (clock_offset(date), date)).max_by_key(|((off, _), _)| *off);
    if let Some(((off, direction), date)) = farthest {
        let found = format!("{} s {direction} {}", off.as_secs(), date.host);
        return match off {
            off if off >= CLOCK_ERROR_OFFSET => DoctorCheck::error(CHECK_NAME, found, CLOCK_ADVICE),
            off if off > CLOCK_WARNING_OFFSET => DoctorCheck::warning(CHECK_NAME, found, CLOCK_ADVICE),
            _ => DoctorCheck::ok(CHECK_NAME, format!("within a minute of {}", date.host)),
        };
    }
    let now = now_unix_seconds();
    match store.and_then(newest) {
        Some(newest) if newest > now + CLOCK_WARNING_OFFSET.as_secs().cast_signed() => {
            let found = format!(
                "it shows {}, but the newest receipt is of {}",
                format_unix_seconds(now),
                format_unix_seconds(newest)
            );
            DoctorCheck::error(CHECK_NAME, found, CLOCK_ADVICE)
        }
        _ => DoctorCheck::ok(CHECK_NAME, format!("{}; not checked: no server sent its time", format_unix_seconds(now))),
    }
}

fn clock_offset(date: &ServerDate) -> (Duration, &'static str) {
    match date.local_time.duration_since(date.server_time) {
        Ok(off) => (off, "ahead of"),
        Err(error) => (error.duration(), "behind"),
    }
}

/// Returns the time at which the newest version arrived last, in seconds since 1970.
fn newest(root: &Path) -> Option<i64> {
    let versions = VersionStore::at(root).versions().ok()?;
    parse_time(&versions.first()?.receipts.last()?.time)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::super::check::CheckStatus;
    use super::*;

    #[test]
    fn clock_check_reports_the_server_with_the_largest_offset_in_either_direction() {
        for (seconds, status, found) in [
            (&[0][..], CheckStatus::Ok, "within a minute of host0"),
            (&[60, -60], CheckStatus::Ok, "within a minute of"),
            (&[61], CheckStatus::Warning, "61 s ahead of host0"),
            (&[-61], CheckStatus::Warning, "61 s behind host0"),
            (&[0, -899, 61], CheckStatus::Warning, "899 s behind host1"),
            (&[900, 0], CheckStatus::Error, "900 s ahead of host0"),
            (&[0, -900], CheckStatus::Error, "900 s behind host1"),
        ] {
            let local_time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
            let dates = seconds.iter().enumerate().map(|(at, &off): (usize, &i64)| {
                let off_by = Duration::from_secs(off.unsigned_abs());
                ServerDate {
                    host: format!("host{at}"),
                    server_time: if off < 0 { local_time + off_by } else { local_time - off_by },
                    local_time,
                }
            });
            let check = check(None, &dates.collect::<Vec<_>>());
            assert!(check.status == status && check.found.starts_with(found), "{seconds:?}: {check:?}");
            assert_eq!(check.advice.as_deref(), (status != CheckStatus::Ok).then_some(CLOCK_ADVICE), "{seconds:?}");
        }
        let unchecked = check(None, &[]);
        assert_eq!(unchecked.status, CheckStatus::Ok);
        assert!(unchecked.found.ends_with("; not checked: no server sent its time"), "{unchecked:?}");
    }
}
