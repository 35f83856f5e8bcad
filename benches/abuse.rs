//! docwharf, nginx and h2o under the same attacks: memory, CPU time for each byte that the attacker sends, and the
//! responses to a bystander, a client that makes ordinary requests during the attack.
//!
//! `.ci/extra abuse` runs all of it; `cargo bench --bench abuse -- --list` prints the attacks. All traffic stays on
//! loopback, and each attack ends after its time. The attacker is this program again, as a child process at nice 19.
//! BENCHMARKS.md explains the measurements.

#![allow(clippy::disallowed_methods)] // it connects to servers of its own

mod common;

#[path = "abuse/attack.rs"]
mod attack;
#[path = "abuse/attacker.rs"]
mod attacker;
#[path = "abuse/bystander.rs"]
mod bystander;
#[path = "abuse/hour.rs"]
mod hour;
#[path = "abuse/http1.rs"]
mod http1;
#[path = "abuse/http2.rs"]
mod http2;
#[path = "abuse/measure.rs"]
mod measure;
#[path = "abuse/options.rs"]
mod options;
#[path = "abuse/organizations.rs"]
mod organizations;
#[path = "abuse/origin.rs"]
mod origin;
#[path = "abuse/report.rs"]
mod report;
#[path = "abuse/servers.rs"]
mod servers;
#[path = "abuse/site.rs"]
mod site;
#[path = "abuse/tls.rs"]
mod tls;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};

use attack::Attack;
use common::{machine, process};
use options::Options;
use servers::{Target, TestCertificate};
use site::Site;

/// Attacks on a server of sites.
fn site_attacks() -> impl Iterator<Item = &'static Attack> {
    http1::ATTACKS.iter().chain(http2::ATTACKS).chain(tls::ATTACKS)
}

/// The stored results. Results of attacks that are not measured again stay.
pub(crate) struct Results {
    path: PathBuf,
    pub values: Value,
}

impl Results {
    fn open(out: &Path) -> Self {
        let path = out.join("abuse.json");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let values = serde_json::from_str(&text).ok().filter(Value::is_object).unwrap_or_else(|| json!({}));
        Self { path, values }
    }

    /// Stores a value at `section`, `name` and writes the file.
    pub(crate) fn store_result(&mut self, section: &str, name: &str, value: Value) -> Result<(), String> {
        if !self.values[section].is_object() {
            self.values[section] = json!({});
        }
        self.values[section][name] = value;
        let text = serde_json::to_string_pretty(&self.values).map_err(|error| error.to_string())?;
        std::fs::write(&self.path, text).map_err(|error| format!("cannot write {}: {error}", self.path.display()))
    }
}

fn set_up_targets(
    options: &Options,
    scratch: &Path,
    certificate_files: &TestCertificate,
    site: &Site,
) -> Result<Vec<Target>, String> {
    let mut targets = vec![servers::docwharf_with_site(&options.program, scratch, certificate_files, site)?];
    for peer in &options.peers {
        targets.push(match peer.as_str() {
            "nginx" => servers::nginx(scratch, certificate_files, site)?,
            _ => servers::h2o(scratch, certificate_files, site)?,
        });
    }
    Ok(targets)
}

/// Runs each attack on each server. Returns whether a request of docwharf's bystander failed.
fn attack_servers(options: &Options, scratch: &Path, results: &mut Results) -> Result<bool, String> {
    let attacks: Vec<_> = site_attacks().filter(|attack| options.wants(attack.name)).collect();
    if attacks.is_empty() {
        return Ok(false);
    }
    let site = Site::make(scratch)?;
    let certificate_files = TestCertificate::make(scratch)?;
    let targets = set_up_targets(options, scratch, &certificate_files, &site)?;
    for target in &targets {
        results.store_result("versions", target.name, json!(target.version))?;
    }
    let mut has_failed = false;
    for attack in attacks {
        let mut cells = json!({});
        for target in &targets {
            let measurement = match measure::measure(attack, target, &site, &certificate_files.root, options.seconds) {
                Ok(measurement) => measurement,
                Err(reason) => {
                    // The other servers are measured all the same.
                    eprintln!("{}, {}: {reason}", attack.name, target.name);
                    has_failed |= target.name == servers::DOCWHARF;
                    continue;
                }
            };
            report::print(attack.name, target.name, &measurement);
            has_failed |= target.name == servers::DOCWHARF && report::has_failed(&measurement);
            cells[target.name] = measurement;
        }
        results.store_result("attacks", attack.name, cells)?;
    }
    Ok(has_failed)
}

fn run(arguments: &[String]) -> Result<(), String> {
    if let [first, rest @ ..] = arguments
        && first == attacker::ARGUMENT
    {
        process::raise_file_limit();
        return attacker::run_attacker(site_attacks().chain(organizations::ATTACKS), rest);
    }
    let mut options = Options::parse(arguments)?;
    if options.list {
        for attack in site_attacks().chain(organizations::ATTACKS) {
            println!("{:24} {}", attack.name, attack.title);
        }
        return Ok(());
    }
    // cargo starts benches in the package's folder.
    std::fs::create_dir_all(&options.out).map_err(|error| format!("cannot make {}: {error}", options.out.display()))?;
    options.out = std::path::absolute(&options.out).map_err(|error| error.to_string())?;
    options.program = std::path::absolute(&options.program).map_err(|error| error.to_string())?;
    process::raise_file_limit();
    let scratch = tempfile::Builder::new().prefix("abuse-").tempdir_in(&options.out);
    let scratch = scratch.map_err(|error| format!("cannot write to {}: {error}", options.out.display()))?;
    let mut results = Results::open(&options.out);
    results.store_result("run", "machine", machine::describe(false))?;
    let has_failed = if let Some(minutes) = options.hour {
        hour::run_hour(&options, minutes, scratch.path(), &mut results)?
    } else {
        attack_servers(&options, scratch.path(), &mut results)? | origin::attack_origin(&options, &mut results)?
    };
    if options.report {
        report::write(&results.values, Path::new(env!("CARGO_MANIFEST_DIR")))?;
    }
    if has_failed { Err("a request of docwharf's bystander failed".to_owned()) } else { Ok(()) }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Err(reason) = run(&arguments) {
        eprintln!("abuse: {reason}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
