//! Many syncs with faults of the upstream, while clients read pages: no failed request, no response of two versions, a
//! store and memory that do not grow. `DOCWHARF_SOAK=500` makes it long. `DOCWHARF_SOAK_PLOT=FILE.svg` plots the
//! memory.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use support::host::{Host, front_page_title, run_with_timeout, toml_string};
use support::http::PersistentConnection;
use support::upstream::{
    Upstream, UpstreamCall, close_without_reply, error_reply, expired_link_reply, no_reply, normal_reply, raw_reply,
    storage_error,
};
use support::zip::{deflated, stored, zip};
use support::{Daemon, SetOnDrop, anonymous_memory_bytes, resident_memory_bytes};

/// The fault of the upstream during one sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
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

const ALL_FAULTS: [Fault; 16] = [
    Fault::None,
    Fault::Start500,
    Fault::StartClosed,
    Fault::StartSilent,
    Fault::Poll503,
    Fault::PollNonsense,
    Fault::JobGone,
    Fault::JobFailed,
    Fault::LinkRefused,
    Fault::LinkExpired,
    Fault::DownloadCut,
    Fault::DownloadStalls,
    Fault::DownloadClosed,
    Fault::NotABundle,
    Fault::DamagedBundle,
    Fault::ReadersAndRollback,
];

/// Publishes `valid_bundle` and makes the upstream show this fault once.
fn set_fault(upstream: &Upstream, fault: Fault, valid_bundle: &[u8]) {
    upstream.clear_rules();
    upstream.publish(valid_bundle.to_vec());
    let once_on = |call| upstream.on(call).times(1);
    match fault {
        Fault::None | Fault::ReadersAndRollback => {}
        Fault::Start500 => once_on(UpstreamCall::Start).respond_with(error_reply(500)),
        Fault::StartClosed => once_on(UpstreamCall::Start).respond_with(close_without_reply()),
        Fault::StartSilent => once_on(UpstreamCall::Start).respond_with(no_reply()),
        Fault::Poll503 => once_on(UpstreamCall::Poll).respond_with(error_reply(503)),
        Fault::PollNonsense => once_on(UpstreamCall::Poll).respond_with(raw_reply("text/html", "<h1>hello</h1>")),
        Fault::JobGone => once_on(UpstreamCall::Poll).respond_with(error_reply(404)),
        Fault::JobFailed => once_on(UpstreamCall::Poll).respond_with(raw_reply(
            "application/json",
            r#"{"exportId":"se_x","status":"failed","error":"out of paper"}"#,
        )),
        Fault::LinkRefused => once_on(UpstreamCall::Link).respond_with(error_reply(409)),
        Fault::LinkExpired => once_on(UpstreamCall::Download).respond_with(expired_link_reply()),
        Fault::DownloadCut => once_on(UpstreamCall::Download).respond_with(normal_reply().cut(valid_bundle.len() / 2)),
        Fault::DownloadStalls => {
            once_on(UpstreamCall::Download).respond_with(normal_reply().stall(valid_bundle.len() / 3));
        }
        Fault::DownloadClosed => once_on(UpstreamCall::Download).respond_with(close_without_reply()),
        Fault::NotABundle => {
            once_on(UpstreamCall::Download).respond_with(storage_error(200, "InternalError", "try again"));
        }
        Fault::DamagedBundle => {
            let mut damaged = valid_bundle.to_vec();
            let middle = damaged.len() / 2;
            damaged[middle] ^= 1;
            upstream.publish(damaged);
        }
    }
}

/// A bundle of about 2 MiB. Each page contains the number of the version.
fn bundle_of_version(n: usize) -> Vec<u8> {
    let mut members = vec![deflated("index.html", &format!("<title>v{n}</title>"))];
    for page in 0..40 {
        let line = format!("<p>page {page} of v{n}</p>\n");
        members.push(deflated(&format!("part/{page}.html"), &line.repeat(2000)));
    }
    // Random hex digits, which hardly compress, so that the bundle has the intended size.
    let mut state = n as u64 + 1;
    let mut picture = String::with_capacity(1 << 21);
    while picture.len() < 2_000_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let _ = write!(picture, "{:016x}", state ^ state >> 29);
    }
    members.push(stored("logo.png", &picture));
    zip(&members)
}

/// Reads pages over one connection until `is_over`. Returns an error if a response is wrong.
fn read_pages(address: &str, seed: u64, is_over: &AtomicBool, answered: &AtomicU64) -> Result<(), String> {
    let mut connection = PersistentConnection::open(address);
    let mut state = seed;
    while !is_over.load(Ordering::Relaxed) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let page = (state >> 33) % 40;
        let coding = if state & 1 << 32 == 0 { "Accept-Encoding: gzip\r\n" } else { "" };
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

fn folder_size(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => folder_size(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

fn mean_anonymous_kib(samples: &[(u64, u64)]) -> u64 {
    samples.iter().map(|&(_, anonymous)| anonymous).sum::<u64>() / samples.len().max(1) as u64
}

#[test]
fn syncs_with_faults_fail_no_request_and_do_not_grow_disk_or_memory_use() {
    let rounds: usize = std::env::var("DOCWHARF_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(32);
    let upstream = Upstream::new(bundle_of_version(0));
    let host = Host::in_memory(&upstream)
        .set("network.callTimeout", toml_string("1s"))
        .set("network.idleTimeout", toml_string("1s"))
        // A small cache of inflated files, because filling the default one would look like growing memory.
        .set("server.identityCache", toml_string("1MiB"))
        .set("sync.keep", "2");
    host.ok(&["sync"]);
    let log = std::fs::File::create(host.path("log")).expect("a file");
    let daemon = Daemon::start(host.command(&["run"]).stderr(log));
    let bundle_size = bundle_of_version(0).len() as u64;
    let (is_over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut samples, mut largest, mut sync_counts) = (Vec::new(), 0, [0usize; 2]);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|seed| {
                let (address, is_over, answered) = (&daemon.address, &is_over, &answered);
                scope.spawn(move || {
                    let result = read_pages(address, seed, is_over, answered);
                    is_over.store(true, Ordering::Relaxed);
                    result
                })
            })
            .collect();
        let stop_readers = SetOnDrop(&is_over);
        for round in 1..=rounds {
            let fault = ALL_FAULTS[(round * 7) % ALL_FAULTS.len()];
            let valid_bundle = bundle_of_version(round);
            set_fault(&upstream, fault, &valid_bundle);
            let sync = run_with_timeout(&mut host.command(&["sync"]));
            sync_counts[usize::from(sync.code != Some(0))] += 1;
            if fault == Fault::ReadersAndRollback && sync.code == Some(0) {
                host.ok(&["rollback"]);
                host.ok(&["release"]);
            }
            let (resident, anonymous) = (resident_memory_bytes(daemon.pid()), anonymous_memory_bytes(daemon.pid()));
            samples.push((resident / 1024, anonymous / 1024));
            largest = largest.max(folder_size(&host.path("store")));
            assert!(!is_over.load(Ordering::Relaxed), "round {round}, {fault:?}: a reader has stopped");
        }
        // Without a fault, the newest content becomes active.
        set_fault(&upstream, Fault::None, &bundle_of_version(rounds + 1));
        let _ = run_with_timeout(&mut host.command(&["sync"]));
        support::until("the newest version", || front_page_title(&daemon) == format!("v{}", rounds + 1));
        drop(stop_readers);
        for reader in readers {
            reader.join().expect("readers do not panic").expect("each response is a page of one version");
        }
    });
    let answered = answered.into_inner();
    let tenth = samples.len() / 10;
    // The first tenth fills caches.
    let (early, late) =
        (mean_anonymous_kib(&samples[tenth..=2 * tenth]), mean_anonymous_kib(&samples[samples.len() - tenth - 1..]));
    println!(
        "{rounds} syncs, {} good, {} failed, {answered} answers, none wrong; store at most {:.1} bundles; anonymous memory \
         {early} KiB early, {late} KiB late",
        sync_counts[0],
        sync_counts[1],
        largest as f64 / bundle_size as f64
    );
    if let Ok(path) = std::env::var("DOCWHARF_SOAK_PLOT") {
        std::fs::write(path, plot(&samples, answered)).expect("the plot can be written");
    }
    assert!(answered > rounds as u64, "readers got too few responses");
    assert!(sync_counts[0] > rounds / 3 && sync_counts[1] > 0, "{sync_counts:?}: both results must happen");
    // Two kept versions, active, previous, newest, the incoming version, and the bundle that it is sealed from.
    assert!(largest < 8 * bundle_size, "the store has {largest} bytes, a bundle {bundle_size}");
    assert!(late < early + early / 4 + 4096, "anonymous memory grew from {early} to {late} KiB");
    host.assert_tidy();
}

/// An SVG plot of the memory after each sync.
fn plot(samples: &[(u64, u64)], answered: u64) -> String {
    const WIDTH: f64 = 720.0;
    const HEIGHT: f64 = 240.0;
    let max_kib = samples.iter().map(|&(resident, _)| resident).max().unwrap_or(1).next_multiple_of(8192) as f64;
    let (left, top) = (64.0, 40.0);
    let x = |n: usize| left + WIDTH * n as f64 / (samples.len().max(2) - 1) as f64;
    let y = |kib: u64| top + HEIGHT - HEIGHT * kib as f64 / max_kib;
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
        let kib = max_kib * f64::from(step) / 4.0;
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
