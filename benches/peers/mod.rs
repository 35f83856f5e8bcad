//! Shared code of the benchmarks against other tools: interleaved rounds of shell commands under GNU time, and ratios
//! to the best peer.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The measurements of one run of a command, by GNU time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) wall: f64,
    pub(crate) cpu: f64,
    pub(crate) peak_kib: f64,
    pub(crate) written_mb: f64,
}

struct Contender {
    name: &'static str,
    /// A bash command. `$A` is the archive, `$D` a new folder.
    command: String,
    runs: Vec<Run>,
}

pub(crate) fn measure(command: &str, archive: &str, folder: &Path) -> Run {
    std::fs::create_dir_all(folder).expect("the scratch folder can be written");
    let report = folder.with_extension("time");
    let started = Instant::now();
    let status = Command::new("time")
        .args(["-q", "-f", "%U %S %M %O", "-o"])
        .arg(&report)
        .args(["bash", "-o", "pipefail", "-ec", command])
        .env("A", archive)
        .env("D", folder)
        .stdout(Stdio::null())
        .status()
        .expect("GNU time is installed");
    let wall = started.elapsed().as_secs_f64();
    assert!(status.success(), "failed: {command}");
    let text = std::fs::read_to_string(&report).expect("GNU time wrote its report");
    let numbers: Vec<f64> = text.split_whitespace().map(|n| n.parse().expect("a number")).collect();
    Run { wall, cpu: numbers[0] + numbers[1], peak_kib: numbers[2], written_mb: numbers[3] * 512.0 / 1e6 }
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl Contender {
    fn median_of(&self, figure: impl Fn(&Run) -> f64) -> f64 {
        median(self.runs.iter().map(figure).collect())
    }
}

/// Waits until the disk has finished all writes of the last run, including the journal.
pub(crate) fn wait_for_idle_disk() {
    let _ = Command::new("sync").status();
    std::thread::sleep(std::time::Duration::from_secs(2));
}

pub(crate) fn is_installed(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

pub(crate) fn first_line(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().expect("sh runs");
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()
}

/// Runs docwharf's command and those of its peers, which have the names of the programs that they need, on `archive` of
/// `size` bytes. Prints a table and ratios.
pub(crate) fn compare(
    title: &str,
    archive: &str,
    size: u64,
    scratch: &Path,
    rounds: usize,
    docwharf: (&'static str, &str),
    peers: &[(&'static str, &str)],
) {
    let mut contenders = vec![Contender { name: docwharf.0, command: docwharf.1.to_owned(), runs: Vec::new() }];
    for &(name, command) in peers {
        if is_installed(name) {
            contenders.push(Contender { name, command: format!("{command} && sync -f \"$D\""), runs: Vec::new() });
        } else {
            println!("{name} is not installed: left out");
        }
    }
    let prefix = title.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    for round in 0..=rounds {
        for (n, contender) in contenders.iter_mut().enumerate() {
            wait_for_idle_disk();
            let folder = scratch.join(format!("{prefix}-{n}-{round}"));
            let run = measure(&contender.command, archive, &folder);
            if round > 0 {
                contender.runs.push(run); // the first round fills the page cache
            }
        }
    }
    let size = size as f64 / 1e6;
    println!("\n## {title} ({size:.1} MB), medians of {rounds} rounds\n");
    println!("| | wall s | CPU s | peak MiB | written MB |");
    println!("|---|---|---|---|---|");
    for contender in &contenders {
        println!(
            "| {} | {:.2} | {:.2} | {:.0} | {:.1} |",
            contender.name,
            contender.median_of(|r| r.wall),
            contender.median_of(|r| r.cpu),
            contender.median_of(|r| r.peak_kib) / 1024.0,
            contender.median_of(|r| r.written_mb)
        );
    }
    let (docwharf, peers) = contenders.split_first().expect("docwharf is the first");
    let best_peer = peers.iter().min_by(|a, b| a.median_of(|r| r.wall).total_cmp(&b.median_of(|r| r.wall)));
    if let Some(best_peer) = best_peer {
        let ratios: Vec<f64> = docwharf.runs.iter().zip(&best_peer.runs).map(|(a, b)| a.wall / b.wall).collect();
        let worst = ratios.iter().copied().fold(0.0, f64::max);
        // The fastest single run of any peer, for the strictest comparison.
        let fastest = peers.iter().flat_map(|p| &p.runs).map(|r| r.wall).fold(f64::INFINITY, f64::min);
        println!(
            "\nratio to the best peer ({}): median {:.2}, worst round {worst:.2}; to the fastest run of any: {:.2}; \
             written over archive: {:.3}",
            best_peer.name,
            median(ratios),
            docwharf.median_of(|r| r.wall) / fastest,
            docwharf.median_of(|r| r.written_mb) / size
        );
    }
}

/// The options of the command line.
pub(crate) struct Arguments {
    pub(crate) folder: PathBuf,
    pub(crate) rounds: usize,
}

/// Parses `FOLDER [--rounds N]`. Prints the usage and returns `None` without a folder.
pub(crate) fn arguments(bench: &str) -> Option<Arguments> {
    let mut rounds = 3;
    let mut folder: Option<PathBuf> = None;
    let mut arguments = std::env::args().skip(1).filter(|a| a != "--bench");
    while let Some(argument) = arguments.next() {
        if argument == "--rounds" {
            rounds = arguments.next().and_then(|n| n.parse().ok()).expect("--rounds takes a number");
        } else {
            folder = Some(PathBuf::from(argument));
        }
    }
    let Some(folder) = folder else {
        println!("usage: cargo bench --bench {bench} -- FOLDER [--rounds N]; FOLDER has site.zip and site.tar.gz");
        return None;
    };
    // cargo starts benches in the package's folder.
    Some(Arguments { folder: std::path::absolute(folder).expect("a path"), rounds })
}
