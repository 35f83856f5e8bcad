//! The host and scheme sources of a site's policies.

use std::collections::BTreeSet;

use super::super::address::ExternalOrigin;
use super::super::content_fact::ResourceKind;
use super::site_policies::SiteFacts;

/// The largest total length of the host sources of one directive in bytes. A directive with more allows whole schemes.
pub(super) const MAX_SOURCES_BYTES: usize = 600;
/// Well-known hosts of style sheets, each with the origin of the fonts and images that its style sheets load. Those
/// style sheets are external and cannot be read here.
const STYLE_SHEET_COMPANIONS: [(&str, &str); 3] = [
    ("fonts.googleapis.com", "https://fonts.gstatic.com"),
    ("use.typekit.net", "https://p.typekit.net"),
    ("fonts.bunny.net", "https://fonts.bunny.net"),
];

/// Returns the host and scheme sources that a site needs for one kind of resource.
pub(super) fn sources_of_kind(site: &SiteFacts, kind: ResourceKind) -> Vec<String> {
    let of = |kind: ResourceKind| site.origins.iter().filter(move |(one, _)| *one == kind).map(|(_, origin)| origin);
    let mut found: BTreeSet<String> = of(kind).filter_map(ExternalOrigin::as_csp_source).map(str::to_owned).collect();
    let runs_others = of(ResourceKind::Script).next().is_some() || site.too_many.contains(&ResourceKind::Script);
    let mut is_many = site.too_many.contains(&kind);
    if matches!(kind, ResourceKind::Font | ResourceKind::Image) {
        // External style sheets load fonts and images, mostly from their own origin.
        is_many |= site.too_many.contains(&ResourceKind::Style);
        for origin in of(ResourceKind::Style) {
            found.extend(origin.as_csp_source().map(str::to_owned));
            let companion = STYLE_SHEET_COMPANIONS.iter().find(|(host, _)| *host == origin.host());
            found.extend(companion.map(|(_, other)| (*other).to_owned()));
        }
    }
    let length: usize = found.iter().map(|one| one.len() + 1).sum();
    let is_vague = is_many || length > MAX_SOURCES_BYTES;
    // The resources that an external script loads are not known here, so their schemes are allowed. The origins of
    // scripts themselves stay listed.
    let is_brought = runs_others
        && matches!(
            kind,
            ResourceKind::Style
                | ResourceKind::Font
                | ResourceKind::Image
                | ResourceKind::Media
                | ResourceKind::Frame
                | ResourceKind::Connect
        );
    if is_vague || is_brought {
        found.retain(|one| !is_vague && !one.starts_with("https:") && !one.starts_with("wss:"));
        found.insert("https:".to_owned());
        if is_vague {
            found.insert("http:".to_owned());
        }
        if kind == ResourceKind::Connect {
            found.insert("wss:".to_owned());
            if is_vague {
                found.insert("ws:".to_owned());
            }
        }
    }
    found.into_iter().collect()
}
