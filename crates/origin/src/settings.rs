//! The settings of an origin: organizations, projects, state folder and limits.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use docwharf_site::seal::SealOptions;

use super::domain::{Domain, PublicUrl};
use super::limits::OriginLimits;
use super::previews::PreviewSearch;
use super::source::ProjectSource;

/// The path below which previews are served if there is no preview host.
pub(super) const PREVIEW_PATH_PREFIX: &str = "/preview/";
/// The shortest lifetime of a link: its expiry has whole seconds.
pub const MIN_LINK_LIFETIME: Duration = Duration::from_secs(1);
/// The longest lifetime of a link. A link needs no key, so one that is found later in a log should have expired.
pub const MAX_LINK_LIFETIME: Duration = Duration::from_hours(7 * 24);

/// An owner of projects and keys. Limits apply to each organization.
#[derive(Debug, Clone)]
pub struct Organization {
    /// Its id in keys, messages and the database.
    pub id: String,
    /// The projects that it owns.
    pub projects: Vec<OriginProject>,
}

/// A documentation site.
#[derive(Debug, Clone)]
pub struct OriginProject {
    /// Its id in addresses of the API. It is unique in the origin.
    pub id: String,
    /// The domain by which clients request exports. It is unique in the origin.
    pub domain: Domain,
    /// The source of its pages.
    pub source: ProjectSource,
    /// Whether clients may request exports.
    pub allows_exports: bool,
    /// Whether clients may request previews of branches.
    pub allows_previews: bool,
}

/// The state folder of an origin, which holds its jobs, keys, searches, bundles and previews.
#[derive(Debug, Clone)]
pub enum OriginStorage {
    /// A persistent folder.
    Folder(PathBuf),
    /// A temporary folder that is removed when the origin is closed.
    Temporary,
}

/// The settings of previews.
#[derive(Debug, Clone)]
pub struct PreviewSettings {
    /// The domain below which each preview has its host, `<branch-slug>.<host>`. Without it, previews are below the
    /// path `/preview/` of this server.
    pub host: Option<Domain>,
    /// The interval at which repositories are checked for deleted branches.
    pub check_interval: Duration,
    /// The search of the previews; `None` if readers cannot search them.
    pub search: Option<Arc<dyn PreviewSearch>>,
    /// Whether the previews are MCP servers, and have Markdown and `llms.txt`.
    pub assistant: bool,
}

impl Default for PreviewSettings {
    fn default() -> Self {
        PreviewSettings { host: None, check_interval: Duration::from_mins(1), search: None, assistant: true }
    }
}

/// The settings of an origin.
#[derive(Debug, Clone)]
pub struct OriginSettings {
    /// The organizations with their projects.
    pub organizations: Vec<Organization>,
    /// The state folder.
    pub storage: OriginStorage,
    /// An organization (its id) and a file with an API key of it. The key has the scope `write`, and the file is read
    /// again when it changes.
    pub key_file: Option<(String, PathBuf)>,
    /// The lifetime of links, from [`MIN_LINK_LIFETIME`] to [`MAX_LINK_LIFETIME`].
    pub link_lifetime: Duration,
    /// The beginning of links; by default the host of the request.
    pub public_url: Option<PublicUrl>,
    /// The limits of packing, verifying and sealing.
    pub seal_options: SealOptions,
    /// The limits on shared resources.
    pub limits: OriginLimits,
    /// The number of bytes that must stay free on the disk of `storage`; by default a twentieth of the disk, and at
    /// most 1 GiB.
    pub min_free: Option<u64>,
    /// The number of newest bundles that are stored for each project, and of failed jobs as well. More stay if they
    /// ended within `link_lifetime`, if a link to them is still valid, or if they are the newest bundle of the whole
    /// site.
    pub max_jobs_per_project: usize,
    /// The settings of previews.
    pub preview_settings: PreviewSettings,
    /// The time for which searches and daily counts are stored.
    pub analytics_retention: Duration,
}

impl OriginSettings {
    /// Creates settings with all defaults and without organizations.
    pub fn new(seal_options: SealOptions) -> OriginSettings {
        OriginSettings {
            organizations: Vec::new(),
            storage: OriginStorage::Temporary,
            key_file: None,
            link_lifetime: Duration::from_mins(15),
            public_url: None,
            seal_options,
            limits: OriginLimits::default(),
            min_free: None,
            max_jobs_per_project: 5,
            preview_settings: PreviewSettings::default(),
            analytics_retention: Duration::from_hours(24 * 400),
        }
    }
}
