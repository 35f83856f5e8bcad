//! `docwharf preview create|status`: deploys a preview of a branch, and shows the state of a deployment.

mod comment;
mod commit_line;

use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::json;

use docwharf_agent::api::calls::ApiCall;
use docwharf_agent::api::export;
use docwharf_agent::api::preview::{DeploymentAction, PreviewDeployment, StartedPreview, is_path_segment};
use docwharf_base::child_network::{ChildNetwork, explain_start_error};
use docwharf_base::error_chain::OneLine;
use docwharf_base::model::units::{format_duration, parse_duration};

use super::api_caller::ApiCaller;
use super::context::CommandContext;
use super::failure::CommandFailure;
use super::interruptible::run_interruptible;
use super::output::print;
use commit_line::commit_line;

/// Number of log lines shown. The last lines are shown, because they contain the result of the deployment.
const MAX_SHOWN_LOG_LINES: usize = 200;

/// The default of `--timeout`.
const DEFAULT_WAIT_TIMEOUT: &str = "15m";

#[derive(Debug, Subcommand)]
pub(super) enum PreviewCommand {
    /// Start the preview of a branch, or deploy it again; prints its address
    Create(PreviewCreateCommand),
    /// Show the state of a preview's deployment
    Status(PreviewStatusCommand),
}

#[derive(Debug, Args)]
pub(super) struct PreviewCreateCommand {
    /// The branch; default: the current branch of the Git checkout in this folder
    #[arg(long, value_name = "BRANCH")]
    branch: Option<String>,
    /// Wait until it is ready or has failed
    #[arg(long)]
    wait: bool,
    /// How long to wait for it
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = DEFAULT_WAIT_TIMEOUT, requires = "wait")]
    timeout: Duration,
    /// Print a comment for a pull request in Markdown, instead of the address
    #[arg(long)]
    comment: bool,
    /// Fail if the budget of 5 previews a minute is used up, instead of waiting
    #[arg(long)]
    no_wait_for_budget: bool,
}

#[derive(Debug, Args)]
pub(super) struct PreviewStatusCommand {
    /// The statusId, as `preview create --json` prints it
    #[arg(value_name = "ID")]
    id: String,
    /// Wait until it is ready or has failed
    #[arg(long)]
    wait: bool,
    /// How long to wait for it
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = DEFAULT_WAIT_TIMEOUT, requires = "wait")]
    timeout: Duration,
}

impl PreviewCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        match self {
            PreviewCommand::Create(create) => create.run(context),
            PreviewCommand::Status(status) => status.run(context),
        }
    }
}

impl PreviewCreateCommand {
    fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        if self.comment && context.global.json {
            return Err(CommandFailure::Usage(
                "--comment prints Markdown and --json prints JSON: leave one out".to_owned(),
            ));
        }
        let named_branch = self.branch.map(|branch| branch.trim().to_owned());
        if named_branch.as_ref().is_some_and(String::is_empty) {
            return Err(CommandFailure::Usage("--branch is empty: name a branch".to_owned()));
        }
        let config = context.config()?;
        context.warn_about_config(&config);
        let branch = match named_branch {
            Some(branch) => branch,
            None => current_branch(ChildNetwork::for_other_program(&config.deployment.outbound_policy()))?,
        };
        let is_plain = !context.global.json && !self.comment;
        let (waits, wait, name) = (!self.no_wait_for_budget, self.wait.then_some(self.timeout), branch.clone());
        let draws_progress = context.shows_progress();
        let (preview, polled) = run_interruptible(context, move |task_context| {
            let mut caller = ApiCaller::with_budgets(&config, task_context, "preview", waits)?;
            let preview = start_preview(&caller, &name)?;
            if let (true, Some(url)) = (is_plain, &preview.preview_url) {
                // Printed at once: a build takes minutes, and the address is known. The progress line is cleared first.
                if draws_progress {
                    eprint!("\r\x1b[2K");
                }
                print(&format!("{url}\n"))?;
            }
            let polled = match (&preview.status_id, wait) {
                (_, None) => Ok(None),
                (Some(id), wait) => poll_deployment(&mut caller, id, wait).map(Some),
                (None, Some(_)) => {
                    let what =
                        format!("cannot wait for the preview of {}: the API returned no statusId", OneLine(&name));
                    Err(CommandFailure::Unavailable(what))
                }
            };
            Ok::<_, CommandFailure>((preview, polled))
        })??;
        // The preview was started, so it is printed even if waiting for its end failed.
        let deployment = polled.as_ref().ok().and_then(Option::as_ref);
        if self.comment {
            print(&comment::markdown(&branch, &preview, deployment))?;
        } else if context.global.json {
            let json = json!({
                "schemaVersion": 1, "branch": branch, "statusId": preview.status_id,
                "previewUrl": preview.preview_url, "deployment": deployment,
            });
            context.print_result(&json, "")?;
        } else if let Some(deployment) = deployment {
            context.print_note(deployment_text(deployment).trim_end());
        }
        let what = format!("the preview of {}", OneLine(&branch));
        polled?.map_or(Ok(()), |deployment| check_deployment(&what, &deployment))?;
        if preview.preview_url.is_none() && is_plain {
            let id = preview.status_id.as_deref().unwrap_or("none");
            let what = format!("{what} was started, but the API returned no address; its statusId is {}", OneLine(id));
            return Err(CommandFailure::Unavailable(what));
        }
        Ok(())
    }
}

impl PreviewStatusCommand {
    fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        if !is_path_segment(&self.id) {
            return Err(CommandFailure::Usage(format!(
                "{:?} is not a status id: `preview create --json` prints one",
                self.id
            )));
        }
        let config = context.config()?;
        context.warn_about_config(&config);
        let (id, wait) = (self.id.clone(), self.wait.then_some(self.timeout));
        let deployment = run_interruptible(context, move |task_context| {
            poll_deployment(&mut ApiCaller::new(&config, task_context, "preview")?, &id, wait)
        })??;
        let json = json!({ "schemaVersion": 1, "statusId": self.id, "deployment": deployment });
        context.print_result(&json, &deployment_text(&deployment))?;
        check_deployment(&format!("the deployment {}", OneLine(&self.id)), &deployment)
    }
}

/// Returns the branch that is checked out in this folder, from `git`, which handles worktrees and submodules. It runs
/// with this network.
fn current_branch(network: ChildNetwork) -> Result<String, CommandFailure> {
    let mistake =
        |why: &str| CommandFailure::Usage(format!("cannot determine the current branch: {why}; name it with --branch"));
    let mut command = network.command("git");
    let git =
        command.args(["symbolic-ref", "--quiet", "--short", "HEAD"]).output().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => mistake("there is no git on this machine"),
            _ => mistake(&explain_start_error(error).to_string()),
        })?;
    if git.status.success() {
        return Ok(String::from_utf8_lossy(&git.stdout).trim().to_owned());
    }
    let stderr = String::from_utf8_lossy(&git.stderr);
    // git prints nothing if HEAD names a commit instead of a branch.
    Err(mistake(match stderr.lines().next() {
        None => "HEAD is detached, as in most checkouts of CI",
        Some(_) if stderr.contains("not a git repository") => "this folder is not in a Git repository",
        Some(line) => line,
    }))
}

fn start_preview(caller: &ApiCaller<'_>, branch: &str) -> Result<StartedPreview, CommandFailure> {
    let project = caller.project("preview")?;
    let doing = format!("start the preview of {}", OneLine(branch));
    caller.call_with_retries(ApiCall::Preview, &doing, || {
        caller.task_context.wait_for(caller.api.start_preview(project, branch))
    })
}

/// Returns the current state of a deployment or, with `wait`, its last one. Fails if it does not end in that time.
fn poll_deployment(
    caller: &mut ApiCaller<'_>,
    id: &str,
    wait: Option<Duration>,
) -> Result<PreviewDeployment, CommandFailure> {
    let source = caller.source;
    let Some(path) = source.status_path.fill(id, source.project.as_deref()) else {
        return Err(CommandFailure::Usage(
            "api.statusPath contains {projectId}, but api.projectId is not set".to_owned(),
        ));
    };
    let network = &caller.config.sync_settings.network;
    let doing = format!("read the state of the deployment {}", OneLine(id));
    caller.deadline = wait.and_then(|wait| Instant::now().checked_add(wait));
    let mut last_state = "unknown".to_owned();
    for polls in 1.. {
        let deployment = match caller.call_with_retries(ApiCall::Deployment, &doing, || {
            caller.call_until_deadline(caller.api.poll_deployment(&path))
        }) {
            Err(_) if caller.is_past_deadline() => return Err(deadline_failure(id, wait, &last_state)),
            other => other?,
        };
        let line = OneLine(&deployment.line()).to_string();
        caller.task_context.progress.set_step(&line);
        if wait.is_none() || deployment.next_action() != DeploymentAction::Poll {
            return Ok(deployment);
        }
        last_state = line;
        if caller.is_past_deadline() {
            return Err(deadline_failure(id, wait, &last_state));
        }
        // The pause ends at the deadline at the latest, for a last poll.
        caller.pause(export::poll_pause(polls, network.first_poll_pause, network.max_poll_pause))?;
    }
    Err(CommandFailure::Bug("the polling ended without a result".to_owned()))
}

fn deadline_failure(id: &str, wait: Option<Duration>, last_state: &str) -> CommandFailure {
    let (id, after) = (OneLine(id), format_duration(wait.unwrap_or_default()));
    let advice = format!("check again with `docwharf preview status {id} --wait`");
    CommandFailure::Unavailable(format!(
        "the deployment {id} has not ended after {after}; its last state: {last_state}; {advice}"
    ))
}

fn check_deployment(what: &str, deployment: &PreviewDeployment) -> Result<(), CommandFailure> {
    if deployment.next_action() != DeploymentAction::Failed {
        return Ok(());
    }
    let why = deployment.summary.as_deref().or(deployment.logs.last().map(String::as_str));
    let why = why.unwrap_or("the API returned no reason");
    Err(CommandFailure::Preview(format!("{what} failed: {}; see its logs, fix the branch and push it", OneLine(why))))
}

/// Formats a deployment as text.
fn deployment_text(deployment: &PreviewDeployment) -> String {
    let mut out = String::new();
    let mut line = |name: &str, text: &str| {
        use std::fmt::Write;
        let _ = writeln!(out, "{name:<8} {}", OneLine(text));
    };
    line("status", &deployment.status);
    if let Some(summary) = &deployment.summary {
        line("summary", summary);
    }
    if let Some(commit) = &deployment.commit {
        line("commit", &commit_line(commit));
    }
    if let Some(at) = &deployment.created_at {
        line("began", at);
    }
    if let Some(at) = &deployment.ended_at {
        line("ended", at);
    }
    let left_out = deployment.logs.len().saturating_sub(MAX_SHOWN_LOG_LINES);
    for (i, log) in deployment.logs[left_out..].iter().enumerate() {
        line(if i == 0 { "logs" } else { "" }, log);
    }
    if left_out > 0 {
        line("", &format!("({left_out} earlier lines: --json prints all)"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(status: &str, summary: Option<&str>, logs: usize) -> PreviewDeployment {
        PreviewDeployment {
            status: status.to_owned(),
            summary: summary.map(str::to_owned),
            logs: (1..=logs).map(|n| format!("line {n}")).collect(),
            created_at: None,
            ended_at: None,
            commit: None,
        }
    }

    #[test]
    fn only_a_failed_deployment_is_an_error_and_its_message_has_the_reason() {
        for (deployment, why) in [
            (deployment("success", Some("bad"), 1), None),
            (deployment("queued", None, 0), None),
            (deployment("no such word", None, 0), None),
            (deployment("failure", Some("no\npages"), 2), Some("it failed: no\\npages;")),
            (deployment("failure", None, 2), Some("it failed: line 2;")),
            (deployment("failure", None, 0), Some("it failed: the API returned no reason;")),
        ] {
            match (check_deployment("it", &deployment), why) {
                (Ok(()), None) => {}
                (Err(CommandFailure::Preview(message)), Some(why)) => assert!(message.starts_with(why), "{message}"),
                (found, _) => panic!("{found:?} of {deployment:?}"),
            }
        }
    }

    #[test]
    fn deployment_text_contains_the_known_fields_and_the_last_log_lines() {
        assert_eq!(deployment_text(&deployment("queued", None, 0)), "status   queued\n");
        let all = PreviewDeployment {
            created_at: Some("then".to_owned()),
            ended_at: Some("now".to_owned()),
            ..deployment("success", Some("4 pages"), 2)
        };
        let lines =
            "status   success\nsummary  4 pages\nbegan    then\nended    now\nlogs     line 1\n         line 2\n";
        assert_eq!(deployment_text(&all), lines);
        for (logs, first, left_out) in
            [(200, "line 1\n", None), (203, "line 4\n", Some("(3 earlier lines: --json prints all)"))]
        {
            let text = deployment_text(&deployment("success", None, logs));
            assert!(text.contains(&format!("logs     {first}")), "{text}");
            assert_eq!(text.lines().count(), 201 + usize::from(left_out.is_some()));
            assert!(left_out.is_none_or(|words| text.trim_end().ends_with(words)), "{text}");
        }
    }
}
