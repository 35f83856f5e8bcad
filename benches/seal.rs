//! Proving, sealing and making durable, against the tools that people unpack bundles with.
//!
//! `cargo bench --bench seal -- FOLDER [--rounds N]`, where FOLDER holds `site.zip` and `site.tar.gz` of one large site
//! (`.ci/extra corpus` makes them of the Rust documentation). Each peer's command ends with `sync -f`, as docwharf's
//! import is durable by itself. The rounds are interleaved, each run starts with a quiet disk, every extraction goes to a new folder, and nothing is
//! deleted before the end, because deleting large trees slows what is written after it. Needs GNU time.

#![allow(missing_docs)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// One run of a command, as GNU time saw it.
#[derive(Debug, Clone, Copy)]
struct Run {
    wall: f64,
    cpu: f64,
    peak_kib: f64,
    written_mb: f64,
}

struct Contender {
    name: &'static str,
    /// A shell command; `$A` is the archive, `$D` a new folder.
    command: String,
    runs: Vec<Run>,
}

fn measure(command: &str, archive: &Path, folder: &Path) -> Run {
    std::fs::create_dir_all(folder).expect("the scratch folder can be written");
    let report = folder.with_extension("time");
    let begun = Instant::now();
    let status = Command::new("time")
        .args(["-q", "-f", "%U %S %M %O", "-o"])
        .arg(&report)
        .args(["sh", "-ec", command])
        .env("A", archive)
        .env("D", folder)
        .stdout(Stdio::null())
        .status()
        .expect("GNU time is installed");
    let wall = begun.elapsed().as_secs_f64();
    assert!(status.success(), "failed: {command}");
    let text = std::fs::read_to_string(&report).expect("GNU time wrote its report");
    let numbers: Vec<f64> = text.split_whitespace().map(|n| n.parse().expect("a number")).collect();
    Run { wall, cpu: numbers[0] + numbers[1], peak_kib: numbers[2], written_mb: numbers[3] * 512.0 / 1e6 }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl Contender {
    fn of(&self, figure: impl Fn(&Run) -> f64) -> f64 {
        median(self.runs.iter().map(figure).collect())
    }
}

/// Each run starts when the disk has nothing left to do for the one before, journal included.
fn quiet_disk() {
    let _ = Command::new("sync").status();
    std::thread::sleep(std::time::Duration::from_secs(2));
}

fn installed(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

fn first_line(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().expect("sh runs");
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()
}

fn compare(title: &str, archive: &Path, scratch: &Path, rounds: usize, docwharf: &str, peers: &[(&'static str, &str)]) {
    let mut contenders = vec![Contender { name: "docwharf import", command: docwharf.to_owned(), runs: Vec::new() }];
    for &(name, command) in peers {
        if installed(command.split(' ').next().unwrap_or_default()) {
            contenders.push(Contender { name, command: format!("{command} && sync -f \"$D\""), runs: Vec::new() });
        } else {
            println!("{name} is not installed: left out");
        }
    }
    for round in 0..=rounds {
        for (n, contender) in contenders.iter_mut().enumerate() {
            quiet_disk();
            let folder = scratch.join(format!("{title}-{n}-{round}"));
            let run = measure(&contender.command, archive, &folder);
            if round > 0 {
                contender.runs.push(run); // the first warms the page cache
            }
        }
    }
    let size = std::fs::metadata(archive).expect("the archive is there").len() as f64 / 1e6;
    println!("\n## {title}: {} ({size:.1} MB), medians of {rounds} rounds\n", archive.display());
    println!("| | wall s | CPU s | peak MiB | written MB |");
    println!("|---|---|---|---|---|");
    for contender in &contenders {
        println!(
            "| {} | {:.2} | {:.2} | {:.0} | {:.1} |",
            contender.name,
            contender.of(|r| r.wall),
            contender.of(|r| r.cpu),
            contender.of(|r| r.peak_kib) / 1024.0,
            contender.of(|r| r.written_mb)
        );
    }
    let (ours, peers) = contenders.split_first().expect("docwharf is the first");
    let best = peers.iter().min_by(|a, b| a.of(|r| r.wall).total_cmp(&b.of(|r| r.wall)));
    if let Some(best) = best {
        let ratios: Vec<f64> = ours.runs.iter().zip(&best.runs).map(|(a, b)| a.wall / b.wall).collect();
        let worst = ratios.iter().copied().fold(0.0, f64::max);
        // The fastest single run of any peer, for the strictest reading.
        let fastest = peers.iter().flat_map(|p| &p.runs).map(|r| r.wall).fold(f64::INFINITY, f64::min);
        println!(
            "\nratio to the best peer ({}): median {:.2}, worst round {worst:.2}; to the fastest run of any: {:.2}; \
             written over archive: {:.3}",
            best.name,
            median(ratios),
            ours.of(|r| r.wall) / fastest,
            ours.of(|r| r.written_mb) / size
        );
    }
}

/// Imports ten different versions one after another: the tenth must cost what the first did.
fn ten_imports(program: &str, archive: &Path, scratch: &Path) {
    if !installed("zip") {
        println!("zip is not installed: the ten imports are left out");
        return;
    }
    let store = scratch.join("ten");
    let mut walls = Vec::new();
    for n in 0..=10 {
        let bundle = scratch.join(format!("ten-{n}.zip"));
        std::fs::copy(archive, &bundle).expect("the archive can be copied");
        let page = scratch.join(format!("added-{n}.html"));
        std::fs::write(&page, format!("version {n}")).expect("the scratch folder can be written");
        let added = Command::new("zip").arg("-qj").arg(&bundle).arg(&page).status().expect("zip runs");
        assert!(added.success());
        quiet_disk();
        let run = measure(&format!("DOCWHARF_STORE__PATH=\"$D/../ten\" {program} -q import \"$A\""), &bundle, &store);
        if n > 0 {
            walls.push(run.wall); // the first one of all warms up
        }
    }
    let first = median(walls[..3].to_vec());
    let last = median(walls[7..].to_vec());
    let all: Vec<String> = walls.iter().map(|w| format!("{w:.2}")).collect();
    println!(
        "\n## ten imports of different versions\n\nseconds: {}; last three over first three: {:.2}",
        all.join(" "),
        last / first
    );
}

fn main() {
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
        println!("usage: cargo bench --bench seal -- FOLDER [--rounds N]; FOLDER holds site.zip and site.tar.gz");
        return;
    };
    // cargo starts benches in the package's folder.
    let folder = std::path::absolute(folder).expect("a path");
    let scratch = tempfile::Builder::new().prefix("bench-seal-").tempdir_in(&folder).expect("FOLDER can be written");
    let program = env!("CARGO_BIN_EXE_docwharf");
    println!("{}", first_line(&format!("{program} --version")));
    for command in ["tar --version", "unzip -v", "bsdtar --version", "ripunzip --version"] {
        if installed(command.split(' ').next().unwrap_or_default()) {
            println!("{}", first_line(command));
        }
    }
    let import = format!("DOCWHARF_STORE__PATH=\"$D\" {program} -q import \"$A\"");
    compare(
        "zip",
        &folder.join("site.zip"),
        scratch.path(),
        rounds,
        &import,
        &[
            ("unzip", "unzip -q \"$A\" -d \"$D\""),
            ("bsdtar", "bsdtar xf \"$A\" -C \"$D\""),
            ("ripunzip", "ripunzip -q unzip-file -d \"$D\" \"$A\""),
        ],
    );
    compare(
        "tar.gz",
        &folder.join("site.tar.gz"),
        scratch.path(),
        rounds,
        &import,
        &[("tar", "tar xzf \"$A\" -C \"$D\""), ("bsdtar", "bsdtar xf \"$A\" -C \"$D\"")],
    );
    ten_imports(program, &folder.join("site.zip"), scratch.path());
    println!("\nremoving the scratch folder; this may take longer than all the rest");
}
