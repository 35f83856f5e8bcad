//! Runs a long task on a separate thread, shows its progress on the terminal, and ends it on a signal.

use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};

use docwharf_agent::sync::system::{TaskContext, TaskProgress};
use docwharf_base::model::units::{format_count, format_size};
use docwharf_base::runtime;

use super::context::{CommandContext, current_user_name};
use super::exit::signal_exit_code;
use super::failure::CommandFailure;

/// The number of SIGINT, for the exit code.
const SIGINT_NUMBER: u8 = 2;
/// The number of SIGTERM, for the exit code.
const SIGTERM_NUMBER: u8 = 15;
/// The message about a task whose thread has panicked.
const ENDED_UNEXPECTEDLY: &str = "the task ended unexpectedly";

/// Runs `task` on a thread and draws its progress. SIGINT and SIGTERM end it, also in process 1, where the default
/// action of a signal is to be ignored.
pub(super) fn run_interruptible<T: Send + 'static>(
    context: &CommandContext,
    task: impl FnOnce(&TaskContext) -> T + Send + 'static,
) -> Result<T, CommandFailure> {
    let (send, result) = std::sync::mpsc::channel();
    run_on_thread(
        context,
        Box::new(move |task_context| {
            let _ = send.send(task(task_context));
        }),
    )?;
    result.try_recv().map_err(|_| CommandFailure::Bug(ENDED_UNEXPECTEDLY.to_owned()))
}

/// Implements [`run_interruptible`] without its type parameters, so that this is compiled once.
fn run_on_thread(context: &CommandContext, task: Box<dyn FnOnce(&TaskContext) + Send>) -> Result<(), CommandFailure> {
    let start = CommandFailure::local("cannot start");
    let runtime =
        runtime::build_runtime(tokio::runtime::Builder::new_multi_thread().worker_threads(1)).map_err(start)?;
    // Before the task begins: a process that inherits an ignored SIGINT, such as a background job of a shell, or
    // process 1 would lose a signal that arrives earlier.
    let listen = |kind| signal(kind).map_err(CommandFailure::local("cannot listen for signals"));
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?)
    };
    let (stop, stopped) = watch::channel(false);
    let progress = Arc::new(TaskProgress::default());
    let handle = runtime.handle().clone();
    let task_context = TaskContext {
        runtime: handle,
        stop: stopped,
        progress: Arc::clone(&progress),
        author: current_user_name(),
        force: false,
        in_force: None,
    };
    let (send, mut done) = oneshot::channel();
    let thread = std::thread::Builder::new().name("docwharf-work".to_owned());
    thread
        .spawn(move || {
            task(&task_context);
            let _ = send.send(());
        })
        .map_err(CommandFailure::local("cannot start a thread"))?;
    let bar = context.shows_progress().then(create_bar);
    let outcome = runtime.block_on(async {
        let mut tick = tokio::time::interval(Duration::from_millis(80));
        loop {
            tokio::select! {
                outcome = &mut done => {
                    return outcome.map_err(|_| CommandFailure::Bug(ENDED_UNEXPECTEDLY.to_owned()));
                }
                _ = interrupt.recv() => return Err(CommandFailure::Signal(SIGINT_NUMBER)),
                _ = terminate.recv() => return Err(CommandFailure::Signal(SIGTERM_NUMBER)),
                _ = tick.tick(), if bar.is_some() => draw(bar.as_ref(), &progress),
            }
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    stop.send_replace(true);
    if outcome.is_err() {
        // The thread may still be working, and may have changed the store already. It ends with the process, as in a
        // crash, which the store survives.
        runtime.shutdown_background();
        return outcome;
    }
    // The caller only prints from here on. A full pipe without a reader must not keep the process from ending: the
    // signals are still caught, so this task does what their default action would do.
    runtime.spawn(async move {
        let number = tokio::select! {
            _ = interrupt.recv() => SIGINT_NUMBER,
            _ = terminate.recv() => SIGTERM_NUMBER,
        };
        std::process::exit(i32::from(signal_exit_code(number)));
    });
    // The runtime runs that task as long as the process lives.
    std::mem::forget(runtime);
    outcome
}

fn create_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
        bar.set_style(style);
    }
    bar
}

fn draw(bar: Option<&ProgressBar>, progress: &TaskProgress) {
    let Some(bar) = bar else { return };
    let (received, total) = (progress.fetching.received(), progress.fetching.total());
    let (cells, detail) = if progress.sealing.bytes() > 0 {
        let files = format_count(progress.sealing.files(), "file");
        (String::new(), format!(": {files}, {}", format_size(progress.sealing.bytes())))
    } else if total > 0 {
        let percent = received as f64 * 100.0 / total as f64;
        (progress_cells(percent), format!(": {} of {}", format_size(received), format_size(total)))
    } else if received > 0 {
        (String::new(), format!(": {}", format_size(received)))
    } else {
        (progress.percent().map_or_else(String::new, progress_cells), String::new())
    };
    bar.set_message(format!("{cells}{}{detail}", progress.step()));
    bar.tick();
}

/// Returns a bar of twenty cells and a space.
fn progress_cells(percent: f64) -> String {
    (0..20).map(|cell| if f64::from(cell) * 5.0 < percent { '━' } else { '╌' }).chain([' ']).collect()
}

#[cfg(test)]
mod tests {
    use super::progress_cells;

    #[test]
    fn progress_bar_is_empty_at_0_percent_and_full_at_100_percent() {
        let full = |percent| progress_cells(percent).matches('━').count();
        assert_eq!([full(0.0), full(55.0), full(99.0), full(100.0), full(250.0)], [0, 11, 20, 20, 20]);
        assert_eq!(progress_cells(7.0).chars().count(), 21);
    }
}
