//! What is served, and to whom.

use std::path::PathBuf;
use std::time::Duration;

use docwharf_site::seal::Effort;

use super::limits::OriginLimits;
use super::source::Source;
use super::{Domain, PublicUrl};

/// The shortest life of a link: its end is written in whole seconds.
pub const SHORTEST_LINK: Duration = Duration::from_secs(1);
/// The longest life of a link. Whoever has one needs no key, so that one found later in a log should be worthless.
pub const LONGEST_LINK: Duration = Duration::from_hours(7 * 24);

/// Who owns projects and keys. Limits count for each.
#[derive(Debug, Clone)]
pub struct Organization {
    /// Its name in keys, messages and the database.
    pub id: String,
    /// What it owns.
    pub projects: Vec<Project>,
}

/// A site.
#[derive(Debug, Clone)]
pub struct Project {
    /// Its name in addresses of the API. No other project has it.
    pub id: String,
    /// What exports are asked for by. No other project has it.
    pub domain: Domain,
    /// Where its pages come from.
    pub source: Source,
    /// Whether it may be exported.
    pub exports: bool,
    /// Whether branches may be previewed.
    pub previews: bool,
}

/// Where everything is kept that outlives the process.
#[derive(Debug, Clone)]
pub enum State {
    /// In this folder.
    Folder(PathBuf),
    /// Nowhere: in a temporary folder that goes with the process.
    Temporary,
}

/// How previews are made and reached.
#[derive(Debug, Clone)]
pub struct PreviewSettings {
    /// `<branch-slug>.<this>` is the host of a preview; without it previews lie below `/preview/` of this server.
    pub host: Option<Domain>,
    /// How often repositories are asked whether branches are gone.
    pub every: Duration,
}

impl Default for PreviewSettings {
    fn default() -> Self {
        PreviewSettings { host: None, every: Duration::from_mins(1) }
    }
}

/// What is exported, and to whom.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Who owns what.
    pub organizations: Vec<Organization>,
    /// Where jobs, keys, events and bundles are kept.
    pub state: State,
    /// A file with one more key of an organization (its name), which may do everything; read again when it changes.
    pub key_file: Option<(String, PathBuf)>,
    /// How long a link works, from [`SHORTEST_LINK`] to [`LONGEST_LINK`].
    pub link_lifetime: Duration,
    /// What links begin with; by default the host that the client asked.
    pub public_url: Option<PublicUrl>,
    /// What packing and proving may cost.
    pub effort: Effort,
    /// What organizations may take of what they share.
    pub limits: OriginLimits,
    /// What must stay free on the disk of `state`; by default a twentieth of it, and at most 1 GiB.
    pub min_free: Option<u64>,
    /// Bundles kept for each project, the newest, and as many failures; those that have ended, or have a link that works, a
    /// link's life ago at most stay all the same.
    pub keep: usize,
    /// Previews.
    pub previews: PreviewSettings,
    /// How long events of searches are kept.
    pub searches: Duration,
}

impl Settings {
    /// Everything at its default, and nobody who owns anything.
    pub fn new(effort: Effort) -> Settings {
        Settings {
            organizations: Vec::new(),
            state: State::Temporary,
            key_file: None,
            link_lifetime: Duration::from_mins(15),
            public_url: None,
            effort,
            limits: OriginLimits::default(),
            min_free: None,
            keep: 5,
            previews: PreviewSettings::default(),
            searches: Duration::from_hours(24 * 400),
        }
    }
}
