//! Which heads are found again, for how long, and within which bounds.

use super::key::is_equal_slice;
use super::*;
use crate::SiteSettings;
use std::sync::Arc;

use docwharf_site::index::{ImageIndex, encode_index};
use docwharf_site::sealed_version::SealedVersion;

#[test]
fn the_response_cache_retains_nearly_all_entries_that_fit_into_it() {
    let site = Site::new(SiteSettings::default());
    let state = SiteState { site: site.instance_id, generation: 1, version_instance: None };
    let targets: Vec<String> = (0..3000).map(|n| format!("/guide/{n}/page.html")).collect();
    for target in &targets {
        let key = CacheKey { target, ..CacheKey::default() };
        store(state, &key, HeadFormat::Lines, StatusCode::OK, target.as_bytes(), BodyLocation::Empty);
    }
    let cached_count = targets.iter().filter(|target| {
        let mut out = Vec::new();
        let key = CacheKey { target, ..CacheKey::default() };
        find_cached(&site, state, &key, HeadFormat::Lines, &mut out).is_some_and(|_| out == target.as_bytes())
    });
    let cached_count = cached_count.count();
    assert!(cached_count > 2900, "{cached_count} of 3000");
    assert_eq!(THREAD_CACHE.with_borrow(|cache| cache.hashes.len()), MAX_SETS);
    let texts = THREAD_CACHE.with_borrow(|cache| {
        cache.sets.iter().flatten().flatten().map(|entry| entry.key_and_head.len()).sum::<usize>()
    });
    assert_eq!(THREAD_CACHE.with_borrow(|cache| cache.bytes), texts);
    let (next, key) = (SiteState { generation: 2, ..state }, CacheKey { target: "/", ..CacheKey::default() });
    store(next, &key, HeadFormat::Lines, StatusCode::OK, b"", BodyLocation::Empty);
    let count = THREAD_CACHE.with_borrow(|cache| cache.sets.iter().flatten().flatten().count());
    assert_eq!(count, 1, "the entries of the earlier state are removed");
}

#[test]
fn the_response_cache_stays_within_its_byte_limit_and_admits_new_entries() {
    let site = Site::new(SiteSettings::default());
    let state = SiteState { site: site.instance_id, generation: 1, version_instance: None };
    let targets: Vec<String> = (0..4000).map(|n| format!("/{n}?{}", "x".repeat(400))).collect();
    let is_cached = |target: &str| {
        let key = CacheKey { target, ..CacheKey::default() };
        find_cached(&site, state, &key, HeadFormat::Lines, &mut Vec::new()).is_some()
    };
    for target in &targets {
        let key = CacheKey { target, ..CacheKey::default() };
        store(state, &key, HeadFormat::Lines, StatusCode::OK, &[b'h'; MAX_CACHED_HEAD_BYTES], BodyLocation::Empty);
        assert!(
            THREAD_CACHE.with_borrow(|cache| cache.bytes) < MAX_CACHE_BYTES + MAX_KEY_BYTES + MAX_CACHED_HEAD_BYTES
        );
    }
    let (early, late) = targets.split_at(2000);
    assert!(early.iter().filter(|target| is_cached(target)).count() > 500);
    assert!(late.iter().any(|target| is_cached(target)), "new entries are admitted");
}

// Regression: the response cache of a process with several sites could return the response of one site for another
// one.
#[test]
fn a_cached_response_is_found_only_for_the_same_key_site_and_generation() {
    let site = Site::new(SiteSettings::default());
    let key = CacheKey { target: "/a", accept_encoding: b"gzip", ..CacheKey::default() };
    let state = SiteState { site: site.instance_id, generation: 3, version_instance: None };
    store(state, &key, HeadFormat::Lines, StatusCode::OK, b"head", BodyLocation::Empty);
    let find_head = |state, key: &CacheKey<'_>| {
        let mut out = b"before ".to_vec();
        find_cached(&site, state, key, HeadFormat::Lines, &mut out).map(|_| out)
    };
    assert_eq!(find_head(state, &key), Some(b"before head".to_vec()));
    assert_eq!(find_head(state, &CacheKey { accept_encoding: b"", ..key }), None);
    assert_eq!(find_head(state, &CacheKey { target: "/b", ..key }), None);
    assert_eq!(find_head(state, &CacheKey { is_head: true, ..key }), None);
    assert_eq!(find_head(state, &CacheKey { accept_encoding: b"", accept: b"gzip", ..key }), None, "in another field");
    assert_eq!(find_head(SiteState { generation: 4, ..state }, &key), None);
    let other_site = Site::new(SiteSettings::default());
    assert_eq!(find_head(SiteState { site: other_site.instance_id, ..state }, &key), None, "of another site");
    assert_ne!(SiteState::current(&other_site), SiteState::current(&site));
    assert_eq!(find_head(SiteState { version_instance: Some(1), ..state }, &key), None);
    assert!(find_cached(&site, state, &key, HeadFormat::Block, &mut Vec::new()).is_none(), "in another format");
}

#[test]
fn cache_keys_whose_parts_concatenate_to_the_same_text_differ() {
    let parts: [&[u8]; 5] = [b"G", b"/a", b"b", b"", b""];
    let stored = [&parts.join(&b'\n')[..], b"\n"].concat();
    assert!(is_same_key(&stored, &parts));
    assert!(!is_same_key(&stored, &[b"G", b"/a", b"", b"b", b""]));
    assert!(!is_same_key(&stored, &[b"G", b"/a", b"b", b"", b"c"]));
    assert!(!is_same_key(&stored, &[b"G", b"/", b"b", b"", b""]));
}

#[test]
fn a_repeated_or_empty_field_prevents_a_cache_key() {
    for (before, value, expected) in
        [("", "gzip", Some("gzip")), ("", "", None), ("gzip", "br", None), ("gzip", "gzip", None), ("gzip", "", None)]
    {
        let mut slot = before.as_bytes();
        assert_eq!(set_key_part(&mut slot, value.as_bytes()), expected.is_some(), "{before:?} {value:?}");
        assert_eq!(slot, expected.unwrap_or(before).as_bytes(), "{before:?} {value:?}");
    }
}

#[test]
fn cache_entries_have_a_maximum_key_and_head_length() {
    let site = Site::new(SiteSettings::default());
    let state = SiteState { site: site.instance_id, generation: 1, version_instance: None };
    // A key has the kind, the target and a line feed after each of five parts.
    let longest = MAX_KEY_BYTES - 6;
    for (target, head, expected) in [
        (longest, MAX_CACHED_HEAD_BYTES, true),
        (longest + 1, 1, false),
        (longest - 1, MAX_CACHED_HEAD_BYTES + 1, false),
        (1, MAX_CACHED_HEAD_BYTES, true),
        (2, MAX_CACHED_HEAD_BYTES + 1, false),
    ] {
        let (target, head) = ("x".repeat(target), vec![b'h'; head]);
        let key = CacheKey { target: &target, ..CacheKey::default() };
        store(state, &key, HeadFormat::Lines, StatusCode::OK, &head, BodyLocation::Empty);
        let is_cached = find_cached(&site, state, &key, HeadFormat::Lines, &mut Vec::new()).is_some();
        assert_eq!(is_cached, expected, "{} and {} bytes", target.len(), head.len());
    }
}

#[test]
fn a_cached_response_is_returned_only_with_its_status_and_body() {
    let site = Site::new(SiteSettings::default());
    let state = SiteState { site: site.instance_id, generation: 7, version_instance: None };
    let key = CacheKey { target: "/a", if_none_match: b"\"x\"", ..CacheKey::default() };
    for (location, body) in [
        (BodyLocation::Empty, Some(&b""[..])),
        (BodyLocation::StaticText(b"a text"), Some(b"a text")),
        // Without a version there is no file.
        (BodyLocation::File(0, crate::negotiate::ResponseForm::Gzip), None),
        (BodyLocation::Precompressed(0, docwharf_base::codec::content_coding::ContentCoding::Brotli, 5), None),
    ] {
        let head = format!("{location:?}");
        store(state, &key, HeadFormat::Lines, StatusCode::NOT_FOUND, head.as_bytes(), location);
        let mut out = b"before ".to_vec();
        let cached = find_cached(&site, state, &key, HeadFormat::Lines, &mut out);
        let response = cached.map(|cached| (cached.status.as_u16(), cached.body.parts().concat()));
        assert_eq!(response, body.map(|body| (404, body.to_vec())), "{head}");
        let expected = if body.is_some() { format!("before {head}") } else { "before ".to_owned() };
        assert_eq!(out, expected.as_bytes(), "the last head that was stored, or nothing");
        let count = THREAD_CACHE.with_borrow(|cache| cache.sets.iter().flatten().flatten().count());
        assert_eq!(count, 1, "equal keys have one entry");
    }
}

#[test]
fn cache_keys_differ_if_any_of_their_fields_differs() {
    let key = CacheKey {
        is_head: false,
        target: "/a",
        accept_encoding: b"gzip",
        accept: b"text/html",
        if_none_match: b"\"x\"",
    };
    let keys = [
        key,
        CacheKey { is_head: true, ..key },
        CacheKey { target: "/A", ..key },
        CacheKey { accept_encoding: b"gzi", ..key },
        CacheKey { accept: b"", ..key },
        CacheKey { accept: b"text/*", ..key },
        CacheKey { if_none_match: b"\"y\"", ..key },
        CacheKey { if_none_match: b"", ..key },
    ];
    let stored_keys: Vec<_> =
        keys.iter().flat_map(|key| [HeadFormat::Lines, HeadFormat::Block].map(|format| key.parts(format))).collect();
    for (index, parts) in stored_keys.iter().enumerate() {
        let text = [&parts.join(&b'\n')[..], b"\n"].concat();
        let same: Vec<usize> =
            (0..stored_keys.len()).filter(|&other| is_same_key(&text, &stored_keys[other])).collect();
        assert_eq!(same, [index]);
        assert!(!is_same_key(&text[..text.len() - 1], parts) && !is_same_key(&[&text[..], b"x"].concat(), parts));
    }
    for len in 0..20 {
        let bytes = vec![b'x'; len];
        assert!(is_equal_slice(&bytes, &bytes));
        for index in 0..len {
            let mut changed = bytes.clone();
            changed[index] = b'y';
            assert!(!is_equal_slice(&bytes, &changed), "byte {index} of {len}");
        }
    }
}

/// Opens an empty version, which always has the same id.
fn open_version() -> Arc<SealedVersion> {
    let id = docwharf_base::model::version::VersionManifest::default().id();
    let index = ImageIndex::decode(encode_index(0, id, &[]), 0, id).unwrap();
    Arc::new(SealedVersion::new(id, Vec::new().into(), index))
}

#[test]
fn a_response_cached_from_one_image_of_a_version_is_not_reused_for_another_image() {
    let site = Site::new(SiteSettings::default());
    // `Site::set_version` stores the version before it increments the generation. This test checks the state in
    // between.
    site.served_version.store(Some(open_version()));
    let state = SiteState::current(&site).unwrap();
    let key = CacheKey { target: "/", ..CacheKey::default() };
    store(state, &key, HeadFormat::Lines, StatusCode::OK, b"head", BodyLocation::Empty);
    let find_entry = |state| find_cached(&site, state, &key, HeadFormat::Lines, &mut Vec::new());
    assert!(find_entry(SiteState::current(&site).unwrap()).is_some());
    site.served_version.store(Some(open_version()));
    assert!(find_entry(SiteState::current(&site).unwrap()).is_none());
}
