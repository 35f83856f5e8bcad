//! The gate (`[gate]`): conditions that a version must meet before it becomes active automatically.
//!
//! A version is verified before it is stored; the gate checks whether it is plausible: an export that lost half of its
//! pages is undamaged, too. The gate is evaluated for each target version that is not active yet; in manual mode the
//! verdict is only reported. It is stored in the record, so that pages are not read again at each check of the source.
//! Another configuration or another active version needs a new verdict.

use std::collections::BTreeMap;

use crate::store::record::GateVerdict;
use docwharf_base::clock::now_rfc3339;
use docwharf_base::error_chain::QuotedName;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::units::format_count;
use docwharf_base::model::version::VersionId;
use docwharf_site::diff::count_pages;
use docwharf_site::link_check::{BrokenLinks, find_broken_links};
use docwharf_site::lookup::{AddressSettings, is_answered};
use docwharf_site::rules::route::ComparisonBudget;
use docwharf_site::sealed_version::SealedVersion;

/// Bytes that may be compared to resolve the links of one version: half a minute at worst. Links to existing pages cost
/// almost nothing, so it is enough for a million other links and a hundred rules with `*`.
const MAX_COMPARED_BYTES: u64 = 1 << 35;

/// Upper bound of the bytes of an address that a message shows.
const MAX_SHOWN_BYTES: usize = 60;
/// Upper bound of the addresses that a message shows.
const MAX_SHOWN_ADDRESSES: usize = 3;

/// The conditions; one that is not set is always met.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GateConditions {
    /// Addresses that must lead to a page or file, as a reader requests them.
    pub require: Vec<String>,
    /// Smallest number of pages.
    pub min_pages: Option<u64>,
    /// Percentage by which the number of pages may be smaller than that of the active version.
    pub max_shrink: Option<u8>,
    /// Number of broken links that the version may have more than the active one (see `site::link_check`).
    pub max_broken_links: Option<u64>,
    /// The settings by which addresses are resolved.
    pub address_settings: AddressSettings,
}

impl GateConditions {
    /// Whether no condition is set.
    pub fn is_off(&self) -> bool {
        self.require.is_empty()
            && self.min_pages.is_none()
            && self.max_shrink.is_none()
            && self.max_broken_links.is_none()
    }

    /// A digest of the conditions and the address settings: a verdict under others is not valid. It covers the
    /// names of the type and its fields, so a release that renames one evaluates the gate once more.
    pub fn conditions_digest(&self) -> String {
        short_digest(&format!("{self:?}"))
    }

    /// Whether `verdict` is about this version and this active one, under these conditions.
    pub fn covers(&self, verdict: &GateVerdict, version: VersionId, against: Option<VersionId>) -> bool {
        verdict.version == version
            && verdict.against == against
            && verdict.conditions_digest == self.conditions_digest()
    }

    /// Whether the active version has to be read.
    pub fn compares(&self) -> bool {
        self.max_shrink.is_some() || self.max_broken_links.is_some()
    }

    /// Evaluates `version` against the active one. Broken links are counted only if all other conditions are met. The
    /// active version's are not counted again if `previous`, the last verdict, has their number for the same address
    /// settings; those of `version` always are. `is_cancelled` is called at each page and link; once it returns true,
    /// the result is `None`.
    pub fn evaluate(
        &self,
        version: &SealedVersion,
        against: Option<VersionId>,
        active: Option<&SealedVersion>,
        previous: Option<&GateVerdict>,
        threads: usize,
        is_cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Option<GateVerdict> {
        let address_settings_digest = short_digest(&format!("{:?}", self.address_settings));
        let mut broken_by_version = BTreeMap::new();
        let mut refused = self.check_pages(version, active);
        if let Some(max_increase) = self.max_broken_links.filter(|_| refused.is_empty()) {
            let reusable = previous.filter(|verdict| verdict.address_settings_digest == address_settings_digest);
            let active_count = match active {
                None => None,
                Some(active) => match reusable.and_then(|verdict| verdict.links.get(&active.id)) {
                    Some(&count) => Some(count),
                    // Without the number of the active version, this version is checked as if it were the first one.
                    None => Some(self.count_broken_links(active, threads, is_cancelled)?)
                        .filter(|broken| !broken.is_incomplete)
                        .map(|broken| broken.count),
                },
            };
            let broken = self.count_broken_links(version, threads, is_cancelled)?;
            broken_by_version.extend(active.map(|active| active.id).zip(active_count));
            if !broken.is_incomplete {
                broken_by_version.insert(version.id, broken.count);
            }
            refused.extend(check_broken_links(&broken, active_count, max_increase));
        }
        let refused = (!refused.is_empty()).then(|| refused.join("; "));
        Some(GateVerdict {
            version: version.id,
            against,
            conditions_digest: self.conditions_digest(),
            refused,
            time: now_rfc3339(),
            address_settings_digest,
            links: broken_by_version,
        })
    }

    fn count_broken_links(
        &self,
        version: &SealedVersion,
        threads: usize,
        is_cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Option<BrokenLinks> {
        find_broken_links(
            version,
            &self.address_settings,
            threads,
            &ComparisonBudget::new(MAX_COMPARED_BYTES),
            is_cancelled,
        )
    }

    fn check_pages(&self, version: &SealedVersion, active: Option<&SealedVersion>) -> Vec<String> {
        let slashes = self.address_settings.slashes.unwrap_or(version.auto_slashes);
        let is_found = |address: &str| {
            let decoded: Vec<u8> = percent_encoding::percent_decode_str(address).collect();
            is_answered(version, &self.address_settings, slashes, &decoded)
        };
        let missing: Vec<&str> = self.require.iter().map(String::as_str).filter(|address| !is_found(address)).collect();
        let found = count_pages(version.index());
        let mut refused = Vec::new();
        refused.extend(check_required(&missing));
        refused.extend(self.min_pages.and_then(|min_pages| check_min_pages(found, min_pages)));
        if let (Some(max_percent), Some(active)) = (self.max_shrink, active) {
            refused.extend(check_shrink(found, count_pages(active.index()), max_percent));
        }
        refused
    }
}

fn short_digest(text: &str) -> String {
    Digest::compute(text.as_bytes()).to_hex()[..16].to_owned()
}

fn check_required(missing: &[&str]) -> Option<String> {
    let shown: Vec<String> =
        missing.iter().take(MAX_SHOWN_ADDRESSES).map(|address| format_address(address.as_bytes())).collect();
    let more = missing.len().saturating_sub(MAX_SHOWN_ADDRESSES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!missing.is_empty()).then(|| format!("require: 404 at {}{more}", shown.join(", ")))
}

fn check_min_pages(pages: u64, min_pages: u64) -> Option<String> {
    (pages < min_pages).then(|| format!("minPages: {}; at least {min_pages} are demanded", format_count(pages, "page")))
}

fn check_shrink(pages: u64, before: u64, max_percent: u8) -> Option<String> {
    let lost = u128::from(before.saturating_sub(pages));
    if lost * 100 <= u128::from(before) * u128::from(max_percent) {
        return None;
    }
    // Rounded up, so that the number shown is above the limit shown beside it.
    let tenths = (lost * 1000).div_ceil(u128::from(before).max(1));
    let percent =
        if tenths % 10 == 0 { format!("{}", tenths / 10) } else { format!("{}.{}", tenths / 10, tenths % 10) };
    let pages = format_count(pages, "page");
    Some(format!("maxShrink: {pages} instead of {before}, {percent} % fewer; at most {max_percent} % are allowed"))
}

fn check_broken_links(found: &BrokenLinks, before: Option<u64>, max_increase: u64) -> Option<String> {
    if found.count <= before.unwrap_or(0).saturating_add(max_increase) {
        // A version whose links could not all be resolved does not pass.
        return found.is_incomplete.then(|| {
            "maxBrokenLinks: not all links could be resolved within the limit, because there are too many links and rules with * \
             or :name; reduce these rules in the bundle's _redirects or docs.json, or remove maxBrokenLinks"
                .to_owned()
        });
    }
    let links = format_count(found.count, "broken link");
    let allowed = match before {
        Some(before) => format!("{links} instead of {before}; at most {max_increase} more are allowed"),
        None => format!("{links}; at most {max_increase} are allowed"),
    };
    let example = found.examples.first().map_or_else(String::new, |(page, target)| {
        format!(" (such as {} on {})", format_address(target), format_address(page))
    });
    Some(format!("maxBrokenLinks: {allowed}{example}"))
}

/// Formats an address in quotes, shortened so that several fit on a line.
fn format_address(address: &[u8]) -> String {
    if address.len() <= MAX_SHOWN_BYTES {
        return QuotedName(address).to_string();
    }
    format!("{}…", QuotedName(&address[..MAX_SHOWN_BYTES]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_condition_refuses_just_beyond_its_limit_with_its_numbers() {
        assert_eq!(check_min_pages(40, 40), None);
        assert_eq!(check_min_pages(1, 40).unwrap(), "minPages: 1 page; at least 40 are demanded");
        assert_eq!(check_shrink(28, 40, 30), None);
        assert_eq!(check_shrink(50, 40, 0), None);
        assert_eq!(
            check_shrink(12, 40, 30).unwrap(),
            "maxShrink: 12 pages instead of 40, 70 % fewer; at most 30 % are allowed"
        );
        let close = check_shrink(69_999, 100_000, 30).unwrap();
        assert!(close.contains("30.1 % fewer"), "{close}");
        assert_eq!(check_shrink(0, 0, 0), None);
        assert_eq!(check_shrink(0, 7, 100), None);
        let examples = vec![(b"a\n.html".to_vec(), vec![b'x'; 100])];
        let found = |count| BrokenLinks { count, pages: 1, examples: examples.clone(), is_incomplete: false };
        assert_eq!(check_broken_links(&found(8), Some(3), 5), None);
        assert_eq!(check_broken_links(&found(5), None, 5), None);
        let more = check_broken_links(&found(9), Some(3), 5).unwrap();
        assert!(more.starts_with("maxBrokenLinks: 9 broken links instead of 3; at most 5 more are allowed"), "{more}");
        assert!(more.contains("\"a\\n.html\"") && more.len() < 220, "{more}");
        assert!(check_broken_links(&found(6), None, 5).unwrap().contains("6 broken links; at most 5 are allowed"));
        let cut = check_broken_links(&BrokenLinks { is_incomplete: true, ..found(8) }, Some(3), 5).unwrap();
        assert!(cut.contains("not all links could be resolved"), "{cut}");
        assert_eq!(check_required(&[]), None);
        assert_eq!(check_required(&["/a", "/b"]).unwrap(), "require: 404 at \"/a\", \"/b\"");
        assert!(check_required(&["/a", "/b", "/c", "/d", "/e"]).unwrap().ends_with("\"/c\" and 2 more"));
    }

    #[test]
    fn gate_verdict_covers_one_version_one_active_version_and_one_set_of_conditions() {
        let (a, b) = (VersionId(Digest::compute(b"a")), VersionId(Digest::compute(b"b")));
        let gate = GateConditions { min_pages: Some(1), ..GateConditions::default() };
        assert!(GateConditions::default().is_off() && !gate.is_off());
        let verdict = GateVerdict {
            version: a,
            against: Some(b),
            conditions_digest: gate.conditions_digest(),
            refused: None,
            time: String::new(),
            address_settings_digest: String::new(),
            links: BTreeMap::new(),
        };
        assert!(gate.covers(&verdict, a, Some(b)));
        assert!(!gate.covers(&verdict, b, Some(b)) && !gate.covers(&verdict, a, None));
        assert!(!GateConditions { min_pages: Some(2), ..gate }.covers(&verdict, a, Some(b)));
    }
}
