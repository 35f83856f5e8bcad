//! The rows of the table: the requests of each row and the expected responses.

use std::net::SocketAddr;

use crate::check::ExpectedResponse;
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

/// The requests of a row to a server.
#[derive(Debug)]
pub(crate) struct RowRequest {
    pub address: SocketAddr,
    pub fields: Vec<(String, String)>,
    pub paths: Vec<String>,
    pub expected: ExpectedResponse,
}

impl RowRequest {
    /// Whether the connection ends after each response.
    pub(crate) fn closes(&self) -> bool {
        self.fields.iter().any(|(name, _)| name == "Connection")
    }
}

/// An address without a page or file.
const MISSING_PATH: &str = "/missing.png";

fn paths_of(files: &[File]) -> Vec<String> {
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

    /// The name in options and results.
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

    /// The name in tables.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Hot => "hot small page, identity",
            Self::Gzip => "hot small page, gzip",
            Self::Revalidate => "304 revalidation",
            Self::Random => "random page, identity",
            Self::RandomGzip => "random page, gzip",
            Self::Asset => "large file, identity",
            Self::Missing => "404",
            Self::Close => "new connection each",
            Self::H2 => "HTTP/2 cleartext, 8×16 streams",
        }
    }

    /// Goals for docwharf's CPU time divided by the best peer's: the ratio that it must not exceed (HTTP/2: to nginx),
    /// and the ratio that it should reach (HTTP/2: to h2o).
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

    /// The requests to a server. `condition` is the precondition field from the server's own validator: If-None-Match,
    /// or If-Modified-Since if it sends no entity tag.
    pub(crate) fn request(
        self,
        site: &Site,
        address: SocketAddr,
        condition: Option<&(String, String)>,
    ) -> Result<RowRequest, String> {
        let field = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        let (fields, paths, expected) = match self {
            Self::Hot | Self::H2 => (vec![], vec![site.hot.path.clone()], ExpectedResponse::Page { gzip: false }),
            Self::Gzip => {
                (field("Accept-Encoding", "gzip"), vec![site.hot.path.clone()], ExpectedResponse::Page { gzip: true })
            }
            Self::Revalidate => {
                let condition = condition.ok_or("has neither an ETag nor a Last-Modified")?.clone();
                (vec![condition], vec![site.hot.path.clone()], ExpectedResponse::NotModified)
            }
            Self::Random => (vec![], paths_of(&site.random), ExpectedResponse::Page { gzip: false }),
            Self::RandomGzip => {
                (field("Accept-Encoding", "gzip"), paths_of(&site.random), ExpectedResponse::Page { gzip: true })
            }
            Self::Asset => (vec![], vec![site.asset.path.clone()], ExpectedResponse::Page { gzip: false }),
            Self::Missing => (vec![], vec![MISSING_PATH.to_owned()], ExpectedResponse::Missing),
            Self::Close => {
                (field("Connection", "close"), vec![site.hot.path.clone()], ExpectedResponse::Page { gzip: false })
            }
        };
        Ok(RowRequest { address, fields, paths, expected })
    }
}
