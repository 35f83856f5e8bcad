//! Tests of committing versions and of the record, in a store where another user exchanges names.

use std::os::unix::fs::symlink;

use super::*;
use docwharf_base::model::digest::Digest;

#[test]
fn an_image_that_was_exchanged_for_a_link_changes_no_file_and_becomes_no_version() {
    let dir = tempfile::tempdir().unwrap();
    let victim = dir.path().join("victim");
    fs::write(&victim, "secret").unwrap();
    fs::set_permissions(&victim, Permissions::from_mode(0o600)).unwrap();
    let root = dir.path().join("store");
    let writer = StoreWriter::open(&root, Duration::ZERO).unwrap();
    let stage = writer.stage().unwrap();
    let image = stage.directory().create_file(IMAGE, 0o600).unwrap();
    fs::remove_file(root.join("staging/0").join(IMAGE)).unwrap();
    symlink(&victim, root.join("staging/0").join(IMAGE)).unwrap();
    writer.finish_stage(&stage, &image, b"index").unwrap();
    assert_eq!(victim.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let id = VersionId(Digest::of(b"x"));
    assert!(writer.commit(&stage, &image, id, |_| true).is_err());
    assert!(!root.join("versions").join(id.to_string()).exists());
}

#[test]
fn a_folder_is_replaced_in_one_step_or_file_by_file() {
    for replace in [mend, replace_files] {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("store");
        let writer = StoreWriter::open(&root, Duration::ZERO).unwrap();
        let (stage, versions) = (writer.stage().unwrap(), writer.store().folder("versions").unwrap());
        let old = versions.create_directory("old", 0o755).unwrap();
        for name in [IMAGE, INDEX] {
            old.replace(name, 0o644, b"old").unwrap();
            stage.directory().replace(name, 0o644, b"new").unwrap();
        }
        replace(&stage, &versions, "old").unwrap();
        for name in [IMAGE, INDEX] {
            assert_eq!(fs::read(root.join("versions/old").join(name)).unwrap(), b"new");
            assert_ne!(fs::read(root.join("staging/0").join(name)).unwrap_or_default(), b"new");
        }
    }
}

#[test]
fn a_damaged_record_that_is_a_link_is_not_kept_aside() {
    let dir = tempfile::tempdir().unwrap();
    let (root, secret) = (dir.path().join("store"), dir.path().join("secret"));
    fs::write(&secret, "secret").unwrap();
    let writer = StoreWriter::open(&root, Duration::ZERO).unwrap();
    symlink(&secret, root.join(record::FILE)).unwrap();
    let damage = writer.record().unwrap_err();
    assert!(writer.keep_damaged(&damage).is_err() && !root.join(record::DAMAGED).exists());
    symlink(&secret, root.join("versions/x")).unwrap();
    symlink(dir.path(), root.join("receipts/x")).unwrap();
    drop(writer);
    drop(StoreWriter::open(&root, Duration::ZERO).unwrap());
    assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
}
