//! TLS with a private certificate authority, and redirects between https and http.

use support::host::{Host, bundle, expect_plain_exit, front_page_title, run_with_timeout, toml_string};
use support::tls::CertificateAuthority;
use support::until;
use support::upstream::{Upstream, UpstreamCall, redirect_reply};

fn tls_upstream(authority: &CertificateAuthority) -> Upstream {
    authority.upstream("127.0.0.1", bundle("one"))
}

#[test]
fn an_unknown_certificate_authority_is_refused_unless_it_is_in_ca_file() {
    let authority = CertificateAuthority::new();
    let upstream = tls_upstream(&authority);
    let host = Host::new(&upstream);
    let ended = host.expect_exit(4, &["sync"]);
    assert!(ended.stderr.contains("api.caFile"), "the advice is missing: {}", ended.stderr);
    assert!(upstream.log().is_empty(), "no request is sent to an untrusted server");
    let host = host.set("api.caFile", toml_string("ca.pem"));
    host.put("ca.pem", authority.pem());
    assert_eq!(host.sync(), "activated");
    assert_eq!(upstream.count(UpstreamCall::Download), 1, "the object store's certificate is from the same authority");
}

#[test]
fn the_root_certificate_may_come_from_ssl_cert_file() {
    let authority = CertificateAuthority::new();
    let upstream = tls_upstream(&authority);
    let host = Host::new(&upstream);
    host.put("ca.pem", authority.pem());
    let mut command = host.command(&["sync"]);
    expect_plain_exit(0, run_with_timeout(command.env("SSL_CERT_FILE", host.path("ca.pem"))));
}

#[test]
fn a_certificate_for_another_name_or_of_another_authority_is_refused() {
    let authority = CertificateAuthority::new();
    let wrong_name = authority.upstream("docs.example.com", bundle("one"));
    let untrusted = tls_upstream(&CertificateAuthority::new());
    for upstream in [&wrong_name, &untrusted] {
        let host = Host::new(upstream).set("api.caFile", toml_string("ca.pem"));
        host.put("ca.pem", authority.pem());
        host.expect_exit(4, &["sync"]);
        assert!(upstream.log().is_empty());
    }
}

#[test]
fn https_to_a_plain_http_port_is_exit_code_4() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream).set("api.baseUrl", toml_string(&upstream.base_url().replace("http:", "https:")));
    host.expect_exit(4, &["sync"]);
    assert!(upstream.log().is_empty());
}

#[test]
fn a_ca_file_without_a_certificate_is_a_configuration_error() {
    let authority = CertificateAuthority::new();
    let upstream = tls_upstream(&authority);
    for content in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let host = Host::new(&upstream).set("api.caFile", toml_string("ca.pem"));
        host.put("ca.pem", content);
        let ended = host.expect_exit(2, &["sync"]);
        assert!(ended.stderr.contains("ca.pem"), "{}", ended.stderr);
    }
    assert!(upstream.log().is_empty());
}

#[test]
fn a_redirect_from_https_to_http_is_not_followed() {
    let authority = CertificateAuthority::new();
    let upstream = tls_upstream(&authority);
    let plain = Upstream::new(bundle("one"));
    upstream.on(UpstreamCall::Download).respond_with(redirect_reply(302, &plain.link()));
    let host = Host::new(&upstream).set("api.caFile", toml_string("ca.pem"));
    host.put("ca.pem", authority.pem());
    host.expect_exit(4, &["sync"]);
    assert_eq!(plain.connections(), 0);
}

#[test]
fn run_reads_a_changed_ca_file_again() {
    let authority = CertificateAuthority::new();
    let upstream = tls_upstream(&authority);
    let host = Host::new(&upstream).set("api.caFile", toml_string("ca.pem")).set("sync.interval", toml_string("200ms"));
    host.put("ca.pem", CertificateAuthority::new().pem());
    let daemon = host.run();
    until("the failure", || host.last_result() == "failed");
    host.put("ca.pem", authority.pem());
    until("the version", || front_page_title(&daemon) == "one");
}
