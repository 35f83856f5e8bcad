//! Computes the content security policy (CSP Level 3) of each page from the facts about the site's files.
//!
//! A policy has two parts with different scopes. **Hash sources** of inline scripts belong to one page, because a list
//! for the whole site would be too long for a header. **Host sources** belong to the whole site, because a page that
//! is reached by a client-side navigation (Next.js) is shown under the policy of the page that was loaded first.
//!
//! Nonces are not used, because all clients get the same bytes of a page and cache them. `'strict-dynamic'` is not
//! used, because it would block the page's own scripts from files. Hash sources for styles are used only on pages
//! without scripts: the styles that scripts add to a page are not known here, and scripts often add styles.

mod host_sources;
mod policy_builder;
mod policy_file;
mod policy_template;
mod site_policies;

use docwharf_base::locks::Mutex;

use crate::sealed_version::SealedVersion;

use super::site_reader::read_site_files;
use policy_builder::{PolicyBuilder, PolicySink};

pub use policy_file::{PolicyFileFault, decode_policies, encode_policies};
pub use policy_template::{CspPreset, CspRules, PolicyStatistics, PolicyTemplate, provisional_policy};
pub use site_policies::{InlineCodeSet, SiteFacts, SitePolicies};

/// Reads all of `site` with `threads` threads and computes its policies. After `stop` has returned `true`, the result
/// is `None`.
pub fn compute_policies(
    site: &SealedVersion,
    threads: usize,
    stop: &(dyn Fn() -> bool + Sync),
) -> Option<SitePolicies> {
    let builder = Mutex::new(PolicyBuilder::new(site.index().len()));
    let collectors = read_site_files(site, threads, stop, || PolicySink::new(&builder))?;
    collectors.into_iter().for_each(PolicySink::finish);
    Some(builder.into_inner().build())
}
