//! The settings of a site that do not change while it is served.

use std::time::Duration;

use http::HeaderValue;

use docwharf_site::lookup::Slashes;

use super::access::AccessControl;
use super::security_headers::SecurityHeaderSettings;

/// The implementation that serves HTTP/2 to the clients of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Http2Server {
    /// The implementation in [`super::http2`].
    #[default]
    Own,
    /// The implementation in hyper, which also serves the listeners that are not for a site.
    Hyper,
    /// None. TLS offers HTTP/1.1 only, and the preface of HTTP/2 is parsed as HTTP/1.1, where it is an invalid request.
    Off,
}

/// The settings of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteSettings {
    /// The path below which the site is served, with a slash at both ends: `/` or `/docs/`.
    pub base_path: String,
    /// Which of the possible paths of a page is canonical; with `None` it depends on the version.
    pub slashes: Option<Slashes>,
    /// The capacity, in bytes, of the cache of inflated files for clients that do not accept gzip.
    pub identity_cache: u64,
    /// The memory, in bytes, that all responses of the process may hold beyond that cache while their clients read
    /// them.
    pub held_bytes: u64,
    /// The time for which hashed assets of a replaced version are still served; zero to stop at once.
    pub asset_grace: Duration,
    /// The header fields that protect readers.
    pub security_headers: SecurityHeaderSettings,
    /// The access control at the start; [`Site::set_access_control`](super::Site::set_access_control) replaces it.
    pub access_control: AccessControl,
    /// The value of Strict-Transport-Security, for clients that use https; `None` to send none.
    pub hsts: Option<HeaderValue>,
    /// Which implementation serves HTTP/2.
    pub http2: Http2Server,
    /// Whether the site serves versions that not every reader of the published site may read: one that waits for an
    /// approval, or a preview.
    pub is_unpublished: bool,
}

impl Default for SiteSettings {
    fn default() -> Self {
        SiteSettings {
            base_path: "/".to_owned(),
            slashes: None,
            identity_cache: 64 << 20,
            held_bytes: 64 << 20,
            asset_grace: Duration::from_hours(72),
            security_headers: SecurityHeaderSettings::default(),
            access_control: AccessControl::default(),
            hsts: None,
            http2: Http2Server::default(),
            is_unpublished: false,
        }
    }
}
