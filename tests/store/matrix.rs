//! Each system call by which the real program changes files is interrupted three times: the program is killed before
//! the call, killed right after it, or the call fails as on a full or broken disk. Afterwards the store has the
//! complete old site or the complete new one, and an action that was reported as done is done.
//!
//! `cargo test --locked --test store matrix:: -- --nocapture` prints each step with what was served afterwards.

use std::fmt::Write as _;
use std::sync::Mutex;

use crate::steps::{Scenario, ScenarioRun, count_outcomes, scenario};
use crate::tracer::{CAN_FAIL, Interruption, Step};
use support::CommandOutput;
use support::host::expect_plain_exit;

/// The error with which a call fails: its number, and a part of docwharf's message.
fn call_error(step: &Step) -> (i32, &'static str) {
    match step.call {
        "fsync" | "syncfs" | "remove" | "chmod" | "chown" | "date" => (libc::EIO, "Input/output error"),
        _ => (libc::ENOSPC, "no space"),
    }
}

/// Runs the scenario with one interruption. Returns the outcome as text: the exit code, if any, and the site
/// served afterwards.
fn interrupt(scenario: &Scenario, step: &Step, method: &str) -> String {
    let case = format!("{}: {method} {step}", scenario.name);
    let (number, message) = call_error(step);
    let interruption = match method {
        "killed before" => Interruption::KillBefore,
        "killed after" => Interruption::KillAfter,
        _ => Interruption::Fail(number),
    };
    let (run, result) = ScenarioRun::run_to_step(scenario, step, interruption);
    let acknowledged = run.is_acknowledged(&result);
    let mut outcome = String::new();
    if let Interruption::Fail(_) = interruption {
        let code = result.code.unwrap_or_else(|| panic!("{case}: ended by a signal: {result:?}"));
        let ended = CommandOutput { code: result.code, stdout: result.stdout, stderr: result.stderr };
        if code != 0 {
            let ended = expect_plain_exit(8, ended);
            assert!(ended.stderr.to_lowercase().contains(&message.to_lowercase()), "{case}: {}", ended.stderr);
        }
        let _ = write!(outcome, "{code} ");
    } else {
        assert_eq!(result.code, None, "{case}: it was not killed");
    }
    let served_site = run.assert_consistent(&case, acknowledged);
    outcome.push_str(&served_site);
    outcome
}

/// Checks that each persistent file is synced before its rename, and its folder after it. Ext4 writes all renames with
/// the next sync, so a power cut on ext4 does not show a missing sync. Other file systems need each of them.
fn assert_synced(name: &str, steps: &[Step]) {
    let matches = |step: &Step, calls: &[&str], path: &str| calls.contains(&step.call) && step.path == path;
    // Whether the last change of `path` before the n-th step is synced by then.
    let is_on_disk = |path: &str, n: usize| {
        let last = steps[..n].iter().rposition(|step| matches(step, &["create", "write", "truncate", "mkdir"], path));
        let after = &steps[last.map_or(0, |last| last + 1)..n];
        after.iter().any(|step| step.call == "syncfs" || matches(step, &["fsync"], path))
    };
    let mut renames = 0;
    for (n, step) in steps.iter().enumerate() {
        if matches(step, &["write"], "store/history.jsonl") {
            let next = steps.get(n + 1);
            assert!(next.is_some_and(|next| matches(next, &["fsync"], &step.path)), "{name}: {step}, then {next:?}");
        }
        let Some((from, to)) = step.path.split_once(" to ").filter(|_| step.call == "rename") else { continue };
        // Files to be removed, incoming versions and the control socket need no sync, nor does a bundle moved in the
        // inbox.
        if ["store/staging/", "inbox/", "store/.control.sock.new"]
            .iter()
            .any(|name| to.starts_with(name) || from == *name)
        {
            continue;
        }
        renames += 1;
        let mut paths: Vec<&str> = steps[..n]
            .iter()
            .filter(|step| ["create", "write"].contains(&step.call))
            .map(|step| step.path.as_str())
            .filter(|path| *path == from || path.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')))
            .collect();
        let image = format!("{from}/site.zip");
        if to.starts_with("store/versions/") {
            paths.extend([from, &image]);
        }
        for path in paths {
            assert!(is_on_disk(path, n), "{name}: {step}, and {path} is not synced");
        }
        let folder = to.rsplit_once('/').map_or(".", |(folder, _)| folder);
        let is_synced = steps[n..].iter().any(|step| matches(step, &["fsync"], folder));
        assert!(is_synced, "{name}: {step}, and the folder is not synced");
    }
    assert!(renames > 0 || name == "gc", "{name}: nothing was renamed");
}

const METHODS: [&str; 3] = ["killed before", "killed after", "failing"];

/// Interrupts all steps of a scenario by all methods, with `threads` threads. Each interruption has a folder of its
/// own.
fn all_steps(name: &str, threads: usize) {
    steps_interrupted(name, threads, if CAN_FAIL { &[0, 1, 2] } else { &[0, 1] });
}

/// Makes each call of a scenario fail, without kills: only after a failed call does the program undo earlier steps.
fn failing_steps(name: &str, threads: usize) {
    if CAN_FAIL {
        steps_interrupted(name, threads, &[2]);
    }
}

/// Interrupts all steps. `methods` are indices of [`METHODS`].
fn steps_interrupted(name: &str, threads: usize, methods: &[usize]) {
    let scenario = scenario(name);
    let steps = scenario.steps();
    assert_synced(name, &steps);
    let jobs: Vec<(usize, usize)> =
        (0..steps.len()).flat_map(|step| methods.iter().map(move |&method| (step, method))).collect();
    let remaining_jobs = Mutex::new(jobs.iter());
    let outcomes = Mutex::new(vec![[const { String::new() }; 3]; steps.len()]);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let Some(&(step, method)) = remaining_jobs.lock().expect("no panic while it is held").next() else {
                        break;
                    };
                    let outcome = interrupt(&scenario, &steps[step], METHODS[method]);
                    outcomes.lock().expect("no panic while it is held")[step][method] = outcome;
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().expect("no panic while it is held");
    let mut table = format!("\n{name}: {} steps\n", steps.len());
    for (step, row) in steps.iter().zip(&outcomes) {
        let _ = writeln!(table, "  {:<15} {:<15} {:<15} {step}", row[0], row[1], row[2]);
    }
    println!("{table}");
    // One line for TESTING.md.
    let [before, after, failing] = [0, 1, 2]
        .map(|method| if methods.contains(&method) { count_outcomes(&outcomes, method) } else { "–".to_owned() });
    println!("| {name} | {} | {before} | {after} | {failing} |", steps.len());
    assert!(steps.len() >= 4, "the tracer recorded too few steps: {steps:?}");
}

#[test]
fn an_import_interrupted_at_any_step_leaves_the_old_site_or_the_new_one() {
    all_steps("import", 2);
    all_steps("import of a tar", 2);
}

#[test]
fn importing_or_syncing_stored_content_interrupted_at_any_step_keeps_the_version() {
    for name in ["import of a labelled version", "sync of stored content", "sync to an earlier bundle"] {
        all_steps(name, 2);
    }
    for name in ["import of stored content", "import of the active content"] {
        failing_steps(name, 2);
    }
}

#[test]
fn the_first_sync_interrupted_at_any_step_leaves_nothing_or_the_new_site() {
    all_steps("first sync", 2);
}

// Regression: killed between accepting a version and pruning, a store had one version more than `keep` until the next
// one arrived.
#[test]
fn a_sync_interrupted_at_any_step_leaves_the_old_site_or_the_new_one() {
    all_steps("sync", 2);
    all_steps("sync of a job", 4);
}

#[test]
fn a_command_interrupted_at_any_step_takes_effect_completely_or_not_at_all() {
    for name in ["activate", "rollback", "hold", "release"] {
        all_steps(name, 2);
    }
}

#[test]
fn pruning_interrupted_at_any_step_removes_no_protected_version() {
    all_steps("gc", 2);
}

#[test]
fn publishing_interrupted_at_any_step_leaves_one_whole_site_in_the_folder() {
    all_steps("publish", 2);
    failing_steps("publish of published content", 2);
}

#[test]
fn a_daemon_interrupted_at_any_step_of_an_inbox_import_loses_no_site_or_bundle() {
    all_steps("inbox", 16);
}
