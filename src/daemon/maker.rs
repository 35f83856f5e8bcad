//! The process that makes a coding: this program once more, which reads a sealed image, compresses its texts and ends.
//!
//! It is a process and no thread because an encoder needs tens of megabytes for a while, of which an allocator would keep
//! some for ever; because it can be stopped in the middle of a page while the site is under load; and because, where memory
//! runs out, it is the one that goes. Whatever becomes of it, the site is served. It gets two open files and nothing else:
//! no configuration, no environment, no key, and it ends with the thread that has started it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal, setpriority_process};
use rustix::time::{ClockId, clock_gettime};

use docwharf_base::regular;
use docwharf_base::codec::content_coding::ContentCoding;
use docwharf_base::model::version::VersionId;
use docwharf_site::seal::recode::recode;
use docwharf_site::index::Index;
use docwharf_agent::store::IMAGE;

/// The name of the command that is no part of the contract.
pub const COMMAND: &str = "make-coding";
/// The program that runs, also where its file has been replaced meanwhile.
const PROGRAM: &str = "/proc/self/exe";
/// Bytes of what it has to say that are passed on.
const WORDS: u64 = 500;
/// A larger index, in bytes, is none.
const INDEX_MOST: u64 = 4 << 30;
/// As far behind the others as it gets. The kernel takes the place in the queue of a disk from it as well.
const NICE: i32 = 19;

/// What is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// In which coding.
    pub coding: ContentCoding,
    /// Of which version.
    pub id: VersionId,
    /// Where its index lies.
    pub index: PathBuf,
}

/// The process while it runs; killed when dropped.
#[derive(Debug)]
pub(super) struct Maker {
    child: Child,
    works: bool,
}

impl Maker {
    /// Starts it on the version in `dir`; what it makes is written to `out`.
    pub(super) fn start(order: &Order, dir: &Path, out: &File) -> io::Result<Maker> {
        let image = regular::open(&dir.join(IMAGE))?;
        let mut command = Command::new(PROGRAM);
        command.arg0("docwharf").arg(COMMAND).args(["--coding", order.coding.token()]);
        command.args(["--id", &order.id.to_string()]).arg("--index").arg(&order.index);
        command.args(["--parent", &std::process::id().to_string()]);
        command.env_clear().current_dir("/").stdin(image).stdout(out.try_clone()?).stderr(Stdio::piped());
        Ok(Maker { child: command.spawn()?, works: true })
    }

    /// Whether it has ended well; an error if it has ended otherwise.
    pub(super) fn is_done(&mut self) -> io::Result<bool> {
        let Some(status) = self.child.try_wait()? else { return Ok(false) };
        if status.success() {
            return Ok(true);
        }
        let mut words = Vec::new();
        if let Some(said) = self.child.stderr.take() {
            let _ = said.take(WORDS).read_to_end(&mut words);
        }
        let words = String::from_utf8_lossy(&words);
        let line = words.lines().next().unwrap_or_default();
        let line = line.strip_prefix("docwharf: ").unwrap_or(line);
        let why = if line.is_empty() { status.to_string() } else { line.to_owned() };
        Err(io::Error::other(format!("the process that makes it has ended: {why}")))
    }

    /// Lets it work or has it stand still, wherever it is.
    pub(super) fn let_work(&mut self, may: bool) {
        if may != self.works {
            let signal = if may { Signal::CONT } else { Signal::STOP };
            // Until it has been waited for, nobody else has its number.
            let _ = kill_process(Pid::from_child(&self.child), signal);
            self.works = may;
        }
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What that process does: it steps back behind everything else, and makes what is ordered of the image on its standard
/// input, on its standard output. It is refused unless `parent` has started it.
pub fn make(order: &Order, parent: u32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have ended before that.
    if getppid().is_none_or(|pid| pid.as_raw_nonzero().get().cast_unsigned() != parent) {
        return Err(io::Error::other("this command is for docwharf itself: who has started it is gone"));
    }
    // Neither can fail in a way that matters: it only costs politeness.
    let _ = setpriority_process(None, NICE);
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let image = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let bytes = regular::read(&order.index, INDEX_MOST)?;
    let index = Index::decode(bytes, image.metadata()?.len(), order.id).map_err(io::Error::other)?;
    recode(order.coding, order.id, &image, &index, &out, spent)
}

/// Processor time of this process.
fn spent() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
