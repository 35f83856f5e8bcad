//! Damage by the disk: it is found, reported, and not served for long.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use support::h2::{self, Http2Client, StreamOutcome};
use support::host::Host;
use support::zip::{Member, deflated, stored, zip};
use support::{Daemon, http, run_to_end, until};

/// A configuration with a bundle file. `config` continues `[staticExport]`.
fn config_with_bundle(config: &str) -> String {
    format!("[staticExport]\nbundleUrl = \"bundle.zip\"\n{config}")
}

/// A host with the versions `one` and `two` in its store. `two` is active, and the source is not checked.
fn host_with_two_versions() -> Host {
    let host = Host::configured(&config_with_bundle("enabled = false"));
    for name in ["one", "two"] {
        std::fs::write(host.path(name), bundle(name)).unwrap();
        import_bundle(&host, name);
    }
    host
}

fn import_bundle(host: &Host, name: &str) {
    run_to_end(&mut host.command(&["import", host.path(name).to_str().unwrap()])).expect(0);
}

/// Kills the daemon once `scrub.json` says that it runs. The next start finds an unclean end, as after a power cut.
fn kill_running(host: &Host, daemon: Daemon) {
    let scrub_state = || std::fs::read_to_string(host.path("store/scrub.json")).unwrap_or_default();
    until("scrub.json says that the daemon runs", || scrub_state().contains("running\": \""));
    drop(daemon);
}

/// The number of events of this kind in the history.
fn count_events(host: &Host, event: &str) -> usize {
    let history = std::fs::read_to_string(host.path("store/history.jsonl")).unwrap();
    history.lines().filter(|line| line.contains(&format!("\"what\":\"{event}\""))).count()
}

fn version_file(host: &Host, id: &str, name: &str) -> PathBuf {
    host.path("store/versions").join(id).join(name)
}

fn bundle(name: &str) -> Vec<u8> {
    let long = format!("a line of {name}\n").repeat(20_000);
    zip(&[deflated("index.html", &format!("version {name}")), deflated("long.html", &long)])
}

/// Changes one bit of a file. Length and modification time stay.
fn flip_bit(path: &Path, offset: u64) {
    use std::os::unix::fs::FileExt;
    let metadata = std::fs::metadata(path).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
    file.set_modified(metadata.modified().unwrap()).unwrap();
}

/// Changes the receipts of a version as if it had arrived `days` days ago.
fn set_arrival_age(host: &Host, id: &str, days: u64) {
    let arrival = SystemTime::now() - Duration::from_hours(24 * days);
    let arrival = docwharf::base::clock::format_system_time(arrival);
    for receipt in std::fs::read_dir(host.path("store/receipts").join(id)).unwrap() {
        let path = receipt.unwrap().path();
        let mut receipt_json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        receipt_json["time"] = json!(arrival);
        std::fs::write(&path, receipt_json.to_string()).unwrap();
    }
}

/// An offset in the compressed data of the first page.
const OFFSET_IN_PAGE: u64 = 45;

fn id(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not an id: {value}")).to_owned()
}

fn is_served(daemon: &Daemon, name: &str) -> bool {
    http::get(&daemon.address, "/").text() == format!("version {name}")
}

#[test]
fn after_a_power_cut_a_damaged_version_is_found_and_the_previous_one_served() {
    let host = host_with_two_versions();
    let (one, two) = (id(&host.status()["previous"]), id(&host.status()["active"]));
    kill_running(&host, host.run_logged());
    flip_bit(&version_file(&host, &two, "site.zip"), OFFSET_IN_PAGE);
    let mut daemon = host.run_logged();
    until("the previous version is served", || is_served(&daemon, "one"));
    let status = host.status();
    assert_eq!((&status["active"], &status["damaged"]), (&json!(two), &json!(two)), "{status}");
    assert_eq!(status["damagedVersions"], json!([two]));
    assert_eq!(status["daemon"]["served"], json!(one));
    let text = run_to_end(&mut host.command(&["status"])).expect(0).stdout;
    assert!(text.contains("damaged") && text.contains("import its bundle again"), "{text}");
    assert!(host.log().contains("is damaged") && host.log().contains(" is repaired"), "{}", host.log());
    let history = run_to_end(&mut host.command(&["history"])).expect(0).stdout;
    assert!(history.contains("damaged") && history.contains("fell back"), "{history}");
    // After a restart the damaged version is not served either.
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
    let daemon = host.run_logged();
    assert!(is_served(&daemon, "one"), "{}", host.log());
    // An import of the bundle repairs it.
    import_bundle(&host, "two");
    until("the repaired version is served", || is_served(&daemon, "two"));
    assert_eq!(host.status()["damaged"], Value::Null);
    run_to_end(&mut host.command(&["store", "verify"])).expect(0);
    assert!(
        count_events(&host, "damaged") == 1 && count_events(&host, "fell back") == 2,
        "one report of damage, and a second fallback at the restart"
    );
}

#[test]
fn a_damaged_version_is_repaired_automatically_from_its_source() {
    let host = host_with_two_versions();
    std::fs::copy(host.path("two"), host.path("bundle.zip")).unwrap();
    host.configure(&config_with_bundle(""));
    run_to_end(&mut host.command(&["sync"])).expect(0);
    let two = id(&host.status()["active"]);
    let image = version_file(&host, &two, "site.zip");
    let intact = std::fs::read(&image).unwrap();
    flip_bit(&image, OFFSET_IN_PAGE);
    set_arrival_age(&host, &two, 8);
    let daemon = host.run_logged();
    until("the damage is found and repaired", || {
        host.log().contains("is damaged") && host.status()["damaged"] == Value::Null
    });
    until("the version is served again", || host.status()["daemon"]["served"] == json!(two));
    assert!(is_served(&daemon, "two"));
    assert_eq!(std::fs::read(&image).unwrap(), intact);
}

#[test]
fn assets_of_a_damaged_replaced_version_are_not_served() {
    let host = host_with_two_versions();
    let page = deflated("index.html", "version three");
    std::fs::write(host.path("three"), zip(&[page, deflated("assets/a.0ab12cd3.js", "run();")])).unwrap();
    import_bundle(&host, "three");
    std::fs::write(host.path("four"), bundle("four")).unwrap();
    import_bundle(&host, "four");
    let three = id(&host.status()["previous"]);
    let asset = |daemon: &Daemon| http::get(&daemon.address, "/assets/a.0ab12cd3.js").status;
    let mut daemon = host.run_logged();
    until("the previous version is opened, too", || asset(&daemon) == 200);
    daemon.signal("TERM");
    daemon.wait(Duration::from_secs(20));
    // Another file of the version is damaged, so the whole version counts as damaged.
    flip_bit(&version_file(&host, &three, "site.zip"), OFFSET_IN_PAGE);
    set_arrival_age(&host, &three, 8);
    let daemon = host.run_logged();
    until("the damage is found", || host.status()["damaged"] == json!(three));
    until("its asset is not served any more", || asset(&daemon) == 404);
    assert!(is_served(&daemon, "four"));
}

#[test]
fn assets_of_the_active_version_are_not_served_after_it_is_found_damaged() {
    let host = host_with_two_versions();
    let page = deflated("index.html", "version three");
    std::fs::write(host.path("three"), zip(&[page, deflated("assets/a.0ab12cd3.js", "run();")])).unwrap();
    import_bundle(&host, "three");
    let three = id(&host.status()["active"]);
    let daemon = host.run_logged();
    let asset = || http::get(&daemon.address, "/assets/a.0ab12cd3.js").status;
    assert_eq!(asset(), 200);
    let image = version_file(&host, &three, "site.zip");
    let name = b"index.html";
    let at = std::fs::read(&image).unwrap().windows(name.len()).position(|window| window == name).unwrap();
    flip_bit(&image, (at + name.len() + 5) as u64);
    let _ = http::get(&daemon.address, "/");
    // The event is recorded last, when the damaged version is no longer used.
    until("the previous version is served", || count_events(&host, "fell back") == 1);
    assert!(is_served(&daemon, "two"));
    assert_eq!(asset(), 404, "a damaged version is not retained like a replaced one");
}

#[test]
fn a_version_is_scrubbed_after_a_week_and_not_earlier() {
    let host = host_with_two_versions();
    let (one, two) = (id(&host.status()["previous"]), id(&host.status()["active"]));
    let day = |status: &Value| status["activeVerified"].as_str().map(|time| time[..10].to_owned());
    set_arrival_age(&host, &two, 6);
    let six_days_ago = day(&host.status());
    // The other version is due and damaged, so its verification is visible. By then the active one would be verified,
    // too.
    flip_bit(&version_file(&host, &one, "site.zip"), OFFSET_IN_PAGE);
    set_arrival_age(&host, &one, 8);
    let mut daemon = host.run_logged();
    until("the damage of the older version is found", || host.status()["damaged"] == json!(one));
    assert_eq!(day(&host.status()), six_days_ago, "not due yet");
    assert!(is_served(&daemon, "two"), "damage of another version does not change the served one");
    let refused = run_to_end(&mut host.command(&["rollback"]));
    assert!(refused.code == Some(8) && refused.stderr.contains("damaged"), "{refused:?}");
    daemon.signal("TERM");
    daemon.wait(Duration::from_secs(20));
    set_arrival_age(&host, &two, 7);
    let _daemon = host.run_logged();
    until("the active version is verified", || day(&host.status()) > six_days_ago);
}

#[test]
fn a_damaged_index_is_rebuilt_with_a_warning() {
    let host = host_with_two_versions();
    let two = id(&host.status()["active"]);
    let index = version_file(&host, &two, "index");
    let intact = std::fs::read(&index).unwrap();
    kill_running(&host, host.run_logged());
    // A start does not read the index of a version that is not served.
    let one = id(&host.status()["previous"]);
    flip_bit(&version_file(&host, &one, "index"), 80);
    let daemon = host.run_logged();
    until("it is made again", || host.log().contains("it is rebuilt"));
    until("the store is undamaged", || {
        run_to_end(&mut host.command(&["store", "verify", "--json"])).json()["versions"]
            .as_array()
            .is_some_and(|versions| versions.iter().all(|version| version["verdict"] == "ok"))
    });
    assert_eq!(host.status()["damaged"], Value::Null);
    assert_eq!(std::fs::read(&index).unwrap(), intact);
    assert!(is_served(&daemon, "two"));
}

/// The offset of the records in an index, the length of a record, and the offsets in it of the file's date and of the
/// CRC-32 of its compressed bytes.
const RECORDS_OFFSET: usize = 72;
const RECORD_LEN: usize = 88;
const DATE_OFFSET: usize = 44;
const CODED_CRC_OFFSET: usize = 84;

/// Replaces an index, with the file mode of a sealed one.
fn put_index(path: &Path, bytes: &[u8]) {
    std::fs::remove_file(path).unwrap();
    std::fs::write(path, bytes).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o444)).unwrap();
}

/// Sets the digest at the end to the right value.
fn with_digest(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len() - 36;
    let digest = docwharf::model::digest::Digest::compute(&bytes[..end]);
    bytes[end..end + 32].copy_from_slice(&digest.0);
    bytes
}

/// Sets the checksum at the end to the right value.
fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len() - 4;
    let checksum = crc32fast::hash(&bytes[..end]).to_le_bytes();
    bytes[end..].copy_from_slice(&checksum);
    bytes
}

/// Converts an index to format 1 of docwharf 0.1, which has no table, no pairs of page and Markdown, and no checksum.
fn to_format_one(bytes: &[u8]) -> Vec<u8> {
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (files, slots, pairs) = (number(12), number(64), number(68));
    let records = RECORDS_OFFSET + files * RECORD_LEN;
    let mut format_one = bytes[..64].to_vec();
    format_one[8] = 1;
    format_one.extend_from_slice(&bytes[RECORDS_OFFSET..records]);
    format_one.extend_from_slice(&bytes[records + slots * 4 + pairs * 8..bytes.len() - 36]);
    let digest = docwharf::model::digest::Digest::compute(&format_one);
    format_one.extend_from_slice(&digest.0);
    format_one
}

#[test]
fn an_index_of_format_1_is_converted_and_keeps_its_dates() {
    let host = host_with_two_versions();
    let index = version_file(&host, &id(&host.status()["active"]), "index");
    let mut expected = std::fs::read(&index).unwrap();
    // Only the index has this date: an index made from the image would have the date of the seal.
    expected[RECORDS_OFFSET + DATE_OFFSET..RECORDS_OFFSET + DATE_OFFSET + 8]
        .copy_from_slice(&1_000_000_000u64.to_le_bytes());
    let expected = with_checksum(with_digest(expected));
    let format_one = to_format_one(&expected);
    put_index(&index, &format_one);
    // A command that only reads accepts the format, and does not convert the file.
    let verified = run_to_end(&mut host.command(&["store", "verify", "--json"])).expect(0).json();
    assert!(verified["versions"].as_array().unwrap().iter().all(|version| version["verdict"] == "ok"), "{verified}");
    assert_eq!(std::fs::read(&index).unwrap(), format_one);
    let daemon = host.run_logged();
    let page = http::get(&daemon.address, "/");
    assert_eq!(
        (page.text().as_str(), page.header("last-modified")),
        ("version two", Some("Sun, 09 Sep 2001 01:46:40 GMT"))
    );
    assert_eq!(std::fs::read(&index).unwrap(), expected);
    assert_eq!(std::fs::metadata(&index).unwrap().permissions().mode() & 0o777, 0o440);
    assert!(!host.log().contains("is rebuilt"), "{}", host.log());
}

/// The index with the files of its first two records exchanged, and a valid checksum.
fn exchange_records(intact: &[u8]) -> Vec<u8> {
    let mut changed = intact.to_vec();
    let (first, second) = changed[RECORDS_OFFSET..].split_at_mut(RECORD_LEN);
    // Exchanges all but the location of the path.
    first[6..].swap_with_slice(&mut second[6..RECORD_LEN]);
    with_checksum(changed)
}

#[test]
fn a_wrong_index_with_a_valid_checksum_is_detected_when_served_and_rebuilt() {
    let host = host_with_two_versions();
    let index = version_file(&host, &id(&host.status()["active"]), "index");
    let intact = std::fs::read(&index).unwrap();
    put_index(&index, &exchange_records(&intact));
    let daemon = host.run_logged();
    until("the right page is served", || is_served(&daemon, "two"));
    assert!(host.log().contains("the index is rebuilt"), "{}", host.log());
    assert_eq!(std::fs::read(&index).unwrap(), intact);
    assert_eq!(host.status()["damaged"], Value::Null);
}

#[test]
fn with_a_wrong_index_and_a_damaged_image_the_previous_version_is_served() {
    let host = host_with_two_versions();
    let two = id(&host.status()["active"]);
    let index = version_file(&host, &two, "index");
    put_index(&index, &exchange_records(&std::fs::read(&index).unwrap()));
    flip_bit(&version_file(&host, &two, "site.zip"), OFFSET_IN_PAGE);
    let daemon = host.run_logged();
    until("the previous version is served", || is_served(&daemon, "one"));
    assert_eq!(host.status()["damagedVersions"], json!([two]));
    assert!(host.log().contains(" is repaired"), "{}", host.log());
}

#[test]
fn the_active_version_is_reopened_after_a_scrub_rebuilds_its_index() {
    let host = host_with_two_versions();
    let two = id(&host.status()["active"]);
    let index = version_file(&host, &two, "index");
    let intact = std::fs::read(&index).unwrap();
    let tag = |daemon: &Daemon| {
        let page = http::request(&daemon.address, "GET", "/long.html", &["Accept-Encoding: gzip"]);
        page.header("etag").unwrap().to_owned()
    };
    let expected_tag = tag(&host.run_logged());
    // The CRC of compressed bytes is neither in the digests of the content nor in the version id.
    let mut changed = intact.clone();
    changed[RECORDS_OFFSET + RECORD_LEN + CODED_CRC_OFFSET] ^= 1;
    put_index(&index, &with_checksum(with_digest(changed)));
    set_arrival_age(&host, &two, 8);
    let daemon = host.run_logged();
    until("the version is opened with a new index", || tag(&daemon) == expected_tag);
    assert!(host.log().contains("it is rebuilt"), "{}", host.log());
    assert_eq!(std::fs::read(&index).unwrap(), intact);
}

// Regression: a damaged version that was due for verification was read again without a pause, and reported each time.
// Regression: a damaged version that was repaired while it was served counted as damaged until a restart.
#[test]
fn the_only_version_is_served_although_damaged_and_the_damage_is_reported() {
    let host = Host::configured(&config_with_bundle("enabled = false"));
    std::fs::write(host.path("one"), bundle("one")).unwrap();
    import_bundle(&host, "one");
    let one = id(&host.status()["active"]);
    let len = std::fs::metadata(version_file(&host, &one, "site.zip")).unwrap().len();
    flip_bit(&version_file(&host, &one, "site.zip"), len / 2);
    set_arrival_age(&host, &one, 8);
    let daemon = host.run_logged();
    until("the damage is found", || host.status()["damaged"] == json!(one));
    until("the damage is reported", || host.log().contains("no other version can be served"));
    assert!(is_served(&daemon, "one"));
    let checked = run_to_end(&mut host.command(&["doctor", "--offline"]));
    assert!(checked.stdout.contains("is damaged in the store"), "{}", checked.stdout);
    // After the repair, the repaired version is served.
    import_bundle(&host, "one");
    let expected = "a line of one\n".repeat(20_000);
    until("the repaired version is served", || http::get(&daemon.address, "/long").text() == expected);
    assert_eq!(host.status()["damaged"], Value::Null);
    assert_eq!(
        (count_events(&host, "damaged"), count_events(&host, "mended")),
        (1, 1),
        "each event is recorded once, however long the damage lasts"
    );
}

// Regression: a damaged version was served on when the disk accepted no more writes, and damaged pages stayed in memory
// under the digest of the valid ones.
#[test]
fn a_page_with_a_wrong_checksum_causes_an_immediate_scrub_of_its_version() {
    let host = host_with_two_versions();
    let two = id(&host.status()["active"]);
    let daemon = host.run_logged();
    until("scrub.json says that the daemon runs", || host.path("store/scrub.json").exists());
    // A failing disk accepts no more writes either.
    std::fs::remove_file(host.path("store/suspect")).unwrap();
    std::fs::create_dir(host.path("store/suspect")).unwrap();
    flip_bit(&version_file(&host, &two, "site.zip"), OFFSET_IN_PAGE);
    let _ = http::get(&daemon.address, "/");
    until("the previous version is served", || is_served(&daemon, "one"));
    assert!(host.log().contains("cannot"), "{}", host.log());
    // An import does not bring the damaged version back either.
    import_bundle(&host, "one");
    assert!(is_served(&daemon, "one"), "{}", host.log());
    assert_eq!(count_events(&host, "damaged"), 1);
}

// Regression: a page whose last byte filled the decoder's window was sent without a check of its checksum.
#[test]
fn a_page_checksum_is_verified_for_every_alignment_with_the_decoder_window() {
    // The decoder inflates 64 KiB at first and then 32 KiB at a time. The noise is in stored blocks, so that a changed
    // bit changes one byte only, and the last bytes may be decoded before the end of the last block is read.
    for len in [96 << 10, (96 << 10) + 1, 128 << 10, (128 << 10) - 1] {
        let host = host_with_two_versions();
        let mut state = 1u32;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let content: Vec<u8> = (0..len).map(|_| noise()).collect();
        let page = Member { name: "page.html".into(), content: content.clone(), deflate: true };
        std::fs::write(host.path("three"), zip(&[deflated("index.html", "version three"), page])).unwrap();
        import_bundle(&host, "three");
        let image = version_file(&host, &id(&host.status()["active"]), "site.zip");
        let daemon = host.run_logged();
        assert!(http::get(&daemon.address, "/page").body == content, "{len}");
        let sealed = std::fs::read(&image).unwrap();
        let piece = &content[len / 2..len / 2 + 64];
        flip_bit(
            &image,
            sealed.windows(64).position(|window| window == piece).expect("the noise in stored blocks") as u64,
        );
        // A new process has no inflated files in memory.
        drop(daemon);
        let daemon = host.run_logged();
        let _ = http::get(&daemon.address, "/page");
        until("the previous version is served", || is_served(&daemon, "two"));
        assert_eq!(count_events(&host, "damaged"), 1, "{len}");
    }
}

// Regression: the file system's date of an image, even in the future, counted as the time of its verification.
#[test]
fn the_modification_time_of_an_image_does_not_count_as_a_verification() {
    let host = host_with_two_versions();
    let two = id(&host.status()["active"]);
    let before = host.status()["activeVerified"].clone();
    let image = std::fs::File::open(version_file(&host, &two, "site.zip")).unwrap();
    image.set_modified(SystemTime::now() + Duration::from_hours(1000)).unwrap();
    assert_eq!(host.status()["activeVerified"], before);
}

#[test]
fn config_check_refuses_a_scrub_interval_below_10_minutes() {
    let host = host_with_two_versions();
    let text = std::fs::read_to_string(host.path("docwharf.toml")).unwrap();
    std::fs::write(host.path("docwharf.toml"), text.replace("[server]", "scrub = \"20s\"\n[server]")).unwrap();
    let ended = run_to_end(&mut host.command(&["config", "check"])).expect(2);
    assert!(ended.stderr.contains("store.scrub") && ended.stderr.contains("at least 10m"), "{}", ended.stderr);
}

#[test]
fn scrub_0s_turns_scrubbing_off() {
    let host = host_with_two_versions();
    let text = std::fs::read_to_string(host.path("docwharf.toml")).unwrap();
    std::fs::write(host.path("docwharf.toml"), text.replace("[server]", "scrub = \"0s\"\n[server]")).unwrap();
    let two = id(&host.status()["active"]);
    set_arrival_age(&host, &two, 30);
    let mut daemon = host.run_logged();
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
    assert!(!host.path("store/scrub.json").exists());
}

/// POSIX: access beyond the end of a mapped file raises SIGBUS.
#[test]
fn run_exits_with_8_for_a_truncated_image_and_then_serves_the_previous_version() {
    let host = host_with_two_versions();
    let two = id(&host.status()["active"]);
    let image = version_file(&host, &two, "site.zip");
    let mut daemon = host.run_logged();
    assert!(is_served(&daemon, "two"));
    std::fs::set_permissions(&image, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::File::options().write(true).open(&image).unwrap().set_len(0).unwrap();
    // The result of this request does not matter.
    let mut reader = http::connect(&daemon.address);
    let _ = reader.write_all(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(8), "{}", host.log());
    assert!(host.log().contains("the disk lost part of its file"), "{}", host.log());
    assert_eq!(host.status()["damaged"], json!(two));
    let daemon = host.run_logged();
    assert!(is_served(&daemon, "one"), "{}", host.log());
    until("the status has the served version", || host.status()["daemon"]["served"] == host.status()["previous"]);
}

#[test]
fn a_flipped_bit_in_the_record_is_detected_and_the_record_rebuilt() {
    let host = host_with_two_versions();
    run_to_end(&mut host.command(&["import", host.path("one").to_str().unwrap(), "--label", "stable"])).expect(0);
    let path = host.path("store/state.json");
    let intact = std::fs::read(&path).unwrap();
    let list_versions = |host: &Host| run_to_end(&mut host.command(&["versions", "--json"]));
    let before = list_versions(&host).expect(0).stdout;
    // A prime step reaches all kinds of bytes.
    for bit in (0..intact.len() * 8).step_by(61) {
        let mut bytes = intact.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &bytes).unwrap();
        let output = list_versions(&host);
        match output.code {
            Some(8) => assert!(output.stderr.contains("state.json is damaged"), "bit {bit}: {}", output.stderr),
            code => assert_eq!((code, &output.stdout), (Some(0), &before), "bit {bit}"),
        }
    }
    // The record is made again from versions, receipts and history.
    let mut bytes = intact.clone();
    let at = intact.windows(6).position(|six| six == b"stable").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let daemon = host.run_logged();
    assert!(is_served(&daemon, "one"));
    assert!(host.log().contains("checksum"), "{}", host.log());
    assert_eq!(host.status()["activeLabels"], json!(["stable"]));
}

// Regression: a stored file that the disk had truncated was sent in part, and nothing reported it.
#[test]
fn a_truncated_stored_file_is_detected_while_sent_over_http_1_and_2() {
    for is_http2 in [false, true] {
        let host = host_with_two_versions();
        let (one, two) = (id(&host.status()["previous"]), id(&host.status()["active"]));
        let picture: String =
            (0..4_000_000u32).map(|n| char::from(b'a' + (n.wrapping_mul(n) >> 9) as u8 % 26)).collect();
        std::fs::write(host.path("three"), zip(&[deflated("index.html", "version three"), stored("x.png", &picture)]))
            .unwrap();
        import_bundle(&host, "three");
        let three = id(&host.status()["active"]);
        let daemon = host.run_logged();
        assert!(is_served(&daemon, "three"));
        // The last megabytes of the file are lost. A write of them to a socket fails with EFAULT, without a signal.
        let image = version_file(&host, &three, "site.zip");
        std::fs::set_permissions(&image, std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::File::options().write(true).open(&image).unwrap().set_len(1_000_000).unwrap();
        if is_http2 {
            let mut client = Http2Client::open_with_window(&daemon.address, 8 << 20);
            let stream = client.request("GET", "/x.png", &[]);
            client.send(h2::WINDOW_UPDATE, 0, 0, &(8u32 << 20).to_be_bytes()).unwrap();
            assert!(
                !matches!(client.wait_for_stream(stream), StreamOutcome::Response { .. }),
                "the response cannot be complete"
            );
        } else {
            let request = format!("GET /x.png HTTP/1.1\r\nHost: {}\r\n\r\n", daemon.address);
            assert!(http::send_bytes(&daemon.address, request.as_bytes()).len() < picture.len());
        }
        until("the damage is found", || host.status()["damaged"] == json!(three));
        until("the previous version is served", || is_served(&daemon, "two"));
        let log = host.log();
        assert_eq!(log.matches("cannot send a file of version").count(), 1, "{log}");
        assert!(one != two && count_events(&host, "damaged") == 1);
    }
}
