//! Sites made from what a running server answers.

use url::Url;

/// A running site.
#[derive(Debug, Clone)]
pub struct Crawl {
    /// Its start page.
    pub start: Url,
    /// Requests at a time.
    pub parallel: usize,
    /// Whether robots.txt counts.
    pub robots: bool,
    /// Pages and assets beyond this number are an error.
    pub most: u64,
}
