//! Basics of every request to an upstream: the client and its settings, errors, and retry rules.
//!
//! [`client`] builds the HTTP client. [`certificate`] reads dates and names of a certificate. [`trouble`] describes a
//! failed request in one line. [`retry`] decides, without clock or socket, whether and when to retry.

pub mod certificate;
pub mod client;
pub mod retry;
pub mod trouble;

use std::path::PathBuf;
use std::time::Duration;

/// Timeouts and limits of requests to upstreams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// Timeout for establishing a connection, name resolution and TLS handshake included.
    pub connect: Duration,
    /// Timeout of one API call as a whole.
    pub call: Duration,
    /// Timeout of silence within a download; the download as a whole has no timeout.
    pub idle: Duration,
    /// Pause before the first poll of a job.
    pub poll_first: Duration,
    /// Upper bound of the pause between polls, which grows.
    pub poll_most: Duration,
    /// Upper bound of the number of redirects of one request.
    pub redirects: usize,
    /// Whether proxies from the environment are ignored.
    pub direct: bool,
    /// File of additional root certificates, PEM.
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

/// Formats a duration for messages: `30 s`, `0.5 s`.
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
