//! The encoder process: this program, started once more, which reads a sealed image, compresses its texts in one coding
//! and ends.
//!
//! It is a process and not a thread for three reasons. The encoder needs tens of megabytes, and an allocator would
//! not return all of them to the system. A process can be suspended in the middle of a page while the site is under
//! load. And if memory runs out, the kernel ends this process first. Whatever happens to this process, the site is
//! served. It gets two open files, a pipe for errors and the path of the index; no configuration, no environment, no
//! key. It ends with the thread that started it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{
    Pid, Signal, getppid, getpriority_process, kill_process, set_parent_process_death_signal, setpriority_process,
};
use rustix::time::{ClockId, clock_gettime};

use docwharf_agent::store::IMAGE;
use docwharf_base::child_network::{ChildNetwork, explain_start_error};
use docwharf_base::codec::content_coding::ContentCoding;
use docwharf_base::model::version::VersionId;
use docwharf_base::regular_file;
use docwharf_site::index::ImageIndex;
use docwharf_site::seal::coding_writer::write_coding_file;

/// The name of the internal command, which is not documented for users.
pub const ENCODER_COMMAND: &str = "make-coding";
/// The running program, even if its file has been replaced meanwhile.
const PROGRAM: &str = "/proc/self/exe";
/// The maximum number of bytes of the process's error output that are read.
const MAX_ERROR_OUTPUT_BYTES: u64 = 500;
/// The maximum size of an index in bytes.
const MAX_INDEX_BYTES: u64 = 4 << 30;
/// Niceness of the process: the lowest priority. The kernel derives the I/O priority from it as well (`ioprio_set(2)`).
const ENCODER_NICENESS: i32 = 19;

/// The task of an encoder process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncoderTask {
    /// The coding to make.
    pub coding: ContentCoding,
    /// The version to encode.
    pub id: VersionId,
    /// The path of the version's index.
    pub index: PathBuf,
}

/// A running encoder process; it is killed when dropped.
#[derive(Debug)]
pub(super) struct EncoderProcess {
    child: Child,
    is_running: bool,
}

impl EncoderProcess {
    /// Starts the process on the version in `dir`, with this network. It writes its result to `out`.
    pub(super) fn start(
        task: &EncoderTask,
        dir: &Path,
        out: &File,
        network: ChildNetwork,
    ) -> io::Result<EncoderProcess> {
        let image = regular_file::open(&dir.join(IMAGE))?;
        let mut command = network.command(PROGRAM);
        command.arg0("docwharf").arg(ENCODER_COMMAND).args(["--coding", task.coding.token()]);
        command.args(["--id", &task.id.to_string()]).arg("--index").arg(&task.index);
        command.args(["--parent", &std::process::id().to_string()]);
        command.env_clear().current_dir("/").stdin(image).stdout(out.try_clone()?).stderr(Stdio::piped());
        let child = command.spawn().map_err(explain_start_error)?;
        Ok(EncoderProcess { child, is_running: true })
    }

    /// Returns whether the process has ended successfully; an error if it has failed.
    pub(super) fn is_done(&mut self) -> io::Result<bool> {
        let Some(status) = self.child.try_wait()? else { return Ok(false) };
        if status.success() {
            return Ok(true);
        }
        let mut output = Vec::new();
        if let Some(stderr) = self.child.stderr.take() {
            let _ = stderr.take(MAX_ERROR_OUTPUT_BYTES).read_to_end(&mut output);
        }
        let output = String::from_utf8_lossy(&output);
        let line = output.lines().next().unwrap_or_default();
        let line = line.strip_prefix("docwharf: ").unwrap_or(line);
        let why = if line.is_empty() { status.to_string() } else { line.to_owned() };
        Err(io::Error::other(format!("the encoder process has ended: {why}")))
    }

    /// Resumes or suspends the process (SIGCONT, SIGSTOP). It is not suspended before it ends with its parent: a
    /// process that is suspended earlier would stay for ever if this one is killed. A later call suspends it.
    pub(super) fn set_running(&mut self, should_run: bool) {
        if should_run != self.is_running && (should_run || self.ends_with_parent()) {
            let signal = if should_run { Signal::CONT } else { Signal::STOP };
            // Until the process has been waited for, no other process gets its id.
            let _ = kill_process(Pid::from_child(&self.child), signal);
            self.is_running = should_run;
        }
    }

    /// Returns whether the process has lowered its priority, which it does after it has set the signal for the death of
    /// its parent.
    fn ends_with_parent(&self) -> bool {
        getpriority_process(Some(Pid::from_child(&self.child))).is_ok_and(|niceness| niceness == ENCODER_NICENESS)
    }
}

impl Drop for EncoderProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs in the encoder process: lowers its priority, encodes the image on standard input and writes the result to
/// standard output. It is an error if another process than `parent` has started it.
pub fn run_encoder(task: &EncoderTask, parent: u32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have ended before the signal was set.
    if getppid().is_none_or(|pid| pid.as_raw_nonzero().get().cast_unsigned() != parent) {
        return Err(io::Error::other("this command is for docwharf itself: the process that started it has ended"));
    }
    // The parent suspends this process only once it has this priority. Failures of the following calls are ignored:
    // they only slow down other processes.
    let _ = setpriority_process(None, ENCODER_NICENESS);
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let image = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let bytes = regular_file::read(&task.index, MAX_INDEX_BYTES)?;
    let index = ImageIndex::decode(bytes, image.metadata()?.len(), task.id).map_err(io::Error::other)?;
    write_coding_file(task.coding, task.id, &image, &index, &out, processor_time)
}

/// Returns the processor time that this process has used.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use support::until;

    use super::*;

    fn is_suspended(process: &EncoderProcess) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.child.id())).expect("the process runs");
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    }

    // Regression: a process that was suspended before it had set the signal for the death of its parent stayed for ever
    // when that parent was killed.
    #[test]
    fn a_process_that_would_outlive_its_parent_is_not_suspended() {
        let child = ChildNetwork::Inherited.command("sleep").arg("60").spawn().expect("sleep is installed");
        let mut process = EncoderProcess { child, is_running: true };
        process.set_running(false);
        assert!(!is_suspended(&process) && process.is_running);
        setpriority_process(Some(Pid::from_child(&process.child)), ENCODER_NICENESS).expect("a lower priority");
        process.set_running(false);
        // A signal to another process may arrive after the call.
        until("the process is suspended", || is_suspended(&process));
        process.set_running(true);
        until("the process runs", || !is_suspended(&process));
    }
}
