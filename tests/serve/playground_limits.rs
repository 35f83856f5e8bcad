//! The bounds of what an API may answer, through the executable.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::{Value, json};
use support::http::{connect, exchange};
use support::{Daemon, temporary_folder, write_site};

/// Starts an API that answers each request with what `respond` writes. Its thread ends with the test program.
fn start_api(respond: impl Fn(&mut dyn Write) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 8192]);
            respond(&mut stream);
        }
    });
    address
}

/// Sends a GET request to this API through the playground: status and JSON of the response.
fn get_through(daemon: &Daemon, api: &str) -> (u16, Value) {
    let body = json!({ "method": "GET", "url": format!("http://{api}/") }).to_string();
    let address = &daemon.address;
    let request = format!(
        "POST /_docwharf/playground HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let response = exchange(connect(address), request.as_bytes(), false);
    (response.status, serde_json::from_slice(&response.body).expect("JSON"))
}

#[test]
fn an_api_with_an_endless_or_oversized_head_gets_502_and_the_playground_goes_on() {
    let head = |fields: usize, value: usize| {
        let fields = (0..fields).map(|n| format!("X-{n}: {}\r\n", "v".repeat(value))).collect::<Vec<_>>().concat();
        format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{fields}\r\nok").into_bytes()
    };
    let fixed = |bytes: Vec<u8>| start_api(move |out| drop(out.write_all(&bytes)));
    // Until the connection ends.
    let endless = start_api(|out| {
        let _ = out.write_all(b"HTTP/1.1 200 OK\r\n");
        while out.write_all(b"X-More: of this field, without an end\r\n").is_ok() {}
    });
    let many_interim =
        start_api(|out| while out.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n").is_ok() {});
    let apis = [
        ("255 fields", fixed(head(255, 10)), 200),
        ("257 fields", fixed(head(257, 10)), 502),
        ("60 KiB", fixed(head(60, 1000)), 200),
        ("400 KiB", fixed(head(100, 4000)), 502),
        ("an endless head", endless, 502),
        // Ended by the deadline, if by nothing else.
        ("endless interim responses", many_interim, 504),
    ];
    let allow = apis
        .iter()
        .map(|(_, api, _)| format!("[[playground.allow]]\norigin = \"http://{api}\"\naddresses = [\"127.0.0.1\"]\n"))
        .collect::<Vec<_>>()
        .concat();
    let folder = temporary_folder();
    let site = write_site(&folder.path().join("site"), &[("index.html", "<h1>Quay</h1>")]);
    let config = folder.path().join("c.toml");
    std::fs::write(&config, format!("[playground]\nenabled = true\ntimeout = \"2s\"\n{allow}")).unwrap();
    let daemon = Daemon::serve(&site, &["--config", config.to_str().unwrap()]);
    for (name, api, expected) in &apis {
        let (status, answer) = get_through(&daemon, api);
        assert_eq!(status, *expected, "{name}: {answer}");
        if status == 200 {
            assert_eq!((&answer["status"], &answer["body"]), (&json!(200), &json!("ok")), "{name}");
        } else {
            assert_eq!(answer["error"], if status == 502 { "target" } else { "timeout" }, "{name}: {answer}");
        }
    }
    assert_eq!(get_through(&daemon, &apis[0].1).0, 200);
}
