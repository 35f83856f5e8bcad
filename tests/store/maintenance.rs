//! The store alone: leases, pruning, sweeping, repair.

use std::cell::RefCell;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use docwharf::model::limits::BundleLimits;
use docwharf::model::version::VersionId;
use docwharf::seal::{SealOptions, SealProgress};
use docwharf::site::lookup::SiteFiles;
use docwharf::store::StoreError;
use docwharf::store::incoming_version::CommitOutcome;
use docwharf::store::operations::StoreOperations;
use docwharf::store::record::StoreRecord;
use docwharf::store::space::{SpaceLimits, SpaceRequest};
use docwharf::store::writer::StoreWriter;
use docwharf::sync::incoming_bundle::{ArrivalCause, IncomingBundle};
use docwharf::sync::ingest::{IngestedBundle, ingest_bundle};
use docwharf::sync::open::open;
use docwharf::sync::scrub::{ScrubResult, scrub};
use docwharf::sync::{SyncError, SyncSettings};

use rustix::fs::{FlockOperation, flock};
use support::host::{Host, bundle, front_page_title};
use support::zip::{deflated, zip};
use support::{SetOnDrop, temporary_folder};

fn seal_options() -> SealOptions {
    SealOptions::new(BundleLimits::default())
}

/// How long a writer waits for the lock. A child that another test has just forked holds the lock of a dropped writer
/// until its exec.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

fn open_writer(root: &Path) -> StoreWriter {
    StoreWriter::open(root, LOCK_TIMEOUT).unwrap()
}

/// Ingests a site of one page with this text.
fn ingest(writer: &StoreWriter, dir: &Path, text: &str) -> IngestedBundle {
    try_to_ingest(writer, dir, text).unwrap()
}

fn try_to_ingest(writer: &StoreWriter, dir: &Path, text: &str) -> Result<IngestedBundle, SyncError> {
    let path = dir.join("bundle.zip");
    std::fs::write(&path, zip(&[deflated("index.html", text)])).unwrap();
    let incoming_bundle = IncomingBundle {
        cause: ArrivalCause::Import,
        path: &path,
        file: None,
        source: "test",
        title: "test",
        label: None,
        demanded: None,
        job: None,
        sent: None,
        streamed_seal: RefCell::default(),
    };
    let mut record = writer.store().record().unwrap();
    let sync_settings = SyncSettings { seal_options: seal_options(), ..SyncSettings::default() };
    ingest_bundle(writer, &mut record, &sync_settings, &incoming_bundle, false, "test", &SealProgress::default())
}

fn ids(writer: &StoreWriter) -> Vec<VersionId> {
    writer.store().versions().unwrap().iter().map(|version| version.id).collect()
}

#[test]
fn a_version_that_is_open_is_not_pruned() {
    let dir = temporary_folder();
    let writer = open_writer(&dir.path().join("store"));
    let old = ingest(&writer, dir.path(), "old").id;
    let lease = open(&writer, old, &seal_options(), false).unwrap();
    ingest(&writer, dir.path(), "new");
    let record = writer.store().record().unwrap();
    let no_space = SpaceLimits { keep: 0, max_bytes: Some(0), min_free: None };
    assert!(writer.prune(&record, &SpaceLimits::default()).unwrap().is_empty());
    assert!(writer.prune(&record, &no_space).unwrap().is_empty());
    assert!(ids(&writer).contains(&old));
    let entry = lease.entry(lease.find(b"index.html").unwrap());
    assert_eq!(lease.content(&entry).unwrap(), "old".as_bytes());
    drop(lease);
    writer.write_derived(old, "csp", b"x").unwrap();
    assert_eq!(writer.prune(&record, &SpaceLimits::default()).unwrap()[0].id, old);
    assert!(!dir.path().join("store/receipts").join(old.to_string()).exists());
    assert!(!writer.store().derived_dir(old).exists(), "files derived from a version go with it");
    assert_eq!(std::fs::read_dir(dir.path().join("store/staging")).unwrap().count(), 0);
}

// Regression: an image that a response in progress had mapped was not removed, so clients that read nothing kept every
// version in the store.
#[test]
fn a_removed_version_counts_against_max_bytes_until_its_responses_end() {
    let dir = temporary_folder();
    let writer = open_writer(&dir.path().join("store"));
    let old = ingest(&writer, dir.path(), "old").id;
    let size = std::fs::metadata(writer.store().version_dir(old).join("site.zip")).unwrap().len();
    let version = open(&writer, old, &seal_options(), false).unwrap();
    let response = version.compressed_bytes(&version.entry(version.find(b"index.html").unwrap()));
    let before = response.to_vec();
    drop(version);
    let new = ingest(&writer, dir.path(), "new").id;
    let record = writer.store().record().unwrap();
    assert_eq!(writer.prune(&record, &SpaceLimits::default()).unwrap()[0].id, old);
    assert_eq!((ids(&writer), writer.mapped_removed_bytes()), (vec![new], size));
    assert_eq!(response, before, "the response still has its bytes");
    let limits = SpaceLimits { max_bytes: Some(size), ..SpaceLimits::default() };
    let space_request = SpaceRequest { version_bytes: 1, remaining_bytes: 1 };
    let refused = writer.free_disk_space(&record, &limits, space_request);
    let Err(StoreError::RemovedVersionsInUse { needed, protected, mapped, max_bytes, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((needed, protected, mapped, max_bytes), (1, 0, size, size));
    drop(response);
    assert_eq!(writer.mapped_removed_bytes(), 0);
    assert!(writer.free_disk_space(&record, &limits, space_request).is_ok());
}

#[test]
fn a_version_locked_by_another_process_can_be_opened_but_is_not_pruned() {
    let dir = temporary_folder();
    let writer = open_writer(&dir.path().join("store"));
    let old = ingest(&writer, dir.path(), "old").id;
    ingest(&writer, dir.path(), "new");
    let record = writer.store().record().unwrap();
    for kind in [FlockOperation::LockShared, FlockOperation::LockExclusive] {
        let other = std::fs::File::open(writer.store().version_dir(old).join("site.zip")).unwrap();
        flock(&other, kind).unwrap();
        let version = open(&writer, old, &seal_options(), false).unwrap();
        drop(version);
        assert!(writer.prune(&record, &SpaceLimits::default()).unwrap().is_empty());
        flock(&other, FlockOperation::Unlock).unwrap();
    }
    assert_eq!(writer.prune(&record, &SpaceLimits::default()).unwrap()[0].id, old);
}

// Regression: any local user could keep `run` from starting or serving by `flock` on the store's lock or an image.
#[test]
fn other_users_have_no_access_to_the_store_even_after_an_upgrade() {
    let dir = temporary_folder();
    let store = dir.path().join("store");
    let assert_modes = |lock, folder| {
        assert_eq!(mode(&store.join("lock")), lock);
        for name in ["versions", "receipts", "staging", "downloads", "derived"] {
            assert_eq!(mode(&store.join(name)), folder, "{name}");
        }
    };
    let set_modes = |lock, folder| {
        set_mode(&store.join("lock"), lock);
        for name in ["versions", "receipts", "staging", "downloads", "derived"] {
            set_mode(&store.join(name), folder);
        }
    };
    let first = open_writer(&store);
    first.write_derived(ingest(&first, dir.path(), "text").id, "csp", b"x").unwrap();
    drop(first);
    assert_modes(0o600, 0o750);
    assert_eq!(mode(&store), 0o750);
    set_modes(0o644, 0o755);
    drop(open_writer(&store));
    assert_modes(0o600, 0o750);
    // A volume that pods of several users share: the permissions of the group stay.
    set_modes(0o664, 0o2775);
    drop(open_writer(&store));
    assert_modes(0o660, 0o2770);
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

// Regression: `gc` beside a sync removed the version that had just been committed and that no record named yet.
#[test]
fn pruning_does_not_remove_a_version_that_is_being_ingested() {
    let dir = temporary_folder();
    let writer = open_writer(&dir.path().join("store"));
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let record = writer.store().record().unwrap();
                writer.prune(&record, &SpaceLimits { keep: 0, ..SpaceLimits::default() }).unwrap();
            }
        });
        let _stop = SetOnDrop(&done);
        for n in 0..40 {
            let id = ingest(&writer, dir.path(), &format!("text {n}")).id;
            assert!(writer.store().has(id), "arrival {n}");
            assert_eq!(writer.store().receipts(id).len(), 1, "arrival {n}");
        }
    });
}

#[test]
fn a_mapped_version_can_be_read_after_its_files_are_removed() {
    let dir = temporary_folder();
    let writer = open_writer(&dir.path().join("store"));
    let id = ingest(&writer, dir.path(), "text").id;
    let lease = open(&writer, id, &seal_options(), false).unwrap();
    std::fs::remove_dir_all(writer.store().version_dir(id)).unwrap();
    let entry = lease.entry(lease.find(b"index.html").unwrap());
    assert_eq!(lease.content(&entry).unwrap(), "text".as_bytes());
}

#[test]
fn ingesting_stored_content_again_reuses_the_version_or_repairs_it() {
    let dir = temporary_folder();
    let writer = open_writer(&dir.path().join("store"));
    let first = ingest(&writer, dir.path(), "text");
    assert_eq!(first.committed, CommitOutcome::New);
    assert_eq!(ingest(&writer, dir.path(), "text").committed, CommitOutcome::AlreadyStored);
    let image = writer.store().version_dir(first.id).join("site.zip");
    std::fs::remove_file(&image).unwrap();
    std::fs::write(&image, "damaged").unwrap();
    assert_eq!(ingest(&writer, dir.path(), "text").committed, CommitOutcome::Repaired);
    assert!(open(&writer, first.id, &seal_options(), true).is_ok());
    assert_eq!(writer.store().versions().unwrap()[0].receipts.len(), 3);
}

// Regression: a kill while a receipt was written left its temporary file for ever.
#[test]
fn leftover_temporary_files_are_removed_when_a_writer_opens_the_store() {
    let dir = temporary_folder();
    let root = dir.path().join("store");
    drop(open_writer(&root));
    std::fs::create_dir_all(root.join("staging/0/deep")).unwrap();
    std::fs::write(root.join("staging/0/site.zip"), "half").unwrap();
    std::fs::write(root.join("staging/file"), "half").unwrap();
    std::fs::write(root.join(".state.json.new"), "{").unwrap();
    std::fs::write(root.join("control.sock"), "").unwrap();
    // Neither has the name of a temporary file.
    let others = [".hidden", "notes.new"].map(|name| root.join(name));
    for path in &others {
        std::fs::write(path, "not ours").unwrap();
    }
    let id = ingest(&open_writer(&root), dir.path(), "kept").id.to_string();
    let receipts = root.join("receipts").join(&id);
    std::fs::write(receipts.join(".1.json.new"), "{").unwrap();
    std::fs::write(root.join("versions").join(&id).join(".index.new"), "{").unwrap();
    std::fs::create_dir(root.join("receipts/of-a-pruned-version")).unwrap();
    drop(open_writer(&root));
    assert_eq!(std::fs::read_dir(&receipts).unwrap().count(), 1);
    assert_eq!(std::fs::read_dir(root.join("versions").join(&id)).unwrap().count(), 2);
    assert_eq!(std::fs::read_dir(root.join("receipts")).unwrap().count(), 1);
    assert_eq!(std::fs::read_dir(root.join("staging")).unwrap().count(), 0);
    assert!(!root.join(".state.json.new").exists() && !root.join("control.sock").exists());
    assert!(others.iter().all(|path| path.exists()));
}

#[test]
fn one_writer_at_a_time() {
    let dir = temporary_folder();
    let first = open_writer(dir.path());
    assert!(StoreWriter::open(dir.path(), Duration::ZERO).unwrap_err().to_string().contains("locked"));
    drop(first);
    assert!(StoreWriter::open(dir.path(), LOCK_TIMEOUT).is_ok());
}

#[test]
fn an_incomplete_last_line_of_history_is_ignored_and_later_lines_are_read() {
    let dir = temporary_folder();
    let writer = open_writer(dir.path());
    writer.note("me", "held", None, None);
    let path = dir.path().join("history.jsonl");
    let mut text = std::fs::read_to_string(&path).unwrap();
    text.push_str("{\"time\":\"20");
    std::fs::write(&path, text).unwrap();
    assert_eq!(writer.store().history().unwrap().len(), 1);
    writer.note("me", "released", None, None);
    let history = writer.store().history().unwrap();
    let kinds: Vec<&str> = history.iter().map(|event| event.what.as_str()).collect();
    assert_eq!(kinds, ["held", "released"]);
}

// Regression: the history ended at a line that a power cut had left with bytes that are not text.
#[test]
fn a_history_line_that_is_not_text_does_not_hide_later_lines() {
    let dir = temporary_folder();
    let writer = open_writer(dir.path());
    for torn in [&[0; 300][..], &[0xff; 300], b"\xc3\x28 no text"] {
        let path = dir.path().join("history.jsonl");
        let mut bytes = std::fs::read(&path).unwrap_or_default();
        bytes.extend_from_slice(torn);
        std::fs::write(&path, bytes).unwrap();
        writer.note("me", "held", None, None);
    }
    assert_eq!(writer.store().history().unwrap().len(), 3);
}

#[test]
fn sealed_files_have_mode_0440() {
    let dir = temporary_folder();
    let writer = open_writer(&dir.path().join("store"));
    let id = ingest(&writer, dir.path(), "text").id;
    for name in ["site.zip", "index"] {
        let mode = std::fs::metadata(writer.store().version_dir(id).join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o440, "{name}");
    }
}

// Regression: pruning could remove a version that a person had chosen while it was in progress.
#[test]
fn pruning_keeps_a_version_that_was_chosen_after_pruning_began() {
    let dir = temporary_folder();
    let writer = open_writer(&dir.path().join("store"));
    let (chosen, other) = (ingest(&writer, dir.path(), "chosen").id, ingest(&writer, dir.path(), "other").id);
    ingest(&writer, dir.path(), "new");
    let before = writer.store().record().unwrap();
    writer.change_record(|record| record.previous = Some(chosen)).unwrap();
    let no_space = SpaceLimits { keep: 0, max_bytes: Some(0), min_free: None };
    let removed: Vec<VersionId> = writer.prune(&before, &no_space).unwrap().iter().map(|version| version.id).collect();
    assert_eq!(removed, [other]);
    assert!(ids(&writer).contains(&chosen));
}

#[test]
fn a_failed_import_leaves_the_stored_versions_unchanged() {
    for is_damaged in [false, true] {
        let host = Host::bare();
        let import = |code: i32, name: &str| {
            host.put(&format!("{name}.zip"), bundle(name));
            let path = host.path(&format!("{name}.zip"));
            host.expect_exit(code, &["import", path.to_str().unwrap(), "--label", name]);
            host.active().unwrap()
        };
        let oldest = import(0, "first");
        import(0, "second");
        let newest = import(0, "third");
        let image = host.path("store/versions").join(&oldest).join("site.zip");
        if is_damaged {
            // The import repairs the image before it fails.
            std::fs::remove_file(&image).unwrap();
            std::fs::write(&image, "no image").unwrap();
        }
        // A file in the place of the receipts' folder makes the import fail.
        let receipts = host.path("store/receipts").join(&oldest);
        std::fs::remove_dir_all(&receipts).unwrap();
        std::fs::write(&receipts, "").unwrap();
        assert_eq!(import(8, "first"), newest, "damaged: {is_damaged}");
        assert!(image.exists(), "damaged: {is_damaged}: a labelled version was removed");
        host.ok(&["activate", "first"]);
        assert_eq!(front_page_title(&host.run()), "first", "damaged: {is_damaged}");
    }
}

/// How a command changes the record for a version.
type Choice = fn(&mut StoreRecord, VersionId);

#[test]
fn a_version_without_a_receipt_is_withdrawn_unless_an_operator_has_chosen_it() {
    let dir = temporary_folder();
    let id = ingest(&open_writer(&dir.path().join("other")), dir.path(), "text").id;
    let cases: [(&str, Choice, bool); 4] = [
        ("nothing", |_, _| (), false),
        ("newest", |record, id| record.newest = Some(id), false),
        ("active", |record, id| record.active = Some(id), true),
        ("previous", |record, id| record.previous = Some(id), true),
    ];
    for (name, choose, stays) in cases {
        let root = dir.path().join(name);
        let writer = open_writer(&root);
        // A file in the place of the receipts' folder makes the import fail.
        std::fs::write(root.join("receipts").join(id.to_string()), "").unwrap();
        writer.change_record(|record| choose(record, id)).unwrap();
        let before = writer.record().unwrap();
        assert!(try_to_ingest(&writer, dir.path(), "text").is_err(), "{name}");
        assert_eq!(writer.store().has(id), stays, "{name}");
        assert_eq!(writer.record().unwrap(), before, "{name}");
        assert!(writer.history().unwrap().is_empty(), "{name}");
        assert_eq!(std::fs::read_dir(root.join("staging")).unwrap().count(), 0, "{name}");
    }
}

/// Damages the version in the first folder. The second folder is that of another version.
type Damage<'a> = &'a dyn Fn(&Path, &Path);

#[test]
fn scrub_records_a_version_as_undamaged_repaired_damaged_or_removed() {
    let dir = temporary_folder();
    let replace = |path: &Path, bytes: &[u8]| {
        std::fs::remove_file(path).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    let cases: [(&str, Damage<'_>); 7] = [
        ("Undamaged", &|_, _| ()),
        ("IndexRebuilt", &|version, _| replace(&version.join("index"), b"no index")),
        ("IndexRebuilt", &|version, _| std::fs::remove_file(version.join("index")).unwrap()),
        ("Damaged", &|version, _| replace(&version.join("site.zip"), b"no image")),
        // A valid image, but of another version.
        ("Damaged", &|version, other| {
            replace(&version.join("site.zip"), &std::fs::read(other.join("site.zip")).unwrap());
        }),
        ("Damaged", &|version, other| {
            for name in ["site.zip", "index"] {
                replace(&version.join(name), &std::fs::read(other.join(name)).unwrap());
            }
        }),
        ("Removed", &|version, _| std::fs::remove_dir_all(version).unwrap()),
    ];
    for (n, (expected, damage)) in cases.into_iter().enumerate() {
        let root = dir.path().join(n.to_string());
        let writer = open_writer(&root);
        let (id, other) = (ingest(&writer, dir.path(), "text").id, ingest(&writer, dir.path(), "other").id);
        // A version that is marked as damaged and turns out to be undamaged is not marked any more.
        writer.mark_damaged(id).unwrap();
        damage(&writer.store().version_dir(id), &writer.store().version_dir(other));
        let result = match scrub(&writer, id).unwrap() {
            ScrubResult::Undamaged => "Undamaged",
            ScrubResult::IndexRebuilt => "IndexRebuilt",
            ScrubResult::Damaged(_) => "Damaged",
            ScrubResult::Removed => "Removed",
        };
        assert_eq!(result, expected, "case {n}");
        assert_eq!(writer.store().is_marked_damaged(id), expected == "Damaged", "case {n}");
        let verified = std::fs::read_to_string(root.join("scrub.json")).unwrap_or_default();
        let is_good = matches!(expected, "Undamaged" | "IndexRebuilt");
        assert_eq!(verified.contains(&id.to_string()), is_good, "case {n}");
        assert_eq!(open(&writer, id, &seal_options(), true).is_ok(), is_good, "case {n}");
        assert_eq!(scrub(&writer, other).unwrap(), ScrubResult::Undamaged, "case {n}");
    }
}
