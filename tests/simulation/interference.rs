//! Interference from outside the process: commands, changes of the content, failing networks, clock adjustments, and
//! other programs on the same disk.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use docwharf::model::version::{VersionId, VersionLabel};
use docwharf::net::request_error::{RequestError, RequestErrorCause};
use docwharf::store::operations::StoreOperations;
use docwharf::sync::operator;
use docwharf::sync::plan::SyncTrigger;
use docwharf::sync::record_recovery::read_record;
use docwharf::sync::{ApiSource, SyncError};

use super::disk::BundleFile;
use super::rules::{HoldState, Host};
use super::settings;
use super::sim::{Actor, Sim};
use super::upstream::State;

/// A fault of a host that lasts for some time.
#[derive(Debug, Clone)]
pub(crate) struct Outage {
    until: Duration,
    host: Host,
    cause: RequestErrorCause,
    retry_after: Option<Duration>,
}

const CAUSES: [RequestErrorCause; 13] = [
    RequestErrorCause::NotConnected,
    RequestErrorCause::NotConnected,
    RequestErrorCause::NoUsableResponse,
    RequestErrorCause::NoUsableResponse,
    RequestErrorCause::Unreadable,
    RequestErrorCause::Status(429),
    RequestErrorCause::Status(429),
    RequestErrorCause::Status(500),
    RequestErrorCause::Status(503),
    RequestErrorCause::Status(409),
    RequestErrorCause::Status(401),
    RequestErrorCause::Status(403),
    RequestErrorCause::RefusedRedirect,
];

impl Sim {
    fn random_fault(&self) -> (RequestErrorCause, Option<Duration>) {
        self.with(|s| {
            let cause = s.random.pick(&CAUSES);
            let has_retry_after = matches!(cause, RequestErrorCause::Status(429 | 503)) && s.random.happens(0.5);
            (cause, has_retry_after.then(|| Duration::from_secs(s.random.pick(&[1, 5, 30, 59, 61, 600, 5000]))))
        })
    }

    /// Returns the error of a call, if it fails.
    pub(crate) fn call_error(&self, host: Host) -> Option<RequestError> {
        let outage = self.with(|s| s.outages.iter().find(|o| o.host == host && s.elapsed < o.until).cloned());
        let (cause, retry_after) = match outage {
            Some(outage) if self.happens(0.9) => (outage.cause, outage.retry_after),
            _ if self.happens(self.with(|s| s.faults.call)) => self.random_fault(),
            _ => return None,
        };
        let mut error = RequestError::new(cause, format!("{cause:?}"));
        error.retry_after = retry_after;
        Some(error)
    }

    /// Lets one random interference happen.
    pub(crate) fn interfere(&self) {
        if self.with(|s| s.actor.is_person()) {
            // Commands run one after another, but a task may run at the same time.
            return self.run_task_meanwhile();
        }
        if self.with(|s| s.daemon.scheduler.is_none()) {
            return;
        }
        match self.below(100) {
            0..=17 => self.change_content(),
            18..=22 => self.replace_bundle_file(),
            23..=30 => self.start_outage(),
            31..=33 => self.set_clock(),
            34..=37 => self.fill_disk(),
            38..=39 => self.remove_job(),
            40..=46 => self.configure(None),
            47..=50 => self.send_sighup(),
            51..=53 => self.toggle_key(),
            54..=58 => self.request_sync(SyncTrigger::Command),
            59..=60 => self.request_sync(SyncTrigger::Refresh),
            61..=64 => self.import_bundle(),
            65 => self.damage_any(),
            n => self.run_command(n),
        }
    }

    fn source(&self) -> Option<(String, Option<String>)> {
        self.with(|s| {
            let config = &s.daemon.config;
            let pin = config.pin.as_ref().map(|pin| pin.as_str().to_owned());
            config.api.as_ref().map(|api| (ApiSource::name(api), pin))
        })
    }

    fn change_content(&self) {
        let source = self.source();
        self.with(|s| {
            let hostile = s.random.happens(0.1);
            let content = s.upstream.create_or_reuse_content(&mut s.random, s.disk.active(), hostile);
            match source {
                Some(source) if s.random.happens(0.8) => drop(s.upstream.published.insert(source, content)),
                _ => s.upstream.link = Some(content),
            }
        });
        self.log(|| "~~~ the content changes".to_owned());
    }

    pub(crate) fn replace_bundle_file(&self) {
        let modified = self.wall_clock() * 1_000_000_000;
        self.with(|s| {
            let hostile = s.random.happens(0.2);
            let content = s.upstream.create_or_reuse_content(&mut s.random, s.disk.active(), hostile);
            s.disk.bundle_files.insert(PathBuf::from(settings::FILE), BundleFile { content, modified });
            if matches!(s.daemon.config.bundle, Some(docwharf::sync::BundleLocation::File(_))) {
                s.rules.reset_waits();
                if let Some(scheduler) = &mut s.daemon.scheduler {
                    scheduler.wake(SyncTrigger::RegularCheck);
                }
            }
        });
        self.log(|| "~~~ the bundle file is replaced".to_owned());
    }

    /// Damages a random version.
    fn damage_any(&self) {
        let versions: Vec<VersionId> = self.with(|s| s.disk.versions.keys().copied().collect());
        if !versions.is_empty() {
            let id = self.with(|s| s.random.pick(&versions));
            self.damage(id);
        }
    }

    /// Damages a version. As `daemon/scrub` does: the version is marked, another one is served, and the source is
    /// checked.
    pub(crate) fn damage(&self, id: VersionId) {
        self.log(|| format!("~~~ {} is damaged", id.short()));
        let is_served = self.with(|s| {
            if let Some(version) = s.disk.versions.get_mut(&id) {
                (version.damaged, version.marked_damaged) = (true, true);
            }
            s.rules.reset_waits();
            if let Some(scheduler) = &mut s.daemon.scheduler {
                scheduler.wake(SyncTrigger::RegularCheck);
            }
            s.daemon.served.as_ref().is_some_and(|(version, _)| *version == id)
        });
        if is_served {
            let versions: Vec<VersionId> = self.with(|s| s.disk.versions.keys().copied().collect());
            let next = versions.into_iter().find(|&id| !self.is_damaged(id));
            let next = next.map(|id| (id, self.lease(id)));
            let before = self.with(|s| std::mem::replace(&mut s.daemon.served, next));
            drop(before);
        }
    }

    fn start_outage(&self) {
        let (cause, retry_after) = self.random_fault();
        self.with(|s| {
            let host = s.random.pick(&[Host::Api, Host::Api, Host::Storage, Host::Files, Host::Docs]);
            let until = s.elapsed + Duration::from_secs(s.random.pick(&[10, 200, 3000, 30_000]));
            s.outages.retain(|outage| outage.host != host);
            s.outages.push(Outage { until, host, cause, retry_after });
        });
        self.log(|| "~~~ a host fails".to_owned());
    }

    fn set_clock(&self) {
        self.with(|s| {
            let seconds = s.random.pick(&[-1, 1, 30, -30, 700, -700, 4000, -4000, 100_000, -100_000]);
            s.clock_offset += seconds;
            s.clock_advanced += seconds.max(0);
            s.rules.record_clock_change(seconds > 0);
        });
        self.log(|| "~~~ the clock is set".to_owned());
    }

    fn fill_disk(&self) {
        self.with(|s| {
            let free = s.disk.free() + s.disk.other_bytes;
            s.disk.other_bytes = match s.random.below(4) {
                0 => free,
                1 => free.saturating_sub(s.random.below(20_000_000)),
                _ => 0,
            };
        });
        self.log(|| "~~~ others use the disk".to_owned());
    }

    fn remove_job(&self) {
        self.with(|s| {
            let now = s.elapsed;
            if let Some(job) = s.upstream.jobs.iter_mut().rev().find(|job| job.state(now) != State::Failed) {
                job.end_state = State::Vanished;
            }
        });
        self.log(|| "~~~ a job is removed".to_owned());
    }

    /// Applies another configuration.
    pub(crate) fn configure(&self, config: Option<docwharf::sync::SyncSettings>) {
        let config = config.unwrap_or_else(|| self.with(|s| settings::any(&mut s.random)));
        self.log(|| {
            format!(
                "~~~ configuration: enabled {}, {:?}, {:?}, pin {:?}, export at each check {}, every {:?}",
                config.enabled,
                config.api.as_ref().map(|api| &api.domain),
                config.bundle,
                config.pin,
                config.exports_at_each_check,
                config.interval
            )
        });
        let now = self.now();
        self.stop.store(true, Ordering::Relaxed);
        self.with(|s| {
            if config.interval != s.daemon.config.interval {
                let (mut scheduler, random) = (s.daemon.scheduler.take().expect("the process runs"), &mut s.random);
                scheduler.change_timing(s.daemon.check_timing(config.interval), now, || random.fraction());
                s.daemon.scheduler = Some(scheduler);
            }
            s.daemon.config = config;
            s.daemon.scheduler().handle_changed_settings();
            s.rules.reset_waits();
        });
    }

    fn send_sighup(&self) {
        self.log(|| "~~~ SIGHUP".to_owned());
        self.with(|s| {
            s.daemon.scheduler().request_check(SyncTrigger::Signal);
            s.rules.reset_waits();
        });
    }

    fn toggle_key(&self) {
        self.with(|s| s.daemon.has_key = !s.daemon.has_key);
        let config = self.with(|s| s.daemon.config.clone());
        self.configure(Some(config));
    }

    /// Cancels the running task if it is an automatic sync, or with `also_commanded_syncs` any sync.
    fn cancel_task(&self, also_commanded_syncs: bool) {
        let running = self.with(|s| s.daemon.running);
        if running.is_some_and(|task| task.is_cancelled_by_commands || (also_commanded_syncs && task.is_sync)) {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn request_sync(&self, trigger: SyncTrigger) {
        self.log(|| format!("~~~ command sync: {trigger:?}"));
        self.cancel_task(false);
        let force = self.happens(0.1);
        self.with(|s| {
            s.daemon.force |= force;
            s.daemon.scheduler().request_check(trigger);
            s.rules.reset_waits();
        });
    }

    fn import_bundle(&self) {
        self.log(|| "~~~ command import".to_owned());
        let number = self.with(|s| s.operations);
        let path = PathBuf::from(format!("/home/{number}.zip"));
        self.with(|s| {
            let hostile = s.random.happens(0.2);
            let content = s.upstream.create_or_reuse_content(&mut s.random, s.disk.active(), hostile);
            s.disk.bundle_files.insert(path.clone(), BundleFile { content, modified: 0 });
            let label =
                s.random.happens(0.3).then(|| VersionLabel::new(s.random.pick(&["one", "two", "three"])).unwrap());
            let force = s.random.happens(0.1);
            s.daemon.imports.push_back((path, label, force));
        });
        self.cancel_task(false);
    }

    /// Runs a command that takes effect at once.
    fn run_command(&self, n: u64) {
        let previous = self.with(|s| s.rules.hold_state);
        let allowed: Vec<_>;
        self.with(|s| s.rules.command_running = true);
        let result = match n {
            66..=73 => {
                self.log(|| "~~~ command hold".to_owned());
                let active = self.with(|s| s.disk.record.as_ref().and_then(|record| record.active));
                let result = self.acting(Actor::Operator, || operator::hold(self, "operator", "so"));
                // A task may have activated a version before the hold took effect.
                let now = self.with(|s| s.disk.record.as_ref().and_then(|record| record.active));
                allowed = vec![HoldState::Held(active), HoldState::Held(now)];
                result.map(drop)
            }
            74..=83 => {
                self.log(|| "~~~ command release".to_owned());
                allowed = vec![HoldState::Released];
                self.release()
            }
            84..=89 => {
                let name = self.random_version_name();
                self.log(|| format!("~~~ command activate {name}"));
                let config = self.with(|s| s.daemon.config.clone());
                let result = self.acting(Actor::Operator, || operator::activate(self, &name, "operator", &config));
                let chosen = result.as_ref().ok().map(|(id, _)| *id);
                let manual = config.activation == docwharf::sync::ActivationMode::Manual;
                allowed = [HoldState::Held(chosen)].into_iter().chain(manual.then_some(HoldState::Released)).collect();
                self.serve_chosen(result)
            }
            90..=95 => {
                self.log(|| "~~~ command rollback".to_owned());
                let seal_options = self.with(|s| s.daemon.config.seal_options);
                let result = self.acting(Actor::Operator, || operator::rollback(self, "operator", &seal_options));
                allowed = vec![HoldState::Held(result.as_ref().ok().map(|(id, _)| *id))];
                self.serve_chosen(result)
            }
            _ => {
                self.log(|| "~~~ command gc".to_owned());
                allowed = vec![previous];
                let space_limits = self.with(|s| s.daemon.config.space_limits);
                self.acting(Actor::Operator, || {
                    self.prune(&read_record(self)?, &space_limits)?;
                    Ok(())
                })
            }
        };
        match result {
            Ok(()) => self.check_hold(&allowed),
            Err(error) => {
                self.log(|| format!("    {error}"));
                let now = self.with(|s| s.hold_state());
                self.check_hold(&[previous, now]);
            }
        }
        self.with(|s| s.rules.command_running = false);
        self.serve_active();
    }

    fn serve_chosen(&self, result: Result<operator::ActivatedVersion<Sim>, SyncError>) -> Result<(), SyncError> {
        let (id, lease) = result?;
        let before = self.with(|s| s.daemon.served.replace((id, lease)));
        drop(before);
        Ok(())
    }

    /// Releases, as `docwharf run` does: the target version is activated at once, unless the gate has to read
    /// pages.
    pub(crate) fn release(&self) -> Result<(), SyncError> {
        let sync_settings = self.with(|s| s.daemon.config.clone());
        let released: Result<(), SyncError> = self.acting(Actor::Operator, || {
            operator::end_hold(self, "operator")?;
            self.with(|s| s.rules.hold_state = HoldState::Released);
            Ok(())
        });
        let result = released.and_then(|()| {
            self.acting(Actor::Releasing, || {
                match operator::activate_target_version(self, &|| sync_settings.clone(), "operator", &|| true) {
                    Err(SyncError::Cancelled) => Ok(true),
                    result => result.map(|_| false),
                }
            })
        });
        if let Ok(true) = result {
            self.cancel_task(true);
            self.with(|s| s.daemon.releases += 1);
        }
        self.with(|s| {
            s.daemon.scheduler().wake(SyncTrigger::Changed);
            s.rules.reset_waits();
        });
        result.map(drop)
    }

    fn random_version_name(&self) -> String {
        self.with(|s| {
            let ids: Vec<VersionId> = s.disk.versions.keys().copied().collect();
            let names: Vec<String> = ids.iter().map(ToString::to_string).chain(["one".to_owned()]).collect();
            s.random.pick(&names)
        })
    }
}
