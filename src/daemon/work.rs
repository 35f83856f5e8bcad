//! The thread on which `run` looks, downloads, proves and seals: it steps back behind the serving threads.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use arc_swap::ArcSwap;
use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use tokio::sync::{oneshot, watch};

use crate::admin::wire::{Import, Reply};
use docwharf_base::cores;
use docwharf_base::secret::words_of_panic;
use docwharf_base::model::version::{VersionLabel, VersionId};
use docwharf_site::seal::SealError;
use docwharf_site::sealed::Sealed;
use docwharf_agent::store::writer::Writer;
use docwharf_agent::sync::act::{self, Doing, Means};
use docwharf_agent::sync::inbox::Dropped;
use docwharf_agent::sync::plan::Trigger;
use docwharf_agent::sync::settle::{Handed, Report, import};
use docwharf_agent::sync::{Intent, SyncError, open, operator};

/// How much less the thread matters than those that serve.
const NICE: i32 = 10;

/// What there is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Work {
    /// A sync, what woke it, and whether what it brings passes the gate unasked.
    Sync(Trigger, bool, Option<String>),
    /// A file from the inbox.
    Inbox(Dropped),
    /// A bundle that a person brings.
    Import(Import, String),
    /// What a person who has ended a hold is to be told, once the gate has read what is due; whether there was a hold.
    Release(bool, String),
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) work: Work,
    pub(super) result: Result<Report, SyncError>,
    /// The version that is to be served from now on, opened.
    pub(super) opened: Opened,
}

/// Work under way.
#[derive(Debug)]
pub(super) struct Running {
    /// Resolves when it is done; an error means that the thread died.
    pub(super) done: oneshot::Receiver<Done>,
    /// Whether a file is being imported.
    pub(super) is_import: bool,
    stop: watch::Sender<bool>,
    /// How far it is.
    pub(super) doing: Arc<Doing>,
    /// When it began.
    pub(super) began: Instant,
    /// Who waits for what comes of it.
    pub(super) waiting: Vec<oneshot::Sender<Reply>>,
    /// Whether it is a sync, which loses nothing when it is called off.
    pub(super) is_sync: bool,
    /// Whether it is one that nobody has asked for.
    pub(super) gives_way: bool,
}

impl Running {
    /// Starts `work` on a thread of its own, under the configuration in force. `shown` is what is served now.
    pub(super) fn start(
        work: Work,
        writer: &Arc<Writer>,
        in_force: &Arc<ArcSwap<Intent>>,
        shown: Option<VersionId>,
        runtime: tokio::runtime::Handle,
    ) -> io::Result<Running> {
        let (stop, stopped) = watch::channel(false);
        let (send, done) = oneshot::channel();
        let is_import = matches!(work, Work::Inbox(_) | Work::Import(..));
        let is_sync = matches!(work, Work::Sync(..));
        let gives_way = matches!(work, Work::Sync(trigger, ..) if trigger < Trigger::Asked);
        let doing = Arc::new(Doing::default());
        let told = Arc::clone(&doing);
        let (writer, in_force) = (Arc::clone(writer), Arc::clone(in_force));
        let intent = in_force.load_full();
        thread::Builder::new().name("docwharf-sync".to_owned()).spawn(move || {
            step_back(intent.effort.threads);
            let who = match &work {
                Work::Sync(.., who) => who.as_deref().unwrap_or("docwharf run"),
                Work::Inbox(_) => "inbox",
                Work::Import(_, who) | Work::Release(_, who) => who,
            };
            let force = match &work {
                Work::Sync(_, force, _) => *force,
                Work::Inbox(_) | Work::Release(..) => false,
                Work::Import(one, _) => one.force,
            };
            let means =
                Means { runtime, stop: stopped, doing: told, who: who.to_owned(), force, in_force: Some(in_force) };
            // A mistake of ours must not take the site down: what is served does not depend on it.
            let done = panic::catch_unwind(AssertUnwindSafe(|| act(&work, &writer, &intent, shown, &means)));
            let (result, opened) =
                done.unwrap_or_else(|panic| (Err(SyncError::Broken(words_of_panic(panic.as_ref()).to_owned())), None));
            // Nobody waits when the program ends.
            let _ = send.send(Done { work, result, opened });
        })?;
        Ok(Running { done, is_import, stop, doing, began: Instant::now(), waiting: Vec::new(), is_sync, gives_way })
    }

    /// The same, with people who wait for what comes of it.
    pub(super) fn awaited_by(self, waiting: Vec<oneshot::Sender<Reply>>) -> Running {
        Running { waiting, ..self }
    }

    /// Calls it off at its next wait or page. An import does not listen.
    pub(super) fn call_off(&self) {
        self.stop.send_replace(true);
    }
}

type Opened = Option<(VersionId, Result<Sealed, SyncError>)>;

fn act(
    work: &Work,
    writer: &Writer,
    intent: &Intent,
    shown: Option<VersionId>,
    means: &Means,
) -> (Result<Report, SyncError>, Opened) {
    let result = match work {
        Work::Sync(trigger, ..) => act::sync(writer, intent, *trigger, means),
        Work::Inbox(dropped) => {
            let (path, source) = (&dropped.path, dropped.path.display().to_string());
            let unread = |error| SyncError::Seal(SealError::Read { path: path.clone(), source: error });
            dropped.open().map_err(unread).and_then(|file| {
                let (file, who) = (Some(&file), means.who.as_str());
                let handed = Handed { path, file, source: &source, label: None, who, force: means.force };
                import(writer, &|| means.in_force(intent), handed, &means.doing.sealing)
            })
        }
        Work::Import(one, who) => {
            let label = one.label.as_deref().and_then(|label| VersionLabel::new(label).ok());
            let (path, source) = (&one.path, &one.source);
            let handed = Handed { path, file: None, source, label: label.as_ref(), who, force: means.force };
            import(writer, &|| means.in_force(intent), handed, &means.doing.sealing)
        }
        Work::Release(_, who) => {
            means.doing.tell("reading the pages of the version that is due");
            operator::go_on(writer, &|| means.in_force(intent), who, &|| means.is_called_off())
        }
    };
    let active = writer.store().record().ok().and_then(|record| record.active);
    let due = active.filter(|&id| result.is_ok() && shown != Some(id) && !writer.store().is_rotten(id));
    let opened = due.map(|id| (id, open::open_doubted(writer, id, &intent.effort)));
    (result, opened)
}

/// Threads for what is done beside serving, where `sync.threads` says nothing.
pub(super) fn half_the_cores() -> usize {
    (cores::count() / 2).max(1)
}

/// Less important than serving, and on at most so many processors; threads started from here inherit both. Neither can
/// fail in a way that matters: it only costs politeness.
pub(super) fn step_back(threads: usize) {
    let me = gettid();
    let nice = getpriority_process(Some(me)).unwrap_or(0);
    if nice < NICE {
        let _ = setpriority_process(Some(me), NICE);
    }
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let mut fewer = CpuSet::new();
    // The last ones: the first are where interrupts and most other things happen.
    let mine = (0..CpuSet::MAX_CPU).rev().filter(|&cpu| allowed.is_set(cpu)).take(threads);
    for cpu in mine {
        fewer.set(cpu);
    }
    let _ = sched_setaffinity(None, &fewer);
}
