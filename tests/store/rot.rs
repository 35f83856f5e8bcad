//! What a disk loses or changes behind our back is found, told of, and not served for long.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use support::h2::{self, Answer, Client};
use support::host::Host;
use support::zip::{Member, deflated, stored, zip};
use support::{Daemon, end, http, until};

/// A configuration whose source is not looked at by itself; `more` goes into `[staticExport]`.
fn export(more: &str) -> String {
    format!("[staticExport]\nbundleUrl = \"bundle.zip\"\n{more}")
}

/// A host with the versions `one` and `two` in its store, the second active; the source is not looked at.
fn with_two_versions() -> Host {
    let host = Host::configured(&export("enabled = false"));
    for name in ["one", "two"] {
        std::fs::write(host.path(name), bundle(name)).unwrap();
        import(&host, name);
    }
    host
}

fn import(host: &Host, name: &str) {
    end(&mut host.command(&["import", host.path(name).to_str().unwrap()])).expect(0);
}

/// The daemon dies as in a power cut, once it has noted that it runs.
fn cut_off(host: &Host, daemon: Daemon) {
    let book = || std::fs::read_to_string(host.path("store/scrub.json")).unwrap_or_default();
    until("the daemon notes that it runs", || book().contains("running\": \""));
    drop(daemon);
}

/// How often history tells of this.
fn told(host: &Host, what: &str) -> usize {
    let history = std::fs::read_to_string(host.path("store/history.jsonl")).unwrap();
    history.lines().filter(|line| line.contains(&format!("\"what\":\"{what}\""))).count()
}

fn file(host: &Host, id: &str, name: &str) -> PathBuf {
    host.path("store/versions").join(id).join(name)
}

fn bundle(name: &str) -> Vec<u8> {
    let long = format!("a line of {name}\n").repeat(20_000);
    zip(&[deflated("index.html", &format!("version {name}")), deflated("long.html", &long)])
}

/// Changes one bit where it is least expected: the file keeps its length and its times.
fn flip(path: &Path, at: u64) {
    use std::os::unix::fs::FileExt;
    let times = std::fs::metadata(path).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    file.set_modified(times.modified().unwrap()).unwrap();
}

/// As if it had come so long ago, and nobody had read it since.
fn age(host: &Host, id: &str, days: u64) {
    let then = SystemTime::now() - Duration::from_hours(24 * days);
    let then = docwharf::base::clock::show_time(then);
    for receipt in std::fs::read_dir(host.path("store/receipts").join(id)).unwrap() {
        let path = receipt.unwrap().path();
        let mut told: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        told["time"] = json!(then);
        std::fs::write(&path, told.to_string()).unwrap();
    }
}

/// Within the compressed data of the first page.
const IN_A_PAGE: u64 = 45;

fn id(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not an id: {value}")).to_owned()
}

fn is_served(daemon: &Daemon, name: &str) -> bool {
    http::get(&daemon.address, "/").text() == format!("version {name}")
}

#[test]
fn after_a_power_cut_everything_is_read_again_and_the_version_before_takes_over() {
    let host = with_two_versions();
    let (one, two) = (id(&host.status()["previous"]), id(&host.status()["active"]));
    cut_off(&host, host.run_logged());
    flip(&file(&host, &two, "site.zip"), IN_A_PAGE);
    let mut daemon = host.run_logged();
    until("the version before takes over", || is_served(&daemon, "one"));
    let status = host.status();
    assert_eq!((&status["active"], &status["damaged"]), (&json!(two), &json!(two)), "{status}");
    assert_eq!(status["damagedVersions"], json!([two]));
    assert_eq!(status["daemon"]["served"], json!(one));
    let text = end(&mut host.command(&["status"])).expect(0).stdout;
    assert!(text.contains("damaged") && text.contains("import its bundle again"), "{text}");
    assert!(host.log().contains("is damaged") && host.log().contains("is served until it is mended"), "{}", host.log());
    let history = end(&mut host.command(&["history"])).expect(0).stdout;
    assert!(history.contains("damaged") && history.contains("fell back"), "{history}");
    // A restart does not trust it either.
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(10)), Some(0));
    let daemon = host.run_logged();
    assert!(is_served(&daemon, "one"), "{}", host.log());
    // Its bundle mends it.
    import(&host, "two");
    until("the mended version is served", || is_served(&daemon, "two"));
    assert_eq!(host.status()["damaged"], Value::Null);
    end(&mut host.command(&["store", "verify"])).expect(0);
    assert!(told(&host, "damaged") == 1 && told(&host, "fell back") == 2, "found once, and fallen back at the restart");
}

#[test]
fn what_the_source_still_has_is_brought_again_without_anybody() {
    let host = with_two_versions();
    std::fs::copy(host.path("two"), host.path("bundle.zip")).unwrap();
    host.configure(&export(""));
    end(&mut host.command(&["sync"])).expect(0);
    let two = id(&host.status()["active"]);
    let image = file(&host, &two, "site.zip");
    let good = std::fs::read(&image).unwrap();
    flip(&image, IN_A_PAGE);
    age(&host, &two, 8);
    let daemon = host.run_logged();
    until("it is found and mended", || host.log().contains("is damaged") && host.status()["damaged"] == Value::Null);
    until("it is served again", || host.status()["daemon"]["served"] == json!(two));
    assert!(is_served(&daemon, "two"));
    assert_eq!(std::fs::read(&image).unwrap(), good);
}

#[test]
fn the_assets_of_a_replaced_version_that_has_rotted_are_not_answered_for_any_more() {
    let host = with_two_versions();
    let page = deflated("index.html", "version three");
    std::fs::write(host.path("three"), zip(&[page, deflated("assets/a.0ab12cd3.js", "run();")])).unwrap();
    import(&host, "three");
    std::fs::write(host.path("four"), bundle("four")).unwrap();
    import(&host, "four");
    let three = id(&host.status()["previous"]);
    let asset = |daemon: &Daemon| http::get(&daemon.address, "/assets/a.0ab12cd3.js").status;
    let mut daemon = host.run_logged();
    until("the version before is opened, too", || asset(&daemon) == 200);
    daemon.signal("TERM");
    daemon.wait(Duration::from_secs(10));
    // Another file of it has rotted: nobody knows what else has.
    flip(&file(&host, &three, "site.zip"), IN_A_PAGE);
    age(&host, &three, 8);
    let daemon = host.run_logged();
    until("it is found", || host.status()["damaged"] == json!(three));
    until("its asset is gone", || asset(&daemon) == 404);
    assert!(is_served(&daemon, "four"));
}

#[test]
fn the_assets_of_the_version_that_was_served_are_not_answered_for_once_it_has_rotted() {
    let host = with_two_versions();
    let page = deflated("index.html", "version three");
    std::fs::write(host.path("three"), zip(&[page, deflated("assets/a.0ab12cd3.js", "run();")])).unwrap();
    import(&host, "three");
    let three = id(&host.status()["active"]);
    let daemon = host.run_logged();
    let asset = || http::get(&daemon.address, "/assets/a.0ab12cd3.js").status;
    assert_eq!(asset(), 200);
    let image = file(&host, &three, "site.zip");
    let name = b"index.html";
    let at = std::fs::read(&image).unwrap().windows(name.len()).position(|window| window == name).unwrap();
    flip(&image, (at + name.len() + 5) as u64);
    let _ = http::get(&daemon.address, "/");
    // It is told last, when nothing of the damaged version is left.
    until("the version before has taken over", || told(&host, "fell back") == 1);
    assert!(is_served(&daemon, "two"));
    assert_eq!(asset(), 404, "it is not retained like a version that was replaced");
}

#[test]
fn a_version_has_its_turn_after_a_week_and_not_before() {
    let host = with_two_versions();
    let (one, two) = (id(&host.status()["previous"]), id(&host.status()["active"]));
    let day = |status: &Value| status["activeVerified"].as_str().map(|time| time[..10].to_owned());
    age(&host, &two, 6);
    let six_days_ago = day(&host.status());
    // The other one is due and damaged, so its turn is seen to end; by then the active one would have had its own.
    flip(&file(&host, &one, "site.zip"), IN_A_PAGE);
    age(&host, &one, 8);
    let mut daemon = host.run_logged();
    until("the older one is found", || host.status()["damaged"] == json!(one));
    assert_eq!(day(&host.status()), six_days_ago, "not due yet");
    assert!(is_served(&daemon, "two"), "nobody is sent anywhere for a version that is not served");
    let refused = end(&mut host.command(&["rollback"]));
    assert!(refused.code == Some(8) && refused.stderr.contains("damaged"), "{refused:?}");
    daemon.signal("TERM");
    daemon.wait(Duration::from_secs(10));
    age(&host, &two, 7);
    let _daemon = host.run_logged();
    until("its turn has come", || day(&host.status()) > six_days_ago);
}

#[test]
fn a_damaged_index_costs_nothing_but_a_warning() {
    let host = with_two_versions();
    let two = id(&host.status()["active"]);
    let index = file(&host, &two, "index");
    let good = std::fs::read(&index).unwrap();
    cut_off(&host, host.run_logged());
    // Not looked at by a start: of a version that is not served.
    let one = id(&host.status()["previous"]);
    flip(&file(&host, &one, "index"), 80);
    let daemon = host.run_logged();
    until("it is made again", || host.log().contains("it is made again"));
    until("it is whole", || {
        end(&mut host.command(&["store", "verify", "--json"])).json()["versions"]
            .as_array()
            .is_some_and(|versions| versions.iter().all(|version| version["verdict"] == "ok"))
    });
    assert_eq!(host.status()["damaged"], Value::Null);
    assert_eq!(std::fs::read(&index).unwrap(), good);
    assert!(is_served(&daemon, "two"));
}

/// Where the records of an index begin, how long each is, and where in it there are the file's date and the CRC-32 of its
/// coded bytes.
const RECORDS: usize = 72;
const RECORD: usize = 88;
const DATE: usize = 44;
const CODED_CRC: usize = 84;

/// Puts bytes in the place of an index, as it was sealed.
fn put_index(path: &Path, bytes: &[u8]) {
    std::fs::remove_file(path).unwrap();
    std::fs::write(path, bytes).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o444)).unwrap();
}

/// Makes the digest at the end right.
fn digested(mut bytes: Vec<u8>) -> Vec<u8> {
    let at = bytes.len() - 36;
    let digest = docwharf::model::digest::Digest::of(&bytes[..at]);
    bytes[at..at + 32].copy_from_slice(&digest.0);
    bytes
}

/// Makes the checksum at the end right.
fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
    let at = bytes.len() - 4;
    let sum = crc32fast::hash(&bytes[..at]).to_le_bytes();
    bytes[at..].copy_from_slice(&sum);
    bytes
}

/// The index of two files as docwharf 0.1 wrote it at first: without a table, pages with Markdown, and a checksum.
fn of_format_one(bytes: &[u8]) -> Vec<u8> {
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (files, slots, pairs) = (number(12), number(64), number(68));
    let records = RECORDS + files * RECORD;
    let mut old = bytes[..64].to_vec();
    old[8] = 1;
    old.extend_from_slice(&bytes[RECORDS..records]);
    old.extend_from_slice(&bytes[records + slots * 4 + pairs * 8..bytes.len() - 36]);
    let digest = docwharf::model::digest::Digest::of(&old);
    old.extend_from_slice(&digest.0);
    old
}

#[test]
fn an_index_of_the_format_before_is_taken_over_with_its_dates() {
    let host = with_two_versions();
    let index = file(&host, &id(&host.status()["active"]), "index");
    let mut wanted = std::fs::read(&index).unwrap();
    // Nothing but the index knows this date: proving the image would give that of the sealing.
    wanted[RECORDS + DATE..RECORDS + DATE + 8].copy_from_slice(&1_000_000_000u64.to_le_bytes());
    let wanted = summed(digested(wanted));
    let old = of_format_one(&wanted);
    put_index(&index, &old);
    // Whoever only reads understands it, and leaves it as it is.
    let verified = end(&mut host.command(&["store", "verify", "--json"])).expect(0).json();
    assert!(verified["versions"].as_array().unwrap().iter().all(|version| version["verdict"] == "ok"), "{verified}");
    assert_eq!(std::fs::read(&index).unwrap(), old);
    let daemon = host.run_logged();
    let page = http::get(&daemon.address, "/");
    assert_eq!(
        (page.text().as_str(), page.header("last-modified")),
        ("version two", Some("Sun, 09 Sep 2001 01:46:40 GMT"))
    );
    assert_eq!(std::fs::read(&index).unwrap(), wanted);
    assert_eq!(std::fs::metadata(&index).unwrap().permissions().mode() & 0o777, 0o440);
    assert!(!host.log().contains("made again"), "{}", host.log());
}

/// The index with the files of its first two records exchanged, under a checksum that is right.
fn exchanged(good: &[u8]) -> Vec<u8> {
    let mut wrong = good.to_vec();
    let (first, second) = wrong[RECORDS..].split_at_mut(RECORD);
    // All but where the path is.
    first[6..].swap_with_slice(&mut second[6..RECORD]);
    summed(wrong)
}

#[test]
fn an_index_that_is_wrong_behind_its_checksum_is_found_out_once_it_is_served_and_made_again() {
    let host = with_two_versions();
    let index = file(&host, &id(&host.status()["active"]), "index");
    let good = std::fs::read(&index).unwrap();
    put_index(&index, &exchanged(&good));
    let daemon = host.run_logged();
    until("the right page is served", || is_served(&daemon, "two"));
    assert!(host.log().contains("it is made again"), "{}", host.log());
    assert_eq!(std::fs::read(&index).unwrap(), good);
    assert_eq!(host.status()["damaged"], Value::Null);
}

#[test]
fn an_index_that_is_wrong_behind_its_checksum_beside_a_damaged_image_gives_way_to_the_version_before() {
    let host = with_two_versions();
    let two = id(&host.status()["active"]);
    let index = file(&host, &two, "index");
    put_index(&index, &exchanged(&std::fs::read(&index).unwrap()));
    flip(&file(&host, &two, "site.zip"), IN_A_PAGE);
    let daemon = host.run_logged();
    until("the version before takes over", || is_served(&daemon, "one"));
    assert_eq!(host.status()["damagedVersions"], json!([two]));
    assert!(host.log().contains("is served until it is mended"), "{}", host.log());
}

#[test]
fn what_is_served_is_opened_anew_when_its_index_was_found_wrong_by_reading_the_image() {
    let host = with_two_versions();
    let two = id(&host.status()["active"]);
    let index = file(&host, &two, "index");
    let good = std::fs::read(&index).unwrap();
    let tag = |daemon: &Daemon| {
        let page = http::request(&daemon.address, "GET", "/long.html", &["Accept-Encoding: gzip"]);
        page.header("etag").unwrap().to_owned()
    };
    let right = tag(&host.run_logged());
    // The digests of the content do not tell of this, and so does not the version id.
    let mut wrong = good.clone();
    wrong[RECORDS + RECORD + CODED_CRC] ^= 1;
    put_index(&index, &summed(digested(wrong)));
    age(&host, &two, 8);
    let daemon = host.run_logged();
    until("it is opened anew", || tag(&daemon) == right);
    assert!(host.log().contains("it is made again"), "{}", host.log());
    assert_eq!(std::fs::read(&index).unwrap(), good);
}

#[test]
fn with_nothing_else_to_serve_the_site_stays_up_and_everybody_is_told() {
    let host = Host::configured(&export("enabled = false"));
    std::fs::write(host.path("one"), bundle("one")).unwrap();
    import(&host, "one");
    let one = id(&host.status()["active"]);
    let long = std::fs::metadata(file(&host, &one, "site.zip")).unwrap().len();
    flip(&file(&host, &one, "site.zip"), long / 2);
    age(&host, &one, 8);
    let daemon = host.run_logged();
    until("it is found", || host.status()["damaged"] == json!(one));
    until("it is told", || host.log().contains("there is no other to serve"));
    assert!(is_served(&daemon, "one"));
    let checked = end(&mut host.command(&["doctor", "--offline"]));
    assert!(checked.stdout.contains("was damaged in the store"), "{}", checked.stdout);
    // Once it is mended, what is served is the mended one.
    import(&host, "one");
    let whole = "a line of one\n".repeat(20_000);
    until("the mended version is served", || http::get(&daemon.address, "/long").text() == whole);
    assert_eq!(host.status()["damaged"], Value::Null);
    assert_eq!((told(&host, "damaged"), told(&host, "mended")), (1, 1), "each is told once, however long it lasts");
}

#[test]
fn a_page_that_does_not_match_its_checksum_has_its_version_read_at_once() {
    let host = with_two_versions();
    let two = id(&host.status()["active"]);
    let daemon = host.run_logged();
    until("the daemon notes that it runs", || host.path("store/scrub.json").exists());
    // A disk that fails takes no more writes either.
    std::fs::remove_file(host.path("store/suspect")).unwrap();
    std::fs::create_dir(host.path("store/suspect")).unwrap();
    flip(&file(&host, &two, "site.zip"), IN_A_PAGE);
    let _ = http::get(&daemon.address, "/");
    until("the version before takes over", || is_served(&daemon, "one"));
    assert!(host.log().contains("cannot"), "{}", host.log());
    // Nor does a look at the source take it up again.
    import(&host, "one");
    assert!(is_served(&daemon, "one"), "{}", host.log());
    assert_eq!(told(&host, "damaged"), 1);
}

#[test]
fn a_page_is_compared_with_its_checksum_however_its_end_falls_into_what_a_decoder_holds() {
    // 64 KiB are decoded at first and 32 KiB at a time then. The noise is not compressed, so that a changed bit is a
    // changed byte and nothing else, and its last bytes may be there before its last block is seen.
    for len in [96 << 10, (96 << 10) + 1, 128 << 10, (128 << 10) - 1] {
        let host = with_two_versions();
        let mut state = 1u32;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let content: Vec<u8> = (0..len).map(|_| noise()).collect();
        let page = Member { name: "page.html".into(), content: content.clone(), deflate: true };
        std::fs::write(host.path("three"), zip(&[deflated("index.html", "version three"), page])).unwrap();
        import(&host, "three");
        let image = file(&host, &id(&host.status()["active"]), "site.zip");
        let daemon = host.run_logged();
        assert!(http::get(&daemon.address, "/page").body == content, "{len}");
        let sealed = std::fs::read(&image).unwrap();
        let piece = &content[len / 2..len / 2 + 64];
        flip(&image, sealed.windows(64).position(|window| window == piece).expect("the noise as it is") as u64);
        // Once more, whatever was kept in memory.
        drop(daemon);
        let daemon = host.run_logged();
        let _ = http::get(&daemon.address, "/page");
        until("the version before takes over", || is_served(&daemon, "two"));
        assert_eq!(told(&host, "damaged"), 1, "{len}");
    }
}

#[test]
fn what_the_file_system_says_of_an_image_is_no_proof() {
    let host = with_two_versions();
    let two = id(&host.status()["active"]);
    let before = host.status()["activeVerified"].clone();
    let image = std::fs::File::open(file(&host, &two, "site.zip")).unwrap();
    image.set_modified(SystemTime::now() + Duration::from_hours(1000)).unwrap();
    assert_eq!(host.status()["activeVerified"], before);
}

#[test]
fn a_disk_is_not_read_all_the_time() {
    let host = with_two_versions();
    let text = std::fs::read_to_string(host.path("docwharf.toml")).unwrap();
    std::fs::write(host.path("docwharf.toml"), text.replace("[server]", "scrub = \"20s\"\n[server]")).unwrap();
    let ended = end(&mut host.command(&["config", "check"])).expect(2);
    assert!(ended.stderr.contains("store.scrub") && ended.stderr.contains("at least 10m"), "{}", ended.stderr);
}

#[test]
fn never_means_never() {
    let host = with_two_versions();
    let text = std::fs::read_to_string(host.path("docwharf.toml")).unwrap();
    std::fs::write(host.path("docwharf.toml"), text.replace("[server]", "scrub = \"0s\"\n[server]")).unwrap();
    let two = id(&host.status()["active"]);
    age(&host, &two, 30);
    let mut daemon = host.run_logged();
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(10)), Some(0));
    assert!(!host.path("store/scrub.json").exists());
}

/// POSIX: access beyond the end of a mapped file raises SIGBUS.
#[test]
fn a_file_truncated_under_a_running_server_ends_it_with_8_and_the_next_start_serves_the_version_before() {
    let host = with_two_versions();
    let two = id(&host.status()["active"]);
    let image = file(&host, &two, "site.zip");
    let mut daemon = host.run_logged();
    assert!(is_served(&daemon, "two"));
    std::fs::set_permissions(&image, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::File::options().write(true).open(&image).unwrap().set_len(0).unwrap();
    // Whatever becomes of this request.
    let mut reader = http::connect(&daemon.address);
    let _ = reader.write_all(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(daemon.wait(Duration::from_secs(10)), Some(8), "{}", host.log());
    assert!(host.log().contains("the disk lost part of its file"), "{}", host.log());
    assert_eq!(host.status()["damaged"], json!(two));
    let daemon = host.run_logged();
    assert!(is_served(&daemon, "one"), "{}", host.log());
    until("the agent tells what it serves", || host.status()["daemon"]["served"] == host.status()["previous"]);
}

#[test]
fn no_bit_of_the_record_can_change_what_it_says() {
    let host = with_two_versions();
    end(&mut host.command(&["import", host.path("one").to_str().unwrap(), "--label", "stable"])).expect(0);
    let path = host.path("store/state.json");
    let good = std::fs::read(&path).unwrap();
    let said = |host: &Host| end(&mut host.command(&["versions", "--json"]));
    let before = said(&host).expect(0).stdout;
    // A prime step: it meets every kind of byte.
    for bit in (0..good.len() * 8).step_by(61) {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &bytes).unwrap();
        let now = said(&host);
        match now.code {
            Some(8) => assert!(now.stderr.contains("state.json is damaged"), "bit {bit}: {}", now.stderr),
            code => assert_eq!((code, &now.stdout), (Some(0), &before), "bit {bit}"),
        }
    }
    // And it is made again from what versions, receipts and history tell.
    let mut bytes = good.clone();
    let at = good.windows(6).position(|six| six == b"stable").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let daemon = host.run_logged();
    assert!(is_served(&daemon, "one"));
    assert!(host.log().contains("checksum"), "{}", host.log());
    assert_eq!(host.status()["activeLabels"], json!(["stable"]));
}

#[test]
fn a_file_that_the_disk_has_cut_off_is_noticed_when_it_is_sent_over_http_1_and_2() {
    for is_two in [false, true] {
        let host = with_two_versions();
        let (one, two) = (id(&host.status()["previous"]), id(&host.status()["active"]));
        let picture: String =
            (0..4_000_000u32).map(|n| char::from(b'a' + (n.wrapping_mul(n) >> 9) as u8 % 26)).collect();
        std::fs::write(host.path("three"), zip(&[deflated("index.html", "version three"), stored("x.png", &picture)]))
            .unwrap();
        import(&host, "three");
        let three = id(&host.status()["active"]);
        let daemon = host.run_logged();
        assert!(is_served(&daemon, "three"));
        // Its last megabytes are lost. The kernel says EFAULT to whoever writes them to a socket; no signal comes.
        let image = file(&host, &three, "site.zip");
        std::fs::set_permissions(&image, std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::File::options().write(true).open(&image).unwrap().set_len(1_000_000).unwrap();
        if is_two {
            let mut client = Client::open_with_window(&daemon.address, 8 << 20);
            let stream = client.request("GET", "/x.png", &[]);
            client.send(h2::WINDOW_UPDATE, 0, 0, &(8u32 << 20).to_be_bytes()).unwrap();
            assert!(!matches!(client.answer(stream), Answer::Response { .. }), "it cannot be whole");
        } else {
            let ask = format!("GET /x.png HTTP/1.1\r\nHost: {}\r\n\r\n", daemon.address);
            assert!(http::raw(&daemon.address, ask.as_bytes()).len() < picture.len());
        }
        until("it is found, and the version before takes over", || host.status()["damaged"] == json!(three));
        until("another is served", || is_served(&daemon, "two"));
        let log = host.log();
        assert_eq!(log.matches("cannot send a file of version").count(), 1, "{log}");
        assert!(one != two && told(&host, "damaged") == 1);
    }
}
