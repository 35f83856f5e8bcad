//! Planner, jobs, backoff, holds, pins, labels, pruning and the record, as they are, on a machine that is simulated: its
//! clocks, its disk, its upstream, its operator. Everything fails at random; the promises are checked at every effect.
//!
//! An operation is one effect or one call: a call that leaves, an answer that arrives, a pause, a file read, written or
//! removed, a bundle proved, a version opened. `DOCWHARF_OPERATIONS` says how many operations are done in all, `DOCWHARF_SEED` repeats one run, `DOCWHARF_TRACE` tells
//! all of it.

#![allow(missing_docs)]

mod arrivals;
mod daemon;
mod disk;
mod keeper;
#[path = "interference.rs"]
mod meddling;
mod random;
mod rules;
mod settings;
mod sim;
mod upstream;
#[path = "environment.rs"]
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use docwharf::model::version::VersionLabel;
use docwharf::sync::{ApiSource, BundleLocation, SyncIntent};

use daemon::Ended;
use disk::{Content, Outside};
use random::Random;
use sim::{Broken, Crash, Faults, Sim};

/// Operations of one run.
const RUN: u64 = 20_000;
/// Operations of one stretch of faults, after which everything is well until the newest content is active.
const STRETCH: u64 = 2_000;
/// Starts that may fail in a row.
const STARTS: u32 = 20;
/// In how many operations that has to be so.
const SOON: u64 = 5_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// Does `work` until it ends in peace; crashes are followed by starts.
fn survive(sim: &Sim, mut work: impl FnMut() -> Result<(), Ended>) -> Result<(), String> {
    let mut in_vain = 0;
    loop {
        let running = sim.with(|s| s.daemon.agenda.is_some());
        let done = catch_unwind(AssertUnwindSafe(|| {
            if !running {
                sim.boot()?;
            }
            work()
        }));
        let power = match done {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(Ended)) => {
                sim.tell(|| "=== the process ends".to_owned());
                // Without a version there is nothing to stay up for; with one, it has to.
                let came_up = sim.with(|s| s.daemon.agenda.is_some());
                in_vain = if came_up { 0 } else { in_vain + 1 };
                if in_vain > STARTS {
                    return Err(format!("{in_vain} starts in a row have failed"));
                }
                if sim.happens(0.3) {
                    // What was missing is put there.
                    sim.with(|s| s.daemon.has_key = true);
                    sim.put_outside();
                }
                false
            }
            Err(payload) => match payload.downcast::<Crash>() {
                Ok(crash) => crash.power,
                Err(payload) => match payload.downcast::<Broken>() {
                    Ok(broken) => return Err(broken.0),
                    Err(payload) => {
                        let said = payload.downcast_ref::<&str>().map(ToString::to_string);
                        let said = said.or_else(|| payload.downcast_ref::<String>().cloned());
                        return Err(format!("a panic: {}", said.unwrap_or_default()));
                    }
                },
            },
        };
        sim.bury(power);
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| sim.check_after_crash())) {
            return Err(payload.downcast::<Broken>().map_or_else(|_| "a panic".to_owned(), |broken| broken.0));
        }
        sim.pass(Duration::from_secs(5));
    }
}

/// One run from one seed; how many operations it took.
fn run(seed: u64, operations: u64) -> Result<u64, (String, u64)> {
    let sim = Sim::new(seed);
    let told = |what: String, sim: &Sim| {
        let done = sim.with(|s| s.operations);
        let how = format!("DOCWHARF_SEED={seed} DOCWHARF_OPERATIONS={operations} cargo test --test simulation");
        (format!("{what}\nafter {done} operations of seed {seed}; again: {how}\n{}", sim.trace()), done)
    };
    while sim.with(|s| s.operations) < operations {
        let faults = sim.with(|s| {
            let of = |random: &mut Random, most: f64| if random.happens(0.3) { 0.0 } else { random.part() * most };
            let random = &mut s.random;
            Faults {
                calm: false,
                crash: of(random, 0.01),
                call: of(random, 0.3),
                disk: of(random, 0.02),
                meddling: of(random, 0.05),
            }
        });
        let until = sim.with(|s| {
            s.faults = faults;
            s.operations + STRETCH
        });
        survive(&sim, || sim.live(until, || false)).map_err(|what| told(what, &sim))?;
        calm(&sim).map_err(|what| told(what, &sim))?;
    }
    Ok(sim.with(|s| s.operations))
}

/// The faults have ended: what is newest becomes active soon.
fn calm(sim: &Sim) -> Result<(), String> {
    sim.tell(|| "=== everything is well from here on".to_owned());
    let mut config = sim.with(|s| {
        s.faults = Faults::NONE;
        s.weather.clear();
        s.disk.ballast = 0;
        s.daemon.has_key = true;
        settings::open(&s.daemon.config)
    });
    if config.pin.is_some() {
        let label = format!("pin {}", sim.with(|s| s.operations));
        config.pin = Some(VersionLabel::new(&label).expect("a label"));
    }
    let expected = publish(sim, &config);
    let mut told = false;
    let (from, since) = sim.with(|s| (s.operations, s.elapsed));
    survive(sim, || {
        if !told {
            told = true;
            sim.configure(Some(config.clone()));
            let _ = sim.release();
        }
        sim.live(from + SOON, || sim.is_active(expected))
    })?;
    let took = sim.with(|s| s.elapsed).saturating_sub(since);
    if !sim.is_active(expected) {
        return Err(format!("the newest content is not active after {SOON} operations and {took:?}"));
    }
    let most = config.interval * 3 + config.job_timeout * 2 + Duration::from_hours(2);
    if took > most {
        return Err(format!("the newest content became active only after {took:?}"));
    }
    sim.check_standing();
    mend(sim)
}

/// What is active is damaged: the look that follows brings it again, or something newer, and that is served.
fn mend(sim: &Sim) -> Result<(), String> {
    if let Some(id) = sim.with(|s| s.disk.record.as_ref().and_then(|record| record.active)) {
        sim.rot_away(id);
    }
    let from = sim.with(|s| s.operations);
    survive(sim, || sim.live(from + SOON, || sim.is_whole()))?;
    if sim.is_whole() { Ok(()) } else { Err(format!("what is active is still damaged after {SOON} operations")) }
}

/// New content where the configuration looks for it.
fn publish(sim: &Sim, config: &SyncIntent) -> Content {
    let modified = sim.with(|s| s.elapsed).as_nanos() as i64;
    sim.with(|s| {
        let content = s.upstream.write(&mut s.random, false);
        let other = s.upstream.write(&mut s.random, false);
        let pin = config.pin.as_ref().map(|pin| pin.as_str().to_owned());
        let by_hand = match (&config.api, &config.bundle) {
            (Some(api), _) => {
                s.upstream.published.insert((ApiSource::name(api), pin), content);
                other
            }
            _ => content,
        };
        s.upstream.link = Some(by_hand);
        s.disk.outside.insert(PathBuf::from(settings::FILE), Outside { content: by_hand, modified });
        match (&config.api, &config.bundle) {
            // Under a pin the first bundle with that label is it.
            (Some(_), Some(BundleLocation::Link(_) | BundleLocation::File(_))) if pin_wants_bundle(config, s) => {
                by_hand
            }
            _ => content,
        }
    })
}

/// With both sources the bundle is for an empty store.
fn pin_wants_bundle(config: &SyncIntent, state: &sim::State) -> bool {
    config.pin.is_some() && state.disk.versions.is_empty()
}

#[test]
fn whatever_fails_the_promises_hold() {
    let began = Instant::now();
    let all = number("DOCWHARF_OPERATIONS").unwrap_or(1_000_000);
    if let Some(seed) = number("DOCWHARF_SEED") {
        match run(seed, all) {
            Ok(done) => println!("seed {seed}: {done} operations"),
            Err((what, _)) => panic!("{what}"),
        }
        return;
    }
    let (mut done, mut seed) = (0, 1);
    while done < all {
        match run(seed, RUN.min(all)) {
            Ok(operations) => done += operations,
            Err((what, operations)) => panic!("{what}\n({} operations in all)", done + operations),
        }
        seed += 1;
    }
    let took = began.elapsed().as_secs_f64();
    println!("{done} operations of seeds 1 to {} in {took:.1} s: {:.0} a second", seed - 1, done as f64 / took);
}
