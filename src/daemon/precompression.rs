//! Makes the Brotli and Zstandard forms of the served version in the background: neither a start nor an activation
//! waits for them.
//!
//! A *coding* is Brotli or Zstandard here, and a *form* is a file in such a coding
//! ([`ResponseForm`](docwharf_serve::negotiate::ResponseForm)). All forms of a version in one coding are in one *coding
//! file* ([`coding_file`]), which the store holds as a derived file.
//!
//! It is level-triggered, like the policies: whenever the served version lacks forms, they are read from the store or
//! made, one coding after the other. A separate process encodes them ([`encoder_process`](super::encoder_process));
//! this module decides when that process may run. It takes turns with the process that builds the search index
//! ([`build_turn`](super::build_turn)). The task is cancelled when another version is served, the daemon stops, the
//! index must be built, or the disk space is needed; half-made files are removed then. Complete files stay with their
//! version, so that a restart or a rollback finds them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot, watch};
use tokio::time::sleep;

use crate::admin::daemon_state::{self, DaemonState};
use docwharf_agent::store::derived::{BROTLI, ZSTD};
use docwharf_agent::store::writer::StoreWriter;
use docwharf_agent::store::{IMAGE, INDEX, StoreError};
use docwharf_base::codec::content_coding::ContentCoding;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::locks::{Mutex, MutexGuard};
use docwharf_base::model::units::{format_count, format_size};
use docwharf_serve::Site;
use docwharf_serve::precompressed::{PrecompressedCodings, PrecompressedFiles};
use docwharf_site::coding_file::{self, CodingFault, CodingStatistics};
use docwharf_site::mapping::{self, SealedFile};
use docwharf_site::seal::coding_writer;
use docwharf_site::sealed_version::SealedVersion;

use super::build_failures::BuildFailures;
use super::build_turn::{BuildTurn, TurnGuard};
use super::derived_space::{find_space_problem, space_limits};
use super::encoder_process::{EncoderProcess, EncoderTask};
use super::own_programs::own_program_network;
use super::task::lower_priority_to_background;
use super::throttle::Throttle;

/// Interval between checks whether to continue.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// Interval between checks of the free disk space.
const SPACE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time until the next attempt after there was too little disk space.
const NO_SPACE_RETRY_DELAY: Duration = Duration::from_mins(10);
/// Number of bytes of a coding file that are read at a time.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// State shared by the encoding thread and the store, which may need the disk space of the forms.
#[derive(Debug, Default)]
struct EncodingControl {
    /// Whether a thread is encoding, and whether the store needs the disk space of its files.
    state: Mutex<EncodingState>,
    notify_space_needed: Notify,
}

#[derive(Debug, Default)]
struct EncodingState {
    is_running: bool,
    is_space_needed: bool,
}

impl EncodingControl {
    fn state(&self) -> MutexGuard<'_, EncodingState> {
        self.state.lock()
    }

    /// Stops serving the forms and cancels the task. Waits until the thread has stopped (normally within
    /// [`POLL_INTERVAL`]), but at most two seconds.
    fn stop_serving_and_cancel(&self, site: &Site) {
        const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);
        {
            let mut state = self.state();
            state.is_space_needed = true;
            site.set_precompressed(None);
        }
        self.notify_space_needed.notify_one();
        let deadline = Instant::now() + CANCEL_TIMEOUT;
        while self.state().is_running && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Starts to serve the forms, unless their disk space is needed or another version is served meanwhile.
    fn start_serving(&self, site: &Site, codings: &PrecompressedCodings) {
        let state = self.state();
        if !state.is_space_needed && site.served_version().is_some_and(|now| now.id == codings.id) {
            site.set_precompressed(Some(codings.clone()));
        }
    }
}

/// The result of an encoding thread.
#[derive(Debug)]
enum EncodingResult {
    Done,
    /// Cancelled: another version is served, the daemon stops, the search index must be built, or the disk space is
    /// needed.
    Cancelled,
    /// There is too little disk space, for this reason.
    NoSpace(String),
    Failed(String),
}

/// Keeps the forms of `site` in these codings up to date until the daemon stops.
pub(super) async fn maintain_codings(
    site: Arc<Site>,
    writer: Arc<StoreWriter>,
    codings: Vec<ContentCoding>,
    daemon_state: Arc<DaemonState>,
    turn: Arc<BuildTurn>,
    mut stopped: watch::Receiver<bool>,
) {
    if codings.is_empty() {
        return;
    }
    let control = Arc::new(EncodingControl::default());
    let (cancelled_control, site_to_clear) = (Arc::clone(&control), Arc::clone(&site));
    writer.before_removing_derived_files(move || cancelled_control.stop_serving_and_cancel(&site_to_clear));
    let mut versions = site.subscribe_to_versions();
    let (mut handled, mut failures) = (None, BuildFailures::default());
    loop {
        versions.mark_unchanged();
        let mut wait = None;
        if let Some(version) = site.served_version().filter(|version| handled != Some(version.id)) {
            let id = version.id;
            failures.begin_attempt(id);
            let (stop, stop_channel) = channel();
            let job = EncodingJob::new(&site, version, &writer, &control, &daemon_state, &turn, stop_channel);
            let Some(end) = run_job(job, codings.clone(), stop, &mut stopped).await else { return };
            handled = Some(id);
            match end {
                EncodingResult::Done => failures = BuildFailures::default(),
                EncodingResult::Cancelled if control.state().is_space_needed => wait = Some(NO_SPACE_RETRY_DELAY),
                // The next attempt is for another version, or waits until the search index is there.
                EncodingResult::Cancelled => {
                    handled = None;
                    continue;
                }
                EncodingResult::NoSpace(why) => {
                    tracing::info!(
                        "the Brotli and Zstandard forms of version {} are not made: {why}; gzip is served",
                        id.short()
                    );
                    daemon_state.update(|snapshot| {
                        snapshot.codings = Some(daemon_state::PrecompressedState::with_error(id, why));
                    });
                    wait = Some(NO_SPACE_RETRY_DELAY);
                }
                EncodingResult::Failed(why) => {
                    wait = failures.count();
                    let next = match wait {
                        Some(_) => "trying again later",
                        None => "the next version or start tries again",
                    };
                    tracing::warn!(
                        "cannot make the Brotli and Zstandard forms of version {}: {why}; gzip is served, {next}",
                        id.short()
                    );
                    daemon_state.update(|snapshot| {
                        snapshot.codings = Some(daemon_state::PrecompressedState::with_error(id, why));
                    });
                }
            }
        }
        tokio::select! {
            changed = versions.changed() => if changed.is_err() { return },
            _ = stopped.changed() => return,
            // Not at once: the disk space was freed because another operation is about to use it.
            () = control.notify_space_needed.notified() => tokio::select! {
                () = sleep(NO_SPACE_RETRY_DELAY) => handled = None,
                _ = versions.changed() => {}
                _ = stopped.changed() => return,
            },
            () = sleep(wait.unwrap_or_default()), if wait.is_some() => handled = None,
        }
    }
}

/// Runs the job on a separate thread. Returns `None` if the daemon stops; the thread has ended then.
async fn run_job(
    mut job: EncodingJob,
    codings: Vec<ContentCoding>,
    stop: Sender<()>,
    stopped: &mut watch::Receiver<bool>,
) -> Option<EncodingResult> {
    while job.site.is_opening() {
        tokio::select! {
            () = sleep(POLL_INTERVAL) => {}
            _ = stopped.changed() => return None,
        }
    }
    let (send, mut done) = oneshot::channel();
    let task = move || {
        lower_priority_to_background(1);
        let result = job.make_all(&codings);
        let control = Arc::clone(&job.control);
        drop(job);
        control.state().is_running = false;
        // There is no receiver any more when the program ends.
        let _ = send.send(result);
    };
    if let Err(error) = thread::Builder::new().name("docwharf-codings".to_owned()).spawn(task) {
        return Some(EncodingResult::Failed(format!("cannot start a thread: {error}")));
    }
    tokio::select! {
        result = &mut done => Some(result.unwrap_or_else(|_| EncodingResult::Failed("the thread died; this is a bug".to_owned()))),
        _ = stopped.changed() => {
            drop(stop);
            let _ = done.await;
            None
        }
    }
}

/// The task of one encoding thread.
struct EncodingJob {
    site: Arc<Site>,
    version: Arc<SealedVersion>,
    writer: Arc<StoreWriter>,
    control: Arc<EncodingControl>,
    daemon_state: Arc<DaemonState>,
    turn: Arc<BuildTurn>,
    /// Carries no message; it is closed when the daemon stops.
    stop_channel: Receiver<()>,
    throttle: Throttle,
}

impl Drop for EncodingJob {
    fn drop(&mut self) {
        self.control.state().is_running = false;
    }
}

impl EncodingJob {
    fn new(
        site: &Arc<Site>,
        version: Arc<SealedVersion>,
        writer: &Arc<StoreWriter>,
        control: &Arc<EncodingControl>,
        daemon_state: &Arc<DaemonState>,
        turn: &Arc<BuildTurn>,
        stop_channel: Receiver<()>,
    ) -> EncodingJob {
        *control.state() = EncodingState { is_running: true, is_space_needed: false };
        let throttle = Throttle::new(Instant::now(), answered_requests(site));
        let (site, writer, control) = (Arc::clone(site), Arc::clone(writer), Arc::clone(control));
        let (daemon_state, turn) = (Arc::clone(daemon_state), Arc::clone(turn));
        EncodingJob { site, version, writer, control, daemon_state, turn, stop_channel, throttle }
    }

    fn make_all(&mut self, requested: &[ContentCoding]) -> EncodingResult {
        let id = self.version.id;
        let mut codings = PrecompressedCodings::empty(id);
        self.update_daemon_state(&codings, false);
        for &coding in requested {
            let Some(_turn) = self.wait_for_turn() else { return EncodingResult::Cancelled };
            let files = match self.load_stored(coding) {
                Ok(None) => self.make_and_verify(coding),
                Ok(Some(files)) => Ok(files),
                Err(end) => Err(end),
            };
            match files {
                Ok(files) => *codings.slot_mut(coding) = Some(files),
                Err(end) => return end,
            }
            self.control.start_serving(&self.site, &codings);
            self.update_daemon_state(&codings, false);
        }
        self.update_daemon_state(&codings, true);
        EncodingResult::Done
    }

    /// Waits until there is no load and no other process works on the version. Returns `None` if the task is cancelled.
    fn wait_for_turn(&mut self) -> Option<TurnGuard> {
        loop {
            if self.may_work()
                && let Some(turn) = self.turn.take_for_forms(self.version.id)
            {
                return Some(turn);
            }
            if !self.wait_poll_interval() {
                return None;
            }
        }
    }

    /// Waits for [`POLL_INTERVAL`], or until the daemon stops. Returns whether the task is still needed.
    fn wait_poll_interval(&self) -> bool {
        matches!(self.stop_channel.recv_timeout(POLL_INTERVAL), Err(RecvTimeoutError::Timeout)) && !self.is_cancelled()
    }

    fn is_cancelled(&self) -> bool {
        self.stop_channel.try_recv() != Err(TryRecvError::Empty)
            || self.control.state().is_space_needed
            || self.site.served_version().is_none_or(|now| now.id != self.version.id)
    }

    fn may_work(&mut self) -> bool {
        let answered = answered_requests(&self.site);
        self.throttle.may_work(Instant::now(), answered)
    }

    fn update_daemon_state(&self, codings: &PrecompressedCodings, ready: bool) {
        let statistics = |files: &Option<PrecompressedFiles>| files.as_ref().map(|files| files.statistics);
        let (brotli, zstd) = (statistics(&codings.brotli), statistics(&codings.zstd));
        let state = daemon_state::PrecompressedState { version: codings.id, ready, brotli, zstd, error: None };
        self.daemon_state.update(|snapshot| snapshot.codings = Some(state));
    }

    /// Opens the stored coding file, which was made when the version was served before. A file that cannot be used is
    /// discarded.
    fn load_stored(&self, coding: ContentCoding) -> Result<Option<PrecompressedFiles>, EncodingResult> {
        let id = self.version.id;
        let Some(file) = self.writer.store().open_derived(id, derived_kind(coding)) else { return Ok(None) };
        match self.verify_and_map(coding, &file) {
            Ok(coded) => Ok(Some(coded)),
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => Err(EncodingResult::Cancelled),
            Err(fault) => {
                let path = self.writer.store().derived_dir(id).join(derived_kind(coding));
                tracing::warn!("cannot use {}: {}; it is rebuilt", path.display(), ErrorChain(&fault));
                if let Err(error) = self.writer.remove_derived(id, derived_kind(coding)) {
                    tracing::warn!("{}", ErrorChain(&error));
                }
                Ok(None)
            }
        }
    }

    /// Reads a coding file to its end, verifies its checksums and maps it. Data that the disk has lost is an error
    /// here, not a SIGBUS later. The bodies are not read through the mapping, so that they take no memory of this
    /// process before a client requests them.
    fn verify_and_map(&self, coding: ContentCoding, file: &SealedFile) -> io::Result<PrecompressedFiles> {
        let (id, files) = (self.version.id, self.version.index().len());
        let mut buffer = vec![0; READ_BUFFER_BYTES];
        read_pieces(file, 0, coding_file::compute_head_len(files), &mut buffer, &mut |_| {})?;
        let bytes = mapping::map_derived(file)?;
        let statistics = coding_file::check_file(&bytes, coding, id, files).map_err(io::Error::other)?;
        for number in 0..files {
            if self.is_cancelled() {
                return Err(cancelled_error());
            }
            let record = coding_file::read_record(&bytes, number);
            let mut crc = crc32fast::Hasher::new();
            read_pieces(file, record.offset, record.len, &mut buffer, &mut |piece| crc.update(piece))?;
            if record.len > 0 && crc.finalize() != record.crc {
                return Err(io::Error::other(CodingFault("the checksum of a body")));
            }
        }
        Ok(PrecompressedFiles::new(bytes, statistics))
    }

    fn make_and_verify(&mut self, coding: ContentCoding) -> Result<PrecompressedFiles, EncodingResult> {
        let (id, writer) = (self.version.id, Arc::clone(&self.writer));
        let failed = |error: &(dyn std::error::Error + 'static)| EncodingResult::Failed(ErrorChain(error).to_string());
        let max_bytes = coding_writer::max_coding_len(self.version.index());
        if let Some(why) =
            self.find_space_problem(max_bytes, self.next_bundle_bytes()).map_err(|error| failed(&error))?
        {
            return Err(EncodingResult::NoSpace(why));
        }
        let started = Instant::now();
        let written = writer.write_large_derived(id, derived_kind(coding), |out| self.run_encoder(coding, out));
        if self.is_cancelled() {
            return Err(EncodingResult::Cancelled);
        }
        written.map_err(|error| match &error {
            StoreError::Io { source, .. } if source.kind() == io::ErrorKind::Interrupted => EncodingResult::Cancelled,
            StoreError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                EncodingResult::NoSpace(source.to_string())
            }
            _ => failed(&error),
        })?;
        let missing = || io::Error::other("it has been removed");
        let file = writer
            .store()
            .open_derived(id, derived_kind(coding))
            .ok_or_else(missing)
            .map_err(|error| failed(&error))?;
        let coded = self.verify_and_map(coding, &file).map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => EncodingResult::Cancelled,
            _ => failed(&error),
        })?;
        let CodingStatistics { files, bytes, cpu_millis } = coded.statistics;
        tracing::info!(
            "version {} has {} for {} ({}); it took {cpu_millis} ms of one processor within {} s",
            id.short(),
            coding.token(),
            format_count(files, "file"),
            format_size(bytes),
            started.elapsed().as_secs()
        );
        Ok(coded)
    }

    /// Runs the encoder process, which writes to `out`, and pauses it while the site is under load.
    fn run_encoder(&mut self, coding: ContentCoding, out: &File) -> io::Result<()> {
        let store = self.writer.store().clone();
        let dir = store.version_dir(self.version.id);
        let task = EncoderTask { coding, id: self.version.id, index: dir.join(INDEX) };
        let mut encoder = EncoderProcess::start(&task, &dir, out, own_program_network(&self.daemon_state))?;
        let mut last_space_check = Instant::now();
        while !encoder.is_done()? {
            if !self.wait_poll_interval() || self.turn.is_index_waiting() {
                return Err(cancelled_error());
            }
            if last_space_check.elapsed() >= SPACE_CHECK_INTERVAL {
                last_space_check = Instant::now();
                if let Some(why) = self.find_space_problem(0, 0).map_err(io::Error::other)? {
                    return Err(io::Error::new(io::ErrorKind::StorageFull, why));
                }
            }
            let may_work = self.may_work();
            encoder.set_running(may_work);
        }
        Ok(())
    }

    /// Estimates the disk space in bytes that the next bundle needs: a copy of the bundle and the image made from it.
    /// Forms are removed when the store needs their space, but the copy for an import is written before the store can
    /// remove anything.
    fn next_bundle_bytes(&self) -> u64 {
        let image = self.writer.store().version_dir(self.version.id).join(IMAGE);
        std::fs::metadata(image).map_or(0, |image| image.len().saturating_mul(2))
    }

    /// Returns the reason why `more` bytes cannot be written with `spare` bytes left free; `None` if they can.
    fn find_space_problem(&self, more: u64, spare: u64) -> Result<Option<String>, StoreError> {
        find_space_problem(self.writer.store(), &space_limits(&self.daemon_state), more, spare)
    }
}

fn cancelled_error() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "cancelled")
}

/// Reads `len` bytes of a file from `offset` and passes them to `take` in pieces.
fn read_pieces(file: &File, offset: u64, len: u64, buffer: &mut [u8], take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    let mut position = 0;
    while position < len {
        let piece = &mut buffer[..(len - position).min(READ_BUFFER_BYTES as u64) as usize];
        file.read_exact_at(piece, offset + position)?;
        take(piece);
        position += piece.len() as u64;
    }
    Ok(())
}

fn derived_kind(coding: ContentCoding) -> &'static str {
    match coding {
        ContentCoding::Brotli => BROTLI,
        ContentCoding::Zstd => ZSTD,
    }
}

fn answered_requests(site: &Site) -> u64 {
    site.request_counts().iter().sum()
}
