//! How long to wait after a failure, and how to spread what many do at once.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The wait after this many failures in a row: 5 s, doubling, at most 10 min.
pub fn after(failures: u32) -> Duration {
    const FIRST: Duration = Duration::from_secs(5);
    const MOST: Duration = Duration::from_mins(10);
    let doublings = failures.saturating_sub(1).min(16);
    (FIRST * 2u32.saturating_pow(doublings)).min(MOST)
}

/// The pause before attempt `n` + 1 within a sync: 1, 2, 4, 8 s, times 0.5 to 1 as `random` (0 to 1) says.
pub fn step(n: u32, random: f64) -> Duration {
    Duration::from_secs(1 << n.saturating_sub(1).min(3)).mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
}

/// From 0 to 1 at random.
pub fn random() -> f64 {
    // The standard library seeds its hashers from the system's randomness; that is random enough to spread clocks.
    (RandomState::new().hash_one(0) % 1001) as f64 / 1000.0
}

/// `wait`, give or take a tenth as `random` (0 to 1) says.
pub fn jitter(wait: Duration, random: f64) -> Duration {
    wait.mul_f64(0.9 + random.clamp(0.0, 1.0) * 0.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_from_five_seconds_to_ten_minutes() {
        let waits: Vec<u64> = (1..=9).map(|n| after(n).as_secs()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 600, 600]);
        assert_eq!(after(u32::MAX).as_secs(), 600);
    }

    #[test]
    fn jitter_stays_within_a_tenth() {
        for _ in 0..1000 {
            let wait = jitter(Duration::from_secs(100), random()).as_secs_f64();
            assert!((89.9..=110.1).contains(&wait), "{wait}");
        }
    }
}
