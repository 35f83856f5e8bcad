//! The settings that decide where an address leads, and whether an address is answered under them.

use std::sync::Arc;

use crate::rules::route::{ComparisonBudget, RedirectEnd, RouteSettings, follow_to_end};
use crate::rules::rule_set::RuleSet;

use super::base_path::{BasePathMatch, match_base_path};
use super::resolve::{Slashes, find_exact};
use super::site_files::SiteFiles;

/// The settings that decide where an address of any version leads. They own their values, so that they can be stored
/// with the configuration. For the lookup in one version they become [`RouteSettings`], which borrows them and has
/// `slashes` decided for that version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressSettings {
    /// The path below which the site is served: `/` or `/docs/`.
    pub base_path: String,
    /// The response at an address of a page that is not its canonical one; `None` selects it by the kind of site.
    pub slashes: Option<Slashes>,
    /// The operator's rules.
    pub rules: Arc<RuleSet>,
}

impl Default for AddressSettings {
    fn default() -> AddressSettings {
        AddressSettings { base_path: "/".to_owned(), slashes: None, rules: Arc::default() }
    }
}

/// Whether a decoded address, with its leading slash, is answered with a file: directly, or after the redirects of the
/// site and its rules. A redirect to another host counts as answered.
pub fn is_answered(site: &impl SiteFiles, addresses: &AddressSettings, slashes: Slashes, address: &[u8]) -> bool {
    is_answered_with_budget(site, addresses, slashes, address, None)
}

/// Does what [`is_answered`] does, with a budget for the comparisons. The result is not valid after the budget is
/// spent.
pub(crate) fn is_answered_with_budget(
    site: &impl SiteFiles,
    addresses: &AddressSettings,
    slashes: Slashes,
    address: &[u8],
    budget: Option<&ComparisonBudget>,
) -> bool {
    // The server refuses addresses with control characters.
    if address.iter().any(|&b| b < 0x20 || b == 0x7f) {
        return false;
    }
    let base_path = &addresses.base_path;
    let site_address = match match_base_path(base_path, address) {
        BasePathMatch::Inside(_) => &address[base_path.len() - 1..],
        BasePathMatch::Above => b"/",
        BasePathMatch::FrontPagePayload(payload) => return site.is_next() && find_exact(site, &payload[1..]).is_some(),
        BasePathMatch::Outside => return false,
    };
    let settings = RouteSettings { base_path, slashes, rules: &addresses.rules };
    matches!(follow_to_end(site, &settings, site_address, None, budget), RedirectEnd::File | RedirectEnd::OtherHost)
}

#[cfg(test)]
mod tests {
    use super::super::site_files::path_list::PathListSite;
    use super::*;

    #[test]
    fn address_is_found_if_it_resolves_to_a_file_directly_or_by_a_redirect() {
        let site = PathListSite(&["index.html", "x/index.html", "y.html", "a.css", ".git/x"]);
        for slashes in [Slashes::Serve, Slashes::Redirect] {
            let docs = AddressSettings { base_path: "/docs/".to_owned(), ..AddressSettings::default() };
            for address in ["/", "/docs", "/docs/", "/docs/x", "/docs/x.html", "/docs/y/", "/docs/a.css"] {
                assert!(is_answered(&site, &docs, slashes, address.as_bytes()), "{address}");
            }
            for address in ["", "/x", "/doc", "/docs/z", "/docs/a", "/docs/.git/x", "/docs/x\n", "/docs//"] {
                assert!(!is_answered(&site, &docs, slashes, address.as_bytes()), "{address}");
            }
            assert!(is_answered(&site, &AddressSettings::default(), slashes, b"/y"));
            assert!(!is_answered(&site, &AddressSettings::default(), slashes, b"y"));
        }
    }
}
