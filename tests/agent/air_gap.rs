//! `deployment.type = "air-gapped"`: where an agent connects, and how its commands end if their upstream is not
//! allowed.

use std::process::Command;

use support::host::{Host, bundle, front_page_title, run_with_timeout, toml_string};
use support::http;
use support::project_api::PROJECT;
use support::proxy::ForwardProxy;
use support::upstream::{Upstream, UpstreamCall, redirect_reply};
#[cfg(all(feature = "origin", feature = "analytics"))]
use support::{Daemon, ReservedPort};

/// The variables that name proxies.
const PROXY_VARIABLES: [&str; 4] = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
/// An address for documentation (RFC 5737), to which no test connects.
const ELSEWHERE: &str = "192.0.2.1";
/// A name that is in no hosts file (RFC 6761, section 6.4).
const UNKNOWN_NAME: &str = "docwharf.invalid";

/// A host that is air-gapped; its upstream is at this base URL.
fn air_gapped(upstream: &Upstream, base_url: &str) -> Host {
    Host::new(upstream)
        .set("deployment.type", toml_string("air-gapped"))
        .set("api.baseUrl", toml_string(base_url))
        .set("api.projectId", toml_string(PROJECT))
}

/// Sets all variables that name proxies.
fn with_proxy(mut command: Command, proxy: &ForwardProxy) -> Command {
    for name in PROXY_VARIABLES {
        command.env(name, proxy.url());
    }
    command
}

#[test]
fn an_air_gapped_agent_syncs_from_loopback_and_ignores_proxies_of_the_environment() {
    let upstream = Upstream::new(bundle("one"));
    let proxy = ForwardProxy::new();
    // By name, too: `localhost` needs no entry in /etc/hosts.
    let by_name = upstream.base_url().replace("127.0.0.1", "api.localhost");
    for base_url in [upstream.base_url(), by_name] {
        let host = air_gapped(&upstream, &base_url);
        let before = upstream.count(UpstreamCall::Download);
        run_with_timeout(&mut with_proxy(host.command(&["sync"]), &proxy)).expect(0);
        let report = run_with_timeout(&mut with_proxy(host.command(&["doctor", "--json"]), &proxy)).json();
        let found = |name: &str| {
            let mut checks = report["checks"].as_array().unwrap().iter();
            checks.find(|check| check["name"] == name).map(|check| check["found"].as_str().unwrap().to_owned())
        };
        let expected = "air-gapped: connections to loopback only, names from /etc/hosts";
        assert_eq!(found("deployment").as_deref(), Some(expected));
        assert!(found("proxy").is_some_and(|text| text.contains("set, and ignored")), "{report:#}");
        assert_eq!(upstream.count(UpstreamCall::Download), before + 1, "{base_url}");
        assert_eq!(proxy.request_lines(), [] as [String; 0], "{base_url}");
    }
    // Another deployment uses the proxy.
    let host = Host::new(&upstream);
    run_with_timeout(&mut with_proxy(host.command(&["sync"]), &proxy)).expect(0);
    assert!(!proxy.request_lines().is_empty());
}

#[test]
fn commands_whose_upstream_is_not_allowed_end_with_2_and_say_why() {
    let upstream = Upstream::new(bundle("one"));
    let reason = "deployment.type is \"air-gapped\"";
    for target in [ELSEWHERE, UNKNOWN_NAME] {
        let host = air_gapped(&upstream, &format!("http://{target}:8090/v1"));
        for arguments in [
            &["sync"][..],
            &["run"],
            &["config", "check"],
            &["export", "start"],
            &["export", "status", "job-1"],
            &["export", "download", "job-1"],
            &["preview", "create", "--branch", "x"],
            &["analytics", "searches"],
        ] {
            let ended = host.expect_exit_one_line(2, arguments);
            assert!(ended.stderr.contains("api.baseUrl: ") && ended.stderr.contains(reason), "{}", ended.stderr);
            assert!(ended.stderr.contains(target), "{}", ended.stderr);
        }
        let linked = Host::linked(&format!("https://{target}/b.zip?token=s3cret-token"))
            .set("deployment.type", toml_string("air-gapped"));
        let ended = linked.expect_exit_one_line(2, &["sync"]);
        assert!(ended.stderr.contains("staticExport.bundleUrl: ") && ended.stderr.contains(reason), "{}", ended.stderr);
        assert!(!ended.stderr.contains("s3cret"), "{}", ended.stderr);
    }
    // The environment is checked like the file.
    let host = air_gapped(&upstream, &upstream.base_url());
    let mut command = host.command(&["sync"]);
    let ended = run_with_timeout(command.env("DOCWHARF_SYNC__PROBE", format!("http://{ELSEWHERE}/x"))).expect(2);
    assert!(ended.stderr.contains("sync.probe: ") && ended.stderr.contains(reason), "{}", ended.stderr);
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn an_allowed_upstream_cannot_send_an_air_gapped_agent_elsewhere() {
    for target in [ELSEWHERE, UNKNOWN_NAME] {
        let upstream = Upstream::new(bundle("one"));
        let location = format!("http://{target}/b.zip?token=s3cret-token");
        upstream.on(UpstreamCall::Download).respond_with(redirect_reply(302, &location));
        let ended = air_gapped(&upstream, &upstream.base_url()).expect_exit_one_line(2, &["sync"]);
        let reason = format!("a redirect leads to http://{target}/b.zip: deployment.type is \"air-gapped\"");
        assert!(ended.stderr.contains(&reason) && !ended.stderr.contains("s3cret"), "{}", ended.stderr);
        assert_eq!(upstream.count(UpstreamCall::Download), 1, "it is not repeated");
    }
}

#[test]
fn a_running_air_gapped_agent_serves_with_the_policy_airgap() {
    let upstream = Upstream::new(bundle("one"));
    let host = air_gapped(&upstream, &upstream.base_url());
    host.ok(&["sync"]);
    let daemon = host.run();
    assert_eq!(front_page_title(&daemon), "one");
    let policy = http::get(&daemon.address, "/").header("content-security-policy").unwrap_or_default().to_owned();
    assert!(policy.contains("'self'"), "{policy}");
    let shown = host.ok(&["config", "show"]).stdout;
    let line = shown.lines().find(|line| line.starts_with("# csp = \"airgap\" "));
    assert!(line.is_some_and(|line| line.ends_with("# default")), "{shown}");
}

#[test]
fn health_of_an_air_gapped_host_queries_no_admin_listener_at_another_address() {
    let host = Host::bare()
        .set("deployment.type", toml_string("air-gapped"))
        .set("admin.listen", toml_string(&format!("{ELSEWHERE}:9")));
    std::fs::create_dir(host.path("store")).unwrap();
    let ended = host.expect_exit_one_line(2, &["health"]);
    let reason = format!("{ELSEWHERE}:9 is neither loopback nor in deployment.allow");
    assert!(ended.stderr.contains("admin.listen: ") && ended.stderr.contains(&reason), "{}", ended.stderr);
}

#[cfg(all(feature = "origin", feature = "analytics"))]
#[test]
fn an_air_gapped_agent_delivers_to_an_origin_on_loopback_and_ignores_proxies_of_the_environment() {
    use crate::analytics_delivery::{act, delivering_host, start_origin, totals, wait_until_delivered};

    let (port, proxy) = (ReservedPort::new(), ForwardProxy::new());
    let origin = start_origin(&port);
    let host = delivering_host(&port, &origin.key).set("deployment.type", toml_string("air-gapped"));
    let daemon = Daemon::start(&mut with_proxy(host.command(&["run"]), &proxy));
    act(&daemon, "moat", 2);
    wait_until_delivered(&host);
    assert_eq!(totals(&origin), (vec![("moat".to_owned(), 2, 0.5)], vec![("/guide".to_owned(), 1)]));
    assert_eq!(proxy.request_lines(), [] as [String; 0]);
    // Another address is a mistake, also in the environment.
    let mut command = host.command(&["run"]);
    command.env("DOCWHARF_ANALYTICS__DELIVER__BASE_URL", format!("http://{ELSEWHERE}/v1"));
    let ended = run_with_timeout(&mut command).expect(2);
    assert!(ended.stderr.contains("analytics.deliver.baseUrl: deployment.type is"), "{}", ended.stderr);
}
