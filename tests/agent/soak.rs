//! Many syncs through a bad world while readers read: no failed request, no mixed version, a store that does not grow, memory
//! that stays flat. `DOCWHARF_SOAK=500` makes it long; `DOCWHARF_SOAK_PLOT=FILE.svg` draws the memory.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use support::Daemon;
use support::host::{Host, finish, front, text};
use support::http::PersistentConnection;
use support::upstream::{Call, Upstream, answer, close, expired, honest, raw, silence, storage_error};
use support::zip::{deflated, stored, zip};

/// What one sync meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weather {
    Fine,
    Start500,
    StartClosed,
    StartSilent,
    Poll503,
    PollNonsense,
    JobGone,
    JobFailed,
    LinkRefused,
    LinkExpired,
    DownloadCut,
    DownloadStalls,
    DownloadClosed,
    NotABundle,
    DamagedBundle,
    ReadersAndRollback,
}

const ALL: [Weather; 16] = [
    Weather::Fine,
    Weather::Start500,
    Weather::StartClosed,
    Weather::StartSilent,
    Weather::Poll503,
    Weather::PollNonsense,
    Weather::JobGone,
    Weather::JobFailed,
    Weather::LinkRefused,
    Weather::LinkExpired,
    Weather::DownloadCut,
    Weather::DownloadStalls,
    Weather::DownloadClosed,
    Weather::NotABundle,
    Weather::DamagedBundle,
    Weather::ReadersAndRollback,
];

/// Makes the upstream behave so, once.
fn set(upstream: &Upstream, weather: Weather, good: &[u8]) {
    upstream.heal();
    upstream.publish(good.to_vec());
    let once = |call| upstream.on(call).times(1);
    match weather {
        Weather::Fine | Weather::ReadersAndRollback => {}
        Weather::Start500 => once(Call::Start).gives(answer(500)),
        Weather::StartClosed => once(Call::Start).gives(close()),
        Weather::StartSilent => once(Call::Start).gives(silence()),
        Weather::Poll503 => once(Call::Poll).gives(answer(503)),
        Weather::PollNonsense => once(Call::Poll).gives(raw("text/html", "<h1>hello</h1>")),
        Weather::JobGone => once(Call::Poll).gives(answer(404)),
        Weather::JobFailed => once(Call::Poll)
            .gives(raw("application/json", r#"{"exportId":"se_x","status":"failed","error":"out of paper"}"#)),
        Weather::LinkRefused => once(Call::Bundle).gives(answer(409)),
        Weather::LinkExpired => once(Call::Download).gives(expired()),
        Weather::DownloadCut => once(Call::Download).gives(honest().cut(good.len() / 2)),
        Weather::DownloadStalls => once(Call::Download).gives(honest().stall(good.len() / 3)),
        Weather::DownloadClosed => once(Call::Download).gives(close()),
        Weather::NotABundle => once(Call::Download).gives(storage_error(200, "InternalError", "try again")),
        Weather::DamagedBundle => {
            let mut bad = good.to_vec();
            let at = bad.len() / 2;
            bad[at] ^= 1;
            upstream.publish(bad);
        }
    }
}

/// A site of about 2 MiB whose every file says which one it is.
fn site(n: usize) -> Vec<u8> {
    let mut members = vec![deflated("index.html", &format!("<title>v{n}</title>"))];
    for page in 0..40 {
        let line = format!("<p>page {page} of v{n}</p>\n");
        members.push(deflated(&format!("part/{page}.html"), &line.repeat(2000)));
    }
    // Digits that no coding makes much smaller: the size is what is given.
    let mut at = n as u64 + 1;
    let mut picture = String::with_capacity(1 << 21);
    while picture.len() < 2_000_000 {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let _ = write!(picture, "{:016x}", at ^ at >> 29);
    }
    members.push(stored("logo.png", &picture));
    zip(&members)
}

/// Reads pages over one connection for as long as it may; the answers, or what was wrong with one.
fn read(address: &str, seed: u64, is_over: &AtomicBool, answered: &AtomicU64) -> Result<(), String> {
    let mut connection = PersistentConnection::open(address);
    let mut at = seed;
    while !is_over.load(Ordering::Relaxed) {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let page = (at >> 33) % 40;
        let coding = if at & 1 << 32 == 0 { "Accept-Encoding: gzip\r\n" } else { "" };
        connection.send(format!("GET /part/{page} HTTP/1.1\r\nHost: x\r\n{coding}\r\n"));
        let response = connection.response(false);
        if response.status != 200 {
            return Err(format!("page {page}: {}", response.status));
        }
        let body = match response.header("content-encoding") {
            Some("gzip") => support::http::gunzip(&response.body),
            _ => response.body,
        };
        let body = String::from_utf8(body).map_err(|error| error.to_string())?;
        let first = body.lines().next().unwrap_or_default();
        if !first.starts_with(&format!("<p>page {page} of v")) || body.lines().any(|line| line != first) {
            return Err(format!("page {page} is mixed: {first:?} …"));
        }
        answered.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Resident and anonymous memory in KiB.
fn memory(pid: u32) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).expect("Linux tells");
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number of kB")
    };
    (field("VmRSS:"), field("RssAnon:"))
}

fn size_of(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => size_of(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

fn mean(samples: &[(u64, u64)]) -> u64 {
    samples.iter().map(|&(_, anonymous)| anonymous).sum::<u64>() / samples.len().max(1) as u64
}

/// Ends the readers however a round ends: a scope waits for its threads, also when it panics.
struct EndsReaders<'a>(&'a AtomicBool);

impl Drop for EndsReaders<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn syncs_through_a_bad_world_cost_no_request_no_disk_and_no_memory() {
    let rounds: usize = std::env::var("DOCWHARF_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(32);
    let upstream = Upstream::new(site(0));
    let host = Host::in_memory(&upstream)
        .set("network.callTimeout", text("300ms"))
        .set("network.idleTimeout", text("300ms"))
        // Pages that were inflated are kept up to this much: a bound, but one that takes long to reach.
        .set("server.identityCache", text("1MiB"))
        .set("sync.keep", "2");
    host.ok(&["sync"]);
    let log = std::fs::File::create(host.path("log")).expect("a file");
    let daemon = Daemon::start(host.command(&["run"]).stderr(log));
    let one = site(0).len() as u64;
    let (is_over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut samples, mut largest, mut ended) = (Vec::new(), 0, [0usize; 2]);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|seed| {
                let (address, is_over, answered) = (&daemon.address, &is_over, &answered);
                scope.spawn(move || {
                    let read = read(address, seed, is_over, answered);
                    is_over.store(true, Ordering::Relaxed);
                    read
                })
            })
            .collect();
        let ends = EndsReaders(&is_over);
        for round in 1..=rounds {
            let weather = ALL[(round * 7) % ALL.len()];
            let good = site(round);
            set(&upstream, weather, &good);
            let sync = finish(&mut host.command(&["sync"]));
            ended[usize::from(sync.code != Some(0))] += 1;
            if weather == Weather::ReadersAndRollback && sync.code == Some(0) {
                host.ok(&["rollback"]);
                host.ok(&["release"]);
            }
            samples.push(memory(daemon.pid()));
            largest = largest.max(size_of(&host.path("store")));
            assert!(!is_over.load(Ordering::Relaxed), "round {round}, {weather:?}: a reader has stopped");
        }
        // What the world did is over: the newest content becomes active.
        set(&upstream, Weather::Fine, &site(rounds + 1));
        let _ = finish(&mut host.command(&["sync"]));
        support::until("the newest version", || front(&daemon) == format!("v{}", rounds + 1));
        drop(ends);
        for reader in readers {
            reader.join().expect("readers do not panic").expect("every answer is one version's page");
        }
    });
    let answered = answered.into_inner();
    let tenth = samples.len() / 10;
    // The first tenth fills caches.
    let (early, late) = (mean(&samples[tenth..=2 * tenth]), mean(&samples[samples.len() - tenth - 1..]));
    println!(
        "{rounds} syncs, {} good, {} failed, {answered} answers, none wrong; store at most {:.1} bundles; anonymous memory \
         {early} KiB early, {late} KiB late",
        ended[0],
        ended[1],
        largest as f64 / one as f64
    );
    if let Ok(path) = std::env::var("DOCWHARF_SOAK_PLOT") {
        std::fs::write(path, plot(&samples, answered)).expect("the plot can be written");
    }
    assert!(answered > rounds as u64, "readers read");
    assert!(ended[0] > rounds / 3 && ended[1] > 0, "{ended:?}: both happen");
    // keep, active, previous, newest, what is on its way, and what it is sealed from.
    assert!(largest < 8 * one, "the store took {largest} bytes, a bundle has {one}");
    assert!(late < early + early / 4 + 4096, "anonymous memory grew from {early} to {late} KiB");
    host.assert_tidy();
}

/// Memory over syncs, as a drawing.
fn plot(samples: &[(u64, u64)], answered: u64) -> String {
    const WIDTH: f64 = 720.0;
    const HEIGHT: f64 = 240.0;
    let most = samples.iter().map(|&(resident, _)| resident).max().unwrap_or(1).next_multiple_of(8192) as f64;
    let (left, top) = (64.0, 40.0);
    let x = |n: usize| left + WIDTH * n as f64 / (samples.len().max(2) - 1) as f64;
    let y = |kib: u64| top + HEIGHT - HEIGHT * kib as f64 / most;
    let line = |pick: fn(&(u64, u64)) -> u64| {
        let points = samples.iter().enumerate().map(|(n, sample)| format!("{:.1},{:.1}", x(n), y(pick(sample))));
        points.collect::<Vec<_>>().join(" ")
    };
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 820 330\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"820\" height=\"330\" fill=\"#fff\"/>\n",
    );
    let _ = writeln!(
        svg,
        "<text x=\"64\" y=\"20\" font-size=\"14\">Memory of `run` over {} syncs with faults, {answered} answers meanwhile</text>",
        samples.len()
    );
    for step in 0..=4u8 {
        let kib = most * f64::from(step) / 4.0;
        let at = top + HEIGHT - HEIGHT * f64::from(step) / 4.0;
        let _ = writeln!(
            svg,
            "<path d=\"M{left} {at:.1}h{WIDTH}\" stroke=\"#ddd\"/><text x=\"58\" y=\"{:.1}\" text-anchor=\"end\">{:.0} MiB</text>",
            at + 4.0,
            kib / 1024.0
        );
    }
    for (pick, colour, name, at) in [
        ((|s: &(u64, u64)| s.0) as fn(&(u64, u64)) -> u64, "#1f77b4", "resident (with the mapped site)", 64.0),
        (|s: &(u64, u64)| s.1, "#d62728", "anonymous", 320.0),
    ] {
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{}\"/>",
            line(pick)
        );
        let _ = writeln!(svg, "<text x=\"{at}\" y=\"310\" fill=\"{colour}\">{name}</text>");
    }
    let _ = writeln!(svg, "<text x=\"784\" y=\"310\" text-anchor=\"end\">syncs, 1 to {}</text>\n</svg>", samples.len());
    svg
}
