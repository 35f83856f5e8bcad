//! Changes of the state of a site, and what follows from them.

use docwharf_base::clock::now_unix_seconds;
use docwharf_base::model::cidr::IpRanges;
use docwharf_base::model::digest::Digest;
use http::HeaderValue;

use super::*;
use crate::access::AccessRules;
use crate::access_log::AccessLogSettings;
use crate::access_log_line::{AccessLogFormat, LoggedAddress};
use crate::response_cache;
use crate::test_versions::version_with_files;

/// Returns an access control that admits no client.
fn closed_access() -> AccessControl {
    AccessControl {
        rules: AccessRules { allow: Some(IpRanges::default()), user_header: None },
        proxies: IpRanges::default(),
    }
}

#[test]
fn each_response_is_counted_in_its_status_class() {
    let site = Site::new(SiteSettings::default());
    for (status, expected) in [
        (200, [1, 0, 0, 0]),
        (204, [2, 0, 0, 0]),
        (206, [3, 0, 0, 0]),
        (301, [3, 1, 0, 0]),
        (304, [3, 2, 0, 0]),
        (400, [3, 2, 1, 0]),
        (499, [3, 2, 2, 0]),
        (503, [3, 2, 2, 1]),
        (999, [3, 2, 2, 2]),
    ] {
        site.count_response(StatusCode::from_u16(status).unwrap());
        assert_eq!(site.request_counts(), expected, "{status}");
    }
}

#[test]
fn every_change_that_affects_responses_invalidates_cached_responses() {
    type Change = fn(&Site, VersionId);
    let site = Site::new(SiteSettings::default());
    let version = VersionId(Digest::compute(b"x"));
    let changes: [(&str, Change); 8] = [
        ("an inserted tag", |site, _| site.set_inserted_tag(InsertedTag::new("/").map(Arc::new))),
        ("no inserted tag", |site, _| site.set_inserted_tag(None)),
        ("rules", |site, _| site.set_rules(Arc::default())),
        ("other access control", |site, _| site.set_access_control(AccessControl::default())),
        ("other codings", |site, version| site.set_precompressed(Some(PrecompressedCodings::empty(version)))),
        ("no codings", |site, _| site.set_precompressed(None)),
        ("a released version", Site::release_version),
        ("no version", |site, _| site.remove_version()),
    ];
    for (case, change) in changes {
        let before = (site.generation(), response_cache::SiteState::current(&site));
        change(&site, version);
        assert!(site.generation() > before.0 && response_cache::SiteState::current(&site) != before.1, "{case}");
    }
}

#[test]
fn content_dates_record_a_version_change_but_no_settings_change_without_a_version() {
    let site = Site::new(SiteSettings::default());
    assert_eq!(site.content_dates(5), ContentDates::never_replaced(5));
    // Without a version, changed rules change no response.
    site.set_rules(Arc::default());
    site.set_access_control(AccessControl::default());
    assert_eq!(site.content_dates(-5), ContentDates::never_replaced(-5));
    for change in [Site::note_content_change, Site::remove_version] {
        let site = Site::new(SiteSettings::default());
        let before = now_unix_seconds();
        change(&site);
        let replaced = site.content_dates(5).replaced.unwrap();
        assert!((before..=now_unix_seconds()).contains(&replaced));
    }
}

#[test]
fn precompressed_codings_are_dropped_when_their_version_is_replaced_or_removed() {
    let site = Site::new(SiteSettings::default());
    let (one, two) = (version_with_files(&[("a", "1")], 0), version_with_files(&[("a", "2")], 0));
    let (first_id, second_id) = (one.id, two.id);
    let has_codings = || site.codings.has_any();
    site.set_version(one);
    site.set_precompressed(Some(PrecompressedCodings::empty(first_id)));
    site.set_version(version_with_files(&[("a", "1")], 0));
    assert!(has_codings(), "the same version was opened again");
    site.set_version(two);
    assert!(!has_codings());
    site.set_precompressed(Some(PrecompressedCodings::empty(second_id)));
    site.remove_version();
    assert!(!has_codings() && site.served_version().is_none());
}

#[test]
fn response_cache_is_off_when_a_response_or_log_line_depends_on_the_client() {
    let hsts = Some(HeaderValue::from_static("max-age=60"));
    let named = AccessRules { allow: None, user_header: Some(http::header::FROM) };
    let proxies = IpRanges::parse(&["10.0.0.0/8"]).unwrap();
    for (settings, expected) in [
        (SiteSettings::default(), false),
        (
            SiteSettings {
                access_control: AccessControl { rules: AccessRules::default(), proxies: proxies.clone() },
                ..SiteSettings::default()
            },
            false,
        ),
        (SiteSettings { access_control: closed_access(), ..SiteSettings::default() }, true),
        (SiteSettings { access_control: AccessControl { rules: named, proxies }, ..SiteSettings::default() }, true),
        (SiteSettings { hsts, ..SiteSettings::default() }, true),
    ] {
        let site = Site::new(settings);
        assert_eq!(site.depends_on_client(), expected, "{:?}", site.settings);
        assert_eq!(response_cache::SiteState::current(&site).is_none(), expected, "{:?}", site.settings);
        site.set_access_control(closed_access());
        assert!(site.depends_on_client() && response_cache::SiteState::current(&site).is_none());
    }
    let dir = tempfile::tempdir().unwrap();
    let log = AccessLogSettings {
        format: AccessLogFormat::Json,
        address: LoggedAddress::Full,
        file: Some(dir.path().join("log")),
    };
    let log = AccessLog::open(&log).unwrap();
    let site = Site::with_access_log(SiteSettings::default(), Some(Arc::clone(&log)));
    assert!(site.depends_on_client() && response_cache::SiteState::current(&site).is_none());
    log.finish();
}
