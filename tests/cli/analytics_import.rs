//! `analytics import`: what another host has recorded, added to the store of this one.

use std::fs::File;
use std::path::Path;

use docwharf::model::reader_activity::ViewCounts;
use docwharf::reader_analytics::delivery::{DayCount, ExchangeFileWriter, SearchBatch, SearchEvent, ViewBatch};
use docwharf::reader_analytics::recording::AnalyticsStore;
use docwharf::store::ANALYTICS_DATABASE;
use serde_json::{Value, json};
use support::host::{Host, bundle, run_with_timeout, toml_string};
use support::until;

const INSTALLATION: &str = "00112233445566ff";
const TIME: &str = "2026-11-01T10:00:00Z";
/// 2026-11-01, in days since 1970.
const DAY: i64 = 20_758;

/// Writes the exchange file of an installation, with two searches, of which one led to a click, and seven views.
fn write_exchange_file(path: &Path, installation: &str) {
    let mut writer = ExchangeFileWriter::new(File::create(path).unwrap(), installation, TIME).unwrap();
    let event = |query: &str, page: Option<&str>| SearchEvent {
        clicked_page: page.map(str::to_owned),
        ..SearchEvent::new(query, TIME)
    };
    let events = vec![event("Tide", Some("/tide")), event("moat", None)];
    writer.write_searches(&SearchBatch { batch_id: format!("{installation}-1"), events, clicks: vec![] }).unwrap();
    let counts = vec![DayCount::of_views(DAY, "/tide".to_owned(), ViewCounts { human: 4, ai: 1, bot: 2 })];
    let (batch_id, installation) = (format!("{installation}-2"), installation.to_owned());
    writer.write_views(&ViewBatch { batch_id, installation, counts }).unwrap();
    writer.finish().unwrap();
}

/// A host without records, beside which there is an exchange file.
fn host_with_file() -> Host {
    let host = Host::bare();
    write_exchange_file(&host.path("analytics.jsonl"), INSTALLATION);
    host
}

/// Runs `analytics import` of the file on standard input.
fn import_standard_input(host: &Host) -> support::CommandOutput {
    let mut command = host.command(&["analytics", "import", "-"]);
    run_with_timeout(command.stdin(File::open(host.path("analytics.jsonl")).unwrap()))
}

fn import(host: &Host) -> Value {
    let file = host.path("analytics.jsonl");
    host.ok(&["analytics", "import", file.to_str().unwrap(), "--json"]).json()
}

/// Returns the lines of searches and pages after their headers.
fn rows(host: &Host) -> [Vec<String>; 2] {
    [&["searches"][..], &["pages"]].map(|arguments| {
        let from = ["--local", "--from", "2026-10-01", "--format", "csv"];
        let csv = host.ok(&[&["analytics"], arguments, &from].concat()).stdout;
        csv.lines().skip(1).map(str::to_owned).collect()
    })
}

fn imported_rows() -> [Vec<String>; 2] {
    let searches = ["moat,1,0.0,,2026-11-01T10:00:00Z", "tide,1,1.0,/tide,2026-11-01T10:00:00Z"];
    [searches.map(str::to_owned).to_vec(), vec!["/tide,4,1,5,2".to_owned()]]
}

#[test]
fn a_file_of_another_host_counts_once_however_often_it_is_imported() {
    let host = host_with_file();
    let report = |duplicates: u64, searches: u64, clicks: u64, views: u64| {
        json!({
            "schemaVersion": 1, "installation": INSTALLATION, "batches": 2, "duplicateBatches": duplicates,
            "searches": searches, "clicks": clicks, "views": views,
        })
    };
    assert_eq!(import(&host), report(0, 2, 1, 7));
    assert_eq!(rows(&host), imported_rows());
    assert_eq!(import(&host), report(2, 0, 0, 0));
    let again = import_standard_input(&host);
    let nothing = "nothing was added: 2 batches were imported or delivered before\n";
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), nothing), "{}", again.stderr);
    assert_eq!(rows(&host), imported_rows());
}

#[test]
fn standard_input_is_imported_into_a_store_that_does_not_exist_and_leaves_no_other_file() {
    let host = host_with_file();
    let imported = import_standard_input(&host);
    assert_eq!(imported.code, Some(0), "{}", imported.stderr);
    let added = "added 2 searches, 1 click and 7 views from 2 batches\n";
    assert_eq!(imported.stdout, added);
    assert_eq!(rows(&host), imported_rows());
    let names = std::fs::read_dir(host.path("store")).unwrap().map(|entry| entry.unwrap().file_name());
    let other = names.filter(|name| !name.to_str().unwrap().starts_with(ANALYTICS_DATABASE)).count();
    assert_eq!(other, 0);
}

#[test]
fn a_damaged_file_is_refused_whole_and_changes_nothing() {
    let host = host_with_file();
    let path = host.path("analytics.jsonl");
    let content = std::fs::read(&path).unwrap();
    for (name, damaged) in [
        ("a changed byte", content.iter().map(|byte| if *byte == b'T' { b't' } else { *byte }).collect()),
        ("cut in the middle", content[..content.len() / 2].to_vec()),
        ("without its last byte", content[..content.len() - 1].to_vec()),
        ("twice", [&*content, &*content].concat()),
        ("empty", Vec::new()),
    ] {
        std::fs::write(&path, damaged).unwrap();
        let refused = host.expect_exit_one_line(5, &["analytics", "import", path.to_str().unwrap()]);
        assert!(refused.stderr.contains("analytics.jsonl: line "), "{name}: {}", refused.stderr);
        let refused = import_standard_input(&host);
        assert_eq!(refused.code, Some(5), "{name}: {}", refused.stderr);
        assert!(refused.stderr.contains("cannot import standard input: line "), "{name}: {}", refused.stderr);
    }
    assert!(!host.path("store").join(ANALYTICS_DATABASE).exists());
    let failure = host.expect_exit(5, &["analytics", "import", path.to_str().unwrap(), "--json"]).json();
    assert_eq!(failure["error"]["nextStep"], "export the analytics again, or copy the file again");
}

#[test]
fn a_file_that_this_host_has_exported_is_refused() {
    let host = host_with_file();
    import(&host);
    let store = AnalyticsStore::open(&host.path("store").join(ANALYTICS_DATABASE)).unwrap();
    let own = store.installation().unwrap();
    store.close();
    write_exchange_file(&host.path("own.jsonl"), &own);
    let file = host.path("own.jsonl");
    let refused = host.expect_exit_one_line(2, &["analytics", "import", file.to_str().unwrap()]);
    assert!(refused.stderr.contains("it was exported from this host"), "{}", refused.stderr);
    assert_eq!(rows(&host), imported_rows());
}

#[test]
fn forget_removes_what_was_imported() {
    let host = host_with_file();
    import(&host);
    host.ok(&["analytics", "forget", "--query", "tide"]);
    let [searches, pages] = imported_rows();
    assert_eq!(rows(&host), [searches[..1].to_vec(), pages]);
    host.ok(&["analytics", "forget", "--before", "2026-11-02"]);
    assert_eq!(rows(&host), [Vec::<String>::new(), Vec::new()]);
    let database = std::fs::read(host.path("store").join(ANALYTICS_DATABASE)).unwrap();
    assert!(!database.windows(5).any(|window| window == b"/tide"));
}

#[test]
fn a_file_is_imported_beside_the_daemon() {
    let host = host_with_file()
        .set("staticExport.bundleUrl", toml_string("bundle.zip"))
        .set("sync.interval", toml_string("1h"));
    host.put_bundle(&bundle("one"));
    let _daemon = host.run();
    until("the daemon has its database", || host.path("store").join(ANALYTICS_DATABASE).exists());
    assert_eq!(import(&host)["searches"], 2);
    assert_eq!(rows(&host), imported_rows());
}
