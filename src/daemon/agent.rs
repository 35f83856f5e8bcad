//! `run`: the last good version is served before anything else is done; then whatever wakes the agent makes it look.
//!
//! One thing is done at a time. What wakes it meanwhile is remembered; a changed configuration calls the sync off, which
//! loses nothing: a job is adopted, a download continued.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::base::backoff;
use crate::base::chain::{Chain, OneLine};
use crate::config::Problem;
use crate::config::checked::{Config, Sources};
use crate::model::units::{parse_time, unix_seconds};
use crate::model::version::VersionId;
use crate::serve::{Site, listener};
use crate::site::mapping;
use crate::store::Store;
use crate::store::writer::Writer;
use crate::sync::inbox::Inbox;
use crate::sync::plan::Trigger;
use crate::sync::run::wait_after;
use crate::sync::settle::{Report, candidates, read_record};
use crate::sync::watch::{Watch, What};
use crate::sync::{Bundle, Outcome, SyncError, open};

use super::work::{Done, Running, Work};
use super::{DaemonError, StopSignals, announce, bind, finish, runtime};

/// How often a file in the inbox that may still be growing is looked at.
const GLANCE: Duration = Duration::from_millis(500);

/// The daemon, until a signal says stop.
pub fn run(sources: Sources, config: Config, patience: Duration) -> Result<(), DaemonError> {
    let listeners = bind(&config.listen)?;
    // Before a store is made for nothing.
    if !has_origin(&config) && Store::at(&config.store).versions()?.is_empty() {
        return Err(DaemonError::NothingToServe { store: config.store });
    }
    let writer = Arc::new(Writer::open(&config.store, patience)?);
    let site = Site::new(config.settings.clone());
    let shown = show_best(&writer, &config, &site)?;
    if shown.is_none() && !has_origin(&config) {
        return Err(DaemonError::NothingToServe { store: config.store });
    }
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        // Before anybody can know that we are there.
        let mut signals = StopSignals::new()?;
        let hangup = signal(SignalKind::hangup()).map_err(DaemonError::Start)?;
        let (stop, stopped) = watch::channel(false);
        announce(&listeners);
        let mut server = tokio::spawn(listener::serve(listeners, Arc::clone(&site), stopped));
        let mut agent = Agent::new(writer, sources, config, site, shown);
        tokio::select! {
            ended = &mut server => return finish(ended),
            () = signals.stop() => {}
            ended = agent.live(hangup) => return ended,
        }
        agent.call_off();
        stop.send_replace(true);
        finish(server.await)
    });
    // A seal under way is abandoned: it has changed nothing, and its stage is swept at the next start.
    runtime.shutdown_background();
    result
}

/// Whether versions can come from anywhere.
fn has_origin(config: &Config) -> bool {
    config.intent.has_source() || config.inbox.is_some()
}

/// Shows the active version, or the best that is left if it is damaged.
fn show_best(writer: &Writer, config: &Config, site: &Site) -> Result<Option<VersionId>, DaemonError> {
    let record = read_record(writer).map_err(|error| match error {
        SyncError::Store(error) => DaemonError::Store(error),
        other => DaemonError::FirstSync(other),
    })?;
    let suspect = writer.store().suspect();
    let stored = writer.store().versions()?;
    let mut shown = None;
    for id in candidates(&record, stored.iter().map(|version| version.id)) {
        match open::open(writer, id, &config.intent.effort, suspect == Some(id)) {
            Ok(version) => {
                site.show(version);
                shown = Some(id);
                break;
            }
            Err(error) => tracing::error!("{}; trying the version before it", Chain(&error)),
        }
    }
    // The mark stays until the version is found whole or mended, or the next start would trust it again.
    if suspect.is_some() && suspect == shown {
        writer.clear_suspect()?;
    }
    mapping::mark_suspects_in(writer.suspect_file()?);
    if shown.is_some() && record.active != shown {
        // The record keeps what the operator or the last sync decided: once it is mended, it is served again.
        writer.note("docwharf run", "fell back", shown, None);
    }
    Ok(shown)
}

/// The part of `run` that brings versions.
struct Agent {
    writer: Arc<Writer>,
    sources: Sources,
    config: Config,
    /// What is wrong with a configuration that was to be taken over.
    config_error: Option<String>,
    site: Arc<Site>,
    shown: Option<VersionId>,
    /// Failures in a row.
    failures: u32,
    watch: Watch,
    inbox: Option<Inbox>,
    running: Option<Running>,
    /// What is to be done next.
    pending: Option<Trigger>,
    imports: VecDeque<PathBuf>,
    /// When to look next, and by what trigger.
    next: (Instant, Trigger),
    /// When to look into the inbox next.
    glance: Option<Instant>,
}

/// What has woken the agent.
enum Woken {
    Hangup,
    Changed(BTreeSet<What>),
    Done(Box<Result<Done, tokio::sync::oneshot::error::RecvError>>),
    Time,
    Glance,
}

impl Agent {
    fn new(writer: Arc<Writer>, sources: Sources, config: Config, site: Arc<Site>, shown: Option<VersionId>) -> Agent {
        let watch = Watch::new(watched(&sources, &config));
        let inbox = open_inbox(&config);
        let glance = inbox.as_ref().map(|_| Instant::now());
        let mut agent = Agent {
            writer,
            sources,
            config,
            config_error: None,
            site,
            shown,
            failures: 0,
            watch,
            inbox,
            running: None,
            pending: None,
            imports: VecDeque::new(),
            next: (Instant::now(), Trigger::Start),
            glance,
        };
        agent.warn_of_config();
        agent.take_up_backoff();
        agent
    }

    /// A restart goes on waiting where the one before left off, for the same question.
    fn take_up_backoff(&mut self) {
        let Ok(record) = self.writer.store().record() else { return };
        let question = self.config.intent.question();
        let Some(attempt) = record.last_attempt.filter(|attempt| attempt.question == question) else { return };
        self.failures = attempt.failures;
        let ago = parse_time(&attempt.time).map(|time| unix_seconds(SystemTime::now()) - time);
        // A clock that was set back since then must not make it wait longer than it would have.
        let ago = u64::try_from(ago.unwrap_or(0)).unwrap_or(0);
        let left = Duration::from_secs(attempt.wait.saturating_sub(ago));
        if attempt.failures > 0 && !left.is_zero() {
            tracing::info!("the last sync failed; looking again in {} s", left.as_secs());
            self.next.0 = Instant::now() + left;
        }
    }

    async fn live(&mut self, mut hangup: Signal) -> Result<(), DaemonError> {
        loop {
            self.begin()?;
            let (next, glance) = (self.next.0, self.glance.unwrap_or_else(far));
            let (is_idle, has_glance) = (self.running.is_none(), self.glance.is_some());
            let woken = tokio::select! {
                _ = hangup.recv() => Woken::Hangup,
                changed = self.watch.changed() => Woken::Changed(changed),
                done = done(&mut self.running) => Woken::Done(Box::new(done)),
                () = sleep_until(next), if is_idle => Woken::Time,
                () = sleep_until(glance), if has_glance => Woken::Glance,
            };
            match woken {
                Woken::Hangup => {
                    self.reload();
                    self.wake(Trigger::Hook);
                }
                Woken::Changed(what) => self.changed(&what),
                Woken::Done(done) => {
                    self.running = None;
                    self.ended(done.map_err(|died| DaemonError::Died(io::Error::other(died)))?)?;
                }
                Woken::Time => self.pending = Some(self.pending.unwrap_or(self.next.1)),
                Woken::Glance => self.look_into_inbox(),
            }
        }
    }

    /// Starts what is to be done, if nothing is being done.
    fn begin(&mut self) -> Result<(), DaemonError> {
        if self.running.is_some() {
            return Ok(());
        }
        let work = match self.imports.pop_front() {
            Some(path) => Work::Import(path),
            None => match self.pending.take() {
                Some(trigger) => Work::Sync(trigger),
                None => return Ok(()),
            },
        };
        let threads = self
            .config
            .threads
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1)));
        let runtime = tokio::runtime::Handle::current();
        let running = Running::start(work, &self.writer, &self.config.intent, threads, self.shown, runtime);
        self.running = Some(running.map_err(DaemonError::Start)?);
        Ok(())
    }

    /// Looks as soon as can be. A stronger trigger is not replaced by a weaker one.
    fn wake(&mut self, trigger: Trigger) {
        if self.pending != Some(Trigger::Hook) {
            self.pending = Some(trigger);
        }
        self.failures = 0;
    }

    fn call_off(&self) {
        if let Some(running) = &self.running {
            running.call_off();
        }
    }

    fn changed(&mut self, what: &BTreeSet<What>) {
        if what.contains(&What::Settings) {
            tracing::info!("the configuration, the key or a certificate has changed");
            // After a failure there is something to make good: that is what the change was for, probably.
            let trigger = if self.failures > 0 { Trigger::Interval } else { Trigger::Changed };
            if self.reload() {
                self.wake(trigger);
            }
        }
        if what.contains(&What::Bundle) && self.pending.is_none() {
            self.pending = Some(Trigger::Interval);
        }
        if what.contains(&What::Inbox) {
            self.look_into_inbox();
        }
    }

    /// Reads the configuration again; one with mistakes is told of, and the one before stays in force.
    fn reload(&mut self) -> bool {
        match self.sources.load() {
            Ok(config) => {
                for (key, same) in [
                    ("store.path", config.store == self.config.store),
                    ("server.listen", config.listen == self.config.listen),
                    ("server", config.settings == self.config.settings),
                ] {
                    if !same {
                        tracing::warn!("{key} has changed, which takes a restart");
                    }
                }
                self.config_error = None;
                let inbox = config.inbox != self.config.inbox;
                self.config = Config {
                    store: self.config.store.clone(),
                    listen: self.config.listen.clone(),
                    settings: self.config.settings.clone(),
                    ..config
                };
                if inbox {
                    self.inbox = open_inbox(&self.config);
                    self.glance = self.inbox.as_ref().map(|_| Instant::now());
                }
                self.watch = Watch::new(watched(&self.sources, &self.config));
                self.warn_of_config();
                self.call_off();
                self.remember_config_error();
                true
            }
            Err(problems) => {
                for problem in &problems {
                    tracing::error!("{}; the configuration before it stays in force", OneLine(&problem.to_string()));
                }
                let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
                self.config_error = Some(OneLine(&lines.join("; ")).to_string());
                self.remember_config_error();
                false
            }
        }
    }

    fn warn_of_config(&self) {
        for warning in &self.config.warnings {
            tracing::warn!("{}", OneLine(&warning.to_string()));
        }
        if let Some(api) = &self.config.intent.api
            && api.key.is_too_open()
        {
            tracing::warn!("{} can be read by others: chmod 0640 it", api.key.name());
        }
    }

    /// Status says that a configuration was not taken over. While work is under way the record is its; it is written
    /// when that has ended.
    fn remember_config_error(&self) {
        if self.running.is_some() {
            return;
        }
        if let Ok(mut record) = self.writer.store().record()
            && record.config_error != self.config_error
        {
            record.config_error.clone_from(&self.config_error);
            if let Err(error) = self.writer.write(&record) {
                tracing::warn!("{}", Chain(&error));
            }
        }
    }

    fn look_into_inbox(&mut self) {
        let Some(inbox) = self.inbox.as_mut().filter(|_| self.config.intent.enabled) else {
            self.glance = None;
            return;
        };
        if self.running.is_some() {
            // It may be reading what lies there.
            self.glance = Some(Instant::now() + GLANCE);
            return;
        }
        self.glance = None;
        match inbox.see(std::time::Instant::now()) {
            Ok(seen) => {
                self.imports = seen.ready.into();
                if seen.growing {
                    self.glance = Some(Instant::now() + GLANCE);
                }
            }
            Err(error) => tracing::warn!("cannot read the inbox {}: {error}", inbox.dir().display()),
        }
    }

    fn ended(&mut self, done: Done) -> Result<(), DaemonError> {
        self.remember_config_error();
        if let Ok(report) = &done.result {
            tell(report);
        }
        match done.opened {
            Some((id, Ok(version))) => {
                self.site.show(version);
                self.shown = Some(id);
            }
            Some((_, Err(error))) => tracing::error!("{}; the version before it stays", Chain(&error)),
            None => {}
        }
        match done.work {
            Work::Import(path) => {
                self.put_away(&path, &done.result);
                Ok(())
            }
            Work::Sync(_) => self.after_sync(done.result),
        }
    }

    fn after_sync(&mut self, result: Result<Report, SyncError>) -> Result<(), DaemonError> {
        let every = match &self.config.schedule {
            Some(schedule) => schedule.wait(),
            None => backoff::jitter(self.config.intent.interval),
        };
        let wait = match result {
            // What failed before is to be made good as soon as may be.
            Ok(Report { too_early: Some(more), .. }) if self.failures > 0 => more.min(every),
            Ok(Report { too_early: Some(_), .. }) => every,
            Ok(_) => {
                self.failures = 0;
                every
            }
            // What called it off is pending.
            Err(SyncError::Interrupted) => return Ok(()),
            Err(error) if error.is_absence() && self.shown.is_none() && self.inbox.is_none() => {
                return Err(DaemonError::FirstSync(error));
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                let wait = wait_after(&error, self.failures, &self.config.intent);
                let stays = if self.shown.is_some() { "the active version stays" } else { "there is no version yet" };
                let again = wait.as_secs_f32().ceil();
                match error {
                    SyncError::StillRefused(_) => tracing::debug!("{}", Chain(&error)),
                    error => tracing::error!("{}; {stays}; looking again in {again} s", Chain(&error)),
                }
                wait
            }
        };
        self.next = (Instant::now() + wait, Trigger::Interval);
        Ok(())
    }

    /// Moves a file from the inbox to where it belongs. A disk that is full says nothing about the file: it stays.
    fn put_away(&mut self, path: &std::path::Path, result: &Result<Report, SyncError>) {
        let Some(inbox) = &mut self.inbox else { return };
        let reason = match result {
            Ok(_) => None,
            Err(error) if error.is_refusal() && inbox.is_unchanged(path) => Some(Chain(error).to_string()),
            Err(error) => {
                tracing::error!("{}; {} is tried again", Chain(error), path.display());
                self.glance = Some(Instant::now() + backoff::after(1));
                return;
            }
        };
        match &reason {
            None => tracing::info!("{}: accepted", path.display()),
            Some(reason) => tracing::error!("{reason}; it is in rejected/"),
        }
        if let Err(error) = inbox.put_away(path, reason.as_deref()) {
            tracing::warn!(
                "cannot move {} out of the inbox: {error}; it is left alone until it changes",
                path.display()
            );
        }
    }
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

fn open_inbox(config: &Config) -> Option<Inbox> {
    let dir = config.inbox.as_ref()?;
    match Inbox::open(dir) {
        Ok(inbox) => Some(inbox),
        Err(error) => {
            tracing::error!("cannot open the inbox {} (sync.inbox): {error}", dir.display());
            None
        }
    }
}

fn watched(sources: &Sources, config: &Config) -> Vec<(What, PathBuf)> {
    let mut files = vec![(What::Settings, sources.file().0)];
    let intent = &config.intent;
    let key = intent.api.as_ref().and_then(|api| api.key.file().cloned());
    let ca = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    files.extend(key.into_iter().chain(intent.network.ca_file.clone()).chain(ca).map(|path| (What::Settings, path)));
    if let Some(Bundle::File(path)) = &intent.bundle {
        files.push((What::Bundle, path.clone()));
    }
    files.extend(config.inbox.clone().map(|path| (What::Inbox, path)));
    files
}

fn tell(report: &Report) {
    for warning in report.brought.iter().flat_map(|brought| &brought.warnings) {
        tracing::warn!("{warning}");
    }
    match &report.outcome {
        Outcome::Activated(id) => tracing::info!("version {} is active", id.short()),
        Outcome::NotActive(id, why) if report.brought.is_some() => {
            tracing::warn!("version {} is sealed but not active: {why}", id.short());
        }
        _ => tracing::debug!("nothing new"),
    }
}
