//! Makes the Brotli and Zstandard forms of the served version beside serving: neither a start nor an activation waits
//! for them.
//!
//! It is level-triggered, like the policies: whenever the served version lacks forms, they are read from the store or
//! made, one coding after the other. A process of its own encodes them ([`maker`](super::maker)); this module decides
//! when that process may run. The work is cancelled when another version is served, the daemon stops, or the disk space
//! is needed; half-made files are removed then. Complete files stay with their version, so that a restart or a rollback
//! finds them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot, watch};
use tokio::time::sleep;

use crate::admin::live::{self, Live};
use docwharf_agent::store::derived::{BROTLI, ZSTD};
use docwharf_agent::store::space::{SpaceLimits, free_bytes, is_over};
use docwharf_agent::store::writer::StoreWriter;
use docwharf_agent::store::{IMAGE, INDEX, StoreError};
use docwharf_base::backoff;
use docwharf_base::codec::content_coding::ContentCoding;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::units::{count_noun, show_size};
use docwharf_serve::Site;
use docwharf_serve::precompressed::{PrecompressedCodings, PrecompressedFiles};
use docwharf_site::coding_file::{self, CodingFault, CodingStatistics};
use docwharf_site::mapping;
use docwharf_site::seal::coding_writer;
use docwharf_site::sealed_version::SealedVersion;

use super::maker::{Maker, Order};
use super::pace::Pace;
use super::work::step_back;

/// Interval between checks whether to continue.
const TICK: Duration = Duration::from_millis(25);
/// Interval between checks of the free disk space.
const ROOM: Duration = Duration::from_secs(1);
/// Time until the next attempt after there was too little disk space.
const LATER: Duration = Duration::from_mins(10);
/// Number of failures in a row after which no further attempt is made for a version.
const ATTEMPTS: u32 = 3;
/// Number of bytes of a stored form that are read at a time.
const PIECE: usize = 64 << 10;

/// State shared by the encoding thread and the store, which may need the disk space of the forms.
#[derive(Debug, Default)]
struct Desk {
    /// Whether a thread works, and whether it must give up its files.
    state: Mutex<State>,
    withdrawn: Notify,
}

#[derive(Debug, Default)]
struct State {
    works: bool,
    is_withdrawn: bool,
}

impl Desk {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops serving the forms and cancels the work. Waits until the thread has stopped, which it does within a tick,
    /// but at most two seconds.
    fn withdraw(&self, site: &Site) {
        const PATIENCE: Duration = Duration::from_secs(2);
        {
            let mut state = self.state();
            state.is_withdrawn = true;
            site.set_precompressed(None);
        }
        self.withdrawn.notify_one();
        let deadline = Instant::now() + PATIENCE;
        while self.state().works && Instant::now() < deadline {
            thread::sleep(TICK);
        }
    }

    /// Serves the forms, unless they have been withdrawn or another version is served meanwhile.
    fn offer(&self, site: &Site, codings: &PrecompressedCodings) {
        let state = self.state();
        if !state.is_withdrawn && site.current().is_some_and(|now| now.id == codings.id) {
            site.set_precompressed(Some(codings.clone()));
        }
    }
}

/// The result of an encoding thread.
#[derive(Debug)]
enum End {
    Done,
    /// Cancelled: another version is served, the daemon stops, or the disk space is needed.
    CalledOff,
    /// There is too little disk space, for this reason.
    NoRoom(String),
    Failed(String),
}

/// Keeps the forms of `site` in the `wanted` codings up to date until the daemon stops.
pub(super) async fn live(
    site: Arc<Site>,
    writer: Arc<StoreWriter>,
    wanted: Vec<ContentCoding>,
    told: Arc<Live>,
    mut stopped: watch::Receiver<bool>,
) {
    if wanted.is_empty() {
        return;
    }
    let desk = Arc::new(Desk::default());
    let (holder, of) = (Arc::clone(&desk), Arc::clone(&site));
    writer.before_giving_up(move || holder.withdraw(&of));
    let mut shown = site.subscribe_to_versions();
    let (mut known, mut failures) = (None, 0);
    loop {
        shown.mark_unchanged();
        let mut wait = None;
        if let Some(version) = site.current().filter(|version| known != Some(version.id)) {
            let id = version.id;
            let (stop, calls) = channel();
            let job = Job::new(&site, version, &writer, &desk, &told, calls);
            let Some(end) = carry_out(job, wanted.clone(), stop, &mut stopped).await else { return };
            known = Some(id);
            match end {
                End::Done => failures = 0,
                End::CalledOff if site.current().is_some_and(|now| now.id == id) => wait = Some(LATER),
                End::CalledOff => continue,
                End::NoRoom(why) => {
                    tracing::info!("denser forms of version {} are not made: {why}; gzip goes out", id.short());
                    told.tell(|now| now.codings = Some(live::Codings::hindered(id, why)));
                    wait = Some(LATER);
                }
                End::Failed(why) => {
                    failures += 1;
                    let last = failures >= ATTEMPTS;
                    let next = if last { "the next version or start tries again" } else { "trying again in a while" };
                    tracing::warn!(
                        "cannot make the denser forms of version {}: {why}; gzip goes out, {next}",
                        id.short()
                    );
                    told.tell(|now| now.codings = Some(live::Codings::hindered(id, why)));
                    wait = if last { None } else { Some(backoff::wait_after_failures(failures)) };
                }
            }
        }
        tokio::select! {
            changed = shown.changed() => match changed {
                Ok(()) => failures = 0,
                Err(_) => return,
            },
            _ = stopped.changed() => return,
            // Not at once: the disk space was freed because another operation is about to use it.
            () = desk.withdrawn.notified() => tokio::select! {
                () = sleep(LATER) => known = None,
                _ = shown.changed() => {}
                _ = stopped.changed() => return,
            },
            () = sleep(wait.unwrap_or_default()), if wait.is_some() => known = None,
        }
    }
}

/// Runs the job on a thread of its own. Returns `None` if the daemon stops; the thread has ended then.
async fn carry_out(
    mut job: Job,
    wanted: Vec<ContentCoding>,
    stop: Sender<()>,
    stopped: &mut watch::Receiver<bool>,
) -> Option<End> {
    while job.site.is_opening() {
        tokio::select! {
            () = sleep(TICK) => {}
            _ = stopped.changed() => return None,
        }
    }
    let (send, mut done) = oneshot::channel();
    let work = move || {
        step_back(1);
        let end = job.see_to(&wanted);
        let desk = Arc::clone(&job.desk);
        drop(job);
        desk.state().works = false;
        // The receiver is gone when the program ends.
        let _ = send.send(end);
    };
    if let Err(error) = thread::Builder::new().name("docwharf-codings".to_owned()).spawn(work) {
        return Some(End::Failed(format!("cannot start a thread: {error}")));
    }
    tokio::select! {
        end = &mut done => Some(end.unwrap_or_else(|_| End::Failed("the thread died; this is a bug".to_owned()))),
        _ = stopped.changed() => {
            drop(stop);
            let _ = done.await;
            None
        }
    }
}

/// The work of one encoding thread.
struct Job {
    site: Arc<Site>,
    version: Arc<SealedVersion>,
    writer: Arc<StoreWriter>,
    desk: Arc<Desk>,
    told: Arc<Live>,
    /// Carries no message; it is closed when the daemon stops.
    calls: Receiver<()>,
    pace: Pace,
}

impl Drop for Job {
    fn drop(&mut self) {
        self.desk.state().works = false;
    }
}

impl Job {
    fn new(
        site: &Arc<Site>,
        version: Arc<SealedVersion>,
        writer: &Arc<StoreWriter>,
        desk: &Arc<Desk>,
        told: &Arc<Live>,
        calls: Receiver<()>,
    ) -> Job {
        *desk.state() = State { works: true, is_withdrawn: false };
        let pace = Pace::new(Instant::now(), answered(site));
        let (site, writer, desk) = (Arc::clone(site), Arc::clone(writer), Arc::clone(desk));
        Job { site, version, writer, desk, told: Arc::clone(told), calls, pace }
    }

    fn see_to(&mut self, wanted: &[ContentCoding]) -> End {
        let id = self.version.id;
        let mut codings = PrecompressedCodings::empty(id);
        self.tell(&codings, false);
        for &coding in wanted {
            while !self.may_work() {
                if !self.goes_on() {
                    return End::CalledOff;
                }
            }
            let coded = match self.stored(coding) {
                Ok(None) => self.made(coding),
                Ok(Some(coded)) => Ok(coded),
                Err(end) => Err(end),
            };
            match coded {
                Ok(coded) => *codings.slot_mut(coding) = Some(coded),
                Err(end) => return end,
            }
            self.desk.offer(&self.site, &codings);
            self.tell(&codings, false);
        }
        self.tell(&codings, true);
        End::Done
    }

    /// Waits for a tick. Returns whether the work is still wanted.
    fn goes_on(&self) -> bool {
        matches!(self.calls.recv_timeout(TICK), Err(RecvTimeoutError::Timeout)) && !self.is_off()
    }

    fn is_off(&self) -> bool {
        self.calls.try_recv() != Err(TryRecvError::Empty)
            || self.desk.state().is_withdrawn
            || self.site.current().is_none_or(|now| now.id != self.version.id)
    }

    fn may_work(&mut self) -> bool {
        let answered = answered(&self.site);
        self.pace.next(Instant::now(), answered)
    }

    fn tell(&self, codings: &PrecompressedCodings, ready: bool) {
        let yields = |coded: &Option<PrecompressedFiles>| coded.as_ref().map(|coded| coded.yields);
        let (brotli, zstd) = (yields(&codings.brotli), yields(&codings.zstd));
        let now = live::Codings { version: codings.id, ready, brotli, zstd, why_not: None };
        self.told.tell(|known| known.codings = Some(now));
    }

    /// Opens the stored form in a coding, which was made when the version was served before. A file that cannot be used
    /// is discarded.
    fn stored(&self, coding: ContentCoding) -> Result<Option<PrecompressedFiles>, End> {
        let id = self.version.id;
        let Some(file) = self.writer.store().derived_file(id, kind(coding)) else { return Ok(None) };
        match self.proved(coding, &file) {
            Ok(coded) => Ok(Some(coded)),
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => Err(End::CalledOff),
            Err(fault) => {
                let path = self.writer.store().derived_dir(id).join(kind(coding));
                tracing::warn!("cannot use {}: {}; it is made again", path.display(), ErrorChain(&fault));
                if let Err(error) = self.writer.discard(id, kind(coding)) {
                    tracing::warn!("{}", ErrorChain(&error));
                }
                Ok(None)
            }
        }
    }

    /// Reads a stored form to its end, verifies its checksums and maps it. Data that the disk has lost is an error
    /// here, not a SIGBUS later. The bodies are not read through the mapping, so that they take no memory of this
    /// process before a client requests them.
    fn proved(&self, coding: ContentCoding, file: &File) -> io::Result<PrecompressedFiles> {
        let (id, files) = (self.version.id, self.version.index().len());
        let mut buffer = vec![0; PIECE];
        read(file, 0, coding_file::head_len(files), &mut buffer, &mut |_| {})?;
        let bytes = mapping::map_derived(file)?;
        let yields = coding_file::check_file(&bytes, coding, id, files).map_err(io::Error::other)?;
        for number in 0..files {
            if self.is_off() {
                return Err(called_off());
            }
            let record = coding_file::read_record(&bytes, number);
            let mut crc = crc32fast::Hasher::new();
            read(file, record.offset, record.len, &mut buffer, &mut |piece| crc.update(piece))?;
            if record.len > 0 && crc.finalize() != record.crc {
                return Err(io::Error::other(CodingFault("the checksum of a body")));
            }
        }
        Ok(PrecompressedFiles::new(bytes, yields))
    }

    fn made(&mut self, coding: ContentCoding) -> Result<PrecompressedFiles, End> {
        let (id, writer) = (self.version.id, Arc::clone(&self.writer));
        let failed = |error: &(dyn std::error::Error + 'static)| End::Failed(ErrorChain(error).to_string());
        let most = coding_writer::max_coding_len(self.version.index());
        if let Some(why) = self.no_room(most, self.next_bundle()).map_err(|error| failed(&error))? {
            return Err(End::NoRoom(why));
        }
        let began = Instant::now();
        let written = writer.derive_large(id, kind(coding), |out| self.make(coding, out));
        if self.is_off() {
            return Err(End::CalledOff);
        }
        written.map_err(|error| match &error {
            StoreError::Io { source, .. } if source.kind() == io::ErrorKind::Interrupted => End::CalledOff,
            StoreError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                End::NoRoom(source.to_string())
            }
            _ => failed(&error),
        })?;
        let gone = || io::Error::other("it is not there any more");
        let file = writer.store().derived_file(id, kind(coding)).ok_or_else(gone).map_err(|error| failed(&error))?;
        let coded = self.proved(coding, &file).map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => End::CalledOff,
            _ => failed(&error),
        })?;
        let CodingStatistics { files, bytes, millis } = coded.yields;
        tracing::info!(
            "version {} has {} for {} ({}); it took {millis} ms of one processor within {} s",
            id.short(),
            coding.token(),
            count_noun(files, "file"),
            show_size(bytes),
            began.elapsed().as_secs()
        );
        Ok(coded)
    }

    /// Runs the encoder process, which writes to `out`, and pauses it while the site is under load.
    fn make(&mut self, coding: ContentCoding, out: &File) -> io::Result<()> {
        let store = self.writer.store().clone();
        let dir = store.version_dir(self.version.id);
        let order = Order { coding, id: self.version.id, index: dir.join(INDEX) };
        let mut maker = Maker::start(&order, &dir, out)?;
        let mut looked = Instant::now();
        while !maker.is_done()? {
            if !self.goes_on() {
                return Err(called_off());
            }
            if looked.elapsed() >= ROOM {
                looked = Instant::now();
                if let Some(why) = self.no_room(0, 0).map_err(io::Error::other)? {
                    return Err(io::Error::new(io::ErrorKind::StorageFull, why));
                }
            }
            let may = self.may_work();
            maker.let_work(may);
        }
        Ok(())
    }

    /// Estimates the disk space in bytes that the next bundle needs: a copy of the bundle and the image made from it.
    /// Forms are removed when the store needs their space, but the copy for an import is written before the store can
    /// remove anything.
    fn next_bundle(&self) -> u64 {
        let image = self.writer.store().version_dir(self.version.id).join(IMAGE);
        std::fs::metadata(image).map_or(0, |image| image.len().saturating_mul(2))
    }

    /// Returns the reason why `more` bytes cannot be written with `spare` bytes left free; `None` if they can.
    fn no_room(&self, more: u64, spare: u64) -> Result<Option<String>, StoreError> {
        let store = self.writer.store();
        let allowance = self.told.now().intent.map(|intent| intent.allowance).unwrap_or_default();
        let SpaceLimits { min_free, max_bytes, .. } = allowance;
        let min_free = min_free.unwrap_or(0);
        let free = free_bytes(store.root()).map_err(StoreError::io("ask for the free space of", store.root()))?;
        if let Some(free) = free.filter(|free| *free < more.saturating_add(spare).saturating_add(min_free)) {
            let [more, spare, free, kept] = [more, spare, free, min_free].map(show_size);
            return Ok(Some(format!(
                "up to {more} are needed, and {spare} for the next bundle; {free} are free, of which {kept} must stay so \
                 (store.minFree)"
            )));
        }
        if let Some(most) = max_bytes
            && is_over(&allowance, &store.sizes()?, more)
        {
            let (more, most) = (show_size(more), show_size(most));
            return Ok(Some(format!("up to {more} more would be over store.maxBytes ({most})")));
        }
        Ok(None)
    }
}

fn called_off() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "called off")
}

/// Reads `len` bytes of a file from `offset` and passes them to `take` in pieces.
fn read(file: &File, offset: u64, len: u64, buffer: &mut [u8], take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    let mut at = 0;
    while at < len {
        let piece = &mut buffer[..(len - at).min(PIECE as u64) as usize];
        file.read_exact_at(piece, offset + at)?;
        take(piece);
        at += piece.len() as u64;
    }
    Ok(())
}

fn kind(coding: ContentCoding) -> &'static str {
    match coding {
        ContentCoding::Brotli => BROTLI,
        ContentCoding::Zstd => ZSTD,
    }
}

fn answered(site: &Site) -> u64 {
    site.request_counts().iter().sum()
}
