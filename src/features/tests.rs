//! The vendor's table, and the decision for each feature: types of deployment × settings × states of the host.

use std::fmt::Write;

use super::*;

/// Returns the settings of a configuration without any key.
fn defaults(deployment: DeploymentType) -> FeatureSettings {
    FeatureSettings {
        deployment,
        allow: Vec::new(),
        base_path: "/".to_owned(),
        is_search_enabled: true,
        assistant: AssistantFeatureSettings { is_mcp_enabled: true, model: None },
        playground: PlaygroundFeatureSettings { is_enabled: false, origins: Vec::new() },
        views: Some(ViewCountSettings { is_analytics_enabled: true, counts_pages: true }),
        bundles: BundleSettings { is_enabled: true, source: None, inbox: None },
    }
}

fn settings(change: impl FnOnce(&mut FeatureSettings)) -> FeatureSettings {
    let mut settings = defaults(DeploymentType::AirGapped);
    change(&mut settings);
    settings
}

fn with_views(is_analytics_enabled: bool, counts_pages: bool) -> FeatureSettings {
    settings(|settings| settings.views = Some(ViewCountSettings { is_analytics_enabled, counts_pages }))
}

/// Returns the settings of a host with this MCP server, this model and this search.
fn with_assistant(is_mcp_enabled: bool, model: Option<&str>, is_search_enabled: bool) -> FeatureSettings {
    let model = model.map(str::to_owned);
    settings(|settings| {
        settings.assistant = AssistantFeatureSettings { is_mcp_enabled, model };
        settings.is_search_enabled = is_search_enabled;
    })
}

/// Returns the settings of a host with a playground for these origins.
fn with_playground(is_enabled: bool, origins: &[&str]) -> FeatureSettings {
    let origins = origins.iter().map(|&origin| origin.to_owned()).collect();
    settings(|settings| settings.playground = PlaygroundFeatureSettings { is_enabled, origins })
}

/// Returns the settings of a host with this source and this inbox.
fn with_bundles(is_enabled: bool, source: Option<BundleSource>, inbox: Option<&str>) -> FeatureSettings {
    settings(|settings| settings.bundles = BundleSettings { is_enabled, source, inbox: inbox.map(str::to_owned) })
}

/// Returns the state of a host whose daemon serves a version with a complete index.
fn daemon(change: impl FnOnce(&mut HostState, &mut DaemonFeatureState)) -> HostState {
    let mut host = HostState { has_version: true, daemon: None };
    let mut state = DaemonFeatureState {
        serves_site: true,
        search_index: Some(SearchIndexState::Ready),
        has_recorder: true,
        recording_error: None,
        inbox_error: None,
        has_check_failed: false,
    };
    change(&mut host, &mut state);
    HostState { daemon: Some(state), ..host }
}

fn file(path: &str) -> BundleSource {
    BundleSource::File(path.to_owned())
}

/// The expected `state`, `by`, `set` and `why`.
type Expected<'a> = (Availability, Option<&'a str>, &'a [&'a str], Option<&'a str>);

const SEARCH: &str = "the search of docwharf at /_docwharf/search";
const MCP: &str = "the MCP server of docwharf at /_docwharf/mcp";
const NO_MODEL: &str = "questions are not answered without assistant.baseUrl and assistant.model";
const VIEWS: &str = "the views that docwharf run counts in analytics.db";
const NO_DAEMON: &str = "docwharf run provides it, and no daemon answers on this store at the moment";
const NO_SITE: &str = "the daemon serves no site (run --no-serve)";

fn available<'a>(by: &'a str, why: Option<&'a str>) -> Expected<'a> {
    (Availability::Available, Some(by), &[], why)
}

fn configurable<'a>(set: &'a [&'a str], why: &'a str) -> Expected<'a> {
    (Availability::Configurable, None, set, Some(why))
}

fn unavailable(why: &str) -> Expected<'_> {
    (Availability::Unavailable, None, &[], Some(why))
}

#[track_caller]
fn assert_feature(id: FeatureId, settings: &FeatureSettings, host: &HostState, expected: Expected<'_>) {
    let report = FeatureReport::new(settings, host);
    let feature = report.features.iter().find(|feature| feature.id == id).expect("each feature has a row");
    let set: Vec<&str> = feature.set.iter().map(String::as_str).collect();
    let found = (feature.state, feature.by.as_deref(), &*set, feature.why.as_deref());
    assert_eq!(found, expected, "{id:?} with {settings:?} on {host:?}");
}

#[test]
fn the_rows_and_cells_are_those_of_the_vendors_table() {
    const TABLE: &str = "| Feature | Cloud | Client-hosted | Air-gapped |
|---|---|---|---|
| Documentation search | available | configurable | unavailable |
| AI assistant | available | configurable | unavailable |
| Web analytics | available | configurable | unavailable |
| API playground (\"Try it\") | available | available | configurable |
| Static export bundle | available | available | available |
";
    let types = [DeploymentType::Cloud, DeploymentType::ClientHosted, DeploymentType::AirGapped];
    let reports = types.map(|deployment| FeatureReport::new(&defaults(deployment), &HostState::default()));
    let mut table = "| Feature | Cloud | Client-hosted | Air-gapped |\n|---|---|---|---|\n".to_owned();
    for row in 0..reports[0].features.len() {
        let cells = reports.each_ref().map(|report| report.features[row].vendor.name());
        let _ = writeln!(table, "| {} | {} |", reports[0].features[row].feature, cells.join(" | "));
    }
    assert_eq!(table, TABLE);
}

#[test]
fn a_report_has_the_documented_fields_and_names() {
    let settings = settings(|settings| settings.allow = vec!["10.0.0.0/8:443".to_owned()]);
    let json = serde_json::to_value(FeatureReport::new(&settings, &HostState::default())).unwrap();
    assert_eq!(json["schemaVersion"], 1);
    assert_eq!(json["deployment"], serde_json::json!({ "type": "air-gapped", "allow": ["10.0.0.0/8:443"] }));
    let ids: Vec<&str> = json["features"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["search", "assistant", "webAnalytics", "playground", "staticExport"]);
    let playground = serde_json::json!({
        "id": "playground",
        "feature": "API playground (\"Try it\")",
        "vendor": "configurable",
        "state": "configurable",
        "by": null,
        "set": ["playground.enabled", "playground.allow"],
        "why": "playground.enabled is false, and playground.allow lists no API"
    });
    assert_eq!(json["features"][3], playground);
}

#[test]
fn search_mcp_and_web_analytics_work_on_every_type_of_deployment_and_the_playground_once_it_is_configured() {
    for deployment in DeploymentType::ALL {
        for (host, why) in [(HostState::default(), Some(NO_DAEMON)), (daemon(|_, _| ()), None)] {
            let settings = defaults(deployment);
            let analytics = available(VIEWS, why);
            let assistant = why.map_or_else(|| NO_MODEL.to_owned(), |why| format!("{why}; {NO_MODEL}"));
            let playground_keys = ["playground.enabled", "playground.allow"];
            let playground_off = "playground.enabled is false, and playground.allow lists no API";
            for (id, expected) in [
                (FeatureId::Search, available(SEARCH, why)),
                (FeatureId::Assistant, available(MCP, Some(&assistant))),
                (FeatureId::WebAnalytics, analytics),
                (FeatureId::Playground, configurable(&playground_keys, playground_off)),
            ] {
                assert_feature(id, &settings, &host, expected);
            }
        }
    }
}

#[test]
fn search_depends_on_its_key_and_on_the_index_that_the_daemon_has() {
    let on = defaults(DeploymentType::AirGapped);
    let off = settings(|settings| settings.is_search_enabled = false);
    let below = settings(|settings| "/docs/".clone_into(&mut settings.base_path));
    let index = |state: Option<SearchIndexState>| daemon(|_, daemon| daemon.search_index = state);
    let failed = |has_older| {
        let reason = "the disk is full".to_owned();
        index(Some(SearchIndexState::Failed { reason, has_older }))
    };
    let building = |has_older| index(Some(SearchIndexState::Building { has_older }));
    let older = "an older index answers, because the new one cannot be built: the disk is full";
    let meanwhile = "an older index answers while the new one is being built";
    let set_key = configurable(&["search.enabled"], "search.enabled is false");
    for (settings, host, expected) in [
        (&off, HostState::default(), set_key),
        // The daemon may not have read the key yet.
        (&off, index(Some(SearchIndexState::Ready)), set_key),
        (&off, daemon(|_, daemon| daemon.serves_site = false), set_key),
        (&below, daemon(|_, _| ()), available("the search of docwharf at /docs/_docwharf/search", None)),
        (&on, HostState::default(), available(SEARCH, Some(NO_DAEMON))),
        (&on, index(None), unavailable("the index is being built")),
        (&on, building(false), unavailable("the index is being built")),
        (&on, building(true), available(SEARCH, Some(meanwhile))),
        (&on, daemon(|host, _| host.has_version = false), unavailable("no version is active yet")),
        (&on, failed(false), unavailable("the index cannot be built: the disk is full")),
        (&on, failed(true), available(SEARCH, Some(older))),
        (&on, daemon(|_, daemon| daemon.serves_site = false), unavailable(NO_SITE)),
    ] {
        assert_feature(FeatureId::Search, settings, &host, expected);
    }
}

#[test]
fn the_assistant_is_the_mcp_server_and_the_model_as_far_as_they_work() {
    const ASK: &str = "the model llama3.1, asked at /_docwharf/ask";
    const BOTH: &str = "the MCP server of docwharf at /_docwharf/mcp, the model llama3.1, asked at /_docwharf/ask";
    let model = Some("llama3.1");
    let (mcp, ask) = (with_assistant(true, None, true), with_assistant(false, model, true));
    let both = with_assistant(true, model, true);
    let without_search = "questions are not answered: search.enabled is false";
    let all_off = format!("assistant.mcp is false; {NO_MODEL}");
    let no_search = format!("assistant.mcp is false; {without_search}");
    let running = daemon(|_, _| ());
    let building = daemon(|_, daemon| daemon.search_index = Some(SearchIndexState::Building { has_older: false }));
    let older = daemon(|_, daemon| daemon.search_index = Some(SearchIndexState::Building { has_older: true }));
    let failed = daemon(|_, daemon| {
        let reason = "the disk is full".to_owned();
        daemon.search_index = Some(SearchIndexState::Failed { reason, has_older: false });
    });
    let waits = "questions are not answered at the moment: the index is being built";
    for (settings, host, expected) in [
        (&mcp, running.clone(), available(MCP, Some(NO_MODEL))),
        (&ask, running.clone(), available(ASK, None)),
        (&both, running.clone(), available(BOTH, None)),
        (&both, HostState::default(), available(BOTH, Some(NO_DAEMON))),
        (&with_assistant(true, model, false), running.clone(), available(MCP, Some(without_search))),
        (&with_assistant(false, None, true), running.clone(), configurable(&["assistant.mcp"], &all_off)),
        (&with_assistant(false, model, false), running, configurable(&["search.enabled"], &no_search)),
        // Pages can be read before they can be searched.
        (&both, building.clone(), available(BOTH, Some(waits))),
        (&mcp, building.clone(), available(MCP, Some(NO_MODEL))),
        (&ask, building, unavailable("the index is being built")),
        (&ask, older, available(ASK, None)),
        (&ask, failed, unavailable("the index cannot be built: the disk is full")),
        (&both, daemon(|_, daemon| daemon.serves_site = false), unavailable(NO_SITE)),
        (&both, daemon(|host, _| host.has_version = false), unavailable("no version is active yet")),
    ] {
        assert_feature(FeatureId::Assistant, settings, &host, expected);
    }
}

#[test]
fn the_playground_depends_on_its_keys_and_names_the_first_origins() {
    const ONE_ORIGIN: &str = "docwharf at /_docwharf/playground, which sends requests to https://a.example";
    const SEVERAL_ORIGINS: &str = "docwharf at /_docwharf/playground, which sends requests to https://a.example, \
                                   https://b.example, https://c.example and 2 more";
    let origins = ["https://a.example", "https://b.example", "https://c.example", "http://[::1]:1", "http://[::1]:2"];
    let on = with_playground(true, &origins[..1]);
    for (settings, host, expected) in [
        (&on, daemon(|_, _| ()), available(ONE_ORIGIN, None)),
        (&on, HostState::default(), available(ONE_ORIGIN, Some(NO_DAEMON))),
        (&with_playground(true, &origins), daemon(|_, _| ()), available(SEVERAL_ORIGINS, None)),
        (
            &with_playground(true, &[]),
            HostState::default(),
            configurable(&["playground.allow"], "playground.allow lists no API"),
        ),
        (
            &with_playground(false, &origins),
            daemon(|_, _| ()),
            configurable(&["playground.enabled"], "playground.enabled is false"),
        ),
        (&on, daemon(|_, daemon| daemon.serves_site = false), unavailable(NO_SITE)),
        (&on, daemon(|host, _| host.has_version = false), unavailable("no version is active yet")),
    ] {
        assert_feature(FeatureId::Playground, settings, &host, expected);
    }
}

#[test]
fn web_analytics_depends_on_its_keys_the_build_and_the_recording() {
    let on = with_views(true, true);
    let not_built = settings(|settings| settings.views = None);
    let full = daemon(|_, daemon| daemon.recording_error = Some("the disk is full".to_owned()));
    let without_recorder = daemon(|_, daemon| daemon.has_recorder = false);
    let records_nothing = unavailable("the daemon records nothing; docwharf status or its log may say why");
    let both: &[&str] = &["analytics.enabled", "analytics.pages"];
    for (settings, host, expected) in [
        (&not_built, HostState::default(), unavailable("this docwharf was built without the feature \"analytics\"")),
        (
            &with_views(false, true),
            HostState::default(),
            configurable(&["analytics.enabled"], "analytics.enabled is false"),
        ),
        (&with_views(true, false), full.clone(), configurable(&["analytics.pages"], "analytics.pages is false")),
        (
            &with_views(false, false),
            HostState::default(),
            configurable(both, "analytics.enabled and analytics.pages are false"),
        ),
        (&on, full, unavailable("nothing is recorded at the moment: the disk is full")),
        (&on, daemon(|_, daemon| daemon.serves_site = false), unavailable(NO_SITE)),
        // The daemon may not have read the key yet.
        (
            &with_views(true, false),
            without_recorder.clone(),
            configurable(&["analytics.pages"], "analytics.pages is false"),
        ),
        (&on, without_recorder, records_nothing),
        (&on, daemon(|host, _| host.has_version = false), unavailable("no version is active yet")),
        (&on, HostState::default(), available(VIEWS, Some(NO_DAEMON))),
        (&on, daemon(|_, _| ()), available(VIEWS, None)),
    ] {
        assert_feature(FeatureId::WebAnalytics, settings, &host, expected);
    }
}

#[test]
fn without_a_source_static_export_names_the_key_that_suits_the_deployment() {
    let inbox = "a file in staticExport.bundleUrl works as well, and docwharf import needs no key";
    let link = "api.baseUrl with api.domain, or sync.inbox, works as well, and docwharf import needs no key";
    for (deployment, key, others) in [
        (DeploymentType::AirGapped, "sync.inbox", inbox),
        (DeploymentType::ClientHosted, "staticExport.bundleUrl", link),
        (DeploymentType::Cloud, "staticExport.bundleUrl", link),
    ] {
        let mut settings = defaults(deployment);
        let why = format!("no source and no inbox is configured; {others}");
        let missing = configurable(std::slice::from_ref(&key), &why);
        assert_feature(FeatureId::StaticExport, &settings, &HostState::default(), missing);
        let imported = HostState { has_version: true, daemon: None };
        let by_import =
            available("bundles that docwharf import brings in", Some("no source and no inbox is configured"));
        assert_feature(FeatureId::StaticExport, &settings, &imported, by_import);
        settings.bundles.is_enabled = false;
        let set = ["staticExport.enabled", key];
        let disabled = configurable(&set, "staticExport.enabled is false");
        assert_feature(FeatureId::StaticExport, &settings, &imported, disabled);
    }
}

#[test]
fn static_export_names_the_sources_of_this_host_and_what_is_wrong_with_them() {
    const API: &str = "the management API https://api.example/v1#docs.example (api.baseUrl)";
    const FILE: &str = "the file /b.zip (staticExport.bundleUrl)";
    const BOTH: &str = "the file /b.zip (staticExport.bundleUrl), the inbox /in (sync.inbox)";
    const FAILED: &str = "the last check of the source failed: see docwharf status";
    const NO_INBOX: &str = "cannot open the inbox /in (sync.inbox): it is a file";
    let api = Some(BundleSource::Api("https://api.example/v1#docs.example".to_owned()));
    let link = Some(BundleSource::Link("https://b.example/b.zip".to_owned()));
    let only_inbox = with_bundles(true, None, Some("/in"));
    let only_file = with_bundles(true, Some(file("/b.zip")), None);
    let both = with_bundles(true, Some(file("/b.zip")), Some("/in"));
    let bad_inbox = |host: &mut HostState, daemon: &mut DaemonFeatureState, has_version: bool, fails: bool| {
        host.has_version = has_version;
        daemon.has_check_failed = fails;
        daemon.inbox_error = Some(NO_INBOX.to_owned());
    };
    let failing = |has_version: bool| {
        daemon(|host, daemon| {
            host.has_version = has_version;
            daemon.has_check_failed = true;
        })
    };
    let state = |has_version, fails| daemon(|host, daemon| bad_inbox(host, daemon, has_version, fails));
    let all_wrong = format!("{FAILED}; {NO_INBOX}");
    for (settings, host, expected) in [
        (&with_bundles(true, api, None), HostState::default(), available(API, None)),
        (
            &with_bundles(true, link, None),
            HostState::default(),
            available("the link https://b.example/b.zip (staticExport.bundleUrl)", None),
        ),
        (&only_file, daemon(|_, _| ()), available(FILE, None)),
        (&only_inbox, HostState::default(), available("the inbox /in (sync.inbox)", None)),
        (&both, daemon(|_, _| ()), available(BOTH, None)),
        (
            &with_bundles(false, Some(file("/b.zip")), None),
            HostState::default(),
            configurable(&["staticExport.enabled"], "staticExport.enabled is false"),
        ),
        // A failed check concerns the source, not the version that it has delivered before.
        (&only_file, failing(true), available(FILE, Some(FAILED))),
        (&only_file, failing(false), unavailable(FAILED)),
        (&both, failing(false), available(BOTH, Some(FAILED))),
        (&only_inbox, failing(false), available("the inbox /in (sync.inbox)", None)),
        (&only_inbox, state(true, false), unavailable(NO_INBOX)),
        (&both, state(false, false), available(BOTH, Some(NO_INBOX))),
        (&both, state(true, true), available(BOTH, Some(&all_wrong))),
        (&both, state(false, true), unavailable(&all_wrong)),
        // The error of an inbox that is not configured any more.
        (&only_file, state(true, false), available(FILE, None)),
    ] {
        assert_feature(FeatureId::StaticExport, settings, &host, expected);
    }
}
