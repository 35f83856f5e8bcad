//! docwharf, nginx and h2o under the same attacks: memory, CPU for each byte that the attacker sends, and what a
//! bystander sees.
//!
//! `.ci/extra abuse` runs all of it; `cargo bench --bench abuse -- --list` prints the attacks. Everything stays on
//! loopback and ends by itself. The attacker is this program again, as a child process at nice 19. BENCHMARKS.md says
//! what is measured.

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
#[path = "abuse/origin.rs"]
mod origin;
#[path = "abuse/report.rs"]
mod report;
#[path = "abuse/servers.rs"]
mod servers;
#[path = "abuse/site.rs"]
mod site;
#[path = "abuse/tenants.rs"]
mod tenants;
#[path = "abuse/tls.rs"]
mod tls;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};

use attack::Attack;
use common::{machine, process};
use options::Options;
use servers::{Identity, Target};
use site::Site;

/// Attacks on a server of sites.
fn on_sites() -> impl Iterator<Item = &'static Attack> {
    http1::ATTACKS.iter().chain(http2::ATTACKS).chain(tls::ATTACKS)
}

/// Results that are kept: those of attacks that are not measured again stay.
pub(crate) struct Results {
    path: PathBuf,
    pub all: Value,
}

impl Results {
    fn open(out: &Path) -> Self {
        let path = out.join("abuse.json");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let all = serde_json::from_str(&text).ok().filter(Value::is_object).unwrap_or_else(|| json!({}));
        Self { path, all }
    }

    /// Puts a value at `section`, `name` and writes the file.
    pub(crate) fn keep(&mut self, section: &str, name: &str, value: Value) -> Result<(), String> {
        if !self.all[section].is_object() {
            self.all[section] = json!({});
        }
        self.all[section][name] = value;
        let text = serde_json::to_string_pretty(&self.all).map_err(|error| error.to_string())?;
        std::fs::write(&self.path, text).map_err(|error| format!("cannot write {}: {error}", self.path.display()))
    }
}

fn targets(options: &Options, scratch: &Path, identity: &Identity, site: &Site) -> Result<Vec<Target>, String> {
    let mut targets = vec![servers::docwharf_with(&options.program, scratch, identity, site)?];
    for peer in &options.peers {
        targets.push(match peer.as_str() {
            "nginx" => servers::nginx(scratch, identity, site)?,
            _ => servers::h2o(scratch, identity, site)?,
        });
    }
    Ok(targets)
}

/// Each attack on each server in turn; whether a bystander of docwharf was let down.
fn attack_servers(options: &Options, scratch: &Path, results: &mut Results) -> Result<bool, String> {
    let attacks: Vec<_> = on_sites().filter(|attack| options.wants(attack.name)).collect();
    if attacks.is_empty() {
        return Ok(false);
    }
    let site = Site::make(scratch)?;
    let identity = Identity::make(scratch)?;
    let targets = targets(options, scratch, &identity, &site)?;
    for target in &targets {
        results.keep("versions", target.name, json!(target.version))?;
    }
    let mut has_failed = false;
    for attack in attacks {
        let mut cells = json!({});
        for target in &targets {
            let measured = match measure::measure(attack, target, &site, &identity.root, options.seconds) {
                Ok(measured) => measured,
                Err(why) => {
                    // The others are still worth measuring.
                    eprintln!("{}, {}: {why}", attack.name, target.name);
                    has_failed |= target.name == servers::DOCWHARF;
                    continue;
                }
            };
            report::print(attack.name, target.name, &measured);
            has_failed |= target.name == servers::DOCWHARF && report::has_failed(&measured);
            cells[target.name] = measured;
        }
        results.keep("attacks", attack.name, cells)?;
    }
    Ok(has_failed)
}

fn work(arguments: &[String]) -> Result<(), String> {
    if let [first, rest @ ..] = arguments
        && first == attacker::ARGUMENT
    {
        process::many_files();
        return attacker::work(on_sites().chain(tenants::ATTACKS), rest);
    }
    let mut options = Options::parse(arguments)?;
    if options.list {
        for attack in on_sites().chain(tenants::ATTACKS) {
            println!("{:24} {}", attack.name, attack.title);
        }
        return Ok(());
    }
    // cargo starts benches in the package's folder.
    std::fs::create_dir_all(&options.out).map_err(|error| format!("cannot make {}: {error}", options.out.display()))?;
    options.out = std::path::absolute(&options.out).map_err(|error| error.to_string())?;
    options.program = std::path::absolute(&options.program).map_err(|error| error.to_string())?;
    process::many_files();
    let scratch = tempfile::Builder::new().prefix("abuse-").tempdir_in(&options.out);
    let scratch = scratch.map_err(|error| format!("cannot write to {}: {error}", options.out.display()))?;
    let mut results = Results::open(&options.out);
    results.keep("run", "machine", machine::describe(false))?;
    let has_failed = if let Some(minutes) = options.hour {
        hour::hour(&options, minutes, scratch.path(), &mut results)?
    } else {
        attack_servers(&options, scratch.path(), &mut results)? | origin::attack_origin(&options, &mut results)?
    };
    if options.report {
        report::write(&results.all, Path::new(env!("CARGO_MANIFEST_DIR")))?;
    }
    if has_failed { Err("a bystander of docwharf was not answered".to_owned()) } else { Ok(()) }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Err(why) = work(&arguments) {
        eprintln!("abuse: {why}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
