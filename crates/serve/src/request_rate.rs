//! Counts the requests of each client per minute, so that one client cannot use alone what is for all of them.
//!
//! The counters are a table of fixed size in memory. This module stores addresses nowhere else and outputs none.
//!
//! A window of 60 seconds begins with the first request of a client: a maximum number of requests is allowed in it, and
//! the first request after it begins the next one. When a new client finds no free counter in its set, it gets the one
//! whose window began first. A flood from many addresses thus makes the table forget counts, and never refuses a client
//! that has sent few requests itself.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use docwharf_base::clock::now_unix_seconds;
use docwharf_base::locks::Mutex;

/// The length of a window, in seconds.
const WINDOW_SECONDS: u32 = 60;
/// The Retry-After of a client that has sent too many requests, in seconds: its window is over then.
pub(crate) const RATE_RETRY_SECONDS: u32 = WINDOW_SECONDS;
/// The Retry-After while too many requests are answered at a time, in seconds.
pub(crate) const BUSY_RETRY_SECONDS: u32 = 1;
/// The maximum number of clients that are counted. Their counters take 1 MiB.
const MAX_CLIENTS: usize = 65_536;
/// The number of counters among which a client has its own. A search through all of them would take too long.
const SET_COUNTERS: usize = 8;

/// Counts the requests of each client per minute.
#[derive(Default)]
pub(crate) struct RequestRate {
    table: Mutex<CounterTable>,
}

/// The counters of clients, in sets. The hash of its network selects the set of a client.
#[derive(Default)]
struct CounterTable {
    /// The keys of the hash are random, so that a client cannot choose addresses with the set of another one.
    hasher: RandomState,
    /// Empty before the first request.
    counters: Vec<RequestCounter>,
}

/// The counter of a client.
#[derive(Clone, Copy, Default)]
struct RequestCounter {
    /// The bits of the client's network, see [`network_of`].
    network: u64,
    /// The time at which the window began, in seconds. It wraps around, and only differences count.
    began: u32,
    /// The number of allowed requests in the window; 0 if the counter is free.
    requests: u16,
    is_ipv6: bool,
}

impl RequestRate {
    /// Counts a request of a client and returns whether it is allowed: a window has at most `max_requests`, and never
    /// more than 65,535. `seconds` is the time by any clock that counts seconds. If that clock is set back, the window
    /// of each client begins again.
    fn allow(&self, address: IpAddr, seconds: u64, max_requests: u32) -> bool {
        let (is_ipv6, network) = network_of(address);
        let max_requests = u16::try_from(max_requests).unwrap_or(u16::MAX);
        self.table.lock().counter(is_ipv6, network, seconds as u32).allow(max_requests)
    }

    /// Returns whether [`RequestRate::allow`] would refuse a request of this client at this time.
    fn is_used_up(&self, address: IpAddr, seconds: u64, max_requests: u32) -> bool {
        let (is_ipv6, network) = network_of(address);
        u32::from(self.table.lock().requests(is_ipv6, network, seconds as u32)) >= max_requests.min(u16::MAX.into())
    }
}

impl RequestRate {
    /// Counts a request of a client now and returns whether it is allowed: at most `max_requests` in a minute.
    pub(crate) fn allow_now(&self, address: IpAddr, max_requests: u32) -> bool {
        self.allow(address, now_unix_seconds().cast_unsigned(), max_requests)
    }

    /// Returns whether the window of a client has no request left now, without counting one.
    pub(crate) fn is_used_up_now(&self, address: IpAddr, max_requests: u32) -> bool {
        self.is_used_up(address, now_unix_seconds().cast_unsigned(), max_requests)
    }
}

impl fmt::Debug for RequestRate {
    /// Writes no address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestRate").finish_non_exhaustive()
    }
}

impl CounterTable {
    /// Returns the index of the first counter in the set of a client.
    fn first_of_set(&self, is_ipv6: bool, network: u64) -> usize {
        let sets = MAX_CLIENTS / SET_COUNTERS;
        (self.hasher.hash_one((is_ipv6, network)) as usize % sets) * SET_COUNTERS
    }

    /// Returns the number of requests of a client in its current window.
    fn requests(&self, is_ipv6: bool, network: u64, now: u32) -> u16 {
        let first = self.first_of_set(is_ipv6, network);
        // Before the first request, there are no counters.
        let own = self
            .counters
            .get(first..first + SET_COUNTERS)
            .and_then(|set| set.iter().find(|counter| counter.is_of(is_ipv6, network)));
        own.filter(|counter| counter.age(now) < WINDOW_SECONDS).map_or(0, |counter| counter.requests)
    }

    /// Returns the counter of a client in its current window.
    fn counter(&mut self, is_ipv6: bool, network: u64, now: u32) -> &mut RequestCounter {
        if self.counters.is_empty() {
            self.counters = vec![RequestCounter::default(); MAX_CLIENTS];
        }
        let first = self.first_of_set(is_ipv6, network);
        let set = &mut self.counters[first..first + SET_COUNTERS];
        let own = set.iter().position(|counter| counter.is_of(is_ipv6, network));
        // Free counters are the oldest.
        let oldest = || (0..SET_COUNTERS).max_by_key(|index| set[*index].age(now)).unwrap_or_default();
        let index = own.unwrap_or_else(oldest);
        let counter = &mut set[index];
        if own.is_none() || counter.age(now) >= WINDOW_SECONDS {
            *counter = RequestCounter { network, began: now, requests: 0, is_ipv6 };
        }
        counter
    }
}

impl RequestCounter {
    fn is_of(&self, is_ipv6: bool, network: u64) -> bool {
        self.requests > 0 && self.is_ipv6 == is_ipv6 && self.network == network
    }

    /// Returns the number of seconds since the window began.
    fn age(&self, now: u32) -> u32 {
        if self.requests == 0 { u32::MAX } else { now.wrapping_sub(self.began) }
    }

    fn allow(&mut self, max_requests: u16) -> bool {
        let is_allowed = self.requests < max_requests;
        if is_allowed {
            self.requests += 1;
        }
        is_allowed
    }
}

/// Returns whether the network of a client is one of IPv6, and its bits: the address of IPv4, also if it is mapped into
/// IPv6, or the first 64 bits of an address of IPv6. One client of IPv6 usually has all addresses of such a network.
fn network_of(address: IpAddr) -> (bool, u64) {
    match address.to_canonical() {
        IpAddr::V4(address) => (false, u64::from(address.to_bits())),
        IpAddr::V6(address) => (true, (address.to_bits() >> 64) as u64),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    /// Returns how many of 100 requests at this time are allowed, if a window has 60.
    fn allowed(rate: &RequestRate, text: &str, seconds: u64) -> usize {
        (0..100).filter(|_| rate.allow(address(text), seconds, 60)).count()
    }

    #[test]
    fn a_client_may_send_60_requests_in_the_60_seconds_from_its_first_one() {
        let rate = RequestRate::default();
        assert!(rate.allow(address("192.0.2.1"), 1_000_059, 60));
        assert_eq!(allowed(&rate, "192.0.2.1", 1_000_061), 59);
        assert_eq!(allowed(&rate, "192.0.2.1", 1_000_118), 0);
        assert_eq!(allowed(&rate, "192.0.2.1", 1_000_119), 60);
        assert_eq!(allowed(&rate, "192.0.2.1", 1_000_119), 0);
    }

    #[test]
    fn a_window_has_as_many_requests_as_the_limit_in_force() {
        let rate = RequestRate::default();
        let allow = |max_requests| rate.allow(address("192.0.2.1"), 5, max_requests);
        assert!(allow(1) && !allow(1) && allow(2) && !allow(2));
        assert_eq!((0..70_000).filter(|_| allow(u32::MAX)).count(), usize::from(u16::MAX) - 2);
    }

    #[test]
    fn a_window_is_used_up_exactly_while_it_allows_no_request_and_that_is_not_counted() {
        let rate = RequestRate::default();
        let is_used_up = |seconds, max_requests| rate.is_used_up(address("192.0.2.1"), seconds, max_requests);
        assert!(!is_used_up(5, 1) && !is_used_up(5, 1), "no request was counted");
        assert!(rate.allow(address("192.0.2.1"), 5, 1));
        assert!(is_used_up(64, 1) && !is_used_up(64, 2) && !is_used_up(65, 1));
        assert!(!rate.is_used_up(address("192.0.2.2"), 5, 1));
    }

    #[test]
    fn clients_are_counted_apart() {
        let rate = RequestRate::default();
        for client in ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8:0:1::1", "::c000:201"] {
            assert_eq!(allowed(&rate, client, 5), 60, "{client}");
        }
    }

    #[test]
    fn a_network_of_64_bits_of_ipv6_is_one_client_and_a_mapped_address_is_one_of_ipv4() {
        let rate = RequestRate::default();
        assert_eq!(allowed(&rate, "2001:db8::1", 5), 60);
        assert_eq!(allowed(&rate, "2001:db8::ffff:ffff:ffff:ffff", 5), 0);
        assert_eq!(allowed(&rate, "192.0.2.1", 5), 60);
        assert_eq!(allowed(&rate, "::ffff:192.0.2.1", 5), 0);
    }

    #[test]
    fn a_clock_that_is_set_back_refuses_no_client() {
        let rate = RequestRate::default();
        assert_eq!(allowed(&rate, "192.0.2.1", 5_000), 60);
        assert_eq!(allowed(&rate, "192.0.2.1", 4_000), 60);
        // The seconds that are stored wrap around.
        let last = u64::from(u32::MAX);
        assert_eq!(allowed(&rate, "192.0.2.2", last), 60);
        assert_eq!(allowed(&rate, "192.0.2.2", last + 30), 0);
        assert_eq!(allowed(&rate, "192.0.2.2", last + 60), 60);
    }

    #[test]
    fn a_flood_of_addresses_neither_refuses_a_reader_nor_takes_more_memory() {
        let rate = RequestRate::default();
        for number in 0..300_000_u32 {
            let ipv6 = Ipv6Addr::from_bits(u128::from(0x2001_0db8_0000_0000 + u64::from(number)) << 64);
            assert!(rate.allow(ipv6.into(), 5, 60) && rate.allow(Ipv4Addr::from_bits(number).into(), 5, 60));
        }
        assert_eq!(rate.table.lock().counters.len(), MAX_CLIENTS);
        assert_eq!(allowed(&rate, "198.51.100.7", 5), 60);
        assert_eq!(size_of::<RequestCounter>() * MAX_CLIENTS, 1 << 20);
    }

    #[test]
    fn fewer_clients_than_counters_keep_their_counts() {
        let rate = RequestRate::default();
        for client in ["192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1"] {
            assert_eq!(allowed(&rate, client, 5), 60, "{client}");
        }
        for client in ["192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1"] {
            assert_eq!(allowed(&rate, client, 6), 0, "{client}");
        }
    }

    #[test]
    fn debug_output_has_no_address() {
        let rate = RequestRate::default();
        rate.allow(address("192.0.2.1"), 5, 60);
        let output = format!("{rate:?}");
        assert!(!output.contains("192") && !output.contains("3221225985"), "{output}");
    }
}
