//! The rows of the table: what is asked for, and what the answer must be.

use std::net::SocketAddr;

use crate::check::Expected;
use crate::site::{File, Site};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Row {
    Hot,
    Gzip,
    Revalidate,
    Random,
    RandomGzip,
    Asset,
    Missing,
    Close,
    H2,
}

/// One row at one server.
#[derive(Debug)]
pub(crate) struct Ask {
    pub address: SocketAddr,
    pub fields: Vec<(String, String)>,
    pub paths: Vec<String>,
    pub expected: Expected,
}

impl Ask {
    /// Whether each answer ends its connection.
    pub(crate) fn closes(&self) -> bool {
        self.fields.iter().any(|(name, _)| name == "Connection")
    }
}

/// What no page, and no file beside one, is called.
const MISSING: &str = "/missing.png";

fn paths(files: &[File]) -> Vec<String> {
    files.iter().map(|file| file.path.clone()).collect()
}

impl Row {
    pub(crate) const ALL: &[Self] = &[
        Self::Hot,
        Self::Gzip,
        Self::Revalidate,
        Self::Random,
        Self::RandomGzip,
        Self::Asset,
        Self::Missing,
        Self::Close,
        Self::H2,
    ];

    /// As options and results name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Gzip => "gzip",
            Self::Revalidate => "revalidate",
            Self::Random => "random",
            Self::RandomGzip => "random-gzip",
            Self::Asset => "asset",
            Self::Missing => "missing",
            Self::Close => "close",
            Self::H2 => "h2",
        }
    }

    /// As tables name it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Hot => "hot small page, identity",
            Self::Gzip => "the same, gzip",
            Self::Revalidate => "304 revalidation",
            Self::Random => "random page, identity",
            Self::RandomGzip => "random page, gzip",
            Self::Asset => "large file, identity",
            Self::Missing => "404",
            Self::Close => "new connection each",
            Self::H2 => "HTTP/2 cleartext, 8×16 streams",
        }
    }

    /// docwharf's CPU over the best peer's: what it must be at most (over HTTP/2 of nginx's), and what it should
    /// be (over HTTP/2 of h2o's).
    pub(crate) fn goals(self) -> (f64, f64) {
        match self {
            Self::Hot | Self::Gzip | Self::RandomGzip => (0.95, 0.85),
            Self::Random => (1.0, 0.85),
            Self::Revalidate => (1.1, 0.95),
            Self::Asset => (1.25, 0.95),
            Self::Missing | Self::Close => (1.0, 0.95),
            Self::H2 => (0.3, 1.0),
        }
    }

    /// `tag` is the condition that the server's own answer allows: If-None-Match, or If-Modified-Since without a tag.
    pub(crate) fn ask(self, site: &Site, address: SocketAddr, tag: Option<&(String, String)>) -> Result<Ask, String> {
        let field = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        let (fields, paths, expected) = match self {
            Self::Hot | Self::H2 => (vec![], vec![site.hot.path.clone()], Expected::Page { gzip: false }),
            Self::Gzip => {
                (field("Accept-Encoding", "gzip"), vec![site.hot.path.clone()], Expected::Page { gzip: true })
            }
            Self::Revalidate => {
                let tag = tag.ok_or("has neither an ETag nor a Last-Modified")?.clone();
                (vec![tag], vec![site.hot.path.clone()], Expected::NotModified)
            }
            Self::Random => (vec![], paths(&site.random), Expected::Page { gzip: false }),
            Self::RandomGzip => (field("Accept-Encoding", "gzip"), paths(&site.random), Expected::Page { gzip: true }),
            Self::Asset => (vec![], vec![site.asset.path.clone()], Expected::Page { gzip: false }),
            Self::Missing => (vec![], vec![MISSING.to_owned()], Expected::Missing),
            Self::Close => (field("Connection", "close"), vec![site.hot.path.clone()], Expected::Page { gzip: false }),
        };
        Ok(Ask { address, fields, paths, expected })
    }
}
