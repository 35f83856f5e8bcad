//! Checks the addresses to serve at: free, in use by this store's daemon, or by another program. The check itself does
//! not listen.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};

use crate::config::checked::Config;
use docwharf_agent::store::lock_holder;

use super::check::DoctorCheck;
use super::checked_user::{CheckedUser, ServiceUser};

const CHECK_NAME: &str = "ports";

/// The system's default for the first port that any user may listen on (ip(7)).
const FIRST_FREE_PORT: u16 = 1024;

pub(super) fn check(config: &Config, user: &CheckedUser) -> Vec<DoctorCheck> {
    let running = lock_holder(&config.store);
    let check_list = |key: &'static str, list: &[SocketAddr]| -> Vec<DoctorCheck> {
        list.iter().map(|address| check_address(key, *address, running, user)).collect()
    };
    let tls = config.tls.as_ref().map(|tls| tls.listen.as_slice()).unwrap_or_default();
    let site = match user.service().and_then(|service| service.socket.as_ref()) {
        Some(socket) => {
            vec![DoctorCheck::ok(
                CHECK_NAME,
                format!("{socket} is enabled: systemd listens for the site, in place of server.listen"),
            )]
        }
        None => check_list("server.listen", &config.listen),
    };
    let waiting = check_list("activate.listen", &config.waiting_listen);
    [site, check_list("tls.listen", tls), check_list("admin.listen", &config.admin), waiting].concat()
}

/// Returns the first port that any user may listen on.
fn first_free_port() -> u16 {
    let first = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").ok();
    first.and_then(|text| text.trim().parse().ok()).unwrap_or(FIRST_FREE_PORT)
}

/// Returns the error for a port that the user of the service may not listen on, even if root may.
fn check_privileged_port(key: &str, address: SocketAddr, service: &ServiceUser, name: &str) -> Option<DoctorCheck> {
    let first = first_free_port();
    if address.port() >= first || service.unit.may_bind_low_ports() {
        return None;
    }
    let found = format!("{address} ({key}): {name} may not listen below port {first}");
    let advice = match key {
        "server.listen" => {
            let socket = service.unit.name.replace(".service", ".socket");
            format!(
                "let systemd open port {}: systemctl enable --now {socket}; or choose a port from {first} on",
                address.port()
            )
        }
        _ => format!(
            "choose a port from {first} on, or let systemd open it with a separate socket unit (see docwharf.socket)"
        ),
    };
    Some(DoctorCheck::error(CHECK_NAME, found, advice))
}

fn check_address(key: &str, address: SocketAddr, running: Option<u32>, user: &CheckedUser) -> DoctorCheck {
    if address.port() == 0 {
        return DoctorCheck::ok(CHECK_NAME, format!("{address}: any free port"));
    }
    if let Some(check) = user.service().and_then(|service| check_privileged_port(key, address, service, &user.name())) {
        return check;
    }
    // A thread with the user's credentials does not have the capability that the unit grants.
    let is_granted = user.service().is_some_and(|service| service.unit.may_bind_low_ports());
    let bound =
        if is_granted && address.port() < first_free_port() { bind(address) } else { user.run(|| bind(address)) };
    let Err(error) = bound else {
        return DoctorCheck::ok(CHECK_NAME, format!("{address} is free"));
    };
    match (error.kind(), running) {
        (io::ErrorKind::AddrInUse, Some(pid)) => DoctorCheck::ok(
            CHECK_NAME,
            format!("{address} is in use, probably by the docwharf process that uses this store (pid {pid})"),
        ),
        (io::ErrorKind::AddrInUse, None) => DoctorCheck::error(
            CHECK_NAME,
            format!("{address} is in use by another program"),
            format!(
                "choose another port in {key}, or stop the program that uses it: ss -ltnp 'sport = :{}'",
                address.port()
            ),
        ),
        (io::ErrorKind::AddrNotAvailable, _) => DoctorCheck::error(
            CHECK_NAME,
            format!("{address}: this machine does not have that address"),
            format!("correct {key}; 0.0.0.0 and [::] stand for all its addresses"),
        ),
        (io::ErrorKind::PermissionDenied, _) => DoctorCheck::error(
            CHECK_NAME,
            format!("{address} ({key}): {} may not listen below port {}", user.name(), first_free_port()),
            "choose a higher port, let systemd open the socket (docwharf.socket), or grant CAP_NET_BIND_SERVICE",
        ),
        _ => DoctorCheck::error(CHECK_NAME, format!("{address}: {error}"), format!("correct {key}")),
    }
}

/// Binds as a server does (`docwharf_serve::listener`) and closes the socket, without listening.
fn bind(address: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    // Regression: `doctor` reported `[::]:PORT` as in use beside a server on IPv4, where `run` starts.
    #[test]
    fn an_ipv6_address_is_free_beside_a_server_on_ipv4() {
        // A machine without IPv6 has nothing to bind to.
        if TcpListener::bind("[::1]:0").is_err() {
            return;
        }
        // A socket that is bound and does not listen prevents that another program gets the port by chance.
        let reserve = || {
            let reserved = Socket::new(Domain::IPV6, Type::STREAM, None)?;
            reserved.set_only_v6(true)?;
            reserved.set_reuse_address(true)?;
            reserved.bind(&SocketAddr::from(([0u16; 8], 0)).into())?;
            let port = reserved.local_addr()?.as_socket().map_or(0, |address| address.port());
            io::Result::Ok((TcpListener::bind(("0.0.0.0", port))?, reserved, port))
        };
        let (_other, _reserved, port) = (0..100).find_map(|_| reserve().ok()).expect("a port that is free for both");
        bind(SocketAddr::from(([0u16; 8], port))).unwrap();
        assert!(bind(SocketAddr::from(([0, 0, 0, 0], port))).is_err());
    }
}
