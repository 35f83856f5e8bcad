//! Hosts as requests and settings name them. Pure.

use std::net::{IpAddr, Ipv6Addr};

use http::HeaderValue;

use super::host_field::is_host;

/// The port of http where an address names none (RFC 9110, section 4.2.1).
pub(super) const HTTP_PORT: u16 = 80;
/// The port of https where an address names none (RFC 9110, section 4.2.2).
pub(super) const HTTPS_PORT: u16 = 443;

/// The longest name in a message, in characters.
const MAX_NAME_CHARS: usize = 255;

/// A host with an optional port, as in `Host`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostAndPort {
    pub(super) host: HostName,
    /// The port; `None` if it is the default port of the scheme.
    pub(super) port: Option<u16>,
}

/// The hosts of a site (`assistant.hosts`), each with a port if only that port is meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostList(Vec<HostAndPort>);

impl HostList {
    /// Parses hosts as they are in the field `Host`. One that is malformed is left out: the configuration refuses it.
    pub fn parse<T: AsRef<str>>(hosts: &[T]) -> HostList {
        let parse = |host: &T| HostAndPort::parse(&HeaderValue::from_str(host.as_ref()).ok()?);
        HostList(hosts.iter().filter_map(parse).collect())
    }

    /// Returns whether there are no hosts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A host: a name, in lower case, or an IP address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HostName {
    Name(String),
    Address(IpAddr),
}

impl HostName {
    /// Returns the host for a message. A name is cut to the length that names can have (RFC 1035, section 2.3.4).
    pub(super) fn describe(&self) -> String {
        match self {
            HostName::Name(name) => name.chars().take(MAX_NAME_CHARS).collect(),
            HostName::Address(address) => address.to_string(),
        }
    }
}

impl HostAndPort {
    /// Parses the value of a Host field; `None` if it is not a host with an optional port (RFC 9112, section 3.2).
    pub(super) fn parse(value: &HeaderValue) -> Option<HostAndPort> {
        let text = value.to_str().ok().filter(|_| is_host(value))?;
        // The colons of an IPv6 address are within brackets.
        let host_end = text.find(']').map_or(0, |bracket| bracket + 1);
        let colon = text[host_end..].find(':').map(|colon| host_end + colon);
        let (host, port) = text.split_at(colon.unwrap_or(text.len()));
        let port = match port.strip_prefix(':').unwrap_or_default() {
            "" => None,
            digits => Some(digits.parse().ok()?),
        };
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(address) => HostName::Address(address.parse::<Ipv6Addr>().ok()?.into()),
            None => match host.parse::<IpAddr>() {
                Ok(address) => HostName::Address(address),
                Err(_) => HostName::Name(host.to_ascii_lowercase()),
            },
        };
        Some(HostAndPort { host, port })
    }

    /// Returns whether the host is this machine: a loopback address, `localhost` or a name below it (RFC 6761, section
    /// 6.3).
    pub(super) fn is_loopback(&self) -> bool {
        match &self.host {
            HostName::Address(address) => address.to_canonical().is_loopback(),
            HostName::Name(name) => {
                let name = without_final_dot(name);
                name == "localhost" || name.ends_with(".localhost")
            }
        }
    }

    /// Returns whether the host is an IP address.
    pub(super) fn is_address(&self) -> bool {
        matches!(self.host, HostName::Address(_))
    }

    /// Returns whether the host is in a list.
    pub(super) fn is_listed(&self, hosts: &HostList) -> bool {
        hosts.0.iter().any(|listed| self.is_same_host(listed) && listed.is_port_met_by(self.port))
    }

    /// Returns whether both may be the same, if the default port of one scheme is named or not.
    pub(super) fn may_be_same(&self, other: &HostAndPort) -> bool {
        let is_default = |port: Option<u16>| port.is_none_or(|port| port == HTTP_PORT || port == HTTPS_PORT);
        let is_same_port = self.port == other.port || is_default(self.port) && is_default(other.port);
        is_same_port && self.is_same_host(other)
    }

    fn is_same_host(&self, other: &HostAndPort) -> bool {
        match (&self.host, &other.host) {
            (HostName::Name(one), HostName::Name(other)) => without_final_dot(one) == without_final_dot(other),
            (one, other) => one == other,
        }
    }

    /// Returns whether a request for this port is for the port of this element of a list. The scheme of a request
    /// without a port is unknown if a proxy decrypts it.
    fn is_port_met_by(&self, port: Option<u16>) -> bool {
        match (self.port, port) {
            (None, _) => true,
            (Some(listed), None) => listed == HTTP_PORT || listed == HTTPS_PORT,
            (Some(listed), Some(port)) => listed == port,
        }
    }
}

/// Removes the dot that ends a fully qualified name.
fn without_final_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}
