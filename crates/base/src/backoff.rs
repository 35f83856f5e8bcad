//! Waits between retries, and random variation that keeps many instances from retrying at the same time.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Returns the wait after this many failures in a row: 5 s, doubled each time, at most 10 min.
pub fn wait_after_failures(failures: u32) -> Duration {
    const FIRST_WAIT: Duration = Duration::from_secs(5);
    const MAX_WAIT: Duration = Duration::from_mins(10);
    let doublings = failures.saturating_sub(1).min(16);
    (FIRST_WAIT * 2u32.saturating_pow(doublings)).min(MAX_WAIT)
}

/// Returns the wait before attempt `n` + 1 within a sync: 1, 2, 4, 8 s, times 0.5 to 1.0. `random` is between 0 and 1.
pub fn wait_after_attempt(n: u32, random: f64) -> Duration {
    Duration::from_secs(1 << n.saturating_sub(1).min(3)).mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
}

/// Returns a random number from 0 to 1.
pub fn random_fraction() -> f64 {
    // The standard library seeds its hashers from the system's randomness, which is random enough to spread timers.
    (RandomState::new().hash_one(0) % 1001) as f64 / 1000.0
}

/// Varies `wait` by up to a tenth in either direction. `random` is between 0 and 1; 0.5 changes nothing.
pub fn add_jitter(wait: Duration, random: f64) -> Duration {
    wait.mul_f64(0.9 + random.clamp(0.0, 1.0) * 0.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_from_five_seconds_to_ten_minutes() {
        let waits: Vec<u64> = (1..=9).map(|n| wait_after_failures(n).as_secs()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 600, 600]);
        assert_eq!(wait_after_failures(u32::MAX).as_secs(), 600);
    }

    #[test]
    fn jitter_stays_within_a_tenth() {
        for _ in 0..1000 {
            let wait = add_jitter(Duration::from_secs(100), random_fraction()).as_secs_f64();
            assert!((89.9..=110.1).contains(&wait), "{wait}");
        }
    }

    #[test]
    fn jitter_and_retry_pauses_stay_within_their_bounds() {
        let millis = |n, random| wait_after_attempt(n, random).as_millis();
        for (n, max) in [(0, 1000), (1, 1000), (2, 2000), (3, 4000), (4, 8000), (5, 8000), (u32::MAX, 8000)] {
            assert_eq!([0.0, 0.5, 1.0].map(|random| millis(n, random)), [max / 2, max * 3 / 4, max], "{n}");
            assert_eq!([-1.0, 2.0].map(|random| millis(n, random)), [max / 2, max], "{n}");
        }
        let varied = |random| add_jitter(Duration::from_secs(100), random).as_millis();
        assert_eq!([-1.0, 0.0, 0.5, 1.0, 2.0].map(varied), [90_000, 90_000, 100_000, 110_000, 110_000]);
        assert_eq!(wait_after_failures(0).as_secs(), 5);
        let first = random_fraction();
        assert!((0..100).map(|_| random_fraction()).all(|next| (0.0..=1.0).contains(&next)));
        assert!((0..100).any(|_| random_fraction().to_bits() != first.to_bits()), "the random numbers differ");
    }
}
