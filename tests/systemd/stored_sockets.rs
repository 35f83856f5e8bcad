//! Sockets that `run` stores in the service manager: without a socket unit, too, connections wait while the service
//! restarts.

use super::*;

/// The name of the stored sockets.
const STORED_SOCKET: &str = "docwharf-listener";

/// Creates a host that serves the page "one" at this address.
fn host_at(address: &str) -> Host {
    let host = host_with_inbox().set("server.listen", toml_string(address));
    host.put("bundle.zip", bundle("one"));
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
    host
}

/// Starts `run`, takes the only socket that it stores, and stops it.
fn store_socket(host: &Host, address: &str) -> OwnedFd {
    let manager = TestServiceManager::new(host);
    let mut daemon = Daemon::start(&mut manager.connect(host, host.command(&["run"]), None));
    assert_eq!(daemon.address, address);
    let mut stored = manager.receive_stored_descriptors();
    stop(&mut daemon);
    assert_eq!(stored.len(), 1);
    stored.remove(0)
}

// Regression: a restart without a socket unit refused connections for as long as the slowest download was completed,
// 8 s.
#[test]
fn connections_wait_while_a_service_with_a_stored_socket_restarts() {
    let port = ReservedPort::new();
    let host = host_at(&port.address);
    let stored = store_socket(&host, &port.address);
    let mut waiting = TcpStream::connect(&port.address).expect("the connection waits, although no process serves it");
    waiting.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let daemon = Daemon::start(&mut run_on(&host, stored, &[STORED_SOCKET]));
    assert_eq!(daemon.address, port.address, "the same address");
    let mut response = String::new();
    waiting.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200") && response.ends_with("<title>one</title>"), "{response}");
}

#[test]
fn a_stored_socket_ends_when_the_configuration_has_another_address() {
    let (before, after) = (ReservedPort::new(), ReservedPort::new());
    let mut host = host_at(&before.address);
    let stored = store_socket(&host, &before.address);
    let copy_of_the_manager = stored.try_clone().unwrap();
    host.change("server.listen", toml_string(&after.address));
    let daemon = Daemon::start(&mut run_on(&host, stored, &[STORED_SOCKET]));
    assert_eq!(daemon.address, after.address);
    assert!(TcpStream::connect(&before.address).is_err(), "nothing listens on the previous address");
    drop(copy_of_the_manager);
}

#[test]
fn sockets_of_a_socket_unit_are_not_stored() {
    let host = host_with_inbox();
    let manager = TestServiceManager::new(&host);
    let (socket, address) = listener();
    let daemon = Daemon::start(&mut manager.connect(&host, run_on(&host, socket, &["http"]), None));
    assert_eq!(daemon.address, address);
    let messages = manager.until("ready", |message| message == "READY=1");
    assert!(!messages.iter().any(|message| message.starts_with("FDSTORE=1")), "{messages:?}");
}
