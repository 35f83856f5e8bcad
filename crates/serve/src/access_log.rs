//! The access log. Lines are put into a bounded queue and written by a separate thread, so that a full disk or a pipe
//! without a reader never slows a response. Lines that do not fit into the queue or cannot be written are dropped and
//! counted, and a warning is logged at most once a minute.
//!
//! The queue is bounded in lines and in bytes, because clients determine the length of a line.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use docwharf_base::locks::Mutex;

use super::access_log_line::{AccessLogFormat, LoggedAddress};

/// The largest number of lines in the queue: those of about 0.15 s of requests for a hot page to one worker
/// (BENCHMARKS.md).
const MAX_QUEUED_LINES: usize = 16_384;
/// The largest memory that the lines in the queue take, in bytes.
const MAX_QUEUED_LINE_BYTES: usize = 4 << 20;
/// The number of bytes that are collected for one write.
const WRITE_BATCH_BYTES: usize = 64 * 1024;
/// The shortest interval between two warnings about dropped lines.
const DROP_WARNING_INTERVAL: Duration = Duration::from_mins(1);
/// The longest time that [`AccessLog::finish`] waits for the last lines to be written.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest time that the writer waits for a full pipe once no more lines are added. It is shorter than
/// [`FINISH_TIMEOUT`], so that dropped lines can still be reported.
const FULL_PIPE_TIMEOUT: Duration = Duration::from_millis(500);
/// The interval between two attempts to write to a full pipe.
const FULL_PIPE_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The settings of the access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLogSettings {
    /// The format of lines.
    pub format: AccessLogFormat,
    /// How much of a client's address is written.
    pub address: LoggedAddress,
    /// The file to write to; `None` for the standard output.
    pub file: Option<PathBuf>,
}

/// A message to the writer thread.
#[derive(Debug)]
enum WriterMessage {
    Line(String),
    /// The flags in [`AccessLogState`] have changed: reopen the file, or finish.
    Wake,
}

/// The access log, to which requests pass their lines.
#[derive(Debug)]
pub struct AccessLog {
    pub(super) format: AccessLogFormat,
    pub(super) address: LoggedAddress,
    queue: SyncSender<WriterMessage>,
    state: Arc<AccessLogState>,
    file: Option<PathBuf>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// The state that the log shares with its threads.
#[derive(Debug, Default)]
struct AccessLogState {
    /// The memory that lines in the queue take, in bytes.
    queued_bytes: AtomicUsize,
    dropped: AtomicU64,
    /// The number of dropped lines that were reported.
    reported: AtomicU64,
    reopen: AtomicBool,
    /// Set when no more lines will be added.
    ended: AtomicBool,
    /// Set when all lines were written or dropped.
    finished: AtomicBool,
    /// The error of the last attempt to write; `None` if it succeeded.
    last_error: Mutex<Option<String>>,
}

impl AccessLog {
    /// Opens the file and starts the threads of the log.
    pub fn open(settings: &AccessLogSettings) -> io::Result<Arc<AccessLog>> {
        let out = match &settings.file {
            Some(path) => open_for_append(path)?,
            None => File::from(io::stdout().as_fd().try_clone_to_owned()?),
        };
        let (queue, lines) = sync_channel(MAX_QUEUED_LINES);
        let state = Arc::new(AccessLogState::default());
        let writer = AccessLogWriter {
            out,
            path: settings.file.clone(),
            has_partial_line: false,
            waiting_since: None,
            state: Arc::clone(&state),
        };
        let thread = std::thread::Builder::new().name("access-log".to_owned());
        let writer = thread.spawn(move || writer.run(&lines))?;
        // The writer thread cannot report drops while it waits for a pipe.
        let (watched_state, name) = (Arc::clone(&state), settings.file.clone());
        std::thread::Builder::new()
            .name("access-log-drops".to_owned())
            .spawn(move || warn_about_drops(&watched_state, name.as_deref()))?;
        let (format, address) = (settings.format, settings.address);
        let (file, writer) = (settings.file.clone(), Mutex::new(Some(writer)));
        Ok(Arc::new(AccessLog { format, address, queue, state, file, writer }))
    }

    /// Puts a line into the queue; never waits.
    pub(super) fn write(&self, line: String) {
        let (state, size) = (&self.state, line.capacity());
        let fits = state.queued_bytes.fetch_add(size, Ordering::Relaxed) + size <= MAX_QUEUED_LINE_BYTES;
        if !fits || self.queue.try_send(WriterMessage::Line(line)).is_err() {
            state.queued_bytes.fetch_sub(size, Ordering::Relaxed);
            state.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Opens the file again by its name, because log rotation has renamed the open file.
    pub fn reopen(&self) {
        self.state.reopen.store(true, Ordering::Relaxed);
        // If the queue is full, the writer wakes up anyway. A writer that waits for a pipe checks the flag itself.
        let _ = self.queue.try_send(WriterMessage::Wake);
    }

    /// Returns the number of dropped lines.
    pub fn dropped(&self) -> u64 {
        self.state.dropped.load(Ordering::Relaxed)
    }

    /// Waits for the lines in the queue to be written, for one second at most. Call it when no more requests are
    /// served.
    pub fn finish(&self) {
        self.state.ended.store(true, Ordering::Release);
        let _ = self.queue.try_send(WriterMessage::Wake);
        let writer = self.writer.lock().take();
        let deadline = Instant::now() + FINISH_TIMEOUT;
        while !self.state.finished.load(Ordering::Acquire) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        // No later warning follows, so the interval does not apply.
        self.state.warn_about_new_drops(self.file.as_deref());
        if let Some(writer) = writer.filter(JoinHandle::is_finished) {
            // The writer has reported its own errors, so the result of `join` is not used.
            let _ = writer.join();
        }
    }
}

impl AccessLogState {
    /// Logs a warning with the number of lines dropped since the last one, and returns whether there were any.
    fn warn_about_new_drops(&self, file: Option<&Path>) -> bool {
        let dropped = self.dropped.load(Ordering::Relaxed);
        let new = dropped - self.reported.fetch_max(dropped, Ordering::Relaxed).min(dropped);
        if new == 0 {
            return false;
        }
        let name = file.map_or_else(|| "the standard output".to_owned(), |path| path.display().to_string());
        let last_error = self.last_error.lock().clone();
        let reason = last_error.unwrap_or_else(|| SLOW_READER_REASON.to_owned());
        let lines = docwharf_base::model::units::format_count(new, "line");
        tracing::warn!("{lines} of the access log dropped: cannot write to {name}: {reason}; the site is still served");
        true
    }
}

/// The reason for dropped lines when no write has failed.
const SLOW_READER_REASON: &str = "its reader is too slow";

/// Opens a file for appending. A named pipe without a reader is an error; the call does not wait for one.
fn open_for_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Writes lines to the file, on a separate thread.
struct AccessLogWriter {
    out: File,
    path: Option<PathBuf>,
    /// Whether the last line was written only in part.
    has_partial_line: bool,
    /// When the writer began to wait for a full pipe after the end of the log.
    waiting_since: Option<Instant>,
    state: Arc<AccessLogState>,
}

impl AccessLogWriter {
    fn run(mut self, lines: &Receiver<WriterMessage>) {
        let mut batch = Vec::with_capacity(WRITE_BATCH_BYTES);
        loop {
            let first = match lines.recv_timeout(Duration::from_secs(1)) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            // Read before the queue is emptied: no lines are added after the end, so the queue then contains the last
            // ones.
            let mut is_over = self.state.ended.load(Ordering::Acquire);
            let (mut count, mut next) = (0, first);
            let mut is_empty = false;
            loop {
                match next.take() {
                    Some(WriterMessage::Line(line)) => {
                        self.state.queued_bytes.fetch_sub(line.capacity(), Ordering::Relaxed);
                        batch.extend_from_slice(line.as_bytes());
                        count += 1;
                    }
                    Some(WriterMessage::Wake) => is_over = self.state.ended.load(Ordering::Acquire),
                    None => {}
                }
                if batch.len() >= WRITE_BATCH_BYTES {
                    break;
                }
                match lines.try_recv() {
                    Ok(message) => next = Some(message),
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => {
                        is_empty = true;
                        break;
                    }
                }
            }
            if self.state.reopen.swap(false, Ordering::Relaxed) {
                self.reopen();
            }
            self.write_batch(&batch, count);
            batch.clear();
            if is_empty && is_over {
                break;
            }
        }
        self.state.finished.store(true, Ordering::Release);
    }

    /// Opens the file again. If the name still leads to the file in use, nothing changes. Returns whether another file
    /// is open now.
    fn reopen(&mut self) -> bool {
        let Some(path) = &self.path else { return false };
        match open_for_append(path) {
            Ok(out) => {
                let file = |file: &File| file.metadata().ok().map(|file| (file.dev(), file.ino()));
                let is_new_file = file(&out) != file(&self.out);
                self.has_partial_line &= !is_new_file;
                self.out = out;
                is_new_file
            }
            Err(error) => {
                tracing::warn!(
                    "cannot open {} again: {error}; the access log continues in the previous file",
                    path.display()
                );
                false
            }
        }
    }

    /// Waits a moment because the pipe is full. Returns an error once no more lines are added and the time for that is
    /// over.
    fn wait(&mut self) -> io::Result<()> {
        let is_over = self.state.ended.load(Ordering::Relaxed);
        if is_over && self.waiting_since.get_or_insert_with(Instant::now).elapsed() >= FULL_PIPE_TIMEOUT {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, SLOW_READER_REASON));
        }
        std::thread::sleep(FULL_PIPE_RETRY_INTERVAL);
        Ok(())
    }

    /// Writes a batch of `count` lines. Lines that cannot be written are counted as dropped.
    fn write_batch(&mut self, batch: &[u8], count: u64) {
        if batch.is_empty() {
            return;
        }
        let mut rest = batch;
        let mut failed = None;
        while failed.is_none() && !rest.is_empty() {
            // A line feed first ends a partial line; otherwise the next line would continue it.
            match self.out.write(if self.has_partial_line { b"\n" } else { rest }) {
                Ok(0) => failed = Some(io::ErrorKind::WriteZero.into()),
                Ok(_) if self.has_partial_line => self.has_partial_line = false,
                Ok(n) => rest = &rest[n..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Waiting for a full pipe blocks this thread only. The wait ends when another file is opened.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.state.reopen.swap(false, Ordering::Relaxed) && self.reopen() {
                        // The partial line is written as a whole to the new file.
                        let written = &batch[..batch.len() - rest.len()];
                        rest = &batch[written.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1)..];
                    }
                    failed = self.wait().err();
                }
                Err(error) => failed = Some(error),
            }
        }
        let mut last_error = self.state.last_error.lock();
        let Some(error) = failed else {
            *last_error = None;
            return;
        };
        let written = &batch[..batch.len() - rest.len()];
        self.has_partial_line |= written.last().is_some_and(|&byte| byte != b'\n');
        let whole_lines =
            written.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n")).count() as u64;
        self.state.dropped.fetch_add(count - whole_lines, Ordering::Relaxed);
        *last_error = Some(error.to_string());
    }
}

/// Logs a warning about dropped lines, once a minute at most, until all lines were written.
fn warn_about_drops(state: &AccessLogState, file: Option<&Path>) {
    let mut last: Option<Instant> = None;
    while !state.finished.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(500));
        if last.is_none_or(|last| last.elapsed() >= DROP_WARNING_INTERVAL) && state.warn_about_new_drops(file) {
            last = Some(Instant::now());
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // tests start a program
mod tests {
    use super::*;

    // Regression: the rest of a partly written line was not waited for on a full pipe, and the lines with it were
    // dropped.
    #[test]
    fn the_access_log_writer_waits_for_a_full_pipe_to_finish_a_partial_line() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, file) = (dir.path().join("pipe"), dir.path().join("file"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        // The pipe is opened for reading as well, so that opening it does not fail.
        let mut out = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
        // Filled to the last byte: a pipe accepts a short write while it fits as a whole.
        for piece in [vec![b'x'; 4096], vec![b'x']] {
            while out.write(&piece).is_ok() {}
        }
        assert_eq!(out.write(b"x").unwrap_err().kind(), io::ErrorKind::WouldBlock);
        // The writer opens the new file only while it waits, so lines in that file show that it waited.
        let state = Arc::new(AccessLogState::default());
        state.reopen.store(true, Ordering::Relaxed);
        let path = Some(file.clone());
        let mut writer =
            AccessLogWriter { out, path, has_partial_line: true, waiting_since: None, state: Arc::clone(&state) };
        writer.write_batch(b"one\ntwo\n", 2);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "one\ntwo\n");
        assert_eq!((state.dropped.load(Ordering::Relaxed), writer.has_partial_line), (0, false));
        writer.has_partial_line = true;
        writer.write_batch(b"three\n", 1);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "one\ntwo\n\nthree\n");
    }

    #[test]
    fn a_line_feed_ends_a_partially_written_access_log_line_before_the_next_line() {
        use std::io::Read;

        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut out = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
        while out.write(&[b'x'; 4096]).is_ok() {}
        // The pipe has space for one page, so only the first part of a longer line is written.
        out.read_exact(&mut [0; 4096]).unwrap();
        let mut reader = out.try_clone().unwrap();
        let state = Arc::new(AccessLogState::default());
        // The time to wait for a full pipe is over, so that the rest of the line is dropped at once.
        state.ended.store(true, Ordering::Relaxed);
        let waiting_since = Some(Instant::now().checked_sub(FULL_PIPE_TIMEOUT).unwrap());
        let mut writer =
            AccessLogWriter { out, path: None, has_partial_line: false, waiting_since, state: Arc::clone(&state) };
        writer.write_batch(format!("{}\n", "a".repeat(6000)).as_bytes(), 1);
        assert_eq!(state.dropped.load(Ordering::Relaxed), 1, "a line that is cut counts as dropped");
        let mut read_all = || {
            let mut bytes = Vec::new();
            assert_eq!(reader.read_to_end(&mut bytes).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            String::from_utf8(bytes).unwrap().trim_start_matches('x').to_owned()
        };
        assert_eq!(read_all(), "a".repeat(4096));
        writer.write_batch(b"next\n", 1);
        writer.write_batch(b"last\n", 1);
        assert_eq!(read_all(), "\nnext\nlast\n");
        assert_eq!(state.dropped.load(Ordering::Relaxed), 1);
    }

    /// Returns a log without a writer thread, and its queue.
    fn log_without_writer(max_lines: usize) -> (AccessLog, Receiver<WriterMessage>) {
        let (queue, receiver) = sync_channel(max_lines);
        let (format, address) = (AccessLogFormat::Json, LoggedAddress::Full);
        let (state, writer) = (Arc::default(), Mutex::default());
        (AccessLog { format, address, queue, state, file: None, writer }, receiver)
    }

    /// Removes the first line from the queue, as the writer does.
    fn remove_line(log: &AccessLog, lines: &Receiver<WriterMessage>) -> bool {
        let Ok(WriterMessage::Line(line)) = lines.try_recv() else { return false };
        log.state.queued_bytes.fetch_sub(line.capacity(), Ordering::Relaxed);
        true
    }

    #[test]
    fn an_access_log_line_that_exceeds_the_queue_bytes_is_dropped_and_not_counted() {
        const QUARTER: usize = MAX_QUEUED_LINE_BYTES / 4;
        let line = |bytes: usize| "x".repeat(bytes);
        let (log, lines) = log_without_writer(MAX_QUEUED_LINES);
        for (bytes, dropped) in [(QUARTER, 0), (QUARTER, 0), (2 * QUARTER - 1, 0), (2, 1), (1, 1), (1, 2)] {
            log.write(line(bytes));
            assert_eq!(log.dropped(), dropped, "{bytes} bytes");
        }
        for _ in 0..10 {
            log.write(line(3 * QUARTER));
        }
        assert_eq!((log.dropped(), log.state.queued_bytes.load(Ordering::Relaxed)), (12, MAX_QUEUED_LINE_BYTES));
        assert!(remove_line(&log, &lines));
        log.write(line(QUARTER + 1));
        log.write(line(QUARTER));
        assert_eq!(log.dropped(), 13);
        assert_eq!((0..10).filter(|_| remove_line(&log, &lines)).count(), 4, "the accepted lines are in the queue");
        assert_eq!(log.state.queued_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_access_log_queue_has_a_line_limit_in_addition_to_its_byte_limit() {
        let (log, lines) = log_without_writer(2);
        for _ in 0..5 {
            log.write("one\n".to_owned());
        }
        assert_eq!((log.dropped(), log.state.queued_bytes.load(Ordering::Relaxed)), (3, 8));
        assert!(remove_line(&log, &lines));
        log.write("two\n".to_owned());
        assert_eq!((log.dropped(), log.state.queued_bytes.load(Ordering::Relaxed)), (3, 8));
        // Reopening does not wait either.
        log.reopen();
        assert!(log.state.reopen.load(Ordering::Relaxed));
        assert!(log.state.warn_about_new_drops(None), "three lines were dropped");
        assert!(!log.state.warn_about_new_drops(None), "the warning is not repeated");
        log.write("three\n".to_owned());
        assert!(log.state.warn_about_new_drops(None), "one more line was dropped");
    }

    #[test]
    fn failed_access_log_writes_are_counted_as_dropped_and_later_writes_succeed() {
        let dir = tempfile::tempdir().unwrap();
        let (file, renamed) = (dir.path().join("file"), dir.path().join("renamed"));
        let state = Arc::new(AccessLogState::default());
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut writer = AccessLogWriter {
            out: full,
            path: Some(file.clone()),
            has_partial_line: false,
            waiting_since: None,
            state: Arc::clone(&state),
        };
        let has_error = || state.last_error.lock().is_some();
        writer.write_batch(b"", 0);
        assert!(!has_error(), "an empty batch is not written");
        writer.write_batch(b"one\ntwo\n", 2);
        assert!(has_error() && state.dropped.load(Ordering::Relaxed) == 2 && !writer.has_partial_line);
        assert!(writer.reopen(), "another file is open");
        writer.write_batch(b"three\n", 1);
        assert!(!has_error() && state.dropped.load(Ordering::Relaxed) == 2);
        // A file that is reopened unchanged is continued, in the middle of a line as well.
        writer.has_partial_line = true;
        assert!(!writer.reopen() && writer.has_partial_line);
        writer.write_batch(b"four\n", 1);
        assert!(!writer.has_partial_line);
        std::fs::rename(&file, &renamed).unwrap();
        writer.has_partial_line = true;
        assert!(writer.reopen() && !writer.has_partial_line, "the new file has no partial line");
        writer.write_batch(b"five\n", 1);
        // If the file cannot be opened, the previous one stays in use.
        writer.path = Some(dir.path().join("absent/file"));
        assert!(!writer.reopen());
        writer.write_batch(b"six\n", 1);
        writer.path = None;
        assert!(!writer.reopen());
        assert_eq!(std::fs::read_to_string(&renamed).unwrap(), "three\n\nfour\n");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "five\nsix\n");
    }
}
