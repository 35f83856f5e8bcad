//! `doctor`: the model that answers questions, the APIs of the playground, and their keys of the configuration.

use std::os::unix::fs::PermissionsExt;

use support::host::{Host, bundle, run_with_timeout, toml_string};
use support::proxy::ForwardProxy;
use support::upstream::Upstream;

use crate::doctor::{assert_check, checks, doctor, parse_checks};

/// A key of a model, which no output may have.
const MODEL_KEY: &str = "sk-5ecret-of-the-model";

/// A host that asks a model at this URL, and whose pages may send requests to this origin.
fn host(base_url: &str, origin: &str) -> Host {
    let host = Host::bare()
        .without("search.enabled")
        .set("sync.inbox", toml_string("inbox"))
        .set("assistant.baseUrl", toml_string(base_url))
        .set("assistant.model", toml_string("llama3.1"))
        .set("assistant.keyFile", toml_string("model-key"))
        .set("assistant.hosts", toml_string("docs.example.com"))
        .set("playground.enabled", "true")
        .set("playground.allow", targets(origin, "127.0.0.1"));
    host.put("model-key", MODEL_KEY);
    set_mode(&host, 0o640);
    host
}

/// Returns the value of `playground.allow` for an API at this origin, which may have this address.
fn targets(origin: &str, address: &str) -> String {
    format!("[{{ origin = {}, addresses = [{}] }}]", toml_string(origin), toml_string(address))
}

fn set_mode(host: &Host, mode: u32) {
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(host.path("model-key"), permissions).expect("a mode");
}

#[test]
fn doctor_reaches_the_endpoint_of_a_model_and_the_apis_of_the_playground_without_the_key() {
    let (model, api) = (Upstream::new(bundle("one")), Upstream::new(bundle("two")));
    let host = host(&model.base_url(), &api.api_origin());
    let output = run_with_timeout(&mut doctor(&host, &[]));
    let found = parse_checks(&output);
    let name = |upstream: &Upstream| upstream.api_origin().trim_start_matches("http://").to_owned();
    assert_check(&found, "assistant", "ok", &[&format!("{} responds; the model was not tried", name(&model))]);
    assert_check(&found, "playground", "ok", &[&format!("{} responds; the API itself was not tried", name(&api))]);
    assert!(!output.stdout.contains(MODEL_KEY) && !output.stderr.contains(MODEL_KEY), "{output:?}");
    for request in [model.log(), api.log()].concat() {
        assert!(request.target == "/" && request.header("Authorization").is_none(), "{request:?}");
    }
    assert_eq!((model.log().len(), api.log().len()), (1, 1));
    // The playground would refuse each request.
    let refused = host.set("playground.allow", targets(&api.api_origin(), "10.0.0.0/8"));
    let reason = format!("{} is 127.0.0.1, which is not public: requests to it are refused", name(&api));
    assert_check(&checks(&refused, &[]), "playground", "error", &[&reason, "list it in addresses"]);
    assert_eq!(api.log().len(), 1);
    let host = refused.set("playground.allow", targets(&api.api_origin(), "127.0.0.0/8"));
    let unreachable = host.set("assistant.baseUrl", toml_string("http://127.0.0.1:1/v1"));
    assert_check(&checks(&unreachable, &[]), "assistant", "error", &["127.0.0.1:1", "check the address"]);
    let off = unreachable.set("playground.enabled", "false");
    assert!(checks(&off, &[]).iter().all(|check| check["name"] != "playground"));
    assert_eq!(api.log().len(), 2);
}

#[test]
fn doctor_asks_no_proxy_for_the_apis_of_the_playground_and_a_model_on_this_machine() {
    let (model, api, proxy) = (Upstream::new(bundle("one")), Upstream::new(bundle("two")), ForwardProxy::new());
    let host = host(&model.base_url(), &api.api_origin());
    let check = |host: &Host| parse_checks(&run_with_timeout(doctor(host, &[]).env("HTTP_PROXY", proxy.url())));
    let found = check(&host);
    let direct = |upstream: &Upstream| format!("{} directly", upstream.api_origin().trim_start_matches("http://"));
    assert_check(&found, "proxy", "ok", &[&direct(&model), &direct(&api)]);
    assert_check(&found, "assistant", "ok", &["responds"]);
    assert_check(&found, "playground", "ok", &["responds"]);
    assert_eq!(proxy.request_lines(), [] as [String; 0]);
    let found = check(&host.set("assistant.baseUrl", toml_string("http://model.invalid/v1")));
    assert_check(&found, "proxy", "ok", &[&format!("model.invalid through {}", proxy.url()), &direct(&api)]);
    let lines = proxy.request_lines();
    assert!(!lines.is_empty() && lines.iter().all(|line| line.contains("model.invalid")), "{lines:?}");
}

#[test]
fn doctor_reports_keys_of_the_assistant_and_the_playground_that_have_not_the_intended_effect() {
    let mut host = host("http://127.0.0.1:9/v1", "http://127.0.0.1:9");
    let configuration = |host: &Host| {
        let found = checks(host, &["--offline"]);
        found.into_iter().filter(|check| check["name"] == "configuration").collect::<Vec<_>>()
    };
    let before = configuration(&host);
    assert!(before.iter().all(|check| check["status"] == "ok"), "{before:#?}");
    set_mode(&host, 0o644);
    assert_check(&configuration(&host), "configuration", "warning", &["model-key (assistant.keyFile) has mode 0644"]);
    set_mode(&host, 0o600);
    host.put("model-key", "");
    assert_check(&configuration(&host), "configuration", "warning", &["model-key (assistant.keyFile) is empty"]);
    std::fs::remove_file(host.path("model-key")).expect("a file");
    let missing = ["model-key (assistant.keyFile) cannot be read: "];
    assert_check(&configuration(&host), "configuration", "warning", &missing);
    host.remove("assistant.keyFile");
    host.remove("assistant.hosts");
    let both = "assistant.hosts is empty: questions of readers and requests to the playground are answered only if";
    assert_check(&configuration(&host), "configuration", "warning", &[both]);
    host.change("search.enabled", "false");
    let no_search = ["assistant.baseUrl: questions are not answered: search.enabled is false"];
    assert_check(&configuration(&host), "configuration", "warning", &no_search);
    host.remove("assistant.baseUrl");
    host.remove("assistant.model");
    let playground = "assistant.hosts is empty: requests to the playground are answered only if";
    assert_check(&configuration(&host), "configuration", "warning", &[playground]);
    host.remove("playground.allow");
    assert_check(&configuration(&host), "configuration", "warning", &["[[playground.allow]]"]);
    host.remove("playground.enabled");
    let after = configuration(&host);
    assert!(after.iter().all(|check| check["status"] == "ok"), "{after:#?}");
}
