//! The baseline: the loop of curl, jq, tar and a symlink that operators write today (`baseline/loop.sh`) and docwharf,
//! in the same scenarios. The same rule decides for both whether the result is the expected one. The benchmark fails if
//! docwharf fails a scenario.

#![allow(clippy::disallowed_methods)] // it connects to servers of its own
#![allow(missing_docs)]

#[path = "baseline/host.rs"]
mod host;
#[path = "baseline/scenarios.rs"]
mod scenarios;
#[path = "baseline/upstream.rs"]
mod upstream;

use std::process::{Command, ExitCode, Stdio};

use host::Updater;
use scenarios::{SCENARIOS, Scenario, Verdict};

const TOOLS: &[&str] = &["curl", "jq", "tar", "python3"];

fn is_installed(tool: &str) -> bool {
    Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// Runs a scenario. `None` if it panicked, which is no result.
fn run_scenario(scenario: &Scenario, updater: Updater) -> Option<Verdict> {
    std::panic::catch_unwind(|| (scenario.run)(updater)).ok()
}

fn cell(verdict: Option<&Verdict>) -> String {
    let Some(verdict) = verdict else { return "could not be run; see stderr".to_owned() };
    let mark = if verdict.is_expected { "" } else { "**fails**: " };
    format!("{mark}{}", verdict.observation.replace('|', "/"))
}

fn main() -> ExitCode {
    let missing: Vec<&str> = TOOLS.iter().copied().filter(|tool| !is_installed(tool)).collect();
    if !missing.is_empty() {
        eprintln!("baseline: not installed: {}; the packages have the same names", missing.join(", "));
        return ExitCode::from(2);
    }
    let filters: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let is_selected =
        |scenario: &&Scenario| filters.is_empty() || filters.iter().any(|text| scenario.name.contains(text));
    println!("| scenario | required result | loop | docwharf |\n|---|---|---|---|");
    let (mut count, mut loop_failures, mut docwharf_failures, mut failed_run_count) = (0, 0, 0, 0);
    for scenario in SCENARIOS.iter().filter(is_selected) {
        let (loop_verdict, docwharf_verdict) =
            (run_scenario(scenario, Updater::Loop), run_scenario(scenario, Updater::Docwharf));
        println!(
            "| {} | {} | {} | {} |",
            scenario.name,
            scenario.expectation,
            cell(loop_verdict.as_ref()),
            cell(docwharf_verdict.as_ref())
        );
        count += 1;
        failed_run_count += u32::from(loop_verdict.is_none() || docwharf_verdict.is_none());
        loop_failures += u32::from(loop_verdict.is_some_and(|loop_verdict| !loop_verdict.is_expected));
        docwharf_failures += u32::from(docwharf_verdict.is_some_and(|docwharf_verdict| !docwharf_verdict.is_expected));
    }
    println!(
        "\n{count} scenarios: the loop fails {loop_failures}, docwharf {docwharf_failures}; {failed_run_count} could \
         not be run"
    );
    if docwharf_failures == 0 && failed_run_count == 0 && count > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
