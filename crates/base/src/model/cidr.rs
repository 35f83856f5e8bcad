//! Ranges of IP addresses in CIDR notation: `10.0.0.0/8`, `2001:db8::/32`, or a single address (RFC 4632, section 3.1;
//! RFC 4291, section 2.3).

use core::net::IpAddr;
use std::fmt;

use ipnet::IpNet;

/// A list of address ranges. An empty list contains no address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IpRanges(Vec<IpRange>);

impl IpRanges {
    /// Parses a list. The error message names the first element that is not a range, and how to write it.
    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Result<IpRanges, String> {
        let ranges = texts.iter().map(|text| IpRange::parse(text.as_ref().trim()));
        ranges.collect::<Result<_, _>>().map(IpRanges).map_err(|error| error.to_string())
    }

    /// Returns whether an address lies in one of the ranges. An IPv4 address and its IPv6-mapped form are the same
    /// address; a dual-stack socket reports the mapped form.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|range| range.contains(address))
    }

    /// Returns whether the list has no range.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The reason why a text is not a range. The message says how to write one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IpRangeError {
    /// The text is neither an address nor a range.
    #[error("{text:?} is not a range of addresses: write it like 10.0.0.0/8, 2001:db8::/32 or ::1")]
    Syntax {
        /// The text.
        text: String,
    },
    /// The address before the prefix length is not the first one of the range.
    #[error("{text:?} is one address and a range around it: write {range} or {address}")]
    NotFirstAddress {
        /// The text.
        text: String,
        /// The range.
        range: IpRange,
        /// The address.
        address: IpAddr,
    },
}

/// A range of addresses, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpRange(IpNet);

impl IpRange {
    /// Parses one range or address. `IpNet`'s own parser is not used: it accepts `010.0.0.0/08`, and refuses an address
    /// without a prefix length.
    pub fn parse(text: &str) -> Result<IpRange, IpRangeError> {
        let error = || IpRangeError::Syntax { text: text.to_owned() };
        let (address, length) = match text.split_once('/') {
            // Rust parses `+8` and `08` as numbers, but in a range they are typing errors.
            Some((_, length)) if length.starts_with(['+', '0']) && length != "0" => return Err(error()),
            Some((address, length)) => (address, Some(length.parse::<u8>().map_err(|_| error())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let range = match length {
            Some(length) => IpNet::new(address, length).map_err(|_| error())?,
            None => IpNet::from(address),
        };
        let range = canonical(range);
        if range.network() != range.addr() {
            let (text, address) = (text.to_owned(), range.addr());
            return Err(IpRangeError::NotFirstAddress { text, range: IpRange(range.trunc()), address });
        }
        Ok(IpRange(range))
    }

    /// Returns whether the range contains an address. An IPv4 address and its IPv6-mapped form are the same address.
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }

    /// Returns whether the addresses are those of IPv6.
    pub fn is_ipv6(self) -> bool {
        matches!(self.0, IpNet::V6(_))
    }
}

/// Formats the range so that [`IpRange::parse`] can read it. A range of one address is that address.
impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.prefix_len() == self.0.max_prefix_len() { self.0.addr().fmt(f) } else { self.0.fmt(f) }
    }
}

/// Converts a range in IPv6-mapped form to IPv4, because [`IpRange::contains`] compares canonical addresses.
fn canonical(range: IpNet) -> IpNet {
    match (range, range.addr().to_canonical()) {
        (IpNet::V6(_), v4 @ IpAddr::V4(_)) => {
            range.prefix_len().checked_sub(96).and_then(|length| IpNet::new(v4, length).ok()).unwrap_or(range)
        }
        _ => range,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(list: &[&str], address: &str) -> bool {
        IpRanges::parse(list).unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn a_cidr_range_contains_only_its_own_addresses() {
        for (range, inside, outside) in [
            ("10.0.0.0/8", "10.255.1.2", "11.0.0.0"),
            ("192.0.2.128/25", "192.0.2.128", "192.0.2.127"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("192.0.2.7/32", "192.0.2.7", "192.0.2.6"),
            ("0.0.0.0/0", "203.0.113.9", "2001:db8::1"),
            ("::/0", "2001:db8::1", "203.0.113.9"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("::1", "::1", "::2"),
            ("fe80::/10", "fe80::1", "fec0::1"),
        ] {
            assert!(contains(&[range], inside), "{inside} in {range}");
            assert!(!contains(&[range], outside), "{outside} in {range}");
        }
        assert!(contains(&["10.0.0.0/8", "::1"], "::1"));
        assert!(!IpRanges::default().contains("::1".parse().unwrap()));
    }

    #[test]
    fn an_ipv4_address_is_the_same_in_its_mapped_form() {
        assert!(contains(&["10.0.0.0/8"], "::ffff:10.1.2.3"));
        assert!(contains(&["::ffff:10.0.0.0/104"], "10.1.2.3"));
        assert!(contains(&["::ffff:10.0.0.0/104"], "::ffff:10.1.2.3"));
        assert!(!contains(&["10.0.0.0/8"], "::ffff:11.1.2.3"));
        assert!(!contains(&["::/0"], "::ffff:11.1.2.3"), "IPv4, however it is written");
    }

    #[test]
    fn an_invalid_cidr_range_is_refused_with_a_suggested_correction() {
        for wrong in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0/8",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/08",
            "010.0.0.0/8",
            "10.0.0.0/264",
            "10.0.0.0/-1",
            "x/8",
            "10.0.0.0/8/8",
            "fe80::1%eth0",
            "[::1]",
            "localhost",
        ] {
            let why = IpRanges::parse(&[wrong]).unwrap_err();
            assert!(why.contains("10.0.0.0/8"), "{wrong}: {why}");
        }
        let why = IpRanges::parse(&["10.1.2.3/8"]).unwrap_err();
        assert!(why.contains("10.0.0.0/8 or 10.1.2.3"), "{why}");
        assert!(IpRanges::parse(&["2001:db8::1/32"]).is_err());
        let why = IpRanges::parse(&["::ffff:10.1.2.3/104"]).unwrap_err();
        assert!(why.contains("10.0.0.0/8 or 10.1.2.3"), "{why}");
    }
}
