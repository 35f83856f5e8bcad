//! The host names that the admin listener accepts. A malicious page whose own host name resolves to our address (DNS
//! rebinding) could otherwise read the status through its reader's browser, which sends that name as `Host`.

use std::net::IpAddr;

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderMap, Uri};

/// The names that the admin listener answers to: IP addresses, `localhost`, the machine's own name, and `admin.hosts`.
#[derive(Debug, Clone, Default)]
pub struct AllowedHosts {
    /// The names in lower case, without a trailing dot.
    names: Vec<String>,
}

impl AllowedHosts {
    /// Creates the list from the current name of the machine and the configured names.
    pub fn new(configured: &[String]) -> AllowedHosts {
        let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
        // If the name of the machine is fully qualified, people type its first label.
        let label = machine.split('.').next().unwrap_or_default().to_owned();
        let names = configured.iter().cloned().chain([machine, label, "localhost".to_owned()]);
        let names = names.map(|name| normalize_host(&name)).filter(|name| !name.is_empty()).collect();
        AllowedHosts { names }
    }

    /// Returns whether a request is addressed to one of the names (RFC 9110, section 7.2). A request that names no host
    /// is not.
    pub fn permits(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let named = match uri.authority() {
            Some(authority) => Some(authority.clone()),
            None => single_host(headers),
        };
        let Some(host) = named.as_ref().map(Authority::host) else { return false };
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        address.parse::<IpAddr>().is_ok() || self.names.contains(&normalize_host(host))
    }
}

/// Returns the value of the `Host` field, if there is exactly one and it is valid.
fn single_host(headers: &HeaderMap) -> Option<Authority> {
    let mut fields = headers.get_all(HOST).iter();
    let field = fields.next()?;
    if fields.next().is_some() { None } else { Authority::try_from(field.as_bytes()).ok() }
}

fn normalize_host(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn permits(hosts: &AllowedHosts, host: &str) -> bool {
        let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_str(host).unwrap())]);
        hosts.permits(&Uri::from_static("/status"), &headers)
    }

    #[test]
    fn admin_requests_are_permitted_only_for_ip_localhost_machine_or_configured_hosts() {
        let hosts = AllowedHosts::new(&["Admin.Example".to_owned()]);
        let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
        for good in
            ["127.0.0.1:8081", "10.1.2.3", "[::1]:8081", "localhost", "LocalHost.:1", "admin.example:9", &machine]
        {
            assert!(permits(&hosts, good), "{good}");
        }
        for bad in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "admin.example.evil", "", "a b"]
        {
            assert!(!permits(&hosts, bad), "{bad}");
        }
        let absolute: Uri = "http://evil.example/status".parse().unwrap();
        let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static("localhost"))]);
        assert!(!hosts.permits(&absolute, &headers), "the target's authority counts before Host");
        assert!(!hosts.permits(&Uri::from_static("/status"), &HeaderMap::new()), "no Host at all");
        let twice = [HeaderValue::from_static("localhost"), HeaderValue::from_static("evil.example")];
        let mut headers = HeaderMap::new();
        for value in twice {
            headers.append(HOST, value);
        }
        assert!(!hosts.permits(&Uri::from_static("/status"), &headers), "two of them");
    }
}
