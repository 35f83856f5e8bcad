//! The client address behind a trusted proxy. A client may send any `Forwarded` and `X-Forwarded-*` fields: only the
//! values that the proxy appends count, or the client is unknown.

use std::net::{IpAddr, SocketAddr};

use docwharf::model::cidr::IpRanges;
use docwharf::serve::peer::{ClientIdentity, Peer};
use http::{HeaderMap, HeaderValue};

use super::fuzz_input::FuzzInput;

pub fn forwarded(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    let proxies = IpRanges::parse(&["10.0.0.0/8", "fd00::/8"]).expect("ranges");
    let real_client: IpAddr = input.one_of(&["203.0.113.9", "2001:db8::9"]).parse().expect("an address");
    let (sends_forwarded, sends_x_forwarded, as_separate_field) =
        (input.once_in(2), input.once_in(2), input.once_in(2));
    let inner_proxies = input.below(3);
    let mut client_values = input.rest().splitn(3, |&b| b == 0);
    let mut next_value = || client_values.next().unwrap_or_default().to_vec();
    let (first, second, third) = (next_value(), next_value(), next_value());
    let quoted = if real_client.is_ipv6() { format!("\"[{real_client}]\"") } else { real_client.to_string() };
    // The outermost proxy appends the client, and each inner proxy appends the proxy before it.
    let hops = |first: &str, next: &str| {
        (0..inner_proxies).fold(first.to_owned(), |all, n| format!("{all}, {next}10.0.0.{n}"))
    };

    let proxy = Peer {
        address: SocketAddr::new("10.1.2.3".parse().expect("an address"), 1),
        is_encrypted: false,
        is_loopback_listener: false,
    };
    let mut headers = HeaderMap::new();
    let mut add_field = |name: &'static str, client_value: &[u8], proxy_value: Option<String>| {
        // A proxy appends to the last field, or adds a separate field.
        let value = match proxy_value {
            Some(proxy_value) if as_separate_field => {
                let client_field = HeaderValue::from_bytes(client_value).ok();
                headers.extend(client_field.map(|field| (http::HeaderName::from_static(name), field)));
                proxy_value.into_bytes()
            }
            Some(proxy_value) if client_value.is_empty() => proxy_value.into_bytes(),
            Some(proxy_value) => [client_value, b", ", proxy_value.as_bytes()].concat(),
            None => client_value.to_vec(),
        };
        let Ok(field) = HeaderValue::from_bytes(&value) else { return false };
        if !value.is_empty() {
            headers.append(name, field);
        }
        true
    };
    let is_forwarded_valid =
        add_field("forwarded", &first, sends_forwarded.then(|| hops(&format!("for={quoted}"), "for=")));
    let is_x_forwarded_valid =
        add_field("x-forwarded-for", &second, sends_x_forwarded.then(|| hops(&real_client.to_string(), "")));
    add_field("x-forwarded-proto", &third, None);
    if (sends_forwarded && !is_forwarded_valid) || (sends_x_forwarded && !is_x_forwarded_valid) {
        return;
    }
    let client = ClientIdentity::identify(&proxies, Some(proxy), &headers);
    assert!(client.is_via_proxy);
    if sends_forwarded || sends_x_forwarded {
        assert!(
            !client.is_known || client.address == real_client,
            "the client is {real_client}, not {}: {:?}",
            client.address,
            headers
        );
        // Without values from the client, the proxy's field is accepted.
        if first.is_empty() && second.is_empty() && third.is_empty() {
            assert!(client.is_known, "{headers:?}");
        }
    }
    // Fields from a peer that is no trusted proxy do not count.
    let untrusted: IpAddr = "198.51.100.1".parse().expect("an address");
    let peer = Peer { address: SocketAddr::new(untrusted, 1), is_encrypted: false, is_loopback_listener: false };
    let direct = ClientIdentity::identify(&proxies, Some(peer), &headers);
    assert_eq!(
        (direct.address, direct.is_known, direct.is_https, direct.is_via_proxy),
        (untrusted, true, false, false)
    );
}
