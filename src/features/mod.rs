//! The features of the site on this host: which work, which need a key of the configuration, and which do not exist.
//!
//! The rows are those of the table that the vendor publishes: features of an exported site by type of deployment. The
//! vendor's cells say what its cloud provides; [`FeatureReport::new`] decides what this host provides, from the
//! configuration and from what is known of the host. It does no I/O.

mod decisions;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use docwharf_base::model::deployment::DeploymentType;

/// The availability of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Availability {
    /// The feature works now.
    Available,
    /// The feature works once keys of the configuration are set.
    Configurable,
    /// The feature does not work on this host.
    Unavailable,
}

impl Availability {
    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Availability::Available => "available",
            Availability::Configurable => "configurable",
            Availability::Unavailable => "unavailable",
        }
    }
}

/// A feature: a row of the vendor's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FeatureId {
    /// Readers can search the site.
    Search,
    /// An assistant answers questions of readers.
    Assistant,
    /// Views of pages are counted.
    WebAnalytics,
    /// Readers can send requests to an API from its reference.
    Playground,
    /// Versions of the site arrive as static bundles.
    StaticExport,
}

impl FeatureId {
    /// All features, in the order of the vendor's table.
    pub const ALL: [FeatureId; 5] = [
        FeatureId::Search,
        FeatureId::Assistant,
        FeatureId::WebAnalytics,
        FeatureId::Playground,
        FeatureId::StaticExport,
    ];

    /// Returns the name in the vendor's table.
    pub fn title(self) -> &'static str {
        match self {
            FeatureId::Search => "Documentation search",
            FeatureId::Assistant => "AI assistant",
            FeatureId::WebAnalytics => "Web analytics",
            FeatureId::Playground => "API playground (\"Try it\")",
            FeatureId::StaticExport => "Static export bundle",
        }
    }

    /// Returns the cell of the vendor's table for a type of deployment.
    pub fn vendor_availability(self, deployment: DeploymentType) -> Availability {
        use Availability::{Available, Configurable, Unavailable};
        let [cloud, client_hosted, air_gapped] = match self {
            FeatureId::Search | FeatureId::Assistant | FeatureId::WebAnalytics => {
                [Available, Configurable, Unavailable]
            }
            FeatureId::Playground => [Available, Available, Configurable],
            FeatureId::StaticExport => [Available; 3],
        };
        match deployment {
            DeploymentType::Cloud => cloud,
            DeploymentType::ClientHosted => client_hosted,
            DeploymentType::AirGapped => air_gapped,
        }
    }
}

/// The part of the configuration that decides which features there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureSettings {
    /// `deployment.type`
    pub deployment: DeploymentType,
    /// `deployment.allow`
    pub allow: Vec<String>,
    /// `server.basePath`; it begins and ends with a slash.
    pub base_path: String,
    /// `search.enabled`
    pub is_search_enabled: bool,
    /// The settings of what assistants and readers with questions use.
    pub assistant: AssistantFeatureSettings,
    /// The settings of the API playground.
    pub playground: PlaygroundFeatureSettings,
    /// The settings of counting views; `None` if docwharf was built without the feature `analytics`.
    pub views: Option<ViewCountSettings>,
    /// The settings of bringing bundles in.
    pub bundles: BundleSettings,
}

/// The settings of what assistants and readers with questions use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssistantFeatureSettings {
    /// `assistant.mcp`
    pub is_mcp_enabled: bool,
    /// `assistant.model`, if questions of readers are answered.
    pub model: Option<String>,
}

/// The settings of the API playground.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaygroundFeatureSettings {
    /// `playground.enabled`
    pub is_enabled: bool,
    /// The origins of `playground.allow`.
    pub origins: Vec<String>,
}

/// The settings of counting views.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewCountSettings {
    /// `analytics.enabled`
    pub is_analytics_enabled: bool,
    /// `analytics.pages`
    pub counts_pages: bool,
}

/// The settings of bringing bundles in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleSettings {
    /// `staticExport.enabled`
    pub is_enabled: bool,
    /// The source that is checked for bundles, if one is configured.
    pub source: Option<BundleSource>,
    /// The path of the inbox (`sync.inbox`), if one is configured.
    pub inbox: Option<String>,
}

/// A source of bundles, by its name without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BundleSource {
    /// The management API (`api.baseUrl`).
    Api(String),
    /// A link (`staticExport.bundleUrl`).
    Link(String),
    /// The path of the file with a link (`staticExport.bundleUrlFile`).
    LinkFile(String),
    /// The path of a file (`staticExport.bundleUrl`).
    File(String),
}

/// The state of the host, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostState {
    /// Whether a version is active; false if that is not known.
    pub has_version: bool,
    /// The state of the daemon; `None` if none runs, or it does not answer.
    pub daemon: Option<DaemonFeatureState>,
}

/// The state of a running daemon, as far as it concerns the features.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonFeatureState {
    /// Whether it serves the site; false with `run --no-serve`.
    pub serves_site: bool,
    /// The state of the search index; `None` before it is known.
    pub search_index: Option<SearchIndexState>,
    /// Whether it has a recorder of what readers do.
    pub has_recorder: bool,
    /// The reason why the recorder writes nothing at the moment.
    pub recording_error: Option<String>,
    /// The reason why the inbox cannot be used.
    pub inbox_error: Option<String>,
    /// Whether the last check of the source failed.
    pub has_check_failed: bool,
}

/// The state of the search index of the served version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchIndexState {
    /// The index is being opened or built.
    Building {
        /// Whether queries are answered from an older index.
        has_older: bool,
    },
    /// Queries are answered from the index.
    Ready,
    /// The index cannot be built.
    Failed {
        /// The reason.
        reason: String,
        /// Whether queries are answered from an older index.
        has_older: bool,
    },
}

/// The features of the site on this host: the output of `docwharf features --json`. Scripts read it: fields may be
/// added, but none changes its meaning without another `schemaVersion`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FeatureReport {
    /// The version of the format: 1.
    pub schema_version: u32,
    /// The deployment that the configuration describes.
    pub deployment: ReportedDeployment,
    /// The features, in the order of the vendor's table.
    pub features: Vec<ReportedFeature>,
}

/// The deployment that the configuration describes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedDeployment {
    /// `deployment.type`
    #[serde(rename = "type")]
    pub deployment_type: String,
    /// `deployment.allow`: the addresses besides loopback to which an air-gapped host opens connections.
    pub allow: Vec<String>,
}

/// A feature of the site on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedFeature {
    /// The feature.
    pub id: FeatureId,
    /// Its name in the vendor's table.
    pub feature: String,
    /// The cell of the vendor's table for this type of deployment.
    pub vendor: Availability,
    /// The availability on this host.
    pub state: Availability,
    /// The part of docwharf, or the source, that provides the feature; `None` if nothing does.
    pub by: Option<String>,
    /// The keys of the configuration to set; empty unless the feature is configurable.
    pub set: Vec<String>,
    /// The reason for the state, or a limitation; `None` if there is neither.
    pub why: Option<String>,
}

impl FeatureReport {
    /// Decides for each feature whether the host provides it.
    pub fn new(settings: &FeatureSettings, host: &HostState) -> FeatureReport {
        let report = |id: FeatureId| {
            let decision = decisions::decide(id, settings, host);
            ReportedFeature {
                id,
                feature: id.title().to_owned(),
                vendor: id.vendor_availability(settings.deployment),
                state: decision.state,
                by: decision.by,
                set: decision.set.into_iter().map(str::to_owned).collect(),
                why: decision.why,
            }
        };
        FeatureReport {
            schema_version: 1,
            deployment: ReportedDeployment {
                deployment_type: settings.deployment.name().to_owned(),
                allow: settings.allow.clone(),
            },
            features: FeatureId::ALL.map(report).into(),
        }
    }
}
