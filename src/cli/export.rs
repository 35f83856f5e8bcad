//! `docwharf export start|status|link|download`: runs the API steps of a sync one by one. The store is not touched.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::config::checked::Config;
use docwharf_agent::api::calls::ApiCall;
use docwharf_agent::api::export::{self, ExportAction};
use docwharf_agent::api::responses::{ExportJob, SignedLink};
use docwharf_agent::fetch::{Download, DownloadResult, ExpectedBundle};
use docwharf_agent::store::space::free_bytes;
use docwharf_agent::sync::SyncError;
use docwharf_agent::sync::error::{MAX_LINK_REQUESTS, is_unusable_link};
use docwharf_agent::sync::system::TaskContext;
use docwharf_base::backoff;
use docwharf_base::directory::Directory;
use docwharf_base::error_chain::OneLine;
use docwharf_base::model::units::format_size;
use docwharf_base::model::version::VersionLabel;
use docwharf_base::net::request_error::{RequestError, RequestErrorCause};
use docwharf_base::net::retry::{CallAttempts, CallKind};

use super::api_caller::ApiCaller;
use super::context::CommandContext;
use super::failure::CommandFailure;
use super::interruptible::run_interruptible;

#[derive(Debug, Subcommand)]
pub(super) enum ExportCommand {
    /// Start an export job; prints its id
    Start(ExportStartCommand),
    /// Show the state of a job
    Status(ExportStatusCommand),
    /// Print a fresh link to a completed job's bundle: a secret until it expires
    Link(ExportLinkCommand),
    /// Download a completed job's bundle
    Download(ExportDownloadCommand),
}

#[derive(Debug, Args)]
pub(super) struct ExportStartCommand {
    /// Tag the export with this label; default: staticExport.version
    #[arg(long, value_name = "LABEL")]
    version: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct ExportStatusCommand {
    /// The job's id, as `export start` prints it
    job: String,
    /// Wait until the job has ended
    #[arg(long)]
    wait: bool,
}

#[derive(Debug, Args)]
pub(super) struct ExportLinkCommand {
    /// The job's id, as `export start` prints it
    job: String,
}

#[derive(Debug, Args)]
pub(super) struct ExportDownloadCommand {
    /// The job's id, as `export start` prints it
    job: String,
    /// The file to write; default: the name in the link, in this folder
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl ExportCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let config = context.config()?;
        context.warn_about_config(&config);
        match self {
            ExportCommand::Start(start) => start.run(context, config),
            ExportCommand::Status(status) => status.run(context, config),
            ExportCommand::Link(link) => {
                let link = run_interruptible(context, move |task_context| {
                    ExportJobCalls::new(&config, task_context)?.link(&link.job)
                })??;
                let json = json!({
                    "schemaVersion": 1, "bundleUrl": link.url.expose().as_str(),
                    "sizeBytes": link.size, "expiresAt": link.expires_at,
                });
                // The link is the result of this command. Every other output masks it.
                context.print_result(&json, &format!("{}\n", link.url.expose()))
            }
            ExportCommand::Download(download) => download.run(context, config),
        }
    }
}

impl ExportStartCommand {
    fn run(self, context: &CommandContext, config: Config) -> Result<(), CommandFailure> {
        let version = self.version.as_deref().map(VersionLabel::new).transpose();
        let version = version.map_err(|why| CommandFailure::Usage(format!("--version: {why}")))?;
        let version = version.or_else(|| config.sync_settings.pin.clone());
        let id = run_interruptible(context, move |task_context| {
            ExportJobCalls::new(&config, task_context)?.start(version.as_ref())
        })??;
        context.print_result(&json!({ "schemaVersion": 1, "jobId": id }), &format!("{}\n", OneLine(&id)))
    }
}

impl ExportStatusCommand {
    fn run(self, context: &CommandContext, config: Config) -> Result<(), CommandFailure> {
        let (id, wait) = (self.job.clone(), self.wait);
        let job = run_interruptible(context, move |task_context| {
            ExportJobCalls::new(&config, task_context)?.status(&id, wait)
        })??;
        let line = format!("{}  {}\n", OneLine(&self.job), OneLine(&job.line()));
        context.print_result(&json!({ "schemaVersion": 1, "jobId": self.job, "job": job }), &line)?;
        match export::next_action(&job) {
            ExportAction::Failed(reason) => {
                let reason = OneLine(&reason).to_string();
                Err(SyncError::JobFailed { id: OneLine(&self.job).to_string(), reason }.into())
            }
            _ => Ok(()),
        }
    }
}

impl ExportDownloadCommand {
    fn run(self, context: &CommandContext, config: Config) -> Result<(), CommandFailure> {
        let (path, bytes) = run_interruptible(context, move |task_context| {
            ExportJobCalls::new(&config, task_context)?.download(&self.job, self.output.as_deref())
        })??;
        let json = json!({ "schemaVersion": 1, "file": path, "bytes": bytes });
        context.print_outcome(&json, &format!("{}  {}\n", path.display(), format_size(bytes)))
    }
}

/// The API calls for an export job.
struct ExportJobCalls<'a>(ApiCaller<'a>);

impl<'a> ExportJobCalls<'a> {
    fn new(config: &'a Config, task_context: &'a TaskContext) -> Result<ExportJobCalls<'a>, CommandFailure> {
        ApiCaller::new(config, task_context, "export").map(ExportJobCalls)
    }

    fn start(&self, version: Option<&VersionLabel>) -> Result<String, CommandFailure> {
        let doing = format!("start the export of {}", self.0.source.domain);
        self.0.call_with_retries(ApiCall::StartExport, &doing, || {
            self.0
                .task_context
                .wait_for(self.0.api.start_export(&self.0.source.domain, version.map(VersionLabel::as_str)))
        })
    }

    fn status(&self, id: &str, wait: bool) -> Result<ExportJob, CommandFailure> {
        let network = &self.0.config.sync_settings.network;
        let doing = format!("read the state of the export job {}", OneLine(id));
        let started = std::time::Instant::now();
        for polls in 1.. {
            let job = self.0.call_with_retries(ApiCall::PollExport, &doing, || {
                self.0.task_context.wait_for(self.0.api.poll_export(id))
            })?;
            self.0.task_context.progress.set_percent(job.progress);
            self.0.task_context.progress.set_step(&OneLine(&job.line()).to_string());
            if !wait || export::next_action(&job) != ExportAction::Poll {
                return Ok(job);
            }
            if started.elapsed() >= self.0.config.sync_settings.job_timeout {
                return Err(SyncError::JobTimeout {
                    id: OneLine(id).to_string(),
                    after: self.0.config.sync_settings.job_timeout,
                    state: OneLine(&job.line()).to_string(),
                    still: Duration::ZERO,
                }
                .into());
            }
            self.0.pause(export::poll_pause(polls, network.first_poll_pause, network.max_poll_pause))?;
        }
        Err(CommandFailure::Bug("the polling ended without a result".to_owned()))
    }

    fn link(&self, id: &str) -> Result<SignedLink, CommandFailure> {
        let doing = format!("get a link to the bundle of the export job {}", OneLine(id));
        self.0.call_with_retries(ApiCall::RequestExportLink, &doing, || {
            self.0.task_context.wait_for(self.0.api.request_link(id))
        })
    }

    /// Downloads into a folder beside the target and renames: the target exists complete or not at all.
    /// Returns its path and its size in bytes.
    fn download(&self, id: &str, output: Option<&Path>) -> Result<(PathBuf, u64), CommandFailure> {
        let mut link = self.link(id)?;
        let target = match output {
            Some(path) => path.to_owned(),
            None => PathBuf::from(link_file_name(&link)),
        };
        if target.exists() && output.is_none() {
            let message = format!("{} exists already; name another file with --output", target.display());
            return Err(CommandFailure::Usage(message));
        }
        let parent = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let temporary_folder = tempfile::Builder::new().prefix(".docwharf-").tempdir_in(&parent);
        let temporary_folder =
            temporary_folder.map_err(CommandFailure::local(format!("cannot write into {}", parent.display())))?;
        let downloads = Directory::open_no_follow(temporary_folder.path());
        let downloads = downloads.map_err(CommandFailure::local(format!("cannot write into {}", parent.display())))?;
        let network = self.0.config.sync_settings.network.clone();
        let progress = std::sync::Arc::clone(&self.0.task_context.progress.fetching);
        let limit = self.0.config.sync_settings.seal_options.limits.archive;
        let mut download = Download::new(self.0.http.clone(), network, progress, &downloads, id, limit, Vec::new());
        let check_free_space = |bundle: &ExpectedBundle<'_>| match free_bytes(temporary_folder.path()) {
            Ok(Some(free)) if free < bundle.remaining => {
                let message = format!(
                    "no space in {}: {} needed, {} free",
                    parent.display(),
                    format_size(bundle.remaining),
                    format_size(free)
                );
                Err(RequestError::new(RequestErrorCause::Disk, message))
            }
            // If the free space is unknown, only writing shows whether it is enough.
            _ => Ok(()),
        };
        let mut attempts = CallAttempts::default();
        let mut link_count = 1;
        loop {
            self.0.task_context.progress.set_step(&format!("downloading {}", link.url));
            let request_error = match self.0.task_context.wait_for(download.attempt(&link.url, &check_free_space))? {
                Ok(DownloadResult::Received(received)) => {
                    let write = |error| CommandFailure::local(format!("cannot write {}", target.display()))(error);
                    let bytes = std::fs::metadata(&received.path).map_err(write)?.len();
                    std::fs::rename(&received.path, &target).map_err(write)?;
                    return Ok((target, bytes));
                }
                Ok(DownloadResult::Unchanged(_)) => {
                    // Cannot happen: no request has a condition, because no bundle is known.
                    return Err(CommandFailure::Bug(
                        "a download ended as unchanged, although no bundle is known".to_owned(),
                    ));
                }
                Err(request_error) => request_error,
            };
            if download.has_received_another_mebibyte() {
                attempts.reset();
                link_count = 1;
            }
            if is_unusable_link(&request_error) && link_count < MAX_LINK_REQUESTS {
                if link_count > 1 {
                    self.0.pause(backoff::wait_after_attempt(link_count - 1, backoff::random_fraction()))?;
                }
                link_count += 1;
                link = self.link(id)?;
                continue;
            }
            match attempts.next_pause(CallKind::Read, &request_error, backoff::random_fraction()) {
                Some(pause) => self.0.pause(pause)?,
                None => {
                    return Err(SyncError::Download {
                        link: link.url.to_string(),
                        signed: link.url.has_query(),
                        request_error,
                        key: None,
                    }
                    .into());
                }
            }
        }
    }
}

/// Returns the last segment of the link's path if that is a plain file name, otherwise `bundle`.
fn link_file_name(link: &SignedLink) -> String {
    let last = link.url.expose().path_segments().and_then(|mut segments| segments.next_back()).unwrap_or_default();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if !last.is_empty() && !last.starts_with('.') && last.len() < 128 && last.bytes().all(plain) {
        last.to_owned()
    } else {
        "bundle".to_owned()
    }
}
