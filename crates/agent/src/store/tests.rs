//! Tests of reading a store: its versions, their names, and the record.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use super::*;
use crate::store::operations::StoreOperations;
use crate::store::record::LabelledVersion;
use crate::store::writer::StoreWriter;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::digest::Digest;

/// An id that begins with these bytes.
fn id(begin: &[u8]) -> VersionId {
    let mut bytes = [0; 32];
    bytes[..begin.len()].copy_from_slice(begin);
    VersionId(Digest(bytes))
}

#[test]
fn find_version_prefers_labels_and_accepts_only_unambiguous_id_prefixes() {
    let (a, b, c) = (id(&[0xab; 5]), id(&[0xab, 0xab, 0xab, 0xab, 0x01]), id(&[0xcd; 8]));
    let versions = [a, b, c].map(|id| StoredVersion { id, bytes: 1, receipts: Vec::new() });
    let mut record = StoreRecord::default();
    let labels = [("stable", a), ("cdcdcdcd", b), ("abababab", c), ("lost", id(b"lost")), ("cdcdcdcdcd", id(b"lost"))];
    for (label, version) in labels {
        let labelled = LabelledVersion { version, source: String::new(), sha256: None, time: String::new() };
        record.labels.insert(label.to_owned(), labelled);
    }
    let found = |name: &str| find_version(name, &record, &versions).ok();
    let cases = [
        ("stable", Some(a)),
        ("Stable", None),
        // A label wins also where it is a prefix of the id of one or several versions.
        ("cdcdcdcd", Some(b)),
        ("abababab", Some(c)),
        // A label whose version is missing does not hide an id with this prefix.
        ("cdcdcdcdcd", Some(c)),
        ("lost", None),
        ("ababababab", Some(a)),
        ("ABABABAB01", Some(b)),
        ("cdcdcdc", None),
        ("cdcdcdce", None),
        ("", None),
    ];
    for (name, expected) in cases {
        assert_eq!(found(name), expected, "{name}");
    }
    record.labels.clear();
    let refused = |name: &str| find_version(name, &record, &versions).unwrap_err();
    assert!(matches!(refused("abababab"), StoreError::AmbiguousId(_)));
    assert!(matches!(refused("abababa"), StoreError::UnknownVersion(_)));
    assert!(matches!(refused("stable"), StoreError::UnknownVersion(_)));
}

#[test]
fn versions_are_listed_by_their_last_arrival_newest_first() {
    let dir = tempfile::tempdir().unwrap();
    assert!(VersionStore::at(&dir.path().join("none")).versions().is_ok_and(|versions| versions.is_empty()));
    let writer = StoreWriter::open(dir.path(), Duration::ZERO).unwrap();
    let (early, late, again, bare) = (id(b"a"), id(b"b"), id(b"c"), id(b"d"));
    let arrivals = [(early, 1), (late, 5), (again, 7), (again, 2), (early, 1)];
    for (version, minute) in arrivals {
        let receipt = Receipt::with_time(format!("2026-11-21T10:{minute:02}:00Z"));
        writer.add_receipt(version, &receipt).unwrap();
    }
    for (n, version) in [early, late, again, bare].into_iter().enumerate() {
        fs::create_dir(writer.store().version_dir(version)).unwrap();
        fs::write(writer.store().version_dir(version).join(IMAGE), vec![0; n]).unwrap();
    }
    // Neither of these is a version.
    fs::create_dir(writer.store().version_dir(id(b"e"))).unwrap();
    fs::create_dir(dir.path().join("versions/other")).unwrap();
    fs::write(dir.path().join("versions/other").join(IMAGE), "").unwrap();
    let broken = dir.path().join("receipts").join(late.to_string()).join("9.json");
    fs::write(broken, "{").unwrap();
    let versions = writer.store().versions().unwrap();
    let listed: Vec<_> = versions.iter().map(|stored| (stored.id, stored.bytes, stored.receipts.len())).collect();
    assert_eq!(listed, [(again, 2, 2), (late, 1, 1), (early, 0, 2), (bare, 3, 0)]);
    assert!(versions[0].receipts.is_sorted_by_key(|receipt| receipt.time.as_str()));
    assert!(writer.store().has(bare) && !writer.store().has(id(b"e")) && !writer.store().has(id(b"f")));
    fs::create_dir(writer.store().version_dir(id(b"e")).join(IMAGE)).unwrap();
    assert!(!writer.store().has(id(b"e")), "an image is a regular file");
    assert_eq!(writer.store().find_version(&early.to_string()).unwrap(), early);
}

// Regression: of several versions that arrived within one second, the one to prune depended on their ids, and of
// several arrivals of a version the last one on the order of the file system.
#[test]
fn arrivals_within_one_second_are_listed_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let writer = StoreWriter::open(dir.path(), Duration::ZERO).unwrap();
    let order = [3, 8, 1, 6, 2, 7, 5, 4].map(|n| id(&[n]));
    for (n, version) in order.into_iter().enumerate() {
        fs::create_dir(writer.store().version_dir(version)).unwrap();
        fs::write(writer.store().version_dir(version).join(IMAGE), "image").unwrap();
        for arrival in 0..3 {
            let receipt = Receipt::with_time("2026-11-21T10:00:00Z".to_owned());
            writer.add_receipt(version, &Receipt { author: format!("{n} {arrival}"), ..receipt }).unwrap();
        }
    }
    let versions = writer.store().versions().unwrap();
    assert!(versions.iter().map(|version| version.id).eq(order.into_iter().rev()));
    for (n, version) in versions.iter().rev().enumerate() {
        let arrivals: Vec<&str> = version.receipts.iter().map(|receipt| receipt.author.as_str()).collect();
        assert_eq!(arrivals, [0, 1, 2].map(|arrival| format!("{n} {arrival}")));
    }
}

#[test]
fn receipts_of_an_earlier_release_round_trip_with_all_their_fields() {
    let dir = tempfile::tempdir().unwrap();
    let writer = StoreWriter::open(dir.path(), Duration::ZERO).unwrap();
    let folder = |version: VersionId| dir.path().join("receipts").join(version.to_string());
    let full = r#"{"time": "t", "who": "me", "source": "s", "kind": "zip", "archiveSha256": "d", "archiveBytes": 1,
        "label": "L", "job": "j", "validator": "v", "sentBytes": 2, "looked": true}"#;
    let shortest = r#"{"time": "t", "who": "me", "source": "s", "kind": "folder"}"#;
    fs::create_dir(folder(id(b"a"))).unwrap();
    fs::write(folder(id(b"a")).join("1.json"), full).unwrap();
    fs::write(folder(id(b"a")).join("2.json"), shortest).unwrap();
    let receipts = writer.store().receipts(id(b"a"));
    assert_eq!(receipts.iter().map(|receipt| receipt.found_by_check).collect::<Vec<_>>(), [true, false]);
    writer.add_receipt(id(b"b"), &receipts[0]).unwrap();
    let file = fs::read_dir(folder(id(b"b"))).unwrap().next().unwrap().unwrap().path();
    let written: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!(written, serde_json::from_str::<serde_json::Value>(full).unwrap());
}

#[test]
fn hard_linked_store_file_is_neither_appended_to_nor_truncated() {
    let dir = tempfile::tempdir().unwrap();
    let (root, victim) = (dir.path().join("store"), dir.path().join("victim"));
    let writer = StoreWriter::open(&root, Duration::ZERO).unwrap();
    let api_state = api_state::ApiStateDirectory::open(&root).unwrap();
    let (listed, other) = (id(b"a"), id(b"b"));
    for version in [listed, other] {
        fs::create_dir(writer.store().version_dir(version)).unwrap();
        fs::write(writer.store().version_dir(version).join(IMAGE), "image").unwrap();
    }
    // It looks like a file of marks, so that there would be a mark to clear.
    let content = format!("{listed}\n");
    fs::write(&victim, &content).unwrap();
    for name in ["history.jsonl", "suspect", "api/searches.jsonl"] {
        fs::hard_link(&victim, root.join(name)).unwrap();
    }
    // A failure is only logged.
    writer.note("me", "held", None, None);
    let query = serde_json::Value::Null;
    let refused = [
        writer.mark_damaged(other).unwrap_err(),
        writer.clear_damage_mark(listed).unwrap_err(),
        api_state.open_spool("searches", &query, &query).unwrap_err(),
    ];
    for error in refused {
        let text = ErrorChain(&error).to_string();
        assert!(text.ends_with("it has a second name (a hard link); remove it"), "{text}");
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), content);
}

#[test]
fn staging_copy_is_removed_only_inside_the_opened_store() {
    let dir = tempfile::tempdir().unwrap();
    let (root, elsewhere) = (dir.path().join("store"), dir.path().join("elsewhere"));
    let writer = StoreWriter::open(&root, Duration::ZERO).unwrap();
    let (store, staging) = (writer.store(), root.join("staging"));
    fs::create_dir_all(elsewhere.join("staging")).unwrap();
    let files = [root.join("downloads/copy"), elsewhere.join("copy"), elsewhere.join("staging/copy")];
    for file in &files {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "x").unwrap();
    }
    fs::write(staging.join("copy"), "x").unwrap();
    for path in [&files[0], &staging.join("../downloads/copy"), &staging.join("0/copy"), &root, Path::new("copy")] {
        store.remove_staging_copy(path);
    }
    assert!(staging.join("copy").exists());
    // A link of that name is removed, not its target.
    symlink(&files[1], staging.join("link")).unwrap();
    store.remove_staging_copy(&staging.join("link"));
    assert!(!staging.join("link").is_symlink());
    store.remove_staging_copy(&staging.join("copy"));
    assert!(!staging.join("copy").exists());
    // Another user exchanges directories: the path of the copy now leads to another file with its name.
    fs::write(staging.join("copy"), "x").unwrap();
    fs::rename(&root, dir.path().join("moved")).unwrap();
    symlink(&elsewhere, &root).unwrap();
    store.remove_staging_copy(&staging.join("copy"));
    assert!(files[2].exists(), "the file to which the path now leads");
    assert!(!dir.path().join("moved/staging/copy").exists(), "the copy in the store that was opened");
    fs::write(dir.path().join("moved/staging/copy"), "x").unwrap();
    fs::rename(dir.path().join("moved/staging"), dir.path().join("moved/was")).unwrap();
    symlink(elsewhere.join("staging"), dir.path().join("moved/staging")).unwrap();
    store.remove_staging_copy(&staging.join("copy"));
    for file in &files[1..] {
        assert!(file.exists(), "{}", file.display());
    }
    assert!(dir.path().join("moved/downloads/copy").exists() && dir.path().join("moved/was/copy").exists());
    fs::remove_file(dir.path().join("moved/staging")).unwrap();
}

#[test]
fn missing_record_is_empty_and_a_damaged_or_later_record_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let store = VersionStore::at(dir.path());
    assert_eq!(store.record().unwrap(), StoreRecord::default());
    let write_record = |text: &str| fs::write(dir.path().join(layout::RECORD), text).unwrap();
    write_record("{\"schemaVersion\": 2, \"configError\": \"x\"}");
    assert_eq!(store.record().unwrap().config_error.as_deref(), Some("x"));
    write_record("{\"schemaVersion\": 3}");
    assert!(matches!(store.record(), Err(StoreError::LaterRecord { found: 3, .. })));
    for damaged in ["", "{", "{}", "{\"schemaVersion\": 2,\n  \"sum\": \"0000000000000000\"\n}\n"] {
        write_record(damaged);
        assert!(matches!(store.record(), Err(StoreError::DamagedRecord { .. })), "{damaged:?}");
    }
    fs::remove_file(dir.path().join(layout::RECORD)).unwrap();
    fs::create_dir(dir.path().join(layout::RECORD)).unwrap();
    assert!(
        matches!(store.record(), Err(StoreError::Io { .. })),
        "an unreadable record is an error, not an empty record"
    );
}
