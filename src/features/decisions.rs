//! Decides for each feature whether this host provides it.

use docwharf_base::model::deployment::DeploymentType;

use super::{
    AssistantFeatureSettings, Availability, BundleSettings, BundleSource, DaemonFeatureState, FeatureId,
    FeatureSettings, HostState, PlaygroundFeatureSettings, SearchIndexState,
};

/// The reason why what readers use is unavailable if no site is served.
const SERVES_NO_SITE: &str = "the daemon serves no site (run --no-serve)";

/// The reason for a daemon that has nothing to search and no pages to count.
const NO_VERSION: &str = "no version is active yet";

/// The maximum number of origins of the playground that a report names.
const MAX_NAMED_ORIGINS: usize = 3;

/// The limitation of what only a daemon provides, while none runs or the one that runs does not answer.
const NO_DAEMON: &str = "docwharf run provides it, and no daemon answers on this store at the moment";

/// The reason why no bundle arrives by itself.
const NO_SOURCE: &str = "no source and no inbox is configured";

/// The availability of a feature on this host.
pub(super) struct FeatureDecision {
    pub(super) state: Availability,
    /// The part that provides the feature, if it is available.
    pub(super) by: Option<String>,
    /// The keys to set, if it is configurable.
    pub(super) set: Vec<&'static str>,
    /// The reason for the state, or a limitation.
    pub(super) why: Option<String>,
}

impl FeatureDecision {
    fn available(by: impl Into<String>, why: Option<String>) -> FeatureDecision {
        FeatureDecision { state: Availability::Available, by: Some(by.into()), set: Vec::new(), why }
    }

    fn configurable(set: Vec<&'static str>, why: Option<String>) -> FeatureDecision {
        FeatureDecision { state: Availability::Configurable, by: None, set, why }
    }

    fn unavailable(why: impl Into<String>) -> FeatureDecision {
        FeatureDecision { state: Availability::Unavailable, by: None, set: Vec::new(), why: Some(why.into()) }
    }
}

/// Decides whether the host provides a feature. A missing key comes before the state of the daemon, because the daemon
/// may not have read the configuration yet.
pub(super) fn decide(id: FeatureId, settings: &FeatureSettings, host: &HostState) -> FeatureDecision {
    match id {
        FeatureId::Search => decide_search(settings, host),
        FeatureId::Assistant => decide_assistant(settings, host),
        FeatureId::WebAnalytics => decide_web_analytics(settings, host),
        FeatureId::Playground => decide_playground(settings, host),
        FeatureId::StaticExport => decide_static_export(settings, host),
    }
}

fn decide_search(settings: &FeatureSettings, host: &HostState) -> FeatureDecision {
    if !settings.is_search_enabled {
        return FeatureDecision::configurable(vec!["search.enabled"], Some("search.enabled is false".to_owned()));
    }
    let why = match &host.daemon {
        Some(daemon) if !daemon.serves_site => return FeatureDecision::unavailable(SERVES_NO_SITE),
        Some(_) if !host.has_version => return FeatureDecision::unavailable(NO_VERSION),
        Some(daemon) => match (&daemon.search_index, describe_missing_index(daemon)) {
            (_, Some(obstacle)) => return FeatureDecision::unavailable(obstacle),
            (Some(SearchIndexState::Failed { reason, .. }), None) => {
                Some(format!("an older index answers, because the new one cannot be built: {reason}"))
            }
            (Some(SearchIndexState::Building { .. }), None) => {
                Some("an older index answers while the new one is being built".to_owned())
            }
            (Some(SearchIndexState::Ready) | None, None) => None,
        },
        None => Some(NO_DAEMON.to_owned()),
    };
    FeatureDecision::available(format!("the search of docwharf at {}_docwharf/search", settings.base_path), why)
}

/// Decides by the parts that the configuration turns on: the MCP server, and the model that answers questions. A model
/// without the search answers none, because it gets the passages that the search finds.
fn decide_assistant(settings: &FeatureSettings, host: &HostState) -> FeatureDecision {
    let AssistantFeatureSettings { is_mcp_enabled, model } = &settings.assistant;
    let asked_model = model.as_ref().filter(|_| settings.is_search_enabled);
    let without_model = match model {
        Some(_) => "questions are not answered: search.enabled is false",
        None => "questions are not answered without assistant.baseUrl and assistant.model",
    };
    if !is_mcp_enabled && asked_model.is_none() {
        let key = if model.is_some() { "search.enabled" } else { "assistant.mcp" };
        return FeatureDecision::configurable(vec![key], Some(format!("assistant.mcp is false; {without_model}")));
    }
    let mut limitations = Vec::new();
    match &host.daemon {
        Some(daemon) if !daemon.serves_site => return FeatureDecision::unavailable(SERVES_NO_SITE),
        Some(_) if !host.has_version => return FeatureDecision::unavailable(NO_VERSION),
        Some(daemon) => {
            let obstacle = asked_model.and_then(|_| describe_missing_index(daemon));
            match obstacle {
                Some(obstacle) if !is_mcp_enabled => return FeatureDecision::unavailable(obstacle),
                obstacle => limitations
                    .extend(obstacle.map(|obstacle| format!("questions are not answered at the moment: {obstacle}"))),
            }
        }
        None => limitations.push(NO_DAEMON.to_owned()),
    }
    limitations.extend(asked_model.is_none().then(|| without_model.to_owned()));
    let base_path = &settings.base_path;
    let mcp = is_mcp_enabled.then(|| format!("the MCP server of docwharf at {base_path}_docwharf/mcp"));
    let ask = asked_model.map(|model| format!("the model {model}, asked at {base_path}_docwharf/ask"));
    let by = mcp.into_iter().chain(ask).collect::<Vec<_>>().join(", ");
    FeatureDecision::available(by, (!limitations.is_empty()).then(|| limitations.join("; ")))
}

/// Returns the reason why no index, and no older one, answers queries; `None` if one does.
fn describe_missing_index(daemon: &DaemonFeatureState) -> Option<String> {
    match &daemon.search_index {
        Some(SearchIndexState::Failed { reason, has_older: false }) => {
            Some(format!("the index cannot be built: {reason}"))
        }
        Some(SearchIndexState::Building { has_older: false }) | None => Some("the index is being built".to_owned()),
        Some(_) => None,
    }
}

fn decide_playground(settings: &FeatureSettings, host: &HostState) -> FeatureDecision {
    let PlaygroundFeatureSettings { is_enabled, origins } = &settings.playground;
    let conditions = [
        ("playground.enabled", *is_enabled, "playground.enabled is false"),
        ("playground.allow", !origins.is_empty(), "playground.allow lists no API"),
    ];
    let missing = conditions.into_iter().filter(|(_, is_met, _)| !is_met);
    let (keys, reasons): (Vec<&str>, Vec<&str>) = missing.map(|(key, _, reason)| (key, reason)).unzip();
    if !keys.is_empty() {
        return FeatureDecision::configurable(keys, Some(reasons.join(", and ")));
    }
    let why = match &host.daemon {
        Some(daemon) if !daemon.serves_site => return FeatureDecision::unavailable(SERVES_NO_SITE),
        Some(_) if !host.has_version => return FeatureDecision::unavailable(NO_VERSION),
        Some(_) => None,
        None => Some(NO_DAEMON.to_owned()),
    };
    let named = origins.iter().take(MAX_NAMED_ORIGINS).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match origins.len().saturating_sub(MAX_NAMED_ORIGINS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let by = format!("docwharf at {}_docwharf/playground, which sends requests to {named}{more}", settings.base_path);
    FeatureDecision::available(by, why)
}

fn decide_web_analytics(settings: &FeatureSettings, host: &HostState) -> FeatureDecision {
    let Some(views) = settings.views else {
        return FeatureDecision::unavailable("this docwharf was built without the feature \"analytics\"");
    };
    let keys = [("analytics.enabled", views.is_analytics_enabled), ("analytics.pages", views.counts_pages)];
    let missing: Vec<&str> = keys.into_iter().filter(|(_, is_set)| !is_set).map(|(key, _)| key).collect();
    if !missing.is_empty() {
        let verb = if missing.len() == 1 { "is" } else { "are" };
        let why = format!("{} {verb} false", missing.join(" and "));
        return FeatureDecision::configurable(missing, Some(why));
    }
    let why = match &host.daemon {
        Some(daemon) if !daemon.serves_site => return FeatureDecision::unavailable(SERVES_NO_SITE),
        Some(_) if !host.has_version => return FeatureDecision::unavailable(NO_VERSION),
        Some(DaemonFeatureState { recording_error: Some(reason), .. }) => {
            return FeatureDecision::unavailable(format!("nothing is recorded at the moment: {reason}"));
        }
        Some(daemon) if !daemon.has_recorder => {
            return FeatureDecision::unavailable("the daemon records nothing; docwharf status or its log may say why");
        }
        Some(_) => None,
        None => Some(NO_DAEMON.to_owned()),
    };
    FeatureDecision::available("the views that docwharf run counts in analytics.db", why)
}

fn decide_static_export(settings: &FeatureSettings, host: &HostState) -> FeatureDecision {
    let BundleSettings { is_enabled, source, inbox } = &settings.bundles;
    let has_any_source = source.is_some() || inbox.is_some();
    if !is_enabled {
        let missing = if has_any_source { None } else { Some(first_key(settings.deployment).0) };
        let set = ["staticExport.enabled"].into_iter().chain(missing).collect();
        return FeatureDecision::configurable(set, Some("staticExport.enabled is false".to_owned()));
    }
    if !has_any_source {
        if host.has_version {
            return FeatureDecision::available("bundles that docwharf import brings in", Some(NO_SOURCE.to_owned()));
        }
        let (key, others) = first_key(settings.deployment);
        return FeatureDecision::configurable(vec![key], Some(format!("{NO_SOURCE}; {others}")));
    }
    let daemon = host.daemon.as_ref();
    let inbox_error = daemon.and_then(|daemon| daemon.inbox_error.as_deref()).filter(|_| inbox.is_some());
    let has_check_failed = source.is_some() && daemon.is_some_and(|daemon| daemon.has_check_failed);
    let check_error = has_check_failed.then_some("the last check of the source failed: see docwharf status");
    let is_inbox_usable = inbox.is_some() && inbox_error.is_none();
    let is_source_usable = source.is_some() && (!has_check_failed || host.has_version);
    let problems: Vec<&str> = check_error.into_iter().chain(inbox_error).collect();
    let why = (!problems.is_empty()).then(|| problems.join("; "));
    match why {
        Some(why) if !is_inbox_usable && !is_source_usable => FeatureDecision::unavailable(why),
        why => FeatureDecision::available(describe_sources(source.as_ref(), inbox.as_ref()), why),
    }
}

/// Returns the key by which bundles arrive with the fewest settings, and the other sources of bundles.
fn first_key(deployment: DeploymentType) -> (&'static str, &'static str) {
    match deployment {
        DeploymentType::AirGapped => {
            ("sync.inbox", "a file in staticExport.bundleUrl works as well, and docwharf import needs no key")
        }
        DeploymentType::Cloud | DeploymentType::ClientHosted => (
            "staticExport.bundleUrl",
            "api.baseUrl with api.domain, or sync.inbox, works as well, and docwharf import needs no key",
        ),
    }
}

/// Names the sources of bundles, each with its key.
fn describe_sources(source: Option<&BundleSource>, inbox: Option<&String>) -> String {
    let source = source.map(|source| match source {
        BundleSource::Api(name) => format!("the management API {name} (api.baseUrl)"),
        BundleSource::Link(name) => format!("the link {name} (staticExport.bundleUrl)"),
        BundleSource::LinkFile(path) => format!("the link in {path} (staticExport.bundleUrlFile)"),
        BundleSource::File(name) => format!("the file {name} (staticExport.bundleUrl)"),
    });
    let inbox = inbox.map(|path| format!("the inbox {path} (sync.inbox)"));
    source.into_iter().chain(inbox).collect::<Vec<_>>().join(", ")
}
