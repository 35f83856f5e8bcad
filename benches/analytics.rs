//! The file with what readers do: its size, and the time of the queries on a million searches and a year of views. The
//! peer is the `sqlite3` program, which reads a table with the same searches, and no more, with one statement. Then the
//! time in which a host delivers waiting searches to an origin; there, `sqlite3` only inserts the same rows.
//!
//! `cargo bench --bench analytics` needs `sqlite3`, and about a minute.

#![allow(missing_docs)]
#![allow(clippy::disallowed_methods)] // it starts programs

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use docwharf_analytics::recording::{ActivityWriter, AnalyticsStore, WriterSettings};
use docwharf_base::model::reader_activity::{
    DayActivity, ReaderActivity, SearchActivity, SearchId, SearchSource, ViewCounts,
};
use support::host::{Host, bundle, toml_string};
use support::test_origin::{TestOrigin, json_body};
use support::until_within;

const SEARCHES: u64 = 1_000_000;
/// The searches that are delivered to an origin.
const DELIVERED_SEARCHES: u64 = 100_000;
/// The number of distinct terms, of which a few are frequent.
const TERMS: u64 = 50_000;
/// The searches of one write.
const SEARCHES_PER_WRITE: u64 = 1_000;
const DAY_MS: i64 = 86_400_000;
/// 2025-11-01, the first of the days.
const FIRST_DAY: i64 = 20_393;
const DAYS: i64 = 365;
const PAGES: usize = 1_000;
const ROUNDS: usize = 11;
const SETTINGS: WriterSettings = WriterSettings { mask: true, keep: None, max_bytes: 1 << 40 };

fn main() {
    let folder = support::temporary_folder();
    let path = folder.path().join("analytics.db");
    let started = Instant::now();
    write_searches(&path, SEARCHES);
    let write_seconds = started.elapsed().as_secs_f64();
    let store = AnalyticsStore::open(&path).expect("the file opens");
    let size = store.bytes() as f64 / 1e6;
    println!("{SEARCHES} searches for {TERMS} terms within a year, a quarter of them with a click:\n");
    println!("| what | docwharf | sqlite3 | ratio | goal (aim) |\n|---|---|---|---|---|");
    let peer = folder.path().join("peer.db");
    write_peer(&peer, SEARCHES);
    let peer_size = std::fs::metadata(&peer).expect("a file").len() as f64 / 1e6;
    row("size, MB", size, peer_size, "120 (60)");
    let all = median_ms(|| drop(store.searches(Some("limit=100")).expect("a page")));
    row("a page of all searches, ms", all, peer_ms(&peer, ""), "500 (150)");
    let month = "dateFrom=2026-03-01&dateTo=2026-04-01&limit=100";
    let in_month = median_ms(|| drop(store.searches(Some(month)).expect("a page")));
    // 2026-03-01 and 2026-04-01 in milliseconds since 1970.
    let condition = "WHERE time >= 1772323200000 AND time < 1775001600000";
    row("a page of the searches of a month, ms", in_month, peer_ms(&peer, condition), "100");
    println!("\nwritten at {:.0} searches a second\n", SEARCHES as f64 / write_seconds);
    let views = folder.path().join("views.db");
    write_views(&views);
    let store = AnalyticsStore::open(&views).expect("the file opens");
    let page = median_ms(|| drop(store.views(None).expect("a page")));
    println!("a year of {PAGES} pages, each viewed daily: {:.1} MB (goal 40)", store.bytes() as f64 / 1e6);
    println!("a page of all views: {page:.0} ms\n");
    measure_delivery(folder.path());
}

/// Measures how long a host takes to deliver waiting searches to an origin on loopback, both as real processes.
fn measure_delivery(folder: &Path) {
    let mut origin = TestOrigin::with_folder_project();
    origin.start();
    let host = Host::bare()
        .set("analytics.deliver.baseUrl", toml_string(&format!("http://{}/v1", origin.address())))
        .set("analytics.deliver.projectId", toml_string("docs"))
        .set("analytics.deliver.keyFile", toml_string("origin-key"))
        .set("analytics.deliver.interval", toml_string("1s"));
    host.put("origin-key", &origin.key);
    host.put("bundle.zip", bundle("Delivery"));
    host.ok(&["import", &host.path("bundle.zip").display().to_string()]);
    write_searches(&host.path("store/analytics.db"), DELIVERED_SEARCHES);
    let started = Instant::now();
    let _daemon = host.run();
    until_within(Duration::from_mins(5), "everything is delivered", || {
        let delivery = &host.status()["daemon"]["delivery"];
        delivery["searches"] == DELIVERED_SEARCHES && delivery["waitingSearches"] == 0
    });
    let own = started.elapsed().as_secs_f64();
    let searches = json_body(&origin.get("/v1/analytics/docs/searches"));
    assert_eq!(searches["totalSearches"], DELIVERED_SEARCHES, "each search counts once");
    let started = Instant::now();
    write_peer(&folder.join("delivered.db"), DELIVERED_SEARCHES);
    let peer = started.elapsed().as_secs_f64();
    println!("| what | docwharf | sqlite3 | ratio | goal (aim) |\n|---|---|---|---|---|");
    row("100,000 waiting searches until an origin has them, with the start of the host, s", own, peer, "20 (6)");
}

fn row(what: &str, own: f64, peer: f64, goal: &str) {
    println!("| {what} | {own:.1} | {peer:.1} | {:.2} | {goal} |", own / peer);
}

/// Generates the number of a term: few are frequent, as with real searches.
fn term_number(n: u64) -> u64 {
    let mut state = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    state ^= state >> 29;
    state = state.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state ^= state >> 32;
    // The square of a number below 1 is small more often than large.
    let uniform = (state >> 32) % TERMS;
    uniform * uniform / TERMS
}

fn term(n: u64) -> String {
    format!("how to moor at quay {}", term_number(n))
}

fn time_of(n: u64) -> i64 {
    FIRST_DAY * DAY_MS + n.cast_signed() * (DAYS * DAY_MS / SEARCHES.cast_signed())
}

fn write_searches(path: &Path, count: u64) {
    let store = Arc::new(AnalyticsStore::open(path).expect("the file is created"));
    let mut writer = ActivityWriter::new(Arc::clone(&store), SETTINGS);
    for first in (0..count).step_by(SEARCHES_PER_WRITE as usize) {
        let searches = (first..first + SEARCHES_PER_WRITE).flat_map(|n| {
            let (id, time) = (SearchId(n), time_of(n));
            let search = SearchActivity::Search {
                id: Some(id),
                query: term(n),
                results: Some(n % 7),
                source: SearchSource::Reader,
                time,
            };
            let page = format!("/guides/{}", term_number(n) % 500);
            let click = n.is_multiple_of(4).then_some(SearchActivity::Click { id, page, time });
            [Some(search), click].into_iter().flatten()
        });
        let activity = ReaderActivity { searches: searches.collect(), ..ReaderActivity::default() };
        writer.write(activity, time_of(first + SEARCHES_PER_WRITE)).expect("it is written");
    }
    store.close();
}

fn write_views(path: &Path) {
    let store = Arc::new(AnalyticsStore::open(path).expect("the file is created"));
    let mut writer = ActivityWriter::new(Arc::clone(&store), SETTINGS);
    for day in FIRST_DAY..FIRST_DAY + DAYS {
        let views = (0..PAGES).map(|page| {
            (format!("/guides/chapter-{page}/section"), ViewCounts { human: 1 + page as u64 % 90, ai: 2, bot: 3 })
        });
        let activity = DayActivity { day, views: views.collect(), ..DayActivity::default() };
        let activity = ReaderActivity { days: vec![activity], ..ReaderActivity::default() };
        writer.write(activity, day * DAY_MS).expect("it is written");
    }
    store.close();
}

/// Writes the same searches with `sqlite3`, ordered by time as well.
fn write_peer(path: &Path, count: u64) {
    let mut child = sqlite(path).stdin(Stdio::piped()).spawn().expect("sqlite3 is installed");
    let mut input = std::io::BufWriter::new(child.stdin.take().expect("a pipe"));
    let mut send = |text: &str| input.write_all(text.as_bytes()).expect("sqlite3 reads");
    send("CREATE TABLE s (time INTEGER, place INTEGER, query TEXT, page TEXT, results INTEGER,");
    send(" PRIMARY KEY (time, place)) WITHOUT ROWID; BEGIN;\n");
    for n in 0..count {
        let page = if n.is_multiple_of(4) { format!("'/guides/{}'", term_number(n) % 500) } else { "NULL".to_owned() };
        send(&format!("INSERT INTO s VALUES({},{n},'{}',{page},{});\n", time_of(n), term(n), n % 7));
    }
    send("COMMIT;\n");
    drop(input);
    assert!(child.wait().expect("it ends").success(), "sqlite3 failed");
}

fn sqlite(path: &Path) -> Command {
    let mut command = Command::new("sqlite3");
    command.arg("-batch").arg(path);
    command
}

/// The time of one statement with which `sqlite3` returns the most frequent terms, with its start.
fn peer_ms(path: &Path, condition: &str) -> f64 {
    let sql = format!(
        "SELECT query, count(*) AS hits, avg(page IS NOT NULL), max(time) FROM s {condition} GROUP BY query \
         ORDER BY hits DESC, query LIMIT 100"
    );
    median_ms(|| {
        let output = sqlite(path).arg(&sql).output().expect("sqlite3 is installed");
        assert!(output.status.success() && !output.stdout.is_empty(), "sqlite3 failed");
    })
}

fn median_ms(mut run: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let started = Instant::now();
            run();
            started.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}
