//! Who asks, behind a proxy that is trusted: whatever a client writes into `Forwarded` and `X-Forwarded-*`, the proxy's
//! own words at the end decide, or nobody is known.

use std::net::{IpAddr, SocketAddr};

use docwharf::serve::cidr::IpRanges;
use docwharf::serve::peer::{ClientIdentity, Peer};
use http::{HeaderMap, HeaderValue};

use super::recipe::Recipe;

pub fn forwarded(data: &[u8]) {
    let mut recipe = Recipe::new(data);
    let proxies = IpRanges::parse(&["10.0.0.0/8", "fd00::/8"]).expect("ranges");
    let truth: IpAddr = recipe.one_of(&["203.0.113.9", "2001:db8::9"]).parse().expect("an address");
    let (standard, custom, apart) = (recipe.once_in(2), recipe.once_in(2), recipe.once_in(2));
    let through = recipe.below(3);
    let mut lies = recipe.rest().splitn(3, |&b| b == 0);
    let mut lie = || lies.next().unwrap_or_default().to_vec();
    let (first, second, third) = (lie(), lie(), lie());
    let quoted = if truth.is_ipv6() { format!("\"[{truth}]\"") } else { truth.to_string() };
    // The outermost proxy appends whom it has seen, each further one the one before it.
    let hops =
        |first: &str, next: &str| (0..through).fold(first.to_owned(), |all, at| format!("{all}, {next}10.0.0.{at}"));

    let proxy = Peer { address: SocketAddr::new("10.1.2.3".parse().expect("an address"), 1), is_encrypted: false };
    let mut headers = HeaderMap::new();
    let mut put = |name: &'static str, lie: &[u8], truth: Option<String>| {
        // A proxy appends to the last field, or adds one of its own.
        let appended = match truth {
            Some(truth) if apart => {
                headers.extend(HeaderValue::from_bytes(lie).ok().map(|lie| (http::HeaderName::from_static(name), lie)));
                truth.into_bytes()
            }
            Some(truth) if lie.is_empty() => truth.into_bytes(),
            Some(truth) => [lie, b", ", truth.as_bytes()].concat(),
            None => lie.to_vec(),
        };
        let Ok(value) = HeaderValue::from_bytes(&appended) else { return false };
        if !appended.is_empty() {
            headers.append(name, value);
        }
        true
    };
    let is_standard = put("forwarded", &first, standard.then(|| hops(&format!("for={quoted}"), "for=")));
    let is_custom = put("x-forwarded-for", &second, custom.then(|| hops(&truth.to_string(), "")));
    put("x-forwarded-proto", &third, None);
    if (standard && !is_standard) || (custom && !is_custom) {
        return;
    }
    let client = ClientIdentity::identify(&proxies, Some(proxy), &headers);
    assert!(client.is_by_proxy);
    if standard || custom {
        assert!(
            !client.is_known || client.address == truth,
            "{} is believed, but it was {truth}: {:?}",
            client.address,
            headers
        );
        // An honest header, with nothing beside it, is believed.
        if first.is_empty() && second.is_empty() && third.is_empty() {
            assert!(client.is_known, "{headers:?}");
        }
    }
    // From anybody else nothing is believed.
    let stranger: IpAddr = "198.51.100.1".parse().expect("an address");
    let peer = Peer { address: SocketAddr::new(stranger, 1), is_encrypted: false };
    let direct = ClientIdentity::identify(&proxies, Some(peer), &headers);
    assert_eq!((direct.address, direct.is_known, direct.is_https, direct.is_by_proxy), (stranger, true, false, false));
}
