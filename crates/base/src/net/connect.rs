//! The only module that opens outbound connections. Every outbound TCP connection and every lookup of a host name
//! passes through it, and the [`OutboundPolicy`] decides about each.
//!
//! An air-gapped process connects to loopback and to the allowed addresses only, and asks no name server. It looks
//! names up in `/etc/hosts` ([`hosts_file`]) at each connection. The HTTP client connects by itself, so the policy is
//! in two places that each of its connections passes:
//!
//! - [`HttpClient`](super::client::HttpClient) creates each request, also each one that follows a redirect, and checks
//!   its URL with [`check_url`] before. This covers addresses in URLs, for which the HTTP library asks no resolver.
//! - [`PolicyResolver`] is the resolver of the HTTP library for names. It returns permitted addresses only.
//!
//! A connector layer of the HTTP library would be one place, but the library hides the target of a connection from it.
//! Other code cannot connect: `clippy.toml` disallows the methods of all libraries that do.

use std::io;
use std::net::{IpAddr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::net::TcpStream;
use url::{Host, Url};

use crate::model::deployment::OutboundPolicy;

use super::hosts_file::{self, HOSTS_FILE};

/// The reason why an air-gapped process does not connect.
#[derive(Debug, thiserror::Error)]
pub enum OutboundError {
    /// The address is not permitted.
    #[error("deployment.type is \"air-gapped\", and {0} is neither loopback nor in deployment.allow; add it there")]
    Address(SocketAddr),
    /// No address of the name is permitted. This is the first one.
    #[error(
        "deployment.type is \"air-gapped\", and {name} is {address} in {HOSTS_FILE}, which is neither loopback nor in \
         deployment.allow; add it there"
    )]
    Name {
        /// The host name.
        name: String,
        /// Its first address.
        address: SocketAddr,
    },
    /// The name is not in `/etc/hosts`.
    #[error(
        "deployment.type is \"air-gapped\", so host names are looked up in {HOSTS_FILE} only, and {0} is not there; \
         add it there, and its address to deployment.allow unless that is loopback"
    )]
    UnknownName(String),
    /// `/etc/hosts` cannot be read.
    #[error("cannot read {HOSTS_FILE}: {0}")]
    HostsFile(io::Error),
}

impl OutboundError {
    /// Returns whether the address was known and is not permitted.
    pub fn is_about_address(&self) -> bool {
        matches!(self, OutboundError::Address(_) | OutboundError::Name { .. })
    }
}

/// The reason why a host name has no address.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// The policy permits none.
    #[error(transparent)]
    Outbound(#[from] OutboundError),
    /// The lookup of the system failed.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Connects to an address, if the policy permits it.
pub async fn connect_tcp(address: SocketAddr, policy: &OutboundPolicy) -> io::Result<TcpStream> {
    check_address(address, policy).map_err(|error| io::Error::new(io::ErrorKind::PermissionDenied, error))?;
    #[allow(clippy::disallowed_methods)] // this module decides about all connections
    TcpStream::connect(address).await
}

/// Checks whether the policy permits connections to an address.
pub fn check_address(address: SocketAddr, policy: &OutboundPolicy) -> Result<(), OutboundError> {
    if policy.allows(address) { Ok(()) } else { Err(OutboundError::Address(address)) }
}

/// Checks whether the policy permits connections to the host and port of an http or https URL. An air-gapped policy
/// looks its name up.
pub fn check_url(url: &Url, policy: &OutboundPolicy) -> Result<(), OutboundError> {
    if !policy.is_air_gapped() {
        return Ok(());
    }
    let port = url.port_or_known_default().unwrap_or_default();
    match url.host() {
        Some(Host::Ipv4(ip)) => check_address((ip, port).into(), policy),
        Some(Host::Ipv6(ip)) => check_address((ip, port).into(), policy),
        Some(Host::Domain(name)) => permitted_addresses(name, port, policy).map(drop),
        None => Err(OutboundError::UnknownName(String::new())),
    }
}

/// Looks a host name or an address up: as the policy demands, or by the system if it permits all connections.
pub async fn lookup(host: &str, port: u16, policy: &OutboundPolicy) -> Result<Vec<SocketAddr>, LookupError> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        let address = SocketAddr::new(ip, port);
        check_address(address, policy)?;
        return Ok(vec![address]);
    }
    if policy.is_air_gapped() {
        return Ok(permitted_addresses(host, port, policy)?);
    }
    #[allow(clippy::disallowed_methods)] // this module decides about all lookups
    let addresses = tokio::net::lookup_host((host, port)).await?;
    Ok(addresses.collect())
}

/// Returns the addresses of a name in `/etc/hosts` that the policy permits: at least one. The file is small and local,
/// so reading it blocks no other task noticeably.
fn permitted_addresses(name: &str, port: u16, policy: &OutboundPolicy) -> Result<Vec<SocketAddr>, OutboundError> {
    let found = hosts_file::find_addresses(name).map_err(OutboundError::HostsFile)?;
    select_permitted(name, found, port, policy)
}

/// Selects the permitted addresses of a name.
fn select_permitted(
    name: &str,
    found: Vec<IpAddr>,
    port: u16,
    policy: &OutboundPolicy,
) -> Result<Vec<SocketAddr>, OutboundError> {
    let found: Vec<SocketAddr> = found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
    let Some(&first) = found.first() else { return Err(OutboundError::UnknownName(name.to_owned())) };
    let permitted: Vec<SocketAddr> = found.into_iter().filter(|&address| policy.allows(address)).collect();
    if permitted.is_empty() {
        return Err(OutboundError::Name { name: name.to_owned(), address: first });
    }
    Ok(permitted)
}

/// The resolver of an air-gapped HTTP client. The HTTP library passes it names only, without the port to which it
/// connects. A client with this resolver is therefore used for URLs with one port, and the resolver knows this port.
#[derive(Debug)]
pub(super) struct PolicyResolver {
    pub(super) policy: OutboundPolicy,
    pub(super) port: u16,
}

impl Resolve for PolicyResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let found = permitted_addresses(name.as_str(), self.port, &self.policy);
        Box::pin(std::future::ready(match found {
            Ok(addresses) => Ok(Box::new(addresses.into_iter()) as Addrs),
            Err(error) => Err(error.into()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::model::deployment::AllowedAddress;

    fn air_gapped(allow: &[&str]) -> OutboundPolicy {
        OutboundPolicy::AirGapped { allow: allow.iter().map(|text| AllowedAddress::parse(text).unwrap()).collect() }
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn an_air_gapped_process_connects_to_loopback_and_to_no_other_address() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(block_on(connect_tcp(address, &air_gapped(&[]))).unwrap().peer_addr().unwrap(), address);
        let error =
            block_on(connect_tcp("192.0.2.1:80".parse().unwrap(), &air_gapped(&["192.0.2.1:443"]))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(
            error.to_string(),
            "deployment.type is \"air-gapped\", and 192.0.2.1:80 is neither loopback nor in deployment.allow; add it \
             there"
        );
    }

    #[test]
    fn the_url_of_a_request_is_checked_however_its_address_is_written() {
        let policy = air_gapped(&["192.0.2.7:443", "[2001:db8::1]:8443"]);
        let check = |url: &str, policy: &OutboundPolicy| check_url(&Url::parse(url).unwrap(), policy);
        for permitted in [
            "http://127.0.0.1/",
            "http://127.1:9/",
            "http://2130706433/",
            "http://0x7f.0.0.1/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://localhost:8080/",
            "http://api.localhost/",
            "http://LOCALHOST./",
            "https://192.0.2.7/",
            "http://192.0.2.7:443/",
            "https://[2001:db8::1]:8443/",
        ] {
            assert!(check(permitted, &policy).is_ok(), "{permitted}");
        }
        for (refused, reason) in [
            ("http://192.0.2.7/", "192.0.2.7:80 is neither"),
            ("http://3221225991/", "192.0.2.7:80 is neither"),
            ("http://0300.0.2.7/", "192.0.2.7:80 is neither"),
            ("https://[::ffff:192.0.2.8]/", "[::ffff:192.0.2.8]:443 is neither"),
            ("https://[2001:db8::1]/", "[2001:db8::1]:443 is neither"),
            ("http://0.0.0.0/", "0.0.0.0:80 is neither"),
            ("http://docwharf.invalid/", "in /etc/hosts only, and docwharf.invalid is not there"),
            ("http://localhost.invalid/", "and localhost.invalid is not there"),
        ] {
            let error = check(refused, &policy).unwrap_err().to_string();
            assert!(error.starts_with("deployment.type is \"air-gapped\"") && error.contains(reason), "{error}");
            assert!(check(refused, &OutboundPolicy::Any).is_ok(), "{refused}");
        }
    }

    #[test]
    fn only_the_permitted_addresses_of_a_name_are_used_on_each_port() {
        let policy = air_gapped(&["192.0.2.7:443", "192.0.2.8"]);
        let found = || vec!["192.0.2.7".parse().unwrap(), "192.0.2.8".parse().unwrap()];
        let permitted = |found, port| select_permitted("api.example", found, port, &policy);
        let addresses =
            |port: u16| permitted(found(), port).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(addresses(443), ["192.0.2.7:443", "192.0.2.8:443"]);
        assert_eq!(addresses(80), ["192.0.2.8:80"]);
        let error = permitted(vec!["192.0.2.9".parse().unwrap()], 443).unwrap_err().to_string();
        assert!(error.contains("api.example is 192.0.2.9:443 in /etc/hosts, which is neither"), "{error}");
        assert!(matches!(permitted(Vec::new(), 443), Err(OutboundError::UnknownName(name)) if name == "api.example"));
    }

    #[test]
    fn lookup_of_an_air_gapped_process_asks_no_name_server() {
        let policy = air_gapped(&[]);
        let find = |host: &str| block_on(lookup(host, 80, &policy)).map_err(|error| error.to_string());
        assert_eq!(find("127.0.0.1"), Ok(vec!["127.0.0.1:80".parse().unwrap()]));
        assert_eq!(find("localhost").map(|addresses| addresses.len()), Ok(2));
        assert!(find("192.0.2.1").unwrap_err().contains("192.0.2.1:80 is neither"));
        assert!(find("docwharf.invalid").unwrap_err().contains("docwharf.invalid is not there"));
        let system = block_on(lookup("127.0.0.1", 80, &OutboundPolicy::Any)).unwrap();
        assert_eq!(system, ["127.0.0.1:80".parse().unwrap()]);
    }
}
