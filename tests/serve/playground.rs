//! The API playground of `serve`: what reaches an API, which addresses are refused, and what no log has.

use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;

use serde_json::{Value, json};

use support::api_server::ApiTestServer;
use support::http::{self, Response};
use support::mcp::MCP_PATH;
use support::name_server::NameServer;
use support::recorded_network::run_in_own_internet;
use support::tls::CertificateAuthority;
use support::{Daemon, HTTP2_SERVERS, temporary_folder, write_site};

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// A site that `serve` serves with this configuration, and its folder.
struct Fixture {
    folder: tempfile::TempDir,
    daemon: Daemon,
}

impl Fixture {
    fn start(files: &[(&str, &str)], config: &str) -> Fixture {
        let folder = temporary_folder();
        let site = write_site(&folder.path().join("site"), files);
        let log = folder.path().join("access.log");
        let config = format!("[access]\nlog = \"json\"\nlogFile = {:?}\n{config}", log.to_str().unwrap());
        let daemon = Daemon::serve_configured(&site, &folder.path().join("c.toml"), &config);
        Fixture { folder, daemon }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("access.log")
    }

    /// Sends a request to the playground as a page of the site does.
    fn send(&self, body: &Value) -> Response {
        self.send_with(&[&format!("Origin: http://{}", self.daemon.address)], body)
    }

    fn send_with(&self, fields: &[&str], body: &Value) -> Response {
        let fields = [fields, &["Content-Type: application/json"]].concat();
        http::post(&self.daemon.address, "/_docwharf/playground", &fields, body.to_string())
    }

    /// Sends a GET request of a page: the status of the playground, and its JSON.
    fn get(&self, url: &str) -> (u16, Value) {
        let response = self.send(&json!({ "method": "GET", "url": url }));
        (response.status, response.json())
    }
}

const PAGES: [(&str, &str); 1] = [("index.html", "<h1>Quay</h1>")];

fn allow(origin: &str, more: &str) -> String {
    format!("[[playground.allow]]\norigin = \"{origin}\"\n{more}\n")
}

const LOOPBACK: &str = "addresses = [\"127.0.0.0/8\", \"::1\"]";

#[test]
fn a_request_reaches_the_api_and_neither_log_nor_response_fields_have_anything_of_it() {
    let reply = "HTTP/1.1 200 OK\r\nSet-Cookie: planted=1\r\nX-Api: yes\r\nContent-Length: 4\r\n\r\nquay";
    let api = ApiTestServer::start("127.0.0.1:0", reply);
    let config = format!("[playground]\nenabled = true\n{}", allow(&format!("http://{}", api.address), LOOPBACK));
    // Rules of the bundle concern its own files only.
    let rules = "/*\n  Access-Control-Allow-Origin: *\n  X-Bundle: yes\n";
    let fixture = Fixture::start(&[PAGES[0], ("_headers", rules)], &config);
    assert_eq!(http::get(&fixture.daemon.address, "/").header("x-bundle"), Some("yes"));
    let url = format!("http://{}/v1/berths?token=s3cret-token", api.address);
    let response = fixture.send(&json!({ "method": "GET", "url": url, "headers": { "X-Key": "s3cret-key" } }));
    let answer = response.json();
    assert_eq!((response.status, &answer["status"], &answer["body"]), (200, &json!(200), &json!("quay")));
    for name in ["set-cookie", "x-api", "x-bundle", "access-control-allow-origin", "content-security-policy"] {
        assert_eq!(response.header(name), None, "{name}");
    }
    assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(response.header("cache-control"), Some("no-store"));
    let requests = api.take_requests();
    assert!(requests[0].starts_with("GET /v1/berths?token=s3cret-token HTTP/1.1\r\n"), "{requests:?}");
    assert!(requests[0].contains("\r\nx-key: s3cret-key\r\n"), "{requests:?}");
    // Refused ones, too.
    fixture.send(&json!({ "method": "DELETE", "url": url }));
    fixture.send(&json!({ "method": "GET", "url": "https://other.example/s3cret-token" }));
    let folder = fixture.folder.path().to_owned();
    let log = fixture.log();
    fixture.daemon.signal("TERM");
    support::until("the log is written", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.matches("playground").count() == 3)
    });
    for entry in std::fs::read_dir(folder).unwrap().flatten().filter(|entry| entry.path().is_file()) {
        let text = std::fs::read_to_string(entry.path()).unwrap();
        assert!(!text.contains("s3cret") && !text.contains("berths"), "{}: {text}", entry.path().display());
    }
}

#[test]
fn the_log_names_an_untrusted_host_for_the_playground_also_after_a_refused_question() {
    let folder = temporary_folder();
    let (config, log) = (folder.path().join("c.toml"), folder.path().join("stderr"));
    let site = write_site(&folder.path().join("site"), &PAGES);
    let keys = "[assistant]\nbaseUrl = \"http://127.0.0.1:9/v1\"\nmodel = \"m\"\n";
    std::fs::write(&config, format!("{keys}[playground]\nenabled = true\n")).unwrap();
    let mut command = support::docwharf();
    command.arg("serve").arg(&site).args(["--listen", "127.0.0.1:0", "--config"]).arg(&config);
    let daemon = Daemon::start(command.stderr(std::fs::File::create(&log).unwrap()));
    for resource in ["ask", "playground"] {
        let request = format!(
            "POST /_docwharf/{resource} HTTP/1.1\r\nHost: rebound.example\r\nOrigin: http://rebound.example\r\n\
             Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
        );
        for _ in 0..2 {
            assert_eq!(http::exchange(http::connect(&daemon.address), request.as_bytes(), false).status, 403);
        }
    }
    let lines = std::fs::read_to_string(&log).unwrap();
    for resource in ["ask", "playground"] {
        let line = format!("_docwharf/{resource} refused a request for rebound.example; if readers use this host");
        assert_eq!(lines.matches(&line).count(), 1, "{resource}: {lines}");
    }
}

#[test]
fn a_large_request_arrives_over_both_protocols_and_one_that_is_too_large_gets_413() {
    let api = ApiTestServer::start("127.0.0.1:0", ok("got it"));
    let more = format!("{LOOPBACK}\nmethods = [\"POST\"]");
    let allow = allow(&format!("http://{}", api.address), &more);
    let body = "x".repeat(900_000);
    let request = json!({ "method": "POST", "url": format!("http://{}/", api.address), "body": body });
    let too_large = json!({ "method": "POST", "url": format!("http://{}/", api.address), "body": body.repeat(3) });
    for http2 in HTTP2_SERVERS {
        let fixture =
            Fixture::start(&PAGES, &format!("[server]\nhttp2 = \"{http2}\"\n[playground]\nenabled = true\n{allow}"));
        assert_eq!(fixture.send(&request).status, 200);
        assert_eq!(fixture.send(&too_large).status, 413);
        let url = format!("http://{}/_docwharf/playground", fixture.daemon.address);
        let origin = format!("http://{}", fixture.daemon.address);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // The library builds no client without one, although no connection here is encrypted.
        let _ = rustls::crypto::ring::default_provider().install_default();
        #[allow(clippy::disallowed_types)] // a client of HTTP/2 that obeys flow control
        let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
        let post = |body: &Value| {
            let request = client.post(&url).header("origin", &origin).header("content-type", "application/json");
            let request = request.body(body.to_string());
            runtime.block_on(async { request.send().await.map(|response| response.status().as_u16()) })
        };
        // On one connection, more than the bodies that are discarded on it.
        for n in 0..20 {
            assert_eq!(post(&request).unwrap(), 200, "{http2} {n}");
        }
        assert_eq!(post(&too_large).unwrap(), 413, "{http2}");
        assert_eq!(post(&request).unwrap(), 200, "{http2}");
        let requests = api.take_requests();
        assert!(requests.len() == 22 && requests.iter().all(|request| request.ends_with(&body)), "{http2}");
    }
}

#[test]
fn the_certificate_of_an_api_is_checked_for_its_name() {
    let authority = CertificateAuthority::new();
    let folder = temporary_folder();
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, authority.pem()).unwrap();
    for (name, is_trusted, expected) in
        [("localhost", true, 200), ("other.example", true, 502), ("localhost", false, 502)]
    {
        let upstream = authority.upstream(name, b"not a bundle".to_vec());
        let port = upstream.base_url().rsplit(':').next().unwrap().split('/').next().unwrap().to_owned();
        let trust = if is_trusted { format!("[api]\ncaFile = {ca_file:?}\n") } else { String::new() };
        let origin = format!("https://localhost:{port}");
        let config = format!("{trust}[playground]\nenabled = true\n{}", allow(&origin, LOOPBACK));
        let fixture = Fixture::start(&PAGES, &config);
        let (status, answer) = fixture.get(&format!("{origin}/nothing"));
        assert_eq!(status, expected, "{name} {is_trusted}: {answer}");
    }
}

/// The addresses of the internet in a namespace: the name server, and two hosts.
const INTERNET: [&str; 4] = ["9.9.9.9/32", "93.184.216.34/32", "93.184.216.35/32", "2606:2800:220:1::7/128"];

#[test]
fn an_api_is_reached_only_if_all_of_its_addresses_are_public_and_only_at_those() {
    run_in_own_internet(
        "playground::an_api_is_reached_only_if_all_of_its_addresses_are_public_and_only_at_those",
        &INTERNET,
        || {
            let address = |text: &str| -> IpAddr { text.parse().unwrap() };
            let names = NameServer::start("9.9.9.9:53", move |name, earlier| match name {
                "public.example" => vec![address("93.184.216.34"), address("2606:2800:220:1::7")],
                "two.example" => vec![address("93.184.216.35"), address("93.184.216.34")],
                // Public at the first lookup, loopback at every later one.
                "rebinding.example" if earlier == 0 => vec![address("93.184.216.34")],
                "rebinding.example" | "loopback.example" | "listed.example" => vec![address("127.0.0.1")],
                "mixed.example" => vec![address("93.184.216.34"), address("127.0.0.1")],
                "mixed6.example" => vec![address("93.184.216.34"), address("::1")],
                "private.example" => vec![address("10.0.0.1")],
                "metadata.example" => vec![address("169.254.169.254")],
                "mapped.example" => vec![address("::ffff:93.184.216.34")],
                "nat64.example" => vec![address("64:ff9b::7f00:1")],
                _ => Vec::new(),
            });
            let public = ApiTestServer::start("93.184.216.34:80", ok("public"));
            let public6 = ApiTestServer::start("[2606:2800:220:1::7]:80", ok("public"));
            let own = ApiTestServer::start("127.0.0.1:80", ok("internal"));
            let own6 = ApiTestServer::start("[::1]:80", ok("internal"));
            let redirecting = ApiTestServer::start(
                "93.184.216.34:8080",
                "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n",
            );
            let hosts = [
                "public.example",
                "two.example",
                "rebinding.example",
                "loopback.example",
                "mixed.example",
                "mixed6.example",
                "private.example",
                "metadata.example",
                "mapped.example",
                "nat64.example",
                "absent.example",
                "public.example:8080",
                "127.0.0.1",
                "[::1]",
                "2130706433",
                "0x7f.1",
                "[::ffff:127.0.0.1]",
                "0.0.0.0",
                "93.184.216.34",
            ];
            let mut config = "[playground]\nenabled = true\nperMinute = 1000\n".to_owned();
            let mut listed = std::collections::BTreeSet::new();
            for host in hosts {
                let origin = url::Url::parse(&format!("http://{host}")).unwrap().origin().ascii_serialization();
                if listed.insert(origin.clone()) {
                    config.push_str(&allow(&origin, ""));
                }
            }
            config.push_str(&allow("http://listed.example", "addresses = [\"127.0.0.1\"]"));
            let fixture = Fixture::start(&PAGES, &config);
            let get = |host: &str| {
                let (status, answer) = fixture.get(&format!("http://{host}/"));
                let text = |key: &str| answer[key].as_str().map(str::to_owned);
                (status, if status == 200 { text("body") } else { text("error") }.unwrap_or_default())
            };
            let public_answer = (200, "public".to_owned());
            let refused = (403, "address".to_owned());
            for host in ["public.example", "93.184.216.34", "two.example"] {
                assert_eq!(get(host), public_answer, "{host}");
            }
            assert_eq!(get("listed.example"), (200, "internal".to_owned()));
            assert_eq!(own.take_requests().len(), 1);
            // Looked up once: the connection goes to the address that was checked. The next request gets the other one.
            assert_eq!(get("rebinding.example"), public_answer);
            assert_eq!(names.queries("rebinding.example"), 1);
            for host in [
                "rebinding.example",
                "loopback.example",
                "mixed.example",
                "mixed6.example",
                "private.example",
                "metadata.example",
                "mapped.example",
                "nat64.example",
                "127.0.0.1",
                "127.1",
                "2130706433",
                "0x7f000001",
                "[::1]",
                "[::ffff:127.0.0.1]",
                "[::ffff:7f00:1]",
                "0.0.0.0",
                "0",
            ] {
                assert_eq!(get(host), refused, "{host}");
            }
            assert_eq!(get("absent.example"), (502, "target".to_owned()));
            let (status, answer) = fixture.get("http://public.example:8080/");
            assert_eq!((status, &answer["status"]), (200, &json!(307)), "{answer}");
            assert_eq!(redirecting.take_requests().len(), 1);
            assert_eq!((own.take_requests(), own6.take_requests()), (Vec::new(), Vec::new()));
            assert!(public.take_requests().len() + public6.take_requests().len() >= 4);
        },
    );
}

#[test]
fn slow_bodies_of_the_playground_leave_the_other_resources_usable() {
    let allow = allow("http://a.example", "");
    let fixture = Fixture::start(&PAGES, &format!("[playground]\nenabled = true\nperMinute = 65535\n{allow}"));
    let address = &fixture.daemon.address;
    let head = format!(
        "POST /_docwharf/playground HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\n\
         Content-Type: application/json\r\nContent-Length: 2100000\r\n\r\n"
    );
    // Bodies that do not end. The smaller ones take what the larger ones have left of 64 MiB.
    let mut slow = Vec::new();
    let mut send_part = |len: usize| {
        let mut stream = http::connect(address);
        stream.write_all(head.as_bytes()).expect("the server reads");
        let _ = stream.write_all(&vec![b' '; len]);
        slow.push(stream);
    };
    for (bodies, len) in [(40, 2_000_000), (80, 200_000), (120, 20_000), (40, 1_000)] {
        for _ in 0..bodies {
            send_part(len);
        }
    }
    support::until("the bodies take all memory of the playground", || {
        // Shorter than the body below.
        send_part(20);
        fixture.send(&json!({ "method": "GET", "url": "http://a.example/" })).status == 503
    });
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    let response = http::post(address, MCP_PATH, &["Content-Type: application/json"], ping);
    assert_eq!(response.status, 200, "{}", response.text());
}
