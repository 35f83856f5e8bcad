//! The settings of the API playground: the APIs to which "Try it" forms of a site may send requests.

use std::num::NonZeroU32;
use std::time::Duration;

use http::Method;

use docwharf_base::model::cidr::IpRange;
use docwharf_base::net::NetworkSettings;
use docwharf_site::rules::pattern::Pattern;

use super::named_host::HostList;

/// The section `[playground]` of a site that has it enabled. It is replaced with [`Site::set_playground_settings`].
///
/// [`Site::set_playground_settings`]: crate::Site::set_playground_settings
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaygroundSettings {
    /// The targets of requests.
    pub allow: Vec<AllowedTarget>,
    /// The hosts of this site (`assistant.hosts`).
    pub hosts: HostList,
    /// The deadline for a complete response of a target.
    pub timeout: Duration,
    /// The largest body of a request to a target, in bytes.
    pub max_request: u64,
    /// The largest body of a response of a target, in bytes. A longer one is cut.
    pub max_response: u64,
    /// The number of requests of a network address in a minute.
    pub per_minute: NonZeroU32,
    /// Whether the script of the site sends the requests of a page to the targets through the playground.
    pub rewrite: bool,
    /// How targets are reached.
    pub network: NetworkSettings,
}

/// An element of `playground.allow`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedTarget {
    /// Whether the scheme is https.
    pub is_https: bool,
    /// The host name in lower case, or the IP address; one of IPv6 in brackets.
    pub host: String,
    /// The port, also if it is the default one.
    pub port: u16,
    /// The methods of requests.
    pub methods: Vec<Method>,
    /// The paths of requests, of which one must match; empty if all are allowed.
    pub paths: Vec<Pattern>,
    /// The addresses that are allowed although they are not public.
    pub addresses: Vec<IpRange>,
}
