//! The host and scheme sources of a site's policies.

use std::collections::BTreeSet;

use super::super::address::ExternalOrigin;
use super::super::content_fact::ResourceKind;
use super::csp_facts::SiteFacts;

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
pub(super) fn list_sources(site_facts: &SiteFacts, kind: ResourceKind) -> Vec<String> {
    let origins_of = |kind: ResourceKind| {
        site_facts.origins.iter().filter(move |(origin_kind, _)| *origin_kind == kind).map(|(_, origin)| origin)
    };
    let mut sources: BTreeSet<String> =
        origins_of(kind).filter_map(ExternalOrigin::as_csp_source).map(str::to_owned).collect();
    let runs_external_scripts =
        origins_of(ResourceKind::Script).next().is_some() || site_facts.unlisted_kinds.contains(&ResourceKind::Script);
    let mut has_too_many_origins = site_facts.unlisted_kinds.contains(&kind);
    if matches!(kind, ResourceKind::Font | ResourceKind::Image) {
        // External style sheets load fonts and images, mostly from their own origin.
        has_too_many_origins |= site_facts.unlisted_kinds.contains(&ResourceKind::Style);
        for origin in origins_of(ResourceKind::Style) {
            sources.extend(origin.as_csp_source().map(str::to_owned));
            let companion = STYLE_SHEET_COMPANIONS.iter().find(|(host, _)| *host == origin.host());
            sources.extend(companion.map(|(_, origin)| (*origin).to_owned()));
        }
    }
    let length: usize = sources.iter().map(|source| source.len() + 1).sum();
    let allows_schemes = has_too_many_origins || length > MAX_SOURCES_BYTES;
    // The resources that an external script loads are not known here, so their schemes are allowed. The origins of
    // scripts are still listed.
    let scripts_may_load_it = runs_external_scripts
        && matches!(
            kind,
            ResourceKind::Style
                | ResourceKind::Font
                | ResourceKind::Image
                | ResourceKind::Media
                | ResourceKind::Frame
                | ResourceKind::Connect
        );
    if allows_schemes || scripts_may_load_it {
        sources.retain(|source| !allows_schemes && !source.starts_with("https:") && !source.starts_with("wss:"));
        sources.insert("https:".to_owned());
        if allows_schemes {
            sources.insert("http:".to_owned());
        }
        if kind == ResourceKind::Connect {
            sources.insert("wss:".to_owned());
            if allows_schemes {
                sources.insert("ws:".to_owned());
            }
        }
    }
    sources.into_iter().collect()
}
