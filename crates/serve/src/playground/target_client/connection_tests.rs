//! Connections to targets on loopback.

use std::io::{Read, Write};
use std::net::TcpListener;

use docwharf_base::model::deployment::OutboundPolicy;
use socket2::{Domain, Socket, Type};
use tokio::sync::Semaphore;

use super::*;

/// An address on which nothing listens while the socket lives.
fn closed_address() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}

/// An address that answers no connection while the sockets live: its queue is full.
fn silent_address() -> (Vec<Socket>, SocketAddr) {
    let (listener, address) = closed_address();
    listener.listen(0).unwrap();
    let mut sockets = vec![listener];
    for _ in 0..8 {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        let _ = socket.connect(&address.into());
        sockets.push(socket);
    }
    (sockets, address)
}

fn network() -> NetworkSettings {
    NetworkSettings { connect_timeout: Duration::from_millis(300), ..NetworkSettings::default() }
}

#[tokio::test]
async fn the_next_address_is_tried_if_one_refuses_a_connection_or_does_not_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let open = listener.local_addr().unwrap();
    let (_closed, closed) = closed_address();
    let (_silent, silent) = silent_address();
    let network = network();
    for addresses in [&[open][..], &[closed, open], &[silent, open], &[silent, closed, open], &[open, closed]] {
        let stream =
            connect_to_any(addresses, &network).await.unwrap_or_else(|fault| panic!("{addresses:?} {fault:?}"));
        assert_eq!(stream.peer_addr().unwrap(), open, "{addresses:?}");
    }
    for addresses in [&[closed][..], &[closed, silent], &[silent, closed], &[]] {
        let fault = connect_to_any(addresses, &network).await.err();
        assert_eq!(fault, Some(TargetFault::NotConnected), "{addresses:?}");
    }
}

#[tokio::test]
async fn of_several_addresses_each_is_checked_by_the_deployment_too() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let open = listener.local_addr().unwrap();
    let outbound = OutboundPolicy::AirGapped { allow: Arc::default() };
    let network = NetworkSettings { outbound, ..network() };
    let outside: SocketAddr = "192.0.2.1:80".parse().unwrap();
    assert_eq!(connect_to_any(&[outside], &network).await.err(), Some(TargetFault::NotConnected));
    let stream = connect_to_any(&[outside, open], &network).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap(), open);
}

/// Sends a request to a target that answers with these bytes and then closes the connection.
async fn response_to(bytes: Vec<u8>) -> Result<TargetResponse, TargetFault> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let target = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        // The client may end the connection before it has all of it.
        let _ = stream.write_all(&bytes);
    });
    let url = TargetUrl::parse(&format!("http://{address}/")).map_err(|_| ()).unwrap();
    let request = TargetRequest { method: http::Method::GET, url, fields: HeaderMap::new(), body: Bytes::new() };
    let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    let conditions = SendConditions {
        addresses: &[IpRange::parse("127.0.0.0/8").unwrap()],
        network: &network(),
        tls: None,
        max_response: 1000,
    };
    let response = send_to_target(request, permit, &conditions).await;
    target.join().unwrap();
    response
}

/// A response with this many fields, whose head has about this many bytes.
fn response_with_head(fields: usize, bytes: usize) -> Vec<u8> {
    let value = "x".repeat(bytes / fields);
    let fields = (1..fields).map(|number| format!("X-{number}: {value}\r\n")).collect::<Vec<_>>().concat();
    format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 4\r\n\r\nquay").into_bytes()
}

#[tokio::test]
async fn the_head_of_a_response_has_a_bounded_size_and_number_of_fields() {
    for (fields, bytes, is_read) in [
        (1, 1, true),
        (MAX_HEAD_FIELDS, 2000, true),
        (MAX_HEAD_FIELDS + 1, 2000, false),
        (10_000, 50_000, false),
        (10, MAX_HEAD_BYTES - 1000, true),
        (10, 4 * MAX_HEAD_BYTES, false),
        (10, 8 << 20, false),
        (2, 4 * MAX_HEAD_BYTES, false),
    ] {
        match response_to(response_with_head(fields, bytes)).await {
            Ok(response) => {
                assert!(is_read, "{fields} {bytes}");
                assert_eq!((response.fields.len(), response.body.as_ref()), (fields, &b"quay"[..]));
            }
            Err(fault) => assert_eq!((is_read, fault), (false, TargetFault::NoUsableResponse), "{fields} {bytes}"),
        }
    }
    // Neither does a status line without an end.
    let endless = [&b"HTTP/1.1 200 "[..], &vec![b'x'; 1 << 20]].concat();
    assert_eq!(response_to(endless).await.err(), Some(TargetFault::NoUsableResponse));
}
