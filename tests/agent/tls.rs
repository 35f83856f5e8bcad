//! TLS with an authority of one's own, and where redirects lead with it and without.

use support::host::{Host, bundle, finish, front, judged, text};
use support::tls::Authority;
use support::until;
use support::upstream::{Call, Upstream, redirect};

fn secured(authority: &Authority) -> Upstream {
    authority.upstream("127.0.0.1", bundle("one"))
}

#[test]
fn an_unknown_authority_is_refused_and_its_root_in_ca_file_is_the_way_in() {
    let authority = Authority::new();
    let upstream = secured(&authority);
    let host = Host::new(&upstream);
    let ended = host.ends(4, &["sync"]);
    assert!(ended.stderr.contains("api.caFile"), "what to do: {}", ended.stderr);
    assert!(upstream.log().is_empty(), "nothing is said to a stranger");
    let host = host.set("api.caFile", text("ca.pem"));
    host.put("ca.pem", authority.pem());
    assert_eq!(host.sync(), "activated");
    assert_eq!(upstream.count(Call::Download), 1, "the bucket is behind the same authority");
}

#[test]
fn the_root_may_come_from_ssl_cert_file() {
    let authority = Authority::new();
    let upstream = secured(&authority);
    let host = Host::new(&upstream);
    host.put("ca.pem", authority.pem());
    let mut command = host.command(&["sync"]);
    judged(0, finish(command.env("SSL_CERT_FILE", host.path("ca.pem"))));
}

#[test]
fn a_certificate_for_another_name_or_of_another_authority_is_refused() {
    let authority = Authority::new();
    let wrong_name = authority.upstream("docs.example.com", bundle("one"));
    let other = secured(&Authority::new());
    for upstream in [&wrong_name, &other] {
        let host = Host::new(upstream).set("api.caFile", text("ca.pem"));
        host.put("ca.pem", authority.pem());
        host.ends(4, &["sync"]);
        assert!(upstream.log().is_empty());
    }
}

#[test]
fn a_plain_port_behind_https_is_exit_4() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream).set("api.baseUrl", text(&upstream.base().replace("http:", "https:")));
    host.ends(4, &["sync"]);
    assert!(upstream.log().is_empty());
}

#[test]
fn a_ca_file_without_a_certificate_is_a_mistake() {
    let authority = Authority::new();
    let upstream = secured(&authority);
    for content in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let host = Host::new(&upstream).set("api.caFile", text("ca.pem"));
        host.put("ca.pem", content);
        let ended = host.ends(2, &["sync"]);
        assert!(ended.stderr.contains("ca.pem"), "{}", ended.stderr);
    }
    assert!(upstream.log().is_empty());
}

#[test]
fn a_redirect_from_https_to_http_is_not_followed() {
    let authority = Authority::new();
    let upstream = secured(&authority);
    let plain = Upstream::new(bundle("one"));
    upstream.on(Call::Download).gives(redirect(302, &plain.link()));
    let host = Host::new(&upstream).set("api.caFile", text("ca.pem"));
    host.put("ca.pem", authority.pem());
    host.ends(4, &["sync"]);
    assert_eq!(plain.connections(), 0);
}

#[test]
fn a_ca_file_that_comes_later_is_noticed_by_run() {
    let authority = Authority::new();
    let upstream = secured(&authority);
    let host = Host::new(&upstream).set("api.caFile", text("ca.pem")).set("sync.interval", text("200ms"));
    host.put("ca.pem", Authority::new().pem());
    let daemon = host.run();
    until("the failure", || host.last() == "failed");
    host.put("ca.pem", authority.pem());
    until("the version", || front(&daemon) == "one");
}
