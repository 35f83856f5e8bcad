//! Identifies the client of a request: the peer of the connection, or the client that a trusted proxy names.
//!
//! `Forwarded` (RFC 7239) and `X-Forwarded-For`/`-Proto` are trusted only from addresses in `server.trustedProxies`.
//! Each proxy appends the address it was contacted from, so the list is read from its end: the first address that is
//! not a trusted proxy is the client. Everything before it was written by that client or by an unknown proxy. If both
//! kinds of field are present they must agree, because a proxy that sets one of them passes on the other as the client
//! has sent it. Fields that cannot be parsed, or that contradict each other, are ignored: then the proxy itself counts
//! as the client, and [`ClientIdentity::is_known`] is false, so that an address range that contains the proxy does not
//! admit unknown clients.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName};

use docwharf_base::model::cidr::IpRanges;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The peer of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The address and port of the peer.
    pub address: SocketAddr,
    /// Whether this server encrypts the connection.
    pub is_encrypted: bool,
    /// Whether the listener that accepted the connection has a loopback address.
    pub is_loopback_listener: bool,
}

/// The client that sent a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // the flags are independent of each other
pub struct ClientIdentity {
    /// The address of the client as far as it can be identified. An IPv4-mapped address is converted to IPv4.
    pub address: IpAddr,
    /// Whether `address` is that of the client, and not that of a proxy that does not name its client.
    pub is_known: bool,
    /// Whether the client uses https, to this server or to a trusted proxy.
    pub is_https: bool,
    /// Whether a trusted proxy states in a field which scheme the client uses. A field that cannot be read, or that
    /// contradicts another, states that it is not https.
    pub is_scheme_stated: bool,
    /// Whether the peer of the connection is a trusted proxy.
    pub is_via_proxy: bool,
}

impl ClientIdentity {
    /// Identifies the client of a request from the peer of its connection and from its header fields. A request without
    /// a peer is received through the control socket, so its client is this machine.
    pub fn identify(proxies: &IpRanges, peer: Option<Peer>, headers: &HeaderMap) -> ClientIdentity {
        let address = peer.map_or(IpAddr::V6(Ipv6Addr::LOCALHOST), |peer| peer.address.ip().to_canonical());
        let is_encrypted = peer.is_some_and(|peer| peer.is_encrypted);
        let direct = ClientIdentity {
            address,
            is_known: true,
            is_https: is_encrypted,
            is_scheme_stated: false,
            is_via_proxy: false,
        };
        if peer.is_none() || !proxies.contains(address) {
            return direct;
        }
        let forwarded = read_forwarding_fields(proxies, headers);
        ClientIdentity {
            address: forwarded.address.unwrap_or(address),
            is_known: !forwarded.is_invalid && forwarded.address.is_some(),
            is_https: forwarded.is_https.unwrap_or(is_encrypted),
            is_scheme_stated: forwarded.is_https.is_some(),
            is_via_proxy: true,
        }
    }
}

/// The client as forwarding fields describe it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ForwardedClient {
    /// The address of the client, if the fields have it.
    address: Option<IpAddr>,
    /// Whether the client uses https, if the fields state it.
    is_https: Option<bool>,
    /// Whether the fields are invalid or contradict each other.
    is_invalid: bool,
}

impl ForwardedClient {
    const INVALID: ForwardedClient = ForwardedClient { address: None, is_https: Some(false), is_invalid: true };
}

fn read_forwarding_fields(proxies: &IpRanges, headers: &HeaderMap) -> ForwardedClient {
    let (forwarded, x_forwarded) = (read_forwarded(proxies, headers), read_x_forwarded(proxies, headers));
    let agree = |a: Option<bool>, b: Option<bool>| a.is_none() || b.is_none() || a == b;
    if forwarded.is_invalid
        || x_forwarded.is_invalid
        || (forwarded.address.is_some() && x_forwarded.address.is_some() && forwarded.address != x_forwarded.address)
        || !agree(forwarded.is_https, x_forwarded.is_https)
    {
        return ForwardedClient::INVALID;
    }
    ForwardedClient {
        address: forwarded.address.or(x_forwarded.address),
        is_https: forwarded.is_https.or(x_forwarded.is_https),
        is_invalid: false,
    }
}

/// The error for a hop that is not an address.
#[derive(Debug)]
struct UnreadableHop;

/// Returns the last hop that is not a trusted proxy, or the first hop if all are trusted. The position is counted from
/// the end. A hop before that position that is not an address is an error.
fn find_client<'a, T>(
    proxies: &IpRanges,
    hops: impl DoubleEndedIterator<Item = &'a T>,
    address: impl Fn(&T) -> Option<IpAddr>,
) -> Result<Option<(usize, IpAddr)>, UnreadableHop>
where
    T: 'a + ?Sized,
{
    let mut last = None;
    for (position, hop) in hops.rev().enumerate() {
        let address = address(hop).ok_or(UnreadableHop)?;
        last = Some((position, address));
        if !proxies.contains(address) {
            break;
        }
    }
    Ok(last)
}

/// Reads `X-Forwarded-For` and `X-Forwarded-Proto`. Several fields of one name are one list (RFC 9110, section 5.3).
fn read_x_forwarded(proxies: &IpRanges, headers: &HeaderMap) -> ForwardedClient {
    let list = |name: &HeaderName| -> Option<Vec<&str>> {
        let mut items = Vec::new();
        for value in headers.get_all(name) {
            items.extend(value.to_str().ok()?.split(',').map(str::trim));
        }
        Some(items)
    };
    let (Some(hops), Some(schemes)) = (list(&FORWARDED_FOR), list(&FORWARDED_PROTO)) else {
        return ForwardedClient::INVALID;
    };
    let Ok(client) = find_client(proxies, hops.iter().copied(), parse_node) else { return ForwardedClient::INVALID };
    // One scheme applies to the whole path; if there are as many schemes as hops, each applies to its hop.
    let scheme = match (schemes.len(), client) {
        (0, _) => None,
        (1, _) => Some(schemes[0]),
        (n, Some((position, _))) if n == hops.len() => schemes.iter().rev().nth(position).copied(),
        // Any other number of schemes is ambiguous, so it does not count as https.
        _ => Some(""),
    };
    ForwardedClient {
        address: client.map(|(_, address)| address),
        is_https: scheme.map(|scheme| scheme.eq_ignore_ascii_case("https")),
        is_invalid: false,
    }
}

/// One hop of `Forwarded`.
#[derive(Debug, Default, PartialEq, Eq)]
struct ForwardedHop {
    /// The `for` parameter: the node that sent the request.
    client: Option<String>,
    proto: Option<String>,
}

/// Reads `Forwarded` (RFC 7239, section 4).
fn read_forwarded(proxies: &IpRanges, headers: &HeaderMap) -> ForwardedClient {
    let mut hops = Vec::new();
    for value in headers.get_all(FORWARDED) {
        let Some(()) = value.to_str().ok().and_then(|text| parse_elements(text, &mut hops)) else {
            return ForwardedClient::INVALID;
        };
    }
    let uses_https = |hop: Option<&ForwardedHop>| hop?.proto.as_ref().map(|proto| proto.eq_ignore_ascii_case("https"));
    if hops.iter().all(|hop| hop.client.is_none()) {
        // The proxy sends schemes and no addresses.
        return ForwardedClient { address: None, is_https: uses_https(hops.last()), is_invalid: false };
    }
    match find_client(proxies, hops.iter(), |hop| parse_node(hop.client.as_deref()?)) {
        Ok(Some((position, address))) => {
            let is_https = uses_https(hops.iter().rev().nth(position));
            ForwardedClient { address: Some(address), is_https, is_invalid: false }
        }
        _ => ForwardedClient::INVALID,
    }
}

/// Parses `forwarded-element *( "," forwarded-element )` (RFC 7239, section 4) and appends its hops; `None` if the text
/// is invalid.
fn parse_elements(text: &str, hops: &mut Vec<ForwardedHop>) -> Option<()> {
    let mut rest = text;
    let mut hop = ForwardedHop::default();
    loop {
        let end = rest.find(|c: char| !is_token(c)).unwrap_or(rest.len());
        let name = rest[..end].to_ascii_lowercase();
        rest = &rest[end..];
        if !name.is_empty() {
            let (value, after) = parse_value(rest.strip_prefix('=')?)?;
            rest = after;
            let slot = match name.as_str() {
                "for" => Some(&mut hop.client),
                "proto" => Some(&mut hop.proto),
                _ => None,
            };
            // A parameter may occur once in an element.
            if slot.is_some_and(|slot| slot.replace(value).is_some()) {
                return None;
            }
        }
        rest = rest.trim_start_matches([' ', '\t']);
        match rest.chars().next() {
            Some(';') => {}
            Some(',') => hops.push(std::mem::take(&mut hop)),
            None => {
                hops.push(hop);
                return Some(());
            }
            Some(_) => return None,
        }
        rest = rest[1..].trim_start_matches([' ', '\t']);
    }
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

/// Parses `token / quoted-string`; returns the value and the text after it.
fn parse_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        // An IPv6 address must be quoted, but some proxies send it bare.
        let end = text.find(|c: char| !is_token(c) && !"[]:".contains(c)).unwrap_or(text.len());
        return (end > 0).then(|| (text[..end].to_owned(), &text[end..]));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((index, c)) = chars.next() {
        match c {
            '"' => return Some((value, &quoted[index + 1..])),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

/// Parses an address with an optional port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`. Names and
/// `unknown` are not addresses.
fn parse_node(text: &str) -> Option<IpAddr> {
    let address = text.parse::<IpAddr>().or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip()));
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    address.ok().or_else(bracketed).map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROXY: &str = "10.0.0.1";

    fn client(peer: &str, fields: &[(&str, &str)]) -> ClientIdentity {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, value.parse().unwrap());
        }
        let address = SocketAddr::new(peer.parse().unwrap(), 4711);
        let proxies = IpRanges::parse(&["10.0.0.0/8", "::1"]).unwrap();
        ClientIdentity::identify(
            &proxies,
            Some(Peer { address, is_encrypted: false, is_loopback_listener: false }),
            &headers,
        )
    }

    /// Returns the address, the use of https, and whether the client is known, for a request through the proxy.
    fn identify_behind_proxy(fields: &[(&str, &str)]) -> (String, bool, bool) {
        let client = client(PROXY, fields);
        assert!(client.is_via_proxy);
        (client.address.to_string(), client.is_https, client.is_known)
    }

    #[test]
    fn forwarded_fields_from_an_untrusted_peer_are_ignored() {
        for peer in ["203.0.113.9", "::ffff:203.0.113.9"] {
            let fields = [("forwarded", "for=192.0.2.1;proto=https"), ("x-forwarded-for", "192.0.2.1")];
            let client = client(peer, &fields);
            let address = "203.0.113.9".parse().unwrap();
            let expected = ClientIdentity {
                address,
                is_known: true,
                is_https: false,
                is_scheme_stated: false,
                is_via_proxy: false,
            };
            assert_eq!(client, expected);
        }
        assert!(client("::ffff:10.0.0.1", &[]).is_via_proxy);
    }

    #[test]
    fn the_client_address_is_the_last_forwarded_address_that_is_not_a_trusted_proxy() {
        for (list, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            ("6.6.6.6, 192.0.2.1", "192.0.2.1"),
            ("nonsense, 192.0.2.1, 10.0.0.7", "192.0.2.1"),
            ("192.0.2.1, ::ffff:10.0.0.7,::1", "192.0.2.1"),
            ("10.0.0.9, 10.0.0.7", "10.0.0.9"),
            ("192.0.2.1:4711", "192.0.2.1"),
            ("[2001:db8::7]:4711", "2001:db8::7"),
            ("2001:db8::7", "2001:db8::7"),
        ] {
            assert_eq!(
                identify_behind_proxy(&[("x-forwarded-for", list)]),
                (expected.to_owned(), false, true),
                "{list}"
            );
        }
        let several = [("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "192.0.2.1, 10.0.0.7")];
        assert_eq!(identify_behind_proxy(&several).0, "192.0.2.1");
        for (list, expected) in [
            ("for=192.0.2.1", "192.0.2.1"),
            ("For=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17"),
            ("for=6.6.6.6;by=x, for=\"192.0.2.1:80\"; proto=http;by=203.0.113.43", "192.0.2.1"),
            ("for=_gazonk, for=192.0.2.1,for=10.1.1.1", "192.0.2.1"),
            ("for=\"192.0.2.\\1\"", "192.0.2.1"),
        ] {
            assert_eq!(identify_behind_proxy(&[("forwarded", list)]), (expected.to_owned(), false, true), "{list}");
        }
    }

    #[test]
    fn malformed_forwarded_fields_leave_the_client_unknown() {
        let unknown_client = (PROXY.to_owned(), false, false);
        for list in ["", "unknown", "192.0.2.1, x", "192.0.2.1,", "192.0.2.1 10.0.0.7", "192.0.2.300"] {
            assert_eq!(
                identify_behind_proxy(&[("x-forwarded-for", list), ("x-forwarded-proto", "https")]),
                unknown_client,
                "{list:?}"
            );
        }
        for list in [
            "for=unknown",
            "for=_hidden",
            "for=192.0.2.1, for=\"",
            "for=192.0.2.1;for=192.0.2.2",
            "for 192.0.2.1",
            "for=192.0.2.1, proto=https",
            "for=",
            "=x",
        ] {
            assert_eq!(identify_behind_proxy(&[("forwarded", list)]), unknown_client, "{list:?}");
        }
    }

    #[test]
    fn the_forwarded_scheme_is_that_of_the_clients_hop() {
        let scheme = |fields: &[(&str, &str)]| identify_behind_proxy(fields).1;
        assert!(scheme(&[("x-forwarded-proto", "https")]));
        assert!(scheme(&[("x-forwarded-for", "192.0.2.1, 10.0.0.7"), ("x-forwarded-proto", "HTTPS")]));
        assert!(scheme(&[("x-forwarded-for", "192.0.2.1, 10.0.0.7"), ("x-forwarded-proto", "https, http")]));
        assert!(!scheme(&[("x-forwarded-for", "192.0.2.1, 10.0.0.7"), ("x-forwarded-proto", "http, https")]));
        assert!(!scheme(&[("x-forwarded-for", "192.0.2.1"), ("x-forwarded-proto", "https, https")]));
        assert!(scheme(&[("forwarded", "for=192.0.2.1;proto=https, for=10.0.0.7;proto=http")]));
        assert!(!scheme(&[("forwarded", "for=6.6.6.6;proto=https, for=192.0.2.1;proto=http")]));
        assert!(scheme(&[("forwarded", "proto=https"), ("x-forwarded-for", "192.0.2.1")]));
    }

    #[test]
    fn contradicting_forwarded_and_x_forwarded_fields_leave_the_client_unknown() {
        let both = |forwarded, x_forwarded| {
            identify_behind_proxy(&[("forwarded", forwarded), ("x-forwarded-for", x_forwarded)])
        };
        assert_eq!(both("for=192.0.2.1;proto=https", "6.6.6.6, 192.0.2.1"), ("192.0.2.1".to_owned(), true, true));
        assert_eq!(both("for=192.0.2.1;proto=https", "192.0.2.2"), (PROXY.to_owned(), false, false));
        let schemes = [("forwarded", "for=192.0.2.1;proto=https"), ("x-forwarded-proto", "http")];
        assert_eq!(identify_behind_proxy(&schemes), (PROXY.to_owned(), false, false));
        // That the proxy itself uses TLS does not show what its client uses.
        let mut headers = HeaderMap::new();
        headers.insert(FORWARDED, "for=192.0.2.1;proto=https".parse().unwrap());
        headers.insert(FORWARDED_PROTO, "http".parse().unwrap());
        let (proxies, address) = (IpRanges::parse(&[PROXY]).unwrap(), SocketAddr::new(PROXY.parse().unwrap(), 4711));
        let client = ClientIdentity::identify(
            &proxies,
            Some(Peer { address, is_encrypted: true, is_loopback_listener: false }),
            &headers,
        );
        assert!(!client.is_https && !client.is_known);
    }

    #[test]
    fn a_forwarded_field_with_non_ascii_bytes_leaves_the_client_unknown() {
        let (proxies, address) = (IpRanges::parse(&[PROXY]).unwrap(), SocketAddr::new(PROXY.parse().unwrap(), 4711));
        for (name, text) in [(FORWARDED, "for=192.0.2.1"), (FORWARDED_FOR, "192.0.2.1")] {
            let mut headers = HeaderMap::new();
            headers.append(&name, text.parse().unwrap());
            let identify = |headers: &HeaderMap| {
                ClientIdentity::identify(
                    &proxies,
                    Some(Peer { address, is_encrypted: false, is_loopback_listener: false }),
                    headers,
                )
            };
            assert_eq!(identify(&headers).address.to_string(), "192.0.2.1", "{name}");
            headers.append(&name, http::HeaderValue::from_bytes(b"for=192.0.2.2\xe9").unwrap());
            let client = identify(&headers);
            assert_eq!((client.address.to_string().as_str(), client.is_known), (PROXY, false), "{name}");
        }
    }

    #[test]
    fn without_a_trusted_proxy_the_client_is_the_peer_of_the_connection() {
        let proxies = IpRanges::parse(&["10.0.0.0/8", "::1"]).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", "192.0.2.1".parse().unwrap());
        let this_machine = ClientIdentity {
            address: Ipv6Addr::LOCALHOST.into(),
            is_known: true,
            is_https: false,
            is_scheme_stated: false,
            is_via_proxy: false,
        };
        assert_eq!(
            ClientIdentity::identify(&proxies, None, &headers),
            this_machine,
            "the field has no effect on the control socket"
        );
        for (peer, is_encrypted, proto, is_https, is_via_proxy) in [
            ("203.0.113.9", true, None, true, false),
            ("203.0.113.9", true, Some("http"), true, false),
            ("203.0.113.9", false, Some("https"), false, false),
            (PROXY, true, None, true, true),
            (PROXY, true, Some("http"), false, true),
            (PROXY, false, Some("https"), true, true),
            (PROXY, false, None, false, true),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(proto) = proto {
                headers.insert(FORWARDED_PROTO, proto.parse().unwrap());
            }
            let address = SocketAddr::new(peer.parse().unwrap(), 4711);
            let client = ClientIdentity::identify(
                &proxies,
                Some(Peer { address, is_encrypted, is_loopback_listener: false }),
                &headers,
            );
            // A proxy that does not name its client.
            let expected = ClientIdentity {
                address: address.ip(),
                is_known: !is_via_proxy,
                is_https,
                is_scheme_stated: is_via_proxy && proto.is_some(),
                is_via_proxy,
            };
            assert_eq!(client, expected, "{peer} {is_encrypted} {proto:?}");
        }
    }
}
