//! Simulated power cuts after each system call by which the real program changes files. The store is on an ext4 image,
//! which the ioctl `EXT4_IOC_SHUTDOWN` shuts down at that moment. Data that was not synced is lost. After the next
//! mount the store has the complete old site or the complete new one, and an action that was reported as done is done.
//!
//! As root, with loop devices: `.ci/extra powercut`, or `cargo test --locked --test store powercut:: -- --ignored
//! --nocapture`.

// For the ioctl, which no library offers, and for separate mounts of a thread.
#![allow(unsafe_code)]

use std::fmt::Write as _;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::steps::{Scenario, ScenarioRun, count_outcomes, scenario};
use crate::tracer::{Interruption, Step};
use rustix::thread::UnshareFlags;
use support::memory_folder;
use support::until;

/// The unsynced data that reaches the disk before the power cut.
#[derive(Clone, Copy)]
enum PowerCut {
    /// None: only synced data is on disk.
    SyncedOnly,
    /// The complete journal, without the content of files: names and sizes may be on disk without the bytes.
    JournalFlushed,
}

impl PowerCut {
    /// Mount options. `noauto_da_alloc` turns off the heuristics of ext4 for programs that rename without a sync.
    fn options(self) -> &'static str {
        match self {
            PowerCut::SyncedOnly => "loop,data=ordered,noauto_da_alloc",
            PowerCut::JournalFlushed => "loop,data=writeback,noauto_da_alloc",
        }
    }

    fn name(self) -> &'static str {
        match self {
            PowerCut::SyncedOnly => "unsynced data is lost",
            PowerCut::JournalFlushed => "names are there, content is not",
        }
    }

    /// Shuts down the file system at `disk` at once.
    fn shut_down(self, disk: &Path) {
        const EXT4_IOC_SHUTDOWN: u32 = 0x8004_587d;
        let flag: u32 = match self {
            PowerCut::SyncedOnly => 2,     // NOLOGFLUSH
            PowerCut::JournalFlushed => 1, // LOGFLUSH
        };
        let folder = File::open(disk).expect("the disk is there");
        // SAFETY: the request reads one number.
        let result = unsafe { libc::ioctl(folder.as_raw_fd(), EXT4_IOC_SHUTDOWN.into(), &raw const flag) };
        assert_eq!(result, 0, "ext4 can be shut down: {}", std::io::Error::last_os_error());
    }
}

fn run_tool(name: &str, arguments: &[&std::ffi::OsStr]) {
    let output = Command::new(name).args(arguments).output().unwrap_or_else(|error| panic!("{name}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {arguments:?}: {stderr} (these tests need root and loop devices)");
}

/// A mounted ext4 image. It is unmounted when this is dropped.
struct MountedDisk {
    mount_point: PathBuf,
}

impl MountedDisk {
    fn mount(image: &Path, mount_point: &Path, options: &str) -> MountedDisk {
        // The kernel releases the loop device of the last mount a moment after its file system was unmounted.
        let is_free = || {
            let holders = Command::new("losetup").arg("--associated").arg(image).output().expect("losetup runs");
            holders.stdout.is_empty()
        };
        until("the loop device is released", is_free);
        run_tool("mount", &["-o".as_ref(), options.as_ref(), image.as_ref(), mount_point.as_ref()]);
        MountedDisk { mount_point: mount_point.to_owned() }
    }
}

impl Drop for MountedDisk {
    fn drop(&mut self) {
        let unmounted =
            || Command::new("umount").arg(&self.mount_point).output().is_ok_and(|done| done.status.success());
        if std::thread::panicking() {
            // All mounts end with the thread.
            unmounted();
        } else {
            // A child that another thread has just forked has copies of all descriptors until its exec.
            until("the disk is no longer in use", unmounted);
        }
    }
}

/// Gives this thread its own mounts, which end with it.
fn unshare_mounts() {
    // SAFETY: the flag unshares only mounts. All descriptors stay valid.
    let unshared = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) };
    unshared.unwrap_or_else(|error| panic!("these tests need root, to mount: {error}"));
    run_tool("mount", &["--make-rprivate".as_ref(), "/".as_ref()]);
}

/// Makes an ext4 image with the state before the action.
fn make_image(scenario: &Scenario, path: &Path) {
    File::create(path).and_then(|file| file.set_len(32 << 20)).expect("a file can be made");
    run_tool("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), "-m".as_ref(), "0".as_ref(), path.as_ref()]);
    let run = ScenarioRun::without_disk(scenario);
    let disk = MountedDisk::mount(path, &run.disk(), "loop");
    run.copy_disk();
    drop(disk);
}

/// Runs the scenario with a power cut after `step`, or after its end. Returns the site served afterwards.
fn run_with_power_cut(scenario: &Scenario, image: &Path, step: Option<&Step>, cut: PowerCut) -> String {
    let after = step.map_or_else(|| "its end".to_owned(), ToString::to_string);
    let case = format!("{}: {} after {after}", scenario.name, cut.name());
    for _ in 0..3 {
        let dir = memory_folder();
        let own_image = dir.path().join("image");
        run_tool("cp", &["--sparse=always".as_ref(), image.as_ref(), own_image.as_ref()]);
        let run = ScenarioRun::without_disk(scenario);
        let disk = MountedDisk::mount(&own_image, &run.disk(), cut.options());
        let disk_path = run.disk();
        let shut_down = || cut.shut_down(&disk_path);
        let result = run.run_scenario(step.map(|step| (step, Interruption::DoAndKill(&shut_down))));
        if step.is_some() && !result.was_reached {
            continue;
        }
        if step.is_none() {
            assert_eq!(result.code, Some(0), "{case}: {result:?}");
            shut_down();
        }
        drop(disk);
        let disk = MountedDisk::mount(&own_image, &run.disk(), cut.options());
        let outcome = run.assert_consistent(&case, run.is_acknowledged(&result));
        drop(disk);
        return outcome;
    }
    panic!("{case}: never reached");
}

/// Cuts the power after each step of these scenarios, with `threads` threads. Each cut has a separate image.
fn cut_at_all_steps(names: &[&str], threads: usize) {
    unshare_mounts();
    for name in names {
        let scenario = scenario(name);
        let dir = memory_folder();
        let image_path = dir.path().join("image");
        make_image(&scenario, &image_path);
        let steps = scenario.steps();
        let steps_and_end: Vec<Option<&Step>> = steps.iter().map(Some).chain([None]).collect();
        let remaining = Mutex::new(0..steps_and_end.len());
        let outcomes = Mutex::new(vec![[const { String::new() }; 2]; steps_and_end.len()]);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    unshare_mounts();
                    loop {
                        let Some(n) = remaining.lock().expect("no panic while it is held").next() else { break };
                        let cut = |cut| run_with_power_cut(&scenario, &image_path, steps_and_end[n], cut);
                        let outcome = [cut(PowerCut::SyncedOnly), cut(PowerCut::JournalFlushed)];
                        outcomes.lock().expect("no panic while it is held")[n] = outcome;
                    }
                });
            }
        });
        print_table(name, &steps_and_end, &outcomes.into_inner().expect("no panic while it is held"));
    }
}

/// Prints each step, then one line for TESTING.md.
fn print_table(name: &str, steps_and_end: &[Option<&Step>], outcomes: &[[String; 2]]) {
    let mut table = format!("\n{name}: {} steps\n", steps_and_end.len());
    for (step, row) in steps_and_end.iter().zip(outcomes) {
        let after = step.map_or_else(|| "its end".to_owned(), ToString::to_string);
        let _ = writeln!(table, "  {:<15} {:<15} {after}", row[0], row[1]);
    }
    println!("{table}");
    println!(
        "| {name} | {} | {} | {} |",
        steps_and_end.len(),
        count_outcomes(outcomes, 0),
        count_outcomes(outcomes, 1)
    );
}

#[test]
#[ignore = "needs root and loop devices: .ci/extra powercut"]
fn a_power_cut_at_any_step_of_an_import_or_sync_leaves_the_old_or_new_site() {
    cut_at_all_steps(&["import", "import of a tar", "first sync", "sync", "sync of a job"], 2);
    cut_at_all_steps(&["import of a labelled version", "sync of stored content", "sync to an earlier bundle"], 2);
}

#[test]
#[ignore = "needs root and loop devices: .ci/extra powercut"]
fn a_power_cut_at_any_step_of_an_inbox_import_leaves_the_old_or_new_site() {
    cut_at_all_steps(&["inbox"], 16);
}

#[test]
#[ignore = "needs root and loop devices: .ci/extra powercut"]
fn a_power_cut_at_any_step_of_a_command_or_publishing_leaves_a_complete_site() {
    cut_at_all_steps(&["activate", "rollback", "hold", "release", "gc", "publish"], 2);
}
