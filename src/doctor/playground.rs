//! Checks the addresses of the APIs of the playground: requests to an API with an address that is neither public nor in
//! `addresses` of its table are refused.

use std::net::IpAddr;

use docwharf_base::model::cidr::IpRange;
use docwharf_base::net::public_address::is_public_or_listed;
use docwharf_base::net::{NetworkSettings, connect};
use docwharf_base::secret::SafeUrl;

use crate::config::playground::PlaygroundConfig;

use super::check::DoctorCheck;

pub(super) const CHECK_NAME: &str = "playground";

/// Returns the error if requests to this origin are refused because of one of its addresses. A name that cannot be
/// looked up is left to another check.
pub(super) async fn check_addresses(playground: &PlaygroundConfig, origin: &SafeUrl) -> Option<DoctorCheck> {
    let listed: Vec<IpRange> = playground
        .origins()
        .into_iter()
        .filter(|(name, _)| SafeUrl::parse(name).is_ok_and(|url| url.same_origin(origin)))
        .flat_map(|(_, addresses)| addresses)
        .collect();
    let addresses = look_up(origin, &playground.settings.network).await;
    let address = addresses.into_iter().find(|&address| !is_public_or_listed(address, &listed))?;
    let found = format!("{} is {address}, which is not public: requests to it are refused", origin.host());
    let advice = "if that is its address, list it in addresses of the table in [[playground.allow]]";
    Some(DoctorCheck::error(CHECK_NAME, found, advice))
}

/// Returns the addresses of a host; none if they cannot be looked up.
async fn look_up(origin: &SafeUrl, network: &NetworkSettings) -> Vec<IpAddr> {
    let url = origin.expose();
    let name = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let port = url.port_or_known_default().unwrap_or_default();
    let found = tokio::time::timeout(network.connect_timeout, connect::lookup(name, port, &network.outbound)).await;
    let addresses = found.map_or_else(|_| Vec::new(), Result::unwrap_or_default);
    addresses.into_iter().map(|address| address.ip()).collect()
}
