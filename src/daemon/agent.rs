//! The agent: whatever wakes it makes it look, and what comes of that is served.
//!
//! One thing is done at a time. What wakes it meanwhile is remembered; a changed configuration calls the sync off, which
//! loses nothing: a job is adopted, a download continued.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::admin::live::Live;
use crate::admin::metrics::Metrics;
use crate::admin::routes::Call;
use crate::admin::wire::{Import, Reply};
use docwharf_base::backoff;
use docwharf_base::chain::Chain;
use crate::config::checked::{Config, Sources};
use docwharf_base::model::version::VersionId;
use docwharf_serve::Site;
use docwharf_serve::tls::ServerTls;
use docwharf_agent::store::writer::Writer;
use docwharf_agent::sync::agenda::{Agenda, Moment, Rhythm};
use docwharf_agent::sync::inbox::{Dropped, Inbox};
use docwharf_agent::sync::plan::Trigger;
use docwharf_agent::sync::settle::Report;
use docwharf_agent::sync::watch::{Watch, What};
use docwharf_agent::sync::{Intent, Outcome, SyncError};

use super::DaemonError;
use super::notify::Notifier;
use super::orders::{Describe, reply};
use super::publisher::Publisher;
use super::reload::watched;
use super::scrub::Finding;
use super::work::{Done, Running, Work, half_the_cores};

/// How often a file in the inbox that may still be growing is looked at.
pub(super) const GLANCE: Duration = Duration::from_millis(500);

/// The part of `run` that brings versions.
pub(super) struct Agent {
    pub(super) writer: Arc<Writer>,
    pub(super) sources: Sources,
    pub(super) config: Config,
    /// What of it counts for work under way.
    pub(super) in_force: Arc<ArcSwap<Intent>>,
    /// What is wrong with a configuration that was to be taken over.
    pub(super) config_error: Option<String>,
    pub(super) site: Arc<Site>,
    /// The version that waits to become active, for the admin side.
    pub(super) staged: Arc<Site>,
    pub(super) publisher: Publisher,
    pub(super) shown: Option<VersionId>,
    /// Whether that is damaged, and to be opened anew once it is mended.
    pub(super) is_stale: bool,
    /// The version that is damaged, until it is served again.
    pub(super) lost: Option<VersionId>,
    /// When the source is looked at next, and why.
    pub(super) agenda: Agenda,
    pub(super) watch: Watch,
    pub(super) inbox: Option<Inbox>,
    /// Why the inbox that is configured cannot be used.
    pub(super) inbox_error: Option<String>,
    pub(super) running: Option<Running>,
    /// Whether what the sync to come brings passes the gate unasked.
    pub(super) force: bool,
    /// The person who asked for it, if one did.
    pub(super) asked_by: Option<String>,
    /// Who waits for what comes of that.
    pub(super) waiting: Vec<Waiter>,
    /// What lies ready in the inbox.
    pub(super) imports: VecDeque<Dropped>,
    /// What people bring, which comes first.
    pub(super) orders: VecDeque<(Import, String, Waiter)>,
    /// Whose release waits for the gate: whether there was a hold, and by whom.
    pub(super) releases: VecDeque<(bool, String, Waiter)>,
    /// Imports in a row that failed for no fault of the file.
    pub(super) stuck: u32,
    /// When to look into the inbox next.
    pub(super) glance: Option<Instant>,
    pub(super) live: Arc<Live>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) describe: Describe,
    pub(super) notifier: Notifier,
    /// Since when which version is shown, for [`Agent::tell_standing`].
    pub(super) since: Option<(VersionId, Option<String>)>,
    /// How the last sync failed, if it did.
    pub(super) last_error: Option<String>,
    /// The pair under which the site is served encrypted.
    pub(super) tls: Option<Arc<ServerTls>>,
    /// Why its files as they are now are not in force.
    pub(super) tls_error: Option<String>,
    /// Where the site is served.
    pub(super) reached: Vec<SocketAddr>,
}

/// What an agent stands on.
pub(super) struct Ground {
    pub(super) writer: Arc<Writer>,
    pub(super) sources: Sources,
    pub(super) config: Config,
    pub(super) site: Arc<Site>,
    pub(super) staged: Arc<Site>,
    pub(super) shown: Option<VersionId>,
    pub(super) live: Arc<Live>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) describe: Describe,
    pub(super) notifier: Notifier,
    pub(super) tls: Option<Arc<ServerTls>>,
    pub(super) reached: Vec<SocketAddr>,
}

/// Gets the answer to an order.
pub(super) type Waiter = oneshot::Sender<Reply>;

/// What has woken the agent.
enum Woken {
    Hangup,
    Changed(BTreeSet<What>),
    Done(Box<Result<Done, tokio::sync::oneshot::error::RecvError>>),
    Time,
    Glance,
    Order(Call),
    Found(Finding),
}

impl Agent {
    pub(super) fn new(ground: Ground) -> Agent {
        let Ground { writer, sources, config, site, staged, shown, live, metrics, describe, notifier, tls, reached } =
            ground;
        let watch = Watch::new(watched(&sources, &config));
        let publisher = Publisher::start(config.publish.clone(), Arc::clone(&site), Arc::clone(&live));
        let mut agent = Agent {
            writer,
            sources,
            in_force: Arc::new(ArcSwap::from_pointee(in_force(&config))),
            config,
            config_error: None,
            site,
            staged,
            publisher,
            shown,
            is_stale: false,
            lost: None,
            agenda: Agenda::new(Instant::now()),
            watch,
            inbox: None,
            inbox_error: None,
            running: None,
            force: false,
            asked_by: None,
            waiting: Vec::new(),
            imports: VecDeque::new(),
            orders: VecDeque::new(),
            releases: VecDeque::new(),
            stuck: 0,
            glance: None,
            live,
            metrics,
            describe,
            notifier,
            since: None,
            last_error: None,
            tls,
            tls_error: None,
            reached,
        };
        agent.open_inbox();
        // What has changed since the configuration was read and before it was watched; what an earlier process remembers of
        // it is no longer so.
        agent.reload();
        agent.warn_of_exposure();
        agent.take_up_backoff();
        agent
    }

    /// A restart goes on waiting where the one before left off, for the same question.
    fn take_up_backoff(&mut self) {
        let Ok(record) = self.writer.store().record() else { return };
        let question = self.config.intent.question();
        if let Some(left) = self.agenda.take_up(&record, &question, Moment::now()) {
            tracing::info!("the last sync failed; looking again in {} s", left.as_secs());
        }
    }

    pub(super) async fn live(
        &mut self,
        mut hangup: Signal,
        mut orders: mpsc::Receiver<Call>,
        mut found: mpsc::Receiver<Finding>,
    ) -> Result<(), DaemonError> {
        loop {
            self.begin();
            self.tell_standing();
            self.tell_live();
            self.show_staged().await;
            let (next, glance) = (self.agenda.next.0, self.glance.unwrap_or_else(far));
            let (is_idle, has_glance) = (self.running.is_none(), self.glance.is_some());
            let woken = tokio::select! {
                _ = hangup.recv() => Woken::Hangup,
                changed = self.watch.changed() => Woken::Changed(changed),
                done = done(&mut self.running) => Woken::Done(Box::new(done)),
                () = sleep_until(next), if is_idle => Woken::Time,
                () = sleep_until(glance), if has_glance => Woken::Glance,
                Some(call) = orders.recv() => Woken::Order(call),
                Some(finding) = found.recv() => Woken::Found(finding),
            };
            match woken {
                Woken::Hangup => {
                    self.notifier.reloading();
                    self.reopen_log();
                    // What is read now is what later changes are compared with.
                    if self.watch.compare().contains(&What::Inbox) {
                        self.glance = Some(Instant::now());
                    }
                    let before = self.config.clone();
                    // Signals may come faster than syncs end: one under way for the same thing goes on.
                    if self.reload() {
                        if self.config != before {
                            self.call_off();
                        }
                    } else {
                        // The files may have been renewed beside a configuration with mistakes.
                        self.renew();
                    }
                    self.agenda.asked(Trigger::Hook);
                    self.notifier.ready();
                }
                Woken::Changed(what) => self.changed(&what),
                Woken::Done(done) => {
                    let running = self.running.take();
                    let done = done.map_err(|died| DaemonError::Died(io::Error::other(died)))?;
                    self.ended(done, running).await?;
                }
                Woken::Time => self.time_has_come(),
                Woken::Glance => self.look_into_inbox(),
                Woken::Order(call) => self.order(call).await,
                Woken::Found(Finding::Rotten(rotten)) => self.give_up(rotten).await,
                Woken::Found(Finding::Index(id)) => self.open_anew(id).await,
            }
        }
    }

    /// Starts what is to be done, if nothing is being done.
    fn begin(&mut self) {
        if self.running.is_some() {
            return;
        }
        let (work, waiting) = if let Some((was_held, who, waiter)) = self.releases.pop_front() {
            (Work::Release(was_held, who), vec![waiter])
        } else if let Some((import, who, waiter)) = self.orders.pop_front() {
            (Work::Import(import, who), vec![waiter])
        } else if let Some(file) = self.imports.pop_front() {
            (Work::Inbox(file), Vec::new())
        } else if let Some(trigger) = self.agenda.pending.take() {
            (
                Work::Sync(trigger, std::mem::take(&mut self.force), self.asked_by.take()),
                std::mem::take(&mut self.waiting),
            )
        } else {
            return;
        };
        let runtime = tokio::runtime::Handle::current();
        let running = Running::start(work, &self.writer, &self.in_force, self.fresh(), runtime);
        match running {
            Ok(running) => self.running = Some(running.awaited_by(waiting)),
            Err(error) => {
                // No thread to be had: the site does not depend on it.
                let error = SyncError::Thread(error);
                self.agenda.failures = self.agenda.failures.saturating_add(1);
                let (rhythm, wait) = (rhythm(&self.config), backoff::after(self.agenda.failures));
                self.agenda.look_after(Some(wait), rhythm, Moment::now(), backoff::random);
                tracing::error!("{}; trying again in a while", Chain(&error));
                reply(waiting, &Err(error), self.describe);
            }
        }
    }

    /// Whether the store is empty: then there is nothing to stay up for.
    fn has_nothing(&self) -> bool {
        self.writer.store().versions().is_ok_and(|versions| versions.is_empty())
    }

    fn time_has_come(&mut self) {
        self.agenda.time_has_come(Moment::now());
    }

    pub(super) fn call_off(&self) {
        if let Some(running) = &self.running {
            running.call_off();
        }
    }

    fn changed(&mut self, what: &BTreeSet<What>) {
        if what.contains(&What::Settings) {
            tracing::info!("the configuration, the key or a certificate has changed");
            if self.reload() {
                self.call_off();
                self.agenda.settings_changed();
            }
        }
        if what.contains(&What::Certificate) {
            self.renew();
        }
        if what.contains(&What::Bundle) {
            self.agenda.wake(Trigger::Interval);
        }
        if what.contains(&What::Inbox) {
            self.look_into_inbox();
        }
    }

    async fn ended(&mut self, done: Done, running: Option<Running>) -> Result<(), DaemonError> {
        self.remember_config_error();
        if let Ok(report) = &done.result {
            tell(report);
        }
        match done.opened {
            // What a person has chosen in between is what counts.
            Some((id, Ok(version))) if self.active() == Some(id) => self.show(id, version),
            Some((_, Err(error))) => tracing::error!("{}; the version before it stays", Chain(&error)),
            _ => self.show_active().await,
        }
        let (waiting, began) = running.map_or_else(Default::default, |r| (r.waiting, Some(r.began)));
        let name = match &done.result {
            Ok(report) if report.blind.is_some() => "probes unreadable",
            Ok(report) => report.outcome.name(),
            Err(_) => "failed",
        };
        match done.work {
            Work::Inbox(file) => {
                self.metrics.count_import(name);
                self.put_away(&file, &done.result);
                Ok(())
            }
            Work::Import(one, _) => {
                self.metrics.count_import(name);
                // A copy that was made for us, whose maker may have gone.
                self.writer.store().remove_staged_copy(&one.path);
                reply(waiting, &done.result, self.describe);
                Ok(())
            }
            Work::Release(was_held, who) => {
                self.after_release(was_held, &who, waiting, &done.result);
                Ok(())
            }
            Work::Sync(trigger, force, who) => {
                if let Err(SyncError::Interrupted) = done.result {
                    // It is not given up: whoever waits for it goes on waiting.
                    self.waiting.extend(waiting);
                    self.force |= force;
                    self.asked_by = self.asked_by.take().or(who);
                } else {
                    self.metrics.count_sync(name, began.map_or(Duration::ZERO, |began| began.elapsed()));
                    reply(waiting, &done.result, self.describe);
                }
                self.after_sync(trigger, done.result)
            }
        }
    }

    fn after_sync(&mut self, trigger: Trigger, result: Result<Report, SyncError>) -> Result<(), DaemonError> {
        if let Err(error) = &result
            && error.is_absence()
            && self.inbox.is_none()
            && self.has_nothing()
        {
            return result.map(drop).map_err(DaemonError::FirstSync);
        }
        let now = Moment::now();
        let wait = self.agenda.after_sync(trigger, &result, rhythm(&self.config), now, backoff::random);
        match result {
            Ok(Report { too_early: Some(_), .. }) => {}
            Ok(_) => self.last_error = None,
            Err(error) => {
                if let Some(wait) = wait {
                    self.last_error = Some(Chain(&error).to_string());
                    self.tell_failure(&error, wait);
                }
            }
        }
        Ok(())
    }

    fn tell_failure(&self, error: &SyncError, wait: Duration) {
        let stays = if self.shown.is_some() { "the active version stays" } else { "there is no version yet" };
        if let SyncError::StillRefused(_) = error {
            tracing::debug!("{}", Chain(error));
        } else {
            tracing::error!("{}; {stays}; looking again in {} s", Chain(error), wait.as_secs_f32().ceil());
        }
    }
}

/// What a configuration asks of work that is done beside serving.
pub(super) fn in_force(config: &Config) -> Intent {
    let mut intent = config.intent.clone();
    intent.effort.threads = config.threads.unwrap_or_else(half_the_cores);
    intent
}

/// How often a configuration wants the source to be looked at.
pub(super) fn rhythm(config: &Config) -> Rhythm<'_> {
    Rhythm { interval: config.intent.interval, schedule: config.schedule.as_ref() }
}

/// Never, as far as anybody waits.
fn far() -> Instant {
    Instant::now() + Duration::from_hours(24 * 365)
}

/// The end of what is under way; never, if nothing is.
async fn done(running: &mut Option<Running>) -> Result<Done, tokio::sync::oneshot::error::RecvError> {
    match running {
        Some(running) => (&mut running.done).await,
        None => std::future::pending().await,
    }
}

fn tell(report: &Report) {
    for warning in report.brought.iter().flat_map(|brought| &brought.warnings) {
        tracing::warn!("{warning}");
    }
    match &report.outcome {
        Outcome::Activated(id) => tracing::info!("version {} is active", id.short()),
        Outcome::NotActive(id, why) if report.brought.is_some() || report.refused_now => {
            tracing::warn!("version {} is sealed but not active: {why}", id.short());
        }
        Outcome::Staged(id) if report.brought.is_some() => {
            let id = id.short();
            tracing::info!("version {id} waits for a person: `docwharf activate {id}` makes it active");
        }
        _ => tracing::debug!("nothing new"),
    }
}
