//! What others do meanwhile: people at the command line, those who write the content, networks, clocks, other programs
//! on the same disk.

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

use super::disk::Outside;
use super::rules::{Host, Will};
use super::settings;
use super::sim::{Actor, Sim};
use super::upstream::State;

/// What a host is like for a while.
#[derive(Debug, Clone)]
pub(crate) struct Weather {
    until: Duration,
    host: Host,
    cause: RequestErrorCause,
    retry_after: Option<Duration>,
}

const CAUSES: [RequestErrorCause; 13] = [
    RequestErrorCause::NotConnected,
    RequestErrorCause::NotConnected,
    RequestErrorCause::NoResponse,
    RequestErrorCause::NoResponse,
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
    fn any_trouble(&self) -> (RequestErrorCause, Option<Duration>) {
        self.with(|s| {
            let cause = s.random.pick(&CAUSES);
            let asks = matches!(cause, RequestErrorCause::Status(429 | 503)) && s.random.happens(0.5);
            (cause, asks.then(|| Duration::from_secs(s.random.pick(&[1, 5, 30, 59, 61, 600, 5000]))))
        })
    }

    /// What is wrong with a call, if anything is.
    pub(crate) fn trouble(&self, host: Host) -> Option<RequestError> {
        let weather = self.with(|s| s.weather.iter().find(|w| w.host == host && s.elapsed < w.until).cloned());
        let (cause, retry_after) = match weather {
            Some(weather) if self.happens(0.9) => (weather.cause, weather.retry_after),
            _ if self.happens(self.with(|s| s.faults.call)) => self.any_trouble(),
            _ => return None,
        };
        let mut trouble = RequestError::new(cause, format!("{cause:?}"));
        trouble.retry_after = retry_after;
        Some(trouble)
    }

    /// Somebody does something.
    pub(crate) fn meddle(&self) {
        if self.with(|s| s.actor.is_person()) {
            // One order after the other; but work may go on beside it.
            return self.work_meanwhile();
        }
        if self.with(|s| s.daemon.agenda.is_none()) {
            return;
        }
        match self.below(100) {
            0..=17 => self.write_content(),
            18..=22 => self.put_outside(),
            23..=30 => self.change_weather(),
            31..=33 => self.set_clock(),
            34..=37 => self.fill_disk(),
            38..=39 => self.lose_a_job(),
            40..=46 => self.configure(None),
            47..=50 => self.hang_up(),
            51..=53 => self.exchange_key(),
            54..=58 => self.ask(SyncTrigger::Asked),
            59..=60 => self.ask(SyncTrigger::Refresh),
            61..=64 => self.hand_in(),
            65 => self.rot(),
            n => self.order(n),
        }
    }

    fn source(&self) -> Option<(String, Option<String>)> {
        self.with(|s| {
            let config = &s.daemon.config;
            let pin = config.pin.as_ref().map(|pin| pin.as_str().to_owned());
            config.api.as_ref().map(|api| (ApiSource::name(api), pin))
        })
    }

    fn write_content(&self) {
        let source = self.source();
        self.with(|s| {
            let hostile = s.random.happens(0.1);
            let content = s.upstream.write_or_go_back(&mut s.random, s.disk.active(), hostile);
            match source {
                Some(source) if s.random.happens(0.8) => drop(s.upstream.published.insert(source, content)),
                _ => s.upstream.link = Some(content),
            }
        });
        self.tell(|| "~~~ content is written".to_owned());
    }

    pub(crate) fn put_outside(&self) {
        let modified = self.wall() * 1_000_000_000;
        self.with(|s| {
            let hostile = s.random.happens(0.2);
            let content = s.upstream.write_or_go_back(&mut s.random, s.disk.active(), hostile);
            s.disk.outside.insert(PathBuf::from(settings::FILE), Outside { content, modified });
            if matches!(s.daemon.config.bundle, Some(docwharf::sync::BundleLocation::File(_))) {
                s.rules.excuse();
                if let Some(agenda) = &mut s.daemon.agenda {
                    agenda.wake(SyncTrigger::Interval);
                }
            }
        });
        self.tell(|| "~~~ the bundle file is replaced".to_owned());
    }

    /// The disk loses some of a version, and the daemon finds that out.
    fn rot(&self) {
        let versions: Vec<VersionId> = self.with(|s| s.disk.versions.keys().copied().collect());
        if !versions.is_empty() {
            let id = self.with(|s| s.random.pick(&versions));
            self.rot_away(id);
        }
    }

    /// As `daemon/scrub` does it: the version is marked, the next one is served in its place, and the source is looked at.
    pub(crate) fn rot_away(&self, id: VersionId) {
        self.tell(|| format!("~~~ {} is damaged", id.short()));
        let is_shown = self.with(|s| {
            if let Some(version) = s.disk.versions.get_mut(&id) {
                (version.rotten, version.suspect) = (true, true);
            }
            s.rules.excuse();
            if let Some(agenda) = &mut s.daemon.agenda {
                agenda.wake(SyncTrigger::Interval);
            }
            s.daemon.shown.as_ref().is_some_and(|(shown, _)| *shown == id)
        });
        if is_shown {
            let versions: Vec<VersionId> = self.with(|s| s.disk.versions.keys().copied().collect());
            let next = versions.into_iter().find(|&id| !self.is_rotten(id));
            let next = next.map(|id| (id, self.lease(id)));
            let before = self.with(|s| std::mem::replace(&mut s.daemon.shown, next));
            drop(before);
        }
    }

    fn change_weather(&self) {
        let (cause, retry_after) = self.any_trouble();
        self.with(|s| {
            let host = s.random.pick(&[Host::Api, Host::Api, Host::Storage, Host::Files, Host::Docs]);
            let until = s.elapsed + Duration::from_secs(s.random.pick(&[10, 200, 3000, 30_000]));
            s.weather.retain(|weather| weather.host != host);
            s.weather.push(Weather { until, host, cause, retry_after });
        });
        self.tell(|| "~~~ the weather changes".to_owned());
    }

    fn set_clock(&self) {
        self.with(|s| {
            let by = s.random.pick(&[-1, 1, 30, -30, 700, -700, 4000, -4000, 100_000, -100_000]);
            s.skew += by;
            s.jumped += by.max(0);
            s.rules.clock_was_set(by > 0);
        });
        self.tell(|| "~~~ the clock is set".to_owned());
    }

    fn fill_disk(&self) {
        self.with(|s| {
            let free = s.disk.free() + s.disk.ballast;
            s.disk.ballast = match s.random.below(4) {
                0 => free,
                1 => free.saturating_sub(s.random.below(20_000_000)),
                _ => 0,
            };
        });
        self.tell(|| "~~~ others use the disk".to_owned());
    }

    fn lose_a_job(&self) {
        self.with(|s| {
            let now = s.elapsed;
            if let Some(job) = s.upstream.jobs.iter_mut().rev().find(|job| job.state(now) != State::Failed) {
                job.end = State::Vanished;
            }
        });
        self.tell(|| "~~~ a job vanishes".to_owned());
    }

    /// Another configuration is in force.
    pub(crate) fn configure(&self, config: Option<docwharf::sync::SyncIntent>) {
        let config = config.unwrap_or_else(|| self.with(|s| settings::any(&mut s.random)));
        self.tell(|| {
            format!(
                "~~~ configuration: enabled {}, {:?}, {:?}, pin {:?}, each look {}, every {:?}",
                config.enabled,
                config.api.as_ref().map(|api| &api.domain),
                config.bundle,
                config.pin,
                config.each_look,
                config.interval
            )
        });
        let moment = self.now();
        self.stop.store(true, Ordering::Relaxed);
        self.with(|s| {
            if config.interval != s.daemon.config.interval {
                let (mut agenda, random) = (s.daemon.agenda.take().expect("the process runs"), &mut s.random);
                agenda.change_rhythm(s.daemon.rhythm(config.interval), moment, || random.part());
                s.daemon.agenda = Some(agenda);
            }
            s.daemon.config = config;
            s.daemon.agenda().settings_changed();
            s.rules.excuse();
        });
    }

    fn hang_up(&self) {
        self.tell(|| "~~~ a hook".to_owned());
        self.with(|s| {
            s.daemon.agenda().asked(SyncTrigger::Hook);
            s.rules.excuse();
        });
    }

    fn exchange_key(&self) {
        self.with(|s| s.daemon.has_key = !s.daemon.has_key);
        let config = self.with(|s| s.daemon.config.clone());
        self.configure(Some(config));
    }

    fn give_way(&self, also_asked: bool) {
        let running = self.with(|s| s.daemon.running);
        if running.is_some_and(|(gives_way, is_sync)| gives_way || (also_asked && is_sync)) {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn ask(&self, trigger: SyncTrigger) {
        self.tell(|| format!("~~~ somebody types sync: {trigger:?}"));
        self.give_way(false);
        let force = self.happens(0.1);
        self.with(|s| {
            s.daemon.force |= force;
            s.daemon.agenda().asked(trigger);
            s.rules.excuse();
        });
    }

    fn hand_in(&self) {
        self.tell(|| "~~~ somebody hands in a bundle".to_owned());
        let number = self.with(|s| s.operations);
        let path = PathBuf::from(format!("/home/{number}.zip"));
        self.with(|s| {
            let hostile = s.random.happens(0.2);
            let content = s.upstream.write_or_go_back(&mut s.random, s.disk.active(), hostile);
            s.disk.outside.insert(path.clone(), Outside { content, modified: 0 });
            let label =
                s.random.happens(0.3).then(|| VersionLabel::new(s.random.pick(&["one", "two", "three"])).unwrap());
            let force = s.random.happens(0.1);
            s.daemon.imports.push_back((path, label, force));
        });
        self.give_way(false);
    }

    /// An order that is carried out at once.
    fn order(&self, n: u64) {
        let held = self.with(|s| s.rules.will);
        let allowed: Vec<_>;
        self.with(|s| s.rules.ordered = true);
        let result = match n {
            66..=73 => {
                self.tell(|| "~~~ somebody types hold".to_owned());
                let active = self.with(|s| s.disk.record.as_ref().and_then(|record| record.active));
                let result = self.acting(Actor::Operator, || operator::hold(self, "somebody", "so"));
                // Work may have activated something before the hold took effect.
                let now = self.with(|s| s.disk.record.as_ref().and_then(|record| record.active));
                allowed = vec![Will::Held(active), Will::Held(now)];
                result.map(drop)
            }
            74..=83 => {
                self.tell(|| "~~~ somebody types release".to_owned());
                allowed = vec![Will::Free];
                self.release()
            }
            84..=89 => {
                let name = self.any_name();
                self.tell(|| format!("~~~ somebody types activate {name}"));
                let config = self.with(|s| s.daemon.config.clone());
                let result = self.acting(Actor::Operator, || operator::activate(self, &name, "somebody", &config));
                let chosen = result.as_ref().ok().map(|(id, _)| *id);
                let manual = config.activation == docwharf::sync::ActivationMode::Manual;
                allowed = [Will::Held(chosen)].into_iter().chain(manual.then_some(Will::Free)).collect();
                self.chosen(result)
            }
            90..=95 => {
                self.tell(|| "~~~ somebody types rollback".to_owned());
                let effort = self.with(|s| s.daemon.config.effort);
                let result = self.acting(Actor::Operator, || operator::rollback(self, "somebody", &effort));
                allowed = vec![Will::Held(result.as_ref().ok().map(|(id, _)| *id))];
                self.chosen(result)
            }
            _ => {
                self.tell(|| "~~~ somebody types gc".to_owned());
                allowed = vec![held];
                let allowance = self.with(|s| s.daemon.config.allowance);
                self.acting(Actor::Operator, || {
                    self.prune(&read_record(self)?, &allowance)?;
                    Ok(())
                })
            }
        };
        match result {
            Ok(()) => self.check_will(&allowed),
            Err(error) => {
                self.tell(|| format!("    {error}"));
                let now = self.with(|s| s.will());
                self.check_will(&[held, now]);
            }
        }
        self.with(|s| s.rules.ordered = false);
        self.show_active();
    }

    fn chosen(&self, result: Result<operator::Chosen<Sim>, SyncError>) -> Result<(), SyncError> {
        let (id, lease) = result?;
        let before = self.with(|s| s.daemon.shown.replace((id, lease)));
        drop(before);
        Ok(())
    }

    /// As `run` does it: what is due is decided at once unless the gate has to read pages.
    pub(crate) fn release(&self) -> Result<(), SyncError> {
        let intent = self.with(|s| s.daemon.config.clone());
        let ended: Result<(), SyncError> = self.acting(Actor::Operator, || {
            operator::end_hold(self, "somebody")?;
            self.with(|s| s.rules.will = Will::Free);
            Ok(())
        });
        let result = ended.and_then(|()| {
            self.acting(Actor::Releasing, || {
                match operator::activate_due(self, &|| intent.clone(), "somebody", &|| true) {
                    Err(SyncError::Interrupted) => Ok(true),
                    result => result.map(|_| false),
                }
            })
        });
        if let Ok(true) = result {
            self.give_way(true);
            self.with(|s| s.daemon.releases += 1);
        }
        self.with(|s| {
            s.daemon.agenda().wake(SyncTrigger::Changed);
            s.rules.excuse();
        });
        result.map(drop)
    }

    fn any_name(&self) -> String {
        self.with(|s| {
            let ids: Vec<VersionId> = s.disk.versions.keys().copied().collect();
            let names: Vec<String> = ids.iter().map(ToString::to_string).chain(["one".to_owned()]).collect();
            s.random.pick(&names)
        })
    }
}
