//! Parts of every request to an upstream server: the client and its settings, errors, and retry rules.
//!
//! [`client`] builds the HTTP client. [`connect`] decides about each connection; [`hosts_file`] looks names up for an
//! air-gapped process. [`public_address`] tells addresses of the internet from all others. [`redirects`] follows
//! redirects as far as a policy allows. [`certificate`] reads dates and names of a certificate. [`request_error`]
//! describes a failed request in one line. [`retry`] decides, without clock or socket, whether and when to retry.

pub mod certificate;
pub mod client;
pub mod connect;
pub mod hosts_file;
pub mod public_address;
pub mod redirects;
pub mod request_error;
pub mod retry;

use std::path::PathBuf;
use std::time::Duration;

use crate::model::deployment::OutboundPolicy;

/// Timeouts and limits of requests to upstreams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkSettings {
    /// Timeout for establishing a connection, name resolution and TLS handshake included.
    pub connect_timeout: Duration,
    /// Timeout of one API call as a whole.
    pub call_timeout: Duration,
    /// Timeout of a download that receives no bytes; the download as a whole has no timeout.
    pub idle_timeout: Duration,
    /// Pause before the first poll of a job.
    pub first_poll_pause: Duration,
    /// Upper bound of the pause between polls, which grows.
    pub max_poll_pause: Duration,
    /// Upper bound of the number of redirects of one request.
    pub max_redirects: usize,
    /// Whether proxies from the environment are ignored.
    pub ignore_proxies: bool,
    /// File of additional root certificates, PEM.
    pub ca_file: Option<PathBuf>,
    /// The connections that are permitted.
    pub outbound: OutboundPolicy,
}

impl Default for NetworkSettings {
    fn default() -> Self {
        NetworkSettings {
            connect_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(30),
            first_poll_pause: Duration::from_secs(1),
            max_poll_pause: Duration::from_secs(10),
            max_redirects: 10,
            ignore_proxies: false,
            ca_file: None,
            outbound: OutboundPolicy::Any,
        }
    }
}

/// Formats a duration for messages: `30 s`, `0.5 s`.
pub fn format_seconds(duration: Duration) -> String {
    format!("{} s", (duration.as_secs_f64() * 10.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_network_settings_are_the_documented_ones() {
        let seconds = Duration::from_secs;
        let network = NetworkSettings {
            connect_timeout: seconds(10),
            call_timeout: seconds(30),
            idle_timeout: seconds(30),
            first_poll_pause: seconds(1),
            max_poll_pause: seconds(10),
            max_redirects: 10,
            ignore_proxies: false,
            ca_file: None,
            outbound: OutboundPolicy::Any,
        };
        assert_eq!(NetworkSettings::default(), network);
    }

    #[test]
    fn durations_are_formatted_to_a_tenth_of_a_second() {
        for (millis, expected) in
            [(0, "0 s"), (40, "0 s"), (50, "0.1 s"), (500, "0.5 s"), (1260, "1.3 s"), (30_000, "30 s")]
        {
            assert_eq!(format_seconds(Duration::from_millis(millis)), expected);
        }
    }
}
