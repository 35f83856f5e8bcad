//! The power goes out after each step by which the real program changes what lies on disk. Its store lies on an ext4 of its
//! own, which is shut down at that instant by the ioctl that ext4 has for such tests, and mounted again: what was not
//! brought to disk is gone. Then the old site or the new one is there, whole, and what was said to be done is done.
//!
//! As root, with loop devices: `.ci/extra powercut`, or `cargo test --locked --test store powercut:: -- --ignored --nocapture`.

// For the ioctl, which no library has, and for a thread's own mounts.
#![allow(unsafe_code)]

use std::fmt::Write as _;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::steps::{Scenario, World, counts, scenario};
use crate::tracer::{Step, Then};
use rustix::thread::UnshareFlags;
use support::quick_folder;
use support::until;

/// What of the journal reaches the disk before the power goes.
#[derive(Clone, Copy)]
enum Cut {
    /// Nothing that was not brought there on purpose.
    Nothing,
    /// All of it, but not the content of files: each name and each size may be there before the bytes are.
    NamesOnly,
}

impl Cut {
    /// Ext4 has ways to guess what programs meant that do not sync before they rename; none of them helps here.
    fn options(self) -> &'static str {
        match self {
            Cut::Nothing => "loop,data=ordered,noauto_da_alloc",
            Cut::NamesOnly => "loop,data=writeback,noauto_da_alloc",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Cut::Nothing => "what was not synced is gone",
            Cut::NamesOnly => "names are there, content is not",
        }
    }

    /// Ends the file system at `disk` at once.
    fn fall(self, disk: &Path) {
        const EXT4_IOC_SHUTDOWN: u32 = 0x8004_587d;
        let flag: u32 = match self {
            Cut::Nothing => 2,   // NOLOGFLUSH
            Cut::NamesOnly => 1, // LOGFLUSH
        };
        let folder = File::open(disk).expect("the disk is there");
        // SAFETY: the request reads one number.
        let done = unsafe { libc::ioctl(folder.as_raw_fd(), EXT4_IOC_SHUTDOWN.into(), &raw const flag) };
        assert_eq!(done, 0, "ext4 can be shut down: {}", std::io::Error::last_os_error());
    }
}

fn tool(name: &str, arguments: &[&std::ffi::OsStr]) {
    let done = Command::new(name).args(arguments).output().unwrap_or_else(|error| panic!("{name}: {error}"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{name} {arguments:?}: {said} (these tests need root and loop devices)");
}

/// An ext4 that is mounted; no longer when dropped.
struct Disk {
    at: PathBuf,
}

impl Disk {
    fn mount(image: &Path, at: &Path, options: &str) -> Disk {
        // The loop device of the time before is given back a moment after its file system was unmounted.
        let is_free = || {
            let holders = Command::new("losetup").arg("--associated").arg(image).output().expect("losetup runs");
            holders.stdout.is_empty()
        };
        until("the image is nobody's", is_free);
        tool("mount", &["-o".as_ref(), options.as_ref(), image.as_ref(), at.as_ref()]);
        Disk { at: at.to_owned() }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let unmounted = || Command::new("umount").arg(&self.at).output().is_ok_and(|done| done.status.success());
        if std::thread::panicking() {
            // All mounts end with the thread.
            unmounted();
        } else {
            // A child that another thread has just forked holds our descriptors until it becomes its program.
            until("the disk is no longer in use", unmounted);
        }
    }
}

/// Mounts of this thread are its own, and gone with it.
fn with_own_mounts() {
    // SAFETY: no descriptor is taken from anybody by that.
    let unshared = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) };
    unshared.unwrap_or_else(|error| panic!("these tests need root, to mount: {error}"));
    tool("mount", &["--make-rprivate".as_ref(), "/".as_ref()]);
}

/// The scenario's disk before it begins, as an image.
fn image(scenario: &Scenario, path: &Path) {
    File::create(path).and_then(|file| file.set_len(32 << 20)).expect("a file can be made");
    tool("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), "-m".as_ref(), "0".as_ref(), path.as_ref()]);
    let world = World::without_disk(scenario);
    let disk = Disk::mount(path, &world.disk(), "loop");
    world.fill();
    drop(disk);
}

/// The power goes after `step`, or after the end; gives what was served afterwards.
fn cut_at(scenario: &Scenario, image: &Path, step: Option<&Step>, cut: Cut) -> String {
    let after = step.map_or_else(|| "its end".to_owned(), ToString::to_string);
    let at = format!("{}: {} after {after}", scenario.name, cut.name());
    for _ in 0..3 {
        let dir = quick_folder();
        let own = dir.path().join("image");
        tool("cp", &["--sparse=always".as_ref(), image.as_ref(), own.as_ref()]);
        let world = World::without_disk(scenario);
        let disk = Disk::mount(&own, &world.disk(), cut.options());
        let place = world.disk();
        let fall = || cut.fall(&place);
        let ran = world.play(step.map(|step| (step, Then::DoAndKill(&fall))));
        if step.is_some() && !ran.reached {
            continue;
        }
        if step.is_none() {
            assert_eq!(ran.code, Some(0), "{at}: {ran:?}");
            fall();
        }
        drop(disk);
        let disk = Disk::mount(&own, &world.disk(), cut.options());
        let outcome = world.judge(&at, world.is_acknowledged(&ran));
        drop(disk);
        return outcome;
    }
    panic!("{at}: never reached");
}

/// All steps of these scenarios, by so many threads; each cut has a disk of its own.
fn all_cuts(names: &[&str], threads: usize) {
    with_own_mounts();
    for name in names {
        let scenario = scenario(name);
        let dir = quick_folder();
        let image_path = dir.path().join("image");
        image(&scenario, &image_path);
        let steps = scenario.steps();
        let all: Vec<Option<&Step>> = steps.iter().map(Some).chain([None]).collect();
        let left = Mutex::new(0..all.len());
        let outcomes = Mutex::new(vec![[const { String::new() }; 2]; all.len()]);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    with_own_mounts();
                    loop {
                        let Some(n) = left.lock().expect("no panic while it is held").next() else { break };
                        let cut = |cut| cut_at(&scenario, &image_path, all[n], cut);
                        let outcome = [cut(Cut::Nothing), cut(Cut::NamesOnly)];
                        outcomes.lock().expect("no panic while it is held")[n] = outcome;
                    }
                });
            }
        });
        tell(name, &all, &outcomes.into_inner().expect("no panic while it is held"));
    }
}

/// Each step, then one line for TESTING.md.
fn tell(name: &str, all: &[Option<&Step>], outcomes: &[[String; 2]]) {
    let mut table = format!("\n{name}: {} steps\n", all.len());
    for (step, row) in all.iter().zip(outcomes) {
        let after = step.map_or_else(|| "its end".to_owned(), ToString::to_string);
        let _ = writeln!(table, "  {:<15} {:<15} {after}", row[0], row[1]);
    }
    println!("{table}");
    println!("| {name} | {} | {} | {} |", all.len(), counts(outcomes, 0), counts(outcomes, 1));
}

#[test]
#[ignore = "needs root and loop devices: .ci/extra powercut"]
fn the_power_goes_at_any_step_of_an_import_or_a_sync() {
    all_cuts(&["import", "import of a tar", "first sync", "sync", "sync of a job"], 2);
    all_cuts(&["import of what a label keeps", "sync of what is there", "sync that goes back"], 2);
}

#[test]
#[ignore = "needs root and loop devices: .ci/extra powercut"]
fn the_power_goes_at_any_step_of_a_daemon_that_takes_a_bundle() {
    all_cuts(&["inbox"], 16);
}

#[test]
#[ignore = "needs root and loop devices: .ci/extra powercut"]
fn the_power_goes_at_any_step_of_a_verb_or_of_publishing() {
    all_cuts(&["activate", "rollback", "hold", "release", "gc", "publish"], 2);
}
