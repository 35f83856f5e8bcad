//! An air-gapped host in a network whose only route leads to a recorder of packets: no command sends one, and neither
//! does a daemon. The host reaches its upstream on loopback.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use support::host::{Host, bundle, front_page_title, run_with_timeout, toml_string};
use support::recorded_network::{run_in_recorded_network, without_network_namespaces};
use support::upstream::{Upstream, UpstreamCall};
use support::{CommandOutput, KillOnDrop, http, send_signal, until, until_done_in_background, write_site};

use crate::exit_codes::{ROWS, Row};

/// Commands beside those of the table, which has each command once: with a look at the network, and with git.
const MORE_ROWS: &[(&str, &str)] = &[("doctor", ""), ("preview create", ""), ("search", "--in site.zip first")];
/// Commands that serve until they are stopped.
const SERVING_COMMANDS: [&str; 3] = ["run", "serve", "demo"];
/// Commands that need the upstream, and so end with 2 if it is not allowed.
const UPSTREAM_COMMANDS: [&str; 8] = [
    "run",
    "sync",
    "export start",
    "export status",
    "export link",
    "export download",
    "preview create",
    "preview status",
];
/// Variables by which a program finds proxies, with an address that leads to the recorder.
const PROXY_VARIABLES: [&str; 6] = ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "HTTP_PROXY"];

fn add_proxies(command: &mut Command) -> &mut Command {
    command
        .envs(PROXY_VARIABLES.map(|name| (name, "http://203.0.113.7:3128")))
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
}

/// Adds the files that the rows of the table name.
fn with_files(host: Host) -> Host {
    let host = host.set("deployment.type", toml_string("air-gapped"));
    host.put("site.zip", bundle("first"));
    host.put("searches.ndjson", "");
    write_site(&host.path("folder"), &[("index.html", "<title>first</title>")]);
    host
}

/// Runs a command to its end. One that serves is stopped when it has printed an address.
fn run_command(command: &mut Command, serves: bool) -> CommandOutput {
    if !serves {
        return run_with_timeout(command);
    }
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("docwharf starts");
    let mut child = KillOnDrop(child);
    let mut stdout = String::new();
    BufReader::new(child.0.stdout.take().expect("a pipe")).read_line(&mut stdout).expect("stdout can be read");
    if !stdout.is_empty() {
        send_signal(&child.0, "TERM");
    }
    let code = child.wait(Duration::from_mins(1));
    let stderr = std::io::read_to_string(child.0.stderr.take().expect("a pipe")).expect("stderr can be read");
    CommandOutput { code, stdout, stderr }
}

/// Runs each command on the host, and panics if one of them sends a packet. Returns the outputs.
fn run_all_commands(host: &Host, packets: &dyn Fn() -> u64) -> Vec<(&'static str, CommandOutput)> {
    let before = packets();
    let rows = ROWS.iter().map(|&(command, arguments, _): &Row| (command, arguments));
    let mut outputs = Vec::new();
    for (command, arguments) in rows.chain(MORE_ROWS.iter().copied()) {
        let words: Vec<&str> = command.split(' ').chain(arguments.split_whitespace()).collect();
        let mut process = host.command(&words);
        add_proxies(&mut process).current_dir(host.dir.path());
        let output = run_command(&mut process, SERVING_COMMANDS.contains(&command));
        assert_eq!(packets(), before, "{command} {arguments} has sent a packet: {output:?}");
        outputs.push((command, output));
    }
    outputs
}

#[test]
fn no_command_sends_a_packet() {
    run_in_recorded_network("air_gapped::no_command_sends_a_packet", |recorder| {
        let packets = || recorder.packets();
        // A source on the disk.
        let host = with_files(Host::bare()).set("staticExport.bundleUrl", toml_string("site.zip"));
        let outputs = run_all_commands(&host, &packets);
        let code =
            |command: &str| outputs.iter().find(|(name, _)| *name == command).and_then(|(_, output)| output.code);
        assert_eq!((code("run"), code("sync"), code("import"), code("serve")), (Some(0), Some(0), Some(0), Some(0)));
        // An API on loopback, which no proxy is asked for.
        let upstream = Upstream::new(bundle("first"));
        let host = with_files(Host::new(&upstream)).set("api.projectId", toml_string("project"));
        let outputs = run_all_commands(&host, &packets);
        let (_, sync) = outputs.iter().find(|(name, _)| *name == "sync").expect("a row");
        assert!(sync.code == Some(0) && upstream.count(UpstreamCall::Start) > 0, "{sync:?}");
        // No source, and an API at a name that is in /etc/hosts only.
        run_all_commands(&with_files(Host::bare()), &packets);
        let port = upstream.api_origin().rsplit_once(':').expect("a port").1.to_owned();
        let base_url = toml_string(&format!("http://localhost:{port}/v1"));
        let host = with_files(Host::new(&upstream)).set("api.baseUrl", base_url);
        run_all_commands(&host, &packets);
    });
}

#[test]
fn commands_whose_upstream_is_not_allowed_name_the_key_and_send_no_packet() {
    let test = "air_gapped::commands_whose_upstream_is_not_allowed_name_the_key_and_send_no_packet";
    run_in_recorded_network(test, |recorder| {
        let upstream = Upstream::new(bundle("first"));
        for (key, value) in [
            ("api.baseUrl", toml_string("https://api.example/v1")),
            ("api.baseUrl", toml_string("http://203.0.113.9/v1")),
            ("api.baseUrl", toml_string("https://[2001:db8:1::9]:8443/v1")),
            ("staticExport.bundleUrl", toml_string("https://cdn.example/site.zip")),
            ("staticExport.bundleUrl", toml_string("http://203.0.113.9/site.zip")),
            ("assistant.baseUrl", toml_string("https://models.example/v1")),
            ("playground.allow", "[{ origin = \"http://203.0.113.9\" }]".to_owned()),
        ] {
            let host = with_files(Host::new(&upstream)).set("api.projectId", toml_string("project"));
            let host = host.set("deployment.allow", "[\"203.0.113.8\"]").set(key, value.as_str());
            let model = toml_string("llama3.1");
            let host = if key == "assistant.baseUrl" { host.set("assistant.model", model) } else { host };
            for (command, output) in run_all_commands(&host, &|| recorder.packets()) {
                if UPSTREAM_COMMANDS.contains(&command) {
                    assert!(output.code == Some(2) && output.stderr.contains(key), "{command}: {value}: {output:?}");
                }
            }
        }
        assert_eq!(upstream.log().len(), 0);
        // The same commands of a host that is not air-gapped are recorded.
        let host = Host::linked("http://203.0.113.9/site.zip").set("network.connectTimeout", toml_string("200ms"));
        let mut command = host.command(&["sync"]);
        let mut child = KillOnDrop(command.stderr(Stdio::null()).spawn().expect("docwharf starts"));
        until("a packet is sent", || recorder.packets() > 0);
        send_signal(&child.0, "INT");
        child.wait(Duration::from_mins(1));
    });
}

/// The daemon reloads its configuration until the status has, or has not, a mistake of it.
fn reload(daemon: &support::Daemon, host: &Host, has_mistake: bool) {
    daemon.signal("HUP");
    until("the configuration is read", || host.status()["configError"].is_string() == has_mistake);
}

#[test]
fn a_daemon_that_checks_reloads_and_imports_sends_no_packet() {
    let test = "air_gapped::a_daemon_that_checks_reloads_and_imports_sends_no_packet";
    run_in_recorded_network(test, |recorder| {
        let before = recorder.packets();
        let upstream = Upstream::new(bundle("fetched"));
        let mut host = with_files(Host::new(&upstream))
            .set("search.enabled", "true")
            .set("search.inject", toml_string("never"))
            .set("sync.inbox", toml_string("inbox"))
            .set("sync.interval", toml_string("1s"))
            .set("sync.probe", format!("[{}]", toml_string(&upstream.probe_url())));
        std::fs::create_dir(host.path("inbox")).expect("a folder");
        let mut command = host.command(&["run"]);
        let log = std::fs::File::create(host.path("log")).expect("a log");
        let daemon = support::Daemon::start(add_proxies(&mut command).stderr(log));
        until("the bundle is fetched", || front_page_title(&daemon) == "fetched");
        until("the source is checked again and again", || upstream.count(UpstreamCall::Probe) >= 3);
        // The processes that build an index and compress pages do their work.
        until_done_in_background("the index is built", || host.status()["daemon"]["search"]["ready"] == true);
        assert_eq!(http::get(&daemon.address, "/_docwharf/search?q=fetched").status, 200);
        until_done_in_background("the pages are compressed", || host.status()["daemon"]["codings"]["ready"] == true);
        // An upstream that is not allowed is a mistake of the new configuration, and the old one stays in force.
        let base_url = host.value("api.baseUrl").expect("it is set");
        host.change("api.baseUrl", toml_string("https://api.example/v1"));
        reload(&daemon, &host, true);
        let probes = upstream.count(UpstreamCall::Probe);
        until("the old configuration is in force", || upstream.count(UpstreamCall::Probe) >= probes + 2);
        host.change("api.baseUrl", base_url);
        reload(&daemon, &host, false);
        std::fs::write(host.path("inbox/.new"), bundle("carried")).expect("a file");
        std::fs::rename(host.path("inbox/.new"), host.path("inbox/new.zip")).expect("a file");
        until_done_in_background("the inbox is read", || front_page_title(&daemon) == "carried");
        let event = r#"{"events":[{"type":"view","page":"/guide"}]}"#;
        let fields = ["Content-Type: application/json"];
        let recorded = http::post(&daemon.address, "/_docwharf/events", &fields, event);
        assert_eq!(recorded.status, if cfg!(feature = "analytics") { 204 } else { 404 });
        for arguments in [&["status"][..], &["sync"], &["search", "carried"], &["doctor"], &["health"]] {
            let output = run_with_timeout(add_proxies(&mut host.command(arguments)));
            assert!(output.code.is_some(), "{output:?}");
        }
        let mut daemon = daemon;
        daemon.signal("TERM");
        assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
        assert_eq!(recorder.packets(), before, "{}", host.log());
    });
}

#[test]
fn where_no_namespace_is_permitted_the_search_index_is_built_and_git_is_not_started() {
    let upstream = Upstream::new(bundle("first"));
    let host = with_files(Host::new(&upstream)).set("api.projectId", toml_string("project"));
    let run = |arguments: &[&str]| {
        let command = without_network_namespaces(host.command(arguments).current_dir(host.dir.path()));
        command.map(|mut command| run_with_timeout(&mut command))
    };
    let Some(search) = run(&["search", "--in", "./site.zip", "--json", "first"]) else { return };
    assert!(search.code == Some(0) && search.stdout.contains("\"first\""), "{search:?}");
    // The program of another project has no other means.
    let preview = run(&["preview", "create"]).expect("the same right as before");
    assert_eq!(preview.code, Some(2), "{preview:?}");
    for part in ["cannot determine the current branch: ", "it no network namespace; ", "name it with --branch"] {
        assert!(preview.stderr.contains(part) && preview.stderr.lines().count() == 1, "{preview:?}");
    }
    assert_eq!(upstream.log().len(), 0);
    let mut host = host;
    host.change("deployment.type", toml_string("client-hosted"));
    let command = host.command(&["preview", "create"]);
    let elsewhere = run_with_timeout(&mut without_network_namespaces(&command).expect("the same right as before"));
    assert!(!elsewhere.stderr.contains("network namespace"), "{elsewhere:?}");
}
