//! The management API, served by docwharf itself: for teams that publish their own documentation, for closed networks,
//! and for tests.
//!
//! An [`Organization`] owns [`OriginProject`]s and keys ([`api_keys`]). A client with a key can request three things:
//! an export ([`exports`]) of a project's [`source`], a preview of a branch ([`previews`]), and the terms that readers
//! searched for ([`analytics`]). For a completed export it gets a signed link that expires ([`signed_links`]). The link
//! alone is enough to download the bundle; no key is needed ([`bundle_downloads`]). Agents that only need to know
//! whether a site has changed request its sitemap, which needs no key ([`site_survey`]). One table lists all operations
//! with their paths and methods ([`operations`]), and the `OpenAPI` document is generated from it ([`openapi`]).
//!
//! Every acknowledged change is on disk ([`database`]), so it survives a crash of the process.
//!
//! # Example
//!
//! An origin that serves exports of one folder. Jobs and bundles are in a temporary folder, because
//! [`OriginSettings::storage`] has its default.
//!
//! ```no_run
//! use docwharf_base::model::limits::BundleLimits;
//! use docwharf_origin::source::ProjectSource;
//! use docwharf_origin::{Domain, Organization, OriginProject, OriginServer, OriginSettings};
//! use docwharf_site::seal::SealOptions;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let mut settings = OriginSettings::new(SealOptions::new(BundleLimits::default()));
//! settings.organizations.push(Organization {
//!     id: "acme".to_owned(),
//!     projects: vec![OriginProject {
//!         id: "docs".to_owned(),
//!         domain: Domain::parse("docs.example.com")?,
//!         source: ProjectSource::FolderOrArchive("site".into()),
//!         allows_exports: true,
//!         allows_previews: false,
//!     }],
//! });
//! // The file with an API key of the organization; the key has the scope `write`.
//! settings.key_file = Some(("acme".to_owned(), "key".into()));
//!
//! let origin = OriginServer::new(settings)?;
//! let listener = std::net::TcpListener::bind("127.0.0.1:8090")?;
//! let (_stop, stopped) = tokio::sync::watch::channel(false);
//! docwharf_origin::serve(origin, vec![listener], stopped).await?;
//! # Ok(())
//! # }
//! ```

mod admin;
pub mod analytics;
pub mod api_keys;
mod api_types;
mod body;
mod bundle_downloads;
pub mod database;
mod domain;
mod error;
mod exports;
pub(crate) mod free_space;
mod key_file;
pub mod limits;
mod management;
mod metrics;
mod openapi;
mod operations;
pub mod previews;
mod production_version;
mod random_bytes;
pub mod rate_limit;
mod requests;
pub mod resource_pools;
mod responses;
mod routes;
mod server;
mod service;
mod settings;
mod signed_links;
mod site_survey;
mod sitemap;
mod sitemap_cache;
pub mod source;
mod stale_work;
mod state_folder;

pub use admin::OriginAdmin;
pub use body::{ApiBody, OriginBody};
pub use domain::{Domain, PublicUrl};
pub use error::OriginError;
pub use key_file::ApiKeyFileError;
pub use limits::{LimitUnit, OriginLimits, ResourceLimits, SharedResource};
pub use server::{DATABASE_FILE_NAME, OriginServer};
pub use service::serve;
pub use settings::{
    MAX_LINK_LIFETIME, MIN_LINK_LIFETIME, Organization, OriginProject, OriginSettings, OriginStorage, PreviewSettings,
};
