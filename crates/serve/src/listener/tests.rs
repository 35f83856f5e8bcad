use std::io::{Read, Write};
use std::sync::atomic::Ordering;

use http::{Request, Response};
use hyper::body::Incoming;

use super::*;
use crate::body::ResponseBody;
use crate::service::{RequestService, ServiceResponse, box_body};

/// A service that panics at a request for `/panic`.
struct PanickingService;

impl RequestService for PanickingService {
    fn respond(self: Arc<Self>, request: Request<Incoming>, _peer: Peer) -> ServiceResponse {
        assert!(request.uri().path() != "/panic", "the panic that the test wants");
        Box::pin(std::future::ready(box_body(Response::new(ResponseBody::full("whole")))))
    }
}

/// Sends a request and returns the response as text.
fn request(address: SocketAddr, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    let _ = stream.read_to_string(&mut response);
    response
}

#[test]
fn an_ipv6_listener_does_not_accept_ipv4_connections() {
    // On a machine without IPv6 there is nothing to test.
    if let Ok(listener) = bind(SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 0))) {
        assert!(SockRef::from(&listener).only_v6().unwrap());
    }
}

#[test]
fn a_panic_in_the_first_poll_of_a_connection_does_not_stop_the_accept_loop() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let (stop, stopped) = watch::channel(false);
    let server = runtime.spawn(serve_limited(vec![socket], Arc::new(PanickingService).into(), stopped, 16));
    for _ in 0..3 {
        assert_eq!(request(address, "/panic"), "");
        assert!(request(address, "/").ends_with("whole"));
    }
    stop.send(true).unwrap();
    assert!(runtime.block_on(server).unwrap().is_ok());
}

#[test]
fn listeners_set_reuseaddr_and_connections_inherit_nodelay_and_notsent_lowat() {
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    assert!(SockRef::from(&listener).reuse_address().unwrap());
    let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    // The kernel holds back a connection that has sent nothing.
    client.write_all(b"x").unwrap();
    listener.set_nonblocking(false).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let options = SockRef::from(&accepted);
    assert!(options.tcp_nodelay().unwrap());
    assert_eq!(options.tcp_notsent_lowat().unwrap(), MAX_UNSENT_BYTES);
}

fn send_request(stream: &mut std::net::TcpStream) {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
}

/// Reads one response of [`PanickingService`].
fn read_response(stream: &mut std::net::TcpStream) {
    let mut received = Vec::new();
    while !received.ends_with(b"whole") {
        let mut chunk = [0; 1024];
        let n = stream.read(&mut chunk).unwrap();
        assert!(n > 0, "the connection ended");
        received.extend_from_slice(&chunk[..n]);
    }
}

#[test]
fn an_accept_loop_reports_to_the_watchdog_while_no_further_connection_may_be_open() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let reports = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&reports);
    let watchdog = Watchdog::new(Duration::from_millis(2), move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let (stop, stopped) = watch::channel(false);
    let server = runtime.spawn(async move {
        let serving_threads = ServingThreads::on_current_runtime();
        let listeners = vec![HttpListener::from(socket)];
        run_accept_loops(listeners, Arc::new(PanickingService).into(), stopped, watchdog, 1, serving_threads, None)
            .await
    });
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    send_request(&mut stream);
    read_response(&mut stream);
    let (before, deadline) = (reports.load(Ordering::Relaxed), Instant::now() + Duration::from_secs(20));
    while reports.load(Ordering::Relaxed) < before + 20 {
        assert!(Instant::now() < deadline, "the loop seems to hang");
        std::thread::yield_now();
    }
    stop.send(true).unwrap();
    drop(stream);
    assert!(runtime.block_on(server).unwrap().is_ok());
}

#[test]
fn at_the_limit_a_connection_waits_until_another_ends() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    // Without the options of `bind`, like a socket of the service manager.
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (options, address) = (socket.try_clone().unwrap(), socket.local_addr().unwrap());
    let (stop, stopped) = watch::channel(false);
    let server = runtime.spawn(serve_limited(vec![socket], Arc::new(PanickingService).into(), stopped, 2));
    let mut streams = [0, 1, 2].map(|_| std::net::TcpStream::connect(address).unwrap());
    for stream in &mut streams {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    }
    let [first, second, third] = &mut streams;
    for stream in [&mut *first, &mut *second] {
        send_request(stream);
        read_response(stream);
    }
    assert!(SockRef::from(&options).tcp_nodelay().unwrap(), "a socket that is passed gets the options, too");
    assert_eq!(SockRef::from(&options).tcp_notsent_lowat().unwrap(), MAX_UNSENT_BYTES);
    send_request(third);
    for _ in 0..10 {
        send_request(first);
        read_response(first);
    }
    third.set_nonblocking(true).unwrap();
    assert_eq!(third.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    third.set_nonblocking(false).unwrap();
    second.shutdown(std::net::Shutdown::Both).unwrap();
    read_response(third);
    stop.send(true).unwrap();
    drop(streams);
    assert!(runtime.block_on(server).unwrap().is_ok());
}
