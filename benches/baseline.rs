//! The baseline to beat: the loop of curl, jq, tar and a symlink that operators write today (`baseline/loop.sh`) and
//! docwharf, through the same events. What a reader or an operator then sees is a fact; whether it is what has to come
//! of it is decided by the same rule for both. Fails if docwharf fails.

#![allow(missing_docs)]

#[path = "baseline/host.rs"]
mod host;
#[path = "baseline/scenarios.rs"]
mod scenarios;
#[path = "baseline/upstream.rs"]
mod upstream;

use std::process::{Command, ExitCode, Stdio};

use host::Kind;
use scenarios::{SCENARIOS, Scenario, Verdict};

const TOOLS: &[&str] = &["curl", "jq", "tar", "python3"];

fn is_there(tool: &str) -> bool {
    Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// None if it could not be played, which says nothing about either.
fn play(scenario: &Scenario, kind: Kind) -> Option<Verdict> {
    std::panic::catch_unwind(|| (scenario.play)(kind)).ok()
}

fn cell(verdict: Option<&Verdict>) -> String {
    let Some(verdict) = verdict else { return "could not be played; stderr says why".to_owned() };
    let mark = if verdict.good { "" } else { "**fails**: " };
    format!("{mark}{}", verdict.saw.replace('|', "/"))
}

fn main() -> ExitCode {
    let missing: Vec<&str> = TOOLS.iter().copied().filter(|tool| !is_there(tool)).collect();
    if !missing.is_empty() {
        eprintln!("baseline: not installed: {}; the packages have the same names", missing.join(", "));
        return ExitCode::from(2);
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let chosen = |scenario: &&Scenario| wanted.is_empty() || wanted.iter().any(|text| scenario.name.contains(text));
    println!("| scenario | has to come of it | loop | docwharf |\n|---|---|---|---|");
    let (mut played, mut beaten, mut failed, mut unclear) = (0, 0, 0, 0);
    for scenario in SCENARIOS.iter().filter(chosen) {
        let (theirs, ours) = (play(scenario, Kind::Loop), play(scenario, Kind::Docwharf));
        println!("| {} | {} | {} | {} |", scenario.name, scenario.wanted, cell(theirs.as_ref()), cell(ours.as_ref()));
        played += 1;
        unclear += u32::from(theirs.is_none() || ours.is_none());
        beaten += u32::from(theirs.is_some_and(|theirs| !theirs.good));
        failed += u32::from(ours.is_some_and(|ours| !ours.good));
    }
    println!("\n{played} scenarios: the loop fails {beaten}, docwharf {failed}; {unclear} could not be played");
    if failed == 0 && unclear == 0 && played > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
