//! Checks the clock against the servers that have responded, otherwise against the newest receipt in the store.

use std::path::Path;
use std::time::{Duration, SystemTime};

use docwharf_agent::store::VersionStore;
use docwharf_base::model::units::{parse_time, show_unix, unix_seconds};

use super::Check;
use super::network::Dated;

const NAME: &str = "clock";
/// More than this is a warning: links and schedules are affected.
const WORTH_TELLING: Duration = Duration::from_mins(1);
/// From this on it is an error: signed requests and certificates are refused.
const TOO_FAR: Duration = Duration::from_mins(15);
const ADVICE: &str = "set the clock, and keep it right: timedatectl set-ntp true";

pub(super) fn check(store: Option<&Path>, dates: &[Dated]) -> Check {
    let farthest = dates.iter().map(|dated| (off(dated), dated)).max_by_key(|((off, _), _)| *off);
    if let Some(((off, way), dated)) = farthest {
        let found = format!("{} s {way} {}", off.as_secs(), dated.host);
        return match off {
            off if off >= TOO_FAR => Check::error(NAME, found, ADVICE),
            off if off > WORTH_TELLING => Check::warning(NAME, found, ADVICE),
            _ => Check::ok(NAME, format!("within a minute of {}", dated.host)),
        };
    }
    let now = unix_seconds(SystemTime::now());
    match store.and_then(newest) {
        Some(newest) if newest > now + WORTH_TELLING.as_secs().cast_signed() => {
            let found = format!("it says {}, but the newest receipt is of {}", show_unix(now), show_unix(newest));
            Check::error(NAME, found, ADVICE)
        }
        _ => Check::ok(NAME, format!("{}; compared with no other clock", show_unix(now))),
    }
}

fn off(dated: &Dated) -> (Duration, &'static str) {
    match dated.ours.duration_since(dated.theirs) {
        Ok(off) => (off, "ahead of"),
        Err(error) => (error.duration(), "behind"),
    }
}

/// Returns when the newest version arrived last, in seconds since 1970.
fn newest(root: &Path) -> Option<i64> {
    let versions = VersionStore::at(root).versions().ok()?;
    parse_time(&versions.first()?.receipts.last()?.time)
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn the_server_from_which_the_clock_is_farthest_decides_in_either_direction() {
        for (seconds, status, found) in [
            (&[0][..], Verdict::Ok, "within a minute of host0"),
            (&[60, -60], Verdict::Ok, "within a minute of"),
            (&[61], Verdict::Warning, "61 s ahead of host0"),
            (&[-61], Verdict::Warning, "61 s behind host0"),
            (&[0, -899, 61], Verdict::Warning, "899 s behind host1"),
            (&[900, 0], Verdict::Error, "900 s ahead of host0"),
            (&[0, -900], Verdict::Error, "900 s behind host1"),
        ] {
            let ours = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
            let dates = seconds.iter().enumerate().map(|(at, &off): (usize, &i64)| {
                let off_by = Duration::from_secs(off.unsigned_abs());
                Dated { host: format!("host{at}"), theirs: if off < 0 { ours + off_by } else { ours - off_by }, ours }
            });
            let check = check(None, &dates.collect::<Vec<_>>());
            assert!(check.status == status && check.found.starts_with(found), "{seconds:?}: {check:?}");
            assert_eq!(check.advice.as_deref(), (status != Verdict::Ok).then_some(ADVICE), "{seconds:?}");
        }
    }
}
