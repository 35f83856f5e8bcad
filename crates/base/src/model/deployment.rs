//! Deployment types, and the outbound connections that each of them permits.

use core::net::{IpAddr, SocketAddr};
use std::fmt;
use std::sync::Arc;

use super::cidr::{IpRange, IpRangeError};

/// The environment in which docwharf runs: a column of the vendor's table of features.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeploymentType {
    /// On a host of the operator, which can reach other networks.
    #[default]
    ClientHosted,
    /// At a cloud provider.
    Cloud,
    /// On a host that must not reach other networks.
    AirGapped,
}

impl DeploymentType {
    /// All types, in the order in which documents list them.
    pub const ALL: [DeploymentType; 3] =
        [DeploymentType::ClientHosted, DeploymentType::Cloud, DeploymentType::AirGapped];

    /// Returns the name in configurations and output.
    pub const fn name(self) -> &'static str {
        match self {
            DeploymentType::ClientHosted => "client-hosted",
            DeploymentType::Cloud => "cloud",
            DeploymentType::AirGapped => "air-gapped",
        }
    }
}

impl fmt::Display for DeploymentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An element of `deployment.allow`: an address or a range of addresses to which an air-gapped docwharf may connect, on
/// one port or on all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllowedAddress {
    range: IpRange,
    port: Option<u16>,
}

impl AllowedAddress {
    /// Parses `10.0.0.5`, `10.0.0.0/8`, `10.0.0.5:443`, `10.0.0.0/8:443`, `fd00::/8` or `[fd00::/8]:443`. The error
    /// message says how to write an address.
    pub fn parse(text: &str) -> Result<AllowedAddress, String> {
        let error =
            || format!("{text:?} is not an address or range: write it like 10.0.0.5, 10.0.0.0/8:443 or [fd00::/8]:443");
        let (range, port) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once("]:").map(|(range, port)| (range, Some(port))).ok_or_else(error)?,
            // Without brackets, only IPv4 can have a port: an IPv6 address has at least two colons.
            None => match text.split_once(':') {
                Some((range, port)) if !port.contains(':') => (range, Some(port)),
                _ => (text, None),
            },
        };
        let is_bracketed = text.starts_with('[');
        if is_bracketed != (range.contains(':') && port.is_some()) {
            return Err(error());
        }
        let range = IpRange::parse(range).map_err(|why| match why {
            IpRangeError::Syntax { .. } => error(),
            // This message has both corrections.
            IpRangeError::NotFirstAddress { .. } => why.to_string(),
        })?;
        let port = port.map(|port| parse_port(port).ok_or_else(error)).transpose()?;
        Ok(AllowedAddress { range, port })
    }

    /// Returns whether a connection to this address and port is allowed. An IPv4 address and its IPv6-mapped form are
    /// the same address.
    pub fn contains(self, address: SocketAddr) -> bool {
        self.range.contains(address.ip()) && self.port.is_none_or(|port| port == address.port())
    }
}

/// Parses the number of a TCP port. Rust parses `+80` and `080` as numbers, but in an address they are typing errors.
fn parse_port(text: &str) -> Option<u16> {
    if text.starts_with(['+', '0']) { None } else { text.parse().ok() }
}

/// Formats the address so that [`AllowedAddress::parse`] can read it.
impl fmt::Display for AllowedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            None => self.range.fmt(f),
            Some(port) if self.range.is_ipv6() => write!(f, "[{}]:{port}", self.range),
            Some(port) => write!(f, "{}:{port}", self.range),
        }
    }
}

/// The section `[deployment]` of a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeploymentSettings {
    /// The type of this deployment.
    pub deployment_type: DeploymentType,
    /// The addresses to which an air-gapped docwharf may connect, besides loopback. Other types do not use them.
    pub allow: Vec<AllowedAddress>,
}

impl DeploymentSettings {
    /// Returns the outbound connections that this deployment permits.
    pub fn outbound_policy(&self) -> OutboundPolicy {
        match self.deployment_type {
            DeploymentType::ClientHosted | DeploymentType::Cloud => OutboundPolicy::Any,
            DeploymentType::AirGapped => OutboundPolicy::AirGapped { allow: self.allow.as_slice().into() },
        }
    }
}

/// The outbound connections that are permitted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum OutboundPolicy {
    /// All connections. Host names are looked up by the system.
    #[default]
    Any,
    /// Connections to loopback and to these addresses. No name server is asked.
    AirGapped {
        /// The permitted addresses besides loopback.
        allow: Arc<[AllowedAddress]>,
    },
}

impl OutboundPolicy {
    /// Returns whether a connection to this address and port is permitted.
    pub fn allows(&self, address: SocketAddr) -> bool {
        match self {
            OutboundPolicy::Any => true,
            OutboundPolicy::AirGapped { allow } => {
                is_loopback(address.ip()) || allow.iter().any(|allowed| allowed.contains(address))
            }
        }
    }

    /// Returns whether only some connections are permitted.
    pub fn is_air_gapped(&self) -> bool {
        matches!(self, OutboundPolicy::AirGapped { .. })
    }
}

/// Returns whether an address is this machine's own, also in IPv6-mapped form.
fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(allow: &[&str]) -> OutboundPolicy {
        let allow = allow.iter().map(|text| AllowedAddress::parse(text).unwrap()).collect();
        DeploymentSettings { deployment_type: DeploymentType::AirGapped, allow }.outbound_policy()
    }

    fn allows(allow: &[&str], address: &str) -> bool {
        policy(allow).allows(address.parse().unwrap())
    }

    #[test]
    fn deployment_types_have_the_names_of_the_feature_table() {
        assert_eq!(DeploymentType::ALL.map(DeploymentType::name), ["client-hosted", "cloud", "air-gapped"]);
        assert_eq!(DeploymentType::default(), DeploymentType::ClientHosted);
    }

    #[test]
    fn an_air_gapped_policy_allows_loopback_and_the_listed_addresses_only() {
        for (allow, inside, outside) in [
            (vec![], "127.0.0.1:80", "10.0.0.1:80"),
            (vec![], "127.255.3.4:1", "126.255.255.255:1"),
            (vec![], "[::1]:443", "[::2]:443"),
            (vec![], "[::ffff:127.0.0.1]:80", "[::ffff:10.0.0.1]:80"),
            (vec![], "127.0.0.1:80", "0.0.0.0:80"),
            (vec![], "127.0.0.1:80", "[::]:80"),
            (vec![], "127.0.0.1:80", "169.254.169.254:80"),
            (vec!["10.0.0.5"], "10.0.0.5:1", "10.0.0.6:1"),
            (vec!["10.0.0.0/8"], "10.255.0.1:65535", "11.0.0.0:80"),
            (vec!["10.0.0.0/8:443"], "10.255.0.1:443", "10.255.0.1:80"),
            (vec!["10.0.0.5:443"], "10.0.0.5:443", "10.0.0.5:444"),
            (vec!["10.0.0.5:443"], "[::ffff:10.0.0.5]:443", "[::10.0.0.5]:443"),
            (vec!["::ffff:10.0.0.0/104"], "10.1.2.3:1", "11.1.2.3:1"),
            (vec!["fd00::/8"], "[fdff::1]:80", "[fe80::1]:80"),
            (vec!["[fd00::/8]:443"], "[fdff::1]:443", "[fdff::1]:80"),
            (vec!["192.0.2.1", "[fd00::1]:443"], "[fd00::1]:443", "[fd00::1]:80"),
            (vec!["::/0"], "[2001:db8::1]:1", "203.0.113.9:1"),
        ] {
            assert!(allows(&allow, inside), "{inside} with {allow:?}");
            assert!(!allows(&allow, outside), "{outside} with {allow:?}");
        }
    }

    #[test]
    fn other_deployment_types_allow_every_address() {
        for deployment_type in [DeploymentType::ClientHosted, DeploymentType::Cloud] {
            let policy = DeploymentSettings { deployment_type, allow: Vec::new() }.outbound_policy();
            assert_eq!(policy, OutboundPolicy::Any);
            assert!(policy.allows("203.0.113.9:443".parse().unwrap()) && !policy.is_air_gapped());
        }
        assert!(policy(&[]).is_air_gapped());
    }

    #[test]
    fn an_allowed_address_is_formatted_in_its_canonical_form() {
        for (text, canonical) in [
            ("10.0.0.5", "10.0.0.5"),
            ("10.0.0.5/32", "10.0.0.5"),
            ("10.0.0.0/8:443", "10.0.0.0/8:443"),
            ("FD00:0::/8", "fd00::/8"),
            ("[fd00::/8]:443", "[fd00::/8]:443"),
            ("[fd00::1]:1", "[fd00::1]:1"),
            ("::ffff:10.0.0.5", "10.0.0.5"),
            ("[::ffff:10.0.0.0/104]:65535", "10.0.0.0/8:65535"),
        ] {
            let allowed = AllowedAddress::parse(text).unwrap();
            assert_eq!(allowed.to_string(), canonical);
            assert_eq!(AllowedAddress::parse(canonical), Ok(allowed));
        }
    }

    #[test]
    fn names_and_incomplete_addresses_are_refused_with_examples() {
        for wrong in [
            "",
            "localhost",
            "updates.example:443",
            "10.0.0.5:",
            "10.0.0.5:0",
            "10.0.0.5:+80",
            "10.0.0.5:080",
            "10.0.0.5:65536",
            "10.0.0.5:443/8",
            "10.0.0.0/33",
            "010.0.0.5",
            "[fd00::1]",
            "[fd00::/8]443",
            "[fd00::/8]:",
            "[10.0.0.5]:443",
            "[fd00::1",
            "fd00::/8:443",
            "fe80::1%eth0",
            "http://10.0.0.5",
        ] {
            let why = AllowedAddress::parse(wrong).unwrap_err();
            assert!(why.contains("write it like 10.0.0.5, 10.0.0.0/8:443 or [fd00::/8]:443"), "{wrong}: {why}");
        }
        let why = AllowedAddress::parse("10.1.2.3/8:443").unwrap_err();
        assert!(why.contains("write 10.0.0.0/8 or 10.1.2.3"), "{why}");
    }
}
