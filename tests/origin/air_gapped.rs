//! An air-gapped origin, in a network whose only route leads to a recorder of packets. Its sources are repositories on
//! the disk and at a server on loopback, and a site on loopback.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;
use support::recorded_network::run_in_recorded_network;
use support::test_origin::{TestOrigin, commit, repository};
use support::{Daemon, run_to_end, serve_site};

const SERVER_SECTION: &str = "[server]\nlisten = [\"127.0.0.1:0\"]\n";
const AIR_GAPPED: &str = "[deployment]\ntype = \"air-gapped\"\n";
/// A build that asks a name server, and goes on without an answer.
const ASKING_BUILD: &str = "getent hosts name.example; echo asked > index.html";

/// Returns the configuration of an origin with one project, which has these keys.
fn organizations(keys: &str) -> String {
    let project = "[[organization.project]]\nid = \"docs\"\ndomain = \"docs.acme.example\"";
    format!("[[organization]]\nid = \"acme\"\n{project}\n{keys}\n")
}

/// Starts an origin with one project. `deployment` is a section of the configuration. The proxies in its environment
/// lead to the recorder.
fn start_origin(deployment: &str, keys: &str) -> TestOrigin {
    let mut origin = TestOrigin::with_server_section(&format!("{deployment}{SERVER_SECTION}"), &organizations(keys));
    let mut command = origin.command(&["-vv"]);
    for name in ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy"] {
        command.env(name, "http://203.0.113.7:3128");
    }
    // A build waits for an answer of the name server for a second only.
    command.env("RES_OPTIONS", "timeout:1 attempts:1");
    let log = std::fs::File::create(origin.path("log")).expect("a log");
    origin.daemon = Some(Daemon::start(command.stderr(log)));
    origin
}

/// Exports the project and returns the paths of its files.
fn export(origin: &TestOrigin) -> Vec<String> {
    let job = origin.export(&json!({}));
    origin.files(&origin.bundle(&job))
}

/// Returns the error of an export of the project.
fn failed_export(origin: &TestOrigin) -> String {
    let status = origin.wait_for_job(&origin.export(&json!({})));
    assert_eq!(status["status"], "failed", "{status}");
    status.to_string()
}

/// Serves the repositories below `root` over HTTP until the test ends, with `git http-backend` (gitprotocol-http(5)).
/// Returns the address.
fn serve_repositories(root: &Path) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (address, root) = (listener.local_addr().expect("an address").to_string(), root.to_owned());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let root = root.clone();
            std::thread::spawn(move || run_http_backend(&stream, &root));
        }
    });
    address
}

/// Answers one request by the program `git http-backend`, as a CGI server does (RFC 3875).
fn run_http_backend(mut stream: &TcpStream, root: &PathBuf) {
    let mut reader = BufReader::new(stream);
    let mut head: Vec<String> = Vec::new();
    while head.last().is_none_or(|line| !line.is_empty()) {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        head.push(line.trim_end().to_owned());
    }
    let field = |name: &str| {
        let fields = head.iter().filter_map(|line| line.split_once(": "));
        fields.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).next()
    };
    let mut words = head[0].split(' ');
    let (method, target) = (words.next().expect("a method"), words.next().expect("a target"));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let length = field("Content-Length").unwrap_or_else(|| "0".to_owned());
    let mut body = vec![0; length.parse().expect("a number")];
    reader.read_exact(&mut body).expect("the body arrives");
    let mut command = Command::new("git");
    command.arg("http-backend").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.env("GIT_PROJECT_ROOT", root).env("GIT_HTTP_EXPORT_ALL", "1").env("REQUEST_METHOD", method);
    command.env("PATH_INFO", path).env("QUERY_STRING", query).env("CONTENT_LENGTH", length);
    command.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "safe.directory").env("GIT_CONFIG_VALUE_0", "*");
    for (name, variable) in [
        ("Content-Type", "CONTENT_TYPE"),
        ("Git-Protocol", "GIT_PROTOCOL"),
        ("Content-Encoding", "HTTP_CONTENT_ENCODING"),
    ] {
        command.envs(field(name).map(|value| (variable, value)));
    }
    let mut child = command.spawn().expect("these tests need the git program");
    let _ = child.stdin.take().expect("a pipe").write_all(&body);
    let output = child.wait_with_output().expect("the program ends").stdout;
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n");
    let _ = stream.write_all(&output);
}

/// Answers every request with a redirect to an address that leads to the recorder. Returns the address.
fn serve_redirects() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let lines = BufReader::new(stream.try_clone().expect("a second handle")).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let target = head.first().and_then(|line| line.split(' ').nth(1)).unwrap_or("/");
            let location = format!("http://203.0.113.9{target}");
            let fields = format!("Location: {location}\r\nContent-Length: 0\r\nConnection: close");
            let _ = write!(stream, "HTTP/1.1 302 Found\r\n{fields}\r\n\r\n");
        }
    });
    address
}

#[test]
fn exports_from_the_disk_and_from_loopback_send_no_packet() {
    let test = "air_gapped::exports_from_the_disk_and_from_loopback_send_no_packet";
    run_in_recorded_network(test, |recorder| {
        let before = recorder.packets();
        let dir = support::temporary_folder();
        let path = dir.path().join("docs");
        repository(&path, &[("index.html", "<p>first"), ("guide.html", "<p>guide")]);
        let (site, address) = (["guide.html", "index.html"], serve_repositories(dir.path()));
        for repository in
            [path.display().to_string(), format!("file://{}", path.display()), format!("http://{address}/docs")]
        {
            let mut origin = start_origin(AIR_GAPPED, &format!("git = \"{repository}\""));
            assert_eq!(export(&origin), site, "{repository}");
            // The branches of the repository are listed, too.
            let sitemap = support::http::get(origin.address(), "/sites/docs.acme.example/sitemap.xml");
            assert_eq!(sitemap.status, 200, "{repository}");
            origin.kill();
        }
        // A build has no network, or is not run where this machine has no sandbox for it.
        let build = format!("git = \"{}\"\nallowUntrusted = true\nbuild = \"{ASKING_BUILD}\"", path.display());
        let mut origin = start_origin(AIR_GAPPED, &build);
        let job = origin.export(&json!({}));
        let status = origin.wait_for_job(&job);
        if status["status"] == "failed" {
            assert!(status.to_string().contains("no sandbox for the build of an air-gapped origin"), "{status}");
            println!("not tested on this machine: {status}");
        } else {
            assert_eq!(origin.files(&origin.bundle(&job)), site);
        }
        origin.kill();
        let (_dir, crawled) = serve_site(&[("index.html", "<a href=guide.html>"), ("guide.html", "<p>guide")], &[]);
        let mut origin = start_origin(AIR_GAPPED, &format!("crawl = \"http://{}/\"", crawled.address));
        assert!(export(&origin).contains(&"guide.html".to_owned()));
        origin.kill();
        assert_eq!(recorder.packets(), before);
        // The same build of an origin that is not air-gapped is recorded.
        commit(&path, &[("other.html", "<p>other")], "other");
        let mut origin = start_origin("", &format!("{build}\nnetwork = true"));
        export(&origin);
        origin.kill();
        // Regression: in the bubblewrap of an origin that is root, a build could not read the address of the name server.
        assert!(recorder.packets() > before, "{}", origin.log());
    });
}

#[test]
fn a_response_leads_git_and_the_crawl_to_no_other_server() {
    let test = "air_gapped::a_response_leads_git_and_the_crawl_to_no_other_server";
    run_in_recorded_network(test, |recorder| {
        let before = recorder.packets();
        let address = serve_redirects();
        let mut origin = start_origin(AIR_GAPPED, &format!("git = \"http://{address}/docs\""));
        let error = failed_export(&origin);
        assert!(error.contains("302") || error.contains("redirect"), "{error}");
        origin.kill();
        let mut origin = start_origin(AIR_GAPPED, &format!("crawl = \"http://{address}/\""));
        failed_export(&origin);
        origin.kill();
        assert_eq!(recorder.packets(), before);
    });
}

#[test]
fn sources_that_an_air_gapped_origin_cannot_reach_are_mistakes_that_name_their_key() {
    for (keys, name) in [
        ("git = \"https://git.acme.example/docs.git\"", "project \"docs\": git: "),
        ("git = \"git@10.0.0.5:docs.git\"", "project \"docs\": git: "),
        ("git = \"http://203.0.113.9/docs.git\"", "project \"docs\": git: "),
        ("crawl = \"http://docs.acme.example/\"", "project \"docs\": crawl: "),
        ("crawl = \"http://203.0.113.9/\"", "project \"docs\": crawl: "),
        ("git = \"docs.git\"\nnetwork = true", "project \"docs\": network: "),
    ] {
        let origin = TestOrigin::new(&organizations("directory = \"site\""));
        origin.write(&format!("{AIR_GAPPED}{SERVER_SECTION}"), &organizations(keys));
        for arguments in [&["check"][..], &[]] {
            let output = run_to_end(&mut origin.command(arguments)).expect(2);
            assert!(output.stderr.contains(name) && output.stderr.lines().count() == 1, "{}", output.stderr);
        }
    }
}
