//! What every call to an upstream has in common: the client and its roots, what can go wrong, and when to try again.
//!
//! [`client`] builds the HTTP client; [`certificate`] reads what a certificate says of itself; [`trouble`] says in one line why there is no good answer; [`retry`] decides,
//! without clock or socket, whether and when to ask again.

pub mod certificate;
pub mod client;
pub mod retry;
pub mod trouble;

use std::path::PathBuf;
use std::time::Duration;

/// How patient we are with upstreams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// For a connection to stand, names resolved and TLS agreed on.
    pub connect: Duration,
    /// For one API call as a whole.
    pub call: Duration,
    /// For silence within a download; there is no limit on the whole.
    pub idle: Duration,
    /// Before the first poll of a job.
    pub poll_first: Duration,
    /// Between polls, after they have grown.
    pub poll_most: Duration,
    /// Hops from a link to what it leads to.
    pub redirects: usize,
    /// Whether proxies from the environment are left alone.
    pub direct: bool,
    /// Further root certificates, PEM.
    pub ca_file: Option<PathBuf>,
}

impl Default for Network {
    fn default() -> Self {
        Network {
            connect: Duration::from_secs(10),
            call: Duration::from_secs(30),
            idle: Duration::from_secs(30),
            poll_first: Duration::from_secs(1),
            poll_most: Duration::from_secs(10),
            redirects: 10,
            direct: false,
            ca_file: None,
        }
    }
}

/// A duration for messages: `30 s`, `0.5 s`.
pub fn seconds(duration: Duration) -> String {
    format!("{} s", (duration.as_secs_f64() * 10.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_settings_patience_is_what_the_manual_says() {
        let seconds = Duration::from_secs;
        let network = Network {
            connect: seconds(10),
            call: seconds(30),
            idle: seconds(30),
            poll_first: seconds(1),
            poll_most: seconds(10),
            redirects: 10,
            direct: false,
            ca_file: None,
        };
        assert_eq!(Network::default(), network);
    }

    #[test]
    fn durations_are_told_to_a_tenth_of_a_second() {
        for (millis, said) in
            [(0, "0 s"), (40, "0 s"), (50, "0.1 s"), (500, "0.5 s"), (1260, "1.3 s"), (30_000, "30 s")]
        {
            assert_eq!(seconds(Duration::from_millis(millis)), said);
        }
    }
}
