//! Each step by which the real program changes what lies on disk, three times: killed before the system call, killed right
//! after it, and with the call failing as on a disk that is full or broken. After each, the old site or the new one is
//! there, whole, and what was said to be done is done.
//!
//! `cargo test --locked --test store matrix:: -- --nocapture` prints each step with what was served afterwards.

use std::fmt::Write as _;
use std::sync::Mutex;

use crate::steps::{Scenario, World, counts, scenario};
use crate::tracer::{CAN_FAIL, Step, Then};
use support::Ended;
use support::host::judged;

/// What a call says that can do no more.
fn error_of(step: &Step) -> (i32, &'static str) {
    match step.call {
        "fsync" | "syncfs" | "remove" | "chmod" | "chown" | "date" => (libc::EIO, "Input/output error"),
        _ => (libc::ENOSPC, "no space"),
    }
}

/// One interruption; gives what was served afterwards.
fn interrupt(scenario: &Scenario, step: &Step, how: &str) -> String {
    let at = format!("{}: {how} {step}", scenario.name);
    let (number, words) = error_of(step);
    let then = match how {
        "killed before" => Then::KillBefore,
        "killed after" => Then::KillAfter,
        _ => Then::Fail(number),
    };
    let (world, ran) = World::reaching(scenario, step, then);
    let acknowledged = world.is_acknowledged(&ran);
    let mut outcome = String::new();
    if let Then::Fail(_) = then {
        let code = ran.code.unwrap_or_else(|| panic!("{at}: ended by a signal: {ran:?}"));
        let ended = Ended { code: ran.code, stdout: ran.stdout, stderr: ran.stderr };
        if code != 0 {
            let ended = judged(8, ended);
            assert!(ended.stderr.to_lowercase().contains(&words.to_lowercase()), "{at}: {}", ended.stderr);
        }
        let _ = write!(outcome, "{code} ");
    } else {
        assert_eq!(ran.code, None, "{at}: it was not killed");
    }
    let served = world.judge(&at, acknowledged);
    outcome.push_str(&served);
    outcome
}

/// What lasts is brought to disk before it gets its name, and the name after it. Ext4 brings all names to disk with
/// whatever is synced next, so no power cut there shows that one of these is missing; others do not.
fn assert_synced(name: &str, steps: &[Step]) {
    let is = |step: &Step, calls: &[&str], path: &str| calls.contains(&step.call) && step.path == path;
    // All that is written below `path` before the n-th step is on disk by then.
    let is_on_disk = |path: &str, n: usize| {
        let last = steps[..n].iter().rposition(|step| is(step, &["create", "write", "truncate", "mkdir"], path));
        let after = &steps[last.map_or(0, |last| last + 1)..n];
        after.iter().any(|step| step.call == "syncfs" || is(step, &["fsync"], path))
    };
    let mut seen = 0;
    for (n, step) in steps.iter().enumerate() {
        if is(step, &["write"], "store/history.jsonl") {
            let next = steps.get(n + 1);
            assert!(next.is_some_and(|next| is(next, &["fsync"], &step.path)), "{name}: {step}, then {next:?}");
        }
        let Some((from, to)) = step.path.split_once(" to ").filter(|_| step.call == "rename") else { continue };
        // What goes, what is on its way, what nobody needs after a restart. A bundle that is back in the inbox is known.
        if ["store/staging/", "inbox/", "store/.control.sock.new"]
            .iter()
            .any(|name| to.starts_with(name) || from == *name)
        {
            continue;
        }
        seen += 1;
        let mut needed: Vec<&str> = steps[..n]
            .iter()
            .filter(|step| ["create", "write"].contains(&step.call))
            .map(|step| step.path.as_str())
            .filter(|path| *path == from || path.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')))
            .collect();
        let image = format!("{from}/site.zip");
        if to.starts_with("store/versions/") {
            needed.extend([from, &image]);
        }
        for path in needed {
            assert!(is_on_disk(path, n), "{name}: {step}, and {path} is not on disk");
        }
        let folder = to.rsplit_once('/').map_or(".", |(folder, _)| folder);
        let named = steps[n..].iter().any(|step| is(step, &["fsync"], folder));
        assert!(named, "{name}: {step}, and the name is not brought to disk");
    }
    assert!(seen > 0 || name == "gc", "{name}: nothing was renamed");
}

const WAYS: [&str; 3] = ["killed before", "killed after", "failing"];

/// All steps of a scenario, by so many threads; each interruption has a place of its own.
fn all_steps(name: &str, threads: usize) {
    steps_interrupted(name, threads, if CAN_FAIL { &[0, 1, 2] } else { &[0, 1] });
}

/// The same, but only with calls that fail: that is where something is taken back again.
fn failing_steps(name: &str, threads: usize) {
    if CAN_FAIL {
        steps_interrupted(name, threads, &[2]);
    }
}

/// `ways` are indices of [`WAYS`].
fn steps_interrupted(name: &str, threads: usize, ways: &[usize]) {
    let scenario = scenario(name);
    let steps = scenario.steps();
    assert_synced(name, &steps);
    let jobs: Vec<(usize, usize)> =
        (0..steps.len()).flat_map(|step| ways.iter().map(move |&way| (step, way))).collect();
    let left = Mutex::new(jobs.iter());
    let outcomes = Mutex::new(vec![[const { String::new() }; 3]; steps.len()]);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let Some(&(step, way)) = left.lock().expect("no panic while it is held").next() else { break };
                    let outcome = interrupt(&scenario, &steps[step], WAYS[way]);
                    outcomes.lock().expect("no panic while it is held")[step][way] = outcome;
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
    let [before, after, failing] =
        [0, 1, 2].map(|way| if ways.contains(&way) { counts(&outcomes, way) } else { "–".to_owned() });
    println!("| {name} | {} | {before} | {after} | {failing} |", steps.len());
    assert!(steps.len() >= 4, "the program was not seen: {steps:?}");
}

#[test]
fn an_import_interrupted_at_any_step_leaves_the_old_site_or_the_new_one() {
    all_steps("import", 2);
    all_steps("import of a tar", 2);
}

#[test]
fn what_is_there_is_there_after_an_import_or_a_sync_of_it_was_interrupted_at_any_step() {
    for name in ["import of what a label keeps", "sync of what is there", "sync that goes back"] {
        all_steps(name, 2);
    }
    for name in ["import of what is there", "import of what is active"] {
        failing_steps(name, 2);
    }
}

#[test]
fn the_first_sync_interrupted_at_any_step_leaves_nothing_or_the_new_site() {
    all_steps("first sync", 2);
}

#[test]
fn a_sync_interrupted_at_any_step_leaves_the_old_site_or_the_new_one() {
    all_steps("sync", 2);
    all_steps("sync of a job", 4);
}

#[test]
fn a_verb_interrupted_at_any_step_is_done_or_not_done() {
    for name in ["activate", "rollback", "hold", "release"] {
        all_steps(name, 2);
    }
}

#[test]
fn pruning_interrupted_at_any_step_takes_no_version_that_must_stay() {
    all_steps("gc", 2);
}

#[test]
fn publishing_interrupted_at_any_step_leaves_one_whole_site_in_the_folder() {
    all_steps("publish", 2);
    failing_steps("publish of what is there", 2);
}

#[test]
fn a_daemon_interrupted_at_any_step_of_taking_a_bundle_loses_neither_site_nor_bundle() {
    all_steps("inbox", 16);
}
