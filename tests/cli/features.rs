//! `features`: the rows of the vendor's table, with what this host provides.

use serde_json::{Value, json};
use support::host::{Host, bundle, run_with_timeout, toml_string};
use support::{docwharf, temporary_folder};

/// A host of this type of deployment, on which everything has its default.
fn host(deployment: &str) -> Host {
    Host::bare().without("search.enabled").set("deployment.type", toml_string(deployment))
}

#[track_caller]
fn features(host: &Host) -> Value {
    host.ok(&["features", "--json"]).json()
}

/// Returns one row of the report.
#[track_caller]
fn feature(host: &Host, id: &str) -> Value {
    let report = features(host);
    let row = report["features"].as_array().unwrap().iter().find(|row| row["id"] == id).cloned();
    row.unwrap_or_else(|| panic!("{id} is not in {report}"))
}

/// The reason of what only a daemon provides, while none runs.
const NO_DAEMON: &str = "docwharf run provides it, and no daemon answers on this store at the moment";

/// The expected `state`, `by` and `why`.
type Provided<'a> = (&'a str, Option<&'a str>, Option<&'a str>);

/// The columns of the vendor's table: type of deployment, and the cell of each row.
const VENDOR: [(&str, [&str; 5]); 3] = [
    ("cloud", ["available", "available", "available", "available", "available"]),
    ("client-hosted", ["configurable", "configurable", "configurable", "available", "available"]),
    ("air-gapped", ["unavailable", "unavailable", "unavailable", "configurable", "available"]),
];

#[test]
fn features_compares_the_vendors_table_with_this_host_for_each_type_of_deployment() {
    for (deployment, vendor) in VENDOR {
        let host = host(deployment).set("sync.inbox", toml_string("inbox"));
        let by = format!("the inbox {} (sync.inbox)", host.path("inbox").display());
        let web_analytics = if cfg!(feature = "analytics") {
            ("available", Some("the views that docwharf run counts in analytics.db"), Some(NO_DAEMON))
        } else {
            ("unavailable", None, Some("this docwharf was built without the feature \"analytics\""))
        };
        let assistant =
            format!("{NO_DAEMON}; questions are not answered without assistant.baseUrl and assistant.model");
        let rows: [(&str, &str, Provided<'_>); 5] = [
            (
                "search",
                "Documentation search",
                ("available", Some("the search of docwharf at /_docwharf/search"), Some(NO_DAEMON)),
            ),
            (
                "assistant",
                "AI assistant",
                ("available", Some("the MCP server of docwharf at /_docwharf/mcp"), Some(&assistant)),
            ),
            ("webAnalytics", "Web analytics", web_analytics),
            (
                "playground",
                "API playground (\"Try it\")",
                ("configurable", None, Some("playground.enabled is false, and playground.allow lists no API")),
            ),
            ("staticExport", "Static export bundle", ("available", Some(&by), None)),
        ];
        let rows: Vec<Value> = rows
            .iter()
            .zip(vendor)
            .map(|((id, feature, (state, by, why)), vendor)| {
                let set: &[&str] = if *state == "configurable" { &["playground.enabled", "playground.allow"] } else { &[] };
                json!({ "id": id, "feature": feature, "vendor": vendor, "state": state, "by": by, "set": set, "why": why })
            })
            .collect();
        let expected = json!({
            "schemaVersion": 1,
            "deployment": { "type": deployment, "allow": [] },
            "features": rows,
        });
        assert_eq!(features(&host), expected);
    }
}

#[test]
fn features_has_the_names_and_the_vendors_cells_of_the_document() {
    let document = include_str!("../../docs/features.md");
    let (_, table) = document.split_once("| feature | cloud | client-hosted | air-gapped |").unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect();
    assert_eq!(rows.len(), 5);
    for (column, (deployment, _)) in VENDOR.iter().enumerate() {
        let report = features(&host(deployment));
        for (row, feature) in rows.iter().zip(report["features"].as_array().unwrap()) {
            assert_eq!((&feature["feature"], &feature["vendor"]), (&json!(row[0]), &json!(row[column + 1])));
        }
    }
}

#[test]
fn features_prints_a_table_with_a_line_for_each_feature() {
    let host = host("air-gapped")
        .set("deployment.allow", r#"["10.0.0.0/8:443", "fd00::1"]"#)
        .set("search.enabled", "false")
        .set("sync.inbox", toml_string("inbox"));
    let table = host.ok(&["features"]).stdout;
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "deployment: air-gapped; allowed: 10.0.0.0/8:443, fd00::1");
    assert_eq!(lines[2], "FEATURE                    VENDOR        HERE          BY, OR WHAT IT NEEDS");
    assert_eq!(lines[3], "Documentation search       unavailable   configurable  set search.enabled = true");
    assert_eq!(
        lines[6],
        "API playground (\"Try it\")  configurable  configurable  set playground.enabled = true and playground.allow"
    );
    let inbox = format!("the inbox {} (sync.inbox)", host.path("inbox").display());
    assert_eq!(lines[7], format!("Static export bundle       available     available     {inbox}"));
    assert_eq!(lines.len(), 8, "{table}");
}

#[test]
fn features_names_the_keys_that_turn_a_feature_on_and_they_do() {
    let mut host = host("air-gapped").set("search.enabled", "false").set("server.basePath", toml_string("/docs/"));
    let search = feature(&host, "search");
    assert_eq!((&search["state"], &search["set"]), (&json!("configurable"), &json!(["search.enabled"])));
    host.change("search.enabled", "true");
    let search = feature(&host, "search");
    assert_eq!((&search["state"], &search["set"]), (&json!("available"), &json!([])));
    assert_eq!(search["by"], "the search of docwharf at /docs/_docwharf/search");
    let export = feature(&host, "staticExport");
    assert_eq!((&export["state"], &export["set"]), (&json!("configurable"), &json!(["sync.inbox"])));
    host.change("staticExport.enabled", "false");
    let export = feature(&host, "staticExport");
    assert_eq!(export["set"], json!(["staticExport.enabled", "sync.inbox"]));
    host.remove("staticExport.enabled");
    host.change("sync.inbox", toml_string("inbox"));
    assert_eq!(feature(&host, "staticExport")["state"], "available");
    if cfg!(feature = "analytics") {
        host.change("analytics.enabled", "false");
        host.change("analytics.pages", "false");
        let analytics = feature(&host, "webAnalytics");
        assert_eq!(analytics["set"], json!(["analytics.enabled", "analytics.pages"]));
        assert_eq!((&analytics["state"], &analytics["by"]), (&json!("configurable"), &Value::Null));
        host.change("analytics.enabled", "true");
        host.change("analytics.pages", "true");
        assert_eq!(feature(&host, "webAnalytics")["state"], "available");
    }
}

#[test]
fn features_names_what_assistants_and_pages_can_use_once_it_is_configured() {
    const TARGET: &str = "[{ origin = \"https://api.example:8443\" }, { origin = \"http://127.0.0.1:9000\" }]";
    let mut host = host("client-hosted").set("assistant.mcp", "false");
    let assistant = feature(&host, "assistant");
    assert_eq!((&assistant["state"], &assistant["set"]), (&json!("configurable"), &json!(["assistant.mcp"])));
    host.change("assistant.baseUrl", toml_string("http://127.0.0.1:11434/v1"));
    host.change("assistant.model", toml_string("llama3.1"));
    let assistant = feature(&host, "assistant");
    assert_eq!((&assistant["state"], &assistant["why"]), (&json!("available"), &json!(NO_DAEMON)));
    assert_eq!(assistant["by"], "the model llama3.1, asked at /_docwharf/ask");
    host.change("assistant.mcp", "true");
    let by = "the MCP server of docwharf at /_docwharf/mcp, the model llama3.1, asked at /_docwharf/ask";
    assert_eq!(feature(&host, "assistant")["by"], by);
    host.change("playground.allow", TARGET);
    assert_eq!(feature(&host, "playground")["set"], json!(["playground.enabled"]));
    host.change("playground.enabled", "true");
    let playground = feature(&host, "playground");
    assert_eq!((&playground["state"], &playground["set"]), (&json!("available"), &json!([])));
    let by = "docwharf at /_docwharf/playground, which sends requests to https://api.example:8443, \
              http://127.0.0.1:9000";
    assert_eq!(playground["by"], by);
}

#[test]
fn features_names_each_source_of_bundles_without_secrets() {
    let link = "https://bundles.example/b.zip";
    let host = host("client-hosted");
    assert_eq!(feature(&host, "staticExport")["set"], json!(["staticExport.bundleUrl"]));
    let host = host.set("staticExport.bundleUrl", toml_string(&format!("{link}?signature=5ecret")));
    let by = |host: &Host| feature(host, "staticExport")["by"].as_str().unwrap_or_default().to_owned();
    assert_eq!(by(&host), format!("the link {link} (staticExport.bundleUrl)"));
    let host = host
        .set("api.baseUrl", toml_string("https://api.example/v1"))
        .set("api.domain", toml_string("docs.example"))
        .set("api.keyFile", toml_string("key"));
    assert_eq!(by(&host), "the management API https://api.example/v1#docs.example (api.baseUrl)");
    let host = Host::bare().set("staticExport.bundleUrl", toml_string("bundle.zip"));
    assert_eq!(by(&host), format!("the file {} (staticExport.bundleUrl)", host.path("bundle.zip").display()));
    let host = Host::bare();
    host.put("bundle.zip", bundle("first"));
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
    assert_eq!(by(&host), "bundles that docwharf import brings in");
}

#[test]
fn features_works_without_a_configuration_file_and_reports_a_wrong_one() {
    let dir = temporary_folder();
    let mut command = docwharf();
    command.env("DOCWHARF_STORE__PATH", dir.path().join("store"));
    let report = run_with_timeout(command.args(["features", "--json"])).expect(0).json();
    assert_eq!(report["deployment"], json!({ "type": "client-hosted", "allow": [] }));
    assert_eq!(report["features"].as_array().unwrap().len(), 5);
    assert!(!dir.path().join("store").exists(), "nothing is created");
    let mut command = docwharf();
    command.env("DOCWHARF_DEPLOYMENT__TYPE", "cloud");
    let report = run_with_timeout(command.args(["features", "--json"])).expect(0).json();
    assert_eq!(report["deployment"]["type"], "cloud");
    for (key, value) in [("deployment.type", "\"airgapped\""), ("deployment.allow", "[\"updates.example\"]")] {
        let output = host("air-gapped").set(key, value).expect_exit(2, &["features", "--json"]);
        assert!(output.stderr.contains(&format!("{key}: ")), "{}", output.stderr);
        assert_eq!(output.json()["error"]["exit"], 2);
    }
}
