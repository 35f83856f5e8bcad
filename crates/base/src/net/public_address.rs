//! Decides whether an IP address is a public one: that of a host of the internet, rather than of this machine, its
//! network or the services of its cloud provider. Pure.
//!
//! The ranges are those of the IANA registries of special-purpose addresses (RFC 6890), of multicast and of reserved
//! addresses. Of IPv6 only global unicast addresses (`2000::/3`) can be public. An IPv6 address that contains one of
//! IPv4 is never public, because a router or the system may translate it to that address, which may be any.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::model::cidr::IpRange;

/// The IPv4 ranges that are not public: the first address and the length of the prefix.
const SPECIAL_IPV4: [(Ipv4Addr, u32); 18] = [
    // "This network" (RFC 791); 0.0.0.0 is the unspecified address, which many systems take for this machine.
    (Ipv4Addr::UNSPECIFIED, 8),
    // Private (RFC 1918).
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    // Shared (RFC 6598). The metadata service of Alibaba Cloud is 100.100.100.200.
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    // Loopback (RFC 1122).
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // The host agent of Azure, which also gives metadata.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    // Link-local (RFC 3927). The metadata services of most cloud providers are here: 169.254.169.254 and others.
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    // IETF protocol assignments (RFC 6890). The metadata service of Oracle Cloud is 192.0.0.192.
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    // Documentation (RFC 5737).
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    // AS112 (RFC 7535).
    (Ipv4Addr::new(192, 31, 196, 0), 24),
    // AMT (RFC 7450).
    (Ipv4Addr::new(192, 52, 193, 0), 24),
    // Relays of 6to4 (RFC 7526).
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    // AS112 (RFC 7534).
    (Ipv4Addr::new(192, 175, 48, 0), 24),
    // Benchmarks (RFC 2544).
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    // Multicast (RFC 1112), reserved (RFC 1112, section 4), and limited broadcast.
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];

/// The ranges within `2000::/3` that are not public: the first address and the length of the prefix.
const SPECIAL_GLOBAL_IPV6: [(Ipv6Addr, u32); 6] = [
    // IETF protocol assignments (RFC 2928): Teredo (2001::/32, RFC 4380), benchmarks, ORCHID and others.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    // Documentation (RFC 3849).
    (Ipv6Addr::new(0x2001, 0x0db8, 0, 0, 0, 0, 0, 0), 32),
    // 6to4 (RFC 3056), which contains an IPv4 address.
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    // AS112 (RFC 7534).
    (Ipv6Addr::new(0x2620, 0x004f, 0x8000, 0, 0, 0, 0, 0), 48),
    // Not in use since 6bone ended (RFC 3701).
    (Ipv6Addr::new(0x3ffe, 0, 0, 0, 0, 0, 0, 0), 16),
    // Documentation (RFC 9637).
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// The global unicast addresses of IPv6 (RFC 4291, section 2.4). Everything else is loopback, link-local, unique-local
/// (with the metadata service of AWS, `fd00:ec2::254`), site-local, multicast, reserved, or contains an IPv4 address:
/// mapped (`::ffff:0:0/96`), compatible (`::/96`), translated (`::ffff:0:0:0/96`) or of NAT64 (`64:ff9b::/96` and
/// `64:ff9b:1::/48`).
const GLOBAL_UNICAST_IPV6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Returns whether an address is public.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !SPECIAL_IPV4.iter().any(|&range| is_in_ipv4_range(address, range)),
        IpAddr::V6(address) => {
            is_in_ipv6_range(address, GLOBAL_UNICAST_IPV6)
                && !SPECIAL_GLOBAL_IPV6.iter().any(|&range| is_in_ipv6_range(address, range))
        }
    }
}

/// Returns whether an address is public or in one of the ranges that the operator has listed.
pub fn is_public_or_listed(address: IpAddr, listed: &[IpRange]) -> bool {
    is_public(address) || listed.iter().any(|range| range.contains(address))
}

fn is_in_ipv4_range(address: Ipv4Addr, (first, prefix_len): (Ipv4Addr, u32)) -> bool {
    (address.to_bits() ^ first.to_bits()) >> (u32::BITS - prefix_len) == 0
}

fn is_in_ipv6_range(address: Ipv6Addr, (first, prefix_len): (Ipv6Addr, u32)) -> bool {
    (address.to_bits() ^ first.to_bits()) >> (u128::BITS - prefix_len) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn no_special_purpose_range_of_ipv4_is_public_from_its_first_to_its_last_address() {
        for (first, last) in [
            ("0.0.0.0", "0.255.255.255"),
            ("10.0.0.0", "10.255.255.255"),
            ("100.64.0.0", "100.127.255.255"),
            ("127.0.0.0", "127.255.255.255"),
            ("168.63.129.16", "168.63.129.16"),
            ("169.254.0.0", "169.254.255.255"),
            ("172.16.0.0", "172.31.255.255"),
            ("192.0.0.0", "192.0.0.255"),
            ("192.0.2.0", "192.0.2.255"),
            ("192.31.196.0", "192.31.196.255"),
            ("192.52.193.0", "192.52.193.255"),
            ("192.88.99.0", "192.88.99.255"),
            ("192.168.0.0", "192.168.255.255"),
            ("192.175.48.0", "192.175.48.255"),
            ("198.18.0.0", "198.19.255.255"),
            ("198.51.100.0", "198.51.100.255"),
            ("203.0.113.0", "203.0.113.255"),
            ("224.0.0.0", "255.255.255.255"),
        ] {
            let (IpAddr::V4(first), IpAddr::V4(last)) = (address(first), address(last)) else { unreachable!() };
            assert!(!is_public(first.into()) && !is_public(last.into()), "{first} to {last}");
            // The neighbours are in no range.
            if let Some(before) = first.to_bits().checked_sub(1) {
                assert!(is_public(Ipv4Addr::from_bits(before).into()), "before {first}");
            }
            if let Some(after) = last.to_bits().checked_add(1) {
                assert!(is_public(Ipv4Addr::from_bits(after).into()), "after {last}");
            }
        }
    }

    #[test]
    fn no_special_purpose_address_of_ipv6_is_public() {
        for special in [
            "::",
            "::1",
            "::2",
            "100::1",
            "100:0:0:1::1",
            "fe80::1",
            "febf:ffff::1",
            "fec0::1",
            "fc00::1",
            "fd00::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "ff00::1",
            "ff02::1",
            "ff0e::1",
            "2001::1",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:1ff:ffff::1",
            "2001:db8::1",
            "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
            "2620:4f:8000::1",
            "3ffe::1",
            "3fff::1",
            "3fff:fff:ffff::1",
            "4000::1",
            "5f00::1",
            "1fff::1",
            "400::1",
        ] {
            assert!(!is_public(address(special)), "{special}");
        }
    }

    #[test]
    fn an_ipv6_address_that_contains_an_ipv4_address_is_not_public_even_if_that_one_is() {
        for (form, name) in [
            ("::ffff:127.0.0.1", "mapped"),
            ("::ffff:8.8.8.8", "mapped"),
            ("::127.0.0.1", "compatible"),
            ("::8.8.8.8", "compatible"),
            ("::ffff:0:127.0.0.1", "translated"),
            ("64:ff9b::127.0.0.1", "NAT64"),
            ("64:ff9b::8.8.8.8", "NAT64"),
            ("64:ff9b:1::10.0.0.1", "NAT64, local use"),
            ("64:ff9b:1:ffff::8.8.8.8", "NAT64, local use"),
            ("2002:7f00:1::1", "6to4 of 127.0.0.1"),
            ("2002:808:808::1", "6to4 of 8.8.8.8"),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "Teredo"),
        ] {
            assert!(!is_public(address(form)), "{form} ({name})");
        }
    }

    #[test]
    fn addresses_of_hosts_of_the_internet_are_public() {
        for public in [
            "1.1.1.1",
            "8.8.8.8",
            "93.184.216.34",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "223.255.255.255",
            "2000::1",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2001:db9::1",
            "2003::1",
            "2606:4700:4700::1111",
            "2a00:1450:4001::1",
            "3fff:1000::1",
        ] {
            assert!(is_public(address(public)), "{public}");
        }
    }

    #[test]
    fn an_address_that_is_not_public_is_permitted_only_inside_a_listed_range() {
        let listed = ["10.1.0.0/16", "::1", "fd00::/8", "64:ff9b::/96"].map(|range| IpRange::parse(range).unwrap());
        for (text, expected) in [
            ("8.8.8.8", true),
            ("10.1.2.3", true),
            // The same address, however it is written.
            ("::ffff:10.1.2.3", true),
            ("10.2.0.1", false),
            ("::ffff:10.2.0.1", false),
            ("127.0.0.1", false),
            ("::1", true),
            ("::2", false),
            ("fd12::1", true),
            ("fe80::1", false),
            ("64:ff9b::127.0.0.1", true),
        ] {
            assert_eq!(is_public_or_listed(address(text), &listed), expected, "{text}");
        }
        assert!(!is_public_or_listed(address("10.1.2.3"), &[]));
    }
}
