//! Computes the content security policy (CSP Level 3) of each page from the facts about the site's files.
//!
//! A policy has two parts with different scopes. **Hash sources** of inline scripts belong to one page, because a list
//! for the whole site would be too long for a header. **Host sources** belong to the whole site, because a page that
//! is reached by a client-side navigation (Next.js) is shown under the policy of the page that was loaded first.
//!
//! Nonces are not used, because all clients get the same bytes of a page and cache them. `'strict-dynamic'` is not
//! used, because it would block the page's own scripts from files. Hash sources for styles are used only on pages
//! without scripts: the styles that scripts add to a page are not known here, and scripts often add styles.

mod csp_builder;
mod csp_facts;
mod csp_file;
mod csp_template;
mod host_sources;

use docwharf_base::locks::Mutex;

use crate::sealed_version::SealedVersion;

use super::site_reader::read_site_files;
use csp_builder::{CspBuilder, CspSink};

pub use csp_facts::{CspFacts, InlineCodeSet, SiteFacts};
pub use csp_file::{CspFileFault, decode_facts, encode_facts};
pub use csp_template::{CspPreset, CspSettings, CspStatistics, CspTemplate, provisional_policy};

/// Reads all of `version` with `threads` threads and collects the facts for its policies. After `stop` has returned
/// `true`, the result is `None`.
pub fn collect_facts(version: &SealedVersion, threads: usize, stop: &(dyn Fn() -> bool + Sync)) -> Option<CspFacts> {
    let builder = Mutex::new(CspBuilder::new(version.index().len()));
    let collectors = read_site_files(version, threads, stop, || CspSink::new(&builder))?;
    collectors.into_iter().for_each(CspSink::finish);
    Some(builder.into_inner().build())
}
