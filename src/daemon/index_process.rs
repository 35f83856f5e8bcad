//! The index process: this program, started once more, which reads a sealed image, builds the search index of the
//! version in a folder and ends. Another start of it makes the Markdown of the pages.
//!
//! It is a process for the reasons that the [encoder process](super::encoder_process) has: its memory is returned when
//! it ends, the kernel ends it first when memory runs out, and whatever a page does to it, the site is served. It gets
//! two open files and a socket: the image, the folder, and on its standard error a socket from which it reads the index
//! of the image and its settings, and to which it writes its progress, its report and its errors, one line each. It has
//! no configuration, no environment and no key, and it ends with the thread that started it. In the store of another
//! user, which root may work in, it runs as that user: the paths below the folder are not safe for root there.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Resource, Rlimit, Signal, geteuid, getppid, set_parent_process_death_signal, setpriority_process, setrlimit,
};
use serde::{Deserialize, Serialize};

use crate::config::search::parse_excluded_patterns;
use docwharf_base::child_network::{ChildNetwork, explain_start_error};
use docwharf_base::directory::Directory;
use docwharf_base::error_chain::{ErrorChain, OneLine};
use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionId;
use docwharf_base::processors;
use docwharf_search::index::{BuildProgress, BuildReport, BuildSettings, build};
use docwharf_search::site_markdown::{MarkdownReport, build_site_markdown};
use docwharf_site::index::ImageIndex;
use docwharf_site::lookup::{AddressSettings, Slashes};
use docwharf_site::mapping::{self, SealedFile};
use docwharf_site::rules::header_fields::{FieldRule, RuleOwner};
use docwharf_site::rules::pattern::{Pattern, PatternDialect};
use docwharf_site::rules::robots_tag::X_ROBOTS_TAG;
use docwharf_site::rules::{RedirectRule, RuleAction, RuleDraft, RuleSet};
use docwharf_site::sealed_version::SealedVersion;

use super::build_product::BuildProduct;
use super::index_limits::{BuildLimits, ProcessMemory};
use super::index_settings::IndexSettings;

/// The name of the internal command, which is not documented for users.
pub const INDEX_COMMAND: &str = "make-search-index";
/// The running program, even if its file has been replaced meanwhile.
const PROGRAM: &str = "/proc/self/exe";
/// The folder of the index in the index process: its standard output.
const TARGET_FOLDER: &str = "/proc/self/fd/1";
/// The signals with which a process ends that gets no more memory: the kernel sends SIGKILL, the allocator SIGABRT.
const MEMORY_SIGNALS: [i32; 2] = [Signal::KILL.as_raw(), Signal::ABORT.as_raw()];
/// A setting of mimalloc, the allocator of the static program. By default it maps 1 GiB of writable memory at the first
/// allocation. `RLIMIT_DATA` counts this, used or not, so that there would be no memory left for the stack of a thread.
#[cfg(target_env = "musl")]
const ALLOCATOR_SETTING: (&str, &str) = ("MIMALLOC_ARENA_EAGER_COMMIT", "0");
/// The maximum number of threads that read pages.
const MAX_INDEX_THREADS: usize = 4;
/// The maximum size of the settings in bytes. The operator's rules are the largest part.
const MAX_SETTINGS_BYTES: u64 = 64 << 20;
/// The maximum size of an index of an image in bytes.
const MAX_IMAGE_INDEX_BYTES: u64 = 4 << 30;
/// The maximum length of a line that the process writes, in bytes.
const MAX_LINE_BYTES: usize = 64 << 10;
/// Time limit of passing the settings to the process.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between checks whether to continue.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// Interval at which the process reports its progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Niceness of the process: the lowest priority.
const INDEX_NICENESS: i32 = 19;
/// The beginning of a line with the number of pages that have been read, and that of all pages.
const PROGRESS_WORD: &str = "progress ";
/// The beginning of the line with the report.
const REPORT_WORD: &str = "report ";

/// The result of building an index.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IndexReport {
    /// The numbers of pages and sections, the size and the duration.
    #[serde(flatten)]
    pub build: BuildReport,
    /// The largest memory that the process had at a time, in bytes, with the parts of files that it had mapped. 0 if
    /// the system does not report it.
    pub peak_memory: u64,
}

/// The number of pages of which the sections have been read, and the number of all pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IndexProgress {
    /// The pages that have been read.
    pub done: u64,
    /// All pages; 0 before it is known.
    pub pages: u64,
}

/// The task of building an index.
#[derive(Debug)]
pub struct IndexTask<'a> {
    /// The version.
    pub version: &'a SealedVersion,
    /// Its image, opened for this task.
    pub image: File,
    /// The settings.
    pub settings: &'a IndexSettings,
    /// The product.
    pub product: BuildProduct,
    /// Whether the process has the lowest priority.
    pub is_background: bool,
    /// The network of the process.
    pub network: ChildNetwork,
}

/// Builds an index in `target`, an empty folder, in a separate process. `may_continue` is called at least every
/// [`POLL_INTERVAL`]; an error of it ends the process and is returned. A build that takes too long, or too much disk
/// space, is ended with an error, too. After any error, files may be left in the folder. The calling thread must not
/// end before this function: the process would end with it.
pub fn build_in_process(
    task: IndexTask<'_>,
    target: &Directory,
    may_continue: &mut dyn FnMut(IndexProgress) -> io::Result<()>,
) -> io::Result<IndexReport> {
    let inputs = IndexInputs::new(&task);
    let mut limits = BuildLimits::new(task.version, target);
    let mut process = IndexProcess::start(task.image, target, task.network)?;
    // If the process has ended already, its output says why.
    let sent = process.send(&inputs, task.version.index().bytes());
    let report = process.wait(&mut |progress: IndexProgress| {
        limits.check(Instant::now())?;
        may_continue(progress)
    });
    match (report, sent) {
        (Ok(report), Ok(())) => Ok(report),
        (Ok(_), Err(error)) | (Err(error), _) => Err(error),
    }
}

/// A running index process; it is killed when dropped.
struct IndexProcess {
    child: Child,
    socket: UnixStream,
}

impl IndexProcess {
    /// Starts the process. It waits for its inputs.
    fn start(image: File, target: &Directory, network: ChildNetwork) -> io::Result<IndexProcess> {
        let (socket, process_end) = UnixStream::pair()?;
        let mut command = network.command(PROGRAM);
        command.arg0("docwharf").arg(INDEX_COMMAND).args(["--parent", &std::process::id().to_string()]);
        command.env_clear().current_dir("/").stdin(image).stdout(target.to_file()?);
        #[cfg(target_env = "musl")]
        command.env(ALLOCATOR_SETTING.0, ALLOCATOR_SETTING.1);
        command.stderr(OwnedFd::from(process_end));
        let folder = target.metadata()?;
        if geteuid().is_root() && folder.uid() != 0 {
            command.uid(folder.uid()).gid(folder.gid());
        }
        let child = command.spawn().map_err(explain_start_error)?;
        Ok(IndexProcess { child, socket })
    }

    /// Passes the inputs to the process: the settings and the index of the image, each after its length.
    fn send(&mut self, inputs: &IndexInputs, image_index: &[u8]) -> io::Result<()> {
        self.socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        let inputs = serde_json::to_vec(inputs)?;
        for part in [&inputs[..], image_index] {
            self.socket.write_all(&(part.len() as u64).to_le_bytes())?;
            self.socket.write_all(part)?;
        }
        Ok(())
    }

    /// Waits for the end of the process and returns its report.
    fn wait(&mut self, may_continue: &mut dyn FnMut(IndexProgress) -> io::Result<()>) -> io::Result<IndexReport> {
        self.socket.set_read_timeout(Some(POLL_INTERVAL))?;
        let mut output = ProcessOutput::default();
        let mut piece = [0; 4096];
        loop {
            match self.socket.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => output.add(&piece[..read])?,
                Err(error) if is_timeout(&error) => {}
                // It has ended without reading all of its inputs.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                Err(error) => return Err(error),
            }
            may_continue(output.progress)?;
        }
        let status = self.child.wait()?;
        if let Some(report) = output.report.filter(|_| status.success()) {
            return Ok(report);
        }
        let mut why = output.error.unwrap_or_else(|| status.to_string());
        if status.signal().is_some_and(|signal| MEMORY_SIGNALS.contains(&signal)) {
            why += "; it may have run out of memory: raise the memory limit of the service or container";
        }
        let kind = if is_no_space(&why) { io::ErrorKind::StorageFull } else { io::ErrorKind::Other };
        Err(io::Error::new(kind, format!("the index process has ended: {why}")))
    }
}

impl Drop for IndexProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Whether a message of the process is about a full disk or quota.
fn is_no_space(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    message.contains("no space") || message.contains("quota exceeded")
}

/// The lines that the process has written so far.
#[derive(Default)]
struct ProcessOutput {
    /// A line without its end.
    rest: Vec<u8>,
    progress: IndexProgress,
    report: Option<IndexReport>,
    /// The message of the command, or the first other line.
    error: Option<String>,
}

impl ProcessOutput {
    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        for &byte in bytes {
            if byte == b'\n' {
                let line = std::mem::take(&mut self.rest);
                self.add_line(&String::from_utf8_lossy(&line));
            } else if self.rest.len() < MAX_LINE_BYTES {
                self.rest.push(byte);
            } else {
                return Err(io::Error::other("the index process has written a line that is too long"));
            }
        }
        Ok(())
    }

    fn add_line(&mut self, line: &str) {
        if let Some(progress) = line.strip_prefix(PROGRESS_WORD).and_then(parse_progress) {
            self.progress = progress;
        } else if let Some(report) = line.strip_prefix(REPORT_WORD).and_then(|json| serde_json::from_str(json).ok()) {
            self.report = Some(report);
        } else if let Some(message) = line.strip_prefix("docwharf: ") {
            self.error = Some(OneLine(message).to_string());
        } else if self.error.is_none() && !line.trim().is_empty() {
            self.error = Some(OneLine(line.trim()).to_string());
        }
    }
}

fn parse_progress(text: &str) -> Option<IndexProgress> {
    let (done, pages) = text.split_once(' ')?;
    Some(IndexProgress { done: done.parse().ok()?, pages: pages.parse().ok()? })
}

/// The settings as they are passed to the process.
#[derive(Debug, Serialize, Deserialize)]
struct IndexInputs {
    version: VersionId,
    product: BuildProduct,
    base_path: String,
    /// `None` if it depends on the version.
    redirects_slashes: Option<bool>,
    rules: Vec<RuleInput>,
    /// The operator's rules about `X-Robots-Tag`.
    robots_rules: Vec<FieldRule>,
    exclude: Vec<String>,
    links_to_markdown: bool,
    /// The digest of the settings of the product.
    digest: String,
    is_background: bool,
}

/// A redirect or rewrite of the operator.
#[derive(Debug, Serialize, Deserialize)]
struct RuleInput {
    source: String,
    destination: String,
    status: u16,
    force: bool,
    /// Whether the source is in the dialect of `_redirects`, else in that of a `docs.json`.
    is_netlify: bool,
}

impl IndexInputs {
    fn new(task: &IndexTask<'_>) -> IndexInputs {
        let settings = task.settings;
        let addresses = &settings.addresses;
        let digest = match task.product {
            BuildProduct::SearchIndex => settings.digest(),
            BuildProduct::SiteMarkdown => settings.markdown_digest(),
        };
        IndexInputs {
            version: task.version.id,
            product: task.product,
            base_path: addresses.base_path.clone(),
            redirects_slashes: addresses.slashes.map(|slashes| slashes == Slashes::Redirect),
            rules: addresses.rules.list().iter().map(RuleInput::new).collect(),
            robots_rules: addresses.rules.fields.rules_about(&X_ROBOTS_TAG).collect(),
            exclude: settings.exclude.clone(),
            links_to_markdown: settings.links_to_markdown,
            digest: digest.to_hex(),
            is_background: task.is_background,
        }
    }

    /// Reads the inputs of this process: these settings, and the index of the image.
    fn receive(socket: &mut UnixStream) -> io::Result<(IndexInputs, Vec<u8>)> {
        let mut read_part = |max_bytes: u64| -> io::Result<Vec<u8>> {
            let mut length = [0; 8];
            socket.read_exact(&mut length)?;
            let length = u64::from_le_bytes(length);
            if length > max_bytes {
                return Err(io::Error::other("the settings are too large"));
            }
            let mut part = Vec::new();
            Read::by_ref(socket).take(length).read_to_end(&mut part)?;
            if part.len() as u64 == length { Ok(part) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        };
        let inputs = read_part(MAX_SETTINGS_BYTES)?;
        Ok((serde_json::from_slice(&inputs)?, read_part(MAX_IMAGE_INDEX_BYTES)?))
    }

    fn address_settings(&self) -> io::Result<AddressSettings> {
        let mut draft = RuleDraft::default();
        for rule in &self.rules {
            draft.add(String::new(), Ok(rule.parse().map_err(io::Error::other)?));
        }
        for FieldRule { pattern, values } in &self.robots_rules {
            let rule = draft.fields.add_rule(pattern.clone()).map_err(io::Error::other)?;
            for value in values {
                let added = match value {
                    Some(value) => draft.fields.add_field(rule, X_ROBOTS_TAG.as_str(), value, RuleOwner::Operator),
                    None => draft.fields.add_removal(rule, X_ROBOTS_TAG.as_str()),
                };
                added.map_err(io::Error::other)?;
            }
        }
        let slashes =
            self.redirects_slashes.map(|redirects| if redirects { Slashes::Redirect } else { Slashes::Serve });
        Ok(AddressSettings { base_path: self.base_path.clone(), slashes, rules: Arc::new(RuleSet::new(draft)) })
    }
}

impl RuleInput {
    fn new(rule: &RedirectRule) -> RuleInput {
        // A rule does not say in which dialect it was written.
        let is_docs_json = Pattern::parse(&rule.source, PatternDialect::DocsJson).as_ref() == Ok(&rule.pattern);
        RuleInput {
            source: rule.source.to_string(),
            destination: rule.destination.to_string(),
            status: rule.action.status(),
            force: rule.force,
            is_netlify: !is_docs_json,
        }
    }

    fn parse(&self) -> Result<RedirectRule, String> {
        let dialect = if self.is_netlify { PatternDialect::Netlify } else { PatternDialect::DocsJson };
        let action = RuleAction::from_status(self.status)?;
        RedirectRule::new(String::new(), &self.source, &self.destination, dialect, action, self.force)
    }
}

/// Runs in the index process: limits its memory, lowers its priority, and builds the index of the image on standard
/// input in the folder on standard output. It is an error if another process than `parent` has started it.
pub fn run_index_builder(parent: u32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have ended before the signal was set.
    if getppid().is_none_or(|pid| pid.as_raw_nonzero().get().cast_unsigned() != parent) {
        return Err(io::Error::other("this command is for docwharf itself: the process that started it has ended"));
    }
    let limit = |bytes: u64| Rlimit { current: Some(bytes), maximum: Some(bytes) };
    let memory = ProcessMemory::of_this_process();
    // A filter of system calls may refuse this. Then the bounds of the builder remain, and those of the unit.
    if let Err(error) = setrlimit(Resource::Data, limit(memory.bytes))
        && error != Errno::PERM
    {
        return Err(error.into());
    }
    // Memory that has run out ends the process with a signal; a core file is of no use.
    let _ = setrlimit(Resource::Core, limit(0));
    let mut socket = UnixStream::from(io::stderr().as_fd().try_clone_to_owned()?);
    let (inputs, image_index) = IndexInputs::receive(&mut socket)?;
    let mut threads = memory.threads(processors::count().min(MAX_INDEX_THREADS));
    if inputs.is_background {
        // Where a filter of system calls permits no lower priority, one thread leaves processors to the server.
        if setpriority_process(None, INDEX_NICENESS).is_err() {
            threads = 1;
        }
        let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    }
    let image = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let index =
        ImageIndex::read(image_index.into(), image.metadata()?.len(), inputs.version).map_err(io::Error::other)?;
    let image = mapping::map_image(SealedFile::from_parent_process(image, inputs.version))?;
    let version = SealedVersion::new(inputs.version, image, index);
    let defaults = BuildSettings::default();
    let settings = BuildSettings {
        addresses: inputs.address_settings()?,
        exclude: parse_excluded_patterns(&inputs.exclude),
        links_to_markdown: inputs.links_to_markdown,
        digest: Digest::parse(&inputs.digest).ok_or(io::ErrorKind::InvalidInput)?,
        threads,
        memory_bytes: memory.parts_bytes(defaults.memory_bytes),
        ..defaults
    };
    let target = Directory::open(Path::new(TARGET_FOLDER))?;
    let report = build_with_progress(&version, &settings, inputs.product, &target, &mut socket)?;
    let report = IndexReport { build: report, peak_memory: peak_memory() };
    writeln!(socket, "{REPORT_WORD}{}", serde_json::to_string(&report)?)
}

/// Builds the index or another product, and writes the progress to `socket` meanwhile.
fn build_with_progress(
    version: &SealedVersion,
    settings: &BuildSettings,
    product: BuildProduct,
    target: &Directory,
    socket: &mut UnixStream,
) -> io::Result<BuildReport> {
    let progress = BuildProgress::default();
    std::thread::scope(|scope| {
        let (done, ended) = channel::<()>();
        let progress = &progress;
        scope.spawn(move || {
            while ended.recv_timeout(PROGRESS_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                // A parent that does not read any more ends this process.
                let _ = writeln!(socket, "{PROGRESS_WORD}{} {}", progress.done(), progress.pages());
            }
        });
        let report = match product {
            BuildProduct::SearchIndex => build(version, settings, target, progress)
                .map_err(|error| io::Error::other(ErrorChain(&error).to_string())),
            BuildProduct::SiteMarkdown => build_site_markdown(version, settings, target, progress).map(|report| {
                let MarkdownReport { pages, bytes, seconds, .. } = report;
                BuildReport { pages, bytes, seconds, ..BuildReport::default() }
            }),
        };
        drop(done);
        report
    })
}

/// Returns the largest memory that this process has had, in bytes; 0 if it is not known.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")).and_then(|number| number.trim().parse().ok());
    kilobytes.unwrap_or(0u64) << 10
}

#[cfg(test)]
mod tests;
